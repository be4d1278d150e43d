/* Lanes: streams side by side inside one call. Lane 0 is the stream that the call began in; the others are made when they are first
 * needed and last as long as the queue. While lanes are open nothing is marked: the time of all of them together belongs to the
 * phase in which they were opened. */
#include "backend/cuda/runtime/internal.h"

static bool make_lanes(sli_queue *queue, int count) {
    for (; queue->lanes_made < count; queue->lanes_made++) {
        const int lane = queue->lanes_made;
        cudaStream_t stream = NULL;
        if (lane > 0 && !SLI_CU(queue, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking))) return false;
        queue->lane[lane] = stream;
        if (!SLI_CU(queue, cudaEventCreateWithFlags(&queue->lane_passed[lane], cudaEventDisableTiming))) {
            if (stream) (void)cudaStreamDestroy(stream);
            return false;
        }
    }
    return true;
}

bool sli_cuda_open_lanes(sli_queue *queue, int count) {
    if (queue->failed != SL_OK) return false;
    if (count < 1 || count > SLI_CUDA_LANES || queue->lanes_open > 0) {
        sli_cuda_fail(queue, SL_ERR_INTERNAL, "%d lanes of a queue that has %d open: there are %d", count,
                      queue->lanes_open, (int)SLI_CUDA_LANES);
        return false;
    }
    if (!make_lanes(queue, count) || !SLI_CU(queue, cudaEventRecord(queue->forked, queue->stream))) return false;
    queue->lane[0] = queue->stream;
    queue->lane_in_use = 0;
    queue->lanes_open = 1;
    for (; queue->lanes_open < count; queue->lanes_open++)
        if (!SLI_CU(queue, cudaStreamWaitEvent(queue->lane[queue->lanes_open], queue->forked, 0))) return false;
    return true;
}

void sli_cuda_use_lane(sli_queue *queue, int lane) {
    queue->lane_in_use = lane;
    queue->stream = queue->lane[lane];
}

void sli_cuda_pass_lane(sli_queue *queue) {
    if (queue->failed == SL_OK)
        (void)SLI_CU(queue, cudaEventRecord(queue->lane_passed[queue->lane_in_use], queue->stream));
}

void sli_cuda_wait_lane(sli_queue *queue, int lane) {
    if (queue->failed == SL_OK) (void)SLI_CU(queue, cudaStreamWaitEvent(queue->stream, queue->lane_passed[lane], 0));
}

void sli_cuda_close_lanes(sli_queue *queue) {
    if (queue->lanes_open == 0) return;
    sli_cuda_use_lane(queue, 0);
    /* Also after a failure: a recording cannot be ended before all lanes have joined. */
    for (int lane = 1; lane < queue->lanes_open; lane++)
        (void)(SLI_CU(queue, cudaEventRecord(queue->lane_passed[lane], queue->lane[lane])) &&
               SLI_CU(queue, cudaStreamWaitEvent(queue->stream, queue->lane_passed[lane], 0)));
    queue->lanes_open = 0;
}

bool sli_cuda_in_lanes(const sli_queue *queue) {
    return queue->lanes_open > 0;
}

/* --------------------------------------------------------------------------------------------------------- late --
 * One stream beside the queue's, from the recurrence that follows a call with sli_call.late to the next such call, or to the end of
 * backward. */
static bool make_late(sli_queue *queue) {
    if (queue->late) return true;
    /* Events of a try that failed are there already. */
    return (queue->late_begun || SLI_CU(queue, cudaEventCreateWithFlags(&queue->late_begun, cudaEventDisableTiming))) &&
           (queue->late_done || SLI_CU(queue, cudaEventCreateWithFlags(&queue->late_done, cudaEventDisableTiming))) &&
           SLI_CU(queue, cudaStreamCreateWithFlags(&queue->late, cudaStreamNonBlocking));
}

static void wait_with(sli_queue *queue, sli_late_sums sums, const sli_call *call, const int *numbers) {
    sli_late *late = &queue->waiting[queue->waiting_count++];
    late->sums = sums;
    late->call = *call;
    for (int i = 0; i < SLI_LATE_NUMBERS; i++) late->numbers[i] = numbers ? numbers[i] : 0;
}

