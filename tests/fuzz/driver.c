/* Runs every file of the given files and folders through a fuzz target, without libFuzzer: so the corpora are part of the
 * ordinary tests. Each input lies in a block of its own size, so that a sanitizer sees the first byte read beyond it. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char current[4096];

/* The sanitizers end the process: the name of the input must be out by then. */
static void say_current(void) {
    static const char text[] = "\nfuzz input: ";
    ssize_t written = write(STDOUT_FILENO, text, sizeof text - 1);
    written = write(STDOUT_FILENO, current, strlen(current));
    written = write(STDOUT_FILENO, "\n", 1);
    (void)written;
}

#if defined(__SANITIZE_ADDRESS__)
void __sanitizer_set_death_callback(void (*callback)(void));
#endif

static int run_file(const char *path, long bytes) {
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(bytes > 0 ? (size_t)bytes : 1);
    int failed = !file || !data || fread(data, 1, (size_t)bytes, file) != (size_t)bytes;
    snprintf(current, sizeof current, "%s", path);
    if (failed)
        printf("%s: cannot be read\n", path);
    else
        LLVMFuzzerTestOneInput(data, (size_t)bytes);
    free(data);
    if (file) fclose(file);
    return failed;
}

static int run_path(const char *path, int *inputs);

static int run_folder(const char *path, int *inputs) {
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, alphasort), failed = 0;
    if (count < 0) return 1;
    for (int i = 0; i < count; i++) {
        char inner[4096];
        int length = snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && length > 0 && (size_t)length < sizeof inner)
            failed += run_path(inner, inputs);
        free(entries[i]);
    }
    free(entries);
    return failed;
}

static int run_path(const char *path, int *inputs) {
    struct stat status;
    if (stat(path, &status) != 0) {
        printf("%s: no such file\n", path);
        return 1;
    }
    if (S_ISDIR(status.st_mode)) return run_folder(path, inputs);
    ++*inputs;
    return run_file(path, (long)status.st_size);
}

int main(int argc, char **argv) {
    int inputs = 0, failed = 0;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_set_death_callback(say_current);
#else
    (void)say_current;
#endif
    for (int i = 1; i < argc; i++) failed += run_path(argv[i], &inputs);
    if (inputs == 0) printf("no inputs: give the corpus folder\n");
    failed += inputs == 0;
    printf("%d passed, %d failed, 0 skipped\n", inputs > failed ? inputs - failed : 0, failed);
    return failed > 0;
}
