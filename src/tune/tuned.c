/* The file of times: read whole, written through a temporary file, under a lock so that what another process adds is kept. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/atomic_file.h"
#include "tune/tune.h"

/* A file that grew beyond this is written without its oldest lines. */
enum { MOST_BYTES = 1 << 20 };
static const char heading[] = "# what sluice --tune measured: machine, problem, kernel, microseconds of a call\n";

/* ------------------------------------------------------------------------------------------------------- machine -- */
/* A sentence without tabs and line ends: what must be the same for a time to be worth something. */
static char *machine_of(sli_arena *arena, const sli_caps *caps, const sli_device_ops *ops) {
    char text[1400] = "", name[32];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(caps->name, ":"), caps->name);
    if (ops->identify) ops->identify(caps, text, sizeof text);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ') *c = ' ';
    bool cpu = caps->kind == SLI_DEVICE_CPU;
    if (cpu)
        return sli_arena_format(arena, "sluice %s, %s, %s, %s, %d threads", sl_version(), caps->name, text,
                                sli_isa_name(caps->isa), caps->threads);
    return sli_arena_format(arena, "sluice %s, %s, %s, %s", sl_version(), name, text,
                            caps->graphs ? "graphs" : "no graphs");
}

/* $XDG_CACHE_HOME/sluice/tuned.txt; relative paths do not count. */
static char *path_of(sli_arena *arena) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && cache[0] == '/') return sli_arena_format(arena, "%s/sluice/tuned.txt", cache);
    return home && home[0] == '/' ? sli_arena_format(arena, "%s/.cache/sluice/tuned.txt", home) : NULL;
}

/* ------------------------------------------------------------------------------------------------------- reading -- */
/* Four fields between tabs, the last a positive number; changes the line. */
static bool parse_line(char *line, sli_tuned_time *time) {
    char *fields[4];
    for (int k = 0; k < 4; k++) {
        fields[k] = line;
        line = line ? strchr(line, '\t') : NULL;
        if ((line != NULL) != (k < 3) || line == fields[k]) return false;
        if (line) *line++ = 0;
    }
    double microseconds;
    if (!sli_number_parse(fields[3], strlen(fields[3]), &microseconds) || !(microseconds > 0)) return false;
    *time = (sli_tuned_time){fields[0], fields[1], fields[2], 1e-6 * microseconds, NULL};
    return true;
}

/* A pipe or a device: reading one may wait for ever. */
static bool is_other(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 && !S_ISREG(about.st_mode);
}

/* A file that cannot be read is as good as none. */
static sl_status read_times(sli_tuned *tuned) {
    sli_bytes bytes;
    sli_tuned_time **tail = &tuned->times, time;
    *tail = NULL;
    if (!tuned->path || is_other(tuned->path)) return SL_OK;
    sl_status status = sli_bytes_read(&tuned->arena.allocator, tuned->path, "file of times", 2 * MOST_BYTES, &bytes);
    if (status == SL_ERR_OUT_OF_MEMORY) return status;
    sli_clear_error();
    if (status != SL_OK) return SL_OK;
    char *text = sli_arena_alloc(&tuned->arena, bytes.size + 1);
    if (text) memcpy(text, bytes.data, bytes.size);
    size_t size = bytes.size;
    sli_bytes_free(&bytes);
    if (!text) return sli_fail_memory("the file of times", size);
    for (char *line = text, *next; line < text + size; line = next) {
        next = line + strcspn(line, "\n") + 1;
        next[-1] = 0;
        if (line[0] == '#' || !parse_line(line, &time)) continue;
        *tail = sli_arena_alloc(&tuned->arena, sizeof time);
        if (!*tail) return sli_fail_memory("the file of times", sizeof time);
        **tail = time;
        tail = &(*tail)->next;
    }
    return SL_OK;
}

sl_status sli_tuned_open(const sl_allocator *allocator, const sli_caps *caps, const sli_device_ops *ops,
                         sli_tuned *tuned) {
    memset(tuned, 0, sizeof *tuned);
    sli_arena_init(&tuned->arena, allocator);
    tuned->machine = machine_of(&tuned->arena, caps, ops);
    if (!tuned->machine) return sli_fail_memory("the file of times", 256);
    tuned->path = path_of(&tuned->arena);
    return read_times(tuned);
}

