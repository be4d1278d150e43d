/* What a step sends and gets between two replays: tokens, targets, scalars, a report, some kilobytes in all. As copies each takes 2 us
 * and as long again before and after it (30 us of a step on an H200, 2026-11-22); here they are one kernel, whose arguments hold
 * what comes from the host. */
#include <string.h>

#include "backend/cuda/runtime/internal.h"

enum { SEND_THREADS = 128, SEND_BLOCKS = 4 };

static __global__ void __launch_bounds__(SEND_THREADS) send_all(const __grid_constant__ sli_sends sends) {
    const auto &of = sends.of[blockIdx.y];
    for (uint32_t i = blockIdx.x * SEND_THREADS + threadIdx.x; i < of.words; i += SEND_BLOCKS * SEND_THREADS)
        of.to[i] = of.from ? of.from[i] : sends.words[of.first + i];
}

static bool meet(const uint32_t *a, uint32_t a_words, const uint32_t *b, uint32_t b_words) {
    return a && b && a < b + b_words && b < a + a_words;
}

/* A place among those that wait, none of which it reads or writes what another writes; `own`: words of the host. NULL: none. */
static uint32_t *place_of(sli_queue *queue, void *to, const void *from, size_t bytes, bool own) {
    if (bytes == 0 || bytes > SLI_SEND_WORDS * sizeof(uint32_t) || ((uintptr_t)to | (uintptr_t)from | bytes) % 4 != 0)
        return NULL;
    sli_sends *sends = &queue->sends;
    const uint32_t words = (uint32_t)(bytes / sizeof(uint32_t));
    bool fits = sends->count < SLI_SENDS && (!own || sends->used + words <= SLI_SEND_WORDS);
    for (uint32_t i = 0; i < sends->count; i++) {
        const auto &other = sends->of[i];
        fits = fits && !meet(other.to, other.words, (uint32_t *)to, words) &&
               !meet(other.from, other.words, (uint32_t *)to, words) &&
               !meet(other.to, other.words, (const uint32_t *)from, words);
    }
    if (!fits) sli_queue_send_now(queue);
    auto &of = sends->of[sends->count++];
    of.to = (uint32_t *)to;
    of.from = (const uint32_t *)from;
    of.first = sends->used;
    of.words = words;
    if (own) sends->used += words;
    return sends->words + of.first;
}

bool sli_queue_send(sli_queue *queue, void *to, const void *source, size_t bytes) {
    uint32_t *words = place_of(queue, to, NULL, bytes, true);
    if (words) memcpy(words, source, bytes);
    return words != NULL;
}

bool sli_queue_send_back(sli_queue *queue, void *to_host, const void *from, size_t bytes) {
    return place_of(queue, to_host, from, bytes, false) != NULL;
}

void sli_queue_send_now(sli_queue *queue) {
    const uint32_t count = queue->sends.count;
    const unsigned slots = queue->slots_to_pass;
    if (count == 0) return;
    if (!sli_cuda_failed(queue)) {
        sli_profile_mark(queue, SLI_PHASE_COPY, NULL);
        send_all<<<dim3(SEND_BLOCKS, count), SEND_THREADS, 0, queue->stream>>>(queue->sends);
        (void)SLI_LAUNCHED(queue, "sending");
        for (int i = 0; i < SLI_READ_SLOTS; i++)
            if (slots >> i & 1u) (void)SLI_CU(queue, cudaEventRecord(queue->slot_done[i], queue->stream));
        sli_profile_mark(queue, SLI_PHASE_GAP, NULL);
    }
    queue->sends.count = queue->sends.used = 0;
    queue->slots_to_pass = 0;
}
