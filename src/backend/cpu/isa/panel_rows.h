/* Products of a step on panels whose weights are multiplied in vector registers: R rows x V vectors of sums stay in
 * registers while k runs. A sum takes its terms one by one, k upwards, in every kernel below and across blocks of k,
 * so it has the same bits whatever rows and panels go together.
 *
 * Included once a file, with the form of the weights, panel [terms / WEIGHT_K][vectors * VL]:
 *     weight, WEIGHT_K                  its element, and the terms it holds
 *     weight_load(const weight *, t)    term t of VL elements
 * Operand rows are floats, or with PANEL_PAIRS pairs of bf16, neighbours in k, which one instruction multiplies and adds: then a term is
 * such a pair, all that follows counts k in terms, and weights are pairs as well. */
#include "backend/cpu/isa/isa.h"
#include "backend/cpu/isa/panel.h"
#include "backend/cpu/isa/vector.h"

enum {
    SUMS = REGISTERS_32 ? 24 : 12, /* registers of sums: of 32, of 16 */
    ROWS_SUMS = REGISTERS_32 || WEIGHT_K == 1
                    ? SUMS
                    : 10, /* of several rows: fewer where weights need registers of their own */
    MOST_ROWS = 6,
    TERMS = VF_ACCUMULATES ? 4 : 2,   /* rows of weights between two jumps */
    FETCH_K = VF_ACCUMULATES ? 4 : 1, /* and of which the next are fetched together */
    LINE = 64,
    BLOCK_BYTES = VL == 16 ? 40 << 10 : 26 << 10, /* of weights: in L1 while all rows pass */
    /* or in L2: 24 multiply-adds of 512 bits for 256 bytes of weights take a Zen 4 24 cycles, and each block costs a load and a store of
     * all sums. Measured there, f32 inference: 1 to 3% less, once 7, than with blocks of 40 KB; with 24 KB 1 to 2% more. */
    FAR_BLOCK_BYTES = 160 << 10
};

#ifdef PANEL_PAIRS
enum { OPERAND_K = 2 }; /* numbers of k in an element */
typedef struct operand {
    uint16_t of[OPERAND_K]; /* which may begin at any of them: n r z s of GRU's gradients */
} operand;
VF_INLINE vf operand_load(const operand *x) {
    int32_t pair;
    memcpy(&pair, x, sizeof pair);
    return (vf)_mm512_set1_epi32(pair);
}
/* sum += x w. Denormal numbers count as 0, each product is rounded to nearest, whatever MXCSR says. */
VF_INLINE void multiply_add(vf *sum, vf x, vf w, const bool held) {
    (void)held;
    *sum = (vf)_mm512_dpbf16_ps((__m512)*sum, (__m512bh)x, (__m512bh)w);
}
#else
enum { OPERAND_K = 1 };
typedef float operand;
VF_INLINE vf operand_load(const operand *x) {
    return vf_set(*x);
}
/* sum += x w; w that is not held comes out of memory. */
VF_INLINE void multiply_add(vf *sum, vf x, vf w, const bool held) {
    if (held)
        vf_accumulate(sum, x, w);
    else
        *sum = vf_fma(x, w, *sum);
}
#endif

/* to[VL][VL], rows `line` apart: what vector v of a panel is packed from, VL k from k0 on, or those that there are. By vectors where the square
 * is whole: of R read along its rows, forward, or down its columns, backward. */
static inline void panel_square(const sli_panel_source *s, int v, int k0, float *to, ptrdiff_t line) {
    const int count = s->k - k0 < VL ? s->k - k0 : VL;
    const bool whole = s->gap == VL && s->valid[v] == VL;
    if (whole && s->k_stride == 1 && count == VL) {
        vf_transpose(to, line, s->from[v] + k0, s->lane_stride);
    } else if (whole && s->lane_stride == 1) {
        for (int k = 0; k < count; k++) vf_store(to + k * line, vf_load(s->from[v] + (k0 + k) * s->k_stride));
    } else {
        for (int l = 0; l < VL; l++) {
            const float *const from = sli_panel_column(s, v * VL + l);
            for (int k = 0; k < count; k++) to[k * line + l] = from ? from[(k0 + k) * s->k_stride] : 0;
        }
    }
}

static int terms_of(int k) {
    return (k + OPERAND_K - 1) / OPERAND_K;
}

/* One block: k terms of `rows` rows and P panels, `stride` weights apart; the tile of a panel is `next` floats behind
 * the last. */
