/* sluice info: what is in a model file or an array file. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common.h"
#include "json.h"

typedef struct info_options {
    int tensors;
} info_options;

static const option info_table[] = {{OPTION_FLAG, "tensors", offsetof(info_options, tensors), NULL, 0, 0,
                                     "list every tensor, optimizer slots and states too"},
                                    {0}};
static const option_group info_group = {"options", info_table};

/* ------------------------------------------------------------------------------------------------------- arrays -- */
/* Of files alone: what is read of a pipe is gone. */
static int is_npy(const char *path) {
    char head[6] = {0};
    struct stat about;
    FILE *file = stat(path, &about) == 0 && S_ISREG(about.st_mode) ? fopen(path, "rb") : NULL;
    if (!file) return 0;
    size_t bytes = fread(head, 1, sizeof head, file);
    fclose(file);
    return bytes == sizeof head && memcmp(head, "\x93NUMPY", sizeof head) == 0;
}

static void shape_json(json *out, const int64_t *shape, int rank) {
    json_open(out, "shape", '[');
    for (int i = 0; i < rank; i++) json_int(out, NULL, shape[i]);
    json_close(out, ']');
}

/* "[2][3]"; gives `text`. */
static const char *shape_text(const int64_t *shape, int rank, char *text, size_t capacity) {
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < rank && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "[%" PRId64 "]", shape[i]);
    return text;
}

static int info_npy(const char *path, bool as_json) {
    static const char *const types[] = {"float32", "float64", "int32", "int64", "uint8", "bool"};
    sl_array array;
    char shape[256], bytes[BYTES_TEXT];
    int code = report(sl_npy_read(NULL, path, &array));
    if (code) return code;
    if (as_json) {
        json out = {.file = stdout};
        json_open(&out, NULL, '{');
        json_str(&out, "kind", "npy");
        json_str(&out, "type", types[array.type]);
        shape_json(&out, array.shape, array.rank);
        json_int(&out, "bytes", (long long)array.bytes);
        json_close(&out, '}');
        json_end(&out);
    } else {
        printf("kind    NumPy array\ntype    %s\nshape   %s\nbytes   %s\n", types[array.type],
               shape_text(array.shape, array.rank, shape, sizeof shape), bytes_text((double)array.bytes, bytes));
    }
    sl_array_free(&array);
    return 0;
}

/* -------------------------------------------------------------------------------------------------- model files -- */
/* Slots are optim.SLOT.LAYER.PARAM, states state.LAYER.h and .c; a layer may be called optim or state, too. */
static bool is_parameter(const char *name) {
    const char *last = strrchr(name, '.');
    int dots = 0;
    for (const char *c = name; *c; c++) dots += *c == '.';
    bool is_slot = strncmp(name, "optim.", 6) == 0 && dots >= 3;
    bool is_state = strncmp(name, "state.", 6) == 0 && (strcmp(last, ".h") == 0 || strcmp(last, ".c") == 0);
    return !is_slot && !is_state;
}

static double file_parameters(const sl_file *file) {
    double sum = 0;
    sl_tensor_info info;
    for (int i = 0; i < sl_file_tensor_count(file); i++) {
        if (sl_file_tensor(file, i, &info) != SL_OK || !is_parameter(info.name)) continue;
        double elements = 1;
        for (int d = 0; d < info.rank; d++) elements *= (double)info.shape[d];
        sum += elements;
    }
    return sum;
}

static void tensors_json(json *out, const sl_file *file) {
    sl_tensor_info info;
    json_open(out, "tensors", '[');
    for (int i = 0; i < sl_file_tensor_count(file); i++) {
        if (sl_file_tensor(file, i, &info) != SL_OK) continue;
        json_open(out, NULL, '{');
        json_str(out, "name", info.name);
        json_str(out, "dtype", info.dtype);
        shape_json(out, info.shape, info.rank);
        json_int(out, "bytes", (long long)info.bytes);
        json_close(out, '}');
    }
    json_close(out, ']');
}

