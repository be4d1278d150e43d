/* Memory limits on GPUs, which need not be there: what fits is found, and no row that fits is much faster than what is taken. */
#include "core/plan.h"
#include "proof/problem_model.h"
#include "test.h"

/* NULL: there is none. */
static sl_plan *plan_of(const char *text, size_t limit, const char *require) {
    sli_problem problem;
    sl_model *model;
    sl_plan *plan = NULL;
    sl_plan_options options = {0};
    REQUIRE_OK(sli_problem_parse(text, &problem));
    REQUIRE_OK(sli_problem_model(NULL, &problem, true, &model, &options));
    options.device = "cuda:sm_90";
    options.memory_limit = limit;
    options.require = require;
    if (sl_plan_new(model, &options, &plan) != SL_OK) plan = NULL;
    sl_model_free(model);
    return plan;
}

static double seconds_of(const sl_plan *plan) {
    double sum = 0;
    for (int i = 0; i < plan->step_count; i++)
        if (sli_op_is_recurrent(plan->steps[i].problem.op)) sum += plan->steps[i].seconds;
    return sum;
}

/* `part` of what the plan without a limit needs. */
static void check_limit(const char *text, double part) {
    static const char *const rows[] = {"cuda:cluster", "cuda:grid", "cuda:stack",
                                       "cuda:wave",    "cuda:step", "cudnn:standard"};
    sl_plan *whole = plan_of(text, 0, NULL);
    REQUIRE(whole != NULL);
    const size_t limit = (size_t)(part * (double)sli_plan_need(whole));
    sl_plan_free(whole);
    sl_plan *plan = plan_of(text, limit, NULL);
    if (!plan) {
        test_fail(__FILE__, __LINE__, "%s in %zu bytes: %s", text, limit, sl_error_detail());
        return;
    }
    CHECK(sli_plan_need(plan) <= limit);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sl_plan *other = plan_of(text, limit, rows[i]);
        if (!other) continue;
        if (other->segments == 1 && plan->segments == 1 && seconds_of(plan) > 1.15 * seconds_of(other))
            test_fail(__FILE__, __LINE__, "%s in %zu bytes: %.1f us by %s, %.1f by %s", text, limit,
                      1e6 * seconds_of(plan), sl_plan_kernels(plan), 1e6 * seconds_of(other), rows[i]);
        sl_plan_free(other);
    }
    sl_plan_free(plan);
}

TEST(plan_fit_takes_what_fits) {
    check_limit("lstm:b71_t82_i8_h64_p40_bi_f16+merge=sum+zoneout_c=0.3",
                0.65);                                      /* folded through a cluster, not over the grid */
    check_limit("lstm:l2_b44_t98_i38_h38_f16_train", 0.93); /* layers beside each other, not as one */
    check_limit("lstm:b8_t271_i67_h67", 0.9);               /* cuDNN's alone */
    check_limit("lstm:l3_b112_t24_i3_h3+bias=none", 0.59);
    check_limit("rnn:l3_b64_t5_i3_h64_bf16_train", 0.73);
    check_limit("lstm:b4_t8_i27_h478_bi_bf16_train+zoneout_h=0.2",
                0.97);                                    /* directions in one step, by the step engine */
    check_limit("gru:b32_t600_i64_h128_bf16_train", 0.6); /* in segments */
    check_limit("rnn:b18_t193_i42_h40_bf16", 0.5);        /* cuDNN's, slower than the step engine, needs less */
    check_limit("gru:b7_t9_i553_h214_f16", 0.77);
    check_limit("lstm:b20_t223_i6_h411_f16", 0.46);
    check_limit("lstm:b65_t370_i144_h39_tf32",
                0.39); /* cuDNN's in segments, less than the step engine in any number of them */
}

typedef struct layer {
    sl_cell cell;
    int units;
    bool both, backwards;
} layer;

