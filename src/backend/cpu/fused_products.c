/* The products of one thread's part of a step, tile by tile, and what uses the tiles. */
#include "backend/cpu/fused.h"

enum {
    NEAR = 2048, /* floats of a tile that leave room in L1 for weights and operands */
    LINE = 64    /* bytes */
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

/* Panels [panel, panel + count), all of `vectors` vectors, that share a tile. */
typedef struct group {
    int panel, count, vectors, units;
} group;

/* The groups of a share: of as many panels as a tile takes, the tail as the last one of its own. */
typedef struct groups {
    const sli_fused_panels *panels;
    int first, full; /* full: panels of the share without the tail */
    int size, count; /* panels of a group; groups, that of the tail included */
    int used;        /* panels whose sums are used at a time */
} groups;

static groups groups_of(const sli_fused_work *w, const sli_fused_panels *panels, const sli_fused_share *share,
                        int rows) {
    const int floats = rows * panels->vectors * w->panels->lanes, few = NEAR / floats, many = w->panels->near / floats;
    const int tail = sli_fused_has_tail(share, panels);
    groups g = {.panels = panels, .first = share->panel0};
    g.full = share->panel1 - tail - share->panel0;
    g.used = few < 1 ? 1 : few < w->panels->panels ? few : w->panels->panels;
    g.size = many > g.used ? many : g.used;
    g.count = (g.full + g.size - 1) / g.size + tail;
    return g;
}

static group group_of(const groups *g, int index) {
    const sli_fused_panels *panels = g->panels;
    const int at = index * g->size, left = g->full - at, count = left < g->size ? left : g->size;
    if (left <= 0) return (group){panels->count, 1, panels->tail, panels->tail_units};
    return (group){g->first + at, count, panels->vectors, count * panels->units};
}

/* W x of the rows in a panel of so many columns. */
static const float *projected_of(const sli_fused_share *share, const sli_fused_rows *rows, int panel, int columns) {
    if (!rows->projected) return NULL;
    return rows->projected + (panel - share->panel0) * share->projected_panel + (ptrdiff_t)rows->first * columns;
}

/* The sums of a group, [panels][rows][columns], some panels at a time. */
typedef struct sums {
    group of;
    int used;
    float *tile;
} sums;

static void use_sums(const sli_fused_work *w, const sli_fused_panels *panels, const sli_fused_share *share,
                     const sli_fused_rows *rows, const sli_cell_step *step, const sums *s, sli_fused_tile_fn use) {
    const int columns = s->of.vectors * w->panels->lanes, all = s->of.panel * panels->units + s->of.units;
    for (int i = 0; i < s->of.count; i += s->used) {
        const int panel = s->of.panel + i, end = (panel + s->used) * panels->units, last = end < all ? end : all;
        const sli_cell_share cells = {.row = rows->row,
                                      .at = rows->at,
                                      .rows = rows->count,
                                      .first = panel * panels->units,
                                      .last = last < panels->all ? last : panels->all,
                                      .tile = s->tile + (ptrdiff_t)i * rows->count * columns,
                                      .in = projected_of(share, rows, panel, columns),
                                      .in_panel = share->projected_panel,
                                      .vectors = s->of.vectors};
        use(w, step, &cells);
    }
}

/* Every other time from the last group to the first: what is left in L2 of the last weights (in L3, of more than that holds) is
 * used again. */
void sli_fused_products(const sli_fused_work *w, const sli_fused_panels *panels, const char *weights,
                        sli_fused_share *share, const void *const *a, const sli_fused_rows *rows,
                        const sli_cell_step *step, sli_fused_tile_fn use) {
    float tile[SLI_PANEL_TILE] __attribute__((aligned(64)));
    const groups all = groups_of(w, panels, share, rows->count);
    const bool back = share->sweeps++ & 1;
    for (int i = 0; i < all.count; i++) {
        const int after = i + 1 < all.count ? i + 1 : i;
        const group at = group_of(&all, back ? all.count - 1 - i : i);
        const group next = group_of(&all, back ? all.count - 1 - after : after);
        const sli_panel_product product = {.rows = rows->count,
                                           .panels = at.count,
                                           .vectors = at.vectors,
                                           .k = panels->k,
                                           .a = a,
                                           .w = weights + (size_t)at.panel * panels->bytes,
                                           .next = weights + (size_t)next.panel * panels->bytes,
                                           .tile = tile};
        if (w->keep && rows->projected && !step->stream) {
            const int first = at.panel * panels->units, end = first + at.units;
            fetch(w, step, rows, first, end < panels->all ? end : panels->all);
        }
        w->panels->product(&product);
        use_sums(w, panels, share, rows, step, &(sums){at, all.used, tile}, use);
    }
}
