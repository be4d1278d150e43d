/* How long one step takes, and how long the slowest of ten million: sl_stream_step beside a loop that spins as long as a step takes
 * and does nothing, read by the same timer in the same run: what is beyond that is the system's, and what is not would be ours.
 *     stream_latency [--steps N] [--units LIST] [--cell lstm|gru|rnn] [--inputs N] [--model FILE.slm] [--json]
 * Without a model: one recurrent layer and a dense layer of one output for each number of units. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sluice_stream.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

/* ---------------------------------------------------------------------------------------------------------- timer -- */
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Ticks: the processor's counter where it has one that every step can afford. */
static inline uint64_t ticks(void) {
#if defined(__x86_64__)
    unsigned processor;
    return __rdtscp(&processor);
#elif defined(__aarch64__)
    uint64_t value;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(value)::"memory");
    return value;
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#endif
}

static double nanoseconds_per_tick(void) {
    const double start = now();
    const uint64_t first = ticks();
    while (now() - start < 0.2) continue;
    return (now() - start) * 1e9 / (double)(ticks() - first);
}

/* ---------------------------------------------------------------------------------------------------- distribution -- */
enum { BINS = 1 << 18 }; /* one tick each; longer ones go into the last */
typedef struct times {
    uint32_t *bins;
    uint64_t count, longest;
} times;

static inline void record(times *t, uint64_t taken) {
    t->bins[taken < BINS ? taken : BINS - 1]++;
    t->count++;
    if (taken > t->longest) t->longest = taken;
}

/* The least number of ticks that `share` of the steps did not exceed. */
static double quantile(const times *t, double share) {
    uint64_t seen = 0, rank = (uint64_t)ceil(share * (double)t->count);
    for (uint64_t i = 0; i < BINS - 1; i++) {
        seen += t->bins[i];
        if (seen >= rank) return (double)i;
    }
    return (double)t->longest;
}

/* ---------------------------------------------------------------------------------------------------------- models -- */
static void check(sl_status status) {
    if (status == SL_OK) return;
    fprintf(stderr, "stream_latency: %s\n", sl_error_detail());
    exit(sl_status_exit_code(status));
}

static sl_stream_model *make(sl_cell cell, int inputs, int units) {
    static const char path[] = "stream_latency.slm";
    sl_model *model;
    sl_plan *plan;
    sl_params *params;
    sl_stream_model *made;
    sl_recurrent o = {.units = units, .return_sequences = 1};
    check(sl_model_new(NULL, &model));
    check(sl_model_add_input(model, "x", inputs, 0));
    check(sl_model_add_recurrent(model, "rnn", cell, &o, NULL));
    check(sl_model_add_dense(model, "y", &(sl_dense){.units = 1}, NULL));
    check(sl_plan_new(model, &(sl_plan_options){.device = "cpu", .threads = 1}, &plan));
    check(sl_params_new(plan, &params));
    check(sl_params_init(params, 1));
    check(sl_model_convert(model, params, NULL, path));
    check(sl_stream_model_load(path, &made));
    remove(path);
    sl_params_free(params);
    sl_plan_free(plan);
    sl_model_free(model);
    return made;
}

/* ------------------------------------------------------------------------------------------------------------ runs -- */
typedef struct options {
    uint64_t steps;
    sl_cell cell;
    const char *cell_name, *units, *model;
    int inputs, json;
    double tick;
} options;

typedef struct subject {
    const char *name;
    int units;
    sl_stream_model *model;
} subject;

static void print_result(const options *o, const subject *s, const times *step, const times *idle, double block) {
    const double t = o->tick;
    const char *format =
        o->json ? "{\"model\": \"%s\", \"units\": %d, \"isa\": \"%s\", \"steps\": %llu, \"block_ns\": %.1f, "
                  "\"median_ns\": %.1f, "
                  "\"p9999_ns\": %.1f, \"max_ns\": %.1f, \"idle_median_ns\": %.1f, \"idle_p9999_ns\": %.1f, "
                  "\"idle_max_ns\": %.1f}\n"
                : "%-6s %5d  %-6s  %10llu  %9.1f  %9.1f %9.1f %11.1f   %9.1f %9.1f %11.1f\n";
    printf(format, s->name, s->units, sl_stream_isa(s->model), (unsigned long long)step->count, block,
           quantile(step, 0.5) * t, quantile(step, 0.9999) * t, (double)step->longest * t, quantile(idle, 0.5) * t,
           quantile(idle, 0.9999) * t, (double)idle->longest * t);
    fflush(stdout);
}

