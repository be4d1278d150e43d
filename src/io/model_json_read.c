/* Reading Keras Sequential JSON into a model: see model_json.h. */
#include <string.h>
#include "io/model_json.h"

/* The whole document. */
typedef struct document {
    json_t *layers;      /* array */
    json_t *build_shape; /* Keras's build_input_shape, or NULL */
    int keras;           /* major version, 0 = not said */
    bool standalone;     /* see sli_json_where */
    bool frozen;         /* the model is not trainable, so no layer is */
    sl_model *model;
} document;

/* One element of `layers`, out of its wrapper. */
typedef struct entry {
    sli_json_where where;
    const sli_layer_kind *kind;
    json_t *outer;   /* config of the wrapper, or of the layer itself */
    json_t *config;  /* of the layer */
    json_t *wrapper; /* config of a Bidirectional; else NULL */
    bool frozen;     /* "trainable": false, of the layer or of what it stands in */
} entry;

static bool one_of(const char *key, const char *const *list) {
    for (; *list; list++)
        if (!strcmp(key, *list)) return true;
    return false;
}

/* ---------------------------------------------------------------------------------------------------- wrappers -- */
static sl_status fail_class(const sli_json_where *where, const char *class_name) {
    const char *best = NULL;
    int distance = 3;
    char list[256] = "";
    for (const sli_layer_kind *const *kind = sli_registry_get()->layer_kinds; *kind; kind++) {
        sli_nearest(class_name, (*kind)->class_name, &best, &distance);
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", (*kind)->class_name);
    }
    if (best) return sli_json_fail(where, SL_ERR_UNKNOWN, "there is no such kind of layer; did you mean \"%s\"?", best);
    return sli_json_fail(where, SL_ERR_UNKNOWN,
                         "there is no such kind of layer; known are Bidirectional, TimeDistributed, %s", list);
}

/* class_name and config of an object {"class_name", "config", ...}; other keys are Keras's book-keeping. */
static sl_status open_object(const sli_json_where *where, json_t *object, const char **class_name, json_t **config) {
    static const char *const KEYS[] = {"class_name",      "config",       "module",         "name",
                                       "registered_name", "build_config", "compile_config", NULL};
    if (!json_is_object(object)) return sli_json_fail(where, SL_ERR_INPUT, "is not an object");
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        if (one_of(key, KEYS)) continue;
        if (!strcmp(key, "inbound_nodes") && json_array_size(value) == 0) continue;
        return sli_json_fail(where, SL_ERR_UNKNOWN, "unknown key `%.60s` beside `config`; remove it", key);
    }
    *class_name = json_string_value(json_object_get(object, "class_name"));
    *config = json_object_get(object, "config");
    if (!*class_name) return sli_json_fail(where, SL_ERR_INPUT, "`class_name` is missing; add it");
    if (!json_is_object(*config))
        return sli_json_fail(where, SL_ERR_INPUT, "`config` is missing or not an object; add it");
    return SL_OK;
}

static bool is_recurrent(const sli_layer_kind *kind) {
    return !strcmp(kind->class_name, "LSTM") || !strcmp(kind->class_name, "GRU") ||
           !strcmp(kind->class_name, "SimpleRNN");
}

/* Seeds, which are not read, at any depth. */
static void remove_seeds(json_t *object) {
    const char *key;
    json_t *value;
    json_object_del(object, "seed");
    json_object_foreach(object, key, value) remove_seeds(value);
}

/* Whether the config of the backward layer is the forward one's, but for name, direction and seeds of the initialisers. */
static bool mirrors(json_t *forward, json_t *backward) {
    json_t *a = json_deep_copy(forward), *b = json_deep_copy(backward);
    bool same =
        a && b && json_is_true(json_object_get(a, "go_backwards")) != json_is_true(json_object_get(b, "go_backwards"));
    static const char *const FREE[] = {"name", "go_backwards", "trainable", "dtype"};
    for (int i = 0; i < 4; i++) {
        json_object_del(a, FREE[i]);
        json_object_del(b, FREE[i]);
    }
    remove_seeds(a);
    remove_seeds(b);
    same = same && json_equal(a, b);
    json_decref(a);
    json_decref(b);
    return same;
}

