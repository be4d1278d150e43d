/* Fresh gradients: in a whole training step the first to come to a parameter's gradient writes it, and the update leaves it. However
 * steps are mixed with other calls, all must be as if gradients began with zeros: as with gradients and update one by one. */
#include "run_rig.h"

enum { T = 40, UNITS = 6, MOST = 512 };

/* tokens -> embedding -> recurrent layers of many kinds -> dense, whose weights are the embedding's if `tied` */
static sl_model *model_of(bool tied) {
    sl_model *model;
    const sl_embedding embedding = {.vocabulary = V, .units = UNITS};
    const sl_recurrent layers[] = {
        {.units = UNITS, .return_sequences = 1, .stateful = 1, .peephole = 1, .projection = 4},
        {.units = 3, .return_sequences = 1, .bidirectional = SL_BI_CONCAT, .bias = SL_BIAS_DOUBLE},
        {.units = UNITS, .return_sequences = 1, .reset_before = 1, .recurrent_dropout = 0.2},
        {.units = UNITS, .return_sequences = 1, .bias = SL_BIAS_NONE}};
    const sl_cell cells[] = {SL_LSTM, SL_GRU, SL_GRU, SL_RNN};
    const char *const names[] = {"projected", "both", "before", "plain"};
    const sl_dense hidden = {.units = UNITS, .activation = SL_ACT_TANH};
    const sl_dense logits = {.units = V, .tied_to = tied ? "embedding" : NULL};
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_tokens(model, "tokens", V));
    REQUIRE_OK(sl_model_add_embedding(model, "embedding", &embedding, NULL));
    for (int i = 0; i < 4; i++) REQUIRE_OK(sl_model_add_recurrent(model, names[i], cells[i], &layers[i], NULL));
    REQUIRE_OK(sl_model_add_dense(model, "hidden", &hidden, NULL));
    REQUIRE_OK(sl_model_add_dense(model, "logits", &logits, NULL));
    return model;
}

/* On a GPU two chunks of time. */
static sl_plan_options options_on(const char *device) {
    return (sl_plan_options){.batch = B,
                             .steps = strncmp(device, "cuda", 4) == 0 ? LONG : T,
                             .train = 1,
                             .masking = SL_MASK_LENGTHS,
                             .loss = SL_LOSS_SOFTMAX,
                             .optimizer = {.kind = SL_SGD, .momentum = 0.9},
                             .clip = {SL_CLIP_GLOBAL_NORM, 0.5},
                             .device = device};
}

/* Number k; the fifth is smaller than the plan, and so not replayed. Token 0 does not come in all of them. */
static void fill(batch_data *d, int k, int most) {
    const int rows = k == 5 ? B - 1 : B, steps = k == 5 ? most - 3 : most;
    fill_batch(d, k, rows, steps);
    for (int i = 0; i < LONG * B; i++) d->tokens[i] = 1 + (i * i + 3 * k) % (V - 1 - k % 2);
}

static bool is_fresh(const rig *r, const char *name) {
    for (int i = 0; i < r->plan->param_count; i++)
        if (strcmp(r->plan->params[i].param.name, name) == 0) return r->plan->params[i].fresh;
    test_fail(__FILE__, __LINE__, "no parameter %s", name);
    return false;
}

static void get_param(const rig *r, int index, double values[MOST], size_t *count) {
    int rows, columns;
    const char *name = sl_params_name(r->params, index, &rows, &columns);
    *count = (size_t)rows * (size_t)columns;
    REQUIRE(*count <= MOST);
    REQUIRE_OK(sl_params_get(r->params, name, values, *count));
}

static void same_params(const rig *a, const rig *b, int k) {
    for (int i = 0; i < sl_params_count(a->params); i++) {
        double x[MOST], y[MOST];
        size_t count;
        get_param(a, i, x, &count);
        get_param(b, i, y, &count);
        if (memcmp(x, y, count * sizeof *x) != 0)
            test_fail(__FILE__, __LINE__, "%s differs after call %d", a->plan->params[i].param.name, k);
    }
}

/* As a caller reads them. */
static bool gradients_are_zero(const rig *r) {
    bool zero = true;
    for (int i = 0; i < r->plan->param_count; i++) {
        const sli_param *param = &r->plan->params[i].param;
        const size_t count = (size_t)param->rows * (size_t)param->columns;
        double values[MOST];
        REQUIRE(count <= MOST);
        REQUIRE_OK(sl_run_gradient(r->run, param->name, values, count));
        for (size_t e = 0; e < count; e++) zero &= values[e] == 0;
    }
    return zero;
}

