/* `sluice check PROBLEM`: every eligible kernel against the double reference, then the reference's gradients against central
 * differences. */
#include <math.h>
#include <string.h>

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

/* A kernel that fails to compute is a finding; a device that is gone ends the proof. */
static sl_status check_parity(check *c, const sl_plan_options *options, const char *kernel, bool updates) {
    sl_status status = sli_check_parity(c->subject, options, kernel, updates, &c->report);
    if (status == SL_OK || status == SL_ERR_DEVICE || status == SL_ERR_OUT_OF_MEMORY) return status;
    sli_report_add(&c->report, kernel, HUGE_VAL, 0, "%s: %.120s", sl_status_text(status), sl_error_detail());
    sli_clear_error();
    return SL_OK;
}

static sl_status check_rows(check *c) {
    sli_row rows[SLI_ROWS_MAX];
    int count = sli_rows_of(c->plan, c->problem.op, c->options.require, rows);
    for (int k = 0; k < count; k++) {
        const char *kernel = rows[k].kernel->name, *refusal;
        sl_plan_options options = c->options;
        options.require = kernel;
        SLI_TRY(sli_row_refusal(c->model, &options, &rows[k], &refusal));
        if (refusal)
            sli_report_note(&c->report, kernel, "refused: %s", refusal);
        else
            SLI_TRY(check_parity(c, &options, kernel, false));
    }
    return SL_OK;
}

static sl_status check_problem(check *c, uint64_t seed) {
    bool recurrent = sli_op_is_recurrent(c->problem.op);
    bool updates = c->problem.op == SLI_OP_NORM || c->problem.op == SLI_OP_OPTIM;
    const bool states =
        seed % 2 != 0; /* of an even seed none enter, and in training none leave: nobody wants their gradients */
    SLI_TRY(sli_problem_model(c->options.allocator, &c->problem, states, &c->model, &c->options));
    if (recurrent && !states && c->options.train) SLI_TRY(sli_problem_leave_states(c->model, &c->problem));
    c->options.batch_major = 0;
    c->options.input_gradients = c->options.train && !updates;
    SLI_TRY(sli_plan_new(c->model, &c->options, NULL, &c->plan));
    SLI_TRY(sli_subject_new(c->model, &c->options, c->problem.mask, seed, &c->subject));
    if (recurrent)
        SLI_TRY(check_rows(c));
    else
        SLI_TRY(check_parity(c, &c->options, chosen_kernel(c), updates));
    /* Differences concern the reference alone: once, on the CPU, is enough. */
    bool differences = c->options.train && c->plan->caps.kind == SLI_DEVICE_CPU;
    return differences ? sli_check_differences(c->subject, DIFFERENCE_BUDGET, &c->report) : SL_OK;
}

/* "sluice check 'PROBLEM' --seed 1 --device cuda:0": the problem holds precision and recomputed gates. */
static void repeat_text(const check *c, uint64_t seed, sli_text *text) {
    const sl_plan_options *o = &c->options;
    char problem[SLI_PROBLEM_TEXT];
    sli_problem_print(&c->problem, problem, sizeof problem);
    sli_text_printf(text, "sluice check '%s' --seed %llu", problem, (unsigned long long)seed);
    if (o->device && strcmp(o->device, "cpu") != 0) sli_text_printf(text, " --device %s", o->device);
    if (o->require) sli_text_printf(text, " --require %s", o->require);
    if (o->threads) sli_text_printf(text, " --threads %d", o->threads);
    if (o->memory_limit) sli_text_printf(text, " --memory-limit %zu", o->memory_limit);
    if (o->no_graph) sli_text_printf(text, " --no-graph");
}

static sl_status check_text(const char *problem, const sl_plan_options *options, uint64_t seed,
                            const sli_report *report) {
    check c = {.report = *report};
    SLI_TRY(sli_problem_parse(problem, &c.problem));
    if (options) c.options = *options;
    if (c.options.dtype != SL_DTYPE_DEFAULT) c.problem.dtype = c.options.dtype;
    if (c.options.recompute_gates) c.problem.recompute = c.problem.train && sli_op_is_recurrent(c.problem.op);
    sl_status status = check_problem(&c, seed);
    sli_subject_free(c.subject);
    sl_plan_free(c.plan);
    sl_model_free(c.model);
    SLI_TRY(status);
    if (c.report.failures == 0) return SL_OK;
    sli_text repeat;
    sli_text_init(&repeat, c.options.allocator);
    repeat_text(&c, seed, &repeat);
    status = sli_fail(SL_ERR_CHECK, "%d of %d findings failed, the first is %s; repeat with: %s", c.report.failures,
                      c.report.findings, c.report.first, repeat.data ? repeat.data : "sluice check");
    sli_text_free(&repeat);
    return status;
}

sl_status sl_check_problem(const char *problem, const sl_plan_options *options, uint64_t seed,
                           void (*line)(void *context, const char *text), void *context) {
    sli_report report = {.line = line, .context = context};
    SLI_FAIL_IF(!problem, SL_ERR_USAGE, "sl_check_problem: problem is NULL; pass a problem string");
    return check_text(problem, options, seed, &report);
}

sl_status sl_check_findings(const char *problem, const sl_plan_options *options, uint64_t seed,
                            void (*finding)(void *context, const sl_finding *finding), void *context) {
    sli_report report = {.finding = finding, .context = context};
    SLI_FAIL_IF(!problem, SL_ERR_USAGE, "sl_check_findings: problem is NULL; pass a problem string");
    return check_text(problem, options, seed, &report);
}
