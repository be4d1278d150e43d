/* Recordings: a call of the plan's full size is the same work every time, whatever numbers it is about. A device that can
 * (CUDA graphs) records it once and replays it. What differs between calls lies in device memory. */
#include <stdio.h>
#include <string.h>

#include "core/run.h"

/* An update is about parameters only. */
static bool is_full_size(const sl_run *run, sli_run_kind kind) {
    const sl_plan_options *options = &run->plan->options;
    return kind == SLI_RUN_UPDATE || (run->batch == options->batch && run->steps == options->steps);
}

/* Ends the recording whatever happened; the first failure is the one to tell about. */
static sl_status record(sl_run *run, sli_run_work work, sli_recording **recording) {
    const sli_device_ops *ops = run->plan->ops;
    char detail[1024] = "";
    *recording = NULL;
    SLI_TRY(ops->record_begin(run->queue));
    sl_status status = work(run);
    if (status != SL_OK) snprintf(detail, sizeof detail, "%s", sl_error_detail());
    sl_status ended = ops->record_end(run->queue, recording);
    if (status == SL_OK) return ended;
    if (*recording) ops->recording_free(run->queue, *recording);
    *recording = NULL;
    return sli_fail(status, "%s", detail);
}

sl_status sli_run_do(sl_run *run, sli_run_kind kind, sli_run_work work) {
    const sl_plan *plan = run->plan;
    sli_run_count_steps(run, kind != SLI_RUN_BACKWARD && kind != SLI_RUN_UPDATE,
                        kind == SLI_RUN_BACKWARD || kind == SLI_RUN_GRADIENTS || kind == SLI_RUN_STEP);
    if (!plan->caps.graphs || !plan->ops->record_begin || !is_full_size(run, kind)) return work(run);
    if (run->bindings != run->params->bindings) sli_run_free_recordings(run);
    run->bindings = run->params->bindings;
    if (!run->recordings[kind]) SLI_TRY(record(run, work, &run->recordings[kind]));
    return plan->ops->replay(run->queue, run->recordings[kind]);
}

void sli_run_free_recordings(sl_run *run) {
    for (int kind = 0; kind < SLI_RUN_KINDS; kind++) {
        if (run->recordings[kind]) run->plan->ops->recording_free(run->queue, run->recordings[kind]);
        run->recordings[kind] = NULL;
    }
}
