/* One vector of floats of the instruction set that this file is compiled for, under the same names for all:
 *     VL             floats of a vector
 *     VF_REGISTERS   vector registers
 *     vf             the type; + - * / work on it
 *     vf_load, vf_store (any alignment), vf_set (one number everywhere), vf_fma (a * b + c; see the portable one)
 *     vf_load_part, vf_store_part   the first n numbers of a vector, 0 < n < VL, the others 0 or left as they are; no others are touched
 *     vf_accumulate  sum = vf_fma(a, b, sum), in the register of sum
 *     vf_stream      vf_store of a whole line of memory, past the caches, where there is that (STREAMS, the floats of a line), and
 *     vf_streamed    before others read it
 *     vf_min, vf_max, vf_clamp
 *     vf_zip         low: a0 b0 a1 b1 ... of the lower halves; high: of the upper ones
 *     vf_transpose   a square of VL rows of VL numbers */
#ifndef SLI_VECTOR_H
#define SLI_VECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* SLI_VECTOR_HALF: of AVX-512 vectors of eight, whose divisions take two thirds of the time. */
#if defined(__AVX512F__) && !defined(SLI_VECTOR_HALF)
#include "backend/cpu/isa/vector_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__)
#include "backend/cpu/isa/vector_avx2.h"
#elif defined(__SSE2__)
#include "backend/cpu/isa/vector_sse2.h"
#elif defined(SLI_VECTOR_NEON)
#include "backend/cpu/isa/vector_neon.h"
#else
#include "backend/cpu/isa/vector_portable.h"
#endif

#ifndef VF_ACCUMULATES
#define VF_ACCUMULATES 0
static inline void vf_accumulate(vf *sum, vf a, vf b) {
    *sum = vf_fma(a, b, *sum);
}
#endif

#ifndef VF_LOADS_PARTS
static inline vf vf_load_part(const float *p, int n) {
    float lanes[VL] = {0};
    for (int l = 0; l < n; l++) lanes[l] = p[l];
    return vf_load(lanes);
}
#endif
#ifndef VF_STORES_PARTS /* VL is 4 or 8 */
static inline void vf_store_part(float *p, vf v, int n) {
    float lanes[VL];
    int done = 0;
    vf_store(lanes, v);
    if (n & 4) memcpy(p, lanes, 4 * sizeof *p), done = 4;
    if (n & 2) memcpy(p + done, lanes + done, 2 * sizeof *p), done += 2;
    if (n & 1) p[done] = lanes[done];
}
#endif

#ifndef STREAMS
enum { STREAMS = 0 };
static inline void vf_stream(float *p, vf v) {
    vf_store(p, v);
}
static inline void vf_streamed(void) {}
#endif

/* The smaller and the larger; b where a is no number, and, but on arm64, where b is none. */
#if defined(__AVX512F__) && !defined(SLI_VECTOR_HALF)
#define VF_OF(name, a, b) _mm512_##name##_ps(a, b)
#elif defined(__AVX2__) && defined(__FMA__)
#define VF_OF(name, a, b) _mm256_##name##_ps(a, b)
#elif defined(__SSE2__)
#define VF_OF(name, a, b) _mm_##name##_ps(a, b)
#elif defined(SLI_VECTOR_NEON)
#define VF_OF(name, a, b) v##name##q_f32(a, b)
#endif
static inline vf vf_min(vf a, vf b) {
#ifdef VF_OF
    return VF_OF(min, a, b);
#else
    for (int l = 0; l < VL; l++) b[l] = a[l] < b[l] ? a[l] : b[l];
    return b;
#endif
}
static inline vf vf_max(vf a, vf b) {
#ifdef VF_OF
    return VF_OF(max, a, b);
#else
    for (int l = 0; l < VL; l++) b[l] = a[l] > b[l] ? a[l] : b[l];
    return b;
#endif
}
/* NaN stays. */
static inline vf vf_clamp(vf x, vf low, vf high) {
    return vf_min(high, vf_max(low, x));
}

/* Vectors of f16 and bf16, VL * 2 bytes (LANES_16 = VL), for processors with AMX or AVX512_BF16; of f16 past the caches with `stream`. */
#ifndef LANES_16
enum { LANES_16 = 0 };
static inline void vf_store_bf16(uint16_t *p, vf v, int n) { /* the first n, all or a part */
    (void)p, (void)v, (void)n;
}
static inline vf vf_load_f16(const uint16_t *p) {
    return (void)p, vf_set(0.0f);
}
static inline void vf_store_f16(uint16_t *p, vf v, bool stream) {
    (void)p, (void)v, (void)stream;
}
#endif

/* Before a loop whose iterations are independent though its pointers may be equal. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* Before a loop over vectors in an array that is to be registers: gcc unrolls others too late for that. */
#if defined(__clang__)
#define UNROLL_ALL _Pragma("unroll")
#else
#define UNROLL_ALL _Pragma("GCC unroll 16")
#endif

#ifdef SLI_LESS_INLINE /* builds that are tested only: compiled in a third of the time */
#define VF_INLINE static inline
#else
#define VF_INLINE static inline __attribute__((always_inline))
#endif

/* Registers of vectors as a number that C code can ask for: 32, else 16 (or fewer). */
#if VF_REGISTERS == 32
#define REGISTERS_32 1
#else
#define REGISTERS_32 0
#endif

/* Row c of to, VL numbers, is number c of each of VL rows of `from`. */
static inline void vf_transpose(float *to, ptrdiff_t to_line, const float *from, ptrdiff_t from_line) {
    vf rows[2][VL];
    int at = 0;
    for (int r = 0; r < VL; r++) rows[0][r] = vf_load(from + r * from_line);
    for (int step = 1; step < VL; step *= 2, at ^= 1)
        for (int r = 0; r < VL / 2; r++)
            vf_zip(rows[at][r], rows[at][r + VL / 2], &rows[at ^ 1][2 * r], &rows[at ^ 1][2 * r + 1]);
    for (int r = 0; r < VL; r++) vf_store(to + r * to_line, rows[at][r]);
}

#endif