/* Looks inside Bidirectional and TimeDistributed. */
static sl_status open_wrapper(entry *e) {
    static const char *const KEYS[] = {"name",        "trainable",  "dtype",          "layer",
                                       "inputs",      "merge_mode", "backward_layer", "batch_input_shape",
                                       "batch_shape", NULL};
    bool both = !strcmp(e->where.class_name, "Bidirectional");
    const char *key;
    json_t *value;
    if (json_object_get(e->outer, "sluice"))
        return sli_json_fail(&e->where, SL_ERR_UNKNOWN, "`sluice` belongs into the config of `layer`; move it there");
    json_object_foreach(e->outer, key, value) if (!one_of(key, KEYS)) return sli_json_fail(
        &e->where, SL_ERR_UNKNOWN, "unknown key `%.60s`; remove it", key);
    const char *class_name;
    json_t *backward = json_object_get(e->outer, "backward_layer");
    if (!json_object_get(e->outer, "layer"))
        return sli_json_fail(&e->where, SL_ERR_INPUT, "`layer` is missing; add it");
    SLI_TRY(open_object(&e->where, json_object_get(e->outer, "layer"), &class_name, &e->config));
    SLI_TRY(sli_json_read_common(&e->where, e->config, &e->frozen));
    e->kind = sli_layer_kind_find(class_name);
    if (!both) {
        if (!e->kind || strcmp(class_name, "Dense") != 0)
            return sli_json_fail(
                &e->where, SL_ERR_UNKNOWN,
                "TimeDistributed is read around Dense only, not around \"%.60s\"; other layers need no "
                "wrapper",
                class_name);
        return SL_OK;
    }
    e->wrapper = e->outer;
    if (!e->kind || !is_recurrent(e->kind))
        return sli_json_fail(&e->where, SL_ERR_UNKNOWN,
                             "Bidirectional is read around LSTM, GRU and SimpleRNN, not around \"%.60s\"", class_name);
    if (backward && !json_is_null(backward)) {
        const char *backward_class;
        json_t *backward_config;
        SLI_TRY(open_object(&e->where, backward, &backward_class, &backward_config));
        SLI_TRY(sli_json_read_common(&e->where, backward_config, &e->frozen));
        if (strcmp(backward_class, class_name) != 0 || !mirrors(e->config, backward_config))
            return sli_json_fail(
                &e->where, SL_ERR_INPUT,
                "`backward_layer` differs from `layer` in more than its direction; use two layers and a "
                "Concatenate");
    }
    return SL_OK;
}

/* Element `index` of the layers. The name is Keras's, or made of class and number. */
static sl_status open_entry(const document *d, size_t index, entry *e) {
    memset(e, 0, sizeof *e);
    e->where = (sli_json_where){(int)index + 1, "", "?", d->keras, d->standalone};
    const char *class_name;
    SLI_TRY(open_object(&e->where, json_array_get(d->layers, index), &class_name, &e->outer));
    e->where.class_name = class_name;
    json_t *name = json_object_get(e->outer, "name");
    if (name && !json_is_string(name)) return sli_json_fail(&e->where, SL_ERR_INPUT, "`name` is not a string");
    e->where.name = name ? json_string_value(name) : sli_arena_format(&d->model->arena, "layer_%d", e->where.number);
    if (!e->where.name) return sli_fail_memory("a layer's name", 32);
    e->config = e->outer;
    e->frozen = d->frozen;
    SLI_TRY(sli_json_read_common(&e->where, e->outer, &e->frozen));
    if (!strcmp(class_name, "Bidirectional") || !strcmp(class_name, "TimeDistributed")) return open_wrapper(e);
    e->kind = sli_layer_kind_find(class_name);
    return e->kind ? SL_OK : fail_class(&e->where, class_name);
}

/* ------------------------------------------------------------------------------------------------------ inputs -- */
typedef struct input_shape {
    int rank; /* without the batch; 0 = not given */
    int features;
} input_shape;

