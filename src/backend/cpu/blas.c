/* OpenBLAS by dlopen: one process-wide handle, single-threaded. SLI_BLAS: 0 = use it if it is there, 1 = the same, and the
 * build refuses to configure without it, 2 = never.
 *
 * Used where our own products (products.c) were not measured: on arm64. On AVX2 and AVX-512 they are faster than slices on OpenBLAS
 * on every shape of bench/cpu/gemm.sh but one or two that are equal (bench/results/gemm_cpu_*.txt): they pack once for all
 * threads, a library once for each slice; and Debian's OpenBLAS takes a virtual Xeon for a Haswell, whatever it is told.
 * Why OpenBLAS, of Debian's OpenBLAS and BLIS and of oneDNN: no library is ahead of the others on all shapes. A slice must be one
 * product on the calling thread, with nothing compiled or allocated for it (threads, bits: gemm.c): OpenBLAS is a function for
 * that; oneDNN runs on OpenMP's threads and makes a primitive a shape. Products in bf16 run on our own tiles: OpenBLAS 0.3.21 has
 * none. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "backend/cpu/cpu.h"

#ifndef SLI_BLAS
#define SLI_BLAS 0
#endif

#if SLI_BLAS == 2

const sli_blas *sli_blas_get(const char **why) {
    if (why) *why = "this build was configured with BLAS=OFF";
    return NULL;
}

#else

static pthread_once_t once = PTHREAD_ONCE_INIT;
static sli_blas loaded;
static const char *missing = "libopenblas.so.0 was not found (install libopenblas0); own GEMM kernels are used";

/* Sets an environment variable and keeps what it replaces in `old`. */
static void env_push(const char *name, const char *value, char *old, size_t capacity, bool *had) {
    const char *before = getenv(name);
    *had = before != NULL && strlen(before) < capacity;
    if (*had) strcpy(old, before);
    if (before == NULL || *had) setenv(name, value, 1);
}

static void env_pop(const char *name, const char *old, bool had) {
    if (had)
        setenv(name, old, 1);
    else
        unsetenv(name);
}

/* OpenBLAS reads its environment once, in its constructor. OPENBLAS_NUM_THREADS=1: it would start a pool of its own, which must
 * never be used: a product is called from our threads on slices cut by shape, so that the thread count changes no bit. The
 * environment belongs to the process: it is changed inside the once and put back at once. */
static void *open_library(void) {
    static const char *const names[] = {"libopenblas.so.0", "libopenblas.so", "libblas.so.3"};
    char threads[32];
    bool had_threads;
    env_push("OPENBLAS_NUM_THREADS", "1", threads, sizeof threads, &had_threads);
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && library == NULL; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        /* A plain libblas may be the reference one, which is slower than our own loops: only OpenBLAS is taken. */
        if (library != NULL && dlsym(library, "openblas_get_config") == NULL) {
            missing = "the BLAS library found is not OpenBLAS; own GEMM kernels are used";
            dlclose(library);
            library = NULL;
        }
    }
    env_pop("OPENBLAS_NUM_THREADS", threads, had_threads);
    return library;
}

/* ISO C has no conversion from an object to a function pointer; POSIX gives dlsym's result this meaning. */
static void symbol(void *library, const char *name, void *function_pointer) {
    void *address = dlsym(library, name);
    memcpy(function_pointer, &address, sizeof address);
}

static void load(void) {
    void *library = open_library();
    if (library == NULL) return;
    char *(*config)(void), *(*corename)(void);
    void (*set_threads)(int);
    symbol(library, "openblas_get_config", &config);
    symbol(library, "openblas_get_corename", &corename);
    symbol(library, "openblas_set_num_threads", &set_threads);
    symbol(library, "cblas_sgemm", &loaded.sgemm);
    if (loaded.sgemm == NULL || set_threads == NULL) {
        missing = "the OpenBLAS found lacks cblas_sgemm; own GEMM kernels are used";
        loaded.sgemm = NULL;
        dlclose(library);
        return;
    }
    set_threads(1);
    const char *text = config(); /* "OpenBLAS 0.3.21 NO_LAPACKE ..." */
    const char *version = strchr(text, ' ');
    int length = version ? (int)(strcspn(version + 1, " ") + (size_t)(version + 1 - text)) : (int)strlen(text);
    snprintf(loaded.name, sizeof loaded.name, "%.*s (%s kernels)", length > 40 ? 40 : length, text,
             corename ? corename() : "unknown");
}

const sli_blas *sli_blas_get(const char **why) {
    pthread_once(&once, load);
    if (why) *why = loaded.sgemm ? NULL : missing;
    return loaded.sgemm ? &loaded : NULL;
}

#endif

const sli_blas *sli_blas_for(sli_isa isa, const char **why) {
    if (isa == SLI_ISA_NEON) return sli_blas_get(why);
    if (why) *why = "own matrix products";
    return NULL;
}

/* OpenBLAS maps this much address space for each thread that calls it, at the first call, and tries for ever if the system
 * refuses: so the system is asked before. */
enum { BLAS_BUFFER_MAP = 128 << 20 };

sl_status sli_blas_reserve(int threads) {
    size_t bytes = (size_t)threads * BLAS_BUFFER_MAP;
    void *space = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED)
        return sli_fail(
            SL_ERR_OUT_OF_MEMORY,
            "out of memory: OpenBLAS needs %zu MB of address space for %d thread%s; raise the limit (ulimit -v), "
            "use fewer threads, or build with SLUICE_BLAS=OFF",
            bytes >> 20, threads, threads == 1 ? "" : "s");
    munmap(space, bytes);
    return SL_OK;
}
