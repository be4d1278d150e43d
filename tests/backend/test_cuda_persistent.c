/* cuda:cluster and cuda:grid on libsluice's side: what they take, predict and book; on devices that need not exist. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/persist_layout.h"
#include "core/run.h"
#include "cuda_caps.h"
#include "problem_text.h"
#include "test.h"

static const sli_kernel *row_of(const sli_problem *p, bool grid) {
    const sli_kernel *const rows[][2] = {{&sli_cuda_lstm_cluster, &sli_cuda_lstm_grid},
                                         {&sli_cuda_gru_cluster, &sli_cuda_gru_grid},
                                         {&sli_cuda_rnn_cluster, &sli_cuda_rnn_grid}};
    return rows[p->op == SLI_OP_LSTM ? 0 : p->op == SLI_OP_GRU ? 1 : 2][grid];
}
static const sli_kernel *step_of(const sli_problem *p) {
    return p->op == SLI_OP_LSTM ? &sli_cuda_lstm : p->op == SLI_OP_GRU ? &sli_cuda_gru : &sli_cuda_rnn;
}

TEST(cuda_persistent_rows_are_registered) {
    static const char *const texts[] = {"lstm:b1_t2_i3_h4", "gru:b1_t2_i3_h4", "rnn:b1_t2_i3_h4"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (int grid = 0; grid < 2; grid++) {
            const sli_problem p = problem(texts[i]);
            const sli_kernel *row = row_of(&p, grid);
            bool found = false;
            for (const sli_kernel *const *k = sli_cuda_kernels; *k; k++) found |= *k == row;
            CHECK(found);
            CHECK(row->op == p.op && row->device == SLI_DEVICE_CUDA && row->seconds && row->book && row->pack);
            CHECK(strcmp(row->name, grid ? "cuda:grid" : "cuda:cluster") == 0);
        }
}

/* Steps are counted in 32 bits: what is larger is refused before anything overflows. */
TEST(cuda_persistent_refuses_steps_beyond_32_bits) {
    const sli_caps caps = invented(90);
    const sli_problem most = problem("rnn:bi_b7800000_t2_i1_h128_bf16"),
                      beyond = problem("rnn:bi_b8000000_t2_i1_h128_bf16");
    sli_why why = {""};
    CHECK(row_of(&most, false)->eligible(&most, &caps, &why));
    CHECK(!row_of(&beyond, false)->eligible(&beyond, &caps, &why) && strstr(why.text, "32 bits") != NULL);
}

/* What `sluice plan` says of how a layer is cut. */
TEST(cuda_persistent_rows_describe_how_they_cut) {
    const sli_caps caps = invented(90);
    char text[512] = "";
    sli_problem p = problem("lstm:b16_t9_i8_h256_bf16");
    row_of(&p, false)->describe(&p, &caps, text, sizeof text);
    CHECK(strncmp(text, "cluster of ", 11) == 0 && strstr(text, "backward") == NULL);
    p = problem("lstm:b20_t9_i8_h1500_bf16_train");
    row_of(&p, true)->describe(&p, &caps, text, sizeof text);
    CHECK(strncmp(text, "forward: grid of ", 17) == 0 && strstr(text, "; backward: grid of ") != NULL);
    CHECK(strstr(text, " units a block, 1 slice of ") != NULL);
    text[0] = '\0';
    row_of(&p, false)->describe(&p, &caps, text, sizeof text); /* no cluster holds it */
    CHECK(text[0] == '\0');
}

