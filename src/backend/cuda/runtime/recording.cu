/* Recordings: a call's work as one CUDA graph. Capture is relaxed: kernels that a library or the runtime loads at their
 * first use may be loaded meanwhile (drivers since CUDA 12.3 can), and other threads may allocate. It is always the queue's own
 * stream that is captured, which a default stream cannot be; replays go into the one in use. */
#include "backend/cuda/runtime/internal.h"

sl_status sli_cuda_record_begin(sli_queue *queue) {
    if (queue->recording_now) return sli_cuda_host.fail(SL_ERR_INTERNAL, "this queue records already");
    SLI_TRY(sli_queue_enter(queue));
    const sl_allocator *allocator = &queue->device->allocator;
    sli_recording *made = (sli_recording *)sli_cuda_host_alloc(allocator, sizeof *made);
    if (!made)
        return sli_cuda_host.fail(SL_ERR_OUT_OF_MEMORY, "out of memory: a recording needs %zu bytes", sizeof *made);
    sli_profile_before_recording(queue);
    if (!SLI_CU(queue, cudaStreamBeginCapture(queue->own, cudaStreamCaptureModeRelaxed))) {
        sli_cuda_host_free(allocator, made, sizeof *made);
        return sli_queue_status(queue);
    }
    queue->in_use = queue->stream;
    queue->stream = queue->own;
    queue->recorded = made;
    queue->recording_now = true;
    queue->put_count = 0;
    return SL_OK;
}

/* Takes back what a failed recording left behind: only what ended the GPU's use outlasts it. */
static sl_status failed_recording(sli_queue *queue, sli_recording *made) {
    const sl_status status = sli_queue_status(queue);
    sli_profile_free(queue, &made->marks);
    sli_cuda_host_free(&queue->device->allocator, made, sizeof *made);
    (void)cudaGetLastError();
    if (!queue->fatal) queue->failed = SL_OK;
    return status;
}

sl_status sli_cuda_record_end(sli_queue *queue, sli_recording **recording) {
    *recording = NULL;
    if (!queue->recording_now) return sli_cuda_host.fail(SL_ERR_INTERNAL, "this queue records nothing");
    sli_recording *made = queue->recorded;
    sli_queue_put_now(queue);
    sli_cuda_settle(queue);
    sli_profile_mark(queue, SLI_PHASE_OTHER, NULL);
    queue->recorded = NULL;
    queue->recording_now = false;
    (void)SLI_CU(queue, cudaSetDevice(queue->device->index));
    cudaGraph_t graph = NULL;
    (void)SLI_CU(queue, cudaStreamEndCapture(queue->own, &graph));
    queue->stream = queue->in_use;
    if (queue->failed == SL_OK && !graph)
        sli_cuda_fail(queue, SL_ERR_DEVICE, "recording on GPU %d gave no graph; run without recording",
                      queue->device->index);
    if (queue->failed == SL_OK &&
        SLI_CU(queue, cudaGraphInstantiate(&made->graph, graph, cudaGraphInstantiateFlagUseNodePriority)))
        (void)SLI_CU(queue, cudaGraphUpload(made->graph, queue->stream));
    if (graph) (void)cudaGraphDestroy(graph);
    if (queue->failed != SL_OK) {
        if (made->graph) (void)cudaGraphExecDestroy(made->graph);
        return failed_recording(queue, made);
    }
    made->next = queue->recordings;
    queue->recordings = made;
    *recording = made;
    return SL_OK;
}

sl_status sli_cuda_replay(sli_queue *queue, sli_recording *recording) {
    SLI_TRY(sli_queue_enter(queue));
    if (queue->recording_now) return sli_cuda_host.fail(SL_ERR_INTERNAL, "a replay cannot be recorded");
    sli_profile_before_replay(queue, recording);
    (void)SLI_CU(queue, cudaGraphLaunch(recording->graph, queue->stream));
    sli_profile_mark(queue, SLI_PHASE_GAP, NULL);
    return sli_queue_status(queue);
}

void sli_cuda_recording_free(sli_queue *queue, sli_recording *recording) {
    if (!recording) return;
    (void)cudaSetDevice(queue->device->index);
    sli_profile_forget(queue, recording);
    sli_recording **at = &queue->recordings;
    while (*at && *at != recording) at = &(*at)->next;
    if (*at) *at = recording->next;
    /* A graph that still runs is kept by the driver until it is done; its marks' events are not. */
    if (recording->marks.events > 0) (void)cudaStreamSynchronize(queue->stream);
    if (recording->graph) (void)cudaGraphExecDestroy(recording->graph);
    sli_profile_free(queue, &recording->marks);
    (void)cudaGetLastError();
    sli_cuda_host_free(&queue->device->allocator, recording, sizeof *recording);
}
