/* A program's own threads: whatever order they run tasks in, the numbers are those of Sluice's threads, to the bit. */
#include "core/status.h"
#include "core/threads.h"
#include "proof/parity.h"
#include "proof/problem_model.h"
#include "test.h"
#include "thread_pools.h"

/* ----------------------------------------------------------------------------------------------------- threads -- */
static void count_task(void *context, int index) {
    atomic_int *ran = context;
    atomic_fetch_add(&ran[index], 1);
}

static void expect(const atomic_int *ran, int count, int each) {
    for (int i = 0; i < 8; i++)
        if (ran[i] != (i < count ? each : 0)) test_fail(__FILE__, __LINE__, "%d ran %d times", i, ran[i]);
}

/* Tasks and members go to the pool; one is the caller's. */
TEST(thread_pool_runs_tasks_and_members) {
    for (int k = 0; k < THREAD_POOLS; k++) {
        thread_pool p = {0};
        const sl_thread_pool borrowed = {thread_pools[k], &p};
        sli_threads *threads = NULL;
        REQUIRE_OK(sli_threads_over(NULL, &borrowed, 4, &threads));
        CHECK(sli_threads_count(threads) == 4);
        atomic_int tasks[8] = {0}, members[8] = {0}, one[8] = {0};
        sli_threads_for(threads, 7, count_task, tasks);
        expect(tasks, 7, 1);
        sli_threads_run(threads, 4, count_task, members);
        expect(members, 4, 1);
        CHECK(p.calls == 2);
        sli_threads_run(threads, 1, count_task, one);
        expect(one, 1, 1);
        CHECK(p.calls == 2 && p.nested == 0);
        sli_threads_free(threads);
    }
}

/* ------------------------------------------------------------------------------------------------------- plans -- */
static void keep_failures(void *context, const char *text) {
    if (strstr(text, "FAIL")) test_fail(__FILE__, __LINE__, "%s: %s", (const char *)context, text);
}

static void compare_pools(const char *text) {
    sli_problem problem;
    sl_model *model;
    sl_plan_options options = {0};
    sli_subject *subject;
    sli_trial own, borrowed;
    sli_results a, b;
    REQUIRE_OK(sli_problem_parse(text, &problem));
    REQUIRE_OK(sli_problem_model(NULL, &problem, true, &model, &options));
    options.device = "cpu";
    options.threads = 4;
    options.input_gradients = options.train;
    REQUIRE_OK(sli_subject_new(model, &options, problem.mask, test_seed, &subject));
    REQUIRE_OK(sli_trial_open(subject, &options, &own));
    REQUIRE_OK(sli_results_new(subject, true, &a));
    REQUIRE_OK(sli_results_new(subject, true, &b));
    const sli_trial_call call = {.training = options.train != 0};
    REQUIRE_OK(sli_trial_run(&own, &call, &a));
    for (int k = 0; k < THREAD_POOLS; k++) {
        thread_pool p = {0};
        sl_thread_pool pool_of_program = {thread_pools[k], &p};
        sli_report report = {.line = keep_failures, .context = (void *)text};
        options.thread_pool = &pool_of_program;
        REQUIRE_OK(sli_trial_open(subject, &options, &borrowed));
        pool_of_program.parallel_for = NULL; /* it was copied */
        CHECK(strstr(sl_plan_explain(borrowed.plan), "4 threads of the program's") != NULL);
        REQUIRE_OK(sli_trial_run(&borrowed, &call, &b));
        sli_compare_bits(&a, &b, text, "own threads and the program's", &report);
        CHECK(report.failures == 0 && p.calls > 0 && p.nested == 0);
        sli_trial_close(&borrowed);
    }
    options.thread_pool = NULL;
    sli_trial_close(&own);
    sli_subject_free(subject);
    sl_model_free(model);
}

