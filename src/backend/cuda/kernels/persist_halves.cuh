/* The persistent recurrence: steps of a slice of the batch, or of its two halves.
 *
 * A step of a half, forward:  v has come -> sums = M v -> cells -> the new d h goes out as the next step's v.
 * Backward the product comes first in a step too: v is dr of the step processed before, which gives this step's dp; after the
 * last step one product more gives the dp of the next launch. Where all rows of a half have ended (or, backward in time, not
 * begun), there is no product and nothing is exchanged. Of two halves one computes while the other's v is on its way.
 *
 * GRU with reset before the product has two of all that in a step, in turn, with numbers of their own. Forward:
 *     v = d h' -> sums of r -> r;                          q = r d h' goes out as v; then v = d h' -> sums of z
 *     v = q    -> sums of n -> the rest of the cell;  d h goes out
 * Backward:
 *     v = dz of r and z of the step before -> dp -> dz of z and n;  n's goes out
 *     v = dz of n -> e = d q -> dz of r, d h' += r e;               those of r and z go out
 * Of two buffers by turns each always has v of one part. */
#ifndef SLI_CUDA_PERSIST_HALVES_CUH
#define SLI_CUDA_PERSIST_HALVES_CUH

#include "backend/cuda/kernels/persist_cells.cuh"
#include "backend/cuda/kernels/persist_exchange.cuh"

/* What a half is at. */
typedef struct persist_turn {
    persist_range range;
    int products; /* done so far */
    int given;    /* times that v was given */
} persist_turn;

/* sums of one product of the half, from the v that was given last. Between the wait for other CTAs' v or sums and what
 * came before it there is time for the memory traffic of the step before: window(). Before it all comes ask(). */
template <class S, class A, class F>
PERSIST_FN void persist_turn_product(const persist_args &a, const persist_way &way, const persist_self &self,
                                     const persist_weights<typename S::whole> &w, int half, persist_turn &turn,
                                     const A &ask, const F &window) {
    ask();
    if constexpr (S::gather != PERSIST_LOCAL) window();
    if (turn.given > 0) persist_gather<S>(a, way, self, half, turn.given);
    persist_sums<S> sums;
    persist_product<S>(a, way, self, w, self.at + persist_v<S>(half, turn.given), sums);
    persist_reduce<S>(a, way, self, sums, half, turn.products, [&]() {
        if constexpr (S::gather == PERSIST_LOCAL) window();
    });
    turn.products++;
}

template <class S> struct persist_half {
    persist_turn turn;
    persist_cell<S> cells[S::cells];
    persist_result<S> results[S::cells]; /* of the step before, on their way to memory */
    persist_flow flow;
    persist_scalars from; /* persist_draws_early */
};

template <class S> PERSIST_FN void persist_draw_from(const persist_args &a, persist_half<S> &h) {
    if constexpr (persist_draws_early<S>) h.from = *a.scalars;
}

/* Draws of step s, and of the next draws::steps - 1, by four lanes that share their blocks. */
template <class S>
PERSIST_FN void persist_draw_shared(const persist_args &a, const persist_way &way, const persist_self &self, int half,
                                    int s, persist_half<S> &h) {
    typedef persist_draws<S> draws;
    constexpr int all = draws::all * draws::steps;
    const int lane = self.lane % 4;
#pragma unroll
    for (int n = 0; n < all; n += 4) {
        const int mine = n + lane < all ? n + lane : all - 1, of_step = mine % draws::all;
        const persist_place place = persist_place_of<S>(a, self, half, of_step / draws::each);
        const uint64_t element = persist_drawn_element<S>(a, way, place, s + mine / draws::all);
        const uint32_t kept = persist_kept_block(way, h.from, element, persist_draw_is_c<S>(of_step));
#pragma unroll
        for (int k = 0; k < 4 && n + k < all; k++) {
            const uint32_t bit = __shfl_sync(0xFFFFFFFFu, kept, self.lane - lane + k) >> lane & 1u;
            const int number = (n + k) % draws::all, place_of_bit = (n + k) / draws::all * 2 + (int)persist_draw_is_c<S>(number);
            h.cells[number / draws::each].zones |= bit << place_of_bit;
        }
    }
}

