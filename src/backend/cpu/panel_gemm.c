#include "backend/cpu/panel_gemm.h"

enum {
    VECTORS = 4,        /* of a panel */
    TASK_ROWS = 64,     /* of one task: so often are its weights used out of L2 */
    TASK_PANELS = 4,    /* 128 columns of AVX2, 256 of AVX-512 */
    TILE_FLOATS = 4096, /* of one product: its tile stays in L1 */
    CONVERT_ROWS = 16   /* of one task of conversion */
};

static int panels_of(const sli_panel_ops *ops, int n) {
    return sli_divide_up(n, VECTORS * ops->lanes);
}

size_t sli_panel_gemm_packed(const sli_panel_ops *ops, int n, int k) {
    return (size_t)panels_of(ops, n) * ops->panel_bytes(k, VECTORS);
}

size_t sli_panel_gemm_operands(const sli_panel_ops *ops, int rows, int k) {
    return (size_t)rows * ops->operand_bytes(k);
}

typedef struct packing {
    const sli_panel_ops *ops;
    int n, k;
    const float *w;
    char *packed;
} packing;

static void pack_panel(void *context, int panel) {
    const packing *p = context;
    sli_panel_source source = {.k = p->k, .vectors = VECTORS, .gap = p->ops->lanes, .lane_stride = p->k, .k_stride = 1};
    for (int v = 0; v < VECTORS; v++) {
        const int lanes = p->ops->lanes, column = (panel * VECTORS + v) * lanes, left = p->n - column;
        source.valid[v] = left <= 0 ? 0 : left < lanes ? left : lanes;
        source.from[v] = left > 0 ? p->w + (size_t)column * (size_t)p->k : NULL;
    }
    p->ops->pack(p->packed + (size_t)panel * p->ops->panel_bytes(p->k, VECTORS), &source);
}

void sli_panel_gemm_pack(sli_threads *threads, const sli_panel_ops *ops, int n, int k, const float *w, void *packed) {
    packing p = {ops, n, k, w, packed};
    sli_threads_for(threads, panels_of(ops, n), pack_panel, &p);
}

typedef struct work {
    const sli_panel_gemm *g;
    const sli_isa_ops *isa;
    const char *operands;
    size_t operand; /* bytes of a row */
    int panel_groups;
} work;

static void convert_rows(void *context, int task) {
    const work *w = context;
    const sli_panel_gemm *g = w->g;
    for (int r = task * CONVERT_ROWS; r < (task + 1) * CONVERT_ROWS && r < g->rows; r++)
        g->ops->convert((char *)g->operands + (size_t)r * w->operand, g->x + (size_t)r * (size_t)g->k, g->k);
}

/* y = act(tile + bias) for `rows` rows from `row` and the columns of one panel. */
static void finish(const work *w, const float *tile, int row, int rows, int panel) {
    const sli_panel_gemm *g = w->g;
    const int width = VECTORS * g->ops->lanes, first = panel * width;
    const int columns = g->n - first < width ? g->n - first : width;
    for (int r = 0; r < rows; r++, tile += width) {
        float *y = g->y + (size_t)(row + r) * (size_t)g->n + first;
        for (int j = 0; j < columns; j++) y[j] = g->bias ? tile[j] + g->bias[first + j] : tile[j];
        if (g->act) w->isa->act(g->act, (size_t)columns, y);
    }
}

static void multiply(void *context, int task) {
    const work *w = context;
    const sli_panel_gemm *g = w->g;
    const int last = task / w->panel_groups * TASK_ROWS + TASK_ROWS, end = last < g->rows ? last : g->rows;
    const int panel = task % w->panel_groups * TASK_PANELS, left = panels_of(g->ops, g->n) - panel;
    const int panels = left < TASK_PANELS ? left : TASK_PANELS, width = VECTORS * g->ops->lanes;
    const int together = panels < g->ops->panels ? panels : g->ops->panels, most = TILE_FLOATS / (together * width);
    _Alignas(64) float tile[TILE_FLOATS];
    const void *a[TASK_ROWS];
    sli_panel_product p = {.vectors = VECTORS, .k = g->k, .a = a, .tile = tile};
    if (g->ops->begin) g->ops->begin();
    for (int first = panel; first < panel + panels; first += p.panels) {
        p.w = (const char *)g->w + (size_t)first * g->ops->panel_bytes(g->k, VECTORS);
        p.panels = panel + panels - first < together ? panel + panels - first : together;
        for (int row = last - TASK_ROWS; row < end; row += p.rows) {
            p.rows = end - row < most ? end - row : most;
            if (p.rows > TASK_ROWS) p.rows = TASK_ROWS;
            for (int r = 0; r < p.rows; r++) a[r] = w->operands + (size_t)(row + r) * w->operand;
            g->ops->product(&p);
            for (int i = 0; i < p.panels; i++) finish(w, tile + i * p.rows * width, row, p.rows, first + i);
        }
    }
    if (g->ops->end) g->ops->end();
}

void sli_panel_gemm_run(const sli_call *call, const sli_panel_gemm *g) {
    const work w = {.g = g,
                    .isa = sli_cpu_of(call)->ops,
                    .operands = g->operands,
                    .operand = g->ops->operand_bytes(g->k),
                    .panel_groups = sli_divide_up(panels_of(g->ops, g->n), TASK_PANELS)};
    sli_threads_for(call->threads, sli_divide_up(g->rows, CONVERT_ROWS), convert_rows, (void *)&w);
    sli_threads_for(call->threads, sli_divide_up(g->rows, TASK_ROWS) * w.panel_groups, multiply, (void *)&w);
}
