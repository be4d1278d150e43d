/* cpu:fused against the reference, and its bits across threads, ways to share a step, segments. `sluice check` on tests/problems
 * adds peepholes, both directions, poison and guards. */
#include <time.h>
#include "backend/cpu/fused.h"
#include "cpu_call.h"
#include "thread_pools.h"

static const char *const problems[] = {
    "lstm:b3_t7_i5_h6_train",
    "lstm:b1_t5_i3_h1_train+bias=none",
    "lstm:b20_t11_i17_h33_train+bias=double",
    "lstm:b70_t5_i3_h17_train+lengths",     /* more rows than one product takes */
    "lstm:b13_t9_i9_h130_train+forget=1.5", /* k in two blocks */
    "lstm:b6_t9_i4_h19_train+mask=holes+reverse",
    "lstm:b5_t10_i7_h24_train+act=relu+ract=hard_sigmoid+clip=0.5",
    "lstm:b6_t9_i4_h40_train+lengths+maskout=repeat+rdrop=0.3+zoneout_c=0.2+zoneout_h=0.1",
    "lstm:b9_t10_i7_h24+mask=holes+zoneout_c=0.2+zoneout_h=0.1",
    "lstm:b9_t10_i7_h24+lengths+reverse",
    "lstm:b129_t9_i3_h16_train", /* several pieces of W x */
    "lstm:b1_t6_i3_h9_p4_train",
    "lstm:b20_t7_i9_h37_p150_train+bias=double+rdrop=0.2", /* more outputs than units */
    "lstm:b7_t9_i5_h130_p66_train+zoneout_c=0.2+zoneout_h=0.1+clip=0.5+reverse",
    "lstm:b6_t9_i4_h40_p33_train+lengths+maskout=repeat+zoneout_h=0.1+rdrop=0.3+act=softsign",
    "lstm:b9_t8_i4_h20_p130+mask=holes+zoneout_c=0.2",
    "gru:b1_t6_i3_h37_train",
    "gru:b20_t11_i17_h33_train+bias=double+rdrop=0.2",
    "gru:b7_t11_i17_h21_train+bias=none+zoneout_h=0.3",
    "gru:b6_t9_i4_h19_train+mask=holes+reverse+act=softsign+ract=hard_sigmoid_k2",
    "gru:b2_t9_i4_h65+lengths+maskout=repeat",
    "gru:b1_t6_i3_h37_train+reset=before",
    "gru:b20_t11_i17_h33_train+reset=before+rdrop=0.2",
    "gru:b7_t9_i5_h150_train+reset=before+bias=double+zoneout_h=0.3+reverse", /* several panels, and a part of one */
    "gru:b6_t9_i4_h70_train+reset=before+lengths+act=softsign+ract=hard_sigmoid_k2",
    "gru:b2_t9_i4_h65+reset=before+mask=holes+maskout=repeat",
    "lstm:b20_t9_i7_h33_train+recompute+lengths+clip=0.5",
    "gru:b20_t9_i7_h33_train+recompute+reset=before+reverse",
    "rnn:b1_t6_i1_h1_train",
    "rnn:b20_t11_i17_h70_train+bias=double",
    "rnn:b6_t9_i4_h19_train+act=relu+lengths+zoneout_h=0.2",
    "rnn:b3_t9_i4_h100_train+mask=left+rdrop=0.3+reverse",
    "rnn:b9_t10_i7_h24",
    "rnn:b200_t7_i5_h70+lengths",
};
enum { COUNT = sizeof problems / sizeof problems[0] };

static const sli_kernel *row_of(const char *text) {
    sli_problem p;
    REQUIRE_OK(sli_problem_parse(text, &p));
    return call_row(sli_cpu_kernels, p.op, "cpu:fused");
}

static void compare_setup(const call_setup *setup) {
    call_result fast = {.count = 0}, slow = {.count = 0};
    const sli_kernel *row = row_of(setup->text);
    call_recurrent(row, setup, &fast);
    call_recurrent(call_row(sli_ref_kernels, row->op, NULL), setup, &slow);
    call_compare(&fast, &slow, 1e-5, setup->text);
    call_free(&fast);
    call_free(&slow);
}

