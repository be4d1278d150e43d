/* tanh and sigmoid of the cells, and e^x of softmax, in every instruction set of this machine, against libm; the bounds of cells are those
 * of cell/activations.h. */
#include <math.h>
#include "backend/cpu/cpu.h"
#include "backend/cpu/isa/isa.h"
#include "cell/activations.h"
#include "test.h"

enum { LANES_MOST = 16 };

static void each_isa(void (*check)(const sli_isa_ops *ops)) {
    char why[SLI_ISA_WHY];
    for (int isa = SLI_ISA_BASE; isa <= SLI_ISA_AVX512; isa++) {
        sli_cpu cpu;
        if (!sli_cpu_has((sli_isa)isa, why)) continue;
        sli_cpu_engine((sli_isa)isa, false, &cpu);
        check(cpu.ops);
    }
}

static double ulp(double value) {
    const float y = fabsf((float)value);
    return y >= 1 ? ldexp(1, -24) : (double)(nextafterf(y, 2) - y);
}

/* One step of an LSTM whose gates all have x as their sum: i f g o as backward gets them. */
static void gates_of(const sli_isa_ops *ops, const float *x, float gates[4][LANES_MOST]) {
    const int lanes = ops->panel_f32->lanes, zero = 0;
    float tile[4 * LANES_MOST], kept[4 * LANES_MOST], nothing[4 * LANES_MOST] = {0}, c[LANES_MOST] = {0}, h[LANES_MOST];
    for (int k = 0; k < 4; k++) memcpy(tile + k * lanes, x, (size_t)lanes * sizeof *x);
    const sli_cell_step step = {.units = lanes,
                                .outputs = lanes,
                                .act = CELL_ACT_TANH,
                                .gate_act = CELL_ACT_SIGMOID,
                                .keep = true,
                                .gates = kept,
                                .ld_gates = 4 * lanes,
                                .bias = nothing,
                                .h_prev = nothing,
                                .ld_h_prev = lanes,
                                .h = h,
                                .ld_h = lanes,
                                .c_prev = c,
                                .c = c};
    const sli_cell_share share = {.row = &zero,
                                  .at = &zero,
                                  .rows = 1,
                                  .last = lanes,
                                  .tile = tile,
                                  .in = nothing,
                                  .in_panel = 4 * lanes,
                                  .vectors = 4,
                                  .gap = lanes};
    ops->fused->lstm.forward(&step, &share);
    for (int k = 0; k < 4; k++) memcpy(gates[k], kept + k * lanes, (size_t)lanes * sizeof(float));
}

/* All floats from 1e-30 to 200 that lie `stride` apart, of both signs, some lanes at a time. */
static void check_cells(const sli_isa_ops *ops) {
    const int lanes = ops->panel_f32->lanes;
    double absolute = 0, relative = 0, ulps = 0;
    for (uint32_t bits = 0x0da24260; bits < 0x43480000;) {
        float x[LANES_MOST], gates[4][LANES_MOST];
        for (int l = 0; l < lanes; l++, bits += 997) x[l] = l % 2 ? -cell_from_bits(bits) : cell_from_bits(bits);
        gates_of(ops, x, gates);
        for (int l = 0; l < lanes; l++) {
            const double sigmoid = 1 / (1 + exp(-(double)x[l])), error = fabs((double)gates[0][l] - sigmoid);
            absolute = fmax(absolute, error);
            if (sigmoid >= 1.17549435e-38) relative = fmax(relative, error / sigmoid);
            ulps = fmax(ulps, fabs((double)gates[2][l] - tanh((double)x[l])) / ulp(tanh((double)x[l])));
            if (!(fabsf(gates[2][l]) <= 1) || gates[1][l] != gates[0][l] || gates[3][l] != gates[0][l]) ulps = INFINITY;
        }
    }
    if (!(absolute <= 3e-7 && relative <= 1e-5 && ulps <= 6))
        test_fail(__FILE__, __LINE__, "%s: sigmoid is off by %g, %g relative, tanh by %g ulp", ops->name, absolute,
                  relative, ulps);
    float x[LANES_MOST] = {0, INFINITY, -INFINITY, NAN}, gates[4][LANES_MOST];
    gates_of(ops, x, gates);
    CHECK(gates[0][0] == 0.5f && gates[0][1] == 1 && gates[0][2] < 1e-37f && isnan(gates[0][3]));
    CHECK(gates[2][0] == 0 && gates[2][1] == 1 && gates[2][2] == -1 && isnan(gates[2][3]));
}

TEST(cpu_cells_err_as_little_as_said) {
    each_isa(check_cells);
}

/* exp(x), by softmax's gradient, and its sum. */
static void check_exponential(const sli_isa_ops *ops) {
    enum { MOST = 2 * 32 + 1 };
    const double bound = ops == &sli_isa_ops_base ? 4e-6 : 4e-7; /* a product and a sum rounded apart */
    uint64_t seed = test_seed;
    double worst = 0, worst_sum = 0;
    for (int n = 1; n <= MOST; n++)
        for (int round = 0; round < 40; round++) {
            float x[MOST], e[MOST], more[MOST], largest;
            double exact = 0, sum;
            for (int i = 0; i < n; i++) x[i] = -43.5f * (1 + (float)test_random(&seed));
            x[round % n] = 0;
            for (int i = 0; i < n; i++) exact += exp((double)x[i]), more[i] = 3;
            ops->softmax_sum((size_t)n, x, &largest, &sum);
            ops->softmax_gradient((size_t)n, x, 0, 1, e, false);
            ops->softmax_gradient((size_t)n, x, 0, 2, more, true);
            CHECK(largest == 0);
            worst_sum = fmax(worst_sum, fabs(sum - exact) / exact);
            for (int i = 0; i < n; i++) {
                worst = fmax(worst, fabs((double)e[i] / exp((double)x[i]) - 1));
                CHECK(fabs((double)more[i] - 3 - 2 * (double)e[i]) <= 1e-6);
            }
        }
    if (!(worst <= bound && worst_sum <= 4e-7))
        test_fail(__FILE__, __LINE__, "%s: e^x is off by %g, a sum by %g", ops->name, worst, worst_sum);
    const float far[] = {-88.1f, -100, -1e9f, -INFINITY, NAN};
    float e[5];
    ops->softmax_gradient(5, far, 0, 1, e, false);
    for (int i = 0; i < 4; i++)
        if (e[i] != 0) test_fail(__FILE__, __LINE__, "%s: e^%g is %g", ops->name, (double)far[i], (double)e[i]);
    CHECK(isnan(e[4]));
}

TEST(cpu_softmax_errs_as_little_as_said) {
    each_isa(check_exponential);
}
