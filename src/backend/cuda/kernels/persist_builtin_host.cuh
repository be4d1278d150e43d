/* Persistent kernels that are built in: the instances of one type of persist_builtin.h. Options, activations, units, strides and places in shared
 * memory, what a launch reads and writes, and the direction are given by the launch. */
#ifndef SLI_CUDA_PERSIST_BUILTIN_HOST_CUH
#define SLI_CUDA_PERSIST_BUILTIN_HOST_CUH

#include "backend/cuda/kernels/persist.cuh"
#include "backend/cuda/persist_builtin.h"

template <int GATES, int MATH, bool BACKWARD, int CLUSTER, int UNITS, int WARPS_M, int WARPS_K, int TILES_M,
          int TILES_K, int IN_REGISTERS, int IN_SHARED>
struct persist_builtin_of {
    static constexpr int gates = GATES, math = MATH, gather = BACKWARD ? PERSIST_LOCAL : PERSIST_CLUSTER;
    static constexpr bool before = false, backward = BACKWARD, tight = false, scaled = false;
    static constexpr int wave = 0, directions = 2, form = -1;
    static constexpr int H = -1, us = -1, hs = -1, zs = -1;
    static constexpr int units = UNITS, reduce = BACKWARD ? CLUSTER : 1, spread = BACKWARD ? 1 : CLUSTER;
    static constexpr int tiles_n = 1, halves = 1, few = 0, couriers = 0, apart = 0, share = 1, chunks = 1, slots = 0;
    static constexpr bool meets = false;
    static constexpr int warps_m = WARPS_M, warps_k = WARPS_K, tiles_m = TILES_M, tiles_k = TILES_K;
    static constexpr int in_registers = IN_REGISTERS, in_shared = IN_SHARED, ring = 0;
    static constexpr int options = -1, act = -1, gate_act = -1;
    static constexpr int shared_partial = -1, shared_arriving = -1, shared_weights = -1, shared_ring = -1;
    static constexpr int shared_barriers = -1, shared_sending = -1, shared_state = -1;
    static constexpr int inputs = 0, inputs_math = 0, inputs_row = 0, inputs_columns = 0, inputs_rows = 0, shared_inputs = -1;
};

/* One code for both directions. GPUs without clusters have none: nothing launches it there. */
template <class C>
__global__ void __launch_bounds__(C::warps_m *C::warps_k * 32, 1)
    persist_builtin(const __grid_constant__ persist_args a) {
#if __CUDA_ARCH__ >= 900
    typedef persist_sizes<C> S;
    PERSIST_SHARED(shared);
    const persist_self self = persist_find<S>(a, shared);
    persist_run_way<S>(a, a.way[self.direction], self);
    /* No CTA ends while others may still write into its shared memory. */
    ptx_cluster_sync();
#endif
}

/* Kernels of one type in the order of the list. */
#define PERSIST_BUILTIN(GATES, ...) \
    (const void *)persist_builtin<persist_builtin_of<GATES, PERSIST_BUILTIN_MATH, __VA_ARGS__>>,

#endif
