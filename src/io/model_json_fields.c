/* Reading a layer's config by the table of its kind: see model_json.h. */
#include <string.h>
#include "io/model_json.h"

sl_status sli_json_fail(const sli_json_where *where, sl_status status, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (where->number == 0) return sli_fail(status, "model JSON, the model itself: %s", text);
    return sli_fail(status, "model JSON, layer %d \"%.60s\" (%.40s): %s", where->number, where->name, where->class_name,
                    text);
}

/* Keys that Keras gives every layer; they are in no table, for they mean the same in all. */
static const char *const COMMON[] = {"name",   "trainable", "dtype", "batch_input_shape", "batch_shape", "input_length",
                                     "inputs", "sluice",    NULL};

static bool is_common(const char *key) {
    for (int i = 0; COMMON[i]; i++)
        if (!strcmp(key, COMMON[i])) return true;
    return false;
}

/* A dtype's name, or that of a policy; NULL if it is neither. */
static const char *type_name(json_t *dtype) {
    if (json_is_object(dtype)) dtype = json_object_get(json_object_get(dtype, "config"), "name");
    return json_string_value(dtype);
}

bool sli_json_is_integer_type(json_t *dtype) {
    const char *name = type_name(dtype);
    return name && (!strncmp(name, "int", 3) || !strncmp(name, "uint", 4));
}

/* Another precision of one layer would be dropped without a word: a plan has one for all. */
static sl_status check_type(const sli_json_where *where, json_t *config) {
    json_t *dtype = json_object_get(config, "dtype");
    const char *name = type_name(dtype);
    if (!dtype || json_is_null(dtype) || (name && !strcmp(name, "float32"))) return SL_OK;
    /* Keras 2.0 gives an Embedding the dtype of its tokens. */
    bool tokens = !strcmp(where->class_name, "InputLayer") ||
                  ((where->keras == 1 || where->keras == 2) && !strcmp(where->class_name, "Embedding"));
    if (tokens && sli_json_is_integer_type(dtype)) return SL_OK;
    return sli_json_fail(where, SL_ERR_INPUT,
                         "`dtype` is not \"float32\"; set it so or leave it out, and choose the precision of products "
                         "with --dtype (sl_plan_options.dtype)");
}

sl_status sli_json_read_common(const sli_json_where *where, json_t *config, bool *frozen) {
    json_t *trainable = json_object_get(config, "trainable");
    SLI_TRY(check_type(where, config));
    if (!trainable) return SL_OK;
    if (!json_is_boolean(trainable)) return sli_json_fail(where, SL_ERR_INPUT, "`trainable` is not true or false");
    if (json_is_false(trainable)) *frozen = true;
    return SL_OK;
}

static const sli_field *find_field(const sli_layer_kind *kind, const char *key, bool in_sluice) {
    for (const sli_field *field = kind->fields; field && field->key; field++)
        if (field->in_sluice == in_sluice && !strcmp(field->key, key)) return field;
    return NULL;
}

static sl_status fail_unknown(const sli_json_where *where, const sli_layer_kind *kind, const char *key,
                              bool in_sluice) {
    if (find_field(kind, key, !in_sluice) || (in_sluice && is_common(key)))
        return sli_json_fail(where, SL_ERR_UNKNOWN, "`%s` belongs %s; move it there", key,
                             in_sluice ? "into `config`, not into `config.sluice`"
                                       : "into `config.sluice`, not into `config`");
    if (where->keras == 1 && !in_sluice)
        return sli_json_fail(where, SL_ERR_UNKNOWN,
                             "unknown key `%.60s`: keys of Keras 1 are not read; load the model with Keras 2 and write "
                             "its JSON again",
                             key);
    const char *best = NULL;
    int distance = 3;
    for (const sli_field *field = kind->fields; field && field->key; field++)
        if (field->in_sluice == in_sluice) sli_nearest(key, field->key, &best, &distance);
    for (int i = 0; !in_sluice && COMMON[i]; i++) sli_nearest(key, COMMON[i], &best, &distance);
    return sli_json_fail(where, SL_ERR_UNKNOWN, "unknown key `%.60s`%s%s%s%s", key, in_sluice ? " in `sluice`" : "",
                         best ? "; did you mean `" : "; remove it", best ? best : "", best ? "`?" : "");
}

/* Keras up to version 2 has another hard_sigmoid than Keras 3 under the same name. */
static int keras_2_value(const sli_json_where *where, const sli_field *field, const sli_enum_name *found) {
    if (where->keras == 0 || where->keras > 2 || strcmp(found->name, "hard_sigmoid") != 0) return found->value;
    for (const sli_enum_name *name = field->names; name->name; name++)
        if (!strcmp(name->name, "hard_sigmoid_k2")) return name->value;
    return found->value;
}

