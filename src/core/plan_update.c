/* What an update need not wait for, or look at, or leaves to nobody else: squares of gradients that are there early, rows of a table that
 * no token named, copies of parameters. */
#include "core/plan.h"

int64_t sli_plan_slices(const sl_plan *plan) {
    const int64_t each = plan->norm ? plan->norm->norm_slice : 0;
    return each > 0 ? ((int64_t)plan->param_elements + each - 1) / each : 0;
}

/* Whole slices of elements [first, end); the array's last may be short. */
static sli_slices whole_slices(const sl_plan *plan, size_t first, size_t end) {
    const int64_t each = plan->norm->norm_slice, from = ((int64_t)first + each - 1) / each;
    const int64_t to = end == plan->param_elements ? sli_plan_slices(plan) : (int64_t)end / each;
    return (sli_slices){from, to > from ? to : from};
}

static size_t end_of(const sl_plan *plan, int param) {
    return param + 1 < plan->param_count ? plan->params[param + 1].offset : plan->param_elements;
}

/* ------------------------------------------------------------------------------------------------------- sparse -- */
/* One place has the parameter, in a row that marks what it adds to. */
static bool is_sparse(const sl_plan *plan, int param) {
    int places = 0;
    bool marks = false;
    for (int i = 0; i < plan->step_count; i++)
        for (int k = 0; k < SLI_MAX_PARAM; k++) {
            if (plan->steps[i].emit.param[k] != param) continue;
            marks = k == 0 && plan->steps[i].backward && plan->steps[i].kernel->marks_touched;
            places++;
        }
    return marks && places == 1;
}

/* The largest table is worth it. */
void sli_plan_sparse(sl_plan *plan) {
    plan->sparse = -1;
    plan->sparse_slices = (sli_slices){0, 0};
    if (sli_plan_slices(plan) == 0) return;
    for (int p = 0; p < plan->param_count; p++) {
        const sli_slices slices = whole_slices(plan, plan->params[p].offset, end_of(plan, p));
        const int64_t most = plan->sparse_slices.end - plan->sparse_slices.first;
        if (slices.end - slices.first <= most || !is_sparse(plan, p)) continue;
        plan->sparse = p;
        plan->sparse_slices = slices;
    }
}

/* -------------------------------------------------------------------------------------------------------- early -- */
static bool has_param(const sli_step *step, int param) {
    for (int k = 0; k < SLI_MAX_PARAM; k++)
        if (step->emit.param[k] == param) return true;
    return false;
}

/* The step's parameters where they are neighbours, which they are unless another step had one of them before. */
static sli_slices slices_of(const sl_plan *plan, const sli_step *step) {
    int first = 0, end;
    while (first < plan->param_count && !has_param(step, first)) first++;
    for (end = first; end < plan->param_count && has_param(step, end);) end++;
    for (int p = end; p < plan->param_count; p++)
        if (has_param(step, p)) return (sli_slices){0, 0};
    return first == end ? (sli_slices){0, 0} : whole_slices(plan, plan->params[first].offset, end_of(plan, end - 1));
}

/* `slices` are nobody's any more; false: that would leave too many parts. */
static bool take_out(sl_plan *plan, const sli_slices *slices) {
    for (int i = 0; i < plan->rest_count; i++) {
        sli_slices *part = &plan->rest[i];
        if (slices->first < part->first || slices->end > part->end) continue;
        if (plan->rest_count == SLI_NORM_PARTS) return false;
        plan->rest[plan->rest_count++] = (sli_slices){slices->end, part->end};
        part->end = slices->first;
        return true;
    }
    return false;
}

/* Of steps whose sums are late, whole training steps sum the squares behind them, beside the recurrence. */
void sli_plan_early(sl_plan *plan) {
    plan->rest_count = 0;
    if (!plan->any_fresh || sli_plan_slices(plan) == 0) return;
    plan->rest[plan->rest_count++] = (sli_slices){0, sli_plan_slices(plan)};
    for (int i = plan->step_count - 1; i >= 0; i--) {
        sli_step *step = &plan->steps[i];
        const sli_slices slices = slices_of(plan, step);
        if (step->late && slices.end > slices.first && take_out(plan, &slices)) step->early = slices;
    }
}

/* ------------------------------------------------------------------------------------------------------- copies -- */
/* A parameter that two steps have may have two copies. */
static bool is_shared(const sl_plan *plan, int step, int param) {
    for (int i = 0; i < plan->step_count; i++)
        if (i != step && has_param(&plan->steps[i], param)) return true;
    return false;
}

static bool writes_copy(const sl_plan *plan, int i, int copies) {
    const sli_step *step = &plan->steps[i];
    sli_copy copy;
    return plan->optimizer->writes_copies && copies < SLI_COPIES &&
           plan->param_elements <= UINT32_MAX && /* rows count their elements in 32 bits */
           step->emit.param[0] >= 0 && step->kernel->copy_of && !is_shared(plan, i, step->emit.param[0]) &&
           step->kernel->copy_of(&step->problem, &plan->caps, &copy);
}

/* Parameter k of the step, where its pack updates that one if asked to; -1. */
static int updated_by(const sli_step *step, int k) {
    return step->kernel->packs_updated >> k % SLI_PART_PARAMS & 1 ? step->emit.param[k] : -1;
}

/* All that the step's pack would update, or nothing. */
static bool updates_in_pack(sl_plan *plan, int i) {
    const sli_step *step = &plan->steps[i];
    if (!plan->optimizer->updates_in_pack || !step->kernel->packs_updated) return false;
    for (int k = 0; k < SLI_MAX_PARAM; k++)
        if (updated_by(step, k) >= 0 && is_shared(plan, i, updated_by(step, k))) return false;
    for (int k = 0; k < SLI_MAX_PARAM; k++)
        if (updated_by(step, k) >= 0) plan->params[updated_by(step, k)].packer = i;
    return true;
}

void sli_plan_copies(sl_plan *plan) {
    int copies = 0;
    for (int p = 0; p < plan->param_count; p++) plan->params[p].packer = -1;
    for (int i = 0; i < plan->step_count && plan->optimizer; i++) {
        const bool copied = writes_copy(plan, i, copies);
        copies += copied;
        plan->steps[i].copied = copied || updates_in_pack(plan, i);
    }
}
