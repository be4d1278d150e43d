/* The persistent recurrence: partial sums of y = M v. A warp multiplies its tiles of M, which stay in registers, shared memory,
 * or come from global memory, with v in shared memory; the sums go through shared memory to the cells, or to their owners. */
#ifndef SLI_CUDA_PERSIST_PRODUCT_CUH
#define SLI_CUDA_PERSIST_PRODUCT_CUH

#include "backend/cuda/kernels/persist_sizes.cuh"
#include "backend/cuda/kernels/persist_tight.cuh"

/* A lane's words of two tiles that are tight. */
typedef struct persist_tied {
    uint32_t first[4], fifth;
} persist_tied;
template <class S> struct persist_weights {
    uint32_t tile[S::all_tiles_m][S::in_registers > 0 && !S::tight ? S::in_registers : 1][4];
    persist_tied tight[S::all_tiles_m][S::in_registers > 0 && S::tight ? S::in_registers / 2 : 1];
    mutable int slot; /* of the ring: that of the next pair of tiles, */
    mutable uint32_t parity; /* and how often it has gone around */
};
template <class S> struct persist_sums { float of[S::tiles_m][S::tiles_n][S::columns]; };

/* Which tile (k, m) is of those of a warp; tight: the pair of tiles k, even, and k + 1, as two. */
template <class S> PERSIST_FN int persist_tile(int k, int m) {
    return k * S::all_tiles_m + (S::tight ? 2 * m : m);
}
/* The lane's first 16 bytes of tile number `tile` of its warp in global memory. */
template <class S>
PERSIST_FN const unsigned char *persist_packed(const persist_way &way, const persist_self &self, int tile) {
    const int cta = self.q * S::reduce + self.p;
    const int64_t at = (int64_t)(cta * S::warps + self.warp) * (S::all_tiles_k * S::all_tiles_m) + tile;
    return (const unsigned char *)way.weights + at * S::tile_size + self.lane * 16;
}
/* Tight: where the lane's fifth word lies, behind its first four. */
PERSIST_FN int persist_fifth(const persist_self &self) {
    return 512 - self.lane * 12;
}
/* From global to shared memory what the lane reads of a tile; tight: of a pair. */
template <class S> PERSIST_FN void persist_copy_tile(const persist_self &self, uint32_t to, const unsigned char *from) {
    ptx_copy16(to, from);
    if constexpr (S::tight) ptx_copy4(to + persist_fifth(self), from + persist_fifth(self));
}
/* The lane's words of a tile in shared memory, and, `pair`, of the next of k, which begins `next` bytes behind it. */
template <class S>
PERSIST_FN void persist_load_pair(const persist_self &self, uint32_t (&first)[4], uint32_t (&second)[4], uint32_t from,
                                  int next, bool pair) {
    ptx_load_shared(first, from);
    if constexpr (S::tight)
        persist_untie(first, ptx_load_word(from + persist_fifth(self)), second);
    else if (pair)
        ptx_load_shared(second, from + next);
}

/* Where the lane's tiles begin that stay in shared memory. */
template <class S> PERSIST_FN uint32_t persist_kept(const persist_args &a, const persist_self &self) {
    return self.at + persist_constant(S::shared_weights, a.shared_weights) + self.warp * (S::in_shared * S::all_tiles_m * S::tile_size) + self.lane * 16;
}

/* Streamed tiles come by pairs of k, the same ones in every product, one behind the other: while a product uses one the warp asks
 * for that which comes `ring` pairs later, the last for the next product, whose first ones so arrive before its v. A pair is one bulk
 * copy, or each lane copies what it reads itself. Of more than L2 holds the first `near` pairs stay there, all others leave first: else
 * each would be gone before it is read again. */
