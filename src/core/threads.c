/* The pool of threads of one run, and how many threads this process may use.
 *
 * A job is a function and a number of tasks. Threads claim task indices one by one, so that a slow or sleeping thread
 * delays nobody: the caller waits for the tasks, never for the threads. Claims go through one atomic word
 *     ticket = generation << 32 | next index
 * by compare-and-swap. The generation is odd while the caller writes the job and even while it is open; a thread that
 * read the job of one generation can therefore never claim a task of another. */
#include "threads.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef void (*task_fn)(void *context, int index);
enum { LONG_SPINS = 5000 }; /* see most_spins */

/* A thread; number 0 is the caller's. */
typedef union member {
    struct {
        int idle;       /* pauses before it parks between jobs, or when it waits for the others' tasks */
        unsigned waits; /* so far */
        sli_threads *threads;
        pthread_t thread;
    };
    char pad[128]; /* two lines, which processors fetch together */
} member;

struct sli_threads {
    sl_allocator allocator;
    size_t bytes;
    pid_t process;       /* whose threads they are: a forked child has none of them */
    int count;           /* the caller included */
    int started;         /* workers member[1 .. started] */
    int spins;           /* pauses before a thread parks, at most */
    int64_t asked;       /* nanoseconds of a clock: when the caller asked whether they are ready */
    sl_thread_pool pool; /* the program's; parallel_for NULL: our own */
    char pad0[SLI_ALIGN];
    _Atomic uint64_t ticket;
    _Atomic(task_fn) task;
    _Atomic(void *) context;
    _Atomic int tasks;
    _Atomic bool by_thread; /* a task's index is the number of the thread that claimed it */
    char pad1[SLI_ALIGN];
    _Atomic int done; /* finished tasks of this job */
    char pad2[SLI_ALIGN];
    _Atomic int parked;          /* workers on `wake` */
    _Atomic bool caller_waiting; /* the caller is on `finished` */
    _Atomic bool stop;
    pthread_mutex_t mutex;
    pthread_cond_t wake, finished;
    char pad3[SLI_ALIGN];
    member member[]; /* count */
};

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline uint32_t generation_of(uint64_t ticket) {
    return (uint32_t)(ticket >> 32);
}

/* Tells the caller that the last task is done. The mutex closes the gap between its last look and its wait. */
static void signal_finished(sli_threads *threads) {
    if (!atomic_load(&threads->caller_waiting)) return;
    pthread_mutex_lock(&threads->mutex);
    pthread_cond_signal(&threads->finished);
    pthread_mutex_unlock(&threads->mutex);
}

/* Claims and runs tasks until none is left; returns the generation that had none left. */
static uint32_t run_tasks(sli_threads *threads, int number) {
    uint64_t ticket = atomic_load(&threads->ticket);
    for (;;) {
        uint32_t generation = generation_of(ticket), index = (uint32_t)ticket;
        if (generation & 1) return generation; /* being written: the caller is at it */
        /* Acquire: whoever sees a later job here also sees its ticket below, and the swap fails. */
        task_fn task = atomic_load_explicit(&threads->task, memory_order_acquire);
        void *context = atomic_load_explicit(&threads->context, memory_order_acquire);
        int tasks = atomic_load_explicit(&threads->tasks, memory_order_acquire);
        bool by_thread = atomic_load_explicit(&threads->by_thread, memory_order_acquire);
        if (index >= (uint32_t)tasks) {
            uint64_t again = atomic_load(&threads->ticket);
            if (generation_of(again) == generation) return generation;
            ticket = again;
            continue;
        }
        if (!atomic_compare_exchange_strong(&threads->ticket, &ticket, ticket + 1)) continue;
        task(context, by_thread ? number : (int)index);
        if (atomic_fetch_add(&threads->done, 1) + 1 == tasks) signal_finished(threads);
        ticket = atomic_load(&threads->ticket);
    }
}

