/* Transposed copies of f32 matrices, for products that read them faster. */
#include <stdint.h>
#include "backend/cuda/services.h"

#include "backend/cuda/kernels/transpose.cuh"

extern "C" void sli_cuda_transpose(sli_queue *queue, cudaStream_t stream, const sli_cuda_transposition *each,
                                   int count) {
    const transpose_args args = transpose_args_of(each, count);
    const unsigned blocks = args.first[SLI_CUDA_TRANSPOSITIONS];
    if (blocks == 0 || sli_cuda_failed(queue)) return;
    transpose<<<blocks, TRANSPOSE_THREADS, 0, stream>>>(args);
    (void)SLI_LAUNCHED(queue, "transposition");
}
