/* cpu:stack: the bits of cpu:fused layer by layer, however many threads and pieces; how time is cut; what it refuses. */
#include "backend/cpu/rows.h"
#include "backend/cpu/stack.h"
#include "cpu_call.h"

enum { MOST = 3 }; /* layers */

static const sli_kernel *row_named(const sli_problem *p, const char *name) {
    return call_row(sli_cpu_kernels, p->op, name);
}

/* ------------------------------------------------------------------------------------------- calls without a plan -- */
typedef struct layer_data {
    float *kernel, *recurrent, *bias, *projection, *h0, *c0, *dht, *dct; /* drawn */
    float *y, *dy, *ht, *ct, *d_kernel, *d_recurrent, *d_bias, *d_projection, *d_h0,
        *d_c0; /* written; y, dy between layers too */
} layer_data;

typedef struct stack_data {
    sli_problem p;
    call_result in, between;
    float *x, *dx;
    layer_data layer[MOST];
} stack_data;

static void draw(stack_data *s, call_result *result) {
    const sli_problem *p = &s->p;
    const size_t rows = (size_t)p->steps * (size_t)p->batch, H = (size_t)p->units, state = (size_t)p->batch * H;
    const size_t O = (size_t)sli_problem_output(p), projection = (size_t)p->projection * H, h = (size_t)p->batch * O;
    uint64_t seed = test_seed;
    s->x = call_keep(&s->in, "x", rows * (size_t)p->inputs, &seed, 1);
    s->dx = call_keep(result, "dx", p->train ? rows * (size_t)p->inputs : 0, &seed, 1);
    for (int l = 0; l < p->layers; l++) {
        layer_data *d = &s->layer[l];
        const size_t gates = (size_t)sli_op_gates(p->op) * H, inputs = l == 0 ? (size_t)p->inputs : O;
        call_result *y = l + 1 == p->layers ? result : &s->between;
        d->kernel = call_keep(&s->in, "kernel", gates * inputs, &seed, 0.4);
        d->recurrent = call_keep(&s->in, "recurrent", gates * O, &seed, 0.3);
        d->bias = call_keep(&s->in, "bias", gates, &seed, 0.3);
        d->projection = call_keep(&s->in, "projection", projection, &seed, 0.3);
        d->h0 = call_keep(&s->in, "h0", h, &seed, 0.5);
        d->c0 = call_keep(&s->in, "c0", state, &seed, 0.5);
        d->dht = call_keep(&s->in, "dht", h, &seed, 0.5);
        d->dct = call_keep(&s->in, "dct", state, &seed, 0.5);
        d->y = call_keep(y, "y", rows * O, NULL, 0);
        d->dy = call_keep(l + 1 == p->layers ? &s->in : &s->between, "dy", rows * O, &seed, 0.5);
        d->ht = call_keep(result, "ht", h, NULL, 0);
        d->ct = call_keep(result, "ct", state, NULL, 0);
        d->d_kernel = call_keep(result, "d_kernel", p->train ? gates * inputs : 0, &seed, 1);
        d->d_recurrent = call_keep(result, "d_recurrent", p->train ? gates * O : 0, &seed, 1);
        d->d_bias = call_keep(result, "d_bias", p->train ? gates : 0, &seed, 1);
        d->d_projection = call_keep(result, "d_projection", p->train ? projection : 0, &seed, 1);
        d->d_h0 = call_keep(result, "d_h0", p->train ? h : 0, NULL, 0);
        d->d_c0 = call_keep(result, "d_c0", p->train && p->op == SLI_OP_LSTM ? state : 0, NULL, 0);
    }
}

