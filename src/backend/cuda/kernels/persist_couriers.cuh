/* Slices in turns (persist_turns.cuh): their items, slots and barriers, and the couriers, which bring v and sums of the items to come and tell the other
 * CTAs what was given. */
#ifndef SLI_CUDA_PERSIST_COURIERS_CUH
#define SLI_CUDA_PERSIST_COURIERS_CUH

#include "backend/cuda/kernels/persist_halves.cuh"

/* Of the couriers: who brings v, who tells others that it was given; the same of sums that meet in memory. */
enum { PERSIST_BRINGS = 0, PERSIST_TELLS = 1, PERSIST_BRINGS_SUMS = 2, PERSIST_TELLS_SUMS = 3 };
/* Shared memory's barriers: a slot's chunk has come, the slot is free, v of a slice was given; behind them those of sums
 * (persist_barrier), of cells apart, and of slices whose sums are in memory. */
template <class S>
PERSIST_FN uint32_t persist_turn_barrier(const persist_args &a, const persist_self &self, int index) {
    return self.at + persist_constant(S::shared_barriers, a.shared_barriers) + index * 8;
}
template <class S> PERSIST_FN uint32_t persist_full(const persist_args &a, const persist_self &self, int slot) {
    return persist_turn_barrier<S>(a, self, slot);
}
template <class S> PERSIST_FN uint32_t persist_free(const persist_args &a, const persist_self &self, int slot) {
    return persist_turn_barrier<S>(a, self, S::slots + slot);
}
template <class S> PERSIST_FN uint32_t persist_slice_given(const persist_args &a, const persist_self &self, int turn) {
    return persist_turn_barrier<S>(a, self, 2 * S::slots + turn);
}
/* Cells apart: this CTA's sums are there; of product number `products`: cells, apart or not, have read its sums. */
template <class S> PERSIST_FN uint32_t persist_summed(const persist_args &a, const persist_self &self) {
    return persist_turn_barrier<S>(a, self, 2 * S::slots + S::halves + PERSIST_ARRIVING);
}
template <class S>
PERSIST_FN uint32_t persist_sums_read(const persist_args &a, const persist_self &self, uint32_t products) {
    return persist_turn_barrier<S>(a, self, 2 * S::slots + S::halves + PERSIST_ARRIVING + 1 + (int)(products & 1u));
}

template <class S> PERSIST_FN uint32_t persist_slice_summed(const persist_args &a, const persist_self &self, int turn) {
    return persist_turn_barrier<S>(a, self, 2 * S::slots + S::halves + PERSIST_ARRIVING + PERSIST_APART_BARRIERS + turn);
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
    return (uint32_t)((S::meets ? 0 : self.p * S::share) + sharer);
}