/* Every option that is one product a step; what is more than one, or does not fit, is refused with the reason. */
TEST(cuda_persistent_takes_and_refuses) {
    const struct {
        const char *text, *cluster, *grid; /* refusals; NULL: taken */
    } cases[] = {
        {"lstm:b1_t1_i1_h1_f32", NULL, NULL},
        {"lstm:b3_t4_i5_h6_f32_train+clip=0.5+forget=1+peephole+rdrop=0.3+zoneout_c=0.2+zoneout_h=0.1", NULL, NULL},
        {"gru:b3_t4_i5_h300_tf32_train+bias=none+lengths", NULL, NULL},
        {"gru:b3_t4_i5_h6_f16_bi_train+merge=mul+lengths", NULL, NULL},
        {"rnn:b30_t4_i5_h6_bf16_train+act=softsign+mask=holes+reverse", NULL, NULL},
        {"lstm:b3_t4_i5_h60_f32x3_train", NULL, NULL},
        {"lstm:b20_t35_i1500_h1500_bf16_train", "more than a cluster", NULL},
        {"lstm:b300000_t4_i5_h64_bf16_train", NULL, "a batch of 300000"},
        {"lstm:b3_t4_i5_h6_f64_train", "f64", "f64"},
        {"lstm:b3_t4_i5_h6_i8", "i8", "i8"},
        {"lstm:b3_t4_i5_h6_p3_train+clip=0.5+lengths+peephole+zoneout_c=0.2", NULL, NULL},
        {"lstm:b3_t4_i5_h6_p30_bf16_bi+mask=holes+maskout=repeat+rdrop=0.3", NULL, NULL},
        {"lstm:b3_t4_i5_h6_p3_train+zoneout_h=0.1", "zoneout of h lies between", "zoneout of h lies between"},
        {"lstm:b3_t4_i5_h6_p3_train+rdrop=0.1", "recurrent dropout lies between", "recurrent dropout lies between"},
        {"lstm:b3_t4_i5_h6_p3_train+recompute", "not recomputed", "not recomputed"},
        {"gru:b3_t4_i5_h6_train+lengths+rdrop=0.3+reset=before+zoneout_h=0.1", NULL, NULL},
        {"gru:b3_t4_i5_h300_bf16_bi_train+bias=double+recompute+reset=before", NULL, NULL},
        {"gru:b20_t4_i5_h1500_bf16_train+reset=before", "more than a cluster", NULL},
        {"lstm:l2_b3_t4_i5_h6_train", "layers run one after the other", "layers run one after the other"},
    };
    const sli_caps caps = invented(90), ampere = invented(80);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int grid = 0; grid < 2; grid++) {
            const sli_problem p = problem(cases[i].text);
            const sli_kernel *row = row_of(&p, grid);
            const char *refusal = grid ? cases[i].grid : cases[i].cluster;
            sli_why why = {""};
            const bool taken = row->eligible(&p, &caps, &why);
            if (taken != !refusal || (refusal && !strstr(why.text, refusal)))
                test_fail(__FILE__, __LINE__, "%s, %s: \"%s\"", cases[i].text, row->name, why.text);
            if (!grid && !refusal) {
                CHECK(!row->eligible(&p, &ampere, &why));
                CHECK(strstr(why.text, "sm_80") != NULL);
            }
        }
}

TEST(cuda_persistent_leaves_both_directions_apart_where_time_is_cut) {
    sli_caps caps = invented(90);
    caps.recomputes = true;
    for (int grid = 0; grid < 2; grid++) {
        const sli_problem both = problem("lstm:b3_t4_i5_h6_bi_train"), one = problem("lstm:b3_t4_i5_h6_train"),
                          projected = problem("lstm:b3_t4_i5_h6_p3");
        sli_why why = {""};
        CHECK(!row_of(&one, grid)->eligible(&projected, &caps, &why));
        CHECK(strstr(why.text, "segments") != NULL);
        CHECK(row_of(&one, grid)->folds(&projected) && !row_of(&one, grid)->folds(&one));
        CHECK(!row_of(&both, grid)->eligible(&both, &caps, &why));
        CHECK(strstr(why.text, "segments") != NULL);
        CHECK(row_of(&one, grid)->eligible(&one, &caps, &why));
    }
}

