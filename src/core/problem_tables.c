/* The tables behind problem strings. A new option is one line here, one member of sli_problem, and the kernels that know it. */
#include "core/problem_tables.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *sli_choice_name(const sli_choice *choices, int value) {
    for (; choices->name; choices++)
        if (choices->value == value) return choices->name;
    return NULL;
}

const sli_choice *sli_choice_find(const sli_choice *choices, const char *name, size_t count) {
    for (; choices->name; choices++)
        if (strlen(choices->name) == count && strncmp(choices->name, name, count) == 0) return choices;
    return NULL;
}

bool sli_number_parse(const char *text, size_t count, double *value) {
    char copy[48], *end = NULL;
    const struct lconv *locale = localeconv();
    if (count == 0 || count >= sizeof copy || text[0] == '.' || text[0] == '+') return false;
    for (size_t k = 0; k < count; k++) {
        if (!strchr("0123456789.eE+-", text[k]) || !text[k]) return false;
        copy[k] = text[k] == '.' ? locale->decimal_point[0] : text[k];
    }
    copy[count] = 0;
    *value = strtod(copy, &end);
    return *end == 0 && isfinite(*value);
}

/* --------------------------------------------------------------------------------------------------- enumerations -- */

const sli_choice sli_dtype_choices[] = {{"f32", SL_F32}, {"f32x3", SL_F32X3}, {"tf32", SL_TF32}, {"bf16", SL_BF16},
                                        {"f16", SL_F16}, {"i8", SL_I8},       {"f64", SL_F64},   {NULL, 0}};
const sli_choice sli_activation_choices[] = {{"linear", SL_ACT_LINEAR},
                                             {"tanh", SL_ACT_TANH},
                                             {"sigmoid", SL_ACT_SIGMOID},
                                             {"relu", SL_ACT_RELU},
                                             {"hard_sigmoid", SL_ACT_HARD_SIGMOID},
                                             {"hard_sigmoid_k2", SL_ACT_HARD_SIGMOID_K2},
                                             {"softsign", SL_ACT_SOFTSIGN},
                                             {NULL, 0}};
static const sli_choice bias_choices[] = {
    {"none", SL_BIAS_NONE}, {"single", SL_BIAS_SINGLE}, {"double", SL_BIAS_DOUBLE}, {NULL, 0}};
static const sli_choice reset_choices[] = {{"before", 1}, {"after", 0}, {NULL, 0}};
static const sli_choice masked_choices[] = {{"repeat", 1}, {"zero", 0}, {NULL, 0}};
static const sli_choice mask_choices[] = {
    {"left", SLI_MASK_LEFT}, {"right", SLI_MASK_RIGHT}, {"holes", SLI_MASK_HOLES}, {NULL, 0}};
static const sli_choice direction_choices[] = {
    {"concat", SL_BI_CONCAT}, {"sum", SL_BI_SUM}, {"mul", SL_BI_MUL}, {"ave", SL_BI_AVE}, {NULL, 0}};
static const sli_choice mode_choices[] = {{"add", SL_MERGE_ADD},
                                          {"concat", SL_MERGE_CONCAT},
                                          {"mul", SL_MERGE_MULTIPLY},
                                          {"ave", SL_MERGE_AVERAGE},
                                          {NULL, 0}};
static const sli_choice reduce_choices[] = {{"mean", SL_REDUCE_MEAN}, {"time", SL_REDUCE_SUM_TIME}, {NULL, 0}};
const sli_choice sli_optimizer_choices[] = {
    {"sgd", SL_SGD}, {"adam", SL_ADAM}, {"adamw", SL_ADAMW}, {"rmsprop", SL_RMSPROP}, {NULL, 0}};

/* --------------------------------------------------------------------------------------------------------- fields -- */

#define BIT(op) SLI_OP_BIT(SLI_OP_##op)
enum {
    RECURRENT = BIT(LSTM) | BIT(GRU) | BIT(RNN),
    GATED = BIT(LSTM) | BIT(GRU),
    LOSS = BIT(XENT) | BIT(BCE) | BIT(MSE),
    INPUTS = RECURRENT | BIT(DENSE) | BIT(EMBED) | BIT(ONEHOT),
    FLAT = BIT(NORM) | BIT(OPTIM),
    EVERY = BIT(COUNT) - 1,
    ROWS = EVERY & ~FLAT
};
#define AT(member) offsetof(sli_problem, member)

