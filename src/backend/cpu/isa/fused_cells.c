/* Cells of cpu:fused: src/cell, a vector of units at a time. The usual cell, in bf16 with short activations, has its activations and
 * no option as constants; all others are one text with everything chosen at run time, options that are off by neutral numbers. */
#include <math.h>
#include "backend/cpu/isa/fused.h"
#include "backend/cpu/isa/isa.h"
#include "backend/cpu/isa/cell_vector.h"
#include "cell/gru.h"
#include "cell/lstm.h"
#include "cell/rnn.h"

enum { USUAL, SHORT, ANY }; /* cells */

static int kind_of(const sli_cell_step *s) {
    if (s->options) return ANY;
    if (s->act == CELL_ACT_TANH && s->gate_act == CELL_ACT_SIGMOID) return USUAL;
    return s->act == CELL_ACT_TANH_SHORT && s->gate_act == CELL_ACT_SIGMOID_SHORT ? SHORT : ANY;
}
/* What the cells but ANY have. */
#define TANH(kind) ((kind) == SHORT ? CELL_ACT_TANH_SHORT : CELL_ACT_TANH)
#define SIGMOID(kind) ((kind) == SHORT ? CELL_ACT_SIGMOID_SHORT : CELL_ACT_SIGMOID)
/* Of gates that a state passes in every step: what a short one errs by would add up, 0.9995 instead of 1 is 0.4 after 2000 steps. */
#define LASTING(gate_act) ((gate_act) == CELL_ACT_SIGMOID_SHORT ? CELL_ACT_SIGMOID : (gate_act))

/* n of VL numbers, the others 0; n is VL but for a row's last vector. */
VF_INLINE vf load(const float *from, int n) {
    return n == VL ? vf_load(from) : vf_load_part(from, n);
}

VF_INLINE void store(float *to, vf v, int n) {
    if (n == VL)
        vf_store(to, v);
    else
        vf_store_part(to, v, n);
}

/* Block k of `blocks` of a row of gates that are kept. They are not read before backward: to write them past the caches leaves those to
 * weights, and memory is not read for what is overwritten. Of f16, the blocks of VL units lie side by side. */
VF_INLINE ptrdiff_t kept_at(const sli_cell_step *s, const int blocks, int at, int k, int u) {
    return at * s->ld_gates + (LANES_16 > 0 && s->gates_half ? blocks * u + k * VL : k * s->units + u);
}

VF_INLINE void keep_gate(const sli_cell_step *s, const int blocks, int at, int k, int u, vf v, int n) {
    const ptrdiff_t i = kept_at(s, blocks, at, k, u);
    if (LANES_16 > 0 && s->gates_half)
        vf_store_f16(s->gates_half + i, v, s->stream);
    else if (STREAMS > 0 && s->stream)
        vf_stream(s->gates + i, v);
    else
        store(s->gates + i, v, n);
}

VF_INLINE vf kept_gate(const sli_cell_step *s, const int blocks, int at, int k, int u, int n) {
    const ptrdiff_t i = kept_at(s, blocks, at, k, u);
    return LANES_16 > 0 && s->gates_half ? vf_load_f16(s->gates_half + i) : load(s->gates + i, n);
}

/* The new h, and its copies: y, and what the next step multiplies. i: row and output in [B][O]. */
VF_INLINE void store_h(const sli_cell_step *s, int row, int u, size_t i, vf h, int n) {
    store(s->h + row * s->ld_h + u, h, n);
    if (s->y) store(s->y + row * s->ld_y + u, h, n);
    if (s->dropped) store(s->dropped + i, load(s->drop + i, n) * h, n);
}

/* The weight of the old value: drawn, or its expectation. */
VF_INLINE vf zone(const float *fresh, float expected, size_t i, int n) {
    vf zone = vf_set(expected);
    if (fresh) zone = 1.0f - load(fresh + i, n);
    return zone;
}

/* i: row and column in dz. */
VF_INLINE void store_dz(const sli_cell_step *s, ptrdiff_t i, vf v, int n) {
    if (LANES_16 > 0 && s->dz_half)
        vf_store_bf16(s->dz_half + i, v, n);
    else
        store(s->dz + i, v, n);
}

