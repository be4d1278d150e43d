/* One thread's part of one step. */
#include <string.h>
#include "backend/cpu/fused.h"
#include "cell/activations.h"

/* Rows of the batch before those of group `row`. */
static int rows_before(const sli_fused_work *w, int row) {
    const int groups = w->split.rows;
    int before = 0;
    if (!w->mask) return (int)((long)w->B * row / groups);
    for (int i = 0; i < row; i++) before += (w->B - i + groups - 1) / groups;
    return before;
}

/* Forward: of each direction and group of rows W x of all stages. */
static void place_projected(const sli_fused_work *w, const sli_fused_panels *panels, int row, sli_fused_share *share) {
    const size_t columns = (size_t)(panels->vectors * w->panels->lanes), steps = (size_t)w->input_steps;
    size_t all = 0, before = 0; /* floats of a row of W x */
    for (int stage = 0; stage < w->stages; stage++) {
        if (stage == share->stage) before = all;
        all += sli_fused_projected_floats(&w->inputs[stage], w->panels);
    }
    share->projected_panel = (ptrdiff_t)(steps * (size_t)share->rows * columns);
    for (size_t k = 0; k < (size_t)w->directions; k++)
        share->projected[k] = w->projected + steps * (all * (k * (size_t)w->B + (size_t)rows_before(w, row)) +
                                                      before * (size_t)share->rows);
}

sli_fused_share sli_fused_share_of(const sli_fused_work *w, const sli_fused_panels *all, int stage, int member) {
    const sli_fused_split *split = &w->split;
    const sli_fused_panels *panels = &all[stage];
    const int unit = member % split->units, row = member / split->units % split->rows;
    const int direction = member / (split->units * split->rows);
    sli_fused_share share = {
        .stage = stage, .row_step = w->mask ? split->rows : 1, .unit = unit, .units = split->units};
    share.direction0 = split->directions == 1 ? 0 : direction;
    share.direction1 = split->directions == 1 ? w->directions : direction + 1;
    const int first = (int)((long)w->B * row / split->rows), end = (int)((long)w->B * (row + 1) / split->rows);
    share.first_row = w->mask ? row : first; /* dealt out in turn: short and long sequences to everybody */
    share.rows = w->mask ? (w->B - row + split->rows - 1) / split->rows : end - first;
    if (w->projected) place_projected(w, panels, row, &share);
    return share;
}

int sli_fused_active(const sli_fused_work *w, const sli_fused_direction *d, const sli_fused_share *share, int t,
                     int from, sli_fused_rows *rows) {
    rows->count = 0;
    rows->projected = NULL;
    rows->first = 0;
    rows->zero = false;
    for (; from < share->rows && rows->count < SLI_FUSED_ROWS; from++) {
        const int row = share->first_row + from * share->row_step, at = sli_fused_place(w, d, t, row);
        if (at < 0) continue;
        rows->row[rows->count] = row;
        rows->at[rows->count++] = at;
    }
    return from;
}

/* fresh [B][width] = 0 where the old value is kept, which is where a dropout of that rate would drop. */
static void draw(const sli_fused_work *w, const sli_rng *rng, double rate, int t, const sli_fused_rows *rows, int width,
                 int first, int last, float *fresh) {
    for (int r = 0; r < rows->count; r++) {
        const size_t at = (size_t)rows->row[r] * (size_t)width + (size_t)first, count = (size_t)(last - first);
        const uint64_t element = (uint64_t)(w->call->t0 + t) * (uint64_t)w->B * (uint64_t)width + at;
        for (size_t i = 0; i < count; i++) fresh[at + i] = 1;
        w->ops->dropout(rng, element, count, sli_drop_threshold(rate), 1, fresh + at, fresh + at, false);
    }
}

void sli_fused_draw_h(const sli_fused_work *w, const sli_fused_direction *d, int t, const sli_fused_rows *rows,
                      int first, int last) {
    if (d->fresh_h) draw(w, &d->rng_h, w->p->zoneout_h, t, rows, w->O, first, last, d->fresh_h);
}

void sli_fused_draw_c(const sli_fused_work *w, const sli_fused_direction *d, int t, const sli_fused_rows *rows,
                      int first, int last) {
    if (d->fresh_c) draw(w, &d->rng_c, w->p->zoneout_c, t, rows, w->H, first, last, d->fresh_c);
}

