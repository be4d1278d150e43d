/* Which row computes a problem: the order, the least predicted time, what is required; and on which device. */
#include "core/plan.h"
#include "test.h"

static bool takes(const sli_problem *problem, const sli_caps *caps, sli_why *why) {
    (void)problem;
    (void)caps;
    (void)why;
    return true;
}
static bool refuses(const sli_problem *problem, const sli_caps *caps, sli_why *why) {
    (void)caps;
    NEED(problem->units < 2, "two units are too many");
    return true;
}
static double fast(const sli_problem *problem, const sli_caps *caps) {
    (void)caps;
    return 1e-6 * problem->batch;
}
static double slow(const sli_problem *problem, const sli_caps *caps) {
    (void)problem;
    (void)caps;
    return 3e-6;
}
static double unknown(const sli_problem *problem, const sli_caps *caps) {
    (void)problem;
    (void)caps;
    return NAN;
}

#define ROW_OF_BITS(NAME, ELIGIBLE, SECONDS, BITS)                                                          \
    {                                                                                                       \
        .name = NAME, .op = SLI_OP_GRU, .device = SLI_DEVICE_CPU, .eligible = ELIGIBLE, .seconds = SECONDS, \
        .bits_of = BITS                                                                                     \
    }
#define ROW(NAME, ELIGIBLE, SECONDS) ROW_OF_BITS(NAME, ELIGIBLE, SECONDS, "t:slow")
static const sli_kernel slow_row = ROW("t:slow", takes, slow), fast_row = ROW("t:fast", takes, fast),
                        refusing_row = ROW("t:never", refuses, fast), silent_row = ROW("t:silent", takes, NULL),
                        unsure_row = ROW("t:unsure", takes, unknown),
                        other_row = ROW_OF_BITS("t:other", takes, fast, NULL);

/* A plan to choose for; its own steps do not matter. */
static sl_plan *any_plan(const char *require) {
    sl_model *model;
    sl_plan *plan;
    sl_plan_options options = {.device = test_device};
    REQUIRE_OK(sl_model_from_problem(NULL, "dense:b1_i1_h1", &model, NULL));
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    plan->caps.kind = SLI_DEVICE_CPU;
    plan->options.require = require;
    sl_model_free(model);
    return plan;
}

static const char *chosen(sl_plan *plan, const sli_kernel *const *rows, const char *text, sli_refusal **refusals) {
    sli_problem problem;
    const sli_kernel *kernel;
    REQUIRE_OK(sli_problem_parse(text, &problem));
    sl_status status = sli_plan_choose_among(plan, rows, &problem, "here", &kernel, refusals);
    return status == SL_OK ? kernel->name : sl_status_name(status);
}

TEST(choice_is_the_least_predicted_time) {
    sl_plan *plan = any_plan(NULL);
    sli_refusal *refusals;
    const sli_kernel *const rows[] = {&refusing_row, &slow_row, &fast_row, NULL};
    CHECK(strcmp(chosen(plan, rows, "gru:b2_t1_i1_h2", &refusals), "t:fast") == 0);
    REQUIRE(refusals && refusals->next && !refusals->next->next);
    CHECK(refusals->kernel == &refusing_row && !refusals->slower && strstr(refusals->reason, "two units"));
    CHECK(refusals->next->kernel == &slow_row && refusals->next->slower);
    CHECK(strcmp(refusals->next->reason, "predicted 3 us a call, t:fast 2 us") == 0);
    CHECK(strcmp(chosen(plan, rows, "gru:b7_t1_i1_h2", &refusals), "t:slow") == 0);
    CHECK(strcmp(chosen(plan, rows, "gru:b3_t1_i1_h2", &refusals), "t:slow") == 0); /* as fast: the order */
    sl_plan_free(plan);
}

