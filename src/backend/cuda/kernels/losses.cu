/* cuda:bce and cuda:mse, and the sum of the rows' losses. Losses are computed and added up in double: `lanes` threads a row,
 * then one block over the rows. */
#include "backend/cuda/kernels/losses.cuh"

/* ----------------------------------------------------------------------------------------------------- metrics --
 * One block: each warp sums a piece of at most SLI_LOSS_PIECE rows, then one thread a metric adds the pieces in the order
 * of time. */
enum { ADD_THREADS = 1024, ADD_PIECES = ADD_THREADS / 32 };

__global__ void __launch_bounds__(ADD_THREADS)
    losses_add(const sli_row_loss *losses, sli_loss_pieces pieces, sli_metrics *metrics) {
    __shared__ double sums[ADD_PIECES][3];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    double *metric = threadIdx.x == 0   ? &metrics->loss_sum
                     : threadIdx.x == 1 ? &metrics->count
                     : threadIdx.x == 2 ? &metrics->correct
                                        : NULL;
    double total = metric ? *metric : 0;
    for (size_t piece = 0; piece < pieces.pieces; piece += ADD_PIECES) {
        double loss = 0, counts = 0, correct = 0;
        if (piece + warp < pieces.pieces) {
            size_t row, end;
            sli_loss_piece(&pieces, piece + warp, &row, &end);
#pragma unroll 4
            for (row += lane; row < end; row += 32) {
                const sli_row_loss one = losses[row];
                loss += one.loss;
                counts += one.counts;
                correct += one.correct;
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
        for (int k = 0; metric && k < ADD_PIECES && piece + k < pieces.pieces; k++) total += sums[k][threadIdx.x];
        __syncthreads();
    }
    if (metric) *metric = total;
}

void sli_losses_add(const sli_call *call) {
    const sli_loss_pieces pieces = sli_loss_pieces_of(&call->problem, call->chunk);
    losses_add<<<1, ADD_THREADS, 0, sli_cuda_stream(call->queue)>>>((const sli_row_loss *)call->scratch, pieces,
                                                                    call->metrics);
    SLI_LAUNCHED(call->queue, "losses_add");
}

/* ------------------------------------------------------------------------------------------ losses by elements -- */
struct element_loss : sli_loss_args {
    const float *y;
    bool squared;
};

/* max(z, 0) - z y + log(1 + exp(-|z|)), or (z - y)^2; `lanes` threads a row, a power of two that divides the warp or is the
 * whole block. */
__global__ void element_losses(element_loss a) {
    __shared__ double sums[32];
    __shared__ int counts[32];
    const size_t row = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / a.lanes;
    const int lane = threadIdx.x % a.lanes;
    double loss = 0;
    int correct = 0;
    const bool valid = row < a.rows && sli_is_valid(a.valid, row);
    for (int j = lane; valid && j < a.width; j += a.lanes) {
        const double z = (double)a.z[row * a.width + j], y = (double)a.y[row * a.width + j];
        if (a.squared) {
            loss += (z - y) * (z - y);
        } else {
            loss += (z > 0 ? z : 0) - z * y + log1p(exp(-fabs(z)));
            correct += (z > 0) == (y > 0.5);
        }
    }
    if (a.lanes > 32) {
        loss = sli_block_sum(loss, sums);
        correct = sli_block_sum(correct, counts);
    } else {
        loss = sli_warp_sum(loss, a.lanes);
        correct = sli_warp_sum(correct, a.lanes);
    }
    if (lane != 0 || row >= a.rows) return;
    sli_row_loss one;
    one.loss = loss;
    one.counts = valid ? a.width : 0;
    one.correct = correct;
    a.losses[row] = one;
}

/* dz = or += factor (sigmoid(z) - y), or factor 2 (z - y); 0 at masked steps and without targets. dz may be z. */
__global__ void element_gradients(element_loss a) {
    const double factor = sli_loss_factor(a.scalars, a.scaling);
    for (size_t i = sli_first(); i < a.rows * a.width; i += sli_stride()) {
        double value = 0;
        if (a.y && sli_is_valid(a.valid, sli_divide(i, a.width))) {
            const double z = (double)a.z[i], y = (double)a.y[i];
            value = factor * (a.squared ? 2 * (z - y) : 1 / (1 + exp(-z)) - y);
        }
        a.dz[i] = a.add ? a.dz[i] + (float)value : (float)value;
    }
}

static element_loss element_loss_of(const sli_call *call) {
    element_loss a;
    sli_loss_fill(call, &a);
    a.y = (const float *)call->in[SLI_LOSS_TARGET];
    a.squared = call->problem.op == SLI_OP_MSE;
    return a;
}

extern "C" void sli_gpu_loss_forward(const sli_call *call) {
    const element_loss a = element_loss_of(call);
    if (call->recompute || !a.y || a.rows == 0 || !sli_begin(call, SLI_PHASE_SOFTMAX)) return;
    const int threads = sli_loss_shape_of(a.width).threads;
    element_losses<<<sli_blocks(a.rows, threads / a.lanes, INT32_MAX), threads, 0, sli_cuda_stream(call->queue)>>>(a);
    SLI_LAUNCHED(call->queue, "element_losses");
    sli_losses_add(call);
}

extern "C" void sli_gpu_loss_backward(const sli_call *call) {
    const element_loss a = element_loss_of(call);
    if (!a.dz || a.rows == 0 || !sli_begin(call, SLI_PHASE_SOFTMAX)) return;
    element_gradients<<<sli_blocks(a.rows * a.width), SLI_THREADS, 0, sli_cuda_stream(call->queue)>>>(a);
    SLI_LAUNCHED(call->queue, "element_gradients");
}