/* A generation that is open and was not seen exhausted, or the end. */
static bool something_new(sli_threads *threads, uint32_t exhausted) {
    uint32_t generation = generation_of(atomic_load(&threads->ticket));
    return (generation != exhausted && !(generation & 1)) || atomic_load(&threads->stop);
}

/* How long a thread spins follows what it lived to see: half as long after each time that it had to park, as where it shares its CPU
 * with others, and twice as long as was needed, or more, after each time that spinning was enough. Now and then as long as at first:
 * threads that park wake each other up late, and would come to park for ever (two layers of 64 units then took 2.2 ms instead of 1.3). */
static int patience(const sli_threads *threads, member *own) {
    enum { AGAIN = 16 };
    return ++own->waits % AGAIN == 0 ? threads->spins : own->idle;
}

static void spun(const sli_threads *threads, member *own, int pauses, bool enough) {
    enum { LEAST_IDLE = 200 };
    const int longer = pauses > own->idle ? 2 * pauses : 2 * own->idle;
    const int idle = enough ? longer : own->idle / 2 > LEAST_IDLE ? own->idle / 2 : LEAST_IDLE;
    own->idle = idle < threads->spins ? idle : threads->spins;
}

static void wait_for_work(sli_threads *threads, member *own, uint32_t exhausted) {
    const int most = patience(threads, own);
    for (int i = 0; i < most; i++) {
        if (something_new(threads, exhausted)) {
            spun(threads, own, i, true);
            return;
        }
        relax();
    }
    spun(threads, own, most, false);
    pthread_mutex_lock(&threads->mutex);
    atomic_fetch_add(&threads->parked, 1);
    while (!something_new(threads, exhausted)) pthread_cond_wait(&threads->wake, &threads->mutex);
    atomic_fetch_sub(&threads->parked, 1);
    pthread_mutex_unlock(&threads->mutex);
}

static void *worker(void *argument) {
    member *own = argument;
    sli_threads *threads = own->threads;
    uint32_t exhausted = 0;
    while (!atomic_load(&threads->stop)) {
        wait_for_work(threads, own, exhausted);
        exhausted = run_tasks(threads, (int)(own - threads->member));
    }
    return NULL;
}

static void wait_for_tasks(sli_threads *threads, int tasks) {
    member *own = &threads->member[0];
    const int most = patience(threads, own);
    for (int i = 0; i < most; i++) {
        if (atomic_load(&threads->done) == tasks) {
            if (i > 0) spun(threads, own, i, true);
            return;
        }
        relax();
    }
    spun(threads, own, most, false);
    pthread_mutex_lock(&threads->mutex);
    atomic_store(&threads->caller_waiting, true);
    while (atomic_load(&threads->done) != tasks) pthread_cond_wait(&threads->finished, &threads->mutex);
    atomic_store(&threads->caller_waiting, false);
    pthread_mutex_unlock(&threads->mutex);
}

bool sli_threads_awake(const sli_threads *threads) {
    return threads && !threads->pool.parallel_for && atomic_load_explicit(&threads->parked, memory_order_relaxed) == 0;
}

bool sli_threads_ready(sli_threads *threads) {
    enum { FOLLOWS = 200000, SECOND = 1000000000 };
    if (!threads || threads->count == 1 || threads->pool.parallel_for || threads->spins < LONG_SPINS) return false;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const int64_t time = (int64_t)now.tv_sec * SECOND + now.tv_nsec, before = threads->asked;
    threads->asked = time;
    return sli_threads_awake(threads) || time - before < FOLLOWS;
}

/* Workers that spin see the ticket; of the parked ones only as many are woken as there are tasks for. */
static void wake_workers(sli_threads *threads, int wanted) {
    int parked = atomic_load(&threads->parked);
    if (parked == 0) return;
    pthread_mutex_lock(&threads->mutex);
    if (wanted >= parked)
        pthread_cond_broadcast(&threads->wake);
    else
        for (int i = 0; i < wanted; i++) pthread_cond_signal(&threads->wake);
    pthread_mutex_unlock(&threads->mutex);
}

