/* cpu:fused, backward: the steps of a chunk, last first, then the sums over its time. */
#include <string.h>
#include "backend/cpu/fused.h"
#include "cell/activations.h"

/* The first number of step t in dz, or, with masks, of the chunk. */
static size_t dz_at(const sli_fused_work *w, const sli_fused_direction *d, int t) {
    return (size_t)(w->mask ? 0 : t - d->first) * (size_t)w->B * (size_t)w->dz.ld;
}

static float *floats_of(const sli_fused_work *w, const sli_fused_direction *d, size_t at) {
    return w->dz.halves ? NULL : (float *)d->dz + at;
}

static uint16_t *halves_of(const sli_fused_work *w, const sli_fused_direction *d, size_t at) {
    return w->dz.halves ? (uint16_t *)d->dz + at : NULL;
}

/* A masked step has no dz; its state was carried, so dh and dc stay, but for dy where y was the carried h. */
static void skip_row(const sli_fused_work *w, const sli_fused_direction *d, int t, int row, int first, int last) {
    if (d->dy && sli_fused_repeated(w, d, t, row))
        w->ops->add((size_t)(last - first), d->dh + (size_t)row * (size_t)w->O + first,
                    d->dy + ((ptrdiff_t)t * w->B + row) * d->ld_y + first);
}

static sli_cell_step cell_of(const sli_fused_work *w, const sli_fused_direction *d) {
    sli_cell_step step = sli_fused_every_step(w, d);
    step.ld_dy = d->ld_y;
    step.dh = d->dh;
    step.dc = d->dc;
    step.ld_dz = w->dz.ld;
    return step;
}

/* dz of step t, for units [first, last). */
static void units_back(const sli_fused_work *w, const sli_fused_direction *d, const sli_fused_share *share, int t,
                       const sli_cell_step *step, int first, int last) {
    for (int r = 0; r < share->rows && w->mask; r++) {
        const int row = share->first_row + r * share->row_step;
        if (sli_fused_place(w, d, t, row) < 0) skip_row(w, d, t, row, first, last);
    }
    for (int r = 0; r < share->rows;) {
        sli_fused_rows rows;
        r = sli_fused_active(w, d, share, t, r, &rows);
        sli_fused_draw_h(w, d, t, &rows, first, last);
        if (!w->projects) sli_fused_draw_c(w, d, t, &rows, first, last);
        const sli_cell_share cells = {.row = rows.row, .at = rows.at, .rows = rows.count, .first = first, .last = last};
        w->cell->backward(step, &cells);
        for (int i = 0; i < rows.count && last == w->O && w->dz.zeros > 0; i++)
            memset(step->dz_half + rows.at[i] * step->ld_dz + w->W * w->H, 0,
                   (size_t)w->dz.zeros * sizeof *step->dz_half);
    }
}

static void gates_back(const sli_fused_work *w, const sli_fused_direction *d, sli_fused_share *share, int t,
                       sli_cell_step *step) {
    sli_fused_enter_step(w, d, t, step);
    step->dy = d->dy ? d->dy + (ptrdiff_t)t * w->B * d->ld_y : NULL;
    step->dz = floats_of(w, d, dz_at(w, d, t));
    step->dz_half = halves_of(w, d, dz_at(w, d, t));
    const size_t before = (size_t)(w->mask ? 0 : t - d->first);
    if (w->stages > 1) step->between = d->between + before * sli_fused_state(w);
    if (w->projects) step->dq = d->dq + before * sli_fused_outputs(w);
    sli_fused_walk walk;
    sli_fused_walk_units(&walk, share, &w->backward[share->stage]);
    while (sli_fused_take(share, &walk)) units_back(w, d, share, t, step, walk.at.first, walk.at.last);
}

static void use_take(const sli_fused_work *w, const sli_cell_step *step, const sli_cell_share *cells) {
    w->ops->fused->take(step, cells, w->p->op == SLI_OP_GRU || (w->options & CELL_ZONEOUT_H));
}

