/* Checkpoints: a model file with everything that decides the next step. In the metadata's "training", as JSON: where training
 * stands, and the options it was started with; in tensors: parameters, optimizer slots, carried states. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/json_text.h"
#include "io/model_file.h"
#include "train/trainer.h"

/* --------------------------------------------------------------------------------------------------- carried state --
 * A blob holds, state after state, [rows][features] of one micro-batch; a file holds [batch][features] of each state. */
typedef struct state_tensors {
    sli_arena arena;
    char *data; /* of all states, one after the other */
    size_t bytes;
    sli_extra_tensor *tensors;
    int count;
} state_tensors;

static void free_states(const sl_trainer *t, state_tensors *s) {
    sli_free(&t->allocator, s->data, s->bytes);
    sli_arena_free(&s->arena);
}

/* Names, shapes and room. */
static sl_status list_states(const sl_trainer *t, state_tensors *s) {
    const sl_plan *plan = t->plan;
    size_t accumulate = (size_t)t->training.accumulate, at = 0;
    memset(s, 0, sizeof *s);
    sli_arena_init(&s->arena, &t->allocator);
    if (t->state_bytes == 0) return SL_OK;
    s->bytes = accumulate * t->state_bytes;
    s->data = sli_alloc_zero(&t->allocator, s->bytes);
    s->tensors = sli_arena_alloc(&s->arena, sizeof *s->tensors * (size_t)plan->state_count);
    if (!s->data || !s->tensors) return sli_fail_memory("the carried states", s->bytes);
    for (int i = 0; i < plan->state_count; i++) {
        const sli_state *state = &plan->states[i];
        if (!state->stateful) continue;
        sli_extra_tensor *tensor = &s->tensors[s->count++];
        tensor->name = sli_arena_format(&s->arena, "state.%s", state->name);
        if (!tensor->name) return sli_fail_memory("the carried states", 64);
        tensor->type = plan->element == sizeof(double) ? SL_ARRAY_F64 : SL_ARRAY_F32;
        tensor->rank = 2;
        tensor->shape[0] = (int64_t)accumulate * t->rows;
        tensor->shape[1] = state->features;
        tensor->data = s->data + at;
        at += accumulate * (size_t)t->rows * (size_t)state->features * plan->element;
    }
    SLI_FAIL_IF(at != s->bytes, SL_ERR_INTERNAL, "carried states have %zu bytes, the run says %zu", at, s->bytes);
    return SL_OK;
}

/* Copies between blobs and file tensors. */
static void move_states(const sl_trainer *t, const state_tensors *s, char *blobs, bool to_blobs) {
    size_t accumulate = (size_t)t->training.accumulate, in_blob = 0, in_file = 0;
    for (int i = 0; i < s->count; i++) {
        size_t bytes = (size_t)t->rows * (size_t)s->tensors[i].shape[1] * t->plan->element;
        for (size_t m = 0; m < accumulate; m++, in_file += bytes) {
            char *blob = blobs + m * t->state_bytes + in_blob;
            if (to_blobs)
                memcpy(blob, s->data + in_file, bytes);
            else
                memcpy(s->data + in_file, blob, bytes);
        }
        in_blob += bytes;
    }
}

static sl_status read_states(sl_trainer *t, state_tensors *s) {
    SLI_TRY(list_states(t, s));
    if (s->count == 0) return SL_OK;
    /* Micro-batches keep their own blobs; without them the run has the only one. */
    if (t->training.accumulate == 1) SLI_TRY(sl_run_get_state(t->run, t->states, t->state_bytes));
    move_states(t, s, t->states, false);
    return SL_OK;
}

/* -------------------------------------------------------------------------------------------------------- saving -- */
static void append_loss(sli_text *out, const char *key, double loss) {
    if (!isfinite(loss)) return; /* there was no evaluation yet */
    sli_text_printf(out, ", \"%s\": ", key);
    sli_json_append_number(out, loss);
}

void sli_checkpoint_write_scaling(sli_text *out, const sli_scaling *scaling) {
    sli_text_printf(out, ", \"loss_scale\": ");
    sli_json_append_number(out, scaling->scale);
    sli_text_printf(out, ", \"good_updates\": ");
    sli_json_append_number(out, scaling->good);
    sli_text_printf(out, ", \"skipped_updates\": ");
    sli_json_append_number(out, scaling->skipped);
}

