/* The persistent recurrence: the cells, forward and backward. The mathematics is src/cell; a lane has one unit of one row,
 * whose state stays in registers. What a step reads from memory is loaded a step ahead. */
#ifndef SLI_CUDA_PERSIST_CELLS_CUH
#define SLI_CUDA_PERSIST_CELLS_CUH

#include "backend/cuda/kernels/persist_inputs.cuh"
#include "cell/gru.h"
#include "cell/lstm.h"
#include "cell/rnn.h"
#include "core/rng.h"

/* What a step reads of memory. Forward: u. Backward: gates, c' (LSTM) or h' (GRU), the saved v or s_n, dy. */
template <class S> struct persist_ahead {
    float u[S::gates];
    float old, other, dy, factor;
    uint32_t flags;
};

template <class S> struct persist_cell {
    float c, h; /* forward; backward: c is the c that the step leaves */
    float factor, peep[3], bias_n;
    float bias[S::wave > 0 ? (int)S::gates : 1]; /* of a wave: u of layers that have no x */
    float dc, pw; /* backward */
    float sums[S::gates], sum_n, sums_peep[3];
    uint32_t zones; /* persist_draws_early: what zoneout keeps of the step at hand, h: 1, c: 2; then of the next ones */
    persist_ahead<S> ahead;
};

/* Options, constants where the configuration has them. */
template <class S> PERSIST_FN int persist_options(const persist_args &a) {
    return S::options >= 0 ? (int)S::options : a.options;
}
/* By approximate instructions where what follows rounds coarser. */
template <class S> PERSIST_FN int persist_approximate(int act) {
    constexpr int tanh = S::math == PERSIST_BF16 ? (int)CELL_ACT_TANH_HALF : (int)CELL_ACT_TANH_FAST;
    constexpr int sigmoid = S::math == PERSIST_BF16 ? (int)CELL_ACT_SIGMOID_HALF : (int)CELL_ACT_SIGMOID_FAST;
    if (S::math == PERSIST_F32 || S::math == PERSIST_F32X3) return act;
    return act == CELL_ACT_TANH ? tanh : act == CELL_ACT_SIGMOID ? sigmoid : act;
}
template <class S> PERSIST_FN int persist_act(const persist_args &a) {
    return persist_approximate<S>(S::act >= 0 ? (int)S::act : a.act);
}
template <class S> PERSIST_FN int persist_gate_act(const persist_args &a) {
    return persist_approximate<S>(S::gate_act >= 0 ? (int)S::gate_act : a.gate_act);
}

/* Zoneout is drawn while the CTA waits for others, or for sums, from what is read once, before the steps: loads of a step would wait together with those
 * of the next one's inputs (bench/results/stalls_h200_2026-11-24.txt). */
template <class S>
constexpr bool persist_draws_early = S::options >= 0 && (S::options & (CELL_ZONEOUT_H | CELL_ZONEOUT_C)) != 0;

/* The draws of a lane's cells, one after the other: of a cell that of h, then that of c, where it has both. */
template <class S> struct persist_draws {
    static constexpr bool of_h = (S::options & CELL_ZONEOUT_H) != 0, of_c = (S::options & CELL_ZONEOUT_C) != 0;
    static constexpr int each = (int)of_h + (int)of_c, all = each * S::cells;
    static constexpr int steps = S::couriers > 0 || all > 2 ? 1 : 4 / all; /* at once, a draw for each of four lanes */
};
template <class S> PERSIST_FN bool persist_draw_is_c(int number) {
    return !persist_draws<S>::of_h || (persist_draws<S>::of_c && number % 2 == 1);
}

template <class S>
PERSIST_FN uint64_t persist_drawn_element(const persist_args &a, const persist_way &way, const persist_place &place, int s) {
    const uint64_t row = (uint64_t)(way.time + s * way.time_step) * (uint64_t)a.B + (uint64_t)place.row;
    return row * (uint64_t)persist_units<S>(a) + (uint64_t)place.unit;
}

/* Bit k: word k of the element's block of four says that the old value is kept. */
PERSIST_FN uint32_t persist_kept_block(const persist_way &way, const persist_scalars &from, uint64_t element, bool of_c) {
    const uint32_t stream = of_c ? way.zone_c.stream : way.zone_h.stream;
    const uint32_t threshold = of_c ? way.zone_c.threshold : way.zone_h.threshold;
    const sli_rng_words words = sli_philox(from.seed, (uint32_t)(element >> 2), from.step, stream, from.micro_step);
    uint32_t kept = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) kept |= (uint32_t)(words.word[k] < threshold) << k;
    return kept;
}

