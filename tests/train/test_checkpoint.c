/* Resuming: an interrupted training goes on to the same bits as one that was never interrupted; wrong checkpoints are
 * refused. */
#include <sys/stat.h>
#include <unistd.h>

#include "io/atomic_file.h"
#include "test.h"
#include "train/train_helpers.h"
#include "train/trainer.h"

/* Trains `training` without a break, and again with a break after step `at` and a new process's worth of forgetting (another
 * trainer that resumes); compares every loss, validation loss and parameter. */
static void check_resume(const sl_model *model, const sl_training *training, const sl_dataset *data, int at) {
    static helper_record whole, first, second; /* large */
    const char *path = helper_path("resume.sluice");
    memset(&whole, 0, sizeof whole);
    memset(&first, 0, sizeof first);
    memset(&second, 0, sizeof second);
    first.stop_at = at;
    sl_trainer *a = helper_trainer(model, training, data, NULL);
    REQUIRE_OK(sl_trainer_fit(a, helper_listen, &whole));
    REQUIRE(whole.steps > at);

    sl_trainer *b = helper_trainer(model, training, data, path);
    REQUIRE_OK(sl_trainer_fit(b, helper_listen, &first));
    CHECK(first.steps >= at && first.steps < at + helper_depth());
    at = first.steps;
    sl_trainer_free(b);

    b = helper_trainer(model, training, data, path);
    REQUIRE_OK(sl_trainer_resume(b));
    REQUIRE_OK(sl_trainer_fit(b, helper_listen, &second));
    CHECK(second.steps == whole.steps - at);
    CHECK(memcmp(first.losses, whole.losses, (size_t)at * sizeof(double)) == 0);
    CHECK(memcmp(second.losses, whole.losses + at, (size_t)(whole.steps - at) * sizeof(double)) == 0);
    CHECK(memcmp(second.rates, whole.rates + at, (size_t)(whole.steps - at) * sizeof(double)) == 0);
    for (int i = 0; i < second.evaluations; i++)
        CHECK(second.valid[i] == whole.valid[whole.evaluations - second.evaluations + i]);
    CHECK(helper_same_params(a, b));
    sl_trainer_free(a);
    sl_trainer_free(b);
    unlink(path);
    char last[800];
    snprintf(last, sizeof last, "%s.last", path);
    unlink(last);
}

TEST(resume_is_exact) {
    static const sl_optimizer optimizers[] = {{.kind = SL_SGD, .momentum = 0.9},
                                              {.kind = SL_ADAM},
                                              {.kind = SL_ADAMW, .weight_decay = 0.1},
                                              {.kind = SL_RMSPROP}};
    sl_model *model = helper_model(0.3);
    sl_dataset data = helper_data(150); /* 10 blocks without validation part */
    for (int i = 0; i < 4; i++) {
        sl_training training = helper_training(3);
        training.optimizer = optimizers[i];
        check_resume(model, &training, &data, 4);  /* in mid-epoch */
        check_resume(model, &training, &data, 10); /* at the end of one */
        check_resume(model, &training, &data, 27);
    }
    sl_model_free(model);
}

TEST(resume_with_validation_schedules_and_micro_batches) {
    sl_model *model = helper_model(0.3);
    sl_dataset data = helper_data(200);
    sl_training training = helper_training(5);
    training.batch = 4;
    training.accumulate = 2;
    training.valid_fraction = 0.2;
    training.learning_rate = 0.1;
    training.schedule = (sl_schedule){.kind = SL_SCHEDULE_PLATEAU, .factor = 3};
    check_resume(model, &training, &data, 3);
    check_resume(model, &training, &data, 25);
    training.split = SL_SPLIT_BLOCKS;
    training.keep_state = 1;
    check_resume(model, &training, &data, 12);
    training.schedule = (sl_schedule){.kind = SL_SCHEDULE_COSINE, .warmup = 7};
    if (!test_on_gpu()) training.dtype = SL_F64;
    check_resume(model, &training, &data, 12);
    sl_model_free(model);
}

