/* cuda:step, fused forward steps: u, the gates' sums over W x + b, plus R (d h') and the cell in one launch. A block has
 * UNITS units; B of the product is R's rows of these units, a gate at a time. */
#include "backend/cuda/kernels/step_fused.cuh"

enum { UNITS = SLI_STEP_FUSED_FORWARD_UNITS, WARPS = UNITS * FUSED_ROWS / 32 };

typedef struct fused_forward_args {
    step_forward_args step;
    const void *h; /* operand [B][hs] d h' */
    const void *r; /* operand [G H][hs] */
} fused_forward_args;

/* ------------------------------------------------------------------------------------------------------ product --
 * sums[gate][row][unit] = the warp's part of R (d h'). Units beyond H compute the last one again; nobody reads them. */
template <int MATH, int GATES> struct fused_forward_product {
    uint4 w[FUSED_PIECES][GATES];

    __device__ __forceinline__ void load(const fused_forward_args &f, int first) {
        constexpr int bytes = MATH == FUSED_NARROW ? 2 : 4;
        const step_common &c = f.step.k;
        const int lane = threadIdx.x & 31, unit = min((int)blockIdx.x * UNITS + (lane >> 2), c.H - 1);
#pragma unroll
        for (int p = 0; p < FUSED_PIECES; p++) {
            const int k = (first + p * WARPS) * fused_piece<MATH>() + (lane & 3) * (16 / bytes);
#pragma unroll
            for (int g = 0; g < GATES; g++) {
                w[p][g] = make_uint4(0, 0, 0, 0);
                if (k < c.hs) w[p][g] = fused_load16(f.r, (((size_t)g * c.H + unit) * c.hs + k) * bytes);
            }
        }
    }

    __device__ __forceinline__ void run(const fused_forward_args &f, const fused_rows &rows, int pieces,
                                        float (&sums)[GATES][FUSED_ROWS][UNITS]) {
        const int lane = threadIdx.x & 31;
        float d[GATES][FUSED_TILES][4] = {};
        for (int first = threadIdx.x >> 5; first < pieces; first += FUSED_PIECES * WARPS) {
            uint4 a[FUSED_PIECES][FUSED_TILES][2];
#pragma unroll
            for (int p = 0; p < FUSED_PIECES; p++) fused_load_rows<MATH>(rows, first + p * WARPS, a[p]);
            if (first >= FUSED_PIECES * WARPS) load(f, first);
#pragma unroll
            for (int p = 0; p < FUSED_PIECES; p++) {
                fused_round<MATH>(a[p]);
#pragma unroll
                for (int g = 0; g < GATES; g++) {
                    fused_round<MATH>(w[p][g]);
                    fused_mma<MATH>(f.step.k.math == SL_F16, d[g], a[p], w[p][g], rows.count);
                }
            }
        }
#pragma unroll
        for (int g = 0; g < GATES; g++)
#pragma unroll
            for (int tile = 0; tile < FUSED_TILES; tile++) {
                const int row = tile * 16 + (lane >> 2), unit = 2 * (lane & 3);
                *reinterpret_cast<float2 *>(&sums[g][row][unit]) = make_float2(d[g][tile][0], d[g][tile][1]);
                *reinterpret_cast<float2 *>(&sums[g][row + 8][unit]) = make_float2(d[g][tile][2], d[g][tile][3]);
            }
    }
};

/* -------------------------------------------------------------------------------------------------------- cells --
 * One unit of one row: what may be loaded early, what the step before wrote, the end. */
template <bool PLAIN> struct fused_lstm_forward {
    enum { GATES = 4 };
    float u[4], c, h;
    unsigned flags;

    __device__ __forceinline__ void early(const step_forward_args &a, int row, int j) {
        flags = step_flags_of(a.k, row);
#pragma unroll
        for (int g = 0; g < 4; g++) u[g] = a.u[(size_t)row * a.k.us + (size_t)g * a.k.H + j];
    }

    __device__ __forceinline__ void late(const step_forward_args &a, int row, int j) {
        c = a.c_from[(size_t)row * a.k.H + j];
        h = !PLAIN && a.h_from ? a.h_from[(size_t)row * a.h_from_row + j] : 0.0f;
    }

    __device__ __forceinline__ void finish(const step_forward_args &a, int row, int j, const float (&s)[4]) {
        const int options = step_options<PLAIN>(a.k), act = step_act<PLAIN>(a.k);
        const int gate_act = step_gate_act<PLAIN>(a.k);
        const size_t state = (size_t)row * a.k.H + j;
        float *gates = a.u + (size_t)row * a.k.us + j;
        const cell_lstm_gates in = {u[0] + s[0], u[1] + s[1], u[2] + s[2], u[3] + s[3]};
        const cell_lstm_forward_result r =
            cell_lstm_forward(options, act, gate_act, in, c, h, step_lstm_args<PLAIN>(a.k, row, j, flags));
        const float out[1] = {r.h};
        step_put_h<1>(a, row, j, flags, out);
        a.c_to[state] = r.c;
        if (a.c_last) a.c_last[state] = r.c;
        gates[0] = r.gates.i;
        gates[a.k.H] = r.gates.f;
        gates[2 * (size_t)a.k.H] = r.gates.g;
        gates[3 * (size_t)a.k.H] = r.gates.o;
        if (!PLAIN && a.v) a.v[state] = r.v;
    }
};