static void compare(const char *problem, int chunk, sli_isa isa, bool blas, bool accumulate) {
    const call_setup setup = {
        .text = problem, .chunk = chunk, .threads = 2, .isa = isa, .blas = blas, .accumulate = accumulate};
    compare_setup(&setup);
}

static void compare_all(sli_isa isa, bool blas) {
    for (int i = 0; i < COUNT; i++) compare(problems[i], 4, isa, blas, i & 1);
}

TEST(cpu_fused_equals_reference) {
    compare_all(sli_cpu_isa(), true);
}
TEST(cpu_fused_equals_reference_base_isa) {
    compare_all(SLI_ISA_BASE, false);
}

/* R h0 is left out where h0 is 0, and nowhere else. */
TEST(cpu_fused_initial_states_of_zeros_equal_reference) {
    for (int i = 0; i < 2 * COUNT; i++) {
        const call_setup setup = {.text = problems[i / 2],
                                  .chunk = 4,
                                  .threads = 2,
                                  .isa = sli_cpu_isa(),
                                  .segment = i & 2 ? 4 : 0,
                                  .h0 = i & 1 ? CALL_ZERO : CALL_LAST};
        compare_setup(&setup);
    }
}

static sli_fused_panels forward_panels(const char *text) {
    sli_problem p;
    sli_cpu cpu;
    REQUIRE_OK(sli_problem_parse(text, &p));
    sli_cpu_engine(SLI_ISA_AVX512, false, &cpu);
    return sli_fused_forward_panels(&p, sli_cpu_panels(&cpu, &p), 0);
}

/* Gates of the last units lie close where that saves a vector, and whatever the batch: plans share packed weights. */
TEST(cpu_fused_last_units_share_vectors) {
#if defined(__x86_64__)
    static const struct {
        const char *text;
        int count, tail, gap;
    } layouts[] = {
        {"lstm:b20_t3_i4_h200", 12, 2, 8}, {"lstm:b1_t3_i4_h200", 12, 2, 8}, {"lstm:b2_t3_i4_h20_bf16", 1, 1, 4},
        {"lstm:b2_t3_i4_h8", 0, 2, 8},     {"gru:b2_t3_i4_h21", 1, 1, 5},    {"gru:b2_t3_i4_h11", 1, 0, 16},
        {"lstm:b2_t3_i4_h29", 2, 0, 16},   {"lstm:b2_t3_i4_h32", 2, 0, 16},  {"rnn:b2_t3_i4_h20", 0, 2, 16}};
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        const sli_fused_panels at = forward_panels(layouts[i].text);
        if (at.count != layouts[i].count || at.tail != layouts[i].tail || at.gap != layouts[i].gap)
            test_fail(__FILE__, __LINE__, "%s: %d panels, tail %d, gap %d", layouts[i].text, at.count, at.tail, at.gap);
    }
#else
    (void)forward_panels;
    test_skip("this CPU is no x86-64");
#endif
}

/* One step of an LSTM on R that is no number: finite, since R is not asked where h0 is 0. */
TEST(cpu_fused_initial_states_of_zeros_are_not_multiplied) {
    const call_setup setup = {.text = "lstm:b3_t1_i5_h21",
                              .chunk = 4,
                              .threads = 2,
                              .isa = sli_cpu_isa(),
                              .h0 = CALL_ZERO,
                              .bad_recurrent = true};
    call_result result = {.count = 0};
    call_recurrent(row_of(setup.text), &setup, &result);
    for (size_t i = 0; i < result.parts[0].count; i++) CHECK(isfinite(result.parts[0].data[i]));
    call_free(&result);
}

