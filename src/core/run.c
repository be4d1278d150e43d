/* Runs: forward, evaluation, gradients, update, states. */
#include "core/run.h"

#include <math.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------ make and free -- */
static sl_status make_block(sl_run *run) {
    const sl_plan *plan = run->plan;
    SLI_TRY(plan->ops->queue_new(plan->device, &run->queue));
    SLI_TRY(plan->ops->alloc(plan->device, plan->memory.run_block, (void **)&run->block));
    run->staging_bytes = sli_run_staging_bytes(plan);
    if (run->staging_bytes == 0) return SL_OK;
    run->staging = sli_alloc(&run->allocator, run->staging_bytes);
    return run->staging ? SL_OK : sli_fail_memory("a run's staging memory", run->staging_bytes);
}

sl_status sl_run_new(const sl_plan *plan, sl_params *params, sl_run **out) {
    SLI_FAIL_IF(!out || !plan || !params, SL_ERR_USAGE, "sl_run_new: plan, params or run is NULL; pass all three");
    *out = NULL;
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
        plan->ops->free(plan->device, run->block, plan->memory.run_block);
    }
    if (run->queue) plan->ops->queue_free(run->queue);
    sl_allocator allocator = run->allocator;
    sli_free(&allocator, run->staging, run->staging_bytes);
    sli_free(&allocator, run, sizeof *run);
}

/* --------------------------------------------------------------------------------------------- small parts -- */
static sl_status upload_scalars(sl_run *run) {
    return run->plan->ops->upload(run->queue, run->block + run->plan->scalars, &run->scalars, sizeof run->scalars);
}

static sl_status zero_metrics(sl_run *run) {
    return run->plan->ops->zero(run->queue, run->block + run->plan->metrics, sizeof(sli_metrics));
}

static sl_status read_result(sl_run *run, sl_result *result) {
    sli_metrics metrics;
    SLI_TRY(run->plan->ops->download(run->queue, &metrics, run->block + run->plan->metrics, sizeof metrics));
    result->loss = metrics.loss_sum * run->scale;
    result->loss_sum = metrics.loss_sum;
    result->count = metrics.count;
    result->correct = metrics.correct;
    result->gradient_norm = 0;
    return SL_OK;
}

/* Inference of an uploaded batch. */
static sl_status infer(sl_run *run) {
    run->training = false;
    run->scalars.loss_scale = run->scale;
    SLI_TRY(upload_scalars(run));
    SLI_TRY(zero_metrics(run));
    SLI_TRY(sli_run_forward_steps(run, false));
    SLI_TRY(sli_run_carry_states(run));
    run->outputs_valid = true;
    return SL_OK;
}

static sl_status check_run(const sl_run *run) {
    SLI_FAIL_IF(!run, SL_ERR_USAGE, "the run is NULL; make one with sl_run_new");
    return SL_OK;
}

static sl_status check_training(const sl_run *run) {
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
    SLI_FAIL_IF(!values || count != elements, SL_ERR_SHAPE,
                "output \"%s\" has %zu values, not %zu; see sl_run_output_shape", tensor->name, elements, count);
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
    if (plan->loss_step >= 0) return SL_OK;
    for (int k = 0; k < plan->output_count; k++) {
        const sli_tensor *tensor = &plan->tensors[plan->outputs[k]];
        if (!tensor->has_gradient) continue;
        char *to = sli_run_gradient_at(run, tensor);
        size_t bytes = sli_plan_tensor_elements(plan, tensor, run->steps, run->batch) * plan->element;
        if (d_outputs[k])
            SLI_TRY(sli_run_upload_tensor(run, tensor, to, d_outputs[k]));
        else
            SLI_TRY(plan->ops->zero(run->queue, to, bytes));
    }
    return SL_OK;
}

sl_status sl_run_gradients(sl_run *run, const sl_batch *batch, const void *const *d_outputs, uint32_t step,
                           uint32_t micro_step, double scale, sl_result *result) {
    SLI_TRY(check_training(run));
    bool loss = run->plan->loss_step >= 0;
    SLI_FAIL_IF(loss && (!batch || !batch->targets), SL_ERR_USAGE, "the plan has a loss: the batch needs targets");
    SLI_FAIL_IF(loss && d_outputs, SL_ERR_USAGE, "the plan has a loss: d_outputs must be NULL");
    SLI_FAIL_IF(!loss && !d_outputs, SL_ERR_USAGE,
                "the plan has no loss: give the gradients of the outputs in d_outputs");
    SLI_TRY(sli_run_upload_batch(run, batch));
    run->training = true;
    run->scalars.step = step;
    run->scalars.micro_step = micro_step;
    run->scalars.loss_scale = run->scale * scale;
    SLI_TRY(upload_scalars(run));
    SLI_TRY(zero_metrics(run));
    SLI_TRY(sli_run_forward_steps(run, true));
    SLI_TRY(upload_output_gradients(run, d_outputs));
    SLI_TRY(sli_run_backward_steps(run));
    SLI_TRY(sli_run_carry_states(run));
    run->outputs_valid = !loss;
    run->input_gradients_valid = true;
    return result ? read_result(run, result) : run->plan->ops->wait(run->queue);
}

