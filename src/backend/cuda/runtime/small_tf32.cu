/* Small products in tf32: one launch of a few microseconds, where cuBLASLt's cut k in pieces that a second one adds up (20 x 512 x 100:
 * 2.8 and 2.5 us, 25 x 2048 x 512: 4.4 and 2.3, traced on an H200, 2026-11-22). */
#include <stdint.h>

#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/runtime/tiles.h"

#include "backend/cuda/runtime/small_tf32.cuh"

/* Of more rows each of B would be read again for each 32; of 1600 cuBLASLt's take half the time. */
enum { MOST_ROWS = 4 * SMALL_M, MOST_K = 1 << 16 };
static const double MOST_PRODUCTS = 48e6;

bool sli_small_tf32_fit(const sli_cuda_product *p) {
    const bool shape = p->math == SL_TF32 && !p->a.transposed && p->b.transposed && p->k > 0 && p->k % 4 == 0;
    return shape && p->m <= MOST_ROWS && p->k <= MOST_K && (double)p->m * (double)p->n * (double)p->k <= MOST_PRODUCTS &&
           sli_alignment(p->a.data, p->a.row, sizeof(float)) == 16 &&
           sli_alignment(p->b.data, p->b.row, sizeof(float)) == 16;
}

template <int tiles> static void launch(cudaStream_t stream, const small_tf32_args *a) {
    const int64_t width = SMALL_WARPS / a->warps_k * SMALL_N, rows = tiles * SMALL_M;
    const dim3 blocks((unsigned)((a->n + width - 1) / width), (unsigned)((a->m + rows - 1) / rows));
    if (a->k <= a->warps_k * SMALL_K)
        small_tf32<tiles, 1><<<blocks, 32 * SMALL_WARPS, 0, stream>>>(*a);
    else
        small_tf32<tiles, 4><<<blocks, 32 * SMALL_WARPS, 0, stream>>>(*a);
}

void sli_small_tf32_multiply(sli_queue *queue, cudaStream_t stream, const sli_cuda_product *p) {
    small_tf32_args a = {};
    a.a = (const float *)p->a.data;
    a.b = (const float *)p->b.data;
    a.d = p->d;
    a.bias = p->bias;
    a.m = p->m;
    a.n = p->n;
    a.k = p->k;
    a.a_row = p->a.row;
    a.b_row = p->b.row;
    a.d_row = p->d_row;
    a.add = p->beta != 0.0f;
    a.warps_k = 1;
    while (a.warps_k < SMALL_WARPS && a.warps_k * SMALL_K < p->k) a.warps_k *= 2;
    if (p->m <= SMALL_M)
        launch<1>(stream, &a);
    else if (p->m <= 2 * SMALL_M)
        launch<2>(stream, &a);
    else
        launch<4>(stream, &a);
    (void)SLI_LAUNCHED(queue, "small product");
}
