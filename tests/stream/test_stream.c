/* Streams beside sl_run_forward: every cell, option, size and instruction set; memory, state, errors, denormals, the floating-point
 * control register, and that a step calls nothing. */
#include <float.h>
#include <time.h>

#include "stream/stream_case.h"

#if defined(__linux__)
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#endif
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* ---------------------------------------------------------------------------------------------------------- parity -- */
static double largest(const float *values, int count) {
    double most = 1;
    for (int i = 0; i < count; i++) most = fabs(values[i]) > most ? fabs(values[i]) : most;
    return most;
}

static void compare(const stream_case *c, const char *isa, int number) {
    if (isa) setenv("SLUICE_CPU_ISA", isa, 1);
    sl_stream_model *model = stream_case_load(c);
    unsetenv("SLUICE_CPU_ISA");
    sl_stream *stream;
    float *y = stream_case_output(c);
    REQUIRE_OK(sl_stream_new(model, &stream));
    CHECK(sl_stream_outputs(model) == c->outputs);
    CHECK(sl_stream_inputs(model) == c->inputs || c->vocabulary);
    CHECK(sl_stream_vocabulary(model) == c->vocabulary);
    if (isa) CHECK(strcmp(sl_stream_isa(model), isa) == 0);
    for (int again = 0; again < 2; again++, sl_stream_reset(stream))
        for (int t = 0; t < STREAM_STEPS; t++) {
            const float *expected = c->y + t * c->outputs;
            const double tolerance = 2e-5 * largest(c->y, STREAM_STEPS * c->outputs);
            stream_case_step(c, stream, t, y);
            for (int k = 0; k < c->outputs; k++)
                if (!(fabs((double)y[k] - expected[k]) <= tolerance)) {
                    const char *json;
                    REQUIRE_OK(sl_model_to_json(c->model, &json));
                    test_fail(__FILE__, __LINE__, "model %d (%s), step %d, output %d: %.9g, expected %.9g\n%s", number,
                              sl_stream_isa(model), t, k, (double)y[k], (double)expected[k], json);
                    test_abort();
                }
        }
    free(y);
    sl_stream_free(stream);
    sl_stream_model_free(model);
}

/* A plan for a GPU compiles a kernel for each of their layers, which is most of the time there: fewer of them. */
TEST(stream_random_models_give_the_numbers_of_the_library) {
    uint64_t random = test_seed;
    const int models = test_on_gpu() ? 30 : 300;
    for (int i = 0; i < models; i++) {
        stream_case c = stream_case_new(stream_random_model(&random), &random);
        compare(&c, NULL, i);
        if (stream_case_have("avx512")) compare(&c, "avx2", i);
        if (stream_case_have("avx2")) compare(&c, "base", i);
        stream_case_free(&c);
    }
}

static sl_model *one_layer(sl_cell cell, int inputs, int units, int outputs) {
    sl_model *model;
    sl_recurrent o = {.units = units, .return_sequences = 1, .stateful = 1};
    sl_dense d = {.units = outputs};
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", inputs, 0));
    REQUIRE_OK(sl_model_add_recurrent(model, "rnn", cell, &o, NULL));
    if (outputs) REQUIRE_OK(sl_model_add_dense(model, "y", &d, NULL));
    return model;
}

/* Every number of units through every way of cutting them into blocks. */
TEST(stream_every_size) {
    uint64_t random = test_seed;
    for (int units = 1; units <= 140; units += units < 70 && !test_on_gpu() ? 1 : 13)
        for (int cell = SL_LSTM; cell <= SL_RNN; cell++) {
            stream_case c = stream_case_new(one_layer((sl_cell)cell, 1 + units % 5, units, 1 + units % 19), &random);
            compare(&c, NULL, units);
            stream_case_free(&c);
        }
}

