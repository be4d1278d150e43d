/* The option parser: tables of typed options in, a filled struct, the help text or one sentence about the mistake out. */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_MOST = 64, HELP_COLUMN = 30, HELP_WIDTH = 100 };

/* ------------------------------------------------------------------------------------------------ did you mean -- */
/* Levenshtein distance of two short words; long ones count as far. */
static int distance(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b);
    if (n >= WORD_MOST || m >= WORD_MOST) return INT_MAX;
    int row[WORD_MOST + 1];
    for (size_t j = 0; j <= m; j++) row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int above = row[j], best = diagonal + (a[i - 1] != b[j - 1]);
            if (above + 1 < best) best = above + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
            diagonal = above;
        }
    }
    return row[m];
}

/* Copies the next word of a list separated by blanks or '|' and moves *list behind it; false at the end. */
static bool next_word(const char **list, char *word, size_t capacity) {
    const char *start = *list + strspn(*list, " |");
    size_t length = strcspn(start, " |");
    if (length == 0) return false;
    if (length >= capacity) length = capacity - 1;
    memcpy(word, start, length);
    word[length] = 0;
    *list = start + strcspn(start, " |");
    return true;
}

bool nearest_word(const char *word, const char *words, char *nearest, size_t capacity) {
    char candidate[WORD_MOST];
    int least = INT_MAX;
    size_t length = strlen(word);
    while (next_word(&words, candidate, sizeof candidate)) {
        int d = distance(word, candidate);
        /* A cut-off word ("--vocab") is nearer than any misspelling. */
        if (length >= 3 && strncmp(candidate, word, length) == 0) d = 0;
        if (d < least) {
            least = d;
            snprintf(nearest, capacity, "%s", candidate);
        }
    }
    return length >= 2 && least <= (length <= 3 ? 1 : 2);
}

/* --------------------------------------------------------------------------------------------------------- help -- */
static int use_of(const option *o, char *text, size_t capacity) {
    if (o->kind == OPTION_FLAG) return snprintf(text, capacity, "--%s", o->name);
    if (o->kind == OPTION_MODE) return snprintf(text, capacity, "--%s[=%s]", o->name, o->value);
    return snprintf(text, capacity, "--%s %s", o->name, o->value);
}

/* Prints `text` wrapped, each new line after `indent` blanks; the cursor is at column `column`. */
static void print_wrapped(const char *text, int indent, int column) {
    while (*text) {
        int length = (int)strcspn(text, " ");
        if (column > indent && column + 1 + length > HELP_WIDTH) {
            printf("\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            putchar(' ');
            column++;
        }
        printf("%.*s", length, text);
        column += length;
        text += length;
        text += strspn(text, " ");
    }
    putchar('\n');
}

static void help_line(const char *use, const char *help) {
    int width = printf("  %s", use);
    if (width > HELP_COLUMN - 2) {
        putchar('\n');
        width = 0;
    }
    printf("%*s", HELP_COLUMN - width, "");
    print_wrapped(help, HELP_COLUMN, HELP_COLUMN);
}

void command_help(const command *command) {
    printf("usage: %s\n\n%s\n", command->synopsis, command->text);
    for (int g = 0; g < OPTION_GROUPS && command->groups[g]; g++) {
        printf("\n%s:\n", command->groups[g]->title);
        for (const option *o = command->groups[g]->options; o->kind != OPTION_END; o++) {
            char use[256];
            use_of(o, use, sizeof use);
            help_line(use, o->help);
        }
    }
    printf("\n");
    help_line("--help", "this text");
    if (command->examples) printf("\nexamples:\n%s", command->examples);
}

int usage_error(const command *command, const char *format, ...) {
    va_list list;
    va_start(list, format);
    fputs("sluice: ", stderr);
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, "; see `sluice%s%s --help`\n", command ? " " : "", command ? command->name : "");
    return 2;
}

