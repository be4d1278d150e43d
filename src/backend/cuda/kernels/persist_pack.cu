/* cuda:cluster and cuda:grid: R and R^T as operands in the order that the persistent kernels read them, zeros where units or
 * rows are padding. */
#include "backend/cuda/kernels/persist_host.cuh"
#include "backend/cuda/kernels/persist_sizes.cuh"

enum { PACK_THREADS = 256 };

typedef struct pack_args {
    uint4 *to;              /* = [CTA][warp][tiles_k][tiles_m][lane] */
    const float *recurrent; /* [gates H][H] */
    int64_t count;
    int gates, H, units, reduce, spread, vk, ym;
    int warps_m, warps, tiles_m, tiles_k, tile_rows, tile_k;
    int m, k; /* of M without padding */
    bool backward;
    sl_dtype math;
} pack_args;

/* Element (m, k) of the M of CTA (q, p), see persist_geometry.h. */
static __device__ float pack_element(const pack_args &a, int q, int p, int m, int k) {
    if (m >= a.m || k >= a.k) return 0.0f;
    const int own = a.units * a.ym, owner = m / own, within = m % own;
    const int y_unit = (q * a.reduce + owner) * a.units + within % a.units, y_gate = within / a.units;
    const int each = a.units * a.vk, giver = k / each, of = k % each;
    const int v_unit = (giver * a.reduce + p) * a.units + of / a.vk, v_gate = of % a.vk;
    if (y_unit >= a.H || v_unit >= a.H) return 0.0f;
    const int64_t row = a.backward ? (int64_t)v_gate * a.H + v_unit : (int64_t)y_gate * a.H + y_unit;
    return a.recurrent[row * a.H + (a.backward ? y_unit : v_unit)];
}

static __device__ uint32_t pack_pair(const pack_args &a, int q, int p, int m, int k) {
    const float low = pack_element(a, q, p, m, k), high = pack_element(a, q, p, m, k + 1);
    return a.math == SL_BF16 ? ptx_pack_bf16(low, high) : ptx_pack_f16(low, high);
}

static __global__ void __launch_bounds__(PACK_THREADS) persist_pack(const __grid_constant__ pack_args a) {
    const int64_t at = (int64_t)blockIdx.x * PACK_THREADS + threadIdx.x;
    if (at >= a.count) return;
    const int lane = (int)(at % 32), tile = (int)(at / 32 % (a.tiles_m * a.tiles_k));
    const int64_t of_cta = at / 32 / (a.tiles_m * a.tiles_k);
    const int warp = (int)(of_cta % a.warps), cta = (int)(of_cta / a.warps);
    const int q = cta / a.reduce, p = cta % a.reduce;
    const int m = (warp % a.warps_m * a.tiles_m + tile % a.tiles_m) * a.tile_rows;
    const int k = (warp / a.warps_m * a.tiles_k + tile / a.tiles_m) * a.tile_k;
    uint32_t four[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = m + lane / 4 + (i & 1) * 8;
        if (a.math == SL_F32)
            four[i] = __float_as_uint(pack_element(a, q, p, m + lane, k + i));
        else if (a.math == SL_TF32)
            four[i] = ptx_tf32(__float_as_uint(pack_element(a, q, p, row, k + lane % 4 + (i >> 1) * 4)));
        else if (a.math == SL_F32X3)
            four[i] = __float_as_uint(pack_element(a, q, p, row, k + lane % 4 + (i >> 1) * 4));
        else
            four[i] = pack_pair(a, q, p, row, k + lane % 4 * 2 + (i >> 1) * 8);
    }
    a.to[at] = make_uint4(four[0], four[1], four[2], four[3]);
}

void sli_persist_pack(const step_way *way, const sli_persist_geometry *g, void *to) {
    pack_args a = {};
    a.to = (uint4 *)to;
    a.recurrent = (const float *)way->param[SLI_RNN_RECURRENT];
    a.count = (int64_t)(sli_persist_packed_bytes(g) / 16);
    a.gates = g->gates;
    a.H = (int)way->s.H;
    a.units = g->units;
    a.reduce = g->reduce;
    a.spread = g->spread;
    a.vk = sli_persist_vk(g);
    a.ym = sli_persist_ym(g);
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
    const sli_step_grid grid = {(unsigned)((a.count + PACK_THREADS - 1) / PACK_THREADS), 1, PACK_THREADS, 1};
    sli_step_launch(way, persist_pack, &grid, &a, false, "launch of packed recurrent weights");
}
