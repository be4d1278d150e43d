/* cuda:step, fused backward steps: dp = dr R of the step after in time of processing forward, and the cell's gradient, in one
 * launch; and the last product of a chunk alone, by the same code. A block has UNITS units; B of the product is R's columns
 * of these units. Lane l / 4 has the two units 2 (l / 4) and the next of a row of R, one for each of two instructions. */
#include "backend/cuda/kernels/step_fused.cuh"

enum { UNITS = SLI_STEP_FUSED_BACKWARD_UNITS, WARPS = UNITS * FUSED_ROWS / 32 };

typedef struct fused_backward_args {
    step_backward_args step;
    const void
        *dr; /* operand [B][zs] of the step that was processed before; NULL: step.dp has the product, or is NULL */
    const void *r; /* operand [zs or G H][hs] */
    float *dp_to;  /* = [B][hs]: the product alone; NULL: a step */
    int count;     /* G H */
} fused_backward_args;

/* ------------------------------------------------------------------------------------------------------ product --
 * sums[row][unit] = the warp's part of dr R. */
template <int MATH> struct fused_backward_product {
    uint4 w[FUSED_PIECES][2]; /* even and odd units, four registers of consecutive k */

    /* Rows of R from `k` on, zeros from f.count on; `at`: the even unit. */
    __device__ __forceinline__ void load(const fused_backward_args &f, int first) {
        const int lane = threadIdx.x & 31, hs = (int)f.step.k.hs;
        const int at = min((int)blockIdx.x * UNITS + 2 * (lane >> 2), hs - 2);
#pragma unroll
        for (int p = 0; p < FUSED_PIECES; p++) {
            uint32_t even[4], odd[4];
            if constexpr (MATH == FUSED_TF32) {
                const int k = (first + p * WARPS) * 16 + (lane & 3) * 4;
                const float *r = static_cast<const float *>(f.r) + (size_t)k * hs + at;
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    uint2 two = make_uint2(0, 0);
                    if (k + e < f.count) two = __ldcg(reinterpret_cast<const uint2 *>(r + (size_t)e * hs));
                    even[e] = two.x;
                    odd[e] = two.y;
                }
            } else {
                const int k = (first + p * WARPS) * 32 + (lane & 3) * 8;
                const uint16_t *r = static_cast<const uint16_t *>(f.r) + (size_t)k * hs + at;
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    uint32_t one = 0, two = 0;
                    if (k + 2 * e < f.count)
                        one = __ldcg(reinterpret_cast<const unsigned int *>(r + (size_t)(2 * e) * hs));
                    if (k + 2 * e + 1 < f.count)
                        two = __ldcg(reinterpret_cast<const unsigned int *>(r + (size_t)(2 * e + 1) * hs));
                    even[e] = (one & 0xffffu) | two << 16;
                    odd[e] = one >> 16 | (two & 0xffff0000u);
                }
            }
            w[p][0] = make_uint4(even[0], even[1], even[2], even[3]);
            w[p][1] = make_uint4(odd[0], odd[1], odd[2], odd[3]);
        }
    }

    __device__ __forceinline__ void run(const fused_backward_args &f, const fused_rows &rows, int pieces,
                                        float (&sums)[FUSED_ROWS][UNITS]) {
        const int lane = threadIdx.x & 31;
        float d[2][FUSED_TILES][4] = {};
        for (int first = threadIdx.x >> 5; first < pieces; first += FUSED_PIECES * WARPS) {
            uint4 a[FUSED_PIECES][FUSED_TILES][2];
#pragma unroll
            for (int p = 0; p < FUSED_PIECES; p++) fused_load_rows<MATH>(rows, first + p * WARPS, a[p]);
            if (first >= FUSED_PIECES * WARPS) load(f, first);
#pragma unroll
            for (int p = 0; p < FUSED_PIECES; p++) {
                fused_round<MATH>(a[p]);
#pragma unroll
                for (int odd = 0; odd < 2; odd++) {
                    fused_round<MATH>(w[p][odd]);
                    fused_mma<MATH>(f.step.k.math == SL_F16, d[odd], a[p], w[p][odd], rows.count);
                }
            }
        }
#pragma unroll
        for (int tile = 0; tile < FUSED_TILES; tile++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                *reinterpret_cast<float4 *>(&sums[tile * 16 + half * 8 + (lane >> 2)][4 * (lane & 3)]) = make_float4(
                    d[0][tile][2 * half], d[1][tile][2 * half], d[0][tile][2 * half + 1], d[1][tile][2 * half + 1]);
    }
};

