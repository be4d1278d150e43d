/* What the planner takes for a GPU that need not be there. */
#ifndef TEST_CUDA_PLANS_H
#define TEST_CUDA_PLANS_H

#include "core/plan.h"
#include "test.h"

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
