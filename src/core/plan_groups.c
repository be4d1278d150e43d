/* Groups of steps that run segment by segment of time, and which gradients are wanted. */
#include "core/plan.h"

#include <string.h>

/* -------------------------------------------------------------------------------------------------- groups -- */
/* Whole-sequence steps cannot be cut, nor those whose gradients each segment would round to 16 bits. A reversed step is a group of its own: sums over time of the others run from the
 * last segment to the first, its own from the first to the last. */
static sli_group group_of(const sl_plan *plan, const sli_step *step, int index) {
    return (sli_group){.first = index,
                       .count = 1,
                       .time = step->problem.steps > 0,
                       .reverse = step->problem.reverse,
                       .whole = step->problem.op == SLI_OP_FLIP || step->problem.bidirectional ||
                                (plan->train && step->problem.narrow)};
}

/* A step cannot join the group that computes one of its initial states: that is known only after the last segment. */
static bool takes_state_from(const sl_plan *plan, const sli_step *step, const sli_group *group) {
    for (int k = 0; k < step->emit.state_count; k++) {
        int tensor = step->emit.state_initial[k];
        if (tensor >= 0 && plan->tensors[tensor].producer >= group->first) return true;
    }
    return false;
}

/* Two steps that add to the gradient of one parameter (tied weights) stay in two groups: else segments would interleave
 * their sums, and a memory limit would change bits. */
static bool shares_parameter(const sl_plan *plan, const sli_step *step, const sli_group *group) {
    for (int i = group->first; i < group->first + group->count; i++)
        for (int a = 0; a < SLI_MAX_PARAM; a++)
            for (int b = 0; b < SLI_MAX_PARAM && step->emit.param[a] >= 0; b++)
                if (step->emit.param[a] == plan->steps[i].emit.param[b]) return true;
    return false;
}

static bool joins(const sl_plan *plan, const sli_step *step, const sli_group *next, const sli_group *group) {
    return next->time == group->time && !next->reverse && !group->reverse && !next->whole && !group->whole &&
           !takes_state_from(plan, step, group) && !shares_parameter(plan, step, group);
}

/* Outputs are kept whole for the caller, but not the logits of a training plan with a loss: they would defeat recomputation. */
static void mark_crossing(sl_plan *plan) {
    bool keeps_outputs = !(plan->train && plan->loss_step >= 0);
    for (int t = 0; t < plan->tensor_count; t++) {
        sli_tensor *tensor = &plan->tensors[t];
        tensor->group = tensor->producer >= 0 ? plan->steps[tensor->producer].group : -1;
        tensor->crossing = tensor->producer < 0 || (tensor->output >= 0 && keeps_outputs);
    }
    for (int i = 0; i < plan->step_count; i++)
        for (int k = 0; k < SLI_MAX_IN; k++) {
            int t = plan->steps[i].emit.in[k];
            if (t >= 0 && plan->tensors[t].group != plan->steps[i].group) plan->tensors[t].crossing = true;
        }
}

sl_status sli_plan_groups(sl_plan *plan) {
    for (int i = 0; i < plan->step_count; i++) {
        sli_step *step = &plan->steps[i];
        sli_group next = group_of(plan, step, i);
        sli_group *last = plan->group_count > 0 ? &plan->groups[plan->group_count - 1] : NULL;
        if (last && joins(plan, step, &next, last)) {
            last->count++;
        } else {
            last = sli_arena_push(&plan->arena, &plan->groups, &plan->group_count, &plan->group_capacity, sizeof *last);
            if (!last) return sli_fail_memory("the plan's groups", sizeof *last);
            *last = next;
        }
        step->group = plan->group_count - 1;
    }
    mark_crossing(plan);
    return SL_OK;
}

/* ----------------------------------------------------------------------------------------------- gradients -- */
/* requires[t]: a parameter or a wanted input lies behind tensor t. */
static void find_required(const sl_plan *plan, bool *requires) {
    for (int k = 0; k < plan->input_count; k++)
    requires[plan->inputs[k]] = plan->options.input_gradients && !plan->tensors[plan->inputs[k]].shape.integer;
    for (int i = 0; i < plan->step_count; i++) {
        const sli_emit *emit = &plan->steps[i].emit;
        bool any = false;
        for (int k = 0; k < SLI_MAX_PARAM; k++) any |= emit->param[k] >= 0;
        for (int k = 0; k < SLI_MAX_IN; k++) any |= emit->in[k] >= 0 && requires[emit->in[k]];
        for (int k = 0; k < emit->state_count; k++)
        any |= emit->state_initial[k] >= 0 && requires[emit->state_initial[k]];
        any &= plan->steps[i].kernel->backward != NULL;
        for (int k = 0; k < SLI_MAX_OUT; k++)
            if (emit->out[k] >= 0) requires[emit->out[k]] = any;
        for (int k = 0; k < emit->state_count; k++)
            if (emit->state_final[k] >= 0) requires[emit->state_final[k]] = any;
    }
}

static bool step_is_reached(const sl_plan *plan, int index) {
    const sli_emit *emit = &plan->steps[index].emit;
    bool reached = index == plan->loss_step;
    for (int k = 0; k < SLI_MAX_OUT; k++) reached |= emit->out[k] >= 0 && plan->tensors[emit->out[k]].has_gradient;
    for (int k = 0; k < emit->state_count; k++)
        reached |= emit->state_final[k] >= 0 && plan->tensors[emit->state_final[k]].has_gradient;
    return reached && plan->steps[index].kernel->backward;
}

