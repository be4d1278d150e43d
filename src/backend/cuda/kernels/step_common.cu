/* cuda:step: launches outside the loop over time: masks, entering and leaving states, operand copies, column sums. */
#include "backend/cuda/kernels/step_device.cuh"
#include "backend/cuda/kernels/step_bias.cuh"
#include "backend/cuda/kernels/step_rows.h"

/* ----------------------------------------------------------------------------------------------------- masks -- */
typedef struct flags_args {
    uint8_t *flags; /* = [T][B] */
    const int32_t *lengths;
    const uint8_t *mask; /* [T][B], the whole sequence's rows around it */
    int T, B, t0, total;
    bool reverse, repeat;
} flags_args;

static __device__ bool flags_valid(const flags_args &a, int t, int row) {
    if (a.lengths) return a.t0 + t < a.lengths[row];
    return a.mask[(int64_t)t * a.B + row] != 0;
}

/* A masked step repeats the carried h if some step before it in the order of processing was valid: with lengths, in order of
 * time, the first; against it, none. */
static __device__ bool flags_repeats(const flags_args &a, int t, int row) {
    if (a.lengths) return !a.reverse && a.lengths[row] > 0;
    const int last = a.reverse ? a.total - 1 - a.t0 : -a.t0, step = a.reverse ? 1 : -1;
    for (int other = t; other != last;) {
        other += step;
        if (flags_valid(a, other, row)) return true;
    }
    return false;
}

static __global__ void __launch_bounds__(STEP_THREADS) step_flags(const __grid_constant__ flags_args a) {
    const int row = step_unit<1>();
    if (row >= a.B) return;
    for (int t = step_row(); t < a.T; t += step_row_stride()) {
        unsigned flags = 0;
        if (flags_valid(a, t, row))
            flags = SLI_STEP_VALID | SLI_STEP_SHOWN;
        else if (a.repeat && flags_repeats(a, t, row))
            flags = SLI_STEP_SHOWN;
        a.flags[(size_t)t * a.B + row] = (uint8_t)flags;
    }
}

typedef struct factor_args {
    float *factor; /* = [B][O]: 0 or `kept` */
    const sli_scalars *scalars;
    uint32_t stream, threshold;
    float kept;
    int B, O;
} factor_args;

static __global__ void __launch_bounds__(STEP_THREADS) step_factors(const __grid_constant__ factor_args a) {
    const int j = step_unit<1>();
    if (j >= a.O) return;
    const sli_rng rng = {a.scalars->seed, a.scalars->step, a.scalars->micro_step, a.stream};
    for (int row = step_row(); row < a.B; row += step_row_stride()) {
        const size_t at = (size_t)row * a.O + j;
        a.factor[at] = sli_rng_word(&rng, (uint64_t)at) < a.threshold ? 0.0f : a.kept;
    }
}

void sli_step_masks(const step_way *way) {
    const sli_call *call = way->call;
    const sli_problem *p = &call->problem;
    if (p->mask != SLI_MASK_NONE && way->s.T > 0) {
        flags_args a = {};
        a.flags = (uint8_t *)(way->work + way->scratch.flags);
        if (p->mask == SLI_MASK_LENGTHS)
            a.lengths = (const int32_t *)call->in[SLI_RNN_LENGTHS];
        else
            a.mask = (const uint8_t *)call->in[SLI_RNN_MASK];
        a.T = (int)(way->s.T - way->s.lag);
        a.B = (int)way->s.B;
        a.t0 = call->t0;
        a.total = call->total_steps;
        a.reverse = way->reverse;
        a.repeat = p->masked_repeat;
        const sli_step_grid grid = sli_step_grid_of(a.B, a.T, 1);
        sli_step_launch(way, step_flags, &grid, &a, false, "launch of the recurrent masks");
    }
    if (way->s.drop && call->training) {
        factor_args a = {};
        a.factor = (float *)(way->work + way->scratch.factor);
        a.scalars = call->scalars;
        a.stream = (uint32_t)call->rng_layer | SLI_PURPOSE_RECURRENT_DROPOUT |
                   (way->part ? (uint32_t)SLI_PURPOSE_BACKWARD_DIRECTION : 0u);
        a.threshold = sli_drop_threshold(p->recurrent_dropout);
        a.kept = (float)(1 / (1 - p->recurrent_dropout));
        a.B = (int)way->s.B;
        a.O = (int)way->s.O;
        const sli_step_grid grid = sli_step_grid_of(a.O, a.B, 1);
        sli_step_launch(way, step_factors, &grid, &a, false, "launch of the recurrent dropout");
    }
}

