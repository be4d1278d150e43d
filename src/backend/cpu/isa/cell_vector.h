/* src/cell over vectors: include this before its headers, and cell_real is a vector of the instruction set. */
#ifndef SLI_CELL_VECTOR_H
#define SLI_CELL_VECTOR_H

#include <stdint.h>
#include "backend/cpu/isa/vector.h"

#define CELL_VECTOR
typedef vf cell_real;
typedef uint32_t cell_word __attribute__((vector_size(sizeof(vf))));

VF_INLINE cell_word cell_bits(cell_real x) {
    return (cell_word)x;
}

VF_INLINE cell_real cell_from_bits(cell_word bits) {
    return (cell_real)bits;
}

VF_INLINE cell_real cell_set(float x) {
    return vf_set(x);
}

VF_INLINE cell_real cell_select(cell_word which, cell_real yes, cell_real no) {
    return cell_from_bits((which & cell_bits(yes)) | (~which & cell_bits(no)));
}

/* x < y ? yes : no */
VF_INLINE cell_real cell_less(cell_real x, cell_real y, cell_real yes, cell_real no) {
    return cell_select((cell_word)(x < y), yes, no);
}

/* valid != 0 ? yes : no */
VF_INLINE cell_real cell_valid(cell_real valid, cell_real yes, cell_real no) {
    return cell_select((cell_word)(valid == vf_set(0.0f)), no, yes);
}

/* Minimum and maximum of x86 and arm64 give x where x is no number. */
VF_INLINE cell_real cell_clamp(cell_real x, cell_real low, cell_real high) {
#if defined(__AVX512F__)
    return _mm512_min_ps(high, _mm512_max_ps(low, x));
#elif defined(__AVX2__)
    return _mm256_min_ps(high, _mm256_max_ps(low, x));
#elif defined(__SSE2__)
    return _mm_min_ps(high, _mm_max_ps(low, x));
#elif defined(SLI_VECTOR_NEON)
    return vminq_f32(high, vmaxq_f32(low, x));
#else
    x = cell_less(x, low, low, x);
    return cell_less(high, x, high, x);
#endif
}

/* Estrin's scheme here: a processor waits less for polynomials whose terms are not one chain. a + b x */
VF_INLINE vf cell_line(float a, float b, vf x) {
    return vf_fma(vf_set(b), x, vf_set(a));
}

/* exp(x) = 2^t for |x| <= 88, t = n + r, |r| <= 1/2: n by adding 1.5 * 2^23, 2^r by its Taylor polynomial of degree 7 (remainder
 * < 6e-9 relative), 2^n through the exponent bits. */
VF_INLINE cell_real cell_exp(cell_real x) {
    const vf magic = vf_set(12582912.0f), log2e = vf_set(1.44269504f); /* bits of magic: 0x4b400000 */
    const vf shifted = vf_fma(x, log2e, magic), n = shifted - magic;
    const vf r = vf_fma(x, log2e, -n), r2 = r * r;
    const vf low = vf_fma(cell_line(0.240226507f, 0.0555041087f, r), r2, cell_line(1.0f, 0.693147181f, r));
    const vf high =
        vf_fma(cell_line(0.000154035304f, 1.52527338e-5f, r), r2, cell_line(0.00961812911f, 0.00133335581f, r));
    return vf_fma(high, r2 * r2, low) * cell_from_bits((cell_bits(shifted) - 0x4b400000u + 127u) << 23);
}

/* The fraction of the scalar cell_tanh. */
VF_INLINE cell_real cell_tanh(cell_real x) {
    x = cell_clamp(x, vf_set(-9.02f), vf_set(9.02f));
    const vf s = x * x, s2 = s * s;
    const vf low =
        vf_fma(cell_line(3.103046294e-03f, 1.114467670e-05f, s), s2, cell_line(9.999999933e-01f, 1.308319868e-01f, s));
    const vf high = vf_fma(vf_set(-8.437000914e-14f), s2, cell_line(-2.018537928e-08f, 5.258301665e-11f, s));
    const vf q = vf_fma(cell_line(2.449156488e-02f, 2.544813718e-04f, s), s2, cell_line(1.0f, 4.641652570e-01f, s));
    return cell_clamp(x * vf_fma(high, s2 * s2, low) / q, vf_set(-1.0f), vf_set(1.0f));
}

#endif
