/* Products of few rows, which read b where it is: to pack it would take longer than to multiply.
 *     k runs along the rows of b in memory   sums of VL parts each, added up at the end
 *     k runs down its columns                sums of vectors of columns, term by term
 * The order of a sum depends on k alone, whatever rows and columns are computed together. */
#include "backend/cpu/isa/isa.h"
#include "backend/cpu/isa/vector.h"

/* c[R][C] = or += a[R][k] * b[C][k]; R, C are constants that fold. */
VF_INLINE void along(const int R, const int C, const sli_gemm *g, int m, int n) {
    vf sum[3][8]; /* only [R][C] of it exists, in registers */
    const float *a = g->a + m * g->am, *b = g->b + n * g->bn;
    UNROLL_ALL
    for (int i = 0; i < R * C; i++) sum[i / C][i % C] = vf_set(0.0f);
    const int whole = g->k / VL * VL;
    for (int k = 0; k < whole; k += VL) {
        vf x[3];
        UNROLL_ALL
        for (int r = 0; r < R; r++) x[r] = vf_load(a + r * g->am + k);
        UNROLL_ALL
        for (int i = 0; i < C; i++) {
            const vf w = vf_load(b + i * g->bn + k);
            sum[0][i] = vf_fma(x[0], w, sum[0][i]);
            if (R > 1) sum[1][i] = vf_fma(x[1], w, sum[1][i]);
            if (R > 2) sum[2][i] = vf_fma(x[2], w, sum[2][i]);
        }
    }
    UNROLL_ALL
    for (int i = 0; i < R * C; i++) {
        const int r = i / C, j = i % C;
        float part[VL], *to = g->c + (m + r) * g->ldc + n + j;
        vf_store(part, sum[r][j]);
        for (int half = VL / 2; half > 0; half /= 2)
            for (int l = 0; l < half; l++) part[l] += part[l + half];
        for (int k = whole; k < g->k; k++) part[0] += a[r * g->am + k] * b[j * g->bn + k];
        *to = g->add ? *to + part[0] : part[0];
    }
}

/* c[R][V * VL] = or += a[R][k] * b[k][V * VL]; R, V are constants that fold. */
VF_INLINE void down(const int R, const int V, const sli_gemm *g, int m, int n) {
    vf sum[4][8];
    const float *a = g->a + m * g->am, *b = g->b + n;
    UNROLL_ALL
    for (int i = 0; i < R * V; i++) sum[i / V][i % V] = vf_set(0.0f);
    for (int k = 0; k < g->k; k++, b += g->bk) {
        vf x[4];
        UNROLL_ALL
        for (int r = 0; r < R; r++) x[r] = vf_set(a[r * g->am + k]);
        UNROLL_ALL
        for (int v = 0; v < V; v++) {
            const vf w = vf_load(b + v * VL);
            sum[0][v] = vf_fma(x[0], w, sum[0][v]);
            if (R > 1) sum[1][v] = vf_fma(x[1], w, sum[1][v]);
            if (R > 2) sum[2][v] = vf_fma(x[2], w, sum[2][v]);
            if (R > 3) sum[3][v] = vf_fma(x[3], w, sum[3][v]);
        }
    }
    UNROLL_ALL
    for (int i = 0; i < R * V; i++) {
        float *to = g->c + (m + i / V) * g->ldc + n + i % V * VL;
        if (g->add) sum[i / V][i % V] += vf_load(to);
        vf_store(to, sum[i / V][i % V]);
    }
}

/* Rows in even blocks (3 3 2, not 3 3 1 1 1), all of them on the same columns before the next. */
typedef void (*few_fn)(const sli_gemm *g, int rows, int m, int n);

static void along_4(const sli_gemm *g, int rows, int m, int n) {
    if (rows == 1) along(1, 4, g, m, n);
    if (rows == 2) along(2, 4, g, m, n);
    if (rows == 3) along(3, 4, g, m, n);
}
static void along_8(const sli_gemm *g, int rows, int m, int n) {
    along(1, 8, g, m, n);
    (void)rows;
}
static void along_1(const sli_gemm *g, int rows, int m, int n) {
    for (int r = 0; r < rows; r++) along(1, 1, g, m + r, n);
}
static void down_3(const sli_gemm *g, int rows, int m, int n) {
    if (rows == 1) down(1, 3, g, m, n);
    if (rows == 2) down(2, 3, g, m, n);
    if (rows == 3) down(3, 3, g, m, n);
    if (rows == 4) down(4, 3, g, m, n);
}
static void down_8(const sli_gemm *g, int rows, int m, int n) {
    down(1, 8, g, m, n);
    (void)rows;
}
static void down_1(const sli_gemm *g, int rows, int m, int n) {
    for (int r = 0; r < rows; r++) down(1, 1, g, m + r, n);
}

static void column(const sli_gemm *g, int n) {
    for (int m = 0; m < g->m; m++) {
        float sum = 0, *to = g->c + m * g->ldc + n;
        for (int k = 0; k < g->k; k++) sum += g->a[m * g->am + k] * g->b[k * g->bk + n];
        *to = g->add ? *to + sum : sum;
    }
}

static int all_rows(const sli_gemm *g, few_fn run, int most, int n, int width) {
    const int count = (g->m + most - 1) / most;
    for (; n + width <= g->n; n += width)
        for (int i = 0; i < count; i++) {
            const int m = g->m * i / count;
            run(g, g->m * (i + 1) / count - m, m, n);
        }
    return n;
}

void ISA(product_few)(const sli_gemm *g) {
    int n = 0;
    if (g->bn != 1) {
        if (g->m == 1) n = all_rows(g, along_8, 1, n, 8);
        n = all_rows(g, along_4, 3, n, 4);
        all_rows(g, along_1, g->m, n, 1);
        return;
    }
    if (g->m == 1) n = all_rows(g, down_8, 1, n, 8 * VL);
    n = all_rows(g, down_3, 4, n, 3 * VL);
    n = all_rows(g, down_1, g->m, n, VL);
    for (; n < g->n; n++) column(g, n);
}
