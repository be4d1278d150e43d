/* cpu:fused, forward: steps, with W x of some before them. */
#include <string.h>
#include "backend/cpu/fused.h"

/* c of a masked row, for units [first, last). */
static void carry_c(const sli_fused_work *w, const sli_fused_direction *d, int t, int row, int first, int last) {
    const size_t at = (size_t)row * (size_t)w->H + (size_t)first;
    if (w->lstm && sli_fused_c_at(w, d, t) != sli_fused_c_before(w, d, t))
        memcpy(sli_fused_c_at(w, d, t) + at, sli_fused_c_before(w, d, t) + at, (size_t)(last - first) * sizeof(float));
}

/* The same of y and h, and of what the next step multiplies. */
static void carry_h(const sli_fused_work *w, const sli_fused_direction *d, int t, int row, int first, int last,
                    const sli_cell_step *step) {
    const size_t at = (size_t)row * (size_t)w->O + (size_t)first, bytes = (size_t)(last - first) * sizeof(float);
    const float *h = sli_fused_h_before(w, d, t) + at;
    float *y = d->y + ((ptrdiff_t)t * w->B + row) * d->ld_y + first;
    if (sli_fused_repeated(w, d, t, row))
        memcpy(y, h, bytes);
    else
        memset(y, 0, bytes);
    memcpy(sli_fused_h_at(w, d, t) + at, h, bytes);
    if (step->dropped) memcpy(step->dropped + at, step->multiplied + at, bytes);
}

/* What R multiplies in the step after t, or NULL: recurrent dropout is off, or that step is not of this call. */
static float *dropped_after(const sli_fused_work *w, const sli_fused_direction *d, int t) {
    const int next = d->reverse ? t - 1 : t + 1;
    return d->dropped && next >= 0 && next < w->T ? d->dropped + (size_t)next * sli_fused_outputs(w) : NULL;
}

static void use_first(const sli_fused_work *w, const sli_cell_step *step, const sli_cell_share *cells) {
    w->cell->first(step, cells);
}

static void use_cell(const sli_fused_work *w, const sli_cell_step *step, const sli_cell_share *cells) {
    w->cell->forward(step, cells);
}

/* What a stage of step t has to do beside its product: masked rows are carried, zoneout is drawn. */
static void prepare(const sli_fused_work *w, const sli_fused_direction *d, sli_fused_share *share, int t,
                    const sli_cell_step *step) {
    const bool first = share->stage == 0, last = share->stage == w->stages - 1;
    const bool draws = (first && d->fresh_c) || (last && d->fresh_h);
    if (!w->mask && !draws) return;
    sli_fused_walk walk;
    sli_fused_walk_units(&walk, share, &w->forward[share->stage]);
    while (sli_fused_take(share, &walk)) {
        const int unit0 = walk.at.first, unit1 = walk.at.last;
        for (int r = 0; r < share->rows && w->mask; r++) {
            const int row = share->first_row + r * share->row_step;
            if (sli_fused_place(w, d, t, row) >= 0) continue;
            if (first) carry_c(w, d, t, row, unit0, unit1);
            if (last) carry_h(w, d, t, row, unit0, unit1, step);
        }
        for (int r = 0; r < share->rows && draws;) {
            sli_fused_rows rows;
            r = sli_fused_active(w, d, share, t, r, &rows);
            if (first) sli_fused_draw_c(w, d, t, &rows, unit0, unit1);
            if (last) sli_fused_draw_h(w, d, t, &rows, unit0, unit1);
        }
    }
}

