/* sluice devices: what this machine can compute on, and why not on the rest. */
#include <stdio.h>

#include "common.h"
#include "json.h"

/* Devices that `sluice plan --device` takes without having them; tests/cli/info_devices.sh asks for each. */
static const char *const planned[] = {"cpu:base",   "cpu:avx2",   "cpu:avx512",  "cpu:avx512bf16",
                                      "cpu:amx",    "cpu:neon",   "cuda:sm_80",  "cuda:sm_86",
                                      "cuda:sm_89", "cuda:sm_90", "cuda:sm_100", "cuda:sm_120"};
enum { PLANNED = sizeof planned / sizeof *planned };

static int run(const command *command, int count, char **words) {
    script_options script = {0};
    arguments a = {.values = {&script}};
    int code = arguments_parse(&a, command, count, words);
    if (code != PARSE_GO_ON) return code;
    json out = {.file = stdout};
    const char *name, *detail;
    int usable;
    if (script.json) {
        json_open(&out, NULL, '{');
        json_open(&out, "devices", '[');
    }
    for (int i = 0; (name = sl_device_name(i, &detail, &usable)) != NULL; i++) {
        if (!script.json) {
            printf("%-8s %-10s %s\n", name, usable ? "ready" : "not usable", detail);
            continue;
        }
        json_open(&out, NULL, '{');
        json_str(&out, "name", name);
        json_bool(&out, "usable", usable);
        json_str(&out, "detail", detail);
        json_close(&out, '}');
    }
    if (script.json) {
        json_close(&out, ']');
        json_open(&out, "planning", '[');
        for (int i = 0; i < PLANNED; i++) json_str(&out, NULL, planned[i]);
        json_close(&out, ']');
        json_close(&out, '}');
        json_end(&out);
        return 0;
    }
    printf("%-8s %-10s", "others", "to plan");
    for (int i = 0; i < PLANNED; i++) printf(" %s", planned[i]);
    printf("\n");
    return 0;
}

const command command_devices = {
    .name = "devices",
    .summary = "list what this machine can compute on, and why not on the rest",
    .synopsis = "sluice devices [--json]",
    .text = "Lists the devices of this machine, one a line: name, whether it can be used, and a sentence: instruction\n"
            "sets and threads, a GPU's memory and libraries, or what is missing. --device takes these names. The last "
            "line\n"
            "names those that `sluice plan` takes where they are not.",
    .groups = {&script_group},
    .run = run};
