/* Wide steps: stacks of layers and both directions as one step, on the device whose rows take them (far:wide), must give the
 * bits of the plan that computes layer by layer; and what must not become one step does not. */
#include "core/status.h"
#include "proof/parity.h"
#include "proof/problem_model.h"
#include "proof/rows.h"
#include "test.h"

static void keep_failures(void *context, const char *text) {
    if (strstr(text, "FAIL")) test_fail(__FILE__, __LINE__, "%s: %s", (const char *)context, text);
}

static int count_steps(const sl_plan *plan, bool recurrent) {
    int count = 0;
    for (int k = 0; k < plan->step_count; k++) count += recurrent ? sli_op_is_recurrent(plan->steps[k].problem.op) : 1;
    return count;
}

static const sli_step *wide_step(const sl_plan *plan) {
    for (int k = 0; k < plan->step_count; k++)
        if (sli_problem_parts(&plan->steps[k].problem) > 1) return &plan->steps[k];
    return NULL;
}

/* ------------------------------------------------------------------------------------------ the narrow plan's bits -- */
static void compare_call(sli_trial *wide, sli_trial *narrow, sli_results *a, sli_results *b, sli_trial_call call,
                         const char *what) {
    sli_report report = {.line = keep_failures, .context = (void *)what};
    REQUIRE_OK(sli_trial_run(narrow, &call, b));
    call.poison = true;
    REQUIRE_OK(sli_trial_run(wide, &call, a));
    sli_compare_bits(a, b, "far:wide", "wide and narrow", &report);
    CHECK(report.failures == 0);
}

/* Inference, training and a smaller call; nothing outside the step's memory is written. */
static void compare_plans(const sl_model *model, const sl_plan_options *options, sli_mask mask, int recurrent_steps,
                          const char *what) {
    sli_subject *subject;
    sli_trial wide, narrow;
    sli_results a, b;
    size_t damage;
    sl_plan_options far = *options;
    REQUIRE_OK(sli_subject_new(model, options, mask, test_seed, &subject));
    far.device = "far";
    far.require = "ref";
    REQUIRE_OK(sli_trial_open(subject, &far, &narrow));
    far.device = "far:wide";
    far.require = NULL;
    REQUIRE_OK(sli_trial_open_guarded(subject, &far, &wide));
    if (count_steps(wide.plan, true) != recurrent_steps || !wide_step(wide.plan))
        test_fail(__FILE__, __LINE__, "%s: %s", what, sl_plan_explain(wide.plan));
    REQUIRE_OK(sli_results_new(subject, true, &a));
    REQUIRE_OK(sli_results_new(subject, true, &b));
    compare_call(&wide, &narrow, &a, &b, (sli_trial_call){.training = false}, what);
    if (options->train) compare_call(&wide, &narrow, &a, &b, (sli_trial_call){.training = true}, what);
    compare_call(&wide, &narrow, &a, &b, (sli_trial_call){.batch = 2, .steps = 3, .training = options->train != 0},
                 what);
    REQUIRE_OK(sli_trial_count_damage(&wide, &damage));
    CHECK(damage == 0);
    /* Files and blobs of either are read by the other: the same parameters and states in the same order. */
    CHECK(wide.plan->param_count == narrow.plan->param_count && wide.plan->state_count == narrow.plan->state_count);
    for (int k = 0; k < narrow.plan->param_count; k++)
        CHECK(strcmp(wide.plan->params[k].param.name, narrow.plan->params[k].param.name) == 0);
    for (int k = 0; k < narrow.plan->state_count; k++)
        CHECK(strcmp(wide.plan->states[k].name, narrow.plan->states[k].name) == 0 &&
              wide.plan->states[k].features == narrow.plan->states[k].features);
    sli_trial_close(&wide);
    sli_trial_close(&narrow);
    sli_subject_free(subject);
}