template <bool PLAIN> struct fused_gru_forward {
    enum { GATES = 3 };
    float u[3], bias, h;
    unsigned flags;

    __device__ __forceinline__ void early(const step_forward_args &a, int row, int j) {
        flags = step_flags_of(a.k, row);
        bias = a.bias_n ? a.bias_n[j] : 0.0f;
#pragma unroll
        for (int g = 0; g < 3; g++) u[g] = a.u[(size_t)row * a.k.us + (size_t)g * a.k.H + j];
    }

    __device__ __forceinline__ void late(const step_forward_args &a, int row, int j) {
        h = a.h_from[(size_t)row * a.h_from_row + j];
    }

    __device__ __forceinline__ void finish(const step_forward_args &a, int row, int j, const float (&s)[3]) {
        const int options = step_options<PLAIN>(a.k), act = step_act<PLAIN>(a.k);
        const int gate_act = step_gate_act<PLAIN>(a.k);
        float *gates = a.u + (size_t)row * a.k.us + j;
        const float s_n = s[2] + bias;
        const cell_gru_pre pre = {u[0] + s[0], u[1] + s[1], u[2], s_n};
        const cell_gru_forward_result r =
            cell_gru_forward(options, act, gate_act, pre, h, step_gru_args<PLAIN>(a.k, row, j, flags));
        const float out[1] = {r.h};
        step_put_h<1>(a, row, j, flags, out);
        gates[0] = r.gates.r;
        gates[a.k.H] = r.gates.z;
        gates[2 * (size_t)a.k.H] = r.gates.n;
        if (a.sn) a.sn[(size_t)row * a.k.H + j] = s_n;
    }
};

template <bool PLAIN> struct fused_rnn_forward {
    enum { GATES = 1 };
    float u, h;
    unsigned flags;

    __device__ __forceinline__ void early(const step_forward_args &a, int row, int j) {
        flags = step_flags_of(a.k, row);
        u = a.u[(size_t)row * a.k.us + j];
    }

    __device__ __forceinline__ void late(const step_forward_args &a, int row, int j) {
        h = !PLAIN && a.h_from ? a.h_from[(size_t)row * a.h_from_row + j] : 0.0f;
    }

    __device__ __forceinline__ void finish(const step_forward_args &a, int row, int j, const float (&s)[1]) {
        const int options = step_options<PLAIN>(a.k), act = step_act<PLAIN>(a.k);
        const cell_rnn_forward_result r =
            cell_rnn_forward(options, act, u + s[0], h, step_rnn_args<PLAIN>(a.k, row, j, flags));
        const float out[1] = {r.h};
        step_put_h<1>(a, row, j, flags, out);
        a.u[(size_t)row * a.k.us + j] = r.q;
    }
};

/* ------------------------------------------------------------------------------------------------------- kernel -- */
template <int MATH, class CELL>
static __global__ void __launch_bounds__(UNITS *FUSED_ROWS)
    fused_forward(const __grid_constant__ fused_forward_args f) {
    constexpr int GATES = CELL::GATES;
    __shared__ __align__(16) float sums[WARPS][GATES][FUSED_ROWS][UNITS];
    step_let_next_in();
    const step_forward_args &a = f.step;
    const int first_row = (int)blockIdx.y * FUSED_ROWS, here = (int)threadIdx.x / UNITS;
    const int row = first_row + here, unit = (int)threadIdx.x % UNITS, j = (int)blockIdx.x * UNITS + unit;
    const int pieces = ((int)a.k.hs + fused_piece<MATH>() - 1) / fused_piece<MATH>();
    const bool mine = row < a.k.B && j < a.k.H;
    fused_forward_product<MATH, GATES> product;
    CELL cell;
    product.load(f, (int)threadIdx.x >> 5);
    if (mine) cell.early(a, row, j);
    step_wait();
    if (mine) cell.late(a, row, j);
    const fused_rows rows = {f.h, a.k.hs, first_row, min(a.k.B - first_row, (int)FUSED_ROWS), (int)a.k.hs};
    product.run(f, rows, pieces, sums[threadIdx.x >> 5]);
    __syncthreads();
    if (!mine) return;
    float s[GATES] = {};
#pragma unroll
    for (int warp = 0; warp < WARPS; warp++)
#pragma unroll
        for (int g = 0; g < GATES; g++) s[g] += sums[warp][g][here][unit];
    cell.finish(a, row, j, s);
}

typedef void (*forward_kernel)(fused_forward_args);

template <int MATH> static forward_kernel kernel_of(const sli_step_shape *s, bool plain) {
    if (s->lstm)
        return plain ? fused_forward<MATH, fused_lstm_forward<true>> : fused_forward<MATH, fused_lstm_forward<false>>;
    if (s->gru)
        return plain ? fused_forward<MATH, fused_gru_forward<true>> : fused_forward<MATH, fused_gru_forward<false>>;
    return plain ? fused_forward<MATH, fused_rnn_forward<true>> : fused_forward<MATH, fused_rnn_forward<false>>;
}

void sli_step_fused_forward(const step_way *way, const step_forward_args *args, const void *h, bool dependent) {
    fused_forward_args f = {};
    f.step = *args;
    f.h = h;
    f.r = sli_step_recurrent(way);
    const sli_step_grid grid = fused_grid(way, UNITS);
    const bool plain = step_plain(&args->k) && (way->s.gru || !args->h_to);
    const forward_kernel kernel =
        args->k.math == SL_TF32 ? kernel_of<FUSED_TF32>(&way->s, plain) : kernel_of<FUSED_NARROW>(&way->s, plain);
    sli_step_launch(way, kernel, &grid, &f, dependent, "launch of a fused step");
}