/* `bit`: of cell.zones. */
template <class S>
PERSIST_FN float persist_zone_weight(const persist_args &a, const persist_way &way, const persist_zone &zone,
                                     const persist_place &place, int s, const persist_cell<S> &cell, uint32_t bit) {
    if (!zone.draw) return zone.expected;
    if constexpr (persist_draws_early<S>) return cell.zones & bit ? 1.0f : 0.0f;
    const sli_rng rng = {a.scalars->seed, a.scalars->step, a.scalars->micro_step, zone.stream};
    return sli_rng_word(&rng, persist_drawn_element<S>(a, way, place, s)) < zone.threshold ? 1.0f : 0.0f;
}

/* Where the next step is read from, and where the next one is written to: pointers that move with the steps. */
struct persist_flow {
    const float *u, *old, *other;
    const void *dy;
    const uint8_t *flags;
    float *gates, *sn, *v, *c, *h;
    void *y;
    unsigned char *operand, *dr;
    int reads, writes; /* of a wave: the first layer's step there */
};

/* Number `at` of y or dy. */
template <class S> PERSIST_FN const void *persist_io(const void *tensor, int64_t at) {
    if constexpr (persist_narrow_io<S>) return static_cast<const uint16_t *>(tensor) + at;
    return static_cast<const float *>(tensor) + at;
}

template <class S> PERSIST_FN uint16_t persist_bits16(float x) {
    return (uint16_t)(S::math == PERSIST_BF16 ? ptx_pack_bf16(x, 0.0f) : ptx_pack_f16(x, 0.0f));
}
/* dy as it lies, which nobody waits for; and its number, where it is needed. */
template <class S> PERSIST_FN float persist_load_dy(const void *dy, uint32_t at) {
    if constexpr (persist_narrow_io<S>) return __uint_as_float(static_cast<const uint16_t *>(dy)[at]);
    return static_cast<const float *>(dy)[at];
}
template <class S> PERSIST_FN float persist_dy(float loaded) {
    if constexpr (!persist_narrow_io<S>) return loaded;
    const uint32_t bits = __float_as_uint(loaded);
    return S::math == PERSIST_BF16 ? __uint_as_float(bits << 16) : ptx_from_f16((uint16_t)bits);
}

PERSIST_FN persist_flow persist_flow_of(const persist_way &way) {
    persist_flow flow = {};
    flow.u = flow.gates = way.u;
    flow.flags = way.flags;
    flow.sn = way.sn;
    flow.v = way.v;
    flow.y = way.y;
    flow.c = way.c_to;
    flow.h = way.h_to;
    flow.operand = (unsigned char *)way.operand_to;
    flow.reads = flow.writes = way.wave_time;
    return flow;
}
template <class S> PERSIST_FN persist_flow persist_backward_flow_of(const persist_way &way) {
    persist_flow flow = {};
    flow.u = way.u;
    flow.flags = way.flags;
    flow.old = S::gates == 4 ? way.c_from : way.h_from;
    flow.other = S::gates != 4 ? way.sn : S::couriers > 0 && !way.v ? way.c_to : way.v;
    flow.dy = way.dy;
    flow.operand = (unsigned char *)way.dz;
    flow.dr = (unsigned char *)(S::before ? way.operand_to : way.dr);
    flow.reads = way.wave_time;
    return flow;
}

/* Index of a unit of a row in one step's memory of rows `stride` apart: 32 bits, which the host sees to. */
PERSIST_FN uint32_t persist_at(const persist_place &place, int stride) {
    return (uint32_t)(place.row * stride + place.unit);
}

/* Of a gate of a cell whose first gate is number `at`. In turns from a pointer to the first on, as instructions have room for what is constant, which takes
 * fewer of them (GRU of 1024 units, 256 rows, training 1.8% less); where one slice waits for the exchange, a pointer in registers is what takes longer. */
template <class S, class T> PERSIST_FN T *persist_gate(const persist_args &a, T *base, uint32_t at, int gate) {
    if constexpr (S::couriers > 0) return base + at + gate * persist_units<S>(a);
    return base + (at + (uint32_t)(gate * persist_units<S>(a)));
}

