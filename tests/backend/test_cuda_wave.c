/* cuda:wave on libsluice's side: what it takes, the whole of a stack, what it books and predicts, when the planner takes it; on devices that need
 * not exist. What it computes: tests/cuda/emulate/test_wave.cpp. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/wave_layout.h"
#include "core/plan.h"
#include "cuda_caps.h"
#include "cuda_plans.h"
#include "test.h"

static const sli_kernel *row_of(const sli_problem *p) {
    return p->op == SLI_OP_LSTM ? &sli_cuda_lstm_wave : p->op == SLI_OP_GRU ? &sli_cuda_gru_wave : &sli_cuda_rnn_wave;
}

TEST(cuda_wave_rows_are_registered) {
    cuda_check_registered("cuda:wave", row_of);
    static const sli_kernel *const rows[] = {&sli_cuda_lstm_wave, &sli_cuda_gru_wave, &sli_cuda_rnn_wave};
    for (int i = 0; i < 3; i++)
        CHECK(rows[i]->describe && rows[i]->whole && rows[i]->writes_fresh && rows[i]->null_states &&
              !rows[i]->takes_recompute);
    const sli_problem narrow = problem("lstm:l2_b20_t20_i200_h200_bf16"),
                      wide = problem("lstm:l2_b20_t20_i200_h200_tf32");
    CHECK(sli_cuda_lstm_wave.begins_alone(&narrow) && !sli_cuda_lstm_wave.begins_alone(&wide));
}

TEST(cuda_wave_takes_stacks_of_one_direction) {
    static const cuda_case cases[] = {
        {"lstm:l2_b64_t50_i5_h64_f32", NULL},
        {"lstm:l12_b8_t1_i5_h20_bf16_train+peephole+forget=1+clip=2+lengths+maskout=repeat", NULL},
        {"gru:l3_b64_t3_i5_h64_tf32_train+mask=holes", NULL},
        {"lstm:l2_b64_t50_i5_h64_f32+drop=0.5", NULL}, /* inference drops nothing */
        {"lstm:b64_t50_i5_h64_f32", "there is one"},
        {"lstm:l13_b64_t50_i5_h8_f32", "at most 12"},
        {"lstm:l2_b64_t50_i5_h64_f32_bi", "all of the one before"},
        {"lstm:l2_b64_t50_i5_h64_f32_train+drop=0.5", "dropout 0.5"},
        {"lstm:l2_b64_t50_i5_h64_f32_train+rdrop=0.5", "layer by layer"},
        {"rnn:l2_b64_t50_i5_h64_f32+zoneout_h=0.1", "layer by layer"},
        {"lstm:l2_b64_t50_i5_h64_p8_f32", "projection"},
        {"gru:l2_b64_t50_i5_h64_f32+reset=before", "reset before"},
        {"lstm:l2_b64_t50_i5_h64_f64", "f64"},
        {"lstm:l4_b64_t50_i5_h256_bf16_train", "1024 units have"},
    };
    cuda_check_cases(cases, sizeof cases / sizeof *cases, row_of);
    const sli_problem p = problem(cases[0].text);
    sli_caps caps = invented(90);
    sli_why why = {""};
    caps.no_compiler = true;
    CHECK(!row_of(&p)->eligible(&p, &caps, &why) && strstr(why.text, "NVRTC"));
    caps = invented(90);
    caps.recomputes = true;
    CHECK(!row_of(&p)->eligible(&p, &caps, &why) && strstr(why.text, "segments"));
}

