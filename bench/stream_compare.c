/* Time of a step, one row: libsluice, a templated C++ kernel (stream_peer.cpp), and the C file that `sluice convert` makes.
 *     stream_compare [--write FOLDER]      FOLDER: only writes the models' C files there
 * Rounds alternate; each time is the least of all rounds. See stream_compare.sh. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sluice_stream.h"
#include "stream_peer.h"

enum { ROUNDS = 40, MOST = 256, MOST_STEPS = 4096, SIZES = 6, BLOCK = 64 };
static const int sizes[SIZES] = {8, 16, 32, 64, 128, 256};
static float signal[MOST_STEPS];

#ifdef GENERATED
#include "generated.h" /* written by --write: generated_steps */
#endif

static void check(sl_status status) {
    if (status == SL_OK) return;
    fprintf(stderr, "stream_compare: %s\n", sl_error_detail());
    exit(sl_status_exit_code(status));
}

typedef struct subject {
    sl_model *model;
    sl_plan *plan;
    sl_params *params;
} subject;

/* One input, one layer; uniform weights of about 1/sqrt(H). */
static subject make(int gru, int units) {
    subject s;
    sl_recurrent o = {.units = units,
                      .return_sequences = 1,
                      .stateful = 1,
                      .kernel_init = {SL_INIT_PYTORCH, 0},
                      .recurrent_init = {SL_INIT_PYTORCH, 0},
                      .bias_init = {SL_INIT_PYTORCH, 0}};
    check(sl_model_new(NULL, &s.model));
    check(sl_model_add_input(s.model, "x", 1, 0));
    check(sl_model_add_recurrent(s.model, "rnn", gru ? SL_GRU : SL_LSTM, &o, NULL));
    check(sl_plan_new(s.model, &(sl_plan_options){.device = "cpu", .threads = 1}, &s.plan));
    check(sl_params_new(s.plan, &s.params));
    check(sl_params_init(s.params, 7));
    return s;
}

static void drop(subject *s) {
    sl_params_free(s->params);
    sl_plan_free(s->plan);
    sl_model_free(s->model);
}

static float *get(const subject *s, const char *name, size_t count) {
    double *values = malloc(count * sizeof *values);
    float *floats = malloc(count * sizeof *floats);
    check(sl_params_get(s->params, name, values, count));
    for (size_t i = 0; i < count; i++) floats[i] = (float)values[i];
    free(values);
    return floats;
}

static stream_peer *make_peer(const subject *s, int gru, int units) {
    const size_t H = (size_t)units, rows = (gru ? 3 : 4) * H;
    float *w = get(s, "rnn.kernel", rows), *r = get(s, "rnn.recurrent_kernel", rows * H), *b = get(s, "rnn.bias", rows);
    float *n = NULL;
    if (gru) {
        n = get(s, "rnn.recurrent_bias", rows);
        for (size_t i = 0; i < 2 * H; i++) b[i] += n[i];
    }
    stream_peer *peer = stream_peer_new(gru, units, w, r, b, gru ? n + 2 * H : NULL);
    free(w);
    free(r);
    free(b);
    free(n);
    return peer;
}

