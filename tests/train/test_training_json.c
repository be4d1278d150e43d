/* Training options as JSON: every field goes round exactly; what is unknown or wrong is named. */
#include "test.h"
#include "train/train_helpers.h"

static sl_status parse(const char *json, sl_training *training) {
    return sl_training_from_json(json, strlen(json), training);
}

TEST(training_json_round_trip) {
    sl_training all = {.batch = 7,
                       .steps = 35,
                       .epochs = 39,
                       .seed = UINT64_MAX,
                       .optimizer = {SL_ADAMW, 0.1, 1, 0.85, 0.99, 0.7, 1e-7, 0.3},
                       .learning_rate = 0.1 + 0.2,
                       .schedule = {SL_SCHEDULE_COSINE, 1 / 1.15, 12, 13, (int64_t)1 << 40, 6, 1e-300},
                       .clip = {SL_CLIP_NORM, 0.25},
                       .loss = SL_LOSS_BINARY,
                       .reduction = SL_REDUCE_SUM_TIME,
                       .accumulate = 4,
                       .patience = 3,
                       .min_delta = 1e-3,
                       .valid_fraction = 0.05,
                       .split = SL_SPLIT_BLOCKS,
                       .shuffle = 1,
                       .masking = SL_MASK_LENGTHS,
                       .init_scale = 0.08,
                       .dtype = SL_F64,
                       .level = SL_LEVEL_WORD,
                       .vocabulary_limit = 10000,
                       .drop_partial = 1,
                       .keep_state = 1};
    sl_model *model = helper_model(0.5);
    const char *text = NULL;
    sl_training back;
    REQUIRE_OK(sl_training_to_json(model, &all, "lm", &text));
    REQUIRE_OK(parse(text, &back));
    CHECK(strcmp(back.task, "lm") == 0);
    CHECK(back.seed == UINT64_MAX && back.batch == 7 && back.schedule.every == 12 && back.schedule.minimum == 1e-300);
    CHECK(back.optimizer.kind == SL_ADAMW && back.optimizer.nesterov == 1 && back.optimizer.weight_decay == 0.3);
    CHECK(back.learning_rate == 0.1 + 0.2 && back.dtype == SL_F64 && back.level == SL_LEVEL_WORD &&
          back.keep_state == 1);
    /* Nothing that was written got lost on the way back. */
    char *first = strdup(text);
    const char *second = NULL;
    REQUIRE(first);
    REQUIRE_OK(sl_training_to_json(model, &back, NULL, &second));
    CHECK(strcmp(first, second) == 0);

    /* The whole document is also a model; without options it gives zeros. */
    sl_model *again = NULL;
    const char *a, *b;
    REQUIRE_OK(sl_model_from_json(NULL, first, strlen(first), &again));
    free(first);
    REQUIRE_OK(sl_model_to_json(again, &a));
    REQUIRE_OK(sl_model_to_json(model, &b));
    CHECK(strcmp(a, b) == 0);
    REQUIRE_OK(parse(b, &back));
    CHECK(!back.task && back.batch == 0 && back.learning_rate == 0 && back.loss == SL_LOSS_NONE && back.seed == 0);
    sl_model_free(again);
    sl_model_free(model);
}

