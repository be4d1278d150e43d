/* The kernel rows of a problem: a row is refused if it was for any step of the op. */
#include "proof/rows.h"

static const char *refusal_in(const sli_refusal *refusals, const sli_kernel *kernel) {
    for (; refusals; refusals = refusals->next)
        if (refusals->kernel == kernel) return refusals->reason;
    return NULL;
}

static const char *refusal_of(const sl_plan *plan, const sli_kernel *kernel) {
    const char *reason = NULL;
    for (int k = 0; k < plan->step_count && !reason; k++)
        if (plan->steps[k].problem.op == kernel->op) reason = refusal_in(plan->steps[k].refusals, kernel);
    return reason;
}

int sli_rows_of(const sl_plan *plan, sli_op op, const char *require, sli_row rows[SLI_ROWS_MAX]) {
    int count = 0;
    for (const sli_kernel *const *row = sli_registry_get()->kernels; *row && count < SLI_ROWS_MAX; row++) {
        if ((*row)->op != op || (*row)->device != plan->caps.kind) continue;
        if (require && !sli_kernel_matches(require, (*row)->name)) continue;
        rows[count++] = (sli_row){*row, refusal_of(plan, *row)};
    }
    return count;
}

sl_status sli_row_refusal(const sl_model *model, const sl_plan_options *options, const sli_row *row,
                          const char **refusal) {
    sl_plan *plan;
    *refusal = NULL;
    sl_status status = sl_plan_new(model, options, &plan);
    if (status == SL_ERR_NO_KERNEL) {
        *refusal = row->refusal ? row->refusal : sl_error_detail();
        return SL_OK;
    }
    SLI_TRY(status);
    sl_plan_free(plan);
    return SL_OK;
}