/* A CPU's predictions depend on the number of threads, which changes no bit. */
TEST(choice_on_a_cpu_is_between_rows_of_the_same_bits) {
    sl_plan *plan = any_plan(NULL);
    sli_refusal *refusals;
    sli_problem problem;
    bool taken;
    const sli_kernel *const rows[] = {&slow_row, &other_row, NULL}, *const other[] = {&other_row, NULL};
    CHECK(strcmp(chosen(plan, rows, "gru:b2_t1_i1_h2", &refusals), "t:slow") == 0);
    REQUIRE(refusals && !refusals->next && refusals->slower && refusals->passed);
    CHECK(strstr(refusals->reason, "predicted 2 us a call, t:slow 3 us; its bits are others"));
    REQUIRE_OK(sli_problem_parse("gru:l2_b2_t1_i1_h2", &problem));
    REQUIRE_OK(sli_plan_offer(plan, other, &problem, 1e-6, &taken));
    CHECK(taken); /* a wide row that is not known to have the bits of its parts */
    sl_plan_free(plan);
}

TEST(choice_without_predictions_is_the_order) {
    sl_plan *plan = any_plan(NULL);
    sli_refusal *refusals;
    const sli_kernel *const silent_first[] = {&silent_row, &slow_row, &fast_row, NULL};
    const sli_kernel *const unsure_first[] = {&unsure_row, &fast_row, NULL};
    const sli_kernel *const unsure_last[] = {&slow_row, &unsure_row, &silent_row, NULL};
    CHECK(strcmp(chosen(plan, silent_first, "gru:b1_t1_i1_h2", &refusals), "t:silent") == 0 && !refusals);
    CHECK(strcmp(chosen(plan, unsure_first, "gru:b1_t1_i1_h2", &refusals), "t:unsure") == 0 && !refusals);
    CHECK(strcmp(chosen(plan, unsure_last, "gru:b1_t1_i1_h2", &refusals), "t:slow") == 0 && !refusals);
    sl_plan_free(plan);
    plan = any_plan("t:slow");
    const sli_kernel *const rows[] = {&slow_row, &fast_row, NULL};
    CHECK(strcmp(chosen(plan, rows, "gru:b1_t1_i1_h2", &refusals), "t:slow") == 0);
    CHECK(refusals && !refusals->slower && strcmp(refusals->reason, "not t:slow") == 0);
    plan->options.require = "fused";
    CHECK(strcmp(chosen(plan, rows, "gru:b1_t1_i1_h2", &refusals), "t:fast") == 0);
    plan->options.require = "x:";
    CHECK(strcmp(chosen(plan, rows, "gru:b1_t1_i1_h2", &refusals), "SL_ERR_NO_KERNEL") == 0);
    sl_plan_free(plan);
}

TEST(choice_of_a_wide_problem_compares_with_its_parts) {
    sl_plan *plan = any_plan(NULL);
    sli_problem problem;
    bool taken;
    const sli_kernel *const rows[] = {&slow_row, &refusing_row, NULL}, *const none[] = {&refusing_row, NULL};
    REQUIRE_OK(sli_problem_parse("gru:l2_b2_t1_i1_h2", &problem));
    REQUIRE_OK(sli_plan_offer(plan, rows, &problem, 4e-6, &taken));
    CHECK(taken && !plan->offers);
    REQUIRE_OK(sli_plan_offer(plan, rows, &problem, -1, &taken));
    CHECK(taken && !plan->offers);
    REQUIRE_OK(sli_plan_offer(plan, none, &problem, -1, &taken));
    CHECK(!taken && plan->offers && !plan->offers->next && strstr(plan->offers->reason, "two units"));
    REQUIRE_OK(sli_plan_offer(plan, rows, &problem, 2e-6, &taken));
    CHECK(!taken && plan->offers->next && plan->offers->next->next);
    const sli_refusal *last = plan->offers->next->next;
    CHECK(last->kernel == &slow_row && last->slower &&
          strcmp(last->reason, "predicted 3 us a call, its layers and directions one by one 2 us") == 0);
    sl_plan_free(plan);
}

