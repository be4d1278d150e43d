/* Where the time goes: marks (events) between kernels, each naming the phase that begins there. Marks exist only while
 * profiling is on, so profile_begin comes before the first call that is recorded. Marks inside a recording are stamped anew
 * by every replay; they are read for one replay in SAMPLE, which costs a wait, and give the shares of the phases; the
 * stretch that follows such a wait belongs to nobody. Also an NVTX range for each phase, for the profilers. */
#include <string.h>
#include <nvtx3/nvToolsExt.h>

#include "backend/cuda/runtime/internal.h"

enum { SAMPLE = 16 };

static const char *const phase_names[SLI_PHASE_COUNT] = {"other",     "recurrence", "products", "softmax",
                                                         "optimizer", "copy",       "gap"};

/* A place at the end of `marks` with an event in it; NULL: no memory, or the event failed. */
static sli_mark *append(sli_queue *queue, sli_marks *marks) {
    const sl_allocator *allocator = &queue->device->allocator;
    if (marks->count == marks->capacity) {
        const int capacity = marks->capacity > 0 ? 2 * marks->capacity : 64;
        sli_mark *grown = (sli_mark *)sli_cuda_host_alloc(allocator, (size_t)capacity * sizeof *grown);
        if (!grown) return NULL;
        if (marks->mark) memcpy(grown, marks->mark, (size_t)marks->capacity * sizeof *grown);
        sli_cuda_host_free(allocator, marks->mark, (size_t)marks->capacity * sizeof *grown);
        marks->mark = grown;
        marks->capacity = capacity;
    }
    if (marks->count == marks->events) {
        if (!SLI_CU(queue, cudaEventCreate(&marks->mark[marks->count].event))) return NULL;
        marks->events++;
    }
    return &marks->mark[marks->count++];
}

/* The phase and the tag of mark i += time from mark i to mark i + 1. The last must have passed. */
static void add_stretches(sli_queue *queue, const sli_marks *marks, sli_profile *profile) {
    for (int i = 0; i + 1 < marks->count; i++) {
        const sli_mark *mark = &marks->mark[i];
        float milliseconds = 0;
        if (!SLI_CU(queue, cudaEventElapsedTime(&milliseconds, mark->event, mark[1].event))) return;
        const double stretch = 1e-3 * (double)milliseconds;
        profile->phase[mark->phase] += stretch;
        profile->tag[mark->tag] += stretch;
        if (mark->recording) mark->recording->replayed += stretch;
    }
}

/* Sums what has been marked so far; the next mark starts anew. */
static void collect(sli_queue *queue) {
    sli_marks *marks = &queue->marks;
    if (marks->count > 1 && SLI_CU(queue, cudaEventSynchronize(marks->mark[marks->count - 1].event)))
        add_stretches(queue, marks, &queue->seconds);
    marks->count = 0;
}

static void put(sli_queue *queue, int phase, sli_recording *recording) {
    sli_marks *marks = queue->recording_now ? &queue->recorded->marks : &queue->marks;
    sli_mark *mark = append(queue, marks);
    if (!mark) return;
    mark->phase = phase;
    mark->tag = queue->tag;
    mark->recording = recording;
    (void)SLI_CU(queue,
                 cudaEventRecordWithFlags(mark->event, queue->stream,
                                          queue->recording_now ? cudaEventRecordExternal : cudaEventRecordDefault));
}

void sli_profile_before_recording(sli_queue *queue) {
    sli_mark *last = queue->marks.count > 0 ? &queue->marks.mark[queue->marks.count - 1] : NULL;
    if (last && last->phase == SLI_PHASE_GAP) last->phase = SLI_PHASE_IGNORED;
}

void sli_profile_mark(sli_queue *queue, int phase, sli_recording *recording) {
    if (queue->lanes_open > 0) return; /* a stretch is between two marks of one stream */
    if (phase < SLI_PHASE_COUNT && queue->in_range) {
        nvtxRangePop();
        queue->in_range = false;
    }
    if (!queue->profiling || queue->failed != SL_OK) return;
    if (queue->recording_now) {
        /* Within a graph nothing waits for the host between two calls. */
        put(queue, phase == SLI_PHASE_GAP ? SLI_PHASE_OTHER : phase, NULL);
        return;
    }
    if (queue->marks.count >= SLI_MARKS) {
        put(queue, SLI_PHASE_IGNORED, NULL);
        collect(queue);
        put(queue, SLI_PHASE_IGNORED, NULL);
    }
    put(queue, phase, recording);
}

void sli_cuda_phase(sli_queue *queue, sli_phase phase) {
    if (queue->lanes_open > 0) return;
    sli_profile_mark(queue, phase, NULL);
    nvtxRangePushA(phase_names[phase]);
    queue->in_range = true;
}

