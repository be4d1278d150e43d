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
    char *choices;     /* --tune: sl_plan_choices of the problem at hand; else NULL */
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

/* Microseconds of a time step; "-": nothing recurs, or not known. */
static const char *step_text(const sl_timing *t, double seconds, char text[32]) {
    if (t->steps > 0 && seconds >= 0)
        snprintf(text, 32, "%.3f", 1e6 * seconds / t->steps);
    else
        snprintf(text, 32, "-");
    return text;
}

/* Of several kernels that were timed each is, unless there is no memory for it. */
static bool are_compared(const bench_state *state) {
    int timed = 0, compared = 0;
    for (int i = 0; i < state->count; i++) {
        timed += !state->rows[i].refusal;
        compared += state->rows[i].timing.apart >= 0;
    }
    return timed < 2 || compared == timed;
}

static void print_rows(const bench_state *state, const char *problem) {
    double best = fastest(state);
    printf("%s\n  %-20s %12s %12s %12s %10s %8s %8s %10s %10s\n", problem, "kernel", "median ms", "min ms", "max ms",
           "GFLOP/s", "ratio", "repeats", "us/step", "predicted");
    for (int i = 0; i < state->count; i++) {
        const bench_row *row = &state->rows[i];
        const sl_timing *t = &row->timing;
        char measured[32], expected[32];
        if (row->refusal)
            printf("  %-20s refused: %s\n", row->kernel, row->refusal);
        else
            printf("  %-20s %12.4f %12.4f %12.4f %10.2f %8.2f %8d %10s %10s\n", row->kernel, t->median * 1e3,
                   t->minimum * 1e3, t->maximum * 1e3, t->gflops, best > 0 ? t->median / best : 1, t->repeats,
                   step_text(t, t->median, measured), step_text(t, t->predicted, expected));
    }
    if (!are_compared(state)) printf("  the numbers of these kernels were not compared: out of memory\n");
    for (const char *line = state->choices; line && *line; line += strcspn(line, "\n") + 1)
        printf("  plans take %.*s\n", (int)strcspn(line, "\n"), line);
    flush_output();
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
    if (t->steps > 0) json_number(out, "us_per_step", 1e6 * t->median / t->steps);
    if (t->steps > 0 && t->predicted >= 0) json_number(out, "predicted_us_per_step", 1e6 * t->predicted / t->steps);
    if (t->apart >= 0) json_number(out, "apart", t->apart);
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
    if (state->choices) json_str(&out, "choices", state->choices);
    json_close(&out, '}');
    json_end(&out);
    flush_output();
}

static void free_rows(bench_state *state) {
    for (int i = 0; i < state->count; i++) {
        free(state->rows[i].kernel);
        free(state->rows[i].refusal);
    }
    free(state->choices);
    state->choices = NULL;
    state->count = 0;
}

static bool is_timed(sl_status status) {
    return status == SL_OK || status == SL_ERR_CHECK;
}

/* --tune: what plans with it will take of the problem, remembered for them. */
static sl_status tune(bench_state *state, const char *problem) {
    sl_model *model = NULL;
    sl_plan *plan = NULL;
    sl_plan_options options = state->options, of_problem = {0};
    if (options.tune == SL_TUNE_NEVER) return SL_OK;
    sl_status status = sl_model_from_problem(NULL, problem, &model, &of_problem);
    options.batch = of_problem.batch;
    options.steps = of_problem.steps;
    options.train = of_problem.train;
    options.masking = of_problem.masking;
    if (of_problem.recompute_gates) options.recompute_gates = 1;
    if (options.dtype == SL_DTYPE_DEFAULT) options.dtype = of_problem.dtype;
    if (status == SL_OK) status = sl_plan_new(model, &options, &plan);
    if (status == SL_OK) state->choices = strdup(sl_plan_choices(plan));
    if (status == SL_OK && !state->choices) state->memory_failed = true;
    sl_plan_free(plan);
    sl_model_free(model);
    return status;
}

/* Times the rows of the problem into state->rows: there are times, too, where SL_ERR_CHECK says that their numbers differ. */
static sl_status time_problem(bench_state *state, const char *problem) {
    state->count = 0;
    sl_status status = sl_bench_problem(problem, &state->options, state->seconds, keep_row, state);
    if (status == SL_OK) status = tune(state, problem);
    return is_timed(status) && state->memory_failed ? SL_ERR_OUT_OF_MEMORY : status;
}

static int bench_one(void *context, const char *where, const char *problem) {
    bench_state *state = context;
    sl_status status = time_problem(state, problem);
    int code = state->memory_failed ? report_memory() : report_at(where, status);
    bool timed = is_timed(status) && !state->memory_failed;
    if (timed && state->json) print_rows_json(state, problem);
    if (timed && !state->json) print_rows(state, problem);
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
static int bench_case(void *context, const char *where, const char *problem) {
    bench_state *state = context;
    const char *device = state->options.device ? state->options.device : "auto";
    if (!case_begin(&state->cases, problem, state->dtype ? state->dtype : "", device)) return 0;
    sl_status status = time_problem(state, problem);
    if (is_no_problem(status)) {
        free_rows(state);
        return case_drop(&state->cases, report_at(where, status));
    }
    if (is_timed(status)) print_rows(state, problem);
    for (int i = 0; is_timed(status) && i < state->count; i++) {
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
    return status == SL_ERR_DEVICE ? report_at(where, status) : status != SL_OK;
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
    code = case_list_open(&state.cases, &a, &cases);
    case_list_how(&state.cases, "bench", 1, &state.options);
    if (!code) code = for_each_problem(a.positional, a.positionals, cases.jsonl ? bench_case : bench_one, &state);
    if (cases.jsonl && code != 2) code = case_list_tell(&state.cases, "bench", code);
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
        "repeat, GFLOP/s, the time as a multiple of the fastest kernel's, and measured and predicted microseconds of\n"
        "a time step; refused kernels with their reason. With --tune also what plans with --tune will take. A FILE\n"
        "holds one problem a line. With --json, one object a line for each problem. On a GPU the inputs are on\n"
        "the device before the clock starts, and a repeat is one of a burst of calls that is waited for once. After\n"
        "the times each kernel's numbers are compared with the first one's: exit code 1 where they differ by more\n"
        "than rounding (\"apart\", as a multiple of what is allowed; `sluice check` says which is wrong).",
    .groups = {&bench_group, &where_group, &case_group, &script_group},
    .examples = "  sluice bench lstm:b20_t35_i650_h650_train\n"
                "  sluice bench gru:b1_t100_i64_h128 --threads 1 --json\n",
    .least = 1,
    .most = -1,
    .missing = "bench needs a problem such as lstm:b20_t35_i650_h650_train",
    .run = run};
