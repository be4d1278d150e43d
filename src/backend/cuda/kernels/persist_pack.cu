/* cuda:cluster and cuda:grid: R and R^T as operands in the order that the persistent kernels read them, zeros where units or
 * rows are padding; in the same launch W and the biases as cuda:step's products read them. Before it, where those are scaled, the largest of R. */
#include "backend/cuda/kernels/persist_host.cuh"
#include "backend/cuda/kernels/step_bias.cuh"
#include "backend/cuda/kernels/persist_sizes.cuh"
#include "backend/cuda/kernels/persist_tight.cuh"

/* Warps of a block: of large layers few, so that many blocks wait at once, of small ones so many that each has one run; us of LSTM on an
 * H100, 20 rows: 650 units in bf16 4 warps 9, 16 warps 10, 200 units 8 and 4.4 (bench/results/pack_h100_2026-11-26.txt). Columns of a block; tiles along
 * k (tight: pairs) that a lane asks for before it waits for the first. A test has another PACK_SMALL, units from which layers are large, and fewer columns. */
#ifndef PACK_SMALL
#define PACK_SMALL 600
#define PACK_COLUMNS 512
#endif
enum { PACK_FEW = 4, PACK_MANY = 16, PACK_RUN = 2 };

template <bool half> struct pack_type { typedef float type; };
template <> struct pack_type<true> { typedef uint16_t type; };

/* n / d as a product: exact while n d < 2^32. */
typedef struct pack_divisor {
    uint64_t factor;
    int d;
} pack_divisor;

/* M, or with reset before one of its parts. */
typedef struct pack_part {
    pack_divisor own, each, vk; /* values of y that a CTA owns, values of v that it gives; of a unit */
    int tiles_m, tiles_k;       /* of a warp */
    int m, k;                   /* without padding */
    int gate;                   /* the first */
} pack_part;

typedef struct pack_matrix {
    int blocks, chunks;     /* a block has a chunk along k of the tiles of the warps wk of a CTA */
    uint32_t *to;           /* = [CTA][warp][tiles_k][tiles_m][lane][4]; tight: ...[tiles_k / 2][tiles_m] of [lane][4] and [lane] */
    const void *recurrent;  /* [gates H][row], floats or, narrow, of math */
    int H, row, units, reduce;
    pack_divisor unit, runs; /* of PACK_RUN tiles in a chunk */
    int warps_m, warps_k, tiles_m, tiles_k, chunk, tile_rows, tile_k; /* chunk: tiles along k */
    int part_m, first_k; /* rows of a warp's tiles of each of three parts; columns before those of the second; 0: there is one */
    pack_part part[3];
    bool backward, tight, narrow;
    const float *largest; /* [PERSIST_LARGEST] of persist_measure: elements are scaled; NULL: as they are */
    sl_dtype math;
} pack_matrix;

typedef struct pack_args {
    pack_matrix matrix[2]; /* forward, backward; `blocks` 0: not wanted */
    uint4
        *kernel_to; /* = operand [zs][xs], rows of `pieces` times 16 bytes, `all_pieces` together; 0: W is not copied */
    const void *kernel; /* [GH][I] */
    int64_t all_pieces;
    int pieces, GH, zs, I;
    bool quads;     /* W's rows begin at 16 bytes; */
    bool halves;    /* are of 16 bits */
    step_bias_args bias;
    sl_dtype math;
} pack_args;

static pack_divisor pack_divisor_of(int d) {
    const pack_divisor divisor = {((uint64_t)1 << 32) / (uint64_t)d + 1, d};
    return divisor;
}
static __device__ __forceinline__ int pack_divide(int n, const pack_divisor &by, int *rest) {
    const int quotient = by.d == 1 ? n : (int)((uint64_t)n * by.factor >> 32);
    *rest = n - quotient * by.d;
    return quotient;
}

