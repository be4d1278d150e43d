/* Keras Sequential JSON: src/io/model_json*.c. */
#include "io/model_json.h"
#include "io/io_helpers.h"

static sl_status read_text(const char *text, sl_model **model) {
    return sl_model_from_json(NULL, text, strlen(text), model);
}

/* Equal options, field by field: the padding between them is nobody's. */
static bool same_options(const sli_layer_kind *kind, const char *a, const char *b) {
    for (const sli_field *field = kind->fields; field && field->key; field++) {
        const void *x = a + field->offset, *y = b + field->offset;
        bool same = true;
        if (field->type <= SLI_FIELD_BOOL_ENUM && field->type != SLI_FIELD_NUMBER)
            same = *(const int *)x == *(const int *)y;
        if (field->type == SLI_FIELD_NUMBER) same = *(const double *)x == *(const double *)y;
        if (field->type == SLI_FIELD_INIT)
            same = ((const sl_init *)x)->kind == ((const sl_init *)y)->kind &&
                   ((const sl_init *)x)->value == ((const sl_init *)y)->value;
        if (field->type == SLI_FIELD_STRING) {
            const char *s = *(const char *const *)x, *t = *(const char *const *)y;
            same = s && t ? !strcmp(s, t) : s == t;
        }
        if (!same) return false;
    }
    return true;
}

/* from_json(to_json(m)) says the same as m. Returns the text, malloc'd. */
static char *check_stable(sl_model *model) {
    const char *text, *again;
    REQUIRE_OK(sl_model_to_json(model, &text));
    char *copy = strdup(text);
    sl_model *other;
    REQUIRE_OK(read_text(copy, &other));
    REQUIRE_OK(sl_model_to_json(other, &again));
    CHECK(!strcmp(copy, again));
    CHECK(other->layer_count == model->layer_count && other->output_count == model->output_count);
    for (int i = 0; i < model->layer_count; i++) {
        const sli_layer *a = model->layers[i], *b = other->layers[i];
        CHECK(a->kind == b->kind && !strcmp(a->name, b->name) && a->input_count == b->input_count);
        CHECK(a->frozen == b->frozen);
        CHECK(same_options(a->kind, a->options, b->options));
    }
    sl_model_free(other);
    return copy;
}

static sl_model *read_keras(const char *name) {
    size_t size;
    char path[1024];
    snprintf(path, sizeof path, "%s/keras/%s", test_data, name);
    char *text = io_read_file(path, &size);
    sl_model *model;
    REQUIRE_OK(sl_model_from_json(NULL, text, size, &model));
    free(text);
    return model;
}

static const sl_recurrent *recurrent(const sl_model *model, int layer) {
    return model->layers[layer]->options;
}

/* ------------------------------------------------------------------------------------------- what Keras writes -- */
TEST(io_json_keras_language_model) {
    sl_model *model = read_keras("language_model.json");
    REQUIRE(model->layer_count == 6);
    const sli_input_options *input = model->layers[0]->options;
    CHECK(input->vocabulary == 50 && !strcmp(model->layers[0]->name, "tokens"));
    CHECK(recurrent(model, 2)->units == 6 && recurrent(model, 2)->return_sequences == 1);
    CHECK(recurrent(model, 2)->forget_bias_mode == SL_FORGET_DEFAULT);
    CHECK(recurrent(model, 2)->masked_output == SL_MASKED_REPEAT);
    CHECK(recurrent(model, 2)->kernel_init.kind == SL_INIT_GLOROT_UNIFORM);
    CHECK(recurrent(model, 4)->forget_bias_mode == SL_FORGET_NONE && recurrent(model, 4)->recurrent_dropout == 0.1);
    CHECK(model->layers[5]->kind == sli_layer_kind_find("Dense"));
    CHECK(((const sl_dense *)model->layers[5]->options)->units == 50);
    free(check_stable(model));
    sl_model_free(model);
}

TEST(io_json_keras_bidirectional) {
    sl_model *model = read_keras("bidirectional.json");
    REQUIRE(model->layer_count == 5);
    CHECK(recurrent(model, 1)->bidirectional == SL_BI_CONCAT && recurrent(model, 2)->bidirectional == SL_BI_SUM);
    CHECK(recurrent(model, 3)->bidirectional == SL_BI_AVE && recurrent(model, 3)->bias == SL_BIAS_NONE);
    CHECK(recurrent(model, 3)->activation == SL_ACT_RELU);
    CHECK(!strcmp(model->layers[1]->name, "bidirectional"));
    CHECK(((const sl_dense *)model->layers[4]->options)->no_bias == 1);
    free(check_stable(model));
    sl_model_free(model);
}

TEST(io_json_keras_stateful_gru) {
    sl_model *model = read_keras("stateful_gru.json");
    REQUIRE(model->layer_count == 4);
    CHECK(((const sli_input_options *)model->layers[0]->options)->features == 2);
    CHECK(recurrent(model, 1)->stateful && recurrent(model, 1)->reset_before);
    CHECK(recurrent(model, 1)->recurrent_activation == SL_ACT_HARD_SIGMOID);
    CHECK(recurrent(model, 2)->go_backwards && !recurrent(model, 2)->return_sequences);
    CHECK(recurrent(model, 2)->kernel_init.kind == SL_INIT_UNIFORM && recurrent(model, 2)->kernel_init.value == 0.1);
    CHECK(recurrent(model, 2)->recurrent_init.value == 0.5 && recurrent(model, 2)->bias_init.kind == SL_INIT_ONES);
    const sl_dense *dense = model->layers[3]->options;
    CHECK(dense->kernel_init.kind == SL_INIT_TRUNCATED_NORMAL && dense->kernel_init.value == 0.3);
    CHECK(dense->bias_init.kind == SL_INIT_CONSTANT && dense->bias_init.value == 0.125);
    free(check_stable(model));
    sl_model_free(model);
}

/* No InputLayer: the Embedding says how many tokens there are. Keras 2: another hard_sigmoid, other spellings. */
TEST(io_json_keras_others) {
    sl_model *model = read_keras("embedding_first.json");
    REQUIRE(model->layer_count == 4);
    CHECK(((const sli_input_options *)model->layers[0]->options)->vocabulary == 20);
    free(check_stable(model));
    sl_model_free(model);
    model = read_keras("keras2.json");
    REQUIRE(model->layer_count == 4);
    CHECK(recurrent(model, 2)->recurrent_activation == SL_ACT_HARD_SIGMOID_K2);
    CHECK(recurrent(model, 2)->kernel_init.kind == SL_INIT_GLOROT_UNIFORM);
    CHECK(recurrent(model, 2)->masked_output == SL_MASKED_REPEAT);
    free(check_stable(model));
    sl_model_free(model);
    size_t size;
    char path[1024];
    snprintf(path, sizeof path, "%s/keras/functional.json", test_data);
    char *text = io_read_file(path, &size);
    CHECK_FAILS(sl_model_from_json(NULL, text, size, &model), SL_ERR_UNKNOWN, "only \"Sequential\" is read");
    free(text);
}