/* ------------------------------------------------------------------------------------------------------- values -- */
bool parse_size(const char *text, size_t *bytes) {
    static const char units[] = "kMGT";
    char *end;
    double value = strtod(text, &end);
    if (end == text) return false;
    double scale = 1;
    if (*end) {
        char unit = *end == 'K' ? 'k' : *end == 'm' ? 'M' : *end == 'g' ? 'G' : *end == 't' ? 'T' : *end;
        const char *found = strchr(units, unit);
        if (!found) return false;
        for (const char *u = units; u <= found; u++) scale *= 1024;
        end++;
        if (*end == 'i') end++;
        if (*end == 'B') end++;
        if (*end) return false;
    }
    value *= scale;
    if (!(value >= 1) || value >= 1.8e19) return false; /* 0 bytes would be no limit */
    *bytes = (size_t)value;
    return true;
}

/* Index of `word` in "a|b|c", its start in *at; -1 if it is not there. */
static int find_choice(const char *words, const char *word, const char **at) {
    size_t length = strlen(word);
    for (int index = 0;; index++) {
        size_t n = strcspn(words, "|");
        if (n == length && memcmp(words, word, n) == 0) {
            *at = words;
            return index;
        }
        if (!words[n]) return -1;
        words += n + 1;
    }
}

static int set_number(const command *command, const option *o, const char *text, void *value) {
    char *end;
    errno = 0;
    double number = strtod(text, &end);
    double maximum = o->maximum != 0 ? o->maximum : o->kind == OPTION_INT ? (double)INT_MAX : HUGE_VAL;
    if (end == text || *end || isnan(number))
        return usage_error(command, "--%s needs a number, got '%s'", o->name, text);
    if (o->kind == OPTION_INT && number != floor(number))
        return usage_error(command, "--%s needs a whole number, got '%s'", o->name, text);
    if (number < o->minimum || number > maximum || isinf(number)) {
        if (o->maximum != 0 || number > maximum)
            return usage_error(command, "--%s must be from %.10g to %.10g, got '%s'", o->name, o->minimum, maximum,
                               text);
        if (number > 0 && isinf(number))
            return usage_error(command, "--%s needs a finite number, got '%s'", o->name, text);
        return usage_error(command, "--%s must be at least %g, got '%s'", o->name, o->minimum, text);
    }
    if (o->kind == OPTION_INT)
        *(int *)value = (int)number;
    else
        *(double *)value = number;
    return PARSE_GO_ON;
}

static int set_choice(const command *command, const option *o, const char *text, void *value) {
    const char *at;
    int index = find_choice(o->value, text, &at);
    if (index < 0) {
        char near[WORD_MOST];
        if (nearest_word(text, o->value, near, sizeof near))
            return usage_error(command, "--%s has no '%s' (did you mean %s?), it takes %s", o->name, text, near,
                               o->value);
        return usage_error(command, "--%s has no '%s', it takes %s", o->name, text, o->value);
    }
    *(int *)value = index;
    return PARSE_GO_ON;
}

/* Decimal, or hexadecimal after 0x: "010" is ten, as everywhere else. */
static int set_seed(const command *command, const option *o, const char *text, uint64_t *seed) {
    const bool hexadecimal = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    char *end;
    errno = 0;
    *seed = strtoull(text, &end, hexadecimal ? 16 : 10);
    if (!isdigit((unsigned char)text[0]) || end == text || *end || errno)
        return usage_error(command, "--%s needs a whole number from 0 to 2^64-1, got '%s'", o->name, text);
    return PARSE_GO_ON;
}

static int set_value(const command *command, const option *o, const char *text, void *values) {
    void *value = (char *)values + o->offset;
    switch (o->kind) {
    case OPTION_FLAG:
        *(int *)value = 1;
        return PARSE_GO_ON;
    case OPTION_MODE:
        *(int *)value = 1;
        if (!text) return PARSE_GO_ON;
        if (set_choice(command, o, text, value) != PARSE_GO_ON) return 2;
        *(int *)value += 2;
        return PARSE_GO_ON;
    case OPTION_INT:
    case OPTION_REAL:
        return set_number(command, o, text, value);
    case OPTION_SEED:
        return set_seed(command, o, text, value);
    case OPTION_SIZE:
        if (!parse_size(text, (size_t *)value))
            return usage_error(command, "--%s needs a size such as 512M or 8G, got '%s'", o->name, text);
        return PARSE_GO_ON;
    case OPTION_CHOICE:
        return set_choice(command, o, text, value);
    default: /* an empty path or name is a shell's variable that was not set; a TEXT may be empty */
        if (!text[0] && strcmp(o->value, "TEXT") != 0)
            return usage_error(command, "--%s is empty; give %s, or leave the option out", o->name, o->value);
        *(const char **)value = text;
        return PARSE_GO_ON;
    }
}

