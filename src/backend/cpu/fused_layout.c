/* Where the memory of cpu:fused is, and one call unpacked. */
#include <string.h>
#include "backend/cpu/fused.h"
#include "cell/lstm.h"

int sli_fused_stages(const sli_problem *p) {
    return p->reset_before || p->projection > 0 ? 2 : 1;
}

int sli_fused_stage_gate(const sli_problem *p, int stage) {
    return p->reset_before && stage > 0 ? 2 : 0;
}

int sli_fused_stage_gates(const sli_problem *p, int stage) {
    if (stage > 0) return 1;
    return p->reset_before ? 2 : sli_op_gates(p->op);
}

int sli_fused_stage_block(const sli_problem *p, int stage) {
    return p->op == SLI_OP_GRU && stage == sli_fused_stages(p) - 1 ? 1 : 0;
}

bool sli_fused_multiplies_dq(const sli_problem *p, int stage) {
    return p->projection > 0 && stage == 0;
}

int sli_fused_width(const sli_problem *p) {
    return p->op == SLI_OP_RNN ? 1 : p->reset_before ? 3 : 4;
}

bool sli_fused_masked(const sli_problem *p) {
    return p->mask != SLI_MASK_NONE;
}

bool sli_fused_repeats(const sli_problem *p) {
    return p->masked_repeat && sli_fused_masked(p);
}

/* dz of GRU: n r z s, or, with reset before the product, n r z. */
void sli_fused_input_gates(const sli_problem *p, sli_gates gates[2]) {
    const bool gru = p->op == SLI_OP_GRU;
    gates[0] = gru ? (sli_gates){.from = 1, .to = 0, .count = 2} : (sli_gates){.count = sli_op_gates(p->op)};
    gates[1] = gru ? (sli_gates){.from = 0, .to = 2, .count = 1} : (sli_gates){0};
}

/* Three or four gates fill a panel; of fewer, several groups of units. Of three or four, the gates of less than a vector of units lie close
 * where that saves a vector: 200 units of an LSTM are 50 vectors of 16, not 52. By shape without the batch: plans of several share weights. */
static sli_fused_panels panels_of(int units, int gates, int k, const sli_panel_ops *ops) {
    enum { VECTORS = 4 };
    const int lanes = ops->lanes, groups = (units + lanes - 1) / lanes, side = VECTORS / gates, rest = groups % side;
    const int left = units % lanes, close = (left * gates + lanes - 1) / lanes;
    sli_fused_panels at = {.k = k, .gates = gates, .all = units, .vectors = side * gates, .count = groups / side};
    at.tail = rest * gates;
    at.units = side * lanes;
    at.gap = lanes;
    if (side == 1 && left > 0 && close < gates) {
        at.count--;
        at.tail = close;
        at.gap = left;
    }
    at.bytes = ops->panel_bytes(k, at.vectors);
    at.tail_bytes = at.tail ? ops->panel_bytes(k, at.tail) : 0;
    return at;
}

sli_fused_panels sli_fused_forward_panels(const sli_problem *p, const sli_panel_ops *ops, int stage) {
    if (p->projection > 0 && stage > 0) return panels_of(p->projection, 1, p->units, ops);
    return panels_of(p->units, sli_fused_stage_gates(p, stage), sli_problem_output(p), ops);
}

sli_fused_panels sli_fused_input_panels(const sli_problem *p, const sli_panel_ops *ops, int stage) {
    const int units = p->projection > 0 && stage > 0 ? 0 : p->units;
    return panels_of(units, sli_fused_stage_gates(p, stage), p->inputs, ops);
}

/* In the opposite order. */
sli_fused_panels sli_fused_backward_panels(const sli_problem *p, const sli_panel_ops *ops, int stage) {
    const int forward = sli_fused_stages(p) - 1 - stage;
    if (p->projection > 0 && forward > 0) return panels_of(p->units, 1, p->projection, ops);
    return panels_of(sli_problem_output(p), 1, sli_fused_stage_gates(p, forward) * p->units, ops);
}

size_t sli_fused_panels_bytes(const sli_fused_panels *panels) {
    return (size_t)panels->count * panels->bytes + panels->tail_bytes;
}

/* The next place of `floats` floats; moves *end behind it. */
static size_t place(size_t *end, size_t floats) {
    const size_t at = *end;
    *end = at + sli_round_up(floats * sizeof(float), SLI_ALIGN);
    return at;
}

