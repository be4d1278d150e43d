/* How threads that share a step's units lend panels to each other. Each has a queue of groups of panels that are its own, which it takes
 * from the front; a thread without any takes from the ends of the others' queues. A product is a *round*; the next one begins when
 * all groups of it are computed, by whomever. So nobody waits for a thread, only for groups: a core that is slower for a while, by
 * whatever else runs on it, does less, and a thread that has no CPU holds up nobody but with the group that it is at.
 *
 * All that is known of a queue is one word
 *     round << 32 | first that is left << 16 | end
 * A word of an older round stands for a full queue of this one, because no round begins before all groups of the last one are
 * taken: whoever comes first opens a queue, be it of a thread that is still busy elsewhere. A thread that comes to a round that is over
 * finds nothing, and goes on to the next one. */
#ifndef SLI_CPU_PANEL_QUEUE_H
#define SLI_CPU_PANEL_QUEUE_H

#include "core/threads.h"

enum {
    SLI_PANEL_QUEUES = 64,       /* threads of a pass that lend */
    SLI_PANEL_QUEUE_MOST = 65535 /* groups */
};

typedef union sli_panel_queue {
    _Atomic uint64_t left; /* 0 before the first round, which is 1 */
    char pad[128];         /* two lines, which processors fetch together */
} sli_panel_queue;

typedef struct sli_panel_lending {
    union {
        struct {
            const sli_threads *threads;
            sli_panel_queue *queue; /* of each thread */
            _Atomic bool ended;     /* no round is left, said by a thread that has gone through all */
        };
        char pad0[128];
    };
    sli_event over; /* its count: rounds that are over */
    union {
        _Atomic int done; /* panels of this round that are computed */
        char pad1[128];
    };
} sli_panel_lending;

static inline void sli_panel_lending_begin(sli_panel_lending *lending, const sli_threads *threads,
                                           sli_panel_queue *queue, int count) {
    *lending = (sli_panel_lending){.threads = threads, .queue = queue};
    for (int i = 0; i < count; i++) atomic_init(&queue[i].left, 0);
}

/* Waits until the round before is over: what was computed in it is seen. False: `round` is over, too. */
static inline bool sli_panel_round_enter(sli_panel_lending *lending, uint32_t round) {
    for (;;) {
        const uint32_t over = sli_event_count(&lending->over);
        if ((int32_t)(over - round) >= 0) return false;
        if (over + 1 == round) return true;
        sli_event_wait(&lending->over, lending->threads, over);
    }
}

static inline bool sli_panel_round_over(const sli_panel_lending *lending, uint32_t round) {
    return (int32_t)(sli_event_count(&lending->over) - round) >= 0;
}

/* One of the `count` groups of a queue, the first that is left or the last; -1: there is none. */
static inline int sli_panel_queue_take(sli_panel_queue *queue, uint32_t round, int count, bool last) {
    uint64_t word = atomic_load(&queue->left);
    for (;;) {
        const bool open = (uint32_t)(word >> 32) == round;
        if ((int32_t)((uint32_t)(word >> 32) - round) > 0) return -1; /* this round is over */
        int first = open ? (int)(word >> 16 & 0xffff) : 0, end = open ? (int)(word & 0xffff) : count;
        if (first >= end) return -1;
        const int taken = last ? --end : first++;
        const uint64_t rest = (uint64_t)round << 32 | (uint64_t)first << 16 | (uint64_t)end;
        if (atomic_compare_exchange_strong(&queue->left, &word, rest)) return taken;
    }
}

/* A thread has computed so many panels more, of `all` that the round has: the last one ends it. */
static inline void sli_panel_round_done(sli_panel_lending *lending, int panels, int all) {
    if (panels == 0 || atomic_fetch_add(&lending->done, panels) + panels < all) return;
    atomic_store(&lending->done, 0);
    sli_event_signal(&lending->over);
}

#endif
