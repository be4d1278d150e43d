/* The C file of a model, compiled as users would, beside the library: every cell and option, with vectors and without, in C and C++. */
#include <dlfcn.h>
#include <fenv.h>
#include <float.h>
#include <stdarg.h>
#include <sys/wait.h>

#include "stream/stream_case.h"

/* Runs a shell command; false with what it printed. */
static bool command(const char *format, ...) {
    char text[2048], log[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(log, sizeof log, "%s/log", test_folder());
    strncat(text, " >'", sizeof text - strlen(text) - 1);
    strncat(text, log, sizeof text - strlen(text) - 1);
    strncat(text, "' 2>&1", sizeof text - strlen(text) - 1);
    const int status = system(text);
    if (status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
    char shown[1500] = "";
    FILE *file = fopen(log, "r");
    if (file) {
        shown[fread(shown, 1, sizeof shown - 1, file)] = 0;
        fclose(file);
    }
    test_fail(__FILE__, __LINE__, "%s\n%s", text, shown);
    return false;
}

static const char *compiler(const char *first, const char *second) {
    char text[128];
    snprintf(text, sizeof text, "command -v %s >/dev/null 2>&1", first);
    if (system(text) == 0) return first;
    snprintf(text, sizeof text, "command -v %s >/dev/null 2>&1", second);
    return system(text) == 0 ? second : NULL;
}

static bool takes(const char *cc, const char *option) {
    char text[256];
    snprintf(text, sizeof text, "echo 'int unused;' | %s %s -x c -c -o /dev/null - >/dev/null 2>&1", cc, option);
    return system(text) == 0;
}

/* How far the compiled file's outputs are from the case's: of the largest, which counts as 1 at least. */
static double compare(const stream_case *c, const char *library) {
    fenv_t environment; /* with -ffast-math gcc's files make the process flush denormal numbers when they are loaded */
    fegetenv(&environment);
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    fesetenv(&environment);
    if (!handle) test_fail(__FILE__, __LINE__, "%s", dlerror());
    REQUIRE(handle);
    void (*reset)(void *), (*step)(void *, const float *, float *), (*token_step)(void *, int, float *);
    *(void **)&reset = dlsym(handle, "net_reset");
    *(void **)&step = dlsym(handle, "net_step");
    *(void **)&token_step = dlsym(handle, "net_step");
    REQUIRE(reset && step);
    static float state[8192];
    float *y = stream_case_output(c);
    double most = 1, worst = 0;
    for (int i = 0; i < STREAM_STEPS * c->outputs; i++) most = fmax(most, fabs(c->y[i]));
    memset(state, 255, sizeof state);
    reset(state);
    for (int t = 0; t < STREAM_STEPS; t++) {
        if (c->vocabulary)
            token_step(state, c->tokens[t], y);
        else
            step(state, c->x + t * c->inputs, y);
        for (int k = 0; k < c->outputs; k++) {
            const double error = fabs(y[k] - c->y[t * c->outputs + k]) / most;
            if (!(error <= worst)) worst = error;
        }
    }
    free(y);
    dlclose(handle);
    return worst;
}

/* Returns the error, which must be at most `tolerance`. */
static double compile_and_compare(const stream_case *c, const char *with, int number, double tolerance) {
    const char *folder = test_folder();
    double error = INFINITY;
    if (command("%s -shared -fPIC -o '%s/net%d.so' '%s/net.c'", with, folder, number, folder)) {
        char library[512];
        snprintf(library, sizeof library, "%s/net%d.so", folder, number);
        error = compare(c, library);
        CHECK_NEAR(error, 0, tolerance);
    }
    return error;
}

static void convert(const stream_case *c, sl_dtype dtype) {
    char path[512];
    snprintf(path, sizeof path, "%s/net.c", test_folder());
    REQUIRE_OK(sl_model_convert(c->model, c->params, &(sl_convert){.form = SL_CONVERT_C, .dtype = dtype}, path));
    static char head[1500]; /* says what becomes of a NaN, where samples are numbers */
    FILE *file = fopen(path, "r");
    REQUIRE(file && fread(head, 1, sizeof head - 1, file) == sizeof head - 1);
    fclose(file);
    CHECK((strstr(head, "a NaN or an infinite one") != NULL) == (c->vocabulary == 0));
}

static const char strict[] = "-pedantic -Wall -Wextra -Wshadow -Werror";

/* A model that begins with numbers, with one-hot vectors of tokens, or with a table's rows for them. */
static sl_model *model_from(int form, int features) {
    sl_model *model;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(form == 0 ? sl_model_add_input(model, "x", features, 0) : sl_model_add_tokens(model, "x", 9));
    if (form == 1) REQUIRE_OK(sl_model_add_one_hot(model, "one_hot", 9, NULL));
    if (form >= 2)
        REQUIRE_OK(sl_model_add_embedding(model, "table", &(sl_embedding){.vocabulary = 9, .units = 6}, NULL));
    return model;
}

/* What is compiled from the files is not sanitized: under sanitizers it is the writing that counts. */
enum { FLOAT_MODELS = 12 / TEST_ONE_IN(3), MODELS_IN_I8 = 9 / TEST_ONE_IN(3) };

TEST_SLOW(stream_c_files_give_the_numbers_of_the_library) {
    const char *cc = compiler("cc", "gcc"), *clang = compiler("clang", "clang-14"), *cxx = compiler("c++", "g++");
    if (!cc) test_skip("there is no C compiler");
    uint64_t random = test_seed;
    char with[256];
    for (int i = 0; i < FLOAT_MODELS; i++) {
        stream_case c = stream_case_new(stream_random_model(&random), &random);
        convert(&c, SL_F32);
        snprintf(with, sizeof with, "%s -std=c99 %s -O1", cc, strict);
        compile_and_compare(&c, with, 10 * i, 2e-5);
        snprintf(with, sizeof with, "%s -std=c99 %s -O1 -march=native -Dnet_PLAIN_C", cc, strict);
        if (i % 4 == 0) compile_and_compare(&c, with, 10 * i + 1, 2e-5);
        snprintf(with, sizeof with, "%s -std=gnu99 %s -O3 -march=native", cc, strict);
        if (i % 4 == 1) compile_and_compare(&c, with, 10 * i + 2, 2e-5);
        snprintf(with, sizeof with, "%s -std=c99 %s -O2", clang ? clang : cc, strict);
        if (i % 4 == 2) compile_and_compare(&c, with, 10 * i + 3, 2e-5);
        snprintf(with, sizeof with, "%s -x c++ -std=c++17 %s -O1", cxx ? cxx : cc, strict);
        if (i % 4 == 3 && cxx) compile_and_compare(&c, with, 10 * i + 4, 2e-5);
        stream_case_free(&c);
    }
}

/* Beside a plan in i8, too, numbers differ as floats do, until one falls on the other side of the middle between two whole numbers:
 * then it differs by 1/127 of its row's largest, and what comes after by some fraction of that. Most models have none. */
TEST_SLOW(stream_c_files_in_i8_give_the_numbers_of_plans_in_i8) {
    const char *cc = compiler("cc", "gcc"), *cxx = compiler("c++", "g++");
    if (!cc) test_skip("there is no C compiler");
    uint64_t random = test_seed;
    int same = 0;
    for (int i = 0; i < MODELS_IN_I8; i++) {
        stream_case c = stream_case_in(stream_random_model(&random), SL_I8, &random);
        char with[256];
        snprintf(with, sizeof with, "%s -std=c99 %s -O1%s", cc, strict, i % 3 == 1 ? " -Dnet_PLAIN_C" : "");
        if (i % 3 == 2) snprintf(with, sizeof with, "%s -std=c99 %s -O3 -march=native", cc, strict);
        if (i == 3 && cxx) snprintf(with, sizeof with, "%s -x c++ -std=c++17 %s -O1", cxx, strict);
        convert(&c, SL_I8);
        same += compile_and_compare(&c, with, i, 0.01) < 2e-5;
        stream_case_free(&c);
    }
    CHECK(same >= MODELS_IN_I8 / 2);
}

/* Layers of more than two blocks of units, which steps go through forward and back by turns; the input a number, a token or a table's row. */
TEST_SLOW(stream_c_files_of_many_blocks_give_the_numbers_of_the_library) {
    const char *cc = compiler("cc", "gcc");
    if (!cc) test_skip("there is no C compiler");
    uint64_t random = test_seed;
    char with[128];
    snprintf(with, sizeof with, "%s -std=c99 %s -O1", cc, strict);
    for (int form = 0; form < 3; form++) {
        const sl_recurrent lstm = {.units = 40, .peephole = 1, .projection = form == 1 ? 23 : 0, .return_sequences = 1};
        const sl_recurrent gru = {.units = 65,
                                  .reset_before = form == 2,
                                  .zoneout_h = form == 1 ? 0.1 : 0,
                                  .return_sequences = 1},
                           usual = {.units = 50};
        sl_model *model = model_from(form, 3);
        REQUIRE_OK(sl_model_add_recurrent(model, "lstm", SL_LSTM, &lstm, NULL));
        REQUIRE_OK(sl_model_add_recurrent(model, "gru", SL_GRU, &gru, NULL));
        REQUIRE_OK(sl_model_add_recurrent(model, "usual", SL_LSTM, &usual, NULL));
        stream_case c = stream_case_new(model, &random);
        convert(&c, SL_F32);
        compile_and_compare(&c, with, form, 2e-5);
        stream_case_free(&c);
    }
}

/* Compilers may reorder what is added, and x87 keeps more bits than floats have: "x + 1.5 * 2^23 - 1.5 * 2^23" is x to both. */
TEST_SLOW(stream_c_files_give_their_numbers_with_fast_math_and_x87) {
    const char *cc = compiler("cc", "gcc");
    if (!cc) test_skip("there is no C compiler");
    uint64_t random = test_seed;
    sl_model *model;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 3, 0));
    REQUIRE_OK(sl_model_add_recurrent(model, "lstm", SL_LSTM,
                                      &(sl_recurrent){.units = 5, .peephole = 1, .return_sequences = 1}, NULL));
    REQUIRE_OK(sl_model_add_recurrent(model, "gru", SL_GRU, &(sl_recurrent){.units = 20, .return_sequences = 1}, NULL));
    stream_case c = stream_case_new(model, &random);
    convert(&c, SL_F32);
    char with[128];
    snprintf(with, sizeof with, "%s -O2 -ffast-math", cc);
    compile_and_compare(&c, with, 0, 2e-5);
    snprintf(with, sizeof with, "%s -O2 -ffast-math -Dnet_PLAIN_C", cc);
    compile_and_compare(&c, with, 1, 2e-5);
    if (takes(cc, "-mfpmath=387")) { /* gcc on x86 */
        snprintf(with, sizeof with, "%s -std=gnu99 -O1 -mfpmath=387", cc);
        compile_and_compare(&c, with, 2, 2e-5);
        snprintf(with, sizeof with, "%s -std=c99 -O1 -mfpmath=387", cc);
        compile_and_compare(&c, with, 3, 2e-5);
    }
#if defined(__x86_64__)
    snprintf(with, sizeof with, "%s -O1 -ffast-math -U__SSE2__", cc); /* vectors without instructions that we name */
    compile_and_compare(&c, with, 4, 2e-5);
#endif
    volatile float least = FLT_MIN;
    CHECK(least / 2 > 0); /* the tests after this one have denormal numbers */
    stream_case_free(&c);
}

