/* The persistent recurrence of batches too large for one or two slices a group: the slices take turns, many of them a step. An
 * *item* is one slice at one step. The CTAs of a group compute item after item; what an item multiplies was given a whole
 * step of the other slices before, so nobody waits for the exchange, only for its bytes.
 *
 * The states of the slices lie in shared memory and are taken to registers in turn. Warps of their own, the couriers, bring v of
 * the items to come, chunk by chunk of k, into a ring of slots, and tell the other CTAs what was given: a counter is asked
 * for, and memory waited for, where no product waits. CTAs of a cluster that read the same v (`share`) bring a part each, for all of
 * them. Where CTAs reduce sums, an item's product is computed before the cells of the item before it: sums are on their way in the
 * meantime, through a cluster, or (`meets`) through memory by two couriers more, as v goes: an H200 has 15 clusters of eight, not 16. Weights that do not stay on the chip stream once an item, whose last tiles of k they are.
 *
 * Cells are computed by the warps that multiply, after the product; or (`apart`) by warps of their own, so that tensor cores work
 * on an item while the cells of the one before are computed: an item takes the longer of both, not their sum. */
#ifndef SLI_CUDA_PERSIST_TURNS_CUH
#define SLI_CUDA_PERSIST_TURNS_CUH

#include "backend/cuda/kernels/persist_couriers.cuh"

/* Registers a lane of those that multiply, of cells apart, of couriers: multiples of 8, together what the launch has. */
template <class S> struct persist_registers {
    static constexpr int product = S::apart == 0   ? PERSIST_TURNS_REGISTERS
                                   : S::backward ? PERSIST_APART_REGISTERS_BACKWARD
                                                 : PERSIST_APART_REGISTERS;
    static constexpr int cells = S::backward ? 160 : 136, couriers = S::backward ? 32 : 40;
    static_assert(S::warps * product + S::apart * cells + S::couriers * couriers <= 65536 / 32,
                  "more registers than there are");
    static constexpr int side_by_side = S::backward && S::gates == 4 ? 4 : 2; /* cells apart that are computed at once */
};

/* State of a cell of the slice between its turns: float [halves][states][cells][threads of cells]. These and what follows are of
 * the lane's cells [first, end), constants to the compiler. */
template <class S>
PERSIST_FN float *persist_state(const persist_args &a, const persist_self &self, int turn, int cell) {
    constexpr int states = S::gates == 4 ? 2 : 1;
    return (float *)(self.shared + persist_constant(S::shared_state, a.shared_state)) + (turn * states * S::cells + cell) * S::cell_threads +
           self.thread;
}
template <class S>
PERSIST_FN void persist_take_state(const persist_args &a, const persist_self &self, int turn, persist_half<S> &h,
                                   int first = 0, int end = S::cells) {
    constexpr int next = S::cells * S::cell_threads;
#pragma unroll
    for (int i = first; i < end; i++) {
        const float *from = persist_state<S>(a, self, turn, i);
        (S::backward ? h.cells[i].pw : h.cells[i].h) = from[0];
        if (S::gates == 4) (S::backward ? h.cells[i].dc : h.cells[i].c) = from[next];
    }
}
template <class S>
PERSIST_FN void persist_keep_state(const persist_args &a, const persist_self &self, int turn,
                                   const persist_half<S> &h, int first = 0, int end = S::cells) {
    constexpr int next = S::cells * S::cell_threads;
#pragma unroll
    for (int i = first; i < end; i++) {
        float *to = persist_state<S>(a, self, turn, i);
        to[0] = S::backward ? h.cells[i].pw : h.cells[i].h;
        if (S::gates == 4) to[next] = S::backward ? h.cells[i].dc : h.cells[i].c;
    }
}

/* The cells of the slice have given: a warp's arrival. */
template <class S> PERSIST_FN void persist_turn_given(const persist_args &a, const persist_self &self, int turn) {
    __syncwarp();
    if (self.lane == 0) ptx_arrive(persist_slice_given<S>(a, self, turn));
}