static bool is_size(const json_t *value) {
    return json_is_integer(value) && json_integer_value(value) >= 1 && json_integer_value(value) <= SLI_JSON_LARGEST;
}

static sl_status read_shape(const sli_json_where *where, json_t *array, bool with_batch, input_shape *shape) {
    size_t n = json_array_size(array);
    if (with_batch && n > 0) n--;
    if (!json_is_array(array) || n < 1 || n > 2)
        return sli_json_fail(where, SL_ERR_SHAPE,
                             "the input shape is not [batch, steps, features], [batch, features] or "
                             "[batch, steps] of tokens");
    json_t *last = json_array_get(array, json_array_size(array) - 1);
    shape->rank = (int)n;
    shape->features = 0;
    for (size_t i = 0; i + 1 < json_array_size(array); i++) /* batch and steps are what a plan makes them */
        if (!json_is_null(json_array_get(array, i)) && !is_size(json_array_get(array, i)))
            return sli_json_fail(where, SL_ERR_SHAPE, "number %zu of the input shape is neither null nor a size",
                                 i + 1);
    if (is_size(last))
        shape->features = (int)json_integer_value(last);
    else if (!json_is_null(last))
        return sli_json_fail(where, SL_ERR_SHAPE, "the last number of the input shape is not a size");
    return SL_OK;
}

/* The vocabulary of the Embedding or CategoryEncoding that reads `name`, the input in front of element `next`; 0 stays if none. */
static sl_status vocabulary_of_reader(const document *d, size_t next, const char *name, int *vocabulary) {
    for (size_t i = next; i < json_array_size(d->layers); i++) {
        entry e;
        SLI_TRY(open_entry(d, i, &e)); /* what is wrong there, not that no reader was found */
        json_t *inputs = json_object_get(e.outer, "inputs");
        const char *first = json_string_value(json_array_get(inputs, 0));
        if (inputs ? !first || strcmp(first, name) != 0 : i != next) continue;
        const char *key = NULL;
        if (!strcmp(e.kind->class_name, "Embedding")) key = "input_dim";
        if (!strcmp(e.kind->class_name, "CategoryEncoding")) key = "num_tokens";
        if (!key) continue;
        json_int_t size = json_integer_value(json_object_get(e.config, key));
        if (size < 1 || size > SLI_JSON_LARGEST)
            return sli_json_fail(&e.where, SL_ERR_INPUT, "`%s` is not a whole number from 1 to %d", key,
                                 SLI_JSON_LARGEST);
        *vocabulary = (int)size;
        return SL_OK;
    }
    return SL_OK;
}

static sl_status add_input(document *d, const sli_json_where *where, size_t next, const input_shape *shape,
                           bool integer, int vocabulary) {
    if (!vocabulary && shape->rank <= 1) SLI_TRY(vocabulary_of_reader(d, next, where->name, &vocabulary));
    if (vocabulary) {
        if (shape->rank > 1)
            return sli_json_fail(where, SL_ERR_SHAPE, "tokens have the shape [batch, steps], without features");
        return sl_model_add_tokens(d->model, where->name, vocabulary);
    }
    if (integer)
        return sli_json_fail(where, SL_ERR_INPUT,
                             "integers that no Embedding or CategoryEncoding reads; name their number as "
                             "\"sluice\": {\"vocabulary\": N}");
    if (!shape->features)
        return sli_json_fail(where, SL_ERR_SHAPE, "the number of features, the last of the input shape, is not given");
    return sl_model_add_input(d->model, where->name, shape->features, shape->rank == 1);
}

