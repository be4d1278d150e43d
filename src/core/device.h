/* Devices: memory and a queue of work. Layers, plan, run and fit loop reach memory only through this; host pointers and
 * device pointers are never mixed, so that the `far` test device (unreadable memory, late work) and GPUs fit in. */
#ifndef SLI_DEVICE_H
#define SLI_DEVICE_H

#include "kernel.h"

typedef struct sli_device sli_device; /* opened by a plan, shared by its params and runs; thread-safe */
/* sli_queue (kernel.h): one per run or params: work is done in order; one thread at a time. */
typedef struct sli_recording sli_recording; /* work recorded once, replayed often: a CUDA graph */

/* Where the time of a call went, by marks between kernels (--profile). */
typedef enum sli_phase {
    SLI_PHASE_OTHER,
    SLI_PHASE_RECURRENCE, /* the loop over time */
    SLI_PHASE_PRODUCT,    /* matrix products outside the loop */
    SLI_PHASE_SOFTMAX,    /* losses */
    SLI_PHASE_OPTIMIZER,  /* norm, optimizer, packing */
    SLI_PHASE_COPY,       /* inputs to the device */
    SLI_PHASE_GAP,        /* the device waits for the host */
    SLI_PHASE_COUNT
} sli_phase;

#define SLI_OWN_STREAM ((void *)-1) /* of borrow_stream; sluice_interop.h: SL_INTEROP_OWN_STREAM */

enum { SLI_READ_SLOTS = 4, SLI_READ_BYTES = 256, SLI_PROFILE_TAGS = 128 };

struct sli_device_ops {
    const char *name; /* prefix of the device names it serves: "cpu", "far", "cuda" */
    /* Fills *caps for a device name ("cpu", "cpu:avx2"); SL_ERR_DEVICE or SL_ERR_UNKNOWN with the reason. threads: 0 = default. */
    sl_status (*caps)(const char *device_name, int threads, sli_caps *caps);
    /* Line number `index` for `sluice devices`: the device's name and a sentence; *usable false: the reason why not. false past
     * the last line. */
    bool (*describe)(int index, char *name, size_t name_capacity, char *text, size_t capacity, bool *usable);
    /* Why none can be used, where there seems to be one that the user has not hidden. NULL: never. */
    bool (*unusable)(char *text, size_t capacity);
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
    /* What calls with sli_call.late or .beside have begun comes before whatever is queued from now on. NULL: they are like others. */
    sl_status (*settle)(sli_queue *queue);
    /* Recording: NULL where the device has none. Between begin and end, copy, zero and submit are recorded instead of done;
     * upload, download and wait are not allowed. record_end ends it whatever happened. A recording belongs to its queue. */
    sl_status (*record_begin)(sli_queue *queue);
    sl_status (*record_end)(sli_queue *queue, sli_recording **recording);
    sl_status (*replay)(sli_queue *queue, sli_recording *recording);
    void (*recording_free)(sli_queue *queue, sli_recording *recording);
    /* Reading back without stalling: read_later queues a copy into host slot 0..SLI_READ_SLOTS-1 (at most SLI_READ_BYTES),
     * read_slot waits for that copy alone. NULL: the device works at once, download does. */
    sl_status (*read_later)(sli_queue *queue, int slot, const void *from, size_t bytes);
    sl_status (*read_slot)(sli_queue *queue, int slot, void *to_host, size_t bytes);
    /* Seconds by phase since profiling was turned on; NULL where it is not offered. profile_tag: what is submitted from now on is
     * also counted for that tag, 1 to SLI_PROFILE_TAGS - 1 (0: for none); profile_tagged: seconds by tag, after profile_end. */
    sl_status (*profile_begin)(sli_queue *queue);
    sl_status (*profile_end)(sli_queue *queue, double seconds[SLI_PHASE_COUNT]);
    void (*profile_tag)(sli_queue *queue, int tag);
    void (*profile_tagged)(const sli_queue *queue, double seconds[SLI_PROFILE_TAGS]);
    /* Works in another library's stream (cudaStream_t) from now on; NULL is CUDA's legacy default stream, SLI_OWN_STREAM the
     * queue's own. */
    sl_status (*borrow_stream)(sli_queue *queue, void *stream);
    size_t (*blas_buffers)(const sli_caps *caps); /* bytes a BLAS keeps for itself, estimate */
    /* Model and libraries, without line ends: where they are the same, so are times measured before. NULL: nothing to say. */
    void (*identify)(const sli_caps *caps, char *text, size_t capacity);
};

#endif
