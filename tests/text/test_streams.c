/* Token streams: every token that should be read is read once, in order, with the next one as its label. */
#include "data/streams.h"
#include "test.h"

enum { MOST = 4000 };
static int32_t numbers[MOST]; /* token i is i: a batch shows where it was read */

static void count_up(void) {
    for (int i = 0; i < MOST; i++) numbers[i] = i;
}

/* Marks the inputs of all blocks in `seen`; labels must be the next token. */
static void walk(const sli_streams *s, int rows_at_once, unsigned char *seen) {
    static int32_t inputs[MOST], labels[MOST];
    for (int row = 0; row < s->batch; row += rows_at_once) {
        for (size_t i = 0; i < s->blocks; i++) {
            int steps = sli_streams_fill(s, i, row, rows_at_once, inputs, labels);
            CHECK(steps == sli_streams_steps(s, i));
            for (int t = 0; t < steps; t++)
                for (int b = 0; b < rows_at_once; b++) {
                    int32_t x = inputs[t * rows_at_once + b], y = labels[t * rows_at_once + b];
                    size_t expected =
                        (size_t)(row + b) * s->stream_length + s->first + i * (size_t)s->steps + (size_t)t;
                    CHECK((size_t)x == expected);
                    CHECK(y == ((size_t)x + 1 == s->count && s->wrap ? 0 : x + 1));
                    seen[x]++;
                }
        }
    }
}

TEST(streams_contiguous_covers_all_but_the_last_of_each) {
    static const struct {
        size_t count;
        int batch, steps;
    } cases[] = {{100, 4, 7}, {103, 4, 7}, {8, 4, 3}, {2, 1, 50}, {1001, 1, 10}, {1000, 20, 7}};
    count_up();
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        unsigned char seen[MOST] = {0};
        sli_streams s;
        REQUIRE_OK(sli_streams_contiguous(&s, numbers, cases[c].count, cases[c].batch, cases[c].steps, false));
        walk(&s, cases[c].batch, seen);
        size_t length = cases[c].count / (size_t)cases[c].batch;
        for (size_t i = 0; i < cases[c].count; i++)
            CHECK(seen[i] == (i < length * (size_t)cases[c].batch && i % length != length - 1));
    }
}

TEST(streams_drop_partial_is_the_ptb_iterator) {
    /* ptb_producer: batch_len = N // B; epoch_size = (batch_len - 1) // T. */
    count_up();
    for (int n = 60; n < 120; n++) {
        sli_streams s;
        REQUIRE_OK(sli_streams_contiguous(&s, numbers, (size_t)n, 3, 5, true));
        CHECK(s.blocks == (size_t)((n / 3 - 1) / 5));
        CHECK(sli_streams_steps(&s, s.blocks - 1) == 5);
        CHECK(s.stream_length == (size_t)(n / 3));
    }
    sli_streams s;
    CHECK_FAILS(sli_streams_contiguous(&s, numbers, 15, 3, 5, true), SL_ERR_INPUT, "--batch");
    CHECK_FAILS(sli_streams_contiguous(&s, numbers, 5, 3, 5, false), SL_ERR_INPUT, "--batch");
}

TEST(streams_blocks_is_the_char_rnn_split) {
    /* train.lua: cut to a multiple of B*T, the first floor(0.95 * blocks) blocks of every stream train. */
    count_up();
    sli_streams train, valid;
    REQUIRE_OK(sli_streams_blocks(&train, &valid, numbers, 3999, 4, 10, 0.05));
    CHECK(train.count == 3960);
    CHECK(train.blocks == 94 && valid.blocks == 5); /* of 99 */
    unsigned char seen[MOST] = {0};
    walk(&train, 4, seen);
    walk(&valid, 2, seen); /* rows two by two, as micro-batches read them */
    for (int i = 0; i < 3960; i++) CHECK(seen[i] == 1);
    for (int i = 3960; i < MOST; i++) CHECK(seen[i] == 0);
    REQUIRE_OK(sli_streams_blocks(&train, NULL, numbers, 3999, 4, 10, 0));
    CHECK(train.blocks == 99);
    CHECK_FAILS(sli_streams_blocks(&train, &valid, numbers, 39, 4, 10, 0.05), SL_ERR_INPUT, "less than one block");
    CHECK_FAILS(sli_streams_blocks(&train, &valid, numbers, 40, 4, 10, 0.05), SL_ERR_INPUT, "training");
    REQUIRE_OK(sli_streams_blocks(&train, &valid, numbers, 80, 4, 10, 0.05));
    CHECK(train.blocks == 1 && valid.blocks == 1);
}
