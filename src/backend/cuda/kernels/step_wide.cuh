/* cuda:step, wide steps: the product of a step with R, or R^T, of many rows of the batch. A block has 128 rows of M = R or R^T (which become
 * columns of D) by `rows` of the batch, and a piece of k; D of each piece goes to memory, and the cells add the pieces, in order.
 *
 * What bounds such a product is the way of the weights: of 4096 units they come from memory in every step. So they lie packed, in tf32 in 20 bits
 * (persist_geometry.h: tight) in the order in which a lane reads them, in 16 bits as wgmma reads them; a block's part of a stage, 128 bytes of k, is one
 * copy. v lies as wgmma reads it, [tile of rows][pieces of 16 bytes of k][row][16 bytes], which the cells write beside what else they leave. Device code
 * alone, for nvcc and NVRTC. */
#ifndef SLI_CUDA_STEP_WIDE_CUH
#define SLI_CUDA_STEP_WIDE_CUH

#include "backend/cuda/kernels/persist_scales.cuh"
#include "backend/cuda/kernels/persist_tight.cuh"
#include "backend/cuda/kernels/step_args.h"

enum {
    WIDE_WARPS = 8, /* that multiply: two groups of four */
    WIDE_COURIERS = 4, /* warps beside those, a lane or two of which bring operands: registers change hands by four warps */
    WIDE_THREADS = SLI_STEP_WIDE_THREADS,
    WIDE_REGISTERS = 232,
    WIDE_COURIER_REGISTERS = 40,
    WIDE_TALL = SLI_STEP_WIDE_TALL,
    WIDE_LINES = SLI_STEP_WIDE_BYTES / 16, /* pieces of 16 bytes of k in a stage, of which an instruction multiplies two */
    WIDE_PAIR = 640,                       /* tf32: bytes of two tiles of 16 rows by 8 of k */
    WIDE_WARP_BYTES = WIDE_LINES / 4 * WIDE_PAIR
};

#ifndef WIDE_MEMORY
#define WIDE_MEMORY(name) extern __shared__ __align__(128) unsigned char name[]
#endif

static_assert(WIDE_THREADS == 32 * (WIDE_WARPS + WIDE_COURIERS), "threads of a block");

/* Of one instance. MATH: 1 tf32, 2 bf16, 3 f16, as ptx_multiply_together has it. HELD: stages whose weights stay in registers, in 16 bits. Weights and v have a ring of slots each: that of weights is as deep as there is
 * room, as they come from afar. PAIR: with room for half a block's sums of another. SCALED: f16 in tf32's place, R and v times powers of two, which sums are rid of (persist_scales.cuh). */
template <int rows_, int math_, int held_, bool pair_ = false, bool scaled_ = false> struct wide_cut {
    enum {
        rows = rows_,
        math = math_,
        narrow = math_ > 1,
        tiles_n = rows / 8,
        weights_bytes = SLI_STEP_WIDE_WEIGHTS(narrow),
        v_bytes = rows * SLI_STEP_WIDE_BYTES,
        v_slots = SLI_STEP_WIDE_V_SLOTS(rows, narrow),
        pair = pair_,
        scaled = scaled_,
        slots = SLI_STEP_WIDE_SLOTS(rows, narrow, pair),
        held = held_,
        v_at = slots * weights_bytes,
        coming_at = v_at + v_slots * v_bytes,
        barriers_at = coming_at + SLI_STEP_WIDE_COMING(rows, pair)
    };
    static_assert(!scaled || math == 3, "f16 is scaled");
    static_assert(weights_bytes == (narrow ? WIDE_LINES * WIDE_TALL * 16 : WIDE_WARPS * WIDE_WARP_BYTES), "as packed");
};

/* A block's place: of M, of the batch, of k. */
typedef struct wide_place {
    int block, tile, begin, end; /* stages [begin, end) */
    int piece;
} wide_place;

template <bool pair> static __device__ __forceinline__ wide_place wide_find(const wide_args &a, int block) {
    if constexpr (pair) return {block / 2, 0, block % 2 * a.stages / 2, (block % 2 + 1) * a.stages / 2, block % 2};
    const int of_m = block % a.blocks, rest = block / a.blocks, piece = rest % a.pieces;
    return {of_m, rest / a.pieces, piece * a.stages / a.pieces, (piece + 1) * a.stages / a.pieces, piece};
}

/* Where a thread is in a ring of slots: stage after stage, of product after product. */
typedef struct wide_at {
    int slot;
    uint32_t parity;
} wide_at;
typedef struct wide_rings {
    wide_at weights, v;
} wide_rings;