template <class S> PERSIST_FN uint32_t persist_ring_at(const persist_args &a, const persist_self &self, int slot) {
    return self.at + persist_constant(S::shared_ring, a.shared_ring) + (self.warp * S::ring + slot) * S::pair_bytes;
}
template <class S>
PERSIST_FN uint32_t persist_ring_barrier(const persist_args &a, const persist_self &self, int slot) {
    return self.at + persist_constant(S::shared_barriers, a.shared_barriers) + (S::ring_barriers + self.warp * S::ring + slot) * 8;
}
/* Reset before, forward: of tiles 2 k and 2 k + 1 that stream the rows of one part. */
template <class S>
PERSIST_FN void persist_ask_rows(const persist_args &a, const persist_way &way, const persist_self &self, int slot,
                                 int asked) {
    const int part = asked / S::pairs, pair = asked - part * S::pairs;
    const int tiles = S::streamed % 2 == 0 || 2 * pair + 1 < S::streamed ? 2 : 1;
    const uint32_t to = persist_ring_at<S>(a, self, slot), barrier = persist_ring_barrier<S>(a, self, slot);
    const int first = (S::kept + 2 * pair) * S::all_tiles_m + part * S::tiles_m;
    if constexpr (S::brings) {
        if (self.lane != 0) return;
        ptx_arrivals_expect(barrier, (uint32_t)(tiles * S::tiles_m * 512));
    }
    for (int i = 0; i < tiles; i++) {
        const unsigned char *from = persist_packed<S>(way, self, first + i * S::all_tiles_m);
        const uint32_t there = to + i * S::tiles_m * 512;
        if constexpr (S::brings) {
            if (pair < a.near)
                ptx_bring(there, from, S::tiles_m * 512, barrier);
            else
                ptx_bring_once(there, from, S::tiles_m * 512, barrier);
        } else {
#pragma unroll
            for (int m = 0; m < S::tiles_m; m++) ptx_copy16(there + m * 512 + self.lane * 16, from + m * 512);
        }
    }
    if constexpr (!S::brings) ptx_copies_group();
}
template <class S>
PERSIST_FN void persist_ask(const persist_args &a, const persist_way &way, const persist_self &self, int slot, int pair) {
    const uint32_t to = persist_ring_at<S>(a, self, slot);
    if constexpr (S::rows_apart) {
        persist_ask_rows<S>(a, way, self, slot, pair);
        return;
    }
    if constexpr (S::brings) {
        if (self.lane != 0) return;
        const bool whole = S::streamed % 2 == 0 || 2 * pair + 1 < S::streamed;
        const uint32_t bytes = (whole ? 2 : 1) * S::tiles_m * S::tile_size, barrier = persist_ring_barrier<S>(a, self, slot);
        const void *from = persist_packed<S>(way, self, (S::in_registers + S::in_shared + 2 * pair) * S::tiles_m);
        ptx_arrivals_expect(barrier, bytes);
        if (pair < a.near)
            ptx_bring(to, from, bytes, barrier);
        else
            ptx_bring_once(to, from, bytes, barrier);
        return;
    }
#pragma unroll
    for (int second = 0; second < (S::tight ? 1 : 2); second++)
#pragma unroll
        for (int m = 0; m < S::tiles_m; m++) {
            const int k = S::in_registers + S::in_shared + 2 * pair + second;
            if (S::streamed % 2 == 0 || k < S::all_tiles_k)
                persist_copy_tile<S>(self, to + persist_tile<S>(second, m) * S::tile_size + self.lane * 16,
                                     persist_packed<S>(way, self, persist_tile<S>(k, m)));
        }
    ptx_copies_group();
}

template <class S>
PERSIST_FN void persist_begin_ring(const persist_args &a, const persist_way &way, const persist_self &self,
                                   persist_weights<S> &w) {
    if constexpr (S::brings) {
        if (self.lane == 0) {
            for (int slot = 0; slot < S::ring; slot++) ptx_arrivals_init(persist_ring_barrier<S>(a, self, slot), 1);
            ptx_arrivals_init_fence();
        }
        __syncwarp();
    }
    constexpr int begin = S::before && S::backward ? (int)persist_new<S>::first_pair : 0;
    for (int slot = 0; slot < S::ring; slot++)
        persist_ask<S>(a, way, self, slot, begin + slot < S::in_step ? begin + slot : begin + slot - S::in_step);
    w.slot = 0;
    w.parity = 0;
}
/* Waits for the next pair; each lane, or all for what the first has asked for. */
template <class S>
PERSIST_FN void persist_await_ring(const persist_args &a, const persist_self &self, int slot, uint32_t parity) {
    if constexpr (S::brings)
        ptx_arrivals_wait(persist_ring_barrier<S>(a, self, slot), parity);
    else
        ptx_copies_wait_but<S::ring - 1>();
}
template <class S> PERSIST_FN void persist_turn_ring(int &slot, uint32_t &parity) {
    slot = slot + 1 == S::ring ? 0 : slot + 1;
    if (slot == 0) parity ^= 1u;
}
/* Pairs that were asked for and no product wants: no CTA ends before they have come. */
template <class S>
PERSIST_FN void persist_end_ring(const persist_args &a, const persist_self &self, const persist_weights<S> &w) {
    if constexpr (S::brings) {
        int slot = w.slot;
        uint32_t parity = w.parity;
        for (int i = 0; i < S::ring; i++) {
            persist_await_ring<S>(a, self, slot, parity);
            persist_turn_ring<S>(slot, parity);
        }
    } else {
        ptx_copies_wait();
    }
}

/* Tile (k, m) of four warps that multiply together, in shared memory: [2 pieces of 16 bytes of k][8 times 8 rows][8][16], which
 * is [2][8] times the words of 32 lanes. */
