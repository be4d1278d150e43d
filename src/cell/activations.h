/* Cell mathematics, bottom floor: activations in float, one text for C11 and CUDA C. No branches and no libm calls, so that
 * gcc turns loops over these functions into vector code (-O3 -mavx2 -mfma -fno-math-errno -fno-trapping-math).
 * Accuracy, asserted by tests/cell/test_activations.c against long double libm over a dense sweep:
 *   cell_tanh     <= 6 ulp, odd, never beyond +-1
 *   cell_sigmoid  <= 3e-7 absolute, and <= 1e-5 relative while the result is a normal number
 *   cell_tanh_short <= 1.1e-3 absolute and relative, cell_sigmoid_short <= 5e-4 absolute, above 0 and below 1
 * NaN goes in and comes out; the comparisons are written so that it does. */
#ifndef CELL_ACTIVATIONS_H
#define CELL_ACTIVATIONS_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define CELL_FN static __host__ __device__ __forceinline__
#elif defined(SLI_LESS_INLINE) /* as in vector.h */
#define CELL_FN static inline
#else
#define CELL_FN static inline __attribute__((always_inline))
#endif

/* The numbers of sl_activation in sluice.h, which this folder does not include; a test compares them. */
enum {
    CELL_ACT_LINEAR = 1,
    CELL_ACT_TANH,
    CELL_ACT_SIGMOID,
    CELL_ACT_RELU,
    CELL_ACT_HARD_SIGMOID,
    CELL_ACT_HARD_SIGMOID_K2,
    CELL_ACT_SOFTSIGN
};
/* The same functions by a GPU's approximate instructions, for what is rounded to 16 bits or tf32 afterwards anyway. FAST: e^x
 * and 1/x, 2e-7 absolute. HALF: tanh.approx, where results are rounded to bf16: 2^-11 by PTX's manual, on an H200 8e-6, the sigmoid 4e-6, and
 * 1.2e-6 from |x| = 8 on, so that a gate stays open for thousands of steps (bench/results/stalls_h200_2026-11-24.txt). Elsewhere they are the exact ones. */
enum { CELL_ACT_TANH_FAST = 16, CELL_ACT_SIGMOID_FAST, CELL_ACT_TANH_HALF, CELL_ACT_SIGMOID_HALF };
/* The same functions as one polynomial, for CPUs' rows in bf16: cell_tanh_short, cell_sigmoid_short. */
enum { CELL_ACT_TANH_SHORT = 20, CELL_ACT_SIGMOID_SHORT };

/* Options of a cell as constant bits: pass a constant, and what is not asked for folds away. */
enum {
    CELL_PEEPHOLE = 1,       /* LSTM: i and f see c', o sees the new c */
    CELL_CLIP = 2,           /* LSTM: the new c is clipped before o's peephole and act */
    CELL_ZONEOUT_H = 4,      /* h keeps `zone_h` of its old value */
    CELL_ZONEOUT_C = 8,      /* LSTM: c keeps `zone_c` of its old value */
    CELL_FORGET_AT_RUN = 16, /* LSTM: forget_bias is added to f's pre-activation */
    CELL_MASK = 32,          /* where `valid` is 0, the state is carried unchanged */
    CELL_PROJECTION = 64,    /* LSTM: h is W_p m, formed outside: zoneout and mask of h are the caller's */
    CELL_RESET_BEFORE = 128  /* GRU: r is applied before the recurrent product */
};

/* The text is the same for one number and for vectors of them: cell_real is float, unless CELL_VECTOR is defined. Then all names of
 * this block are defined before: on the CPU by backend/cpu/isa/cell_vector.h. */
#ifndef CELL_VECTOR
typedef float cell_real;

CELL_FN cell_real cell_set(float x) {
    return x;
}

/* x < y ? yes : no */
CELL_FN cell_real cell_less(cell_real x, cell_real y, cell_real yes, cell_real no) {
    return x < y ? yes : no;
}

/* valid != 0 ? yes : no */
CELL_FN cell_real cell_valid(cell_real valid, cell_real yes, cell_real no) {
    return valid != 0.0f ? yes : no;
}

CELL_FN cell_real cell_clamp(cell_real x, cell_real low, cell_real high) {
    float y = x < low ? low : x;
    return y > high ? high : y;
}

CELL_FN uint32_t cell_bits(float x) {
#ifdef __CUDA_ARCH__
    return __float_as_uint(x);
#else
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
#endif
}

CELL_FN float cell_from_bits(uint32_t bits) {
#ifdef __CUDA_ARCH__
    return __uint_as_float(bits);
#else
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
#endif
}
#endif

