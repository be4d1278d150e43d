/* The fit loop: what it computes, in which order, when it stops; the same bits for any number of threads. */
#include "test.h"
#include "core/run.h"
#include "train/train_helpers.h"
#include "train/trainer.h"

TEST(fit_learns_and_counts_its_steps) {
    sl_model *model = helper_model(0);
    sl_dataset data = helper_data(HELPER_TOKENS);
    sl_training training = helper_training(12);
    helper_record r = {0};
    training.valid_fraction = 0.1; /* 42 tokens; 378 / 3 = 126: 125 positions, 25 blocks */
    sl_trainer *trainer = helper_trainer(model, &training, &data, NULL);
    sl_model_free(model); /* the trainer has its own */
    REQUIRE_OK(sl_trainer_fit(trainer, helper_listen, &r));
    CHECK(r.steps == 12 * 25 && r.epochs == 12 && r.evaluations == 12 && r.checkpoints == 0);
    CHECK(r.last.step == 300 && r.last.total_steps == 300 && r.last.epoch == 12 && r.last.total_epochs == 12);
    CHECK(r.last.tokens == 12 * 3 * 125);
    CHECK(fabs(r.losses[0] - log(HELPER_VOCABULARY)) < 0.2); /* nothing learnt yet: uniform */
    CHECK(r.valid[11] < 1.3);                                /* the chain's entropy is about 1.05 nats */
    CHECK(r.valid[11] < r.valid[0]);
    CHECK_NEAR(r.last.perplexity, exp(r.last.valid_loss), 1e-12);
    CHECK(r.last.memory_bytes > 0 && r.last.kernel && r.last.kernel[0]);
    CHECK(r.last.gradient_norm > 0);
    sl_trainer_free(trainer);
}

TEST(fit_partial_blocks_and_dropping_them) {
    sl_model *model = helper_model(0);
    sl_training training = helper_training(1);
    sl_dataset data = helper_data(100); /* streams of 33: 32 positions: 6 blocks of 5 and one of 2 */
    helper_record all = {0}, dropped = {0};
    sl_trainer *trainer = helper_trainer(model, &training, &data, NULL);
    REQUIRE_OK(sl_trainer_fit(trainer, helper_listen, &all));
    sl_trainer_free(trainer);
    training.drop_partial = 1;
    trainer = helper_trainer(model, &training, &data, NULL);
    REQUIRE_OK(sl_trainer_fit(trainer, helper_listen, &dropped));
    sl_trainer_free(trainer);
    CHECK(all.steps == 7 && dropped.steps == 6);
    CHECK(all.last.tokens == 96 && dropped.last.tokens == 90);
    CHECK(memcmp(all.losses, dropped.losses, 6 * sizeof(double)) == 0);
    sl_model_free(model);
}

static void loop_backwards(void *calls, int count, void (*task)(void *context, int index), void *context) {
    ++*(int *)calls;
    for (int i = count - 1; i >= 0; i--) task(context, i);
}

TEST(fit_same_seed_any_threads_same_bits) {
    sl_model *model = helper_model(0.4);
    sl_dataset data = helper_data(300);
    sl_training training = helper_training(2);
    sl_trainer *trainers[5];
    helper_record records[5];
    int calls = 0;
    const sl_thread_pool pool = {loop_backwards, &calls};
    memset(records, 0, sizeof records);
    for (int i = 0; i < 5; i++) {
        training.threads = i < 3 ? 1 + 2 * i : i == 4 ? 1 : 4;
        training.thread_pool = i == 3 ? &pool : NULL;
        training.seed = i < 4 ? 5 : 6;
        trainers[i] = helper_trainer(model, &training, &data, NULL);
        REQUIRE_OK(sl_trainer_fit(trainers[i], helper_listen, &records[i]));
    }
    for (int i = 1; i < 4; i++) {
        CHECK(helper_same_params(trainers[0], trainers[i]));
        CHECK(memcmp(records[0].losses, records[i].losses, (size_t)records[0].steps * sizeof(double)) == 0);
    }
    CHECK(!helper_same_params(trainers[0], trainers[4]));
    CHECK(calls > 0 || strcmp(test_device, "cpu") != 0);
    for (int i = 0; i < 5; i++) sl_trainer_free(trainers[i]);
    sl_model_free(model);
}

