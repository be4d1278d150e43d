/* Sums over time whose D has four columns more than cuBLASLt's fast kernels take, 1500 units in 16 bits. What they take they
 * write into D itself; the four are added up here. */
#include "backend/cuda/runtime/narrow.h"
#include "backend/cuda/runtime/tiles.h"

template <bool bf16> static __device__ __forceinline__ float few_columns_wide(uint32_t bits) {
    if (bf16) return __uint_as_float(bits << 16);
    return sli_from_f16((uint16_t)bits);
}

#include "backend/cuda/runtime/few_columns.cuh"

/* D of fewer elements is moved out of a pad in the time that this kernel waits for multiprocessors beside other products: 300 units take 2 to 8% less
 * so, 1500 units 12% more (odd_sizes_h200_2026-11-27.txt). */
static const double MOST_MOVED = 2.7e6;

bool sli_few_columns_fit(const sli_cuda_product *p) {
    const bool narrow = p->math == SL_BF16 || p->math == SL_F16;
    const bool shape = !p->narrow_d && p->a.transposed && !p->b.transposed && p->n > 8 && p->n % 8 == FEW_COLUMNS;
    if ((double)p->m * (double)p->n <= MOST_MOVED) return false;
    return narrow && shape && !p->bias && p->a.row % 2 == 0 && p->b.row % 8 == 0 && p->a.row >= (p->m + 1) / 2 * 2 &&
           sli_alignment(p->d, p->d_row, sizeof(float)) == 16 && sli_alignment(p->b.data, p->b.row, 2) == 16 &&
           sli_alignment(p->a.data, p->a.row, 2) >= 4;
}

/* Of few rows of D all multiprocessors (of an H200) have some: 16 rows a block, 64 of k at a time. Else rows are read in whole lines. */
template <bool bf16> static void launch(cudaStream_t stream, const few_columns_args *a) {
    const int64_t spread = 132 * 16;
    const unsigned threads = 32 * FEW_COLUMNS_WARPS;
    if (a->m <= spread)
        few_columns<bf16, 8><<<(unsigned)((a->m + 15) / 16), threads, 0, stream>>>(*a);
    else
        few_columns<bf16, 32><<<(unsigned)((a->m + 63) / 64), threads, 0, stream>>>(*a);
}

void sli_few_columns_multiply(sli_queue *queue, cudaStream_t stream, const sli_cuda_product *p) {
    const int64_t at = p->n - FEW_COLUMNS;
    const few_columns_args a = {(const uint16_t *)p->a.data,
                                (const uint16_t *)p->b.data + at,
                                (float *)sli_cuda_d_at(p, at),
                                p->m,
                                p->k,
                                p->a.row,
                                p->b.row,
                                p->d_row,
                                p->beta != 0.0f};
    if (p->math == SL_BF16)
        launch<true>(stream, &a);
    else
        launch<false>(stream, &a);
    (void)SLI_LAUNCHED(queue, "last columns of a product");
}
