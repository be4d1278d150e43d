/* The plan's bytes are what a process really takes: growth of the peak resident set from before planning to the end of some
 * training steps is at most the two blocks + 5% + 4 MB, and what a BLAS library keeps for itself. Measured in a child, whose
 * peak starts anew. */
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

enum { VOCABULARY = 6000, UNITS = 256, BATCH = 16, STEPS = 20 };

typedef struct measured {
    int stage; /* how far the child came; 0 = to the end */
    size_t block, blas, growth;
    char detail[200];
} measured;

/* VmHWM in bytes, 0 if the system does not tell. */
static size_t peak(void) {
    FILE *file = fopen("/proc/self/status", "r");
    if (!file) return 0;
    char line[256];
    size_t kilobytes = 0;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %zu kB", &kilobytes) == 1) break;
    fclose(file);
    return kilobytes * 1024;
}

/* Gives freed memory back, so that none of it hides growth, and forgets the old peak where the system lets us. */
static void restart_peak(void) {
    malloc_trim(0);
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (!file) return;
    fputs("5", file);
    fclose(file);
}

static sl_status language_model(sl_model *model) {
    sl_embedding embedding = {.vocabulary = VOCABULARY, .units = UNITS};
    sl_recurrent lstm = {
        .units = UNITS, .return_sequences = 1, .stateful = 1, .recurrent_init = {SL_INIT_GLOROT_UNIFORM, 0}};
    sl_dense dense = {.units = VOCABULARY};
    sl_status status = sl_model_add_tokens(model, "tokens", VOCABULARY);
    if (status == SL_OK) status = sl_model_add_embedding(model, "embedding", &embedding, NULL);
    if (status == SL_OK) status = sl_model_add_recurrent(model, "lstm1", SL_LSTM, &lstm, NULL);
    if (status == SL_OK) status = sl_model_add_recurrent(model, "lstm2", SL_LSTM, &lstm, NULL);
    if (status == SL_OK) status = sl_model_add_dense(model, "logits", &dense, NULL);
    return status;
}

static sl_status train(sl_run *run) {
    static int32_t tokens[STEPS * BATCH];
    const void *inputs[] = {tokens};
    sl_batch batch = {.batch = BATCH, .steps = STEPS, .inputs = inputs, .targets = tokens};
    for (int i = 0; i < STEPS * BATCH; i++) tokens[i] = i * 7919 % VOCABULARY;
    sl_status status = SL_OK;
    for (uint32_t step = 1; step <= 3 && status == SL_OK; step++) {
        status = sl_run_gradients(run, &batch, NULL, step, 0, 1.0, NULL);
        if (status == SL_OK) status = sl_run_update(run, 1e-3, NULL);
    }
    sl_result result;
    return status == SL_OK ? sl_run_evaluate(run, &batch, &result) : status;
}

static sl_status child(measured *m) {
    sl_model *model = NULL;
    sl_plan *plan = NULL;
    sl_params *params = NULL;
    sl_run *run = NULL;
    sl_memory memory;
    sl_plan_options options = {.batch = BATCH,
                               .steps = STEPS,
                               .train = 1,
                               .loss = SL_LOSS_SOFTMAX,
                               .optimizer = {.kind = SL_ADAM},
                               .clip = {SL_CLIP_GLOBAL_NORM, 5},
                               .device = test_device};
    m->stage = 1;
    sl_status status = sl_model_new(NULL, &model);
    if (status == SL_OK) status = language_model(model);
    restart_peak();
    size_t before = peak();
    m->stage = 2;
    if (status == SL_OK) status = sl_plan_new(model, &options, &plan);
    m->stage = 3;
    if (status == SL_OK) status = sl_params_new(plan, &params);
    if (status == SL_OK) status = sl_params_init(params, 1);
    m->stage = 4;
    if (status == SL_OK) status = sl_run_new(plan, params, &run);
    m->stage = 5;
    if (status == SL_OK) status = train(run);
    if (status == SL_OK) {
        sl_plan_memory(plan, &memory);
        m->stage = 0;
        m->block = memory.params_block + memory.run_block;
        m->blas = memory.blas_buffers;
        m->growth = peak() - before;
    }
    sl_run_free(run);
    sl_params_free(params);
    sl_plan_free(plan);
    sl_model_free(model);
    return status;
}

static measured measure(void) {
    measured m = {.stage = -1};
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    fflush(NULL);
    pid_t id = fork();
    REQUIRE(id >= 0);
    if (id == 0) {
        if (child(&m) != SL_OK) snprintf(m.detail, sizeof m.detail, "%s", sl_error_detail());
        _exit(write(ends[1], &m, sizeof m) == (ssize_t)sizeof m ? 0 : 1);
    }
    close(ends[1]);
    ssize_t count = read(ends[0], &m, sizeof m);
    close(ends[0]);
    int state = 0;
    waitpid(id, &state, 0);
    if (count != (ssize_t)sizeof m || state != 0 || m.stage != 0) {
        test_fail(__FILE__, __LINE__, "the child ended with state %d at stage %d: %s", state, m.stage, m.detail);
        test_abort();
    }
    return m;
}

TEST(run_memory_peak_is_the_plan) {
    if (SANITIZED) test_skip("a sanitizer's own memory counts");
    if (strcmp(test_device, "cpu")) test_skip("device %s keeps its memory elsewhere", test_device);
    if (peak() == 0) test_skip("no VmHWM in /proc/self/status");
    measured m = measure();
    size_t limit = m.block + m.block / 20 + ((size_t)4 << 20) + m.blas;
    if (m.growth > limit)
        test_fail(__FILE__, __LINE__, "the peak grew by %zu bytes; the plan says %zu in blocks and %zu in BLAS buffers",
                  m.growth, m.block, m.blas);
    /* The measure itself: a training run touches nearly all of its block. */
    if (m.growth < m.block / 2)
        test_fail(__FILE__, __LINE__, "the peak grew by %zu bytes only, with %zu in blocks", m.growth, m.block);
}
