/* The largest of all weights, which their scale is chosen by (persist_scales.cuh): of infinities and NaNs no scale makes anything else than NaN. */
#include "backend/cuda/kernels/persist_host.cuh"
#include "backend/cuda/kernels/persist_scales.cuh"

enum { MEASURE_THREADS = 256, MEASURE_FLOATS = 8 };
typedef struct measure_args {
    const float *from;
    int64_t count;
    float *to; /* = [PERSIST_LARGEST], the largest of a block each */
} measure_args;

static __device__ __forceinline__ float measure_larger(float largest, float x) {
    return fabsf(x) <= 3.402823466e38f ? fmaxf(largest, fabsf(x)) : largest;
}

static __global__ void __launch_bounds__(MEASURE_THREADS) persist_measure(const __grid_constant__ measure_args a) {
    __shared__ float of_warp[MEASURE_THREADS / 32];
    const int64_t all = (int64_t)gridDim.x * MEASURE_THREADS, first = (int64_t)blockIdx.x * MEASURE_THREADS + threadIdx.x;
    float largest = 0.0f;
    for (int64_t at = first; at < a.count; at += MEASURE_FLOATS * all) { /* neighbours read neighbouring floats, a thread asks for all at once */
        float x[MEASURE_FLOATS];
#pragma unroll
        for (int i = 0; i < MEASURE_FLOATS; i++) x[i] = a.from[at + i * all < a.count ? at + i * all : at];
#pragma unroll
        for (int i = 0; i < MEASURE_FLOATS; i++) largest = measure_larger(largest, x[i]);
    }
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, apart));
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = largest;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int i = 1; i < MEASURE_THREADS / 32; i++) largest = fmaxf(largest, of_warp[i]);
    a.to[blockIdx.x] = largest;
}

void sli_persist_measure(const step_way *way, const float *from, int64_t count, float *to) {
    const measure_args a = {from, count, to};
    const sli_step_grid grid = {PERSIST_LARGEST, 1, MEASURE_THREADS, 1};
    sli_step_launch(way, persist_measure, &grid, &a, false, "launch of the largest number");
}
