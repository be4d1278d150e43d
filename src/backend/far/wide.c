/* far:wide: a row for stacks of layers and for both directions at once, on the test device far:wide. It calls the reference
 * part by part, with the outputs of the layers between in memory of its own: the planner's and the run's handling of wide
 * steps is tested by what must come out of it to the bit. */
#include <stdio.h>
#include <string.h>
#include "backend/far/far.h"

/* ----------------------------------------------------------------------------------------------------- layouts -- */
static size_t element(const sli_problem *p) {
    return p->dtype == SL_F64 ? sizeof(double) : sizeof(float);
}

static bool joins(const sli_problem *p) {
    return p->bidirectional && p->direction_merge == SL_BI_CONCAT;
}

/* Bytes of [t][b][features]. */
static size_t bytes_of(const sli_problem *p, int features) {
    return sli_round_up((size_t)p->steps * (size_t)p->batch * (size_t)features * element(p), SLI_ALIGN);
}

static sli_booking book_of_parts(const sli_problem *p, const sli_caps *caps, int chunk) {
    sli_booking most = {0};
    for (int l = 0; l < p->layers; l++) {
        sli_problem part = sli_problem_part(p, l, 0);
        sli_booking one = {0};
        sli_far_reference(p->op)->book(&part, caps, chunk, &one);
        if (one.saved > most.saved) most.saved = one.saved;
        if (one.scratch_forward > most.scratch_forward) most.scratch_forward = one.scratch_forward;
    }
    most.saved = sli_round_up(most.saved, SLI_ALIGN);
    most.scratch_forward = sli_round_up(most.scratch_forward, SLI_ALIGN);
    return most;
}

/* Outputs (or their gradients) of all parts, then those of each layer but the last with its directions side by side. */
static size_t part_at(const sli_problem *p, int part) {
    return (size_t)part * bytes_of(p, sli_problem_output(p));
}
static size_t joined_at(const sli_problem *p, int layer) {
    int width = sli_problem_output(p) * sli_problem_directions(p);
    return part_at(p, sli_problem_parts(p)) + (size_t)layer * bytes_of(p, width);
}
static size_t sequences(const sli_problem *p) {
    return joined_at(p, p->layers - 1);
}

static void book(const sli_problem *p, const sli_caps *caps, int chunk, sli_booking *booking) {
    sli_booking part = book_of_parts(p, caps, chunk);
    size_t saved = part.saved * (size_t)sli_problem_parts(p);
    booking->saved = p->train ? saved + sequences(p) : 0;
    booking->scratch_forward = part.scratch_forward + (p->train ? 0 : sequences(p));
    booking->scratch_backward = part.scratch_forward + sequences(p);
}

/* -------------------------------------------------------------------------------------------------------- parts -- */
/* Where a call finds its memory. */
typedef struct wide {
    const sli_call *call;
    const sli_kernel *row;
    char *scratch, *saved; /* of the parts; saved NULL without training */
    size_t saved_each;
    char *outputs, *gradients;
} wide;

static wide begin(const sli_call *call) {
    const sli_problem *p = &call->problem;
    sli_caps caps = {.kind = SLI_DEVICE_CPU};
    sli_booking part = book_of_parts(p, &caps, call->chunk);
    wide w = {.call = call, .row = sli_far_reference(p->op), .scratch = call->scratch, .saved_each = part.saved};
    char *after = w.scratch + part.scratch_forward;
    w.saved = p->train ? call->saved : NULL;
    w.outputs = p->train ? w.saved + part.saved * (size_t)sli_problem_parts(p) : after;
    w.gradients = after;
    return w;
}

/* The call of one part without its sequences. */
static sli_call part_call(const wide *w, int layer, int direction) {
    const sli_call *call = w->call;
    int part = layer * sli_problem_directions(&call->problem) + direction;
    sli_call own = *call;
    own.problem = sli_problem_part(&call->problem, layer, direction);
    own.rng_layer = call->rng_layer | (direction ? SLI_PURPOSE_BACKWARD_DIRECTION : 0);
    own.scratch = w->scratch;
    own.saved = w->saved ? w->saved + w->saved_each * (size_t)part : NULL;
    own.accumulate = 0;
    memset(own.fresh, 0, sizeof own.fresh);
    own.fresh[0] = call->fresh[part];
    for (int k = 0; k < 2; k++) {
        own.in[SLI_RNN_H0 + k] = call->in[SLI_RNN_STATE_IN(part, k)];
        own.d_in[SLI_RNN_H0 + k] = call->d_in[SLI_RNN_STATE_IN(part, k)];
        own.out[SLI_RNN_HT + k] = call->out[SLI_RNN_STATE_OUT(part, k)];
        own.d_out[SLI_RNN_HT + k] = call->d_out[SLI_RNN_STATE_OUT(part, k)];
    }
    for (int k = 0; k < SLI_PART_PARAMS; k++) {
        own.param[k] = call->param[part * SLI_PART_PARAMS + k];
        own.d_param[k] = call->d_param[part * SLI_PART_PARAMS + k];
    }
    return own;
}

/* Output of a part: the step's own where nothing is joined after it. */
static void *output_of(const wide *w, int layer, int direction) {
    const sli_problem *p = &w->call->problem;
    if (layer == p->layers - 1 && !joins(p)) return w->call->out[direction ? SLI_RNN_Y_BACK : SLI_RNN_Y];
    return w->outputs + part_at(p, layer * sli_problem_directions(p) + direction);
}

static const void *input_of(const wide *w, int layer) {
    const sli_problem *p = &w->call->problem;
    if (layer == 0) return w->call->in[SLI_RNN_X];
    return joins(p) ? w->outputs + joined_at(p, layer - 1) : output_of(w, layer - 1, 0);
}