/* Zoneout's draws of step s, before its cells. Four lanes of neighbouring units draw from the same blocks, where rows are whole fours: then each
 * makes another block, and they tell each other; where a lane has one or two draws a step, of the next steps as well, which then find theirs. In turns, where
 * a lane's cells are of another slice in between, one draw a lane is its own (shared, training of GRU of 256 units took 6% longer). */
template <class S>
PERSIST_FN void persist_draw(const persist_args &a, const persist_way &way, const persist_self &self, int half, int s,
                             persist_half<S> &h) {
    if constexpr (persist_draws_early<S>) {
        typedef persist_draws<S> draws;
        if (s >= way.steps || !(way.zone_h.draw || way.zone_c.draw)) return;
        const bool shared = draws::all * draws::steps > 1 && persist_units<S>(a) % 4 == 0, drawn = shared && s % draws::steps != 0;
#pragma unroll
        for (int i = 0; i < S::cells; i++) h.cells[i].zones = drawn ? h.cells[i].zones >> 2 : 0u;
        if (drawn) return;
        if (shared) {
            persist_draw_shared<S>(a, way, self, half, s, h);
            return;
        }
#pragma unroll
        for (int n = 0; n < draws::all; n++) {
            const persist_place place = persist_place_of<S>(a, self, half, n / draws::each);
            const uint64_t element = persist_drawn_element<S>(a, way, place, s);
            const uint32_t kept = persist_kept_block(way, h.from, element, persist_draw_is_c<S>(n));
            h.cells[n / draws::each].zones |= (kept >> (element & 3u) & 1u) << (int)persist_draw_is_c<S>(n);
        }
    }
}

/* ------------------------------------------------------------------------------------------------------ forward -- */

/* These are of the lane's cells [first, end), constants to the compiler. */
template <class S>
PERSIST_FN void persist_forward_cells(const persist_args &a, const persist_way &way, const persist_self &self, int half,
                                      int sums, int s, bool on, persist_half<S> &h, int first = 0,
                                      int end = S::cells) {
#pragma unroll
    for (int i = first; i < end; i++) {
        const persist_place place = persist_place_of<S>(a, self, half, i);
        if (!place.here) continue;
        float sum[S::sums_of_cell];
        if constexpr (S::before) {
            const int last = h.turn.products - 1;
            sum[1] = on && S::reduce == 1
                         ? persist_sum<persist_update<S>>(a, self, sums, last - 1, place.own_unit, place.own_row)
                         : 0.0f;
            sum[2] = on ? persist_sum<persist_new<S>>(a, self, sums, last, place.own_unit, place.own_row) : 0.0f;
        } else {
#pragma unroll
            for (int g = 0; g < S::sums_of_cell; g++)
                sum[g] = on ? persist_sum<S>(a, self, sums, h.turn.products - 1, g * S::units + place.own_unit,
                                             place.own_row)
                            : 0.0f;
        }
        persist_forward_cell<S>(a, way, place, s, sum, h.cells[i], h.results[i]);
    }
}

/* Reset before the product: r of step s, and its r d h' is given. */
template <class S>
PERSIST_FN void persist_forward_reset(const persist_args &a, const persist_way &way, const persist_self &self, int half,
                                      bool on, persist_half<S> &h) {
    typedef persist_new<S> N;
#pragma unroll
    for (int i = 0; i < S::cells; i++) {
        const persist_place place = persist_place_of<S>(a, self, half, i);
        if (!place.here) continue;
        const float sum =
            on ? persist_sum<S>(a, self, half, h.turn.products - 1, place.own_unit, place.own_row) : 0.0f;
        const float reset = persist_reset_cell<S>(a, sum, h.cells[i]);
        const uint32_t value[1] = {place.there ? persist_cell_operand<S>(a, self, reset) : 0u};
        if (on) persist_give<N>(a, way, self, place, half, h.turn.given + 1, value);
    }
    if (!on) return;
    persist_given<N>(a, way, self, half, h.turn.given + 1);
    h.turn.given++;
}

