/* The cells against the double reference, unit by unit, forward and backward, for every combination of option bits. The
 * reference gets one step with an identity kernel, so that its input is the pre-activations and its gradients of x, h0 and c0
 * are what a cell's backward returns. Row 0 is valid; with CELL_MASK row 1 is masked. */
#include "backend/test_ref_case.h"
#include "cell/gru.h"
#include "cell/lstm.h"
#include "cell/rnn.h"

enum { H = 6, B = 2 };
static const char *const names[] = {"",        "linear", "tanh", "sigmoid", "relu", "hard_sigmoid", "hard_sigmoid_k2",
                                    "softsign"};
static const int pairs[][2] = {{CELL_ACT_TANH, CELL_ACT_SIGMOID},
                               {CELL_ACT_RELU, CELL_ACT_HARD_SIGMOID},
                               {CELL_ACT_SOFTSIGN, CELL_ACT_HARD_SIGMOID_K2},
                               {CELL_ACT_LINEAR, CELL_ACT_SIGMOID}};
enum { PAIRS = sizeof pairs / sizeof pairs[0] };

static double at(const ref_case *test, const void *tensor, size_t index) {
    return ref_get(test, tensor, index);
}

static float f(const ref_case *test, const void *tensor, size_t index) {
    return (float)ref_get(test, tensor, index);
}

static void near(const char *problem, const char *what, double value, double expected) {
    if (!(fabs(value - expected) <= 4e-6 * (1 + fabs(expected))))
        test_fail(__FILE__, __LINE__, "%s: %s is %.9g, the reference says %.9g", problem, what, value, expected);
}

/* Rounds everything to float, makes the kernel (and a projection) the identity, R zero. */
static void prepare(ref_case *test, const char *problem, uint64_t seed) {
    ref_case_new(test, problem, seed);
    const sli_problem *p = &test->problem;
    size_t I = (size_t)p->inputs;
    for (int k = 0; k < SLI_MAX_IN; k++)
        for (size_t e = 0; e < test->in_count[k]; e++) ref_set(test, test->in[k], e, (double)f(test, test->in[k], e));
    for (int k = 0; k < SLI_MAX_PARAM; k++)
        for (size_t e = 0; e < test->param_count[k]; e++)
            ref_set(test, test->param[k], e, (double)f(test, test->param[k], e));
    for (int k = 0; k < SLI_MAX_OUT; k++)
        for (size_t e = 0; e < test->out_count[k]; e++)
            ref_set(test, test->d_out[k], e, (double)f(test, test->d_out[k], e));
    for (size_t e = 0; e < test->param_count[SLI_RNN_KERNEL]; e++)
        ref_set(test, test->param[SLI_RNN_KERNEL], e, e / I == e % I);
    for (size_t e = 0; e < test->param_count[SLI_RNN_PROJECTION]; e++)
        ref_set(test, test->param[SLI_RNN_PROJECTION], e, e / H == e % H);
    memset(test->param[SLI_RNN_RECURRENT], 0, test->param_count[SLI_RNN_RECURRENT] * sizeof(double));
    memset(test->d_out[SLI_RNN_Y], 0, test->out_count[SLI_RNN_Y] * sizeof(double));
    test->lengths[0] = 1;
    test->lengths[1] = 0;
    ref_forward(test);
    ref_backward(test);
}

static float zone(const ref_case *test, enum sli_purpose purpose, double p, size_t element) {
    sli_rng rng = {test->scalars.seed, test->scalars.step, test->scalars.micro_step, 5u << 8 | (uint32_t)purpose};
    return sli_rng_word(&rng, element) < sli_drop_threshold(p) ? 1.0f : 0.0f;
}

