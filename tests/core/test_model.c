/* Descriptions: names, inputs, shapes, and the sentences of what cannot be described. */
#include "test.h"

static sl_model *new_model(void) {
    sl_model *model;
    REQUIRE_OK(sl_model_new(NULL, &model));
    return model;
}

TEST(model_names_are_checked) {
    sl_model *model = new_model();
    sl_dense dense = {.units = 3};
    CHECK_FAILS(sl_model_add_dense(model, "out", &dense, NULL), SL_ERR_INPUT, "no input yet");
    REQUIRE_OK(sl_model_add_input(model, "x", 4, 0));
    CHECK_FAILS(sl_model_add_input(model, "x", 4, 0), SL_ERR_INPUT, "two layers");
    CHECK_FAILS(sl_model_add_dense(model, "a.b", &dense, NULL), SL_ERR_INPUT, "no blank, dot");
    CHECK_FAILS(sl_model_add_dense(model, "", &dense, NULL), SL_ERR_INPUT, NULL);
    const char *nobody[] = {"y", NULL};
    CHECK_FAILS(sl_model_add_dense(model, "out", &dense, nobody), SL_ERR_UNKNOWN, "\"y\"");
    CHECK_FAILS(sl_model_set_outputs(model, nobody), SL_ERR_UNKNOWN, "\"y\"");
    sl_model_free(model);
    sl_model_free(NULL);
}

/* Plans a model of one layer and returns the status; the model is freed. */
static sl_status plan_of(sl_model *model, const sl_plan_options *options) {
    sl_plan_options chosen = options ? *options : (sl_plan_options){0};
    chosen.device = test_device;
    sl_plan *plan;
    sl_status status = sl_plan_new(model, &chosen, &plan);
    CHECK((status == SL_OK) == (plan != NULL));
    sl_plan_free(plan);
    sl_model_free(model);
    return status;
}

static sl_model *recurrent_model(sl_cell cell, const sl_recurrent *options) {
    sl_model *model = new_model();
    REQUIRE_OK(sl_model_add_input(model, "x", 4, 0));
    REQUIRE_OK(sl_model_add_recurrent(model, "rnn", cell, options, NULL));
    return model;
}

TEST(model_recurrent_options_are_checked) {
    sl_recurrent none = {0};
    CHECK_FAILS(plan_of(recurrent_model(SL_LSTM, &none), NULL), SL_ERR_SHAPE, "layer rnn: 0 units");
    sl_recurrent peephole = {.units = 3, .peephole = 1};
    CHECK_FAILS(plan_of(recurrent_model(SL_GRU, &peephole), NULL), SL_ERR_INPUT, "belong to LSTM");
    sl_recurrent reset = {.units = 3, .reset_before = 1};
    CHECK_FAILS(plan_of(recurrent_model(SL_LSTM, &reset), NULL), SL_ERR_INPUT, "belongs to GRU");
    sl_recurrent rate = {.units = 3, .recurrent_dropout = 1};
    CHECK_FAILS(plan_of(recurrent_model(SL_RNN, &rate), NULL), SL_ERR_INPUT, "[0, 1)");
    sl_recurrent both = {.units = 3, .go_backwards = 1, .bidirectional = SL_BI_SUM};
    CHECK_FAILS(plan_of(recurrent_model(SL_RNN, &both), NULL), SL_ERR_INPUT, "exclude");
    sl_recurrent forget = {.units = 3, .bias = SL_BIAS_NONE, .forget_bias_mode = SL_FORGET_IN_VARIABLE};
    CHECK_FAILS(plan_of(recurrent_model(SL_LSTM, &forget), NULL), SL_ERR_INPUT, "needs a bias");
    forget = (sl_recurrent){.units = 3, .forget_bias_mode = SL_FORGET_NONE, .forget_bias = 2};
    CHECK_FAILS(plan_of(recurrent_model(SL_LSTM, &forget), NULL), SL_ERR_INPUT,
                "a forget_bias of 2, but its mode is none");
}

