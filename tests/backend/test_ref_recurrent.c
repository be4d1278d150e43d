/* The recurrent reference kernels: every option's gradient against finite differences in double, the same bits in segments,
 * and what masks, dropout, zoneout and the bias forms mean, computed by hand. */
#include "test_ref_case.h"

/* Every option alone and the combinations that touch one another. */
static const char *const problems[] = {
    "lstm:b3_t5_i3_h4_f64_train",
    "lstm:b2_t4_i3_h4_f64_train+bias=none",
    "lstm:b2_t4_i3_h4_f64_train+bias=double",
    "lstm:b1_t4_i2_h3_f64_train+act=relu+ract=hard_sigmoid",
    "lstm:b2_t4_i2_h3_f64_train+act=softsign+ract=hard_sigmoid_k2",
    "lstm:b2_t4_i2_h3_f64_train+act=sigmoid+ract=tanh",
    "lstm:b2_t3_i2_h3_f64_train+act=linear+ract=softsign",
    "lstm:b2_t4_i3_h4_f64_train+peephole",
    "lstm:b2_t4_i3_h4_f64_train+clip=0.4",
    "lstm:b2_t5_i3_h4_f64_train+clip=0.4+peephole",
    "lstm:b2_t4_i3_h4_p2_f64_train",
    "lstm:b2_t4_i3_h3_p5_f64_train+bias=double",
    "lstm:b2_t4_i3_h4_f64_train+forget=1",
    "lstm:b2_t4_i3_h4_f64_train+rdrop=0.4",
    "lstm:b3_t5_i3_h4_f64_train+zoneout_h=0.3",
    "lstm:b3_t5_i3_h4_f64_train+zoneout_c=0.3",
    "lstm:b3_t5_i3_h4_f64_train+reverse",
    "lstm:b4_t5_i3_h4_f64_train+lengths",
    "lstm:b4_t5_i3_h4_f64_train+lengths+maskout=repeat+reverse",
    "lstm:b4_t5_i3_h4_f64_train+mask=left+maskout=repeat",
    "lstm:b4_t5_i3_h4_f64_train+mask=right",
    "lstm:b4_t6_i3_h4_f64_train+mask=holes+maskout=repeat",
    "lstm:b4_t6_i3_h5_p3_f64_train+clip=0.5+forget=0.5+mask=holes+maskout=repeat+peephole+rdrop=0.3+reverse+zoneout_c="
    "0.2+zoneout_h="
    "0.3",
    "gru:b3_t5_i3_h4_f64_train",
    "gru:b3_t5_i3_h4_f64_train+bias=none",
    "gru:b3_t5_i3_h4_f64_train+bias=single",
    "gru:b3_t5_i3_h4_f64_train+bias=single+reset=before",
    "gru:b3_t5_i3_h4_f64_train+bias=double+reset=before",
    "gru:b3_t5_i3_h4_f64_train+bias=none+reset=before",
    "gru:b2_t4_i2_h3_f64_train+act=relu+ract=hard_sigmoid",
    "gru:b2_t4_i2_h3_f64_train+act=softsign+ract=hard_sigmoid_k2+reset=before",
    "gru:b3_t5_i3_h4_f64_train+rdrop=0.4",
    "gru:b3_t5_i3_h4_f64_train+rdrop=0.4+reset=before",
    "gru:b3_t5_i3_h4_f64_train+zoneout_h=0.3",
    "gru:b4_t5_i3_h4_f64_train+lengths+reverse",
    "gru:b4_t5_i3_h4_f64_train+lengths+maskout=repeat",
    "gru:b4_t5_i3_h4_f64_train+mask=left",
    "gru:b4_t6_i3_h4_f64_train+mask=holes+maskout=repeat+rdrop=0.3+reset=before+reverse+zoneout_h=0.3",
    "gru:b4_t6_i3_h4_f64_train+mask=holes+maskout=repeat+rdrop=0.3+zoneout_h=0.3",
    "rnn:b3_t5_i3_h4_f64_train",
    "rnn:b3_t5_i3_h4_f64_train+bias=none",
    "rnn:b3_t5_i3_h4_f64_train+bias=double",
    "rnn:b2_t4_i3_h4_f64_train+act=relu",
    "rnn:b2_t4_i3_h4_f64_train+act=sigmoid",
    "rnn:b2_t3_i3_h3_f64_train+act=linear",
    "rnn:b3_t5_i3_h4_f64_train+rdrop=0.4",
    "rnn:b3_t5_i3_h4_f64_train+zoneout_h=0.3",
    "rnn:b4_t6_i3_h4_f64_train+mask=holes+maskout=repeat+rdrop=0.3+reverse+zoneout_h=0.3",
    "rnn:b1_t1_i1_h1_f64_train",
};
enum { PROBLEMS = sizeof problems / sizeof problems[0] };

