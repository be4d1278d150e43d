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
#define VF_LOADS_PARTS
static inline vf vf_load_part(const float *p, int n) {
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
#define VF_STORES_PARTS
static inline void vf_store_part(float *p, vf v, int n) {
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v);
}
#define STREAMS VL
static inline void vf_stream(float *p, vf v) {
    _mm512_stream_ps(p, v);
}
static inline void vf_streamed(void) {
    _mm_sfence();
}
#define LANES_16 VL
/* Rounded to nearest. As an instruction: this file is compiled for processors without it as well. */
static inline void vf_store_bf16(uint16_t *p, vf v, int n) {
    __m256i halves;
    __asm__("vcvtneps2bf16 %1, %0" : "=v"(halves) : "v"(v));
    if (n == VL)
        _mm256_storeu_si256((__m256i *)(void *)p, halves);
    else
        _mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1), halves);
}
static inline vf vf_load_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
static inline void vf_store_f16(uint16_t *p, vf v, bool stream) {
    const __m256i halves = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    if (stream)
        _mm256_stream_si256((__m256i *)(void *)p, halves);
    else
        _mm256_storeu_si256((__m256i *)(void *)p, halves);
}
static inline vf vf_set(float x) {
    return _mm512_set1_ps(x);
}
static inline vf vf_fma(vf a, vf b, vf c) {
    return _mm512_fmadd_ps(a, b, c);
}
static inline void vf_zip(vf a, vf b, vf *low, vf *high) {
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    *low = _mm512_permutex2var_ps(a, first, b);
    *high = _mm512_permutex2var_ps(a, _mm512_add_epi32(first, _mm512_set1_epi32(8)), b);
}

#endif
