/* The persistent recurrence: its input side, u = W x + b of all steps of the launch, where that is made before the first step and not by a product before
 * the launch (sli_persist_place_inputs). Each CTA computes what its own cells read, its units of its rows of the batch, so that nobody waits for anybody, and keeps it in shared memory:
 *     u[column][gate][unit] = b[gate][unit] + sum over k of W[gate][unit][k] x[column][k],      column: a row of the batch at a step, in order of processing
 * W of the CTA and x come into shared memory, [pieces of 16 bytes of k][rows or columns][16], as matrix instructions want them. A warp's item is a tile of 16 rows by a
 * group of columns. FFMA (f32, and f32x3, for which exact products are as good): lane = row.
 * A launch goes through this code once, by four warps or eight: what it takes is a way to L2, of which there is one for all copies and whatever else the launch begins
 * with, and instructions one behind the other, which are few. */
#ifndef SLI_CUDA_PERSIST_INPUTS_CUH
#define SLI_CUDA_PERSIST_INPUTS_CUH

#include "backend/cuda/kernels/persist_sizes.cuh"

/* A power of two that `threads` threads are whole times: the next one of `count`, or 32, or the largest. */
PERSIST_FN constexpr int persist_side_by_side(int count, int threads) {
    int x = 1;
    while (x < count && x < 32 && threads % (2 * x) == 0) x *= 2;
    return x;
}
/* As take_inputs of persist_geometry.c counts. A row of W has the pieces that one of x has: it is padded to whole ones. */
template <class S> struct persist_inputs {
    static constexpr int math = S::inputs_math;
    static constexpr bool exact = math == PERSIST_F32, narrow = math == PERSIST_BF16 || math == PERSIST_F16;
    static constexpr int operand = narrow ? 2 : 4, each = 16 / operand; /* values in a piece */
    static constexpr int pieces = (S::inputs + each - 1) / each, depth = (pieces + 1) / 2; /* of a row; pairs of them: of a matrix instruction */
    static constexpr bool fours = S::inputs % 4 == 0, fours_w = S::inputs_row % 4 == 0; /* rows of x begin at 16 bytes where x does, those of W do: the host sees to it */
    static constexpr int rows = S::gates * S::units, tile_rows = exact ? 32 : 16, tiles = (rows + tile_rows - 1) / tile_rows;
    /* Columns of a group, in pairs of eights: as many groups as warps have items, where that is possible. */
    static constexpr int pairs = (S::inputs_columns + 15) / 16, even = (pairs * tiles + S::warps - 1) / S::warps;
    static constexpr int high = even < 2 ? 1 : even < 4 ? even : 4, groups = (pairs + high - 1) / high;
    static constexpr int columns = 16 * high * groups, items = tiles * groups;
    /* Bytes from a piece to the next: 16 more than a row of banks, so that the pieces of a row are in different ones. `row`: floats of a column of u. */
    static constexpr int piece_w = 16 * (tiles * tile_rows + 1), piece_x = 16 * (columns + 1), row = tiles * tile_rows + 4;
    /* W, x and b, in place of what the steps have there; u, where x lies before it is an operand. */
    static constexpr int at_x = 2 * depth * piece_w, at_bias = at_x + 2 * depth * piece_x, bytes = at_bias + 4 * tiles * tile_rows;
    static constexpr int u_bytes = 4 * columns * row, raw_bytes = narrow ? 4 * columns * S::inputs : 0, kept = u_bytes > raw_bytes ? u_bytes : raw_bytes;
    /* Threads side by side along the pieces of a row of W, or of a column of x; and how many of these at once. */
    static constexpr int along = persist_side_by_side(2 * depth, S::threads), at_once = S::threads / along;
};
/* Where u lies in shared memory. */
template <class S> PERSIST_FN int persist_inputs_at(const persist_args &a) {
    return persist_constant(S::shared_inputs, a.shared_inputs);
}
/* Units that have an input side: of a wave those of the first layer; the CTA's first one. */
template <class S> PERSIST_FN int persist_input_units(const persist_args &a) {
    return S::wave > 0 ? (int)S::wave : persist_units<S>(a);
}
template <class S> PERSIST_FN int persist_input_first(const persist_self &self) {
    return (self.q * S::reduce + self.p) * S::units;
}
/* Whether the batch has the column's row: not behind the last of the last slice. */
template <class S> PERSIST_FN bool persist_input_there(const persist_args &a, const persist_self &self, int column) {
    return S::inputs_rows == 1 || column % S::inputs_rows + self.group * (S::halves * S::rows) < a.B;
}
/* Of column `column` of the CTA, in memory of rows `row` apart and steps `step` apart: 32 bits, which the host sees to. */
template <class S> PERSIST_FN int persist_input_at(const persist_self &self, int column, int row, int step) {
    return (column % S::inputs_rows + self.group * (S::halves * S::rows)) * row + column / S::inputs_rows * step;
}

