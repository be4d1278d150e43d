/* Whole training steps and recordings: replays equal work done anew, results are collected late and in order, what is not
 * finite changes nothing, nothing is uploaded twice. */
#include "run_rig.h"

enum { T = 700, STEPS = 7 };

static rig make_rig(const sl_model *model, sl_plan_options options) {
    return make_rig_on(model, options, test_device);
}

/* tokens -> embedding -> dropout -> LSTM with recurrent dropout, stateful -> dense */
static sl_model *language_model(void) {
    sl_model *model;
    sl_embedding embedding = {.vocabulary = V, .units = 4};
    sl_recurrent lstm = {.units = 6, .return_sequences = 1, .stateful = 1, .recurrent_dropout = 0.2};
    sl_dense dense = {.units = V};
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_tokens(model, "tokens", V));
    REQUIRE_OK(sl_model_add_embedding(model, "embedding", &embedding, NULL));
    REQUIRE_OK(sl_model_add_dropout(model, "dropout", 0.2, NULL));
    REQUIRE_OK(sl_model_add_recurrent(model, "lstm", SL_LSTM, &lstm, NULL));
    REQUIRE_OK(sl_model_add_dense(model, "logits", &dense, NULL));
    return model;
}

static const sl_plan_options training_options = {.batch = B,
                                                 .steps = T,
                                                 .train = 1,
                                                 .masking = SL_MASK_LENGTHS,
                                                 .loss = SL_LOSS_SOFTMAX,
                                                 .optimizer = {.kind = SL_ADAM},
                                                 .clip = {SL_CLIP_GLOBAL_NORM, 0.5}};

static void same_params(const rig *a, const rig *b) {
    for (int i = 0; i < sl_params_count(a->params); i++) {
        int rows, columns;
        double x[256], y[256];
        const char *name = sl_params_name(a->params, i, &rows, &columns);
        size_t count = (size_t)rows * (size_t)columns;
        REQUIRE(count <= 256);
        REQUIRE_OK(sl_params_get(a->params, name, x, count));
        REQUIRE_OK(sl_params_get(b->params, name, y, count));
        if (memcmp(x, y, count * sizeof *x) != 0) test_fail(__FILE__, __LINE__, "%s differs", name);
    }
}

static void same_states(const rig *a, const rig *b) {
    float x[256], y[256];
    size_t bytes = sl_run_state_bytes(a->run);
    REQUIRE(bytes <= sizeof x);
    REQUIRE_OK(sl_run_get_state(a->run, x, bytes));
    REQUIRE_OK(sl_run_get_state(b->run, y, bytes));
    CHECK(memcmp(x, y, bytes) == 0);
}

/* A last batch of the text is shorter, one of an array has fewer rows: these are not replayed. */
static void fill_kth(batch_data *d, int k, int steps) {
    fill_batch(d, k, k == 4 ? B - 1 : B, k == 5 ? steps - 2 : steps);
}

TEST(run_step_equals_gradients_and_update) {
    sl_model *model = language_model();
    for (int clip = SL_CLIP_NONE; clip <= SL_CLIP_GLOBAL_NORM; clip++) {
        sl_plan_options options = training_options;
        options.clip = (sl_clip){(sl_clip_kind)clip, 0.1};
        rig whole = make_rig(model, options), parts = make_rig(model, options);
        for (int k = 0; k < STEPS; k++) {
            batch_data d;
            sl_result a, b, u;
            fill_kth(&d, k, T);
            REQUIRE_OK(sl_run_step(whole.run, &d.batch, (uint32_t)k, 0.01 * (k + 1)));
            REQUIRE_OK(sl_run_gradients(parts.run, &d.batch, NULL, (uint32_t)k, 0, 1, &b));
            REQUIRE_OK(sl_run_update(parts.run, 0.01 * (k + 1), &u));
            REQUIRE_OK(sl_run_step_result(whole.run, &a));
            CHECK(a.loss == b.loss && a.loss_sum == b.loss_sum && a.count == b.count && a.correct == b.correct);
            CHECK(a.gradient_norm == u.gradient_norm && a.gradient_norm > 0);
            CHECK(a.loss_scale == 0 && a.skipped_steps == 0);
        }
        same_params(&whole, &parts);
        same_states(&whole, &parts);
        free_rig(&whole);
        free_rig(&parts);
    }
    sl_model_free(model);
}