/* Of two directions, and of h and c, each has its gradient or has none: dh0 and dc0 of every wish are those of all wishes. */
TEST(cpu_fused_gradients_of_states_come_one_by_one) {
    enum { B = 3, T = 4, I = 2, H = 21, GATES = 4 * H, STATES = 4 };
    uint64_t seed = test_seed;
    call_engine e;
    const call_setup setup = {.text = "lstm:b3_t4_i2_h21_bi_train", .chunk = 4, .threads = 2, .isa = sli_cpu_isa()};
    call_result in = {.count = 0}, first = {.count = 0};
    call_begin(&e, row_of(setup.text), &setup);
    const sli_scalars scalars = {.seed = 5, .step = 3, .loss_scale = 1};
    sli_metrics metrics = {0};
    sli_call call = call_base(&e, &scalars, &metrics);
    for (int part = 0; part < 2; part++) {
        const int at = part * SLI_PART_PARAMS;
        call.param[at + SLI_RNN_KERNEL] = call_keep(&in, "kernel", GATES * I, &seed, 0.4);
        call.param[at + SLI_RNN_RECURRENT] = call_keep(&in, "recurrent", GATES * H, &seed, 0.3);
        call.param[at + SLI_RNN_BIAS] = call_keep(&in, "bias", GATES, &seed, 0.3);
    }
    call.in[SLI_RNN_X] = call_keep(&in, "x", T * B * I, &seed, 1);
    call.out[SLI_RNN_Y] = call_keep(&in, "y", T * B * 2 * H, NULL, 0);
    for (int k = 0; k < STATES; k++) {
        call.in[SLI_RNN_STATE_IN(k / 2, k % 2)] = call_keep(&in, "state", B * H, &seed, 0.5);
        call.out[SLI_RNN_STATE_OUT(k / 2, k % 2)] = call_keep(&in, "final", B * H, NULL, 0);
    }
    e.row->pack(&call);
    e.row->forward(&call);
    call.d_out[SLI_RNN_Y] = call_keep(&in, "dy", T * B * 2 * H, &seed, 0.5);
    for (unsigned wish = (1u << STATES) - 1; wish > 0; wish--) {
        call_result got = {.count = 0};
        for (int k = 0; k < STATES; k++) {
            float *gradient = call_keep(&got, "d state", B * H, NULL, 0);
            call.d_in[SLI_RNN_STATE_IN(k / 2, k % 2)] = wish >> k & 1 ? gradient : NULL;
        }
        e.row->backward(&call);
        if (first.count == 0) first = got;
        for (int k = 0; k < STATES; k++)
            if (wish >> k & 1)
                CHECK(memcmp(got.parts[k].data, first.parts[k].data, B * H * sizeof(float)) == 0 &&
                      got.parts[k].data[B * H - 1] != 0);
        if (got.parts[0].data != first.parts[0].data) call_free(&got);
    }
    call_free(&first);
    call_free(&in);
    call_end(&e);
}

/* So is what comes back through R in the first step. */
TEST(cpu_fused_gradients_of_states_that_nobody_wants_change_no_bit) {
    for (int i = 0; i < COUNT; i++) {
        call_setup setup = {
            .text = problems[i], .chunk = 4, .threads = 2, .isa = sli_cpu_isa(), .segment = i % 3 ? 0 : 4};
        if (!strstr(setup.text, "_train")) continue;
        call_result wanted = {.count = 0}, other = {.count = 0};
        call_recurrent(row_of(setup.text), &setup, &wanted);
        setup.no_d_states = true;
        call_recurrent(row_of(setup.text), &setup, &other);
        for (int k = 0; k < wanted.count; k++)
            if (strcmp(wanted.parts[k].name, "dh0") == 0 || strcmp(wanted.parts[k].name, "dc0") == 0)
                memcpy(other.parts[k].data, wanted.parts[k].data, wanted.parts[k].count * sizeof(float));
        call_same_bits(&other, &wanted, setup.text);
        call_free(&wanted);
        call_free(&other);
    }
}

/* The instruction sets between the best one and base: what else this machine has. */
TEST(cpu_fused_equals_reference_other_isas) {
    static const sli_isa isas[] = {SLI_ISA_AVX2, SLI_ISA_AVX512};
    int count = 0;
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        char why[SLI_ISA_WHY];
        if (isas[i] == sli_cpu_isa() || !sli_cpu_has(isas[i], why)) continue;
        compare_all(isas[i], false);
        count++;
    }
    if (count == 0) test_skip("this CPU has no instruction set between its best one and base");
}

