/* Gate loops of one row at one step, over units; the mathematics is src/cell. tanh and sigmoid, the usual functions, are one
 * loop; others go through arrays, one loop an activation, which is slower but still vector code. */
#include "backend/cpu/isa/bf16.h"
#include "backend/cpu/isa/isa.h"
#include "backend/cpu/isa/vector.h"
#include "cell/gru.h"
#include "cell/lstm.h"

/* ------------------------------------------------------------------------------------------------- activations -- */
#define EACH_ACT(X)             \
    X(CELL_ACT_TANH)            \
    X(CELL_ACT_SIGMOID)         \
    X(CELL_ACT_RELU)            \
    X(CELL_ACT_HARD_SIGMOID)    \
    X(CELL_ACT_HARD_SIGMOID_K2) \
    X(CELL_ACT_SOFTSIGN)

void ISA(act)(int act, size_t n, float *restrict x) {
    switch (act) {
#define X(A)                                                     \
    case A:                                                      \
        for (size_t i = 0; i < n; i++) x[i] = cell_act(A, x[i]); \
        break;
        EACH_ACT(X)
#undef X
    default:
        break;
    }
}

void ISA(act_slope)(int act, size_t n, const float *restrict y, float *restrict d) {
    switch (act) {
#define X(A)                                                            \
    case A:                                                             \
        for (size_t i = 0; i < n; i++) d[i] *= cell_act_slope(A, y[i]); \
        break;
        EACH_ACT(X)
#undef X
    default:
        break;
    }
}

void ISA(add)(size_t n, float *restrict to, const float *restrict from) {
    for (size_t i = 0; i < n; i++) to[i] += from[i];
}

void ISA(add_half)(size_t n, float *restrict to, const uint16_t *restrict from) {
    for (size_t i = 0; i < n; i++) to[i] += bf16_value(from[i]);
}

/* -------------------------------------------------------------------------------------------------------- LSTM -- */
void ISA(lstm_forward)(int units, int act, int gate_act, float *restrict gates, const float *restrict bias,
                       const float *c_prev, float *c, float *restrict h) {
    float *zi = gates, *zf = gates + units, *zg = gates + 2 * units, *zo = gates + 3 * units;
    if (act == CELL_ACT_TANH && gate_act == CELL_ACT_SIGMOID) {
        INDEPENDENT
        for (int u = 0; u < units; u++) { /* c may be c_prev: element u is read before it is written */
            const cell_lstm_gates z = {zi[u] + bias[u], zf[u] + bias[units + u], zg[u] + bias[2 * units + u],
                                       zo[u] + bias[3 * units + u]};
            const cell_lstm_forward_result r =
                cell_lstm_forward(0, CELL_ACT_TANH, CELL_ACT_SIGMOID, z, c_prev[u], 0.0f, (cell_lstm_args){0});
            zi[u] = r.gates.i;
            zf[u] = r.gates.f;
            zg[u] = r.gates.g;
            zo[u] = r.gates.o;
            c[u] = r.c;
            h[u] = r.h;
        }
        return;
    }
    const size_t n = (size_t)units;
    ISA(add)(4 * n, gates, bias);
    ISA(act)(gate_act, 2 * n, zi);
    ISA(act)(act, n, zg);
    ISA(act)(gate_act, n, zo);
    INDEPENDENT
    for (int u = 0; u < units; u++) c[u] = h[u] = zf[u] * c_prev[u] + zi[u] * zg[u];
    ISA(act)(act, n, h);
    for (int u = 0; u < units; u++) h[u] *= zo[u];
}

void ISA(lstm_backward)(int units, int act, int gate_act, const float *restrict gates, const float *restrict c,
                        const float *restrict c_prev, const float *restrict dh, float *restrict dc,
                        float *restrict dz) {
    const float *i = gates, *f = gates + units, *g = gates + 2 * units, *o = gates + 3 * units;
    float *dzi = dz, *dzf = dz + units, *dzg = dz + 2 * units, *dzo = dz + 3 * units;
    if (act == CELL_ACT_TANH && gate_act == CELL_ACT_SIGMOID) {
        INDEPENDENT
        for (int u = 0; u < units; u++) {
            const cell_lstm_gates gate = {i[u], f[u], g[u], o[u]};
            const cell_lstm_backward_result r = cell_lstm_backward(0, CELL_ACT_TANH, CELL_ACT_SIGMOID, gate, c[u],
                                                                   c_prev[u], dh[u], dc[u], (cell_lstm_args){0});
            dzi[u] = r.dz.i;
            dzf[u] = r.dz.f;
            dzg[u] = r.dz.g;
            dzo[u] = r.dz.o;
            dc[u] = r.dc_prev;
        }
        return;
    }
    /* dv = dc + dh o act'(c): dz_o holds a = act(c), dz_i the second term; then as in cell/lstm.h. */
    const size_t n = (size_t)units;
    for (int u = 0; u < units; u++) {
        dzo[u] = c[u];
        dzi[u] = dh[u] * o[u];
    }
    ISA(act)(act, n, dzo);
    ISA(act_slope)(act, n, dzo, dzi);
    INDEPENDENT
    for (int u = 0; u < units; u++) {
        dc[u] += dzi[u];
        dzo[u] *= dh[u];
        dzi[u] = dc[u] * g[u];
        dzf[u] = dc[u] * c_prev[u];
        dzg[u] = dc[u] * i[u];
        dc[u] *= f[u];
    }
    ISA(act_slope)(gate_act, 2 * n, i, dzi);
    ISA(act_slope)(act, n, g, dzg);
    ISA(act_slope)(gate_act, n, o, dzo);
}

