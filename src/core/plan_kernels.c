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

bool sli_is_step_engine(const char *kernel_name) {
    const size_t name = strlen(kernel_name);
    return name >= 5 && strcmp(kernel_name + name - 5, ":step") == 0;
}

bool sli_kernel_matches(const char *require, const char *kernel_name) {
    size_t length = strlen(require);
    if (strcmp(require, "fused") == 0)
        return strcmp(kernel_name, "ref") != 0 && !sli_is_step_engine(kernel_name) &&
               strncmp(kernel_name, "cudnn:", 6) != 0;
    if (length > 0 && require[length - 1] == ':') return strncmp(kernel_name, require, length) == 0;
    return strcmp(kernel_name, require) == 0;
}

bool sli_kernel_takes(const sli_kernel *kernel, const sli_problem *problem, const sli_caps *caps, sli_why *why) {
    NEED(!problem->recompute || kernel->takes_recompute,
         "keeps the gates of every step for backward, it does not recompute them");
    NEED(!problem->narrow || kernel->takes_narrow, "its parameters and their gradients are f32, not of 16 bits");
    NEED(!problem->narrow_io || kernel->takes_narrow_io, "its inputs and outputs are f32, not of 16 bits");
    /* In a group of its own it would be left whole, and others be cut; where that is not enough there is no plan. */
    NEED(!problem->narrow || !problem->train || !caps->recomputes,
         "would round the gradients of parameters, of 16 bits, once a segment");
    return kernel->eligible(problem, caps, why);
}

static sl_status add_refusal(sl_plan *plan, sli_refusal ***tail, const sli_refusal *new) {
    sli_refusal *refusal = sli_arena_alloc(&plan->arena, sizeof *refusal);
    char *text = sli_arena_string(&plan->arena, new->reason);
    if (!refusal || !text) return sli_fail_memory("the plan's reasons", sizeof *refusal);
    *refusal = *new;
    refusal->reason = text;
    **tail = refusal;
    *tail = &refusal->next;
    return SL_OK;
}

static bool names_one(const char *require, const sli_refusal *rows) {
    for (; rows; rows = rows->next)
        if (sli_kernel_matches(require, rows->kernel->name)) return true;
    return false;
}

