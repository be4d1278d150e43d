/* cuda:step, tiled steps: exact products in f32 of many rows. A block has a tile of D, rows of the batch by 32 units of each gate; its
 * warps are cut in slices, which take a part of k each and meet at barriers of their own, so that some multiply while others wait.
 * A thread has 8 rows by 4 units of each gate. Both operands lie as [k][rows] and [k][columns], so that copies bring whole lines
 * and a thread loads what it multiplies 16 bytes at a time: with operands that lie along k the same product takes a fifth longer
 * (bench/results/tiled_h200_*). Sums are over k in order, slice by slice, then added in order of slices. */
#ifndef SLI_CUDA_STEP_TILED_CUH
#define SLI_CUDA_STEP_TILED_CUH

#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/step_cells.cuh"
#include "backend/cuda/kernels/step_device.cuh"

#ifndef TILED_SHARED
#define TILED_SHARED(name) extern __shared__ __align__(16) float name[]
#endif

/* GPUs before sm_90 do without (sli_step_tiled), and their machine code too. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define TILED_HERE 1
#else
#define TILED_HERE 0
#endif

enum { TILED_ROWS = 8, TILED_UNITS = SLI_STEP_TILED_UNITS, TILED_WARP_ROWS = 32 }; /* of a thread; of a block; of a warp */

/* `warps` of each slice, one below the other; `depth` of k a chunk, `stages` chunks on their way. */
template <int gates_, int warps_, int slices_, int depth_, int stages_> struct tiled_cut {
    enum {
        gates = gates_,
        warps = warps_,
        slices = slices_,
        depth = depth_,
        stages = stages_,
        at_once = warps == 1 ? 4 : depth, /* of k, unrolled: as timed inside the step, where other counts were up to 6% slower */
        rows = warps * TILED_WARP_ROWS,
        columns = gates * TILED_UNITS,
        slice_threads = 32 * warps,
        threads = slice_threads * slices,
        own = TILED_ROWS / slices, /* rows of a thread that its slice adds up in the end */
        chunk_floats = (rows + columns) * depth,
        ring_floats = chunk_floats * stages * slices,
        sums_floats = rows * columns * (slices - 1),
        floats = ring_floats > sums_floats ? ring_floats : sums_floats /* more than a tile of sums and one of d h */
    };
    static_assert(own * slices == TILED_ROWS, "every slice has rows of its own");
};

/* The operands, from the block's first row and column on: a [k][a_row], b [k][columns]; k a multiple of `depth`. Lines have whole
 * tiles: what is beyond the rows and columns that there are is read, and is in no sum that anybody takes. */
typedef struct tiled_operands {
    const float *a, *b;
    int64_t a_row;
    int k;
} tiled_operands;

/* Where a thread stands: lanes that load the same 16 bytes are such that half a warp's loads are one access. */
typedef struct tiled_place {
    int slice, thread, row, unit; /* the first of its rows and units in the tile */
} tiled_place;
template <class cut> static __device__ __forceinline__ tiled_place tiled_stand() {
    const int thread = (int)threadIdx.x % cut::slice_threads, lane = thread % 32;
    const int down = (lane >> 1 & 1) | (lane >> 3 & 2), across = (lane & 1) | (lane >> 1 & 6);
    return {(int)threadIdx.x / cut::slice_threads, thread, thread / 32 * TILED_WARP_ROWS + 4 * down, 4 * across};
}
/* The row of the tile that a thread's i-th sums are of. */
static __device__ __forceinline__ int tiled_row(const tiled_place &at, int i) {
    return at.row + i / 4 * 16 + i % 4;
}

/* One operand's way into shared memory: lines of `width` floats; packed: one line begins where the one before ends. */
template <int width, int depth, int threads, bool packed> struct tiled_feed {
    enum { each = width * depth / 4 / threads, pieces = packed ? threads : width / 4, lines = threads / pieces };
    static_assert(each * threads * 4 == width * depth && lines * pieces == threads, "whole copies");
    const float *from;
    int64_t step;
    uint32_t place;

    __device__ __forceinline__ void begin(const float *data, int64_t row, int first, int thread, const float *shared) {
        from = data + (first + thread / pieces) * row + thread % pieces * 4;
        step = packed ? 4 * threads : lines * row;
        place = ptx_shared(shared) + (uint32_t)thread * 16u;
    }
    __device__ __forceinline__ void ask(uint32_t to) {
#pragma unroll
        for (int e = 0; e < each; e++) {
            ptx_copy16(place + to + (uint32_t)(e * threads) * 16u, from);
            from += step;
        }
    }
};

template <int count, int apart>
static __device__ __forceinline__ void tiled_load(float (&to)[4 * count], const float *from) {
#pragma unroll
    for (int i = 0; i < count; i++) {
        const float4 four = *reinterpret_cast<const float4 *>(from + i * apart);
        to[4 * i] = four.x;
        to[4 * i + 1] = four.y;
        to[4 * i + 2] = four.z;
        to[4 * i + 3] = four.w;
    }
}