template <class S>
PERSIST_FN uint32_t persist_together_at(const persist_args &a, const persist_self &self, int k, int m) {
    const int four = self.warp / 4, tile = (four * S::in_shared + k - S::in_registers) * S::tiles_m + m;
    return self.at + persist_constant(S::shared_weights, a.shared_weights) + tile * 2048;
}
template <class S>
PERSIST_FN void persist_keep_together(const persist_args &a, const persist_way &way, const persist_self &self) {
    for (int k = S::in_registers; k < S::tiles_k; k++)
        for (int m = 0; m < S::tiles_m; m++) {
            uint32_t word[4];
            ptx_load16_constant(word, persist_packed<S>(way, self, k * S::tiles_m + m));
            uint32_t *to = (uint32_t *)(self.shared + (persist_together_at<S>(a, self, k, m) - self.at));
#pragma unroll
            for (int i = 0; i < 4; i++) to[(i / 2 * 8 + self.warp % 4 * 2 + i % 2) * 32 + self.lane] = word[i];
        }
}

template <class S>
PERSIST_FN void persist_load_weights(const persist_args &a, const persist_way &way, const persist_self &self,
                                     persist_weights<S> &w) {
    constexpr int each = S::tight ? 2 : 1;
#pragma unroll
    for (int k = 0; k < S::in_registers; k += each)
#pragma unroll
        for (int m = 0; m < S::all_tiles_m; m++) {
            const unsigned char *from = persist_packed<S>(way, self, persist_tile<S>(k, m));
            ptx_load16_constant(S::tight ? w.tight[m][k / 2].first : w.tile[m][S::tight ? 0 : k], from);
            if constexpr (S::tight) ptx_load4_constant(w.tight[m][k / 2].fifth, from + persist_fifth(self));
        }
    if constexpr (S::together) {
        persist_keep_together<S>(a, way, self);
        return;
    }
    const uint32_t to = persist_kept<S>(a, self);
    for (int km = 0; km < S::in_shared * S::all_tiles_m; km += each)
        persist_copy_tile<S>(self, to + km * S::tile_size,
                             persist_packed<S>(way, self, S::in_registers * S::all_tiles_m + km));
    if constexpr (S::streamed > 0) persist_begin_ring<S>(a, way, self, w);
}

/* Those that stay in registers are there. */
template <class S> PERSIST_FN void persist_weights_arrived(const persist_way &way, const persist_weights<S> &w) {
    uint32_t any = 0;
#pragma unroll
    for (int k = 0; k < S::in_registers; k++)
#pragma unroll
        for (int m = 0; m < S::all_tiles_m; m++)
            any ^= S::tight ? w.tight[m][k / 2].fifth : w.tile[m][S::tight ? 0 : k][0];
    ptx_arrived(any, way.weights);
}

/* ---------------------------------------------------------------------------------------------------- multiply -- */
/* Of two tiles of k (`pair`: else of one): the rows' bytes, as matrix instructions take them; f32x3: high and low parts. */
template <class S> struct persist_rows {
    uint32_t of[S::tiles_n][4];
    uint32_t low[S::math == PERSIST_F32X3 ? S::tiles_n : 1][4];
};

template <class S> PERSIST_FN void persist_load_rows(persist_rows<S> &rows, uint32_t v, int k, bool pair) {
#pragma unroll
    for (int n = 0; n < S::tiles_n; n++) {
        const uint32_t from = v + n * S::v_stride_n + k * (S::tile_bytes * 8);
        if (pair) {
            ptx_load_matrices(rows.of[n], from);
        } else {
            uint32_t two[2];
            ptx_load_matrices(two, from);
            rows.of[n][0] = two[0];
            rows.of[n][1] = two[1];
        }
        if (S::math == PERSIST_F32X3) {
#pragma unroll
            for (int i = 0; i < (pair ? 4 : 2); i++) {
                const uint32_t x = rows.of[n][i];
                rows.of[n][i] = ptx_tf32(x);
                rows.low[S::math == PERSIST_F32X3 ? n : 0][i] =
                    ptx_tf32(__float_as_uint(__uint_as_float(x) - __uint_as_float(rows.of[n][i])));
            }
        }
    }
}

