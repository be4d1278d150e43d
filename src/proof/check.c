/* `sluice check PROBLEM`: every eligible kernel against the double reference, then the reference's gradients against central
 * differences. */
#include <stdio.h>

#include "proof/differences.h"
#include "proof/parity.h"
#include "proof/problem_model.h"
#include "proof/rows.h"

/* FLOPs spent on central differences: about a second of the reference kernels. */
#define DIFFERENCE_BUDGET 3e8

typedef struct check {
    sli_problem problem;
    sl_plan_options options;
    sl_model *model;
    sli_subject *subject;
    sl_plan *plan; /* as the caller's options have it, for the rows */
    sli_report report;
} check;

/* The kernel that computes the problem where the planner chooses. */
static const char *chosen_kernel(const check *c) {
    if (c->problem.op == SLI_OP_NORM) return c->plan->norm->name;
    if (c->problem.op == SLI_OP_OPTIM) return c->plan->optimizer->name;
    for (int k = 0; k < c->plan->step_count; k++)
        if (c->plan->steps[k].problem.op == c->problem.op) return c->plan->steps[k].kernel->name;
    return "?";
}

static sl_status check_rows(check *c) {
    sli_row rows[SLI_ROWS_MAX];
    int count = sli_rows_of(c->plan, c->problem.op, c->options.require, rows);
    for (int k = 0; k < count; k++) {
        sl_plan_options options = c->options;
        options.require = rows[k].kernel->name;
        if (rows[k].refusal)
            sli_report_note(&c->report, rows[k].kernel->name, "refused: %s", rows[k].refusal);
        else
            SLI_TRY(sli_check_parity(c->subject, &options, rows[k].kernel->name, false, &c->report));
    }
    return SL_OK;
}

static sl_status check_problem(check *c, uint64_t seed) {
    bool recurrent = sli_op_is_recurrent(c->problem.op);
    bool updates = c->problem.op == SLI_OP_NORM || c->problem.op == SLI_OP_OPTIM;
    SLI_TRY(sli_problem_model(c->options.allocator, &c->problem, true, &c->model, &c->options));
    c->options.batch_major = 0;
    c->options.input_gradients = c->options.train && !updates;
    SLI_TRY(sl_plan_new(c->model, &c->options, &c->plan));
    SLI_TRY(sli_subject_new(c->model, &c->options, c->problem.mask, seed, &c->subject));
    if (recurrent)
        SLI_TRY(check_rows(c));
    else
        SLI_TRY(sli_check_parity(c->subject, &c->options, chosen_kernel(c), updates, &c->report));
    return c->options.train ? sli_check_differences(c->subject, DIFFERENCE_BUDGET, &c->report) : SL_OK;
}

sl_status sl_check_problem(const char *problem, const sl_plan_options *options, uint64_t seed,
                           void (*line)(void *context, const char *text), void *context) {
    check c = {.report = {.line = line, .context = context}};
    SLI_FAIL_IF(!problem, SL_ERR_USAGE, "sl_check_problem: problem is NULL; pass a problem string");
    SLI_TRY(sli_problem_parse(problem, &c.problem));
    if (options) c.options = *options;
    sl_status status = check_problem(&c, seed);
    sli_subject_free(c.subject);
    sl_plan_free(c.plan);
    sl_model_free(c.model);
    SLI_TRY(status);
    SLI_FAIL_IF(c.report.failures > 0, SL_ERR_CHECK,
                "%d of %d findings failed, the first is %s; repeat with: sluice check '%s' --seed %llu",
                c.report.failures, c.report.findings, c.report.first, problem, (unsigned long long)seed);
    return SL_OK;
}