/* A byte less than what the whole sequence needs, so that it is cut into segments. */
static void limit_memory(const sl_model *model, sl_plan_options *options) {
    sl_memory memory;
    rig probe = make_rig(model, *options);
    sl_plan_memory(probe.plan, &memory);
    free_rig(&probe);
    options->memory_limit = memory.params_block + memory.run_block - 1;
}

/* Every kind of call, again and again, in one run that may record and one that may not. */
TEST(run_recordings_equal_work_done_anew) {
    sl_model *model = language_model();
    for (int cut = 0; cut < 2; cut++) {
        sl_plan_options options = training_options;
        if (cut) {
            options.steps = LONG;
            if (test_on_gpu()) options.require = "cuda:step"; /* cuDNN's rows are left out where time is cut */
            limit_memory(model, &options);
        }
        rig recorded = make_rig(model, options);
        options.no_graph = 1;
        rig anew = make_rig(model, options);
        rig *rigs[2] = {&recorded, &anew};
        CHECK((recorded.plan->segments > 1) == (cut == 1));
        for (int k = 0; k < STEPS; k++) {
            sl_result step[2], gradients[2], update[2], evaluation[2];
            float y[2][LONG * B * V];
            batch_data d;
            fill_kth(&d, k, options.steps);
            size_t count = (size_t)d.batch.batch * (size_t)d.batch.steps * V;
            for (int i = 0; i < 2; i++) {
                sl_run *run = rigs[i]->run;
                REQUIRE_OK(sl_run_step(run, &d.batch, (uint32_t)k, 0.02));
                REQUIRE_OK(sl_run_step_result(run, &step[i]));
                REQUIRE_OK(sl_run_gradients(run, &d.batch, NULL, 70, 1, 0.5, NULL));
                REQUIRE_OK(sl_run_gradients(run, &d.batch, NULL, 70, 2, 0.5, &gradients[i]));
                REQUIRE_OK(sl_run_update(run, 0.03, &update[i]));
                REQUIRE_OK(sl_run_evaluate(run, &d.batch, &evaluation[i]));
                d.batch.targets = NULL;
                REQUIRE_OK(sl_run_forward(run, &d.batch));
                if (!cut) REQUIRE_OK(sl_run_output(run, NULL, y[i], count)); /* else it is not kept */
                d.batch.targets = d.labels;
            }
            CHECK(memcmp(&step[0], &step[1], sizeof *step) == 0);
            CHECK(memcmp(&gradients[0], &gradients[1], sizeof *step) == 0);
            CHECK(memcmp(&update[0], &update[1], sizeof *step) == 0);
            CHECK(memcmp(&evaluation[0], &evaluation[1], sizeof *step) == 0);
            CHECK(cut || memcmp(y[0], y[1], count * sizeof **y) == 0);
        }
        same_params(&recorded, &anew);
        same_states(&recorded, &anew);
        bool records = recorded.plan->ops->record_begin != NULL;
        const sli_run_kind kinds[] = {SLI_RUN_INFER, SLI_RUN_EVALUATE, SLI_RUN_GRADIENTS, SLI_RUN_UPDATE, SLI_RUN_STEP};
        for (int i = 0; i < 5; i++) {
            CHECK((recorded.run->recordings[kinds[i]] != NULL) == records);
            CHECK(!anew.run->recordings[kinds[i]]);
        }
        free_rig(&recorded);
        free_rig(&anew);
    }
    sl_model_free(model);
}