/* Element (m, k) of the M of CTA (q, p), see persist_geometry.h, is R[row of m + column of k]; -1: padding. */
static __device__ __forceinline__ int pack_row(const pack_matrix &a, const pack_part &part, int q, int m) {
    int within, unit;
    const int owner = pack_divide(m, part.own, &within), gate = pack_divide(within, a.unit, &unit) + part.gate;
    unit += (q * a.reduce + owner) * a.units;
    if (m >= part.m || unit >= a.H) return -1;
    return a.backward ? unit : (gate * a.H + unit) * a.row;
}
static __device__ __forceinline__ int pack_column(const pack_matrix &a, const pack_part &part, int p, int k) {
    int of, gate;
    const int giver = pack_divide(k, part.each, &of);
    const int unit = pack_divide(of, part.vk, &gate) + (giver * a.reduce + p) * a.units;
    if (k >= part.k || unit >= a.H) return -1;
    return a.backward ? ((gate + part.gate) * a.H + unit) * a.row : unit;
}
/* How a tile's elements lie: a lane has four of 32 bits, eight of 16, which come as floats or as they are, or four along k (f32). */
enum { PACK_WIDE, PACK_NARROW, PACK_HALVES, PACK_FFMA };
template <int KIND> struct pack_values {
    static constexpr bool narrow = KIND == PACK_NARROW || KIND == PACK_HALVES;
    typename pack_type<KIND == PACK_HALVES>::type x[narrow ? 8 : 4];
};

/* Loads whatever there is, so that nothing branches between loads. */
template <class T> static __device__ __forceinline__ T pack_element(const pack_matrix &a, int row, int column) {
    const bool there = (row | column) >= 0;
    const T x = static_cast<const T *>(a.recurrent)[there ? row + column : 0];
    return there ? x : T(0);
}

/* What a lane has of a tile with these columns. */
template <int KIND>
static __device__ __forceinline__ void pack_load(const pack_matrix &a, const int (&rows)[2], const int *columns, int lane,
                                                 pack_values<KIND> *to) {
#pragma unroll
    for (int i = 0; i < (to->narrow ? 8 : 4); i++) {
        const int wide = lane % 4 + (i >> 1) * 4, narrow = lane % 4 * 2 + (i >> 2) * 8 + (i & 1);
        const int column = KIND == PACK_FFMA ? i : KIND == PACK_WIDE ? wide : narrow;
        const int row = KIND == PACK_FFMA ? 0 : KIND == PACK_WIDE ? i & 1 : i >> 1 & 1;
        to->x[i] = pack_element<typename pack_type<KIND == PACK_HALVES>::type>(a, rows[row], columns[column]);
    }
}

/* ... as its 16 bytes of the tile. */
template <int KIND>
static __device__ __forceinline__ uint4 pack_words(sl_dtype math, float scale, const pack_values<KIND> &from) {
    uint32_t four[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if constexpr (KIND == PACK_HALVES) {
            four[i] = from.x[2 * i] | (uint32_t)from.x[2 * i + 1] << 16;
        } else if constexpr (KIND == PACK_NARROW) {
            const float x = from.x[2 * i], y = from.x[2 * i + 1];
            four[i] = math == SL_BF16  ? ptx_pack_bf16(x, y)
                      : scale == 0.0f ? ptx_pack_f16(x, y)
                                      : persist_scaled_or_nan(x, scale) | persist_scaled_or_nan(y, scale) << 16;
        } else {
            const uint32_t x = __float_as_uint(from.x[i]);
            four[i] = math == SL_TF32 ? ptx_tf32(x) : x;
        }
    }
    return make_uint4(four[0], four[1], four[2], four[3]);
}

/* The columns of the chunk's tiles. With reset before the last tiles of k are of another part backward. */
static __device__ __forceinline__ void pack_columns(const pack_matrix &a, int p, int wk, int first, int *columns) {
    for (int i = (int)threadIdx.x; i < a.chunk * a.tile_k; i += (int)blockDim.x) {
        const int of_k = first + i / a.tile_k, part_k = a.first_k > 0 && of_k >= a.first_k ? 1 : 0;
        const int k = of_k + wk * a.part[part_k].tiles_k - part_k * a.first_k;
        columns[i] = pack_column(a, a.part[part_k], p, k * a.tile_k + i % a.tile_k);
    }
    __syncthreads();
}

