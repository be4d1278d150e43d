/* The cuDNN rows where there is no GPU: every refusal by its own rule, what is taken, what is booked, predictions. */
#include "backend/cudnn/cudnn.h"
#include "backend/cudnn/rules.h"
#include "problem_text.h"
#include "test.h"

static const char *const names[SLI_CUDNN_ALGOS] = {"cudnn:standard", "cudnn:persist_static", "cudnn:persist_dynamic",
                                                   "cudnn:small_h"};

static sli_caps h200(void) {
    return (sli_caps){.name = "cuda:sm_90",
                      .kind = SLI_DEVICE_CUDA,
                      .invented = true,
                      .compute_capability = 90,
                      .multiprocessors = 132,
                      .cudnn = 91900,
                      .memory = (size_t)140 << 30,
                      .shared_memory = 227 << 10,
                      .l2_bytes = 60 << 20};
}

static const sli_kernel *row_of(const sli_problem *p, sli_cudnn_algo algo) {
    for (const sli_kernel *const *row = sli_cudnn_kernels; *row; row++)
        if ((*row)->op == p->op && strcmp((*row)->name, names[algo]) == 0) return *row;
    return NULL;
}

TEST(cudnn_rows_are_twelve_and_whole) {
    int count = 0;
    for (const sli_kernel *const *row = sli_cudnn_kernels; *row; row++, count++) {
        CHECK((*row)->device == SLI_DEVICE_CUDA && sli_op_is_recurrent((*row)->op));
        CHECK((*row)->eligible && (*row)->cost && (*row)->book && (*row)->seconds);
        CHECK((*row)->pack && (*row)->forward && (*row)->backward);
        CHECK((*row)->backward_reads_in >> SLI_RNN_X & (*row)->backward_reads_in >> SLI_RNN_H0 & 1u);
        CHECK((*row)->backward_reads_out == 1u << SLI_RNN_Y);
    }
    CHECK(count == 12);
}

TEST(cudnn_takes) {
    static const struct {
        const char *text;
        bool taken[SLI_CUDNN_ALGOS];
    } cases[] = {
        {"lstm:b20_t35_i200_h200_f32_train", {true, true, false, false}},
        {"lstm:b20_t35_i200_h192_f32", {true, true, false, true}},
        {"lstm:b20_t35_i200_h128_tf32_train", {true, true, true, true}},
        {"lstm:b20_t35_i200_h128_bf16_train", {true, false, false, false}},
        {"lstm:b20_t35_i200_h1500_f16_train", {true, true, false, false}},
        {"lstm:b20_t35_i200_h1537_f16_train", {true, false, false, false}},
        {"lstm:b20_t35_i200_h200_f16_train", {true, false, false, false}},
        {"lstm:b20_t35_i200_h208_f16_train", {true, true, false, false}},
        {"lstm:b20_t35_i200_h200_f16", {true, true, false, false}},
        {"gru:b20_t35_i200_h200_f16_train", {true, true, false, false}},
        {"gru:b16_t9_i3_h768_train", {true, true, true, false}},
        {"lstm:b2_t5_i3_h4_p2_train", {true, false, false, false}},
        {"lstm:b2_t5_i3_h4_train+lengths", {true, false, false, false}},
        {"lstm:b2_t5_i3_h4_train+forget=1", {true, true, false, true}},
        {"lstm:b2_t5_i3_h4_train+bias=none", {true, true, false, true}},
        {"lstm:l2_b2_t5_i3_h4_train", {true, true, false, true}},
        {"lstm:l2_b2_t5_i3_h4+drop=0.5", {true, true, false, true}},
        {"lstm:b2_t5_i3_h4+rdrop=0.5", {true, true, false, true}},
        {"lstm:l2_b2_t5_i3_h40_f16", {true, true, false, false}},
        {"lstm:l2_b2_t5_i3_h48_f16", {true, true, false, true}},
        {"gru:l2_b2_t5_i3_h40_f16", {true, true, false, true}},
        {"lstm:l2_b2_t5_i3_h40_tf32", {true, true, false, true}},
        {"lstm:bi_b2_t5_i3_h4_train", {true, true, false, true}},
        {"gru:l3_bi_b2_t5_i3_h4_train", {true, true, false, true}},
        {"gru:b2_t5_i3_h4_train+bias=single", {true, true, false, true}},
        {"rnn:b2_t5_i3_h256_train", {true, true, true, true}},
        {"rnn:b2_t5_i3_h257_train+act=relu", {true, true, false, false}},
    };
    sli_caps caps = h200();
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (int algo = 0; algo < SLI_CUDNN_ALGOS; algo++) {
            sli_problem p = problem(cases[k].text);
            sli_why why = {""};
            bool taken = row_of(&p, (sli_cudnn_algo)algo)->eligible(&p, &caps, &why);
            if (taken != cases[k].taken[algo])
                test_fail(__FILE__, __LINE__, "%s by %s: %d %s", cases[k].text, names[algo], taken, why.text);
            CHECK(taken || why.text[0]);
        }
}