static sl_status write_scaling(sl_trainer *t, sli_text *out) {
    sli_scaling scaling;
    if (!sli_plan_is_scaled(t->plan)) return SL_OK;
    SLI_TRY(sli_params_scaling_get(t->params, &scaling));
    sli_checkpoint_write_scaling(out, &scaling);
    return SL_OK;
}

/* What decides which kernels there are, beside the problems: "cpu", "cuda:sm_90". */
static void device_kind(const sl_plan *plan, char *text, size_t capacity) {
    const sli_caps *caps = &plan->caps;
    if (caps->kind == SLI_DEVICE_CUDA)
        snprintf(text, capacity, "cuda:sm_%d", caps->compute_capability);
    else
        snprintf(text, capacity, "%.*s", (int)strcspn(caps->name, ":"), caps->name);
}

/* The kernels that compute, so that resuming takes the same. */
static sl_status write_choices(sl_trainer *t, sli_text *out) {
    char device[32];
    sli_arena arena;
    sli_arena_init(&arena, &t->allocator);
    const char *choices = sli_choices_of_kept_gates(&arena, sl_plan_choices(t->plan));
    device_kind(t->plan, device, sizeof device);
    sli_text_printf(out, ", \"device\": \"%s\", \"dtype\": \"%s\", ", device, sli_dtype_name(t->plan->options.dtype));
    if (t->plan->caps.kind != SLI_DEVICE_CUDA)
        sli_text_printf(out, "\"isa\": \"%s\", ", sli_isa_name(t->plan->caps.isa));
    sli_text_printf(out, "\"choices\": ");
    if (choices) sli_json_append_string(out, choices);
    sli_arena_free(&arena);
    return choices ? SL_OK : sli_fail_memory("a checkpoint", 256);
}

static sl_status write_position(sl_trainer *t, sli_text *out) {
    const sli_position *at = &t->at;
    sli_text_printf(out,
                    "{\"step\": %" PRId64 ", \"epoch\": %d, \"block\": %zu, \"plateaus\": %d, \"waiting\": %d, "
                    "\"finished\": %s, \"data\": \"%016" PRIx64 "\", \"optimizer_steps\": ",
                    at->step, at->epoch, at->block, at->plateaus, at->waiting, at->finished ? "true" : "false",
                    t->data_hash);
    sli_json_append_number(out, sli_params_optimizer_steps(t->params));
    SLI_TRY(write_scaling(t, out));
    append_loss(out, "epoch_loss", at->epoch_loss);
    append_loss(out, "epoch_count", at->epoch_count);
    append_loss(out, "best", at->best);
    append_loss(out, "patience_best", at->patience_best);
    if (t->best_is_here) sli_text_printf(out, ", \"best_is_here\": true");
    SLI_TRY(write_choices(t, out));
    sli_text_printf(out, ", \"options\": ");
    sli_training_write(out, &t->training, t->training.task, 0);
    sli_text_printf(out, "}");
    return out->failed ? sli_fail_memory("a checkpoint", out->length) : SL_OK;
}

static sl_status save(sl_trainer *t, const char *path, bool resumable, const char *position, state_tensors *states) {
    int count = 0;
    while (t->metadata[count]) count++;
    size_t bytes = sizeof(char *) * (size_t)(count + 3);
    const char **metadata = sli_arena_alloc(&states->arena, bytes);
    if (!metadata) return sli_fail_memory("a checkpoint", bytes);
    memcpy(metadata, t->metadata, sizeof(char *) * (size_t)count);
    metadata[count] = "training";
    metadata[count + 1] = position;
    metadata[count + 2] = NULL;
    if (!resumable) return sli_model_file_save(path, t->model, t->params, NULL, 0, metadata);
    return sli_model_file_save_checkpoint(path, t->model, t->params, states->tensors, states->count, metadata);
}

sl_status sli_checkpoint_save(sl_trainer *trainer, const char *path, bool resumable) {
    sli_text position;
    state_tensors states = {0};
    sli_arena_init(&states.arena, &trainer->allocator);
    sli_text_init(&position, &trainer->allocator);
    sl_status status = write_position(trainer, &position);
    if (status == SL_OK && resumable) status = read_states(trainer, &states);
    if (status == SL_OK) status = save(trainer, path, resumable, position.data, &states);
    free_states(trainer, &states);
    sli_text_free(&position);
    return status;
}

/* ------------------------------------------------------------------------------------------------------- loading -- */
static double number_or(const json_t *object, const char *key, double otherwise) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