/* Layer l as part `part` of a call. */
static void set_layer(const stack_data *s, int l, int part, sli_call *call) {
    const layer_data *d = &s->layer[l];
    const bool lstm = s->p.op == SLI_OP_LSTM;
    const void **param = call->param + part * SLI_PART_PARAMS;
    void **d_param = call->d_param + part * SLI_PART_PARAMS;
    param[SLI_RNN_KERNEL] = d->kernel;
    param[SLI_RNN_RECURRENT] = d->recurrent;
    d_param[SLI_RNN_KERNEL] = d->d_kernel;
    d_param[SLI_RNN_RECURRENT] = d->d_recurrent;
    param[SLI_RNN_BIAS] = s->p.bias == SL_BIAS_NONE ? NULL : d->bias;
    d_param[SLI_RNN_BIAS] = s->p.bias == SL_BIAS_NONE ? NULL : d->d_bias;
    param[SLI_RNN_PROJECTION] = s->p.projection > 0 ? d->projection : NULL;
    d_param[SLI_RNN_PROJECTION] = s->p.projection > 0 ? d->d_projection : NULL;
    call->in[SLI_RNN_STATE_IN(part, 0)] = d->h0;
    call->out[SLI_RNN_STATE_OUT(part, 0)] = d->ht;
    call->d_out[SLI_RNN_STATE_OUT(part, 0)] = d->dht;
    call->d_in[SLI_RNN_STATE_IN(part, 0)] = d->d_h0;
    if (!lstm) return;
    call->in[SLI_RNN_STATE_IN(part, 1)] = d->c0;
    call->out[SLI_RNN_STATE_OUT(part, 1)] = d->ct;
    call->d_out[SLI_RNN_STATE_OUT(part, 1)] = d->dct;
    call->d_in[SLI_RNN_STATE_IN(part, 1)] = d->d_c0;
}

static void set_ends(const stack_data *s, int first, int last, sli_call *call) {
    call->in[SLI_RNN_X] = first == 0 ? s->x : s->layer[first - 1].y;
    call->d_in[SLI_RNN_X] = first == 0 ? s->dx : s->layer[first - 1].dy;
    call->out[SLI_RNN_Y] = s->layer[last].y;
    call->d_out[SLI_RNN_Y] = s->layer[last].dy;
}

static void compute(const sli_kernel *row, sli_call *call) {
    if (row->pack) row->pack(call);
    row->forward(call);
}

/* One call of cpu:stack. */
static void run_wide(stack_data *s, const sli_caps *caps, sli_call base) {
    const sli_kernel *row = row_named(&s->p, "cpu:stack");
    call_memory memory;
    sli_why why = {""};
    if (!row->eligible(&s->p, caps, &why)) test_fail(__FILE__, __LINE__, "%s", why.text);
    call_book(row, &s->p, caps, base.chunk, &memory);
    base.problem = s->p;
    base.saved = memory.saved;
    base.scratch = memory.scratch;
    base.scratch_bytes = call_scratch(&memory.booking);
    base.packed = memory.packed;
    for (int l = 0; l < s->p.layers; l++) set_layer(s, l, l, &base);
    set_ends(s, 0, s->p.layers - 1, &base);
    compute(row, &base);
    if (s->p.train) row->backward(&base);
    call_unbook(&memory);
}

/* cpu:fused, one layer after the other. */
static void run_narrow(stack_data *s, const sli_caps *caps, sli_call base) {
    const sli_kernel *row = row_named(&s->p, "cpu:fused");
    call_memory memory[MOST];
    sli_call call[MOST];
    for (int l = 0; l < s->p.layers; l++) {
        call[l] = base;
        call[l].problem = sli_problem_part(&s->p, l, -1);
        if (l > 0) call[l].accumulate = 0;
        call_book(row, &call[l].problem, caps, base.chunk, &memory[l]);
        call[l].saved = memory[l].saved;
        call[l].scratch = memory[l].scratch;
        call[l].scratch_bytes = call_scratch(&memory[l].booking);
        call[l].packed = memory[l].packed;
        set_layer(s, l, 0, &call[l]);
        set_ends(s, l, l, &call[l]);
        compute(row, &call[l]);
    }
    for (int l = s->p.layers - 1; l >= 0 && s->p.train; l--) row->backward(&call[l]);
    for (int l = 0; l < s->p.layers; l++) call_unbook(&memory[l]);
}