static void check_refusal(const char *text, const sli_caps *caps, sli_cudnn_algo algo, const char *reason) {
    sli_problem p = problem(text);
    sli_why why = {""};
    bool taken = row_of(&p, algo)->eligible(&p, caps, &why);
    if (taken || !strstr(why.text, reason))
        test_fail(__FILE__, __LINE__, "%s: %s, \"%s\", expected \"%s\"", text, taken ? "taken" : "refused", why.text,
                  reason);
}

TEST(cudnn_refuses_by_its_own_rule) {
    static const struct {
        const char *text, *reason;
    } cases[] = {
        {"lstm:b2_t5_i3_h4_f64", "dtype f64: cuDNN's rows compute f32, tf32, bf16 and f16"},
        {"lstm:b2_t5_i3_h4_f32x3", "dtype f32x3"},
        {"lstm:b2_t5_i3_h4+act=relu", "activation relu: cuDNN's cells have tanh only"},
        {"gru:b2_t5_i3_h4+ract=hard_sigmoid", "recurrent activation hard_sigmoid: cuDNN's gates have sigmoid only"},
        {"rnn:b2_t5_i3_h4+act=softsign", "activation softsign: cuDNN's simple RNN has tanh and relu"},
        {"gru:b2_t5_i3_h4+reset=before", "GRU with reset before the product"},
        {"lstm:b2_t5_i3_h4+peephole", "no peepholes"},
        {"lstm:b2_t5_i3_h4+clip=2.5", "cell clip 2.5: cuDNN clips c where a step reads it"},
        {"lstm:b2_t5_i3_h4_train+rdrop=0.25", "recurrent dropout 0.25"},
        {"lstm:b2_t5_i3_h4+zoneout_h=0.1", "zoneout"},
        {"lstm:b2_t5_i3_h4+zoneout_c=0.1", "zoneout"},
        {"lstm:bi_b2_t5_i3_h4+merge=sum", "cuDNN concatenates"},
        {"lstm:b2_t5_i3_h4+reverse", "from the last step to the first"},
        {"lstm:l13_b2_t5_i3_h4", "13 layers of 1 directions: at most 12 parts"},
        {"gru:l7_bi_b2_t5_i3_h4", "7 layers of 2 directions: at most 12 parts"},
        {"lstm:b1_t65536_i1_h1", "65536 steps: cuDNN takes at most 65535"},
        {"lstm:b2_t5_i3_h4_p4", "projection of 4 units to 4: cuDNN projects to fewer only"},
        {"lstm:l2_b2_t5_i3_h4_train+drop=0.5", "dropout 0.5 inside a call of 2 layers: cuDNN draws its own masks"},
        {"lstm:b2_t5_i3_h4+mask=holes", "a mask with holes"},
        {"lstm:b2_t5_i3_h4+mask=left", "a mask on the left"},
        {"lstm:b2_t5_i3_h4+mask=right", "a mask given step by step"},
        {"lstm:b2_t5_i3_h4+lengths+maskout=repeat", "masked steps repeat the last output"},
    };
    sli_caps caps = h200();
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        check_refusal(cases[k].text, &caps, SLI_CUDNN_STANDARD, cases[k].reason);
}

