/* sluice plan: which kernel each part of a model or problem would run on, why not another, and the exact bytes. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common.h"
#include "problems.h"

typedef struct plan_flags {
    int batch, steps, train;
} plan_flags;

static const option plan_table[] = {
    {OPTION_INT, "batch", offsetof(plan_flags, batch), "B", 1, 0,
     "batch rows (default: those of the problem, of the training (with --accumulate of a part), or 1)"},
    {OPTION_INT, "steps", offsetof(plan_flags, steps), "T", 1, 0, "time steps (default: likewise)"},
    {OPTION_FLAG, "train", offsetof(plan_flags, train), NULL, 0, 0, "plan a training step, not inference"},
    {0}};
static const option_group plan_group = {"options", plan_table};

static void options_of_training(const sl_training *training, sl_plan_options *options) {
    options->batch = training->accumulate > 1 ? training->batch / training->accumulate : training->batch;
    options->steps = training->steps;
    options->dtype = training->dtype;
    options->loss = training->loss;
    options->reduction = training->reduction;
    options->optimizer = training->optimizer;
    options->clip = training->clip;
    options->masking = training->masking;
}

static int model_of_json(const char *path, sl_model **model, sl_plan_options *options) {
    char *text;
    size_t bytes;
    sl_training training;
    char *paths[] = {(char *)path};
    int code = read_texts(paths, 1, &text, &bytes);
    if (code) return code;
    if (begins_as_json(text))
        code = report_at(name_texts(paths, 1), sl_model_from_json(NULL, text, bytes, model));
    else
        code = report_as(SL_ERR_INPUT,
                         "%s is neither a problem, a model file nor model JSON; give one of them, such as "
                         "lstm:b20_t35_i650_h650",
                         name_texts(paths, 1));
    if (!code) code = report_at(name_texts(paths, 1), sl_training_from_json(text, bytes, &training));
    if (!code && training.task) options_of_training(&training, options);
    sl_text_free(text);
    return code;
}

static int model_of_file(const char *path, sl_model **model, sl_plan_options *options) {
    sl_file *file;
    int code = open_model_file(path, &file);
    if (code) return code;
    code = report(sl_file_model(file, model));
    sl_training training;
    if (!code && file_training(file, &training)) options_of_training(&training, options);
    sl_file_close(file);
    return code;
}

static bool is_json(const char *path) {
    unsigned char head[9] = {0};
    struct stat of;
    if (stat(path, &of) == 0 && S_ISFIFO(of.st_mode)) return true; /* what was read to look at it would be gone */
    FILE *file = fopen(path, "rb");
    if (!file) return false;
    size_t bytes = fread(head, 1, sizeof head, file);
    fclose(file);
    /* The high bytes of a header's length are 0; text has none. */
    return bytes > 0 && (bytes < sizeof head || memchr(head, 0, 8) == NULL);
}

static int read_model(const char *word, sl_model **model, sl_plan_options *options) {
    if (is_problem(word)) return report(sl_model_from_problem(NULL, word, model, options));
    if (strcmp(word, "-") == 0 || is_json(word)) return model_of_json(word, model, options);
    return model_of_file(word, model, options);
}

static int run(const command *command, int count, char **words) {
    plan_flags flags = {0};
    where_options where = {0};
    script_options script = {0};
    arguments a = {.values = {&flags, &where, &script}};
    int code = arguments_parse(&a, command, count, words);
    if (code != PARSE_GO_ON) return code;
    sl_plan_options options = {0};
    sl_model *model = NULL;
    code = read_model(a.positional[0], &model, &options);
    if (code) {
        sl_model_free(model);
        return code;
    }
    if (flags.batch) options.batch = flags.batch;
    if (flags.steps) options.steps = flags.steps;
    if (flags.train) options.train = 1;
    if (!options.train) options.loss = SL_LOSS_NONE;
    where_apply(&where, &a, &options);
    sl_plan *plan = NULL;
    code = report(sl_plan_new(model, &options, &plan));
    const char *text = code ? NULL : script.json ? sl_plan_explain_json(plan) : sl_plan_explain(plan);
    if (!code && !text) code = report_memory();
    if (text) fputs(text, stdout);
    if (text && text[0] && text[strlen(text) - 1] != '\n') putchar('\n');
    sl_plan_free(plan);
    sl_model_free(model);
    return code;
}

const command command_plan = {
    .name = "plan",
    .summary = "show kernels, refusals and exact bytes without running anything",
    .synopsis = "sluice plan MODEL|PROBLEM [options]",
    .text =
        "Plans a model file, a description (MODEL.json) or a problem string, and prints for each layer its problem,\n"
        "the chosen kernel, every refused kernel with its reason, FLOPs and bytes. Nothing is computed, and the\n"
        "device may be invented: cpu:avx2, cuda:sm_90.\n"
        "\n"
        "A problem is CELL:FIELD_FIELD...[+OPTION[=VALUE]]...: CELL lstm, gru or rnn; fields lN layers, bN batch, tN\n"
        "steps, iN inputs, hN units, pN projection, bi, a dtype, train; options such as +peephole or +rdrop=0.3.",
    .groups = {&plan_group, &where_group, &script_group},
    .examples = "  sluice plan lstm:l2_b20_t35_i650_h650_train\n"
                "  sluice plan book.safetensors --batch 64 --steps 100 --train\n"
                "  sluice plan lstm:b64_t512_i1024_h1024_train --memory-limit 2G --device cpu:avx2\n",
    .least = 1,
    .most = 1,
    .missing = "plan needs a model file, a MODEL.json or a problem such as lstm:b20_t35_i650_h650",
    .run = run};