/* --------------------------------------------------------------------------------------------------------- copies -- */
/* Values k .. k + 3 of a row of `count` in memory to byte `to` of shared memory; `fours`: the row may begin at 16 bytes, and is of whole fours. `fills`: else zeros behind the
 * last, where no copies go, as nothing says which comes first. */
template <bool fours, bool fills>
PERSIST_FN void persist_copy_four(const persist_self &self, int to, const float *from, int k, int count, bool aligned) {
    if (fours && aligned) {
        if (k < count) ptx_copy16(self.at + to, from + k);
        return;
    }
#pragma unroll 1
    for (int i = 0; i < 4; i++) {
        if (k + i < count)
            ptx_copy4(self.at + to + 4 * i, from + k + i);
        else if (!fours && fills)
            *(float *)(self.shared + to + 4 * i) = 0.0f;
    }
}

/* A piece of every at_once'th row of each gate of the CTA's W, from row number `row` of these on, of `left` units; from: of the first row. One copy behind the other
 * from registers that stay, so that none waits until the one before has read its addresses. */
template <class S, int row>
PERSIST_FN void persist_copy_kernel(const persist_args &a, const persist_self &self, int to, const unsigned char *from, int piece, int left) {
    typedef persist_inputs<S> N;
    constexpr int of_gate = (S::units + N::at_once - 1) / N::at_once, gate = row / of_gate, unit = row % of_gate * N::at_once;
    constexpr int bytes = S::inputs_row * N::operand, own = (gate * S::units + unit) * 16;
    if constexpr (gate < S::gates) {
        if (unit < left) {
            if constexpr (!N::narrow && !N::fours_w)
                persist_copy_four<false, true>(self, to + own, (const float *)(from + (int64_t)(gate * persist_units<S>(a) + unit) * bytes) - 4 * piece,
                                         4 * piece, S::inputs, false);
            else if constexpr (S::H > 0 && (int64_t)S::gates * S::H * bytes < 1 << 23)
                ptx_copy16_at<own, (gate * S::H + unit) * bytes>(self.at + to, from);
            else
                ptx_copy16(self.at + to + own, from + (int64_t)(gate * persist_units<S>(a) + unit) * bytes);
        }
        persist_copy_kernel<S, row + 1>(a, self, to, from, piece, left);
    }
}

/* W of the CTA's rows and b; zeros behind the last piece of its rows. Rows that there are none of keep what was there: nobody reads what comes of them. */
template <class S> PERSIST_FN void persist_take_kernel(const persist_args &a, const persist_way &way, const persist_self &self) {
    typedef persist_inputs<S> N;
    const int begin = self.thread / N::along, first = persist_input_first<S>(self), left = persist_input_units<S>(a) - first - begin;
    const uint32_t zeros[4] = {};
    for (int i = self.thread; i < (2 * N::depth - N::pieces) * N::rows; i += S::threads)
        ptx_store_shared(self.at + (N::pieces + i / N::rows) * N::piece_w + i % N::rows * 16, zeros);
#pragma unroll 1
    for (int piece = self.thread % N::along; piece < N::pieces; piece += N::along) {
        const unsigned char *const from = (const unsigned char *)way.kernel + ((int64_t)(first + begin) * S::inputs_row + piece * N::each) * N::operand;
        const int own = S::units - begin; /* units of the CTA that are left */
        persist_copy_kernel<S, 0>(a, self, piece * N::piece_w + begin * 16, from, piece, left < own ? left : own);
    }
    for (int row = self.thread; row < N::rows; row += S::threads) {
        const int unit = first + row % S::units;
        float *const to = (float *)(self.shared + N::at_bias) + row;
        if (way.input_bias && unit < persist_input_units<S>(a))
            ptx_copy4(self.at + N::at_bias + 4 * row, way.input_bias + (row / S::units * persist_units<S>(a) + unit));
        else
            *to = 0.0f;
    }
}