/* Without a loss the outputs' gradients arrive between two recordings. */
TEST(run_recordings_of_a_plan_without_a_loss) {
    sl_model *model;
    sl_recurrent gru = {.units = 4, .return_sequences = 1};
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 2, 0));
    REQUIRE_OK(sl_model_add_recurrent(model, "gru", SL_GRU, &gru, NULL));
    sl_plan_options options = {.batch = B, .steps = T, .train = 1, .input_gradients = 1};
    rig recorded = make_rig(model, options);
    options.no_graph = 1;
    rig anew = make_rig(model, options);
    rig *rigs[2] = {&recorded, &anew};
    uint64_t state = test_seed;
    for (int k = 0; k < 3; k++) {
        float x[T * B * 2], dy[T * B * 4], dx[2][T * B * 2], y[2][T * B * 4];
        for (int i = 0; i < T * B * 2; i++) x[i] = (float)test_random(&state);
        for (int i = 0; i < T * B * 4; i++) dy[i] = (float)test_random(&state);
        const void *inputs[] = {x}, *d_outputs[] = {dy};
        for (int i = 0; i < 2; i++) {
            sl_batch batch = {.batch = B, .steps = T, .inputs = inputs};
            REQUIRE_OK(sl_run_gradients(rigs[i]->run, &batch, d_outputs, 0, 0, 1, NULL));
            REQUIRE_OK(sl_run_input_gradient(rigs[i]->run, 0, dx[i], T * B * 2));
            REQUIRE_OK(sl_run_output(rigs[i]->run, NULL, y[i], T * B * 4));
        }
        CHECK(memcmp(dx[0], dx[1], sizeof *dx) == 0 && memcmp(y[0], y[1], sizeof *y) == 0);
    }
    CHECK((recorded.run->recordings[SLI_RUN_FORWARD] != NULL) == recorded.plan->caps.graphs);
    CHECK((recorded.run->recordings[SLI_RUN_BACKWARD] != NULL) == recorded.plan->caps.graphs);
    CHECK_FAILS(sl_run_step(recorded.run, NULL, 0, 0.1), SL_ERR_USAGE, "no loss");
    free_rig(&recorded);
    free_rig(&anew);
    sl_model_free(model);
}

TEST(run_steps_are_collected_in_order) {
    sl_model *model = language_model();
    rig late = make_rig(model, training_options), at_once = make_rig(model, training_options);
    int depth = sl_run_depth(late.run), queued = 0, collected = 0;
    sl_result expected[STEPS], result;
    CHECK(depth == (strncmp(test_device, "cpu", 3) == 0 ? 1 : 2));
    CHECK_FAILS(sl_run_step_result(late.run, &result), SL_ERR_USAGE, "no step waits");
    for (int k = 0; k < STEPS; k++) {
        batch_data d;
        fill_kth(&d, k, T);
        REQUIRE_OK(sl_run_step(at_once.run, &d.batch, (uint32_t)k, 0.05));
        REQUIRE_OK(sl_run_step_result(at_once.run, &expected[k]));
    }
    while (collected < STEPS) {
        for (; queued < STEPS && queued - collected < depth; queued++) {
            batch_data d;
            fill_kth(&d, queued, T);
            REQUIRE_OK(sl_run_step(late.run, &d.batch, (uint32_t)queued, 0.05));
            memset(&d, 0x55, sizeof d); /* it was copied */
        }
        if (queued < STEPS) {
            batch_data d;
            fill_kth(&d, queued, T);
            CHECK_FAILS(sl_run_step(late.run, &d.batch, 0, 0.05), SL_ERR_USAGE, "sl_run_step_result");
        }
        REQUIRE_OK(sl_run_step_result(late.run, &result));
        CHECK(memcmp(&result, &expected[collected], sizeof result) == 0);
        collected++;
    }
    CHECK(late.params->optimizer_steps == STEPS);
    same_params(&late, &at_once);
    same_states(&late, &at_once);
    CHECK_FAILS(sl_run_step_result(late.run, &result), SL_ERR_USAGE, "no step waits");
    batch_data d;
    fill_batch(&d, 0, B, T);
    CHECK_FAILS(sl_run_step(late.run, &d.batch, 0, NAN), SL_ERR_NUMBERS, "learning rate");
    d.batch.targets = NULL;
    CHECK_FAILS(sl_run_step(late.run, &d.batch, 0, 0.1), SL_ERR_USAGE, "targets");
    CHECK_FAILS(sl_run_step_result(late.run, &result), SL_ERR_USAGE, "no step waits");
    CHECK(late.params->optimizer_steps == STEPS);
    free_rig(&late);
    free_rig(&at_once);
    sl_model_free(model);
}

