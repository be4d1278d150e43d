/* cuda:wave: the whole of a stack, and the layout of its memory. */
#include "backend/cuda/wave_layout.h"

enum { PART = 256 };

static size_t take(size_t *at, size_t bytes) {
    const size_t offset = *at;
    *at += sli_round_up(bytes, PART);
    return offset;
}

static int longer(const sli_problem *stack, int steps) {
    return steps > 0 ? steps + stack->layers - 1 : 0;
}

sli_problem sli_wave_whole(const sli_problem *stack) {
    sli_problem whole = *stack;
    whole.layers = 1;
    whole.wave = stack->layers;
    whole.units = stack->layers * stack->units;
    whole.steps = longer(stack, stack->steps);
    whole.dropout = 0;
    whole.narrow = false; /* come together, parameters are floats */
    return whole;
}

sli_planned sli_wave_planned(const sli_problem *stack, sli_planned plan) {
    plan.steps = longer(stack, plan.steps);
    return plan;
}

int sli_wave_chunk(const sli_problem *stack, int chunk) {
    return longer(stack, chunk);
}

int64_t sli_wave_floats(const sli_problem *whole, int k, bool gradient) {
    const bool gru = whole->op == SLI_OP_GRU;
    const int64_t units = whole->units, rows = sli_op_gates(whole->op) * units;
    switch (k) {
    case SLI_RNN_KERNEL:
        return rows * whole->inputs;
    case SLI_RNN_RECURRENT:
        return (gru && !gradient ? rows + units : rows) * units;
    case SLI_RNN_BIAS:
        return whole->bias == SL_BIAS_NONE ? 0 : rows;
    case SLI_RNN_RECURRENT_BIAS:
        return whole->bias == SL_BIAS_DOUBLE ? rows : 0;
    case SLI_RNN_PEEPHOLE:
        return whole->peephole ? 3 * units : 0;
    default:
        return gru && gradient ? rows * units : 0;
    }
}

static void take_params(const sli_problem *whole, bool gradient, sli_wave_places *at) {
    for (int k = 0; k < SLI_PART_PARAMS; k++)
        at->param[k] = take(&at->total, sizeof(float) * (size_t)sli_wave_floats(whole, k, gradient));
}

sli_wave_places sli_wave_layout_packed(const sli_problem *whole, const sli_persist_pair *pair) {
    sli_wave_places at = {0};
    at.own = take(&at.total, sli_persist_layout_packed(whole, pair).total);
    take_params(whole, false, &at);
    return at;
}

sli_wave_places sli_wave_layout_scratch(const sli_problem *whole, const sli_caps *caps, const sli_persist_pair *pair,
                                        int chunk, bool backward) {
    sli_wave_places at = {0};
    const size_t state = sizeof(float) * (size_t)whole->batch * (size_t)whole->units;
    at.own = take(&at.total, backward ? sli_persist_layout_backward(whole, caps, pair, chunk).total
                                      : sli_persist_layout_forward(whole, caps, pair, chunk).total);
    if (!backward) return at;
    take_params(whole, true, &at);
    for (int k = 0; k < sli_problem_states(whole); k++) {
        at.enters[k] = take(&at.total, state);
        at.leaves[k] = take(&at.total, state);
    }
    return at;
}
