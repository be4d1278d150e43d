/* Training options as JSON: tables of fields, read and written alike. */
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/model.h"
#include "io/json_text.h"
#include "train/training.h"

/* Count, factor: an int and a number whose 0 stands for a default in sl_training. A document that says 0 means another thing. */
typedef enum value_type {
    VALUE_INT,
    VALUE_COUNT,
    VALUE_INT64,
    VALUE_SEED,
    VALUE_NUMBER,
    VALUE_FACTOR,
    VALUE_BOOL,
    VALUE_ENUM
} value_type;

typedef struct value_field {
    const char *key;
    value_type type;
    size_t offset;
    const sli_enum_name *names; /* VALUE_ENUM */
} value_field;

typedef struct value_group {
    const char *key; /* object it lives in, NULL: "training" itself */
    const value_field *fields;
} value_group;

static const sli_enum_name level_names[] = {
    {"char", SL_LEVEL_CHAR}, {"word", SL_LEVEL_WORD}, {"byte", SL_LEVEL_BYTE}, {NULL, 0}};
static const sli_enum_name optimizer_names[] = {
    {"sgd", SL_SGD}, {"adam", SL_ADAM}, {"adamw", SL_ADAMW}, {"rmsprop", SL_RMSPROP}, {NULL, 0}};
static const sli_enum_name schedule_names[] = {{"constant", SL_SCHEDULE_CONSTANT},
                                               {"step", SL_SCHEDULE_STEP},
                                               {"exponential", SL_SCHEDULE_EXPONENTIAL},
                                               {"cosine", SL_SCHEDULE_COSINE},
                                               {"epoch_decay", SL_SCHEDULE_EPOCH_DECAY},
                                               {"plateau", SL_SCHEDULE_PLATEAU},
                                               {NULL, 0}};
static const sli_enum_name clip_names[] = {{"none", SL_CLIP_NONE},
                                           {"value", SL_CLIP_VALUE},
                                           {"norm", SL_CLIP_NORM},
                                           {"global_norm", SL_CLIP_GLOBAL_NORM},
                                           {NULL, 0}};
static const sli_enum_name loss_names[] = {
    {"none", SL_LOSS_NONE}, {"softmax", SL_LOSS_SOFTMAX}, {"binary", SL_LOSS_BINARY}, {"mse", SL_LOSS_MSE}, {NULL, 0}};
static const sli_enum_name reduction_names[] = {{"mean", SL_REDUCE_MEAN}, {"sum_time", SL_REDUCE_SUM_TIME}, {NULL, 0}};
static const sli_enum_name split_names[] = {{"tail", SL_SPLIT_TAIL}, {"blocks", SL_SPLIT_BLOCKS}, {NULL, 0}};
static const sli_enum_name masking_names[] = {
    {"none", SL_MASK_NONE}, {"lengths", SL_MASK_LENGTHS}, {"steps", SL_MASK_STEPS}, {NULL, 0}};
static const sli_enum_name dtype_names[] = {{"default", SL_DTYPE_DEFAULT},
                                            {"f32", SL_F32},
                                            {"f32x3", SL_F32X3},
                                            {"tf32", SL_TF32},
                                            {"bf16", SL_BF16},
                                            {"f16", SL_F16},
                                            {"i8", SL_I8}, /* which plans refuse, with the reason */
                                            {"f64", SL_F64},
                                            {NULL, 0}};

#define AT(member) offsetof(sl_training, member)
static const value_field text_fields[] = {
    {"level", VALUE_ENUM, AT(level), level_names}, {"vocabulary_limit", VALUE_INT, AT(vocabulary_limit), NULL}, {0}};