VF_INLINE vf gradient_of_h(const sli_cell_step *s, int row, int u, size_t i, int n) {
    vf dh = load(s->dh + i, n);
    if (s->dy) dh += load(s->dy + row * s->ld_dy + u, n);
    return dh;
}

/* Sums of gate k of z, x, b: of b H numbers behind the last gate, of the tiles `gap`. */
VF_INLINE vf sum_of(const sli_cell_step *s, const float *z, const float *x, const float *b, const int k, int n,
                    int gap) {
    return load(z + k * gap, n) + load(x + k * gap, n) + load(b + k * s->units, n);
}

/* --------------------------------------------------------------------------------------------------------- LSTM -- */
VF_INLINE cell_lstm_args lstm_args(const sli_cell_step *s, const float *fresh_h, int u, size_t i, int n) {
    const vf zero = vf_set(0.0f);
    const float *p = s->options & CELL_PEEPHOLE ? s->peephole + u : NULL;
    cell_lstm_args a = {.peep_i = p ? load(p, n) : zero,
                        .peep_f = p ? load(p + s->units, n) : zero,
                        .peep_o = p ? load(p + 2 * s->units, n) : zero,
                        .clip = vf_set(s->options & CELL_CLIP ? s->clip : INFINITY)};
    a.zone_h = zone(fresh_h, s->options & CELL_ZONEOUT_H ? s->zone_h : 0.0f, i, n);
    a.zone_c = zone(s->fresh_c, s->options & CELL_ZONEOUT_C ? s->zone_c : 0.0f, i, n);
    return a;
}
enum { LSTM_OPTIONS = CELL_PEEPHOLE | CELL_CLIP | CELL_ZONEOUT_H | CELL_ZONEOUT_C };

/* z + x + b of the unit's gates, and the gates it leaves. */
VF_INLINE cell_lstm_gates lstm_sums(const sli_cell_step *s, const float *x, int u, const float *z, int n, int gap) {
    const float *b = s->bias + u;
    return (cell_lstm_gates){.i = sum_of(s, z, x, b, 0, n, gap),
                             .f = sum_of(s, z, x, b, 1, n, gap),
                             .g = sum_of(s, z, x, b, 2, n, gap),
                             .o = sum_of(s, z, x, b, 3, n, gap)};
}

VF_INLINE void lstm_keep(const sli_cell_step *s, int at, int u, cell_lstm_gates gates, int n) {
    keep_gate(s, 4, at, 0, u, gates.i, n);
    keep_gate(s, 4, at, 1, u, gates.f, n);
    keep_gate(s, 4, at, 2, u, gates.g, n);
    keep_gate(s, 4, at, 3, u, gates.o, n);
}

VF_INLINE void lstm_cell(const int kind, const sli_cell_step *s, int row, int at, int u, const float *z, const float *x,
                         int n, int gap) {
    const size_t i = (size_t)row * (size_t)s->units + (size_t)u;
    const cell_lstm_forward_result r = cell_lstm_forward(
        LSTM_OPTIONS, s->act, LASTING(s->gate_act), lstm_sums(s, x, u, z, n, gap), load(s->c_prev + i, n),
        load(s->h_prev + row * s->ld_h_prev + u, n), lstm_args(s, s->fresh_h, u, i, n));
    if (s->keep) lstm_keep(s, at, u, r.gates, n);
    if (kind == ANY && s->v) store(s->v + i, r.v, n);
    store(s->c + i, r.c, n);
    store_h(s, row, u, i, r.h, n);
}

/* Without options, all cells of a call in two loops: first c, and o into the tile, then h = o act(c). In one, a processor would wait
 * for act(c) at the end of each vector: it does not look far enough ahead. */
VF_INLINE void lstm_open(const int kind, const sli_cell_step *s, int row, int at, int u, float *z, const float *x,
                         int n, int gap) {
    const size_t i = (size_t)row * (size_t)s->units + (size_t)u;
    const vf zero = vf_set(0.0f);
    const cell_lstm_forward_result cell =
        cell_lstm_forward(0, TANH(kind), LASTING(SIGMOID(kind)), lstm_sums(s, x, u, z, n, gap), load(s->c_prev + i, n),
                          zero, (cell_lstm_args){.clip = zero});
    if (s->keep) lstm_keep(s, at, u, cell.gates, n);
    store(z, cell.gates.o, n);
    store(z + gap, cell.c, n);
    store(s->c + i, cell.c, n);
}