/* Rows of f16 are whole lines. */
sli_fused_kept sli_fused_kept_of(const sli_problem *p, const sli_panel_ops *ops) {
    enum { LINE = 32 };
    const sl_activation act = p->act == SL_ACT_DEFAULT ? SL_ACT_TANH : p->act;
    const sl_activation gate = p->recurrent_act == SL_ACT_DEFAULT ? SL_ACT_SIGMOID : p->recurrent_act;
    const bool bounded = act == SL_ACT_TANH && (p->op == SLI_OP_RNN || gate == SL_ACT_SIGMOID);
    const int blocks = sli_fused_width(p), units = (p->units + ops->lanes - 1) / ops->lanes * ops->lanes;
    if (!ops->halves || !bounded) return (sli_fused_kept){.ld = blocks * p->units};
    return (sli_fused_kept){.halves = true, .ld = (blocks * units + LINE - 1) / LINE * LINE};
}

static size_t kept_floats(sli_fused_kept kept, size_t rows) {
    return rows * (size_t)kept.ld / (kept.halves ? 2 : 1);
}

sli_fused_saved sli_fused_saved_of(const sli_problem *p, const sli_panel_ops *ops) {
    const size_t rows = (size_t)p->steps * (size_t)p->batch, states = rows * (size_t)p->units;
    const size_t outputs = rows * (size_t)sli_problem_output(p);
    const bool lstm = p->op == SLI_OP_LSTM;
    sli_fused_saved at = {0};
    const sli_fused_kept kept = sli_fused_kept_of(p, ops);
    at.gates = place(&at.total, p->recompute ? 0 : kept_floats(kept, rows));
    at.c = place(&at.total, lstm ? states : 0);
    at.v = place(&at.total, lstm && p->zoneout_c > 0 ? states : 0);
    at.h = place(&at.total, sli_fused_masked(p) ? outputs : 0);
    at.dropped = place(&at.total, p->recurrent_dropout > 0 ? outputs : 0);
    return at;
}

/* Of bf16, an odd number of lines, to spread over the sets of L1. */
sli_fused_dz sli_fused_dz_of(const sli_problem *p, const sli_panel_ops *ops) {
    enum { LINE = 32, BLOCK = 32 };
    const int last = sli_fused_stages(p) - 1, width = sli_fused_width(p) * p->units;
    const int multiplied = sli_fused_backward_panels(p, ops, last).k;
    if (!ops->halves) return (sli_fused_dz){.ld = width};
    const int zeros = (BLOCK - multiplied % BLOCK) % BLOCK;
    return (sli_fused_dz){.halves = true, .ld = ((width + zeros + LINE - 1) / LINE | 1) * LINE, .zeros = zeros};
}

static size_t dz_floats(const sli_problem *p, const sli_panel_ops *ops, int chunk) {
    enum { TILE = 16 }; /* rows of bf16 are read in tiles */
    const sli_fused_dz dz = sli_fused_dz_of(p, ops);
    const size_t rows = (size_t)chunk * (size_t)p->batch + (dz.halves ? TILE - 1 : 0);
    return rows * (size_t)dz.ld / (dz.halves ? 2 : 1);
}

