/* Out of memory at every single allocation of train, resume, evaluate and generate: always SL_ERR_OUT_OF_MEMORY, never a
 * crash, nothing left behind. Jansson's nodes are counted, but do not fail: it does not survive that. */
#include <jansson.h>

#include "test.h"
#include "train/train_helpers.h"

/* Fails allocation number `fail_at` (from 1); knows what is outstanding. */
typedef struct failing {
    long count, fail_at, blocks;
    size_t bytes;
    bool failed;
} failing;

static failing memory;

static bool refuse(void) {
    if (++memory.count != memory.fail_at) return false;
    memory.failed = true;
    return true;
}

static void *take(void *context, size_t bytes, size_t align) {
    (void)context;
    void *pointer = NULL;
    if (refuse() || posix_memalign(&pointer, align, bytes ? bytes : 1) != 0) return NULL;
    memory.blocks++;
    memory.bytes += bytes;
    return pointer;
}

static void give(void *context, void *pointer, size_t bytes) {
    (void)context;
    if (!pointer) return;
    memory.blocks--;
    memory.bytes -= bytes;
    free(pointer);
}

static const sl_allocator allocator = {take, give, NULL};

/* Its parser asserts where a token finds no memory (2.14, lex_scan_string). */
static void *take_json(size_t bytes) {
    memory.blocks++;
    return malloc(bytes);
}

static void give_json(void *pointer) {
    if (pointer) memory.blocks--;
    free(pointer);
}

/* What a work has open; freed whatever happened. */
typedef struct works {
    sl_vocabulary *vocabulary;
    int32_t *tokens;
    size_t count;
    sl_model *model;
    sl_trainer *trainer;
    sl_file *file;
    sl_generator *generator;
    char *text;
} works;

static void close_works(works *w) {
    sl_generator_free(w->generator);
    sl_file_close(w->file);
    sl_trainer_free(w->trainer);
    sl_model_free(w->model);
    sl_tokens_free(w->vocabulary, w->tokens, w->count);
    sl_vocabulary_free(w->vocabulary);
    sl_text_free(w->text);
}

#define TRY(call)                             \
    do {                                      \
        sl_status status_ = (call);           \
        if (status_ != SL_OK) return status_; \
    } while (0)

static const char *paths[2]; /* text, model file */

static sl_status text_work(works *w) {
    size_t bytes;
    TRY(sl_text_read(&allocator, paths, 1, &w->text, &bytes));
    TRY(sl_vocabulary_new(&allocator, SL_LEVEL_WORD, w->text, bytes, 5, &w->vocabulary));
    return sl_vocabulary_encode(w->vocabulary, w->text, bytes, &w->tokens, &w->count);
}

/* The description comes out of JSON, with its training options, and with small layers: hundreds of trainings draw their parameters. */
static sl_status describe_work(works *w, sl_training *training) {
    static char small[8192];
    sl_model *model = NULL;
    const char *text = NULL;
    TRY(sl_preset(&allocator, "ptb-small", sl_vocabulary_size(w->vocabulary), &w->model, training));
    training->batch = 2;
    training->steps = 4;
    training->epochs = 1;
    TRY(sl_training_to_json(w->model, training, NULL, &text));
    REQUIRE((size_t)snprintf(small, sizeof small, "%s", text) < sizeof small);
    int layers = 0;
    for (char *units = small; (units = strstr(units, ": 200")) != NULL; units += 5, layers++) memcpy(units, ": 17 ", 5);
    REQUIRE(layers == 3); /* the embedding and both LSTMs */
    TRY(sl_model_from_json(&allocator, small, strlen(small), &model));
    sl_status status = sl_training_from_json(small, strlen(small), training);
    sl_model_free(w->model);
    w->model = model;
    training->device = test_device;
    training->threads = 1;
    return status;
}

