/* What the tests of src/io share: small files and folders, and calls made as an ordinary user. */
#ifndef IO_HELPERS_H
#define IO_HELPERS_H

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "test.h"

/* FOLDER/NAME in one of four rotating buffers. */
static inline const char *io_path(const char *folder, const char *name) {
    static char paths[4][1024];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static inline void io_write_file(const char *path, const void *bytes, size_t count) {
    FILE *file = fopen(path, "wb");
    REQUIRE(file);
    REQUIRE(fwrite(bytes, 1, count, file) == count);
    REQUIRE(fclose(file) == 0);
}

/* The whole file, malloc'd, with a 0 behind it. */
static inline char *io_read_file(const char *path, size_t *count) {
    FILE *file = fopen(path, "rb");
    REQUIRE(file);
    fseek(file, 0, SEEK_END);
    *count = (size_t)ftell(file);
    rewind(file);
    char *bytes = calloc(*count + 1, 1);
    REQUIRE(bytes && fread(bytes, 1, *count, file) == *count);
    fclose(file);
    return bytes;
}

/* Files in a folder, hidden ones included. */
static inline int io_count_files(const char *folder) {
    DIR *dir = opendir(folder);
    REQUIRE(dir);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(dir));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    return count;
}

/* Runs call(context) in a child that is not root; true if it returned true there. */
static inline bool io_as_ordinary_user(bool (*call)(void *context), void *context) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(2);
        _exit(call(context) ? 0 : 1);
    }
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

#endif
