/* Problem strings from words and files. */
#include "problems.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common.h"

bool is_problem(const char *word) {
    return strchr(word, ':') && access(word, F_OK) != 0;
}

/* One problem; where nobody reads what was found, the next is not begun. */
static int take(problem_function *each, void *context, const char *where, const char *problem) {
    int code = each(context, where, problem);
    return output_failed() ? sl_status_exit_code(SL_ERR_IO) : code;
}

/* The problem of a line, cut out of it; NULL: there is none. */
static char *problem_of_line(char *line) {
    line[strcspn(line, "#\r")] = 0;
    char *start = line + strspn(line, " \t");
    start[strcspn(start, " \t")] = 0;
    return start[0] ? start : NULL;
}

static int problems_of_text(char *text, const char *name, problem_function *each, void *context) {
    int code = 0, problems = 0, number = 1;
    for (char *line = text, *next; line && code <= 1; line = next, number++) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        char *problem = problem_of_line(line), where[PATH_MAX + 16];
        if (!problem) continue;
        problems++;
        snprintf(where, sizeof where, "%s:%d", name, number);
        int each_code = take(each, context, where, problem);
        if (each_code) code = each_code;
    }
    if (problems > 0) return code;
    return report_as(SL_ERR_INPUT, "%s holds no problem; write one a line, such as lstm:b20_t35_i650_h650", name);
}

static int problems_of_file(char *path, problem_function *each, void *context) {
    char *text;
    size_t bytes;
    if (strcmp(path, "-") != 0 && access(path, F_OK) != 0)
        return report_as(SL_ERR_FILE,
                         "cannot read %s: %s; give a problem such as lstm:b20_t35_i650_h650, or a file of them", path,
                         strerror(errno));
    int code = read_texts(&path, 1, &text, &bytes);
    if (code) return code;
    const char *name = name_texts(&path, 1);
    if (memchr(text, 0, bytes))
        code = report_as(SL_ERR_INPUT, "%s holds bytes of 0; give a text, a problem a line", name);
    else
        code = problems_of_text(text, name, each, context);
    sl_text_free(text);
    return code;
}

int for_each_problem(char **words, int count, problem_function *each, void *context) {
    int code = 0;
    for (int i = 0; i < count && code <= 1; i++) {
        int each_code =
            is_problem(words[i]) ? take(each, context, NULL, words[i]) : problems_of_file(words[i], each, context);
        if (each_code) code = each_code;
    }
    return code;
}
