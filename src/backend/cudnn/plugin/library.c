/* cuDNN 9 and the CUDA driver, opened at run time; failures as sentences. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

sli_cudnn_library sli_cudnn;
const sli_cuda_services *sli_cudnn_services;
_Thread_local bool sli_cudnn_passing;

bool sli_cudnn_refuse(sli_why *why, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why->text, sizeof why->text, format, arguments);
    va_end(arguments);
    return false;
}

typedef struct symbol {
    const char *name;
    void *member; /* of sli_cudnn */
} symbol;

static bool find_all(void *library, const char *file, const symbol *symbols, size_t count, sli_why *why) {
    for (size_t k = 0; k < count; k++) {
        void *found = dlsym(library, symbols[k].name);
        if (!found)
            return sli_cudnn_refuse(why,
                                    "%s has no %s: another major version; install cuDNN 9 and a driver for CUDA 13",
                                    file, symbols[k].name);
        memcpy(symbols[k].member, &found, sizeof found);
    }
    return true;
}

bool sli_cudnn_open_libraries(const sli_plugin_host *host, sli_why *why) {
    static const char *const cudnn_names[] = {"libcudnn.so.9", NULL};
    static const char *const driver_names[] = {"libcuda.so.1", NULL};
#define SYMBOL(name) {#name, &sli_cudnn.name},
    static const symbol cudnn_symbols[] = {SLI_CUDNN_FUNCTIONS(SYMBOL)};
    static const symbol driver_symbols[] = {SLI_DRIVER_FUNCTIONS(SYMBOL)};
#undef SYMBOL
    void *driver = host->open_library(driver_names, why);
    if (!driver) return false;
    void *cudnn = host->open_library(cudnn_names, why);
    if (!cudnn) return false;
    return find_all(driver, driver_names[0], driver_symbols, sizeof driver_symbols / sizeof *driver_symbols, why) &&
           find_all(cudnn, cudnn_names[0], cudnn_symbols, sizeof cudnn_symbols / sizeof *cudnn_symbols, why);
}

/* `what` is the call as written; its name is enough. */
bool sli_cudnn_fine(cudnnStatus_t status, const char *what, sli_why *why) {
    if (status == CUDNN_STATUS_SUCCESS) return true;
    /* By thousands: 2 and 3 are about what was asked for. Persistent kernels refuse some sizes as a failed execution, 5000. */
    int category = (int)status / 1000;
    if (category != 2 && category != 3 && status != CUDNN_STATUS_EXECUTION_FAILED) sli_cudnn_passing = true;
    size_t version = sli_cudnn.cudnnGetVersion();
    char detail[160] = "";
    sli_cudnn.cudnnGetLastErrorString(detail, sizeof detail);
    detail[sizeof detail - 1] = 0;
    detail[strcspn(detail, "\n")] = 0;
    return sli_cudnn_refuse(why, "cuDNN %zu.%zu says %s in %.*s%s%s", version / 10000, version / 100 % 100,
                            sli_cudnn.cudnnGetErrorString(status), (int)strcspn(what, "("), what, *detail ? ": " : "",
                            detail);
}
