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

#define ROW(NAME, ELIGIBLE, SECONDS) \
    { .name = NAME, .op = SLI_OP_GRU, .device = SLI_DEVICE_CPU, .eligible = ELIGIBLE, .seconds = SECONDS }
static const sli_kernel slow_row = ROW("t:slow", takes, slow), fast_row = ROW("t:fast", takes, fast),
                        refusing_row = ROW("t:never", refuses, fast), silent_row = ROW("t:silent", takes, NULL),
                        unsure_row = ROW("t:unsure", takes, unknown);

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
        {.dtype = SL_F64}, {.require = "ref"}, {.require = "cpu:"}, {.require = "cpu:step", .device = "auto"}};
    sl_model *model;
    sl_plan *plan;
    REQUIRE_OK(sl_model_from_problem(NULL, "lstm:b1_t1_i2_h2", &model, NULL));
    for (size_t k = 0; k < sizeof cpu_only / sizeof *cpu_only; k++) {
        REQUIRE_OK(sl_plan_new(model, &cpu_only[k], &plan));
        CHECK(strcmp(plan->caps.name, "cpu") == 0);
        sl_plan_free(plan);
    }
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
