/* sluice devices: what this machine can compute on, and why not on the rest. */
#include <stdio.h>

#include "common.h"
#include "json.h"

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
        json_close(&out, '}');
        json_end(&out);
    }
    return 0;
}

const command command_devices = {
    .name = "devices",
    .summary = "list what this machine can compute on, and why not on the rest",
    .synopsis = "sluice devices [--json]",
    .text = "Lists the devices of this machine, one a line: name, whether it can be used, and a sentence: instruction\n"
            "sets and threads, or what is missing. --device takes these names.",
    .groups = {&script_group},
    .run = run};
