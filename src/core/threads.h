/* A small pool of threads for one run. Work is cut by shape into tasks, never by thread count: any number of threads gives
 * the same bits. Three ways to use it: tasks that know nothing of each other (sli_threads_for), the same where memory is near (sli_threads_near),
 * and members that all could do the whole alone (sli_threads_run), and share it as they come. Nothing waits for a thread: only for what it has begun. */
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
/* Whether all workers spin, so that a job begins at once; false also of a program's own pool, of which nobody knows. */
bool sli_threads_awake(const sli_threads *threads);
/* Asked once before a piece of work that is worth sharing only among threads that spin: whether they do, or the caller asked less than 0.2
 * milliseconds ago, as programs do that make one small call after the other. Then those that have parked are worth waking: they spin from
 * call to call. false also of a program's own pool, and of more threads than CPUs. */
bool sli_threads_ready(sli_threads *threads);

/* Calls task(context, i) for i in [0, tasks) and returns when all are done. NULL `threads`: a plain loop. Not reentrant.
 * Workers spin a little, then park. No allocation. */
void sli_threads_for(sli_threads *threads, int tasks, void (*task)(void *context, int index), void *context);

/* The same for tasks time * places + place, times * places of them: each thread begins with those of its own places, the same ones for as
 * many places, time after time, and then takes what others have left. For work on memory that its caches may hold from job to job: between
 * cores that share no cache a line that another one wrote comes several times later (a Zen 5's two CCDs: 530 ns there and back, 110 in
 * one). */
void sli_threads_near(sli_threads *threads, int places, int times, void (*task)(void *context, int index),
                      void *context);

/* Calls run(context, member) of some members of [0, members), at the same time if there are threads for it, and returns when those
 * are done; `members` is at most sli_threads_count(threads). Where that many are asked for, a member is always the same thread,
 * whose caches may hold what is its own, 0 the caller; one whose thread comes late may be missing, and another come again. So each must find
 * out what is left to do, and do it whoever's it is. Inside, no job of this pool may be started. */
void sli_threads_run(sli_threads *threads, int members, void (*run)(void *context, int member), void *context);

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