/* Gates and cells without bounds, with weights that keep the states small. */
TEST(stream_every_activation) {
    uint64_t random = test_seed;
    for (int act = SL_ACT_LINEAR; act <= SL_ACT_SOFTSIGN; act++)
        for (int cell = SL_LSTM; cell <= SL_RNN; cell++) {
            sl_model *model;
            sl_recurrent o = {.units = 11,
                              .return_sequences = 1,
                              .activation = (sl_activation)act,
                              .recurrent_activation = cell == SL_RNN ? 0 : (sl_activation)act};
            sl_dense d = {.units = 3, .activation = (sl_activation)act};
            REQUIRE_OK(sl_model_new(NULL, &model));
            REQUIRE_OK(sl_model_add_input(model, "x", 3, 0));
            REQUIRE_OK(sl_model_add_recurrent(model, "rnn", (sl_cell)cell, &o, NULL));
            REQUIRE_OK(sl_model_add_dense(model, "y", &d, NULL));
            stream_case c = stream_case_scaled(model, 0.3, &random);
            compare(&c, NULL, act);
            stream_case_free(&c);
        }
}

/* --------------------------------------------------------------------------------------------------- memory, state -- */
TEST(stream_model_is_no_folder) {
    sl_stream_model *model;
    CHECK_FAILS(sl_stream_model_load("/", &model), SL_ERR_FILE, "is no file");
}

/* As sluice_stream.h says: numbers are not looked at. */
TEST(stream_keeps_a_nan_until_it_is_reset) {
    uint64_t random = test_seed;
    for (int cell = SL_LSTM; cell <= SL_RNN; cell++) {
        stream_case c = stream_case_new(one_layer((sl_cell)cell, 1, 20, 2), &random);
        sl_stream_model *model = stream_case_load(&c);
        sl_stream *stream;
        REQUIRE_OK(sl_stream_new(model, &stream));
        float first[2], y[2];
        const float nan = NAN, zero = 0;
        stream_case_step(&c, stream, 0, first);
        REQUIRE_OK(sl_stream_step(stream, &nan, y));
        for (int t = 0; t < 30; t++) REQUIRE_OK(sl_stream_step(stream, &zero, y));
        CHECK(isnan(y[0]) && isnan(y[1]));
        sl_stream_reset(stream);
        stream_case_step(&c, stream, 0, y);
        CHECK(memcmp(y, first, sizeof y) == 0);
        sl_stream_free(stream);
        sl_stream_model_free(model);
        stream_case_free(&c);
    }
}

TEST(stream_placed_in_memory_of_the_caller) {
    uint64_t random = test_seed;
    stream_case c = stream_case_new(one_layer(SL_GRU, 3, 20, 2), &random);
    FILE *file = fopen(stream_case_convert(&c, SL_CONVERT_STREAM), "rb");
    REQUIRE(file);
    static float bytes[16384];
    const size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    size_t needed;
    REQUIRE_OK(sl_stream_model_size(bytes, size, &needed));
    char *memory = malloc(needed + 2);
    sl_stream_model *model;
    CHECK_FAILS(sl_stream_model_place(bytes, size, memory + 1, needed - 1, &model), SL_ERR_MEMORY_LIMIT, "bytes");
    memory[0] = memory[needed + 1] = 77;
    REQUIRE_OK(sl_stream_model_place(bytes, size, memory + 1, needed, &model));
    memset(bytes, 255, sizeof bytes); /* not needed any more */
    const size_t one = sl_stream_size(model);
    char *room = malloc(2 * one);
    memset(room, 255, 2 * one);
    sl_stream *a = sl_stream_place(model, room), *b = sl_stream_place(model, room + one);
    float ya[2], yb[2], first[2];
    for (int t = 0; t < STREAM_STEPS; t++) {
        stream_case_step(&c, a, t, ya);
        if (t == 0) memcpy(first, ya, sizeof ya);
        for (int k = 0; k < 2; k++) CHECK_NEAR(ya[k], c.y[2 * t + k], 1e-5);
    }
    stream_case_step(&c, b, 0, yb); /* another stream of the model is where it was */
    CHECK(memcmp(yb, first, sizeof yb) == 0);
    CHECK(memory[0] == 77 && memory[needed + 1] == 77);
    sl_stream_free(a);
    sl_stream_model_free(model);
    free(room);
    free(memory);
    stream_case_free(&c);
}

