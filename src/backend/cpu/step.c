/* cpu:step: LSTM, GRU and simple RNN, float, forward and backward.
 *
 * Forward, for every fixed chunk of steps: the input projection of the whole chunk is one product, cut over the threads;
 * then each thread takes rows of the batch through all steps of the chunk with no barrier: the recurrent product on
 * weights packed once per update, then the gate loop while the row's gates are in L1.
 * Backward, chunks in the opposite order: rows through the steps (gate derivatives, then dh' = dz R), then the sums over
 * the chunk's time, as products that add to the gradients. With +recompute the gates are not saved: as every h' is known, one
 * product of each kind gives those of a whole chunk, in scratch, before its steps.
 *
 * Bits: the packed product sums each element over k in order whatever rows are taken together, so rows may be dealt out by
 * the number of threads; the products over time are cut by shape and chunk alone. Hence neither threads nor segments of
 * time change a bit.
 *
 * Gates, per step and row: LSTM [4H] i f g o; GRU [4H] r z n q, q = R_n h' + b_rn; RNN [H] h. */
#include <string.h>
#include "backend/cpu/cost.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/sums.h"

/* ----------------------------------------------------------------------------------------------------- layouts -- */
static size_t floats(size_t count) {
    return sli_round_up(count, SLI_ALIGN / sizeof(float));
}

/* Blocks of H in the gate buffer. */
static int width(const sli_problem *p) {
    return p->op == SLI_OP_RNN ? 1 : 4;
}

static bool masked(const sli_problem *p) {
    return p->mask != SLI_MASK_NONE;
}

/* saved: gates of every step, unless they are recomputed; c of every step (LSTM); h of every step where y, being 0 at masked
 * steps, does not hold it. */
typedef struct saved_layout {
    size_t gates, c, h, total; /* offsets in floats */
} saved_layout;

static saved_layout layout_saved(const sli_problem *p) {
    const size_t rows = (size_t)p->steps * (size_t)p->batch, h = (size_t)p->units;
    saved_layout at = {0};
    at.c = p->recompute ? 0 : floats(rows * h * (size_t)width(p));
    at.h = at.c + (p->op == SLI_OP_LSTM ? floats(rows * h) : 0);
    at.total = at.h + (masked(p) ? floats(rows * h) : 0);
    return at;
}

/* Gates of one chunk. */
static size_t chunk_floats(const sli_problem *p, int chunk) {
    return floats((size_t)chunk * (size_t)p->batch * (size_t)p->units * (size_t)width(p));
}

/* Scratch. Inference: gates of one chunk, running c and h. Backward: gradients of one chunk's gates, dc and dh. Recomputed gates
 * of one chunk come after those, forward they are all there is. */
static saved_layout layout_scratch(const sli_problem *p, int chunk) {
    const size_t state = floats((size_t)p->batch * (size_t)p->units);
    saved_layout at = {.c = chunk_floats(p, chunk)};
    at.h = at.c + state;
    at.total = at.h + state;
    return at;
}

/* packed: R for the forward product, R for the backward one, the sum of the biases. GRU: gates r z, then q, apart. */
typedef struct packed_layout {
    int parts, columns[2]; /* gate columns of each part */
    size_t forward[2], backward[2], bias, total;
} packed_layout;

static packed_layout layout_packed(const sli_problem *p, int panel) {
    packed_layout at = {.parts = 1};
    const int gru = p->op == SLI_OP_GRU, h = p->units;
    at.parts = gru ? 2 : 1;
    at.columns[0] = (gru ? 2 : width(p)) * h;
    at.columns[1] = gru ? h : 0;
    size_t offset = 0;
    for (int i = 0; i < at.parts; i++) {
        at.forward[i] = offset;
        offset += floats(sli_isa_packed_floats(panel, h, at.columns[i]));
        at.backward[i] = offset;
        offset += floats(sli_isa_packed_floats(panel, at.columns[i], h));
    }
    at.bias = offset;
    at.total = offset + floats((size_t)width(p) * (size_t)h);
    return at;
}

/* -------------------------------------------------------------------------------------------------------- call -- */
/* One call, unpacked. Steps are counted from the call's first; order[] of processing is up, or down with reverse. */
typedef struct work {
    const sli_call *call;
    const sli_problem *p;
    const sli_isa_ops *ops;
    int T, B, I, H, W, act, gate_act;
    bool keep, mask;
    int slices; /* of the batch rows */
    int c0, c1; /* the chunk at work: steps c0 <= t < c1 */
    packed_layout pack;
    const float *packed;
    float *gates; /* of step gates_from on */
    int gates_from;
    float *c, *h;   /* [T][B][H] saved, or [B][H] running; h only with masks, or where it runs */
    float *dz;      /* [chunk][B][W*H], of step c0 on */
    float *dh, *dc; /* [B][H] */
} work;

