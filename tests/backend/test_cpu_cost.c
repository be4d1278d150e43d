/* What a CPU's rows are predicted to take, beside what they took: bench/results/cpu_predicted_2026-11-21.txt. */
#include "backend/cpu/cost.h"
#include "backend/cpu/rows.h"
#include "cpu_call.h"

/* A Zen 3 of so many cores; layers are added up. */
static double predicted(const char *text, const char *name, int threads) {
    sli_problem p;
    const sli_caps caps = {
        .kind = SLI_DEVICE_CPU, .isa = SLI_ISA_AVX2, .threads = threads, .l2_bytes = 512 * 1024, .l3_bytes = 32 << 20};
    REQUIRE_OK(sli_problem_parse(text, &p));
    double sum = 0;
    for (int l = 0; l < p.layers; l++) {
        const sli_problem layer = sli_problem_part(&p, l, -1);
        sum += call_row(sli_cpu_kernels, p.op, name)->seconds(&layer, &caps);
    }
    return sum;
}

static void need_avx2(void) {
    char why[SLI_ISA_WHY];
    if (!sli_cpu_has(SLI_ISA_AVX2, why)) test_skip("%s", why);
}

/* The fastest of several calls. */
static const struct {
    const char *text, *row;
    int threads;
    double milliseconds;
} measured[] = {
    {"lstm:l2_b20_t35_i200_h200", "cpu:fused", 1, 10.95},
    {"lstm:l2_b20_t35_i200_h200_train", "cpu:fused", 1, 33.04},
    {"lstm:l2_b20_t35_i650_h650", "cpu:fused", 1, 114.7},
    {"lstm:l2_b20_t35_i650_h650_train", "cpu:fused", 1, 329.2},
    {"lstm:l2_b20_t35_i1500_h1500_train", "cpu:fused", 1, 1736},
    {"lstm:b1_t20_i100_h128", "cpu:fused", 1, 0.09677},
    {"lstm:l2_b32_t50_i16_h64", "cpu:fused", 1, 2.497},
    {"lstm:l2_b32_t50_i16_h64_train", "cpu:fused", 1, 7.285},
    {"lstm:l4_b64_t300_i512_h256_train", "cpu:fused", 1, 3216},
    {"lstm:b1_t100_i256_h256_train", "cpu:fused", 1, 5.715},
    {"lstm:b1_t100_i512_h512", "cpu:fused", 1, 8.534},
    {"lstm:b1_t100_i1024_h1024", "cpu:fused", 1, 41.14},
    {"lstm:b1_t100_i1024_h1024_train", "cpu:fused", 1, 112},
    {"lstm:b64_t128_i512_h512", "cpu:fused", 1, 410.5},
    {"lstm:b64_t128_i1024_h1024_train", "cpu:fused", 1, 4746},
    {"lstm:b16_t1000_i256_h256", "cpu:fused", 1, 210},
    {"gru:b32_t128_i256_h256", "cpu:fused", 1, 40.77},
    {"gru:b1_t100_i512_h512_train", "cpu:fused", 1, 17.31},
    {"rnn:b32_t128_i256_h256_train", "cpu:fused", 1, 41.77},
    {"lstm:b1_t1000_i1_h16", "cpu:fused", 1, 0.157},
    {"lstm:b1_t100_i256_h256", "cpu:fused", 2, 1.023},
    {"lstm:b1_t100_i1024_h1024", "cpu:fused", 2, 19.22},
    {"lstm:b64_t128_i512_h512_train", "cpu:fused", 2, 624.7},
    {"lstm:l2_b20_t35_i650_h650_train", "cpu:fused", 2, 172},
    {"lstm:l2_b1_t35_i200_h200", "cpu:fused", 2, 0.4536},
    {"gru:b1_t100_i512_h512", "cpu:fused", 2, 3.417},
};
enum { COUNT = sizeof measured / sizeof *measured };

TEST(cpu_cost_is_near_what_was_measured) {
    need_avx2();
    for (int i = 0; i < COUNT; i++) {
        const double ms = 1e3 * predicted(measured[i].text, measured[i].row, measured[i].threads);
        if (!(ms < 1.4 * measured[i].milliseconds && ms > measured[i].milliseconds / 1.4))
            test_fail(__FILE__, __LINE__, "%s, %s, %d threads: predicted %g ms, measured %g", measured[i].text,
                      measured[i].row, measured[i].threads, ms, measured[i].milliseconds);
    }
}

