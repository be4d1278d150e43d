/* sluice check: every eligible kernel of a problem against the double reference, and gradients by finite differences. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cases.h"
#include "common.h"
#include "json.h"
#include "problems.h"

typedef struct check_options {
    uint64_t seed;
} check_options;

static const option check_table[] = {
    {OPTION_SEED, "seed", offsetof(check_options, seed), "N", 0, 0,
     "draws the inputs and parameters (default 1); of an even one layers begin without states"},
    {0}};
static const option_group check_group = {"options", check_table};

enum { KERNELS_MOST = 32 };

/* The findings of one kernel: the worst speaks for all. */
typedef struct kernel_result {
    char kernel[48], what[160], note[400];
    double error, tolerance;
    int findings, failures;
    unsigned long long digest;
} kernel_result;

typedef struct check_state {
    sl_plan_options options;
    const char *dtype; /* --dtype, or NULL */
    uint64_t seed;
    bool json;
    struct json out;
    case_list cases;
    kernel_result kernels[KERNELS_MOST]; /* of the problem in work */
    int kernel_count;
} check_state;

/* ------------------------------------------------------------------------------------------------------- one by one -- */
static void show_line(void *context, const char *text) {
    (void)context;
    puts(text);
}

static void write_error(json *out, const char *key, const char *what, double error, double tolerance, bool ok) {
    json_str(out, key, what);
    json_number(out, "error", error);
    json_number(out, "tolerance", tolerance);
    json_bool(out, "ok", ok);
}

static void write_finding(void *context, const sl_finding *finding) {
    json *out = &((check_state *)context)->out;
    json_open(out, NULL, '{');
    json_str(out, "kernel", finding->kernel);
    if (finding->note)
        json_str(out, "note", finding->note);
    else
        write_error(out, "what", finding->what, finding->error, finding->tolerance, finding->passed);
    json_close(out, '}');
}

/* --json: one object a problem; it is closed also where the problem turns out to be wrong. */
static int check_one(void *context, const char *where, const char *problem) {
    check_state *state = context;
    if (state->json) {
        char seed[24]; /* up to 2^64 - 1 */
        snprintf(seed, sizeof seed, "%llu", (unsigned long long)state->seed);
        json_open(&state->out, NULL, '{');
        json_str(&state->out, "problem", problem);
        json_text(&state->out, "seed", seed);
        json_open(&state->out, "findings", '[');
    }
    sl_status status = state->json ? sl_check_findings(problem, &state->options, state->seed, write_finding, state)
                                   : sl_check_problem(problem, &state->options, state->seed, show_line, state);
    if (state->json) {
        json_close(&state->out, ']');
        json_bool(&state->out, "passed", status == SL_OK);
        json_close(&state->out, '}');
        json_end(&state->out);
    }
    flush_output();
    return report_at(where, status);
}

/* ---------------------------------------------------------------------------------------------------- a file of lines -- */
static kernel_result *result_of(check_state *state, const char *kernel) {
    for (int i = 0; i < state->kernel_count; i++)
        if (strcmp(state->kernels[i].kernel, kernel) == 0) return &state->kernels[i];
    if (state->kernel_count == KERNELS_MOST) return &state->kernels[KERNELS_MOST - 1];
    kernel_result *result = &state->kernels[state->kernel_count++];
    *result = (kernel_result){.error = 0};
    snprintf(result->kernel, sizeof result->kernel, "%s", kernel);
    return result;
}

/* How much of its tolerance a finding uses up. */
static double share(double error, double tolerance) {
    if (error <= 0) return 0;
    return isfinite(error) && tolerance > 0 ? error / tolerance : HUGE_VAL;
}

static void keep_finding(void *context, const sl_finding *finding) {
    kernel_result *result = result_of(context, finding->kernel);
    if (finding->note) {
        snprintf(result->note, sizeof result->note, "%s", finding->note);
        return;
    }
    bool worse = !finding->passed && result->failures == 0;
    worse |=
        result->failures == 0 && share(finding->error, finding->tolerance) > share(result->error, result->tolerance);
    if (worse || result->findings == 0) {
        result->error = finding->error;
        result->tolerance = finding->tolerance;
        snprintf(result->what, sizeof result->what, "%s", finding->what);
    }
    if (finding->digest) result->digest = finding->digest;
    result->findings++;
    result->failures += !finding->passed;
}

