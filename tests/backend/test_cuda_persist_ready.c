/* Persistent kernels when a plan is made: what is resident decides which cuts there are; on a GPU nothing is left to be compiled at a
 * launch, and threads that plan side by side get what they would get alone. */
#include <pthread.h>

#include "backend/cuda/persist_geometry.h"
#include "backend/cuda/plugin.h"
#include "cuda_caps.h"
#include "problem_text.h"

/* An H200 of which the driver has clusters of `most` blocks and fewer, as many as the formula has. */
static sli_caps limited(int most, int count) {
    sli_caps caps = invented(90);
    caps.resident[0] = 1;
    for (int size = 1; size <= SLI_CLUSTER_MOST; size++) caps.resident[size] = size <= most ? count / size : 0;
    return caps;
}

TEST(cuda_persist_residency_as_the_formula_has_it) {
    const sli_caps formula = invented(90), more = limited(SLI_CLUSTER_MOST, 1 << 20);
    static const char *const problems[] = {"lstm:b16_t10_i8_h256_bf16_train", "lstm:b64_t10_i8_h1024_tf32_train",
                                           "gru:b100_t10_i8_h1000_f32_train"};
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        for (int pass = 0; pass < 4; pass++) {
            const sli_problem p = problem(problems[i]);
            sli_persist_geometry a, b;
            const bool there = sli_persist_choose(&p, &formula, (sli_persist_kind)(pass / 2), pass % 2, &a, NULL);
            REQUIRE(sli_persist_choose(&p, &more, (sli_persist_kind)(pass / 2), pass % 2, &b, NULL) == there);
            CHECK(!there || memcmp(&a, &b, sizeof a) == 0); /* whatever more a GPU has, all of a model choose alike */
        }
}

TEST(cuda_persist_residency_limits_cuts) {
    const sli_problem p = problem("lstm:b16_t10_i8_h256_bf16_train");
    const sli_caps four = limited(4, 132), few = limited(1, 20), none = limited(0, 0);
    sli_persist_geometry g;
    sli_why why = {""};
    for (int backward = 0; backward < 2; backward++) {
        if (sli_persist_choose(&p, &four, SLI_PERSIST_KIND_CLUSTER, backward, &g, &why))
            CHECK(sli_persist_cluster(&g) <= 4);
        REQUIRE(sli_persist_choose(&p, &few, SLI_PERSIST_KIND_GRID, backward, &g, &why));
        CHECK(sli_persist_cluster(&g) == 1 && sli_persist_ctas(&g) <= 20);
        CHECK(!sli_persist_choose(&p, &none, SLI_PERSIST_KIND_CLUSTER, backward, &g, &why) && why.text[0] != 0);
    }
}

static const sli_cuda_plugin *plugin_or_skip(void) {
    sli_why why = {""};
    if (!test_on_gpu()) test_skip("needs a GPU: run with --device cuda:0");
    const sli_cuda_plugin *plugin = sli_cuda_get(&why);
    if (!plugin) test_skip("%s", why.text);
    return plugin;
}

/* Inference, training, several launches of a call, carried and wanted states, masks, stacks, both directions; bench runs each row. */
TEST(cuda_persist_nothing_is_compiled_at_a_launch) {
    static const char *const problems[] = {"lstm:b3_t5_i4_h40_train",
                                           "lstm:b3_t5_i4_h40",
                                           "gru:b9_t5_i4_h100_train+lengths",
                                           "gru:b2_t5_i4_h72_bf16_train+reverse",
                                           "rnn:b4_t6_i4_h60_bi_train_tf32+mask=holes",
                                           "lstm:b5_t4_i4_h64_train+peephole+recompute+zoneout_c=0.1+zoneout_h=0.1",
                                           "lstm:b8_t1538_i1024_h100+lengths",
                                           "lstm:b5_t9_i4_h65_p20_train+lengths",
                                           "lstm:b3_t9_i4_h40_p48_bf16",
                                           "lstm:l2_b20_t130_i8_h40_train_tf32"};
    const sli_cuda_plugin *plugin = plugin_or_skip();
    const long before = plugin->late_kernels();
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        const sl_plan_options options = {.device = test_device, .require = "cuda:"};
        REQUIRE_OK(sl_bench_problem(problems[i], &options, 1e-3, NULL, NULL));
        const long late = plugin->late_kernels() - before;
        if (late != 0) test_fail(__FILE__, __LINE__, "%s: %ld kernels", problems[i], late);
    }
}

static void *plan_one(void *text) {
    sl_model *model = NULL;
    sl_plan *plan = NULL;
    sl_plan_options options = {0};
    sl_status status = sl_model_from_problem(NULL, text, &model, &options);
    options.device = test_device;
    options.require = "cuda:cluster";
    if (status == SL_OK) status = sl_plan_new(model, &options, &plan);
    sl_plan_free(plan);
    sl_model_free(model);
    return status == SL_OK ? text : NULL;
}

TEST(cuda_persist_threads_plan_side_by_side) {
    enum { THREADS = 6 };
    static char problems[THREADS][40] = {"lstm:b3_t5_i4_h44_train", "lstm:b3_t5_i4_h44_train", "gru:b3_t5_i4_h44",
                                         "gru:b3_t5_i4_h52",        "gru:b3_t5_i4_h52",        "rnn:b3_t5_i4_h44"};
    (void)plugin_or_skip();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) REQUIRE(pthread_create(&threads[i], NULL, plan_one, problems[i]) == 0);
    for (int i = 0; i < THREADS; i++) {
        void *done = NULL;
        REQUIRE(pthread_join(threads[i], &done) == 0);
        CHECK(done != NULL);
    }
}
