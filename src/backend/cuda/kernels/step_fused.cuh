/* cuda:step, fused steps: one launch does a step's recurrent product and its cells. A block has all gates of its units for
 * FUSED_ROWS rows; its warps take every so manieth piece of the sum over k, leave their partial sums in shared memory, and
 * then a thread is one unit of one row: it adds the partial sums in order of warps and computes the cell. Weights of the
 * first pieces, and whatever else no earlier step writes, are loaded before the wait for the step before.
 *
 * The pieces of a sum: lane l % 4 of a row's 64 bytes loads 16 of both operands, consecutive k. Which k an element has inside
 * the instruction does not matter, as long as both operands agree. */
#ifndef SLI_CUDA_STEP_FUSED_CUH
#define SLI_CUDA_STEP_FUSED_CUH

#include "backend/cuda/kernels/step_cells.cuh"
#include "backend/cuda/kernels/step_device.cuh"
#include "backend/cuda/kernels/step_fused_mma.cuh"

enum { FUSED_TF32, FUSED_NARROW };
enum {
    FUSED_ROWS = SLI_STEP_FUSED_ROWS,
    FUSED_TILES = FUSED_ROWS / 16,
    FUSED_PIECES = 2 /* pieces of a warp in flight */
};

/* Elements of k a piece has. */
template <int MATH> static __device__ __forceinline__ constexpr int fused_piece() {
    return MATH == FUSED_TF32 ? 16 : 32;
}

/* One of the two operands of the product: rows of `stride` elements that were written by an earlier launch. */
typedef struct fused_rows {
    const void *data; /* operand [B][stride] */
    int64_t stride;
    int first, count; /* the block's rows */
    int k;            /* elements of a row that count */
} fused_rows;

static __device__ __forceinline__ uint4 fused_load16(const void *base, size_t byte) {
    return __ldcg(reinterpret_cast<const uint4 *>(static_cast<const char *>(base) + byte));
}

/* The rows' operand of one piece, as mma takes it: [tile][row l / 4, row l / 4 + 8]. */
template <int MATH>
static __device__ __forceinline__ void fused_load_rows(const fused_rows &from, int piece, uint4 (&a)[FUSED_TILES][2]) {
    constexpr int bytes = MATH == FUSED_NARROW ? 2 : 4;
    const int lane = threadIdx.x & 31, k = piece * fused_piece<MATH>() + (lane & 3) * (16 / bytes);
#pragma unroll
    for (int tile = 0; tile < FUSED_TILES; tile++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = tile * 16 + half * 8 + (lane >> 2);
            a[tile][half] = make_uint4(0, 0, 0, 0);
            if (row < from.count && k < from.k)
                a[tile][half] = fused_load16(from.data, ((size_t)(from.first + row) * from.stride + k) * bytes);
        }
}

/* What tf32 products read of loaded floats; after all loads, which it would make wait for each other. */
template <int MATH> static __device__ __forceinline__ void fused_round(uint4 &v) {
    if constexpr (MATH == FUSED_TF32)
        v = make_uint4(fused_tf32(v.x), fused_tf32(v.y), fused_tf32(v.z), fused_tf32(v.w));
}
template <int MATH> static __device__ __forceinline__ void fused_round(uint4 (&a)[FUSED_TILES][2]) {
#pragma unroll
    for (int tile = 0; tile < FUSED_TILES; tile++) {
        fused_round<MATH>(a[tile][0]);
        fused_round<MATH>(a[tile][1]);
    }
}

/* d[tile] += one piece: two instructions a tile. */
template <int MATH>
static __device__ __forceinline__ void fused_mma(bool half, float (&d)[FUSED_TILES][4],
                                                 const uint4 (&a)[FUSED_TILES][2], const uint4 &b, int count) {
#pragma unroll
    for (int tile = 0; tile < FUSED_TILES; tile++) {
        if (tile * 16 >= count) continue;
        const uint4 &low = a[tile][0], &high = a[tile][1];
        if constexpr (MATH == FUSED_TF32) {
            fused_mma_tf32(d[tile], low.x, high.x, low.y, high.y, b.x, b.y);
            fused_mma_tf32(d[tile], low.z, high.z, low.w, high.w, b.z, b.w);
        } else if (half) {
            fused_mma_f16(d[tile], low.x, high.x, low.y, high.y, b.x, b.y);
            fused_mma_f16(d[tile], low.z, high.z, low.w, high.w, b.z, b.w);
        } else {
            fused_mma_bf16(d[tile], low.x, high.x, low.y, high.y, b.x, b.y);
            fused_mma_bf16(d[tile], low.z, high.z, low.w, high.w, b.z, b.w);
        }
    }
}

/* Blocks of `units` by FUSED_ROWS threads. */
static inline sli_step_grid fused_grid(const step_way *way, int units) {
    sli_step_grid grid;
    grid.gx = (unsigned)((way->s.H + units - 1) / units);
    grid.gy = (unsigned)((way->s.B + FUSED_ROWS - 1) / FUSED_ROWS);
    grid.bx = (unsigned)(units * FUSED_ROWS);
    grid.by = 1;
    return grid;
}

#endif
