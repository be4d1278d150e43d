/* Problem strings from words and files. */
#include "problems.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "output.h"

bool is_problem(const char *word) {
    return strchr(word, ':') && access(word, F_OK) != 0;
}

/* One problem; where nobody reads what was found, the next is not begun. */
static int take(int (*each)(void *context, const char *problem), void *context, const char *problem) {
    int code = each(context, problem);
    return output_failed() ? sl_status_exit_code(SL_ERR_IO) : code;
}

static int problems_of_file(const char *path, int (*each)(void *context, const char *problem), void *context) {
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    if (!file)
        return report_as(SL_ERR_FILE,
                         "cannot read %s: %s; give a problem such as lstm:b20_t35_i650_h650, or a file of them", path,
                         strerror(errno));
    struct stat about;
    if (fstat(fileno(file), &about) == 0 && (S_ISBLK(about.st_mode) || (S_ISCHR(about.st_mode) && file != stdin))) {
        if (file != stdin) fclose(file);
        return report_as(SL_ERR_FILE, "%s is a device; give a file of problem strings, or a pipe", path);
    }
    char *line = NULL;
    size_t capacity = 0;
    int code = 0, problems = 0, number = 0;
    ssize_t length;
    while (code <= 1 && (length = getline(&line, &capacity, file)) >= 0) {
        number++;
        if (memchr(line, 0, (size_t)length)) {
            code = report_as(SL_ERR_INPUT, "%s holds bytes of 0; give a text, a problem a line", path);
            break;
        }
        line[strcspn(line, "#\r\n")] = 0;
        char *start = line + strspn(line, " \t");
        start[strcspn(start, " \t")] = 0;
        if (!start[0]) continue;
        problems++;
        int each_code = take(each, context, start);
        if (each_code) code = each_code;
        if (code == sl_status_exit_code(SL_ERR_INPUT)) fprintf(stderr, "sluice: that is line %d of %s\n", number, path);
    }
    if (ferror(file) && code <= 1)
        code = report_as(SL_ERR_FILE, "cannot read %s: %s; give a file of problem strings", path, strerror(errno));
    if (!code && problems == 0)
        code = report_as(SL_ERR_INPUT, "%s holds no problem; write one a line, such as lstm:b20_t35_i650_h650", path);
    free(line);
    if (file != stdin) fclose(file);
    return code;
}

int for_each_problem(char **words, int count, int (*each)(void *context, const char *problem), void *context) {
    int code = 0;
    for (int i = 0; i < count && code <= 1; i++) {
        int each_code =
            is_problem(words[i]) ? take(each, context, words[i]) : problems_of_file(words[i], each, context);
        if (each_code) code = each_code;
    }
    return code;
}
