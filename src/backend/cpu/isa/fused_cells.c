/* Cells of cpu:fused. tanh and sigmoid without options, the usual cell, are one loop over src/cell. Everything else goes lane by
 * lane through small arrays, with activations chosen at run time: the equations are those of src/cell in stages. */
#include <string.h>
#include "backend/cpu/isa/act.h"
#include "backend/cpu/isa/fused.h"
#include "backend/cpu/isa/isa.h"
#include "backend/cpu/isa/vector.h"
#include "cell/gru.h"
#include "cell/lstm.h"

static bool plain(const sli_cell_step *s) {
    return s->act == CELL_ACT_TANH && s->gate_act == CELL_ACT_SIGMOID && s->options == 0;
}

static size_t at(const sli_cell_step *s, int row, int unit) {
    return (size_t)row * (size_t)s->units + (size_t)unit;
}

/* Copies of the new h beside h itself: y, and what the next step multiplies. */
static void give_h(const sli_cell_step *s, int row, int unit, int n, const float *h) {
    if (s->y) memcpy(s->y + row * s->ld_y + unit, h, (size_t)n * sizeof *h);
    if (s->dropped) {
        const float *d = s->drop + at(s, row, unit);
        float *to = s->dropped + at(s, row, unit);
        for (int l = 0; l < n; l++) to[l] = d[l] * h[l];
    }
}

/* ----------------------------------------------------------------------------------------------- LSTM, forward -- */
VF_INLINE void lstm_plain(const bool keep, const int n, const int H, const float *z, float *x, const float *bias,
                          const float *c_prev, float *c, float *h) {
    INDEPENDENT
    for (int l = 0; l < n; l++) { /* c may be c_prev: an element is read before it is written */
        const cell_lstm_gates sum = {z[l] + x[l] + bias[l], z[VL + l] + x[H + l] + bias[H + l],
                                     z[2 * VL + l] + x[2 * H + l] + bias[2 * H + l],
                                     z[3 * VL + l] + x[3 * H + l] + bias[3 * H + l]};
        const cell_lstm_forward_result r =
            cell_lstm_forward(0, CELL_ACT_TANH, CELL_ACT_SIGMOID, sum, c_prev[l], 0.0f, (cell_lstm_args){0});
        if (keep) {
            x[l] = r.gates.i;
            x[H + l] = r.gates.f;
            x[2 * H + l] = r.gates.g;
            x[3 * H + l] = r.gates.o;
        }
        c[l] = r.c;
        h[l] = r.h;
    }
}

/* n lanes of one row from unit u on. Lanes behind n are computed on zeros and go nowhere. */
static void lstm_lanes(const sli_cell_step *s, int row, int u, int n, const float *tile) {
    float z[4][VL] = {{0}}, old[VL] = {0}, v[VL], a[VL], h[VL];
    float *x = s->gates + row * s->ld_gates + u, *c = s->c + at(s, row, u);
    const float *b = s->bias + u, *c_prev = s->c_prev + at(s, row, u), *h_prev = s->h_prev + row * s->ld_h_prev + u;
    const float *peep = s->options & CELL_PEEPHOLE ? s->peephole + u : NULL;
    const int H = s->units;
    for (int k = 0; k < 4; k++)
        for (int l = 0; l < n; l++) z[k][l] = tile[k * VL + l] + x[k * H + l] + b[k * H + l];
    for (int l = 0; l < n; l++) old[l] = c_prev[l];
    for (int k = 0; k < 2 && peep; k++)
        for (int l = 0; l < n; l++) z[k][l] += peep[k * H + l] * old[l];
    act_each(s->gate_act, 2 * VL, z[0]);
    act_each(s->act, VL, z[2]);
    for (int l = 0; l < VL; l++) v[l] = z[1][l] * old[l] + z[0][l] * z[2][l];
    for (int l = 0; l < VL && s->options & CELL_CLIP; l++) v[l] = cell_clamp(v[l], -s->clip, s->clip);
    for (int l = 0; l < n && peep; l++) z[3][l] += peep[2 * H + l] * v[l];
    act_each(s->gate_act, VL, z[3]);
    for (int l = 0; l < VL; l++) a[l] = v[l];
    act_each(s->act, VL, a);
    for (int l = 0; l < VL; l++) h[l] = z[3][l] * a[l];
    for (int k = 0; k < 4 && s->keep; k++)
        for (int l = 0; l < n; l++) x[k * H + l] = z[k][l];
    for (int l = 0; l < n && s->v; l++) s->v[at(s, row, u) + (size_t)l] = v[l];
    for (int l = 0; l < n && s->options & CELL_ZONEOUT_C; l++) {
        const float fresh = s->fresh_c ? s->fresh_c[at(s, row, u) + (size_t)l] : 1.0f - s->zone_c;
        v[l] = (1.0f - fresh) * old[l] + fresh * v[l];
    }
    for (int l = 0; l < n && s->options & CELL_ZONEOUT_H; l++) {
        const float fresh = s->fresh_h ? s->fresh_h[at(s, row, u) + (size_t)l] : 1.0f - s->zone_h;
        h[l] = (1.0f - fresh) * h_prev[l] + fresh * h[l];
    }
    memcpy(c, v, (size_t)n * sizeof *c);
    memcpy(s->h + row * s->ld_h + u, h, (size_t)n * sizeof *h);
}