static void check_lstm_unit(ref_case *test, const char *problem, int options, const int *act, size_t e) {
    size_t row = e / H, j = e % H, x = row * 4 * H + j;
    const void *peep = test->param[SLI_RNN_PEEPHOLE];
    cell_lstm_args args = {.forget_bias = 0.75f, .clip = 0.5f, .valid = row == 0 ? 1.0f : 0.0f};
    if (peep)
        args.peep_i = f(test, peep, j), args.peep_f = f(test, peep, H + j), args.peep_o = f(test, peep, 2 * H + j);
    args.zone_h = zone(test, SLI_PURPOSE_ZONEOUT_H, 0.4, e);
    args.zone_c = zone(test, SLI_PURPOSE_ZONEOUT_C, 0.4, e);
    const void *pre = test->in[SLI_RNN_X];
    cell_lstm_gates z = {f(test, pre, x), f(test, pre, x + H), f(test, pre, x + 2 * H), f(test, pre, x + 3 * H)};
    float h0 = f(test, test->in[SLI_RNN_H0], e), c0 = f(test, test->in[SLI_RNN_C0], e);
    float dh = f(test, test->d_out[SLI_RNN_HT], e), dc = f(test, test->d_out[SLI_RNN_CT], e), dh_outside = 0;
    cell_lstm_forward_result r = cell_lstm_forward(options, act[0], act[1], z, c0, h0, args);
    if (options & CELL_PROJECTION) { /* zoneout and mask of h = W_p m are the caller's; W_p is the identity here */
        float keep = options & CELL_ZONEOUT_H ? args.zone_h : 0.0f;
        bool masked = (options & CELL_MASK) && row == 1;
        r.h = masked ? h0 : keep * h0 + (1 - keep) * r.m;
        dh_outside = masked ? dh : keep * dh;
        dh = (1 - keep) * dh;
    }
    near(problem, "h", (double)r.h, at(test, test->out[SLI_RNN_HT], e));
    near(problem, "c", (double)r.c, at(test, test->out[SLI_RNN_CT], e));
    cell_lstm_backward_result b = cell_lstm_backward(options, act[0], act[1], r.gates, r.v, c0, dh, dc, args);
    const void *dx = test->d_in[SLI_RNN_X];
    near(problem, "dz.i", (double)b.dz.i, at(test, dx, x));
    near(problem, "dz.f", (double)b.dz.f, at(test, dx, x + H));
    near(problem, "dz.g", (double)b.dz.g, at(test, dx, x + 2 * H));
    near(problem, "dz.o", (double)b.dz.o, at(test, dx, x + 3 * H));
    near(problem, "dc_prev", (double)b.dc_prev, at(test, test->d_in[SLI_RNN_C0], e));
    near(problem, "dh_prev", (double)(b.dh_prev + dh_outside), at(test, test->d_in[SLI_RNN_H0], e));
}

TEST(cell_lstm_equals_reference) {
    for (int options = 0; options < 2 * CELL_PROJECTION; options++)
        for (int pair = 0; pair < PAIRS; pair++) {
            char problem[SLI_PROBLEM_TEXT];
            ref_case test;
            snprintf(problem, sizeof problem, "lstm:b2_t1_i24_h6%s_f64_train+act=%s+bias=none%s%s%s+ract=%s%s%s%s",
                     options & CELL_PROJECTION ? "_p6" : "", names[pairs[pair][0]],
                     options & CELL_CLIP ? "+clip=0.5" : "", options & CELL_FORGET_AT_RUN ? "+forget=0.75" : "",
                     options & CELL_PEEPHOLE ? "+peephole" : "", names[pairs[pair][1]],
                     options & CELL_MASK ? "+lengths" : "", options & CELL_ZONEOUT_C ? "+zoneout_c=0.4" : "",
                     options & CELL_ZONEOUT_H ? "+zoneout_h=0.4" : "");
            prepare(&test, problem, (uint64_t)(options * PAIRS + pair));
            for (size_t e = 0; e < B * H; e++) check_lstm_unit(&test, problem, options, pairs[pair], e);
            ref_case_free(&test);
        }
}

