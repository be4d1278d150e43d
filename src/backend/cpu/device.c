/* The CPU as a device: memory is plain memory, and a queue does its work at once on the run's thread pool. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "backend/cpu/cpu.h"
#include "backend/cpu/isa/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* ----------------------------------------------------------------------------------------------- capabilities -- */
/* Of the cores that share one; sysconf says the sum over a package's, 256 MB instead of 32 on a Zen 3. 0: not known. */
static size_t l3_bytes(void) {
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "re");
    unsigned long size = 0;
    char unit = 0;
    if (!file) return 0;
    const int read = fscanf(file, "%lu%c", &size, &unit);
    fclose(file);
    return read < 1 ? 0 : (size_t)size << (unit == 'K' ? 10 : unit == 'M' ? 20 : 0);
}

sl_status sli_cpu_caps(const char *device_name, int threads, sli_caps *caps) {
    char lacks[SLI_ISA_WHY];
    memset(caps, 0, sizeof *caps);
    SLI_FAIL_IF(
        strncmp(device_name, "cpu", 3) != 0 || (device_name[3] && device_name[3] != ':'), SL_ERR_UNKNOWN,
        "device \"%s\" is unknown: use cpu, or cpu:base, cpu:avx2, cpu:avx512, cpu:avx512bf16, cpu:amx, cpu:neon",
        device_name);
    SLI_TRY(sli_cpu_choose(device_name[3] ? device_name + 4 : NULL, &caps->isa, caps->isa_why));
    snprintf(caps->name, sizeof caps->name, "%s", device_name);
    caps->kind = SLI_DEVICE_CPU;
    caps->threads = threads > 0 ? threads : sli_threads_default();
    caps->have_blas = sli_blas_for(caps->isa, NULL) != NULL;
    caps->invented = !sli_cpu_has(caps->isa, lacks);
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
    if (pages > 0 && page > 0) caps->memory = (size_t)pages * (size_t)page;
    if (l2 > 0) caps->l2_bytes = (size_t)l2;
    caps->l3_bytes = l3_bytes();
    caps->half_width = sli_cpu_half_width(caps->isa);
    return SL_OK;
}

/* "AMD EPYC" without the padding and the marketing. */
static void brand(char *text, size_t capacity) {
    unsigned words[12] = {0};
#if defined(__x86_64__)
    for (unsigned i = 0; i < 3; i++) {
        unsigned *w = words + 4 * i;
        if (!__get_cpuid(0x80000002u + i, &w[0], &w[1], &w[2], &w[3])) words[0] = 0;
    }
#endif
    char raw[49] = "";
    memcpy(raw, words, 48);
    size_t n = 0;
    for (const char *p = raw; *p && n + 1 < capacity; p++)
        if (*p != ' ' || (n > 0 && text[n - 1] != ' ')) text[n++] = *p;
    while (n > 0 && text[n - 1] == ' ') n--;
    text[n] = 0;
    if (n == 0) snprintf(text, capacity, "unknown CPU");
}

static bool describe(int index, char *name, size_t name_capacity, char *text, size_t capacity, bool *usable) {
    static const char *const features[] = {[SLI_ISA_BASE] = "base instructions",  [SLI_ISA_NEON] = "NEON",
                                           [SLI_ISA_AVX2] = "AVX2+FMA",           [SLI_ISA_AVX512] = "AVX-512",
                                           [SLI_ISA_AVX512BF16] = "AVX-512+BF16", [SLI_ISA_AMX] = "AVX-512+AMX"};
    char cpu[64];
    const char *why;
    sli_caps caps;
    snprintf(name, name_capacity, "cpu");
    *usable = sli_cpu_caps("cpu", 0, &caps) == SL_OK;
    if (*usable) {
        brand(cpu, sizeof cpu);
        const sli_blas *blas = sli_blas_for(caps.isa, &why);
        snprintf(text, capacity, "%s, %s (%s), %d thread%s, %s", cpu, features[caps.isa], caps.isa_why, caps.threads,
                 caps.threads == 1 ? "" : "s", blas ? blas->name : why);
    } else {
        snprintf(text, capacity, "%s", sl_error_detail());
        sli_clear_error();
    }
    return index == 0;
}

static void identify(const sli_caps *caps, char *text, size_t capacity) {
    char cpu[64];
    const char *why;
    const sli_blas *blas = sli_blas_for(caps->isa, &why);
    brand(cpu, sizeof cpu);
    snprintf(text, capacity, "%s, %s", cpu, blas ? blas->name : "no BLAS");
}

/* What OpenBLAS 0.3.21 touches, measured: about 4 MB of the library itself when it is opened, then per calling thread up to
 * P*Q + Q*N floats of packed slices (P = 768, Q = 384, N columns a slice, some hundreds: gemm.c). It maps 128 MB of address
 * space for each, which costs nothing until touched. */
size_t sli_cpu_blas_buffers(const sli_caps *caps) {
    return caps->have_blas ? (size_t)4 * 1024 * 1024 + (size_t)caps->threads * 2 * 1024 * 1024 : 0;
}

/* ------------------------------------------------------------------------------------------------------ memory -- */
struct sli_device {
    sl_allocator allocator;
    sli_caps caps;
    sli_cpu engine;
};

struct sli_queue {
    sli_device *device;
    sli_threads *threads;
    bool profiling;
    int tag;
    double phases[SLI_PHASE_COUNT], tags[SLI_PROFILE_TAGS]; /* seconds */
};

