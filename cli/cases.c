/* Files of JSON lines that grow over several sessions. A line begins with {"case": "KEY", and KEY holds the problem, the
 * precision, the device, options and the source: equal keys are equal work. */
#include "cases.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common.h"
#include "files.h"

static const option case_table[] = {
    {OPTION_TEXT, "jsonl", offsetof(case_options, jsonl), "FILE", 0, 0,
     "append one JSON line a result to FILE, skip what it has already for the same --source, and print failures alone"},
    {OPTION_TEXT, "source", offsetof(case_options, source), "TEXT", 0, 0,
     "what the lines are keyed by: a hash of the source, or a machine's name (default: the version)"},
    {OPTION_TEXT, "shard", offsetof(case_options, shard), "I/N", 0, 0,
     "take problems I, I+N, I+2N... alone, I from 1: several processes share a file"},
    {OPTION_REAL, "limit-seconds", offsetof(case_options, limit_seconds), "S", 0, 0,
     "begin no further problem after S seconds; the next call with the same --jsonl goes on"},
    {0}};
const option_group case_group = {"many problems", case_table};

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ------------------------------------------------------------------------------------------------ open and close -- */
/* Of what the file of lines has already; a device or a pipe has nothing, and opening a pipe would wait for its writer. */
static int read_known(case_list *list) {
    struct stat about;
    if (stat(list->options->jsonl, &about) != 0 || !S_ISREG(about.st_mode)) return 0;
    FILE *file = fopen(list->options->jsonl, "r");
    size_t capacity = 0, used = 0;
    if (!file) return report_as(SL_ERR_FILE, "--jsonl: cannot read %s: %s", list->options->jsonl, strerror(errno));
    for (size_t got = 1; got > 0; used += got) {
        if (used + 4096 > capacity) {
            char *grown = realloc(list->known, capacity = 2 * capacity + 65536);
            if (!grown) {
                fclose(file);
                return report_memory();
            }
            list->known = grown;
        }
        got = fread(list->known + used, 1, capacity - used - 1, file);
    }
    list->known[used] = 0;
    fclose(file);
    return 0;
}

/* Neither the lines nor the file beside them may be a list of problems. */
static int refuse_overwriting(const case_list *list, const arguments *a) {
    int code = 0;
    for (int i = 0; i < a->positionals && !code; i++) {
        const file_use uses[] = {{list->options->jsonl, "--jsonl", FILE_APPENDED},
                                 {list->at_path, "the file beside --jsonl that names the case in work", FILE_WRITTEN},
                                 {a->positional[i], "the list of problems", FILE_READ}};
        code = refuse_same_files(a->command, uses, 3);
    }
    return code ? code : refuse_other_lines(a->command, "--jsonl", list->options->jsonl, "case");
}

static int parse_shard(case_list *list, const command *command) {
    const char *text = list->options->shard;
    char rest = 0;
    list->shard = list->shards = 1;
    if (!text) return 0;
    if (sscanf(text, "%9d/%9d%c", &list->shard, &list->shards, &rest) == 2 && list->shard >= 1 &&
        list->shard <= list->shards)
        return 0;
    return usage_error(command, "--shard %s: give I/N with I from 1 to N, such as 2/8", text);
}

/* What would be ignored, or not found again in the file. */
static int check_options(const arguments *a, const case_options *options) {
    static const char *const with_file[] = {"source", "shard", "limit-seconds"};
    for (int k = 0; k < 3 && !options->jsonl; k++)
        if (arguments_given(a, with_file[k]))
            return usage_error(a->command, "--%s goes with --jsonl FILE; give both", with_file[k]);
    if (options->jsonl && arguments_given(a, "json"))
        return usage_error(a->command, "--jsonl writes JSON lines to its FILE; leave --json out");
    for (const char *c = options->source; c && *c; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c > '~' || *c == '"' || *c == '\\')
            return usage_error(a->command, "--source %s: give ASCII without quotes and backslashes", options->source);
    if (options->source && strlen(options->source) > CASE_SOURCE)
        return usage_error(a->command, "--source has %zu letters, more than %d; give a shorter text",
                           strlen(options->source), CASE_SOURCE);
    return 0;
}

