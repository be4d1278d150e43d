/* Parity of one kernel with the double reference, and the equality to the bit that a plan promises. */
#include "proof/parity.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/plan.h"
#include "core/rounding.h"

enum { CALLS = 3, REFERENCES = 2, MOVED = 16 };

/* ------------------------------------------------------------------------------------------------------- comparing -- */

static double relative_error(const double *values, const double *reference, size_t count) {
    double wrong = 0, size = 0;
    for (size_t k = 0; k < count; k++) {
        double difference = values[k] - reference[k];
        wrong += difference * difference;
        size += reference[k] * reference[k];
    }
    /* Numbers whose rounding is less than floats hold, through 300 steps that forget, may be zeros. */
    const double least = FLT_MIN / FLT_EPSILON;
    return wrong == 0 ? 0 : sqrt(wrong / fmax(size, (double)count * least * least));
}

static void compare_loss(const sli_part *part, const sli_part *reference, sli_tolerance tolerance, const char *kernel,
                         const char *call, sli_report *report) {
    double counts = fabs(part->values[1] - reference->values[1]);
    double bound = tolerance.output * sli_tolerance_of_few(reference->values[1]);
    sli_report_add(report, kernel, relative_error(part->values, reference->values, 1), bound, "%s: loss", call);
    sli_report_add(report, kernel, counts, 0, "%s: count of valid elements", call);
}

/* What the two references differ by is allowed where it is more than rounding explains: terms of their own beside its errors, so that
 * squares add. */
static double bound_of_two(double bound, double apart) {
    return apart > bound ? hypot(bound, apart) : bound;
}

/* What is allowed of a tensor. Never so much that zeros, or half of what is right, would pass: their error is 1, and a half. */
#define MOST_BOUND 0.49
static double bound_of(const sli_part *reference, double tolerance) {
    return fmin(MOST_BOUND,
                tolerance * sli_tolerance_of_few(sli_numbers_that_count(reference->values, reference->count)));
}

/* Results of the reference `of` that rounding has moved, `count` of them; so many bounds, or times the farthest, are allowed. */
typedef struct moves {
    const sli_results *results, *of;
    int count;
    double bounds, times;
} moves;
static double moved_by(const moves *m, int part) {
    const sli_part *of = &m->of->parts[part];
    double most = 0;
    for (int i = 0; i < m->count; i++)
        most = fmax(most, relative_error(m->results[i].parts[part].values, of->values, of->count));
    return most;
}

/* A tensor, which errs by more than `bound`: as far as rounding moves it. What that moves by half and more nobody can compute in this precision, so that
 * zeros would pass as well: nothing is said of it. */
static void add_moved(const moves *m, int part, double error, double bound, const char *kernel, const char *what,
                      sli_report *report) {
    const double by = moved_by(m, part), wide = bound_of_two(m->bounds * bound, m->times * by);
    if (wide > MOST_BOUND && wide > bound)
        sli_report_note(report, kernel, "%s is moved by %.1g by rounding, error %.1g: nothing is proved of it", what,
                        by, error);
    else if (error <= wide)
        sli_report_add(report, kernel, error, wide, "%s, which rounding moves by %.1g", what, by);
    else
        sli_report_add(report, kernel, error, bound, "%s", what);
}

static void compare(const sli_results *results, const sli_results *reference, const sli_results *other,
                    const moves *moved, sli_tolerance tolerance, const char *kernel, const char *call,
                    sli_report *report) {
    for (int k = 0; k < results->count; k++) {
        const sli_part *part = &results->parts[k], *wanted = &reference->parts[k];
        if (part->count == 0) continue;
        if (part->kind == SLI_PART_LOSS) {
            compare_loss(part, wanted, tolerance, kernel, call, report);
            continue;
        }
        const bool output = part->kind == SLI_PART_OUTPUT;
        const double error = relative_error(part->values, wanted->values, part->count);
        double bound = bound_of(wanted, output ? tolerance.output : tolerance.gradient);
        char what[160];
        if (other) bound = bound_of_two(bound, relative_error(other->parts[k].values, wanted->values, part->count));
        snprintf(what, sizeof what, "%s: %s%s", call, output ? "" : "d ", part->name);
        if (moved && error > bound && isfinite(error))
            add_moved(moved, k, error, bound, kernel, what, report);
        else
            sli_report_add(report, kernel, error, bound, "%s", what);
    }
}