static void lstm_row(const sli_cell_step *s, int row, int u, int n, const float *tile) {
    const size_t i = at(s, row, u);
    float *x = s->gates + row * s->ld_gates + u, *h = s->h + row * s->ld_h + u;
    if (!plain(s))
        lstm_lanes(s, row, u, n, tile);
    else if (s->keep)
        lstm_plain(true, n, s->units, tile, x, s->bias + u, s->c_prev + i, s->c + i, h);
    else
        lstm_plain(false, n, s->units, tile, x, s->bias + u, s->c_prev + i, s->c + i, h);
    give_h(s, row, u, n, h);
}

static void lstm_forward(const sli_cell_step *s, const sli_cell_share *share) {
    const float *tile = share->tile;
    for (int u = share->first; u < share->last; u += VL)
        for (int r = 0; r < share->rows; r++, tile += 4 * VL) {
            if (u + VL <= share->last)
                lstm_row(s, share->row[r], u, VL, tile);
            else
                lstm_row(s, share->row[r], u, share->last - u, tile);
        }
}

/* ---------------------------------------------------------------------------------------------- LSTM, backward -- */
VF_INLINE void lstm_plain_back(const int n, const int H, const float *gates, const float *c, const float *c_prev,
                               const float *dy, const float *dh, float *dc, float *dz) {
    INDEPENDENT
    for (int l = 0; l < n; l++) {
        const cell_lstm_gates gate = {gates[l], gates[H + l], gates[2 * H + l], gates[3 * H + l]};
        const cell_lstm_backward_result r =
            cell_lstm_backward(0, CELL_ACT_TANH, CELL_ACT_SIGMOID, gate, c[l], c_prev[l], dy ? dh[l] + dy[l] : dh[l],
                               dc[l], (cell_lstm_args){0});
        dz[l] = r.dz.i;
        dz[H + l] = r.dz.f;
        dz[2 * H + l] = r.dz.g;
        dz[3 * H + l] = r.dz.o;
        dc[l] = r.dc_prev;
    }
}

