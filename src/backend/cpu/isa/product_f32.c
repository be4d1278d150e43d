/* Large products where registers hold floats; those of bf16 problems are the same on floats that were rounded to bf16.
 *
 * Packed operands, in blocks of SLI_PRODUCT_LINES lines:
 *     a   strips of at most ROWS rows, even in their block (5 5, not 6 4): [k / VL][rows][VL] where k runs along the rows of a in
 *         memory, [k][rows] where it runs down its columns. So packing copies what lies together, and the kernel reads a strip from
 *         front to back
 *     b   panels of two vectors of columns, [k][PANEL], zeros behind the last column
 * ROWS x PANEL sums stay in registers while k runs, and a panel in the nearest caches while the strips of a block pass.
 * A sum takes its terms one by one, k upwards, whatever rows and columns are computed together. */
#include <string.h>
#include "backend/cpu/isa/bf16.h"
#include "backend/cpu/isa/isa.h"
#include "backend/cpu/isa/product.h"
#include "backend/cpu/isa/vector.h"

enum {
    PANEL = 2 * VL,
    ROWS = REGISTERS_32 ? 12 : 6, /* with two vectors 24 sums in 32 registers, 12 in 16 */
    AHEAD_K = 4,                  /* rows of memory that are fetched before they are packed */
    AHEAD_PANEL = 8,              /* terms of a panel that are in L1 before they are multiplied */
    NEAR_END = 96                 /* terms before the last one, when c is fetched */
};

/* The strips of a block's rows: the first `wide` have a row more than `width`. */
typedef struct strips {
    int count, width, wide;
} strips;

static strips strips_of(int rows) {
    const int count = (rows + ROWS - 1) / ROWS;
    return (strips){count, rows / count, rows % count};
}
static int strip_begin(const strips *at, int s) {
    return s * at->width + (s < at->wide ? s : at->wide);
}
/* Floats of a row of a strip. */
static size_t strip_depth(int k) {
    return (size_t)(k + VL - 1) / VL * VL;
}
static int block_lines(int block, int last) {
    return last - block < SLI_PRODUCT_LINES ? last - block : SLI_PRODUCT_LINES;
}

/* ------------------------------------------------------------------------------------------------------ packing -- */
static void strip_along(float *to, const float *x, ptrdiff_t line, int rows, int k) {
    for (int i = 0; i < k; i += VL)
        for (int r = 0; r < rows; r++, to += VL) {
            const float *from = x + r * line + i;
            if (k - i >= VL)
                vf_store(to, vf_load(from));
            else
                for (int j = 0; j < VL; j++) to[j] = j < k - i ? from[j] : 0;
        }
}

/* `count` strips of `width` rows together: a line of memory holds rows of several. sums[rows] += those over k; NULL: not wanted. */
VF_INLINE void strips_of_width(const int width, int count, float *to, size_t padded, const float *x, ptrdiff_t depth,
                               int k, float *restrict sums) {
    for (int i = 0; i < k; i++, x += depth, to += width) {
        float *strip = to;
        for (int r = 0; r < count * width; r += 16) __builtin_prefetch(x + AHEAD_K * depth + r);
        for (int s = 0; s < count; s++, strip += (size_t)width * padded)
            memcpy(strip, x + s * width, (size_t)width * sizeof *x);
        for (int r = 0; r < count * width && sums; r++) sums[r] += x[r];
    }
}

static void strips_down(int count, int width, float *to, size_t padded, const float *x, ptrdiff_t depth, int k,
                        float *sums) {
    switch (width) { /* three times as fast with a width that folds */
#define WIDTH(n)                                                  \
    case n:                                                       \
        strips_of_width(n, count, to, padded, x, depth, k, sums); \
        break;
        /* clang-format off */
        WIDTH(1) WIDTH(2) WIDTH(3) WIDTH(4) WIDTH(5) WIDTH(6)
#if REGISTERS_32
        WIDTH(7) WIDTH(8) WIDTH(9) WIDTH(10) WIDTH(11) WIDTH(12)
#endif
        /* clang-format on */
    }
}

/* All strips of a block. */
static void pack_down(const sli_operand *a, const strips *at, int block, float *to, const float *x) {
    const size_t padded = strip_depth(a->k);
    const int narrow = strip_begin(at, at->wide), rows = strip_begin(at, at->count);
    float sums[SLI_PRODUCT_LINES] = {0}, *const wanted = a->sums[0] || a->sums[1] ? sums : NULL;
    if (at->wide > 0) strips_down(at->wide, at->width + 1, to, padded, x, a->depth, a->k, wanted);
    strips_down(at->count - at->wide, at->width, to + (size_t)narrow * padded, padded, x + narrow, a->depth, a->k,
                wanted ? wanted + narrow : NULL);
    for (int i = 0; i < 2; i++)
        for (int r = 0; r < rows && a->sums[i]; r++) a->sums[i][block + r] += sums[r];
}

