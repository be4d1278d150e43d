/* cuda:step: what its kernels share. */
#ifndef SLI_CUDA_STEP_DEVICE_CUH
#define SLI_CUDA_STEP_DEVICE_CUH

#include "backend/cuda/kernels/step.cuh"
#include "backend/cuda/kernels/step_memory.cuh"
#include "cell/activations.h"

enum { STEP_THREADS = 128 };

/* Waits for the launch before this one, where it was launched to overlap with it. What an older launch wrote may be read
 * before. */
static __device__ __forceinline__ void step_wait() {
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
}

/* Steps launched after this one may take their place on the GPU; what this one writes they await themselves. */
static __device__ __forceinline__ void step_let_next_in() {
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/* The V units of a thread begin at `j`, its rows at `row`, in strides of `step_row_stride`. */
template <int V> static __device__ __forceinline__ int step_unit() {
    return (int)(blockIdx.x * blockDim.x + threadIdx.x) * V;
}
static __device__ __forceinline__ int step_row() {
    return (int)(blockIdx.y * blockDim.y + threadIdx.y);
}
static __device__ __forceinline__ int step_row_stride() {
    return (int)(gridDim.y * blockDim.y);
}

/* What wide steps read lies by rows of the batch, then by four units: blocks are of few units and many rows, so that lanes fill what they write (with
 * a row a warp training of LSTM of 4096 units and 128 rows took 4% longer, with 2 and 8 threads across 3 and 1%: wide_h100_2026-11-26.txt). */
static inline sli_step_grid step_cells_grid(const step_way *way, int vector) {
    enum { ACROSS = 4 };
    sli_step_grid grid = sli_step_grid_of(way->s.H, way->s.B, vector);
    if (way->wide.rows == 0 || grid.bx <= ACROSS) return grid;
    grid.gx *= grid.bx / ACROSS;
    grid.by *= grid.bx / ACROSS;
    grid.bx = ACROSS;
    const unsigned high = step_blocks_of(way->s.B, grid.by);
    if (high < grid.gy) grid.gy = high; /* else as many as a grid may have */
    return grid;
}

/* tanh and sigmoid, no option. */
static inline bool step_plain(const step_common *k) {
    return k->options == 0 && k->act == CELL_ACT_TANH && k->gate_act == CELL_ACT_SIGMOID && !k->flags && !k->factor;
}

#endif
