/* cuda:step: how cells read and write what they are given. Device code alone, for nvcc and NVRTC. */
#ifndef SLI_CUDA_STEP_MEMORY_CUH
#define SLI_CUDA_STEP_MEMORY_CUH

#include "backend/cuda/kernels/persist_scales.cuh"
#include "backend/cuda/kernels/step_args.h"
#include "backend/cuda/runtime/narrow.h"
#include "core/rng.h"

/* What products multiply: as the launch says, or a kernel that is compiled for it; and what wide steps read: of runs alone 16 bits, or scaled ones. */
enum { STEP_WIDE_FLOATS, STEP_WIDE_NARROW, STEP_WIDE_SCALED };
#ifndef STEP_MATH
#define STEP_MATH(k) ((k).math)
#define STEP_WIDE_FORM(math, v) STEP_WIDE_FLOATS
#endif

/* `once`: nobody reads it again before much else has gone through L2, so it is the first to leave, and weights stay. */
#ifdef __CUDA_ARCH__
#define STEP_LOAD(once, from) ((once) ? __ldcs(from) : *(from))
#define STEP_STORE(once, to, x) ((once) ? __stcs(to, x) : (void)(*(to) = (x)))
#else
#define STEP_LOAD(once, from) (*(from))
#define STEP_STORE(once, to, x) (void)(*(to) = (x))
#endif
template <int V, bool once = false>
static __device__ __forceinline__ void step_load(float (&to)[V], const float *from) {
    if constexpr (V == 4) {
        const float4 four = STEP_LOAD(once, reinterpret_cast<const float4 *>(from));
        to[0] = four.x;
        to[1] = four.y;
        to[2] = four.z;
        to[3] = four.w;
    } else {
#pragma unroll
        for (int k = 0; k < V; k++) to[k] = STEP_LOAD(once, from + k);
    }
}

/* As step_load; zeros where there is no array. */
template <int V>
static __device__ __forceinline__ void step_load_or_zero(float (&to)[V], const float *from, size_t at) {
    if (from) {
        step_load<V>(to, from + at);
    } else {
#pragma unroll
        for (int k = 0; k < V; k++) to[k] = 0.0f;
    }
}

/* G sums that are `next` floats apart; of one, all of eight pieces are asked for before the first is added. */
template <int G, int V>
static __device__ __forceinline__ void step_load_sums(float (&to)[G][V], const step_sums &from, size_t at, size_t next) {
    enum { AT_ONCE = G > 2 ? 1 : SLI_STEP_WIDE_PIECES - 1 };
#pragma unroll
    for (int g = 0; g < G; g++) {
        if constexpr (G > 1)
            step_load<V>(to[g], from.data + at + g * next); /* gates: there always are sums */
        else
            step_load_or_zero<V>(to[g], from.data, at);
    }
    for (int first = 1; first < from.pieces; first += AT_ONCE) {
        float more[AT_ONCE][G][V];
#pragma unroll
        for (int p = 0; p < AT_ONCE; p++)
#pragma unroll
            for (int g = 0; g < G; g++)
                if (first + p < from.pieces)
                    step_load<V>(more[p][g], from.data + (first + p) * from.apart + at + g * next);
#pragma unroll
        for (int p = 0; p < AT_ONCE; p++)
#pragma unroll
            for (int g = 0; g < G; g++)
#pragma unroll
                for (int k = 0; k < V; k++)
                    if (first + p < from.pieces) to[g][k] += more[p][g][k];
    }
}

template <int V, bool once = false>
static __device__ __forceinline__ void step_store(float *to, const float (&from)[V]) {
    if constexpr (V == 4) {
        STEP_STORE(once, reinterpret_cast<float4 *>(to), make_float4(from[0], from[1], from[2], from[3]));
    } else {
#pragma unroll
        for (int k = 0; k < V; k++) STEP_STORE(once, to + k, from[k]);
    }
}

