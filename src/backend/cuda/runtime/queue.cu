/* The queue: streams, uploads through pinned memory, downloads, reading back without stalling, kept objects. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/runtime/internal.h"

sl_status sli_queue_status(const sli_queue *queue) {
    return queue->failed == SL_OK ? SL_OK : sli_cuda_host.fail(queue->failed, "%s", queue->sentence);
}

/* Without what waits to be sent. */
static sl_status enter(sli_queue *queue) {
    if (queue->failed == SL_OK) (void)SLI_CU(queue, cudaSetDevice(queue->device->index));
    return sli_queue_status(queue);
}

sl_status sli_queue_enter(sli_queue *queue) {
    SLI_TRY(enter(queue));
    sli_queue_send_now(queue);
    return sli_queue_status(queue);
}

cudaStream_t sli_cuda_stream(sli_queue *queue) {
    return queue->stream;
}

const sli_caps *sli_cuda_caps_of(const sli_queue *queue) {
    return &queue->device->caps;
}

/* -------------------------------------------------------------------------------------------------- birth, death -- */
static bool make_event(sli_queue *queue, cudaEvent_t *event) {
    return SLI_CU(queue, cudaEventCreateWithFlags(event, cudaEventDisableTiming));
}

static bool make_streams(sli_queue *queue) {
    if (!SLI_CU(queue, cudaStreamCreateWithFlags(&queue->own, cudaStreamNonBlocking))) return false;
    if (!SLI_CU(queue, cudaStreamCreateWithFlags(&queue->side, cudaStreamNonBlocking))) return false;
    queue->stream = queue->own;
    bool well =
        make_event(queue, &queue->forked) && make_event(queue, &queue->joined) && make_event(queue, &queue->passed);
    for (int i = 0; well && i < SLI_RING_SLOTS; i++) well = make_event(queue, &queue->ring_done[i]);
    for (int i = 0; well && i < SLI_READ_SLOTS; i++) well = make_event(queue, &queue->slot_done[i]);
    return well;
}

sl_status sli_cuda_queue_new(sli_device *device, sli_queue **queue) {
    *queue = NULL;
    SLI_TRY(sli_cuda_enter(device));
    sli_queue *made = (sli_queue *)sli_cuda_host_alloc(&device->allocator, sizeof *made);
    if (!made) return sli_cuda_host.fail(SL_ERR_OUT_OF_MEMORY, "out of memory: a queue needs %zu bytes", sizeof *made);
    made->device = device;
    if (!make_streams(made)) {
        const sl_status status = sli_queue_status(made);
        sli_cuda_queue_free(made);
        return status;
    }
    *queue = made;
    return SL_OK;
}

static void free_kept(sli_queue *queue, sli_kept *kept) {
    if (kept->object && kept->free_kept) kept->free_kept(kept->object);
    sli_cuda_host_free(&queue->device->allocator, kept->key, kept->key_bytes > 0 ? kept->key_bytes : 1);
    sli_cuda_host_free(&queue->device->allocator, kept, sizeof *kept);
}

static void free_all_kept(sli_queue *queue) {
    while (queue->kept) {
        sli_kept *kept = queue->kept;
        queue->kept = kept->next;
        free_kept(queue, kept);
    }
}

static void free_event(cudaEvent_t event) {
    if (event) (void)cudaEventDestroy(event);
}

/* After a fatal error every call here fails too, which nobody needs to know. A borrowed stream is given back before it is
 * destroyed, or outlives the queue. */
void sli_cuda_queue_free(sli_queue *queue) {
    if (!queue) return;
    (void)cudaSetDevice(queue->device->index);
    queue->sends.count = 0; /* of no use to anybody, and their memory may be gone */
    if (queue->own) (void)cudaStreamSynchronize(queue->own);
    if (queue->stream && queue->stream != queue->own) (void)cudaStreamSynchronize(queue->stream);
    if (queue->side) (void)cudaStreamSynchronize(queue->side);
    while (queue->recordings) sli_cuda_recording_free(queue, queue->recordings);
    free(queue->noted); /* of a recording that has not ended */
    free_all_kept(queue);
    sli_profile_free(queue, &queue->marks);
    free_event(queue->forked);
    free_event(queue->joined);
    free_event(queue->passed);
    for (int i = 0; i < SLI_RING_SLOTS; i++) free_event(queue->ring_done[i]);
    for (int i = 0; i < SLI_READ_SLOTS; i++) free_event(queue->slot_done[i]);
    if (queue->ring) (void)cudaFreeHost(queue->ring);
    if (queue->slots) (void)cudaFreeHost(queue->slots);
    sli_cuda_free_lanes(queue);
    if (queue->side) (void)cudaStreamDestroy(queue->side);
    if (queue->own) (void)cudaStreamDestroy(queue->own);
    (void)cudaGetLastError();
    sli_cuda_host_free(&queue->device->allocator, queue, sizeof *queue);
}