sli_fused_scratch sli_fused_scratch_of(const sli_problem *p, const sli_panel_ops *ops, int chunk, bool backward) {
    const size_t state = (size_t)p->batch * (size_t)p->units;
    const size_t output = (size_t)p->batch * (size_t)sli_problem_output(p);
    const bool runs = backward || !p->train, lstm = p->op == SLI_OP_LSTM;
    const bool two = !backward && sli_fused_masked(p);
    sli_fused_scratch at = {0};
    const size_t again = kept_floats(sli_fused_kept_of(p, ops), (size_t)chunk * (size_t)p->batch);
    at.gates = place(&at.total, backward ? dz_floats(p, ops, chunk) : 0);
    at.again = place(&at.total, backward && p->recompute ? again : 0);
    at.c = place(&at.total, runs && lstm ? state : 0);
    at.h = place(&at.total, !runs ? 0 : two ? 2 * output : backward ? output : 0);
    at.multiplied =
        place(&at.total, backward && (sli_fused_masked(p) || !(p->recurrent_dropout > 0)) ? (size_t)chunk * output : 0);
    at.drop = place(&at.total, p->train && p->recurrent_dropout > 0 ? output : 0);
    at.fresh_h = place(&at.total, p->train && p->zoneout_h > 0 ? output : 0);
    at.fresh_c = place(&at.total, p->train && p->zoneout_c > 0 ? state : 0);
    at.update = place(&at.total, p->reset_before && !backward ? state : 0);
    at.between = place(&at.total, sli_fused_stages(p) == 1 ? 0 : backward ? (size_t)chunk * state : state);
    at.dq = place(&at.total, p->projection > 0 && backward ? (size_t)chunk * output : 0);
    at.valid_from = place(&at.total, sli_fused_repeats(p) ? (size_t)p->batch : 0);
    const size_t rows = sli_fused_masked(p) ? (size_t)chunk * (size_t)p->batch : 0;
    at.place = place(&at.total, rows);
    at.x = place(&at.total, backward ? rows * (size_t)p->inputs : 0);
    at.dx = place(&at.total, backward ? rows * (size_t)p->inputs : 0);
    sli_gates gates[2];
    sli_fused_input_gates(p, gates);
    for (int i = 0; i < 2; i++)
        at.kernel[i] = place(&at.total, backward ? sli_sums_packed_bytes(p, gates[i].count) / sizeof(float) : 0);
    return at;
}

sli_fused_packed sli_fused_packed_of(const sli_problem *p, const sli_panel_ops *ops) {
    sli_fused_packed at = {0};
    for (int stage = 0; stage < sli_fused_stages(p); stage++) {
        const sli_fused_panels forward = sli_fused_forward_panels(p, ops, stage);
        const sli_fused_panels inputs = sli_fused_input_panels(p, ops, stage);
        const sli_fused_panels backward = sli_fused_backward_panels(p, ops, stage);
        at.forward[stage] = at.total;
        at.inputs[stage] = at.forward[stage] + sli_round_up(sli_fused_panels_bytes(&forward), SLI_ALIGN);
        at.backward[stage] = at.inputs[stage] + sli_round_up(sli_fused_panels_bytes(&inputs), SLI_ALIGN);
        at.total = at.backward[stage] + (p->train ? sli_round_up(sli_fused_panels_bytes(&backward), SLI_ALIGN) : 0);
    }
    at.bias = at.total;
    place(&at.total, (size_t)sli_fused_width(p) * (size_t)p->units);
    return at;
}

size_t sli_fused_operand_bytes(const sli_problem *p, const sli_panel_ops *ops) {
    if (!ops->convert) return 0;
    int k = 0;
    for (int stage = 0; stage < sli_fused_stages(p); stage++) {
        const int forward = sli_fused_forward_panels(p, ops, stage).k;
        const int back = sli_fused_backward_panels(p, ops, stage).k;
        if (forward > k) k = forward;
        if (back > k && p->train && (!ops->halves || stage < sli_fused_stages(p) - 1)) k = back;
    }
    return SLI_FUSED_ROWS * ops->operand_bytes(k);
}

/* -------------------------------------------------------------------------------------------------------- call -- */
static void place_saved(const sli_fused_work *w, sli_fused_direction *d, int index) {
    const sli_fused_saved at = sli_fused_saved_of(w->p, w->panels);
    char *base = (char *)w->call->saved + (size_t)index * at.total;
    d->gates = base + at.gates;
    d->c = (float *)(base + at.c);
    d->v = w->lstm && w->p->zoneout_c > 0 ? (float *)(base + at.v) : NULL;
    d->h = (float *)(base + at.h);
    d->dropped = w->rdrop ? (float *)(base + at.dropped) : NULL;
}

