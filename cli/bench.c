/* sluice bench: the eligible kernels of a problem timed side by side. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "json.h"
#include "problems.h"

typedef struct bench_options {
    double seconds;
} bench_options;

static const option bench_table[] = {{OPTION_REAL, "seconds", offsetof(bench_options, seconds), "S", 0, 3600,
                                      "time at least this long a kernel (default 1)"},
                                     {0}};
static const option_group bench_group = {"options", bench_table};

enum { ROWS_MOST = 64 };
typedef struct bench_row {
    sl_timing timing;
    char *kernel, *refusal; /* own copies: the callback's are borrowed */
} bench_row;

typedef struct bench_state {
    sl_plan_options options;
    double seconds;
    bool json, memory_failed;
    bench_row rows[ROWS_MOST];
    int count;
} bench_state;

static void keep_row(void *context, const sl_timing *timing) {
    bench_state *state = context;
    if (state->count == ROWS_MOST) return;
    bench_row *row = &state->rows[state->count++];
    row->timing = *timing;
    row->kernel = strdup(timing->kernel);
    row->refusal = timing->refusal ? strdup(timing->refusal) : NULL;
    if (!row->kernel || (timing->refusal && !row->refusal)) state->memory_failed = true;
}

static double fastest(const bench_state *state) {
    double best = 0;
    for (int i = 0; i < state->count; i++) {
        const sl_timing *t = &state->rows[i].timing;
        if (!t->refusal && (best == 0 || t->median < best)) best = t->median;
    }
    return best;
}

static void print_rows(const bench_state *state, const char *problem) {
    double best = fastest(state);
    printf("%s\n  %-16s %12s %12s %12s %10s %8s %8s\n", problem, "kernel", "median ms", "min ms", "max ms", "GFLOP/s",
           "ratio", "repeats");
    for (int i = 0; i < state->count; i++) {
        const bench_row *row = &state->rows[i];
        const sl_timing *t = &row->timing;
        if (row->refusal)
            printf("  %-16s refused: %s\n", row->kernel, row->refusal);
        else
            printf("  %-16s %12.4f %12.4f %12.4f %10.2f %8.2f %8d\n", row->kernel, t->median * 1e3, t->minimum * 1e3,
                   t->maximum * 1e3, t->gflops, best > 0 ? t->median / best : 1, t->repeats);
    }
    fflush(stdout);
}

static void print_rows_json(const bench_state *state, const char *problem) {
    double best = fastest(state);
    json out = {.file = stdout};
    json_open(&out, NULL, '{');
    json_str(&out, "problem", problem);
    json_open(&out, "kernels", '[');
    for (int i = 0; i < state->count; i++) {
        const bench_row *row = &state->rows[i];
        const sl_timing *t = &row->timing;
        json_open(&out, NULL, '{');
        json_str(&out, "kernel", row->kernel);
        if (row->refusal) {
            json_str(&out, "refusal", row->refusal);
        } else {
            json_number(&out, "median_s", t->median);
            json_number(&out, "min_s", t->minimum);
            json_number(&out, "max_s", t->maximum);
            json_number(&out, "gflops", t->gflops);
            json_number(&out, "ratio", best > 0 ? t->median / best : 1);
            json_int(&out, "repeats", t->repeats);
        }
        json_close(&out, '}');
    }
    json_close(&out, ']');
    json_close(&out, '}');
    json_end(&out);
    fflush(stdout);
}

static int bench_one(void *context, const char *problem) {
    bench_state *state = context;
    state->count = 0;
    int code = report(sl_bench_problem(problem, &state->options, state->seconds, keep_row, state));
    if (!code && state->memory_failed) code = report_memory();
    if (!code && state->json) print_rows_json(state, problem);
    if (!code && !state->json) print_rows(state, problem);
    for (int i = 0; i < state->count; i++) {
        free(state->rows[i].kernel);
        free(state->rows[i].refusal);
    }
    return code;
}

static int run(const command *command, int count, char **words) {
    bench_options bench = {.seconds = 1};
    where_options where = {0};
    script_options script = {0};
    arguments a = {.values = {&bench, &where, &script}};
    int code = arguments_parse(&a, command, count, words);
    if (code != PARSE_GO_ON) return code;
    if (arguments_given(&a, "dtype"))
        return usage_error(command, "--dtype: the precision is part of the problem, such as lstm:h8_bf16");
    bench_state state = {.seconds = bench.seconds, .json = script.json};
    where_apply(&where, &a, &state.options);
    return for_each_problem(a.positional, a.positionals, bench_one, &state);
}

const command command_bench = {
    .name = "bench",
    .summary = "time the eligible kernels of a problem side by side",
    .synopsis = "sluice bench PROBLEM|FILE... [--seconds S] [--threads N] [--device DEVICE] [--json]",
    .text = "Runs every kernel that takes the problem, alternating, and prints medians, the fastest and the slowest\n"
            "repeat, GFLOP/s and the time as a multiple of the fastest kernel's; refused kernels with their reason. A\n"
            "FILE holds one problem a line. With --json, one object a line for each problem.",
    .groups = {&bench_group, &where_group, &script_group},
    .examples = "  sluice bench lstm:b20_t35_i650_h650_train\n"
                "  sluice bench gru:b1_t100_i64_h128 --threads 1 --json\n",
    .least = 1,
    .most = -1,
    .missing = "bench needs a problem such as lstm:b20_t35_i650_h650_train",
    .run = run};
