/* Functions of the rows, defined in kernels/; plugin.cu puts them into the table. They launch work into the queue's stream
 * and read nothing that lives on the device. */
#ifndef SLI_CUDA_FUNCTIONS_H
#define SLI_CUDA_FUNCTIONS_H

#include "backend/cuda/services.h"

extern "C" {
#define SLI_GPU_DECLARE(name) void sli_gpu_##name(const sli_call *call);
SLI_CUDA_FUNCTIONS(SLI_GPU_DECLARE)
#undef SLI_GPU_DECLARE
}

#endif
