/* A libsluice_cuda.so without CUDA: its "GPU" is host memory, its kernels compute nothing. With it the tests go through what
 * libsluice does with a GPU, where there is none: a plug-in of another version (FAKE_VERSION), memory that runs out
 * (SLUICE_FAKE_MEMORY bytes), a GPU that falls off after SLUICE_FAKE_WORKS pieces of work, an old GPU (SLUICE_FAKE_SM), one that
 * is lost (SLUICE_FAKE_LOST, the second). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backend/cuda/plugin.h"

#ifndef FAKE_VERSION
#define FAKE_VERSION SLI_PLUGIN_VERSION_TEXT
#endif

typedef struct work {
    sli_kernel_fn function;
    sli_call call;
    struct work *next;
} work;

struct sli_device {
    sl_allocator allocator;
    size_t used;
};
struct sli_recording {
    work *first, **end;
};
struct sli_queue {
    sli_recording *recording;
    unsigned char slots[SLI_READ_SLOTS][SLI_READ_BYTES];
};

static const sli_plugin_host *host;

static long setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

static sl_status one_more(void) {
    static long works;
    const long allowed = setting("SLUICE_FAKE_WORKS", -1);
    if (allowed < 0 || works++ < allowed) return SL_OK;
    return host->fail(SL_ERR_DEVICE, "cudaStreamSynchronize failed on GPU 0: the GPU has fallen off the bus");
}

static sl_status gpu(int index, sli_cuda_gpu *gpu) {
    if (index == setting("SLUICE_FAKE_LOST", 1))
        return host->fail(SL_ERR_DEVICE, "cudaGetDeviceProperties failed on GPU %d: the GPU is lost", index);
    strcpy(gpu->name, "Fake GPU");
    gpu->compute_capability = (int)setting("SLUICE_FAKE_SM", 90);
    gpu->multiprocessors = 132;
    gpu->runtime = 13000;
    gpu->memory = (size_t)8 << 30;
    gpu->free_memory = (size_t)7 << 30;
    gpu->shared_memory = 227 << 10;
    gpu->l2_bytes = (size_t)60 << 20;
    return SL_OK;
}

static bool blas(sli_why *why) {
    strcpy(why->text, "a fake plug-in has none");
    return false;
}

/* Persistent kernels: SLUICE_FAKE_UNREADY has a bit for each kind that does not compile; below zero the GPU is lost. */
static sl_status persist_ready(const sli_problem *problem, sli_planned planned, const sli_caps *caps, int kind,
                               const sli_calls *calls, bool *refused, sli_why *why) {
    const long unready = setting("SLUICE_FAKE_UNREADY", 0);
    (void)problem;
    (void)planned;
    (void)caps;
    (void)calls;
    if (unready < 0) return host->fail(SL_ERR_DEVICE, "cudaLibraryLoadData failed on GPU 0: the GPU is lost");
    *refused = (unready >> kind & 1) != 0;
    if (*refused) snprintf(why->text, sizeof why->text, "its kernel was not compiled: a fake plug-in compiles none");
    return SL_OK;
}

static sl_status step_ready(const sli_problem *problem, const sli_caps *caps, const sli_calls *calls, bool *refused,
                            sli_why *why) {
    (void)problem;
    (void)caps;
    (void)calls;
    (void)why;
    *refused = false;
    return SL_OK;
}

static long late_kernels(void) {
    return 0;
}

static bool compiler(int *version, sli_why *why) {
    *version = 0;
    strcpy(why->text, "a fake plug-in has none");
    return false;
}

static sl_status open_device(const sli_caps *caps, const sl_allocator *allocator, sli_device **device) {
    (void)caps;
    (void)allocator;
    *device = calloc(1, sizeof **device);
    return *device ? SL_OK : host->fail(SL_ERR_OUT_OF_MEMORY, "no memory for a fake device");
}

static size_t held; /* of all devices */

static size_t allocated(int index) {
    (void)index;
    return held;
}

static void close_device(sli_device *device) {
    free(device);
}

static sl_status alloc_block(sli_device *device, size_t bytes, void **block) {
    const size_t most = (size_t)setting("SLUICE_FAKE_MEMORY", 1L << 40), rounded = (bytes + 255) / 256 * 256;
    *block = NULL;
    if (bytes == 0) return SL_OK;
    if (device->used + bytes <= most) *block = aligned_alloc(256, rounded);
    if (*block == NULL)
        return host->fail(SL_ERR_OUT_OF_MEMORY, "cudaMalloc failed on GPU 0: %zu bytes are not there", bytes);
    device->used += bytes;
    held += bytes;
    memset(*block, 0, bytes);
    return SL_OK;
}

static void free_block(sli_device *device, void *block, size_t bytes) {
    device->used -= block ? bytes : 0;
    held -= block ? bytes : 0;
    free(block);
}

