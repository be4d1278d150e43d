/* Plans in i8: which problems are rounded, on which device, and that training refuses. */
#include <string.h>
#include "core/plan.h"
#include "test.h"

/* tokens -> embedding -> LSTM -> dense. */
static sl_model *language_model(void) {
    sl_model *model;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_tokens(model, "x", 11));
    REQUIRE_OK(sl_model_add_embedding(model, "embed", &(sl_embedding){.vocabulary = 11, .units = 7}, NULL));
    REQUIRE_OK(sl_model_add_recurrent(model, "rnn", SL_LSTM, &(sl_recurrent){.units = 9, .return_sequences = 1}, NULL));
    REQUIRE_OK(sl_model_add_dense(model, "out", &(sl_dense){.units = 11}, NULL));
    return model;
}

TEST(i8_rounds_what_has_weights_to_multiply) {
    sl_model *model = language_model();
    sl_plan *plan;
    REQUIRE_OK(sl_plan_new(model, &(sl_plan_options){.batch = 3, .steps = 4, .dtype = SL_I8}, &plan));
    CHECK(plan->caps.kind == SLI_DEVICE_CPU); /* auto: no GPU has kernels for it */
    int rounded = 0;
    for (int k = 0; k < plan->step_count; k++) {
        const sli_problem *p = &plan->steps[k].problem;
        const bool weights = p->op == SLI_OP_LSTM || p->op == SLI_OP_DENSE;
        CHECK(p->dtype == (weights ? SL_I8 : SL_F32));
        rounded += weights;
        if (weights) CHECK(strcmp(plan->steps[k].kernel->name, p->op == SLI_OP_LSTM ? "cpu:fused" : "cpu:i8") == 0);
    }
    CHECK(rounded == 2);
    sl_plan_free(plan);
    sl_model_free(model);
}

TEST(i8_is_not_trained) {
    sl_model *model = language_model();
    sl_plan *plan;
    const sl_plan_options options = {.train = 1, .dtype = SL_I8, .loss = SL_LOSS_SOFTMAX};
    CHECK_FAILS(sl_plan_new(model, &options, &plan), SL_ERR_INPUT, "i8 is for inference");
    sl_model_free(model);
}
