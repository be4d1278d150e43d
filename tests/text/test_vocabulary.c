/* Vocabularies: what a token is at every level, order, limits, encoding, JSON, and what is refused. */
#include "test.h"

static sl_vocabulary *make(sl_level level, const char *text, int limit) {
    sl_vocabulary *v = NULL;
    REQUIRE_OK(sl_vocabulary_new(NULL, level, text, strlen(text), limit, &v));
    return v;
}

/* The tokens of a text, joined by '|'; "<eos>" decodes to a line end, shown as '$'. */
static const char *encoded(const sl_vocabulary *v, const char *text) {
    static char out[1000];
    int32_t *tokens = NULL;
    size_t count = 0, used = 0;
    REQUIRE_OK(sl_vocabulary_encode(v, text, strlen(text), &tokens, &count));
    out[0] = 0;
    for (size_t i = 0; i < count; i++) {
        size_t bytes;
        const char *token = sl_vocabulary_token(v, tokens[i], &bytes);
        bool line_end = bytes == 1 && token[0] == '\n';
        used += (size_t)snprintf(out + used, sizeof out - used, "%s%.*s", i ? "|" : "", line_end ? 1 : (int)bytes,
                                 line_end ? "$" : token);
    }
    sl_tokens_free(v, tokens, count);
    return out;
}

static const char *token(const sl_vocabulary *v, int id) {
    static char out[100];
    size_t bytes;
    const char *text = sl_vocabulary_token(v, id, &bytes);
    snprintf(out, sizeof out, "%.*s", (int)bytes, text ? text : "");
    return out;
}

TEST(vocabulary_words_by_frequency_ties_by_first_appearance) {
    sl_vocabulary *v = make(SL_LEVEL_WORD, "b a  c\ta\nc b\r\nd\n", 0);
    CHECK(sl_vocabulary_size(v) == 6);
    CHECK(sl_vocabulary_level(v) == SL_LEVEL_WORD);
    CHECK(strcmp(token(v, 0), "\n") == 0); /* three line ends */
    CHECK(strcmp(token(v, 1), "b") == 0);
    CHECK(strcmp(token(v, 2), "a") == 0);
    CHECK(strcmp(token(v, 3), "c") == 0);
    CHECK(strcmp(token(v, 4), "d") == 0);
    CHECK(strcmp(encoded(v, "a b\n\nc"), "a|b|$|$|c") == 0); /* no line end after the last line: no token */
    CHECK(strcmp(token(v, 5), "<unk>") == 0);
    CHECK(sl_vocabulary_token(v, 6, NULL) == NULL);
    CHECK(sl_vocabulary_token(v, -1, NULL) == NULL);
    sl_vocabulary_free(v);
}

TEST(vocabulary_limit_keeps_unknown_and_line_end) {
    /* a 3, b 3, c 2, line end 1, d 1: a limit of 4 has room for two words. */
    sl_vocabulary *v = make(SL_LEVEL_WORD, "a a a b b b c c d\n", 4);
    CHECK(sl_vocabulary_size(v) == 4);
    CHECK(strcmp(token(v, 0), "a") == 0);
    CHECK(strcmp(token(v, 1), "b") == 0);
    CHECK(strcmp(token(v, 2), "\n") == 0);
    CHECK(strcmp(token(v, 3), "<unk>") == 0);
    CHECK(strcmp(encoded(v, "a c z\n"), "a|<unk>|<unk>|$") == 0);
    sl_vocabulary_free(v);
}

TEST(vocabulary_text_with_unk_keeps_it) {
    /* As in Penn Treebank's plain format: <unk> is a word like any other, with its own count. */
    sl_vocabulary *v = make(SL_LEVEL_WORD, " <unk> of <unk> the \n the <unk> \n", 0);
    CHECK(sl_vocabulary_size(v) == 4);
    CHECK(strcmp(token(v, 0), "<unk>") == 0);
    CHECK(strcmp(encoded(v, "the cat\n"), "the|<unk>|$") == 0);
    sl_vocabulary_free(v);
    v = make(SL_LEVEL_WORD, "a a b b c c c <unk>\n", 3); /* rare, but kept */
    CHECK(sl_vocabulary_size(v) == 3);
    CHECK(strcmp(token(v, 0), "c") == 0);
    CHECK(strcmp(token(v, 1), "<unk>") == 0);
    CHECK(strcmp(token(v, 2), "\n") == 0);
    sl_vocabulary_free(v);
}

