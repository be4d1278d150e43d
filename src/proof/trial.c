/* A trial: the subject's numbers fed to a plan of any precision, and its results read back as doubles. */
#include <math.h>
#include <string.h>

#include "core/run.h"
#include "proof/subject.h"

/* The step and seed under which random masks are drawn: the same in every trial. */
enum { TRIAL_STEP = 3, TRIAL_SEED = 20240229, TRIAL_SCALE = 1024 };

static bool is_double(const sli_trial *trial) {
    return trial->plan->element == sizeof(double);
}

sl_status sli_trial_set_param(sli_trial *trial, int index) {
    const sli_subject_array *param = &trial->subject->params[index];
    return sl_params_set(trial->params, param->name, param->values, param->count);
}

/* ---------------------------------------------------------------------------------------------------- guard zones -- */

typedef sl_status (*guard_fn)(const sli_trial *trial, sli_queue *queue, char *zone, void *context);

/* The zones of the run. */
static sl_status for_each_guard(const sli_trial *trial, guard_fn each, void *context) {
    const sl_plan *plan = trial->plan;
    for (int k = 0; k < plan->guard_count; k++)
        SLI_TRY(each(trial, trial->run->queue, trial->run->block + plan->guards[k], context));
    return SL_OK;
}

/* Those behind packed copies of parameters. */
static sl_status for_each_packed_guard(const sli_trial *trial, guard_fn each, void *context) {
    const sl_plan *plan = trial->plan;
    char *packed = trial->params->block + (size_t)(plan->slots + 1) * plan->param_elements * plan->weight;
    for (int k = 0; k < plan->step_count; k++) {
        const sli_step *step = &plan->steps[k];
        if (step->booking.packed > 0)
            SLI_TRY(each(trial, trial->params->queue, packed + step->packed + step->booking.packed, context));
    }
    return SL_OK;
}

static sl_status fill_guard(const sli_trial *trial, sli_queue *queue, char *zone, void *context) {
    unsigned char bytes[SLI_GUARD_BYTES];
    (void)context;
    memset(bytes, SLI_GUARD_BYTE, sizeof bytes);
    return trial->plan->ops->upload(queue, zone, bytes, trial->guard);
}

static sl_status look_at_guard(const sli_trial *trial, sli_queue *queue, char *zone, void *context) {
    unsigned char bytes[SLI_GUARD_BYTES];
    size_t *damaged = context;
    SLI_TRY(trial->plan->ops->download(queue, bytes, zone, trial->guard));
    for (size_t k = 0; k < trial->guard; k++) *damaged += bytes[k] != SLI_GUARD_BYTE;
    return SL_OK;
}

sl_status sli_trial_count_damage(const sli_trial *trial, size_t *bytes) {
    *bytes = 0;
    if (trial->guard == 0) return SL_OK;
    SLI_TRY(for_each_guard(trial, look_at_guard, bytes));
    return for_each_packed_guard(trial, look_at_guard, bytes);
}

/* --------------------------------------------------------------------------------------------------- open and close -- */

/* The plan is this trial's own, so that it can still be placed anew. */
static sl_status make_plan(sli_trial *trial, const sl_plan_options *options) {
    SLI_TRY(sli_plan_new(trial->subject->model, options, NULL, &trial->plan));
    trial->plan->operands = trial->operands;
    trial->plan->moved = trial->moved;
    if (trial->guard == 0) return SL_OK;
    trial->plan->guard = trial->guard;
    return sli_plan_place(trial->plan, trial->plan->segment_steps);
}

static size_t pointer_bytes(const sli_subject *s) {
    return sizeof(void *) * (size_t)(s->input_count + s->output_count + 1);
}

