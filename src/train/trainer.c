/* Making a trainer: the private model, the plan, the data and its checks, buffers, initial parameters. */
#include "train/trainer.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/atomic_file.h"
#include "io/npy.h"

/* ------------------------------------------------------------------------------------------------------ options -- */
static sl_status copy_string(sli_arena *arena, const char *text, const char **copy) {
    *copy = text ? sli_arena_string(arena, text) : NULL;
    return text && !*copy ? sli_fail_memory("a trainer", strlen(text) + 1) : SL_OK;
}

static sl_status copy_strings(sl_trainer *t, const char *path, const char *const *metadata) {
    SLI_TRY(copy_string(&t->arena, t->training.device, &t->training.device));
    SLI_TRY(copy_string(&t->arena, t->training.require, &t->training.require));
    SLI_TRY(copy_string(&t->arena, t->training.choices, &t->training.choices));
    SLI_TRY(copy_string(&t->arena, path, &t->path));
    if (path) {
        const char *beside = sli_arena_format(&t->arena, "%s.last", path);
        if (!beside) return sli_fail_memory("a trainer", strlen(path) + 6);
        bool alone = t->valid_kind == SLI_VALID_NONE;
        t->last_path = alone ? t->path : beside;
        t->stale_path = alone ? beside : NULL;
    }
    int count = 0;
    while (metadata && metadata[count] && metadata[count + 1]) count += 2;
    t->metadata = sli_arena_alloc(&t->arena, sizeof(char *) * (size_t)(count + 1));
    if (!t->metadata) return sli_fail_memory("a trainer", sizeof(char *) * (size_t)(count + 1));
    for (int i = 0; i < count; i++) SLI_TRY(copy_string(&t->arena, metadata[i], &t->metadata[i]));
    for (int i = 0; path && i < count; i++) /* the file's header is JSON: better now than at the first save */
        SLI_FAIL_IF(!sli_utf8_valid(metadata[i], strlen(metadata[i])), SL_ERR_INPUT,
                    "metadata \"%.60s\" is not valid UTF-8; encode it, or rename the file that it names",
                    metadata[i - i % 2]);
    return SL_OK;
}

/* --------------------------------------------------------------------------------------------------------- data -- */
/* FNV-1a: tells a checkpoint's data from other data. */
static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ p[i]) * 0x100000001B3u;
    return hash;
}

static uint64_t hash_array(uint64_t hash, const sl_array *array) {
    if (!array) return hash_bytes(hash, "", 1);
    hash = hash_bytes(hash, &array->type, sizeof array->type);
    hash = hash_bytes(hash, array->shape, (size_t)array->rank * sizeof *array->shape);
    return hash_bytes(hash, array->data, array->bytes);
}

/* Everything of the data that decides a number: also lengths, and what validates (it decides schedules and stops). */
static uint64_t hash_data(uint64_t hash, const sl_dataset *data) {
    if (!data) return hash_bytes(hash, "-", 1);
    hash = hash_bytes(hash, &data->token_count, sizeof data->token_count);
    if (data->tokens) return hash_bytes(hash, data->tokens, data->token_count * sizeof *data->tokens);
    hash = hash_array(hash_array(hash, data->x), data->y);
    return hash_array(hash, data->lengths);
}

static sl_status set_streams(sl_trainer *t, const sl_dataset *train, const sl_dataset *valid, const sli_ends *ends) {
    const sl_training *o = &t->training;
    size_t count = train->token_count;
    SLI_TRY(sli_check_tokens(train->tokens, count, ends->input.vocabulary));
    double fraction = valid ? 0 : o->valid_fraction;
    if (valid) {
        SLI_FAIL_IF(!valid->tokens, SL_ERR_INPUT,
                    "the training data are a token stream, the validation data are not: give tokens for both");
        SLI_TRY(sli_check_tokens(valid->tokens, valid->token_count, ends->input.vocabulary));
        t->valid_tokens = valid->tokens;
        t->valid_count = valid->token_count;
        t->valid_kind = SLI_VALID_STREAM;
    }
    if (o->split == SL_SPLIT_BLOCKS) {
        if (fraction > 0) t->valid_kind = SLI_VALID_BLOCKS;
        return sli_streams_blocks(&t->streams, fraction > 0 ? &t->valid_streams : NULL, train->tokens, count, o->batch,
                                  o->steps, fraction);
    }
    if (fraction > 0) {
        t->valid_count = (size_t)((double)count * fraction);
        t->valid_tokens = train->tokens + (count - t->valid_count);
        t->valid_kind = SLI_VALID_STREAM;
        count -= t->valid_count;
    }
    SLI_FAIL_IF(t->valid_kind == SLI_VALID_STREAM && t->valid_count<2, SL_ERR_INPUT, fraction> 0
                    ? "the validation share (--valid-split) of %zu tokens is too small: it needs at least 2; give "
                      "more text or a larger share"
                    : "the validation text (--valid) of %zu tokens is too small: it needs at least 2; give a "
                      "longer one",
                t->valid_count);
    return sli_streams_contiguous(&t->streams, train->tokens, count, o->batch, o->steps, o->drop_partial);
}