static bool is_bounded(sl_activation act) {
    return act != SL_ACT_RELU && act != SL_ACT_LINEAR;
}

/* CELL_ACT_*: in bf16, tanh and sigmoid need not be closer than the operands that they become. But where c is clipped a small error
 * takes a unit's whole gradient away, and where states have no bounds a gate that is closed multiplies more than they let through. */
static int activation(const sli_problem *p, sl_activation act) {
    const bool bounded = is_bounded(p->act) && is_bounded(p->recurrent_act);
    const bool enough = p->dtype == SL_BF16 && p->cell_clip <= 0 && bounded;
    if (enough && act == SL_ACT_TANH) return CELL_ACT_TANH_SHORT;
    if (enough && act == SL_ACT_SIGMOID) return CELL_ACT_SIGMOID_SHORT;
    return (int)act;
}

/* Whether gates that are kept are written past the caches: whole lines, and more of them than caches hold until backward. */
static bool streams(const sli_fused_work *w, const sli_fused_direction *d) {
    enum { LEAST = 4 << 20 };
    const int line = w->ops->fused->streams;
    const size_t numbers = (size_t)w->T * (size_t)w->B * (size_t)w->kept.ld;
    const bool apart = w->kept.halves && w->p->reset_before; /* gates that share a line come one after the other */
    if (line == 0 || (uintptr_t)d->gates % SLI_ALIGN != 0 || apart || w->p->recompute) return false;
    return w->kept.halves ? numbers * sizeof(uint16_t) >= LEAST : w->H % line == 0 && numbers * sizeof(float) >= LEAST;
}

sli_cell_step sli_fused_every_step(const sli_fused_work *w, const sli_fused_direction *d) {
    const sli_problem *p = w->p;
    sli_cell_step s = {.units = w->H, .outputs = w->O, .options = w->options, .keep = w->keeps_gates};
    s.act = activation(p, p->act == SL_ACT_DEFAULT ? SL_ACT_TANH : p->act);
    s.gate_act = activation(p, p->recurrent_act == SL_ACT_DEFAULT ? SL_ACT_SIGMOID : p->recurrent_act);
    s.ld_gates = w->kept.ld;
    s.bias = d->bias;
    s.stream = w->keep && streams(w, d);
    s.drop = d->drop;
    s.peephole = d->peephole;
    s.clip = (float)p->cell_clip;
    s.zone_h = (float)p->zoneout_h;
    s.zone_c = (float)p->zoneout_c;
    s.fresh_h = d->fresh_h;
    s.fresh_c = d->fresh_c;
    s.update = d->update;
    s.between = d->between;
    return s;
}

void sli_fused_enter_step(const sli_fused_work *w, const sli_fused_direction *d, int t, sli_cell_step *s) {
    void *gates = w->keeps_gates ? sli_fused_gates_at(w, d, t) : NULL;
    s->gates = w->kept.halves ? NULL : gates;
    s->gates_half = w->kept.halves ? gates : NULL;
    s->h_prev = sli_fused_h_before(w, d, t);
    s->ld_h_prev = sli_fused_ld_h(w, d, t);
    if (w->lstm) {
        s->c_prev = sli_fused_c_before(w, d, t);
        s->c = sli_fused_c_at(w, d, t);
    }
    s->multiplied = d->dropped ? d->dropped + (size_t)t * sli_fused_outputs(w) : s->h_prev;
    s->ld_multiplied = d->dropped ? w->O : s->ld_h_prev;
    s->v = d->v ? d->v + (size_t)t * sli_fused_state(w) : NULL;
}

void sli_fused_operands(const sli_fused_work *w, const sli_fused_share *share, const float *from, ptrdiff_t ld, int k,
                        const int *row, int rows, const void **a) {
    const size_t bytes = w->panels->convert ? w->panels->operand_bytes(k) : 0;
    for (int r = 0; r < rows; r++) {
        a[r] = from + row[r] * ld;
        if (!w->panels->convert) continue;
        char *to = share->operands + (size_t)r * bytes;
        w->panels->convert(to, a[r], k);
        a[r] = to;
    }
}
