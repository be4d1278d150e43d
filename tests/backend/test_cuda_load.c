/* The plug-ins' versions, and the driver. What is said of every error of a driver: tests/cli/gpu_driver.sh. */
#include "backend/cuda/load.h"
#include "test.h"

TEST(cuda_load_version_is_the_library_s) {
    char expected[64];
    snprintf(expected, sizeof expected, "sluice %s plug-in ", sl_version());
    CHECK(strncmp(SLI_PLUGIN_VERSION_TEXT, expected, strlen(expected)) == 0);
}

TEST(cuda_load_takes_only_its_own_version) {
    sli_plugin_version version;
    sli_why why = {""};
    sli_plugin_version_fill(&version, 100);
    CHECK(version.table_bytes == 100 && version.call_bytes == sizeof(sli_call));
    CHECK(sli_plugin_fits(&version, 100, "x.so", &why));
    CHECK(!sli_plugin_fits(&version, 101, "x.so", &why) && strstr(why.text, "x.so") && strstr(why.text, "same source"));
    sli_plugin_version other = version;
    other.caps_bytes++;
    CHECK(!sli_plugin_fits(&other, 100, "x.so", &why) && strstr(why.text, "another version"));
    other = version;
    memset(other.text, 'z', sizeof other.text); /* no 0 at the end */
    CHECK(!sli_plugin_fits(&other, 100, "x.so", &why));
    CHECK(strstr(why.text, "another version") && strstr(why.text, "zzz") && strstr(why.text, SLI_PLUGIN_VERSION_TEXT));
}

TEST(cuda_load_without_a_driver) {
    sli_driver driver = {1, 1};
    sli_why why = {""};
    CHECK(!sli_driver_ask("libno_such_driver.so.1", &driver, &why) && driver.version == 0 && driver.devices == 0);
    CHECK(strstr(why.text, "no NVIDIA driver") && strstr(why.text, "libno_such_driver.so.1"));
    CHECK(!sli_driver_ask("libm.so.6", &driver, &why) && strstr(why.text, "cuInit"));
}

TEST(cuda_load_finds_plugins_where_it_says) {
    char path[512], folder[400], list[1000];
    sli_why why = {""};
    CHECK(!sli_plugin_find("libsluice_no_such.so", path, sizeof path, &why));
    CHECK(strstr(why.text, "libsluice_no_such.so") && strstr(why.text, "SLUICE_PLUGIN_PATH"));
    snprintf(folder, sizeof folder, "%s", test_folder());
    snprintf(path, sizeof path, "%s/libsluice_no_such.so", folder);
    FILE *file = fopen(path, "w");
    REQUIRE(file != NULL);
    fclose(file);
    snprintf(list, sizeof list, "/no/such/folder::%s", folder);
    setenv("SLUICE_PLUGIN_PATH", list, 1);
    CHECK(sli_plugin_find("libsluice_no_such.so", path, sizeof path, &why) &&
          strncmp(path, folder, strlen(folder)) == 0);
    unsetenv("SLUICE_PLUGIN_PATH");
    CHECK(!sli_plugin_find("libsluice_no_such.so", path, sizeof path, &why));
}