/* d h of the half is given: v of product number `count`. */
template <class S>
PERSIST_FN void persist_forward_offer(const persist_args &a, const persist_way &way, const persist_self &self, int half,
                                      int count, const persist_half<S> &h, int first = 0, int end = S::cells) {
#pragma unroll
    for (int i = first; i < end; i++) {
        const persist_place place = persist_place_of<S>(a, self, half, i);
        if (!place.here) continue;
        const uint32_t value[1] = {place.there ? persist_cell_operand<S>(a, self, h.cells[i].factor * h.cells[i].h) : 0u};
        if constexpr (!S::backward) persist_give<S>(a, way, self, place, half, count, value);
    }
}

template <class S>
PERSIST_FN void persist_forward_ask(const persist_args &a, const persist_way &way, const persist_self &self, int half,
                                    int s, persist_half<S> &h) {
    if (s < way.steps)
#pragma unroll
        for (int i = 0; i < S::cells; i++) {
            const persist_place place = persist_place_of<S>(a, self, half, i);
            if (place.there) persist_forward_ahead<S>(a, h.flow, place, h.cells[i], h.cells[i].ahead);
        }
    persist_forward_read_on<S>(way, h.flow);
}

/* One CTA alone, but for reset before: what step s + 1 reads is asked for where step s begins, and is the cells' when it ends (0 to 5% of a call; LSTM in
 * tf32 took 1% longer). */
template <class S>
constexpr bool persist_asks_early = !S::backward && S::gather == PERSIST_LOCAL && !S::before;
template <class S> struct persist_early { persist_ahead<S> cells[persist_asks_early<S> ? (int)S::cells : 1]; };

template <class S>
PERSIST_FN void persist_forward_ask_next(const persist_args &a, const persist_way &way, const persist_self &self, int half,
                                         int s, const persist_half<S> &h, persist_early<S> &next) {
    if constexpr (persist_asks_early<S>)
#pragma unroll
        for (int i = 0; i < S::cells; i++) {
            const persist_place place = persist_place_of<S>(a, self, half, i);
            next.cells[i] = h.cells[i].ahead;
            if (s + 1 < way.steps && place.there)
                persist_forward_ahead<S>(a, h.flow, place, h.cells[i], next.cells[i]);
        }
}

/* What step s + 1 multiplies is given, and what it reads is asked for. In inference in this order, which saves a quarter of a
 * step in clusters of 16 rows of 128 and 256 units; where gates are kept the other way round, which saves a tenth: stores of
 * the step follow (measured on an H200, 2026-11-21); but in clusters where four warps or fewer have cells as in inference, 1 to 3%. */
template <class S>
PERSIST_FN void persist_forward_give(const persist_args &a, const persist_way &way, const persist_self &self, int half,
                                     int s, bool gives, persist_half<S> &h, const persist_early<S> &next) {
    constexpr bool idle = S::gather == PERSIST_CLUSTER && S::cell_tiles <= 4;
    const bool asks_first = persist_has<S>(a, PERSIST_HAS_GATES) && !persist_asks_early<S> && !idle;
    if (asks_first) persist_forward_ask<S>(a, way, self, half, s + 1, h);
    if (gives) {
        persist_forward_offer<S>(a, way, self, half, h.turn.given + 1, h);
        persist_given<S>(a, way, self, half, h.turn.given + 1);
        h.turn.given++;
    }
    if constexpr (persist_asks_early<S>) {
#pragma unroll
        for (int i = 0; i < S::cells; i++) h.cells[i].ahead = next.cells[i];
        persist_forward_read_on<S>(way, h.flow);
    } else if (!asks_first) {
        persist_forward_ask<S>(a, way, self, half, s + 1, h);
    }
}

