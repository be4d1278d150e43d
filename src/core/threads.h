/* A small pool of threads for one run. Work is cut by shape into tasks, never by thread count: any number of threads gives
 * the same bits. */
#ifndef SLI_THREADS_H
#define SLI_THREADS_H

#include "memory.h"

typedef struct sli_threads sli_threads;

/* Affinity mask and cgroup (v1, v2) cpu quota, at least 1. */
int sli_threads_default(void);
/* CPUs allowed by the cgroups that `cgroup_file` (/proc/self/cgroup) names, mounted below `mount`; 0 = no limit. */
double sli_threads_quota(const char *cgroup_file, const char *mount);
/* `count` >= 1 threads in all, the calling one included; 1 makes no thread and *threads is still valid. */
sl_status sli_threads_new(const sl_allocator *allocator, int count, sli_threads **threads);
void sli_threads_free(sli_threads *threads);
int sli_threads_count(const sli_threads *threads); /* NULL: 1 */
/* Calls task(context, i) for i in [0, tasks) and returns when all are done. NULL `threads`: a plain loop. Not reentrant.
 * Workers spin a little, then park. No allocation. */
void sli_threads_for(sli_threads *threads, int tasks, void (*task)(void *context, int index), void *context);

#endif
