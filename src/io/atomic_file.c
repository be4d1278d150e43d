/* Files whole or not at all: see atomic_file.h. */
#include "io/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* strerror is not thread-safe; GNU's strerror_r may or may not use the buffer. */
typedef struct reason {
    char text[128];
} reason;
static const char *reason_of(int error, reason *buffer) {
    return strerror_r(error, buffer->text, sizeof buffer->text);
}

/* ----------------------------------------------------------------------------------------------------- reading -- */
static sl_status fail_open(const sli_input *input, int error) {
    reason buffer;
    if (error == ENOENT || error == ENOTDIR)
        return sli_fail(SL_ERR_FILE, "%s: there is no such %s; check the path", input->path, input->what);
    if (error == EACCES || error == EPERM)
        return sli_fail(SL_ERR_FILE, "%s: the %s may not be read (%s); change its permissions or run as its owner",
                        input->path, input->what, reason_of(error, &buffer));
    return sli_fail(SL_ERR_FILE, "%.400s: the %s cannot be opened (%s)", input->path, input->what,
                    reason_of(error, &buffer));
}

sl_status sli_input_open(sli_input *input, const char *path, const char *what) {
    *input = (sli_input){.path = path, .what = what, .fd = -1};
    SLI_FAIL_IF(!path[0], SL_ERR_FILE, "the path of the %s is empty; give a file name", what);
    /* O_NONBLOCK would make a pipe look empty before its writer comes: plain open. */
    input->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (input->fd < 0) return fail_open(input, errno);
    struct stat info;
    sl_status status = SL_OK;
    if (fstat(input->fd, &info) != 0)
        status = fail_open(input, errno);
    else if (S_ISDIR(info.st_mode))
        status = sli_fail(SL_ERR_FILE, "%s: is a folder, not a %s; give the file inside it", path, what);
    else if (!S_ISREG(info.st_mode) && !S_ISFIFO(info.st_mode) && !S_ISSOCK(info.st_mode))
        status = sli_fail(SL_ERR_FILE, "%s: is a device, not a %s; give a file or a pipe", path, what);
    if (status != SL_OK) {
        sli_input_close(input);
        return status;
    }
    input->size_known = S_ISREG(info.st_mode);
    input->size = input->size_known ? (uint64_t)info.st_size : 0;
    return SL_OK;
}

void sli_input_open_memory(sli_input *input, const void *bytes, size_t size, const char *what) {
    *input = (sli_input){.path = "memory", .what = what, .fd = -1, .bytes = bytes, .size_known = true, .size = size};
}

sl_status sli_input_read(sli_input *input, void *to, size_t count, size_t *got) {
    *got = 0;
    if (input->fd < 0) {
        size_t left = (size_t)(input->size - input->position);
        *got = count < left ? count : left;
        if (*got) memcpy(to, input->bytes + input->position, *got);
        input->position += *got;
        return SL_OK;
    }
    while (*got < count) {
        size_t piece = count - *got < ((size_t)1 << 30) ? count - *got : (size_t)1 << 30;
        ssize_t n = read(input->fd, (char *)to + *got, piece);
        if (n == 0) break;
        if (n < 0 && errno == EINTR) continue;
        reason buffer;
        SLI_FAIL_IF(n < 0, SL_ERR_IO, "%s: reading the %s failed at byte %llu (%s)", input->path, input->what,
                    (unsigned long long)input->position, reason_of(errno, &buffer));
        *got += (size_t)n;
        input->position += (size_t)n;
    }
    return SL_OK;
}

void sli_input_close(sli_input *input) {
    if (input->fd >= 0) close(input->fd);
    input->fd = -1;
}

/* Doubles the buffer of a pipe whose length nobody knows. */
static sl_status bytes_grow(sli_bytes *bytes, size_t capacity, const char *what) {
    uint8_t *data = sli_alloc(&bytes->allocator, capacity);
    if (!data) return sli_fail_memory(what, capacity);
    if (bytes->size) memcpy(data, bytes->data, bytes->size);
    sli_free(&bytes->allocator, bytes->data, bytes->capacity);
    bytes->data = data;
    bytes->capacity = capacity;
    return SL_OK;
}

