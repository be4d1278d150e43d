/* The plug-in's one symbol and its table. */
#include "backend/cuda/runtime/functions.h"
#include "backend/cuda/runtime/internal.h"

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

static sli_cuda_plugin table;

static void fill_table(void) {
    static const sli_plugin_version version = SLI_PLUGIN_VERSION(sli_cuda_plugin);
    table.version = version;
    table.build = SLI_CUDA_BUILD;
    table.gpu = sli_cuda_gpu_info;
    table.blas = sli_products_open;
    sli_device_ops *ops = &table.ops;
    ops->name = "cuda";
    ops->open = sli_cuda_open;
    ops->close = sli_cuda_close;
    ops->alloc = sli_cuda_alloc;
    ops->free = sli_cuda_free;
    ops->queue_new = sli_cuda_queue_new;
    ops->queue_free = sli_cuda_queue_free;
    ops->upload = sli_cuda_upload;
    ops->download = sli_cuda_download;
    ops->copy = sli_cuda_copy;
    ops->zero = sli_cuda_zero;
    ops->submit = sli_cuda_submit;
    ops->wait = sli_cuda_wait;
    ops->record_begin = sli_cuda_record_begin;
    ops->record_end = sli_cuda_record_end;
    ops->replay = sli_cuda_replay;
    ops->recording_free = sli_cuda_recording_free;
    ops->read_later = sli_cuda_read_later;
    ops->read_slot = sli_cuda_read_slot;
    ops->profile_begin = sli_cuda_profile_begin;
    ops->profile_end = sli_cuda_profile_end;
    ops->borrow_stream = sli_cuda_borrow_stream;
#define SLI_GPU_MEMBER(name) table.name = sli_gpu_##name;
    SLI_CUDA_FUNCTIONS(SLI_GPU_MEMBER)
#undef SLI_GPU_MEMBER
    table.services = &sli_cuda_services_table;
    table.inject = sli_cuda_inject;
    table.allocated = sli_cuda_allocated;
}

/* Called once in a process, under libsluice's lock. */
extern "C" __attribute__((visibility("default"))) const sli_cuda_plugin *sli_cuda_plugin_open(
    const sli_plugin_host *host, sli_why *why) {
    (void)why;
    sli_cuda_host = *host;
    fill_table();
    return &table;
}
