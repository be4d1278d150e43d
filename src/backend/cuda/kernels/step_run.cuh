/* cuda:step, a run: many wide steps of one direction in one launch, in 16 bits and forward in tf32, whose blocks are all resident. Forward a step is its product, then its cells;
 * backward its cells, then the product that the next one begins with. Blocks have tiles of the product (step_wide.cuh) and parts of the cells. A product waits for every
 * block's v. Cells wait for D: forward of all blocks, among which gates are; backward of the pieces of k of their units, whose blocks share these units' cells. Forward, where that leaves k
 * in one piece, a block has all gates of its units (units > 0): its sums go to shared memory, in place of v, and its cells wait for nobody; in two pieces, two blocks, a cluster, have: each sends
 * the other its sums of half of the units, and has the cells of the other half. Weights do not wait: as many stages ahead as there is room for they are on their
 * way while D and v are, which hides most of those waits, as what bounds a step is the way of the weights. In 16 bits what registers are left hold the first stages' for good.
 * (Cells by warps of their own, in parts, so that a product begins with the first part of v, were 1 to 5% slower of LSTM, 3% faster of a GRU: runs_2026-11-26.txt.) Device code alone, for
 * nvcc and NVRTC.
 *
 * D is written when all cells have read the one before, since v, which its product waited for, came after those reads. Of v there are two by turns: one is written when all have
 * multiplied what it was, since the other one, which the product before these cells waited for, came after that. A step's states are read by the thread that wrote them. */
#ifndef SLI_CUDA_STEP_RUN_CUH
#define SLI_CUDA_STEP_RUN_CUH

#include "backend/cuda/kernels/step_cells.cuh"
#include "backend/cuda/kernels/step_wide.cuh"

enum { RUN_THREADS = 32 * WIDE_WARPS }; /* that multiply and have cells */

static __device__ __forceinline__ void run_await(const uint32_t *count, uint32_t target) {
    while ((int32_t)(ptx_count_acquire(count) - target) < 0) {}
}

/* What these threads of the block have written is there. */
static __device__ __forceinline__ void run_tell(uint32_t *count) {
    ptx_barrier(1, RUN_THREADS);
    if (threadIdx.x == 0) ptx_count_release(count);
}

/* What those of all blocks have is seen by these. */
static __device__ __forceinline__ void run_see(const uint32_t *count, uint32_t target) {
    if (threadIdx.x == 0) run_await(count, target);
    ptx_barrier(1, RUN_THREADS);
}

template <class R, class SUMS> static __device__ __forceinline__ void run_cells(const step_forward_args &a, int row, int j, const SUMS &sums) {
    const auto none = [] {};
    if constexpr (R::gates == 4)
        step_lstm_forward<R::vector, false>(a, row, j, none, sums);
    else if constexpr (R::gates == 3)
        step_gru_forward<R::vector, false>(a, row, j, none, sums);
    else
        step_rnn_forward<R::vector, false>(a, row, j, none, sums);
}
template <class R> static __device__ __forceinline__ void run_cells(const step_forward_args &a, int row, int j) {
    run_cells<R>(a, row, j, step_sums_in_memory());
}

template <class R> static __device__ __forceinline__ void run_cells(const step_backward_args &a, int row, int j) {
    const auto none = [] {};
    if constexpr (R::gates == 4)
        step_lstm_backward<R::vector, false>(a, row, j, none);
    else if constexpr (R::gates == 3)
        step_gru_backward<R::vector, false>(a, row, j, none);
    else
        step_rnn_backward<R::vector, false>(a, row, j, none);
}

/* What cells will read of a step comes to L2 while its product is made: 32 bytes a lane. */
static __device__ __forceinline__ void run_ask(const step_forward_args &a, int row, int j, int gates) {
    for (int g = 0; g < gates; g++) ptx_prefetch(a.u + (size_t)row * a.k.us + (size_t)g * a.k.H + j);
}
static __device__ __forceinline__ void run_ask(const step_backward_args &a, int row, int j, int gates) {
    const size_t state = (size_t)row * a.k.H + j;
    for (int g = 0; g < gates; g++) ptx_prefetch(a.gates + (size_t)row * a.k.us + (size_t)g * a.k.H + j);
    if (a.c_from) ptx_prefetch(a.c_from + state);
    if (a.sn) ptx_prefetch(a.sn + state);
    if (gates == 3) ptx_prefetch(a.h_from + (size_t)row * a.h_from_row + j);
    if (a.dy) ptx_prefetch(static_cast<const char *>(a.dy) + ((size_t)row * a.dy_row + j) * (a.k.narrow_io ? 2 : 4));
}

