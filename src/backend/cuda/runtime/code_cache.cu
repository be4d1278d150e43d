/* Compiled kernels on disk. A file is written under a temporary name and renamed, so that a reader sees it whole or not at
 * all, whoever else writes; what it holds is checked against its key and sum before it is used. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backend/cuda/runtime/code_cache.h"

/* ---------------------------------------------------------------------------------------------------- SHA-256 --
 * FIPS 180-4. */
static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, int by) {
    return x >> by | x << (32 - by);
}

static void add_block(uint32_t state[8], const uint8_t *block) {
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
               block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        const uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] + (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        const uint32_t t1 = v[7] + (turn(v[4], 6) ^ turn(v[4], 11) ^ turn(v[4], 25)) +
                            ((v[4] & v[5]) ^ (~v[4] & v[6])) + round_constants[i] + w[i];
        const uint32_t t2 =
            (turn(v[0], 2) ^ turn(v[0], 13) ^ turn(v[0], 22)) + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) state[i] += v[i];
}

void sli_sha256_begin(sli_sha256 *hash) {
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(hash->state, first, sizeof first);
    hash->bytes = 0;
}

void sli_sha256_add(sli_sha256 *hash, const void *data, size_t bytes) {
    const uint8_t *from = (const uint8_t *)data;
    while (bytes > 0) {
        const size_t at = hash->bytes % sizeof hash->block, room = sizeof hash->block - at;
        const size_t taken = bytes < room ? bytes : room;
        memcpy(hash->block + at, from, taken);
        hash->bytes += taken;
        from += taken;
        bytes -= taken;
        if (taken == room) add_block(hash->state, hash->block);
    }
}

sli_digest sli_sha256_end(sli_sha256 *hash) {
    static const uint8_t pad[64] = {0x80};
    const uint64_t bits = hash->bytes * 8, at = hash->bytes % 64;
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)(bits >> (56 - 8 * i));
    sli_sha256_add(hash, pad, (size_t)(at < 56 ? 56 - at : 120 - at));
    sli_sha256_add(hash, length, sizeof length);
    sli_digest digest;
    for (int i = 0; i < 32; i++) digest.byte[i] = (uint8_t)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
    return digest;
}

/* -------------------------------------------------------------------------------------------------------- code -- */
bool sli_code_alloc(sli_code *code) {
    code->log = (char *)malloc(code->log_bytes + code->cubin_bytes);
    code->cubin = code->log ? code->log + code->log_bytes : NULL;
    return code->log != NULL;
}

void sli_code_free(sli_code *code) {
    free(code->log);
    memset(code, 0, sizeof *code);
}

/* ------------------------------------------------------------------------------------------------------ folder -- */
static const char suffix[] = ".cubin", unfinished[] = ".tmp";
enum { STALE_SECONDS = 3600 }; /* a temporary file that old belongs to nobody who still writes */

/* A descriptor of the folder, which is made if need be; -1: there is none that is ours alone. */
static int open_folder(void) {
    const char *wish = secure_getenv("SLUICE_CACHE"), *cache = secure_getenv("XDG_CACHE_HOME");
    const char *home = secure_getenv("HOME");
    char folder[PATH_MAX];
    if (wish && strcmp(wish, "0") == 0) return -1;
    const bool given = cache && cache[0] == '/'; /* a relative one is to be ignored, says the XDG specification */
    if (!given && (!home || home[0] != '/')) return -1;
    int length = snprintf(folder, sizeof folder, "%s%s", given ? cache : home, given ? "" : "/.cache");
    if (length < 0 || (size_t)length + sizeof "/sluice" > sizeof folder) return -1;
    (void)mkdir(folder, 0700);
    memcpy(folder + length, "/sluice", sizeof "/sluice");
    (void)mkdir(folder, 0700);
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat about;
    if (fd >= 0 && fstat(fd, &about) == 0 && about.st_uid == geteuid() && (about.st_mode & 022) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

/* -------------------------------------------------------------------------------------------------------- files -- */
static const char magic[8] = {'S', 'L', 'C', 'O', 'D', 'E', '0', '1'};
typedef struct file_head {
    char magic[8];
    sli_digest key, sum; /* sum: of log and cubin */
    uint64_t log_bytes, cubin_bytes;
} file_head;

static sli_digest sum_of(const sli_code *code) {
    sli_sha256 hash;
    sli_sha256_begin(&hash);
    sli_sha256_add(&hash, code->log, code->log_bytes + code->cubin_bytes);
    return sli_sha256_end(&hash);
}

static bool read_all(int fd, void *to, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = read(fd, (char *)to + done, bytes - done);
        if (got <= 0) return false;
        done += (size_t)got;
    }
    return true;
}

static bool write_all(int fd, const void *from, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t put = write(fd, (const char *)from + done, bytes - done);
        if (put <= 0) return false;
        done += (size_t)put;
    }
    return true;
}

static bool read_file(int fd, const sli_digest *key, sli_code *code) {
    const uint64_t most = (uint64_t)SLI_CACHE_MOST_MIB << 20;
    struct stat about;
    file_head head;
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || about.st_uid != geteuid() || (about.st_mode & 022) != 0)
        return false;
    if (!read_all(fd, &head, sizeof head) || memcmp(head.magic, magic, sizeof magic) != 0 ||
        memcmp(&head.key, key, sizeof *key) != 0)
        return false;
    if (head.log_bytes == 0 || head.log_bytes > most || head.cubin_bytes == 0 || head.cubin_bytes > most ||
        (uint64_t)about.st_size != sizeof head + head.log_bytes + head.cubin_bytes)
        return false;
    code->log_bytes = (size_t)head.log_bytes;
    code->cubin_bytes = (size_t)head.cubin_bytes;
    if (!sli_code_alloc(code)) return false;
    const bool whole = read_all(fd, code->log, code->log_bytes + code->cubin_bytes);
    const sli_digest sum = sum_of(code);
    if (whole && memcmp(&sum, &head.sum, sizeof sum) == 0 && code->log[code->log_bytes - 1] == 0) return true;
    sli_code_free(code);
    return false;
}