/* Nanoseconds a step in calls of 64 steps, the least of some. */
static double block_time(sl_stream *stream, const float *x, float *y, int tokens) {
    double best = 1e9;
    for (int round = 0; round < 200; round++) {
        const double start = now();
        if (tokens)
            for (int t = 0; t < 64; t++) sl_stream_step_token(stream, t % tokens, y);
        else
            sl_stream_steps(stream, 64, x, y);
        best = fmin(best, (now() - start) * 1e9 / 64);
    }
    return best;
}

/* Steps, then nothing, in turns of a thousand: both meet the same interruptions. */
static void measure(const options *o, const subject *s) {
    const int inputs = sl_stream_inputs(s->model), tokens = sl_stream_vocabulary(s->model);
    const int outputs = sl_stream_outputs(s->model);
    sl_stream *stream;
    check(sl_stream_new(s->model, &stream));
    float *x = malloc(64 * ((size_t)inputs + 1) * sizeof *x), *y = malloc(64 * (size_t)outputs * sizeof *y);
    times step = {.bins = calloc(BINS, sizeof *step.bins)}, idle = {.bins = calloc(BINS, sizeof *idle.bins)};
    if (!x || !y || !step.bins || !idle.bins) exit(5);
    for (int i = 0; i < 64 * inputs; i++) x[i] = (float)((i * 37) % 101) / 50.0f - 1.0f;
    const double block = block_time(stream, x, y, tokens);
    const uint64_t spin = (uint64_t)(block / o->tick);
    for (uint64_t t = 0; t < o->steps; t += 1000) {
        for (int i = 0; i < 1000; i++) {
            const uint64_t start = ticks();
            if (tokens)
                sl_stream_step_token(stream, i % tokens, y);
            else
                sl_stream_step(stream, x + (i & 63) * inputs, y);
            record(&step, ticks() - start);
        }
        for (int i = 0; i < 1000; i++) {
            const uint64_t start = ticks();
            uint64_t end;
            do end = ticks();
            while (end - start < spin);
            record(&idle, end - start);
        }
    }
    print_result(o, s, &step, &idle, block);
    free(step.bins);
    free(idle.bins);
    free(x);
    free(y);
    sl_stream_free(stream);
}

static options parse(int argc, char **argv) {
    static const char *const cells[] = {"lstm", "gru", "rnn"};
    options o = {.steps = 10000000, .cell_name = "lstm", .units = "8,16,32,64,128,256", .inputs = 1};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--json") == 0) {
            o.json = 1;
            continue;
        }
        if (strcmp(argv[i], "--steps") == 0)
            o.steps = strtoull(value, NULL, 10);
        else if (strcmp(argv[i], "--units") == 0)
            o.units = value;
        else if (strcmp(argv[i], "--inputs") == 0)
            o.inputs = atoi(value);
        else if (strcmp(argv[i], "--model") == 0)
            o.model = value;
        else if (strcmp(argv[i], "--cell") == 0) {
            o.cell_name = NULL;
            for (int c = 0; c < 3; c++)
                if (strcmp(value, cells[c]) == 0) o.cell = (sl_cell)c, o.cell_name = cells[c];
        } else
            o.cell_name = NULL;
        i++;
        if (!o.cell_name || !*value) {
            fprintf(stderr, "usage: stream_latency [--steps N] [--units 8,16] [--cell lstm|gru|rnn] [--inputs N] "
                            "[--model FILE.slm] [--json]\n");
            exit(2);
        }
    }
    return o;
}

int main(int argc, char **argv) {
    options o = parse(argc, argv);
    o.tick = nanoseconds_per_tick();
    if (!o.json)
        printf("Nanoseconds. block: a step in calls of 64, the least; step: single calls, with the timer; idle: a spin "
               "of that\n"
               "length in the same run. Resolution %.2f.\n"
               "model  units  isa          steps      block     median    99.99%%         max   idle median 99.99%%    "
               "     max\n",
               o.tick);
    if (o.model) {
        subject s = {.name = "file"};
        check(sl_stream_model_load(o.model, &s.model));
        measure(&o, &s);
        sl_stream_model_free(s.model);
        return 0;
    }
    for (const char *at = o.units; *at;) {
        char *end;
        subject s = {.name = o.cell_name, .units = (int)strtol(at, &end, 10)};
        if (end == at || s.units < 1) break;
        s.model = make(o.cell, o.inputs, s.units);
        measure(&o, &s);
        sl_stream_model_free(s.model);
        at = *end == ',' ? end + 1 : end;
    }
    return 0;
}