TEST(stream_state_goes_to_another_stream) {
    uint64_t random = test_seed;
    stream_case c = stream_case_new(one_layer(SL_LSTM, 2, 19, 3), &random);
    sl_stream_model *model = stream_case_load(&c);
    sl_stream *a, *b;
    float state[2 * 19], again[2 * 19], y[3];
    REQUIRE_OK(sl_stream_new(model, &a));
    REQUIRE_OK(sl_stream_new(model, &b));
    CHECK(sl_stream_state_count(model) == 2 * 19);
    for (int t = 0; t < 6; t++) stream_case_step(&c, a, t, y);
    sl_stream_get_state(a, state);
    stream_case_step(&c, b, 3, y);
    sl_stream_set_state(b, state);
    sl_stream_get_state(b, again);
    CHECK(memcmp(state, again, sizeof state) == 0);
    for (int t = 6; t < STREAM_STEPS; t++) {
        stream_case_step(&c, b, t, y);
        for (int k = 0; k < 3; k++) CHECK_NEAR(y[k], c.y[3 * t + k], 1e-5);
    }
    sl_stream_free(a);
    sl_stream_free(b);
    sl_stream_model_free(model);
    stream_case_free(&c);
}

/* Steps go through blocks forward and back by turns: a stream that begins with the other direction has the same bits. */
static void begin_with_either_direction(const stream_case *c, const char *isa) {
    if (isa) setenv("SLUICE_CPU_ISA", isa, 1);
    sl_stream_model *model = stream_case_load(c);
    unsetenv("SLUICE_CPU_ISA");
    sl_stream *a, *b;
    float ya[8], yb[8];
    REQUIRE_OK(sl_stream_new(model, &a));
    REQUIRE_OK(sl_stream_new(model, &b));
    stream_case_step(c, b, 5, yb);
    sl_stream_reset(b);
    for (int t = 0; t < STREAM_STEPS; t++) {
        stream_case_step(c, a, t, ya);
        stream_case_step(c, b, t, yb);
        if (memcmp(ya, yb, sizeof ya) == 0) continue;
        test_fail(__FILE__, __LINE__, "%s, step %d: other bits", sl_stream_isa(model), t);
        test_abort();
    }
    sl_stream_free(a);
    sl_stream_free(b);
    sl_stream_model_free(model);
}

TEST(stream_bits_do_not_depend_on_the_direction) {
    uint64_t random = test_seed;
    for (int units = 5; units <= 140; units += 27)
        for (int cell = SL_LSTM; cell <= SL_GRU; cell++)
            for (int usual = 0; usual < 2; usual++) {
                sl_recurrent o = {.units = units,
                                  .return_sequences = 1,
                                  .stateful = 1,
                                  .recurrent_activation = usual ? SL_ACT_SIGMOID : SL_ACT_HARD_SIGMOID};
                sl_dense d = {.units = 8};
                sl_model *model;
                REQUIRE_OK(sl_model_new(NULL, &model));
                REQUIRE_OK(sl_model_add_input(model, "x", 3, 0));
                REQUIRE_OK(sl_model_add_recurrent(model, "rnn", (sl_cell)cell, &o, NULL));
                REQUIRE_OK(sl_model_add_dense(model, "y", &d, NULL));
                stream_case c = stream_case_new(model, &random);
                begin_with_either_direction(&c, NULL);
                if (stream_case_have("avx512")) begin_with_either_direction(&c, "avx2");
                if (stream_case_have("avx2")) begin_with_either_direction(&c, "base");
                stream_case_free(&c);
            }
}

TEST(stream_many_steps_are_single_steps) {
    uint64_t random = test_seed;
    stream_case c = stream_case_new(one_layer(SL_LSTM, 2, 20, 2), &random);
    sl_stream_model *model = stream_case_load(&c);
    sl_stream *one, *many;
    float single[2 * STREAM_STEPS];
    REQUIRE_OK(sl_stream_new(model, &one));
    REQUIRE_OK(sl_stream_new(model, &many));
    for (int t = 0; t < STREAM_STEPS; t++) stream_case_step(&c, one, t, single + 2 * t);
    REQUIRE_OK(sl_stream_steps(many, STREAM_STEPS, c.x, c.x)); /* in place */
    CHECK(memcmp(c.x, single, sizeof single) == 0);
    sl_stream_free(one);
    sl_stream_free(many);
    sl_stream_model_free(model);
    stream_case_free(&c);
}

