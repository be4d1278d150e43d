/* SSE2, which every x86-64 has: a multiplication and an addition, two roundings. Included by vector.h. */
#ifndef SLI_VECTOR_SSE2_H
#define SLI_VECTOR_SSE2_H

#include <emmintrin.h>

#define VF_REGISTERS 16
enum { VL = 4 };
typedef __m128 vf;
static inline vf vf_load(const float *p) {
    return _mm_loadu_ps(p);
}
static inline void vf_store(float *p, vf v) {
    _mm_storeu_ps(p, v);
}
static inline vf vf_set(float x) {
    return _mm_set1_ps(x);
}
static inline vf vf_fma(vf a, vf b, vf c) {
    return _mm_add_ps(_mm_mul_ps(a, b), c);
}
static inline void vf_zip(vf a, vf b, vf *low, vf *high) {
    *low = _mm_unpacklo_ps(a, b);
    *high = _mm_unpackhi_ps(a, b);
}

#endif
