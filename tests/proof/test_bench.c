/* The benchmark of a problem: every row is told once, refused ones with their reason. */
#include <stdlib.h>

#include "test.h"

typedef struct told {
    int rows, refused, timed, compared;
    bool sane;
} told;

static void tell(void *context, const sl_timing *timing) {
    told *t = context;
    t->rows++;
    if (timing->refusal) {
        t->refused++;
        t->sane = t->sane && timing->refusal[0] && timing->repeats == 0 && timing->apart < 0;
        return;
    }
    t->timed++;
    t->compared += timing->apart >= 0;
    t->sane = t->sane && timing->apart <= 1;
    t->sane = t->sane && timing->minimum > 0 && timing->minimum <= timing->median &&
              timing->median <= timing->maximum && timing->repeats >= 5 && timing->kernel[0];
}

TEST(bench_times_every_eligible_row) {
    sl_plan_options options = {.device = test_device};
    told t = {.sane = true};
    REQUIRE_OK(sl_bench_problem("lstm:b2_t3_i4_h5_train", &options, 0.001, tell, &t));
    CHECK(t.rows >= 2 && t.timed >= 2 && t.compared == t.timed && t.sane);
    /* What a row cannot do is told as a refusal: in f64 only the reference computes, and a GPU has no row at all. */
    t = (told){.sane = true};
    if (!test_on_gpu()) {
        REQUIRE_OK(sl_bench_problem("gru:b2_t3_i4_h5_f64", &options, 0.001, tell, &t));
        CHECK(t.rows >= 2 && t.timed == 1 && t.refused == t.rows - 1 && t.sane);
    }
    t = (told){.sane = true};
    REQUIRE_OK(sl_bench_problem("dense:b2_t3_i4_h5_train", &options, 0.001, tell, &t));
    CHECK(t.rows == 1 && t.timed == 1 && t.compared == 0 && t.sane);
}

TEST(bench_names_what_it_cannot_do) {
    CHECK_FAILS(sl_bench_problem("lstm:b2_t3_i4", NULL, 0.001, tell, NULL), SL_ERR_INPUT, "field hN");
    CHECK_FAILS(sl_bench_problem(NULL, NULL, 0.001, tell, NULL), SL_ERR_USAGE, "problem is NULL");
    CHECK_FAILS(sl_bench_problem("lstm:b2_t3_i4_h5", NULL, NAN, tell, NULL), SL_ERR_USAGE, "min_seconds is nan");
    CHECK_FAILS(sl_bench_problem("lstm:b2_t3_i4_h5", NULL, -1, tell, NULL), SL_ERR_USAGE, "pass 0 to 3600");
}

/* Gives `left` pieces of memory. */
static void *few_alloc(void *context, size_t bytes, size_t align) {
    long *left = context;
    return (*left)-- > 0 ? aligned_alloc(align, (bytes + align - 1) / align * align) : NULL;
}

static void few_free(void *context, void *pointer, size_t bytes) {
    (void)context;
    (void)bytes;
    free(pointer);
}

TEST(bench_tells_times_without_memory_to_compare_numbers) {
    if (test_on_gpu()) test_skip("a GPU does not take its blocks from the allocator");
    told t = {.sane = true};
    sl_status status = SL_ERR_OUT_OF_MEMORY;
    for (long given = 0; status != SL_OK && given < 2000; given++) {
        long left = given;
        sl_allocator few = {few_alloc, few_free, &left};
        sl_plan_options options = {.device = "cpu", .threads = 1, .allocator = &few};
        t = (told){.sane = true};
        status = sl_bench_problem("rnn:b1_t2_i1_h300", &options, 0.001, tell, &t);
        CHECK(status == SL_OK || (status == SL_ERR_OUT_OF_MEMORY && t.rows == 0));
    }
    CHECK(t.timed >= 2 && t.compared < t.timed && t.sane);
}