/* For reading: a cell that does not exist reads what its neighbour does, and nobody asks who exists, so that the cells of a lane are
 * one stretch of instructions, not one stretch after another. */
template <class S>
PERSIST_FN persist_place persist_place_near(const persist_args &a, const persist_self &self, int turn, int index) {
    persist_place place = persist_place_of<S>(a, self, turn, index);
    place.row = place.row < a.B ? place.row : a.B - 1;
    place.unit = place.unit < persist_units<S>(a) ? place.unit : persist_units<S>(a) - 1;
    return place;
}

/* What the item's cells read of memory: while the products of others are computed. */
template <class S>
PERSIST_FN void persist_turn_ahead(const persist_args &a, const persist_way &way, const persist_self &self,
                                   const persist_item &item, persist_half<S> &h, int first = 0, int end = S::cells) {
    if (item.s >= way.steps) return;
#pragma unroll
    for (int i = first; i < end; i++) {
        const persist_place place = persist_place_near<S>(a, self, item.turn, i);
        if (!place.here) continue;
        if constexpr (S::backward)
            persist_backward_ahead<S>(a, way, h.flow, place, h.cells[i].ahead);
        else
            persist_forward_ahead<S>(a, h.flow, place, h.cells[i], h.cells[i].ahead);
        if (way.factor) h.cells[i].ahead.factor = way.factor[persist_at(place, persist_units<S>(a))];
    }
}

/* This warp has read the slot: all that may write there are told. */
template <class S> PERSIST_FN void persist_slot_read(const persist_args &a, const persist_self &self, int slot) {
    __syncwarp();
    if constexpr (S::share == 1) {
        if (self.lane == 0) ptx_arrive(persist_free<S>(a, self, slot));
    } else {
        if (self.lane < S::share)
            ptx_arrive_at(ptx_map(persist_free<S>(a, self, slot), persist_sharer<S>(self, self.lane)));
    }
}

/* What the chunk's last loads brought is in registers: its products have come. ptxas lets a warp arrive at a barrier while loads of shared memory are
 * under way, and these come behind whatever the warp has stored to global memory before: the slot was brought anew under them, one call of LSTM of 2048
 * units in tf32 in a hundred had wrong numbers in 8 rows of 16 units (H200, rest_h200_2026-11-24.txt, 5). tests/cuda/waits looks for it. */
template <class S>
PERSIST_FN void persist_chunk_arrived(const persist_way &way, const persist_two_sums<S> &sums) {
#pragma unroll
    for (int n = 0; n < S::tiles_n; n++)
#pragma unroll
        for (int i = 0; i < (S::math == PERSIST_F32 ? (int)S::columns : 1); i++) {
            ptx_arrived(__float_as_uint(sums.even.of[0][n][i]), way.weights);
            if constexpr (persist_two_sums<S>::apart) ptx_arrived(__float_as_uint(sums.odd.of[0][n][i]), way.weights);
        }
}

/* sums = the product of the chunks that `slot` begins with; `slot` = behind them. beside(): what can wait until wgmma works on the first two chunks, else
 * comes before. */