/* Biases that close gates to 0 and open them to 1, beyond where e^-x is a float: gates of 16 units each, -90 where `low`, else 90. */
static void saturate(const stream_case *c, const char *bias, int gates, unsigned low) {
    double values[4 * 16];
    for (int i = 0; i < gates * 16; i++) values[i] = low >> i / 16 & 1 ? -90 : 90;
    REQUIRE_OK(sl_params_set(c->params, bias, values, (size_t)gates * 16));
}

/* With -ffast-math a division may be a reciprocal's, of which an infinite divisor makes no number. */
TEST_SLOW(stream_c_files_give_their_numbers_with_fast_math_where_gates_are_closed) {
    const char *cc = compiler("cc", "gcc");
    if (!cc) test_skip("there is no C compiler");
    static const char *const options[] = {"-O3 -ffast-math -march=native", "-O3 -ffast-math",
                                          "-O2 -ffast-math -Dnet_PLAIN_C", "-O3 -ffast-math -march=haswell"};
    uint64_t random = test_seed;
    for (unsigned low = 0; low < 16; low += 5) { /* none; i, g; f, o; all */
        sl_model *model;
        REQUIRE_OK(sl_model_new(NULL, &model));
        REQUIRE_OK(sl_model_add_input(model, "x", 3, 0));
        REQUIRE_OK(
            sl_model_add_recurrent(model, "lstm", SL_LSTM, &(sl_recurrent){.units = 16, .return_sequences = 1}, NULL));
        REQUIRE_OK(
            sl_model_add_recurrent(model, "gru", SL_GRU, &(sl_recurrent){.units = 16, .return_sequences = 1}, NULL));
        stream_case c = stream_case_new(model, &random);
        saturate(&c, "lstm.bias", 4, low);
        saturate(&c, "gru.bias", 3, low);
        stream_case_run(&c);
        convert(&c, SL_F32);
        for (int i = 0; i < 4; i++) {
            char with[128];
            if (strstr(options[i], "-march=haswell") && (!takes(cc, "-march=haswell") || !stream_case_have("avx2")))
                continue;
            snprintf(with, sizeof with, "%s %s", cc, options[i]);
            compile_and_compare(&c, with, (int)low * 4 + i, 2e-5);
        }
        stream_case_free(&c);
    }
}

