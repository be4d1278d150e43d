/* Weights in 20 bits (persist_geometry.h: tight): how two tiles are tied together, and untied. */
#ifndef SLI_CUDA_PERSIST_TIGHT_CUH
#define SLI_CUDA_PERSIST_TIGHT_CUH

#include "backend/cuda/kernels/ptx.cuh"

#ifndef PERSIST_FN
#define PERSIST_FN static __device__ __forceinline__
#endif

/* tight = [lane][4] and [lane] of two tiles: see persist_untie. The low 13 bits of what is given are 0. */
PERSIST_FN void persist_tie(uint32_t *to, int lane, const uint4 &first, const uint4 &second) {
    const uint32_t y = second.y >> 19, z = second.z >> 19, w = second.w >> 19;
    const uint4 four = make_uint4(first.x | y, first.y | (second.y >> 13 & 63) << 7 | (second.z >> 13 & 63), first.z | z, first.w | w);
    *(uint4 *)(to + lane * 4) = four;
    to[128 + lane] = (second.x ^ first.x) | (second.w >> 13 & 63) << 7;
}
/* second = the second tile of a pair that is tight: a whole word, and three of 13 and 6 bits of what tensor cores do not read of tf32,
 * the low 13 bits. They do not read those of what comes of it either. */
PERSIST_FN void persist_untie(const uint32_t (&first)[4], uint32_t fifth, uint32_t (&second)[4]) {
    second[0] = fifth ^ first[0];
    second[1] = ptx_low13<19>(first[0], first[1]);
    second[2] = ptx_low13<26>(first[2], first[1]);
    second[3] = ptx_low13<19>(first[3], fifth);
}

#endif