template <class S, class F>
PERSIST_FN void persist_turn_product_of(const persist_args &a, const persist_way &way, const persist_self &self, const persist_weights<S> &w,
                                        persist_slot &slot, persist_sums<S> &total, const F &beside) {
    constexpr int tiles = S::chunk_tiles, first = S::chunks > 1 ? 2 : 1;
    if constexpr (!S::together) beside();
    persist_two_sums<S> sums = {};
    int before = 0; /* the slot of the chunk before, which tensor cores may still read */
    /* What the warp reads is told to be the same in all lanes once an item where that is faster: forward, cells apart (2048 units, 128 rows 4% less); backward
     * once a chunk (there once an item takes 2% longer with 64 rows). turns_counters_h200_2026-11-27.txt, 4. */
    constexpr bool once = S::together && S::apart > 0 && !S::backward;
    uint32_t own = (uint32_t)(self.warp / S::warps_m * S::v_stride_k); /* of v in its slot */
    uint64_t kept = 0;
    bool come = false;
    if constexpr (once) {
        own = ptx_uniform(own);
        kept = persist_kept_together<S>(a, self);
        slot = {(int)ptx_uniform((uint32_t)slot.index), ptx_uniform(slot.before)};
    }
    if constexpr (S::together)
#pragma unroll
        for (int m = 0; m < S::tiles_m; m++) ptx_together_sums(sums.even.of[m]);
#pragma unroll
    for (int chunk = 0; chunk < S::chunks; chunk++) {
        const uint32_t v = self.at + slot.index * S::slot_bytes;
        const persist_slot next = persist_next<S>(slot);
        if (!come) ptx_arrivals_wait(persist_full<S>(a, self, slot.index), slot.before & 1u);
        if constexpr (S::together) {
            const uint64_t rows = ptx_operand_of(once ? v + own : ptx_uniform(v + own), 128, S::v_stride_n);
            if constexpr (!once) kept = persist_kept_together<S>(a, self);
            persist_multiply_together<S>(w, rows, kept, chunk * tiles, chunk * tiles + tiles, sums.even);
            /* Asked beside the product: an answer takes as long as a third of a chunk of eight tiles. */
            if (chunk + 1 < S::chunks) come = ptx_arrivals_came(persist_full<S>(a, self, next.index), next.before & 1u);
            if (chunk + 1 == first) beside();
            if (chunk > 0) {
                ptx_together_wait<1>();
                persist_slot_read<S>(a, self, before);
            }
            before = slot.index;
        } else {
            persist_multiply_range<S>(a, way, self, w, persist_rows_begin<S>(self, v), chunk * tiles,
                                      chunk * tiles + tiles, sums);
            persist_chunk_arrived<S>(way, sums);
            persist_slot_read<S>(a, self, slot.index);
        }
        slot = next;
    }
    if constexpr (S::together) {
        ptx_together_wait<0>();
#pragma unroll
        for (int m = 0; m < S::tiles_m; m++) ptx_together_sums(sums.even.of[m]);
        persist_slot_read<S>(a, self, before);
    }
    persist_add_two<S>(sums, total);
}

/* Cells apart have read what the sums of product number `products` are written over: those of the product before; reduced over a
 * cluster, of two before, so that the CTAs of a cluster stay as near as their four buffers want. */
template <class S>
PERSIST_FN void persist_turn_await_read(const persist_args &a, const persist_self &self, uint32_t products) {
    constexpr uint32_t before = S::reduce > 1 ? 2 : 1;
    if (products < before) return;
    const uint32_t read = products - before;
    ptx_arrivals_wait(persist_sums_read<S>(a, self, read), read / 2 & 1u);
}

/* Sums of the slice's product number k to memory, where their owners' couriers find them. */
template <class S>
PERSIST_FN void persist_turn_send(const persist_args &a, const persist_way &way, const persist_self &self, int turn, int k,
                                  const persist_sums<S> &sums) {
    if constexpr (S::direct) {
        persist_send_direct<S>(a, way, self, sums, turn, k & 1);
    } else {
        persist_sync<S>(); /* partial sums of the product before have been read */
        persist_put_sums<S>(a, self, sums, 0);
        persist_sync<S>();
        persist_send_added<S>(a, way, self, 0, turn, k & 1);
    }
    __syncwarp();
    if (self.lane == 0) ptx_arrive(persist_slice_summed<S>(a, self, turn));
}

/* Sums of product number `products` of all, k of the slice's: in this CTA's partial sums, or on their way to their owners. A CTA is at
 * most two products ahead of others of its cluster, whose cells may be one behind: four buffers for what arrives. */
