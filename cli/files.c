/* Is a file that will be written one of those that are read? */
#include "files.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "sluice.h"

/* What is compared: the file, or, where there is none yet, its folder and its name in it. */
typedef struct identity {
    bool known, there;
    dev_t device;
    ino_t inode;
    const char *name;
} identity;

static identity identity_of(const char *path) {
    struct stat about;
    if (stat(path, &about) == 0) return (identity){S_ISREG(about.st_mode), true, about.st_dev, about.st_ino, ""};
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    const int length = snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    if (length < 0 || (size_t)length >= sizeof folder || stat(folder, &about) != 0) return (identity){0};
    return (identity){true, false, about.st_dev, about.st_ino, slash ? slash + 1 : path};
}

static bool is_same(const identity *a, const identity *b) {
    return a->known && b->known && a->there == b->there && a->device == b->device && a->inode == b->inode &&
           strcmp(a->name, b->name) == 0;
}

int refuse_same_files(const command *command, const file_use *uses, int count) {
    for (int i = 0; i < count; i++) {
        if (!uses[i].path || !uses[i].written) continue;
        const identity written = identity_of(uses[i].path);
        for (int k = 0; k < count; k++) {
            if (k == i || !uses[k].path || (uses[k].written && k > i) || strcmp(uses[k].path, "-") == 0) continue;
            const identity other = identity_of(uses[k].path);
            if (is_same(&written, &other))
                return usage_error(command, "%s %s is the same file as %s, which would be lost; give another name",
                                   uses[i].option, uses[i].path, uses[k].option);
        }
    }
    return 0;
}

int refuse_other_files(const command *command, const char *path) {
    struct stat about;
    sl_file *file = NULL;
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode) || about.st_size == 0) return 0;
    const sl_status status = sl_file_open(NULL, path, &file);
    sl_file_close(file);
    if (status == SL_OK || status == SL_ERR_OUT_OF_MEMORY) return 0;
    return usage_error(command, "--out %s is there and is no model file; give another name, or remove it", path);
}