/* y = w x with x and targets so large that the loss is finite and its gradient is not. */
TEST(run_gradients_that_are_not_finite_change_nothing) {
    sl_model *model;
    sl_dense dense = {.units = 1, .kernel_init = {SL_INIT_ZEROS, 0}};
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 1, 1));
    REQUIRE_OK(sl_model_add_dense(model, "first", &dense, NULL));
    for (int clip = SL_CLIP_NONE; clip <= SL_CLIP_GLOBAL_NORM; clip++) {
        rig r = make_rig(model, (sl_plan_options){.train = 1,
                                                  .loss = SL_LOSS_MSE,
                                                  .optimizer = {.kind = SL_ADAM},
                                                  .clip = {(sl_clip_kind)clip, 1}});
        float x = 1, target = 2;
        const void *inputs[] = {&x};
        sl_batch batch = {.batch = 1, .steps = 1, .inputs = inputs, .targets = &target};
        sl_result result;
        double before[2], after[2];
        REQUIRE_OK(sl_run_step(r.run, &batch, 0, 0.1));
        REQUIRE_OK(sl_run_step_result(r.run, &result));
        CHECK(isfinite(result.gradient_norm) && r.params->optimizer_steps == 1);
        REQUIRE_OK(sl_params_get(r.params, "first.kernel", before, 1));
        REQUIRE_OK(sl_params_get(r.params, "first.bias", before + 1, 1));
        x = 1e25f;
        REQUIRE_OK(sl_params_set(r.params, "first.kernel", (double[]){0}, 1));
        target = 1e18f;
        for (int whole = 0; whole < 2; whole++) {
            if (whole) {
                REQUIRE_OK(sl_run_step(r.run, &batch, 1, 0.1));
                REQUIRE_OK(sl_run_step_result(r.run, &result));
            } else {
                REQUIRE_OK(sl_run_gradients(r.run, &batch, NULL, 1, 0, 1, &result));
                CHECK(isfinite(result.loss));
                REQUIRE_OK(sl_run_update(r.run, 0.1, &result));
            }
            CHECK(!isfinite(result.gradient_norm) && r.params->optimizer_steps == 1);
            CHECK(sl_run_first_nonfinite(r.run) == NULL);
            const char *layer = sli_run_first_bad_gradient(r.run);
            CHECK(layer && strcmp(layer, "first") == 0);
            REQUIRE_OK(sl_params_get(r.params, "first.kernel", after, 1));
            REQUIRE_OK(sl_params_get(r.params, "first.bias", after + 1, 1));
            CHECK(after[0] == 0 && after[1] == before[1]);
        }
        /* The accumulators are clean again. */
        x = 1;
        target = 2;
        REQUIRE_OK(sl_run_step(r.run, &batch, 2, 0.1));
        REQUIRE_OK(sl_run_step_result(r.run, &result));
        CHECK(isfinite(result.gradient_norm) && r.params->optimizer_steps == 2);
        CHECK(sli_run_first_bad_gradient(r.run) == NULL);
        free_rig(&r);
    }
    sl_model_free(model);
}