static sl_status open_trial(sli_trial *trial, const sl_plan_options *options) {
    const sli_subject *s = trial->subject;
    SLI_TRY(make_plan(trial, options));
    SLI_TRY(sl_params_new(trial->plan, &trial->params));
    if (trial->guard > 0) SLI_TRY(for_each_packed_guard(trial, fill_guard, NULL));
    for (int k = 0; k < s->param_count; k++) SLI_TRY(sli_trial_set_param(trial, k));
    /* Gradients of a few numbers are large: with training's first factor they would overflow, and it would skip the step. */
    if (sli_plan_is_scaled(trial->plan))
        SLI_TRY(sli_params_scaling_set(trial->params, &(sli_scaling){.scale = TRIAL_SCALE}));
    SLI_TRY(sl_run_new(trial->plan, trial->params, &trial->run));
    if (trial->guard > 0) SLI_TRY(for_each_guard(trial, fill_guard, NULL));
    SLI_TRY(sl_run_set_seed(trial->run, TRIAL_SEED));
    trial->feed_bytes = s->target.count * sizeof(double);
    for (int k = 0; k < s->input_count; k++) trial->feed_bytes += s->inputs[k].count * sizeof(double);
    for (int k = 0; k < s->output_count; k++) trial->feed_bytes += s->outputs[k].count * sizeof(double);
    if (s->lengths) trial->feed_bytes += (size_t)s->options.batch * sizeof(double);
    if (s->mask) trial->feed_bytes += ((size_t)s->options.batch * (size_t)s->options.steps / 8 + 1) * sizeof(double);
    trial->feed = sli_alloc(&s->arena.allocator, trial->feed_bytes);
    if (!trial->feed) return sli_fail_memory("the batch of a proof", trial->feed_bytes);
    trial->inputs = sli_alloc_zero(&s->arena.allocator, pointer_bytes(s));
    if (!trial->inputs) return sli_fail_memory("the batch of a proof", pointer_bytes(s));
    trial->d_outputs = trial->inputs + s->input_count;
    return SL_OK;
}

static sl_status open_or_close(sli_trial *trial, const sl_plan_options *options) {
    sl_status status = open_trial(trial, options);
    if (status != SL_OK) sli_trial_close(trial);
    return status;
}

sl_status sli_trial_open(const sli_subject *subject, const sl_plan_options *options, sli_trial *trial) {
    *trial = (sli_trial){.subject = subject};
    return open_or_close(trial, options);
}

sl_status sli_trial_open_guarded(const sli_subject *subject, const sl_plan_options *options, sli_trial *trial) {
    *trial = (sli_trial){.subject = subject, .guard = SLI_GUARD_BYTES};
    return open_or_close(trial, options);
}

static sl_status open_in_double(const sli_subject *subject, sl_dtype operands, int moved, sli_trial *trial) {
    sl_plan_options options = subject->options;
    options.dtype = SL_F64;
    options.narrow_parameters = options.narrow_tensors = 0;
    options.device = "cpu";
    options.require = options.choices = NULL;
    options.memory_limit = 0;
    *trial = (sli_trial){.subject = subject, .operands = operands, .moved = moved};
    return open_or_close(trial, &options);
}

sl_status sli_trial_open_reference(const sli_subject *subject, sl_dtype operands, sli_trial *trial) {
    return open_in_double(subject, operands, 0, trial);
}

sl_status sli_trial_open_moved(const sli_subject *subject, int moved, sli_trial *trial) {
    return open_in_double(subject, subject->operands, moved, trial);
}

void sli_trial_close(sli_trial *trial) {
    if (trial->subject) {
        sli_free(&trial->subject->arena.allocator, trial->inputs, pointer_bytes(trial->subject));
        sli_free(&trial->subject->arena.allocator, trial->feed, trial->feed_bytes);
    }
    sl_run_free(trial->run);
    sl_params_free(trial->params);
    sl_plan_free(trial->plan);
    memset(trial, 0, sizeof *trial);
}

/* --------------------------------------------------------------------------------------------------------- results -- */