/* What --print-model prints, trained, gives the same bits. */
TEST(fit_of_the_printed_description_is_the_same) {
    sl_model *model = NULL, *again = NULL;
    sl_training training, read;
    const char *text = NULL;
    helper_record a = {0}, b = {0};
    sl_dataset data = helper_data(HELPER_TOKENS);
    REQUIRE_OK(sl_preset(NULL, "char-rnn", HELPER_VOCABULARY, &model, &training));
    training.batch = 4;
    training.steps = 5;
    training.epochs = 2;
    training.seed = (uint64_t)1 << 63;
    REQUIRE_OK(sl_training_to_json(model, &training, NULL, &text));
    REQUIRE_OK(sl_model_from_json(NULL, text, strlen(text), &again));
    REQUIRE_OK(sl_training_from_json(text, strlen(text), &read));
    training.device = read.device = test_device;
    sl_trainer *x = helper_trainer(model, &training, &data, NULL), *y = helper_trainer(again, &read, &data, NULL);
    REQUIRE_OK(sl_trainer_fit(x, helper_listen, &a));
    REQUIRE_OK(sl_trainer_fit(y, helper_listen, &b));
    CHECK(a.steps == 2 * 19 && b.steps == a.steps && a.evaluations == 2);
    CHECK(memcmp(a.losses, b.losses, (size_t)a.steps * sizeof(double)) == 0);
    CHECK(memcmp(a.valid, b.valid, (size_t)a.evaluations * sizeof(double)) == 0);
    CHECK(helper_same_params(x, y));
    sl_trainer_free(x);
    sl_trainer_free(y);
    sl_model_free(model);
    sl_model_free(again);
}

/* Micro-batches add up to the gradient of the whole batch: without dropout the losses agree to rounding. */
TEST(fit_accumulates_micro_batches) {
    sl_model *model = helper_model(0);
    sl_dataset data = helper_data(200);
    sl_training training = helper_training(3);
    helper_record whole = {0}, split = {0};
    training.batch = 4;
    training.valid_fraction = 0.1;
    training.split = SL_SPLIT_BLOCKS;
    training.optimizer = (sl_optimizer){.kind = SL_SGD, .momentum = 0.9};
    training.learning_rate = 0.5;
    for (int reduction = SL_REDUCE_MEAN; reduction <= SL_REDUCE_SUM_TIME; reduction++) {
        training.reduction = (sl_reduction)reduction;
        memset(&whole, 0, sizeof whole);
        memset(&split, 0, sizeof split);
        training.accumulate = 1;
        sl_trainer *a = helper_trainer(model, &training, &data, NULL);
        REQUIRE_OK(sl_trainer_fit(a, helper_listen, &whole));
        training.accumulate = 2;
        sl_trainer *b = helper_trainer(model, &training, &data, NULL);
        REQUIRE_OK(sl_trainer_fit(b, helper_listen, &split));
        CHECK(whole.steps == split.steps && whole.steps > 20);
        for (int i = 0; i < whole.steps; i++) CHECK_NEAR(split.losses[i], whole.losses[i], 1e-4);
        for (int i = 0; i < whole.evaluations; i++) CHECK_NEAR(split.valid[i], whole.valid[i], 1e-4);
        sl_trainer_free(a);
        sl_trainer_free(b);
    }
    sl_model_free(model);
}