static void check_gru_unit(ref_case *test, const char *problem, int options, const int *act, size_t e) {
    size_t row = e / H, j = e % H, x = row * 3 * H + j;
    const void *pre = test->in[SLI_RNN_X], *rb = test->param[SLI_RNN_RECURRENT_BIAS], *dx = test->d_in[SLI_RNN_X];
    bool before = options & CELL_RESET_BEFORE;
    cell_gru_args args = {zone(test, SLI_PURPOSE_ZONEOUT_H, 0.4, e), row == 0 ? 1.0f : 0.0f};
    cell_gru_pre z = {f(test, pre, x) + f(test, rb, j), f(test, pre, x + H) + f(test, rb, H + j),
                      f(test, pre, x + 2 * H), f(test, rb, 2 * H + j)};
    for (int g = 0; g < 3; g++) {
        float bias = f(test, test->param[SLI_RNN_BIAS], (size_t)g * H + j);
        *(g == 0 ? &z.r : g == 1 ? &z.z : &z.n) += bias;
    }
    float h0 = f(test, test->in[SLI_RNN_H0], e), dh = f(test, test->d_out[SLI_RNN_HT], e);
    if (before) { /* R_n is the identity */
        z.r = cell_gru_reset(act[1], z.r);
        z.s += z.r * h0;
    }
    cell_gru_forward_result r = cell_gru_forward(options, act[0], act[1], z, h0, args);
    near(problem, "h", (double)r.h, at(test, test->out[SLI_RNN_HT], e));
    cell_gru_backward_result b = cell_gru_backward(options, act[0], act[1], r.gates, z.s, h0, dh, args);
    if (before) {
        cell_gru_reset_backward_result reset = cell_gru_reset_backward(act[1], r.gates.r, b.ds_n, h0);
        b.dz.r += reset.dz_r;
        b.dh_prev += reset.d_dropped;
    }
    near(problem, "dz.r", (double)b.dz.r, at(test, dx, x));
    near(problem, "dz.z", (double)b.dz.z, at(test, dx, x + H));
    near(problem, "dz.n", (double)b.dz.n, at(test, dx, x + 2 * H));
    near(problem, "dh_prev", (double)b.dh_prev, at(test, test->d_in[SLI_RNN_H0], e));
    if ((options & CELL_MASK) && row == 0) /* the only row that adds to the bias gradient */
        near(problem, "ds_n", (double)b.ds_n, at(test, test->d_param[SLI_RNN_RECURRENT_BIAS], 2 * H + j));
}

TEST(cell_gru_equals_reference) {
    for (int bits = 0; bits < 8; bits++)
        for (int pair = 0; pair < PAIRS; pair++) {
            int options =
                (bits & 1 ? CELL_ZONEOUT_H : 0) | (bits & 2 ? CELL_MASK : 0) | (bits & 4 ? CELL_RESET_BEFORE : 0);
            char problem[SLI_PROBLEM_TEXT];
            ref_case test;
            snprintf(problem, sizeof problem, "gru:b2_t1_i18_h6_f64_train+act=%s+bias=double+ract=%s%s%s%s",
                     names[pairs[pair][0]], names[pairs[pair][1]], options & CELL_MASK ? "+lengths" : "",
                     options & CELL_RESET_BEFORE ? "+reset=before" : "",
                     options & CELL_ZONEOUT_H ? "+zoneout_h=0.4" : "");
            prepare(&test, problem, (uint64_t)(bits * PAIRS + pair));
            for (size_t j = 0; options & CELL_RESET_BEFORE && j < H; j++)
                ref_set(&test, test.param[SLI_RNN_RECURRENT], (2 * H + j) * H + j, 1);
            ref_forward(&test);
            ref_backward(&test);
            for (size_t e = 0; e < B * H; e++) check_gru_unit(&test, problem, options, pairs[pair], e);
            ref_case_free(&test);
        }
}

TEST(cell_rnn_equals_reference) {
    for (int bits = 0; bits < 4; bits++)
        for (int act = CELL_ACT_LINEAR; act <= CELL_ACT_SOFTSIGN; act++) {
            int options = (bits & 1 ? CELL_ZONEOUT_H : 0) | (bits & 2 ? CELL_MASK : 0);
            char problem[SLI_PROBLEM_TEXT];
            ref_case test;
            snprintf(problem, sizeof problem, "rnn:b2_t1_i6_h6_f64_train+act=%s+bias=none%s%s", names[act],
                     options & CELL_MASK ? "+lengths" : "", options & CELL_ZONEOUT_H ? "+zoneout_h=0.4" : "");
            prepare(&test, problem, (uint64_t)(bits * 8 + act));
            for (size_t e = 0; e < B * H; e++) {
                cell_rnn_args args = {zone(&test, SLI_PURPOSE_ZONEOUT_H, 0.4, e), e < H ? 1.0f : 0.0f};
                cell_rnn_forward_result r = cell_rnn_forward(options, act, f(&test, test.in[SLI_RNN_X], e),
                                                             f(&test, test.in[SLI_RNN_H0], e), args);
                cell_rnn_backward_result b =
                    cell_rnn_backward(options, act, r.q, f(&test, test.d_out[SLI_RNN_HT], e), args);
                near(problem, "h", (double)r.h, at(&test, test.out[SLI_RNN_HT], e));
                near(problem, "dz", (double)b.dz, at(&test, test.d_in[SLI_RNN_X], e));
                near(problem, "dh_prev", (double)b.dh_prev, at(&test, test.d_in[SLI_RNN_H0], e));
            }
            ref_case_free(&test);
        }
}
