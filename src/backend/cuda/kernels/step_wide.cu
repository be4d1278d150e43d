/* cuda:step, wide steps: their launches; weights as they read them; v before the first step. Machine code for sm_90a alone. */
#include "backend/cuda/kernels/step_wide.cuh"

#include "backend/cuda/kernels/step_device.cuh"
#include "backend/cuda/kernels/step_bias.cuh"
#include "backend/cuda/kernels/step_run_host.cuh"

template <int rows>
static __global__ void __launch_bounds__(WIDE_THREADS, 1) wide_multiply(const __grid_constant__ wide_args a) {
    WIDE_MEMORY(memory);
    wide_product<wide_cut<rows, 1, 0>>(a, memory, [] { step_wait(); });
}

template <int rows> static void launch(const step_way *way, const wide_args *a, bool dependent) {
    const sli_step_grid grid = {(unsigned)sli_step_wide_grid(&way->wide), 1, WIDE_THREADS, 1};
    sli_step_launch(way, wide_multiply<rows>, &grid, a, dependent, "launch of the product of a wide step",
                    (size_t)SLI_STEP_WIDE_SHARED(rows, false, false));
}

step_sums sli_step_wide_multiply(const step_way *way, float *to, int64_t row, const char *weights, bool dependent) {
    const wide_args a = sli_step_wide_args(way, to, row, weights);
    way->wide.rows == 128 ? launch<128>(way, &a, dependent) : launch<64>(way, &a, dependent);
    return {to, a.apart, a.pieces};
}

/* ------------------------------------------------------------------------------------------------------------ v -- */
typedef struct wide_enter_args {
    unsigned char *to; /* = [tiles][pieces of 16 bytes][rows][16]; the second of two behind it, zeros */
    const char *from;  /* operand [B][row], scaled float [B][row]; NULL: zeros */
    int64_t row, pieces;
    int B, rows, lines; /* lines: pieces of a row of the batch */
    bool narrow, scaled;
    float bound;
} wide_enter_args;

/* A thread has 16 bytes of a row of the batch. Rows of operands begin at 16 bytes, and are zeros behind k. */
static __global__ void __launch_bounds__(STEP_THREADS) wide_enter(const __grid_constant__ wide_enter_args a) {
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= a.pieces) return;
    const int each = a.narrow ? 8 : 4;
    const int k = (int)(at / a.rows % a.lines) * each, row = (int)(at / a.rows / a.lines) * a.rows + (int)(at % a.rows);
    uint4 piece = make_uint4(0, 0, 0, 0);
    if (a.scaled) {
        const bool there = a.from && row < a.B;
        const float *from = reinterpret_cast<const float *>(a.from) + row * a.row;
        const float scale = persist_scale_of_v(a.bound);
        uint32_t two[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            two[i] = persist_scaled_or_nan(there && k + 2 * i < a.row ? from[k + 2 * i] : 0.0f, scale) |
                     persist_scaled_or_nan(there && k + 2 * i + 1 < a.row ? from[k + 2 * i + 1] : 0.0f, scale) << 16;
        piece = make_uint4(two[0], two[1], two[2], two[3]);
    } else if (a.from && row < a.B && k < a.row) {
        piece = *reinterpret_cast<const uint4 *>(a.from + (row * a.row + k) * (16 / each));
    }
    *reinterpret_cast<uint4 *>(a.to + at * 16) = piece;
}

void sli_step_wide_begin(const step_way *way, const void *v) {
    if (way->wide.runs &&
        !sli_cuda_put(way->queue, way->stream, way->work + way->scratch.counts, NULL, SLI_STEP_RUN_COUNTS(way->wide.blocks)))
        return;
    wide_enter_args a = {};
    a.to = (unsigned char *)(way->work + way->scratch.wide);
    a.from = (const char *)v;
    a.row = way->s.hs;
    a.pieces = sli_step_wide_buffers(&way->wide) * (int64_t)(sli_step_wide_v(&way->wide) / 16);
    a.B = (int)way->s.B;
    a.rows = way->wide.rows;
    a.lines = way->wide.stages * WIDE_LINES;
    a.narrow = way->wide.narrow;
    a.scaled = way->wide.scaled;
    a.bound = sli_step_bound(way);
    const sli_step_grid grid = {step_blocks_of(a.pieces, STEP_THREADS), 1, STEP_THREADS, 1};
    sli_step_launch(way, wide_enter, &grid, &a, false, "launch of what a wide step enters with");
}

/* --------------------------------------------------------------------------------------------------------- pack -- */
typedef struct wide_pack_args {
    unsigned char *to; /* = [stages][blocks][a block's bytes of a stage] */
    const void *r;     /* [GH][O], of r_math: SL_F32, or of narrow parameters `math` */
    int GH, H, O, blocks, math, r_math;
    const float *largest; /* [PERSIST_LARGEST] of |R|, by which it is scaled; NULL: it is not */
    int units; /* of a block, which has all their gates, each half those of half of them; 0: rows of M as they lie */
    bool backward;
    int64_t tiles; /* tf32: of 16 rows by 16 of k; else of 32 rows by 16 bytes of k */
} wide_pack_args;

