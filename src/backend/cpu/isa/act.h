/* Activations over arrays, chosen at run time: one loop of vector code for each. */
#ifndef SLI_ISA_ACT_H
#define SLI_ISA_ACT_H

#include "cell/activations.h"

#define EACH_ACT(X)             \
    X(CELL_ACT_TANH)            \
    X(CELL_ACT_SIGMOID)         \
    X(CELL_ACT_RELU)            \
    X(CELL_ACT_HARD_SIGMOID)    \
    X(CELL_ACT_HARD_SIGMOID_K2) \
    X(CELL_ACT_SOFTSIGN)

/* x[n] = act(x) */
CELL_FN void act_each(int act, size_t n, float *restrict x) {
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

/* d[n] *= act'(.), from y = act(.) */
CELL_FN void act_slope_each(int act, size_t n, const float *restrict y, float *restrict d) {
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

#endif