void sli_tuned_close(sli_tuned *tuned) {
    sli_arena_free(&tuned->arena);
}

static const sli_tuned_time *find(const sli_tuned_time *time, const char *machine, const char *problem,
                                  const char *kernel) {
    for (; time; time = time->next)
        if (strcmp(time->problem, problem) == 0 && strcmp(time->kernel, kernel) == 0 &&
            strcmp(time->machine, machine) == 0)
            return time;
    return NULL;
}

double sli_tuned_seconds(const sli_tuned *tuned, const char *problem, const char *kernel) {
    const sli_tuned_time *time = find(tuned->added, tuned->machine, problem, kernel);
    if (!time) time = find(tuned->times, tuned->machine, problem, kernel);
    return time ? time->seconds : -1;
}

/* ------------------------------------------------------------------------------------------------------- writing -- */
sl_status sli_tuned_add(sli_tuned *tuned, const char *problem, const char *kernel, double seconds) {
    sli_tuned_time *time = sli_arena_alloc(&tuned->arena, sizeof *time);
    char *p = sli_arena_string(&tuned->arena, problem), *k = sli_arena_string(&tuned->arena, kernel);
    if (!time || !p || !k) return sli_fail_memory("times", sizeof *time);
    *time = (sli_tuned_time){tuned->machine, p, k, seconds, tuned->added};
    tuned->added = time;
    return SL_OK;
}

/* Makes the folders of `path`, the last for its owner alone; what is there stays as it is. */
static sl_status make_folders(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        int failed = mkdir(path, 0700) != 0 && errno != EEXIST ? errno : 0;
        struct stat info;
        if (!failed && (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))) failed = ENOTDIR;
        *slash = '/';
        SLI_FAIL_IF(failed, SL_ERR_IO, "%s: its folder cannot be made (%s)", path, strerror(failed));
    }
    return SL_OK;
}

static void put_times(sli_text *text, const sli_tuned *tuned, const sli_tuned_time *time, bool old) {
    for (; time && text->length < MOST_BYTES; time = time->next) {
        if (old && find(tuned->added, time->machine, time->problem, time->kernel)) continue;
        sli_text_printf(text, "%s\t%s\t%s\t", time->machine, time->problem, time->kernel);
        sli_text_number(text, 1e6 * time->seconds);
        sli_text_append(text, "\n", 1);
    }
}

static sl_status write_times(sli_tuned *tuned) {
    sli_text text;
    sli_atomic_file file;
    sli_text_init(&text, &tuned->arena.allocator);
    sli_text_append(&text, heading, strlen(heading));
    put_times(&text, tuned, tuned->added, false);
    put_times(&text, tuned, tuned->times, true);
    sl_status status = text.failed ? sli_fail_memory("the file of times", text.length) : SL_OK;
    if (status == SL_OK) status = sli_atomic_begin(&file, tuned->path);
    if (status == SL_OK) {
        (void)!fchmod(file.fd, 0600);
        status = sli_atomic_append(&file, text.data, text.length);
        if (status == SL_OK) status = sli_atomic_commit(&file);
    }
    sli_text_free(&text);
    return status;
}

sl_status sli_tuned_save(sli_tuned *tuned) {
    if (!tuned->added) return SL_OK;
    SLI_FAIL_IF(!tuned->path, SL_ERR_IO, "neither XDG_CACHE_HOME nor HOME names a folder");
    SLI_FAIL_IF(is_other(tuned->path), SL_ERR_IO, "%s is no file", tuned->path);
    SLI_TRY(make_folders(tuned->path));
    char *slash = strrchr(tuned->path, '/');
    *slash = 0;
    int folder = open(tuned->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *slash = '/';
    if (folder >= 0) (void)!flock(folder, LOCK_EX); /* where there are no locks the last to write wins */
    sl_status status = read_times(tuned);
    if (status == SL_OK) status = write_times(tuned);
    if (folder >= 0) close(folder);
    return status;
}
