/* Recurrent and dense rows in bf16, in f32 arithmetic and on emulated AMX: against the reference with rounded
 * operands, and their bits across threads and segments. */
#include "backend/amx_emulated.h"
#include "backend/cpu_call.h"

static const char *const problems[] = {
    "lstm:b3_t7_i5_h6_bf16_train",
    "lstm:b20_t11_i17_h33_bf16_train+bias=double",
    "lstm:b37_t5_i40_h70_bf16_train",
    "lstm:b3_t6_i40_h200_bf16_train",
    "lstm:b6_t9_i4_h19_bf16_train+mask=holes",
    "lstm:b6_t9_i4_h19_bf16_train+lengths+reverse",
    "lstm:b1_t9_i40_h50_bf16",
    "lstm:b20_t9_i33_h17_bf16",
    "gru:b20_t11_i17_h33_bf16_train",
    "gru:b5_t6_i9_h270_bf16_train",
    "gru:b18_t9_i4_h19_bf16_train+lengths",
    "gru:b1_t9_i40_h50_bf16",
    "rnn:b17_t9_i5_h70_bf16_train",
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

static void check_rows(sli_isa isa, const sli_isa_ops *ops) {
    static const int ways[][2] = {{2, 0}, {3, 4}, {1, 8}}; /* threads, segment */
    for (int i = 0; i < COUNT; i++) {
        call_setup setup = {.text = problems[i], .chunk = 4, .threads = 1, .isa = isa, .ops = ops, .accumulate = i & 1};
        call_result got, expected, other;
        compute(sli_cpu_kernels, &setup, &got);
        compute(sli_ref_kernels, &setup, &expected);
        /* Sums of another order may round an operand of the next step to its other neighbour, 2^-8 away; and it adds
         * up. */
        call_compare(&got, &expected, 2e-2, problems[i]);
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
            setup.threads = ways[w][0];
            setup.segment = ways[w][1];
            compute(sli_cpu_kernels, &setup, &other);
            call_same_bits(&other, &got, problems[i]);
            call_free(&other);
        }
        call_free(&got);
        call_free(&expected);
    }
}

TEST(cpu_bf16_rows_base) {
    check_rows(SLI_ISA_BASE, NULL);
}
TEST(cpu_bf16_rows_best) {
    check_rows(sli_cpu_isa(), NULL);
}
TEST(cpu_bf16_rows_amx_emulated) {
#ifdef AMX_EMULATED_CELLS
    sli_isa_ops ops;
    amx_emulated_ops(&ops);
    check_rows(SLI_ISA_AMX, &ops);
#else
    test_skip("cells on emulated AMX are compiled for x86-64 alone, and not for the thread sanitizer");
#endif
}