/* dm, dv, dz as in cell/lstm.h; dh and dc become what of d h', d c' does not pass through R. */
static void lstm_lanes_back(const sli_cell_step *s, int row, int u, int n) {
    const int H = s->units;
    const size_t i = at(s, row, u);
    const float *x = s->gates + row * s->ld_gates + u, *c_prev = s->c_prev + i, *v = (s->v ? s->v : s->c) + i;
    const float *dy = s->dy ? s->dy + row * s->ld_dy + u : NULL;
    const float *peep = s->options & CELL_PEEPHOLE ? s->peephole + u : NULL;
    float *dz = s->dz + row * s->ld_gates + u, *dh = s->dh + i, *dc = s->dc + i;
    float gate[4][VL] = {{0}}, d[4][VL] = {{0}}, a[VL] = {0}, dm[VL] = {0}, dv[VL] = {0}, old[VL] = {0};
    for (int k = 0; k < 4; k++)
        for (int l = 0; l < n; l++) gate[k][l] = x[k * H + l];
    for (int l = 0; l < n; l++) {
        const float fresh_h = s->fresh_h ? s->fresh_h[i + (size_t)l] : 1.0f;
        const float fresh_c = s->fresh_c ? s->fresh_c[i + (size_t)l] : 1.0f;
        const float sum = dy ? dh[l] + dy[l] : dh[l];
        a[l] = v[l];
        dm[l] = fresh_h * sum;
        dv[l] = fresh_c * dc[l];
        dh[l] = (1.0f - fresh_h) * sum;
        old[l] = (1.0f - fresh_c) * dc[l];
    }
    act_each(s->act, VL, a);
    for (int l = 0; l < VL; l++) {
        d[3][l] = dm[l] * a[l];
        dm[l] *= gate[3][l];
    }
    act_slope_each(s->gate_act, VL, gate[3], d[3]);
    act_slope_each(s->act, VL, a, dm);
    for (int l = 0; l < VL; l++) dv[l] += dm[l];
    for (int l = 0; l < n && peep; l++) dv[l] += peep[2 * H + l] * d[3][l];
    for (int l = 0; l < n && s->options & CELL_CLIP; l++) dv[l] = cell_abs(v[l]) < s->clip ? dv[l] : 0.0f;
    for (int l = 0; l < n; l++) {
        d[0][l] = dv[l] * gate[2][l];
        d[1][l] = dv[l] * c_prev[l];
        d[2][l] = dv[l] * gate[0][l];
        old[l] += dv[l] * gate[1][l];
    }
    act_slope_each(s->gate_act, 2 * VL, gate[0], d[0]);
    act_slope_each(s->act, VL, gate[2], d[2]);
    for (int k = 0; k < 2 && peep; k++)
        for (int l = 0; l < n; l++) old[l] += peep[k * H + l] * d[k][l];
    for (int k = 0; k < 4; k++)
        for (int l = 0; l < n; l++) dz[k * H + l] = d[k][l];
    memcpy(dc, old, (size_t)n * sizeof *dc);
}

static void lstm_backward(const sli_cell_step *s, const sli_cell_share *share) {
    for (int r = 0; r < share->rows; r++) {
        const int row = share->row[r], u0 = share->first, n = share->last - u0;
        const size_t i = at(s, row, u0);
        const float *gates = s->gates + row * s->ld_gates + u0, *dy = s->dy ? s->dy + row * s->ld_dy + u0 : NULL;
        float *dz = s->dz + row * s->ld_gates + u0;
        if (!plain(s))
            for (int u = u0; u < share->last; u += VL)
                lstm_lanes_back(s, row, u, share->last - u < VL ? share->last - u : VL);
        else if (dy)
            lstm_plain_back(n, s->units, gates, s->c + i, s->c_prev + i, dy, s->dh + i, s->dc + i, dz);
        else
            lstm_plain_back(n, s->units, gates, s->c + i, s->c_prev + i, NULL, s->dh + i, s->dc + i, dz);
    }
}

/* ------------------------------------------------------------------------------------------------ GRU, forward -- */
VF_INLINE void gru_plain(const bool keep, const int n, const int H, const float *z, float *x, const float *bias,
                         const float *h_prev, float *h) {
    INDEPENDENT
    for (int l = 0; l < n; l++) {
        const cell_gru_pre pre = {z[l] + x[l] + bias[l], z[VL + l] + x[H + l] + bias[H + l],
                                  x[2 * H + l] + bias[2 * H + l], z[2 * VL + l] + bias[3 * H + l]};
        const cell_gru_forward_result r =
            cell_gru_forward(0, CELL_ACT_TANH, CELL_ACT_SIGMOID, pre, h_prev[l], (cell_gru_args){0});
        if (keep) {
            x[l] = r.gates.r;
            x[H + l] = r.gates.z;
            x[2 * H + l] = r.gates.n;
            x[3 * H + l] = pre.s;
        }
        h[l] = r.h;
    }
}

static void gru_lanes(const sli_cell_step *s, int row, int u, int n, const float *tile) {
    float gate[3][VL] = {{0}}, side[VL] = {0}, h[VL];
    float *x = s->gates + row * s->ld_gates + u;
    const float *b = s->bias + u, *h_prev = s->h_prev + row * s->ld_h_prev + u;
    const int H = s->units;
    for (int k = 0; k < 2; k++)
        for (int l = 0; l < n; l++) gate[k][l] = tile[k * VL + l] + x[k * H + l] + b[k * H + l];
    for (int l = 0; l < n; l++) side[l] = tile[2 * VL + l] + b[3 * H + l];
    act_each(s->gate_act, 2 * VL, gate[0]);
    for (int l = 0; l < n; l++) gate[2][l] = x[2 * H + l] + b[2 * H + l] + gate[0][l] * side[l];
    act_each(s->act, VL, gate[2]);
    for (int l = 0; l < n; l++) {
        const float fresh = !(s->options & CELL_ZONEOUT_H) ? 1.0f
                            : s->fresh_h                   ? s->fresh_h[at(s, row, u) + (size_t)l]
                                                           : 1.0f - s->zone_h;
        h[l] = (1.0f - gate[1][l]) * gate[2][l] + gate[1][l] * h_prev[l];
        h[l] = (1.0f - fresh) * h_prev[l] + fresh * h[l];
    }
    for (int k = 0; k < 3 && s->keep; k++)
        for (int l = 0; l < n; l++) x[k * H + l] = gate[k][l];
    for (int l = 0; l < n && s->keep; l++) x[3 * H + l] = side[l];
    memcpy(s->h + row * s->ld_h + u, h, (size_t)n * sizeof *h);
}