/* ------------------------------------------------------------------------------------------------------- drawn -- */
static int draw(uint64_t *state, int count) {
    const int drawn = (int)((test_random(state) + 1) / 2 * count);
    return drawn < count ? drawn : count - 1;
}

/* +OPTION, or nothing in `rarely` of `rarely` + 1 cases. */
static void maybe(uint64_t *state, char text[200], int rarely, const char *option) {
    if (draw(state, rarely + 1) == 0) snprintf(text + strlen(text), 200 - strlen(text), "+%s", option);
}

/* A problem of sizes that are small, prime, or next to those of a vector or a panel, with options as they come. */
static void draw_problem(uint64_t *state, char text[200]) {
    static const char *const cells[] = {"lstm", "gru", "rnn"}, *const masks[] = {"lengths", "mask=holes", "mask=left"};
    static const int batches[] = {1, 2, 3, 5, 7, 13, 20, 31, 65}, steps[] = {1, 2, 3, 5, 9},
                     inputs[] = {1, 2, 3, 7, 16, 31, 33, 65},
                     units[] = {1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 67, 97};
#define ANY(OF) OF[draw(state, (int)(sizeof OF / sizeof OF[0]))]
    const int cell = draw(state, 3);
    snprintf(text, 200, "%s:b%d_t%d_i%d_h%d", cells[cell], ANY(batches), ANY(steps), ANY(inputs), ANY(units));
    const bool projects = cell == 0 && draw(state, 4) == 0, trains = draw(state, 3) > 0;
    if (projects) snprintf(text + strlen(text), 200 - strlen(text), "_p%d", ANY(units));
    if (trains) snprintf(text + strlen(text), 200 - strlen(text), "_train");
    maybe(state, text, 3, draw(state, 2) ? "bias=none" : "bias=double");
    maybe(state, text, 3, "reverse");
    maybe(state, text, 3, "rdrop=0.3");
    maybe(state, text, 3, "zoneout_h=0.2");
    maybe(state, text, 5, cell == 2 ? "act=softsign" : "act=softsign+ract=hard_sigmoid");
    if (cell == 0) maybe(state, text, 3, "zoneout_c=0.3");
    if (cell == 0) maybe(state, text, 3, "forget=1.5");
    if (cell == 0) maybe(state, text, 5, "clip=0.5");
    if (cell == 1) maybe(state, text, 2, "reset=before");
    if (trains) maybe(state, text, 4, "recompute");
    if (draw(state, 2) == 0) {
        snprintf(text + strlen(text), 200 - strlen(text), "+%s", ANY(masks));
        maybe(state, text, 2, "maskout=repeat");
    }
#undef ANY
}

TEST(cpu_fused_drawn_problems_equal_reference) {
    enum { DRAWN = 60 };
    uint64_t state = test_seed;
    int taken = 0;
    for (int i = 0; i < DRAWN; i++) {
        char text[200];
        sli_problem p;
        sli_caps caps;
        sli_why why;
        draw_problem(&state, text);
        REQUIRE_OK(sli_problem_parse(text, &p));
        REQUIRE_OK(sli_cpu_caps("cpu", 2, &caps));
        if (!row_of(text)->eligible(&p, &caps, &why)) continue;
        compare(text, 4, sli_cpu_isa(), false, i & 1);
        taken++;
    }
    CHECK(taken > DRAWN / 2);
}

/* Gates that are kept go past the caches where they are whole lines and megabytes; W x of more rows than a piece takes at once. */
TEST(cpu_fused_many_rows_equal_reference) {
    static const char *const large[] = {
        "lstm:b129_t130_i1_h16_train",
        "lstm:b129_t130_i1_h16_train+zoneout_c=0.1+zoneout_h=0.1+lengths",
        "gru:b129_t130_i1_h16_train",
        "gru:b129_t130_i1_h16_train+zoneout_h=0.1",
        "gru:b129_t180_i1_h16_train+reset=before",
        "lstm:b129_t130_i1_h16_p8_train",
        "rnn:b1100_t16_i1_h64_train+mask=left",
        "lstm:b1100_t3_i5_h3",
        "rnn:b600_t2_i3_h70+lengths",
    };
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++) compare(large[i], 8, sli_cpu_isa(), false, i & 1);
}

