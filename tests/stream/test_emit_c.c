/* The C file of a model, compiled as users would, beside the library: every cell and option, with vectors and without, in C and C++. */
#include <dlfcn.h>
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

/* The compiled file gives the case's outputs; its state is at most `room` floats. */
static void compare(const stream_case *c, const char *library) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle) test_fail(__FILE__, __LINE__, "%s", dlerror());
    REQUIRE(handle);
    void (*reset)(void *), (*step)(void *, const float *, float *), (*token_step)(void *, int, float *);
    *(void **)&reset = dlsym(handle, "net_reset");
    *(void **)&step = dlsym(handle, "net_step");
    *(void **)&token_step = dlsym(handle, "net_step");
    REQUIRE(reset && step);
    static float state[8192];
    float *y = stream_case_output(c);
    double most = 1;
    for (int i = 0; i < STREAM_STEPS * c->outputs; i++) most = fmax(most, fabs(c->y[i]));
    memset(state, 255, sizeof state);
    reset(state);
    for (int t = 0; t < STREAM_STEPS; t++) {
        if (c->vocabulary)
            token_step(state, c->tokens[t], y);
        else
            step(state, c->x + t * c->inputs, y);
        for (int k = 0; k < c->outputs; k++) CHECK_NEAR(y[k], c->y[t * c->outputs + k], 2e-5 * most);
    }
    free(y);
    dlclose(handle);
}

static void compile_and_compare(const stream_case *c, const char *with, int number) {
    const char *folder = test_folder();
    if (command("%s -shared -fPIC -o '%s/net%d.so' '%s/net.c'", with, folder, number, folder)) {
        char library[512];
        snprintf(library, sizeof library, "%s/net%d.so", folder, number);
        compare(c, library);
    }
}

static void convert(const stream_case *c) {
    char path[512];
    snprintf(path, sizeof path, "%s/net.c", test_folder());
    REQUIRE_OK(sl_model_convert(c->model, c->params, &(sl_convert){.form = SL_CONVERT_C}, path));
}

TEST_SLOW(stream_c_files_give_the_numbers_of_the_library) {
    const char *cc = compiler("cc", "gcc"), *clang = compiler("clang", "clang-14"), *cxx = compiler("c++", "g++");
    if (!cc) test_skip("there is no C compiler");
    static const char strict[] = "-pedantic -Wall -Wextra -Werror";
    uint64_t random = test_seed;
    char with[256];
    for (int i = 0; i < 12; i++) {
        stream_case c = stream_case_new(stream_random_model(&random), &random);
        convert(&c);
        snprintf(with, sizeof with, "%s -std=c99 %s -O1", cc, strict);
        compile_and_compare(&c, with, 10 * i);
        snprintf(with, sizeof with, "%s -std=c99 %s -O1 -march=native -Dnet_PLAIN_C", cc, strict);
        if (i % 4 == 0) compile_and_compare(&c, with, 10 * i + 1);
        snprintf(with, sizeof with, "%s -std=gnu99 %s -O3 -march=native", cc, strict);
        if (i % 4 == 1) compile_and_compare(&c, with, 10 * i + 2);
        snprintf(with, sizeof with, "%s -std=c99 %s -O2", clang ? clang : cc, strict);
        if (i % 4 == 2) compile_and_compare(&c, with, 10 * i + 3);
        snprintf(with, sizeof with, "%s -x c++ -std=c++17 %s -O1", cxx ? cxx : cc, strict);
        if (i % 4 == 3 && cxx) compile_and_compare(&c, with, 10 * i + 4);
        stream_case_free(&c);
    }
}
