/* Updates and whole training steps: clip, optimizer, packed copies; results that are collected later. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "core/run.h"

/* ----------------------------------------------------------------------------------------------------- update -- */
/* Elements [offset, offset + count) of every array, and the sum of squares that clips compare with, in sli_metrics. */
typedef struct piece {
    size_t offset, count, squares;
} piece;

/* What calls of norm and optimizer have in common. */
static sli_call call_of(const sl_run *run, const sli_problem *problem, const piece *piece) {
    const sl_plan *plan = run->plan;
    const size_t norm_scratch = plan->norm_booking.scratch_forward;
    const size_t optimizer_scratch = plan->optimizer_booking.scratch_forward;
    sli_call call;
    memset(&call, 0, sizeof call);
    call.problem = *problem;
    call.problem.elements = (int64_t)piece->count;
    call.scalars = (const sli_scalars *)(run->block + plan->scalars);
    call.metrics = (sli_metrics *)(run->block + plan->metrics);
    call.scaling = sli_params_scaling_at(run->params);
    call.scratch = run->block + plan->update_scratch;
    call.scratch_bytes = norm_scratch > optimizer_scratch ? norm_scratch : optimizer_scratch;
    call.first_element = (int64_t)piece->offset;
    call.touched = sli_run_touched(run);
    call.sparse = plan->sparse_slices;
    return call;
}

static char *gradient_at(const sl_run *run, const piece *piece) {
    return run->block + run->plan->gradients + piece->offset * run->plan->element;
}

static sli_call norm_of(const sl_run *run, const piece *piece) {
    sli_call call = call_of(run, &run->plan->norm_problem, piece);
    call.out[SLI_NORM_GRAD] = gradient_at(run, piece);
    call.out[SLI_NORM_SQUARES] = (char *)call.metrics + piece->squares;
    return call;
}

static sl_status submit_norm(sl_run *run, const piece *piece) {
    const sl_plan *plan = run->plan;
    sli_call call = norm_of(run, piece);
    return plan->ops->submit(run->queue, plan->norm->forward, &call);
}

static piece all_of(const sl_plan *plan) {
    return (piece){0, plan->param_elements, offsetof(sli_metrics, squares)};
}

sl_status sli_run_early_squares(sl_run *run, const sli_step *step) {
    const sl_plan *plan = run->plan;
    if (!run->fresh || step->early.end == step->early.first) return SL_OK;
    const piece all = all_of(plan);
    sli_call call = norm_of(run, &all);
    call.slices = &step->early;
    call.parts = 1;
    call.part = call.late = true;
    return plan->ops->submit(run->queue, plan->norm->forward, &call);
}

/* Of all gradients, without the squares that are there already. */
static sl_status submit_whole_norm(sl_run *run) {
    const sl_plan *plan = run->plan;
    const piece all = all_of(plan);
    sli_call call = norm_of(run, &all);
    if (run->fresh && plan->rest_count > 0) {
        call.slices = plan->rest;
        call.parts = plan->rest_count;
    }
    return plan->ops->submit(run->queue, plan->norm->forward, &call);
}

/* Copies of parameters that lie in the piece. */
static void set_copies(const sl_run *run, const piece *piece, sli_call *call) {
    const sl_plan *plan = run->plan;
    char *packed = sli_params_packed(run->params);
    for (int i = 0; i < plan->step_count; i++) {
        const sli_step *step = &plan->steps[i];
        sli_copy *copy = &call->copies[call->copy_count];
        if (!step->copied || !step->kernel->copy_of) continue;
        const sli_param_place *place = &plan->params[step->emit.param[0]];
        if (place->offset < piece->offset || place->offset >= piece->offset + piece->count ||
            !step->kernel->copy_of(&step->problem, &plan->caps, copy))
            continue;
        copy->to = packed + step->packed + copy->at;
        copy->first = (int64_t)(place->offset - piece->offset);
        copy->end = copy->first + place->param.rows * place->param.columns;
        call->copy_count++;
    }
}

static void set_packer(const sl_run *run, const piece *piece, const sli_step *step, sli_call *call) {
    call->packer = step->kernel;
    call->packer_problem = &step->problem;
    sli_params_set_pack(run->params, step, piece->offset, piece->offset + piece->count, call);
}

/* Nobody needs zeros in the gradients that the next whole step writes. */
static bool keeps(const sl_run *run, int param) {
    return run->fresh && run->plan->params[param].fresh;
}