TEST(training_json_names_what_is_wrong) {
    static const struct {
        const char *json;
        sl_status status;
        const char *says;
    } bad[] = {
        {"{", SL_ERR_INPUT, "JSON"},
        {"{\"sluice\": 1}", SL_ERR_INPUT, "sluice"},
        {"{\"sluice\": {\"traning\": {}}}", SL_ERR_UNKNOWN, "traning"},
        {"{\"sluice\": {\"task\": \"x\"}}", SL_ERR_INPUT, "task"},
        {"{\"sluice\": {\"training\": {\"batchs\": 1}}}", SL_ERR_UNKNOWN, "did you mean \"batch\""},
        {"{\"sluice\": {\"training\": {\"batch\": 1.5}}}", SL_ERR_INPUT, "batch"},
        {"{\"sluice\": {\"training\": {\"batch\": 3000000000}}}", SL_ERR_INPUT, "batch"},
        {"{\"sluice\": {\"training\": {\"loss\": \"softmin\"}}}", SL_ERR_UNKNOWN, "did you mean \"softmax\""},
        {"{\"sluice\": {\"training\": {\"loss\": 3}}}", SL_ERR_INPUT, "loss"},
        {"{\"sluice\": {\"training\": {\"shuffle\": 1}}}", SL_ERR_INPUT, "shuffle"},
        {"{\"sluice\": {\"training\": {\"learning_rate\": \"1\"}}}", SL_ERR_INPUT, "learning_rate"},
        {"{\"sluice\": {\"training\": {\"seed\": -1}}}", SL_ERR_INPUT, "seed"},
        {"{\"sluice\": {\"training\": {\"seed\": \"18446744073709551616\"}}}", SL_ERR_INPUT, "seed"},
        {"{\"sluice\": {\"training\": {\"clip\": {\"nam\": \"value\"}}}}", SL_ERR_UNKNOWN, "sluice.training.clip"},
        {"{\"sluice\": {\"training\": {\"clip\": 5}}}", SL_ERR_INPUT, "clip"},
        {"{\"sluice\": {\"training\": {\"epochs\": 0}}}", SL_ERR_INPUT, "\"epochs\" cannot be 0"},
        {"{\"sluice\": {\"training\": {\"learning_rate\": 0.0}}}", SL_ERR_INPUT, "leave it out"},
        {"{\"sluice\": {\"training\": {\"schedule\": {\"name\": \"step\", \"every\": 9, \"factor\": 0}}}}",
         SL_ERR_INPUT, "\"factor\" cannot be 0"},
        {"{\"sluice\": {\"training\": {\"optimizer\": {\"name\": \"adam\", \"beta1\": 0}}}}", SL_ERR_INPUT,
         "\"beta1\" cannot"},
        {"{\"sluice\": {\"training\": {\"optimizer\": {\"weight_decay\": 0, \"name\": \"adamw\"}}}}", SL_ERR_INPUT,
         "adamw without it"},
        {"{\"sluice\": {\"text\": {\"level\": \"line\"}}}", SL_ERR_UNKNOWN, "line"},
        {"{\"sluice\": {\"text\": {\"level\": \"word\"}}}", SL_ERR_INPUT, "belongs to \"task\": \"lm\""},
    };
    sl_training training;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_FAILS(parse(bad[i].json, &training), bad[i].status, bad[i].says);
    }
}

/* Names that a resume point could not be read with. */
TEST(training_options_without_a_name_are_refused) {
    sl_model *model = helper_model(0);
    sl_dataset data = helper_data(200);
    sl_trainer *trainer = NULL;
    const char *text = NULL;
#define REFUSED(member, value, says)                                                                          \
    do {                                                                                                      \
        sl_training training = helper_training(1);                                                            \
        training.member = value;                                                                              \
        CHECK_FAILS(sl_trainer_new(model, &training, &data, NULL, NULL, NULL, &trainer), SL_ERR_USAGE, says); \
        CHECK_FAILS(sl_training_to_json(model, &training, NULL, &text), SL_ERR_USAGE, says);                  \
        CHECK(!trainer && !text);                                                                             \
    } while (0)
    REFUSED(schedule.kind, (sl_schedule_kind)77, "schedule is 77, which is none of constant, step, exponential");
    REFUSED(split, (sl_split)9, "split is 9, which is none of tail, blocks");
    REFUSED(level, (sl_level)9, "level is 9, which is none of char, word, byte");
    REFUSED(level, (sl_level)-1, "level is -1");
    REFUSED(clip.kind, (sl_clip_kind)5, "clip is 5");
    REFUSED(optimizer.kind, (sl_optimizer_kind)4, "optimizer is 4");
    REFUSED(dtype, (sl_dtype)99, "dtype is 99");
    REFUSED(task, "translation", "there is no task \"translation\"");
#undef REFUSED
    sl_model_free(model);
}

