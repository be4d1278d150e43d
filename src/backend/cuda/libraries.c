/* NVIDIA's libraries (cuBLASLt, cuDNN) by dlopen. They come with CUDA, with Linux packages, and with Python packages that put
 * them where no loader looks; the places below are tried in order and the first library that opens is taken:
 *   1. the folders of SLUICE_LIBRARY_PATH (with colons between them);
 *   2. wherever the loader finds it: LD_LIBRARY_PATH, ld.so.cache, and libraries that the process has open already;
 *   3. the Python environments VIRTUAL_ENV, CONDA_PREFIX and of the python3 in PATH: nvidia/ * /lib in their packages;
 *   4. CUDA's own folders.
 * A library's siblings (libcudnn_adv beside libcudnn) are found by NVIDIA's own run path, $ORIGIN. */
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "backend/cuda/load.h"

typedef struct search {
    const char *const *names;
    void *library;
    char failed[160]; /* why the first file that was there did not open */
} search;

static bool open_file(search *s, const char *path) {
    s->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *error = s->library ? NULL : dlerror();
    if (error && s->failed[0] == 0) snprintf(s->failed, sizeof s->failed, "%s", error);
    return s->library != NULL;
}

/* The loader's own search. An error about the name itself only says that it is not there. */
static bool open_by_name(search *s, const char *name) {
    s->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    const char *error = s->library ? NULL : dlerror();
    if (error && s->failed[0] == 0 && strncmp(error, name, strlen(name)) != 0)
        snprintf(s->failed, sizeof s->failed, "%s", error);
    return s->library != NULL;
}

static bool look_in(search *s, const char *folder) {
    for (const char *const *name = s->names; *name; name++) {
        char path[PATH_MAX];
        int length = snprintf(path, sizeof path, "%s/%s", folder, *name);
        if (length < 0 || (size_t)length >= sizeof path || access(path, R_OK) != 0) continue;
        if (open_file(s, path)) return true;
    }
    return false;
}

/* Folders with colons between them. */
static bool look_in_list(search *s, const char *list) {
    while (list && *list) {
        const char *end = strchrnul(list, ':');
        char folder[PATH_MAX];
        int length = snprintf(folder, sizeof folder, "%.*s", (int)(end - list), list);
        if (length > 0 && (size_t)length < sizeof folder && look_in(s, folder)) return true;
        list = *end ? end + 1 : end;
    }
    return false;
}

/* All folders of a pattern, the last in alphabetical order first: cuda-13.1 before cuda-13.0. */
static bool look_in_pattern(search *s, const char *pattern) {
    glob_t found;
    if (glob(pattern, 0, NULL, &found) != 0) return false;
    for (size_t i = found.gl_pathc; i-- > 0 && s->library == NULL;) look_in(s, found.gl_pathv[i]);
    globfree(&found);
    return s->library != NULL;
}

/* A Python environment's packages: PREFIX/lib/python3.11/site-packages/nvidia/cudnn/lib. */
static bool look_in_python(search *s, const char *prefix) {
    static const char *const packages[] = {"site", "dist"}; /* dist: Debian's own Python */
    if (prefix == NULL || *prefix == 0) return false;
    for (size_t i = 0; i < sizeof packages / sizeof *packages; i++) {
        char pattern[PATH_MAX];
        int length = snprintf(pattern, sizeof pattern, "%s/lib/python3*/%s-packages/nvidia/*/lib", prefix, packages[i]);
        if (length > 0 && (size_t)length < sizeof pattern && look_in_pattern(s, pattern)) return true;
    }
    return false;
}

/* Cuts the last `count` components off a path. */
static bool cut(char *path, int count) {
    for (; count > 0; count--) {
        char *slash = strrchr(path, '/');
        if (slash == NULL) return false;
        *slash = 0;
    }
    return true;
}

/* The environment of the first python3 in PATH: as it is named (a virtual environment), then as links lead (its base). */
static bool look_in_path_python(search *s) {
    char program[PATH_MAX], resolved[PATH_MAX];
    for (const char *list = secure_getenv("PATH"); list && *list;) {
        const char *end = strchrnul(list, ':');
        int length = snprintf(program, sizeof program, "%.*s/python3", (int)(end - list), list);
        list = *end ? end + 1 : end;
        if (length < 0 || (size_t)length >= sizeof program || access(program, X_OK) != 0) continue;
        const bool real = realpath(program, resolved) != NULL;
        if (cut(program, 2) && look_in_python(s, program)) return true;
        if (real && cut(resolved, 2) && look_in_python(s, resolved)) return true;
        break;
    }
    const char *home = secure_getenv("HOME");
    int length = snprintf(program, sizeof program, "%s/.local", home ? home : "");
    if (home && *home && length > 0 && (size_t)length < sizeof program && look_in_python(s, program)) return true;
    return look_in_python(s, "/usr/local");
}

static bool look_everywhere(search *s) {
    static const char *const folders[] = {"/usr/local/cuda/lib64", "/usr/local/cuda-1[3-9]*/lib64", "/opt/cuda/lib64",
                                          "/usr/lib/x86_64-linux-gnu", "/usr/lib64"};
    if (look_in_list(s, secure_getenv("SLUICE_LIBRARY_PATH"))) return true;
    for (const char *const *name = s->names; *name; name++)
        if (open_by_name(s, *name)) return true;
    if (look_in_python(s, secure_getenv("VIRTUAL_ENV")) || look_in_python(s, secure_getenv("CONDA_PREFIX")))
        return true;
    if (look_in_path_python(s)) return true;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (look_in_pattern(s, folders[i])) return true;
    return false;
}

void *sli_library_open(const char *const *names, sli_why *why) {
    search s = {.names = names};
    if (look_everywhere(&s)) return s.library;
    if (s.failed[0])
        sli_refuse(why, "%s does not open: %s", names[0], s.failed);
    else
        sli_refuse(why,
                   "%s was not found by the loader, in Python environments (VIRTUAL_ENV, python3) or in "
                   "/usr/local/cuda/lib64: name its folder in SLUICE_LIBRARY_PATH",
                   names[0]);
    return NULL;
}

void sli_library_path(const void *address, char *path, size_t capacity) {
    Dl_info info;
    snprintf(path, capacity, "%s", dladdr(address, &info) && info.dli_fname ? info.dli_fname : "");
}