/* The piece's parameters are like `param`: their gradients are left as they are, or zero afterwards; a step's pack updates them, or none's. */
static sl_status submit_optimizer(sl_run *run, const piece *piece, int param) {
    const sl_plan *plan = run->plan;
    const size_t array = plan->param_elements * plan->element, at = piece->offset * plan->element;
    sli_call call = call_of(run, &plan->optimizer_problem, piece);
    call.out[SLI_OPTIM_PARAM] = run->params->block + at;
    call.out[SLI_OPTIM_GRAD] = gradient_at(run, piece);
    for (int s = 0; s < plan->slots; s++)
        call.out[SLI_OPTIM_SLOT0 + s] = run->params->block + (size_t)(s + 1) * array + at;
    call.in[SLI_OPTIM_SQUARES] = (char *)call.metrics + piece->squares;
    call.keep_gradient = keeps(run, param);
    set_copies(run, piece, &call);
    if (plan->params[param].packer >= 0) set_packer(run, piece, &plan->steps[plan->params[param].packer], &call);
    return plan->ops->submit(run->queue, plan->optimizer->forward, &call);
}

static bool are_alike(const sl_run *run, int param, int other) {
    return keeps(run, param) == keeps(run, other) && run->plan->params[param].packer == run->plan->params[other].packer;
}

/* Neighbours that are alike in one call. */
static sl_status update_all(sl_run *run) {
    const sl_plan *plan = run->plan;
    for (int i = 0, end; i < plan->param_count; i = end) {
        for (end = i + 1; end < plan->param_count && are_alike(run, i, end);) end++;
        const size_t from = plan->params[i].offset;
        const size_t to = end < plan->param_count ? plan->params[end].offset : plan->param_elements;
        const piece piece = {from, to - from, offsetof(sli_metrics, squares)};
        SLI_TRY(submit_optimizer(run, &piece, i));
    }
    return SL_OK;
}

static sl_status update_each(sl_run *run) {
    const sl_plan *plan = run->plan;
    for (int i = 0; i < plan->param_count; i++) {
        const sli_param_place *place = &plan->params[i];
        const size_t count = (size_t)place->param.rows * (size_t)place->param.columns;
        const piece piece = {place->offset, count, offsetof(sli_metrics, tensor_squares)};
        SLI_TRY(submit_norm(run, &piece));
        SLI_TRY(submit_optimizer(run, &piece, i));
    }
    return SL_OK;
}

static sl_status update_work(sl_run *run) {
    const sl_plan *plan = run->plan;
    SLI_TRY(submit_whole_norm(run));
    SLI_TRY(plan->options.clip.kind == SL_CLIP_NORM ? update_each(run) : update_all(run));
    SLI_TRY(sli_params_pack_updated(run->params, run->queue));
    return sli_run_complete_report(run);
}

static sl_status set_rate(sl_run *run, double learning_rate) {
    SLI_FAIL_IF(run->params->bindings > 0 && sli_params_any_bound(run->params), SL_ERR_USAGE,
                "parameters that another library owns are updated by its own optimizer; unbind them first");
    const bool finite = run->plan->element == sizeof(double) ? isfinite(learning_rate) : isfinite((float)learning_rate);
    SLI_FAIL_IF(!finite, SL_ERR_NUMBERS, "the learning rate %g is not finite in %s; check the schedule", learning_rate,
                run->plan->element == sizeof(double) ? "f64" : "f32");
    run->scalars.learning_rate = learning_rate;
    run->scalars.optimizer_step =
        run->params->optimizer_steps + 1 + run->skipped; /* the device takes off its own count */
    return SL_OK;
}

/* An update whose gradients were not finite did not happen, and does not count: the device has left it out of the number of a
 * step that was queued behind it, the host does so from its result on. With loss scaling the device alone counts those. */
static void count_update(sl_run *run, const sli_run_report *report) {
    if (!run->plan->optimizer || sli_plan_is_scaled(run->plan)) return;
    run->params->optimizer_steps -= report->metrics.skipped - run->skipped;
    run->skipped = report->metrics.skipped;
}

sl_status sl_run_update(sl_run *run, double learning_rate, sl_result *result) {
    SLI_TRY(sli_run_check_training(run));
    const sl_plan *plan = run->plan;
    sli_run_report report;
    memset(&report, 0, sizeof report);
    SLI_FAIL_IF(plan->options.narrow_parameters, SL_ERR_USAGE,
                "parameters of 16 bits are updated by their owner's optimizer; plan without narrow_parameters");
    if (plan->optimizer) SLI_TRY(set_rate(run, learning_rate));
    if (result) memset(result, 0, sizeof *result);
    if (!plan->optimizer) return SL_OK;
    SLI_TRY(sli_run_send_scalars(run));
    SLI_TRY(sli_run_clear_leftovers(run));
    SLI_TRY(sli_run_do(run, SLI_RUN_UPDATE, update_work));
    run->gradients = SLI_GRADIENTS_ZEROS;
    SLI_TRY(plan->ops->download(run->queue, &report, run->block + plan->metrics, sli_run_report_bytes(run)));
    run->params->optimizer_steps += 1;
    count_update(run, &report);
    if (!result) return SL_OK;
    result->gradient_norm = sqrt(report.metrics.squares);
    result->loss_scale = report.scaling.scale;
    result->skipped_steps = report.scaling.skipped;
    return SL_OK;
}

