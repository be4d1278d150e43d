/* Kernels compiled at run time: NVRTC, found like cuBLASLt, turns embedded sources into machine code of this GPU. */
#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/compile.h"
#include "backend/cuda/runtime/code_cache.h"
#include "backend/cuda/runtime/embedded.h"
#include "backend/cuda/runtime/internal.h"

static bool refuse(sli_why *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(sli_why *why, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why->text, sizeof why->text, format, arguments);
    va_end(arguments);
    return false;
}

/* ------------------------------------------------------------------------------------------------------- NVRTC --
 * nvrtc.h comes in a package of its own, so that what is needed of it is declared here. */
typedef struct _nvrtcProgram *program_t;
static struct {
    int (*version)(int *major, int *minor);
    const char *(*error_text)(int result);
    int (*create)(program_t *program, const char *text, const char *name, int headers, const char *const *header_texts,
                  const char *const *header_names);
    int (*destroy)(program_t *program);
    int (*compile)(program_t program, int options, const char *const *option);
    int (*log_size)(program_t program, size_t *bytes);
    int (*log)(program_t program, char *text);
    int (*cubin_size)(program_t program, size_t *bytes);
    int (*cubin)(program_t program, char *code);
} nvrtc;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int nvrtc_version; /* 13000; 0: there is none */
static sli_why missing;

/* NVRTC opens its second half by name, where Python's packages have it nobody finds it: opened here, it is there already. */
static bool open_builtins(int major, int minor) {
    char name[64], path[PATH_MAX];
    const char *const names[] = {name, NULL};
    Dl_info info;
    snprintf(name, sizeof name, "libnvrtc-builtins.so.%d.%d", major, minor);
    const char *file = dladdr((const void *)nvrtc.version, &info) && info.dli_fname ? info.dli_fname : "";
    const char *slash = strrchr(file, '/');
    const int length = snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash + 1 - file) : 0, file, name);
    if (slash && length > 0 && (size_t)length < sizeof path && dlopen(path, RTLD_NOW | RTLD_LOCAL)) return true;
    return sli_cuda_host.open_library(names, &missing) != NULL;
}

static void find_nvrtc(void) {
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.13.0", NULL};
    static const struct {
        const char *name;
        void *function;
    } wanted[] = {
        {"nvrtcVersion", &nvrtc.version},        {"nvrtcGetErrorString", &nvrtc.error_text},
        {"nvrtcCreateProgram", &nvrtc.create},   {"nvrtcDestroyProgram", &nvrtc.destroy},
        {"nvrtcCompileProgram", &nvrtc.compile}, {"nvrtcGetProgramLogSize", &nvrtc.log_size},
        {"nvrtcGetProgramLog", &nvrtc.log},      {"nvrtcGetCUBINSize", &nvrtc.cubin_size},
        {"nvrtcGetCUBIN", &nvrtc.cubin},
    };
    const char *wish = secure_getenv("SLUICE_NVRTC");
    if (wish && strcmp(wish, "0") == 0) {
        refuse(&missing, "SLUICE_NVRTC=0 leaves it out");
        return;
    }
    void *library = sli_cuda_host.open_library(names, &missing);
    if (!library) return;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *address = dlsym(library, wanted[i].name);
        if (!address) {
            refuse(&missing, "libnvrtc.so.13 has no %s; install NVRTC 13", wanted[i].name);
            return;
        }
        memcpy(wanted[i].function, &address, sizeof address);
    }
    int major = 0, minor = 0;
    if (nvrtc.version(&major, &minor) != 0 || major <= 0)
        refuse(&missing, "libnvrtc.so.13 does not tell its version; install NVRTC 13");
    else if (open_builtins(major, minor))
        nvrtc_version = 1000 * major + 10 * minor;
}

extern "C" bool sli_cuda_compiler(int *version, sli_why *why) {
    pthread_once(&once, find_nvrtc);
    *version = nvrtc_version;
    if (nvrtc_version == 0 && why) *why = missing;
    return nvrtc_version != 0;
}