PERSIST_FN float persist_read(const float *from, uint32_t at) {
    return from ? from[at] : 0.0f;
}

/* A wave: where the first layer is at step `at`, the unit's layer is one step less for each layer between them; whether it has that step. */
template <class S> PERSIST_FN bool persist_on_wave(const persist_args &a, const persist_place &place, int at) {
    if constexpr (S::wave > 0) return (uint32_t)(at - place.unit / S::wave) < (uint32_t)a.wave_steps;
    return true;
}
/* ... and whether it is the last layer, whose h is y. */
template <class S> PERSIST_FN bool persist_has_y(const persist_args &a, const persist_place &place, int at) {
    if (!persist_has<S>(a, PERSIST_HAS_Y)) return false;
    if constexpr (S::wave > 0) return place.unit >= persist_units<S>(a) - S::wave && persist_on_wave<S>(a, place, at);
    return true;
}

template <class S>
PERSIST_FN uint32_t persist_flags(const persist_args &a, const persist_flow &flow, const persist_place &place) {
    const uint32_t all = PERSIST_VALID | PERSIST_SHOWN;
    if constexpr (S::wave > 0) {
        if (!persist_on_wave<S>(a, place, flow.reads)) return 0;
        return persist_has<S>(a, PERSIST_HAS_FLAGS) ? flow.flags[place.row - place.unit / S::wave * a.B] : all;
    }
    return persist_has<S>(a, PERSIST_HAS_FLAGS) ? flow.flags[place.row] : all;
}

template <class S>
PERSIST_FN cell_lstm_args persist_lstm_args(const persist_args &a, const persist_way &way, const persist_place &place,
                                            const persist_cell<S> &cell, int s, uint32_t flags) {
    const int options = persist_options<S>(a);
    cell_lstm_args args = {};
    args.peep_i = cell.peep[0];
    args.peep_f = cell.peep[1];
    args.peep_o = cell.peep[2];
    args.forget_bias = a.forget_bias;
    args.clip = a.clip;
    if (options & CELL_ZONEOUT_H) args.zone_h = persist_zone_weight<S>(a, way, way.zone_h, place, s, cell, 1u);
    if (options & CELL_ZONEOUT_C) args.zone_c = persist_zone_weight<S>(a, way, way.zone_c, place, s, cell, 2u);
    args.valid = flags & PERSIST_VALID ? 1.0f : 0.0f;
    return args;
}

/* zone_h and valid: all that the other cells are given. */
template <class S>
PERSIST_FN float persist_zone_h(const persist_args &a, const persist_way &way, const persist_place &place, int s,
                                const persist_cell<S> &cell) {
    return persist_options<S>(a) & CELL_ZONEOUT_H ? persist_zone_weight<S>(a, way, way.zone_h, place, s, cell, 1u)
                                                  : 0.0f;
}

/* ------------------------------------------------------------------------------------------------------ forward -- */
/* Where what steps read may lie beyond L2 (persist_args.far; in turns always), a step asks L2 for what one to come reads: forward u; backward gates, dy, c' or
 * h', v or s_n. Not backward in turns, where cells ask an item before, nor through a cluster in 32 bits, whose steps are longer: there asking took up
 * to 9% and 2% of a call. But LSTM in turns with 32 units a block and cells apart asks for gates: of 1024 units with 256 rows that saves 3 to 9%
 * (bench/results/far_h200_2026-11-29.txt). */
template <class S> struct persist_far {
    static constexpr bool turns = S::backward && S::couriers > 0, gates = S::gates == 4 && S::apart > 0 && S::units == 32;
    static constexpr bool wide_cluster = S::backward && S::couriers == 0 && S::gather != PERSIST_GRID && !S::narrow;
    static constexpr bool asks = S::inputs == 0 && /* whose u is in shared memory */ (!turns || gates) && !wide_cluster;
    static constexpr int wide = S::cell_units > 8 ? S::cell_units / 8 : 1, each = S::cell_rows * wide;
    static constexpr int matrices = S::gates + (!S::backward || turns ? 0 : S::gates == 1 ? 1 : 3);
};

enum { PERSIST_AHEAD = 4 }; /* steps before it is read, of which the last two have moved what is read next */

/* Matrix number `kind` of the step that is read next: its values of a row and unit, and how far it is to the step after; NULL: the step that is asked for does not
 * read it. */