static sl_status read_input_layer(document *d, size_t index, const entry *e) {
    static const char *const KEYS[] = {"name",      "dtype",  "batch_shape", "batch_input_shape",
                                       "shape",     "sparse", "ragged",      "optional",
                                       "trainable", "sluice", NULL};
    static const char *const NEUTRAL[] = {"sparse", "ragged", "optional"};
    const char *key;
    json_t *value;
    json_object_foreach(e->config, key, value) if (!one_of(key, KEYS)) return sli_json_fail(
        &e->where, SL_ERR_UNKNOWN, "unknown key `%.60s`; remove it", key);
    for (int i = 0; i < 3; i++)
        if (json_is_true(json_object_get(e->config, NEUTRAL[i])))
            return sli_json_fail(&e->where, SL_ERR_INPUT, "`%s` inputs cannot be used", NEUTRAL[i]);
    json_t *batch_shape = json_object_get(e->config, "batch_shape");
    if (!batch_shape) batch_shape = json_object_get(e->config, "batch_input_shape");
    json_t *bare = json_object_get(e->config, "shape");
    if (!batch_shape && !bare) return sli_json_fail(&e->where, SL_ERR_INPUT, "`batch_shape` is missing; add it");
    input_shape shape;
    SLI_TRY(read_shape(&e->where, batch_shape ? batch_shape : bare, batch_shape != NULL, &shape));
    json_t *sluice = json_object_get(e->config, "sluice"), *vocabulary = json_object_get(sluice, "vocabulary");
    json_int_t size = vocabulary ? json_integer_value(vocabulary) : 0;
    if (sluice && (!json_is_object(sluice) || json_object_size(sluice) != (vocabulary != NULL)))
        return sli_json_fail(&e->where, SL_ERR_UNKNOWN, "`sluice` of an InputLayer holds `vocabulary` only");
    if (vocabulary && (size < 1 || size > SLI_JSON_LARGEST))
        return sli_json_fail(&e->where, SL_ERR_INPUT, "`vocabulary` is not a number of tokens");
    return add_input(d, &e->where, index + 1, &shape, sli_json_is_integer_type(json_object_get(e->config, "dtype")),
                     (int)size);
}

/* Keras's input shape in a layer's config, batch included; NULL if there is none. */
static json_t *given_shape(json_t *config) {
    json_t *given = json_object_get(config, "batch_input_shape");
    if (!given) given = json_object_get(config, "batch_shape");
    return json_is_null(given) ? NULL : given;
}

/* Of an input that the document leaves out: "input", unless a layer is called so, as a first layer often is. */
static const char *name_of_implied(const document *d) {
    const char *name = "input";
    for (int n = 1; name; n++) {
        bool taken = false;
        size_t i;
        json_t *layer;
        json_array_foreach(d->layers, i, layer) {
            const char *other = json_string_value(json_object_get(json_object_get(layer, "config"), "name"));
            taken = taken || (other && !strcmp(other, name));
        }
        if (!taken) break;
        name = sli_arena_format(&d->model->arena, "input_%d", n);
    }
    return name;
}

/* A Sequential without an InputLayer: its first layer, or the build shape, says what comes in. */
static sl_status add_implied_input(document *d, const entry *first) {
    if (!strcmp(first->kind->class_name, "InputLayer") || json_object_get(first->outer, "inputs")) return SL_OK;
    json_t *given = given_shape(first->outer);
    if (!given && first->wrapper) given = given_shape(first->config); /* that in a TimeDistributed is of a step */
    if (!given) given = d->build_shape;
    sli_json_where where = first->where;
    input_shape shape = {0};
    if (given && !json_is_null(given)) SLI_TRY(read_shape(&where, given, true, &shape));
    bool tokens = !strcmp(first->kind->class_name, "Embedding") || !strcmp(first->kind->class_name, "CategoryEncoding");
    if (!shape.rank && !tokens)
        return sli_json_fail(&where, SL_ERR_INPUT,
                             "the model does not say what comes in; put an InputLayer with `batch_shape` first");
    where.name = name_of_implied(d);
    if (!where.name) return sli_fail_memory("a layer's name", 32);
    return add_input(d, &where, 0, &shape, false, 0);
}

