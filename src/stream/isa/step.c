/* One step of a layer, batch 1, for the instruction set that this file is compiled for. */
#include <math.h>

#include "backend/cpu/isa/vector.h"
#include "cell/activations.h"
#include "stream/isa/cells.h"
#include "stream/kernels.h"

enum { SUMS = 8 };
/* Before a loop over lanes: compilers shall make it vectors, not single numbers. */
#define EACH_LANE _Pragma("GCC unroll 1")

/* ------------------------------------------------------------------------------------------------------- products --
 * sum[phase][group][slot] += sum over k of w[k][group][gate][lane] v[k], number k in phase k % phases. Gate g has slot g, the
 * last one slot `last`, of `slots` a group. All but w, v and count are constants: the sums stay in registers. */
VF_INLINE const float *multiply(vf *sum, const int groups, const int gates, const int slots, const int last,
                                const int phases, const float *w, const float *v, int count) {
    const int vectors = groups * gates;
    int k = 0;
    for (; k + phases <= count; k += phases)
#pragma GCC unroll 8
        for (int p = 0; p < phases; p++) {
            const vf x = vf_set(v[k + p]);
#pragma GCC unroll 8
            for (int i = 0; i < vectors; i++) {
                vf *to = &sum[(p * groups + i / gates) * slots + (i % gates == gates - 1 ? last : i % gates)];
                *to = vf_fma(vf_load(w), x, *to);
                w += VL;
            }
        }
    for (; phases > 1 && k < count; k++) {
        const vf x = vf_set(v[k]);
#pragma GCC unroll 8
        for (int i = 0; i < vectors; i++) {
            vf *to = &sum[i / gates * slots + (i % gates == gates - 1 ? last : i % gates)];
            *to = vf_fma(vf_load(w), x, *to);
            w += VL;
        }
    }
    return w;
}

/* What differs between the matrices of cells: numbers of a unit in z; gates in x's part and in h's, and the slot of each
 * part's last gate. Constants. */
typedef struct form {
    int slots, x_gates, x_last, h_gates, h_last;
} form;
#define LSTM ((form){4, 4, 3, 4, 3})
#define GRU ((form){4, 3, 2, 3, 3})
#define GRU_BEFORE ((form){4, 3, 2, 2, 1})
#define PLAIN ((form){1, 1, 0, 1, 0})
#define NO_STATE ((form){1, 1, 0, 0, 0})

VF_INLINE void cell(const form f, const vf *z, float *h, float *c) {
    if (f.h_last == LSTM.h_last && f.x_last == LSTM.x_last)
        lstm_cell(z, h, c);
    else
        gru_cell(z, h);
}

/* Row vectors in, matrix: z = bias + W x + R h. */
typedef struct product {
    const float *w, *bias; /* packed; bias NULL: 0 */
    sli_stream_input x;
    int inputs; /* columns of W */
    const float *h;
    int outputs; /* columns of R */
    float *z;
} product;

/* One block: sum[group][slot] = its part of z, [SUMS]; moves on to the next one. */
VF_INLINE void block(const form f, const int groups, const int phases, product *p, vf *sum) {
    const int vectors = groups * f.slots;
#pragma GCC unroll 8
    for (int i = 0; i < SUMS; i++) sum[i] = i < vectors && p->bias ? vf_load(p->bias + i * VL) : vf_set(0.0f);
    multiply(sum, groups, f.x_gates, f.slots, f.x_last, phases, p->w + (size_t)p->x.first * (groups * f.x_gates * VL),
             p->x.x, p->x.count);
    p->w += (size_t)p->inputs * (groups * f.x_gates * VL);
    if (f.h_gates) p->w = multiply(sum, groups, f.h_gates, f.slots, f.h_last, phases, p->w, p->h, p->outputs);
#pragma GCC unroll 8
    for (int n = SUMS / vectors / 2; n >= 1; n /= 2) /* phases by pairs */
#pragma GCC unroll 8
        for (int i = 0; i < n * vectors; i++)
            if (n < phases) sum[i] = sum[i] + sum[n * vectors + i];
    if (p->bias) p->bias += vectors * VL;
}

/* The same, z[group][slot][lane] = . */
VF_INLINE void store_block(const form f, const int groups, const int phases, product *p) {
    vf sum[SUMS];
    block(f, groups, phases, p, sum);
#pragma GCC unroll 8
    for (int i = 0; i < groups * f.slots; i++) vf_store(p->z + i * VL, sum[i]);
    p->z += groups * f.slots * VL;
}

/* z[group][slot][lane] of a cell. */
VF_INLINE void gates(const form f, const sli_stream_op *op, sli_stream_input x, const float *h, float *z) {
    product p = {op->weights, op->bias, x, op->inputs, h, op->outputs, z};
    for (int left = op->groups; left >= 2; left -= 2) store_block(f, 2, 1, &p);
    if (op->groups % 2) store_block(f, 1, 2, &p);
}

