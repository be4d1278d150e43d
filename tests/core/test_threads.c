/* The pool: every task runs once, whatever the number of threads; and how many threads there may be. */
#include "core/threads.h"
#include "test.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_TASKS = 1000 };
typedef struct job {
    int ran[MOST_TASKS]; /* plain: each task has its own element */
    atomic_int total;
    int round;
} job;

static void count_task(void *context, int index) {
    job *j = context;
    j->ran[index] += j->round;
    atomic_fetch_add(&j->total, 1);
}

/* Many small jobs one after another, each with its own number of tasks. */
static void run_rounds(int count, int rounds) {
    sli_threads *threads = NULL;
    REQUIRE_OK(sli_threads_new(NULL, count, &threads));
    CHECK(sli_threads_count(threads) == count);
    job *j = calloc(1, sizeof *j);
    REQUIRE(j);
    for (int round = 1; round <= rounds; round++) {
        int tasks = round % 7 == 0 ? MOST_TASKS : round % 13;
        memset(j->ran, 0, sizeof j->ran);
        atomic_store(&j->total, 0);
        j->round = round;
        sli_threads_for(threads, tasks, count_task, j);
        if (atomic_load(&j->total) != tasks)
            test_fail(__FILE__, __LINE__, "round %d: %d of %d tasks", round, atomic_load(&j->total), tasks);
        for (int i = 0; i < MOST_TASKS; i++)
            if (j->ran[i] != (i < tasks ? round : 0)) test_fail(__FILE__, __LINE__, "round %d: task %d", round, i);
    }
    free(j);
    sli_threads_free(threads);
}

TEST(threads_every_task_runs_once) {
    run_rounds(1, 100);
    run_rounds(2, 2000);
    run_rounds(3, 1000);
    run_rounds(16, 200);
}

/* Places and times of all sizes, fewer and more than threads; tasks that take long are left to others. */
static void run_near_rounds(int count, int rounds) {
    sli_threads *threads = NULL;
    REQUIRE_OK(sli_threads_new(NULL, count, &threads));
    job *j = calloc(1, sizeof *j);
    REQUIRE(j);
    for (int round = 1; round <= rounds; round++) {
        const int places = round % 11 == 0 ? MOST_TASKS / 3 : round % 23, times = 1 + round % 3, tasks = places * times;
        memset(j->ran, 0, sizeof j->ran);
        atomic_store(&j->total, 0);
        j->round = round;
        sli_threads_near(threads, places, times, count_task, j);
        for (int i = 0; i < MOST_TASKS; i++)
            if (j->ran[i] != (i < tasks ? round : 0))
                test_fail(__FILE__, __LINE__, "%d threads, round %d: task %d", count, round, i);
        CHECK(atomic_load(&j->total) == tasks);
    }
    free(j);
    sli_threads_free(threads);
}

TEST(threads_near_tasks_run_once) {
    run_near_rounds(1, 50);
    run_near_rounds(2, 2000);
    run_near_rounds(3, 1000);
    run_near_rounds(16, 200);
    run_near_rounds(130, 20); /* more than there are queues */
    job *j = calloc(1, sizeof *j);
    REQUIRE(j);
    j->round = 1;
    sli_threads_near(NULL, 3, 2, count_task, j);
    sli_threads_near(NULL, 0, 2, count_task, j);
    CHECK(atomic_load(&j->total) == 6);
    free(j);
}

enum { NEAR_PLACES = 4, NEAR_TIMES = 3 };
typedef struct near_order {
    atomic_int begun[NEAR_TIMES][2]; /* of the places of either thread */
    pthread_t ran[NEAR_PLACES * NEAR_TIMES];
    int came[2][NEAR_PLACES * NEAR_TIMES],
        count[2]; /* tasks of the first two places, and of the others, as they came */
} near_order;

/* Waits until as many of the other two places have begun, so that two threads are there all the time. */
static void note_place(void *context, int index) {
    near_order *order = context;
    const int half = index % NEAR_PLACES / 2, time = index / NEAR_PLACES;
    order->ran[index] = pthread_self();
    order->came[half][order->count[half]++] = index; /* a thread's own: a place that moved would be seen below */
    const int mine = atomic_fetch_add(&order->begun[time][half], 1) + 1;
    while (atomic_load(&order->begun[time][!half]) < mine) sched_yield();
}

