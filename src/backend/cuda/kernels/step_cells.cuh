/* cuda:step: what the cells are given beside pre-activations, of one unit of one row. */
#ifndef SLI_CUDA_STEP_CELLS_CUH
#define SLI_CUDA_STEP_CELLS_CUH

#include "backend/cuda/kernels/step_device.cuh"

/* What wide steps read lies by rows of the batch, then by four units: blocks are of few units and many rows, so that lanes fill what they write (with
 * a row a warp training of LSTM of 4096 units and 128 rows took 4% longer, with 2 and 8 threads across 3 and 1%: wide_h100_2026-11-26.txt). */
static inline sli_step_grid step_cells_grid(const step_way *way, int vector) {
    enum { ACROSS = 4 };
    sli_step_grid grid = sli_step_grid_of(way->s.H, way->s.B, vector);
    if (way->wide.rows == 0 || grid.bx <= ACROSS) return grid;
    grid.gx *= grid.bx / ACROSS;
    grid.by *= grid.bx / ACROSS;
    grid.bx = ACROSS;
    const unsigned high = step_blocks_of(way->s.B, grid.by);
    if (high < grid.gy) grid.gy = high; /* else as many as a grid may have */
    return grid;
}

/* tanh and sigmoid, no option. */
static inline bool step_plain(const step_common *k) {
    return k->options == 0 && k->act == CELL_ACT_TANH && k->gate_act == CELL_ACT_SIGMOID && !k->flags && !k->factor;
}

template <bool PLAIN>
static __device__ __forceinline__ cell_lstm_args step_lstm_args(const step_common &k, int row, int j, unsigned flags) {
    cell_lstm_args args = {};
    if constexpr (!PLAIN) {
        if (k.options & CELL_PEEPHOLE) {
            args.peep_i = k.peep[j];
            args.peep_f = k.peep[k.H + j];
            args.peep_o = k.peep[2 * (size_t)k.H + j];
        }
        args.forget_bias = k.forget_bias;
        args.clip = k.clip;
        if ((k.options & CELL_ZONEOUT_H) && !(k.options & CELL_PROJECTION))
            args.zone_h = step_zone_weight(k.zone_h, k, row, j, k.H);
        if (k.options & CELL_ZONEOUT_C) args.zone_c = step_zone_weight(k.zone_c, k, row, j, k.H);
        args.valid = flags & SLI_STEP_VALID ? 1.0f : 0.0f;
    }
    return args;
}

template <bool PLAIN>
static __device__ __forceinline__ cell_gru_args step_gru_args(const step_common &k, int row, int j, unsigned flags) {
    cell_gru_args args = {};
    if constexpr (!PLAIN) {
        if (k.options & CELL_ZONEOUT_H) args.zone_h = step_zone_weight(k.zone_h, k, row, j, k.H);
        args.valid = flags & SLI_STEP_VALID ? 1.0f : 0.0f;
    }
    return args;
}

template <bool PLAIN>
static __device__ __forceinline__ cell_rnn_args step_rnn_args(const step_common &k, int row, int j, unsigned flags) {
    cell_rnn_args args = {};
    if constexpr (!PLAIN) {
        if (k.options & CELL_ZONEOUT_H) args.zone_h = step_zone_weight(k.zone_h, k, row, j, k.H);
        args.valid = flags & SLI_STEP_VALID ? 1.0f : 0.0f;
    }
    return args;
}

/* The cells of V units of one row: z, the input side's part of the gates, becomes the gates; s is R (d h'), c becomes the new c; h and m
 * come out. Stores all but those. */
template <int V, bool PLAIN>
static __device__ __forceinline__ void step_lstm_cells(const step_forward_args &a, int row, int j, unsigned flags,
                                                       float (&z)[4][V], const float (&s)[4][V], float (&c)[V],
                                                       const float (&h_old)[V], float (&h)[V], float (&m)[V]) {
    const int options = PLAIN ? 0 : a.k.options, act = PLAIN ? (int)CELL_ACT_TANH : a.k.act;
    const int gate_act = PLAIN ? (int)CELL_ACT_SIGMOID : a.k.gate_act, H = a.k.H;
    const size_t at = (size_t)row * a.k.us + j, state = (size_t)row * H + j;
    float v[V];
#pragma unroll
    for (int n = 0; n < V; n++) {
        const cell_lstm_gates in = {z[0][n] + s[0][n], z[1][n] + s[1][n], z[2][n] + s[2][n], z[3][n] + s[3][n]};
        const cell_lstm_forward_result r = cell_lstm_forward(options, act, gate_act, in, c[n], h_old[n],
                                                             step_lstm_args<PLAIN>(a.k, row, j + n, flags));
        z[0][n] = r.gates.i;
        z[1][n] = r.gates.f;
        z[2][n] = r.gates.g;
        z[3][n] = r.gates.o;
        c[n] = r.c;
        h[n] = r.h;
        m[n] = r.m;
        v[n] = r.v;
    }
#pragma unroll
    for (int g = 0; g < 4; g++)
        if (a.keeps) step_store<V, true>(a.u + at + (size_t)g * H, z[g]);
    step_store<V>(a.c_to + state, c);
    if (a.c_last) step_store<V>(a.c_last + state, c);
    if (!PLAIN && a.v) step_store<V>(a.v + state, v);
}

/* As step_lstm_cells; s[2] becomes s_n. `before`: u[0] is r. */
template <int V, bool PLAIN>
static __device__ __forceinline__ void step_gru_cells(const step_forward_args &a, int row, int j, unsigned flags,
                                                      float (&u)[3][V], float (&s)[3][V], const float (&bias)[V],
                                                      const float (&h_old)[V], float (&h)[V]) {
    const int options = PLAIN ? 0 : a.k.options, act = PLAIN ? (int)CELL_ACT_TANH : a.k.act;
    const int gate_act = PLAIN ? (int)CELL_ACT_SIGMOID : a.k.gate_act, H = a.k.H;
    const bool before = !PLAIN && (options & CELL_RESET_BEFORE);
    const size_t at = (size_t)row * a.k.us + j;
#pragma unroll
    for (int n = 0; n < V; n++) {
        s[2][n] += bias[n];
        const cell_gru_pre pre = {before ? u[0][n] : u[0][n] + s[0][n], u[1][n] + s[1][n], u[2][n], s[2][n]};
        const cell_gru_forward_result r =
            cell_gru_forward(options, act, gate_act, pre, h_old[n], step_gru_args<PLAIN>(a.k, row, j + n, flags));
        u[0][n] = r.gates.r;
        u[1][n] = r.gates.z;
        u[2][n] = r.gates.n;
        h[n] = r.h;
    }
#pragma unroll
    for (int g = 0; g < 3; g++)
        if (a.keeps) step_store<V, true>(a.u + at + (size_t)g * H, u[g]);
    if (a.sn) step_store<V>(a.sn + (size_t)row * H + j, s[2]);
}

#endif
