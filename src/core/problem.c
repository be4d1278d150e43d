/* Problem strings: two tables (fields, options) say what exists, for which op, and in which order it is printed; the
 * parser and the printer only walk them. See problem.h for the grammar. */
#include "core/problem.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/problem_tables.h"

/* ---------------------------------------------------------------------------------------------------- small facts -- */

bool sli_op_is_recurrent(sli_op op) {
    return op == SLI_OP_LSTM || op == SLI_OP_GRU || op == SLI_OP_RNN;
}

bool sli_op_multiplies(sli_op op) {
    return sli_op_is_recurrent(op) || op == SLI_OP_DENSE;
}

const char *sli_op_name(sli_op op) {
    static const char *const names[SLI_OP_COUNT] = {"lstm",  "gru",  "rnn",  "dense", "embed", "onehot", "dropout",
                                                    "merge", "flip", "xent", "bce",   "mse",   "norm",   "optim"};
    return (unsigned)op < SLI_OP_COUNT ? names[op] : "?";
}

size_t sli_dtype_bytes(sl_dtype dtype) {
    return dtype == SL_F64 ? sizeof(double) : sizeof(float);
}

const char *sli_dtype_name(sl_dtype dtype) {
    const char *name = sli_choice_name(sli_dtype_choices, dtype);
    return name ? name : "default";
}

const char *sli_activation_name(sl_activation act) {
    const char *name = sli_choice_name(sli_activation_choices, act);
    return name ? name : "default";
}

bool sli_activation_parse(const char *name, sl_activation *act) {
    const sli_choice *choice = sli_choice_find(sli_activation_choices, name, strlen(name));
    if (choice) *act = (sl_activation)choice->value;
    return choice != NULL;
}

/* ------------------------------------------------------------------------------------------------------- defaults -- */

static sl_activation default_activation(sli_op op) {
    return sli_op_is_recurrent(op) ? SL_ACT_TANH : SL_ACT_LINEAR;
}

static sl_bias default_bias(const sli_problem *p) {
    return p->op == SLI_OP_GRU && !p->reset_before ? SL_BIAS_DOUBLE : SL_BIAS_SINGLE;
}

/* What a part of a merge has where no widths are given: everything, or its share of a concatenation. */
static int default_width(const sli_problem *p) {
    return p->merge == SL_MERGE_CONCAT ? p->units / p->parts : p->units;
}

static bool has_default_widths(const sli_problem *p) {
    int shared = 0;
    for (int k = 0; k < p->parts && k < 4; k++)
        shared += p->parts_units[k] == default_width(p) || p->parts_units[k] == 0;
    return p->parts == 0 || shared == p->parts;
}

/* Options of an optimizer belong to some kinds of it: the planner fills the others in as well. */
static bool belongs_to_optimizer(const sli_option *row, const sli_problem *p) {
    bool limited = row->type == SLI_OPTION_NUMBER || row->type == SLI_OPTION_FLAG_INT;
    return !limited || row->value == 0 || (row->value & SLI_KIND_BIT(p->optimizer.kind)) != 0;
}

/* What 0 stands for in a number. */
static double usual_number(const sli_option *row, const sli_problem *p) {
    bool adamw_decay = row->offset == offsetof(sli_problem, optimizer.weight_decay) && p->optimizer.kind == SL_ADAMW;
    return adamw_decay ? 0.01 : row->usual;
}