/* -------------------------------------------------------------------------------------------------------- cells --
 * One unit of one row: what forward left, the end with dp. */
template <int GATES>
static __device__ __forceinline__ void put_gradients(const step_backward_args &a, void *to, int row, int j,
                                                     const float (&dz)[GATES]) {
#pragma unroll
    for (int g = 0; g < GATES; g++) {
        const float one[1] = {dz[g]};
        step_operand<1>(a.k.math, to, (size_t)row * a.k.zs + (size_t)g * a.k.H + j, one);
    }
    if (j + 1 == a.k.H)
        step_operand_tail(a.k.math, step_operand_row(a.k.math, to, (size_t)row * a.k.zs), (int64_t)GATES * a.k.H,
                          a.k.zs);
}

template <bool PLAIN> struct fused_lstm_backward {
    float g[4], c, v;

    __device__ __forceinline__ void early(const step_backward_args &a, int row, int j) {
        const size_t state = (size_t)row * a.k.H + j;
#pragma unroll
        for (int k = 0; k < 4; k++) g[k] = a.gates[(size_t)row * a.k.us + (size_t)k * a.k.H + j];
        c = a.c_from[state];
        v = a.v[state];
    }

    __device__ __forceinline__ void finish(const step_backward_args &a, int row, int j, unsigned flags, float dh,
                                           float dc) {
        const int options = step_options<PLAIN>(a.k), act = step_act<PLAIN>(a.k);
        const int gate_act = step_gate_act<PLAIN>(a.k), H = a.k.H;
        const size_t state = (size_t)row * H + j;
        const cell_lstm_gates gates = {g[0], g[1], g[2], g[3]};
        const cell_lstm_backward_result r =
            cell_lstm_backward(options, act, gate_act, gates, v, c, dh, dc, step_lstm_args<PLAIN>(a.k, row, j, flags));
        const float dz[4] = {r.dz.i, r.dz.f, r.dz.g, r.dz.o};
        put_gradients(a, a.dz, row, j, dz);
        a.dc_to[state] = r.dc_prev;
        if (!PLAIN && a.pw_to) a.pw_to[state] = r.dh_prev;
        if (!PLAIN && a.dpeep) {
            float *peep = a.dpeep + (size_t)row * 3 * H + j;
            peep[0] = r.dz.i * c;
            peep[H] = r.dz.f * c;
            peep[2 * (size_t)H] = r.dz.o * v;
        }
    }
};

template <bool PLAIN> struct fused_gru_backward {
    float g[3], sn, h;

    __device__ __forceinline__ void early(const step_backward_args &a, int row, int j) {
#pragma unroll
        for (int k = 0; k < 3; k++) g[k] = a.gates[(size_t)row * a.k.us + (size_t)k * a.k.H + j];
        sn = a.sn[(size_t)row * a.k.H + j];
        h = a.h_from[(size_t)row * a.h_from_row + j];
    }

    __device__ __forceinline__ void finish(const step_backward_args &a, int row, int j, unsigned flags, float dh,
                                           float dc) {
        (void)dc;
        const int options = step_options<PLAIN>(a.k), act = step_act<PLAIN>(a.k);
        const int gate_act = step_gate_act<PLAIN>(a.k), H = a.k.H;
        const size_t state = (size_t)row * H + j;
        const cell_gru_gates gates = {g[0], g[1], g[2]};
        const cell_gru_backward_result r =
            cell_gru_backward(options, act, gate_act, gates, sn, h, dh, step_gru_args<PLAIN>(a.k, row, j, flags));
        const float dz[3] = {r.dz.r, r.dz.z, r.dz.n}, dr[3] = {r.dz.r, r.dz.z, r.ds_n};
        put_gradients(a, a.dr, row, j, dr);
        put_gradients(a, a.dz, row, j, dz);
        a.pw_to[state] = r.dh_prev;
    }
};