/* ---------------------------------------------------------------------------------------------------- states -- */
typedef struct begin_args {
    /* Of one layer, [B][O] and [B][H]; of a wave, of each, which has O / layers units. */
    const float *h0[SLI_MAX_PARTS], *c0[SLI_MAX_PARTS];
    float *h_last[SLI_MAX_PARTS], *c_last[SLI_MAX_PARTS]; /* = the leaving states, where there is no step */
    const float *factor;                                  /* [B][O] */
    void *operand_h;                                      /* = operand [B][hs] */
    float *h, *c;                                         /* = [B][O], [B][H]: the slots */
    int64_t hs;
    sl_dtype math;
    int B, H, O, layers;
    bool lstm;
} begin_args;

enum { BEGIN_THREADS = 1024 };
static __global__ void __launch_bounds__(BEGIN_THREADS) step_begin(const __grid_constant__ begin_args a) {
    const int j = step_unit<1>(), O = a.O / a.layers, H = a.H / a.layers, of_h = j < a.O ? j / O : 0, of_c = j < a.H ? j / H : 0;
    for (int row = step_row(); row < a.B; row += step_row_stride()) {
        if (j < a.O) {
            const size_t at = (size_t)row * a.O + j, own = (size_t)row * O + j % O, operand_at = (size_t)row * a.hs;
            const float h = a.h0[of_h][own], dropped[1] = {a.factor ? a.factor[at] * h : h};
            step_operand<1>(a.math, a.operand_h, operand_at + j, dropped);
            if (j + 1 == a.O) step_operand_tail(a.math, step_operand_row(a.math, a.operand_h, operand_at), a.O, a.hs);
            if (a.h) a.h[at] = h;
            if (a.h_last[of_h]) a.h_last[of_h][own] = h;
        }
        if (a.lstm && j < a.H) {
            const size_t own = (size_t)row * H + j % H;
            const float c = a.c0[of_c][own];
            a.c[(size_t)row * a.H + j] = c;
            if (a.c_last[of_c]) a.c_last[of_c][own] = c;
        }
    }
}

/* Blocks that find room where others leave so many multiprocessors: a block of another launch, which wants a multiprocessor for itself, would wait for those beyond. */
static sli_step_grid grid_of_few(int64_t units, int64_t rows, int blocks) {
    unsigned bx = 32;
    while (bx < BEGIN_THREADS && bx < units) bx *= 2;
    const unsigned by = BEGIN_THREADS / bx, gx = (unsigned)((units + bx - 1) / bx);
    const unsigned most = (unsigned)((rows + by - 1) / by), gy = (unsigned)blocks / gx;
    return {gx, gy < 1 ? 1 : gy < most ? gy : most, bx, by};
}