static void place_scratch(const sli_fused_work *w, sli_fused_direction *d, int index, bool backward) {
    const sli_fused_scratch at = sli_fused_scratch_of(w->p, w->panels, w->call->chunk, backward);
    char *base = (char *)w->call->scratch + (size_t)index * at.total;
    if (!w->keep) {
        d->c = (float *)(base + at.c);
        d->h = (float *)(base + at.h);
    }
    if (backward) {
        d->dz = base + at.gates;
        if (w->p->recompute) d->gates = base + at.again;
        for (int i = 0; i < 2; i++) d->kernel[i] = base + at.kernel[i];
        d->multiplied = (float *)(base + at.multiplied);
        d->dc = (float *)(base + at.c);
        d->dh = (float *)(base + at.h);
    }
    d->drop = w->rdrop ? (float *)(base + at.drop) : NULL;
    d->fresh_h = w->call->training && w->p->zoneout_h > 0 ? (float *)(base + at.fresh_h) : NULL;
    d->fresh_c = w->call->training && w->p->zoneout_c > 0 ? (float *)(base + at.fresh_c) : NULL;
    d->update = (float *)(base + at.update);
    d->between = (float *)(base + at.between);
    d->dq = (float *)(base + at.dq);
    d->valid_from = w->repeat ? (int32_t *)(void *)(base + at.valid_from) : NULL;
    d->place = w->mask ? (int32_t *)(void *)(base + at.place) : NULL;
    d->x_valid = (float *)(base + at.x);
    d->dx_valid = (float *)(base + at.dx);
}

static sli_rng rng_of(const sli_call *call, int index, enum sli_purpose purpose) {
    sli_rng rng = sli_call_rng(call, purpose);
    if (index == 1) rng.stream |= SLI_PURPOSE_BACKWARD_DIRECTION;
    return rng;
}

/* d = 0 or 1/(1-p) for each unit of each row: one mask for all steps. */
static void draw_dropout(const sli_fused_work *w, const sli_fused_direction *d, int index) {
    const sli_rng rng = rng_of(w->call, index, SLI_PURPOSE_RECURRENT_DROPOUT);
    const double rate = w->p->recurrent_dropout;
    const size_t count = sli_fused_outputs(w);
    for (size_t i = 0; i < count; i++) d->drop[i] = 1;
    w->ops->dropout(&rng, 0, count, sli_drop_threshold(rate), (float)(1 / (1 - rate)), d->drop, d->drop, false);
}

/* The step of the call that is the row's first valid one in order of processing, negative or behind the call's last where that lies
 * in another segment. A byte mask is one array of which the call sees a part. */
static int valid_from(const sli_fused_work *w, const sli_fused_direction *d, int row) {
    const int first = -w->call->t0, last = w->call->total_steps - 1 - w->call->t0;
    if (d->reverse) {
        int t = last;
        while (t >= first && !sli_cpu_valid(w->call, t, row)) t--;
        return t;
    }
    int t = first;
    while (t <= last && !sli_cpu_valid(w->call, t, row)) t++;
    return t;
}

/* Whether all are 0, of either sign; of others mostly the first few say so. */
static bool is_zero(const float *x, size_t count) {
    enum { LOOK = 64 }; /* numbers between two questions */
    for (size_t i = 0; i < count;) {
        const size_t end = count - i < LOOK ? count : i + LOOK;
        bool other = false;
        for (; i < end; i++) other |= x[i] != 0;
        if (other) return false;
    }
    return true;
}

static sli_fused_direction direction_of(const sli_fused_work *w, int index, bool backward) {
    const sli_call *call = w->call;
    const bool aside = w->directions == 2 && w->p->direction_merge == SL_BI_CONCAT;
    const sli_fused_packed at = sli_fused_packed_of(w->p, w->panels);
    const char *packed = (const char *)call->packed + (size_t)index * at.total;
    const int y = index == 1 && !aside ? SLI_RNN_Y_BACK : SLI_RNN_Y, column = aside ? index * w->O : 0;
    sli_fused_direction d = {.part = index, .reverse = w->directions == 2 ? index == 1 : w->p->reverse};
    d.x = call->in[SLI_RNN_X];
    d.h0 = call->in[SLI_RNN_STATE_IN(index, 0)];
    d.c0 = w->lstm ? call->in[SLI_RNN_STATE_IN(index, 1)] : NULL;
    d.from_zero = !backward && is_zero(d.h0, sli_fused_outputs(w));
    d.ld_y = aside ? 2 * w->O : w->O;
    d.y = (float *)call->out[y] + column;
    if (backward && call->d_out[y]) d.dy = (const float *)call->d_out[y] + column;
    for (int stage = 0; stage < w->stages; stage++) {
        d.forward_panels[stage] = packed + at.forward[stage];
        d.backward_panels[stage] = packed + at.backward[stage];
        d.input_panels[stage] = packed + at.inputs[stage];
    }
    d.bias = (const float *)(const void *)(packed + at.bias);
    d.peephole = call->param[index * SLI_PART_PARAMS + SLI_RNN_PEEPHOLE];
    if (w->keep) place_saved(w, &d, index);
    place_scratch(w, &d, index, backward);
    d.rng_h = rng_of(call, index, SLI_PURPOSE_ZONEOUT_H);
    d.rng_c = rng_of(call, index, SLI_PURPOSE_ZONEOUT_C);
    if (w->rdrop) draw_dropout(w, &d, index);
    for (int row = 0; row < w->B && w->repeat; row++) d.valid_from[row] = valid_from(w, &d, row);
    return d;
}

