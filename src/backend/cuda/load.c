/* The GPU plug-ins: the driver is asked first, in plain C, then libsluice_cuda.so and libsluice_cudnn.so are found, opened
 * once for the process and compared with this library. What is missing is kept as one sentence. */
#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "backend/cuda/load.h"

#ifndef SLI_LIBDIR /* the folder of libraries, as seen from that of programs */
#define SLI_LIBDIR "../lib"
#endif

/* ISO C has no conversion from an object to a function pointer; POSIX gives dlsym's result this meaning. */
static bool symbol(void *library, const char *name, void *function_pointer) {
    void *address = dlsym(library, name);
    memcpy(function_pointer, &address, sizeof address);
    return address != NULL;
}

/* ------------------------------------------------------------------------------------------------------ driver -- */
/* What cuInit's errors mean to the one who has to mend it. */
static bool refuse_init(int error, sli_why *why) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    switch (error) {
    case 100:
        if (visible)
            return sli_refuse(why, "CUDA_VISIBLE_DEVICES=\"%.60s\" leaves no NVIDIA GPU visible: unset or change it",
                              visible);
        return sli_refuse(why, "the NVIDIA driver finds no GPU: see whether nvidia-smi lists one");
    case 34:
        return sli_refuse(why, "libcuda.so.1 is CUDA's stub for linking: take its folder out of LD_LIBRARY_PATH");
    case 46:
        return sli_refuse(why, "the NVIDIA GPU is busy or in exclusive use by another process (cuInit: error 46)");
    case 802:
        return sli_refuse(why,
                          "the NVIDIA system is not ready (cuInit: error 802): start nvidia-fabricmanager, or wait");
    case 803:
        return sli_refuse(
            why, "the NVIDIA kernel module and libcuda.so.1 are of different versions (cuInit: error 803): reboot "
                 "after a driver update");
    case 804:
        return sli_refuse(
            why, "this GPU does not take CUDA's compatibility libcuda.so.1 (cuInit: error 804): take its folder "
                 "out of LD_LIBRARY_PATH");
    default:
        return sli_refuse(why, "the NVIDIA driver does not start (cuInit: error %d): see whether nvidia-smi works",
                          error);
    }
}

bool sli_driver_ask(const char *library, sli_driver *driver, sli_why *why) {
    int (*init)(unsigned), (*version)(int *), (*count)(int *);
    memset(driver, 0, sizeof *driver);
    void *libcuda = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (libcuda == NULL) return sli_refuse(why, "no NVIDIA driver: %s was not found", library);
    if (!symbol(libcuda, "cuInit", &init) || !symbol(libcuda, "cuDriverGetVersion", &version) ||
        !symbol(libcuda, "cuDeviceGetCount", &count))
        return sli_refuse(why, "%s is not an NVIDIA driver: it has no cuInit", library);
    int error = version(&driver->version);
    NEED(error == 0, "the NVIDIA driver does not tell its version (cuDriverGetVersion: error %d)", error);
    NEED(driver->version >= SLI_DRIVER_NEEDED,
         "the NVIDIA driver supports CUDA %d.%d, %d.%d is needed: update the driver", driver->version / 1000,
         driver->version % 1000 / 10, SLI_DRIVER_NEEDED / 1000, SLI_DRIVER_NEEDED % 1000 / 10);
    error = init(0);
    if (error != 0) return refuse_init(error, why);
    error = count(&driver->devices);
    NEED(error == 0, "the NVIDIA driver does not count its GPUs (cuDeviceGetCount: error %d)", error);
    return driver->devices > 0 || refuse_init(100, why);
}

/* ----------------------------------------------------------------------------------------------- finding a file -- */
/* FOLDER/BETWEEN/FILE, if it is there; `between` may be empty. */
static bool file_in(const char *folder, const char *between, const char *file, char *path, size_t capacity) {
    int length = between[0] == 0 ? snprintf(path, capacity, "%s/%s", folder, file)
                                 : snprintf(path, capacity, "%s/%s/%s", folder, between, file);
    return length > 0 && (size_t)length < capacity && access(path, R_OK) == 0;
}