/* sums += tile of M x rows; `second`: the second tile of a pair. f32x3: the small products first. */
template <class S>
PERSIST_FN void persist_multiply(float (&sum)[S::tiles_n][S::columns], const uint32_t (&tile)[4],
                                 const persist_rows<S> &rows, int second) {
    uint32_t high[4], low[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        high[i] = S::math == PERSIST_F32X3 ? ptx_tf32(tile[i]) : tile[i];
        low[i] = S::math == PERSIST_F32X3
                     ? ptx_tf32(__float_as_uint(__uint_as_float(tile[i]) - __uint_as_float(high[i])))
                     : 0u;
    }
#pragma unroll
    for (int n = 0; n < S::tiles_n; n++) {
        const uint32_t b0 = rows.of[n][2 * second], b1 = rows.of[n][2 * second + 1];
        if constexpr (S::math == PERSIST_BF16) {
            ptx_mma_bf16(sum[n], high, b0, b1);
        } else if constexpr (S::math == PERSIST_F16) {
            ptx_mma_f16(sum[n], high, b0, b1);
        } else if constexpr (S::math == PERSIST_TF32) {
            ptx_mma_tf32(sum[n], high, b0, b1);
        } else if constexpr (S::math == PERSIST_F32X3) {
            /* Tensor cores cut off where they add: the running sum is added to by the others. */
            float of_tile[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            ptx_mma_tf32(of_tile, low, b0, b1);
            ptx_mma_tf32(of_tile, high, rows.low[n][2 * second], rows.low[n][2 * second + 1]);
            ptx_mma_tf32(of_tile, high, b0, b1);
#pragma unroll
            for (int i = 0; i < 4; i++) sum[n][i] += of_tile[i];
        }
    }
}

/* f32: lane = row of M; 4 values of k; every lane reads the same 16 bytes of v. */
template <class S>
PERSIST_FN void persist_multiply_exact(persist_sums<S> &sums, const uint32_t (&tile)[S::tiles_m][4], uint32_t v,
                                       int k) {
#pragma unroll
    for (int n = 0; n < S::tiles_n; n++)
#pragma unroll
        for (int column = 0; column < S::here; column++) {
            uint32_t x[4];
            ptx_load_shared(x, v + n * S::v_stride_n + k * 128 + column * 16);
#pragma unroll
            for (int m = 0; m < S::tiles_m; m++) {
                float sum = sums.of[m][n][S::columns == S::here ? column : 0];
#pragma unroll
                for (int i = 0; i < 4; i++) sum = fmaf(__uint_as_float(tile[m][i]), __uint_as_float(x[i]), sum);
                sums.of[m][n][S::columns == S::here ? column : 0] = sum;
            }
        }
}

/* Few sums are added up twice, over even and odd tiles of k: a chain of matrix instructions waits for each. */
template <class S> struct persist_two_sums {
    static constexpr bool apart =
        S::math != PERSIST_F32 && !S::together && S::tiles_m * S::tiles_n <= 4 && S::tiles_k > 1;
    persist_sums<S> even, odd;
};

/* Tiles k and, where there is a second, k + 1 of all tiles_m rows of tiles; v: address of tile `first`. */
template <class S>
PERSIST_FN void persist_multiply_pair(persist_two_sums<S> &sums, const uint32_t (&tile)[2][S::tiles_m][4], uint32_t v,
                                      int k, bool pair) {
    if constexpr (S::math == PERSIST_F32) {
        persist_multiply_exact<S>(sums.even, tile[0], v, k);
        if (pair) persist_multiply_exact<S>(sums.even, tile[1], v, k + 1);
    } else {
        persist_rows<S> rows;
        persist_load_rows<S>(rows, v, k, pair);
#pragma unroll
        for (int m = 0; m < S::tiles_m; m++) persist_multiply<S>(sums.even.of[m], tile[0][m], rows, 0);
        if (pair)
#pragma unroll
            for (int m = 0; m < S::tiles_m; m++)
                persist_multiply<S>(persist_two_sums<S>::apart ? sums.odd.of[m] : sums.even.of[m], tile[1][m], rows, 1);
    }
}

/* Where the lane begins to read v: the beginning of the warp's k, for matrix instructions its 16 bytes there. */
template <class S> PERSIST_FN uint32_t persist_rows_begin(const persist_self &self, uint32_t v) {
    const int wk = self.warp / S::warps_m;
    return v + wk * S::v_stride_k + (S::math == PERSIST_F32 ? 0 : self.lane * 16);
}

/* Pairs [first, end) of the tiles that stream; v: where pair 0 would be multiplied. Constants to the compiler: in turns of a chunk, else all. */
template <class S>
PERSIST_FN void persist_multiply_streamed(const persist_args &a, const persist_way &way, const persist_self &self,
                                          const persist_weights<typename S::whole> &w, persist_two_sums<S> &sums,
                                          uint32_t v, int first, int end) {
    typedef typename S::whole W;
    constexpr int pairs = S::pairs, in_step = S::in_step;
    int slot = w.slot;
    uint32_t parity = w.parity;
    if constexpr (S::chunks == 1 && !(S::before && S::backward)) first = 0, end = pairs;
#pragma unroll 2
    for (int i = first; i < end; i++) {
        const uint32_t from = persist_ring_at<W>(a, self, slot) + self.lane * 16;
        const bool pair = S::streamed % 2 == 0 || i + 1 < pairs;
        uint32_t tile[2][S::tiles_m][4];
        persist_await_ring<W>(a, self, slot, parity);
#pragma unroll
        for (int m = 0; m < S::tiles_m; m++)
            persist_load_pair<S>(self, tile[0][m], tile[1][m], from + persist_tile<W>(0, m) * S::tile_size,
                                 W::tiles_m * S::tile_size, pair);
        persist_multiply_pair<S>(sums, tile, v, 2 * i, pair);
        if constexpr (W::brings) __syncwarp(); /* all lanes have read */
        const int next = S::of_part + i + S::ring;
        persist_ask<W>(a, way, self, slot, next < in_step ? next : next - in_step);
        persist_turn_ring<W>(slot, parity);
    }
    w.slot = slot;
    w.parity = parity;
}

/* sums += the warp's tiles [first, end) of k x v; v: address of tile `first`. Both are known to the compiler. */
template <class S>
PERSIST_FN void persist_multiply_range(const persist_args &a, const persist_way &way, const persist_self &self,
                                       const persist_weights<typename S::whole> &w, uint32_t v, int first, int end,
                                       persist_two_sums<S> &sums) {
    constexpr int kept = S::kept;
#pragma unroll
    for (int k = 0; k < S::in_registers; k += 2) {
        if (k < first || k >= end) continue;
        uint32_t tile[2][S::tiles_m][4];
        const bool pair = k + 1 < S::in_registers && k + 1 < end;
#pragma unroll
        for (int m = 0; m < S::tiles_m; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                tile[0][m][i] = S::tight ? w.tight[m][k / 2].first[i] : w.tile[S::first_m + m][S::tight ? 0 : k][i];
                tile[1][m][i] = w.tile[S::first_m + m][S::tight ? 0 : pair ? k + 1 : k][i];
            }
        if constexpr (S::tight)
#pragma unroll
            for (int m = 0; m < S::tiles_m; m++) persist_untie(tile[0][m], w.tight[m][k / 2].fifth, tile[1][m]);
        persist_multiply_pair<S>(sums, tile, v, k - first, pair);
    }
    const int low = first > S::in_registers ? first : S::in_registers, high = end < kept ? end : kept;
    const uint32_t from = persist_kept<S>(a, self);
    if (S::in_shared > 0 && low < high) {
#pragma unroll 2
        for (int k = low; k < high; k += 2) {
            uint32_t tile[2][S::tiles_m][4];
            const bool pair = (S::in_shared % 2 == 0 && S::chunks == 1) || k + 1 < high;
#pragma unroll
            for (int m = 0; m < S::tiles_m; m++) {
                const uint32_t first = from + persist_tile<S>(k - S::in_registers, S::first_m + m) * S::tile_size;
                persist_load_pair<S>(self, tile[0][m], tile[1][m], first, S::all_tiles_m * S::tile_size, pair);
            }
            persist_multiply_pair<S>(sums, tile, v, k - first, pair);
        }
    }
    if constexpr (S::streamed > 0) {
        const int begin = first > kept ? (first - kept) / 2 : 0, till = end > kept ? (end - kept + 1) / 2 : 0;
        persist_multiply_streamed<S>(a, way, self, w, sums, v + (kept - first) * (S::tile_bytes * 8), begin, till);
    }
}

template <class S> PERSIST_FN void persist_add_two(const persist_two_sums<S> &sums, persist_sums<S> &total) {
#pragma unroll
    for (int m = 0; m < S::tiles_m; m++)
#pragma unroll
        for (int n = 0; n < S::tiles_n; n++)
#pragma unroll
            for (int i = 0; i < S::columns; i++)
                total.of[m][n][i] =
                    persist_two_sums<S>::apart ? sums.even.of[m][n][i] + sums.odd.of[m][n][i] : sums.even.of[m][n][i];
}

/* sums = the warp's tiles of M x v; v: address of the half's rows. */
template <class S>
PERSIST_FN void persist_product(const persist_args &a, const persist_way &way, const persist_self &self,
                                const persist_weights<typename S::whole> &w, uint32_t v, persist_sums<S> &total) {
    persist_two_sums<S> sums = {};
    persist_multiply_range<S>(a, way, self, w, persist_rows_begin<S>(self, v), S::first_k, S::first_k + S::tiles_k, sums);
    persist_add_two<S>(sums, total);
}

/* ---------------------------------------------------------------------------------------------------- four warps -- */
/* The weights that are not in registers, which tensor cores read in shared memory themselves. */
template <class S> PERSIST_FN uint64_t persist_kept_together(const persist_args &a, const persist_self &self) {
    if constexpr (S::in_shared == 0) return 0;
    return ptx_operand_of(ptx_uniform(persist_together_at<S>(a, self, S::in_registers, 0)), 1024, 128);
}

/* sums += four warps' tiles [first, end) of k x v, on its way, one group of instructions. `rows`: v from tile `first` of the warps' k on. */
template <class S>
PERSIST_FN void persist_multiply_together(const persist_weights<S> &w, uint64_t rows, uint64_t kept, int first, int end,
                                          persist_sums<S> &sums) {
    constexpr int step = S::tile_bytes * 8 / 16; /* of a descriptor, from tile to tile */
    ptx_together_begin();
#pragma unroll
    for (int k = 0; k < S::in_registers; k++)
#pragma unroll
        for (int m = 0; m < S::tiles_m; m++)
            if (k >= first && k < end)
                ptx_multiply_together<S::math>(sums.of[m], w.tile[m][k], rows + (uint32_t)((k - first) * step));
#pragma unroll
    for (int k = first; k < end; k++)
#pragma unroll
        for (int m = 0; m < S::tiles_m; m++)
            if (k >= S::in_registers)
                ptx_multiply_together<S::math>(sums.of[m],
                                               kept + (uint32_t)(((k - S::in_registers) * S::tiles_m + m) * 128),
                                               rows + (uint32_t)((k - first) * step));
    ptx_together_commit();
}

/* ---------------------------------------------------------------------------------------------------- partial sums -- */
/* float [halves, in many turns 1][partials][warps_k][tiles_n][m_tiled][width] */
template <class S> PERSIST_FN float *persist_partial(const persist_args &a, const persist_self &self, int half) {
    const int which = S::couriers > 0 ? 0 : half * S::partials + (S::rows_apart && S::part == PERSIST_UPDATE ? 1 : 0);
    return (float *)(self.shared + persist_constant(S::shared_partial, a.shared_partial)) + which * (S::warps_k * S::tiles_n * S::m_tiled * S::width);
}
/* float [halves][2][reduce][tiles_n][own][8], in many turns [sum_buffers][reduce]...; an offset in bytes */
template <class S> PERSIST_FN int persist_arriving(const persist_args &a, int half, int buffer, int from) {
    const int which = S::couriers > 0 ? half : half * 2 + buffer;
    return persist_constant(S::shared_arriving, a.shared_arriving) + (which * S::reduce + from) * (S::tiles_n * S::own * 32);
}
template <class S>
PERSIST_FN uint32_t persist_barrier(const persist_args &a, const persist_self &self, int first, int half, int buffer) {
    const int index = S::couriers > 0 ? 2 * S::slots + S::halves + half : first + half * 2 + buffer;
    return self.at + persist_constant(S::shared_barriers, a.shared_barriers) + index * 8;
}

/* Where a column of a value's eight lies: lanes of neighbouring units read neighbouring banks. Columns stay in pairs; sums that are
 * sent on, four at a time, in order. */
template <class S> PERSIST_FN int persist_column(int value, int column) {
    constexpr int four = S::cell_units == 16 ? 2 : 4, times = S::cell_units / 4;
    if constexpr (S::reduce > 1 || S::math == PERSIST_F32 || times == 1) return column;
    return column ^ (value / 4 % times * four);
}

/* Four of a lane's sums; of rows that are not there 0. */
template <class S> PERSIST_FN float4 persist_four(const float (&sum)[S::columns], int first) {
    const auto at = [&](int i) { return first + i < S::columns ? sum[(first + i) % S::columns] : 0.0f; };
    return make_float4(at(0), at(1), at(2), at(3));
}

/* = the warp's sums, in the CTA's own shared memory. */
template <class S>
PERSIST_FN void persist_put_sums(const persist_args &a, const persist_self &self, const persist_sums<S> &sums,
                                 int half) {
    const int wm = self.warp % S::warps_m, wk = self.warp / S::warps_m;
    float *to = persist_partial<S>(a, self, half) + wk * (S::tiles_n * S::m_tiled * S::width);
#pragma unroll
    for (int m = 0; m < S::tiles_m; m++)
#pragma unroll
        for (int n = 0; n < S::tiles_n; n++) {
            const int first = n * S::m_tiled + (wm * S::tiles_m + m) * S::tile_rows;
            const float(&sum)[S::columns] = sums.of[m][n];
            if constexpr (S::math == PERSIST_F32) {
                float *row = to + (first + self.lane) * S::width;
                if constexpr (S::width < 4) {
#pragma unroll
                    for (int i = 0; i < S::width; i++) row[i] = sum[i];
                } else {
#pragma unroll
                    for (int i = 0; i < S::width; i += 4) *(float4 *)(row + i) = persist_four<S>(sum, i);
                }
            } else {
                const int value = first - n * S::m_tiled + self.lane / 4, column = self.lane % 4 * 2;
                float *row = to + (first + self.lane / 4) * 8;
                *(float2 *)(row + persist_column<S>(value, column)) = make_float2(sum[0], sum[1]);
                *(float2 *)(row + 64 + persist_column<S>(value + 8, column)) = make_float2(sum[2], sum[3]);
            }
        }
}

/* Where sums of a slice meet in memory: those of CTA (q, from) for CTA (q, owner), two buffers in turn. A CTA has multiplied v number
 * n + 2 only after all whose v it is gave it, itself too: so sums number n + 1 of all owners' were there, which these give v for when they have had those of n. */
template <class S>
PERSIST_FN unsigned char *persist_meeting(const persist_way &way, const persist_self &self, int half, int buffer,
                                          int owner, int from) {
    const int slice = self.group * S::halves + half;
    const int64_t at = (int64_t)((slice * 2 + buffer) * S::spread + self.q) * S::reduce + owner;
    return way.meeting + at * S::meeting_bytes + from * (S::meeting_bytes / S::reduce);
}

/* Four sums of row `row` of M (columns from `column` on of tile n) to the owner of the row. */
template <class S>
PERSIST_FN void persist_send_sums(const persist_args &a, const persist_way &way, const persist_self &self, int half,
                                  int buffer, int row, int n, int column, const uint32_t (&four)[4]) {
    if (row >= S::m) return;
    const int within = ((n * S::own + row % S::own) * 8 + column) * 4;
    if constexpr (S::meets) {
        *(uint4 *)(persist_meeting<S>(way, self, half, buffer, row / S::own, self.p) + within) =
            make_uint4(four[0], four[1], four[2], four[3]);
        return;
    }
    /* Mapped for the first buffer, which is done before the loop: in each step it took 2% of training of 256 units. */
    const uint32_t owner = (uint32_t)(row / S::own * S::share + self.q % S::share);
    const uint32_t to = ptx_map(self.at + persist_arriving<S>(a, half, 0, self.p) + within, owner);
    const uint32_t barrier = ptx_map(persist_barrier<S>(a, self, PERSIST_BARRIERS_SUMS, half, 0), owner);
    ptx_send16(to + (persist_arriving<S>(a, half, buffer, 0) - persist_arriving<S>(a, half, 0, 0)), four,
               barrier + (persist_barrier<S>(a, self, PERSIST_BARRIERS_SUMS, half, buffer) - persist_barrier<S>(a, self, PERSIST_BARRIERS_SUMS, half, 0)));
}

/* One warp has all of k: accumulators go to their owners. Neighbouring lanes swap, so that each sends 16 bytes: the even one
 * of row l / 4, the odd one of row l / 4 + 8. */
template <class S>
PERSIST_FN void persist_send_direct(const persist_args &a, const persist_way &way, const persist_self &self,
                                    const persist_sums<S> &sums, int half, int buffer) {
    const int wm = self.warp % S::warps_m;
    const bool odd = self.lane & 1;
#pragma unroll
    for (int m = 0; m < S::tiles_m; m++)
#pragma unroll
        for (int n = 0; n < S::tiles_n; n++) {
            const int first = (wm * S::tiles_m + m) * S::tile_rows;
            const float(&sum)[S::columns] = sums.of[m][n];
            uint32_t four[4];
            if constexpr (S::math == PERSIST_F32) {
#pragma unroll
                for (int column = 0; column < S::sent; column += 4) {
                    const float4 x = persist_four<S>(sum, column);
                    four[0] = __float_as_uint(x.x);
                    four[1] = __float_as_uint(x.y);
                    four[2] = __float_as_uint(x.z);
                    four[3] = __float_as_uint(x.w);
                    persist_send_sums<S>(a, way, self, half, buffer, first + self.lane, n, column, four);
                }
            } else {
                const float given0 = __shfl_xor_sync(0xFFFFFFFFu, odd ? sum[0] : sum[2], 1);
                const float given1 = __shfl_xor_sync(0xFFFFFFFFu, odd ? sum[1] : sum[3], 1);
                four[0] = __float_as_uint(odd ? given0 : sum[0]);
                four[1] = __float_as_uint(odd ? given1 : sum[1]);
                four[2] = __float_as_uint(odd ? sum[2] : given0);
                four[3] = __float_as_uint(odd ? sum[3] : given1);
                const int column = self.lane % 4 / 2 * 4; /* of few rows half of the lanes have none */
                if (column < S::sent)
                    persist_send_sums<S>(a, way, self, half, buffer, first + self.lane / 4 + (odd ? 8 : 0), n, column, four);
            }
        }
}

/* The warps' sums of partial sums number `partial`, added in order, to their owners. */
template <class S>
PERSIST_FN void persist_send_added(const persist_args &a, const persist_way &way, const persist_self &self, int partial,
                                   int half, int buffer) {
    const float *from = persist_partial<S>(a, self, partial);
    constexpr int fours = S::sent / 4;
    for (int i = self.thread; i < S::m * S::tiles_n * fours; i += S::threads) {
        const int column = i % fours * 4, row = i / fours % S::m, n = i / fours / S::m;
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int wk = 0; wk < S::warps_k; wk++) {
            const float4 x = *(const float4 *)(from + ((wk * S::tiles_n + n) * S::m_tiled + row) * S::width + column);
            sum.x += x.x;
            sum.y += x.y;
            sum.z += x.z;
            sum.w += x.w;
        }
        const uint32_t four[4] = {__float_as_uint(sum.x), __float_as_uint(sum.y), __float_as_uint(sum.z),
                                  __float_as_uint(sum.w)};
        persist_send_sums<S>(a, way, self, half, buffer, row, n, column, four);
    }
}