static void gru_row(const sli_cell_step *s, int row, int u, int n, const float *tile) {
    float *x = s->gates + row * s->ld_gates + u, *h = s->h + row * s->ld_h + u;
    const float *h_prev = s->h_prev + row * s->ld_h_prev + u;
    if (!plain(s))
        gru_lanes(s, row, u, n, tile);
    else if (s->keep)
        gru_plain(true, n, s->units, tile, x, s->bias + u, h_prev, h);
    else
        gru_plain(false, n, s->units, tile, x, s->bias + u, h_prev, h);
    give_h(s, row, u, n, h);
}

static void gru_forward(const sli_cell_step *s, const sli_cell_share *share) {
    const float *tile = share->tile;
    for (int u = share->first; u < share->last; u += VL)
        for (int r = 0; r < share->rows; r++, tile += 3 * VL) {
            if (u + VL <= share->last)
                gru_row(s, share->row[r], u, VL, tile);
            else
                gru_row(s, share->row[r], u, share->last - u, tile);
        }
}

/* ----------------------------------------------------------------------------------------------- GRU, backward -- */
VF_INLINE void gru_plain_back(const int n, const int H, const float *x, const float *h_prev, const float *dy, float *dh,
                              float *dz) {
    INDEPENDENT
    for (int l = 0; l < n; l++) {
        const cell_gru_gates gate = {x[l], x[H + l], x[2 * H + l]};
        const cell_gru_backward_result r = cell_gru_backward(0, CELL_ACT_TANH, CELL_ACT_SIGMOID, gate, x[3 * H + l],
                                                             h_prev[l], dy ? dh[l] + dy[l] : dh[l], (cell_gru_args){0});
        dz[l] = r.dz.n;
        dz[H + l] = r.dz.r;
        dz[2 * H + l] = r.dz.z;
        dz[3 * H + l] = r.ds_n;
        dh[l] = r.dh_prev;
    }
}

static void gru_lanes_back(const sli_cell_step *s, int row, int u, int n) {
    const int H = s->units;
    const size_t i = at(s, row, u);
    const float *x = s->gates + row * s->ld_gates + u, *h_prev = s->h_prev + row * s->ld_h_prev + u;
    const float *dy = s->dy ? s->dy + row * s->ld_dy + u : NULL;
    float *dz = s->dz + row * s->ld_gates + u, *dh = s->dh + i;
    float gate[3][VL] = {{0}}, dn[VL] = {0}, d[2][VL] = {{0}};
    for (int k = 0; k < 3; k++)
        for (int l = 0; l < n; l++) gate[k][l] = x[k * H + l];
    for (int l = 0; l < n; l++) {
        const float fresh = s->fresh_h ? s->fresh_h[i + (size_t)l] : 1.0f, sum = dy ? dh[l] + dy[l] : dh[l];
        const float dq = fresh * sum;
        dn[l] = dq * (1.0f - gate[1][l]);
        d[1][l] = dq * (h_prev[l] - gate[2][l]);
        dh[l] = (1.0f - fresh) * sum + dq * gate[1][l];
    }
    act_slope_each(s->act, VL, gate[2], dn);
    for (int l = 0; l < n; l++) {
        d[0][l] = dn[l] * x[3 * H + l];
        dz[3 * H + l] = dn[l] * gate[0][l];
    }
    act_slope_each(s->gate_act, 2 * VL, gate[0], d[0]);
    for (int l = 0; l < n; l++) {
        dz[l] = dn[l];
        dz[H + l] = d[0][l];
        dz[2 * H + l] = d[1][l];
    }
}