void sli_step_begin(const step_way *way, int blocks) {
    const sli_call *call = way->call;
    const int first = way->reverse ? (int)way->s.T : 0; /* the slot before the first step in order of processing */
    begin_args a = {};
    a.layers = (int)way->s.lag + 1;
    a.lstm = way->s.lstm;
    for (int l = 0; l < a.layers; l++) {
        a.h0[l] = (const float *)call->in[SLI_RNN_STATE_IN(way->part + l, 0)];
        if (way->s.lstm) a.c0[l] = (const float *)call->in[SLI_RNN_STATE_IN(way->part + l, 1)];
        if (way->s.T > 0) continue;
        a.h_last[l] = (float *)call->out[SLI_RNN_STATE_OUT(way->part + l, 0)];
        if (way->s.lstm) a.c_last[l] = (float *)call->out[SLI_RNN_STATE_OUT(way->part + l, 1)];
    }
    a.factor = way->common.factor;
    a.operand_h = sli_step_operand_h(way, first);
    if (way->s.own_h) {
        int64_t row = 0;
        a.h = (float *)sli_step_hidden(way, first, &row);
    }
    if (way->s.lstm) a.c = sli_step_cell(way, first);
    a.hs = way->s.hs;
    a.math = call->problem.dtype;
    a.B = (int)way->s.B;
    a.H = (int)way->s.H;
    a.O = (int)way->s.O;
    const int width = a.H > a.O ? a.H : a.O;
    const sli_step_grid grid = blocks > 0 ? grid_of_few(width, a.B, blocks) : sli_step_grid_of(width, a.B, 1);
    sli_step_launch(way, step_begin, &grid, &a, false, "launch of the recurrent states");
}

typedef struct finish_args {
    float *d_h0, *d_c0;                 /* [B][O], [B][H] */
    const float *pw, *factor, *dc; /* [B][O], [B][O], [B][H]; NULL = 0 (factor: 1) */
    step_sums dp;
    int64_t hs;
    int B, H, O;
    bool add_h, add_c;
} finish_args;

/* d_h0 = or += pw + d dp; d_c0 = or += dc */
static __global__ void __launch_bounds__(STEP_THREADS) step_finish(const __grid_constant__ finish_args a) {
    const int j = step_unit<1>();
    for (int row = step_row(); row < a.B; row += step_row_stride()) {
        if (a.d_h0 && j < a.O) {
            const size_t at = (size_t)row * a.O + j;
            float dp[1][1];
            step_load_sums<1, 1>(dp, a.dp, (size_t)row * a.hs + j, 0);
            const float dh = step_join(a.pw ? a.pw[at] : 0.0f, a.factor, at, dp[0][0]);
            a.d_h0[at] = a.add_h ? a.d_h0[at] + dh : dh;
        }
        if (a.d_c0 && j < a.H) {
            const size_t at = (size_t)row * a.H + j;
            const float dc = a.dc ? a.dc[at] : 0.0f;
            a.d_c0[at] = a.add_c ? a.d_c0[at] + dc : dc;
        }
    }
}

void sli_step_finish(const step_way *way, const float *pw, step_sums dp, const float *dc) {
    const sli_call *call = way->call;
    const int h = SLI_RNN_STATE_IN(way->part, 0), c = SLI_RNN_STATE_IN(way->part, 1);
    finish_args a = {};
    a.d_h0 = (float *)call->d_in[h];
    a.d_c0 = way->s.lstm ? (float *)call->d_in[c] : NULL;
    if (!a.d_h0 && !a.d_c0) return;
    a.pw = pw;
    a.dp = dp;
    a.factor = way->common.factor;
    a.dc = dc;
    a.hs = way->s.hs;
    a.B = (int)way->s.B;
    a.H = (int)way->s.H;
    a.O = (int)way->s.O;
    a.add_h = call->accumulate >> h & 1u;
    a.add_c = call->accumulate >> c & 1u;
    const sli_step_grid grid = sli_step_grid_of(a.H > a.O ? a.H : a.O, a.B, 1);
    sli_step_launch(way, step_finish, &grid, &a, false, "launch of the recurrent states' gradients");
}

