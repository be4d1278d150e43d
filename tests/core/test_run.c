/* Runs: layouts, states, shorter calls, errors, many runs of one plan. */
#include <pthread.h>

#include "core/run.h"
#include "test.h"

typedef struct rig {
    sl_plan *plan;
    sl_params *params;
    sl_run *run;
} rig;

static rig make_rig(sl_model *model, sl_plan_options options) {
    rig r;
    options.device = test_device;
    REQUIRE_OK(sl_plan_new(model, &options, &r.plan));
    REQUIRE_OK(sl_params_new(r.plan, &r.params));
    REQUIRE_OK(sl_params_init(r.params, 11));
    REQUIRE_OK(sl_run_new(r.plan, r.params, &r.run));
    return r;
}
static void free_rig(rig *r) {
    sl_run_free(r->run);
    sl_params_free(r->params);
    sl_plan_free(r->plan);
}

/* x [T][B][3] -> GRU 5, stateful, sequences -> dense 2 */
static sl_model *stream_model(void) {
    sl_model *model;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 3, 0));
    sl_recurrent options = {.units = 5, .return_sequences = 1, .stateful = 1, .return_state = 1};
    REQUIRE_OK(sl_model_add_recurrent(model, "gru", SL_GRU, &options, NULL));
    sl_dense dense = {.units = 2};
    REQUIRE_OK(sl_model_add_dense(model, "y", &dense, NULL));
    return model;
}

enum { B = 3, T = 6, I = 3, F = 2 };

static void draw(float *values, int count) {
    uint64_t state = test_seed;
    for (int i = 0; i < count; i++) values[i] = (float)test_random(&state);
}

TEST(run_streaming_equals_the_whole_sequence) {
    sl_model *model = stream_model();
    rig whole = make_rig(model, (sl_plan_options){.batch = 1, .steps = T}),
        one = make_rig(model, (sl_plan_options){.batch = 1, .steps = 1});
    float x[T * I], y[T * F], step[F];
    draw(x, T * I);
    const void *inputs[] = {x};
    REQUIRE_OK(sl_run_forward(whole.run, &(sl_batch){.batch = 1, .steps = T, .inputs = inputs}));
    REQUIRE_OK(sl_run_output(whole.run, NULL, y, T * F));
    size_t bytes = sl_run_state_bytes(one.run);
    CHECK(bytes == 5 * sizeof(float));
    float blob[5];
    for (int t = 0; t < T; t++) {
        inputs[0] = x + t * I;
        REQUIRE_OK(sl_run_forward(one.run, &(sl_batch){.batch = 1, .steps = 1, .inputs = inputs}));
        REQUIRE_OK(sl_run_output(one.run, "y", step, F));
        /* On a GPU one row and one step may have other kernels than a sequence. */
        for (int k = 0; k < F; k++) CHECK_NEAR(step[k], y[t * F + k], test_on_gpu() ? 4e-6 : 1e-6);
        /* From the second step on a recording is replayed, where the device has them. */
        CHECK((one.run->recordings[SLI_RUN_INFER] != NULL) == (one.run->plan->ops->record_begin != NULL));
        /* The state is a plain blob: it survives a detour. */
        REQUIRE_OK(sl_run_get_state(one.run, blob, bytes));
        REQUIRE_OK(sl_run_reset_state(one.run));
        REQUIRE_OK(sl_run_set_state(one.run, blob, bytes));
    }
    CHECK_FAILS(sl_run_set_state(one.run, blob, bytes - 1), SL_ERR_SHAPE, "bytes");
    free_rig(&whole);
    free_rig(&one);
    sl_model_free(model);
}