/* The share of a stage of step t: z = R (d h'), tile by tile, and the cell on each. */
static void forward_stage(const sli_fused_work *w, int direction, sli_fused_share *share, int t, sli_cell_step *step) {
    const sli_fused_direction *d = &w->direction[direction];
    const int stage = share->stage;
    const bool first = stage == 0, last = stage == w->stages - 1;
    sli_fused_enter_step(w, d, t, step);
    step->h = sli_fused_h_at(w, d, t);
    step->ld_h = w->mask ? w->O : d->ld_y;
    step->y = w->mask ? d->y + (ptrdiff_t)t * w->B * d->ld_y : NULL;
    step->ld_y = d->ld_y;
    step->dropped = dropped_after(w, d, t);
    prepare(w, d, share, t, step);
    for (int r = 0; r < share->rows;) {
        sli_fused_rows rows;
        const void *a[SLI_FUSED_ROWS];
        r = sli_fused_active(w, d, share, t, r, &rows);
        if (rows.count == 0) continue;
        rows.projected = sli_fused_all_panels(&w->inputs[stage]) > 0 ? share->projected[direction] : NULL;
        rows.first = share->taken[direction];
        rows.zero = d->from_zero && sli_fused_before(w, d, t) < 0 && (first || !w->projects);
        share->taken[direction] += rows.count;
        sli_fused_walk walk;
        sli_fused_walk_rows(&walk, w, share, &w->forward[stage], rows.count);
        if (!sli_fused_take(share, &walk)) continue;
        if (!rows.zero)
            sli_fused_operands(w, share, first ? step->multiplied : d->between, first ? step->ld_multiplied : w->H,
                               w->forward[stage].k, rows.row, rows.count, a);
        sli_fused_products(w, d->forward_panels[stage], share, &walk, a, &rows, step, last ? use_cell : use_first);
    }
}

static void forward_steps(const sli_fused_work *w, sli_fused_share *shares) {
    const int steps = sli_fused_piece_steps(w), k0 = shares[0].direction0, k1 = shares[0].direction1;
    sli_cell_step step[2];
    for (int k = k0; k < k1; k++) step[k] = sli_fused_every_step(w, &w->direction[k]);
    for (int i = 0; i < steps; i++) {
        for (int k = k0; k < k1 && i % w->input_steps == 0; k++) sli_fused_project(w, k, shares, i, i + w->input_steps);
        for (int stage = 0; stage < w->stages; stage++)
            for (int k = k0; k < k1; k++) {
                const sli_fused_direction *d = &w->direction[k];
                const int s = d->step0 + i;
                if (s < d->step1) forward_stage(w, k, &shares[stage], sli_fused_step(d, s), &step[k]);
            }
    }
    if (step[k0].stream) w->ops->fused->streamed();
}

/* The state after the last step. */
static void give_state(const sli_fused_work *w, const sli_fused_direction *d) {
    const int last = w->T == 0 ? -1 : d->reverse ? 0 : w->T - 1;
    const float *h = last < 0 ? d->h0 : sli_fused_h_at(w, d, last), *c = last < 0 ? d->c0 : sli_fused_c_at(w, d, last);
    const ptrdiff_t ld = last < 0 || w->mask ? w->O : d->ld_y;
    float *ht = w->call->out[SLI_RNN_STATE_OUT(d->part, 0)];
    float *ct = w->lstm ? w->call->out[SLI_RNN_STATE_OUT(d->part, 1)] : NULL;
    for (int row = 0; row < w->B && ht; row++)
        memmove(ht + (size_t)row * (size_t)w->O, h + row * ld, (size_t)w->O * sizeof *h);
    if (ct) memmove(ct, c, sli_fused_state(w) * sizeof *c);
}

/* What R multiplies in the call's first step. */
static void drop_initial(const sli_fused_work *w, const sli_fused_direction *d) {
    const size_t state = sli_fused_outputs(w);
    if (!d->dropped || w->T == 0) return;
    float *to = d->dropped + (d->reverse ? (size_t)(w->T - 1) * state : 0);
    for (size_t i = 0; i < state; i++) to[i] = d->drop[i] * d->h0[i];
}

void sli_fused_forward_piece(const sli_fused_work *w) {
    sli_fused_run(w, w->forward, forward_steps);
}

void sli_fused_forward_end(const sli_fused_work *w) {
    for (int k = 0; k < w->directions; k++) give_state(w, &w->direction[k]);
}

void sli_fused_forward(const sli_call *call) {
    sli_fused_work w = sli_fused_begin(call, false);
    for (int k = 0; k < w.directions; k++) drop_initial(&w, &w.direction[k]);
    for (int i = 0; i < sli_fused_chunks(&w); i++) {
        sli_fused_enter_chunk(&w, i);
        sli_fused_forward_piece(&w);
    }
    sli_fused_forward_end(&w);
}