static void run_job(sli_threads *threads, int tasks, task_fn task, void *context, bool by_thread) {
    uint32_t closed = generation_of(atomic_load(&threads->ticket)) + 1;
    atomic_store(&threads->ticket, (uint64_t)closed << 32);
    atomic_store_explicit(&threads->task, task, memory_order_release);
    atomic_store_explicit(&threads->context, context, memory_order_release);
    atomic_store_explicit(&threads->tasks, tasks, memory_order_release);
    atomic_store_explicit(&threads->by_thread, by_thread, memory_order_release);
    atomic_store(&threads->done, 0);
    atomic_store(&threads->ticket, (uint64_t)(closed + 1) << 32);
    wake_workers(threads, tasks - 1);
    run_tasks(threads, 0);
    wait_for_tasks(threads, tasks);
}

void sli_threads_for(sli_threads *threads, int tasks, task_fn task, void *context) {
    if (threads && threads->pool.parallel_for && tasks > 1)
        threads->pool.parallel_for(threads->pool.context, tasks, task, context);
    else if (threads && threads->count > 1 && tasks > 1)
        run_job(threads, tasks, task, context, false);
    else
        for (int i = 0; i < tasks; i++) task(context, i);
}

void sli_threads_run(sli_threads *threads, int members, task_fn run, void *context) {
    const bool all = threads && !threads->pool.parallel_for && members == threads->count && members > 1;
    if (all)
        run_job(threads, members, run, context, true);
    else
        sli_threads_for(threads, members, run, context);
}

/* ------------------------------------------------------------------------------------------------- tasks that are near -- */
enum { NEAR_QUEUES = 64 }; /* more threads share them */

typedef union near_queue {
    _Atomic int next;
    char pad[128]; /* two lines, which processors fetch together */
} near_queue;

typedef struct near_job {
    near_queue queue[NEAR_QUEUES]; /* tasks claimed of each */
    near_queue left;               /* tasks that nobody has claimed */
    task_fn task;
    void *context;
    int places, times, queues;
} near_job;

static int near_first(const near_job *job, int queue) {
    return (int)((int64_t)job->places * queue / job->queues);
}

static void run_near(void *context, int member) {
    near_job *job = context;
    for (int k = 0; k < job->queues && atomic_load(&job->left.next) > 0; k++) {
        const int queue = (member + k) % job->queues, first = near_first(job, queue);
        const int own = near_first(job, queue + 1) - first;
        for (int i; (i = atomic_fetch_add(&job->queue[queue].next, 1)) < own * job->times;) {
            atomic_fetch_sub(&job->left.next, 1);
            job->task(job->context, i / own * job->places + first + i % own);
        }
    }
}

void sli_threads_near(sli_threads *threads, int places, int times, task_fn task, void *context) {
    const int tasks = places * times;
    if (!threads || threads->pool.parallel_for || threads->count == 1 || tasks < 2) {
        sli_threads_for(threads, tasks, task, context);
        return;
    }
    near_job job;
    job.task = task;
    job.context = context;
    job.places = places;
    job.times = times;
    job.queues = threads->count < NEAR_QUEUES ? threads->count : NEAR_QUEUES;
    if (job.queues > places) job.queues = places;
    for (int i = 0; i < job.queues; i++) atomic_init(&job.queue[i].next, 0);
    atomic_init(&job.left.next, tasks);
    run_job(threads, tasks < threads->count ? tasks : threads->count, run_near, &job, true);
}