static void use_second(const sli_fused_work *w, const sli_cell_step *step, const sli_cell_share *cells) {
    w->cell->second(step, cells);
}

/* dz of a stage that is not the last, k numbers with zeros behind them: what follows there is being written. */
static void copy_halves(const sli_fused_work *w, const sli_fused_share *share, const uint16_t *dz, ptrdiff_t ld, int k,
                        const sli_fused_rows *rows, const void **a) {
    const size_t bytes = w->panels->operand_bytes(k), used = (size_t)k * sizeof *dz;
    for (int i = 0; i < rows->count; i++) {
        char *to = share->operands + (size_t)i * bytes;
        memcpy(to, dz + rows->at[i] * ld, used);
        memset(to + used, 0, bytes - used);
        a[i] = to;
    }
}

/* What a stage multiplies, of those rows. */
static void operands_back(const sli_fused_work *w, const sli_fused_share *share, const sli_cell_step *step,
                          const sli_fused_rows *rows, const void **a) {
    const int stage = share->stage, from = sli_fused_stage_block(w->p, stage) * w->H, k = w->backward[stage].k;
    if (sli_fused_multiplies_dq(w->p, stage)) {
        sli_fused_operands(w, share, step->dq, w->O, k, rows->at, rows->count, a);
    } else if (w->dz.halves && stage < w->stages - 1) {
        copy_halves(w, share, step->dz_half + from, step->ld_dz, k, rows, a);
    } else if (w->dz.halves) {
        for (int i = 0; i < rows->count; i++) a[i] = step->dz_half + rows->at[i] * step->ld_dz + from;
    } else {
        sli_fused_operands(w, share, step->dz + from, step->ld_dz, k, rows->at, rows->count, a);
    }
}

/* Zoneout of c, which the cells behind the product with W_p read. */
static void draw_back(const sli_fused_work *w, const sli_fused_direction *d, sli_fused_share *share, int t) {
    if (!d->fresh_c) return;
    sli_fused_walk walk;
    sli_fused_walk_units(&walk, share, &w->backward[share->stage]);
    while (sli_fused_take(share, &walk))
        for (int r = 0; r < share->rows;) {
            sli_fused_rows rows;
            r = sli_fused_active(w, d, share, t, r, &rows);
            sli_fused_draw_c(w, d, t, &rows, walk.at.first, walk.at.last);
        }
}

/* dh' = d dz R, and what does not pass through R: a stage of it. */
static void state_back(const sli_fused_work *w, const sli_fused_direction *d, sli_fused_share *share, int t,
                       const sli_cell_step *step) {
    const int stage = share->stage;
    if (sli_fused_multiplies_dq(w->p, stage)) draw_back(w, d, share, t);
    for (int r = 0; r < share->rows;) {
        sli_fused_rows rows;
        const void *a[SLI_FUSED_ROWS];
        r = sli_fused_active(w, d, share, t, r, &rows);
        if (rows.count == 0) continue;
        sli_fused_walk walk;
        sli_fused_walk_rows(&walk, w, share, &w->backward[stage], rows.count);
        if (!sli_fused_take(share, &walk)) continue;
        operands_back(w, share, step, &rows, a);
        sli_fused_products(w, d->backward_panels[stage], share, &walk, a, &rows, step,
                           stage == w->stages - 1 ? use_take : use_second);
    }
}

/* Whether what comes back through R would be the initial state's gradient, which nobody asked for. */
static bool ends_at(const sli_fused_work *w, const sli_fused_direction *d, int t) {
    return sli_fused_before(w, d, t) < 0 && !w->call->d_in[SLI_RNN_STATE_IN(d->part, 0)];
}