TEST(wide_problems_equal_narrow_ones_to_the_bit) {
    static const char *const problems[] = {"lstm:l2_b3_t5_i4_h6_train",
                                           "gru:l3_b3_t5_i4_h6_train",
                                           "rnn:l3_b3_t5_i4_h6+act=relu",
                                           "lstm:l2_b3_t5_i4_h6_bi_train",
                                           "lstm:l2_b3_t5_i4_h6_p3_bi_train+peephole+clip=0.5",
                                           "gru:l2_b3_t5_i4_h6_bi_train+reset=before",
                                           "rnn:l6_b3_t5_i4_h3_bi_train",
                                           "lstm:b3_t5_i4_h6_bi_train",
                                           "lstm:b3_t5_i4_h6_bi_train+merge=sum",
                                           "gru:b3_t5_i4_h6_bi_train+merge=mul",
                                           "rnn:b3_t5_i4_h6_bi_train+merge=ave",
                                           "gru:b3_t5_i4_h6_bi+merge=sum",
                                           "lstm:b3_t5_i4_h6_bi_train+rdrop=0.4+zoneout_h=0.2+zoneout_c=0.3",
                                           "lstm:l2_b4_t6_i4_h6_train+lengths",
                                           "gru:l2_b4_t6_i4_h6_bi_train+lengths",
                                           "rnn:l2_b4_t6_i4_h6_bi_train+mask=holes+maskout=repeat",
                                           "lstm:b4_t6_i4_h6_bi_train+mask=left+merge=ave"};
    for (size_t k = 0; k < sizeof problems / sizeof *problems; k++)
        for (int doubles = 0; doubles < 2; doubles++) {
            sli_problem problem;
            sl_model *model;
            sl_plan_options options = {.threads = 1};
            REQUIRE_OK(sli_problem_parse(problems[k], &problem));
            REQUIRE_OK(sli_problem_model(NULL, &problem, true, &model, &options));
            options.dtype = doubles ? SL_F64 : SL_F32;
            options.input_gradients = options.train;
            compare_plans(model, &options, problem.mask, 1, problems[k]);
            sl_model_free(model);
        }
}

static void add(sl_model *model, const char *name, sl_cell cell, sl_recurrent options, const char *input) {
    const char *inputs[] = {input, NULL};
    REQUIRE_OK(sl_model_add_recurrent(model, name, cell, &options, inputs));
}

/* Inner final states are read, the last layer gives its last output alone, layers on both sides. */
TEST(wide_stack_inside_a_model) {
    for (int both = 0; both < 2; both++) {
        sl_model *model;
        sl_recurrent layer = {.units = 5,
                              .return_sequences = 1,
                              .return_state = 1,
                              .stateful = 1,
                              .bidirectional = both ? SL_BI_CONCAT : SL_UNIDIRECTIONAL};
        REQUIRE_OK(sl_model_new(NULL, &model));
        REQUIRE_OK(sl_model_add_tokens(model, "tokens", 9));
        REQUIRE_OK(sl_model_add_embedding(model, "embedding", &(sl_embedding){.vocabulary = 9, .units = 4}, NULL));
        add(model, "a", SL_LSTM, layer, "embedding");
        add(model, "b", SL_LSTM, layer, "a");
        layer.return_sequences = 0;
        add(model, "c", SL_LSTM, layer, "b");
        const char *parts[] = {"c", both ? "a.backward.h" : "a.h", NULL};
        REQUIRE_OK(sl_model_add_merge(model, "joined", SL_MERGE_CONCAT, parts));
        REQUIRE_OK(sl_model_add_dense(model, "y", &(sl_dense){.units = 3}, NULL));
        const char *outputs[] = {"y", both ? "b.forward.c" : "b.c", NULL};
        REQUIRE_OK(sl_model_set_outputs(model, outputs));
        sl_plan_options options = {.batch = 3, .steps = 6, .train = 1, .threads = 1};
        compare_plans(model, &options, SLI_MASK_NONE, 1, both ? "stack of both directions" : "stack");
        sl_model_free(model);
    }
}

/* ------------------------------------------------------------------------------------------- what is not one step -- */
static sl_plan *plan_of(sl_model *model, sl_plan_options options) {
    sl_plan *plan;
    options.device = "far:wide";
    options.threads = 1;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    return plan;
}

static sl_model *with_input(void) {
    sl_model *model;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 4, 0));
    return model;
}

static void check_recurrent_steps(sl_model *model, int count) {
    sl_plan *plan = plan_of(model, (sl_plan_options){.batch = 2, .steps = 3, .train = 1});
    if (count_steps(plan, true) != count) test_fail(__FILE__, __LINE__, "%s", sl_plan_explain(plan));
    sl_plan_free(plan);
    sl_model_free(model);
}

static const sl_recurrent sequences = {.units = 4, .return_sequences = 1};

