/* The persistent recurrence: v on its way from the CTAs that compute it to those that multiply it. */
#ifndef SLI_CUDA_PERSIST_EXCHANGE_CUH
#define SLI_CUDA_PERSIST_EXCHANGE_CUH

#include "backend/cuda/kernels/persist_product.cuh"

/* Offset in shared memory of the rows of v that the half's product number `count` reads. Of three buffers r d h' has the middle one, and d h' by
 * turns the others: z's part of it is multiplied while other CTAs may have gone on to the next. */
template <class S> PERSIST_FN int persist_v(int half, int count) {
    const int buffer = S::v_buffers == 3 ? (count & 1 ? 1 : count & 2) : S::v_buffers == 2 ? count & 1 : 0;
    return (half * S::v_buffers + buffer) * (S::places * S::whole::v_bytes);
}

/* v of slice p in pieces, for the half's product number `count`, in buffers by turns. A row of v is that of the CTAs (0, p), (1, p),
 * ... one after the other.
 *
 * Over the grid a counter tells that v has come, or, where each lane can take its part of v at once, v itself: memory has the complement of each word, 0 where nothing has come yet. A word is
 * never the complement of 0, which no arithmetic gives (a NaN of other bits). A reader asks for pieces until no word is 0: one way
 * through L2, where values, a fence, a counter, and values that are read behind it take two and a half.
 *   A CTA that gives number n has v number n - 1 of all others, who therefore have read all of n - 2. So it clears its words of
 * that buffer, for number n + 2, and its first warp sees to it that this is so before anything of number n + 1 is given, while
 * the other warps wait for number n. Who asks for n + 2 has n + 1 of all: it meets no word of n - 2. The first two buffers are zeros
 * before the launch. */
template <class S>
PERSIST_FN unsigned char *persist_exchange(const persist_args &a, const persist_way &way, const persist_self &self,
                                           int half, int count) {
    const int slice = self.group * S::halves + half;
    const int at = S::words_tell ? ((count - 1) % S::exchange_buffers * a.groups * S::halves + slice) * S::reduce + self.p
                                 : (slice * S::exchange_buffers + (count & 1)) * S::reduce + self.p;
    return way.exchange + (int64_t)at * S::whole::exchange_bytes;
}
template <class S> PERSIST_FN uint32_t *persist_counter(const persist_way &way, const persist_self &self, int half) {
    return way.counters + (self.group * S::halves + half) * S::reduce + self.p;
}

/* ------------------------------------------------------------------------------------------------------ sending -- */
/* Forward through a cluster: lanes that have neighbouring units of one row write 16 bytes of them to shared memory, and each sends these to every so
 * manieth CTA; lanes that have no cell, to others. A whole warp calls it. By shuffles, three one behind the other, it took 60 cycles of a step more. */
template <class S>
PERSIST_FN void persist_send(const persist_args &a, const persist_self &self, const persist_place &place, int half,
                             int count, uint32_t value) {
    constexpr int neighbours = 16 / S::operand, wide = neighbours * S::cell_split;
    unsigned char *own = self.shared + persist_constant(S::shared_sending, a.shared_sending) + self.warp * PERSIST_SENDING;
    if constexpr (S::cells > 1) __syncwarp(); /* all have read what was sent before */
    if (self.lane < S::cell_lanes) {
        if constexpr (S::narrow)
            ((uint16_t *)own)[self.lane] = (uint16_t)value;
        else
            ((uint32_t *)own)[self.lane] = value;
    }
    __syncwarp();
    const uint4 read = *(const uint4 *)(own + self.lane % S::cell_lanes / neighbours * 16);
    const uint32_t four[4] = {read.x, read.y, read.z, read.w};
    /* No branch in the message's way; but two messages of eight warps that begin at once took 0.16 us a step longer (LSTM of 512 units, f16). */
    constexpr bool straight = S::spread == wide || (S::spread % wide == 0 && S::warps <= 4);
    const int first = place.own_unit - self.lane % neighbours; /* of those that have the 16 bytes */
    const uint32_t to = self.at + persist_v_at(S::v_pieces, place.own_row, (self.q * S::units + first) * S::operand);
    const uint32_t barrier = persist_barrier<S>(a, self, PERSIST_BARRIERS_V, half, 0);
#pragma unroll
    for (int d = 0; d < S::spread; d += wide) {
        const uint32_t rank = (uint32_t)(d + self.lane % neighbours + self.lane / S::cell_lanes * neighbours);
        if (straight || rank < S::spread)
            ptx_send16(ptx_map(to, rank) + persist_v<S>(half, count), four,
                       ptx_map(barrier, rank) + (persist_barrier<S>(a, self, PERSIST_BARRIERS_V, half, count & 1) - barrier));
    }
}

