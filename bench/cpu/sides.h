/* What the sides of bench/cpu/compare.py written in C and C++ share: numbers that every side makes alike, the answers to
 * `time` and `check`, and the loop over the requests on standard input (see compare.py, class Side). */
#ifndef SIDES_H
#define SIDES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <math.h>

enum { NAME_MAX_BYTES = 64, SAMPLES = 64, CALLS_MOST = 4096 };

typedef struct side_shape {
    char cell[NAME_MAX_BYTES];    /* lstm, gru, rnn */
    char mode[NAME_MAX_BYTES];    /* infer, train */
    char dtype[NAME_MAX_BYTES];   /* f32, bf16 */
    char option[NAME_MAX_BYTES];  /* none, lengths, rdrop, before, proj, per_step */
    char require[NAME_MAX_BYTES]; /* a kernel row of Sluice, "-": the plan's choice */
    int t, b, i, h, l, threads;
} side_shape;

/* Number `index` of tensor `seed`, uniform in +-scale. */
static inline float side_number(uint64_t index, uint32_t seed, float scale) {
    uint32_t x = (uint32_t)(index * 2654435761u) + seed * 40503u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return ((float)(x >> 8) / 8388608.0f - 1.0f) * scale;
}

static inline void side_fill(float *to, size_t count, uint32_t seed, float scale) {
    for (size_t k = 0; k < count; k++) to[k] = side_number(k, seed, scale);
}

/* Seeds of the tensors; those of layer l (from 0) are 10 l + 1 ... */
enum { SEED_KERNEL = 1, SEED_RECURRENT, SEED_BIAS, SEED_RECURRENT_BIAS, SEED_PROJECTION, SEED_X = 1001, SEED_DY = 1002 };

/* Outputs of a layer: with a projection half its units. */
static inline int side_outputs(const side_shape *s) {
    return strcmp(s->option, "proj") == 0 ? s->h / 2 : s->h;
}

/* Steps of row b, the longest first: evenly from T down to 1. */
static inline int side_length(int b, int batch, int steps) {
    return batch == 1 ? steps : steps - (int)((int64_t)(steps - 1) * b / (batch - 1));
}

static inline double side_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* "NAME": [root mean square, samples at even distances] */
static inline void side_tell(const char *name, const float *values, size_t count) {
    double sum = 0;
    for (size_t k = 0; k < count; k++) sum += (double)values[k] * (double)values[k];
    printf("\"%s\": [%.9g", name, sqrt(sum / (double)count));
    for (size_t s = 0; s < SAMPLES; s++) printf(", %.9g", (double)values[s * count / SAMPLES]);
    printf("]");
}

static inline void side_text(const char *key, const char *text) {
    printf("{\"%s\": \"", key);
    for (; *text; text++) putchar(*text == '"' || *text == '\\' || *text < ' ' ? '\'' : *text);
    printf("\"}\n");
}

/* What a side does. `open` returns NULL, or why it cannot; *what: the implementation taken. */
typedef struct side_ops {
    const char *(*open)(const side_shape *shape, const char **what);
    const char *(*call)(void); /* once; NULL, or what failed */
    void (*check)(void);       /* side_tell of the results of the last call, with ", " between */
    void (*close)(void);
    void (*sample)(double seconds); /* calls for so long; says where they were. NULL: this side cannot */
} side_ops;

/* `time SECONDS WARM`: WARM calls that do not count, then calls for SECONDS, one at least. */
static inline void side_time(const side_ops *ops, double seconds, int warm) {
    static double times[CALLS_MOST];
    const char *why = NULL;
    int count = 0;
    for (int k = 0; k < warm && !why; k++) why = ops->call();
    for (double begin = side_now(), last = begin;
         !why && count < CALLS_MOST && (count == 0 || last - begin < seconds);) {
        why = ops->call();
        const double now = side_now();
        times[count++] = now - last;
        last = now;
    }
    if (why) {
        side_text("error", why);
        return;
    }
    printf("{\"times\": [");
    for (int k = 0; k < count; k++) printf(k ? ", %.9g" : "%.9g", times[k]);
    printf("]}\n");
}

static inline int side_loop(const side_ops *ops) {
    char line[1024], word[NAME_MAX_BYTES];
    while (fgets(line, sizeof line, stdin)) {
        side_shape s;
        double seconds;
        int warm;
        if (sscanf(line, "open %63s %63s %63s %d %d %d %d %d %d %63s %63s", s.cell, s.mode, s.dtype, &s.t, &s.b, &s.i,
                   &s.h, &s.l, &s.threads, s.option, s.require) == 11) {
            const char *what = "", *why = ops->open(&s, &what);
            side_text(why ? "error" : "what", why ? why : what);
        } else if (sscanf(line, "time %lf %d", &seconds, &warm) == 2) {
            side_time(ops, seconds, warm);
        } else if (ops->sample && sscanf(line, "sample %lf", &seconds) == 1) {
            ops->sample(seconds);
        } else if (sscanf(line, "%63s", word) == 1 && strcmp(word, "check") == 0) {
            printf("{");
            ops->check();
            printf("}\n");
        } else if (sscanf(line, "%63s", word) == 1 && strcmp(word, "close") == 0) {
            ops->close();
            side_text("what", "closed");
        } else {
            side_text("error", "not a request");
        }
        fflush(stdout);
    }
    return 0;
}

#endif