/* At least four rows each: the fewer, the more often the packed weights are read. */
static int slices_of(int batch, int threads) {
    const int most = (batch + 3) / 4;
    return threads < most ? threads : most;
}

static work begin(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const sli_cpu *cpu = sli_cpu_of(call);
    work w = {.call = call, .p = p, .ops = cpu->ops, .T = p->steps, .B = p->batch, .I = p->inputs, .H = p->units};
    w.W = width(p);
    w.act = p->act == SL_ACT_DEFAULT ? SL_ACT_TANH : (int)p->act;
    w.gate_act = p->recurrent_act == SL_ACT_DEFAULT ? SL_ACT_SIGMOID : (int)p->recurrent_act;
    w.keep = p->train;
    w.mask = masked(p);
    w.pack = layout_packed(p, cpu->ops->panel);
    w.packed = call->packed;
    w.slices = slices_of(p->batch, sli_threads_count(call->threads));
    float *base = w.keep ? call->saved : call->scratch;
    const saved_layout at = w.keep ? layout_saved(p) : layout_scratch(p, call->chunk);
    w.gates = p->recompute ? call->scratch : base + at.gates;
    w.c = base + at.c;
    w.h = base + at.h;
    return w;
}

/* Chunk number `index` in order of processing. */
static int chunk_count(const work *w) {
    return (w->T + w->call->chunk - 1) / w->call->chunk;
}

static void enter_chunk(work *w, int index) {
    const int chunk = w->call->chunk, at = w->p->reverse ? chunk_count(w) - 1 - index : index;
    w->c0 = at * chunk;
    w->c1 = w->c0 + chunk < w->T ? w->c0 + chunk : w->T;
    w->gates_from = w->keep && !w->p->recompute ? 0 : w->c0;
}

static size_t state_floats(const work *w) {
    return (size_t)w->B * (size_t)w->H;
}

/* The step processed before t, or -1: then the state is h0, c0. */
static int before(const work *w, int t) {
    return w->p->reverse ? (t + 1 < w->T ? t + 1 : -1) : t - 1;
}

static float *gates_at(const work *w, int t) {
    return w->gates + (size_t)(t - w->gates_from) * state_floats(w) * (size_t)w->W;
}

/* h that the step before t left, [B][H]. */
static const float *h_before(const work *w, int t) {
    const int b = before(w, t);
    if (b < 0) return w->call->in[SLI_RNN_H0];
    if (!w->mask) return (const float *)w->call->out[SLI_RNN_Y] + (size_t)b * state_floats(w);
    return w->keep ? w->h + (size_t)b * state_floats(w) : w->h;
}

static float *c_at(const work *w, int t) {
    return w->keep ? w->c + (size_t)t * state_floats(w) : w->c;
}

static const float *c_before(const work *w, int t) {
    const int b = before(w, t);
    return b < 0 ? w->call->in[SLI_RNN_C0] : c_at(w, b);
}

static bool valid(const work *w, int t, int row) {
    return !w->mask || sli_cpu_valid(w->call, t, row);
}

static void rows_of(const work *w, int slice, int *first, int *last) {
    *first = (int)((long)w->B * slice / w->slices);
    *last = (int)((long)w->B * (slice + 1) / w->slices);
}

/* ----------------------------------------------------------------------------------------------------- forward -- */
/* Row `row` of step t: gates (in: W x + R h', without bias) -> state and y. */
static void forward_row(const work *w, int t, int row, const float *h_prev) {
    const size_t at = (size_t)row * (size_t)w->H, bytes = (size_t)w->H * sizeof(float);
    float *gates = gates_at(w, t) + at * (size_t)w->W;
    float *y = (float *)w->call->out[SLI_RNN_Y] + (size_t)t * state_floats(w) + at;
    float *h = w->mask ? (w->keep ? w->h + (size_t)t * state_floats(w) : w->h) + at : y;
    const float *bias = w->packed + w->pack.bias;
    const bool lstm = w->p->op == SLI_OP_LSTM;
    if (!valid(w, t, row)) {
        memset(y, 0, bytes);
        if (h != h_prev + at) memcpy(h, h_prev + at, bytes);
        if (lstm && c_at(w, t) != c_before(w, t)) memcpy(c_at(w, t) + at, c_before(w, t) + at, bytes);
        return;
    }
    if (lstm)
        w->ops->lstm_forward(w->H, w->act, w->gate_act, gates, bias, c_before(w, t) + at, c_at(w, t) + at, h);
    else if (w->p->op == SLI_OP_GRU)
        w->ops->gru_forward(w->H, w->act, w->gate_act, gates, bias, h_prev + at, h);
    else
        w->ops->rnn_forward(w->H, w->act, gates, bias, h);
    if (h != y) memcpy(y, h, bytes);
}

