/* Booking memory: what lives when, where it lies, and how many segments of time a memory limit forces. */
#include "core/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------ timeline -- */
typedef struct timeline {
    const sl_plan *plan;
    int seed, end;
} timeline;

/* Start of the repeated forward of group g. */
static int group_backward_start(const sl_plan *plan, int g) {
    int at = plan->step_count + 1;
    for (int later = plan->group_count - 1; later > g; later--) at += 2 * plan->groups[later].count;
    return at;
}
static int group_backward_end(const sl_plan *plan, int g) {
    return group_backward_start(plan, g) + 2 * plan->groups[g].count - 1;
}
static int repeat_event(const sl_plan *plan, int step) {
    int g = plan->steps[step].group;
    return group_backward_start(plan, g) + step - plan->groups[g].first;
}
static int backward_event(const sl_plan *plan, int step) {
    int g = plan->steps[step].group, count = plan->groups[g].count;
    return group_backward_start(plan, g) + 2 * count - 1 - (step - plan->groups[g].first);
}
/* Until then memory that the step's backward uses is in use: its own event, or where late sums are settled. */
static int release_event(const sl_plan *plan, int step) {
    if (!plan->steps[step].late) return backward_event(plan, step);
    for (int i = step - 1; i >= 0; i--)
        if (plan->steps[i].late) return backward_event(plan, i);
    return group_backward_end(plan, 0) + 1;
}
static bool is_segmented(const sl_plan *plan, int g) {
    return sli_plan_is_segmented(plan, &plan->groups[g]);
}
static int group_last(const sl_plan *plan, int g) {
    return plan->groups[g].first + plan->groups[g].count - 1;
}

static int max_int(int a, int b) {
    return a > b ? a : b;
}
static int min_int(int a, int b) {
    return a < b ? a : b;
}

/* ------------------------------------------------------------------------------------------------- buffers -- */
static sl_status add_buffer(sl_plan *plan, size_t bytes, int *index) {
    sli_buffer *buffer =
        sli_arena_push(&plan->arena, &plan->buffers, &plan->buffer_count, &plan->buffer_capacity, sizeof *buffer);
    if (!buffer) return sli_fail_memory("the plan's buffers", sizeof *buffer);
    size_t room = bytes > 0 ? bytes + plan->guard : 0;
    *buffer = (sli_buffer){.bytes = sli_round_up(room, SLI_ALIGN), .used = bytes, .from = {-1, -1}, .to = {-1, -1}};
    *index = plan->buffer_count - 1;
    return SL_OK;
}

static bool intervals_meet(const sli_buffer *a, const sli_buffer *b) {
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++)
            if (a->from[i] >= 0 && b->from[k] >= 0 && a->from[i] <= b->to[k] && b->from[k] <= a->to[i]) return true;
    return false;
}

/* Lowest place, not below `place`, where `buffer` meets no placed buffer that lives at the same time. order[0..count) are placed. */
static size_t find_place(const sl_plan *plan, const int *order, int count, const sli_buffer *buffer, size_t place) {
    bool moved = true;
    while (moved) {
        moved = false;
        for (int k = 0; k < count; k++) {
            const sli_buffer *other = &plan->buffers[order[k]];
            bool beside = place + buffer->bytes <= other->offset || other->offset + other->bytes <= place;
            if (beside || (plan->guard == 0 && !intervals_meet(buffer, other))) continue;
            place = other->offset + other->bytes;
            moved = true;
        }
    }
    return place;
}

/* Tensors of 16 bits in front of all else, and what is saved of the steps that read them behind all of them, as products of a pair want it
 * (sli_step_pairs), in holes of another time neither: whether they are a pair decides bits, which a memory limit is not to change. */
static bool is_narrow_tensor(const sl_plan *plan, int buffer) {
    for (int t = 0; plan->options.narrow_tensors && t < plan->tensor_count; t++)
        if (plan->tensors[t].buffer == buffer && plan->tensors[t].shape.time) return true;
    return false;
}

static bool is_saved(const sl_plan *plan, int buffer) {
    for (int i = 0; i < plan->step_count; i++)
        if (plan->steps[i].saved == buffer) return true;
    return false;
}

