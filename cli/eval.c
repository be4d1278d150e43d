/* sluice eval: loss of a language model on text, or of any model on arrays. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common.h"
#include "json.h"

typedef struct eval_options {
    const char *x, *y, *lengths;
    int loss, batch;
} eval_options;

static const option eval_table[] = {
    {OPTION_TEXT, "x", offsetof(eval_options, x), "X.npy", 0, 0, "inputs, in place of text"},
    {OPTION_TEXT, "y", offsetof(eval_options, y), "Y.npy", 0, 0, "targets"},
    {OPTION_TEXT, "lengths", offsetof(eval_options, lengths), "L.npy", 0, 0,
     "steps of each row [N]; the rest is masked, and may be NaN"},
    {OPTION_CHOICE, "loss", offsetof(eval_options, loss), "softmax|binary|mse", 0, 0,
     "for arrays (default: the one the model was trained with)"},
    {OPTION_INT, "batch", offsetof(eval_options, batch), "B", 1, 0, "for arrays: rows a call (default 32)"},
    {0}};
static const option_group eval_group = {"data", eval_table};

/* Characters of a UTF-8 text. */
static double characters(const char *text, size_t bytes) {
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++) count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return (double)count;
}

/* What is printed of a result; `exact`: the same in f32, where that is compared. */
typedef struct figure {
    const char *key, *label;
    const char *format, *with_sign;
    double value, exact;
    const char *unit;
} figure;

static void print_json(const figure *figures, int count, bool compared, const char *counted, double number) {
    static const char *const parts[] = {"f32", "difference"};
    json out = {.file = stdout};
    json_open(&out, NULL, '{');
    for (int k = 0; k < count; k++) json_number(&out, figures[k].key, figures[k].value);
    json_int(&out, counted, (long long)number);
    for (int part = 0; compared && part < 2; part++) {
        json_open(&out, parts[part], '{');
        for (int k = 0; k < count; k++)
            json_number(&out, figures[k].key, part ? figures[k].value - figures[k].exact : figures[k].exact);
        json_close(&out, '}');
    }
    json_close(&out, '}');
    json_end(&out);
}

static void print_figures(const figure *figures, int count, bool compared) {
    for (int k = 0; k < count; k++) {
        const figure *f = &figures[k];
        fputs(f->label, stdout);
        printf(f->format, f->value);
        fputs(f->unit, stdout);
        if (compared) {
            fputs(", f32 ", stdout);
            printf(f->format, f->exact);
            fputs(", difference ", stdout);
            printf(f->with_sign, f->value - f->exact);
        }
        putchar('\n');
    }
}

/* `exact`: in f32, or NULL. */
static void print_text_result(const sl_result *r, const sl_result *exact, const sl_vocabulary *vocabulary, double chars,
                              bool as_json) {
    const sl_result *const results[] = {r, exact ? exact : r};
    double loss[2], bits[2];
    for (int k = 0; k < 2; k++) {
        const double sum = results[k]->loss_sum;
        loss[k] = sum / results[k]->count;
        /* At word level every character of the text shares the words' bits; elsewhere a token is a character. */
        bits[k] = sl_vocabulary_level(vocabulary) == SL_LEVEL_WORD ? sum / log(2) / chars : loss[k] / log(2);
    }
    const figure figures[] = {{"loss", "loss           ", "%.6f", "%+.6f", loss[0], loss[1], " nats per token"},
                              {"perplexity", "perplexity     ", "%.4f", "%+.4f", exp(loss[0]), exp(loss[1]), ""},
                              {"bits_per_char", "bits per char  ", "%.6f", "%+.6f", bits[0], bits[1], ""}};
    if (as_json) {
        print_json(figures, 3, exact, "tokens", r->count);
    } else {
        print_figures(figures, 3, exact);
        printf("tokens         %.0f\n", r->count);
    }
}

/* What 8 bits cost is said beside the result: the same again in f32. */
static sl_plan_options options_in_f32(const sl_plan_options *options) {
    sl_plan_options exact = *options;
    exact.dtype = SL_F32;
    return exact;
}

static int eval_text(const arguments *a, const sl_file *file, const sl_plan_options *options, bool as_json) {
    int code;
    char *text = NULL;
    size_t bytes = 0, count = 0;
    int32_t *tokens = NULL;
    sl_result result, exact;
    const sl_plan_options in_f32 = options_in_f32(options);
    const bool compared = options->dtype == SL_I8;
    sl_vocabulary *vocabulary = file_vocabulary(file, a->positional[0], &code);
    if (!code) code = read_texts(a->positional + 1, a->positionals - 1, &text, &bytes);
    if (!code) code = encode_texts(vocabulary, a->positional + 1, a->positionals - 1, text, bytes, &tokens, &count);
    if (!code) code = report(sl_evaluate_tokens(NULL, file, tokens, count, options, &result));
    if (!code && compared) code = report(sl_evaluate_tokens(NULL, file, tokens, count, &in_f32, &exact));
    if (!code) print_text_result(&result, compared ? &exact : NULL, vocabulary, characters(text, bytes), as_json);
    if (tokens) sl_tokens_free(vocabulary, tokens, count);
    sl_text_free(text);
    sl_vocabulary_free(vocabulary);
    return code;
}