/* The usual cell. Where there is one block, z stays in registers. */
VF_INLINE void usual(const form f, const sli_stream_op *op, sli_stream_input x, float *h, float *c, float *z) {
    vf sum[SUMS];
    product p = {op->weights, op->bias, x, op->inputs, h, op->outputs, z};
    if (op->groups == 1) {
        block(f, 1, 2, &p, sum);
        cell(f, sum, h, c);
    } else if (op->groups == 2) {
        block(f, 2, 1, &p, sum);
        cell(f, sum, h, c);
        cell(f, sum + 4, h + VL, c + VL);
    } else {
        gates(f, op, x, h, z);
        for (int g = 0; g < op->groups; g++, z += 4 * VL) {
            for (int i = 0; i < 4; i++) sum[i] = vf_load(z + i * VL);
            cell(f, sum, h + g * VL, c + g * VL);
        }
    }
}

/* z[unit], where a unit has one number; `units` of them. */
VF_INLINE void plain(const form f, product p, int units) {
    const int vectors = (units + VL - 1) / VL;
    for (int left = vectors; left >= 8; left -= 8) store_block(f, 8, 1, &p);
    if (vectors & 4) store_block(f, 4, 2, &p);
    if (vectors & 2) store_block(f, 2, 4, &p);
    if (vectors & 1) store_block(f, 1, 8, &p);
}

/* y[rows] = M v, M [rows][columns] packed. */
static void matrix(const float *packed, int rows, int columns, const float *v, float *y) {
    plain(NO_STATE, (product){.w = packed, .x = {v, 0, columns}, .inputs = columns, .z = y}, rows);
}

/* ---------------------------------------------------------------------------------------------------- activations -- */
/* x[vectors][lane] = act(x) */
static void activate(int act, float *restrict x, int vectors) {
    const int n = vectors * VL;
    switch (act) {
#define ACT(A)                                                \
    case A:                                                   \
        for (int i = 0; i < n; i++) x[i] = cell_act(A, x[i]); \
        break;
        ACT(CELL_ACT_TANH)
        ACT(CELL_ACT_SIGMOID)
        ACT(CELL_ACT_RELU)
        ACT(CELL_ACT_HARD_SIGMOID)
        ACT(CELL_ACT_HARD_SIGMOID_K2)
        ACT(CELL_ACT_SOFTSIGN)
#undef ACT
    default:
        break;
    }
}

/* h = zone_h h' + (1 - zone_h) q */
static void keep(float zone, const float *restrict q, float *restrict h, int vectors) {
    for (int i = 0; i < vectors * VL; i++) h[i] = zone * h[i] + (1.0f - zone) * q[i];
}

/* ----------------------------------------------------------------------------------------------------------- LSTM -- */
/* Any activation and option, one group: see cell/lstm.h. m = o act(v) */
static void lstm_any_cell(const sli_stream_op *op, const float *restrict peephole, float *restrict z, float *restrict c,
                          float *restrict m) {
    float *i = z, *f = z + VL, *g = z + 2 * VL, *o = z + 3 * VL;
    const int padded = op->groups * VL;
    const float clip = op->options & CELL_CLIP ? op->clip : INFINITY, zone = op->zone_c;
    float v[VL];
    const int with_peephole = peephole ? VL : 0;
    EACH_LANE for (int l = 0; l < with_peephole; l++) {
        i[l] += peephole[l] * c[l];
        f[l] += peephole[padded + l] * c[l];
    }
    activate(op->gate_act, z, 2);
    activate(op->act, g, 1);
    EACH_LANE for (int l = 0; l < VL; l++) v[l] = cell_clamp(f[l] * c[l] + i[l] * g[l], -clip, clip);
    EACH_LANE for (int l = 0; l < with_peephole; l++) o[l] += peephole[2 * padded + l] * v[l];
    activate(op->gate_act, o, 1);
    EACH_LANE for (int l = 0; l < VL; l++) c[l] = zone * c[l] + (1.0f - zone) * v[l];
    activate(op->act, v, 1);
    EACH_LANE for (int l = 0; l < VL; l++) m[l] = o[l] * v[l];
}

static void usual_lstm(const sli_stream_op *op, sli_stream_input x, float *h, float *c, float *work) {
    usual(LSTM, op, x, h, c, work);
}