static sl_plan *plan_of_layers(const layer *layers, int count, int inputs, sl_plan_options options) {
    static const char *const names[] = {"x", "first", "second", "third", "fourth"};
    sl_model *model;
    sl_plan *plan = NULL;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, names[0], inputs, 0));
    for (int i = 0; i < count; i++) {
        const sl_recurrent recurrent = {.units = layers[i].units,
                                        .return_sequences = 1,
                                        .bidirectional = layers[i].both ? SL_BI_CONCAT : SL_UNIDIRECTIONAL,
                                        .go_backwards = layers[i].backwards};
        REQUIRE_OK(
            sl_model_add_recurrent(model, names[i + 1], layers[i].cell, &recurrent, (const char *[]){names[i], NULL}));
    }
    REQUIRE_OK(sl_model_add_dense(model, "dense", &(sl_dense){.units = 10}, (const char *[]){names[count], NULL}));
    options.device = "cuda:sm_90";
    options.train = 1;
    options.loss = SL_LOSS_SOFTMAX;
    if (sl_plan_new(model, &options, &plan) != SL_OK) plan = NULL;
    sl_model_free(model);
    return plan;
}

/* One layer's row is another for the limit; the other layer's need not be. */
TEST(plan_fit_changes_few_rows) {
    const layer wide[] = {{SL_RNN, 164, true, false}, {SL_LSTM, 126, false, false}};
    sl_plan_options options = {.batch = 251, .steps = 8, .dtype = SL_F16, .memory_limit = 67963081};
    sl_plan *plan = plan_of_layers(wide, 2, 944, options);
    CHECK(plan && plan->segments == 1 && sli_plan_need(plan) <= options.memory_limit);
    sl_plan_free(plan);
    const layer small[] = {{SL_GRU, 4, false, false}, {SL_RNN, 4, false, true}};
    options = (sl_plan_options){.batch = 109, .steps = 42, .dtype = SL_BF16};
    options.choices =
        "gru:b109_t42_i47_h4_bf16_train cudnn:standard\nrnn:b109_t42_i4_h4_bf16_train+reverse cuda:cluster\n";
    sl_plan *other = plan_of_layers(small, 2, 47, options);
    REQUIRE(other != NULL);
    options.choices = NULL;
    options.memory_limit = sli_plan_need(other);
    plan = plan_of_layers(small, 2, 47, options);
    CHECK(plan && seconds_of(plan) <= 1.15 * seconds_of(other));
    sl_plan_free(plan);
    sl_plan_free(other);
}

/* Three rows and more of each layer and direction are to be left out. */
TEST(plan_fit_changes_rows_of_many_layers) {
    const layer many[] = {{SL_LSTM, 100, true, false},
                          {SL_GRU, 108, true, false},
                          {SL_RNN, 116, true, false},
                          {SL_LSTM, 124, true, false}};
    sl_plan_options options = {.batch = 64, .steps = 8, .dtype = SL_F16};
    sl_plan *plan = plan_of_layers(many, 4, 64, options);
    REQUIRE(plan != NULL);
    options.memory_limit = sli_plan_need(plan) / 2;
    sl_plan_free(plan);
    plan = plan_of_layers(many, 4, 64, options);
    CHECK(plan && sli_plan_need(plan) <= options.memory_limit);
    sl_plan_free(plan);
}

/* What the first layer's row left out is enough for the second's to come back. */
TEST(plan_fit_puts_rows_back) {
    const layer both[] = {{SL_LSTM, 200, true, false}, {SL_GRU, 200, true, false}};
    sl_plan_options options = {.batch = 4, .steps = 200, .dtype = SL_TF32};
    sl_plan *plan = plan_of_layers(both, 2, 64, options);
    REQUIRE(plan != NULL);
    const double whole = seconds_of(plan);
    options.memory_limit = sli_plan_need(plan) / 10 * 9;
    sl_plan_free(plan);
    plan = plan_of_layers(both, 2, 64, options);
    CHECK(plan && plan->segments == 1 && sli_plan_need(plan) <= options.memory_limit);
    CHECK(plan && seconds_of(plan) < 5.5 * whole); /* 6.8 where none is put back */
    sl_plan_free(plan);
}