sl_status sli_trainer_array_needs(const sl_model *model, sl_loss loss, bool doubles, sli_array_needs *needs) {
    sli_ends ends;
    SLI_TRY(sli_model_ends(model, &ends));
    *needs = (sli_array_needs){.tokens = ends.input.integer,
                               .vocabulary = ends.input.vocabulary,
                               .features = ends.input.features,
                               .input_steps = ends.input.time,
                               .labels = loss == SL_LOSS_SOFTMAX,
                               .probabilities = loss == SL_LOSS_BINARY,
                               .classes = ends.output.features,
                               .output_steps = ends.output.time,
                               .doubles = doubles};
    return SL_OK;
}

/* Programs fill these structs in by themselves: shapes decide what is read of the data. */
sl_status sli_trainer_check_arrays(const sl_dataset *data) {
    const struct {
        const char *name;
        const sl_array *array;
    } arrays[] = {{"x", data->x}, {"y", data->y}, {"lengths", data->lengths}};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        SLI_FAIL_IF(arrays[i].array && !sli_array_is_sound(arrays[i].array), SL_ERR_USAGE,
                    "%s: the array has a type, rank, shape and number of bytes that do not fit: correct its sl_array",
                    arrays[i].name);
    return SL_OK;
}

static sl_status set_arrays(sl_trainer *t, const sl_dataset *train, const sl_dataset *valid) {
    sl_training *o = &t->training;
    sli_array_needs needs;
    SLI_FAIL_IF(!train->x || !train->y, SL_ERR_INPUT, "training needs x and y: give both (--x and --y)");
    SLI_FAIL_IF(valid && (!valid->x || !valid->y), SL_ERR_INPUT,
                "the validation data need x and y: give both (--valid-x and --valid-y)");
    SLI_TRY(sli_trainer_check_arrays(train));
    if (valid) SLI_TRY(sli_trainer_check_arrays(valid));
    SLI_TRY(sli_trainer_array_needs(t->model, o->loss, o->dtype == SL_F64, &needs));
    SLI_TRY(sli_array_data_new(train->x, train->y, train->lengths, &needs, &t->arrays));
    SLI_FAIL_IF(o->steps > 0 && o->steps < t->arrays.steps, SL_ERR_INPUT,
                "x has %d steps, but steps is %d: sequences of arrays are run whole; leave steps out", t->arrays.steps,
                o->steps);
    if (train->lengths) o->masking = SL_MASK_LENGTHS;
    SLI_FAIL_IF(o->masking == SL_MASK_LENGTHS && !train->lengths, SL_ERR_INPUT,
                "masking by lengths was asked for, but the data have no lengths: give them (--lengths)");
    o->steps = t->arrays.steps;
    if (valid) {
        const sl_status status = sli_array_data_new(valid->x, valid->y, valid->lengths, &needs, &t->valid_arrays);
        if (status != SL_OK) return sli_fail_context(status, "validation data");
        SLI_FAIL_IF(valid->lengths && !train->lengths, SL_ERR_INPUT,
                    "the validation data have lengths, the training data have none: give both (--lengths and "
                    "--valid-lengths), or neither");
        if (t->valid_arrays.steps > o->steps) o->steps = t->valid_arrays.steps;
        t->valid_kind = SLI_VALID_ARRAYS;
    }
    return SL_OK;
}

