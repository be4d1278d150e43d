/* cpu:fused: LSTM, GRU and simple RNN, forward and backward, on any instruction set.
 *
 * Forward: threads go through the steps, each with its rows and units. W x of some steps comes first (fused_inputs.c); then, step by
 * step, R h' by panels (isa/panel.h), in which the gates of a unit lie side by side, and the cell on each tile while it is in L1.
 * Backward, by fixed chunks of steps, the last first: dz of a step, then dh' = dz R by panels of R^T; the sums over the chunk's time
 * afterwards, as products (sums.h).
 *
 * Threads share a step by directions, by rows of the batch, which need not wait for each other, or by units, where they lend each other
 * what they have left (fused_split.h, panel_queue.h). Rows that are masked at a step are left out of it.
 *
 * Bits: a column of a panel is summed over k in one order whatever goes with it, and everything else belongs to one unit of one
 * row; products over time are cut by shape. Hence neither threads nor segments of time change a bit. */
#include <stdio.h>
#include <string.h>
#include "backend/cpu/fused.h"
#include "backend/cpu/rows.h"

/* -------------------------------------------------------------------------------------------------------- pack -- */
/* Panels of one matrix, from gate `gate` on: of R [G*H][O], W [G*H][I], W_p [O][H]. Columns of panels are the matrix's rows, a gate H rows
 * behind the last; backward they are its columns. Each of the matrices' rows is in one panel of rows. */
typedef struct matrix {
    sli_fused_panels panels;
    const float *from;
    char *packed; /* where they go */
    bool columns;
} matrix;

enum { MATRICES = 2 * 2 * SLI_FUSED_STAGES }; /* of rows: two a direction and stage */
typedef struct packing {
    const sli_panel_ops *ops;
    const sli_call *call;
    sli_fused_packed at;
    matrix matrix[MATRICES];
    int matrices, panels; /* of all matrices */
} packing;

/* In an optimizer's call: the rows of a panel of rows, a block of each gate. */
static void update_rows(const packing *w, const matrix *m, int panel) {
    const sli_fused_panels *panels = &m->panels;
    const int unit = panel * panels->units, left = panels->all - unit;
    const int64_t width = panels->k, count = (left < panels->units ? left : panels->units) * width;
    const sli_update *update = w->call->update;
    for (int gate = 0; gate < panels->gates; gate++)
        update->apply(update->context, m->from + (gate * (int64_t)w->call->problem.units + unit) * width, count);
}

static void pack_panel(void *context, int panel) {
    const packing *w = context;
    const matrix *m = w->matrix;
    const int lanes = w->ops->lanes;
    for (; panel >= sli_fused_all_panels(&m->panels); m++) panel -= sli_fused_all_panels(&m->panels);
    const sli_fused_panels *panels = &m->panels;
    const ptrdiff_t width = m->columns ? panels->all : panels->k, gate = w->call->problem.units * width;
    if (w->call->update && !m->columns) update_rows(w, m, panel);
    sli_panel_source source = {.k = panels->k,
                               .vectors = panel < panels->count ? panels->vectors : panels->tail,
                               .gap = panel < panels->count ? lanes : panels->gap,
                               .lane_stride = m->columns ? 1 : width,
                               .k_stride = m->columns ? width : 1};
    const int groups = source.gap < lanes ? panels->gates : source.vectors; /* of columns */
    for (int v = 0; v < groups; v++) {
        const int unit = panel * panels->units + v / panels->gates * lanes, left = panels->all - unit;
        source.from[v] = m->from + v % panels->gates * gate + unit * source.lane_stride;
        source.valid[v] = left < lanes ? left : lanes;
    }
    w->ops->pack(m->packed + (size_t)panel * panels->bytes, &source);
}

/* Of a parameter that the call has. */
static void add_matrix(packing *w, sli_fused_panels panels, int part, size_t packed, int param, int gate,
                       bool columns) {
    const float *from = w->call->param[part * SLI_PART_PARAMS + param];
    const ptrdiff_t width = columns ? panels.all : panels.k;
    if (!from) return;
    w->matrix[w->matrices++] = (matrix){.panels = panels,
                                        .from = from + gate * w->call->problem.units * width,
                                        .packed = (char *)w->call->packed + (size_t)part * w->at.total + packed,
                                        .columns = columns};
    w->panels += sli_fused_all_panels(&panels);
}

