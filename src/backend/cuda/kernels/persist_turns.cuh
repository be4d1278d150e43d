/* The persistent recurrence of batches too large for one or two slices a group: the slices take turns, many of them a step. An
 * *item* is one slice at one step. The CTAs of a group compute item after item; what an item multiplies was given a whole
 * step of the other slices before, so nobody waits for the exchange, only for its bytes.
 *
 * The states of the slices lie in shared memory and are taken to registers in turn. Warps of their own, the couriers, bring v of
 * the items to come, chunk by chunk of k, into a ring of slots, and tell the other CTAs what was given: a counter is asked
 * for, and memory waited for, where no product waits. CTAs of a cluster that read the same v (`share`) bring a part each, for all of
 * them. Where sums are reduced over a cluster, an item's product is computed before the cells of the item before it: sums are
 * on their way in the meantime. */
#ifndef SLI_CUDA_PERSIST_TURNS_CUH
#define SLI_CUDA_PERSIST_TURNS_CUH

#include "backend/cuda/kernels/persist_halves.cuh"

/* Of the couriers: who brings v, who tells others. Registers change hands by four warps: two have nothing to do. */
enum { PERSIST_BRINGS = 0, PERSIST_TELLS = 1 };

/* Shared memory's barriers: a slot's chunk has come, the slot is free, v of a slice was given; behind them those of sums:
 * persist_barrier. */
PERSIST_FN uint32_t persist_turn_barrier(const persist_args &a, const persist_self &self, int index) {
    return self.at + a.shared_barriers + index * 8;
}
template <class S> PERSIST_FN uint32_t persist_full(const persist_args &a, const persist_self &self, int slot) {
    return persist_turn_barrier(a, self, slot);
}
template <class S> PERSIST_FN uint32_t persist_free(const persist_args &a, const persist_self &self, int slot) {
    return persist_turn_barrier(a, self, S::slots + slot);
}
template <class S> PERSIST_FN uint32_t persist_slice_given(const persist_args &a, const persist_self &self, int turn) {
    return persist_turn_barrier(a, self, 2 * S::slots + turn);
}

/* The slot of a chunk, and how often it has been filled before. */
struct persist_slot {
    int index;
    uint32_t before;
};
template <class S> PERSIST_FN persist_slot persist_next(const persist_slot &slot) {
    const bool last = slot.index + 1 == S::slots;
    return persist_slot{last ? 0 : slot.index + 1, last ? slot.before + 1 : slot.before};
}
/* The place in the cluster of the CTA that shares v as number `sharer`. */
template <class S> PERSIST_FN uint32_t persist_sharer(const persist_self &self, int sharer) {
    return (uint32_t)(sharer * S::reduce + self.p);
}

/* int [halves][2] in shared memory: where there are lengths. */
template <class S>
PERSIST_FN persist_range persist_turn_range(const persist_args &a, const persist_way &way, const persist_self &self,
                                            int turn) {
    if (!persist_has<S>(a, PERSIST_HAS_LENGTHS)) return persist_range{0, way.steps};
    const int *range = (const int *)(self.shared + a.shared_ranges) + 2 * turn;
    return persist_range{range[0], range[1]};
}

struct persist_item {
    int s, turn;
};
template <class S> PERSIST_FN persist_item persist_next(const persist_item &item) {
    const bool last = item.turn + 1 == S::halves;
    return persist_item{last ? item.s + 1 : item.s, last ? 0 : item.turn + 1};
}
/* Steps with a product: backward one more, of the gradient before the last step. */
template <class S> PERSIST_FN int persist_item_steps(const persist_way &way) {
    return way.steps + (S::backward ? 1 : 0);
}
/* The number of the item's product among its slice's, < 0: it has none. Product k reads v number k + 1. */
template <class S> PERSIST_FN int persist_product_of(const persist_range &range, int s) {
    const int from = s - (S::backward ? 1 : 0);
    return from >= 0 && persist_in(range, from) ? from - range.first : -1;
}
/* The number of the v that the item gives, 0: none. */
template <class S> PERSIST_FN int persist_gives(const persist_way &way, const persist_range &range, int s) {
    if (S::backward) return s < way.steps && persist_in(range, s) ? s - range.first + 1 : 0;
    return persist_in(range, s) && persist_in(range, s + 1) ? s - range.first + 2 : 0;
}