static const value_field training_fields[] = {{"batch", VALUE_COUNT, AT(batch), NULL},
                                              {"steps", VALUE_COUNT, AT(steps), NULL},
                                              {"epochs", VALUE_COUNT, AT(epochs), NULL},
                                              {"seed", VALUE_SEED, AT(seed), NULL},
                                              {"learning_rate", VALUE_FACTOR, AT(learning_rate), NULL},
                                              {"loss", VALUE_ENUM, AT(loss), loss_names},
                                              {"reduction", VALUE_ENUM, AT(reduction), reduction_names},
                                              {"accumulate", VALUE_COUNT, AT(accumulate), NULL},
                                              {"patience", VALUE_INT, AT(patience), NULL},
                                              {"min_delta", VALUE_NUMBER, AT(min_delta), NULL},
                                              {"valid_fraction", VALUE_NUMBER, AT(valid_fraction), NULL},
                                              {"split", VALUE_ENUM, AT(split), split_names},
                                              {"drop_partial", VALUE_BOOL, AT(drop_partial), NULL},
                                              {"keep_state", VALUE_BOOL, AT(keep_state), NULL},
                                              {"shuffle", VALUE_BOOL, AT(shuffle), NULL},
                                              {"masking", VALUE_ENUM, AT(masking), masking_names},
                                              {"init_scale", VALUE_NUMBER, AT(init_scale), NULL},
                                              {"dtype", VALUE_ENUM, AT(dtype), dtype_names},
                                              {0}};
static const value_field optimizer_fields[] = {{"name", VALUE_ENUM, AT(optimizer.kind), optimizer_names},
                                               {"momentum", VALUE_NUMBER, AT(optimizer.momentum), NULL},
                                               {"nesterov", VALUE_BOOL, AT(optimizer.nesterov), NULL},
                                               {"beta1", VALUE_FACTOR, AT(optimizer.beta1), NULL},
                                               {"beta2", VALUE_FACTOR, AT(optimizer.beta2), NULL},
                                               {"rho", VALUE_FACTOR, AT(optimizer.rho), NULL},
                                               {"epsilon", VALUE_FACTOR, AT(optimizer.epsilon), NULL},
                                               {"weight_decay", VALUE_NUMBER, AT(optimizer.weight_decay), NULL},
                                               {0}};
static const value_field schedule_fields[] = {
    {"name", VALUE_ENUM, AT(schedule.kind), schedule_names}, {"factor", VALUE_FACTOR, AT(schedule.factor), NULL},
    {"every", VALUE_INT64, AT(schedule.every), NULL},        {"warmup", VALUE_INT64, AT(schedule.warmup), NULL},
    {"total", VALUE_INT64, AT(schedule.total), NULL},        {"hold", VALUE_INT, AT(schedule.hold), NULL},
    {"minimum", VALUE_NUMBER, AT(schedule.minimum), NULL},   {0}};
static const value_field clip_fields[] = {
    {"name", VALUE_ENUM, AT(clip.kind), clip_names}, {"value", VALUE_NUMBER, AT(clip.value), NULL}, {0}};
static const value_group groups[] = {{NULL, training_fields},
                                     {"optimizer", optimizer_fields},
                                     {"schedule", schedule_fields},
                                     {"clip", clip_fields},
                                     {0}};

/* ----------------------------------------------------------------------------------------------------- reading -- */
static sl_status read_enum(const value_field *field, const json_t *value, const char *where, int *out) {
    const char *name = json_string_value(value), *best = NULL;
    int distance = 3;
    for (const sli_enum_name *n = field->names; name && n->name; n++) {
        if (strcmp(n->name, name) == 0) {
            *out = n->value;
            return SL_OK;
        }
        sli_nearest(name, n->name, &best, &distance);
    }
    SLI_FAIL_IF(!name, SL_ERR_INPUT, "%s: \"%s\" must be a name", where, field->key);
    return sli_fail(SL_ERR_UNKNOWN, "%s: \"%s\" is \"%.60s\", which is no such thing%s%s%s", where, field->key, name,
                    best ? "; did you mean \"" : "", best ? best : "", best ? "\"?" : "");
}

