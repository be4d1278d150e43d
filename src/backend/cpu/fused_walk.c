/* How a thread of cpu:fused goes through the panels of a product: its own, and, where panels are lent, what others have left. */
#include "backend/cpu/fused.h"

enum { LEAST_GROUPS = 8 }; /* of a thread that lends some: what the others wait for at the end is one of them */

sli_fused_part sli_fused_part_of(const sli_fused_panels *panels, int unit, int units) {
    const int count = sli_fused_all_panels(panels);
    const int first = (int)((long)count * unit / units), end = (int)((long)count * (unit + 1) / units);
    const int tail = first < end && end > panels->count;
    return (sli_fused_part){first, end - tail - first, tail};
}

static int groups_of(const sli_fused_walk *walk, const sli_fused_part *part) {
    return (part->full + walk->size - 1) / walk->size + part->tail;
}

static void enter_part(const sli_fused_share *share, sli_fused_walk *walk, int owner) {
    walk->owner = owner;
    walk->part = sli_fused_part_of(walk->panels, owner, share->units);
    walk->groups = groups_of(walk, &walk->part);
}

/* In order of processing. */
static sli_fused_group group_of(const sli_fused_walk *walk, int index) {
    const sli_fused_panels *panels = walk->panels;
    const int at = (walk->back ? walk->groups - 1 - index : index) * walk->size, left = walk->part.full - at;
    const int count = left < walk->size ? left : walk->size, panel = left > 0 ? walk->part.first + at : panels->count;
    const int first = panel * panels->units, end = first + count * panels->units;
    if (left <= 0) return (sli_fused_group){panel, 1, panels->tail, first, panels->all};
    return (sli_fused_group){panel, count, panels->vectors, first, end < panels->all ? end : panels->all};
}

static void set_group(sli_fused_walk *walk, int index, int after) {
    walk->at = group_of(walk, index);
    walk->next = after >= 0 && after < walk->groups ? group_of(walk, after) : walk->at;
}

/* Written where it lies, and of the fields those that are read: steps of small layers are mostly this. */
void sli_fused_walk_of(sli_fused_walk *walk, sli_fused_share *share, const sli_fused_panels *panels, int least,
                       int size, bool back) {
    walk->panels = panels;
    walk->size = size > 1 ? size : 1;
    walk->back = back;
    walk->taken = 0;
    if (!share->lending) {
        walk->part = (sli_fused_part){0, panels->count, panels->tail > 0};
        walk->groups = groups_of(walk, &walk->part);
        if (walk->groups > 0) set_group(walk, 0, 1);
        return;
    }
    const int even = panels->count / (share->units * LEAST_GROUPS), lent = even > least ? even : least;
    if (lent < walk->size) walk->size = lent > 1 ? lent : 1;
    walk->round = ++*share->round;
    walk->over = !sli_panel_round_enter(share->lending, walk->round);
    enter_part(share, walk, share->unit);
}

void sli_fused_walk_units(sli_fused_walk *walk, sli_fused_share *share, const sli_fused_panels *panels) {
    sli_fused_walk_of(walk, share, panels, 1, panels->count, false);
    if (share->lending) return;
    walk->groups = 1; /* the tail's units, too */
    walk->at.first = 0;
    walk->at.last = panels->all;
}

/* Own groups, then those that others have left. What a thread has computed it tells before it looks through others' queues, which
 * takes long if there are many: the slowest may be waited for. */
static bool take_lent(const sli_fused_share *share, sli_fused_walk *walk) {
    while (!walk->over) {
        const bool own = walk->owner == share->unit;
        const int i = sli_panel_queue_take(&share->lending->queue[walk->owner], walk->round, walk->groups, !own);
        if (i >= 0) {
            set_group(walk, i, own ? i + 1 : i - 1);
            walk->taken += walk->at.count;
            return true;
        }
        sli_panel_round_done(share->lending, walk->taken, sli_fused_all_panels(walk->panels));
        walk->taken = 0;
        const int owner = (walk->owner + 1) % share->units;
        walk->over = owner == share->unit || sli_panel_round_over(share->lending, walk->round);
        if (!walk->over) enter_part(share, walk, owner);
    }
    return false;
}

bool sli_fused_take(const sli_fused_share *share, sli_fused_walk *walk) {
    if (share->lending) return take_lent(share, walk);
    const int i = walk->taken++;
    if (i > 0 && i < walk->groups) set_group(walk, i, i + 1);
    return i < walk->groups;
}

/* ------------------------------------------------------------------------------------------------------- a pass -- */
typedef struct pass {
    const sli_fused_work *w;
    const sli_fused_panels *panels;
    sli_fused_steps_fn steps;
    sli_panel_lending *lending; /* of each group of threads that share rows */
} pass;

/* The steps of a group, as the thread with number `unit` in it, whatever its number among all threads is. */
static void run_group(const pass *all, int member, int group, int unit) {
    const sli_fused_work *w = all->w;
    sli_panel_lending *lending = w->split.units > 1 ? &all->lending[group] : NULL;
    sli_fused_share shares[SLI_FUSED_STAGES];
    uint32_t round = 0;
    if (lending && atomic_load(&lending->ended)) return;
    for (int stage = 0; stage < w->stages; stage++) {
        sli_fused_share *share = &shares[stage];
        *share = sli_fused_share_of(w, all->panels, stage, group * w->split.units + unit);
        share->lending = lending;
        share->round = &round;
        share->operands = w->operands + (size_t)member * w->operand_bytes;
        if (w->projected) share->x_operands = w->x_operands + (size_t)member * w->x_operand_bytes;
    }
    all->steps(w, shares);
    if (lending) atomic_store(&lending->ended, true);
}

/* Where panels are lent, other groups' after the own one's: threads may be missing in any. */
static void run_member(void *context, int member) {
    const pass *all = context;
    const sli_fused_work *w = all->w;
    const int units = w->split.units, own = member / units, groups = w->split.directions * w->split.rows;
    if (w->panels->begin) w->panels->begin();
    for (int k = 0; k < (units > 1 ? groups : 1); k++) run_group(all, member, (own + k) % groups, member % units);
    if (w->panels->end) w->panels->end();
}

/* Apart, for its queues: of a stack's pieces, which need none, each runs in a task, and a program's tasks have 128 kB of stack. */
static __attribute__((noinline)) void run_lending(pass *all, int groups) {
    const sli_fused_work *w = all->w;
    sli_panel_queue queues[SLI_PANEL_QUEUES] __attribute__((aligned(sizeof(sli_panel_queue))));
    sli_panel_lending lending[SLI_PANEL_QUEUES / 2] __attribute__((aligned(sizeof(sli_panel_queue))));
    all->lending = lending;
    for (int i = 0; i < groups; i++)
        sli_panel_lending_begin(&lending[i], w->call->threads, queues + i * w->split.units, w->split.units);
    sli_threads_run(w->call->threads, groups * w->split.units, run_member, all);
}

void sli_fused_run(const sli_fused_work *w, const sli_fused_panels *panels, sli_fused_steps_fn steps) {
    const int groups = w->split.directions * w->split.rows;
    pass all = {.w = w, .panels = panels, .steps = steps};
    if (w->split.units == 1)
        sli_threads_near(w->call->threads, groups, 1, run_member, &all);
    else
        run_lending(&all, groups);
}
