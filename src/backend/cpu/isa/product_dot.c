/* Large products of bf16 by AVX512_BF16: an instruction multiplies 16 pairs of bf16, neighbours in k, and adds both products to 16 floats.
 * Operands are AMX's (gemm_amx.c), which lie well for vectors, too:
 *     a   tiles [lines / 16][k / 32] of [16 rows][16 pairs], or rows of bf16 where they are; a pair goes into all lanes
 *     b   tiles [lines / 16][k / 32] of [16 pairs][16 columns]: the pairs of 16 columns, one after the other
 * ROWS x VECTORS sums stay in registers while k runs, the columns in L2 while the rows pass. A sum takes its pairs k upwards, whatever
 * rows and columns are computed together.
 *
 * What comes next is fetched meanwhile, a few lines a block of 32 k: columns into L1, the next tile of c and the next task's rows into
 * L2. Nothing guesses those: alone, out of L3, 2016 x 480 sums of 384 k had 211 GFLOP/s without (Zen 4: 236 at most), 228 with them. */
#include <string.h>
#include "backend/cpu/isa/product.h"

#ifdef __AVX512BF16__
#include <immintrin.h>
#include "backend/cpu/isa/amx.h"
#include "backend/cpu/isa/vector.h"

enum {
    ROWS = 8,    /* of a tile's 16: 24 sums in 32 registers, three loads and eight broadcasts for 24 products */
    VECTORS = 3, /* SLI_PRODUCT_LINES is a multiple of so many columns of 16 */
    COLUMNS = VECTORS * AMX_LANES,
    PAIRS = AMX_K / 2,
    NEAR_END = 3 /* blocks of k before the last one is done, when c is fetched (product_f32.c says why not before) */
};
_Static_assert(AMX_ROWS % ROWS == 0, "rows of a strip lie in one tile");
_Static_assert(SLI_PRODUCT_LINES % COLUMNS == 0, "columns of a block begin with whole vectors");

typedef struct tile {
    int blocks;               /* of 32 k */
    const char *a;            /* row 0 */
    ptrdiff_t a_row, a_block; /* bytes from row to row, from block to block */
    const char *b;            /* the first 16 columns; the others `b_next` bytes apart */
    ptrdiff_t b_next;
    float *c;
    ptrdiff_t ldc;
    bool add;
    const char *next_a;  /* row 0 of the next task's tile: */
    int part, parts;     /* each panel of columns fetches one in `parts` of its rows */
    const float *next_c; /* of the next tile */
} tile;

/* The lines of c, into L1. */
AMX_INLINE void fetch_c(const int R, const int V, const tile *g) {
    UNROLL_ALL
    for (int r = 0; r < R; r++) UNROLL_ALL
    for (int v = 0; v < V; v++) __builtin_prefetch(g->c + r * g->ldc + v * AMX_LANES, 1);
}

AMX_INLINE void fetch_next(const int V, int block, const tile *g) {
    for (int r = g->part; r < ROWS; r += g->parts)
        __builtin_prefetch(g->next_a + r * g->a_row + block * g->a_block, 0, 2);
    UNROLL_ALL
    for (int v = 0; v < V && block < ROWS; v++) __builtin_prefetch(g->next_c + block * g->ldc + v * AMX_LANES, 1, 2);
}

/* c[R][16 V] = or += a b; R and V are constants that fold. */
AMX_INLINE void multiply_tile(const int R, const int V, const tile *g) {
    __m512 sum[ROWS][VECTORS]; /* only R x V of them exist, in registers */
    const char *a = g->a, *b = g->b;
    UNROLL_ALL
    for (int r = 0; r < R; r++) UNROLL_ALL
    for (int v = 0; v < V; v++) sum[r][v] = _mm512_setzero_ps();
    const int near_end = g->blocks > NEAR_END ? g->blocks - NEAR_END : 0;
    for (int block = 0; block < g->blocks; block++, a += g->a_block, b += AMX_TILE) {
        if (block == near_end) fetch_c(R, V, g);
        fetch_next(V, block, g);
        for (int p = 0; p < PAIRS; p++) {
            __m512bh w[VECTORS];
            UNROLL_ALL
            for (int v = 0; v < V; v++) {
                const char *const line = b + v * g->b_next + p * AMX_LINE;
                w[v] = (__m512bh)_mm512_loadu_si512(line);
                __builtin_prefetch(line + AMX_TILE);
            }
            UNROLL_ALL
            for (int r = 0; r < R; r++) {
                int32_t pair;
                memcpy(&pair, a + r * g->a_row + p * (ptrdiff_t)sizeof pair, sizeof pair);
                const __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
                UNROLL_ALL
                for (int v = 0; v < V; v++) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], x, w[v]);
            }
        }
    }
    UNROLL_ALL
    for (int r = 0; r < R; r++) UNROLL_ALL
    for (int v = 0; v < V; v++) {
        float *const c = g->c + r * g->ldc + v * AMX_LANES;
        if (g->add) sum[r][v] = _mm512_add_ps(sum[r][v], _mm512_loadu_ps(c));
        _mm512_storeu_ps(c, sum[r][v]);
    }
}

