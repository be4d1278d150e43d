/* cuda:bce and cuda:mse, and the sum of the rows' losses. Losses are computed and added up in double: `lanes` threads a row,
 * then one block over the rows. */
#include "backend/cuda/kernels/losses.cuh"

enum { ADD_THREADS = 1024 };

static_assert(sizeof(sli_row_loss) == sizeof(int4), "losses are read in one access each");

__global__ void __launch_bounds__(ADD_THREADS)
    losses_add(const sli_row_loss *losses, sli_loss_pieces pieces, sli_metrics *metrics) {
    sli_losses_add(losses, pieces, metrics);
}

void sli_losses_add_all(const sli_call *call, const sli_loss_args *a) {
    if (a->metrics || call->recompute) return;
    losses_add<<<1, ADD_THREADS, 0, sli_cuda_stream(call->queue)>>>(a->losses, a->pieces, call->metrics);
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
    if (lane == 0 && row < a.rows) {
        sli_row_loss one;
        one.loss = loss;
        one.counts = valid ? a.width : 0;
        one.correct = correct;
        a.losses[row] = one;
    }
    sli_losses_finish(a);
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
    sli_losses_add_all(call, &a);
}

extern "C" void sli_gpu_loss_backward(const sli_call *call) {
    const element_loss a = element_loss_of(call);
    if (!a.dz || a.rows == 0 || !sli_begin(call, SLI_PHASE_SOFTMAX)) return;
    element_gradients<<<sli_blocks(a.rows * a.width), SLI_THREADS, 0, sli_cuda_stream(call->queue)>>>(a);
    SLI_LAUNCHED(call->queue, "element_gradients");
}
