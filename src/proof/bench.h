/* Timing several ways to compute one problem, side by side. */
#ifndef SLI_BENCH_H
#define SLI_BENCH_H

#include "core/plan.h"

/* A way: what fixes it in the options of its plan. Choices that are not all obeyed are a refusal. */
typedef struct sli_bench_way {
    const char *name, *choices;
} sli_bench_way;

/* As sl_bench_problem, but the ways of `ways`, and quickly: ways whose first call takes several times the least are not run
 * again, and a way that fails is told as refused. */
enum { SLI_BENCH_WAYS = 33 };
sl_status sli_bench_ways(const sli_problem *problem, const sl_plan_options *options, const sli_bench_way *ways,
                         int count, double seconds, void (*timing)(void *context, const sl_timing *timing),
                         void *context);

#endif