/* ------------------------------------------------------------------------------------------------- host -> device -- */
/* Room for some of `bytes` in the ring; *got: how many. NULL after a failure. */
static unsigned char *ring_room(sli_queue *queue, size_t bytes, size_t *got) {
    if (!queue->ring && !SLI_CU(queue, cudaHostAlloc((void **)&queue->ring, (size_t)SLI_RING_SLOTS * SLI_RING_BYTES,
                                                     cudaHostAllocDefault)))
        return NULL;
    if (queue->ring_at == SLI_RING_BYTES) {
        const int full = queue->ring_slot, next = (full + 1) % SLI_RING_SLOTS;
        if (!SLI_CU(queue, cudaEventRecord(queue->ring_done[full], queue->stream))) return NULL;
        queue->ring_waits[full] = true;
        if (queue->ring_waits[next] && !SLI_CU(queue, cudaEventSynchronize(queue->ring_done[next]))) return NULL;
        queue->ring_waits[next] = false;
        queue->ring_slot = next;
        queue->ring_at = 0;
    }
    const size_t room = SLI_RING_BYTES - queue->ring_at;
    *got = bytes < room ? bytes : room;
    unsigned char *at = queue->ring + (size_t)queue->ring_slot * SLI_RING_BYTES + queue->ring_at;
    queue->ring_at += sli_round_up(*got, SLI_ALIGN);
    return at;
}

static sl_status refuse_recording(const sli_queue *queue, const char *what) {
    if (!queue->recording_now) return SL_OK;
    return sli_cuda_host.fail(SL_ERR_INTERNAL, "%s is not allowed while work is being recorded", what);
}

static bool is_captured_stream(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    /* The legacy default stream says so by an error, which belongs to nobody's work. */
    if (cudaStreamIsCapturing(stream, &status) == cudaSuccess) return status != cudaStreamCaptureStatusNone;
    return cudaGetLastError() == cudaErrorStreamCaptureImplicit;
}

/* A borrowed stream may be captured by its owner. */
static bool is_captured(sli_queue *queue) {
    return queue->stream != queue->own && is_captured_stream(queue->stream);
}

sl_status sli_cuda_upload(sli_queue *queue, void *to, const void *source, size_t bytes) {
    SLI_TRY(refuse_recording(queue, "an upload"));
    SLI_TRY(enter(queue));
    if (bytes == 0) return SL_OK;
    if (is_captured(queue)) /* replays would copy what then lies in the ring */
        return sli_cuda_host.fail(SL_ERR_USAGE,
                                  "numbers of the host cannot be sent while the stream is captured; do the same call, "
                                  "with the same step, before the capture, and give tensors of the GPU");
    if (sli_queue_send(queue, to, source, bytes)) {
        if (queue->stream != queue->own) sli_queue_send_now(queue); /* its owner may capture it next */
        return sli_queue_status(queue);
    }
    sli_queue_send_now(queue);
    sli_profile_mark(queue, SLI_PHASE_COPY, NULL);
    for (size_t done = 0, piece; done < bytes; done += piece) {
        unsigned char *staged = ring_room(queue, bytes - done, &piece);
        if (!staged) return sli_queue_status(queue);
        memcpy(staged, (const char *)source + done, piece);
        if (!SLI_CU(queue, cudaMemcpyAsync((char *)to + done, staged, piece, cudaMemcpyHostToDevice, queue->stream)))
            return sli_queue_status(queue);
    }
    sli_profile_mark(queue, SLI_PHASE_GAP, NULL);
    return SL_OK;
}

/* ------------------------------------------------------------------------------------------------- device -> host -- */
sl_status sli_cuda_wait(sli_queue *queue) {
    SLI_TRY(refuse_recording(queue, "waiting"));
    SLI_TRY(sli_queue_enter(queue));
    (void)SLI_CU(queue, cudaStreamSynchronize(queue->stream));
    return sli_queue_status(queue);
}

sl_status sli_cuda_download(sli_queue *queue, void *to_host, const void *from, size_t bytes) {
    SLI_TRY(refuse_recording(queue, "a download"));
    SLI_TRY(sli_queue_enter(queue));
    if (bytes > 0) {
        sli_profile_mark(queue, SLI_PHASE_COPY, NULL);
        (void)SLI_CU(queue, cudaMemcpyAsync(to_host, from, bytes, cudaMemcpyDeviceToHost, queue->stream));
        sli_profile_mark(queue, SLI_PHASE_IGNORED, NULL); /* the host does something with it: saves a checkpoint */
    }
    (void)SLI_CU(queue, cudaStreamSynchronize(queue->stream));
    return sli_queue_status(queue);
}