static void info_json(const sl_file *file, const sl_vocabulary *vocabulary) {
    static const char *const levels[] = {"char", "word", "byte"};
    json out = {.file = stdout};
    json_open(&out, NULL, '{');
    json_str(&out, "kind", "model");
    json_int(&out, "parameters", (long long)file_parameters(file));
    if (vocabulary) {
        json_str(&out, "level", levels[sl_vocabulary_level(vocabulary)]);
        json_int(&out, "vocabulary_size", sl_vocabulary_size(vocabulary));
    }
    const char *key, *value;
    for (int i = 0; (key = sl_file_metadata_at(file, i, &value)) != NULL; i++)
        if (strcmp(key, "valid") == 0) /* a path, which may be called 7 or true */
            json_str(&out, key, value);
        else if (strcmp(key, "vocabulary") != 0)
            json_text(&out, key, value);
    tensors_json(&out, file);
    json_close(&out, '}');
    json_end(&out);
}

static void print_tensors(const sl_file *file, bool all) {
    char shape[256];
    sl_tensor_info info;
    for (int i = 0; i < sl_file_tensor_count(file); i++)
        if (sl_file_tensor(file, i, &info) == SL_OK && (all || is_parameter(info.name)))
            printf("  %-40s %-4s %s\n", info.name, info.dtype, shape_text(info.shape, info.rank, shape, sizeof shape));
}

/* JSON of many lines, which stands at the end; `valid` is a path. */
static bool is_document(const char *key, const char *value) {
    return (value[0] == '{' || value[0] == '[') && strcmp(key, "valid") != 0;
}

static void info_text(const sl_file *file, const sl_vocabulary *vocabulary, bool all) {
    static const char *const levels[] = {"characters", "words", "bytes"};
    char number[BYTES_TEXT];
    const char *key, *value;
    printf("kind        model file\nparameters  %s\n", count_text((long long)file_parameters(file), number));
    if (vocabulary)
        printf("vocabulary  %s %s\n", count_text(sl_vocabulary_size(vocabulary), number),
               levels[sl_vocabulary_level(vocabulary)]);
    for (int i = 0; (key = sl_file_metadata_at(file, i, &value)) != NULL; i++)
        if (!is_document(key, value)) printf("%-11s %s\n", key, value);
    printf("tensors\n");
    print_tensors(file, all);
    for (int i = 0; (key = sl_file_metadata_at(file, i, &value)) != NULL; i++)
        if (is_document(key, value) && strcmp(key, "vocabulary") != 0) printf("%s\n%s\n", key, value);
}

static int run(const command *command, int count, char **words) {
    info_options options = {0};
    script_options script = {0};
    arguments a = {.values = {&options, &script}};
    int code = arguments_parse(&a, command, count, words);
    if (code != PARSE_GO_ON) return code;
    const char *path = a.positional[0];
    if (is_npy(path) && options.tensors)
        return usage_error(command, "--tensors goes with model files; %s is an array", path);
    if (is_npy(path)) return info_npy(path, script.json);
    sl_file *file;
    code = report(sl_file_open(NULL, path, &file));
    if (code) return code;
    sl_vocabulary *vocabulary = NULL;
    if (sl_file_metadata(file, "vocabulary")) vocabulary = file_vocabulary(file, path, &code);
    if (!code && script.json)
        info_json(file, vocabulary);
    else if (!code)
        info_text(file, vocabulary, options.tensors);
    sl_vocabulary_free(vocabulary);
    sl_file_close(file);
    return code;
}

const command command_info = {
    .name = "info",
    .summary = "show what is in a model file or an array file",
    .synopsis = "sluice info FILE [--tensors] [--json]",
    .text = "Prints the description, vocabulary size, parameters and training state of a model file, or the type and\n"
            "shape of an .npy array.",
    .groups = {&info_group, &script_group},
    .least = 1,
    .most = 1,
    .missing = "info needs a model file or an .npy file",
    .run = run};