TEST(ref_recurrent_gradients) {
    for (int k = 0; k < PROBLEMS; k++) ref_check_gradients(problems[k], (uint64_t)k, true);
}

TEST(ref_recurrent_segments) {
    for (int k = 0; k < PROBLEMS; k++)
        for (int f32 = 0; f32 < 2; f32++)
            for (int segment = 1; segment <= 3; segment++) {
                char text[SLI_PROBLEM_TEXT];
                sli_problem p;
                REQUIRE_OK(sli_problem_parse(problems[k], &p));
                if (f32) p.dtype = SL_F32;
                sli_problem_print(&p, text, sizeof text);
                ref_check_segments(text, (uint64_t)k, segment);
            }
}

/* f32 is the same mathematics: its distance to double is rounding. */
TEST(ref_recurrent_f32_near_f64) {
    for (int k = 0; k < PROBLEMS; k++) {
        char text[SLI_PROBLEM_TEXT];
        ref_case exact, single;
        ref_case_new(&exact, problems[k], (uint64_t)k);
        sli_problem p = exact.problem;
        p.dtype = SL_F32;
        sli_problem_print(&p, text, sizeof text);
        ref_case_new(&single, text, (uint64_t)k);
        ref_forward(&exact);
        ref_forward(&single);
        ref_backward(&exact);
        ref_backward(&single);
        for (size_t e = 0; e < exact.out_count[0]; e++)
            CHECK_NEAR(ref_get(&single, single.out[0], e), ref_get(&exact, exact.out[0], e), 1e-4);
        for (size_t e = 0; e < exact.in_count[0]; e++)
            CHECK_NEAR(ref_get(&single, single.d_in[0], e), ref_get(&exact, exact.d_in[0], e), 1e-2);
        ref_case_free(&exact);
        ref_case_free(&single);
    }
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

static double element(const ref_case *test, const void *tensor, size_t index) {
    return ref_get(test, tensor, index);
}

/* One unit, two steps, every weight a different number: the equations of sluice.h written out. */
TEST(ref_lstm_by_hand) {
    ref_case test;
    ref_case_new(&test, "lstm:b1_t2_i1_h1_f64+clip=0.6+forget=0.75+peephole+bias=double", 1);
    const double *w = test.param[0], *r = test.param[1], *b = test.param[2], *rb = test.param[3], *peep = test.param[4];
    double h = element(&test, test.in[SLI_RNN_H0], 0), c = element(&test, test.in[SLI_RNN_C0], 0);
    ref_forward(&test);
    for (size_t t = 0; t < 2; t++) {
        double x = element(&test, test.in[0], t), z[4];
        for (int g = 0; g < 4; g++) z[g] = w[g] * x + b[g] + r[g] * h + rb[g];
        double i = sigmoid(z[0] + peep[0] * c), f = sigmoid(z[1] + peep[1] * c + 0.75), g = tanh(z[2]);
        c = fmax(-0.6, fmin(0.6, f * c + i * g));
        h = sigmoid(z[3] + peep[2] * c) * tanh(c);
        CHECK_NEAR(element(&test, test.out[SLI_RNN_Y], t), h, 1e-14);
    }
    CHECK_NEAR(element(&test, test.out[SLI_RNN_HT], 0), h, 1e-14);
    CHECK_NEAR(element(&test, test.out[SLI_RNN_CT], 0), c, 1e-14);
    ref_case_free(&test);
}

TEST(ref_lstm_projection_by_hand) {
    ref_case test;
    ref_case_new(&test, "lstm:b1_t1_i1_h2_p1_f64", 2);
    const double *w = test.param[0], *r = test.param[1], *b = test.param[2], *project = test.param[5];
    double x = element(&test, test.in[0], 0), h = element(&test, test.in[1], 0), expected = 0;
    for (int j = 0; j < 2; j++) {
        double z[4];
        for (int g = 0; g < 4; g++) z[g] = w[g * 2 + j] * x + b[g * 2 + j] + r[g * 2 + j] * h;
        double c = sigmoid(z[1]) * element(&test, test.in[2], (size_t)j) + sigmoid(z[0]) * tanh(z[2]);
        expected += project[j] * sigmoid(z[3]) * tanh(c);
    }
    ref_forward(&test);
    CHECK_NEAR(element(&test, test.out[0], 0), expected, 1e-14);
    ref_case_free(&test);
}

/* Both forms, and b_n of the recurrent bias inside r * (...) for reset after. */
TEST(ref_gru_by_hand) {
    for (int before = 0; before < 2; before++) {
        ref_case test;
        ref_case_new(&test, before ? "gru:b1_t1_i1_h2_f64+reset=before+bias=double" : "gru:b1_t1_i1_h2_f64+bias=double",
                     3);
        const double *w = test.param[0], *r = test.param[1], *b = test.param[2], *rb = test.param[3], *h = test.in[1];
        double x = element(&test, test.in[0], 0), u[6], s[6], reset[2];
        for (int g = 0; g < 6; g++) u[g] = w[g] * x + b[g], s[g] = r[g * 2] * h[0] + r[g * 2 + 1] * h[1] + rb[g];
        for (int j = 0; j < 2; j++) reset[j] = sigmoid(u[j] + s[j]);
        ref_forward(&test);
        for (int j = 0; j < 2; j++) {
            double z = sigmoid(u[2 + j] + s[2 + j]), n = u[4 + j] + reset[j] * s[4 + j];
            if (before)
                n = u[4 + j] + r[(4 + j) * 2] * reset[0] * h[0] + r[(4 + j) * 2 + 1] * reset[1] * h[1] + rb[4 + j];
            CHECK_NEAR(element(&test, test.out[0], (size_t)j), (1 - z) * tanh(n) + z * h[j], 1e-14);
        }
        ref_case_free(&test);
    }
}

/* +forget=V is a constant in f's bias. */
TEST(ref_forget_at_run_is_a_bias) {
    ref_case run, variable;
    ref_case_new(&run, "lstm:b2_t3_i2_h3_f64+forget=1.5", 4);
    ref_case_new(&variable, "lstm:b2_t3_i2_h3_f64", 4);
    for (size_t j = 3; j < 6; j++) ref_set(&variable, variable.param[2], j, ref_get(&run, run.param[2], j) + 1.5);
    ref_forward(&run);
    ref_forward(&variable);
    for (size_t e = 0; e < run.out_count[0]; e++)
        CHECK_NEAR(ref_get(&run, run.out[0], e), ref_get(&variable, variable.out[0], e), 1e-14);
    ref_case_free(&run);
    ref_case_free(&variable);
}

/* Outputs at masked steps are zero or the previous output, which is zeros before the first valid step even with an initial
 * state; the state is carried through. Checked in both directions and in every segmentation. */
static void check_masked_outputs(const char *problem, int segment) {
    ref_case test;
    ref_case_new(&test, problem, 5);
    const sli_problem *p = &test.problem;
    int T = p->steps, B = p->batch, O = sli_problem_output(p);
    test.segment = segment;
    ref_forward(&test);
    for (int b = 0; b < B; b++) {
        int previous = -1;
        for (int s = 0; s < T; s++) {
            int t = p->reverse ? T - 1 - s : s;
            bool valid = p->mask == SLI_MASK_LENGTHS ? t < test.lengths[b] : test.mask[t * B + b] != 0;
            for (int j = 0; j < O; j++) {
                double y = element(&test, test.out[0], (size_t)((t * B + b) * O + j));
                double before = previous < 0 ? 0 : element(&test, test.out[0], (size_t)((previous * B + b) * O + j));
                if (valid) CHECK(y != 0);
                if (!valid) CHECK(y == (p->masked_repeat ? before : 0));
            }
            if (valid) previous = t;
        }
        for (int j = 0; j < O; j++) {
            double final = element(&test, test.out[SLI_RNN_HT], (size_t)(b * O + j));
            double last = previous < 0 ? element(&test, test.in[SLI_RNN_H0], (size_t)(b * O + j))
                                       : element(&test, test.out[0], (size_t)((previous * B + b) * O + j));
            CHECK(final == last);
        }
    }
    ref_case_free(&test);
}

TEST(ref_masked_outputs) {
    const char *options[] = {"+lengths", "+mask=left", "+mask=right", "+mask=holes"};
    const char *cells[] = {"lstm:b4_t6_i2_h3_p2_f64_train", "gru:b4_t6_i2_h3_f64_train", "rnn:b4_t6_i2_h3_f64_train"};
    for (int cell = 0; cell < 3; cell++)
        for (int option = 0; option < 4; option++)
            for (int bits = 0; bits < 4; bits++)
                for (int segment = 1; segment <= 6; segment++) {
                    char text[SLI_PROBLEM_TEXT];
                    snprintf(text, sizeof text, "%s%s%s%s", cells[cell], options[option],
                             bits & 1 ? "+maskout=repeat" : "", bits & 2 ? "+reverse" : "");
                    check_masked_outputs(text, segment);
                }
}

/* A masked row computes what the shorter sequence computes. */
TEST(ref_lengths_equal_shorter_run) {
    ref_case masked, shorter;
    ref_case_new(&masked, "lstm:b1_t5_i2_h3_f64_train+lengths", 6);
    ref_case_new(&shorter, "lstm:b1_t3_i2_h3_f64_train", 6);
    masked.lengths[0] = 3;
    for (int k = 0; k < SLI_MAX_PARAM; k++)
        if (masked.param_count[k]) memcpy(shorter.param[k], masked.param[k], masked.param_count[k] * sizeof(double));
    for (int k = 0; k < 3; k++) memcpy(shorter.in[k], masked.in[k], shorter.in_count[k] * sizeof(double));
    for (int k = 0; k < 3; k++) memcpy(shorter.d_out[k], masked.d_out[k], shorter.out_count[k] * sizeof(double));
    ref_forward(&masked);
    ref_forward(&shorter);
    ref_backward(&masked);
    ref_backward(&shorter);
    CHECK(!memcmp(masked.out[0], shorter.out[0], shorter.out_count[0] * sizeof(double)));
    CHECK(!memcmp(masked.out[1], shorter.out[1], shorter.out_count[1] * sizeof(double)));
    for (int k = 0; k < SLI_MAX_PARAM; k++)
        if (masked.param_count[k])
            CHECK(!memcmp(masked.d_param[k], shorter.d_param[k], masked.param_count[k] * sizeof(double)));
    for (size_t e = shorter.in_count[0]; e < masked.in_count[0]; e++) CHECK(ref_get(&masked, masked.d_in[0], e) == 0);
    ref_case_free(&masked);
    ref_case_free(&shorter);
}

/* A reversed run of x is a forward run of x flipped, with its outputs flipped. */
TEST(ref_reverse_is_flipped) {
    ref_case forward, reverse;
    ref_case_new(&forward, "gru:b2_t4_i3_h3_f64", 7);
    ref_case_new(&reverse, "gru:b2_t4_i3_h3_f64+reverse", 7);
    for (size_t t = 0; t < 4; t++)
        memcpy((double *)reverse.in[0] + t * 6, (double *)forward.in[0] + (3 - t) * 6, 6 * sizeof(double));
    ref_forward(&forward);
    ref_forward(&reverse);
    for (size_t t = 0; t < 4; t++)
        CHECK(!memcmp((double *)reverse.out[0] + t * 6, (double *)forward.out[0] + (3 - t) * 6, 6 * sizeof(double)));
    CHECK(!memcmp(reverse.out[1], forward.out[1], 6 * sizeof(double)));
    ref_case_free(&forward);
    ref_case_free(&reverse);
}

/* One mask [B][O] for all steps: a linear RNN with R = identity and no input multiplies h by the factor in every step. */
TEST(ref_recurrent_dropout_mask) {
    ref_case test;
    ref_case_new(&test, "rnn:b3_t3_i1_h5_f64_train+act=linear+bias=none+rdrop=0.4", 8);
    memset(test.in[0], 0, test.in_count[0] * sizeof(double));
    for (size_t j = 0; j < 5; j++)
        for (size_t k = 0; k < 5; k++) ref_set(&test, test.param[SLI_RNN_RECURRENT], j * 5 + k, j == k);
    sli_rng rng = {77, 3, 1, 5 << 8 | SLI_PURPOSE_RECURRENT_DROPOUT};
    int dropped = 0;
    ref_forward(&test);
    for (size_t e = 0; e < 15; e++) {
        bool drop = sli_rng_word(&rng, e) < sli_drop_threshold(0.4);
        double value = ref_get(&test, test.in[1], e);
        dropped += drop;
        for (size_t t = 0; t < 3; t++) {
            value *= drop ? 0 : 1 / 0.6;
            CHECK_NEAR(ref_get(&test, test.out[0], t * 15 + e), value, 1e-14);
        }
    }
    CHECK(dropped > 0 && dropped < 15);
    test.training = false;
    ref_forward(&test);
    for (size_t e = 0; e < 15; e++) CHECK(ref_get(&test, test.out[0], e) == ref_get(&test, test.in[1], e));
    ref_case_free(&test);
}

/* Training keeps whole old values where the word is below p, at the element's absolute step; inference mixes by p. */
TEST(ref_zoneout) {
    ref_case zone, plain;
    ref_case_new(&zone, "rnn:b2_t1_i2_h6_f64_train+zoneout_h=0.5", 9);
    ref_case_new(&plain, "rnn:b2_t1_i2_h6_f64_train", 9);
    sli_rng rng = {77, 3, 1, 5 << 8 | SLI_PURPOSE_ZONEOUT_H};
    ref_forward(&zone);
    ref_forward(&plain);
    for (size_t e = 0; e < 12; e++) {
        bool keep = sli_rng_word(&rng, e) < sli_drop_threshold(0.5);
        CHECK(ref_get(&zone, zone.out[0], e) == ref_get(&zone, keep ? zone.in[1] : plain.out[0], e));
    }
    zone.training = false;
    ref_forward(&zone);
    for (size_t e = 0; e < 12; e++)
        CHECK_NEAR(ref_get(&zone, zone.out[0], e),
                   0.5 * ref_get(&zone, zone.in[1], e) + 0.5 * ref_get(&plain, plain.out[0], e), 1e-15);
    ref_case_free(&zone);
    ref_case_free(&plain);
}

/* h is computed from the c before zoneout: with all c kept, h still moves. */
TEST(ref_zoneout_c_leaves_h) {
    ref_case zone, plain;
    ref_case_new(&zone, "lstm:b2_t1_i2_h3_f64+zoneout_c=0.25", 10);
    ref_case_new(&plain, "lstm:b2_t1_i2_h3_f64", 10);
    ref_forward(&zone);
    ref_forward(&plain);
    for (size_t e = 0; e < 6; e++) {
        CHECK(ref_get(&zone, zone.out[0], e) == ref_get(&plain, plain.out[0], e));
        CHECK_NEAR(ref_get(&zone, zone.out[2], e),
                   0.25 * ref_get(&zone, zone.in[2], e) + 0.75 * ref_get(&plain, plain.out[2], e), 1e-15);
    }
    ref_case_free(&zone);
    ref_case_free(&plain);
}

TEST(ref_refuses_other_precisions_and_shapes) {
    sli_problem p;
    sli_why why = {{0}};
    REQUIRE_OK(sli_problem_parse("lstm:b2_t3_i2_h3_f16", &p));
    CHECK(!sli_ref_kernels[0]->eligible(&p, &(sli_caps){0}, &why));
    CHECK(strstr(why.text, "not f16") != NULL);
    REQUIRE_OK(sli_problem_parse("lstm:l2_b2_t3_i2_h3", &p));
    CHECK(!sli_ref_kernels[0]->eligible(&p, &(sli_caps){0}, &why));
    REQUIRE_OK(sli_problem_parse("lstm:b2_t3_i2_h3_bi", &p));
    CHECK(!sli_ref_kernels[0]->eligible(&p, &(sli_caps){0}, &why));
    for (int op = 0; op < SLI_OP_COUNT; op++) {
        int rows = 0;
        for (const sli_kernel *const *row = sli_ref_kernels; *row; row++) rows += (int)(*row)->op == op;
        CHECK(rows == 1);
    }
}
