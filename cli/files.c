/* Is a file that will be written one of those that are read, or one that would be lost? */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"

/* What is compared: the file, or, where there is none yet, its folder and its name in it. */
typedef struct identity {
    bool known, there;
    dev_t device;
    ino_t inode;
    char name[PATH_MAX];
} identity;

/* Where a link leads that ends at nothing yet: what is written will be made there. Gives `real`, or NULL for what no path holds. */
static const char *end_of_links(const char *path, char real[PATH_MAX]) {
    char target[PATH_MAX];
    ssize_t length;
    if (strlen(path) >= PATH_MAX) return NULL;
    memcpy(real, path, strlen(path) + 1);
    for (int links = 0; links < 40 && (length = readlink(real, target, sizeof target)) >= 0; links++) {
        const char *slash = target[0] == '/' ? NULL : strrchr(real, '/');
        const size_t folder = slash ? (size_t)(slash - real) + 1 : 0;
        if (folder + (size_t)length >= PATH_MAX) return NULL;
        memcpy(real + folder, target, (size_t)length);
        real[folder + (size_t)length] = 0;
    }
    return real;
}

static identity identity_of(const file_use *use) {
    struct stat about;
    const bool input = use->way == FILE_READ && strcmp(use->path, "-") == 0;
    if ((input ? fstat(STDIN_FILENO, &about) : stat(use->path, &about)) == 0)
        return (identity){S_ISREG(about.st_mode), true, about.st_dev, about.st_ino, ""};
    identity none = {0};
    if (input || !end_of_links(use->path, none.name)) return none;
    char *slash = strrchr(none.name, '/'), *name = slash ? slash + 1 : none.name;
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(name - none.name) : 1, slash ? none.name : ".");
    if (stat(folder, &about) != 0) return none;
    memmove(none.name, name, strlen(name) + 1);
    none.known = true;
    none.device = about.st_dev;
    none.inode = about.st_ino;
    return none;
}

static bool is_same(const identity *a, const identity *b) {
    return a->known && b->known && a->there == b->there && a->device == b->device && a->inode == b->inode &&
           strcmp(a->name, b->name) == 0;
}

/* Is it what stands beside `path` while that is written, and is used up then? */
static bool is_beside(const char *path, const identity *other) {
    static const char *const ends[] = {"tmp", "lock"};
    char real[PATH_MAX], beside[2 * PATH_MAX];
    if (!end_of_links(path, real)) return false;
    const char *slash = strrchr(real, '/'), *name = slash ? slash + 1 : real;
    for (int i = 0; i < 2; i++) {
        snprintf(beside, sizeof beside, "%.*s.%s.%s", (int)(name - real), real, name, ends[i]);
        const file_use use = {beside, NULL, FILE_WRITTEN};
        const identity own = identity_of(&use);
        if (is_same(&own, other)) return true;
    }
    return false;
}

int refuse_same_files(const command *command, const file_use *uses, int count) {
    for (int i = 0; i < count; i++) {
        if (!uses[i].path || uses[i].way == FILE_READ) continue;
        if (strcmp(uses[i].path, "-") == 0)
            return usage_error(command, "%s - is no name of a file; give one", uses[i].option);
        const identity written = identity_of(&uses[i]);
        for (int k = 0; k < count; k++) {
            if (k == i || !uses[k].path) continue;
            const identity other = identity_of(&uses[k]);
            if (uses[i].way == FILE_WRITTEN && is_beside(uses[i].path, &other))
                return usage_error(
                    command, "%s %s is used beside %s while that is written, and would be lost; give another name",
                    uses[k].option, uses[k].path, uses[i].option);
            if (uses[k].way != FILE_READ && k > i) continue;
            if (is_same(&written, &other))
                return usage_error(command, "%s %s is the same file as %s, which would be lost; give another name",
                                   uses[i].option, uses[i].path, uses[k].option);
        }
    }
    return 0;
}

bool is_standard_output(const char *path) {
    struct stat named, output;
    return stat(path, &named) == 0 && fstat(STDOUT_FILENO, &output) == 0 && named.st_dev == output.st_dev &&
           named.st_ino == output.st_ino;
}

/* Is there something at `path` that could be lost? Empty files and what is no file are not. */
static bool holds_bytes(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0;
}

/* What it is nobody can say. */
static int refuse_unreadable(const command *command, const char *option, const char *path) {
    if (access(path, R_OK) == 0) return 0;
    return usage_error(command, "%s %s is there and may not be read (%s); give another name", option, path,
                       strerror(errno));
}

