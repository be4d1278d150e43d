/* Orthonormal vectors out of any, as Gram and Schmidt make them, by blocks. For each block P of vectors, in order, and every
 * block U before it:
 *     C = U'P,  P -= U C;     then  G = P'P = R'R (Cholesky),  P = P R^-1
 * and once more if a vector lost more than half of its squared length, beside which rounding errors may no longer be small
 * ("twice is enough", Kahan in Parlett 1980). Sums are taken in one order, fixed by the shape, and vectors of P do not see each
 * other before U is done with: threads share them, and their number changes no bit. */
#include <math.h>
#include <string.h>

#include "core/params.h"
#include "core/threads.h"

enum { BLOCK = 64, CHUNK = 64 }; /* vectors; elements of them at a time */

/* Element i of vector v at values[v * step + i * stride]; one of the two is 1. */
typedef struct vector_set {
    double *values;
    size_t count, length, step, stride;
} vector_set;

static size_t at_most(size_t count, size_t most) {
    return count < most ? count : most;
}

/* out [CHUNK][width] = elements `first` and on of vectors v and on; zeros beyond the last. */
static void take(const vector_set *set, size_t v, size_t width, size_t first, double *out) {
    size_t vectors = at_most(set->count - v, width), elements = at_most(set->length - first, CHUNK);
    if (vectors < width || elements < CHUNK) memset(out, 0, sizeof(double) * CHUNK * width);
    const double *from = set->values + v * set->step + first * set->stride;
    if (set->stride == 1)
        for (size_t j = 0; j < vectors; j++)
            for (size_t i = 0; i < elements; i++) out[i * width + j] = from[j * set->step + i];
    else
        for (size_t i = 0; i < elements; i++) memcpy(out + i * width, from + i * set->stride, sizeof(double) * vectors);
}

/* The inverse of take. */
static void put(const vector_set *set, size_t v, size_t width, size_t first, const double *in) {
    size_t vectors = at_most(set->count - v, width), elements = at_most(set->length - first, CHUNK);
    double *to = set->values + v * set->step + first * set->stride;
    for (size_t i = 0; i < elements; i++)
        for (size_t j = 0; j < vectors; j++) to[j * set->step + i * set->stride] = in[i * width + j];
}

/* An operand of `multiply` [columns / 4][k][4] out of [k][columns]: what one tile reads is together. */
static void cut(const double *from, size_t k, size_t columns, double *out) {
    for (size_t j = 0; j < columns; j += 4)
        for (size_t p = 0; p < k; p++) memcpy(out + j * k + p * 4, from + p * columns + j, sizeof(double) * 4);
}

/* The same out of [columns][k]. */
static void cut_transposed(const double *from, size_t k, size_t columns, double *out) {
    for (size_t j = 0; j < columns; j++)
        for (size_t p = 0; p < k; p++) out[j / 4 * 4 * k + p * 4 + j % 4] = from[j * k + p];
}

typedef double lanes __attribute__((vector_size(16)));
static inline lanes load(const double *from) {
    lanes x;
    memcpy(&x, from, sizeof x);
    return x;
}

/* sum [m][n] += X'Y, X [m / 4][k][4], Y [n / 4][k][4]. */
static void multiply(size_t m, size_t n, size_t k, const double *x, const double *y, double *sum) {
    for (size_t i = 0; i < m; i += 4)
        for (size_t j = 0; j < n; j += 4) {
            double *to = sum + i * n + j;
            lanes s[4][2];
#pragma GCC unroll 8
            for (int e = 0; e < 8; e++) s[e / 2][e % 2] = load(to + (size_t)(e / 2) * n + e % 2 * 2);
            for (size_t p = 0; p < 4 * k; p += 4) {
                const double *left = x + i * k + p;
                const lanes right[2] = {load(y + j * k + p), load(y + j * k + p + 2)};
#pragma GCC unroll 8
                for (int e = 0; e < 8; e++) s[e / 2][e % 2] += left[e / 2] * right[e % 2];
            }
#pragma GCC unroll 8
            for (int e = 0; e < 8; e++) memcpy(to + (size_t)(e / 2) * n + e % 2 * 2, &s[e / 2][e % 2], sizeof(lanes));
        }
}

