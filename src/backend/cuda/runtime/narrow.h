/* Reading and writing of operands: float, bf16 and f16 alike. Device code. */
#ifndef SLI_CUDA_NARROW_H
#define SLI_CUDA_NARROW_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>

static __device__ __forceinline__ float sli_wide(float x) {
    return x;
}
static __device__ __forceinline__ float sli_wide(__nv_bfloat16 x) {
    return __bfloat162float(x);
}
static __device__ __forceinline__ float sli_wide(__half x) {
    return __half2float(x);
}
/* Rounded to nearest even; f16 overflow becomes infinity. */
static __device__ __forceinline__ void sli_assign(float *to, float x) {
    *to = x;
}
static __device__ __forceinline__ void sli_assign(__nv_bfloat16 *to, float x) {
    *to = __float2bfloat16_rn(x);
}
static __device__ __forceinline__ void sli_assign(__half *to, float x) {
    *to = __float2half_rn(x);
}

#endif
