/* The test program: runs every TEST of every file, one after another in this process, and ends with the line
 *     N passed, N failed, N skipped
 * that tools/check adds up. A failing test prints the command that repeats it; so does one that crashes or hangs. */
#include "test.h"

#include <errno.h>
#include <ftw.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

#ifndef TEST_DATA
#define TEST_DATA "tests/data"
#endif

const char *test_device = "cpu";
uint64_t test_seed = 20240229;
const char *test_data = TEST_DATA;

static test_case *first_test;
static test_case *running;
static jmp_buf leave_test;
enum { LEAVE_ABORT = 1, LEAVE_SKIP = 2 };

static pthread_mutex_t report_mutex = PTHREAD_MUTEX_INITIALIZER;
static int failures; /* of the running test */
static char skip_reason[256];
static char folder[512]; /* of the running test; "" until asked for */
enum { SECONDS_ALLOWED = 600, SLOW_SECONDS = 1, FAILURES_SHOWN = 10 };

typedef struct run_options {
    bool quick, list, exact;
    char **filters;
    int filter_count;
} run_options;

/* By file, then as registered within it: the order in which people read them. */
void test_register(test_case *test) {
    test_case **at = &first_test;
    while (*at && strcmp((*at)->file, test->file) <= 0) at = &(*at)->next;
    test->next = *at;
    *at = test;
}

static void print_repeat(FILE *stream) {
    fprintf(stream, "    repeat: build/tests/sluice_tests --seed %llu%s%s %s\n", (unsigned long long)test_seed,
            strcmp(test_device, "cpu") == 0 ? "" : " --device ", strcmp(test_device, "cpu") == 0 ? "" : test_device,
            running->name);
}

void test_fail(const char *file, int line, const char *format, ...) {
    pthread_mutex_lock(&report_mutex);
    if (failures++ < FAILURES_SHOWN) {
        va_list arguments;
        va_start(arguments, format);
        printf("%s:%d: %s: ", file, line, running->name);
        vprintf(format, arguments);
        printf("\n");
        va_end(arguments);
        fflush(stdout);
    }
    pthread_mutex_unlock(&report_mutex);
}

_Noreturn void test_abort(void) {
    longjmp(leave_test, LEAVE_ABORT);
}

_Noreturn void test_skip(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(skip_reason, sizeof skip_reason, format, arguments);
    va_end(arguments);
    longjmp(leave_test, LEAVE_SKIP);
}

double test_random(uint64_t *state) {
    /* splitmix64 (Steele 2014) */
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (double)(z >> 11) * (2.0 / 9007199254740992.0) - 1.0;
}

/* --------------------------------------------------------------------------------------------- temporary folder -- */
const char *test_folder(void) {
    if (folder[0]) return folder;
    const char *parent = getenv("TMPDIR");
    int length = snprintf(folder, sizeof folder, "%s/sluice-test-XXXXXX", parent && parent[0] ? parent : "/tmp");
    if (length < 0 || (size_t)length >= sizeof folder || !mkdtemp(folder)) {
        test_fail(__FILE__, __LINE__, "cannot make a temporary folder %s: %s", folder, strerror(errno));
        folder[0] = 0;
        test_abort();
    }
    return folder;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *where) {
    (void)status;
    (void)type;
    (void)where;
    return remove(path);
}

static void remove_folder(void) {
    if (folder[0]) nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    folder[0] = 0;
}

/* --------------------------------------------------------------------------------------------- crashes and hangs -- */
/* Only what a signal handler may do: write. */
static void say(const char *text) {
    ssize_t written = write(STDOUT_FILENO, text, strlen(text));
    (void)written;
}

static void say_where(const char *what) {
    if (!running) return;
    say("\n");
    say(running->file);
    say(": ");
    say(running->name);
    say(what);
    say("\n    repeat: build/tests/sluice_tests --device ");
    say(test_device);
    say(" ");
    say(running->name);
    say("\n");
}

