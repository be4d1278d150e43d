/* Files of JSON lines that grow over several sessions. A line begins with {"case": "KEY", and KEY holds the problem, the
 * precision, the device and the source: equal keys are equal work. */
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
        const file_use uses[] = {{list->options->jsonl, "--jsonl", true},
                                 {list->at_path, "the file beside --jsonl that names the case in work", true},
                                 {a->positional[i], "the list of problems", false}};
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
    return 0;
}

void case_list_close(case_list *list) {
    if (list->has_at) unlink(list->at_path);
    if (list->file >= 0) close(list->file);
    free(list->at_path);
    free(list->known);
}

/* --------------------------------------------------------------------------------------------------------- cases -- */
/* Is there a line of this key? */
static bool is_known(const case_list *list) {
    char begin[sizeof list->key + 16];
    int length = snprintf(begin, sizeof begin, "{\"case\": \"%s\"", list->key);
    for (const char *line = list->known; line && *line; line = strchr(line, '\n'), line += line != NULL)
        if (strncmp(line, begin, (size_t)length) == 0) return true;
    return false;
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
    snprintf(list->key, sizeof list->key, "%s|%s|%s|%s", problem, dtype, device, o->source ? o->source : sl_version());
    if (is_known(list)) {
        list->kept++;
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
    if (!code && write(list->file, list->line, list->bytes) != (ssize_t)list->bytes)
        code = report_as(SL_ERR_IO, "--jsonl: cannot write %s: %s", list->options->jsonl, strerror(errno));
    free(list->line);
    return code;
}

void case_list_tell(const case_list *list, const char *what) {
    printf("%s: %d done, %d failed, %d known from before, %d left\n", what, list->done, list->failed, list->kept,
           list->left);
}