void sli_cuda_leave_late(sli_queue *queue, sli_late_sums sums, const sli_call *call, const int *numbers) {
    sli_cuda_settle(queue);
    if (queue->failed != SL_OK || !make_late(queue)) return;
    queue->late_open = queue->late_began_here = true;
    wait_with(queue, sums, call, numbers);
}

bool sli_cuda_follow_late(sli_queue *queue, sli_late_sums sums, const sli_call *call) {
    const int none[SLI_LATE_NUMBERS] = {0};
    if (!queue->late_open) return false;
    queue->late_began_here = true;
    if (queue->waiting_count > 0 && queue->waiting_count < SLI_LATE_MOST) {
        wait_with(queue, sums, call, none);
        return true;
    }
    sli_cuda_start_late(queue);
    sums(call, none, queue->late);
    return true;
}

void sli_cuda_mark_late(sli_queue *queue) {
    if (queue->waiting_count == 0 || queue->late_marked) return;
    queue->late_marked = SLI_CU(queue, cudaEventRecord(queue->late_begun, queue->stream)) &&
                         SLI_CU(queue, cudaStreamWaitEvent(queue->late, queue->late_begun, 0));
}

void sli_cuda_start_late(sli_queue *queue) {
    const int count = queue->waiting_count;
    sli_cuda_mark_late(queue);
    queue->waiting_count = 0; /* what is late now launches no recurrence, and leaves nothing */
    queue->late_marked = false;
    for (int i = 0; i < count && queue->failed == SL_OK; i++) {
        const sli_late *late = &queue->waiting[i];
        late->sums(&late->call, late->numbers, queue->late);
    }
}

bool sli_cuda_is_late(const sli_queue *queue) {
    return queue->late_open;
}

bool sli_cuda_awaits_late(const sli_queue *queue) {
    return queue->waiting_count > 0;
}

/* More calls than lanes: in turn. */
enum { BESIDE = 3 };

bool sli_lanes_begin_beside(sli_queue *queue) {
    if (queue->beside == 0 && !sli_cuda_open_lanes(queue, BESIDE)) {
        sli_cuda_close_lanes(queue);
        return false;
    }
    sli_cuda_use_lane(queue, queue->beside++ % BESIDE);
    return true;
}

void sli_lanes_end_beside(sli_queue *queue) {
    sli_cuda_use_lane(queue, 0);
}

void sli_cuda_settle(sli_queue *queue) {
    if (queue->beside > 0) sli_cuda_close_lanes(queue);
    queue->beside = 0;
    if (!queue->late_open) return;
    sli_cuda_start_late(queue); /* no recurrence came */
    /* Also after a failure: a recording cannot be ended before all of its streams have joined. */
    (void)(SLI_CU(queue, cudaEventRecord(queue->late_done, queue->late)) &&
           SLI_CU(queue, cudaStreamWaitEvent(queue->stream, queue->late_done, 0)));
    queue->late_open = false;
}

sl_status sli_cuda_settle_queue(sli_queue *queue) {
    SLI_TRY(sli_queue_enter(queue));
    if (queue->late_open) sli_cuda_phase(queue, SLI_PHASE_PRODUCT); /* the wait for them */
    sli_cuda_settle(queue);
    sli_profile_mark(queue, SLI_PHASE_GAP, NULL);
    return sli_queue_status(queue);
}

/* ------------------------------------------------------------------------------------------------------- the end -- */
void sli_cuda_free_lanes(sli_queue *queue) {
    if (queue->late_begun) (void)cudaEventDestroy(queue->late_begun);
    if (queue->late_done) (void)cudaEventDestroy(queue->late_done);
    if (queue->late) {
        (void)cudaStreamSynchronize(queue->late);
        (void)cudaStreamDestroy(queue->late);
    }
    for (int lane = 0; lane < queue->lanes_made; lane++) {
        (void)cudaEventDestroy(queue->lane_passed[lane]);
        if (lane == 0) continue; /* the queue's own, or borrowed */
        (void)cudaStreamSynchronize(queue->lane[lane]);
        (void)cudaStreamDestroy(queue->lane[lane]);
    }
    queue->lanes_made = 0;
}