/* What step s leaves. */
template <class S>
PERSIST_FN void persist_forward_write(const persist_args &a, const persist_way &way, const persist_self &self, int half,
                                      int s, persist_half<S> &h, int first = 0, int end = S::cells) {
#pragma unroll
    for (int i = first; i < end; i++) {
        const persist_place place = persist_place_of<S>(a, self, half, i);
        if (place.there) persist_forward_put<S>(a, way, h.flow, place, h.cells[i], h.results[i]);
        if (persist_has<S>(a, PERSIST_HAS_OPERAND)) persist_put_hidden<S>(a, place, h.flow.operand, h.cells[i].factor * h.cells[i].h);
        if (place.here) persist_prefetch<S>(a, way, self, h.flow, place, s);
    }
}

template <class S>
PERSIST_FN void persist_forward_step(const persist_args &a, const persist_way &way, const persist_self &self,
                                     const persist_weights<S> &w, int half, int s, persist_half<S> &h) {
    const bool on = persist_in(h.turn.range, s), gives = on && persist_in(h.turn.range, s + 1);
    const auto window = [&]() {
        if (s > 0) {
            persist_forward_write<S>(a, way, self, half, s - 1, h);
            persist_forward_write_on<S>(way, h.flow);
        }
        persist_draw<S>(a, way, self, half, s, h);
    };
    persist_early<S> next;
    persist_delay<S>(a, s * S::halves + half);
    persist_forward_ask_next<S>(a, way, self, half, s, h, next);
    if (on)
        persist_turn_product<S>(a, way, self, w, half, h.turn, []() {}, window);
    else
        window();
    if constexpr (S::before) {
        persist_forward_reset<S>(a, way, self, half, on, h);
    } else {
        persist_forward_cells<S>(a, way, self, half, half, s, on, h);
        persist_forward_give<S>(a, way, self, half, s, gives, h, next);
    }
}

/* Sums of z from d h', while r d h' is on its way; where that comes to the same place, all have read d h'. Sums that go to their owners are taken
 * before any of n's are sent: nothing that comes for the next step, where sums of r take their place, would say that all have read them. */
template <class S>
PERSIST_FN void persist_forward_update(const persist_args &a, const persist_way &way, const persist_self &self,
                                       const persist_weights<S> &w, int half, persist_half<S> &h) {
    typedef persist_update<S> U;
    persist_sums<U> sums;
    persist_product<U>(a, way, self, w, self.at + persist_v<S>(half, h.turn.given - 1), sums);
    persist_reduce_begin<U>(a, way, self, sums, half, h.turn.products);
    if constexpr (S::reduce > 1) {
        persist_reduce_await<U>(
            self, persist_barrier<U>(a, self, PERSIST_BARRIERS_SUMS, half, h.turn.products & 1), h.turn.products);
#pragma unroll
        for (int i = 0; i < S::cells; i++) {
            const persist_place place = persist_place_of<S>(a, self, half, i);
            if (place.here)
                h.cells[i].ahead.u[1] +=
                    persist_sum<U>(a, self, half, h.turn.products, place.own_unit, place.own_row);
        }
    }
    h.turn.products++;
    if constexpr (S::gather == PERSIST_GRID) __syncthreads();
}

/* Reset before the product: the second half of a step. */
template <class S>
PERSIST_FN void persist_forward_second(const persist_args &a, const persist_way &way, const persist_self &self,
                                       const persist_weights<S> &w, int half, int s, persist_half<S> &h) {
    const bool on = persist_in(h.turn.range, s), gives = on && persist_in(h.turn.range, s + 1);
    persist_delay<S>(a, ~(s * S::halves + half));
    if (on) {
        persist_forward_update<S>(a, way, self, w, half, h);
        persist_turn_product<persist_new<S>>(a, way, self, w, half, h.turn, []() {}, []() {});
    }
    persist_forward_cells<S>(a, way, self, half, half, s, on, h);
    persist_forward_give<S>(a, way, self, half, s, gives, h, persist_early<S>{});
}

