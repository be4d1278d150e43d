/* The kernel rows of a problem: a row is refused if it was for any step of the op, in each form that the step can have. */
#include "proof/rows.h"

#include <string.h>

/* Why `kernel` does not compute what `refusals` belong to; NULL: it can, though another may be faster. */
static const char *refusal_in(const sli_refusal *refusals, const sli_kernel *kernel, const char *problem) {
    for (; refusals; refusals = refusals->next)
        if (refusals->kernel == kernel && !refusals->slower && (!problem || strcmp(refusals->problem, problem) == 0))
            return refusals->reason;
    return NULL;
}

/* A row that was offered a wide problem and could have taken it. */
static bool takes_an_offer(const sl_plan *plan, const sli_kernel *kernel) {
    for (const sli_refusal *offer = plan->offers; offer; offer = offer->next)
        if (offer->kernel && offer->kernel->op == kernel->op && !refusal_in(plan->offers, kernel, offer->problem))
            return true;
    return false;
}

/* A row that takes the layers and directions of a wide step one by one, or layer by layer. */
static bool takes_parts(const sl_plan *plan, const sli_problem *wide, const sli_kernel *kernel) {
    sli_why why;
    bool apart = true, layers = true;
    for (int l = 0; l < wide->layers; l++) {
        sli_problem layer = sli_problem_part(wide, l, -1);
        layers &= sli_kernel_takes(kernel, &layer, &plan->caps, &why);
        for (int d = 0; d < sli_problem_directions(wide); d++) {
            sli_problem part = sli_problem_part(wide, l, d);
            apart &= sli_kernel_takes(kernel, &part, &plan->caps, &why);
        }
    }
    return apart || layers;
}

static const char *refusal_of(const sl_plan *plan, const sli_kernel *kernel) {
    for (int k = 0; k < plan->step_count; k++) {
        const sli_step *step = &plan->steps[k];
        const char *reason = step->problem.op == kernel->op ? refusal_in(step->refusals, kernel, NULL) : NULL;
        bool wide = sli_problem_parts(&step->problem) > 1;
        if (!reason || (wide ? takes_parts(plan, &step->problem, kernel) : takes_an_offer(plan, kernel))) continue;
        return reason;
    }
    return NULL;
}

int sli_rows_of(const sl_plan *plan, sli_op op, const char *require, sli_row rows[SLI_ROWS_MAX]) {
    int count = 0;
    for (const sli_kernel *const *row = sli_registry_get()->kernels; *row && count < SLI_ROWS_MAX; row++) {
        if (!sli_kernel_serves(*row, op, &plan->caps)) continue;
        if (require && !sli_kernel_matches(require, (*row)->name)) continue;
        rows[count++] = (sli_row){*row, refusal_of(plan, *row)};
    }
    return count;
}

sl_status sli_row_refusal(const sl_model *model, const sl_plan_options *options, const sli_row *row,
                          const char **refusal) {
    sl_plan *plan;
    *refusal = NULL;
    sl_status status = sli_plan_new(model, options, NULL, &plan);
    if (status == SL_ERR_NO_KERNEL) {
        *refusal = row->refusal ? row->refusal : sl_error_detail();
        return SL_OK;
    }
    SLI_TRY(status);
    sl_plan_free(plan);
    return SL_OK;
}