/* ------------------------------------------------------------------------------------------------ operand rows -- */
template <int N> static __device__ __forceinline__ void load_row(float (&v)[N], const step_rows_args &a, int64_t row, int64_t j) {
    const float *from = a.from + (size_t)row * a.columns + j;
    if (a.whole && row < a.rows && j + N <= a.columns) {
#pragma unroll
        for (int n = 0; n < N; n += 4) {
            const float4 four = *reinterpret_cast<const float4 *>(from + n);
            v[n] = four.x, v[n + 1] = four.y, v[n + 2] = four.z, v[n + 3] = four.w;
        }
        return;
    }
#pragma unroll
    for (int n = 0; n < N; n++) v[n] = row < a.rows && j + n < a.columns ? from[n] : 0.0f;
}

/* 16 bytes a thread; where they are not whole sixteens, few, words. */
static __device__ __forceinline__ void put_zeros(uint32_t *to, int64_t words, int64_t thread, int64_t threads) {
    const bool whole = ((uintptr_t)to & 15u) == 0 && words % 4 == 0;
    const int64_t count = whole ? words / 4 : words;
    for (int64_t i = thread; i < count; i += threads) {
        if (whole)
            reinterpret_cast<uint4 *>(to)[i] = make_uint4(0, 0, 0, 0);
        else
            to[i] = 0;
    }
}

/* A thread writes `N` elements, 16 bytes. */
template <int N> static __global__ void __launch_bounds__(STEP_THREADS) step_rows(const __grid_constant__ step_rows_args a) {
    const int64_t x = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, j = x * N, across = (int64_t)gridDim.x * blockDim.x;
#pragma unroll
    for (int k = 0; k < STEP_ROWS_ZEROS; k++)
        put_zeros(a.zeros[k].at, a.zeros[k].words, step_row() * across + x, step_row_stride() * across);
    if (j >= a.stride) return;
    for (int64_t row = step_row(); row < a.rows_to; row += step_row_stride()) {
        float v[N];
        load_row<N>(v, a, row, j);
        uint4 piece;
        if constexpr (N == 8) {
            piece = make_uint4(step_bits16(a.math, v[0]) | step_bits16(a.math, v[1]) << 16,
                               step_bits16(a.math, v[2]) | step_bits16(a.math, v[3]) << 16,
                               step_bits16(a.math, v[4]) | step_bits16(a.math, v[5]) << 16,
                               step_bits16(a.math, v[6]) | step_bits16(a.math, v[7]) << 16);
        } else {
            piece =
                make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3]));
        }
        const size_t at = ((size_t)row * a.stride + j) / N;
        static_cast<uint4 *>(a.to)[at] = piece;
    }
}

void sli_step_rows(sli_queue *queue, cudaStream_t stream, sl_dtype math, void *to, int64_t stride, int64_t rows_to,
                   const float *from, int64_t rows, int64_t columns, sli_step_zeros zeros) {
    if (rows_to < 1) return;
    if (stride == columns && rows == rows_to && zeros.bytes == 0) {
        sli_cuda_narrow(queue, stream, math, to, from, (size_t)rows * (size_t)columns);
        return;
    }
    step_rows_args a = {};
    a.to = to;
    a.from = from;
    a.stride = stride;
    a.rows_to = rows_to;
    a.rows = rows;
    a.columns = columns;
    a.zeros[0].at = (uint32_t *)zeros.at;
    a.zeros[0].words = (int64_t)(zeros.bytes / sizeof(uint32_t));
    a.whole = columns % 4 == 0 && sli_step_aligned(from);
    a.math = math;
    const bool narrow = math == SL_BF16 || math == SL_F16;
    const sli_step_grid grid = sli_step_grid_of(stride, rows_to, narrow ? 8 : 4);
    step_way way = {};
    way.queue = queue;
    way.stream = stream;
    sli_step_launch(&way, narrow ? step_rows<8> : step_rows<4>, &grid, &a, false, "launch of operand rows");
    if (narrow) sli_cuda_note_launch(queue, stream);
}

typedef struct narrow_rows_args {
    uint16_t *to; /* = [rows_to][stride], which is even */
    const uint16_t *from;
    int64_t stride, rows_to, rows, columns;
} narrow_rows_args;

