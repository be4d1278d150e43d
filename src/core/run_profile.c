/* Profiles: where the time of a run's calls goes, by phase, and what each recurrent step of the plan takes of a time step. */
#include <stdio.h>
#include <string.h>

#include "core/run.h"

static const char *const phase_names[SLI_PHASE_COUNT] = {[SLI_PHASE_OTHER] = "other",
                                                         [SLI_PHASE_RECURRENCE] = "recurrence",
                                                         [SLI_PHASE_PRODUCT] = "matrix products",
                                                         [SLI_PHASE_SOFTMAX] = "softmax and losses",
                                                         [SLI_PHASE_OPTIMIZER] = "optimizer",
                                                         [SLI_PHASE_COPY] = "copies",
                                                         [SLI_PHASE_GAP] = "launch gaps"};
_Static_assert((int)SL_PROFILE_PARTS == (int)SLI_PHASE_COUNT, "sluice.h names every phase");

/* ------------------------------------------------------------------------------------------------ begin and end -- */
static sl_status check_device(const sl_plan *plan) {
    SLI_FAIL_IF(!plan->ops->profile_begin || !plan->ops->profile_end, SL_ERR_DEVICE,
                "device %s does not say where time goes; profile on a CPU or GPU", plan->caps.name);
    return SL_OK;
}

sl_status sli_run_profile_begin(sl_run *run) {
    SLI_TRY(check_device(run->plan));
    sli_run_free_recordings(run); /* they hold no marks */
    memset(run->tagged, 0, sizeof run->tagged);
    run->profiled_steps[0] = run->profiled_steps[1] = 0;
    SLI_TRY(run->plan->ops->profile_begin(run->queue));
    run->profiling = true;
    return SL_OK;
}

sl_status sli_run_profile_end(sl_run *run, double seconds[SLI_PHASE_COUNT]) {
    const sli_device_ops *ops = run->plan->ops;
    memset(seconds, 0, sizeof *seconds * SLI_PHASE_COUNT);
    SLI_TRY(check_device(run->plan));
    sl_status status = ops->profile_end(run->queue, seconds);
    if (status == SL_OK && run->profiling && ops->profile_tagged) ops->profile_tagged(run->queue, run->tagged);
    run->profiling = false;
    sli_run_free_recordings(run); /* they hold marks */
    return status;
}

/* ---------------------------------------------------------------------------------------------------- while it runs -- */
/* Number `index` among the recurrent steps: its forward has tag 1 + 2 index, its backward the next; 0: no tag. */
static int tag_of(const sl_plan *plan, int step, bool backward) {
    int index = 0;
    if (!sli_op_is_recurrent(plan->steps[step].problem.op)) return 0;
    for (int k = 0; k < step; k++) index += sli_op_is_recurrent(plan->steps[k].problem.op);
    int tag = 1 + 2 * index + backward;
    return tag < SLI_PROFILE_TAGS ? tag : 0;
}

sl_status sli_run_submit(sl_run *run, int step, bool backward, sli_kernel_fn function, const sli_call *call) {
    const sli_device_ops *ops = run->plan->ops;
    int tag = run->profiling && ops->profile_tag ? tag_of(run->plan, step, backward) : 0;
    if (tag) ops->profile_tag(run->queue, tag);
    sl_status status = ops->submit(run->queue, function, call);
    if (tag) ops->profile_tag(run->queue, 0);
    return status;
}

void sli_run_count_steps(sl_run *run, bool forward, bool backward) {
    if (!run->profiling) return;
    run->profiled_steps[0] += forward ? run->steps : 0;
    run->profiled_steps[1] += backward ? run->steps : 0;
}

/* ---------------------------------------------------------------------------------------------------------- results -- */
sl_status sl_run_profile_begin(sl_run *run) {
    SLI_FAIL_IF(!run, SL_ERR_USAGE, "sl_run_profile_begin: run is NULL; pass one");
    return sli_run_profile_begin(run);
}

sl_status sl_run_profile_end(sl_run *run, sl_profile_part parts[SL_PROFILE_PARTS]) {
    double seconds[SLI_PHASE_COUNT];
    SLI_FAIL_IF(!run || !parts, SL_ERR_USAGE, "sl_run_profile_end: run and parts must not be NULL");
    sl_status status = sli_run_profile_end(run, seconds);
    for (int k = 0; k < SLI_PHASE_COUNT; k++) {
        sl_profile_part part = {phase_names[k], status == SL_OK ? seconds[k] : 0};
        int at = k;
        for (; at > 0 && parts[at - 1].seconds < part.seconds; at--) parts[at] = parts[at - 1];
        parts[at] = part;
    }
    return status;
}

int sl_run_step_time(const sl_run *run, int index, sl_step_time *time) {
    const sl_plan *plan = run ? run->plan : NULL;
    for (int k = 0; plan && time && k < plan->step_count; k++) {
        const sli_step *step = &plan->steps[k];
        if (!sli_op_is_recurrent(step->problem.op) || index-- > 0) continue;
        int forward = tag_of(plan, k, false), backward = tag_of(plan, k, true);
        bool both = backward && run->profiled_steps[1] > 0;
        *time = (sl_step_time){.layer = step->layer_name,
                               .problem = step->text,
                               .kernel = step->kernel->name,
                               .predicted = step->seconds < 0 ? -1 : step->seconds / step->problem.steps,
                               .backward = both ? run->tagged[backward] / run->profiled_steps[1] : 0};
        if (!forward || !(run->profiled_steps[0] > 0) || !(run->tagged[forward] > 0))
            time->forward = -1;
        else
            time->forward = run->tagged[forward] / run->profiled_steps[0];
        return 1;
    }
    return 0;
}

const char *sl_run_explain(sl_run *run) {
    if (!run) return NULL;
    sli_text_free(&run->explanation);
    sli_text_init(&run->explanation, &run->allocator);
    sli_text_printf(&run->explanation, "%s", sl_plan_explain(run->plan));
    sl_step_time time;
    for (int k = 0; sl_run_step_time(run, k, &time); k++) {
        if (time.forward < 0) continue;
        sli_text_printf(&run->explanation, "measured %-12s %-52s %s: %.4g us a step, forward %.4g, backward %.4g",
                        time.layer, time.problem, time.kernel, 1e6 * (time.forward + time.backward), 1e6 * time.forward,
                        1e6 * time.backward);
        if (time.predicted >= 0) sli_text_printf(&run->explanation, "; predicted %.4g us", 1e6 * time.predicted);
        sli_text_printf(&run->explanation, "\n");
    }
    return run->explanation.failed ? NULL : run->explanation.data;
}
