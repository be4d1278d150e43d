/* cpu:step against the reference rows, and its bits across threads, segments, instruction sets. */
#include "cpu_call.h"

static const char *const problems[] = {
    "lstm:b3_t7_i5_h6_train",
    "lstm:b20_t11_i17_h33_train+bias=double",
    "lstm:b1_t5_i3_h1_train+bias=none",
    "lstm:b13_t9_i65_h40_train+forget=1.5",
    "lstm:b6_t9_i4_h19_train+lengths",
    "lstm:b6_t9_i4_h19_train+mask=holes",
    "lstm:b6_t9_i4_h19_train+lengths+reverse",
    "lstm:b5_t10_i7_h24_train+reverse",
    "lstm:b5_t10_i7_h24_train+act=relu+ract=hard_sigmoid",
    "lstm:b9_t10_i7_h24",
    "lstm:b9_t10_i7_h24+mask=holes",
    "lstm:b9_t10_i7_h24+lengths+reverse",
    "gru:b3_t7_i5_h6_train",
    "gru:b20_t11_i17_h33_train+bias=double",
    "gru:b7_t11_i17_h21_train+bias=none",
    "gru:b7_t11_i17_h21_train+bias=single",
    "gru:b6_t9_i4_h19_train+lengths",
    "gru:b6_t9_i4_h19_train+mask=holes+reverse",
    "gru:b6_t9_i4_h19_train+act=softsign+ract=hard_sigmoid_k2",
    "gru:b9_t10_i7_h24",
    "gru:b9_t10_i7_h24+lengths",
    "lstm:b4_t6_i1_h1_train",
    "gru:b4_t6_i1_h1_train",
    "rnn:b4_t6_i1_h1_train",
    "rnn:b1_t6_i1_h1_train",
    "rnn:b3_t7_i5_h6_train",
    "rnn:b20_t11_i17_h33_train+bias=double",
    "rnn:b6_t9_i4_h19_train+act=relu+lengths",
    "rnn:b6_t9_i4_h19_train+mask=holes+reverse",
    "rnn:b9_t10_i7_h24+mask=left",
};
enum { COUNT = sizeof problems / sizeof problems[0] };

static sli_op op_of(const char *text) {
    sli_problem p;
    REQUIRE_OK(sli_problem_parse(text, &p));
    return p.op;
}

static void compare_all(sli_isa isa, bool blas) {
    for (int i = 0; i < COUNT; i++) {
        call_setup setup = {
            .text = problems[i], .chunk = 4, .threads = 2, .isa = isa, .blas = blas, .accumulate = i & 1};
        call_result fast = {.count = 0}, slow = {.count = 0};
        call_recurrent(call_row(sli_cpu_kernels, op_of(problems[i]), "cpu:step"), &setup, &fast);
        call_recurrent(call_row(sli_ref_kernels, op_of(problems[i]), NULL), &setup, &slow);
        call_compare(&fast, &slow, 1e-5, problems[i]);
        call_free(&fast);
        call_free(&slow);
    }
}

TEST(cpu_step_equals_reference_blas) {
    compare_all(sli_cpu_isa(), true);
}
TEST(cpu_step_equals_reference_own_gemm) {
    compare_all(sli_cpu_isa(), false);
}
TEST(cpu_step_equals_reference_base_isa) {
    compare_all(SLI_ISA_BASE, false);
}

/* One thread, the whole sequence: the bits that every other way must give. */
TEST(cpu_step_bits_do_not_depend_on_threads_or_segments) {
    static const int ways[][2] = {{2, 0}, {3, 0}, {1, 4}, {2, 8}, {5, 4}}; /* threads, segment */
    for (int i = 0; i < COUNT; i++)
        for (int blas = 0; blas < 2; blas++) {
            call_setup setup = {.text = problems[i], .chunk = 4, .threads = 1, .isa = sli_cpu_isa(), .blas = blas};
            const sli_kernel *row = call_row(sli_cpu_kernels, op_of(problems[i]), "cpu:step");
            call_result one = {.count = 0};
            call_recurrent(row, &setup, &one);
            for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
                setup.threads = ways[k][0];
                setup.segment = ways[k][1];
                call_result other = {.count = 0};
                call_recurrent(row, &setup, &other);
                char what[300];
                snprintf(what, sizeof what, "%s, %d threads, segments of %d", problems[i], ways[k][0], ways[k][1]);
                call_same_bits(&other, &one, what);
                call_free(&other);
            }
            call_free(&one);
        }
}

TEST(cpu_step_without_input_gradient) {
    call_setup setup = {
        .text = problems[1], .chunk = 4, .threads = 2, .isa = sli_cpu_isa(), .blas = true, .no_dx = true};
    call_result fast = {.count = 0}, slow = {.count = 0};
    call_recurrent(call_row(sli_cpu_kernels, SLI_OP_LSTM, "cpu:step"), &setup, &fast);
    call_recurrent(call_row(sli_ref_kernels, SLI_OP_LSTM, NULL), &setup, &slow);
    call_compare(&fast, &slow, 1e-5, "no dx");
    call_free(&fast);
    call_free(&slow);
}

TEST(cpu_step_says_why_it_refuses) {
    static const char *const refused[][2] = {
        {"lstm:b2_t3_i4_h5_f64", "f64"},
        {"lstm:b2_t3_i4_h5_p3", "projection"},
        {"lstm:b2_t3_i4_h5+peephole", "peephole"},
        {"lstm:b2_t3_i4_h5+clip=3", "clip=3"},
        {"lstm:b2_t3_i4_h5+zoneout_h=0.1", "zoneout"},
        {"gru:b2_t3_i4_h5+rdrop=0.25", "rdrop=0.25"},
        {"gru:b2_t3_i4_h5+reset=before", "before"},
        {"lstm:l2_b2_t3_i4_h5", "stack of 2"},
        {"lstm:b2_t3_i4_h5+lengths+maskout=repeat", "repeat"},
    };
    sli_caps caps;
    REQUIRE_OK(sli_cpu_caps("cpu", 1, &caps));
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        sli_problem p;
        sli_why why = {""};
        REQUIRE_OK(sli_problem_parse(refused[i][0], &p));
        CHECK(!call_row(sli_cpu_kernels, p.op, "cpu:step")->eligible(&p, &caps, &why));
        if (!strstr(why.text, refused[i][1])) test_fail(__FILE__, __LINE__, "%s: \"%s\"", refused[i][0], why.text);
    }
}
