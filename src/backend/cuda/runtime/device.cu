/* One GPU: what it is, its memory; errors of CUDA calls as sentences; the hook behind each CUDA call. */
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/runtime/internal.h"

sli_plugin_host sli_cuda_host;

/* ------------------------------------------------------------------------------------------- the hook for tests -- */
static pthread_mutex_t hook_lock = PTHREAD_MUTEX_INITIALIZER;
static long hook_calls; /* atomic */
static bool hook_armed; /* atomic: look below, under the lock */
static long hook_at;    /* 0: nothing is injected */
static cudaError_t hook_error;
static bool hook_sticky;

long sli_cuda_inject(long call, int error, bool sticky) {
    pthread_mutex_lock(&hook_lock);
    const long made = __atomic_load_n(&hook_calls, __ATOMIC_RELAXED);
    hook_at = call > 0 ? made + call : 0;
    hook_error = (cudaError_t)error;
    hook_sticky = sticky;
    __atomic_store_n(&hook_armed, hook_at > 0, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&hook_lock);
    return made;
}

cudaError_t sli_cuda_injected(cudaError_t error) {
    const long call = __atomic_add_fetch(&hook_calls, 1, __ATOMIC_RELAXED);
    if (!__atomic_load_n(&hook_armed, __ATOMIC_ACQUIRE)) return error;
    pthread_mutex_lock(&hook_lock);
    if (hook_at > 0 && (call == hook_at || (hook_sticky && call > hook_at))) error = hook_error;
    pthread_mutex_unlock(&hook_lock);
    return error;
}

/* ------------------------------------------------------------------------------------------------------ errors -- */
bool sli_cuda_is_fatal(cudaError_t error) {
    switch (error) {
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceUninitialized:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorExternalDevice:
    case cudaErrorMpsClientTerminated:
    case cudaErrorUnknown:
        return true;
    default:
        return false;
    }
}

static const char *remedy(cudaError_t error) {
    if (sli_cuda_is_fatal(error))
        return "the GPU can no longer be used by this process; start again from the last checkpoint";
    switch (error) {
    case cudaErrorMemoryAllocation:
        return "use a smaller batch or a memory limit, or end other programs on the GPU";
    case cudaErrorInsufficientDriver:
        return "install a driver for CUDA 13 or newer, or use --device cpu";
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
        return "check nvidia-smi and CUDA_VISIBLE_DEVICES, or use --device cpu";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
        return "build the plug-in for this GPU (SLUICE_CUDA_ARCHITECTURES)";
    default:
        return "please report it together with this sentence";
    }
}

/* What failed: of the text of a call the function's name, "cudaMalloc(&p, n)" -> "cudaMalloc"; else the text, "launch of ...". */
static void function_name(const char *what, char *name, size_t capacity) {
    snprintf(name, capacity, "%.*s", (int)strcspn(what, "("), what);
}

static void describe(int index, cudaError_t error, const char *what, char *text, size_t capacity) {
    char name[128];
    function_name(what, name, sizeof name);
    snprintf(text, capacity, "%s failed on GPU %d: %s (%s); %s", name, index, cudaGetErrorName(error),
             cudaGetErrorString(error), remedy(error));
}

sl_status sli_cuda_report(int index, cudaError_t error, const char *what) {
    char text[SLI_SENTENCE];
    describe(index, error, what, text, sizeof text);
    return sli_cuda_host.fail(error == cudaErrorMemoryAllocation ? SL_ERR_OUT_OF_MEMORY : SL_ERR_DEVICE, "%s", text);
}

bool sli_cuda_try(sli_queue *queue, cudaError_t error, const char *what) {
    if (error == cudaSuccess) return true;
    (void)cudaGetLastError(); /* a failure that is over must not be found again by the next launch */
    if (sli_cuda_is_fatal(error)) queue->fatal = true;
    if (queue->failed != SL_OK) return false;
    queue->failed = error == cudaErrorMemoryAllocation ? SL_ERR_OUT_OF_MEMORY : SL_ERR_DEVICE;
    describe(queue->device->index, error, what, queue->sentence, sizeof queue->sentence);
    return false;
}