static void backward_steps(const sli_fused_work *w, sli_fused_share *shares) {
    const int steps = sli_fused_piece_steps(w), k0 = shares[0].direction0, k1 = shares[0].direction1;
    sli_cell_step step[2];
    for (int k = k0; k < k1; k++) step[k] = cell_of(w, &w->direction[k]);
    for (int i = 0; i < steps; i++)
        for (int stage = -1; stage < w->stages; stage++)
            for (int k = k0; k < k1; k++) {
                const sli_fused_direction *d = &w->direction[k];
                const int s = d->step1 - 1 - i, t = s >= d->step0 ? sli_fused_step(d, s) : -1;
                if (t < 0 || (stage == w->stages - 1 && ends_at(w, d, t))) continue;
                if (stage < 0)
                    gates_back(w, d, &shares[w->stages - 1], t, &step[k]);
                else
                    state_back(w, d, &shares[stage], t, &step[k]);
            }
}

/* ------------------------------------------------------------------------------------------------ sums over time -- */
typedef struct peephole_work {
    const sli_fused_work *w;
    const sli_fused_direction *d;
    float *to; /* [3][H] */
} peephole_work;
enum { PEEPHOLE_UNITS = 64 };

static void read_dz(const sli_fused_work *w, const sli_fused_direction *d, size_t at, int n, float *to) {
    memset(to, 0, (size_t)n * sizeof *to);
    if (w->dz.halves)
        w->ops->add_half((size_t)n, to, halves_of(w, d, at));
    else
        w->ops->add((size_t)n, to, floats_of(w, d, at));
}

/* d p_i += dz_i c', d p_f += dz_f c', d p_o += dz_o v, from the last step of the chunk to the first, rows ascending. */
static void peephole_sums(void *context, int index) {
    const peephole_work *job = context;
    const sli_fused_work *w = job->w;
    const sli_fused_direction *d = job->d;
    const int u0 = index * PEEPHOLE_UNITS, H = w->H, n = H - u0 < PEEPHOLE_UNITS ? H - u0 : PEEPHOLE_UNITS;
    float *to = job->to + u0;
    for (int i = d->end - d->first - 1; i >= 0; i--) {
        const int t = sli_fused_step(d, i);
        const float *c_prev = sli_fused_c_before(w, d, t) + u0;
        const float *v = (d->v ? d->v + (size_t)t * sli_fused_state(w) : sli_fused_c_at(w, d, t)) + u0;
        for (int row = 0; row < w->B; row++, c_prev += H, v += H) {
            const int at = sli_fused_place(w, d, t, row);
            if (at < 0) continue;
            float dz[3][PEEPHOLE_UNITS];
            const size_t first = dz_at(w, d, t) + (size_t)at * (size_t)w->dz.ld + (size_t)u0;
            for (int k = 0; k < 3; k++) read_dz(w, d, first + (size_t)(k < 2 ? k : 3) * (size_t)H, n, dz[k]);
            for (int u = 0; u < n; u++) {
                to[u] += dz[0][u] * c_prev[u];
                to[H + u] += dz[1][u] * c_prev[u];
                to[2 * H + u] += dz[2][u] * v[u];
            }
        }
    }
}

typedef struct gathering {
    const sli_fused_work *w;
    const sli_fused_direction *d;
    float *dx; /* of the chunk */
    bool add_dx;
} gathering;

/* What R multiplied in the chunk, where its steps follow each other in memory: all but that which came after the initial state. */
static const float *multiplied_in_place(const sli_fused_work *w, const sli_fused_direction *d, ptrdiff_t *ld) {
    *ld = w->O;
    if (d->dropped) return d->dropped + (size_t)d->first * sli_fused_outputs(w);
    if (sli_fused_before(w, d, sli_fused_step(d, 0)) < 0) return NULL;
    *ld = sli_fused_ld_h(w, d, d->first);
    return sli_fused_h_before(w, d, d->first);
}

/* What R multiplied in a step of the chunk, side by side with the others': one product for all of them. */
static void gather_h(void *context, int index) {
    const gathering *g = context;
    const sli_fused_work *w = g->w;
    const int t = g->d->first + index;
    const float *from =
        g->d->dropped ? g->d->dropped + (size_t)t * sli_fused_outputs(w) : sli_fused_h_before(w, g->d, t);
    const ptrdiff_t ld = g->d->dropped ? w->O : sli_fused_ld_h(w, g->d, t);
    float *to = g->d->multiplied + (w->mask ? 0 : (size_t)index * sli_fused_outputs(w));
    for (int row = 0; row < w->B; row++) {
        const int at = sli_fused_place(w, g->d, t, row);
        if (at >= 0) memcpy(to + (size_t)at * (size_t)w->O, from + row * ld, (size_t)w->O * sizeof *to);
    }
}