/* ------------------------------------------------------------------------------------------------------- events -- */
/* Both sides write before they read, in one order for all: either the sleeper is seen, or it sees the new count. */
void sli_event_signal(sli_event *event) {
    atomic_fetch_add(&event->count, 1);
    if (atomic_load(&event->sleepers) > 0)
        syscall(SYS_futex, &event->count, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void sli_event_wait(sli_event *event, const sli_threads *threads, uint32_t seen) {
    for (int i = 0; threads && i < threads->spins; i++) {
        if (atomic_load(&event->count) != seen) return;
        relax();
    }
    atomic_fetch_add(&event->sleepers, 1);
    while (atomic_load(&event->count) == seen)
        syscall(SYS_futex, &event->count, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub(&event->sleepers, 1);
}

/* ------------------------------------------------------------------------------------------------ life of a pool -- */
static int affinity_count(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN); /* more CPUs than a cpu_set_t holds */
    return online > 0 ? (int)online : 1;
}

/* Signals belong to the threads of the program, not to ours: Ctrl-C must reach its handler there. */
static int start_worker(sli_threads *threads) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    member *own = &threads->member[threads->started + 1];
    own->threads = threads;
    int error = pthread_create(&own->thread, NULL, worker, own);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) threads->started++;
    return error;
}

/* Without workers yet. */
static sl_status make(const sl_allocator *allocator, int count, int members, sli_threads **out) {
    *out = NULL;
    SLI_FAIL_IF(count < 1 || count > 4096, SL_ERR_USAGE, "threads %d: give a number from 1 to 4096", count);
    size_t bytes = sizeof(sli_threads) + (size_t)members * sizeof(member);
    sli_threads *threads = sli_alloc_zero(allocator, bytes);
    if (!threads) return sli_fail_memory("the thread pool", bytes);
    threads->allocator = sli_allocator_or_default(allocator);
    threads->bytes = bytes;
    threads->process = getpid();
    threads->count = count;
    pthread_mutex_init(&threads->mutex, NULL);
    pthread_cond_init(&threads->wake, NULL);
    pthread_cond_init(&threads->finished, NULL);
    *out = threads;
    return SL_OK;
}

/* 5000 pauses take 0.1 to 0.25 milliseconds: longer than what one thread does alone between two jobs of a call. Parked
 * after a twentieth of that, two threads took 7.8 ms instead of 6.0 for two layers of 35 steps of 20 rows of 200 units. A
 * thread that has no CPU of its own would only keep another from working. */
static int most_spins(int count) {
    return count <= sli_threads_default() ? LONG_SPINS : 4;
}

sl_status sli_threads_over(const sl_allocator *allocator, const sl_thread_pool *pool, int count, sli_threads **out) {
    SLI_TRY(make(allocator, count, 0, out));
    (*out)->pool = *pool;
    (*out)->spins = most_spins(count);
    return SL_OK;
}

sl_status sli_threads_new(const sl_allocator *allocator, int count, sli_threads **out) {
    sli_threads *threads;
    *out = NULL;
    SLI_TRY(make(allocator, count, count, &threads));
    threads->spins = most_spins(count);
    for (int i = 0; i < count; i++) threads->member[i].idle = threads->spins;
    for (int i = 1; i < count; i++) {
        int error = start_worker(threads);
        if (error == 0) continue;
        sli_threads_free(threads);
        return sli_fail(
            SL_ERR_OUT_OF_MEMORY,
            "cannot start thread %d of %d (%s); raise the limits on memory and processes, or use fewer threads", i + 1,
            count, strerror(error));
    }
    *out = threads;
    return SL_OK;
}

static void end_threads(sli_threads *threads) {
    pthread_mutex_lock(&threads->mutex);
    atomic_store(&threads->stop, true);
    pthread_cond_broadcast(&threads->wake);
    pthread_mutex_unlock(&threads->mutex);
    for (int i = 1; i <= threads->started; i++) pthread_join(threads->member[i].thread, NULL);
    pthread_cond_destroy(&threads->finished);
    pthread_cond_destroy(&threads->wake);
    pthread_mutex_destroy(&threads->mutex);
}