TEST(resume_of_an_early_stop_stays_stopped) {
    sl_model *model = helper_model(0);
    sl_dataset data = helper_data(120);
    sl_training training = helper_training(40);
    helper_record r = {0}, again = {0};
    const char *path = helper_path("early.sluice");
    training.valid_fraction = 0.2;
    training.patience = 2;
    training.learning_rate = 0.05;
    sl_trainer *trainer = helper_trainer(model, &training, &data, path);
    REQUIRE_OK(sl_trainer_fit(trainer, helper_listen, &r));
    REQUIRE(r.early_stops == 1);
    sl_trainer_free(trainer);
    trainer = helper_trainer(model, &training, &data, path);
    REQUIRE_OK(sl_trainer_resume(trainer));
    REQUIRE_OK(sl_trainer_fit(trainer, helper_listen, &again));
    CHECK(again.steps == 0);
    sl_trainer_free(trainer);
    /* With more patience it goes on. */
    training.patience = 4;
    trainer = helper_trainer(model, &training, &data, path);
    REQUIRE_OK(sl_trainer_resume(trainer));
    REQUIRE_OK(sl_trainer_fit(trainer, helper_listen, &again));
    CHECK(again.epochs >= 1);
    sl_trainer_free(trainer);
    sl_model_free(model);
}

TEST(best_parameters_are_in_the_model_file) {
    sl_model *model = helper_model(0);
    sl_dataset data = helper_data(120);
    sl_training training = helper_training(25);
    helper_record r = {0};
    const char *path = helper_path("best.sluice"), *const metadata[] = {"vocabulary", "{\"level\":\"byte\"}", NULL};
    training.valid_fraction = 0.2; /* the last 24 tokens */
    training.learning_rate = 0.05;
    sl_trainer *trainer = NULL;
    REQUIRE_OK(sl_trainer_new(model, &training, &data, NULL, path, metadata, &trainer));
    REQUIRE_OK(sl_trainer_fit(trainer, helper_listen, &r));
    int best = 0;
    for (int i = 1; i < r.evaluations; i++)
        if (r.valid[i] < r.valid[best]) best = i;
    CHECK(best < r.evaluations - 1);
    sl_file *file = NULL;
    sl_result result;
    sl_plan_options options = {.device = test_device};
    REQUIRE_OK(sl_file_open(NULL, path, &file));
    REQUIRE_OK(sl_evaluate_tokens(NULL, file, data.tokens + 96, 24, &options, &result));
    CHECK(result.count == 23);
    CHECK_NEAR(result.loss, r.valid[best], 1e-6);
    CHECK(sl_file_metadata(file, "vocabulary") && sl_file_metadata(file, "training"));
    CHECK(sl_file_find(file, "optim.m.logits.kernel") < 0); /* only parameters */
    sl_training stored;
    REQUIRE_OK(sl_file_training(file, &stored));
    CHECK(strcmp(stored.task, "lm") == 0 && stored.seed == 5 && stored.learning_rate == 0.05 && stored.epochs == 25);
    sl_file_close(file);
    /* --init-from takes parameters only. */
    sl_trainer *fresh = helper_trainer(model, &training, &data, NULL);
    CHECK(!helper_same_params(fresh, trainer));
    char last[800];
    snprintf(last, sizeof last, "%s.last", path);
    REQUIRE_OK(sl_trainer_init_from(fresh, last));
    CHECK(helper_same_params(fresh, trainer));
    sl_trainer_free(fresh);
    sl_trainer_free(trainer);
    sl_model_free(model);
}

/* The file becomes one of a model alone. */
static void strip_training_state(const char *path) {
    sl_file *file = NULL;
    sl_model *stored = NULL;
    sl_plan *plan = NULL;
    sl_params *params = NULL;
    sl_plan_options options = {.device = test_device};
    REQUIRE_OK(sl_file_open(NULL, path, &file));
    REQUIRE_OK(sl_file_model(file, &stored));
    REQUIRE_OK(sl_plan_new(stored, &options, &plan));
    REQUIRE_OK(sl_params_new(plan, &params));
    REQUIRE_OK(sl_file_load_params(file, params));
    sl_file_close(file);
    REQUIRE_OK(sl_file_save(path, stored, params, NULL));
    REQUIRE_OK(sl_file_open(NULL, path, &file));
    sl_training none;
    CHECK_FAILS(sl_file_training(file, &none), SL_ERR_INPUT, "trained");
    sl_file_close(file);
    sl_params_free(params);
    sl_plan_free(plan);
    sl_model_free(stored);
}