static void lstm(const sli_stream_op *op, sli_stream_input x, float *h, float *c, float *work) {
    float *z = work, *m = work + op->groups * 4 * VL, *q = m;
    gates(LSTM, op, x, h, z);
    for (int g = 0; g < op->groups; g++)
        lstm_any_cell(op, op->peephole ? op->peephole + g * VL : NULL, z + g * 4 * VL, c + g * VL, m + g * VL);
    if (op->options & CELL_PROJECTION) {
        q = m + op->groups * VL;
        matrix(op->second, op->outputs, op->units, m, q);
    }
    keep(op->zone_h, q, h, (op->outputs + VL - 1) / VL);
}

/* ------------------------------------------------------------------------------------------------------------ GRU -- */
/* Any activation and option, one group, r and z activated: n = act(u + a), a = r s, or, reset before, s itself. */
static void gru_any_cell(const sli_stream_op *op, const float *restrict z, const float *restrict a, float *restrict h) {
    const float zone = op->zone_h;
    float n[VL];
    EACH_LANE for (int l = 0; l < VL; l++) n[l] = z[2 * VL + l] + a[l];
    activate(op->act, n, 1);
    EACH_LANE for (int l = 0; l < VL; l++) {
        const float q = (1.0f - z[VL + l]) * n[l] + z[VL + l] * h[l];
        h[l] = zone * h[l] + (1.0f - zone) * q;
    }
}

static void usual_gru(const sli_stream_op *op, sli_stream_input x, float *h, float *c, float *work) {
    usual(GRU, op, x, h, c, work);
}

static void gru(const sli_stream_op *op, sli_stream_input x, float *h, float *c, float *work) {
    (void)c;
    const int groups = op->groups;
    const bool before = op->options & CELL_RESET_BEFORE;
    float *z = work, *rh = work + groups * 4 * VL, *a = rh + groups * VL;
    if (before)
        gates(GRU_BEFORE, op, x, h, z);
    else
        gates(GRU, op, x, h, z);
    for (int g = 0; g < groups; g++) {
        activate(op->gate_act, z + g * 4 * VL, 2);
        const float *r = z + g * 4 * VL, *to = before ? h + g * VL : r + 3 * VL;
        EACH_LANE for (int l = 0; l < VL; l++) rh[g * VL + l] = r[l] * to[l];
    }
    if (before) matrix(op->second, op->units, op->units, rh, a);
    for (int g = 0; g < groups; g++) gru_any_cell(op, z + g * 4 * VL, (before ? a : rh) + g * VL, h + g * VL);
}

/* ----------------------------------------------------------------------------------------------------- RNN, dense -- */
static void rnn(const sli_stream_op *op, sli_stream_input x, float *h, float *c, float *work) {
    (void)c;
    plain(PLAIN, (product){op->weights, op->bias, x, op->inputs, h, op->outputs, work}, op->units);
    activate(op->act, work, op->groups);
    keep(op->zone_h, work, h, op->groups);
}

static void dense(const sli_stream_op *op, sli_stream_input x, float *h, float *c, float *work) {
    (void)c, (void)work;
    plain(NO_STATE, (product){.w = op->weights, .bias = op->bias, .x = x, .inputs = op->inputs, .z = h}, op->units);
    activate(op->act, h, op->groups);
}

/* Dense of a few units: weights [unit][inputs], a sum along the inputs for each. x has all inputs. */
static void few(const sli_stream_op *op, sli_stream_input x, float *h, float *c, float *work) {
    (void)c, (void)work;
    for (int u = 0; u < op->units; u++) {
        const float *w = op->weights + (size_t)u * (size_t)op->inputs;
        vf sum[4] = {vf_set(0.0f), vf_set(0.0f), vf_set(0.0f), vf_set(0.0f)};
        float lane[VL], rest = op->bias[u];
        int k = 0;
        for (; k + 4 * VL <= op->inputs; k += 4 * VL)
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) sum[i] = vf_fma(vf_load(w + k + i * VL), vf_load(x.x + k + i * VL), sum[i]);
        for (; k + VL <= op->inputs; k += VL) sum[0] = vf_fma(vf_load(w + k), vf_load(x.x + k), sum[0]);
        for (; k < op->inputs; k++) rest += w[k] * x.x[k];
        for (int i = 1; i < 4; i++) sum[0] = vf_fma(vf_set(1.0f), sum[i], sum[0]);
        vf_store(lane, sum[0]);
        for (int n = VL / 2; n >= 1; n /= 2)
            for (int l = 0; l < n; l++) lane[l] += lane[n + l];
        h[u] = lane[0] + rest;
    }
    activate(op->act, h, op->groups);
}

#define TABLE2(suffix) sli_stream_isa_##suffix
#define TABLE(suffix) TABLE2(suffix)
#define TEXT2(text) #text
#define TEXT(text) TEXT2(text)
const sli_stream_isa TABLE(SLI_ISA_SUFFIX) = {
    TEXT(SLI_ISA_NAME), VL, usual_lstm, usual_gru, lstm, gru, rnn, dense, few};