static sl_status whole_number(const json_t *root, const char *key, int64_t low, int64_t high, const char *path,
                              int64_t *out) {
    const json_t *value = json_object_get(root, key);
    SLI_FAIL_IF(!json_is_integer(value) || json_integer_value(value) < low || json_integer_value(value) > high,
                SL_ERR_FILE, "%s: its training state has no valid \"%s\": it is no checkpoint to resume from", path,
                key);
    *out = json_integer_value(value);
    return SL_OK;
}

/* `low` to infinity; left as it is where the file says nothing. */
static sl_status number(const json_t *root, const char *key, double low, const char *path, double *out) {
    const json_t *value = json_object_get(root, key);
    SLI_FAIL_IF(value && (!json_is_number(value) || json_number_value(value) < low), SL_ERR_FILE,
                "%s: its training state has no valid \"%s\": it is no checkpoint to resume from", path, key);
    if (value) *out = json_number_value(value);
    return SL_OK;
}

/* Data and options are those of the first run by now, so an epoch has as many batches as it had. */
static sl_status check_step(const sl_trainer *t, const sli_position *at, const char *path) {
    int64_t done = (int64_t)at->epoch * (int64_t)t->blocks + (int64_t)at->block;
    SLI_FAIL_IF(
        at->step != done, SL_ERR_FILE,
        "%s: its training state says step %lld after %d epochs of %zu steps and %zu more: the file was changed; "
        "resume from an older one, or start anew with --overwrite in place of --resume",
        path, (long long)at->step, at->epoch, t->blocks, at->block);
    return SL_OK;
}

static sl_status read_position(const sl_trainer *t, const json_t *root, const char *path, sli_position *at,
                               int64_t *optimizer_steps) {
    int64_t step = 0, epoch = 0, block = 0, plateaus = 0, waiting = 0;
    SLI_TRY(whole_number(root, "step", 0, UINT32_MAX, path, &step));
    SLI_TRY(whole_number(root, "epoch", 0, INT32_MAX, path, &epoch));
    SLI_TRY(whole_number(root, "block", 0, (int64_t)t->blocks - 1, path, &block));
    SLI_TRY(whole_number(root, "plateaus", 0, epoch, path, &plateaus));
    SLI_TRY(whole_number(root, "waiting", 0, epoch, path, &waiting));
    /* Fewer than steps where updates overflowed in f16, more where a caller went on after a step that failed. */
    SLI_TRY(whole_number(root, "optimizer_steps", 0, UINT32_MAX, path, optimizer_steps));
    *at = (sli_position){.step = step,
                         .epoch = (int)epoch,
                         .block = (size_t)block,
                         .plateaus = (int)plateaus,
                         .waiting = (int)waiting,
                         .best = INFINITY,
                         .patience_best = INFINITY,
                         .finished = json_is_true(json_object_get(root, "finished"))};
    SLI_TRY(number(root, "epoch_loss", -INFINITY, path, &at->epoch_loss));
    SLI_TRY(number(root, "epoch_count", 0, path, &at->epoch_count));
    SLI_TRY(number(root, "best", -INFINITY, path, &at->best));
    SLI_TRY(number(root, "patience_best", -INFINITY, path, &at->patience_best));
    SLI_TRY(check_step(t, at, path));
    /* With more patience than before, an early stop may go on. */
    if (at->finished) at->finished = t->training.patience > 0 && at->waiting >= t->training.patience;
    return SL_OK;
}

/* Training may go on for longer, stop otherwise, and on a device without the first one's products round other operands: what
 * is in the file is float in all but f64. Everything else must be as it was. */
static void leave_out_what_may_change(sl_training *training) {
    training->epochs = training->patience = 0;
    training->min_delta = 0;
    if (training->dtype != SL_F64) training->dtype = SL_F32;
}

static sl_status options_as_json(const sl_trainer *t, const sl_training *training, json_t **object) {
    sli_text text;
    sl_training copy = *training;
    leave_out_what_may_change(&copy);
    sli_text_init(&text, &t->allocator);
    sli_training_write(&text, &copy, copy.task, 0);
    sl_status status = text.failed ? sli_fail_memory("a checkpoint", text.length) : SL_OK;
    if (status == SL_OK) status = sli_json_load(text.data, text.length, "training options", SL_ERR_INTERNAL, object);
    sli_text_free(&text);
    return status;
}