/* ------------------------------------------------------------------------------------------------------ layers -- */
/* A list of strings as a NULL-terminated array in the model's arena. */
static sl_status read_names(sl_model *model, json_t *array, const char ***names) {
    size_t n = json_array_size(array);
    *names = sli_arena_alloc(&model->arena, (n + 1) * sizeof(char *));
    if (!*names) return sli_fail_memory("list of names", (n + 1) * sizeof(char *));
    for (size_t i = 0; i < n; i++) (*names)[i] = json_string_value(json_array_get(array, i));
    return SL_OK;
}

static bool is_list_of_names(json_t *array) {
    size_t i;
    json_t *name;
    json_array_foreach(array, i, name) if (!json_is_string(name)) return false;
    return json_array_size(array) > 0;
}

static sl_status read_merge_mode(const entry *e, void *options) {
    static const struct {
        const char *name;
        sl_direction_merge merge;
    } MODES[] = {{"concat", SL_BI_CONCAT}, {"sum", SL_BI_SUM}, {"mul", SL_BI_MUL}, {"ave", SL_BI_AVE}};
    json_t *given = json_object_get(e->wrapper, "merge_mode");
    const char *name = given ? json_string_value(given) : "concat";
    for (int i = 0; name && i < 4; i++)
        if (!strcmp(MODES[i].name, name)) {
            ((sl_recurrent *)options)->bidirectional = MODES[i].merge;
            return SL_OK;
        }
    return sli_json_fail(&e->where, SL_ERR_UNKNOWN, "`merge_mode` is not concat, sum, mul or ave");
}

/* Keras up to version 2 leaves `zero_output_for_mask` out where it is false, and where it has no GRU that resets after the product, `reset_after`. TensorFlow's Bidirectional turns it on where sequences are
 * returned; that of Keras by itself (up to 2.3.1) repeats outputs as any layer of its. */
static void set_old_defaults(const entry *e, sl_recurrent *options) {
    if (e->where.keras == 0 || e->where.keras > 2) return;
    options->reset_before = !strcmp(e->kind->class_name, "GRU");
    bool sequences = json_is_true(json_object_get(e->config, "return_sequences"));
    if (e->wrapper && sequences && !e->where.standalone) return;
    options->masked_output = SL_MASKED_REPEAT;
}

/* Zeros that options have for what is not given, where the config says 0 and means it. */
static sl_status read_zeros(const entry *e, void *options) {
    json_t *axis = json_object_get(e->config, "axis");
    json_t *forget = json_object_get(json_object_get(e->config, "sluice"), "forget_bias");
    if (!strcmp(e->kind->class_name, "Concatenate") && axis && json_integer_value(axis) == 0)
        return sli_json_fail(&e->where, SL_ERR_INPUT, "`axis` is 0; only features (axis -1) are concatenated");
    if (strcmp(e->kind->class_name, "LSTM") != 0 || !forget) return SL_OK;
    sl_recurrent *o = options;
    if (o->forget_bias == 0 && o->forget_bias_mode == SL_FORGET_DEFAULT && o->bias != SL_BIAS_NONE)
        o->forget_bias_mode = SL_FORGET_IN_VARIABLE;
    return SL_OK;
}

static sl_status read_layer(document *d, size_t index, const entry *e) {
    if (!strcmp(e->kind->class_name, "InputLayer")) return read_input_layer(d, index, e);
    void *options = sli_arena_alloc(&d->model->arena, e->kind->options_bytes ? e->kind->options_bytes : 1);
    if (!options) return sli_fail_memory("a layer's options", e->kind->options_bytes);
    if (is_recurrent(e->kind)) set_old_defaults(e, options); /* before: what the config says overrides it */
    SLI_TRY(sli_json_read_options(&e->where, e->kind, e->config, options));
    SLI_TRY(read_zeros(e, options));
    if (e->wrapper) SLI_TRY(read_merge_mode(e, options));
    json_t *inputs = json_object_get(e->outer, "inputs");
    if (e->outer != e->config && json_object_get(e->config, "inputs"))
        return sli_json_fail(&e->where, SL_ERR_INPUT, "`inputs` belongs into the wrapper's config; move it there");
    const char **names = NULL;
    if (inputs) {
        if (!is_list_of_names(inputs))
            return sli_json_fail(&e->where, SL_ERR_INPUT, "`inputs` is not a list of tensor names");
        SLI_TRY(read_names(d->model, inputs, &names));
    }
    sl_status status = sli_model_add(d->model, e->where.name, e->kind->class_name, options, names);
    return status == SL_OK ? SL_OK : sli_fail_context(status, "model JSON, layer %d", e->where.number);
}

