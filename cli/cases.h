/* Proofs and timings of many problems, one JSON line a result: what a file of lines has already for the same source is
 * skipped, so that a long list is done in several short sessions, and by several processes side by side. */
#ifndef CLI_CASES_H
#define CLI_CASES_H

#include <stdbool.h>
#include <stdint.h>

#include "json.h"
#include "options.h"
#include "sluice.h"

enum { CASE_SOURCE = 200 }; /* the most letters of a source */

typedef struct case_options {
    const char *jsonl, *source, *shard;
    double limit_seconds;
} case_options;
extern const option_group case_group;

/* Open while one process works through its share. All zero: no file of lines was asked for. */
typedef struct case_list {
    const case_options *options;
    int file;          /* descriptor of the lines, appended to; -1 */
    char *known;       /* the lines of earlier sessions */
    int shard, shards; /* this process takes problem number shard, shard + shards, ... */
    double started;    /* seconds */
    int number;        /* problems seen */
    int done, kept, left, failed;
    int kept_failed; /* of `kept` */
    char how[256];   /* options that make it another case: "|seed=2" */
    char *at_path;   /* names the case in work: after a crash the script knows it */
    bool has_at;     /* there is such a file */
    char key[1200];
    char *line; /* being written */
    size_t bytes;
    json out;
} case_list;

/* Gives an exit code; closes everything with case_list_close also where it fails. */
int case_list_open(case_list *list, const arguments *a, const case_options *options);
/* false: not this process's, done before, or out of time. Then begins the lines of the case. */
bool case_begin(case_list *list, const char *problem, const char *dtype, const char *device);
/* Opens one line of the case, with what every line has; end it with case_line_end. */
json *case_line(case_list *list);
void case_line_end(case_list *list);
/* Is what failed the problem string itself? Then it is no finding. */
bool is_no_problem(sl_status status);
/* The case was none: nothing is written. Gives `code`. */
int case_drop(case_list *list, int code);
/* Appends the case's lines to the file in one piece. Gives an exit code. */
int case_end(case_list *list, bool passed);
void case_list_close(case_list *list);
/* What makes cases others than those of the plain call: they are kept apart. `command`: NULL, or what is no check. */
void case_list_how(case_list *list, const char *command, uint64_t seed, const sl_plan_options *options);
/* "12 done, 0 failed, 488 known from before, 0 left", on stdout. Gives `code`, or 1 where some of those known from before failed. */
int case_list_tell(const case_list *list, const char *what, int code);

#endif