/* A step that was queued behind one that is skipped has the number of the step that did not happen. */
TEST(run_steps_behind_a_skipped_one_are_counted_right) {
    static const float xs[] = {1, 3e38f, 1, 2};
    enum { COUNT = sizeof xs / sizeof *xs };
    sl_model *model;
    sl_dense dense = {.units = 1, .kernel_init = {SL_INIT_CONSTANT, 10}, .no_bias = 1};
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 1, 1));
    REQUIRE_OK(sl_model_add_dense(model, "first", &dense, NULL));
    for (int clip = SL_CLIP_NONE; clip <= SL_CLIP_GLOBAL_NORM; clip++) {
        const sl_plan_options options = {
            .train = 1, .loss = SL_LOSS_MSE, .optimizer = {.kind = SL_ADAM}, .clip = {(sl_clip_kind)clip, 1e6}};
        double kernel[2];
        for (int late = 0; late < 2; late++) {
            rig r = make_rig(model, options);
            const int depth = late ? sl_run_depth(r.run) : 1;
            for (int k = 0, collected = 0; collected < COUNT; collected++) {
                for (; k < COUNT && k - collected < depth; k++) {
                    const void *inputs[] = {&xs[k]};
                    float target = 1;
                    sl_batch batch = {.batch = 1, .steps = 1, .inputs = inputs, .targets = &target};
                    REQUIRE_OK(sl_run_step(r.run, &batch, (uint32_t)k, 0.1));
                }
                sl_result result;
                REQUIRE_OK(sl_run_step_result(r.run, &result));
                CHECK(!isfinite(result.gradient_norm) == (collected == 1));
            }
            CHECK(r.params->optimizer_steps == COUNT - 1);
            REQUIRE_OK(sl_params_get(r.params, "first.kernel", &kernel[late], 1));
            free_rig(&r);
        }
        CHECK(kernel[0] == kernel[1]);
        CHECK_NEAR(kernel[0], 9.71463203, 1e-3);
    }
    sl_model_free(model);
}

/* --------------------------------------------------------------------------------------- uploads and recordings -- */
static int uploads, recordings, submissions, live_recordings, unbooked; /* tests run one after another */
static const sli_device_ops *real_ops;

static sl_status count_upload(sli_queue *queue, void *to, const void *source, size_t bytes) {
    uploads++;
    return real_ops->upload(queue, to, source, bytes);
}
static sl_status count_submit(sli_queue *queue, sli_kernel_fn function, const sli_call *call) {
    submissions++;
    if (!call->scratch != !call->scratch_bytes || !call->saved != !call->saved_bytes) unbooked++;
    return real_ops->submit(queue, function, call);
}
static sl_status count_record(sli_queue *queue) {
    recordings++;
    live_recordings++;
    return real_ops->record_begin(queue);
}
static void count_free(sli_queue *queue, sli_recording *recording) {
    live_recordings--;
    real_ops->recording_free(queue, recording);
}

/* The far device under a count. */
static void count_ops(rig *r, sli_device_ops *counted) {
    real_ops = r->plan->ops;
    *counted = *real_ops;
    counted->upload = count_upload;
    counted->submit = count_submit;
    counted->record_begin = count_record;
    counted->recording_free = count_free;
    r->plan->ops = counted;
    uploads = recordings = submissions = live_recordings = unbooked = 0;
}

TEST(run_replays_submit_nothing_and_upload_what_changed) {
    sl_model *model = language_model();
    rig r = make_rig_on(model, training_options, "far");
    sli_device_ops counted;
    batch_data d;
    sl_result result;
    count_ops(&r, &counted);
    for (int k = 0; k < 3; k++) {
        int uploaded = uploads, submitted = submissions;
        fill_batch(&d, k, B, T);
        REQUIRE_OK(sl_run_step(r.run, &d.batch, (uint32_t)k, 0.05));
        REQUIRE_OK(sl_run_step_result(r.run, &result));
        CHECK(uploads - uploaded == 4); /* tokens, labels, lengths, scalars */
        CHECK((submissions > submitted) == (k == 0));
    }
    CHECK(recordings == 1);
    for (int k = 0; k < 3; k++) {
        int uploaded = uploads, submitted = submissions;
        REQUIRE_OK(sl_run_evaluate(r.run, &d.batch, &result));
        CHECK(uploads - uploaded == 3); /* the scalars are there already */
        CHECK((submissions > submitted) == (k == 0));
    }
    CHECK(recordings == 2);
    fill_batch(&d, 0, B, T - 1);
    int submitted = submissions;
    REQUIRE_OK(sl_run_evaluate(r.run, &d.batch, &result)); /* not of full size */
    CHECK(recordings == 2 && submissions > submitted && unbooked == 0);
    CHECK(live_recordings == 2);
    sl_run_free(r.run);
    CHECK(live_recordings == 0);
    r.run = NULL;
    r.plan->ops = real_ops;
    free_rig(&r);
    /* Streaming: one step a call. */
    r = make_rig_on(model, (sl_plan_options){.batch = 1, .steps = 1}, "far");
    count_ops(&r, &counted);
    for (int k = 0; k < 4; k++) {
        int uploaded = uploads;
        submitted = submissions;
        float y[V];
        fill_batch(&d, k, 1, 1);
        d.batch.lengths = NULL;
        d.batch.targets = NULL;
        REQUIRE_OK(sl_run_forward(r.run, &d.batch));
        REQUIRE_OK(sl_run_output(r.run, NULL, y, V));
        CHECK(uploads - uploaded == (k == 0 ? 2 : 1) && (submissions > submitted) == (k == 0));
    }
    CHECK(recordings == 1);
    sl_run_free(r.run);
    r.run = NULL;
    r.plan->ops = real_ops;
    free_rig(&r);
    sl_model_free(model);
}

