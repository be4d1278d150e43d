/* Trials: numbers exact in the operands, the reference that rounds, and guard zones that see a byte out of place. */
#include "core/rounding.h"
#include "core/run.h"
#include "proof/problem_model.h"
#include "proof/subject.h"
#include "test.h"

typedef struct rig {
    sl_model *model;
    sl_plan_options options;
    sli_subject *subject;
} rig;

static rig make_rig(const char *text) {
    rig r = {.options = {.device = test_device, .threads = 1}};
    sli_problem problem;
    REQUIRE_OK(sli_problem_parse(text, &problem));
    REQUIRE_OK(sli_problem_model(NULL, &problem, true, &r.model, &r.options));
    REQUIRE_OK(sli_subject_new(r.model, &r.options, problem.mask, test_seed, &r.subject));
    return r;
}

static void free_rig(rig *r) {
    sli_subject_free(r->subject);
    sl_model_free(r->model);
}

static bool is_exact(const sli_subject_array *arrays, int count, sl_dtype dtype) {
    for (int k = 0; k < count; k++)
        for (size_t i = 0; i < arrays[k].count; i++)
            if (sli_round_to(dtype, arrays[k].values[i]) != arrays[k].values[i]) return false;
    return true;
}

TEST(trial_draws_are_exact_in_the_operands) {
    static const char *const names[] = {"bf16", "f16", "tf32", "f32"};
    static const sl_dtype dtypes[] = {SL_BF16, SL_F16, SL_TF32, SL_F32};
    for (int k = 0; k < 4; k++) {
        char text[64];
        snprintf(text, sizeof text, "lstm:b3_t4_i5_h6_%s_train+peephole", names[k]);
        rig r = make_rig(text);
        sli_subject *s = r.subject;
        CHECK(s->operands == (dtypes[k] == SL_F32 ? SL_DTYPE_DEFAULT : dtypes[k]));
        CHECK(is_exact(s->inputs, s->input_count, dtypes[k]) && is_exact(s->params, s->param_count, dtypes[k]));
        CHECK(is_exact(s->outputs, s->output_count, dtypes[k]));
        if (dtypes[k] == SL_F32) CHECK(!is_exact(s->params, s->param_count, SL_TF32));
        free_rig(&r);
    }
}

static double distance(const sli_results *a, const sli_results *b) {
    double most = 0;
    for (int k = 0; k < a->count; k++)
        for (size_t i = 0; i < a->parts[k].count; i++)
            most = fmax(most, fabs(a->parts[k].values[i] - b->parts[k].values[i]));
    return most;
}

/* h enters the recurrent product rounded: from the second step on the numbers differ, by about a unit of the type. One step
 * from exact initial states is not rounded at all. */
TEST(trial_reference_rounds_what_is_multiplied) {
    for (int steps = 1; steps <= 5; steps += 4) {
        char text[64];
        snprintf(text, sizeof text, "gru:b3_t%d_i4_h6_bf16+reset=before", steps);
        rig r = make_rig(text);
        sl_plan_options wide = r.options;
        wide.dtype = SL_F64;
        wide.device = "cpu";
        sli_trial exact, rounded;
        sli_results a, b;
        sli_trial_call call = {.training = false};
        REQUIRE_OK(sli_results_new(r.subject, false, &a));
        REQUIRE_OK(sli_results_new(r.subject, false, &b));
        REQUIRE_OK(sli_trial_open(r.subject, &wide, &exact));
        REQUIRE_OK(sli_trial_open_reference(r.subject, r.subject->operands, &rounded));
        REQUIRE_OK(sli_trial_run(&exact, &call, &a));
        REQUIRE_OK(sli_trial_run(&rounded, &call, &b));
        double apart = distance(&a, &b);
        CHECK(apart > 1e-5 && apart < 0x1p-6); /* r * h' is rounded in the first step already */
        sli_trial_close(&rounded);
        sli_trial_close(&exact);
        free_rig(&r);
    }
}

/* One byte behind a piece of memory, written through the queue, is seen; the run itself writes none. */
TEST(trial_guards_see_one_byte) {
    if (test_on_gpu()) test_skip("the checks of problems look at guard zones there");
    rig r = make_rig("lstm:b3_t9_i4_h5_train+lengths");
    r.subject->options.input_gradients = r.options.input_gradients = 1;
    sli_trial trial;
    sli_results results;
    sli_trial_call call = {.training = true, .poison = true};
    size_t damaged;
    REQUIRE_OK(sli_results_new(r.subject, true, &results));
    REQUIRE_OK(sli_trial_open_guarded(r.subject, &r.options, &trial));
    REQUIRE_OK(sli_trial_run(&trial, &call, &results));
    REQUIRE_OK(sli_trial_count_damage(&trial, &damaged));
    const sl_plan *plan = trial.plan;
    CHECK(damaged == 0 && plan->guard_count > 10 && plan->guard == SLI_GUARD_BYTES);
    unsigned char zero = 0;
    for (int k = 0; k < plan->guard_count; k++) {
        CHECK(plan->guards[k] + plan->guard <= plan->memory.run_block);
        size_t at = k % 2 ? 0 : plan->guard - 1; /* its first byte or its last */
        REQUIRE_OK(plan->ops->upload(trial.run->queue, trial.run->block + plan->guards[k] + at, &zero, 1));
    }
    REQUIRE_OK(sli_trial_count_damage(&trial, &damaged));
    CHECK(damaged == (size_t)plan->guard_count);
    sli_trial_close(&trial);
    free_rig(&r);
}
