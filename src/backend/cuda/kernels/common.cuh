/* What kernel files share: launch sizes, vectors of floats, sums over a warp and a block in a fixed order. */
#ifndef SLI_KERNELS_COMMON_CUH
#define SLI_KERNELS_COMMON_CUH

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include "backend/cuda/runtime/functions.h"

enum { SLI_THREADS = 256 }; /* of a block, where a kernel has no reason for another number */

/* Blocks for `items`, one a thread, at most `most`: kernels over elements go on in strides of the grid. */
static inline unsigned sli_blocks(size_t items, size_t threads = SLI_THREADS, size_t most = 8192) {
    const size_t blocks = (items + threads - 1) / threads;
    const size_t fewer = blocks < most ? blocks : most;
    return (unsigned)(fewer > 0 ? fewer : 1);
}

/* N floats in one access. */
template <int N> struct alignas(4 * N) sli_pack { float v[N]; };
template <int N> __device__ __forceinline__ sli_pack<N> sli_load(const float *from, size_t item) {
    return reinterpret_cast<const sli_pack<N> *>(from)[item];
}
template <int N> __device__ __forceinline__ void sli_store(float *to, size_t item, const sli_pack<N> &value) {
    reinterpret_cast<sli_pack<N> *>(to)[item] = value;
}
/* NULL counts as aligned. */
static inline bool sli_aligned(const void *pointer) {
    return (reinterpret_cast<uintptr_t>(pointer) & 15) == 0;
}

/* a / b, in 32 bits where both fit. */
__device__ __forceinline__ size_t sli_divide(size_t a, size_t b) {
    if ((a | b) >> 32) return a / b;
    return (uint32_t)a / (uint32_t)b;
}

/* First item and stride of a thread in a loop over the grid. */
__device__ __forceinline__ size_t sli_first() {
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ size_t sli_stride() {
    return (size_t)gridDim.x * blockDim.x;
}

/* Sum over the threads of each group of `lanes` (a power of two, at most 32) in all of them, in a fixed order. All 32
 * threads of the warp must call. */
template <typename T> __device__ __forceinline__ T sli_warp_sum(T value, int lanes = 32) {
    for (int other = lanes / 2; other > 0; other /= 2) value += __shfl_xor_sync(0xffffffffu, value, other);
    return value;
}
/* Sum over the block in thread 0, in a fixed order; `shared` holds one T a warp and is free again after the next barrier. */
template <typename T> __device__ __forceinline__ T sli_block_sum(T value, T *shared) {
    const int warps = (blockDim.x + 31) / 32, lane = threadIdx.x % 32;
    value = sli_warp_sum(value);
    if (lane == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x >= 32) return value;
    return sli_warp_sum(lane < warps ? shared[lane] : T(0));
}

/* Begins a row's function: false if the queue has failed before. */
static inline bool sli_begin(const sli_call *call, sli_phase phase) {
    if (sli_cuda_failed(call->queue)) return false;
    sli_cuda_phase(call->queue, phase);
    return true;
}
static inline size_t sli_call_steps(const sli_call *call) {
    return (size_t)(call->problem.steps > 0 ? call->problem.steps : 1);
}
static inline size_t sli_call_rows(const sli_call *call) {
    return sli_call_steps(call) * (size_t)call->problem.batch;
}
static inline bool sli_accumulates(const sli_call *call, int index) {
    return (call->accumulate >> index) & 1u;
}
/* d_in[index] of `floats`: = 0, or nothing where it accumulates or is not wanted. */
static inline void sli_give_zero(const sli_call *call, int index, size_t floats) {
    if (!call->d_in[index] || sli_accumulates(call, index) || floats == 0) return;
    (void)sli_cuda_put(call->queue, sli_cuda_stream(call->queue), call->d_in[index], NULL, floats * sizeof(float));
}

#endif
