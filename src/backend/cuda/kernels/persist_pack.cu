/* cuda:cluster and cuda:grid: R and R^T as operands in the order that the persistent kernels read them, zeros where units or
 * rows are padding; in the same launch W and the biases as cuda:step's products read them. */
#include "backend/cuda/kernels/persist_host.cuh"
#include "backend/cuda/kernels/persist_sizes.cuh"
#include "backend/cuda/kernels/persist_tight.cuh"

enum { PACK_THREADS = 256 };

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
    int blocks;
    uint32_t *to;           /* = [CTA][warp][tiles_k][tiles_m][lane][4]; tight: ...[tiles_k / 2][tiles_m] of [lane][4] and [lane] */
    const float *recurrent; /* [gates H][row] */
    int H, row, units, reduce;
    pack_divisor unit, tiles;
    int warps_m, warps, tiles_m, tiles_k, tile_rows, tile_k;
    int part_m, first_k; /* rows of a warp's tiles of each of three parts; columns before those of the second; 0: there is one */
    pack_part part[3];
    bool backward, tight;
    sl_dtype math;
} pack_matrix;

typedef struct pack_args {
    pack_matrix matrix[2]; /* forward, backward; `blocks` 0: not wanted */
    uint4
        *kernel_to; /* = operand [zs][xs], rows of `pieces` times 16 bytes, `all_pieces` together; 0: W is not copied */
    const float *kernel; /* [GH][I] */
    int64_t all_pieces;
    int pieces, GH, zs, I;
    bool quads;     /* W's rows begin at 16 bytes */
    float *bias_to; /* = [zs]: everything that can be added to W x, zeros behind the gates */
    const float *bias, *recurrent_bias;
    int apart; /* from here on the recurrent bias is left to the cell */
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
static __device__ __forceinline__ float pack_element(const pack_matrix &a, int row, int column) {
    return row < 0 || column < 0 ? 0.0f : a.recurrent[row + column];
}

/* A lane's 16 bytes of the tile that begins at (m, k). */
static __device__ __forceinline__ uint4 pack_tile(const pack_matrix &a, const pack_part &part, int q, int p, int m,
                                                  int k, int lane) {
    uint32_t four[4];
    if (a.math == SL_F32) {
        const int row = pack_row(a, part, q, m + lane);
#pragma unroll
        for (int i = 0; i < 4; i++) four[i] = __float_as_uint(pack_element(a, row, pack_column(a, part, p, k + i)));
        return make_uint4(four[0], four[1], four[2], four[3]);
    }
    const int rows[2] = {pack_row(a, part, q, m + lane / 4), pack_row(a, part, q, m + lane / 4 + 8)};
    if (a.math == SL_TF32 || a.math == SL_F32X3) {
        const int columns[2] = {pack_column(a, part, p, k + lane % 4), pack_column(a, part, p, k + lane % 4 + 4)};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t x = __float_as_uint(pack_element(a, rows[i & 1], columns[i >> 1]));
            four[i] = a.math == SL_TF32 ? ptx_tf32(x) : x;
        }
        return make_uint4(four[0], four[1], four[2], four[3]);
    }
#pragma unroll
    for (int pair = 0; pair < 2; pair++) {
        const int first = k + lane % 4 * 2 + pair * 8;
        const int low = pack_column(a, part, p, first), high = pack_column(a, part, p, first + 1);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float x = pack_element(a, rows[r], low), y = pack_element(a, rows[r], high);
            four[2 * pair + r] = a.math == SL_BF16 ? ptx_pack_bf16(x, y) : ptx_pack_f16(x, y);
        }
    }
    return make_uint4(four[0], four[1], four[2], four[3]);
}

/* A block has the tiles of one warp of one CTA, its warps take them in turns; tight: pairs of them. */
static __device__ __forceinline__ void pack_block(const pack_matrix &a, int block) {
    const int warp = block % a.warps, cta = block / a.warps, lane = (int)threadIdx.x % 32;
    const int q = cta / a.reduce, p = cta % a.reduce, each = a.tight ? 2 : 1, count = a.tiles_m * a.tiles_k / each;
    const int words = a.tight ? 160 : 128;
    const int wm = warp % a.warps_m, wk = warp / a.warps_m;
    uint32_t *to = a.to + (int64_t)block * count * words;
    for (int tile = (int)threadIdx.x / 32; tile < count; tile += PACK_THREADS / 32) {
        int of_m, of_k = pack_divide(tile, a.tiles, &of_m) * each;
        const int rows = a.part_m == 0 ? 0 : (of_m >= a.part_m) + (of_m >= 2 * a.part_m);
        const int columns = a.first_k > 0 && of_k >= a.first_k ? 1 : 0;
        const pack_part &part = a.part[rows + columns];
        of_m += wm * part.tiles_m - rows * a.part_m;
        of_k += wk * part.tiles_k - columns * a.first_k;
        const int m = of_m * a.tile_rows, k = of_k * a.tile_k;
        const uint4 first = pack_tile(a, part, q, p, m, k, lane);
        if (a.tight)
            persist_tie(to + tile * words, lane, first, pack_tile(a, part, q, p, m, k + a.tile_k, lane));
        else
            *(uint4 *)(to + tile * words + lane * 4) = first;
    }
}