static sl_status set_data(sl_trainer *t, const sl_dataset *train, const sl_dataset *valid) {
    sl_training *o = &t->training;
    if (t->tokens) {
        sli_ends ends;
        SLI_TRY(sli_model_token_ends(t->model, &ends));
        SLI_TRY(set_streams(t, train, valid, &ends));
        t->blocks = t->streams.blocks;
    } else {
        SLI_TRY(set_arrays(t, train, valid));
        if ((size_t)o->batch > t->arrays.rows && o->accumulate == 1) o->batch = (int)t->arrays.rows;
        t->blocks = (t->arrays.rows + (size_t)o->batch - 1) / (size_t)o->batch;
    }
    t->data_hash = hash_data(hash_data(0xCBF29CE484222325u, train), valid);
    t->rows = o->batch / o->accumulate;
    bool watches = o->patience > 0 || o->schedule.kind == SL_SCHEDULE_PLATEAU;
    SLI_FAIL_IF(watches && t->valid_kind == SLI_VALID_NONE, SL_ERR_INPUT,
                "%s needs validation data: give some (--valid, or --valid-x and --valid-y), or of a text a share of it "
                "(--valid-split)",
                o->patience > 0 ? "early stopping (patience)" : "the plateau schedule");
    return SL_OK;
}

/* Rows of arrays begin from zeros, whatever the model, as it is saved, does with a stream. */
static sl_status plan_model(sl_trainer *t, const sl_plan_options *options) {
    sl_model *fresh = NULL;
    if (t->tokens) return sl_plan_new(t->model, options, &t->plan);
    SLI_TRY(sli_model_copy(t->model, SLI_STATES_FRESH, &fresh));
    const sl_status status = sl_plan_new(fresh, options, &t->plan);
    sl_model_free(fresh);
    return status;
}

/* ------------------------------------------------------------------------------------------------------ making -- */
static sl_status make_plan(sl_trainer *t, const char *choices, sl_tune tune) {
    const sl_training *o = &t->training;
    sl_plan_options options = {.batch = t->rows,
                               .steps = o->steps,
                               .train = 1,
                               .dtype = o->dtype,
                               .device = o->device,
                               .require = o->require,
                               .memory_limit = o->memory_limit,
                               .threads = o->threads,
                               .thread_pool = o->thread_pool,
                               .no_graph = o->no_graph,
                               .recompute_gates = o->recompute_gates,
                               .masking = o->masking,
                               .loss = o->loss,
                               .reduction = o->reduction,
                               .optimizer = o->optimizer,
                               .clip = o->clip,
                               .allocator = &t->allocator,
                               .choices = choices,
                               .tune = tune};
    SLI_TRY(plan_model(t, &options));
    SLI_TRY(sl_params_new(t->plan, &t->params));
    SLI_TRY(sli_params_init(t->params, o->seed, o->init_scale));
    SLI_TRY(sl_run_new(t->plan, t->params, &t->run));
    return sl_run_set_seed(t->run, o->seed);
}

static void free_plan(sl_trainer *t) {
    sl_run_free(t->run);
    sl_params_free(t->params);
    sl_plan_free(t->plan);
    t->run = NULL;
    t->params = NULL;
    t->plan = NULL;
}

sl_status sli_trainer_plan_again(sl_trainer *t, const char *choices) {
    free_plan(t); /* a GPU may not have room for both */
    if (make_plan(t, choices, SL_TUNE_NEVER) == SL_OK) return SL_OK;
    sli_clear_error();
    free_plan(t);
    return make_plan(t, t->training.choices, t->training.tune);
}

static sl_status allocate(const sl_allocator *allocator, size_t bytes, void *pointer) {
    void *block = bytes ? sli_alloc_zero(allocator, bytes) : NULL;
    if (bytes && !block) return sli_fail_memory("a batch of data", bytes);
    memcpy(pointer, &block, sizeof block);
    return SL_OK;
}

static sl_status make_buffers(sl_trainer *t) {
    size_t rows = (size_t)t->rows, steps = (size_t)t->training.steps;
    if (t->tokens) {
        t->input_bytes = t->target_bytes = rows * steps * sizeof(int32_t);
    } else {
        t->input_bytes = rows * sli_array_input_bytes(&t->arrays);
        t->target_bytes = rows * sli_array_target_bytes(&t->arrays);
        if (t->valid_kind == SLI_VALID_ARRAYS) {
            size_t valid_input = rows * sli_array_input_bytes(&t->valid_arrays);
            size_t valid_target = rows * sli_array_target_bytes(&t->valid_arrays);
            if (valid_input > t->input_bytes) t->input_bytes = valid_input;
            if (valid_target > t->target_bytes) t->target_bytes = valid_target;
        }
    }
    SLI_TRY(allocate(&t->allocator, t->input_bytes, &t->inputs));
    SLI_TRY(allocate(&t->allocator, t->target_bytes, &t->targets));
    if (t->training.masking == SL_MASK_LENGTHS) SLI_TRY(allocate(&t->allocator, rows * sizeof(int32_t), &t->lengths));
    t->state_bytes = sl_run_state_bytes(t->run);
    SLI_TRY(allocate(&t->allocator, ((size_t)t->training.accumulate + 1) * t->state_bytes, &t->states));
    if (!t->tokens && t->training.shuffle)
        SLI_TRY(allocate(&t->allocator, t->arrays.rows * sizeof(uint32_t), &t->order));
    return SL_OK;
}

