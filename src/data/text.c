/* Reading text files. The block starts with a header that remembers capacity and allocator, so that it can grow while a
 * pipe is read and still be freed by its text pointer alone. */
#include "data/text.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct text_header {
    sl_allocator allocator;
    size_t capacity; /* of the whole block, header included */
} text_header;

enum { HEADER_BYTES = 64, READ_AT_ONCE = 1 << 24 };
_Static_assert(sizeof(text_header) <= HEADER_BYTES, "the text keeps the block's alignment");

typedef struct text_block {
    sl_allocator allocator;
    char *block; /* NULL while empty */
    size_t capacity, length;
} text_block;

/* Room for `more` bytes and a 0 behind them. */
static sl_status reserve(text_block *text, size_t more) {
    size_t need, capacity;
    if (__builtin_add_overflow(text->length, more, &need) || __builtin_add_overflow(need, HEADER_BYTES + 1, &need))
        return sli_fail_memory("the text", SIZE_MAX);
    if (need <= text->capacity) return SL_OK;
    capacity = text->block && text->capacity <= SIZE_MAX / 2 && text->capacity * 2 > need ? text->capacity * 2 : need;
    char *block = sli_alloc(&text->allocator, capacity);
    if (!block) return sli_fail_memory("the text", capacity);
    if (text->block) memcpy(block, text->block, HEADER_BYTES + text->length);
    sli_free(&text->allocator, text->block, text->capacity);
    text->block = block;
    text->capacity = capacity;
    return SL_OK;
}

static sl_status read_all(text_block *text, int file, const char *name, size_t expected) {
    size_t room = expected;
    for (;;) {
        /* One byte beyond the expected size finds the end of the file without growing the block. */
        if (room == 0) {
            char byte;
            ssize_t got = read(file, &byte, 1);
            if (got == 0) return SL_OK;
            if (got < 0 && errno == EINTR) continue;
            SLI_FAIL_IF(got < 0, SL_ERR_FILE, "%s: reading fails: %s", name, strerror(errno));
            SLI_TRY(reserve(text, 1 << 16));
            text->block[HEADER_BYTES + text->length++] = byte;
            room = text->capacity - HEADER_BYTES - 1 - text->length;
        }
        size_t want = room < READ_AT_ONCE ? room : READ_AT_ONCE;
        ssize_t got = want ? read(file, text->block + HEADER_BYTES + text->length, want) : 0;
        if (got < 0 && errno == EINTR) continue;
        SLI_FAIL_IF(got < 0, SL_ERR_FILE, "%s: reading fails: %s", name, strerror(errno));
        if (got == 0 && want) return SL_OK;
        text->length += (size_t)got;
        room -= (size_t)got;
    }
}

static sl_status read_path(text_block *text, const char *path) {
    bool standard_input = strcmp(path, "-") == 0;
    const char *name = standard_input ? "standard input" : path;
    int file = standard_input ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    SLI_FAIL_IF(file < 0, SL_ERR_FILE, "%s: cannot be opened (%s); check the name and its permissions", name,
                strerror(errno));
    struct stat info;
    sl_status status = SL_OK;
    size_t expected = 0;
    if (fstat(file, &info) != 0)
        status = sli_fail(SL_ERR_FILE, "%s: cannot be read: %s", name, strerror(errno));
    else if (S_ISDIR(info.st_mode))
        status = sli_fail(SL_ERR_FILE, "%s: is a folder: name the text files in it", name);
    else if (S_ISBLK(info.st_mode) || (S_ISCHR(info.st_mode) && !isatty(file))) /* /dev/zero has no end */
        status = sli_fail(SL_ERR_FILE, "%s: is a device, not a text; give a file or a pipe", name);
    else if (S_ISREG(info.st_mode) && info.st_size > 0)
        expected = (size_t)info.st_size;
    if (status == SL_OK) status = reserve(text, expected);
    if (status == SL_OK) status = read_all(text, file, name, expected);
    if (!standard_input) close(file);
    return status;
}

/* A byte order mark that a text behind others begins with. */
static void drop_mark(text_block *text, size_t at) {
    static const char mark[] = "\xEF\xBB\xBF";
    const size_t bytes = sizeof mark - 1;
    if (at == 0 || text->length - at < bytes || memcmp(text->block + HEADER_BYTES + at, mark, bytes) != 0) return;
    char *from = text->block + HEADER_BYTES + at;
    text->length -= bytes;
    memmove(from, from + bytes, text->length - at);
}

sl_status sli_text_read(const sl_allocator *allocator, const char *const *paths, int count, char **text,
                        size_t *bytes) {
    text_block block = {.allocator = sli_allocator_or_default(allocator)};
    sl_status status = SL_OK;
    *text = NULL;
    *bytes = 0;
    for (int i = 0; i < count && status == SL_OK; i++) {
        const size_t at = block.length;
        status = read_path(&block, paths[i]);
        if (status == SL_OK) drop_mark(&block, at);
    }
    if (status == SL_OK && block.length == 0)
        status = sli_fail(SL_ERR_INPUT, "%s: is empty: give one that is not",
                          strcmp(paths[0], "-") == 0 ? "standard input" : paths[0]);
    if (status != SL_OK) {
        sli_free(&block.allocator, block.block, block.capacity);
        return status;
    }
    text_header header = {block.allocator, block.capacity};
    memcpy(block.block, &header, sizeof header);
    block.block[HEADER_BYTES + block.length] = 0;
    *text = block.block + HEADER_BYTES;
    *bytes = block.length;
    return SL_OK;
}

void sli_text_release(char *text) {
    if (!text) return;
    text_header header;
    memcpy(&header, text - HEADER_BYTES, sizeof header);
    sli_free(&header.allocator, text - HEADER_BYTES, header.capacity);
}