TEST(cuda_wave_whole) {
    const sli_problem p = problem("gru:l3_b9_t20_i7_h5_train+bias=double"), whole = sli_wave_whole(&p);
    CHECK(whole.layers == 1 && whole.wave == 3 && whole.units == 15 && whole.steps == 22 && whole.inputs == 7);
    CHECK(sli_wave_chunk(&p, 4) == 6 && sli_wave_planned(&p, (sli_planned){9, 20}).steps == 22);
    sli_problem none = p;
    none.steps = 0;
    CHECK(sli_wave_whole(&none).steps == 0 && sli_wave_planned(&p, (sli_planned){0}).steps == 0);
    CHECK(sli_wave_floats(&whole, SLI_RNN_KERNEL, false) == 45 * 7);
    CHECK(sli_wave_floats(&whole, SLI_RNN_RECURRENT, false) == 60 * 15); /* n twice */
    CHECK(sli_wave_floats(&whole, SLI_RNN_RECURRENT, true) == 45 * 15);
    CHECK(sli_wave_floats(&whole, SLI_WAVE_BETWEEN, true) == 45 * 15);
    CHECK(sli_wave_floats(&whole, SLI_WAVE_BETWEEN, false) == 0);
    CHECK(sli_wave_floats(&whole, SLI_RNN_BIAS, true) == 45 &&
          sli_wave_floats(&whole, SLI_RNN_RECURRENT_BIAS, true) == 45);
    const sli_problem lstm = problem("lstm:l2_b9_t20_i7_h5_train+peephole");
    const sli_problem of_lstm = sli_wave_whole(&lstm);
    CHECK(sli_wave_floats(&of_lstm, SLI_RNN_RECURRENT, false) == 400 &&
          sli_wave_floats(&of_lstm, SLI_WAVE_BETWEEN, true) == 0);
    CHECK(sli_wave_floats(&of_lstm, SLI_RNN_PEEPHOLE, true) == 30);
    sli_persist_pair pair;
    sli_why why = {""};
    const sli_caps caps = invented(90);
    REQUIRE(sli_persist_pair_of(&whole, (sli_planned){0}, &caps, SLI_PERSIST_KIND_CLUSTER, &pair, &why));
    CHECK(pair.forward.wave == 5 && sli_persist_multiplied(&pair.forward) == 4 && sli_persist_vk(&pair.backward) == 4);
}

/* Parts of a memory one behind the other; a smaller call fits what the plan books, and finds packed parameters where they are. */
static void check_memory(const char *text) {
    const sli_caps caps = invented(90);
    const sli_problem plan = problem(text);
    const int chunk = sli_caps_chunk(&caps, plan.batch, plan.steps), longer = sli_wave_chunk(&plan, chunk);
    sli_booking booked;
    sli_problem call = plan;
    row_of(&plan)->book(&plan, &caps, chunk, &booked);
    CHECK(booked.packed > 0 && (booked.saved > 0) == plan.train && (booked.scratch_backward > 0) == plan.train);
    for (call.batch = plan.batch; call.batch >= 1; call.batch -= 1 + plan.batch / 4)
        for (call.steps = plan.steps; call.steps >= 0; call.steps -= 1 + plan.steps / 6) {
            const sli_problem whole = sli_wave_whole(&call);
            const sli_planned planned = sli_wave_planned(&plan, (sli_planned){plan.batch, plan.steps});
            sli_persist_pair pair;
            sli_why why = {""};
            REQUIRE(sli_persist_pair_of(&whole, planned, &caps, SLI_PERSIST_KIND_CLUSTER, &pair, &why));
            CHECK(sli_wave_layout_packed(&whole, &pair).total == booked.packed);
            if (plan.train) CHECK(sli_persist_layout_saved(&whole, &pair, longer).total <= booked.saved);
            for (int backward = 0; backward <= (plan.train ? 1 : 0); backward++) {
                const sli_wave_places at = sli_wave_layout_scratch(&whole, &caps, &pair, longer, backward);
                const size_t state = sizeof(float) * (size_t)(whole.batch * whole.units);
                const size_t own = backward ? sli_persist_layout_backward(&whole, &caps, &pair, longer).total
                                            : sli_persist_layout_forward(&whole, &caps, &pair, longer).total;
                CHECK(at.total <= (backward ? booked.scratch_backward : booked.scratch_forward));
                CHECK(at.own + own <= at.total);
                if (!backward) continue;
                CHECK(at.own + own <= at.param[0] && at.param[SLI_PART_PARAMS - 1] <= at.enters[0]);
                CHECK(at.enters[0] + state <= at.leaves[0]);
                const int last = sli_problem_states(&whole) - 1;
                CHECK(at.leaves[0] + state <= (last ? at.enters[1] : at.total) && at.leaves[last] + state <= at.total);
            }
        }
}
TEST(cuda_wave_memory) {
    check_memory("lstm:l3_b40_t70_i9_h33_bf16_train+lengths+peephole");
    check_memory("gru:l2_b130_t90_i7_h64_tf32_train+bias=double");
    check_memory("rnn:l12_b16_t40_i30_h16_f32+mask=left");
}