/* As they lie in memory after a whole step: what is fresh was left, all else was zeroed. */
static void check_leftovers(const rig *r) {
    for (int i = 0; i < r->plan->param_count; i++) {
        const sli_param_place *place = &r->plan->params[i];
        const size_t count = (size_t)place->param.rows * (size_t)place->param.columns;
        float values[MOST];
        bool zero = true;
        REQUIRE_OK(r->plan->ops->download(
            r->run->queue, values, r->run->block + r->plan->gradients + place->offset * sizeof *values, count * 4));
        for (size_t e = 0; e < count; e++) zero &= values[e] == 0;
        if (zero == place->fresh)
            test_fail(__FILE__, __LINE__, "the gradient of %s is %s", place->param.name, zero ? "zero" : "left");
    }
}

static sl_result step(const rig *r, const sl_batch *batch, int k) {
    sl_result result;
    REQUIRE_OK(sl_run_step(r->run, batch, (uint32_t)k, 0.05));
    REQUIRE_OK(sl_run_step_result(r->run, &result));
    return result;
}

static sl_result gradients_and_update(const rig *r, const sl_batch *batch, int k) {
    sl_result result, update;
    REQUIRE_OK(sl_run_gradients(r->run, batch, NULL, (uint32_t)k, 0, 1, &result));
    REQUIRE_OK(sl_run_update(r->run, 0.05, &update));
    result.gradient_norm = update.gradient_norm;
    return result;
}

/* What comes before the step of call k. */
static void accumulate(const rig *r, const sl_batch *batch, int k) {
    if (k == 2 || k == 5) REQUIRE_OK(sl_run_gradients(r->run, batch, NULL, (uint32_t)k, 1, 0.5, NULL));
}

/* What comes between the steps of calls k and k + 1. Gradients are zeros there. */
static void disturb(const rig *r, const sl_batch *batch, int k) {
    sl_result result;
    if (k == 3) CHECK(gradients_are_zero(r));
    if (k == 4) REQUIRE_OK(sl_run_zero_gradients(r->run));
    if (k == 6) REQUIRE_OK(sl_run_update(r->run, 0.05, NULL));
    if (k == 7) gradients_and_update(r, batch, 70);
    if (k == 8) CHECK(sli_run_first_bad_gradient(r->run) == NULL);
    if (k == 9) REQUIRE_OK(sl_run_evaluate(r->run, batch, &result));
}

static void compare(const sl_model *model, sl_plan_options options) {
    rig whole = make_rig_on(model, options, options.device), parts = make_rig_on(model, options, options.device);
    for (int k = 0; k < 12; k++) {
        batch_data d;
        fill(&d, k, options.steps);
        accumulate(&whole, &d.batch, k);
        accumulate(&parts, &d.batch, k);
        const sl_result a = step(&whole, &d.batch, k), b = gradients_and_update(&parts, &d.batch, k);
        CHECK(a.loss == b.loss && a.loss_sum == b.loss_sum && a.count == b.count && a.correct == b.correct);
        CHECK(a.gradient_norm == b.gradient_norm && a.gradient_norm > 0);
        if (whole.plan->any_fresh && k == 1 && options.dtype != SL_F64) check_leftovers(&whole);
        disturb(&whole, &d.batch, k);
        disturb(&parts, &d.batch, k);
        same_params(&whole, &parts, k);
    }
    free_rig(&whole);
    free_rig(&parts);
}

TEST(fresh_steps_equal_gradients_and_update) {
    const char *const devices[] = {"cpu", "far", "far:fresh", "far:wide", test_device};
    const int count = test_on_gpu() ? 5 : 4;
    for (int tied = 0; tied < 2; tied++) {
        sl_model *model = model_of(tied);
        for (int i = 0; i < count; i++)
            for (int clip = SL_CLIP_NONE; clip <= SL_CLIP_GLOBAL_NORM; clip++) {
                sl_plan_options options = options_on(devices[i]);
                options.clip = (sl_clip){(sl_clip_kind)clip, 0.1};
                if (clip == SL_CLIP_NONE) options.optimizer = (sl_optimizer){.kind = SL_SGD}; /* looks for zeros */
                if (clip == SL_CLIP_VALUE) options.optimizer = (sl_optimizer){.kind = SL_ADAM};
                if (clip == SL_CLIP_VALUE && i == 2) options.dtype = SL_F64; /* the reference's optimizer */
                if (clip == SL_CLIP_NORM) options.optimizer = (sl_optimizer){.kind = SL_RMSPROP};
                compare(model, options);
            }
        sl_model_free(model);
    }
}