/* The first to write a gradient in backward order sets it, the others add. */
static void reach_input(sl_plan *plan, int tensor, bool *accumulates) {
    sli_tensor *t = &plan->tensors[tensor];
    *accumulates = t->has_gradient;
    t->has_gradient = true;
}

static void reach(sl_plan *plan, const bool *requires, int index) {
    sli_step *step = &plan->steps[index];
    step->backward = step_is_reached(plan, index);
    if (!step->backward) return;
    for (int k = 0; k < SLI_MAX_IN; k++) {
        int t = step->emit.in[k];
        if (t < 0 || !requires[t]) continue;
        bool accumulates;
        reach_input(plan, t, &accumulates);
        step->gradient_in |= 1u << k;
        if (accumulates) step->accumulate |= 1u << k;
    }
    for (int k = step->emit.state_count - 1; k >= 0; k--) { /* in the order in which a run passes them on */
        int t = step->emit.state_initial[k];
        if (t < 0 || !requires[t]) continue;
        sli_state *state = &plan->states[step->states[k]];
        reach_input(plan, t, &state->initial_accumulates);
    }
}

/* The gradient of logits can overwrite them if nobody else needs them any more; and be made by the step that they are of. */
static void find_in_place(sl_plan *plan) {
    if (plan->loss_step < 0) return;
    const sli_step *loss = &plan->steps[plan->loss_step];
    sli_tensor *z = &plan->tensors[loss->emit.in[SLI_LOSS_Z]];
    if (!z->has_gradient || z->producer < 0 || z->state >= 0) return;
    /* In another group, a repeated forward of the producer would overwrite the gradient. */
    if (z->group != loss->group) return;
    const sli_kernel *producer = plan->steps[z->producer].kernel;
    z->in_place = loss->kernel->gradient_in_place && z->consumers == 1 && !(producer->backward_reads_out & 1u);
    const bool takes = z->in_place && loss->kernel->gradient_by_taker && producer->takes_loss;
    if (takes && producer->takes_loss(&plan->steps[z->producer].problem, &plan->caps)) plan->loss_taker = z->producer;
}

/* Where an initial state is shared, its gradients are summed by the merge row. */
static sl_status choose_adder(sl_plan *plan) {
    for (int s = 0; s < plan->state_count; s++) {
        if (!plan->states[s].initial_accumulates) continue;
        sli_problem add = {.op = SLI_OP_MERGE,
                           .layers = 1,
                           .batch = plan->options.batch,
                           .units = plan->states[s].features,
                           .dtype = plan->options.dtype,
                           .parts = 2,
                           .merge = SL_MERGE_ADD};
        add.parts_units[0] = add.parts_units[1] = add.units;
        sli_refusal *refusals;
        SLI_TRY(sli_plan_choose(plan, &add, plan->states[s].name, &plan->adder, &refusals));
    }
    return SL_OK;
}

sl_status sli_plan_gradients(sl_plan *plan) {
    if (!plan->train) return SL_OK;
    bool *requires = sli_arena_alloc(&plan->arena, sizeof(bool) * (size_t)(plan->tensor_count + 1));
    if (!requires) return sli_fail_memory("the plan's gradients", (size_t)plan->tensor_count);
    find_required(plan, requires);
    if (plan->loss_step < 0)
        for (int k = 0; k < plan->output_count; k++) {
            sli_tensor *tensor = &plan->tensors[plan->outputs[k]];
            tensor->seeded = tensor->has_gradient = requires[plan->outputs[k]];
        }
    for (int i = plan->step_count - 1; i >= 0; i--) reach(plan, requires, i);
    find_in_place(plan);
    return choose_adder(plan);
}

/* ---------------------------------------------------------------------------------------------- fresh gradients -- */
/* Where the step has the parameter; -1: in two places, which add. */
static int place_of(const sli_step *step, int param) {
    int place = -1, count = 0;
    for (int k = 0; k < SLI_MAX_PARAM; k++) {
        if (step->emit.param[k] != param) continue;
        place = k;
        count++;
    }
    return count == 1 ? place : -1;
}

/* The step that comes to the parameter's gradient first, in backward order; NULL: none does. */
static sli_step *first_writer(const sl_plan *plan, int param) {
    for (int i = plan->step_count - 1; i >= 0; i--)
        for (int k = 0; k < SLI_MAX_PARAM; k++)
            if (plan->steps[i].backward && plan->steps[i].emit.param[k] == param) return &plan->steps[i];
    return NULL;
}

void sli_plan_mark_fresh(sl_plan *plan) {
    for (int p = 0; p < plan->param_count; p++) {
        sli_step *step = first_writer(plan, p);
        const int place = step && step->kernel->writes_fresh ? place_of(step, p) : -1;
        if (place < 0) continue;
        step->fresh[place / SLI_PART_PARAMS] |= (uint8_t)(1u << place % SLI_PART_PARAMS);
        plan->params[p].fresh = plan->any_fresh = true;
    }
}

void sli_plan_fresh(sl_plan *plan) {
    if (plan->optimizer && plan->loss_step >= 0 && plan->segments <= 1) sli_plan_mark_fresh(plan);
}