VF_INLINE void lstm_close(const int kind, const sli_cell_step *s, int row, int at, int u, const float *z,
                          const float *x, int n, int gap) {
    (void)at, (void)x;
    const vf h = load(z, n) * cell_act(TANH(kind), load(z + gap, n));
    store_h(s, row, u, (size_t)row * (size_t)s->units + (size_t)u, h, n);
}

VF_INLINE void lstm_cell_back(const int kind, const sli_cell_step *s, int row, int at, int u, int n) {
    const size_t i = (size_t)row * (size_t)s->units + (size_t)u;
    const int H = s->units;
    const ptrdiff_t dz = at * s->ld_dz + u;
    const cell_lstm_gates gates = {kept_gate(s, 4, at, 0, u, n), kept_gate(s, 4, at, 1, u, n),
                                   kept_gate(s, 4, at, 2, u, n), kept_gate(s, 4, at, 3, u, n)};
    const vf c_prev = load(s->c_prev + i, n), dh = gradient_of_h(s, row, u, i, n), dc = load(s->dc + i, n);
    const vf v = load((kind == ANY && s->v ? s->v : s->c) + i, n);
    const cell_lstm_backward_result r =
        kind != ANY
            ? cell_lstm_backward(0, TANH(kind), SIGMOID(kind), gates, v, c_prev, dh, dc, (cell_lstm_args){.clip = v})
            : cell_lstm_backward(LSTM_OPTIONS, s->act, s->gate_act, gates, v, c_prev, dh, dc,
                                 lstm_args(s, s->fresh_h, u, i, n));
    store_dz(s, dz, r.dz.i, n);
    store_dz(s, dz + H, r.dz.f, n);
    store_dz(s, dz + 2 * H, r.dz.g, n);
    store_dz(s, dz + 3 * H, r.dz.o, n);
    store(s->dc + i, r.dc_prev, n);
    if (kind == ANY && s->options & CELL_ZONEOUT_H) store(s->dh + i, r.dh_prev, n);
}

/* With a projection, first stage: c and m. */
VF_INLINE void lstm_first_cell(const int kind, const sli_cell_step *s, int row, int at, int u, const float *z,
                               const float *x, int n, int gap) {
    const size_t i = (size_t)row * (size_t)s->units + (size_t)u;
    const vf zero = vf_set(0.0f), c_prev = load(s->c_prev + i, n);
    const cell_lstm_gates sums = lstm_sums(s, x, u, z, n, gap);
    const cell_lstm_forward_result r =
        kind != ANY ? cell_lstm_forward(0, TANH(kind), LASTING(SIGMOID(kind)), sums, c_prev, zero,
                                        (cell_lstm_args){.clip = zero})
                    : cell_lstm_forward(LSTM_OPTIONS | CELL_PROJECTION, s->act, LASTING(s->gate_act), sums, c_prev,
                                        zero, lstm_args(s, NULL, u, i, n));
    if (s->keep) lstm_keep(s, at, u, r.gates, n);
    if (kind == ANY && s->v) store(s->v + i, r.v, n);
    store(s->c + i, r.c, n);
    store(s->between + i, r.m, n);
}

