/* Host memory: the caller's allocator or malloc, arenas of small pieces, growing text. */
#include "memory.h"

#include <limits.h>
#include <locale.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

/* ------------------------------------------------------------------------------------------------- allocator -- */
enum { HUGE_PAGE = 2 * 1024 * 1024 };

/* Large blocks on large pages where the system gives them: weights of which every step reads megabytes need 512 times fewer
 * translations of addresses. */
static void *malloc_alloc(void *context, size_t bytes, size_t align) {
    (void)context;
    const bool large = bytes >= 2 * (size_t)HUGE_PAGE;
    void *pointer = NULL;
    if (posix_memalign(&pointer, large ? (size_t)HUGE_PAGE : align, bytes) != 0) return NULL;
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (large) (void)madvise(pointer, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#endif
    return pointer;
}

static void malloc_free(void *context, void *pointer, size_t bytes) {
    (void)context;
    (void)bytes;
    free(pointer);
}

sl_allocator sli_allocator_or_default(const sl_allocator *allocator) {
    sl_allocator by_malloc = {malloc_alloc, malloc_free, NULL};
    return allocator ? *allocator : by_malloc;
}

/* A block of 0 bytes still has an address of its own, so that NULL always means failure. */
static size_t at_least_one(size_t bytes) {
    return bytes ? bytes : 1;
}

void *sli_alloc(const sl_allocator *allocator, size_t bytes) {
    sl_allocator a = sli_allocator_or_default(allocator);
    if (bytes > PTRDIFF_MAX) return NULL;
    return a.alloc(a.context, at_least_one(bytes), SLI_ALIGN);
}

void *sli_alloc_zero(const sl_allocator *allocator, size_t bytes) {
    void *pointer = sli_alloc(allocator, bytes);
    if (pointer) memset(pointer, 0, bytes);
    return pointer;
}

void sli_free(const sl_allocator *allocator, void *pointer, size_t bytes) {
    if (!pointer) return;
    sl_allocator a = sli_allocator_or_default(allocator);
    a.free(a.context, pointer, at_least_one(bytes));
}

/* ----------------------------------------------------------------------------------------------------- arena -- */
enum { ARENA_CHUNK = 4096, ARENA_ALIGN = 16 };

struct sli_arena_chunk {
    sli_arena_chunk *next;
    size_t bytes, used; /* of the whole chunk, this head included */
};
static const size_t chunk_head = (sizeof(sli_arena_chunk) + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;

void sli_arena_init(sli_arena *arena, const sl_allocator *allocator) {
    arena->allocator = sli_allocator_or_default(allocator);
    arena->chunks = NULL;
}

static sli_arena_chunk *arena_chunk(sli_arena *arena, size_t piece) {
    size_t bytes = chunk_head + piece > ARENA_CHUNK ? chunk_head + piece : ARENA_CHUNK;
    sli_arena_chunk *chunk = sli_alloc_zero(&arena->allocator, bytes);
    if (!chunk) return NULL;
    chunk->bytes = bytes;
    chunk->used = chunk_head;
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    return chunk;
}

void *sli_arena_alloc(sli_arena *arena, size_t bytes) {
    if (bytes > PTRDIFF_MAX / 2) return NULL;
    size_t piece = sli_round_up(at_least_one(bytes), ARENA_ALIGN);
    sli_arena_chunk *chunk = arena->chunks;
    if (!chunk || chunk->bytes - chunk->used < piece) chunk = arena_chunk(arena, piece);
    if (!chunk) return NULL;
    void *pointer = (char *)chunk + chunk->used;
    chunk->used += piece;
    return pointer;
}

char *sli_arena_string(sli_arena *arena, const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = sli_arena_alloc(arena, bytes);
    if (copy) memcpy(copy, text, bytes);
    return copy;
}

char *sli_arena_format(sli_arena *arena, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0) return NULL;
    char *text = sli_arena_alloc(arena, (size_t)length + 1);
    if (!text) return NULL;
    va_start(arguments, format);
    vsnprintf(text, (size_t)length + 1, format, arguments);
    va_end(arguments);
    return text;
}

void sli_arena_free(sli_arena *arena) {
    while (arena->chunks) {
        sli_arena_chunk *chunk = arena->chunks;
        arena->chunks = chunk->next;
        sli_free(&arena->allocator, chunk, chunk->bytes);
    }
}

void *sli_arena_push(sli_arena *arena, void *array_pointer, int *count, int *capacity, size_t element_bytes) {
    char *array;
    memcpy(&array, array_pointer, sizeof array);
    if (*count == *capacity) {
        if (*capacity > INT_MAX / 2) return NULL;
        int wider = *capacity ? 2 * *capacity : 8;
        size_t bytes;
        if (!sli_multiply((size_t)wider, element_bytes, &bytes)) return NULL;
        char *copy = sli_arena_alloc(arena, bytes);
        if (!copy) return NULL;
        if (*count) memcpy(copy, array, (size_t)*count * element_bytes);
        memcpy(array_pointer, &copy, sizeof copy);
        array = copy;
        *capacity = wider;
    }
    char *element = array + (size_t)(*count)++ * element_bytes;
    memset(element, 0, element_bytes);
    return element;
}

/* ------------------------------------------------------------------------------------------------------ text -- */
void sli_text_init(sli_text *text, const sl_allocator *allocator) {
    sli_text empty = {.allocator = sli_allocator_or_default(allocator)};
    *text = empty;
}

/* Room for `extra` more bytes and the terminating 0. */
static bool text_reserve(sli_text *text, size_t extra) {
    if (text->failed) return false;
    size_t needed, capacity = text->capacity ? text->capacity : 256;
    if (__builtin_add_overflow(text->length, extra, &needed) || needed > PTRDIFF_MAX / 2) {
        text->failed = true;
        return false;
    }
    if (text->data && needed < text->capacity) return true;
    while (capacity <= needed) capacity *= 2;
    char *data = sli_alloc(&text->allocator, capacity);
    if (!data) {
        text->failed = true;
        return false;
    }
    if (text->length) memcpy(data, text->data, text->length);
    data[text->length] = 0;
    sli_free(&text->allocator, text->data, text->capacity);
    text->data = data;
    text->capacity = capacity;
    return true;
}

void sli_text_append(sli_text *text, const char *bytes, size_t count) {
    if (!text_reserve(text, count)) return;
    if (count) memcpy(text->data + text->length, bytes, count);
    text->length += count;
    text->data[text->length] = 0;
}

void sli_text_printf(sli_text *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0) text->failed = true;
    if (length < 0 || !text_reserve(text, (size_t)length)) return;
    va_start(arguments, format);
    vsnprintf(text->data + text->length, (size_t)length + 1, format, arguments);
    va_end(arguments);
    text->length += (size_t)length;
}

char *sli_with_point(char *digits) {
    const char *mark = localeconv()->decimal_point;
    const size_t length = strlen(mark);
    char *at = length ? strstr(digits, mark) : NULL;
    if (!at) return digits;
    *at = '.';
    memmove(at + 1, at + length, strlen(at + length) + 1);
    return digits;
}

void sli_text_number(sli_text *text, double value) {
    char digits[40];
    snprintf(digits, sizeof digits, "%.6g", value);
    sli_with_point(digits);
    sli_text_append(text, digits, strlen(digits));
}

void sli_text_free(sli_text *text) {
    sli_free(&text->allocator, text->data, text->capacity);
    sli_text_init(text, &text->allocator);
}
