/* What the files of the runtime share: the device, the queue, marks of time. Plain C structs, no C++ library: the plug-in
 * needs only libc, libm, libdl and libpthread. */
#ifndef SLI_CUDA_INTERNAL_H
#define SLI_CUDA_INTERNAL_H

#include <pthread.h>
#include <cuda_runtime.h>

#include "backend/cuda/services.h"

/* libsluice's functions; set once, before anything else is called. */
extern sli_plugin_host sli_cuda_host;

/* ------------------------------------------------------------------------------------------------------ device -- */
enum { SLI_CUDA_MOST_GPUS = 64 };

struct sli_device {
    sl_allocator allocator;
    sli_caps caps;
    int index;
    void *blas; /* cuBLASLt's handle; NULL: own kernels multiply, as long as the device is open */
    /* By compute-sanitizer, under which (CUDA 13.0, driver 580) the driver ends with a signal at a graph with an edge that a launch's beginning lets go. */
    bool sanitized;
};

/* Makes the device current in this thread. */
sl_status sli_cuda_enter(const sli_device *device);
/* Fails with the sentence of a failed CUDA call. */
sl_status sli_cuda_report(int index, cudaError_t error, const char *what);
/* No later call of this process can use the GPU after such an error. */
bool sli_cuda_is_fatal(cudaError_t error);
/* libsluice's copies of these live on its own side of dlopen. */
sl_allocator sli_cuda_allocator(const sl_allocator *allocator);
void *sli_cuda_host_alloc(const sl_allocator *allocator, size_t bytes); /* zeroed */
void sli_cuda_host_free(const sl_allocator *allocator, void *pointer, size_t bytes);

sl_status sli_cuda_gpu_info(int index, sli_cuda_gpu *gpu);
/* Fills sli_cuda_gpu.resident of the current GPU, from sm_90 on (kernels/persist_ready.cu). */
void sli_cuda_ask_resident(int gpu, int shared, int resident[SLI_CLUSTER_MOST + 1]);
sl_status sli_cuda_open(const sli_caps *caps, const sl_allocator *allocator, sli_device **device);
void sli_cuda_close(sli_device *device);
sl_status sli_cuda_alloc(sli_device *device, size_t bytes, void **block);
void sli_cuda_free(sli_device *device, void *block, size_t bytes);
long sli_cuda_inject(long call, int error, bool sticky);
size_t sli_cuda_allocated(int index);

/* ------------------------------------------------------------------------------------------------------- queue -- */
enum {
    SLI_RING_SLOTS = 4,
    SLI_RING_BYTES = 1 << 20, /* of one slot */
    SLI_MARKS = 2048,         /* marks between two collections */
    SLI_SENTENCE = 512,
    SLI_MOST_KEPT = 64 /* objects of sli_cuda_keep: a cuDNN shape for each size of call */
};
/* Beyond the phases: the stretch of a replay, shared out by its recording's own marks; and time that nobody counts. */
enum { SLI_PHASE_REPLAY = SLI_PHASE_COUNT, SLI_PHASE_IGNORED, SLI_PHASE_ALL };

/* A point in a stream; the time up to the next one belongs to `phase` and `tag`. */
typedef struct sli_mark {
    cudaEvent_t event;
    int phase, tag;
    sli_recording *recording; /* SLI_PHASE_REPLAY */
} sli_mark;

/* Seconds by phase and by tag; tag 0 is none. */
typedef struct sli_profile {
    double phase[SLI_PHASE_ALL], tag[SLI_PROFILE_TAGS];
} sli_profile;

typedef struct sli_marks {
    sli_mark *mark;
    int count, capacity, events; /* events: how many of `mark` have one */
} sli_marks;

struct sli_recording {
    cudaGraphExec_t graph;
    sli_marks marks;     /* inside the graph: every replay stamps the same events */
    sli_profile sampled; /* of the replays whose stamps were read */
    double replayed;     /* seconds of all replays */
    int replays;
    bool unread; /* the stamps of the last replay are to be read before the next */
    sli_recording *next;
};