void sli_cuda_fail(sli_queue *queue, sl_status status, const char *format, ...) {
    if (queue->failed != SL_OK) return;
    queue->failed = status;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(queue->sentence, sizeof queue->sentence, format, arguments);
    va_end(arguments);
}

bool sli_cuda_failed(const sli_queue *queue) {
    return queue->failed != SL_OK;
}

/* ------------------------------------------------------------------------------------------------- host memory -- */
static void *default_alloc(void *context, size_t bytes, size_t align) {
    (void)context;
    void *pointer = NULL;
    return posix_memalign(&pointer, align, bytes) == 0 ? pointer : NULL;
}

static void default_free(void *context, void *pointer, size_t bytes) {
    (void)context;
    (void)bytes;
    free(pointer);
}

sl_allocator sli_cuda_allocator(const sl_allocator *allocator) {
    if (allocator && allocator->alloc) return *allocator;
    sl_allocator own = {default_alloc, default_free, NULL};
    return own;
}

void *sli_cuda_host_alloc(const sl_allocator *allocator, size_t bytes) {
    void *pointer = allocator->alloc(allocator->context, bytes, SLI_ALIGN);
    if (pointer) memset(pointer, 0, bytes);
    return pointer;
}

void sli_cuda_host_free(const sl_allocator *allocator, void *pointer, size_t bytes) {
    if (pointer) allocator->free(allocator->context, pointer, bytes);
}

