/* Files whole or not at all: reading with clear errors, and writing through a temporary file that replaces the old one only
 * when every byte is on the disk. */
#ifndef SLI_ATOMIC_FILE_H
#define SLI_ATOMIC_FILE_H

#include <limits.h>
#include "core/memory.h"

/* ----------------------------------------------------------------------------------------------------- reading -- */
/* A file, pipe or block of memory being read from its start. `what` is a static name for sentences: "model file". */
typedef struct sli_input {
    const char *path; /* borrowed; "memory" for a block */
    const char *what;
    int fd;               /* -1 for a block of memory */
    const uint8_t *bytes; /* of a block of memory */
    bool size_known;      /* false for pipes */
    uint64_t size, position;
} sli_input;

/* SL_ERR_FILE: missing, not permitted, a directory, a device. */
sl_status sli_input_open(sli_input *input, const char *path, const char *what);
void sli_input_open_memory(sli_input *input, const void *bytes, size_t size, const char *what);
/* Reads until `count` bytes or the end; *got is less than `count` only at the end. SL_ERR_IO if the disk fails. */
sl_status sli_input_read(sli_input *input, void *to, size_t count, size_t *got);
void sli_input_close(sli_input *input);

/* A whole file in memory. */
typedef struct sli_bytes {
    uint8_t *data; /* SLI_ALIGN aligned */
    size_t size, capacity;
    sl_allocator allocator;
} sli_bytes;
/* SL_ERR_FILE also for an empty file and for one of more than `limit` bytes. */
sl_status sli_bytes_read(const sl_allocator *allocator, const char *path, const char *what, uint64_t limit,
                         sli_bytes *bytes);
void sli_bytes_free(sli_bytes *bytes);

/* ----------------------------------------------------------------------------------------------------- writing -- */
/* begin, append..., commit or abort. Until commit the old file is untouched; after a failure it still is, and the temporary
 * file is gone. A path that names a device or a pipe ("/dev/stdout") is written directly. */
typedef struct sli_atomic_file {
    int fd;              /* -1 when closed */
    bool direct;         /* a device or pipe: nothing to rename */
    uint64_t written;    /* bytes so far */
    const char *shown;   /* the path as the caller wrote it, borrowed, for sentences */
    char path[PATH_MAX]; /* links resolved */
    char temporary[PATH_MAX];
} sli_atomic_file;

sl_status sli_atomic_begin(sli_atomic_file *file, const char *path);
sl_status sli_atomic_append(sli_atomic_file *file, const void *bytes, size_t count);
/* fsync, rename, fsync of the folder. */
sl_status sli_atomic_commit(sli_atomic_file *file);
/* Removes the temporary file; nothing happens after commit or a second time. Keeps the recorded sentence. */
void sli_atomic_abort(sli_atomic_file *file);
/* All of it in one call. */
sl_status sli_atomic_write(const char *path, const void *bytes, size_t count);

#endif
