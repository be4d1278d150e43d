/* The steps of a call: group by group, segment by segment, forward and backward, through the device's queue. */
#include <math.h>
#include <string.h>

#include "core/rounding.h"
#include "core/run.h"

/* Segments of this call: a shorter sequence has fewer. */
static int segment_count(const sl_run *run, const sli_group *group) {
    if (!sli_plan_is_segmented(run->plan, group)) return 1;
    return (run->steps - 1) / run->plan->segment_steps + 1;
}

static size_t state_bytes(const sl_run *run, const sli_state *state) {
    return (size_t)run->batch * (size_t)state->features * run->plan->element;
}

/* Value entering processed segment `slot`; slot = number of segments: the final value. */
static char *boundary_at(const sl_run *run, const sli_state *state, int slot) {
    return run->block + state->boundary + (size_t)slot * state->stride;
}

char *sli_run_tensor_at(const sl_run *run, const sli_tensor *tensor) {
    const sl_plan *plan = run->plan;
    if (run->bound && run->bound[tensor - plan->tensors]) return run->bound[tensor - plan->tensors];
    if (tensor->state >= 0) {
        const sli_state *state = &plan->states[tensor->state];
        return boundary_at(run, state, segment_count(run, &plan->groups[tensor->group]));
    }
    return run->block + plan->overlapped + plan->buffers[tensor->buffer].offset;
}

char *sli_run_gradient_at(const sl_run *run, const sli_tensor *tensor) {
    if (!tensor->has_gradient) return NULL;
    if (tensor->in_place) return sli_run_tensor_at(run, tensor);
    ptrdiff_t index = tensor - run->plan->tensors;
    if (run->bound && run->bound[run->plan->tensor_count + index]) return run->bound[run->plan->tensor_count + index];
    return run->block + run->plan->overlapped + run->plan->buffers[tensor->gradient_buffer].offset;
}

uint8_t *sli_run_touched(const sl_run *run) {
    return run->plan->sparse >= 0 ? (uint8_t *)run->block + run->plan->touched : NULL;
}

/* ------------------------------------------------------------------------------------------- building calls -- */
typedef struct segment {
    int index;        /* as processed: 0 is the first */
    int first, steps; /* absolute */
} segment;

static segment segment_at(const sl_run *run, const sli_group *group, int index, int count) {
    if (!sli_plan_is_segmented(run->plan, group)) return (segment){index, 0, group->time ? run->steps : 0};
    int length = run->plan->segment_steps, place = group->reverse ? count - 1 - index : index;
    int first = place * length;
    return (segment){index, first, run->steps - first < length ? run->steps - first : length};
}

/* Bytes from a tensor's start to the segment's first step: tensors inside a segmented group hold one segment. */
static size_t segment_offset(const sl_run *run, const sli_tensor *tensor, const segment *segment) {
    if (!tensor->crossing || !tensor->shape.time) return 0;
    return (size_t)segment->first * (size_t)run->batch * (size_t)tensor->shape.features *
           sli_plan_tensor_element_bytes(run->plan, tensor);
}

static void set_tensors(const sl_run *run, const sli_step *step, const segment *segment, sli_call *call) {
    const sl_plan *plan = run->plan;
    for (int k = 0; k < SLI_MAX_IN; k++) {
        if (step->emit.in[k] < 0) continue;
        const sli_tensor *tensor = &plan->tensors[step->emit.in[k]];
        size_t offset = segment_offset(run, tensor, segment);
        call->in[k] = sli_run_tensor_at(run, tensor) + offset;
        call->borrowed |= step->problem.narrow_io && run->bound && run->bound[step->emit.in[k]];
        if (step->gradient_in >> k & 1u) call->d_in[k] = sli_run_gradient_at(run, tensor) + offset;
    }
    for (int k = 0; k < SLI_MAX_OUT; k++) {
        if (step->emit.out[k] < 0) continue;
        const sli_tensor *tensor = &plan->tensors[step->emit.out[k]];
        size_t offset = segment_offset(run, tensor, segment);
        call->out[k] = sli_run_tensor_at(run, tensor) + offset;
        if (tensor->has_gradient) call->d_out[k] = sli_run_gradient_at(run, tensor) + offset;
    }
    call->accumulate = step->accumulate;
}

/* The tensor that the state's steps read themselves where they begin: one that outlives them, in the run's own memory, so aligned and
 * written by nobody else (where a caller's tensor enters, its final state may be written before backward). */