/* ------------------------------------------------------------------------------------------------ what we write -- */
TEST(io_json_exact_text) {
    sl_model *model;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_tokens(model, "tokens", 7));
    REQUIRE_OK(sl_model_add_embedding(model, "embed", &(sl_embedding){.vocabulary = 7, .units = 4}, NULL));
    sl_recurrent lstm = {.units = 4,
                         .return_sequences = 1,
                         .bidirectional = SL_BI_MUL,
                         .peephole = 1,
                         .cell_clip = 0.1,
                         .kernel_init = {SL_INIT_PYTORCH, 0}};
    REQUIRE_OK(sl_model_add_recurrent(model, "both", SL_LSTM, &lstm, NULL));
    REQUIRE_OK(sl_model_add_merge(model, "sum", SL_MERGE_ADD, (const char *[]){"embed", "both", NULL}));
    REQUIRE_OK(sl_model_add_dense(model, "logits", &(sl_dense){.units = 7, .tied_to = "embed"}, NULL));
    REQUIRE_OK(sl_model_set_outputs(model, (const char *[]){"logits", "both", NULL}));
    char *text = check_stable(model);
    static const char EXPECTED[] = "{\n"
                                   "  \"class_name\": \"Sequential\",\n"
                                   "  \"config\": {\n"
                                   "    \"name\": \"sequential\",\n"
                                   "    \"layers\": [\n"
                                   "      {\n"
                                   "        \"class_name\": \"InputLayer\",\n"
                                   "        \"config\": {\n"
                                   "          \"name\": \"tokens\",\n"
                                   "          \"batch_shape\": [null, null],\n"
                                   "          \"dtype\": \"int32\"\n"
                                   "        }\n"
                                   "      },\n"
                                   "      {\n"
                                   "        \"class_name\": \"Embedding\",\n"
                                   "        \"config\": {\n"
                                   "          \"name\": \"embed\",\n"
                                   "          \"input_dim\": 7,\n"
                                   "          \"output_dim\": 4\n"
                                   "        }\n"
                                   "      },\n"
                                   "      {\n"
                                   "        \"class_name\": \"Bidirectional\",\n"
                                   "        \"config\": {\n"
                                   "          \"name\": \"both\",\n"
                                   "          \"merge_mode\": \"mul\",\n"
                                   "          \"layer\": {\n"
                                   "            \"class_name\": \"LSTM\",\n"
                                   "            \"config\": {\n"
                                   "              \"units\": 4,\n"
                                   "              \"kernel_initializer\": \"pytorch\",\n"
                                   "              \"return_sequences\": true,\n"
                                   "              \"sluice\": {\n"
                                   "                \"peephole\": true,\n"
                                   "                \"cell_clip\": 0.1\n"
                                   "              }\n"
                                   "            }\n"
                                   "          }\n"
                                   "        }\n"
                                   "      },\n"
                                   "      {\n"
                                   "        \"class_name\": \"Add\",\n"
                                   "        \"config\": {\n"
                                   "          \"name\": \"sum\",\n"
                                   "          \"inputs\": [\"embed\", \"both\"]\n"
                                   "        }\n"
                                   "      },\n"
                                   "      {\n"
                                   "        \"class_name\": \"Dense\",\n"
                                   "        \"config\": {\n"
                                   "          \"name\": \"logits\",\n"
                                   "          \"units\": 7,\n"
                                   "          \"sluice\": {\n"
                                   "            \"tied_to\": \"embed\"\n"
                                   "          }\n"
                                   "        }\n"
                                   "      }\n"
                                   "    ],\n"
                                   "    \"sluice\": {\n"
                                   "      \"outputs\": [\"logits\", \"both\"]\n"
                                   "    }\n"
                                   "  }\n"
                                   "}\n";
    if (strcmp(text, EXPECTED) != 0) test_fail(__FILE__, __LINE__, "the text is\n%s", text);
    free(text);
    sl_model_free(model);
}

/* What is written of -0 is what is written again. */
TEST(io_json_minus_zero) {
    sl_model *model;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 3, 0));
    REQUIRE_OK(sl_model_add_dropout(model, "d", -0.0, NULL));
    free(check_stable(model));
    sl_model_free(model);
}

/* Random options of every kind survive the way out and back. */
static sl_init random_init(uint64_t *state) {
    static const double VALUES[] = {0.05, 1.0 / 3, 1e-300, 12345.678};
    sl_init_kind kind = (sl_init_kind)((test_random(state) + 1) * 8);
    double value = VALUES[(int)((test_random(state) + 1) * 2)];
    bool valued = kind == SL_INIT_CONSTANT || kind == SL_INIT_UNIFORM || kind == SL_INIT_NORMAL ||
                  kind == SL_INIT_TRUNCATED_NORMAL || kind == SL_INIT_ORTHOGONAL;
    return (sl_init){kind, valued ? value : 0};
}

static int pick(uint64_t *state, int count) {
    return (int)((test_random(state) + 1) / 2 * count);
}

TEST(io_json_random_recurrent) {
    uint64_t state = test_seed;
    for (int round = 0; round < 300; round++) {
        sl_cell cell = (sl_cell)pick(&state, 3);
        sl_recurrent o = {.units = 1 + pick(&state, 9),
                          .activation = (sl_activation)pick(&state, 8),
                          .bias = (sl_bias)pick(&state, 4),
                          .return_sequences = pick(&state, 2),
                          .return_state = pick(&state, 2),
                          .go_backwards = pick(&state, 2),
                          .stateful = pick(&state, 2),
                          .bidirectional = (sl_direction_merge)pick(&state, 5),
                          .recurrent_dropout = pick(&state, 2) * 0.3,
                          .zoneout_h = pick(&state, 2) * test_random(&state),
                          .masked_output = (sl_masked_output)pick(&state, 2),
                          .kernel_init = random_init(&state),
                          .recurrent_init = random_init(&state),
                          .bias_init = random_init(&state)};
        if (cell != SL_RNN) o.recurrent_activation = (sl_activation)pick(&state, 8);
        if (cell == SL_GRU) o.reset_before = pick(&state, 2);
        if (cell == SL_LSTM) {
            o.forget_bias_mode = (sl_forget_bias_mode)pick(&state, 4);
            o.forget_bias = pick(&state, 2) * test_random(&state);
            o.projection = pick(&state, 3);
            o.peephole = pick(&state, 2);
            o.cell_clip = pick(&state, 2) * 2.5;
            o.zoneout_c = pick(&state, 2) * 0.125;
        }
        sl_model *model;
        REQUIRE_OK(sl_model_new(NULL, &model));
        REQUIRE_OK(sl_model_add_input(model, "x", 3, 0));
        REQUIRE_OK(sl_model_add_recurrent(model, "cell", cell, &o, NULL));
        free(check_stable(model));
        sl_model_free(model);
    }
}