const sli_problem_field sli_problem_fields[] = {
    {"l", SLI_PROBLEM_INT, AT(layers), RECURRENT, 0, 1, false, "the number of layers"},
    {"b", SLI_PROBLEM_INT, AT(batch), ROWS, ROWS, 0, false, "the batch"},
    {"t", SLI_PROBLEM_INT, AT(steps), ROWS, RECURRENT | BIT(FLIP), 0, false, "the number of steps"},
    {"i", SLI_PROBLEM_INT, AT(inputs), INPUTS, INPUTS, 0, false, "the number of inputs"},
    {"h", SLI_PROBLEM_INT, AT(units), ROWS & ~BIT(ONEHOT), ROWS & ~BIT(ONEHOT), 0, false, "the number of units"},
    {"p", SLI_PROBLEM_INT, AT(projection), BIT(LSTM), 0, 0, false, "the number of projected units"},
    {"n", SLI_PROBLEM_INT64, AT(elements), FLAT, FLAT, 0, false, "the number of elements"},
    {"bi", SLI_PROBLEM_FLAG, AT(bidirectional), RECURRENT, 0, 0, false, "bidirectional"},
    {"dtype", SLI_PROBLEM_FLAG, AT(dtype), EVERY, 0, 0, true, "the dtype"},
    {"train", SLI_PROBLEM_FLAG, AT(train), EVERY, 0, 0, false, "training"},
    {NULL, SLI_PROBLEM_FLAG, 0, 0, 0, 0, false, NULL}};

/* -------------------------------------------------------------------------------------------------------- options -- */

#define FLAG(name, ops, owners, member) \
    { name, ops, owners, SLI_OPTION_FLAG, AT(member), 0, NULL, 0, 0, 0, 0, NULL, 0 }
#define CHOICE(name, ops, owners, type, member, value, choices) \
    { name, ops, owners, type, AT(member), value, choices, 0, 0, 0, 0, NULL, 0 }
#define RATE(name, ops, owners, member, kinds, usual) \
    { name, ops, owners, SLI_OPTION_NUMBER, AT(member), kinds, NULL, 0, 1, false, true, below_one, usual }
#define POSITIVE(name, ops, owners, type, member, value, usual) \
    { name, ops, owners, type, AT(member), value, NULL, 0, DBL_MAX, true, false, "must be a number above 0", usual }
#define ALL_CELLS "a recurrent problem (lstm gru rnn)"
#define ALL_LOSSES "a recurrent problem or a loss (xent bce mse)"

static const char below_one[] = "must be a number of at least 0 and below 1";
enum { ADAMS = SLI_KIND_BIT(SL_ADAM) | SLI_KIND_BIT(SL_ADAMW) };

