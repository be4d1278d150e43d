/* The vector tanh and sigmoid of streams against long double, as tests/cell/test_activations.c does for the others. */
#include "stream/isa/cells.h"

#include "stream/stream_case.h"

static double ulp_of(double value) {
    return ldexp(1, ilogb(value) - 23);
}

static float lane(vf v) {
    float all[VL];
    vf_store(all, v);
    return all[VL - 1];
}

TEST(stream_cells_tanh_and_sigmoid_are_accurate) {
    double ulps = 0, absolute = 0, relative = 0, beyond = 0;
    for (int i = -400000; i <= 400000; i++) {
        const float x = (float)(i * 2.2e-4 + i * 1e-10);
        const fraction t = tanh_fraction(vf_set(x));
        const double y = lane(t.x * t.p / t.q), s = lane(vf_set(1.0f) / sigmoid_divisor(vf_set(x)));
        const double exact = (double)tanhl(x), sigmoid = (double)(1 / (1 + expl(-(long double)x)));
        if (i) ulps = fmax(ulps, fabs(y - exact) / ulp_of(exact));
        absolute = fmax(absolute, fabs(s - sigmoid));
        if (sigmoid > 2e-38) relative = fmax(relative, fabs(s - sigmoid) / sigmoid);
        beyond = fmax(beyond, fabs(y) - 1);
    }
    CHECK(ulps <= 6);
    CHECK(absolute <= 3e-7);
    CHECK(relative <= 1e-5);
    CHECK(beyond <= 3e-7);
    CHECK(isnan(lane(sigmoid_divisor(vf_set(NAN)))));
    CHECK(isnan(lane(tanh_fraction(vf_set(NAN)).p)));
    CHECK(lane(vf_set(1.0f) / sigmoid_divisor(vf_set(INFINITY))) == 1);
}

/* -------------------------------------------------------------------------------------- of every instruction set --
 * By what an LSTM does of one input x, without a recurrent product: c = sigmoid x where f sees x, c was 1 and g is 0;
 * c = tanh x where g sees x, i is open and f shut. The last unit of one or two vectors is looked at. */
typedef enum which { SIGMOID, TANH } which;

/* Every unit the same: a number for each gate, or zeros. */
static void set(sl_params *params, const char *name, const double *of_gate, int units, size_t count) {
    double *values = calloc(count, sizeof *values);
    for (int g = 0; of_gate && g < 4; g++)
        for (int u = 0; u < units; u++) values[g * units + u] = of_gate[g];
    REQUIRE_OK(sl_params_set(params, name, values, count));
    free(values);
}

static sl_stream_model *one_function(which function, int units, const char *isa) {
    static const double x_in[2][4] = {{0, 1, 0, 0}, {0, 0, 1, 0}}, bias[2][4] = {{0, 0, 0, 0}, {88, -88, 0, 0}};
    const sl_recurrent options = {.units = units, .return_sequences = 1, .stateful = 1};
    const size_t gates = 4 * (size_t)units;
    stream_case c = {.inputs = 1, .outputs = units};
    REQUIRE_OK(sl_model_new(NULL, &c.model));
    REQUIRE_OK(sl_model_add_input(c.model, "x", 1, 0));
    REQUIRE_OK(sl_model_add_recurrent(c.model, "rnn", SL_LSTM, &options, NULL));
    REQUIRE_OK(sl_plan_new(c.model, &(sl_plan_options){.device = "cpu", .threads = 1}, &c.plan));
    REQUIRE_OK(sl_params_new(c.plan, &c.params));
    set(c.params, "rnn.kernel", x_in[function], units, gates);
    set(c.params, "rnn.recurrent_kernel", NULL, units, gates * (size_t)units);
    set(c.params, "rnn.bias", bias[function], units, gates);
    setenv("SLUICE_CPU_ISA", isa, 1);
    sl_stream_model *model = stream_case_load(&c);
    unsetenv("SLUICE_CPU_ISA");
    stream_case_free(&c);
    return model;
}

static float value_of(sl_stream *stream, which function, int units, float x) {
    float state[2 * 32] = {0}, y[32];
    for (int u = 0; u < units && function == SIGMOID; u++) state[units + u] = 1;
    sl_stream_set_state(stream, state);
    REQUIRE_OK(sl_stream_step(stream, &x, y));
    sl_stream_get_state(stream, state);
    return state[2 * units - 1];
}

static void check_function(which function, int units, const char *isa) {
    sl_stream_model *model = one_function(function, units, isa);
    sl_stream *stream;
    REQUIRE_OK(sl_stream_new(model, &stream));
    double absolute = 0, relative = 0, ulps = 0;
    for (int i = -50000; i <= 50000; i += TEST_ONE_IN(20)) {
        const float x = (float)(i * 1.76e-3 + i * 1e-9);
        const double y = value_of(stream, function, units, x);
        const double exact = (double)(function == TANH ? tanhl(x) : 1 / (1 + expl(-(long double)x)));
        absolute = fmax(absolute, fabs(y - exact));
        if (exact != 0 && fabs(exact) > 2e-38) {
            relative = fmax(relative, fabs(y - exact) / fabs(exact));
            ulps = fmax(ulps, fabs(y - exact) / ulp_of(exact));
        }
    }
    const float most = value_of(stream, function, units, 3e38f), least = value_of(stream, function, units, -3e38f);
    if (!(function == TANH ? ulps <= 6 : absolute <= 3e-7 && relative <= 1e-5))
        test_fail(__FILE__, __LINE__, "%s, %d units: %.2g absolute, %.2g relative, %.2g ulp", isa, units, absolute,
                  relative, ulps);
    CHECK(fabs(most - 1) <= 3e-7 && fabs(least + (function == TANH)) <= 3e-7);
    CHECK(isnan(value_of(stream, function, units, NAN)));
    sl_stream_free(stream);
    sl_stream_model_free(model);
}

TEST(stream_cells_of_every_instruction_set_are_accurate) {
    static const char *const isas[] = {"base", "neon", "avx2", "avx512"};
    static const int units[] = {1, 8, 9, 16, 17};
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        if (!stream_case_have(isas[i])) continue;
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            check_function(SIGMOID, units[u], isas[i]);
            check_function(TANH, units[u], isas[i]);
        }
    }
}

/* Sizes of states tell of how many lanes vectors are: those of AVX2 are eight. */
TEST(stream_layers_of_up_to_eight_units_have_vectors_of_eight) {
    if (!stream_case_have("avx512")) test_skip("this CPU has no AVX-512");
    static const int units[] = {8, 17};
    for (int i = 0; i < 2; i++) {
        sl_stream_model *whole = one_function(TANH, units[i], "avx512"), *half = one_function(TANH, units[i], "avx2");
        CHECK((sl_stream_size(whole) == sl_stream_size(half)) == (units[i] <= 8));
        sl_stream_model_free(whole);
        sl_stream_model_free(half);
    }
}
