/* The products of one thread's part of a step, tile by tile, and what uses the tiles. */
#include <string.h>
#include "backend/cpu/fused.h"

enum {
    NEAR = 2048,  /* floats of a tile that leave room in L1 for weights and operands */
    FEW_ROWS = 3, /* rows that make too few sums in one panel */
    LINE = 64,    /* bytes */
    PAGE = 4096   /* where a tile lies in one decides which loads wait for its stores: up to 4% of small layers */
};

/* The lines of so many bytes, into L2. */
static void fetch_lines(const void *from, size_t bytes) {
    const char *const end = (const char *)from + bytes;
    for (const char *at = from; at < end; at += LINE) __builtin_prefetch(at, 1, 2);
    __builtin_prefetch(end - 1, 1, 2);
}

/* While the product runs: what the cell reads or writes of these units that is kept for backward, pieces of many rows. */
static void fetch(const sli_fused_work *w, const sli_cell_step *s, const sli_fused_rows *rows, int first, int end) {
    for (int r = 0; r < rows->count; r++) {
        const ptrdiff_t row = rows->at[r] * s->ld_gates;
        if (s->gates_half) {
            const int lanes = w->panels->lanes, units = (end - first + lanes - 1) / lanes * lanes;
            fetch_lines(s->gates_half + row + w->W * first, (size_t)(w->W * units) * sizeof *s->gates_half);
        }
        for (ptrdiff_t g = 0; g < s->ld_gates && s->gates; g += s->units)
            fetch_lines(s->gates + row + g + first, (size_t)(end - first) * sizeof *s->gates);
        if (s->c_prev)
            fetch_lines(s->c_prev + (size_t)rows->row[r] * (size_t)s->units + first,
                        (size_t)(end - first) * sizeof *s->c_prev);
    }
}

/* W x of the rows in a panel of so many columns. */
static const float *projected_of(const sli_fused_share *share, const sli_fused_rows *rows, int panel, int columns) {
    if (!rows->projected) return NULL;
    return rows->projected + panel * share->projected_panel + (ptrdiff_t)rows->first * columns;
}

/* The sums of the walk's group, [panels][rows][columns], some panels at a time. */
static void use_sums(const sli_fused_work *w, const sli_fused_walk *walk, const sli_fused_share *share,
                     const sli_fused_rows *rows, const sli_cell_step *step, float *tile, sli_fused_tile_fn use) {
    const sli_fused_panels *panels = walk->panels;
    const sli_fused_group *of = &walk->at;
    const int columns = of->vectors * w->panels->lanes;
    const int used = walk->used;
    for (int i = 0; i < of->count; i += used) {
        const int panel = of->panel + i, end = (panel + used) * panels->units;
        const sli_cell_share cells = {.row = rows->row,
                                      .at = rows->at,
                                      .rows = rows->count,
                                      .first = panel * panels->units,
                                      .last = end < of->last ? end : of->last,
                                      .tile = tile + (ptrdiff_t)i * rows->count * columns,
                                      .in = projected_of(share, rows, panel, columns),
                                      .in_panel = share->projected_panel,
                                      .vectors = of->vectors,
                                      .gap = panels->gap};
        use(w, step, &cells);
    }
}

/* Every other time from the last group to the first: what is left in L2 of the last weights (in L3, of more than that holds) is
 * used again. */
void sli_fused_walk_rows(sli_fused_walk *walk, const sli_fused_work *w, sli_fused_share *share,
                         const sli_fused_panels *panels, int rows) {
    const int sums = rows * panels->vectors * w->panels->lanes, few = NEAR / sums; /* of a panel; panels */
    const int used = few < 1 ? 1 : few < w->panels->panels ? few : w->panels->panels;
    const int near = w->panels->near > 0 ? w->panels->near / sums : 0;
    const int least = rows < FEW_ROWS ? used : 1; /* whose few sums would wait for each other */
    sli_fused_walk_of(walk, share, panels, least, near > used ? near : used, share->sweeps++ & 1);
    walk->used = used < walk->size ? used : walk->size;
}

void sli_fused_products(const sli_fused_work *w, const char *weights, const sli_fused_share *share,
                        sli_fused_walk *walk, const void *const *a, const sli_fused_rows *rows,
                        const sli_cell_step *step, sli_fused_tile_fn use) {
    float tile[SLI_PANEL_TILE] __attribute__((aligned(PAGE)));
    const sli_fused_panels *panels = walk->panels;
    do {
        const sli_fused_group *at = &walk->at;
        const sli_panel_product product = {.rows = rows->count,
                                           .panels = at->count,
                                           .vectors = at->vectors,
                                           .k = panels->k,
                                           .a = a,
                                           .w = weights + (size_t)at->panel * panels->bytes,
                                           .next = weights + (size_t)walk->next.panel * panels->bytes,
                                           .tile = tile,
                                           .from_l2 = w->from_l2};
        if (w->keep && rows->projected && !step->stream) fetch(w, step, rows, at->first, at->last);
        if (rows->zero)
            memset(tile, 0, sizeof *tile * (size_t)(at->count * rows->count * at->vectors * w->panels->lanes));
        else
            w->panels->product(&product);
        use_sums(w, walk, share, rows, step, tile, use);
    } while (sli_fused_take(share, walk));
}
