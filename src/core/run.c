/* Runs: forward, evaluation, gradients, update, states. */
#include "core/run.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------ make and free -- */
static size_t lengths_bytes(const sl_plan *plan) {
    return plan->options.masking == SL_MASK_LENGTHS ? (size_t)plan->options.batch * sizeof(int32_t) : 0;
}

static sl_status make_block(sl_run *run) {
    const sl_plan *plan = run->plan;
    SLI_TRY(plan->ops->queue_new(plan->device, &run->queue));
    SLI_TRY(plan->ops->alloc(plan->device, plan->memory.run_block, (void **)&run->block));
    size_t lengths = lengths_bytes(plan);
    run->lengths = lengths ? sli_alloc_zero(&run->allocator, lengths) : NULL;
    if (lengths && !run->lengths) return sli_fail_memory("a run's lengths", lengths);
    run->staging_bytes = sli_run_staging_bytes(plan);
    if (run->staging_bytes == 0) return SL_OK;
    run->staging = sli_alloc(&run->allocator, run->staging_bytes);
    return run->staging ? SL_OK : sli_fail_memory("a run's staging memory", run->staging_bytes);
}

sl_status sl_run_new(const sl_plan *plan, sl_params *params, sl_run **out) {
    if (out) *out = NULL;
    SLI_FAIL_IF(!out || !plan || !params, SL_ERR_USAGE, "sl_run_new: plan, params or run is NULL; pass all three");
    SLI_FAIL_IF(
        params->plan != plan, SL_ERR_USAGE,
        "sl_run_new: the parameters were made for another plan; make parameters for this plan and copy the values");
    sl_run *run = sli_alloc_zero(&plan->allocator, sizeof *run);
    if (!run) return sli_fail_memory("a run", sizeof *run);
    run->plan = plan;
    run->params = params;
    run->allocator = plan->allocator;
    sl_status status = make_block(run);
    if (status != SL_OK) {
        sl_run_free(run);
        return sli_fail_context(status, "a run (%zu bytes)", plan->memory.run_block);
    }
    *out = run;
    return SL_OK;
}

void sl_run_free(sl_run *run) {
    if (!run) return;
    const sl_plan *plan = run->plan;
    if (run->block) {
        plan->ops->wait(run->queue);
        sli_run_free_recordings(run);
        plan->ops->free(plan->device, run->block, plan->memory.run_block);
    }
    if (run->queue) plan->ops->queue_free(run->queue);
    sl_allocator allocator = run->allocator;
    sli_free(&allocator, run->staging, run->staging_bytes);
    if (run->lengths) sli_free(&allocator, run->lengths, lengths_bytes(plan));
    if (run->bound) sli_free(&allocator, run->bound, sli_run_bound_bytes(plan));
    sli_text_free(&run->explanation);
    sli_free(&allocator, run, sizeof *run);
}

/* --------------------------------------------------------------------------------------------- small parts -- */
/* Only what the device does not have already. */
sl_status sli_run_send_scalars(sl_run *run) {
    if (run->any_sent && memcmp(&run->sent, &run->scalars, sizeof run->sent) == 0) return SL_OK;
    run->any_sent = false;
    SLI_TRY(run->plan->ops->upload(run->queue, run->block + run->plan->scalars, &run->scalars, sizeof run->scalars));
    run->sent = run->scalars;
    run->any_sent = true;
    return SL_OK;
}

/* All but the count of skipped updates. */
static sl_status zero_metrics(sl_run *run) {
    return run->plan->ops->zero(run->queue, run->block + run->plan->metrics, offsetof(sli_metrics, skipped));
}

/* -------------------------------------------------------------------------------------------------- reports -- */
size_t sli_run_report_bytes(const sl_run *run) {
    return sizeof(sli_metrics) + (sli_plan_is_scaled(run->plan) ? sizeof(sli_scaling) : 0);
}

sl_status sli_run_complete_report(sl_run *run) {
    const sli_scaling *scaling = sli_params_scaling_at(run->params);
    if (!scaling) return SL_OK;
    char *to = run->block + run->plan->metrics + offsetof(sli_run_report, scaling);
    return run->plan->ops->copy(run->queue, to, scaling, sizeof *scaling);
}

