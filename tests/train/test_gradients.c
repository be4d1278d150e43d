/* Gradients of whole models: random stacks of every kind of layer, in double against central differences, in float against
 * double, with two threads and with recomputation in segments to the bit. */
#include "proof/differences.h"
#include "proof/parity.h"
#include "test.h"

static void keep_failures(void *context, const char *text) {
    if (strstr(text, "FAIL")) test_fail(__FILE__, __LINE__, "%s: %s", (const char *)context, text);
}

/* Everything there is to check of one model. Takes the model. */
static void check_model(const char *name, sl_model *model, sl_plan_options options, sli_mask mask, uint64_t seed) {
    sli_subject *subject;
    sli_report report = {.line = keep_failures, .context = (void *)name};
    options.train = options.input_gradients = 1;
    options.device = test_device;
    REQUIRE_OK(sli_subject_new(model, &options, mask, seed, &subject));
    REQUIRE_OK(sli_check_differences(subject, 5e7, &report));
    REQUIRE_OK(sli_check_parity(subject, &options, "float", false, &report));
    CHECK(report.findings > 0 && report.failures == 0);
    sli_subject_free(subject);
    sl_model_free(model);
}

/* -------------------------------------------------------------------------------------------------- layers, one by one -- */

static sl_model *model_of_input(int features, int no_steps) {
    sl_model *model;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", features, no_steps));
    return model;
}

TEST(gradients_last_output_of_each_cell) {
    for (int cell = SL_LSTM; cell <= SL_RNN; cell++) {
        for (int backwards = 0; backwards < 2; backwards++) {
            sl_model *model = model_of_input(3, 0);
            sl_recurrent options = {.units = 4, .go_backwards = backwards};
            sl_dense dense = {.units = 2, .activation = SL_ACT_TANH};
            REQUIRE_OK(sl_model_add_recurrent(model, "rnn", (sl_cell)cell, &options, NULL));
            REQUIRE_OK(sl_model_add_dense(model, "dense", &dense, NULL));
            check_model("last output", model,
                        (sl_plan_options){.batch = 3, .steps = 4, .loss = SL_LOSS_MSE, .masking = SL_MASK_LENGTHS},
                        SLI_MASK_LENGTHS, test_seed);
        }
    }
}

TEST(gradients_last_output_of_each_merge_of_directions) {
    for (int merge = SL_BI_CONCAT; merge <= SL_BI_AVE; merge++) {
        sl_model *model = model_of_input(3, 0);
        sl_recurrent options = {.units = 4, .bidirectional = (sl_direction_merge)merge};
        REQUIRE_OK(sl_model_add_recurrent(model, "rnn", SL_GRU, &options, NULL));
        check_model("bidirectional last output", model, (sl_plan_options){.batch = 3, .steps = 4}, SLI_MASK_NONE,
                    test_seed);
    }
}

TEST(gradients_initial_state_used_by_two_layers) {
    sl_model *model = model_of_input(3, 0);
    sl_recurrent first = {.units = 4, .return_state = 1, .return_sequences = 1},
                 other = {.units = 4, .return_sequences = 1};
    const char *const again[] = {"rnn", "rnn.h", "rnn.c", NULL}, *const also[] = {"x", "rnn.h", "rnn.c", NULL};
    const char *const sum[] = {"decoder", "second", "rnn", NULL}, *const outputs[] = {"sum", "rnn.c", NULL};
    REQUIRE_OK(sl_model_add_recurrent(model, "rnn", SL_LSTM, &first, NULL));
    REQUIRE_OK(sl_model_add_recurrent(model, "decoder", SL_LSTM, &other, again));
    REQUIRE_OK(sl_model_add_recurrent(model, "second", SL_LSTM, &other, also));
    REQUIRE_OK(sl_model_add_merge(model, "sum", SL_MERGE_ADD, sum));
    REQUIRE_OK(sl_model_set_outputs(model, outputs));
    check_model("shared states", model, (sl_plan_options){.batch = 3, .steps = 4}, SLI_MASK_NONE, test_seed);
}