static sl_stream_model *load(const subject *s) {
    static const char path[] = "stream_compare.slm";
    sl_stream_model *model;
    check(sl_model_convert(s->model, s->params, NULL, path));
    check(sl_stream_model_load(path, &model));
    remove(path);
    return model;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void library_steps(sl_stream *stream, int steps, int block, float *y, int units) {
    for (int t = 0; t < steps; t += block) sl_stream_steps(stream, block, signal + t, y);
    memmove(y, y + (block - 1) * units, (size_t)units * sizeof *y);
}

static void compare(int gru, int units) {
    subject s = make(gru, units);
    sl_stream_model *model = load(&s);
    stream_peer *peer = make_peer(&s, gru, units);
    sl_stream *stream, *single;
    check(sl_stream_new(model, &stream));
    check(sl_stream_new(model, &single));
    double best[4] = {1e9, 1e9, 1e9, 1e9}, difference = 0;
    static float y[MOST * BLOCK], z[MOST];
    const float *from_peer = z;
    const int steps = units <= 32 ? 4096 : units <= 64 ? 2048 : 512;
    for (int round = 0; round < ROUNDS; round++) {
        double start = now();
        library_steps(stream, steps, BLOCK, y, units);
        best[0] = fmin(best[0], now() - start);
        start = now();
        for (int t = 0; t < steps; t++) sl_stream_step(single, signal + t, z);
        best[1] = fmin(best[1], now() - start);
        start = now();
        for (int t = 0; t < steps; t++) from_peer = stream_peer_step(peer, signal + t);
        best[2] = fmin(best[2], now() - start);
        for (int k = 0; k < units; k++) difference = fmax(difference, fabs(y[k] - from_peer[k]));
#ifdef GENERATED
        start = now();
        generated_steps(gru, units, steps, z);
        best[3] = fmin(best[3], now() - start);
        for (int k = 0; k < units; k++) difference = fmax(difference, fabs(y[k] - z[k]));
#endif
    }
    for (int i = 0; i < 4; i++) best[i] *= 1e9 / steps;
    printf("%-4s %5d   %8.1f   %8.1f   %8.1f   %5.2f", gru ? "gru" : "lstm", units, best[0], best[1], best[2],
           best[2] / best[0]);
#ifdef GENERATED
    printf("   %8.1f   %5.2f", best[3], best[3] / best[0]);
#endif
    printf("   %.1e %s\n", difference, sl_stream_isa(model));
    fflush(stdout);
    stream_peer_free(peer);
    sl_stream_free(stream);
    sl_stream_free(single);
    sl_stream_model_free(model);
    drop(&s);
}

/* C files of all models, and generated.h, which finds them. */
static void write_files(const char *folder) {
    char path[512];
    snprintf(path, sizeof path, "%s/generated.h", folder);
    FILE *table = fopen(path, "w");
    if (!table) {
        perror(path);
        exit(6);
    }
    for (int gru = 0; gru < 2; gru++)
        for (int i = 0; i < SIZES; i++) {
            subject s = make(gru, sizes[i]);
            snprintf(path, sizeof path, "%s/%s%d.c", folder, gru ? "gru" : "lstm", sizes[i]);
            check(sl_model_convert(s.model, s.params, &(sl_convert){.form = SL_CONVERT_C}, path));
            fprintf(table, "#define %s%d_DECLARATIONS\n#include \"%s%d.c\"\n", gru ? "gru" : "lstm", sizes[i],
                    gru ? "gru" : "lstm", sizes[i]);
            drop(&s);
        }
    fprintf(table, "static void generated_steps(int gru, int units, int steps, float *y) {\n");
    for (int gru = 0; gru < 2; gru++)
        for (int i = 0; i < SIZES; i++) {
            char name[32];
            snprintf(name, sizeof name, "%s%d", gru ? "gru" : "lstm", sizes[i]);
            fprintf(table,
                    "    if (gru == %d && units == %d) {\n        static %s_state state;\n"
                    "        for (int t = 0; t < steps; t++) %s_step(&state, signal + t, y);\n    }\n",
                    gru, sizes[i], name, name);
        }
    fprintf(table, "}\n");
    fclose(table);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--write") == 0) {
        write_files(argv[2]);
        return 0;
    }
    for (int t = 0; t < MOST_STEPS; t++) signal[t] = (float)((t * 37) % 101) / 50.0f - 1.0f;
    printf(
        "Nanoseconds a step of one LSTM or GRU layer, one row, one input. library: sl_stream_steps, 64 steps a call;\n"
        "single: sl_stream_step, which reads and writes MXCSR in each step; C++: a template, sizes constant;\n"
        "C file: of sluice convert. Ratios are to `library`; the last columns: largest difference, kernels.\n"
        "cell units    library     single        C++   ratio");
#ifdef GENERATED
    printf("     C file   ratio");
#endif
    printf("\n");
    for (int gru = 0; gru < 2; gru++)
        for (int i = 0; i < SIZES; i++) compare(gru, sizes[i]);
    return 0;
}
