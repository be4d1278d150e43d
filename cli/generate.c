/* sluice generate: samples from a language model, streamed to standard output. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common.h"

typedef struct generate_options {
    const char *prime;
    int length;
    double temperature;
    int top_k;
    double top_p;
    uint64_t seed;
} generate_options;

static const option generate_table[] = {
    {OPTION_TEXT, "prime", offsetof(generate_options, prime), "TEXT", 0, 0,
     "the text to go on from; it is printed first, at word level as the model's words (default: as after a line end)"},
    {OPTION_INT, "length", offsetof(generate_options, length), "N", 0, 0, "tokens to write (default 200)"},
    {OPTION_REAL, "temperature", offsetof(generate_options, temperature), "T", 0, 100,
     "below 1 bolder, above 1 wilder, 0 always the likeliest token (default 1)"},
    {OPTION_INT, "top-k", offsetof(generate_options, top_k), "K", 0, 0,
     "draw from the K likeliest only (default: all)"},
    {OPTION_REAL, "top-p", offsetof(generate_options, top_p), "P", 0, 1,
     "draw from the likeliest that make up probability P; 0: from all (default: all)"},
    {OPTION_SEED, "seed", offsetof(generate_options, seed), "N", 0, 0, "same seed, same text (default 1)"},
    {0}};
static const option_group generate_group = {"sampling", generate_table};

/* Writes tokens as text: at word level with blanks between words, none around line ends. */
typedef struct writer {
    const sl_vocabulary *vocabulary;
    bool inside_line; /* word level: a word was written on this line */
    bool flush;
} writer;

static void write_token(writer *w, int32_t token) {
    size_t bytes;
    const char *text = sl_vocabulary_token(w->vocabulary, token, &bytes);
    if (!text) return;
    if (sl_vocabulary_level(w->vocabulary) == SL_LEVEL_WORD) {
        bool line_end = bytes == 1 && text[0] == '\n';
        if (w->inside_line && !line_end) putchar(' ');
        w->inside_line = !line_end;
    }
    fwrite(text, 1, bytes, stdout);
    if (w->flush) flush_output();
}

/* Feeds the prime, or a line end where there is none and the vocabulary knows it. */
static int feed_prime(sl_generator *generator, const char *prime, writer *w) {
    int32_t *tokens = NULL;
    size_t count = 0;
    const char *text = prime ? prime : "\n";
    sl_status status = sl_vocabulary_encode(w->vocabulary, text, strlen(text), &tokens, &count);
    if (status != SL_OK) return prime ? report_at("--prime", status) : 0;
    for (size_t i = 0; i < count && status == SL_OK; i++) {
        status = sl_generator_feed(generator, tokens[i]);
        if (prime) write_token(w, tokens[i]);
    }
    sl_tokens_free(w->vocabulary, tokens, count);
    return report(status);
}

static int generate(const generate_options *o, sl_generator *generator, const sl_vocabulary *vocabulary) {
    writer w = {.vocabulary = vocabulary, .flush = isatty(STDOUT_FILENO)};
    int code = feed_prime(generator, o->prime, &w);
    for (int i = 0; i < o->length && !code && !output_failed(); i++) {
        int32_t token;
        code = report(sl_generator_next(generator, &token));
        if (!code) write_token(&w, token);
    }
    if (!code) putchar('\n');
    return code;
}

static int run(const command *command, int count, char **words) {
    generate_options o = {.length = 200, .temperature = 1, .seed = 1};
    where_options where = {0};
    arguments a = {.values = {&o, &where}};
    int code = arguments_parse(&a, command, count, words);
    if (code != PARSE_GO_ON) return code;
    sl_plan_options options = {0};
    where_apply(&where, &a, &options);
    sl_sampling sampling = {.temperature = o.temperature, .top_k = o.top_k, .top_p = o.top_p, .seed = o.seed};
    sl_file *file;
    code = open_model_file(a.positional[0], &file);
    if (code) return code;
    sl_generator *generator = NULL;
    sl_vocabulary *vocabulary = file_vocabulary(file, a.positional[0], &code);
    if (!code) code = report(sl_generator_new(file, &options, &sampling, &generator));
    if (!code) code = generate(&o, generator, vocabulary);
    sl_generator_free(generator);
    sl_vocabulary_free(vocabulary);
    sl_file_close(file);
    return code;
}

const command command_generate = {
    .name = "generate",
    .summary = "write text with a language model",
    .synopsis = "sluice generate MODEL [--prime S] [--length N] [--temperature T] [--top-k K] [--top-p P] [--seed N]",
    .text =
        "Samples from a language model and streams the text to standard output. The model file holds the vocabulary;\n"
        "nothing else is needed.",
    .groups = {&generate_group, &where_group},
    .examples = "  sluice generate book.safetensors --prime 'It was ' --length 400 --temperature 0.8\n",
    .least = 1,
    .most = 1,
    .missing = "generate needs a model file",
    .run = run};
