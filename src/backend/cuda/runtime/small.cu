/* Small products: one launch of a few microseconds. In tf32 cuBLASLt's cut k in pieces that a second one adds up (20 x 512 x 100: 2.8 and 2.5 us, 25 x 2048 x 512: 4.4
 * and 2.3, traced on an H200, 2026-11-22); of 16 bits d x of few rows has few blocks and a long k (20 x 100 x 512: 6.8 us of four blocks, 2026-11-27), and x, as floats, needs no launch of its own. */
#include <stdint.h>

#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/runtime/narrow.h"
#include "backend/cuda/runtime/small_fit.h"

template <class T> static __device__ __forceinline__ float small_wide(T x) {
    return sli_wide(x);
}
template <class T> static __device__ __forceinline__ void small_set(T *to, float x) {
    sli_assign(to, x);
}
template <class T> static __device__ __forceinline__ float small_rounded(float x) {
    T operand;
    sli_assign(&operand, x);
    return sli_wide(operand);
}

#include "backend/cuda/runtime/small.cuh"

static_assert((int)SMALL_MOST_ROWS == 4 * SMALL_M, "rows of one block");

bool sli_small_fit(const sli_cuda_product *p) {
    return small_fits(p);
}

extern "C" bool sli_cuda_is_small(const sli_cuda_product *p) {
    return small_fits(p);
}

template <class A, class T, bool down, int tiles, int pieces> static void launch(cudaStream_t stream, const small_args *a) {
    const int64_t width = SMALL_WARPS / a->warps_k * SMALL_N, rows = tiles * SMALL_M;
    const dim3 blocks((unsigned)((a->n + width - 1) / width), (unsigned)((a->m + rows - 1) / rows));
    small_product<A, T, down, tiles, pieces><<<blocks, 32 * SMALL_WARPS, 0, stream>>>(*a);
}

template <class A, class T, bool down, int tiles> static void launch_tiles(cudaStream_t stream, const small_args *a) {
    if (a->k <= a->warps_k * SMALL_K)
        launch<A, T, down, tiles, 1>(stream, a);
    else
        launch<A, T, down, tiles, 4>(stream, a);
}

template <class A, class T, bool down> static void launch_rows(cudaStream_t stream, const small_args *a) {
    if (a->m <= SMALL_M)
        launch_tiles<A, T, down, 1>(stream, a);
    else if (a->m <= 2 * SMALL_M)
        launch_tiles<A, T, down, 2>(stream, a);
    else
        launch_tiles<A, T, down, 4>(stream, a);
}

void sli_small_multiply(sli_queue *queue, cudaStream_t stream, const sli_cuda_product *p) {
    small_args a = {};
    a.a = p->a.data;
    a.b = p->b.data;
    a.d = p->d;
    a.narrow_d = p->narrow_d;
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
    if (p->a_floats && p->math == SL_BF16) /* of five rows on */
        launch_tiles<float, sli_bf16, false, 4>(stream, &a);
    else if (p->a_floats)
        launch_tiles<float, sli_f16, false, 4>(stream, &a);
    else if (p->b.transposed && p->math == SL_BF16)
        launch_rows<sli_bf16, sli_bf16, false>(stream, &a);
    else if (p->b.transposed && p->math == SL_F16)
        launch_rows<sli_f16, sli_f16, false>(stream, &a);
    else if (p->b.transposed)
        launch_rows<float, float, false>(stream, &a);
    else if (p->math == SL_BF16)
        launch_rows<sli_bf16, sli_bf16, true>(stream, &a);
    else if (p->math == SL_F16)
        launch_rows<sli_f16, sli_f16, true>(stream, &a);
    else
        launch_rows<float, float, true>(stream, &a);
    (void)SLI_LAUNCHED(queue, "small product");
}
