/* What device.c and the tests know of load.c and libraries.c. */
#ifndef SLI_CUDA_LOAD_H
#define SLI_CUDA_LOAD_H

#include "backend/cuda/plugin.h"

/* The driver, asked through libcuda.so.1 without a plug-in. */
typedef struct sli_driver {
    int version; /* 13000 */
    int devices; /* visible ones: CUDA_VISIBLE_DEVICES has been applied */
} sli_driver;
enum { SLI_DRIVER_NEEDED = 13000 };
/* false: the reason why no GPU can be used. `library` is "libcuda.so.1". */
bool sli_driver_ask(const char *library, sli_driver *driver, sli_why *why);
/* What sli_cuda_get found; zeros where there is no usable driver. */
sli_driver sli_cuda_driver(void);

/* Is this the table of a plug-in that was built with this library? Else the sentence that names both. */
bool sli_plugin_fits(const sli_plugin_version *found, size_t table_bytes, const char *path, sli_why *why);
/* The plug-in's file: SLUICE_PLUGIN_PATH, then beside this library and the running program, then their ../lib. */
bool sli_plugin_find(const char *file, char *path, size_t capacity, sli_why *why);

/* sli_plugin_host.open_library. */
void *sli_library_open(const char *const *names, sli_why *why);
/* The path of a loaded library's file that holds `address`, "" if unknown. */
void sli_library_path(const void *address, char *path, size_t capacity);

#endif