template <bool PLAIN> struct fused_rnn_backward {
    float q;

    __device__ __forceinline__ void early(const step_backward_args &a, int row, int j) {
        q = a.gates[(size_t)row * a.k.us + j];
    }

    __device__ __forceinline__ void finish(const step_backward_args &a, int row, int j, unsigned flags, float dh,
                                           float dc) {
        (void)dc;
        const int options = step_options<PLAIN>(a.k), act = step_act<PLAIN>(a.k);
        const cell_rnn_backward_result r =
            cell_rnn_backward(options, act, q, dh, step_rnn_args<PLAIN>(a.k, row, j, flags));
        const float dz[1] = {r.dz};
        put_gradients(a, a.dz, row, j, dz);
        if (!PLAIN && a.pw_to) a.pw_to[(size_t)row * a.k.H + j] = r.dh_prev;
    }
};

/* ------------------------------------------------------------------------------------------------------- kernel -- */
template <int MATH, class CELL>
static __global__ void __launch_bounds__(UNITS *FUSED_ROWS)
    fused_backward(const __grid_constant__ fused_backward_args f) {
    __shared__ __align__(16) float sums[WARPS][FUSED_ROWS][UNITS];
    step_let_next_in();
    const step_backward_args &a = f.step;
    const int first_row = (int)blockIdx.y * FUSED_ROWS, here = (int)threadIdx.x / UNITS;
    const int row = first_row + here, unit = (int)threadIdx.x % UNITS, j = (int)blockIdx.x * UNITS + unit;
    const int pieces = (f.count + fused_piece<MATH>() - 1) / fused_piece<MATH>();
    const bool mine = row < a.k.B && j < a.k.H, step = mine && !f.dp_to;
    const size_t state = (size_t)row * a.k.H + j;
    fused_backward_product<MATH> product;
    CELL cell = {};
    unsigned flags = 0;
    float dy = 0.0f, pw = 0.0f, dc = 0.0f, dp = 0.0f;
    if (f.dr) product.load(f, (int)threadIdx.x >> 5);
    if (step) {
        flags = step_flags_of(a.k, row);
        cell.early(a, row, j);
        float shown[1];
        step_load_io<1>(shown, a.k, flags & SLI_STEP_SHOWN ? a.dy : nullptr, (size_t)row * a.dy_row + j);
        dy = shown[0];
    }
    step_wait();
    if (step) {
        if (a.pw_from) pw = a.pw_from[state];
        if (a.dc_from) dc = a.dc_from[state];
        if (a.dp.data && !f.dr) dp = a.dp.data[(size_t)row * a.k.hs + j];
    }
    if (f.dr) {
        const fused_rows rows = {f.dr, a.k.zs, first_row, min(a.k.B - first_row, (int)FUSED_ROWS), f.count};
        product.run(f, rows, pieces, sums[threadIdx.x >> 5]);
        __syncthreads();
#pragma unroll
        for (int warp = 0; warp < WARPS; warp++) dp += sums[warp][here][unit];
    }
    if (!mine) return;
    if (f.dp_to)
        f.dp_to[(size_t)row * a.k.hs + j] = dp;
    else
        cell.finish(a, row, j, flags, step_join(pw, a.k.factor, state, dp) + dy, dc);
}

typedef void (*backward_kernel)(fused_backward_args);

template <int MATH> static backward_kernel kernel_of(const sli_step_shape *s, bool plain) {
    if (s->lstm)
        return plain ? fused_backward<MATH, fused_lstm_backward<true>>
                     : fused_backward<MATH, fused_lstm_backward<false>>;
    if (s->gru)
        return plain ? fused_backward<MATH, fused_gru_backward<true>> : fused_backward<MATH, fused_gru_backward<false>>;
    return plain ? fused_backward<MATH, fused_rnn_backward<true>> : fused_backward<MATH, fused_rnn_backward<false>>;
}

void sli_step_fused_backward(const step_way *way, const step_backward_args *args, const void *dr, float *dp_to,
                             bool dependent) {
    fused_backward_args f = {};
    f.step = *args;
    f.dr = dr;
    f.r = sli_step_recurrent(way);
    f.dp_to = dp_to;
    f.count = (int)way->s.GH;
    const sli_step_grid grid = fused_grid(way, UNITS);
    const bool plain = step_plain(&args->k) && (way->s.gru || !args->pw_to);
    const backward_kernel kernel =
        args->k.math == SL_TF32 ? kernel_of<FUSED_TF32>(&way->s, plain) : kernel_of<FUSED_NARROW>(&way->s, plain);
    sli_step_launch(way, kernel, &grid, &f, dependent, "launch of a fused step's gradient");
}