TEST(io_json_other_kinds) {
    sl_model *model;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "flat", 3, 1));
    REQUIRE_OK(sl_model_add_tokens(model, "tokens", 9));
    REQUIRE_OK(sl_model_add_one_hot(model, "hot", 9, NULL));
    REQUIRE_OK(sl_model_add_dropout(model, "drop", 0, NULL));
    sl_dense dense = {.units = 9, .activation = SL_ACT_SOFTSIGN, .no_bias = 1, .kernel_init = {SL_INIT_IDENTITY, 2.5}};
    REQUIRE_OK(sl_model_add_dense(model, "dense", &dense, NULL));
    for (int kind = 0; kind < 4; kind++) {
        static const char *const NAMES[] = {"m0", "m1", "m2", "m3"};
        REQUIRE_OK(sl_model_add_merge(model, NAMES[kind], (sl_merge)kind, (const char *[]){"hot", "dense", NULL}));
    }
    char *text = check_stable(model);
    CHECK(strstr(text, "\"rate\": 0\n") && strstr(text, "[null, 3]") && strstr(text, "\"gain\": 2.5"));
    free(text);
    sl_model_free(model);
}

TEST(io_json_names_need_quotes) {
    sl_model *model, *other;
    const char *text;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "\xc3\xa9\\", 3, 0));
    free(check_stable(model));
    sl_model_free(model);
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "\xff", 3, 0));
    CHECK_FAILS(sl_model_to_json(model, &text), SL_ERR_INPUT, "not valid UTF-8");
    CHECK(!text);
    sl_model_free(model);
    CHECK_FAILS(sl_model_from_json(NULL, NULL, 0, &other), SL_ERR_USAGE, "text is NULL");
    CHECK_FAILS(sl_model_to_json(NULL, &text), SL_ERR_USAGE, "model is NULL");
}

/* ------------------------------------------------------------------------------------------------------ inputs -- */
#define MODEL(layers) "{\"class_name\":\"Sequential\",\"config\":{\"layers\":[" layers "]}}"
#define LAYER(class_name, config) "{\"class_name\":\"" class_name "\",\"config\":{" config "}}"
#define X LAYER("InputLayer", "\"name\":\"x\",\"batch_shape\":[null,null,3]") ","

static void check_input(const char *text, int features, int no_steps, int vocabulary) {
    sl_model *model;
    REQUIRE_OK(read_text(text, &model));
    CHECK(model->layers[0]->kind == sli_layer_kind_find("InputLayer"));
    const sli_input_options *input = model->layers[0]->options;
    CHECK(input->features == features && input->no_steps == no_steps && input->vocabulary == vocabulary);
    free(check_stable(model));
    sl_model_free(model);
}

TEST(io_json_inputs) {
#define LSTM_AFTER "," LAYER("LSTM", "\"name\":\"l\",\"units\":2")
#define EMBED LAYER("Embedding", "\"name\":\"e\",\"input_dim\":12,\"output_dim\":2")
    check_input(MODEL(LAYER("InputLayer", "\"shape\":[null,5]") LSTM_AFTER), 5, 0, 0);
    check_input(MODEL(LAYER("InputLayer", "\"batch_input_shape\":[4,7,5]") LSTM_AFTER), 5, 0, 0);
    check_input(MODEL(LAYER("InputLayer", "\"batch_shape\":[null,5]")), 5, 1, 0);
    check_input(MODEL(LAYER("InputLayer", "\"batch_shape\":[null,null]") "," EMBED), 0, 0, 12);
    check_input(
        MODEL(LAYER("InputLayer", "\"batch_shape\":[null,null],\"dtype\":\"int32\",\"sluice\":{\"vocabulary\":9}")), 0,
        0, 9);
    check_input(MODEL(EMBED), 0, 0, 12);
    /* The shape in a TimeDistributed is of one step. */
    check_input("{\"class_name\":\"Sequential\",\"config\":{\"build_input_shape\":[null,7,5],\"layers\":[" LAYER(
                    "TimeDistributed",
                    "\"name\":\"t\",\"layer\":" LAYER("Dense", "\"units\":2,\"batch_input_shape\":[null,5]")) "]}}",
                5, 0, 0);
    /* A first layer that is called as the input would be. */
    check_input(MODEL(LAYER("LSTM", "\"name\":\"input\",\"units\":2,\"batch_input_shape\":[null,null,6]")), 6, 0, 0);
    check_input(MODEL(LAYER("Embedding", "\"name\":\"input\",\"input_dim\":12,\"output_dim\":2") "," LAYER(
                    "LSTM", "\"name\":\"input_1\",\"units\":2")),
                0, 0, 12);
    check_input(MODEL(LAYER("LSTM", "\"name\":\"l\",\"units\":2,\"batch_input_shape\":[null,null,6]")), 6, 0, 0);
    check_input(
        MODEL(LAYER("Bidirectional", "\"name\":\"b\",\"layer\":" LAYER("GRU", "\"units\":2,\"batch_input_shape\":"
                                                                              "[null,null,6]"))),
        6, 0, 0);
    check_input("{\"class_name\":\"Sequential\",\"build_config\":{\"input_shape\":[null,null,4]},\"config\":{"
                "\"layers\":[" LAYER("SimpleRNN", "\"units\":2") "]}}",
                4, 0, 0);
    check_input("{\"class_name\":\"Sequential\",\"config\":[" LAYER(
                    "SimpleRNN", "\"units\":2,\"batch_input_shape\":[null,1,8]") "]}",
                8, 0, 0);
    /* A second input, and one that is read by name further down. */
    check_input(MODEL(LAYER("InputLayer", "\"name\":\"t\",\"batch_shape\":[null,null]") "," LAYER(
                    "InputLayer", "\"name\":\"x\",\"batch_shape\":[null,3]") "," LAYER("Embedding",
                                                                                       "\"input_dim\":4,\"output_dim\":"
                                                                                       "3,\"inputs\":[\"t\"]")),
                0, 0, 4);
}

