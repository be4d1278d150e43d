/* The persistent recurrence: one launch computes many time steps (backend/cuda/persist_geometry.h says how it is cut). A
 * configuration C has the constants: gates, math, backward, gather, units, reduce, spread, tiles_n, halves, warps_m, warps_k,
 * tiles_m, tiles_k, in_registers, in_shared; options, act, gate_act (-1: given by the launch).
 *
 * A step of a half, forward:  v has come -> sums = M v -> cells -> the new d h goes out as the next step's v.
 * Backward the product comes first in a step too: v is dr of the step processed before, which gives this step's dp; after the
 * last step one product more gives the dp of the next launch. Where all rows of a half have ended (or, backward in time, not
 * begun), there is no product and nothing is exchanged. Of two halves one computes while the other's v is on its way. */
#ifndef SLI_CUDA_PERSIST_CUH
#define SLI_CUDA_PERSIST_CUH

#include "backend/cuda/kernels/persist_cells.cuh"
#include "backend/cuda/kernels/persist_exchange.cuh"

/* What a half is at. */
typedef struct persist_turn {
    persist_range range;
    int products; /* done so far */
    int given;    /* times that v was given */
} persist_turn;

/* sums of one product of the half, from the v that was given last. */
template <class S>
PERSIST_FN void persist_turn_product(const persist_args &a, const persist_way &way, const persist_self &self,
                                     const persist_weights<S> &w, int half, persist_turn &turn) {
    if (turn.given > 0) persist_gather<S>(a, way, self, half, turn.given);
    persist_sums<S> sums;
    persist_product<S>(a, way, self, w, self.at + persist_v<S>(half, turn.given), sums);
    persist_reduce<S>(a, self, sums, half, turn.products);
    turn.products++;
}

template <class S>
PERSIST_FN void persist_forward_step(const persist_args &a, const persist_way &way, const persist_self &self, int half,
                                     int s, bool on, bool gives, const persist_turn &turn,
                                     persist_cell<S> (&cells)[S::cells]) {
#pragma unroll
    for (int i = 0; i < S::cells; i++) {
        const persist_place place = persist_place_of<S>(a, self, half, i);
        if (!place.here) continue;
        float sum[S::gates];
#pragma unroll
        for (int g = 0; g < S::gates; g++)
            sum[g] = on ? persist_sum<S>(a, self, half, turn.products - 1, g * S::units + place.own_unit, place.own_row)
                        : 0.0f;
        persist_result<S> result;
        persist_forward_cell<S>(a, way, place, s, sum, cells[i], result);
        if (gives) {
            const uint32_t value[1] = {place.there ? persist_operand<S>(cells[i].factor * cells[i].h) : 0u};
            if constexpr (!S::backward) persist_give<S>(a, way, self, place, half, turn.given + 1, value);
        }
        persist_forward_put<S>(a, way, place, s, cells[i], result);
        persist_forward_ahead<S>(a, way, place, s + 1, cells[i].ahead);
    }
}

template <class S>
PERSIST_FN void persist_forward(const persist_args &a, const persist_way &way, const persist_self &self,
                                const persist_weights<S> &w) {
    persist_cell<S> cells[S::halves][S::cells];
    persist_turn turn[S::halves];
#pragma unroll
    for (int half = 0; half < S::halves; half++) {
        turn[half] = persist_turn{persist_range_of<S>(a, way, self, half), 0, 0};
#pragma unroll
        for (int i = 0; i < S::cells; i++)
            persist_forward_begin<S>(a, way, persist_place_of<S>(a, self, half, i), cells[half][i]);
    }
    for (int s = 0; s < way.steps; s++)
#pragma unroll
        for (int half = 0; half < S::halves; half++) {
            persist_delay(a.delay, s * S::halves + half);
            const bool on = persist_in(turn[half].range, s), gives = on && persist_in(turn[half].range, s + 1);
            if (on) persist_turn_product<S>(a, way, self, w, half, turn[half]);
            persist_forward_step<S>(a, way, self, half, s, on, gives, turn[half], cells[half]);
            if (gives) {
                persist_given<S>(way, self, half);
                turn[half].given++;
            }
        }
}

