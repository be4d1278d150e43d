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
 * sum[phase][group][slot] += sum over k of w[k][group][gate][lane] v[k], number k in phase k % phases; of `gates` gates a group
 * every `every`-th one from `from` on. The n-th of them has slot n, the last one slot `last`, of `slots` a group. All but w, v and
 * count are constants: the sums stay in registers. Returns the end of w. */
typedef struct some {
    int from, count, every;
} some;

VF_INLINE const float *multiply(vf *sum, const int groups, const int gates, const some of, const int slots,
                                const int last, const int phases, const float *w, const float *v, int count) {
    const int row = groups * gates * VL, vectors = groups * of.count;
    int k = 0;
    for (; k + phases <= count; k += phases)
#pragma GCC unroll 8
        for (int p = 0; p < phases; p++) {
            const vf x = vf_set(v[k + p]);
#pragma GCC unroll 8
            for (int i = 0; i < vectors; i++) {
                const int group = i / of.count, n = i % of.count;
                vf *to = &sum[(p * groups + group) * slots + (n == of.count - 1 ? last : n)];
                *to = vf_fma(vf_load(w + (group * gates + of.from + n * of.every) * VL), x, *to);
            }
            w += row;
        }
    for (; phases > 1 && k < count; k++) {
        const vf x = vf_set(v[k]);
#pragma GCC unroll 8
        for (int i = 0; i < vectors; i++) {
            const int group = i / of.count, n = i % of.count;
            vf *to = &sum[group * slots + (n == of.count - 1 ? last : n)];
            *to = vf_fma(vf_load(w + (group * gates + of.from + n * of.every) * VL), x, *to);
        }
        w += row;
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

/* Row vectors in, matrix: z = bias + W x + R h. */
typedef struct product {
    const float *w, *bias; /* packed; bias NULL: 0 */
    sli_stream_input x;
    int inputs; /* columns of W */
    const float *h;
    int outputs; /* columns of R */
    float *z;
} product;

/* sum[group][slot] = bias, those of other phases 0, [SUMS] */
VF_INLINE void begin(const form f, const int groups, const product *p, vf *sum) {
#pragma GCC unroll 8
    for (int i = 0; i < SUMS; i++) sum[i] = i < groups * f.slots && p->bias ? vf_load(p->bias + i * VL) : vf_set(0.0f);
}

/* sum[vector] += the other phases', by pairs */
VF_INLINE void end(const int vectors, const int phases, vf *sum) {
#pragma GCC unroll 8
    for (int n = SUMS / vectors / 2; n >= 1; n /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < n * vectors; i++)
            if (n < phases) sum[i] = sum[i] + sum[n * vectors + i];
}

/* One block: sum[group][slot] = its part of z, [SUMS]; moves on to the next one. */
VF_INLINE void block(const form f, const int groups, const int phases, product *p, vf *sum) {
    begin(f, groups, p, sum);
    multiply(sum, groups, f.x_gates, (some){0, f.x_gates, 1}, f.slots, f.x_last, phases,
             p->w + (size_t)p->x.first * (groups * f.x_gates * VL), p->x.x, p->x.count);
    p->w += (size_t)p->inputs * (groups * f.x_gates * VL);
    if (f.h_gates)
        p->w = multiply(sum, groups, f.h_gates, (some){0, f.h_gates, 1}, f.slots, f.h_last, phases, p->w, p->h,
                        p->outputs);
    end(groups * f.slots, phases, sum);
    if (p->bias) p->bias += groups * f.slots * VL;
}

/* The same, z[group][slot][lane] = . */
VF_INLINE void store_block(const form f, const int groups, const int phases, product *p) {
    vf sum[SUMS];
    block(f, groups, phases, p, sum);
#pragma GCC unroll 8
    for (int i = 0; i < groups * f.slots; i++) vf_store(p->z + i * VL, sum[i]);
    p->z += groups * f.slots * VL;
}

/* The block of a cell that begins with group `first`. */
VF_INLINE product block_of(const form f, const sli_stream_op *op, sli_stream_input x, const float *h, float *z,
                           int first) {
    const size_t group = ((size_t)op->inputs * (size_t)f.x_gates + (size_t)op->outputs * (size_t)f.h_gates) * VL;
    const int vectors = first * f.slots * VL;
    return (product){
        op->weights + (size_t)first * group, op->bias + vectors, x, op->inputs, h, op->outputs, z + vectors};
}

/* The first group of a step's i-th block. */
VF_INLINE int first_of_block(const sli_stream_op *op, int i, bool back) {
    return (back ? (op->groups - 1) / op->per_block - i : i) * op->per_block;
}

/* z[group][slot][lane] of a cell. */
VF_INLINE void gates(const form f, const sli_stream_op *op, sli_stream_input x, const float *h, float *z, bool back) {
    for (int i = 0; i * op->per_block < op->groups; i++) {
        const int first = first_of_block(op, i, back);
        product p = block_of(f, op, x, h, z, first);
        if (op->per_block == 2 && first + 1 < op->groups)
            store_block(f, 2, 1, &p);
        else
            store_block(f, 1, 2, &p);
    }
}

VF_INLINE bool is_lstm(const form f) {
    return f.h_last == LSTM.h_last && f.x_last == LSTM.x_last;
}

/* Of a layer of one group sum[n] += W x (`of_h`: R h) of some gates, in `phases`. */
VF_INLINE void some_gates(const form f, const product *p, const bool of_h, const some of, const int phases, vf *sum) {
    const float *w = p->w + (size_t)(of_h ? p->inputs : p->x.first) * (f.x_gates * VL);
    multiply(sum, 1, of_h ? f.h_gates : f.x_gates, of, of.count, of.count - 1, phases, w, of_h ? p->h : p->x.x,
             of_h ? p->outputs : p->x.count);
}

/* z of one gate */
VF_INLINE vf one_gate(const form f, const product *p, const int gate, vf *sum) {
    sum[0] = vf_load(p->bias + gate * VL);
#pragma GCC unroll 4
    for (int i = 1; i < 4; i++) sum[i] = vf_set(0.0f);
    some_gates(f, p, false, (some){gate, 1, 1}, 4, sum);
    some_gates(f, p, true, (some){gate, 1, 1}, 4, sum);
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

/* One group is all: a step is a chain of products and cells. An LSTM's gates are multiplied side by side: to have o behind the others' chain
 * takes loads of h again, which bound vectors of sixteen. */
VF_INLINE void lstm_of_one(const product *p, float *h, float *c, vf *sum) {
#pragma GCC unroll 8
    for (int i = 0; i < SUMS; i++) sum[i] = i < 4 ? vf_load(p->bias + i * VL) : vf_set(0.0f);
    some_gates(LSTM, p, false, (some){0, 4, 1}, 2, sum);
    some_gates(LSTM, p, true, (some){0, 4, 1}, 2, sum);
    end(4, 2, sum);
    const vf new_c = lstm_state(sum, vf_load(c));
    vf_store(h, lstm_output(new_c, sum[3]));
    vf_store(c, new_c);
}

/* A GRU's r comes first, which its chain waits for; the rest is multiplied while that is under way, z last. */
VF_INLINE void gru_of_one(const product *p, float *h, vf *sum, vf *one) {
    const vf r = one_gate(GRU, p, 0, one);
    /* s; W x of n */
#pragma GCC unroll 8
    for (int i = 0; i < SUMS; i++) sum[i] = i % 4 ? vf_set(0.0f) : vf_load(p->bias + (i ? 2 : 3) * VL);
    some_gates(GRU, p, true, (some){2, 1, 1}, 4, sum);
    some_gates(GRU, p, false, (some){2, 1, 1}, 4, sum + 4);
    const vf z[4] = {r, r, (sum[4] + sum[6]) + (sum[5] + sum[7]), (sum[0] + sum[2]) + (sum[1] + sum[3])};
    const vf n = gru_candidate(z);
    vf_store(h, gru_output(n, one_gate(GRU, p, 1, one), vf_load(h)));
}

/* h = , c = of a group, from its z and h' */
VF_INLINE void cell(const form f, const vf *z, const float *before, float *h, float *c) {
    if (is_lstm(f)) {
        const vf new_c = lstm_state(z, vf_load(c));
        vf_store(c, new_c);
        vf_store(h, lstm_output(new_c, z[3]));
    } else {
        vf_store(h, gru_output(gru_candidate(z), z[1], vf_load(before)));
    }
}

/* The usual cell of more than two groups. Cells of a block are computed while the weights of the next one come; h' is read by all blocks, so
 * h waits in `work`. Of short vectors, whose cells take longer than weights, behind all blocks. */
VF_INLINE void usual_of_many(const form f, const sli_stream_op *op, sli_stream_input x, float *h, float *c, float *work,
                             bool back, vf *sum) {
    if (VL < 8) {
        gates(f, op, x, h, work, back);
        for (int g = 0; g < op->groups; g++) {
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) sum[i] = vf_load(work + (g * 4 + i) * VL);
            cell(f, sum, h + g * VL, h + g * VL, c + g * VL);
        }
        return;
    }
    for (int i = 0; i * op->per_block < op->groups; i++) {
        const int first = first_of_block(op, i, back), at = first * VL;
        product p = block_of(f, op, x, h, work, first);
        if (op->per_block == 2 && first + 1 < op->groups) {
            block(f, 2, 1, &p, sum);
            cell(f, sum, h + at, work + at, c + at);
            cell(f, sum + 4, h + at + VL, work + at + VL, c + at + VL);
        } else {
            block(f, 1, 2, &p, sum);
            cell(f, sum, h + at, work + at, c + at);
        }
    }
    for (int g = 0; g < op->groups; g++) vf_store(h + g * VL, vf_load(work + g * VL));
}

/* The usual cell: z stays in registers. */
VF_INLINE void usual(const form f, const sli_stream_op *op, sli_stream_input x, float *h, float *c, float *work,
                     bool back) {
    vf sum[SUMS], one[4]; /* out here: in a loop gcc keeps it in memory */
    if (op->groups > 2) {
        usual_of_many(f, op, x, h, c, work, back, sum);
        return;
    }
    product p = block_of(f, op, x, h, work, 0);
    if (op->groups == 2) {
        block(f, 2, 1, &p, sum);
        cell(f, sum, h, h, c);
        cell(f, sum + 4, h + VL, h + VL, c + VL);
    } else if (is_lstm(f)) {
        lstm_of_one(&p, h, c, sum);
    } else if (op->outputs == VL) { /* a constant: h is loaded once for all gates */
        p.outputs = VL;
        gru_of_one(&p, h, sum, one);
    } else {
        gru_of_one(&p, h, sum, one);
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

static void usual_lstm(const sli_stream_op *op, sli_stream_input x, float *h, float *c, float *work, bool back) {
    usual(LSTM, op, x, h, c, work, back);
}

static void lstm(const sli_stream_op *op, sli_stream_input x, float *h, float *c, float *work, bool back) {
    float *z = work, *m = work + op->groups * 4 * VL, *q = m;
    gates(LSTM, op, x, h, z, back);
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

static void usual_gru(const sli_stream_op *op, sli_stream_input x, float *h, float *c, float *work, bool back) {
    usual(GRU, op, x, h, c, work, back);
}

static void gru(const sli_stream_op *op, sli_stream_input x, float *h, float *c, float *work, bool back) {
    (void)c;
    const int groups = op->groups;
    const bool before = op->options & CELL_RESET_BEFORE;
    float *z = work, *rh = work + groups * 4 * VL, *a = rh + groups * VL;
    if (before)
        gates(GRU_BEFORE, op, x, h, z, back);
    else
        gates(GRU, op, x, h, z, back);
    for (int g = 0; g < groups; g++) {
        activate(op->gate_act, z + g * 4 * VL, 2);
        const float *r = z + g * 4 * VL, *to = before ? h + g * VL : r + 3 * VL;
        EACH_LANE for (int l = 0; l < VL; l++) rh[g * VL + l] = r[l] * to[l];
    }
    if (before) matrix(op->second, op->units, op->units, rh, a);
    for (int g = 0; g < groups; g++) gru_any_cell(op, z + g * 4 * VL, (before ? a : rh) + g * VL, h + g * VL);
}

/* ----------------------------------------------------------------------------------------------------- RNN, dense -- */
static void rnn(const sli_stream_op *op, sli_stream_input x, float *h, float *c, float *work, bool back) {
    (void)c, (void)back;
    plain(PLAIN, (product){op->weights, op->bias, x, op->inputs, h, op->outputs, work}, op->units);
    activate(op->act, work, op->groups);
    keep(op->zone_h, work, h, op->groups);
}

static void dense(const sli_stream_op *op, sli_stream_input x, float *h, float *c, float *work, bool back) {
    (void)c, (void)work, (void)back;
    plain(NO_STATE, (product){.w = op->weights, .bias = op->bias, .x = x, .inputs = op->inputs, .z = h}, op->units);
    activate(op->act, h, op->groups);
}

/* Dense of a few units: weights [unit][inputs], a sum along the inputs for each. x has all inputs. */
static void few(const sli_stream_op *op, sli_stream_input x, float *h, float *c, float *work, bool back) {
    (void)c, (void)work, (void)back;
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

/* y = x, in loads no wider than x was stored by: one that spans two stores waits until both have left for the cache, and a step's last
 * instructions hold up the next step's first ones (LSTM of 16 units on AVX2: 35 of 100 ns). The barrier keeps it from becoming memcpy. */
static void copy(const float *x, int count, float *y) {
    int i = 0;
    for (; i + VL <= count; i += VL) {
        vf_store(y + i, vf_load(x + i));
        __asm__ volatile("" ::: "memory");
    }
    for (; i < count; i++) {
        y[i] = x[i];
        __asm__ volatile("" ::: "memory");
    }
}

#define TABLE2(suffix) sli_stream_isa_##suffix
#define TABLE(suffix) TABLE2(suffix)
#define TEXT2(text) #text
#define TEXT(text) TEXT2(text)
const sli_stream_isa TABLE(SLI_ISA_SUFFIX) = {
    TEXT(SLI_ISA_NAME), VL, usual_lstm, usual_gru, lstm, gru, rnn, dense, few, copy};