static sl_status add_part(sli_subject *s, sli_results *results, const sli_subject_array *like, sli_part_kind kind,
                          int source) {
    sli_part *part = &results->parts[results->count++];
    size_t room = kind == SLI_PART_LOSS ? 3 : like->count;
    *part = (sli_part){.name = like->name, .kind = kind, .source = source};
    part->values = sli_arena_alloc(&s->arena, room * sizeof(double));
    return part->values ? SL_OK : sli_fail_memory("the results of a proof", room * sizeof(double));
}

sl_status sli_results_new(sli_subject *s, bool gradients, sli_results *results) {
    size_t most = (size_t)(s->output_count + s->input_count + s->param_count + 1);
    results->count = 0;
    results->parts = sli_arena_alloc(&s->arena, most * sizeof *results->parts);
    if (!results->parts) return sli_fail_memory("the results of a proof", most * sizeof *results->parts);
    for (int k = 0; k < s->output_count; k++) SLI_TRY(add_part(s, results, &s->outputs[k], SLI_PART_OUTPUT, k));
    if (s->target.count > 0) SLI_TRY(add_part(s, results, &s->target, SLI_PART_LOSS, 0));
    if (!gradients) return SL_OK;
    for (int k = 0; k < s->input_count && s->options.input_gradients; k++)
        if (!s->inputs[k].integer) SLI_TRY(add_part(s, results, &s->inputs[k], SLI_PART_INPUT_GRADIENT, k));
    for (int k = 0; k < s->param_count; k++) SLI_TRY(add_part(s, results, &s->params[k], SLI_PART_GRADIENT, k));
    return SL_OK;
}

/* --------------------------------------------------------------------------------------------------------- feeding -- */

/* Copies the call's part of `array` into the feed, in the plan's type: to[t][b][w] = values[t][b][w], t < steps, b < batch. */
static const void *feed_array(sli_trial *trial, size_t *used, const sli_subject_array *array, int batch, int steps) {
    char *to = trial->feed + *used;
    size_t width = (size_t)array->width, full = (size_t)trial->subject->options.batch, at = 0;
    for (size_t t = 0; t < (size_t)(array->time ? steps : 1); t++)
        for (size_t k = 0; k < (size_t)batch * width; k++, at++) {
            double value = array->values[t * full * width + k];
            if (array->integer)
                ((int32_t *)to)[at] = (int32_t)value;
            else if (is_double(trial))
                ((double *)to)[at] = value;
            else
                ((float *)to)[at] = (float)value;
        }
    *used += at * sizeof(double);
    return to;
}

static void feed_masks(sli_trial *trial, size_t *used, int batch, int steps, sl_batch *fed) {
    const sli_subject *s = trial->subject;
    if (s->lengths) {
        int32_t *to = (int32_t *)(trial->feed + *used);
        for (int b = 0; b < batch; b++) to[b] = s->lengths[b] < steps ? s->lengths[b] : steps;
        *used += (size_t)batch * sizeof(double);
        fed->lengths = to;
    }
    if (s->mask) {
        uint8_t *to = (uint8_t *)trial->feed + *used;
        for (int t = 0; t < steps; t++)
            memcpy(to + (size_t)t * (size_t)batch, s->mask + (size_t)t * (size_t)s->options.batch, (size_t)batch);
        fed->mask = to;
    }
}

/* Everything after the scalars and states becomes NaN; what a call does not write first will be seen. */
static sl_status poison(const sli_trial *trial) {
    enum { PIECE = 1 << 14 };
    sl_run *run = trial->run;
    const sl_plan *plan = run->plan;
    unsigned char nan[PIECE];
    memset(nan, 0xFF, sizeof nan);
    for (size_t at = plan->overlapped; at < plan->memory.run_block; at += PIECE) {
        size_t rest = plan->memory.run_block - at;
        SLI_TRY(plan->ops->upload(run->queue, run->block + at, nan, rest < PIECE ? rest : PIECE));
    }
    return trial->guard > 0 ? for_each_guard(trial, fill_guard, NULL) : SL_OK;
}