static void add_stage(packing *w, int part, int stage, bool columns) {
    const sli_problem *p = &w->call->problem;
    const sli_fused_packed *at = &w->at;
    const int back = sli_fused_stages(p) - 1 - stage, gate = sli_fused_stage_gate(p, stage);
    const int param = p->projection > 0 && stage > 0 ? SLI_RNN_PROJECTION : SLI_RNN_RECURRENT;
    if (columns) {
        add_matrix(w, sli_fused_backward_panels(p, w->ops, back), part, at->backward[back], param, gate, true);
        return;
    }
    add_matrix(w, sli_fused_forward_panels(p, w->ops, stage), part, at->forward[stage], param, gate, false);
    add_matrix(w, sli_fused_input_panels(p, w->ops, stage), part, at->inputs[stage], SLI_RNN_KERNEL, gate, false);
}

static void pack_panels(packing *w, bool columns) {
    const sli_problem *p = &w->call->problem;
    w->matrices = w->panels = 0;
    for (int part = 0; part < sli_problem_directions(p); part++)
        for (int stage = 0; stage < sli_fused_stages(p); stage++) add_stage(w, part, stage, columns);
    sli_threads_for(w->call->threads, w->panels, pack_panel, w);
}

/* All that is added to the pre-activations; GRU: r z n s, where b'_n is s's; with reset before the product r z n. */
static void pack_bias(const packing *w, int part) {
    const sli_problem *p = &w->call->problem;
    const void *const *param = w->call->param + part * SLI_PART_PARAMS;
    const float *b = param[SLI_RNN_BIAS], *rb = param[SLI_RNN_RECURRENT_BIAS];
    float *bias = (float *)(void *)((char *)w->call->packed + (size_t)part * w->at.total + w->at.bias);
    const int h = p->units;
    const bool aside = p->op == SLI_OP_GRU && !p->reset_before;
    memset(bias, 0, (size_t)sli_fused_width(p) * (size_t)h * sizeof *bias);
    for (int j = 0; j < sli_op_gates(p->op) * h; j++) {
        if (b) bias[j] += b[j];
        if (rb) bias[aside && j >= 2 * h ? j + h : j] += rb[j];
    }
    if (p->op == SLI_OP_LSTM && p->forget_at_run)
        for (int j = h; j < 2 * h; j++) bias[j] += (float)p->forget_bias;
}

/* A panel of columns is made of all rows: once all panels of rows, which an optimizer updates first, are there. */
void sli_fused_pack(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const sli_panel_ops *ops = sli_cpu_panels_of(call);
    packing w = {.ops = ops, .call = call, .at = sli_fused_packed_of(p, ops)};
    if (!call->copied) {
        pack_panels(&w, false);
        if (p->train) pack_panels(&w, true);
    }
    for (int part = 0; part < sli_problem_directions(p) && !call->update; part++) pack_bias(&w, part);
}

/* --------------------------------------------------------------------------------------------------------- row -- */
static bool eligible(const sli_problem *p, const sli_caps *caps, sli_why *why) {
    NEED(p->dtype == SL_F32 || p->dtype == SL_F32X3 || p->dtype == SL_BF16 || p->dtype == SL_I8,
         "cpu:fused computes f32, f32x3, bf16 and i8, not %s", sli_dtype_name(p->dtype));
    NEED(p->dtype != SL_I8 || !p->train, "8 bits are for inference");
    const int most = p->units > p->projection ? p->units : p->projection;
    NEED(p->dtype != SL_I8 || (p->inputs <= SLI_PANEL_I8_MOST && most <= SLI_PANEL_I8_MOST),
         "sums of more than %d products of 8 bits may not fit into 32 bits (i%d, h%d, p%d)", SLI_PANEL_I8_MOST,
         p->inputs, p->units, p->projection);
    NEED(p->layers == 1, "cpu:fused takes one layer at a time, not a stack of %d", p->layers);
    NEED(!p->bidirectional || !caps->recomputes, "cpu:fused takes both directions only over the whole sequence");
    return true;
}

/* 2 flops a multiply-add; backward does the products twice. 30 flops for a unit's gates. */
static void cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    const double rows = (double)p->batch * p->steps, gates = sli_op_gates(p->op) * (double)p->units;
    const double parts = sli_problem_directions(p);
    const double outputs = sli_problem_output(p), projected = (double)p->projection * p->units;
    const double forward_flops = rows * (2.0 * (gates * (p->inputs + outputs) + projected) + 30.0 * p->units);
    const double weights = (gates * (p->inputs + outputs) + projected) * 4.0,
                 moved = rows * (p->inputs + p->units + 2 * gates) * 4.0;
    const int passes = !p->train ? 1 : p->recompute ? 4 : 3;
    cost->flops = parts * passes * forward_flops;
    cost->bytes = parts * passes * (weights + moved);
}

