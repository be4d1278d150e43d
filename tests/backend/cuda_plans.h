/* What the planner takes for a GPU that need not be there. */
#ifndef TEST_CUDA_PLANS_H
#define TEST_CUDA_PLANS_H

#include "backend/cuda/cuda.h"
#include "core/plan.h"
#include "cuda_caps.h"
#include "problem_text.h"
#include "test.h"

/* The rows of that name are there for all three recurrent ops, with what a row of stacks has. */
static inline void cuda_check_registered(const char *name, const sli_kernel *(*row_of)(const sli_problem *)) {
    static const char *const texts[] = {"lstm:l2_b1_t2_i3_h4", "gru:l2_b1_t2_i3_h4", "rnn:l2_b1_t2_i3_h4"};
    for (int i = 0; i < 3; i++) {
        const sli_problem p = problem(texts[i]);
        const sli_kernel *row = row_of(&p);
        bool found = false;
        for (const sli_kernel *const *k = sli_cuda_kernels; *k; k++) found |= *k == row;
        CHECK(found && row->op == p.op && row->device == SLI_DEVICE_CUDA && strcmp(row->name, name) == 0);
        CHECK(row->seconds && row->book && row->pack);
    }
}

/* What a row of stacks takes, and with which words it refuses the rest. */
typedef struct cuda_case {
    const char *text, *refusal; /* NULL: taken */
} cuda_case;
static inline void cuda_check_cases(const cuda_case *cases, size_t count,
                                    const sli_kernel *(*row_of)(const sli_problem *)) {
    const sli_caps caps = invented(90), ampere = invented(80);
    for (size_t i = 0; i < count; i++) {
        const sli_problem p = problem(cases[i].text);
        sli_why why = {""};
        const bool taken = row_of(&p)->eligible(&p, &caps, &why);
        if (taken != !cases[i].refusal || (cases[i].refusal && !strstr(why.text, cases[i].refusal)))
            test_fail(__FILE__, __LINE__, "%s: \"%s\"", cases[i].text, why.text);
        if (!taken) continue;
        CHECK(!row_of(&p)->eligible(&p, &ampere, &why));
        CHECK(strstr(why.text, "sm_80") != NULL);
    }
}

/* What a row of stacks predicts over ms that were measured. */
typedef struct cuda_time {
    const char *text;
    double ms;
} cuda_time;
static inline void cuda_check_seconds(const cuda_time *cases, size_t count,
                                      const sli_kernel *(*row_of)(const sli_problem *), double least, double most) {
    const sli_caps caps = invented(90);
    for (size_t i = 0; i < count; i++) {
        const sli_problem p = problem(cases[i].text);
        const double part = 1e3 * row_of(&p)->seconds(&p, &caps) / cases[i].ms;
        if (part < least || part > most) test_fail(__FILE__, __LINE__, "%s: %.3f", cases[i].text, part);
    }
}

/* The row of the first recurrent step, and whether it computes all layers. */
static inline void cuda_check_plan(const char *text, const char *device, const char *row, bool whole) {
    sl_model *model;
    sl_plan *plan;
    sl_plan_options options = {.device = device};
    REQUIRE_OK(sl_model_from_problem(NULL, text, &model, &options));
    options.device = device;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    const sli_step *first = NULL;
    for (int i = 0; i < plan->step_count && !first; i++)
        if (sli_op_is_recurrent(plan->steps[i].problem.op)) first = &plan->steps[i];
    REQUIRE(first != NULL);
    if (strcmp(first->kernel->name, row) != 0 || (first->problem.layers > 1) != whole)
        test_fail(__FILE__, __LINE__, "%s on %s:\n%s", text, device, sl_plan_explain(plan));
    sl_plan_free(plan);
    sl_model_free(model);
}

#endif