typedef struct cut {
    int k;
    const operand *a[MOST_ROWS];
    const weight *w;
    size_t stride, next;
    float *tile; /* [P][R][V * VL] */
    const char
        *ahead; /* fetched meanwhile by more than two rows: weights that come next, `fetched` bytes on for each k */
    size_t fetched;
    bool first; /* =, else += (one panel only) */
} cut;

/* A vector that is used several times is loaded once: gcc would read it again in each multiply-add of AVX-512. */
#if defined(__AVX512F__)
#define HOLD(vector) __asm__("" : "+v"(vector))
#else
#define HOLD(vector) (void)0
#endif

/* sum[r][v] += a[r][i] * term t of w[v], with the x of all rows in registers while the weights pass. */
VF_INLINE void rows_held(const int R, const int P, const int V, const operand *const *a, int i, const weight *w,
                         const int t, size_t stride, vf sum[][SUMS]) {
    vf x[MOST_ROWS];
    UNROLL_ALL
    for (int r = 0; r < R; r++) {
        x[r] = operand_load(a[r] + i);
        HOLD(x[r]);
    }
    UNROLL_ALL
    for (int v = 0; v < P * V; v++) {
        vf b = weight_load(w + (size_t)(v / V) * stride + v % V * VL, t);
        if (R > 1) HOLD(b);
        UNROLL_ALL
        for (int r = 0; r < R; r++) multiply_add(&sum[r][v], x[r], b, R > 1); /* one row: b is of no other use */
    }
}

/* The same with one panel's weights in registers while the rows pass. */
VF_INLINE void weights_held(const int R, const int V, const operand *const *a, int i, const weight *w, const int t,
                            vf sum[][SUMS]) {
    vf b[4];
    UNROLL_ALL
    for (int v = 0; v < V; v++) {
        b[v] = weight_load(w + v * VL, t);
        HOLD(b[v]);
    }
    UNROLL_ALL
    for (int r = 0; r < R; r++) {
        vf x = operand_load(a[r] + i);
        if (V > 1) HOLD(x);
        UNROLL_ALL
        for (int v = 0; v < V; v++) multiply_add(&sum[r][v], x, b[v], true);
    }
}

/* One row of weights: the terms of WEIGHT_K numbers of k. */
VF_INLINE void terms(const int R, const int P, const int U, const operand *const *a, int i, const weight *w,
                     size_t stride, vf sum[][SUMS]) {
    UNROLL_ALL
    for (int t = 0; t < WEIGHT_K; t++)
        if (R > P * U)
            weights_held(R, U, a, i + t, w, t, sum);
        else
            rows_held(R, P, U, a, i + t, w, t, stride, sum);
}

/* Into L2: of few rows, which pass weights less often, more lines each time; with FETCH_K 1 one at most. */
VF_INLINE void fetch_ahead(const char *from, size_t bytes) {
    __builtin_prefetch(from, 0, 2);
    for (size_t at = LINE; at < bytes && FETCH_K > 1; at += LINE) __builtin_prefetch(from + at, 0, 2);
}

/* P panels, of whose V vectors the first U take part; U < V with one panel only. R, P, V, U and `first` are constants that fold;
 * k >= 1, and operands have zeros up to a multiple of WEIGHT_K terms. */
VF_INLINE void block(const int R, const int P, const int V, const int U, const bool first, const cut *g) {
    vf sum[MOST_ROWS][SUMS]; /* only [R][P * U] of it exists: the loops unroll into registers */
    const operand *a[MOST_ROWS];
    const weight *w = g->w;
    float *const tile = g->tile;
    const int k = g->k;
    const size_t width = (size_t)V * VL, stride = g->stride, next = g->next;
    UNROLL_ALL
    for (int r = 0; r < R; r++) {
        a[r] = g->a[r];
        UNROLL_ALL
        for (int v = 0; v < P * U; v++)
            sum[r][v] = first ? vf_set(0.0f) : vf_load(tile + (size_t)(v / U) * next + (size_t)r * width + v % U * VL);
    }
    const char *ahead = g->ahead;
    const size_t fetched = g->fetched * FETCH_K;
    int i = 0;
    for (; i + TERMS * WEIGHT_K <= k; i += TERMS * WEIGHT_K, w += TERMS * width) {
        UNROLL_ALL
        for (int n = 0; n < TERMS; n++) {
            if (R > 2 && n % FETCH_K == 0) fetch_ahead(ahead + n / FETCH_K * fetched, fetched);
            terms(R, P, U, a, i + n * WEIGHT_K, w + n * width, stride, sum);
        }
        ahead += TERMS / FETCH_K * fetched;
    }
    for (; i < k; i += WEIGHT_K, w += width) terms(R, P, U, a, i, w, stride, sum);
    UNROLL_ALL
    for (int r = 0; r < R; r++) UNROLL_ALL
    for (int v = 0; v < P * U; v++) vf_store(tile + (size_t)(v / U) * next + (size_t)r * width + v % U * VL, sum[r][v]);
}