/* True if option `row` has the value that it would have when left out. */
static bool option_is_default(const sli_option *row, const sli_problem *p) {
    const char *at = (const char *)p + row->offset;
    if (!belongs_to_optimizer(row, p)) return true;
    switch (row->type) {
    case SLI_OPTION_FLAG:
        return !*(const bool *)at;
    case SLI_OPTION_FLAG_INT:
        return !*(const int *)at;
    case SLI_OPTION_FLAG_VALUE:
        return *(const unsigned *)at != (unsigned)row->value;
    case SLI_OPTION_NUMBER:
        return *(const double *)at == 0.0 || *(const double *)at == usual_number(row, p);
    case SLI_OPTION_FORGET:
        return !p->forget_at_run;
    case SLI_OPTION_CLIP:
        return p->clip.kind != (sl_clip_kind)row->value;
    case SLI_OPTION_CHOICE:
        return *(const unsigned *)at == 0 || *(const unsigned *)at == (unsigned)row->value ||
               !sli_choice_name(row->choices, (int)*(const unsigned *)at);
    case SLI_OPTION_CHOICE_BOOL:
        return !*(const bool *)at;
    case SLI_OPTION_ACTIVATION: {
        sl_activation usual = row->value ? SL_ACT_SIGMOID : default_activation(p->op);
        return *(const unsigned *)at == SL_ACT_DEFAULT || *(const unsigned *)at == (unsigned)usual;
    }
    case SLI_OPTION_BIAS:
        return p->bias == SL_BIAS_DEFAULT || p->bias == default_bias(p);
    case SLI_OPTION_PARTS:
        return p->parts == 0 || p->parts == 2;
    case SLI_OPTION_WIDTHS:
        return has_default_widths(p);
    }
    return true;
}

/* ------------------------------------------------------------------------------------------------------- printing -- */

typedef struct writer {
    char *text;
    size_t capacity, length; /* length counts what does not fit too */
} writer;

static void put(writer *out, const char *text) {
    for (; *text; text++, out->length++)
        if (out->length + 1 < out->capacity) out->text[out->length] = *text;
}

static void put_integer(writer *out, int64_t value) {
    char digits[24];
    snprintf(digits, sizeof digits, "%lld", (long long)value);
    put(out, digits);
}

/* The shortest text that reads back as the same double. No '+' (it starts the next option) and a point in any locale. */
static void put_number(writer *out, double value) {
    char digits[40], clean[40];
    double back = 0;
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        size_t used = 0;
        for (const char *c = digits; *c; c++) {
            if (*c == '+') continue;
            clean[used++] = (*c >= '0' && *c <= '9') || *c == 'e' || *c == '-' ? *c : '.';
        }
        clean[used] = 0;
        if (sli_number_parse(clean, used, &back) && back == value) break;
    }
    put(out, clean);
}

static void put_option(writer *out, const sli_option *row, const sli_problem *p) {
    const char *at = (const char *)p + row->offset;
    put(out, "+");
    put(out, row->name);
    switch (row->type) {
    case SLI_OPTION_FLAG:
    case SLI_OPTION_FLAG_INT:
    case SLI_OPTION_FLAG_VALUE:
        return;
    case SLI_OPTION_NUMBER:
        put(out, "="), put_number(out, *(const double *)at);
        return;
    case SLI_OPTION_FORGET:
        put(out, "="), put_number(out, p->forget_bias);
        return;
    case SLI_OPTION_CLIP:
        put(out, "="), put_number(out, p->clip.value);
        return;
    case SLI_OPTION_CHOICE:
    case SLI_OPTION_ACTIVATION:
    case SLI_OPTION_BIAS:
        put(out, "="), put(out, sli_choice_name(row->choices, (int)*(const unsigned *)at));
        return;
    case SLI_OPTION_CHOICE_BOOL:
        put(out, "="), put(out, row->choices[0].name);
        return;
    case SLI_OPTION_PARTS:
        put(out, "="), put_integer(out, p->parts);
        return;
    case SLI_OPTION_WIDTHS:
        for (int k = 0; k < p->parts && k < 4; k++) put(out, k ? ":" : "="), put_integer(out, p->parts_units[k]);
        return;
    }
}

static int64_t field_value(const sli_problem_field *row, const sli_problem *p) {
    const char *at = (const char *)p + row->offset;
    switch (row->type) {
    case SLI_PROBLEM_INT:
        return *(const int *)at;
    case SLI_PROBLEM_INT64:
        return *(const int64_t *)at;
    case SLI_PROBLEM_FLAG:
        return *(const bool *)at;
    }
    return 0;
}

