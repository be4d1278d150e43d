/* cuda:step, wide steps: their launches; weights as they read them; v before the first step. Machine code for sm_90a alone. */
#include "backend/cuda/kernels/step_wide.cuh"

#include "backend/cuda/kernels/step_device.cuh"

#ifndef WIDE_MEMORY
#define WIDE_MEMORY(name) extern __shared__ __align__(128) unsigned char name[]
#endif

template <int rows>
static __global__ void __launch_bounds__(WIDE_THREADS, 1) wide_multiply(const __grid_constant__ wide_args a) {
    WIDE_MEMORY(memory);
    wide_product<wide_cut<rows>>(a, memory, [] { step_wait(); });
}

template <int rows> static void launch(const step_way *way, const wide_args *a, bool dependent) {
    const sli_step_grid grid = {(unsigned)way->wide.blocks, (unsigned)(way->wide.tiles * way->wide.pieces), WIDE_THREADS, 1};
    sli_step_launch(way, wide_multiply<rows>, &grid, a, dependent, "launch of the product of a wide step",
                    (size_t)wide_cut<rows>::shared_bytes);
}

step_sums sli_step_wide_multiply(const step_way *way, float *to, int64_t row, const char *weights, bool dependent) {
    const sli_step_wide *w = &way->wide;
    wide_args a = {};
    a.weights = (const unsigned char *)weights;
    a.v = (const float *)(way->work + way->scratch.wide);
    a.d = to;
    a.apart = way->s.B * row;
    a.row = (int)row;
    a.B = (int)way->s.B;
    a.stages = w->stages;
    a.pieces = w->pieces;
    a.near = sli_step_wide_near(w, way->s.directions, sli_cuda_caps_of(way->queue)) / w->pieces;
    w->rows == 128 ? launch<128>(way, &a, dependent) : launch<64>(way, &a, dependent);
    return {to, a.apart, w->pieces};
}

/* ------------------------------------------------------------------------------------------------------------ v -- */
typedef struct wide_enter_args {
    float *to;         /* = [tiles][k / 4][rows][4] */
    const float *from; /* [B][row]; NULL: zeros */
    int64_t row, pieces; /* of 16 bytes */
    int B, k, rows, stages;
} wide_enter_args;

/* A thread has four values of k of a row of the batch. */
static __global__ void __launch_bounds__(STEP_THREADS) wide_enter(const __grid_constant__ wide_enter_args a) {
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= a.pieces) return;
    const int lines = a.stages * WIDE_K / 4;
    const int k = (int)(at / a.rows % lines) * 4, row = (int)(at / a.rows / lines) * a.rows + (int)(at % a.rows);
    float four[4];
#pragma unroll
    for (int i = 0; i < 4; i++) four[i] = a.from && row < a.B && k + i < a.k ? a.from[row * a.row + k + i] : 0.0f;
    *reinterpret_cast<float4 *>(a.to + at * 4) = make_float4(four[0], four[1], four[2], four[3]);
}

void sli_step_wide_begin(const step_way *way, const float *v) {
    wide_enter_args a = {};
    a.to = (float *)(way->work + way->scratch.wide);
    a.from = v;
    a.row = way->s.hs;
    a.pieces = sli_step_wide_v(&way->wide) / 4;
    a.B = (int)way->s.B;
    a.k = (int)way->s.O;
    a.rows = way->wide.rows;
    a.stages = way->wide.stages;
    const sli_step_grid grid = {step_blocks_of(a.pieces, STEP_THREADS), 1, STEP_THREADS, 1};
    sli_step_launch(way, wide_enter, &grid, &a, false, "launch of what a wide step enters with");
}

step_wide_v sli_step_wide_place(const step_way *way) {
    return {(float *)(way->work + way->scratch.wide), way->wide.rows,
            (int64_t)way->wide.stages * WIDE_K * way->wide.rows};
}

/* --------------------------------------------------------------------------------------------------------- pack -- */
typedef struct wide_pack_args {
    uint32_t *to;      /* = [stages][blocks][warps][pairs][WIDE_PAIR] */
    const float *r;    /* [GH][O] */
    int GH, O, blocks;
    bool backward;
    int64_t tiles; /* of 16 rows by 16 of k */
} wide_pack_args;

static __device__ __forceinline__ uint4 wide_tile(const wide_pack_args &a, int m, int k) {
    const int lane = (int)threadIdx.x % 32;
    uint32_t four[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int of_m = m + lane / 4 + i % 2 * 8, of_k = k + lane % 4 + i / 2 * 4;
        const int gate = a.backward ? of_k : of_m, unit = a.backward ? of_m : of_k;
        four[i] = gate < a.GH && unit < a.O ? ptx_tf32(__float_as_uint(a.r[(int64_t)gate * a.O + unit])) : 0u;
    }
    return make_uint4(four[0], four[1], four[2], four[3]);
}

/* A warp has a pair of tiles. */
static __global__ void __launch_bounds__(STEP_THREADS) wide_pack(const __grid_constant__ wide_pack_args a) {
    const int64_t tile = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (tile >= a.tiles) return;
    const int pairs = WIDE_K / 16, of_pair = (int)(tile % pairs), warp = (int)(tile / pairs % WIDE_WARPS);
    const int64_t rest = tile / pairs / WIDE_WARPS;
    const int k = (int)(rest / a.blocks) * WIDE_K + of_pair * 16;
    const int m = (int)(rest % a.blocks) * WIDE_TALL + warp * 16;
    persist_tie(a.to + tile * (WIDE_PAIR / 4), (int)threadIdx.x % 32, wide_tile(a, m, k), wide_tile(a, m, k + 8));
}

void sli_step_wide_pack(const step_way *way, const sli_step_wide *w, char *to, bool backward) {
    wide_pack_args a = {};
    a.to = (uint32_t *)to;
    a.r = (const float *)way->param[SLI_RNN_RECURRENT];
    a.GH = (int)way->s.GH;
    a.O = (int)way->s.O;
    a.blocks = w->blocks;
    a.backward = backward;
    a.tiles = (int64_t)(sli_step_wide_bytes(w) / WIDE_PAIR);
    const sli_step_grid grid = {step_blocks_of(a.tiles, STEP_THREADS / 32), 1, STEP_THREADS, 1};
    sli_step_launch(way, wide_pack, &grid, &a, false, "launch of packed recurrent weights");
}