TEST(cudnn_persistent_refuses_by_its_own_rule) {
    sli_caps caps = h200();
    check_refusal("lstm:b2_t5_i3_h4_bf16", &caps, SLI_CUDNN_PERSIST_STATIC, "bf16: cuDNN 9 has no persistent kernels");
    check_refusal("lstm:b2_t5_i3_h4_p2", &caps, SLI_CUDNN_PERSIST_DYNAMIC, "projection to 2: only cudnn:standard");
    check_refusal("lstm:b2_t5_i3_h4+lengths", &caps, SLI_CUDNN_SMALL_H, "lengths: only cudnn:standard");
    check_refusal("gru:b2_t5_i3_h2000", &caps, SLI_CUDNN_PERSIST_STATIC, "2000 units: cuDNN's persistent static");
    check_refusal("lstm:b2_t5_i3_h200_f16_train", &caps, SLI_CUDNN_PERSIST_STATIC,
                  "200 units, an odd number of eights");
    check_refusal("gru:b2_t5_i3_h200", &caps, SLI_CUDNN_PERSIST_DYNAMIC, "200 units: cuDNN's persistent dynamic");
    check_refusal("gru:b2_t5_i3_h1024", &caps, SLI_CUDNN_PERSIST_DYNAMIC, "multiples of 128 up to 768");
    check_refusal("rnn:b2_t5_i3_h2561", &caps, SLI_CUDNN_PERSIST_STATIC, "2561 units: cuDNN's persistent static");
    check_refusal("gru:b2_t5_i3_h150_train", &caps, SLI_CUDNN_SMALL_H, "small-H kernels go up to 128 in training");
    check_refusal("gru:b2_t5_i3_h193", &caps, SLI_CUDNN_SMALL_H, "small-H kernels go up to 192 in inference");
    check_refusal("lstm:b2_t5_i3_h40_f16", &caps, SLI_CUDNN_SMALL_H, "40 units, an odd number of eights");
    check_refusal("rnn:b2_t5_i3_h385", &caps, SLI_CUDNN_SMALL_H, "small-H kernels go up to 384 in inference");
}

TEST(cudnn_refuses_by_device) {
    sli_caps caps = h200();
    caps.graphs = true;
    check_refusal("lstm:b2_t5_i3_h4+lengths", &caps, SLI_CUDNN_STANDARD, "lengths in a recorded step");
    caps = h200();
    caps.recomputes = true;
    check_refusal("lstm:bi_b2_t5_i3_h4_train", &caps, SLI_CUDNN_STANDARD, "cannot be cut into segments");
    caps = h200();
    caps.cudnn = 0;
    check_refusal("lstm:b2_t5_i3_h4", &caps, SLI_CUDNN_STANDARD, "cuDNN is not there");
    caps.cudnn = 80907;
    check_refusal("lstm:b2_t5_i3_h4", &caps, SLI_CUDNN_STANDARD, "cuDNN 8.9 was found, 9 is needed");
}

TEST(cudnn_weight_space_is_exact) {
    sli_cudnn_sizes sizes;
    sli_problem p = problem("lstm:l2_bi_b2_t5_i3_h4_train");
    sli_cudnn_estimate(&p, &sizes);
    /* Two parts of 3 inputs, two of 8; 4 gates of 4 units; recurrent 4; two biases. */
    CHECK(sizes.weights == 4 * (2 * 16 * (3 + 4 + 2) + 2 * 16 * (8 + 4 + 2)));
    p = problem("gru:b2_t5_i3_h4_f16");
    sli_cudnn_estimate(&p, &sizes);
    CHECK(sizes.weights == 2 * 12 * (3 + 4 + 2));
    p = problem("lstm:b2_t5_i3_h4_p2_f32");
    sli_cudnn_estimate(&p, &sizes);
    CHECK(sizes.weights == 4 * (16 * (3 + 2 + 2) + 2 * 4));
}

/* Pieces do not overlap, start aligned, and end within what is booked, wherever the block begins. */
static void check_pieces(const size_t *at, const size_t *bytes, int count, size_t booked) {
    for (int k = 0; k < count; k++) {
        CHECK(at[k] % SLI_CUDNN_ALIGN == 0);
        CHECK(at[k] + bytes[k] <= (k + 1 < count ? at[k + 1] : booked - SLI_CUDNN_ALIGN));
    }
}