template <class S, class F>
PERSIST_FN void persist_turn_multiply(const persist_args &a, const persist_way &way, const persist_self &self, const persist_weights<S> &w,
                                      uint32_t products, int turn, int k, persist_slot &slot, const F &beside) {
    const int arriving = (int)(products % PERSIST_ARRIVING);
    persist_sums<S> sums;
    persist_turn_product_of<S>(a, way, self, w, slot, sums, beside);
    if constexpr (S::meets) {
        persist_turn_send<S>(a, way, self, turn, k, sums);
        return;
    }
    /* Partial sums of the item before have been read; and a warp's sums may be of one owner alone, which could get ahead of
     * the others' cells. */
    if constexpr (S::apart > 0) persist_turn_await_read<S>(a, self, products);
    if constexpr (S::apart == 0 || S::reduce > 1) persist_sync<S>();
    if constexpr (S::direct) {
        persist_send_direct<S>(a, way, self, sums, arriving, 0);
        return;
    }
    persist_put_sums<S>(a, self, sums, 0);
    if constexpr (S::reduce == 1 && S::apart > 0) {
        __syncwarp();
        if (self.lane == 0) ptx_arrive(persist_summed<S>(a, self));
        return;
    }
    persist_sync<S>();
    if constexpr (S::reduce > 1) persist_send_added<S>(a, way, self, 0, arriving, 0);
}

/* Waits for the sums of product number `products`. */
template <class S>
PERSIST_FN void persist_turn_sums(const persist_args &a, const persist_self &self, uint32_t products) {
    if constexpr (S::reduce > 1) {
        const uint32_t barrier = persist_barrier<S>(a, self, 0, (int)(products % S::sum_buffers), 0);
        ptx_arrivals_wait(barrier, products / S::sum_buffers & 1u);
        if (!S::meets && self.thread == 0) ptx_arrivals_expect(barrier, S::reduce * S::own * S::rows * 4);
    } else if constexpr (S::apart > 0) {
        ptx_arrivals_wait(persist_summed<S>(a, self), products & 1u);
    }
}

/* The chunk that ended: a thread's sums over time of all its slices go to its rows of the first, the others have zeros. */
template <class S>
PERSIST_FN void persist_turn_chunk(const persist_args &a, const persist_way &way, const persist_self &self, int chunk,
                                   persist_half<S> &h) {
#pragma unroll
    for (int i = 0; i < S::cells; i++) {
        persist_backward_sums<S>(a, way, persist_place_of<S>(a, self, 0, i), chunk, h.cells[i]);
        for (int turn = 1; turn < S::halves; turn++) {
            const persist_place place = persist_place_of<S>(a, self, turn, i);
            persist_cell<S> none = {};
            if (place.there) persist_backward_sums<S>(a, way, place, chunk, none);
        }
    }
}

/* A group at its items. */
template <class S> struct persist_turns {
    persist_half<S> h;
    persist_item cell;    /* whose cells are next */
    uint32_t summed;      /* products whose sums cells have had */
    int left, chunk;      /* backward: steps to the end of the chunk of cell.s, its number */
    persist_item written; /* whose results are in registers; s < 0: none */
};

/* dz and dr of an item's cells [first, end). Here and below, what all cells decide alike stands outside of loops over them: between branches
 * nvcc computes one cell after the other. */
template <class S>
PERSIST_FN void persist_turn_put_backward(const persist_args &a, const persist_way &way, const persist_self &self,
                                          const persist_item &item, const persist_half<S> &h, int first, int end) {
#pragma unroll
    for (int i = first; i < end; i++) {
        const persist_place place = persist_place_of<S>(a, self, item.turn, i);
        persist_backward_put<S>(a, place, h.flow.operand, h.results[i].gates);
        if constexpr (S::gates == 3) {
            const float dr[3] = {h.results[i].gates[0], h.results[i].gates[1], h.results[i].other};
            persist_backward_put<S>(a, place, h.flow.dr, dr);
        }
    }
#pragma unroll
    for (int i = first; i < end; i++) {
        const persist_place place = persist_place_of<S>(a, self, item.turn, i);
        if (place.here) persist_prefetch<S>(a, way, self, h.flow, place, item.s);
    }
}

/* The results of an item's cells [first, end) go to memory. */
template <class S>
PERSIST_FN void persist_turn_put(const persist_args &a, const persist_way &way, const persist_self &self,
                                 const persist_item &item, persist_half<S> &h, int first = 0, int end = S::cells) {
    if constexpr (S::backward)
        persist_turn_put_backward<S>(a, way, self, item, h, first, end);
    else
        persist_forward_write<S>(a, way, self, item.turn, item.s, h, first, end);
}

