/* Where the time of a training went, for people: the phases of a run by name, the largest first. */
#include "core/run.h"
#include "train/trainer.h"

static const char *const names[SLI_PHASE_COUNT] = {[SLI_PHASE_OTHER] = "other",
                                                   [SLI_PHASE_RECURRENCE] = "recurrence",
                                                   [SLI_PHASE_PRODUCT] = "matrix products",
                                                   [SLI_PHASE_SOFTMAX] = "softmax and losses",
                                                   [SLI_PHASE_OPTIMIZER] = "optimizer",
                                                   [SLI_PHASE_COPY] = "copies",
                                                   [SLI_PHASE_GAP] = "launch gaps"};
_Static_assert((int)SL_PROFILE_PARTS == (int)SLI_PHASE_COUNT, "sluice.h names every phase");

sl_status sli_trainer_profile_end(sl_trainer *t, sl_profile_part parts[SL_PROFILE_PARTS]) {
    double seconds[SLI_PHASE_COUNT];
    sl_status status = sli_run_profile_end(t->run, seconds);
    for (int k = 0; k < SLI_PHASE_COUNT; k++) {
        sl_profile_part part = {names[k], status == SL_OK ? seconds[k] : 0};
        int at = k;
        for (; at > 0 && parts[at - 1].seconds < part.seconds; at--) parts[at] = parts[at - 1];
        parts[at] = part;
    }
    return status;
}
