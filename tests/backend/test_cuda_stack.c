/* cuda:stack on libsluice's side: what it takes, how time is cut, what it books, when the planner takes it; on devices that need
 * not exist. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/stack_layout.h"
#include "core/plan.h"
#include "cuda_caps.h"
#include "cuda_plans.h"
#include "test.h"

static const sli_kernel *row_of(const sli_problem *p) {
    return p->op == SLI_OP_LSTM  ? &sli_cuda_lstm_stack
           : p->op == SLI_OP_GRU ? &sli_cuda_gru_stack
                                 : &sli_cuda_rnn_stack;
}

static const char *const stacks[] = {
    "lstm:l4_b64_t300_i512_h256_bf16_train",
    "lstm:l2_b3_t6000_i5_h33_f32_train+lengths",
    "gru:l3_b20_t500_i100_h200_tf32_train",
    "gru:l2_b130_t90_i7_h64_f16",
    "rnn:l12_b40_t400_i30_h128_bf16_train+mask=holes",
    "lstm:l2_b500_t40_i64_h96_f32x3_train+peephole+clip=1",
    "gru:l3_b64_t300_i5_h64_bf16_train+recompute",
};
enum { STACKS = (int)(sizeof stacks / sizeof *stacks) };

TEST(cuda_stack_rows_are_registered) {
    cuda_check_registered("cuda:stack", row_of);
}

TEST(cuda_stack_takes_what_runs_side_by_side) {
    static const cuda_case cases[] = {
        {"lstm:l2_b64_t300_i5_h64_f32", NULL},
        {"lstm:l12_b64_t300_i5_h64_bf16_train+peephole+forget=1+clip=2+lengths+maskout=repeat", NULL},
        {"lstm:l2_b64_t300_i5_h64_f32+drop=0.5", NULL}, /* inference drops nothing */
        {"lstm:b64_t300_i5_h64_f32", "there is one"},
        {"lstm:l13_b64_t300_i5_h64_f32", "at most 12"},
        {"lstm:l2_b64_t300_i5_h64_f32_bi", "all of the one before"},
        {"lstm:l2_b64_t300_i5_h64_f32_train+drop=0.5", "dropout 0.5"},
        {"lstm:l2_b64_t300_i5_h64_f32_train+rdrop=0.5", "layer by layer"},
        {"rnn:l2_b64_t300_i5_h64_f32+zoneout_h=0.1", "layer by layer"},
        {"lstm:l2_b64_t300_i5_h64_f32+zoneout_c=0.1", "layer by layer"},
        {"lstm:l2_b64_t300_i5_h64_p8_f32", "projection"},
        {"gru:l2_b64_t300_i5_h64_f32+reset=before", NULL},
        {"lstm:l2_b64_t300_i5_h64_f64", "f64"},
        {"lstm:l2_b20_t300_i5_h1500_bf16_train", "more than a cluster"},
        {"lstm:l2_b20_t35_i200_h200_bf16_train", "35 steps are one piece"},
        {"lstm:l2_b64_t64_i200_h200_bf16_train", "64 steps are one piece"},
    };
    cuda_check_cases(cases, sizeof cases / sizeof *cases, row_of);
}

static bool same_geometry(const sli_persist_geometry *a, const sli_persist_geometry *b) {
    sli_persist_geometry with = *b;
    with.groups = a->groups;
    char one[256], other[256];
    sli_persist_describe(a, one, sizeof one);
    sli_persist_describe(&with, other, sizeof other);
    return strcmp(one, other) == 0 && a->warps_m == b->warps_m && a->warps_k == b->warps_k &&
           a->tiles_m == b->tiles_m && a->tiles_k == b->tiles_k && a->in_registers == b->in_registers;
}

/* Pieces are whole chunks of about 64 steps; a smaller or shorter call is cut like the plan, whose packed weights it reads. */
TEST(cuda_stack_cuts_calls_as_the_plan) {
    const sli_caps caps = invented(90);
    for (int i = 0; i < STACKS; i++) {
        const sli_problem p = problem(stacks[i]);
        const int chunk = sli_caps_chunk(&caps, p.batch, p.steps);
        sli_why why = {""};
        sli_stack_cut cut, of_call;
        REQUIRE(sli_stack_cut_of(&p, (sli_planned){0}, &caps, chunk, &cut, &why));
        CHECK(cut.piece % chunk == 0 && cut.piece > 32 && (cut.piece < 97 || cut.piece == chunk));
        CHECK(cut.at_once >= 1 && cut.at_once <= p.layers && cut.planned.batch == cut.at_once * p.batch);
        CHECK(sli_stack_pieces(&p, &cut) == (p.steps + cut.piece - 1) / cut.piece);
        sli_problem call = p;
        for (call.batch = 1; call.batch <= p.batch; call.batch += 1 + p.batch / 7)
            for (call.steps = 0; call.steps <= p.steps; call.steps += 1 + p.steps / 5) {
                REQUIRE(sli_stack_cut_of(&call, (sli_planned){p.batch, p.steps}, &caps, chunk, &of_call, &why));
                CHECK(of_call.at_once == cut.at_once && of_call.piece == cut.piece &&
                      of_call.planned.batch == cut.planned.batch);
                CHECK(same_geometry(&of_call.pair.forward, &cut.pair.forward));
                CHECK(of_call.pair.forward.groups <= cut.pair.forward.groups);
                if (p.train) CHECK(same_geometry(&of_call.pair.backward, &cut.pair.backward));
                CHECK(sli_stack_pieces(&call, &of_call) >= 1);
            }
    }
}