/* Two threads: the caller has the first two places every time, the other thread the other two, time after time. */
TEST(threads_keep_their_places) {
    static const int EXPECTED[2][6] = {{0, 1, 4, 5, 8, 9}, {2, 3, 6, 7, 10, 11}};
    sli_threads *threads = NULL;
    REQUIRE_OK(sli_threads_new(NULL, 2, &threads));
    for (int round = 0; round < 200; round++) {
        near_order order = {.count = {0}};
        sli_threads_near(threads, NEAR_PLACES, NEAR_TIMES, note_place, &order);
        for (int i = 0; i < NEAR_PLACES * NEAR_TIMES; i++)
            CHECK(!pthread_equal(order.ran[i], pthread_self()) == (i % NEAR_PLACES >= 2));
        for (int half = 0; half < 2; half++)
            for (int i = 0; i < 6; i++) CHECK(order.came[half][i] == EXPECTED[half][i]);
    }
    sli_threads_free(threads);
}

TEST(threads_null_pool_is_a_loop) {
    job *j = calloc(1, sizeof *j);
    REQUIRE(j);
    j->round = 1;
    CHECK(sli_threads_count(NULL) == 1);
    sli_threads_for(NULL, 5, count_task, j);
    CHECK(atomic_load(&j->total) == 5);
    sli_threads_for(NULL, 0, count_task, j);
    sli_threads_for(NULL, -3, count_task, j);
    CHECK(atomic_load(&j->total) == 5);
    free(j);
    sli_threads_free(NULL);
}

static void pause_a_little(void) {
    struct timespec time = {0, 2000000};
    nanosleep(&time, NULL);
}

static void sleepy_task(void *context, int index) {
    if (index % 3 == 0) pause_a_little();
    count_task(context, index);
}

/* Workers park between the jobs, and the caller while the last tasks run: both wake-ups. */
TEST(threads_park_and_wake) {
    sli_threads *threads = NULL;
    REQUIRE_OK(sli_threads_new(NULL, 4, &threads));
    job *j = calloc(1, sizeof *j);
    REQUIRE(j);
    j->round = 1;
    for (int round = 0; round < 20; round++) {
        atomic_store(&j->total, 0);
        pause_a_little();
        sli_threads_for(threads, round % 2 ? 2 : 9, sleepy_task, j);
        CHECK(atomic_load(&j->total) == (round % 2 ? 2 : 9));
    }
    free(j);
    sli_threads_free(threads);
}

/* Who asks before a small job sees that workers have parked; no pool is never awake. */
TEST(threads_say_when_they_have_parked) {
    sli_threads *threads = NULL;
    REQUIRE_OK(sli_threads_new(NULL, 3, &threads));
    for (int i = 0; i < 2000 && sli_threads_awake(threads); i++) pause_a_little();
    CHECK(!sli_threads_awake(threads) && !sli_threads_awake(NULL));
    sli_threads_free(threads);
    REQUIRE_OK(sli_threads_new(NULL, 1, &threads));
    CHECK(sli_threads_awake(threads)); /* nobody has parked */
    sli_threads_free(threads);
}

static void in_order(void *context, int count, void (*task)(void *task_context, int index), void *task_context) {
    (void)context;
    for (int i = 0; i < count; i++) task(task_context, i);
}

/* Whoever asks again at once is making call after call, whether workers have parked or not; after a while, and of a program's pool, nobody knows. */
TEST(threads_are_ready_where_calls_follow_each_other) {
    sli_threads *threads = NULL;
    if (sli_threads_default() < 2) test_skip("one CPU: threads park at once");
    REQUIRE_OK(sli_threads_new(NULL, 2, &threads));
    bool follows = false, alone = false;
    for (int i = 0; i < 2000 && !(follows && alone);
         i++) { /* other programs may have the CPUs between the two questions */
        for (int k = 0; k < 2000 && sli_threads_awake(threads); k++) pause_a_little();
        pause_a_little();
        alone |= !sli_threads_ready(threads);
        follows |= sli_threads_ready(threads) && !sli_threads_awake(threads);
    }
    CHECK(follows && alone);
    sli_threads_free(threads);
    REQUIRE_OK(sli_threads_new(NULL, 1, &threads));
    CHECK(!sli_threads_ready(threads) && !sli_threads_ready(threads) && !sli_threads_ready(NULL));
    sli_threads_free(threads);
    REQUIRE_OK(sli_threads_new(NULL, sli_threads_default() + 1, &threads));
    CHECK(!sli_threads_ready(threads) && !sli_threads_ready(threads)); /* they park at once */
    sli_threads_free(threads);
    const sl_thread_pool pool = {.parallel_for = in_order};
    REQUIRE_OK(sli_threads_over(NULL, &pool, 2, &threads));
    CHECK(!sli_threads_ready(threads) && !sli_threads_ready(threads));
    sli_threads_free(threads);
}

