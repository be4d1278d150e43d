/* Profiles: the phases' seconds, and what each recurrent step took of a time step, told by the run beside what is predicted. */
#include "core/run.h"
#include "test.h"

enum { BATCH = 2, STEPS = 6, INPUTS = 3, UNITS = 4 };

typedef struct rig {
    sl_model *model;
    sl_plan *plan;
    sl_params *params;
    sl_run *run;
    sl_batch batch;
    float x[STEPS * BATCH * INPUTS];
    const void *inputs[1];
} rig;

static void open_rig(rig *r, const char *problem) {
    sl_plan_options options = {0};
    memset(r, 0, sizeof *r);
    REQUIRE_OK(sl_model_from_problem(NULL, problem, &r->model, &options));
    options.device = test_device;
    REQUIRE_OK(sl_plan_new(r->model, &options, &r->plan));
    REQUIRE_OK(sl_params_new(r->plan, &r->params));
    REQUIRE_OK(sl_params_init(r->params, 1));
    REQUIRE_OK(sl_run_new(r->plan, r->params, &r->run));
    for (size_t k = 0; k < sizeof r->x / sizeof *r->x; k++) r->x[k] = 0.1F * (float)(k % 7);
    r->inputs[0] = r->x;
    r->batch = (sl_batch){.batch = BATCH, .steps = STEPS, .inputs = r->inputs};
}

static void close_rig(rig *r) {
    sl_run_free(r->run);
    sl_params_free(r->params);
    sl_plan_free(r->plan);
    sl_model_free(r->model);
}

static void begin_or_skip(rig *r) {
    sl_status status = sl_run_profile_begin(r->run);
    if (status == SL_OK) return;
    CHECK(status == SL_ERR_DEVICE);
    close_rig(r);
    test_skip("device %s does not say where time goes", test_device);
}

static double seconds_of(const sl_profile_part *parts, const char *name) {
    for (int k = 0; k < SL_PROFILE_PARTS; k++)
        if (strcmp(parts[k].name, name) == 0) return parts[k].seconds;
    return -1;
}

TEST(profile_tells_what_inference_takes_of_a_time_step) {
    rig r;
    sl_step_time time;
    sl_profile_part parts[SL_PROFILE_PARTS];
    open_rig(&r, "lstm:l2_b2_t6_i3_h4");
    CHECK(sl_run_step_time(r.run, 0, &time) == 1 && time.forward < 0 && time.backward == 0);
    CHECK(strcmp(sl_run_explain(r.run), sl_plan_explain(r.plan)) == 0);
    begin_or_skip(&r);
    for (int k = 0; k < 20; k++) REQUIRE_OK(sl_run_forward(r.run, &r.batch));
    REQUIRE_OK(sl_run_profile_end(r.run, parts));
    for (int k = 1; k < SL_PROFILE_PARTS; k++) CHECK(parts[k].seconds <= parts[k - 1].seconds);
    double sum = 0;
    int count = 0;
    for (; sl_run_step_time(r.run, count, &time); count++) {
        CHECK(time.forward > 0 && time.backward == 0 && strncmp(time.layer, "rnn", 3) == 0);
        sum += 20 * STEPS * time.forward;
    }
    CHECK(count >= 1);
    if (!test_on_gpu()) CHECK_NEAR(sum, seconds_of(parts, "recurrence"), 1e-9); /* a row's products are its own */
    const char *text = sl_run_explain(r.run);
    REQUIRE(text);
    CHECK(strstr(text, "measured rnn1") &&
          strncmp(text, sl_plan_explain(r.plan), strlen(sl_plan_explain(r.plan))) == 0);
    /* What comes after the profile is not part of it. */
    sl_step_time after;
    REQUIRE_OK(sl_run_forward(r.run, &r.batch));
    CHECK(sl_run_step_time(r.run, 0, &time) == 1 && sl_run_step_time(r.run, 0, &after) == 1);
    CHECK(time.forward == after.forward && sl_run_step_time(r.run, count, &after) == 0);
    close_rig(&r);
}

TEST(profile_tells_forward_and_backward_apart) {
    rig r;
    sl_step_time time;
    sl_profile_part parts[SL_PROFILE_PARTS];
    static float zeros[STEPS * BATCH * 2 * UNITS];
    const void *d_outputs[] = {zeros, zeros, zeros, zeros, zeros};
    open_rig(&r, "gru:b2_t6_i3_h4_bi_train");
    begin_or_skip(&r);
    for (uint32_t k = 0; k < 20; k++) REQUIRE_OK(sl_run_gradients(r.run, &r.batch, d_outputs, k, 0, 1, NULL));
    REQUIRE_OK(sl_run_profile_end(r.run, parts));
    for (int k = 0; sl_run_step_time(r.run, k, &time); k++) CHECK(time.forward > 0 && time.backward > 0);
    /* A profile of nothing but forward calls has no backward of the one before. */
    REQUIRE_OK(sl_run_profile_begin(r.run));
    REQUIRE_OK(sl_run_forward(r.run, &r.batch));
    REQUIRE_OK(sl_run_profile_end(r.run, parts));
    CHECK(sl_run_step_time(r.run, 0, &time) == 1 && time.forward > 0 && time.backward == 0);
    close_rig(&r);
}