TEST(fit_stops_early_and_divides_on_a_plateau) {
    sl_model *model = helper_model(0);
    sl_dataset data = helper_data(120);
    sl_training training = helper_training(40);
    helper_record r = {0};
    training.valid_fraction = 0.2;
    training.patience = 4;
    training.learning_rate = 0.05; /* 96 tokens are learnt by heart soon, and validation gets worse */
    training.schedule = (sl_schedule){.kind = SL_SCHEDULE_PLATEAU, .factor = 2};
    sl_trainer *trainer = helper_trainer(model, &training, &data, NULL);
    REQUIRE_OK(sl_trainer_fit(trainer, helper_listen, &r));
    CHECK(r.early_stops == 1 && r.epochs < 40 && r.epochs == r.evaluations);
    int best = 0, worse = 0, steps = r.steps / r.epochs;
    for (int i = 0; i < r.evaluations; i++) {
        CHECK(r.rates[i * steps] == 0.05 / pow(2, worse)); /* during epoch i */
        if (r.valid[i] < r.valid[best] || i == 0)
            best = i;
        else
            worse++;
    }
    CHECK(best == r.epochs - 5);
    CHECK(r.last.best_loss == r.valid[best]);
    /* Nothing is left to do. */
    helper_record again = {0};
    REQUIRE_OK(sl_trainer_fit(trainer, helper_listen, &again));
    CHECK(again.steps == 0);
    sl_trainer_free(trainer);
    sl_model_free(model);
}

TEST(fit_answers_are_obeyed) {
    sl_model *model = helper_model(0);
    sl_dataset data = helper_data(300);
    sl_training training = helper_training(3);
    training.valid_fraction = 0.1;
    const char *path = helper_path("answers.sluice");
    helper_record stop = {.stop_at = 4}, abort = {.stop_at = 4, .answer = SL_ABORT};
    sl_trainer *trainer = helper_trainer(model, &training, &data, path);
    REQUIRE_OK(sl_trainer_fit(trainer, helper_listen, &stop));
    CHECK(stop.steps == 3 + helper_depth() && stop.stops == 1 && stop.evaluations == 1 && stop.checkpoints == 2);
    sl_trainer_free(trainer);
    trainer = helper_trainer(model, &training, &data, path);
    CHECK_FAILS(sl_trainer_fit(trainer, helper_listen, &abort), SL_ERR_CANCELLED, "step 4");
    CHECK(abort.steps == 4 && abort.evaluations == 0);
    sl_trainer_free(trainer);
    training.max_minutes = 1e-9;
    helper_record timed = {0};
    trainer = helper_trainer(model, &training, &data, NULL);
    REQUIRE_OK(sl_trainer_fit(trainer, helper_listen, &timed));
    CHECK(timed.steps == 1 && timed.stops == 1 && timed.evaluations == 1);
    sl_trainer_free(trainer);
    sl_model_free(model);
}

/* What happened, in order. */
typedef struct event_list {
    int count;
    struct {
        char name[16];
        int64_t step;
        int epoch;
        double loss, norm, rate, valid;
    } events[300];
} event_list;

static sl_answer list_event(void *context, const sl_progress *p) {
    event_list *list = context;
    REQUIRE(list->count < 300);
    snprintf(list->events[list->count].name, sizeof list->events[0].name, "%s", p->event);
    list->events[list->count].step = p->step;
    list->events[list->count].epoch = p->epoch;
    list->events[list->count].loss = p->loss;
    list->events[list->count].norm = p->gradient_norm;
    list->events[list->count].rate = p->learning_rate;
    list->events[list->count].valid = isnan(p->valid_loss) ? -1 : p->valid_loss;
    list->count++;
    CHECK(p->loss_scale == 0 && p->skipped_steps == 0);
    return SL_CONTINUE;
}

