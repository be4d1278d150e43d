/* Writing a model as Keras Sequential JSON: only what differs from the defaults, in the order of the tables. */
#include <string.h>
#include "io/model_json.h"

/* ------------------------------------------------------------------------------------------------------ fields -- */
/* An enum that a Keras switch at the same place already tells. */
static bool told_by_switch(const sli_layer_kind *kind, const sli_field *field, int value) {
    for (const sli_field *other = kind->fields; other && other->key; other++)
        if (other->type == SLI_FIELD_BOOL_ENUM && other->offset == field->offset &&
            (other->when_true == value || other->when_false == value))
            return true;
    return false;
}

static const char *enum_name(const sli_field *field, int value) {
    for (const sli_enum_name *name = field->names; name->name; name++)
        if (name->value == value) return name->name;
    return NULL;
}

static void write_bool(sli_json_out *out, const char *key, bool value) {
    sli_json_key(out, key);
    sli_text_printf(out->text, value ? "true" : "false");
}

static void write_field(sli_json_out *out, const sli_layer_kind *kind, const sli_field *field, const void *options) {
    const void *at = (const char *)options + field->offset;
    switch (field->type) {
    case SLI_FIELD_INT:
        if (*(const int *)at == 0 && !field->required) return;
        sli_json_key(out, field->key);
        sli_text_printf(out->text, "%d", *(const int *)at);
        return;
    case SLI_FIELD_NUMBER:
        if (*(const double *)at == 0 && !field->required) return;
        sli_json_key(out, field->key);
        sli_json_append_number(out->text, *(const double *)at);
        return;
    case SLI_FIELD_BOOL:
    case SLI_FIELD_NOT_BOOL:
        if (*(const int *)at) write_bool(out, field->key, field->type == SLI_FIELD_BOOL);
        return;
    case SLI_FIELD_BOOL_ENUM:
        if (*(const int *)at == 0) return;
        if (*(const int *)at == field->when_false) write_bool(out, field->key, false);
        if (*(const int *)at == field->when_true) write_bool(out, field->key, true);
        return;
    case SLI_FIELD_ENUM:
        if ((*(const int *)at == 0 && !field->required) || told_by_switch(kind, field, *(const int *)at)) return;
        if (enum_name(field, *(const int *)at))
            sli_json_key_string(out, field->key, enum_name(field, *(const int *)at));
        return;
    case SLI_FIELD_STRING:
        if (*(const char *const *)at) sli_json_key_string(out, field->key, *(const char *const *)at);
        return;
    case SLI_FIELD_INIT:
        if (((const sl_init *)at)->kind == SL_INIT_DEFAULT) return;
        sli_json_key(out, field->key);
        sli_json_write_init(out, *(const sl_init *)at);
        return;
    case SLI_FIELD_IGNORED:
    case SLI_FIELD_NEUTRAL:
        return;
    }
}

/* The fields of config, then those of config.sluice if there is anything to say. */
static void write_options(sli_json_out *out, const sli_layer_kind *kind, const void *options) {
    for (const sli_field *field = kind->fields; field && field->key; field++)
        if (!field->in_sluice) write_field(out, kind, field, options);
    size_t mark = out->text->length;
    bool first = out->first;
    sli_json_key(out, "sluice");
    sli_json_open(out, '{');
    for (const sli_field *field = kind->fields; field && field->key; field++)
        if (field->in_sluice && strcmp(field->key, "bidirectional") != 0) /* told by the wrapper */
            write_field(out, kind, field, options);
    bool empty = out->first;
    sli_json_close(out, '}');
    if (empty && !out->text->failed) { /* take the empty object back */
        out->text->length = mark;
        out->text->data[mark] = 0;
        out->first = first;
    }
}

/* ------------------------------------------------------------------------------------------------------ layers -- */
/* The vocabulary that the reader of the JSON finds by itself: see vocabulary_of_reader there. */
static int implied_vocabulary(const sl_model *model, int input) {
    for (int i = input + 1; i < model->layer_count; i++) {
        const sli_layer *layer = model->layers[i];
        const char *key = NULL;
        if (!strcmp(layer->kind->class_name, "Embedding")) key = "input_dim";
        if (!strcmp(layer->kind->class_name, "CategoryEncoding")) key = "num_tokens";
        if (!key || layer->input_count < 1 || strcmp(layer->inputs[0], model->layers[input]->name) != 0) continue;
        for (const sli_field *field = layer->kind->fields; field && field->key; field++)
            if (!strcmp(field->key, key) && field->type == SLI_FIELD_INT)
                return *(const int *)((const char *)layer->options + field->offset);
    }
    return 0;
}