static sl_status fail_submit(sli_queue *queue, sli_kernel_fn function, const sli_call *call) {
    (void)queue;
    (void)function;
    (void)call;
    return sli_fail(SL_ERR_DEVICE, "the device fell off");
}

/* A recording that fails is ended, and its reason is told; the next call records anew. */
TEST(run_recording_that_fails_is_ended) {
    sl_model *model = language_model();
    rig r = make_rig_on(model, training_options, "far"), good = make_rig_on(model, training_options, "far");
    sli_device_ops failing;
    batch_data d;
    sl_result a, b;
    fill_batch(&d, 0, B, T);
    count_ops(&r, &failing);
    failing.submit = fail_submit;
    CHECK_FAILS(sl_run_step(r.run, &d.batch, 0, 0.1), SL_ERR_DEVICE, "the device fell off");
    CHECK(recordings == 1 && live_recordings == 0 && r.params->optimizer_steps == 0);
    failing.submit = count_submit;
    REQUIRE_OK(sl_run_step(r.run, &d.batch, 0, 0.1));
    REQUIRE_OK(sl_run_step_result(r.run, &a));
    REQUIRE_OK(sl_run_step(good.run, &d.batch, 0, 0.1));
    REQUIRE_OK(sl_run_step_result(good.run, &b));
    CHECK(memcmp(&a, &b, sizeof a) == 0);
    r.plan->ops = real_ops;
    same_params(&r, &good);
    free_rig(&r);
    free_rig(&good);
    sl_model_free(model);
}

/* ------------------------------------------------------------------------------------------------ loss scaling -- */
/* No row of a CPU computes f16. A plan that says f16 above f32 problems has everything of loss scaling but what the rows of a
 * GPU do with it: gradients are not multiplied, so what is read back is divided. */
static void turn_into_f16(sl_plan *plan) {
    sl_memory before, after;
    sl_plan_memory(plan, &before);
    plan->options.dtype = SL_F16;
    REQUIRE_OK(sli_plan_place(plan, plan->segment_steps));
    sl_plan_memory(plan, &after);
    CHECK(after.params_block == before.params_block + SLI_ALIGN);
    CHECK(after.params_block == after.parameters + after.optimizer + after.packed);
}

