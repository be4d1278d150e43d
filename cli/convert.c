/* sluice convert: a model file as a stream model (.slm) or as one C file. */
#include <stdio.h>
#include <string.h>

#include "common.h"
#include "files.h"

typedef struct convert_options {
    const char *name;
    int dtype;
} convert_options;

static const option convert_table[] = {{OPTION_TEXT, "name", offsetof(convert_options, name), "NAME", 0, 0,
                                        "C: what the functions' names begin with (default: the file's name)"},
                                       {OPTION_CHOICE, "dtype", offsetof(convert_options, dtype), "f32|i8", 0, 0,
                                        "C: i8 makes weights of 8 bits, a quarter of the memory; `sluice eval --dtype "
                                        "i8` says what they cost"},
                                       {0}};
static const option_group convert_group = {"options", convert_table};

/* By the ending of the path; false if it is none that is known. */
static bool form_of(const char *path, sl_convert_form *form) {
    const char *dot = strrchr(path, '.');
    if (dot && strcmp(dot, ".slm") == 0) {
        *form = SL_CONVERT_STREAM;
        return true;
    }
    *form = SL_CONVERT_C;
    return dot && strcmp(dot, ".c") == 0;
}

static int convert(const sl_file *file, const sl_convert *options, const char *path) {
    sl_model *model = NULL;
    sl_plan *plan = NULL;
    sl_params *params = NULL;
    /* Parameters are all that the plan is for. */
    const sl_plan_options one = {.device = "cpu", .threads = 1};
    int code = report(sl_file_model(file, &model));
    if (!code) code = report(sl_plan_new(model, &one, &plan));
    if (!code) code = report(sl_params_new(plan, &params));
    if (!code) code = report(sl_file_load_params(file, params));
    if (!code) code = report(sl_model_convert(model, params, options, path));
    sl_params_free(params);
    sl_plan_free(plan);
    sl_model_free(model);
    return code;
}

static void print_result(const char *path) {
    char bytes[BYTES_TEXT];
    FILE *written = fopen(path, "rb");
    long size = written && fseek(written, 0, SEEK_END) == 0 ? ftell(written) : -1;
    if (written) fclose(written);
    if (size >= 0)
        printf("wrote %s, %s\n", path, bytes_text((double)size, bytes));
    else
        printf("wrote %s\n", path);
}

static int run(const command *command, int count, char **words) {
    convert_options o = {0};
    arguments a = {.values = {&o}};
    int code = arguments_parse(&a, command, count, words);
    if (code != PARSE_GO_ON) return code;
    const char *path = a.positional[1];
    sl_convert options = {.name = o.name};
    if (!form_of(path, &options.form))
        return usage_error(command, "%s: end the name in .slm (a stream model) or .c (a C file)", path);
    if (o.name && options.form != SL_CONVERT_C)
        return usage_error(command, "--name goes with C files; %s is none", path);
    if (o.dtype == 1 && options.form != SL_CONVERT_C)
        return usage_error(command, "--dtype i8 goes with C files; %s is none", path);
    if (arguments_given(&a, "dtype")) options.dtype = o.dtype == 1 ? SL_I8 : SL_F32;
    const file_use uses[] = {{path, "the output", FILE_WRITTEN}, {a.positional[0], "the model", FILE_READ}};
    code = refuse_same_files(command, uses, 2);
    const char *mark = options.form == SL_CONVERT_C ? "made by `sluice convert`" : "SLUICESM";
    if (!code) code = refuse_other_marks(command, "the output", path, mark, "was not made by convert");
    if (code) return code;
    sl_file *file;
    code = open_model_file(a.positional[0], &file);
    if (code) return code;
    code = convert(file, &options, path);
    if (!code) print_result(path);
    sl_file_close(file);
    return code;
}

const command command_convert = {
    .name = "convert",
    .summary = "make a stream model or a C file of a model, for audio and devices",
    .synopsis = "sluice convert MODEL OUT.slm\n       sluice convert MODEL OUT.c [--name NAME] [--dtype i8]",
    .text =
        "Writes a trained model in a form that computes one step at a time, one row, without this program:\n"
        "  OUT.slm  a stream model, for libsluice_stream.a (sluice_stream.h): less than 300 kB, the C library alone\n"
        "  OUT.c    one C99 file, weights included, that calls nothing: NAME_reset, NAME_step; its first lines say "
        "how\n"
        "Both give the numbers of `sluice predict` up to rounding; a C file in i8 those of `predict --dtype i8`. The\n"
        "model must be layers one after the other, of one direction: an embedding or one-hot vectors, LSTM, GRU,\n"
        "simple RNN with all their options, dense.",
    .groups = {&convert_group},
    .examples = "  sluice convert filter.safetensors filter.slm\n"
                "  sluice convert filter.safetensors filter.c && cc -O3 -march=native -c filter.c\n",
    .least = 2,
    .most = 2,
    .missing = "convert needs a model file and what to write, OUT.slm or OUT.c",
    .run = run};