static void write_line(check_state *state, const char *problem, const kernel_result *result, double seconds) {
    json *out = case_line(&state->cases);
    char digest[17];
    json_str(out, "problem", problem);
    json_str(out, "dtype", state->dtype ? state->dtype : "");
    json_str(out, "device", state->options.device ? state->options.device : "auto");
    json_str(out, "kernel", result->kernel);
    if (result->findings == 0) {
        json_str(out, "skipped", result->note);
    } else {
        json_int(out, "findings", result->findings);
        write_error(out, "worst", result->what, result->error, result->tolerance, result->failures == 0);
        snprintf(digest, sizeof digest, "%016llx", result->digest);
        if (result->digest) json_str(out, "digest", digest);
    }
    json_number(out, "seconds", seconds);
    case_line_end(&state->cases);
    if (result->failures > 0)
        printf("FAIL %s %s %s: %s: error %.3g, tolerance %.3g (%d of %d)\n", problem, state->dtype ? state->dtype : "",
               result->kernel, result->what, result->error, result->tolerance, result->failures, result->findings);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* With --dtype a problem's own f64 gives way: "lstm:b1_f64_train" -> "lstm:b1_train". */
static void without_f64(const char *problem, char *text, size_t capacity) {
    snprintf(text, capacity, "%s", problem);
    char *end = strchr(text, '+'), *at = strstr(text, "_f64");
    if (at && (!end || at < end)) memmove(at, at + 4, strlen(at + 4) + 1);
}

static int check_case(void *context, const char *where, const char *given) {
    check_state *state = context;
    char problem[512];
    snprintf(problem, sizeof problem, "%s", given);
    if (state->dtype) without_f64(given, problem, sizeof problem);
    const char *device = state->options.device ? state->options.device : "auto";
    if (!case_begin(&state->cases, problem, state->dtype ? state->dtype : "", device)) return 0;
    state->kernel_count = 0;
    double start = now();
    sl_status status = sl_check_findings(problem, &state->options, state->seed, keep_finding, state);
    if (status == SL_ERR_NO_KERNEL && state->kernel_count == 0) {
        snprintf(result_of(state, "none")->note, sizeof state->kernels->note, "%s", sl_error_detail());
    } else if (is_no_problem(status)) {
        return case_drop(&state->cases, report_at(where, status));
    } else if (status != SL_OK && status != SL_ERR_CHECK) {
        kernel_result *failed = result_of(state, "none");
        failed->findings = failed->failures = 1;
        failed->error = HUGE_VAL;
        snprintf(failed->what, sizeof failed->what, "%s", sl_error_detail());
    }
    for (int i = 0; i < state->kernel_count; i++) write_line(state, problem, &state->kernels[i], now() - start);
    flush_output();
    bool passed = status == SL_OK || status == SL_ERR_NO_KERNEL;
    int code = case_end(&state->cases, passed);
    if (code) return code;
    /* After a failure of the device nothing that this process computes can be trusted. */
    return status == SL_ERR_DEVICE ? report_at(where, status) : !passed;
}

/* ---------------------------------------------------------------------------------------------------------- command -- */
static int run(const command *command, int count, char **words) {
    check_options check = {.seed = 1};
    where_options where = {0};
    script_options script = {0};
    case_options cases = {0};
    arguments a = {.values = {&check, &where, &cases, &script}};
    int code = arguments_parse(&a, command, count, words);
    if (code != PARSE_GO_ON) return code;
    if (where.tune)
        return usage_error(command, "--tune: check runs every kernel, there is nothing to choose; leave it out");
    check_state *state = calloc(1, sizeof *state);
    if (!state) return report_memory();
    *state = (check_state){.seed = check.seed, .json = script.json, .out = {.file = stdout}};
    where_apply(&where, &a, &state->options);
    state->dtype = where_dtype_name(&where, &a);
    code = case_list_open(&state->cases, &a, &cases);
    case_list_how(&state->cases, NULL, check.seed, &state->options);
    if (!code) code = for_each_problem(a.positional, a.positionals, cases.jsonl ? check_case : check_one, state);
    if (cases.jsonl && code != 2) code = case_list_tell(&state->cases, "check", code);
    case_list_close(&state->cases);
    free(state);
    return code;
}

const command command_check = {
    .name = "check",
    .summary = "compare every eligible kernel with the double reference",
    .synopsis = "sluice check PROBLEM|FILE... [--seed N] [--device DEVICE] [--dtype TYPE] [--json]\n"
                "       sluice check FILE... --jsonl LINES [--source TEXT] [--shard I/N] [--limit-seconds S]",
    .text =
        "Computes the problem with the reference in double precision and with every kernel that takes it, compares\n"
        "outputs, states and gradients within the derived tolerance, and checks the gradients of the reference by\n"
        "finite differences (on the CPU). A FILE holds one problem a line. --dtype takes the place of each problem's\n"
        "own precision. Exit code 1 if anything differs; the message is the one command that repeats it.",
    .groups = {&check_group, &where_group, &case_group, &script_group},
    .examples = "  sluice check lstm:b3_t5_i4_h8_train\n"
                "  sluice check tests/problems/quick.txt\n"
                "  sluice check tests/problems/full.txt --device cuda:0 --dtype bf16 --jsonl bf16.jsonl --shard 1/4\n",
    .least = 1,
    .most = -1,
    .missing = "check needs a problem such as lstm:b3_t5_i4_h8_train",
    .run = run};