static const sli_tensor *entering_tensor(const sl_run *run, const sli_state *state) {
    const sl_plan *plan = run->plan;
    if (state->initial < 0 || sli_plan_is_segmented(plan, &plan->groups[plan->steps[state->step].group])) return NULL;
    const sli_tensor *tensor = &plan->tensors[state->initial];
    bool outlives = !plan->train || tensor->producer < 0;
    bool borrowed = run->bound && run->bound[state->initial];
    return outlives && !borrowed && tensor->state < 0 ? tensor : NULL;
}

static bool has_gradient(const sl_plan *plan, int tensor) {
    return tensor >= 0 && plan->tensors[tensor].has_gradient;
}

/* The state's row is told what gradients there are, and no segment hands them to another: nothing is zeroed, nor computed for nobody. */
static bool tells_gradients(const sl_plan *plan, const sli_state *state) {
    const sli_step *step = &plan->steps[state->step];
    return step->kernel->null_states && !sli_plan_is_segmented(plan, &plan->groups[step->group]);
}

static void set_states(const sl_run *run, const sli_step *step, const segment *segment, sli_call *call) {
    int each = sli_problem_states(&step->problem);
    for (int s = 0; s < step->emit.state_count; s++) {
        const sli_state *state = &run->plan->states[step->states[s]];
        const sli_tensor *tensor = entering_tensor(run, state);
        int in = SLI_RNN_STATE_IN(s / each, s % each), out = SLI_RNN_STATE_OUT(s / each, s % each);
        call->in[in] = tensor ? sli_run_tensor_at(run, tensor) : boundary_at(run, state, segment->index);
        call->out[out] = boundary_at(run, state, segment->index + 1);
        if (!run->plan->train) continue;
        const bool told = tells_gradients(run->plan, state);
        char *gradient = run->block + state->gradient;
        if (!told || has_gradient(run->plan, state->final)) call->d_out[out] = gradient;
        if (!told || has_gradient(run->plan, state->initial)) call->d_in[in] = gradient;
    }
}

static void set_params(const sl_run *run, const sli_step *step, sli_call *call) {
    const sl_plan *plan = run->plan;
    for (int k = 0; k < SLI_PART_PARAMS * sli_problem_parts(&step->problem); k++) {
        int index = step->emit.param[k];
        if (index < 0) continue;
        call->param[k] = sli_params_at(run->params, -1, index);
        if (!plan->train) continue;
        char *borrowed = run->bound ? run->bound[2 * plan->tensor_count + index] : NULL;
        call->d_param[k] =
            borrowed ? borrowed : run->block + plan->gradients + plan->params[index].offset * plan->weight;
        call->borrowed |= borrowed != NULL;
        if (index != plan->sparse || borrowed) continue;
        call->touched = sli_run_touched(run);
        call->first_element = (int64_t)plan->params[index].offset;
    }
    if (run->fresh) memcpy(call->fresh, step->fresh, sizeof call->fresh);
    if (step->booking.packed > 0) call->packed = sli_params_packed(run->params) + step->packed;
}

/* Both losses and recurrent steps take lengths and mask in slots 3 and 4. */
static void set_masks_and_targets(const sl_run *run, const sli_step *step, const segment *segment, sli_call *call) {
    const sl_plan *plan = run->plan;
    if (step->emit.takes_mask && call->problem.mask == SLI_MASK_LENGTHS)
        call->in[SLI_RNN_LENGTHS] = run->block + plan->lengths;
    else if (step->emit.takes_mask && call->problem.mask != SLI_MASK_NONE)
        call->in[SLI_RNN_MASK] = run->block + plan->mask + (size_t)segment->first * (size_t)run->batch;
    if (plan->loss_step < 0 || step != &plan->steps[plan->loss_step]) return;
    size_t row = plan->options.loss == SL_LOSS_SOFTMAX ? sizeof(int32_t) : (size_t)step->problem.units * plan->element;
    call->in[SLI_LOSS_TARGET] = run->block + plan->targets + (size_t)segment->first * (size_t)run->batch * row;
}

static char *buffer_at(const sl_run *run, int buffer) {
    if (buffer < 0 || run->plan->buffers[buffer].bytes == 0) return NULL;
    return run->block + run->plan->overlapped + run->plan->buffers[buffer].offset;
}