/* ------------------------------------------------------------------------------------------------- whole steps -- */
int sl_run_depth(const sl_run *run) {
    return run && run->plan->ops->read_later && run->plan->ops->read_slot ? SLI_RUN_DEPTH : 1;
}

static sl_status step_work(sl_run *run) {
    SLI_TRY(sli_run_gradients_work(run));
    return run->plan->optimizer ? update_work(run) : sli_run_complete_report(run);
}

/* All gradients are zeros, or will be written. */
static sl_status touch_nothing(sl_run *run) {
    uint8_t *touched = sli_run_touched(run);
    const size_t bytes = sli_round_up((size_t)sli_plan_slices(run->plan), SLI_ALIGN);
    return touched ? run->plan->ops->zero(run->queue, touched, bytes) : SL_OK;
}

static sl_status fresh_step_work(sl_run *run) {
    SLI_TRY(touch_nothing(run));
    run->fresh = true;
    const sl_status status = step_work(run);
    run->fresh = false;
    return status;
}

/* Fresh gradients forget what was there: sums that no update has taken are added to and taken by calls that know nothing of
 * them. */
static sl_status do_step(sl_run *run) {
    const sl_plan *plan = run->plan;
    if (!plan->any_fresh) {
        SLI_TRY(sli_run_do(run, SLI_RUN_STEP, step_work));
        run->gradients = plan->optimizer ? SLI_GRADIENTS_ZEROS : SLI_GRADIENTS_SUMS;
        return SL_OK;
    }
    if (run->gradients != SLI_GRADIENTS_SUMS) {
        run->gradients = SLI_GRADIENTS_LEFTOVERS;
        return sli_run_do(run, SLI_RUN_STEP, fresh_step_work);
    }
    SLI_TRY(sli_run_do(run, SLI_RUN_GRADIENTS, sli_run_gradients_work));
    SLI_TRY(sli_run_do(run, SLI_RUN_UPDATE, update_work));
    run->gradients = SLI_GRADIENTS_ZEROS;
    return SL_OK;
}

/* Queues the copy of the step's report, or takes it at once. */
static sl_status expect_report(sl_run *run) {
    const sl_plan *plan = run->plan;
    sli_run_pending *step = &run->pending[run->pending_count];
    memset(step, 0, sizeof *step);
    step->scale = run->scale;
    step->slot = run->next_slot;
    const char *from = run->block + plan->metrics;
    if (sl_run_depth(run) == 1)
        SLI_TRY(plan->ops->download(run->queue, &step->report, from, sli_run_report_bytes(run)));
    else
        SLI_TRY(plan->ops->read_later(run->queue, step->slot, from, sli_run_report_bytes(run)));
    run->next_slot = (run->next_slot + 1) % SLI_RUN_DEPTH;
    run->pending_count++;
    return SL_OK;
}

sl_status sl_run_step(sl_run *run, const sl_batch *batch, uint32_t step, double learning_rate) {
    SLI_TRY(sli_run_check_training(run));
    SLI_FAIL_IF(run->plan->loss_step < 0, SL_ERR_USAGE, "the plan has no loss; set sl_plan_options.loss");
    SLI_FAIL_IF(!batch || !batch->targets, SL_ERR_USAGE, "the plan has a loss: the batch needs targets");
    SLI_FAIL_IF(run->pending_count >= sl_run_depth(run), SL_ERR_USAGE,
                "%d steps wait for their results; collect one with sl_run_step_result", run->pending_count);
    SLI_TRY(set_rate(run, learning_rate));
    SLI_TRY(sli_run_upload_batch(run, batch));
    run->training = true;
    run->scalars.step = step;
    run->scalars.micro_step = 0;
    run->scalars.loss_scale = run->scale;
    SLI_TRY(sli_run_send_scalars(run));
    SLI_TRY(do_step(run));
    if (run->plan->optimizer) run->params->optimizer_steps += 1;
    run->outputs_valid = false;
    run->input_gradients_valid = true;
    return expect_report(run);
}

sl_status sl_run_step_result(sl_run *run, sl_result *result) {
    SLI_TRY(sli_run_check_training(run));
    SLI_FAIL_IF(!result, SL_ERR_USAGE, "sl_run_step_result: result is NULL; pass one");
    SLI_FAIL_IF(run->pending_count == 0, SL_ERR_USAGE, "no step waits for its result; call sl_run_step first");
    memset(result, 0, sizeof *result);
    sli_run_pending step = run->pending[0];
    run->pending_count--;
    memmove(run->pending, run->pending + 1, sizeof *run->pending * (size_t)run->pending_count);
    if (sl_run_depth(run) > 1)
        SLI_TRY(run->plan->ops->read_slot(run->queue, step.slot, &step.report, sli_run_report_bytes(run)));
    count_update(run, &step.report);
    sli_run_fill_result(&step.report, step.scale, result);
    result->gradient_norm = run->plan->optimizer ? sqrt(step.report.metrics.squares) : 0;
    return SL_OK;
}
