/* The next best geometries of cuda:cluster and cuda:grid, as choices name them; on an invented GPU. */
#include "backend/cuda/persist_layout.h"
#include "core/plan.h"
#include "test.h"

static const sli_kernel *row_of(const sl_plan *plan, const sli_problem *problem, const char *name) {
    const sli_kernel *rows[SLI_PLAN_CANDIDATES];
    const int count = sli_plan_candidates(plan, problem, rows);
    for (int k = 0; k < count; k++)
        if (strcmp(rows[k]->name, name) == 0) return rows[k];
    return NULL;
}

static sl_plan *plan_of(const char *text, const char *choices) {
    sl_model *model;
    sl_plan *plan;
    sl_plan_options options = {0};
    REQUIRE_OK(sl_model_from_problem(NULL, text, &model, &options));
    options.device = "cuda:sm_90";
    options.choices = choices;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    sl_model_free(model);
    return plan;
}

/* Cuts of one pass: names of their own, in the order of what is predicted, each the plan's if it is chosen. */
static int check_pass(const char *text, const char *row_name, bool backward) {
    char names[SLI_CUTS][SLI_CUT_NAME], choice[SLI_PROBLEM_TEXT + 2 * SLI_CUT_NAME];
    sl_plan *predicted = plan_of(text, NULL);
    sli_problem p;
    REQUIRE_OK(sli_problem_parse(text, &p));
    const sli_kernel *row = row_of(predicted, &p, row_name);
    double before = 0;
    int found = 0;
    for (; row && found < SLI_CUTS; found++) {
        p.cut = backward ? found * SLI_CUTS : found;
        if (!row->cut(&p, &predicted->caps, names[found], SLI_CUT_NAME)) break;
        CHECK(strcspn(names[found], " @\t#") == strlen(names[found]));
        for (int k = 0; k < found; k++) CHECK(strcmp(names[k], names[found]) != 0);
        sli_persist_pair pair;
        const sli_persist_kind kind = strstr(row_name, "grid") ? SLI_PERSIST_KIND_GRID : SLI_PERSIST_KIND_CLUSTER;
        REQUIRE(sli_persist_pair_of(&p, (sli_planned){0}, &predicted->caps, kind, &pair, NULL));
        if (!backward || (p.train && !pair.backward_in_steps)) {
            const sli_persist_geometry *g = backward ? &pair.backward : &pair.forward;
            const double seconds = sli_persist_step_seconds(g, &p, &predicted->caps);
            const bool through =
                kind == SLI_PERSIST_KIND_GRID && g->gather != SLI_PERSIST_GRID; /* chosen by its pass */
            CHECK(seconds > 0 && seconds >= (1 - 1e-8) * before);
            if (!through) before = seconds;
        }
        sli_problem_print(&p, choice, sizeof choice);
        const size_t length = strlen(choice);
        snprintf(choice + length, sizeof choice - length, " %s@%s\n", row_name, names[found]);
        sl_plan *plan = plan_of(text, choice);
        CHECK(plan->steps[0].problem.cut == p.cut && plan->steps[0].kernel == row);
        CHECK(strcmp(sl_plan_choices(plan), choice) == 0);
        sl_plan_free(plan);
    }
    sl_plan_free(predicted);
    return found;
}

TEST(cuda_persist_cuts_are_named_and_chosen) {
    static const char *const problems[] = {"lstm:b64_t100_i256_h512_bf16_train", "gru:b16_t50_i128_h256_tf32_train",
                                           "lstm:b32_t100_i1024_h1024_f16_train", "rnn:b8_t20_i64_h300_f32_bi_train",
                                           "lstm:b256_t150_i128_h128_f32_train"};
    int grids = 0, clusters = 0;
    for (size_t k = 0; k < sizeof problems / sizeof *problems; k++)
        for (int backward = 0; backward < 2; backward++) {
            grids += check_pass(problems[k], "cuda:grid", backward);
            clusters += check_pass(problems[k], "cuda:cluster", backward);
        }
    CHECK(grids > 20 && clusters > 16);
    CHECK(check_pass("lstm:b64_t100_i256_h512_bf16", "cuda:grid", false) == SLI_CUTS);
    CHECK(check_pass("lstm:b64_t100_i256_h512_bf16", "cuda:grid", true) == 1); /* inference: backward has none */
}