TEST(vocabulary_of_words_always_knows_unk) {
    for (int limit = 0; limit <= 5; limit += 5) { /* 0, and the limit that just holds everything */
        sl_vocabulary *v = make(SL_LEVEL_WORD, "one two three\n", limit);
        CHECK(sl_vocabulary_size(v) == 5);
        CHECK(strcmp(encoded(v, "one four\n"), "one|<unk>|$") == 0);
        sl_vocabulary_free(v);
    }
    sl_vocabulary *v = make(SL_LEVEL_WORD, "one two three\n", 4);
    CHECK(sl_vocabulary_size(v) == 4);
    CHECK(strcmp(encoded(v, "one three\n"), "one|<unk>|$") == 0);
    sl_vocabulary_free(v);
}

TEST(vocabulary_without_unk_refuses_new_words) {
    sl_vocabulary *v = NULL;
    REQUIRE_OK(sl_vocabulary_from_json(NULL, "{\"level\":\"word\",\"tokens\":[\"one\",\"two\"]}", &v));
    int32_t *tokens = NULL;
    size_t count = 0;
    CHECK_FAILS(sl_vocabulary_encode(v, "one four", 8, &tokens, &count), SL_ERR_INPUT, "\"four\" at byte 4");
    CHECK(!tokens);
    sl_vocabulary_free(v);
}

TEST(vocabulary_characters_are_code_points) {
    sl_vocabulary *v = make(SL_LEVEL_CHAR, "né…é\n\xF0\x9F\x98\x80", 0);
    CHECK(sl_vocabulary_size(v) == 5);
    CHECK(strcmp(token(v, 0), "é") == 0);
    CHECK(strcmp(encoded(v, "é…\n"), "é|…|$") == 0);
    int32_t *tokens = NULL;
    size_t count = 0;
    CHECK_FAILS(sl_vocabulary_encode(v, "né!", 4, &tokens, &count), SL_ERR_INPUT, "\"!\" at byte 3");
    sl_vocabulary_free(v);
    v = make(SL_LEVEL_CHAR, "aaabbbcd", 3); /* a, b and U+FFFD for the rest */
    CHECK(sl_vocabulary_size(v) == 3);
    CHECK(strcmp(encoded(v, "abz"), "a|b|\xEF\xBF\xBD") == 0);
    sl_vocabulary_free(v);
}

/* At the beginning it says how a text is written; inside it is a character. */
TEST(vocabulary_byte_order_mark_begins_a_text) {
    static const sl_level levels[] = {SL_LEVEL_CHAR, SL_LEVEL_WORD};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        sl_vocabulary *plain = make(levels[i], "a b a", 0),
                      *marked = make(levels[i],
                                     "\xEF\xBB\xBF"
                                     "a b a",
                                     0),
                      *read;
        CHECK(strcmp(sl_vocabulary_to_json(plain), sl_vocabulary_to_json(marked)) == 0);
        CHECK(strcmp(encoded(plain, "\xEF\xBB\xBF"
                                    "a b"),
                     levels[i] == SL_LEVEL_CHAR ? "a| |b" : "a|b") == 0);
        sl_vocabulary_free(plain);
        sl_vocabulary_free(marked);
        marked = make(levels[i], "a b \xEF\xBB\xBF", 0);
        REQUIRE_OK(sl_vocabulary_from_json(NULL, sl_vocabulary_to_json(marked), &read));
        CHECK(strcmp(encoded(read, "a \xEF\xBB\xBF"),
                     levels[i] == SL_LEVEL_CHAR ? "a| |\xEF\xBB\xBF" : "a|\xEF\xBB\xBF") == 0);
        sl_vocabulary_free(read);
        sl_vocabulary_free(marked);
    }
    sl_vocabulary *bytes = make(SL_LEVEL_BYTE, "a", 0);
    int32_t *tokens;
    size_t count;
    REQUIRE_OK(sl_vocabulary_encode(bytes,
                                    "\xEF\xBB\xBF"
                                    "a",
                                    4, &tokens, &count));
    CHECK(count == 4 && tokens[0] == 0xEF);
    sl_tokens_free(bytes, tokens, count);
    sl_vocabulary_free(bytes);
}