TEST(cuda_stack_parts_are_those_of_the_problem) {
    for (int i = 0; i < STACKS; i++) {
        const sli_problem p = problem(stacks[i]);
        for (int l = 0; l < p.layers; l++) {
            char one[SLI_PROBLEM_TEXT], other[SLI_PROBLEM_TEXT];
            const sli_problem a = sli_stack_part(&p, l, p.steps), b = sli_problem_part(&p, l, -1);
            sli_problem_print(&a, one, sizeof one);
            sli_problem_print(&b, other, sizeof other);
            CHECK(strcmp(one, other) == 0 && a.dropout == b.dropout && a.layers == 1);
        }
    }
}

/* ------------------------------------------------------------------------------------------------------- memory -- */
typedef struct region {
    size_t from, bytes;
} region;

static void check_apart(const region *regions, int count, size_t total, const char *what) {
    for (int a = 0; a < count; a++) {
        if (regions[a].from % 256 != 0 || regions[a].from + regions[a].bytes > total)
            test_fail(__FILE__, __LINE__, "%s: region %d lies outside", what, a);
        for (int b = 0; b < a; b++)
            if (regions[a].bytes > 0 && regions[b].bytes > 0 && regions[a].from < regions[b].from + regions[b].bytes &&
                regions[b].from < regions[a].from + regions[a].bytes)
                test_fail(__FILE__, __LINE__, "%s: regions %d and %d meet", what, b, a);
    }
}

/* What cuda:cluster will use of a layer's memory for any of its pieces, and all that lies between layers and pieces. */
static void check_regions(const sli_problem *p, const sli_caps *caps, const sli_stack_cut *cut, int chunk,
                          const char *what) {
    enum { MOST = 2048 };
    static region of[MOST];
    const sli_stack_places saved = sli_stack_layout_saved(p, cut, chunk), packed = sli_stack_layout_packed(p, cut);
    const size_t whole = sizeof(float) * (size_t)p->steps * (size_t)p->batch * (size_t)p->units;
    const size_t state = sizeof(float) * (size_t)p->batch * (size_t)p->units;
    const int pieces = sli_stack_pieces(p, cut), inner = p->layers - 1;
    int count = 0;
    for (int l = 0; l < p->layers && p->train; l++) {
        for (int c = 0; c < pieces && count + 2 < MOST; c++) {
            const int left = p->steps - c * cut->piece;
            const sli_problem part = sli_stack_part(p, l, left < cut->piece ? left : cut->piece);
            of[count++] =
                (region){saved.own[l] + (size_t)c * saved.stride[l], sli_step_layout_history(&part, chunk).total};
        }
        if (l < inner) of[count++] = (region){saved.between[l], whole};
    }
    check_apart(of, count, saved.total, what);
    for (int backward = 0; backward <= (p->train ? 1 : 0); backward++) {
        const sli_stack_places at = sli_stack_layout_scratch(p, caps, cut, chunk, backward);
        count = 0;
        for (int l = 0; l < p->layers; l++) {
            size_t most = 0;
            for (int c = pieces > 1 ? pieces - 2 : 0; c < pieces; c++) { /* a whole piece and the last */
                const int left = p->steps - c * cut->piece;
                const sli_problem part = sli_stack_part(p, l, left < cut->piece ? left : cut->piece);
                const sli_persist_scratch own = backward ? sli_persist_layout_backward(&part, caps, &cut->pair, chunk)
                                                         : sli_persist_layout_forward(&part, caps, &cut->pair, chunk);
                if (own.total - 2 * own.beside_bytes > most) most = own.total - 2 * own.beside_bytes;
            }
            of[count++] = (region){at.own[l], most};
            for (int k = 0; k < sli_problem_states(p); k++)
                for (int slot = 0; slot < 2; slot++)
                    of[count++] = (region){at.states[l] + sli_stack_state(p, k, slot), state};
            if (l < inner && (backward || !p->train)) of[count++] = (region){at.between[l], whole};
        }
        check_apart(of, count, at.total, what);
    }
    count = 0;
    for (int l = 0; l < p->layers; l++) {
        const sli_problem part = sli_stack_part(p, l, p->steps);
        of[count++] = (region){packed.own[l], sli_persist_layout_packed(&part, &cut->pair).total};
    }
    check_apart(of, count, packed.total, what);
}