/* Two steps under way or one: the same numbers, told in the same order. */
TEST(fit_ahead_of_its_results_is_the_same) {
    static event_list lists[2];
    static const char *const devices[2] = {"cpu", "far"};
    sl_model *model = helper_model(0.3);
    for (int accumulate = 1; accumulate < 4; accumulate += 2) {
        sl_dataset data = helper_data(260);
        sl_training training = helper_training(3);
        training.valid_fraction = 0.2;
        training.accumulate = accumulate;
        training.schedule = (sl_schedule){.kind = SL_SCHEDULE_EXPONENTIAL, .factor = 0.9, .every = 3};
        sl_trainer *trainers[2];
        memset(lists, 0, sizeof lists);
        for (int i = 0; i < 2; i++) {
            training.device = devices[i];
            trainers[i] = helper_trainer(model, &training, &data, helper_path(devices[i]));
            REQUIRE_OK(sl_trainer_fit(trainers[i], list_event, &lists[i]));
        }
        CHECK(lists[0].count == lists[1].count && lists[0].count > 40);
        CHECK(memcmp(&lists[0], &lists[1], sizeof lists[0]) == 0);
        CHECK(helper_same_params(trainers[0], trainers[1]));
        sl_trainer_free(trainers[0]);
        sl_trainer_free(trainers[1]);
    }
    sl_model_free(model);
}

/* Abandoned with a step under way, training goes on after it. */
TEST(fit_goes_on_after_an_abort) {
    sl_model *model = helper_model(0);
    sl_dataset data = helper_data(300);
    sl_training training = helper_training(2);
    static helper_record whole, first, second;
    memset(&whole, 0, sizeof whole);
    memset(&second, 0, sizeof second);
    first = (helper_record){.stop_at = 6, .answer = SL_ABORT};
    sl_trainer *a = helper_trainer(model, &training, &data, NULL), *b = helper_trainer(model, &training, &data, NULL);
    REQUIRE_OK(sl_trainer_fit(a, helper_listen, &whole));
    CHECK_FAILS(sl_trainer_fit(b, helper_listen, &first), SL_ERR_CANCELLED, "step 6");
    REQUIRE_OK(sl_trainer_fit(b, helper_listen, &second));
    CHECK(first.steps == 6 && second.steps == whole.steps - 5 - helper_depth());
    CHECK(second.last.step == whole.last.step && second.last.loss == whole.last.loss);
    CHECK(helper_same_params(a, b));
    sl_trainer_free(a);
    sl_trainer_free(b);
    sl_model_free(model);
}

/* Gradients whose squares are beyond f32 leave Adam where it is for ever: that is told, unless they are clipped. */
TEST(fit_tells_gradients_that_adam_cannot_square) {
    float x[2] = {1e12f, 1e12f}, y[2] = {1e12f, 1e12f};
    sl_array xa = {SL_ARRAY_F32, 2, {2, 1}, x, sizeof x, {0}}, ya = {SL_ARRAY_F32, 2, {2, 1}, y, sizeof y, {0}};
    sl_dataset data = {.x = &xa, .y = &ya};
    sl_model *model = NULL;
    sl_dense dense = {.units = 1, .kernel_init = {SL_INIT_ZEROS, 0}};
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 1, 1));
    REQUIRE_OK(sl_model_add_dense(model, "only", &dense, NULL));
    for (int i = 0; i < 3; i++) {
        sl_training training = {.loss = SL_LOSS_MSE, .device = test_device, .batch = 2, .epochs = 1};
        sl_trainer *trainer = NULL;
        training.optimizer.kind = i < 2 ? SL_ADAM : SL_SGD;
        training.learning_rate = i < 2 ? 0 : 1e-30;
        if (i == 1) training.clip = (sl_clip){.kind = SL_CLIP_GLOBAL_NORM, .value = 1};
        REQUIRE_OK(sl_trainer_new(model, &training, &data, NULL, NULL, NULL, &trainer));
        if (i == 0)
            CHECK_FAILS(sl_trainer_fit(trainer, NULL, NULL), SL_ERR_NUMBERS, "step 1: the gradient's norm is");
        else
            REQUIRE_OK(sl_trainer_fit(trainer, NULL, NULL));
        sl_trainer_free(trainer);
    }
    sl_model_free(model);
}