static void gru_backward(const sli_cell_step *s, const sli_cell_share *share) {
    for (int r = 0; r < share->rows; r++) {
        const int row = share->row[r], u0 = share->first, n = share->last - u0;
        const float *x = s->gates + row * s->ld_gates + u0, *h_prev = s->h_prev + row * s->ld_h_prev + u0;
        const float *dy = s->dy ? s->dy + row * s->ld_dy + u0 : NULL;
        float *dz = s->dz + row * s->ld_gates + u0, *dh = s->dh + at(s, row, u0);
        if (!plain(s))
            for (int u = u0; u < share->last; u += VL)
                gru_lanes_back(s, row, u, share->last - u < VL ? share->last - u : VL);
        else if (dy)
            gru_plain_back(n, s->units, x, h_prev, dy, dh, dz);
        else
            gru_plain_back(n, s->units, x, h_prev, NULL, dh, dz);
    }
}

/* --------------------------------------------------------------------------------------------------------- RNN -- */
static void rnn_lanes(const sli_cell_step *s, int row, int u, int n, const float *tile) {
    float q[4 * VL] = {0};
    float *x = s->gates + row * s->ld_gates + u, *h = s->h + row * s->ld_h + u;
    const float *b = s->bias + u, *h_prev = s->h_prev + row * s->ld_h_prev + u;
    for (int l = 0; l < n; l++) q[l] = tile[l] + x[l] + b[l];
    for (int l = 0; l < n; l += VL) act_each(s->act, VL, q + l);
    if (s->keep) memcpy(x, q, (size_t)n * sizeof *q);
    for (int l = 0; l < n && s->options & CELL_ZONEOUT_H; l++) {
        const float fresh = s->fresh_h ? s->fresh_h[at(s, row, u) + (size_t)l] : 1.0f - s->zone_h;
        q[l] = (1.0f - fresh) * h_prev[l] + fresh * q[l];
    }
    memcpy(h, q, (size_t)n * sizeof *q);
    give_h(s, row, u, n, h);
}

static void rnn_forward(const sli_cell_step *s, const sli_cell_share *share) {
    const int width = share->vectors * VL;
    const float *tile = share->tile;
    for (int u = share->first; u < share->last; u += width)
        for (int r = 0; r < share->rows; r++, tile += width)
            rnn_lanes(s, share->row[r], u, share->last - u < width ? share->last - u : width, tile);
}

static void rnn_backward(const sli_cell_step *s, const sli_cell_share *share) {
    for (int r = 0; r < share->rows; r++) {
        const int row = share->row[r], u0 = share->first, n = share->last - u0;
        const size_t i = at(s, row, u0);
        const float *dy = s->dy ? s->dy + row * s->ld_dy + u0 : NULL, *fresh = s->fresh_h ? s->fresh_h + i : NULL;
        float *dz = s->dz + row * s->ld_gates + u0, *dh = s->dh + i;
        for (int l = 0; l < n; l++) dz[l] = dy ? dh[l] + dy[l] : dh[l];
        for (int l = 0; l < n && fresh; l++) {
            dh[l] = (1.0f - fresh[l]) * dz[l];
            dz[l] *= fresh[l];
        }
        act_slope_each(s->act, (size_t)n, s->gates + row * s->ld_gates + u0, dz);
    }
}

/* -------------------------------------------------------------------------------------------------------- dh' -- */
VF_INLINE void take_lanes(const bool add, const int n, const float *tile, const float *drop, float *dh) {
    INDEPENDENT
    for (int l = 0; l < n; l++) {
        const float d = drop ? drop[l] * tile[l] : tile[l];
        dh[l] = add ? dh[l] + d : d;
    }
}

static void take(const sli_cell_step *s, const sli_cell_share *share, bool add) {
    const int width = share->vectors * VL;
    const float *tile = share->tile;
    for (int u = share->first; u < share->last; u += width)
        for (int r = 0; r < share->rows; r++, tile += width) {
            const size_t i = at(s, share->row[r], u);
            const int n = share->last - u < width ? share->last - u : width;
            const float *drop = s->drop ? s->drop + i : NULL;
            if (add)
                take_lanes(true, n, tile, drop, s->dh + i);
            else
                take_lanes(false, n, tile, drop, s->dh + i);
        }
}

const sli_fused_ops ISA(fused) = {.lstm = {lstm_forward, lstm_backward},
                                  .gru = {gru_forward, gru_backward},
                                  .rnn = {rnn_forward, rnn_backward},
                                  .take = take};
