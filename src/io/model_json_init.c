/* Keras initializers as JSON, both ways: "glorot_uniform", {"class_name": "RandomUniform", "config": {"minval": -0.1, ...}}. */
#include <ctype.h>
#include <string.h>
#include "io/model_json.h"

typedef struct init_name {
    const char *class_name, *name; /* the same but for case and underscores */
    const char *alias;
    sl_init_kind kind;
} init_name;
static const init_name NAMES[] = {{"Zeros", "zeros", "zero", SL_INIT_ZEROS},
                                  {"Ones", "ones", "one", SL_INIT_ONES},
                                  {"Constant", "constant", NULL, SL_INIT_CONSTANT},
                                  {"RandomUniform", "random_uniform", "uniform", SL_INIT_UNIFORM},
                                  {"RandomNormal", "random_normal", "normal", SL_INIT_NORMAL},
                                  {"TruncatedNormal", "truncated_normal", NULL, SL_INIT_TRUNCATED_NORMAL},
                                  {"GlorotUniform", "glorot_uniform", NULL, SL_INIT_GLOROT_UNIFORM},
                                  {"GlorotNormal", "glorot_normal", NULL, SL_INIT_GLOROT_NORMAL},
                                  {"HeUniform", "he_uniform", NULL, SL_INIT_HE_UNIFORM},
                                  {"HeNormal", "he_normal", NULL, SL_INIT_HE_NORMAL},
                                  {"LecunUniform", "lecun_uniform", NULL, SL_INIT_LECUN_UNIFORM},
                                  {"LecunNormal", "lecun_normal", NULL, SL_INIT_LECUN_NORMAL},
                                  {"Orthogonal", "orthogonal", "orthogonal_initializer", SL_INIT_ORTHOGONAL},
                                  {"Identity", "identity", "identity_initializer", SL_INIT_IDENTITY},
                                  {"PyTorch", "pytorch", NULL, SL_INIT_PYTORCH}};
enum { NAME_COUNT = sizeof NAMES / sizeof *NAMES };

/* Equal but for case and underscores. */
static bool same_name(const char *a, const char *b) {
    for (;;) {
        while (*a == '_') a++;
        while (*b == '_') b++;
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) return false;
        if (!*a) return true;
        a++;
        b++;
    }
}

static const init_name *find(const char *name) {
    for (int i = 0; i < NAME_COUNT; i++)
        if (same_name(name, NAMES[i].name) || (NAMES[i].alias && same_name(name, NAMES[i].alias))) return &NAMES[i];
    return NULL;
}

/* The config of an initializer, with the keys that were asked for counted. */
typedef struct init_config {
    const sli_json_where *where;
    const char *key; /* of the layer's config */
    const char *class_name;
    json_t *config; /* NULL: none */
    size_t known;   /* keys of config that have been looked at */
} init_config;

/* Reads a number; *value keeps the default if it is absent. */
static sl_status number(init_config *c, const char *key, double *value) {
    json_t *given = c->config ? json_object_get(c->config, key) : NULL;
    if (!given) return SL_OK;
    c->known++;
    if (!json_is_number(given))
        return sli_json_fail(c->where, SL_ERR_INPUT, "`%s`: `%s` of %s is not a number", c->key, key, c->class_name);
    *value = json_number_value(given);
    return SL_OK;
}

