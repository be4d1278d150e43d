/* `sluice bench PROBLEM`: the eligible kernels side by side. Rounds in which every kernel computes once, so that a slow phase
 * of the machine meets all of them; medians, as they do not mind a few disturbed rounds.
 *
 * A GPU works while the host waits: there a round is a burst of calls on numbers that are on the device already, waited for
 * once. So that the gradients fed at first stay what they are, no two pieces of such a run share memory. Parameters' gradients are
 * those of the call, as in a whole training step: rows that can write them write them (sli_call.fresh), others add.
 *
 * A kernel that takes several times as long as the fastest of its library is timed in a few rounds only.
 *
 * A fast kernel that computes something else is no kernel: at the end each computes once more, and its numbers are compared with those
 * of the first. */
#include "proof/bench.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/run.h"
#include "proof/parity.h"
#include "proof/problem_model.h"
#include "proof/rows.h"
#include "proof/subject.h"

enum { LEAST_ROUNDS = 5, LEAST_BURSTS = 20, MOST_ROUNDS = 1000, MOST_CALLS = 2000, SLOW_FACTOR = 3, SLOW_ROUNDS = 5 };
enum { QUICK_ROUNDS = 3 }; /* of sli_bench_ways */
#define MOST_SECONDS 3600.0
#define BURST_SECONDS 3e-3
_Static_assert((int)SLI_BENCH_WAYS >= (int)SLI_ROWS_MAX, "entries have room for all rows");

typedef struct entry {
    const char *kernel, *refusal;
    bool open;
    int calls; /* of a burst; 0: one call a round, fed and read back */
    sli_trial trial;
    double warm;     /* seconds of a call when warmed up */
    int rounds;      /* timed */
    double *seconds; /* [MOST_ROUNDS] */
    double apart;    /* as sl_timing has it */
} entry;

typedef struct bench {
    sli_problem problem;
    sl_plan_options options;
    sl_model *model;
    sl_plan *plan;
    sli_subject *subject;
    entry entries[SLI_BENCH_WAYS];
    int count, rounds;
    bool quick;   /* a slow way is timed once, whosever it is */
    size_t bytes; /* of the ways that are open, which the options' memory limit holds for together */
} bench;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* The device works while the host waits. */
static bool is_late(const bench *b) {
    return b->plan->ops->record_begin != NULL;
}

static sl_status open_entry(bench *b, entry *e, const sl_plan_options *options) {
    e->apart = -1;
    e->seconds = sli_arena_alloc(&b->subject->arena, MOST_ROUNDS * sizeof(double));
    if (!e->seconds) return sli_fail_memory("the times of a benchmark", MOST_ROUNDS * sizeof(double));
    SLI_TRY((is_late(b) ? sli_trial_open_guarded : sli_trial_open)(b->subject, options, &e->trial));
    e->calls = is_late(b);
    if (b->options.train && e->trial.plan->segments <= 1) sli_plan_mark_fresh(e->trial.plan);
    sli_trial_feed(&e->trial, b->subject->options.batch, b->subject->options.steps);
    e->open = true;
    return SL_OK;
}

static sl_status add_entry(bench *b, const char *kernel, const char *refusal, const char *require) {
    entry *e = &b->entries[b->count++];
    sl_plan_options options = b->options;
    e->kernel = kernel;
    e->refusal = refusal;
    options.require = require;
    return refusal ? SL_OK : open_entry(b, e, &options);
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
    for (int k = 0; k < count; k++) {
        const char *refusal;
        sl_plan_options options = b->options;
        options.require = rows[k].kernel->name;
        SLI_TRY(sli_row_refusal(b->model, &options, &rows[k], &refusal));
        const char *kept = refusal ? sli_arena_string(&b->subject->arena, refusal) : NULL;
        if (refusal && !kept) return sli_fail_memory("a reason", strlen(refusal) + 1);
        SLI_TRY(add_entry(b, rows[k].kernel->name, kept, rows[k].kernel->name));
    }
    return SL_OK;
}

