/* A small text, small models and a recorder of events, shared by the tests of training. */
#include "train/train_helpers.h"

const int32_t *helper_tokens(void) {
    static int32_t tokens[HELPER_TOKENS];
    uint64_t state = 99;
    for (int i = 1; i < HELPER_TOKENS; i++) {
        double draw = test_random(&state);
        int step = draw < 0.4 ? 1 : draw < 0.8 ? 2 : 5;
        tokens[i] = (tokens[i - 1] + step) % HELPER_VOCABULARY;
    }
    return tokens;
}

sl_dataset helper_data(size_t count) {
    sl_dataset data = {.tokens = helper_tokens(), .token_count = count};
    return data;
}

sl_model *helper_model(double dropout) {
    sl_model *model = NULL;
    sl_embedding embedding = {.vocabulary = HELPER_VOCABULARY, .units = 6};
    sl_recurrent recurrent = {.units = 8, .return_sequences = 1, .stateful = 1};
    sl_dense dense = {.units = HELPER_VOCABULARY};
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_tokens(model, "tokens", HELPER_VOCABULARY));
    REQUIRE_OK(sl_model_add_embedding(model, "embedding", &embedding, NULL));
    if (dropout > 0) REQUIRE_OK(sl_model_add_dropout(model, "dropout1", dropout, NULL));
    REQUIRE_OK(sl_model_add_recurrent(model, "lstm", SL_LSTM, &recurrent, NULL));
    if (dropout > 0) REQUIRE_OK(sl_model_add_dropout(model, "dropout2", dropout, NULL));
    REQUIRE_OK(sl_model_add_recurrent(model, "gru", SL_GRU, &recurrent, NULL));
    REQUIRE_OK(sl_model_add_dense(model, "logits", &dense, NULL));
    return model;
}

sl_training helper_training(int epochs) {
    sl_training training = {.batch = 3,
                            .steps = 5,
                            .epochs = epochs,
                            .seed = 5,
                            .optimizer = {.kind = SL_ADAM},
                            .learning_rate = 0.01,
                            .clip = {SL_CLIP_GLOBAL_NORM, 1},
                            .loss = SL_LOSS_SOFTMAX,
                            .device = test_device};
    return training;
}

sl_trainer *helper_trainer(const sl_model *model, const sl_training *training, const sl_dataset *data,
                           const char *path) {
    sl_trainer *trainer = NULL;
    REQUIRE_OK(sl_trainer_new((sl_model *)model, training, data, NULL, path, NULL, &trainer));
    return trainer;
}

const char *helper_path(const char *name) {
    static char paths[8][700];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", test_folder(), name);
    return path;
}

sl_answer helper_listen(void *record, const sl_progress *progress) {
    helper_record *r = record;
    r->last = *progress;
    if (strcmp(progress->event, "step") == 0) {
        if (r->steps < 600) {
            r->losses[r->steps] = progress->loss;
            r->rates[r->steps] = progress->learning_rate;
        }
        r->steps++;
        if (r->steps == r->stop_at) return r->answer == SL_CONTINUE ? SL_STOP_SAVING : r->answer;
    } else if (strcmp(progress->event, "epoch") == 0) {
        r->epochs++;
    } else if (strcmp(progress->event, "evaluation") == 0) {
        if (r->evaluations < 100) r->valid[r->evaluations] = progress->valid_loss;
        r->evaluations++;
    } else if (strcmp(progress->event, "checkpoint") == 0) {
        r->checkpoints++;
        CHECK(progress->path);
    } else if (strcmp(progress->event, "early_stop") == 0) {
        r->early_stops++;
    } else if (strcmp(progress->event, "stop") == 0) {
        r->stops++;
    } else {
        test_fail(__FILE__, __LINE__, "unknown event %s", progress->event);
    }
    return SL_CONTINUE;
}

int helper_depth(void) {
    return strncmp(test_device, "cpu", 3) == 0 ? 1 : 2;
}

bool helper_same_params(sl_trainer *a, sl_trainer *b) {
    sl_params *p = sl_trainer_params(a), *q = sl_trainer_params(b);
    bool same = sl_params_count(p) == sl_params_count(q) && sl_params_count(p) > 0;
    for (int i = 0; same && i < sl_params_count(p); i++) {
        int rows, columns;
        const char *name = sl_params_name(p, i, &rows, &columns);
        size_t count = (size_t)rows * (size_t)columns;
        double *x = malloc(count * sizeof *x), *y = malloc(count * sizeof *y);
        REQUIRE(x && y);
        REQUIRE_OK(sl_params_get(p, name, x, count));
        REQUIRE_OK(sl_params_get(q, name, y, count));
        same = memcmp(x, y, count * sizeof *x) == 0;
        free(x);
        free(y);
    }
    return same;
}
