/* Options and readers that several commands share. */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------ options -- */
static const option where_table[] = {
    {OPTION_TEXT, "device", offsetof(where_options, device), "DEVICE", 0, 0,
     "auto (the default), cpu, cuda:0; `sluice devices` lists them"},
    {OPTION_INT, "threads", offsetof(where_options, threads), "N", 1, 1024,
     "threads to use (default: what the affinity mask and the cgroup quota allow); the numbers do not depend on it"},
    {OPTION_CHOICE, "dtype", offsetof(where_options, dtype), "f32|tf32|bf16|f16|f32x3|i8|f64", 0, 0,
     "precision of the products; parameters and cell states stay f32 (default: f32); i8 is for inference on CPUs"},
    {OPTION_TEXT, "require", offsetof(where_options, require), "KERNEL", 0, 0,
     "fail, exit code 4, unless the recurrent layers run on this kernel: a name (cuda:step), a prefix (cpu:) or the "
     "word "
     "fused"},
    {OPTION_SIZE, "memory-limit", offsetof(where_options, memory_limit), "SIZE", 0, 0,
     "bytes for parameters and run together, such as 512M or 8G; training then recomputes activations, or fails with "
     "exit code 5"},
    {OPTION_FLAG, "recompute-gates", offsetof(where_options, recompute_gates), NULL, 0, 0,
     "training: recurrent layers keep states, not gates, and compute those again in backward: less memory, more time"},
    {OPTION_FLAG, "no-graph", offsetof(where_options, no_graph), NULL, 0, 0,
     "on a GPU, launch every kernel anew instead of replaying recorded calls; the numbers do not depend on it"},
    {OPTION_MODE, "tune", offsetof(where_options, tune), "again", 0, 0,
     "choose the recurrent layers' kernels by timing all that are eligible, instead of by predicted time; times are "
     "remembered, with =again they are taken anew"},
    {0}};
const option_group where_group = {"where and how to compute", where_table};

static const option script_table[] = {
    {OPTION_FLAG, "json", offsetof(script_options, json), NULL, 0, 0, "print one JSON object, for scripts"}, {0}};
const option_group script_group = {"output", script_table};

sl_dtype where_dtype(const where_options *where, const arguments *a) {
    static const sl_dtype dtypes[] = {SL_F32, SL_TF32, SL_BF16, SL_F16, SL_F32X3, SL_I8, SL_F64};
    return arguments_given(a, "dtype") ? dtypes[where->dtype] : SL_DTYPE_DEFAULT;
}

const char *where_dtype_name(const where_options *where, const arguments *a) {
    static const char *const names[] = {"f32", "tf32", "bf16", "f16", "f32x3", "i8", "f64"};
    return arguments_given(a, "dtype") ? names[where->dtype] : NULL;
}

void where_apply(const where_options *where, const arguments *a, sl_plan_options *options) {
    if (arguments_given(a, "dtype")) options->dtype = where_dtype(where, a);
    if (where->device) options->device = where->device;
    if (where->require) options->require = where->require;
    if (where->threads) options->threads = where->threads;
    if (where->recompute_gates) options->recompute_gates = 1;
    if (where->no_graph) options->no_graph = 1;
    if (where->tune) options->tune = (sl_tune)where->tune;
    if (arguments_given(a, "memory-limit")) options->memory_limit = where->memory_limit;
}

/* -------------------------------------------------------------------------------------------------- model files -- */
sl_vocabulary *file_vocabulary(const sl_file *file, const char *path, int *code) {
    sl_vocabulary *vocabulary = NULL;
    const char *json = sl_file_metadata(file, "vocabulary"), *format = sl_file_metadata(file, "format");
    if (!format || strcmp(format, "sluice") != 0)
        *code =
            report_as(SL_ERR_FILE, "%s: a safetensors file, but not one of Sluice's; give one of `sluice train`", path);
    else if (json)
        *code = report_at(path, sl_vocabulary_from_json(NULL, json, &vocabulary));
    else
        *code = report_as(
            SL_ERR_INPUT,
            "%s holds no vocabulary, so it is no language model; `sluice predict` and `sluice eval --x` take arrays",
            path);
    return vocabulary;
}

