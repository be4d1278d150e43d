/* Problem strings from words and files. */
#include "problems.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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
    line[strcspn(line, "#\r\n")] = 0;
    const size_t mark = strncmp(line, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0; /* as editors of Windows begin a file */
    char *start = line + mark + strspn(line + mark, " \t");
    start[strcspn(start, " \t")] = 0;
    return start[0] ? start : NULL;
}

/* Line by line: who writes into a pipe may wait for each answer. */
static int problems_of_lines(FILE *file, const char *name, problem_function *each, void *context) {
    char *line = NULL, where[PATH_MAX + 16];
    size_t capacity = 0;
    int code = 0, problems = 0;
    ssize_t length;
    for (int number = 1; code <= 1 && (length = getline(&line, &capacity, file)) >= 0; number++) {
        if (memchr(line, 0, (size_t)length)) {
            code = report_as(SL_ERR_INPUT, "%s:%d: holds bytes of 0; give a text, a problem a line", name, number);
            break;
        }
        char *problem = problem_of_line(line);
        if (!problem) continue;
        problems++;
        snprintf(where, sizeof where, "%s:%d", name, number);
        int each_code = take(each, context, where, problem);
        if (each_code) code = each_code;
    }
    free(line);
    if (ferror(file) && code <= 1)
        return report_as(SL_ERR_FILE, "cannot read %s: %s; give a file of problem strings", name, strerror(errno));
    if (code || problems > 0) return code;
    return report_as(SL_ERR_INPUT, "%s holds no problem; write one a line, such as lstm:b20_t35_i650_h650", name);
}

static int problems_of_file(char *path, problem_function *each, void *context) {
    const char *name = name_texts(&path, 1);
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    struct stat about;
    if (!file)
        return report_as(SL_ERR_FILE,
                         "cannot read %s: %s; give a problem such as lstm:b20_t35_i650_h650, or a file of them", path,
                         strerror(errno));
    int code;
    if (fstat(fileno(file), &about) == 0 &&
        (S_ISBLK(about.st_mode) || (S_ISCHR(about.st_mode) && !isatty(fileno(file))))) /* /dev/zero has no end */
        code = report_as(SL_ERR_FILE, "%s: is a device, not a text; give a file or a pipe", name);
    else
        code = problems_of_lines(file, name, each, context);
    if (file != stdin) fclose(file);
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
