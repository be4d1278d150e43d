/* cuda:step, wide steps: the product of a step with R, or R^T, in tf32, of many rows of the batch. A block has 128 rows of M = R or R^T (which become
 * columns of D) by `rows` of the batch, and a piece of k; D of each piece goes to memory, and the cells add the pieces, in order.
 *
 * What bounds such a product is the way of the weights: of 4096 units they come from memory in every step. So they lie packed in 20 bits (persist_geometry.h:
 * tight), in the order in which a lane reads them, and a block's part of a stage, 32 of k, is one copy. v lies as wgmma reads it, [tile of rows][k / 4][row][4],
 * which the cells write beside what else they leave. One lane asks for both; before the launch that makes v has ended it asks for weights. */
#ifndef SLI_CUDA_STEP_WIDE_CUH
#define SLI_CUDA_STEP_WIDE_CUH

#include "backend/cuda/kernels/persist_tight.cuh"
#include "backend/cuda/step_layout.h"

enum {
    WIDE_WARPS = 8, /* that multiply: two groups of four */
    WIDE_COURIERS = 4, /* warps beside those, one lane of which brings operands: registers change hands by four warps */
    WIDE_THREADS = 32 * (WIDE_WARPS + WIDE_COURIERS),
    WIDE_REGISTERS = 232,
    WIDE_COURIER_REGISTERS = 40,
    WIDE_K = SLI_STEP_WIDE_K,
    WIDE_TALL = SLI_STEP_WIDE_TALL,
    WIDE_PAIR = 640, /* bytes of two tiles of 16 rows by 8 of k */
    WIDE_SHARED = 227 * 1024,
    WIDE_MATH = 1 /* tf32: ptx_multiply_together */
};

/* D[piece][row of the batch][row of M]. */
typedef struct wide_args {
    const unsigned char *weights; /* [stages][blocks of M][warps][pairs of k][WIDE_PAIR] */
    const float *v;               /* [tiles of rows][stages * WIDE_K / 4][rows][4] */
    float *d;                     /* = [pieces][B][row] */
    int64_t apart;                /* floats from piece to piece */
    int row, B, stages, pieces;   /* row: a multiple of 4, M up to it */
    int near; /* of a piece's stages: the weights of so many are to stay in L2 */
} wide_args;

/* Of one instance. */
template <int rows_> struct wide_cut {
    enum {
        rows = rows_,
        tiles_n = rows / 8,
        warp_bytes = WIDE_K / 16 * WIDE_PAIR,
        weights_bytes = WIDE_WARPS * warp_bytes,
        v_bytes = rows * WIDE_K * 4,
        stage_bytes = v_bytes + weights_bytes, /* a multiple of 128 */
        slots = (WIDE_SHARED - 256) / stage_bytes,
        barriers_at = slots * stage_bytes,
        shared_bytes = barriers_at + 2 * slots * 8,
        line = WIDE_TALL + 4 /* of D on its way: lanes of a warp meet 32 banks */
    };
    static_assert(rows * line * 4 <= barriers_at, "D takes the place of stages");
};

template <class C> static __device__ __forceinline__ uint32_t wide_slot(uint32_t shared, int slot) {
    return shared + (uint32_t)(slot * C::stage_bytes);
}
template <class C> static __device__ __forceinline__ uint32_t wide_full(uint32_t shared, int slot) {
    return shared + (uint32_t)(C::barriers_at + slot * 8);
}
template <class C> static __device__ __forceinline__ uint32_t wide_free(uint32_t shared, int slot) {
    return shared + (uint32_t)(C::barriers_at + (C::slots + slot) * 8);
}

/* Stages [begin, end): what the lane asks for. `wait`: until v is there. */
template <class C, class WAIT>
static __device__ __forceinline__ void wide_bring(const wide_args &a, uint32_t shared, int block, int tile, int begin,
                                                  int end, const WAIT &wait) {
    const int64_t next = (int64_t)gridDim.x * C::weights_bytes;
    const unsigned char *weights = a.weights + (int64_t)block * C::weights_bytes + begin * next;
    const unsigned char *v = (const unsigned char *)a.v + ((int64_t)tile * a.stages + begin) * C::v_bytes;
    const int count = end - begin, first = count < C::slots ? count : (int)C::slots;
    const auto bring_weights = [&](int i, uint32_t to, uint32_t full) {
        const unsigned char *from = weights + i * next;
        if (i < a.near)
            ptx_bring_again(to + C::v_bytes, from, C::weights_bytes, full);
        else
            ptx_bring_once(to + C::v_bytes, from, C::weights_bytes, full);
    };
    for (int i = 0; i < first; i++) {
        const uint32_t to = wide_slot<C>(shared, i), full = wide_full<C>(shared, i);
        ptx_arrivals_expect(full, C::stage_bytes);
        bring_weights(i, to, full);
    }
    wait();
    ptx_fence_bring();
    for (int i = 0; i < first; i++)
        ptx_bring(wide_slot<C>(shared, i), v + (int64_t)i * C::v_bytes, C::v_bytes, wide_full<C>(shared, i));
    uint32_t parity = 0;
    for (int i = first, slot = 0; i < count; i++) {
        const uint32_t to = wide_slot<C>(shared, slot), full = wide_full<C>(shared, slot);
        ptx_arrivals_wait(wide_free<C>(shared, slot), parity);
        ptx_arrivals_expect(full, C::stage_bytes);
        bring_weights(i, to, full);
        ptx_bring(to, v + (int64_t)i * C::v_bytes, C::v_bytes, full);
        if (++slot == C::slots) slot = 0, parity ^= 1u;
    }
}

