/* Pools of a program, as sl_thread_pool wants them: two orders in which tasks may run. */
#ifndef THREAD_POOLS_H
#define THREAD_POOLS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

typedef void (*thread_pool_task)(void *context, int index);
typedef struct thread_pool {
    atomic_int calls, nested, inside;
} thread_pool;

static inline void thread_pool_enter(thread_pool *p) {
    atomic_fetch_add(&p->calls, 1);
    if (atomic_fetch_add(&p->inside, 1) > 0) atomic_fetch_add(&p->nested, 1);
}

static inline void thread_pool_leave(thread_pool *p) {
    atomic_fetch_sub(&p->inside, 1);
}

/* One after another, the last first. */
static inline void thread_pool_backwards(void *context, int count, thread_pool_task task, void *task_context) {
    thread_pool_enter(context);
    for (int i = count - 1; i >= 0; i--) task(task_context, i);
    thread_pool_leave(context);
}

typedef struct thread_pool_loop {
    atomic_int next;
    int count;
    thread_pool_task task;
    void *context;
} thread_pool_loop;

static inline void *thread_pool_take_tasks(void *argument) {
    thread_pool_loop *l = argument;
    for (int i = atomic_fetch_add(&l->next, 1); i < l->count; i = atomic_fetch_add(&l->next, 1)) l->task(l->context, i);
    return NULL;
}

/* On three threads made for it; the caller only waits. */
static inline void thread_pool_on_threads(void *context, int count, thread_pool_task task, void *task_context) {
    enum { THREADS = 3 };
    thread_pool_loop l = {.count = count, .task = task, .context = task_context};
    pthread_t thread[THREADS];
    int made = 0;
    thread_pool_enter(context);
    while (made < THREADS && pthread_create(&thread[made], NULL, thread_pool_take_tasks, &l) == 0) made++;
    if (made == 0) thread_pool_take_tasks(&l);
    for (int i = 0; i < made; i++) pthread_join(thread[i], NULL);
    thread_pool_leave(context);
}

enum { THREAD_POOLS = 2 };
static void (*const thread_pools[THREAD_POOLS])(void *, int, thread_pool_task, void *) = {thread_pool_backwards,
                                                                                          thread_pool_on_threads};

#endif