int sli_problem_print(const sli_problem *problem, char *text, size_t capacity) {
    writer out = {text, capacity, 0};
    const char *separator = ":";
    put(&out, sli_op_name(problem->op));
    for (const sli_problem_field *row = sli_problem_fields; row->name; row++) {
        if (row->is_dtype) {
            if (problem->dtype == SL_F32 || problem->dtype == SL_DTYPE_DEFAULT) continue;
            put(&out, separator), put(&out, sli_dtype_name(problem->dtype));
        } else {
            int64_t value = field_value(row, problem);
            if (!(row->ops & SLI_OP_BIT(problem->op)) || value == row->when_absent || value <= 0) continue;
            put(&out, separator), put(&out, row->name);
            if (row->type != SLI_PROBLEM_FLAG) put_integer(&out, value);
        }
        separator = "_";
    }
    for (const sli_option *row = sli_options; row->name; row++)
        if ((row->ops & SLI_OP_BIT(problem->op)) && !option_is_default(row, problem)) put_option(&out, row, problem);
    if (capacity > 0) text[out.length < capacity ? out.length : capacity - 1] = 0;
    return (int)out.length;
}

/* ---------------------------------------------------------------------------------------------------------- parts -- */

sli_problem sli_problem_part(const sli_problem *wide, int layer, int direction) {
    sli_problem part = *wide;
    bool both = wide->bidirectional && wide->direction_merge == SL_BI_CONCAT;
    part.layers = 1;
    part.dropout = 0;
    if (layer > 0) part.inputs = sli_problem_output(wide) * (both ? 2 : 1);
    if (direction < 0 || !wide->bidirectional) return part;
    part.bidirectional = false;
    part.direction_merge = SL_UNIDIRECTIONAL;
    part.reverse = direction == 1;
    return part;
}

/* -------------------------------------------------------------------------------------------------------- parsing -- */

typedef struct parser {
    const char *text;
    sli_problem problem;
    int field_column[SLI_PROBLEM_FIELD_MAX]; /* 1-based, 0 = not given */
    int option_column[SLI_OPTION_MAX];
} parser;

/* "problem 'TEXT', column N: 'PART': SENTENCE". The sentence says what to do. */
static sl_status complain(const parser *in, sl_status status, int column, const char *part, size_t count,
                          const char *format, ...) SLI_PRINTF(6, 7);