/* -------------------------------------------------------------------------------------------------- floating point -- */
#if defined(__x86_64__)
TEST(stream_leaves_mxcsr_as_it_was) {
    uint64_t random = test_seed;
    stream_case c = stream_case_new(one_layer(SL_LSTM, 1, 16, 1), &random);
    sl_stream_model *model = stream_case_load(&c);
    sl_stream *stream;
    float y[1];
    REQUIRE_OK(sl_stream_new(model, &stream));
    const unsigned before = _mm_getcsr(), some[] = {0x1f80, 0x1fc0, 0x9f80, 0x9fc0, 0x7f80, 0x1d80};
    for (int i = 0; i < 6; i++) {
        _mm_setcsr(some[i]);
        stream_case_step(&c, stream, i, y);
        const unsigned after = _mm_getcsr();
        _mm_setcsr(before);
        CHECK((after & ~63u) == some[i]); /* all but the flags of what happened */
        if (some[i] != 0x9fc0) CHECK(after == some[i]);
    }
    sl_stream_free(stream);
    sl_stream_model_free(model);
    stream_case_free(&c);
}
#endif

static double seconds_of_steps(sl_stream *stream, const float *x, int steps) {
    struct timespec start, end;
    double best = 1;
    float y[32];
    for (int round = 0; round < 9; round++) {
        clock_gettime(CLOCK_MONOTONIC, &start);
        for (int t = 0; t < steps; t++) sl_stream_step(stream, x, y);
        clock_gettime(CLOCK_MONOTONIC, &end);
        const double seconds = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
        if (seconds < best) best = seconds;
    }
    return best;
}

/* A linear RNN that halves its state: after the impulse the state decays through the denormals. */
TEST(stream_denormals_cost_nothing_and_become_zero) {
    sl_model *model;
    sl_recurrent o = {.units = 32, .return_sequences = 1, .activation = SL_ACT_LINEAR, .bias = SL_BIAS_NONE};
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 32, 0));
    REQUIRE_OK(sl_model_add_recurrent(model, "rnn", SL_RNN, &o, NULL));
    uint64_t random = test_seed;
    stream_case c = stream_case_new(model, &random);
    double half[32 * 32] = {0}, full[32 * 32];
    for (int i = 0; i < 32 * 32; i++) full[i] = 1.0 / 32;
    for (int i = 0; i < 32; i++) half[33 * i] = 0.5;
    REQUIRE_OK(sl_params_set(c.params, "rnn.kernel", full, 32 * 32));
    REQUIRE_OK(sl_params_set(c.params, "rnn.recurrent_kernel", half, 32 * 32));
    sl_stream_model *stream_model = stream_case_load(&c);
    sl_stream *stream;
    REQUIRE_OK(sl_stream_new(stream_model, &stream));
    float ones[32], tiny[32], zeros[32] = {0}, y[32];
    for (int i = 0; i < 32; i++) ones[i] = 1.0f, tiny[i] = FLT_MIN / 64;
    REQUIRE_OK(sl_stream_step(stream, ones, y));
    CHECK_NEAR(y[7], 1, 1e-6);
    for (int t = 0; t < 100; t++) REQUIRE_OK(sl_stream_step(stream, zeros, y));
    CHECK_NEAR(y[7] * ldexp(1, 100), 1, 1e-6);
    for (int t = 0; t < 35; t++) REQUIRE_OK(sl_stream_step(stream, zeros, y));
    CHECK(y[7] == 0); /* 2^-135 is a denormal number: flushed */
    const double normal = seconds_of_steps(stream, ones, 400), denormal = seconds_of_steps(stream, tiny, 400);
    CHECK(denormal < 4 * normal);
    sl_stream_free(stream);
    sl_stream_model_free(stream_model);
    stream_case_free(&c);
}

/* ------------------------------------------------------------------------------------------------ nothing but sums --
 * A child in seccomp's strict mode may end itself; any other system call of a step kills it. Allocations: tests/install. */
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static void step_in_prison(const stream_case *c, sl_stream *stream, float *y) {
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) syscall(SYS_exit, 3);
    for (int i = 0; i < 200; i++) {
        if (c->vocabulary)
            sl_stream_step_token(stream, c->tokens[i % STREAM_STEPS], y);
        else
            sl_stream_step(stream, c->x + i % STREAM_STEPS * c->inputs, y);
    }
    sl_stream_reset(stream);
    syscall(SYS_exit, 0);
}