/* Before the weights are asked for. */
template <class S>
PERSIST_FN void persist_forward_enter(const persist_args &a, const persist_way &way, const persist_self &self,
                                      persist_half<S> (&h)[S::halves]) {
#pragma unroll
    for (int half = 0; half < S::halves; half++) {
        h[half].turn = persist_turn{persist_range_of<S>(a, way, self, half), 0, 0};
#pragma unroll
        for (int i = 0; i < S::cells; i++) {
            const persist_place place = persist_place_of<S>(a, self, half, i);
            persist_forward_begin<S>(a, way, place, h[half].cells[i]);
        }
        persist_draw_from<S>(a, h[half]);
    }
}

/* ptxas counts with one scoreboard what is on its way to registers from memory: weights, and what a step asks for of the next one. So it
 * matters in which order they are asked for before the loop. Weights are there when the first v is written (persist_begin), which ptxas does not
 * always see (hence persist_weights_arrived), or each step's product waits for them, and so for what the last cells have just asked for: a quarter of a
 * step of 256 units in a cluster. And what step 0 reads is asked for here: before the weights, each step waits for the next one's where it begins, a tenth of a step.
 * bench/results/entering_h200_2026-11-23.txt. */
template <class S>
PERSIST_FN void persist_forward(const persist_args &a, const persist_way &way, const persist_self &self,
                                const persist_weights<S> &w, persist_half<S> (&h)[S::halves]) {
    if constexpr (S::in_registers > 0) persist_weights_arrived<S>(way, w);
#pragma unroll
    for (int half = 0; half < S::halves; half++) {
        h[half].flow = persist_flow_of(way);
        if constexpr (S::inputs > 0) h[half].flow.u = persist_own_inputs<S>(a, self, half);
        persist_forward_ask<S>(a, way, self, half, 0, h[half]);
    }
    for (int s = 0; s < way.steps; s++) {
#pragma unroll
        for (int half = 0; half < S::halves; half++) persist_forward_step<S>(a, way, self, w, half, s, h[half]);
        if constexpr (S::before)
#pragma unroll
            for (int half = 0; half < S::halves; half++) persist_forward_second<S>(a, way, self, w, half, s, h[half]);
    }
#pragma unroll
    for (int half = 0; half < S::halves; half++) {
        if (way.steps > 0) persist_forward_write<S>(a, way, self, half, way.steps - 1, h[half]);
#pragma unroll
        for (int i = 0; i < S::cells; i++)
            persist_forward_end<S>(a, way, persist_place_of<S>(a, self, half, i), h[half].cells[i]);
    }
}

/* ------------------------------------------------------------------------------------------------------ backward -- */
template <class S>
PERSIST_FN void persist_backward_cells(const persist_args &a, const persist_way &way, const persist_self &self,
                                       int half, int sums, int s, bool on, persist_half<S> &h,
                                       float (&dr)[S::cells][S::sums_of_cell]) {
#pragma unroll
    for (int i = 0; i < S::cells; i++) {
        const persist_place place = persist_place_of<S>(a, self, half, i);
        if (!place.here) continue;
        const float dp = on ? persist_sum<S>(a, self, sums, h.turn.products - 1, place.own_unit, place.own_row) : 0.0f;
        if (s == way.steps) {
            persist_backward_end<S>(a, way, place, dp, h.cells[i]);
            continue;
        }
        persist_backward_cell<S>(a, way, place, s, dp, h.cells[i], h.results[i].gates, dr[i]);
        h.results[i].other = dr[i][S::gates - 1];
    }
}

