/* The reference kernels that are not recurrent layers: gradients against finite differences, segments, and values by hand. */
#include "test_ref_case.h"

static const char *const problems[] = {
    "dense:b3_t4_i3_h5_f64_train",
    "dense:b3_i3_h5_f64_train",
    "dense:b3_t4_i3_h5_f64_train+nobias",
    "dense:b3_t4_i3_h5_f64_train+act=tanh",
    "dense:b3_t4_i3_h5_f64_train+act=sigmoid",
    "dense:b2_t3_i3_h4_f64_train+act=relu",
    "dense:b2_t3_i3_h4_f64_train+act=hard_sigmoid",
    "dense:b2_t3_i3_h4_f64_train+act=hard_sigmoid_k2+nobias",
    "dense:b3_t4_i3_h5_f64_train+act=softsign",
    "embed:b3_t5_i4_h3_f64_train",
    "embed:b3_i4_h3_f64_train",
    "dropout:b3_t4_h5_f64_train+drop=0.4",
    "dropout:b3_h5_f64_train+drop=0.4",
    "merge:b3_t4_h5_f64_train+mode=add+parts=2",
    "merge:b3_t4_h5_f64_train+mode=mul+parts=4",
    "merge:b3_t4_h5_f64_train+mode=ave+parts=3",
    "merge:b3_t4_h6_f64_train+mode=concat+parts=3",
    "merge:b3_t4_h6_f64_train+mode=concat+parts=3+widths=1:3:2",
    "merge:b3_h5_f64_train+mode=mul+parts=2",
    "xent:b3_t5_h4_f64_train",
    "xent:b4_h4_f64_train",
    "xent:b4_t5_h4_f64_train+lengths",
    "xent:b4_t5_h4_f64_train+mask=holes",
    "bce:b3_t5_h2_f64_train",
    "bce:b4_t5_h2_f64_train+mask=left",
    "bce:b3_h2_f64_train",
    "mse:b3_t5_h2_f64_train",
    "mse:b4_t5_h2_f64_train+lengths",
    "mse:b3_h2_f64_train",
};
enum { PROBLEMS = sizeof problems / sizeof problems[0] };

TEST(ref_op_gradients) {
    for (int k = 0; k < PROBLEMS; k++) ref_check_gradients(problems[k], (uint64_t)k, true);
    ref_check_gradients("flip:b3_t4_h5_f64_train", 90, true);
    ref_check_gradients("dropout:b3_t4_h5_f64_train+drop=0.4", 91, false);
}

TEST(ref_op_segments) {
    for (int k = 0; k < PROBLEMS; k++) {
        sli_problem p;
        REQUIRE_OK(sli_problem_parse(problems[k], &p));
        for (int f32 = 0; p.steps > 0 && f32 < 2; f32++)
            for (int segment = 1; segment <= 3; segment++) {
                char text[SLI_PROBLEM_TEXT];
                if (f32) p.dtype = SL_F32;
                sli_problem_print(&p, text, sizeof text);
                ref_check_segments(text, (uint64_t)k, segment);
            }
    }
    ref_check_segments("onehot:b3_t5_i4_f64_train", 92, 2);
}

/* Gradients of inputs replace what is there, or are added to it where the call's bits say so. */
TEST(ref_accumulate_bits) {
    const char *texts[] = {"lstm:b2_t3_i2_h3_f64_train+lengths",
                           "gru:b2_t3_i2_h3_f64_train",
                           "rnn:b2_t3_i2_h3_f64_train",
                           "dense:b2_t3_i2_h3_f64_train",
                           "dropout:b2_t3_h3_f64_train+drop=0.5",
                           "merge:b2_t3_h4_f64_train+mode=concat+parts=2",
                           "merge:b2_t3_h4_f64_train+mode=mul+parts=2",
                           "flip:b2_t3_h4_f64_train",
                           "xent:b2_t3_h4_f64_train",
                           "bce:b2_t3_h4_f64_train",
                           "mse:b2_t3_h4_f64_train"};
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) {
        ref_case plain, added;
        ref_case_new(&plain, texts[k], k);
        ref_case_new(&added, texts[k], k);
        added.accumulate = ~0u;
        for (int n = 0; n < SLI_MAX_IN; n++)
            for (size_t e = 0; e < added.in_count[n]; e++) {
                ref_set(&added, added.d_in[n], e, 4);
                ref_set(&plain, plain.d_in[n], e, NAN);
            }
        ref_forward(&plain);
        ref_forward(&added);
        ref_backward(&plain);
        ref_backward(&added);
        bool loss = plain.out_count[0] == 0;
        for (int n = 0; n < (loss ? 1 : SLI_MAX_IN); n++)
            for (size_t e = 0; e < added.in_count[n]; e++)
                CHECK_NEAR(ref_get(&added, added.d_in[n], e), 4 + ref_get(&plain, plain.d_in[n], e), 1e-12);
        ref_case_free(&plain);
        ref_case_free(&added);
    }
}

