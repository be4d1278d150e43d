/* Reading text files: joined in order, any content, clear refusals. */
#include <unistd.h>

#include "test.h"

static const char *write_file(const char *name, const char *bytes, size_t count) {
    static char paths[4][600];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", test_folder(), name);
    FILE *file = fopen(path, "wb");
    REQUIRE(file);
    REQUIRE(fwrite(bytes, 1, count, file) == count);
    REQUIRE(fclose(file) == 0);
    return path;
}

TEST(text_files_are_joined) {
    const char *paths[3] = {write_file("a", "one\n", 4), write_file("empty", "", 0), write_file("b", "t\0wo", 4)};
    char *text = NULL;
    size_t bytes = 0;
    REQUIRE_OK(sl_text_read(NULL, paths, 3, &text, &bytes));
    CHECK(bytes == 8 && memcmp(text, "one\nt\0wo", 8) == 0 && text[8] == 0);
    sl_text_free(text);
}

/* The first one's is the reader's, which at byte level keeps it. */
TEST(text_files_behind_others_lose_their_byte_order_mark) {
    const char *paths[4] = {write_file("none", "", 0), write_file("first", "\xEF\xBB\xBFone", 6),
                            write_file("alone", "\xEF\xBB\xBF", 3),
                            write_file("second", "\xEF\xBB\xBFt\xEF\xBB\xBF", 7)};
    char *text = NULL;
    size_t bytes = 0;
    REQUIRE_OK(sl_text_read(NULL, paths, 4, &text, &bytes));
    CHECK(bytes == 10 && memcmp(text, "\xEF\xBB\xBFonet\xEF\xBB\xBF", 11) == 0);
    sl_text_free(text);
}

TEST(text_from_a_pipe_of_unknown_size) {
    enum { COUNT = 300000 };
    char path[600], *text = NULL, *big = malloc(COUNT);
    size_t bytes = 0;
    REQUIRE(big);
    for (int i = 0; i < COUNT; i++) big[i] = (char)('a' + i % 23);
    write_file("big", big, COUNT);
    snprintf(path, sizeof path, "cat '%s/big'", test_folder());
    FILE *pipe = popen(path, "r");
    REQUIRE(pipe);
    snprintf(path, sizeof path, "/dev/fd/%d", fileno(pipe));
    const char *paths[1] = {path};
    sl_status status = sl_text_read(NULL, paths, 1, &text, &bytes);
    pclose(pipe);
    REQUIRE(status == SL_OK);
    CHECK(bytes == COUNT && memcmp(text, big, COUNT) == 0);
    sl_text_free(text);
    free(big);
}

TEST(text_that_cannot_be_read_is_named) {
    char *text = NULL;
    size_t bytes = 0;
    const char *missing[1] = {"/no/such/file"}, *folder[1] = {test_folder()}, *empty[1] = {write_file("e", "", 0)};
    CHECK_FAILS(sl_text_read(NULL, missing, 1, &text, &bytes), SL_ERR_FILE, "/no/such/file");
    CHECK_FAILS(sl_text_read(NULL, folder, 1, &text, &bytes), SL_ERR_FILE, "folder");
    CHECK_FAILS(sl_text_read(NULL, empty, 1, &text, &bytes), SL_ERR_INPUT, "empty");
    CHECK_FAILS(sl_text_read(NULL, empty, 0, &text, &bytes), SL_ERR_USAGE, NULL);
    CHECK(!text && bytes == 0);
}
