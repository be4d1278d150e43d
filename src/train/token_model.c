/* Copies of descriptions, and what a trainer, an evaluation or a generator must know of them. */
#include "train/token_model.h"

#include <string.h>

/* Options of these kinds are an sl_recurrent. */
static bool is_recurrent(const sli_layer *layer) {
    const char *name = layer->kind->class_name;
    return strcmp(name, "LSTM") == 0 || strcmp(name, "GRU") == 0 || strcmp(name, "SimpleRNN") == 0;
}

static sl_status carry_state(sli_layer *layer) {
    if (!is_recurrent(layer)) return SL_OK;
    sl_recurrent *options = layer->options;
    SLI_FAIL_IF(options->bidirectional != SL_UNIDIRECTIONAL || options->go_backwards, SL_ERR_INPUT,
                "layer %s: it reads the text backwards, so a language model cannot use it: take away bidirectional and "
                "go_backwards",
                layer->name);
    /* An initial state from another tensor is given anew in every call: nothing to carry. */
    if (layer->input_count == 1) options->stateful = 1;
    return SL_OK;
}

static sl_status copy_layers(const sl_model *model, sli_states states, sl_model *copy) {
    for (int i = 0; i < model->layer_count; i++) {
        const sli_layer *layer = model->layers[i];
        SLI_TRY(sli_model_add(copy, layer->name, layer->kind->class_name, layer->options, layer->inputs));
        copy->layers[i]->frozen = layer->frozen;
        if (states == SLI_STATES_CARRIED) SLI_TRY(carry_state(copy->layers[i]));
        if (states == SLI_STATES_FRESH && is_recurrent(copy->layers[i]))
            ((sl_recurrent *)copy->layers[i]->options)->stateful = 0;
    }
    if (model->output_count == 0) return SL_OK;
    const char **outputs = sli_arena_alloc(&copy->arena, sizeof(char *) * (size_t)(model->output_count + 1));
    if (!outputs) return sli_fail_memory("a model's outputs", sizeof(char *) * (size_t)(model->output_count + 1));
    for (int i = 0; i < model->output_count; i++) outputs[i] = model->outputs[i];
    return sl_model_set_outputs(copy, outputs);
}

sl_status sli_model_copy(const sl_model *model, sli_states states, sl_model **copy) {
    sl_model *made = NULL;
    SLI_TRY(sl_model_new(&model->allocator, &made));
    sl_status status = copy_layers(model, states, made);
    if (status != SL_OK) {
        sl_model_free(made);
        return status;
    }
    *copy = made;
    return SL_OK;
}

/* `shapes` holds the outputs of every layer. */
static sl_status find_ends(const sl_model *model, const sli_layer_outputs *shapes, sli_ends *ends) {
    int inputs = 0, output = 0, last = model->layer_count - 1;
    for (int i = 0; i < model->layer_count; i++) {
        if (strcmp(model->layers[i]->kind->class_name, "InputLayer") != 0) continue;
        if (inputs++ == 0) ends->input = shapes[i].shape[0];
    }
    SLI_FAIL_IF(inputs != 1, SL_ERR_INPUT, "the model has %d inputs: training data feed exactly one", inputs);
    if (model->output_count > 0) last = sli_model_find_tensor(model, model->outputs[0], &output);
    SLI_FAIL_IF(last < 0, SL_ERR_INTERNAL, "the model's output was not found");
    ends->output = shapes[last].shape[output];
    return SL_OK;
}

sl_status sli_model_ends(const sl_model *model, sli_ends *ends) {
    SLI_FAIL_IF(model->layer_count == 0, SL_ERR_INPUT, "the model has no layers: add an input and layers first");
    size_t bytes = sizeof(sli_layer_outputs) * (size_t)model->layer_count;
    sli_layer_outputs *shapes = sli_alloc_zero(&model->allocator, bytes);
    if (!shapes) return sli_fail_memory("the shapes of the layers", bytes);
    sl_status status = sli_model_shapes(model, shapes);
    if (status == SL_OK) status = find_ends(model, shapes, ends);
    sli_free(&model->allocator, shapes, bytes);
    return status;
}

/* The layer that gives the first output, or what a Dropout at the end reads. */
static const sli_layer *output_layer(const sl_model *model) {
    int output = 0, at = model->layer_count - 1;
    if (model->output_count > 0) at = sli_model_find_tensor(model, model->outputs[0], &output);
    while (at > 0 && strcmp(model->layers[at]->kind->class_name, "Dropout") == 0)
        at = sli_model_find_tensor(model, model->layers[at]->inputs[0], &output);
    return at < 0 ? NULL : model->layers[at];
}

sl_status sli_check_logits(const sl_model *model, sl_loss loss) {
    static const char *const names[] = {
        "", "linear", "tanh", "sigmoid", "relu", "hard_sigmoid", "hard_sigmoid_k2", "softsign"};
    const sli_layer *layer = output_layer(model);
    if ((loss != SL_LOSS_SOFTMAX && loss != SL_LOSS_BINARY) || !layer || strcmp(layer->kind->class_name, "Dense") != 0)
        return SL_OK;
    sl_activation activation = ((const sl_dense *)layer->options)->activation;
    SLI_FAIL_IF(activation != SL_ACT_DEFAULT && activation != SL_ACT_LINEAR, SL_ERR_INPUT,
                "layer %s: activation %s, but the loss %s works on logits; set its activation to linear", layer->name,
                names[activation], loss == SL_LOSS_SOFTMAX ? "softmax" : "binary");
    return SL_OK;
}

sl_status sli_model_token_ends(const sl_model *model, sli_ends *ends) {
    SLI_TRY(sli_model_ends(model, ends));
    SLI_FAIL_IF(!ends->input.integer, SL_ERR_INPUT,
                "the model's input takes numbers, not tokens: a language model starts with a token input");
    SLI_FAIL_IF(!ends->output.time || ends->output.integer, SL_ERR_SHAPE,
                "the model gives no output for every step: set return_sequences in its recurrent layers");
    SLI_FAIL_IF(ends->output.features < ends->input.vocabulary, SL_ERR_SHAPE,
                "the model's output has %d classes, fewer than its vocabulary of %d", ends->output.features,
                ends->input.vocabulary);
    return SL_OK;
}

sl_status sli_check_tokens(const int32_t *tokens, size_t count, int vocabulary) {
    for (size_t i = 0; i < count; i++)
        SLI_FAIL_IF(tokens[i] < 0 || tokens[i] >= vocabulary, SL_ERR_INPUT,
                    "token %zu is %d, the model's vocabulary has %d tokens: encode the text with the model's own "
                    "vocabulary",
                    i, tokens[i], vocabulary);
    return SL_OK;
}
