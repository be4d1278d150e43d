/* Plans that keep a memory limit: what is tried, in order. */
#include <math.h>

#include "core/plan.h"

static bool sees_the_whole(const sl_plan *plan, const sli_step *step) {
    const sli_kernel *row = step->kernel;
    return step->problem.bidirectional || row->whole || (plan->train && (row->whole_sums || step->problem.narrow)) ||
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

/* What the step would have for itself, by this row, in one segment. */
static size_t bytes_of(const sl_plan *plan, const sli_step *step, const sli_kernel *row) {
    sli_booking b = {0};
    if (row->book) row->book(&step->problem, &plan->caps, plan->chunk, &b);
    return b.packed + b.saved + (b.scratch_forward > b.scratch_backward ? b.scratch_forward : b.scratch_backward);
}

/* Another row needs less than `bytes`; of a wide step perhaps its parts do. */
static bool may_be_smaller(const sl_plan *plan, const sli_step *step, size_t bytes) {
    const sli_kernel *rows[SLI_PLAN_CANDIDATES];
    bool smaller = step->problem.layers > 1 || step->problem.bidirectional;
    for (int k = sli_plan_candidates(plan, &step->problem, rows); k-- > 0 && !smaller;)
        smaller = rows[k] != step->kernel && bytes_of(plan, step, rows[k]) < bytes;
    return smaller;
}

/* The row that needs most of those that might be smaller ones, or in segments others; false: none might. Layers share their scratch, so it is the
 * largest that counts. */
static sl_status leave_out_largest(sl_plan *plan, bool in_segments, bool *any) {
    const sli_step *largest = NULL;
    size_t most = 0;
    for (int i = 0; i < plan->step_count; i++) {
        const sli_step *step = &plan->steps[i];
        const size_t bytes = sli_op_is_recurrent(step->problem.op) ? bytes_of(plan, step, step->kernel) : 0;
        if (bytes <= most || !may_be_smaller(plan, step, in_segments ? SIZE_MAX : bytes)) continue;
        largest = step;
        most = bytes;
    }
    *any = largest != NULL;
    if (!*any) return SL_OK;
    return sli_plan_leave_out(plan, largest,
                              in_segments ? "the plan with it was over the memory limit in any number of segments"
                                          : "in one segment the plan with it was over the memory limit");
}

/* Of every layer at once, where there are too many for one by one. */
static sl_status leave_out_all(sl_plan *plan, bool *any) {
    *any = false;
    for (int i = 0; i < plan->step_count; i++) {
        const sli_step *step = &plan->steps[i];
        if (!sli_op_is_recurrent(step->problem.op) || sli_plan_unready(plan, step->kernel, &step->problem)) continue;
        if (!may_be_smaller(plan, step, bytes_of(plan, step, step->kernel))) continue;
        *any = true;
        SLI_TRY(sli_plan_leave_out(plan, step, "in one segment the plan with it was over the memory limit"));
    }
    return SL_OK;
}

enum { MOST_TRIES = 24, MOST_AT_ONCE = 8 };

/* Row by row, of the last MOST_TRIES the first that was left out first: whether the rest is enough, and faster so. */
static sl_status put_back(sl_plan *plan, const sl_model *model, const sli_refusal *before, smaller *found) {
    sli_refusal *left_out[MOST_TRIES];
    int count = 0;
    for (sli_refusal *r = found->unready; r != before && count < MOST_TRIES; r = r->next) left_out[count++] = r;
    while (count-- > 0) {
        sli_refusal **at = &found->unready;
        while (*at != left_out[count]) at = &(*at)->next;
        *at = left_out[count]->next;
        plan->unready = found->unready;
        const sl_status status = sli_plan_build_again(plan, model, 0);
        if (status == SL_ERR_OUT_OF_MEMORY) return status;
        const bool fits = status == SL_OK && plan->segments == 1 && predicted(plan) < found->seconds;
        if (fits)
            found->seconds = predicted(plan);
        else
            *at = left_out[count];
    }
    return SL_OK;
}

/* The plan is as the last try left it; `any`: the tries ended before the rows did. */
static sl_status try_smaller(sl_plan *plan, const sl_model *model, bool at_once, smaller *found, bool *any) {
    const int most = at_once ? MOST_AT_ONCE : MOST_TRIES;
    *any = true;
    for (int tries = 0; tries < most && *any && !found->found; tries++) {
        SLI_TRY(at_once ? leave_out_all(plan, any) : leave_out_largest(plan, false, any));
        const sl_status status = *any ? sli_plan_build_again(plan, model, 0) : SL_OK;
        if (status == SL_ERR_OUT_OF_MEMORY) return status;
        *any &= status == SL_OK || status == SL_ERR_MEMORY_LIMIT;
        if (*any && status == SL_OK && plan->segments == 1) *found = (smaller){true, predicted(plan), plan->unready};
    }
    return SL_OK;
}

/* Of the rows that are taken the largest is left out, then that of what comes in its place, until all fits in one segment; then those that need
 * not have been are put back. On GPUs: on CPUs predictions may not decide between rows of other bits. */
static sl_status find_smaller(sl_plan *plan, const sl_model *model, smaller *found) {
    sli_refusal *const before = plan->unready;
    bool any = false;
    if (plan->caps.kind != SLI_DEVICE_CUDA) return SL_OK;
    SLI_TRY(try_smaller(plan, model, false, found, &any));
    if (any && !found->found) {
        plan->unready = before;
        const sl_status status = sli_plan_build_again(plan, model, 0);
        if (status != SL_OK && status != SL_ERR_MEMORY_LIMIT) return status;
        SLI_TRY(try_smaller(plan, model, true, found, &any));
    }
    if (found->found) SLI_TRY(put_back(plan, model, before, found));
    plan->unready = before;
    return SL_OK;
}

static sl_status take_smaller(sl_plan *plan, const sl_model *model, const smaller *found) {
    plan->unready = found->unready;
    return sli_plan_build_again(plan, model, 0);
}

/* Where not even the step engine fits: row by row what might be cut into segments is left out. False: nothing fits. */
static sl_status find_in_segments(sl_plan *plan, const sl_model *model, bool *found) {
    sli_refusal *const before = plan->unready;
    bool any = plan->caps.kind == SLI_DEVICE_CUDA;
    *found = false;
    for (int tries = 0; tries < MOST_TRIES && any; tries++) {
        const sl_status status = sli_plan_build_again(plan, model, 2 * SLI_LEAN_APART + 1);
        *found = status == SL_OK;
        if (*found || status == SL_ERR_OUT_OF_MEMORY) return status;
        if (status != SL_ERR_MEMORY_LIMIT) break;
        SLI_TRY(leave_out_largest(plan, true, &any));
    }
    plan->unready = before;
    return SL_OK;
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
        if (lean == SLI_LEAN_STEP && plan->caps.kind != SLI_DEVICE_CUDA) break;
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
    bool any = false;
    SLI_TRY(find_in_segments(plan, model, &any));
    if (any) return SL_OK;
    if (plan->caps.kind == SLI_DEVICE_CUDA) last = -1;
    return last == leanest ? status : sli_plan_build_again(plan, model, leanest);
}