template <class S>
PERSIST_FN const float *persist_far_from(const persist_args &a, const persist_way &way, const persist_flow &flow, int kind,
                                         int row, int unit, int *step) {
    const int units = persist_units<S>(a);
    *step = way.u_step;
    if (!S::backward || kind < S::gates) return flow.u + (uint32_t)(row * persist_us<S>(a) + kind * units + unit);
    if (kind == S::gates) {
        *step = persist_narrow_io<S> ? way.y_step / 2 : way.y_step; /* in floats */
        persist_place place = {};
        place.unit = unit;
        if (!persist_has_y<S>(a, place, flow.reads + (PERSIST_AHEAD - 2) * way.time_step) || (S::directions > 1 && !way.dy)) return nullptr;
        return static_cast<const float *>(persist_io<S>(flow.dy, (uint32_t)(row * way.y_row + unit)));
    }
    if (kind == S::gates + 1) {
        *step = S::gates == 4 ? way.c_step : way.h_step;
        return flow.old + (uint32_t)(row * (S::gates == 4 ? units : (int)way.h_row) + unit);
    }
    *step = S::gates == 4 ? way.v_step : way.sn_step;
    if (S::gates == 4 ? !persist_has<S>(a, PERSIST_HAS_V) : S::before) return nullptr;
    return flow.other + (uint32_t)(row * units + unit);
}

/* Of each matrix a warp's cells have at most 32 pieces of up to 8 units; a lane asks for one. */
template <class S>
PERSIST_FN void persist_prefetch(const persist_args &a, const persist_way &way, const persist_self &self,
                                 const persist_flow &flow, const persist_place &place, int s) {
    typedef persist_far<S> F;
    if constexpr (!F::asks) return;
    if ((S::couriers == 0 && !a.far) || s + PERSIST_AHEAD >= way.steps) return;
    const int row0 = place.row - self.lane % S::cell_lanes / S::cell_units, unit0 = place.unit - self.lane % S::cell_units;
#pragma unroll
    for (int first = 0; first < F::matrices * F::each; first += 32) {
        const int piece = first + self.lane, kind = piece / F::each;
        const int row = row0 + piece % S::cell_rows, unit = unit0 + piece / S::cell_rows % F::wide * 8;
        int step;
        const float *from = persist_far_from<S>(a, way, flow, kind, row, unit, &step);
        if (kind < F::matrices && row < a.B && unit < persist_units<S>(a) && from)
            ptx_prefetch(from + (PERSIST_AHEAD - 2) * (int64_t)step);
    }
}

/* Of a wave the first layer alone reads u, of steps that it has: u of others was multiplied by what x had at another step, padding for example. */
template <class S>
PERSIST_FN void persist_forward_ahead(const persist_args &a, const persist_flow &flow, const persist_place &place,
                                      const persist_cell<S> &cell, persist_ahead<S> &ahead) {
    const uint32_t of_u = persist_at(place, persist_us<S>(a));
    bool reads = true;
    if constexpr (S::wave > 0) {
        reads = place.unit < S::wave && persist_on_wave<S>(a, place, flow.reads);
#pragma unroll
        for (int g = 0; g < S::gates; g++) ahead.u[g] = cell.bias[g];
    }
    if (reads)
#pragma unroll
        for (int g = 0; g < S::gates; g++) {
            if constexpr (S::inputs > 0)
                ahead.u[g] = flow.u[persist_own_input<S>(place, g)];
            else
                ahead.u[g] = *persist_gate<S>(a, flow.u, of_u, g);
        }
    ahead.flags = persist_flags<S>(a, flow, place);
}

template <class S>
PERSIST_FN void persist_forward_begin(const persist_args &a, const persist_way &way, const persist_place &place,
                                      persist_cell<S> &cell) {
    cell = persist_cell<S>{};
    cell.factor = 1.0f;
    if (!place.there) return;
    cell.h = persist_read(way.h_from, persist_at(place, (int)way.h_row));
    cell.c = persist_read(way.c_from, persist_at(place, persist_units<S>(a)));
    if (way.factor) cell.factor = way.factor[persist_at(place, persist_units<S>(a))];
    if (way.bias_n) cell.bias_n = way.bias_n[place.unit];
    if constexpr (S::wave > 0)
        for (int g = 0; g < S::gates; g++) cell.bias[g] = persist_read(way.wave_bias, (uint32_t)(g * persist_units<S>(a) + place.unit));
    if (way.peep)
        for (int i = 0; i < 3; i++) cell.peep[i] = way.peep[(int64_t)i * persist_units<S>(a) + place.unit];
}