/* Operands are 16-bit; else float. */
static __device__ __forceinline__ bool step_is_narrow(int math) {
    return math == STEP_BF16 || math == STEP_F16;
}

static __device__ __forceinline__ uint32_t step_bits16(int math, float x) {
    return math == STEP_BF16 ? sli_to_bf16(x) : sli_to_f16(x);
}

static __device__ __forceinline__ float step_widen(int math, uint32_t bits) {
    if (math == STEP_BF16) return __uint_as_float(bits << 16);
    return sli_from_f16((uint16_t)bits);
}

/* to[at ...] = BITS(k), of 16 bits, k 0 to V - 1. */
template <int V, class BITS> static __device__ __forceinline__ void step_store_narrow(uint16_t *to, size_t at, const BITS &bits) {
    if constexpr (V == 4) {
        *reinterpret_cast<uint2 *>(to + at) = make_uint2(bits(0) | bits(1) << 16, bits(2) | bits(3) << 16);
    } else {
#pragma unroll
        for (int k = 0; k < V; k++) to[at + k] = (uint16_t)bits(k);
    }
}

/* to[at ...] = from, rounded to the operand type; `once`: of floats. */
template <int V, bool once = false>
static __device__ __forceinline__ void step_operand(int math, void *to, size_t at, const float (&from)[V]) {
    if (!step_is_narrow(math)) {
        step_store<V, once>(static_cast<float *>(to) + at, from);
    } else {
        step_store_narrow<V>(static_cast<uint16_t *>(to), at, [&](int k) { return step_bits16(math, from[k]); });
    }
}

/* V numbers of y or dy; from NULL: zeros. */
template <int V>
static __device__ __forceinline__ void step_store_io(const step_common &k, void *to, size_t at, const float (&from)[V]) {
    if (k.narrow_io)
        step_store_narrow<V>(static_cast<uint16_t *>(to), at, [&](int n) { return step_bits16(STEP_MATH(k), from[n]); });
    else
        step_store<V>(static_cast<float *>(to) + at, from);
}
template <int V>
static __device__ __forceinline__ void step_load_io(float (&to)[V], const step_common &k, const void *from, size_t at) {
    if (!k.narrow_io) {
        step_load_or_zero<V>(to, static_cast<const float *>(from), at);
        return;
    }
    const uint16_t *const bits = static_cast<const uint16_t *>(from) + at;
    uint32_t two[(V + 1) / 2] = {};
    if (from && V == 4) {
        const uint2 four = *reinterpret_cast<const uint2 *>(bits);
        two[0] = four.x;
        two[(V - 1) / 2] = four.y;
    } else if (from) {
        two[0] = *bits;
    }
#pragma unroll
    for (int n = 0; n < V; n++) to[n] = step_widen(STEP_MATH(k), two[n / 2] >> (n % 2 * 16) & 0xffffu);
}

/* V values of k from j on of a row of the batch, for the product of the next step. */
template <int V>
static __device__ __forceinline__ void step_put_wide(int math, const step_wide_v &v, int row, int j, const float (&from)[V]) {
    if (!v.to) return;
    const int form = STEP_WIDE_FORM(math, v);
    const int piece = form == STEP_WIDE_FLOATS ? 4 : 8; /* elements of 16 bytes */
    const int64_t at = row / v.rows * v.tile + ((int64_t)(j / piece) * v.rows + row % v.rows) * piece + j % piece;
    const float scale = persist_scale_of_v(v.bound);
    if (form == STEP_WIDE_SCALED)
        step_store_narrow<V>(static_cast<uint16_t *>(v.to), (size_t)at, [&](int k) { return persist_scaled_or_nan(from[k], scale); });
    else if (form == STEP_WIDE_NARROW)
        step_operand<V>(math, v.to, (size_t)at, from);
    else
        step_store<V>(static_cast<float *>(v.to) + at, from);
}

