/* Products of a step on panels, for their tests: against a loop in double, and their bits whatever goes together. */
#ifndef PANELS_H
#define PANELS_H

#include "backend/panel_source.h"
#include "core/rounding.h"
#include "test.h"

enum { PANEL_ROWS = 48 };

typedef struct panels {
    const sli_panel_ops *ops;
    int k, vectors, panels, rows, columns; /* columns of all panels, padding included */
    float *weights;                        /* [k][columns], 0 where there is padding */
    float *operands;                       /* [rows][k] */
    float *packed, *tile;
    char *converted; /* operands as the product reads them; NULL: the floats */
    const void *row[PANEL_ROWS];
} panels;

static inline float *floats_new(size_t count, uint64_t *seed) {
    float *data = aligned_alloc(64, (count * sizeof *data + 63) / 64 * 64 + 64);
    REQUIRE(data != NULL);
    for (size_t i = 0; i < count; i++) data[i] = seed ? (float)test_random(seed) : NAN;
    return data;
}

/* See panel_source.h. */
static inline panels panels_new(const sli_panel_ops *ops, int rows, int count, int vectors, int k, int valid,
                                bool across) {
    uint64_t seed = test_seed;
    panels t = {.ops = ops, .k = k, .vectors = vectors, .panels = count, .rows = rows};
    const panel_shape shape = panel_shape_of(ops, k, vectors, count, valid, rows, across);
    t.columns = shape.columns;
    t.weights = floats_new((size_t)(k * t.columns), &seed);
    t.operands = floats_new((size_t)(rows * k), &seed);
    for (int i = 0; i < k; i++)
        for (int c = 0; c < t.columns; c++)
            if (panel_pads(&shape, c)) t.weights[i * t.columns + c] = 0;
    const size_t bytes = ops->panel_bytes(k, vectors);
    CHECK(bytes % 64 == 0);
    t.packed = floats_new(bytes * (size_t)count / sizeof(float), NULL);
    t.tile = floats_new((size_t)(rows * t.columns), NULL);
    float *turned = floats_new((size_t)(k * t.columns), NULL); /* [columns][k] */
    for (int c = 0; c < t.columns; c++)
        for (int i = 0; i < k; i++) turned[c * k + i] = t.weights[i * t.columns + c];
    for (int p = 0; p < count; p++) {
        const sli_panel_source source = panel_source(&shape, across ? turned : NULL, t.weights, p);
        ops->pack((char *)t.packed + (size_t)p * bytes, &source);
    }
    free(turned);
    for (int r = 0; r < rows; r++) t.row[r] = t.operands + r * k;
    if (ops->convert) {
        CHECK(ops->operand_bytes(k) % 64 == 0);
        t.converted = (char *)floats_new(ops->operand_bytes(k) * (size_t)rows / sizeof(float), NULL);
        for (int r = 0; r < rows; r++) {
            t.row[r] = t.converted + (size_t)r * ops->operand_bytes(k);
            ops->convert(t.converted + (size_t)r * ops->operand_bytes(k), t.operands + r * k, k);
        }
    }
    return t;
}

static inline void panels_free(panels *t) {
    free(t->weights);
    free(t->operands);
    free(t->packed);
    free(t->converted);
    free(t->tile);
}

static inline void panels_multiply(const panels *t, int first_row, int rows, int first_panel, int count, float *tile) {
    const sli_panel_product p = {.rows = rows,
                                 .panels = count,
                                 .vectors = t->vectors,
                                 .k = t->k,
                                 .a = t->row + first_row,
                                 .w = (const char *)t->packed +
                                      (size_t)first_panel * t->ops->panel_bytes(t->k, t->vectors),
                                 .tile = tile,
                                 .from_l2 = t->rows % 2 == 0};
    t->ops->product(&p);
}

/* Against a loop in double, of operands rounded to `dtype`. */
static inline void check_product(const panels *t, sl_dtype dtype) {
    const int width = t->vectors * t->ops->lanes;
    double worst = 0;
    panels_multiply(t, 0, t->rows, 0, t->panels, t->tile);
    for (int c = 0; c < t->columns; c++)
        for (int r = 0; r < t->rows; r++) {
            double sum = 0, size = 0;
            for (int i = 0; i < t->k; i++) {
                const double term = sli_round_to(dtype, (double)t->operands[r * t->k + i]) *
                                    sli_round_to(dtype, (double)t->weights[i * t->columns + c]);
                sum += term;
                size += fabs(term);
            }
            const float got = t->tile[(c / width * t->rows + r) * width + c % width];
            const double error = fabs(got - sum) / (1e-30 + size + 1e-6);
            if (!(error <= worst)) worst = error;
        }
    if (!(worst <= 1e-6 * (2 + 0.1 * t->k)))
        test_fail(__FILE__, __LINE__, "%d rows, %d panels of %d vectors, k %d: error %g", t->rows, t->panels,
                  t->vectors, t->k, worst);
}

/* One row and one panel at a time give the bits of all at once. */
static inline void check_bits(const panels *t) {
    const int width = t->vectors * t->ops->lanes;
    float *one = floats_new((size_t)width, NULL);
    for (int p = 0; p < t->panels; p++)
        for (int r = 0; r < t->rows; r++) {
            panels_multiply(t, r, 1, p, 1, one);
            if (memcmp(one, t->tile + (p * t->rows + r) * width, (size_t)width * sizeof *one) != 0)
                test_fail(__FILE__, __LINE__, "row %d of %d, panel %d of %d, %d vectors, k %d: other bits alone", r,
                          t->rows, p, t->panels, t->vectors, t->k);
        }
    free(one);
}

#endif