typedef struct meeting {
    atomic_int here;
    pthread_t thread[2];
} meeting;

static void meet_task(void *context, int index) {
    meeting *m = context;
    m->thread[index] = pthread_self();
    atomic_fetch_add(&m->here, 1);
    while (atomic_load(&m->here) < 2) sched_yield();
}

/* Two tasks that wait for each other can end only on two threads. */
TEST(threads_work_at_the_same_time) {
    sli_threads *threads = NULL;
    REQUIRE_OK(sli_threads_new(NULL, 2, &threads));
    for (int round = 0; round < 50; round++) {
        meeting m = {0};
        sli_threads_for(threads, 2, meet_task, &m);
        CHECK(!pthread_equal(m.thread[0], m.thread[1]));
    }
    sli_threads_free(threads);
}

/* ------------------------------------------------------------------------------------------------------ members -- */
enum { MOST_MEMBERS = 16, PIECES = 1000 };
typedef struct sharing {
    atomic_int next, done[PIECES];
    pthread_t thread[MOST_MEMBERS];
    bool came[MOST_MEMBERS];
} sharing;

/* Whatever is left, whoever's it is. */
static void share_pieces(void *context, int member) {
    sharing *s = context;
    s->thread[member] = pthread_self();
    s->came[member] = true;
    for (int i; (i = atomic_fetch_add(&s->next, 1)) < PIECES;) atomic_fetch_add(&s->done[i], 1);
}

static void run_members(sli_threads *threads, int members, sharing *s) {
    memset(s, 0, sizeof *s);
    sli_threads_run(threads, members, share_pieces, s);
    for (int i = 0; i < PIECES; i++) CHECK(atomic_load(&s->done[i]) == 1);
}

/* In a pool of that many a member is always the same thread, 0 the caller; whoever is missing, the others do it all. */
TEST(threads_members_share_and_keep_their_places) {
    static const int counts[] = {1, 2, 3, MOST_MEMBERS};
    sharing *s = calloc(1, sizeof *s);
    REQUIRE(s);
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        sli_threads *threads = NULL;
        pthread_t place[MOST_MEMBERS];
        bool known[MOST_MEMBERS] = {0};
        REQUIRE_OK(sli_threads_new(NULL, counts[k], &threads));
        for (int run = 0; run < 100; run++) {
            if (run % 30 == 0) pause_a_little();
            run_members(threads, counts[k], s);
            for (int i = 0; i < counts[k]; i++) {
                if (!s->came[i]) continue;
                CHECK(!known[i] || pthread_equal(place[i], s->thread[i]));
                CHECK(i > 0 || pthread_equal(s->thread[i], pthread_self()));
                place[i] = s->thread[i];
                known[i] = true;
            }
        }
        run_members(threads, 1, s);
        CHECK(s->came[0] && !s->came[1]);
        sli_threads_free(threads);
    }
    run_members(NULL, 4, s);
    free(s);
}

typedef struct masks {
    pthread_t caller;
    atomic_int here;
    bool blocked[2];
} masks;

static void mask_task(void *context, int index) {
    masks *m = context;
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    m->blocked[index] = pthread_equal(pthread_self(), m->caller) || sigismember(&now, SIGINT);
    atomic_fetch_add(&m->here, 1);
    while (atomic_load(&m->here) < 2) sched_yield();
}

TEST(threads_leave_signals_to_the_program) {
    sli_threads *threads = NULL;
    REQUIRE_OK(sli_threads_new(NULL, 2, &threads));
    masks m = {.caller = pthread_self()};
    sli_threads_for(threads, 2, mask_task, &m);
    CHECK(m.blocked[0] && m.blocked[1]);
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    CHECK(!sigismember(&now, SIGINT));
    sli_threads_free(threads);
}

static void *use_own_pool(void *failed) {
    sli_threads *threads = NULL;
    job *j = calloc(1, sizeof *j);
    if (!j || sli_threads_new(NULL, 2, &threads) != SL_OK) {
        *(int *)failed = 1;
        free(j);
        return NULL;
    }
    for (int round = 1; round <= 200; round++) {
        j->round = 1;
        sli_threads_for(threads, 10, count_task, j);
    }
    *(int *)failed = atomic_load(&j->total) != 2000;
    free(j);
    sli_threads_free(threads);
    return NULL;
}

