/* Evaluation: of a trainer's validation data, of a token stream, of arrays. */
#include <string.h>

#include "io/json_text.h"
#include "io/model_file.h"
#include "train/trainer.h"

static void add_result(sl_result *sums, const sl_result *result) {
    sums->loss_sum += result->loss_sum;
    sums->count += result->count;
    sums->correct += result->correct;
}

/* Tokens 2..N of a stream are predicted, `steps` a call, by one row. No copy: with one row the text itself is
 * [steps][1] inputs, and moved by one the labels. */
sl_status sli_evaluate_stream(sl_run *run, const int32_t *tokens, size_t count, int steps, sl_result *result) {
    for (size_t at = 0; at + 1 < count;) {
        size_t left = count - 1 - at;
        int now = left < (size_t)steps ? (int)left : steps;
        const void *inputs[1] = {tokens + at};
        sl_batch batch = {.batch = 1, .steps = now, .inputs = inputs, .targets = tokens + at + 1};
        sl_result part = {0};
        SLI_TRY(sl_run_evaluate(run, &batch, &part));
        add_result(result, &part);
        at += (size_t)now;
    }
    return SL_OK;
}

/* The blocks of the streams, from a zero state; micro-batches one after the other. */
static sl_status evaluate_blocks(sl_trainer *t, sl_result *result) {
    const void *inputs[1] = {t->inputs};
    for (int row = 0; row < t->training.batch; row += t->rows) {
        SLI_TRY(sl_run_reset_state(t->run));
        for (size_t i = 0; i < t->valid_streams.blocks; i++) {
            sl_result part = {0};
            int steps = sli_streams_fill(&t->valid_streams, i, row, t->rows, t->inputs, t->targets);
            sl_batch batch = {.batch = t->rows, .steps = steps, .inputs = inputs, .targets = t->targets};
            SLI_TRY(sl_run_evaluate(t->run, &batch, &part));
            add_result(result, &part);
        }
    }
    return SL_OK;
}

static sl_status evaluate_arrays(sl_run *run, const sli_array_data *data, int rows, void *x, void *y, int32_t *lengths,
                                 sl_result *result) {
    const void *inputs[1] = {x};
    for (size_t first = 0; first < data->rows; first += (size_t)rows) {
        int now = data->rows - first < (size_t)rows ? (int)(data->rows - first) : rows;
        sl_result part = {0};
        sli_array_fill(data, NULL, first, now, x, y, lengths);
        sl_batch batch = {.batch = now, .steps = data->steps, .inputs = inputs, .lengths = lengths, .targets = y};
        SLI_TRY(sl_run_evaluate(run, &batch, &part));
        add_result(result, &part);
    }
    return SL_OK;
}

sl_status sli_trainer_evaluate(sl_trainer *trainer, sl_result *result) {
    sl_trainer *t = trainer;
    char *spare = t->states + (size_t)t->training.accumulate * t->state_bytes;
    sl_status status = SL_OK;
    memset(result, 0, sizeof *result);
    if (t->state_bytes > 0) {
        SLI_TRY(sl_run_get_state(t->run, spare, t->state_bytes));
        SLI_TRY(sl_run_reset_state(t->run));
    }
    if (t->valid_kind == SLI_VALID_STREAM)
        status = sli_evaluate_stream(t->run, t->valid_tokens, t->valid_count, t->training.steps, result);
    else if (t->valid_kind == SLI_VALID_BLOCKS)
        status = evaluate_blocks(t, result);
    else if (t->valid_kind == SLI_VALID_ARRAYS)
        status = evaluate_arrays(t->run, &t->valid_arrays, t->rows, t->inputs, t->targets, t->lengths, result);
    if (t->state_bytes > 0 && status == SL_OK) status = sl_run_set_state(t->run, spare, t->state_bytes);
    result->loss = result->count > 0 ? result->loss_sum / result->count : 0;
    return status;
}

/* ------------------------------------------------------------------------------------------------ of model files -- */
/* A plan, parameters from the file, and a run. */
typedef struct session {
    sl_model *model; /* owned */
    sl_plan *plan;
    sl_params *params;
    sl_run *run;
} session;

static void close_session(session *s) {
    sl_run_free(s->run);
    sl_params_free(s->params);
    sl_plan_free(s->plan);
    sl_model_free(s->model);
}

static sl_status open_session(session *s, const sl_file *file, const sl_plan_options *options) {
    SLI_TRY(sl_plan_new(s->model, options, &s->plan));
    SLI_TRY(sl_params_new(s->plan, &s->params));
    SLI_TRY(sl_file_load_params(file, s->params));
    return sl_run_new(s->plan, s->params, &s->run);
}

static sl_plan_options inference_options(const sl_plan_options *options) {
    sl_plan_options o = {0};
    if (options) o = *options;
    o.train = o.batch_major = o.input_gradients = 0;
    o.reduction = SL_REDUCE_MEAN;
    memset(&o.optimizer, 0, sizeof o.optimizer);
    memset(&o.clip, 0, sizeof o.clip);
    return o;
}