static sl_status bytes_fill(sli_input *input, uint64_t limit, sli_bytes *bytes) {
    SLI_FAIL_IF(input->size_known && input->size > limit, SL_ERR_FILE,
                "%s: the %s has %llu bytes, more than the %llu that are read; is it the right file?", input->path,
                input->what, (unsigned long long)input->size, (unsigned long long)limit);
    /* One byte more than the known size, so that the end of the file is seen without growing. */
    size_t capacity = input->size_known ? (size_t)input->size + 1 : (size_t)1 << 16;
    for (;;) {
        SLI_TRY(bytes_grow(bytes, capacity, input->what));
        size_t got;
        SLI_TRY(sli_input_read(input, bytes->data + bytes->size, bytes->capacity - bytes->size, &got));
        bytes->size += got;
        if (bytes->size < bytes->capacity) break;
        SLI_FAIL_IF(bytes->size > limit || !sli_multiply(capacity, 2, &capacity), SL_ERR_FILE,
                    "%s: the %s has more than the %llu bytes that are read; is it the right file?", input->path,
                    input->what, (unsigned long long)limit);
    }
    SLI_FAIL_IF(bytes->size == 0, SL_ERR_FILE, "%s: the %s is empty; write it again or give another one", input->path,
                input->what);
    return SL_OK;
}

sl_status sli_bytes_read(const sl_allocator *allocator, const char *path, const char *what, uint64_t limit,
                         sli_bytes *bytes) {
    *bytes = (sli_bytes){.allocator = sli_allocator_or_default(allocator)};
    sli_input input;
    SLI_TRY(sli_input_open(&input, path, what));
    sl_status status = bytes_fill(&input, limit, bytes);
    sli_input_close(&input);
    if (status != SL_OK) sli_bytes_free(bytes);
    return status;
}

void sli_bytes_free(sli_bytes *bytes) {
    sli_free(&bytes->allocator, bytes->data, bytes->capacity);
    bytes->data = NULL;
    bytes->size = bytes->capacity = 0;
}

/* ----------------------------------------------------------------------------------------------------- writing -- */
static sl_status fail_write(const sli_atomic_file *file, const char *doing, int error) {
    const char *advice = "check the disk and try again";
    if (error == ENOSPC || error == EDQUOT) advice = "free some space or write elsewhere";
    if (error == EFBIG) advice = "raise the limit on file sizes (ulimit -f) or write elsewhere";
    if (error == EACCES || error == EPERM || error == EROFS) advice = "choose a folder that you may write to";
    if (error == ENOENT || error == ENOTDIR) advice = "make the folder first or choose another";
    if (error == ENAMETOOLONG) advice = "choose a shorter name";
    if (error == ELOOP) advice = "remove the link that leads back to itself";
    reason buffer;
    struct stat info;
    bool older = !file->direct && file->path[0] && stat(file->path, &info) == 0;
    return sli_fail(SL_ERR_IO, "%.400s: %s failed (%s); %s%s", file->shown, doing, reason_of(error, &buffer), advice,
                    older ? "; the older file of that name is unchanged" : "");
}