void sli_threads_free(sli_threads *threads) {
    if (!threads) return;
    if (threads->process == getpid())
        end_threads(threads); /* a child would wait for threads, and for waiters, that it has not */
    sl_allocator allocator = threads->allocator;
    sli_free(&allocator, threads, threads->bytes);
}

int sli_threads_count(const sli_threads *threads) {
    return threads ? threads->count : 1;
}

/* ------------------------------------------------------------------------------------------- how many there may be -- */
enum { TEXT_BYTES = 4096 };

/* Reads a small file as a string; false if it is not there. */
static bool read_small(const char *path, char text[TEXT_BYTES]) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    size_t length = 0;
    ssize_t got;
    while (length < TEXT_BYTES - 1 && (got = read(file, text + length, TEXT_BYTES - 1 - length)) > 0)
        length += (size_t)got;
    close(file);
    text[length] = 0;
    return length > 0;
}

/* CPUs that one group may use: quota / period; 0 = no limit here. */
static double group_quota(const char *folder, bool version2) {
    char path[TEXT_BYTES + 32], text[TEXT_BYTES];
    double quota, period;
    if (version2) {
        snprintf(path, sizeof path, "%s/cpu.max", folder);
        if (!read_small(path, text) || sscanf(text, "%lf %lf", &quota, &period) != 2) return 0;
    } else {
        snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
        if (!read_small(path, text) || sscanf(text, "%lf", &quota) != 1) return 0;
        snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
        if (!read_small(path, text) || sscanf(text, "%lf", &period) != 1) return 0;
    }
    return quota > 0 && period > 0 ? quota / period : 0;
}

/* The least of the quotas of `group` and all groups above it, up to the mount point (inside a container the path of
 * /proc/self/cgroup may not exist there, but the mount point is the container's own group). */
static double path_quota(const char *mount, const char *group, bool version2) {
    char folder[TEXT_BYTES];
    size_t mount_length = strlen(mount);
    int length = snprintf(folder, sizeof folder, "%s%s", mount, group);
    if (length < 0 || (size_t)length >= sizeof folder) return 0;
    double least = 0;
    for (;;) {
        double quota = group_quota(folder, version2);
        if (quota > 0 && (least == 0 || quota < least)) least = quota;
        char *slash = strrchr(folder, '/');
        if (strlen(folder) <= mount_length || !slash || (size_t)(slash - folder) < mount_length) return least;
        *slash = 0;
    }
}

/* True if the comma-separated `list` holds "cpu". */
static bool names_cpu(const char *list) {
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, "cpu", 3) == 0 && (at[3] == 0 || at[3] == ',')) return true;
    return false;
}

double sli_threads_quota(const char *cgroup_file, const char *mount) {
    char text[TEXT_BYTES], place[TEXT_BYTES], *rest = NULL;
    if (!read_small(cgroup_file, text)) return 0;
    double least = 0;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        /* "ID:CONTROLLERS:/GROUP"; version 2 has no controllers. */
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        controllers++;
        bool version2 = *controllers == 0;
        if (!version2 && !names_cpu(controllers)) continue;
        const char *const places[2] = {version2 ? "" : "/cpu", version2 ? "/unified" : "/cpu,cpuacct"};
        for (int i = 0; i < 2; i++) {
            int length = snprintf(place, sizeof place, "%s%s", mount, places[i]);
            double quota = length > 0 && (size_t)length < sizeof place ? path_quota(place, group, version2) : 0;
            if (quota > 0 && (least == 0 || quota < least)) least = quota;
        }
    }
    return least;
}

int sli_threads_default(void) {
    int count = affinity_count();
    double quota = sli_threads_quota("/proc/self/cgroup", "/sys/fs/cgroup");
    if (quota > 0 && quota < count) {
        int whole = (int)quota; /* rounded up: a half CPU is still one thread's worth of work */
        count = whole + (quota > whole);
    }
    return count < 1 ? 1 : count;
}