typedef struct sli_kept {
    void *key;
    size_t key_bytes;
    void *object;
    void (*free_kept)(void *object);
    bool recorded; /* a recording has used it, which may be replayed until the queue ends */
    struct sli_kept *next;
} sli_kept;

/* A copy, or zeros without `from`, that is recorded together with those that follow. */
enum { SLI_PUTS = 8 };
typedef struct sli_put {
    char *to;
    const char *from;
    size_t bytes;
} sli_put;

/* What goes between two replays: small uploads, whose bytes travel in a kernel's arguments, and reports to be read. */
enum { SLI_SENDS = 8, SLI_SEND_WORDS = 2048 };
typedef struct sli_sends {
    struct {
        uint32_t *to;
        const uint32_t *from; /* NULL: words[first] and those behind */
        uint32_t first, words;
    } of[SLI_SENDS];
    uint32_t count, used; /* of `of`, of `words` */
    uint32_t words[SLI_SEND_WORDS];
} sli_sends;

/* Late sums that wait for the recurrence beside which they are to run, and what follows them. */
enum { SLI_LATE_MOST = 2 };
typedef struct sli_late {
    sli_late_sums sums;
    sli_call call;
    int numbers[SLI_LATE_NUMBERS];
} sli_late;

struct sli_queue {
    sli_device *device;
    cudaStream_t own, stream, side; /* stream: own, or a borrowed one */
    cudaStream_t in_use;            /* while work is recorded: `stream` before and after */
    cudaEvent_t forked, joined, passed;
    /* Uploads: pinned pieces, filled one after the other; a piece is used again when its event has passed. */
    unsigned char *ring;
    size_t ring_at; /* bytes used of the piece `ring_slot` */
    int ring_slot;
    cudaEvent_t ring_done[SLI_RING_SLOTS];
    bool ring_waits[SLI_RING_SLOTS];
    unsigned char *slots; /* pinned, SLI_READ_SLOTS of SLI_READ_BYTES */
    cudaEvent_t slot_done[SLI_READ_SLOTS];
    sli_sends sends;        /* to come before whatever is queued next */
    unsigned slots_to_pass; /* bit k: slot k is read with them */
    sl_status failed;
    bool fatal;
    char sentence[SLI_SENTENCE];
    bool recording_now;
    sli_put puts[SLI_PUTS]; /* while work is recorded: those to come before what is recorded next */
    int put_count;
    sli_recording *recordings;
    sli_recording *recorded; /* the one being made */
    cudaGraphNode_t *noted;  /* its launches of copies, zeros and operand rows */
    size_t noted_count, noted_room;
    sli_kept *kept;
    cudaStream_t lane[SLI_CUDA_LANES]; /* lanes.cu; 0: `stream` before they were opened */
    cudaEvent_t lane_passed[SLI_CUDA_LANES];
    int lanes_made, lanes_open, lane_in_use; /* lanes_open 0: none are */
    cudaStream_t late;                       /* lanes.cu; made when it is first needed */
    cudaEvent_t late_begun, late_done;
    bool late_open, late_began_here; /* it has not been settled; it was begun by the call that is being submitted */
    bool late_marked;                /* the point is set from which late sums may run */
    sli_late waiting[SLI_LATE_MOST];
    int waiting_count;
    int beside;    /* calls side by side that have not been settled, each in the next lane */
    bool in_range; /* an NVTX range of a phase is open */
    bool profiling;
    int last_phase;
    sli_marks marks;
    int tag;
    sli_profile seconds;
};

/* What was to be sent is sent first. */
sl_status sli_queue_enter(sli_queue *queue);
/* kernels/send.cu: `bytes` of the host, or, into memory that the GPU reads and the host too, of the GPU. false: they are too many, or
 * odd. now: those that wait. */