#define BLOCK(R, P, V)                                \
    static void block_##R##x##P##x##V(const cut *g) { \
        if (P > 1 || g->first)                        \
            block(R, P, V, V, true, g);               \
        else                                          \
            block(R, P, V, V, false, g);              \
    }
typedef void (*block_fn)(const cut *);
/* clang-format off */
BLOCK(1, 1, 1) BLOCK(2, 1, 1) BLOCK(3, 1, 1) BLOCK(4, 1, 1) BLOCK(5, 1, 1) BLOCK(6, 1, 1)
BLOCK(1, 1, 2) BLOCK(2, 1, 2) BLOCK(3, 1, 2) BLOCK(4, 1, 2) BLOCK(5, 1, 2) BLOCK(6, 1, 2)
BLOCK(1, 1, 3) BLOCK(2, 1, 3) BLOCK(3, 1, 3) BLOCK(4, 1, 3)
BLOCK(1, 1, 4) BLOCK(2, 1, 4) BLOCK(3, 1, 4)
/* One row, and two of three vectors: several panels at once, or the few sums would wait for each other. */
BLOCK(1, 2, 3) BLOCK(1, 3, 3) BLOCK(1, 4, 3) BLOCK(2, 2, 3) BLOCK(1, 2, 4) BLOCK(1, 3, 4)
#if REGISTERS_32
BLOCK(5, 1, 3) BLOCK(6, 1, 3) BLOCK(4, 1, 4) BLOCK(5, 1, 4) BLOCK(6, 1, 4)
#define MORE(name) name
#else
#define MORE(name) NULL
#endif
static const block_fn blocks[5][MOST_ROWS + 1] = {
    {NULL},
    {NULL, block_1x1x1, block_2x1x1, block_3x1x1, block_4x1x1, block_5x1x1, block_6x1x1},
    {NULL, block_1x1x2, block_2x1x2, block_3x1x2, block_4x1x2, block_5x1x2, block_6x1x2},
    {NULL, block_1x1x3, block_2x1x3, block_3x1x3, block_4x1x3, MORE(block_5x1x3), MORE(block_6x1x3)},
    {NULL, block_1x1x4, block_2x1x4, block_3x1x4, MORE(block_4x1x4), MORE(block_5x1x4), MORE(block_6x1x4)},
};
/* clang-format on */

/* Four or five rows of four vectors, two at a time, where three do not go into the rows. Measured (Zen 3, 4 rows of 64 to 200
 * units): 80 to 89 GFLOP/s, where two rows and two rows had 63 to 70. */
#define HALVES(R)                                                            \
    static void halves_##R(const cut *g) {                                   \
        cut half = *g;                                                       \
        for (int i = 0; i < 2; i++, half.w += 2 * VL, half.tile += 2 * VL) { \
            if (g->first)                                                    \
                block(R, 1, 4, 2, true, &half);                              \
            else                                                             \
                block(R, 1, 4, 2, false, &half);                             \
        }                                                                    \
    }
HALVES(4)
HALVES(5)

/* Weights of one panel, a multiple of 64 bytes. */
static size_t panel_weights(int k, int vectors) {
    const size_t depth = (size_t)(k + WEIGHT_K - 1) / WEIGHT_K, line = 64 / sizeof(weight);
    return (depth * (size_t)(vectors * VL) + line - 1) / line * line;
}

static size_t panel_bytes(int k, int vectors) {
    return sizeof(weight) * panel_weights(terms_of(k), vectors);
}

static int most_rows(int vectors) {
    const int rows = ROWS_SUMS / vectors;
    return rows < MOST_ROWS ? rows : MOST_ROWS;
}

/* Blocks of four or five among those of 16 registers' three rows (bf16: two) of four vectors: how many, of *size rows. */
static int halved_blocks(int rows, int vectors, int *size) {
    const int most = most_rows(vectors);
    *size = rows == 4 || (most == 3 && rows % 3 == 1) ? 4 : 5;
    if (vectors != 4 || most > 3 || rows < 4) return 0;
    return most == 2 ? rows / *size : rows % 3 > 0;
}