/* What is refused in training alone by backward's size is taken in inference. */
TEST(cuda_persistent_training_needs_both_passes) {
    const sli_caps caps = invented(90);
    int differ = 0;
    for (int units = 600; units < 900; units += 20) {
        char text[64];
        sli_persist_geometry g;
        sli_why why = {""};
        snprintf(text, sizeof text, "lstm:b8_t4_i5_h%d_bf16", units);
        const sli_problem infer = problem(text);
        sli_problem train = infer;
        train.train = true;
        const bool forward = sli_persist_choose(&train, &caps, SLI_PERSIST_KIND_CLUSTER, false, &g, &why);
        const bool backward = sli_persist_choose(&train, &caps, SLI_PERSIST_KIND_CLUSTER, true, &g, &why);
        CHECK(sli_cuda_lstm_cluster.eligible(&infer, &caps, &why) == forward);
        CHECK(sli_cuda_lstm_cluster.eligible(&train, &caps, &why) == (forward && backward));
        differ += forward && !backward;
    }
    CHECK(differ > 0);
}

/* Steps in one launch are predicted to be faster than a launch a step; twice the steps take about twice as long; training takes
 * longer than inference, and more memory. */
TEST(cuda_persistent_seconds_and_booking) {
    static const char *const texts[] = {"lstm:b20_t70_i200_h200_bf16", "lstm:b20_t70_i650_h650_tf32",
                                        "gru:b64_t70_i512_h512_bf16_bi", "rnn:b16_t70_i256_h256_f32",
                                        "lstm:b20_t70_i1500_h1500_bf16"};
    const sli_caps caps = invented(90);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (int grid = 0; grid < 2; grid++) {
            const sli_problem p = problem(texts[i]);
            sli_problem train = p, longer = p;
            const sli_kernel *row = row_of(&p, grid);
            sli_why why = {""};
            sli_booking of_p, of_train;
            sli_cost cost;
            train.train = true;
            longer.steps = 2 * p.steps;
            if (!row->eligible(&train, &caps, &why)) continue;
            const double seconds = row->seconds(&p, &caps), twice = row->seconds(&longer, &caps);
            CHECK(seconds > 1e-6 * p.steps * 0.2 && seconds < step_of(&p)->seconds(&p, &caps));
            CHECK(twice > 1.5 * seconds && twice < 2.1 * seconds);
            CHECK(row->seconds(&train, &caps) > 1.5 * seconds);
            row->book(&p, &caps, 8, &of_p);
            row->book(&train, &caps, 8, &of_train);
            CHECK(of_p.saved == 0 && of_p.scratch_backward == 0 && of_p.scratch_forward > 0);
            CHECK(of_train.saved > 0 && of_train.scratch_backward > 0 && of_train.packed > of_p.packed);
            row->cost(&train, &caps, &cost);
            const double products = 2.0 * p.steps * p.batch * (p.bidirectional ? 2 : 1) * sli_op_gates(p.op) * p.units;
            CHECK(cost.flops > 3 * products * (p.units + p.inputs) && cost.bytes > 0);
        }
}

/* Packed memory holds R, and R^T in training, of every direction. */
TEST(cuda_persistent_books_weights_of_both_directions) {
    const sli_caps caps = invented(90);
    const sli_problem one = problem("lstm:b16_t20_i64_h256_bf16_train"),
                      both = problem("lstm:b16_t20_i64_h256_bf16_bi_train");
    for (int grid = 0; grid < 2; grid++) {
        sli_booking booking;
        const size_t matrix = (size_t)2 * 4 * 256 * 256;
        row_of(&one, grid)->book(&one, &caps, 20, &booking);
        CHECK(booking.packed >= 2 * matrix);
        row_of(&both, grid)->book(&both, &caps, 20, &booking);
        CHECK(booking.packed >= 4 * matrix);
    }
}

/* A projection is folded: the recurrence is cut as that of the layer without, says so, and is predicted to be faster than two products a
 * step, but where few projected units make those the smaller ones by far. By hand, 16 rows of 256 units projected to
 * 64 in bf16, 20 steps: m is saved beside h; R W_p in f32 and both forms of it are packed, and W_p and R as products over time read
 * them. */