TEST(run_layouts_agree) {
    sl_model *model = stream_model();
    rig major = make_rig(model, (sl_plan_options){.batch = B, .steps = T}),
        minor = make_rig(model, (sl_plan_options){.batch = B, .steps = T, .batch_major = 1});
    float x[T * B * I], turned[T * B * I], y[T * B * F], z[T * B * F];
    draw(x, T * B * I);
    for (int t = 0; t < T; t++)
        for (int b = 0; b < B; b++) memcpy(turned + (b * T + t) * I, x + (t * B + b) * I, I * sizeof *x);
    const void *a[] = {x}, *c[] = {turned};
    REQUIRE_OK(sl_run_forward(major.run, &(sl_batch){.batch = B, .steps = T, .inputs = a}));
    REQUIRE_OK(sl_run_forward(minor.run, &(sl_batch){.batch = B, .steps = T, .inputs = c}));
    REQUIRE_OK(sl_run_output(major.run, NULL, y, T * B * F));
    REQUIRE_OK(sl_run_output(minor.run, NULL, z, T * B * F));
    for (int t = 0; t < T; t++)
        for (int b = 0; b < B; b++) CHECK(memcmp(y + (t * B + b) * F, z + (b * T + t) * F, F * sizeof *y) == 0);
    free_rig(&major);
    free_rig(&minor);
    sl_model_free(model);
}

/* A call of fewer rows leaves the states of the others as they are. */
TEST(run_keeps_states_of_rows_left_out) {
    enum { H = 5, ROWS = 2 };
    sl_model *model = stream_model();
    rig r = make_rig(model, (sl_plan_options){.batch = B, .steps = T});
    float x[T * B * I], before[B * H], after[B * H];
    draw(x, T * B * I);
    draw(before, B * H);
    const void *inputs[] = {x};
    REQUIRE_OK(sl_run_forward(r.run, &(sl_batch){.batch = B, .steps = T, .inputs = inputs}));
    REQUIRE_OK(sl_run_set_state(r.run, before, sizeof before));
    REQUIRE_OK(sl_run_forward(r.run, &(sl_batch){.batch = ROWS, .steps = T, .inputs = inputs}));
    REQUIRE_OK(sl_run_get_state(r.run, after, sizeof after));
    CHECK(memcmp(before, after, ROWS * H * sizeof *after) != 0);
    for (int k = ROWS * H; k < B * H; k++) CHECK(after[k] == before[k]);
    free_rig(&r);
    sl_model_free(model);
}

TEST(run_takes_fewer_rows_and_steps) {
    sl_model *model = stream_model();
    rig r = make_rig(model, (sl_plan_options){.batch = B, .steps = T});
    float x[T * B * I], y[4 * 2 * F], full[T * B * F];
    draw(x, T * B * I);
    const void *inputs[] = {x};
    REQUIRE_OK(sl_run_forward(r.run, &(sl_batch){.batch = 2, .steps = 4, .inputs = inputs}));
    int steps, batch, features;
    REQUIRE_OK(sl_run_output_shape(r.run, NULL, &steps, &batch, &features));
    CHECK(steps == 4 && batch == 2 && features == F);
    REQUIRE_OK(sl_run_output(r.run, NULL, y, 4 * 2 * F));
    CHECK_FAILS(sl_run_output(r.run, NULL, full, T * B * F), SL_ERR_SHAPE, "16 values, not 36");
    CHECK_FAILS(sl_run_output(r.run, NULL, NULL, 4 * 2 * F), SL_ERR_USAGE, "values is NULL; pass room for 16");
    CHECK_FAILS(sl_run_forward(r.run, &(sl_batch){.batch = B + 1, .steps = 1, .inputs = inputs}), SL_ERR_SHAPE,
                "4 rows");
    CHECK_FAILS(sl_run_forward(r.run, &(sl_batch){.batch = 1, .steps = T + 1, .inputs = inputs}), SL_ERR_SHAPE,
                "7 steps");
    CHECK_FAILS(sl_run_forward(r.run, &(sl_batch){.batch = 1, .steps = 0, .inputs = inputs}), SL_ERR_SHAPE, "0 steps");
    free_rig(&r);
    sl_model_free(model);
}

