/* cpu:gemm, cpu:embed, cpu:onehot, cpu:dropout, cpu:xent, cpu:norm, cpu:optim against the reference rows, and their bits. */
#include "cpu_call.h"

static const char *const problems[] = {
    "dense:b5_t7_i9_h11_train",
    "dense:b20_t11_i33_h150_train+act=tanh",
    "dense:b13_t6_i65_h300_train+nobias",
    "dense:b9_i17_h5_train+act=sigmoid",
    "dense:b50_t30_i64_h257_train",
    "dense:b9_t3_i17_h5",
    "dense:b4_t6_i1_h1_train",
    "dense:b4_t6_i7_h1_train",
    "dense:b4_t6_i1_h7_train",
    "dense:b1_i1_h1_train",
    "embed:b7_t9_i13_h50_train",
    "embed:b3_t4_i5_h3",
    "onehot:b7_t9_i13",
    "dropout:b7_t9_h13_train+drop=0.3",
    "dropout:b50_t20_h31_train+drop=0.5",
    "dropout:b5_t3_h9+drop=0.5",
    "xent:b7_t9_h65_train",
    "xent:b20_t6_h1000_train",
    "xent:b7_t9_h5_train+lengths",
    "xent:b9_h3_train",
    "xent:b9_t4_h33",
};
enum { COUNT = sizeof problems / sizeof problems[0] };

static sli_op op_of(const char *text) {
    sli_problem p;
    REQUIRE_OK(sli_problem_parse(text, &p));
    return p.op;
}

/* Dense layers have another row for weights of 8 bits. */
static const sli_kernel *row_of(sli_op op) {
    return call_row(sli_cpu_kernels, op, op == SLI_OP_DENSE ? "cpu:gemm" : NULL);
}

static void compare_all(sli_isa isa, bool blas) {
    for (int i = 0; i < COUNT; i++)
        for (unsigned accumulate = 0; accumulate < 2; accumulate++) {
            call_setup setup = {
                .text = problems[i], .chunk = 4, .threads = 2, .isa = isa, .blas = blas, .accumulate = accumulate};
            call_result fast = {.count = 0}, slow = {.count = 0};
            call_unary(row_of(op_of(problems[i])), &setup, &fast);
            call_unary(call_row(sli_ref_kernels, op_of(problems[i]), NULL), &setup, &slow);
            call_compare(&fast, &slow, 2e-6, problems[i]);
            call_free(&fast);
            call_free(&slow);
        }
}

TEST(cpu_rows_equal_reference_blas) {
    compare_all(sli_cpu_isa(), true);
}
TEST(cpu_rows_equal_reference_own_gemm) {
    compare_all(sli_cpu_isa(), false);
}
TEST(cpu_rows_equal_reference_base_isa) {
    compare_all(SLI_ISA_BASE, false);
}

TEST(cpu_rows_bits_do_not_depend_on_threads_or_segments) {
    static const int ways[][2] = {{2, 0}, {3, 0}, {1, 4}, {2, 8}}; /* threads, segment */
    for (int i = 0; i < COUNT; i++) {
        call_setup setup = {.text = problems[i], .chunk = 4, .threads = 1, .isa = sli_cpu_isa(), .blas = true};
        sli_problem p;
        REQUIRE_OK(sli_problem_parse(problems[i], &p));
        const sli_kernel *row = row_of(p.op);
        call_result one = {.count = 0};
        call_unary(row, &setup, &one);
        for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
            if (p.steps == 0 && ways[k][1] > 0) continue;
            setup.threads = ways[k][0];
            setup.segment = ways[k][1];
            call_result other = {.count = 0};
            call_unary(row, &setup, &other);
            call_same_bits(&other, &one, problems[i]);
            call_free(&other);
        }
        call_free(&one);
    }
}

/* A batch and steps may be more rows than an int has: what their operands take does not grow with them. */
TEST(cpu_dense_packed_operands_of_many_rows) {
    static const char *const rows[] = {"cpu:i8", "cpu:bf16"};
    for (int i = 0; i < 2; i++) {
        char text[64];
        sli_caps caps;
        sli_booking booking[2];
        REQUIRE_OK(sli_cpu_caps("cpu", 1, &caps));
        for (int k = 0; k < 2; k++) {
            sli_problem p;
            snprintf(text, sizeof text, "dense:b65537_t%d_i9_h1_%s", k ? 65536 : 1, rows[i] + 4);
            REQUIRE_OK(sli_problem_parse(text, &p));
            call_row(sli_cpu_kernels, SLI_OP_DENSE, rows[i])->book(&p, &caps, 1, &booking[k]);
        }
        CHECK(booking[0].scratch_forward >= 65536 * 9);
        CHECK(booking[1].scratch_forward == booking[0].scratch_forward);
    }
}