TEST(resume_refuses_another_training) {
    sl_model *model = helper_model(0), *other = helper_model(0.1);
    sl_dataset data = helper_data(150), changed = helper_data(149);
    sl_training training = helper_training(1);
    const char *path = helper_path("other.sluice");
    sl_trainer *trainer = helper_trainer(model, &training, &data, path);
    CHECK_FAILS(sl_trainer_resume(trainer), SL_ERR_FILE, "other.sluice");
    REQUIRE_OK(sl_trainer_fit(trainer, NULL, NULL));
    sl_trainer_free(trainer);
#define REFUSES(a_model, a_data, says)                               \
    do {                                                             \
        trainer = helper_trainer(a_model, &training, a_data, path);  \
        CHECK_FAILS(sl_trainer_resume(trainer), SL_ERR_INPUT, says); \
        sl_trainer_free(trainer);                                    \
    } while (0)
    REFUSES(other, &data, "another model");
    REFUSES(model, &changed, "other data");
    training.seed++;
    REFUSES(model, &data, "\"seed\"");
    training.seed--;
    training.optimizer.beta1 = 0.8;
    REFUSES(model, &data, "\"beta1\"");
    training.optimizer.beta1 = 0;
    training.schedule = (sl_schedule){.kind = SL_SCHEDULE_COSINE};
    REFUSES(model, &data, "\"schedule\"");
    training.schedule = (sl_schedule){0};
#undef REFUSES
    training.epochs = 2; /* more epochs are welcome */
    helper_record r = {0};
    trainer = helper_trainer(model, &training, &data, path);
    REQUIRE_OK(sl_trainer_resume(trainer));
    REQUIRE_OK(sl_trainer_fit(trainer, helper_listen, &r));
    CHECK(r.epochs == 1);
    sl_trainer_free(trainer);
    trainer = helper_trainer(model, &training, &data, NULL);
    CHECK_FAILS(sl_trainer_resume(trainer), SL_ERR_USAGE, "path");
    sl_trainer_free(trainer);
    strip_training_state(path);
    trainer = helper_trainer(model, &training, &data, path);
    CHECK_FAILS(sl_trainer_resume(trainer), SL_ERR_FILE, "training state");
    sl_trainer_free(trainer);
    sl_model_free(model);
    sl_model_free(other);
}

/* Resuming from the file with the first `from` in it changed to `to`, as long as that one. */
static void check_changed(sl_trainer *trainer, const char *path, const char *from, const char *to, const char *says) {
    char *text = NULL, *at;
    size_t bytes = 0, length = strlen(from);
    REQUIRE(strlen(to) == length);
    REQUIRE_OK(sl_text_read(NULL, &path, 1, &text, &bytes));
    at = memmem(text, bytes, from, length);
    REQUIRE(at);
    memcpy(at, to, length);
    REQUIRE_OK(sli_atomic_write(path, text, bytes));
    CHECK_FAILS(sl_trainer_resume(trainer), SL_ERR_FILE, says);
    memcpy(at, from, length);
    REQUIRE_OK(sli_atomic_write(path, text, bytes));
    sl_text_free(text);
}

TEST(resume_checks_where_training_stands) {
    static const struct {
        const char *from, *to, *says;
    } changes[] = {
        {"\\\"step\\\": 10,", "\\\"step\\\": 11,", "step 11 after 1 epochs of 10 steps and 0 more"},
        {"\\\"epoch\\\": 1,", "\\\"epoch\\\": 2,", "step 10 after 2 epochs"},
        {"\\\"block\\\": 0,", "\\\"block\\\": 4,", "1 epochs of 10 steps and 4 more"},
        {"\\\"plateaus\\\": 0,", "\\\"plateaus\\\": 2,", "no valid \"plateaus\""},
        {"\\\"waiting\\\": 0,", "\\\"waiting\\\": 2,", "no valid \"waiting\""},
        {"\\\"optimizer_steps\\\": 10,", "\\\"optimizer_steps\\\":1.5,", "no valid \"optimizer_steps\""},
        {"\\\"optimizer_steps\\\": 10,", "\\\"optimizer_steps\\\": -9,", "no valid \"optimizer_steps\""},
        {"\\\"epoch_loss\\\": 0,", "\\\"epoch_loss\\\":[],", "no valid \"epoch_loss\""},
        {"\\\"epoch_count\\\": 0,", "\\\"epoch_count\\\":-1,", "no valid \"epoch_count\""},
        {"\\\"optimizer_steps\\\"", "\\\"optimizer_sleps\\\"", "no valid \"optimizer_steps\""},
    };
    sl_model *model = helper_model(0);
    sl_dataset data = helper_data(150); /* 10 blocks */
    sl_training training = helper_training(1);
    const char *path = helper_path("changed.sluice");
    sl_trainer *trainer = helper_trainer(model, &training, &data, path);
    REQUIRE_OK(sl_trainer_fit(trainer, NULL, NULL));
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        check_changed(trainer, path, changes[i].from, changes[i].to, changes[i].says);
    REQUIRE_OK(sl_trainer_resume(trainer));
    sl_trainer_free(trainer);
    sl_model_free(model);
}