static sl_status train_work(works *w) {
    sl_training training;
    TRY(text_work(w));
    TRY(describe_work(w, &training));
    const char *json = sl_vocabulary_to_json(w->vocabulary);
    if (!json) return SL_ERR_OUT_OF_MEMORY;
    const char *metadata[] = {"vocabulary", json, NULL};
    sl_dataset data = {.tokens = w->tokens, .token_count = w->count};
    training.valid_fraction = 0.2;
    TRY(sl_trainer_new(w->model, &training, &data, NULL, paths[1], metadata, &w->trainer));
    return sl_trainer_fit(w->trainer, NULL, NULL);
}

static sl_status resume_work(works *w) {
    sl_training training;
    TRY(text_work(w));
    TRY(describe_work(w, &training));
    sl_dataset data = {.tokens = w->tokens, .token_count = w->count};
    training.valid_fraction = 0.2;
    training.epochs = 2;
    TRY(sl_trainer_new(w->model, &training, &data, NULL, paths[1], NULL, &w->trainer));
    return sl_trainer_resume(w->trainer);
}

static sl_status use_work(works *w) {
    size_t bytes;
    int32_t token;
    sl_result result;
    sl_plan_options options = {.device = test_device, .threads = 1, .steps = 8, .allocator = &allocator};
    TRY(sl_file_open(&allocator, paths[1], &w->file));
    TRY(sl_vocabulary_from_json(&allocator, sl_file_metadata(w->file, "vocabulary"), &w->vocabulary));
    TRY(sl_text_read(&allocator, paths, 1, &w->text, &bytes));
    TRY(sl_vocabulary_encode(w->vocabulary, w->text, bytes, &w->tokens, &w->count));
    TRY(sl_evaluate_tokens(NULL, w->file, w->tokens, w->count, &options, &result));
    TRY(sl_generator_new(w->file, &options, NULL, &w->generator));
    return sl_generator_next(w->generator, &token);
}

/* Every allocation fails once, one run each; the run after the last one succeeds. */
static long sweep(sl_status (*work)(works *)) {
    json_malloc_t json_malloc;
    json_free_t json_free;
    json_get_alloc_funcs(&json_malloc, &json_free);
    json_set_alloc_funcs(take_json, give_json);
    sl_status status = SL_ERR_OUT_OF_MEMORY;
    long n = 0, wrong = 0;
    while (status != SL_OK && wrong < 5 && n < 100000) {
        works w = {0};
        memory = (failing){.fail_at = ++n};
        status = work(&w);
        bool expected = memory.failed ? status == SL_ERR_OUT_OF_MEMORY : status == SL_OK;
        if (!expected) {
            test_fail(__FILE__, __LINE__, "allocation %ld fails: %s (%s)", n, sl_status_name(status),
                      sl_error_detail());
            wrong++;
        }
        if (memory.failed && status == SL_OK) status = SL_ERR_INTERNAL;
        close_works(&w);
        if (memory.blocks != 0 || memory.bytes != 0) {
            test_fail(__FILE__, __LINE__, "allocation %ld fails: %ld blocks, %zu bytes are left", n, memory.blocks,
                      memory.bytes);
            wrong++;
        }
    }
    json_set_alloc_funcs(json_malloc, json_free);
    CHECK(status == SL_OK);
    return n;
}

static void prepare(void) {
    static char text_path[700], model_path[700];
    snprintf(text_path, sizeof text_path, "%s/text", test_folder());
    snprintf(model_path, sizeof model_path, "%s/model.sluice", test_folder());
    FILE *file = fopen(text_path, "w");
    REQUIRE(file);
    for (int i = 0; i < 12; i++) fprintf(file, "the %s sat on the mat\n", i % 3 ? "cat" : "hat");
    REQUIRE(fclose(file) == 0);
    paths[0] = text_path;
    paths[1] = model_path;
}

TEST_SLOW(out_of_memory_everywhere) {
    prepare();
    CHECK(sweep(train_work) > 50);
    CHECK(sweep(resume_work) > 50);
    CHECK(sweep(use_work) > 50);
}
