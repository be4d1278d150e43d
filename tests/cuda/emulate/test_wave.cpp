/* cuda:wave on the CPU: kernels/wave.cu, the host's side of cuda:cluster and all kernels as they are, products as loops, with the cuts of the
 * recurrence that are compiled here. The result must be that of the reference layer by layer. In one launch, in spans and pieces of a chunk, of which
 * the last one's steps have no x. */
#include <random>

#include "cases.h"
#include "operands.h"
#include "emulate.h"
#include "backend/cuda/kernels/persist.cuh"
#define ENGINE wave
#include "persist_engine_names.h"
#include "backend/cuda/runtime/functions.h"
#include "backend/cuda/wave_layout.h"

namespace {

struct bench {
    sli_caps caps, cpu;
    uint64_t seed;
    int span, piece, lanes;
    sli_persist_pair pair;
    std::function<void(const persist_args &)> kernel[2]; /* forward, backward */
    int launches;
    std::mt19937_64 random;
    std::string wrong;
} world;

void complain(const std::string &text) {
    if (world.wrong.empty()) world.wrong = text;
}

bool wanted_pair(const sli_problem *p, sli_planned plan, const sli_caps *, sli_persist_kind, sli_persist_pair *pair,
                 sli_why *) {
    *pair = world.pair;
    pair->batch = plan.batch > 0 ? plan.batch : p->batch;
    for (sli_persist_geometry *g : {&pair->forward, &pair->backward}) {
        const int rows = g->halves * sli_persist_rows(g);
        g->groups = (p->batch + rows - 1) / rows;
    }
    return true;
}

} // namespace
#define sli_persist_pair_of wanted_pair
#include "persist_engine.h"
namespace wave_engine {
#include "backend/cuda/kernels/persist_measure.cu"
#include "backend/cuda/kernels/persist_pack.cu"
#include "backend/cuda/kernels/wave.cu"
} // namespace wave_engine
#undef sli_persist_pair_of

/* Whether an address is one of `count` floats of a step from number `first` on, before `end`. */
bool in_steps(const float *from, const float *base, int64_t step, int64_t first, int64_t end, int64_t count) {
    for (int64_t s = first; s < end && base; s++)
        if (from >= base + s * step && from < base + s * step + count) return true;
    return false;
}

/* What a launch asks L2 for ahead is what its steps read: dy is there for the last layer's steps alone. */
void check_asked(const persist_args &a, const sli_persist_geometry &g, const std::set<const float *> &ahead) {
    const persist_way &w = a.way[0];
    const int lag = a.H / g.wave - 1;
    const bool asks = a.far && g.inputs == 0 && (!g.backward || g.math == SL_BF16);
    if (asks ? w.steps > 6 && ahead.empty() : !ahead.empty())
        complain(asks ? "nothing was asked for ahead" : "what lies in L2 was asked for ahead");
    for (const float *from : ahead) {
        bool found = in_steps(from, w.u, w.u_step, 0, w.steps, (int64_t)a.B * a.us);
        if (g.backward) {
            found |= in_steps(from, w.c_from, w.c_step, 0, w.steps, (int64_t)a.B * a.H) ||
                     in_steps(from, w.v, w.v_step, 0, w.steps, (int64_t)a.B * a.H);
            found |= in_steps(from, w.h_from, w.h_step, 0, w.steps, a.B * w.h_row) ||
                     in_steps(from, w.sn, w.sn_step, 0, w.steps, (int64_t)a.B * a.H);
            for (int s = 0; s < w.steps; s++) {
                const int at = w.wave_time + s * (int)w.time_step - lag;
                if (at >= 0 && at < a.wave_steps)
                    found |= in_steps(from, static_cast<const float *>(w.dy), w.y_step, s, s + 1, (int64_t)(a.B - 1) * w.y_row + a.H);
            }
        }
        if (!found) return complain("what was asked for ahead is nothing that steps read");
    }
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *given, const void *, void **arguments) {
    persist_args a = *static_cast<const persist_args *>(arguments[0]);
    a.far = world.random() % 2 == 0; /* of so few rows it is not */
    const bool backward = a.way[0].dz != nullptr;
    emulate::launch_config config;
    sli_persist_geometry g = backward ? world.pair.backward : world.pair.forward;
    g.groups = a.groups;
    config.grid = dim3((unsigned)sli_persist_ctas(&g));
    config.block = dim3((unsigned)sli_persist_threads(&g));
    config.cluster = (unsigned)sli_persist_cluster(&g);
    config.shared = given->dynamicSmemBytes;
    config.resident = world.seed % 2 ? 1 : 0;
    config.seed = world.seed;
    std::set<const float *> ahead;
    emulate::asked_ahead = &ahead;
    const std::string failure = emulate::launch(config, [&] { world.kernel[backward](a); }).failure;
    emulate::asked_ahead = nullptr;
    check_asked(a, g, ahead);
    if (!failure.empty()) complain("the recurrence: " + failure);
    world.launches++;
    return cudaSuccess;
}
#include "stack_trials.h"