#define TILE(R, V)                              \
    static void tile_##R##x##V(const tile *g) { \
        multiply_tile(R, V, g);                 \
    }
/* clang-format off */
TILE(1, 1) TILE(2, 1) TILE(3, 1) TILE(4, 1) TILE(5, 1) TILE(6, 1) TILE(7, 1) TILE(8, 1)
TILE(1, 2) TILE(2, 2) TILE(3, 2) TILE(4, 2) TILE(5, 2) TILE(6, 2) TILE(7, 2) TILE(8, 2)
TILE(1, 3) TILE(2, 3) TILE(3, 3) TILE(4, 3) TILE(5, 3) TILE(6, 3) TILE(7, 3) TILE(8, 3)
#define OF(V) {tile_1x##V, tile_2x##V, tile_3x##V, tile_4x##V, tile_5x##V, tile_6x##V, tile_7x##V, tile_8x##V}
static void (*const tiles[VECTORS][ROWS])(const tile *) = {OF(1), OF(2), OF(3)};
/* clang-format on */

/* Columns that are not whole vectors: through a buffer. */
static void multiply_columns(const tile *g, int rows, int columns) {
    const int vectors = (columns + AMX_LANES - 1) / AMX_LANES;
    void (*const run)(const tile *) = tiles[vectors - 1][rows - 1];
    if (columns == vectors * AMX_LANES) {
        run(g);
        return;
    }
    float edge[ROWS][COLUMNS] = {{0}};
    tile inner = *g;
    for (int r = 0; r < rows && g->add; r++) memcpy(edge[r], g->c + r * g->ldc, (size_t)columns * sizeof(float));
    inner.c = edge[0];
    inner.ldc = COLUMNS;
    run(&inner);
    for (int r = 0; r < rows; r++) memcpy(g->c + r * g->ldc, edge[r], (size_t)columns * sizeof(float));
}

void sli_product_dot_multiply(const sli_product_block *p) {
    const ptrdiff_t line = (ptrdiff_t)amx_blocks(p->k) * AMX_TILE; /* bytes of 16 packed lines */
    const bool packed = p->a_line == 0;
    const ptrdiff_t task = (p->m1 - p->m0) * (packed ? line / AMX_ROWS : p->a_line);
    tile g = {.blocks = amx_blocks(p->k),
              .a_row = packed ? AMX_LINE : p->a_line,
              .a_block = packed ? AMX_TILE : AMX_LINE,
              .b_next = line,
              .parts = (p->n1 - p->n0 + COLUMNS - 1) / COLUMNS,
              .ldc = p->ldc,
              .add = p->add};
    for (int n = p->n0; n < p->n1; n += COLUMNS, g.part++) {
        g.b = (const char *)p->b + n / AMX_LANES * line;
        for (int m = p->m0, rows; m < p->m1; m += rows) {
            rows = p->m1 - m < ROWS ? p->m1 - m : ROWS;
            g.a = (const char *)p->a + (packed ? m / AMX_ROWS * line + m % AMX_ROWS * AMX_LINE : m * p->a_line);
            g.next_a = g.a + task;
            g.c = p->c + m * p->ldc + n;
            g.next_c = m + rows < p->m1 ? g.c + rows * p->ldc : p->c + p->m0 * p->ldc + n + COLUMNS;
            multiply_columns(&g, rows, p->n1 - n < COLUMNS ? p->n1 - n : COLUMNS);
        }
    }
}
#endif
