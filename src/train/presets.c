/* Published configurations, exactly.
 *
 * char-rnn: Karpathy 2015, github.com/karpathy/char-rnn (train.lua with its defaults, tinyshakespeare): 2 x 128 LSTM on
 *   one-hot characters, two biases, every parameter U(-0.08, 0.08), then forget bias 1.
 * ptb-small, ptb-medium, ptb-large: Zaremba, Sutskever, Vinyals 2014 (arXiv 1409.2329) as in the TensorFlow PTB tutorial
 *   (ptb_word_lm.py): embedding, 2 LSTM layers, dropout on input, between and on output, softmax. Every parameter is
 *   U(-init_scale, init_scale), the initializer of the script's variable scope, but the LSTM's biases: BasicLSTMCell
 *   (rnn_cell_impl.py) and LSTMBlockCell (lstm_ops.py) make them with an initializer of their own, zeros. */
#include <string.h>

#include "train/training.h"

/* dropout: 1 - keep_prob; hold: epochs with the full rate; decay: factor of every later epoch. */
typedef struct ptb_config {
    const char *name;
    int units, steps, epochs, hold;
    double scale, clip, dropout, decay;
} ptb_config;

static const ptb_config ptb_configs[] = {
    {"ptb-small", 200, 20, 13, 4, 0.1, 5, 0, 0.5},
    {"ptb-medium", 650, 35, 39, 6, 0.05, 5, 0.5, 0.8},
    {"ptb-large", 1500, 35, 55, 14, 0.04, 10, 0.65, 1 / 1.15},
};

static sl_status char_rnn_model(sl_model *model, int vocabulary) {
    sl_init uniform = {SL_INIT_UNIFORM, 0.08};
    sl_recurrent lstm = {.units = 128,
                         .bias = SL_BIAS_DOUBLE,
                         .forget_bias_mode = SL_FORGET_IN_VARIABLE,
                         .forget_bias = 1,
                         .return_sequences = 1,
                         .stateful = 1,
                         .kernel_init = uniform,
                         .recurrent_init = uniform,
                         .bias_init = uniform};
    sl_dense output = {.units = vocabulary, .kernel_init = uniform, .bias_init = uniform};
    SLI_TRY(sl_model_add_tokens(model, "tokens", vocabulary));
    SLI_TRY(sl_model_add_one_hot(model, "one_hot", vocabulary, NULL));
    SLI_TRY(sl_model_add_recurrent(model, "lstm1", SL_LSTM, &lstm, NULL));
    SLI_TRY(sl_model_add_recurrent(model, "lstm2", SL_LSTM, &lstm, NULL));
    return sl_model_add_dense(model, "logits", &output, NULL);
}

static void char_rnn_training(sl_training *t) {
    t->batch = 50;
    t->steps = 50;
    t->epochs = 50;
    t->optimizer = (sl_optimizer){.kind = SL_RMSPROP, .rho = 0.95, .epsilon = 1e-8};
    t->learning_rate = 2e-3;
    t->schedule = (sl_schedule){.kind = SL_SCHEDULE_EPOCH_DECAY, .factor = 0.97, .hold = 10};
    t->clip = (sl_clip){SL_CLIP_VALUE, 5};
    t->split = SL_SPLIT_BLOCKS;
    t->valid_fraction = 0.05;
    t->keep_state = 1;
    t->level = SL_LEVEL_CHAR;
}

static sl_status ptb_dropout(sl_model *model, const ptb_config *config, const char *name) {
    return config->dropout > 0 ? sl_model_add_dropout(model, name, config->dropout, NULL) : SL_OK;
}

static sl_status ptb_model(sl_model *model, const ptb_config *config, int vocabulary) {
    sl_init uniform = {SL_INIT_UNIFORM, config->scale};
    sl_embedding embedding = {.vocabulary = vocabulary, .units = config->units, .init = uniform};
    sl_recurrent lstm = {.units = config->units,
                         .bias = SL_BIAS_SINGLE,
                         .forget_bias_mode = SL_FORGET_NONE,
                         .return_sequences = 1,
                         .stateful = 1,
                         .kernel_init = uniform,
                         .recurrent_init = uniform,
                         .bias_init = {SL_INIT_ZEROS, 0}};
    sl_dense output = {.units = vocabulary, .kernel_init = uniform, .bias_init = uniform};
    SLI_TRY(sl_model_add_tokens(model, "tokens", vocabulary));
    SLI_TRY(sl_model_add_embedding(model, "embedding", &embedding, NULL));
    SLI_TRY(ptb_dropout(model, config, "dropout0"));
    SLI_TRY(sl_model_add_recurrent(model, "lstm1", SL_LSTM, &lstm, NULL));
    SLI_TRY(ptb_dropout(model, config, "dropout1"));
    SLI_TRY(sl_model_add_recurrent(model, "lstm2", SL_LSTM, &lstm, NULL));
    SLI_TRY(ptb_dropout(model, config, "dropout2"));
    return sl_model_add_dense(model, "logits", &output, NULL);
}

static void ptb_training(sl_training *t, const ptb_config *config) {
    t->batch = 20;
    t->steps = config->steps;
    t->epochs = config->epochs;
    t->optimizer = (sl_optimizer){.kind = SL_SGD};
    t->learning_rate = 1;
    t->schedule = (sl_schedule){.kind = SL_SCHEDULE_EPOCH_DECAY, .factor = config->decay, .hold = config->hold};
    t->clip = (sl_clip){SL_CLIP_GLOBAL_NORM, config->clip};
    t->drop_partial = 1;
    t->level = SL_LEVEL_WORD;
    t->vocabulary_limit = 10000;
}

static const ptb_config *find_ptb(const char *name) {
    for (size_t i = 0; i < sizeof ptb_configs / sizeof *ptb_configs; i++)
        if (strcmp(ptb_configs[i].name, name) == 0) return &ptb_configs[i];
    return NULL;
}

sl_status sli_preset(const sl_allocator *allocator, const char *name, int vocabulary, sl_model **model,
                     sl_training *training) {
    const ptb_config *ptb = find_ptb(name);
    bool char_rnn = strcmp(name, "char-rnn") == 0;
    SLI_FAIL_IF(!ptb && !char_rnn, SL_ERR_UNKNOWN,
                "no preset is called \"%.60s\": there are char-rnn, ptb-small, ptb-medium and ptb-large", name);
    sl_model *made = NULL;
    SLI_TRY(sl_model_new(allocator, &made));
    sl_status status = char_rnn ? char_rnn_model(made, vocabulary) : ptb_model(made, ptb, vocabulary);
    if (status != SL_OK) {
        sl_model_free(made);
        return status;
    }
    sl_training t;
    memset(&t, 0, sizeof t);
    t.task = "lm";
    t.loss = SL_LOSS_SOFTMAX;
    t.reduction = SL_REDUCE_SUM_TIME;
    if (char_rnn)
        char_rnn_training(&t);
    else
        ptb_training(&t, ptb);
    *model = made;
    *training = t;
    return SL_OK;
}