TEST(choice_of_parts_of_a_wide_problem) {
    sli_problem wide, part;
    char text[SLI_PROBLEM_TEXT];
    REQUIRE_OK(sli_problem_parse("lstm:l3_b2_t5_i4_h6_p3_bi_train+drop=0.5", &wide));
    CHECK(sli_problem_parts(&wide) == 6 && sli_problem_directions(&wide) == 2 && sli_problem_states(&wide) == 2);
    part = sli_problem_part(&wide, 0, 0);
    sli_problem_print(&part, text, sizeof text);
    CHECK(strcmp(text, "lstm:b2_t5_i4_h6_p3_train") == 0);
    part = sli_problem_part(&wide, 1, 1);
    sli_problem_print(&part, text, sizeof text);
    CHECK(strcmp(text, "lstm:b2_t5_i6_h6_p3_train+reverse") == 0);
    part = sli_problem_part(&wide, 2, -1);
    sli_problem_print(&part, text, sizeof text);
    CHECK(strcmp(text, "lstm:b2_t5_i6_h6_p3_bi_train") == 0);
    REQUIRE_OK(sli_problem_parse("rnn:l2_b2_t5_i4_h6", &wide));
    part = sli_problem_part(&wide, 1, 0);
    sli_problem_print(&part, text, sizeof text);
    CHECK(strcmp(text, "rnn:b2_t5_i6_h6") == 0 && sli_problem_parts(&wide) == 2 && sli_problem_states(&wide) == 1);
}

TEST(choice_of_auto_is_the_cpu_for_what_only_it_computes) {
    static const sl_plan_options cpu_only[] = {
        {.dtype = SL_F64}, {.require = "ref"}, {.require = "cpu:"}, {.require = "cpu:fused", .device = "auto"}};
    sl_model *model;
    sl_plan *plan;
    REQUIRE_OK(sl_model_from_problem(NULL, "lstm:b1_t1_i2_h2", &model, NULL));
    for (size_t k = 0; k < sizeof cpu_only / sizeof *cpu_only; k++) {
        REQUIRE_OK(sl_plan_new(model, &cpu_only[k], &plan));
        CHECK(strcmp(plan->caps.name, "cpu") == 0);
        sl_plan_free(plan);
    }
    /* A requirement of a GPU says why the plan is for the CPU; a name that no row has is told as such. */
    const sl_plan_options of_gpu = {.dtype = SL_F64, .require = "cuda:step"},
                          given = {.device = "cpu", .require = "cudnn:"};
    CHECK_FAILS(sl_plan_new(model, &of_gpu, &plan), SL_ERR_NO_KERNEL,
                "--require cuda:step is of a GPU, and the plan is for cpu (device auto: ");
    CHECK_FAILS(sl_plan_new(model, &given, &plan), SL_ERR_NO_KERNEL,
                "--require cudnn: is of a GPU, and the plan is for cpu; give --device cuda:0");
    const sl_plan_options of_none = {.device = "cpu", .require = "cpu:step"};
    CHECK_FAILS(sl_plan_new(model, &of_none, &plan), SL_ERR_NO_KERNEL,
                "no kernel is called cpu:step that computes lstm on cpu; there are cpu:fused, ");
    /* Otherwise whatever GPU there is, by the name it has among the devices. */
    const char *name, *gpu = "cpu";
    int usable;
    for (int k = 0; (name = sl_device_name(k, NULL, &usable)); k++)
        if (usable && strcmp(name, "cuda:0") == 0) gpu = "cuda:0";
    REQUIRE_OK(sl_plan_new(model, NULL, &plan));
    CHECK(strcmp(plan->caps.name, gpu) == 0);
    sl_plan_free(plan);
    sl_model_free(model);
}

/* -------------------------------------------------------------------------------------------- choices from outside -- */
static void give_choices(sl_plan *plan, const char *text) {
    plan->choice_count = 0;
    REQUIRE_OK(sli_choices_read(plan, text));
}