/* The table of a tied embedding gets gradients from both of its uses. */
TEST(gradients_tied_language_model) {
    for (int reduction = SL_REDUCE_MEAN; reduction <= SL_REDUCE_SUM_TIME; reduction++) {
        sl_model *model;
        sl_embedding embedding = {.vocabulary = 11, .units = 5};
        sl_recurrent options = {.units = 5, .return_sequences = 1};
        sl_dense logits = {.units = 11, .tied_to = "embedding"};
        REQUIRE_OK(sl_model_new(NULL, &model));
        REQUIRE_OK(sl_model_add_tokens(model, "tokens", 11));
        REQUIRE_OK(sl_model_add_embedding(model, "embedding", &embedding, NULL));
        REQUIRE_OK(sl_model_add_dropout(model, "drop", 0.3, NULL));
        REQUIRE_OK(sl_model_add_recurrent(model, "rnn", SL_LSTM, &options, NULL));
        REQUIRE_OK(sl_model_add_dense(model, "logits", &logits, NULL));
        check_model(
            "tied", model,
            (sl_plan_options){.batch = 3, .steps = 5, .loss = SL_LOSS_SOFTMAX, .reduction = (sl_reduction)reduction},
            SLI_MASK_NONE, test_seed);
    }
}

/* ---------------------------------------------------------------------------------------------------- random models -- */

typedef struct builder {
    sl_model *model;
    uint64_t state;
    char last[32]; /* name of the tensor on top */
    int width;     /* its features */
    int layers;
    char states[32]; /* an LSTM whose final states are free, or "" */
    int states_width;
} builder;

static int pick(builder *b, int count) {
    int k = (int)((test_random(&b->state) + 1) * 0.5 * count);
    return k < count ? k : count - 1;
}

static double rate(builder *b) {
    return pick(b, 3) == 0 ? 0.1 + 0.1 * pick(b, 4) : 0;
}

static void on_top(builder *b, const char *name, int width) {
    snprintf(b->last, sizeof b->last, "%s", name);
    b->width = width;
}

static void add_recurrent(builder *b) {
    sl_cell cell = (sl_cell)pick(b, 3);
    bool lstm = cell == SL_LSTM;
    char name[32], h[40], c[40];
    sl_recurrent options = {.units = 2 + pick(b, 4), .return_sequences = 1, .return_state = 1};
    options.recurrent_dropout = rate(b);
    options.zoneout_h = rate(b);
    options.reset_before = pick(b, 2);
    if (cell != SL_GRU) options.reset_before = 0;
    if (lstm) options.peephole = pick(b, 2), options.zoneout_c = rate(b), options.projection = pick(b, 3) ? 0 : 3;
    if (pick(b, 3) == 0) options.bidirectional = (sl_direction_merge)(SL_BI_CONCAT + pick(b, 4));
    if (pick(b, 4) == 0) options.activation = SL_ACT_RELU;
    if (pick(b, 4) == 0) options.bias = SL_BIAS_DOUBLE;
    options.go_backwards = !options.bidirectional && pick(b, 4) == 0;
    const char *inputs[] = {b->last, NULL, NULL, NULL};
    bool chained = lstm && b->states[0] && pick(b, 2);
    if (chained) {
        options.units = b->states_width;
        options.projection = 0;
        options.bidirectional = SL_UNIDIRECTIONAL;
        snprintf(h, sizeof h, "%s.h", b->states);
        snprintf(c, sizeof c, "%s.c", b->states);
        inputs[1] = h;
        inputs[2] = c;
    }
    snprintf(name, sizeof name, "rnn%d", ++b->layers);
    REQUIRE_OK(sl_model_add_recurrent(b->model, name, cell, &options, inputs));
    int output = options.projection > 0 ? options.projection : options.units;
    on_top(b, name, options.bidirectional == SL_BI_CONCAT ? 2 * output : output);
    bool plain = lstm && !options.bidirectional && !options.projection;
    snprintf(b->states, sizeof b->states, "%s", plain ? name : "");
    b->states_width = options.units;
}

