/* The persistent recurrence: v on its way from the CTAs that compute it to those that multiply it. */
#ifndef SLI_CUDA_PERSIST_EXCHANGE_CUH
#define SLI_CUDA_PERSIST_EXCHANGE_CUH

#include "backend/cuda/kernels/persist_product.cuh"

/* Offset in shared memory of the rows of v that the half's product number `count` reads. */
template <class S> PERSIST_FN int persist_v(int half, int count) {
    const int buffer = S::v_buffers == 2 ? count & 1 : 0;
    return (half * S::v_buffers + buffer) * (S::rows * S::v_bytes);
}

/* v of slice p in pieces, for the half's product number `count`: two, in turns. A row of v is that of the CTAs (0, p), (1, p),
 * ... one after the other. */
template <class S>
PERSIST_FN unsigned char *persist_exchange(const persist_way &way, const persist_self &self, int half, int count) {
    const int at = (((self.group * S::halves + half) * 2 + (count & 1)) * S::reduce + self.p);
    return way.exchange + (int64_t)at * S::exchange_bytes;
}
template <class S> PERSIST_FN uint32_t *persist_counter(const persist_way &way, const persist_self &self, int half) {
    return way.counters + (self.group * S::halves + half) * S::reduce + self.p;
}

/* ------------------------------------------------------------------------------------------------------ sending -- */
/* Forward through a cluster: lanes that have neighbouring units of one row swap until each has 16 bytes of them, then each
 * sends to every so manieth CTA. A whole warp calls it. */
template <class S>
PERSIST_FN void persist_send(const persist_args &a, const persist_self &self, const persist_place &place, int half,
                             int count, uint32_t value) {
    const uint32_t all = 0xFFFFFFFFu;
    uint32_t four[4];
    if constexpr (S::narrow) {
        const uint32_t other = __shfl_xor_sync(all, value, 1);
        const uint32_t two = self.lane & 1 ? (value << 16 | (other & 0xFFFFu)) : (other << 16 | (value & 0xFFFFu));
        const uint32_t next = __shfl_xor_sync(all, two, 2);
        const uint32_t a0 = self.lane & 2 ? next : two, a1 = self.lane & 2 ? two : next;
        const uint32_t b0 = __shfl_xor_sync(all, a0, 4), b1 = __shfl_xor_sync(all, a1, 4);
        const bool upper = self.lane & 4;
        four[0] = upper ? b0 : a0;
        four[1] = upper ? b1 : a1;
        four[2] = upper ? a0 : b0;
        four[3] = upper ? a1 : b1;
    } else {
        const uint32_t other = __shfl_xor_sync(all, value, 1);
        const uint32_t a0 = self.lane & 1 ? other : value, a1 = self.lane & 1 ? value : other;
        const uint32_t b0 = __shfl_xor_sync(all, a0, 2), b1 = __shfl_xor_sync(all, a1, 2);
        const bool upper = self.lane & 2;
        four[0] = upper ? b0 : a0;
        four[1] = upper ? b1 : a1;
        four[2] = upper ? a0 : b0;
        four[3] = upper ? a1 : b1;
    }
    const int first = place.own_unit - self.lane % S::cell_units; /* of the lanes that swapped */
    const uint32_t to = self.at + persist_v<S>(half, count) +
                        persist_v_at(S::v_pieces, place.own_row, (self.q * S::units + first) * S::operand);
    const uint32_t barrier = persist_barrier<S>(a, self, PERSIST_BARRIERS_V, half, count & 1);
#pragma unroll
    for (int d = 0; d < S::spread; d += S::cell_units) {
        const uint32_t rank = (uint32_t)(d + self.lane % S::cell_units);
        if (rank < S::spread) ptx_send16(ptx_map(to, rank), four, ptx_map(barrier, rank));
    }
}

/* The vk values of unit `unit` of a row, to v in shared memory (LOCAL) or in the exchange in global memory (GRID). */
template <class S> PERSIST_FN void persist_put(unsigned char *v, int row, int unit, const uint32_t (&value)[S::vk]) {
    const auto place = [](int of_row, int byte) {
        if constexpr (S::gather == PERSIST_LOCAL) return persist_v_at(S::v_pieces, of_row, byte);
        return persist_exchange_at<S>(of_row, byte);
    };
    const int byte = unit * (S::vk * S::operand);
    if constexpr (S::narrow && S::vk == 4) {
        *(uint2 *)(v + place(row, byte)) =
            make_uint2((value[0] & 0xFFFFu) | value[1] << 16, (value[2] & 0xFFFFu) | value[3] << 16);
    } else if constexpr (S::vk == 4) {
        *(uint4 *)(v + place(row, byte)) = make_uint4(value[0], value[1], value[2], value[3]);
    } else {
#pragma unroll
        for (int i = 0; i < S::vk; i++) {
            unsigned char *to = v + place(row, byte + i * S::operand);
            if constexpr (S::narrow)
                *(uint16_t *)to = (uint16_t)value[i];
            else
                *(uint32_t *)to = value[i];
        }
    }
}

