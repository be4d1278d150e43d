/* Problem strings from the command line: given themselves, or in files with one a line. */
#ifndef CLI_PROBLEMS_H
#define CLI_PROBLEMS_H

#include <stdbool.h>

/* "lstm:h8": a colon, and no file of that name. */
bool is_problem(const char *word);
/* What is done with a problem. `where` is "FILE:LINE", for report_at, or NULL for one of the command line. Gives an exit code. */
typedef int problem_function(void *context, const char *where, const char *problem);
/* Calls `each` for every problem of the words: problem strings, or files with one a line, '#' starting a comment; a file without
 * any is exit code 3. Stops at the first exit code that is not 0 and 1 and gives it; else 1 if one gave 1 (a check failed), else 0. */
int for_each_problem(char **words, int count, problem_function *each, void *context);

#endif