void sli_compare(const sli_results *results, const sli_results *reference, const sli_results *other,
                 sli_tolerance tolerance, const char *kernel, const char *call, sli_report *report) {
    compare(results, reference, other, NULL, tolerance, kernel, call, report);
}

/* The largest error as a multiple of what is allowed; a NaN is as far as can be. */
static void keep_most(void *context, const sl_finding *finding) {
    double *most = context;
    const double ratio = finding->error == 0 ? 0 : finding->error / finding->tolerance;
    if (!(ratio <= *most)) *most = isnan(ratio) ? HUGE_VAL : ratio;
}

double sli_apart(const sli_results *results, const sli_results *others, sli_tolerance one, sli_tolerance other,
                 char first[256]) {
    const sli_tolerance both = {one.output + other.output, one.gradient + other.gradient};
    double most = 0;
    sli_report report = {.finding = keep_most, .context = &most};
    sli_compare(results, others, NULL, both, "kernels", "one and other", &report);
    memcpy(first, report.first, sizeof report.first);
    return most;
}

void sli_compare_bits(const sli_results *results, const sli_results *reference, const char *kernel, const char *what,
                      sli_report *report) {
    size_t different = 0;
    for (int k = 0; k < results->count; k++) {
        const sli_part *part = &results->parts[k], *other = &reference->parts[k];
        for (size_t i = 0; i < part->count; i++)
            different += memcmp(&part->values[i], &other->values[i], sizeof(double)) != 0;
    }
    sli_report_add(report, kernel, (double)different, 0, "same bits: %s", what);
}

/* ---------------------------------------------------------------------------------------------------------- kernels -- */

typedef struct pair {
    sli_subject *subject;
    const sl_plan_options *options;
    const char *kernel;
    sli_report *report;
    sli_trial trial;
    sli_results results, again;
    sli_tolerance tolerance;
} pair;

/* --------------------------------------------------------------------------------------------------- the reference -- */

/* What the reference gives to each call, computed once for all kernels of a subject: of the two references, the second is
 * that of tf32 whose operands lose their lower digits; behind them those that rounding has moved. */
struct sli_expected {
    sli_results results[CALLS][REFERENCES + MOVED];
    bool known[CALLS][REFERENCES + MOVED];
};

/* Fills in what is not known yet. */
static sl_status compute_expected(sli_subject *s, int call, int reference, const sli_trial_call *what) {
    sli_trial trial;
    if (!s->expected) {
        s->expected = sli_arena_alloc(&s->arena, sizeof *s->expected);
        if (!s->expected) return sli_fail_memory("the results of a proof", sizeof *s->expected);
        *s->expected = (struct sli_expected){0};
    }
    if (s->expected->known[call][reference]) return SL_OK;
    sli_results *results = &s->expected->results[call][reference];
    SLI_TRY(sli_results_new(s, what->training, results));
    if (reference < REFERENCES)
        SLI_TRY(sli_trial_open_reference(s, reference ? SLI_TF32_CUT : s->operands, &trial));
    else
        SLI_TRY(sli_trial_open_moved(s, 1 + reference - REFERENCES, &trial));
    sl_status status = sli_trial_run(&trial, what, results);
    sli_trial_close(&trial);
    s->expected->known[call][reference] = status == SL_OK;
    return status;
}