/* Tokens would mean something else, or nothing at all. */
static int check_vocabulary(const sl_file *file, const char *path) {
    int code = 0, wanted = 0;
    sl_model *model = NULL;
    if (!sl_file_metadata(file, "vocabulary")) return 0;
    sl_vocabulary *vocabulary = file_vocabulary(file, path, &code);
    if (!code) code = report(sl_file_model(file, &model));
    if (!code && sl_model_input(model, 0, &wanted, NULL, NULL) && wanted && wanted != sl_vocabulary_size(vocabulary))
        code = report_as(SL_ERR_INPUT,
                         "%s: its vocabulary has %d tokens and its model takes %d: the file is damaged or was put "
                         "together; give one as `sluice train` wrote it",
                         path, sl_vocabulary_size(vocabulary), wanted);
    sl_model_free(model);
    sl_vocabulary_free(vocabulary);
    return code;
}

int open_model_file(const char *path, sl_file **file) {
    int code = report(sl_file_open(NULL, path, file));
    if (!code) code = check_vocabulary(*file, path);
    if (code) sl_file_close(*file);
    return code;
}

bool file_training(const sl_file *file, sl_training *training) {
    return sl_file_training(file, training) == SL_OK && training->task;
}

int64_t training_number(const char *state, const char *key) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *at = strstr(state, quoted);
    return at ? strtoll(at + strlen(quoted), NULL, 10) : 0;
}

const char *name_texts(char **paths, int count) {
    if (count != 1) return "the texts";
    return strcmp(paths[0], "-") == 0 ? "standard input" : paths[0];
}

/* It is read to its end: another text of it would be empty. */
static int refuse_input_twice(char **paths, int count) {
    static bool taken;
    for (int i = 0; i < count; i++) {
        if (strcmp(paths[i], "-") != 0) continue;
        if (taken) return report_as(SL_ERR_USAGE, "standard input (-) can be read only once; name a file beside it");
        taken = true;
    }
    return 0;
}

int read_texts(char **paths, int count, char **text, size_t *bytes) {
    const int code = refuse_input_twice(paths, count);
    if (code) return code;
    return report(sl_text_read(NULL, (const char *const *)paths, count, text, bytes));
}

/* The same sentence but for the place? */
static bool is_same_but_for_place(const char *one, const char *other) {
    const char *place = strstr(one, " at byte ");
    return place && strncmp(one, other, (size_t)(place - one)) == 0;
}

int use_texts(char **paths, int count, const char *text, size_t bytes, text_use *use, void (*forget)(void *context),
              void *context) {
    const sl_status status = use(context, text, bytes);
    if (status == SL_OK) return 0;
    char detail[1024];
    snprintf(detail, sizeof detail, "%s", sl_error_detail());
    for (int i = 0; count > 1 && i < count; i++) {
        char *alone = NULL;
        size_t length = 0;
        if (strcmp(paths[i], "-") == 0 ||
            sl_text_read(NULL, (const char *const *)&paths[i], 1, &alone, &length) != SL_OK)
            continue;
        const sl_status own = use(context, alone, length);
        if (own == SL_OK) forget(context);
        sl_text_free(alone);
        if (own == status && is_same_but_for_place(detail, sl_error_detail())) return report_at(paths[i], own);
    }
    return report_as(status, "%s: %s", name_texts(paths, count), detail);
}

typedef struct encoding {
    const sl_vocabulary *vocabulary;
    int32_t **tokens;
    size_t *count;
} encoding;

static sl_status encode(void *context, const char *text, size_t bytes) {
    const encoding *e = context;
    return sl_vocabulary_encode(e->vocabulary, text, bytes, e->tokens, e->count);
}

static void forget_tokens(void *context) {
    const encoding *e = context;
    sl_tokens_free(e->vocabulary, *e->tokens, *e->count);
    *e->tokens = NULL;
    *e->count = 0;
}

int encode_texts(const sl_vocabulary *vocabulary, char **paths, int count, const char *text, size_t bytes,
                 int32_t **tokens, size_t *token_count) {
    encoding e = {vocabulary, tokens, token_count};
    return use_texts(paths, count, text, bytes, encode, forget_tokens, &e);
}

bool begins_as_json(const char *text) {
    const char *first = text + strspn(text, " \t\r\n\xEF\xBB\xBF"); /* the last three: a byte order mark */
    return *first == '{' || *first == '[';
}