TEST(io_json_outputs_at_both_places) {
    static const char *const TEXTS[] = {
        "{\"class_name\":\"Sequential\",\"sluice\":{\"task\":\"lm\",\"outputs\":[\"a\"]},\"config\":{\"layers\":[" X
            LAYER("Dropout", "\"name\":\"a\",\"rate\":0.5") "," LAYER("Dropout", "\"name\":\"b\",\"rate\":0.5") "]}}",
        "{\"class_name\":\"Sequential\",\"config\":{\"sluice\":{\"outputs\":[\"a\"]},\"layers\":[" X LAYER(
            "Dropout", "\"name\":\"a\",\"rate\":0.5") "," LAYER("Dropout", "\"name\":\"b\",\"rate\":0.5") "]}}"};
    for (int i = 0; i < 2; i++) {
        sl_model *model;
        REQUIRE_OK(read_text(TEXTS[i], &model));
        CHECK(model->output_count == 1 && !strcmp(model->outputs[0], "a"));
        sl_model_free(model);
    }
}

#define POLICY(name)                                                                                               \
    "{\"module\":\"keras\",\"class_name\":\"DTypePolicy\",\"config\":{\"name\":\"" name "\"},\"registered_name\":" \
    "null}"

TEST(io_json_dtypes_and_shapes_that_are_read) {
    static const char *const TEXTS[] = {
        MODEL(X LAYER("LSTM", "\"units\":2,\"batch_input_shape\":[4,35,3]")),
        MODEL(X LAYER("LSTM", "\"units\":2,\"batch_shape\":[null,null,null]")),
        MODEL(EMBED "," LAYER("LSTM", "\"units\":2,\"batch_input_shape\":null")),
        MODEL(LAYER("InputLayer", "\"batch_shape\":[null,null]") "," LAYER(
            "Embedding", "\"input_dim\":4,\"output_dim\":3,\"batch_input_shape\":[null,35]")),
        /* Keras 2 does not look at it. */
        "{\"class_name\":\"Sequential\",\"keras_version\":\"2.4.0\",\"config\":{\"layers\":[" X LAYER(
            "LSTM", "\"units\":2,\"batch_input_shape\":[null,null,4]") "]}}",
        MODEL(X LAYER("LSTM", "\"units\":2,\"dtype\":null")),
        MODEL(X LAYER("LSTM", "\"units\":2,\"dtype\":\"float32\"")),
        MODEL(X LAYER("LSTM", "\"units\":2,\"dtype\":" POLICY("float32"))),
        MODEL(LAYER("InputLayer", "\"batch_shape\":[null,null],\"dtype\":" POLICY("int64")) "," EMBED),
        MODEL(LAYER("InputLayer", "\"batch_shape\":[null,null],\"dtype\":\"uint8\"") "," EMBED),
        "{\"class_name\":\"Sequential\",\"keras_version\":\"2.0.5\",\"config\":[" LAYER(
            "Embedding", "\"input_dim\":4,\"output_dim\":3,\"dtype\":\"int32\",\"batch_input_shape\":[null,50]") "]}",
    };
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++) {
        sl_model *model;
        REQUIRE_OK(read_text(TEXTS[i], &model));
        sl_model_free(model);
    }
}

/* What a file leaves out is what the Keras that wrote it means. */
TEST(io_json_masked_output_by_version) {
#define VERSION(version, layer) "{\"class_name\":\"Sequential\"," version "\"config\":{\"layers\":[" X layer "]}}"
#define KERAS(version) "\"keras_version\":\"" version "\","
#define BOTH(config) LAYER("Bidirectional", "\"layer\":" LAYER("GRU", "\"units\":2" config))
    static const struct {
        const char *text;
        sl_masked_output masked;
    } CASES[] = {
        {VERSION(KERAS("2.4.0"), LAYER("LSTM", "\"units\":2")), SL_MASKED_REPEAT},
        {VERSION(KERAS("1.2.2"), LAYER("SimpleRNN", "\"units\":2")), SL_MASKED_REPEAT},
        {VERSION(KERAS("2.4.0"), LAYER("LSTM", "\"units\":2,\"zero_output_for_mask\":true")), SL_MASKED_ZERO},
        {VERSION(KERAS("2.4.0"), LAYER("LSTM", "\"units\":2,\"sluice\":{\"masked_output\":\"zero\"}")), SL_MASKED_ZERO},
        {VERSION(KERAS("2.4.0"), BOTH("")), SL_MASKED_REPEAT},
        {VERSION(KERAS("2.4.0"), BOTH(",\"return_sequences\":true")), SL_MASKED_ZERO},
        {VERSION(KERAS("2.3.0-tf"), BOTH(",\"return_sequences\":true")), SL_MASKED_ZERO},
        {VERSION(KERAS("2.3.1"), BOTH(",\"return_sequences\":true")),
         SL_MASKED_REPEAT}, /* Keras by itself forces nothing */
        {VERSION(KERAS("1.2.2"), BOTH(",\"return_sequences\":true")), SL_MASKED_REPEAT},
        {VERSION(KERAS("3.1.0"), LAYER("LSTM", "\"units\":2")), SL_MASKED_ZERO},
        {VERSION("", LAYER("LSTM", "\"units\":2")), SL_MASKED_ZERO},
        {VERSION("", LAYER("LSTM", "\"units\":2,\"zero_output_for_mask\":false")), SL_MASKED_REPEAT},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        sl_model *model;
        REQUIRE_OK(read_text(CASES[i].text, &model));
        CHECK(recurrent(model, 1)->masked_output == CASES[i].masked);
        free(check_stable(model));
        sl_model_free(model);
    }
}

TEST(io_json_reset_after_by_version) {
    static const struct {
        const char *text;
        int before;
    } CASES[] = {
        {VERSION(KERAS("2.1.6"), LAYER("GRU", "\"units\":2")), 1},
        {VERSION(KERAS("1.2.2"), BOTH("")), 1},
        {VERSION(KERAS("2.4.0"), LAYER("GRU", "\"units\":2,\"reset_after\":true")), 0},
        {VERSION(KERAS("2.4.0"), LAYER("LSTM", "\"units\":2")), 0},
        {VERSION(KERAS("3.1.0"), LAYER("GRU", "\"units\":2")), 0},
        {VERSION("", LAYER("GRU", "\"units\":2")), 0},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        sl_model *model;
        REQUIRE_OK(read_text(CASES[i].text, &model));
        CHECK(recurrent(model, 1)->reset_before == CASES[i].before);
        free(check_stable(model));
        sl_model_free(model);
    }
}

/* A 0 in the document is 0, not the 1 that 0 stands for in sl_recurrent. */
TEST(io_json_forget_bias_of_zero) {
    sl_model *model;
    REQUIRE_OK(read_text(MODEL(X LAYER("LSTM", "\"name\":\"l\",\"units\":2,\"sluice\":{\"forget_bias\":0}")), &model));
    CHECK(recurrent(model, 1)->forget_bias_mode == SL_FORGET_IN_VARIABLE && recurrent(model, 1)->forget_bias == 0);
    free(check_stable(model));
    sl_model_free(model);
}