static sl_status complain(const parser *in, sl_status status, int column, const char *part, size_t count,
                          const char *format, ...) {
    char sentence[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    return sli_fail(status, "problem '%.200s', column %d: '%.*s': %s", in->text, column, (int)(count < 80 ? count : 80),
                    part, sentence);
}

static const char *example_of(sli_op op) {
    return sli_op_is_recurrent(op) ? "b20_t35_i650_h650" : "b20_h650";
}

static sl_status parse_op(parser *in, const char **rest) {
    const char *colon = strchr(in->text, ':');
    size_t length = colon ? (size_t)(colon - in->text) : strlen(in->text);
    for (int op = 0; op < SLI_OP_COUNT; op++) {
        const char *name = sli_op_name((sli_op)op);
        if (strlen(name) != length || strncmp(name, in->text, length) != 0) continue;
        if (!colon)
            return complain(in, SL_ERR_INPUT, 1, in->text, length, "a ':' and fields must follow, as in %s:%s", name,
                            example_of((sli_op)op));
        in->problem.op = (sli_op)op;
        *rest = colon + 1;
        return SL_OK;
    }
    return complain(in, SL_ERR_UNKNOWN, 1, in->text, length,
                    "unknown operation, known are lstm gru rnn dense embed onehot dropout merge flip xent bce mse "
                    "norm optim");
}

/* Decimal digits only; false on anything else or above `largest`. */
static bool parse_integer(const char *text, size_t count, int64_t largest, int64_t *value) {
    int64_t result = 0;
    if (count == 0 || count > 18) return false;
    for (size_t k = 0; k < count; k++) {
        if (text[k] < '0' || text[k] > '9') return false;
        result = result * 10 + (text[k] - '0');
    }
    *value = result;
    return result <= largest;
}

static sl_status set_field(parser *in, const sli_problem_field *row, const char *part, size_t count) {
    int column = (int)(part - in->text) + 1;
    int index = (int)(row - sli_problem_fields);
    char *at = (char *)&in->problem + row->offset;
    int64_t value = 1, largest = row->type == SLI_PROBLEM_INT64 ? INT64_C(1) << 50 : INT32_MAX;
    if (!row->is_dtype && !(row->ops & SLI_OP_BIT(in->problem.op)))
        return complain(in, SL_ERR_INPUT, column, part, count, "%s has no field '%s' (%s)", sli_op_name(in->problem.op),
                        row->name, row->meaning);
    if (in->field_column[index])
        return complain(in, SL_ERR_INPUT, column, part, count, "%s was already given in column %d", row->meaning,
                        in->field_column[index]);
    size_t name = strlen(row->name);
    if (row->is_dtype)
        in->problem.dtype = (sl_dtype)sli_choice_find(sli_dtype_choices, part, count)->value;
    else if (row->type == SLI_PROBLEM_FLAG)
        *(bool *)at = true;
    else if (!parse_integer(part + name, count - name, largest, &value) || value < 1)
        return complain(in, SL_ERR_INPUT, column, part, count, "%s must be a whole number from 1 to %lld", row->meaning,
                        (long long)largest);
    else if (row->type == SLI_PROBLEM_INT64)
        *(int64_t *)at = value;
    else
        *(int *)at = (int)value;
    in->field_column[index] = column;
    return SL_OK;
}

/* "i8" is eight inputs, unless the inputs are given by another field or the op has none: then it is the dtype. */
static bool i8_is_dtype(const parser *in, const char *part) {
    const sli_problem_field *inputs = sli_problem_fields;
    while (strcmp(inputs->name, "i") != 0) inputs++;
    if (!(inputs->ops & SLI_OP_BIT(in->problem.op)) || in->field_column[inputs - sli_problem_fields]) return true;
    for (const char *next = part + 2; *next == '_'; next += strcspn(next, "_+"))
        if (*++next == 'i' && next[1] >= '0' && next[1] <= '9') return !(next[1] == '8' && strchr("_+", next[2]));
    return false;
}

static sl_status parse_field(parser *in, const char *part, size_t count) {
    const sli_problem_field *dtype = NULL, *row = sli_problem_fields;
    for (; row->name; row++) {
        size_t name = strlen(row->name);
        if (row->is_dtype) {
            dtype = row;
        } else if (row->type == SLI_PROBLEM_FLAG) {
            if (name == count && strncmp(row->name, part, count) == 0) return set_field(in, row, part, count);
        } else if (strncmp(row->name, part, name) == 0 && count > name && part[name] >= '0' && part[name] <= '9') {
            if (count == 2 && part[0] == 'i' && part[1] == '8' && i8_is_dtype(in, part)) continue;
            return set_field(in, row, part, count);
        }
    }
    if (sli_choice_find(sli_dtype_choices, part, count)) return set_field(in, dtype, part, count);
    int column = (int)(part - in->text) + 1;
    if (count == 0)
        return complain(in, SL_ERR_INPUT, column, part, count, "a field is missing here, as in %s:%s",
                        sli_op_name(in->problem.op), example_of(in->problem.op));
    return complain(in, SL_ERR_UNKNOWN, column, part, count,
                    "unknown field, known are lN bN tN iN hN pN nN bi train f32 f32x3 tf32 bf16 f16 i8 f64 (options "
                    "start with '+')");
}

/* "2:3:5" into the widths; *parts counts them. */
static bool parse_widths(sli_problem *p, const char *value, size_t count, int *parts) {
    *parts = 0;
    for (size_t used = 0; used <= count;) {
        size_t length = 0;
        int64_t width = 0;
        while (used + length < count && value[used + length] != ':') length++;
        if (*parts == 4 || !parse_integer(value + used, length, INT32_MAX, &width) || width < 1) return false;
        p->parts_units[(*parts)++] = (int)width;
        used += length + 1;
    }
    return true;
}

static sl_status set_number(parser *in, const sli_option *row, const char *part, size_t count, const char *value,
                            double *to) {
    double number = 0;
    bool readable = sli_number_parse(value, count - (size_t)(value - part), &number);
    if (!readable || number < row->minimum || number > row->maximum || (row->open && number == row->minimum) ||
        (row->open_above && number == row->maximum))
        return complain(in, SL_ERR_INPUT, (int)(part - in->text) + 1, part, count, "%s", row->range);
    *to = number == 0 ? 0 : number; /* no negative zero: it would not print */
    return SL_OK;
}

static sl_status set_choice(parser *in, const sli_option *row, const char *part, size_t count, const char *value) {
    size_t length = count - (size_t)(value - part);
    const sli_choice *choice = sli_choice_find(row->choices, value, length);
    char *at = (char *)&in->problem + row->offset;
    char known[160] = "";
    if (!choice) {
        for (const sli_choice *c = row->choices; c->name; c++)
            snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", c == row->choices ? "" : " ",
                     c->name);
        return complain(in, SL_ERR_UNKNOWN, (int)(part - in->text) + 1, part, count, "unknown value, known are %s",
                        known);
    }
    if (row->type == SLI_OPTION_CHOICE_BOOL)
        *(bool *)at = choice->value != 0;
    else
        *(unsigned *)at = (unsigned)choice->value;
    return SL_OK;
}

