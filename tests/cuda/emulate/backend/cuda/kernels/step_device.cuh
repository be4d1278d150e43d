/* In place of src/backend/cuda/kernels/step_device.cuh: host code of cuda:step alone: nothing is launched. */
#ifndef SLI_CUDA_STEP_DEVICE_CUH
#define SLI_CUDA_STEP_DEVICE_CUH

#include "backend/cuda/kernels/step.cuh"

#define __global__
#define __launch_bounds__(...)
#define __grid_constant__
static const dim3 threadIdx, blockIdx, blockDim;

enum { STEP_THREADS = 128 };

template <typename ARGS>
static void sli_step_launch(const step_way *, void (*)(ARGS), const sli_step_grid *, const ARGS *, bool, const char *,
                            size_t = 0) {
}

#endif
