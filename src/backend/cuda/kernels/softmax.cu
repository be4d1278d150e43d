/* cuda:xent: softmax cross-entropy. Forward goes over the logits once: largest logit and sum of exponentials at the same time;
 * of each row these two are saved. Backward goes over them once more and may write the gradient over them. Rows of few
 * logits share a warp, rows of many have a block.
 * Which thread sums which logits depends on the width alone, so segments of time change no bit. */
#include "backend/cuda/kernels/softmax.cuh"

enum { WIDE_AHEAD = 4 }; /* packs that a thread of a wide row has on their way */

/* ----------------------------------------------------------------------------------------------------- forward -- */
/* AHEAD packs of a row from number `first` on, `lanes` apart: all are asked for before the first is looked at. */
template <int N, int AHEAD>
__device__ __forceinline__ void see_packs(const float *z, int first, int lanes, int label, float labelled, sli_softmax *s) {
    sli_pack<N> logits[AHEAD];
    float largest = -INFINITY;
#pragma unroll
    for (int k = 0; k < AHEAD; k++) logits[k] = sli_load<N>(z, first + k * lanes);
#pragma unroll
    for (int k = 0; k < AHEAD; k++)
#pragma unroll
        for (int n = 0; n < N; n++) largest = fmaxf(largest, logits[k].v[n]);
    sli_softmax_raise(s, largest);
#pragma unroll
    for (int k = 0; k < AHEAD; k++)
#pragma unroll
        for (int n = 0; n < N; n++) sli_softmax_count(s, logits[k].v[n], (first + k * lanes) * N + n, label, labelled);
}

/* Packs lane, lane + lanes, ... of a row's `width / N` packs. */
template <int N, int AHEAD>
__device__ __forceinline__ sli_softmax see_row(const float *z, int width, int lane, int lanes, int label) {
    sli_softmax s = {-INFINITY, 0.0f, 0};
    const float labelled = z[label];
    const int packs = width / N;
    int i = lane;
    for (; i + (AHEAD - 1) * lanes < packs; i += AHEAD * lanes) see_packs<N, AHEAD>(z, i, lanes, label, labelled, &s);
    for (; AHEAD > 1 && i < packs; i += lanes) see_packs<N, 1>(z, i, lanes, label, labelled, &s);
    return s;
}

__device__ __forceinline__ sli_softmax join_lanes(sli_softmax s, int lanes) {
    for (int apart = lanes / 2; apart > 0; apart /= 2) {
        sli_softmax other;
        other.largest = __shfl_xor_sync(0xffffffffu, s.largest, apart);
        other.sum = __shfl_xor_sync(0xffffffffu, s.sum, apart);
        other.beaten = __shfl_xor_sync(0xffffffffu, s.beaten, apart);
        sli_softmax_join(&s, &other);
    }
    return s;
}

/* loss = log(sum of exp(z - largest)) + largest - z[label] */
__device__ __forceinline__ void write_row(const xent_args &a, size_t row, int label, const sli_softmax &s) {
    sli_row_loss one = {0, 0, 0};
    if (label >= 0) {
        one.loss = log((double)s.sum) + (double)s.largest - (double)a.z[row * a.width + label];
        one.counts = 1;
        one.correct = !s.beaten;
        if (a.saved) {
            a.saved[row * SLI_XENT_SAVED] = s.largest;
            a.saved[row * SLI_XENT_SAVED + 1] = 1.0f / s.sum;
        }
    }
    a.losses[row] = one;
}

template <int N> __global__ void __launch_bounds__(SLI_THREADS) xent_narrow(xent_args a) {
    const size_t row = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / a.lanes;
    const int lane = threadIdx.x % a.lanes, label = label_of(a, row);
    sli_softmax s = {-INFINITY, 0.0f, 0};
    if (label >= 0) s = see_row<N, 1>(a.z + row * a.width, a.width, lane, a.lanes, label);
    s = join_lanes(s, a.lanes);
    if (lane == 0 && row < a.rows) write_row(a, row, label, s);
}