/* The folder of file->path with its slash: the length of that prefix. */
static size_t folder_length(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* file->path, if it is a link, becomes what that points to, which is not there yet. */
static int follow_links(sli_atomic_file *file) {
    enum { MOST_LINKS = 40 };
    char target[PATH_MAX];
    ssize_t length;
    for (int links = 0; (length = readlink(file->path, target, sizeof target)) >= 0; links++) {
        size_t folder = target[0] == '/' ? 0 : folder_length(file->path);
        if (links == MOST_LINKS) return ELOOP;
        if (folder + (size_t)length >= sizeof file->path) return ENAMETOOLONG;
        memcpy(file->path + folder, target, (size_t)length);
        file->path[folder + (size_t)length] = 0;
    }
    return 0;
}

/* Resolves links, so that the file behind a link is replaced, or made, and not the link. */
static sl_status resolve(sli_atomic_file *file) {
    char resolved[PATH_MAX];
    struct stat info;
    const char *path = realpath(file->shown, resolved) ? resolved : file->shown;
    if (strlen(path) >= sizeof file->path) return fail_write(file, "opening it for writing", ENAMETOOLONG);
    memcpy(file->path, path, strlen(path) + 1);
    /* A pipe's link in /proc names no path, but the pipe is there. */
    int error = path == file->shown && stat(path, &info) != 0 ? follow_links(file) : 0;
    return error ? fail_write(file, "opening it for writing", error) : SL_OK;
}

/* Opens the temporary file `.NAME.tmp` of the same folder. A name without a process id means that what a killed process left
 * is used up by the next one; the lock keeps two living ones apart: the second takes `.NAME.1.tmp`. */
static bool open_temporary(sli_atomic_file *file, int number) {
    size_t folder = folder_length(file->path);
    char suffix[24] = ".tmp";
    if (number) snprintf(suffix, sizeof suffix, ".%d.tmp", number);
    int length = snprintf(file->temporary, sizeof file->temporary, "%.*s.%s%s", (int)folder, file->path,
                          file->path + folder, suffix);
    if (length < 0 || (size_t)length >= sizeof file->temporary) {
        errno = ENAMETOOLONG;
        return false;
    }
    int fd = open(file->temporary, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return false;
    struct stat opened, named;
    int error = EWOULDBLOCK;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        error = errno;
    } else if (fstat(fd, &opened) == 0 && stat(file->temporary, &named) == 0 && opened.st_ino == named.st_ino &&
               opened.st_dev == named.st_dev && S_ISREG(opened.st_mode)) { /* not renamed away meanwhile */
        if (ftruncate(fd, 0) == 0) {
            file->fd = fd;
            return true;
        }
        error = errno;
    }
    close(fd);
    errno = error;
    return false;
}

sl_status sli_atomic_begin(sli_atomic_file *file, const char *path) {
    file->fd = -1;
    file->direct = false;
    file->written = 0;
    file->shown = path;
    file->path[0] = file->temporary[0] = 0;
    SLI_FAIL_IF(!path[0], SL_ERR_IO, "the path of the file to write is empty; give a file name");
    SLI_TRY(resolve(file));
    struct stat info;
    bool exists = stat(file->path, &info) == 0;
    size_t length = strlen(file->path);
    SLI_FAIL_IF((exists && S_ISDIR(info.st_mode)) || file->path[length - 1] == '/', SL_ERR_IO,
                "%s: is a folder; give the name of a file inside it", path);
    if (exists && !S_ISREG(info.st_mode)) {
        file->direct = true;
        file->fd = open(file->path, O_WRONLY | O_CLOEXEC);
        return file->fd < 0 ? fail_write(file, "opening it for writing", errno) : SL_OK;
    }
    /* A rename asks for no right to write to what it replaces: who took it away wants the file kept. */
    if (exists && faccessat(AT_FDCWD, file->path, W_OK, AT_EACCESS) != 0 && errno == EACCES)
        return sli_fail(SL_ERR_IO, "%s: is write-protected; change its permissions, or give another name", path);
    for (int number = 0; number < 64; number++) {
        if (open_temporary(file, number)) {
            if (exists) (void)!fchmod(file->fd, info.st_mode & 07777);
            return SL_OK;
        }
        if (errno != EWOULDBLOCK && errno != ELOOP) break;
    }
    int error = errno;
    file->temporary[0] = 0;
    return fail_write(file, "writing a temporary file beside it", error);
}

sl_status sli_atomic_append(sli_atomic_file *file, const void *bytes, size_t count) {
    const char *from = bytes;
    while (count > 0) {
        ssize_t n = write(file->fd, from, count < ((size_t)1 << 30) ? count : (size_t)1 << 30);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            sl_status status = fail_write(file, "writing", n == 0 ? ENOSPC : errno);
            sli_atomic_abort(file);
            return status;
        }
        from += n;
        count -= (size_t)n;
        file->written += (uint64_t)n;
    }
    return SL_OK;
}

/* The rename itself is on the disk only when the folder is. Some file systems cannot sync folders: that is no failure. */
static sl_status sync_folder(const sli_atomic_file *file) {
    char folder[PATH_MAX];
    size_t length = folder_length(file->path);
    memcpy(folder, file->path, length);
    memcpy(folder + length, ".", 2);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return SL_OK;
    int error = fsync(fd) == 0 ? 0 : errno;
    close(fd);
    reason buffer;
    SLI_FAIL_IF(error == EIO, SL_ERR_IO, "%s: the new file is there, but its folder could not be synced (%s)",
                file->shown, reason_of(error, &buffer));
    return SL_OK;
}

sl_status sli_atomic_commit(sli_atomic_file *file) {
    int error = fsync(file->fd) == 0 ? 0 : errno;
    if (file->direct && (error == EINVAL || error == EROFS || error == ENOTSUP)) error = 0; /* a pipe has no disk */
    sl_status status = error ? fail_write(file, "writing to the disk", error) : SL_OK;
    if (status == SL_OK && !file->direct && rename(file->temporary, file->path) != 0)
        status = fail_write(file, "replacing the old file", errno);
    if (status != SL_OK) {
        sli_atomic_abort(file);
        return status;
    }
    file->temporary[0] = 0;
    int closed = close(file->fd);
    file->fd = -1;
    if (closed != 0 && errno != EINTR) return fail_write(file, "closing it", errno);
    return file->direct ? SL_OK : sync_folder(file);
}

void sli_atomic_abort(sli_atomic_file *file) {
    if (file->fd >= 0 && file->temporary[0]) unlink(file->temporary); /* before close: the lock still holds */
    if (file->fd >= 0) close(file->fd);
    file->fd = -1;
    file->temporary[0] = 0;
}

sl_status sli_atomic_write(const char *path, const void *bytes, size_t count) {
    sli_atomic_file file;
    SLI_TRY(sli_atomic_begin(&file, path));
    SLI_TRY(sli_atomic_append(&file, bytes, count));
    return sli_atomic_commit(&file);
}