/* d x of a step = or += those of its valid rows, 0 of the others. */
static void scatter_dx(void *context, int index) {
    const gathering *g = context;
    const sli_fused_work *w = g->w;
    const size_t I = (size_t)w->I;
    float *to = g->dx + (size_t)index * (size_t)w->B * I;
    for (int row = 0; row < w->B; row++, to += I) {
        const int at = sli_fused_place(w, g->d, g->d->first + index, row);
        const float *from = g->d->dx_valid + (size_t)(at < 0 ? 0 : at) * I;
        if (at >= 0 && g->add_dx)
            w->ops->add(I, to, from);
        else if (at >= 0)
            memcpy(to, from, I * sizeof *to);
        else if (!g->add_dx)
            memset(to, 0, I * sizeof *to);
    }
}

static bool packs_kernel(const sli_fused_work *w) {
    const int steps = w->call->chunk < w->T ? w->call->chunk : w->T;
    return w->call->d_in[SLI_RNN_X] && sli_cpu_packs_b(w->call, steps * w->B);
}

static sli_sums sums_of(const sli_fused_work *w, const sli_fused_direction *d) {
    sli_sums sums = {.call = w->call, .part = d->part, .ld = w->dz.ld};
    sli_fused_input_gates(w->p, sums.input);
    for (int i = 0; i < w->stages && !(w->projects && i > 0); i++) /* what R multiplies with h', then with r h' */
        sums.recurrent[i] = (sli_gates){.from = sli_fused_stage_block(w->p, w->stages - 1 - i),
                                        .to = sli_fused_stage_gate(w->p, i),
                                        .count = sli_fused_stage_gates(w->p, i)};
    for (int i = 0; i < 2 && packs_kernel(w); i++) sums.kernel[i] = d->kernel[i];
    return sums;
}

/* d x of the call's step t on, NULL: not wanted. */
static float *dx_at(const sli_fused_work *w, int t) {
    float *dx = w->call->d_in[SLI_RNN_X];
    return dx ? dx + (size_t)t * (size_t)w->B * (size_t)w->I : NULL;
}

/* The sums of a chunk; d x among them where it is wanted. */
static void sum_chunk(const sli_fused_work *w, const sli_fused_direction *d, float *dx, bool add_dx) {
    const sli_call *call = w->call;
    const int steps = d->end - d->first;
    const gathering g = {w, d, dx, add_dx};
    const bool all = d->valid == sli_fused_chunk_rows(w, d);
    sli_sums sums = sums_of(w, d);
    sums.rows = d->valid;
    if (d->valid > 0) sums.x = sli_fused_inputs(w, d);
    sums.dz = floats_of(w, d, 0);
    sums.dz_half = halves_of(w, d, 0);
    sums.h = all ? multiplied_in_place(w, d, &sums.ld_h) : NULL;
    if (!sums.h) {
        const double moved = (double)SLI_MOVED * d->valid * w->O;
        sli_threads_for(sli_cpu_threads(call, moved), steps, gather_h, (void *)&g);
        sums.h = d->multiplied;
        sums.ld_h = w->O;
    }
    sums.between = w->stages > 1 ? d->between : NULL;
    sums.dq = w->projects ? d->dq : NULL;
    sums.dx = g.dx && !all ? d->dx_valid : g.dx;
    sums.add_dx = all && add_dx;
    if (d->valid > 0) sli_sums_backward(&sums);
    if (g.dx && !all)
        sli_threads_for(sli_cpu_threads(call, (double)SLI_MOVED * d->valid * w->I), steps, scatter_dx, (void *)&g);
    peephole_work peephole = {w, d, call->d_param[d->part * SLI_PART_PARAMS + SLI_RNN_PEEPHOLE]};
    if (peephole.to && w->p->peephole)
        sli_threads_for(sli_cpu_threads(call, (double)SLI_MOVED * d->valid * 3 * w->H),
                        (w->H + PEEPHOLE_UNITS - 1) / PEEPHOLE_UNITS, peephole_sums, &peephole);
}

