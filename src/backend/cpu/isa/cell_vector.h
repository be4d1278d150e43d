/* src/cell over vectors: include this before its headers, and cell_real is a vector of the instruction set. */
#ifndef SLI_CELL_VECTOR_H
#define SLI_CELL_VECTOR_H

#include <stdint.h>
#include "backend/cpu/isa/exponential.h"

#define CELL_VECTOR
typedef vf cell_real;
typedef exp_word cell_word;

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

VF_INLINE cell_real cell_clamp(cell_real x, cell_real low, cell_real high) {
    return vf_clamp(x, low, high);
}

/* a + b x; Estrin's scheme here, as in exponential.h. */
VF_INLINE vf cell_line(float a, float b, vf x) {
    return vf_fma(vf_set(b), x, vf_set(a));
}

#if defined(__AVX512F__)
/* 1 / (1 + 2^t), t = -x / ln 2 = n / 16 + r as in exponential.h, but 2^floor(n/16) by vscalefps: so nothing need be clamped, r of an
 * infinity is 0, beyond 2^127 the divisor is infinite. t is rounded once, 6e-6 relative at |x| = 88, less in proportion. */
VF_INLINE cell_real cell_sigmoid(cell_real x) {
    static const float powers[16] = {1.0f,          1.0442737824f, 1.0905077327f, 1.1387886348f,
                                     1.1892071150f, 1.2418578121f, 1.2968395547f, 1.3542555469f,
                                     1.4142135624f, 1.4768261459f, 1.5422108254f, 1.6104903319f,
                                     1.6817928305f, 1.7562521604f, 1.8340080864f, 1.9152065614f};
    enum { SIXTEENTHS = 4 << 4 | _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };
    const vf one = vf_set(1.0f), t = x * vf_set(-1.44269504f), r = _mm512_reduce_ps(t, SIXTEENTHS);
    const vf counted = t + vf_set(EXP_MAGIC);
    const vf power = _mm512_permutexvar_ps(_mm512_castps_si512(counted), _mm512_loadu_ps(powers));
    return one / vf_fma(exp_rest(r), _mm512_scalef_ps(power, t - r), one);
}
#else
/* Beyond +-88 the value of 88. */
VF_INLINE cell_real cell_sigmoid(cell_real x) {
    const vf one = vf_set(1.0f);
    return one / (one + exp_times(cell_clamp(x, vf_set(-88.0f), vf_set(88.0f)), -1.44269504f, 0));
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