/* The vk values of unit `unit` of a row, to v in shared memory (LOCAL) or in the exchange. */
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

/* A word as it is given; 0 is given for none. */
PERSIST_FN uint32_t persist_told(uint32_t word) {
    return word == 0xFFFFFFFFu ? ~0x7FFFFFFFu : ~word;
}

/* `count` words of a row, from byte `byte` of v on, which are complements. */
template <class S, int count>
PERSIST_FN void persist_give_words(unsigned char *v, int row, int byte, const uint32_t (&word)[count]) {
    if constexpr (count != 3) {
        ptx_give(v + persist_v_at(S::exchange_pieces, row, byte), word);
    } else {
#pragma unroll
        for (int i = 0; i < count; i++) {
            const uint32_t one[1] = {word[i]};
            ptx_give(v + persist_v_at(S::exchange_pieces, row, byte + 4 * i), one);
        }
    }
}

/* The vk values of a cell to the exchange whose words tell. Values of 16 bits go by words: of two units, or of two gates. */
template <class S>
PERSIST_FN void persist_tell_values(const persist_args &a, const persist_self &self, const persist_place &place,
                                    unsigned char *v, const uint32_t (&value)[S::vk]) {
    constexpr bool two_units = S::narrow && S::vk != 4;
    constexpr int count = S::vk == 4 && S::narrow ? 2 : S::vk;
    uint32_t word[count];
    if constexpr (two_units) {
        uint32_t both[2 * S::vk];
#pragma unroll
        for (int i = 0; i < S::vk; i++) {
            both[i] = value[i] & 0xFFFFu;
            both[S::vk + i] = __shfl_xor_sync(0xFFFFFFFFu, both[i], 1);
        }
#pragma unroll
        for (int i = 0; i < count; i++) word[i] = persist_told(both[2 * i] | both[2 * i + 1] << 16);
    } else {
#pragma unroll
        for (int i = 0; i < count; i++)
            word[i] = persist_told(S::narrow ? (value[2 * i % S::vk] & 0xFFFFu) | value[(2 * i + 1) % S::vk] << 16
                                             : value[i]);
    }
    if (place.row >= a.B || place.own_row >= S::rows || (two_units && self.lane % 2 == 1)) return;
    persist_give_words<S>(v, place.own_row, (self.q * S::units + place.own_unit) * (S::vk * S::operand), word);
    const uint32_t padding[1] = {persist_told(0u)};
    if (S::k * S::operand % 16 != 0 && self.q + 1 == S::spread && place.own_unit == 0)
        for (int byte = S::k * S::operand; byte % 16 != 0; byte += 4)
            persist_give_words<S>(v, place.own_row, byte, padding);
}