static void set_scratch(const sl_run *run, int buffer, size_t bytes, sli_call *call) {
    call->scratch = buffer_at(run, buffer);
    call->scratch_bytes = call->scratch ? bytes : 0;
}

static void build_call(const sl_run *run, const sli_step *step, const segment *segment, sli_call *call) {
    const sl_plan *plan = run->plan;
    memset(call, 0, sizeof *call);
    call->problem = step->problem;
    call->planned = (sli_planned){step->problem.batch, step->problem.steps};
    call->problem.batch = run->batch;
    call->problem.steps = segment->steps;
    call->chunk = plan->chunk;
    const sl_dtype dtype = step->problem.dtype;
    call->operands = plan->operands;
    call->moved = plan->moved;
    if (call->operands == SL_DTYPE_DEFAULT && (dtype == SL_BF16 || dtype == SL_I8)) call->operands = dtype;
    call->t0 = segment->first;
    call->total_steps = plan->groups[step->group].time ? run->steps : 0;
    call->rng_layer =
        (step->layer_index + 1) << 8 | (step->emit.backward_direction ? SLI_PURPOSE_BACKWARD_DIRECTION : 0);
    set_tensors(run, step, segment, call);
    set_states(run, step, segment, call);
    set_params(run, step, call);
    set_masks_and_targets(run, step, segment, call);
    call->saved = buffer_at(run, step->saved);
    call->saved_bytes = call->saved ? step->booking.saved : 0;
    call->scalars = (const sli_scalars *)(run->block + plan->scalars);
    call->metrics = (sli_metrics *)(run->block + plan->metrics);
    call->scaling = sli_params_scaling_at(run->params);
    if (!plan->caps.graphs) call->host_lengths = run->lengths;
}

/* ------------------------------------------------------------------------------------------------- forward -- */
/* `again`: carried states were overwritten at the end of the call, and are still where it began. Of a state that always begins with zeros
 * entry 0 has been zeros since it was allocated. */
static sl_status begin_states(sl_run *run, const sli_group *group, bool again) {
    const sl_plan *plan = run->plan;
    for (int s = 0; s < plan->state_count; s++) {
        const sli_state *state = &plan->states[s];
        if (state->step < group->first || state->step >= group->first + group->count) continue;
        char *to = boundary_at(run, state, 0);
        const char *from = NULL;
        if (state->initial < 0 && state->stateful && again) continue;
        if (state->initial >= 0 && !entering_tensor(run, state))
            from = sli_run_tensor_at(run, &plan->tensors[state->initial]);
        else if (state->initial < 0 && state->stateful)
            from = run->block + state->carried;
        if (from) SLI_TRY(plan->ops->copy(run->queue, to, from, state_bytes(run, state)));
    }
    return SL_OK;
}

static sl_status forward_segment(sl_run *run, const sli_group *group, const segment *segment, bool training,
                                 bool again) {
    const sl_plan *plan = run->plan;
    for (int i = group->first; i < group->first + group->count; i++) {
        const sli_step *step = &plan->steps[i];
        if (i == plan->loss_step && (!run->has_targets || (again && !step->backward))) continue;
        sli_call call;
        build_call(run, step, segment, &call);
        call.training = training;
        call.recompute = again;
        set_scratch(run, step->scratch_forward, step->booking.scratch_forward, &call);
        SLI_TRY(sli_run_submit(run, i, again, step->kernel->forward, &call)); /* again: for backward's sake */
    }
    return SL_OK;
}

static sl_status forward_steps(sl_run *run, bool training, bool again) {
    const sl_plan *plan = run->plan;
    if (plan->together && !again) {
        const sli_state *first = &plan->states[0];
        SLI_TRY(plan->ops->copy(run->queue, run->block + first->boundary, run->block + first->carried, plan->together));
    }
    for (int g = 0; g < plan->group_count; g++) {
        const sli_group *group = &plan->groups[g];
        if (!plan->together) SLI_TRY(begin_states(run, group, again));
        int count = segment_count(run, group);
        for (int s = 0; s < count; s++) {
            segment segment = segment_at(run, group, s, count);
            SLI_TRY(forward_segment(run, group, &segment, training, false));
        }
    }
    return SL_OK;
}

sl_status sli_run_forward_steps(sl_run *run, bool training) {
    return forward_steps(run, training, false);
}

