/* Timing every way to compute each recurrent problem of a plan. Problems of one layer and direction come first, then both
 * directions of a layer, then stacks: what the parts of a wide problem take is timed as well, each on its fastest kernel. */
#include "tune/tune.h"

#include <stdio.h>
#include <string.h>

#include "proof/bench.h"

enum { MOST_PROBLEMS = 256, HOPELESS = 10 };
/* Of timing one problem; a kernel without prediction that takes longer at GUESSED_FLOPS a second is not tried. */
#define SECONDS 0.2
#define GUESSED_FLOPS 1e9

typedef struct way {
    char name[64 + SLI_CUT_NAME]; /* of a row, ROW@CUT of one with several cuts, "parts" */
    double seconds;               /* negative: not known */
    const sli_kernel *row;        /* NULL: parts */
    int cut;                      /* sli_problem.cut */
} way;

typedef struct tuner {
    const sl_plan *plan;     /* as predicted */
    sl_plan_options options; /* of every benchmark */
    bool again;
    sli_tuned tuned;
    sli_problem problems[MOST_PROBLEMS];
    int problem_count;
    sli_text choices, notes;
    /* The problem at hand. */
    way ways[SLI_BENCH_WAYS];
    int way_count, timed; /* the first `timed` have their time */
} tuner;

/* ------------------------------------------------------------------------------------------------------ problems -- */
static void add_problem(tuner *t, const sli_problem *problem) {
    char text[SLI_PROBLEM_TEXT], other[SLI_PROBLEM_TEXT];
    sli_problem_print(problem, text, sizeof text);
    for (int k = 0; k < t->problem_count; k++) {
        sli_problem_print(&t->problems[k], other, sizeof other);
        if (strcmp(text, other) == 0) return;
    }
    if (t->problem_count < MOST_PROBLEMS) t->problems[t->problem_count++] = *problem;
}

/* The parts, then the problem. */
static void add_with_parts(tuner *t, const sli_problem *wide) {
    for (int l = 0; l < wide->layers && sli_problem_parts(wide) > 1; l++) {
        for (int d = 0; d < sli_problem_directions(wide); d++) {
            sli_problem part = sli_problem_part(wide, l, d);
            add_problem(t, &part);
        }
        sli_problem layer = sli_problem_part(wide, l, -1);
        if (wide->layers > 1) add_problem(t, &layer);
    }
    add_problem(t, wide);
}

static void find_problems(tuner *t) {
    const sl_plan *plan = t->plan;
    for (const sli_refusal *offer = plan->offers; offer; offer = offer->next) {
        sli_problem wide;
        if (sli_problem_parse(offer->problem, &wide) == SL_OK) add_with_parts(t, &wide);
    }
    for (int i = 0; i < plan->step_count; i++)
        if (sli_op_is_recurrent(plan->steps[i].problem.op)) add_with_parts(t, &plan->steps[i].problem);
}

static bool is_chosen(const tuner *t, const char *problem) {
    for (int k = 0; k < t->plan->choice_count; k++)
        if (strcmp(t->plan->choices[k].problem, problem) == 0) return true;
    return false;
}

/* ---------------------------------------------------------------------------------------------------------- ways -- */
static void add_way(tuner *t, const sli_kernel *row, int cut, const char *name) {
    if (t->way_count == SLI_BENCH_WAYS) return;
    way *w = &t->ways[t->way_count++];
    *w = (way){.seconds = -1, .row = row, .cut = cut};
    snprintf(w->name, sizeof w->name, "%s%s%s", row ? row->name : "", row && name[0] ? "@" : "", name);
}

/* Cut `cut` of a row, if there is one. */
static void add_cut(tuner *t, const sli_kernel *row, const sli_problem *problem, int cut) {
    char name[SLI_CUT_NAME];
    sli_problem p = *problem;
    p.cut = cut;
    if (row->cut(&p, &t->plan->caps, name, sizeof name)) add_way(t, row, cut, name);
}

/* A row in one way, or in its first cuts of forward. */
static void add_row(tuner *t, const sli_kernel *row, const sli_problem *problem) {
    if (!row->cut) add_way(t, row, 0, "");
    for (int cut = 0; row->cut && cut < SLI_CUTS; cut++) add_cut(t, row, problem, cut);
}

