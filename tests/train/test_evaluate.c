/* Evaluation of a language model: one stream, every token once, whatever the block length. */
#include <limits.h>

#include "test.h"
#include "train/train_helpers.h"

TEST(evaluate_tokens_does_not_depend_on_steps) {
    sl_model *model = helper_model(0.2);
    sl_dataset data = helper_data(300);
    sl_training training = helper_training(2);
    const char *path = helper_path("evaluate.sluice");
    sl_trainer *trainer = helper_trainer(model, &training, &data, path);
    REQUIRE_OK(sl_trainer_fit(trainer, NULL, NULL));
    sl_trainer_free(trainer);
    sl_file *file = NULL;
    sl_result whole = {0};
    sl_plan_options options = {.device = test_device, .steps = 200};
    REQUIRE_OK(sl_file_open(NULL, path, &file));
    REQUIRE_OK(sl_evaluate_tokens(NULL, file, data.tokens, 150, &options, &whole));
    CHECK(whole.count == 149);
    CHECK_NEAR(whole.loss, whole.loss_sum / 149, 1e-12);
    for (int steps = 0; steps < 90; steps += 11) {
        sl_result result;
        options.steps = steps;
        options.batch = 1 + steps; /* is ignored */
        REQUIRE_OK(sl_evaluate_tokens(model, file, data.tokens, 150, &options, &result));
        CHECK(result.count == 149 && result.correct == whole.correct);
        CHECK_NEAR(result.loss_sum, whole.loss_sum, 2e-4);
    }
    if (!test_on_gpu()) options.dtype = SL_F64;
    sl_result exact;
    REQUIRE_OK(sl_evaluate_tokens(NULL, file, data.tokens, 150, &options, &exact));
    CHECK_NEAR(exact.loss, whole.loss, 1e-5);
    CHECK_FAILS(sl_evaluate_tokens(NULL, file, data.tokens, 1, &options, &exact), SL_ERR_INPUT, "at least 2");
    int32_t bad[3] = {0, -1, 0};
    CHECK_FAILS(sl_evaluate_tokens(NULL, file, bad, 3, &options, &exact), SL_ERR_INPUT, "token 1");
    sl_file_close(file);
    sl_model_free(model);
}

TEST(evaluate_refuses_a_model_that_reads_backwards) {
    sl_model *model = NULL;
    sl_recurrent lstm = {.units = 4, .return_sequences = 1, .bidirectional = SL_BI_CONCAT};
    sl_embedding embedding = {.vocabulary = HELPER_VOCABULARY, .units = 3};
    sl_dense dense = {.units = HELPER_VOCABULARY};
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_tokens(model, "tokens", HELPER_VOCABULARY));
    REQUIRE_OK(sl_model_add_embedding(model, "embedding", &embedding, NULL));
    REQUIRE_OK(sl_model_add_recurrent(model, "both", SL_LSTM, &lstm, NULL));
    REQUIRE_OK(sl_model_add_dense(model, "logits", &dense, NULL));
    sl_training training = helper_training(1);
    sl_dataset data = helper_data(100);
    sl_trainer *trainer = NULL;
    CHECK_FAILS(sl_trainer_new(model, &training, &data, NULL, NULL, NULL, &trainer), SL_ERR_INPUT, "layer both");
    sl_model_free(model);
}

TEST(training_needs_a_language_model_for_tokens) {
    sl_model *model = NULL;
    sl_recurrent lstm = {.units = 4};
    sl_embedding embedding = {.vocabulary = HELPER_VOCABULARY, .units = 3};
    sl_dense dense = {.units = HELPER_VOCABULARY};
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_tokens(model, "tokens", HELPER_VOCABULARY));
    REQUIRE_OK(sl_model_add_embedding(model, "embedding", &embedding, NULL));
    REQUIRE_OK(sl_model_add_recurrent(model, "lstm", SL_LSTM, &lstm, NULL));
    REQUIRE_OK(sl_model_add_dense(model, "logits", &dense, NULL));
    sl_training training = helper_training(1);
    sl_dataset data = helper_data(100), nothing = {0};
    sl_trainer *trainer = NULL;
    CHECK_FAILS(sl_trainer_new(model, &training, &data, NULL, NULL, NULL, &trainer), SL_ERR_SHAPE, "return_sequences");
    CHECK_FAILS(sl_trainer_new(model, &training, &nothing, NULL, NULL, NULL, &trainer), SL_ERR_INPUT, "x and y");
    sl_model_free(model);
}

/* A program's own structs: nothing is read beyond what their bytes say. */
TEST(training_refuses_arrays_that_contradict_themselves) {
    float x[6] = {0}, y[2] = {0};
    const sl_array good = {SL_ARRAY_F32, 2, {2, 3}, x, sizeof x, {0}},
                   targets = {SL_ARRAY_F32, 2, {2, 1}, y, sizeof y, {0}};
    sl_array bad[6];
    sl_model *model = NULL;
    sl_dense dense = {.units = 1};
    sl_trainer *trainer = NULL;
    const sl_training training = {.loss = SL_LOSS_MSE, .device = test_device, .batch = INT_MAX, .accumulate = INT_MAX};
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 3, 1));
    REQUIRE_OK(sl_model_add_dense(model, "only", &dense, NULL));
    for (int i = 0; i < 6; i++) bad[i] = good;
    bad[0].shape[0] = 200;
    bad[1].shape[1] = -3;
    bad[2].rank = 9;
    bad[3].type = (sl_array_type)77;
    bad[4].bytes = 0;
    bad[5].data = NULL;
    for (int i = 0; i < 6; i++) {
        const sl_dataset as_x = {.x = &bad[i], .y = &targets}, as_y = {.x = &good, .y = &bad[i]};
        CHECK_FAILS(sl_trainer_new(model, &training, &as_x, NULL, NULL, NULL, &trainer), SL_ERR_USAGE, "x: the array");
        CHECK_FAILS(sl_trainer_new(model, &training, &as_y, NULL, NULL, NULL, &trainer), SL_ERR_USAGE, "y: the array");
    }
    const sl_dataset data = {.x = &good, .y = &targets};
    REQUIRE_OK(sl_trainer_new(model, &training, &data, NULL, NULL, NULL, &trainer)); /* the most micro-batches */
    sl_trainer_free(trainer);
    sl_model_free(model);
}