/* What the last layer reads; false where shapes do not fit each other, which plans say better. */
static bool shape_of_input(const sl_model *model, sli_layer_outputs *shapes, sli_shape *shape) {
    const sli_layer *layer = model->layers[model->layer_count - 1];
    int output, source = sli_model_find_tensor(model, layer->inputs[0], &output);
    if (source < 0 || sli_model_shapes(model, shapes) != SL_OK) {
        sli_clear_error();
        return false;
    }
    *shape = shapes[source].shape[output];
    return true;
}

/* Keras 1 and 2 look at the input shape of the first layer alone and write those of others as they were given, so there it means
 * nothing. Elsewhere one that contradicts what the layer gets is a mistake. */
static sl_status check_given_shape(const document *d, const entry *e) {
    input_shape shape;
    sli_shape got;
    json_t *given = given_shape(e->outer);
    if (!given && e->wrapper) given = given_shape(e->config);
    if (!given || d->keras == 1 || d->keras == 2) return SL_OK;
    size_t bytes = sizeof(sli_layer_outputs) * (size_t)d->model->layer_count;
    sli_layer_outputs *shapes = sli_arena_alloc(&d->model->arena, bytes);
    if (!shapes) return sli_fail_memory("the shapes of layers", bytes);
    if (!shape_of_input(d->model, shapes, &got)) return SL_OK;
    SLI_TRY(read_shape(&e->where, given, true, &shape));
    char text[64] = "[batch, steps]";
    if (!got.integer) snprintf(text, sizeof text, got.time ? "[batch, steps, %d]" : "[batch, %d]", got.features);
    bool fits = shape.rank == (got.time && !got.integer ? 2 : 1) &&
                (got.integer || shape.features == 0 || shape.features == got.features);
    if (fits) return SL_OK;
    return sli_json_fail(&e->where, SL_ERR_SHAPE,
                         "the input shape is not that of what the layer reads, %s; leave it out", text);
}

static sl_status read_layers(document *d) {
    size_t count = json_array_size(d->layers);
    SLI_FAIL_IF(!json_is_array(d->layers) || count == 0, SL_ERR_INPUT,
                "model JSON: `config.layers` is missing or empty; list the layers there");
    for (size_t i = 0; i < count; i++) {
        entry e;
        SLI_TRY(open_entry(d, i, &e));
        if (i == 0) SLI_TRY(add_implied_input(d, &e));
        SLI_TRY(read_layer(d, i, &e));
        d->model->layers[d->model->layer_count - 1]->frozen = e.frozen;
        if (strcmp(e.kind->class_name, "InputLayer") != 0) SLI_TRY(check_given_shape(d, &e));
    }
    return SL_OK;
}

/* --------------------------------------------------------------------------------------------------- top level -- */
static sl_status check_keys(json_t *object, const char *const *known, const char *where) {
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        if (one_of(key, known)) continue;
        const char *best = NULL;
        int distance = 3;
        for (int i = 0; known[i]; i++) sli_nearest(key, known[i], &best, &distance);
        return sli_fail(SL_ERR_UNKNOWN, "model JSON: unknown key `%.60s` %s%s%s%s", key, where,
                        best ? "; did you mean `" : "; remove it", best ? best : "", best ? "`?" : "");
    }
    return SL_OK;
}

static sl_status read_outputs(document *d, json_t *sluice) {
    json_t *outputs = json_object_get(sluice, "outputs");
    if (!outputs) return SL_OK;
    SLI_FAIL_IF(!is_list_of_names(outputs), SL_ERR_INPUT, "model JSON: `sluice.outputs` is not a list of tensor names");
    const char **names;
    SLI_TRY(read_names(d->model, outputs, &names));
    sl_status status = sl_model_set_outputs(d->model, names);
    return status == SL_OK ? SL_OK : sli_fail_context(status, "model JSON, `sluice.outputs`");
}