static bool is_hopeless(const tuner *t, const sli_kernel *row, const sli_problem *problem, double least) {
    const sli_caps *caps = &t->plan->caps;
    double seconds = sli_kernel_seconds(row, problem, caps);
    if (seconds >= 0) return least >= 0 && seconds > HOPELESS * least;
    sli_cost cost = {0};
    if (row->cost) row->cost(problem, caps, &cost);
    return cost.flops > GUESSED_FLOPS * SECONDS;
}

/* Rows that are worth trying, and for a wide problem its parts. */
static void find_ways(tuner *t, const sli_problem *problem) {
    const sli_kernel *rows[SLI_PLAN_CANDIDATES];
    int count = sli_plan_candidates(t->plan, problem, rows);
    double least = -1;
    for (int k = 0; k < count; k++) {
        double seconds = sli_kernel_seconds(rows[k], problem, &t->plan->caps);
        if (seconds >= 0 && (least < 0 || seconds < least)) least = seconds;
    }
    t->way_count = t->timed = 0;
    for (int k = 0; k < count; k++)
        if (k == 0 || !is_hopeless(t, rows[k], problem, least)) add_row(t, rows[k], problem);
    if (count > 0 && sli_problem_parts(problem) > 1) add_way(t, NULL, 0, "parts");
}

static const way *fastest(const tuner *t) {
    const way *best = NULL;
    for (int k = 0; k < t->way_count; k++)
        if (t->ways[k].seconds >= 0 && (!best || t->ways[k].seconds < best->seconds)) best = &t->ways[k];
    return best;
}

/* The fastest row has other cuts of backward: these ways are left, beside the fastest, whose time stands: what is remembered
 * chooses the same. */
static bool find_backward_ways(tuner *t, const sli_problem *problem) {
    const way *best = fastest(t);
    if (!best || !best->row || !best->row->cut || !problem->train) return false;
    const way first = *best;
    t->ways[0] = first;
    t->way_count = t->timed = 1;
    for (int backward = 1; backward < SLI_CUTS; backward++)
        add_cut(t, first.row, problem, first.cut + SLI_CUTS * backward);
    return t->way_count > 1;
}

static bool recall(tuner *t, const char *problem) {
    for (int k = t->timed; k < t->way_count; k++) {
        t->ways[k].seconds = t->again ? -1 : sli_tuned_seconds(&t->tuned, problem, t->ways[k].name);
        if (t->ways[k].seconds < 0) return false;
    }
    return true;
}

/* ------------------------------------------------------------------------------------------------------- timing -- */
static void keep_time(void *context, const sl_timing *timing) {
    tuner *t = context;
    for (int k = 0; k < t->way_count; k++)
        if (strcmp(t->ways[k].name, timing->kernel) == 0) t->ways[k].seconds = timing->refusal ? -1 : timing->median;
}

/* A way is the choice of it, beside what was chosen for the parts. */
static sl_status time_ways(tuner *t, const sli_problem *problem, const char *text) {
    sli_arena arena;
    sli_bench_way ways[SLI_BENCH_WAYS];
    const int first = t->timed, count = t->way_count - t->timed;
    sl_status status = SL_OK;
    sli_arena_init(&arena, &t->plan->allocator);
    for (int k = first; k < t->way_count; k++) {
        t->ways[k].seconds = -1;
        ways[k].name = t->ways[k].name;
        ways[k].choices =
            sli_arena_format(&arena, "%s%s %s\n", t->choices.data ? t->choices.data : "", text, t->ways[k].name);
        if (!ways[k].choices) status = sli_fail_memory("choices to be timed", t->choices.length);
    }
    if (status == SL_OK) status = sli_bench_ways(problem, &t->options, ways + first, count, SECONDS, keep_time, t);
    sli_arena_free(&arena);
    for (int k = first; k < t->way_count && status == SL_OK; k++)
        if (t->ways[k].seconds > 0) status = sli_tuned_add(&t->tuned, text, t->ways[k].name, t->ways[k].seconds);
    return status;
}

static void note_ways(tuner *t, const char *text, bool remembered) {
    sli_text_printf(&t->notes, "timed %s: ", text);
    for (int k = 0; k < t->way_count; k++)
        if (t->ways[k].seconds < 0)
            sli_text_printf(&t->notes, "%s%s cannot", k ? ", " : "", t->ways[k].name);
        else
            sli_text_printf(&t->notes, "%s%s %.4g us", k ? ", " : "", t->ways[k].name, 1e6 * t->ways[k].seconds);
    sli_text_printf(&t->notes, "%s\n", remembered ? " (remembered)" : "");
}

