/* Host memory: the caller's allocator, growing text, growing arrays, small arenas for descriptions. */
#ifndef SLI_MEMORY_H
#define SLI_MEMORY_H

#include <stdarg.h>
#include <stdbool.h>
#include "status.h"

enum { SLI_ALIGN = 64 }; /* every tensor, every block */

/* `allocator` or malloc's if NULL. */
sl_allocator sli_allocator_or_default(const sl_allocator *allocator);
void *sli_alloc(const sl_allocator *allocator, size_t bytes); /* SLI_ALIGN aligned, not cleared; NULL on failure */
void *sli_alloc_zero(const sl_allocator *allocator, size_t bytes);
void sli_free(const sl_allocator *allocator, void *pointer, size_t bytes); /* NULL is allowed */

static inline size_t sli_round_up(size_t value, size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}
static inline int sli_divide_up(size_t value, int by) {
    return (int)((value + (size_t)by - 1) / (size_t)by);
}
static inline int sli_least(int a, int b) {
    return a < b ? a : b;
}
/* *out = a*b; false on overflow. */
static inline bool sli_multiply(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

/* Arena: many small allocations, freed together. Used by models and plans, never by runs. */
typedef struct sli_arena_chunk sli_arena_chunk;
typedef struct sli_arena {
    sl_allocator allocator;
    sli_arena_chunk *chunks;
} sli_arena;
void sli_arena_init(sli_arena *arena, const sl_allocator *allocator);
void *sli_arena_alloc(sli_arena *arena, size_t bytes);      /* 16-byte aligned, zeroed; NULL on failure */
char *sli_arena_string(sli_arena *arena, const char *text); /* copy; NULL on failure */
char *sli_arena_format(sli_arena *arena, const char *format, ...) SLI_PRINTF(2, 3);
void sli_arena_free(sli_arena *arena);

/* Growing text. After a failed append `failed` stays set and text is still a valid string. */
typedef struct sli_text {
    sl_allocator allocator;
    char *data; /* terminated by 0; NULL while empty */
    size_t length, capacity;
    bool failed;
    bool infinite; /* JSON has no such number: sli_json_append_number */
} sli_text;
void sli_text_init(sli_text *text, const sl_allocator *allocator);
void sli_text_append(sli_text *text, const char *bytes, size_t count);
void sli_text_printf(sli_text *text, const char *format, ...) SLI_PRINTF(2, 3);
/* A number that snprintf wrote, with a point in place of the locale's mark; returns it. */
char *sli_with_point(char *digits);
/* Six digits, as %.6g, with a point in any locale: for what programs read. sli_number_parse reads it. */
void sli_text_number(sli_text *text, double value);
void sli_text_free(sli_text *text);

/* Growing array in an arena: returns the new element, zeroed, or NULL. The array doubles; old copies stay in the arena. */
void *sli_arena_push(sli_arena *arena, void *array_pointer, int *count, int *capacity, size_t element_bytes);

#endif
