/* Host arrays to the device and back: layouts, lengths, masks, targets, and the checks that keep bad numbers out. */
#include <math.h>
#include <string.h>

#include "core/rounding.h"
#include "core/run.h"

/* ------------------------------------------------------------------------------------------------- layouts -- */
static size_t tensor_row_bytes(const sl_plan *plan, const sli_tensor *tensor) {
    return (size_t)tensor->shape.features * sli_plan_host_element_bytes(plan, tensor);
}

static bool needs_transpose(const sl_run *run, const sli_tensor *tensor) {
    return run->plan->options.batch_major && tensor->shape.time && run->batch > 1 && run->steps > 1;
}

/* to[outer][inner] = from[inner][outer], rows of `bytes`. */
static void transpose_rows(char *to, const char *from, int outer, int inner, size_t bytes) {
    for (int i = 0; i < outer; i++)
        for (int j = 0; j < inner; j++)
            memcpy(to + ((size_t)i * (size_t)inner + (size_t)j) * bytes,
                   from + ((size_t)j * (size_t)outer + (size_t)i) * bytes, bytes);
}

/* Host arrays of floats, and tensors of 16 bits on the device. */
enum { HALVES = SLI_RUN_PIECE / sizeof(uint16_t) };

static sl_status upload_halves(sl_run *run, char *to, const float *from, size_t count) {
    uint16_t piece[HALVES];
    for (size_t at = 0; at < count; at += HALVES) {
        const size_t n = count - at < HALVES ? count - at : HALVES;
        for (size_t i = 0; i < n; i++) piece[i] = sli_to_bits16(run->plan->options.dtype, (double)from[at + i]);
        SLI_TRY(run->plan->ops->upload(run->queue, to + at * sizeof *piece, piece, n * sizeof *piece));
    }
    return SL_OK;
}

static sl_status download_halves(sl_run *run, float *to, const char *from, size_t count) {
    uint16_t piece[HALVES];
    for (size_t at = 0; at < count; at += HALVES) {
        const size_t n = count - at < HALVES ? count - at : HALVES;
        SLI_TRY(run->plan->ops->download(run->queue, piece, from + at * sizeof *piece, n * sizeof *piece));
        for (size_t i = 0; i < n; i++) to[at + i] = (float)sli_from_bits16(run->plan->options.dtype, piece[i]);
    }
    return SL_OK;
}

sl_status sli_run_upload_tensor(sl_run *run, const sli_tensor *tensor, void *to, const void *from) {
    if (needs_transpose(run, tensor)) {
        transpose_rows(run->staging, from, run->steps, run->batch, tensor_row_bytes(run->plan, tensor));
        from = run->staging;
    }
    const size_t count = sli_plan_tensor_elements(run->plan, tensor, run->steps, run->batch);
    const size_t each = sli_plan_tensor_element_bytes(run->plan, tensor);
    if (each == sizeof(uint16_t)) return upload_halves(run, to, from, count);
    return run->plan->ops->upload(run->queue, to, from, count * each);
}

sl_status sli_run_download_tensor(sl_run *run, const sli_tensor *tensor, const void *from, void *to) {
    bool transpose = needs_transpose(run, tensor);
    void *const place = transpose ? run->staging : to;
    const size_t count = sli_plan_tensor_elements(run->plan, tensor, run->steps, run->batch);
    const size_t each = sli_plan_tensor_element_bytes(run->plan, tensor);
    SLI_TRY(each == sizeof(uint16_t) ? download_halves(run, place, from, count)
                                     : run->plan->ops->download(run->queue, place, from, count * each));
    if (transpose) transpose_rows(to, run->staging, run->batch, run->steps, tensor_row_bytes(run->plan, tensor));
    return SL_OK;
}

/* The largest array of a call; 0 for time-major plans. */
size_t sli_run_staging_bytes(const sl_plan *plan) {
    if (!plan->options.batch_major) return 0;
    size_t cells = (size_t)plan->options.batch * (size_t)plan->options.steps, most = cells;
    for (int t = 0; t < plan->tensor_count; t++) {
        const sli_tensor *tensor = &plan->tensors[t];
        bool outside = tensor->input >= 0 || tensor->output >= 0;
        size_t bytes = cells * tensor_row_bytes(plan, tensor);
        if (outside && tensor->shape.time && bytes > most) most = bytes;
    }
    return cells * sizeof(int32_t) > most ? cells * sizeof(int32_t) : most;
}