/* The panels of all stages, as if they were of one product: as many as the stage with the most has, each as wide as the mean. */
typedef struct average {
    int panels, columns, k;
    size_t bytes;
} average;

static average together(const sli_problem *p, const sli_panel_ops *ops,
                        sli_fused_panels (*of)(const sli_problem *, const sli_panel_ops *, int)) {
    average sum = {.panels = 0};
    double products = 0; /* columns times k */
    for (int stage = 0; stage < sli_fused_stages(p); stage++) {
        const sli_fused_panels more = of(p, ops, stage);
        const int panels = sli_fused_all_panels(&more);
        if (stage == 0) sum.k = more.k;
        if (panels > sum.panels) sum.panels = panels;
        sum.bytes += sli_fused_panels_bytes(&more);
        products += (double)(more.count * more.vectors + more.tail) * ops->lanes * more.k;
    }
    const int divisor = sum.panels > 0 ? sum.panels : 1;
    sum.columns = (int)(products / ((double)divisor * sum.k) + 0.5);
    sum.bytes /= (size_t)divisor;
    return sum;
}

sli_fused_split sli_fused_shares(const sli_problem *p, const sli_panel_ops *ops, const sli_cpu_machine *machine,
                                 bool backward) {
    const average panels = together(p, ops, backward ? sli_fused_backward_panels : sli_fused_forward_panels);
    const average inputs = together(p, ops, sli_fused_input_panels);
    const sli_fused_shape shape = {.directions = sli_problem_directions(p),
                                   .batch = p->batch,
                                   .steps = sli_chunk_steps(p->batch, p->steps),
                                   .stages = sli_fused_stages(p),
                                   .panels = panels.panels,
                                   .columns = panels.columns,
                                   .k = panels.k,
                                   .panel_bytes = panels.bytes,
                                   .inputs = backward ? 0 : p->inputs,
                                   .input_panels = inputs.panels,
                                   .input_columns = inputs.columns,
                                   .input_panel_bytes = inputs.bytes,
                                   .input_rows = sli_fused_input_rows(p, ops),
                                   .speed = ops->speed,
                                   .op = p->op,
                                   .backward = backward,
                                   .units = p->units,
                                   .machine = *machine};
    return sli_fused_split_of(&shape);
}

sli_cpu_machine sli_fused_machine(const sli_call *call) {
    const sli_cpu *cpu = sli_cpu_of(call);
    return (sli_cpu_machine){.isa = cpu->isa,
                             .threads = sli_threads_count(call->threads),
                             .l2_bytes = cpu->l2_bytes,
                             .l3_bytes = cpu->l3_bytes,
                             .half_width = cpu->half_width};
}

static sli_fused_split split_of(const sli_fused_work *w, const sli_cpu *cpu, bool backward) {
    sli_cpu_machine machine = sli_fused_machine(w->call);
    if (sli_threads_ready(w->call->threads)) machine = sli_cpu_ready(machine);
    if (!cpu->split) return sli_fused_shares(w->p, w->panels, &machine, backward);
    sli_fused_split split = *cpu->split; /* as far as there is something to share, and threads */
    const int threads = split.units > 1 ? sli_least(machine.threads, SLI_PANEL_QUEUES) : machine.threads;
    split.directions = sli_least(split.directions, sli_least(w->directions, threads));
    split.rows = sli_least(split.rows, sli_least(w->B, threads / split.directions));
    int most = 0;
    for (int stage = 0; stage < w->stages; stage++) {
        const int panels = sli_fused_all_panels(&(backward ? w->backward : w->forward)[stage]);
        if (panels > most) most = panels;
    }
    split.units = sli_least(split.units, sli_least(most, threads / (split.directions * split.rows)));
    return split;
}