TEST(choice_given_is_obeyed_where_the_row_is_eligible) {
    sl_plan *plan = any_plan(NULL);
    sli_refusal *refusals;
    const sli_kernel *const rows[] = {&refusing_row, &slow_row, &fast_row, NULL};
    give_choices(plan,
                 "# a comment\n\n  gru:b2_t1_i1_h2 t:slow  # why not\ngru:i1_h2_t1_b3 t:never\ngru:b1_t1_i1_h2 t:new");
    REQUIRE(plan->choice_count == 3);
    CHECK(strcmp(chosen(plan, rows, "gru:b2_t1_i1_h2", &refusals), "t:slow") == 0);
    REQUIRE(refusals && refusals->next && !refusals->next->next);
    CHECK(refusals->next->kernel == &fast_row && refusals->next->slower && refusals->next->passed);
    CHECK(strcmp(refusals->next->reason, "the choices name t:slow; predicted 2 us a call, t:slow 3 us") == 0);
    CHECK(plan->choices[0].obeyed && plan->choices[0].seconds < 0);
    /* Not eligible, or no such row: planned for as without the line, and the reason is kept. */
    CHECK(strcmp(chosen(plan, rows, "gru:b3_t1_i1_h2", &refusals), "t:slow") == 0);
    CHECK(!plan->choices[1].obeyed && strstr(plan->choices[1].reason, "two units"));
    CHECK(strcmp(chosen(plan, rows, "gru:b1_t1_i1_h2", &refusals), "t:fast") == 0);
    CHECK(!plan->choices[2].obeyed && strstr(plan->choices[2].reason, "no such row"));
    CHECK(refusals->next && !refusals->next->passed);
    /* Of two lines the last counts; what was required stays required. */
    give_choices(plan, "gru:b2_t1_i1_h2 t:slow\ngru:b2_t1_i1_h2 t:fast 2.5");
    CHECK(strcmp(chosen(plan, rows, "gru:b2_t1_i1_h2", &refusals), "t:fast") == 0);
    CHECK_NEAR(plan->choices[1].seconds, 2.5e-6, 1e-12);
    plan->options.require = "t:slow";
    CHECK(strcmp(chosen(plan, rows, "gru:b2_t1_i1_h2", &refusals), "t:slow") == 0);
    CHECK(strcmp(plan->choices[1].reason, "not t:slow") == 0);
    sl_plan_free(plan);
}

/* A row with several cuts, on its device: the choice fixes one, the plan computes with it, and says so to another plan. */
TEST(choice_given_names_a_cut_of_its_row) {
    if (test_on_gpu()) test_skip("the row is of a CPU device");
    sl_model *model;
    sl_plan *plan, *again;
    sl_plan_options options = {0};
    REQUIRE_OK(sl_model_from_problem(NULL, "lstm:l2_b2_t3_i3_h4_train", &model, &options));
    options.device = "far:wide";
    options.choices = "lstm:l2_b2_t3_i3_h4_train far:wide@f1/b1";
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    REQUIRE(plan->step_count >= 1 && plan->steps[0].choice);
    CHECK(plan->steps[0].problem.cut == 1 + SLI_CUTS && strcmp(sl_plan_kernels(plan), "far:wide") == 0);
    CHECK(strcmp(sl_plan_choices(plan), "lstm:l2_b2_t3_i3_h4_train far:wide@f1/b1\n") == 0);
    options.choices = sl_plan_choices(plan);
    REQUIRE_OK(sl_plan_new(model, &options, &again));
    CHECK(again->steps[0].problem.cut == 1 + SLI_CUTS);
    CHECK(strcmp(sl_plan_choices(plan), sl_plan_choices(again)) == 0);
    sl_plan_free(again);
    sl_plan_free(plan);
    /* The row alone leaves the cut to predictions; so does, with a note, one that is none. */
    options.choices = "lstm:l2_b2_t3_i3_h4_train far:wide";
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    CHECK(plan->steps[0].problem.cut == 0 &&
          strcmp(sl_plan_choices(plan), "lstm:l2_b2_t3_i3_h4_train far:wide@f0/b0\n") == 0);
    sl_plan_free(plan);
    options.choices = "lstm:l2_b2_t3_i3_h4_train far:wide@f2/b0";
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    CHECK(plan->steps[0].problem.cut == 0 && strstr(sl_plan_choices(plan), "far:wide@f0/b0\n"));
    CHECK(strstr(sl_plan_explain(plan),
                 "far:wide@f2/b0 is not taken: far:wide is not cut like this on far:wide, but as"));
    sl_plan_free(plan);
    sl_model_free(model);
    plan = any_plan(NULL);
    sli_refusal *refusals;
    const sli_kernel *const rows[] = {&slow_row, &fast_row, NULL};
    give_choices(plan, "gru:b2_t1_i1_h2 t:slow@x");
    CHECK(strcmp(chosen(plan, rows, "gru:b2_t1_i1_h2", &refusals), "t:slow") == 0);
    CHECK(strstr(plan->choices[0].reason, "not cut like this"));
    sl_plan_free(plan);
}