/* ms of a call on an H100 (wave_stacks_h100_2026-11-26.txt), beside the layers one by one. */
TEST(cuda_wave_seconds_as_measured) {
    static const cuda_time cases[] = {
        {"lstm:l2_b32_t50_i16_h64_bf16", 0.0258},         {"lstm:l2_b32_t50_i16_h64_bf16_train", 0.0778},
        {"lstm:l2_b32_t50_i16_h64_tf32_train", 0.0799},   {"gru:l2_b32_t50_i16_h64_bf16_train", 0.0827},
        {"lstm:l4_b128_t100_i16_h32_bf16_train", 0.2131}, {"lstm:l6_b8_t64_i16_h48_tf32_train", 0.1268},
        {"gru:l2_b1_t100_i40_h128_bf16", 0.0642},         {"lstm:l2_b64_t100_i32_h128_bf16_train", 0.2370},
        {"lstm:l2_b128_t50_i64_h100_bf16_train", 0.1933}, {"rnn:l2_b32_t100_i32_h64_train", 0.1089}};
    cuda_check_seconds(cases, sizeof cases / sizeof *cases, row_of, 0.85, 1.18);
}

TEST(cuda_wave_is_taken_where_it_was_faster) {
    cuda_check_plan("lstm:l2_b32_t50_i16_h64_bf16_train", "cuda:sm_90", "cuda:wave",
                    true); /* 78 us, layer by layer 119 */
    cuda_check_plan("lstm:l6_b8_t64_i16_h48_tf32_train", "cuda:sm_90", "cuda:wave", true);    /* 127 */
    cuda_check_plan("gru:l2_b32_t50_i16_h64_tf32", "cuda:sm_90", "cuda:wave", true);          /* 29 */
    cuda_check_plan("lstm:l2_b20_t20_i200_h200_bf16_train", "cuda:sm_90", "cuda:wave", true); /* 63, 85 */
    cuda_check_plan("lstm:l2_b20_t20_i200_h200_tf32_train", "cuda:sm_90", "cuda:wave", true); /* 86 */
    cuda_check_plan("gru:l3_b16_t600_i64_h128_tf32_train", "cuda:sm_90", "cuda:wave", true); /* 1167, as a stack 1366 */
    cuda_check_plan("lstm:l3_b16_t600_i64_h128_tf32", "cuda:sm_90", "cuda:wave", true);      /* 408, as a stack 519 */
    cuda_check_plan("gru:l2_b16_t150_i256_h256_f32", "cuda:sm_90", "cuda:cluster", false);   /* 472, 325 */
    cuda_check_plan("lstm:l2_b32_t50_i16_h64_bf16_train+drop=0.5", "cuda:sm_90", "cuda:cluster", false);
}

/* A limit that only segments keep: sums over time of other chunks would be other bits. */
TEST(cuda_wave_keeps_out_of_segments) {
    for (int limited = 0; limited < 2; limited++) {
        sl_model *model;
        sl_plan *plan;
        bool wave = false;
        sl_plan_options options = {.device = "cuda:sm_90"};
        REQUIRE_OK(sl_model_from_problem(NULL, "lstm:l6_b64_t150_i8_h32_bf16_train", &model, &options));
        options.device = "cuda:sm_90";
        if (limited) options.memory_limit = (size_t)145 << 20;
        REQUIRE_OK(sl_plan_new(model, &options, &plan));
        for (int i = 0; i < plan->step_count; i++) wave |= strcmp(plan->steps[i].kernel->name, "cuda:wave") == 0;
        CHECK(wave == !limited && (plan->segments > 1) == limited);
        sl_plan_free(plan);
        sl_model_free(model);
    }
}