/* The loss is finite, its gradient is not: the layer is named whose gradient it is. */
TEST(fit_names_the_layer_of_a_bad_gradient) {
    float x[2] = {1e25f, 1e25f}, y[2] = {1e18f, 1e18f};
    sl_array xa = {SL_ARRAY_F32, 2, {2, 1}, x, sizeof x, {0}}, ya = {SL_ARRAY_F32, 2, {2, 1}, y, sizeof y, {0}};
    sl_dataset data = {.x = &xa, .y = &ya};
    sl_training training = {.loss = SL_LOSS_MSE, .device = test_device, .batch = 2, .epochs = 1};
    sl_model *model = NULL;
    sl_trainer *trainer = NULL;
    sl_dense dense = {.units = 1, .kernel_init = {SL_INIT_ZEROS, 0}};
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 1, 1));
    REQUIRE_OK(sl_model_add_dense(model, "only", &dense, NULL));
    REQUIRE_OK(sl_trainer_new(model, &training, &data, NULL, NULL, NULL, &trainer));
    CHECK_FAILS(sl_trainer_fit(trainer, NULL, NULL), SL_ERR_NUMBERS, "step 1: the gradient's norm is");
    CHECK(strstr(sl_error_detail(), "the first such gradient is of layer only"));
    sl_trainer_free(trainer);
    sl_model_free(model);
}

/* No row of a CPU computes f16. A trainer whose plan says so above f32 rows has the loss scaling around them: gradients that
 * overflow are left out, as a GPU does it, and training goes on until the scale is as good as nothing. */
static void turn_into_f16(sl_trainer *t) {
    sl_run_free(t->run);
    sl_params_free(t->params);
    t->run = NULL;
    t->params = NULL;
    t->plan->options.dtype = SL_F16;
    REQUIRE_OK(sli_plan_place(t->plan, t->plan->segment_steps));
    REQUIRE_OK(sl_params_new(t->plan, &t->params));
    REQUIRE_OK(sli_params_init(t->params, 1, 0));
    REQUIRE_OK(sl_run_new(t->plan, t->params, &t->run));
}

TEST(fit_goes_on_when_scaled_gradients_overflow) {
    float x[6] = {1, 2, 1e25f, 1, 2, 3}, y[6] = {1, 2, 1e18f, 1, 2, 3}; /* a batch each */
    sl_array xa = {SL_ARRAY_F32, 2, {6, 1}, x, sizeof x, {0}}, ya = {SL_ARRAY_F32, 2, {6, 1}, y, sizeof y, {0}};
    sl_dataset data = {.x = &xa, .y = &ya};
    sl_training training = {.loss = SL_LOSS_MSE, .device = "far", .batch = 1, .epochs = 1};
    sl_model *model = NULL;
    sl_trainer *trainer = NULL, *resumed = NULL;
    helper_record r = {0};
    sl_dense dense = {.units = 1, .kernel_init = {SL_INIT_ZEROS, 0}};
    const char *path = helper_path("scaled.sluice");
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 1, 1));
    REQUIRE_OK(sl_model_add_dense(model, "only", &dense, NULL));
    training.learning_rate = 1e-10; /* the kernel stays so small that the third loss is finite */
    REQUIRE_OK(sl_trainer_new(model, &training, &data, NULL, path, NULL, &trainer));
    turn_into_f16(trainer);
    sli_scaling scaling = {.scale = 2048, .good = 7, .skipped = 2}, read;
    REQUIRE_OK(sli_params_scaling_set(trainer->params, &scaling));
    REQUIRE_OK(sl_trainer_fit(trainer, helper_listen, &r));
    CHECK(r.steps == 6 && r.last.loss_scale == 2048 && r.last.skipped_steps == 2);
    CHECK(trainer->params->optimizer_steps == 6); /* the device knows which ones did not happen */
    /* The scale is in the checkpoint. */
    REQUIRE_OK(sl_trainer_new(model, &training, &data, NULL, path, NULL, &resumed));
    turn_into_f16(resumed);
    REQUIRE_OK(sl_trainer_resume(resumed));
    REQUIRE_OK(sli_params_scaling_get(resumed->params, &read));
    CHECK(read.scale == 2048 && read.good == 7 && read.skipped == 2);
    sl_trainer_free(resumed);
    sl_trainer_free(trainer);
    REQUIRE_OK(sl_trainer_new(model, &training, &data, NULL, NULL, NULL, &trainer));
    turn_into_f16(trainer);
    scaling.scale = 1.0 / 32768;
    REQUIRE_OK(sli_params_scaling_set(trainer->params, &scaling));
    CHECK_FAILS(sl_trainer_fit(trainer, NULL, NULL), SL_ERR_NUMBERS, "step 3: the gradient's norm is");
    sl_trainer_free(trainer);
    sl_model_free(model);
}