template <class S>
PERSIST_FN void persist_backward_step(const persist_args &a, const persist_way &way, const persist_self &self, int half,
                                      int s, bool on, bool gives, int chunk, const persist_turn &turn,
                                      persist_cell<S> (&cells)[S::cells]) {
#pragma unroll
    for (int i = 0; i < S::cells; i++) {
        const persist_place place = persist_place_of<S>(a, self, half, i);
        if (!place.here) continue;
        float dp = on ? persist_sum<S>(a, self, half, turn.products - 1, place.own_unit, place.own_row) : 0.0f;
        if (s == 0 && place.there) dp = persist_read(way.dp_from, persist_at(place, a.hs));
        if (s == way.steps) {
            persist_backward_end<S>(a, way, place, dp, cells[i]);
            continue;
        }
        float dz[S::gates], dr[S::gates];
        persist_backward_cell<S>(a, way, place, s, dp, cells[i], dz, dr);
        if (gives) {
            uint32_t value[S::vk];
#pragma unroll
            for (int g = 0; g < S::vk; g++) value[g] = persist_operand<S>(dr[g]);
            persist_give<S>(a, way, self, place, half, turn.given + 1, value);
        }
        if (place.there) {
            persist_backward_put<S>(a, place, persist_operand_at<S>(way.dz, persist_steps(s, way.dz_step)), dz);
            if (S::gates == 3)
                persist_backward_put<S>(a, place, persist_operand_at<S>(way.dr, persist_steps(s, way.dz_step)), dr);
        }
        if (chunk >= 0) persist_backward_sums<S>(a, way, place, chunk, cells[i]);
        persist_backward_ahead<S>(a, way, place, s + 1, cells[i].ahead);
    }
}

template <class S>
PERSIST_FN void persist_backward(const persist_args &a, const persist_way &way, const persist_self &self,
                                 const persist_weights<S> &w) {
    persist_cell<S> cells[S::halves][S::cells];
    persist_turn turn[S::halves];
#pragma unroll
    for (int half = 0; half < S::halves; half++) {
        turn[half] = persist_turn{persist_range_of<S>(a, way, self, half), 0, 0};
#pragma unroll
        for (int i = 0; i < S::cells; i++)
            persist_backward_begin<S>(a, way, persist_place_of<S>(a, self, half, i), cells[half][i]);
    }
    int left = way.first_chunk, chunk = 0; /* steps to the end of the chunk */
    for (int s = 0; s <= way.steps; s++) {
        left--;
        const bool ends = left == 0 || s + 1 == way.steps;
#pragma unroll
        for (int half = 0; half < S::halves; half++) {
            persist_delay(a.delay, s * S::halves + half);
            const bool on = s > 0 && persist_in(turn[half].range, s - 1);
            const bool gives = s < way.steps && persist_in(turn[half].range, s);
            if (on) persist_turn_product<S>(a, way, self, w, half, turn[half]);
            persist_backward_step<S>(a, way, self, half, s, on, gives, ends ? chunk : -1, turn[half], cells[half]);
            if (gives) {
                persist_given<S>(way, self, half);
                turn[half].given++;
            }
        }
        if (ends) {
            chunk++;
            left = way.chunk;
        }
    }
}

template <class S>
PERSIST_FN void persist_run_way(const persist_args &a, const persist_way &way, const persist_self &self) {
    persist_weights<S> w;
    persist_load_weights<S>(a, way, self, w);
    persist_begin<S>(a, way, self);
    if constexpr (S::backward)
        persist_backward<S>(a, way, self, w);
    else
        persist_forward<S>(a, way, self, w);
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