TEST(cuda_persistent_folds_a_projection) {
    static const char *const faster[] = {"lstm:b32_t100_i256_h256_p128_bf16_train", "lstm:b20_t35_i650_h650_p325_tf32",
                                         "lstm:b64_t50_i1024_h1024_p512_bf16_train", "lstm:b64_t20_i512_h512_p32_bf16"};
    const sli_caps caps = invented(90);
    const sli_problem plain = problem("lstm:b16_t20_i64_h256_bf16_train"),
                      p = problem("lstm:b16_t20_i64_h256_p64_bf16_train"),
                      wide = problem("lstm:b32_t20_i512_h4096_p256_bf16");
    const size_t rows = 16 * 21, matrix = (size_t)4 * 256 * 256;
    for (int grid = 0; grid < 2; grid++) {
        const sli_persist_kind kind = grid ? SLI_PERSIST_KIND_GRID : SLI_PERSIST_KIND_CLUSTER;
        sli_persist_pair of_plain, of_p;
        sli_booking without, with;
        char text[640] = "";
        REQUIRE(sli_persist_pair_of(&plain, (sli_planned){0}, &caps, kind, &of_plain, NULL));
        REQUIRE(sli_persist_pair_of(&p, (sli_planned){0}, &caps, kind, &of_p, NULL));
        CHECK(memcmp(&of_plain, &of_p, sizeof of_p) == 0);
        row_of(&p, grid)->book(&plain, &caps, 20, &without);
        row_of(&p, grid)->book(&p, &caps, 20, &with);
        CHECK(with.saved == without.saved + rows * 64 * 2);
        CHECK(with.packed == without.packed - matrix * 2 + matrix * 4 + matrix / 256 * 64 * 2 + 64 * 256 * 2);
        row_of(&p, grid)->describe(&p, &caps, text, sizeof text);
        CHECK(strstr(text, "; the projection is folded into the recurrent weights") != NULL);
        CHECK(row_of(&p, grid)->idle(&p, &caps) <= 0);
    }
    for (size_t i = 0; i < sizeof faster / sizeof *faster; i++) {
        const sli_problem q = problem(faster[i]);
        CHECK(sli_cuda_lstm_grid.seconds(&q, &caps) < 0.5 * sli_cuda_lstm.seconds(&q, &caps));
    }
    CHECK(sli_cuda_lstm_grid.seconds(&wide, &caps) > 1.5 * sli_cuda_lstm.seconds(&wide, &caps));
}

/* Whose backward leaves multiprocessors to the sums of a layer above, and whose own pieces fill them: as timed with and without late sums
 * (rest_h200_2026-11-24.txt). */
TEST(cuda_persistent_idle_for_late_sums) {
    const struct {
        const char *text;
        bool idle;
    } cases[] = {{"lstm:b64_t300_i512_h256_bf16_train", false}, {"lstm:b64_t300_i512_h256_f16_train", false},
                 {"lstm:b64_t150_i256_h256_bf16_train", true},  {"lstm:b16_t300_i256_h256_bf16_train", true},
                 {"lstm:b64_t150_i256_h256_tf32_train", true},  {"lstm:b64_t150_i256_h256_f32_train", true},
                 {"lstm:b64_t300_i512_h256_tf32_train", true},  {"lstm:b64_t300_i512_h256_f32_train", true}};
    const sli_caps caps = invented(90);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const sli_problem p = problem(cases[i].text);
        const double idle = sli_cuda_lstm_cluster.idle(&p, &caps);
        if ((idle >= 0.1) != cases[i].idle) test_fail(__FILE__, __LINE__, "%s: %g", cases[i].text, idle);
    }
}

/* A memory limit that asks for segments takes another row, whose segments change no bit. */
TEST(cuda_persistent_folds_over_the_whole_sequence) {
    sl_plan_options options = {0};
    size_t bytes = 0;
    for (int limited = 0; limited < 2; limited++) {
        sl_model *model;
        sl_plan *plan;
        sl_memory memory;
        REQUIRE_OK(sl_model_from_problem(NULL, "lstm:b64_t500_i64_h256_p100_bf16_train", &model, &options));
        options.device = "cuda:sm_90";
        options.memory_limit = limited ? bytes / 2 : 0;
        REQUIRE_OK(sl_plan_new(model, &options, &plan));
        sl_plan_memory(plan, &memory);
        bytes = memory.params_block + memory.run_block;
        CHECK((memory.segments > 1) == (limited == 1));
        CHECK((strstr(sl_plan_explain(plan), "folded into the recurrent weights") != NULL) == (limited == 0));
        sl_plan_free(plan);
        sl_model_free(model);
    }
}