TEST(run_refuses_bad_numbers_and_wrong_calls) {
    sl_model *model = stream_model();
    rig r = make_rig(model, (sl_plan_options){.batch = 1, .steps = T, .train = 1});
    float x[T * I] = {0}, y[T * F];
    const void *inputs[] = {x}, *none[] = {NULL};
    CHECK_FAILS(sl_run_output(r.run, NULL, y, T * F), SL_ERR_USAGE, "nothing was computed");
    x[7] = NAN;
    CHECK_FAILS(sl_run_forward(r.run, &(sl_batch){.batch = 1, .steps = T, .inputs = inputs}), SL_ERR_NUMBERS,
                "value 7 of 18");
    CHECK_FAILS(sl_run_forward(r.run, &(sl_batch){.batch = 1, .steps = T, .inputs = none}), SL_ERR_USAGE,
                "\"x\" is NULL");
    x[7] = 0;
    int32_t lengths[] = {2};
    CHECK_FAILS(sl_run_forward(r.run, &(sl_batch){.batch = 1, .steps = T, .inputs = inputs, .lengths = lengths}),
                SL_ERR_USAGE, "no masking");
    CHECK_FAILS(sl_run_gradients(r.run, &(sl_batch){.batch = 1, .steps = T, .inputs = inputs}, NULL, 0, 0, 1, NULL),
                SL_ERR_USAGE, "no loss");
    sl_result result;
    CHECK_FAILS(sl_run_evaluate(r.run, &(sl_batch){.batch = 1, .steps = T, .inputs = inputs, .targets = x}, &result),
                SL_ERR_USAGE, "no loss");
    CHECK_FAILS(sl_run_input_gradient(r.run, 0, x, T * I), SL_ERR_USAGE, "no gradients");
    CHECK_FAILS(sl_run_gradient(r.run, "nobody", NULL, 0), SL_ERR_UNKNOWN, "nobody");
    free_rig(&r);
    sl_model_free(model);
}

/* A rate or scale that f32 cannot hold would make every parameter NaN, or leave the update out. */
TEST(run_refuses_rates_scales_and_states_that_are_none) {
    sl_model *model = stream_model();
    rig r = make_rig(model, (sl_plan_options){.batch = 1, .steps = T, .train = 1, .loss = SL_LOSS_MSE});
    float x[T * I] = {0}, y[T * F] = {1};
    const void *inputs[] = {x};
    const sl_batch batch = {.batch = 1, .steps = T, .inputs = inputs, .targets = y};
    const double bad[] = {NAN, INFINITY, 1e308};
    for (int k = 0; k < 2; k++)
        CHECK_FAILS(sl_run_gradients(r.run, &batch, NULL, 0, 0, bad[k], NULL), SL_ERR_NUMBERS, "must be finite");
    for (int k = 0; k < 3; k++) {
        CHECK_FAILS(sl_run_update(r.run, bad[k], NULL), SL_ERR_NUMBERS, "learning rate");
        CHECK_FAILS(sl_run_step(r.run, &batch, 0, bad[k]), SL_ERR_NUMBERS, "learning rate");
    }
    CHECK(!sl_run_first_nonfinite(r.run));
    CHECK_FAILS(sl_run_set_state(r.run, NULL, sl_run_state_bytes(r.run)), SL_ERR_USAGE, "blob is NULL");
    CHECK_FAILS(sl_run_get_state(r.run, NULL, sl_run_state_bytes(r.run)), SL_ERR_USAGE, "blob is NULL");
    CHECK_FAILS(sl_run_get_state(r.run, x, 1), SL_ERR_SHAPE, "bytes, not 1");
    free_rig(&r);
    sl_model_free(model);
}