/* Of any two that are far enough apart. */
TEST(cpu_cost_is_in_the_order_of_what_was_measured) {
    need_avx2();
    for (int i = 0; i < COUNT; i++)
        for (int k = 0; k < COUNT; k++) {
            if (measured[i].milliseconds > 0.7 * measured[k].milliseconds) continue;
            const double a = predicted(measured[i].text, measured[i].row, measured[i].threads);
            const double b = predicted(measured[k].text, measured[k].row, measured[k].threads);
            if (a >= b)
                test_fail(__FILE__, __LINE__, "%s, %s, is not predicted to be faster than %s, %s", measured[i].text,
                          measured[i].row, measured[k].text, measured[k].row);
        }
}

/* One thread's step on an invented core: weights from further away take longer, and so do more rows. */
TEST(cpu_cost_of_a_step_grows_with_bytes_and_rows) {
    const sli_cpu_machine machine = {.isa = SLI_ISA_AVX2, .threads = 1, .l2_bytes = 512 * 1024, .l3_bytes = 32 << 20};
    double last = 0, rate = 0;
    for (double bytes = 64 * 1024; bytes <= 64e6; bytes *= 4) {
        const sli_cost_panels one = {.threads = 1, .rows = 1, .flops = bytes / 2, .bytes = bytes, .all_bytes = bytes};
        const double seconds = sli_cost_step(&machine, &one);
        CHECK(seconds > last && (rate == 0 || bytes / seconds <= 1.0001 * rate));
        last = seconds;
        rate = bytes / seconds;
        sli_cost_panels many = one;
        many.rows = 16;
        many.flops *= 16;
        CHECK(sli_cost_step(&machine, &many) > seconds && sli_cost_step(&machine, &many) < 16 * seconds);
    }
}

/* Vectors of 512 bits that pass in two halves multiply at half the rate; that of narrower ones is no other. */
TEST(cpu_cost_of_half_width_is_that_of_fewer_products) {
    sli_caps caps;
    REQUIRE_OK(sli_cpu_caps("cpu:avx2", 2, &caps));
    CHECK(!caps.half_width && !sli_cpu_half_width(SLI_ISA_AVX2));
    REQUIRE_OK(sli_cpu_caps("cpu", 2, &caps));
    sli_cpu engine;
    sli_cpu_engine(caps.isa, false, &engine);
    CHECK(engine.half_width == caps.half_width && sli_cpu_machine_of(&caps).half_width == caps.half_width);
    if (sli_cpu_isa() >= SLI_ISA_AVX512) CHECK(caps.half_width == sli_cpu_half_width(SLI_ISA_AVX512));
    for (int isa = SLI_ISA_AVX512BF16; isa >= SLI_ISA_AVX512; isa--) {
        const sli_cpu_machine whole = {.isa = SLI_ISA_AVX512BF16, .threads = 2},
                              half = {.isa = (sli_isa)isa, .threads = 2, .half_width = true};
        const double ratio =
            sli_cost_product(&half, SL_F32, 500, 500, 500) / sli_cost_product(&whole, SL_F32, 500, 500, 500);
        CHECK(ratio > 1.5 && ratio < 2.5);
    }
}

/* Every instruction set has rates, and no prediction is nothing. */
TEST(cpu_cost_knows_every_instruction_set) {
    for (int isa = SLI_ISA_BASE; isa <= SLI_ISA_AMX; isa++) {
        const sli_cpu_machine machine = {.isa = (sli_isa)isa, .threads = 2};
        CHECK(sli_cost_product(&machine, SL_F32, 100, 100, 100) > 0 && sli_cost_round(&machine, 2) > 0);
        CHECK(sli_cost_cell(&machine, SLI_OP_GRU, true) > 0 && sli_cost_entry(&machine, false) > 0);
        CHECK(sli_cost_start(&machine, 1) == 0 && sli_cost_wake(&machine, 1) == 0 && sli_cost_round(&machine, 1) == 0 &&
              sli_cost_uneven(&machine, 1) == 1);
        /* Large products in bf16 and f32x3 have rates of their own where something multiplies them so. */
        const double f32 = sli_cost_product(&machine, SL_F32, 500, 500, 500);
        const double bf16 = sli_cost_product(&machine, SL_BF16, 500, 500, 384);
        const double f32x3 = sli_cost_product(&machine, SL_F32X3, 500, 500, 192);
        CHECK((bf16 < 0.6 * f32) == (isa >= SLI_ISA_AVX512BF16));
        CHECK((f32x3 < sli_cost_product(&machine, SL_F32, 500, 500, 192)) == (isa == SLI_ISA_AMX));
    }
}