TEST(run_loss_scaling_is_kept_beside_the_parameters) {
    sl_model *model = language_model();
    rig plain = make_rig_on(model, training_options, "far"), r = {0};
    sl_plan_options options = training_options;
    options.device = "far";
    REQUIRE_OK(sl_plan_new(model, &options, &r.plan));
    turn_into_f16(r.plan);
    REQUIRE_OK(sl_params_new(r.plan, &r.params));
    REQUIRE_OK(sl_params_init(r.params, 3));
    REQUIRE_OK(sl_run_new(r.plan, r.params, &r.run));
    REQUIRE_OK(sl_run_set_seed(r.run, 8));
    sli_scaling scaling;
    REQUIRE_OK(sli_params_scaling_get(r.params, &scaling));
    CHECK(scaling.scale == 65536 && scaling.good == 0 && scaling.skipped == 0);
    CHECK(!sli_params_scaling_at(plain.params));
    CHECK_FAILS(sli_params_scaling_get(plain.params, &scaling), SL_ERR_USAGE, "f16");
    scaling = (sli_scaling){.scale = 1024, .good = 5, .skipped = 3};
    batch_data d;
    sl_result a, b;
    double x[V * 6], y[V * 6];
    fill_batch(&d, 0, B, T);
    REQUIRE_OK(sl_run_gradients(plain.run, &d.batch, NULL, 0, 0, 1, &a));
    REQUIRE_OK(sl_run_gradient(plain.run, "logits.kernel", x, V * 6));
    for (int k = 0; k < 2; k++) {
        if (k) REQUIRE_OK(sli_params_scaling_set(r.params, &scaling));
        REQUIRE_OK(sl_run_zero_gradients(r.run));
        REQUIRE_OK(sl_run_gradients(r.run, &d.batch, NULL, 0, 0, 1, &b));
        CHECK(a.loss == b.loss && b.loss_scale == (k ? 1024 : 65536) && b.skipped_steps == (k ? 3 : 0));
        REQUIRE_OK(sl_run_gradient(r.run, "logits.kernel", y, V * 6));
        for (int i = 0; i < V * 6; i++) CHECK(y[i] * (k ? 1024 : 65536) == x[i]);
        REQUIRE_OK(sl_run_reset_state(r.run));
    }
    REQUIRE_OK(sl_run_zero_gradients(r.run));
    REQUIRE_OK(sl_run_step(r.run, &d.batch, 0, 0.1));
    REQUIRE_OK(sl_run_step_result(r.run, &b));
    CHECK(b.loss_scale == 1024 && b.skipped_steps == 3 && b.gradient_norm > 0);
    REQUIRE_OK(sl_run_update(r.run, 0.1, &b));
    CHECK(b.loss_scale == 1024 && b.skipped_steps == 3);
    free_rig(&plain);
    free_rig(&r);
    sl_model_free(model);
}

/* y = w x, trained to a target so far away that the scaled gradient does not fit f16. */
TEST(run_f16_finds_its_loss_scale) {
    if (strncmp(test_device, "cuda", 4) != 0) test_skip("device %s does not compute f16", test_device);
    sl_model *model;
    sl_dense dense = {.units = 1, .kernel_init = {SL_INIT_ZEROS, 0}};
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 1, 1));
    REQUIRE_OK(sl_model_add_dense(model, "only", &dense, NULL));
    sl_plan_options options = {.train = 1, .dtype = SL_F16, .loss = SL_LOSS_MSE, .optimizer = {.kind = SL_ADAM}};
    rig r = make_rig(model, options);
    float x = 1, target = 3000;
    const void *inputs[] = {&x};
    sl_batch batch = {.batch = 1, .steps = 1, .inputs = inputs, .targets = &target};
    double kernel = 1;
    for (int k = 0; k < 40; k++) {
        sl_result result;
        REQUIRE_OK(sl_run_step(r.run, &batch, (uint32_t)k, 0.1));
        REQUIRE_OK(sl_run_step_result(r.run, &result));
        CHECK(isfinite(result.loss) && isfinite(result.gradient_norm) == (result.skipped_steps < k + 1));
        CHECK(result.loss_scale == 65536 / pow(2, result.skipped_steps));
        if (k == 0) CHECK(result.skipped_steps == 1);
        if (k == 39) CHECK(result.skipped_steps >= 5 && result.skipped_steps < 20);
        REQUIRE_OK(sl_params_get(r.params, "only.kernel", &kernel, 1));
        CHECK((fabs(kernel) > 0) == (result.skipped_steps < k + 1));
    }
    free_rig(&r);
    sl_model_free(model);
}

TEST(run_profiles_say_where_they_cannot) {
    sl_model *model = language_model();
    rig r = make_rig_on(model, training_options, "far");
    double seconds[SLI_PHASE_COUNT];
    CHECK_FAILS(sli_run_profile_begin(r.run), SL_ERR_DEVICE, "far");
    CHECK_FAILS(sli_run_profile_end(r.run, seconds), SL_ERR_DEVICE, "far");
    CHECK(seconds[SLI_PHASE_OTHER] == 0);
    free_rig(&r);
    sl_model_free(model);
}