/* -------------------------------------------------------------------------------------------------- properties -- */
#define TRY_GPU(index, call)                                \
    do {                                                    \
        const cudaError_t error_ = sli_cuda_injected(call); \
        if (error_ != cudaSuccess) {                        \
            (void)cudaGetLastError();                       \
            return sli_cuda_report((index), error_, #call); \
        }                                                   \
    } while (0)

static sl_status attribute(int index, cudaDeviceAttr which, int *value) {
    TRY_GPU(index, cudaDeviceGetAttribute(value, which, index));
    return SL_OK;
}

sl_status sli_cuda_gpu_info(int index, sli_cuda_gpu *gpu) {
    memset(gpu, 0, sizeof *gpu);
    int count = 0, major = 0, minor = 0, shared = 0, l2 = 0;
    TRY_GPU(index, cudaGetDeviceCount(&count));
    if (index < 0 || index >= count)
        return sli_cuda_host.fail(SL_ERR_DEVICE,
                                  "GPU %d is not there: this process sees %d (CUDA_VISIBLE_DEVICES hides "
                                  "others); give a smaller number",
                                  index, count);
    SLI_TRY(attribute(index, cudaDevAttrComputeCapabilityMajor, &major));
    SLI_TRY(attribute(index, cudaDevAttrComputeCapabilityMinor, &minor));
    SLI_TRY(attribute(index, cudaDevAttrMultiProcessorCount, &gpu->multiprocessors));
    SLI_TRY(attribute(index, cudaDevAttrMaxSharedMemoryPerBlockOptin, &shared));
    SLI_TRY(attribute(index, cudaDevAttrL2CacheSize, &l2));
    gpu->compute_capability = 10 * major + minor;
    gpu->shared_memory = (size_t)shared;
    gpu->l2_bytes = (size_t)l2;
    static cudaDeviceProp properties; /* about 1 KiB, and described one at a time */
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    const cudaError_t named = sli_cuda_injected(cudaGetDeviceProperties(&properties, index));
    if (named == cudaSuccess) snprintf(gpu->name, sizeof gpu->name, "%.63s", properties.name);
    pthread_mutex_unlock(&lock);
    TRY_GPU(index, named);
    TRY_GPU(index, cudaRuntimeGetVersion(&gpu->runtime));
    TRY_GPU(index, cudaSetDevice(index));
    TRY_GPU(index, cudaMemGetInfo(&gpu->free_memory, &gpu->memory));
    if (gpu->compute_capability >= 90 && index < SLI_CUDA_MOST_GPUS)
        sli_cuda_ask_resident(index, shared, gpu->resident);
    return SL_OK;
}

/* ------------------------------------------------------------------------------------------------ open and close -- */
sl_status sli_cuda_enter(const sli_device *device) {
    TRY_GPU(device->index, cudaSetDevice(device->index));
    return SL_OK;
}

/* compute-sanitizer keeps a library of its own in the process. */
static int is_sanitizer(struct dl_phdr_info *info, size_t bytes, void *unused) {
    (void)bytes;
    (void)unused;
    return info->dlpi_name && strstr(info->dlpi_name, "libsanitizer-collection.so") != NULL;
}

sl_status sli_cuda_open(const sli_caps *caps, const sl_allocator *allocator, sli_device **device) {
    *device = NULL;
    if (caps->index < 0 || caps->index >= SLI_CUDA_MOST_GPUS)
        return sli_cuda_host.fail(SL_ERR_DEVICE,
                                  "GPU %d is beyond the %d that are supported; narrow CUDA_VISIBLE_DEVICES",
                                  caps->index, SLI_CUDA_MOST_GPUS);
    const sl_allocator own = sli_cuda_allocator(allocator);
    sli_device *opened = (sli_device *)sli_cuda_host_alloc(&own, sizeof *opened);
    if (!opened)
        return sli_cuda_host.fail(SL_ERR_OUT_OF_MEMORY, "out of memory: a device needs %zu bytes", sizeof *opened);
    opened->allocator = own;
    opened->caps = *caps;
    opened->index = caps->index;
    opened->sanitized = dl_iterate_phdr(is_sanitizer, NULL) != 0;
    const sl_status status = sli_cuda_enter(opened);
    if (status != SL_OK) {
        sli_cuda_host_free(&own, opened, sizeof *opened);
        return status;
    }
    sli_products_prepare(opened);
    *device = opened;
    return SL_OK;
}

void sli_cuda_close(sli_device *device) {
    if (!device) return;
    const sl_allocator own = device->allocator;
    sli_cuda_host_free(&own, device, sizeof *device);
}

/* ------------------------------------------------------------------------------------------------------ memory -- */
static pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER;
static size_t held[SLI_CUDA_MOST_GPUS]; /* bytes; sums wrap around, so a difference may be added */

static size_t hold(int index, size_t difference) {
    pthread_mutex_lock(&held_lock);
    const size_t bytes = held[index] += difference;
    pthread_mutex_unlock(&held_lock);
    return bytes;
}

size_t sli_cuda_allocated(int index) {
    return hold(index, 0);
}

sl_status sli_cuda_alloc(sli_device *device, size_t bytes, void **block) {
    *block = NULL;
    if (bytes == 0) return SL_OK;
    SLI_TRY(sli_cuda_enter(device));
    void *pointer = NULL;
    cudaError_t error = sli_cuda_injected(cudaMalloc(&pointer, bytes));
    const char *what = "cudaMalloc";
    if (error == cudaSuccess) {
        what = "cudaMemset";
        error = sli_cuda_injected(cudaMemset(pointer, 0, bytes));
        /* Queues' streams do not wait for the default stream, in which the memset runs. */
        if (error == cudaSuccess) {
            what = "cudaStreamSynchronize";
            error = sli_cuda_injected(cudaStreamSynchronize(cudaStreamLegacy));
        }
    }
    if (error == cudaSuccess) {
        *block = pointer;
        hold(device->index, bytes);
        return SL_OK;
    }
    (void)cudaGetLastError();
    if (pointer) (void)cudaFree(pointer);
    if (error != cudaErrorMemoryAllocation) return sli_cuda_report(device->index, error, what);
    size_t free_bytes = 0, total = 0;
    if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess) (void)cudaGetLastError();
    return sli_cuda_host.fail(SL_ERR_OUT_OF_MEMORY,
                              "out of memory on GPU %d: %zu bytes were asked for, %zu of %zu are free; %s",
                              device->index, bytes, free_bytes, total, remedy(error));
}

void sli_cuda_free(sli_device *device, void *block, size_t bytes) {
    if (!block) return;
    hold(device->index, (size_t)0 - bytes);
    if (cudaSetDevice(device->index) != cudaSuccess) return;
    /* After a fatal error the memory is gone with the context: nothing to report. */
    if (cudaFree(block) != cudaSuccess) (void)cudaGetLastError();
}
