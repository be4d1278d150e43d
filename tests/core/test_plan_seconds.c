/* Which rows a GPU's plans take by predicted time, where measured times are more than 15% apart. */
#include "core/plan.h"
#include "test.h"

/* The name of the row that all recurrent steps of the plan take. */
static void check_chosen(const char *text, const char *expected) {
    sl_model *model;
    sl_plan *plan;
    sl_plan_options options = {.device = "cuda:sm_90"};
    REQUIRE_OK(sl_model_from_problem(NULL, text, &model, &options));
    options.device = "cuda:sm_90";
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    int recurrent = 0;
    for (int i = 0; i < plan->step_count; i++) {
        const sli_step *step = &plan->steps[i];
        if (!sli_op_is_recurrent(step->problem.op)) continue;
        recurrent++;
        if (strcmp(step->kernel->name, expected) != 0)
            test_fail(__FILE__, __LINE__, "%s: %s is planned, %s was faster", text, step->kernel->name, expected);
    }
    CHECK(recurrent > 0);
    sl_plan_free(plan);
    sl_model_free(model);
}

/* Medians on one H200, cuDNN 9.19, 2026-11-21, us: the best and the next one. */
TEST(plan_takes_what_was_measured_to_be_fastest) {
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
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) check_chosen(cases[k].text, cases[k].expected);
}