/* a / b for b of 1 and more, within a unit in the last place, 0 where that is denormal: a division of its own has cases that do not come
 * here, and takes a GPU three times as long. */
CELL_FN cell_real cell_divide(cell_real a, cell_real b) {
#ifdef __CUDA_ARCH__
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
    const float q = a * r;
    return fmaf(r, fmaf(-q, b, a), q);
#else
    return a / b;
#endif
}

#ifndef CELL_VECTOR
/* exp(x) for |x| <= 88: x = n ln 2 + r, |r| <= ln 2 / 2; n by adding 1.5 * 2^23, ln 2 in two parts (Cody & Waite), exp(r) by
 * its Taylor polynomial of degree 7 (remainder < 6e-9 relative), 2^n through the exponent bits. */
CELL_FN cell_real cell_exp(cell_real x) {
#ifdef __CUDA_ARCH__
    /* 2^(x / ln 2) by one instruction, within 2^-22; what x / ln 2 loses in its last digits is multiplied on. By fmaf, where a compiler
     * might find that a product minus itself is 0. */
    const float high = x * 1.44269504f, low = fmaf(x, 1.92596299e-8f, fmaf(x, 1.44269504f, -high));
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(high));
    return fmaf(e, low * 0.693147181f, e);
#else
    const float magic = 12582912.0f; /* its bits: 0x4b400000 */
    cell_real shifted = x * 1.44269504f + magic;
    cell_real n = shifted - magic;
    cell_real r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    cell_real p = cell_set(1.0f / 5040.0f);
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * cell_from_bits((cell_bits(shifted) - 0x4b400000u + 127u) << 23);
#endif
}

/* 1 / (1 + exp(-x)): keeps its relative accuracy where 0.5 + 0.5 tanh(x/2) cancels. Beyond +-88 the value of 88. */
CELL_FN cell_real cell_sigmoid(cell_real x) {
    return cell_divide(cell_set(1.0f), 1.0f + cell_exp(cell_clamp(-x, cell_set(-88.0f), cell_set(88.0f))));
}

/* x P(x^2) / Q(x^2), P of degree 6, Q of degree 3, on |x| <= 9.02, where tanh in float becomes 1. The coefficients are our own
 * minimax fit of the relative error, 6.9e-9 before rounding (least squares with Lawson's weights in 50 digits). Rounding
 * could carry the quotient past 1, which would turn the slope 1 - y^2 around: hence the last clamp. */
CELL_FN cell_real cell_tanh(cell_real x) {
    x = cell_clamp(x, cell_set(-9.02f), cell_set(9.02f));
    cell_real s = x * x;
    cell_real p = cell_set(-8.437000914e-14f);
    p = p * s + 5.258301665e-11f;
    p = p * s + -2.018537928e-08f;
    p = p * s + 1.114467670e-05f;
    p = p * s + 3.103046294e-03f;
    p = p * s + 1.308319868e-01f;
    p = p * s + 9.999999933e-01f;
    cell_real q = cell_set(2.544813718e-04f);
    q = q * s + 2.449156488e-02f;
    q = q * s + 4.641652570e-01f;
    q = q * s + 1.0f;
    return cell_clamp(cell_divide(x * p, q), cell_set(-1.0f), cell_set(1.0f));
}
#endif

/* tanh x = 1 - 2 / (1 + e^2x), sigmoid x = 1 / (1 + e^-x), and sigmoid x = (1 + tanh(x / 2)) / 2 */
CELL_FN cell_real cell_tanh_fast(cell_real x) {
#ifdef __CUDA_ARCH__
    float e, r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x * 2.88539008f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(e + 1.0f));
    return 1.0f - 2.0f * r;
#else
    return cell_tanh(x);
#endif
}
CELL_FN cell_real cell_sigmoid_fast(cell_real x) {
#ifdef __CUDA_ARCH__
    float e, r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x * -1.44269504f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(e + 1.0f));
    return r;
#else
    return cell_sigmoid(x);
#endif
}
CELL_FN cell_real cell_tanh_half(cell_real x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return cell_tanh(x);
#endif
}

/* x P(x^2), P of degree 8, on |x| <= 3.8, beyond that its value there: no division, which is what takes the time on CPUs. Our own
 * minimax fit, about 2^-10 relative; never beyond +-1. */
CELL_FN cell_real cell_tanh_short(cell_real x) {
    x = cell_clamp(x, cell_set(-3.8f), cell_set(3.8f));
    cell_real s = x * x;
    cell_real p = cell_set(1.572698364e-08f);
    p = p * s + -1.044484116e-06f;
    p = p * s + 2.930786520e-05f;
    p = p * s + -4.543045956e-04f;
    p = p * s + 4.290391269e-03f;
    p = p * s + -2.596230262e-02f;
    p = p * s + 1.058260709e-01f;
    p = p * s + -3.213601503e-01f;
    p = p * s + 9.990361077e-01f;
    return x * p;
}

