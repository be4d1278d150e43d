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
static inline vf vf_set(float x) {
    return _mm256_set1_ps(x);
}
static inline vf vf_fma(vf a, vf b, vf c) {
    return _mm256_fmadd_ps(a, b, c);
}

#endif
