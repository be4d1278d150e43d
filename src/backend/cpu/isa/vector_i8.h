/* Vectors of 8-bit numbers of the instruction set this file is compiled for. A vector of weights holds four k's of VL columns; `dot`
 * multiplies them with four k's of an operand row and adds the sums to VL whole numbers of 32 bits, exactly.
 *
 * How a group of four is multiplied and added, measured where it was possible to choose:
 *     VNNI     vpdpbusd, one instruction, but unsigned times signed: A + 128, and sums start at -128 sum of W
 *     AVX2     vpmaddubsw of |A| and W with A's sign: two products of at most 127 * 127 fit into its 16 bits. 1.1 to 1.3 times
 *              as fast as widening both to 16 bits for vpmaddwd (Zen 3)
 *     AVX-512  the same, with A's sign in a mask
 *     SSE2     pmaddwd of the widened even and odd numbers
 *     NEON     sdot where it is compiled for, else products of 16 bits, of which two are added */
#ifndef SLI_VECTOR_I8_H
#define SLI_VECTOR_I8_H

#include <stdint.h>
#include <string.h>
#include "backend/cpu/isa/vector.h"
#if defined(__SSE2__)
#include <immintrin.h>
#endif

/* Operands are stored as A + OFFSET. I8_ROWS: most rows of one pass over the weights; UNROLL: sums of the same columns side by side that
 * one row needs to hide the latency of dot. Tests define SLI_VNNI_EMULATED: VNNI's layout and order in plain C. */
#if defined(SLI_VNNI_EMULATED) || !(defined(__SSE2__) || defined(SLI_VECTOR_NEON)) /* any processor */
#if defined(SLI_VNNI_EMULATED)
#define SLI_I8_HOW "i8 (emulated VNNI)"
#define I8_ROWS 5
enum { OFFSET = 128, UNROLL = 4 };
typedef uint8_t operand_number;
#else
#define SLI_I8_HOW "i8"
#define I8_ROWS 2
enum { OFFSET = 0, UNROLL = 1 };
typedef int8_t operand_number;
#endif
typedef struct vi {
    int32_t at[VL];
} vi;
typedef struct weights {
    int8_t at[4 * VL];
} weights;
typedef struct operand {
    operand_number at[4];
} operand;
VF_INLINE vi vi_load(const int32_t *p) {
    vi v;
    memcpy(&v, p, sizeof v);
    return v;
}
VF_INLINE vi vi_add(vi a, vi b) {
    for (int l = 0; l < VL; l++) a.at[l] += b.at[l];
    return a;
}
VF_INLINE vf vi_float(vi v) {
    return (vf){(float)v.at[0], (float)v.at[1], (float)v.at[2], (float)v.at[3]};
}
VF_INLINE weights weights_load(const int8_t *from) {
    weights w;
    memcpy(&w, from, sizeof w);
    return w;
}
VF_INLINE operand operand_load(const void *four) {
    operand a;
    memcpy(&a, four, sizeof a);
    return a;
}
VF_INLINE vi dot(vi sum, operand a, weights w) {
    for (int l = 0; l < VL; l++)
        for (int i = 0; i < 4; i++) sum.at[l] += a.at[i] * w.at[4 * l + i];
    return sum;
}

#elif defined(__AVX512BW__)
typedef __m512i vi;
VF_INLINE vi vi_load(const int32_t *p) {
    return _mm512_loadu_si512(p);
}
VF_INLINE vi vi_add(vi a, vi b) {
    return _mm512_add_epi32(a, b);
}
VF_INLINE vf vi_float(vi v) {
    return _mm512_cvtepi32_ps(v);
}
VF_INLINE vi group(const void *four) {
    int32_t x;
    memcpy(&x, four, sizeof x);
    return _mm512_set1_epi32(x);
}
typedef vi weights;
VF_INLINE weights weights_load(const int8_t *w) {
    return _mm512_loadu_si512(w);
}
#if defined(__AVX512VNNI__)
#define SLI_I8_HOW "i8 (AVX-512 VNNI)"
#define I8_ROWS 5
enum { OFFSET = 128, UNROLL = 4 };
typedef vi operand;
VF_INLINE operand operand_load(const void *four) {
    return group(four);
}
VF_INLINE vi dot(vi sum, operand a, weights w) {
#if defined(__clang__)
    return _mm512_dpbusd_epi32(sum, a, w);
#else /* gcc 12 copies the sums to other registers and back around the intrinsic */
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "vm"(w));
    return sum;
#endif
}
#else
#define SLI_I8_HOW "i8 (AVX-512)"
#define I8_ROWS 4
enum { OFFSET = 0, UNROLL = 1 };
typedef struct operand {
    vi size;
    __mmask64 negative;
} operand;
VF_INLINE operand operand_load(const void *four) {
    const vi a = group(four);
    return (operand){_mm512_abs_epi8(a), _mm512_movepi8_mask(a)};
}
VF_INLINE vi dot(vi sum, operand a, weights w) {
    const vi same_sign = _mm512_mask_sub_epi8(w, a.negative, _mm512_setzero_si512(), w);
    const vi pairs = _mm512_maddubs_epi16(a.size, same_sign);
    return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}
