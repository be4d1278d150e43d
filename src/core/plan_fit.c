/* Plans that keep a memory limit: what is tried, in order. */
#include <math.h>

#include "core/plan.h"

static bool sees_the_whole(const sl_plan *plan, const sli_step *step) {
    const sli_kernel *row = step->kernel;
    return step->problem.bidirectional || row->whole || (plan->train && row->whole_sums) ||
           (row->folds && row->folds(&step->problem));
}

static bool wants_the_whole(const sl_plan *plan) {
    for (int i = 0; i < plan->step_count; i++)
        if (sees_the_whole(plan, &plan->steps[i])) return true;
    return false;
}

static bool has_wide_steps(const sl_plan *plan) {
    for (int i = 0; i < plan->step_count; i++)
        if (plan->steps[i].problem.layers > 1 || plan->steps[i].problem.bidirectional) return true;
    return false;
}

/* A plan in one segment by rows that need less: how long it is predicted to take, and what it leaves out. */
typedef struct smaller {
    bool found;
    double seconds;
    sli_refusal *unready;
} smaller;

/* Of recurrent layers; of training in segments with the forward pass that is done again. INFINITY: not known. */
static double predicted(const sl_plan *plan) {
    const double again = 4.0 / 3;
    double sum = 0;
    for (int i = 0; i < plan->step_count; i++)
        if (sli_op_is_recurrent(plan->steps[i].problem.op))
            sum += plan->steps[i].seconds >= 0 ? plan->steps[i].seconds : INFINITY;
    return plan->train && plan->segments > 1 ? again * sum : sum;
}

/* Those rows of recurrent layers that might be others: all but the step engine of one direction. */
static sl_status leave_out(sl_plan *plan, bool *any) {
    *any = false;
    for (int i = 0; i < plan->step_count; i++) {
        const sli_step *step = &plan->steps[i];
        if (!sli_op_is_recurrent(step->problem.op)) continue;
        if (sli_is_step_engine(step->kernel->name) && !sees_the_whole(plan, step)) continue;
        *any = true;
        SLI_TRY(sli_plan_leave_out(plan, step, "in one segment the plan with it was over the memory limit"));
    }
    return SL_OK;
}

/* The rows that were taken are left out, then those that come in their place, until what is taken fits in one segment. On GPUs: on CPUs predictions may
 * not decide between rows of other bits. */
static sl_status find_smaller(sl_plan *plan, const sl_model *model, smaller *found) {
    enum { MOST = 8 };
    sli_refusal *const before = plan->unready;
    bool any = plan->caps.kind == SLI_DEVICE_CUDA;
    for (int tries = 0; tries < MOST && any && !found->found; tries++) {
        SLI_TRY(leave_out(plan, &any));
        const sl_status status = any ? sli_plan_build_again(plan, model, 0) : SL_OK;
        if (status == SL_ERR_OUT_OF_MEMORY) return status;
        if (status != SL_OK && status != SL_ERR_MEMORY_LIMIT) break;
        if (any && status == SL_OK && plan->segments == 1) *found = (smaller){true, predicted(plan), plan->unready};
    }
    plan->unready = before;
    return SL_OK;
}

static sl_status take_smaller(sl_plan *plan, const sl_model *model, const smaller *found) {
    plan->unready = found->unready;
    return sli_plan_build_again(plan, model, 0);
}

/* Both directions in one step see the whole sequence, and some rows sum gradients over all of it, or carry more than states. Where memory wants segments,
 * directions are planned one by one and such rows are left out, unless others of them fit in one segment and are predicted to be faster, or that does not fit either. Where nothing fits, layers of stacks are taken
 * one by one, too, which needs less, and then a GPU's step engine. Of failures the one that needs least is told. */
sl_status sli_plan_build_to_fit(sl_plan *plan, const sl_model *model) {
    size_t least = SIZE_MAX;
    int leanest = 0, last = 0;
    bool wide = true;
    smaller found = {0};
    sl_status status = SL_OK;
    for (int lean = SLI_LEAN_NOT; lean <= SLI_LEAN_STEP; lean++) {
        bool wants = true, in_segments = false;
        if (lean == SLI_LEAN_APART && !wide) continue;
        if (lean == SLI_LEAN_STEP && (plan->caps.kind != SLI_DEVICE_CUDA || found.found)) break;
        for (int cut = 0; cut < 2 && wants; cut++) {
            last = 2 * lean + cut;
            status = last == 0 ? sli_plan_build(plan, model) : sli_plan_build_again(plan, model, last);
            const bool over = status == SL_ERR_MEMORY_LIMIT;
            if (status == SL_ERR_OUT_OF_MEMORY || (last == 0 && status != SL_OK && !over)) return status;
            wants = (status == SL_OK || over) && wants_the_whole(plan);
            if (status == SL_OK && found.found && found.seconds < predicted(plan))
                return take_smaller(plan, model, &found);
            if (status == SL_OK && (cut || plan->segments == 1 || !wants)) return SL_OK;
            if (lean == SLI_LEAN_NOT) wide = (cut && wide) || has_wide_steps(plan);
            in_segments |= status == SL_OK;
            if (over && sli_plan_need(plan) <= least) {
                least = sli_plan_need(plan);
                leanest = last;
            }
            if (last == 0) SLI_TRY(find_smaller(plan, model, &found));
        }
        if (in_segments && !found.found) return sli_plan_build_again(plan, model, 2 * lean);
    }
    if (found.found) return take_smaller(plan, model, &found);
    return last == leanest ? status : sli_plan_build_again(plan, model, leanest);
}