/* pieces 0: cpu:fused; negative: cpu:stack, as predicted. */
static void run(const char *text, int chunk, int threads, int pieces, unsigned accumulate, const sl_thread_pool *pool,
                call_result *result) {
    stack_data s = {.in = {.count = 0}};
    sli_caps caps;
    sli_cpu cpu;
    sli_threads *workers;
    REQUIRE_OK(sli_problem_parse(text, &s.p));
    REQUIRE_OK(sli_cpu_caps("cpu", threads, &caps));
    caps.have_blas = false;
    sli_cpu_engine(caps.isa, false, &cpu);
    cpu.pieces = pieces > 0 ? pieces : 0;
    REQUIRE_OK(pool ? sli_threads_over(NULL, pool, threads, &workers) : sli_threads_new(NULL, threads, &workers));
    draw(&s, result);
    const sli_scalars scalars = {.loss_scale = 1};
    const sli_call base = {.chunk = chunk,
                           .total_steps = s.p.steps,
                           .training = s.p.train,
                           .accumulate = accumulate,
                           .scalars = &scalars,
                           .threads = workers,
                           .cpu = &cpu};
    if (pieces == 0)
        run_narrow(&s, &caps, base);
    else
        run_wide(&s, &caps, base);
    sli_threads_free(workers);
    call_free(&s.in);
    call_free(&s.between);
}

static const struct {
    const char *text;
    int chunk;
} stacks[] = {{"lstm:l2_b1_t60_i7_h13_train", 25},
              {"lstm:l3_b2_t41_i5_h24_train+clip=0.5", 41},
              {"gru:l3_b2_t30_i9_h11_train+bias=single", 13},
              {"rnn:l2_b11_t9_i3_h17_train+bias=none", 4},
              {"lstm:l3_b1_t64_i16_h32", 64},
              {"gru:l2_b5_t23_i6_h9+bias=single", 23},
              {"gru:l3_b2_t30_i9_h35_train+reset=before", 13},
              {"lstm:l3_b2_t30_i9_h20_p35_train+bias=single", 13},
              {"lstm:l2_b2_t40_i8_h16_bf16_train", 20},
              {"lstm:l2_b2_t40_i8_h16_i8", 20},
              {"lstm:l2_b3_t1_i4_h5_train", 1},
              {"lstm:l2_b1_t47_i40_h8", 12}};

static void backwards(void *context, int count, void (*task)(void *, int), void *task_context) {
    (void)context;
    for (int i = count - 1; i >= 0; i--) task(task_context, i);
}

TEST(cpu_stack_has_the_bits_of_its_layers) {
    static const int ways[][2] = {{1, 1}, {1, 4}, {2, -1}, {2, 2}, {2, 5}, {3, 3}, {4, 100}, {7, 2}};
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++) {
        call_result fused = {.count = 0};
        run(stacks[i].text, stacks[i].chunk, 1, 0, 0, NULL, &fused);
        for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
            call_result stack = {.count = 0};
            char what[160];
            run(stacks[i].text, stacks[i].chunk, ways[k][0], ways[k][1], 0, NULL, &stack);
            snprintf(what, sizeof what, "%s on %d threads, %d pieces", stacks[i].text, ways[k][0], ways[k][1]);
            call_same_bits(&stack, &fused, what);
            call_free(&stack);
        }
        call_free(&fused);
    }
}

/* In a program's pool, whose tasks may run one after the other; and where gradients of inputs are added to. */
TEST(cpu_stack_needs_no_threads_at_the_same_time) {
    const sl_thread_pool pool = {.parallel_for = backwards};
    call_result fused = {.count = 0}, stack = {.count = 0};
    run(stacks[0].text, stacks[0].chunk, 2, 0, 1u << SLI_RNN_X, NULL, &fused);
    run(stacks[0].text, stacks[0].chunk, 2, 3, 1u << SLI_RNN_X, &pool, &stack);
    call_same_bits(&stack, &fused, "one after the other");
    call_free(&fused);
    call_free(&stack);
}

/* ------------------------------------------------------------------------------------------------------ decisions -- */
TEST(cpu_stack_pieces_are_no_other_kind_of_product) {
    for (int steps = 1; steps < 40; steps++)
        for (int batch = 1; batch < 12; batch++)
            for (int wanted = 1; wanted < 50; wanted += 7) {
                const int pieces = sli_cpu_stack_pieces(steps, batch, wanted);
                CHECK(pieces >= 1 && pieces <= wanted && pieces <= steps);
                CHECK(pieces == 1 || steps / pieces * batch > 8);
            }
    CHECK(sli_cpu_stack_pieces(100, 1, 7) == 7 && sli_cpu_stack_pieces(100, 1, 70) == 11);
}

