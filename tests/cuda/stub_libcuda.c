/* A libcuda.so.1 for tests without a GPU: put its folder first in LD_LIBRARY_PATH. It answers what libsluice asks before it
 * opens the plug-in, as SLUICE_STUB_DRIVER says: "version=12020", "init=999", "devices=0", with commas between them; left out:
 * CUDA 13.0, no error, one GPU. It has nothing else, so that CUDA's runtime finds that its GPU is gone. */
#include <stdlib.h>
#include <string.h>

static int setting(const char *name, int otherwise) {
    const char *text = getenv("SLUICE_STUB_DRIVER"), *found = text ? strstr(text, name) : NULL;
    return found ? atoi(found + strlen(name)) : otherwise;
}

int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);
int cuDeviceGetCount(int *count);

int cuInit(unsigned flags) {
    (void)flags;
    return setting("init=", 0);
}

int cuDriverGetVersion(int *version) {
    *version = setting("version=", 13000);
    return 0;
}

int cuDeviceGetCount(int *count) {
    *count = setting("devices=", 1);
    return setting("count=", 0);
}