/* 1/2 + x Q(x^2), Q of degree 7, on |x| <= 7, beyond that its value there: fitted as the tanh, 4.6e-4 absolute with what is cut off. */
CELL_FN cell_real cell_sigmoid_short(cell_real x) {
    x = cell_clamp(x, cell_set(-7.0f), cell_set(7.0f));
    cell_real s = x * x;
    cell_real q = cell_set(-2.543075125e-12f);
    q = q * s + 5.533781211e-10f;
    q = q * s + -5.023812477e-08f;
    q = q * s + 2.486135600e-06f;
    q = q * s + -7.416046719e-05f;
    q = q * s + 1.421069494e-03f;
    q = q * s + -1.918768696e-02f;
    q = q * s + 2.487330437e-01f;
    return x * q + 0.5f;
}

CELL_FN cell_real cell_abs(cell_real x) {
    return cell_less(x, cell_set(0.0f), -x, x);
}

/* From 2^25 on it is +-1, and from 2^126 on a GPU's approximate reciprocal would be 0. */
CELL_FN cell_real cell_softsign(cell_real x) {
    x = cell_clamp(x, cell_set(-1e30f), cell_set(1e30f));
    return cell_divide(x, 1.0f + cell_abs(x));
}

/* y = act(x); `act` is a constant of CELL_ACT_*. */
CELL_FN cell_real cell_act(int act, cell_real x) {
    switch (act) {
    case CELL_ACT_TANH:
        return cell_tanh(x);
    case CELL_ACT_SIGMOID:
        return cell_sigmoid(x);
    case CELL_ACT_TANH_FAST:
        return cell_tanh_fast(x);
    case CELL_ACT_SIGMOID_FAST:
        return cell_sigmoid_fast(x);
    case CELL_ACT_TANH_HALF:
        return cell_tanh_half(x);
    case CELL_ACT_SIGMOID_HALF:
        return 0.5f * cell_tanh_half(0.5f * x) + 0.5f;
    case CELL_ACT_TANH_SHORT:
        return cell_tanh_short(x);
    case CELL_ACT_SIGMOID_SHORT:
        return cell_sigmoid_short(x);
    case CELL_ACT_RELU:
        return cell_less(x, cell_set(0.0f), cell_set(0.0f), x);
    case CELL_ACT_HARD_SIGMOID:
        return cell_clamp(x * (1.0f / 6.0f) + 0.5f, cell_set(0.0f), cell_set(1.0f));
    case CELL_ACT_HARD_SIGMOID_K2:
        return cell_clamp(x * 0.2f + 0.5f, cell_set(0.0f), cell_set(1.0f));
    case CELL_ACT_SOFTSIGN:
        return cell_softsign(x);
    default:
        return x;
    }
}

/* slope where 0 < y < 1, else 0 */
CELL_FN cell_real cell_inside(cell_real y, float slope) {
    const cell_real zero = cell_set(0.0f);
    return cell_less(zero, y, cell_less(y, cell_set(1.0f), cell_set(slope), zero), zero);
}

/* act'(x) from y = act(x) alone:
 *   tanh 1 - y^2; sigmoid y (1 - y); relu [y > 0]; hard sigmoids slope [0 < y < 1]; softsign (1 - |y|)^2; linear 1. */
CELL_FN cell_real cell_act_slope(int act, cell_real y) {
    switch (act) {
    case CELL_ACT_TANH:
    case CELL_ACT_TANH_FAST:
    case CELL_ACT_TANH_HALF:
    case CELL_ACT_TANH_SHORT:
        return 1.0f - y * y;
    case CELL_ACT_SIGMOID:
    case CELL_ACT_SIGMOID_FAST:
    case CELL_ACT_SIGMOID_HALF:
    case CELL_ACT_SIGMOID_SHORT:
        return y * (1.0f - y);
    case CELL_ACT_RELU:
        return cell_less(cell_set(0.0f), y, cell_set(1.0f), cell_set(0.0f));
    case CELL_ACT_HARD_SIGMOID:
        return cell_inside(y, 1.0f / 6.0f);
    case CELL_ACT_HARD_SIGMOID_K2:
        return cell_inside(y, 0.2f);
    case CELL_ACT_SOFTSIGN:
        return (1.0f - cell_abs(y)) * (1.0f - cell_abs(y));
    default:
        return cell_set(1.0f);
    }
}

#endif
