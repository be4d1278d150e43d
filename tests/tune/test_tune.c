/* Choosing by timing: every recurrent problem of a plan gets its fastest kernel, is remembered, and a plan says so. */
#include "tune/tune.h"

#include "test.h"
#include "tune/cache_folder.h"

/* Ends with cache_restore. */
static void use_folder(const char *name) {
    cache_keep();
    static char folder[512];
    snprintf(folder, sizeof folder, "%s/%s", test_folder(), name);
    setenv("XDG_CACHE_HOME", folder, 1);
}

static sl_plan *tuned_plan(const char *problem, sl_plan_options options) {
    sl_model *model;
    sl_plan *plan;
    sl_plan_options of_problem = {0};
    REQUIRE_OK(sl_model_from_problem(NULL, problem, &model, &of_problem));
    options.batch = of_problem.batch;
    options.steps = of_problem.steps;
    options.train = of_problem.train;
    options.dtype = of_problem.dtype;
    if (!options.device) options.device = test_device;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    sl_model_free(model);
    return plan;
}

/* Microseconds after "ROW " in the line about the problem; negative if there is none. */
static double told(const sl_plan *plan, const char *problem, const char *row) {
    char key[256];
    snprintf(key, sizeof key, "timed %s: ", problem);
    const char *line = strstr(sl_plan_explain(plan), key), *end = line ? strchr(line, '\n') : NULL;
    snprintf(key, sizeof key, "%s ", row);
    const char *at = line ? strstr(line + strlen("timed ") + strlen(problem), key) : NULL;
    return at && at < end ? strtod(at + strlen(key), NULL) : -1;
}

TEST(tune_takes_the_fastest_kernel_and_remembers_it) {
    static const char problem[] = "gru:b3_t5_i4_h8_train";
    if (test_on_gpu()) test_skip("its rows are the CPU's");
    use_folder("tune");
    sl_plan *plan = tuned_plan(problem, (sl_plan_options){.tune = SL_TUNE});
    double fused = told(plan, problem, "cpu:fused"), ref = told(plan, problem, "ref");
    CHECK(fused > 0 && ref > 0 && !strstr(sl_plan_explain(plan), "remembered"));
    CHECK(told(plan, problem, sl_plan_kernels(plan)) == fmin(fused, ref));
    CHECK(strstr(sl_plan_explain(plan), "by timing: "));
    CHECK(strstr(sl_plan_explain_json(plan), "\"timed_seconds\": "));
    char *choices = strdup(sl_plan_choices(plan));
    sl_plan_free(plan);
    plan = tuned_plan(problem, (sl_plan_options){.tune = SL_TUNE});
    CHECK(strstr(sl_plan_explain(plan), "(remembered)"));
    CHECK_NEAR(told(plan, problem, "ref"), ref, 2e-3 * ref); /* of what is rounded twice */
    CHECK(strcmp(sl_plan_choices(plan), choices) == 0);
    sl_plan_free(plan);
    plan = tuned_plan(problem, (sl_plan_options){.tune = SL_TUNE_AGAIN});
    CHECK(told(plan, problem, "ref") > 0 && !strstr(sl_plan_explain(plan), "remembered"));
    sl_plan_free(plan);
    plan = tuned_plan(problem, (sl_plan_options){0});
    CHECK(!strstr(sl_plan_explain(plan), "timed"));
    sl_plan_free(plan);
    free(choices);
    cache_restore();
}