/* All results of the item are on their way: on to the next step after its last slice, backward also to the next chunk. */
template <class S>
PERSIST_FN void persist_turn_written(const persist_args &a, const persist_way &way, const persist_self &self,
                                     const persist_item &item, persist_turns<S> &t) {
    if (item.turn + 1 < S::halves) return;
    if constexpr (S::backward) {
        persist_backward_write_on<S>(way, t.h.flow);
        if (--t.left > 0 && item.s + 1 < way.steps) return;
        persist_turn_chunk<S>(a, way, self, t.chunk++, t.h);
        t.left = way.chunk;
    } else {
        persist_forward_write_on<S>(way, t.h.flow);
    }
}

/* The results of the item before go to memory. */
template <class S>
PERSIST_FN void persist_turn_write(const persist_args &a, const persist_way &way, const persist_self &self,
                                   persist_turns<S> &t) {
    if (t.written.s < 0 || t.written.s >= way.steps) return;
    persist_turn_put<S>(a, way, self, t.written, t.h);
    persist_turn_written<S>(a, way, self, t.written, t);
}

/* What an item's cells need to know. */
struct persist_duty {
    persist_item item;
    bool on;   /* it had a product */
    int sums;  /* where its sums are */
    int gives; /* the number of the v that it gives; 0: none */
};

/* Sums over time of the lane's cells of one unit are kept by the first: its row exists if any does. */
template <class S> PERSIST_FN void persist_turn_fold(persist_half<S> &h, int first, int end) {
    if constexpr (S::one_unit)
#pragma unroll
        for (int i = first > 1 ? first : 1; i < end; i++) {
            persist_cell<S> &to = h.cells[0], &from = h.cells[i];
#pragma unroll
            for (int g = 0; g < S::gates; g++) to.sums[g] += from.sums[g], from.sums[g] = 0.0f;
            to.sum_n += from.sum_n, from.sum_n = 0.0f;
#pragma unroll
            for (int k = 0; k < 3; k++) to.sums_peep[k] += from.sums_peep[k], from.sums_peep[k] = 0.0f;
        }
}

/* The item's cells [first, end) backward: dp of all, then the cells. */
template <class S>
PERSIST_FN void persist_turn_backward(const persist_args &a, const persist_way &way, const persist_self &self,
                                      const persist_duty &duty, persist_half<S> &h, float (&dr)[S::cells][S::sums_of_cell],
                                      int first, int end) {
    const int s = duty.item.s, turn = duty.item.turn;
    float dp[S::cells] = {};
    if (duty.on)
#pragma unroll
        for (int i = first; i < end; i++) {
            const persist_place place = persist_place_of<S>(a, self, turn, i);
            if (place.here) dp[i] = persist_sum<S>(a, self, duty.sums, 0, place.own_unit, place.own_row);
        }
    if (s == way.steps) {
#pragma unroll
        for (int i = first; i < end; i++)
            persist_backward_end<S>(a, way, persist_place_of<S>(a, self, turn, i), dp[i], h.cells[i]);
        return;
    }
#pragma unroll
    for (int i = first; i < end; i++) {
        const persist_place place = persist_place_of<S>(a, self, turn, i);
        if (!place.here) continue;
        persist_backward_cell<S>(a, way, place, s, dp[i], h.cells[i], h.results[i].gates, dr[i]);
        h.results[i].other = dr[i][S::gates - 1];
    }
}

