/* The files that a command reads and writes: none may be written over by chance. */
#ifndef CLI_FILES_H
#define CLI_FILES_H

#include "options.h"

typedef enum file_way { FILE_READ, FILE_WRITTEN, FILE_APPENDED /* line by line, with nothing beside it */ } file_way;

/* A file as the words name it; path NULL: not given. "-" is standard input. */
typedef struct file_use {
    const char *path;
    const char *option; /* "--out"; of words without an option what they are, "the text" */
    file_way way;
} file_use;

/* A sentence and exit code 2 where a file that is written is another one of `uses`, by whatever name or link; else 0. Pipes and
 * devices are not looked at: writing there destroys nothing. Nor is - a file that can be written. */
int refuse_same_files(const command *command, const file_use *uses, int count);
/* Is it what the command prints to? */
bool is_standard_output(const char *path);
/* ".NAME.lock" beside a file that is written for a long time. `path` NULL: none. */
typedef struct file_lock {
    char *path;
    int fd;
} file_lock;

/* A sentence and an exit code where another process writes `path` and holds the lock; else 0. What is no file, or stands where no lock can be made,
 * has none: writing there says why. */
int lock_file(const char *path, file_lock *lock);
void unlock_file(file_lock *lock);
/* A sentence and exit code 2 where `out` or `last`, its resume point, holds what a training would replace: a model, unless `overwrite`, or
 * anything else; else 0. */
int refuse_models(const command *command, const char *out, const char *last, bool overwrite);
/* The same for files of JSON lines whose first one does not begin with `key`; `path` may be NULL. */
int refuse_other_lines(const command *command, const char *option, const char *path, const char *key);
/* The same for a file without `mark` among its first bytes; `lacks` says what that means: "is no NumPy array". */
int refuse_other_marks(const command *command, const char *option, const char *path, const char *mark,
                       const char *lacks);

#endif
