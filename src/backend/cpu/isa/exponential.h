/* e^x on vectors, where the processor has it by a table: a permutation takes one number of a register for each lane, and leaves the
 * units of multiply-adds to others.
 *     x log2e = n / POWERS + r, |r| <= 1 / (2 POWERS)       e^x = 2^floor(n / POWERS) 2^(k / POWERS) 2^r, k the lowest bits of n
 * n by adding a number whose last digit is 1 / POWERS; the table holds 2^(k / POWERS) less what k adds to the bits when n is shifted to
 * the exponent. */
#ifndef SLI_EXPONENTIAL_H
#define SLI_EXPONENTIAL_H

#include "backend/cpu/isa/vector.h"

typedef uint32_t exp_word __attribute__((vector_size(sizeof(vf))));

/* 2^r by our own minimax fits of the relative error, 1 at 0: degree 3 for tables (1.6e-9 with sixteen powers, 2.7e-8 with eight), else 5
 * (1.1e-7, |r| <= 1/2). */
#if defined(__AVX512F__)
enum { EXP_SHIFT = 19 };
#define EXP_MAGIC 786432.0f /* 1.5 * 2^19 */
VF_INLINE exp_word exp_table(vf counted) {
    static const uint32_t less[16] = {0x3f800000, 0x3f7daac3, 0x3f7b95c2, 0x3f79c3d3, 0x3f7837f0, 0x3f76f532,
                                      0x3f75fed7, 0x3f75583f, 0x3f7504f3, 0x3f7508a4, 0x3f75672a, 0x3f76248c,
                                      0x3f7744fd, 0x3f78ccdf, 0x3f7ac0c7, 0x3f7d257d};
    return (exp_word)_mm512_permutexvar_epi32(_mm512_castps_si512(counted), _mm512_loadu_si512(less));
}
VF_INLINE vf exp_rest(vf r) {
    const vf high = vf_fma(vf_set(5.55021364e-02f), r, vf_set(2.40234288e-01f));
    return vf_fma(vf_fma(high, r, vf_set(6.93147183e-01f)), r, vf_set(1.0f));
}
#elif defined(__AVX2__) && defined(__FMA__)
enum { EXP_SHIFT = 20 };
#define EXP_MAGIC 1572864.0f /* 1.5 * 2^20 */
VF_INLINE exp_word exp_table(vf counted) {
    static const exp_word less = {0x3f800000, 0x3f7b95c2, 0x3f7837f0, 0x3f75fed7,
                                  0x3f7504f3, 0x3f75672a, 0x3f7744fd, 0x3f7ac0c7};
    return (exp_word)_mm256_permutevar8x32_epi32((__m256i)less, (__m256i)counted);
}
VF_INLINE vf exp_rest(vf r) {
    const vf high = vf_fma(vf_set(5.54962214e-02f), r, vf_set(2.40257630e-01f));
    return vf_fma(vf_fma(high, r, vf_set(6.93147214e-01f)), r, vf_set(1.0f));
}
#else
enum { EXP_SHIFT = 23 };
#define EXP_MAGIC 12582912.0f /* 1.5 * 2^23 */
VF_INLINE exp_word exp_table(vf counted) {
    (void)counted;
    return (exp_word)vf_set(1.0f);
}
/* Estrin's scheme: a processor waits less for polynomials whose terms are not one chain. */
VF_INLINE vf exp_rest(vf r) {
    const vf r2 = r * r, low = vf_fma(vf_set(6.931470037e-01f), r, vf_set(1.0f)),
             middle = vf_fma(vf_set(5.550735071e-02f), r, vf_set(2.402224094e-01f)),
             high = vf_fma(vf_set(1.326459111e-03f), r, vf_set(9.671619162e-03f));
    return vf_fma(vf_fma(high, r2, middle), r2, low);
}
#endif

/* 2^(x (log2e + rest)) for |x| <= 88.03; below 2^-126 that, 0, or something between. `rest`: what rounding took off a constant of which more
 * digits count, or 0. */
VF_INLINE vf exp_times(vf x, const float log2e, const float rest) {
    const vf magic = vf_set(EXP_MAGIC), counted = vf_fma(x, vf_set(log2e), magic);
    vf r = vf_fma(x, vf_set(log2e), magic - counted);
    if (rest != 0) r = vf_fma(x, vf_set(rest), r);
    return exp_rest(r) * (vf)(((exp_word)counted << EXP_SHIFT) + exp_table(counted));
}

#endif