TEST(model_shapes_are_checked) {
    sl_recurrent last = {.units = 3};
    sl_model *model = recurrent_model(SL_LSTM, &last);
    REQUIRE_OK(sl_model_add_recurrent(model, "second", SL_LSTM, &last, NULL));
    CHECK_FAILS(plan_of(model, NULL), SL_ERR_SHAPE, "return_sequences");
    model = new_model();
    REQUIRE_OK(sl_model_add_tokens(model, "tokens", 9));
    REQUIRE_OK(sl_model_add_recurrent(model, "rnn", SL_LSTM, &last, NULL));
    CHECK_FAILS(plan_of(model, NULL), SL_ERR_SHAPE, "Embedding");
    model = recurrent_model(SL_LSTM, &(sl_recurrent){.units = 3, .return_sequences = 1});
    const char *pair[] = {"x", "rnn", NULL};
    REQUIRE_OK(sl_model_add_merge(model, "sum", SL_MERGE_ADD, pair));
    CHECK_FAILS(plan_of(model, NULL), SL_ERR_SHAPE, "must be equal");
    model = new_model();
    REQUIRE_OK(sl_model_add_input(model, "x", 4, 0));
    REQUIRE_OK(sl_model_add_input(model, "h0", 5, 1));
    const char *state[] = {"x", "h0", NULL};
    REQUIRE_OK(sl_model_add_recurrent(model, "rnn", SL_GRU, &last, state));
    CHECK_FAILS(plan_of(model, NULL), SL_ERR_SHAPE, "must be [B][3]");
}

/* Numbers that JSON has not: a trained model with one could not be read again. */
TEST(model_numbers_are_such_that_files_hold) {
    const sl_recurrent wrong[] = {{.units = 3, .cell_clip = INFINITY},
                                  {.units = 3, .cell_clip = 1e-300}, /* as a float 0 */
                                  {.units = 3, .forget_bias = NAN},
                                  {.units = 3, .zoneout_h = 1 - 1e-9}, /* as a float 1 */
                                  {.units = 3, .kernel_init = {SL_INIT_CONSTANT, INFINITY}},
                                  {.units = 3, .recurrent_init = {SL_INIT_NORMAL, -0.1}}};
    for (int k = 0; k < 6; k++)
        CHECK_FAILS(plan_of(recurrent_model(SL_LSTM, &wrong[k]), NULL), SL_ERR_INPUT, "layer rnn: ");
    sl_model *model = recurrent_model(SL_LSTM, &(sl_recurrent){.units = 3, .bidirectional = (sl_direction_merge)1000});
    const char *text;
    CHECK(sl_model_to_json(model, &text) == SL_OK);
    CHECK_FAILS(plan_of(model, NULL), SL_ERR_USAGE, "bidirectional is 1000");
    model = recurrent_model(SL_LSTM, &(sl_recurrent){.units = 3});
    REQUIRE_OK(sl_model_add_dropout(model, "drop", 1 - 1e-9, NULL));
    CHECK_FAILS(plan_of(model, NULL), SL_ERR_INPUT, "layer drop: rate is 1;");
}

TEST(model_tied_weights_need_their_table) {
    sl_model *model = new_model();
    sl_embedding embedding = {.vocabulary = 7, .units = 4};
    sl_dense tied = {.units = 7, .tied_to = "nobody"};
    REQUIRE_OK(sl_model_add_tokens(model, "tokens", 7));
    REQUIRE_OK(sl_model_add_embedding(model, "embedding", &embedding, NULL));
    REQUIRE_OK(sl_model_add_dense(model, "out", &tied, NULL));
    CHECK_FAILS(plan_of(model, NULL), SL_ERR_UNKNOWN, "tied to \"nobody\"");
}

TEST(model_states_are_named_tensors) {
    sl_recurrent options = {.units = 3, .return_state = 1, .bidirectional = SL_BI_CONCAT};
    sl_model *model = recurrent_model(SL_LSTM, &options);
    const char *states[] = {"rnn.forward.h", "rnn.forward.c", "rnn.backward.h", "rnn.backward.c", NULL};
    CHECK(sl_model_set_outputs(model, states) == SL_OK);
    const char *wrong[] = {"rnn.h", NULL};
    CHECK_FAILS(sl_model_set_outputs(model, wrong), SL_ERR_UNKNOWN, "rnn.h");
    CHECK(plan_of(model, NULL) == SL_OK);
}