/* What another process measured decides: the file says that the slow one is fast. */
TEST(tune_believes_what_is_remembered) {
    static const char problem[] = "gru:b3_t5_i4_h8";
    if (test_on_gpu()) test_skip("its rows are the CPU's");
    use_folder("believe");
    sl_plan *plan = tuned_plan(problem, (sl_plan_options){0});
    sli_tuned tuned;
    REQUIRE_OK(sli_tuned_open(&plan->allocator, &plan->caps, plan->ops, &tuned));
    REQUIRE_OK(sli_tuned_add(&tuned, problem, "ref", 1e-9));
    REQUIRE_OK(sli_tuned_add(&tuned, problem, "cpu:fused", 3e-9));
    REQUIRE_OK(sli_tuned_save(&tuned));
    sli_tuned_close(&tuned);
    sl_plan_free(plan);
    plan = tuned_plan(problem, (sl_plan_options){.tune = SL_TUNE});
    CHECK(strcmp(sl_plan_kernels(plan), "ref") == 0);
    sl_plan_free(plan);
    /* What is given or required counts more. */
    plan = tuned_plan(problem, (sl_plan_options){.tune = SL_TUNE, .choices = "gru:b3_t5_i4_h8 cpu:fused"});
    CHECK(strcmp(sl_plan_kernels(plan), "cpu:fused") == 0 && !strstr(sl_plan_explain(plan), "timed"));
    sl_plan_free(plan);
    plan = tuned_plan(problem, (sl_plan_options){.tune = SL_TUNE, .require = "cpu:fused"});
    CHECK(strcmp(sl_plan_kernels(plan), "cpu:fused") == 0);
    sl_plan_free(plan);
    cache_restore();
}

TEST(tune_times_wide_problems_beside_their_parts) {
    static const char wide[] = "lstm:l2_b2_t4_i3_h5_bi", layer[] = "lstm:b2_t4_i10_h5_bi";
    if (test_on_gpu()) test_skip("its rows are the CPU's");
    use_folder("wide");
    sl_plan *plan = tuned_plan(wide, (sl_plan_options){.tune = SL_TUNE, .device = "far:wide"});
    double row = told(plan, wide, "far:wide@f0"), other = told(plan, wide, "far:wide@f1"),
           parts = told(plan, wide, "parts");
    CHECK(row > 0 && other > 0 && parts > 0 && told(plan, layer, "far:wide@f0") > 0 && told(plan, layer, "parts") > 0);
    const char *choice = "lstm:l2_b2_t4_i3_h5_bi parts\n";
    if (fmin(row, other) < parts)
        choice = row < other ? "lstm:l2_b2_t4_i3_h5_bi far:wide@f0\n" : "lstm:l2_b2_t4_i3_h5_bi far:wide@f1\n";
    if (fmin(row, other) != parts && row != other) CHECK(strstr(sl_plan_choices(plan), choice));
    CHECK(!strstr(sl_plan_explain(plan), "is not taken"));
    sl_plan_free(plan);
    cache_restore();
}

/* Cuts of a row's forward first, then of its backward with the fastest of those. What the file says decides. */
TEST(tune_takes_the_fastest_cut_of_a_row) {
    static const char problem[] = "lstm:l2_b2_t4_i3_h5_train", taken[] = "lstm:l2_b2_t4_i3_h5_train far:wide@f1/b1\n";
    if (test_on_gpu()) test_skip("its rows are the CPU's");
    use_folder("cuts");
    sl_plan *plan = tuned_plan(problem, (sl_plan_options){.device = "far:wide"});
    sli_tuned tuned;
    REQUIRE_OK(sli_tuned_open(&plan->allocator, &plan->caps, plan->ops, &tuned));
    REQUIRE_OK(sli_tuned_add(&tuned, problem, "far:wide@f0/b0", 3e-9));
    REQUIRE_OK(sli_tuned_add(&tuned, problem, "far:wide@f1/b0", 2e-9));
    REQUIRE_OK(sli_tuned_add(&tuned, problem, "far:wide@f1/b1", 1e-9));
    REQUIRE_OK(sli_tuned_add(&tuned, problem, "cpu:stack", 4e-9));
    REQUIRE_OK(sli_tuned_add(&tuned, problem, "parts", 4e-9));
    REQUIRE_OK(sli_tuned_save(&tuned));
    sli_tuned_close(&tuned);
    sl_plan_free(plan);
    plan = tuned_plan(problem, (sl_plan_options){.device = "far:wide", .tune = SL_TUNE});
    CHECK(strstr(sl_plan_choices(plan), taken) && told(plan, problem, "far:wide@f1/b0") > 0);
    CHECK(plan->steps[0].problem.cut == 1 + SLI_CUTS);
    sl_plan_free(plan);
    plan = tuned_plan(problem, (sl_plan_options){.device = "far:wide", .tune = SL_TUNE_AGAIN}); /* both are timed */
    CHECK(told(plan, problem, "far:wide@f0/b0") > 1e-3 && told(plan, problem, "far:wide@f1/b0") > 1e-3);
    CHECK(!strstr(sl_plan_explain(plan), "is not taken"));
    /* Whatever was timed last, what is remembered of it chooses the same. */
    sl_plan *same = tuned_plan(problem, (sl_plan_options){.device = "far:wide", .tune = SL_TUNE});
    CHECK(strstr(sl_plan_explain(same), "(remembered)") && strcmp(sl_plan_choices(plan), sl_plan_choices(same)) == 0);
    sl_plan_free(same);
    sl_plan_free(plan);
    cache_restore();
}

