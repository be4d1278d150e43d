/* Graphs that once gave wrong gradients: under a memory limit they must equal the unlimited run (on the CPU to the bit), and
 * an initial state that serves twice must equal central differences. */
#include "core/plan.h"
#include "test.h"

enum { B = 16, T = 640, I = 3 }; /* rows for three chunks of a GPU, ten of a CPU */

/* `share` of the whole run's block; on a GPU, where scratch that segments do not cut is most of it, what the refusal of a
 * smaller limit says is needed at best. */
static size_t limit_for(const sl_model *model, sl_plan_options options, const sl_memory *whole, double share) {
    sl_plan *plan;
    size_t least = 0, limit = whole->params_block + (size_t)(share * (double)whole->run_block);
    options.memory_limit = limit;
    if (!test_on_gpu()) return limit;
    if (sl_plan_new(model, &options, &plan) != SL_OK) {
        const char *at = strchr(sl_error_detail(), '(');
        REQUIRE(at && sscanf(at, "(%zu bytes)", &least) == 1);
        limit = least;
    }
    sl_plan_free(plan);
    return limit;
}

/* Gradients of every parameter, one behind the other; returns how many. limit 0: none. */
static size_t gradients(sl_model *model, sl_plan_options options, const sl_batch *batch, double share, double *values,
                        int *segments) {
    sl_plan *plan;
    sl_params *params;
    sl_run *run;
    sl_memory memory;
    options.device = test_device;
    if (test_on_gpu()) options.require = "cuda:step"; /* cuDNN's rows promise nothing about segments */
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    sl_plan_memory(plan, &memory);
    if (share < 1) {
        sl_plan_free(plan);
        options.memory_limit = limit_for(model, options, &memory, share);
        REQUIRE_OK(sl_plan_new(model, &options, &plan));
        sl_plan_memory(plan, &memory);
    }
    *segments = memory.segments;
    REQUIRE_OK(sl_params_new(plan, &params));
    REQUIRE_OK(sl_params_init(params, 5));
    REQUIRE_OK(sl_run_new(plan, params, &run));
    REQUIRE_OK(sl_run_gradients(run, batch, NULL, 1, 0, 1, NULL));
    size_t count = 0;
    for (int k = 0; k < sl_params_count(params); k++) {
        int rows, columns;
        const char *name = sl_params_name(params, k, &rows, &columns);
        REQUIRE_OK(sl_run_gradient(run, name, values + count, (size_t)rows * (size_t)columns));
        count += (size_t)rows * (size_t)columns;
    }
    sl_run_free(run);
    sl_params_free(params);
    sl_plan_free(plan);
    return count;
}

static void check_limit_changes_nothing(sl_model *model, const sl_plan_options *options, const sl_batch *batch) {
    static double whole[4096], cut[4096];
    int one, many;
    size_t count = gradients(model, *options, batch, 1, whole, &one);
    REQUIRE(count <= 4096);
    gradients(model, *options, batch, 0.7, cut, &many);
    CHECK(one == 1 && many > 1);
    if (!test_on_gpu()) {
        CHECK(memcmp(whole, cut, count * sizeof *whole) == 0);
        return;
    }
    /* A GPU's products over all steps are cut where the segments are: the same sums in another order. */
    double most = 0;
    for (size_t k = 0; k < count; k++) most = fmax(most, fabs(whole[k]));
    for (size_t k = 0; k < count; k++) CHECK_NEAR(cut[k], whole[k], 2e-6 * most + 1e-5 * fabs(whole[k]));
}

TEST(segments_tied_weights) {
    static int32_t tokens[B * T], labels[B * T];
    sl_model *model;
    uint64_t state = test_seed;
    for (int k = 0; k < B * T; k++) {
        tokens[k] = (int32_t)(3.5 * (test_random(&state) + 1));
        labels[k] = (int32_t)(3.5 * (test_random(&state) + 1));
    }
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_tokens(model, "tokens", 7));
    REQUIRE_OK(sl_model_add_embedding(model, "embedding", &(sl_embedding){.vocabulary = 7, .units = 6}, NULL));
    REQUIRE_OK(
        sl_model_add_recurrent(model, "lstm", SL_LSTM, &(sl_recurrent){.units = 6, .return_sequences = 1}, NULL));
    REQUIRE_OK(sl_model_add_dense(model, "logits", &(sl_dense){.units = 7, .tied_to = "embedding"}, NULL));
    const void *inputs[] = {tokens};
    sl_batch batch = {.batch = B, .steps = T, .inputs = inputs, .targets = labels};
    for (int dtype = 0; dtype < (test_on_gpu() ? 1 : 2); dtype++) {
        sl_plan_options options = {
            .batch = B, .steps = T, .train = 1, .loss = SL_LOSS_SOFTMAX, .dtype = dtype ? SL_F64 : SL_F32};
        check_limit_changes_nothing(model, &options, &batch);
    }
    sl_model_free(model);
}

