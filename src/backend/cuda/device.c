/* NVIDIA GPUs as devices: "cuda:0" through the plug-in, and GPUs that can be planned for by name: "cuda:sm_90" (an H200). */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backend/cuda/cuda.h"
#include "backend/cuda/load.h"

enum { OLDEST = 80, INVENTED_CUDNN = 91900 };

/* ------------------------------------------------------------------------------------------------ capabilities -- */
typedef struct known_gpu {
    const char *name;
    int compute_capability, multiprocessors;
    size_t memory, shared_memory, l2_bytes;
} known_gpu;

/* A100, A10, L40S, H200, B200, RTX 5090. Shared memory: the most that one block may ask for. */
static const known_gpu known[] = {
    {"cuda:sm_80", 80, 108, (size_t)80 << 30, 163 << 10, (size_t)40 << 20},
    {"cuda:sm_86", 86, 72, (size_t)24 << 30, 99 << 10, (size_t)6 << 20},
    {"cuda:sm_89", 89, 142, (size_t)48 << 30, 99 << 10, (size_t)96 << 20},
    {"cuda:sm_90", 90, 132, (size_t)139 << 30, 227 << 10, (size_t)60 << 20},
    {"cuda:sm_100", 100, 148, (size_t)180 << 30, 227 << 10, (size_t)126 << 20},
    {"cuda:sm_120", 120, 170, (size_t)32 << 30, 99 << 10, (size_t)96 << 20},
};
static const char known_names[] = "cuda:sm_80, cuda:sm_86, cuda:sm_89, cuda:sm_90, cuda:sm_100 or cuda:sm_120";

static sl_status invented_caps(const char *device_name, sli_caps *caps) {
    const char *nvrtc =
        secure_getenv("SLUICE_NVRTC"); /* as runtime/compile.cu: what would run without NVRTC can be planned, too */
    caps->no_compiler = nvrtc && strcmp(nvrtc, "0") == 0;
    const int capability = atoi(device_name + strlen("cuda:sm_"));
    SLI_FAIL_IF(capability > 0 && capability < OLDEST, SL_ERR_DEVICE,
                "device %s: sm_%d or newer is needed; one of %s can be planned for", device_name, OLDEST, known_names);
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        if (strcmp(device_name, known[k].name) != 0) continue;
        caps->invented = true;
        caps->cudnn = INVENTED_CUDNN;
        caps->compute_capability = known[k].compute_capability;
        caps->multiprocessors = known[k].multiprocessors;
        caps->memory = known[k].memory;
        caps->shared_memory = known[k].shared_memory;
        caps->l2_bytes = known[k].l2_bytes;
        return SL_OK;
    }
    return sli_fail(SL_ERR_DEVICE, "device %s is not known: one of %s can be planned for", device_name, known_names);
}

/* The number in "cuda" (0) and "cuda:N"; -1 for anything else. */
static int index_of(const char *device_name) {
    if (strcmp(device_name, "cuda") == 0) return 0;
    const char *digits = device_name + strlen("cuda:");
    size_t count = strspn(digits, "0123456789");
    return strncmp(device_name, "cuda:", 5) == 0 && count > 0 && count < 5 && digits[count] == 0 ? atoi(digits) : -1;
}

/* Asks the GPU; what this library cannot use is refused with its name. */
static sl_status ask_gpu(int index, sli_cuda_gpu *gpu) {
    sli_why why = {""};
    const sli_cuda_plugin *plugin = sli_cuda_get(&why);
    SLI_FAIL_IF(plugin == NULL, SL_ERR_DEVICE, "device cuda:%d cannot be used: %s", index, why.text);
    const int count = sli_cuda_driver().devices;
    SLI_FAIL_IF(index >= count, SL_ERR_DEVICE, "there is no device cuda:%d: %d GPU%s visible, the last is cuda:%d",
                index, count, count == 1 ? " is" : "s are", count - 1);
    memset(gpu, 0, sizeof *gpu);
    SLI_TRY(plugin->gpu(index, gpu));
    SLI_FAIL_IF(gpu->compute_capability < OLDEST, SL_ERR_DEVICE,
                "device cuda:%d cannot be used: %s is sm_%d; sm_%d or newer is needed", index, gpu->name,
                gpu->compute_capability, OLDEST);
    return SL_OK;
}

