/* The file of times: what is read back, what is skipped, what another process wrote in between, no place for it. */
#include "tune/tune.h"

#include <sys/stat.h>
#include <unistd.h>

#include "test.h"
#include "tune/cache_folder.h"

/* A file of times in a folder of its own; its path. Ends with cache_restore. */
static const char *use_folder(const char *name) {
    cache_keep();
    static char folder[512], path[600];
    snprintf(folder, sizeof folder, "%s/%s", test_folder(), name);
    snprintf(path, sizeof path, "%s/sluice/tuned.txt", folder);
    setenv("XDG_CACHE_HOME", folder, 1);
    return path;
}

static void name_machine(const sli_caps *caps, char *text, size_t capacity) {
    snprintf(text, capacity, "a machine\twith %d SMs", caps->multiprocessors);
}

static void open_for(sli_tuned *tuned, int multiprocessors) {
    sl_allocator allocator = sli_allocator_or_default(NULL);
    const sli_device_ops ops = {.name = "cuda", .identify = name_machine};
    sli_caps caps = {.name = "cuda:1", .kind = SLI_DEVICE_CUDA, .multiprocessors = multiprocessors};
    REQUIRE_OK(sli_tuned_open(&allocator, &caps, &ops, tuned));
}

static void close_last(sli_tuned *tuned) {
    sli_tuned_close(tuned);
    cache_restore();
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    REQUIRE(file);
    fputs(text, file);
    fclose(file);
}

static long mode_of(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 ? (long)(info.st_mode & 0777) : -1;
}

TEST(tuned_times_are_read_back_by_the_same_machine_only) {
    char *path = strdup(use_folder("new/deeper"));
    sli_tuned tuned;
    open_for(&tuned, 132);
    CHECK(!tuned.times && sli_tuned_seconds(&tuned, "p", "k") < 0);
    REQUIRE_OK(sli_tuned_save(&tuned)); /* nothing to write */
    CHECK(access(path, F_OK) != 0);
    REQUIRE_OK(sli_tuned_add(&tuned, "p", "k", 1.5e-6));
    REQUIRE_OK(sli_tuned_add(&tuned, "p", "other", 2.5e-6));
    CHECK_NEAR(sli_tuned_seconds(&tuned, "p", "k"), 1.5e-6, 1e-15);
    mode_t mask = umask(0);
    REQUIRE_OK(sli_tuned_save(&tuned));
    umask(mask);
    sli_tuned_close(&tuned);
    CHECK(mode_of(path) == 0600);
    *strrchr(path, '/') = 0;
    CHECK(mode_of(path) == 0700);
    open_for(&tuned, 132);
    CHECK_NEAR(sli_tuned_seconds(&tuned, "p", "k"), 1.5e-6, 1e-15);
    CHECK_NEAR(sli_tuned_seconds(&tuned, "p", "other"), 2.5e-6, 1e-15);
    CHECK(sli_tuned_seconds(&tuned, "q", "k") < 0);
    sli_tuned_close(&tuned);
    open_for(&tuned, 131);
    CHECK(tuned.times && sli_tuned_seconds(&tuned, "p", "k") < 0);
    close_last(&tuned);
    free(path);
}

TEST(tuned_writes_beside_what_another_process_wrote) {
    sli_tuned one, two;
    use_folder("shared");
    open_for(&one, 1);
    open_for(&two, 1);
    REQUIRE_OK(sli_tuned_add(&one, "p", "k", 1e-6));
    REQUIRE_OK(sli_tuned_save(&one));
    REQUIRE_OK(sli_tuned_add(&two, "q", "k", 2e-6));
    REQUIRE_OK(sli_tuned_add(&two, "p", "k", 3e-6)); /* measured anew: the later one counts */
    REQUIRE_OK(sli_tuned_save(&two));
    sli_tuned_close(&one);
    sli_tuned_close(&two);
    open_for(&one, 1);
    CHECK_NEAR(sli_tuned_seconds(&one, "p", "k"), 3e-6, 1e-15);
    CHECK_NEAR(sli_tuned_seconds(&one, "q", "k"), 2e-6, 1e-15);
    CHECK(one.times && one.times->next && !one.times->next->next);
    close_last(&one);
}

TEST(tuned_skips_lines_that_are_none) {
    sli_tuned tuned;
    const char *path = use_folder("broken");
    open_for(&tuned, 1);
    REQUIRE_OK(sli_tuned_add(&tuned, "p", "k", 1e-6));
    REQUIRE_OK(sli_tuned_save(&tuned));
    char text[1024];
    snprintf(text, sizeof text,
             "%s\tp\tk\t1\n\t\t\t\nrubbish\n%s\tp\tminus\t-1\n%s\tp\tnan\tnan\n%s\tp\tmore\t1\t2\n%s\tp\tword\t1x\n"
             "%s\t\tk\t1\n%s\tp\tlast\t7",
             tuned.machine, tuned.machine, tuned.machine, tuned.machine, tuned.machine, tuned.machine, tuned.machine);
    sli_tuned_close(&tuned);
    write_text(path, text);
    open_for(&tuned, 1);
    int count = 0;
    for (const sli_tuned_time *time = tuned.times; time; time = time->next) count++;
    CHECK(count == 2 && sli_tuned_seconds(&tuned, "p", "minus") < 0 && sli_tuned_seconds(&tuned, "p", "more") < 0);
    CHECK_NEAR(sli_tuned_seconds(&tuned, "p", "last"), 7e-6, 1e-15); /* a line end is not needed */
    close_last(&tuned);
}

TEST(tuned_without_a_place_says_so) {
    sli_tuned tuned;
    char *path = strdup(use_folder("taken")), *home = getenv("HOME") ? strdup(getenv("HOME")) : NULL;
    char *folder = strdup(path);
    *strrchr(folder, '/') = 0;
    *strrchr(folder, '/') = 0;
    write_text(folder, "a file where a folder should be");
    open_for(&tuned, 1);
    REQUIRE_OK(sli_tuned_add(&tuned, "p", "k", 1e-6));
    CHECK_FAILS(sli_tuned_save(&tuned), SL_ERR_IO, "folder cannot be made");
    CHECK_NEAR(sli_tuned_seconds(&tuned, "p", "k"), 1e-6, 1e-15);
    sli_tuned_close(&tuned);
    setenv("XDG_CACHE_HOME", "relative", 1);
    unsetenv("HOME");
    open_for(&tuned, 1);
    REQUIRE_OK(sli_tuned_add(&tuned, "p", "k", 1e-6));
    CHECK_FAILS(sli_tuned_save(&tuned), SL_ERR_IO, "neither XDG_CACHE_HOME nor HOME");
    close_last(&tuned);
    if (home) setenv("HOME", home, 1);
    free(home);
    free(folder);
    free(path);
}
