/* The usual cells (tanh, sigmoid, no options) on vectors, for one row, where nothing is computed beside them that would hide their
 * latency: tanh and sigmoid as fractions, whose division is left to the cell (i g and o tanh(c) are one division each, not two),
 * with polynomials whose terms are not one chain. Accuracy as in cell/activations.h, asserted by
 * tests/stream/test_cells.c. Vectors, and not cell_sigmoid in a loop, since gcc makes branches and blends of its clamps. */
#ifndef SLI_STREAM_CELLS_H
#define SLI_STREAM_CELLS_H

#if defined(__AVX512F__)
#include "backend/cpu/isa/vector.h"
#else
#include "backend/cpu/isa/exponential.h"
#endif

/* t - floor(t), 0 of an infinity, and p 2^floor(t), infinite or 0 where that is too large or small: one instruction each. */
#if defined(__AVX512F__)
#define FLOOR (_MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)
#if defined(SLI_VECTOR_HALF)
#define VF_ABOVE_FLOOR(t) _mm256_reduce_ps(t, FLOOR)
#define VF_TIMES_POWER(p, t) _mm256_scalef_ps(p, t)
#else
#define VF_ABOVE_FLOOR(t) _mm512_reduce_ps(t, FLOOR)
#define VF_TIMES_POWER(p, t) _mm512_scalef_ps(p, t)
#endif
#endif

/* a + b x */
VF_INLINE vf line(float a, float b, vf x) {
    return vf_fma(vf_set(b), x, vf_set(a));
}

/* sigmoid x = 1 / D, D = 1 + e^-x, e^-x = 2^t = 2^r 2^n. */
#if defined(VF_ABOVE_FLOOR)
/* n = floor t, 2^r by our own minimax polynomial of degree 6 on [0, 1) (2e-9 relative, 7e-9 with rounded coefficients). Nothing need
 * be clamped: beyond 2^127 D is infinite. t is rounded once, 6e-6 relative at |x| = 88, less in proportion. */
VF_INLINE vf sigmoid_divisor(vf x) {
    const vf t = x * vf_set(-1.44269504f), r = VF_ABOVE_FLOOR(t), r2 = r * r;
    const vf low = vf_fma(line(0.240229836f, 0.0554833420f, r), r2, line(1.0f, 0.693146984f, r));
    const vf high = vf_fma(vf_set(0.000217022557f), r2, line(0.00967884101f, 0.00124396877f, r));
    return VF_TIMES_POWER(vf_fma(high, r2 * r2, low), t) + vf_set(1.0f);
}
#else
VF_INLINE vf sigmoid_divisor(vf x) {
    return exp_times(vf_clamp(x, vf_set(-88.0f), vf_set(88.0f)), -1.44269504f, 0) + vf_set(1.0f);
}
#endif

/* tanh x = x P / Q of x^2: the fraction of cell_tanh. Rounding may carry the quotient two ulp beyond 1. */
typedef struct fraction {
    vf x, p, q; /* x clamped */
} fraction;

VF_INLINE fraction tanh_fraction(vf x) {
    const vf s = vf_min(vf_set(9.02f * 9.02f), x * x), s2 = s * s; /* clamped beside x: nothing waits for that one */
    x = vf_clamp(x, vf_set(-9.02f), vf_set(9.02f));
    const vf low = vf_fma(line(3.103046294e-03f, 1.114467670e-05f, s), s2, line(9.999999933e-01f, 1.308319868e-01f, s));
    const vf high = vf_fma(vf_set(-8.437000914e-14f), s2, line(-2.018537928e-08f, 5.258301665e-11f, s));
    const vf q = vf_fma(line(2.449156488e-02f, 2.544813718e-04f, s), s2, line(1.0f, 4.641652570e-01f, s));
    return (fraction){x, vf_fma(high, s2 * s2, low), q};
}

/* The cells in two parts each: what comes first, and what the gate is wanted for that may be multiplied meanwhile. z before activation, of
 * one group. c = f c' + i g; see cell/lstm.h. z = i f g */
VF_INLINE vf lstm_state(const vf *z, vf before) {
    const fraction g = tanh_fraction(z[2]);
    return before / sigmoid_divisor(z[1]) + g.x * g.p / (g.q * sigmoid_divisor(z[0]));
}

/* h = o tanh(c) */
VF_INLINE vf lstm_output(vf c, vf o) {
    const fraction t = tanh_fraction(c);
    return t.x * t.p / (t.q * sigmoid_divisor(o));
}

/* u + r s, whose tanh is n; see cell/gru.h. z = r . u s */
VF_INLINE vf gru_candidate(const vf *z) {
    return z[2] + z[3] / sigmoid_divisor(z[0]);
}

/* h = (1 - z) n + z h' */
VF_INLINE vf gru_output(vf candidate, vf z, vf before) {
    const vf one = vf_set(1.0f), update = one / sigmoid_divisor(z);
    const fraction n = tanh_fraction(candidate);
    return (one - update) * n.x * n.p / n.q + update * before;
}

#endif