/* A block a row; registers for so many blocks at once that few wait for others to end. */
template <int N, int THREADS, int BLOCKS> __global__ void __launch_bounds__(THREADS, BLOCKS) xent_wide(xent_args a) {
    __shared__ sli_softmax warps[32];
    const size_t row = blockIdx.x;
    const int label = label_of(a, row), lane = threadIdx.x % 32;
    sli_softmax s = {-INFINITY, 0.0f, 0};
    if (label >= 0) {
        s = join_lanes(see_row<N, WIDE_AHEAD>(a.z + row * a.width, a.width, threadIdx.x, THREADS, label), 32);
        if (lane == 0) warps[threadIdx.x / 32] = s;
        __syncthreads();
        if (threadIdx.x < 32) {
            s = {-INFINITY, 0.0f, 0};
            if (lane < THREADS / 32) s = warps[lane];
            s = join_lanes(s, 32);
        }
    }
    if (threadIdx.x == 0) write_row(a, row, label, s);
}

template <int THREADS, int BLOCKS> static void launch_wide(const xent_args &a, bool vectors, cudaStream_t stream) {
    if (vectors)
        xent_wide<4, THREADS, BLOCKS><<<(unsigned)a.rows, THREADS, 0, stream>>>(a);
    else
        xent_wide<1, THREADS, BLOCKS><<<(unsigned)a.rows, THREADS, 0, stream>>>(a);
}

extern "C" void sli_gpu_xent_forward(const sli_call *call) {
    const xent_args a = xent_args_of(call);
    if (!a.labels || a.rows == 0 || !sli_begin(call, SLI_PHASE_SOFTMAX)) return;
    const sli_loss_shape shape = sli_loss_shape_of(a.width);
    const unsigned blocks = sli_blocks(a.rows, shape.threads / shape.lanes, INT32_MAX);
    const bool vectors = a.width % 4 == 0 && sli_aligned(a.z);
    const cudaStream_t stream = sli_cuda_stream(call->queue);
    if (a.lanes <= 32 && vectors)
        xent_narrow<4><<<blocks, shape.threads, 0, stream>>>(a);
    else if (a.lanes <= 32)
        xent_narrow<1><<<blocks, shape.threads, 0, stream>>>(a);
    else if (shape.threads == SLI_THREADS)
        launch_wide<SLI_THREADS, 6>(a, vectors, stream);
    else
        launch_wide<1024, 1>(a, vectors, stream);
    SLI_LAUNCHED(call->queue, "xent");
    if (!call->recompute) sli_losses_add(call);
}

/* ---------------------------------------------------------------------------------------------------- backward --
 * dz = or += the gradient of rows from `first` on. dz may be z: each thread writes what it has read. Blocks with the same x share the rows'
 * logits. */
template <int N> __global__ void __launch_bounds__(1024, 1) xent_gradient(xent_args a, size_t first) {
    const size_t row = first + ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / a.lanes;
    if (row >= a.rows) return;
    const xent_row of = xent_row_of(a, row);
    const float *z = a.z + row * a.width;
    float *dz = a.dz + row * a.width;
    const int begin = blockIdx.y * a.lanes + threadIdx.x % a.lanes, stride = gridDim.y * a.lanes;
#pragma unroll 2
    for (int i = begin; i < a.width / N; i += stride) {
        sli_pack<N> value;
        if (of.label >= 0) value = sli_load<N>(z, i);
#pragma unroll
        for (int n = 0; n < N; n++) value.v[n] = xent_gradient_of(of, value.v[n], i * N + n);
        if (a.add) {
            const sli_pack<N> before = sli_load<N>(dz, i);
#pragma unroll
            for (int n = 0; n < N; n++) value.v[n] = before.v[n] + value.v[n];
        }
        sli_store<N>(dz, i, value);
    }
}

void sli_xent_give(sli_queue *queue, const sli_call *loss, size_t first, size_t rows) {
    xent_args a = xent_args_of(loss);
    if (!a.dz || rows == 0) return;
    a.rows = first + rows;
    const sli_loss_shape shape = sli_loss_shape_of(a.width);
    const dim3 blocks(sli_blocks(rows, shape.threads / shape.lanes, INT32_MAX),
                      sli_blocks((size_t)a.width, (size_t)shape.lanes * 16, 64));
    const cudaStream_t stream = sli_cuda_stream(queue);
    if (a.width % 4 == 0 && sli_aligned(a.z) && sli_aligned(a.dz))
        xent_gradient<4><<<blocks, shape.threads, 0, stream>>>(a, first);
    else
        xent_gradient<1><<<blocks, shape.threads, 0, stream>>>(a, first);
    (void)SLI_LAUNCHED(queue, "xent_gradient");
}

extern "C" void sli_gpu_xent_backward(const sli_call *call) {
    if (sli_begin(call, SLI_PHASE_SOFTMAX)) sli_xent_give(call->queue, call, 0, sli_call_rows(call));
}
