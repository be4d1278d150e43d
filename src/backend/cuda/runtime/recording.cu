/* Recordings: a call's work as one CUDA graph. Capture is relaxed: kernels that a library or the runtime loads at their
 * first use may be loaded meanwhile (drivers since CUDA 12.3 can), and other threads may allocate. It is always the queue's own
 * stream that is captured, which a default stream cannot be; replays go into the one in use. */
#include <stdlib.h>

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

/* ------------------------------------------------------------------------------------------------- launches of ours --
 * The runtime tells the parameters of its own launches; asked for those of a library's it fails, which compute-sanitizer takes for an error of the program.
 * So nodes that may be changed are noted when they are launched: then what the stream's next launch waits for is that node. */
static void note(sli_queue *queue, cudaGraphNode_t node) {
    if (queue->noted_count == queue->noted_room) {
        const size_t room = 2 * queue->noted_room + 16;
        cudaGraphNode_t *more = (cudaGraphNode_t *)realloc(queue->noted, room * sizeof *more);
        if (!more) return; /* it stays as it is */
        queue->noted = more;
        queue->noted_room = room;
    }
    queue->noted[queue->noted_count++] = node;
}

extern "C" void sli_cuda_note_launch(sli_queue *queue, cudaStream_t stream) {
    if (!queue->recording_now || sli_cuda_failed(queue)) return;
    cudaStreamCaptureStatus status;
    const cudaGraphNode_t *nodes = NULL;
    const cudaGraphEdgeData *edges = NULL;
    size_t count = 0;
    if (cudaStreamGetCaptureInfo(stream, &status, NULL, NULL, &nodes, &edges, &count) == cudaSuccess &&
        status == cudaStreamCaptureStatusActive && count == 1)
        note(queue, nodes[0]);
}

static bool is_noted(const sli_queue *queue, cudaGraphNode_t node) {
    for (size_t i = queue->noted_count; i > 0; i--)
        if (queue->noted[i - 1] == node) return true;
    return false;
}

static void forget_notes(sli_queue *queue) {
    free(queue->noted);
    queue->noted = NULL;
    queue->noted_count = queue->noted_room = 0;
}

/* ------------------------------------------------------------------------------------------------ zeros as kernels --
 * cuBLASLt zeros counters of its own by memset, which as a node of a graph makes what follows it begin 1.5 to 3 us late and what
 * follows that product 2 us late (kernels/copy.cu). A kernel takes its place, between the same nodes. */
enum { MOST_EDGES = 16 };

static bool zeros_by_kernel(sli_queue *queue, cudaGraph_t graph, cudaGraphNode_t node) {
    cudaMemsetParams zeros;
    cudaGraphNode_t before[MOST_EDGES], behind[MOST_EDGES], self[MOST_EDGES], kernel;
    cudaGraphEdgeData edge[MOST_EDGES];
    size_t count_before = MOST_EDGES, count_behind = MOST_EDGES;
    if (cudaGraphMemsetNodeGetParams(node, &zeros) != cudaSuccess || zeros.value != 0 || zeros.height > 1) return false;
    /* An array that is longer than its answer is filled up; one that is not, has perhaps no room for all. */
    if (cudaGraphNodeGetDependencies(node, before, edge, &count_before) != cudaSuccess || count_before == MOST_EDGES ||
        cudaGraphNodeGetDependentNodes(node, behind, edge, &count_behind) != cudaSuccess || count_behind == MOST_EDGES)
        return false;
    if (!sli_graph_zero_node(graph, before, count_before, zeros.dst, zeros.width * zeros.elementSize, &kernel))
        return false;
    for (size_t i = 0; i < count_behind; i++) self[i] = kernel;
    if (count_behind > 0 && cudaGraphAddDependencies(graph, self, behind, NULL, count_behind) != cudaSuccess) {
        (void)cudaGraphDestroyNode(kernel);
        return false;
    }
    note(queue, kernel);
    return cudaGraphDestroyNode(node) == cudaSuccess;
}

static void replace_memset(sli_queue *queue, cudaGraph_t graph, cudaGraphNode_t node) {
    cudaGraphNodeType type;
    if (cudaGraphNodeGetType(node, &type) == cudaSuccess && type == cudaGraphNodeTypeMemset)
        (void)zeros_by_kernel(queue, graph, node);
}

/* Zeros right behind zeros, of the exchange and of cuBLASLt's counters: one launch, a microsecond less before a product. What waits for the second waits
 * for the first; more edges than are needed, where not all can be changed, are right as well. */
static void join_zeros(sli_queue *queue, cudaGraph_t graph, cudaGraphNode_t node) {
    cudaGraphNode_t before[2], behind[MOST_EDGES], first[MOST_EDGES];
    cudaGraphEdgeData edge[MOST_EDGES];
    size_t count_before = 2, count_behind = MOST_EDGES, count_first = MOST_EDGES;
    if (!is_noted(queue, node) || cudaGraphNodeGetDependencies(node, before, edge, &count_before) != cudaSuccess ||
        count_before != 1 || !is_noted(queue, before[0]) ||
        cudaGraphNodeGetDependentNodes(node, behind, edge, &count_behind) != cudaSuccess || count_behind == MOST_EDGES ||
        cudaGraphNodeGetDependentNodes(before[0], first, edge, &count_first) != cudaSuccess || count_first == MOST_EDGES)
        return;
    if (!sli_graph_join_zeros(before[0], node)) return;
    for (size_t i = 0; i < count_behind; i++) {
        bool there = false;
        for (size_t j = 0; j < count_first; j++) /* and waits for all of it, not for its beginning */
            there = there || (first[j] == behind[i] && edge[j].from_port == cudaGraphKernelNodePortDefault);
        if (!there && cudaGraphAddDependencies(graph, &before[0], &behind[i], NULL, 1) != cudaSuccess) return;
    }
    (void)cudaGraphDestroyNode(node);
}

/* A graph that cannot be changed, be it for want of memory, is right as it was recorded. */
static void change_each(sli_queue *queue, cudaGraph_t graph, void (*change)(sli_queue *, cudaGraph_t, cudaGraphNode_t)) {
    size_t count = 0;
    if (cudaGraphGetNodes(graph, NULL, &count) != cudaSuccess) count = 0;
    cudaGraphNode_t *nodes = count > 0 ? (cudaGraphNode_t *)malloc(count * sizeof *nodes) : NULL;
    if (nodes && cudaGraphGetNodes(graph, nodes, &count) == cudaSuccess)
        for (size_t i = 0; i < count; i++) change(queue, graph, nodes[i]);
    free(nodes);
    (void)cudaGetLastError();
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
    if (queue->failed == SL_OK) {
        change_each(queue, graph, replace_memset);
        change_each(queue, graph, join_zeros);
    }
    forget_notes(queue);
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