TEST(fit_stops_on_numbers_that_are_not_finite) {
    sl_model *model = helper_model(0);
    sl_dataset data = helper_data(300);
    sl_training training = helper_training(3);
    const char *path = helper_path("nan.sluice");
    helper_record r = {.stop_at = 4}, after = {0};
    double bias[7] = {0, 0, 0, NAN};
    sl_trainer *trainer = helper_trainer(model, &training, &data, path);
    REQUIRE_OK(sl_trainer_fit(trainer, helper_listen, &r));
    sl_file *file = NULL;
    REQUIRE_OK(sl_params_set(sl_trainer_params(trainer), "logits.bias", bias, 7));
    CHECK_FAILS(sl_trainer_fit(trainer, helper_listen, &after), SL_ERR_NUMBERS, "--lr");
    char step[40], saved[40];
    snprintf(step, sizeof step, "step %d", 4 + helper_depth());
    snprintf(saved, sizeof saved, "nan.sluice (of step %d)", 3 + helper_depth());
    CHECK(strstr(sl_error_detail(), step) && strstr(sl_error_detail(), "logits"));
    CHECK(strstr(sl_error_detail(), "already, is ") && strstr(sl_error_detail(), saved));
    CHECK(after.steps == 0 && after.checkpoints == 0);
    sl_trainer_free(trainer);
    /* Nothing was written yet, although the path is known: no checkpoint is named. */
    trainer = helper_trainer(model, &training, &data, helper_path("nan2.sluice"));
    REQUIRE_OK(sl_params_set(sl_trainer_params(trainer), "logits.bias", bias, 7));
    CHECK_FAILS(sl_trainer_fit(trainer, helper_listen, &after), SL_ERR_NUMBERS, "step 1");
    CHECK(!strstr(sl_error_detail(), "checkpoint"));
    sl_trainer_free(trainer);
    /* The file of before is whole, and without the NaN. */
    REQUIRE_OK(sl_file_open(NULL, path, &file));
    sl_file_close(file);
    trainer = helper_trainer(model, &training, &data, path);
    REQUIRE_OK(sl_trainer_resume(trainer));
    REQUIRE_OK(sl_trainer_fit(trainer, helper_listen, &after));
    CHECK(isfinite(after.last.loss));
    sl_trainer_free(trainer);
    sl_model_free(model);
}

/* Steps that were queued behind the one with bad numbers do not hide where those came from. */
TEST(fit_names_the_layer_of_the_step_that_failed) {
    float x[4] = {1, 2, 3e38f, 1}, y[4] = {1, 2, 3, 4}; /* a batch each */
    sl_array xa = {SL_ARRAY_F32, 2, {4, 1}, x, sizeof x, {0}}, ya = {SL_ARRAY_F32, 2, {4, 1}, y, sizeof y, {0}};
    sl_dataset data = {.x = &xa, .y = &ya};
    sl_model *model = NULL;
    sl_trainer *trainer = NULL;
    sl_dense dense = {.units = 1, .kernel_init = {SL_INIT_ONES, 0}}, wide = {.units = 1};
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 1, 1));
    REQUIRE_OK(sl_model_add_dense(model, "first", &dense, NULL));
    REQUIRE_OK(sl_model_add_dense(model, "second", &wide, NULL));
    const char *const devices[2] = {test_device, "far"};
    for (int k = 0; k < 2; k++) {
        sl_training training = {.loss = SL_LOSS_MSE, .device = devices[k], .batch = 1, .epochs = 1};
        double large = 10;
        training.learning_rate = 1e-30;
        REQUIRE_OK(sl_trainer_new(model, &training, &data, NULL, NULL, NULL, &trainer));
        REQUIRE_OK(sl_params_set(sl_trainer_params(trainer), "second.kernel", &large, 1));
        CHECK_FAILS(sl_trainer_fit(trainer, NULL, NULL), SL_ERR_NUMBERS, "step 3");
        CHECK(strstr(sl_error_detail(), "out of layer second"));
        sl_trainer_free(trainer);
    }
    sl_model_free(model);
}