TEST(cudnn_scratch_holds_its_pieces) {
    static const char *const texts[] = {"lstm:b3_t5_i7_h4_train",        "lstm:b3_t5_i7_h4_f16_train",
                                        "gru:l2_bi_b3_t5_i7_h4_train",   "lstm:l2_b3_t5_i7_h4_p3_bf16_train",
                                        "rnn:b3_t5_i7_h4_train+lengths", "lstm:b1_t1_i7_h4_train"};
    sli_cudnn_sizes sizes = {1000, 3000, 5000, 700};
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        sli_problem p = problem(texts[k]);
        sli_cudnn_counts n = sli_cudnn_count(&p);
        size_t e = sli_cudnn_bytes(&p), narrow = sli_cudnn_narrow(&p) ? e : 0, x = sli_cudnn_stages_x(&p) ? e : 0;
        size_t states = sli_cudnn_stages_states(&p) ? e : 0;
        sli_cudnn_scratch f = sli_cudnn_scratch_forward(&p, &sizes), b = sli_cudnn_scratch_backward(&p, &sizes);
        check_pieces((size_t[]){f.x, f.y, f.hx, f.cx, f.hy, f.cy, f.workspace},
                     (size_t[]){n.x * x, n.y * narrow, n.h * states, n.c * states, n.h * states, n.c * states, 5000}, 7,
                     f.bytes);
        check_pieces(
            (size_t[]){b.x, b.y, b.hx, b.cx, b.dy, b.dx, b.dhy, b.dcy, b.dhx, b.dcx, b.weight_gradients, b.workspace},
            (size_t[]){n.x * x, n.y * narrow, n.h * states, n.c * states, n.y * e, n.x * e, n.h * e, n.c * e, n.h * e,
                       n.c * e, 1000, 5000},
            12, b.bytes);
    }
}

TEST(cudnn_booking_grows_with_the_call) {
    sli_caps caps = h200();
    for (int algo = 0; algo < SLI_CUDNN_ALGOS; algo++) {
        sli_problem p = problem("lstm:l2_b20_t35_i100_h96_f16_train"), q = p;
        const sli_kernel *row = row_of(&p, (sli_cudnn_algo)algo);
        sli_booking big, small, inference;
        row->book(&p, &caps, 8, &big);
        q.batch = 7;
        q.steps = 3;
        row->book(&q, &caps, 8, &small);
        CHECK(small.saved < big.saved && small.scratch_forward < big.scratch_forward);
        CHECK(small.scratch_backward < big.scratch_backward && small.packed == big.packed);
        CHECK(big.packed >= 2 * (384 * (100 + 96 + 2) + 384 * (96 + 96 + 2)));
        p.train = false;
        row->book(&p, &caps, 8, &inference);
        CHECK(inference.saved == 0 && inference.scratch_backward == 0 && inference.packed == big.packed);
    }
}

/* Medians of one H200, cuDNN 9.19, us: what was fastest of cuDNN's rows that the planner takes, and predicted times that are
 * half and twice as long at most as measured ones (0: not measured or refused). */
TEST(cudnn_predictions_choose_what_is_fastest) {
    static const struct {
        const char *text;
        sli_cudnn_algo fastest;
        double measured[SLI_CUDNN_ALGOS];
    } cases[] = {
        {"lstm:l2_b20_t35_i1500_h1500_tf32_train", SLI_CUDNN_STANDARD, {3356, 52334, 0, 0}},
        {"lstm:b16_t1000_i256_h256_tf32_train", SLI_CUDNN_STANDARD, {21548, 37709, 24033, 0}},
        {"lstm:l4_b64_t300_i512_h256_tf32_train", SLI_CUDNN_STANDARD, {11631, 125091, 113893, 0}},
        {"lstm:b64_t25_i1024_h1024_tf32", SLI_CUDNN_STANDARD, {471, 6830, 0, 0}},
        {"lstm:b1_t512_i1024_h1024_tf32", SLI_CUDNN_PERSIST_STATIC, {3844, 2850, 0, 0}},
        {"lstm:b1_t20_i100_h128_tf32_train", SLI_CUDNN_PERSIST_STATIC, {196, 104, 0, 150}},
        {"lstm:l2_b32_t50_i16_h64_tf32_train", SLI_CUDNN_SMALL_H, {855, 6224, 0, 214}},
        {"gru:l2_b20_t35_i650_h650_tf32", SLI_CUDNN_STANDARD, {658, 1183, 0, 0}},
        {"gru:b64_t1000_i512_h512_tf32", SLI_CUDNN_STANDARD, {8413, 55164, 49954, 0}},
        {"lstm:b16_t1024_i768_h768_f16_train", SLI_CUDNN_PERSIST_STATIC, {16970, 6840, 52874, 0}},
        {"lstm:b16_t25_i1024_h1024_f16", SLI_CUDNN_PERSIST_STATIC, {172, 69, 0, 0}},
        {"lstm:b128_t25_i1024_h1024_f16_train", SLI_CUDNN_STANDARD, {790, 1175, 0, 0}},
        {"lstm:b256_t128_i1024_h1024_f16", SLI_CUDNN_STANDARD, {1864, 4141, 0, 0}},
        {"lstm:l2_b20_t20_i200_h200_f16", SLI_CUDNN_STANDARD, {168, 666, 0, 0}},
        {"lstm:l2_b20_t35_i1500_h1500_f16", SLI_CUDNN_STANDARD, {1182, 29439, 0, 0}},
        {"lstm:b8_t50_i1536_h1536_f16_train", SLI_CUDNN_PERSIST_STATIC, {1040, 887, 0, 0}},
        {"lstm:b32_t50_i1536_h1536_f16_train", SLI_CUDNN_STANDARD, {1284, 2428, 0, 0}},
        {"gru:b32_t187_i2048_h2048_bf16_train", SLI_CUDNN_STANDARD, {5129, 0, 0, 0}},
        {"lstm:b128_t25_i4096_h4096_bf16", SLI_CUDNN_STANDARD, {1955, 0, 0, 0}},
    };
    sli_caps caps = h200();
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        sli_problem p = problem(cases[k].text);
        int best = -1;
        double least = 0;
        for (int algo = 0; algo < SLI_CUDNN_ALGOS; algo++) {
            sli_why why;
            if (!sli_cudnn_eligible(&p, &caps, (sli_cudnn_algo)algo, &why)) continue;
            double us = 1e6 * sli_cudnn_seconds(&p, &caps, (sli_cudnn_algo)algo), measured = cases[k].measured[algo];
            if (best < 0 || us < least) best = algo, least = us;
            if (measured > 0 && !(us > measured / 2 && us < measured * 2))
                test_fail(__FILE__, __LINE__, "%s by %s: predicted %.0f us, measured %.0f", cases[k].text, names[algo],
                          us, measured);
        }
        if (best != (int)cases[k].fastest)
            test_fail(__FILE__, __LINE__, "%s: %s is predicted to be the fastest, was %s", cases[k].text,
                      best < 0 ? "nothing" : names[best], names[cases[k].fastest]);
    }
}

