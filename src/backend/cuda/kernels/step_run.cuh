/* cuda:step, a run: many wide steps of one direction in one launch, in 16 bits, whose blocks are all resident. Forward a step is its product, then its cells;
 * backward its cells, then the product that the next one begins with. Blocks have tiles of the product (step_wide.cuh) and, all alike, parts of the cells; twice a
 * step all wait for all: cells for every block's D, a product for every block's v. Weights do not wait: as many stages ahead as there is room for they are on their
 * way while D and v are, which hides most of those waits, as what bounds a step is the way of the weights. What registers are left hold the first stages' for good.
 * (Cells by warps of their own, in parts, so that a product begins with the first part of v, were 1 to 5% slower of LSTM, 3% faster of a GRU: runs_2026-11-26.txt.) Device code alone, for
 * nvcc and NVRTC.
 *
 * The waits: D is written when all cells have read the one before, since v, which its product waited for, came after those reads; v when all blocks have
 * multiplied the one before, since their D, which the cells waited for, came after. A step's states are read by the thread that wrote them. */
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

template <class R> static __device__ __forceinline__ void run_cells(const step_forward_args &a, int row, int j) {
    const auto none = [] {};
    if constexpr (R::gates == 4)
        step_lstm_forward<R::vector, false>(a, row, j, none);
    else if constexpr (R::gates == 3)
        step_gru_forward<R::vector, false>(a, row, j, none);
    else
        step_rnn_forward<R::vector, false>(a, row, j, none);
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
    if (a.dy) ptx_prefetch(a.dy + (size_t)row * a.dy_row + j);
}

/* EACH(row, unit) of the thread's cells, the same in every step. A warp has 16 units of some rows, so that lanes fill the lines that they read and write. */
template <class R, class EACH> static __device__ __forceinline__ void run_each(const step_common &k, const EACH &each) {
    enum { UNITS = 16, ACROSS = UNITS / R::vector, DOWN = 32 / ACROSS };
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, grid = (int)gridDim.x;
    const int across = (k.H + UNITS - 1) / UNITS, tiles = across * ((k.B + DOWN - 1) / DOWN);
    for (int tile = warp * grid + (int)blockIdx.x; tile < tiles; tile += WIDE_WARPS * grid) {
        const int j = tile % across * UNITS + lane % ACROSS * R::vector, row = tile / across * DOWN + lane / ACROSS;
        if (j < k.H && row < k.B) each(row, j);
    }
}

/* By two lanes: the weights of all products; v of each as soon as all blocks have left theirs. */
template <class R, class ARGS> static __device__ __forceinline__ void run_bring(const ARGS &a, uint32_t shared, const wide_place &place) {
    typedef wide_cut<R::rows, R::math, R::held> C;
    wide_at at = {0, 0};
    if (threadIdx.x == RUN_THREADS)
        for (int n = 0; n < a.run.products; n++) wide_bring_weights<C>(a.run.product, shared, place, at);
    if (threadIdx.x == RUN_THREADS + 32)
        for (int n = 0; n < a.run.products; n++) {
            run_await(a.run.counts, a.run.v + gridDim.x * (uint32_t)(R::backward ? n + 1 : n));
            ptx_fence_bring();
            wide_bring_v<C>(a.run.product, shared, place, at);
        }
}

template <class R, class ARGS> static __device__ __forceinline__ void run_all(const ARGS &a, uint32_t shared, const wide_place &place, int warp) {
    typedef wide_cut<R::rows, R::math, R::held> C;
    wide_rings at = {{0, 0}, {0, 0}};
    wide_held<C> held;
    wide_hold<C>(a.run.product, place, warp, held);
    uint32_t *const v = a.run.counts, *const d = v + SLI_STEP_RUN_APART;
    const auto multiply = [&] {
        wide_sums<C> sums;
        wide_multiply_stages<C>(shared, warp, place.end - place.begin, at, held, sums);
        wide_put<C>(a.run.product, place, warp, sums);
        run_tell(d);
    };
    const auto ask = [&](int s) {
        run_each<R>(a.step[s].k, [&](int row, int j) {
            if (j % 8 == 0) run_ask(a.step[s], row, j, R::gates);
        });
    };
    for (int s = 0; s < a.run.steps; s++) {
        if constexpr (!R::backward) {
            ask(s);
            multiply();
        }
        run_see(d, a.run.d + gridDim.x * (uint32_t)(R::backward ? s : s + 1));
        run_each<R>(a.step[s].k, [&](int row, int j) { run_cells<R>(a.step[s], row, j); });
        run_tell(v);
        if (R::backward && s < a.run.products) {
            if (s + 1 < a.run.steps) ask(s + 1);
            multiply();
        }
    }
}

template <class R, class ARGS> static __device__ __forceinline__ void run_steps(const ARGS &a, unsigned char *memory) {
    const uint32_t shared = ptx_shared(memory);
    const wide_place place = wide_find(a.run.product, (int)blockIdx.x);
    const int warp = (int)ptx_uniform(threadIdx.x / 32);
    if (threadIdx.x == 0) wide_init<wide_cut<R::rows, R::math, R::held>>(shared);
    __syncthreads();
    if (warp >= WIDE_WARPS) {
        PTX_REGISTERS_FEWER(WIDE_COURIER_REGISTERS);
        run_bring<R>(a, shared, place);
    } else {
        PTX_REGISTERS_MORE(WIDE_REGISTERS);
        run_all<R>(a, shared, place, warp);
    }
}

#endif