/* What goes to memory of a step: forward gates, v (LSTM) or s_n (GRU), the shown h; backward dz and n's part of dr. */
template <class S> struct persist_result { float gates[S::gates], other, y; };

/* Reset before the product, the first half of a cell: sum = R d h' of r. Leaves r in the place of its u; = r d h'. */
template <class S> PERSIST_FN float persist_reset_cell(const persist_args &a, float sum, persist_cell<S> &cell) {
    const float r = cell_gru_reset(persist_gate_act<S>(a), cell.ahead.u[0] + sum);
    cell.ahead.u[0] = r;
    return r * (cell.factor * cell.h);
}

/* The step's cell: sum = R d h' of its gates, with reset before the product of z alone, and R r d h' of n; the new state in `cell`. */
template <class S>
PERSIST_FN void persist_forward_cell(const persist_args &a, const persist_way &way, const persist_place &place, int s,
                                     const float (&sum)[S::sums_of_cell], persist_cell<S> &cell, persist_result<S> &result) {
    const int options = persist_options<S>(a), act = persist_act<S>(a), gate_act = persist_gate_act<S>(a);
    const persist_ahead<S> &in = cell.ahead;
    if constexpr (S::gates == 4) {
        const cell_lstm_gates z = {in.u[0] + sum[0], in.u[1] + sum[1], in.u[2] + sum[2], in.u[3] + sum[3]};
        const cell_lstm_forward_result r = cell_lstm_forward(options, act, gate_act, z, cell.c, cell.h,
                                                             persist_lstm_args<S>(a, way, place, cell, s, in.flags));
        result.gates[0] = r.gates.i;
        result.gates[1] = r.gates.f;
        result.gates[2] = r.gates.g;
        result.gates[3] = r.gates.o;
        cell.c = r.c;
        cell.h = r.h;
        result.other = r.v;
    } else if constexpr (S::gates == 3) {
        const cell_gru_args args = {persist_zone_h<S>(a, way, place, s, cell), in.flags & PERSIST_VALID ? 1.0f : 0.0f};
        cell_gru_pre pre = {in.u[0], in.u[1] + sum[1], in.u[2], sum[2]}; /* reset before: u[0] is r */
        if (!S::before) pre = {in.u[0] + sum[0], in.u[1] + sum[1], in.u[2], sum[2] + cell.bias_n};
        if constexpr (S::sums_of_cell == 4) pre.n += sum[3];
        const cell_gru_forward_result r = cell_gru_forward(options, act, gate_act, pre, cell.h, args);
        result.gates[0] = r.gates.r;
        result.gates[1] = r.gates.z;
        result.gates[2] = r.gates.n;
        cell.h = r.h;
        result.other = pre.s;
    } else {
        const cell_rnn_args args = {persist_zone_h<S>(a, way, place, s, cell), in.flags & PERSIST_VALID ? 1.0f : 0.0f};
        const cell_rnn_forward_result r = cell_rnn_forward(options, act, in.u[0] + sum[0], cell.h, args);
        result.gates[0] = r.q;
        cell.h = r.h;
    }
    result.y = in.flags & PERSIST_SHOWN ? cell.h : 0.0f;
    /* Else flags are loaded to another register than they have, and the loop, which moves them there, waits for memory in every step. */
    if (S::couriers == 0 && persist_has<S>(a, PERSIST_HAS_FLAGS)) ptx_before_loads(result.y);
}

