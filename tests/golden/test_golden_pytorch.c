/* Golden vectors of PyTorch (tests/golden/make_pytorch.py): nn.LSTM, nn.GRU, nn.RNN, and ten training losses with every
 * optimizer and every clip. */
#include "golden.h"

static const char FILE_NAME[] = "pytorch.safetensors";

TEST(golden_pytorch_lstm) {
    golden_recurrent_cases(FILE_NAME, "lstm_");
}

TEST(golden_pytorch_gru) {
    golden_recurrent_cases(FILE_NAME, "gru_");
}

TEST(golden_pytorch_rnn) {
    golden_recurrent_cases(FILE_NAME, "rnn_");
}

/* Embedding, two LSTM layers whose state is carried, dense. */
static void language_model(golden_case *c) {
    const char *words = c->words;
    int vocabulary = (int)golden_number(words, "inputs", 0);
    sl_embedding embedding = {.vocabulary = vocabulary, .units = (int)golden_number(words, "embed", 0)};
    sl_recurrent lstm = {.units = (int)golden_number(words, "units", 0),
                         .bias = SL_BIAS_DOUBLE,
                         .forget_bias_mode = SL_FORGET_NONE,
                         .return_sequences = 1,
                         .stateful = 1};
    sl_dense dense = {.units = vocabulary};
    REQUIRE_OK(sl_model_new(NULL, &c->model));
    REQUIRE_OK(sl_model_add_tokens(c->model, "tokens", vocabulary));
    REQUIRE_OK(sl_model_add_embedding(c->model, "embedding", &embedding, NULL));
    REQUIRE_OK(sl_model_add_recurrent(c->model, "l0", SL_LSTM, &lstm, NULL));
    REQUIRE_OK(sl_model_add_recurrent(c->model, "l1", SL_LSTM, &lstm, NULL));
    REQUIRE_OK(sl_model_add_dense(c->model, "dense", &dense, NULL));
}

/* Bidirectional GRU, dense with tanh at every step. */
static void regressor(golden_case *c) {
    const char *words = c->words;
    sl_recurrent gru = {.units = (int)golden_number(words, "units", 0),
                        .bias = SL_BIAS_DOUBLE,
                        .bidirectional = SL_BI_CONCAT,
                        .return_sequences = 1};
    sl_dense dense = {.units = (int)golden_number(words, "outputs", 0), .activation = SL_ACT_TANH};
    REQUIRE_OK(sl_model_new(NULL, &c->model));
    REQUIRE_OK(sl_model_add_input(c->model, "x", (int)golden_number(words, "inputs", 0), 0));
    REQUIRE_OK(sl_model_add_recurrent(c->model, "l0", SL_GRU, &gru, NULL));
    REQUIRE_OK(sl_model_add_dense(c->model, "dense", &dense, NULL));
}

static void training(const char *name, void (*build)(golden_case *c), const golden_training *options) {
    sl_file *file = golden_open(FILE_NAME);
    char key[64];
    snprintf(key, sizeof key, "case %s", name);
    for (int wide = 0; wide < (test_on_gpu() ? 1 : 2); wide++) {
        golden_case c = {
            .file = file, .name = name, .words = sl_file_metadata(file, key), .dtype = wide ? SL_F64 : SL_F32};
        REQUIRE(c.words);
        build(&c);
        golden_losses(&c, options);
        golden_release(&c);
    }
    sl_file_close(file);
}

TEST(golden_pytorch_training_language_model) {
    training("train_lm", language_model, &(golden_training){.loss = SL_LOSS_SOFTMAX, .labels = true, .tokens = true});
}

TEST(golden_pytorch_training_regressor) {
    training("train_regressor", regressor, &(golden_training){.loss = SL_LOSS_MSE});
}
