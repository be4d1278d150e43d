/* Kernels on the CPU: emulate_tests [--only TEXT] [--seed N] [--seeds N] [--others I/N] [--part I/N] [--list] [--verbose]
 * [--shape UNITS,ROWS,STEPS]. Of N parts of all cases the I-th, from 1 on. Every case runs under each seed:
 * 0 is everything in order, the others are orders of threads and arrivals drawn at random; with --others
 * those are for the I-th of every N cases. */
#include <limits.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "cases.h"
#include "emulate.h"

int emulate_shape[3];

std::vector<emulate_case> &emulate_cases() {
    static std::vector<emulate_case> all;
    return all;
}
std::string emulate_say(const char *format, ...) {
    char text[1000];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return text;
}

static double seconds() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool read_part(const char *text, unsigned *part, unsigned *parts) {
    return sscanf(text, "%u/%u", part, parts) == 2 && *part >= 1 && *part <= *parts;
}

int main(int count, char **arguments) {
    mallopt(M_MMAP_MAX, 0), mallopt(M_TRIM_THRESHOLD, INT_MAX); /* one case's memory serves the next: fresh pages take time */
    const char *only = "";
    uint64_t first = 0, seeds = 3;
    std::string shape;
    bool list = false, verbose = false;
    unsigned part = 1, parts = 1, number = 0, other = 1, others = 1;
    for (int i = 1; i < count; i++) {
        const std::string a = arguments[i];
        if (a == "--only" && i + 1 < count) {
            only = arguments[++i];
        } else if (a == "--seed" && i + 1 < count) {
            first = strtoull(arguments[++i], nullptr, 10);
            seeds = 1;
        } else if (a == "--seeds" && i + 1 < count) {
            seeds = strtoull(arguments[++i], nullptr, 10);
        } else if (a == "--part" && i + 1 < count && read_part(arguments[i + 1], &part, &parts)) {
            i++;
        } else if (a == "--others" && i + 1 < count && read_part(arguments[i + 1], &other, &others)) {
            i++;
        } else if (a == "--shape" && i + 1 < count) {
            shape = arguments[++i];
            sscanf(shape.c_str(), "%d,%d,%d", &emulate_shape[0], &emulate_shape[1], &emulate_shape[2]);
        } else if (a == "--list") {
            list = true;
        } else if (a == "--verbose") {
            verbose = true;
        } else {
            fprintf(stderr,
                    "usage: %s [--only TEXT] [--seed N] [--seeds N] [--others I/N] [--part I/N] [--list]\n"
                    "    [--verbose] [--shape UNITS,ROWS,STEPS]\n",
                    arguments[0]);
            return 2;
        }
    }
    int passed = 0, failed = 0;
    for (const emulate_case &c : emulate_cases()) {
        if (c.name.find(only) == std::string::npos || number++ % parts != part - 1) continue;
        if (list) {
            printf("%s\n", c.name.c_str());
            continue;
        }
        const double start = seconds();
        const uint64_t orders = seeds > 1 && number / parts % others != other - 1 ? 1 : seeds;
        std::string wrong;
        for (uint64_t seed = first; seed < first + orders && wrong.empty(); seed++) {
            const std::string repeat =
                emulate_say("repeat: %s --only '%s' --seed %lu%s", arguments[0], c.name.c_str(), (unsigned long)seed,
                            shape.empty() ? "" : (" --shape " + shape).c_str());
            emulate::on_death("FAIL " + c.name + "\n    " + repeat);
            alarm(120); /* a kernel that polls memory by itself */
            wrong = c.test(seed);
            alarm(0);
            if (!wrong.empty()) printf("FAIL %s\n    %s\n    %s\n", c.name.c_str(), wrong.c_str(), repeat.c_str());
        }
        if (wrong.empty()) {
            passed++;
            if (verbose) printf("ok   %s, %.2f s\n", c.name.c_str(), seconds() - start);
        } else {
            failed++;
        }
        fflush(stdout);
    }
    if (list) return 0;
    if (passed + failed == 0) {
        printf("no case has '%s' in its name\n", only);
        failed = 1;
    }
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed > 0;
}