/* dm: the tile of the projection, W_p^T dq. m is computed again. */
VF_INLINE void lstm_second_cell_back(const int kind, const sli_cell_step *s, int row, int at, int u, const float *dm,
                                     int n) {
    const size_t i = (size_t)row * (size_t)s->units + (size_t)u;
    const int H = s->units, act = kind != ANY ? TANH(kind) : s->act;
    const ptrdiff_t dz = at * s->ld_dz + u;
    const cell_lstm_gates gates = {kept_gate(s, 4, at, 0, u, n), kept_gate(s, 4, at, 1, u, n),
                                   kept_gate(s, 4, at, 2, u, n), kept_gate(s, 4, at, 3, u, n)};
    const vf c_prev = load(s->c_prev + i, n), dc = load(s->dc + i, n);
    const vf v = load((kind == ANY && s->v ? s->v : s->c) + i, n);
    const cell_lstm_backward_result r =
        kind != ANY
            ? cell_lstm_backward(0, act, SIGMOID(kind), gates, v, c_prev, vf_load(dm), dc, (cell_lstm_args){.clip = v})
            : cell_lstm_backward(LSTM_OPTIONS | CELL_PROJECTION, act, s->gate_act, gates, v, c_prev, vf_load(dm), dc,
                                 lstm_args(s, NULL, u, i, n));
    store_dz(s, dz, r.dz.i, n);
    store_dz(s, dz + H, r.dz.f, n);
    store_dz(s, dz + 2 * H, r.dz.g, n);
    store_dz(s, dz + 3 * H, r.dz.o, n);
    store(s->dc + i, r.dc_prev, n);
    store(s->between + (size_t)at * (size_t)H + u, gates.o * cell_act(act, v), n);
}

/* Second stage: q, and h by zoneout of it; backward dq = (1 - zone_h) dh, and what of dh goes to h' beside R. u: an output. */
VF_INLINE void lstm_projected_cell(const int kind, const sli_cell_step *s, int row, int at, int u, const float *q,
                                   int n) {
    const size_t i = (size_t)row * (size_t)s->outputs + (size_t)u;
    vf h = vf_load(q);
    (void)at;
    if (kind == ANY && s->options & CELL_ZONEOUT_H) {
        const vf old = zone(s->fresh_h, s->zone_h, i, n);
        h = old * load(s->h_prev + row * s->ld_h_prev + u, n) + (1.0f - old) * h;
    }
    store_h(s, row, u, i, h, n);
}

VF_INLINE void lstm_projected_cell_back(const int kind, const sli_cell_step *s, int row, int at, int u, int n) {
    const size_t i = (size_t)row * (size_t)s->outputs + (size_t)u;
    vf dq = gradient_of_h(s, row, u, i, n);
    if (kind == ANY && s->options & CELL_ZONEOUT_H) {
        const vf old = zone(s->fresh_h, s->zone_h, i, n);
        store(s->dh + i, old * dq, n);
        dq *= 1.0f - old;
    }
    store(s->dq + (size_t)at * (size_t)s->outputs + u, dq, n);
}

/* ---------------------------------------------------------------------------------------------------------- GRU -- */
VF_INLINE cell_gru_args gru_args(const sli_cell_step *s, size_t i, int n) {
    return (cell_gru_args){.zone_h = zone(s->fresh_h, s->options & CELL_ZONEOUT_H ? s->zone_h : 0.0f, i, n)};
}

/* The pre-activations. */
VF_INLINE cell_gru_pre gru_sums(const sli_cell_step *s, const float *x, int u, const float *z, int n, int gap) {
    const int H = s->units;
    const float *b = s->bias + u;
    return (cell_gru_pre){.r = sum_of(s, z, x, b, 0, n, gap),
                          .z = sum_of(s, z, x, b, 1, n, gap),
                          .n = load(x + 2 * gap, n) + load(b + 2 * H, n),
                          .s = load(z + 2 * gap, n) + load(b + 3 * H, n)};
}

VF_INLINE void gru_keep(const sli_cell_step *s, int at, int u, vf reset, vf update, int n) {
    keep_gate(s, 4, at, 0, u, reset, n);
    keep_gate(s, 4, at, 1, u, update, n);
}

/* The other two together, for they share a line of f16; which takes of the side sum only what has any effect: beyond its numbers n
 * is +-1. */
VF_INLINE void gru_keep_fresh(const sli_cell_step *s, int at, int u, vf fresh, vf side, int n) {
    const vf most = vf_set(65504.0f);
    keep_gate(s, 4, at, 2, u, fresh, n);
    keep_gate(s, 4, at, 3, u, LANES_16 > 0 && s->gates_half ? cell_clamp(side, -most, most) : side, n);
}

