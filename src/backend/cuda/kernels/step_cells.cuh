/* cuda:step: the cells, of one unit of one row, or of V of them, forward and backward. Device code alone, for nvcc and NVRTC. The mathematics is src/cell. */
#ifndef SLI_CUDA_STEP_CELLS_CUH
#define SLI_CUDA_STEP_CELLS_CUH

#include "backend/cuda/kernels/step_memory.cuh"
#include "cell/gru.h"
#include "cell/lstm.h"
#include "cell/rnn.h"

/* Where PLAIN, tanh and sigmoid and no option; else as the launch says, or a kernel that is compiled for it. */
#ifndef STEP_OPTIONS
#define STEP_OPTIONS(k) ((k).options)
#define STEP_ACT(k) ((k).act)
#define STEP_GATE_ACT(k) ((k).gate_act)
#endif
template <bool PLAIN> static __device__ __forceinline__ int step_options(const step_common &k) {
    return PLAIN ? 0 : STEP_OPTIONS(k);
}
template <bool PLAIN> static __device__ __forceinline__ int step_act(const step_common &k) {
    return PLAIN ? (int)CELL_ACT_TANH : STEP_ACT(k);
}
template <bool PLAIN> static __device__ __forceinline__ int step_gate_act(const step_common &k) {
    return PLAIN ? (int)CELL_ACT_SIGMOID : STEP_GATE_ACT(k);
}

template <bool PLAIN>
static __device__ __forceinline__ cell_lstm_args step_lstm_args(const step_common &k, int row, int j, unsigned flags) {
    cell_lstm_args args = {};
    if constexpr (!PLAIN) {
        if (STEP_OPTIONS(k) & CELL_PEEPHOLE) {
            args.peep_i = k.peep[j];
            args.peep_f = k.peep[k.H + j];
            args.peep_o = k.peep[2 * (size_t)k.H + j];
        }
        args.forget_bias = k.forget_bias;
        args.clip = k.clip;
        if ((STEP_OPTIONS(k) & CELL_ZONEOUT_H) && !(STEP_OPTIONS(k) & CELL_PROJECTION))
            args.zone_h = step_zone_weight(k.zone_h, k, row, j, k.H);
        if (STEP_OPTIONS(k) & CELL_ZONEOUT_C) args.zone_c = step_zone_weight(k.zone_c, k, row, j, k.H);
        args.valid = flags & SLI_STEP_VALID ? 1.0f : 0.0f;
    }
    return args;
}

template <bool PLAIN>
static __device__ __forceinline__ cell_gru_args step_gru_args(const step_common &k, int row, int j, unsigned flags) {
    cell_gru_args args = {};
    if constexpr (!PLAIN) {
        if (STEP_OPTIONS(k) & CELL_ZONEOUT_H) args.zone_h = step_zone_weight(k.zone_h, k, row, j, k.H);
        args.valid = flags & SLI_STEP_VALID ? 1.0f : 0.0f;
    }
    return args;
}

template <bool PLAIN>
static __device__ __forceinline__ cell_rnn_args step_rnn_args(const step_common &k, int row, int j, unsigned flags) {
    cell_rnn_args args = {};
    if constexpr (!PLAIN) {
        if (STEP_OPTIONS(k) & CELL_ZONEOUT_H) args.zone_h = step_zone_weight(k.zone_h, k, row, j, k.H);
        args.valid = flags & SLI_STEP_VALID ? 1.0f : 0.0f;
    }
    return args;
}

/* SUMS of a step's cells, where they lie in memory. */
struct step_sums_in_memory {
    template <int G, int V>
    __device__ __forceinline__ void operator()(float (&to)[G][V], const step_sums &from, size_t at, size_t next) const {
        step_load_sums<G, V>(to, from, at, next);
    }
};

/* The cells of V units of one row: z, the input side's part of the gates, becomes the gates; s is R (d h'), c becomes the new c; h and m
 * come out. Stores all but those. */