static sl_status fresh_gradients_work(sl_run *run) {
    run->fresh = true;
    const sl_status status = sli_run_gradients_work(run);
    run->fresh = false;
    return status;
}

/* The last call once more, on what is on the device: recorded, or every kernel launched anew. */
static sl_status repeat_call(sl_run *run, bool training) {
    const sli_device_ops *ops = run->plan->ops;
    bool loss = run->has_targets;
    if (training) SLI_TRY(sli_run_begin_sums(run));
    if (training && run->plan->caps.graphs) return sli_run_do(run, SLI_RUN_STEP, fresh_gradients_work);
    sli_recording *whole = run->recordings[loss ? SLI_RUN_EVALUATE : SLI_RUN_INFER];
    if (whole && !training) return ops->replay(run->queue, whole);
    SLI_TRY(sli_run_forward_steps(run, training));
    run->fresh = training;
    const sl_status status = training ? sli_run_backward_steps(run) : SL_OK;
    run->fresh = false;
    return status != SL_OK ? status : sli_run_carry_states(run);
}

/* One timed call: forward, or a whole training pass. Bench inputs are the same in every round. */
static sl_status time_once(const bench *b, entry *e, double *seconds) {
    sl_result result;
    bool training = b->options.train != 0;
    sl_run *run = e->trial.run;
    double start = now();
    if (e->calls == 0) SLI_TRY(sli_trial_compute(&e->trial, training, &result));
    for (int k = 0; k < e->calls; k++) SLI_TRY(repeat_call(run, training));
    if (e->calls > 0) SLI_TRY(run->plan->ops->wait(run->queue));
    *seconds = (now() - start) / (e->calls > 0 ? e->calls : 1);
    return SL_OK;
}

/* Pages, caches, threads, recordings; then bursts of equal length. */
static sl_status warm_up(const bench *b, entry *e) {
    double seconds;
    sl_result result;
    if (e->calls == 0) return time_once(b, e, &e->warm);
    for (int k = 0; k < 2; k++) SLI_TRY(sli_trial_compute(&e->trial, b->options.train != 0, &result));
    e->calls = 3;
    for (int k = 0; k < 2; k++) SLI_TRY(time_once(b, e, &seconds));
    double calls = BURST_SECONDS / (seconds > 1e-9 ? seconds : 1e-9);
    e->calls = calls < 1 ? 1 : calls > MOST_CALLS ? MOST_CALLS : (int)calls;
    return time_once(b, e, &e->warm);
}

/* Of one library: "cudnn:standard" and "cudnn:small_h". */
static bool same_library(const char *kernel, const char *other) {
    size_t length = strcspn(kernel, ":");
    return strcspn(other, ":") == length && strncmp(kernel, other, length) == 0;
}

static bool is_slow(const bench *b, const entry *e) {
    for (int k = 0; k < b->count; k++) {
        const entry *other = &b->entries[k];
        bool rival = b->quick || same_library(other->kernel, e->kernel);
        if (other->open && rival && e->warm > SLOW_FACTOR * other->warm) return true;
    }
    return false;
}

static sl_status time_all(bench *b, double min_seconds) {
    for (int k = 0; k < b->count; k++)
        if (b->entries[k].open) SLI_TRY(warm_up(b, &b->entries[k]));
    int least = b->quick ? QUICK_ROUNDS : is_late(b) ? LEAST_BURSTS : LEAST_ROUNDS;
    int slow = b->quick ? 1 : SLOW_ROUNDS;
    double start = now();
    for (b->rounds = 0; b->rounds < MOST_ROUNDS; b->rounds++) {
        if (b->rounds >= least && now() - start >= min_seconds) break;
        for (int k = 0; k < b->count; k++) {
            entry *e = &b->entries[k];
            if (!e->open || (e->rounds == slow && is_slow(b, e))) continue;
            SLI_TRY(time_once(b, e, &e->seconds[e->rounds++]));
        }
    }
    return SL_OK;
}

/* -------------------------------------------------------------------------------------------------- the same numbers -- */