VF_INLINE void gru_cell(const int kind, const sli_cell_step *s, int row, int at, int u, const float *z, const float *x,
                        int n, int gap) {
    const size_t i = (size_t)row * (size_t)s->units + (size_t)u;
    const cell_gru_pre pre = gru_sums(s, x, u, z, n, gap);
    const cell_gru_forward_result r = cell_gru_forward(CELL_ZONEOUT_H, s->act, LASTING(s->gate_act), pre,
                                                       load(s->h_prev + row * s->ld_h_prev + u, n), gru_args(s, i, n));
    (void)kind;
    if (s->keep) {
        gru_keep(s, at, u, r.gates.r, r.gates.z, n);
        gru_keep_fresh(s, at, u, r.gates.n, pre.s, n);
    }
    store_h(s, row, u, i, r.h, n);
}

/* As of LSTM, in two loops: first z, n's sum and s into the tile, then n and h. See cell/gru.h. */
VF_INLINE void gru_open(const int kind, const sli_cell_step *s, int row, int at, int u, float *z, const float *x, int n,
                        int gap) {
    (void)row;
    const cell_gru_pre pre = gru_sums(s, x, u, z, n, gap);
    const vf reset = cell_act(SIGMOID(kind), pre.r), update = cell_act(LASTING(SIGMOID(kind)), pre.z);
    if (s->keep) gru_keep(s, at, u, reset, update, n);
    store(z, update, n);
    store(z + gap, pre.n + reset * pre.s, n);
    store(z + 2 * gap, pre.s, n);
}

VF_INLINE void gru_close(const int kind, const sli_cell_step *s, int row, int at, int u, const float *z, const float *x,
                         int n, int gap) {
    (void)x;
    const vf update = load(z, n), fresh = cell_act(TANH(kind), load(z + gap, n));
    const vf h = (1.0f - update) * fresh + update * load(s->h_prev + row * s->ld_h_prev + u, n);
    if (s->keep) gru_keep_fresh(s, at, u, fresh, load(z + 2 * gap, n), n);
    store_h(s, row, u, (size_t)row * (size_t)s->units + (size_t)u, h, n);
}

VF_INLINE void gru_cell_back(const int kind, const sli_cell_step *s, int row, int at, int u, int n) {
    const size_t i = (size_t)row * (size_t)s->units + (size_t)u;
    const int H = s->units;
    const ptrdiff_t dz = at * s->ld_dz + u;
    const cell_gru_gates gates = {kept_gate(s, 4, at, 0, u, n), kept_gate(s, 4, at, 1, u, n),
                                  kept_gate(s, 4, at, 2, u, n)};
    const vf h_prev = load(s->h_prev + row * s->ld_h_prev + u, n), dh = gradient_of_h(s, row, u, i, n);
    const vf side = kept_gate(s, 4, at, 3, u, n);
    const cell_gru_backward_result r =
        kind != ANY
            ? cell_gru_backward(0, TANH(kind), SIGMOID(kind), gates, side, h_prev, dh, (cell_gru_args){.zone_h = dh})
            : cell_gru_backward(CELL_ZONEOUT_H, s->act, s->gate_act, gates, side, h_prev, dh, gru_args(s, i, n));
    store_dz(s, dz, r.dz.n, n);
    store_dz(s, dz + H, r.dz.r, n);
    store_dz(s, dz + 2 * H, r.dz.z, n);
    store_dz(s, dz + 3 * H, r.ds_n, n);
    store(s->dh + i, r.dh_prev, n);
}

/* Reset before the product, first stage, of r and z: r, and what R_n multiplies. */
VF_INLINE void gru_first_cell(const int kind, const sli_cell_step *s, int row, int at, int u, const float *z,
                              const float *x, int n, int gap) {
    const size_t i = (size_t)row * (size_t)s->units + (size_t)u;
    const float *b = s->bias + u;
    const vf reset = cell_gru_reset(kind != ANY ? SIGMOID(kind) : s->gate_act, sum_of(s, z, x, b, 0, n, gap));
    if (s->keep) keep_gate(s, 3, at, 0, u, reset, n);
    store(s->update + i, sum_of(s, z, x, b, 1, n, gap), n);
    store(s->between + i, reset * load(s->multiplied + row * s->ld_multiplied + u, n), n);
}

