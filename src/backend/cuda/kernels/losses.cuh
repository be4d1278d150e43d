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
    sli_loss_pieces pieces;
    sli_metrics *metrics; /* += the rows' losses by the launch's last block; NULL: not by this launch */
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
    a->pieces = sli_loss_pieces_of(&call->problem, call->chunk);
    a->metrics = call->recompute || a->pieces.pieces > SLI_LOSS_FEW ? NULL : call->metrics;
}

/* ----------------------------------------------------------------------------------------------------- metrics --
 * metrics += the losses, [t][b], by one block: each warp sums a piece of at most SLI_LOSS_PIECE rows, then one thread a metric adds the pieces in
 * the order of time. */
__device__ __forceinline__ void sli_losses_add(const sli_row_loss *losses, const sli_loss_pieces &pieces, sli_metrics *metrics) {
    __shared__ double sums[32][3];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = (int)blockDim.x / 32;
    double *metric = threadIdx.x == 0   ? &metrics->loss_sum
                     : threadIdx.x == 1 ? &metrics->count
                     : threadIdx.x == 2 ? &metrics->correct
                                        : NULL;
    double total = metric ? *metric : 0;
    for (size_t piece = 0; piece < pieces.pieces; piece += warps) {
        double loss = 0, counts = 0, correct = 0;
        if (piece + warp < pieces.pieces) {
            size_t row, end;
            sli_loss_piece(&pieces, piece + warp, &row, &end);
#pragma unroll 4
            for (row += lane; row < end; row += 32) {
                /* from L2, where other blocks of this launch have put them */
                const int4 one = __ldcg(reinterpret_cast<const int4 *>(losses + row));
                loss += __hiloint2double(one.y, one.x);
                counts += one.z;
                correct += one.w;
            }
        }
        loss = sli_warp_sum(loss);
        counts = sli_warp_sum(counts);
        correct = sli_warp_sum(correct);
        if (lane == 0) {
            sums[warp][0] = loss;
            sums[warp][1] = counts;
            sums[warp][2] = correct;
        }
        __syncthreads();
        for (int k = 0; metric && k < warps && piece + k < pieces.pieces; k++) total += sums[k][threadIdx.x];
        __syncthreads();
    }
    if (metric) *metric = total;
}

/* Behind a block's rows, by all of its threads: the last block to come adds up what all have written. */
__device__ __forceinline__ void sli_losses_finish(const sli_loss_args &a) {
    __shared__ bool last;
    if (!a.metrics) return;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd((unsigned long long *)&a.metrics->blocks, 1ull) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    sli_losses_add(a.losses, a.pieces, a.metrics);
    if (threadIdx.x == 0) a.metrics->blocks = 0;
}

/* Of so many rows that one block of a launch of rows would take long: a launch of its own (losses.cu). */
void sli_losses_add_all(const sli_call *call, const sli_loss_args *a);

#endif