TEST(vocabulary_bytes_are_all_256) {
    const char text[] = {'a', 0, (char)0xFF};
    sl_vocabulary *v = NULL;
    int32_t *tokens = NULL;
    size_t count = 0, bytes = 0;
    REQUIRE_OK(sl_vocabulary_new(NULL, SL_LEVEL_BYTE, text, sizeof text, 0, &v));
    CHECK(sl_vocabulary_size(v) == 256);
    REQUIRE_OK(sl_vocabulary_encode(v, text, sizeof text, &tokens, &count));
    CHECK(count == 3 && tokens[0] == 'a' && tokens[1] == 0 && tokens[2] == 255);
    const char *last = sl_vocabulary_token(v, 255, &bytes);
    CHECK(bytes == 1 && (unsigned char)last[0] == 255);
    sl_tokens_free(v, tokens, count);
    sl_vocabulary_free(v);
    CHECK_FAILS(sl_vocabulary_new(NULL, SL_LEVEL_BYTE, text, sizeof text, 100, &v), SL_ERR_INPUT, "256");
}

TEST(vocabulary_invalid_utf8_names_the_byte) {
    static const char *const bad[] = {"ab\xFFzz",           "ab\xC0\xAF", "ab\xE0\x80\x80", "ab\xED\xA0\x80",
                                      "ab\xF4\x90\x80\x80", "ab\xC3",     "ab\x80",         "ab\xF8\x88\x80\x80\x80"};
    sl_vocabulary *v = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_FAILS(sl_vocabulary_new(NULL, SL_LEVEL_CHAR, bad[i], strlen(bad[i]), 0, &v), SL_ERR_INPUT, "byte 2");
        CHECK_FAILS(sl_vocabulary_new(NULL, SL_LEVEL_WORD, bad[i], strlen(bad[i]), 0, &v), SL_ERR_INPUT,
                    "--level byte");
        CHECK(!v);
    }
}

TEST(vocabulary_empty_text_and_small_limits_are_refused) {
    sl_vocabulary *v = NULL;
    CHECK_FAILS(sl_vocabulary_new(NULL, SL_LEVEL_CHAR, "", 0, 0, &v), SL_ERR_INPUT, "empty");
    CHECK_FAILS(sl_vocabulary_new(NULL, SL_LEVEL_WORD, "  \t ", 4, 0, &v), SL_ERR_INPUT, "blanks");
    CHECK_FAILS(sl_vocabulary_new(NULL, SL_LEVEL_WORD, "a b", 3, 2, &v), SL_ERR_INPUT, "too small");
    CHECK_FAILS(sl_vocabulary_new(NULL, SL_LEVEL_WORD, "a b", 3, -1, &v), SL_ERR_INPUT, "too small");
    CHECK_FAILS(sl_vocabulary_new(NULL, SL_LEVEL_WORD, NULL, 3, 0, &v), SL_ERR_USAGE, "text");
}