/* Second stage, of n. */
VF_INLINE void gru_before_cell(const int kind, const sli_cell_step *s, int row, int at, int u, const float *z,
                               const float *x, int n, int gap) {
    const size_t i = (size_t)row * (size_t)s->units + (size_t)u;
    const vf zero = vf_set(0.0f), h_prev = load(s->h_prev + row * s->ld_h_prev + u, n);
    (void)gap;
    const cell_gru_pre pre = {zero, load(s->update + i, n), vf_load(x) + load(s->bias + 2 * s->units + u, n),
                              vf_load(z)};
    const cell_gru_forward_result r = kind != ANY
                                          ? cell_gru_forward(CELL_RESET_BEFORE, TANH(kind), LASTING(SIGMOID(kind)), pre,
                                                             h_prev, (cell_gru_args){.zone_h = zero})
                                          : cell_gru_forward(CELL_RESET_BEFORE | CELL_ZONEOUT_H, s->act,
                                                             LASTING(s->gate_act), pre, h_prev, gru_args(s, i, n));
    if (s->keep) {
        keep_gate(s, 3, at, 1, u, r.gates.z, n);
        keep_gate(s, 3, at, 2, u, r.gates.n, n);
    }
    store_h(s, row, u, i, r.h, n);
}

/* Up to the gradient of s_n, which is that of n; that of r, 0 as yet, is read beside it. */
VF_INLINE void gru_before_cell_back(const int kind, const sli_cell_step *s, int row, int at, int u, int n) {
    const size_t i = (size_t)row * (size_t)s->units + (size_t)u;
    const int H = s->units;
    const ptrdiff_t dz = at * s->ld_dz + u;
    const vf zero = vf_set(0.0f), h_prev = load(s->h_prev + row * s->ld_h_prev + u, n);
    const vf dh = gradient_of_h(s, row, u, i, n);
    const cell_gru_gates gates = {zero, kept_gate(s, 3, at, 1, u, n), kept_gate(s, 3, at, 2, u, n)};
    const cell_gru_backward_result r = kind != ANY
                                           ? cell_gru_backward(CELL_RESET_BEFORE, TANH(kind), SIGMOID(kind), gates,
                                                               zero, h_prev, dh, (cell_gru_args){.zone_h = dh})
                                           : cell_gru_backward(CELL_RESET_BEFORE | CELL_ZONEOUT_H, s->act, s->gate_act,
                                                               gates, zero, h_prev, dh, gru_args(s, i, n));
    store_dz(s, dz, r.dz.n, n);
    store_dz(s, dz + H, r.dz.r, n);
    store_dz(s, dz + 2 * H, r.dz.z, n);
    store(s->dh + i, r.dh_prev, n);
}

/* e = R_n^T ds_n: the gradient of r, and what comes back to h' by r d h'. */
VF_INLINE void gru_second_cell_back(const int kind, const sli_cell_step *s, int row, int at, int u, const float *e,
                                    int n) {
    const size_t i = (size_t)row * (size_t)s->units + (size_t)u;
    const vf reset = kept_gate(s, 3, at, 0, u, n), dropped = load(s->multiplied + row * s->ld_multiplied + u, n);
    const cell_gru_reset_backward_result r =
        cell_gru_reset_backward(kind != ANY ? SIGMOID(kind) : s->gate_act, reset, vf_load(e), dropped);
    vf d_h = r.d_dropped;
    if (s->drop) d_h *= load(s->drop + i, n);
    store_dz(s, at * s->ld_dz + s->units + u, r.dz_r, n);
    store(s->between + (size_t)at * (size_t)s->units + u, reset * dropped, n);
    store(s->dh + i, load(s->dh + i, n) + d_h, n);
}

/* ---------------------------------------------------------------------------------------------------------- RNN -- */
VF_INLINE cell_rnn_args rnn_args(const sli_cell_step *s, size_t i, int n) {
    return (cell_rnn_args){.zone_h = zone(s->fresh_h, s->options & CELL_ZONEOUT_H ? s->zone_h : 0.0f, i, n)};
}

