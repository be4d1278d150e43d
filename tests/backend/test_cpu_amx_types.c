/* Recurrent and dense rows in bf16 and f32x3, in f32 arithmetic and on AMX, emulated, too: against the reference, in bf16 with rounded
 * operands, and their bits across threads and segments. */
#include "backend/amx_emulated.h"
#include "backend/cpu/fused_split.h"
#include "backend/cpu_call.h"

static const char *const problems[] = {
    "lstm:b3_t7_i5_h6_bf16_train",
    "lstm:b20_t11_i17_h33_bf16_train+bias=double",
    "lstm:b37_t5_i40_h70_bf16_train",
    "lstm:b3_t6_i40_h200_bf16_train",
    "lstm:b2_t3_i5_h510_bf16_train", /* dz in several pieces of columns */
    "lstm:b5_t7_i3_h1_bf16_train+reverse",
    "lstm:b18_t8_i9_h35_bf16_train+rdrop=0.3+zoneout_c=0.2+zoneout_h=0.1",
    "lstm:b7_t6_i9_h40_bf16_train+act=relu+ract=hard_sigmoid", /* gates in f32 */
    "lstm:b7_t6_i9_h40_bf16_train+clip=0.4+maskout=repeat+lengths",
    "lstm:b6_t9_i4_h19_bf16_train+mask=holes",
    "lstm:b6_t9_i4_h19_bf16_train+lengths+reverse",
    "lstm:b1_t9_i40_h50_bf16",
    "lstm:b20_t9_i33_h17_bf16",
    "lstm:b18_t9_i4_h35_p19_bf16_train+lengths+rdrop=0.2+zoneout_c=0.2+zoneout_h=0.1",
    "lstm:b5_t6_i9_h70_p200_bf16_train+bias=double",
    "lstm:b20_t9_i33_h50_p17_bf16",
    "lstm:b18_t9_i4_h35_bf16_train+recompute+lengths",
    "gru:b20_t11_i17_h33_bf16_train",
    "gru:b5_t6_i9_h270_bf16_train",
    "gru:b9_t7_i9_h24_bf16_train+bias=double+zoneout_h=0.2+reverse",
    "gru:b18_t9_i4_h19_bf16_train+lengths",
    "gru:b1_t9_i40_h50_bf16",
    "gru:b18_t9_i4_h19_bf16_train+reset=before+lengths+rdrop=0.2",
    "gru:b5_t6_i9_h270_bf16_train+reset=before+bias=double",
    "gru:b20_t9_i40_h50_bf16+reset=before",
    "rnn:b17_t9_i5_h70_bf16_train",
    "rnn:b5_t9_i40_h35_bf16_train+mask=left+rdrop=0.2",
    "rnn:b2_t9_i5_h70_bf16+lengths",
    "dense:b7_t9_i33_h41_bf16_train+act=tanh",
    "dense:b7_t9_i33_h41_bf16",
};
enum { COUNT = sizeof problems / sizeof problems[0] };

/* The row that a plan takes. */
static const sli_kernel *row_of(const sli_kernel *const *rows, const char *problem) {
    sli_problem p;
    sli_caps caps;
    sli_why why;
    REQUIRE_OK(sli_problem_parse(problem, &p));
    REQUIRE_OK(sli_cpu_caps("cpu", 1, &caps));
    for (; *rows; rows++)
        if ((*rows)->op == p.op && (*rows)->eligible(&p, &caps, &why)) return *rows;
    test_fail(__FILE__, __LINE__, "no row takes %s", problem);
    test_abort();
}

static void compute(const sli_kernel *const *rows, const call_setup *setup, call_result *result) {
    const sli_kernel *row = row_of(rows, setup->text);
    result->count = 0;
    if (row->op == SLI_OP_DENSE)
        call_unary(row, setup, result);
    else
        call_recurrent(row, setup, result);
}

/* `text` in f32x3, if need be. */
static const char *in_dtype(const char *text, sl_dtype dtype, char to[120]) {
    const char *at = strstr(text, "_bf16");
    REQUIRE(at != NULL);
    if (dtype == SL_BF16) return text;
    snprintf(to, 120, "%.*s_f32x3%s", (int)(at - text), text, at + 5);
    return to;
}

/* Sums of another order: in bf16 they may round an operand of the next step to its other neighbour, 2^-8 away; and it adds up. */
static double allowed(sl_dtype dtype) {
    return dtype == SL_BF16 ? 2e-2 : 1e-5;
}

static void check_rows(sli_isa isa, const sli_isa_ops *ops, sl_dtype dtype) {
    static const struct {
        int threads, segment;
        sli_fused_split split; /* directions 0: as predicted */
    } ways[] = {{.threads = 2},
                {.threads = 3, .segment = 4},
                {.threads = 1, .segment = 8},
                {.threads = 2, .split = {.directions = 1, .rows = 1, .units = 2}},
                {.threads = 3, .segment = 4, .split = {.directions = 1, .rows = 3, .units = 1}}};
    enum { WAYS = sizeof ways / sizeof ways[0] };
    int each = WAYS / TEST_ONE_IN(WAYS), step = 1; /* sanitized, every problem in a way of its own */
    /* Emulated f32x3 takes six times as long as bf16, of which it differs in products alone. */
    if (ops && dtype == SL_F32X3) step = each < WAYS ? 10 : 4, each = 1;
    for (int i = 0; i < COUNT; i += step) {
        char text[120];
        const char *problem = in_dtype(problems[i], dtype, text);
        call_setup setup = {.text = problem, .chunk = 4, .threads = 1, .isa = isa, .ops = ops, .accumulate = i & 1};
        call_result got, expected, other;
        compute(sli_cpu_kernels, &setup, &got);
        compute(sli_ref_kernels, &setup, &expected);
        call_compare(&got, &expected, allowed(dtype), problem);
        for (int n = 0; n < each; n++) {
            const int w = (i + n) % WAYS;
            setup.threads = ways[w].threads;
            setup.segment = ways[w].segment;
            setup.split = ways[w].split.directions > 0 ? &ways[w].split : NULL;
            compute(sli_cpu_kernels, &setup, &other);
            call_same_bits(&other, &got, problem);
            call_free(&other);
        }
        call_free(&got);
        call_free(&expected);
    }
}