/* --------------------------------------------------------------------------------------------------------- reading -- */

/* Numbers of an array in a call; floats were read into the front of `values` and are widened from the back. */
static void widen(sli_part *part, bool doubles) {
    for (size_t k = doubles ? 0 : part->count; k-- > 0;) {
        float narrow;
        memcpy(&narrow, (const char *)part->values + k * sizeof narrow, sizeof narrow);
        part->values[k] = (double)narrow;
    }
}

static size_t call_count(const sli_subject_array *array, int batch, int steps) {
    return (size_t)array->width * (size_t)batch * (array->time ? (size_t)steps : 1);
}

static sl_status read_part(sli_trial *trial, const sli_trial_call *call, const sl_result *result, sli_part *part) {
    const sli_subject *s = trial->subject;
    part->count = 0;
    switch (part->kind) {
    case SLI_PART_OUTPUT: /* a loss may have overwritten them */
        if (call->training && s->target.count > 0) return SL_OK;
        part->count = call_count(&s->outputs[part->source], call->batch, call->steps);
        SLI_TRY(sl_run_output(trial->run, part->name, part->values, part->count));
        widen(part, is_double(trial));
        return SL_OK;
    case SLI_PART_LOSS:
        part->count = 3;
        part->values[0] = result->loss;
        part->values[1] = result->count;
        part->values[2] = result->correct;
        return SL_OK;
    case SLI_PART_INPUT_GRADIENT:
        if (!call->training) return SL_OK;
        part->count = call_count(&s->inputs[part->source], call->batch, call->steps);
        SLI_TRY(sl_run_input_gradient(trial->run, part->source, part->values, part->count));
        widen(part, is_double(trial));
        return SL_OK;
    case SLI_PART_GRADIENT:
        if (!call->training) return SL_OK;
        part->count = s->params[part->source].count;
        return sl_run_gradient(trial->run, part->name, part->values, part->count);
    }
    return SL_OK;
}

void sli_trial_feed(sli_trial *trial, int batch, int steps) {
    const sli_subject *s = trial->subject;
    size_t used = 0;
    trial->batch = (sl_batch){.batch = batch, .steps = steps, .inputs = trial->inputs};
    for (int k = 0; k < s->input_count; k++) trial->inputs[k] = feed_array(trial, &used, &s->inputs[k], batch, steps);
    for (int k = 0; k < s->output_count; k++)
        trial->d_outputs[k] = feed_array(trial, &used, &s->outputs[k], batch, steps);
    if (s->target.count > 0) trial->batch.targets = feed_array(trial, &used, &s->target, batch, steps);
    feed_masks(trial, &used, batch, steps, &trial->batch);
}

sl_status sli_trial_compute(sli_trial *trial, bool training, sl_result *result) {
    bool loss = trial->batch.targets != NULL;
    if (training)
        return sl_run_gradients(trial->run, &trial->batch, loss ? NULL : trial->d_outputs, TRIAL_STEP, 0, 1, result);
    return loss ? sl_run_evaluate(trial->run, &trial->batch, result) : sl_run_forward(trial->run, &trial->batch);
}

sl_status sli_trial_run(sli_trial *trial, const sli_trial_call *given, sli_results *results) {
    const sl_plan_options *options = &trial->subject->options;
    sli_trial_call call = *given;
    sl_result result = {0};
    if (call.batch == 0) call.batch = options->batch;
    if (call.steps == 0) call.steps = options->steps;
    sli_trial_feed(trial, call.batch, call.steps);
    if (call.poison) SLI_TRY(poison(trial));
    if (call.training) SLI_TRY(sl_run_zero_gradients(trial->run));
    SLI_TRY(sli_trial_compute(trial, call.training, &result));
    for (int k = 0; k < results->count; k++) SLI_TRY(read_part(trial, &call, &result, &results->parts[k]));
    return SL_OK;
}