/* Gates, s_n, v and the new state to memory. */
template <class S>
PERSIST_FN void persist_forward_put(const persist_args &a, const persist_way &way, const persist_flow &flow,
                                    const persist_place &place, const persist_cell<S> &cell,
                                    const persist_result<S> &result) {
    const uint32_t at = persist_at(place, persist_units<S>(a)), of_u = persist_at(place, persist_us<S>(a));
    if (persist_has<S>(a, PERSIST_HAS_GATES)) {
#pragma unroll
        for (int g = 0; g < S::gates; g++) *persist_gate<S>(a, flow.gates, of_u, g) = result.gates[g];
        if (S::gates == 3 && !S::before) flow.sn[at] = result.other;
    }
    if (S::gates == 4 && persist_has<S>(a, PERSIST_HAS_V)) flow.v[at] = result.other;
    if (persist_has_y<S>(a, place, flow.writes)) {
        if constexpr (persist_narrow_io<S>)
            static_cast<uint16_t *>(flow.y)[persist_at(place, way.y_row)] = persist_bits16<S>(result.y);
        else
            static_cast<float *>(flow.y)[persist_at(place, way.y_row)] = result.y;
    }
    if (S::gates == 4 && persist_has<S>(a, PERSIST_HAS_C)) flow.c[at] = cell.c;
    if (persist_has<S>(a, PERSIST_HAS_H)) flow.h[at] = cell.h;
}

/* to = d h of the lane's unit, operand [B][hs]. */
template <class S>
PERSIST_FN void persist_put_hidden(const persist_args &a, const persist_place &place, void *to, float x) {
    persist_put_operand<S>(a, place, to, persist_at(place, persist_hs<S>(a)), x, persist_hs<S>(a) - persist_units<S>(a));
}

template <class S> PERSIST_FN void persist_forward_read_on(const persist_way &way, persist_flow &flow) {
    if constexpr (S::inputs > 0)
        flow.u += persist_own_step<S>();
    else
        flow.u += way.u_step;
    flow.flags += way.flags_step;
    flow.reads += way.time_step;
}
template <class S> PERSIST_FN void persist_forward_write_on(const persist_way &way, persist_flow &flow) {
    flow.gates += way.u_step;
    flow.sn += way.sn_step;
    flow.v += way.v_step;
    flow.y = const_cast<void *>(persist_io<S>(flow.y, way.y_step));
    flow.c += way.c_step;
    flow.h += way.h_step;
    flow.operand += (int64_t)way.operand_step * S::stored;
    flow.writes += way.time_step;
}

/* The state after the last step, where not every step's was written. */
template <class S>
PERSIST_FN void persist_forward_end(const persist_args &a, const persist_way &way, const persist_place &place,
                                    const persist_cell<S> &cell) {
    const uint32_t at = persist_at(place, persist_units<S>(a));
    if (!persist_has<S>(a, PERSIST_HAS_OPERAND)) persist_put_hidden<S>(a, place, way.operand_to, cell.factor * cell.h);
    if (!place.there) return;
    if constexpr (S::wave > 0) {
        const int layer = place.unit / S::wave, own = place.row * S::wave + place.unit % S::wave;
        if (way.wave_h[layer]) way.wave_h[layer][own] = cell.h;
        if (S::gates == 4 && way.wave_c[layer]) way.wave_c[layer][own] = cell.c;
    }
    if (way.h_last) way.h_last[at] = cell.h;
    if (way.c_last) way.c_last[at] = cell.c;
    if (way.c_to && !persist_has<S>(a, PERSIST_HAS_C)) way.c_to[at] = cell.c;
    if (way.h_to && !persist_has<S>(a, PERSIST_HAS_H)) way.h_to[at] = cell.h;
}

/* ------------------------------------------------------------------------------------------------------ backward -- */
template <class S>
PERSIST_FN void persist_backward_ahead(const persist_args &a, const persist_way &way, const persist_flow &flow,
                                       const persist_place &place, persist_ahead<S> &ahead) {
    const uint32_t at = persist_at(place, persist_units<S>(a)), of_u = persist_at(place, persist_us<S>(a));
#pragma unroll
    for (int g = 0; g < S::gates; g++) ahead.u[g] = *persist_gate<S>(a, flow.u, of_u, g);
    if (S::gates == 4) {
        ahead.old = flow.old[at];
        if (S::couriers > 0 || persist_has<S>(a, PERSIST_HAS_V)) ahead.other = flow.other[at];
    } else if (S::gates == 3) {
        ahead.old = flow.old[persist_at(place, (int)way.h_row)];
        if (!S::before) ahead.other = flow.other[at];
    }
    ahead.flags = persist_flags<S>(a, flow, place);
    ahead.dy = 0.0f;
    if (persist_has_y<S>(a, place, flow.reads) && (S::directions == 1 || way.dy))
        ahead.dy = persist_load_dy<S>(flow.dy, persist_at(place, way.y_row));
}