/* ----------------------------------------------------------------------------------------------------- sources -- */
/* What the sources need of the C library; NVRTC has none of it, but memcpy and size_t without a header. */
static const sli_embedded stand_ins[] = {
    {"stdint.h", "#pragma once\n"
                 "typedef signed char int8_t;\ntypedef short int16_t;\ntypedef int int32_t;\ntypedef long int64_t;\n"
                 "typedef unsigned char uint8_t;\ntypedef unsigned short uint16_t;\ntypedef unsigned int uint32_t;\n"
                 "typedef unsigned long uint64_t;\ntypedef long intptr_t;\ntypedef unsigned long uintptr_t;\n"
                 "#define INT32_MAX 2147483647\n#define UINT32_MAX 4294967295u\n"},
    {"stddef.h", "#pragma once\n#ifndef NULL\n#define NULL 0\n#endif\n"},
    {"stdbool.h", "#pragma once\n"},
    {"string.h", "#pragma once\n"},
};
enum { STAND_INS = sizeof stand_ins / sizeof *stand_ins, MOST_HEADERS = 128 };

static const char *last_part(const char *name) {
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

static const sli_embedded *find_source(const char *name) {
    for (const sli_embedded *file = sli_embedded_sources; file->name; file++)
        if (strcmp(file->name, name) == 0 || strcmp(last_part(file->name), name) == 0) return file;
    return NULL;
}

/* NVRTC looks for an included file by the name as it is written: a neighbour's is its last part. */
static int list_headers(const char *names[MOST_HEADERS], const char *texts[MOST_HEADERS]) {
    int count = 0;
    for (int i = 0; i < STAND_INS; i++) {
        names[count] = stand_ins[i].name;
        texts[count++] = stand_ins[i].text;
    }
    for (const sli_embedded *file = sli_embedded_sources; file->name && count + 2 <= MOST_HEADERS; file++) {
        names[count] = file->name;
        texts[count++] = file->text;
        names[count] = last_part(file->name);
        texts[count++] = file->text;
    }
    return count;
}

/* ----------------------------------------------------------------------------------------------------- compiling -- */
typedef struct request {
    const char *source, *entry, *defines;
    char architecture[16]; /* "sm_90a" */
} request;

enum { ARCHITECTURE_OPTION, OPTIONS = 6 };
/* --no-cache: NVRTC would keep files of its own in the user's home. -v: registers and spills, into the log. */
static const char *const options[OPTIONS] = {
    "", "--std=c++17", "--no-cache", "--no-source-include", "--ptxas-options=-v", "--disable-warnings"};

/* sm_90a has what sm_90 lacks: wgmma, setmaxnreg. */
static request request_of(const char *source, const char *entry, const char *defines, int compute_capability) {
    request r = {source, entry, defines ? defines : "", ""};
    snprintf(r.architecture, sizeof r.architecture, "sm_%d%s", compute_capability, compute_capability == 90 ? "a" : "");
    return r;
}

static void add_text(sli_sha256 *hash, const char *text) {
    sli_sha256_add(hash, text, strlen(text) + 1);
}

/* Everything that machine code depends on. */
static sli_digest key_of(const request *r) {
    sli_sha256 hash;
    sli_sha256_begin(&hash);
    sli_sha256_add(&hash, &nvrtc_version, sizeof nvrtc_version);
    add_text(&hash, sli_embedded_sum);
    for (int i = 0; i < STAND_INS; i++) add_text(&hash, stand_ins[i].text);
    for (int i = 0; i < OPTIONS; i++) add_text(&hash, options[i]);
    add_text(&hash, r->architecture);
    add_text(&hash, r->source);
    add_text(&hash, r->entry);
    add_text(&hash, r->defines);
    return sli_sha256_end(&hash);
}

/* "persist_instance-sm_90a-0123456789abcdef0123456789abcdef.cubin" */
static void file_name(const request *r, const sli_digest *key, char *name, size_t capacity) {
    const char *base = last_part(r->source);
    int length = snprintf(name, capacity, "%.*s-%s-", (int)strcspn(base, "."), base, r->architecture);
    for (int i = 0; i < 16; i++) length += snprintf(name + length, capacity - (size_t)length, "%02x", key->byte[i]);
    snprintf(name + length, capacity - (size_t)length, ".cubin");
}

/* "persist.cuh(12): error: ...", the first such line of the log, or else its first line. */
static void first_error(const char *log, char *line, size_t capacity) {
    const char *error = strstr(log, "error"), *begin = log;
    for (const char *at = log; error && at < error; at++)
        if (*at == '\n') begin = at + 1;
    snprintf(line, capacity, "%.*s", (int)strcspn(begin, "\n"), begin);
}

/* The log and, if it was compiled, the machine code. */
static bool take_results(program_t program, int result, const request *r, sli_code *code, sli_why *why) {
    const bool compiled = result == 0;
    if (nvrtc.log_size(program, &code->log_bytes) != 0 || code->log_bytes == 0) code->log_bytes = 1;
    code->cubin_bytes = 0;
    if (compiled && (nvrtc.cubin_size(program, &code->cubin_bytes) != 0 || code->cubin_bytes == 0))
        return refuse(why, "NVRTC compiled %s for %s to nothing", r->source, r->architecture);
    if (!sli_code_alloc(code))
        return refuse(why, "out of memory: compiled code needs %zu bytes", code->log_bytes + code->cubin_bytes);
    memset(code->log, 0, code->log_bytes);
    if (code->log_bytes > 1 && nvrtc.log(program, code->log) != 0) code->log[0] = 0;
    if (!compiled) {
        char line[200];
        first_error(code->log, line, sizeof line);
        return refuse(why, "NVRTC does not compile %s for %s: %s", r->source, r->architecture,
                      line[0] ? line : nvrtc.error_text(result));
    }
    if (nvrtc.cubin(program, (char *)code->cubin) != 0)
        return refuse(why, "NVRTC does not give the code of %s for %s", r->source, r->architecture);
    /* ELF: a kernel's section is named after it. */
    char section[160];
    const int length = snprintf(section, sizeof section, ".text.%s", r->entry);
    if (length < 0 || (size_t)length >= sizeof section ||
        !memmem(code->cubin, code->cubin_bytes, section, (size_t)length + 1))
        return refuse(why, "%s has no kernel %s", r->source, r->entry);
    return true;
}

/* false: code->log may have been set all the same. */
static bool compile(const request *r, sli_code *code, sli_why *why) {
    const sli_embedded *file = find_source(r->source);
    if (!file) return refuse(why, "%s is not among the sources inside libsluice_cuda.so", r->source);
    const char *names[MOST_HEADERS], *texts[MOST_HEADERS], *option[OPTIONS];
    const int headers = list_headers(names, texts);
    const size_t before = strlen(r->defines), bytes = before + strlen(file->text) + strlen(file->name) + 32;
    char *text = (char *)malloc(bytes);
    if (!text) return refuse(why, "out of memory: a source needs %zu bytes", bytes);
    snprintf(text, bytes, "%s\n#line 1 \"%s\"\n%s", r->defines, file->name, file->text);
    char architecture[48];
    snprintf(architecture, sizeof architecture, "--gpu-architecture=%s", r->architecture);
    memcpy(option, options, sizeof option);
    option[ARCHITECTURE_OPTION] = architecture;
    program_t program = NULL;
    int result = nvrtc.create(&program, text, "defines", headers, texts, names);
    bool done = false;
    if (result != 0)
        refuse(why, "NVRTC does not take %s: %s", r->source, nvrtc.error_text(result));
    else
        done = take_results(program, nvrtc.compile(program, OPTIONS, option), r, code, why);
    if (program) nvrtc.destroy(&program);
    free(text);
    return done;
}

/* From the cache, or compiled and put there. */
static bool get_code(const request *r, sli_code *code, bool *cached, sli_why *why) {
    int version;
    char name[160];
    memset(code, 0, sizeof *code);
    *cached = false;
    if (!sli_cuda_compiler(&version, why)) return false;
    if (strlen(last_part(r->source)) > 64) return refuse(why, "%.100s is not among the sources", r->source);
    const sli_digest key = key_of(r);
    file_name(r, &key, name, sizeof name);
    *cached = sli_code_cache_read(name, &key, code);
    if (*cached) return true;
    if (!compile(r, code, why)) return false;
    sli_code_cache_write(name, &key, code);
    return true;
}

extern "C" bool sli_cuda_compile_check(const char *source, const char *entry, const char *defines,
                                       int compute_capability, size_t *cubin_bytes, char *log, size_t log_capacity,
                                       bool *cached) {
    const request r = request_of(source, entry, defines, compute_capability);
    sli_code code;
    sli_why why = {""};
    const bool done = get_code(&r, &code, cached, &why);
    *cubin_bytes = done ? code.cubin_bytes : 0;
    if (done)
        snprintf(log, log_capacity, "%s", code.log);
    else
        snprintf(log, log_capacity, "%s%s%s", why.text, code.log ? "\n" : "", code.log ? code.log : "");
    sli_code_free(&code);
    return done;
}

/* ------------------------------------------------------------------------------------------------ loaded kernels --
 * A library of CUDA's belongs to no GPU: the same kernel runs on all that have its architecture. */
typedef struct loaded {
    char *texts; /* source, entry, defines, each with its 0 */
    size_t text_bytes;
    int compute_capability;
    bool busy;           /* a thread makes it; others that want it wait, and those alone */
    cudaKernel_t kernel; /* NULL: it was not made yet, or */
    bool refused;        /* does not compile, `why` */
    uint64_t ready;      /* bit: GPU on which it is in memory */
    sli_why why;
    struct loaded *next;
} loaded;
enum { BUCKETS = 256 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below, but of what a busy one's thread makes of it */
static pthread_cond_t made_one = PTHREAD_COND_INITIALIZER;
static loaded *buckets[BUCKETS];
static long late_kernels; /* made at a launch */

static uint64_t hash_text(uint64_t hash, const char *text) { /* FNV-1a */
    do hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    while (*text++);
    return hash;
}

static bool is_text(const char **at, const char *text) {
    const bool same = strcmp(*at, text) == 0;
    *at += strlen(*at) + 1;
    return same;
}

static bool is_of(const loaded *l, const request *r, int compute_capability) {
    const char *at = l->texts;
    return l->compute_capability == compute_capability && is_text(&at, r->source) && is_text(&at, r->entry) &&
           is_text(&at, r->defines);
}

static loaded *new_loaded(const request *r, int compute_capability, sli_why *why) {
    const char *const texts[] = {r->source, r->entry, r->defines};
    loaded *made = (loaded *)calloc(1, sizeof *made);
    size_t bytes = 0;
    for (int i = 0; i < 3; i++) bytes += strlen(texts[i]) + 1;
    if (made) made->texts = (char *)malloc(bytes);
    if (!made || !made->texts) {
        free(made);
        refuse(why, "out of memory: the name of a kernel needs %zu bytes", bytes);
        return NULL;
    }
    char *at = made->texts;
    for (int i = 0; i < 3; i++) at = stpcpy(at, texts[i]) + 1;
    made->compute_capability = compute_capability;
    return made;
}

/* Of an attempt. */
typedef struct attempt {
    const request *r;
    int gpu;
    cudaError_t error;
    sli_why *why;
} attempt;

static bool well(cudaError_t error, attempt *a) {
    error = sli_cuda_injected(error);
    if (error == cudaSuccess) return true;
    (void)cudaGetLastError();
    a->error = error;
    return refuse(a->why, "the compiled kernel %s cannot be loaded on GPU %d: %s (%s)", a->r->entry, a->gpu,
                  cudaGetErrorString(error), cudaGetErrorName(error));
}

/* Compiles and loads; a kernel that cannot be compiled is remembered with the reason. */
static void make_kernel(loaded *l, attempt *a) {
    sli_code code;
    bool cached;
    cudaLibrary_t library = NULL;
    cudaKernel_t kernel = NULL;
    const bool compiled = get_code(a->r, &code, &cached, a->why);
    if (compiled) {
        if (well(cudaLibraryLoadData(&library, code.cubin, NULL, NULL, 0, NULL, NULL, 0), a) &&
            well(cudaLibraryGetKernel(&kernel, library, a->r->entry), a))
            l->kernel = kernel;
        else if (library)
            (void)cudaLibraryUnload(library);
    } else if (code.log) {
        l->refused = true;
        l->why = *a->why;
    }
    sli_code_free(&code);
}

/* CUDA loads code when it is first launched; here it happens before, where a failure can be said. */
static void make_ready(loaded *l, attempt *a) {
    struct cudaFuncAttributes attributes;
    if (well(cudaFuncGetAttributes(&attributes, (const void *)l->kernel), a)) l->ready |= (uint64_t)1 << a->gpu;
}

static loaded **bucket_of(const request *r, int compute_capability) {
    const uint64_t start = 14695981039346656037u + (uint64_t)compute_capability;
    return &buckets[(hash_text(hash_text(hash_text(start, r->source), r->entry), r->defines) >> 20) % BUCKETS];
}

/* Under the lock; it is busy for nobody else then. NULL: out of memory. */
static loaded *take(const request *r, int compute_capability, sli_why *why) {
    loaded **bucket = bucket_of(r, compute_capability), *at = *bucket;
    while (at && !is_of(at, r, compute_capability)) at = at->next;
    if (!at) {
        if ((at = new_loaded(r, compute_capability, why)) == NULL) return NULL;
        at->next = *bucket;
        *bucket = at;
    }
    while (at->busy) pthread_cond_wait(&made_one, &lock);
    return at;
}

static cudaKernel_t find_or_make(attempt *a, int compute_capability, bool late) {
    pthread_mutex_lock(&lock);
    loaded *at = take(a->r, compute_capability, a->why);
    const bool there = at && at->kernel && (at->ready >> a->gpu & 1);
    if (at && at->refused) *a->why = at->why;
    if (at && !there && !at->refused) {
        at->busy = true;
        late_kernels += late;
        pthread_mutex_unlock(&lock);
        /* Loading is no part of a capture, and is not to disturb one. */
        enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
        const bool exchanged = cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess;
        if (!at->kernel) make_kernel(at, a);
        if (at->kernel) make_ready(at, a);
        if (exchanged) (void)cudaThreadExchangeStreamCaptureMode(&mode);
        pthread_mutex_lock(&lock);
        at->busy = false;
        pthread_cond_broadcast(&made_one);
    }
    const cudaKernel_t kernel = at && (at->ready >> a->gpu & 1) ? at->kernel : NULL;
    pthread_mutex_unlock(&lock);
    return kernel;
}

extern "C" cudaKernel_t sli_cuda_compile_planned(int gpu, int compute_capability, const char *source, const char *entry,
                                                 const char *defines, cudaError_t *error, sli_why *why) {
    const request r = request_of(source, entry, defines, compute_capability);
    attempt a = {&r, gpu, cudaSuccess, why};
    const cudaKernel_t kernel = find_or_make(&a, compute_capability, false);
    *error = a.error;
    return kernel;
}

extern "C" cudaKernel_t sli_cuda_compile(sli_queue *queue, const char *source, const char *entry, const char *defines,
                                         sli_why *why) {
    const int capability = queue->device->caps.compute_capability;
    const request r = request_of(source, entry, defines, capability);
    attempt a = {&r, queue->device->index, cudaSuccess, why};
    const cudaKernel_t kernel = find_or_make(&a, capability, true);
    return sli_cuda_try(queue, a.error, "loading a compiled kernel") ? kernel : NULL;
}

extern "C" long sli_cuda_late_kernels(void) {
    pthread_mutex_lock(&lock);
    const long count = late_kernels;
    pthread_mutex_unlock(&lock);
    return count;
}