/* The gradient of the loss may take the logits' memory. */
TEST(cpu_xent_gradient_in_place) {
    enum { B = 5, T = 3, V = 37, N = B * T * V };
    sli_problem p;
    REQUIRE_OK(sli_problem_parse("xent:b5_t3_h37_train", &p));
    const sli_kernel *row = row_of(SLI_OP_XENT);
    CHECK(row->gradient_in_place);
    float z[N], apart[N];
    int32_t labels[B * T];
    uint64_t seed = test_seed;
    for (int i = 0; i < N; i++) z[i] = (float)(4 * test_random(&seed));
    for (int i = 0; i < B * T; i++) labels[i] = i % V;
    _Alignas(64) unsigned char scratch[B * T * 16], saved[B * T * 8];
    sli_metrics metrics = {0};
    const sli_scalars scalars = {.loss_scale = 0.5};
    sli_call call = {.problem = p,
                     .chunk = T,
                     .training = true,
                     .saved = saved,
                     .scratch = scratch,
                     .metrics = &metrics,
                     .scalars = &scalars};
    call.in[SLI_LOSS_Z] = z;
    call.in[SLI_LOSS_TARGET] = labels;
    row->forward(&call);
    call.d_in[SLI_LOSS_Z] = apart;
    row->backward(&call);
    call.d_in[SLI_LOSS_Z] = z;
    row->backward(&call);
    CHECK(memcmp(z, apart, sizeof z) == 0);
}

/* ------------------------------------------------------------------------------------------------ norm, optimizers -- */
enum { ELEMENTS = 10007 };

/* Runs norm and three steps of the optimizer of `text`; result: param, grad (after clipping), slots. */
static void update(const sli_kernel *const *rows, const char *text, int threads, call_result *result) {
    sli_problem p, norm;
    REQUIRE_OK(sli_problem_parse(text, &p));
    norm = p;
    norm.op = SLI_OP_NORM;
    sli_caps caps;
    REQUIRE_OK(sli_cpu_caps("cpu", threads, &caps));
    sli_cpu engine;
    sli_cpu_engine(caps.isa, true, &engine);
    sli_threads *pool;
    REQUIRE_OK(sli_threads_new(NULL, threads, &pool));
    const sli_kernel *norm_row = call_row(rows, SLI_OP_NORM, NULL), *row = call_row(rows, SLI_OP_OPTIM, NULL);
    uint64_t seed = test_seed;
    float *param = call_keep(result, "param", ELEMENTS, &seed, 1),
          *slot0 = call_keep(result, "slot0", ELEMENTS, NULL, 0);
    float *slot1 = call_keep(result, "slot1", ELEMENTS, NULL, 0), *norms = call_keep(result, "norms", 3, NULL, 0);
    float *clipped = call_keep(result, "clipped", ELEMENTS, NULL, 0),
          *grad = call_keep(result, "grad", ELEMENTS, NULL, 0);
    call_memory memory;
    call_book(norm_row, &norm, &caps, 1, &memory);
    for (int step = 1; step <= 3; step++) {
        for (int i = 0; i < ELEMENTS; i++) grad[i] = (float)test_random(&seed);
        const sli_scalars scalars = {.learning_rate = 0.01, .optimizer_step = step};
        double squares = 0;
        sli_call call = {
            .problem = norm, .scratch = memory.scratch, .scalars = &scalars, .threads = pool, .cpu = &engine};
        call.out[SLI_NORM_GRAD] = grad;
        call.out[SLI_NORM_SQUARES] = &squares;
        norm_row->forward(&call);
        norms[step - 1] = (float)squares;
        memcpy(clipped, grad, ELEMENTS * sizeof *grad);
        sli_call update = {.problem = p, .scalars = &scalars, .threads = pool, .cpu = &engine};
        update.in[SLI_OPTIM_SQUARES] = &squares;
        update.out[SLI_OPTIM_PARAM] = param;
        update.out[SLI_OPTIM_GRAD] = grad;
        update.out[SLI_OPTIM_SLOT0] = slot0;
        update.out[SLI_OPTIM_SLOT1] = slot1;
        row->forward(&update);
    }
    call_unbook(&memory);
    sli_threads_free(pool);
}

TEST(cpu_update_equals_reference) {
    static const struct {
        sl_optimizer optimizer;
        sl_clip clip;
    } cases[] = {
        {{.kind = SL_SGD}, {SL_CLIP_NONE, 0}},
        {{.kind = SL_SGD, .momentum = 0.9, .weight_decay = 0.01}, {SL_CLIP_GLOBAL_NORM, 5}},
        {{.kind = SL_SGD, .momentum = 0.9, .nesterov = 1}, {SL_CLIP_VALUE, 0.3}},
        {{.kind = SL_ADAM}, {SL_CLIP_NORM, 1}},
        {{.kind = SL_ADAM, .beta1 = 0.8, .beta2 = 0.99, .weight_decay = 0.1, .epsilon = 1e-4}, {SL_CLIP_NONE, 0}},
        {{.kind = SL_ADAMW}, {SL_CLIP_NONE, 0}},
        {{.kind = SL_RMSPROP, .rho = 0.95}, {SL_CLIP_VALUE, 0.5}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sli_problem p = {.op = SLI_OP_OPTIM, .layers = 1, .dtype = SL_F32, .elements = ELEMENTS};
        p.optimizer = cases[i].optimizer;
        p.clip = cases[i].clip;
        char text[SLI_PROBLEM_TEXT];
        sli_problem_print(&p, text, sizeof text);
        call_result fast = {.count = 0}, more = {.count = 0}, slow = {.count = 0};
        update(sli_cpu_kernels, text, 1, &fast);
        update(sli_cpu_kernels, text, 3, &more);
        update(sli_ref_kernels, text, 1, &slow);
        call_compare(&fast, &slow, 1e-6, text);
        call_same_bits(&more, &fast, text);
        for (int k = 0; k < ELEMENTS; k++) CHECK(fast.parts[5].data[k] == 0);
        call_free(&fast);
        call_free(&more);
        call_free(&slow);
    }
}