static void same_files(const char *a, const char *b, const char *suffix) {
    char *texts[2] = {NULL, NULL};
    size_t bytes[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        char name[800];
        snprintf(name, sizeof name, "%s%s", i ? b : a, suffix);
        const char *const paths[] = {name};
        REQUIRE_OK(sl_text_read(NULL, paths, 1, &texts[i], &bytes[i]));
    }
    CHECK(bytes[0] == bytes[1] && memcmp(texts[0], texts[1], bytes[0]) == 0);
    sl_text_free(texts[0]);
    sl_text_free(texts[1]);
}

/* The evaluation after a stop in mid-epoch leaves no trace: wherever the stop is, both files end as without it. */
TEST(resume_ends_with_the_files_of_an_uninterrupted_training) {
    sl_model *model = helper_model(0);
    sl_dataset data = helper_data(120);
    sl_training training = helper_training(8);
    training.valid_fraction = 0.2;
    training.learning_rate = 0.05; /* the best epoch is not the last */
    const char *whole = helper_path("whole.sluice"), *parts = helper_path("parts.sluice");
    static helper_record r;
    memset(&r, 0, sizeof r);
    sl_trainer *trainer = helper_trainer(model, &training, &data, whole);
    REQUIRE_OK(sl_trainer_fit(trainer, helper_listen, &r));
    sl_trainer_free(trainer);
    int steps = r.steps;
    for (int at = 1; at < steps; at += 3) {
        memset(&r, 0, sizeof r);
        r.stop_at = at;
        trainer = helper_trainer(model, &training, &data, parts);
        REQUIRE_OK(sl_trainer_fit(trainer, helper_listen, &r));
        sl_trainer_free(trainer);
        trainer = helper_trainer(model, &training, &data, parts);
        REQUIRE_OK(sl_trainer_resume(trainer));
        REQUIRE_OK(sl_trainer_fit(trainer, NULL, NULL));
        sl_trainer_free(trainer);
        same_files(whole, parts, "");
        same_files(whole, parts, ".last");
    }
    sl_model_free(model);
}

TEST(resume_refuses_other_lengths_and_other_validation_data) {
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[2] = {0, 1}, other_y[2] = {1, 1};
    int32_t lengths[2] = {4, 4}, other_lengths[2] = {4, 3};
    sl_array xa = {SL_ARRAY_F32, 3, {2, 4, 1}, x, sizeof x, {0}}, ya = {SL_ARRAY_F32, 2, {2, 1}, y, sizeof y, {0}},
             oy = {SL_ARRAY_F32, 2, {2, 1}, other_y, sizeof y, {0}},
             la = {SL_ARRAY_I32, 1, {2}, lengths, sizeof lengths, {0}},
             lb = {SL_ARRAY_I32, 1, {2}, other_lengths, sizeof lengths, {0}};
    sl_dataset data = {.x = &xa, .y = &ya, .lengths = &la}, cut = {.x = &xa, .y = &ya, .lengths = &lb},
               other = {.x = &xa, .y = &oy, .lengths = &la};
    const sl_dataset *const pairs[][2] = {{&data, &data}, {&cut, &data}, {&data, &other}, {&data, &cut}, {&data, NULL}};
    sl_training training = {.loss = SL_LOSS_MSE, .device = test_device};
    const char *path = helper_path("lengths.sluice");
    sl_recurrent gru = {.units = 1};
    sl_model *model = NULL;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 1, 0));
    REQUIRE_OK(sl_model_add_recurrent(model, "gru", SL_GRU, &gru, NULL));
    for (int i = 0; i < 5; i++) {
        sl_trainer *trainer = NULL;
        char last[800];
        snprintf(last, sizeof last, "%s%s", path, pairs[i][1] ? "" : ".last"); /* without validation PATH is resumed */
        REQUIRE_OK(sl_trainer_new(model, &training, pairs[i][0], pairs[i][1], i < 4 ? path : last, NULL, &trainer));
        if (i == 0) REQUIRE_OK(sl_trainer_fit(trainer, NULL, NULL));
        if (i == 0)
            REQUIRE_OK(sl_trainer_resume(trainer));
        else
            CHECK_FAILS(sl_trainer_resume(trainer), SL_ERR_INPUT, "other data");
        sl_trainer_free(trainer);
    }
    sl_model_free(model);
}

