/* `sluice bench PROBLEM`: the eligible kernels side by side. Rounds in which every kernel computes once, so that a slow phase
 * of the machine meets all of them; medians, as they do not mind a few disturbed rounds. */
#include <stdlib.h>
#include <time.h>

#include "proof/problem_model.h"
#include "proof/rows.h"
#include "proof/subject.h"

enum { LEAST_ROUNDS = 5, MOST_ROUNDS = 1000 };

typedef struct entry {
    const char *kernel, *refusal;
    bool open;
    sli_trial trial;
    double *seconds; /* [MOST_ROUNDS] */
} entry;

typedef struct bench {
    sli_problem problem;
    sl_plan_options options;
    sl_model *model;
    sl_plan *plan;
    sli_subject *subject;
    entry entries[SLI_ROWS_MAX];
    int count, rounds;
} bench;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static sl_status add_entry(bench *b, const char *kernel, const char *refusal, const char *require) {
    entry *e = &b->entries[b->count++];
    sl_plan_options options = b->options;
    e->kernel = kernel;
    e->refusal = refusal;
    if (refusal) return SL_OK;
    options.require = require;
    e->seconds = sli_arena_alloc(&b->subject->arena, MOST_ROUNDS * sizeof(double));
    if (!e->seconds) return sli_fail_memory("the times of a benchmark", MOST_ROUNDS * sizeof(double));
    SLI_TRY(sli_trial_open(b->subject, &options, &e->trial));
    sli_trial_feed(&e->trial, b->subject->options.batch, b->subject->options.steps);
    e->open = true;
    return SL_OK;
}

static sl_status add_entries(bench *b) {
    sli_row rows[SLI_ROWS_MAX];
    if (!sli_op_is_recurrent(b->problem.op)) {
        int last = b->plan->step_count - 1;
        for (int k = 0; k < b->plan->step_count; k++)
            if (b->plan->steps[k].problem.op == b->problem.op) last = k;
        return add_entry(b, last >= 0 ? b->plan->steps[last].kernel->name : "?", NULL, NULL);
    }
    int count = sli_rows_of(b->plan, b->problem.op, b->options.require, rows);
    for (int k = 0; k < count; k++) SLI_TRY(add_entry(b, rows[k].kernel->name, rows[k].refusal, rows[k].kernel->name));
    return SL_OK;
}

/* One timed call: forward, or a whole training pass. Bench inputs are the same in every round. */
static sl_status time_once(const bench *b, entry *e, double *seconds) {
    sl_result result;
    double start = now();
    SLI_TRY(sli_trial_compute(&e->trial, b->options.train != 0, &result));
    *seconds = now() - start;
    return SL_OK;
}

static sl_status time_all(bench *b, double min_seconds) {
    double ignored, start = now();
    for (int k = 0; k < b->count; k++) /* warm up: pages, caches, threads */
        if (b->entries[k].open) SLI_TRY(time_once(b, &b->entries[k], &ignored));
    for (b->rounds = 0; b->rounds < MOST_ROUNDS; b->rounds++) {
        if (b->rounds >= LEAST_ROUNDS && now() - start >= min_seconds) break;
        for (int k = 0; k < b->count; k++)
            if (b->entries[k].open) SLI_TRY(time_once(b, &b->entries[k], &b->entries[k].seconds[b->rounds]));
    }
    return SL_OK;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void tell(const bench *b, entry *e, void (*timing)(void *context, const sl_timing *timing), void *context) {
    sl_timing t = {.kernel = e->kernel, .refusal = e->refusal};
    int n = b->rounds;
    if (e->open) {
        qsort(e->seconds, (size_t)n, sizeof *e->seconds, by_size);
        t.median = 0.5 * (e->seconds[(n - 1) / 2] + e->seconds[n / 2]);
        t.minimum = e->seconds[0];
        t.maximum = e->seconds[n - 1];
        t.gflops = t.median > 0 ? sl_plan_flops(e->trial.plan) * 1e-9 / t.median : 0;
        t.repeats = n;
    }
    if (timing) timing(context, &t);
}

static sl_status run_bench(bench *b, double min_seconds) {
    SLI_TRY(sli_problem_model(b->options.allocator, &b->problem, false, &b->model, &b->options));
    b->options.batch_major = 0;
    SLI_TRY(sl_plan_new(b->model, &b->options, &b->plan));
    SLI_TRY(sli_subject_new(b->model, &b->options, b->problem.mask, 1, &b->subject));
    SLI_TRY(add_entries(b));
    return time_all(b, min_seconds > 0 ? min_seconds : 1);
}

sl_status sl_bench_problem(const char *problem, const sl_plan_options *options, double min_seconds,
                           void (*timing)(void *context, const sl_timing *timing), void *context) {
    bench b = {.count = 0};
    SLI_FAIL_IF(!problem, SL_ERR_USAGE, "sl_bench_problem: problem is NULL; pass a problem string");
    SLI_TRY(sli_problem_parse(problem, &b.problem));
    if (options) b.options = *options;
    sl_status status = run_bench(&b, min_seconds);
    for (int k = 0; k < b.count && status == SL_OK; k++) tell(&b, &b.entries[k], timing, context);
    for (int k = 0; k < b.count; k++)
        if (b.entries[k].open) sli_trial_close(&b.entries[k].trial);
    sli_subject_free(b.subject);
    sl_plan_free(b.plan);
    sl_model_free(b.model);
    return status;
}
