/* src/cell over vectors: include this before its headers, and cell_real is a vector of the instruction set. */
#ifndef SLI_CELL_VECTOR_H
#define SLI_CELL_VECTOR_H

#include <stdint.h>
#include "backend/cpu/isa/vector.h"

#define CELL_VECTOR
typedef vf cell_real;
typedef uint32_t cell_word __attribute__((vector_size(sizeof(vf))));

VF_INLINE cell_word cell_bits(cell_real x) {
    return (cell_word)x;
}

VF_INLINE cell_real cell_from_bits(cell_word bits) {
    return (cell_real)bits;
}

VF_INLINE cell_real cell_set(float x) {
    return vf_set(x);
}

VF_INLINE cell_real cell_select(cell_word which, cell_real yes, cell_real no) {
    return cell_from_bits((which & cell_bits(yes)) | (~which & cell_bits(no)));
}

/* x < y ? yes : no */
VF_INLINE cell_real cell_less(cell_real x, cell_real y, cell_real yes, cell_real no) {
    return cell_select((cell_word)(x < y), yes, no);
}

/* valid != 0 ? yes : no */
VF_INLINE cell_real cell_valid(cell_real valid, cell_real yes, cell_real no) {
    return cell_select((cell_word)(valid == vf_set(0.0f)), no, yes);
}

/* Minimum and maximum of x86 and arm64 give x where x is no number. */
VF_INLINE cell_real cell_clamp(cell_real x, cell_real low, cell_real high) {
#if defined(__AVX512F__)
    return _mm512_min_ps(high, _mm512_max_ps(low, x));
#elif defined(__AVX2__)
    return _mm256_min_ps(high, _mm256_max_ps(low, x));
#elif defined(__SSE2__)
    return _mm_min_ps(high, _mm_max_ps(low, x));
#elif defined(SLI_VECTOR_NEON)
    return vminq_f32(high, vmaxq_f32(low, x));
#else
    x = cell_less(x, low, low, x);
    return cell_less(high, x, high, x);
#endif
}

#endif
