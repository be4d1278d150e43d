/* AVX2 and FMA. Included by vector.h. */
#ifndef SLI_VECTOR_AVX2_H
#define SLI_VECTOR_AVX2_H

#include <immintrin.h>

#define VF_REGISTERS 16
enum { VL = 8 };
typedef __m256 vf;
static inline vf vf_load(const float *p) {
    return _mm256_loadu_ps(p);
}
static inline void vf_store(float *p, vf v) {
    _mm256_storeu_ps(p, v);
}
/* Loads alone: stores by mask were not tried. */
#define VF_LOADS_PARTS
static inline vf vf_load_part(const float *p, int n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane));
}
static inline vf vf_set(float x) {
    return _mm256_set1_ps(x);
}
static inline vf vf_fma(vf a, vf b, vf c) {
    return _mm256_fmadd_ps(a, b, c);
}
/* With all 16 registers in use, gcc would move sums about and spill one. */
#define VF_ACCUMULATES 1
static inline void vf_accumulate(vf *sum, vf a, vf b) {
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(*sum) : "x"(a), "x"(b));
}
static inline void vf_zip(vf a, vf b, vf *low, vf *high) {
    const vf even = _mm256_unpacklo_ps(a, b), odd = _mm256_unpackhi_ps(a, b);
    *low = _mm256_permute2f128_ps(even, odd, 0x20);
    *high = _mm256_permute2f128_ps(even, odd, 0x31);
}

#endif