static sl_status set_option(parser *in, const sli_option *row, const char *part, size_t count, const char *value) {
    sli_problem *p = &in->problem;
    char *at = (char *)p + row->offset;
    int column = (int)(part - in->text) + 1, parts = 0;
    int64_t integer = 0;
    switch (row->type) {
    case SLI_OPTION_FLAG:
        *(bool *)at = true;
        return SL_OK;
    case SLI_OPTION_FLAG_INT:
        *(int *)at = 1;
        return SL_OK;
    case SLI_OPTION_FLAG_VALUE:
        *(unsigned *)at = (unsigned)row->value;
        return SL_OK;
    case SLI_OPTION_NUMBER:
        return set_number(in, row, part, count, value, (double *)at);
    case SLI_OPTION_FORGET:
        p->forget_at_run = true;
        return set_number(in, row, part, count, value, &p->forget_bias);
    case SLI_OPTION_CLIP:
        p->clip.kind = (sl_clip_kind)row->value;
        return set_number(in, row, part, count, value, &p->clip.value);
    case SLI_OPTION_CHOICE:
    case SLI_OPTION_CHOICE_BOOL:
    case SLI_OPTION_ACTIVATION:
    case SLI_OPTION_BIAS:
        return set_choice(in, row, part, count, value);
    case SLI_OPTION_PARTS:
        if (!parse_integer(value, count - (size_t)(value - part), 4, &integer) || integer < 2)
            return complain(in, SL_ERR_INPUT, column, part, count, "%s", row->range);
        p->parts = (int)integer;
        return SL_OK;
    case SLI_OPTION_WIDTHS:
        if (!parse_widths(p, value, count - (size_t)(value - part), &parts))
            return complain(in, SL_ERR_INPUT, column, part, count, "%s", row->range);
        return SL_OK;
    }
    return SL_OK;
}

/* Names of options that are rows of their own for each value come one after the other. */
static sl_status unknown_option(const parser *in, int column, const char *part, size_t count) {
    char names[400] = "";
    size_t length = 0;
    const char *before = "";
    for (const sli_option *row = sli_options; row->name && length < sizeof names; row++) {
        if (!(row->ops & SLI_OP_BIT(in->problem.op)) || strcmp(row->name, before) == 0) continue;
        length += (size_t)snprintf(names + length, sizeof names - length, " %s", row->name);
        before = row->name;
    }
    return complain(in, SL_ERR_UNKNOWN, column, part, count, "unknown option, %s has%s", sli_op_name(in->problem.op),
                    length > 0 ? names : " none");
}

