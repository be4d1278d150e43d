/* AVX-512 (F, BW, DQ, VL) and FMA. Included by vector.h. */
#ifndef SLI_VECTOR_AVX512_H
#define SLI_VECTOR_AVX512_H

#include <immintrin.h>

#define VF_REGISTERS 32
enum { VL = 16 };
typedef __m512 vf;
static inline vf vf_load(const float *p) {
    return _mm512_loadu_ps(p);
}
static inline void vf_store(float *p, vf v) {
    _mm512_storeu_ps(p, v);
}
static inline vf vf_set(float x) {
    return _mm512_set1_ps(x);
}
static inline vf vf_fma(vf a, vf b, vf c) {
    return _mm512_fmadd_ps(a, b, c);
}

#endif