void sli_run_fill_result(const sli_run_report *report, double scale, sl_result *result) {
    const sli_metrics *metrics = &report->metrics;
    *result = (sl_result){.loss = metrics->loss_sum * scale,
                          .loss_sum = metrics->loss_sum,
                          .count = metrics->count,
                          .correct = metrics->correct,
                          .loss_scale = report->scaling.scale,
                          .skipped_steps = report->scaling.skipped};
}

static sl_status read_result(sl_run *run, sl_result *result) {
    sli_run_report report;
    memset(&report, 0, sizeof report);
    SLI_TRY(run->plan->ops->download(run->queue, &report, run->block + run->plan->metrics, sli_run_report_bytes(run)));
    sli_run_fill_result(&report, run->scale, result);
    return SL_OK;
}

/* Inference of an uploaded batch. Without targets nothing adds to the metrics, and nobody reads them. */
static sl_status infer_work(sl_run *run) {
    if (run->has_targets) SLI_TRY(zero_metrics(run));
    SLI_TRY(sli_run_forward_steps(run, false));
    SLI_TRY(sli_run_carry_states(run));
    return run->has_targets ? sli_run_complete_report(run) : SL_OK;
}

static sl_status infer(sl_run *run) {
    run->training = false;
    run->scalars.loss_scale = run->scale;
    SLI_TRY(sli_run_send_scalars(run));
    SLI_TRY(sli_run_do(run, run->has_targets ? SLI_RUN_EVALUATE : SLI_RUN_INFER, infer_work));
    run->outputs_valid = true;
    return SL_OK;
}

static sl_status check_run(const sl_run *run) {
    SLI_FAIL_IF(!run, SL_ERR_USAGE, "the run is NULL; make one with sl_run_new");
    return SL_OK;
}

sl_status sli_run_check_training(const sl_run *run) {
    SLI_TRY(check_run(run));
    SLI_FAIL_IF(!run->plan->train, SL_ERR_USAGE, "the plan is for inference; plan with train = 1 for gradients");
    return SL_OK;
}

/* ----------------------------------------------------------------------------------------------- inference -- */
sl_status sl_run_forward(sl_run *run, const sl_batch *batch) {
    SLI_TRY(check_run(run));
    SLI_TRY(sli_run_upload_batch(run, batch));
    SLI_TRY(infer(run));
    return run->plan->ops->wait(run->queue);
}

sl_status sl_run_evaluate(sl_run *run, const sl_batch *batch, sl_result *result) {
    SLI_TRY(check_run(run));
    SLI_FAIL_IF(!result || !batch || !batch->targets, SL_ERR_USAGE,
                "sl_run_evaluate needs a batch with targets and a result");
    SLI_FAIL_IF(run->plan->loss_step < 0, SL_ERR_USAGE, "the plan has no loss; set sl_plan_options.loss");
    SLI_TRY(sli_run_upload_batch(run, batch));
    SLI_TRY(infer(run));
    return read_result(run, result);
}

static sl_status find_output(const sl_run *run, const char *name, const sli_tensor **tensor) {
    const sl_plan *plan = run->plan;
    *tensor = NULL;
    for (int k = 0; k < plan->output_count && !*tensor; k++) {
        const sli_tensor *candidate = &plan->tensors[plan->outputs[k]];
        if (!name || strcmp(plan->output_names[k], name) == 0) *tensor = candidate;
    }
    SLI_FAIL_IF(!*tensor, SL_ERR_UNKNOWN, "\"%s\" is not an output; list it in sl_model_set_outputs", name ? name : "");
    SLI_FAIL_IF(run->batch == 0, SL_ERR_USAGE, "output \"%s\": nothing was computed yet; call sl_run_forward first",
                (*tensor)->name);
    return SL_OK;
}

sl_status sl_run_output(sl_run *run, const char *name, void *values, size_t count) {
    const sli_tensor *tensor;
    SLI_TRY(check_run(run));
    SLI_TRY(find_output(run, name, &tensor));
    size_t elements = sli_plan_tensor_elements(run->plan, tensor, run->steps, run->batch);
    SLI_FAIL_IF(!values, SL_ERR_USAGE, "output \"%s\": values is NULL; pass room for %zu", tensor->name, elements);
    SLI_FAIL_IF(count != elements, SL_ERR_SHAPE, "output \"%s\" has %zu values, not %zu; see sl_run_output_shape",
                tensor->name, elements, count);
    SLI_FAIL_IF(!run->outputs_valid, SL_ERR_USAGE,
                "output \"%s\" was overwritten by the backward pass; call sl_run_forward", tensor->name);
    const sli_group *group = tensor->group >= 0 ? &run->plan->groups[tensor->group] : NULL;
    bool kept = tensor->crossing || tensor->state >= 0 || !group || !sli_plan_is_segmented(run->plan, group);
    SLI_FAIL_IF(
        !kept, SL_ERR_USAGE,
        "output \"%s\" is not kept by a training plan with a loss and recomputation; raise the memory limit or plan "
        "for inference",
        tensor->name);
    return sli_run_download_tensor(run, tensor, sli_run_tensor_at(run, tensor), values);
}