/* Seeds are not read, so those of the two directions may differ. */
TEST(io_json_backward_layer_of_other_seeds) {
#define SEEDED(seed, more) \
    LAYER("GRU",           \
          "\"units\":2,\"kernel_initializer\":{\"class_name\":\"GlorotUniform\",\"config\":{\"seed\":" seed "}}" more)
    sl_model *model;
    REQUIRE_OK(read_text(MODEL(X LAYER("Bidirectional", "\"layer\":" SEEDED("1", "") ",\"backward_layer\":" SEEDED(
                                                            "2", ",\"go_backwards\":true"))),
                         &model));
    CHECK(recurrent(model, 1)->bidirectional == SL_BI_CONCAT);
    sl_model_free(model);
}

/* --------------------------------------------------------------------------------------------- frozen layers -- */
/* `refused`: the layer that training is refused for, NULL: it can be trained. */
static void check_frozen(const char *text, const char *refused) {
    sl_model *model;
    sl_plan *plan;
    const sl_plan_options training = {.train = 1, .device = "cpu"}, inference = {.device = "cpu"};
    REQUIRE_OK(read_text(text, &model));
    char *written = check_stable(model);
    CHECK(!refused == !strstr(written, "\"trainable\": false"));
    free(written);
    REQUIRE_OK(sl_plan_new(model, &inference, &plan));
    sl_plan_free(plan);
    if (refused) {
        CHECK_FAILS(sl_plan_new(model, &training, &plan), SL_ERR_INPUT, refused);
    } else {
        REQUIRE_OK(sl_plan_new(model, &training, &plan));
        sl_plan_free(plan);
    }
    sl_model_free(model);
}

TEST(io_json_frozen_layers_are_not_trained) {
#define FROZEN "\"trainable\":false"
#define DENSE "," LAYER("Dense", "\"name\":\"d\",\"units\":2")
#define BACKWARDS "\"units\":2,\"go_backwards\":true"
    check_frozen(MODEL(X LAYER("LSTM", "\"name\":\"l\",\"units\":2,\"trainable\":true") DENSE), NULL);
    check_frozen(MODEL(X LAYER("LSTM", "\"name\":\"l\",\"units\":2," FROZEN) DENSE),
                 "layer l is frozen, and Sluice trains all parameters");
    check_frozen(
        MODEL(X LAYER("TimeDistributed", "\"name\":\"t\"," FROZEN ",\"layer\":" LAYER("Dense", "\"units\":2"))),
        "layer t is frozen");
    check_frozen(MODEL(X LAYER("TimeDistributed", "\"name\":\"t\",\"layer\":" LAYER("Dense", "\"units\":2," FROZEN))),
                 "layer t is frozen");
    check_frozen(
        MODEL(X LAYER("Bidirectional", "\"name\":\"b\"," FROZEN ",\"layer\":" LAYER("GRU", "\"units\":2")) DENSE),
        "layer b is frozen");
    check_frozen(MODEL(X LAYER("Bidirectional", "\"name\":\"b\",\"layer\":" LAYER("GRU", "\"units\":2," FROZEN)) DENSE),
                 "layer b is frozen");
    check_frozen(MODEL(X LAYER("Bidirectional",
                               "\"name\":\"b\",\"layer\":" LAYER("GRU", "\"units\":2") ",\"backward_layer\":" LAYER(
                                   "GRU", BACKWARDS "," FROZEN)) DENSE),
                 "layer b is frozen");
    check_frozen("{\"class_name\":\"Sequential\",\"config\":{" FROZEN
                 ",\"layers\":[" X LAYER("Dropout", "\"name\":\"p\",\"rate\":0.5") DENSE "]}}",
                 "layer d is frozen");
}

/* Nothing in them is trained anyway. */
TEST(io_json_frozen_without_parameters) {
    sl_model *model;
    sl_plan *plan;
    REQUIRE_OK(read_text(MODEL(LAYER("InputLayer", "\"name\":\"x\",\"batch_shape\":[null,3]," FROZEN) "," LAYER(
                             "Dropout", "\"name\":\"p\",\"rate\":0.5," FROZEN) DENSE),
                         &model));
    free(check_stable(model));
    REQUIRE_OK(sl_plan_new(model, &(sl_plan_options){.train = 1, .device = "cpu"}, &plan));
    sl_plan_free(plan);
    sl_model_free(model);
}