/* -------------------------------------------------------------------------------------------------- checks -- */
/* Index of the first number that is not finite, or count. A sum of x*0 finds out quickly whether there is any. */
static size_t first_bad(const void *values, size_t count, bool doubles) {
    const double *d = values;
    const float *f = values;
    for (size_t at = 0; at < count; at += 1024) {
        size_t end = count - at < 1024 ? count : at + 1024;
        double sum = 0;
        for (size_t i = at; i < end; i++) sum += (doubles ? d[i] : (double)f[i]) * 0.0;
        if (sum == 0) continue;
        for (size_t i = at; i < end; i++)
            if (!isfinite(doubles ? d[i] : (double)f[i])) return i;
    }
    return count;
}

static sl_status check_floats(const sl_run *run, const sli_tensor *tensor, const char *what, const void *values) {
    size_t count = sli_plan_tensor_elements(run->plan, tensor, run->steps, run->batch);
    size_t bad = first_bad(values, count, run->plan->element == sizeof(double));
    SLI_FAIL_IF(bad < count, SL_ERR_NUMBERS,
                "%s \"%s\": value %zu of %zu is NaN or infinite; clean the data before it is fed", what, tensor->name,
                bad, count);
    return SL_OK;
}

static sl_status check_integers(const int32_t *values, size_t count, int32_t low, int32_t high, const char *what) {
    for (size_t i = 0; i < count; i++)
        SLI_FAIL_IF(values[i] < low || values[i] >= high, SL_ERR_INPUT, "%s: value %zu is %d; it must be %d to %d",
                    what, i, values[i], low, high - 1);
    return SL_OK;
}

/* ---------------------------------------------------------------------------------------- lengths and masks -- */
static sl_status fill_with_ones(sl_run *run, char *to, size_t count) {
    char piece[SLI_RUN_PIECE];
    size_t full = count < sizeof piece ? count : sizeof piece;
    memset(piece, 1, full);
    for (size_t at = 0; at < count; at += full)
        SLI_TRY(run->plan->ops->upload(run->queue, to + at, piece, count - at < full ? count - at : full));
    return SL_OK;
}

static sl_status upload_lengths(sl_run *run, const sl_batch *batch) {
    char *to = run->block + run->plan->lengths;
    for (int b = 0; b < run->batch; b++) run->lengths[b] = batch->lengths ? batch->lengths[b] : run->steps;
    return run->plan->ops->upload(run->queue, to, run->lengths, (size_t)run->batch * sizeof(int32_t));
}

sl_status sli_run_full_lengths(sl_run *run) {
    const sl_batch full = {.batch = run->batch, .steps = run->steps};
    return upload_lengths(run, &full);
}

static sl_status upload_mask(sl_run *run, const sl_batch *batch) {
    char *to = run->block + run->plan->mask;
    size_t bytes = (size_t)run->batch * (size_t)run->steps;
    if (!batch->mask) return fill_with_ones(run, to, bytes);
    const void *from = batch->mask;
    if (run->plan->options.batch_major) {
        transpose_rows(run->staging, from, run->steps, run->batch, 1);
        from = run->staging;
    }
    return run->plan->ops->upload(run->queue, to, from, bytes);
}

static sl_status check_masking(const sl_run *run, const sl_batch *batch) {
    sl_masking masking = run->plan->options.masking;
    SLI_FAIL_IF(batch->lengths && masking != SL_MASK_LENGTHS, SL_ERR_USAGE,
                "the batch has lengths but the plan has no masking by lengths; plan with SL_MASK_LENGTHS");
    SLI_FAIL_IF(batch->mask && masking != SL_MASK_STEPS, SL_ERR_USAGE,
                "the batch has a mask but the plan has no masking by steps; plan with SL_MASK_STEPS");
    if (!batch->lengths) return SL_OK;
    return check_integers(batch->lengths, (size_t)run->batch, 0, run->steps + 1, "lengths");
}

static sl_status upload_masking(sl_run *run, const sl_batch *batch) {
    sl_masking masking = run->plan->options.masking;
    if (masking == SL_MASK_LENGTHS) return upload_lengths(run, batch);
    return masking == SL_MASK_STEPS ? upload_mask(run, batch) : SL_OK;
}

/* ------------------------------------------------------------------------------------------------- targets -- */
static bool is_valid(const sl_run *run, const sl_batch *batch, int t, int b) {
    if (batch->lengths) return t < batch->lengths[b];
    if (!batch->mask) return true;
    bool batch_major = run->plan->options.batch_major;
    return batch
        ->mask[batch_major ? (size_t)b * (size_t)run->steps + (size_t)t : (size_t)t * (size_t)run->batch + (size_t)b];
}

/* Valid [t][b] positions; those whose label is -1 do not count. labels may be NULL. */
static double count_valid(const sl_run *run, const sl_batch *batch, bool time, const int32_t *labels) {
    int steps = time ? run->steps : 1;
    double count = 0;
    for (int t = 0; t < steps; t++)
        for (int b = 0; b < run->batch; b++) {
            bool batch_major = run->plan->options.batch_major && time;
            size_t at =
                batch_major ? (size_t)b * (size_t)steps + (size_t)t : (size_t)t * (size_t)run->batch + (size_t)b;
            count += (!time || is_valid(run, batch, t, b)) && (!labels || labels[at] >= 0);
        }
    return count;
}