static sl_status queue_new(sli_device *device, sli_queue **queue) {
    (void)device;
    *queue = calloc(1, sizeof **queue);
    return *queue ? SL_OK : host->fail(SL_ERR_OUT_OF_MEMORY, "no memory for a fake queue");
}

static void queue_free(sli_queue *queue) {
    free(queue);
}

static sl_status copy(sli_queue *queue, void *to, const void *from, size_t bytes) {
    if (queue->recording) return SL_OK; /* nothing that a fake kernel computes needs to be copied again */
    if (bytes > 0) memmove(to, from, bytes);
    return one_more();
}

static sl_status zero(sli_queue *queue, void *to, size_t bytes) {
    (void)queue;
    if (bytes > 0) memset(to, 0, bytes);
    return SL_OK;
}

static sl_status wait_done(sli_queue *queue) {
    (void)queue;
    return one_more();
}

static sl_status submit(sli_queue *queue, sli_kernel_fn function, const sli_call *call) {
    sli_call own = *call;
    own.queue = queue;
    if (!queue->recording) {
        function(&own);
        return one_more();
    }
    work *new = malloc(sizeof *new);
    if (new == NULL) return host->fail(SL_ERR_OUT_OF_MEMORY, "no memory for a fake recording");
    *new = (work){function, own, NULL};
    *queue->recording->end = new;
    queue->recording->end = &new->next;
    return SL_OK;
}

static sl_status record_begin(sli_queue *queue) {
    queue->recording = calloc(1, sizeof *queue->recording);
    if (queue->recording == NULL) return host->fail(SL_ERR_OUT_OF_MEMORY, "no memory for a fake recording");
    queue->recording->end = &queue->recording->first;
    return SL_OK;
}

static sl_status record_end(sli_queue *queue, sli_recording **recording) {
    *recording = queue->recording;
    queue->recording = NULL;
    return SL_OK;
}

static sl_status replay(sli_queue *queue, sli_recording *recording) {
    (void)queue;
    for (const work *w = recording->first; w; w = w->next) w->function(&w->call);
    return one_more();
}

static void recording_free(sli_queue *queue, sli_recording *recording) {
    (void)queue;
    while (recording && recording->first) {
        work *first = recording->first;
        recording->first = first->next;
        free(first);
    }
    free(recording);
}

static sl_status read_later(sli_queue *queue, int slot, const void *from, size_t bytes) {
    memcpy(queue->slots[slot], from, bytes);
    return SL_OK;
}

static sl_status read_slot(sli_queue *queue, int slot, void *to_host, size_t bytes) {
    memcpy(to_host, queue->slots[slot], bytes);
    return one_more();
}

static void nothing(const sli_call *call) {
    (void)call;
}

/* A loss of 1 for each target, so that training has a number to print. */
static void loss(const sli_call *call) {
    const double count = (double)call->problem.batch * (call->problem.steps > 0 ? call->problem.steps : 1);
    if (call->recompute) return;
    call->metrics->loss_sum += count;
    call->metrics->count += count;
}

extern const sli_plugin_version sli_cuda_plugin_version;
const sli_plugin_version sli_cuda_plugin_version = {FAKE_VERSION,           sizeof(sli_call),
                                                    sizeof(sli_caps),       sizeof(sli_problem),
                                                    sizeof(sli_device_ops), sizeof(sli_cuda_plugin)};

static const sli_cuda_plugin plugin = {
    .build = "no nvcc",
    .gpu = gpu,
    .blas = blas,
    .ops = {.name = "cuda",
            .open = open_device,
            .close = close_device,
            .alloc = alloc_block,
            .free = free_block,
            .queue_new = queue_new,
            .queue_free = queue_free,
            .upload = copy,
            .download = copy,
            .copy = copy,
            .zero = zero,
            .submit = submit,
            .wait = wait_done,
            .settle = wait_done,
            .record_begin = record_begin,
            .record_end = record_end,
            .replay = replay,
            .recording_free = recording_free,
            .read_later = read_later,
            .read_slot = read_slot},
#define MEMBER(name) .name = nothing,
    SLI_CUDA_FUNCTIONS(MEMBER)
#undef MEMBER
        .allocated = allocated,
    .compiler = compiler,
    .persist_ready = persist_ready,
    .step_ready = step_ready,
    .late_kernels = late_kernels,
};

const sli_cuda_plugin *sli_cuda_plugin_open(const sli_plugin_host *given, sli_why *why);
const sli_cuda_plugin *sli_cuda_plugin_open(const sli_plugin_host *given, sli_why *why) {
    static sli_cuda_plugin table;
    (void)why;
    if (strcmp(FAKE_VERSION, SLI_PLUGIN_VERSION_TEXT) != 0) abort(); /* another version's function is not called */
    host = given;
    table = plugin;
    table.version = sli_cuda_plugin_version;
    table.xent_forward = table.loss_forward = loss;
    return &table;
}