static sl_status parse_option(parser *in, const char *part, size_t count) {
    int column = (int)(part - in->text) + 1;
    const char *equals = memchr(part, '=', count);
    size_t name = equals ? (size_t)(equals - part) : count;
    for (const sli_option *row = sli_options; row->name; row++) {
        if (strlen(row->name) != name || strncmp(row->name, part, name) != 0) continue;
        int *seen = &in->option_column[row - sli_options];
        bool flag =
            row->type == SLI_OPTION_FLAG || row->type == SLI_OPTION_FLAG_INT || row->type == SLI_OPTION_FLAG_VALUE;
        if (!(row->ops & SLI_OP_BIT(in->problem.op)))
            return complain(in, SL_ERR_INPUT, column, part, count, "only %s has it, not %s", row->owners,
                            sli_op_name(in->problem.op));
        if (*seen) return complain(in, SL_ERR_INPUT, column, part, count, "was already given in column %d", *seen);
        if (flag && equals)
            return complain(in, SL_ERR_INPUT, column, part, count, "takes no value, write +%s", row->name);
        if (!flag && !equals)
            return complain(in, SL_ERR_INPUT, column, part, count, "needs a value, write +%s=VALUE", row->name);
        *seen = column;
        return set_option(in, row, part, count, equals ? equals + 1 : part + count);
    }
    return unknown_option(in, column, part, count);
}

/* --------------------------------------------------------------------------------------------------------- checks -- */

/* Column of option `name`, 0 if it was not given. */
static int given(const parser *in, const char *name) {
    for (const sli_option *row = sli_options; row->name; row++)
        if (strcmp(row->name, name) == 0) return in->option_column[row - sli_options];
    return 0;
}

static sl_status require_fields(const parser *in) {
    for (const sli_problem_field *row = sli_problem_fields; row->name; row++)
        if ((row->required & SLI_OP_BIT(in->problem.op)) && !in->field_column[row - sli_problem_fields])
            return sli_fail(SL_ERR_INPUT, "problem '%.200s', column %d: field %sN (%s) is missing: %s needs it",
                            in->text, (int)strlen(in->text) + 1, row->name, row->meaning, sli_op_name(in->problem.op));
    return SL_OK;
}

/* Options that need or exclude one another: the first broken rule is reported at the column of `option`. */
static sl_status check_together(const parser *in) {
    const sli_problem *p = &in->problem;
    bool loss = p->op == SLI_OP_XENT || p->op == SLI_OP_BCE || p->op == SLI_OP_MSE;
    const struct {
        const char *option;
        bool wrong;
        const char *sentence;
    } rules[] = {
        {"mask", given(in, "lengths") && given(in, "mask"), "excludes +lengths, give one of them"},
        {"maskout", p->mask == SLI_MASK_NONE, "needs +lengths or +mask"},
        {"mask", loss && p->steps == 0, "needs steps, add a field tN"},
        {"lengths", loss && p->steps == 0, "needs steps, add a field tN"},
        {"merge", !p->bidirectional, "needs the field bi"},
        {"reverse", p->bidirectional, "excludes the field bi, which runs both ways"},
        {"reverse", p->layers > 1, "is for one layer, leave lN out"},
        {"drop", sli_op_is_recurrent(p->op) && p->layers < 2, "is applied between layers, add a field l2 or more"},
        {"nesterov", p->optimizer.momentum == 0, "needs +momentum"},
        {"narrow_io", p->dtype != SL_BF16 && p->dtype != SL_F16, "needs the field bf16 or f16"},
        {"narrow", p->dtype != SL_BF16 && p->dtype != SL_F16, "needs the field bf16 or f16"},
        {"globalnorm", given(in, "clipvalue") || given(in, "clipnorm"), "excludes the other ways to clip"},
        {"clipvalue", given(in, "clipnorm"), "excludes the other ways to clip"},
    };
    for (size_t k = 0; k < sizeof rules / sizeof *rules; k++) {
        int column = given(in, rules[k].option);
        if (rules[k].wrong && column)
            return complain(in, SL_ERR_INPUT, column, in->text + column - 1, strcspn(in->text + column - 1, "+"), "%s",
                            rules[k].sentence);
    }
    return SL_OK;
}

