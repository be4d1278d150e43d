/* A trained model as stream layers, and those as an .slm file or C text: sl_model_convert. */
#include "stream/convert.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cell/activations.h"
#include "io/atomic_file.h"
#include "layer/layers.h"

/* ------------------------------------------------------------------------------------------------------ parameters -- */
typedef struct source {
    const sli_layer *layer;
    sl_params *params;
    sli_arena *arena;
} source;

/* The numbers of "LAYER.what" as doubles; *values NULL if the layer has none. */
static sl_status fetch(const source *s, const char *owner, const char *what, size_t count, double **values) {
    char name[256];
    snprintf(name, sizeof name, "%s.%s", owner, what);
    *values = NULL;
    for (int i = 0, rows, columns; sl_params_name(s->params, i, &rows, &columns); i++) {
        if (strcmp(sl_params_name(s->params, i, &rows, &columns), name) != 0) continue;
        SLI_FAIL_IF((size_t)rows * (size_t)columns != count, SL_ERR_INTERNAL, "parameter %s: %d x %d, not %zu numbers",
                    name, rows, columns, count);
        *values = sli_arena_alloc(s->arena, count * sizeof **values);
        if (!*values) return sli_fail_memory("a parameter", count * sizeof **values);
        return sl_params_get(s->params, name, *values, count);
    }
    return SL_OK;
}

static sl_status store(const source *s, sli_stream_layer *to, sli_stream_array_id id, const double *values) {
    const size_t count = (size_t)sli_stream_array_floats(to, id);
    float *array = sli_arena_alloc(s->arena, count * sizeof *array);
    if (!array) return sli_fail_memory("a parameter", count * sizeof *array);
    for (size_t i = 0; values && i < count; i++) array[i] = (float)values[i];
    for (size_t i = 0; i < count; i++)
        SLI_FAIL_IF(!isfinite(array[i]), SL_ERR_NUMBERS, "layer %s: parameter %zu is not finite; train it again",
                    s->layer->name, i);
    to->array[id] = array;
    return SL_OK;
}

/* A parameter that the layer must have. */
static sl_status copy(const source *s, const char *owner, const char *what, sli_stream_layer *to,
                      sli_stream_array_id id) {
    double *values;
    SLI_TRY(fetch(s, owner, what, (size_t)sli_stream_array_floats(to, id), &values));
    SLI_FAIL_IF(!values, SL_ERR_INTERNAL, "parameter %s.%s is missing", owner, what);
    return store(s, to, id, values);
}

/* One bias of all that are added: see layers.h. */
static sl_status recurrent_bias(const source *s, const sl_recurrent *o, sli_stream_layer *to) {
    const size_t H = (size_t)to->units, count = (size_t)sli_stream_gates(to) * H;
    const bool apart = sli_stream_array_floats(to, SLI_STREAM_STATE_BIAS) > 0; /* n's recurrent bias */
    double *bias, *state;
    SLI_TRY(fetch(s, s->layer->name, "bias", count, &bias));
    SLI_TRY(fetch(s, s->layer->name, "recurrent_bias", count, &state));
    if (!bias) bias = sli_arena_alloc(s->arena, count * sizeof *bias);
    if (!bias) return sli_fail_memory("a bias", count * sizeof *bias);
    for (size_t i = 0; state && i < (apart ? 2 * H : count); i++) bias[i] += state[i];
    if (to->kind == SLI_STREAM_LSTM && o->forget_bias_mode == SL_FORGET_AT_RUN)
        for (size_t i = H; i < 2 * H; i++) bias[i] += o->forget_bias;
    if (apart) SLI_TRY(store(s, to, SLI_STREAM_STATE_BIAS, state ? state + 2 * H : NULL));
    return store(s, to, SLI_STREAM_BIAS, bias);
}

/* ---------------------------------------------------------------------------------------------------------- layers -- */
static int act_of(sl_activation act, int otherwise) {
    return act == SL_ACT_DEFAULT ? otherwise : (int)act; /* the numbers are the same: tests/cell */
}

