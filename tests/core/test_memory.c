/* Allocators, arenas, growing text: alignment, contents, every failing allocation. */
#include "core/memory.h"
#include "test.h"

/* Counts what is out and fails the allocation number `fail_at` (from 1; 0 = never). */
typedef struct counter {
    size_t live_bytes;
    int live, calls, fail_at;
    size_t align;
} counter;

static void *counting_alloc(void *context, size_t bytes, size_t align) {
    counter *c = context;
    if (++c->calls == c->fail_at) return NULL;
    void *pointer = NULL;
    if (posix_memalign(&pointer, align, bytes) != 0) return NULL;
    memset(pointer, 0xA5, bytes);
    c->live++;
    c->live_bytes += bytes;
    c->align = align;
    return pointer;
}

static void counting_free(void *context, void *pointer, size_t bytes) {
    counter *c = context;
    c->live--;
    c->live_bytes -= bytes;
    free(pointer);
}

static sl_allocator counting(counter *c) {
    sl_allocator allocator = {counting_alloc, counting_free, c};
    return allocator;
}

TEST(memory_alloc_is_aligned_and_balanced) {
    counter c = {0};
    sl_allocator allocator = counting(&c);
    static const size_t sizes[] = {0, 1, 63, 64, 65, 100000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char *pointer = sli_alloc_zero(&allocator, sizes[i]);
        REQUIRE(pointer);
        CHECK((uintptr_t)pointer % SLI_ALIGN == 0);
        CHECK(c.align == SLI_ALIGN);
        for (size_t k = 0; k < sizes[i]; k++) REQUIRE(pointer[k] == 0);
        sli_free(&allocator, pointer, sizes[i]);
        CHECK(c.live == 0 && c.live_bytes == 0);
    }
    sli_free(&allocator, NULL, 10);
    CHECK(c.live == 0);
    char *by_malloc = sli_alloc(NULL, 100);
    REQUIRE(by_malloc);
    memset(by_malloc, 1, 100);
    sli_free(NULL, by_malloc, 100);
}

TEST(memory_alloc_failure_is_null) {
    counter c = {.fail_at = 1};
    sl_allocator allocator = counting(&c);
    CHECK(sli_alloc_zero(&allocator, 10) == NULL);
    CHECK(sli_alloc(NULL, SIZE_MAX) == NULL);
    size_t product;
    CHECK(sli_multiply(3, 5, &product) && product == 15);
    CHECK(!sli_multiply(SIZE_MAX / 2, 3, &product));
    CHECK(sli_round_up(0, 64) == 0 && sli_round_up(1, 64) == 64 && sli_round_up(64, 64) == 64);
}

TEST(memory_arena_pieces_are_apart_and_zero) {
    counter c = {0};
    sl_allocator allocator = counting(&c);
    sli_arena arena;
    sli_arena_init(&arena, &allocator);
    uint64_t state = test_seed;
    unsigned char *piece[200];
    size_t bytes[200];
    for (int i = 0; i < 200; i++) {
        bytes[i] = (size_t)((test_random(&state) + 1) * (i % 20 == 0 ? 5000 : 100));
        piece[i] = sli_arena_alloc(&arena, bytes[i]);
        REQUIRE(piece[i]);
        CHECK((uintptr_t)piece[i] % 16 == 0);
        for (size_t k = 0; k < bytes[i]; k++) REQUIRE(piece[i][k] == 0);
        memset(piece[i], i + 1, bytes[i]);
    }
    for (int i = 0; i < 200; i++)
        for (size_t k = 0; k < bytes[i]; k++) REQUIRE(piece[i][k] == (unsigned char)(i + 1));
    CHECK(sli_arena_alloc(&arena, SIZE_MAX - 5) == NULL);
    CHECK(c.calls < 200);
    sli_arena_free(&arena);
    CHECK(c.live == 0 && c.live_bytes == 0);
}

