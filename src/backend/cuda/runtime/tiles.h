/* Our own matrix products. */
#ifndef SLI_CUDA_TILES_H
#define SLI_CUDA_TILES_H

#include "backend/cuda/services.h"

/* Any size, stride and alignment: where cuBLASLt is not there or refuses. */
void sli_tiles_multiply(sli_queue *queue, cudaStream_t stream, const sli_cuda_product *product);
/* At most four rows, weights stored [n][k]. */
bool sli_few_rows_fit(const sli_cuda_product *product);
void sli_few_rows_multiply(sli_queue *queue, cudaStream_t stream, const sli_cuda_product *product);

/* Few rows of D, a few million multiply-adds: weights stored [n][k] in tf32, or [k][n] in 16 bits, too. */
bool sli_small_fit(const sli_cuda_product *product);
void sli_small_multiply(sli_queue *queue, cudaStream_t stream, const sli_cuda_product *product);

/* The last four columns of D = or += A^T B, of 16-bit operands, where n is a multiple of four and not of eight. */
bool sli_few_columns_fit(const sli_cuda_product *product);
void sli_few_columns_multiply(sli_queue *queue, cudaStream_t stream, const sli_cuda_product *product);

/* f32x3 on tensor cores, by three tf32 products in one: where cuBLASLt is there, it pays and there is scratch for it. */
bool sli_split_fits(const sli_queue *queue, const sli_cuda_product *product);
void sli_split_multiply(sli_queue *queue, cudaStream_t stream, const sli_cuda_product *product);

/* The alignment in bytes that rows and the address have in common, at most 16. As the address of a later row of an
 * aligned tensor has what its rows have, a segment of time that begins at another row is multiplied by the same algorithm. */
static inline uint32_t sli_alignment(const void *address, int64_t row, size_t element) {
    const uint64_t bits = (uint64_t)row * element | (uint64_t)(uintptr_t)address | 16;
    return (uint32_t)(bits & (~bits + 1));
}

#endif