static sl_status recurrent(const source *s, sli_stream_layer *to) {
    const sl_recurrent *o = s->layer->options;
    const char *name = s->layer->name;
    SLI_FAIL_IF(o->bidirectional || o->go_backwards, SL_ERR_INPUT,
                "layer %s: it reads the sequence backwards, which a stream cannot do; train a model of one direction",
                name);
    to->kind = s->layer->kind == &sli_layer_lstm  ? SLI_STREAM_LSTM
               : s->layer->kind == &sli_layer_gru ? SLI_STREAM_GRU
                                                  : SLI_STREAM_RNN;
    to->units = o->units;
    to->outputs = o->projection > 0 ? o->projection : o->units;
    to->act = act_of(o->activation, CELL_ACT_TANH);
    to->gate_act = to->kind == SLI_STREAM_RNN ? 0 : act_of(o->recurrent_activation, CELL_ACT_SIGMOID);
    to->clip = (float)o->cell_clip;
    to->zone_h = (float)o->zoneout_h;
    to->zone_c = (float)o->zoneout_c;
    to->options = (o->peephole ? CELL_PEEPHOLE : 0) | (o->cell_clip > 0 ? CELL_CLIP : 0) |
                  (o->zoneout_h > 0 ? CELL_ZONEOUT_H : 0) | (o->zoneout_c > 0 ? CELL_ZONEOUT_C : 0) |
                  (o->projection > 0 ? CELL_PROJECTION : 0) | (o->reset_before ? CELL_RESET_BEFORE : 0);
    SLI_TRY(copy(s, name, "kernel", to, SLI_STREAM_KERNEL));
    SLI_TRY(copy(s, name, "recurrent_kernel", to, SLI_STREAM_RECURRENT));
    SLI_TRY(recurrent_bias(s, o, to));
    if (o->peephole) SLI_TRY(copy(s, name, "peephole", to, SLI_STREAM_PEEPHOLE));
    if (o->projection > 0) SLI_TRY(copy(s, name, "projection", to, SLI_STREAM_PROJECTION));
    return SL_OK;
}

static sl_status dense(const source *s, sli_stream_layer *to) {
    const sl_dense *o = s->layer->options;
    double *bias;
    to->kind = SLI_STREAM_DENSE;
    to->act = act_of(o->activation, CELL_ACT_LINEAR);
    SLI_TRY(
        copy(s, o->tied_to ? o->tied_to : s->layer->name, o->tied_to ? "embeddings" : "kernel", to, SLI_STREAM_KERNEL));
    SLI_TRY(fetch(s, s->layer->name, "bias", (size_t)to->units, &bias));
    return store(s, to, SLI_STREAM_BIAS, bias);
}

/* One layer of the chain; `inputs` is what it reads, features or the vocabulary. *used: it is a layer of the stream. */
static sl_status convert_layer(const source *s, int inputs, int features, sli_stream_layer *to, bool *used) {
    const sli_layer *layer = s->layer;
    *to = (sli_stream_layer){.inputs = inputs, .units = features, .outputs = features};
    *used = true;
    if (layer->kind == &sli_layer_lstm || layer->kind == &sli_layer_gru || layer->kind == &sli_layer_rnn)
        return recurrent(s, to);
    if (layer->kind == &sli_layer_dense) return dense(s, to);
    if (layer->kind == &sli_layer_one_hot) {
        to->kind = SLI_STREAM_ONE_HOT;
        to->inputs = features;
        return SL_OK;
    }
    if (layer->kind == &sli_layer_embedding) {
        to->kind = SLI_STREAM_EMBEDDING;
        to->inputs = ((const sl_embedding *)layer->options)->vocabulary;
        return copy(s, layer->name, "embeddings", to, SLI_STREAM_KERNEL);
    }
    *used = false; /* dropout: nothing outside training */
    SLI_FAIL_IF(layer->kind != &sli_layer_dropout, SL_ERR_INPUT,
                "layer %s (%s): a stream is one layer after the other; convert a model without it", layer->name,
                layer->kind->class_name);
    return SL_OK;
}