/* Reads the stamps of the recording's last replay. */
static void read_stamps(sli_queue *queue, sli_recording *recording) {
    const sli_marks *marks = &recording->marks;
    if (recording->unread && marks->count > 1 &&
        SLI_CU(queue, cudaEventSynchronize(marks->mark[marks->count - 1].event)))
        add_stretches(queue, marks, &recording->sampled);
    recording->unread = false;
}

void sli_profile_before_replay(sli_queue *queue, sli_recording *recording) {
    if (!queue->profiling || queue->failed != SL_OK) return;
    if (recording->unread) {
        sli_mark *last = queue->marks.count > 0 ? &queue->marks.mark[queue->marks.count - 1] : NULL;
        if (last && last->phase == SLI_PHASE_GAP) last->phase = SLI_PHASE_IGNORED;
        read_stamps(queue, recording);
    }
    sli_profile_mark(queue, SLI_PHASE_REPLAY, recording);
    recording->unread = recording->replays++ % SAMPLE == 0;
}

/* queue->seconds += the recording's time, shared out as its samples say. */
static void share_out(sli_queue *queue, sli_recording *recording) {
    read_stamps(queue, recording);
    const sli_profile *sampled = &recording->sampled;
    double sum = 0;
    for (int i = 0; i < SLI_PHASE_COUNT; i++) sum += sampled->phase[i];
    for (int i = 0; i < SLI_PHASE_COUNT; i++)
        queue->seconds.phase[i] += sum > 0                ? recording->replayed * (sampled->phase[i] / sum)
                                   : i == SLI_PHASE_OTHER ? recording->replayed
                                                          : 0;
    for (int i = 1; i < SLI_PROFILE_TAGS && sum > 0; i++)
        queue->seconds.tag[i] += recording->replayed * (sampled->tag[i] / sum);
    recording->replayed = 0;
    recording->replays = 0;
    memset(&recording->sampled, 0, sizeof recording->sampled);
}

static void finish(sli_queue *queue) {
    if (queue->marks.count > 0) put(queue, SLI_PHASE_IGNORED, NULL);
    collect(queue);
}

void sli_profile_forget(sli_queue *queue, sli_recording *recording) {
    if (!queue->profiling || queue->failed != SL_OK || queue->recording_now) return;
    finish(queue);
    share_out(queue, recording);
}

void sli_profile_free(sli_queue *queue, sli_marks *marks) {
    for (int i = 0; i < marks->events; i++) (void)cudaEventDestroy(marks->mark[i].event);
    sli_cuda_host_free(&queue->device->allocator, marks->mark, (size_t)marks->capacity * sizeof *marks->mark);
    memset(marks, 0, sizeof *marks);
}

sl_status sli_cuda_profile_begin(sli_queue *queue) {
    SLI_TRY(sli_queue_enter(queue));
    if (queue->recording_now) return sli_cuda_host.fail(SL_ERR_INTERNAL, "profiling cannot begin inside a recording");
    memset(&queue->seconds, 0, sizeof queue->seconds);
    queue->tag = 0;
    queue->marks.count = 0;
    for (sli_recording *r = queue->recordings; r; r = r->next) {
        r->replayed = 0;
        r->replays = 0;
        r->unread = false;
        memset(&r->sampled, 0, sizeof r->sampled);
    }
    queue->profiling = true;
    return SL_OK;
}

sl_status sli_cuda_profile_end(sli_queue *queue, double seconds[SLI_PHASE_COUNT]) {
    memset(seconds, 0, SLI_PHASE_COUNT * sizeof *seconds);
    SLI_TRY(sli_queue_enter(queue));
    if (!queue->profiling) return sli_cuda_host.fail(SL_ERR_INTERNAL, "profiling was not begun");
    finish(queue);
    for (sli_recording *r = queue->recordings; r; r = r->next) share_out(queue, r);
    queue->profiling = false;
    memcpy(seconds, queue->seconds.phase, SLI_PHASE_COUNT * sizeof *seconds);
    return sli_queue_status(queue);
}

void sli_cuda_profile_tag(sli_queue *queue, int tag) {
    if (!queue->profiling || tag == queue->tag) return;
    sli_queue_put_now(queue);
    queue->tag = tag;
    sli_profile_mark(queue, SLI_PHASE_GAP, NULL);
}

void sli_cuda_profile_tagged(const sli_queue *queue, double seconds[SLI_PROFILE_TAGS]) {
    memcpy(seconds, queue->seconds.tag, SLI_PROFILE_TAGS * sizeof *seconds);
    seconds[0] = 0;
}
