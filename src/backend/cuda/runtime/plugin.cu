/* The plug-in's two symbols, its version and the function that gives its table. */
#include <stdlib.h>

#include "backend/cuda/compile.h"
#include "backend/cuda/kernels/persist_host.cuh"
#include "backend/cuda/kernels/step_run_host.cuh"
#include "backend/cuda/runtime/functions.h"
#include "backend/cuda/runtime/internal.h"

#include <cuda.h>

#ifndef SLI_CUDA_BUILD
#define SLI_CUDA_BUILD "nvcc"
#endif

const sli_cuda_services sli_cuda_services_table = {
    sli_cuda_try,
    sli_cuda_fail,
    sli_cuda_failed,
    sli_cuda_stream,
    sli_cuda_caps_of,
    sli_cuda_phase,
    sli_cuda_keep,
    sli_cuda_narrow,
    sli_cuda_widen,
    sli_cuda_add,
    [](void *to, const void *from, size_t bytes, cudaStream_t stream) {
        return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
    },
    [](void *to, size_t bytes, cudaStream_t stream) { return cudaMemsetAsync(to, 0, bytes, stream); },
};

extern "C" {
extern __attribute__((visibility("default"))) const sli_plugin_version sli_cuda_plugin_version;
const sli_plugin_version sli_cuda_plugin_version = SLI_PLUGIN_VERSION(sli_cuda_plugin);
}

/* ------------------------------------------------------------------------------------------ the caller's own GPU --
 * A thread of another program may have another GPU as its current one: each function of the table gives that back. */
static pthread_once_t driver_once = PTHREAD_ONCE_INIT;
static CUresult (*device_get)(CUdevice *device, int index);
static CUresult (*context_state)(CUdevice device, unsigned *flags, int *active);

static void find_driver(void) {
    const unsigned version = 12000;
    cudaDriverEntryPointQueryResult found;
    void *get = NULL, *state = NULL;
    if (cudaGetDriverEntryPointByVersion("cuDeviceGet", &get, version, cudaEnableDefault, &found) == cudaSuccess &&
        cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &state, version, cudaEnableDefault, &found) ==
            cudaSuccess) {
        device_get = (decltype(device_get))get;
        context_state = (decltype(context_state))state;
    }
    (void)cudaGetLastError();
}

/* Making a GPU current that nobody has used takes half a GiB of its memory: then there is nothing to give back. */
static bool is_used(int index) {
    CUdevice device;
    unsigned flags;
    int active = 0;
    pthread_once(&driver_once, find_driver);
    if (!device_get || !context_state || device_get(&device, index) != CUDA_SUCCESS) return false;
    return context_state(device, &flags, &active) == CUDA_SUCCESS && active;
}

static int current_gpu(void) {
    int index = -1;
    if (cudaGetDevice(&index) == cudaSuccess) return index;
    (void)cudaGetLastError();
    return -1;
}

static void give_back(int index) {
    if (index < 0 || current_gpu() == index || !is_used(index)) return;
    if (cudaSetDevice(index) != cudaSuccess) (void)cudaGetLastError();
}

/* KEPT(f) does what f does. */
template <typename T, T F> struct kept;
template <typename... A, sl_status (*F)(A...)> struct kept<sl_status (*)(A...), F> {
    static sl_status call(A... arguments) {
        const int before = current_gpu();
        const sl_status status = F(arguments...);
        give_back(before);
        return status;
    }
};
template <typename... A, void (*F)(A...)> struct kept<void (*)(A...), F> {
    static void call(A... arguments) {
        const int before = current_gpu();
        F(arguments...);
        give_back(before);
    }
};
#define KEPT(f) kept<decltype(&f), f>::call

/* ------------------------------------------------------------------------------------------------------- table -- */
static sli_cuda_plugin table;

static void fill_table(void) {
    table.version = sli_cuda_plugin_version;
    table.build = SLI_CUDA_BUILD;
    table.gpu = KEPT(sli_cuda_gpu_info);
    table.blas = sli_products_open;
    sli_device_ops *ops = &table.ops;
    ops->name = "cuda";
    ops->open = KEPT(sli_cuda_open);
    ops->close = sli_cuda_close;
    ops->alloc = KEPT(sli_cuda_alloc);
    ops->free = KEPT(sli_cuda_free);
    ops->queue_new = KEPT(sli_cuda_queue_new);
    ops->queue_free = KEPT(sli_cuda_queue_free);
    ops->upload = KEPT(sli_cuda_upload);
    ops->download = KEPT(sli_cuda_download);
    ops->copy = KEPT(sli_cuda_copy);
    ops->zero = KEPT(sli_cuda_zero);
    ops->submit = KEPT(sli_cuda_submit);
    ops->wait = KEPT(sli_cuda_wait);
    ops->settle = KEPT(sli_cuda_settle_queue);
    ops->record_begin = KEPT(sli_cuda_record_begin);
    ops->record_end = KEPT(sli_cuda_record_end);
    ops->replay = KEPT(sli_cuda_replay);
    ops->recording_free = KEPT(sli_cuda_recording_free);
    ops->read_later = KEPT(sli_cuda_read_later);
    ops->read_slot = KEPT(sli_cuda_read_slot);
    ops->profile_begin = KEPT(sli_cuda_profile_begin);
    ops->profile_end = KEPT(sli_cuda_profile_end);
    ops->profile_tag = KEPT(sli_cuda_profile_tag);
    ops->profile_tagged = sli_cuda_profile_tagged;
    ops->borrow_stream = KEPT(sli_cuda_borrow_stream);
#define SLI_GPU_MEMBER(name) table.name = sli_gpu_##name;
    SLI_CUDA_FUNCTIONS(SLI_GPU_MEMBER)
#undef SLI_GPU_MEMBER
    table.services = &sli_cuda_services_table;
    table.inject = sli_cuda_inject;
    table.allocated = sli_cuda_allocated;
    table.compiler = sli_cuda_compiler;
    table.compile_check = sli_cuda_compile_check;
    table.persist_ready = KEPT(sli_gpu_persist_ready);
    table.step_ready = KEPT(sli_gpu_step_ready);
    table.late_kernels = sli_cuda_late_kernels;
}

/* Called once in a process, under libsluice's lock. */
extern "C" __attribute__((visibility("default"))) const sli_cuda_plugin *sli_cuda_plugin_open(
    const sli_plugin_host *host, sli_why *why) {
    (void)why;
    sli_cuda_host = *host;
    const char *delay = secure_getenv("SLUICE_PERSIST_DELAY");
    sli_persist_delay = delay ? (uint32_t)strtoul(delay, NULL, 10) : 0u;
    fill_table();
    return &table;
}