static const sli_fused_cell *cell_of(const sli_fused_work *w) {
    const sli_fused_ops *ops = w->ops->fused;
    if (w->p->op == SLI_OP_RNN) return &ops->rnn;
    if (w->lstm) return w->projects ? &ops->lstm_projected : &ops->lstm;
    return w->p->reset_before ? &ops->gru_before : &ops->gru;
}

sli_fused_work sli_fused_begin(const sli_call *call, bool backward) {
    const sli_problem *p = &call->problem;
    const sli_cpu *cpu = sli_cpu_of(call);
    sli_fused_work w = {.call = call, .p = p, .ops = cpu->ops, .panels = sli_cpu_panels_of(call)};
    w.T = p->steps;
    w.B = p->batch;
    w.I = p->inputs;
    w.H = p->units;
    w.O = sli_problem_output(p);
    w.projects = p->projection > 0;
    w.W = sli_fused_width(p);
    w.directions = sli_problem_directions(p);
    w.stages = sli_fused_stages(p);
    w.lstm = p->op == SLI_OP_LSTM;
    w.keep = p->train;
    w.keeps_gates = p->train && (backward || !p->recompute);
    w.mask = sli_fused_masked(p);
    w.repeat = sli_fused_repeats(p);
    w.rdrop = call->training && p->recurrent_dropout > 0;
    w.options = (p->peephole ? CELL_PEEPHOLE : 0u) | (p->cell_clip > 0 ? CELL_CLIP : 0u) |
                (p->zoneout_h > 0 ? CELL_ZONEOUT_H : 0u) | (p->zoneout_c > 0 ? CELL_ZONEOUT_C : 0u);
    w.cell = cell_of(&w);
    for (int stage = 0; stage < w.stages; stage++) {
        w.forward[stage] = sli_fused_forward_panels(p, w.panels, stage);
        w.backward[stage] = sli_fused_backward_panels(p, w.panels, stage);
    }
    w.kept = sli_fused_kept_of(p, w.panels);
    w.from_l2 = cpu->half_width;
    w.dz = sli_fused_dz_of(p, w.panels);
    w.operand_bytes = sli_fused_operand_bytes(p, w.panels);
    w.operands =
        (char *)call->scratch + (size_t)w.directions * sli_fused_scratch_of(p, w.panels, call->chunk, backward).total;
    w.split = split_of(&w, cpu, backward);
    if (!backward) sli_fused_place_inputs(&w);
    for (int i = 0; i < w.directions; i++) w.direction[i] = direction_of(&w, i, backward);
    return w;
}

sli_call sli_fused_call_again(const sli_fused_work *w) {
    const size_t own = sli_fused_scratch_of(w->p, w->panels, w->call->chunk, true).total;
    const size_t operands = (size_t)sli_threads_count(w->call->threads) * w->operand_bytes;
    sli_call again = *w->call;
    again.scratch = (char *)again.scratch + (size_t)w->directions * own + operands;
    return again;
}

sli_fused_work sli_fused_begin_again(const sli_fused_work *w, const sli_call *again) {
    sli_fused_work forward = sli_fused_begin(again, false);
    forward.keeps_gates = true;
    for (int k = 0; k < forward.directions; k++) forward.direction[k].gates = w->direction[k].gates;
    return forward;
}

/* ------------------------------------------------------------------------------------------------------- steps -- */
int sli_fused_chunks(const sli_fused_work *w) {
    return (w->T + w->call->chunk - 1) / w->call->chunk;
}

/* Numbers the valid rows of the chunk. */
static void place_rows(const sli_fused_work *w, sli_fused_direction *d) {
    d->valid = w->mask ? 0 : sli_fused_chunk_rows(w, d);
    for (int t = d->first; t < d->end && w->mask; t++) {
        int32_t *place = d->place + (t - d->first) * w->B;
        for (int row = 0; row < w->B; row++) place[row] = sli_cpu_valid(w->call, t, row) ? d->valid++ : -1;
    }
}