static sl_status read_seed(const value_field *field, const json_t *value, const char *where, uint64_t *seed) {
    if (json_is_integer(value)) {
        SLI_FAIL_IF(json_integer_value(value) < 0, SL_ERR_INPUT, "%s: \"%s\" cannot be negative", where, field->key);
        *seed = (uint64_t)json_integer_value(value);
        return SL_OK;
    }
    /* Beyond 2^63 a seed is written as a string: JSON readers keep 64 signed bits. */
    const char *text = json_string_value(value);
    uint64_t number = 0;
    bool good = text && *text;
    for (const char *c = text; good && *c; c++)
        good = *c >= '0' && *c <= '9' && !__builtin_mul_overflow(number, 10u, &number) &&
               !__builtin_add_overflow(number, (uint64_t)(*c - '0'), &number);
    SLI_FAIL_IF(!good, SL_ERR_INPUT, "%s: \"%s\" must be a whole number of at most 64 bits", where, field->key);
    *seed = number;
    return SL_OK;
}

static sl_status read_field(const value_field *field, const json_t *value, const char *where, sl_training *training) {
    char *at = (char *)training + field->offset;
    const bool is_int = field->type == VALUE_INT || field->type == VALUE_COUNT,
               not_zero = field->type == VALUE_COUNT || field->type == VALUE_FACTOR;
    SLI_FAIL_IF(not_zero && json_is_number(value) && json_number_value(value) == 0, SL_ERR_INPUT,
                "%s: \"%s\" cannot be 0; give another number, or leave it out for its default", where, field->key);
    double low = is_int ? INT_MIN : (double)INT64_MIN;
    double high = is_int ? INT_MAX : (double)INT64_MAX;
    switch (field->type) {
    case VALUE_INT:
    case VALUE_COUNT:
    case VALUE_INT64:
        SLI_FAIL_IF(!json_is_integer(value) || (double)json_integer_value(value) < low ||
                        (double)json_integer_value(value) > high,
                    SL_ERR_INPUT, "%s: \"%s\" must be a whole number", where, field->key);
        if (is_int)
            *(int *)at = (int)json_integer_value(value);
        else
            *(int64_t *)at = json_integer_value(value);
        return SL_OK;
    case VALUE_SEED:
        return read_seed(field, value, where, (uint64_t *)at);
    case VALUE_NUMBER:
    case VALUE_FACTOR:
        SLI_FAIL_IF(!json_is_number(value), SL_ERR_INPUT, "%s: \"%s\" must be a number", where, field->key);
        *(double *)at = json_number_value(value);
        return SL_OK;
    case VALUE_BOOL:
        SLI_FAIL_IF(!json_is_boolean(value), SL_ERR_INPUT, "%s: \"%s\" must be true or false", where, field->key);
        *(int *)at = json_is_true(value);
        return SL_OK;
    case VALUE_ENUM:
        break;
    }
    int chosen = 0;
    SLI_TRY(read_enum(field, value, where, &chosen));
    *(int *)at = chosen; /* enums are int-sized, checked below */
    return SL_OK;
}
_Static_assert(sizeof(sl_optimizer_kind) == sizeof(int) && sizeof(sl_level) == sizeof(int), "read_field writes ints");

static sl_status unknown_key(const char *key, const value_field *fields, const char *where) {
    const char *best = NULL;
    int distance = 3;
    for (const value_field *f = fields; f->key; f++) sli_nearest(key, f->key, &best, &distance);
    return sli_fail(SL_ERR_UNKNOWN, "%s: unknown key \"%.60s\"%s%s%s", where, key, best ? "; did you mean \"" : "",
                    best ? best : "", best ? "\"?" : "");
}

/* `nested`: groups that may be objects inside this one, NULL for none. */
static sl_status read_object(const json_t *object, const value_field *fields, const value_group *nested,
                             const char *where, sl_training *training) {
    SLI_FAIL_IF(!json_is_object(object), SL_ERR_INPUT, "%s: must be an object { ... }", where);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        const value_field *field = fields;
        const value_group *group = nested;
        while (field->key && strcmp(field->key, key) != 0) field++;
        while (group && group->fields && (!group->key || strcmp(group->key, key) != 0)) group++;
        if (field->key) {
            SLI_TRY(read_field(field, value, where, training));
        } else if (group && group->fields) {
            char path[64];
            snprintf(path, sizeof path, "%s.%s", where, group->key);
            SLI_TRY(read_object(value, group->fields, NULL, path, training));
        } else {
            return unknown_key(key, fields, where);
        }
    }
    return SL_OK;
}