TEST(stream_step_makes_no_system_call) {
    uint64_t random = test_seed;
    for (int i = 0; i < 8; i++) {
        stream_case c = stream_case_new(stream_random_model(&random), &random);
        sl_stream_model *model = stream_case_load(&c);
        sl_stream *stream;
        float *y = stream_case_output(&c);
        REQUIRE_OK(sl_stream_new(model, &stream));
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) step_in_prison(&c, stream, y);
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 3) test_skip("this system has no seccomp");
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        free(y);
        sl_stream_free(stream);
        sl_stream_model_free(model);
        stream_case_free(&c);
    }
}
#endif

/* ---------------------------------------------------------------------------------------------------------- errors -- */
TEST(stream_refuses_what_it_cannot_do) {
    uint64_t random = test_seed;
    sl_model *model;
    sl_recurrent o = {.units = 4, .bidirectional = SL_BI_CONCAT};
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 2, 0));
    REQUIRE_OK(sl_model_add_recurrent(model, "both", SL_GRU, &o, NULL));
    stream_case c = stream_case_new(model, &random);
    CHECK_FAILS(sl_model_convert(c.model, c.params, NULL, "none.slm"), SL_ERR_INPUT,
                "layer both: it reads the sequence");
    stream_case_free(&c);

    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 2, 0));
    o = (sl_recurrent){.units = 2, .return_sequences = 1};
    REQUIRE_OK(sl_model_add_recurrent(model, "rnn", SL_RNN, &o, NULL));
    REQUIRE_OK(sl_model_add_merge(model, "sum", SL_MERGE_ADD, (const char *const[]){"rnn", "x", NULL}));
    c = stream_case_new(model, &random);
    CHECK_FAILS(sl_model_convert(c.model, c.params, NULL, "none.slm"), SL_ERR_INPUT, "layer sum reads 2 tensors");
    stream_case_free(&c);
}

TEST(convert_refuses_options_that_are_wrong) {
    uint64_t random = test_seed;
    stream_case c = stream_case_new(one_layer(SL_LSTM, 2, 4, 0), &random);
    CHECK_FAILS(sl_model_convert(c.model, c.params, &(sl_convert){SL_CONVERT_C, .name = "1a"}, "none.c"), SL_ERR_USAGE,
                "'1a' cannot begin names of C");
    CHECK_FAILS(sl_model_convert(c.model, c.params, &(sl_convert){.dtype = SL_I8}, "none.slm"), SL_ERR_USAGE,
                "weights of i8");
    stream_case_free(&c);
}

TEST(convert_refuses_parameters_of_another_model) {
    uint64_t random = test_seed;
    stream_case four = stream_case_new(one_layer(SL_LSTM, 2, 4, 0), &random),
                five = stream_case_new(one_layer(SL_LSTM, 2, 5, 0), &random);
    CHECK_FAILS(sl_model_convert(four.model, five.params, NULL, "none.slm"), SL_ERR_USAGE,
                "sl_model_convert: the parameters were made for another model");
    stream_case_free(&four);
    stream_case_free(&five);
}

