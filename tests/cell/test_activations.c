/* The fast activations against libm in long double over a dense sweep, and the slopes taken from outputs. */
#include "cell/activations.h"
#include "test.h"

static double ulp(long double value) {
    float y = fabsf((float)value);
    return y >= 1 ? ldexp(1, -24) : (double)(nextafterf(y, 2) - y);
}

/* Every `stride`-th float in [from, to], both signs. */
static void sweep(float from, float to, uint32_t stride, void (*visit)(float x)) {
    for (uint32_t bits = cell_bits(from); bits <= cell_bits(to); bits += stride) {
        visit(cell_from_bits(bits));
        visit(-cell_from_bits(bits));
    }
}

static double worst_tanh, worst_absolute, worst_relative;

static void visit_tanh(float x) {
    float y = cell_tanh(x);
    long double exact = tanhl(x);
    double error = (double)fabsl((long double)y - exact) / ulp(exact);
    if (error > worst_tanh) worst_tanh = error;
    if (fabsf(y) > 1 || y != -cell_tanh(-x)) worst_tanh = INFINITY;
}

static void visit_sigmoid(float x) {
    long double exact = 1 / (1 + expl(-(long double)x));
    double error = (double)fabsl((long double)cell_sigmoid(x) - exact);
    if (error > worst_absolute) worst_absolute = error;
    if (exact >= 1.17549435e-38L && error / (double)exact > worst_relative) worst_relative = error / (double)exact;
}

TEST(cell_tanh_accuracy) {
    worst_tanh = 0;
    sweep(1e-30f, 200.0f, 997, visit_tanh);
    sweep(2.0f, 10.0f, 23, visit_tanh);
    if (!(worst_tanh <= 6)) test_fail(__FILE__, __LINE__, "tanh is off by %g ulp", worst_tanh);
    CHECK(cell_tanh(0) == 0 && cell_tanh(INFINITY) == 1 && cell_tanh(-INFINITY) == -1 && isnan(cell_tanh(NAN)));
}

TEST(cell_sigmoid_accuracy) {
    worst_absolute = worst_relative = 0;
    sweep(1e-30f, 200.0f, 997, visit_sigmoid);
    sweep(2.0f, 88.0f, 97, visit_sigmoid);
    if (!(worst_absolute <= 3e-7)) test_fail(__FILE__, __LINE__, "sigmoid is off by %g", worst_absolute);
    if (!(worst_relative <= 1e-5)) test_fail(__FILE__, __LINE__, "sigmoid is off by %g relative", worst_relative);
    CHECK(cell_sigmoid(0) == 0.5f && cell_sigmoid(INFINITY) == 1 && cell_sigmoid(-INFINITY) < 1e-37f);
    CHECK(isnan(cell_sigmoid(NAN)));
}

static void visit_short(float x) {
    const float y = cell_tanh_short(x);
    const double exact = tanh((double)x), logistic = 1 / (1 + exp(-(double)x));
    const double relative = fabs((double)y - exact) / fabs(exact);
    const double sigmoid = (double)cell_act(CELL_ACT_SIGMOID_SHORT, x), absolute = fabs(sigmoid - logistic);
    if (relative > worst_relative) worst_relative = relative;
    if (absolute > worst_absolute) worst_absolute = absolute;
    if (fabsf(y) > 1 || y != -cell_tanh_short(-x)) worst_relative = INFINITY;
    if (!(sigmoid > 0 && sigmoid < 1)) worst_absolute = INFINITY;
}

TEST(cell_short_activations) {
    worst_absolute = worst_relative = 0;
    sweep(1e-30f, 200.0f, 9973, visit_short);
    sweep(0.1f, 10.0f, 97, visit_short);
    CHECK(worst_relative <= 1.1e-3);
    CHECK(worst_absolute <= 5e-4);
    CHECK(isnan(cell_tanh_short(NAN)) && isnan(cell_sigmoid_short(NAN)));
    CHECK(cell_act_slope(CELL_ACT_TANH_SHORT, cell_tanh_short(9)) > 0);
}

TEST(cell_simple_activations) {
    for (float x = -6; x <= 6; x += 0.0625f) {
        CHECK(cell_act(CELL_ACT_LINEAR, x) == x);
        CHECK(cell_act(CELL_ACT_RELU, x) == fmaxf(x, 0));
        CHECK_NEAR(cell_act(CELL_ACT_HARD_SIGMOID, x), fmin(1, fmax(0, x / 6.0 + 0.5)), 1e-7);
        CHECK_NEAR(cell_act(CELL_ACT_HARD_SIGMOID_K2, x), fmin(1, fmax(0, 0.2 * x + 0.5)), 2e-7);
        CHECK_NEAR(cell_act(CELL_ACT_SOFTSIGN, x), x / (1 + fabs(x)), 1e-7);
        CHECK(cell_act(CELL_ACT_TANH, x) == cell_tanh(x) && cell_act(CELL_ACT_SIGMOID, x) == cell_sigmoid(x));
    }
    for (float far = 1e20f; far < 1e38f; far *= 10)
        CHECK(cell_act(CELL_ACT_SOFTSIGN, far) == 1.0f && cell_act(CELL_ACT_SOFTSIGN, -far) == -1.0f);
    CHECK(cell_act(CELL_ACT_SOFTSIGN, INFINITY) == 1.0f && cell_act(CELL_ACT_SOFTSIGN, -INFINITY) == -1.0f);
    CHECK(isnan(cell_act(CELL_ACT_SOFTSIGN, NAN)));
}

/* The slope from the output is the slope, away from kinks. */
TEST(cell_slopes) {
    for (int act = CELL_ACT_LINEAR; act <= CELL_ACT_SOFTSIGN; act++)
        for (float x = -2.2f; x <= 2.2f; x += 0.43f) {
            const float step = 0.0078125f;
            double slope = ((double)cell_act(act, x + step) - (double)cell_act(act, x - step)) / (2.0 * step);
            CHECK_NEAR(cell_act_slope(act, cell_act(act, x)), slope, 2e-4);
        }
    CHECK(cell_act_slope(CELL_ACT_RELU, 0) == 0);
    CHECK(cell_act_slope(CELL_ACT_HARD_SIGMOID, 1) == 0 && cell_act_slope(CELL_ACT_HARD_SIGMOID_K2, 0) == 0);
}

/* This folder repeats the numbers of the public enumeration. */
TEST(cell_activation_numbers) {
    CHECK((int)CELL_ACT_LINEAR == (int)SL_ACT_LINEAR && (int)CELL_ACT_TANH == (int)SL_ACT_TANH);
    CHECK((int)CELL_ACT_SIGMOID == (int)SL_ACT_SIGMOID && (int)CELL_ACT_RELU == (int)SL_ACT_RELU);
    CHECK((int)CELL_ACT_HARD_SIGMOID == (int)SL_ACT_HARD_SIGMOID);
    CHECK((int)CELL_ACT_HARD_SIGMOID_K2 == (int)SL_ACT_HARD_SIGMOID_K2);
    CHECK((int)CELL_ACT_SOFTSIGN == (int)SL_ACT_SOFTSIGN);
}