/* s->model = a copy of `model`, or of the file's. */
static sl_status session_model(session *s, const sl_model *model, const sl_file *file, sli_states states) {
    sl_model *stored = NULL;
    if (!model) SLI_TRY(sl_file_model(file, &stored));
    sl_status status = sli_model_copy(model ? model : stored, states, &s->model);
    sl_model_free(stored);
    return status;
}

static sl_status evaluate_tokens(session *s, const sl_model *model, const sl_file *file, const int32_t *tokens,
                                 size_t count, const sl_plan_options *options, sl_result *result) {
    sli_ends ends;
    sl_plan_options o = inference_options(options);
    SLI_TRY(session_model(s, model, file, SLI_STATES_CARRIED));
    SLI_TRY(sli_model_token_ends(s->model, &ends));
    SLI_TRY(sli_check_logits(s->model, SL_LOSS_SOFTMAX));
    SLI_TRY(sli_check_tokens(tokens, count, ends.input.vocabulary));
    o.batch = 1;
    if (o.steps <= 0) o.steps = 64;
    o.masking = SL_MASK_NONE;
    o.loss = SL_LOSS_SOFTMAX;
    SLI_TRY(open_session(s, file, &o));
    SLI_TRY(sli_evaluate_stream(s->run, tokens, count, o.steps, result));
    result->loss = result->loss_sum / result->count;
    return SL_OK;
}

sl_status sli_evaluate_tokens(const sl_model *model, const sl_file *file, const int32_t *tokens, size_t count,
                              const sl_plan_options *options, sl_result *result) {
    session s = {0};
    SLI_FAIL_IF(count < 2, SL_ERR_INPUT, "the text has %zu tokens, evaluation needs at least 2: give a longer text",
                count);
    sl_status status = evaluate_tokens(&s, model, file, tokens, count, options, result);
    close_session(&s);
    return status;
}

sl_status sli_file_training(const sl_file *file, sl_training *training) {
    const char *text = sl_file_metadata(file, "training");
    json_t *root = NULL;
    SLI_FAIL_IF(!text, SL_ERR_INPUT, "%s: does not say how it was trained", file->path);
    SLI_TRY(sli_json_load(text, strlen(text), file->path, SL_ERR_FILE, &root));
    const json_t *options = json_object_get(root, "options");
    sl_status status =
        options ? sli_training_read(options, training)
                : sli_fail(SL_ERR_FILE, "its training state holds no options; give a file written by `sluice train`");
    json_decref(root);
    return status == SL_OK ? SL_OK : sli_fail_context(status, "%s", file->path);
}

static sl_status evaluate_file_arrays(session *s, const sl_file *file, const sl_dataset *data,
                                      const sl_plan_options *options, sl_result *result) {
    sl_plan_options o = inference_options(options);
    sli_array_needs needs;
    sli_array_data arrays;
    SLI_TRY(sli_trainer_check_arrays(data));
    if (o.loss == SL_LOSS_NONE) {
        sl_training training;
        SLI_FAIL_IF(!sl_file_metadata(file, "training"), SL_ERR_INPUT,
                    "the model file names no loss: give softmax, binary or mse");
        SLI_TRY(sli_file_training(file, &training));
        o.loss = training.loss;
    }
    SLI_TRY(session_model(s, NULL, file, SLI_STATES_FRESH));
    SLI_TRY(sli_check_logits(s->model, o.loss));
    SLI_TRY(sli_trainer_array_needs(s->model, o.loss, o.dtype == SL_F64, &needs));
    SLI_TRY(sli_array_data_new(data->x, data->y, data->lengths, &needs, &arrays));
    if (o.batch <= 0) o.batch = 32;
    if ((size_t)o.batch > arrays.rows) o.batch = (int)arrays.rows;
    o.steps = arrays.steps;
    o.masking = data->lengths ? SL_MASK_LENGTHS : SL_MASK_NONE;
    SLI_TRY(open_session(s, file, &o));

    const sl_allocator *a = &s->model->allocator;
    size_t x_bytes = (size_t)o.batch * sli_array_input_bytes(&arrays);
    size_t y_bytes = (size_t)o.batch * sli_array_target_bytes(&arrays);
    size_t length_bytes = data->lengths ? (size_t)o.batch * sizeof(int32_t) : 0;
    void *x = sli_alloc(a, x_bytes), *y = sli_alloc(a, y_bytes);
    int32_t *lengths = length_bytes ? sli_alloc(a, length_bytes) : NULL;
    sl_status status = SL_OK;
    if (!x || !y || (length_bytes && !lengths)) status = sli_fail_memory("a batch of data", x_bytes + y_bytes);
    if (status == SL_OK) status = evaluate_arrays(s->run, &arrays, o.batch, x, y, lengths, result);
    if (x) sli_free(a, x, x_bytes);
    if (y) sli_free(a, y, y_bytes);
    if (lengths) sli_free(a, lengths, length_bytes);
    result->loss = result->count > 0 ? result->loss_sum / result->count : 0;
    return status;
}

sl_status sli_evaluate_arrays(const sl_file *file, const sl_dataset *data, const sl_plan_options *options,
                              sl_result *result) {
    session s = {0};
    sl_status status = evaluate_file_arrays(&s, file, data, options, result);
    close_session(&s);
    return status;
}