/* ------------------------------------------------------------------------------------------------------ parsing -- */
static const option *find_option(const command *command, const char *name, size_t length, int *group, int *index) {
    for (int g = 0; g < OPTION_GROUPS && command->groups[g]; g++)
        for (const option *o = command->groups[g]->options; o->kind != OPTION_END; o++)
            if (strlen(o->name) == length && memcmp(o->name, name, length) == 0) {
                *group = g;
                *index = (int)(o - command->groups[g]->options);
                return o;
            }
    return NULL;
}

static int unknown_option(const command *command, const char *word) {
    char names[2048] = "help", near[WORD_MOST], name[WORD_MOST];
    size_t used = strlen(names);
    for (int g = 0; g < OPTION_GROUPS && command->groups[g]; g++)
        for (const option *o = command->groups[g]->options; o->kind != OPTION_END; o++)
            if (used + strlen(o->name) + 2 < sizeof names)
                used += (size_t)snprintf(names + used, sizeof names - used, " %s", o->name);
    const char *start = word + strspn(word, "-");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(start, "="), start);
    if (nearest_word(name, names, near, sizeof near))
        return usage_error(command, "%s has no option '%s' (did you mean --%s?)", command->name, word, near);
    return usage_error(command, "%s has no option '%s'", command->name, word);
}

/* One word that starts with '-'. *used: how many words it took. */
static int parse_option(arguments *a, const command *command, int count, char **words, int *used) {
    const char *name = words[0] + 2, *equals = strchr(words[0], '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    int group = 0, index = 0;
    const option *o = words[0][1] == '-' ? find_option(command, name, length, &group, &index) : NULL;
    *used = 1;
    if (!o) return unknown_option(command, words[0]);
    const char *value = equals ? equals + 1 : NULL;
    if (o->kind == OPTION_FLAG && value) return usage_error(command, "--%s takes no value", o->name);
    if (o->kind != OPTION_FLAG && o->kind != OPTION_MODE && !value) {
        if (count < 2) return usage_error(command, "--%s needs a value: --%s %s", o->name, o->name, o->value);
        value = words[1];
        *used = 2;
    }
    a->given[group][index] = true;
    return set_value(command, o, value, a->values[group]);
}

int arguments_parse(arguments *a, const command *command, int count, char **words) {
    a->command = command;
    a->positional = words;
    a->positionals = 0;
    bool options = true;
    for (int i = 0; i < count;) {
        char *word = words[i];
        if (options && strcmp(word, "--") == 0) {
            options = false;
            i++;
        } else if (options && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            command_help(command);
            return 0;
        } else if (options && word[0] == '-' && word[1]) {
            int used, code = parse_option(a, command, count - i, words + i, &used);
            if (code != PARSE_GO_ON) return code;
            i += used;
        } else {
            words[a->positionals++] = word; /* never past i: moves towards the front */
            i++;
        }
    }
    if (a->positionals < command->least) return usage_error(command, "%s", command->missing);
    if (command->most >= 0 && a->positionals > command->most)
        return usage_error(command, "%s does not know what to do with '%s'", command->name,
                           a->positional[command->most]);
    return PARSE_GO_ON;
}

bool arguments_given(const arguments *a, const char *name) {
    int group, index;
    return find_option(a->command, name, strlen(name), &group, &index) && a->given[group][index];
}

const char *arguments_first_other(const arguments *a, int group, const char *except) {
    const option *options = a->command->groups[group]->options;
    for (int i = 0; options[i].kind != OPTION_END; i++)
        if (a->given[group][i] && !(except && strcmp(options[i].name, except) == 0)) return options[i].name;
    return NULL;
}
