/* One vector of floats of the instruction set this file is compiled for. */
#ifndef SLI_VECTOR_H
#define SLI_VECTOR_H

#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
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
#elif defined(__AVX2__) && defined(__FMA__)
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
#else /* any processor with vectors of 16 bytes */
enum { VL = 4 };
typedef float vf __attribute__((vector_size(16)));
static inline vf vf_load(const float *p) {
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void vf_store(float *p, vf v) {
    memcpy(p, &v, sizeof v);
}
static inline vf vf_set(float x) {
    return (vf){x, x, x, x};
}
static inline vf vf_fma(vf a, vf b, vf c) {
    return a * b + c;
}
#endif

/* Before a loop whose iterations are independent though its pointers may be equal. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

#define VF_INLINE static inline __attribute__((always_inline))

#endif