/* No row of the device has the name, whatever the layer is: it is one of the other device, or of none. */
static sl_status fail_by_name(const sl_plan *plan, const char *where, const char *require, const sli_refusal *rows) {
    const char *device = plan->caps.name;
    const bool of_gpu = strncmp(require, "cuda:", 5) == 0 || strncmp(require, "cudnn:", 6) == 0;
    const bool of_cpu = strncmp(require, "cpu:", 4) == 0 || strcmp(require, "ref") == 0;
    if (of_gpu && plan->caps.kind != SLI_DEVICE_CUDA) {
        char why[512] = "";
        const bool chosen = sli_plan_why_cpu(plan, why, sizeof why);
        return sli_fail(SL_ERR_NO_KERNEL,
                        "%s: --require %s is of a GPU, and the plan is for %s%s%s%s; give --device cuda:0, or another "
                        "requirement",
                        where, require, device, chosen ? " (device auto: " : "", why, chosen ? ")" : "");
    }
    if (of_cpu && plan->caps.kind == SLI_DEVICE_CUDA)
        return sli_fail(SL_ERR_NO_KERNEL,
                        "%s: --require %s is of the CPU, and the plan is for %s; give --device cpu, or another "
                        "requirement",
                        where, require, device);
    char names[400] = "";
    size_t used = 0;
    for (const sli_refusal *r = rows; r && used < sizeof names; r = r->next)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", r->kernel->name);
    return sli_fail(SL_ERR_NO_KERNEL,
                    "%s: no kernel is called %s that computes %s on %s; there are %s, and the word fused for the "
                    "fast ones: name one of these",
                    where, require, sli_op_name(rows->kernel->op), device, names);
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
    if (require && refusals && !names_one(require, refusals)) return fail_by_name(plan, where, require, refusals);
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

static const char *bits_of(const sli_kernel *kernel) {
    return kernel->bits_of ? kernel->bits_of : kernel->name;
}

/* Predictions may prefer one to the other: see sli_kernel.seconds. */
static bool are_compared(const sli_kernel *a, const sli_kernel *b) {
    return a->device != SLI_DEVICE_CPU || strcmp(bits_of(a), bits_of(b)) == 0;
}

/* The least predicted time among those that predict one; else the first in order. */
static int best_of(const candidate *candidates, int count) {
    int best = 0;
    for (int k = 1; k < count; k++)
        if (candidates[k].seconds >= 0 && candidates[best].seconds >= 0 &&
            are_compared(candidates[k].kernel, candidates[best].kernel) &&
            candidates[k].seconds < candidates[best].seconds)
            best = k;
    return best;
}

/* `chosen`: the best is what the choices name. */
static sl_status add_slower(sl_plan *plan, sli_refusal ***tail, const char *problem, const candidate *candidates,
                            int count, int best, bool chosen) {
    for (int k = 0; k < count; k++) {
        char reason[224];
        bool known = candidates[k].seconds >= 0 && candidates[best].seconds >= 0;
        if (k == best || (!known && !chosen)) continue;
        const char *name = candidates[best].kernel->name;
        int used = chosen ? snprintf(reason, sizeof reason, "the choices name %s%s", name, known ? "; " : "") : 0;
        const bool faster = known && !chosen && candidates[k].seconds < candidates[best].seconds;
        if (known)
            snprintf(reason + used, sizeof reason - (size_t)used, "predicted %.4g us a call, %s %.4g us%s",
                     1e6 * candidates[k].seconds, name, 1e6 * candidates[best].seconds,
                     faster ? "; its bits are others, and the number of threads is to change none" : "");
        sli_refusal slower = {.kernel = candidates[k].kernel,
                              .problem = problem,
                              .reason = reason,
                              .slower = true,
                              .passed = chosen || faster};
        SLI_TRY(add_refusal(plan, tail, &slower));
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
         "sums gradients over the whole sequence, and in segments, which a plan for this memory limit may have, bits "
         "would be others");
    return true;
}

static const char *required(const sl_plan *plan, const sli_problem *problem) {
    return sli_op_is_recurrent(problem->op) ? plan->options.require : NULL;
}

static bool may_take(const sl_plan *plan, const sli_kernel *row, const sli_problem *problem, sli_why *why) {
    const char *require = required(plan, problem);
    NEED(!require || sli_kernel_matches(require, row->name), "not %s", require);
    NEED(plan->lean < SLI_LEAN_STEP || !sli_op_is_recurrent(problem->op) || sli_is_step_engine(row->name),
         "no plan with it fits the memory limit; step by step one does");
    const char *unready = sli_plan_unready(plan, row, problem);
    NEED(!unready, "%s", unready);
    return is_exact(plan, row, problem, why) && sli_kernel_takes(row, problem, &plan->caps, why);
}

int sli_plan_candidates(const sl_plan *plan, const sli_problem *problem,
                        const sli_kernel *candidates[SLI_PLAN_CANDIDATES]) {
    int count = 0;
    for (const sli_kernel *const *row = sli_registry_get()->kernels; *row && count < SLI_PLAN_CANDIDATES; row++) {
        sli_why why;
        if (sli_kernel_serves(*row, problem->op, &plan->caps) && may_take(plan, *row, problem, &why))
            candidates[count++] = *row;
    }
    return count;
}

/* The candidate that the choices name; -1: they name none that could be taken, and remember why. */
static int named_by(sl_plan *plan, sli_choice *choice, const sli_problem *problem, const candidate *candidates,
                    int count, const sli_refusal *refusals) {
    for (int k = 0; k < count; k++) {
        choice->obeyed = sli_choice_names(plan, choice, candidates[k].kernel, problem);
        if (choice->obeyed) return k;
    }
    for (; refusals && !choice->reason; refusals = refusals->next)
        if (sli_choice_is_of(choice, refusals->kernel)) choice->reason = refusals->reason;
    if (!choice->reason) choice->reason = sli_arena_format(&plan->arena, "%s has no such row for it", plan->caps.name);
    return -1;
}

sl_status sli_plan_choose_among(sl_plan *plan, const sli_kernel *const *rows, const sli_problem *problem,
                                const char *where, const sli_kernel **kernel, sli_refusal **refusals) {
    char text[SLI_PROBLEM_TEXT];
    sli_problem_print(problem, text, sizeof text);
    const char *kept = sli_arena_string(&plan->arena, text);
    if (!kept) return sli_fail_memory("the plan's reasons", sizeof text);
    candidate candidates[SLI_PLAN_CANDIDATES];
    int count = 0;
    *refusals = NULL;
    *kernel = NULL;
    sli_refusal **tail = refusals;
    sli_choice *choice = sli_choice_for(plan, kept);
    if (choice && sli_choice_is_parts(choice) && sli_problem_parts(problem) > 1)
        return sli_fail(SL_ERR_NO_KERNEL, "%s: the choices take %s in parts", where, text);
    for (const sli_kernel *const *row = rows; *row; row++) {
        if (!sli_kernel_serves(*row, problem->op, &plan->caps)) continue;
        sli_why why = {""};
        if (may_take(plan, *row, problem, &why)) {
            if (count < SLI_PLAN_CANDIDATES)
                candidates[count++] = (candidate){*row, sli_kernel_seconds(*row, problem, &plan->caps)};
            continue;
        }
        SLI_TRY(add_refusal(plan, &tail, &(sli_refusal){.kernel = *row, .problem = kept, .reason = why.text}));
    }
    int named = choice ? named_by(plan, choice, problem, candidates, count, *refusals) : -1;
    if (count == 0) return fail_without_kernel(plan, text, where, required(plan, problem), *refusals);
    int best = named >= 0 ? named : best_of(candidates, count);
    *kernel = candidates[best].kernel;
    return add_slower(plan, &tail, kept, candidates, count, best, named >= 0);
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
    sli_refusal new = {.kernel = kernel, .problem = kept, .reason = reason, .slower = slower};
    SLI_TRY(add_refusal(plan, &tail, &new));
    append(&plan->offers, refusal);
    return SL_OK;
}

sl_status sli_plan_offer(sl_plan *plan, const sli_kernel *const *rows, const sli_problem *problem, double parts,
                         bool *taken) {
    const sli_kernel *kernel = NULL;
    sli_refusal *refusals = NULL;
    *taken = false;
    char text[SLI_PROBLEM_TEXT];
    sli_problem_print(problem, text, sizeof text);
    sli_choice *choice = sli_choice_for(plan, text);
    if (choice && sli_choice_is_parts(choice)) {
        choice->obeyed = true;
        return sli_plan_keep_out(plan, NULL, problem, "the choices take its layers and directions one by one", false);
    }
    sl_status status = sli_plan_choose_among(plan, rows, problem, "", &kernel, &refusals);
    double seconds = kernel ? sli_kernel_seconds(kernel, problem, &plan->caps) : -1;
    bool named = choice && choice->obeyed;
    bool compared = kernel && (kernel->device != SLI_DEVICE_CPU || kernel->bits_of);
    if (status == SL_OK && (named || !compared || seconds < 0 || parts < 0 || seconds <= parts)) {
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