sl_status sli_run_carry_states(sl_run *run) {
    const sl_plan *plan = run->plan;
    if (plan->together && run->batch == plan->options.batch) { /* rows that a call leaves out keep their states */
        const sli_state *first = &plan->states[0];
        return plan->ops->copy(run->queue, run->block + first->carried, boundary_at(run, first, 1), plan->together);
    }
    for (int s = 0; s < plan->state_count; s++) {
        const sli_state *state = &plan->states[s];
        if (!state->stateful) continue;
        int count = segment_count(run, &plan->groups[plan->steps[state->step].group]);
        SLI_TRY(plan->ops->copy(run->queue, run->block + state->carried, boundary_at(run, state, count),
                                state_bytes(run, state)));
    }
    return SL_OK;
}

/* ------------------------------------------------------------------------------------------------ backward -- */
/* All states' gradients that start as anything start as zero: one call does it. */
static bool begins_with_zeros(const sl_plan *plan) {
    bool zeros = plan->together > 0, any = false;
    for (int s = 0; s < plan->state_count && zeros; s++) {
        zeros = !has_gradient(plan, plan->states[s].final);
        any |= !tells_gradients(plan, &plan->states[s]);
    }
    return zeros && any;
}

/* The state's gradient starts as that of the final-state tensor, or as zero. */
static sl_status begin_state_gradients(sl_run *run, const sli_group *group) {
    const sl_plan *plan = run->plan;
    for (int s = 0; s < plan->state_count; s++) {
        const sli_state *state = &plan->states[s];
        if (state->step < group->first || state->step >= group->first + group->count) continue;
        char *to = run->block + state->gradient;
        if (has_gradient(plan, state->final))
            SLI_TRY(plan->ops->copy(run->queue, to, sli_run_gradient_at(run, &plan->tensors[state->final]),
                                    state_bytes(run, state)));
        else if (!tells_gradients(plan, state))
            SLI_TRY(plan->ops->zero(run->queue, to, state_bytes(run, state)));
    }
    return SL_OK;
}

/* d initial (= or +=) d state. */
static sl_status pass_on_state_gradient(sl_run *run, const sli_state *state) {
    const sl_plan *plan = run->plan;
    char *to = sli_run_gradient_at(run, &plan->tensors[state->initial]);
    if (!state->initial_accumulates)
        return plan->ops->copy(run->queue, to, run->block + state->gradient, state_bytes(run, state));
    sli_call call;
    memset(&call, 0, sizeof call);
    call.problem = (sli_problem){.op = SLI_OP_MERGE,
                                 .layers = 1,
                                 .batch = run->batch,
                                 .units = state->features,
                                 .dtype = plan->options.dtype,
                                 .parts = 2,
                                 .merge = SL_MERGE_ADD};
    call.problem.parts_units[0] = call.problem.parts_units[1] = state->features;
    call.chunk = plan->chunk;
    call.in[0] = call.out[0] = to;
    call.in[1] = run->block + state->gradient;
    return plan->ops->submit(run->queue, plan->adder->forward, &call);
}

static sl_status end_state_gradients(sl_run *run, const sli_group *group) {
    const sl_plan *plan = run->plan;
    for (int s = plan->state_count - 1; s >= 0; s--) {
        const sli_state *state = &plan->states[s];
        bool here = state->step >= group->first && state->step < group->first + group->count;
        if (!here || !plan->steps[state->step].backward) continue;
        if (has_gradient(plan, state->initial)) SLI_TRY(pass_on_state_gradient(run, state));
    }
    return SL_OK;
}

static sl_status backward_segment(sl_run *run, const sli_group *group, const segment *segment) {
    const sl_plan *plan = run->plan;
    for (int i = group->first + group->count - 1; i >= group->first; i--) {
        const sli_step *step = &plan->steps[i];
        if (!step->backward || (i == plan->loss_step && plan->loss_taker >= 0)) continue;
        sli_call call, loss;
        build_call(run, step, segment, &call);
        if (i == plan->loss_taker) {
            build_call(run, &plan->steps[plan->loss_step], segment, &loss);
            call.loss = &loss;
        }
        call.training = true;
        call.late = step->late;
        set_scratch(run, step->scratch_backward, step->booking.scratch_backward, &call);
        SLI_TRY(sli_run_submit(run, i, true, step->kernel->backward, &call));
        SLI_TRY(sli_run_early_squares(run, step));
    }
    return SL_OK;
}