int case_list_open(case_list *list, const arguments *a, const case_options *options) {
    *list = (case_list){.options = options, .file = -1, .started = now()};
    int code = check_options(a, options);
    if (!code) code = parse_shard(list, a->command);
    if (code || !options->jsonl) return code;
    size_t room = strlen(options->jsonl) + 32;
    list->at_path = malloc(room);
    if (!list->at_path) return report_memory();
    snprintf(list->at_path, room, "%s.at.%d", options->jsonl, list->shard);
    code = refuse_overwriting(list, a);
    if (!code) code = read_known(list);
    if (code) return code;
    list->file = open(options->jsonl, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (list->file < 0)
        return report_as(SL_ERR_IO, "--jsonl: cannot write %s: %s; name a file in a folder that exists", options->jsonl,
                         strerror(errno));
    struct stat about;
    list->has_at = fstat(list->file, &about) == 0 && S_ISREG(about.st_mode); /* no file beside a device */
    const size_t known = list->known ? strlen(list->known) : 0;
    const bool half = known > 0 && list->known[known - 1] != '\n'; /* the next line is one of its own */
    if (half && write(list->file, "\n", 1) != 1)
        return report_as(SL_ERR_IO, "--jsonl: cannot write %s: %s", options->jsonl, strerror(errno));
    return 0;
}

void case_list_close(case_list *list) {
    if (list->has_at) unlink(list->at_path);
    if (list->file >= 0) close(list->file);
    free(list->at_path);
    free(list->known);
}

/* --------------------------------------------------------------------------------------------------------- cases -- */
/* Are there lines of this key, of which the last one is whole? A full disk leaves a half. *failed: one of them says so. */
static bool is_known(const case_list *list, bool *failed) {
    static const char bad[] = "\"ok\": false", error[] = "\"error\": \""; /* of check, of bench */
    char begin[sizeof list->key + 16];
    size_t length = (size_t)snprintf(begin, sizeof begin, "{\"case\": \"%s\"", list->key);
    bool known = false;
    *failed = false;
    for (const char *line = list->known, *end; line && *line; line = end + (*end == '\n')) {
        end = strchrnul(line, '\n');
        if (strncmp(line, begin, length) != 0) continue;
        known = *end == '\n' && end[-1] == '}';
        *failed = known && (*failed || memmem(line, (size_t)(end - line), bad, strlen(bad)) ||
                            memmem(line, (size_t)(end - line), error, strlen(error)));
    }
    return known;
}

void case_list_how(case_list *list, const char *command, uint64_t seed, const sl_plan_options *options) {
    const struct {
        bool said;
        const char *name;
        unsigned long long value;
    } all[] = {{seed != 1, "seed=", seed},
               {options->memory_limit > 0, "limit=", options->memory_limit},
               {options->recompute_gates != 0, "recompute", 0},
               {options->no_graph != 0, "no-graph", 0},
               {options->tune != 0, "tune", 0},
               {command != NULL && options->threads > 0, "threads=", (unsigned long long)options->threads}};
    int used = snprintf(list->how, sizeof list->how, "%s%s%s%s", command ? "|" : "", command ? command : "",
                        options->require ? "|require=" : "", options->require ? options->require : "");
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        if (!all[k].said || used >= (int)sizeof list->how) continue;
        used += snprintf(list->how + used, sizeof list->how - (size_t)used, "|%s", all[k].name);
        if (all[k].value > 0 && used < (int)sizeof list->how)
            used += snprintf(list->how + used, sizeof list->how - (size_t)used, "%llu", all[k].value);
    }
}

static void note_case(const case_list *list) {
    FILE *file = list->has_at ? fopen(list->at_path, "w") : NULL;
    if (!file) return;
    fprintf(file, "%s\n", list->key);
    fclose(file);
}

bool case_begin(case_list *list, const char *problem, const char *dtype, const char *device) {
    const case_options *o = list->options;
    if (list->number++ % list->shards != list->shard - 1) return false;
    bool failed;
    snprintf(list->key, sizeof list->key, "%s|%s|%s%s|%s", problem, dtype, device, list->how,
             o->source ? o->source : sl_version());
    if (is_known(list, &failed)) {
        list->kept++;
        list->kept_failed += failed;
        return false;
    }
    if (o->limit_seconds > 0 && now() - list->started > o->limit_seconds) {
        list->left++;
        return false;
    }
    list->line = NULL;
    list->bytes = 0;
    list->out = (json){.file = o->jsonl ? open_memstream(&list->line, &list->bytes) : NULL};
    if (list->out.file) note_case(list);
    return true;
}

json *case_line(case_list *list) {
    json_open(&list->out, NULL, '{');
    json_str(&list->out, "case", list->key);
    return &list->out;
}

void case_line_end(case_list *list) {
    json_close(&list->out, '}');
    json_end(&list->out);
}

bool is_no_problem(sl_status status) {
    return status == SL_ERR_INPUT || status == SL_ERR_UNKNOWN || status == SL_ERR_USAGE;
}

int case_drop(case_list *list, int code) {
    if (list->out.file) fclose(list->out.file);
    list->out.file = NULL;
    free(list->line);
    return code;
}

int case_end(case_list *list, bool passed) {
    int code = 0;
    list->done++;
    list->failed += !passed;
    if (!list->out.file) return report_memory();
    if (fclose(list->out.file) != 0) code = report_memory();
    const ssize_t written = code ? 0 : write(list->file, list->line, list->bytes);
    if (!code && written != (ssize_t)list->bytes)
        code = report_as(SL_ERR_IO, "--jsonl: cannot write %s: %s", list->options->jsonl,
                         strerror(written < 0 ? errno : ENOSPC));
    free(list->line);
    return code;
}

int case_list_tell(const case_list *list, const char *what, int code) {
    char failed[48] = "";
    if (list->kept_failed > 0) snprintf(failed, sizeof failed, " (%d of them failed)", list->kept_failed);
    printf("%s: %d done, %d failed, %d known from before%s, %d left\n", what, list->done, list->failed, list->kept,
           failed, list->left);
    return code ? code : list->kept_failed > 0;
}