const sli_option sli_options[] = {
    CHOICE("act", RECURRENT | BIT(DENSE), "a recurrent or dense problem", SLI_OPTION_ACTIVATION, act, 0,
           sli_activation_choices),
    RATE("beta1", BIT(OPTIM), "optim", optimizer.beta1, ADAMS, 0.9),
    RATE("beta2", BIT(OPTIM), "optim", optimizer.beta2, ADAMS, 0.999),
    CHOICE("bias", RECURRENT, ALL_CELLS, SLI_OPTION_BIAS, bias, 0, bias_choices),
    POSITIVE("clip", BIT(LSTM), "lstm", SLI_OPTION_NUMBER, cell_clip, 0, 0),
    POSITIVE("clipnorm", FLAT, "norm or optim", SLI_OPTION_CLIP, clip, SL_CLIP_NORM, 0),
    POSITIVE("clipvalue", BIT(NORM), "norm", SLI_OPTION_CLIP, clip, SL_CLIP_VALUE, 0),
    POSITIVE("decay", BIT(OPTIM), "optim", SLI_OPTION_NUMBER, optimizer.weight_decay, 0, 0),
    RATE("drop", RECURRENT | BIT(DROPOUT), "a recurrent or dropout problem", dropout, 0, 0),
    POSITIVE("epsilon", BIT(OPTIM), "optim", SLI_OPTION_NUMBER, optimizer.epsilon, ADAMS | SLI_KIND_BIT(SL_RMSPROP),
             1e-8),
    {"forget", BIT(LSTM), "lstm", SLI_OPTION_FORGET, AT(forget_bias), 0, NULL, -DBL_MAX, DBL_MAX, false, false,
     "must be a number", 0},
    POSITIVE("globalnorm", FLAT, "norm or optim", SLI_OPTION_CLIP, clip, SL_CLIP_GLOBAL_NORM, 0),
    CHOICE("lengths", RECURRENT | LOSS, ALL_LOSSES, SLI_OPTION_FLAG_VALUE, mask, SLI_MASK_LENGTHS, NULL),
    CHOICE("mask", RECURRENT | LOSS, ALL_LOSSES, SLI_OPTION_CHOICE, mask, 0, mask_choices),
    CHOICE("maskout", RECURRENT, ALL_CELLS, SLI_OPTION_CHOICE_BOOL, masked_repeat, 0, masked_choices),
    CHOICE("merge", RECURRENT, ALL_CELLS, SLI_OPTION_CHOICE, direction_merge, SL_BI_CONCAT, direction_choices),
    CHOICE("mode", BIT(MERGE), "merge", SLI_OPTION_CHOICE, merge, 0, mode_choices),
    RATE("momentum", BIT(OPTIM), "optim", optimizer.momentum, SLI_KIND_BIT(SL_SGD), 0),
    FLAG("narrow", RECURRENT | BIT(DENSE) | BIT(EMBED), "a problem with parameters (lstm gru rnn dense embed)", narrow),
    FLAG("narrow_io", RECURRENT | BIT(DENSE) | BIT(EMBED) | BIT(ONEHOT) | BIT(DROPOUT) | BIT(FLIP) | BIT(MERGE),
         "a layer (lstm gru rnn dense embed onehot dropout flip merge)", narrow_io),
    CHOICE("nesterov", BIT(OPTIM), "optim", SLI_OPTION_FLAG_INT, optimizer.nesterov, SLI_KIND_BIT(SL_SGD), NULL),
    FLAG("nobias", BIT(DENSE), "dense", no_bias),
    CHOICE("opt", BIT(OPTIM), "optim", SLI_OPTION_CHOICE, optimizer.kind, 0, sli_optimizer_choices),
    {"parts", BIT(MERGE), "merge", SLI_OPTION_PARTS, AT(parts), 0, NULL, 0, 0, 0, 0, "must be 2, 3 or 4", 0},
    FLAG("peephole", BIT(LSTM), "lstm", peephole),
    CHOICE("ract", GATED, "lstm or gru", SLI_OPTION_ACTIVATION, recurrent_act, 1, sli_activation_choices),
    RATE("rdrop", RECURRENT, ALL_CELLS, recurrent_dropout, 0, 0),
    FLAG("recompute", RECURRENT, ALL_CELLS, recompute),
    CHOICE("reduce", LOSS, "a loss (xent bce mse)", SLI_OPTION_CHOICE, reduction, 0, reduce_choices),
    CHOICE("reset", BIT(GRU), "gru", SLI_OPTION_CHOICE_BOOL, reset_before, 0, reset_choices),
    FLAG("reverse", RECURRENT, ALL_CELLS, reverse),
    RATE("rho", BIT(OPTIM), "optim", optimizer.rho, SLI_KIND_BIT(SL_RMSPROP), 0.9),
    {"widths", BIT(MERGE), "merge", SLI_OPTION_WIDTHS, AT(parts_units), 0, NULL, 0, 0, 0, 0,
     "must be two to four whole numbers from 1, as in +widths=2:3", 0},
    RATE("zoneout_c", BIT(LSTM), "lstm", zoneout_c, 0, 0),
    RATE("zoneout_h", RECURRENT, ALL_CELLS, zoneout_h, 0, 0),
    {NULL, 0, NULL, SLI_OPTION_FLAG, 0, 0, NULL, 0, 0, 0, 0, NULL, 0}};