bool sli_queue_send(sli_queue *queue, void *to, const void *source, size_t bytes);
bool sli_queue_send_back(sli_queue *queue, void *to_host, const void *from, size_t bytes);
void sli_queue_send_now(sli_queue *queue);
/* kernels/copy.cu: sli_cuda_put into the queue's stream, recorded in as few kernels as its order allows; now: those that wait. */
void sli_queue_put(sli_queue *queue, void *to, const void *from, size_t bytes);
void sli_queue_put_now(sli_queue *queue);
/* A kernel that zeros `bytes` behind `count` nodes; false: they are too many, or odd, or it cannot be added. */
bool sli_graph_zero_node(cudaGraph_t graph, const cudaGraphNode_t *after, size_t count, void *to, size_t bytes,
                         cudaGraphNode_t *node);
/* Of nodes that were noted: makes `first`, of zeros alone or of operand rows, zero what `second` zeros, too, which then is one too many; false: they are other nodes, or it is too much for one. */
bool sli_graph_join_zeros(cudaGraphNode_t first, cudaGraphNode_t second);
/* The failure that is kept in the queue, or SL_OK. */
sl_status sli_queue_status(const sli_queue *queue);

/* queue.cu */
sl_status sli_cuda_queue_new(sli_device *device, sli_queue **queue);
void sli_cuda_queue_free(sli_queue *queue);
sl_status sli_cuda_upload(sli_queue *queue, void *to, const void *source, size_t bytes);
sl_status sli_cuda_download(sli_queue *queue, void *to_host, const void *from, size_t bytes);
sl_status sli_cuda_copy(sli_queue *queue, void *to, const void *from, size_t bytes);
sl_status sli_cuda_zero(sli_queue *queue, void *to, size_t bytes);
sl_status sli_cuda_submit(sli_queue *queue, sli_kernel_fn function, const sli_call *call);
sl_status sli_cuda_wait(sli_queue *queue);
sl_status sli_cuda_read_later(sli_queue *queue, int slot, const void *from, size_t bytes);
sl_status sli_cuda_read_slot(sli_queue *queue, int slot, void *to_host, size_t bytes);
sl_status sli_cuda_borrow_stream(sli_queue *queue, void *stream);
/* lanes.cu */
void sli_cuda_free_lanes(sli_queue *queue);
bool sli_lanes_begin_beside(sli_queue *queue); /* the call that comes now is in a lane of its own; false: a failure */
void sli_lanes_end_beside(sli_queue *queue);
sl_status sli_cuda_settle_queue(sli_queue *queue);
/* recording.cu */
sl_status sli_cuda_record_begin(sli_queue *queue);
sl_status sli_cuda_record_end(sli_queue *queue, sli_recording **recording);
sl_status sli_cuda_replay(sli_queue *queue, sli_recording *recording);
void sli_cuda_recording_free(sli_queue *queue, sli_recording *recording);
/* profile.cu */
sl_status sli_cuda_profile_begin(sli_queue *queue);
sl_status sli_cuda_profile_end(sli_queue *queue, double seconds[SLI_PHASE_COUNT]);
void sli_cuda_profile_tag(sli_queue *queue, int tag);
void sli_cuda_profile_tagged(const sli_queue *queue, double seconds[SLI_PROFILE_TAGS]);
void sli_profile_mark(sli_queue *queue, int phase, sli_recording *recording);
/* Work is recorded now, once for all: the time until it is replayed is no gap. */
void sli_profile_before_recording(sli_queue *queue);
void sli_profile_before_replay(sli_queue *queue, sli_recording *recording);
void sli_profile_forget(sli_queue *queue, sli_recording *recording); /* before it is freed */
void sli_profile_free(sli_queue *queue, sli_marks *marks);
/* products.cu */
bool sli_products_open(sli_why *why);
/* Opens cuBLASLt for the current device before anything is recorded; without cuBLASLt own kernels multiply. */
void sli_products_prepare(sli_device *device);

#endif