/* Largest relative error of a part. */
static double distance(const sli_results *results, const sli_results *reference) {
    double most = 0;
    for (int k = 0; k < results->count; k++) {
        const sli_part *part = &results->parts[k], *other = &reference->parts[k];
        if (part->count == 0) continue;
        size_t count = part->kind == SLI_PART_LOSS ? 1 : part->count;
        double error = relative_error(part->values, other->values, count);
        if (isnan(error)) return HUGE_VAL;
        most = fmax(most, error);
    }
    return most;
}

/* What p->results is to be, and in tf32 another that is as good. Tensor cores round a float to tf32 or cut its digits off, the
 * library's kernels as they like, and products of few rows are exact: one kernel may have all three. Results differ by little, but where
 * a pre-activation or a cell lies that near to a kink, gradients differ by a whole term. So the nearer of both references holds, and
 * there how far apart they lie is allowed as well. */
static sl_status expect(pair *p, int call, const sli_trial_call *what, const sli_results **expected,
                        const sli_results **other) {
    SLI_TRY(compute_expected(p->subject, call, 0, what));
    *expected = &p->subject->expected->results[call][0];
    *other = NULL;
    if (p->subject->operands != SL_TF32) return SL_OK;
    SLI_TRY(compute_expected(p->subject, call, 1, what));
    *other = &p->subject->expected->results[call][1];
    if (distance(&p->results, *other) >= distance(&p->results, *expected)) return SL_OK;
    const sli_results *rounded = *expected;
    *expected = *other;
    *other = rounded;
    return SL_OK;
}

/* Each draw is as much work as the reference. A kink needs the one that moves a cell across it. */
static int draws_of(const pair *p) {
    const double small = 1e9; /* FLOPs: about a second */
    if (p->options->dtype == SL_F64) return 0;
    return sl_plan_flops(p->trial.plan) < small ? MOVED : MOVED / 4;
}

/* Small sums by cancellation, dynamics that part from each other, a cell next to a kink: where results are off by more than rounding explains, rounding is tried.
 * The reference's own products are moved by it, and what that makes of its results holds as well. */
static sl_status compare_call(pair *p, int call, const sli_trial_call *what, const char *name) {
    enum { FAR = 20 };
    const sli_results *expected, *other;
    SLI_TRY(expect(p, call, what, &expected, &other));
    moves moved = {NULL, NULL, 0, 1, 2};
    sli_report silent = {0};
    sli_compare(&p->results, expected, other, p->tolerance, p->kernel, name, &silent);
    while (silent.failures > 0 && moved.count < draws_of(p)) {
        SLI_TRY(compute_expected(p->subject, call, REFERENCES + moved.count, what));
        const struct sli_expected *all = p->subject->expected;
        moved = (moves){&all->results[call][REFERENCES], &all->results[call][0], moved.count + 1, FAR, FAR};
        sli_report far = {0};
        compare(&p->results, expected, other, &moved, p->tolerance, p->kernel, name, &far);
        moved.bounds = 1;
        moved.times = 2;
        if (far.failures > 0) break; /* no draws for what is wrong by far */
        silent = (sli_report){0};
        compare(&p->results, expected, other, &moved, p->tolerance, p->kernel, name, &silent);
    }
    compare(&p->results, expected, other, moved.count > 0 ? &moved : NULL, p->tolerance, p->kernel, name, p->report);
    return SL_OK;
}

/* Inference, training and a smaller call against the reference. */
static sl_status compare_calls(pair *p) {
    const sl_plan_options *options = &p->subject->options;
    int batch = (options->batch + 1) / 2, steps = (options->steps + 1) / 2;
    bool train = options->train != 0, smaller = options->batch > 1 || options->steps > 1;
    char small[64];
    snprintf(small, sizeof small, "%s of b%d t%d", train ? "training" : "inference", batch, steps);
    const struct {
        sli_trial_call call;
        const char *name;
        bool wanted;
    } calls[CALLS] = {{{.training = false}, "inference", true},
                      {{.training = true}, "training", train},
                      {{.batch = batch, .steps = steps, .training = train}, small, smaller}};
    for (int k = 0; k < CALLS; k++) {
        if (!calls[k].wanted) continue;
        SLI_TRY(sli_trial_run(&p->trial, &calls[k].call, &p->results));
        SLI_TRY(compare_call(p, k, &calls[k].call, calls[k].name));
    }
    return SL_OK;
}