/* The first member that differs, looking into objects. */
static const char *first_difference(const json_t *a, const json_t *b) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)a, key, value) {
        const json_t *other = json_object_get(b, key);
        if (json_equal(value, other)) continue;
        const char *inner = json_is_object(value) && json_is_object(other) ? first_difference(value, other) : NULL;
        return inner && strcmp(inner, "name") != 0 ? inner : key;
    }
    json_object_foreach((json_t *)b, key, value) if (!json_object_get(a, key)) return key;
    return NULL;
}

static sl_status compare_options(const sl_trainer *t, const json_t *root, const char *path) {
    sl_training stored;
    json_t *then = NULL, *today = NULL;
    const json_t *options = json_object_get(root, "options");
    SLI_FAIL_IF(!options, SL_ERR_FILE, "%s: holds no training options: it is no checkpoint to resume from", path);
    sl_status status = sli_training_read(options, &stored);
    if (status != SL_OK) return sli_fail_context(status, "%s", path);
    status = options_as_json(t, &stored, &then);
    if (status == SL_OK) status = options_as_json(t, &t->training, &today);
    if (status == SL_OK && !json_equal(then, today))
        status =
            sli_fail(SL_ERR_INPUT,
                     "%s: was trained with another \"%s\": resume with the options of the first run, or start anew "
                     "with --overwrite in place of --resume",
                     path, first_difference(then, today));
    json_decref(then);
    json_decref(today);
    return status;
}

static sl_status compare_with_trainer(sl_trainer *t, const sl_file *file, const json_t *root, const char *path) {
    char hash[32];
    const char *model, *stored = sl_file_metadata(file, "model"),
                       *data = json_string_value(json_object_get(root, "data"));
    SLI_TRY(compare_options(t, root, path));
    SLI_TRY(sl_model_to_json(t->model, &model));
    SLI_FAIL_IF(!stored || strcmp(stored, model) != 0, SL_ERR_INPUT,
                "%s: holds another model than the one to train: resume with the options of the first run", path);
    snprintf(hash, sizeof hash, "%016" PRIx64, t->data_hash);
    SLI_FAIL_IF(!data || strcmp(data, hash) != 0, SL_ERR_INPUT,
                "%s: was trained on other data: resume with the same text (or arrays) in the same order", path);
    return SL_OK;
}

static sl_status load_state(const sl_trainer *t, const sl_file *file, const sli_extra_tensor *tensor,
                            const char *path) {
    sl_tensor_info info;
    int index = sl_file_find(file, tensor->name);
    SLI_FAIL_IF(index < 0, SL_ERR_FILE, "%s: tensor %s is missing: it is no checkpoint to resume from", path,
                tensor->name);
    SLI_TRY(sl_file_tensor(file, index, &info));
    size_t bytes = (size_t)tensor->shape[0] * (size_t)tensor->shape[1] * t->plan->element;
    SLI_FAIL_IF(info.rank != 2 || info.shape[0] != tensor->shape[0] || info.shape[1] != tensor->shape[1] ||
                    info.bytes != bytes || strcmp(info.dtype, sli_tensor_dtype_name(tensor->type)) != 0,
                SL_ERR_FILE, "%s: tensor %s has another shape or type than the model's state", path, tensor->name);
    memcpy((void *)tensor->data, info.data, bytes);
    return SL_OK;
}

static sl_status load_states(sl_trainer *t, const sl_file *file, const char *path) {
    state_tensors states;
    sl_status status = list_states(t, &states);
    for (int i = 0; i < states.count && status == SL_OK; i++) status = load_state(t, file, &states.tensors[i], path);
    if (status == SL_OK && states.count > 0) {
        move_states(t, &states, t->states, true);
        status = sl_run_set_state(t->run, t->states, t->state_bytes);
    }
    free_states(t, &states);
    return status;
}

void sli_checkpoint_read_scaling(const json_t *root, sli_scaling *scaling) {
    double scale = number_or(root, "loss_scale", 0);
    if (scale > 0) scaling->scale = scale;
    scaling->good = number_or(root, "good_updates", scaling->good);
    scaling->skipped = number_or(root, "skipped_updates", scaling->skipped);
}

static sl_status load_scaling(sl_trainer *t, const json_t *root) {
    sli_scaling scaling;
    if (!sli_plan_is_scaled(t->plan)) return SL_OK;
    SLI_TRY(sli_params_scaling_get(t->params, &scaling));
    sli_checkpoint_read_scaling(root, &scaling);
    return sli_params_scaling_set(t->params, &scaling);
}