TEST(run_names_the_layer_of_a_nan) {
    sl_model *model = stream_model();
    rig r = make_rig(model, (sl_plan_options){.batch = 1, .steps = T});
    double bias[] = {0, NAN};
    float x[T * I] = {0};
    const void *inputs[] = {x};
    REQUIRE_OK(sl_params_set(r.params, "y.bias", bias, 2));
    REQUIRE_OK(sl_run_forward(r.run, &(sl_batch){.batch = 1, .steps = T, .inputs = inputs}));
    const char *layer = sl_run_first_nonfinite(r.run);
    CHECK(layer && strcmp(layer, "y") == 0);
    bias[1] = 0;
    REQUIRE_OK(sl_params_set(r.params, "y.bias", bias, 2));
    CHECK(sl_run_first_nonfinite(r.run) == NULL);
    free_rig(&r);
    sl_model_free(model);
}

TEST(run_labels_are_checked_and_minus_one_is_ignored) {
    sl_model *model;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_tokens(model, "tokens", 4));
    REQUIRE_OK(sl_model_add_one_hot(model, "y", 4, NULL));
    rig r = make_rig(model, (sl_plan_options){.batch = 1, .steps = 3, .loss = SL_LOSS_SOFTMAX});
    int32_t tokens[] = {0, 1, 2}, labels[] = {0, -1, 3};
    const void *inputs[] = {tokens};
    sl_batch batch = {.batch = 1, .steps = 3, .inputs = inputs, .targets = labels};
    sl_result result;
    REQUIRE_OK(sl_run_evaluate(r.run, &batch, &result));
    double z = log(exp(1.0) + 3);
    CHECK(result.count == 2 && result.correct == 1);
    CHECK_NEAR(result.loss, ((z - 1) + z) / 2, 1e-6);
    labels[1] = 4;
    CHECK_FAILS(sl_run_evaluate(r.run, &batch, &result), SL_ERR_INPUT, "labels: value 1 is 4");
    labels[1] = -1;
    tokens[2] = 4;
    CHECK_FAILS(sl_run_evaluate(r.run, &batch, &result), SL_ERR_INPUT, "tokens: value 2 is 4");
    free_rig(&r);
    sl_model_free(model);
}

TEST(run_bad_batch_leaves_the_last_results) {
    sl_model *model = stream_model();
    rig r = make_rig(model, (sl_plan_options){.batch = 2, .steps = T});
    float x[T * 2 * I], before[T * F], after[T * F];
    draw(x, T * 2 * I);
    const void *inputs[] = {x};
    REQUIRE_OK(sl_run_forward(r.run, &(sl_batch){.batch = 1, .steps = T, .inputs = inputs}));
    REQUIRE_OK(sl_run_output(r.run, NULL, before, T * F));
    x[5] = INFINITY;
    CHECK_FAILS(sl_run_forward(r.run, &(sl_batch){.batch = 2, .steps = T, .inputs = inputs}), SL_ERR_NUMBERS,
                "value 5");
    REQUIRE_OK(sl_run_output(r.run, NULL, after, T * F));
    CHECK(memcmp(before, after, sizeof before) == 0);
    free_rig(&r);
    sl_model_free(model);
}

TEST(run_refuses_what_was_overwritten) {
    sl_model *model = stream_model();
    rig r = make_rig(model,
                     (sl_plan_options){.batch = 1, .steps = T, .train = 1, .input_gradients = 1, .loss = SL_LOSS_MSE});
    float x[T * I], y[T * F] = {0}, dx[T * I];
    draw(x, T * I);
    const void *inputs[] = {x};
    sl_batch batch = {.batch = 1, .steps = T, .inputs = inputs, .targets = y};
    sl_result result;
    REQUIRE_OK(sl_run_evaluate(r.run, &batch, &result));
    REQUIRE_OK(sl_run_output(r.run, NULL, x, T * F));
    REQUIRE_OK(sl_run_gradients(r.run, &batch, NULL, 0, 0, 1, &result));
    CHECK_FAILS(sl_run_output(r.run, NULL, x, T * F), SL_ERR_USAGE, "overwritten");
    CHECK_FAILS(sl_run_gradient(r.run, "y.bias", NULL, F), SL_ERR_USAGE, "values is NULL");
    CHECK_FAILS(sl_run_input_gradient(r.run, 0, NULL, T * I), SL_ERR_USAGE, "values is NULL");
    REQUIRE_OK(sl_run_input_gradient(r.run, 0, dx, T * I));
    CHECK(sl_run_first_nonfinite(r.run) == NULL);
    CHECK_FAILS(sl_run_input_gradient(r.run, 0, dx, T * I), SL_ERR_USAGE, "no gradients");
    free_rig(&r);
    sl_model_free(model);
}