/* Rows first .. last - 1 of step t: gates += R h'; GRU's q = R_n h' */
static void add_recurrent(const work *w, int t, int first, int last, const float *h_prev) {
    const ptrdiff_t ld = (ptrdiff_t)w->W * w->H;
    float *gates = gates_at(w, t) + first * ld;
    for (int part = 0; part < w->pack.parts; part++) {
        const sli_gemm g = {.m = last - first,
                            .n = w->pack.columns[part],
                            .k = w->H,
                            .a = h_prev + (size_t)first * (size_t)w->H,
                            .am = w->H,
                            .ak = 1,
                            .b = w->packed + w->pack.forward[part],
                            .c = part ? gates + 3 * w->H : gates,
                            .ldc = ld,
                            .add = part == 0};
        w->ops->gemm_packed(&g);
    }
}

static void forward_slice(void *context, int slice) {
    const work *w = context;
    int first, last;
    rows_of(w, slice, &first, &last);
    for (int i = w->c0; i < w->c1; i++) {
        const int t = w->p->reverse ? w->c1 - 1 - (i - w->c0) : i;
        const float *h_prev = h_before(w, t);
        add_recurrent(w, t, first, last, h_prev);
        for (int row = first; row < last; row++) forward_row(w, t, row, h_prev);
    }
}

/* The products over the chunk's time: sums.h. */
static sli_sums sums_of(const work *w) {
    const size_t x_at = (size_t)w->c0 * (size_t)w->B * (size_t)w->I;
    return (sli_sums){.call = w->call,
                      .steps = w->c1 - w->c0,
                      .x = (const float *)w->call->in[SLI_RNN_X] + x_at,
                      .gates = gates_at(w, w->c0),
                      .ld = (ptrdiff_t)w->W * w->H};
}

/* Gates of the chunk = x kernel^T. */
static void project_inputs(const work *w) {
    const sli_sums sums = sums_of(w);
    sli_sums_project(&sums);
}

static void forward(const sli_call *call) {
    work w = begin(call);
    for (int i = 0; i < chunk_count(&w); i++) {
        enter_chunk(&w, i);
        project_inputs(&w);
        sli_threads_for(call->threads, w.slices, forward_slice, &w);
    }
    /* The state after the last step, as the step after it would see it. */
    const size_t bytes = state_floats(&w) * sizeof(float);
    const int last = w.T == 0 ? -1 : w.p->reverse ? 0 : w.T - 1;
    const float *h = last < 0  ? call->in[SLI_RNN_H0]
                     : !w.mask ? (const float *)call->out[SLI_RNN_Y] + (size_t)last * state_floats(&w)
                     : w.keep  ? w.h + (size_t)last * state_floats(&w)
                               : w.h;
    if (call->out[SLI_RNN_HT]) memmove(call->out[SLI_RNN_HT], h, bytes);
    if (w.p->op == SLI_OP_LSTM && call->out[SLI_RNN_CT])
        memmove(call->out[SLI_RNN_CT], last < 0 ? call->in[SLI_RNN_C0] : c_at(&w, last), bytes);
}

/* ---------------------------------------------------------------------------------------------------- backward -- */
static float *dz_at(const work *w, int t) {
    return w->dz + (size_t)(t - w->c0) * state_floats(w) * (size_t)w->W;
}