static sl_status cuda_caps(const char *device_name, int threads, sli_caps *caps) {
    (void)threads;
    memset(caps, 0, sizeof *caps);
    snprintf(caps->name, sizeof caps->name, "%s", device_name);
    caps->kind = SLI_DEVICE_CUDA;
    caps->threads = 1;
    if (strncmp(device_name, "cuda:sm_", 8) == 0) return invented_caps(device_name, caps);
    caps->index = index_of(device_name);
    SLI_FAIL_IF(caps->index < 0, SL_ERR_UNKNOWN, "device \"%s\" is unknown: use cuda:0, or %s to plan", device_name,
                known_names);
    sli_cuda_gpu gpu;
    SLI_TRY(ask_gpu(caps->index, &gpu));
    const sli_cudnn_plugin *cudnn = sli_cudnn_get(NULL);
    sli_why why = {""};
    int nvrtc = 0;
    snprintf(caps->name, sizeof caps->name, "cuda:%d", caps->index);
    caps->compute_capability = gpu.compute_capability;
    caps->multiprocessors = gpu.multiprocessors;
    caps->driver = sli_cuda_driver().version;
    caps->cudnn = cudnn ? cudnn->cudnn_version : 0;
    caps->no_compiler = !sli_cuda_get(NULL)->compiler(&nvrtc, &why);
    caps->free_memory = gpu.free_memory;
    caps->memory = gpu.memory;
    caps->shared_memory = gpu.shared_memory;
    caps->l2_bytes = gpu.l2_bytes;
    memcpy(caps->resident, gpu.resident, sizeof caps->resident);
    return SL_OK;
}

/* --------------------------------------------------------------------------------------------------- describing -- */
/* "cuBLASLt 13.1", of the library that the plug-in has open, or why there is none. */
static void blas_text(const sli_cuda_plugin *plugin, char *text, size_t capacity) {
    sli_why why = {""};
    if (!plugin->blas(&why)) {
        snprintf(text, capacity, "own matrix products (no cuBLASLt: %s)", why.text);
        return;
    }
    snprintf(text, capacity, "cuBLASLt");
    void *library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_NOLOAD);
    if (library == NULL) return;
    size_t (*version)(void) = NULL;
    void *address = dlsym(library, "cublasLtGetVersion");
    memcpy(&version, &address, sizeof address);
    if (version) snprintf(text, capacity, "cuBLASLt %zu.%zu", version() / 10000, version() / 100 % 100);
    dlclose(library);
}

/* "NVRTC 13.0", or what it means that there is none. */
static void compiler_text(const sli_cuda_plugin *plugin, char *text, size_t capacity) {
    sli_why why = {""};
    int version = 0;
    if (plugin->compiler(&version, &why))
        snprintf(text, capacity, "NVRTC %d.%d", version / 1000, version % 1000 / 10);
    else
        snprintf(text, capacity, "only built-in kernels (no NVRTC: %s)", why.text);
}

