/* Activations and sums of rows of numbers; the mathematics is src/cell. */
#include "backend/cpu/isa/bf16.h"
#include "backend/cpu/isa/isa.h"
#include "backend/cpu/isa/vector.h"
#include "cell/activations.h"

#define EACH_ACT(X)             \
    X(CELL_ACT_TANH)            \
    X(CELL_ACT_SIGMOID)         \
    X(CELL_ACT_RELU)            \
    X(CELL_ACT_HARD_SIGMOID)    \
    X(CELL_ACT_HARD_SIGMOID_K2) \
    X(CELL_ACT_SOFTSIGN)

void ISA(act)(int act, size_t n, float *restrict x) {
    switch (act) {
#define X(A)                                                     \
    case A:                                                      \
        for (size_t i = 0; i < n; i++) x[i] = cell_act(A, x[i]); \
        break;
        EACH_ACT(X)
#undef X
    default:
        break;
    }
}

void ISA(act_slope)(int act, size_t n, const float *restrict y, float *restrict d) {
    switch (act) {
#define X(A)                                                            \
    case A:                                                             \
        for (size_t i = 0; i < n; i++) d[i] *= cell_act_slope(A, y[i]); \
        break;
        EACH_ACT(X)
#undef X
    default:
        break;
    }
}

void ISA(add)(size_t n, float *restrict to, const float *restrict from) {
    for (size_t i = 0; i < n; i++) to[i] += from[i];
}

void ISA(add_half)(size_t n, float *restrict to, const uint16_t *restrict from) {
    for (size_t i = 0; i < n; i++) to[i] += bf16_value(from[i]);
}

int ISA(one_hot)(int n, const float *x) {
    unsigned ones = 0, zeros = 0, at = 0; /* at: of many ones it is of no use, and may begin again at 0 */
    for (int i = 0; i < n; i++) {
        const unsigned one = x[i] == 1.0f;
        ones += one;
        zeros += x[i] == 0.0f;
        at += one * (unsigned)i;
    }
    return ones == 1 && zeros == (unsigned)n - 1 ? (int)at : -1;
}
