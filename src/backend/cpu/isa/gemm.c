/* Matrix products on a register-blocked micro-kernel: R rows x P panels of two vectors stay in registers while k runs, on
 * weights packed once per update: the recurrent product of every step of cpu:step. */
#include <string.h>
#include "backend/cpu/isa/isa.h"
#include "backend/cpu/isa/vector.h"

enum {
    PANEL = 2 * VL,
    ROWS = VF_REGISTERS == 32 ? 12 : 6 /* rows x 2 vectors of sums: 24 of 32 registers, 12 of 16 */
};

/* c[R][P*PANEL] (+)= a[R][k] * b[P][k][PANEL]; panels are `stride` floats apart. R, P, add are constants that fold. */
VF_INLINE void block(const int R, const int P, int k, const float *a, ptrdiff_t am, ptrdiff_t ak, const float *b,
                     size_t stride, float *c, ptrdiff_t ldc, bool add) {
    vf sum[12][2 * 4]; /* only [R][2*P] of it exists: the loops unroll into registers */
    for (int r = 0; r < R; r++)
        for (int v = 0; v < 2 * P; v++) sum[r][v] = vf_set(0.0f);
    for (int i = 0; i < k; i++) {
        for (int p = 0; p < P; p++) {
            const vf b0 = vf_load(b + (size_t)p * stride), b1 = vf_load(b + (size_t)p * stride + VL);
            for (int r = 0; r < R; r++) {
                const vf x = vf_set(a[r * am]);
                sum[r][2 * p] = vf_fma(x, b0, sum[r][2 * p]);
                sum[r][2 * p + 1] = vf_fma(x, b1, sum[r][2 * p + 1]);
            }
        }
        a += ak;
        b += PANEL;
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < 2 * P; v++) {
            float *to = c + r * ldc + v * VL;
            if (add) sum[r][v] += vf_load(to);
            vf_store(to, sum[r][v]);
        }
}

typedef struct cut {
    int k;
    const float *a;
    ptrdiff_t am, ak;
    const float *b;
    size_t stride;
    float *c;
    ptrdiff_t ldc;
    bool add;
} cut;

/* The strides fold too: k runs along rows of a (forward) or along its columns (sums over time). */
#define BLOCK(R, P)                                                                   \
    static void block_##R##x##P(const cut *g) {                                       \
        if (g->ak == 1)                                                               \
            block(R, P, g->k, g->a, g->am, 1, g->b, g->stride, g->c, g->ldc, g->add); \
        else                                                                          \
            block(R, P, g->k, g->a, 1, g->ak, g->b, g->stride, g->c, g->ldc, g->add); \
    }
BLOCK(1, 1)
BLOCK(2, 1)
BLOCK(3, 1)
BLOCK(4, 1)
BLOCK(5, 1)
BLOCK(6, 1)
BLOCK(1, 4)
BLOCK(2, 3)
BLOCK(3, 2)
typedef void (*block_fn)(const cut *);
#if VF_REGISTERS == 32
BLOCK(7, 1)
BLOCK(8, 1)
BLOCK(9, 1)
BLOCK(10, 1)
BLOCK(11, 1)
BLOCK(12, 1)
static const block_fn blocks[ROWS + 1] = {NULL,      block_1x1, block_2x1, block_3x1,  block_4x1,  block_5x1, block_6x1,
                                          block_7x1, block_8x1, block_9x1, block_10x1, block_11x1, block_12x1};
#else
static const block_fn blocks[ROWS + 1] = {NULL, block_1x1, block_2x1, block_3x1, block_4x1, block_5x1, block_6x1};
#endif
/* One to three rows: several panels at once, or the few sums would wait for each other. */
static const block_fn wide_blocks[4] = {NULL, block_1x4, block_2x3, block_3x2};
static const int wide_panels[4] = {0, 4, 3, 2};

/* The last columns of c, fewer than a panel: through a buffer. */
static void edge_block(const cut *g, int rows, int columns) {
    float buffer[ROWS * PANEL];
    cut inner = *g;
    inner.c = buffer;
    inner.ldc = PANEL;
    inner.add = false;
    blocks[rows](&inner);
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < columns; j++) {
            float *to = g->c + r * g->ldc + j;
            *to = g->add ? *to + buffer[r * PANEL + j] : buffer[r * PANEL + j];
        }
}

/* All rows against one panel, `columns` of it wanted; rows in even blocks (5+5, not 6+4). */
static void run_panel(const sli_gemm *g, int k, const float *a, const float *packed, float *c, int columns, bool add) {
    const int count = (g->m + ROWS - 1) / ROWS;
    for (int i = 0; i < count; i++) {
        const int first = (int)((long)g->m * i / count), rows = (int)((long)g->m * (i + 1) / count) - first;
        const cut inner = {k, a + first * g->am, g->am, g->ak, packed, 0, c + first * g->ldc, g->ldc, add};
        if (columns == PANEL)
            blocks[rows](&inner);
        else
            edge_block(&inner, rows, columns);
    }
}

void ISA(gemm_packed)(const sli_gemm *g) {
    const size_t stride = (size_t)g->k * PANEL;
    int n = 0;
    if (g->m <= 3 && g->m > 0) {
        const int wide = wide_panels[g->m] * PANEL;
        for (; n + wide <= g->n; n += wide) {
            const cut inner = {g->k,   g->a,     g->am,  g->ak, g->b + (size_t)(n / PANEL) * stride,
                               stride, g->c + n, g->ldc, g->add};
            wide_blocks[g->m](&inner);
        }
    }
    for (; n < g->n; n += PANEL) {
        const int columns = g->n - n < PANEL ? g->n - n : PANEL;
        run_panel(g, g->k, g->a, g->b + (size_t)(n / PANEL) * stride, g->c + n, columns, g->add);
    }
}

/* packed[k][PANEL] = columns [0, columns) of b, the rest 0. */
static void pack_panel(float *packed, int k, int columns, const float *b, ptrdiff_t bk, ptrdiff_t bn) {
    if (columns < PANEL) memset(packed, 0, (size_t)k * PANEL * sizeof *packed);
    if (bn == 1 && columns == PANEL) {
        for (int i = 0; i < k; i++) memcpy(packed + (size_t)i * PANEL, b + i * bk, PANEL * sizeof *packed);
        return;
    }
    if (bn == 1) {
        for (int i = 0; i < k; i++) memcpy(packed + (size_t)i * PANEL, b + i * bk, (size_t)columns * sizeof *packed);
        return;
    }
    for (int i0 = 0; i0 < k; i0 += 16) { /* transposing: in squares that stay in L1 */
        const int i1 = i0 + 16 < k ? i0 + 16 : k;
        for (int j = 0; j < columns; j++)
            for (int i = i0; i < i1; i++) packed[(size_t)i * PANEL + j] = b[i * bk + j * bn];
    }
}

void ISA(pack)(float *packed, int k, int n, const float *b, ptrdiff_t bk, ptrdiff_t bn) {
    for (int j = 0; j < n; j += PANEL)
        pack_panel(packed + (size_t)(j / PANEL) * (size_t)k * PANEL, k, n - j < PANEL ? n - j : PANEL, b + j * bn, bk,
                   bn);
}
