/* Recomputed gates (sl_plan_options.recompute_gates): what they mean to a plan, and the gradients of whole models. */
#include "backend/cpu/gemm.h"
#include "core/plan.h"
#include "test.h"

enum { B = 12, T = 90, I = 3, MOST = 4096 };

static const char *const names[] = {"one", "two", "three"};

/* Layers of one kind, the second backwards in time, without an output layer. */
static sl_model *model_of(sl_cell cell, int layers, int units) {
    sl_model *model;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", I, 0));
    for (int l = 0; l < layers; l++) {
        const sl_recurrent options = {.units = units, .return_sequences = 1, .go_backwards = l == 1};
        REQUIRE_OK(sl_model_add_recurrent(model, names[l], cell, &options, NULL));
    }
    return model;
}

static sl_plan *plan_of(const sl_model *model, const sl_plan_options *options, const char *kernel, bool recompute) {
    sl_plan *plan;
    sl_plan_options o = *options;
    o.device = test_device;
    o.require = test_on_gpu() ? "cuda:step" : kernel;
    o.recompute_gates = recompute;
    REQUIRE_OK(sl_plan_new(model, &o, &plan));
    return plan;
}

static size_t gradients(const sl_plan *plan, const sl_batch *batch, double values[MOST]) {
    sl_params *params;
    sl_run *run;
    size_t count = 0;
    REQUIRE_OK(sl_params_new(plan, &params));
    REQUIRE_OK(sl_params_init(params, 5));
    REQUIRE_OK(sl_run_new(plan, params, &run));
    REQUIRE_OK(sl_run_gradients(run, batch, NULL, 1, 0, 1, NULL));
    for (int k = 0; k < sl_params_count(params); k++) {
        int rows, columns;
        const char *name = sl_params_name(params, k, &rows, &columns);
        REQUIRE_OK(sl_run_gradient(run, name, values + count, (size_t)rows * (size_t)columns));
        count += (size_t)rows * (size_t)columns;
    }
    sl_run_free(run);
    sl_params_free(params);
    return count;
}

static float x[T * B * I], target[T * B * 7];

static sl_batch batch_of(const void **inputs) {
    static int32_t lengths[B];
    for (int k = 0; k < T * B * I; k++) x[k] = (float)(k * 37 % 101) / 50 - 1;
    for (int k = 0; k < T * B * 7; k++) target[k] = (float)(k * 53 % 103) / 51 - 1;
    for (int b = 0; b < B; b++) lengths[b] = b == 1 ? 0 : T - 7 * b;
    inputs[0] = x;
    return (sl_batch){.batch = B, .steps = T, .inputs = inputs, .lengths = lengths, .targets = target};
}

/* Kernels of the CPU sum the same products in the same order: not a bit differs, in one piece or in segments. */
static void same_gradients(const char *kernel) {
    static double kept[MOST], again[MOST];
    const void *inputs[1];
    const sl_batch batch = batch_of(inputs);
    const double most = test_on_gpu() ? 1e-4 : 0;
    for (int cell = SL_LSTM; cell <= SL_RNN; cell++)
        for (int cut = 0; cut < 2; cut++) {
            sl_model *model = model_of((sl_cell)cell, 2, 7);
            sl_plan_options options = {
                .batch = B, .steps = T, .train = 1, .loss = SL_LOSS_MSE, .masking = SL_MASK_LENGTHS};
            sl_plan *plan = plan_of(model, &options, kernel, false);
            sl_memory memory;
            const size_t count = gradients(plan, &batch, kept);
            sl_plan_free(plan);
            plan = plan_of(model, &options, kernel, true);
            sl_plan_memory(plan, &memory);
            if (cut && !test_on_gpu()) {
                sl_plan_free(plan);
                options.memory_limit = memory.params_block + memory.run_block - 1;
                plan = plan_of(model, &options, kernel, true);
                sl_plan_memory(plan, &memory);
                CHECK(memory.segments > 1);
            }
            CHECK(gradients(plan, &batch, again) == count);
            for (size_t k = 0; k < count; k++)
                if (!(fabs(again[k] - kept[k]) <= most))
                    test_fail(__FILE__, __LINE__, "cell %d, cut %d: gradient %zu is %g, not %g", cell, cut, k, again[k],
                              kept[k]);
            sl_plan_free(plan);
            sl_model_free(model);
        }
}

TEST(recomputed_gates_give_the_same_gradients) {
    same_gradients("cpu:fused");
}

/* The gates of every step: saved once, or in scratch a chunk at a time. */
TEST(recomputed_gates_are_not_saved) {
    sl_model *model = model_of(SL_LSTM, 1, 32);
    const sl_plan_options options = {.batch = B, .steps = T, .train = 1, .device = "cpu", .require = "cpu:fused"};
    size_t saved[2], scratch[2];
    const size_t gates = (size_t)B * 4 * 32 * sizeof(float);
    for (int recompute = 0; recompute < 2; recompute++) {
        sl_plan *plan;
        sl_plan_options o = options;
        o.recompute_gates = recompute;
        REQUIRE_OK(sl_plan_new(model, &o, &plan));
        saved[recompute] = plan->steps[0].booking.saved;
        scratch[recompute] = plan->steps[0].booking.scratch_backward;
        CHECK(plan->chunk < T);
        CHECK(!recompute || scratch[1] >= scratch[0] + (size_t)plan->chunk * gates);
        CHECK((strstr(sl_plan_explain(plan), "+recompute") != NULL) == recompute);
        CHECK((strstr(sl_plan_explain(plan), "bytes for backward, with its gates") != NULL) == recompute);
        CHECK(strstr(sl_plan_explain_json(plan), "\"saved\": ") != NULL);
        sl_plan_free(plan);
    }
    CHECK(saved[0] == saved[1] + T * gates);
    sl_model_free(model);
}

