/* Table-driven options: one table gives the parser, the --help text and "did you mean", so that they cannot diverge. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

typedef enum option_kind {
    OPTION_END,   /* ends a table */
    OPTION_FLAG,  /* int, no value: 1 */
    OPTION_MODE,  /* int: --NAME is 1, --NAME=WORD is 2 + the index of the word in `value` */
    OPTION_INT,   /* int within [minimum, maximum] */
    OPTION_SEED,  /* uint64_t */
    OPTION_REAL,  /* double within [minimum, maximum] */
    OPTION_SIZE,  /* size_t, bytes: 8G, 512M, 100k, 12345 */
    OPTION_TEXT,  /* const char * */
    OPTION_CHOICE /* int: index of the word in `value`, "char|word|byte" */
} option_kind;

typedef struct option {
    option_kind kind;
    const char *name;        /* "batch" is given as --batch B or --batch=B */
    size_t offset;           /* of the value in the group's struct */
    const char *value;       /* how --help names the value; the words of a choice */
    double minimum, maximum; /* maximum 0: none */
    const char *help;        /* one line, wrapped by --help */
} option;

/* Options that belong together, and the struct they fill. Commands share groups. */
typedef struct option_group {
    const char *title;
    const option *options;
} option_group;

enum { OPTION_GROUPS = 5, OPTION_MOST = 40 };

typedef struct command {
    const char *name;
    const char *summary;  /* one line for `sluice --help` */
    const char *synopsis; /* lines after "usage: " */
    const char *text;     /* what it does */
    const option_group *groups[OPTION_GROUPS];
    const char *examples;
    int least, most;     /* positional arguments; most -1: any number */
    const char *missing; /* what is missing if fewer than `least` are given */
    int (*run)(const struct command *command, int count, char **words);
} command;

typedef struct arguments {
    const command *command;
    void *values[OPTION_GROUPS]; /* set by the command before parsing: the struct of each group */
    bool given[OPTION_GROUPS][OPTION_MOST];
    char **positional; /* the words that are no options, moved to the front of `words` */
    int positionals;
} arguments;

/* What arguments_parse returns when the command shall go on; everything else is an exit code. */
enum { PARSE_GO_ON = -1 };

/* Parses `words` (after the command's name). --help prints the help and gives 0; a mistake is one sentence and gives 2. */
int arguments_parse(arguments *arguments, const command *command, int count, char **words);
/* Was --name given? */
bool arguments_given(const arguments *arguments, const char *name);
/* The first given option of group number `group` but `except` (may be NULL), or NULL: to refuse what does not apply. */
const char *arguments_first_other(const arguments *arguments, int group, const char *except);
void command_help(const command *command);
/* "sluice: SENTENCE; see `sluice NAME --help`" on stderr; gives exit code 2. `command` may be NULL. */
int usage_error(const command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The word of `words` ("a b c" or "a|b|c") nearest to `word`, in `nearest`; false if none is near. */
bool nearest_word(const char *word, const char *words, char *nearest, size_t capacity);
/* "8G" -> bytes. false if `text` is no size. */
bool parse_size(const char *text, size_t *bytes);

#endif