template <int slots> static __device__ __forceinline__ void wide_next(wide_at &at) {
    if (++at.slot == slots) at.slot = 0, at.parity ^= 1u;
}

/* Places in shared memory: of a slot; of the barriers that say that it is full, and free. */
template <class C> static __device__ __forceinline__ uint32_t wide_weights(uint32_t shared, int slot) {
    return shared + (uint32_t)(slot * C::weights_bytes);
}
template <class C> static __device__ __forceinline__ uint32_t wide_v(uint32_t shared, int slot) {
    return shared + (uint32_t)(C::v_at + slot * C::v_bytes);
}
template <class C> static __device__ __forceinline__ uint32_t wide_weights_full(uint32_t shared, int slot) {
    return shared + (uint32_t)(C::barriers_at + slot * 16);
}
template <class C> static __device__ __forceinline__ uint32_t wide_v_full(uint32_t shared, int slot) {
    return shared + (uint32_t)(C::barriers_at + (C::slots + slot) * 16);
}
/* That says that a pair's other sums are there. */
template <class C> static __device__ __forceinline__ uint32_t wide_coming_full(uint32_t shared) {
    return shared + (uint32_t)(C::barriers_at + (C::slots + C::v_slots) * 16);
}
static __device__ __forceinline__ uint32_t wide_free(uint32_t full) {
    return full + 8;
}

/* By one thread, before all others go on. */
template <class C> static __device__ __forceinline__ void wide_init(uint32_t shared) {
    for (int slot = 0; slot < C::slots + C::v_slots; slot++) {
        ptx_arrivals_init(wide_weights_full<C>(shared, slot), 1); /* and of v behind them */
        ptx_arrivals_init(wide_free(wide_weights_full<C>(shared, slot)), WIDE_WARPS);
    }
    if (C::pair) ptx_arrivals_init(wide_coming_full<C>(shared), 1);
    ptx_arrivals_init_fence();
}

/* The weights of a product that registers do not hold, each stage as soon as its slot is free. The phase before a barrier's first one counts as over. */
template <class C>
static __device__ __forceinline__ void wide_bring_weights(const wide_args &a, uint32_t shared, const wide_place &place, wide_at &at) {
    const int64_t next = (int64_t)a.blocks * C::weights_bytes;
    const int begin = place.begin + C::held;
    const unsigned char *from = a.weights + (int64_t)place.block * C::weights_bytes + begin * next;
    for (int i = begin; i < place.end; i++, from += next, wide_next<C::slots>(at)) {
        const uint32_t to = wide_weights<C>(shared, at.slot), full = wide_weights_full<C>(shared, at.slot);
        ptx_arrivals_wait(wide_free(full), at.parity ^ 1u);
        ptx_arrivals_expect(full, C::weights_bytes);
        if (i - begin < a.near)
            ptx_bring_again(to, from, C::weights_bytes, full);
        else
            ptx_bring_once(to, from, C::weights_bytes, full);
    }
}

/* The same of v, which is there; `turn`: which of two. */
template <class C>
static __device__ __forceinline__ void wide_bring_v(const wide_args &a, uint32_t shared, const wide_place &place, int turn, wide_at &at) {
    const unsigned char *from = a.v + turn * a.v_apart + ((int64_t)place.tile * a.stages + place.begin) * C::v_bytes;
    for (int i = place.begin; i < place.end; i++, from += C::v_bytes, wide_next<C::v_slots>(at)) {
        const uint32_t full = wide_v_full<C>(shared, at.slot);
        ptx_arrivals_wait(wide_free(full), at.parity ^ 1u);
        ptx_arrivals_expect(full, C::v_bytes);
        ptx_bring(wide_v<C>(shared, at.slot), from, C::v_bytes, full);
    }
}

template <class C> struct wide_sums { float of[C::tiles_n][4]; };
/* tf32: a lane's words of its warp's tiles of a stage. */
struct wide_tiles { uint32_t of[WIDE_LINES / 2][4]; };

static __device__ __forceinline__ void wide_load(wide_tiles &tiles, uint32_t weights) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int pair = 0; pair < WIDE_LINES / 4; pair++) {
        const uint32_t from = weights + (uint32_t)(pair * WIDE_PAIR);
        ptx_load_shared(tiles.of[2 * pair], from + lane * 16);
        persist_untie(tiles.of[2 * pair], ptx_load_word(from + 512 + lane * 4), tiles.of[2 * pair + 1]);
    }
}