/* Few rows: some panels together, in even shares (2 + 2, not 3 + 1); returns how many. */
static int several(const sli_panel_product *p, const cut *g, int left) {
    static const block_fn one3[] = {NULL, block_1x1x3, block_1x2x3, block_1x3x3, block_1x4x3};
    static const block_fn one4[] = {NULL, block_1x1x4, block_1x2x4, block_1x3x4};
    static const block_fn two3[] = {NULL, block_2x1x3, block_2x2x3};
    const block_fn *run = p->rows == 1 && p->vectors == 3   ? one3
                          : p->rows == 1 && p->vectors == 4 ? one4
                          : p->rows == 2 && p->vectors == 3 ? two3
                                                            : NULL;
    if (!run) {
        blocks[p->vectors][p->rows](g);
        return 1;
    }
    const int most = run == one3 ? 4 : run == one4 ? 3 : 2, calls = (left + most - 1) / most;
    const int panels = (left + calls - 1) / calls;
    run[panels](g);
    return panels;
}

static void few_rows(const sli_panel_product *p) {
    const size_t stride = panel_weights(p->k, p->vectors), next = (size_t)(p->rows * p->vectors * VL);
    cut g = {.k = p->k, .stride = stride, .next = next, .first = true};
    for (int r = 0; r < p->rows; r++) g.a[r] = p->a[r];
    for (int done = 0; done < p->panels;) {
        g.w = (const weight *)p->w + (size_t)done * stride;
        g.ahead = (const char *)g.w + 2048;
        g.fetched = 64;
        g.tile = p->tile + (size_t)done * next;
        done += several(p, &g, p->panels - done);
    }
}

/* Many rows and one panel: k in even blocks, rows in even blocks (2 + 2, not 3 + 1). Meanwhile the next block's weights are fetched, or
 * those at `next` that the next product begins with. */
static void many_rows(const sli_panel_product *p, const weight *w, const char *next, float *tile) {
    int size;
    const int halved = halved_blocks(p->rows, p->vectors, &size), rest = p->rows - halved * size;
    const int most = most_rows(p->vectors), whole = (rest + most - 1) / most, count = halved + whole;
    const int each = whole > 0 ? rest / whole : 0, more = rest - each * whole, width = p->vectors * VL;
    const size_t bytes = (size_t)width * sizeof(weight);
    const int depth = (p->k + WEIGHT_K - 1) / WEIGHT_K;
    const int deep = (int)((p->from_l2 ? FAR_BLOCK_BYTES : BLOCK_BYTES) / bytes), cuts = (depth + deep - 1) / deep;
    const int step = cuts > 1 ? (depth + cuts - 1) / cuts : depth;
    for (int d = 0; d < depth; d += step) {
        const int d1 = d + step < depth ? d + step : depth, k0 = d * WEIGHT_K;
        cut g = {.k = (d1 < depth ? d1 * WEIGHT_K : p->k) - k0,
                 .w = w + (size_t)d * (size_t)width,
                 .fetched = (bytes + (size_t)count - 1) / (size_t)count,
                 .first = d == 0};
        g.ahead = d1 < depth ? (const char *)(g.w + (size_t)(d1 - d) * (size_t)width) : next;
        for (int i = 0, from = 0, to; i < count; i++, from = to) {
            to = from + (i < halved ? size : each + (i - halved < more));
            for (int r = from; r < to; r++) g.a[r - from] = (const operand *)p->a[r] + k0;
            g.tile = tile + (size_t)from * (size_t)width;
            if (i < halved)
                (size == 4 ? halves_4 : halves_5)(&g);
            else
                blocks[p->vectors][to - from](&g);
            g.ahead += (size_t)(d1 - d) * g.fetched;
        }
    }
}

static void product(const sli_panel_product *given) {
    sli_panel_product of_terms = *given, *const p = &of_terms;
    p->k = terms_of(given->k);
    if (p->rows <= 0) return;
    if (p->rows <= most_rows(p->vectors)) {
        few_rows(p);
        return;
    }
    const size_t stride = panel_weights(p->k, p->vectors), next = (size_t)(p->rows * p->vectors * VL);
    for (int i = 0; i < p->panels; i++) {
        const weight *w = (const weight *)p->w + (size_t)i * stride, *after = w + stride;
        many_rows(p, w, i + 1 < p->panels || !p->next ? (const char *)after : p->next, p->tile + (size_t)i * next);
    }
}