/* int [halves][2] in shared memory: where there are lengths. */
template <class S>
PERSIST_FN persist_range persist_turn_range(const persist_args &a, const persist_way &way, const persist_self &self,
                                            int turn) {
    if (!persist_has<S>(a, PERSIST_HAS_LENGTHS)) return persist_range{0, persist_multiplied<S>(a, way)};
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

/* v of every product, chunk by chunk in the order of items, as soon as it was given and a slot is free in all CTAs that share;
 * each of these brings its part of a chunk. The warp waits, one lane brings: alone it takes a third longer for a copy (beside other warps a sixth), which 16
 * chunks an item wait for (turns_counters_h200_2026-11-27.txt). A slot is free when loads from it have come (persist_chunk_arrived), not
 * by fence.proxy.async: here, behind the wait for the slot, that takes 2 to 29% of a call (H100, proofs_h100_2026-11-25.txt). */
template <class S>
PERSIST_FN void persist_bring(const persist_args &a, const persist_way &way, const persist_self &self) {
    constexpr int part = S::slot_bytes / S::share;
    const int steps = persist_item_steps<S>(way), from = self.q % S::share * part;
    persist_slot slot = {0, 0};
    uint32_t all = 0;
    for (int sharer = 0; sharer < S::share; sharer++) all |= 1u << persist_sharer<S>(self, sharer);
    for (persist_item item = {0, 0}; item.s < steps; item = persist_next<S>(item)) {
        const int k = persist_product_of<S>(persist_turn_range<S>(a, way, self, item.turn), item.s);
        if (k < 0) continue;
        persist_await_counter<S>(way, self, item.turn, k + 1);
        ptx_fence_bring();
        const unsigned char *v = persist_exchange<S>(a, way, self, item.turn, k + 1) + from;
#pragma unroll 1
        for (int chunk = 0; chunk < S::chunks; chunk++) {
            const uint32_t full = persist_full<S>(a, self, slot.index),
                           to = self.at + slot.index * S::slot_bytes + from;
            if (slot.before > 0) ptx_arrivals_wait(persist_free<S>(a, self, slot.index), (slot.before - 1u) & 1u);
            if (ptx_elected()) {
                ptx_arrivals_expect(full, S::slot_bytes);
                if constexpr (S::share == 1)
                    ptx_bring(to, v + chunk * S::slot_bytes, part, full);
                else
                    ptx_bring_all(to, v + chunk * S::slot_bytes, part, full, all);
            }
            __syncwarp();
            slot = persist_next<S>(slot);
        }
    }
}

/* Zeros in what no CTA gives of the exchange: k has padding. One does it, before it gives anything. */
template <class S> PERSIST_FN void persist_pad_exchange(const persist_args &a, const persist_way &way, const persist_self &self) {
    constexpr int first = S::k * S::operand / 4, words = S::v_bytes / 4 - first;
    if (words == 0 || self.q + 1 != S::spread) return;
    for (int turn = 0; turn < S::halves; turn++)
        for (int buffer = 0; buffer < 2; buffer++)
            for (int i = self.thread; i < S::rows * words; i += S::cell_threads)
                *(uint32_t *)(persist_exchange<S>(a, way, self, turn, buffer) +
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

/* Of sums that meet in memory, of the slice. */
template <class S>
PERSIST_FN uint32_t *persist_sums_counter(const persist_args &a, const persist_way &way, const persist_self &self,
                                          int turn) {
    uint32_t *counters = way.counters + a.groups * S::halves * S::reduce;
    return counters + (self.group * S::halves + turn) * S::spread + self.q;
}

/* Tells the owners that this CTA's sums of a slice are there. */
template <class S>
PERSIST_FN void persist_tell_sums(const persist_args &a, const persist_way &way, const persist_self &self) {
    const int steps = persist_item_steps<S>(way);
    if (self.lane != 0) return;
    for (persist_item item = {0, 0}; item.s < steps; item = persist_next<S>(item)) {
        const int k = persist_product_of<S>(persist_turn_range<S>(a, way, self, item.turn), item.s);
        if (k < 0) continue;
        ptx_arrivals_wait(persist_slice_summed<S>(a, self, item.turn), (uint32_t)k & 1u);
        ptx_count_release(persist_sums_counter<S>(a, way, self, item.turn));
    }
}

/* Sums that this CTA owns, of every product, when all have told of theirs, into a buffer whose sums cells have read. */
template <class S>
PERSIST_FN void persist_bring_sums(const persist_args &a, const persist_way &way, const persist_self &self) {
    const int steps = persist_item_steps<S>(way);
    uint32_t products = 0;
    if (self.lane != 0) return;
    for (persist_item item = {0, 0}; item.s < steps; item = persist_next<S>(item)) {
        const int k = persist_product_of<S>(persist_turn_range<S>(a, way, self, item.turn), item.s);
        if (k < 0) continue;
        const int buffer = (int)(products % S::sum_buffers);
        const uint32_t barrier = persist_barrier<S>(a, self, 0, buffer, 0);
        const uint32_t *counter = persist_sums_counter<S>(a, way, self, item.turn);
        while (ptx_count_acquire(counter) < (uint32_t)(k + 1) * S::reduce) {}
        ptx_fence_bring();
        if (products >= S::sum_buffers)
            ptx_arrivals_wait(persist_sums_read<S>(a, self, products), (products / S::sum_buffers - 1u) & 1u);
        ptx_arrivals_expect(barrier, S::meeting_bytes);
        ptx_bring(self.at + persist_arriving<S>(a, buffer, 0, 0),
                  persist_meeting<S>(way, self, item.turn, k & 1, self.p, 0), S::meeting_bytes, barrier);
        products++;
    }
}

#endif