/* The warp's sums go to who adds them. `count`: products of this half before this one. */
template <class S>
PERSIST_FN void persist_reduce_begin(const persist_args &a, const persist_way &way, const persist_self &self,
                                     const persist_sums<S> &sums, int half, int count) {
    if constexpr (S::over) __syncthreads(); /* all have read v */
    if constexpr (S::reduce == 1) {
        persist_put_sums<S>(a, self, sums, half);
    } else if constexpr (S::direct) {
        persist_send_direct<S>(a, way, self, sums, half, count & 1);
    } else {
        persist_put_sums<S>(a, self, sums, half);
        persist_sync<S>();
        persist_send_added<S>(a, way, self, half, half, count & 1);
    }
}

/* Waits for sums of other CTAs, which `barrier` tells of. */
template <class S> PERSIST_FN void persist_reduce_await(const persist_self &self, uint32_t barrier, int count) {
    ptx_arrivals_wait(barrier, (uint32_t)(count >> 1) & 1u);
    if (self.thread == 0) ptx_arrivals_expect(barrier, S::reduce * S::own * S::tiles_n * S::sent * 4);
}

/* After this the cells of the half can add their sums. window(): what can be done while sums are on their way. */
template <class S, class F>
PERSIST_FN void persist_reduce(const persist_args &a, const persist_way &way, const persist_self &self,
                               const persist_sums<S> &sums, int half, int count, const F &window) {
    persist_reduce_begin<S>(a, way, self, sums, half, count);
    if constexpr (S::reduce == 1) {
        window();
        persist_sync<S>();
    } else {
        const uint32_t barrier = persist_barrier<S>(a, self, PERSIST_BARRIERS_SUMS, half, count & 1);
        window();
        persist_reduce_await<S>(self, barrier, count);
    }
}

