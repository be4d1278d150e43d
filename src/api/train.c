/* sluice.h: text, vocabularies, training, evaluation, sampling. Argument checks; the work is in src/data and src/train. */
#include <string.h>

#include "core/run.h"
#include "data/text.h"
#include "data/vocabulary.h"
#include "train/generate.h"
#include "train/trainer.h"

#define NOT_NULL(argument) SLI_FAIL_IF(!(argument), SL_ERR_USAGE, "%s: %s is NULL; pass one", __func__, #argument)

/* ------------------------------------------------------------------------------------------------------- texts -- */
sl_status sl_text_read(const sl_allocator *allocator, const char *const *paths, int count, char **text, size_t *bytes) {
    NOT_NULL(text);
    NOT_NULL(bytes);
    *text = NULL;
    *bytes = 0;
    NOT_NULL(paths);
    SLI_FAIL_IF(count < 1, SL_ERR_USAGE, "sl_text_read: no file is named; name one, or \"-\" for standard input");
    for (int i = 0; i < count; i++) NOT_NULL(paths[i]);
    return sli_text_read(allocator, paths, count, text, bytes);
}

void sl_text_free(char *text) {
    sli_text_release(text);
}

/* ------------------------------------------------------------------------------------------------- vocabularies -- */
sl_status sl_vocabulary_new(const sl_allocator *allocator, sl_level level, const char *text, size_t bytes, int limit,
                            sl_vocabulary **vocabulary) {
    NOT_NULL(vocabulary);
    *vocabulary = NULL;
    SLI_FAIL_IF((int)level < SL_LEVEL_CHAR || level > SL_LEVEL_BYTE, SL_ERR_USAGE, "sl_vocabulary_new: %d is no level",
                (int)level);
    SLI_FAIL_IF(!text && bytes, SL_ERR_USAGE, "sl_vocabulary_new: text is NULL; pass one");
    return sli_vocabulary_new(allocator, level, text, bytes, limit, vocabulary);
}

sl_status sl_vocabulary_from_json(const sl_allocator *allocator, const char *json, sl_vocabulary **vocabulary) {
    NOT_NULL(vocabulary);
    *vocabulary = NULL;
    NOT_NULL(json);
    return sli_vocabulary_from_json(allocator, json, vocabulary);
}

const char *sl_vocabulary_to_json(sl_vocabulary *vocabulary) {
    return vocabulary ? sli_vocabulary_to_json(vocabulary) : NULL;
}

void sl_vocabulary_free(sl_vocabulary *vocabulary) {
    sli_vocabulary_free(vocabulary);
}

int sl_vocabulary_size(const sl_vocabulary *vocabulary) {
    return vocabulary ? sli_vocabulary_size(vocabulary) : 0;
}

sl_level sl_vocabulary_level(const sl_vocabulary *vocabulary) {
    return vocabulary ? sli_vocabulary_level(vocabulary) : SL_LEVEL_CHAR;
}

const char *sl_vocabulary_token(const sl_vocabulary *vocabulary, int id, size_t *bytes) {
    size_t ignored;
    return vocabulary ? sli_vocabulary_token(vocabulary, id, bytes ? bytes : &ignored) : NULL;
}

sl_status sl_vocabulary_encode(const sl_vocabulary *vocabulary, const char *text, size_t bytes, int32_t **tokens,
                               size_t *count) {
    NOT_NULL(tokens);
    NOT_NULL(count);
    *tokens = NULL;
    *count = 0;
    NOT_NULL(vocabulary);
    SLI_FAIL_IF(!text && bytes, SL_ERR_USAGE, "sl_vocabulary_encode: text is NULL; pass one");
    return sli_vocabulary_encode(vocabulary, text, bytes, tokens, count);
}

void sl_tokens_free(const sl_vocabulary *vocabulary, int32_t *tokens, size_t count) {
    if (vocabulary && tokens) sli_tokens_free(vocabulary, tokens, count);
}

/* ----------------------------------------------------------------------------------------------------- options -- */
sl_status sl_training_from_json(const char *text, size_t bytes, sl_training *training) {
    NOT_NULL(training);
    memset(training, 0, sizeof *training);
    NOT_NULL(text);
    return sli_training_from_json(text, bytes, training);
}

sl_status sl_file_training(const sl_file *file, sl_training *training) {
    NOT_NULL(training);
    memset(training, 0, sizeof *training);
    NOT_NULL(file);
    return sli_file_training(file, training);
}

sl_status sl_training_to_json(sl_model *model, const sl_training *training, const char *task, const char **text) {
    NOT_NULL(text);
    *text = NULL;
    NOT_NULL(model);
    NOT_NULL(training);
    SLI_FAIL_IF(task && strcmp(task, "lm") != 0 && strcmp(task, "array") != 0, SL_ERR_USAGE,
                "sl_training_to_json: there is no task \"%.40s\"; tasks are lm and array", task);
    return sli_training_to_json(model, training, task, text);
}

