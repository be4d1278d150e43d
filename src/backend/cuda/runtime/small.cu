/* Small products: one launch of a few microseconds. In tf32 cuBLASLt's cut k in pieces that a second one adds up (20 x 512 x 100: 2.8 and 2.5 us, 25 x 2048 x 512: 4.4
 * and 2.3, traced on an H200, 2026-11-22); of 16 bits d x of few rows has few blocks and a long k (20 x 100 x 512: 6.8 us of four blocks, 2026-11-27). */
#include <stdint.h>

#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/runtime/narrow.h"
#include "backend/cuda/runtime/tiles.h"

static __device__ __forceinline__ float small_wide(float x) {
    return x;
}
static __device__ __forceinline__ float small_wide(sli_bf16 x) {
    return sli_wide(x);
}
static __device__ __forceinline__ float small_wide(sli_f16 x) {
    return sli_wide(x);
}

#include "backend/cuda/runtime/small.cuh"

/* Of more rows each of B would be read again for each 32; of 1600 cuBLASLt's take half the time. */
enum { MOST_ROWS = 4 * SMALL_M, MOST_K = 1 << 16 };
/* MOST_DOWN: of 25 rows of 256 units a call took in tf32 0.5% longer with it, in 16 bits 9%; of 32 rows of 64 inputs 1.1% less, and 1.7% longer
 * (tails_h200_2026-11-27.txt, 5). */
static const double MOST_PRODUCTS = 48e6, MOST_DOWN = 2e6;

bool sli_small_fit(const sli_cuda_product *p) {
    const bool narrow = p->math == SL_BF16 || p->math == SL_F16, down = !p->b.transposed;
    const size_t element = sli_cuda_operand_bytes(p->math);
    const double products = (double)p->m * (double)p->n * (double)p->k;
    if (p->a.transposed || p->k <= 0 || p->k % 4 != 0 || p->k > MOST_K || p->m > MOST_ROWS) return false;
    if (sli_alignment(p->a.data, p->a.row, element) < 4 * element) return false;
    /* 16 bits: whole eights of columns have kernels of cuBLASLt that are as fast. */
    if (down) return (p->math == SL_TF32 || (narrow && p->n % 8 != 0)) && products <= MOST_DOWN;
    return p->math == SL_TF32 && products <= MOST_PRODUCTS && sli_alignment(p->b.data, p->b.row, element) == 16;
}

template <class T, bool down, int tiles, int pieces> static void launch(cudaStream_t stream, const small_args *a) {
    const int64_t width = SMALL_WARPS / a->warps_k * SMALL_N, rows = tiles * SMALL_M;
    const dim3 blocks((unsigned)((a->n + width - 1) / width), (unsigned)((a->m + rows - 1) / rows));
    small_product<T, down, tiles, pieces><<<blocks, 32 * SMALL_WARPS, 0, stream>>>(*a);
}

template <class T, bool down, int tiles> static void launch_tiles(cudaStream_t stream, const small_args *a) {
    if (a->k <= a->warps_k * SMALL_K)
        launch<T, down, tiles, 1>(stream, a);
    else
        launch<T, down, tiles, 4>(stream, a);
}

template <class T, bool down> static void launch_rows(cudaStream_t stream, const small_args *a) {
    if (a->m <= SMALL_M)
        launch_tiles<T, down, 1>(stream, a);
    else if (a->m <= 2 * SMALL_M)
        launch_tiles<T, down, 2>(stream, a);
    else
        launch_tiles<T, down, 4>(stream, a);
}

void sli_small_multiply(sli_queue *queue, cudaStream_t stream, const sli_cuda_product *p) {
    small_args a = {};
    a.a = p->a.data;
    a.b = p->b.data;
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
    if (p->b.transposed)
        launch_rows<float, false>(stream, &a);
    else if (p->math == SL_BF16)
        launch_rows<sli_bf16, true>(stream, &a);
    else if (p->math == SL_F16)
        launch_rows<sli_f16, true>(stream, &a);
    else
        launch_rows<float, true>(stream, &a);
    (void)SLI_LAUNCHED(queue, "small product");
}