static void write_input(sli_json_out *out, const sl_model *model, int index) {
    const sli_input_options *options = model->layers[index]->options;
    sli_json_key(out, "batch_shape");
    if (options->vocabulary)
        sli_text_printf(out->text, "[null, null]");
    else
        sli_text_printf(out->text, options->no_steps ? "[null, %d]" : "[null, null, %d]", options->features);
    sli_json_key_string(out, "dtype", options->vocabulary ? "int32" : "float32");
    if (options->vocabulary && implied_vocabulary(model, index) != options->vocabulary) {
        sli_json_key(out, "sluice");
        sli_json_open(out, '{');
        sli_json_key(out, "vocabulary");
        sli_text_printf(out->text, "%d", options->vocabulary);
        sli_json_close(out, '}');
    }
}

static void write_names(sli_json_out *out, const char *key, const char *const *names, int count) {
    sli_json_key(out, key);
    sli_text_append(out->text, "[", 1);
    for (int i = 0; i < count; i++) {
        if (i) sli_text_append(out->text, ", ", 2);
        sli_json_string(out, names[i]);
    }
    sli_text_append(out->text, "]", 1);
}

/* A layer that reads the one before it does not say so. */
static void write_inputs(sli_json_out *out, const sl_model *model, const sli_layer *layer) {
    if (layer->input_count == 1 && layer->index > 0 && !strcmp(layer->inputs[0], model->layers[layer->index - 1]->name))
        return;
    write_names(out, "inputs", layer->inputs, layer->input_count);
}

static const char *merge_mode(const sli_layer *layer) {
    static const char *const NAMES[] = {NULL, "concat", "sum", "mul", "ave"};
    const char *class_name = layer->kind->class_name;
    bool recurrent = !strcmp(class_name, "LSTM") || !strcmp(class_name, "GRU") || !strcmp(class_name, "SimpleRNN");
    if (!recurrent) return NULL;
    unsigned mode = ((const sl_recurrent *)layer->options)->bidirectional;
    return mode < sizeof NAMES / sizeof *NAMES ? NAMES[mode] : NULL; /* plans refuse others */
}

static void open_layer(sli_json_out *out, const char *class_name) {
    sli_json_open(out, '{');
    sli_json_key_string(out, "class_name", class_name);
    sli_json_key(out, "config");
    sli_json_open(out, '{');
}

static void close_layer(sli_json_out *out) {
    sli_json_close(out, '}');
    sli_json_close(out, '}');
}

static void write_layer(sli_json_out *out, const sl_model *model, const sli_layer *layer) {
    const char *merge = merge_mode(layer), *class_name = layer->kind->class_name;
    open_layer(out, merge ? "Bidirectional" : class_name);
    sli_json_key_string(out, "name", layer->name);
    if (layer->frozen) write_bool(out, "trainable", false);
    if (!strcmp(class_name, "InputLayer")) {
        write_input(out, model, layer->index);
        close_layer(out);
        return;
    }
    write_inputs(out, model, layer);
    if (merge) {
        sli_json_key_string(out, "merge_mode", merge);
        sli_json_key(out, "layer");
        open_layer(out, class_name);
    }
    write_options(out, layer->kind, layer->options);
    if (merge) close_layer(out);
    close_layer(out);
}

static void write_model(sli_json_out *out, const sl_model *model) {
    sli_json_open(out, '{');
    sli_json_key_string(out, "class_name", "Sequential");
    sli_json_key(out, "config");
    sli_json_open(out, '{');
    sli_json_key_string(out, "name", "sequential");
    sli_json_key(out, "layers");
    sli_json_open(out, '[');
    for (int i = 0; i < model->layer_count; i++) {
        sli_json_item(out);
        write_layer(out, model, model->layers[i]);
    }
    sli_json_close(out, ']');
    if (model->output_count > 0) {
        sli_json_key(out, "sluice");
        sli_json_open(out, '{');
        write_names(out, "outputs", model->outputs, model->output_count);
        sli_json_close(out, '}');
    }
    sli_json_close(out, '}');
    sli_json_close(out, '}');
    sli_text_append(out->text, "\n", 1);
}

sl_status sli_model_to_json(sl_model *model, const char **text) {
    *text = NULL;
    sli_text_free(&model->json);
    sli_text_init(&model->json, &model->allocator);
    sli_json_out out = {.text = &model->json};
    write_model(&out, model);
    if (model->json.failed) return sli_fail_memory("model JSON", model->json.length);
    SLI_FAIL_IF(model->json.infinite, SL_ERR_INPUT,
                "model JSON: an option is no finite number, which JSON cannot hold");
    SLI_FAIL_IF(out.invalid, SL_ERR_INPUT, "model JSON: a layer's name is not valid UTF-8; rename the layer");
    *text = model->json.data;
    return SL_OK;
}
