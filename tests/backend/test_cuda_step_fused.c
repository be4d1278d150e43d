/* cuda:step: which problems take a step in one launch. */
#include "backend/cuda/step_layout.h"
#include "problem_text.h"
#include "test.h"

TEST(cuda_step_fused_takes_small_layers) {
    static const char *const taken[] = {
        "lstm:b20_t20_i200_h200_bf16_train",
        "lstm:b20_t20_i200_h200_tf32_train",
        "gru:b64_t20_i200_h200_f16_bi_train+lengths",
        "rnn:b1_t1_i1_h1_f16_train+act=relu",
        "lstm:b3_t4_i5_h6_bf16_train+clip=0.5+forget=1+peephole+rdrop=0.3+zoneout_c=0.2+zoneout_h=0.1",
    };
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        const sli_problem p = problem(taken[i]);
        if (!sli_step_fused(&p, false) || !sli_step_fused(&p, true)) test_fail(__FILE__, __LINE__, "%s", taken[i]);
    }
}

TEST(cuda_step_fused_leaves_two_products_and_large_ones) {
    static const char *const left[] = {
        "lstm:b3_t4_i5_h6_p3_f32_train",  "gru:b3_t4_i5_h6_bf16_train+reset=before", "lstm:b65_t4_i5_h6_bf16_train",
        "lstm:b1_t4_i5_h8191_bf16_train", "lstm:b20_t35_i4096_h4096_tf32_train",     "lstm:b20_t20_i200_h200_f32_train",
    };
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        const sli_problem p = problem(left[i]);
        if (sli_step_fused(&p, false) || sli_step_fused(&p, true)) test_fail(__FILE__, __LINE__, "%s", left[i]);
    }
}

/* Neither steps, so that segments and single steps compute alike, nor training's options decide. */
TEST(cuda_step_fused_goes_by_shape) {
    static const sl_dtype dtypes[] = {SL_TF32, SL_BF16, SL_F16};
    sli_problem p = problem("lstm:b20_t20_i200_h200_train");
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        p.dtype = dtypes[d];
        int widest[2] = {0, 0};
        for (int backward = 0; backward < 2; backward++) {
            bool before = true;
            for (int units = 1; units <= 4096; units++) {
                p.units = units;
                p.steps = 20;
                const bool fused = sli_step_fused(&p, backward);
                CHECK(before || !fused); /* one limit */
                before = fused;
                if (fused) widest[backward] = units;
                p.steps = 1;
                CHECK(sli_step_fused(&p, backward) == fused);
            }
        }
        CHECK(widest[0] > 0 && widest[1] > 0 && widest[0] < 4096 && widest[1] < 4096);
    }
}

/* Without training the state that a step reads is not the one that it writes: blocks run at their own pace. */
TEST(cuda_step_fused_reads_one_state_and_writes_another) {
    const sli_problem p = problem("lstm:b30_t7_i5_h11_bf16");
    const sli_step_history at = sli_step_layout_history(&p, 3);
    CHECK(at.hf - at.h >= (size_t)2 * 30 * 16 * 2);
}

/* Threads of a block and its partial sums: the kernels' static shared memory. */
TEST(cuda_step_fused_blocks_fit) {
    CHECK(SLI_STEP_FUSED_ROWS % 16 == 0 && SLI_STEP_FUSED_FORWARD_UNITS == 8 && SLI_STEP_FUSED_BACKWARD_UNITS == 16);
    const int forward = SLI_STEP_FUSED_ROWS * SLI_STEP_FUSED_FORWARD_UNITS,
              backward = SLI_STEP_FUSED_ROWS * SLI_STEP_FUSED_BACKWARD_UNITS;
    CHECK(forward <= 1024 && backward <= 1024);
    CHECK(forward / 32 * 4 * forward * 4 <= 48 << 10 && backward / 32 * backward * 4 <= 48 << 10);
}