VF_INLINE void rnn_cell(const int kind, const sli_cell_step *s, int row, int at, int u, const float *z, const float *x,
                        int n, int gap) {
    const size_t i = (size_t)row * (size_t)s->units + (size_t)u;
    const vf sum = sum_of(s, z, x, s->bias + u, 0, n, gap);
    const cell_rnn_forward_result r =
        kind != ANY ? cell_rnn_forward(0, TANH(kind), sum, sum, (cell_rnn_args){.zone_h = sum})
                    : cell_rnn_forward(CELL_ZONEOUT_H, s->act, sum, load(s->h_prev + row * s->ld_h_prev + u, n),
                                       rnn_args(s, i, n));
    if (s->keep) keep_gate(s, 1, at, 0, u, r.q, n);
    store_h(s, row, u, i, r.h, n);
}

VF_INLINE void rnn_cell_back(const int kind, const sli_cell_step *s, int row, int at, int u, int n) {
    const size_t i = (size_t)row * (size_t)s->units + (size_t)u;
    const vf q = kept_gate(s, 1, at, 0, u, n), dh = gradient_of_h(s, row, u, i, n);
    const cell_rnn_backward_result r = kind != ANY
                                           ? cell_rnn_backward(0, TANH(kind), q, dh, (cell_rnn_args){.zone_h = q})
                                           : cell_rnn_backward(CELL_ZONEOUT_H, s->act, q, dh, rnn_args(s, i, n));
    store_dz(s, at * s->ld_dz + u, r.dz, n);
    if (kind == ANY && s->options & CELL_ZONEOUT_H) store(s->dh + i, r.dh_prev, n);
}

/* -------------------------------------------------------------------------------------------------------- loops -- */
/* Forward: panels of `vectors` vectors, `gates` of each VL units side by side, or, of the last group, of fewer that lie close. */
#define FORWARD(cell, kind, gates)                                                                                   \
    for (int u0 = share->first, step = gates > 2 ? VL : share->vectors / gates * VL; u0 < share->last; u0 += step) { \
        const float *x = share->in + (ptrdiff_t)((u0 - share->first) / step) * share->in_panel;                      \
        const ptrdiff_t group = gates > 2 ? share->vectors * VL : (gates)*VL;                                        \
        for (int r = 0; r < share->rows; r++)                                                                        \
            for (int u = u0; u < u0 + step; u += VL, tile += group, x += group) {                                    \
                if (u + VL <= share->last)                                                                           \
                    cell(kind, s, share->row[r], share->at[r], u, tile, x, VL, VL);                                  \
                else if (u < share->last)                                                                            \
                    cell(kind, s, share->row[r], share->at[r], u, tile, x, share->last - u, share->gap);             \
            }                                                                                                        \
    }
#define BACKWARD(cell, kind)                                                                      \
    for (int r = 0; r < share->rows; r++) {                                                       \
        int u = share->first;                                                                     \
        for (; u + VL <= share->last; u += VL) cell(kind, s, share->row[r], share->at[r], u, VL); \
        if (u < share->last) cell(kind, s, share->row[r], share->at[r], u, share->last - u);      \
    }
/* On the tile of units that have one column each. */
#define TILE(cell, kind)                                                                  \
    for (int u0 = share->first, step = share->vectors * VL; u0 < share->last; u0 += step) \
        for (int r = 0; r < share->rows; r++, tile += step)                               \
            for (int u = u0; u < u0 + step && u < share->last; u += VL)                   \
                cell(kind, s, share->row[r], share->at[r], u, tile + u - u0,              \
                     share->last - u < VL ? share->last - u : VL);
#define LSTM_CELLS(kind)        \
    FORWARD(lstm_open, kind, 4) \
    tile = share->tile;         \
    FORWARD(lstm_close, kind, 4)