/* No row of a CPU computes f16; what a checkpoint writes about its loss scaling is read back as it was. */
TEST(checkpoint_loss_scaling_reads_back) {
    const sl_allocator allocator = sli_allocator_or_default(NULL);
    sli_scaling scaling = {.scale = 0.1, .good = 1999, .skipped = 12345678901}, read = {.scale = 65536};
    json_t *root = NULL;
    sli_text text;
    sli_text_init(&text, &allocator);
    sli_text_printf(&text, "{\"step\": 1");
    sli_checkpoint_write_scaling(&text, &scaling);
    sli_text_printf(&text, "}");
    REQUIRE_OK(sli_json_load(text.data, text.length, "test", SL_ERR_INPUT, &root));
    sli_checkpoint_read_scaling(root, &read);
    CHECK(read.scale == scaling.scale && read.good == scaling.good && read.skipped == scaling.skipped);
    json_decref(root);
    sli_text_free(&text);
    /* Of an older training, or one without a sensible scale. */
    REQUIRE_OK(sli_json_load("{\"loss_scale\": 0}", 17, "test", SL_ERR_INPUT, &root));
    read = (sli_scaling){.scale = 65536};
    sli_checkpoint_read_scaling(root, &read);
    CHECK(read.scale == 65536 && read.good == 0 && read.skipped == 0);
    json_decref(root);
}

TEST(trainer_checks_the_path_before_it_plans) {
    sl_model *model = helper_model(0);
    sl_dataset data = helper_data(150);
    sl_training training = helper_training(1);
    sl_trainer *trainer = NULL;
    training.memory_limit = 1; /* no plan fits: the path is looked at first */
    CHECK_FAILS(sl_trainer_new(model, &training, &data, NULL, "/no/such/folder/model.sluice", NULL, &trainer),
                SL_ERR_IO, "/no/such/folder");
    CHECK(!strstr(sl_error_detail(), "older file"));
    const char *path = helper_path("half.sluice"), *last = helper_path("half.sluice.last");
    const char *const value[] = {"valid", "v\xFF.txt", NULL}, *const key[] = {"a", "b", "k\xFF", "c", NULL};
    CHECK_FAILS(sl_trainer_new(model, &training, &data, NULL, path, value, &trainer), SL_ERR_INPUT, "\"valid\" is not");
    CHECK_FAILS(sl_trainer_new(model, &training, &data, NULL, path, key, &trainer), SL_ERR_INPUT, "UTF-8");
    training.valid_fraction = 0.2; /* then there are two files */
    REQUIRE(mkdir(last, 0777) == 0);
    CHECK_FAILS(sl_trainer_new(model, &training, &data, NULL, path, NULL, &trainer), SL_ERR_IO, last);
    CHECK(rmdir(last) == 0 && access(path, F_OK) != 0);
    sl_model_free(model);
}

