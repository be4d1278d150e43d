/* Where NVIDIA's libraries are looked for, with folders made for the test: links to libm stand for a library. */
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>
#include "backend/cuda/load.h"
#include "test.h"

/* Makes all folders of root/path. */
static void make_folders(const char *root, const char *path) {
    char full[1000];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; *slash++ = '/') {
        *slash = 0;
        mkdir(full, 0700);
    }
    mkdir(full, 0700);
}

static void make_library(const char *root, const char *folder, const char *name) {
    char libm[1000], path[1000];
    make_folders(root, folder);
    void *library = dlopen("libm.so.6", RTLD_NOW);
    REQUIRE(library != NULL);
    sli_library_path(dlsym(library, "cos"), libm, sizeof libm);
    dlclose(library);
    REQUIRE(libm[0] == '/');
    snprintf(path, sizeof path, "%s/%s/%s", root, folder, name);
    CHECK(symlink(libm, path) == 0);
}

static bool opens(const char *name, sli_why *why) {
    const char *const names[] = {name, NULL};
    void *library = sli_library_open(names, why);
    const bool fine = library && dlsym(library, "cos");
    if (library) dlclose(library);
    return fine;
}

/* Sets an environment variable to the three texts. */
static void with(const char *variable, const char *before, const char *root, const char *after) {
    char value[1000];
    snprintf(value, sizeof value, "%s%s%s", before, root, after);
    setenv(variable, value, 1);
}

TEST(cuda_libraries_search_order) {
    const char *root = test_folder();
    char *path = strdup(getenv("PATH") ? getenv("PATH") : "/usr/bin");
    static const char *const variables[] = {"SLUICE_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"};
    char *before[3];
    for (int i = 0; i < 3; i++) {
        before[i] = getenv(variables[i]) ? strdup(getenv(variables[i])) : NULL;
        unsetenv(variables[i]);
    }
    sli_why why = {""};
    make_library(root, "named", "libsluicetest_named.so.1");
    make_library(root, "env/lib/python3.11/site-packages/nvidia/cu13/lib", "libsluicetest_env.so.1");
    make_library(root, "conda/lib/python3.9/site-packages/nvidia/cudnn/lib", "libsluicetest_conda.so.1");
    make_library(root, "base/lib/python3.12/dist-packages/nvidia/nccl/lib", "libsluicetest_base.so.1");
    make_library(root, "venv/lib/python3.12/site-packages/nvidia/nccl/lib", "libsluicetest_venv.so.1");
    make_folders(root, "base/bin");
    make_folders(root, "venv/bin");
    char program[1000], link[1000];
    snprintf(program, sizeof program, "%s/base/bin/python3", root);
    snprintf(link, sizeof link, "%s/venv/bin/python3", root);
    FILE *file = fopen(program, "w");
    REQUIRE(file != NULL);
    fclose(file);
    chmod(program, 0700);
    CHECK(symlink(program, link) == 0);

    CHECK(!opens("libsluicetest_named.so.1", &why) && strstr(why.text, "SLUICE_LIBRARY_PATH"));
    with("SLUICE_LIBRARY_PATH", "/no/such:", root, "/named");
    CHECK(opens("libsluicetest_named.so.1", &why));
    CHECK(!opens("libsluicetest_env.so.1", &why));
    with("VIRTUAL_ENV", "", root, "/env");
    CHECK(opens("libsluicetest_env.so.1", &why));
    CHECK(!opens("libsluicetest_conda.so.1", &why));
    with("CONDA_PREFIX", "", root, "/conda");
    CHECK(opens("libsluicetest_conda.so.1", &why));
    CHECK(!opens("libsluicetest_venv.so.1", &why) && !opens("libsluicetest_base.so.1", &why));
    with("PATH", "/no/such:", root, "/venv/bin");
    CHECK(opens("libsluicetest_venv.so.1", &why)); /* the environment that is named */
    CHECK(opens("libsluicetest_base.so.1", &why)); /* and the one it was made from */

    setenv("PATH", path, 1);
    free(path);
    for (int i = 0; i < 3; i++) {
        if (before[i])
            setenv(variables[i], before[i], 1);
        else
            unsetenv(variables[i]);
        free(before[i]);
    }
}

/* The first place wins; a file that does not open is told about, unless another does. */
TEST(cuda_libraries_that_do_not_open) {
    const char *root = test_folder();
    char path[1000];
    sli_why why = {""};
    make_folders(root, "bad");
    snprintf(path, sizeof path, "%s/bad/libsluicetest_bad.so.1", root);
    FILE *file = fopen(path, "w");
    REQUIRE(file != NULL);
    fputs("no library", file);
    fclose(file);
    with("SLUICE_LIBRARY_PATH", "", root, "/bad");
    CHECK(!opens("libsluicetest_bad.so.1", &why) && strstr(why.text, "does not open") && strstr(why.text, path));
    make_library(root, "good", "libsluicetest_bad.so.1");
    snprintf(path, sizeof path, "%s/bad:%s/good", root, root);
    setenv("SLUICE_LIBRARY_PATH", path, 1);
    CHECK(opens("libsluicetest_bad.so.1", &why));
    unsetenv("SLUICE_LIBRARY_PATH");
    CHECK(opens("libm.so.6", &why)); /* the loader's own search */
}
