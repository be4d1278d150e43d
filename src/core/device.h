/* Devices: memory and a queue of work. Layers, plan, run and fit loop reach memory only through this; host pointers and
 * device pointers are never mixed, so that the `far` test device (unreadable memory, late work) and GPUs fit in. */
#ifndef SLI_DEVICE_H
#define SLI_DEVICE_H

#include "kernel.h"

typedef struct sli_device sli_device; /* opened by a plan, shared by its params and runs; thread-safe */
typedef struct sli_queue sli_queue;   /* one per run or params: work is done in order; one thread at a time */

struct sli_device_ops {
    const char *name; /* prefix of the device names it serves: "cpu", "far", "cuda" */
    /* Fills *caps for a device name ("cpu", "cpu:avx2"); SL_ERR_DEVICE or SL_ERR_UNKNOWN with the reason. threads: 0 = default. */
    sl_status (*caps)(const char *device_name, int threads, sli_caps *caps);
    /* One line for `sluice devices`; false: not usable, with the reason. */
    bool (*describe)(char *text, size_t capacity);
    sl_status (*open)(const sli_caps *caps, const sl_allocator *allocator, sli_device **device);
    void (*close)(sli_device *device);
    sl_status (*alloc)(sli_device *device, size_t bytes, void **block); /* SLI_ALIGN aligned, zeroed; bytes 0: NULL */
    void (*free)(sli_device *device, void *block, size_t bytes);
    sl_status (*queue_new)(sli_device *device, sli_queue **queue);
    void (*queue_free)(sli_queue *queue);
    /* Ordered in the queue. upload copies `source` before it returns or waits; download waits. */
    sl_status (*upload)(sli_queue *queue, void *to, const void *source, size_t bytes);
    sl_status (*download)(sli_queue *queue, void *to_host, const void *from, size_t bytes);
    sl_status (*copy)(sli_queue *queue, void *to, const void *from, size_t bytes);
    sl_status (*zero)(sli_queue *queue, void *to, size_t bytes);
    /* The call is copied; `function` is a row's pack, forward or backward. call->threads is set by the queue. */
    sl_status (*submit)(sli_queue *queue, sli_kernel_fn function, const sli_call *call);
    sl_status (*wait)(sli_queue *queue);
    size_t (*blas_buffers)(const sli_caps *caps); /* bytes a BLAS keeps for itself, estimate */
};

#endif