TEST(cpu_bf16_rows_base) {
    check_rows(SLI_ISA_BASE, NULL, SL_BF16);
}
TEST(cpu_bf16_rows_best) {
    check_rows(sli_cpu_isa(), NULL, SL_BF16);
}
TEST(cpu_bf16_rows_other_isas) {
    static const sli_isa isas[] = {SLI_ISA_AVX2, SLI_ISA_AVX512, SLI_ISA_AVX512BF16};
    int count = 0;
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        char why[SLI_ISA_WHY];
        if (isas[i] == sli_cpu_isa() || !sli_cpu_has(isas[i], why)) continue;
        check_rows(isas[i], NULL, SL_BF16);
        count++;
    }
    if (count == 0) test_skip("this CPU has no instruction set between its best one and base");
}
TEST(cpu_f32x3_rows_best) {
    check_rows(sli_cpu_isa(), NULL, SL_F32X3);
}
static void check_rows_emulated(sl_dtype dtype) {
#ifdef AMX_EMULATED_CELLS
    sli_isa_ops ops;
    amx_emulated_ops(&ops);
    check_rows(SLI_ISA_AMX, &ops, dtype);
#else
    (void)dtype;
    test_skip("cells on emulated AMX are compiled for x86-64 alone, and not for the thread sanitizer");
#endif
}
TEST(cpu_bf16_rows_amx_emulated) {
    check_rows_emulated(SL_BF16);
}
TEST(cpu_f32x3_rows_amx_emulated) {
    check_rows_emulated(SL_F32X3);
}

/* Gradients of some parameters alone: those of biases are summed with the first product that packs dz, if there is one. */
static void check_frozen(sli_isa isa, const sli_isa_ops *ops, const char *problem) {
    static const unsigned frozen[] = {
        1u << SLI_RNN_KERNEL, 1u << SLI_RNN_RECURRENT, 1u << SLI_RNN_KERNEL | 1u << SLI_RNN_RECURRENT,
        1u << SLI_RNN_BIAS | 1u << SLI_RNN_KERNEL, 1u << SLI_RNN_RECURRENT_BIAS | 1u << SLI_RNN_PROJECTION};
    for (size_t i = 0; i < sizeof frozen / sizeof frozen[0]; i++) {
        const call_setup setup = {
            .text = problem, .chunk = 4, .threads = 2, .isa = isa, .ops = ops, .frozen = frozen[i], .no_dx = i & 1};
        call_result got, expected;
        compute(sli_cpu_kernels, &setup, &got);
        compute(sli_ref_kernels, &setup, &expected);
        call_compare(&got, &expected, strstr(problem, "bf16") ? 2e-2 : 1e-5, problem);
        call_free(&got);
        call_free(&expected);
    }
}

TEST(cpu_bf16_frozen_parameters) {
    static const char *const texts[] = {"lstm:b9_t7_i9_h24_bf16_train+bias=double",
                                        "lstm:b9_t7_i9_h24_f32x3_train+bias=double",
                                        "gru:b9_t7_i9_h24_f32x3_train",
                                        "gru:b9_t7_i9_h24_bf16_train",
                                        "rnn:b9_t7_i9_h24_bf16_train",
                                        "gru:b9_t7_i9_h24_train+bias=double",
                                        "gru:b9_t7_i9_h24_train+reset=before+bias=double",
                                        "lstm:b9_t7_i9_h24_p10_train+bias=double",
                                        "lstm:b9_t7_i9_h24_p10_bf16_train",
                                        "gru:b9_t7_i9_h24_bf16_train+reset=before+bias=double"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        check_frozen(SLI_ISA_BASE, NULL, texts[i]);
        check_frozen(sli_cpu_isa(), NULL, texts[i]);
#ifdef AMX_EMULATED_CELLS
        sli_isa_ops ops;
        amx_emulated_ops(&ops);
        if (strstr(texts[i], "bf16") || strstr(texts[i], "f32x3")) check_frozen(SLI_ISA_AMX, &ops, texts[i]);
#endif
    }
}

/* Gates of megabytes, which are written past the caches, and sums over more rows than a piece takes. */
TEST(cpu_bf16_many_rows) {
    static const char *const texts[] = {"lstm:b129_t100_i1_h40_bf16_train",
                                        "gru:b129_t130_i1_h32_bf16_train",
                                        "gru:b129_t130_i1_h32_bf16_train+reset=before",
                                        "lstm:b129_t100_i1_h40_p8_bf16_train",
                                        "rnn:b8200_t4_i1_h64_bf16_train",
                                        "lstm:b129_t100_i1_h40_f32x3_train"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i += TEST_ONE_IN(4)) {
        const call_setup setup = {.text = texts[i], .chunk = 8, .threads = 2, .isa = sli_cpu_isa()};
        call_result got, expected;
        compute(sli_cpu_kernels, &setup, &got);
        compute(sli_ref_kernels, &setup, &expected);
        call_compare(&got, &expected, 2e-2, texts[i]);
        call_free(&got);
        call_free(&expected);
    }
}