TEST(run_without_valid_labels_has_zero_gradients) {
    sl_model *model = stream_model();
    rig r = make_rig(
        model, (sl_plan_options){.batch = 2, .steps = T, .train = 1, .input_gradients = 1, .loss = SL_LOSS_SOFTMAX});
    float x[T * 2 * I], dx[T * 2 * I];
    int32_t labels[T * 2];
    draw(x, T * 2 * I);
    const void *inputs[] = {x};
    for (int pass = 0; pass < 2; pass++) { /* the first leaves numbers behind, the second has nothing to learn from */
        for (int k = 0; k < T * 2; k++) labels[k] = pass == 0 ? k % 2 : -1;
        sl_result result;
        REQUIRE_OK(sl_run_zero_gradients(r.run));
        REQUIRE_OK(sl_run_gradients(r.run, &(sl_batch){.batch = 2, .steps = T, .inputs = inputs, .targets = labels},
                                    NULL, 0, 0, 1, &result));
        REQUIRE_OK(sl_run_input_gradient(r.run, 0, dx, T * 2 * I));
        double sum = 0, bias[F];
        for (int k = 0; k < T * 2 * I; k++) sum += fabs((double)dx[k]);
        REQUIRE_OK(sl_run_gradient(r.run, "y.bias", bias, F));
        CHECK((sum > 0) == (pass == 0) && (fabs(bias[0]) > 0) == (pass == 0));
        CHECK(result.count == (pass == 0 ? T * 2 : 0) && isfinite(result.loss));
    }
    free_rig(&r);
    sl_model_free(model);
}

/* ------------------------------------------------------------------------------ 100 threads, 100 runs, one plan -- */
typedef struct worker {
    pthread_t thread;
    const sl_plan *plan;
    sl_params *params;
    const float *x;
    float y[T * B * F];
    sl_status status;
} worker;

static void *work(void *context) {
    worker *w = context;
    sl_run *run;
    const void *inputs[] = {w->x};
    w->status = sl_run_new(w->plan, w->params, &run);
    for (int k = 0; k < 5 && w->status == SL_OK; k++) {
        w->status = sl_run_reset_state(run);
        if (w->status == SL_OK) w->status = sl_run_forward(run, &(sl_batch){.batch = B, .steps = T, .inputs = inputs});
    }
    if (w->status == SL_OK) w->status = sl_run_output(run, NULL, w->y, T * B * F);
    sl_run_free(run);
    return NULL;
}

TEST(run_hundred_threads_share_a_plan) {
    enum { N = 100 };
    static worker workers[N];
    static float x[T * B * I];
    sl_model *model = stream_model();
    rig r = make_rig(model, (sl_plan_options){.batch = B, .steps = T, .threads = 1});
    draw(x, T * B * I);
    for (int k = 0; k < N; k++) {
        workers[k].plan = r.plan;
        workers[k].params = r.params;
        workers[k].x = x;
        REQUIRE(pthread_create(&workers[k].thread, NULL, work, &workers[k]) == 0);
    }
    for (int k = 0; k < N; k++) {
        pthread_join(workers[k].thread, NULL);
        CHECK(workers[k].status == SL_OK);
        CHECK(memcmp(workers[k].y, workers[0].y, sizeof workers[0].y) == 0);
    }
    free_rig(&r);
    sl_model_free(model);
}