TEST(stream_wrong_use_is_told) {
    uint64_t random = test_seed;
    stream_case c = stream_case_new(one_layer(SL_RNN, 2, 4, 0), &random);
    sl_stream_model *model = stream_case_load(&c);
    sl_stream *stream;
    float y[4];
    REQUIRE_OK(sl_stream_new(model, &stream));
    CHECK_FAILS(sl_stream_step_token(stream, 0, y), SL_ERR_USAGE, "takes numbers");
    CHECK_FAILS(sl_stream_step(stream, NULL, y), SL_ERR_USAGE, "NULL");
    CHECK_FAILS(sl_stream_steps(stream, -1, y, y), SL_ERR_USAGE, "-1 steps");
    REQUIRE_OK(sl_stream_steps(stream, 0, y, y));
    setenv("SLUICE_CPU_ISA", "sse9", 1);
    sl_stream_model *none;
    CHECK_FAILS(sl_stream_model_load(stream_case_convert(&c, SL_CONVERT_STREAM), &none), SL_ERR_UNKNOWN, "sse9");
    /* What other rows compute with: streams take what is below it, where this CPU has that. */
    for (int i = 0; i < 2; i++) {
        setenv("SLUICE_CPU_ISA", i == 0 ? "amx" : "avx512bf16", 1);
        const char *file = stream_case_convert(&c, SL_CONVERT_STREAM);
        if (stream_case_have("avx512")) {
            REQUIRE_OK(sl_stream_model_load(file, &none));
            sl_stream_model_free(none);
        } else {
            CHECK_FAILS(sl_stream_model_load(file, &none), SL_ERR_UNKNOWN, "streams have kernels for");
        }
    }
    unsetenv("SLUICE_CPU_ISA");
    CHECK_FAILS(sl_stream_model_load("/nowhere.slm", &none), SL_ERR_FILE, "cannot be opened");
    sl_stream_free(stream);
    sl_stream_model_free(model);
    stream_case_free(&c);
    sl_model *tokens;
    REQUIRE_OK(sl_model_new(NULL, &tokens));
    REQUIRE_OK(sl_model_add_tokens(tokens, "x", 5));
    REQUIRE_OK(sl_model_add_one_hot(tokens, "one_hot", 5, NULL));
    sl_recurrent o = {.units = 4};
    REQUIRE_OK(sl_model_add_recurrent(tokens, "rnn", SL_RNN, &o, NULL));
    c = stream_case_new(tokens, &random);
    model = stream_case_load(&c);
    REQUIRE_OK(sl_stream_new(model, &stream));
    CHECK_FAILS(sl_stream_step_token(stream, 5, y), SL_ERR_INPUT, "token 5");
    CHECK_FAILS(sl_stream_step_token(stream, -1, y), SL_ERR_INPUT, "token -1");
    CHECK_FAILS(sl_stream_step(stream, y, y), SL_ERR_USAGE, "takes tokens");
    sl_stream_free(stream);
    sl_stream_model_free(model);
    stream_case_free(&c);
}

/* Every byte of a file changed, and every length: an error with a sentence, or, past the checksum, never. */
TEST(stream_damaged_files_are_refused) {
    uint64_t random = test_seed;
    stream_case c = stream_case_new(one_layer(SL_LSTM, 1, 3, 1), &random);
    FILE *file = fopen(stream_case_convert(&c, SL_CONVERT_STREAM), "rb");
    REQUIRE(file);
    static uint32_t words[1024];
    unsigned char *bytes = (unsigned char *)words;
    const size_t size = fread(bytes, 1, sizeof words, file);
    fclose(file);
    sl_stream_model *model;
    for (size_t i = 0; i < size; i++) {
        if (i >= 24 && i < 32) continue; /* not used */
        bytes[i] ^= 16;
        CHECK_FAILS(sl_stream_model_new(bytes, size, &model), SL_ERR_FILE, NULL);
        bytes[i] ^= 16;
        CHECK_FAILS(sl_stream_model_new(bytes, i, &model), SL_ERR_FILE, NULL);
    }
    REQUIRE_OK(sl_stream_model_new(bytes, size, &model));
    sl_stream_model_free(model);
    stream_case_free(&c);
}

/* The same with a checksum that fits: fields out of range must be found by themselves. */
TEST(stream_fields_out_of_range_are_refused) {
    uint64_t random = test_seed;
    stream_case c = stream_case_new(one_layer(SL_GRU, 1, 3, 1), &random);
    FILE *file = fopen(stream_case_convert(&c, SL_CONVERT_STREAM), "rb");
    REQUIRE(file);
    static uint32_t words[1024];
    const size_t size = fread(words, 1, sizeof words, file);
    fclose(file);
    const uint32_t wrong[] = {0, 7, 1u << 24, 1u << 25, 0x7fffffffu, 0xffffffffu, 0x7fc00000u};
    sl_stream_model *model;
    int refused = 0;
    for (int field = 8; field < 8 + 11; field++)
        for (int i = 0; i < 7; i++) {
            const uint32_t kept = words[field];
            words[field] = wrong[i];
            uint32_t sum = 2166136261u;
            for (size_t k = 32; k < size; k++) sum = (sum ^ ((unsigned char *)words)[k]) * 16777619u;
            words[5] = sum;
            if (sl_stream_model_new(words, size, &model) == SL_OK)
                sl_stream_model_free(model);
            else
                refused++;
            words[field] = kept;
        }
    CHECK(refused > 55);
    stream_case_free(&c);
}
