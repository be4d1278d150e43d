/* Injected failures: each CUDA call of planning, running and training fails
 * once, and whatever that is, the answer is a status with one sentence, the
 * checkpoint stays whole, and the next training computes as if nothing had
 * been. */
#include "backend/cuda/plugin.h"
#include "test.h"
#include "train/train_helpers.h"

/* cudaError_t */
enum { NO_MEMORY = 2, ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719 };

enum { POINTS = 60 }; /* calls that are made to fail, spread over all */

static const sli_cuda_plugin *plugin_or_skip(void) {
    sli_why why = {""};
    if (!test_on_gpu()) test_skip("needs a GPU: run with --device cuda:0");
    const sli_cuda_plugin *plugin = sli_cuda_get(&why);
    if (!plugin) test_skip("%s", why.text);
    if (!plugin->inject) test_skip("the plug-in has no hook behind its CUDA calls");
    return plugin;
}

/* One sentence, and a status that says what kind of failure it is. */
static void check_failure(sl_status status, long call, int error) {
    const char *detail = sl_error_detail();
    bool right = status == SL_ERR_DEVICE || (error == NO_MEMORY && status == SL_ERR_OUT_OF_MEMORY);
    if (!right || !detail[0] || strchr(detail, '\n') || strlen(detail) > 600)
        test_fail(__FILE__, __LINE__, "call %ld fails with %d: %s: \"%s\"", call, error, sl_status_name(status),
                  detail);
}

/* ------------------------------------------------------------------------------------------------------
 * one step -- */

typedef struct outcome {
    double loss, norm;
    double kernel[4 * 6 * 5];
} outcome;

#define TRY(call)                             \
    do {                                      \
        sl_status status_ = (call);           \
        if (status_ != SL_OK) return status_; \
    } while (0)

static sl_status compute(sl_plan *plan, sl_params *params, sl_run *run, outcome *out) {
    enum { B = 3, T = 4, F = 5 };
    float x[T * B * F], targets[T * B * 2];
    uint64_t state = 7;
    sl_result result;
    (void)plan;
    for (int i = 0; i < T * B * F; i++) x[i] = (float)test_random(&state);
    for (int i = 0; i < T * B * 2; i++) targets[i] = (float)test_random(&state);
    const void *inputs[] = {x};
    sl_batch batch = {.batch = B, .steps = T, .inputs = inputs, .targets = targets};
    TRY(sl_params_init(params, 3));
    for (uint32_t step = 0; step < 3; step++) {
        TRY(sl_run_step(run, &batch, step, 0.1));
        TRY(sl_run_step_result(run, &result));
    }
    out->loss = result.loss;
    out->norm = result.gradient_norm;
    return sl_params_get(params, "lstm.kernel", out->kernel, sizeof out->kernel / sizeof *out->kernel);
}

static sl_status train_three_steps(sl_model *model, outcome *out) {
    sl_plan_options options = {.batch = 3, .steps = 4, .train = 1, .device = test_device, .loss = SL_LOSS_MSE};
    sl_plan *plan = NULL;
    sl_params *params = NULL;
    sl_run *run = NULL;
    memset(out, 0, sizeof *out);
    sl_status status = sl_plan_new(model, &options, &plan);
    if (status == SL_OK) status = sl_params_new(plan, &params);
    if (status == SL_OK) status = sl_run_new(plan, params, &run);
    if (status == SL_OK) status = compute(plan, params, run, out);
    sl_run_free(run);
    sl_params_free(params);
    sl_plan_free(plan);
    return status;
}

static sl_model *small_model(void) {
    sl_model *model;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 5, 0));
    REQUIRE_OK(
        sl_model_add_recurrent(model, "lstm", SL_LSTM, &(sl_recurrent){.units = 6, .return_sequences = 1}, NULL));
    REQUIRE_OK(sl_model_add_dense(model, "y", &(sl_dense){.units = 2}, NULL));
    return model;
}