/* ----------------------------------------------------------------------------------------------------- couriers -- */
/* v of every product, chunk by chunk in the order of items, as soon as it was given and a slot is free in all CTAs that share;
 * each of these brings its part of a chunk. One lane does it. */
template <class S>
PERSIST_FN void persist_bring(const persist_args &a, const persist_way &way, const persist_self &self) {
    constexpr int part = S::slot_bytes / S::share;
    const int steps = persist_item_steps<S>(way), from = self.q % S::share * part;
    if (self.lane != 0) return;
    persist_slot slot = {0, 0};
    uint32_t all = 0;
    for (int sharer = 0; sharer < S::share; sharer++) all |= 1u << persist_sharer<S>(self, sharer);
    for (persist_item item = {0, 0}; item.s < steps; item = persist_next<S>(item)) {
        const int k = persist_product_of<S>(persist_turn_range<S>(a, way, self, item.turn), item.s);
        if (k < 0) continue;
        persist_await_counter<S>(way, self, item.turn, k + 1);
        ptx_fence_bring();
        const unsigned char *v = persist_exchange<S>(way, self, item.turn, k + 1) + from;
        for (int chunk = 0; chunk < S::chunks; chunk++) {
            const uint32_t full = persist_full<S>(a, self, slot.index),
                           to = self.at + slot.index * S::slot_bytes + from;
            if (slot.before > 0) ptx_arrivals_wait(persist_free<S>(a, self, slot.index), (slot.before - 1u) & 1u);
            ptx_arrivals_expect(full, S::slot_bytes);
            if constexpr (S::share == 1)
                ptx_bring(to, v + chunk * S::slot_bytes, part, full);
            else
                ptx_bring_all(to, v + chunk * S::slot_bytes, part, full, all);
            slot = persist_next<S>(slot);
        }
    }
}

/* Zeros in what no CTA gives of the exchange: k has padding. One does it, before it gives anything. */
template <class S> PERSIST_FN void persist_pad_exchange(const persist_way &way, const persist_self &self) {
    constexpr int first = S::k * S::operand / 4, words = S::v_bytes / 4 - first;
    if (words == 0 || self.q + 1 != S::spread) return;
    for (int turn = 0; turn < S::halves; turn++)
        for (int buffer = 0; buffer < 2; buffer++)
            for (int i = self.thread; i < S::rows * words; i += S::threads)
                *(uint32_t *)(persist_exchange<S>(way, self, turn, buffer) +
                              persist_exchange_at<S>(i / words, (first + i % words) * 4)) = 0u;
}

/* Tells the group that v of a slice was given. Forward the state that step 0 enters from is given first. */
template <class S>
PERSIST_FN void persist_tell(const persist_args &a, const persist_way &way, const persist_self &self) {
    if (self.lane != 0) return;
    for (int turn = 0; !S::backward && turn < S::halves; turn++) {
        ptx_arrivals_wait(persist_slice_given<S>(a, self, turn), 0);
        ptx_count_release(persist_counter<S>(way, self, turn));
    }
    for (persist_item item = {0, 0}; item.s < way.steps; item = persist_next<S>(item)) {
        const int count = persist_gives<S>(way, persist_turn_range<S>(a, way, self, item.turn), item.s);
        if (count == 0) continue;
        ptx_arrivals_wait(persist_slice_given<S>(a, self, item.turn), (uint32_t)(count - 1) & 1u);
        ptx_count_release(persist_counter<S>(way, self, item.turn));
    }
}