static sl_status check_slot(int slot, size_t bytes) {
    if (slot >= 0 && slot < SLI_READ_SLOTS && bytes <= SLI_READ_BYTES) return SL_OK;
    return sli_cuda_host.fail(SL_ERR_INTERNAL, "read slot %d of %zu bytes: there are %d of %d bytes", slot, bytes,
                              (int)SLI_READ_SLOTS, (int)SLI_READ_BYTES);
}

sl_status sli_cuda_read_later(sli_queue *queue, int slot, const void *from, size_t bytes) {
    SLI_TRY(check_slot(slot, bytes));
    SLI_TRY(refuse_recording(queue, "reading later"));
    SLI_TRY(enter(queue));
    if (!queue->slots && !SLI_CU(queue, cudaHostAlloc((void **)&queue->slots, (size_t)SLI_READ_SLOTS * SLI_READ_BYTES,
                                                      cudaHostAllocDefault)))
        return sli_queue_status(queue);
    unsigned char *place = queue->slots + (size_t)slot * SLI_READ_BYTES;
    if (bytes > 0 && !is_captured(queue) && sli_queue_send_back(queue, place, from, bytes)) {
        queue->slots_to_pass |= 1u << slot;
        if (queue->stream != queue->own) sli_queue_send_now(queue); /* its owner may capture it next */
        return sli_queue_status(queue);
    }
    sli_queue_send_now(queue);
    if (bytes > 0) (void)SLI_CU(queue, cudaMemcpyAsync(place, from, bytes, cudaMemcpyDeviceToHost, queue->stream));
    (void)SLI_CU(queue, cudaEventRecord(queue->slot_done[slot], queue->stream));
    return sli_queue_status(queue);
}

sl_status sli_cuda_read_slot(sli_queue *queue, int slot, void *to_host, size_t bytes) {
    SLI_TRY(check_slot(slot, bytes));
    SLI_TRY(enter(queue));
    if (queue->slots_to_pass >> slot & 1u) sli_queue_send_now(queue);
    if (!queue->slots) return sli_cuda_host.fail(SL_ERR_INTERNAL, "read slot %d was never written", slot);
    if (SLI_CU(queue, cudaEventSynchronize(queue->slot_done[slot])))
        memcpy(to_host, queue->slots + (size_t)slot * SLI_READ_BYTES, bytes);
    return sli_queue_status(queue);
}

/* ------------------------------------------------------------------------------------------------ on the device -- */
/* from NULL: zeros */
sl_status sli_cuda_copy(sli_queue *queue, void *to, const void *from, size_t bytes) {
    SLI_TRY(sli_queue_enter(queue));
    if (bytes == 0) return SL_OK;
    sli_queue_put(queue, to, from, bytes);
    return sli_queue_status(queue);
}

sl_status sli_cuda_zero(sli_queue *queue, void *to, size_t bytes) {
    return sli_cuda_copy(queue, to, NULL, bytes);
}

sl_status sli_cuda_submit(sli_queue *queue, sli_kernel_fn function, const sli_call *call) {
    SLI_TRY(sli_queue_enter(queue));
    sli_queue_put_now(queue);
    sli_call copy = *call;
    copy.queue = queue;
    copy.threads = NULL;
    copy.cpu = NULL;
    /* In lanes nothing is marked: what runs side by side are packed copies. */
    sli_cuda_phase(queue, copy.beside ? SLI_PHASE_OPTIMIZER : SLI_PHASE_OTHER);
    queue->late_began_here = false;
    if (copy.beside && !sli_lanes_begin_beside(queue)) return sli_queue_status(queue);
    function(&copy);
    if (copy.beside) sli_lanes_end_beside(queue);
    /* Memory of what is late is kept up to this call's end, whether or not it has sums of its own to leave. */
    if (copy.late && !queue->late_began_here) sli_cuda_settle(queue);
    sli_profile_mark(queue, SLI_PHASE_GAP, NULL);
    return sli_queue_status(queue);
}