/* Metrics are zeroed in each call of a plan that has a loss, else losses of calls would add up; without one where that is faster. */
TEST(cuda_persistent_metrics_are_zeroed_where_there_is_a_loss) {
    static const struct {
        const char *problem, *kernel;
        bool zeroed; /* without a loss */
    } cases[] = {{"lstm:b16_t25_i128_h128_bf16_train", "cuda:cluster", false},
                 {"lstm:b16_t25_i128_h130_bf16_train", "cuda:cluster", false},
                 {"lstm:b16_t25_i128_h128_tf32_train", "cuda:cluster", false},
                 {"lstm:b16_t25_i128_h130_tf32_train", "cuda:cluster", true},
                 {"lstm:b16_t25_i128_h128_bi_bf16_train", "cuda:cluster", true},
                 {"lstm:b16_t25_i128_h128_bf16_train", "cuda:step", true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int loss = 0; loss < 2; loss++) {
            sl_model *model;
            sl_plan *plan;
            sl_plan_options options = {0};
            REQUIRE_OK(sl_model_from_problem(NULL, cases[i].problem, &model, &options));
            options.device = "cuda:sm_90";
            options.require = cases[i].kernel;
            if (loss) options.loss = SL_LOSS_MSE;
            REQUIRE_OK(sl_plan_new(model, &options, &plan));
            CHECK(sli_run_zeroes_metrics(plan) == (loss || cases[i].zeroed));
            sl_plan_free(plan);
            sl_model_free(model);
        }
}

/* With recomputed gates the states alone are saved, and a span is short: by hand, 64 rows of 256 units in bf16, chunks of 16 steps,
 * of which a span has 32 MiB / (16 * 64 rows * 1024 floats) = 8; packed memory also holds what R multiplies over a chunk. */
TEST(cuda_persistent_recompute_books_states_and_one_span) {
    enum { CHUNK = 16, SPAN = 8 * CHUNK, ROWS = 64, UNITS = 256 };
    const sli_caps caps = invented(90);
    const sli_problem p = problem("lstm:b64_t1000_i30_h256_bf16_train"),
                      again = problem("lstm:b64_t1000_i30_h256_bf16_train+recompute");
    const size_t row = (size_t)ROWS * UNITS, states = 1001 * row * (2 + 4);
    for (int grid = 0; grid < 2; grid++) {
        sli_persist_pair pair;
        sli_booking kept, few;
        REQUIRE(sli_persist_pair_of(&again, (sli_planned){0}, &caps,
                                    grid ? SLI_PERSIST_KIND_GRID : SLI_PERSIST_KIND_CLUSTER, &pair, NULL));
        CHECK(sli_persist_span(&again, &pair, CHUNK) == SPAN && sli_persist_span(&p, &pair, CHUNK) > 3 * SPAN);
        row_of(&p, grid)->book(&p, &caps, CHUNK, &kept);
        row_of(&again, grid)->book(&again, &caps, CHUNK, &few);
        CHECK(few.saved == states &&
              kept.saved == states + 1000 * row * 4 * 4 + 1000 * (size_t)ROWS * 32 * 2); /* gates, x */
        CHECK(few.packed == kept.packed);
        /* Gates of a span in scratch, forward in place of nothing, backward beside dz of a span. */
        const size_t gates = SPAN * row * 4 * 4, dz = SPAN * row * 4 * 2;
        CHECK(few.scratch_forward > gates && few.scratch_forward < gates + gates / 2 + (64u << 20));
        CHECK(few.scratch_backward > gates + dz && few.scratch_backward < gates + dz + (64u << 20));
        CHECK(few.saved + few.scratch_backward < (kept.saved + kept.scratch_backward) / 2);
        CHECK(row_of(&p, grid)->seconds(&p, &caps) < row_of(&again, grid)->seconds(&again, &caps));
    }
}

/* Where steps are faster backward, cuda:grid computes those, in memory laid out as cuda:step has it; not of both directions, nor with
 * gates to be recomputed, whose memory lies otherwise; nor a cluster. */
TEST(cuda_persistent_backward_step_by_step) {
    enum { CHUNK = 16 };
    const sli_caps caps = invented(90);
    const sli_problem p = problem("lstm:b224_t64_i2048_h2048_bf16_train");
    const sli_problem few = problem("lstm:b16_t64_i2048_h2048_bf16_train"),
                      both = problem("lstm:b224_t64_i2048_h2048_bf16_bi_train"),
                      again = problem("lstm:b224_t64_i2048_h2048_bf16_train+recompute");
    const sli_kernel *grid = row_of(&p, true), *step = step_of(&p);
    const size_t matrix = (size_t)4 * 2048 * 2048 * 2;
    sli_persist_pair pair;
    sli_booking of_grid, of_step;
    char text[512] = "";
    REQUIRE(sli_persist_pair_of(&p, (sli_planned){0}, &caps, SLI_PERSIST_KIND_GRID, &pair, NULL));
    REQUIRE(pair.backward_in_steps);
    grid->book(&p, &caps, CHUNK, &of_grid);
    step->book(&p, &caps, CHUNK, &of_step);
    CHECK(of_grid.saved == of_step.saved && of_grid.scratch_backward == of_step.scratch_backward);
    CHECK(of_grid.packed >= of_step.packed + matrix && of_grid.packed < of_step.packed + 2 * matrix);
    grid->describe(&p, &caps, text, sizeof text);
    CHECK(strstr(text, "; backward: step by step, as cuda:step") != NULL);
    CHECK(grid->seconds(&p, &caps) < step->seconds(&p, &caps));
    const sli_problem *const others[] = {&few, &both, &again};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (sli_persist_pair_of(others[i], (sli_planned){0}, &caps, SLI_PERSIST_KIND_GRID, &pair, NULL))
            CHECK(!pair.backward_in_steps && pair.backward.units > 0);
    CHECK(!sli_persist_pair_of(&p, (sli_planned){0}, &caps, SLI_PERSIST_KIND_CLUSTER, &pair, NULL) ||
          !pair.backward_in_steps);
}

/* Where products beside clusters win more than sums over the grid: of sequences of several chunks, by the plan's steps, which calls of fewer steps and rows
 * follow. A cut in the second place is the best one over the grid. */
TEST(cuda_persistent_backward_through_clusters) {
    const sli_caps caps = invented(90), old = invented(80);
    const sli_problem p = problem("lstm:b64_t1000_i512_h512_tf32_train"),
                      brief = problem("lstm:b64_t25_i512_h512_tf32_train");
    sli_problem call = p, second = p;
    sli_persist_pair pair, other;
    sli_persist_geometry best;
    char text[512] = "";
    REQUIRE(sli_persist_pair_of(&p, (sli_planned){0}, &caps, SLI_PERSIST_KIND_GRID, &pair, NULL));
    CHECK(pair.forward.gather == SLI_PERSIST_GRID && pair.backward.gather == SLI_PERSIST_LOCAL &&
          pair.backward.reduce > 1);
    row_of(&p, true)->describe(&p, &caps, text, sizeof text);
    CHECK(strstr(text, "forward: grid of ") != NULL && strstr(text, "; backward: cluster of ") != NULL);
    call.batch = 3;
    call.steps = 7;
    REQUIRE(sli_persist_pair_of(&call, (sli_planned){p.batch, p.steps}, &caps, SLI_PERSIST_KIND_GRID, &other, NULL));
    CHECK(other.backward.groups == 1);
    other.forward.groups = pair.forward.groups;
    other.backward.groups = pair.backward.groups;
    CHECK(memcmp(&other, &pair, sizeof pair) == 0);
    second.cut = SLI_CUTS;
    REQUIRE(sli_persist_choose(&p, &caps, SLI_PERSIST_KIND_GRID, true, &best, NULL));
    REQUIRE(sli_persist_pair_of(&second, (sli_planned){0}, &caps, SLI_PERSIST_KIND_GRID, &other, NULL));
    CHECK(memcmp(&other.backward, &best, sizeof best) == 0 && best.gather == SLI_PERSIST_GRID);
    REQUIRE(sli_persist_pair_of(&brief, (sli_planned){0}, &caps, SLI_PERSIST_KIND_GRID, &other, NULL));
    CHECK(other.backward.gather == SLI_PERSIST_GRID);
    REQUIRE(sli_persist_pair_of(&p, (sli_planned){0}, &old, SLI_PERSIST_KIND_GRID, &other, NULL));
    CHECK(other.backward.gather == SLI_PERSIST_GRID);
}

/* A segment of whole chunks, which is planned for as if it were the sequence, has the whole's geometries: calls lay their memory out by those. */
TEST(cuda_persistent_segments_are_cut_as_the_whole) {
    static const char *const problems[] = {"gru:b128_t100_i320_h320_bf16_train", "gru:b128_t100_i320_h320_f16_train",
                                           "gru:b32_t150_i320_h320_f32_train",   "lstm:b64_t1000_i512_h512_tf32_train",
                                           "gru:b64_t1000_i512_h512_bf16_train", "lstm:b17_t500_i64_h257_f32x3_train"};
    const sli_caps caps = invented(90);
    int through = 0;
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        const sli_problem p = problem(problems[i]);
        const int chunk = sli_caps_chunk(&caps, p.batch, p.steps);
        sli_persist_pair whole, part, call;
        REQUIRE(sli_persist_pair_of(&p, (sli_planned){0}, &caps, SLI_PERSIST_KIND_GRID, &whole, NULL));
        through += whole.backward.gather == SLI_PERSIST_LOCAL;
        for (sli_problem segment = p; segment.steps > chunk;) {
            segment.steps = (segment.steps - 1) / chunk * chunk;
            REQUIRE(sli_persist_pair_of(&segment, (sli_planned){0}, &caps, SLI_PERSIST_KIND_GRID, &part, NULL));
            REQUIRE(sli_persist_pair_of(&segment, (sli_planned){p.batch, p.steps}, &caps, SLI_PERSIST_KIND_GRID, &call,
                                        NULL));
            CHECK(memcmp(&part, &whole, sizeof part) == 0 && memcmp(&call, &whole, sizeof call) == 0);
        }
    }
    CHECK(through >= 3);
}