static const char *string_or(const json_t *object, const char *key, const char *otherwise) {
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : otherwise;
}

static sl_status keep_note(sl_trainer *t, char *note) {
    t->note = note;
    return note ? SL_OK : sli_fail_memory("a note about resuming", 256);
}

static bool same_choices(sl_trainer *t, const char *choices) {
    const char *own = sli_choices_of_kept_gates(&t->arena, sl_plan_choices(t->plan));
    return own && strcmp(choices, own) == 0;
}

/* The kernels that the file's training ran on, if they can be had. Files of before kernels were kept have none. */
static sl_status take_choices(sl_trainer *t, const json_t *root, const char *path) {
    char device[32];
    const char *choices = string_or(root, "choices", NULL), *then = string_or(root, "device", "?");
    const char *dtype = sli_dtype_name(t->plan->options.dtype), *dtype_then = string_or(root, "dtype", "?");
    t->note = NULL;
    if (!choices || same_choices(t, choices)) return SL_OK;
    device_kind(t->plan, device, sizeof device);
    if (strcmp(device, then) != 0 || strcmp(dtype, dtype_then) != 0)
        return keep_note(t, sli_arena_format(&t->arena,
                                             "%s: was trained on %s in %s: for %s in %s kernels are chosen anew, so "
                                             "that last bits differ",
                                             path, then, dtype_then, device, dtype));
    SLI_TRY(sli_trainer_plan_again(t, choices));
    if (same_choices(t, choices)) return SL_OK;
    const char *reason =
        t->plan->note_count > 0 ? t->plan->notes[t->plan->note_count - 1] : "other problems are planned";
    return keep_note(t, sli_arena_format(&t->arena,
                                         "%s: not every kernel that it was trained on can be had (%s): others take "
                                         "their place, so that last bits differ",
                                         path, reason));
}

/* The same kernels by other instructions add up in another order. Files of before they were kept have none. */
static sl_status note_instructions(sl_trainer *t, const json_t *root, const char *path) {
    const char *then = string_or(root, "isa", NULL), *today = sli_isa_name(t->plan->caps.isa);
    if (t->note || !then || t->plan->caps.kind == SLI_DEVICE_CUDA || strcmp(then, today) == 0) return SL_OK;
    return keep_note(t, sli_arena_format(&t->arena,
                                         "%s: was trained with %s, and goes on with %s, so that last bits differ", path,
                                         then, today));
}

/* A training was ended before it wrote its first model file: what is there is of one that it replaces. */
static bool best_is_here(const json_t *of_point) {
    return json_is_true(json_object_get(of_point, "best_is_here"));
}

/* What the resume point has seen, the model file beside it has, too: it is written first. With a worse loss or none it is of a training
 * that began anew, of the same options, and what is kept as the best so far would not be that. Files of before losses were kept have none. */
static bool has_seen(const json_t *of_model, const json_t *of_point) {
    const double best = number_or(of_point, "best", INFINITY);
    return isinf(best) || number_or(of_model, "best", INFINITY) <= best;
}

/* What is written there replaces nothing. */
static bool holds_nothing(const char *path) {
    struct stat about;
    return stat(path, &about) != 0 || !S_ISREG(about.st_mode) || about.st_size == 0;
}

/* The model file beside the resume point is of the same options, data and model, or the two are of different trainings (a disk that
 * was full, a kill between the first and the second), and going on would replace the model of one by the other's, or what
 * is no model file of a training at all. */
static sl_status check_partner(sl_trainer *t, const json_t *point) {
    sl_file *file = NULL;
    json_t *root = NULL;
    if (!t->path || strcmp(t->path, t->last_path) == 0 || best_is_here(point)) return SL_OK;
    sl_status status = sl_file_open(&t->allocator, t->path, &file);
    const char *training = status == SL_OK ? sl_file_metadata(file, "training") : NULL;
    bool same = holds_nothing(t->path);
    if (training) status = sli_json_load(training, strlen(training), t->path, SL_ERR_FILE, &root);
    if (root) {
        status = compare_with_trainer(t, file, root, t->path);
        same = status == SL_OK && has_seen(root, point);
    }
    json_decref(root);
    sl_file_close(file);
    if (status == SL_ERR_OUT_OF_MEMORY) return status;
    sli_clear_error();
    SLI_FAIL_IF(!same, SL_ERR_INPUT,
                "%s is not of the training that %s goes on with, which would replace it: move %s away and resume, or "
                "start anew with --overwrite in place of --resume",
                t->path, t->last_path, t->path);
    return SL_OK;
}

