/* A hundred losses of the published Penn Treebank training, scaled down, from PyTorch (tests/golden/make_ptb.py --tiny): the
 * fit loop, streams with carried state, dropout masks, clipping by the global norm, the schedule, all at once. */
#include "golden.h"

static void ptb_model(golden_case *c) {
    const char *words = c->words;
    int vocabulary = (int)golden_number(words, "vocabulary", 0), units = (int)golden_number(words, "units", 0);
    double rate = golden_number(words, "dropout", 0);
    sl_embedding embedding = {.vocabulary = vocabulary, .units = units};
    sl_recurrent lstm = {.units = units,
                         .bias = SL_BIAS_SINGLE,
                         .forget_bias_mode = SL_FORGET_NONE,
                         .return_sequences = 1,
                         .stateful = 1};
    sl_dense dense = {.units = vocabulary};
    REQUIRE_OK(sl_model_new(NULL, &c->model));
    REQUIRE_OK(sl_model_add_tokens(c->model, "tokens", vocabulary));
    REQUIRE_OK(sl_model_add_embedding(c->model, "embedding", &embedding, NULL));
    REQUIRE_OK(sl_model_add_dropout(c->model, "dropout0", rate, NULL));
    REQUIRE_OK(sl_model_add_recurrent(c->model, "lstm1", SL_LSTM, &lstm, NULL));
    REQUIRE_OK(sl_model_add_dropout(c->model, "dropout1", rate, NULL));
    REQUIRE_OK(sl_model_add_recurrent(c->model, "lstm2", SL_LSTM, &lstm, NULL));
    REQUIRE_OK(sl_model_add_dropout(c->model, "dropout2", rate, NULL));
    REQUIRE_OK(sl_model_add_dense(c->model, "logits", &dense, NULL));
}

typedef struct collected {
    double losses[100], learning_rates[100];
    size_t count;
} collected;

static sl_answer collect(void *context, const sl_progress *progress) {
    collected *all = context;
    if (strcmp(progress->event, "step") || all->count == 100) return SL_CONTINUE;
    all->learning_rates[all->count] = progress->learning_rate;
    all->losses[all->count++] = progress->loss;
    return all->count == 100 ? SL_STOP_SAVING : SL_CONTINUE;
}

static void ptb_case(sl_file *file, sl_dtype dtype) {
    golden_case c = {.file = file, .name = "ptb", .words = sl_file_metadata(file, "case ptb"), .dtype = dtype};
    REQUIRE(c.words);
    ptb_model(&c);
    size_t token_count, loss_count;
    int32_t *tokens = golden_integers(&c, "in", "tokens", &token_count);
    double *expected = golden_values(&c, "losses", "nats", &loss_count);
    REQUIRE(tokens && expected && loss_count == 100);
    sl_training training = {
        .task = "lm",
        .batch = (int)golden_number(c.words, "batch", 0),
        .steps = (int)golden_number(c.words, "steps", 0),
        .epochs = 9,
        .seed = (uint64_t)golden_number(c.words, "seed", 0),
        .optimizer = {.kind = SL_SGD},
        .learning_rate = golden_number(c.words, "lr", 0),
        .schedule = {.kind = SL_SCHEDULE_EPOCH_DECAY,
                     .factor = golden_number(c.words, "decay", 0),
                     .hold = (int)golden_number(c.words, "hold", 0)},
        .clip = {SL_CLIP_GLOBAL_NORM, golden_number(c.words, "clip", 0)},
        .loss = SL_LOSS_SOFTMAX,
        .reduction = SL_REDUCE_SUM_TIME,
        .drop_partial = 1,
        .dtype = dtype,
        .device = test_device,
    };
    sl_dataset data = {.tokens = tokens, .token_count = token_count};
    sl_trainer *trainer = NULL;
    REQUIRE_OK(sl_trainer_new(c.model, &training, &data, NULL, NULL, NULL, &trainer));
    c.params = sl_trainer_params(trainer);
    golden_load_params(&c);
    c.params = NULL; /* the trainer's */
    collected all = {.count = 0};
    REQUIRE_OK(sl_trainer_fit(trainer, collect, &all));
    CHECK(all.count == 100);
    golden_compare(&c, "losses", all.losses, expected, all.count);
    CHECK_NEAR(all.learning_rates[0], 1, 0);
    CHECK(all.learning_rates[99] < 0.5);
    sl_trainer_free(trainer);
    golden_release(&c);
    free(tokens);
    free(expected);
}

TEST(golden_ptb_hundred_losses) {
    sl_file *file = golden_open("ptb_tiny.safetensors");
    if (!test_on_gpu()) ptb_case(file, SL_F64);
    ptb_case(file, SL_F32);
    sl_file_close(file);
}
