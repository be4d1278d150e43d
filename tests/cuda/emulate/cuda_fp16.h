/* In place of CUDA's: rounding to f16, and back. */
#ifndef SLI_TESTS_EMULATE_CUDA_FP16_H
#define SLI_TESTS_EMULATE_CUDA_FP16_H

#include "emulate.h"

static inline uint16_t __float2half_rn(float x) {
    return (uint16_t)emulate::to_f16(x);
}
static inline uint16_t __half_as_ushort(uint16_t bits) {
    return bits;
}
static inline uint16_t __ushort_as_half(uint16_t bits) {
    return bits;
}
static inline float __half2float(uint16_t bits) {
    return emulate::from_f16(bits);
}

#endif