/* A layer may be called "state". */
static bool is_param(const sl_plan *plan, const char *name) {
    for (int i = 0; i < plan->param_count; i++)
        if (strcmp(plan->params[i].param.name, name) == 0) return true;
    return false;
}

/* Versions before carried states from a batch of arrays' rows to the next, and kept them; losses of validation were others then, and none can be compared with those. */
static sl_status forget_best(sl_trainer *t, const sl_file *file) {
    sl_tensor_info info;
    bool carried = false;
    for (int i = 0; !t->tokens && i < sl_file_tensor_count(file) && !carried; i++)
        carried = sl_file_tensor(file, i, &info) == SL_OK && strncmp(info.name, "state.", 6) == 0 &&
                  !is_param(t->plan, info.name);
    if (!carried) return SL_OK;
    t->at.best = t->at.patience_best = INFINITY;
    return t->note ? SL_OK
                   : keep_note(t, sli_arena_format(&t->arena,
                                                   "rows of arrays begin from zeros now, not from the states of the "
                                                   "rows before: losses of validation "
                                                   "until here are others, and the best of them counts no more"));
}

/* Writes the model file that the resume point is ahead of, and the resume point anew, which no longer is: both as they are after an
 * epoch. What was put in its place meanwhile and is no model file stays. */
static sl_status write_first_model(sl_trainer *t) {
    sl_file *file = NULL;
    const bool empty = holds_nothing(t->path);
    const sl_status status = empty ? SL_OK : sl_file_open(&t->allocator, t->path, &file);
    const char *format = file ? sl_file_metadata(file, "format") : NULL;
    const bool ours = empty || (format && strcmp(format, "sluice") == 0);
    sl_file_close(file);
    if (status == SL_ERR_OUT_OF_MEMORY) return status;
    sli_clear_error();
    SLI_FAIL_IF(!ours, SL_ERR_INPUT,
                "%s is no model file, and the one of the training that %s goes on with belongs there: move %s away and "
                "resume",
                t->path, t->last_path, t->path);
    SLI_TRY(sli_checkpoint_save(t, t->path, false));
    return sli_checkpoint_save(t, t->last_path, true);
}

static sl_status load(sl_trainer *t, const sl_file *file, const json_t *root, const char *path) {
    sli_position at;
    int64_t optimizer_steps = 0;
    SLI_TRY(compare_with_trainer(t, file, root, path));
    SLI_TRY(check_partner(t, root));
    SLI_TRY(read_position(t, root, path, &at, &optimizer_steps));
    SLI_TRY(take_choices(t, root, path));
    SLI_TRY(note_instructions(t, root, path));
    SLI_TRY(sli_file_load_params(file, t->params));
    SLI_TRY(sli_file_load_optimizer(file, t->params));
    SLI_TRY(load_states(t, file, path));
    SLI_TRY(load_scaling(t, root));
    sli_params_set_optimizer_steps(t->params, (double)optimizer_steps);
    t->at = at;
    SLI_TRY(forget_best(t, file));
    return best_is_here(root) && t->path ? write_first_model(t) : SL_OK;
}

sl_status sli_checkpoint_load(sl_trainer *trainer, const char *path) {
    sl_file *file = NULL;
    json_t *root = NULL;
    SLI_FAIL_IF(access(path, F_OK) != 0 && errno == ENOENT, SL_ERR_FILE,
                "%s: there is no resume point of this name; start anew without --resume (where there is a model "
                "already, with --overwrite), or from a model's parameters "
                "(--init-from)",
                path);
    SLI_TRY(sl_file_open(&trainer->allocator, path, &file));
    const char *training = sl_file_metadata(file, "training");
    sl_status status =
        training ? sli_json_load(training, strlen(training), path, SL_ERR_FILE, &root)
                 : sli_fail(SL_ERR_FILE, "%s: holds no training state: it is no checkpoint to resume from", path);
    if (status == SL_OK) status = load(trainer, file, root, path);
    json_decref(root);
    sl_file_close(file);
    return status;
}

sl_status sli_trainer_resume(sl_trainer *trainer) {
    SLI_FAIL_IF(!trainer->last_path, SL_ERR_USAGE, "resuming needs the path of the model file");
    SLI_TRY(sli_checkpoint_load(trainer, trainer->last_path));
    trainer->good_step = trainer->at.step;
    trainer->have_good = true;
    return SL_OK;
}