/* One norm and one optimizer call over elements [offset, offset + count) of every array. */
static sl_status submit_update(sl_run *run, size_t offset, size_t count, size_t squares_offset, bool norm,
                               bool update) {
    const sl_plan *plan = run->plan;
    size_t array = plan->param_elements * plan->element, at = offset * plan->element;
    sli_call call;
    memset(&call, 0, sizeof call);
    call.scalars = (const sli_scalars *)(run->block + plan->scalars);
    call.metrics = (sli_metrics *)(run->block + plan->metrics);
    call.scratch = run->block + plan->update_scratch;
    char *squares = (char *)call.metrics + squares_offset, *gradients = run->block + plan->gradients + at;
    if (norm) {
        call.problem = plan->norm_problem;
        call.problem.elements = (int64_t)count;
        call.out[SLI_NORM_GRAD] = gradients;
        call.out[SLI_NORM_SQUARES] = squares;
        SLI_TRY(plan->ops->submit(run->queue, plan->norm->forward, &call));
    }
    if (!update) return SL_OK;
    call.problem = plan->optimizer_problem;
    call.problem.elements = (int64_t)count;
    call.out[SLI_OPTIM_PARAM] = run->params->block + at;
    call.out[SLI_OPTIM_GRAD] = gradients;
    for (int s = 0; s < plan->slots; s++)
        call.out[SLI_OPTIM_SLOT0 + s] = run->params->block + (size_t)(s + 1) * array + at;
    call.in[SLI_OPTIM_SQUARES] = squares;
    return plan->ops->submit(run->queue, plan->optimizer->forward, &call);
}

sl_status sl_run_update(sl_run *run, double learning_rate, sl_result *result) {
    SLI_TRY(check_training(run));
    const sl_plan *plan = run->plan;
    if (result) memset(result, 0, sizeof *result);
    if (!plan->optimizer) return SL_OK;
    SLI_FAIL_IF(!isfinite(learning_rate), SL_ERR_NUMBERS,
                "the learning rate is not a finite number; check the schedule");
    run->params->optimizer_steps += 1;
    run->scalars.learning_rate = learning_rate;
    run->scalars.optimizer_step = run->params->optimizer_steps;
    SLI_TRY(upload_scalars(run));
    bool each = plan->options.clip.kind == SL_CLIP_NORM;
    SLI_TRY(submit_update(run, 0, plan->param_elements, offsetof(sli_metrics, squares), true, !each));
    for (int i = 0; each && i < plan->param_count; i++) {
        const sli_param_place *place = &plan->params[i];
        size_t count = (size_t)place->param.rows * (size_t)place->param.columns;
        SLI_TRY(submit_update(run, place->offset, count, offsetof(sli_metrics, tensor_squares), true, true));
    }
    SLI_TRY(sli_params_pack(run->params, run->queue, -1));
    if (!result) return plan->ops->wait(run->queue);
    sli_metrics metrics;
    SLI_TRY(plan->ops->download(run->queue, &metrics, run->block + plan->metrics, sizeof metrics));
    result->gradient_norm = sqrt(metrics.squares);
    return SL_OK;
}

sl_status sl_run_zero_gradients(sl_run *run) {
    SLI_TRY(check_training(run));
    const sl_plan *plan = run->plan;
    SLI_TRY(plan->ops->zero(run->queue, run->block + plan->gradients, plan->param_elements * plan->element));
    return plan->ops->wait(run->queue);
}

sl_status sl_run_gradient(sl_run *run, const char *parameter, double *values, size_t count) {
    SLI_TRY(check_training(run));
    const sl_plan *plan = run->plan;
    const sli_param_place *place = NULL;
    for (int i = 0; parameter && i < plan->param_count && !place; i++)
        if (strcmp(plan->params[i].param.name, parameter) == 0) place = &plan->params[i];
    SLI_FAIL_IF(!place, SL_ERR_UNKNOWN, "there is no parameter called \"%s\"", parameter ? parameter : "");
    size_t size = (size_t)place->param.rows * (size_t)place->param.columns;
    SLI_FAIL_IF(!values || count != size, SL_ERR_SHAPE, "the gradient of %s has %zu values, not %zu", parameter, size,
                count);
    const char *from = run->block + plan->gradients + place->offset * plan->element;
    if (plan->element == sizeof(double)) return plan->ops->download(run->queue, values, from, count * sizeof(double));
    for (size_t at = 0; at < count; at += SLI_RUN_PIECE / sizeof(float)) {
        float piece[SLI_RUN_PIECE / sizeof(float)];
        size_t n = count - at < SLI_RUN_PIECE / sizeof(float) ? count - at : SLI_RUN_PIECE / sizeof(float);
        SLI_TRY(plan->ops->download(run->queue, piece, from + at * sizeof(float), n * sizeof(float)));
        for (size_t i = 0; i < n; i++) values[at + i] = piece[i];
    }
    return SL_OK;
}

sl_status sl_run_input_gradient(sl_run *run, int index, void *values, size_t count) {
    SLI_TRY(check_training(run));
    const sl_plan *plan = run->plan;
    SLI_FAIL_IF(index < 0 || index >= plan->input_count, SL_ERR_USAGE, "there is no input %d; the model has %d", index,
                plan->input_count);
    const sli_tensor *tensor = &plan->tensors[plan->inputs[index]];
    SLI_FAIL_IF(!run->input_gradients_valid, SL_ERR_USAGE,
                "no gradients were computed yet; call sl_run_gradients first");
    SLI_FAIL_IF(!plan->options.input_gradients || tensor->shape.integer, SL_ERR_USAGE,
                "input \"%s\" has no gradient; plan with input_gradients = 1 (tokens never have one)", tensor->name);
    size_t elements = sli_plan_tensor_elements(plan, tensor, run->steps, run->batch);
    SLI_FAIL_IF(!values || count != elements, SL_ERR_SHAPE, "the gradient of \"%s\" has %zu values, not %zu",
                tensor->name, elements, count);
    if (!tensor->has_gradient) { /* no output depends on it */
        memset(values, 0, elements * plan->element);
        return SL_OK;
    }
    return sli_run_download_tensor(run, tensor, sli_run_gradient_at(run, tensor), values);
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
    SLI_FAIL_IF(bytes != run->plan->state_bytes || (!blob && bytes > 0), SL_ERR_SHAPE,
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