/* ---------------------------------------------------------------------------------------------------- the turns -- */
/* State of a cell of the slice between its turns: float [halves][states][cells][threads]. */
template <class S>
PERSIST_FN float *persist_state(const persist_args &a, const persist_self &self, int turn, int cell) {
    constexpr int states = S::gates == 4 ? (S::backward ? 3 : 2) : 1;
    return (float *)(self.shared + a.shared_state) + (turn * states * S::cells + cell) * S::threads + self.thread;
}
template <class S>
PERSIST_FN void persist_take_state(const persist_args &a, const persist_self &self, int turn, persist_half<S> &h) {
#pragma unroll
    for (int i = 0; i < S::cells; i++) {
        const float *from = persist_state<S>(a, self, turn, i);
        (S::backward ? h.cells[i].pw : h.cells[i].h) = from[0];
        if (S::gates == 4) (S::backward ? h.cells[i].dc : h.cells[i].c) = from[S::cells * S::threads];
        if (S::gates == 4 && S::backward) h.cells[i].c = from[2 * S::cells * S::threads];
    }
}
template <class S>
PERSIST_FN void persist_keep_state(const persist_args &a, const persist_self &self, int turn,
                                   const persist_half<S> &h) {
#pragma unroll
    for (int i = 0; i < S::cells; i++) {
        float *to = persist_state<S>(a, self, turn, i);
        to[0] = S::backward ? h.cells[i].pw : h.cells[i].h;
        if (S::gates == 4) to[S::cells * S::threads] = S::backward ? h.cells[i].dc : h.cells[i].c;
        if (S::gates == 4 && S::backward) to[2 * S::cells * S::threads] = h.cells[i].c;
    }
}

/* The cells of the slice have given: a warp's arrival. */
template <class S> PERSIST_FN void persist_turn_given(const persist_args &a, const persist_self &self, int turn) {
    __syncwarp();
    if (self.lane == 0) ptx_arrive(persist_slice_given<S>(a, self, turn));
}