#endif

#elif defined(__AVX2__) && defined(__FMA__)
typedef __m256i vi;
VF_INLINE vi vi_load(const int32_t *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}
VF_INLINE vi vi_add(vi a, vi b) {
    return _mm256_add_epi32(a, b);
}
VF_INLINE vf vi_float(vi v) {
    return _mm256_cvtepi32_ps(v);
}
VF_INLINE vi group(const void *four) {
    int32_t x;
    memcpy(&x, four, sizeof x);
    return _mm256_set1_epi32(x);
}
typedef vi weights;
VF_INLINE weights weights_load(const int8_t *w) {
    return _mm256_loadu_si256((const __m256i *)w);
}
#if defined(__AVXVNNI__)
#define SLI_I8_HOW "i8 (AVX-VNNI)"
#define I8_ROWS 2
enum { OFFSET = 128, UNROLL = 2 };
typedef vi operand;
VF_INLINE operand operand_load(const void *four) {
    return group(four);
}
VF_INLINE vi dot(vi sum, operand a, weights w) {
#if defined(__clang__)
    return _mm256_dpbusd_avx_epi32(sum, a, w);
#else
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(a), "xm"(w));
    return sum;
#endif
}
#else
#define SLI_I8_HOW "i8 (AVX2)"
#define I8_ROWS 3
enum { OFFSET = 0, UNROLL = 1 };
typedef struct operand {
    vi value, size;
} operand;
VF_INLINE operand operand_load(const void *four) {
    const vi a = group(four);
    return (operand){a, _mm256_abs_epi8(a)};
}
VF_INLINE vi dot(vi sum, operand a, weights w) {
    const vi pairs = _mm256_maddubs_epi16(a.size, _mm256_sign_epi8(w, a.value));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
#endif

#elif defined(__SSE2__)
#define SLI_I8_HOW "i8 (SSE2)"
#define I8_ROWS 2
enum { OFFSET = 0, UNROLL = 1 };
typedef __m128i vi;
VF_INLINE vi vi_load(const int32_t *p) {
    return _mm_loadu_si128((const __m128i *)p);
}
VF_INLINE vi vi_add(vi a, vi b) {
    return _mm_add_epi32(a, b);
}
VF_INLINE vf vi_float(vi v) {
    return _mm_cvtepi32_ps(v);
}
typedef struct numbers {
    vi even, odd; /* 16 bits each */
} numbers;
typedef numbers operand, weights;
VF_INLINE numbers widen(vi v) {
    return (numbers){_mm_srai_epi16(_mm_slli_epi16(v, 8), 8), _mm_srai_epi16(v, 8)};
}
VF_INLINE weights weights_load(const int8_t *w) {
    return widen(_mm_loadu_si128((const __m128i *)w));
}
VF_INLINE operand operand_load(const void *four) {
    int32_t x;
    memcpy(&x, four, sizeof x);
    return widen(_mm_set1_epi32(x));
}
VF_INLINE vi dot(vi sum, operand a, weights w) {
    return _mm_add_epi32(sum, _mm_add_epi32(_mm_madd_epi16(a.even, w.even), _mm_madd_epi16(a.odd, w.odd)));
}

#elif defined(SLI_VECTOR_NEON)
#if defined(__ARM_FEATURE_DOTPROD)
#define SLI_I8_HOW "i8 (NEON sdot)"
#else
#define SLI_I8_HOW "i8 (NEON)"
#endif
#define I8_ROWS 4
enum { OFFSET = 0, UNROLL = 2 };
typedef int32x4_t vi;
VF_INLINE vi vi_load(const int32_t *p) {
    return vld1q_s32(p);
}
VF_INLINE vi vi_add(vi a, vi b) {
    return vaddq_s32(a, b);
}
VF_INLINE vf vi_float(vi v) {
    return vcvtq_f32_s32(v);
}
typedef int8x16_t operand, weights;
VF_INLINE weights weights_load(const int8_t *w) {
    return vld1q_s8(w);
}
VF_INLINE operand operand_load(const void *four) {
    int32_t x;
    memcpy(&x, four, sizeof x);
    return vreinterpretq_s8_s32(vdupq_n_s32(x));
}
VF_INLINE vi dot(vi sum, operand a, weights w) {
#if defined(__ARM_FEATURE_DOTPROD)
    return vdotq_s32(sum, w, a);
#else
    const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(a)), high = vmull_high_s8(w, a);
    return vpadalq_s16(sum, vpaddq_s16(low, high));
#endif
}

#endif

#endif