/* Row `row` of step t: dh, dc (of the state it left) -> dz, and what of dh', dc' does not pass through R. */
static void backward_row(const work *w, int t, int row) {
    const size_t at = (size_t)row * (size_t)w->H, bytes = (size_t)w->H * sizeof(float);
    const float *gates = gates_at(w, t) + at * (size_t)w->W;
    float *dz = dz_at(w, t) + at * (size_t)w->W, *dh = w->dh + at, *dc = w->dc + at;
    if (!valid(w, t, row)) { /* the state was carried: so are dh and dc; y was 0 */
        memset(dz, 0, bytes * (size_t)w->W);
        return;
    }
    const float *dy = w->call->d_out[SLI_RNN_Y];
    if (dy) w->ops->add((size_t)w->H, dh, dy + (size_t)t * state_floats(w) + at);
    if (w->p->op == SLI_OP_GRU) {
        w->ops->gru_backward(w->H, w->act, w->gate_act, gates, h_before(w, t) + at, dh, dz);
        return;
    }
    if (w->p->op == SLI_OP_LSTM)
        w->ops->lstm_backward(w->H, w->act, w->gate_act, gates, c_at(w, t) + at, c_before(w, t) + at, dh, dc, dz);
    else
        w->ops->rnn_backward(w->H, w->act, gates, dh, dz);
    if (w->mask) memset(dh, 0, bytes);
}

/* The step of a chunk that is processed first: its h' may be the segment's initial state, elsewhere than the others'. */
static int edge_of(const work *w) {
    return w->p->reverse ? w->c1 - 1 : w->c0;
}
static int rest_of(const work *w) { /* the others are these and those after them in time */
    return w->p->reverse ? w->c0 : w->c0 + 1;
}

/* Steps that are multiplied together where gates are recomputed: enough rows for each reading of R. */
static int steps_of_task(const work *w) {
    enum { ROWS = 32 };
    return w->B < ROWS ? ROWS / w->B : 1;
}

/* The gates of some steps of the chunk again, in z = W x: the same sums in the same order as forward. What the cell computes
 * beside them goes where dz will lie. */
static void recompute_steps(void *context, int task) {
    const work *w = context;
    const int steps = steps_of_task(w), left = w->c1 - w->c0 - 1 - (task - 1) * steps;
    const int t = task == 0 ? edge_of(w) : rest_of(w) + (task - 1) * steps;
    const int rows = w->B * (task == 0 ? 1 : left < steps ? left : steps);
    const float *h_prev = h_before(w, t), *bias = w->packed + w->pack.bias;
    add_recurrent(w, t, 0, rows, h_prev);
    for (int row = 0; row < rows; row++) {
        const size_t at = (size_t)row * (size_t)w->H;
        float *gates = gates_at(w, t) + at * (size_t)w->W, *unused = dz_at(w, t) + at * (size_t)w->W;
        if (!valid(w, t + row / w->B, row % w->B)) continue;
        if (w->p->op == SLI_OP_LSTM)
            w->ops->lstm_forward(w->H, w->act, w->gate_act, gates, bias, c_before(w, t) + at, unused, unused + w->H);
        else if (w->p->op == SLI_OP_GRU)
            w->ops->gru_forward(w->H, w->act, w->gate_act, gates, bias, h_prev + at, unused);
        else
            w->ops->rnn_forward(w->H, w->act, gates, bias, unused);
    }
}

static void recompute_gates(const work *w) {
    const int rest = w->c1 - w->c0 - 1, steps = steps_of_task(w);
    project_inputs(w);
    sli_threads_for(w->call->threads, 1 + (rest + steps - 1) / steps, recompute_steps, (void *)w);
}

static void backward_slice(void *context, int slice) {
    const work *w = context;
    int first, last;
    rows_of(w, slice, &first, &last);
    const ptrdiff_t ld = (ptrdiff_t)w->W * w->H;
    for (int i = w->c0; i < w->c1; i++) {
        const int t = w->p->reverse ? i : w->c1 - 1 - (i - w->c0);
        for (int row = first; row < last; row++) backward_row(w, t, row);
        /* Masked rows carry dh and GRU's dh' has a pointwise part: then += */
        const bool add = w->mask || w->p->op == SLI_OP_GRU;
        const float *dz = dz_at(w, t) + first * ld;
        for (int part = 0; part < w->pack.parts; part++) {
            const sli_gemm g = {.m = last - first,
                                .n = w->H,
                                .k = w->pack.columns[part],
                                .a = part ? dz + 3 * w->H : dz,
                                .am = ld,
                                .ak = 1,
                                .b = w->packed + w->pack.backward[part],
                                .c = w->dh + (size_t)first * (size_t)w->H,
                                .ldc = w->H,
                                .add = add || part > 0};
            w->ops->gemm_packed(&g);
        }
    }
}

