/* A problem by its text, which must be one. */
#ifndef TEST_PROBLEM_TEXT_H
#define TEST_PROBLEM_TEXT_H

#include "core/problem.h"
#include "test.h"

static inline sli_problem problem(const char *text) {
    sli_problem p;
    REQUIRE_OK(sli_problem_parse(text, &p));
    return p;
}

#endif
