/* Golden vectors of Keras 3 (tests/golden/make_keras.py): LSTM, GRU in both forms, SimpleRNN, Bidirectional, stateful, masks,
 * and ten training losses of models read from the JSON that Keras wrote. */
#include "golden.h"

static const char FILE_NAME[] = "keras.safetensors";

TEST(golden_keras_lstm) {
    golden_recurrent_cases(FILE_NAME, "lstm_");
}

TEST(golden_keras_gru_reset_after) {
    golden_recurrent_cases(FILE_NAME, "gru_after_");
}

TEST(golden_keras_gru_reset_before) {
    golden_recurrent_cases(FILE_NAME, "gru_before_");
}

TEST(golden_keras_rnn) {
    golden_recurrent_cases(FILE_NAME, "rnn_");
}

/* Keras wrote these models in float64, to have all digits. As any reader of such a file has to, the dtype is set to float32; which
 * precision the losses are computed in, the plan says. */
static sl_status read_model(const char *json, sl_model **model) {
    char *text = strdup(json);
    REQUIRE(text);
    CHECK_FAILS(sl_model_from_json(NULL, text, strlen(text), model), SL_ERR_INPUT, "`dtype` is not \"float32\"");
    for (char *at = text; (at = strstr(at, "\"float64\""));) memcpy(at, "\"float32\"", 9);
    sl_status status = sl_model_from_json(NULL, text, strlen(text), model);
    free(text);
    return status;
}

static void training(const char *name, const golden_training *options) {
    sl_file *file = golden_open(FILE_NAME);
    char key[64];
    snprintf(key, sizeof key, "json %s", name);
    const char *json = sl_file_metadata(file, key);
    snprintf(key, sizeof key, "case %s", name);
    for (int wide = 0; wide < (test_on_gpu() ? 1 : 2); wide++) {
        golden_case c = {
            .file = file, .name = name, .words = sl_file_metadata(file, key), .dtype = wide ? SL_F64 : SL_F32};
        REQUIRE(json && c.words);
        REQUIRE_OK(read_model(json, &c.model));
        golden_losses(&c, options);
        golden_release(&c);
    }
    sl_file_close(file);
}

TEST(golden_keras_training_mse) {
    training("train_mse", &(golden_training){.loss = SL_LOSS_MSE});
}

TEST(golden_keras_training_tokens) {
    training("train_tokens", &(golden_training){.loss = SL_LOSS_SOFTMAX, .labels = true, .tokens = true});
}

TEST(golden_keras_training_steps) {
    training("train_steps", &(golden_training){.loss = SL_LOSS_SOFTMAX, .labels = true});
}

TEST(golden_keras_training_binary) {
    training("train_binary", &(golden_training){.loss = SL_LOSS_BINARY});
}