/* The sums over the chunk's time, and d x. */
static void backward_sums(const work *w) {
    const bool gru = w->p->op == SLI_OP_GRU;
    float *dx = w->call->d_in[SLI_RNN_X];
    sli_sums sums = sums_of(w);
    sums.dz = w->dz;
    sums.input[0] = (sli_gates){.count = sli_op_gates(w->p->op)};
    sums.recurrent[0] = (sli_gates){.count = gru ? 2 : w->W};
    if (gru) sums.recurrent[1] = (sli_gates){.from = 3, .to = 2, .count = 1};
    sums.edge = edge_of(w) - w->c0;
    sums.rest = rest_of(w) - w->c0;
    sums.h_edge = h_before(w, edge_of(w));
    if (sums.steps > 1) sums.h_rest = h_before(w, rest_of(w));
    sums.ld_h_edge = sums.ld_h_rest = w->H;
    if (dx) sums.dx = dx + (size_t)w->c0 * (size_t)w->B * (size_t)w->I;
    sums.add_dx = w->call->accumulate >> SLI_RNN_X & 1;
    sli_sums_backward(&sums);
}

static void backward(const sli_call *call) {
    work w = begin(call);
    const saved_layout at = layout_scratch(w.p, call->chunk);
    w.dz = (float *)call->scratch + at.gates;
    w.dc = (float *)call->scratch + at.c;
    w.dh = (float *)call->scratch + at.h;
    if (w.p->recompute) w.gates = (float *)call->scratch + at.total;
    sli_state_load(w.dh, call->d_out[SLI_RNN_HT], state_floats(&w));
    sli_state_load(w.dc, w.p->op == SLI_OP_LSTM ? call->d_out[SLI_RNN_CT] : NULL, state_floats(&w));
    for (int i = chunk_count(&w) - 1; i >= 0; i--) {
        enter_chunk(&w, i);
        if (w.p->recompute) recompute_gates(&w);
        sli_threads_for(call->threads, w.slices, backward_slice, &w);
        backward_sums(&w);
    }
    sli_state_store(call, SLI_RNN_H0, w.dh, state_floats(&w));
    if (w.p->op == SLI_OP_LSTM) sli_state_store(call, SLI_RNN_C0, w.dc, state_floats(&w));
}

/* -------------------------------------------------------------------------------------------------------- pack -- */
static void pack(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const sli_isa_ops *ops = sli_cpu_of(call)->ops;
    const packed_layout at = layout_packed(p, ops->panel);
    const float *r = call->param[SLI_RNN_RECURRENT], *b = call->param[SLI_RNN_BIAS];
    const float *rb = call->param[SLI_RNN_RECURRENT_BIAS];
    float *packed = call->packed, *bias = packed + at.bias;
    const int h = p->units, gates = sli_op_gates(p->op);
    for (int i = 0; i < at.parts; i++) {
        const float *from = i ? r + (size_t)2 * (size_t)h * (size_t)h : r; /* rows of the gates of this part */
        ops->pack(packed + at.forward[i], h, at.columns[i], from, 1, h);
        ops->pack(packed + at.backward[i], at.columns[i], h, from, h, 1);
    }
    memset(bias, 0, (size_t)width(p) * (size_t)h * sizeof *bias);
    for (int j = 0; j < gates * h; j++) {
        if (b) bias[j] += b[j];
        if (rb) bias[p->op == SLI_OP_GRU && j >= 2 * h ? j + h : j] += rb[j];
    }
    if (p->op == SLI_OP_LSTM && p->forget_at_run)
        for (int j = h; j < 2 * h; j++) bias[j] += (float)p->forget_bias;
}

/* --------------------------------------------------------------------------------------------------------- row -- */
static bool eligible(const sli_problem *p, const sli_caps *caps, sli_why *why) {
    (void)caps;
    NEED(p->dtype == SL_F32, "cpu:step computes f32, not %s", sli_dtype_name(p->dtype));
    NEED(p->layers == 1, "cpu:step takes one layer at a time, not a stack of %d", p->layers);
    NEED(!p->bidirectional, "cpu:step takes one direction at a time");
    NEED(p->projection == 0, "cpu:step has no projection (p%d)", p->projection);
    NEED(!p->peephole, "cpu:step has no peepholes");
    NEED(!p->reset_before, "cpu:step has GRU with reset after the product, not before");
    NEED(p->cell_clip == 0, "cpu:step does not clip the cell (clip=%g)", p->cell_clip);
    NEED(p->recurrent_dropout == 0, "cpu:step has no recurrent dropout (rdrop=%g)", p->recurrent_dropout);
    NEED(p->zoneout_h == 0 && p->zoneout_c == 0, "cpu:step has no zoneout (zoneout_h=%g, zoneout_c=%g)", p->zoneout_h,
         p->zoneout_c);
    NEED(!p->masked_repeat || !masked(p), "cpu:step writes 0 at masked steps, it does not repeat the last output");
    return true;
}