/* The values of a cell that product number `count` of the half will read. A whole warp calls it. */
template <class S>
PERSIST_FN void persist_give(const persist_args &a, const persist_way &way, const persist_self &self,
                             const persist_place &place, int half, int count, const uint32_t (&value)[S::vk]) {
    if constexpr (S::gather == PERSIST_CLUSTER)
        persist_send<S>(a, self, place, half, count, value[0]);
    else if constexpr (S::gather == PERSIST_LOCAL)
        persist_put<S>(self.shared + persist_v<S>(half, count), place.own_row, place.own_unit, value);
    else {
        unsigned char *v = persist_exchange<S>(way, self, half, count);
        persist_put<S>(v, place.own_row, self.q * S::units + place.own_unit, value);
        if (S::couriers == 0 && S::k * S::operand % 16 != 0 && self.q + 1 == S::spread &&
            place.own_unit + 1 == S::units)
            for (int byte = S::k * S::operand; byte % 16 != 0; byte += 4)
                *(uint32_t *)(v + persist_v_at(S::exchange_pieces, place.own_row, byte)) = 0u;
    }
}

/* After the cells of the half have given. */
template <class S> PERSIST_FN void persist_given(const persist_way &way, const persist_self &self, int half) {
    if constexpr (S::gather != PERSIST_CLUSTER) __syncthreads();
    if constexpr (S::gather == PERSIST_GRID) {
        if (self.thread == 0) ptx_count_release(persist_counter<S>(way, self, half));
    }
}

/* ---------------------------------------------------------------------------------------------------- gathering -- */
/* Waits until all have given. */
template <class S>
PERSIST_FN void persist_await_counter(const persist_way &way, const persist_self &self, int half, int count) {
    const uint32_t *counter = persist_counter<S>(way, self, half);
    while (ptx_count_acquire(counter) < (uint32_t)count * S::spread) {}
}

/* Waits until shared memory has the v of product number `count` > 0 of the half: the count'th that was given. */
template <class S>
PERSIST_FN void persist_gather(const persist_args &a, const persist_way &way, const persist_self &self, int half,
                               int count) {
    if constexpr (S::gather == PERSIST_CLUSTER) {
        const uint32_t barrier = persist_barrier<S>(a, self, PERSIST_BARRIERS_V, half, count & 1);
        ptx_arrivals_wait(barrier, (uint32_t)((count - 1) >> 1) & 1u);
        if (self.thread == 0) ptx_arrivals_expect(barrier, S::rows * S::k * S::operand);
    } else if constexpr (S::gather == PERSIST_GRID) {
        constexpr int pieces = S::exchange_pieces * 8;
        if (self.thread == 0) persist_await_counter<S>(way, self, half, count);
        __syncthreads();
        const unsigned char *from = persist_exchange<S>(way, self, half, count);
        const uint32_t to = self.at + persist_v<S>(half, count);
        for (int i = self.thread; i < S::tiles_n * pieces; i += S::threads)
            ptx_copy16(to + (i / pieces * (S::v_pieces * 8) + i % pieces) * 16, from + i * 16);
        ptx_copies_wait();
        __syncthreads();
    }
}

/* ----------------------------------------------------------------------------------------------------- beginning -- */
/* Zeros in all of v, then forward the state that step 0 enters from; barriers. */
template <class S>
PERSIST_FN void persist_begin(const persist_args &a, const persist_way &way, const persist_self &self) {
    uint32_t *v = (uint32_t *)self.shared;
    for (int i = self.thread; i < S::v_all_bytes / 4; i += S::threads) v[i] = 0u;
    if (self.thread == 0) {
        for (int i = 0; i < S::sum_buffers; i++) {
            const int half = S::couriers ? i : i / 2, buffer = S::couriers ? 0 : i % 2;
            const uint32_t of_v = persist_barrier<S>(a, self, PERSIST_BARRIERS_V, half, buffer);
            const uint32_t of_sums = persist_barrier<S>(a, self, PERSIST_BARRIERS_SUMS, half, buffer);
            if constexpr (S::gather == PERSIST_CLUSTER) {
                ptx_arrivals_init(of_v, 1);
                ptx_arrivals_expect(of_v, S::rows * S::k * S::operand);
            }
            if constexpr (S::reduce > 1) {
                ptx_arrivals_init(of_sums, 1);
                ptx_arrivals_expect(of_sums, S::reduce * S::own * S::rows * 4);
            }
        }
        if constexpr (S::cluster > 1 || S::gather == PERSIST_CLUSTER) ptx_arrivals_init_fence();
    }
    if constexpr (S::in_shared > 0) ptx_copies_wait(); /* weights */
    if constexpr (S::couriers > 0) ptx_fence_shared();
    persist_sync<S>();
    if constexpr (S::couriers > 0) return; /* they begin in persist_turns.cuh */
    if constexpr (!S::backward) {
        for (int i = self.thread; i < S::halves * S::rows * S::k; i += S::threads) {
            const int k = i % S::k, own_row = i / S::k % S::rows, half = i / S::k / S::rows;
            const int unit = (k / S::units * S::reduce + self.p) * S::units + k % S::units;
            const int row = (self.group * S::halves + half) * S::rows + own_row;
            if (unit >= a.H || row >= a.B) continue;
            unsigned char *to =
                self.shared + persist_v<S>(half, 0) + persist_v_at(S::v_pieces, own_row, k * S::operand);
            const int64_t from = (int64_t)row * a.hs + unit;
            if constexpr (S::narrow)
                *(uint16_t *)to = ((const uint16_t *)way.operand_from)[from];
            else
                *(uint32_t *)to = persist_operand<S>(((const float *)way.operand_from)[from]);
        }
    }
    if constexpr (S::cluster > 1 || S::gather == PERSIST_CLUSTER)
        ptx_cluster_sync();
    else
        __syncthreads();
}

#endif