static bool goes_before(const sl_plan *plan, int one, int other) {
    const bool first = is_narrow_tensor(plan, one);
    if (first != is_narrow_tensor(plan, other)) return first;
    return plan->buffers[one].bytes > plan->buffers[other].bytes;
}

/* Greedy by size: the largest first, each as low as it can lie. */
static sl_status place_buffers(sl_plan *plan, size_t *total) {
    int *order = sli_arena_alloc(&plan->arena, sizeof(int) * (size_t)(plan->buffer_count + 1));
    if (!order) return sli_fail_memory("the plan's buffers", sizeof(int) * (size_t)plan->buffer_count);
    for (int i = 0; i < plan->buffer_count; i++) {
        int at = i;
        while (at > 0 && goes_before(plan, i, order[at - 1])) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
    *total = 0;
    size_t behind = 0; /* all tensors of 16 bits */
    for (int k = 0; k < plan->buffer_count; k++) {
        sli_buffer *buffer = &plan->buffers[order[k]];
        if (buffer->bytes == 0) continue;
        buffer->offset = find_place(plan, order, k, buffer, behind > 0 && is_saved(plan, order[k]) ? behind : 0);
        if (buffer->offset + buffer->bytes > *total) *total = buffer->offset + buffer->bytes;
        if (is_narrow_tensor(plan, order[k])) behind = *total;
    }
    return SL_OK;
}

/* ------------------------------------------------------------------------------------------------- tensors -- */
static size_t tensor_bytes(const sl_plan *plan, const sli_tensor *tensor) {
    bool segment = !tensor->crossing && tensor->group >= 0 && is_segmented(plan, tensor->group);
    int steps = segment ? plan->segment_steps : plan->options.steps;
    return sli_plan_tensor_elements(plan, tensor, steps, plan->options.batch) *
           sli_plan_tensor_element_bytes(plan, tensor);
}

static bool step_reads(const sli_step *step, int tensor) {
    for (int k = 0; k < SLI_MAX_IN; k++)
        if (step->emit.in[k] == tensor) return true;
    for (int k = 0; k < step->emit.state_count; k++)
        if (step->emit.state_initial[k] == tensor) return true;
    return false;
}

static bool backward_reads(const sli_step *step, int tensor) {
    for (int k = 0; k < SLI_MAX_IN; k++)
        if (step->emit.in[k] == tensor && (step->kernel->backward_reads_in >> k & 1u)) return true;
    return false;
}

static bool producer_backward_reads(const sl_plan *plan, const sli_tensor *tensor, int index) {
    const sli_step *step = &plan->steps[tensor->producer];
    for (int k = 0; k < SLI_MAX_OUT; k++)
        if (step->emit.out[k] == index && (step->kernel->backward_reads_out >> k & 1u)) return step->backward;
    return false;
}

/* Last event of consumers (and of the producer's backward): `forward` and `backward` parts. */
static void tensor_uses(const sl_plan *plan, int index, int *forward, int *backward) {
    const sli_tensor *tensor = &plan->tensors[index];
    *forward = max_int(tensor->producer, 0);
    *backward = -1;
    for (int c = 0; c < plan->step_count; c++) {
        const sli_step *step = &plan->steps[c];
        if (!step_reads(step, index)) continue;
        bool cut = is_segmented(plan, step->group);
        *forward = max_int(*forward, cut && tensor->crossing ? group_last(plan, step->group) : c);
        if (!plan->train) continue;
        if (cut)
            *backward =
                max_int(*backward, tensor->crossing ? group_backward_end(plan, step->group) : repeat_event(plan, c));
        if (step->backward && backward_reads(step, index)) *backward = max_int(*backward, release_event(plan, c));
    }
    if (!plan->train || tensor->producer < 0) return;
    bool cut = is_segmented(plan, tensor->group);
    if (producer_backward_reads(plan, tensor, index) || tensor->in_place)
        *backward = max_int(*backward, release_event(plan, tensor->producer));
    if (cut && tensor->crossing) *backward = max_int(*backward, group_backward_end(plan, tensor->group));
}

static void tensor_interval(const sl_plan *plan, int index, const timeline *time, sli_buffer *buffer) {
    const sli_tensor *tensor = &plan->tensors[index];
    int forward, backward;
    tensor_uses(plan, index, &forward, &backward);
    bool cut = tensor->group >= 0 && is_segmented(plan, tensor->group);
    if (tensor->output >= 0 && (tensor->crossing || !cut))
        forward = plan->train && plan->loss_step < 0 ? time->end : max_int(forward, time->seed);
    if (tensor->producer < 0) {
        buffer->from[0] = 0;
        buffer->to[0] = time->end;
    } else if (cut && !tensor->crossing) {
        buffer->from[0] = tensor->producer;
        buffer->to[0] = forward;
        buffer->from[1] = plan->train ? repeat_event(plan, tensor->producer) : -1;
        buffer->to[1] = max_int(backward, buffer->from[1]);
    } else {
        buffer->from[0] = cut ? plan->groups[tensor->group].first : tensor->producer;
        buffer->to[0] = max_int(forward, backward);
    }
}

static void gradient_interval(const sl_plan *plan, int index, const timeline *time, sli_buffer *buffer) {
    const sli_tensor *tensor = &plan->tensors[index];
    int from = tensor->seeded ? time->seed : time->end;
    for (int c = 0; c < plan->step_count; c++) {
        const sli_step *step = &plan->steps[c];
        if (!step->backward || !step_reads(step, index)) continue;
        bool cut = tensor->crossing && is_segmented(plan, step->group);
        from = min_int(from, cut ? group_backward_start(plan, step->group) : backward_event(plan, c));
    }
    buffer->from[0] = from;
    buffer->to[0] = time->end;
    if (tensor->producer < 0) return;
    bool cut = (tensor->crossing || tensor->state >= 0) && is_segmented(plan, tensor->group);
    buffer->to[0] = cut ? group_backward_end(plan, tensor->group) : release_event(plan, tensor->producer);
}

static sl_status book_tensors(sl_plan *plan, const timeline *time) {
    for (int t = 0; t < plan->tensor_count; t++) {
        sli_tensor *tensor = &plan->tensors[t];
        tensor->buffer = tensor->gradient_buffer = -1;
        if (tensor->state < 0) {
            SLI_TRY(add_buffer(plan, tensor_bytes(plan, tensor), &tensor->buffer));
            tensor_interval(plan, t, time, &plan->buffers[tensor->buffer]);
            *(tensor->producer < 0 ? &plan->memory.inputs : &plan->memory.activations) +=
                plan->buffers[tensor->buffer].bytes;
        }
        if (!tensor->has_gradient || tensor->in_place) continue;
        SLI_TRY(add_buffer(plan, tensor_bytes(plan, tensor), &tensor->gradient_buffer));
        gradient_interval(plan, t, time, &plan->buffers[tensor->gradient_buffer]);
        plan->memory.gradients += plan->buffers[tensor->gradient_buffer].bytes;
    }
    return SL_OK;
}

/* --------------------------------------------------------------------------------------------------- steps -- */
sli_booking sli_plan_booking(const sl_plan *plan, const sli_step *step, bool recompute) {
    sli_problem problem = step->problem;
    sli_booking booking = {0};
    if (is_segmented(plan, step->group)) problem.steps = plan->segment_steps;
    problem.recompute = recompute;
    if (step->kernel->book) step->kernel->book(&problem, &plan->caps, plan->chunk, &booking);
    return booking;
}

static sl_status book_step(sl_plan *plan, int index) {
    sli_step *step = &plan->steps[index];
    bool cut = is_segmented(plan, step->group);
    step->booking = sli_plan_booking(plan, step, step->problem.recompute);
    SLI_TRY(add_buffer(plan, step->booking.saved, &step->saved));
    SLI_TRY(add_buffer(plan, step->booking.scratch_forward, &step->scratch_forward));
    SLI_TRY(add_buffer(plan, step->backward ? step->booking.scratch_backward : 0, &step->scratch_backward));
    sli_buffer *saved = &plan->buffers[step->saved], *forward = &plan->buffers[step->scratch_forward],
               *backward = &plan->buffers[step->scratch_backward];
    const int reader =
        index == plan->loss_step && plan->loss_taker >= 0 ? plan->loss_taker : index; /* of what is saved */
    saved->from[0] = saved->to[0] = forward->from[0] = forward->to[0] = index;
    backward->from[0] = backward_event(plan, index);
    backward->to[0] = release_event(plan, index);
    if (cut && plan->train) {
        forward->from[1] = forward->to[1] = saved->from[1] = repeat_event(plan, index);
        saved->to[1] = step->backward ? backward_event(plan, reader) : saved->from[1];
    } else if (step->backward) {
        saved->to[0] = release_event(plan, reader);
    }
    plan->memory.saved += saved->bytes;
    plan->memory.scratch += forward->bytes + backward->bytes;
    return SL_OK;
}

static size_t book_packed(sl_plan *plan) {
    size_t at = 0;
    for (int i = 0; i < plan->step_count; i++) {
        plan->steps[i].packed = at;
        size_t packed = plan->steps[i].booking.packed;
        at += sli_round_up(packed > 0 ? packed + plan->guard : 0, SLI_ALIGN);
    }
    return at;
}

/* --------------------------------------------------------------------------------------------- fixed parts -- */
/* A proof looks at these bytes after a run: nobody may have written there. */
static void note_guard(sl_plan *plan, size_t offset) {
    if (plan->guard == 0) return;
    size_t *guard =
        sli_arena_push(&plan->arena, &plan->guards, &plan->guard_count, &plan->guard_capacity, sizeof *guard);
    if (guard) *guard = offset;
}

static size_t take(sl_plan *plan, size_t *at, size_t bytes) {
    size_t offset = *at;
    if (bytes > 0) note_guard(plan, offset + bytes);
    *at += sli_round_up(bytes > 0 ? bytes + plan->guard : 0, SLI_ALIGN);
    return offset;
}

static size_t target_bytes(const sl_plan *plan) {
    if (plan->loss_step < 0) return 0;
    const sli_tensor *z = &plan->tensors[plan->steps[plan->loss_step].emit.in[SLI_LOSS_Z]];
    size_t elements = sli_plan_tensor_elements(plan, z, plan->options.steps, plan->options.batch);
    if (plan->options.loss == SL_LOSS_SOFTMAX) return elements / (size_t)z->shape.features * sizeof(int32_t);
    return elements * plan->element;
}

static bool states_lie_together(const sl_plan *plan) {
    bool all = plan->segments == 1 && plan->guard == 0 && plan->state_count > 0;
    for (int s = 0; s < plan->state_count; s++) all &= plan->states[s].stateful && plan->states[s].initial < 0;
    return all;
}

/* [entry 0 of every state][entry 1 of every state][carried][gradients] */
static void place_states_together(sl_plan *plan, size_t *at) {
    size_t begin = *at, offset = 0, batch = (size_t)plan->options.batch;
    for (int s = 0; s < plan->state_count; s++) {
        sli_state *state = &plan->states[s];
        state->boundary = begin + offset;
        plan->state_bytes += batch * (size_t)state->features * plan->element;
        offset += sli_round_up(batch * (size_t)state->features * plan->element, SLI_ALIGN);
    }
    plan->together = offset;
    for (int s = 0; s < plan->state_count; s++) {
        sli_state *state = &plan->states[s];
        state->stride = offset;
        state->carried = state->boundary + 2 * offset;
        state->gradient = plan->train ? state->boundary + 3 * offset : 0;
    }
    *at += (plan->train ? 4 : 3) * offset;
}

static void place_states(sl_plan *plan, size_t *at) {
    size_t batch = (size_t)plan->options.batch;
    plan->state_bytes = plan->together = 0;
    if (states_lie_together(plan)) {
        place_states_together(plan, at);
        return;
    }
    for (int s = 0; s < plan->state_count; s++) {
        sli_state *state = &plan->states[s];
        size_t bytes = batch * (size_t)state->features * plan->element;
        int slots = is_segmented(plan, plan->steps[state->step].group) ? plan->segments + 1 : 2;
        state->boundary = take(plan, at, bytes * (size_t)slots);
        state->stride = bytes;
        state->carried = state->stateful ? take(plan, at, bytes) : 0;
        state->gradient = plan->train ? take(plan, at, bytes) : 0;
        if (state->stateful) plan->state_bytes += bytes;
    }
}

static void place_fixed(sl_plan *plan) {
    size_t at = 0, batch = (size_t)plan->options.batch, steps = (size_t)plan->options.steps;
    plan->scalars = take(plan, &at, sizeof(sli_scalars));
    plan->metrics = take(plan, &at, sizeof(sli_metrics) + (sli_plan_is_scaled(plan) ? sizeof(sli_scaling) : 0));
    size_t before = at;
    plan->gradients = take(plan, &at, plan->train ? plan->param_elements * plan->weight : 0);
    plan->touched = take(plan, &at, plan->sparse >= 0 ? sli_round_up((size_t)sli_plan_slices(plan), SLI_ALIGN) : 0);
    plan->memory.gradients += at - before;
    before = at;
    plan->lengths = take(plan, &at, plan->options.masking == SL_MASK_LENGTHS ? batch * sizeof(int32_t) : 0);
    plan->mask = take(plan, &at, plan->options.masking == SL_MASK_STEPS ? batch * steps : 0);
    plan->targets = take(plan, &at, target_bytes(plan));
    plan->memory.inputs += at - before;
    before = at;
    place_states(plan, &at);
    plan->memory.state = at - before;
    before = at;
    size_t norm = plan->norm_booking.scratch_forward, optimizer = plan->optimizer_booking.scratch_forward;
    plan->update_scratch = take(plan, &at, norm > optimizer ? norm : optimizer);
    plan->memory.scratch += at - before;
    plan->overlapped = at;
}

/* ---------------------------------------------------------------------------------------------------- late sums --
 * Sums over time of a layer's gradients fill the part of the device that the recurrence of the layer below leaves idle. */
static bool leaves_idle(const sl_plan *plan, const sli_step *step) {
    const double least = 0.1; /* of less there is no gain: the sums would wait for the recurrence to end */
    return step->backward && step->kernel->idle && step->kernel->idle(&step->problem, &plan->caps) >= least;
}

/* A step that comes later in backward adds to the gradient of one of this step's parameters: of tied weights. */
static bool is_tied_below(const sl_plan *plan, int step) {
    for (int i = 0; i < step; i++)
        for (int k = 0; k < SLI_MAX_PARAM && plan->steps[i].backward; k++)
            for (int own = 0; own < SLI_MAX_PARAM; own++) {
                const int parameter = plan->steps[step].emit.param[own];
                if (parameter >= 0 && parameter == plan->steps[i].emit.param[k]) return true;
            }
    return false;
}

static bool fills_idle(const sl_plan *plan, const sli_step *step) {
    return step->kernel->fills && step->kernel->fills(&step->problem, &plan->caps);
}

static int recurrent_backward(const sl_plan *plan) {
    int count = 0;
    for (int i = 0; i < plan->step_count; i++)
        count += plan->steps[i].backward && sli_op_is_recurrent(plan->steps[i].problem.op);
    return count;
}

/* Of two recurrent layers the upper one awaits nothing and so runs in pieces, which leaves only its last piece's sums: where the lower one
 * could fill its idle multiprocessors by pieces of its own, that is more. */
static void choose_late(sl_plan *plan) {
    const bool two = recurrent_backward(plan) == 2;
    bool idle_follows = false, filled = false; /* in the order of backward, after step i */
    for (int i = 0; i < plan->step_count; i++) {
        sli_step *step = &plan->steps[i];
        const bool recurrent = sli_op_is_recurrent(step->problem.op);
        const bool sums = step->backward && step->kernel->sums_late && (recurrent || !filled);
        step->late = idle_follows && sums && plan->segments == 1 && !plan->no_late && !is_tied_below(plan, i);
        if (!recurrent || !step->backward) continue;
        const bool fills = fills_idle(plan, step);
        idle_follows = leaves_idle(plan, step) && !(two && fills);
        filled = idle_follows && fills;
    }
}

sl_status sli_plan_place(sl_plan *plan, int segment_steps) {
    plan->segment_steps = segment_steps;
    plan->segments = (plan->options.steps - 1) / segment_steps + 1;
    choose_late(plan);
    sli_plan_sparse(plan);
    plan->buffer_count = plan->guard_count = 0;
    memset(&plan->memory, 0, sizeof plan->memory);
    timeline time = {plan, plan->step_count, plan->step_count + 1};
    for (int g = 0; g < plan->group_count; g++) time.end += 2 * plan->groups[g].count;
    SLI_TRY(book_tensors(plan, &time));
    for (int i = 0; i < plan->step_count; i++) SLI_TRY(book_step(plan, i));
    place_fixed(plan);
    size_t overlapped = 0;
    SLI_TRY(place_buffers(plan, &overlapped));
    for (int i = 0; i < plan->buffer_count; i++) {
        const sli_buffer *buffer = &plan->buffers[i];
        if (buffer->bytes > 0) note_guard(plan, plan->overlapped + buffer->offset + buffer->used);
    }
    sl_memory *memory = &plan->memory;
    plan->packed_bytes = book_packed(plan);
    memory->segments = plan->segments;
    memory->parameters = plan->param_elements * plan->weight;
    memory->optimizer = memory->parameters * (size_t)plan->slots;
    if (sli_plan_is_scaled(plan)) memory->optimizer += sli_round_up(sizeof(sli_scaling), SLI_ALIGN);
    memory->packed = plan->packed_bytes;
    memory->params_block = memory->parameters + memory->optimizer + memory->packed;
    memory->run_block = plan->overlapped + overlapped;
    memory->blas_buffers = plan->ops->blas_buffers ? plan->ops->blas_buffers(&plan->caps) : 0;
    return SL_OK;
}

/* --------------------------------------------------------------------------------------------------- limit -- */
/* "612.3 MB", "40.1 kB", "7 bytes". What is needed is rounded up (ceil): a limit of that is enough. */
static const char *size_text(size_t bytes, double (*rounded)(double), char *text, size_t capacity) {
    if (bytes < 100) { /* not 0.0 kB */
        snprintf(text, capacity, "%zu byte%s", bytes, bytes == 1 ? "" : "s");
        return text;
    }
    bool small = bytes < (size_t)1 << 20;
    double tenths = rounded(10 * (double)bytes / (small ? 1024 : 1048576));
    snprintf(text, capacity, small ? "%.1f kB" : "%.1f MB", tenths / 10);
    return text;
}

size_t sli_plan_need(const sl_plan *plan) {
    return plan->memory.params_block + plan->memory.run_block;
}

/* Places in ever more segments until the limit holds; if it never does, in as many as need least. */
static sl_status fit(sl_plan *plan, bool *fits) {
    int steps = plan->options.steps, best_steps = steps, chunks = (steps + plan->chunk - 1) / plan->chunk;
    size_t limit = plan->memory_limit, best = 0;
    plan->no_late = false;
    SLI_TRY(sli_plan_place(plan, steps));
    plan->no_late = limit > 0 && sli_plan_need(plan) > limit;
    if (plan->no_late) SLI_TRY(sli_plan_place(plan, steps));
    while (limit > 0 && sli_plan_need(plan) > limit) {
        if (best == 0 || sli_plan_need(plan) < best) {
            best = sli_plan_need(plan);
            best_steps = plan->segment_steps;
        }
        *fits = chunks > 1;
        if (!*fits) return sli_plan_place(plan, best_steps);
        chunks = (chunks + 1) / 2;
        SLI_TRY(sli_plan_place(plan, chunks * plan->chunk));
    }
    *fits = true;
    return SL_OK;
}

/* Lets the recurrent layers keep their gates, or not; how many kernels can do without. */
static int set_recompute(sl_plan *plan, bool recompute) {
    int count = 0;
    for (int i = 0; i < plan->step_count; i++) {
        sli_step *step = &plan->steps[i];
        sli_problem problem = step->problem;
        sli_why why;
        problem.recompute = true;
        if (!plan->train || !sli_op_is_recurrent(problem.op) || plan->options.recompute_gates ||
            !sli_kernel_takes(step->kernel, &problem, &plan->caps, &why))
            continue;
        step->problem.recompute = recompute;
        count++;
    }
    return count;
}

/* What would be needed if gates were recomputed; 0: that does not fit either. */
static sl_status fit_recomputed(sl_plan *plan, size_t *need) {
    int segment_steps = plan->segment_steps;
    bool fits = false;
    *need = 0;
    if (set_recompute(plan, true) == 0) return SL_OK;
    SLI_TRY(fit(plan, &fits));
    if (fits) *need = sli_plan_need(plan);
    set_recompute(plan, false);
    return sli_plan_place(plan, segment_steps);
}

static void set_batch(sl_plan *plan, int batch) {
    plan->options.batch = batch;
    plan->chunk = sli_caps_chunk(&plan->caps, batch, plan->options.steps);
    for (int i = 0; i < plan->step_count; i++) plan->steps[i].problem.batch = batch;
}

static bool rows_take_batch(const sl_plan *plan) {
    sli_why why;
    for (int i = 0; i < plan->step_count; i++)
        if (!sli_kernel_takes(plan->steps[i].kernel, &plan->steps[i].problem, &plan->caps, &why)) return false;
    return true;
}

/* About the largest batch that fits with these rows; 0: none does. */
static sl_status fit_batch(sl_plan *plan, int *batch) {
    int whole = plan->options.batch, segment_steps = plan->segment_steps, above = whole;
    *batch = 0;
    while (above - *batch > 1 + *batch / 16) {
        bool fits = false;
        int middle = *batch + (above - *batch) / 2;
        set_batch(plan, middle);
        if (rows_take_batch(plan)) SLI_TRY(fit(plan, &fits));
        *(fits ? batch : &above) = middle;
    }
    set_batch(plan, whole);
    plan->no_late = true; /* as where it did not fit */
    return sli_plan_place(plan, segment_steps);
}

sl_status sli_plan_ways_out(sl_plan *plan, sli_ways_out *ways) {
    SLI_TRY(fit_recomputed(plan, &ways->recomputed));
    return fit_batch(plan, &ways->batch);
}

sl_status sli_plan_fail_over_limit(const sl_plan *plan, const sli_ways_out *ways) {
    const size_t limit = plan->memory_limit, need = sli_plan_need(plan);
    bool full = limit != plan->options.memory_limit; /* a GPU has less than was allowed */
    char tried[96] = "even in one piece", remedy[200], a[32], b[32], elsewhere[48], again[96] = "";
    if (ways->recomputed > 0)
        snprintf(again, sizeof again, "gates recomputed in backward (--recompute-gates), with %s, ",
                 size_text(ways->recomputed, ceil, a, sizeof a));
    size_text(need, ceil, a, sizeof a);
    if (plan->segments > 1)
        snprintf(tried, sizeof tried, "even at best, %s in %d segments",
                 plan->train ? "with activations recomputed" : "cut", plan->segments);
    snprintf(elsewhere, sizeof elsewhere, full ? "%sa GPU with more free memory" : "a limit of %s", full ? "" : a);
    if (ways->batch > 0)
        snprintf(remedy, sizeof remedy, "a batch of about %d, fewer steps, %s", ways->batch, elsewhere);
    else
        snprintf(remedy, sizeof remedy, "%s, fewer steps, fewer units%s", elsewhere,
                 plan->slots > 0 ? ", an optimizer with less state (sgd)" : "");
    return sli_fail(SL_ERR_MEMORY_LIMIT, "the model needs %s (%zu bytes) %s; %s %s%s; the cheapest ways out: %s%s", a,
                    need, tried, full ? "the GPU has" : "the memory limit is", size_text(limit, round, b, sizeof b),
                    full ? " free" : "", again, remedy);
}

sl_status sli_plan_fit_memory(sl_plan *plan) {
    bool fits;
    plan->chunk = sli_caps_chunk(&plan->caps, plan->options.batch, plan->options.steps);
    SLI_TRY(fit(plan, &fits));
    return fits ? SL_OK : sli_fail(SL_ERR_MEMORY_LIMIT, "the model needs %zu bytes", sli_plan_need(plan));
}