TEST(fresh_parameters_are_those_that_rows_come_to_first) {
    for (int tied = 0; tied < 2; tied++) {
        sl_model *model = model_of(tied);
        rig r = make_rig_on(model, options_on("far:fresh"), "far:fresh");
        CHECK(r.plan->any_fresh && is_fresh(&r, "before.bias") && is_fresh(&r, "projected.peephole"));
        CHECK(!is_fresh(&r, "both.forward.kernel")); /* a row of the CPU takes both directions */
        CHECK(is_fresh(&r, "hidden.bias") && is_fresh(&r, "logits.bias"));
        CHECK(is_fresh(&r, "embedding.embeddings") == tied);
        free_rig(&r);
        r = make_rig_on(model, options_on("far:wide"), "far:wide");
        CHECK(r.plan->any_fresh && is_fresh(&r, "both.forward.kernel") && is_fresh(&r, "both.backward.recurrent_bias"));
        CHECK(!is_fresh(&r, "plain.kernel") && !is_fresh(&r, "hidden.kernel"));
        CHECK(!is_fresh(&r, "embedding.embeddings"));
        free_rig(&r);
        r = make_rig_on(model, options_on("far"), "far");
        CHECK(!r.plan->any_fresh);
        free_rig(&r);
        sl_plan_options options = options_on("far:fresh");
        options.loss = SL_LOSS_NONE;
        r = make_rig_on(model, options, options.device);
        CHECK(!r.plan->any_fresh);
        free_rig(&r);
        sl_model_free(model);
    }
}

/* Segments come to a parameter one after the other. */
TEST(fresh_is_nothing_where_time_is_cut) {
    sl_model *model;
    const sl_recurrent lstm = {.units = 40, .return_sequences = 1};
    sl_memory memory;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 2, 0));
    REQUIRE_OK(sl_model_add_recurrent(model, "lstm", SL_LSTM, &lstm, NULL));
    sl_plan_options options = options_on("far:fresh");
    options.loss = SL_LOSS_MSE;
    options.steps = LONG;
    rig r = make_rig_on(model, options, options.device);
    CHECK(r.plan->any_fresh && r.plan->segments == 1);
    sl_plan_memory(r.plan, &memory);
    free_rig(&r);
    options.memory_limit = memory.params_block + memory.run_block - 1;
    r = make_rig_on(model, options, options.device);
    CHECK(!r.plan->any_fresh && r.plan->segments > 1);
    free_rig(&r);
    sl_model_free(model);
}

/* An update that is left out leaves what is not finite: the next step writes over it. */
TEST(fresh_gradients_that_are_not_finite_are_forgotten) {
    static const float xs[] = {1, 3e38f, 1, 3e38f, 2};
    const sl_dense dense = {.units = 1, .kernel_init = {SL_INIT_CONSTANT, 10}};
    sl_model *model;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 1, 1));
    REQUIRE_OK(sl_model_add_dense(model, "first", &dense, NULL));
    for (int clip = SL_CLIP_NONE; clip <= SL_CLIP_GLOBAL_NORM; clip++) {
        sl_plan_options options = {.train = 1,
                                   .loss = SL_LOSS_MSE,
                                   .optimizer = {.kind = SL_ADAM},
                                   .clip = {(sl_clip_kind)clip, 1},
                                   .device = "far:fresh"};
        rig whole = make_rig_on(model, options, options.device), parts = make_rig_on(model, options, options.device);
        CHECK(whole.plan->any_fresh);
        for (int k = 0; k < 5; k++) {
            const float target = 2;
            const void *inputs[] = {&xs[k]};
            const sl_batch batch = {.batch = 1, .steps = 1, .inputs = inputs, .targets = &target};
            const sl_result a = step(&whole, &batch, k), b = gradients_and_update(&parts, &batch, k);
            CHECK(isfinite(a.gradient_norm) == isfinite(b.gradient_norm) && isfinite(a.gradient_norm) == (xs[k] < 3));
            if (k == 3) CHECK(gradients_are_zero(&whole));
            same_params(&whole, &parts, k);
        }
        CHECK(whole.params->optimizer_steps == 3 && parts.params->optimizer_steps == 3);
        free_rig(&whole);
        free_rig(&parts);
    }
    sl_model_free(model);
}