/* Outputs whose gradient nobody has, and gradients that nobody wants. */
TEST(ref_missing_gradients) {
    const char *texts[] = {"lstm:b2_t3_i2_h3_p2_f64_train+bias=double+peephole",
                           "gru:b2_t3_i2_h3_f64_train+reset=before",
                           "rnn:b2_t3_i2_h3_f64_train",
                           "dense:b2_t3_i2_h3_f64_train",
                           "embed:b2_t3_i2_h3_f64_train",
                           "dropout:b2_t3_h3_f64_train+drop=0.5",
                           "merge:b2_t3_h4_f64_train+mode=concat+parts=2",
                           "flip:b2_t3_h4_f64_train"};
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) {
        ref_case test;
        ref_case_new(&test, texts[k], k);
        for (int n = 0; n < SLI_MAX_OUT; n++) free(test.d_out[n]), test.d_out[n] = NULL;
        ref_forward(&test);
        ref_backward(&test);
        for (int n = 0; n < SLI_MAX_IN; n++)
            for (size_t e = 0; e < test.in_count[n]; e++) CHECK(ref_get(&test, test.d_in[n], e) == 0);
        for (int n = 0; n < SLI_MAX_PARAM; n++)
            for (size_t e = 0; e < test.param_count[n]; e++) CHECK(ref_get(&test, test.d_param[n], e) == 0);
        for (int n = 0; n < SLI_MAX_IN; n++) free(test.d_in[n]), test.d_in[n] = NULL;
        for (int n = 0; n < SLI_MAX_PARAM; n++) free(test.d_param[n]), test.d_param[n] = NULL;
        ref_backward(&test);
        ref_case_free(&test);
    }
}

TEST(ref_merge_values) {
    const char *modes[] = {"add", "mul", "ave"};
    for (int mode = 0; mode < 3; mode++) {
        char text[SLI_PROBLEM_TEXT];
        ref_case test;
        snprintf(text, sizeof text, "merge:b2_t2_h3_f64+mode=%s+parts=3", modes[mode]);
        ref_case_new(&test, text, 1);
        ref_forward(&test);
        for (size_t e = 0; e < test.out_count[0]; e++) {
            double a = ref_get(&test, test.in[0], e), b = ref_get(&test, test.in[1], e),
                   c = ref_get(&test, test.in[2], e);
            double expected[] = {a + b + c, a * b * c, (a + b + c) / 3};
            CHECK_NEAR(ref_get(&test, test.out[0], e), expected[mode], 1e-15);
        }
        ref_case_free(&test);
    }
    ref_case test;
    ref_case_new(&test, "merge:b2_t2_h5_f64+mode=concat+widths=3:2", 2);
    ref_forward(&test);
    for (size_t row = 0; row < 4; row++)
        for (size_t j = 0; j < 5; j++)
            CHECK(ref_get(&test, test.out[0], row * 5 + j) ==
                  (j < 3 ? ref_get(&test, test.in[0], row * 3 + j) : ref_get(&test, test.in[1], row * 2 + j - 3)));
    ref_case_free(&test);
}

TEST(ref_moving_ops) {
    ref_case test;
    ref_case_new(&test, "onehot:b2_t3_i4_f64", 1);
    ref_forward(&test);
    for (size_t row = 0; row < 6; row++)
        for (int j = 0; j < 4; j++)
            CHECK(ref_get(&test, test.out[0], row * 4 + (size_t)j) == (test.integers[row] == j));
    ref_case_free(&test);
    ref_case_new(&test, "embed:b2_t3_i4_h5_f64", 2);
    ref_forward(&test);
    for (size_t row = 0; row < 6; row++)
        CHECK(!memcmp((double *)test.out[0] + row * 5, (double *)test.param[0] + test.integers[row] * 5,
                      5 * sizeof(double)));
    ref_case_free(&test);
    ref_case_new(&test, "flip:b2_t3_h5_f64", 3);
    ref_forward(&test);
    for (size_t t = 0; t < 3; t++)
        CHECK(!memcmp((double *)test.out[0] + t * 10, (double *)test.in[0] + (2 - t) * 10, 10 * sizeof(double)));
    ref_case_free(&test);
}