/* One thread, the whole sequence: the bits that every other way must give, on threads of our own and in a program's pools (k of those, -1:
 * our own), where members of a group come in any order, one after another, or not at all. */
typedef struct sharing_way {
    int threads, segment;
    sli_fused_split split;
} sharing_way;

static void compare_way(call_setup setup, const call_result *one, const sharing_way *way, int k) {
    thread_pool p = {0};
    const sl_thread_pool pool = {k < 0 ? NULL : thread_pools[k], &p};
    call_result other = {.count = 0};
    char what[300];
    setup.threads = way->threads;
    setup.segment = way->segment;
    setup.split = &way->split;
    if (k >= 0) setup.pool = &pool;
    snprintf(what, sizeof what, "%s, pool %d, %d threads, directions, rows, units by %d, %d, %d, segments of %d",
             setup.text, k, way->threads, way->split.directions, way->split.rows, way->split.units, way->segment);
    call_recurrent(row_of(setup.text), &setup, &other);
    call_same_bits(&other, one, what);
    call_free(&other);
}

TEST(cpu_fused_bits_do_not_depend_on_shares_or_segments) {
    static const sharing_way ways[] = {
        {2, 0, {.directions = 1, .rows = 2, .units = 1}}, {2, 4, {.directions = 1, .rows = 1, .units = 2}},
        {3, 0, {.directions = 1, .rows = 1, .units = 3}}, {4, 8, {.directions = 1, .rows = 2, .units = 2}},
        {5, 0, {.directions = 1, .rows = 5, .units = 1}}, {1, 4, {.directions = 1, .rows = 1, .units = 1}},
        {4, 0, {.directions = 2, .rows = 1, .units = 2}}, {3, 0, {.directions = 2, .rows = 9, .units = 70}}};
    enum { WAYS = sizeof ways / sizeof ways[0] };
    for (int i = 0; i < COUNT; i++) {
        call_setup setup = {.text = problems[i], .chunk = 4, .threads = 1, .isa = sli_cpu_isa()};
        call_result one = {.count = 0};
        call_recurrent(row_of(problems[i]), &setup, &one);
        for (int k = 0; k < WAYS; k++) compare_way(setup, &one, &ways[k], -1);
        for (int k = 0; k < WAYS; k++)
            if (ways[k].split.units > 1 && (i + k) % 3 == 0) compare_way(setup, &one, &ways[k], i % THREAD_POOLS);
        call_free(&one);
    }
}

/* The best of some calls, the making of threads in it. */
static double seconds_of(const call_setup *setup) {
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        struct timespec from, to;
        call_result result = {.count = 0};
        clock_gettime(CLOCK_MONOTONIC, &from);
        call_recurrent(row_of(setup->text), setup, &result);
        clock_gettime(CLOCK_MONOTONIC, &to);
        call_free(&result);
        const double seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
        if (seconds < best) best = seconds;
    }
    return best;
}

/* Threads without a CPU of their own hold up nobody: to wait for the system's slice of another one takes milliseconds a step (measured: 16
 * threads on two CPUs take 1.7 times as long as one). */
TEST(cpu_fused_more_threads_than_the_machine_has_are_no_cliff) {
    static const sli_fused_split units = {.directions = 1, .rows = 1, .units = 16};
    call_setup setup = {.text = "lstm:b1_t300_i16_h128", .chunk = 300, .threads = 1, .isa = sli_cpu_isa()};
    const double one = seconds_of(&setup);
    setup.threads = 16;
    setup.split = &units;
    const double many = seconds_of(&setup);
    if (!(many < 10 * one)) test_fail(__FILE__, __LINE__, "1 thread %g ms, 16 threads %g ms", 1e3 * one, 1e3 * many);
}