TEST(wide_stack_ends_where_somebody_else_reads) {
    sl_model *model = with_input();
    const char *residual[] = {"a", "b", NULL}, *outputs[] = {"c", "b", NULL};
    add(model, "a", SL_GRU, sequences, "x");
    add(model, "b", SL_GRU, sequences, "a");
    REQUIRE_OK(sl_model_add_merge(model, "sum", SL_MERGE_ADD, residual));
    check_recurrent_steps(model, 2);
    model = with_input();
    add(model, "a", SL_GRU, sequences, "x");
    add(model, "b", SL_GRU, sequences, "a");
    add(model, "c", SL_GRU, sequences, "b");
    REQUIRE_OK(sl_model_set_outputs(model, outputs));
    check_recurrent_steps(model, 2); /* a and b, then c */
}

TEST(wide_stack_ends_where_layers_differ) {
    sl_recurrent other = sequences;
    sl_model *model = with_input();
    const char *states[] = {"b", "a.h", NULL};
    add(model, "a", SL_GRU, sequences, "x");
    REQUIRE_OK(sl_model_add_dropout(model, "drop", 0.5, NULL));
    add(model, "b", SL_GRU, sequences, "drop");
    add(model, "c", SL_RNN, sequences, "b");
    other.units = 5;
    add(model, "d", SL_RNN, other, "c");
    other.stateful = 1;
    add(model, "e", SL_RNN, other, "d");
    other.go_backwards = 1;
    add(model, "f", SL_RNN, other, "e");
    add(model, "g", SL_RNN, other, "f");
    check_recurrent_steps(model, 7);
    /* A state of the stack's first layer enters the last: two steps. */
    model = with_input();
    other = sequences;
    other.return_state = 1;
    add(model, "a", SL_GRU, other, "x");
    add(model, "b", SL_GRU, other, "a");
    REQUIRE_OK(sl_model_add_recurrent(model, "c", SL_GRU, &sequences, states));
    check_recurrent_steps(model, 2);
}

/* Thirteen layers and directions are more than a call has room for. */
TEST(wide_stack_is_bounded) {
    sl_model *model = with_input();
    char name[16], below[16] = "x";
    for (int k = 0; k < SLI_MAX_PARTS + 2; k++) {
        snprintf(name, sizeof name, "r%d", k);
        add(model, name, SL_RNN, sequences, below);
        memcpy(below, name, sizeof below);
    }
    check_recurrent_steps(model, 2);
}

/* ------------------------------------------------------------------------------------------- limits, rows, names -- */
TEST(wide_stack_is_cut_into_segments_to_the_bit) {
    enum { B = 16, T = 128 };
    static float x[B * T * 4];
    double gradient[2][4 * 4 * 4];
    uint64_t state = test_seed;
    for (size_t k = 0; k < sizeof x / sizeof *x; k++) x[k] = (float)test_random(&state);
    static float d[B * T * 4];
    for (size_t k = 0; k < sizeof d / sizeof *d; k++) d[k] = (float)test_random(&state);
    sl_model *model = with_input();
    add(model, "a", SL_LSTM, sequences, "x");
    add(model, "b", SL_LSTM, sequences, "a");
    sl_plan_options options = {.batch = B, .steps = T, .train = 1};
    const void *inputs[] = {x}, *d_outputs[] = {d};
    sl_batch batch = {.batch = B, .steps = T, .inputs = inputs};
    for (int k = 0; k < 2; k++) {
        sl_plan *plan = plan_of(model, options);
        sl_params *params;
        sl_run *run;
        CHECK(count_steps(plan, true) == 1 && (plan->segments > 1) == (k == 1));
        options.memory_limit = plan->memory.params_block + plan->memory.run_block * 3 / 4;
        REQUIRE_OK(sl_params_new(plan, &params));
        REQUIRE_OK(sl_params_init(params, 3));
        REQUIRE_OK(sl_run_new(plan, params, &run));
        REQUIRE_OK(sl_run_gradients(run, &batch, d_outputs, 1, 0, 1, NULL));
        REQUIRE_OK(sl_run_gradient(run, "a.kernel", gradient[k], 4 * 4 * 4));
        sl_run_free(run);
        sl_params_free(params);
        sl_plan_free(plan);
    }
    CHECK(memcmp(gradient[0], gradient[1], sizeof *gradient) == 0);
    sl_model_free(model);
}