/* The layers from the input to the first output; chain[] last first. */
static sl_status find_chain(const sl_model *model, const sli_layer **chain, int *count) {
    int output, at = model->layer_count - 1;
    if (model->output_count > 0) {
        at = sli_model_find_tensor(model, model->outputs[0], &output);
        SLI_FAIL_IF(at < 0 || output != 0, SL_ERR_INPUT,
                    "output %s is a layer's state; a stream gives the output of a layer", model->outputs[0]);
    }
    for (*count = 0; at >= 0;) {
        const sli_layer *layer = model->layers[at];
        SLI_FAIL_IF(*count > SLI_STREAM_MAX_LAYERS, SL_ERR_INPUT, "more than %d layers, the most of a stream",
                    SLI_STREAM_MAX_LAYERS);
        chain[(*count)++] = layer;
        if (layer->kind == &sli_layer_input) return SL_OK;
        SLI_FAIL_IF(layer->input_count != 1, SL_ERR_INPUT,
                    "layer %s reads %d tensors; a stream is one layer after the other", layer->name,
                    layer->input_count);
        at = sli_model_find_tensor(model, layer->inputs[0], &output);
        SLI_FAIL_IF(output != 0, SL_ERR_INPUT, "layer %s reads a state (%s); a stream passes on outputs alone",
                    layer->name, layer->inputs[0]);
    }
    return sli_fail(SL_ERR_INPUT, "the model has no layers; add some");
}

/* Products of a layer's longest sum: of inputs, of states, of units before a projection; one-hot inputs are not multiplied. */
static int longest_sum(const sli_stream_layers *layers, int index) {
    const sli_stream_layer *l = &layers->layer[index];
    const bool one_hot = index > 0 && l[-1].kind == SLI_STREAM_ONE_HOT;
    if (l->kind < SLI_STREAM_DENSE) return 0;
    int most = one_hot ? 0 : l->inputs;
    if (sli_stream_is_recurrent(l) && l->units > most) most = l->units;
    if (sli_stream_is_recurrent(l) && l->outputs > most) most = l->outputs;
    return most;
}

/* C files sum up products of 8 bits in ints: 127 * 127 * MOST < 2^31. */
static sl_status check_i8(const sli_stream_layers *layers) {
    enum { MOST = 131072 };
    for (int i = 0; i < layers->count; i++)
        SLI_FAIL_IF(longest_sum(layers, i) > MOST, SL_ERR_INPUT,
                    "sums of %d products of 8 bits may not fit into 32 bits, %d do; convert the model in f32",
                    longest_sum(layers, i), MOST);
    return SL_OK;
}

sl_status sli_stream_layers_of(const sl_model *model, sl_params *params, sli_arena *arena, sli_stream_layers *layers) {
    const sli_layer *chain[SLI_STREAM_MAX_LAYERS + 1];
    int count = 0;
    SLI_TRY(find_chain(model, chain, &count));
    sli_layer_outputs *shapes = sli_arena_alloc(arena, (size_t)model->layer_count * sizeof *shapes);
    if (!shapes) return sli_fail_memory("shapes", (size_t)model->layer_count * sizeof *shapes);
    SLI_TRY(sli_model_shapes(model, shapes));
    layers->count = 0;
    int features = shapes[chain[count - 1]->index].shape[0].features;
    for (int i = count - 2; i >= 0; i--) {
        bool used;
        const source s = {chain[i], params, arena};
        const int inputs = features;
        features = shapes[chain[i]->index].shape[0].features;
        SLI_TRY(convert_layer(&s, inputs, features, &layers->layer[layers->count], &used));
        layers->count += used;
    }
    SLI_FAIL_IF(layers->count == 0, SL_ERR_INPUT, "the model computes nothing; add a layer");
    const sl_status status = sli_stream_check(layers);
    return status == SL_OK ? SL_OK : sli_fail(SL_ERR_INPUT, "the model cannot be a stream: %s", sl_error_detail());
}

/* ------------------------------------------------------------------------------------------------------ .slm files -- */
static void put_int(sli_text *text, int value) {
    const uint32_t word = (uint32_t)value;
    const char bytes[4] = {(char)(word & 255), (char)(word >> 8 & 255), (char)(word >> 16 & 255), (char)(word >> 24)};
    sli_text_append(text, bytes, 4);
}
static void put_float(sli_text *text, float value) {
    uint32_t word;
    memcpy(&word, &value, 4);
    put_int(text, (int)word);
}