TEST(training_options_that_cannot_work_are_refused) {
    sl_model *model = helper_model(0);
    sl_dataset data = helper_data(200);
    sl_trainer *trainer = NULL;
#define REFUSED(member, value, says)                                                                          \
    do {                                                                                                      \
        sl_training training = helper_training(1);                                                            \
        training.member = value;                                                                              \
        CHECK_FAILS(sl_trainer_new(model, &training, &data, NULL, NULL, NULL, &trainer), SL_ERR_INPUT, says); \
        CHECK(!trainer);                                                                                      \
    } while (0)
    REFUSED(batch, -1, "batch");
    REFUSED(steps, -1, "steps");
    REFUSED(epochs, -1, "epochs");
    REFUSED(learning_rate, -0.1, "learning_rate");
    REFUSED(learning_rate, NAN, "learning_rate");
    REFUSED(optimizer.momentum, 2, "momentum");
    REFUSED(optimizer.weight_decay, 1e7, "weight_decay");
    REFUSED(optimizer.nesterov, 1, "nesterov");
    REFUSED(optimizer.momentum, 0.5, "sgd");
    REFUSED(clip.value, 0, "clip");
    REFUSED(clip.kind, SL_CLIP_NONE, "clip is none");
    REFUSED(optimizer, ((sl_optimizer){.beta1 = 0.8}), "beta1 and beta2 belong to adam");
    REFUSED(optimizer, ((sl_optimizer){SL_RMSPROP, .beta2 = 0.8}), "beta1 and beta2 belong to adam");
    REFUSED(optimizer, ((sl_optimizer){.epsilon = 1e-8}), "epsilon belongs to");
    REFUSED(optimizer.rho, 0.9, "rho belongs to rmsprop");
    REFUSED(schedule.factor, 0.5, "factor belongs to step");
    REFUSED(schedule, ((sl_schedule){SL_SCHEDULE_COSINE, .factor = 0.5}), "factor belongs to step");
    REFUSED(schedule.every, 5, "every belongs to step and exponential");
    REFUSED(schedule.minimum, 0.1, "minimum belongs to all but constant");
    REFUSED(schedule, ((sl_schedule){SL_SCHEDULE_STEP, 0.5, 9, .warmup = 3}), "warmup belongs to cosine");
    REFUSED(schedule, ((sl_schedule){SL_SCHEDULE_STEP, 0.5, 9, .total = 3}), "total belongs to cosine");
    REFUSED(schedule, ((sl_schedule){SL_SCHEDULE_EXPONENTIAL, 0.5, 9, .hold = 3}), "hold belongs to epoch_decay");
    REFUSED(schedule, ((sl_schedule){SL_SCHEDULE_COSINE, .warmup = 4, .total = 3}), "longer than its total of 3");
    REFUSED(schedule, ((sl_schedule){SL_SCHEDULE_COSINE, .minimum = 5}), "minimum is 5, above the learning rate");
    REFUSED(min_delta, 0.01, "min_delta belongs to early stopping");
    REFUSED(valid_fraction, 1, "valid_fraction");
    REFUSED(valid_fraction, 0.001, "validation");
    REFUSED(accumulate, 2, "micro-batches");
    REFUSED(patience, 2, "validation");
    REFUSED(schedule.kind, SL_SCHEDULE_PLATEAU, "validation");
    REFUSED(schedule.kind, SL_SCHEDULE_STEP, "every");
    REFUSED(loss, SL_LOSS_MSE, "softmax");
    REFUSED(batch, 150, "too few");
#undef REFUSED
    sl_training training = helper_training(1);
    int32_t wrong[20] = {0, 1, 2, HELPER_VOCABULARY};
    sl_dataset bad = {.tokens = wrong, .token_count = 20};
    CHECK_FAILS(sl_trainer_new(model, &training, &bad, NULL, NULL, NULL, &trainer), SL_ERR_INPUT, "token 3 is 7");
    sl_model_free(model);
}
