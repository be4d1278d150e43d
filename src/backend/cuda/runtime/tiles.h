/* Our own matrix product: any size, stride and alignment. It multiplies where cuBLASLt is not there or refuses. */
#ifndef SLI_CUDA_TILES_H
#define SLI_CUDA_TILES_H

#include "backend/cuda/services.h"

void sli_tiles_multiply(sli_queue *queue, cudaStream_t stream, const sli_cuda_product *product);

#endif
