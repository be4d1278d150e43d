/* f32x3: a float as the sum of two numbers that tensor cores read without rounding, high = tf32(x) and low = tf32(x - high).
 * Then x y = high high + high low + low high, up to what is dropped. One text for C11 and CUDA C.
 * Of a normal x, |low| <= 2^-11 |x|, and x - high - low is 0 or, at most, 2^-23 |x|. A product drops low low and what is left
 * of x and y: less than 2^-21 |x y|. Infinities and NaN stay in `high`, and beyond 2^128 - 2^116 a number becomes infinite: in
 * each case the product is not finite, though it may be NaN where f32 has an infinity. */
#ifndef SLI_CUDA_SPLIT_H
#define SLI_CUDA_SPLIT_H

#ifdef __CUDACC__
#define SLI_SPLIT_FN static __host__ __device__ __forceinline__
#else
#define SLI_SPLIT_FN static inline
#endif

/* The nearest number of 11 binary digits, ties away from zero: what cvt.rna.tf32.f32 gives, with zeros in the digits that
 * tensor cores do not read. A carry goes into the exponent. */
SLI_SPLIT_FN float sli_tf32(float x) {
    union {
        float value;
        unsigned bits;
    } u;
    u.value = x;
    if ((u.bits & 0x7f800000u) != 0x7f800000u) u.bits = (u.bits + 0x1000u) & 0xffffe000u;
    return u.value;
}

SLI_SPLIT_FN void sli_split(float x, float *high, float *low) {
    *high = sli_tf32(x);
    *low = sli_tf32(x - *high);
}

#endif