void sli_fused_book(const sli_problem *p, const sli_panel_ops *ops, int threads, int chunk, sli_booking *booking) {
    const size_t parts = (size_t)sli_problem_directions(p);
    const size_t operands = (size_t)threads * sli_fused_operand_bytes(p, ops);
    booking->saved = p->train ? parts * sli_fused_saved_of(p, ops).total : 0;
    booking->scratch_forward = parts * sli_fused_scratch_of(p, ops, chunk, false).total + operands;
    booking->scratch_forward += sli_fused_input_bytes(p, ops, threads);
    booking->scratch_backward = p->train ? parts * sli_fused_scratch_of(p, ops, chunk, true).total + operands : 0;
    if (p->recompute) booking->scratch_backward += booking->scratch_forward;
    if (p->train) booking->scratch_backward += sli_cpu_products_bytes(p, chunk);
    booking->packed = parts * sli_fused_packed_of(p, ops).total;
}

static void book(const sli_problem *p, const sli_caps *caps, int chunk, sli_booking *booking) {
    sli_cpu cpu;
    sli_cpu_engine(caps->isa, false, &cpu);
    sli_fused_book(p, sli_cpu_panels(&cpu, p), caps->threads, chunk, booking);
}

static int threads_of(const sli_fused_split *split) {
    return split->directions * split->rows * split->units;
}

/* "4 threads, rows by 2, units by 2: 6.9 us a step" */
static void print_split(char text[160], const sli_fused_split *split) {
    const int threads = threads_of(split);
    char directions[40] = "", rows[40] = "", units[40] = "";
    if (split->directions > 1) snprintf(directions, sizeof directions, ", directions by %d", split->directions);
    if (split->rows > 1) snprintf(rows, sizeof rows, ", rows by %d", split->rows);
    if (split->units > 1) snprintf(units, sizeof units, ", units by %d", split->units);
    if (threads == 1)
        snprintf(text, 160, "one thread: %.3g us a step", 1e6 * split->seconds);
    else
        snprintf(text, 160, "%d threads%s%s%s: %.3g us a step", threads, directions, rows, units, 1e6 * split->seconds);
}

/* The split that is planned, and that of calls that find threads ready, where it takes more of them. */
static void print_pass(char text[440], const sli_problem *p, const sli_panel_ops *ops, sli_cpu_machine machine,
                       bool backward) {
    const sli_fused_split split = sli_fused_shares(p, ops, &machine, backward);
    char own[160], others[48] = "", ready[220] = "";
    machine = sli_cpu_ready(machine);
    const sli_fused_split busy = sli_fused_shares(p, ops, &machine, backward);
    print_split(own, &split);
    if (split.others > 0) snprintf(others, sizeof others, ", other ways %.3g or more", 1e6 * split.others);
    if (threads_of(&busy) > threads_of(&split)) {
        char text_of_busy[160];
        print_split(text_of_busy, &busy);
        snprintf(ready, sizeof ready, "; while calls follow each other %s", text_of_busy);
    }
    snprintf(text, 440, "%s%s%s", own, others, ready);
}

static void describe(const sli_problem *p, const sli_caps *caps, char *text, size_t capacity) {
    sli_cpu cpu;
    sli_cpu_engine(caps->isa, false, &cpu);
    const sli_panel_ops *ops = sli_cpu_panels(&cpu, p);
    const sli_cpu_machine machine = sli_cpu_machine_of(caps);
    char forward[440], back[440] = "";
    print_pass(forward, p, ops, machine, false);
    if (p->train) print_pass(back, p, ops, machine, true);
    snprintf(text, capacity, "panels of %s, %d lanes; %s%s%s", ops->name, ops->lanes, forward,
             p->train ? "; backward " : "", back);
}

#define FUSED_ROW(OP)                                                                                              \
    {                                                                                                              \
        .name = "cpu:fused", .op = OP, .device = SLI_DEVICE_CPU, .eligible = eligible, .cost = cost, .book = book, \
        .seconds = sli_fused_seconds, .describe = describe, .pack = sli_fused_pack, .forward = sli_fused_forward,  \
        .backward = sli_fused_backward, .packs_updated = SLI_FUSED_PACKS, .takes_recompute = true,                 \
        .null_states = true,                                                                                       \
        .backward_reads_in = 1u << SLI_RNN_X | 1u << SLI_RNN_H0 | (OP == SLI_OP_LSTM ? 1u << SLI_RNN_C0 : 0u) |    \
                             1u << SLI_RNN_LENGTHS | 1u << SLI_RNN_MASK | 1u << SLI_RNN_STATE_IN(1, 0) |           \
                             1u << SLI_RNN_STATE_IN(1, 1),                                                         \
        .backward_reads_out = 1u << SLI_RNN_Y | 1u << SLI_RNN_Y_BACK                                               \
    }

const sli_kernel sli_cpu_fused_lstm = FUSED_ROW(SLI_OP_LSTM);
const sli_kernel sli_cpu_fused_gru = FUSED_ROW(SLI_OP_GRU);
const sli_kernel sli_cpu_fused_rnn = FUSED_ROW(SLI_OP_RNN);