/* A piece of a row of operands to byte `to` of shared memory, `left` of them, zeros behind; as long as rows begin at words, by copies that nobody waits for yet. */
template <bool eights, bool twos> PERSIST_FN void persist_copy_piece(const persist_self &self, int to, const uint16_t *from, int left, bool aligned) {
    if (eights && aligned && left > 0) {
        ptx_copy16(self.at + to, from);
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (twos && left > 2 * j)
            ptx_copy4(self.at + to + 4 * j, (const float *)(from + 2 * j));
        else
            *(uint32_t *)(self.shared + to + 4 * j) =
                (left > 2 * j ? from[2 * j] : 0u) | (left > 2 * j + 1 ? (uint32_t)from[2 * j + 1] << 16 : 0u);
    }
}

/* Columns of x that are operands. */
template <class S> PERSIST_FN void persist_take_operands(const persist_args &a, const persist_way &way, const persist_self &self, int count) {
    typedef persist_inputs<S> N;
    const bool aligned = ((uintptr_t)way.x & 15u) == 0;
#pragma unroll 1
    for (int piece = self.thread % N::along; piece < 2 * N::depth; piece += N::along) {
#pragma unroll 4
        for (int column = self.thread / N::along; column < count; column += N::at_once) {
            if (piece < N::pieces && !persist_input_there<S>(a, self, column)) continue;
            const int at = piece < N::pieces ? persist_input_at<S>(self, column, S::inputs, way.x_step) + 8 * piece : 0;
            persist_copy_piece<S::inputs % 8 == 0, S::inputs % 2 == 0>(self, N::at_x + piece * N::piece_x + column * 16,
                                                                      static_cast<const uint16_t *>(way.x) + at, S::inputs - 8 * piece, aligned);
        }
    }
}

/* Columns of x, of 16 bits as they are: persist_narrow_inputs makes operands of what a thread has copied itself. */
template <class S> PERSIST_FN void persist_take_inputs(const persist_args &a, const persist_way &way, const persist_self &self, int count) {
    typedef persist_inputs<S> N;
    if constexpr (persist_narrow_io<S>) {
        persist_take_operands<S>(a, way, self, count);
        return;
    }
    const bool aligned = ((uintptr_t)way.x & 15u) == 0;
    const uint32_t zeros[4] = {};
#pragma unroll 1
    for (int piece = self.thread % N::along; piece < 2 * N::depth; piece += N::along) {
#pragma unroll 4
        for (int column = self.thread / N::along; column < count; column += N::at_once) {
            const int to = N::at_x + piece * N::piece_x + column * 16, raw = persist_inputs_at<S>(a) + 4 * (column * S::inputs + 8 * piece);
            const float *const from = static_cast<const float *>(way.x) + persist_input_at<S>(self, column, S::inputs, way.x_step);
            if (!N::narrow && piece >= N::pieces) ptx_store_shared(self.at + to, zeros);
            if (piece >= N::pieces || !persist_input_there<S>(a, self, column)) continue;
            if constexpr (N::narrow) {
                persist_copy_four<N::fours, false>(self, raw, from, 8 * piece, S::inputs, aligned);
                if (8 * piece + 4 < S::inputs) persist_copy_four<N::fours, false>(self, raw + 16, from, 8 * piece + 4, S::inputs, aligned);
            } else {
                persist_copy_four<N::fours, true>(self, to, from, 4 * piece, S::inputs, aligned);
            }
        }
    }
}
template <class S> PERSIST_FN void persist_narrow_inputs(const persist_args &a, const persist_self &self, int count) {
    typedef persist_inputs<S> N;
#pragma unroll 1
    for (int piece = self.thread % N::along; piece < 2 * N::depth; piece += N::along) {
#pragma unroll 2
        for (int column = self.thread / N::along; column < count; column += N::at_once) {
            const float *const from = (const float *)(self.shared + persist_inputs_at<S>(a)) + (column * S::inputs + 8 * piece);
            uint32_t word[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int left = S::inputs - 8 * piece - 2 * j;
                const float low = left > 0 ? from[2 * j] : 0.0f, high = left > 1 ? from[2 * j + 1] : 0.0f;
                word[j] = N::math == PERSIST_BF16 ? ptx_pack_bf16(low, high) : ptx_pack_f16(low, high);
            }
            ptx_store_shared(self.at + N::at_x + piece * N::piece_x + column * 16, word);
        }
    }
}