/* Seconds of a row on a Zen 3; layers one by one are added up. */
static double predicted(const char *text, const char *name, int threads) {
    sli_problem p;
    sli_caps caps = {
        .kind = SLI_DEVICE_CPU, .isa = SLI_ISA_AVX2, .threads = threads, .l2_bytes = 512 * 1024, .l3_bytes = 32 << 20};
    REQUIRE_OK(sli_problem_parse(text, &p));
    const sli_kernel *row = row_named(&p, name);
    if (strcmp(name, "cpu:stack") == 0) return row->seconds(&p, &caps);
    double sum = 0;
    for (int l = 0; l < p.layers; l++) {
        const sli_problem layer = sli_problem_part(&p, l, -1);
        sum += row->seconds(&layer, &caps);
    }
    return sum;
}

/* Which way was faster: bench/results/cpu_predicted_2026-11-21.txt. One row and small layers go as a wave, the others one by one. */
TEST(cpu_stack_is_chosen_where_it_was_measured_to_be_faster) {
    static const struct {
        const char *text;
        bool stack;
    } cases[] = {{"lstm:l2_b1_t1000_i64_h64", true},       {"lstm:l2_b1_t100_i64_h64_train", true},
                 {"lstm:l3_b1_t300_i32_h32", true},        {"gru:l2_b1_t200_i32_h48", true},
                 {"lstm:l4_b1_t1000_i32_h32_train", true}, {"lstm:l2_b20_t35_i200_h200", false},
                 {"lstm:l2_b20_t35_i650_h650", false},     {"lstm:l2_b32_t50_i16_h64_train", false},
                 {"lstm:l4_b64_t300_i512_h256", false},    {"lstm:l2_b1_t35_i650_h650", false}};
    char why[SLI_ISA_WHY];
    if (!sli_cpu_has(SLI_ISA_AVX2, why)) test_skip("%s", why);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const double stack = predicted(cases[k].text, "cpu:stack", 2), apart = predicted(cases[k].text, "cpu:fused", 2);
        if ((stack < apart) != cases[k].stack)
            test_fail(__FILE__, __LINE__, "%s: stack %g us, layers one by one %g us", cases[k].text, 1e6 * stack,
                      1e6 * apart);
    }
    /* One thread has nothing to run beside. */
    CHECK(predicted("lstm:l2_b1_t1000_i64_h64", "cpu:stack", 1) >
          predicted("lstm:l2_b1_t1000_i64_h64", "cpu:fused", 1));
}

TEST(cpu_stack_says_why_it_refuses) {
    static const char *const refused[][2] = {{"lstm:b2_t3_i4_h5", "there is one"},
                                             {"lstm:l2_b2_t3_i4_h5_bi", "two directions"},
                                             {"lstm:l2_b2_t3_i4_h5_train+drop=0.5", "0.5"},
                                             {"lstm:l2_b2_t3_i4_h5_train+rdrop=0.5", "layer by layer"},
                                             {"gru:l2_b2_t3_i4_h5+lengths", "lengths"},
                                             {"rnn:l13_b2_t3_i4_h5", "at most 12"},
                                             {"lstm:l2_b2_t3_i4_h5_f64", "f64"}};
    sli_caps caps;
    REQUIRE_OK(sli_cpu_caps("cpu", 2, &caps));
    caps.have_blas = false;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        sli_problem p;
        sli_why why = {""};
        REQUIRE_OK(sli_problem_parse(refused[i][0], &p));
        CHECK(!row_named(&p, "cpu:stack")->eligible(&p, &caps, &why));
        if (!strstr(why.text, refused[i][1])) test_fail(__FILE__, __LINE__, "%s: \"%s\"", refused[i][0], why.text);
    }
    sli_problem p;
    sli_why why = {""};
    REQUIRE_OK(sli_problem_parse("lstm:l2_b2_t3_i4_h5", &p));
    caps.have_blas = true;
    CHECK(!row_named(&p, "cpu:stack")->eligible(&p, &caps, &why) && strstr(why.text, "BLAS"));
}
