/* The options of `sluice train`, and how they become a model and its training options. */
#ifndef CLI_TRAIN_OPTIONS_H
#define CLI_TRAIN_OPTIONS_H

#include <stdint.h>
#include "common.h"

typedef struct text_options { /* group 0 */
    int level, vocab_size;
    const char *valid;
    double valid_split;
    int split;
} text_options;

typedef struct model_options { /* group 1: only for `train lm` without --preset, but for the preset itself */
    const char *preset;
    int cell, layers, units, embed, tie;
    double dropout;
} model_options;

typedef struct array_options { /* group 2 */
    const char *x, *y, *lengths, *valid_x, *valid_y, *valid_lengths;
    int loss;
} array_options;

typedef struct fit_options { /* group 3 */
    int batch, steps, epochs, optimizer;
    double lr, momentum;
    int nesterov;
    double weight_decay;
    const char *schedule;
    double clip_norm, clip_value, clip_tensor;
    int reduction;
    double init_scale;
    int accumulate, patience, no_shuffle;
    double min_delta;
    uint64_t seed;
    double max_minutes;
    const char *log;
    int profile;
    int resume, overwrite;
    const char *init_from;
    int print_model;
    const char *out;
} fit_options;

enum { GROUP_TEXT, GROUP_MODEL, GROUP_ARRAY, GROUP_FIT, GROUP_WHERE };

typedef struct train_options {
    text_options text;
    model_options model;
    array_options array;
    fit_options fit;
    where_options where;
} train_options;

extern const option_group text_group, model_group, array_group, fit_group;

/* Parses into *options; gives PARSE_GO_ON or an exit code. */
int train_options_parse(train_options *options, arguments *a, const command *command, int count, char **words);
/* What the training options are where neither a document nor a preset says so. */
void train_defaults(const train_options *options, const arguments *a, const char *task, sl_training *training);
/* Puts the given options into *training; gives PARSE_GO_ON or an exit code. */
int train_apply(const train_options *options, const arguments *a, sl_training *training);
/* The language model that the model options describe, for a vocabulary of `size` tokens. Gives an exit code. */
int train_describe(const train_options *options, const arguments *a, int size, sl_model **model);

#endif