static sl_status check_optimizer(const parser *in) {
    for (const sli_option *row = sli_options; row->name; row++) {
        int column = in->option_column[row - sli_options];
        char kinds[64] = "";
        if (!column || belongs_to_optimizer(row, &in->problem)) continue;
        for (int kind = SL_SGD; kind <= SL_RMSPROP; kind++)
            if (row->value & SLI_KIND_BIT(kind))
                snprintf(kinds + strlen(kinds), sizeof kinds - strlen(kinds), "%s+opt=%s", kinds[0] ? " or " : "",
                         sli_choice_name(sli_optimizer_choices, kind));
        return complain(in, SL_ERR_INPUT, column, in->text + column - 1, strcspn(in->text + column - 1, "+"),
                        "needs %s", kinds);
    }
    return SL_OK;
}

/* Widths of the parts of a merge: given, or shared out. */
static sl_status resolve_widths(parser *in) {
    sli_problem *p = &in->problem;
    int column = given(in, "widths"), count = 0;
    int64_t sum = 0;
    if (p->parts == 0) p->parts = 2;
    for (int k = 0; k < 4 && p->parts_units[k]; k++, count++) sum += p->parts_units[k];
    if (!column) {
        if (p->merge == SL_MERGE_CONCAT && p->units % p->parts != 0)
            return complain(in, SL_ERR_INPUT, given(in, "mode"), in->text + given(in, "mode") - 1,
                            strcspn(in->text + given(in, "mode") - 1, "+"),
                            "h%d is not a multiple of %d parts, add +widths=A:B...", p->units, p->parts);
        for (int k = 0; k < p->parts; k++) p->parts_units[k] = default_width(p);
        return SL_OK;
    }
    const char *part = in->text + column - 1;
    if (p->merge != SL_MERGE_CONCAT)
        return complain(in, SL_ERR_INPUT, column, part, strcspn(part, "+"), "needs +mode=concat");
    if (count != p->parts || sum != p->units)
        return complain(in, SL_ERR_INPUT, column, part, strcspn(part, "+"),
                        "must be %d widths (+parts) whose sum is %d (the field h)", p->parts, p->units);
    return SL_OK;
}

/* Fills what follows from the rest, so that two texts of one problem give the same bytes. */
static sl_status resolve(parser *in) {
    sli_problem *p = &in->problem;
    if (sli_op_is_recurrent(p->op) && p->bias == SL_BIAS_DEFAULT) p->bias = default_bias(p);
    if (p->act == default_activation(p->op)) p->act = SL_ACT_DEFAULT;
    for (const sli_option *row = sli_options; row->name; row++) {
        double *number = (double *)((char *)p + row->offset);
        if (row->type == SLI_OPTION_NUMBER && *number == usual_number(row, p)) *number = 0;
    }
    if (p->recurrent_act == SL_ACT_SIGMOID) p->recurrent_act = SL_ACT_DEFAULT;
    if (p->bidirectional && p->direction_merge == SL_UNIDIRECTIONAL) p->direction_merge = SL_BI_CONCAT;
    if (p->op == SLI_OP_ONEHOT) p->units = p->inputs;
    if (!p->train) p->recompute = false; /* nothing is kept */
    return p->op == SLI_OP_MERGE ? resolve_widths(in) : SL_OK;
}

sl_status sli_problem_parse(const char *text, sli_problem *problem) {
    parser in = {.text = text};
    const char *part = NULL;
    in.problem.layers = 1;
    in.problem.dtype = SL_F32;
    SLI_FAIL_IF(strlen(text) > 4096, SL_ERR_INPUT, "problem '%.40s...' is longer than 4096 bytes", text);
    SLI_TRY(parse_op(&in, &part));
    for (bool more = true; more;) {
        size_t count = strcspn(part, "_+");
        SLI_TRY(parse_field(&in, part, count));
        more = part[count] == '_';
        part += count + more;
    }
    while (*part == '+') {
        size_t count = strcspn(part + 1, "+");
        SLI_TRY(parse_option(&in, part + 1, count));
        part += count + 1;
    }
    SLI_TRY(require_fields(&in));
    SLI_TRY(check_optimizer(&in));
    SLI_TRY(check_together(&in));
    SLI_TRY(resolve(&in));
    *problem = in.problem;
    return SL_OK;
}