TEST(memory_arena_strings) {
    sli_arena arena;
    sli_arena_init(&arena, NULL);
    char source[] = "layer1";
    char *copy = sli_arena_string(&arena, source);
    source[0] = 'X';
    REQUIRE(copy);
    CHECK(strcmp(copy, "layer1") == 0);
    char *text = sli_arena_format(&arena, "%s.%s%d", copy, "kernel", 12);
    REQUIRE(text);
    CHECK(strcmp(text, "layer1.kernel12") == 0);
    sli_arena_free(&arena);
    CHECK(arena.chunks == NULL);
}

TEST(memory_arena_push_grows) {
    sli_arena arena;
    sli_arena_init(&arena, NULL);
    struct item {
        int a;
        double b;
    } *items = NULL;
    int count = 0, capacity = 0;
    for (int i = 0; i < 1000; i++) {
        struct item *item = sli_arena_push(&arena, &items, &count, &capacity, sizeof *items);
        REQUIRE(item);
        CHECK(item == &items[i]);
        CHECK(item->a == 0 && item->b == 0);
        item->a = i;
        item->b = i * 0.5;
    }
    CHECK(count == 1000 && capacity >= 1000);
    for (int i = 0; i < 1000; i++) REQUIRE(items[i].a == i && items[i].b == i * 0.5);
    sli_arena_free(&arena);
}

TEST(memory_arena_failure_changes_nothing) {
    counter c = {.fail_at = 2};
    sl_allocator allocator = counting(&c);
    sli_arena arena;
    sli_arena_init(&arena, &allocator);
    int *numbers = NULL, count = 0, capacity = 0;
    while (count < 5000) {
        int *number = sli_arena_push(&arena, &numbers, &count, &capacity, sizeof *numbers);
        if (!number) break;
        *number = count;
    }
    CHECK(count > 0 && count < 5000);
    for (int i = 0; i < count; i++) REQUIRE(numbers[i] == i + 1);
    c.fail_at = c.calls + 1;
    char large[5000];
    memset(large, 'a', sizeof large - 1);
    large[sizeof large - 1] = 0;
    CHECK(sli_arena_string(&arena, large) == NULL);
    c.fail_at = c.calls + 1;
    CHECK(sli_arena_format(&arena, "%s", large) == NULL);
    sli_arena_free(&arena);
    CHECK(c.live == 0);
}

TEST(memory_text_grows) {
    counter c = {0};
    sl_allocator allocator = counting(&c);
    sli_text text;
    sli_text_init(&text, &allocator);
    CHECK(text.data == NULL && text.length == 0);
    sli_text_append(&text, "", 0);
    REQUIRE(text.data);
    CHECK(text.data[0] == 0);
    for (int i = 0; i < 500; i++) {
        sli_text_printf(&text, "%04d", i);
        sli_text_append(&text, ";\0", 2);
    }
    CHECK(!text.failed);
    CHECK(text.length == 3000);
    CHECK(text.data[3000] == 0);
    for (int i = 0; i < 500; i++) REQUIRE(atoi(text.data + 6 * i) == i && text.data[6 * i + 5] == 0);
    sli_text_free(&text);
    CHECK(text.data == NULL && text.length == 0 && c.live == 0 && c.live_bytes == 0);
}

TEST(memory_text_failure_is_kept) {
    counter c = {.fail_at = 2};
    sl_allocator allocator = counting(&c);
    sli_text text;
    sli_text_init(&text, &allocator);
    sli_text_append(&text, "start", 5);
    while (!text.failed && text.length < 100000) sli_text_printf(&text, "%s", " and so on");
    CHECK(text.failed);
    size_t length = text.length;
    CHECK(text.data && strlen(text.data) == length && strncmp(text.data, "start", 5) == 0);
    sli_text_append(&text, "x", 1);
    CHECK(text.failed && text.length == length);
    sli_text_free(&text);
    CHECK(c.live == 0);
    sli_text_append(&text, "x", SIZE_MAX - 1);
    CHECK(text.failed);
    sli_text_free(&text);
}