/* Without validation PATH.last goes if it is a resume point, not if it is somebody's, or PATH itself. */
TEST(trainer_removes_resume_points_alone) {
    sl_model *model = helper_model(0);
    sl_dataset data = helper_data(150);
    sl_training training = helper_training(1), validated = training;
    const char *path = helper_path("alone.sluice"), *last = helper_path("alone.sluice.last");
    struct stat info;
    validated.valid_fraction = 0.3;
    for (int k = 0; k < 4; k++) { /* nothing but PATH, a text, a resume point, a link from PATH */
        if (k == 1) REQUIRE_OK(sli_atomic_write(last, "notes", 5));
        if (k == 3) REQUIRE(unlink(path) == 0 && symlink(last, path) == 0);
        for (int valid = k == 2; valid >= 0; valid--) {
            sl_trainer *trainer = helper_trainer(model, valid ? &validated : &training, &data, path);
            REQUIRE_OK(sl_trainer_fit(trainer, NULL, NULL));
            sl_trainer_free(trainer);
        }
        CHECK(stat(path, &info) == 0 && info.st_size > 5);
        CHECK((access(last, F_OK) == 0) == (k == 1 || k == 3));
    }
    CHECK(unlink(last) == 0 && unlink(path) == 0);
    sl_model_free(model);
}

/* The folder of the model goes away when the second evaluation is over. */
static sl_answer move_folder(void *evaluations, const sl_progress *progress) {
    if (strcmp(progress->event, "evaluation") != 0 || ++*(int *)evaluations != 2) return SL_CONTINUE;
    CHECK(progress->improved);
    char gone[600];
    snprintf(gone, sizeof gone, "%s.gone", helper_path("moving"));
    CHECK(rename(helper_path("moving"), gone) == 0);
    return SL_CONTINUE;
}

/* The folder is away at the first evaluation. */
static sl_answer move_folder_first(void *moved, const sl_progress *progress) {
    char gone[600];
    if (*(bool *)moved || strcmp(progress->event, "evaluation") != 0) return SL_CONTINUE;
    *(bool *)moved = true;
    snprintf(gone, sizeof gone, "%s.gone", helper_path("first"));
    CHECK(rename(helper_path("first"), gone) == 0);
    return SL_CONTINUE;
}

/* Where the first files cannot be written, the next epoch's are, better or not: nothing else holds any. */
TEST(trainer_writes_a_model_after_its_first_save_failed) {
    sl_model *model = helper_model(0);
    sl_dataset data = helper_data(HELPER_TOKENS);
    sl_training training = helper_training(3);
    char path[600], gone[600];
    bool moved = false;
    training.valid_fraction = 0.2;
    training.learning_rate = 2; /* gets worse */
    snprintf(gone, sizeof gone, "%s.gone", helper_path("first"));
    snprintf(path, sizeof path, "%s/m.sluice", helper_path("first"));
    REQUIRE(mkdir(helper_path("first"), 0777) == 0);
    sl_trainer *trainer = helper_trainer(model, &training, &data, path);
    CHECK(sl_trainer_fit(trainer, move_folder_first, &moved) == SL_ERR_IO);
    CHECK(isinf(trainer->at.best));
    REQUIRE(rename(gone, helper_path("first")) == 0);
    REQUIRE_OK(sl_trainer_fit(trainer, NULL, NULL));
    CHECK(access(path, F_OK) == 0 && isfinite(trainer->at.best));
    sl_trainer_free(trainer);
    sl_model_free(model);
}

/* A caller may go on after a save that failed: the best is then what the file holds, and the next better one is written. */
TEST(trainer_goes_on_after_a_failed_save) {
    sl_model *model = helper_model(0);
    sl_dataset data = helper_data(HELPER_TOKENS);
    sl_training training = helper_training(3);
    training.valid_fraction = 0.2;
    char path[600], gone[600], best[64];
    int evaluations = 0;
    snprintf(gone, sizeof gone, "%s.gone", helper_path("moving"));
    snprintf(path, sizeof path, "%s/m.sluice", helper_path("moving"));
    REQUIRE(mkdir(helper_path("moving"), 0777) == 0);
    sl_trainer *trainer = helper_trainer(model, &training, &data, path);
    sl_status status = sl_trainer_fit(trainer, move_folder, &evaluations);
    CHECK(status == SL_ERR_IO && trainer->at.epoch == 2);
    REQUIRE(rename(gone, helper_path("moving")) == 0);
    for (int again = 0; again < 2; again++) {
        sl_file *file;
        REQUIRE_OK(sl_file_open(NULL, path, &file));
        snprintf(best, sizeof best, "\"best\": %.6f", trainer->at.best);
        best[strlen(best) - 2] = 0; /* as many digits as are not rounded */
        CHECK(strstr(sl_file_metadata(file, "training"), best) != NULL);
        sl_file_close(file);
        if (again == 0) REQUIRE_OK(sl_trainer_fit(trainer, NULL, NULL));
    }
    sl_trainer_free(trainer);
    sl_model_free(model);
}