/* In turns c is read where the step before read it as the old one: shared memory has no room to keep it. */
template <class S>
PERSIST_FN void persist_backward_read_on(const persist_args &a, const persist_way &way, persist_flow &flow) {
    flow.u += way.u_step;
    flow.flags += way.flags_step;
    if (S::gates == 4 && S::couriers > 0 && !persist_has<S>(a, PERSIST_HAS_V))
        flow.other = flow.old;
    else
        flow.other += S::gates == 4 ? way.v_step : way.sn_step;
    flow.old += S::gates == 4 ? way.c_step : way.h_step;
    flow.dy = persist_io<S>(flow.dy, way.y_step);
    flow.reads += way.time_step;
}
template <class S> PERSIST_FN void persist_backward_write_on(const persist_way &way, persist_flow &flow) {
    flow.operand += (int64_t)way.dz_step * S::operand;
    flow.dr += (int64_t)(S::before ? way.operand_step : way.dz_step) * S::operand;
}

template <class S>
PERSIST_FN void persist_backward_begin(const persist_args &a, const persist_way &way, const persist_place &place,
                                       persist_cell<S> &cell) {
    cell = persist_cell<S>{};
    cell.factor = 1.0f;
    if (!place.there) return;
    const uint32_t at = persist_at(place, persist_units<S>(a));
    if (way.factor) cell.factor = way.factor[at];
    if (way.peep)
        for (int i = 0; i < 3; i++) cell.peep[i] = way.peep[(int64_t)i * persist_units<S>(a) + place.unit];
    /* pw + d dp, which step 0 begins with; its own dp is then 0. */
    cell.pw = fmaf(cell.factor, persist_read(way.dp_from, persist_at(place, persist_hs<S>(a))), persist_read(way.pw_from, at));
    cell.dc = persist_read(way.dc_from, at);
    if (S::gates == 4 && S::couriers == 0 && !persist_has<S>(a, PERSIST_HAS_V)) cell.c = way.c_to[at];
}

/* to = one step's dz or dr, operand [B][zs]. */
template <class S>
PERSIST_FN void persist_backward_put(const persist_args &a, const persist_place &place, void *to,
                                     const float (&dz)[S::gates]) {
    typedef typename persist_bits<S::stores_narrow>::type type;
    const uint32_t at = persist_at(place, persist_zs<S>(a));
    if (place.there)
#pragma unroll
        for (int g = 0; g < S::gates - 1; g++) persist_store_operand<S>(persist_gate<S>(a, (type *)to, at, g), 0, dz[g]);
    persist_put_operand<S>(a, place, persist_gate<S>(a, (type *)to, at, S::gates - 1), 0, dz[S::gates - 1],
                           persist_zs<S>(a) - S::gates * persist_units<S>(a));
}

/* dh = (pw + d dp) + dy, dp = R^T dr of the step processed before; dz and dr of this step. */
template <class S>
PERSIST_FN void persist_backward_cell(const persist_args &a, const persist_way &way, const persist_place &place, int s,
                                      float dp, persist_cell<S> &cell, float (&dz)[S::gates], float (&dr)[S::sums_of_cell]) {
    const int options = persist_options<S>(a), act = persist_act<S>(a), gate_act = persist_gate_act<S>(a);
    const persist_ahead<S> &in = cell.ahead;
    /* In turns a lane's sums are of all its rows. */
    const auto counted = [&](float x) { return S::couriers == 0 || place.there ? x : 0.0f; };
    const float dh = fmaf(cell.factor, dp, cell.pw) + (in.flags & PERSIST_SHOWN ? persist_dy<S>(in.dy) : 0.0f);
    if constexpr (S::gates == 4) {
        const cell_lstm_gates gates = {in.u[0], in.u[1], in.u[2], in.u[3]};
        const float v = S::couriers > 0 || persist_has<S>(a, PERSIST_HAS_V) ? in.other : cell.c;
        const cell_lstm_backward_result r = cell_lstm_backward(options, act, gate_act, gates, v, in.old, dh, cell.dc,
                                                               persist_lstm_args<S>(a, way, place, cell, s, in.flags));
        dz[0] = r.dz.i;
        dz[1] = r.dz.f;
        dz[2] = r.dz.g;
        dz[3] = r.dz.o;
        cell.dc = r.dc_prev;
        cell.pw = r.dh_prev;
        cell.sums_peep[0] += counted(dz[0] * in.old);
        cell.sums_peep[1] += counted(dz[1] * in.old);
        cell.sums_peep[2] += counted(dz[3] * v);
        cell.c = in.old;
    } else if constexpr (S::gates == 3) {
        const cell_gru_args args = {persist_zone_h<S>(a, way, place, s, cell), in.flags & PERSIST_VALID ? 1.0f : 0.0f};
        const cell_gru_gates gates = {in.u[0], in.u[1], in.u[2]};
        const cell_gru_backward_result r = cell_gru_backward(options, act, gate_act, gates, in.other, in.old, dh, args);
        dz[0] = r.dz.r;
        dz[1] = r.dz.z;
        dz[2] = r.dz.n;
        dr[2] = r.ds_n;
        cell.sum_n += counted(r.ds_n);
        cell.pw = r.dh_prev;
    } else {
        const cell_rnn_args args = {persist_zone_h<S>(a, way, place, s, cell), in.flags & PERSIST_VALID ? 1.0f : 0.0f};
        const cell_rnn_backward_result r = cell_rnn_backward(options, act, in.u[0], dh, args);
        dz[0] = r.dz;
        cell.pw = r.dh_prev;
    }
#pragma unroll
    for (int g = 0; g < S::gates; g++) {
        if (S::gates != 3 || g != 2) dr[g] = dz[g];
        cell.sums[g] += counted(dz[g]);
    }
    if constexpr (S::sums_of_cell > S::gates) dr[S::gates] = dz[S::gates - 1];
    if (place.there) return;
#pragma unroll
    for (int g = 0; g < S::sums_of_cell; g++) dr[g] = 0.0f;
}