/* The mask is indexed by the element of [T][B][H]; kept values are scaled; about p of them are dropped. */
TEST(ref_dropout_values) {
    ref_case test;
    ref_case_new(&test, "dropout:b10_t20_h30_train+drop=0.3", 5);
    sli_rng rng = {77, 3, 1, 5 << 8 | SLI_PURPOSE_DROPOUT};
    double dropped = 0;
    ref_forward(&test);
    for (size_t e = 0; e < 6000; e++) {
        bool drop = sli_rng_word(&rng, e) < sli_drop_threshold(0.3);
        dropped += drop;
        CHECK_NEAR(ref_get(&test, test.out[0], e), drop ? 0 : ref_get(&test, test.in[0], e) / 0.7, 1e-6);
    }
    CHECK_NEAR(dropped / 6000, 0.3, 0.03);
    test.training = false;
    ref_forward(&test);
    CHECK(!memcmp(test.out[0], test.in[0], 6000 * sizeof(float)));
    ref_case_free(&test);
}

TEST(ref_xent_values) {
    ref_case test;
    ref_case_new(&test, "xent:b2_t2_h3_f64_train", 6);
    const double logits[] = {1, 2, 3, 1000, 0, 0, 5, 5, 5, -1, 0, 1};
    const int32_t labels[] = {2, 1, -1, 0};
    memcpy(test.in[0], logits, sizeof logits);
    memcpy(test.integers, labels, sizeof labels);
    ref_forward(&test);
    double sum = exp(-2) + exp(-1) + 1, expected = log(sum) + 1000 + (log(sum) + 2);
    CHECK_NEAR(test.metrics.loss_sum, expected, 1e-12);
    CHECK(test.metrics.count == 3);
    CHECK(test.metrics.correct == 1);
    ref_backward(&test);
    CHECK_NEAR(ref_get(&test, test.d_in[0], 2), 0.7 * (1 / sum - 1), 1e-15);
    CHECK_NEAR(ref_get(&test, test.d_in[0], 3), 0.7, 1e-15);
    CHECK(ref_get(&test, test.d_in[0], 7) == 0);
    ref_case_free(&test);
}

TEST(ref_bce_and_mse_values) {
    ref_case test;
    ref_case_new(&test, "bce:b1_t1_h4_f64_train", 7);
    const double z[] = {800, -800, 0.5, -0.25}, y[] = {0, 0, 1, 1};
    memcpy(test.in[0], z, sizeof z);
    memcpy(test.in[SLI_LOSS_TARGET], y, sizeof y);
    ref_forward(&test);
    CHECK_NEAR(test.metrics.loss_sum, 800 + log1p(exp(-0.5)) + log1p(exp(0.25)), 1e-12);
    CHECK(test.metrics.count == 4 && test.metrics.correct == 2);
    ref_case_free(&test);
    ref_case_new(&test, "mse:b1_t1_h4_f64_train", 8);
    memcpy(test.in[0], z, sizeof z);
    memcpy(test.in[SLI_LOSS_TARGET], y, sizeof y);
    ref_forward(&test);
    CHECK_NEAR(test.metrics.loss_sum, 2 * 640000.0 + 0.25 + 1.5625, 1e-9);
    CHECK(test.metrics.count == 4);
    ref_case_free(&test);
}

/* Masked and ignored steps do not count, a recomputed segment writes no metrics, a gradient may replace its logits. */
TEST(ref_loss_bookkeeping) {
    ref_case test;
    ref_case_new(&test, "xent:b4_t5_h4_f64_train+lengths", 9);
    double count = 0;
    for (int t = 0; t < 5; t++)
        for (int b = 0; b < 4; b++) count += t < test.lengths[b] && test.integers[t * 4 + b] >= 0;
    ref_forward(&test);
    ref_backward(&test);
    CHECK(test.metrics.count == count && count < 20);
    test.recompute = true;
    ref_forward(&test);
    CHECK(test.metrics.count == 0 && test.metrics.loss_sum == 0);
    size_t bytes = test.in_count[0] * sizeof(double);
    void *expected = test.d_in[0];
    test.d_in[0] = test.in[0];
    CHECK(test.kernel->gradient_in_place);
    ref_backward(&test);
    CHECK(!memcmp(test.in[0], expected, bytes));
    test.d_in[0] = expected;
    ref_case_free(&test);
}
