/* In place of src/backend/cuda/runtime/narrow.h: rounding to 16 bits, and back. */
#ifndef SLI_CUDA_NARROW_H
#define SLI_CUDA_NARROW_H

#include "emulate.h"

struct sli_bf16 {
    uint16_t bits;
};
struct sli_f16 {
    uint16_t bits;
};

static inline uint16_t sli_to_bf16(float x) {
    return (uint16_t)emulate::to_bf16(x);
}
static inline uint16_t sli_to_f16(float x) {
    return (uint16_t)emulate::to_f16(x);
}
static inline float sli_from_f16(uint16_t bits) {
    return emulate::from_f16(bits);
}
static inline float sli_wide(float x) {
    return x;
}
static inline float sli_wide(sli_bf16 x) {
    return emulate::from_bf16(x.bits);
}
static inline float sli_wide(sli_f16 x) {
    return emulate::from_f16(x.bits);
}
static inline void sli_assign(float *to, float x) {
    *to = x;
}
static inline void sli_assign(sli_bf16 *to, float x) {
    to->bits = sli_to_bf16(x);
}
static inline void sli_assign(sli_f16 *to, float x) {
    to->bits = sli_to_f16(x);
}

#endif