/* --------------------------------------------------------------------------------------------------------- product -- */
/* [pairs of eight columns][of a pair][a lane's] */
template <class S> struct persist_input_sums { float of[persist_inputs<S>::high][2][persist_inputs<S>::exact ? 8 : 4]; };

/* FFMA: sums += W x of a pair of pieces, rows from `w` on, columns from `x` on. */
template <class S> PERSIST_FN void persist_multiply_exact_inputs(persist_input_sums<S> &sums, const persist_self &self, uint32_t w, uint32_t x) {
    typedef persist_inputs<S> N;
#pragma unroll
    for (int piece = 0; piece < 2; piece++) {
        uint32_t of_row[4], of_column[4];
        ptx_load_shared(of_row, w + piece * N::piece_w + self.lane * 16);
#pragma unroll
        for (int column = 0; column < 16 * N::high; column++) {
            float &sum = sums.of[column / 16][column / 8 % 2][N::exact ? column % 8 : 0];
            ptx_load_shared(of_column, x + piece * N::piece_x + column * 16);
#pragma unroll
            for (int j = 0; j < 4; j++) sum = fmaf(__uint_as_float(of_row[j]), __uint_as_float(of_column[j]), sum);
        }
    }
}

/* What matrix instructions take of a pair of pieces; the same sums +=. */
template <class S> struct persist_input_matrices { uint32_t rows[4], columns[persist_inputs<S>::high][4]; };
template <class S> PERSIST_FN void persist_load_input_matrices(persist_input_matrices<S> &m, const persist_self &self, uint32_t w, uint32_t x) {
    typedef persist_inputs<S> N;
    const int matrix = self.lane / 8, eighth = self.lane % 8;
    ptx_load_matrices(m.rows, w + matrix / 2 * N::piece_w + (matrix % 2 * 8 + eighth) * 16);
#pragma unroll
    for (int n = 0; n < N::high; n++)
        ptx_load_matrices(m.columns[n], x + matrix % 2 * N::piece_x + (n * 16 + matrix / 2 * 8 + eighth) * 16);
}
template <class S> PERSIST_FN void persist_multiply_inputs(persist_input_sums<S> &sums, const persist_input_matrices<S> &m) {
    typedef persist_inputs<S> N;
#pragma unroll
    for (int n = 0; n < N::high; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float(&sum)[4] = *(float(*)[4])sums.of[n][i];
            if constexpr (N::math == PERSIST_BF16)
                ptx_mma_bf16(sum, m.rows, m.columns[n][2 * i], m.columns[n][2 * i + 1]);
            else if constexpr (N::math == PERSIST_F16)
                ptx_mma_f16(sum, m.rows, m.columns[n][2 * i], m.columns[n][2 * i + 1]);
            else
                ptx_mma_tf32(sum, m.rows, m.columns[n][2 * i], m.columns[n][2 * i + 1]);
        }
}

