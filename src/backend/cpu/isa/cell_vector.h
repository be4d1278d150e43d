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

/* exp(x) = 2^t for |x| <= 88, t = n + r, |r| <= 1/2: n by adding 1.5 * 2^23, 2^r by a polynomial of degree 5, 1 at 0 (our own
 * minimax fit of the relative error, 1.1e-7), 2^n through the exponent bits. */
VF_INLINE cell_real cell_exp(cell_real x) {
    const vf magic = vf_set(12582912.0f), log2e = vf_set(1.44269504f); /* bits of magic: 0x4b400000 */
    const vf shifted = vf_fma(x, log2e, magic), n = shifted - magic;
    const vf r = vf_fma(x, log2e, -n), r2 = r * r;
    const vf high =
        vf_fma(cell_line(9.671619162e-03f, 1.326459111e-03f, r), r2, cell_line(2.402224094e-01f, 5.550735071e-02f, r));
    return vf_fma(high, r2, cell_line(1.0f, 6.931470037e-01f, r)) *
           cell_from_bits((cell_bits(shifted) - 0x4b400000u + 127u) << 23);
}

/* As the scalar cell_tanh, but P of degree 5: 6.0e-8 before rounding. */
VF_INLINE cell_real cell_tanh(cell_real x) {
    x = cell_clamp(x, vf_set(-9.02f), vf_set(9.02f));
    const vf s = x * x, s2 = s * s;
    const vf high =
        vf_fma(cell_line(-1.274424721e-08f, 1.816341494e-11f, s), s2, cell_line(2.919429829e-03f, 9.255287152e-06f, s));
    const vf p = vf_fma(high, s2, cell_line(9.999999401e-01f, 1.291798899e-01f, s));
    const vf q = vf_fma(cell_line(2.375771423e-02f, 2.279161947e-04f, s), s2, cell_line(1.0f, 4.625127193e-01f, s));
    return cell_clamp(x * p / q, vf_set(-1.0f), vf_set(1.0f));
}

#endif