static void draw(float *values, int count) {
    uint64_t state = test_seed;
    for (int i = 0; i < count; i++) values[i] = (float)test_random(&state);
}

/* The loss's layer is followed by a reversed one: the loss stands in a group of its own. */
TEST(segments_loss_after_another_group) {
    static float x[B * T * I], y[B * T * 2];
    sl_model *model;
    const char *from_x[] = {"x", NULL}, *outputs[] = {"y", "back", NULL};
    draw(x, B * T * I);
    draw(y, B * T * 2);
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", I, 0));
    REQUIRE_OK(
        sl_model_add_recurrent(model, "lstm", SL_LSTM, &(sl_recurrent){.units = 5, .return_sequences = 1}, NULL));
    REQUIRE_OK(sl_model_add_dense(model, "y", &(sl_dense){.units = 2}, NULL));
    sl_recurrent backwards = {.units = 4, .return_sequences = 1, .go_backwards = 1};
    REQUIRE_OK(sl_model_add_recurrent(model, "back", SL_GRU, &backwards, from_x));
    REQUIRE_OK(sl_model_set_outputs(model, outputs));
    const void *inputs[] = {x};
    sl_batch batch = {.batch = B, .steps = T, .inputs = inputs, .targets = y};
    sl_plan_options options = {.batch = B, .steps = T, .train = 1, .loss = SL_LOSS_MSE};
    check_limit_changes_nothing(model, &options, &batch);
    sl_model_free(model);
}

/* ------------------------------------------------------------------------------- a state that serves as h0 and c0 -- */
typedef struct rig {
    sl_plan *plan;
    sl_params *params;
    sl_run *run;
} rig;

static double loss_of(rig *r, const sl_batch *batch, const double *kernel) {
    sl_result result;
    REQUIRE_OK(sl_params_set(r->params, "s.kernel", kernel, 4 * I));
    REQUIRE_OK(sl_run_gradients(r->run, batch, NULL, 1, 0, 1, &result));
    return result.loss;
}

TEST(segments_one_state_as_h0_and_c0) {
    if (test_on_gpu()) test_skip("GPUs have no kernels in f64");
    enum { STEPS = 5, ROWS = 2 };
    double x[STEPS * ROWS * I], first[ROWS * I], y[ROWS * 4], kernel[4 * I], gradient[4 * I];
    uint64_t state = test_seed;
    for (int k = 0; k < STEPS * ROWS * I; k++) x[k] = test_random(&state);
    for (int k = 0; k < ROWS * I; k++) first[k] = test_random(&state);
    for (int k = 0; k < ROWS * 4; k++) y[k] = test_random(&state);
    sl_model *model;
    rig r;
    const char *from_first[] = {"first", NULL}, *twice[] = {"x", "s", "s", NULL};
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", I, 0));
    REQUIRE_OK(sl_model_add_input(model, "first", I, 1));
    REQUIRE_OK(sl_model_add_dense(model, "s", &(sl_dense){.units = 4}, from_first));
    REQUIRE_OK(sl_model_add_recurrent(model, "lstm", SL_LSTM, &(sl_recurrent){.units = 4}, twice));
    sl_plan_options options = {
        .batch = ROWS, .steps = STEPS, .train = 1, .loss = SL_LOSS_MSE, .dtype = SL_F64, .device = test_device};
    REQUIRE_OK(sl_plan_new(model, &options, &r.plan));
    REQUIRE_OK(sl_params_new(r.plan, &r.params));
    REQUIRE_OK(sl_params_init(r.params, 5));
    REQUIRE_OK(sl_run_new(r.plan, r.params, &r.run));
    const void *inputs[] = {x, first};
    sl_batch batch = {.batch = ROWS, .steps = STEPS, .inputs = inputs, .targets = y};
    REQUIRE_OK(sl_params_get(r.params, "s.kernel", kernel, 4 * I));
    loss_of(&r, &batch, kernel);
    REQUIRE_OK(sl_run_gradient(r.run, "s.kernel", gradient, 4 * I));
    for (int k = 0; k < 4 * I; k++) {
        double value = kernel[k], difference;
        kernel[k] = value + 1e-5;
        difference = loss_of(&r, &batch, kernel);
        kernel[k] = value - 1e-5;
        difference -= loss_of(&r, &batch, kernel);
        kernel[k] = value;
        CHECK_NEAR(gradient[k], difference / 2e-5, 1e-9 + 1e-6 * fabs(gradient[k]));
    }
    sl_run_free(r.run);
    sl_params_free(r.params);
    sl_plan_free(r.plan);
    sl_model_free(model);
}