bool sli_plugin_find(const char *file, char *path, size_t capacity, sli_why *why) {
    /* "..": a program of the build's own subfolders. */
    static const char *const between[] = {"", "sluice", "..", "../lib", "../lib/sluice", SLI_LIBDIR "/sluice"};
    char beside[2][PATH_MAX] = {"", ""};
    for (const char *list = secure_getenv("SLUICE_PLUGIN_PATH"); list && *list;) {
        const char *end = strchrnul(list, ':');
        char folder[PATH_MAX];
        int length = snprintf(folder, sizeof folder, "%.*s", (int)(end - list), list);
        if (length > 0 && (size_t)length < sizeof folder && file_in(folder, "", file, path, capacity)) return true;
        list = *end ? end + 1 : end;
    }
    sli_library_path(between, beside[0], sizeof beside[0]); /* libsluice.so, or the program it is linked into */
    ssize_t length = readlink("/proc/self/exe", beside[1], sizeof beside[1] - 1);
    beside[1][length > 0 ? length : 0] = 0;
    for (int i = 0; i < 2; i++) {
        if (beside[i][0] == 0) continue;
        const char *folder = dirname(beside[i]);
        for (size_t k = 0; k < sizeof between / sizeof *between; k++)
            if (file_in(folder, between[k], file, path, capacity)) return true;
    }
    return sli_refuse(why,
                      "%s was not found (a build with nvcc makes it): put it beside libsluice, or name its folder in "
                      "SLUICE_PLUGIN_PATH",
                      file);
}

/* ---------------------------------------------------------------------------------------------------- versions -- */
void sli_plugin_version_fill(sli_plugin_version *version, size_t table_bytes) {
    const sli_plugin_version own = SLI_PLUGIN_VERSION(char);
    *version = own;
    version->table_bytes = (uint32_t)table_bytes;
}

bool sli_plugin_fits(const sli_plugin_version *found, size_t table_bytes, const char *path, sli_why *why) {
    sli_plugin_version own;
    sli_plugin_version_fill(&own, table_bytes);
    NEED(memcmp(found->text, own.text, sizeof own.text) == 0,
         "%.100s is a plug-in built for another version: it is of \"%.31s\", this library of \"%.31s\"", path,
         found->text, own.text);
    NEED(memcmp(found, &own, sizeof own) == 0,
         "%.100s is a plug-in built for another version: both call themselves \"%.31s\", but were not built from the "
         "same "
         "source",
         path, own.text);
    return true;
}

typedef struct plugin_file {
    const char *name, *function, *version; /* the last two are symbols */
    size_t table_bytes;
} plugin_file;

/* The function of a plug-in of this version; the library stays open. Nothing of another version is called. */
static bool open_plugin(const plugin_file *file, void *function_pointer, sli_why *why) {
    char path[PATH_MAX];
    const sli_plugin_version *version;
    if (!sli_plugin_find(file->name, path, sizeof path, why)) return false;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *error = dlerror();
        return sli_refuse(why, "%s does not open: %.180s", file->name, error ? error : path);
    }
    NEED(symbol(library, file->function, function_pointer), "%.150s is no plug-in of Sluice: it has no %s", path,
         file->function);
    NEED(symbol(library, file->version, &version),
         "%.150s is a plug-in built for another version: it does not tell which", path);
    return sli_plugin_fits(version, file->table_bytes, path, why);
}

/* ------------------------------------------------------------------------------------------------- opened once -- */
static const sli_plugin_host host = {sli_fail, sli_library_open};

static pthread_once_t cuda_once = PTHREAD_ONCE_INIT, cudnn_once = PTHREAD_ONCE_INIT;
static const sli_cuda_plugin *cuda;
static const sli_cudnn_plugin *cudnn;
static sli_driver driver;
static sli_why cuda_missing, cudnn_missing;

static void open_cuda(void) {
    static const plugin_file file = {"libsluice_cuda.so", SLI_CUDA_PLUGIN_SYMBOL, SLI_CUDA_VERSION_SYMBOL,
                                     sizeof(sli_cuda_plugin)};
    sli_cuda_plugin_fn open;
    if (!sli_driver_ask("libcuda.so.1", &driver, &cuda_missing)) return;
    if (open_plugin(&file, &open, &cuda_missing)) cuda = open(&host, &cuda_missing);
}

static void open_cudnn(void) {
    static const plugin_file file = {"libsluice_cudnn.so", SLI_CUDNN_PLUGIN_SYMBOL, SLI_CUDNN_VERSION_SYMBOL,
                                     sizeof(sli_cudnn_plugin)};
    sli_cudnn_plugin_fn open;
    if (!sli_cuda_get(&cudnn_missing)) return;
    if (open_plugin(&file, &open, &cudnn_missing)) cudnn = open(&host, cuda, &cudnn_missing);
}

const sli_cuda_plugin *sli_cuda_get(sli_why *why) {
    pthread_once(&cuda_once, open_cuda);
    if (why && cuda == NULL) *why = cuda_missing;
    return cuda;
}

const sli_cudnn_plugin *sli_cudnn_get(sli_why *why) {
    pthread_once(&cudnn_once, open_cudnn);
    if (why && cudnn == NULL) *why = cudnn_missing;
    return cudnn;
}

sli_driver sli_cuda_driver(void) {
    pthread_once(&cuda_once, open_cuda);
    return driver;
}