sl_status sli_cuda_borrow_stream(sli_queue *queue, void *stream) {
    SLI_TRY(refuse_recording(queue, "changing the stream"));
    const sl_status entered = sli_queue_enter(queue);
    if (entered != SL_OK && stream == SLI_OWN_STREAM) queue->stream = queue->own; /* the caller may destroy the other one */
    if (entered != SL_OK) return entered;
    const cudaStream_t next = stream == SLI_OWN_STREAM ? queue->own : stream ? (cudaStream_t)stream : cudaStreamLegacy;
    if (next == queue->stream) return SL_OK;
    if (is_captured(queue))
        return sli_cuda_host.fail(SL_ERR_USAGE, "the stream that was given before is captured, or waits for one that is; end the capture first");
    /* What is queued comes first. An idle stream needs no event, which a stream under capture would not take. */
    const cudaError_t idle = cudaStreamQuery(queue->stream);
    if (idle == cudaErrorNotReady) {
        (void)cudaGetLastError();
        if (is_captured_stream(next))
            return sli_cuda_host.fail(SL_ERR_USAGE, "work is under way in the stream that was given before; wait for it "
                                                    "(cudaStreamSynchronize) before the next one is captured");
        (void)(SLI_CU(queue, cudaEventRecord(queue->passed, queue->stream)) &&
               SLI_CU(queue, cudaStreamWaitEvent(next, queue->passed, 0)));
    } else {
        (void)sli_cuda_try(queue, sli_cuda_injected(idle), "cudaStreamQuery");
    }
    queue->stream = next;
    return sli_queue_status(queue);
}

cudaStream_t sli_cuda_fork(sli_queue *queue) {
    if (queue->failed == SL_OK)
        (void)(SLI_CU(queue, cudaEventRecord(queue->forked, queue->stream)) &&
               SLI_CU(queue, cudaStreamWaitEvent(queue->side, queue->forked, 0)));
    return queue->side;
}

void sli_cuda_join(sli_queue *queue) {
    /* Also after a failure: a recording cannot be ended before the side stream has joined. */
    (void)(SLI_CU(queue, cudaEventRecord(queue->joined, queue->side)) &&
           SLI_CU(queue, cudaStreamWaitEvent(queue->stream, queue->joined, 0)));
}

/* ------------------------------------------------------------------------------------------------ kept objects --
 * The last used comes first. Calls of ever new sizes do not keep ever more: the one that was not used for longest goes. What a
 * recording or a captured stream has used stays. */
static void use_kept(sli_queue *queue, sli_kept *kept) {
    kept->next = queue->kept;
    queue->kept = kept;
    if (!kept->recorded) kept->recorded = queue->recording_now || is_captured(queue);
}

static void drop_oldest(sli_queue *queue) {
    int count = 0;
    sli_kept **oldest = NULL;
    for (sli_kept **at = &queue->kept; *at; at = &(*at)->next, count++)
        if (!(*at)->recorded) oldest = at;
    /* What runs beside the queue's stream is not waited for below, and may be using it. */
    const bool beside = queue->lanes_open > 0 || queue->late_open;
    if (count < SLI_MOST_KEPT || !oldest || queue->recording_now || beside || is_captured(queue)) return;
    if (!SLI_CU(queue, cudaStreamSynchronize(queue->stream))) return;
    sli_kept *kept = *oldest;
    *oldest = kept->next;
    free_kept(queue, kept);
}

void *sli_cuda_keep(sli_queue *queue, const void *key, size_t key_bytes,
                    void *(*make)(sli_queue *queue, const void *key), void (*free_object)(void *object)) {
    for (sli_kept **at = &queue->kept; *at; at = &(*at)->next) {
        sli_kept *found = *at;
        if (found->key_bytes != key_bytes || memcmp(found->key, key, key_bytes) != 0) continue;
        *at = found->next;
        use_kept(queue, found);
        return found->object;
    }
    drop_oldest(queue);
    const sl_allocator *allocator = &queue->device->allocator;
    sli_kept *kept = (sli_kept *)sli_cuda_host_alloc(allocator, sizeof *kept);
    void *own_key = kept ? sli_cuda_host_alloc(allocator, key_bytes > 0 ? key_bytes : 1) : NULL;
    if (!own_key) {
        sli_cuda_host_free(allocator, kept, sizeof *kept);
        sli_cuda_fail(queue, SL_ERR_OUT_OF_MEMORY, "out of memory: an object of a queue needs %zu bytes", key_bytes);
        return NULL;
    }
    memcpy(own_key, key, key_bytes);
    kept->object = make(queue, key);
    if (!kept->object) { /* tried again at the next call */
        sli_cuda_host_free(allocator, own_key, key_bytes);
        sli_cuda_host_free(allocator, kept, sizeof *kept);
        return NULL;
    }
    kept->key = own_key;
    kept->key_bytes = key_bytes;
    kept->free_kept = free_object;
    use_kept(queue, kept);
    return kept->object;
}