#define LSTM_ANY(kind) FORWARD(lstm_cell, kind, 4)
#define LSTM_BACK(kind) BACKWARD(lstm_cell_back, kind)
#define LSTM_FIRST(kind) FORWARD(lstm_first_cell, kind, 4)
#define LSTM_PROJECTED(kind) TILE(lstm_projected_cell, kind)
#define LSTM_PROJECTED_BACK(kind) BACKWARD(lstm_projected_cell_back, kind)
#define LSTM_SECOND(kind) TILE(lstm_second_cell_back, kind)
#define GRU_CELLS(kind)        \
    FORWARD(gru_open, kind, 3) \
    tile = share->tile;        \
    FORWARD(gru_close, kind, 3)
#define GRU_ANY(kind) FORWARD(gru_cell, kind, 3)
#define GRU_BACK(kind) BACKWARD(gru_cell_back, kind)
#define GRU_FIRST(kind) FORWARD(gru_first_cell, kind, 2)
#define GRU_BEFORE(kind) FORWARD(gru_before_cell, kind, 1)
#define GRU_BEFORE_BACK(kind) BACKWARD(gru_before_cell_back, kind)
#define GRU_SECOND(kind) TILE(gru_second_cell_back, kind)
#define RNN_CELLS(kind) FORWARD(rnn_cell, kind, 1)
#define RNN_BACK(kind) BACKWARD(rnn_cell_back, kind)

/* The loops of a function, for the usual cells and for the others. */
#define CELLS(name, usual, any)                                             \
    static void name(const sli_cell_step *s, const sli_cell_share *share) { \
        float *tile = share->tile;                                          \
        (void)tile;                                                         \
        switch (kind_of(s)) {                                               \
        case USUAL:                                                         \
            usual(USUAL) break;                                             \
        case SHORT:                                                         \
            usual(SHORT) break;                                             \
        default:                                                            \
            any(ANY)                                                        \
        }                                                                   \
    }
CELLS(lstm_forward, LSTM_CELLS, LSTM_ANY)
CELLS(lstm_backward, LSTM_BACK, LSTM_BACK)
CELLS(lstm_first, LSTM_FIRST, LSTM_FIRST)
CELLS(lstm_projected_forward, LSTM_PROJECTED, LSTM_PROJECTED)
CELLS(lstm_projected_backward, LSTM_PROJECTED_BACK, LSTM_PROJECTED_BACK)
CELLS(lstm_second, LSTM_SECOND, LSTM_SECOND)
CELLS(gru_forward, GRU_CELLS, GRU_ANY)
CELLS(gru_backward, GRU_BACK, GRU_BACK)
CELLS(gru_first, GRU_FIRST, GRU_FIRST)
CELLS(gru_before_forward, GRU_BEFORE, GRU_BEFORE)
CELLS(gru_before_backward, GRU_BEFORE_BACK, GRU_BEFORE_BACK)
CELLS(gru_second, GRU_SECOND, GRU_SECOND)
CELLS(rnn_forward, RNN_CELLS, RNN_CELLS)
CELLS(rnn_backward, RNN_BACK, RNN_BACK)

/* dh = (add: +=) d tile */
static void take(const sli_cell_step *s, const sli_cell_share *share, bool add) {
    const int width = share->vectors * VL;
    const float *tile = share->tile;
    for (int u0 = share->first; u0 < share->last; u0 += width)
        for (int r = 0; r < share->rows; r++, tile += width)
            for (int u = u0; u < u0 + width && u < share->last; u += VL) {
                const size_t i = (size_t)share->row[r] * (size_t)s->outputs + (size_t)u;
                const int n = share->last - u < VL ? share->last - u : VL;
                vf d = vf_load(tile + u - u0);
                if (s->drop) d *= load(s->drop + i, n);
                if (add) d += load(s->dh + i, n);
                store(s->dh + i, d, n);
            }
}

#define STEP(cell) .forward = cell##_forward, .backward = cell##_backward
const sli_fused_ops ISA(fused) = {.lstm = {STEP(lstm)},
                                  .lstm_projected = {STEP(lstm_projected), .first = lstm_first, .second = lstm_second},
                                  .gru = {STEP(gru)},
                                  .gru_before = {STEP(gru_before), .first = gru_first, .second = gru_second},
                                  .rnn = {STEP(rnn)},
                                  .streams = STREAMS,
                                  .streamed = vf_streamed,
                                  .take = take};
