/* Softmax cross-entropy: what its own kernels and those that make its gradient with an operand of it (convert.cu) share. */
#ifndef SLI_KERNELS_SOFTMAX_CUH
#define SLI_KERNELS_SOFTMAX_CUH

#include "backend/cuda/kernels/losses.cuh"

struct xent_args : sli_loss_args {
    const int32_t *labels; /* NULL: no row counts */
    float *saved;          /* [rows][SLI_XENT_SAVED]; forward: NULL without backward */
};
static inline xent_args xent_args_of(const sli_call *call) {
    xent_args a;
    sli_loss_fill(call, &a);
    a.labels = (const int32_t *)call->in[SLI_LOSS_TARGET];
    a.saved = call->problem.train ? (float *)call->saved : NULL;
    return a;
}

/* -1 where the row does not count. */
__device__ __forceinline__ int label_of(const xent_args &a, size_t row) {
    if (row >= a.rows || !a.labels || !sli_is_valid(a.valid, row)) return -1;
    return a.labels[row];
}

/* dz = factor (exp(z - largest) / sum - onehot(label)); 0 where the row does not count. scale = factor / sum. */
struct xent_row {
    int label;
    float largest, scale, factor;
};
__device__ __forceinline__ xent_row xent_row_of(const xent_args &a, size_t row) {
    xent_row of = {label_of(a, row), 0.0f, 0.0f, (float)sli_loss_factor(a.scalars, a.scaling)};
    if (of.label < 0) return of;
    of.largest = a.saved[row * SLI_XENT_SAVED];
    of.scale = a.saved[row * SLI_XENT_SAVED + 1] * of.factor;
    return of;
}
__device__ __forceinline__ float xent_gradient_of(const xent_row &of, float z, int j) {
    const float value = expf(of.label >= 0 ? z - of.largest : -INFINITY) * of.scale; /* nothing branches around it */
    return j == of.label ? value - of.factor : value;
}

/* dz of rows [first, first + rows) of the loss's call, as its own backward gives it. */
void sli_xent_give(sli_queue *queue, const sli_call *loss, size_t first, size_t rows);

#endif