template <class S>
PERSIST_FN void persist_backward_offer(const persist_args &a, const persist_way &way, const persist_self &self,
                                       int half, int count, const float (&dr)[S::cells][S::sums_of_cell], int first = 0,
                                       int end = S::cells) {
#pragma unroll
    for (int i = first; i < end; i++) {
        const persist_place place = persist_place_of<S>(a, self, half, i);
        if (!place.here) continue;
        if constexpr (S::before) {
            const uint32_t value[1] = {persist_operand<S>(self, dr[i][2])};
            persist_give<persist_new<S>>(a, way, self, place, half, count, value);
        } else {
            uint32_t value[S::vk];
#pragma unroll
            for (int g = 0; g < S::vk; g++) value[g] = persist_operand<S>(self, dr[i][g]);
            persist_give<S>(a, way, self, place, half, count, value);
        }
    }
}

template <class S>
PERSIST_FN void persist_backward_give(const persist_args &a, const persist_way &way, const persist_self &self, int half,
                                      bool gives, persist_half<S> &h, const float (&dr)[S::cells][S::sums_of_cell]) {
    if (!gives) return;
    persist_backward_offer<S>(a, way, self, half, h.turn.given + 1, dr);
    if constexpr (S::before)
        persist_given<persist_new<S>>(a, way, self, half, h.turn.given + 1);
    else
        persist_given<S>(a, way, self, half, h.turn.given + 1);
    h.turn.given++;
}

/* What the cells of step s read is asked for: before the window, and where v is the CTA's own before the product, as sums are on their way for a shorter time
 * than a load (asked for behind them, training of LSTM of 256 units took an eighth longer). Asked for before the step's v was given it cost up to a seventh of
 * the step. */
template <class S>
PERSIST_FN void persist_backward_ask(const persist_args &a, const persist_way &way, const persist_self &self, int half,
                                     int s, persist_half<S> &h) {
    if (s < way.steps)
#pragma unroll
        for (int i = 0; i < S::cells; i++) {
            const persist_place place = persist_place_of<S>(a, self, half, i);
            if (place.there) persist_backward_ahead<S>(a, way, h.flow, place, h.cells[i].ahead);
        }
    persist_backward_read_on<S>(a, way, h.flow);
}

/* dz and dr of step s; chunk >= 0: the sums of the chunk that ends with it. dr is dz but for n of GRU. */
template <class S>
PERSIST_FN void persist_backward_write(const persist_args &a, const persist_way &way, const persist_self &self,
                                       int half, int s, int chunk, persist_half<S> &h) {
#pragma unroll
    for (int i = 0; i < S::cells; i++) {
        const persist_place place = persist_place_of<S>(a, self, half, i);
        persist_backward_put<S>(a, place, h.flow.operand, h.results[i].gates);
        if constexpr (S::before) {
            persist_put_hidden<S>(a, place, h.flow.dr, h.results[i].other);
        } else if constexpr (S::gates == 3) {
            const float dr[3] = {h.results[i].gates[0], h.results[i].gates[1], h.results[i].other};
            persist_backward_put<S>(a, place, h.flow.dr, dr);
        }
        if (place.here) persist_prefetch<S>(a, way, self, h.flow, place, s);
        if (chunk >= 0) persist_backward_sums<S>(a, way, place, chunk, h.cells[i]);
    }
}

/* `chunk`: as in persist_backward_write, of step s - 1. */
template <class S>
PERSIST_FN void persist_backward_step(const persist_args &a, const persist_way &way, const persist_self &self,
                                      const persist_weights<S> &w, int half, int s, int chunk, persist_half<S> &h) {
    const bool any = !persist_has<S>(a, PERSIST_HAS_DP) || s < way.steps; /* steps: else the range ends before */
    const bool on = s > 0 && persist_in(h.turn.range, s - 1) && (!S::before || persist_gives_on<S>(a, way, s - 1));
    const bool gives = any && persist_in(h.turn.range, s);
    const auto ask = [&]() {
        if (s > 0) persist_backward_ask<S>(a, way, self, half, s, h);
    };
    const auto window = [&]() {
        if (s > 0) {
            persist_backward_write<S>(a, way, self, half, s - 1, chunk, h);
            persist_backward_write_on<S>(way, h.flow);
        }
        persist_draw<S>(a, way, self, half, s, h);
    };
    persist_delay<S>(a, s * S::halves + half);
    if (on) {
        persist_turn_product<S>(a, way, self, w, half, h.turn, ask, window);
    } else {
        ask();
        window();
    }
    float dr[S::cells][S::sums_of_cell] = {};
    persist_backward_cells<S>(a, way, self, half, half, s, on, h, dr);
    persist_backward_give<S>(a, way, self, half, gives, h, dr);
}