/* What the item's cells read of memory: while the products of others are computed. */
template <class S>
PERSIST_FN void persist_turn_ahead(const persist_args &a, const persist_way &way, const persist_self &self,
                                   const persist_item &item, persist_half<S> &h) {
    if (item.s >= way.steps) return;
#pragma unroll
    for (int i = 0; i < S::cells; i++) {
        const persist_place place = persist_place_of<S>(a, self, item.turn, i);
        if (!place.there) continue;
        if constexpr (S::backward)
            persist_backward_ahead<S>(a, way, h.flow, place, h.cells[i].ahead);
        else
            persist_forward_ahead<S>(a, h.flow, place, h.cells[i].ahead);
        if (way.factor) h.cells[i].ahead.factor = way.factor[persist_at(place, a.H)];
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

/* sums = the product of the chunks that `slot` begins with; `slot` = behind them. */
template <class S>
PERSIST_FN void persist_turn_product_of(const persist_args &a, const persist_way &way, const persist_self &self,
                                        const persist_weights<S> &w, persist_slot &slot, persist_sums<S> &total) {
    constexpr int tiles = S::chunk_tiles;
    persist_two_sums<S> sums = {};
    int before = 0; /* the slot of the chunk before, which tensor cores may still read */
    if constexpr (S::together)
#pragma unroll
        for (int m = 0; m < S::tiles_m; m++) ptx_together_sums(sums.even.of[m]);
#pragma unroll
    for (int chunk = 0; chunk < S::chunks; chunk++) {
        const uint32_t v = self.at + slot.index * S::slot_bytes;
        ptx_arrivals_wait(persist_full<S>(a, self, slot.index), slot.before & 1u);
        if constexpr (S::together) {
            const uint32_t own = v + self.warp / S::warps_m * S::v_stride_k;
            persist_multiply_together<S>(a, self, w, own, chunk * tiles, chunk * tiles + tiles, sums.even);
            if (chunk > 0) {
                ptx_together_wait<1>();
                persist_slot_read<S>(a, self, before);
            }
            before = slot.index;
        } else {
            persist_multiply_range<S>(a, way, self, w, persist_rows_begin<S>(self, v), chunk * tiles,
                                      chunk * tiles + tiles, sums);
            persist_slot_read<S>(a, self, slot.index);
        }
        slot = persist_next<S>(slot);
    }
    if constexpr (S::together) {
        ptx_together_wait<0>();
#pragma unroll
        for (int m = 0; m < S::tiles_m; m++) ptx_together_sums(sums.even.of[m]);
        persist_slot_read<S>(a, self, before);
    }
    persist_add_two<S>(sums, total);
}

/* Sums of product number `products` of all: in this CTA's partial sums, or on their way to their owners. A CTA is at most two
 * products ahead of others of its cluster, whose cells may be one behind: four buffers for what arrives. */
template <class S>
PERSIST_FN void persist_turn_multiply(const persist_args &a, const persist_way &way, const persist_self &self,
                                      const persist_weights<S> &w, uint32_t products, persist_slot &slot) {
    const int arriving = (int)(products % PERSIST_ARRIVING);
    persist_sums<S> sums;
    persist_turn_product_of<S>(a, way, self, w, slot, sums);
    /* Partial sums of the item before have been read; and a warp's sums may be of one owner alone, which could get ahead of
     * the others' cells. */
    persist_sync<S>();
    if constexpr (S::direct) {
        persist_send_direct<S>(a, self, sums, arriving, 0);
    } else {
        persist_put_sums<S>(a, self, sums, 0);
        persist_sync<S>();
        if constexpr (S::reduce > 1) persist_send_added<S>(a, self, 0, arriving, 0);
    }
}

/* Waits for the sums of product number `products`. */
template <class S>
PERSIST_FN void persist_turn_sums(const persist_args &a, const persist_self &self, uint32_t products) {
    if constexpr (S::reduce > 1) {
        const uint32_t barrier = persist_barrier<S>(a, self, 0, (int)(products % PERSIST_ARRIVING), 0);
        ptx_arrivals_wait(barrier, products / PERSIST_ARRIVING & 1u);
        if (self.thread == 0) ptx_arrivals_expect(barrier, S::reduce * S::own * S::rows * 4);
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

/* The results of the item before go to memory. */
template <class S>
PERSIST_FN void persist_turn_write(const persist_args &a, const persist_way &way, const persist_self &self,
                                   persist_turns<S> &t) {
    const persist_item item = t.written;
    if (item.s < 0 || item.s >= way.steps) return;
    const bool last = item.turn + 1 == S::halves;
    if constexpr (S::backward) {
        persist_backward_write<S>(a, way, self, item.turn, item.s, -1, t.h);
        if (!last) return;
        persist_backward_write_on<S>(way, t.h.flow);
        if (--t.left > 0 && item.s + 1 < way.steps) return;
        persist_turn_chunk<S>(a, way, self, t.chunk++, t.h);
        t.left = way.chunk;
    } else {
        persist_forward_write<S>(a, way, self, item.turn, item.s, t.h);
        if (last) persist_forward_write_on<S>(way, t.h.flow);
    }
}

/* The item's cells; then what the next item's cells read is asked for, and v is given. */
template <class S>
PERSIST_FN void persist_turn_cells(const persist_args &a, const persist_way &way, const persist_self &self,
                                   persist_turns<S> &t) {
    const persist_item item = t.cell, next = persist_next<S>(item);
    const persist_range range = persist_turn_range<S>(a, way, self, item.turn);
    const int k = persist_product_of<S>(range, item.s), gives = persist_gives<S>(way, range, item.s);
    const int sums = (int)(t.summed % (S::reduce > 1 ? PERSIST_ARRIVING : 1));
    persist_half<S> &h = t.h;
    float dr[S::cells][S::gates] = {};
    if (k >= 0) persist_turn_sums<S>(a, self, t.summed++);
    persist_take_state<S>(a, self, item.turn, h);
    if (way.factor)
#pragma unroll
        for (int i = 0; i < S::cells; i++) h.cells[i].factor = h.cells[i].ahead.factor;
    if constexpr (S::backward)
        persist_backward_cells<S>(a, way, self, item.turn, sums, item.s, k >= 0, h, dr);
    else
        persist_forward_cells<S>(a, way, self, item.turn, sums, item.s, k >= 0, h);
    persist_keep_state<S>(a, self, item.turn, h);
    if (gives > 0) {
        if constexpr (S::backward)
            persist_backward_offer<S>(a, way, self, item.turn, gives, dr);
        else
            persist_forward_offer<S>(a, way, self, item.turn, gives, h);
        persist_turn_given<S>(a, self, item.turn);
    }
    if (next.turn == 0) {
        if constexpr (S::backward)
            persist_backward_read_on<S>(way, h.flow);
        else
            persist_forward_read_on(way, h.flow);
    }
    persist_turn_ahead<S>(a, way, self, next, h);
    t.written = item;
    t.cell = next;
}

/* States into shared memory; forward d h that step 0 enters from is given. The first slice last: what a unit has, a slice at a
 * row that does not exist has not read. */
template <class S>
PERSIST_FN void persist_turns_begin(const persist_args &a, const persist_way &way, const persist_self &self,
                                    persist_turns<S> &t) {
    persist_pad_exchange<S>(way, self);
    t.cell = persist_item{0, 0};
    t.written = persist_item{-1, 0};
    t.summed = 0;
    t.left = way.first_chunk;
    t.chunk = 0;
    for (int turn = S::halves - 1; turn >= 0; turn--) {
#pragma unroll
        for (int i = 0; i < S::cells; i++) {
            const persist_place place = persist_place_of<S>(a, self, turn, i);
            if constexpr (S::backward) {
                persist_backward_begin<S>(a, way, place, t.h.cells[i]);
            } else {
                persist_forward_begin<S>(a, way, place, t.h.cells[i]);
                if (!place.here) continue;
                const int64_t from = (int64_t)place.row * a.hs + place.unit;
                uint32_t value[S::vk] = {};
                if (place.there)
                    value[0] = S::narrow ? (uint32_t)((const uint16_t *)way.operand_from)[from]
                                         : persist_operand<S>(((const float *)way.operand_from)[from]);
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
    for (int n = 0; t.cell.s < steps; n++) {
        persist_turn_write<S>(a, way, self, t);
        t.written.s = -1;
        persist_delay<S>(a, n);
        if (item.s < steps) {
            if (persist_product_of<S>(persist_turn_range<S>(a, way, self, item.turn), item.s) >= 0)
                persist_turn_multiply<S>(a, way, self, w, products++, slot);
            item = persist_next<S>(item);
        }
        if (n >= lag) persist_turn_cells<S>(a, way, self, t);
    }
    persist_turn_write<S>(a, way, self, t);
    for (int turn = 0; !S::backward && turn < S::halves; turn++) {
        persist_take_state<S>(a, self, turn, t.h);
#pragma unroll
        for (int i = 0; i < S::cells; i++) {
            const persist_place place = persist_place_of<S>(a, self, turn, i);
            if (way.factor && place.there) t.h.cells[i].factor = way.factor[persist_at(place, a.H)];
            persist_forward_end<S>(a, way, place, t.h.cells[i]);
        }
    }
}

template <class S>
PERSIST_FN void persist_begin_turns(const persist_args &a, const persist_way &way, const persist_self &self) {
    persist_begin<S>(a, way, self);
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
    for (int turn = 0; turn < S::halves; turn++) ptx_arrivals_init(persist_slice_given<S>(a, self, turn), S::warps);
    ptx_arrivals_init_fence();
}

/* Barriers are ready, in all CTAs that send to one another. */
template <class S> PERSIST_FN void persist_turns_meet() {
    if constexpr (S::cluster > 1)
        ptx_cluster_sync();
    else
        ptx_barrier(2, S::all_threads);
}

template <class S>
PERSIST_FN void persist_run_turns(const persist_args &a, const persist_way &way, const persist_self &self) {
    static_assert(S::couriers == 4 && S::warps == 8, "whole groups of four warps share registers");
    if (self.warp < S::warps) {
        PTX_REGISTERS_MORE(232);
        persist_weights<S> w;
        persist_load_weights<S>(a, way, self, w);
        persist_begin_turns<S>(a, way, self);
        persist_turns_meet<S>();
        persist_take_turns<S>(a, way, self, w);
        return;
    }
    PTX_REGISTERS_FEWER(40);
    persist_turns_meet<S>();
    if (self.warp == S::warps + PERSIST_BRINGS) persist_bring<S>(a, way, self);
    if (self.warp == S::warps + PERSIST_TELLS) persist_tell<S>(a, way, self);
    __syncwarp();
}

#endif