sl_status sl_run_output_shape(sl_run *run, const char *name, int *steps, int *batch, int *features) {
    const sli_tensor *tensor;
    SLI_TRY(check_run(run));
    SLI_TRY(find_output(run, name, &tensor));
    if (steps) *steps = tensor->shape.time ? run->steps : 0;
    if (batch) *batch = run->batch;
    if (features) *features = tensor->shape.features;
    return SL_OK;
}

/* ------------------------------------------------------------------------------------------------ training -- */
sl_status sl_run_set_seed(sl_run *run, uint64_t seed) {
    SLI_TRY(check_run(run));
    run->scalars.seed = seed;
    return SL_OK;
}

static sl_status upload_output_gradients(sl_run *run, const void *const *d_outputs) {
    const sl_plan *plan = run->plan;
    for (int k = 0; k < plan->output_count; k++) {
        const sli_tensor *tensor = &plan->tensors[plan->outputs[k]];
        if (!tensor->has_gradient) continue;
        char *to = sli_run_gradient_at(run, tensor);
        size_t bytes = sli_plan_tensor_elements(plan, tensor, run->steps, run->batch) *
                       sli_plan_tensor_element_bytes(plan, tensor);
        if (d_outputs[k])
            SLI_TRY(sli_run_upload_tensor(run, tensor, to, d_outputs[k]));
        else
            SLI_TRY(plan->ops->zero(run->queue, to, bytes));
    }
    return SL_OK;
}

/* Without a loss nobody adds to metrics, which are zeros from the beginning. To zero them once more is the faster way where the first layer
 * begins with two launches side by side: a graph that begins so begins 2 us later (overlap_h200_2026-11-24.txt, 5). */
bool sli_run_zeroes_metrics(const sl_plan *plan) {
    const sli_step *first = plan->step_count > 0 ? &plan->steps[0] : NULL;
    return plan->loss_step >= 0 || !first || !first->kernel->begins_alone ||
           !first->kernel->begins_alone(&first->problem);
}

static sl_status forward_work(sl_run *run) {
    if (sli_run_zeroes_metrics(run->plan)) SLI_TRY(zero_metrics(run));
    return sli_run_forward_steps(run, true);
}

static sl_status backward_work(sl_run *run) {
    SLI_TRY(sli_run_backward_steps(run));
    SLI_TRY(sli_run_carry_states(run));
    return sli_run_complete_report(run);
}

static sl_status zero_gradients(sl_run *run) {
    const sl_plan *plan = run->plan;
    SLI_TRY(plan->ops->zero(run->queue, run->block + plan->gradients, plan->param_elements * plan->weight));
    run->gradients = SLI_GRADIENTS_ZEROS;
    return SL_OK;
}

sl_status sli_run_clear_leftovers(sl_run *run) {
    return run->gradients == SLI_GRADIENTS_LEFTOVERS ? zero_gradients(run) : SL_OK;
}

sl_status sli_run_begin_sums(sl_run *run) {
    SLI_TRY(sli_run_clear_leftovers(run));
    run->gradients = SLI_GRADIENTS_SUMS;
    return SL_OK;
}

sl_status sli_run_gradients_work(sl_run *run) {
    SLI_TRY(forward_work(run));
    return backward_work(run);
}

