/* One thread's part of one step. */
#include <string.h>
#include "backend/cpu/fused.h"
#include "cell/activations.h"

enum { TILE_FLOATS = 4096 }; /* 64 rows of one panel of AVX-512 */

sli_fused_share sli_fused_share_of(const sli_fused_work *w, const sli_fused_panels *panels, int member) {
    const sli_fused_split *split = &w->split;
    const int unit = member % split->units, row = member / split->units % split->rows;
    const int direction = member / (split->units * split->rows), count = panels->count + (panels->tail > 0);
    sli_fused_share share = {.row_step = w->mask ? split->rows : 1};
    share.direction0 = split->directions == 1 ? 0 : direction;
    share.direction1 = split->directions == 1 ? w->directions : direction + 1;
    const int first = (int)((long)w->B * row / split->rows), end = (int)((long)w->B * (row + 1) / split->rows);
    share.first_row = w->mask ? row : first; /* dealt out in turn: short and long sequences to everybody */
    share.rows = w->mask ? (w->B - row + split->rows - 1) / split->rows : end - first;
    share.panel0 = (int)((long)count * unit / split->units);
    share.panel1 = (int)((long)count * (unit + 1) / split->units);
    share.unit0 = share.panel0 * panels->units;
    share.unit1 = share.panel1 == count ? w->H : share.panel1 * panels->units;
    share.operands = w->operands + (size_t)member * w->operand_bytes;
    return share;
}

int sli_fused_active(const sli_fused_work *w, const sli_fused_direction *d, const sli_fused_share *share, int t,
                     int from, sli_fused_rows *rows) {
    rows->count = 0;
    for (; from < share->rows && rows->count < SLI_FUSED_ROWS; from++) {
        const int row = share->first_row + from * share->row_step, at = sli_fused_place(w, d, t, row);
        if (at < 0) continue;
        rows->row[rows->count] = row;
        rows->at[rows->count++] = at;
    }
    return from;
}

/* fresh = 0 where the old value is kept, which is where a dropout of that rate would drop. */
static void draw(const sli_fused_work *w, const sli_rng *rng, double rate, const sli_fused_share *share, int t,
                 const sli_fused_rows *rows, float *fresh) {
    for (int r = 0; r < rows->count; r++) {
        const size_t at = (size_t)rows->row[r] * (size_t)w->H + (size_t)share->unit0;
        const size_t count = (size_t)(share->unit1 - share->unit0);
        const uint64_t element = (uint64_t)(w->call->t0 + t) * sli_fused_state(w) + at;
        for (size_t i = 0; i < count; i++) fresh[at + i] = 1;
        w->ops->dropout(rng, element, count, sli_drop_threshold(rate), 1, fresh + at, fresh + at, false);
    }
}

void sli_fused_draw(const sli_fused_work *w, const sli_fused_direction *d, const sli_fused_share *share, int t,
                    const sli_fused_rows *rows) {
    if (d->fresh_h) draw(w, &d->rng_h, w->p->zoneout_h, share, t, rows, d->fresh_h);
    if (d->fresh_c) draw(w, &d->rng_c, w->p->zoneout_c, share, t, rows, d->fresh_c);
}

/* CELL_ACT_*: in bf16, tanh and sigmoid need not be closer than the operands that they become; but where c is clipped a small error
 * takes a unit's whole gradient away. */
static int activation(const sli_problem *p, sl_activation act) {
    const bool enough = p->dtype == SL_BF16 && p->cell_clip <= 0;
    if (enough && act == SL_ACT_TANH) return CELL_ACT_TANH_SHORT;
    if (enough && act == SL_ACT_SIGMOID) return CELL_ACT_SIGMOID_SHORT;
    return (int)act;
}

sli_cell_step sli_fused_every_step(const sli_fused_work *w, const sli_fused_direction *d) {
    const sli_problem *p = w->p;
    sli_cell_step s = {.units = w->H, .options = w->options, .keep = w->keep};
    s.act = activation(p, p->act == SL_ACT_DEFAULT ? SL_ACT_TANH : p->act);
    s.gate_act = activation(p, p->recurrent_act == SL_ACT_DEFAULT ? SL_ACT_SIGMOID : p->recurrent_act);
    s.ld_gates = (ptrdiff_t)w->W * w->H;
    s.bias = d->bias;
    s.drop = d->drop;
    s.peephole = d->peephole;
    s.clip = (float)p->cell_clip;
    s.zone_h = (float)p->zoneout_h;
    s.zone_c = (float)p->zoneout_c;
    s.fresh_h = d->fresh_h;
    s.fresh_c = d->fresh_c;
    return s;
}

void sli_fused_enter_step(const sli_fused_work *w, const sli_fused_direction *d, int t, sli_cell_step *s) {
    s->gates = sli_fused_gates_at(w, d, t);
    s->h_prev = sli_fused_h_before(w, d, t);
    s->ld_h_prev = sli_fused_ld_h(w, d, t);
    if (w->lstm) {
        s->c_prev = sli_fused_c_before(w, d, t);
        s->c = sli_fused_c_at(w, d, t);
    }
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

/* Into L2, while the product runs: what the cell will read of these units, pieces of many rows. */
static void fetch(const sli_cell_step *s, const sli_fused_rows *rows, int first, int end) {
    enum { LINE = 16 };
    for (int r = 0; r < rows->count; r++)
        for (int u = first; u < end; u += LINE) {
            const float *gates = s->gates + rows->at[r] * s->ld_gates + u;
            for (ptrdiff_t g = 0; g < s->ld_gates; g += s->units) __builtin_prefetch(gates + g, 1, 2);
            if (s->c_prev) __builtin_prefetch(s->c_prev + (size_t)rows->row[r] * (size_t)s->units + (size_t)u, 0, 2);
        }
}

void sli_fused_products(const sli_fused_work *w, const sli_fused_panels *panels, const char *weights,
                        const sli_fused_share *share, const void *const *a, const sli_fused_rows *rows,
                        const sli_cell_step *step, sli_fused_tile_fn use) {
    float tile[TILE_FLOATS] __attribute__((aligned(64)));
    enum { NEAR = 2048 }; /* floats of a tile that leave room in L1 for weights and operands */
    for (int p = share->panel0; p < share->panel1;) {
        const bool tail = p == panels->count;
        const int vectors = tail ? panels->tail : panels->vectors, floats = rows->count * vectors * w->panels->lanes;
        const int last = !tail && share->panel1 > panels->count ? panels->count : share->panel1;
        int count = NEAR / floats < 1 ? 1 : NEAR / floats;
        if (count > w->panels->panels) count = w->panels->panels;
        if (count > last - p) count = last - p;
        const int first = p * panels->units,
                  end = first + count * (tail ? panels->tail * w->panels->lanes : panels->units);
        const sli_panel_product product = {.rows = rows->count,
                                           .panels = count,
                                           .vectors = vectors,
                                           .k = panels->k,
                                           .a = a,
                                           .w = weights + (size_t)p * panels->bytes,
                                           .tile = tile};
        fetch(step, rows, first, end);
        w->panels->product(&product);
        const sli_cell_share cells = {.row = rows->row,
                                      .at = rows->at,
                                      .rows = rows->count,
                                      .first = first,
                                      .last = end < w->H ? end : w->H,
                                      .tile = tile,
                                      .vectors = vectors};
        use(w, step, &cells);
        p += count;
    }
}