/* The targets as a tensor: labels are one integer a position. */
static sli_tensor target_tensor(const sl_plan *plan) {
    sli_tensor target = plan->tensors[plan->steps[plan->loss_step].emit.in[SLI_LOSS_Z]];
    target.name = "targets";
    if (plan->options.loss == SL_LOSS_SOFTMAX) {
        target.shape.integer = true;
        target.shape.vocabulary = target.shape.features;
        target.shape.features = 1;
    }
    return target;
}

static sl_status check_targets(const sl_run *run, const sl_batch *batch) {
    const sl_plan *plan = run->plan;
    if (plan->loss_step < 0 || !batch->targets) return SL_OK;
    sli_tensor target = target_tensor(plan);
    if (!target.shape.integer) return check_floats(run, &target, "targets", batch->targets);
    return check_integers(batch->targets, sli_plan_tensor_elements(plan, &target, run->steps, run->batch), -1,
                          target.shape.vocabulary, "labels");
}

static sl_status upload_targets(sl_run *run, const sl_batch *batch) {
    const sl_plan *plan = run->plan;
    run->scale = 0;
    run->has_targets = plan->loss_step >= 0 && batch->targets;
    if (!run->has_targets) return SL_OK;
    sli_tensor target = target_tensor(plan);
    double valid = count_valid(run, batch, target.shape.time, target.shape.integer ? batch->targets : NULL);
    bool mean = plan->options.reduction == SL_REDUCE_MEAN;
    run->scale = valid == 0 ? 0 : 1 / (target.shape.features * (mean ? valid : run->batch));
    return sli_run_upload_tensor(run, &target, run->block + plan->targets, batch->targets);
}

/* -------------------------------------------------------------------------------------------------- a batch -- */
static sl_status check_inputs(const sl_run *run, const sl_batch *batch) {
    const sl_plan *plan = run->plan;
    SLI_FAIL_IF(!batch->inputs && plan->input_count > 0, SL_ERR_USAGE,
                "the batch has no inputs; set sl_batch.inputs to %d pointers", plan->input_count);
    for (int k = 0; k < plan->input_count; k++) {
        const sli_tensor *tensor = &plan->tensors[plan->inputs[k]];
        const void *from = batch->inputs[k];
        SLI_FAIL_IF(!from, SL_ERR_USAGE, "input \"%s\" is NULL; give its values", tensor->name);
        if (tensor->shape.integer)
            SLI_TRY(check_integers(from, sli_plan_tensor_elements(plan, tensor, run->steps, run->batch), 0,
                                   tensor->shape.vocabulary, tensor->name));
        else
            SLI_TRY(check_floats(run, tensor, "input", from));
    }
    return SL_OK;
}

static sl_status check_sizes(const sl_run *run, const sl_batch *batch) {
    const sl_plan_options *options = &run->plan->options;
    SLI_FAIL_IF(!batch, SL_ERR_USAGE, "the batch is NULL; pass one");
    SLI_FAIL_IF(batch->batch < 1 || batch->batch > options->batch, SL_ERR_SHAPE,
                "the batch has %d rows, the plan was made for 1 to %d; plan for more", batch->batch, options->batch);
    SLI_FAIL_IF(batch->steps < 1 || batch->steps > options->steps, SL_ERR_SHAPE,
                "the batch has %d steps, the plan was made for 1 to %d; plan for more", batch->steps, options->steps);
    return SL_OK;
}

/* Everything is checked before anything changes: a bad batch leaves the results of the last call. */
sl_status sli_run_upload_batch(sl_run *run, const sl_batch *batch) {
    SLI_TRY(check_sizes(run, batch));
    int rows = run->batch, steps = run->steps;
    run->batch = batch->batch;
    run->steps = batch->steps;
    sl_status status = check_inputs(run, batch);
    if (status == SL_OK) status = check_masking(run, batch);
    if (status == SL_OK) status = check_targets(run, batch);
    if (status != SL_OK) {
        run->batch = rows;
        run->steps = steps;
        return status;
    }
    run->outputs_valid = run->input_gradients_valid = false;
    sli_run_unbind(run);
    for (int k = 0; k < run->plan->input_count; k++) {
        const sli_tensor *tensor = &run->plan->tensors[run->plan->inputs[k]];
        SLI_TRY(sli_run_upload_tensor(run, tensor, sli_run_tensor_at(run, tensor), batch->inputs[k]));
    }
    SLI_TRY(upload_masking(run, batch));
    return upload_targets(run, batch);
}
