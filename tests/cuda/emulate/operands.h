/* Operands of products in memory: 16 bits or float, by their type. */
#ifndef SLI_TESTS_EMULATE_OPERANDS_H
#define SLI_TESTS_EMULATE_OPERANDS_H

#include "emulate.h"
#include "sluice.h"

static inline bool is_16_bit(sl_dtype math) {
    return math == SL_BF16 || math == SL_F16;
}
static inline float operand(sl_dtype math, const void *data, int64_t at) {
    if (!is_16_bit(math)) return static_cast<const float *>(data)[at];
    const uint32_t bits = static_cast<const uint16_t *>(data)[at];
    return math == SL_BF16 ? emulate::from_bf16(bits) : emulate::from_f16(bits);
}
static inline void put_operand(sl_dtype math, void *data, int64_t at, float x) {
    if (is_16_bit(math))
        static_cast<uint16_t *>(data)[at] = (uint16_t)(math == SL_BF16 ? emulate::to_bf16(x) : emulate::to_f16(x));
    else
        static_cast<float *>(data)[at] = x;
}

#endif