static sl_answer abort_at_checkpoint(void *path, const sl_progress *progress) {
    if (strcmp(progress->event, "checkpoint") != 0) return SL_CONTINUE;
    CHECK(strcmp(progress->path, path) == 0);
    return SL_ABORT;
}

/* Ended between the first two files: the resume point, which is there, has what the model file would have had. */
TEST(resume_writes_the_model_that_a_kill_prevented) {
    sl_model *model = helper_model(0);
    sl_dataset data = helper_data(HELPER_TOKENS);
    sl_training training = helper_training(2);
    training.valid_fraction = 0.2;
    const char *path = helper_path("first.sluice");
    char last[600];
    snprintf(last, sizeof last, "%s.last", path);
    sl_trainer *trainer = helper_trainer(model, &training, &data, path);
    CHECK(sl_trainer_fit(trainer, abort_at_checkpoint, last) == SL_ERR_CANCELLED);
    CHECK(access(path, F_OK) != 0);
    const char *paths[] = {last}; /* a model file, of a training that it replaces */
    char *bytes;
    size_t count;
    REQUIRE_OK(sl_text_read(NULL, paths, 1, &bytes, &count));
    REQUIRE_OK(sli_atomic_write(path, bytes, count));
    sl_text_free(bytes);
    sl_trainer *resumed = helper_trainer(model, &training, &data, path);
    REQUIRE_OK(sl_trainer_resume(resumed));
    sl_file *file;
    REQUIRE_OK(sl_file_open(NULL, path, &file));
    sl_params *params;
    REQUIRE_OK(sl_params_new(sl_trainer_plan(trainer), &params));
    REQUIRE_OK(sl_file_load_params(file, params));
    for (int i = 0; i < sl_params_count(params); i++) {
        int rows, columns;
        const char *name = sl_params_name(params, i, &rows, &columns);
        const size_t values = (size_t)rows * (size_t)columns;
        double *a = malloc(values * sizeof *a), *b = malloc(values * sizeof *b);
        REQUIRE_OK(sl_params_get(params, name, a, values));
        REQUIRE_OK(sl_params_get(sl_trainer_params(trainer), name, b, values));
        CHECK(memcmp(a, b, values * sizeof *a) == 0);
        free(a);
        free(b);
    }
    sl_params_free(params);
    sl_file_close(file);
    REQUIRE_OK(sl_trainer_fit(resumed, NULL, NULL));
    sl_trainer_free(resumed);
    sl_trainer_free(trainer);
    sl_model_free(model);
}

/* A model beside a resume point that knows of a better loss began anew: going on would keep the wrong one. */
TEST(resume_refuses_a_model_that_has_not_seen_the_best) {
    sl_model *model = helper_model(0);
    sl_dataset data = helper_data(HELPER_TOKENS);
    sl_training training = helper_training(2), longer = helper_training(3);
    training.valid_fraction = longer.valid_fraction = 0.2;
    const char *path = helper_path("anew.sluice");
    char last[600], kept[600];
    snprintf(last, sizeof last, "%s.last", path);
    snprintf(kept, sizeof kept, "%s.kept", path);
    sl_trainer *trainer = helper_trainer(model, &training, &data, path);
    REQUIRE_OK(sl_trainer_fit(trainer, NULL, NULL));
    sl_trainer_free(trainer);
    for (int stopped = 0; stopped < 2; stopped++) { /* at the first epoch's end, and in its middle */
        helper_record r = {.stop_at = stopped ? 3 : 0};
        sl_training short_one = training;
        short_one.epochs = 1;
        REQUIRE(rename(last, kept) == 0);
        trainer = helper_trainer(model, &short_one, &data, path);
        REQUIRE_OK(sl_trainer_fit(trainer, helper_listen, &r));
        sl_trainer_free(trainer);
        REQUIRE(rename(kept, last) == 0);
        trainer = helper_trainer(model, &longer, &data, path);
        CHECK_FAILS(sl_trainer_resume(trainer), SL_ERR_INPUT, "is not of the training that");
        sl_trainer_free(trainer);
    }
    CHECK(unlink(path) == 0);
    trainer = helper_trainer(model, &longer, &data, path);
    REQUIRE_OK(sl_trainer_resume(trainer));
    sl_trainer_free(trainer);
    sl_model_free(model);
}

