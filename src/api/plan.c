/* sl_plan_new: argument checks, and tuning where it is asked for. */
#include "tune/tune.h"

sl_status sl_plan_new(const sl_model *model, const sl_plan_options *options, sl_plan **plan) {
    SLI_FAIL_IF(!plan, SL_ERR_USAGE, "sl_plan_new: plan is NULL; pass the address of a pointer");
    *plan = NULL;
    SLI_FAIL_IF(!model, SL_ERR_USAGE, "sl_plan_new: model is NULL; describe a model first");
    if (!options || options->tune == SL_TUNE_NEVER) return sli_plan_new(model, options, NULL, plan);
    return sli_tune_plan(model, options, plan);
}
