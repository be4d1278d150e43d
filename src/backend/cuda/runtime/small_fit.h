/* Which products are small (small.cuh): plain C++, for the host. */
#ifndef SLI_CUDA_SMALL_FIT_H
#define SLI_CUDA_SMALL_FIT_H

#include "backend/cuda/runtime/tiles.h"

/* Of more rows each of B would be read again for each 32; of 1600 cuBLASLt's take half the time. */
enum {
    SMALL_MOST_ROWS = 32,
    SMALL_MOST_K = 1 << 16,
    SMALL_LEAST_FLOATS = 5 /* rows: of fewer another kernel reads operands (few_rows.cu) */
};
/* SMALL_MOST_DOWN: of 25 rows of 256 units a call took in tf32 0.5% longer with it, in 16 bits 9%; of 32 rows of 64 inputs 1.1% less, and 1.7% longer
 * (tails_h200_2026-11-27.txt, 5). */
static const double SMALL_MOST = 48e6, SMALL_MOST_DOWN = 2e6;

static bool small_fits(const sli_cuda_product *p) {
    const bool narrow = p->math == SL_BF16 || p->math == SL_F16, down = !p->b.transposed;
    const size_t element = sli_cuda_operand_bytes(p->math), of_a = p->a_floats ? sizeof(float) : element;
    const double products = (double)p->m * (double)p->n * (double)p->k;
    if (p->a.transposed || p->k <= 0 || p->k % 4 != 0 || p->k > SMALL_MOST_K || p->m > SMALL_MOST_ROWS) return false;
    if (sli_alignment(p->a.data, p->a.row, of_a) < 4 * of_a) return false;
    /* 16 bits: whole eights of columns, and W x whose x is an operand, have kernels of cuBLASLt that are as fast. */
    if (down) return !p->a_floats && (p->math == SL_TF32 || (narrow && p->n % 8 != 0)) && products <= SMALL_MOST_DOWN;
    const bool given = p->a_floats || p->a.row % 8 != 0; /* as the caller has it, which else would have to be copied */
    const bool there = p->math == SL_TF32 || (narrow && given && p->m >= SMALL_LEAST_FLOATS);
    return there && products <= SMALL_MOST && sli_alignment(p->b.data, p->b.row, element) == 16;
}

#endif
