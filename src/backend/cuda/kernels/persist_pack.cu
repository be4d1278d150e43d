/* cuda:cluster and cuda:grid: R and R^T as operands in the order that the persistent kernels read them, zeros where units or
 * rows are padding. */
#include "backend/cuda/kernels/persist_host.cuh"
#include "backend/cuda/kernels/persist_sizes.cuh"

enum { PACK_THREADS = 256 };

/* n / d as a product: exact while n d < 2^32. */
typedef struct pack_divisor {
    uint64_t factor;
    int d;
} pack_divisor;

typedef struct pack_args {
    uint4 *to;              /* = [CTA][warp][tiles_k][tiles_m][lane] */
    const float *recurrent; /* [gates H][H] */
    int H, units, reduce;
    pack_divisor own, unit, each, vk,
        tiles; /* values of y that a CTA owns, units, values of v that it gives; of a unit */
    int warps_m, warps, tiles_m, tiles_k, tile_rows, tile_k;
    int m, k; /* of M without padding */
    bool backward;
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
static __device__ __forceinline__ int pack_row(const pack_args &a, int q, int m) {
    int within, unit;
    const int owner = pack_divide(m, a.own, &within), gate = pack_divide(within, a.unit, &unit);
    unit += (q * a.reduce + owner) * a.units;
    if (m >= a.m || unit >= a.H) return -1;
    return a.backward ? unit : (gate * a.H + unit) * a.H;
}
static __device__ __forceinline__ int pack_column(const pack_args &a, int p, int k) {
    int of, gate;
    const int giver = pack_divide(k, a.each, &of);
    const int unit = pack_divide(of, a.vk, &gate) + (giver * a.reduce + p) * a.units;
    if (k >= a.k || unit >= a.H) return -1;
    return a.backward ? (gate * a.H + unit) * a.H : unit;
}
static __device__ __forceinline__ float pack_element(const pack_args &a, int row, int column) {
    return row < 0 || column < 0 ? 0.0f : a.recurrent[row + column];
}

/* A lane's 16 bytes of the tile that begins at (m, k). */
static __device__ __forceinline__ uint4 pack_tile(const pack_args &a, int q, int p, int m, int k, int lane) {
    uint32_t four[4];
    if (a.math == SL_F32) {
        const int row = pack_row(a, q, m + lane);
#pragma unroll
        for (int i = 0; i < 4; i++) four[i] = __float_as_uint(pack_element(a, row, pack_column(a, p, k + i)));
        return make_uint4(four[0], four[1], four[2], four[3]);
    }
    const int rows[2] = {pack_row(a, q, m + lane / 4), pack_row(a, q, m + lane / 4 + 8)};
    if (a.math == SL_TF32 || a.math == SL_F32X3) {
        const int columns[2] = {pack_column(a, p, k + lane % 4), pack_column(a, p, k + lane % 4 + 4)};
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
        const int low = pack_column(a, p, first), high = pack_column(a, p, first + 1);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float x = pack_element(a, rows[r], low), y = pack_element(a, rows[r], high);
            four[2 * pair + r] = a.math == SL_BF16 ? ptx_pack_bf16(x, y) : ptx_pack_f16(x, y);
        }
    }
    return make_uint4(four[0], four[1], four[2], four[3]);
}

/* A block has the tiles of one warp of one CTA, its warps take them in turns. */
static __global__ void __launch_bounds__(PACK_THREADS) persist_pack(const __grid_constant__ pack_args a) {
    const int warp = (int)blockIdx.x % a.warps, cta = (int)blockIdx.x / a.warps, lane = (int)threadIdx.x % 32;
    const int q = cta / a.reduce, p = cta % a.reduce, count = a.tiles_m * a.tiles_k;
    const int first_m = warp % a.warps_m * a.tiles_m, first_k = warp / a.warps_m * a.tiles_k;
    uint4 *to = a.to + (int64_t)blockIdx.x * count * 32;
    for (int tile = (int)threadIdx.x / 32; tile < count; tile += PACK_THREADS / 32) {
        int of_m;
        const int of_k = pack_divide(tile, a.tiles, &of_m);
        to[tile * 32 + lane] = pack_tile(a, q, p, (first_m + of_m) * a.tile_rows, (first_k + of_k) * a.tile_k, lane);
    }
}

void sli_persist_pack(const step_way *way, const sli_persist_geometry *g, void *to) {
    pack_args a = {};
    a.to = (uint4 *)to;
    a.recurrent = (const float *)way->param[SLI_RNN_RECURRENT];
    a.H = (int)way->s.H;
    a.units = g->units;
    a.reduce = g->reduce;
    a.own = pack_divisor_of(g->units * sli_persist_ym(g));
    a.unit = pack_divisor_of(g->units);
    a.each = pack_divisor_of(g->units * sli_persist_vk(g));
    a.vk = pack_divisor_of(sli_persist_vk(g));
    a.tiles = pack_divisor_of(g->tiles_m);
    a.warps_m = g->warps_m;
    a.warps = sli_persist_warps(g);
    a.tiles_m = g->tiles_m;
    a.tiles_k = g->tiles_k;
    a.tile_rows = sli_persist_tile_rows(g->math);
    a.tile_k = sli_persist_tile_k(g->math);
    a.m = sli_persist_m(g);
    a.k = sli_persist_k(g);
    a.backward = g->backward;
    a.math = g->math;
    const sli_step_grid grid = {(unsigned)(sli_persist_group(g) * sli_persist_warps(g)), 1, PACK_THREADS, 1};
    sli_step_launch(way, persist_pack, &grid, &a, false, "launch of packed recurrent weights");
}
