/* Choosing kernels: every row of the op is asked, every refusal is kept as text. */
#include "core/plan.h"

#include <stdio.h>
#include <string.h>

bool sli_kernel_matches(const char *require, const char *kernel_name) {
    size_t length = strlen(require);
    if (strcmp(require, "fused") == 0) {
        size_t name = strlen(kernel_name);
        bool step = name >= 5 && strcmp(kernel_name + name - 5, ":step") == 0;
        return strcmp(kernel_name, "ref") != 0 && !step && strncmp(kernel_name, "cudnn:", 6) != 0;
    }
    if (length > 0 && require[length - 1] == ':') return strncmp(kernel_name, require, length) == 0;
    return strcmp(kernel_name, require) == 0;
}

static sl_status add_refusal(sl_plan *plan, sli_refusal ***tail, const sli_kernel *kernel, const char *problem,
                             const char *reason) {
    sli_refusal *refusal = sli_arena_alloc(&plan->arena, sizeof *refusal);
    char *text = sli_arena_string(&plan->arena, reason);
    if (!refusal || !text) return sli_fail_memory("the plan's reasons", sizeof *refusal);
    *refusal = (sli_refusal){kernel, problem, text, NULL};
    **tail = refusal;
    *tail = &refusal->next;
    return SL_OK;
}

static sl_status fail_without_kernel(const sl_plan *plan, const char *text, const char *where, const char *require,
                                     const sli_refusal *refusals) {
    char reasons[600] = "";
    size_t used = 0;
    for (const sli_refusal *r = refusals; r && used < sizeof reasons; r = r->next)
        used += (size_t)snprintf(reasons + used, sizeof reasons - used, "%s%s: %s", used ? "; " : "", r->kernel->name,
                                 r->reason);
    if (!refusals)
        snprintf(reasons, sizeof reasons, "this build has no %s rows",
                 plan->caps.kind == SLI_DEVICE_CUDA ? "CUDA" : plan->ops->name);
    sl_status status = !refusals && plan->caps.kind == SLI_DEVICE_CUDA ? SL_ERR_DEVICE : SL_ERR_NO_KERNEL;
    if (require)
        return sli_fail(
            status, "%s: no kernel satisfies --require %s for %s on %s (%s); drop the requirement or change the layer",
            where, require, text, plan->caps.name, reasons);
    return sli_fail(status, "%s: no kernel computes %s on %s (%s); choose another device or dtype", where, text,
                    plan->caps.name, reasons);
}

sl_status sli_plan_choose(sl_plan *plan, const sli_problem *problem, const char *where, const sli_kernel **kernel,
                          sli_refusal **refusals) {
    const char *require = sli_op_is_recurrent(problem->op) ? plan->options.require : NULL;
    char text[SLI_PROBLEM_TEXT];
    sli_problem_print(problem, text, sizeof text);
    const char *kept = sli_arena_string(&plan->arena, text);
    if (!kept) return sli_fail_memory("the plan's reasons", sizeof text);
    *refusals = NULL;
    *kernel = NULL;
    sli_refusal **tail = refusals;
    for (const sli_kernel *const *row = sli_registry_get()->kernels; *row; row++) {
        if ((*row)->op != problem->op || (*row)->device != plan->caps.kind) continue;
        sli_why why = {""};
        if (require && !sli_kernel_matches(require, (*row)->name))
            sli_refuse(&why, "not %s", require);
        else if ((*row)->eligible(problem, &plan->caps, &why)) {
            if (!*kernel) *kernel = *row;
            continue;
        }
        SLI_TRY(add_refusal(plan, &tail, *row, kept, why.text));
    }
    return *kernel ? SL_OK : fail_without_kernel(plan, text, where, require, *refusals);
}