/* Piece number `piece` of W: 16 bytes of a row, zeros behind its end and in rows from GH on. */
static __device__ __forceinline__ void pack_piece(const pack_args &a, int64_t piece) {
    const bool narrow = a.math == SL_BF16 || a.math == SL_F16;
    const int each = narrow ? 8 : 4;
    const int64_t row = piece >> 32 ? piece / a.pieces : (int64_t)((uint32_t)piece / (uint32_t)a.pieces);
    const int first = (int)(piece - row * a.pieces) * each;
    float v[8];
    const float *from = a.kernel + row * a.I + first;
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
static __global__ void __launch_bounds__(PACK_THREADS) persist_pack(const __grid_constant__ pack_args a) {
    const int forward = a.matrix[0].blocks, backward = a.matrix[1].blocks, block = (int)blockIdx.x;
    const int fewer = forward < backward ? forward : backward;
    if (block < forward + backward) {
        const bool turns = block < 2 * fewer, second = turns ? block % 2 == 1 : backward > forward;
        const int own = turns ? block / 2 : block - fewer;
        if (second)
            pack_block(a.matrix[1], own);
        else
            pack_block(a.matrix[0], own);
        return;
    }
    const int64_t at = (int64_t)(block - forward - backward) * PACK_THREADS + threadIdx.x;
    if (at < a.all_pieces) pack_piece(a, at);
    const int64_t j = at - a.all_pieces;
    if (j < 0 || j >= a.zs) return;
    float sum = a.bias && j < a.GH ? a.bias[j] : 0.0f;
    if (a.recurrent_bias && j < a.apart) sum += a.recurrent_bias[j];
    a.bias_to[j] = sum;
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

static void set_matrix(const step_way *way, const sli_persist_geometry *g, const float *recurrent, int64_t row, void *to,
                       pack_matrix *a) {
    a->blocks = sli_persist_group(g) * sli_persist_warps(g);
    a->to = (uint32_t *)to;
    a->recurrent = recurrent;
    a->H = (int)way->s.H;
    a->row = (int)row;
    a->units = g->units;
    a->reduce = g->reduce;
    a->unit = pack_divisor_of(g->units);
    a->tiles = pack_divisor_of(g->tiles_m);
    a->warps_m = g->warps_m;
    a->warps = sli_persist_warps(g);
    a->tiles_m = g->tiles_m;
    a->tiles_k = g->tiles_k;
    a->tile_rows = sli_persist_tile_rows(g->math);
    a->tile_k = sli_persist_tile_k(g->math);
    const int part_m = sli_persist_part_m(g), new_k = sli_persist_new_k(g), multiplied = sli_persist_multiplied(g);
    a->part_m = part_m < g->tiles_m ? part_m : 0;
    if (new_k > 0) a->first_k = g->tiles_k - new_k;
    a->part[0] = part_of(g, 0, multiplied, part_m, g->tiles_k - new_k);
    for (int i = 1; g->before && i + multiplied <= 3; i++)
        a->part[i] = part_of(g, i - 1 + multiplied, 1, part_m, new_k > 0 ? new_k : g->tiles_k);
    a->backward = g->backward;
    a->tight = g->tight;
    a->math = g->math;
}

void sli_persist_pack(const step_way *way, const sli_persist_pair *pair, const sli_persist_packed *at,
                      const float *recurrent, int64_t row) {
    const sli_step_shape *s = &way->s;
    pack_args a = {};
    set_matrix(way, &pair->forward, recurrent, row, way->weights + at->forward, &a.matrix[0]);
    if (s->train && !pair->backward_in_steps)
        set_matrix(way, &pair->backward, recurrent, row, way->weights + at->backward, &a.matrix[1]);
    a.math = pair->forward.math;
    a.GH = (int)s->GH;
    a.zs = (int)s->zs;
    a.I = (int)s->I;
    if (s->copy_w && !way->call->copied) {
        a.kernel_to = (uint4 *)(way->weights + way->packed.kernel);
        a.kernel = (const float *)way->param[SLI_RNN_KERNEL];
        a.quads = s->I % 4 == 0 && (uintptr_t)a.kernel % 16 == 0;
        a.pieces = (int)(s->xs * (int64_t)s->operand / 16);
        a.all_pieces = s->zs * a.pieces;
    }
    a.bias_to = (float *)(way->weights + way->packed.bias);
    a.bias = (const float *)way->param[SLI_RNN_BIAS];
    a.recurrent_bias = (const float *)way->param[SLI_RNN_RECURRENT_BIAS];
    a.apart = (int)(s->gru && !s->before ? 2 * s->H : s->GH);
    const int64_t rest = (a.all_pieces + a.zs + PACK_THREADS - 1) / PACK_THREADS;
    const sli_step_grid grid = {(unsigned)(a.matrix[0].blocks + a.matrix[1].blocks + rest), 1, PACK_THREADS, 1};
    sli_step_launch(way, persist_pack, &grid, &a, false, "launch of packed recurrent weights");
}
