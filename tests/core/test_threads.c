/* The pool: every task runs once, whatever the number of threads; and how many threads there may be. */
#include "core/threads.h"
#include "test.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
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

/* -------------------------------------------------------------------------------------------------------- teams -- */
enum { MOST_MEMBERS = 16 };
typedef struct assembly {
    int rounds, expected;
    bool naps;                 /* a member now and then sleeps: the others park */
    int written[MOST_MEMBERS]; /* plain: the barrier orders them */
    int wrong[MOST_MEMBERS];   /* sums that a member found wrong */
    pthread_t thread[MOST_MEMBERS];
} assembly;

/* Each round every member writes its own number of the round and, behind the barrier, adds up what all wrote. */
static void assemble(void *context, const sli_team *team, int member) {
    assembly *a = context;
    const int count = sli_team_count(team);
    a->thread[member] = pthread_self();
    a->wrong[member] = count != a->expected;
    for (int round = 1; round <= a->rounds; round++) {
        if (a->naps && (round * 7 + member * 5) % 11 == 0) pause_a_little();
        a->written[member] = round * (member + 1);
        sli_team_wait(team, member);
        int sum = 0;
        for (int i = 0; i < count; i++) sum += a->written[i];
        a->wrong[member] += sum != round * count * (count + 1) / 2;
        sli_team_wait(team, member); /* all have read before anyone writes again */
    }
}

static void run_team(sli_threads *threads, int most, int expected, int rounds, bool naps) {
    assembly a = {.rounds = rounds, .expected = expected, .naps = naps};
    for (int i = 0; i < MOST_MEMBERS; i++) a.wrong[i] = i < expected ? -1 : 0;
    sli_threads_run(threads, most, assemble, &a);
    for (int i = 0; i < MOST_MEMBERS; i++) {
        if (a.wrong[i]) test_fail(__FILE__, __LINE__, "%d members, %d: %d wrong", expected, i, a.wrong[i]);
        for (int j = 0; j < i && i < expected; j++) CHECK(!pthread_equal(a.thread[i], a.thread[j]));
    }
}

TEST(threads_team_meets_at_barriers) {
    static const int counts[] = {1, 2, 4, 16};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        sli_threads *threads = NULL;
        REQUIRE_OK(sli_threads_new(NULL, counts[i], &threads));
        CHECK(sli_threads_members(threads) == counts[i]);
        for (int run = 0; run < 20; run++) run_team(threads, counts[i], counts[i], 100, false);
        run_team(threads, 1000, counts[i], 10, false);
        run_team(threads, 1, 1, 10, false);
        run_team(threads, 0, 1, 10, false);
        run_team(threads, counts[i], counts[i], 20, true);
        sli_threads_free(threads);
    }
    run_team(NULL, 4, 1, 10, false);
    CHECK(sli_threads_members(NULL) == 1);
}

/* Teams smaller than the pool, and tasks in between: nobody is missing at the start, whoever is parked. */
TEST(threads_team_is_a_part_of_the_pool) {
    sli_threads *threads = NULL;
    REQUIRE_OK(sli_threads_new(NULL, 5, &threads));
    job *j = calloc(1, sizeof *j);
    REQUIRE(j);
    j->round = 1;
    for (int run = 0; run < 300; run++) {
        int most = 1 + run % 6;
        if (run % 50 == 0) pause_a_little();
        run_team(threads, most, most < 5 ? most : 5, 3, false);
        sli_threads_for(threads, run % 9, count_task, j);
    }
    free(j);
    sli_threads_free(threads);
}

static void remember_thread(void *context, const sli_team *team, int member) {
    pthread_t *thread = context;
    thread[member] = pthread_self();
    (void)team; /* not one barrier: members start together all the same */
}

/* In a team of the whole pool a member is always the same thread, and member 0 the caller. */
TEST(threads_team_keeps_its_places) {
    sli_threads *threads = NULL;
    pthread_t first[3], now[3];
    REQUIRE_OK(sli_threads_new(NULL, 3, &threads));
    sli_threads_run(threads, 3, remember_thread, first);
    CHECK(pthread_equal(first[0], pthread_self()));
    for (int run = 0; run < 50; run++) {
        sli_threads_run(threads, 3, remember_thread, now);
        for (int i = 0; i < 3; i++) CHECK(pthread_equal(first[i], now[i]));
    }
    sli_threads_free(threads);
}

/* Threads without a CPU of their own: spinning through their slices of time would take some 20 ms a barrier. */
TEST(threads_team_larger_than_the_machine_is_no_cliff) {
    sli_threads *threads = NULL;
    assembly a = {.rounds = 100, .expected = 16};
    REQUIRE_OK(sli_threads_new(NULL, 16, &threads));
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    sli_threads_run(threads, 16, assemble, &a);
    clock_gettime(CLOCK_MONOTONIC, &to);
    double seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
    if (!(seconds < 200 * 5e-3)) test_fail(__FILE__, __LINE__, "%g us a barrier", seconds / 200 * 1e6);
    sli_threads_free(threads);
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