/* State, cells and v of the item's cells [first, end). */
template <class S>
PERSIST_FN void persist_turn_compute(const persist_args &a, const persist_way &way, const persist_self &self,
                                     const persist_duty &duty, persist_half<S> &h, int first = 0, int end = S::cells) {
    const int s = duty.item.s, turn = duty.item.turn;
    float dr[S::cells][S::sums_of_cell] = {};
    persist_take_state<S>(a, self, turn, h, first, end);
    if (way.factor)
#pragma unroll
        for (int i = first; i < end; i++) h.cells[i].factor = h.cells[i].ahead.factor;
    if constexpr (S::backward) {
        persist_turn_backward<S>(a, way, self, duty, h, dr, first, end);
        persist_turn_fold<S>(h, first, end);
    } else {
        persist_forward_cells<S>(a, way, self, turn, duty.sums, s, duty.on, h, first, end);
    }
    persist_keep_state<S>(a, self, turn, h, first, end);
    if (duty.gives == 0) return;
    if constexpr (S::backward)
        persist_backward_offer<S>(a, way, self, turn, duty.gives, dr, first, end);
    else
        persist_forward_offer<S>(a, way, self, turn, duty.gives, h, first, end);
}

/* What is read belongs to the next step after a step's last slice. */
template <class S>
PERSIST_FN void persist_turn_read_on(const persist_args &a, const persist_way &way, const persist_item &next,
                                     persist_half<S> &h) {
    if (next.turn != 0) return;
    if constexpr (S::backward)
        persist_backward_read_on<S>(a, way, h.flow);
    else
        persist_forward_read_on<S>(way, h.flow);
}

/* The item's cells; v is given, then what the next item's cells read is asked for. Cells apart: one after the other, each with its
 * loads and stores, which needs fewer registers; what the next item's cell reads is asked for where this one's was read. */
template <class S>
PERSIST_FN void persist_turn_cells(const persist_args &a, const persist_way &way, const persist_self &self,
                                   persist_turns<S> &t) {
    const persist_item item = t.cell, next = persist_next<S>(item);
    const persist_range range = persist_turn_range<S>(a, way, self, item.turn);
    const uint32_t product = t.summed;
    const persist_duty duty = {item, persist_product_of<S>(range, item.s) >= 0,
                               (int)(product % (S::reduce > 1 ? S::sum_buffers : 1)),
                               persist_gives<S>(way, range, item.s)};
    persist_draw<S>(a, way, self, item.turn, item.s, t.h);
    if (duty.on) persist_turn_sums<S>(a, self, t.summed++);
    if constexpr (S::apart > 0) {
        persist_turn_read_on<S>(a, way, next, t.h);
#pragma unroll
        for (int i = 0; i < S::cells; i += persist_registers<S>::side_by_side) {
            constexpr int many = persist_registers<S>::side_by_side;
            const int end = i + many < S::cells ? i + many : (int)S::cells;
            persist_turn_compute<S>(a, way, self, duty, t.h, i, end);
            if (item.s < way.steps) persist_turn_put<S>(a, way, self, item, t.h, i, end);
            persist_turn_ahead<S>(a, way, self, next, t.h, i, end);
        }
        if (duty.gives > 0) persist_turn_given<S>(a, self, item.turn);
        __syncwarp();
        if (duty.on && self.lane == 0) ptx_arrive(persist_sums_read<S>(a, self, product));
        if (item.s < way.steps) persist_turn_written<S>(a, way, self, item, t);
    } else {
        persist_turn_compute<S>(a, way, self, duty, t.h);
        if (duty.gives > 0) persist_turn_given<S>(a, self, item.turn);
        if constexpr (S::meets) {
            __syncwarp();
            if (duty.on && self.lane == 0) ptx_arrive(persist_sums_read<S>(a, self, product));
        }
        persist_turn_read_on<S>(a, way, next, t.h);
        persist_turn_ahead<S>(a, way, self, next, t.h);
        t.written = item;
    }
    t.cell = next;
}

/* States into shared memory; forward d h that step 0 enters from is given. The first slice last: what a unit has, a slice at a
 * row that does not exist has not read. */
