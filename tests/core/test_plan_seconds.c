/* Which row a GPU's plans predict to be the fastest, where measured times are more than 15% apart. */
#include "core/plan.h"
#include "test.h"

/* Predicted seconds of a plan whose recurrent steps all take this row; -1: it does not take them. */
static double predicted(const char *text, const char *row) {
    sl_model *model;
    sl_plan *plan;
    sl_plan_options options = {.device = "cuda:sm_90"};
    REQUIRE_OK(sl_model_from_problem(NULL, text, &model, &options));
    options.device = "cuda:sm_90";
    options.require = row;
    double seconds = -1;
    if (sl_plan_new(model, &options, &plan) == SL_OK) {
        seconds = 0;
        for (int i = 0; i < plan->step_count; i++)
            if (sli_op_is_recurrent(plan->steps[i].problem.op)) seconds += plan->steps[i].seconds;
        sl_plan_free(plan);
    }
    sl_model_free(model);
    return seconds;
}

/* Of the rows that were measured the expected one is predicted to be the fastest. */
static void check_fastest(const char *text, const char *expected) {
    static const char *const measured[] = {"cuda:step", "cudnn:standard", "cudnn:persist_static",
                                           "cudnn:persist_dynamic", "cudnn:small_h"};
    const double least = predicted(text, expected);
    if (least <= 0) test_fail(__FILE__, __LINE__, "%s: %s does not take it", text, expected);
    for (size_t k = 0; k < sizeof measured / sizeof *measured; k++) {
        const double seconds = predicted(text, measured[k]);
        if (seconds >= 0 && seconds < least)
            test_fail(__FILE__, __LINE__, "%s: %s is predicted to be faster than %s", text, measured[k], expected);
    }
}

/* Medians on one H200, cuDNN 9.19, 2026-11-21, us: the best and the next one. */
TEST(plan_predicts_what_was_measured_to_be_fastest) {
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"lstm:l2_b20_t35_i1500_h1500_bf16_train", "cuda:step"},        /* 1746, cudnn:standard 3714 */
        {"lstm:l2_b20_t35_i650_h650_bf16_train", "cuda:step"},          /* 1128, cudnn:standard 1420 */
        {"lstm:b16_t1000_i256_h256_bf16_train", "cuda:step"},           /* 5864, cudnn:standard 11839 */
        {"lstm:b256_t128_i1024_h1024_bf16_train", "cudnn:standard"},    /* 5123, cuda:step 6621 */
        {"lstm:l4_b64_t300_i512_h256_bf16_train", "cudnn:standard"},    /* 8008, cuda:step 11404 */
        {"lstm:b128_t25_i2048_h2048_bf16_train", "cudnn:standard"},     /* 1687, cuda:step 2074 */
        {"lstm:l2_b20_t35_i1500_h1500_bf16", "cuda:step"},              /* 688, cudnn:standard 1388 */
        {"lstm:b1_t2000_i128_h128_bf16", "cuda:step"},                  /* 5124, cudnn:standard 8814 */
        {"lstm:l2_b20_t35_i650_h650_tf32_train", "cuda:step"},          /* 1512, cudnn:standard 2353 */
        {"lstm:l2_b20_t20_i200_h200_tf32_train", "cuda:step"},          /* 391, cudnn:standard 627 */
        {"lstm:b64_t25_i1024_h1024_tf32_train", "cuda:step"},           /* 883, cudnn:standard 1343 */
        {"lstm:b1_t512_i1024_h1024_tf32", "cudnn:persist_static"},      /* 2850, cuda:step 3324 */
        {"lstm:b1_t2000_i128_h128_tf32", "cudnn:persist_static"},       /* 1558, cudnn:small_h 3421 */
        {"lstm:l2_b32_t50_i16_h64_tf32_train", "cudnn:small_h"},        /* 214, cuda:step 674 */
        {"lstm:l2_b32_t50_i16_h64_tf32", "cudnn:small_h"},              /* 82, cuda:step 278 */
        {"lstm:l2_b20_t35_i1500_h1500_f32_train", "cuda:step"},         /* 7023, cudnn:standard 8116 */
        {"lstm:l4_b64_t300_i512_h256_f32_train", "cudnn:standard"},     /* 15771, cuda:step 30461 */
        {"lstm:l4_b64_t300_i512_h256_f32", "cudnn:standard"},           /* 6170, cuda:step 13633 */
        {"lstm:b32_t25_i2048_h2048_f32_train", "cuda:step"},            /* 4732, cudnn:standard 6639 */
        {"lstm:b16_t1024_i768_h768_f16_train", "cudnn:persist_static"}, /* 6840, cuda:step 12745 */
        {"lstm:b16_t25_i1024_h1024_f16", "cudnn:persist_static"},       /* 69, cuda:step 160 */
        {"lstm:l2_b20_t35_i1500_h1500_f16", "cuda:step"},               /* 696, cudnn:standard 1182 */
        {"lstm:b64_t150_i256_h256_f16_train", "cuda:step"},             /* 1435, cudnn:standard 1980 */
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) check_fastest(cases[k].text, cases[k].expected);
}
