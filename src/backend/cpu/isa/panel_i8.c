/* Products of a step with weights of 8 bits. Column c of the weights and row r of the operands are whole numbers times a scale
 * of their own, symmetric about 0:
 *     w[k][c] ~ W[k][c] scale_w[c],  W = round(w / scale_w),  scale_w[c] = max over k |w[k][c]| / 127
 *     a[r][k] ~ A[r][k] scale_a[r],  likewise
 *     tile[r][c] = float(sum over k of A[r][k] W[k][c]) * (scale_w[c] * scale_a[r])
 * A row's scale is taken from the row each time: h' is mostly far below 1, its bound, so that a scale of 1/127 would waste one
 * or two of its eight bits, and finding the maximum is one pass over k numbers where the product is one over 4 k^2.
 *
 * The sums are exact in 32 bits for k <= SLI_PANEL_I8_MOST, and what is rounded (A, W, the last line) is rounded in one order: so
 * every instruction set gives the same bits.
 *
 * Four k's of a column lie side by side: panel = scale_w[columns], start[columns] where operands have an offset, then
 * [k / 4][columns][4] weights. Operand row = scale_a, padding to 16 bytes, k numbers (with the offset); k is padded. */
#include <math.h>
#include <string.h>
#include "backend/cpu/isa/isa.h"
#include "backend/cpu/isa/panel.h"
#include "backend/cpu/isa/vector_i8.h"
#include "core/memory.h"

/* --------------------------------------------------------------------------------------------------- quantising -- */
/* Bits of |x|: as whole numbers they are ordered as |x| is, NaN above infinity. */
VF_INLINE int32_t size_bits(const float *x) {
    int32_t bits;
    memcpy(&bits, x, sizeof bits);
    return bits & 0x7fffffff;
}

/* Scale of numbers of which the largest has these bits; *inverse = 1 / scale. Numbers that are not finite have a scale of
 * NaN, and so has every sum with them; numbers that are tiny count as 0. */
static float scale_of(int32_t largest, float *inverse) {
    float size;
    memcpy(&size, &largest, sizeof size);
    *inverse = 0;
    if (largest >= 0x7f800000) return NAN;
    if (size < 0x1p-100f) return 0;
    *inverse = 127 / size;
    return size / 127;
}

/* Nearest whole number of x * inverse, ties to even, in the low byte: adding 1.5 * 2^23 leaves no room for fractions. */
VF_INLINE uint8_t quantised(float x, float inverse) {
    const float scaled = x * inverse;
    const float rounded = scaled + 0x1.8p23f;
    uint32_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    return (uint8_t)bits;
}

/* ------------------------------------------------------------------------------------------------------ layouts -- */
/* k up to whole groups of four, as many as a step of the loop takes. */
static int padded(int k) {
    return k <= 0 ? 4 * UNROLL : (k + 4 * UNROLL - 1) / (4 * UNROLL) * (4 * UNROLL);
}

static size_t head_bytes(int columns) {
    return (size_t)columns * (OFFSET > 0 ? sizeof(float) + sizeof(int32_t) : sizeof(float));
}

static size_t panel_bytes(int k, int vectors) {
    const size_t columns = (size_t)vectors * VL;
    return sli_round_up(head_bytes((int)columns) + columns * (size_t)padded(k), 64);
}

enum { ROW_HEAD = 16 };

static size_t operand_bytes(int k) {
    return sli_round_up(ROW_HEAD + (size_t)padded(k), 64);
}

static void pack(void *panel, const sli_panel_source *s) {
    const int columns = s->vectors * VL;
    float *scales = panel;
    int32_t *start = (int32_t *)panel + columns;
    int8_t *to = (int8_t *)panel + head_bytes(columns);
    memset(panel, 0, panel_bytes(s->k, s->vectors));
    for (int c = 0; c < columns; c++) {
        const float *const from = sli_panel_column(s, c);
        if (!from) continue;
        float inverse;
        int32_t largest = 0, sum = 0;
        for (int k = 0; k < s->k; k++) {
            const int32_t size = size_bits(from + k * s->k_stride);
            largest = size > largest ? size : largest;
        }
        scales[c] = scale_of(largest, &inverse);
        for (int k = 0; k < s->k; k++) {
            const int8_t w = (int8_t)quantised(from[k * s->k_stride], inverse);
            to[((size_t)(k / 4) * (size_t)columns + (size_t)c) * 4 + (size_t)(k % 4)] = w;
            sum += w;
        }
        if (OFFSET > 0) start[c] = -OFFSET * sum;
    }
}

static void convert(void *row, const float *from, int k) {
    uint8_t *to = (uint8_t *)row + ROW_HEAD;
    float inverse;
    int32_t largest = 0;
    for (int i = 0; i < k; i++) {
        const int32_t size = size_bits(from + i);
        largest = size > largest ? size : largest;
    }
    const float scale = scale_of(largest, &inverse);
    memset(row, 0, ROW_HEAD);
    memcpy(row, &scale, sizeof scale);
    for (int i = 0; i < k; i++) to[i] = quantised(from[i], inverse) ^ OFFSET;
    memset(to + k, 0, (size_t)(padded(k) - k)); /* times weights of 0 */
}

