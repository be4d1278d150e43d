/* Rounding to the types of matrix operands, in plain C: what the proofs draw and what the reference's oracle multiplies. */
#ifndef SLI_ROUNDING_H
#define SLI_ROUNDING_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "sluice.h"

/* As a type of operands only: tf32 with the lower digits cut off, as tensor cores may read a float. */
#define SLI_TF32_CUT ((sl_dtype)100)

/* `value` with `digits` binary digits, to the nearest, ties to even; multiples of 2^least at the finest. */
static inline double sli_round_digits(double value, int digits, int least) {
    int exponent;
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    exponent = (int)(bits >> 52 & 2047) - 1022; /* of a normal number: |value| in [2^(exponent-1), 2^exponent) */
    if (exponent > -1022 && exponent < 1025 && exponent - digits > least) {
        const uint64_t half = (uint64_t)1 << (52 - digits); /* 53 - digits low bits go */
        bits += half - 1 + (bits >> (53 - digits) & 1);
        bits &= ~(2 * half - 1);
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    if (!isfinite(value) || value == 0) return value;
    frexp(value, &exponent);
    int grid = exponent - digits > least ? exponent - digits : least;
    return ldexp(rint(ldexp(value, -grid)), grid);
}

/* The nearest number of `dtype`, as operands of products are rounded; f32 for everything but the narrow types. f16 overflows
 * to infinity. */
static inline double sli_round_to(sl_dtype dtype, double value) {
    double rounded, power;
    int exponent;
    switch ((int)dtype) {
    case (int)SLI_TF32_CUT:
        value = (double)(float)value;
        if (!isfinite(value) || value == 0) return value;
        frexp(value, &exponent);
        power = ldexp(1, exponent - 11 > -136 ? exponent - 11 : -136);
        return trunc(value / power) * power;
    case SL_BF16:
        return sli_round_digits(value, 8, -133);
    case SL_TF32:
        return sli_round_digits(value, 11, -136);
    case SL_F16:
        rounded = sli_round_digits(value, 11, -24);
        return fabs(rounded) < 65520 ? rounded : copysign(HUGE_VAL, rounded);
    case SL_F64:
        return value;
    default:
        return (double)(float)value;
    }
}

/* The bits of the nearest number of bf16 or f16; and the number that bits mean. */
static inline uint16_t sli_to_bits16(sl_dtype dtype, double value) {
    const double rounded = sli_round_to(dtype, value), size = fabs(rounded);
    if (dtype == SL_BF16) {
        const float narrow = (float)rounded;
        uint32_t bits;
        memcpy(&bits, &narrow, sizeof bits);
        return (uint16_t)(bits >> 16 | (isnan(value) ? 0x40 : 0));
    }
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    int exponent;
    if (isnan(value)) return sign | 0x7e00;
    if (isinf(rounded)) return sign | 0x7c00;
    if (size < ldexp(1, -14)) return sign | (uint16_t)ldexp(size, 24);
    const double fraction = frexp(size, &exponent); /* 0.5 to 1 */
    return (uint16_t)(sign + ((exponent + 13) << 10) + (int)ldexp(fraction, 11));
}

static inline double sli_from_bits16(sl_dtype dtype, uint16_t bits) {
    const int exponent = bits >> 10 & 31, digits = bits & 1023;
    if (dtype == SL_BF16) {
        const uint32_t wide = (uint32_t)bits << 16;
        float value;
        memcpy(&value, &wide, sizeof value);
        return (double)value;
    }
    const double size = exponent == 31 ? (digits ? (double)NAN : HUGE_VAL)
                        : exponent > 0 ? ldexp(1024 + digits, exponent - 25)
                                       : ldexp(digits, -24);
    return bits & 0x8000 ? -size : size;
}

#endif
