/* JSON helpers: src/io/json_text.c. */
#include "io/json_text.h"
#include "test.h"

TEST(io_json_numbers_round_trip) {
    static const double VALUES[] = {0, 1, -1, 0.1, 1.0 / 3, 1e300, 5e-324, 123456789.123456789, 1e22, 0x1p-1022};
    uint64_t state = test_seed;
    for (int i = 0; i < 1000; i++) {
        double value = i < 10 ? VALUES[i] : test_random(&state) * pow(10, 20 * test_random(&state));
        sli_text text;
        sli_text_init(&text, NULL);
        sli_json_append_number(&text, value);
        REQUIRE(!text.failed);
        CHECK(strtod(text.data, NULL) == value);
        json_t *number = json_loads(text.data, JSON_DECODE_ANY, NULL);
        CHECK(number && json_number_value(number) == value);
        json_decref(number);
        sli_text_free(&text);
    }
    sli_text text;
    sli_text_init(&text, NULL);
    sli_json_append_number(&text, 0.1);
    CHECK(!strcmp(text.data, "0.1"));
    sli_text_free(&text);
}

TEST(io_json_utf8) {
    static const struct {
        const char *text;
        bool valid;
    } CASES[] = {{"", true},
                 {"abc\x7f", true},
                 {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf", true},
                 {"\xc0\x80", false},         /* overlong */
                 {"\xe0\x9f\xbf", false},     /* overlong */
                 {"\xed\xa0\x80", false},     /* surrogate */
                 {"\xf0\x8f\xbf\xbf", false}, /* overlong */
                 {"\xf4\x90\x80\x80", false}, /* beyond U+10FFFF */
                 {"\xe2\x82", false},
                 {"\x80", false},
                 {"\xff", false}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        CHECK(sli_utf8_valid(CASES[i].text, strlen(CASES[i].text)) == CASES[i].valid);
    CHECK(!sli_utf8_valid("a\0b", 3));
}

TEST(io_json_nearest) {
    CHECK(sli_edit_distance("", "abc") == 3);
    CHECK(sli_edit_distance("kitten", "sitting") == 3);
    CHECK(sli_edit_distance("units", "units") == 0);
    const char *best = NULL;
    int distance = 3;
    sli_nearest("unts", "layers", &best, &distance);
    CHECK(!best);
    sli_nearest("unts", "units", &best, &distance);
    CHECK(best && !strcmp(best, "units") && distance == 1);
}