static void choose(tuner *t, const char *text) {
    const way *best = fastest(t);
    if (!best) return;
    sli_text_printf(&t->choices, "%s %s ", text, best->name);
    sli_text_number(&t->choices, 1e6 * best->seconds);
    sli_text_append(&t->choices, "\n", 1);
}

static sl_status measure(tuner *t, const sli_problem *problem, const char *text) {
    bool remembered = recall(t, text);
    if (!remembered) SLI_TRY(time_ways(t, problem, text));
    note_ways(t, text, remembered);
    return SL_OK;
}

/* A problem that cannot be timed is left to what is predicted. */
static sl_status tune_problem(tuner *t, const sli_problem *problem) {
    char text[SLI_PROBLEM_TEXT];
    sli_problem_print(problem, text, sizeof text);
    if (is_chosen(t, text)) return SL_OK;
    find_ways(t, problem);
    if (t->way_count < 2) return SL_OK;
    sl_status status = measure(t, problem, text);
    const bool forward = status == SL_OK;
    if (forward && find_backward_ways(t, problem)) status = measure(t, problem, text);
    if (status != SL_OK) {
        sli_text_printf(&t->notes, "%s%s was not timed: %s\n", forward ? "backward of " : "", text, sl_error_detail());
        sli_clear_error();
    }
    if (forward) choose(t, text);
    return SL_OK;
}

static sl_status tune_all(tuner *t) {
    if (t->plan->caps.invented) {
        sli_text_printf(&t->notes, "nothing was timed: device %s is invented\n", t->plan->caps.name);
        return SL_OK;
    }
    SLI_TRY(sli_tuned_open(&t->plan->allocator, &t->plan->caps, t->plan->ops, &t->tuned));
    find_problems(t);
    for (int parts = 1; parts <= SLI_MAX_PARTS; parts++)
        for (int k = 0; k < t->problem_count; k++)
            if (sli_problem_parts(&t->problems[k]) == parts) SLI_TRY(tune_problem(t, &t->problems[k]));
    if (sli_tuned_save(&t->tuned) == SL_OK) return SL_OK;
    sli_text_printf(&t->notes, "times are not remembered: %s\n", sl_error_detail());
    sli_clear_error();
    return SL_OK;
}

/* -------------------------------------------------------------------------------------------------------- plan -- */
static sl_status plan_tuned(tuner *t, const sl_model *model, const sl_plan_options *options, sl_plan **plan) {
    sl_plan_options with = *options;
    sli_text all; /* timed, then given: of two lines the last counts */
    sli_text_init(&all, &t->plan->allocator);
    sli_text_printf(&all, "%s%s", t->choices.data ? t->choices.data : "", options->choices ? options->choices : "");
    with.choices = all.data;
    sl_status status = all.failed || t->choices.failed || t->notes.failed
                           ? sli_fail_memory("choices", all.length)
                           : sli_plan_new(model, &with, t->notes.data, plan);
    sli_text_free(&all);
    return status;
}

sl_status sli_tune_plan(const sl_model *model, const sl_plan_options *options, sl_plan **plan) {
    sl_plan *predicted;
    SLI_TRY(sli_plan_new(model, options, NULL, &predicted));
    tuner *t = sli_alloc_zero(&predicted->allocator, sizeof *t);
    sl_allocator allocator = predicted->allocator;
    if (!t) {
        sl_plan_free(predicted);
        return sli_fail_memory("tuning", sizeof *t);
    }
    t->plan = predicted;
    t->again = options->tune == SL_TUNE_AGAIN;
    t->options = (sl_plan_options){.device = predicted->caps.name,
                                   .require = predicted->options.require,
                                   .threads = predicted->options.threads,
                                   .thread_pool = options->thread_pool,
                                   .memory_limit = predicted->options.memory_limit,
                                   .no_graph = predicted->options.no_graph,
                                   .allocator = &predicted->allocator};
    sli_text_init(&t->choices, &allocator);
    sli_text_init(&t->notes, &allocator);
    sl_status status = tune_all(t);
    if (status == SL_OK) status = plan_tuned(t, model, options, plan);
    sli_tuned_close(&t->tuned);
    sli_text_free(&t->choices);
    sli_text_free(&t->notes);
    sl_plan_free(predicted);
    sli_free(&allocator, t, sizeof *t);
    return status;
}