/* Reset before the product: the second product of a step, and what is left of it. */
template <class S>
PERSIST_FN void persist_backward_second(const persist_args &a, const persist_way &way, const persist_self &self,
                                        const persist_weights<S> &w, int half, int s, persist_half<S> &h) {
    typedef persist_new<S> N;
    const bool on = persist_in(h.turn.range, s), gives = on && persist_gives_on<S>(a, way, s);
    persist_delay<S>(a, ~(s * S::halves + half));
    if (on) persist_turn_product<N>(a, way, self, w, half, h.turn, []() {}, []() {});
#pragma unroll
    for (int i = 0; i < S::cells; i++) {
        const persist_place place = persist_place_of<S>(a, self, half, i);
        if (!place.here) continue;
        const float e = on ? persist_sum<N>(a, self, half, h.turn.products - 1, place.own_unit, place.own_row) : 0.0f;
        float(&dz)[S::gates] = h.results[i].gates;
        dz[0] = persist_backward_reset_cell<S>(a, e, h.cells[i], h.results[i].other);
        uint32_t value[S::vk];
#pragma unroll
        for (int g = 0; g < S::vk; g++) value[g] = persist_operand<S>(self, place.there ? dz[g] : 0.0f);
        if (gives) persist_give<S>(a, way, self, place, half, h.turn.given + 1, value);
    }
    if (!gives) return;
    persist_given<S>(a, way, self, half, h.turn.given + 1);
    h.turn.given++;
}

template <class S>
PERSIST_FN void persist_backward_enter(const persist_args &a, const persist_way &way, const persist_self &self,
                                       persist_half<S> (&h)[S::halves]) {
#pragma unroll
    for (int half = 0; half < S::halves; half++) {
        h[half].turn = persist_turn{persist_range_of<S>(a, way, self, half), 0, 0};
#pragma unroll
        for (int i = 0; i < S::cells; i++) {
            const persist_place place = persist_place_of<S>(a, self, half, i);
            persist_backward_begin<S>(a, way, place, h[half].cells[i]);
        }
        persist_draw_from<S>(a, h[half]);
        h[half].flow = persist_backward_flow_of<S>(way);
        persist_backward_ask<S>(a, way, self, half, 0, h[half]);
    }
}

template <class S>
PERSIST_FN void persist_backward(const persist_args &a, const persist_way &way, const persist_self &self,
                                 const persist_weights<S> &w, persist_half<S> (&h)[S::halves]) {
    int left = way.first_chunk + 1, chunk = 0; /* steps to the end of the chunk of step s - 1 */
    /* Or each step's product waits for what was asked for just before it, as forward. */
    if constexpr (S::gather == PERSIST_LOCAL && S::in_registers > 0) persist_weights_arrived<S>(way, w);
    for (int s = 0; s <= way.steps; s++) {
        const bool ended = --left == 0 || (s > 0 && s == way.steps);
#pragma unroll
        for (int half = 0; half < S::halves; half++)
            persist_backward_step<S>(a, way, self, w, half, s, ended ? chunk : -1, h[half]);
        if (S::in_shared > 0 && s == 0) ptx_copies_wait(); /* weights, which are multiplied after this first */
        if constexpr (S::before)
#pragma unroll
            for (int half = 0; half < S::halves; half++)
                if (s < way.steps) persist_backward_second<S>(a, way, self, w, half, s, h[half]);
        if (!ended) continue;
        chunk++;
        left = way.chunk;
    }
}

#endif
