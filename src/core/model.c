/* The description: layers by name, their inputs, the tensors they write. Of the kinds only InputLayer is known here. */
#include "core/model.h"

#include <string.h>

static bool name_is_good(const char *name) {
    size_t length = name ? strlen(name) : 0;
    if (length == 0 || length > 100) return false;
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == '.' || *c == '"' || *c == '/' || *c == 0x7f) return false;
    return true;
}

const sli_layer_kind *sli_layer_kind_find(const char *class_name) {
    for (const sli_layer_kind *const *kind = sli_registry_get()->layer_kinds; *kind; kind++)
        if (strcmp((*kind)->class_name, class_name) == 0) return *kind;
    return NULL;
}

/* Output shapes of the first `count` layers are enough to resolve names: suffixes come from the kind. */
static sl_status layer_outputs(const sl_model *model, int index, const sli_layer_outputs *before,
                               sli_layer_outputs *outputs) {
    const sli_layer *layer = model->layers[index];
    sli_shape shapes[SLI_LAYER_MAX_IN];
    for (int k = 0; k < layer->input_count; k++) {
        int output;
        int source = sli_model_find_tensor(model, layer->inputs[k], &output);
        if (source < 0 || source >= index || output >= before[source].count)
            return sli_fail(SL_ERR_UNKNOWN,
                            "layer %s: no tensor \"%s\" before it (states need return_state); name an earlier layer",
                            layer->name, layer->inputs[k]);
        shapes[k] = before[source].shape[output];
    }
    memset(outputs, 0, sizeof *outputs);
    return layer->kind->shape(layer, shapes, layer->input_count, outputs);
}

int sli_model_find_tensor(const sl_model *model, const char *name, int *output) {
    const char *dot = strchr(name, '.');
    size_t length = dot ? (size_t)(dot - name) : strlen(name);
    for (int i = 0; i < model->layer_count; i++) {
        const sli_layer *layer = model->layers[i];
        if (strlen(layer->name) != length || memcmp(layer->name, name, length) != 0) continue;
        *output = 0;
        if (!dot) return i;
        sli_layer_outputs outputs = {0};
        if (!layer->kind->suffixes) return -1;
        layer->kind->suffixes(layer, &outputs);
        for (int k = 1; k < outputs.count; k++)
            if (strcmp(outputs.suffix[k], dot) == 0) {
                *output = k;
                return i;
            }
        return -1;
    }
    return -1;
}

sl_status sli_model_shapes(const sl_model *model, sli_layer_outputs *shapes) {
    for (int i = 0; i < model->layer_count; i++) SLI_TRY(layer_outputs(model, i, shapes, &shapes[i]));
    return SL_OK;
}

static sl_status check_inputs(const sl_model *model, const char *name, const char *const *inputs, int *count) {
    int n = 0;
    while (inputs[n]) {
        int output;
        SLI_FAIL_IF(n >= SLI_LAYER_MAX_IN, SL_ERR_INPUT, "layer %s: more than %d inputs; split the layer", name,
                    SLI_LAYER_MAX_IN);
        SLI_FAIL_IF(
            sli_model_find_tensor(model, inputs[n], &output) < 0, SL_ERR_UNKNOWN,
            "layer %s: input \"%s\" is not the output of an earlier layer; add that layer first, or turn on its "
            "return_state for a state",
            name, inputs[n]);
        n++;
    }
    *count = n;
    return SL_OK;
}

static sl_status copy_inputs(sl_model *model, sli_layer *layer, const char *const *inputs) {
    layer->inputs = sli_arena_alloc(&model->arena, sizeof(char *) * (size_t)(layer->input_count + 1));
    if (!layer->inputs) return sli_fail_memory("a layer's inputs", sizeof(char *) * (size_t)(layer->input_count + 1));
    for (int k = 0; k < layer->input_count; k++) {
        layer->inputs[k] = sli_arena_string(&model->arena, inputs[k]);
        if (!layer->inputs[k]) return sli_fail_memory("a layer's inputs", strlen(inputs[k]) + 1);
    }
    return SL_OK;
}

/* String fields are copied: the caller's may die. */
static sl_status copy_options(sl_model *model, sli_layer *layer, const void *options) {
    const sli_layer_kind *kind = layer->kind;
    size_t bytes = kind->options_bytes ? kind->options_bytes : 1;
    layer->options = sli_arena_alloc(&model->arena, bytes);
    if (!layer->options) return sli_fail_memory("a layer's options", bytes);
    if (!options) return SL_OK;
    memcpy(layer->options, options, kind->options_bytes);
    for (const sli_field *field = kind->fields; field && field->key; field++) {
        if (field->type != SLI_FIELD_STRING) continue;
        const char **text = (const char **)((char *)layer->options + field->offset);
        if (!*text) continue;
        *text = sli_arena_string(&model->arena, *text);
        if (!*text) return sli_fail_memory("a layer's options", 64);
    }
    return SL_OK;
}

sl_status sli_model_add(sl_model *model, const char *name, const char *class_name, const void *options,
                        const char *const *inputs) {
    const sli_layer_kind *kind = sli_layer_kind_find(class_name);
    SLI_FAIL_IF(!kind, SL_ERR_UNKNOWN,
                "layer %s: there is no kind of layer called \"%s\"; see the list in docs/FORMATS.md", name ? name : "?",
                class_name);
    SLI_FAIL_IF(!name_is_good(name), SL_ERR_INPUT,
                "a layer is called \"%s\"; a name has 1 to 100 bytes and no blank, dot, slash or quote",
                name ? name : "");
    for (int i = 0; i < model->layer_count; i++)
        SLI_FAIL_IF(strcmp(model->layers[i]->name, name) == 0, SL_ERR_INPUT,
                    "two layers are called \"%s\"; give each its own name", name);
    const char *previous[2] = {NULL, NULL};
    bool is_input = strcmp(class_name, "InputLayer") == 0;
    if (!inputs) {
        SLI_FAIL_IF(
            !is_input && model->layer_count == 0, SL_ERR_INPUT,
            "layer %s: the model has no input yet; add one with sl_model_add_input or sl_model_add_tokens first", name);
        if (!is_input) previous[0] = model->layers[model->layer_count - 1]->name;
        inputs = previous;
    }
    int input_count = 0;
    SLI_TRY(check_inputs(model, name, inputs, &input_count));
    sli_layer *layer = sli_arena_alloc(&model->arena, sizeof *layer);
    if (!layer) return sli_fail_memory("a layer", sizeof *layer);
    layer->kind = kind;
    layer->index = model->layer_count;
    layer->input_count = input_count;
    layer->name = sli_arena_string(&model->arena, name);
    if (!layer->name) return sli_fail_memory("a layer's name", strlen(name) + 1);
    SLI_TRY(copy_inputs(model, layer, inputs));
    SLI_TRY(copy_options(model, layer, options));
    sli_layer **slot = sli_arena_push(&model->arena, &model->layers, &model->layer_count, &model->layer_capacity,
                                      sizeof *model->layers);
    if (!slot) return sli_fail_memory("the list of layers", sizeof(sli_layer *) * (size_t)(model->layer_count + 1));
    *slot = layer;
    return SL_OK;
}