static sl_status open_device(const sli_caps *caps, const sl_allocator *allocator, sli_device **device) {
    *device = NULL;
    SLI_FAIL_IF(caps->invented, SL_ERR_DEVICE,
                "device %s is invented: this machine has %s; it can be planned for, not run on: use device cpu",
                caps->name, sli_isa_name(sli_cpu_isa()));
    sl_allocator resolved = sli_allocator_or_default(allocator);
    sli_device *new = sli_alloc_zero(&resolved, sizeof *new);
    if (new == NULL) return sli_fail_memory("a cpu device", sizeof *new);
    new->allocator = resolved;
    new->caps = *caps;
    sli_cpu_engine(caps->isa, caps->have_blas, &new->engine);
    new->engine.l2_bytes = caps->l2_bytes;
    new->engine.l3_bytes = caps->l3_bytes;
    *device = new;
    return SL_OK;
}

static void close_device(sli_device *device) {
    if (device == NULL) return;
    sl_allocator allocator = device->allocator;
    sli_free(&allocator, device, sizeof *device);
}

static sl_status alloc_block(sli_device *device, size_t bytes, void **block) {
    *block = NULL;
    if (bytes == 0) return SL_OK;
    *block = sli_alloc_zero(&device->allocator, bytes);
    return *block ? SL_OK : sli_fail_memory("a block on device cpu", bytes);
}

static void free_block(sli_device *device, void *block, size_t bytes) {
    sli_free(&device->allocator, block, bytes);
}

/* ------------------------------------------------------------------------------------------------------- queue -- */
static sl_status queue_new(sli_device *device, sli_queue **queue) {
    *queue = NULL;
    if (device->engine.blas) SLI_TRY(sli_blas_reserve(device->caps.threads));
    sli_queue *new = sli_alloc_zero(&device->allocator, sizeof *new);
    if (new == NULL) return sli_fail_memory("a queue", sizeof *new);
    new->device = device;
    const sli_caps *caps = &device->caps;
    sl_status status = caps->pool.parallel_for
                           ? sli_threads_over(&device->allocator, &caps->pool, caps->threads, &new->threads)
                           : sli_threads_new(&device->allocator, caps->threads, &new->threads);
    if (status != SL_OK) {
        sli_free(&device->allocator, new, sizeof *new);
        return status;
    }
    *queue = new;
    return SL_OK;
}

static void queue_free(sli_queue *queue) {
    if (queue == NULL) return;
    sli_threads_free(queue->threads);
    sli_free(&queue->device->allocator, queue, sizeof *queue);
}

static sl_status upload(sli_queue *queue, void *to, const void *source, size_t bytes) {
    (void)queue;
    if (bytes > 0) memcpy(to, source, bytes);
    return SL_OK;
}

static sl_status copy(sli_queue *queue, void *to, const void *from, size_t bytes) {
    (void)queue;
    if (bytes > 0) memmove(to, from, bytes);
    return SL_OK;
}

static sl_status zero(sli_queue *queue, void *to, size_t bytes) {
    (void)queue;
    if (bytes > 0) memset(to, 0, bytes);
    return SL_OK;
}

static sli_phase phase_of(sli_op op) {
    if (sli_op_is_recurrent(op)) return SLI_PHASE_RECURRENCE;
    if (op == SLI_OP_DENSE) return SLI_PHASE_PRODUCT;
    if (op == SLI_OP_XENT || op == SLI_OP_BCE || op == SLI_OP_MSE) return SLI_PHASE_SOFTMAX;
    return op == SLI_OP_NORM || op == SLI_OP_OPTIM ? SLI_PHASE_OPTIMIZER : SLI_PHASE_OTHER;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static sl_status submit(sli_queue *queue, sli_kernel_fn function, const sli_call *call) {
    sli_call own = *call;
    double start = queue->profiling ? now() : 0;
    own.threads = queue->threads;
    own.cpu = &queue->device->engine;
    function(&own);
    if (!queue->profiling) return SL_OK;
    double seconds = now() - start;
    queue->phases[phase_of(call->problem.op)] += seconds;
    queue->tags[queue->tag] += seconds;
    return SL_OK;
}

/* ---------------------------------------------------------------------------------------------------- profiling -- */
static sl_status profile_begin(sli_queue *queue) {
    memset(queue->phases, 0, sizeof queue->phases);
    memset(queue->tags, 0, sizeof queue->tags);
    queue->profiling = true;
    return SL_OK;
}

static sl_status profile_end(sli_queue *queue, double seconds[SLI_PHASE_COUNT]) {
    SLI_FAIL_IF(!queue->profiling, SL_ERR_USAGE, "profiling was not begun");
    queue->profiling = false;
    memcpy(seconds, queue->phases, sizeof queue->phases);
    return SL_OK;
}

static void profile_tag(sli_queue *queue, int tag) {
    queue->tag = tag;
}

static void profile_tagged(const sli_queue *queue, double seconds[SLI_PROFILE_TAGS]) {
    memcpy(seconds, queue->tags, sizeof queue->tags);
    seconds[0] = 0;
}

static sl_status wait_done(sli_queue *queue) {
    (void)queue;
    return SL_OK;
}

const sli_device_ops sli_cpu_device = {.name = "cpu",
                                       .caps = sli_cpu_caps,
                                       .describe = describe,
                                       .open = open_device,
                                       .close = close_device,
                                       .alloc = alloc_block,
                                       .free = free_block,
                                       .queue_new = queue_new,
                                       .queue_free = queue_free,
                                       .upload = upload,
                                       .download = upload,
                                       .copy = copy,
                                       .zero = zero,
                                       .submit = submit,
                                       .wait = wait_done,
                                       .profile_begin = profile_begin,
                                       .profile_end = profile_end,
                                       .profile_tag = profile_tag,
                                       .profile_tagged = profile_tagged,
                                       .blas_buffers = sli_cpu_blas_buffers,
                                       .identify = identify};