/* --------------------------------------------------------------------------------------------------------- GRU -- */
void ISA(gru_forward)(int units, int act, int gate_act, float *restrict gates, const float *restrict bias,
                      const float *h_prev, float *h) {
    float *r = gates, *z = gates + units, *n = gates + 2 * units, *q = gates + 3 * units;
    if (act == CELL_ACT_TANH && gate_act == CELL_ACT_SIGMOID) {
        INDEPENDENT
        for (int u = 0; u < units; u++) { /* h may be h_prev */
            const cell_gru_pre pre = {r[u] + bias[u], z[u] + bias[units + u], n[u] + bias[2 * units + u],
                                      q[u] + bias[3 * units + u]};
            const cell_gru_forward_result x =
                cell_gru_forward(0, CELL_ACT_TANH, CELL_ACT_SIGMOID, pre, h_prev[u], (cell_gru_args){0});
            r[u] = x.gates.r;
            z[u] = x.gates.z;
            n[u] = x.gates.n;
            q[u] = pre.s;
            h[u] = x.h;
        }
        return;
    }
    const size_t count = (size_t)units;
    ISA(add)(4 * count, gates, bias);
    ISA(act)(gate_act, 2 * count, r);
    for (int u = 0; u < units; u++) n[u] += r[u] * q[u];
    ISA(act)(act, count, n);
    INDEPENDENT
    for (int u = 0; u < units; u++) h[u] = (1.0f - z[u]) * n[u] + z[u] * h_prev[u];
}

void ISA(gru_backward)(int units, int act, int gate_act, const float *restrict gates, const float *restrict h_prev,
                       float *restrict dh, float *restrict dz) {
    const float *r = gates, *z = gates + units, *n = gates + 2 * units, *q = gates + 3 * units;
    float *dr = dz, *dzz = dz + units, *dn = dz + 2 * units, *dq = dz + 3 * units;
    if (act == CELL_ACT_TANH && gate_act == CELL_ACT_SIGMOID) {
        INDEPENDENT
        for (int u = 0; u < units; u++) {
            const cell_gru_gates gate = {r[u], z[u], n[u]};
            const cell_gru_backward_result x =
                cell_gru_backward(0, CELL_ACT_TANH, CELL_ACT_SIGMOID, gate, q[u], h_prev[u], dh[u], (cell_gru_args){0});
            dr[u] = x.dz.r;
            dzz[u] = x.dz.z;
            dn[u] = x.dz.n;
            dq[u] = x.ds_n;
            dh[u] = x.dh_prev;
        }
        return;
    }
    const size_t count = (size_t)units;
    for (int u = 0; u < units; u++) dn[u] = dh[u] * (1.0f - z[u]);
    ISA(act_slope)(act, count, n, dn);
    for (int u = 0; u < units; u++) {
        dr[u] = dn[u] * q[u];
        dzz[u] = dh[u] * (h_prev[u] - n[u]);
        dq[u] = dn[u] * r[u];
        dh[u] *= z[u];
    }
    ISA(act_slope)(gate_act, 2 * count, r, dr);
}

/* ---------------------------------------------------------------------------------------------------------- RNN -- */
void ISA(rnn_forward)(int units, int act, float *restrict gates, const float *restrict bias, float *restrict h) {
    const size_t count = (size_t)units;
    ISA(add)(count, gates, bias);
    ISA(act)(act, count, gates);
    for (int u = 0; u < units; u++) h[u] = gates[u];
}

void ISA(rnn_backward)(int units, int act, const float *restrict gates, const float *restrict dh, float *restrict dz) {
    for (int u = 0; u < units; u++) dz[u] = dh[u];
    ISA(act_slope)(act, (size_t)units, gates, dz);
}