template <class S>
PERSIST_FN void persist_turns_begin(const persist_args &a, const persist_way &way, const persist_self &self,
                                    persist_turns<S> &t) {
    persist_pad_exchange<S>(a, way, self);
    t.cell = persist_item{0, 0};
    t.written = persist_item{-1, 0};
    t.summed = 0;
    t.left = way.first_chunk;
    t.chunk = 0;
    persist_draw_from<S>(a, t.h);
    for (int turn = S::halves - 1; turn >= 0; turn--) {
#pragma unroll
        for (int i = 0; i < S::cells; i++) {
            const persist_place place = persist_place_of<S>(a, self, turn, i);
            if constexpr (S::backward) {
                persist_backward_begin<S>(a, way, place, t.h.cells[i]);
            } else {
                persist_forward_begin<S>(a, way, place, t.h.cells[i]);
                if (!place.here) continue;
                uint32_t value[S::vk] = {};
                if (place.there) value[0] = persist_entering<S>(a, way, self, place.row, place.unit);
                persist_give<S>(a, way, self, place, turn, 1, value);
            }
        }
        persist_keep_state<S>(a, self, turn, t.h);
        if constexpr (!S::backward) persist_turn_given<S>(a, self, turn);
    }
    if constexpr (S::backward)
        t.h.flow = persist_backward_flow_of<S>(way);
    else
        t.h.flow = persist_flow_of(way);
    persist_turn_ahead<S>(a, way, self, t.cell, t.h);
}

/* Forward the state after the last step. */
template <class S>
PERSIST_FN void persist_turns_end(const persist_args &a, const persist_way &way, const persist_self &self,
                                  persist_half<S> &h) {
    for (int turn = 0; !S::backward && turn < S::halves; turn++) {
        persist_take_state<S>(a, self, turn, h);
#pragma unroll
        for (int i = 0; i < S::cells; i++) {
            const persist_place place = persist_place_of<S>(a, self, turn, i);
            if (way.factor && place.there) h.cells[i].factor = way.factor[persist_at(place, persist_units<S>(a))];
            persist_forward_end<S>(a, way, place, h.cells[i]);
        }
    }
}

template <class S>
PERSIST_FN void persist_take_turns(const persist_args &a, const persist_way &way, const persist_self &self,
                                   const persist_weights<S> &w) {
    constexpr int lag = S::reduce > 1 && S::halves > 1 ? 1 : 0; /* items that cells are behind products */
    const int steps = persist_item_steps<S>(way);
    persist_turns<S> t;
    persist_slot slot = {0, 0};
    uint32_t products = 0;
    persist_turns_begin<S>(a, way, self, t);
    persist_item item = {0, 0};
    const auto write = [&]() {
        persist_turn_write<S>(a, way, self, t);
        t.written.s = -1;
    };
    for (int n = 0; t.cell.s < steps; n++) {
        persist_delay<S>(a, n);
        const bool more = item.s < steps;
        const int k = more ? persist_product_of<S>(persist_turn_range<S>(a, way, self, item.turn), item.s) : -1;
        if (k >= 0)
            persist_turn_multiply<S>(a, way, self, w, products++, item.turn, k, slot, write);
        else
            write();
        if (more) item = persist_next<S>(item);
        if (n >= lag) persist_turn_cells<S>(a, way, self, t);
    }
    persist_turn_write<S>(a, way, self, t);
    persist_turns_end<S>(a, way, self, t.h);
}

/* Cells apart: those that multiply; */
template <class S>
PERSIST_FN void persist_multiply_turns(const persist_args &a, const persist_way &way, const persist_self &self,
                                       const persist_weights<S> &w) {
    const int steps = persist_item_steps<S>(way);
    persist_slot slot = {0, 0};
    uint32_t products = 0;
    for (persist_item item = {0, 0}; item.s < steps; item = persist_next<S>(item)) {
        persist_delay<S>(a, item.s * S::halves + item.turn);
        const int k = persist_product_of<S>(persist_turn_range<S>(a, way, self, item.turn), item.s);
        if (k >= 0) persist_turn_multiply<S>(a, way, self, w, products++, item.turn, k, slot, []() {});
    }
}