/* Reset before the product, the second half of a cell: e = R^T of n's gradient. = r's part of dz; `reset`: r d h'. */
template <class S>
PERSIST_FN float persist_backward_reset_cell(const persist_args &a, float e, persist_cell<S> &cell, float &reset) {
    const persist_ahead<S> &in = cell.ahead;
    const float r = in.u[0], dropped = cell.factor * in.old;
    const cell_gru_reset_backward_result result =
        cell_gru_reset_backward(persist_gate_act<S>(a), r, in.flags & PERSIST_VALID ? e : 0.0f, dropped);
    cell.pw += cell.factor * result.d_dropped;
    cell.sums[0] += result.dz_r;
    reset = r * dropped;
    return result.dz_r;
}

/* Sums over the steps of a chunk, at its end: = [chunk][B][...]; then they begin again. */
template <class S>
PERSIST_FN void persist_backward_sums(const persist_args &a, const persist_way &way, const persist_place &place,
                                      int chunk, persist_cell<S> &cell) {
    const int64_t row = (int64_t)chunk * a.B + place.row;
    if (place.there) {
        if (persist_has<S>(a, PERSIST_HAS_SUMS))
#pragma unroll
            for (int g = 0; g < S::gates; g++) way.sums[row * persist_us<S>(a) + (int64_t)g * persist_units<S>(a) + place.unit] = cell.sums[g];
        if (S::gates == 3 && !S::before && persist_has<S>(a, PERSIST_HAS_SUMS)) way.sums_n[row * persist_units<S>(a) + place.unit] = cell.sum_n;
        if (persist_has<S>(a, PERSIST_HAS_SUMS_PEEP))
#pragma unroll
            for (int i = 0; i < 3; i++)
                way.sums_peep[row * 3 * persist_units<S>(a) + (int64_t)i * persist_units<S>(a) + place.unit] = cell.sums_peep[i];
    }
#pragma unroll
    for (int g = 0; g < S::gates; g++) cell.sums[g] = 0.0f;
    cell.sum_n = 0.0f;
#pragma unroll
    for (int i = 0; i < 3; i++) cell.sums_peep[i] = 0.0f;
}

/* The gradient of the state before the last step, for the next launch, or for who wants it. */
template <class S>
PERSIST_FN void persist_backward_end(const persist_args &a, const persist_way &way, const persist_place &place,
                                     float dp, const persist_cell<S> &cell) {
    if (!place.there || !persist_has<S>(a, PERSIST_HAS_DP)) return;
    const uint32_t at = persist_at(place, persist_units<S>(a));
    way.dp_to[persist_at(place, persist_hs<S>(a))] = dp;
    if (way.pw_to) way.pw_to[at] = cell.pw;
    if (way.dc_to) way.dc_to[at] = cell.dc;
}

#endif