/* "driver 13.0, plug-in of ..., cuBLASLt 13.1, NVRTC 13.0, cuDNN 9.19.0" */
static void libraries_text(const sli_cuda_plugin *plugin, char *text, size_t capacity) {
    sli_why why = {""};
    const int driver = sli_cuda_driver().version;
    const sli_cudnn_plugin *plugin_cudnn = sli_cudnn_get(&why);
    char blas[sizeof why.text + 64], compiler[sizeof why.text + 64], cudnn[sizeof why.text + 16];
    blas_text(plugin, blas, sizeof blas);
    compiler_text(plugin, compiler, sizeof compiler);
    const int version = plugin_cudnn ? plugin_cudnn->cudnn_version : 0;
    if (plugin_cudnn)
        snprintf(cudnn, sizeof cudnn, "cuDNN %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    else
        snprintf(cudnn, sizeof cudnn, "no cuDNN: %s", why.text);
    snprintf(text, capacity, "driver %d.%d, plug-in of %s, %s, %s, %s", driver / 1000, driver % 1000 / 10,
             plugin->build, blas, compiler, cudnn);
}

static void cuda_identify(const sli_caps *caps, char *text, size_t capacity) {
    sli_cuda_gpu gpu;
    char libraries[1280];
    if (ask_gpu(caps->index, &gpu) != SL_OK) {
        sli_clear_error();
        return;
    }
    libraries_text(sli_cuda_get(NULL), libraries, sizeof libraries);
    snprintf(text, capacity, "%s, sm_%d, %d SMs, %s", gpu.name, gpu.compute_capability, gpu.multiprocessors, libraries);
}

static bool cuda_describe(int index, char *name, size_t name_capacity, char *text, size_t capacity, bool *usable) {
    sli_why why = {""};
    const sli_cuda_plugin *plugin = sli_cuda_get(&why);
    *usable = false;
    if (plugin == NULL) {
        snprintf(name, name_capacity, "cuda");
        snprintf(text, capacity, "%s", why.text);
        return index == 0;
    }
    if (index >= sli_cuda_driver().devices) return false;
    snprintf(name, name_capacity, "cuda:%d", index);
    sli_cuda_gpu gpu;
    if (ask_gpu(index, &gpu) != SL_OK) {
        snprintf(text, capacity, "%s", sl_error_detail());
        sli_clear_error();
        return true;
    }
    char libraries[1280];
    libraries_text(plugin, libraries, sizeof libraries);
    const double gib = 1024.0 * 1024.0 * 1024.0;
    snprintf(text, capacity, "%s, sm_%d, %d SMs, %.1f of %.1f GiB free, %s", gpu.name, gpu.compute_capability,
             gpu.multiprocessors, (double)gpu.free_memory / gib, (double)gpu.memory / gib, libraries);
    *usable = true;
    return true;
}

/* Of a machine without a driver, and where CUDA_VISIBLE_DEVICES leaves none, there is nothing to say. */
static bool cuda_unusable(char *text, size_t capacity) {
    const sli_driver driver = sli_cuda_driver();
    char name[32];
    bool usable;
    if (driver.version == 0 || (driver.devices == 0 && getenv("CUDA_VISIBLE_DEVICES") != NULL)) return false;
    return cuda_describe(0, name, sizeof name, text, capacity, &usable) && !usable;
}

/* ---------------------------------------------------------------------------- memory and queues: the plug-in's -- */
static const sli_device_ops *ops(void) {
    return &sli_cuda_get(NULL)->ops;
}

static sl_status cuda_open(const sli_caps *caps, const sl_allocator *allocator, sli_device **device) {
    sli_why why = {""};
    *device = NULL;
    SLI_FAIL_IF(caps->invented, SL_ERR_DEVICE, "device %s is invented: it can be planned for, not run on: use cuda:0",
                caps->name);
    SLI_FAIL_IF(sli_cuda_get(&why) == NULL, SL_ERR_DEVICE, "device %s cannot be used: %s", caps->name, why.text);
    return ops()->open(caps, allocator, device);
}

static void cuda_close(sli_device *device) {
    if (device) ops()->close(device);
}

static sl_status cuda_alloc(sli_device *device, size_t bytes, void **block) {
    return ops()->alloc(device, bytes, block);
}

static void cuda_free(sli_device *device, void *block, size_t bytes) {
    ops()->free(device, block, bytes);
}

static sl_status cuda_queue_new(sli_device *device, sli_queue **queue) {
    return ops()->queue_new(device, queue);
}

static void cuda_queue_free(sli_queue *queue) {
    if (queue) ops()->queue_free(queue);
}

static sl_status cuda_upload(sli_queue *queue, void *to, const void *source, size_t bytes) {
    return ops()->upload(queue, to, source, bytes);
}

static sl_status cuda_download(sli_queue *queue, void *to_host, const void *from, size_t bytes) {
    return ops()->download(queue, to_host, from, bytes);
}

static sl_status cuda_copy(sli_queue *queue, void *to, const void *from, size_t bytes) {
    return ops()->copy(queue, to, from, bytes);
}

static sl_status cuda_zero(sli_queue *queue, void *to, size_t bytes) {
    return ops()->zero(queue, to, bytes);
}

static sl_status cuda_submit(sli_queue *queue, sli_kernel_fn function, const sli_call *call) {
    return ops()->submit(queue, function, call);
}

static sl_status cuda_wait(sli_queue *queue) {
    return ops()->wait(queue);
}

static sl_status cuda_record_begin(sli_queue *queue) {
    return ops()->record_begin(queue);
}

static sl_status cuda_record_end(sli_queue *queue, sli_recording **recording) {
    return ops()->record_end(queue, recording);
}

static sl_status cuda_replay(sli_queue *queue, sli_recording *recording) {
    return ops()->replay(queue, recording);
}

static void cuda_recording_free(sli_queue *queue, sli_recording *recording) {
    if (recording) ops()->recording_free(queue, recording);
}

static sl_status cuda_read_later(sli_queue *queue, int slot, const void *from, size_t bytes) {
    return ops()->read_later(queue, slot, from, bytes);
}

static sl_status cuda_read_slot(sli_queue *queue, int slot, void *to_host, size_t bytes) {
    return ops()->read_slot(queue, slot, to_host, bytes);
}

static sl_status cuda_profile_begin(sli_queue *queue) {
    return ops()->profile_begin(queue);
}

static sl_status cuda_profile_end(sli_queue *queue, double seconds[SLI_PHASE_COUNT]) {
    return ops()->profile_end(queue, seconds);
}

static void cuda_profile_tag(sli_queue *queue, int tag) {
    ops()->profile_tag(queue, tag);
}

static void cuda_profile_tagged(const sli_queue *queue, double seconds[SLI_PROFILE_TAGS]) {
    ops()->profile_tagged(queue, seconds);
}

static sl_status cuda_settle(sli_queue *queue) {
    return ops()->settle(queue);
}

static sl_status cuda_borrow_stream(sli_queue *queue, void *stream) {
    return ops()->borrow_stream(queue, stream);
}

const sli_device_ops sli_cuda_device = {.name = "cuda",
                                        .caps = cuda_caps,
                                        .describe = cuda_describe,
                                        .unusable = cuda_unusable,
                                        .open = cuda_open,
                                        .close = cuda_close,
                                        .alloc = cuda_alloc,
                                        .free = cuda_free,
                                        .queue_new = cuda_queue_new,
                                        .queue_free = cuda_queue_free,
                                        .upload = cuda_upload,
                                        .download = cuda_download,
                                        .copy = cuda_copy,
                                        .zero = cuda_zero,
                                        .submit = cuda_submit,
                                        .wait = cuda_wait,
                                        .settle = cuda_settle,
                                        .record_begin = cuda_record_begin,
                                        .record_end = cuda_record_end,
                                        .replay = cuda_replay,
                                        .recording_free = cuda_recording_free,
                                        .read_later = cuda_read_later,
                                        .read_slot = cuda_read_slot,
                                        .profile_begin = cuda_profile_begin,
                                        .profile_end = cuda_profile_end,
                                        .profile_tag = cuda_profile_tag,
                                        .profile_tagged = cuda_profile_tagged,
                                        .borrow_stream = cuda_borrow_stream,
                                        .identify = cuda_identify};