static __global__ void __launch_bounds__(STEP_THREADS) step_narrow_rows(const __grid_constant__ narrow_rows_args a) {
    const int64_t j = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 2;
    if (j >= a.stride) return;
    for (int64_t row = step_row(); row < a.rows_to; row += step_row_stride()) {
        const uint16_t *const at = a.from + row * a.columns + j;
        const bool there = row < a.rows;
        const uint32_t low = there && j < a.columns ? at[0] : 0, high = there && j + 1 < a.columns ? at[1] : 0;
        *reinterpret_cast<uint32_t *>(a.to + row * a.stride + j) = low | high << 16;
    }
}

void sli_step_narrow_rows(sli_queue *queue, cudaStream_t stream, void *to, int64_t stride, int64_t rows_to, const void *from,
                          int64_t rows, int64_t columns) {
    if (rows_to < 1) return;
    const narrow_rows_args a = {static_cast<uint16_t *>(to), static_cast<const uint16_t *>(from), stride, rows_to, rows, columns};
    const sli_step_grid grid = sli_step_grid_of(stride, rows_to, 2);
    step_way way = {};
    way.queue = queue;
    way.stream = stream;
    sli_step_launch(&way, step_narrow_rows, &grid, &a, false, "launch of rows of 16 bits");
}

const void *sli_step_rows_kernel() {
    return (const void *)step_rows<8>;
}

/* ------------------------------------------------------------------------------------------------------ biases -- */
static __global__ void __launch_bounds__(STEP_THREADS) pack_bias(const __grid_constant__ step_bias_args a) {
    const int64_t j = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (j < a.all) step_pack_bias(a, j);
}

void sli_step_pack_biases(const step_way *way) {
    const step_bias_args a = sli_step_bias_args(way);
    const sli_step_grid grid = {step_blocks_of(a.all, STEP_THREADS), 1, STEP_THREADS, 1};
    sli_step_launch(way, pack_bias, &grid, &a, false, "launch of packed biases");
}

/* ------------------------------------------------------------------------------------------------- column sums -- */
enum { COLUMN_X = 32, COLUMN_Y = 8 };

typedef struct columns_of {
    const void *from; /* [rows][stride], float or 16-bit operands */
    float *partial;   /* [slices][columns] */
    step_target to[2]; /* [columns] each */
    int64_t stride, columns;
    unsigned first, first_total; /* block of its columns; of their totals */
} columns_of;

typedef struct columns_args {
    columns_of of[STEP_COLUMN_SUMS];
    int count;
    sl_dtype math; /* of operands */
    int64_t rows, slices;
} columns_args;

static __device__ void columns_give(sl_dtype math, const columns_of &of, int64_t column, float sum) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const step_target &to = of.to[i];
        float total = to.sums && to.add ? to.sums[column] + sum : sum;
        if (to.sums) to.sums[column] = total;
        if (!to.narrow) continue;
        if (to.add_narrow) total = step_widen(math, to.narrow[column]) + total;
        to.narrow[column] = (uint16_t)step_bits16(math, total);
    }
}

/* EACH columns from `at` on: a float, or two operands. */
template <int EACH>
static __device__ __forceinline__ void columns_add(sl_dtype math, const void *from, int64_t at, float (&sum)[EACH]) {
    if constexpr (EACH == 1) {
        sum[0] += static_cast<const float *>(from)[at];
    } else {
        const uint32_t two = *reinterpret_cast<const uint32_t *>(static_cast<const uint16_t *>(from) + at);
        sum[0] += step_widen(math, two & 0xffffu);
        sum[1] += step_widen(math, two >> 16);
    }
}

/* partial[slice][column] = sum of the slice's rows: thread y takes rows y, y + 8, ..., then the eight sums in order. A single
 * slice is the total. */