void sli_fused_enter_chunk(sli_fused_work *w, int index) {
    const int chunk = w->call->chunk, count = sli_fused_chunks(w);
    for (int i = 0; i < w->directions; i++) {
        sli_fused_direction *d = &w->direction[i];
        d->first = (d->reverse ? count - 1 - index : index) * chunk;
        d->end = d->first + chunk < w->T ? d->first + chunk : w->T;
        d->step0 = 0;
        d->step1 = d->end - d->first;
        d->gates_from = w->p->recompute ? d->first : 0;
        place_rows(w, d);
    }
}

void sli_fused_enter_piece(sli_fused_work *w, int step0, int step1) {
    w->direction[0].step0 = step0;
    w->direction[0].step1 = step1;
}

int sli_fused_piece_steps(const sli_fused_work *w) {
    int most = 0;
    for (int k = 0; k < w->directions; k++) {
        const int steps = w->direction[k].step1 - w->direction[k].step0;
        if (steps > most) most = steps;
    }
    return most;
}

typedef struct gathering {
    const sli_fused_work *w;
    const sli_fused_direction *d;
} gathering;

/* x of the valid rows of a step. */
static void gather_x(void *context, int index) {
    const gathering *g = context;
    const size_t I = (size_t)g->w->I;
    const float *from = g->d->x + (size_t)(g->d->first + index) * (size_t)g->w->B * I;
    for (int row = 0; row < g->w->B; row++, from += I) {
        const int at = sli_fused_place(g->w, g->d, g->d->first + index, row);
        if (at >= 0) memcpy(g->d->x_valid + (size_t)at * I, from, I * sizeof *from);
    }
}

const float *sli_fused_inputs(const sli_fused_work *w, const sli_fused_direction *d) {
    if (d->valid == sli_fused_chunk_rows(w, d)) return d->x + (size_t)d->first * (size_t)w->B * (size_t)w->I;
    sli_threads_for(sli_cpu_threads(w->call, (double)SLI_MOVED * d->valid * w->I), d->end - d->first, gather_x,
                    &(gathering){w, d});
    return d->x_valid;
}

int sli_fused_step(const sli_fused_direction *d, int i) {
    return d->reverse ? d->end - 1 - i : d->first + i;
}

int sli_fused_before(const sli_fused_work *w, const sli_fused_direction *d, int t) {
    return d->reverse ? (t + 1 < w->T ? t + 1 : -1) : t - 1;
}

size_t sli_fused_state(const sli_fused_work *w) {
    return (size_t)w->B * (size_t)w->H;
}

size_t sli_fused_outputs(const sli_fused_work *w) {
    return (size_t)w->B * (size_t)w->O;
}

void *sli_fused_gates_at(const sli_fused_work *w, const sli_fused_direction *d, int t) {
    const size_t row = (size_t)w->kept.ld * (w->kept.halves ? sizeof(uint16_t) : sizeof(float));
    return (char *)d->gates + (size_t)((w->mask ? d->first : t) - d->gates_from) * (size_t)w->B * row;
}

float *sli_fused_c_at(const sli_fused_work *w, const sli_fused_direction *d, int t) {
    return w->keep ? d->c + (size_t)t * sli_fused_state(w) : d->c;
}

const float *sli_fused_c_before(const sli_fused_work *w, const sli_fused_direction *d, int t) {
    const int b = sli_fused_before(w, d, t);
    return b < 0 ? d->c0 : sli_fused_c_at(w, d, b);
}

/* Without masks h is y; with them it is kept, or runs through two buffers: others may still read the old one. */
float *sli_fused_h_at(const sli_fused_work *w, const sli_fused_direction *d, int t) {
    if (!w->mask) return d->y + (ptrdiff_t)t * w->B * d->ld_y;
    return d->h + (size_t)(w->keep ? t : t & 1) * sli_fused_outputs(w);
}

const float *sli_fused_h_before(const sli_fused_work *w, const sli_fused_direction *d, int t) {
    const int b = sli_fused_before(w, d, t);
    return b < 0 ? d->h0 : sli_fused_h_at(w, d, b);
}

ptrdiff_t sli_fused_ld_h(const sli_fused_work *w, const sli_fused_direction *d, int t) {
    return sli_fused_before(w, d, t) < 0 || w->mask ? w->O : d->ld_y;
}

bool sli_fused_repeated(const sli_fused_work *w, const sli_fused_direction *d, int t, int row) {
    return w->repeat && (d->reverse ? t < d->valid_from[row] : t > d->valid_from[row]);
}