/* Batches and layers that are cut over rows, over units, and over both directions. */
TEST(thread_pool_changes_no_bit) {
    static const char *const problems[] = {
        "lstm:b17_t9_i13_h40_train+lengths", "lstm:b2_t9_i13_h150_train",          "gru:b9_t9_i13_h40_train",
        "gru:b3_t7_i13_h70_bi_train",        "rnn:b5_t9_i13_h70_train+mask=holes", "lstm:l2_b1_t9_i13_h130"};
    for (size_t k = 0; k < sizeof problems / sizeof *problems; k++) compare_pools(problems[k]);
}

TEST(thread_pool_without_a_function_is_refused) {
    const sl_thread_pool none = {0};
    sl_model *model;
    sl_plan *plan;
    sl_plan_options options = {0};
    REQUIRE_OK(sl_model_from_problem(NULL, "lstm:b2_t3_i4_h5", &model, &options));
    options.thread_pool = &none;
    CHECK_FAILS(sl_plan_new(model, &options, &plan), SL_ERR_INPUT, "parallel_for");
    sl_model_free(model);
}

/* ------------------------------------------------------------------------------------------------------- stacks -- */
enum { PAINTED = 1 << 20 };

/* On a thread made for it, whose stack is painted; *context: bytes of it that some task has used. */
static void measure_stack(void *context, int count, thread_pool_task task, void *task_context) {
    static _Alignas(4096) unsigned char stack[PAINTED];
    size_t *most = context, left = 0;
    thread_pool_loop loop = {.count = count, .task = task, .context = task_context};
    pthread_attr_t attributes;
    pthread_t thread;
    memset(stack, 0xa5, sizeof stack);
    pthread_attr_init(&attributes);
    REQUIRE(pthread_attr_setstack(&attributes, stack, sizeof stack) == 0);
    REQUIRE(pthread_create(&thread, &attributes, thread_pool_take_tasks, &loop) == 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    while (left < sizeof stack && stack[left] == 0xa5) left++;
    if (sizeof stack - left > *most) *most = sizeof stack - left;
}

static void do_nothing(void *context, int index) {
    (void)context, (void)index;
}

/* Of 128 kB the C library has some, with our thread-local memory among it, and AMX's products copy rows. Without the thread-local memory
 * of this program. */
TEST(thread_pool_tasks_take_little_stack) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
    test_skip("functions of this build have larger frames");
#endif
    enum { OF_THREAD = 22 * 1024, AMX_ROWS = 24 * 1024, MOST = 128 * 1024 - OF_THREAD };
    static const char *const ways[][2] = {
        {"lstm:b40_t30_i33_h130_train", "cpu:fused"}, /* which any instruction set shares between two threads */
        {"lstm:l2_b1_t40_i33_h70_train", "cpu:stack"},
        {"gru:l2_b1_t40_i33_h70_bf16_train", "cpu:stack"}};
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
        size_t used = 0, empty = 0;
        const sl_thread_pool pool = {measure_stack, &used};
        sli_problem problem;
        sl_model *model;
        sl_plan_options options = {0};
        sli_subject *subject;
        sli_trial trial;
        sli_results results;
        REQUIRE_OK(sli_problem_parse(ways[k][0], &problem));
        REQUIRE_OK(sli_problem_model(NULL, &problem, true, &model, &options));
        options.device = "cpu";
        options.require = ways[k][1];
        options.threads = 2;
        options.thread_pool = &pool;
        REQUIRE_OK(sli_subject_new(model, &options, problem.mask, test_seed, &subject));
        REQUIRE_OK(sli_trial_open(subject, &options, &trial));
        REQUIRE_OK(sli_results_new(subject, true, &results));
        REQUIRE_OK(sli_trial_run(&trial, &(sli_trial_call){.training = true}, &results));
        measure_stack(&empty, 1, do_nothing, NULL);
        const size_t most = empty + (strstr(sl_plan_explain(trial.plan), "AMX") ? MOST : MOST - AMX_ROWS);
        if (used <= empty || used > most)
            test_fail(__FILE__, __LINE__, "%s: %zu bytes of stack, a thread alone %zu", ways[k][0], used, empty);
        sli_trial_close(&trial);
        sli_subject_free(subject);
        sl_model_free(model);
    }
}