/* Sixteen clusters of eight blocks are not resident on an H200: sums of eight meet in memory, and two buffers of them are booked. */
TEST(cuda_persistent_sums_meet_in_memory) {
    enum { CHUNK = 16 };
    const sli_caps caps = invented(90);
    const sli_problem p = problem("lstm:b128_t64_i2048_h2048_bf16_train");
    sli_persist_pair pair;
    char text[512] = "";
    REQUIRE(sli_persist_pair_of(&p, (sli_planned){0}, &caps, SLI_PERSIST_KIND_GRID, &pair, NULL));
    const sli_persist_geometry *g = &pair.backward;
    REQUIRE(!pair.backward_in_steps && g->meets);
    CHECK(g->reduce == 8 && sli_persist_ctas(g) == 128 && sli_persist_cluster(g) == g->share);
    const sli_persist_scratch at = sli_persist_layout_backward(&p, &caps, &pair, CHUNK);
    const size_t sums = (size_t)2048 * 128 * sizeof(float) * (size_t)g->reduce;
    CHECK(at.meeting > at.exchange && at.beside >= at.meeting + 2 * sums);
    CHECK(at.zeros_bytes == sizeof(uint32_t) * (size_t)(g->groups * g->halves * (g->reduce + g->spread)));
    row_of(&p, true)->describe(&p, &caps, text, sizeof text);
    CHECK(strstr(text, "; backward: grid of 128 blocks, 8 to a sum, 16 units a block") != NULL);
}