/* A hash of the bits of all numbers, a word at a time (the low bits of a widened float are all 0: high ones are folded down). */
static uint64_t digest_of(const sli_results *results) {
    uint64_t digest = 0xcbf29ce484222325u;
    for (int k = 0; k < results->count; k++)
        for (size_t i = 0; i < results->parts[k].count; i++) {
            uint64_t bits;
            memcpy(&bits, &results->parts[k].values[i], sizeof bits);
            digest = (digest ^ bits) * 0x100000001b3u;
            digest ^= digest >> 32;
        }
    return digest;
}

/* The same call in memory full of NaN, after other calls. Leaves its results in p->results. */
static sl_status repeat_poisoned(pair *p) {
    sli_trial_call call = {.training = p->subject->options.train != 0};
    SLI_TRY(sli_trial_run(&p->trial, &call, &p->results));
    p->report->digest = digest_of(&p->results);
    call.poison = true;
    SLI_TRY(sli_trial_run(&p->trial, &call, &p->again));
    sli_compare_bits(&p->again, &p->results, p->kernel, "again, in poisoned memory", p->report);
    return SL_OK;
}

/* Another plan of the same must give the bits in p->results. */
static sl_status compare_plan(pair *p, const sl_plan_options *options, const char *what) {
    sli_trial other;
    sli_trial_call call = {.training = p->subject->options.train != 0, .poison = true};
    SLI_TRY(sli_trial_open(p->subject, options, &other));
    /* The options may bring other kernels into reach, which add in another order. */
    bool same = strcmp(sl_plan_kernels(other.plan), sl_plan_kernels(p->trial.plan)) == 0;
    sl_status status = same ? sli_trial_run(&other, &call, &p->again) : SL_OK;
    if (!same) sli_report_note(p->report, p->kernel, "%s: takes %s", what, sl_plan_kernels(other.plan));
    if (same && status == SL_OK) sli_compare_bits(&p->again, &p->results, p->kernel, what, p->report);
    sli_trial_close(&other);
    return status;
}

/* Every piece of memory apart from its neighbours: the bytes behind each must be as they were, the results the same bits. */
static sl_status compare_guarded(pair *p) {
    sli_trial guarded;
    sli_trial_call call = {.training = p->subject->options.train != 0, .poison = true};
    size_t damaged = 0;
    SLI_TRY(sli_trial_open_guarded(p->subject, p->options, &guarded));
    sl_status status = sli_trial_run(&guarded, &call, &p->again);
    if (status == SL_OK) status = sli_trial_count_damage(&guarded, &damaged);
    if (status == SL_OK) {
        sli_compare_bits(&p->again, &p->results, p->kernel, "between guard zones", p->report);
        sli_report_add(p->report, p->kernel, (double)damaged, 0, "guard zones: bytes written to");
    }
    sli_trial_close(&guarded);
    return status;
}

static sl_status compare_eager(pair *p) {
    sl_plan_options options = *p->options;
    options.no_graph = 1;
    return compare_plan(p, &options, "every kernel launched anew, not replayed");
}

static sl_status compare_threads(pair *p) {
    sl_plan_options options = *p->options;
    options.threads = 2;
    return compare_plan(p, &options, "2 threads and 1");
}