/* PACK_RUN tiles in a row (tight: pairs), of which `left` are there, of warp wm's rows of M from tile of_m on. With reset before a row of
 * tiles is of one part forward; backward the parts have the same rows. */
template <int KIND, bool TIGHT>
static __device__ __forceinline__ void pack_run(const pack_matrix &a, int q, int wm, int of_m, int left, const int *columns,
                                                float scale, uint32_t *to, int lane) {
    constexpr int each = TIGHT ? 2 : 1, words = TIGHT ? 160 : 128, tile_k = pack_values<KIND>::narrow ? 16 : KIND == PACK_WIDE ? 8 : 4;
    const int part = a.part_m == 0 ? 0 : (of_m >= a.part_m) + (of_m >= 2 * a.part_m);
    const int m = (of_m + wm * a.part[part].tiles_m - part * a.part_m) * a.tile_rows;
    pack_values<KIND> tiles[PACK_RUN * each];
    int rows[2];
    rows[0] = pack_row(a, a.part[part], q, m + (KIND == PACK_FFMA ? lane : lane / 4));
    rows[1] = KIND == PACK_FFMA ? -1 : pack_row(a, a.part[part], q, m + lane / 4 + 8);
#pragma unroll
    for (int i = 0; i < PACK_RUN * each; i++)
        pack_load<KIND>(a, rows, columns + (i < left ? i : 0) * tile_k, lane, &tiles[i]);
#pragma unroll
    for (int i = 0; i < PACK_RUN * each; i += each, to += a.tiles_m * words) {
        if (i >= left) break;
        const uint4 first = pack_words<KIND>(a.math, scale, tiles[i]);
        if constexpr (TIGHT)
            persist_tie(to, lane, first, pack_words<KIND>(a.math, scale, tiles[i + 1]));
        else
            *(uint4 *)(to + lane * 4) = first;
    }
}

/* A block's warps take runs of its chunk in turns, of all warps of the CTA that have these columns. */
template <int KIND, bool TIGHT>
static __device__ __forceinline__ void pack_chunk(const pack_matrix &a, int block, int *columns) {
    const int chunk = block % a.chunks, wk = block / a.chunks % a.warps_k, cta = block / a.chunks / a.warps_k;
    const int q = cta / a.reduce, p = cta % a.reduce, lane = (int)threadIdx.x % 32, first = chunk * a.chunk;
    constexpr int each = TIGHT ? 2 : 1, words = TIGHT ? 160 : 128;
    const float scale = KIND == PACK_NARROW && a.largest ? persist_scale(persist_largest(persist_ask_largest(a.largest, lane))) : 0.0f; /* 0: as they are */
    const int count = a.warps_m * a.tiles_m * a.runs.d, end = first + a.chunk < a.tiles_k ? first + a.chunk : a.tiles_k;
    pack_columns(a, p, wk, first, columns);
    for (int i = (int)threadIdx.x / 32; i < count; i += (int)blockDim.x / 32) {
        int of;
        const int row = pack_divide(i, a.runs, &of), wm = row / a.tiles_m, of_m = row % a.tiles_m;
        const int at = first + of * PACK_RUN * each;
        const int64_t warp = ((int64_t)cta * a.warps_k + wk) * a.warps_m + wm;
        uint32_t *to = a.to + ((warp * a.tiles_k + at) / each * a.tiles_m + of_m) * words;
        pack_run<KIND, TIGHT>(a, q, wm, of_m, end - at, columns + (at - first) * a.tile_k, scale, to, lane);
    }
}

static __device__ __forceinline__ void pack_block(const pack_matrix &a, int block, int *columns) {
    if (a.math == SL_F32)
        pack_chunk<PACK_FFMA, false>(a, block, columns);
    else if (a.narrow)
        pack_chunk<PACK_HALVES, false>(a, block, columns);
    else if (a.math == SL_BF16 || a.math == SL_F16)
        pack_chunk<PACK_NARROW, false>(a, block, columns);
    else if (a.tight)
        pack_chunk<PACK_WIDE, true>(a, block, columns);
    else
        pack_chunk<PACK_WIDE, false>(a, block, columns);
}

