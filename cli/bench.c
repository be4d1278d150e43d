/* sluice bench: the eligible kernels of a problem timed side by side. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
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
    const char *dtype; /* --dtype, or NULL */
    case_list cases;
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

static void write_timing(json *out, const bench_row *row, double best) {
    const sl_timing *t = &row->timing;
    json_str(out, "kernel", row->kernel);
    if (row->refusal) {
        json_str(out, "refusal", row->refusal);
        return;
    }
    json_number(out, "median_s", t->median);
    json_number(out, "min_s", t->minimum);
    json_number(out, "max_s", t->maximum);
    json_number(out, "gflops", t->gflops);
    json_number(out, "ratio", best > 0 ? t->median / best : 1);
    json_int(out, "repeats", t->repeats);
}

static void print_rows_json(const bench_state *state, const char *problem) {
    double best = fastest(state);
    json out = {.file = stdout};
    json_open(&out, NULL, '{');
    json_str(&out, "problem", problem);
    json_open(&out, "kernels", '[');
    for (int i = 0; i < state->count; i++) {
        json_open(&out, NULL, '{');
        write_timing(&out, &state->rows[i], best);
        json_close(&out, '}');
    }
    json_close(&out, ']');
    json_close(&out, '}');
    json_end(&out);
    fflush(stdout);
}

static void free_rows(bench_state *state) {
    for (int i = 0; i < state->count; i++) {
        free(state->rows[i].kernel);
        free(state->rows[i].refusal);
    }
    state->count = 0;
}

static int bench_one(void *context, const char *problem) {
    bench_state *state = context;
    state->count = 0;
    int code = report(sl_bench_problem(problem, &state->options, state->seconds, keep_row, state));
    if (!code && state->memory_failed) code = report_memory();
    if (!code && state->json) print_rows_json(state, problem);
    if (!code && !state->json) print_rows(state, problem);
    free_rows(state);
    return code;
}

static json *open_line(bench_state *state, const char *problem) {
    json *out = case_line(&state->cases);
    json_str(out, "problem", problem);
    json_str(out, "dtype", state->dtype ? state->dtype : "");
    json_str(out, "device", state->options.device ? state->options.device : "auto");
    return out;
}

/* --jsonl: one line a kernel; a problem that cannot be timed is a line with the reason. */
static int bench_case(void *context, const char *problem) {
    bench_state *state = context;
    const char *device = state->options.device ? state->options.device : "auto";
    if (!case_begin(&state->cases, problem, state->dtype ? state->dtype : "", device)) return 0;
    state->count = 0;
    sl_status status = sl_bench_problem(problem, &state->options, state->seconds, keep_row, state);
    if (status == SL_OK && state->memory_failed) status = SL_ERR_OUT_OF_MEMORY;
    if (status == SL_OK) print_rows(state, problem);
    for (int i = 0; status == SL_OK && i < state->count; i++) {
        write_timing(open_line(state, problem), &state->rows[i], fastest(state));
        case_line_end(&state->cases);
    }
    if (status != SL_OK) {
        printf("FAIL %s %s: %s\n", problem, state->dtype ? state->dtype : "", sl_error_detail());
        json_str(open_line(state, problem), "error", sl_error_detail());
        case_line_end(&state->cases);
    }
    free_rows(state);
    int code = case_end(&state->cases, status == SL_OK);
    if (code) return code;
    return status == SL_ERR_DEVICE ? report(status) : status != SL_OK;
}

static int run(const command *command, int count, char **words) {
    bench_options bench = {.seconds = 1};
    where_options where = {0};
    script_options script = {0};
    case_options cases = {0};
    arguments a = {.values = {&bench, &where, &cases, &script}};
    int code = arguments_parse(&a, command, count, words);
    if (code != PARSE_GO_ON) return code;
    bench_state state = {.seconds = bench.seconds, .json = script.json, .dtype = where_dtype_name(&where, &a)};
    where_apply(&where, &a, &state.options);
    code = case_list_open(&state.cases, command, &cases);
    if (!code) code = for_each_problem(a.positional, a.positionals, cases.jsonl ? bench_case : bench_one, &state);
    if (cases.jsonl && code != 2) case_list_tell(&state.cases, "bench");
    case_list_close(&state.cases);
    return code;
}

const command command_bench = {
    .name = "bench",
    .summary = "time the eligible kernels of a problem side by side",
    .synopsis = "sluice bench PROBLEM|FILE... [--seconds S] [--threads N] [--device DEVICE] [--dtype TYPE] [--json]\n"
                "       sluice bench FILE... --jsonl LINES [--source TEXT] [--shard I/N] [--limit-seconds S]",
    .text =
        "Runs every kernel that takes the problem, alternating, and prints medians, the fastest and the slowest\n"
        "repeat, GFLOP/s and the time as a multiple of the fastest kernel's; refused kernels with their reason. A\n"
        "FILE holds one problem a line. With --json, one object a line for each problem. On a GPU the inputs are on\n"
        "the device before the clock starts, and a repeat is one of a burst of calls that is waited for once.",
    .groups = {&bench_group, &where_group, &case_group, &script_group},
    .examples = "  sluice bench lstm:b20_t35_i650_h650_train\n"
                "  sluice bench gru:b1_t100_i64_h128 --threads 1 --json\n",
    .least = 1,
    .most = -1,
    .missing = "bench needs a problem such as lstm:b20_t35_i650_h650_train",
    .run = run};