/* Nothing overlaps, in the plan's size and in smaller calls, which fit what the plan books; packed weights stay where they are. */
TEST(cuda_stack_memory) {
    const sli_caps caps = invented(90);
    for (int i = 0; i < STACKS; i++) {
        const sli_problem p = problem(stacks[i]);
        const int chunk = sli_caps_chunk(&caps, p.batch, p.steps);
        sli_booking booked;
        sli_why why = {""};
        sli_stack_cut cut;
        sli_problem call = p;
        row_of(&p)->book(&p, &caps, chunk, &booked);
        CHECK(booked.scratch_forward > 0 && booked.packed > 0);
        CHECK((booked.saved > 0) == p.train && (booked.scratch_backward > 0) == p.train);
        for (call.batch = p.batch; call.batch >= 1; call.batch -= 1 + p.batch / 4)
            for (call.steps = p.steps; call.steps >= 0; call.steps -= 1 + p.steps / 6) {
                REQUIRE(sli_stack_cut_of(&call, (sli_planned){p.batch, p.steps}, &caps, chunk, &cut, &why));
                check_regions(&call, &caps, &cut, chunk, stacks[i]);
                CHECK(sli_stack_layout_saved(&call, &cut, chunk).total <= booked.saved);
                CHECK(sli_stack_layout_scratch(&call, &caps, &cut, chunk, false).total <= booked.scratch_forward);
                if (p.train)
                    CHECK(sli_stack_layout_scratch(&call, &caps, &cut, chunk, true).total <= booked.scratch_backward);
                CHECK(sli_stack_layout_packed(&call, &cut).total == booked.packed);
            }
    }
}

/* ------------------------------------------------------------------------------------------------------ planner -- */
static double apart(const sli_problem *p, const sli_caps *caps) {
    double sum = 0;
    for (int l = 0; l < p->layers; l++) {
        const sli_problem part = sli_problem_part(p, l, -1);
        sum += sli_cuda_lstm_cluster.seconds(&part, caps);
    }
    return sum;
}

/* A wavefront is no faster than its longest chain, and more layers gain more. */
TEST(cuda_stack_seconds) {
    const sli_caps caps = invented(90);
    const sli_problem four = problem("lstm:l4_b32_t2000_i128_h128_bf16_train");
    double before = 1;
    for (int layers = 2; layers <= 4; layers++) {
        sli_problem p = four;
        p.layers = layers;
        const double part = sli_cuda_lstm_stack.seconds(&p, &caps) / apart(&p, &caps);
        CHECK(part < 0.9 && part > 1.0 / layers && part < before);
        before = part;
    }
    /* One layer already fills the GPU: nothing is gained by more. */
    const sli_problem full = problem("lstm:l2_b1000_t100_i128_h256_f32_train");
    CHECK(sli_cuda_lstm_stack.seconds(&full, &caps) > 0.9 * apart(&full, &caps));
    sli_cost stack, part;
    const sli_problem alone = sli_problem_part(&four, 1, -1);
    sli_cuda_lstm_stack.cost(&four, &caps, &stack);
    sli_cuda_lstm_cluster.cost(&alone, &caps, &part);
    CHECK(stack.flops == 4 * part.flops && stack.bytes == 4 * part.bytes);
}

/* Four layers of 256 units, ms as measured on an H200 (layers_again, layers_paths, layers_overlap_h200_2026-11-24; in tf32 halves_h200_2026-11-28). A layer of eight clusters of eight does
 * not fill the GPU, two do, and the first and last diagonals have one. */
TEST(cuda_stack_seconds_as_measured) {
    static const cuda_time cases[] = {
        {"lstm:l4_b64_t300_i512_h256_f32", 2.8656},        {"lstm:l4_b64_t300_i512_h256_tf32", 0.8886},
        {"lstm:l4_b64_t300_i512_h256_bf16", 0.7998},       {"lstm:l4_b64_t300_i512_h256_f16", 0.8541},
        {"lstm:l4_b64_t300_i512_h256_f32_train", 8.9879},  {"lstm:l4_b64_t300_i512_h256_tf32_train", 3.6296},
        {"lstm:l4_b64_t300_i512_h256_bf16_train", 2.6485}, {"lstm:l4_b64_t300_i512_h256_f16_train", 2.7572}};
    cuda_check_seconds(cases, sizeof cases / sizeof *cases, row_of, 0.93, 1.09);
}

TEST(cuda_stack_is_taken_where_layers_fit_side_by_side) {
    cuda_check_plan("lstm:l4_b64_t300_i512_h256_f32", "cuda:sm_90", "cuda:stack",
                    true); /* 2.9 ms, through clusters and the grid 3.4 */
    cuda_check_plan("lstm:l4_b64_t300_i512_h256_bf16", "cuda:sm_90", "cuda:stack", true);
    cuda_check_plan("lstm:l4_b64_t300_i512_h256_tf32_train", "cuda:sm_90", "cuda:cluster", false); /* 3.6 ms, not 4.3 */
    cuda_check_plan("rnn:l2_b32_t600_i64_h256_f32", "cuda:sm_90", "cuda:stack", true);
    cuda_check_plan("lstm:l2_b20_t350_i650_h1500_bf16_train", "cuda:sm_90", "cuda:grid",
                    false); /* no cluster holds it */
    cuda_check_plan("lstm:l4_b64_t300_i512_h256_bf16_train+drop=0.5", "cuda:sm_90", "cuda:cluster", false);
}