static void fail_each_call(int error, bool sticky) {
    const sli_cuda_plugin *plugin = plugin_or_skip();
    sl_model *model = small_model();
    outcome whole, now;
    int failed = 0;
    REQUIRE_OK(train_three_steps(model, &now)); /* what is done once a process */
    long before = plugin->inject(0, 0, false);
    REQUIRE_OK(train_three_steps(model, &whole));
    long calls = plugin->inject(0, 0, false) - before;
    CHECK(calls > 10);
    for (long call = 1; call <= calls; call += calls > POINTS ? calls / POINTS : 1) {
        plugin->inject(call, error, sticky);
        sl_status status = train_three_steps(model, &now);
        plugin->inject(0, 0, false);
        if (status != SL_OK) {
            failed++;
            check_failure(status, call, error);
        } else if (memcmp(&now, &whole, sizeof whole) != 0) { /* done without that call, to the same end */
            test_fail(__FILE__, __LINE__, "call %ld fails with %d: no error, other numbers", call, error);
        }
    }
    CHECK(failed > 5);
    REQUIRE_OK(train_three_steps(model, &now));
    CHECK(memcmp(&now, &whole, sizeof whole) == 0);
    sl_model_free(model);
}

TEST(cuda_inject_out_of_memory) {
    fail_each_call(NO_MEMORY, false);
}

TEST(cuda_inject_failed_launch) {
    fail_each_call(LAUNCH_FAILED, false);
}

/* A GPU that fell off: every later call fails too. */
TEST(cuda_inject_lost_device) {
    fail_each_call(ILLEGAL_ADDRESS, true);
}

/* ----------------------------------------------------------------------------------------------------
 * checkpoints -- */

static sl_status resume_and_fit(const sl_model *model, sl_training *training, const sl_dataset *data, const char *path,
                                double *last_loss) {
    sl_trainer *trainer = NULL;
    helper_record record = {0};
    sl_status status = sl_trainer_new((sl_model *)model, training, data, NULL, path, NULL, &trainer);
    if (status == SL_OK) status = sl_trainer_resume(trainer);
    if (status == SL_OK) status = sl_trainer_fit(trainer, helper_listen, &record);
    *last_loss = record.last.loss;
    sl_trainer_free(trainer);
    return status;
}

static void copy_file(const char *from, const char *to) {
    char bytes[4096];
    size_t got;
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    REQUIRE(in && out);
    while ((got = fread(bytes, 1, sizeof bytes, in)) > 0) REQUIRE(fwrite(bytes, 1, got, out) == got);
    fclose(in);
    REQUIRE(fclose(out) == 0);
}

/* path and path.last as they were after the first epoch. */
static void restore(const char *kept, const char *path) {
    char from[800], to[800];
    snprintf(from, sizeof from, "%s.last", kept);
    snprintf(to, sizeof to, "%s.last", path);
    copy_file(kept, path);
    FILE *last = fopen(from, "rb");
    if (!last) return;
    fclose(last);
    copy_file(from, to);
}

TEST(cuda_inject_training_leaves_a_whole_checkpoint) {
    const sli_cuda_plugin *plugin = plugin_or_skip();
    sl_model *model = helper_model(0.3);
    sl_dataset data = helper_data(200);
    sl_training training = helper_training(1);
    training.valid_fraction = 0.2;
    const char *kept = helper_path("kept.sluice"), *path = helper_path("trained.sluice");
    helper_record first = {0};
    sl_trainer *trainer = helper_trainer(model, &training, &data, kept);
    REQUIRE_OK(sl_trainer_fit(trainer, helper_listen, &first));
    sl_trainer_free(trainer);
    training.epochs = 2;
    double whole, now;
    restore(kept, path);
    long before = plugin->inject(0, 0, false);
    REQUIRE_OK(resume_and_fit(model, &training, &data, path, &whole));
    long calls = plugin->inject(0, 0, false) - before;
    int failed = 0;
    for (long call = 1; call <= calls; call += calls / 25 + 1) {
        restore(kept, path);
        plugin->inject(call, ILLEGAL_ADDRESS, true);
        sl_status status = resume_and_fit(model, &training, &data, path, &now);
        plugin->inject(0, 0, false);
        if (status != SL_OK) check_failure(status, call, ILLEGAL_ADDRESS);
        failed += status != SL_OK;
        /* What is on the disk goes on to the same numbers. */
        sl_file *file;
        REQUIRE_OK(sl_file_open(NULL, path, &file));
        sl_file_close(file);
        if (status == SL_OK) continue;
        REQUIRE_OK(resume_and_fit(model, &training, &data, path, &now));
        CHECK(now == whole || now == 0); /* 0: everything had been done and written */
    }
    CHECK(failed > 3);
    sl_model_free(model);
}