sl_status sli_run_backward_steps(sl_run *run) {
    const sl_plan *plan = run->plan;
    const bool zeros = begins_with_zeros(plan);
    if (zeros) SLI_TRY(plan->ops->zero(run->queue, run->block + plan->states[0].gradient, plan->together));
    for (int g = plan->group_count - 1; g >= 0; g--) {
        const sli_group *group = &plan->groups[g];
        if (!zeros) SLI_TRY(begin_state_gradients(run, group));
        int count = segment_count(run, group);
        for (int s = count - 1; s >= 0; s--) {
            segment segment = segment_at(run, group, s, count);
            if (sli_plan_is_segmented(plan, group)) SLI_TRY(forward_segment(run, group, &segment, true, true));
            SLI_TRY(backward_segment(run, group, &segment));
        }
        SLI_TRY(end_state_gradients(run, group));
    }
    return plan->ops->settle ? plan->ops->settle(run->queue) : SL_OK;
}

/* ----------------------------------------------------------------------------------------------- diagnosis -- */
static double number_at(const sl_plan *plan, const void *from, size_t each, size_t i) {
    if (each == sizeof(uint16_t)) return sli_from_bits16(plan->options.dtype, ((const uint16_t *)from)[i]);
    return each == sizeof(double) ? ((const double *)from)[i] : (double)((const float *)from)[i];
}

/* `count` numbers of `each` bytes. */
static sl_status holds_nonfinite(sl_run *run, const char *from, size_t count, size_t each, bool *found) {
    const size_t bytes = count * each;
    *found = false;
    for (size_t at = 0; at < bytes && !*found; at += SLI_RUN_PIECE) {
        double piece[SLI_RUN_PIECE / sizeof(double)];
        size_t n = bytes - at < sizeof piece ? bytes - at : sizeof piece;
        SLI_TRY(run->plan->ops->download(run->queue, piece, from + at, n));
        for (size_t i = 0; i < n / each; i++) *found |= !isfinite(number_at(run->plan, piece, each, i));
    }
    return SL_OK;
}

/* Repeats the last call's forward, looking at the output of every step; initial states are still in place. */
sl_status sli_run_find_nonfinite(sl_run *run, const char **layer) {
    const sl_plan *plan = run->plan;
    *layer = NULL;
    for (int g = 0; g < plan->group_count; g++) {
        const sli_group *group = &plan->groups[g];
        int count = segment_count(run, group);
        for (int s = 0; s < count; s++) {
            segment segment = segment_at(run, group, s, count);
            for (int i = group->first; i < group->first + group->count; i++) {
                const sli_step *step = &plan->steps[i];
                if (i == plan->loss_step) continue;
                sli_call call;
                build_call(run, step, &segment, &call);
                call.recompute = true;
                call.training = run->training;
                set_scratch(run, step->scratch_forward, step->booking.scratch_forward, &call);
                SLI_TRY(plan->ops->submit(run->queue, step->kernel->forward, &call));
                size_t rows = (size_t)(segment.steps > 0 ? segment.steps : 1) * (size_t)run->batch;
                bool found = false;
                int out = step->emit.out[0];
                if (out >= 0)
                    SLI_TRY(holds_nonfinite(run, call.out[0], rows * (size_t)plan->tensors[out].shape.features,
                                            sli_plan_tensor_element_bytes(plan, &plan->tensors[out]), &found));
                if (found) *layer = step->layer_name;
                if (found) return SL_OK;
            }
        }
    }
    return SL_OK;
}

/* Repeats the last call's forward and backward, into gradients that are zero; looks at them from the last layer on. */
sl_status sli_run_find_bad_gradient(sl_run *run, const char **layer) {
    const sl_plan *plan = run->plan;
    *layer = NULL;
    SLI_TRY(forward_steps(run, true, true));
    SLI_TRY(sli_run_backward_steps(run));
    for (int i = plan->step_count - 1; i >= 0; i--) {
        const sli_step *step = &plan->steps[i];
        for (int k = 0; k < SLI_MAX_PARAM; k++) {
            if (step->emit.param[k] < 0) continue;
            const sli_param_place *place = &plan->params[step->emit.param[k]];
            size_t count = (size_t)place->param.rows * (size_t)place->param.columns;
            bool found = false;
            SLI_TRY(holds_nonfinite(run, run->block + plan->gradients + place->offset * plan->weight, count,
                                    plan->weight, &found));
            if (found) *layer = step->layer_name;
            if (found) return SL_OK;
        }
    }
    return SL_OK;
}