static sl_status compare_entry(bench *b, const entry *first, const sli_results *expected, entry *e,
                               sli_results *results) {
    const sli_trial_call call = {.training = b->options.train != 0};
    const sli_tolerance one = sli_tolerance_of(first->trial.plan, b->options.dtype),
                        other = sli_tolerance_of(e->trial.plan, b->options.dtype);
    char where[256];
    SLI_TRY(sli_trial_run(&e->trial, &call, results));
    e->apart = sli_apart(results, expected, one, other, where);
    SLI_FAIL_IF(!(e->apart <= 1), SL_ERR_CHECK,
                "the numbers of %s and %s are %.3g times as far apart as rounding explains (%s); one of both is wrong: "
                "see `sluice check`",
                e->kernel, first->kernel, e->apart, where);
    return SL_OK;
}

/* All are compared; the last that is wrong is named. */
static sl_status compare_all(bench *b) {
    const sli_trial_call call = {.training = b->options.train != 0};
    sli_results expected, results;
    entry *first = NULL;
    sl_status verdict = SL_OK;
    int open = 0;
    for (int k = 0; k < b->count; k++) open += b->entries[k].open;
    for (int k = 0; k < b->count && open > 1; k++) {
        entry *e = &b->entries[k];
        if (!e->open) continue;
        if (first) {
            const sl_status status = compare_entry(b, first, &expected, e, &results);
            if (status != SL_OK && status != SL_ERR_CHECK) return status;
            if (status != SL_OK) verdict = status;
            continue;
        }
        first = e;
        first->apart = 0;
        SLI_TRY(sli_results_new(b->subject, call.training, &expected));
        SLI_TRY(sli_results_new(b->subject, call.training, &results));
        SLI_TRY(sli_trial_run(&first->trial, &call, &expected));
    }
    return verdict;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds of all steps of the op; negative where one is not predicted. */
static double predicted(const sl_plan *plan, sli_op op) {
    double sum = 0;
    for (int k = 0; k < plan->step_count; k++) {
        const sli_step *step = &plan->steps[k];
        if (step->problem.op != op) continue;
        if (step->seconds < 0) return -1;
        sum += step->seconds;
    }
    return sum;
}

static void tell(const bench *b, entry *e, void (*timing)(void *context, const sl_timing *timing), void *context) {
    sl_timing t = {.kernel = e->kernel, .refusal = e->refusal, .apart = -1};
    int n = e->rounds;
    if (e->open) {
        qsort(e->seconds, (size_t)n, sizeof *e->seconds, by_size);
        t.median = 0.5 * (e->seconds[(n - 1) / 2] + e->seconds[n / 2]);
        t.minimum = e->seconds[0];
        t.maximum = e->seconds[n - 1];
        t.gflops = t.median > 0 ? sl_plan_flops(e->trial.plan) * 1e-9 / t.median : 0;
        t.repeats = n * (e->calls > 0 ? e->calls : 1);
        t.steps = sli_op_is_recurrent(b->problem.op) ? b->problem.steps : 0;
        t.predicted = predicted(e->trial.plan, b->problem.op);
        t.apart = e->apart;
    }
    if (timing) timing(context, &t);
}

static sl_status prepare(bench *b) {
    b->options.tune = SL_TUNE_NEVER;
    SLI_TRY(sli_problem_model(b->options.allocator, &b->problem, false, &b->model, &b->options));
    if (b->options.train && sli_op_is_recurrent(b->problem.op))
        SLI_TRY(sli_problem_leave_states(b->model, &b->problem));
    b->options.batch_major = 0;
    b->options.input_gradients = b->options.train && sli_op_is_recurrent(b->problem.op);
    SLI_TRY(sli_plan_new(b->model, &b->options, NULL, &b->plan));
    return sli_subject_new(b->model, &b->options, b->problem.mask, 1, &b->subject);
}

static sl_status run_bench(bench *b, double min_seconds) {
    SLI_TRY(prepare(b));
    SLI_TRY(add_entries(b));
    SLI_TRY(time_all(b, min_seconds > 0 ? min_seconds : 1));
    const sl_status status = compare_all(b);
    if (status != SL_ERR_OUT_OF_MEMORY) return status;
    sli_clear_error(); /* times are worth something without */
    return SL_OK;
}

static void finish(bench *b, sl_status status, void (*timing)(void *context, const sl_timing *timing), void *context) {
    const bool timed = status == SL_OK || status == SL_ERR_CHECK;
    for (int k = 0; k < b->count && timed; k++) tell(b, &b->entries[k], timing, context);
    for (int k = 0; k < b->count; k++)
        if (b->entries[k].open) sli_trial_close(&b->entries[k].trial);
    sli_subject_free(b->subject);
    sl_plan_free(b->plan);
    sl_model_free(b->model);
}

/* ----------------------------------------------------------------------------------------------------- ways -- */
static const char *not_obeyed(const sl_plan *plan) {
    if (plan->segments > 1) return "the memory limit has no room for it beside the others that are timed";
    for (int k = 0; k < plan->choice_count; k++)
        if (!plan->choices[k].obeyed && plan->choices[k].reason) return plan->choices[k].reason;
    return NULL;
}

/* A failure of one way is its refusal: memory that is not there, say. */
static sl_status add_way(bench *b, const sli_bench_way *way) {
    entry *e = &b->entries[b->count++];
    sl_plan_options options = b->options;
    e->kernel = way->name;
    options.choices = way->choices;
    if (options.memory_limit > 0)
        options.memory_limit -= b->bytes < options.memory_limit ? b->bytes : options.memory_limit - 1;
    sl_status status = open_entry(b, e, &options);
    const char *refusal = status == SL_OK ? not_obeyed(e->trial.plan) : sl_error_detail();
    if (!refusal) {
        b->bytes += e->trial.plan->memory.params_block + e->trial.plan->memory.run_block;
        return SL_OK;
    }
    e->refusal = sli_arena_string(&b->subject->arena, refusal);
    if (e->open) sli_trial_close(&e->trial);
    e->open = false;
    if (!e->refusal) return sli_fail_memory("a reason", strlen(refusal) + 1);
    sli_clear_error();
    return SL_OK;
}

static sl_status run_ways(bench *b, const sli_bench_way *ways, int count, double seconds) {
    SLI_TRY(prepare(b));
    for (int k = 0; k < count && k < SLI_BENCH_WAYS; k++) SLI_TRY(add_way(b, &ways[k]));
    return time_all(b, seconds);
}

sl_status sli_bench_ways(const sli_problem *problem, const sl_plan_options *options, const sli_bench_way *ways,
                         int count, double seconds, void (*timing)(void *context, const sl_timing *timing),
                         void *context) {
    bench b = {.problem = *problem, .options = *options, .quick = true};
    sl_status status = run_ways(&b, ways, count, seconds);
    finish(&b, status, timing, context);
    return status;
}

sl_status sl_bench_problem(const char *problem, const sl_plan_options *options, double min_seconds,
                           void (*timing)(void *context, const sl_timing *timing), void *context) {
    bench b = {.count = 0};
    SLI_FAIL_IF(!problem, SL_ERR_USAGE, "sl_bench_problem: problem is NULL; pass a problem string");
    SLI_FAIL_IF(!(min_seconds >= 0 && min_seconds <= MOST_SECONDS), SL_ERR_USAGE,
                "sl_bench_problem: min_seconds is %g; pass 0 to %g", min_seconds, MOST_SECONDS);
    SLI_TRY(sli_problem_parse(problem, &b.problem));
    if (options) b.options = *options;
    if (b.options.dtype != SL_DTYPE_DEFAULT) b.problem.dtype = b.options.dtype;
    if (b.options.recompute_gates) b.problem.recompute = b.problem.train && sli_op_is_recurrent(b.problem.op);
    sl_status status = run_bench(&b, min_seconds);
    finish(&b, status, timing, context);
    return status;
}
