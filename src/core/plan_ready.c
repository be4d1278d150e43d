/* What rows need beyond memory, asked for once a plan has taken them: sli_kernel.ready. */
#include <string.h>

#include "core/plan.h"

const char *sli_plan_unready(const sl_plan *plan, const sli_kernel *row, const sli_problem *problem) {
    char text[SLI_PROBLEM_TEXT];
    if (plan->unready) sli_problem_print(problem, text, sizeof text);
    for (const sli_refusal *r = plan->unready; r; r = r->next)
        if (r->kernel == row && strcmp(r->problem, text) == 0) return r->reason;
    return NULL;
}

static bool has_gradient(const sl_plan *plan, int tensor) {
    return tensor >= 0 && plan->tensors[tensor].has_gradient;
}

/* As src/core/run_steps.c calls the row: segments hand each other gradients of states. */
static sli_calls expected_of(const sl_plan *plan, const sli_step *step, bool segmented) {
    const int y = step->emit.out[SLI_RNN_Y], back = step->emit.out[SLI_RNN_Y_BACK];
    sli_calls calls = {.chunk = plan->chunk,
                       .backward = step->backward,
                       .y = y >= 0 || back >= 0,
                       .dy = has_gradient(plan, y) || has_gradient(plan, back)};
    for (int s = 0; s < step->emit.state_count; s++) {
        const sli_state *state = &plan->states[step->states[s]];
        calls.d_states |= segmented || !step->kernel->null_states || has_gradient(plan, state->initial);
    }
    return calls;
}

sl_status sli_plan_leave_out(sl_plan *plan, const sli_step *step, const char *reason) {
    sli_refusal *refusal = sli_arena_alloc(&plan->arena, sizeof *refusal);
    char *text = sli_arena_string(&plan->arena, reason);
    if (!refusal || !text) return sli_fail_memory("the plan's reasons", sizeof *refusal);
    *refusal = (sli_refusal){.kernel = step->kernel, .problem = step->text, .reason = text, .next = plan->unready};
    plan->unready = refusal;
    return SL_OK;
}

sl_status sli_plan_ready(sl_plan *plan, bool *all) {
    *all = true;
    for (int i = 0; i < plan->step_count && !plan->caps.invented; i++) {
        const sli_step *step = &plan->steps[i];
        if (!step->kernel->ready || sli_plan_unready(plan, step->kernel, &step->problem)) continue;
        const bool segmented = sli_plan_is_segmented(plan, &plan->groups[step->group]);
        const sli_calls calls = expected_of(plan, step, segmented);
        sli_problem problem = step->problem;
        if (segmented) problem.steps = plan->segment_steps;
        bool refused = false;
        sli_why why = {""};
        SLI_TRY(step->kernel->ready(&problem, &plan->caps, &calls, &refused, &why));
        if (!refused) continue;
        *all = false;
        SLI_TRY(sli_plan_leave_out(plan, step, why.text));
    }
    return SL_OK;
}
