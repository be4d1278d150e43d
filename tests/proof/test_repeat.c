/* One call again and again, to the bit: blocks that hand memory to each other too early err in one call of a hundred or of thousands, which a
 * proof that repeats a call once does not find (bench/results/rest_h200_2026-11-24.txt, 5: LSTM of 2048 units in tf32 in turns). */
#include "proof/subject.h"
#include "test.h"

typedef struct repeated {
    const char *problem, *kernel;
    int calls;
} repeated;

/* Some of each way in which kernels of a GPU share a step: weights that stream while slices take turns (mma, wgmma), that stream otherwise, that stay. */
static const repeated on_gpu[] = {
    {"lstm:b128_t2_i40_h2048_tf32_train", "cuda:grid", 500},  {"lstm:b64_t2_i40_h2048_tf32_train", "cuda:grid", 300},
    {"lstm:b64_t2_i40_h4096_bf16_train", "cuda:grid", 200},   {"lstm:b64_t2_i40_h1500_tf32_train", "cuda:grid", 300},
    {"gru:b30_t2_i40_h1536_tf32_train", "cuda:grid", 300},    {"lstm:b128_t2_i40_h1024_bf16_train", "cuda:grid", 300},
    {"lstm:b250_t2_i40_h1000_train", "cuda:grid", 300},       {"gru:b250_t2_i40_h1000_train", "cuda:grid", 300},
    {"lstm:b16_t2_i40_h2048_tf32", "cuda:grid", 500},         {"lstm:b33_t9_i12_h650_f32_train", "cuda:grid", 300},
    {"lstm:b33_t9_i12_h256_bf16_train", "cuda:cluster", 500}, {"gru:b17_t9_i12_h257_tf32_train", "cuda:cluster", 500}};
/* Threads that share units, and rows. */
static const repeated on_cpu[] = {{"lstm:b3_t7_i9_h130_train", "cpu:fused", 400},
                                  {"lstm:b37_t7_i9_h40_bf16_train", "cpu:fused", 400},
                                  {"gru:b3_t7_i9_h130_train", "cpu:fused", 400}};

/* The first part of which a number has other bits; NULL: all have the same. */
static const char *different_part(const sli_results *one, const sli_results *other) {
    for (int k = 0; k < one->count; k++)
        if (memcmp(one->parts[k].values, other->parts[k].values, one->parts[k].count * sizeof(double)) != 0)
            return one->parts[k].name;
    return NULL;
}

static int ran;

/* Of training on a CPU; on a GPU of its forward pass, since gradients of large layers are long on their way. */
static void check_repeated(const repeated *r) {
    sl_model *model;
    sl_plan_options options = {0};
    REQUIRE_OK(sl_model_from_problem(NULL, r->problem, &model, &options));
    options.device = test_device;
    options.require = r->kernel;
    options.threads = test_on_gpu() ? 0 : 3;
    sli_subject *subject;
    sli_trial trial;
    sli_results first, again;
    const sli_trial_call call = {.training = !test_on_gpu()};
    REQUIRE_OK(sli_subject_new(model, &options, SLI_MASK_NONE, test_seed, &subject));
    const sl_status status = sli_trial_open(subject, &options, &trial);
    if (status == SL_OK) {
        REQUIRE_OK(sli_results_new(subject, call.training, &first));
        REQUIRE_OK(sli_results_new(subject, call.training, &again));
        REQUIRE_OK(sli_trial_run(&trial, &call, &first));
        int different = 0;
        const char *part = NULL;
        for (int i = 0; i < r->calls; i++) {
            REQUIRE_OK(sli_trial_run(&trial, &call, &again));
            const char *found = different_part(&first, &again);
            if (found) part = found;
            different += found != NULL;
        }
        if (different > 0)
            test_fail(__FILE__, __LINE__, "%s by %s: %d of %d calls differ from the first, in %s", r->problem,
                      r->kernel, different, r->calls, part);
        sli_trial_close(&trial);
        ran++;
    } else if (!test_on_gpu() || status != SL_ERR_NO_KERNEL) { /* a smaller GPU may not have room for it */
        test_fail(__FILE__, __LINE__, "%s: %s", r->problem, sl_error_detail());
    }
    sli_subject_free(subject);
    sl_model_free(model);
}

TEST_SLOW(the_same_call_has_the_same_bits_many_times) {
    const repeated *all = test_on_gpu() ? on_gpu : on_cpu;
    const size_t count = test_on_gpu() ? sizeof on_gpu / sizeof *on_gpu : sizeof on_cpu / sizeof *on_cpu;
    ran = 0;
    for (size_t i = 0; i < count; i++) check_repeated(&all[i]);
    if (ran == 0) test_skip("no such kernel fits on this device");
}
