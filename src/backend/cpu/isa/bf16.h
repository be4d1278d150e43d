/* bf16: the upper half of a float. Rounded to nearest, ties to even, as sli_round_to (core/rounding.h) and as GPUs
 * do; a NaN stays one. Plain C that compilers turn into vector code. */
#ifndef SLI_BF16_H
#define SLI_BF16_H

#include <stdint.h>
#include <string.h>

/* Bits of the float that is the nearest bf16: the lower half is 0. */
static inline uint32_t bf16_round_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    return ((bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : rounded) & 0xffff0000u;
}

static inline float bf16_round(float x) {
    const uint32_t bits = bf16_round_bits(x);
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline void bf16_round_all(float *restrict to, const float *restrict from, size_t count) {
    for (size_t i = 0; i < count; i++) to[i] = bf16_round(from[i]);
}

static inline uint16_t bf16_of(float x) {
    return (uint16_t)(bf16_round_bits(x) >> 16);
}

static inline float bf16_value(uint16_t half) {
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Two neighbours in k, as bf16 products take them: the first in the lower half. */
static inline uint32_t bf16_pair(float first, float second) {
    return bf16_round_bits(first) >> 16 | bf16_round_bits(second);
}

#endif
