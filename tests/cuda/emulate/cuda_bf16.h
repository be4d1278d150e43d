/* In place of CUDA's: rounding to bf16. */
#ifndef SLI_TESTS_EMULATE_CUDA_BF16_H
#define SLI_TESTS_EMULATE_CUDA_BF16_H

#include "emulate.h"

static inline uint16_t __float2bfloat16_rn(float x) {
    return (uint16_t)emulate::to_bf16(x);
}
static inline uint16_t __bfloat16_as_ushort(uint16_t bits) {
    return bits;
}

#endif