/* A warp's item of u = */
template <class S> PERSIST_FN void persist_input_item(const persist_args &a, const persist_self &self, int item) {
    typedef persist_inputs<S> N;
    const int tile = item % N::tiles, group = item / N::tiles, lane_row = N::exact ? self.lane : self.lane / 4;
    const uint32_t w = self.at + tile * (N::tile_rows * 16), x = self.at + N::at_x + group * (N::high * 256);
    const float *const bias = (const float *)(self.shared + N::at_bias) + tile * N::tile_rows + lane_row;
    persist_input_sums<S> sums;
#pragma unroll
    for (int n = 0; n < 2 * N::high; n++)
#pragma unroll
        for (int i = 0; i < (N::exact ? 8 : 4); i++) sums.of[n / 2][n % 2][i] = bias[N::exact ? 0 : i / 2 * 8];
    const auto at_w = [&](int k) { return w + 2 * k * N::piece_w; };
    const auto at_x = [&](int k) { return x + 2 * k * N::piece_x; };
    if constexpr (N::exact) {
#pragma unroll 1
        for (int k = 0; k < N::depth; k++) persist_multiply_exact_inputs<S>(sums, self, at_w(k), at_x(k));
    } else { /* by turns: one pair comes while the other is multiplied */
        persist_input_matrices<S> even, odd;
        persist_load_input_matrices<S>(even, self, at_w(0), at_x(0));
#pragma unroll 1
        for (int k = 0; k < N::depth; k += 2) {
            if (k + 1 < N::depth) persist_load_input_matrices<S>(odd, self, at_w(k + 1), at_x(k + 1));
            persist_multiply_inputs<S>(sums, even);
            if (k + 2 < N::depth) persist_load_input_matrices<S>(even, self, at_w(k + 2), at_x(k + 2));
            if (k + 1 < N::depth) persist_multiply_inputs<S>(sums, odd);
        }
    }
    float *const to = (float *)(self.shared + persist_inputs_at<S>(a)) + group * (16 * N::high) * N::row + tile * N::tile_rows + lane_row +
                      (N::exact ? 0 : self.lane % 4 * 2 * N::row);
#pragma unroll
    for (int n = 0; n < 2 * N::high; n++)
#pragma unroll
        for (int i = 0; i < (N::exact ? 8 : 4); i++)
            to[(n * 8 + (N::exact ? i : i % 2)) * N::row + (N::exact ? 0 : i / 2 * 8)] = sums.of[n / 2][n % 2][i];
}

/* The launch's input side, in two halves. All threads call the first one before shared memory has anything else: copies begin; what else the launch begins with
 * may come before the other, after which shared memory but for u is anybody's. A barrier comes before u is read. */
template <class S> PERSIST_FN int persist_input_columns(const persist_args &a, const persist_way &way, const persist_self &self) {
    return persist_input_first<S>(self) < persist_input_units<S>(a) ? way.x_steps * S::inputs_rows : 0;
}
template <class S> PERSIST_FN void persist_begin_inputs(const persist_args &a, const persist_way &way, const persist_self &self) {
    const int count = persist_input_columns<S>(a, way, self);
    if (count == 0) return;
    persist_take_kernel<S>(a, way, self);
    persist_take_inputs<S>(a, way, self, count);
}
template <class S> PERSIST_FN void persist_end_inputs(const persist_args &a, const persist_way &way, const persist_self &self) {
    typedef persist_inputs<S> N;
    const int count = persist_input_columns<S>(a, way, self);
    if (count == 0) return;
    ptx_copies_wait();
    if constexpr (N::narrow && !persist_narrow_io<S>) persist_narrow_inputs<S>(a, self, count);
    __syncthreads();
#pragma unroll 1
    for (int item = self.warp; item < N::items; item += S::warps) persist_input_item<S>(a, self, item);
    __syncthreads();
}
/* u of the rows of a half at the first step; floats from a step to the next; of a place and gate. */
template <class S> PERSIST_FN const float *persist_own_inputs(const persist_args &a, const persist_self &self, int half) {
    return (const float *)(self.shared + persist_inputs_at<S>(a)) + half * (S::rows * persist_inputs<S>::row);
}
template <class S> PERSIST_FN int persist_own_step() {
    return S::inputs_rows * persist_inputs<S>::row;
}
template <class S> PERSIST_FN uint32_t persist_own_input(const persist_place &place, int gate) {
    return (uint32_t)(place.own_row * persist_inputs<S>::row + gate * S::units + place.own_unit);
}

#endif
