/* sluice check: every eligible kernel of a problem against the double reference, and gradients by finite differences. */
#include <stdint.h>
#include <stdio.h>

#include "common.h"
#include "json.h"
#include "problems.h"

typedef struct check_options {
    uint64_t seed;
} check_options;

static const option check_table[] = {
    {OPTION_SEED, "seed", offsetof(check_options, seed), "N", 0, 0, "draws the inputs and parameters (default 1)"},
    {0}};
static const option_group check_group = {"options", check_table};

typedef struct check_state {
    sl_plan_options options;
    uint64_t seed;
    bool json;
    struct json out;
} check_state;

static void show_line(void *context, const char *text) {
    check_state *state = context;
    if (state->json)
        json_string(&state->out, NULL, text);
    else
        puts(text);
}

/* --json: one object a problem; it is closed also where the problem turns out to be wrong. */
static int check_one(void *context, const char *problem) {
    check_state *state = context;
    if (state->json) {
        json_open(&state->out, NULL, '{');
        json_string(&state->out, "problem", problem);
        json_integer(&state->out, "seed", (long long)state->seed);
        json_open(&state->out, "findings", '[');
    }
    sl_status status = sl_check_problem(problem, &state->options, state->seed, show_line, state);
    if (state->json) {
        json_close(&state->out, ']');
        json_bool(&state->out, "passed", status == SL_OK);
        json_close(&state->out, '}');
        json_end(&state->out);
    }
    fflush(stdout);
    return report(status);
}

static int run(const command *command, int count, char **words) {
    check_options check = {.seed = 1};
    where_options where = {0};
    script_options script = {0};
    arguments a = {.values = {&check, &where, &script}};
    int code = arguments_parse(&a, command, count, words);
    if (code != PARSE_GO_ON) return code;
    if (arguments_given(&a, "dtype"))
        return usage_error(command, "--dtype: the precision is part of the problem, such as lstm:h8_bf16");
    check_state state = {.seed = check.seed, .json = script.json, .out = {.file = stdout}};
    where_apply(&where, &a, &state.options);
    return for_each_problem(a.positional, a.positionals, check_one, &state);
}

const command command_check = {
    .name = "check",
    .summary = "compare every eligible kernel with the double reference",
    .synopsis = "sluice check PROBLEM|FILE... [--seed N] [--device DEVICE] [--json]",
    .text =
        "Computes the problem with the reference in double precision and with every kernel that takes it, compares\n"
        "outputs, states and gradients within the derived tolerance, and checks the gradients of the reference by\n"
        "finite differences. A FILE holds one problem a line. Exit code 1 if anything differs; the message is the\n"
        "one command that repeats it.",
    .groups = {&check_group, &where_group, &script_group},
    .examples = "  sluice check lstm:b3_t5_i4_h8_train\n"
                "  sluice check tests/problems/quick.txt\n",
    .least = 1,
    .most = -1,
    .missing = "check needs a problem such as lstm:b3_t5_i4_h8_train",
    .run = run};