/* Seeds are ours to choose; the axes are Keras's defaults when null. */
static sl_status accept_neutral(init_config *c) {
    if (!c->config) return SL_OK;
    if (json_object_get(c->config, "seed")) c->known++;
    static const char *const AXES[] = {"input_axes", "output_axes", "dtype"};
    for (int i = 0; i < 3; i++) {
        json_t *given = json_object_get(c->config, AXES[i]);
        if (!given) continue;
        c->known++;
        if (i < 2 && !json_is_null(given))
            return sli_json_fail(c->where, SL_ERR_INPUT, "`%s`: `%s` of %s can only be null", c->key, AXES[i],
                                 c->class_name);
    }
    if (c->known == json_object_size(c->config)) return SL_OK;
    const char *key;
    json_t *value;
    static const char *const KNOWN =
        " seed input_axes output_axes dtype minval maxval mean stddev gain value scale mode "
        "distribution ";
    char padded[72];
    json_object_foreach(c->config, key, value) {
        snprintf(padded, sizeof padded, " %.60s ", key);
        if (!strstr(KNOWN, padded)) break;
    }
    return sli_json_fail(c->where, SL_ERR_UNKNOWN, "`%s`: %s has a key that it does not know%s%.60s%s", c->key,
                         c->class_name, key ? ", `" : "", key ? key : "", key ? "`" : "");
}

/* Keras's family behind Glorot, He and LeCun: variance = scale / fan. */
static sl_status variance_scaling(init_config *c, sl_init *init) {
    double scale = 1;
    SLI_TRY(number(c, "scale", &scale));
    json_t *mode_value = c->config ? json_object_get(c->config, "mode") : NULL;
    json_t *shape_value = c->config ? json_object_get(c->config, "distribution") : NULL;
    c->known += (mode_value != NULL) + (shape_value != NULL);
    const char *mode = mode_value ? json_string_value(mode_value) : "fan_in";
    const char *shape = shape_value ? json_string_value(shape_value) : "truncated_normal";
    bool uniform = shape && !strcmp(shape, "uniform");
    bool normal = shape && (!strcmp(shape, "truncated_normal") || !strcmp(shape, "normal"));
    bool fan_in = mode && !strcmp(mode, "fan_in"), fan_avg = mode && !strcmp(mode, "fan_avg");
    if (fan_avg && scale == 1 && (uniform || normal))
        init->kind = uniform ? SL_INIT_GLOROT_UNIFORM : SL_INIT_GLOROT_NORMAL;
    else if (fan_in && scale == 2 && (uniform || normal))
        init->kind = uniform ? SL_INIT_HE_UNIFORM : SL_INIT_HE_NORMAL;
    else if (fan_in && scale == 1 && (uniform || normal))
        init->kind = uniform ? SL_INIT_LECUN_UNIFORM : SL_INIT_LECUN_NORMAL;
    else
        return sli_json_fail(c->where, SL_ERR_INPUT,
                             "`%s`: VarianceScaling is read only where it equals Glorot, He or LeCun", c->key);
    return accept_neutral(c);
}

static sl_status read_config(init_config *c, sl_init *init) {
    double low = -0.05, high = 0.05, mean = 0, deviation = 0.05, gain = 1, constant = 0;
    switch (init->kind) {
    case SL_INIT_CONSTANT:
        SLI_TRY(number(c, "value", &constant));
        init->value = constant;
        break;
    case SL_INIT_UNIFORM:
        SLI_TRY(number(c, "minval", &low));
        SLI_TRY(number(c, "maxval", &high));
        if (low != -high || high < 0)
            return sli_json_fail(c->where, SL_ERR_INPUT, "`%s`: RandomUniform needs minval = -maxval", c->key);
        init->value = high;
        break;
    case SL_INIT_NORMAL:
    case SL_INIT_TRUNCATED_NORMAL:
        SLI_TRY(number(c, "mean", &mean));
        SLI_TRY(number(c, "stddev", &deviation));
        if (mean != 0 || deviation < 0)
            return sli_json_fail(c->where, SL_ERR_INPUT, "`%s`: %s needs mean 0 and stddev >= 0", c->key,
                                 c->class_name);
        init->value = deviation;
        break;
    case SL_INIT_ORTHOGONAL:
    case SL_INIT_IDENTITY:
        SLI_TRY(number(c, "gain", &gain));
        if (gain == 0) init->kind = SL_INIT_ZEROS; /* a gain of 0 in sl_init stands for 1 */
        init->value = gain == 1 ? 0 : gain;
        break;
    default:
        break;
    }
    return accept_neutral(c);
}