/* 16 bits: the first stages' weights of a lane, as words. */
template <class C> struct wide_held { uint32_t of[C::held > 0 ? C::held : 1][WIDE_LINES / 2][4]; };
template <class C>
static __device__ __forceinline__ void wide_hold(const wide_args &a, const wide_place &place, int warp, wide_held<C> &held) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < C::held; i++) {
        const unsigned char *from = a.weights + ((int64_t)(place.begin + i) * a.blocks + place.block) * C::weights_bytes +
                                    (warp * 16 + lane / 4) * 16 + lane % 4 * 4;
#pragma unroll
        for (int k = 0; k < WIDE_LINES / 2; k++)
#pragma unroll
            for (int w = 0; w < 4; w++) ptx_load4_constant(held.of[i][k][w], from + ((2 * k + w / 2) * WIDE_TALL + w % 2 * 8) * 16);
    }
}

/* sums += a stage: four warps together multiply 64 rows of M by all rows of the batch, 32 bytes of k at a time. WEIGHTS(k): a's words, or its descriptor. */
template <class C, class WEIGHTS>
static __device__ __forceinline__ void wide_begin(wide_sums<C> &sums, uint32_t v, const WEIGHTS &weights) {
    ptx_together_begin();
#pragma unroll
    for (int k = 0; k < WIDE_LINES / 2; k++)
        ptx_multiply_together<C::math>(sums.of, weights(k), ptx_operand_of(v + (uint32_t)(k * 2 * C::rows * 16), C::rows * 16, 128));
    ptx_together_commit();
}

/* All lanes have read what is in the slot. */
static __device__ __forceinline__ void wide_give_back(uint32_t full) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx_arrive(wide_free(full));
}

/* sums = those of `count` stages. In tf32 a stage is multiplied while the next one's weights come to registers. Its slots go back when it is multiplied: not
 * as soon as a lane has asked for its words, since ptxas lets a warp arrive at a barrier while loads of shared memory are under way; */
template <class C>
static __device__ __forceinline__ void wide_multiply_words(uint32_t shared, int warp, int count, wide_rings &at,
                                                           wide_sums<C> &sums) {
    wide_tiles tiles[2];
    const auto enter = [&](wide_tiles &to) {
        const uint32_t full = wide_weights_full<C>(shared, at.weights.slot);
        ptx_arrivals_wait(full, at.weights.parity);
        wide_load(to, wide_weights<C>(shared, at.weights.slot) + (uint32_t)(warp * WIDE_WARP_BYTES));
        wide_next<C::slots>(at.weights);
        return full;
    };
    uint32_t own = enter(tiles[0]);
    const auto stage = [&](const wide_tiles &now, wide_tiles &next, bool last) {
        const uint32_t v = wide_v_full<C>(shared, at.v.slot);
        uint32_t entered = 0;
        ptx_arrivals_wait(v, at.v.parity);
        ptx_together_sums(sums.of);
        wide_begin<C>(sums, wide_v<C>(shared, at.v.slot), [&](int k) -> const uint32_t(&)[4] { return now.of[k]; });
        wide_next<C::v_slots>(at.v);
        if (!last) entered = enter(next);
        ptx_together_wait<0>();
        ptx_together_sums(sums.of);
        wide_give_back(v);
        wide_give_back(own);
        own = entered;
    };
    for (int i = 0; i < count; i += 2) {
        stage(tiles[0], tiles[1], i + 1 == count);
        if (i + 1 < count) stage(tiles[1], tiles[0], i + 2 == count);
    }
}

/* in 16 bits while the one before comes to its end. */
typedef struct wide_used {
    uint32_t weights, v; /* barriers of the stage before; 0: none */
} wide_used;
template <class C, class WEIGHTS>
static __device__ __forceinline__ void wide_multiply_stage(uint32_t shared, uint32_t weights_full, wide_at &at, wide_used &before,
                                                           wide_sums<C> &sums, const WEIGHTS &weights) {
    const uint32_t v_full = wide_v_full<C>(shared, at.slot);
    ptx_arrivals_wait(v_full, at.parity);
    wide_begin<C>(sums, wide_v<C>(shared, at.slot), weights);
    ptx_together_wait<1>();
    if (before.v) wide_give_back(before.v);
    if (before.weights) wide_give_back(before.weights);
    before = {weights_full, v_full};
    wide_next<C::v_slots>(at);
}