static void print_array_result(const sl_result *r, const sl_result *exact, bool accuracy, bool as_json) {
    const sl_result *const results[] = {r, exact ? exact : r};
    double loss[2], correct[2];
    for (int k = 0; k < 2; k++) {
        loss[k] = results[k]->count > 0 ? results[k]->loss_sum / results[k]->count : results[k]->loss;
        correct[k] = results[k]->correct / results[k]->count;
    }
    const figure figures[] = {{"loss", "loss      ", "%.6g", "%+.3g", loss[0], loss[1], ""},
                              {"accuracy", "accuracy  ", "%.6f", "%+.6f", correct[0], correct[1], ""}};
    if (as_json) {
        print_json(figures, accuracy ? 2 : 1, exact, "count", r->count);
    } else {
        print_figures(figures, accuracy ? 2 : 1, exact);
        printf("count     %.0f\n", r->count);
    }
}

static sl_loss loss_of(const sl_file *file, const sl_plan_options *options) {
    sl_training training;
    if (options->loss != SL_LOSS_NONE || !file_training(file, &training)) return options->loss;
    return training.loss;
}

static int eval_arrays(const eval_options *o, const sl_file *file, const sl_plan_options *options, bool as_json) {
    sl_array arrays[3] = {0};
    const char *const paths[3] = {o->x, o->y, o->lengths};
    const sl_plan_options in_f32 = options_in_f32(options);
    const bool compared = options->dtype == SL_I8;
    sl_result result, exact;
    int code = 0;
    for (int i = 0; i < 3 && !code; i++)
        if (paths[i]) code = report(sl_npy_read(NULL, paths[i], &arrays[i]));
    sl_dataset data = {.x = &arrays[0], .y = &arrays[1], .lengths = o->lengths ? &arrays[2] : NULL};
    if (!code) code = report(sl_evaluate_arrays(file, &data, options, &result));
    if (!code && compared) code = report(sl_evaluate_arrays(file, &data, &in_f32, &exact));
    if (!code)
        print_array_result(&result, compared ? &exact : NULL, result.count > 0 && loss_of(file, options) != SL_LOSS_MSE,
                           as_json);
    for (int i = 0; i < 3; i++)
        if (arrays[i].data) sl_array_free(&arrays[i]);
    return code;
}

static int run(const command *command, int count, char **words) {
    static const sl_loss losses[] = {SL_LOSS_SOFTMAX, SL_LOSS_BINARY, SL_LOSS_MSE};
    eval_options o = {0};
    where_options where = {0};
    script_options script = {0};
    arguments a = {.values = {&o, &where, &script}};
    int code = arguments_parse(&a, command, count, words);
    if (code != PARSE_GO_ON) return code;
    bool arrays = o.x || o.y;
    if (arrays && (!o.x || !o.y)) return usage_error(command, "--x and --y go together");
    if (arrays && a.positionals > 1)
        return usage_error(command, "give text files or --x and --y, not both ('%s')", a.positional[1]);
    if (!arrays && a.positionals < 2) return usage_error(command, "eval needs a text file, or --x and --y");
    const char *given = arrays ? NULL : arguments_first_other(&a, 0, NULL);
    if (given) return usage_error(command, "--%s goes with arrays, not with text", given);
    sl_plan_options options = {.batch = o.batch};
    if (arguments_given(&a, "loss")) options.loss = losses[o.loss];
    if (o.lengths) options.masking = SL_MASK_LENGTHS;
    where_apply(&where, &a, &options);
    sl_file *file;
    code = open_model_file(a.positional[0], &file);
    if (code) return code;
    code = arrays ? eval_arrays(&o, file, &options, script.json) : eval_text(&a, file, &options, script.json);
    sl_file_close(file);
    return code;
}

const command command_eval = {
    .name = "eval",
    .summary = "measure a model on text or on arrays",
    .synopsis = "sluice eval MODEL TEXT... [--json]\n"
                "       sluice eval MODEL --x X.npy --y Y.npy [--lengths L.npy] [--loss NAME] [--json]",
    .text =
        "A language model: loss in nats per token, perplexity, bits per character and the number of tokens, over one\n"
        "stream with the state carried: every token of the text but the first is predicted. - is standard input.\n"
        "Arrays: the loss, and the accuracy where it applies.\n"
        "With --dtype i8 weights are rounded to 8 bits, and the same figures in f32 and the difference stand beside.",
    .groups = {&eval_group, &where_group, &script_group},
    .examples = "  sluice eval book.safetensors test.txt --json\n"
                "  sluice eval classes.safetensors --x x.npy --y y.npy\n",
    .least = 1,
    .most = -1,
    .missing = "eval needs a model file, and a text or --x and --y",
    .run = run};