/* sum[row][gate][unit] += the slice's part. b is there before the launch before this one ends, a is awaited. */
template <class cut>
static __device__ __forceinline__ void tiled_multiply(float (&sum)[TILED_ROWS][4 * cut::gates], const tiled_operands &g,
                                                      const tiled_place &at, float *shared) {
    enum { CHUNK_BYTES = 4 * cut::chunk_floats, LAST = cut::stages - 1 };
    float *const mine = shared + at.slice * cut::stages * cut::chunk_floats;
    const int all = g.k / cut::depth, first = at.slice * all / cut::slices;
    const int chunks = (at.slice + 1) * all / cut::slices - first;
    tiled_feed<cut::rows, cut::depth, cut::slice_threads, false> a;
    tiled_feed<cut::columns, cut::depth, cut::slice_threads, true> b;
    a.begin(g.a, g.a_row, first * cut::depth, at.thread, mine);
    b.begin(g.b, cut::columns, first * cut::depth, at.thread, mine + cut::rows * cut::depth);
#pragma unroll
    for (int c = 0; c < LAST; c++)
        if (c < chunks) b.ask(c * CHUNK_BYTES);
    step_wait();
#pragma unroll
    for (int c = 0; c < LAST; c++) {
        if (c < chunks) a.ask(c * CHUNK_BYTES);
        ptx_copies_group();
    }
    const float *down = mine + at.row, *across = mine + cut::rows * cut::depth + at.unit;
    float x[2][TILED_ROWS], y[2][4 * cut::gates];
    const auto load = [&](int to) { /* the next of k */
        tiled_load<2, 16>(x[to], down);
        tiled_load<cut::gates, TILED_UNITS>(y[to], across);
        down += cut::rows;
        across += cut::columns;
    };
    int now = 0, put = LAST; /* chunks in the ring: what is loaded from, where the next is asked for */
    const auto enter = [&] { /* everybody has loaded the last of the chunk before */
        ptx_copies_wait_but<LAST - 1>();
        ptx_barrier(1 + at.slice, cut::slice_threads);
        down = mine + now * cut::chunk_floats + at.row;
        across = mine + now * cut::chunk_floats + cut::rows * cut::depth + at.unit;
        now = now == LAST ? 0 : now + 1;
        load(0);
    };
    enter();
    for (int c = 0; c < chunks; c++) {
        if (c + LAST < chunks) {
            a.ask(put * CHUNK_BYTES);
            b.ask(put * CHUNK_BYTES);
        }
        ptx_copies_group();
        put = put == LAST ? 0 : put + 1;
#pragma unroll 1
        for (int k = 0; k < cut::depth; k += cut::at_once) {
#pragma unroll
            for (int n = 0; n < cut::at_once; n++) {
                if (n + 1 < cut::at_once || k + cut::at_once < cut::depth)
                    load((n + 1) % 2);
                else
                    enter();
#pragma unroll
                for (int i = 0; i < TILED_ROWS; i++)
#pragma unroll
                    for (int j = 0; j < 4 * cut::gates; j++) sum[i][j] = fmaf(x[n % 2][i], y[n % 2][j], sum[i][j]);
            }
        }
    }
}

/* Slice s gets rows [s * own, + own) of its threads' sums, the slices' parts added in order. `meanwhile` is called between. */
template <class cut, class CALL>
static __device__ __forceinline__ void tiled_meet(float (&to)[cut::own][4 * cut::gates],
                                                  const float (&sum)[TILED_ROWS][4 * cut::gates], const tiled_place &at,
                                                  float *shared, const CALL &meanwhile) {
    /* [owner][giver, without the owner][row][column / 4][thread][4] */
    const auto place = [&](int owner, int giver, int i, int j) {
        const int from = giver - (giver > owner);
        return reinterpret_cast<float4 *>(shared) +
               (((owner * (cut::slices - 1) + from) * cut::own + i) * cut::gates + j) * cut::slice_threads + at.thread;
    };
    __syncthreads(); /* the ring is no longer read */
#pragma unroll
    for (int owner = 0; owner < cut::slices; owner++)
#pragma unroll
        for (int i = 0; i < cut::own; i++)
#pragma unroll
            for (int j = 0; j < cut::gates; j++) {
                const float(&part)[4 * cut::gates] = sum[owner * cut::own + i];
                const float4 four = make_float4(part[4 * j], part[4 * j + 1], part[4 * j + 2], part[4 * j + 3]);
                if (owner != at.slice) {
                    *place(owner, at.slice, i, j) = four;
                } else {
                    to[i][4 * j] = four.x;
                    to[i][4 * j + 1] = four.y;
                    to[i][4 * j + 2] = four.z;
                    to[i][4 * j + 3] = four.w;
                }
            }
    meanwhile();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < cut::own; i++)
#pragma unroll
        for (int j = 0; j < cut::gates; j++) {
            float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
            for (int giver = 0; giver < cut::slices; giver++) {
                float4 part = make_float4(to[i][4 * j], to[i][4 * j + 1], to[i][4 * j + 2], to[i][4 * j + 3]);
                if (giver != at.slice) part = *place(at.slice, giver, i, j);
                total = make_float4(total.x + part.x, total.y + part.y, total.z + part.z, total.w + part.w);
            }
            to[i][4 * j] = total.x;
            to[i][4 * j + 1] = total.y;
            to[i][4 * j + 2] = total.z;
            to[i][4 * j + 3] = total.w;
        }
}

#endif
