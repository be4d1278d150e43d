/* Bodies of the description functions of sluice.h: argument checks, then the layer kinds. */
#include "core/model.h"

#include <string.h>

sl_status sl_model_new(const sl_allocator *allocator, sl_model **out) {
    SLI_FAIL_IF(!out, SL_ERR_USAGE, "sl_model_new: model is NULL; pass the address of a pointer");
    *out = NULL;
    sl_allocator chosen = sli_allocator_or_default(allocator);
    sl_model *model = sli_alloc_zero(&chosen, sizeof *model);
    if (!model) return sli_fail_memory("a model", sizeof *model);
    model->allocator = chosen;
    sli_arena_init(&model->arena, &model->allocator);
    sli_text_init(&model->json, &model->allocator);
    *out = model;
    return SL_OK;
}

void sl_model_free(sl_model *model) {
    if (!model) return;
    sl_allocator allocator = model->allocator;
    sli_text_free(&model->json);
    sli_arena_free(&model->arena);
    sli_free(&allocator, model, sizeof *model);
}

static sl_status check(const sl_model *model, const char *function) {
    SLI_FAIL_IF(!model, SL_ERR_USAGE, "%s: model is NULL; make one with sl_model_new", function);
    return SL_OK;
}

sl_status sl_model_add_input(sl_model *model, const char *name, int features, int no_steps) {
    SLI_TRY(check(model, __func__));
    SLI_FAIL_IF(features < 1, SL_ERR_SHAPE, "input %s: %d features; it needs at least 1", name ? name : "?", features);
    sli_input_options options = {.features = features, .no_steps = no_steps != 0};
    return sli_model_add(model, name, "InputLayer", &options, NULL);
}

sl_status sl_model_add_tokens(sl_model *model, const char *name, int vocabulary) {
    SLI_TRY(check(model, __func__));
    SLI_FAIL_IF(vocabulary < 1, SL_ERR_SHAPE, "input %s: a vocabulary of %d; it needs at least 1", name ? name : "?",
                vocabulary);
    sli_input_options options = {.vocabulary = vocabulary};
    return sli_model_add(model, name, "InputLayer", &options, NULL);
}

sl_status sl_model_add_recurrent(sl_model *model, const char *name, sl_cell cell, const sl_recurrent *options,
                                 const char *const *inputs) {
    static const char *const kinds[] = {"LSTM", "GRU", "SimpleRNN"};
    SLI_TRY(check(model, __func__));
    SLI_FAIL_IF(!options || (int)cell < 0 || cell > SL_RNN, SL_ERR_USAGE,
                "layer %s: a recurrent layer needs options (at least units) and a cell SL_LSTM, SL_GRU or SL_RNN",
                name ? name : "?");
    return sli_model_add(model, name, kinds[cell], options, inputs);
}

sl_status sl_model_add_embedding(sl_model *model, const char *name, const sl_embedding *options,
                                 const char *const *inputs) {
    SLI_TRY(check(model, __func__));
    SLI_FAIL_IF(!options, SL_ERR_USAGE, "layer %s: an embedding needs options (vocabulary, units)", name ? name : "?");
    return sli_model_add(model, name, "Embedding", options, inputs);
}

sl_status sl_model_add_one_hot(sl_model *model, const char *name, int vocabulary, const char *const *inputs) {
    SLI_TRY(check(model, __func__));
    const struct { int vocabulary, mode; } options = {vocabulary, 0};
    return sli_model_add(model, name, "CategoryEncoding", &options, inputs);
}

sl_status sl_model_add_dense(sl_model *model, const char *name, const sl_dense *options, const char *const *inputs) {
    SLI_TRY(check(model, __func__));
    SLI_FAIL_IF(!options, SL_ERR_USAGE, "layer %s: a dense layer needs options (units)", name ? name : "?");
    return sli_model_add(model, name, "Dense", options, inputs);
}

sl_status sl_model_add_dropout(sl_model *model, const char *name, double rate, const char *const *inputs) {
    SLI_TRY(check(model, __func__));
    return sli_model_add(model, name, "Dropout", &rate, inputs);
}

sl_status sl_model_add_merge(sl_model *model, const char *name, sl_merge kind, const char *const *inputs) {
    static const char *const kinds[] = {"Add", "Concatenate", "Multiply", "Average"};
    SLI_TRY(check(model, __func__));
    SLI_FAIL_IF((int)kind < 0 || kind > SL_MERGE_AVERAGE, SL_ERR_USAGE, "layer %s: no such merge", name ? name : "?");
    SLI_FAIL_IF(!inputs, SL_ERR_USAGE, "layer %s: a merge needs the names of two to four inputs", name ? name : "?");
    return sli_model_add(model, name, kinds[kind], NULL, inputs);
}

sl_status sl_model_set_outputs(sl_model *model, const char *const *outputs) {
    SLI_TRY(check(model, __func__));
    int count = 0;
    while (outputs && outputs[count]) count++;
    SLI_FAIL_IF(count == 0, SL_ERR_USAGE, "sl_model_set_outputs: no names; list at least one tensor");
    const char **names = sli_arena_alloc(&model->arena, sizeof(char *) * (size_t)count);
    if (!names) return sli_fail_memory("the model's outputs", sizeof(char *) * (size_t)count);
    for (int k = 0; k < count; k++) {
        int output;
        SLI_FAIL_IF(sli_model_find_tensor(model, outputs[k], &output) < 0, SL_ERR_UNKNOWN,
                    "output \"%s\" is no tensor of the model; name a layer, or its state with return_state",
                    outputs[k]);
        names[k] = sli_arena_string(&model->arena, outputs[k]);
        if (!names[k]) return sli_fail_memory("the model's outputs", strlen(outputs[k]) + 1);
    }
    model->outputs = names;
    model->output_count = count;
    return SL_OK;
}
