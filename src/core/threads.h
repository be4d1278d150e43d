/* A small pool of threads for one run. Work is cut by shape into tasks, never by thread count: any number of threads gives
 * the same bits. Two ways to use it: tasks that know nothing of each other (sli_threads_for), and a team whose members meet
 * at barriers (sli_threads_run). */
#ifndef SLI_THREADS_H
#define SLI_THREADS_H

#ifndef __cplusplus
#include <stdatomic.h>
#endif
#include <stdint.h>
#include "memory.h"

typedef struct sli_threads sli_threads;

/* Affinity mask and cgroup (v1, v2) cpu quota, at least 1. */
int sli_threads_default(void);
/* CPUs allowed by the cgroups that `cgroup_file` (/proc/self/cgroup) names, mounted below `mount`; 0 = no limit. */
double sli_threads_quota(const char *cgroup_file, const char *mount);
/* `count` >= 1 threads in all, the calling one included; 1 makes no thread and *threads is still valid. */
sl_status sli_threads_new(const sl_allocator *allocator, int count, sli_threads **threads);
/* Over the program's pool, of which `count` threads are taken into account; makes none. */
sl_status sli_threads_over(const sl_allocator *allocator, const sl_thread_pool *pool, int count, sli_threads **threads);
void sli_threads_free(sli_threads *threads);
int sli_threads_count(const sli_threads *threads); /* NULL: 1 */
/* Calls task(context, i) for i in [0, tasks) and returns when all are done. NULL `threads`: a plain loop. Not reentrant.
 * Workers spin a little, then park. No allocation. */
void sli_threads_for(sli_threads *threads, int tasks, void (*task)(void *context, int index), void *context);

/* A team: threads that run one function at the same time. Each takes its share of the slices into which the *shape* cuts the
 * work (slice s is member s % count's, say), so that every count, 1 too, gives the same bits. */
typedef struct sli_team sli_team;
typedef void (*sli_team_fn)(void *context, const sli_team *team, int member);
/* Calls run(context, team, member) once for each member in [0, count), all at the same time, and returns when all are done;
 * count = sli_team_count(team) is the least of `most` and sli_threads_members(threads), at least 1. In a team of all threads
 * of the pool a member is always the same thread, whose caches may hold its share. Inside, no job of this pool may be started. */
void sli_threads_run(sli_threads *threads, int most, sli_team_fn run, void *context);
/* The same for members that never meet, so that they may run one after another: count is the least of `most` and
 * sli_threads_count(threads), whoever's pool it is. */
void sli_threads_run_apart(sli_threads *threads, int most, sli_team_fn run, void *context);
/* The largest team that can meet: 1 for NULL, and over the program's pool, whose tasks need not run at the same time. */
int sli_threads_members(const sli_threads *threads);
int sli_team_count(const sli_team *team);
/* The barrier: returns when every member has called it as often as this one. What was written before by any is seen by all.
 * Nothing in a team of one. Spins, then parks; no allocation.
 * Measured on 2 CPUs (Zen 3, virtual): 0.1 us for 2 members; 12 to 30 us for 4, 50 to 70 us for 16, where parking and waking
 * are what takes the time; 6 to 10 us for 2 beside two other busy processes. Starting a team: 0.3 us for 2. */
void sli_team_wait(const sli_team *team, int member);

#ifndef __cplusplus /* the CUDA plug-in's sources include this file, and C++ of their standard has no such atomics */
/* Something that happens again and again, for members that wait for each other's results and not for all of them. Zero at first. */
typedef union sli_event {
    struct {
        _Atomic uint32_t count; /* how often it has happened */
        _Atomic int sleepers;
    };
    char pad[128]; /* two lines, which processors fetch together */
} sli_event;
/* What was written before by whoever signalled is seen by who reads the count. */
static inline uint32_t sli_event_count(const sli_event *event) {
    return atomic_load(&event->count);
}
void sli_event_signal(sli_event *event);
/* Returns when the count is no longer `seen`. Spins, then parks. */
void sli_event_wait(sli_event *event, const sli_threads *threads, uint32_t seen);
#endif

#endif