/* Without sequences a layer and its state are the same numbers: both can be outputs, and their gradients add. */
TEST(segments_outputs_may_be_the_same_numbers) {
    if (test_on_gpu()) test_skip("GPUs have no kernels in f64");
    sl_model *model;
    rig r;
    const char *outputs[] = {"gru", "gru.h", NULL};
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", I, 0));
    REQUIRE_OK(sl_model_add_recurrent(model, "gru", SL_GRU, &(sl_recurrent){.units = 2, .return_state = 1}, NULL));
    REQUIRE_OK(sl_model_set_outputs(model, outputs));
    sl_plan_options options = {.batch = 1, .steps = 4, .train = 1, .dtype = SL_F64, .device = test_device};
    REQUIRE_OK(sl_plan_new(model, &options, &r.plan));
    REQUIRE_OK(sl_params_new(r.plan, &r.params));
    REQUIRE_OK(sl_params_init(r.params, 5));
    REQUIRE_OK(sl_run_new(r.plan, r.params, &r.run));
    double x[4 * I] = {0.1, 0.7, -0.3, 0.9}, one[2] = {1, 2}, sum[2] = {4, 8}, three[2] = {3, 6}, a[6 * I], b[6 * I],
                 y[2], h[2];
    const void *inputs[] = {x}, *both[] = {one, three}, *only[] = {sum, NULL};
    sl_batch batch = {.batch = 1, .steps = 4, .inputs = inputs};
    REQUIRE_OK(sl_run_gradients(r.run, &batch, both, 1, 0, 1, NULL));
    REQUIRE_OK(sl_run_gradient(r.run, "gru.kernel", a, 6 * I));
    REQUIRE_OK(sl_run_output(r.run, "gru", y, 2));
    REQUIRE_OK(sl_run_output(r.run, "gru.h", h, 2));
    CHECK(memcmp(y, h, sizeof y) == 0);
    REQUIRE_OK(sl_run_zero_gradients(r.run));
    REQUIRE_OK(sl_run_gradients(r.run, &batch, only, 1, 0, 1, NULL));
    REQUIRE_OK(sl_run_gradient(r.run, "gru.kernel", b, 6 * I));
    for (int k = 0; k < 6 * I; k++) CHECK_NEAR(a[k], b[k], 1e-15);
    sl_run_free(r.run);
    sl_params_free(r.params);
    sl_plan_free(r.plan);
    sl_model_free(model);
}

TEST(segments_bad_choices_are_refused_by_name) {
    sl_model *model;
    sl_plan *plan;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", I, 0));
    REQUIRE_OK(sl_model_add_dense(model, "y", &(sl_dense){.units = 2, .activation = (sl_activation)99}, NULL));
    CHECK_FAILS(sl_plan_new(model, &(sl_plan_options){.device = test_device}, &plan), SL_ERR_USAGE, "activation is 99");
    CHECK_FAILS(sl_plan_new(model, &(sl_plan_options){.loss = (sl_loss)7}, &plan), SL_ERR_USAGE, "loss is 7");
    sl_model_free(model);
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 1 << 24, 0));
    sl_plan_options huge = {.batch = 1 << 24, .steps = 1 << 30, .device = test_device};
    CHECK_FAILS(sl_plan_new(model, &huge, &plan), SL_ERR_SHAPE, "bytes");
    sl_model_free(model);
}