void sli_slm_write(const sli_stream_layers *layers, sli_text *text) {
    const size_t start = text->length;
    sli_text_append(text, "SLUICESM", 8);
    const int header[] = {SLI_SLM_VERSION, layers->count, 0, 0, 0, 0};
    for (int i = 0; i < 6; i++) put_int(text, header[i]);
    for (int i = 0; i < layers->count; i++) {
        const sli_stream_layer *l = &layers->layer[i];
        const int fields[] = {(int)l->kind, 0, l->inputs, l->units, l->outputs, l->options, l->act, l->gate_act};
        for (int k = 0; k < 8; k++) put_int(text, fields[k]);
        put_float(text, l->clip);
        put_float(text, l->zone_h);
        put_float(text, l->zone_c);
        for (int k = 0; k < 5; k++) put_int(text, 0);
        for (int id = 0; id < SLI_STREAM_ARRAYS; id++) {
            const uint64_t count = sli_stream_array_floats(l, (sli_stream_array_id)id);
            for (uint64_t k = 0; k < count && !text->failed; k++) put_float(text, l->array[id][k]);
        }
    }
    if (text->failed) return;
    const size_t size = text->length - start;
    sli_text words = {.allocator = text->allocator};
    put_int(&words, (int)(uint32_t)size);
    put_int(&words, (int)sli_slm_checksum(text->data + start + SLI_SLM_HEADER, size - SLI_SLM_HEADER));
    if (!words.failed) memcpy(text->data + start + 16, words.data, 8);
    text->failed = text->failed || words.failed || size > UINT32_MAX;
    sli_text_free(&words);
}

sli_hex sli_hex_of(float value) {
    sli_hex hex;
    snprintf(hex.text, sizeof hex.text, "%a", (double)value);
    sli_with_point(hex.text);
    return hex;
}

/* ------------------------------------------------------------------------------------------------------- sluice.h -- */
/* A name of C from the file's name: "models/rnn-2.c" -> "rnn_2". */
static void name_of(const char *path, char *name, size_t capacity) {
    const char *slash = strrchr(path, '/');
    const char *from = slash ? slash + 1 : path;
    size_t n = 0;
    if (isdigit((unsigned char)*from) || *from == '.' || *from == 0) name[n++] = 'm';
    for (; *from && *from != '.' && n + 1 < capacity; from++) name[n++] = isalnum((unsigned char)*from) ? *from : '_';
    name[n] = 0;
}

static sl_status is_name(const char *name) {
    bool good = isalpha((unsigned char)name[0]) || name[0] == '_';
    for (const char *c = name; *c; c++) good = good && (isalnum((unsigned char)*c) || *c == '_');
    SLI_FAIL_IF(!good || strlen(name) > 60, SL_ERR_USAGE,
                "'%.80s' cannot begin names of C; take letters, digits and _, at most 60", name);
    return SL_OK;
}

sl_status sl_model_convert(const sl_model *model, sl_params *params, const sl_convert *options, const char *path) {
    SLI_FAIL_IF(!model || !params || !path, SL_ERR_USAGE, "%s: model, params and path must not be NULL", __func__);
    const sl_convert_form form = options ? options->form : SL_CONVERT_STREAM;
    SLI_FAIL_IF(form != SL_CONVERT_STREAM && form != SL_CONVERT_C, SL_ERR_USAGE, "%s: form %d is unknown", __func__,
                (int)form);
    const sl_dtype dtype = options ? options->dtype : SL_DTYPE_DEFAULT;
    SLI_FAIL_IF(dtype != SL_DTYPE_DEFAULT && dtype != SL_F32 && (dtype != SL_I8 || form != SL_CONVERT_C), SL_ERR_USAGE,
                "weights of %s: stream models take f32, C files f32 or i8", sli_dtype_name(dtype));
    SLI_TRY(sli_params_check_model(params, model, __func__));
    char name[64];
    name_of(path, name, sizeof name);
    if (options && options->name) {
        SLI_TRY(is_name(options->name));
        snprintf(name, sizeof name, "%s", options->name);
    }
    sli_arena arena;
    sli_text text;
    sli_stream_layers layers;
    sli_arena_init(&arena, &model->allocator);
    sli_text_init(&text, &model->allocator);
    sl_status status = sli_stream_layers_of(model, params, &arena, &layers);
    if (status == SL_OK && dtype == SL_I8) status = check_i8(&layers);
    if (status == SL_OK && form == SL_CONVERT_STREAM) sli_slm_write(&layers, &text);
    if (status == SL_OK && form == SL_CONVERT_C) sli_stream_emit_c(&layers, name, dtype == SL_I8, &text);
    if (status == SL_OK && text.failed) status = sli_fail_memory("the converted model", text.length);
    if (status == SL_OK) status = sli_atomic_write(path, text.data, text.length);
    sli_text_free(&text);
    sli_arena_free(&arena);
    return status;
}