/* 16 bytes, of which `there` elements are. */
static __device__ __forceinline__ uint4 pack_halves(const uint16_t *from, int there) {
    uint32_t four[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t low = 2 * i < there ? from[2 * i] : 0, high = 2 * i + 1 < there ? from[2 * i + 1] : 0;
        four[i] = low | high << 16;
    }
    return make_uint4(four[0], four[1], four[2], four[3]);
}

/* Piece number `piece` of W: 16 bytes of a row, zeros behind its end and in rows from GH on. */
static __device__ __forceinline__ void pack_piece(const pack_args &a, int64_t piece) {
    const bool narrow = a.math == SL_BF16 || a.math == SL_F16;
    const int each = narrow ? 8 : 4;
    const int64_t row = piece >> 32 ? piece / a.pieces : (int64_t)((uint32_t)piece / (uint32_t)a.pieces);
    const int first = (int)(piece - row * a.pieces) * each;
    float v[8];
    if (a.halves) {
        a.kernel_to[piece] = pack_halves(static_cast<const uint16_t *>(a.kernel) + row * a.I + first, row < a.GH ? a.I - first : 0);
        return;
    }
    const float *from = static_cast<const float *>(a.kernel) + row * a.I + first;
#pragma unroll
    for (int i = 0; i < 8; i += 4) {
        if (a.quads && i < each && row < a.GH && first + i < a.I) {
            const float4 quad = *reinterpret_cast<const float4 *>(from + i);
            v[i] = quad.x;
            v[i + 1] = quad.y;
            v[i + 2] = quad.z;
            v[i + 3] = quad.w;
            continue;
        }
#pragma unroll
        for (int j = i; j < i + 4; j++) v[j] = j < each && row < a.GH && first + j < a.I ? from[j] : 0.0f;
    }
    uint32_t four[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        four[i] = a.math == SL_BF16  ? ptx_pack_bf16(v[2 * i], v[2 * i + 1])
                  : a.math == SL_F16 ? ptx_pack_f16(v[2 * i], v[2 * i + 1])
                                     : __float_as_uint(v[i]);
    a.kernel_to[piece] = make_uint4(four[0], four[1], four[2], four[3]);
}

/* R's two forms in turns, so that what one has read is in L2 for the other; then W and the biases. */
static __global__ void __launch_bounds__(32 * PACK_MANY) persist_pack(const __grid_constant__ pack_args a) {
    __shared__ int columns[PACK_COLUMNS];
    const int forward = a.matrix[0].blocks, backward = a.matrix[1].blocks, block = (int)blockIdx.x;
    const int fewer = forward < backward ? forward : backward;
    if (block < forward + backward) {
        const bool turns = block < 2 * fewer, second = turns ? block % 2 == 1 : backward > forward;
        const int own = turns ? block / 2 : block - fewer;
        if (second)
            pack_block(a.matrix[1], own, columns);
        else
            pack_block(a.matrix[0], own, columns);
        return;
    }
    const int64_t at = (int64_t)(block - forward - backward) * blockDim.x + threadIdx.x;
    if (at < a.all_pieces) pack_piece(a, at);
    const int64_t j = at - a.all_pieces;
    if (j >= 0 && j < a.zs) step_pack_bias(a.bias, j);
}

/* gates: multiplied by the part */
static pack_part part_of(const sli_persist_geometry *g, int gate, int gates, int tiles_m, int tiles_k) {
    const int vk = g->backward ? gates : 1, ym = g->backward ? 1 : gates;
    pack_part part = {};
    part.own = pack_divisor_of(g->units * ym);
    part.each = pack_divisor_of(g->units * vk);
    part.vk = pack_divisor_of(vk);
    part.tiles_m = tiles_m;
    part.tiles_k = tiles_k;
    part.m = g->reduce * g->units * ym;
    part.k = g->spread * g->units * vk;
    part.gate = gate;
    return part;
}

/* Chunks give each warp of a block about one run. */
static void set_blocks(const sli_persist_geometry *g, int warps, pack_matrix *a) {
    const int run = PACK_RUN * (g->tight ? 2 : 1), rows = g->warps_m * g->tiles_m, most = PACK_COLUMNS / a->tile_k;
    const int runs = (warps + rows / 2) / rows, wanted = runs > 1 ? runs * run : run;
    a->warps_m = g->warps_m;
    a->warps_k = g->warps_k;
    a->chunk = wanted < most ? wanted : most;
    if (a->chunk > g->tiles_k) a->chunk = g->tiles_k;
    a->chunks = (g->tiles_k + a->chunk - 1) / a->chunk;
    a->runs = pack_divisor_of((a->chunk + run - 1) / run);
    a->blocks = sli_persist_group(g) * g->warps_k * a->chunks;
}

static void set_matrix(const step_way *way, const sli_persist_geometry *g, int warps, const void *recurrent, int64_t row,
                       void *to, pack_matrix *a) {
    a->to = (uint32_t *)to;
    a->recurrent = recurrent;
    a->H = (int)way->s.H;
    a->row = (int)row;
    a->units = g->units;
    a->reduce = g->reduce;
    a->unit = pack_divisor_of(g->units);
    a->tiles_m = g->tiles_m;
    a->tiles_k = g->tiles_k;
    a->tile_rows = sli_persist_tile_rows(g->math);
    a->tile_k = sli_persist_tile_k(g->math);
    set_blocks(g, warps, a);
    const int part_m = sli_persist_part_m(g), new_k = sli_persist_new_k(g), multiplied = sli_persist_multiplied(g);
    a->part_m = part_m < g->tiles_m ? part_m : 0;
    if (new_k > 0) a->first_k = g->tiles_k - new_k;
    a->part[0] = part_of(g, 0, multiplied, part_m, g->tiles_k - new_k);
    for (int i = 1; g->before && i + multiplied <= 3; i++)
        a->part[i] = part_of(g, i - 1 + multiplied, 1, part_m, new_k > 0 ? new_k : g->tiles_k);
    a->narrow = way->s.narrow_parameters && recurrent == way->param[SLI_RNN_RECURRENT]; /* a folded one is of floats */
    a->backward = g->backward;
    a->tight = g->tight;
    a->math = g->math;
}

void sli_persist_pack(const step_way *way, const sli_persist_pair *pair, const sli_persist_packed *at,
                      const void *recurrent, int64_t row) {
    const sli_step_shape *s = &way->s;
    const int warps = s->H < PACK_SMALL ? PACK_MANY : PACK_FEW;
    const unsigned threads = 32 * (unsigned)warps;
    pack_args a = {};
    set_matrix(way, &pair->forward, warps, recurrent, row, way->weights + at->forward, &a.matrix[0]);
    if (pair->forward.scaled) {
        const int64_t gates = s->lag > 0 && s->gru ? 4 : s->GH / s->H; /* of a wave n has two rows */
        float *largest = (float *)(way->weights + at->largest);
        sli_persist_measure(way, (const float *)recurrent, gates * s->H * row, largest);
        a.matrix[0].largest = largest;
    }
    if (s->train && !pair->backward_in_steps)
        set_matrix(way, &pair->backward, warps, recurrent, row, way->weights + at->backward, &a.matrix[1]);
    a.math = pair->forward.scaled ? SL_TF32 : pair->forward.math; /* of W */
    a.GH = (int)s->GH;
    a.zs = (int)s->zs;
    a.I = (int)s->I;
    if (s->copy_w && !way->call->copied) {
        a.kernel_to = (uint4 *)(way->weights + way->packed.kernel);
        a.kernel = way->param[SLI_RNN_KERNEL];
        a.halves = s->narrow_parameters;
        a.quads = s->I % 4 == 0 && (uintptr_t)a.kernel % 16 == 0;
        a.pieces = (int)(s->xs * (int64_t)s->operand / 16);
        a.all_pieces = s->zs * a.pieces;
    }
    a.bias = sli_step_bias_args(way);
    const int64_t rest = (a.all_pieces + a.zs + threads - 1) / threads;
    const sli_step_grid grid = {(unsigned)(a.matrix[0].blocks + a.matrix[1].blocks + rest), 1, threads, 1};
    sli_step_launch(way, persist_pack, &grid, &a, false, "launch of packed recurrent weights");
}