/* A Keras classifier's last activation would be applied twice. */
TEST(fit_refuses_an_activation_before_a_loss_on_logits) {
    float x[4] = {1, 2, 3, 4}, y[2] = {0, 1};
    sl_array xa = {SL_ARRAY_F32, 2, {2, 2}, x, sizeof x, {0}}, ya = {SL_ARRAY_F32, 2, {2, 1}, y, sizeof y, {0}};
    sl_dataset data = {.x = &xa, .y = &ya};
    sl_training training = {.loss = SL_LOSS_BINARY, .device = test_device};
    for (int dropout = 0; dropout < 2; dropout++) {
        sl_model *model = NULL;
        sl_trainer *trainer = NULL;
        sl_dense dense = {.units = 1, .activation = SL_ACT_SIGMOID};
        REQUIRE_OK(sl_model_new(NULL, &model));
        REQUIRE_OK(sl_model_add_input(model, "x", 2, 1));
        REQUIRE_OK(sl_model_add_dense(model, "out", &dense, NULL));
        if (dropout) REQUIRE_OK(sl_model_add_dropout(model, "drop", 0.1, NULL));
        training.loss = SL_LOSS_BINARY;
        CHECK_FAILS(sl_trainer_new(model, &training, &data, NULL, NULL, NULL, &trainer), SL_ERR_INPUT,
                    "layer out: activation sigmoid, but the loss binary works on logits; set its activation to linear");
        training.loss = SL_LOSS_MSE;
        REQUIRE_OK(sl_trainer_new(model, &training, &data, NULL, NULL, NULL, &trainer));
        sl_trainer_free(trainer);
        sl_model_free(model);
    }
}

/* Parts of a batch in which not the same number of labels counts make the step of the whole batch. */
TEST(fit_accumulates_by_what_counts) {
    enum { N = 22, T = 5 };
    float x[N * T * 2];
    int32_t y[N * T], lengths[N];
    uint64_t state = 9;
    for (int i = 0; i < N * T * 2; i++) x[i] = (float)test_random(&state);
    for (int i = 0; i < N * T; i++) y[i] = i / T < N / 2 && i % 3 ? -1 : x[2 * i] > 0;
    for (int n = 0; n < N; n++) lengths[n] = n % 4 ? n % (T + 1) : T;
    sl_array xa = {SL_ARRAY_F32, 3, {N, T, 2}, x, sizeof x, {0}}, ya = {SL_ARRAY_I32, 2, {N, T}, y, sizeof y, {0}},
             la = {SL_ARRAY_I32, 1, {N}, lengths, sizeof lengths, {0}};
    sl_dataset data = {.x = &xa, .y = &ya, .lengths = &la};
    sl_model *model = NULL;
    sl_recurrent lstm = {.units = 8, .return_sequences = 1};
    sl_dense dense = {.units = 2};
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 2, 0));
    REQUIRE_OK(sl_model_add_recurrent(model, "lstm", SL_LSTM, &lstm, NULL));
    REQUIRE_OK(sl_model_add_dense(model, "classes", &dense, NULL));
    for (int reduction = SL_REDUCE_MEAN; reduction <= SL_REDUCE_SUM_TIME; reduction++) {
        helper_record records[2] = {{0}, {0}};
        for (int k = 0; k < 2; k++) {
            sl_training training = {.batch = 16, .epochs = 20, .learning_rate = 0.3, .loss = SL_LOSS_SOFTMAX};
            training.device = test_device;
            training.accumulate = k ? 4 : 1;
            training.reduction = (sl_reduction)reduction;
            sl_trainer *trainer = helper_trainer(model, &training, &data, NULL);
            REQUIRE_OK(sl_trainer_fit(trainer, helper_listen, &records[k]));
            sl_trainer_free(trainer);
        }
        for (int i = 0; i < records[0].steps; i++) CHECK_NEAR(records[1].losses[i], records[0].losses[i], 1e-4);
    }
    sl_model_free(model);
}