template <class C> struct wide_sums { float of[C::tiles_n][4]; };
/* A lane's words of its warp's tiles of a stage. */
struct wide_tiles { uint32_t of[WIDE_K / 8][4]; };

static __device__ __forceinline__ void wide_load(wide_tiles &tiles, uint32_t weights) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int pair = 0; pair < WIDE_K / 16; pair++) {
        const uint32_t from = weights + (uint32_t)(pair * WIDE_PAIR);
        ptx_load_shared(tiles.of[2 * pair], from + lane * 16);
        persist_untie(tiles.of[2 * pair], ptx_load_word(from + 512 + lane * 4), tiles.of[2 * pair + 1]);
    }
}

/* sums += a stage: four warps together multiply 64 rows of M by all rows of the batch, 8 of k at a time. */
template <class C>
static __device__ __forceinline__ void wide_begin(wide_sums<C> &sums, const wide_tiles &tiles, uint32_t v) {
    ptx_together_sums(sums.of);
    ptx_together_begin();
#pragma unroll
    for (int k = 0; k < WIDE_K / 8; k++)
        ptx_multiply_together<WIDE_MATH>(sums.of, tiles.of[k], ptx_operand_of(v + (uint32_t)(k * 2 * C::rows * 16), C::rows * 16, 128));
    ptx_together_commit();
}

/* D by way of shared memory, where nobody reads stages any more: lines of it are whole. */
template <class C>
static __device__ __forceinline__ void wide_put(const wide_args &a, unsigned char *shared, const wide_sums<C> &sums,
                                                int block, int tile, int piece) {
    float *const d = (float *)shared;
    const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32;
    ptx_barrier(1, 32 * WIDE_WARPS);
#pragma unroll
    for (int n = 0; n < C::tiles_n; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int of_m = warp * 16 + lane / 4 + i / 2 * 8;
            d[(n * 8 + lane % 4 * 2 + i % 2) * C::line + of_m] = sums.of[n][i];
        }
    ptx_barrier(1, 32 * WIDE_WARPS);
    const int m0 = block * WIDE_TALL, b0 = tile * C::rows;
    float *const to = a.d + piece * a.apart;
    for (int at = thread; at < C::rows * (WIDE_TALL / 4); at += 32 * WIDE_WARPS) {
        const int of_row = at / (WIDE_TALL / 4), m = at % (WIDE_TALL / 4) * 4;
        if (b0 + of_row >= a.B || m0 + m >= a.row) continue;
        *(float4 *)(to + (int64_t)(b0 + of_row) * a.row + m0 + m) = *(const float4 *)(d + of_row * C::line + m);
    }
}

/* grid: blocks of M, then tiles of rows by pieces. */
template <class C, class WAIT>
static __device__ __forceinline__ void wide_product(const wide_args &a, unsigned char *memory, const WAIT &wait) {
    const uint32_t shared = ptx_shared(memory);
    const int block = (int)blockIdx.x, tile = (int)blockIdx.y / a.pieces, piece = (int)blockIdx.y % a.pieces;
    const int begin = piece * a.stages / a.pieces, end = (piece + 1) * a.stages / a.pieces;
    const int warp = (int)ptx_uniform(threadIdx.x / 32), count = end - begin;
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < C::slots; slot++) {
            ptx_arrivals_init(wide_full<C>(shared, slot), 1);
            ptx_arrivals_init(wide_free<C>(shared, slot), WIDE_WARPS);
        }
        ptx_arrivals_init_fence();
    }
    __syncthreads();
    if (warp >= WIDE_WARPS) {
        PTX_REGISTERS_FEWER(WIDE_COURIER_REGISTERS);
        if (threadIdx.x == 32 * WIDE_WARPS) wide_bring<C>(a, shared, block, tile, begin, end, wait);
        return;
    }
    PTX_REGISTERS_MORE(WIDE_REGISTERS);
    wide_sums<C> sums;
#pragma unroll
    for (int i = 0; i < C::tiles_n * 4; i++) sums.of[i / 4][i % 4] = 0.0f;
    wide_tiles tiles[2];
    int slot = 0;
    uint32_t parity = 0;
    /* A stage is multiplied while the next one's weights come to registers. */
    const auto enter = [&](wide_tiles &to) {
        ptx_arrivals_wait(wide_full<C>(shared, slot), parity);
        wide_load(to, wide_slot<C>(shared, slot) + C::v_bytes + (uint32_t)(warp * C::warp_bytes));
    };
    const auto stage = [&](const wide_tiles &now, wide_tiles &next, bool last) {
        const int own = slot;
        wide_begin<C>(sums, now, wide_slot<C>(shared, own));
        if (++slot == C::slots) slot = 0, parity ^= 1u;
        if (!last) enter(next);
        ptx_together_wait<0>();
        ptx_together_sums(sums.of);
        __syncwarp(); /* all lanes have read it */
        if (threadIdx.x % 32 == 0) ptx_arrive(wide_free<C>(shared, own));
    };
    enter(tiles[0]);
    for (int i = 0; i < count; i += 2) {
        stage(tiles[0], tiles[1], i + 1 == count);
        if (i + 1 < count) stage(tiles[1], tiles[0], i + 2 == count);
    }
    wide_put<C>(a, memory, sums, block, tile, piece);
}

#endif