/* The values of a cell that product number `count` of the half will read. A whole warp calls it. */
template <class S>
PERSIST_FN void persist_give(const persist_args &a, const persist_way &way, const persist_self &self,
                             const persist_place &place, int half, int count, const uint32_t (&value)[S::vk]) {
    if constexpr (S::gather == PERSIST_CLUSTER)
        persist_send<S>(a, self, place, half, count, value[0]);
    else if constexpr (S::gather == PERSIST_LOCAL) {
        if (self.lane < S::cell_lanes)
            persist_put<S>(self.shared + persist_v<S>(half, count), place.own_row, place.own_unit, value);
    } else if constexpr (S::words_tell)
        persist_tell_values<S>(a, self, place, persist_exchange<S>(a, way, self, half, count), value);
    else {
        unsigned char *v = persist_exchange<S>(a, way, self, half, count);
        persist_put<S>(v, place.own_row, self.q * S::units + place.own_unit, value);
        if (S::couriers == 0 && S::k * S::operand % 16 != 0 && self.q + 1 == S::spread &&
            place.own_unit + 1 == S::units)
            for (int byte = S::k * S::operand; byte % 16 != 0; byte += 4)
                *(uint32_t *)(v + persist_v_at(S::exchange_pieces, place.own_row, byte)) = 0u;
    }
}

/* Rows of the half that exist; only these are exchanged where words tell. */
template <class S> PERSIST_FN int persist_rows_here(const persist_args &a, const persist_self &self, int half) {
    const int left = a.B - (self.group * S::halves + half) * S::rows;
    return left < 0 ? 0 : left < S::rows ? left : S::rows;
}

/* The CTA's own words for product number `count`: none has come. By the first warp. */
template <class S>
PERSIST_FN void persist_clear(const persist_args &a, const persist_way &way, const persist_self &self, int half,
                              int count) {
    constexpr int each = S::own_words % 4 == 0 ? 4 : 1, padding = S::k * S::operand % 16 == 0 ? 0 : 4 - S::k * S::operand % 16 / 4;
    const int words = S::own_words + (self.q + 1 == S::spread ? padding : 0), rows = persist_rows_here<S>(a, self, half);
    unsigned char *v = persist_exchange<S>(a, way, self, half, count);
    for (int i = self.lane; i < words / each * S::rows; i += 32) {
        const int row = i % S::rows, word = self.q * S::own_words + i / S::rows * each;
        if (row >= rows) continue;
        const uint32_t none[each] = {};
        ptx_give(v + persist_v_at(S::exchange_pieces, row, word * 4), none);
    }
}