/* Files of which some functions would have nothing to do, and one that is a table alone. clang says what is not used. */
TEST_SLOW(stream_c_files_of_few_layers_hold_what_they_use) {
    const char *cc = compiler("clang", "cc");
    if (!cc) test_skip("there is no C compiler");
    uint64_t random = test_seed;
    char with[128];
    snprintf(with, sizeof with, "%s -std=c99 %s -O1", cc, strict);
    for (int i = 0; i < 8; i++) {
        const sl_dtype dtype = i % 2 ? SL_I8 : SL_F32;
        const int form = i / 2; /* few units; one-hot vectors or a table before a dense layer; a table */
        sl_model *model = model_from(form, 7);
        if (form < 3) REQUIRE_OK(sl_model_add_dense(model, "dense", &(sl_dense){.units = form ? 11 : 2}, NULL));
        stream_case c = stream_case_in(model, dtype, &random);
        convert(&c, dtype);
        compile_and_compare(&c, with, i, 2e-5);
        stream_case_free(&c);
    }
}

TEST(stream_c_files_in_i8_refuse_sums_beyond_32_bits) {
    enum { INPUTS, STATES, UNITS, SUMS }; /* a projection may have more or fewer numbers than there are units */
    for (int i = 0; i < SUMS; i++) {
        const sl_recurrent lstm = {.units = i == UNITS ? 131073 : 1, .projection = i == STATES ? 131073 : 1};
        sl_model *model;
        sl_plan *plan;
        sl_params *params;
        REQUIRE_OK(sl_model_new(NULL, &model));
        REQUIRE_OK(sl_model_add_input(model, "x", i == INPUTS ? 131073 : 1, 0));
        if (i == INPUTS)
            REQUIRE_OK(sl_model_add_dense(model, "dense", &(sl_dense){.units = 1}, NULL));
        else
            REQUIRE_OK(sl_model_add_recurrent(model, "lstm", SL_LSTM, &lstm, NULL));
        REQUIRE_OK(sl_plan_new(model, &(sl_plan_options){.device = "cpu"}, &plan));
        REQUIRE_OK(sl_params_new(plan, &params));
        CHECK_FAILS(sl_model_convert(model, params, &(sl_convert){.form = SL_CONVERT_C, .dtype = SL_I8}, "none.c"),
                    SL_ERR_INPUT, "sums of 131073 products of 8 bits may not fit into 32 bits, 131072 do");
        sl_params_free(params);
        sl_plan_free(plan);
        sl_model_free(model);
    }
}