/* What backward is left by forward; and the least that gates of it take, in f16. */
static size_t saved_bytes(const char *text, size_t *gates) {
    sli_problem p;
    sli_caps caps;
    sli_booking booking = {0};
    REQUIRE_OK(sli_problem_parse(text, &p));
    REQUIRE_OK(sli_cpu_caps("cpu", 2, &caps));
    row_of(text)->book(&p, &caps, 4, &booking);
    *gates = (size_t)(p.steps * p.batch * sli_op_gates(p.op) * p.units) * sizeof(uint16_t);
    return booking.saved;
}

/* Gates are not kept, and the same when they are computed again. */
TEST(cpu_fused_recomputed_gates_change_no_bit) {
    static const char *const texts[] = {
        "lstm:b6_t9_i4_h40_train+lengths+maskout=repeat+rdrop=0.3+zoneout_c=0.2+zoneout_h=0.1",
        "lstm:b3_t11_i5_h37_p20_train+reverse",
        "gru:b20_t11_i17_h33_train+bias=double+rdrop=0.2",
        "gru:b7_t9_i5_h70_train+reset=before+zoneout_h=0.3",
        "rnn:b3_t9_i4_h100_train+mask=left+rdrop=0.3",
        "lstm:b6_t9_i4_h40_bf16_train+lengths",
        "gru:b7_t9_i5_h70_bf16_train+reset=before"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char again[120];
        snprintf(again, sizeof again, "%s+recompute", texts[i]);
        size_t gates;
        CHECK(saved_bytes(again, &gates) + gates <= saved_bytes(texts[i], &gates));
        call_setup setup = {.text = texts[i], .chunk = 4, .threads = 2, .isa = sli_cpu_isa()};
        call_result kept = {.count = 0}, recomputed = {.count = 0};
        call_recurrent(row_of(texts[i]), &setup, &kept);
        setup.text = again;
        call_recurrent(row_of(texts[i]), &setup, &recomputed);
        call_same_bits(&recomputed, &kept, again);
        call_free(&kept);
        call_free(&recomputed);
    }
}

TEST(cpu_fused_says_why_it_refuses) {
    static const char *const refused[][2] = {
        {"lstm:b2_t3_i4_h5_f64", "f64"},
        {"lstm:l2_b2_t3_i4_h5", "stack of 2"},
        {"lstm:b1_t1_i4_h8_p140000_i8", "p140000"},
    };
    sli_caps caps;
    REQUIRE_OK(sli_cpu_caps("cpu", 1, &caps));
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        sli_problem p;
        sli_why why = {""};
        REQUIRE_OK(sli_problem_parse(refused[i][0], &p));
        CHECK(!row_of(refused[i][0])->eligible(&p, &caps, &why));
        if (!strstr(why.text, refused[i][1])) test_fail(__FILE__, __LINE__, "%s: \"%s\"", refused[i][0], why.text);
    }
    sli_problem both;
    sli_why why = {""};
    REQUIRE_OK(sli_problem_parse("gru:b2_t3_i4_h5_bi_train", &both));
    CHECK(row_of("gru:b2_t3_i4_h5_bi_train")->eligible(&both, &caps, &why));
    caps.recomputes = true;
    CHECK(!row_of("gru:b2_t3_i4_h5_bi_train")->eligible(&both, &caps, &why));
}

TEST(cpu_fused_plans_say_how_threads_share) {
    static const char *const said[][2] = {{"lstm:b1_t4_i3_h8", "one thread"},
                                          {"lstm:b1_t20_i100_h128", "one thread"}, /* before others wake up */
                                          {"lstm:b1_t100_i256_h256", "2 threads, units by 2"},
                                          {"lstm:b32_t50_i16_h64", "2 threads, rows by 2"}};
    sli_caps caps;
    REQUIRE_OK(sli_cpu_caps("cpu:avx2", 2, &caps));
    caps.l2_bytes = 512 * 1024;
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
        sli_problem p;
        char text[256];
        REQUIRE_OK(sli_problem_parse(said[i][0], &p));
        row_of(said[i][0])->describe(&p, &caps, text, sizeof text);
        if (!strstr(text, said[i][1])) test_fail(__FILE__, __LINE__, "%s: \"%s\"", said[i][0], text);
    }
}