/* Nothing is saved without training: the problem is the same then. */
TEST(recomputed_gates_mean_nothing_in_inference) {
    sl_model *model = model_of(SL_GRU, 1, 5);
    const sl_plan_options options = {.batch = B, .steps = T};
    sl_plan *plan = plan_of(model, &options, "cpu:fused", true);
    CHECK(!plan->steps[0].problem.recompute && strstr(plan->steps[0].text, "recompute") == NULL);
    sl_plan_free(plan);
    sl_model_free(model);
}

/* Rows that keep their gates say so, and are not required in vain. */
TEST(recomputed_gates_are_refused_by_rows_that_keep_them) {
    sl_model *model = model_of(SL_LSTM, 1, 128);
    sl_plan *plan;
    sl_plan_options options = {
        .batch = B, .steps = T, .train = 1, .device = "cuda:sm_90", .require = "cudnn:", .recompute_gates = 1};
    CHECK_FAILS(sl_plan_new(model, &options, &plan), SL_ERR_NO_KERNEL, "keeps the gates of every step");
    options.recompute_gates = 0;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    sl_plan_free(plan);
    sl_model_free(model);
}

/* Several layers hold their gates at once, recomputed ones take turns: what is then enough is named where memory is not. */
TEST(recomputed_gates_are_proposed_where_they_fit) {
    sl_model *model = model_of(SL_LSTM, 3, 64);
    sl_memory least, memory;
    sl_plan *plan;
    sl_plan_options options = {.batch = 60, .steps = 17, .train = 1, .device = "cpu", .require = "cpu:fused"};
    options.recompute_gates = 1;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    sl_plan_memory(plan, &least);
    sl_plan_free(plan);
    options.recompute_gates = 0;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    sl_plan_memory(plan, &memory);
    sl_plan_free(plan);
    const size_t enough = least.params_block + least.run_block;
    CHECK(least.segments == 1 && memory.segments == 1 && enough < memory.params_block + memory.run_block);
    options.memory_limit = enough;
    CHECK_FAILS(sl_plan_new(model, &options, &plan), SL_ERR_MEMORY_LIMIT, "--recompute-gates), with ");
    options.memory_limit = enough - 1;
    CHECK(sl_plan_new(model, &options, &plan) == SL_ERR_MEMORY_LIMIT);
    CHECK(strstr(sl_error_detail(), "recompute-gates") == NULL);
    options.memory_limit = enough;
    options.recompute_gates = 1;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    sl_plan_free(plan);
    sl_model_free(model);
}

/* A way to run, not a part of the model: a description does not hold it. */
TEST(recomputed_gates_are_not_described) {
    sl_model *model = model_of(SL_LSTM, 1, 4);
    const char *text = NULL;
    sl_training training = {.batch = 2, .loss = SL_LOSS_MSE, .recompute_gates = 1};
    REQUIRE_OK(sl_training_to_json(model, &training, "array", &text));
    CHECK(strstr(text, "recompute") == NULL);
    REQUIRE_OK(sl_training_from_json(text, strlen(text), &training));
    CHECK(training.recompute_gates == 0);
    sl_model_free(model);
}

/* Choices of a plan with kept gates, as checkpoints hold them, name the rows of one that recomputes them. */
TEST(recomputed_gates_obey_choices_of_kept_ones) {
    sl_model *model = model_of(SL_LSTM, 1, 4);
    sli_arena arena;
    sl_plan *plan, *again;
    sl_plan_options options = {.batch = 2, .steps = 3, .train = 1, .device = "cpu", .recompute_gates = 1};
    options.require = "cpu:fused";
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    CHECK(strcmp(sl_plan_choices(plan), "lstm:b2_t3_i3_h4_train+recompute cpu:fused\n") == 0);
    sli_arena_init(&arena, &plan->allocator);
    const char *choices = sli_choices_of_kept_gates(&arena, "lstm:b2_t3_i3_h4_train+recompute+reverse ref\n"
                                                            "lstm:b2_t3_i3_h4_train+recompute ref\n");
    CHECK(strcmp(choices, "lstm:b2_t3_i3_h4_train+reverse ref\nlstm:b2_t3_i3_h4_train ref\n") == 0);
    options.choices = choices;
    options.require = NULL;
    REQUIRE_OK(sl_plan_new(model, &options, &again));
    CHECK(strcmp(sl_plan_choices(again), "lstm:b2_t3_i3_h4_train+recompute ref\n") == 0);
    sl_plan_free(again);
    sl_plan_free(plan);
    sli_arena_free(&arena);
    sl_model_free(model);
}