/* Row m of halves of blocks of whole units: gate by gate; beyond all rows where there is none. */
static __device__ __forceinline__ int wide_row(const wide_pack_args &a, int m) {
    if (a.units == 0) return m;
    const int half = a.units / 2, at = m % SLI_STEP_WIDE_HALF, gate = at / half, unit = m / SLI_STEP_WIDE_HALF * half + at % half;
    return gate * a.H < a.GH && unit < a.H ? gate * a.H + unit : a.GH;
}

/* An element of M. */
static __device__ __forceinline__ float wide_weight(const wide_pack_args &a, int m, int k) {
    const int gate = a.backward ? k : wide_row(a, m), unit = a.backward ? m : k;
    return gate < a.GH && unit < a.O ? step_parameter(a.r_math, a.r, (int64_t)gate * a.O + unit) : 0.0f;
}

static __device__ __forceinline__ uint4 wide_tile(const wide_pack_args &a, int m, int k) {
    const int lane = (int)threadIdx.x % 32;
    uint32_t four[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        four[i] = ptx_tf32(__float_as_uint(wide_weight(a, m + lane / 4 + i % 2 * 8, k + lane % 4 + i / 2 * 4)));
    return make_uint4(four[0], four[1], four[2], four[3]);
}

/* A warp has a pair of tiles. */
static __global__ void __launch_bounds__(STEP_THREADS) wide_pack(const __grid_constant__ wide_pack_args a) {
    const int64_t tile = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (tile >= a.tiles) return;
    const int pairs = WIDE_LINES / 4, of_pair = (int)(tile % pairs), warp = (int)(tile / pairs % WIDE_WARPS);
    const int64_t rest = tile / pairs / WIDE_WARPS;
    const int k = ((int)(rest / a.blocks) * pairs + of_pair) * 16;
    const int m = (int)(rest % a.blocks) * WIDE_TALL + warp * 16;
    persist_tie(reinterpret_cast<uint32_t *>(a.to + tile * WIDE_PAIR), (int)threadIdx.x % 32, wide_tile(a, m, k), wide_tile(a, m, k + 8));
}

/* A lane has 16 bytes of a row of M. Forward, where k lies along memory, lanes are four rows by eight pieces of k, else 32 rows. */
static __global__ void __launch_bounds__(STEP_THREADS) wide_pack_narrow(const __grid_constant__ wide_pack_args a) {
    const int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (thread / 32 >= a.tiles) return;
    const int64_t of_block = thread / (WIDE_LINES * WIDE_TALL);
    const int at = (int)(thread % (WIDE_LINES * WIDE_TALL)), across = a.backward ? WIDE_TALL : WIDE_LINES;
    const int line = a.backward ? at / across : at % across, of_m = a.backward ? at % across : at / across;
    const int k = ((int)(of_block / a.blocks) * WIDE_LINES + line) * 8, m = (int)(of_block % a.blocks) * WIDE_TALL + of_m;
    const float scale = a.largest ? persist_scale(persist_largest(persist_ask_largest(a.largest, (int)threadIdx.x % 32))) : 0.0f;
    const auto bits = [&](int i) {
        const float x = wide_weight(a, m, k + i);
        return a.largest ? persist_scaled_or_nan(x, scale) : step_bits16(a.math, x);
    };
    uint32_t two[4];
#pragma unroll
    for (int i = 0; i < 4; i++) two[i] = bits(2 * i) | bits(2 * i + 1) << 16;
    unsigned char *const to = a.to + ((of_block * WIDE_LINES + line) * WIDE_TALL + of_m) * 16;
    *reinterpret_cast<uint4 *>(to) = make_uint4(two[0], two[1], two[2], two[3]);
}

void sli_step_wide_pack(const step_way *way, const sli_step_wide *w, char *to, bool backward) {
    wide_pack_args a = {};
    a.to = (unsigned char *)to;
    a.r = way->param[SLI_RNN_RECURRENT];
    a.r_math = way->s.narrow_parameters ? (int)way->call->problem.dtype : (int)SL_F32;
    a.GH = (int)way->s.GH;
    a.H = (int)way->s.H;
    a.O = (int)way->s.O;
    a.blocks = w->blocks;
    a.units = w->units;
    a.math = (int)way->call->problem.dtype;
    a.backward = backward;
    if (w->scaled) {
        float *largest = (float *)(way->weights + way->packed.wide_largest);
        sli_persist_measure(way, (const float *)a.r, way->s.GH * way->s.O, largest);
        a.largest = largest;
    }
    a.tiles = (int64_t)(sli_step_wide_bytes(w) / (w->narrow ? 32 * 16 : WIDE_PAIR));
    const sli_step_grid grid = {step_blocks_of(a.tiles, STEP_THREADS / 32), 1, STEP_THREADS, 1};
    sli_step_launch(way, w->narrow ? wide_pack_narrow : wide_pack, &grid, &a, false, "launch of packed recurrent weights");
}