/* ------------------------------------------------------------------------------------------------------ errors -- */
TEST(io_json_errors) {
#define L(config) MODEL(X LAYER("LSTM", "\"name\":\"l\"," config))
#define D(config) MODEL(X LAYER("Dense", "\"name\":\"d\",\"units\":2," config))
    static const struct {
        const char *text;
        sl_status status;
        const char *says;
    } CASES[] = {
        {"{\n  \"a\": 1,\n  \"b\" 2\n}", SL_ERR_INPUT, "model JSON: not valid JSON, line 3 column 7"},
        {"", SL_ERR_INPUT, "not valid JSON"},
        {"[1]", SL_ERR_INPUT, "not an object"},
        {"{\"class_name\":\"Sequential\",\"class_name\":\"Sequential\"}", SL_ERR_INPUT, "duplicate"},
        {"{}", SL_ERR_INPUT, "`class_name` is missing"},
        {"{\"class_name\":\"Sequential\"}", SL_ERR_INPUT, "`config.layers` is missing or empty"},
        {"{\"class_name\":\"Sequential\",\"confg\":{}}", SL_ERR_UNKNOWN,
         "unknown key `confg` at the top; did you mean `config`?"},
        {"{\"class_name\":\"Sequential\",\"config\":{\"layer\":[]}}", SL_ERR_UNKNOWN, "did you mean `layers`?"},
        {MODEL(""), SL_ERR_INPUT, "missing or empty"},
        {MODEL("1"), SL_ERR_INPUT, "is not an object"},
        {MODEL("{\"class_name\":\"LSTM\"}"), SL_ERR_INPUT, "`config` is missing"},
        {MODEL("{\"class_name\":\"LSTM\",\"config\":{},\"confiq\":1}"), SL_ERR_UNKNOWN, "unknown key `confiq` beside"},
        {MODEL("{\"config\":{}}"), SL_ERR_INPUT, "`class_name` is missing"},
        {MODEL(X LAYER("LSMT", "\"units\":2")), SL_ERR_UNKNOWN,
         "(LSMT): there is no such kind of layer; did you mean \"LSTM\"?"},
        {MODEL(X LAYER("Conv2D", "\"filters\":2")), SL_ERR_UNKNOWN,
         "known are Bidirectional, TimeDistributed, InputLayer"},
        {L("\"unitz\":2"), SL_ERR_UNKNOWN, "layer 2 \"l\" (LSTM): unknown key `unitz`; did you mean `units`?"},
        {L("\"units\":2,\"frobnicate\":1"), SL_ERR_UNKNOWN, "unknown key `frobnicate`; remove it"},
        {L("\"units\":2,\"peephole\":true"), SL_ERR_UNKNOWN, "`peephole` belongs into `config.sluice`"},
        {L("\"units\":2,\"sluice\":{\"activation\":\"tanh\"}"), SL_ERR_UNKNOWN, "`activation` belongs into `config`"},
        {L("\"units\":2,\"sluice\":{\"pephole\":true}"), SL_ERR_UNKNOWN,
         "unknown key `pephole` in `sluice`; did you mean `peephole`?"},
        {L("\"units\":2,\"sluice\":1"), SL_ERR_INPUT, "`sluice` is not an object"},
        {L("\"activation\":\"tanh\""), SL_ERR_INPUT, "`units` is missing"},
        {L("\"units\":2.5"), SL_ERR_INPUT, "`units` is not a whole number"},
        {L("\"units\":99999999999"), SL_ERR_INPUT, "`units` is not a whole number"},
        {L("\"units\":\"2\""), SL_ERR_INPUT, "`units` is not a whole number"},
        {L("\"units\":2,\"activation\":\"tahn\""), SL_ERR_UNKNOWN, "there is no \"tahn\"; did you mean \"tanh\"?"},
        {L("\"units\":2,\"activation\":\"swish\""), SL_ERR_UNKNOWN, "known are linear, tanh, sigmoid"},
        {L("\"units\":2,\"activation\":3"), SL_ERR_INPUT, "`activation` is not a name"},
        {L("\"units\":2,\"trainable\":\"maybe\""), SL_ERR_INPUT,
         "layer 2 \"l\" (LSTM): `trainable` is not true or false"},
        {D("\"trainable\":null"), SL_ERR_INPUT, "`trainable` is not true or false"},
        {MODEL(LAYER("InputLayer", "\"batch_shape\":[null,3],\"trainable\":1")), SL_ERR_INPUT,
         "`trainable` is not true or false"},
        {MODEL(X LAYER("Bidirectional", "\"layer\":" LAYER("LSTM", "\"units\":2,\"trainable\":0"))), SL_ERR_INPUT,
         "`trainable` is not true or false"},
        {"{\"class_name\":\"Sequential\",\"config\":{\"trainable\":0,\"layers\":[" X LAYER("Dropout",
                                                                                           "\"rate\":0.5") "]}}",
         SL_ERR_INPUT, "model JSON, the model itself: `trainable` is not true or false"},
        {L("\"units\":2,\"sluice\":{\"trainable\":false}"), SL_ERR_UNKNOWN, "`trainable` belongs into `config`"},
        {L("\"units\":2,\"dtype\":\"float64\""), SL_ERR_INPUT,
         "layer 2 \"l\" (LSTM): `dtype` is not \"float32\"; set it so or leave it out, and choose the precision of "
         "products "
         "with --dtype"},
        {D("\"dtype\":\"float16\""), SL_ERR_INPUT, "`dtype` is not"},
        {D("\"dtype\":\"int32\""), SL_ERR_INPUT, "`dtype` is not"},
        {D("\"dtype\":7"), SL_ERR_INPUT, "`dtype` is not"},
        {D("\"dtype\":" POLICY("mixed_bfloat16")), SL_ERR_INPUT, "`dtype` is not"},
        {D("\"dtype\":{}"), SL_ERR_INPUT, "`dtype` is not"},
        {MODEL(LAYER("InputLayer", "\"batch_shape\":[null,3],\"dtype\":\"float64\"")), SL_ERR_INPUT, "`dtype` is not"},
        {MODEL(X LAYER("Bidirectional", "\"dtype\":\"half\",\"layer\":" LAYER("LSTM", "\"units\":2"))), SL_ERR_INPUT,
         "`dtype` is not"},
        {MODEL(X LAYER("TimeDistributed", "\"layer\":" LAYER("Dense", "\"units\":2,\"dtype\":\"float64\""))),
         SL_ERR_INPUT, "`dtype` is not"},
        {"{\"class_name\":\"Sequential\",\"config\":{\"dtype\":" POLICY("mixed_float16") ",\"layers\":[" X LAYER(
             "Dropout", "\"rate\":0.5") "]}}",
         SL_ERR_INPUT, "model JSON, the model itself: `dtype` is not"},
        {"{\"class_name\":\"Sequential\",\"dtype\":\"float64\",\"config\":{\"layers\":[" X LAYER("Dropout",
                                                                                                 "\"rate\":0.5") "]}}",
         SL_ERR_INPUT, "model JSON, the model itself: `dtype` is not"},
        {L("\"units\":2,\"batch_input_shape\":[null,null,4]"), SL_ERR_SHAPE,
         "layer 2 \"l\" (LSTM): the input shape is not that of what the layer reads, [batch, steps, 3]; leave it out"},
        {L("\"units\":2,\"batch_shape\":[null,3]"), SL_ERR_SHAPE, "reads, [batch, steps, 3]"},
        {L("\"units\":2,\"batch_input_shape\":3"), SL_ERR_SHAPE, "the input shape is not [batch, steps, features]"},
        {MODEL(X LAYER("Bidirectional", "\"layer\":" LAYER("LSTM", "\"units\":2,\"batch_input_shape\":[null,7,4]"))),
         SL_ERR_SHAPE, "reads, [batch, steps, 3]"},
        {MODEL(LAYER("InputLayer", "\"batch_shape\":[null,null]") "," LAYER(
             "Embedding", "\"input_dim\":4,\"output_dim\":3,\"batch_input_shape\":[null,35,4]")),
         SL_ERR_SHAPE, "reads, [batch, steps]"},
        {MODEL(LAYER("InputLayer", "\"batch_shape\":[null,3]") "," LAYER("Dense",
                                                                         "\"units\":4,\"batch_shape\":[null,5]")),
         SL_ERR_SHAPE, "reads, [batch, 3]"},
        {L("\"units\":2,\"stateful\":1"), SL_ERR_INPUT, "`stateful` is not true or false"},
        {L("\"units\":2,\"recurrent_dropout\":\"x\""), SL_ERR_INPUT, "`recurrent_dropout` is not a number"},
        {L("\"units\":2,\"dropout\":0.5"), SL_ERR_INPUT, "use a Dropout layer"},
        {L("\"units\":2,\"kernel_regularizer\":{\"class_name\":\"L2\"}"), SL_ERR_INPUT,
         "`kernel_regularizer` cannot be used"},
        {MODEL(X LAYER("Concatenate", "\"axis\":0,\"inputs\":[\"x\",\"x\"]")), SL_ERR_INPUT, "`axis` is 0"},
        {L("\"units\":2,\"use_bias\":false,\"sluice\":{\"bias\":null}"), SL_ERR_INPUT, "`bias` is not a name"},
        {MODEL(LAYER("InputLayer", "\"batch_shape\":[null,null],\"dtype\":\"int32\"") "," LAYER(
             "Embeding", "\"input_dim\":4,\"output_dim\":3")),
         SL_ERR_UNKNOWN, "did you mean \"Embedding\"?"},
        {MODEL(LAYER("InputLayer", "\"batch_shape\":[null,null]") "," LAYER("Embedding",
                                                                            "\"input_dim\":\"4\",\"output_dim\":3")),
         SL_ERR_INPUT, "`input_dim` is not a whole number"},
        {L("\"units\":2,\"inputs\":[\"y\"]"), SL_ERR_UNKNOWN, "input \"y\" is not the output of an earlier layer"},
        {L("\"units\":2,\"inputs\":\"x\""), SL_ERR_INPUT, "`inputs` is not a list"},
        {L("\"units\":2,\"inputs\":[]"), SL_ERR_INPUT, "`inputs` is not a list"},
        {MODEL(X LAYER("Dropout", "\"name\":\"x\",\"rate\":0.5")), SL_ERR_INPUT, "two layers are called \"x\""},
        {MODEL(X LAYER("Dropout", "\"name\":3,\"rate\":0.5")), SL_ERR_INPUT, "`name` is not a string"},
        {MODEL(X LAYER("Bidirectional", "\"name\":\"b\"")), SL_ERR_INPUT, "`layer` is missing"},
        {MODEL(X LAYER("Bidirectional", "\"layer\":" LAYER("Dense", "\"units\":2"))), SL_ERR_UNKNOWN,
         "not around \"Dense\""},
        {MODEL(X LAYER("Bidirectional", "\"layer\":" LAYER("LSTM", "\"units\":2") ",\"merge_mode\":null")),
         SL_ERR_UNKNOWN, "`merge_mode` is not concat, sum, mul or ave"},
        {MODEL(X LAYER("Bidirectional", "\"layer\":" LAYER("LSTM", "\"units\":2") ",\"backward_layer\":" LAYER(
                                            "LSTM", "\"units\":3,\"go_backwards\":true"))),
         SL_ERR_INPUT, "`backward_layer` differs"},
        {MODEL(X LAYER("Bidirectional", "\"weights\":1,\"layer\":" LAYER("LSTM", "\"units\":2"))), SL_ERR_UNKNOWN,
         "unknown key `weights`"},
        {MODEL(X LAYER("Bidirectional", "\"sluice\":{\"peephole\":true},\"layer\":" LAYER("LSTM", "\"units\":2"))),
         SL_ERR_UNKNOWN, "`sluice` belongs into the config of `layer`"},
        {"{\"class_name\":\"Sequential\",\"keras_version\":\"1.2.2\",\"config\":[" X LAYER(
             "LSTM", "\"output_dim\":2,\"inner_activation\":\"hard_sigmoid\"") "]}",
         SL_ERR_UNKNOWN, "unknown key `output_dim`: keys of Keras 1"},
        {MODEL(X LAYER("TimeDistributed", "\"layer\":" LAYER("LSTM", "\"units\":2"))), SL_ERR_UNKNOWN,
         "around Dense only"},
        {MODEL(LAYER("LSTM", "\"units\":2")), SL_ERR_INPUT, "does not say what comes in"},
        {MODEL(LAYER("InputLayer", "\"name\":\"x\"")), SL_ERR_INPUT, "`batch_shape` is missing"},
        {MODEL(LAYER("InputLayer", "\"batch_shape\":[null]")), SL_ERR_SHAPE, "the input shape is not"},
        {MODEL(LAYER("InputLayer", "\"batch_shape\":[1,2,3,4]")), SL_ERR_SHAPE, "the input shape is not"},
        {MODEL(LAYER("InputLayer", "\"batch_shape\":[null,null,null]")), SL_ERR_SHAPE, "the number of features"},
        {MODEL(LAYER("InputLayer", "\"batch_shape\":[null,null,0]")), SL_ERR_SHAPE, "is not a size"},
        {MODEL(LAYER("InputLayer", "\"batch_shape\":[null,{},3]")), SL_ERR_SHAPE,
         "number 2 of the input shape is neither"},
        {MODEL(LAYER("InputLayer", "\"batch_shape\":[\"tanh\",null,3]")), SL_ERR_SHAPE, "number 1 of"},
        {MODEL(LAYER("InputLayer", "\"batch_shape\":[null,null],\"dtype\":\"int32\"")), SL_ERR_INPUT,
         "\"sluice\": {\"vocabulary\": N}"},
        {MODEL(LAYER("InputLayer", "\"batch_shape\":[null,null,3],\"sluice\":{\"vocabulary\":5}")), SL_ERR_SHAPE,
         "without features"},
        {MODEL(LAYER("InputLayer", "\"batch_shape\":[null,null],\"sluice\":{\"vocabulary\":0}")), SL_ERR_INPUT,
         "not a number of tokens"},
        {MODEL(LAYER("InputLayer", "\"batch_shape\":[null,3],\"sparse\":true")), SL_ERR_INPUT, "`sparse` inputs"},
        {MODEL(LAYER("InputLayer", "\"batch_shape\":[null,3],\"color\":1")), SL_ERR_UNKNOWN, "unknown key `color`"},
        {D("\"kernel_initializer\":\"glorot_unifrom\""), SL_ERR_UNKNOWN,
         "no initializer \"glorot_unifrom\"; did you mean \"glorot_uniform\"?"},
        {D("\"kernel_initializer\":\"magic\""), SL_ERR_UNKNOWN, "no initializer \"magic\""},
        {D("\"kernel_initializer\":3"), SL_ERR_INPUT, "`kernel_initializer` is neither the name"},
        {D("\"kernel_initializer\":{\"class_name\":\"RandomUniform\",\"config\":{\"minval\":0,\"maxval\":1}}"),
         SL_ERR_INPUT, "minval = -maxval"},
        {D("\"kernel_initializer\":{\"class_name\":\"RandomNormal\",\"config\":{\"mean\":1}}"), SL_ERR_INPUT,
         "needs mean 0"},
        {D("\"kernel_initializer\":{\"class_name\":\"RandomNormal\",\"config\":{\"stdev\":1}}"), SL_ERR_UNKNOWN,
         "does not know, `stdev`"},
        {D("\"kernel_initializer\":{\"class_name\":\"Constant\",\"config\":{\"value\":\"x\"}}"), SL_ERR_INPUT,
         "`value` of Constant is not a number"},
        {D("\"kernel_initializer\":{\"class_name\":\"Identity\",\"config\":{\"gain\":\"x\"}}"), SL_ERR_INPUT,
         "`gain` of Identity is not a number"},
        {D("\"kernel_initializer\":{\"class_name\":\"VarianceScaling\",\"config\":{\"scale\":3}}"), SL_ERR_INPUT,
         "Glorot, He or LeCun"},
        {D("\"kernel_initializer\":{\"class_name\":\"Zeros\",\"confg\":{}}"), SL_ERR_UNKNOWN,
         "unknown key `confg` of an initializer"},
        {"{\"class_name\":\"Sequential\",\"sluice\":{\"outputs\":3},\"config\":{\"layers\":[" X LAYER(
             "Dropout", "\"rate\":0.5") "]}}",
         SL_ERR_INPUT, "`sluice.outputs` is not a list"},
        {"{\"class_name\":\"Sequential\",\"config\":{\"sluice\":{\"output\":[]},\"layers\":[]}}", SL_ERR_UNKNOWN,
         "did you mean `outputs`?"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        sl_model *model;
        CHECK_FAILS(read_text(CASES[i].text, &model), CASES[i].status, CASES[i].says);
        CHECK(!model);
    }
}

TEST(io_json_initializers) {
    static const struct {
        const char *json;
        sl_init init;
    } CASES[] = {
        {"null", {SL_INIT_GLOROT_UNIFORM, 0}}, /* Keras: a variable without an initializer */
        {"\"zeros\"", {SL_INIT_ZEROS, 0}},
        {"\"zero\"", {SL_INIT_ZEROS, 0}},
        {"\"uniform\"", {SL_INIT_UNIFORM, 0.05}},
        {"\"normal\"", {SL_INIT_NORMAL, 0.05}},
        {"\"truncated_normal\"", {SL_INIT_TRUNCATED_NORMAL, 0.05}},
        {"\"GlorotNormal\"", {SL_INIT_GLOROT_NORMAL, 0}},
        {"\"lecun_uniform\"", {SL_INIT_LECUN_UNIFORM, 0}},
        {"{\"class_name\":\"PyTorch\"}", {SL_INIT_PYTORCH, 0}},
        {"{\"class_name\":\"Orthogonal\",\"config\":{\"gain\":1.0,\"seed\":3}}", {SL_INIT_ORTHOGONAL, 0}},
        {"{\"class_name\":\"Orthogonal\",\"config\":{\"gain\":0}}", {SL_INIT_ZEROS, 0}},
        {"{\"class_name\":\"OrthogonalInitializer\",\"config\":{\"gain\":1.0,\"seed\":null}}", /* Keras 3.0 to 3.6 */
         {SL_INIT_ORTHOGONAL, 0}},
        {"{\"class_name\":\"IdentityInitializer\",\"config\":{\"gain\":2}}", {SL_INIT_IDENTITY, 2}},
        {"{\"class_name\":\"Identity\",\"config\":{\"gain\":2}}", {SL_INIT_IDENTITY, 2}},
        {"{\"class_name\":\"Constant\",\"config\":{\"value\":-0.25}}", {SL_INIT_CONSTANT, -0.25}},
        {"{\"class_name\":\"VarianceScaling\",\"config\":{\"scale\":2.0,\"mode\":\"fan_in\",\"distribution\":"
         "\"uniform\"}}",
         {SL_INIT_HE_UNIFORM, 0}},
        {"{\"class_name\":\"VarianceScaling\",\"config\":{}}", {SL_INIT_LECUN_NORMAL, 0}},
    };
    sli_json_where where = {.number = 1, .name = "l", .class_name = "Dense"};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        json_t *value = json_loads(CASES[i].json, JSON_DECODE_ANY, NULL);
        REQUIRE(value);
        sl_init init;
        REQUIRE_OK(sli_json_read_init(&where, "kernel_initializer", value, &init));
        CHECK(init.kind == CASES[i].init.kind && init.value == CASES[i].init.value);
        json_decref(value);
    }
}