TEST(cudnn_predictions_grow_with_the_problem) {
    static const char *const texts[][2] = {{"lstm:b4_t20_i64_h192_f16_train", "lstm:b5_t20_i64_h192_f16_train"},
                                           {"lstm:b16_t20_i64_h128_f32_train", "lstm:b17_t20_i64_h128_f32_train"},
                                           {"gru:b16_t20_i64_h64_tf32", "gru:b16_t21_i64_h64_tf32"},
                                           {"gru:b16_t20_i64_h64_tf32", "gru:b16_t20_i64_h128_tf32"},
                                           {"lstm:b1_t20_i64_h96_tf32", "lstm:b2000_t20_i64_h96_tf32"},
                                           {"lstm:b8_t20_i64_h1024_f16", "lstm:b8_t20_i64_h1536_f16"},
                                           {"lstm:b8_t20_i64_h128_f16", "lstm:l2_b8_t20_i64_h128_f16"},
                                           {"lstm:b8_t20_i64_h128_f16", "lstm:b8_t20_i64_h128_f16_train"}};
    sli_caps caps = h200();
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
        for (int algo = 0; algo < SLI_CUDNN_ALGOS; algo++) {
            sli_problem p = problem(texts[k][0]), q = problem(texts[k][1]);
            CHECK(sli_cudnn_seconds(&p, &caps, (sli_cudnn_algo)algo) <=
                  sli_cudnn_seconds(&q, &caps, (sli_cudnn_algo)algo));
        }
    /* A build of seconds is not for one short call. */
    sli_problem p = problem("lstm:b2_t5_i3_h128_tf32");
    CHECK(sli_cudnn_seconds(&p, &caps, SLI_CUDNN_PERSIST_DYNAMIC) >
          sli_cudnn_seconds(&p, &caps, SLI_CUDNN_PERSIST_STATIC));
    /* Half as many multiprocessors hold half as much and are slower. */
    p = problem("lstm:b16_t25_i1024_h1024_f16");
    double whole = sli_cudnn_seconds(&p, &caps, SLI_CUDNN_PERSIST_STATIC);
    caps.multiprocessors /= 2;
    CHECK(sli_cudnn_seconds(&p, &caps, SLI_CUDNN_PERSIST_STATIC) > 1.2 * whole);
}

TEST(cudnn_cost_counts_parts) {
    sli_caps caps = h200();
    sli_cost one, two;
    sli_problem p = problem("lstm:b2_t5_i4_h4"), q = problem("lstm:l2_b2_t5_i4_h4");
    sli_cudnn_cost(&p, &caps, &one);
    sli_cudnn_cost(&q, &caps, &two);
    CHECK(one.flops == 2.0 * 10 * 16 * 8 && two.flops == 2 * one.flops);
}
