/* Reading and writing of operands: float, bf16 and f16 alike. Device code. The two narrow ones are their bits: CUDA's own headers of them
 * are most of nvcc's time for a small source. */
#ifndef SLI_CUDA_NARROW_H
#define SLI_CUDA_NARROW_H

#include <stdint.h>

struct sli_bf16 {
    uint16_t bits;
};
struct sli_f16 {
    uint16_t bits;
};

/* Rounded to nearest even; f16 overflow becomes infinity. */
static __device__ __forceinline__ uint16_t sli_to_bf16(float x) {
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
static __device__ __forceinline__ uint16_t sli_to_f16(float x) {
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
static __device__ __forceinline__ float sli_from_bf16(uint16_t bits) {
    float x;
#if __CUDA_ARCH__ >= 900
    asm("cvt.f32.bf16 %0, %1;" : "=f"(x) : "h"(bits));
#else
    asm("mov.b32 %0, {0, %1};" : "=f"(x) : "h"(bits));
#endif
    return x;
}
static __device__ __forceinline__ float sli_from_f16(uint16_t bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

static __device__ __forceinline__ float sli_wide(float x) {
    return x;
}
static __device__ __forceinline__ float sli_wide(sli_bf16 x) {
    return sli_from_bf16(x.bits);
}
static __device__ __forceinline__ float sli_wide(sli_f16 x) {
    return sli_from_f16(x.bits);
}
static __device__ __forceinline__ void sli_assign(float *to, float x) {
    *to = x;
}
static __device__ __forceinline__ void sli_assign(sli_bf16 *to, float x) {
    to->bits = sli_to_bf16(x);
}
static __device__ __forceinline__ void sli_assign(sli_f16 *to, float x) {
    to->bits = sli_to_f16(x);
}

#endif