static void add_dense(builder *b, int units) {
    static const sl_activation acts[] = {SL_ACT_LINEAR, SL_ACT_TANH, SL_ACT_SIGMOID, SL_ACT_SOFTSIGN};
    char name[32];
    sl_dense dense = {.units = units, .activation = acts[pick(b, 4)], .no_bias = pick(b, 3) == 0};
    const char *inputs[] = {b->last, NULL};
    snprintf(name, sizeof name, "dense%d", ++b->layers);
    REQUIRE_OK(sl_model_add_dense(b->model, name, &dense, inputs));
    on_top(b, name, units);
}

static void add_dropout(builder *b) {
    char name[32];
    const char *inputs[] = {b->last, NULL};
    snprintf(name, sizeof name, "drop%d", ++b->layers);
    REQUIRE_OK(sl_model_add_dropout(b->model, name, 0.25, inputs));
    on_top(b, name, b->width);
}

/* What lies on top, joined with a function of itself: residual (equal widths) or concatenation. */
static void add_joined(builder *b) {
    char below[32], name[32];
    int width = b->width;
    snprintf(below, sizeof below, "%s", b->last);
    add_recurrent(b);
    sl_merge kind = pick(b, 2) ? SL_MERGE_CONCAT : (sl_merge)pick(b, 4);
    if (kind != SL_MERGE_CONCAT) add_dense(b, width);
    const char *inputs[] = {b->last, below, NULL};
    snprintf(name, sizeof name, "join%d", ++b->layers);
    REQUIRE_OK(sl_model_add_merge(b->model, name, kind, inputs));
    on_top(b, name, kind == SL_MERGE_CONCAT ? width + b->width : width);
}

static void check_random(int number, int batch, int steps) {
    builder b = {.state = test_seed + (uint64_t)number * 7919};
    char name[32];
    snprintf(name, sizeof name, "random model %d", number);
    REQUIRE_OK(sl_model_new(NULL, &b.model));
    if (pick(&b, 2)) {
        sl_embedding embedding = {.vocabulary = 7, .units = 4};
        REQUIRE_OK(sl_model_add_tokens(b.model, "tokens", 7));
        REQUIRE_OK(sl_model_add_embedding(b.model, "embedding", &embedding, NULL));
        on_top(&b, "embedding", 4);
    } else {
        REQUIRE_OK(sl_model_add_input(b.model, "x", 3, 0));
        on_top(&b, "x", 3);
    }
    for (int blocks = 1 + pick(&b, 3); blocks > 0; blocks--) {
        int kind = pick(&b, 5);
        if (kind < 2) add_recurrent(&b);
        if (kind == 2) add_joined(&b);
        if (kind == 3) add_dense(&b, 2 + pick(&b, 4));
        if (kind == 4) add_dropout(&b);
    }
    add_dense(&b, 2 + pick(&b, 4));
    sli_mask mask = (sli_mask)pick(&b, SLI_MASK_HOLES + 1);
    sl_plan_options options = {.batch = batch, .steps = steps, .loss = (sl_loss)pick(&b, 4)};
    options.recompute_gates = number % 3 == 0;
    if (options.loss != SL_LOSS_NONE) options.reduction = (sl_reduction)pick(&b, 2);
    options.masking = mask == SLI_MASK_NONE ? SL_MASK_NONE : mask == SLI_MASK_LENGTHS ? SL_MASK_LENGTHS : SL_MASK_STEPS;
    check_model(name, b.model, options, mask, b.state);
}

TEST(gradients_random_small_models) {
    for (int number = 0; number < 30; number++) check_random(number, 3 + number % 3, 3 + number % 4);
}

/* Longer than a chunk of time, so that a memory limit can cut them. */
TEST_SLOW(gradients_random_models_in_segments) {
    for (int number = 100; number < 112; number++) check_random(number, 40 + number % 7, 60 + number % 11);
}
