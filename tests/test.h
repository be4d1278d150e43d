/* The test harness: TEST(area_name) { CHECK(...); } in any tests/ *.c file registers itself. One program runs them all:
 *     sluice_tests [--device NAME] [--data FOLDER] [--quick] [--list] [--seed N] [filter...]     (filter: part of a test's name)
 * A failing check prints file, line, the expression, and the one command that repeats the test. */
#ifndef TEST_H
#define TEST_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sluice.h"

typedef struct test_case {
    const char *name, *file;
    void (*run)(void);
    bool slow; /* left out by --quick */
    struct test_case *next;
} test_case;
void test_register(test_case *test);
/* Records a failure of the running test; it goes on. */
void test_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Ends the running test as failed / skipped (longjmp: not from other threads). */
_Noreturn void test_abort(void);
_Noreturn void test_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* --device, "cpu" if not given: every plan of a test uses it, so that "far" runs the whole suite far. */
extern const char *test_device;
/* GPUs have no rows in f64, and other kernels than the CPU: tests that need those skip, or leave out a part. */
static inline bool test_on_gpu(void) {
    return strncmp(test_device, "cuda", 4) == 0;
}
/* An address sanitizer makes all of it several times as slow: tests of many cases of one kind take one in so many there. */
#ifdef __SANITIZE_ADDRESS__
#define TEST_ONE_IN(sanitized) (sanitized)
#else
#define TEST_ONE_IN(sanitized) 1
#endif
/* --seed, else fixed; the line that repeats a failed test holds it. */
extern uint64_t test_seed;
/* Folder of committed test data (--data, else "tests/data" of the source), with no slash at the end. */
extern const char *test_data;
/* A fresh temporary folder, removed at the end. */
const char *test_folder(void);
/* Small deterministic generator for inputs: uniform in [-1, 1). */
double test_random(uint64_t *state);

#define TEST_DEFINE(id, is_slow)                                          \
    static void id(void);                                                 \
    static test_case test_case_##id = {#id, __FILE__, id, is_slow, NULL}; \
    __attribute__((constructor)) static void test_register_##id(void) {   \
        test_register(&test_case_##id);                                   \
    }                                                                     \
    static void id(void)
#define TEST(id) TEST_DEFINE(id, false)
#define TEST_SLOW(id) TEST_DEFINE(id, true)

#define CHECK(condition)                                                   \
    do {                                                                   \
        if (!(condition)) test_fail(__FILE__, __LINE__, "%s", #condition); \
    } while (0)
#define REQUIRE(condition)                                   \
    do {                                                     \
        if (!(condition)) {                                  \
            test_fail(__FILE__, __LINE__, "%s", #condition); \
            test_abort();                                    \
        }                                                    \
    } while (0)
/* The call must succeed; else the test ends and prints the detail. */
#define REQUIRE_OK(call)                                                                                         \
    do {                                                                                                         \
        sl_status test_status_ = (call);                                                                         \
        if (test_status_ != SL_OK) {                                                                             \
            test_fail(__FILE__, __LINE__, "%s: %s: %s", #call, sl_status_name(test_status_), sl_error_detail()); \
            test_abort();                                                                                        \
        }                                                                                                        \
    } while (0)
/* The call must fail with this status, and say `text` (a part of the detail; NULL = anything but empty). */
#define CHECK_FAILS(call, expected, text)                                                                  \
    do {                                                                                                   \
        sl_status test_status_ = (call);                                                                   \
        const char *test_text_ = (text);                                                                   \
        if (test_status_ != (expected))                                                                    \
            test_fail(__FILE__, __LINE__, "%s: %s, expected %s (%s)", #call, sl_status_name(test_status_), \
                      sl_status_name(expected), sl_error_detail());                                        \
        else if (test_text_ ? !strstr(sl_error_detail(), test_text_) : !sl_error_detail()[0])              \
            test_fail(__FILE__, __LINE__, "%s: detail is \"%s\"", #call, sl_error_detail());               \
    } while (0)
#define CHECK_NEAR(value, expected, tolerance)                                                          \
    do {                                                                                                \
        double test_v_ = (value), test_e_ = (expected);                                                 \
        if (!(fabs(test_v_ - test_e_) <= (tolerance)))                                                  \
            test_fail(__FILE__, __LINE__, "%s = %.17g, expected %.17g +- %g", #value, test_v_, test_e_, \
                      (double)(tolerance));                                                             \
    } while (0)

#endif