static sl_status read_enum(const sli_json_where *where, const sli_field *field, json_t *value, int *to) {
    const char *given = json_is_null(value) ? "linear" : json_string_value(value); /* activation=None is linear */
    if (!given) return sli_json_fail(where, SL_ERR_INPUT, "`%s` is not a name", field->key);
    const char *best = NULL;
    int distance = 3;
    char list[256] = "";
    for (const sli_enum_name *name = field->names; name->name; name++) {
        if (!strcmp(name->name, given)) {
            *to = keras_2_value(where, field, name);
            return SL_OK;
        }
        sli_nearest(given, name->name, &best, &distance);
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", name->name);
    }
    if (json_is_null(value)) return sli_json_fail(where, SL_ERR_INPUT, "`%s` is not a name", field->key);
    if (!strcmp(given, "softmax"))
        return sli_json_fail(where, SL_ERR_UNKNOWN,
                             "`%s`: there is no \"softmax\": the loss softmax works on logits; set its activation to "
                             "\"linear\"",
                             field->key);
    if (best)
        return sli_json_fail(where, SL_ERR_UNKNOWN, "`%s`: there is no \"%.60s\"; did you mean \"%s\"?", field->key,
                             given, best);
    return sli_json_fail(where, SL_ERR_UNKNOWN, "`%s`: there is no \"%.60s\"; known are %s", field->key, given, list);
}

static bool is_nothing(const json_t *value) {
    return json_is_null(value) || json_is_false(value) || (json_is_number(value) && json_number_value(value) == 0);
}

static sl_status fail_type(const sli_json_where *where, const sli_field *field, const char *wanted) {
    return sli_json_fail(where, SL_ERR_INPUT, "`%s` is not %s", field->key, wanted);
}

static sl_status read_field(const sli_json_where *where, const sli_field *field, json_t *value, void *options) {
    void *at = (char *)options + field->offset;
    switch (field->type) {
    case SLI_FIELD_INT:
        if (!json_is_integer(value) || json_integer_value(value) < -SLI_JSON_LARGEST ||
            json_integer_value(value) > SLI_JSON_LARGEST)
            return fail_type(where, field, "a whole number of at most 16777216");
        *(int *)at = (int)json_integer_value(value);
        return SL_OK;
    case SLI_FIELD_NUMBER:
        if (!json_is_number(value)) return fail_type(where, field, "a number");
        *(double *)at = json_number_value(value);
        return SL_OK;
    case SLI_FIELD_BOOL:
    case SLI_FIELD_NOT_BOOL:
    case SLI_FIELD_BOOL_ENUM:
        if (!json_is_boolean(value)) return fail_type(where, field, "true or false");
        if (field->type == SLI_FIELD_BOOL_ENUM)
            *(int *)at = json_is_true(value) ? field->when_true : field->when_false;
        else
            *(int *)at = json_is_true(value) == (field->type == SLI_FIELD_BOOL);
        return SL_OK;
    case SLI_FIELD_ENUM:
        return read_enum(where, field, value, at);
    case SLI_FIELD_STRING:
        if (!json_is_string(value) && !json_is_null(value)) return fail_type(where, field, "a name or null");
        *(const char **)at = json_string_value(value); /* NULL for null */
        return SL_OK;
    case SLI_FIELD_INIT:
        return sli_json_read_init(where, field->key, value, at);
    case SLI_FIELD_IGNORED:
        return SL_OK;
    case SLI_FIELD_NEUTRAL:
        if (is_nothing(value)) return SL_OK;
        return sli_json_fail(where, SL_ERR_INPUT, "`%s` cannot be used: %s", field->key,
                             field->reason ? field->reason : "Sluice does not have it");
    }
    return SL_OK;
}

/* All keys of one object; those of the other object and the common ones are skipped. */
static sl_status read_keys(const sli_json_where *where, const sli_layer_kind *kind, json_t *object, bool in_sluice,
                           void *options) {
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        const sli_field *field = find_field(kind, key, in_sluice);
        if (field)
            SLI_TRY(read_field(where, field, value, options));
        else if (in_sluice || !is_common(key))
            return fail_unknown(where, kind, key, in_sluice);
    }
    return SL_OK;
}

sl_status sli_json_read_options(const sli_json_where *where, const sli_layer_kind *kind, json_t *config,
                                void *options) {
    json_t *sluice = json_object_get(config, "sluice");
    if (sluice && !json_is_object(sluice)) return sli_json_fail(where, SL_ERR_INPUT, "`sluice` is not an object");
    SLI_TRY(read_keys(where, kind, config, false, options));
    if (sluice) SLI_TRY(read_keys(where, kind, sluice, true, options)); /* after: our finer options override Keras's */
    for (const sli_field *field = kind->fields; field && field->key; field++)
        if (field->required && !json_object_get(field->in_sluice ? sluice : config, field->key))
            return sli_json_fail(where, SL_ERR_INPUT, "`%s` is missing; add it", field->key);
    return SL_OK;
}