/* ------------------------------------------------------------------------------------------------------- kernels -- */
static const char slow_choice[] = "lstm:b3_t5_i6_h8_train ref\n";

/* Trains 4 steps on the reference where plans would take another row; gives the losses of all steps without the break. */
static void train_on_ref(const sl_model *model, const sl_dataset *data, const char *path, helper_record *whole) {
    static helper_record part;
    sl_training training = helper_training(2);
    training.choices = slow_choice;
    memset(whole, 0, sizeof *whole);
    memset(&part, 0, sizeof part);
    part.stop_at = 4;
    sl_trainer *trainer = helper_trainer(model, &training, data, NULL);
    REQUIRE_OK(sl_trainer_fit(trainer, helper_listen, whole));
    sl_trainer_free(trainer);
    trainer = helper_trainer(model, &training, data, path);
    CHECK(strstr(sl_plan_choices(sl_trainer_plan(trainer)), slow_choice));
    REQUIRE_OK(sl_trainer_fit(trainer, helper_listen, &part));
    sl_trainer_free(trainer);
}

TEST(resume_keeps_the_kernels_it_was_trained_on) {
    static helper_record whole, part;
    if (test_on_gpu()) test_skip("its rows are the CPU's");
    sl_model *model = helper_model(0.3);
    sl_dataset data = helper_data(150);
    sl_training training = helper_training(2);
    const char *path = helper_path("kernels.sluice");
    train_on_ref(model, &data, path, &whole);
    sl_trainer *trainer = helper_trainer(model, &training, &data, path);
    CHECK(!strstr(sl_plan_choices(sl_trainer_plan(trainer)), slow_choice));
    REQUIRE_OK(sl_trainer_resume(trainer));
    CHECK(strstr(sl_plan_choices(sl_trainer_plan(trainer)), slow_choice) && !sl_trainer_note(trainer));
    memset(&part, 0, sizeof part);
    REQUIRE_OK(sl_trainer_fit(trainer, helper_listen, &part));
    CHECK(part.steps > 0 && part.steps < whole.steps);
    CHECK(memcmp(part.losses, whole.losses + (whole.steps - part.steps), (size_t)part.steps * sizeof(double)) == 0);
    sl_trainer_free(trainer);
    sl_model_free(model);
}

TEST(resume_says_which_kernels_it_cannot_have) {
    static helper_record whole;
    if (test_on_gpu()) test_skip("its rows are the CPU's");
    sl_model *model = helper_model(0);
    sl_dataset data = helper_data(150);
    sl_training training = helper_training(2);
    const char *path = helper_path("gone.sluice");
    train_on_ref(model, &data, path, &whole);
    training.require = "cpu:fused";
    sl_trainer *trainer = helper_trainer(model, &training, &data, path);
    REQUIRE_OK(sl_trainer_resume(trainer));
    CHECK(sl_trainer_note(trainer) && strstr(sl_trainer_note(trainer), "not every kernel") &&
          strstr(sl_trainer_note(trainer), "not cpu:fused"));
    CHECK(strcmp(sl_plan_kernels(sl_trainer_plan(trainer)), "cpu:fused") == 0);
    REQUIRE_OK(sl_trainer_fit(trainer, NULL, NULL));
    sl_trainer_free(trainer);
    train_on_ref(model, &data, path, &whole);
    training.require = NULL;
    training.device = strcmp(test_device, "cpu") == 0 ? "far" : "cpu";
    REQUIRE_OK(sl_trainer_new(model, &training, &data, NULL, path, NULL, &trainer));
    REQUIRE_OK(sl_trainer_resume(trainer));
    CHECK(sl_trainer_note(trainer) && strstr(sl_trainer_note(trainer), "kernels are chosen anew"));
    CHECK(!strstr(sl_plan_choices(sl_trainer_plan(trainer)), slow_choice));
    REQUIRE_OK(sl_trainer_fit(trainer, NULL, NULL));
    sl_trainer_free(trainer);
    sl_model_free(model);
}