TEST(threads_pools_do_not_meet) {
    pthread_t user[4];
    int failed[4] = {0};
    for (int i = 0; i < 4; i++) REQUIRE(pthread_create(&user[i], NULL, use_own_pool, &failed[i]) == 0);
    for (int i = 0; i < 4; i++) pthread_join(user[i], NULL);
    for (int i = 0; i < 4; i++) CHECK(!failed[i]);
}

static void *no_memory(void *context, size_t bytes, size_t align) {
    (void)context;
    (void)bytes;
    (void)align;
    return NULL;
}

static void no_free(void *context, void *pointer, size_t bytes) {
    (void)context;
    (void)pointer;
    (void)bytes;
}

TEST(threads_bad_count_and_no_memory) {
    sli_threads *threads = (sli_threads *)&test_seed;
    CHECK_FAILS(sli_threads_new(NULL, 0, &threads), SL_ERR_USAGE, "threads 0");
    CHECK(threads == NULL);
    CHECK_FAILS(sli_threads_new(NULL, 1 << 20, &threads), SL_ERR_USAGE, "from 1 to");
    sl_allocator none = {no_memory, no_free, NULL};
    CHECK_FAILS(sli_threads_new(&none, 2, &threads), SL_ERR_OUT_OF_MEMORY, "thread pool");
}

/* ------------------------------------------------------------------------------------------- how many there may be -- */
static void write_file(const char *folder, const char *name, const char *text) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *slash = strchr(path + strlen(folder) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    REQUIRE(file);
    fputs(text, file);
    fclose(file);
}

static double quota_of(const char *folder) {
    char list[1024], mount[1024];
    snprintf(list, sizeof list, "%s/cgroup", folder);
    snprintf(mount, sizeof mount, "%s/sys", folder);
    return sli_threads_quota(list, mount);
}

TEST(threads_default_is_affinity) {
    int count = sli_threads_default();
    cpu_set_t set;
    CHECK(count >= 1);
    if (sched_getaffinity(0, sizeof set, &set) == 0) CHECK(count <= CPU_COUNT(&set));
}

TEST(threads_default_follows_the_mask) {
    cpu_set_t before, one;
    if (sched_getaffinity(0, sizeof before, &before) != 0) test_skip("this machine has no affinity mask");
    int cpu = 0;
    while (!CPU_ISSET(cpu, &before)) cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) test_skip("the affinity mask cannot be changed here");
    int count = sli_threads_default();
    sched_setaffinity(0, sizeof before, &before);
    CHECK(count == 1);
}

TEST(threads_quota_version_2) {
    const char *folder = test_folder();
    write_file(folder, "cgroup", "0::/job/inner\n");
    CHECK(quota_of(folder) == 0);
    write_file(folder, "sys/job/inner/cpu.max", "max 100000\n");
    CHECK(quota_of(folder) == 0);
    write_file(folder, "sys/job/cpu.max", "250000 100000\n");
    CHECK_NEAR(quota_of(folder), 2.5, 1e-12);
    write_file(folder, "sys/job/inner/cpu.max", "50000 100000\n");
    CHECK_NEAR(quota_of(folder), 0.5, 1e-12);
}

/* In a container the named group is not below the mount point, which is the container's own. */
TEST(threads_quota_in_a_container) {
    const char *folder = test_folder();
    write_file(folder, "cgroup", "0::/not/here\n");
    write_file(folder, "sys/cpu.max", "300000 100000\n");
    CHECK_NEAR(quota_of(folder), 3, 1e-12);
}

TEST(threads_quota_version_1) {
    const char *folder = test_folder();
    write_file(folder, "cgroup", "5:cpuset:/\n4:cpuacct,cpu:/job\n3:memory:/job\nnonsense\n0::/\n");
    write_file(folder, "sys/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
    write_file(folder, "sys/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
    CHECK(quota_of(folder) == 0);
    write_file(folder, "sys/cpu,cpuacct/job/cpu.cfs_quota_us", "150000\n");
    CHECK_NEAR(quota_of(folder), 1.5, 1e-12);
    CHECK(sli_threads_quota("/no/such/file", "/no/such/folder") == 0);
}

/* A forked child has none of the threads: it waits for none. */
TEST(threads_are_freed_in_a_forked_child) {
    sli_threads *threads;
    job job = {.round = 0};
    REQUIRE_OK(sli_threads_new(NULL, 3, &threads));
    sli_threads_run(threads, 100, count_task, &job);
    const pid_t child = fork();
    if (child == 0) {
        alarm(20); /* a child that waits is ended */
        sli_threads_free(threads);
        _exit(7);
    }
    int status = 0;
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    sli_threads_free(threads);
}