/* Better now than after an epoch. What is no file is not opened: nothing may be written there yet. */
static sl_status check_writable(const char *path) {
    struct stat about;
    sli_atomic_file file;
    if (!path) return SL_OK;
    const bool other = stat(path, &about) == 0 && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode);
    SLI_FAIL_IF(other && access(path, W_OK) != 0, SL_ERR_IO, "%s: cannot be written: %s; choose another place", path,
                strerror(errno));
    SLI_FAIL_IF(other && !S_ISCHR(about.st_mode), SL_ERR_USAGE,
                "%s: is a pipe, and a training writes its model more than once; give the name of a file", path);
    if (other) return SL_OK;
    SLI_TRY(sli_atomic_begin(&file, path));
    sli_atomic_abort(&file);
    return SL_OK;
}

/* With validation there are two files, of which a device has no place for the second. */
static sl_status check_last(const sl_trainer *t) {
    struct stat about;
    if (!t->path || t->valid_kind == SLI_VALID_NONE || stat(t->path, &about) != 0) return SL_OK;
    SLI_FAIL_IF(S_ISCHR(about.st_mode), SL_ERR_USAGE,
                "%s: is a device, and training with validation writes a resume point beside the model; give the name "
                "of a file, or train without validation",
                t->path);
    return SL_OK;
}

static sl_status make(sl_trainer *t, const sl_model *model, const sl_training *training, const sl_dataset *train,
                      const sl_dataset *valid, const char *path, const char *const *metadata) {
    t->tokens = train->tokens != NULL;
    SLI_TRY(sli_training_resolve(training, t->tokens, &t->training));
    SLI_TRY(sli_model_copy(model, t->tokens ? SLI_STATES_CARRIED : SLI_STATES_AS_GIVEN, &t->model));
    SLI_TRY(sli_check_logits(t->model, t->training.loss));
    SLI_TRY(check_writable(path));
    SLI_TRY(set_data(t, train, valid));
    SLI_TRY(copy_strings(t, path, metadata));
    SLI_TRY(check_last(t));
    SLI_TRY(check_writable(t->last_path));
    SLI_TRY(make_plan(t, t->training.choices, t->training.tune));
    SLI_TRY(make_buffers(t));
    t->at.best = t->at.patience_best = INFINITY;
    return SL_OK;
}

sl_status sli_trainer_new(const sl_model *model, const sl_training *training, const sl_dataset *train,
                          const sl_dataset *valid, const char *path, const char *const *metadata,
                          sl_trainer **trainer) {
    sl_trainer *t = sli_alloc_zero(&model->allocator, sizeof *t);
    if (!t) return sli_fail_memory("a trainer", sizeof *t);
    t->allocator = model->allocator;
    sli_arena_init(&t->arena, &t->allocator);
    sl_status status = make(t, model, training, train, valid, path, metadata);
    if (status != SL_OK) {
        sli_trainer_free(t);
        return status;
    }
    *trainer = t;
    return SL_OK;
}

void sli_trainer_free(sl_trainer *trainer) {
    if (!trainer) return;
    sl_allocator a = trainer->allocator;
    if (trainer->order) sli_free(&a, trainer->order, trainer->arrays.rows * sizeof(uint32_t));
    if (trainer->states)
        sli_free(&a, trainer->states, ((size_t)trainer->training.accumulate + 1) * trainer->state_bytes);
    if (trainer->lengths) sli_free(&a, trainer->lengths, (size_t)trainer->rows * sizeof(int32_t));
    sli_free(&a, trainer->targets, trainer->target_bytes);
    sli_free(&a, trainer->inputs, trainer->input_bytes);
    free_plan(trainer);
    sl_model_free(trainer->model);
    sli_arena_free(&trainer->arena);
    sli_free(&a, trainer, sizeof *trainer);
}

sl_status sli_trainer_init_from(sl_trainer *trainer, const char *path) {
    sl_file *file = NULL;
    SLI_TRY(sl_file_open(&trainer->allocator, path, &file));
    sl_status status = sl_file_load_params(file, trainer->params);
    sl_file_close(file);
    return status;
}