/* Of stages that are held v alone comes. */
template <class C>
static __device__ __forceinline__ void wide_multiply_shared(uint32_t shared, int warp, int count, wide_rings &at, const wide_held<C> &held,
                                                            wide_sums<C> &sums) {
    const uint32_t group = ptx_uniform((uint32_t)(warp / 4 * 64 * 16));
    wide_used before = {0, 0};
    ptx_together_sums(sums.of);
#pragma unroll
    for (int i = 0; i < C::held; i++)
        wide_multiply_stage<C>(shared, 0, at.v, before, sums, [&](int k) -> const uint32_t(&)[4] { return held.of[i][k]; });
    for (int i = C::held; i < count; i++) {
        const uint32_t full = wide_weights_full<C>(shared, at.weights.slot), weights = wide_weights<C>(shared, at.weights.slot) + group;
        ptx_arrivals_wait(full, at.weights.parity);
        wide_multiply_stage<C>(shared, full, at.v, before, sums,
                               [&](int k) { return ptx_operand_of(weights + (uint32_t)(k * 2 * WIDE_TALL * 16), WIDE_TALL * 16, 128); });
        wide_next<C::slots>(at.weights);
    }
    ptx_together_wait<0>();
    ptx_together_sums(sums.of);
    wide_give_back(before.v);
    wide_give_back(before.weights);
}

/* Of a launch, for a whole warp. */
template <class C> static __device__ __forceinline__ float wide_unscale(const wide_args &a) {
    if constexpr (!C::scaled) return 1.0f;
    return persist_inverse(persist_scale_of_v(a.bound) * persist_scale(persist_largest(persist_ask_largest(a.largest, (int)threadIdx.x % 32))));
}

/* A block has more stages than are held. */
template <class C>
static __device__ __forceinline__ void wide_multiply_stages(uint32_t shared, int warp, int count, wide_rings &at, const wide_held<C> &held,
                                                            float unscale, wide_sums<C> &sums) {
#pragma unroll
    for (int i = 0; i < C::tiles_n * 4; i++) sums.of[i / 4][i % 4] = 0.0f;
    if constexpr (C::narrow)
        wide_multiply_shared<C>(shared, warp, count, at, held, sums);
    else
        wide_multiply_words<C>(shared, warp, count, at, sums);
    if constexpr (C::scaled) {
#pragma unroll
        for (int i = 0; i < C::tiles_n * 4; i++) sums.of[i / 4][i % 4] *= unscale;
    }
}

/* D: eight lanes write 32 bytes of a row, which is what L2 writes. */
template <class C>
static __device__ __forceinline__ void wide_put(const wide_args &a, const wide_place &place, int warp, const wide_sums<C> &sums) {
    const int lane = (int)threadIdx.x % 32, m0 = place.block * WIDE_TALL + warp * 16 + lane / 4;
    const int b0 = place.tile * C::rows + lane % 4 * 2;
    float *to = a.d + place.piece * a.apart + (int64_t)b0 * a.row + m0;
#pragma unroll
    for (int n = 0; n < C::tiles_n; n++, to += 8 * (int64_t)a.row)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = i % 2, of_m = i / 2 * 8;
            if (b0 + n * 8 + row < a.B && m0 + of_m < a.row) to[row * a.row + of_m] = sums.of[n][i];
        }
}

/* One product, by a launch of its own. `wait`: until v is there; weights are asked for before. */
template <class C, class WAIT>
static __device__ __forceinline__ void wide_product(const wide_args &a, unsigned char *memory, const WAIT &wait) {
    const uint32_t shared = ptx_shared(memory);
    const wide_place place = wide_find<false>(a, (int)blockIdx.x);
    const int warp = (int)ptx_uniform(threadIdx.x / 32), count = place.end - place.begin;
    if (threadIdx.x == 0) wide_init<C>(shared);
    __syncthreads();
    if (warp >= WIDE_WARPS) {
        PTX_REGISTERS_FEWER(WIDE_COURIER_REGISTERS);
        wide_at at = {0, 0};
        if (threadIdx.x == 32 * WIDE_WARPS) wide_bring_weights<C>(a, shared, place, at);
        if (threadIdx.x == 32 * WIDE_WARPS + 32) {
            wait();
            ptx_fence_bring();
            wide_bring_v<C>(a, shared, place, 0, at);
        }
        return;
    }
    PTX_REGISTERS_MORE(WIDE_REGISTERS);
    wide_sums<C> sums;
    wide_rings at = {{0, 0}, {0, 0}};
    wide_multiply_stages<C>(shared, warp, count, at, wide_held<C>(), 1.0f, sums);
    wide_put<C>(a, place, warp, sums);
}

#endif