sl_status sli_training_read(const json_t *sluice, sl_training *training) {
    sl_training t;
    memset(&t, 0, sizeof t);
    t.task = "array";
    SLI_FAIL_IF(!json_is_object(sluice), SL_ERR_INPUT, "sluice: must be an object { ... }");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)sluice, key, value) {
        if (strcmp(key, "task") == 0) {
            const char *name = json_is_string(value) ? json_string_value(value) : "";
            SLI_FAIL_IF(strcmp(name, "lm") != 0 && strcmp(name, "array") != 0, SL_ERR_INPUT,
                        "sluice: \"task\" must be \"lm\" or \"array\"");
            t.task = strcmp(name, "lm") == 0 ? "lm" : "array";
        } else if (strcmp(key, "text") == 0) {
            SLI_TRY(read_object(value, text_fields, NULL, "sluice.text", &t));
        } else if (strcmp(key, "training") == 0) {
            SLI_TRY(read_object(value, training_fields, groups, "sluice.training", &t));
            SLI_FAIL_IF(t.optimizer.kind == SL_ADAMW && t.optimizer.weight_decay == 0 &&
                            json_object_get(json_object_get(value, "optimizer"), "weight_decay"),
                        SL_ERR_INPUT, "sluice.training.optimizer: \"weight_decay\" is 0; adamw without it is \"adam\"");
        } else if (strcmp(key, "outputs") != 0) { /* the model's, which the reader of models looks at */
            return sli_fail(SL_ERR_UNKNOWN, "sluice: unknown key \"%.60s\" (known: task, text, training, outputs)",
                            key);
        }
    }
    SLI_FAIL_IF(json_object_get(sluice, "text") && strcmp(t.task, "lm") != 0, SL_ERR_INPUT,
                "sluice: \"text\" belongs to \"task\": \"lm\": leave it out for arrays, or name that task");
    *training = t;
    return SL_OK;
}

sl_status sli_training_from_json(const char *text, size_t bytes, sl_training *training) {
    json_t *root = NULL;
    memset(training, 0, sizeof *training);
    SLI_TRY(sli_json_load(text, bytes, "model description", SL_ERR_INPUT, &root));
    const json_t *sluice = json_object_get(root, "sluice");
    sl_status status = sluice ? sli_training_read(sluice, training) : SL_OK;
    json_decref(root);
    return status;
}

/* ----------------------------------------------------------------------------------------------------- writing -- */
static const char *enum_name(const sli_enum_name *names, int value) {
    while (names->name && names->value != value) names++;
    return names->name ? names->name : "?";
}

static sl_status check_named(const char *key, const value_field *field, const sl_training *training) {
    int value = *(const int *)((const char *)training + field->offset);
    char known[160] = "";
    size_t used = 0;
    for (const sli_enum_name *n = field->names; n->name; n++) {
        if (n->value == value) return SL_OK;
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", n->name);
    }
    return sli_fail(SL_ERR_USAGE, "training: %s is %d, which is none of %s; use a name of sluice.h", key, value, known);
}

sl_status sli_training_check_names(const sl_training *training) {
    const char *task = training->task;
    SLI_FAIL_IF(task && strcmp(task, "lm") != 0 && strcmp(task, "array") != 0, SL_ERR_USAGE,
                "training: there is no task \"%.40s\"; tasks are lm and array", task);
    SLI_TRY(check_named("level", text_fields, training));
    for (const value_group *g = groups; g->fields; g++)
        for (const value_field *f = g->fields; f->key; f++)
            if (f->type == VALUE_ENUM) SLI_TRY(check_named(g->key ? g->key : f->key, f, training));
    return SL_OK;
}