sl_status sl_run_gradients(sl_run *run, const sl_batch *batch, const void *const *d_outputs, uint32_t step,
                           uint32_t micro_step, double scale, sl_result *result) {
    SLI_TRY(sli_run_check_training(run));
    bool loss = run->plan->loss_step >= 0;
    SLI_FAIL_IF(loss && (!batch || !batch->targets), SL_ERR_USAGE, "the plan has a loss: the batch needs targets");
    SLI_FAIL_IF(loss && d_outputs, SL_ERR_USAGE, "the plan has a loss: d_outputs must be NULL");
    SLI_FAIL_IF(!loss && !d_outputs, SL_ERR_USAGE,
                "the plan has no loss: give the gradients of the outputs in d_outputs");
    SLI_FAIL_IF(loss && !isfinite(scale), SL_ERR_NUMBERS,
                "the scale of the loss's gradient is %g; it must be finite, 1 for a whole batch", scale);
    SLI_TRY(sli_run_upload_batch(run, batch));
    SLI_TRY(sli_run_begin_sums(run));
    run->training = true;
    run->scalars.step = step;
    run->scalars.micro_step = micro_step;
    run->scalars.loss_scale = run->scale * scale;
    SLI_TRY(sli_run_send_scalars(run));
    if (loss) {
        SLI_TRY(sli_run_do(run, SLI_RUN_GRADIENTS, sli_run_gradients_work));
    } else {
        SLI_TRY(sli_run_do(run, SLI_RUN_FORWARD, forward_work));
        SLI_TRY(upload_output_gradients(run, d_outputs));
        SLI_TRY(sli_run_do(run, SLI_RUN_BACKWARD, backward_work));
    }
    run->outputs_valid = !loss;
    run->input_gradients_valid = true;
    return result ? read_result(run, result) : run->plan->ops->wait(run->queue);
}

sl_status sl_run_zero_gradients(sl_run *run) {
    SLI_TRY(sli_run_check_training(run));
    SLI_TRY(zero_gradients(run));
    return run->plan->ops->wait(run->queue);
}

/* What the run's gradients are multiplied by: 1 without loss scaling. */
static sl_status gradient_scale(sl_run *run, double *scale) {
    const sli_scaling *at = sli_params_scaling_at(run->params);
    sli_scaling scaling = {.scale = 1};
    if (at) SLI_TRY(run->plan->ops->download(run->queue, &scaling, at, sizeof scaling));
    *scale = scaling.scale;
    return SL_OK;
}

sl_status sl_run_gradient(sl_run *run, const char *parameter, double *values, size_t count) {
    SLI_TRY(sli_run_check_training(run));
    const sl_plan *plan = run->plan;
    const sli_param_place *place = NULL;
    for (int i = 0; parameter && i < plan->param_count && !place; i++)
        if (strcmp(plan->params[i].param.name, parameter) == 0) place = &plan->params[i];
    SLI_FAIL_IF(!place, SL_ERR_UNKNOWN, "there is no parameter called \"%s\"", parameter ? parameter : "");
    size_t size = (size_t)place->param.rows * (size_t)place->param.columns;
    SLI_FAIL_IF(!values, SL_ERR_USAGE, "the gradient of %s: values is NULL; pass room for %zu", parameter, size);
    SLI_FAIL_IF(count != size, SL_ERR_SHAPE, "the gradient of %s has %zu values, not %zu", parameter, size, count);
    double scale = 1;
    SLI_TRY(sli_run_clear_leftovers(run));
    SLI_TRY(gradient_scale(run, &scale));
    const char *from = run->block + plan->gradients + place->offset * plan->weight;
    if (plan->weight == sizeof(double)) return sli_params_download(plan, run->queue, from, values, count);
    for (size_t at = 0; at < count; at += SLI_PARAMS_PIECE) {
        size_t n = count - at < SLI_PARAMS_PIECE ? count - at : SLI_PARAMS_PIECE;
        SLI_TRY(sli_params_download(plan, run->queue, from + at * plan->weight, values + at, n));
        for (size_t i = 0; i < n; i++) values[at + i] /= scale;
    }
    return SL_OK;
}