/* Plans just below what is needed, then lower and lower, until a plan does not fit any more: each has more segments. */
static sl_status compare_segments(pair *p) {
    for (int k = 0; k < p->trial.plan->step_count; k++) {
        const sli_step *step = &p->trial.plan->steps[k];
        if (step->kernel->whole || step->kernel->whole_sums ||
            (step->kernel->folds && step->kernel->folds(&step->problem)))
            return SL_OK; /* promises no such thing */
    }
    sl_plan_options options = *p->options;
    int most = 1;
    sl_memory memory = p->trial.plan->memory;
    for (int attempt = 0; attempt < 3; attempt++) {
        sl_plan *plan = NULL;
        char what[64];
        options.memory_limit = memory.params_block + memory.run_block - 1;
        sl_status status = sli_plan_new(p->subject->model, &options, NULL, &plan);
        if (status == SL_ERR_MEMORY_LIMIT) {
            sli_clear_error();
            return SL_OK;
        }
        SLI_TRY(status);
        memory = plan->memory;
        bool same = plan->step_count == p->trial.plan->step_count; /* else both directions came apart: other sums */
        sl_plan_free(plan);
        if (!same || memory.segments <= most) return SL_OK; /* one chunk, or memory that no segment saves */
        most = memory.segments;
        snprintf(what, sizeof what, "recomputed in %d segments", most);
        SLI_TRY(compare_plan(p, &options, what));
    }
    return SL_OK;
}

/* Three training steps; then the parameters are compared instead of gradients. */
static sl_status update_three_times(sli_trial *trial, sli_results *results) {
    sli_trial_call call = {.training = true};
    for (int step = 0; step < 3; step++) {
        SLI_TRY(sli_trial_run(trial, &call, results));
        SLI_TRY(sl_run_update(trial->run, 0.1, NULL));
    }
    for (int k = 0; k < results->count; k++) {
        sli_part *part = &results->parts[k];
        if (part->kind == SLI_PART_GRADIENT)
            SLI_TRY(sl_params_get(trial->params, part->name, part->values, part->count));
        else
            part->count = 0;
    }
    return SL_OK;
}

static sl_status compare_updates(pair *p) {
    sli_trial reference;
    sli_results expected;
    SLI_TRY(sli_results_new(p->subject, true, &expected));
    SLI_TRY(sli_trial_open_reference(p->subject, p->subject->operands, &reference));
    sl_status status = update_three_times(&reference, &expected);
    sli_trial_close(&reference);
    SLI_TRY(status);
    SLI_TRY(update_three_times(&p->trial, &p->results));
    sli_compare(&p->results, &expected, NULL, p->tolerance, p->kernel, "three updates", p->report);
    return SL_OK;
}

static sl_status check_kernel(pair *p, bool updates) {
    sl_plan_options options = *p->options;
    if (options.threads == 0) options.threads = 1;
    SLI_TRY(sli_trial_open(p->subject, &options, &p->trial));
    bool cuda = p->trial.plan->caps.kind == SLI_DEVICE_CUDA;
    SLI_TRY(sli_results_new(p->subject, true, &p->results));
    SLI_TRY(sli_results_new(p->subject, true, &p->again));
    p->tolerance = sli_tolerance_of(p->trial.plan, options.dtype);
    SLI_TRY(compare_calls(p));
    SLI_TRY(repeat_poisoned(p));
    SLI_TRY(compare_guarded(p));
    if (p->trial.plan->caps.graphs) SLI_TRY(compare_eager(p));
    if (!cuda && p->options->threads == 0) SLI_TRY(compare_threads(p));
    if (p->options->memory_limit == 0) SLI_TRY(compare_segments(p));
    return updates ? compare_updates(p) : SL_OK;
}

sl_status sli_check_parity(sli_subject *subject, const sl_plan_options *options, const char *kernel, bool updates,
                           sli_report *report) {
    pair p = {.subject = subject, .options = options, .kernel = kernel, .report = report};
    sl_status status = check_kernel(&p, updates);
    sli_trial_close(&p.trial);
    return status;
}