static bool is_stateful(const sl_file *file) {
    sl_model *stored = NULL;
    const char *json = NULL;
    REQUIRE_OK(sl_file_model(file, &stored));
    REQUIRE_OK(sl_model_to_json(stored, &json));
    const bool stateful = strstr(json, "\"stateful\": true") != NULL;
    sl_model_free(stored);
    return stateful;
}

/* Array data: softmax labels at the end of sequences of different lengths, shuffled, last batch partial. Rows begin from zeros, of a model that carries
 * states of streams as well. = the best loss. */
static double fit_arrays(int stateful) {
    enum { N = 50, T = 6 };
    float x[N * T * 2];
    int32_t y[N], lengths[N];
    uint64_t state = 4;
    for (int n = 0; n < N; n++) {
        double sum = 0;
        lengths[n] = 1 + n % T;
        for (int t = 0; t < T; t++)
            for (int f = 0; f < 2; f++) {
                double value = test_random(&state);
                x[(n * T + t) * 2 + f] = (float)value;
                if (f == 0 && t < lengths[n]) sum += value;
            }
        y[n] = sum > 0;
    }
    sl_array xa = {SL_ARRAY_F32, 3, {N, T, 2}, x, sizeof x, {0}}, ya = {SL_ARRAY_I32, 1, {N}, y, sizeof y, {0}},
             la = {SL_ARRAY_I32, 1, {N}, lengths, sizeof lengths, {0}};
    sl_dataset data = {.x = &xa, .y = &ya, .lengths = &la};
    sl_model *model = NULL;
    sl_recurrent lstm = {.units = 8, .stateful = stateful};
    sl_dense dense = {.units = 2};
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 2, 0));
    REQUIRE_OK(sl_model_add_recurrent(model, "lstm", SL_LSTM, &lstm, NULL));
    REQUIRE_OK(sl_model_add_dense(model, "classes", &dense, NULL));
    sl_training training = {.batch = 16,
                            .epochs = 30,
                            .optimizer = {.kind = SL_ADAM},
                            .learning_rate = 0.03,
                            .loss = SL_LOSS_SOFTMAX,
                            .shuffle = 1,
                            .device = test_device};
    sl_trainer *trainer = NULL;
    helper_record r = {0};
    const char *path = helper_path("arrays.sluice");
    REQUIRE_OK(sl_trainer_new(model, &training, &data, &data, path, NULL, &trainer));
    REQUIRE_OK(sl_trainer_fit(trainer, helper_listen, &r));
    CHECK(r.steps == 30 * 4);
    CHECK(r.valid[29] < 0.25 && r.valid[29] < r.valid[0]);
    CHECK(r.last.tokens == 30 * N * T);
    sl_trainer_free(trainer);
    /* The file scores the same by itself, in batches of any size. */
    sl_file *file = NULL;
    REQUIRE_OK(sl_file_open(NULL, path, &file));
    for (int batch = 0; batch <= N; batch += 7) {
        sl_plan_options options = {.device = test_device, .batch = batch};
        sl_result result;
        REQUIRE_OK(sl_evaluate_arrays(file, &data, &options, &result));
        CHECK_NEAR(result.loss, r.last.best_loss, 1e-5);
        CHECK(result.count == N && result.correct > 40);
    }
    CHECK(is_stateful(file) == (stateful != 0));
    sl_file_close(file);
    sl_model_free(model);
    return r.last.best_loss;
}

TEST(fit_arrays_with_lengths) {
    const double fresh = fit_arrays(0);
    CHECK(fit_arrays(1) == fresh);
}