sl_status sl_preset(const sl_allocator *allocator, const char *name, int vocabulary, sl_model **model,
                    sl_training *training) {
    NOT_NULL(model);
    *model = NULL;
    NOT_NULL(training);
    NOT_NULL(name);
    SLI_FAIL_IF(vocabulary < 1, SL_ERR_USAGE, "sl_preset: a vocabulary of %d tokens; it needs at least 1", vocabulary);
    return sli_preset(allocator, name, vocabulary, model, training);
}

/* ----------------------------------------------------------------------------------------------------- trainer -- */
sl_status sl_trainer_new(sl_model *model, const sl_training *training, const sl_dataset *train, const sl_dataset *valid,
                         const char *path, const char *const *metadata, sl_trainer **trainer) {
    NOT_NULL(trainer);
    *trainer = NULL;
    NOT_NULL(model);
    NOT_NULL(training);
    NOT_NULL(train);
    return sli_trainer_new(model, training, train, valid, path, metadata, trainer);
}

void sl_trainer_free(sl_trainer *trainer) {
    sli_trainer_free(trainer);
}

const sl_plan *sl_trainer_plan(const sl_trainer *trainer) {
    return trainer ? trainer->plan : NULL;
}

sl_params *sl_trainer_params(sl_trainer *trainer) {
    return trainer ? trainer->params : NULL;
}

sl_status sl_trainer_init_from(sl_trainer *trainer, const char *path) {
    NOT_NULL(trainer);
    NOT_NULL(path);
    return sli_trainer_init_from(trainer, path);
}

sl_status sl_trainer_resume(sl_trainer *trainer) {
    NOT_NULL(trainer);
    return sli_trainer_resume(trainer);
}

const char *sl_trainer_note(const sl_trainer *trainer) {
    return trainer ? trainer->note : NULL;
}

sl_status sl_trainer_fit(sl_trainer *trainer, sl_answer (*progress)(void *context, const sl_progress *progress),
                         void *context) {
    NOT_NULL(trainer);
    return sli_trainer_fit(trainer, progress, context);
}

sl_status sl_trainer_profile_begin(sl_trainer *trainer) {
    NOT_NULL(trainer);
    return sl_run_profile_begin(trainer->run);
}

sl_status sl_trainer_profile_end(sl_trainer *trainer, sl_profile_part parts[SL_PROFILE_PARTS]) {
    NOT_NULL(trainer);
    NOT_NULL(parts);
    return sl_run_profile_end(trainer->run, parts);
}

int sl_trainer_step_time(const sl_trainer *trainer, int index, sl_step_time *time) {
    return trainer ? sl_run_step_time(trainer->run, index, time) : 0;
}

/* -------------------------------------------------------------------------------------------------- evaluation -- */
sl_status sl_evaluate_tokens(sl_model *model, const sl_file *file, const int32_t *tokens, size_t count,
                             const sl_plan_options *options, sl_result *result) {
    sl_result filled = {0};
    NOT_NULL(result);
    NOT_NULL(file);
    SLI_FAIL_IF(!tokens && count, SL_ERR_USAGE, "sl_evaluate_tokens: tokens is NULL; pass them");
    SLI_TRY(sli_evaluate_tokens(model, file, tokens, count, options, &filled));
    *result = filled;
    return SL_OK;
}

sl_status sl_evaluate_arrays(const sl_file *file, const sl_dataset *data, const sl_plan_options *options,
                             sl_result *result) {
    sl_result filled = {0};
    NOT_NULL(result);
    NOT_NULL(file);
    NOT_NULL(data);
    NOT_NULL(data->x);
    NOT_NULL(data->y);
    SLI_TRY(sli_evaluate_arrays(file, data, options, &filled));
    *result = filled;
    return SL_OK;
}

/* ---------------------------------------------------------------------------------------------------- sampling -- */
sl_status sl_generator_new(const sl_file *file, const sl_plan_options *options, const sl_sampling *sampling,
                           sl_generator **generator) {
    NOT_NULL(generator);
    *generator = NULL;
    NOT_NULL(file);
    return sli_generator_new(file, options, sampling, generator);
}

void sl_generator_free(sl_generator *generator) {
    sli_generator_free(generator);
}

sl_status sl_generator_feed(sl_generator *generator, int32_t token) {
    NOT_NULL(generator);
    return sli_generator_feed(generator, token);
}

sl_status sl_generator_next(sl_generator *generator, int32_t *token) {
    NOT_NULL(token);
    *token = -1;
    NOT_NULL(generator);
    return sli_generator_next(generator, token);
}