/* After the cells of the half have given number `count`. */
template <class S>
PERSIST_FN void persist_given(const persist_args &a, const persist_way &way, const persist_self &self, int half,
                              int count) {
    /* Where words tell no thread waits: but a warp's sums may be of other CTAs alone, and then none that came say that all have
     * read v. */
    if constexpr (S::gather == PERSIST_LOCAL || (S::gather == PERSIST_GRID && (!S::words_tell || S::direct)))
        persist_sync<S>();
    if constexpr (S::words_tell) {
        if (self.warp == 0) persist_clear<S>(a, way, self, half, count + 2);
    } else if constexpr (S::gather == PERSIST_GRID) {
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

PERSIST_FN bool persist_has_come(const uint32_t (&piece)[4]) {
    return piece[0] != 0u && piece[1] != 0u && piece[2] != 0u && piece[3] != 0u;
}

/* v of product number `count` from the exchange whose words tell to shared memory: all pieces at once, S::taken a lane, asked for
 * until they have come. A second round of them would cost as much as the counter. Of fewer than eight rows lanes go to those
 * that exist, or a power of two of them. */
template <class S>
PERSIST_FN void persist_take(const persist_args &a, const persist_way &way, const persist_self &self, int half,
                             int count) {
    const int rows = persist_rows_here<S>(a, self, half);
    const int shift = S::tiles_n > 1 || rows > 4 ? 3 : rows > 2 ? 2 : rows > 1 ? 1 : 0;
    const int all = (S::tiles_n * S::exchange_pieces) << shift, thread = self.thread - 32 * S::fencing;
    const unsigned char *from = persist_exchange<S>(a, way, self, half, count);
    const uint32_t to = self.at + persist_v<S>(half, count);
    const auto row = [&](int j) { return (thread + j * S::takers) & ((1 << shift) - 1); };
    const auto eight = [&](int j) { return (thread + j * S::takers) >> shift; }; /* of rows: a piece */
    uint32_t piece[S::taken][4];
    bool wanted[S::taken], come;
#pragma unroll
    for (int j = 0; j < S::taken; j++) {
        wanted[j] = thread + j * S::takers < all && eight(j) / S::exchange_pieces * 8 + row(j) < rows;
#pragma unroll
        for (int word = 0; word < 4; word++) piece[j][word] = wanted[j] ? 0u : 1u;
    }
    do {
        come = true;
#pragma unroll
        for (int j = 0; j < S::taken; j++)
            if (!persist_has_come(piece[j])) ptx_take16(piece[j], from + (eight(j) * 8 + row(j)) * 16);
#pragma unroll
        for (int j = 0; j < S::taken; j++) come = come && persist_has_come(piece[j]);
    } while (!come);
#pragma unroll
    for (int j = 0; j < S::taken; j++) {
        const uint32_t value[4] = {~piece[j][0], ~piece[j][1], ~piece[j][2], ~piece[j][3]};
        const int n = eight(j) / S::exchange_pieces, of_row = eight(j) % S::exchange_pieces;
        if (wanted[j]) ptx_store_shared(to + ((n * S::v_pieces + of_row) * 8 + row(j)) * 16, value);
    }
}

/* Two parts have one place in turn: what lies behind the k of one is the other's. Zeros there, which weights of 0 are multiplied with. */
template <class S> PERSIST_FN void persist_clear_padding(const persist_self &self, int half, int count) {
    constexpr int each = (S::v_pieces - S::exchange_pieces) * 8;
    const uint32_t to = self.at + persist_v<S>(half, count) + S::exchange_pieces * 128, zeros[4] = {};
    if constexpr (S::before && S::backward && S::gather == PERSIST_GRID && each > 0)
        for (int i = self.thread; i < S::tiles_n * each; i += S::threads)
            ptx_store_shared(to + (i / each * (S::v_pieces * 8) + i % each) * 16, zeros);
}

/* Waits until shared memory has the v of product number `count` > 0 of the half: the count'th that was given. */
template <class S>
PERSIST_FN void persist_gather(const persist_args &a, const persist_way &way, const persist_self &self, int half,
                               int count) {
    if constexpr (S::gather == PERSIST_CLUSTER) {
        const uint32_t barrier = persist_barrier<S>(a, self, PERSIST_BARRIERS_V, half, count & 1);
        ptx_arrivals_wait(barrier, (uint32_t)((count - 1) >> 1) & 1u);
        if (self.thread == 0) ptx_arrivals_expect(barrier, S::given * S::k * S::operand);
    } else if constexpr (S::words_tell) {
        persist_clear_padding<S>(self, half, count);
        if (self.warp == 0) ptx_fence_given();
        if (self.warp >= S::fencing) persist_take<S>(a, way, self, half, count);
        __syncthreads();
    } else if constexpr (S::gather == PERSIST_GRID) {
        constexpr int pieces = S::exchange_pieces * 8;
        if (self.thread == 0) persist_await_counter<S>(way, self, half, count);
        persist_clear_padding<S>(self, half, count);
        __syncthreads();
        const unsigned char *from = persist_exchange<S>(a, way, self, half, count);
        const uint32_t to = self.at + persist_v<S>(half, count);
        for (int i = self.thread; i < S::tiles_n * pieces; i += S::threads)
            ptx_copy16(to + (i / pieces * (S::v_pieces * 8) + i % pieces) * 16, from + i * 16);
        ptx_copies_wait();
        __syncthreads();
    }
}

/* ----------------------------------------------------------------------------------------------------- beginning -- */
/* Forward, d h that step 0 enters from, in fours of neighbouring units: a warp has `high` rows by `wide` fours at a time, so that it
 * writes neighbouring bytes of v, and asks for eight such pieces before it needs the first. One value after the other, each a way to
 * L2, took 3 to 4 us of a call (512 and 1024 units, eight rows a CTA). */
template <class S> struct persist_entered {
    static constexpr int high = S::rows < 8 ? (int)S::rows : 8, wide = 32 / high;
    static constexpr int across = (S::k + 4 * wide - 1) / (4 * wide), pieces = S::halves * (S::rows / high) * across;
    static constexpr int each = (pieces + S::warps - 1) / S::warps, at_once = each < 8 ? each : 8;
    uint32_t word[at_once][4]; /* floats; of an operand of 16 bits two words */
};
enum persist_entry { PERSIST_FOURS, PERSIST_FLOATS, PERSIST_NARROW }; /* four floats at once; one by one; four of 16 bits */

/* Four values of the lane's. */
struct persist_quad {
    bool here;           /* of those that the CTA multiplies */
    int half, own_row, k;
    int row, unit;       /* of the batch, of the layer: the first */
};
template <class S> PERSIST_FN persist_quad persist_quad_of(const persist_self &self, int piece) {
    typedef persist_entered<S> E;
    persist_quad quad;
    const int eight = piece / E::across % (S::rows / E::high);
    quad.half = piece / E::across / (S::rows / E::high);
    quad.own_row = eight * E::high + self.lane % E::high;
    quad.k = (piece % E::across * E::wide + self.lane / E::high) * 4;
    quad.here = piece < E::pieces && quad.k < S::k;
    quad.row = (self.group * S::halves + quad.half) * S::rows + quad.own_row;
    quad.unit = S::reduce > 1 ? (quad.k / S::units * S::reduce + self.p) * S::units + quad.k % S::units : quad.k;
    return quad;
}

template <class S, int ENTRY>
PERSIST_FN void persist_ask_pieces(const persist_args &a, const void *base, int stride, const persist_self &self,
                                   int first, persist_entered<S> &entered) {
#pragma unroll
    for (int j = 0; j < persist_entered<S>::at_once; j++) {
        const persist_quad quad = persist_quad_of<S>(self, first + j * S::warps + self.warp);
        const uint32_t at = (uint32_t)(quad.row * stride + quad.unit);
        uint32_t(&word)[4] = entered.word[j];
        word[0] = word[1] = word[2] = word[3] = 0u;
        if (!quad.here || quad.row >= a.B || quad.unit >= persist_units<S>(a)) continue;
        if constexpr (ENTRY == PERSIST_NARROW) {
            uint32_t two[2];
            ptx_load8_constant(two, (const uint16_t *)base + at);
            word[0] = two[0];
            word[1] = two[1];
        } else if constexpr (ENTRY == PERSIST_FOURS) {
            ptx_load16_constant(word, (const float *)base + at);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (quad.unit + i < persist_units<S>(a)) ptx_load4_constant(word[i], (const float *)base + at + i);
        }
    }
}

/* Pieces from `first` on: S::warps times at_once. Behind a row of an operand there are zeros up to a whole four. */
template <class S>
PERSIST_FN void persist_ask_entering(const persist_args &a, const persist_way &way, const persist_self &self, int first,
                                     persist_entered<S> &entered) {
    const void *base = way.h_enters ? (const void *)way.h_enters : way.operand_from;
    const int stride = way.h_enters ? persist_units<S>(a) : persist_hs<S>(a);
    if (S::stores_narrow && !way.h_enters)
        persist_ask_pieces<S, PERSIST_NARROW>(a, base, stride, self, first, entered);
    else if (stride % 4 == 0 && (uintptr_t)base % 16 == 0)
        persist_ask_pieces<S, PERSIST_FOURS>(a, base, stride, self, first, entered);
    else
        persist_ask_pieces<S, PERSIST_FLOATS>(a, base, stride, self, first, entered);
}

template <class S>
PERSIST_FN void persist_put_entering(const persist_way &way, const persist_self &self, int first,
                                     const persist_entered<S> &entered) {
    const bool narrow = S::stores_narrow && !way.h_enters;
#pragma unroll
    for (int j = 0; j < persist_entered<S>::at_once; j++) {
        const persist_quad quad = persist_quad_of<S>(self, first + j * S::warps + self.warp);
        const uint32_t(&word)[4] = entered.word[j];
        uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = narrow ? word[i] : persist_given_operand<S>(self, __uint_as_float(word[i]));
        if (S::narrow && !narrow) {
            x[0] |= x[1] << 16;
            x[1] = x[2] | x[3] << 16;
        }
        unsigned char *to = self.shared + persist_v<S>(quad.half, 0) +
                            persist_v_at(S::v_pieces, quad.own_row, quad.k * S::operand);
        if (!quad.here) continue;
        if constexpr (S::narrow)
            *(uint2 *)to = make_uint2(x[0], x[1]);
        else
            *(uint4 *)to = make_uint4(x[0], x[1], x[2], x[3]);
    }
}

/* Zeros in all of v; barriers. */
template <class S>
PERSIST_FN void persist_begin_shared(const persist_args &a, const persist_self &self) {
    const uint32_t zeros[4] = {};
    static_assert(S::v_all_bytes % 16 == 0, "v is pieces of 16 bytes");
    for (int i = self.thread; i < S::v_all_bytes / 16; i += S::threads) ptx_store_shared(self.at + i * 16, zeros);
    if (self.thread != 0) return;
    for (int i = 0; i < S::sum_buffers; i++) {
        const int half = S::couriers ? i : i / 2, buffer = S::couriers ? 0 : i % 2;
        if constexpr (S::gather == PERSIST_CLUSTER)
            ptx_arrivals_init(persist_barrier<S>(a, self, PERSIST_BARRIERS_V, half, buffer), 1);
        if constexpr (S::reduce > 1)
            ptx_arrivals_init(persist_barrier<S>(a, self, PERSIST_BARRIERS_SUMS, half, buffer), 1);
    }
    if constexpr (S::cluster > 1 || S::gather == PERSIST_CLUSTER) ptx_arrivals_init_fence();
}

/* After all warps have met, so that racecheck sees an order: what the barriers wait for first. Before any other CTA sends. */
template <class S>
PERSIST_FN void persist_begin_arrivals(const persist_args &a, const persist_self &self) {
    if (self.thread != 0) return;
    for (int i = 0; i < S::sum_buffers; i++) {
        const int half = S::couriers ? i : i / 2, buffer = S::couriers ? 0 : i % 2;
        if constexpr (S::gather == PERSIST_CLUSTER)
            ptx_arrivals_expect(persist_barrier<S>(a, self, PERSIST_BARRIERS_V, half, buffer),
                                S::given * S::k * S::operand);
        if constexpr (S::reduce > 1 && !S::meets)
            ptx_arrivals_expect(persist_barrier<S>(a, self, PERSIST_BARRIERS_SUMS, half, buffer),
                                S::reduce * S::own * S::tiles_n * S::sent * 4);
    }
}

/* In turns the rest is in persist_turns.cuh. */
template <class S> PERSIST_FN void persist_begin_turns_shared(const persist_args &a, const persist_self &self) {
    persist_begin_shared<S>(a, self);
    if constexpr (S::in_shared > 0) ptx_copies_wait(); /* weights */
    ptx_fence_shared();
    persist_sync<S>();
    persist_begin_arrivals<S>(a, self);
}

/* Shared memory, forward with the d h that step 0 enters from, of which the first were asked for. What each lane reads of the weights it
 * has copied itself: backward, where step 0 multiplies nothing, it waits for that after it. */
template <class S>
PERSIST_FN void persist_begin(const persist_args &a, const persist_way &way, const persist_self &self,
                              persist_entered<S> &entered) {
    persist_begin_shared<S>(a, self);
    __syncthreads();
    persist_begin_arrivals<S>(a, self);
    if constexpr (!S::backward) {
        constexpr int round = persist_entered<S>::at_once * S::warps;
#pragma unroll 1
        for (int first = 0; first < persist_entered<S>::pieces; first += round) {
            if (first > 0) persist_ask_entering<S>(a, way, self, first, entered);
            persist_put_entering<S>(way, self, first, entered);
        }
        if constexpr (S::in_shared > 0) ptx_copies_wait(); /* weights */
    }
    if constexpr (S::cluster > 1 || S::gather == PERSIST_CLUSTER)
        ptx_cluster_sync();
    else
        __syncthreads();
}

#endif