/* EACH(row, unit) of the thread's cells, the same in every step. A warp has 16 units of some rows, so that lanes fill the lines that they read and write. */
template <class R, class EACH> static __device__ __forceinline__ void run_each(const step_common &k, const wide_place &place, int pieces, const EACH &each) {
    enum { UNITS = 16, ACROSS = UNITS / R::vector, DOWN = 32 / ACROSS };
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int part = R::backward ? place.piece : (int)blockIdx.x, parts = R::backward ? pieces : (int)gridDim.x;
    const int first = R::backward ? place.block * WIDE_TALL : 0, across = (R::backward ? (int)WIDE_TALL : k.H + UNITS - 1) / UNITS;
    const int tiles = across * ((k.B + DOWN - 1) / DOWN);
    for (int tile = warp * parts + part; tile < tiles; tile += WIDE_WARPS * parts) {
        const int j = first + tile % across * UNITS + lane % ACROSS * R::vector, row = tile / across * DOWN + lane / ACROSS;
        if (j < k.H && row < k.B) each(row, j);
    }
}

/* A block's sums, of each half [row of the batch][SLI_STEP_WIDE_HALF], lie where v came, which takes as many bytes and is multiplied. Pieces of 16 bytes change
 * places by the row and the half, so that neither lanes that write eight of M of four rows nor eight that read units of a row, or of half a block of two rows, have a bank twice. */
template <class R> static __device__ __forceinline__ int run_own_at(int half, int row, int m) {
    return (half * R::rows + row) * SLI_STEP_WIDE_HALF + (m / 4 ^ row / 2 % 4 * 2 ^ (row + half) % 2 * 4) * 4 + m % 4;
}

/* Of a pair, after a product, the block has the half of its rank: the other block sends what it has of that. */
template <class R> struct run_own_sums {
    const float *own, *coming;
    int row, unit; /* of the block, or the pair */
    template <int G, int V> __device__ __forceinline__ void operator()(float (&to)[G][V], const step_sums &, size_t, size_t) const {
        constexpr int units = R::units / 2;
        const int half = unit / units;
#pragma unroll
        for (int g = 0; g < G; g++) {
            const int at = run_own_at<R>(half, row, g * units + unit % units);
            step_load<V>(to[g], own + at);
            if constexpr (R::pair) {
                float other[V];
                step_load<V>(other, coming + at - half * R::rows * SLI_STEP_WIDE_HALF);
#pragma unroll
                for (int n = 0; n < V; n++) to[g][n] += other[n];
            }
        }
    }
};

/* All of these threads have multiplied. */
template <class R, class C> static __device__ __forceinline__ void run_keep_sums(float *to, int warp, const wide_sums<C> &sums) {
    static_assert(C::rows * WIDE_TALL * 4 <= C::v_slots * C::v_bytes, "sums in place of v");
    const int lane = (int)threadIdx.x % 32, half = warp / (WIDE_WARPS / 2), m = warp % (WIDE_WARPS / 2) * 16 + lane / 4, row = lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < C::tiles_n; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) to[run_own_at<R>(half, n * 8 + row + i % 2, m + i / 2 * 8)] = sums.of[n][i];
}

/* The other half to the other block; where its own lies is `coming` there, which has been read: v, which this product waited for, came after that. */
template <class C> static __device__ __forceinline__ void run_send_sums(uint32_t shared, int rank) {
    constexpr int bytes = C::rows * SLI_STEP_WIDE_HALF * 4;
    const uint32_t other = (uint32_t)(1 - rank), from = shared + (uint32_t)C::v_at + other * bytes;
    const uint32_t to = ptx_map(shared + (uint32_t)C::coming_at, other), barrier = ptx_map(wide_coming_full<C>(shared), other);
#pragma unroll 4
    for (uint32_t at = threadIdx.x * 16; at < bytes; at += RUN_THREADS * 16) {
        uint32_t piece[4];
        ptx_load_shared(piece, from + at);
        ptx_send16(to + at, piece, barrier);
    }
}

/* EACH(row, unit of the block or the pair) of the thread's cells of the block's own units, the same in every step. */
template <class R, class EACH> static __device__ __forceinline__ void run_each_own(const step_common &k, const wide_place &place, const EACH &each) {
    constexpr int units = R::units / (R::pair ? 2 : 1), across = units / R::vector;
    for (int i = (int)threadIdx.x; i < across * k.B; i += RUN_THREADS) {
        const int unit = (R::pair ? place.piece * units : 0) + i % across * R::vector;
        if (place.block * R::units + unit < k.H) each(i / across, unit);
    }
}