/* c [BLOCK][width] = U'P of the block that begins at vector u and the `width` vectors from v on, at most BLOCK. */
static void products(const vector_set *set, size_t u, size_t v, size_t width, double *c) {
    double taken[CHUNK * BLOCK], x[CHUNK * BLOCK], y[CHUNK * BLOCK];
    memset(c, 0, sizeof(double) * BLOCK * width);
    for (size_t first = 0; first < set->length; first += CHUNK) {
        take(set, u, BLOCK, first, taken);
        cut(taken, CHUNK, BLOCK, x);
        take(set, v, width, first, taken);
        cut(taken, CHUNK, width, y);
        multiply(BLOCK, width, CHUNK, x, y, c);
    }
}

/* P = (keep ? P : 0) + U c. */
static void combine(const vector_set *set, size_t u, size_t v, size_t width, const double *c, bool keep) {
    double taken[CHUNK * BLOCK], x[CHUNK * BLOCK], y[BLOCK * BLOCK];
    cut(c, BLOCK, width, y);
    for (size_t first = 0; first < set->length; first += CHUNK) {
        take(set, u, BLOCK, first, taken);
        cut_transposed(taken, BLOCK, CHUNK, x);
        if (keep)
            take(set, v, width, first, taken);
        else
            memset(taken, 0, sizeof(double) * CHUNK * width);
        multiply(CHUNK, width, BLOCK, x, y, taken);
        put(set, v, width, first, taken);
    }
}

/* A share of the vectors of block P, which begins at `block`. */
typedef struct projection {
    const vector_set *set;
    size_t block, width;
    double *lost; /* [BLOCK] */
} projection;

/* P -= U U'P for every U before P; lost[j] += the squared length that vector j of P loses. */
static void project(void *context, int share) {
    const projection *p = context;
    const size_t from = (size_t)share * p->width, v = p->block + from;
    double c[BLOCK * BLOCK];
    if (v >= p->set->count) return;
    for (size_t u = 0; u < p->block; u += BLOCK) {
        products(p->set, u, v, p->width, c);
        for (size_t i = 0; i < BLOCK * p->width; i++) {
            p->lost[from + i % p->width] += c[i] * c[i];
            c[i] = -c[i];
        }
        combine(p->set, u, v, p->width, c, true);
    }
}

/* inverse [BLOCK][BLOCK] = R^-1, upper triangular, of G = R'R; a vector of which nothing is left becomes zero. Returns whether
 * one lost more than half of its squared length, that of G's diagonal and lost[]. */
static bool invert(const double *g, const double *lost, double *inverse) {
    double r[BLOCK * BLOCK];
    bool weak = false;
    memset(inverse, 0, sizeof(double) * BLOCK * BLOCK);
    for (size_t j = 0; j < BLOCK; j++) {
        double pivot = g[j * BLOCK + j];
        for (size_t k = 0; k < j; k++) pivot -= r[k * BLOCK + j] * r[k * BLOCK + j];
        weak = weak || 2 * pivot < g[j * BLOCK + j] + lost[j];
        double scale = pivot > 0 ? 1 / sqrt(pivot) : 0;
        for (size_t c = j; c < BLOCK; c++) {
            double rest = g[j * BLOCK + c];
            for (size_t k = 0; k < j; k++) rest -= r[k * BLOCK + j] * r[k * BLOCK + c];
            r[j * BLOCK + c] = scale * rest;
        }
        for (size_t i = 0; i < j; i++) {
            double sum = 0;
            for (size_t k = i; k < j; k++) sum += inverse[i * BLOCK + k] * r[k * BLOCK + j];
            inverse[i * BLOCK + j] = -scale * sum;
        }
        inverse[j * BLOCK + j] = scale;
    }
    return weak;
}

void sli_orthonormalise(sli_threads *threads, double *values, size_t rows, size_t columns) {
    vector_set set = {values, columns, rows, 1, columns};
    if (rows <= columns) set = (vector_set){values, rows, columns, columns, 1};
    const int count = sli_threads_count(threads), shares = count >= 4 ? 4 : count >= 2 ? 2 : 1;
    for (size_t v = 0; v < set.count; v += BLOCK) {
        bool again = true;
        for (int pass = 0; pass < 2 && again; pass++) {
            double lost[BLOCK] = {0}, g[BLOCK * BLOCK], inverse[BLOCK * BLOCK];
            projection p = {&set, v, BLOCK / (size_t)shares, lost};
            sli_threads_for(threads, shares, project, &p);
            products(&set, v, v, BLOCK, g);
            again = invert(g, lost, inverse);
            combine(&set, v, v, BLOCK, inverse, false);
        }
    }
}
