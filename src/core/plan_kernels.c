/* Choosing kernels: every row of the op is asked, every refusal is kept as text. */
#include "core/plan.h"

#include <stdio.h>
#include <string.h>

bool sli_kernel_serves(const sli_kernel *kernel, sli_op op, const sli_caps *caps) {
    return kernel->op == op && kernel->device == caps->kind && (!kernel->only || strcmp(kernel->only, caps->name) == 0);
}

double sli_kernel_seconds(const sli_kernel *kernel, const sli_problem *problem, const sli_caps *caps) {
    double seconds = kernel->seconds ? kernel->seconds(problem, caps) : -1;
    return seconds >= 0 ? seconds : -1; /* NaN too */
}

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
                             const char *reason, bool slower) {
    sli_refusal *refusal = sli_arena_alloc(&plan->arena, sizeof *refusal);
    char *text = sli_arena_string(&plan->arena, reason);
    if (!refusal || !text) return sli_fail_memory("the plan's reasons", sizeof *refusal);
    *refusal = (sli_refusal){.kernel = kernel, .problem = problem, .reason = text, .slower = slower};
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

/* Rows that take the problem. */
typedef struct candidate {
    const sli_kernel *kernel;
    double seconds;
} candidate;
enum { MAX_CANDIDATES = 32 };

/* The least predicted time among those that predict one; else the first in order. */
static int best_of(const candidate *candidates, int count) {
    int best = 0;
    for (int k = 1; k < count; k++)
        if (candidates[k].seconds >= 0 && candidates[best].seconds >= 0 &&
            candidates[k].seconds < candidates[best].seconds)
            best = k;
    return best;
}

static sl_status add_slower(sl_plan *plan, sli_refusal ***tail, const char *problem, const candidate *candidates,
                            int count, int best) {
    for (int k = 0; k < count; k++) {
        char reason[160];
        if (k == best || candidates[k].seconds < 0 || candidates[best].seconds < 0) continue;
        snprintf(reason, sizeof reason, "predicted %.4g us a call, %s %.4g us", 1e6 * candidates[k].seconds,
                 candidates[best].kernel->name, 1e6 * candidates[best].seconds);
        SLI_TRY(add_refusal(plan, tail, candidates[k].kernel, problem, reason, true));
    }
    return SL_OK;
}

/* Rows that are eligible but not quite what was asked for. */
static bool is_exact(const sl_plan *plan, const sli_kernel *row, const sli_problem *problem, sli_why *why) {
    const char *require = plan->options.require;
    if (require && strcmp(require, row->name) == 0) return true;
    NEED(row->f32_error == 0 || problem->dtype != SL_F32,
         "approximates activations to %.0e, f32 asks for more: --require %s takes it", row->f32_error, row->name);
    NEED(!row->whole_sums || !plan->caps.recomputes || !problem->train,
         "sums gradients over the whole sequence: the segments that the memory limit asks for would change bits");
    return true;
}

sl_status sli_plan_choose_among(sl_plan *plan, const sli_kernel *const *rows, const sli_problem *problem,
                                const char *where, const sli_kernel **kernel, sli_refusal **refusals) {
    const char *require = sli_op_is_recurrent(problem->op) ? plan->options.require : NULL;
    char text[SLI_PROBLEM_TEXT];
    sli_problem_print(problem, text, sizeof text);
    const char *kept = sli_arena_string(&plan->arena, text);
    if (!kept) return sli_fail_memory("the plan's reasons", sizeof text);
    candidate candidates[MAX_CANDIDATES];
    int count = 0;
    *refusals = NULL;
    *kernel = NULL;
    sli_refusal **tail = refusals;
    for (const sli_kernel *const *row = rows; *row; row++) {
        if (!sli_kernel_serves(*row, problem->op, &plan->caps)) continue;
        sli_why why = {""};
        if (require && !sli_kernel_matches(require, (*row)->name)) {
            sli_refuse(&why, "not %s", require);
        } else if (is_exact(plan, *row, problem, &why) && (*row)->eligible(problem, &plan->caps, &why)) {
            if (count < MAX_CANDIDATES)
                candidates[count++] = (candidate){*row, sli_kernel_seconds(*row, problem, &plan->caps)};
            continue;
        }
        SLI_TRY(add_refusal(plan, &tail, *row, kept, why.text, false));
    }
    if (count == 0) return fail_without_kernel(plan, text, where, require, *refusals);
    int best = best_of(candidates, count);
    *kernel = candidates[best].kernel;
    return add_slower(plan, &tail, kept, candidates, count, best);
}

sl_status sli_plan_choose(sl_plan *plan, const sli_problem *problem, const char *where, const sli_kernel **kernel,
                          sli_refusal **refusals) {
    return sli_plan_choose_among(plan, sli_registry_get()->kernels, problem, where, kernel, refusals);
}

/* ---------------------------------------------------------------------------------------------------- wide problems -- */
static void append(sli_refusal **list, sli_refusal *refusals) {
    while (*list) list = &(*list)->next;
    *list = refusals;
}

sl_status sli_plan_keep_out(sl_plan *plan, const sli_kernel *kernel, const sli_problem *problem, const char *reason,
                            bool slower) {
    char text[SLI_PROBLEM_TEXT];
    sli_refusal *refusal = NULL, **tail = &refusal;
    sli_problem_print(problem, text, sizeof text);
    const char *kept = sli_arena_string(&plan->arena, text);
    if (!kept) return sli_fail_memory("the plan's reasons", sizeof text);
    SLI_TRY(add_refusal(plan, &tail, kernel, kept, reason, slower));
    append(&plan->offers, refusal);
    return SL_OK;
}

sl_status sli_plan_offer(sl_plan *plan, const sli_kernel *const *rows, const sli_problem *problem, double parts,
                         bool *taken) {
    const sli_kernel *kernel = NULL;
    sli_refusal *refusals = NULL;
    *taken = false;
    sl_status status = sli_plan_choose_among(plan, rows, problem, "", &kernel, &refusals);
    double seconds = kernel ? sli_kernel_seconds(kernel, problem, &plan->caps) : -1;
    if (status == SL_OK && (seconds < 0 || parts < 0 || seconds <= parts)) {
        *taken = true;
        return SL_OK;
    }
    append(&plan->offers, refusals);
    if (status == SL_OK) {
        char reason[160];
        snprintf(reason, sizeof reason, "predicted %.4g us a call, its layers and directions one by one %.4g us",
                 1e6 * seconds, 1e6 * parts);
        return sli_plan_keep_out(plan, kernel, problem, reason, true);
    }
    if (status != SL_ERR_NO_KERNEL && status != SL_ERR_DEVICE) return status;
    sli_clear_error();
    return SL_OK;
}