/* `count` addends, `apart` floats from one to the next: four chains, or of sixteen each would wait for the one before. The order is of `count` alone. */
template <int count> PERSIST_FN float persist_added(const float *from, int apart) {
    constexpr int chains = count < 4 ? count : 4;
    float sum[4] = {};
#pragma unroll
    for (int i = 0; i < chains; i++) sum[i] = from[i * apart];
#pragma unroll
    for (int i = chains; i < count; i++) sum[i % 4] += from[i * apart];
    if constexpr (count < 4) return count == 1 ? sum[0] : count == 2 ? sum[0] + sum[1] : sum[0] + sum[1] + sum[2];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* y's value `value` (gate units + unit) of the CTA's own, of row `own_row`. */
template <class S>
PERSIST_FN float persist_sum(const persist_args &a, const persist_self &self, int half, int count, int value,
                             int own_row) {
    const int n = own_row / 8, column = own_row % 8;
    if constexpr (S::reduce == 1) {
        const float *from =
            persist_partial<S>(a, self, half) + (n * S::m_tiled + value) * S::width + persist_column<S>(value, column);
        const float sum = persist_added<S::addends>(from, S::tiles_n * S::m_tiled * S::width);
        return S::scaled ? sum * self.unscale : sum;
    }
    const float *from =
        (const float *)(self.shared + persist_arriving<S>(a, half, count & 1, 0)) + (n * S::own + value) * 8 + column;
    const float sum = persist_added<S::addends>(from, S::tiles_n * S::own * 8);
    return S::scaled ? sum * self.unscale : sum;
}

#endif
