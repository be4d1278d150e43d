/* The persistent recurrence: one launch computes many time steps (backend/cuda/persist_geometry.h says how it is cut). A
 * configuration C has the constants: gates, math, tight, scaled, backward, gather, units, reduce, spread, tiles_n, halves, couriers, apart,
 * share, chunks, slots, warps_m, warps_k, tiles_m, tiles_k, in_registers, in_shared, ring; options, act, gate_act, units and strides, places
 * in shared memory (-1: given by the launch). */
#ifndef SLI_CUDA_PERSIST_CUH
#define SLI_CUDA_PERSIST_CUH

#include "backend/cuda/kernels/persist_halves.cuh"
#include "backend/cuda/kernels/persist_turns.cuh"

PERSIST_FN persist_self persist_of_kind(persist_self self, persist_kind_of_warp kind) {
    self.kind = kind;
    return self;
}

template <class S>
PERSIST_FN void persist_steps(const persist_args &a, const persist_way &way, const persist_self &self,
                              const persist_weights<S> &w, persist_half<S> (&h)[S::halves]) {
    if constexpr (S::backward)
        persist_backward<S>(a, way, self, w, h);
    else
        persist_forward<S>(a, way, self, w, h);
}

template <class S>
PERSIST_FN void persist_run_way(const persist_args &a, const persist_way &way, const persist_self &found) {
    float4 largest;
    if constexpr (S::scaled) largest = persist_ask_largest(a.largest_weight[found.direction], found.lane);
    if constexpr (S::couriers > 0) {
        persist_run_turns<S>(a, way, found, largest);
    } else {
        /* What is asked for here is on its way while the input side is made, which has shared memory for itself. */
        constexpr bool beside = S::in_registers == S::all_tiles_k;
        if constexpr (S::inputs > 0) persist_begin_inputs<S>(a, way, found);
        persist_weights<S> w;
        persist_half<S> h[S::halves];
        persist_entered<S> entered;
        persist_delay<S>(a, -1);
        if constexpr (S::backward) {
            persist_backward_enter<S>(a, way, found, h);
        } else {
            persist_ask_entering<S>(a, way, found, 0, entered);
            persist_forward_enter<S>(a, way, found, h);
        }
        if constexpr (S::inputs > 0 && !beside) persist_end_inputs<S>(a, way, found);
        persist_load_weights<S>(a, way, found, w);
        if constexpr (S::inputs > 0 && beside) persist_end_inputs<S>(a, way, found);
        const persist_self self = persist_scaled<S>(a, found, largest);
        persist_begin<S>(a, way, self, entered);
        if constexpr (!S::kinds)
            persist_steps<S>(a, way, self, w, h);
        else if ((int)ptx_uniform((uint32_t)self.warp) < S::cell_tiles)
            persist_steps<S>(a, way, persist_of_kind(self, PERSIST_WITH_CELLS), w, h);
        else
            persist_steps<S>(a, way, persist_of_kind(self, PERSIST_WITHOUT_CELLS), w, h);
        if constexpr (S::streamed > 0) persist_end_ring<S>(a, self, w);
    }
}

/* Both directions have code of their own: an argument at a place known to the compiler costs nothing to read. */
template <class C> PERSIST_FN void persist_run(const persist_args &a) {
    typedef persist_sizes<C> S;
    PERSIST_SHARED(shared);
    const persist_self self = persist_find<S>(a, shared);
    if (C::directions == 1 || self.direction == 0)
        persist_run_way<S>(a, a.way[0], self);
    else
        persist_run_way<S>(a, a.way[1], self);
    /* No CTA ends while others may still write into its shared memory. */
    if constexpr (S::cluster > 1) ptx_cluster_sync();
}

#endif