static void pack_a(void *packed, const sli_operand *a, int first, int last) {
    const size_t padded = strip_depth(a->k);
    for (int block = first; block < last; block += SLI_PRODUCT_LINES) {
        const strips at = strips_of(block_lines(block, last));
        const float *x = a->x + block * a->line;
        float *to = (float *)packed + (size_t)block * padded;
        if (a->depth != 1) {
            pack_down(a, &at, block, to, x);
            continue;
        }
        for (int s = 0; s < at.count; s++) {
            const int from = strip_begin(&at, s), rows = strip_begin(&at, s + 1) - from;
            strip_along(to + (size_t)from * padded, x + from * a->line, a->line, rows, a->k);
        }
    }
}

static void panel_along(float *to, const float *x, ptrdiff_t line, int columns, int k) {
    for (int v = 0; v < PANEL; v += VL)
        for (int i = 0; i < k; i += VL) {
            if (k - i >= VL && columns - v >= VL) {
                vf_transpose(to + i * PANEL + v, PANEL, x + v * line + i, line);
                continue;
            }
            for (int j = i; j < i + VL && j < k; j++)
                for (int l = v; l < v + VL; l++) to[j * PANEL + l] = l < columns ? x[l * line + j] : 0;
        }
}

/* All panels of a block together. */
static void panels_down(float *to, const float *x, ptrdiff_t depth, int columns, int k) {
    for (int i = 0; i < k; i++, x += depth) {
        for (int l = 0; l < columns; l += 16) __builtin_prefetch(x + AHEAD_K * depth + l);
        for (int n = 0; n < columns; n += PANEL) {
            float *row = to + (size_t)n * (size_t)k + i * PANEL;
            if (columns - n >= PANEL)
                memcpy(row, x + n, PANEL * sizeof *x);
            else
                for (int l = 0; l < PANEL; l++) row[l] = l < columns - n ? x[n + l] : 0;
        }
    }
}

static void pack_b(void *packed, const sli_operand *b, int first, int last) {
    for (int block = first; block < last; block += SLI_PRODUCT_LINES) {
        const int columns = block_lines(block, last);
        const float *x = b->x + block * b->line;
        float *to = (float *)packed + (size_t)block * (size_t)b->k;
        if (b->depth != 1) {
            panels_down(to, x, b->depth, columns, b->k);
            continue;
        }
        for (int n = 0; n < columns; n += PANEL)
            panel_along(to + (size_t)n * (size_t)b->k, x + n * b->line, b->line,
                        columns - n < PANEL ? columns - n : PANEL, b->k);
    }
}

static void round_all(float *x, size_t count) {
    for (size_t i = 0; i < count; i++) x[i] = bf16_round(x[i]);
}

static void pack_a_bf16(void *packed, const sli_operand *a, int first, int last) {
    const size_t padded = strip_depth(a->k);
    pack_a(packed, a, first, last);
    round_all((float *)packed + (size_t)first * padded, (size_t)(last - first) * padded);
}

static void pack_b_bf16(void *packed, const sli_operand *b, int first, int last) {
    const size_t columns = (size_t)((last - first + PANEL - 1) / PANEL * PANEL), k = (size_t)b->k;
    pack_b(packed, b, first, last);
    round_all((float *)packed + (size_t)first * k, columns * k);
}

/* ----------------------------------------------------------------------------------------------------- products -- */
typedef struct tile {
    const float *a, *b; /* a strip and a panel */
    int k;
    float *c;
    ptrdiff_t ldc;
    bool add;
    const char *ahead; /* of the next panel: fetched meanwhile, a line for VL of k */
} tile;

/* sum[r] += `count` terms of a[r * row + j * next] * the first V vectors of b[j][PANEL]. Both come from L2, a panel of 512 terms being
 * larger than L1; the lines of either that come next are fetched: a Xeon of AVX-512 does without 159, so 164 of its 178 GFLOP/s. */
VF_INLINE void terms(const int R, const int V, const int row, const int next, const int count, const float *a,
                     const float *b, vf sum[][2]) {
    for (int j = 0; j < count; j++) {
        vf w[2];
        UNROLL_ALL
        for (int v = 0; v < V; v++) w[v] = vf_load(b + j * PANEL + v * VL);
        UNROLL_ALL
        for (int v = 0; v < V && VL == 16; v++) __builtin_prefetch(b + (j + AHEAD_PANEL) * PANEL + v * VL);
        if (j < R && VL == 16) __builtin_prefetch(a + (R + j) * VL);
        UNROLL_ALL
        for (int r = 0; r < R; r++) {
            const vf x = vf_set(a[r * row + j * next]);
            UNROLL_ALL
            for (int v = 0; v < V; v++) vf_accumulate(&sum[r][v], x, w[v]);
        }
    }
}

/* The lines of c, into L1. A tile that began with it would find them gone at its end: strip and panel pass through L1 meanwhile, and
 * rows of c that are multiples of 4 KB apart have few places there. Zen 5, c of 1024 columns: 236 GFLOP/s so, 254 near the end. */
