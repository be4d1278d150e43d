/* Rounds of lent panels: every group once, no round before the last one is over, whoever comes late. */
#include "backend/cpu/panel_queue.h"

#include <stdlib.h>
#include <time.h>
#include "test.h"

enum { THREADS = 4, ROUNDS = 3000, MOST_GROUPS = 7 };

typedef struct sharing {
    sli_panel_lending lending;
    sli_panel_queue queues[THREADS];
    int written[2][THREADS * MOST_GROUPS]; /* of even and odd rounds; plain: rounds order them */
    atomic_int groups, early;
    int members;
} sharing;

/* Groups of a member's queue in a round: of some none. */
static int groups_of(int member, int round) {
    return (member * 5 + round) % (MOST_GROUPS + 1);
}

static int all_groups(const sharing *s, int round) {
    int all = 0;
    for (int m = 0; m < s->members; m++) all += groups_of(m, round);
    return all;
}

/* A group's number is written where all groups of the round before have the number before. */
static void write_group(sharing *s, int owner, int group, int round) {
    for (int m = 0; m < s->members; m++)
        for (int g = 0; g < groups_of(m, round - 1) && round > 1; g++)
            if (s->written[(round - 1) & 1][m * MOST_GROUPS + g] != round - 1) atomic_fetch_add(&s->early, 1);
    int *own = &s->written[round & 1][owner * MOST_GROUPS + group];
    if (*own >= round) atomic_fetch_add(&s->early, 1); /* twice */
    atomic_fetch_add(&s->groups, 1);
    *own = round;
}

static void share_rounds(void *context, int member) {
    sharing *s = context;
    for (int round = 1; round <= ROUNDS; round++) {
        if ((round * 7 + member * 5) % 501 == 0) nanosleep(&(struct timespec){0, 300000}, NULL); /* others go on */
        if (!sli_panel_round_enter(&s->lending, (uint32_t)round)) continue;
        int taken = 0;
        for (int k = 0; k < s->members; k++) {
            const int owner = (member + k) % s->members, count = groups_of(owner, round);
            for (int g; (g = sli_panel_queue_take(&s->queues[owner], (uint32_t)round, count, k > 0)) >= 0; taken++)
                write_group(s, owner, g, round);
        }
        sli_panel_round_done(&s->lending, taken, all_groups(s, round));
    }
}

static void check_sharing(sli_threads *threads, int members) {
    sharing *s = aligned_alloc(128, (sizeof *s + 127) / 128 * 128);
    REQUIRE(s);
    memset(s, 0, sizeof *s);
    s->members = members;
    sli_panel_lending_begin(&s->lending, threads, s->queues, members);
    sli_threads_run(threads, members, share_rounds, s);
    int all = 0;
    for (int round = 1; round <= ROUNDS; round++) all += all_groups(s, round);
    CHECK(atomic_load(&s->early) == 0);
    CHECK(atomic_load(&s->groups) == all);
    CHECK(sli_event_count(&s->lending.over) == ROUNDS);
    free(s);
}

TEST(cpu_panel_queue_threads_share_rounds) {
    for (int members = 2; members <= THREADS; members++) {
        sli_threads *threads = NULL;
        REQUIRE_OK(sli_threads_new(NULL, members, &threads));
        for (int run = 0; run < 3; run++) check_sharing(threads, members);
        sli_threads_free(threads);
    }
    check_sharing(NULL, 3); /* one after the other: the first does everything */
}

TEST(cpu_panel_queue_words) {
    sli_panel_queue queue = {.left = 0};
    CHECK(sli_panel_queue_take(&queue, 1, 3, false) == 0 && sli_panel_queue_take(&queue, 1, 3, true) == 2);
    CHECK(sli_panel_queue_take(&queue, 1, 3, true) == 1 && sli_panel_queue_take(&queue, 1, 3, false) == -1);
    CHECK(sli_panel_queue_take(&queue, 2, 0, false) == -1);
    CHECK(sli_panel_queue_take(&queue, 4, SLI_PANEL_QUEUE_MOST, true) == SLI_PANEL_QUEUE_MOST - 1);
    CHECK(sli_panel_queue_take(&queue, 3, 5, false) == -1); /* that round is over */
    queue.left = (uint64_t)UINT32_MAX << 32;
    CHECK(sli_panel_queue_take(&queue, 0, 2, false) == 0); /* rounds wrap around */
}