TEST(tune_without_anything_to_time_plans_all_the_same) {
    if (test_on_gpu()) test_skip("its rows are the CPU's");
    use_folder("nothing");
    sl_plan *plan = tuned_plan("lstm:b2_t4_i3_h5_f64", (sl_plan_options){.tune = SL_TUNE, .device = "cpu"});
    CHECK(strcmp(sl_plan_kernels(plan), "ref") == 0 && !strstr(sl_plan_explain(plan), "timed"));
    sl_plan_free(plan);
    plan = tuned_plan("lstm:b2_t4_i3_h5", (sl_plan_options){.tune = SL_TUNE, .device = "cuda:sm_90"});
    CHECK(strstr(sl_plan_explain(plan), "nothing was timed: device cuda:sm_90 is invented"));
    sl_plan_free(plan);
    setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
    plan = tuned_plan("lstm:b2_t4_i3_h5", (sl_plan_options){.tune = SL_TUNE});
    CHECK(strstr(sl_plan_explain(plan), "times are not remembered: /proc/nowhere"));
    sl_plan_free(plan);
    cache_restore();
}

/* Whatever rows the device of the tests has. */
TEST(tune_on_any_device_is_remembered_to_the_same_plan) {
    static const char problem[] = "lstm:b4_t9_i8_h16_train";
    use_folder("any");
    sl_plan *first = tuned_plan(problem, (sl_plan_options){.tune = SL_TUNE});
    sl_plan *again = tuned_plan(problem, (sl_plan_options){.tune = SL_TUNE});
    const char *line = strstr(sl_plan_explain(first), "timed lstm:b4_t9_i8_h16_train: ");
    REQUIRE(line);
    CHECK(strstr(line, sl_plan_kernels(first)) && !strstr(line, "remembered"));
    CHECK(strstr(sl_plan_explain(again), "(remembered)"));
    CHECK(strcmp(sl_plan_choices(first), sl_plan_choices(again)) == 0);
    sl_plan_free(first);
    sl_plan_free(again);
    cache_restore();
}

/* What is timed together takes no more than the plan may: the first way alone fits here, and what it is worth is not known. */
TEST(tune_keeps_to_the_memory_limit) {
    static const char problem[] = "gru:b3_t5_i4_h8_train";
    if (test_on_gpu()) test_skip("its rows are the CPU's");
    use_folder("tune_memory");
    sl_plan *plan = tuned_plan(problem, (sl_plan_options){0});
    sl_memory memory;
    sl_plan_memory(plan, &memory);
    sl_plan_free(plan);
    for (int times = 2; times <= 8; times += 6) {
        const size_t limit = (size_t)times * (memory.params_block + memory.run_block) * 5 / 8;
        plan = tuned_plan(problem, (sl_plan_options){.tune = SL_TUNE_AGAIN, .memory_limit = limit});
        CHECK(told(plan, problem, "cpu:fused") > 0);
        CHECK((told(plan, problem, "ref") > 0) == (times == 8));
        CHECK((strstr(sl_plan_explain(plan), "ref cannot") != NULL) == (times == 2));
        sl_plan_free(plan);
    }
    cache_restore();
}