static void on_crash(int number) {
    say_where(number == SIGALRM ? ": hangs" : number == SIGABRT ? ": aborted" : ": crashed");
    signal(number, SIG_DFL);
    raise(number);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAVE_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAVE_SANITIZER 1
#endif
#endif
#ifdef HAVE_SANITIZER
void __sanitizer_set_death_callback(void (*callback)(void));
static void on_sanitizer_death(void) {
    if (running) say_where(": stopped by a sanitizer");
}
#endif

/* A sanitizer reports crashes itself, better. */
static void catch_crashes(void) {
    static const int numbers[] = {SIGALRM, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    size_t count = sizeof numbers / sizeof numbers[0];
#ifdef HAVE_SANITIZER
    __sanitizer_set_death_callback(on_sanitizer_death);
    count = 1;
#endif
    for (size_t i = 0; i < count; i++) {
        struct sigaction action = {.sa_handler = on_crash, .sa_flags = SA_RESETHAND | SA_NODEFER};
        sigaction(numbers[i], &action, NULL);
    }
}

/* ----------------------------------------------------------------------------------------------------- running -- */
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

typedef enum outcome { PASSED, FAILED, SKIPPED } outcome;

static outcome run_test(test_case *test) {
    running = test;
    failures = 0;
    skip_reason[0] = 0;
    double start = now();
    alarm(SECONDS_ALLOWED);
    int left = setjmp(leave_test);
    if (left == 0) test->run();
    alarm(0);
    remove_folder();
    double seconds = now() - start;
    if (failures > FAILURES_SHOWN) printf("    ... and %d more\n", failures - FAILURES_SHOWN);
    if (failures > 0 || left == LEAVE_ABORT) print_repeat(stdout);
    if (seconds >= SLOW_SECONDS) printf("%6.1f s  %s\n", seconds, test->name);
    if (failures == 0 && left == LEAVE_SKIP) printf("skipped  %s: %s\n", test->name, skip_reason);
    fflush(stdout);
    running = NULL;
    return failures > 0 || left == LEAVE_ABORT ? FAILED : left == LEAVE_SKIP ? SKIPPED : PASSED;
}

static bool fits(const test_case *test, const run_options *options, int filter) {
    const char *text = options->filters[filter];
    return options->exact ? strcmp(test->name, text) == 0 : strstr(test->name, text) != NULL;
}

static bool wanted(const test_case *test, const run_options *options) {
    for (int i = 0; i < options->filter_count; i++)
        if (fits(test, options, i)) return true;
    return options->filter_count == 0;
}

/* Filters that no test fits, which are failures: nothing would run, and nothing be missed. */
static int unknown_filters(const run_options *options) {
    int unknown = 0;
    for (int i = 0; i < options->filter_count; i++) {
        const test_case *test = first_test;
        while (test && !fits(test, options, i)) test = test->next;
        if (test) continue;
        printf("no test is called '%s'%s\n", options->filters[i], options->exact ? "" : ", nor has it in its name");
        unknown++;
    }
    return unknown;
}

static const char usage[] =
    "sluice_tests [--device NAME] [--quick] [--list] [--exact] [--data FOLDER] [--seed N] [filter...]\n"
    "  --device NAME  device of every plan: cpu, far (memory that the host cannot read, work done late)\n"
    "  --quick        leave out the slow tests\n"
    "  --list         print the names only\n"
    "  --exact        filters are whole names\n"
    "  --data FOLDER  the test data, where it is not where it was when this was built (tests/data)\n"
    "  --seed N       seed of the drawn inputs\n"
    "  filter         part of a test's name; several: any of them\n";

/* Filters are moved to the front of argv. */
static bool parse(int argc, char **argv, run_options *options) {
    options->filters = argv;
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        char *end = "";
        if (strcmp(argument, "--quick") == 0)
            options->quick = true;
        else if (strcmp(argument, "--list") == 0)
            options->list = true;
        else if (strcmp(argument, "--exact") == 0)
            options->exact = true;
        else if (strcmp(argument, "--device") == 0 && i + 1 < argc)
            test_device = argv[++i];
        else if (strcmp(argument, "--data") == 0 && i + 1 < argc)
            test_data = argv[++i];
        else if (strcmp(argument, "--seed") == 0 && i + 1 < argc)
            test_seed = strtoull(argv[++i], &end, 10);
        else if (argument[0] == '-')
            return false;
        else
            options->filters[options->filter_count++] = argv[i];
        if (*end) return false;
    }
    return true;
}

int main(int argc, char **argv) {
    run_options options = {0};
    if (!parse(argc, argv, &options)) {
        fputs(usage, stderr);
        return 2;
    }
    int count[3] = {[FAILED] = unknown_filters(&options)}, slow = 0;
    catch_crashes();
    for (test_case *test = first_test; test; test = test->next) {
        if (!wanted(test, &options)) continue;
        if (options.list)
            printf("%s%s\n", test->name, test->slow ? " (slow)" : "");
        else if (options.quick && test->slow)
            slow++;
        else
            count[run_test(test)]++;
    }
    if (options.list) return count[FAILED] > 0;
    if (slow) printf("%d slow tests left out by --quick\n", slow);
    printf("%d passed, %d failed, %d skipped\n", count[PASSED], count[FAILED], count[SKIPPED]);
    fflush(stdout); /* a leak sanitizer ends the process before stdio does */
    return count[FAILED] > 0;
}
