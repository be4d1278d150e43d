/* The persistent recurrence, its kernel as it is, on the CPU, against a loop over src/cell with products in double. */
#include <memory>
#include <type_traits>
#include "backend/cuda/kernels/persist.cuh"
#include "backend/cuda/kernels/persist_host.cuh"
#include "backend/cuda/persist_geometry.h"
#include "cases.h"
#include "persist_reference.h"

namespace {

/* Weights of tf32 in 20 bits; operands of tf32 as scaled ones of 16. */
enum { PERSIST_TIGHT = PERSIST_TF32 | 8, PERSIST_SCALED = PERSIST_F16 | 16 };

template <int GATES, int MATH, bool BACKWARD, int GATHER, int UNITS, int REDUCE, int SPREAD, int TILES_N, int HALVES,
          int WARPS_M, int WARPS_K, int TILES_M, int TILES_K, int IN_REGISTERS, int IN_SHARED, int OPTIONS = -1,
          int ACT = -1, int GATE_ACT = -1, int COURIERS = 0, int SHARE = 1, int CHUNKS = 1, int SLOTS = 0,
          int APART = 0, int RING = -1, int FEW = 0, bool MEETS = false>
struct configuration {
    static constexpr int gates = GATES & 7, math = MATH & 7, gather = GATHER, units = UNITS, reduce = REDUCE, spread = SPREAD;
    static constexpr bool before = GATES & 8, backward = BACKWARD, tight = MATH & 8, scaled = MATH & 16;
    static constexpr int wave = 0, directions = 2, form = -1;
    static constexpr int tiles_n = TILES_N, halves = HALVES, warps_m = WARPS_M, warps_k = WARPS_K;
    static constexpr int tiles_m = TILES_M, tiles_k = TILES_K, in_registers = IN_REGISTERS, in_shared = IN_SHARED;
    static constexpr int options = OPTIONS, act = ACT, gate_act = GATE_ACT, couriers = COURIERS;
    static constexpr int share = SHARE, chunks = CHUNKS, slots = SLOTS, apart = APART;
    static constexpr int pairs = (TILES_K - IN_REGISTERS - IN_SHARED + 1) / 2; /* that stream */
    static constexpr int few = FEW, H = -1, us = -1, hs = -1, zs = -1;
    static constexpr int shared_partial = -1, shared_arriving = -1, shared_weights = -1, shared_ring = -1;
    static constexpr int shared_barriers = -1, shared_sending = -1, shared_state = -1;
    static constexpr int inputs = 0, inputs_math = 0, inputs_row = 0, inputs_columns = 0, inputs_rows = 0, shared_inputs = -1;
    static constexpr bool meets = MEETS;
    static constexpr int ring = RING >= 0 ? RING : pairs < 8 ? pairs : 8;
};

/* The launch makes its input side, of I inputs, so many columns at a time; tf32 also where exact products are those of the steps. */
template <class C, int I, int COLUMNS, int MATH = C::math == PERSIST_F32X3 ? (int)PERSIST_F32 : C::scaled ? (int)PERSIST_TF32 : (int)C::math> struct with_inputs : C {
    static constexpr int each = MATH == PERSIST_BF16 || MATH == PERSIST_F16 ? 8 : C::math == PERSIST_F32 && MATH == PERSIST_F32 ? 1 : 4;
    static constexpr int inputs = I, inputs_math = MATH, inputs_row = (I + each - 1) / each * each, inputs_columns = COLUMNS;
    static constexpr int inputs_rows = C::halves * (C::few > 0 ? (int)C::few : 8 * C::tiles_n);
};

/* Of a batch of so many rows. */
template <class C, int ROWS> struct of_rows : C { static constexpr int inputs_rows = ROWS; };
/* Units and strides are constants, as in kernels that are compiled for a layer. */
template <class C, int UNITS> struct of_units : C {
    static constexpr int multiple = C::math == PERSIST_BF16 || C::math == PERSIST_F16 ? 8 : 4, gates_units = C::gates * UNITS;
    static constexpr int H = UNITS, us = (gates_units + 3) / 4 * 4, hs = (UNITS + multiple - 1) / multiple * multiple;
    static constexpr int zs = (gates_units + multiple - 1) / multiple * multiple;
};

/* L2 holds what one direction streams, not what two do side by side: then a part of it is to leave first. */
typedef configuration<4, PERSIST_TF32, false, PERSIST_GRID, 16, 1, 4, 1, 1, 2, 1, 4, 8, 0, 0> streams_both_ways;
struct streams_one_way : streams_both_ways { static constexpr int directions = 1; };
static_assert(persist_sizes<streams_both_ways>::far && !persist_sizes<streams_one_way>::far, "far counts directions");

template <class C> sli_persist_geometry geometry_of(int groups, int directions) {
    static const sl_dtype math[5] = {SL_F32, SL_TF32, SL_BF16, SL_F16, SL_F32X3};
    sli_persist_geometry g = {};
    g.gates = C::gates;
    g.before = C::before;
    g.math = math[C::math];
    g.tight = C::tight;
    g.scaled = C::scaled;
    g.backward = C::backward;
    g.gather = (sli_persist_gather)C::gather;
    g.units = C::units;
    g.reduce = C::reduce;
    g.spread = C::spread;
    g.tiles_n = C::tiles_n;
    g.halves = C::halves;
    g.few = C::few;
    g.couriers = C::couriers;
    g.apart = C::apart;
    g.meets = C::meets;
    g.share = C::share;
    g.chunks = C::chunks;
    g.slots = C::slots;
    g.warps_m = C::warps_m;
    g.warps_k = C::warps_k;
    g.tiles_m = C::tiles_m;
    g.tiles_k = C::tiles_k;
    g.in_registers = C::in_registers;
    g.in_shared = C::in_shared;
    g.ring = C::ring;
    g.inputs = C::inputs;
    g.inputs_math = math[C::inputs_math];
    g.inputs_columns = C::inputs_columns;
    g.inputs_rows = C::inputs_rows;
    g.groups = groups;
    g.directions = directions;
    return g;
}

/* Memory that 16-byte accesses may begin at. */
struct aligned_bytes {
    std::unique_ptr<unsigned char[]> owner;
    unsigned char *at;
    explicit aligned_bytes(size_t bytes, int fill) : owner(new unsigned char[bytes + 128]) {
        at = (unsigned char *)(((uintptr_t)owner.get() + 127) & ~(uintptr_t)127);
        memset(at, fill, bytes);
    }
};

typedef std::vector<std::unique_ptr<persist_direction>> persist_directions;

/* A problem as the configuration computes it: its memory, packed weights, what is given to the kernel. */
template <class C> struct launcher {
    typedef persist_sizes<C> S;
    persist_problem p;
    sli_persist_geometry geometry;
    persist_args a = {};
    persist_directions given;
    std::vector<aligned_bytes> keep;
    std::vector<std::vector<uint32_t>> counters;

    explicit launcher(const persist_problem &asked) : p(asked) {
        p.gates = C::gates;
        p.math = C::scaled ? (int)PERSIST_TF32 : (int)C::math;
        p.backward = C::backward;
        p.together = C::couriers > 0;
        p.inputs = C::inputs;
        p.inputs_math = C::inputs_math;
        p.inputs_row = C::inputs_row;
        if (emulate_shape[0] > 0) p.H = emulate_shape[0];
        if (emulate_shape[1] > 0) p.B = emulate_shape[1];
        if (emulate_shape[2] > 0) p.T = emulate_shape[2];
        if (C::inputs > 0 && C::inputs_rows < S::rows * S::halves && p.B > C::inputs_rows) p.B = C::inputs_rows;
        if (C::H > 0) p.H = C::H;
        p.groups = (p.B + S::rows * S::halves - 1) / (S::rows * S::halves);
        if (C::options >= 0) {
            p.options = C::options;
            p.lengths = p.lengths && (C::options & CELL_MASK) != 0;
        }
        if (C::before) p.options |= CELL_RESET_BEFORE;
        if (C::act >= 0) p.act = C::act;
        if (C::gate_act >= 0) p.gate_act = C::gate_act;
        if (C::scaled && p.act == CELL_ACT_RELU) p.act = CELL_ACT_SOFTSIGN; /* |v| has a bound */
        geometry = geometry_of<C>(p.groups, p.directions);
    }

    std::string begin(uint64_t seed) {
        if (p.H > S::group * S::units) return emulate_say("the configuration has %d units", S::group * S::units);
        const sli_persist_shared at = sli_persist_shared_of(&geometry);
        if ((int)at.v_row != S::v_bytes || at.v_buffers != S::v_buffers)
            return "persist_sizes.cuh and persist_geometry.c differ in v";
        if (sli_persist_words_tell(&geometry) != S::words_tell) return "they differ in whether words tell";
        if constexpr (C::inputs > 0) {
            typedef persist_inputs<S> N;
            if ((int)at.inputs < N::bytes || (int)at.total < (int)at.inputs + N::kept || N::columns < p.T * C::inputs_rows)
                return "they differ in the input side";
        }
        persist_fill_args(&a, p);
        a.shared_partial = (int)at.partial;
        a.shared_arriving = (int)at.arriving;
        a.shared_weights = (int)at.weights;
        a.shared_ring = (int)at.ring;
        a.shared_barriers = (int)at.barriers;
        a.shared_sending = (int)at.sending;
        a.shared_state = (int)at.state;
        a.shared_ranges = (int)at.ranges;
        a.shared_inputs = (int)at.inputs;
        a.shared_bytes = (int)at.total;
        if ((seed + (uint64_t)p.H) % 3 == 2) /* some of every two seeds */
            a.delay = seed % 4 == 1 ? PERSIST_DELAY_MEETS : (uint32_t)seed + 1;
        a.far = (seed + (uint64_t)p.B) % 2 == 0;
        for (int d = 0; d < p.directions; d++) {
            given.emplace_back(new persist_direction(p, d));
            given[d]->fill(&a.way[d]);
            const std::string failure = pack(d, seed);
            if (!failure.empty()) return "packing: " + failure;
            take_exchange(&a.way[d]);
        }
        return "";
    }

    std::string pack(int d, uint64_t seed) {
        const size_t packed = sli_round_up(sli_persist_packed_bytes(&geometry), 16), largest = sizeof(float) * PERSIST_LARGEST;
        keep.emplace_back(packed + largest, 0xff);
        std::vector<const void *> parameters(SLI_PART_PARAMS, nullptr);
        std::string failure;
        step_way weights = {};
        weights.s.H = p.H;
        weights.s.GH = p.gates * p.H;
        weights.weights = reinterpret_cast<char *>(keep.back().at);
        weights.param = parameters.data();
        weights.seed = seed;
        weights.failure = &failure;
        sli_persist_pair pair = {};
        pair.forward = geometry;
        sli_persist_packed at_begin = {};
        at_begin.largest = packed;
        sli_persist_pack(&weights, &pair, &at_begin, given[d]->r.data(), p.H);
        persist_way *way = &a.way[d];
        way->weights = keep.back().at;
        if (!C::scaled) return failure;
        a.bound = p.dropout ? 1 / 0.7f : 1.0f;
        a.largest_weight[d] = (const float *)(keep.back().at + packed);
        return failure;
    }

    void take_exchange(persist_way *way) {
        const size_t slices = (size_t)p.groups * S::halves, owners = S::meets ? slices * S::spread : 0;
        keep.emplace_back(slices * S::reduce * S::exchange_bytes * S::exchange_buffers, 0xff);
        way->exchange = keep.back().at;
        counters.emplace_back(slices * S::reduce + owners, 0u);
        way->counters = counters.back().data();
        keep.emplace_back(2 * owners * S::reduce * S::meeting_bytes + 1, 0xff);
        way->meeting = keep.back().at;
    }

    std::string launch(uint64_t seed) {
        for (int d = 0; d < p.directions; d++) {
            const size_t buffer = (size_t)p.groups * S::halves * S::reduce * S::exchange_bytes;
            if (S::words_tell) memset(a.way[d].exchange, 0, 2 * buffer);
            for (uint32_t &counter : counters[(size_t)d]) counter = 0u;
        }
        emulate::launch_config config;
        config.grid = dim3((unsigned)sli_persist_ctas(&geometry));
        config.block = dim3((unsigned)S::all_threads);
        config.cluster = (unsigned)S::cluster;
        config.shared = (size_t)a.shared_bytes;
        config.resident = C::gather != PERSIST_GRID && seed % 2 ? 1 : 0;
        config.seed = seed;
        a.form = persist_form_of(a, p.directions, p.backward, p.history);
        std::set<const float *> ahead;
        emulate::asked_ahead = &ahead;
        std::string failure = emulate::launch(config, [&] { persist_run<C>(a); }).failure;
        emulate::asked_ahead = nullptr;
        const bool asks = persist_far<S>::asks && (a.far || S::couriers > 0);
        const int first = S::couriers > 0 ? p.T : 4; /* in turns it may be later */
        if (failure.empty() && p.directions == 1 && asks && a.way[0].steps == p.T) failure = given[0]->asked(ahead, first);
        if (failure.empty() && !asks && !ahead.empty()) failure = "what lies in L2 was asked for ahead";
        return failure;
    }
};

/* With weights of 32 bits each. */
template <class C> struct as_they_are : C { static constexpr bool tight = false; };

/* `before`: what another seed gave; all seeds give the same bits. So do weights that are tight and those that are not. */
template <class C> std::string check(const persist_problem &asked, uint64_t seed, persist_directions *before) {
    launcher<C> own(asked);
    std::string failure = own.begin(seed);
    if (failure.empty()) failure = own.launch(seed);
    if constexpr (C::tight) {
        launcher<as_they_are<C>> wide(asked);
        if (failure.empty()) failure = wide.begin(seed);
        if (failure.empty()) failure = wide.launch(seed);
        for (int d = 0; d < own.p.directions && failure.empty(); d++)
            if (!own.given[d]->same(wide.given[d].get())) return "weights of 20 bits give other bits than those of 32";
    }
    for (int d = 0; d < own.p.directions && failure.empty(); d++) {
        if (!before->empty() && own.given[d]->same((*before)[d].get())) continue; /* which was compared */
        persist_direction expected(own.p, d);
        expected.compute();
        const std::string wrong = own.given[d]->compare(expected);
        if (!wrong.empty()) return emulate_say("direction %d: ", d) + wrong;
        if (!before->empty()) return "the bits are not those of the seed before, although the values agree";
    }
    *before = std::move(own.given);
    return failure;
}

/* Inference in two launches, the second an even number of steps, all rows ended after its first: then nobody waits for anybody in it, and the d h
 * that it enters from must not be where it leaves another. */
template <class C> std::string check_two_launches(const persist_problem &asked, uint64_t seed) {
    persist_problem p = asked;
    launcher<C> own(p);
    int longest = 0;
    for (p.T = 4; p.T < 40; p.T++) {
        own.p.T = p.T;
        longest = persist_direction(own.p, 0).longest();
        if (longest > 1 && longest < p.T && (p.T - longest) % 2 == 1) break;
    }
    if (p.T == 40) return "no such lengths were drawn";
    const int first = longest - 1;
    std::string failure = own.begin(seed);
    if (!failure.empty()) return failure;
    persist_way *way = &own.a.way[0];
    const persist_way whole = *way;
    const aligned_bytes between((size_t)(own.p.B * own.a.hs) * 4, 0xff);
    way->steps = first;
    way->operand_to = between.at;
    way->h_last = way->c_last = nullptr;
    failure = own.launch(seed);
    if (!failure.empty()) return failure;
    *way = whole;
    way->steps = p.T - first;
    way->time += first * whole.time_step;
    way->flags += first * whole.flags_step;
    way->u += (int64_t)first * whole.u_step;
    way->y = static_cast<float *>(whole.y) + (int64_t)first * whole.y_step;
    way->h_enters = nullptr;
    way->operand_from = between.at;
    way->h_from = whole.h_to;
    way->c_from = whole.c_to;
    failure = own.launch(seed);
    if (!failure.empty()) return failure;
    persist_direction expected(own.p, 0);
    expected.compute();
    return own.given[0]->compare(expected);
}

const char *const math_names[5] = {"f32", "tf32", "bf16", "f16", "f32x3"};
const char *const gather_names[3] = {"local", "cluster", "grid"};

/* The problems that every configuration computes. `all`: units of all its CTAs; `rows` of a group. */
template <class C> struct problems {
    problems() {
        if constexpr (C::H > 0) {
            persist_problem fixed;
            fixed.B = persist_sizes<C>::rows + 1;
            fixed.T = 5;
            add("units that are constants", fixed);
            return;
        }
        typedef persist_sizes<C> S;
        const int all = S::group * S::units, rows = S::rows * S::halves;
        const int lstm = CELL_PEEPHOLE | CELL_CLIP | CELL_ZONEOUT_H | CELL_ZONEOUT_C | CELL_FORGET_AT_RUN | CELL_MASK;
        const int others = CELL_ZONEOUT_H | CELL_MASK;
        persist_problem full;
        full.H = all;
        full.B = rows;
        full.T = 4;
        full.draws = true;
        add("all", full);
        persist_problem odd = full;
        odd.H = all - 3;
        odd.B = rows + 3;
        odd.T = 5;
        odd.pad = 3;
        odd.chunk = 2;
        odd.first_chunk = 1;
        odd.history = C::inputs == 0;
        add("odd", odd);
        persist_problem behind = odd; /* lanes without a unit for the zeros behind an LSTM's dz */
        behind.H = all - 5;
        if (all > 8) add("zeros behind", behind);
        persist_problem masked = odd;
        masked.B = rows + 1;
        masked.T = 6;
        masked.options = C::gates == 4 ? lstm : others;
        masked.lengths = masked.dropout = masked.draws = true;
        masked.reverse = true;
        add("options", masked);
        /* Lanes that share draws, for several steps at once, the last ones of them too many; where zoneout is no constant each draws for itself. */
        if constexpr (C::options >= 0 && (C::options & (CELL_ZONEOUT_H | CELL_ZONEOUT_C)) != 0) {
            persist_problem late = masked;
            late.H = all;
            late.T = 7;
            add("shared draws of many steps", late);
        }
        persist_problem two = masked;
        two.H = all - S::units > 0 ? all - S::units : all;
        two.B = rows > 2 ? rows - 2 : rows;
        two.directions = 2;
        two.T = 4; /* twice the threads */
        two.reverse = false;
        two.dropout = false;
        two.act = CELL_ACT_RELU;
        two.gate_act = CELL_ACT_HARD_SIGMOID;
        add("two directions", two);
        persist_problem one = full;
        one.B = 1;
        one.T = 1;
        one.history = C::inputs == 0;
        add("one step", one);
        if constexpr (C::scaled) {
            persist_problem far = odd; /* as f16 just has them */
            far.states = 5e3f;
            far.dropout = true;
            add("large states", far);
            persist_problem beyond = masked; /* f16 has not, nor what masked steps carry: nothing finite is wrong */
            beyond.options = CELL_MASK | (C::before ? (int)CELL_RESET_BEFORE : 0);
            beyond.history = C::inputs == 0;
            beyond.states = 3e4f;
            beyond.overflows = true;
            add("states beyond", beyond);
            persist_problem large = one;
            large.larger = 300.0f;
            large.states = 2e-3f;
            add("large weights", large);
            persist_problem small = full;
            small.larger = 1e-4f;
            small.states = 8e3f;
            add("small weights", small);
        }
        if constexpr (C::backward) {
            masked.ends = one.ends = true;
            add("options, nobody wants what it gives", masked);
            add("one step, nobody wants what it gives", one);
        }
        if constexpr (!C::backward && C::inputs == 0 && C::gather == PERSIST_GRID && (C::options < 0 || (C::options & CELL_MASK) != 0)) {
            persist_problem ended = full;
            ended.B = rows < 8 ? rows : 8;
            ended.options = CELL_MASK;
            ended.lengths = true;
            emulate_register(name_of("two launches"),
                             [ended](uint64_t seed) { return check_two_launches<C>(ended, seed); });
        }
    }
    static std::string name_of(const char *what) {
        const char *cell = C::gates == 4 ? "lstm" : C::before ? "gru before" : C::gates == 3 ? "gru" : "rnn";
        return emulate_say("persist: %s %s %s %s units=%d P=%d Q=%d NT=%d halves=%d warps=%dx%d tiles=%dx%d in=%d+%d "
                        "apart=%d%s share=%d chunks=%d ring=%d few=%d inputs=%d: %s",
                        cell, C::tight ? "tf32 tight" : C::scaled ? "tf32 scaled" : math_names[C::math], C::backward ? "backward" : "forward", gather_names[C::gather],
                        C::units, C::reduce, C::spread, C::tiles_n, C::halves, C::warps_m, C::warps_k, C::tiles_m,
                        C::tiles_k, C::in_registers, C::in_shared, C::apart, C::meets ? " meets" : "", C::share, C::chunks, C::ring, C::few, C::inputs, what);
    }
    void add(const char *what, const persist_problem &p) {
        const std::shared_ptr<persist_directions> before(new persist_directions);
        emulate_register(name_of(what), [p, before](uint64_t seed) { return check<C>(p, seed, before.get()); });
    }
};

enum { L = 4, G = 3, R = 1, B = 8 | G }; /* B: reset before the product */
/* This file is compiled twice, each time for some of the instances: the compiler's time is most of what the program takes to build. */
#ifndef EMULATE_OTHERS
#define FORWARD(NAME, CELL, MATH, GATHER, ...) \
    const problems<configuration<CELL, PERSIST_##MATH, false, PERSIST_##GATHER, __VA_ARGS__>> NAME;
#else
#define FORWARD(...)
#endif
#if defined EMULATE_CONFIGURATIONS || defined EMULATE_OTHERS
#define BACKWARD(NAME, CELL, MATH, GATHER, ...) \
    const problems<configuration<CELL, PERSIST_##MATH, true, PERSIST_##GATHER, __VA_ARGS__>> NAME;
/* The same with inputs. */
#define INPUTS(NAME, I, COLUMNS, CELL, MATH, GATHER, ...) \
    const problems<with_inputs<configuration<CELL, PERSIST_##MATH, false, PERSIST_##GATHER, __VA_ARGS__>, I, COLUMNS>> NAME;
#define INPUTS_TF32(NAME, I, COLUMNS, CELL, GATHER, ...)                                                                     \
    const problems<with_inputs<configuration<CELL, PERSIST_F32, false, PERSIST_##GATHER, __VA_ARGS__>, I, COLUMNS, PERSIST_TF32>> NAME;
#define INPUTS_OF(NAME, ROWS, I, COLUMNS, CELL, MATH, GATHER, ...) \
    const problems<of_rows<with_inputs<configuration<CELL, PERSIST_##MATH, false, PERSIST_##GATHER, __VA_ARGS__>, I, COLUMNS>, ROWS>> NAME;
#define INPUTS_FIXED(NAME, UNITS, I, COLUMNS, CELL, MATH, GATHER, ...) \
    const problems<of_units<with_inputs<configuration<CELL, PERSIST_##MATH, false, PERSIST_##GATHER, __VA_ARGS__>, I, COLUMNS>, UNITS>> NAME;
#else
#define BACKWARD(...)
#define INPUTS(...)
#define INPUTS_TF32(...)
#define INPUTS_OF(...)
#define INPUTS_FIXED(...)
#endif
#ifdef EMULATE_CONFIGURATIONS /* a file of others: tests/cuda/emulate/try */
#include EMULATE_CONFIGURATIONS
#else
#include "persist_configurations.h"
#endif

} // namespace