/* JSON gives the same vocabulary back: same ids for a text, same JSON. */
static void check_json(sl_vocabulary *v, const char *text, size_t bytes) {
    sl_vocabulary *again = NULL;
    int32_t *a = NULL, *b = NULL;
    size_t count_a = 0, count_b = 0;
    const char *json = sl_vocabulary_to_json(v);
    REQUIRE(json);
    REQUIRE_OK(sl_vocabulary_from_json(NULL, json, &again));
    CHECK(strcmp(sl_vocabulary_to_json(again), json) == 0);
    CHECK(sl_vocabulary_size(again) == sl_vocabulary_size(v));
    CHECK(sl_vocabulary_level(again) == sl_vocabulary_level(v));
    REQUIRE_OK(sl_vocabulary_encode(v, text, bytes, &a, &count_a));
    REQUIRE_OK(sl_vocabulary_encode(again, text, bytes, &b, &count_b));
    CHECK(count_a == count_b && memcmp(a, b, count_a * sizeof *a) == 0);
    sl_tokens_free(v, a, count_a);
    sl_tokens_free(again, b, count_b);
    sl_vocabulary_free(again);
}

TEST(vocabulary_json_is_exact) {
    static const char text[] = "quote \" back \\ tab\t nul\0 del\x7F \x01 é \xF0\x9F\x98\x80 <unk> / \n\r";
    for (int level = SL_LEVEL_CHAR; level <= SL_LEVEL_BYTE; level++) {
        sl_vocabulary *v = NULL;
        REQUIRE_OK(sl_vocabulary_new(NULL, (sl_level)level, text, sizeof text - 1, 0, &v));
        check_json(v, text, sizeof text - 1);
        sl_vocabulary_free(v);
    }
}

TEST(vocabulary_json_refuses_what_is_wrong) {
    static const struct {
        const char *json, *says;
    } bad[] = {{"", "JSON"},
               {"[]", "object"},
               {"{\"tokens\":[\"a\"]}", "level"},
               {"{\"level\":\"line\",\"tokens\":[\"a\"]}", "level"},
               {"{\"level\":\"char\"}", "tokens"},
               {"{\"level\":\"char\",\"tokens\":[]}", "tokens"},
               {"{\"level\":\"char\",\"tokens\":[\"ab\"]}", "one character"},
               {"{\"level\":\"word\",\"tokens\":[\"ab\",\"\"]}", "token 1 is empty"},
               {"{\"level\":\"word\",\"tokens\":[\"ab\",7]}", "token 1"},
               {"{\"level\":\"word\",\"tokens\":[\"ab\",\"c\",\"ab\"]}", "0 and 2"},
               {"{\"level\":\"byte\",\"tokens\":[\"a\"]}", "byte"}};
    sl_vocabulary *v = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_FAILS(sl_vocabulary_from_json(NULL, bad[i].json, &v), SL_ERR_INPUT, bad[i].says);
    CHECK_FAILS(sl_vocabulary_from_json(NULL, "{\"level\":\"byte\",\"extra\":1}", &v), SL_ERR_UNKNOWN, "extra");
}

TEST(vocabulary_many_words_keep_their_counts) {
    /* 5000 different words; word k appears 1 + k % 7 times: exercises growth of the table. */
    size_t capacity = 400000, used = 0;
    char *text = malloc(capacity);
    REQUIRE(text);
    for (int round = 0; round < 7; round++)
        for (int k = 0; k < 5000; k++)
            if (k % 7 >= round) used += (size_t)snprintf(text + used, capacity - used, "w%d ", k);
    sl_vocabulary *v = NULL;
    REQUIRE_OK(sl_vocabulary_new(NULL, SL_LEVEL_WORD, text, used, 0, &v));
    CHECK(sl_vocabulary_size(v) == 5001);   /* and <unk> */
    CHECK(strcmp(token(v, 0), "w6") == 0);  /* the first that appears 7 times */
    CHECK(strcmp(token(v, 1), "w13") == 0); /* the second */
    int seen = 0;
    for (int k = 0; k < 5000; k++) {
        char word[20];
        int32_t *ids = NULL;
        size_t count = 0;
        snprintf(word, sizeof word, "w%d", k);
        REQUIRE_OK(sl_vocabulary_encode(v, word, strlen(word), &ids, &count));
        seen += count == 1 && strcmp(token(v, ids[0]), word) == 0;
        sl_tokens_free(v, ids, count);
    }
    CHECK(seen == 5000);
    sl_vocabulary_free(v);
    free(text);
}