template <int EACH>
static __global__ void __launch_bounds__(COLUMN_X *COLUMN_Y) columns_partial(const __grid_constant__ columns_args a) {
    __shared__ float sums[COLUMN_Y][COLUMN_X * EACH];
    int which = 0;
    while (which + 1 < a.count && blockIdx.x >= a.of[which + 1].first) which++;
    const columns_of &of = a.of[which];
    const int64_t column = ((int64_t)(blockIdx.x - of.first) * COLUMN_X + threadIdx.x) * EACH;
    for (int64_t slice = blockIdx.y; slice < a.slices; slice += gridDim.y) {
        const int64_t first = slice * SLI_STEP_SLICE,
                      end = first + SLI_STEP_SLICE < a.rows ? first + SLI_STEP_SLICE : a.rows;
        float sum[EACH] = {};
        if (column < of.columns)
            for (int64_t row = first + threadIdx.y; row < end; row += COLUMN_Y)
                columns_add<EACH>(a.math, of.from, row * of.stride + column, sum);
        for (int e = 0; e < EACH; e++) sums[threadIdx.y][threadIdx.x * EACH + e] = sum[e];
        __syncthreads();
        for (int e = 0; e < EACH; e++) {
            if (threadIdx.y > 0 || column + e >= of.columns) continue;
            for (int y = 1; y < COLUMN_Y; y++) sum[e] += sums[y][threadIdx.x * EACH + e];
            if (a.slices == 1)
                columns_give(a.math, of, column + e, sum[e]);
            else
                of.partial[slice * of.columns + column + e] = sum[e];
        }
        __syncthreads();
    }
}

static __global__ void __launch_bounds__(STEP_THREADS) columns_total(const __grid_constant__ columns_args a) {
    int which = 0;
    while (which + 1 < a.count && blockIdx.x >= a.of[which + 1].first_total) which++;
    const columns_of &of = a.of[which];
    const int64_t column = (int64_t)(blockIdx.x - of.first_total) * STEP_THREADS + threadIdx.x;
    if (column >= of.columns) return;
    float sum = 0.0f;
    for (int64_t slice = 0; slice < a.slices; slice++) sum += of.partial[slice * of.columns + column];
    columns_give(a.math, of, column, sum);
}

void sli_step_columns(const step_way *way, const step_column_sum *sums, int count, int64_t rows, bool operands) {
    const bool two = operands && way->s.narrow;
    const int64_t across = COLUMN_X * (two ? 2 : 1);
    columns_args a = {};
    unsigned blocks = 0, total_blocks = 0;
    float *partial = (float *)(way->work + way->scratch.columns);
    a.math = way->call->problem.dtype;
    a.rows = rows;
    a.slices = sli_step_slices(rows);
    for (const step_column_sum *sum = sums; sum < sums + count; sum++) {
        columns_of of = {};
        of.from = sum->from;
        of.partial = partial;
        of.to[0] = sli_step_target(way, sum->k0, sum->first);
        of.to[1] = sli_step_target(way, sum->k1, sum->first);
        if (!sli_step_is_target(&of.to[0]) && !sli_step_is_target(&of.to[1])) continue;
        of.stride = sum->stride;
        of.columns = sum->columns;
        of.first = blocks;
        of.first_total = total_blocks;
        blocks += (unsigned)((sum->columns + across - 1) / across);
        total_blocks += (unsigned)((sum->columns + STEP_THREADS - 1) / STEP_THREADS);
        partial += a.slices * sum->columns;
        a.of[a.count++] = of;
    }
    if (a.count == 0) return;
    const sli_step_grid grid = {blocks, (unsigned)(a.slices < 65535 ? a.slices : 65535), COLUMN_X, COLUMN_Y};
    sli_step_launch(way, two ? columns_partial<2> : columns_partial<1>, &grid, &a, false, "launch of column sums");
    if (a.slices == 1) return;
    const sli_step_grid total = {total_blocks, 1, STEP_THREADS, 1};
    sli_step_launch(way, columns_total, &total, &a, false, "launch of column totals");
}