TEST(choice_given_of_a_wide_problem_is_a_row_or_parts) {
    sl_plan *plan = any_plan(NULL);
    sli_problem problem;
    bool taken;
    const sli_kernel *const rows[] = {&slow_row, NULL};
    REQUIRE_OK(sli_problem_parse("gru:l2_b2_t1_i1_h2", &problem));
    give_choices(plan, "gru:l2_b2_t1_i1_h2 t:slow");
    REQUIRE_OK(sli_plan_offer(plan, rows, &problem, 1e-9, &taken)); /* its parts are predicted to be faster */
    CHECK(taken && !plan->offers);
    give_choices(plan, "gru:l2_b2_t1_i1_h2 parts");
    REQUIRE_OK(sli_plan_offer(plan, rows, &problem, 1, &taken));
    CHECK(!taken && plan->offers && strstr(plan->offers->reason, "one by one") && plan->choices[0].obeyed);
    sl_plan_free(plan);
}

TEST(choice_text_that_is_none_is_an_error) {
    static const struct {
        const char *text, *detail;
    } cases[] = {{"gru:b2_t1_i1_h2", "line 1"},       {"\n\ngru:b2_t1_i1_h2 a b", "line 3"},
                 {"gru:b2_t1_i1_h2 a 1 c", "line 1"}, {"gru:b2_t1_i1_h2 a nan", "line 1"},
                 {"gru:b2_t1_i1 a", "field hN"},      {"dense:b2_t1_i1_h2 a", "no recurrent problem"},
                 {"gru:b2_t1_i1_h2 a -1", "line 1"},  {"gru:b2_t1_i1_h2+peephole a", "peephole"}};
    sl_model *model;
    sl_plan *plan;
    REQUIRE_OK(sl_model_from_problem(NULL, "gru:b2_t1_i1_h2", &model, NULL));
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        sl_plan_options options = {.device = test_device, .choices = cases[k].text};
        sl_status status = sl_plan_new(model, &options, &plan);
        CHECK((status == SL_ERR_INPUT || status == SL_ERR_UNKNOWN) && !plan);
        if (!strstr(sl_error_detail(), cases[k].detail)) test_fail(__FILE__, __LINE__, "%s", sl_error_detail());
    }
    sl_model_free(model);
}

/* A plan with the choices of another computes with the same kernels; what it could not obey is explained. */
TEST(choice_of_a_plan_makes_the_same_plan) {
    sl_model *model;
    sl_plan *plan, *again;
    if (test_on_gpu()) test_skip("its rows are the CPU's");
    sl_plan_options options = {.device = test_device};
    REQUIRE_OK(sl_model_from_problem(NULL, "lstm:l2_b3_t5_i4_h8_bi_train", &model, &options));
    options.device = test_device;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    CHECK(strstr(sl_plan_choices(plan), "\n") && !strstr(sl_plan_explain(plan), "choice"));
    options.choices = sl_plan_choices(plan);
    REQUIRE_OK(sl_plan_new(model, &options, &again));
    CHECK(strcmp(sl_plan_choices(plan), sl_plan_choices(again)) == 0);
    CHECK(!strstr(sl_plan_explain(again), "is not taken") && strstr(sl_plan_explain(again), "the choices name it"));
    sl_plan_free(plan);
    sl_plan_free(again);
    options.choices =
        "lstm:b3_t5_i4_h8_train ref\nlstm:b3_t5_i4_h8_train+reverse gone\nlstm:b3_t5_i4_h8_bi_train parts\n"
        "lstm:l2_b3_t5_i4_h8_bi_train parts\nrnn:b1_t1_i1_h1 ref\n";
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    CHECK(strstr(sl_plan_choices(plan), "lstm:b3_t5_i4_h8_train ref\n"));
    CHECK(strstr(sl_plan_choices(plan), "lstm:l2_b3_t5_i4_h8_bi_train parts\n"));
    CHECK(strstr(sl_plan_explain(plan), "choice lstm:b3_t5_i4_h8_train+reverse gone is not taken: "));
    CHECK(strstr(sl_plan_explain(plan), "choice rnn:b1_t1_i1_h1 ref is not taken: nothing in this plan"));
    CHECK(strstr(sl_plan_explain_json(plan), "\"notes\": [\"choice "));
    sl_plan_free(plan);
    sl_model_free(model);
}