/* Both directions write d x: whoever comes to a chunk second adds. `index`: chunks in order of processing forward. */
static bool adds_dx(const sli_fused_work *w, const sli_fused_direction *d, int index) {
    const bool first = w->directions == 1 || d->part == 0 ? index >= sli_fused_chunks(w) - 1 - index
                                                          : index > sli_fused_chunks(w) - 1 - index;
    return !(w->directions == 1 || first) || (w->call->accumulate >> SLI_RNN_X & 1);
}

void sli_fused_backward_begin(const sli_fused_work *w) {
    const size_t state = sli_fused_state(w);
    for (int k = 0; k < w->directions; k++) {
        const sli_fused_direction *d = &w->direction[k];
        sli_state_load(d->dh, w->call->d_out[SLI_RNN_STATE_OUT(k, 0)], sli_fused_outputs(w));
        if (w->lstm) sli_state_load(d->dc, w->call->d_out[SLI_RNN_STATE_OUT(k, 1)], state);
    }
}

void sli_fused_backward_pack(const sli_fused_work *w) {
    for (int k = 0; k < w->directions && packs_kernel(w); k++) {
        const sli_sums sums = sums_of(w, &w->direction[k]);
        for (int i = 0; i < 2; i++) sli_sums_pack(&sums, i, w->direction[k].kernel[i]);
    }
}

void sli_fused_backward_piece(const sli_fused_work *w) {
    sli_fused_run(w, w->backward, backward_steps);
}

void sli_fused_backward_inputs(const sli_fused_work *w) {
    const sli_fused_direction *d = &w->direction[0];
    const int first = d->first + d->step0;
    sli_sums sums = sums_of(w, d);
    sums.rows = (d->step1 - d->step0) * w->B;
    sums.dz = floats_of(w, d, dz_at(w, d, first));
    sums.dz_half = halves_of(w, d, dz_at(w, d, first));
    sums.dx = dx_at(w, first);
    sums.add_dx = w->call->accumulate >> SLI_RNN_X & 1;
    if (sums.dx) sli_sums_inputs(&sums);
}

void sli_fused_backward_sums(const sli_fused_work *w) {
    sum_chunk(w, &w->direction[0], NULL, false);
}

void sli_fused_backward_end(const sli_fused_work *w) {
    const size_t state = sli_fused_state(w);
    for (int k = 0; k < w->directions; k++) {
        const sli_fused_direction *d = &w->direction[k];
        sli_state_store(w->call, SLI_RNN_STATE_IN(k, 0), d->dh, sli_fused_outputs(w));
        if (w->lstm) sli_state_store(w->call, SLI_RNN_STATE_IN(k, 1), d->dc, state);
    }
}

void sli_fused_backward(const sli_call *call) {
    sli_fused_work w = sli_fused_begin(call, true), forward = {0};
    const sli_call again = sli_fused_call_again(&w);
    if (w.p->recompute) forward = sli_fused_begin_again(&w, &again);
    sli_fused_backward_begin(&w);
    sli_fused_backward_pack(&w);
    for (int i = sli_fused_chunks(&w) - 1; i >= 0; i--) {
        sli_fused_enter_chunk(&w, i);
        if (w.p->recompute) {
            sli_fused_enter_chunk(&forward, i);
            sli_fused_forward_piece(&forward);
        }
        sli_fused_backward_piece(&w);
        for (int k = 0; k < w.directions; k++) {
            const sli_fused_direction *d = &w.direction[k];
            sum_chunk(&w, d, dx_at(&w, d->first), adds_dx(&w, d, i));
        }
    }
    sli_fused_backward_end(&w);
}