/* and those of the cells. */
template <class S>
PERSIST_FN void persist_cell_turns(const persist_args &a, const persist_way &way, const persist_self &self) {
    const int steps = persist_item_steps<S>(way);
    persist_turns<S> t;
    persist_turns_begin<S>(a, way, self, t);
    while (t.cell.s < steps) {
        persist_delay<S>(a, t.cell.s * S::halves + t.cell.turn);
        persist_turn_cells<S>(a, way, self, t);
    }
    persist_turns_end<S>(a, way, self, t.h);
}

template <class S>
PERSIST_FN void persist_begin_turns(const persist_args &a, const persist_way &way, const persist_self &self) {
    persist_begin_turns_shared<S>(a, self);
    if (persist_has<S>(a, PERSIST_HAS_LENGTHS))
        for (int turn = self.thread; turn < S::halves; turn += S::threads) {
            int *to = (int *)(self.shared + a.shared_ranges) + 2 * turn;
            const persist_range range = persist_range_of<S>(a, way, self, turn);
            to[0] = range.first;
            to[1] = range.end;
        }
    if (self.thread != 0) return;
    for (int slot = 0; slot < S::slots; slot++) {
        ptx_arrivals_init(persist_full<S>(a, self, slot), 1);
        ptx_arrivals_init(persist_free<S>(a, self, slot), S::share * S::warps);
    }
    for (int turn = 0; turn < S::halves; turn++) {
        ptx_arrivals_init(persist_slice_given<S>(a, self, turn), S::cell_warps);
        if constexpr (S::meets) ptx_arrivals_init(persist_slice_summed<S>(a, self, turn), S::warps);
    }
    if constexpr (S::apart > 0) ptx_arrivals_init(persist_summed<S>(a, self), S::warps);
    if constexpr (S::apart > 0 || S::meets)
        for (uint32_t which = 0; which < 2; which++)
            ptx_arrivals_init(persist_sums_read<S>(a, self, which), S::cell_warps);
    ptx_arrivals_init_fence();
}

/* Barriers are ready, in all CTAs that send to one another. */
template <class S> PERSIST_FN void persist_turns_meet() {
    if constexpr (S::cluster > 1)
        ptx_cluster_sync();
    else
        ptx_barrier(2, S::all_threads);
}

/* Four warps at a time give and take registers; who has fewer than at the launch gives first. */
template <class S>
PERSIST_FN void persist_run_turns(const persist_args &a, const persist_way &way, const persist_self &found, const float4 &largest) {
    static_assert(S::couriers == 4 && S::warps == 8, "whole groups of four warps share registers");
    if (found.warp < S::warps) {
        PTX_REGISTERS_MORE(persist_registers<S>::product);
        persist_weights<S> w;
        persist_load_weights<S>(a, way, found, w);
        const persist_self self = persist_scaled<S>(a, found, largest);
        persist_begin_turns<S>(a, way, self);
        persist_turns_meet<S>();
        if constexpr (S::apart > 0)
            persist_multiply_turns<S>(a, way, self, w);
        else
            persist_take_turns<S>(a, way, self, w);
        if constexpr (S::streamed > 0) persist_end_ring<S>(a, self, w);
        return;
    }
    if constexpr (S::apart > 0)
        if (found.warp < S::warps + S::apart) {
            PTX_REGISTERS_MORE(persist_registers<S>::cells);
            persist_self cells = persist_scaled<S>(a, found, largest);
            cells.warp -= S::warps;
            cells.thread -= S::threads;
            persist_turns_meet<S>();
            persist_cell_turns<S>(a, way, cells);
            return;
        }
    PTX_REGISTERS_FEWER(persist_registers<S>::couriers);
    persist_turns_meet<S>();
    const int courier = found.warp - S::warps - S::apart;
    if (courier == PERSIST_BRINGS) persist_bring<S>(a, way, found);
    if (courier == PERSIST_TELLS) persist_tell<S>(a, way, found);
    if constexpr (S::meets) {
        if (courier == PERSIST_BRINGS_SUMS) persist_bring_sums<S>(a, way, found);
        if (courier == PERSIST_TELLS_SUMS) persist_tell_sums<S>(a, way, found);
    }
    __syncwarp();
}

#endif