/* Beside what cpu:fused takes: its products, whose results go through memory, and its cells, a row at a time. */
static const double speed = 0.8, cells = 1.5;

/* 2 flops a multiply-add; backward does the products twice. 30 flops for a unit's gates. */
static void cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    const double rows = (double)p->batch * p->steps, gates = sli_op_gates(p->op) * (double)p->units;
    const double forward_flops = rows * (2.0 * gates * (p->inputs + p->units) + 30.0 * p->units);
    const double weights = gates * (p->inputs + p->units) * 4.0,
                 moved = rows * (p->inputs + p->units + 2 * gates) * 4.0;
    const int passes = !p->train ? 1 : p->recompute ? 4 : 3;
    cost->flops = passes * forward_flops;
    cost->bytes = passes * (weights + moved);
}

static double pass_seconds(const sli_problem *p, const sli_cpu_machine *m, bool backward) {
    const int chunk = sli_chunk_steps(p->batch, p->steps), chunks = chunk > 0 ? (p->steps + chunk - 1) / chunk : 0;
    const int slices = slices_of(p->batch, m->threads), rows = (p->batch + slices - 1) / slices;
    const double gates = (double)sli_op_gates(p->op) * p->units, weights = gates * p->units;
    const sli_cost_panels panels = {.threads = slices,
                                    .rows = rows,
                                    .flops = 2.0 * rows * weights,
                                    .bytes = weights * sizeof(float),
                                    .all_bytes = weights * sizeof(float),
                                    .speed = speed};
    const double step = sli_cost_step(m, &panels) + sli_cost_entry(m, backward) +
                        cells * rows * p->units * sli_cost_cell(m, p->op, backward) + sli_cost_team(m, slices) / chunk;
    const double chunk_rows = (double)chunk * p->batch;
    return p->steps * step + chunks * (backward ? sli_cost_inputs(m, p, chunk_rows) + sli_cost_sums(m, p, chunk_rows)
                                                : sli_cost_product(m, p->dtype, chunk_rows, gates, p->inputs));
}

static double seconds(const sli_problem *p, const sli_caps *caps) {
    const sli_cpu_machine machine = sli_cpu_machine_of(caps);
    double sum = pass_seconds(p, &machine, false);
    if (p->recompute) sum += pass_seconds(p, &machine, false);
    return sum + (p->train ? pass_seconds(p, &machine, true) : 0);
}

static void book(const sli_problem *p, const sli_caps *caps, int chunk, sli_booking *booking) {
    sli_cpu cpu;
    sli_cpu_engine(caps->isa, false, &cpu);
    const size_t scratch = layout_scratch(p, chunk).total * sizeof(float);
    booking->saved = p->train ? layout_saved(p).total * sizeof(float) : 0;
    const size_t gates = p->recompute ? chunk_floats(p, chunk) * sizeof(float) : 0;
    const size_t products = sli_cpu_products_bytes(p, chunk);
    booking->scratch_forward = (p->train ? gates : scratch) + products;
    booking->scratch_backward = p->train ? scratch + gates + products : 0;
    booking->packed = layout_packed(p, cpu.ops->panel).total * sizeof(float);
}

#define STEP_ROW(OP)                                                                                              \
    {                                                                                                             \
        .name = "cpu:step", .op = OP, .device = SLI_DEVICE_CPU, .eligible = eligible, .cost = cost, .book = book, \
        .seconds = seconds, .pack = pack, .forward = forward, .backward = backward, .takes_recompute = true,      \
        .backward_reads_in = 1u << SLI_RNN_X | 1u << SLI_RNN_H0 | (OP == SLI_OP_LSTM ? 1u << SLI_RNN_C0 : 0u) |   \
                             1u << SLI_RNN_LENGTHS | 1u << SLI_RNN_MASK,                                          \
        .backward_reads_out = 1u << SLI_RNN_Y                                                                     \
    }

const sli_kernel sli_cpu_step_lstm = STEP_ROW(SLI_OP_LSTM);
const sli_kernel sli_cpu_step_gru = STEP_ROW(SLI_OP_GRU);
const sli_kernel sli_cpu_step_rnn = STEP_ROW(SLI_OP_RNN);