template <int V, bool PLAIN>
static __device__ __forceinline__ void step_lstm_cells(const step_forward_args &a, int row, int j, unsigned flags,
                                                       float (&z)[4][V], const float (&s)[4][V], float (&c)[V],
                                                       const float (&h_old)[V], float (&h)[V], float (&m)[V]) {
    const int options = step_options<PLAIN>(a.k), act = step_act<PLAIN>(a.k);
    const int gate_act = step_gate_act<PLAIN>(a.k), H = a.k.H;
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
    const int options = step_options<PLAIN>(a.k), act = step_act<PLAIN>(a.k);
    const int gate_act = step_gate_act<PLAIN>(a.k), H = a.k.H;
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

template <int V, bool PLAIN, class WAIT, class SUMS = step_sums_in_memory>
static __device__ __forceinline__ void step_lstm_forward(const step_forward_args &a, int row, int j, const WAIT &wait, const SUMS &sums = {}) {
    const int options = step_options<PLAIN>(a.k), H = a.k.H;
    const size_t at = (size_t)row * a.k.us + j;
    const unsigned flags = step_flags_of(a.k, row);
    float z[4][V], s[4][V], c[V], h_old[V], h[V], m[V];
#pragma unroll
    for (int g = 0; g < 4; g++) step_load<V, true>(z[g], a.u + at + (size_t)g * H);
    step_load<V>(c, a.c_from + (size_t)row * H + j);
    const bool hidden = !PLAIN && a.h_from && !(options & CELL_PROJECTION);
    step_load_or_zero<V>(h_old, hidden ? a.h_from : nullptr, (size_t)row * a.h_from_row + j);
    wait();
    sums(s, a.s, at, (size_t)H);
    step_lstm_cells<V, PLAIN>(a, row, j, flags, z, s, c, h_old, h, m);
    if (!PLAIN && (options & CELL_PROJECTION)) {
        const size_t operand_at = (size_t)row * a.k.ms;
        step_operand<V>(STEP_MATH(a.k), a.operand_m, operand_at + j, m);
        if (j + V >= H) step_operand_tail(STEP_MATH(a.k), step_operand_row(STEP_MATH(a.k), a.operand_m, operand_at), H, a.k.ms);
    } else {
        step_put_h<V>(a, row, j, flags, h);
    }
}

template <int V, bool PLAIN, class WAIT>
static __device__ __forceinline__ void step_lstm_backward(const step_backward_args &a, int row, int j, const WAIT &wait) {
    const int options = step_options<PLAIN>(a.k), act = step_act<PLAIN>(a.k);
    const int gate_act = step_gate_act<PLAIN>(a.k), H = a.k.H;
    const bool project = !PLAIN && (options & CELL_PROJECTION);
    const size_t at = (size_t)row * a.k.us + j, state = (size_t)row * H + j, to = (size_t)row * a.k.zs + j;
    const unsigned flags = step_flags_of(a.k, row);
    float g[4][V], c[V], v[V], dc[V], dh[V], dy[V], pw[V], m[V];
#pragma unroll
    for (int k = 0; k < 4; k++) step_load<V, true>(g[k], a.gates + at + (size_t)k * H);
    step_load<V>(c, a.c_from + state);
    step_load<V>(v, a.v + state);
    step_load_or_zero<V>(dc, a.dc_from, state);
    if (!project) step_dh_early<V>(a, row, j, flags, dh, dy);
    wait();
    if (project)
        step_load<V>(dh, a.dm + (size_t)row * a.k.ms + j);
    else
        step_dh_late<V>(a, row, j, dh, dy);
#pragma unroll
    for (int n = 0; n < V; n++) {
        const cell_lstm_gates gates = {g[0][n], g[1][n], g[2][n], g[3][n]};
        const cell_lstm_backward_result r = cell_lstm_backward(
            options, act, gate_act, gates, v[n], c[n], dh[n], dc[n], step_lstm_args<PLAIN>(a.k, row, j + n, flags));
        if (!PLAIN && a.dpeep) {
            float *peep = a.dpeep + (size_t)row * 3 * H + j + n;
            peep[0] = r.dz.i * c[n];
            peep[H] = r.dz.f * c[n];
            peep[2 * (size_t)H] = r.dz.o * v[n];
        }
        m[n] = project ? gates.o * cell_act(act, v[n]) : 0.0f;
        g[0][n] = r.dz.i;
        g[1][n] = r.dz.f;
        g[2][n] = r.dz.g;
        g[3][n] = r.dz.o;
        dc[n] = r.dc_prev;
        pw[n] = r.dh_prev;
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        step_operand<V, true>(STEP_MATH(a.k), a.dz, to + (size_t)k * H, g[k]);
        step_put_wide<V>(STEP_MATH(a.k), a.wide, row, k * H + j, g[k]);
    }
    if (j + V >= H)
        step_operand_tail(STEP_MATH(a.k), step_operand_row(STEP_MATH(a.k), a.dz, (size_t)row * a.k.zs), 4 * (int64_t)H, a.k.zs);
    step_store<V>(a.dc_to + state, dc);
    if (!PLAIN && !project && a.pw_to) step_store<V>(a.pw_to + state, pw);
    if (project) {
        const size_t operand_at = (size_t)row * a.k.ms;
        step_operand<V>(STEP_MATH(a.k), a.operand_m, operand_at + j, m);
        if (j + V >= H) step_operand_tail(STEP_MATH(a.k), step_operand_row(STEP_MATH(a.k), a.operand_m, operand_at), H, a.k.ms);
    }
}

template <int V, bool PLAIN, class WAIT, class SUMS = step_sums_in_memory>
static __device__ __forceinline__ void step_gru_forward(const step_forward_args &a, int row, int j, const WAIT &wait, const SUMS &sums = {}) {
    const int H = a.k.H;
    const bool before = step_options<PLAIN>(a.k) & CELL_RESET_BEFORE;
    float bias[V];
    step_load_or_zero<V>(bias, a.bias_n, (size_t)j);
    const size_t at = (size_t)row * a.k.us + j;
    const unsigned flags = step_flags_of(a.k, row);
    float u[3][V], s[3][V], h_old[V], h[V];
    if (!before) step_load<V, true>(u[0], a.u + at);
    step_load<V, true>(u[1], a.u + at + H);
    step_load<V, true>(u[2], a.u + at + 2 * (size_t)H);
    step_load<V>(h_old, a.h_from + (size_t)row * a.h_from_row + j);
    wait();
    if (before) step_load<V>(u[0], a.u + at); /* r, from the launch before the product */
    sums(s, a.s, at, (size_t)H);
    step_gru_cells<V, PLAIN>(a, row, j, flags, u, s, bias, h_old, h);
    step_put_h<V>(a, row, j, flags, h);
}

/* Reset after: everything. Reset before: z and n; r follows when e = R_n^T ds_n is there. */
template <int V, bool PLAIN, class WAIT>
static __device__ __forceinline__ void step_gru_backward(const step_backward_args &a, int row, int j, const WAIT &wait) {
    const int options = step_options<PLAIN>(a.k), act = step_act<PLAIN>(a.k);
    const int gate_act = step_gate_act<PLAIN>(a.k), H = a.k.H;
    const bool before = !PLAIN && (options & CELL_RESET_BEFORE);
    const size_t at = (size_t)row * a.k.us + j, state = (size_t)row * H + j, to = (size_t)row * a.k.zs;
    const unsigned flags = step_flags_of(a.k, row);
    float g[3][V], sn[V], h[V], dh[V], dy[V], ds[V];
#pragma unroll
    for (int k = 0; k < 3; k++) step_load<V, true>(g[k], a.gates + at + (size_t)k * H);
    step_load_or_zero<V>(sn, a.sn, state);
    step_load<V>(h, a.h_from + (size_t)row * a.h_from_row + j);
    step_dh_early<V>(a, row, j, flags, dh, dy);
    wait();
    step_dh_late<V>(a, row, j, dh, dy);
#pragma unroll
    for (int n = 0; n < V; n++) {
        const cell_gru_gates gates = {g[0][n], g[1][n], g[2][n]};
        const cell_gru_backward_result r = cell_gru_backward(options, act, gate_act, gates, sn[n], h[n], dh[n],
                                                             step_gru_args<PLAIN>(a.k, row, j + n, flags));
        g[0][n] = r.dz.r;
        g[1][n] = r.dz.z;
        g[2][n] = r.dz.n;
        ds[n] = r.ds_n;
        dh[n] = r.dh_prev;
    }
    step_store<V>(a.pw_to + state, dh);
#pragma unroll
    for (int k = 0; k < 3; k++) {
        if (k == 0 && before) continue;
        step_operand<V, true>(STEP_MATH(a.k), a.dz, to + (size_t)k * H + j, g[k]);
        if (a.dr) step_operand<V, true>(STEP_MATH(a.k), a.dr, to + (size_t)k * H + j, k == 2 ? ds : g[k]);
        step_put_wide<V>(STEP_MATH(a.k), a.wide, row, k * H + j, k == 2 ? ds : g[k]);
    }
    if (j + V >= H) {
        step_operand_tail(STEP_MATH(a.k), step_operand_row(STEP_MATH(a.k), a.dz, to), 3 * (int64_t)H, a.k.zs);
        if (a.dr) step_operand_tail(STEP_MATH(a.k), step_operand_row(STEP_MATH(a.k), a.dr, to), 3 * (int64_t)H, a.k.zs);
    }
}

template <int V, bool PLAIN, class WAIT, class SUMS = step_sums_in_memory>
static __device__ __forceinline__ void step_rnn_forward(const step_forward_args &a, int row, int j, const WAIT &wait, const SUMS &sums = {}) {
    const int options = step_options<PLAIN>(a.k), act = step_act<PLAIN>(a.k);
    const size_t at = (size_t)row * a.k.us + j;
    const unsigned flags = step_flags_of(a.k, row);
    float u[V], s[1][V], h_old[V], h[V];
    step_load<V>(u, a.u + at);
    step_load_or_zero<V>(h_old, PLAIN ? nullptr : a.h_from, (size_t)row * a.h_from_row + j);
    wait();
    sums(s, a.s, at, 0);
#pragma unroll
    for (int n = 0; n < V; n++) {
        const cell_rnn_forward_result r =
            cell_rnn_forward(options, act, u[n] + s[0][n], h_old[n], step_rnn_args<PLAIN>(a.k, row, j + n, flags));
        u[n] = r.q;
        h[n] = r.h;
    }
    if (a.keeps) step_store<V>(a.u + at, u);
    step_put_h<V>(a, row, j, flags, h);
}

template <int V, bool PLAIN, class WAIT>
static __device__ __forceinline__ void step_rnn_backward(const step_backward_args &a, int row, int j, const WAIT &wait) {
    const int options = step_options<PLAIN>(a.k), act = step_act<PLAIN>(a.k);
    const size_t at = (size_t)row * a.k.us + j, to = (size_t)row * a.k.zs;
    const unsigned flags = step_flags_of(a.k, row);
    float q[V], dh[V], dy[V], dz[V];
    step_load<V>(q, a.gates + at);
    step_dh_early<V>(a, row, j, flags, dh, dy);
    wait();
    step_dh_late<V>(a, row, j, dh, dy);
#pragma unroll
    for (int n = 0; n < V; n++) {
        const cell_rnn_backward_result r =
            cell_rnn_backward(options, act, q[n], dh[n], step_rnn_args<PLAIN>(a.k, row, j + n, flags));
        dz[n] = r.dz;
        dh[n] = r.dh_prev;
    }
    step_operand<V>(STEP_MATH(a.k), a.dz, to + j, dz);
    step_put_wide<V>(STEP_MATH(a.k), a.wide, row, j, dz);
    if (!PLAIN && a.pw_to) step_store<V>(a.pw_to + (size_t)row * a.k.H + j, dh);
    if (j + V >= a.k.H) step_operand_tail(STEP_MATH(a.k), step_operand_row(STEP_MATH(a.k), a.dz, to), a.k.H, a.k.zs);
}

#endif