static int keras_major(json_t *root) {
    const char *version = json_string_value(json_object_get(root, "keras_version"));
    return version && version[0] >= '1' && version[0] <= '9' ? version[0] - '0' : 0;
}

/* "2.3.1", but not "2.2.4-tf" or "2.4.0", which is TensorFlow's too. */
static bool is_standalone(json_t *root) {
    const char *version = json_string_value(json_object_get(root, "keras_version"));
    if (!version || strstr(version, "-tf")) return false;
    return version[0] == '1' ||
           (!strncmp(version, "2.", 2) && version[2] >= '0' && version[2] <= '3' && version[3] == '.');
}

static sl_status check_class(json_t *root) {
    SLI_FAIL_IF(!json_is_object(root), SL_ERR_INPUT,
                "model JSON: the text is not an object {\"class_name\": \"Sequential\", \"config\": ...}");
    const char *class_name = json_string_value(json_object_get(root, "class_name"));
    SLI_FAIL_IF(!class_name, SL_ERR_INPUT, "model JSON: `class_name` is missing; add \"class_name\": \"Sequential\"");
    SLI_FAIL_IF(
        strcmp(class_name, "Sequential") != 0, SL_ERR_UNKNOWN,
        "model JSON: class_name is \"%.60s\"; only \"Sequential\" is read: list the layers in order and join them by "
        "`inputs`",
        class_name);
    return SL_OK;
}

static sl_status read_document(json_t *root, document *d) {
    static const char *const TOP[] = {
        "class_name",      "config",       "sluice",         "keras_version",     "backend", "module",
        "registered_name", "build_config", "compile_config", "build_input_shape", "dtype",   NULL};
    static const char *const CONFIG[] = {"name", "trainable", "dtype", "layers", "build_input_shape", "sluice", NULL};
    static const char *const SLUICE[] = {"outputs", NULL};
    const sli_json_where itself = {.class_name = "Sequential"};
    SLI_TRY(check_class(root));
    SLI_TRY(check_keys(root, TOP, "at the top"));
    SLI_TRY(sli_json_read_common(&itself, root, &d->frozen)); /* of the two only `dtype` is a key at the top */
    d->keras = keras_major(root);
    d->standalone = is_standalone(root);
    json_t *config = json_object_get(root, "config"), *sluice = json_object_get(config, "sluice");
    d->layers = config; /* Keras before 2.2.3 wrote the list itself */
    if (json_is_object(config)) {
        SLI_TRY(check_keys(config, CONFIG, "in `config`"));
        SLI_TRY(sli_json_read_common(&itself, config, &d->frozen));
        d->layers = json_object_get(config, "layers");
        d->build_shape = json_object_get(config, "build_input_shape");
    }
    SLI_FAIL_IF(sluice && !json_is_object(sluice), SL_ERR_INPUT, "model JSON: `config.sluice` is not an object");
    if (sluice) SLI_TRY(check_keys(sluice, SLUICE, "in `config.sluice`"));
    if (!d->build_shape) d->build_shape = json_object_get(root, "build_input_shape");
    if (!d->build_shape) d->build_shape = json_object_get(json_object_get(root, "build_config"), "input_shape");
    SLI_TRY(read_layers(d));
    SLI_TRY(read_outputs(d, sluice));
    return read_outputs(d, json_object_get(root, "sluice"));
}

sl_status sli_model_from_json(const sl_allocator *allocator, const char *text, size_t bytes, sl_model **model) {
    *model = NULL;
    json_t *root;
    SLI_TRY(sli_json_load(text, bytes, "model JSON", SL_ERR_INPUT, &root));
    document d = {0};
    sl_status status = sl_model_new(allocator, &d.model);
    if (status == SL_OK) status = read_document(root, &d);
    json_decref(root);
    if (status == SL_OK)
        *model = d.model;
    else
        sl_model_free(d.model);
    return status;
}
