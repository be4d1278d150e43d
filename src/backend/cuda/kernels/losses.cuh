/* What the losses share: which rows count, and adding the rows' losses to the metrics. */
#ifndef SLI_KERNELS_LOSSES_CUH
#define SLI_KERNELS_LOSSES_CUH

#include "backend/cuda/kernels/common.cuh"
#include "backend/cuda/losses_layout.h"

/* Rows of [t][b] that lengths and mask leave in. */
struct sli_valid_rows {
    const int32_t *lengths; /* [b] or NULL */
    const uint8_t *mask;    /* [t][b] or NULL */
    size_t batch;
    int t0;
};
static inline sli_valid_rows sli_valid_rows_of(const sli_call *call) {
    const sli_mask kind = call->problem.mask;
    sli_valid_rows valid;
    valid.lengths = kind == SLI_MASK_LENGTHS ? (const int32_t *)call->in[SLI_LOSS_LENGTHS] : NULL;
    valid.mask = kind != SLI_MASK_NONE && kind != SLI_MASK_LENGTHS ? (const uint8_t *)call->in[SLI_LOSS_MASK] : NULL;
    valid.batch = (size_t)call->problem.batch;
    valid.t0 = call->t0;
    return valid;
}
__device__ __forceinline__ bool sli_is_valid(const sli_valid_rows &valid, size_t row) {
    if (valid.mask) return valid.mask[row] != 0;
    if (!valid.lengths) return true;
    const size_t step = sli_divide(row, valid.batch);
    return valid.t0 + (int64_t)step < valid.lengths[row - step * valid.batch];
}

/* d loss / d loss_sum, times the scale that f16 gradients carry. */
__device__ __forceinline__ double sli_loss_factor(const sli_scalars *scalars, const sli_scaling *scaling) {
    return scalars->loss_scale * (scaling ? scaling->scale : 1.0);
}

/* What every loss is given. */
struct sli_loss_args {
    const float *z;
    float *dz;
    sli_row_loss *losses;
    sli_valid_rows valid;
    const sli_scalars *scalars;
    const sli_scaling *scaling;
    size_t rows;
    int width, lanes; /* elements of a row; threads that share it */
    bool add;         /* dz += */
};
static inline void sli_loss_fill(const sli_call *call, sli_loss_args *a) {
    a->z = (const float *)call->in[SLI_LOSS_Z];
    a->dz = (float *)call->d_in[SLI_LOSS_Z];
    a->losses = (sli_row_loss *)call->scratch;
    a->valid = sli_valid_rows_of(call);
    a->scalars = call->scalars;
    a->scaling = call->scaling;
    a->rows = sli_call_rows(call);
    a->width = call->problem.units;
    a->lanes = sli_loss_shape_of(a->width).lanes;
    a->add = sli_accumulates(call, SLI_LOSS_Z);
}

/* metrics += the rows' losses, [t][b] in call->scratch, in a fixed order (losses.cu). */
void sli_losses_add(const sli_call *call);

#endif