/* ------------------------------------------------------------------------------------------------------ product -- */
#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 8")
#endif

/* sum[r][v] += four k's of row r times those of vector v. */
VF_INLINE void add_four(const int R, const int V, const uint8_t *const *row, ptrdiff_t at, const int8_t *w,
                        vi sum[][4]) {
    operand a[I8_ROWS];
    UNROLLED for (int r = 0; r < R; r++) a[r] = operand_load(row[r] + at);
    UNROLLED for (int v = 0; v < V; v++) {
        const weights b = weights_load(w + v * 4 * VL);
        UNROLLED for (int r = 0; r < R; r++) sum[r][v] = dot(sum[r][v], a[r], b);
    }
}

/* tile[R][V * VL] = R operand rows times one panel; U groups of k have sums of their own, which hides the latency of one. */
VF_INLINE void block(const int R, const int V, const int U, int k, const void *const *a, const void *panel,
                     float *tile) {
    const float *scales = panel;
    const int32_t *start = (const int32_t *)panel + V * VL;
    const int8_t *w = (const int8_t *)panel + head_bytes(V * VL);
    const ptrdiff_t end = padded(k);
    const uint8_t *row[I8_ROWS];
    vi sum[UNROLL][I8_ROWS][4]; /* only [U][R][V] of it exists: the loops unroll into registers */
    const vi zero = {0};
    UNROLLED for (int r = 0; r < R; r++) {
        row[r] = (const uint8_t *)a[r] + ROW_HEAD;
        UNROLLED for (int v = 0; v < V; v++) {
            sum[0][r][v] = OFFSET > 0 ? vi_load(start + v * VL) : zero;
            UNROLLED for (int u = 1; u < U; u++) sum[u][r][v] = zero;
        }
    }
    ptrdiff_t i = 0;
    do {
        UNROLLED for (int u = 0; u < U; u++, w += V * 4 * VL) add_four(R, V, row, i + 4 * u, w, sum[u]);
    } while ((i += 4 * U) < end);
    UNROLLED for (int r = 0; r < R; r++) {
        float scale;
        memcpy(&scale, a[r], sizeof scale);
        UNROLLED for (int v = 0; v < V; v++) {
            vi total = sum[0][r][v];
            UNROLLED for (int u = 1; u < U; u++) total = vi_add(total, sum[u][r][v]);
            vf_store(tile + (r * V + v) * VL, vi_float(total) * (vf_load(scales + v * VL) * vf_set(scale)));
        }
    }
}

#define UNROLL_OF(R) ((R) < UNROLL ? UNROLL / (R) : 1)
#define BLOCK(R, V)                                                                            \
    static void block_##R##x##V(int k, const void *const *a, const void *panel, float *tile) { \
        block(R, V, UNROLL_OF(R), k, a, panel, tile);                                          \
    }
#define BLOCKS(R) BLOCK(R, 1) BLOCK(R, 2) BLOCK(R, 3) BLOCK(R, 4)
#define BLOCKS_OF(R) \
    { block_##R##x1, block_##R##x2, block_##R##x3, block_##R##x4 }
typedef void (*block_fn)(int k, const void *const *a, const void *panel, float *tile);
BLOCKS(1)
BLOCKS(2)
#if I8_ROWS > 2
BLOCKS(3)
#endif
#if I8_ROWS > 3
BLOCKS(4)
#endif
#if I8_ROWS > 4
BLOCKS(5)
#endif
static const block_fn blocks[I8_ROWS][4] = {
    BLOCKS_OF(1), BLOCKS_OF(2),
#if I8_ROWS > 2
    BLOCKS_OF(3),
#endif
#if I8_ROWS > 3
    BLOCKS_OF(4),
#endif
#if I8_ROWS > 4
    BLOCKS_OF(5),
#endif
};

/* Rows in even blocks: 4 + 4, not 5 + 3. */
static void product(const sli_panel_product *p) {
    const size_t bytes = panel_bytes(p->k, p->vectors), columns = (size_t)p->vectors * VL;
    const int count = (p->rows + I8_ROWS - 1) / I8_ROWS;
    for (int panel = 0; panel < p->panels; panel++)
        for (int i = 0; i < count; i++) {
            const int first = (int)((long)p->rows * i / count), rows = (int)((long)p->rows * (i + 1) / count) - first;
            blocks[rows - 1][p->vectors - 1](p->k, p->a + first, (const char *)p->w + (size_t)panel * bytes,
                                             p->tile + ((size_t)panel * (size_t)p->rows + (size_t)first) * columns);
        }
}

const sli_panel_ops ISA(panel_i8) = {.name = SLI_I8_HOW,
                                     .lanes = VL,
                                     .panels = 12,
                                     .panel_bytes = panel_bytes,
                                     .operand_bytes = operand_bytes,
                                     .pack = pack,
                                     .convert = convert,
                                     .product = product};