sl_status sli_json_read_init(const sli_json_where *where, const char *key, json_t *value, sl_init *init) {
    *init = (sl_init){0};
    if (json_is_null(value)) { /* None is no default of the layer's: a variable without an initializer */
        init->kind = SL_INIT_GLOROT_UNIFORM;
        return SL_OK;
    }
    json_t *class_name = json_is_object(value) ? json_object_get(value, "class_name") : value;
    if (!json_is_string(class_name))
        return sli_json_fail(where, SL_ERR_INPUT,
                             "`%s` is neither the name of an initializer nor {\"class_name\": ..., \"config\": ...}",
                             key);
    init_config c = {where, key, json_string_value(class_name), NULL, 0};
    if (json_is_object(value)) {
        const char *part;
        json_t *ignored;
        json_object_foreach(
            value, part,
            ignored) if (strcmp(part, "class_name") && strcmp(part, "config") && strcmp(part, "module") &&
                         strcmp(part,
                                "registered_name")) return sli_json_fail(where, SL_ERR_UNKNOWN,
                                                                         "`%s`: unknown key `%.60s` of an initializer",
                                                                         key, part);
        c.config = json_object_get(value, "config");
        if (json_is_null(c.config)) c.config = NULL;
        if (c.config && !json_is_object(c.config))
            return sli_json_fail(where, SL_ERR_INPUT, "`%s`: `config` of an initializer is not an object", key);
    }
    if (same_name(c.class_name, "variance_scaling")) return variance_scaling(&c, init);
    const init_name *known = find(c.class_name);
    if (!known) {
        const char *best = NULL;
        int distance = 4;
        for (int i = 0; i < NAME_COUNT; i++) {
            sli_nearest(c.class_name, NAMES[i].name, &best, &distance);
            sli_nearest(c.class_name, NAMES[i].class_name, &best, &distance);
        }
        return sli_json_fail(
            where, SL_ERR_UNKNOWN, "`%s`: there is no initializer \"%.60s\"%s%s%s", key, c.class_name,
            best ? "; did you mean \""
                 : "; give zeros, ones, constant, random_uniform, glorot_uniform, orthogonal or another of Keras's",
            best ? best : "", best ? "\"?" : "");
    }
    init->kind = known->kind;
    return read_config(&c, init);
}

/* {"class_name": NAME, "config": {KEY: value, ...}} on one line. */
static void write_object(sli_text *text, const char *class_name, const char *low_key, double low, const char *key,
                         double value) {
    sli_text_printf(text, "{\"class_name\": \"%s\", \"config\": {", class_name);
    if (low_key) {
        sli_text_printf(text, "\"%s\": ", low_key);
        sli_json_append_number(text, low);
        sli_text_append(text, ", ", 2);
    }
    sli_text_printf(text, "\"%s\": ", key);
    sli_json_append_number(text, value);
    sli_text_append(text, "}}", 2);
}

void sli_json_write_init(sli_json_out *out, sl_init init) {
    const char *class_name = "", *name = "";
    for (int i = 0; i < NAME_COUNT; i++)
        if (NAMES[i].kind == init.kind) {
            class_name = NAMES[i].class_name;
            name = NAMES[i].name;
        }
    switch (init.kind) {
    case SL_INIT_CONSTANT:
        write_object(out->text, class_name, NULL, 0, "value", init.value);
        return;
    case SL_INIT_UNIFORM:
        write_object(out->text, class_name, "minval", 0 - init.value, "maxval", init.value);
        return;
    case SL_INIT_NORMAL:
    case SL_INIT_TRUNCATED_NORMAL:
        write_object(out->text, class_name, "mean", 0, "stddev", init.value);
        return;
    case SL_INIT_ORTHOGONAL:
    case SL_INIT_IDENTITY:
        if (init.value == 0 || init.value == 1) break;
        write_object(out->text, class_name, NULL, 0, "gain", init.value);
        return;
    default:
        break;
    }
    sli_json_string(out, name);
}