/* Every prefix of a real description: an error, never a crash. */
TEST(io_json_truncated) {
    size_t size;
    char path[1024];
    snprintf(path, sizeof path, "%s/keras/keras2.json", test_data);
    char *text = io_read_file(path, &size);
    while (size > 0 && text[size - 1] == '\n') size--;
    for (size_t cut = 0; cut < size; cut++) {
        char *part = malloc(cut ? cut : 1);
        memcpy(part, text, cut);
        sl_model *model;
        CHECK_FAILS(sl_model_from_json(NULL, part, cut, &model), SL_ERR_INPUT, "model JSON: not valid JSON");
        free(part);
    }
    free(text);
}

TEST(model_json_softmax_says_what_to_do) {
    static const char json[] =
        "{\"class_name\": \"Sequential\", \"config\": {\"layers\": ["
        "{\"class_name\": \"InputLayer\", \"config\": {\"batch_shape\": [null, 3]}},"
        "{\"class_name\": \"Dense\", \"config\": {\"units\": 2, \"activation\": \"softmax\"}}]}}";
    sl_model *model = NULL;
    CHECK_FAILS(sl_model_from_json(NULL, json, sizeof json - 1, &model), SL_ERR_UNKNOWN,
                "set its activation to \"linear\"");
}

/* JSON has no such numbers: options are checked when they are planned, and nothing is written that no reader takes. */
TEST(io_json_refuses_numbers_that_are_not_finite) {
    const char *text = "before";
    sl_model *model;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 3, 0));
    REQUIRE_OK(sl_model_add_recurrent(model, "lstm", SL_LSTM, &(sl_recurrent){.units = 2}, NULL));
    sl_training training = {.loss = SL_LOSS_MSE, .learning_rate = NAN};
    CHECK_FAILS(sl_training_to_json(model, &training, NULL, &text), SL_ERR_INPUT, "no finite number");
    CHECK(text == NULL);
    training.learning_rate = 0.1;
    REQUIRE_OK(sl_training_to_json(model, &training, NULL, &text));
    REQUIRE_OK(sl_model_add_dropout(model, "d", INFINITY, NULL));
    CHECK_FAILS(sl_model_to_json(model, &text), SL_ERR_INPUT, "no finite number");
    CHECK(text == NULL);
    sl_model_free(model);
}