static bool is_default(const value_field *field, const char *at) {
    switch (field->type) {
    case VALUE_INT:
    case VALUE_COUNT:
    case VALUE_BOOL:
        return *(const int *)at == 0;
    case VALUE_INT64:
        return *(const int64_t *)at == 0;
    case VALUE_SEED:
        return *(const uint64_t *)at == 0;
    case VALUE_NUMBER:
    case VALUE_FACTOR:
        return *(const double *)at == 0;
    case VALUE_ENUM:
        return *(const int *)at == 0 && strcmp(field->key, "name") != 0;
    }
    return false;
}

static void write_value(sli_text *out, const value_field *field, const char *at) {
    switch (field->type) {
    case VALUE_INT:
    case VALUE_COUNT:
        sli_text_printf(out, "%d", *(const int *)at);
        break;
    case VALUE_INT64:
        sli_text_printf(out, "%lld", (long long)*(const int64_t *)at);
        break;
    case VALUE_SEED: {
        unsigned long long seed = *(const uint64_t *)at;
        sli_text_printf(out, seed <= INT64_MAX ? "%llu" : "\"%llu\"", seed);
        break;
    }
    case VALUE_NUMBER:
    case VALUE_FACTOR:
        sli_json_append_number(out, *(const double *)at);
        break;
    case VALUE_BOOL:
        sli_text_printf(out, *(const int *)at ? "true" : "false");
        break;
    case VALUE_ENUM:
        sli_text_printf(out, "\"%s\"", enum_name(field->names, *(const int *)at));
        break;
    }
}

/* The fields that are not 0, each after `before` (the first after `first`); returns how many. */
static int write_fields(sli_text *out, const value_field *fields, const sl_training *training, const char *first,
                        const char *before) {
    int written = 0;
    for (const value_field *f = fields; f->key; f++) {
        const char *at = (const char *)training + f->offset;
        if (is_default(f, at)) continue;
        sli_text_printf(out, "%s\"%s\": ", written++ ? before : first, f->key);
        write_value(out, f, at);
    }
    return written;
}

void sli_training_write(sli_text *out, const sl_training *training, const char *task, int indent) {
    char line[64];
    snprintf(line, sizeof line, ",\n%*s", indent + 4, "");
    sli_text_printf(out, "{\n%*s\"task\": \"%s\",", indent + 2, "", task);
    if (strcmp(task, "lm") == 0) {
        sli_text_printf(out, "\n%*s\"text\": {", indent + 2, "");
        write_fields(out, text_fields, training, "", ", ");
        sli_text_printf(out, "},");
    }
    sli_text_printf(out, "\n%*s\"training\": {", indent + 2, "");
    int written = write_fields(out, training_fields, training, line + 1, line);
    for (const value_group *g = groups + 1; g->fields; g++) {
        sli_text_printf(out, "%s\"%s\": {", written++ ? line : line + 1, g->key);
        write_fields(out, g->fields, training, "", ", ");
        sli_text_printf(out, "}");
    }
    sli_text_printf(out, "\n%*s}\n%*s}", indent + 2, "", indent, "");
}

sl_status sli_training_to_json(sl_model *model, const sl_training *training, const char *task, const char **text) {
    const char *description = NULL;
    sli_text out;
    SLI_TRY(sli_training_check_names(training));
    if (!task) task = training->task ? training->task : "array";
    SLI_TRY(sl_model_to_json(model, &description));
    size_t length = strlen(description);
    while (length > 0 && description[length - 1] != '}') length--;
    size_t end = length - 1; /* of the members: the last brace and the blanks before it are cut off */
    while (end > 0 && strchr(" \n\t", description[end - 1])) end--;
    sli_text_init(&out, &model->allocator);
    sli_text_append(&out, description, end);
    sli_text_printf(&out, ",\n  \"sluice\": ");
    sli_training_write(&out, training, task, 2);
    sli_text_printf(&out, "\n}\n");
    sli_text_free(&model->json);
    model->json = out;
    if (out.failed) return sli_fail_memory("the model's JSON", out.length);
    SLI_FAIL_IF(out.infinite, SL_ERR_INPUT, "training JSON: an option is no finite number, which JSON cannot hold");
    *text = out.data;
    return SL_OK;
}