namespace {

enum { PERSIST_SCALED = PERSIST_F16 | 16 }; /* tf32, scaled */
template <int GATES, int MATH, bool BACKWARD, int WAVE, int UNITS, int CLUSTER, int WARPS_M, int WARPS_K, int TILES_K,
          int FEW = 0, int INPUTS = 0, int ROWS = 0>
struct cut {
    static constexpr int gates = GATES, math = MATH & 7, gather = BACKWARD ? PERSIST_LOCAL : PERSIST_CLUSTER;
    static constexpr bool before = false, backward = BACKWARD, tight = false, scaled = MATH & 16, meets = false;
    static constexpr int wave = WAVE, directions = 1, form = -1, H = -1, us = -1, hs = -1, zs = -1;
    static constexpr int units = UNITS, reduce = BACKWARD ? CLUSTER : 1, spread = BACKWARD ? 1 : CLUSTER;
    static constexpr int tiles_n = 1, halves = 1, few = FEW, couriers = 0, apart = 0, share = 1, chunks = 1, slots = 0;
    static constexpr int warps_m = WARPS_M, warps_k = WARPS_K, tiles_m = 1, tiles_k = TILES_K;
    static constexpr int in_registers = TILES_K, in_shared = 0, ring = 0, options = -1, act = -1, gate_act = -1;
    static constexpr int shared_partial = -1, shared_arriving = -1, shared_weights = -1, shared_ring = -1;
    static constexpr int shared_barriers = -1, shared_sending = -1, shared_state = -1;
    static constexpr int inputs = INPUTS, inputs_math = MATH & 7,
                         inputs_row = MATH == PERSIST_BF16 ? (INPUTS + 7) / 8 * 8 : INPUTS;
    static constexpr int inputs_columns = 48, inputs_rows = ROWS, shared_inputs = -1;
};

template <class C> void take(sli_persist_geometry *g) {
    static const sl_dtype math[5] = {SL_F32, SL_TF32, SL_BF16, SL_F16, SL_F32X3};
    *g = sli_persist_geometry{};
    g->gates = C::gates;
    g->wave = C::wave;
    g->math = math[C::math];
    g->scaled = C::scaled;
    g->backward = C::backward;
    g->gather = (sli_persist_gather)C::gather;
    g->units = C::units;
    g->reduce = C::reduce;
    g->spread = C::spread;
    g->tiles_n = g->halves = g->share = g->chunks = g->tiles_m = g->groups = g->directions = 1;
    g->few = C::few;
    g->inputs = C::inputs;
    g->inputs_columns = C::inputs_columns;
    g->inputs_rows = C::inputs_rows;
    g->inputs_math = math[C::inputs_math];
    g->warps_m = C::warps_m;
    g->warps_k = C::warps_k;
    g->tiles_k = g->in_registers = C::tiles_k;
    world.kernel[C::backward] = persist_run<C>;
}
template <class FORWARD, class BACKWARD> void take_both() {
    take<FORWARD>(&world.pair.forward);
    take<BACKWARD>(&world.pair.backward);
}

/* In inference the launch may make its input side, of as many inputs as the trials have, and rows. */
bool own_inputs(const sli_problem &p) {
    typedef cut<4, PERSIST_F32, true, 5, 4, 4, 1, 2, 2> lstm;
    typedef cut<3, PERSIST_F32, true, 4, 4, 3, 1, 2, 2> gru;
    if (p.dtype == SL_BF16)
        take_both<cut<4, PERSIST_BF16, false, 10, 8, 4, 2, 1, 2, 4, 9, 4>,
                  cut<4, PERSIST_BF16, true, 10, 8, 4, 2, 1, 2, 4>>();
    else if (p.op == SLI_OP_LSTM)
        take_both<cut<4, PERSIST_F32, false, 5, 4, 4, 1, 1, 4, 0, 5, 3>, lstm>();
    else
        take_both<cut<3, PERSIST_F32, false, 4, 4, 3, 1, 1, 3, 0, 3, 5>, gru>();
    return p.inputs == world.pair.forward.inputs;
}

/* Layers of 5 units (LSTM, of which 4 too) and 4 in f32, of 10 in bf16 and tf32 (LSTM four rows a cluster): a block has units of one layer or of two. */
void cut_of(const sli_problem &p) {
    if (p.dtype == SL_TF32 && p.op == SLI_OP_GRU) {
        take_both<cut<3, PERSIST_SCALED, false, 10, 8, 3, 2, 1, 2>, cut<3, PERSIST_TF32, true, 10, 8, 3, 2, 1, 4>>();
        return;
    }
    if (p.dtype == SL_TF32) {
        take_both<cut<4, PERSIST_SCALED, false, 10, 8, 4, 2, 1, 2, 4>,
                  cut<4, PERSIST_TF32, true, 10, 8, 4, 2, 1, 4, 4>>();
        return;
    }
    if (!p.train && world.seed % 2 == 0 && own_inputs(p)) return;
    if (p.dtype == SL_BF16 && p.op == SLI_OP_GRU)
        take_both<cut<3, PERSIST_BF16, false, 10, 8, 3, 2, 1, 2>, cut<3, PERSIST_BF16, true, 10, 8, 3, 2, 1, 2>>();
    else if (p.dtype == SL_BF16)
        take_both<cut<4, PERSIST_BF16, false, 10, 8, 4, 2, 1, 2, 4>,
                  cut<4, PERSIST_BF16, true, 10, 8, 4, 2, 1, 2, 4>>();
    else if (p.op == SLI_OP_LSTM && p.units == 4)
        take_both<cut<4, PERSIST_F32, false, 4, 4, 3, 1, 1, 3>, cut<4, PERSIST_F32, true, 4, 4, 3, 1, 2, 2>>();
    else if (p.op == SLI_OP_LSTM)
        take_both<cut<4, PERSIST_F32, false, 5, 4, 4, 1, 1, 4>, cut<4, PERSIST_F32, true, 5, 4, 4, 1, 2, 2>>();
    else if (p.op == SLI_OP_GRU)
        take_both<cut<3, PERSIST_F32, false, 4, 4, 3, 1, 1, 3>, cut<3, PERSIST_F32, true, 4, 4, 3, 1, 2, 2>>();
    else
        take_both<cut<1, PERSIST_F32, false, 4, 4, 3, 1, 1, 3>, cut<1, PERSIST_F32, true, 4, 4, 3, 1, 1, 1>>();
}

sli_booking booking_of(const sli_problem &plan, int chunk) {
    const sli_problem whole = sli_wave_whole(&plan);
    const int longer = sli_wave_chunk(&plan, chunk);
    sli_persist_pair pair;
    sli_booking booking = {};
    wanted_pair(&whole, {}, &world.caps, SLI_PERSIST_KIND_CLUSTER, &pair, nullptr);
    booking.saved = sli_persist_layout_saved(&whole, &pair, longer).total;
    booking.packed = sli_wave_layout_packed(&whole, &pair).total;
    booking.scratch_forward = sli_wave_layout_scratch(&whole, &world.caps, &pair, longer, false).total;
    booking.scratch_backward = sli_wave_layout_scratch(&whole, &world.caps, &pair, longer, true).total;
    return booking;
}

std::string run(const trial &t, uint64_t seed) {
    sli_problem plan;
    if (sli_problem_parse(t.text, &plan) != SL_OK) return emulate_say("%s is no problem", t.text);
    for (int variant = 0; variant < 4 && world.wrong.empty(); variant++) {
        const int chunk = variant == 0 ? plan.steps : 1; /* which is longer by what layers lag */
        world.seed = seed;
        world.random.seed(seed + (uint64_t)variant);
        world.span = variant == 2 ? 1 : variant == 3 ? 2 : 0;
        world.piece = variant == 1 ? 1 : 0;
        world.launches = 0;
        cut_of(plan);
        const trial_engine engine = {booking_of(plan, chunk),
                                     chunk,
                                     plan.dtype == SL_BF16   ? 0.04
                                     : plan.dtype == SL_TF32 ? 0.005
                                                             : 2e-5,
                                     sli_gpu_wave_pack,
                                     sli_gpu_wave_forward,
                                     sli_gpu_wave_backward};
        (void)run_trial(t, plan, seed, engine);
        const int least = (plan.train ? 2 : 1) * (variant == 0 || t.steps == 1 ? 1 : 2);
        if (world.launches < least && world.wrong.empty()) complain("nothing was cut");
        if (!world.wrong.empty()) world.wrong = emulate_say("variant %d: %s", variant, world.wrong.c_str());
    }
    return world.wrong;
}

const trial trials[] = {
    {"lstm:l3_b5_t8_i3_h5_train", 0, 0, false, false, true, false, false},
    {"lstm:l3_b9_t8_i7_h5_train+clip=0.4+forget=1+lengths+peephole", 5, 7, false, true, false, false, false},
    {"lstm:l2_b3_t9_i3_h5_train+bias=double+mask=holes+maskout=repeat", 0, 0, true, false, false, false, false},
    {"lstm:l3_b3_t9_i5_h5+mask=left", 0, 0, false, false, false, false, true},
    {"lstm:l3_b4_t7_i3_h5_train+bias=double", 0, 0, false, false, false, true, false},
    {"gru:l3_b4_t7_i3_h4_train", 0, 0, false, false, false, true, false},
    {"gru:l3_b5_t8_i3_h4+lengths", 0, 0, false, false, false, false, true},
    {"gru:l2_b3_t7_i3_h10_bf16_train+mask=holes", 0, 0, false, false, false, false, false},
    {"lstm:l3_b6_t7_i9_h10_bf16", 0, 0, false, true, false, false, false},
    {"lstm:l3_b9_t8_i3_h10_bf16_train", 0, 0, false, true, false, false, false},
    {"gru:l3_b4_t8_i3_h4_train+bias=double", 0, 0, false, false, true, false, false},
    {"lstm:l3_b9_t8_i4_h10_tf32_train+lengths", 5, 7, false, true, false, false, false},
    {"gru:l2_b5_t7_i4_h10_tf32_train", 0, 0, false, false, true, false, false},
    {"gru:l2_b5_t7_i8_h10_tf32+mask=holes", 0, 0, false, false, false, false, false},
    {"gru:l2_b9_t9_i5_h4_train+lengths+maskout=repeat", 7, 8, false, true, false, false, false},
    {"gru:l3_b3_t9_i1_h4_train+bias=none", 1, 1, true, false, false, false, false},
    {"rnn:l3_b4_t8_i3_h4_train+mask=holes", 0, 0, false, true, false, false, false},
    {"rnn:l2_b4_t8_i3_h4_train+act=softsign+bias=none", 3, 7, false, false, true, false, false},
    /* parameters come together and gradients part by fours */
    {"lstm:l3_b5_t8_i4_h4_train+bias=double+peephole", 0, 0, false, false, true, false, false},
    {"lstm:l3_b4_t7_i8_h4_train", 0, 0, false, false, false, true, false},
    {"gru:l3_b4_t8_i8_h4_train+bias=double", 0, 0, false, false, true, false, false},
    {"gru:l2_b3_t7_i4_h4_train", 0, 0, false, true, false, true, false},
    {"rnn:l3_b4_t8_i12_h4_train", 0, 0, false, true, false, false, false},
};

} // namespace

EMULATE_CASE("wave: layers as one, each a step behind the one below, compute what layers one by one do") {
    return run_trials(trials, seed, run);
}
