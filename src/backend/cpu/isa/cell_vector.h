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

#if defined(__AVX512F__)
/* sigmoid x = 1 / (1 + 2^t), t = -x / ln 2 = n / 16 + r, |r| <= 1/32: 2^(k/16) of n's lowest four bits k from a table, 2^r by a
 * polynomial of degree 3, 1 at 0 (our own minimax fit of the relative error, 1.6e-9), 2^floor(n/16) by vscalefps. Nothing need be
 * clamped: r of an infinity is 0, beyond 2^127 the divisor is infinite. t is rounded once, 6e-6 relative at |x| = 88, less in
 * proportion. */
VF_INLINE cell_real cell_sigmoid(cell_real x) {
    static const float powers[16] = {1.0f,          1.0442737824f, 1.0905077327f, 1.1387886348f,
                                     1.1892071150f, 1.2418578121f, 1.2968395547f, 1.3542555469f,
                                     1.4142135624f, 1.4768261459f, 1.5422108254f, 1.6104903319f,
                                     1.6817928305f, 1.7562521604f, 1.8340080864f, 1.9152065614f};
    enum { SIXTEENTHS = 4 << 4 | _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };
    const vf one = vf_set(1.0f), t = x * vf_set(-1.44269504f), r = _mm512_reduce_ps(t, SIXTEENTHS);
    const vf counted = t + vf_set(786432.0f); /* 1.5 * 2^19, whose last digit is 1/16 */
    const vf power = _mm512_permutexvar_ps(_mm512_castps_si512(counted), _mm512_loadu_ps(powers));
    const vf p =
        vf_fma(vf_fma(vf_fma(vf_set(5.55021364e-02f), r, vf_set(2.40234288e-01f)), r, vf_set(6.93147183e-01f)), r, one);
    return one / vf_fma(p, _mm512_scalef_ps(power, t - r), one);
}
#define CELL_SIGMOID
#elif defined(__AVX2__)
/* The same with eighths, |r| <= 1/16 (2.5e-8), and 2^floor(n/8) added to the exponents of the table, from which those that n's lowest
 * three bits add are taken off before. |x| <= 88 is clamped. */
VF_INLINE cell_real cell_sigmoid(cell_real x) {
    static const cell_word powers = {0x3f800000, 0x3f7b95c2, 0x3f7837f0, 0x3f75fed7,
                                     0x3f7504f3, 0x3f75672a, 0x3f7744fd, 0x3f7ac0c7};
    const vf one = vf_set(1.0f), magic = vf_set(1572864.0f),
             factor = vf_set(-1.44269504f); /* 1.5 * 2^20, whose last digit is 1/8 */
    x = cell_clamp(x, vf_set(-88.0f), vf_set(88.0f));
    const vf counted = vf_fma(x, factor, magic), r = vf_fma(x, factor, magic - counted);
    const cell_word table = (cell_word)_mm256_permutevar8x32_epi32((__m256i)powers, (__m256i)counted);
    const vf power = cell_from_bits((cell_bits(counted) << 20) + table);
    const vf p =
        vf_fma(vf_fma(vf_fma(vf_set(5.54962214e-02f), r, vf_set(2.40257630e-01f)), r, vf_set(6.93147214e-01f)), r, one);
    return one / vf_fma(p, power, one);
}
#define CELL_SIGMOID
#else
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
#endif

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