bool sli_code_cache_read(const char *name, const sli_digest *key, sli_code *code) {
    const int folder = open_folder();
    if (folder < 0) return false;
    /* O_NONBLOCK: a pipe of this name is not waited for. */
    const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    close(folder);
    if (fd < 0) return false;
    const bool found = read_file(fd, key, code);
    if (found) (void)futimens(fd, NULL); /* its age is since it was last used */
    close(fd);
    return found;
}

/* ------------------------------------------------------------------------------------------------------- tidying -- */
typedef struct aged {
    char name[NAME_MAX + 1];
    struct timespec time;
    uint64_t bytes;
} aged;

static int older_first(const void *left, const void *right) {
    const aged *a = (const aged *)left, *b = (const aged *)right;
    if (a->time.tv_sec != b->time.tv_sec) return a->time.tv_sec < b->time.tv_sec ? -1 : 1;
    if (a->time.tv_nsec != b->time.tv_nsec) return a->time.tv_nsec < b->time.tv_nsec ? -1 : 1;
    return strcmp(a->name, b->name);
}

static bool ends_in(const char *name, const char *end) {
    const size_t length = strlen(name), tail = strlen(end);
    return length > tail && strcmp(name + length - tail, end) == 0;
}

/* The folder's compiled kernels, `count` of them, to be freed; temporary files that nobody finishes are deleted. */
static aged *list_files(int folder, DIR *all, size_t *count) {
    size_t capacity = 0;
    aged *files = NULL;
    *count = 0;
    for (const struct dirent *entry; (entry = readdir(all)) != NULL;) {
        const bool temporary = ends_in(entry->d_name, unfinished) && strstr(entry->d_name, ".cubin.") != NULL;
        struct stat about;
        if ((!temporary && !ends_in(entry->d_name, suffix)) ||
            fstatat(folder, entry->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(about.st_mode))
            continue;
        if (temporary) {
            if (time(NULL) - about.st_mtim.tv_sec > STALE_SECONDS) (void)unlinkat(folder, entry->d_name, 0);
            continue;
        }
        if (*count == capacity) {
            capacity = capacity ? 2 * capacity : 64;
            aged *more = (aged *)realloc(files, capacity * sizeof *files);
            if (!more) break;
            files = more;
        }
        aged *file = &files[(*count)++];
        snprintf(file->name, sizeof file->name, "%s", entry->d_name);
        file->time = about.st_mtim;
        file->bytes = (uint64_t)about.st_size;
    }
    return files;
}

/* Deletes the files that were not used for the longest time, until the limits hold; never `fresh`. */
static void tidy(int folder, const char *fresh) {
    const int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *all = again >= 0 ? fdopendir(again) : NULL;
    if (!all) {
        if (again >= 0) close(again);
        return;
    }
    size_t count;
    aged *files = list_files(folder, all, &count);
    closedir(all);
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++) bytes += files[i].bytes;
    if (count > 1) qsort(files, count, sizeof *files, older_first);
    size_t left = count;
    for (size_t i = 0; i < count; i++) {
        if (left <= SLI_CACHE_MOST_FILES && bytes <= (uint64_t)SLI_CACHE_MOST_MIB << 20) break;
        if (strcmp(files[i].name, fresh) == 0) continue;
        (void)unlinkat(folder, files[i].name, 0);
        left--;
        bytes -= files[i].bytes;
    }
    free(files);
}

/* ------------------------------------------------------------------------------------------------------- writing -- */
/* A new file beside `name`; -1: none can be made. */
static int open_temporary(int folder, const char *name, char *temporary, size_t capacity) {
    static unsigned calls;
    for (int attempt = 0; attempt < 8; attempt++) {
        const unsigned call = __atomic_fetch_add(&calls, 1u, __ATOMIC_RELAXED);
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        const int length =
            snprintf(temporary, capacity, "%s.%ld-%u-%ld%s", name, (long)getpid(), call, (long)now.tv_nsec, unfinished);
        if (length < 0 || (size_t)length >= capacity) return -1;
        const int fd = openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0) return fd;
    }
    return -1;
}

void sli_code_cache_write(const char *name, const sli_digest *key, const sli_code *code) {
    char temporary[NAME_MAX + 1];
    file_head head;
    const int folder = open_folder();
    if (folder < 0) return;
    const int fd = open_temporary(folder, name, temporary, sizeof temporary);
    if (fd >= 0) {
        memset(&head, 0, sizeof head);
        memcpy(head.magic, magic, sizeof magic);
        head.key = *key;
        head.sum = sum_of(code);
        head.log_bytes = code->log_bytes;
        head.cubin_bytes = code->cubin_bytes;
        bool written =
            write_all(fd, &head, sizeof head) && write_all(fd, code->log, code->log_bytes + code->cubin_bytes);
        written = close(fd) == 0 && written;
        if (!written || renameat(folder, temporary, folder, name) != 0)
            (void)unlinkat(folder, temporary, 0);
        else
            tidy(folder, name);
    }
    close(folder);
}
