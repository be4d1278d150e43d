/* Operands of f16 in tf32's place, times powers of two: of the persistent recurrence (persist_geometry.h: scaled) and of cuda:step's runs. Device code alone, for nvcc and
 * NVRTC. */
#ifndef SLI_CUDA_PERSIST_SCALES_CUH
#define SLI_CUDA_PERSIST_SCALES_CUH

#include "backend/cuda/kernels/persist_args.h"
#include "backend/cuda/kernels/ptx.cuh"

#ifndef PERSIST_FN
#define PERSIST_FN static __device__ __forceinline__
#endif

/* tf32 whose |v| has a bound is multiplied in f16, which has as many bits of a number: times powers of two, and sums times what takes these away again, which rounds nothing. The largest weight comes
 * between 2^14 and 2^15, so that weights of 2^-28 of it are what they are in tf32, to the bit. The bound of v comes between 2^3 and 2^4: v of 2^-17 of it is what it is in tf32, and states of 4000 times of it may
 * enter; larger ones are NaN. By the states that enter nothing is scaled: rows of the batch, and calls that go on from the middle of others, would not be independent. What is smaller keeps a part of its bits: it errs by 2^-38 of the
 * largest weight, by 2^-27 of the bound, where f32 that adds up errs by 2^-24 of a sum. */
PERSIST_FN float persist_scale(float largest) {
    enum { BIAS = 127, BELOW = 15, MOST = 60 }; /* MOST: no product of two scales is beyond f32 */
    const int wanted = BELOW - 1 + BIAS - (int)(__float_as_uint(largest) >> 23), most = wanted < MOST ? wanted : (int)MOST;
    return __uint_as_float((uint32_t)(BIAS + (most > -MOST ? most : -(int)MOST)) << 23);
}
/* 1 / x of a power of two. */
PERSIST_FN float persist_inverse(float x) {
    return __uint_as_float((254u << 23) - __float_as_uint(x));
}
/* The largest of PERSIST_LARGEST numbers, for a whole warp, of which each lane has read four. */
PERSIST_FN float4 persist_ask_largest(const float *of, int lane) {
    static_assert(PERSIST_LARGEST == 4 * 32, "a lane has four");
    return ((const float4 *)of)[lane];
}
PERSIST_FN float persist_largest(const float4 &four) {
    float largest = fmaxf(fmaxf(four.x, four.y), fmaxf(four.z, four.w));
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, apart));
    return largest;
}
/* Of v, by its bound. */
PERSIST_FN float persist_scale_of_v(float bound) {
    return persist_scale(bound) * 0x1p-11f;
}

/* x times a scale in f16, rounded as tf32 is, halves away from 0: half of its last bit more, then cut off. On one half the conversion would round to even, and a unit near
 * the kink of a clip would fall on another side than tf32's. That half bit comes of x itself, beside the product: one instruction in the way of what others wait for. */
PERSIST_FN uint32_t persist_scaled_bits(float x, float scale) {
    const float power = __uint_as_float(__float_as_uint(x) & 0xFF800000u); /* of x, with its sign; of a NaN infinity */
    return ptx_cut_f16(fmaf(power, scale * 0x1p-11f, x * scale));
}
/* Of any number: what f16 does not have is a NaN, not its largest, nor infinity, whose sign a sum would have. */
PERSIST_FN uint32_t persist_scaled_or_nan(float x, float scale) {
    return persist_scaled_bits(fabsf(x * scale) < 65520.0f ? x : __uint_as_float(0x7FC00000u), scale);
}

#endif