/* `point`: a resume point; else a model, which is one only where there was no validation. */
static int refuse_model(const command *command, const char *option, const char *path, bool point, bool overwrite) {
    sl_file *file = NULL;
    sl_training training;
    if (!holds_bytes(path)) return 0;
    const int code = refuse_unreadable(command, option, path);
    if (code) return code;
    const sl_status status = sl_file_open(NULL, path, &file);
    const char *format = sl_file_metadata(file, "format"), *state = sl_file_metadata(file, "training");
    const bool ours = status == SL_ERR_OUT_OF_MEMORY || (format && strcmp(format, "sluice") == 0);
    const int64_t steps = state ? training_number(state, "step") : 0;
    const bool validated =
        sl_file_metadata(file, "valid") || (file_training(file, &training) && training.valid_fraction > 0);
    sl_file_close(file);
    if (!ours)
        return usage_error(command, "%s %s is there and is no model file of ours; give another name, or remove it",
                           option, path);
    if (overwrite) return 0;
    if (steps > 0 && (point || !validated))
        return usage_error(command,
                           "%s %s is there, trained for %lld steps; --resume goes on with that training, --overwrite "
                           "replaces it",
                           option, path, (long long)steps);
    return usage_error(
        command, "%s %s is there, a model without its resume point; give another name, or --overwrite to replace it",
        option, path);
}

int refuse_models(const command *command, const char *out, const char *last, bool overwrite) {
    const int code = refuse_model(command, "the resume point of --out", last, true, overwrite);
    return code ? code : refuse_model(command, "--out", out, false, overwrite);
}

/* Gives up what another process has removed, or made anew, meanwhile. */
static int open_lock(const char *path) {
    struct stat opened, named;
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return -1;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        if (fstat(fd, &opened) == 0 && stat(path, &named) == 0 && opened.st_ino == named.st_ino &&
            opened.st_dev == named.st_dev)
            return fd;
        errno = EAGAIN;
    }
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

int lock_file(const char *path, file_lock *lock) {
    char real[PATH_MAX];
    struct stat about;
    *lock = (file_lock){NULL, -1};
    if (!end_of_links(path, real) || (stat(real, &about) == 0 && !S_ISREG(about.st_mode))) return 0;
    const char *slash = strrchr(real, '/'), *name = slash ? slash + 1 : real;
    if (asprintf(&lock->path, "%.*s.%s.lock", (int)(name - real), real, name) < 0) {
        lock->path = NULL;
        return report_memory();
    }
    for (int k = 0; k < 3 && lock->fd < 0; k++) { /* its holder may be removing it */
        if (k > 0) usleep(20000);
        lock->fd = open_lock(lock->path);
    }
    if (lock->fd >= 0) return 0;
    const bool held = errno == EWOULDBLOCK || errno == EAGAIN;
    free(lock->path);
    lock->path = NULL;
    return held
               ? report_as(SL_ERR_IO, "%s: another training writes there; wait for its end, or give another name", path)
               : 0;
}

void unlock_file(file_lock *lock) {
    if (!lock->path) return;
    (void)unlink(lock->path);
    close(lock->fd);
    free(lock->path);
    *lock = (file_lock){NULL, -1};
}

int refuse_other_lines(const command *command, const char *option, const char *path, const char *key) {
    char wanted[64], start[64];
    if (!path || !holds_bytes(path)) return 0;
    FILE *file = fopen(path, "r");
    if (!file) return 0; /* what may not be read: opening it for writing says why */
    const int length = snprintf(wanted, sizeof wanted, "{\"%s\":", key);
    const size_t there = fread(start, 1, (size_t)length, file); /* a kill may have left less than the beginning */
    fclose(file);
    if (there > 0 && memcmp(start, wanted, there) == 0) return 0;
    return usage_error(command, "%s %s is there and holds no lines of this command; give another name, or remove it",
                       option, path);
}

int refuse_other_marks(const command *command, const char *option, const char *path, const char *mark,
                       const char *lacks) {
    char start[256];
    if (!holds_bytes(path)) return 0;
    const int code = refuse_unreadable(command, option, path);
    if (code) return code;
    FILE *file = fopen(path, "rb");
    const size_t bytes = file ? fread(start, 1, sizeof start, file) : 0;
    if (file) fclose(file);
    if (memmem(start, bytes, mark, strlen(mark))) return 0;
    return usage_error(command, "%s %s is there and %s; give another name, or remove it", option, path, lacks);
}