/* Steps forward of blocks that keep their sums. */
template <class R> static __device__ __forceinline__ void run_own(const step_forward_run &a, unsigned char *memory, const wide_place &place, int warp) {
    typedef wide_cut<R::rows, R::math, R::held, R::pair, R::scaled> C;
    const uint32_t shared = ptx_shared(memory), full = wide_coming_full<C>(shared);
    float *const own = reinterpret_cast<float *>(memory + C::v_at), *const coming = reinterpret_cast<float *>(memory + C::coming_at);
    const int first = place.block * R::units;
    wide_rings at = {{0, 0}, {0, 0}};
    wide_held<C> held;
    wide_hold<C>(a.run.product, place, warp, held);
    const float unscale = wide_unscale<C>(a.run.product);
    for (int s = 0; s < a.run.steps; s++) {
        const step_forward_args &step = a.step[s];
        if (R::pair && threadIdx.x == 0) ptx_arrivals_expect(full, C::rows * SLI_STEP_WIDE_HALF * 4);
        run_each_own<R>(step.k, place, [&](int row, int unit) {
            if (unit % 8 == 0) run_ask(step, row, first + unit, R::gates);
        });
        wide_sums<C> sums;
        wide_multiply_stages<C>(shared, warp, place.end - place.begin, at, held, unscale, sums);
        ptx_barrier(1, RUN_THREADS);
        run_keep_sums<R>(own, warp, sums);
        ptx_barrier(1, RUN_THREADS);
        if constexpr (R::pair) {
            run_send_sums<C>(shared, place.piece);
            ptx_arrivals_wait(full, (uint32_t)s & 1u);
        }
        run_each_own<R>(step.k, place, [&](int row, int unit) {
            run_cells<R>(step, row, first + unit, run_own_sums<R>{own, coming, row, unit});
        });
        ptx_fence_shared(); /* before v comes there again */
        run_tell(a.run.counts);
    }
}

/* By two lanes: the weights of all products; v of each as soon as all blocks have left theirs. */
template <class R, class ARGS> static __device__ __forceinline__ void run_bring(const ARGS &a, uint32_t shared, const wide_place &place) {
    typedef wide_cut<R::rows, R::math, R::held, R::pair, R::scaled> C;
    wide_at at = {0, 0};
    if (threadIdx.x == RUN_THREADS)
        for (int n = 0; n < a.run.products; n++) wide_bring_weights<C>(a.run.product, shared, place, at);
    if (threadIdx.x == RUN_THREADS + 32)
        for (int n = 0; n < a.run.products; n++) {
            run_await(a.run.counts, a.run.v + gridDim.x * (uint32_t)(R::backward ? n + 1 : n));
            ptx_fence_bring();
            wide_bring_v<C>(a.run.product, shared, place, (a.run.turn + n) % 2, at);
        }
}

template <class R, class ARGS> static __device__ __forceinline__ void run_all(const ARGS &a, uint32_t shared, const wide_place &place, int warp) {
    typedef wide_cut<R::rows, R::math, R::held, R::pair, R::scaled> C;
    wide_rings at = {{0, 0}, {0, 0}};
    wide_held<C> held;
    wide_hold<C>(a.run.product, place, warp, held);
    const float unscale = wide_unscale<C>(a.run.product);
    uint32_t *const v = a.run.counts, *const d = v + (R::backward ? 1 + place.block : 1) * SLI_STEP_RUN_APART;
    const uint32_t tell = R::backward ? (uint32_t)a.run.product.pieces : gridDim.x; /* blocks, of a D */
    const auto multiply = [&] {
        wide_sums<C> sums;
        wide_multiply_stages<C>(shared, warp, place.end - place.begin, at, held, unscale, sums);
        wide_put<C>(a.run.product, place, warp, sums);
        run_tell(d);
    };
    const auto ask = [&](int s) {
        run_each<R>(a.step[s].k, place, a.run.product.pieces, [&](int row, int j) {
            if (j % 8 == 0) run_ask(a.step[s], row, j, R::gates);
        });
    };
    for (int s = 0; s < a.run.steps; s++) {
        if constexpr (!R::backward) {
            ask(s);
            multiply();
        }
        run_see(d, tell * (a.run.d + (uint32_t)(R::backward ? s : s + 1)));
        run_each<R>(a.step[s].k, place, a.run.product.pieces, [&](int row, int j) { run_cells<R>(a.step[s], row, j); });
        run_tell(v);
        if (R::backward && s < a.run.products) {
            if (s + 1 < a.run.steps) ask(s + 1);
            multiply();
        }
    }
}

template <class R> static __device__ __forceinline__ void run_meet() {
    __syncwarp();
    if constexpr (R::pair)
        ptx_cluster_sync();
    else
        __syncthreads();
}

template <class R, class ARGS> static __device__ __forceinline__ void run_steps(const ARGS &a, unsigned char *memory) {
    const uint32_t shared = ptx_shared(memory);
    const wide_place place = wide_find<R::pair>(a.run.product, (int)blockIdx.x);
    const int warp = (int)ptx_uniform(threadIdx.x / 32);
    if (threadIdx.x == 0) wide_init<wide_cut<R::rows, R::math, R::held, R::pair, R::scaled>>(shared);
    run_meet<R>();
    if (warp >= WIDE_WARPS) {
        PTX_REGISTERS_FEWER(WIDE_COURIER_REGISTERS);
        run_bring<R>(a, shared, place);
    } else {
        PTX_REGISTERS_MORE(WIDE_REGISTERS);
        if constexpr (R::units > 0)
            run_own<R>(a, memory, place, warp);
        else
            run_all<R>(a, shared, place, warp);
    }
    if (R::pair) run_meet<R>(); /* what this block sent has gone */
}

#endif
