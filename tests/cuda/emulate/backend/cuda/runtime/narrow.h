/* In place of src/backend/cuda/runtime/narrow.h: rounding to 16 bits, and back. */
#ifndef SLI_CUDA_NARROW_H
#define SLI_CUDA_NARROW_H

#include "emulate.h"

static inline uint16_t sli_to_bf16(float x) {
    return (uint16_t)emulate::to_bf16(x);
}
static inline uint16_t sli_to_f16(float x) {
    return (uint16_t)emulate::to_f16(x);
}
static inline float sli_from_f16(uint16_t bits) {
    return emulate::from_f16(bits);
}

#endif