TEST(wide_directions_come_apart_under_a_memory_limit) {
    sl_recurrent both = sequences;
    both.bidirectional = SL_BI_CONCAT;
    sl_model *model = with_input();
    add(model, "a", SL_LSTM, both, "x");
    add(model, "b", SL_LSTM, both, "a");
    sl_plan_options options = {.batch = 16, .steps = 256, .train = 1};
    sl_plan *plan = plan_of(model, options);
    CHECK(count_steps(plan, true) == 1 && plan->groups[plan->steps[0].group].whole);
    size_t params = plan->memory.params_block, run = plan->memory.run_block;
    sl_plan_free(plan);
    options.memory_limit = params + run * 7 / 10;
    plan = plan_of(model, options);
    CHECK(count_steps(plan, true) == 4 && plan->segments > 1);
    CHECK(params + plan->memory.run_block <= options.memory_limit);
    CHECK(strstr(sl_plan_explain(plan), "planner: the memory limit cuts the sequence") != NULL);
    CHECK(strstr(sl_plan_explain_json(plan), "\"kernel\": \"planner\"") != NULL);
    sl_plan_free(plan);
    /* A row that takes nothing but both directions at once keeps its sentence about memory. */
    options.require = "far:wide";
    options.device = "far:wide";
    CHECK_FAILS(sl_plan_new(model, &options, &plan), SL_ERR_MEMORY_LIMIT, "the memory limit is");
    options.require = NULL;
    options.memory_limit = params + 1000;
    CHECK_FAILS(sl_plan_new(model, &options, &plan), SL_ERR_MEMORY_LIMIT, "cheapest ways out");
    sl_model_free(model);
}

/* A row counts as able if it is for the whole or for its parts. */
TEST(wide_rows_are_listed_in_every_form) {
    sl_model *model;
    sl_plan_options options = {0};
    REQUIRE_OK(sl_model_from_problem(NULL, "gru:l2_b3_t5_i4_h6_bi_train", &model, &options));
    for (int narrow = 0; narrow < 2; narrow++) {
        options.require = narrow ? "ref" : NULL;
        sl_plan *plan = plan_of(model, options);
        sli_row rows[SLI_ROWS_MAX];
        CHECK(count_steps(plan, true) == (narrow ? 4 : 1));
        CHECK(strcmp(sl_plan_kernels(plan), narrow ? "ref" : "far:wide") == 0);
        int count = sli_rows_of(plan, SLI_OP_GRU, options.require, rows);
        CHECK(count == (narrow ? 1 : 4)); /* cpu:stack takes no two directions */
        for (int k = 0; k < count; k++) CHECK(!rows[k].refusal == (strcmp(rows[k].kernel->name, "cpu:stack") != 0));
        sl_plan_free(plan);
    }
    options.require = "cpu:fused";
    sl_plan *plan = plan_of(model, options);
    CHECK(strcmp(sl_plan_kernels(plan), "cpu:fused") == 0);
    CHECK(strstr(sl_plan_explain(plan), "offered as one: gru:l2_b3_t5_i4_h6_bi_train: far:wide: not cpu:fused"));
    sl_plan_free(plan);
    /* One layer: the wide row has nothing to take, and other devices do not know it. */
    sl_model_free(model);
    REQUIRE_OK(sl_model_from_problem(NULL, "gru:b3_t5_i4_h6", &model, &options));
    options.require = NULL;
    plan = plan_of(model, options);
    CHECK(strstr(sl_plan_explain(plan), "refused far:wide") != NULL);
    sl_plan_free(plan);
    options.device = "far";
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    CHECK(strstr(sl_plan_explain(plan), "far:wide") == NULL);
    sl_plan_free(plan);
    sl_model_free(model);
}

TEST(wide_step_is_named_by_its_layers) {
    sl_model *model = with_input();
    sl_recurrent linear = sequences;
    linear.activation = SL_ACT_LINEAR;
    add(model, "first", SL_RNN, linear, "x");
    add(model, "second", SL_RNN, linear, "first");
    sl_plan *plan = plan_of(model, (sl_plan_options){.batch = 1, .steps = 2});
    CHECK(strstr(sl_plan_explain(plan), "first..second") != NULL);
    sl_params *params;
    sl_run *run;
    REQUIRE_OK(sl_params_new(plan, &params));
    REQUIRE_OK(sl_run_new(plan, params, &run));
    float x[8] = {1e30f};
    double kernel[16];
    const void *inputs[] = {x};
    for (int k = 0; k < 16; k++) kernel[k] = 1e20;
    REQUIRE_OK(sl_params_set(params, "first.kernel", kernel, 16));
    REQUIRE_OK(sl_params_set(params, "second.kernel", kernel, 16));
    REQUIRE_OK(sl_run_forward(run, &(sl_batch){.batch = 1, .steps = 2, .inputs = inputs}));
    const char *name = sl_run_first_nonfinite(run);
    CHECK(name && strcmp(name, "first..second") == 0);
    sl_run_free(run);
    sl_params_free(params);
    sl_plan_free(plan);
    sl_model_free(model);
}