/* Zeros behind the `count` elements of an operand row. */
static __device__ __forceinline__ void step_operand_tail(int math, void *row_begin, int64_t count,
                                                         int64_t stride) {
    for (int64_t k = count; k < stride; k++) {
        if (!step_is_narrow(math))
            static_cast<float *>(row_begin)[k] = 0.0f;
        else
            static_cast<uint16_t *>(row_begin)[k] = 0;
    }
}

static __device__ __forceinline__ void *step_operand_row(int math, void *base, size_t at) {
    return static_cast<char *>(base) + at * (step_is_narrow(math) ? 2 : 4);
}

static __device__ __forceinline__ float step_zone_weight(const step_zone &zone, const step_common &k, int row, int j,
                                                         int width) {
    if (!zone.draw) return zone.expected;
    const sli_rng rng = {k.scalars->seed, k.scalars->step, k.scalars->micro_step, zone.stream};
    const uint64_t element = (k.first_row + (uint64_t)row) * (uint64_t)width + (uint64_t)j;
    return sli_rng_word(&rng, element) < zone.threshold ? 1.0f : 0.0f;
}

static __device__ __forceinline__ unsigned step_flags_of(const step_common &k, int row) {
    return k.flags ? k.flags[row] : (unsigned)(SLI_STEP_VALID | SLI_STEP_SHOWN);
}

/* The new h of V units: y, the float copy, the operand copy d h, the leaving state. */
template <int V>
static __device__ __forceinline__ void step_put_h(const step_forward_args &a, int row, int j, unsigned flags,
                                                  const float (&h)[V]) {
    const size_t at = (size_t)row * a.k.O + j;
    float dropped[V], shown[V];
#pragma unroll
    for (int n = 0; n < V; n++) {
        dropped[n] = a.k.factor ? a.k.factor[at + n] * h[n] : h[n];
        shown[n] = flags & SLI_STEP_SHOWN ? h[n] : 0.0f;
    }
    const size_t operand_at = (size_t)row * a.k.hs;
    step_operand<V>(STEP_MATH(a.k), a.operand_h, operand_at + j, dropped);
    if (j + V >= a.k.O) step_operand_tail(STEP_MATH(a.k), step_operand_row(STEP_MATH(a.k), a.operand_h, operand_at), a.k.O, a.k.hs);
    step_put_wide<V>(STEP_MATH(a.k), a.wide, row, j, dropped);
    if (a.h_to) step_store<V>(a.h_to + at, h);
    if (a.y) step_store_io<V>(a.k, a.y, (size_t)row * a.y_row + j, shown);
    if (a.h_last) step_store<V>(a.h_last + at, h);
}

/* pw + d dp, rounded alike wherever a segment of time ends. */
static __device__ __forceinline__ float step_join(float pw, const float *factor, size_t at, float dp) {
    return factor ? fmaf(factor[at], dp, pw) : pw + dp;
}

/* dh = (pw + d dp) + dy of V units, in this order: pw + d dp is what a state's gradient is where a segment of time ends, and
 * segments change no bit. What does not come from the product is loaded early. */
template <int V>
static __device__ __forceinline__ void step_dh_early(const step_backward_args &a, int row, int j, unsigned flags,
                                                     float (&dh)[V], float (&dy)[V]) {
    step_load_or_zero<V>(dh, a.pw_from, (size_t)row * a.k.O + j);
    step_load_io<V>(dy, a.k, flags & SLI_STEP_SHOWN ? a.dy : nullptr, (size_t)row * a.dy_row + j);
}

template <int V>
static __device__ __forceinline__ void step_dh_late(const step_backward_args &a, int row, int j, float (&dh)[V],
                                                    const float (&dy)[V]) {
    const size_t at = (size_t)row * a.k.O + j;
    float dp[1][V];
    step_load_sums<1, V>(dp, a.dp, (size_t)row * a.k.hs + j, 0);
#pragma unroll
    for (int n = 0; n < V; n++) dh[n] = step_join(dh[n], a.k.factor, at + n, dp[0][n]) + dy[n];
}

#endif
