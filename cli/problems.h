/* Problem strings from the command line: given themselves, or in files with one a line. */
#ifndef CLI_PROBLEMS_H
#define CLI_PROBLEMS_H

#include <stdbool.h>

/* "lstm:h8": a colon, and no file of that name. */
bool is_problem(const char *word);
/* Calls `each` for every problem of the words: problem strings, or files with one a line, '#' starting a comment. Stops at the
 * first exit code that is not 0 and 1 and gives it; else 1 if one gave 1 (a check failed), else 0. */
int for_each_problem(char **words, int count, int (*each)(void *context, const char *problem), void *context);

#endif
