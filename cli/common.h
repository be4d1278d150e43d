/* What the commands share: the list of commands, and the options that say where and how to compute. */
#ifndef CLI_COMMON_H
#define CLI_COMMON_H

#include "options.h"
#include "output.h"
#include "sluice.h"

extern const command command_train, command_predict, command_eval, command_generate, command_plan, command_check,
    command_bench, command_info, command_devices, command_convert;

/* --device --threads --dtype --require --memory-limit --recompute-gates --no-graph --tune */
typedef struct where_options {
    const char *device;
    int threads;
    int dtype; /* index of the choice: see where_dtype */
    const char *require;
    size_t memory_limit;
    int recompute_gates;
    int no_graph;
    int tune; /* as sl_tune */
} where_options;
extern const option_group where_group;
sl_dtype where_dtype(const where_options *where, const arguments *arguments);
/* "bf16"; NULL where --dtype is not given. */
const char *where_dtype_name(const where_options *where, const arguments *arguments);
/* Puts what was given into the plan options; leaves the rest. */
void where_apply(const where_options *where, const arguments *arguments, sl_plan_options *options);

/* --json alone. */
typedef struct script_options {
    int json;
} script_options;
extern const option_group script_group;

/* Opens a model file to be used: one whose vocabulary is not that of the model's input is refused. Gives an exit code. */
int open_model_file(const char *path, sl_file **file);
/* The vocabulary of a language model file. SL_ERR_INPUT, with a sentence on stderr, where the file holds none; *code is the
 * exit code then and NULL is returned. */
sl_vocabulary *file_vocabulary(const sl_file *file, const char *path, int *code);

/* The training options that a model file remembers; false where it holds none. */
bool file_training(const sl_file *file, sl_training *training);
/* A whole number of a file's training state, whose members are written as "key": value; 0 where there is none. */
int64_t training_number(const char *state, const char *key);

/* What to call the texts in a sentence: the path where there is one, else "the texts". */
const char *name_texts(char **paths, int count);
/* Whole files, one after the other; "-" is standard input. Gives an exit code; free *text with sl_text_free. */
int read_texts(char **paths, int count, char **text, size_t *bytes);
/* What is done with whole texts, into what `context` has; again with each of several alone, whose results are freed by `forget`. */
typedef sl_status text_use(void *context, const char *text, size_t bytes);
/* `use` of texts as read_texts gives them. Gives an exit code; of several texts the sentence names the one that is wrong, and the place in it. */
int use_texts(char **paths, int count, const char *text, size_t bytes, text_use *use, void (*forget)(void *context),
              void *context);
/* sl_vocabulary_encode. */
int encode_texts(const sl_vocabulary *vocabulary, char **paths, int count, const char *text, size_t bytes,
                 int32_t **tokens, size_t *token_count);
/* False: from its first letter on the text is something else than a description, of which a parser would say little. */
bool begins_as_json(const char *text);

#endif