sl_status sl_run_input_gradient(sl_run *run, int index, void *values, size_t count) {
    SLI_TRY(sli_run_check_training(run));
    const sl_plan *plan = run->plan;
    SLI_FAIL_IF(index < 0 || index >= plan->input_count, SL_ERR_USAGE, "there is no input %d; the model has %d", index,
                plan->input_count);
    const sli_tensor *tensor = &plan->tensors[plan->inputs[index]];
    SLI_FAIL_IF(!run->input_gradients_valid, SL_ERR_USAGE,
                "no gradients were computed yet; call sl_run_gradients first");
    SLI_FAIL_IF(!plan->options.input_gradients || tensor->shape.integer, SL_ERR_USAGE,
                "input \"%s\" has no gradient; plan with input_gradients = 1 (tokens never have one)", tensor->name);
    size_t elements = sli_plan_tensor_elements(plan, tensor, run->steps, run->batch);
    SLI_FAIL_IF(!values, SL_ERR_USAGE, "the gradient of \"%s\": values is NULL; pass room for %zu", tensor->name,
                elements);
    SLI_FAIL_IF(count != elements, SL_ERR_SHAPE, "the gradient of \"%s\" has %zu values, not %zu", tensor->name,
                elements, count);
    if (!tensor->has_gradient) { /* no output depends on it */
        memset(values, 0, elements * plan->element);
        return SL_OK;
    }
    double scale = 1;
    SLI_TRY(gradient_scale(run, &scale));
    SLI_TRY(sli_run_download_tensor(run, tensor, sli_run_gradient_at(run, tensor), values));
    float *floats = values; /* only f16 plans scale */
    for (size_t i = 0; scale != 1 && i < elements; i++) floats[i] = (float)(floats[i] / scale);
    return SL_OK;
}

/* -------------------------------------------------------------------------------------------------- states -- */
size_t sl_run_state_bytes(const sl_run *run) {
    return run ? run->plan->state_bytes : 0;
}

static size_t carried_bytes(const sl_plan *plan, const sli_state *state) {
    return (size_t)plan->options.batch * (size_t)state->features * plan->element;
}

sl_status sl_run_reset_state(sl_run *run) {
    SLI_TRY(check_run(run));
    const sl_plan *plan = run->plan;
    for (int s = 0; s < plan->state_count; s++)
        if (plan->states[s].stateful)
            SLI_TRY(plan->ops->zero(run->queue, run->block + plan->states[s].carried,
                                    carried_bytes(plan, &plan->states[s])));
    return plan->ops->wait(run->queue);
}

static sl_status check_blob(const sl_run *run, const void *blob, size_t bytes) {
    SLI_TRY(check_run(run));
    SLI_FAIL_IF(!blob && run->plan->state_bytes > 0, SL_ERR_USAGE, "the state's blob is NULL; pass one of %zu bytes",
                run->plan->state_bytes);
    SLI_FAIL_IF(bytes != run->plan->state_bytes, SL_ERR_SHAPE,
                "the state has %zu bytes, not %zu; ask sl_run_state_bytes", run->plan->state_bytes, bytes);
    return SL_OK;
}

sl_status sl_run_get_state(sl_run *run, void *blob, size_t bytes) {
    SLI_TRY(check_blob(run, blob, bytes));
    const sl_plan *plan = run->plan;
    char *to = blob;
    for (int s = 0; s < plan->state_count; s++) {
        const sli_state *state = &plan->states[s];
        if (!state->stateful) continue;
        SLI_TRY(plan->ops->download(run->queue, to, run->block + state->carried, carried_bytes(plan, state)));
        to += carried_bytes(plan, state);
    }
    return SL_OK;
}

sl_status sl_run_set_state(sl_run *run, const void *blob, size_t bytes) {
    SLI_TRY(check_blob(run, blob, bytes));
    const sl_plan *plan = run->plan;
    const char *from = blob;
    for (int s = 0; s < plan->state_count; s++) {
        const sli_state *state = &plan->states[s];
        if (!state->stateful) continue;
        SLI_TRY(plan->ops->upload(run->queue, run->block + state->carried, from, carried_bytes(plan, state)));
        from += carried_bytes(plan, state);
    }
    return plan->ops->wait(run->queue);
}

/* ----------------------------------------------------------------------------------------------- diagnosis -- */
const char *sl_run_first_nonfinite(sl_run *run) {
    if (!run || run->batch == 0) return NULL;
    const char *layer = NULL;
    run->outputs_valid = run->input_gradients_valid = false; /* the repeated forward writes over both */
    return sli_run_find_nonfinite(run, &layer) == SL_OK ? layer : NULL;
}

const char *sli_run_first_bad_gradient(sl_run *run) {
    if (run->batch == 0 || !run->training || run->plan->loss_step < 0) return NULL;
    const char *layer = NULL;
    run->outputs_valid = run->input_gradients_valid = false;
    if (sl_run_zero_gradients(run) != SL_OK || sli_run_find_bad_gradient(run, &layer) != SL_OK) return NULL;
    return sl_run_zero_gradients(run) == SL_OK ? layer : NULL;
}