/* both[rows][2 O] <-> one direction's [rows][O]. */
static void side_by_side(const sli_problem *p, int direction, char *both, char *one, bool into_both) {
    size_t width = (size_t)sli_problem_output(p) * element(p), rows = (size_t)p->steps * (size_t)p->batch;
    for (size_t r = 0; r < rows; r++) {
        char *half = both + (2 * r + (size_t)direction) * width;
        memcpy(into_both ? half : one + r * width, into_both ? one + r * width : half, width);
    }
}

static void forward(const sli_call *call) {
    const sli_problem *p = &call->problem;
    wide w = begin(call);
    for (int l = 0; l < p->layers; l++)
        for (int d = 0; d < sli_problem_directions(p); d++) {
            sli_call own = part_call(&w, l, d);
            own.in[SLI_RNN_X] = input_of(&w, l);
            own.out[SLI_RNN_Y] = output_of(&w, l, d);
            w.row->forward(&own);
            char *both = l == p->layers - 1 ? call->out[SLI_RNN_Y] : w.outputs + joined_at(p, l);
            if (joins(p)) side_by_side(p, d, both, own.out[SLI_RNN_Y], true);
        }
}

/* Gradient of a part's output, NULL if it is zero. */
static const void *output_gradient(const wide *w, int layer, int direction) {
    const sli_problem *p = &w->call->problem;
    bool last = layer == p->layers - 1;
    const void *given =
        last ? w->call->d_out[direction && !joins(p) ? SLI_RNN_Y_BACK : SLI_RNN_Y] : w->gradients + joined_at(p, layer);
    if (!given || !joins(p)) return given;
    char *one = w->gradients + part_at(p, layer * 2 + direction);
    side_by_side(p, direction, (char *)given, one, false);
    return one;
}

/* Directions as the planner orders separate steps: the backward direction's gradient of x comes first. */
static void backward(const sli_call *call) {
    const sli_problem *p = &call->problem;
    wide w = begin(call);
    for (int l = p->layers - 1; l >= 0; l--)
        for (int count = sli_problem_directions(p), d = count - 1; d >= 0; d--) {
            sli_call own = part_call(&w, l, d);
            own.in[SLI_RNN_X] = input_of(&w, l);
            own.out[SLI_RNN_Y] = output_of(&w, l, d);
            own.d_out[SLI_RNN_Y] = output_gradient(&w, l, d);
            own.d_in[SLI_RNN_X] = l > 0 ? w.gradients + joined_at(p, l - 1) : call->d_in[SLI_RNN_X];
            if (d < count - 1 || (l == 0 && call->accumulate & 1u)) own.accumulate = 1u << SLI_RNN_X;
            sli_far_zero_fresh(&own);
            w.row->backward(&own);
        }
}

/* --------------------------------------------------------------------------------------------------------- rows -- */
static bool eligible(const sli_problem *p, const sli_caps *caps, sli_why *why) {
    sli_problem part = sli_problem_part(p, 0, 0);
    NEED(sli_problem_parts(p) > 1, "far:wide takes stacks and both directions at once, not one layer");
    NEED(sli_problem_parts(p) <= SLI_MAX_PARTS, "far:wide takes %d layers and directions, not %d", SLI_MAX_PARTS,
         sli_problem_parts(p));
    NEED(p->dropout == 0, "far:wide has no dropout between layers (drop=%g)", p->dropout);
    NEED(p->layers == 1 || (p->recurrent_dropout == 0 && p->zoneout_h == 0 && p->zoneout_c == 0),
         "far:wide draws random masks for one layer, not for %d", p->layers);
    return sli_far_reference(p->op)->eligible(&part, caps, why);
}

static void cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    *cost = (sli_cost){0};
    for (int l = 0; l < p->layers; l++)
        for (int d = 0; d < sli_problem_directions(p); d++) {
            sli_problem part = sli_problem_part(p, l, d);
            sli_cost one = {0};
            sli_far_reference(p->op)->cost(&part, caps, &one);
            cost->flops += one.flops;
            cost->bytes += one.bytes;
        }
}

/* Two cuts of each pass, which change nothing: tests of choices and of tuning read their names. */
static bool cut(const sli_problem *p, const sli_caps *caps, char *name, size_t capacity) {
    const int forward = p->cut % SLI_CUTS, backward = p->cut / SLI_CUTS;
    (void)caps;
    if (forward > 1 || backward > (p->train ? 1 : 0)) return false;
    if (p->train)
        snprintf(name, capacity, "f%d/b%d", forward, backward);
    else
        snprintf(name, capacity, "f%d", forward);
    return true;
}

#define WIDE_ROW(OP)                                                                                              \
    {                                                                                                             \
        .name = "far:wide", .op = OP, .device = SLI_DEVICE_CPU, .eligible = eligible, .cost = cost, .book = book, \
        .cut = cut, .forward = forward, .backward = backward, .only = SLI_FAR_WIDE,                               \
        .backward_reads_in = 1u << SLI_RNN_X | 1u << SLI_RNN_LENGTHS | 1u << SLI_RNN_MASK, .writes_fresh = true   \
    }
static const sli_kernel lstm = WIDE_ROW(SLI_OP_LSTM), gru = WIDE_ROW(SLI_OP_GRU), rnn = WIDE_ROW(SLI_OP_RNN);
const sli_kernel *const sli_far_kernels[] = {
    &lstm, &gru, &rnn, &sli_far_fresh_lstm, &sli_far_fresh_gru, &sli_far_fresh_rnn, &sli_far_fresh_dense, NULL};