VF_INLINE void fetch_c(const int R, const int V, const tile *g) {
    UNROLL_ALL
    for (int r = 0; r < R; r++) {
        __builtin_prefetch(g->c + r * g->ldc, 1);
        __builtin_prefetch(g->c + r * g->ldc + V * VL - 1, 1);
    }
}

/* c[R][V * VL] = or += strip * panel, of which V vectors take part; R, V and along are constants that fold. */
VF_INLINE void multiply_tile(const int R, const int V, const bool along, const tile *g) {
    const int row = along ? VL : 1, next = along ? 1 : R;
    vf sum[ROWS][2]; /* only R of them exist, in registers */
    const float *a = g->a, *b = g->b;
    const char *ahead = g->ahead;
    UNROLL_ALL
    for (int r = 0; r < R; r++) UNROLL_ALL
    for (int v = 0; v < V; v++) sum[r][v] = vf_set(0.0f);
    int left = g->k;
    if (left < NEAR_END) fetch_c(R, V, g);
    for (; left >= VL; left -= VL) {
        if (left >= NEAR_END && left < NEAR_END + VL) fetch_c(R, V, g);
        __builtin_prefetch(ahead, 0, 2); /* into L2 */
        ahead += 64;
        terms(R, V, row, next, VL, a, b, sum);
        a += R * VL;
        b += VL * PANEL;
    }
    terms(R, V, row, next, left, a, b, sum);
    UNROLL_ALL
    for (int r = 0; r < R; r++) UNROLL_ALL
    for (int v = 0; v < V; v++) {
        float *const c = g->c + r * g->ldc + v * VL;
        if (g->add) sum[r][v] += vf_load(c);
        vf_store(c, sum[r][v]);
    }
}

#define TILE(R)                                     \
    static void tile_along_##R(const tile *g) {     \
        multiply_tile(R, 2, true, g);               \
    }                                               \
    static void tile_down_##R(const tile *g) {      \
        multiply_tile(R, 2, false, g);              \
    }                                               \
    static void tile_along_one_##R(const tile *g) { \
        multiply_tile(R, 1, true, g);               \
    }                                               \
    static void tile_down_one_##R(const tile *g) {  \
        multiply_tile(R, 1, false, g);              \
    }
typedef void (*tile_fn)(const tile *);
/* clang-format off */
TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6)
#if REGISTERS_32
TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12)
#define MORE(name) name##7, name##8, name##9, name##10, name##11, name##12
#else
#define MORE(name) NULL
#endif
#define TILES(name) {NULL, name##1, name##2, name##3, name##4, name##5, name##6, MORE(name)}
    /* clang-format on */
    /* [vectors - 1][along][rows]: the last columns may be a vector's, which takes half the time of a panel */
    static const tile_fn tiles[2][2][13] = {{TILES(tile_down_one_), TILES(tile_along_one_)},
                                            {TILES(tile_down_), TILES(tile_along_)}};

/* The last columns of c, fewer than their vectors: through a buffer. */
static void edge_tile(tile_fn run, const tile *g, int rows, int columns) {
    float buffer[ROWS * PANEL];
    tile inner = *g;
    inner.c = buffer;
    inner.ldc = PANEL;
    inner.add = false;
    run(&inner);
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < columns; j++) {
            float *to = g->c + r * g->ldc + j;
            *to = g->add ? *to + buffer[r * PANEL + j] : buffer[r * PANEL + j];
        }
}

static void multiply(const sli_product_block *p) {
    const size_t padded = strip_depth(p->k), panel = (size_t)p->k * PANEL, lines = (size_t)(p->k / VL) * 64;
    for (int m = p->m0; m < p->m1; m += SLI_PRODUCT_LINES) {
        const strips at = strips_of(block_lines(m, p->m1));
        const float *a = (const float *)p->a + (size_t)m * padded;
        for (int n = p->n0; n < p->n1; n += PANEL) {
            const int columns = p->n1 - n < PANEL ? p->n1 - n : PANEL, vectors = columns > VL ? 2 : 1;
            const tile_fn *const run = tiles[vectors - 1][p->a_along];
            tile g = {.b = (const float *)p->b + (size_t)n * (size_t)p->k, .k = p->k, .ldc = p->ldc, .add = p->add};
            g.ahead = (const char *)(g.b + panel);
            for (int s = 0, from = 0, end; s < at.count; s++, from = end, g.ahead += lines) {
                end = strip_begin(&at, s + 1);
                g.a = a + (size_t)from * padded;
                g.c = p->c + (m + from) * p->ldc + n;
                if (columns == vectors * VL)
                    run[end - from](&g);
                else
                    edge_tile(run[end - from], &g, end - from, columns);
            }
        }
    }
}

const sli_product_ops ISA(product_f32) = {
    .task_rows = SLI_PRODUCT_LINES, .task_columns = PANEL, .pack_a = pack_a, .pack_b = pack_b, .multiply = multiply};
const sli_product_ops ISA(product_bf16) = {.task_rows = SLI_PRODUCT_LINES,
                                           .task_columns = PANEL,
                                           .pack_a = pack_a_bf16,
                                           .pack_b = pack_b_bf16,
                                           .multiply = multiply};
