/* What the persistent recurrence computes, as a loop: products in double of operands rounded as the kernel's, cells of src/cell. */
#include "persist_reference.h"

#include <string.h>
#include "backend/cuda/kernels/persist_sizes.cuh"
#include "cases.h"
#include "core/rng.h"
#include "emulate.h"

static const persist_scalars scalars = {0x123456789abcdefu, 7, 3};
static const float zone_weight = 0.3f;
enum { STREAM_H = 4 | 2 << 8, STREAM_C = 5 | 2 << 8 };

static uint32_t mix(uint64_t x) {
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 32;
    x *= 0xbf58476d1ce4e5b9u;
    return (uint32_t)(x >> 32);
}
/* `count` values of +-scale, another sequence for every `salt`. */
static std::vector<float> values(int64_t count, float scale, uint64_t salt) {
    std::vector<float> all((size_t)count);
    for (size_t i = 0; i < all.size(); i++)
        all[i] = scale * ((float)mix(salt * 1000003u + i) * (2.0f / 4294967296.0f) - 1.0f);
    return all;
}
static std::vector<float> poison(int64_t count) {
    return std::vector<float>((size_t)count, NAN);
}
static int64_t round_up(int64_t x, int64_t to) {
    return (x + to - 1) / to * to;
}

void persist_fill_args(persist_args *a, const persist_problem &p) {
    const int64_t each = p.math == PERSIST_BF16 || p.math == PERSIST_F16 ? 8 : 4, GH = (int64_t)p.gates * p.H;
    a->B = p.B;
    a->H = p.H;
    a->groups = p.groups;
    a->us = round_up(GH, 4) + (p.pad ? 4 : 0);
    a->hs = round_up(p.H, each);
    a->zs = round_up(GH, each);
    a->options = p.options;
    a->act = p.act;
    a->gate_act = p.gate_act;
    a->forget_bias = 0.75f;
    a->clip = 0.4f;
    a->scalars = &scalars;
}

int persist_form_of(const persist_args &a, int directions, bool backward, bool keep_gates) {
    const persist_way &way = a.way[0];
    int form = 0;
    if (way.flags) form |= PERSIST_HAS_FLAGS;
    if (way.lengths) form |= PERSIST_HAS_LENGTHS;
    for (int d = 0; d < directions; d++)
        if (backward ? a.way[d].dy != nullptr : a.way[d].y != nullptr) form |= PERSIST_HAS_Y;
    if (way.v) form |= PERSIST_HAS_V;
    if (a.delay != 0) form |= PERSIST_HAS_DELAY;
    if (backward) {
        if (way.sums) form |= PERSIST_HAS_SUMS;
        if (way.sums_peep) form |= PERSIST_HAS_SUMS_PEEP;
        if (way.dp_to) form |= PERSIST_HAS_DP;
        return form;
    }
    if (keep_gates) form |= PERSIST_HAS_GATES;
    if (way.c_to && way.c_step != 0) form |= PERSIST_HAS_C;
    if (way.h_to && way.h_step != 0) form |= PERSIST_HAS_H;
    if (way.operand_step != 0) form |= PERSIST_HAS_OPERAND;
    return form;
}

int persist_direction::longest() const {
    int longest = 0;
    for (const int32_t length : lengths) longest = length > longest ? length : longest;
    return longest;
}

static bool is_narrow(int math) {
    return math == PERSIST_BF16 || math == PERSIST_F16;
}
static float rounded_as(int math, float x) {
    switch (math) {
    case PERSIST_BF16:
        return emulate::from_bf16(emulate::to_bf16(x));
    case PERSIST_F16:
        return emulate::from_f16(emulate::to_f16(x));
    case PERSIST_TF32:
        return __uint_as_float(emulate::to_tf32(__float_as_uint(x)));
    default:
        return x;
    }
}
float persist_direction::rounded(float x) const {
    return rounded_as(p.math, x);
}
/* As tensor cores read what nobody has rounded: of tf32 the low bits are not there. */
static float read_as(int math, float x) {
    return math == PERSIST_TF32 ? __uint_as_float(__float_as_uint(x) & ~0x1FFFu) : rounded_as(math, x);
}
bool persist_direction::narrow() const {
    return is_narrow(p.math);
}
/* Operands in memory: 16-bit, or floats as they are. */
static void put_operand(int math, std::vector<uint32_t> *to, int64_t index, float x) {
    if (!is_narrow(math)) {
        (*to)[(size_t)index] = __float_as_uint(x);
        return;
    }
    const uint16_t bits = (uint16_t)(math == PERSIST_BF16 ? emulate::to_bf16(x) : emulate::to_f16(x));
    memcpy((unsigned char *)to->data() + 2 * index, &bits, sizeof bits);
}
void persist_direction::put(std::vector<uint32_t> *to, int64_t index, float x) const {
    put_operand(p.math, to, index, x);
}
float persist_direction::get(const std::vector<uint32_t> &from, int64_t index) const {
    if (!narrow()) return __uint_as_float(from[(size_t)index]);
    uint16_t bits;
    memcpy(&bits, (const unsigned char *)from.data() + 2 * index, sizeof bits);
    return p.math == PERSIST_BF16 ? emulate::from_bf16(bits) : emulate::from_f16(bits);
}

persist_direction::persist_direction(const persist_problem &problem, int direction) : p(problem) {
    persist_args a = {};
    persist_fill_args(&a, p);
    H = p.H;
    B = p.B;
    T = p.T;
    GH = H * p.gates;
    us = a.us;
    hs = a.hs;
    zs = a.zs;
    y_row = H * p.directions + p.pad;
    h_row = p.backward ? H + p.pad : H;
    reverse = p.reverse != (direction == 1);
    time_step = reverse != p.backward ? -1 : 1;
    time = time_step > 0 ? 0 : T - 1;
    x_at = direction;
    keep_v = p.options & (CELL_ZONEOUT_C | CELL_MASK);
    const uint64_t salt = 100 * (uint64_t)(direction + 1);
    const float of_r = p.larger * 1.5f / sqrtf((float)H);
    r = values(GH * H, of_r, salt + 1);
    u = values(T * B * us, 1.0f, salt + 2);
    bias_n = values(H, 0.3f, salt + 3);
    peep = values(3 * H, 0.5f, salt + 4);
    factor = values(B * H, 1.0f, salt + 5);
    for (float &x : factor) x = x > -0.4f ? 1.0f / 0.7f : 0.0f;
    dy = values(T * B * y_row, 1.0f, salt + 6);
    sn = poison(T * B * H);
    v = poison(T * B * H);
    c = poison((T + 1) * B * H);
    h = poison((T + 1) * B * h_row);
    y = poison(T * B * y_row);
    h_last = poison(B * H);
    c_last = poison(B * H);
    operand.assign((size_t)((T + 1) * B * hs), 0xffffffffu);
    dz.assign((size_t)(T * B * zs), 0xffffffffu);
    dr = dz;
    resets.assign((size_t)(T * B * hs), 0xffffffffu);
    for (int64_t t = 0; t < T; t++)
        for (int64_t b = 0; b < B; b++)
            for (int64_t j = GH; j < us; j++) u[(size_t)((t * B + b) * us + j)] = NAN;
    if (p.inputs > 0) make_inputs(salt);
    if (p.lengths) {
        for (int64_t b = 0; b < B; b++) {
            const int64_t most = b / 8 % 2 ? T - 2 : T;
            lengths.push_back(
                b % 5 == 4 ? 0 : (int32_t)(1 + mix(salt + (uint64_t)b * 77) % (uint64_t)(most > 0 ? most : 1)));
        }
        for (int64_t t = 0; t < T; t++)
            for (int64_t b = 0; b < B; b++) {
                const bool valid = t < lengths[(size_t)b], shown = valid || b % 3 == 0;
                flags.push_back((uint8_t)((valid ? PERSIST_VALID : 0) | (shown ? PERSIST_SHOWN : 0)));
            }
    }
    /* The states that step 0 of forward enters from. */
    const int64_t first = reverse ? T : 0;
    const std::vector<float> c0 = values(B * H, 0.5f, salt + 8);
    h0 = values(B * H, p.states, salt + 7);
    for (int64_t b = 0; b < B; b++)
        for (int64_t j = 0; j < hs; j++) {
            const float d = p.dropout && j < H ? factor[(size_t)(b * H + j)] : 1.0f;
            put(&operand, (first * B + b) * hs + j, j < H ? d * h0[(size_t)(b * H + j)] : 0.0f);
            if (j >= H) continue;
            h[(size_t)((first * B + b) * h_row + j)] = h0[(size_t)(b * H + j)];
            c[(size_t)((first * B + b) * H + j)] = c0[(size_t)(b * H + j)];
        }
    if (!p.backward) return;
    time_step = -time_step;
    time = T - 1 - time;
    forward(true);
    time_step = -time_step;
    time = T - 1 - time;
    pw_from = values(B * H, 0.5f, salt + 9);
    dp_from = values(B * hs, 0.5f, salt + 10);
    dc_from = values(B * H, 0.5f, salt + 11);
    pw_to = poison(B * H);
    dp_to = poison(B * hs);
    dc_to = poison(B * H);
    const int64_t begin = p.first_chunk ? p.first_chunk : p.chunk,
                  chunks = T <= begin ? 1 : 1 + (T - begin + p.chunk - 1) / p.chunk;
    sums = poison(chunks * B * us);
    sums_n = poison(chunks * B * H);
    sums_peep = poison(chunks * B * 3 * H);
}

/* u = W x + b; behind a row of W there are zeros. */
void persist_direction::make_inputs(uint64_t salt) {
    const int64_t I = p.inputs, row = p.inputs_row;
    x = values(T * B * I + x_at, 1.0f, salt + 12);
    input_bias = values(GH, 0.5f, salt + 13);
    const std::vector<float> w = values(GH * I, 1.5f / sqrtf((float)I), salt + 14);
    kernel.assign((size_t)(GH * row), 0u);
    for (int64_t i = 0; i < GH; i++)
        for (int64_t k = 0; k < I; k++) put_operand(p.inputs_math, &kernel, i * row + k, w[(size_t)(i * I + k)]);
    for (int64_t column = 0; column < T * B; column++)
        for (int64_t i = 0; i < GH; i++) {
            double sum = input_bias[(size_t)i];
            for (int64_t k = 0; k < I; k++)
                sum += (double)read_as(p.inputs_math, x[(size_t)(x_at + column * I + k)]) *
                       (double)read_as(p.inputs_math, w[(size_t)(i * I + k)]);
            u[(size_t)(column * us + i)] = (float)sum;
        }
}

void persist_direction::fill(persist_way *way) {
    const bool lstm = p.gates == 4, gru = p.gates == 3, kept = p.history || p.backward;
    const int64_t first = time, sign = time_step;
    memset(way, 0, sizeof *way);
    way->steps = p.T;
    way->chunk = p.chunk;
    way->first_chunk = p.first_chunk ? p.first_chunk : p.chunk;
    way->flags = p.lengths ? flags.data() + first * B : nullptr;
    way->flags_step = sign * B;
    way->lengths = p.lengths ? lengths.data() : nullptr;
    way->time = time;
    way->time_step = time_step;
    way->factor = p.dropout ? factor.data() : nullptr;
    way->peep = p.options & CELL_PEEPHOLE ? peep.data() : nullptr;
    way->zone_h = {zone_weight, sli_drop_threshold(zone_weight), STREAM_H, p.draws};
    way->zone_c = {zone_weight, sli_drop_threshold(zone_weight), STREAM_C, p.draws};
    way->u = u.data() + first * B * us;
    way->u_step = sign * B * us;
    if (p.inputs > 0) {
        u.assign(u.size(), NAN);
        way->x = x.data() + x_at + first * B * p.inputs;
        way->x_step = (int)(sign * B * p.inputs);
        way->x_steps = (int)T;
        way->kernel = kernel.data();
        way->input_bias = input_bias.data();
    }
    way->sn = gru && !before() && kept ? sn.data() + first * B * H : nullptr;
    way->sn_step = sign * B * H;
    way->bias_n = gru && !before() ? bias_n.data() : nullptr;
    way->v = lstm && kept && keep_v ? v.data() + first * B * H : nullptr;
    way->v_step = sign * B * H;
    way->c_from = lstm ? c.data() + entering(first) * B * H : nullptr;
    way->c_to = lstm ? c.data() + leaving(first) * B * H : nullptr;
    way->c_step = kept ? sign * B * H : 0;
    way->operand_step = kept ? sign * B * hs : 0;
    way->h_from = h.data() + entering(first) * B * h_row;
    way->h_row = h_row;
    way->h_step = kept ? sign * B * h_row : 0;
    way->y_row = y_row;
    way->y_step = sign * B * y_row;
    if (!p.backward) {
        unsigned char *operands = (unsigned char *)operand.data();
        const int64_t slot = B * hs * (narrow() ? 2 : 4);
        if (kept || p.dropout) /* else the kernel makes h an operand */
            way->operand_from = operands + entering(first) * slot;
        else
            way->h_enters = h0.data();
        way->operand_to = operands + leaving(first) * slot;
        way->h_to = h.data() + leaving(first) * B * H;
        way->y = y.data() + first * B * y_row;
        way->h_last = h_last.data();
        way->c_last = lstm ? c_last.data() : nullptr;
        return;
    }
    const int64_t rows = first * B * zs * (narrow() ? 2 : 4);
    way->dy = dy.data() + first * B * y_row;
    way->pw_from = p.options & ~CELL_RESET_BEFORE ? pw_from.data() : nullptr;
    way->dp_from = p.T > 1 ? dp_from.data() : nullptr;
    way->dc_from = lstm && p.options ? dc_from.data() : nullptr;
    if (!p.ends) {
        way->pw_to = pw_to.data();
        way->dp_to = dp_to.data();
        way->dc_to = lstm ? dc_to.data() : nullptr;
    }
    way->dz = (unsigned char *)dz.data() + rows;
    way->dr = gru && !before() ? (unsigned char *)dr.data() + rows : nullptr;
    if (before()) {
        way->operand_to = (unsigned char *)resets.data() + first * B * hs * (narrow() ? 2 : 4);
        way->operand_step = sign * B * hs;
    }
    way->dz_step = sign * B * zs;
    way->sums = sums.data();
    way->sums_n = gru && !before() ? sums_n.data() : nullptr;
    way->sums_peep = p.options & CELL_PEEPHOLE ? sums_peep.data() : nullptr;
}

uint8_t persist_direction::flags_of(int64_t t, int64_t b) const {
    return p.lengths ? flags[(size_t)(t * B + b)] : (uint8_t)(PERSIST_VALID | PERSIST_SHOWN);
}
float persist_direction::zone(bool of_c, int64_t t, int64_t b, int64_t j) const {
    if (!p.draws) return zone_weight;
    const sli_rng rng = {scalars.seed, scalars.step, scalars.micro_step, (uint32_t)(of_c ? STREAM_C : STREAM_H)};
    return sli_rng_word(&rng, (uint64_t)((t * B + b) * H + j)) < sli_drop_threshold(zone_weight) ? 1.0f : 0.0f;
}
cell_lstm_args persist_direction::lstm_args(int64_t t, int64_t b, int64_t j) const {
    cell_lstm_args args = {};
    args.peep_i = peep[(size_t)j];
    args.peep_f = peep[(size_t)(H + j)];
    args.peep_o = peep[(size_t)(2 * H + j)];
    args.forget_bias = 0.75f;
    args.clip = 0.4f;
    args.zone_h = zone(false, t, b, j);
    args.zone_c = zone(true, t, b, j);
    args.valid = flags_of(t, b) & PERSIST_VALID ? 1.0f : 0.0f;
    return args;
}

/* ------------------------------------------------------------------------------------------------------ forward -- */
void persist_direction::forward_cell(int64_t t, int64_t b, int64_t j, const float *sum, bool history, float *state_c,
                                     float *state_h) {
    float *of_u = &u[(size_t)((t * B + b) * us + j)], gates[4];
    const float valid = flags_of(t, b) & PERSIST_VALID ? 1.0f : 0.0f;
    const size_t index = (size_t)((t * B + b) * H + j);
    if (p.gates == 4) {
        const cell_lstm_gates z = {of_u[0] + sum[0], of_u[H] + sum[1], of_u[2 * H] + sum[2], of_u[3 * H] + sum[3]};
        const cell_lstm_forward_result q =
            cell_lstm_forward(p.options, p.act, p.gate_act, z, *state_c, *state_h, lstm_args(t, b, j));
        gates[0] = q.gates.i;
        gates[1] = q.gates.f;
        gates[2] = q.gates.g;
        gates[3] = q.gates.o;
        *state_c = q.c;
        *state_h = q.h;
        if (history && keep_v) v[index] = q.v;
    } else if (p.gates == 3) {
        const cell_gru_args args = {zone(false, t, b, j), valid};
        cell_gru_pre pre = {of_u[0] + sum[0], of_u[H] + sum[1], of_u[2 * H], sum[2] + bias_n[(size_t)j]};
        if (before()) { /* sum[0] is r */
            pre.r = sum[0];
            pre.s = sum[2];
        }
        const cell_gru_forward_result q = cell_gru_forward(p.options, p.act, p.gate_act, pre, *state_h, args);
        gates[0] = q.gates.r;
        gates[1] = q.gates.z;
        gates[2] = q.gates.n;
        *state_h = q.h;
        if (history && !before()) sn[index] = pre.s;
    } else {
        const cell_rnn_args args = {zone(false, t, b, j), valid};
        const cell_rnn_forward_result q = cell_rnn_forward(p.options, p.act, of_u[0] + sum[0], *state_h, args);
        gates[0] = q.q;
        *state_h = q.h;
    }
    if (history)
        for (int g = 0; g < p.gates; g++) of_u[g * H] = gates[g];
}

/* sums[b][g][j] of gates [gate, gate + gates) = R read */
void persist_direction::multiply(const std::vector<float> &weights, const std::vector<float> &read, int gate, int gates,
                                 std::vector<float> *sums) const {
    for (int64_t b = 0; b < B; b++)
        for (int64_t row = gate * H; row < (gate + gates) * H; row++) {
            double exact = 0;
            for (int64_t i = 0; i < H; i++)
                exact += (double)weights[(size_t)(row * H + i)] * (double)read[(size_t)(b * H + i)];
            (*sums)[(size_t)(b * GH + row)] = (float)exact;
        }
}

/* Reset before: `all`'s sums of r become r, those of n R_n (r d h'). */
void persist_direction::reset(int64_t t, const std::vector<float> &state_h, const std::vector<float> &weights,
                              std::vector<float> *all) {
    std::vector<float> q((size_t)(B * H));
    for (int64_t b = 0; b < B; b++)
        for (int64_t j = 0; j < H; j++) {
            float *of_r = &(*all)[(size_t)(b * GH + j)];
            *of_r = cell_gru_reset(p.gate_act, u[(size_t)((t * B + b) * us + j)] + *of_r);
            const size_t index = (size_t)(b * H + j);
            q[index] = rounded(*of_r * ((p.dropout ? factor[index] : 1.0f) * state_h[index]));
        }
    multiply(weights, q, 2, 1, all);
}

void persist_direction::forward(bool history) {
    std::vector<float> state_h((size_t)(B * H)), state_c((size_t)(B * H)), read((size_t)(B * H)), weights = r;
    std::vector<float> sums_of((size_t)(B * GH));
    for (float &x : weights) x = rounded(x);
    const int64_t from = entering(at(0));
    for (int64_t b = 0; b < B; b++)
        for (int64_t j = 0; j < H; j++) {
            state_h[(size_t)(b * H + j)] = h[(size_t)((from * B + b) * h_row + j)];
            state_c[(size_t)(b * H + j)] = c[(size_t)((from * B + b) * H + j)];
            read[(size_t)(b * H + j)] = rounded(get(operand, (from * B + b) * hs + j));
        }
    for (int64_t s = 0; s < T; s++) {
        const int64_t t = at(s), last = s + 1 == T, to = leaving(history ? t : at(0));
        multiply(weights, read, 0, before() ? 2 : p.gates, &sums_of);
        if (before()) reset(t, state_h, weights, &sums_of);
        for (int64_t b = 0; b < B; b++)
            for (int64_t j = 0; j < H; j++) {
                float sum[4];
                for (int g = 0; g < p.gates; g++) sum[g] = sums_of[(size_t)(b * GH + g * H + j)];
                const size_t index = (size_t)(b * H + j);
                forward_cell(t, b, j, sum, history, &state_c[index], &state_h[index]);
            }
        for (int64_t b = 0; b < B; b++)
            for (int64_t j = 0; j < H; j++) {
                const size_t index = (size_t)(b * H + j);
                const float dropped = p.dropout ? factor[index] * state_h[index] : state_h[index];
                read[index] = rounded(dropped);
                y[(size_t)((t * B + b) * y_row + j)] = flags_of(t, b) & PERSIST_SHOWN ? state_h[index] : 0.0f;
                if (last) h_last[index] = state_h[index];
                if (last && p.gates == 4) c_last[index] = state_c[index];
                if (!history && !last) continue;
                if (p.gates == 4) c[(size_t)((to * B + b) * H + j)] = state_c[index];
                h[(size_t)((to * B + b) * h_row + j)] = state_h[index];
                put(&operand, (to * B + b) * hs + j, dropped);
                if (j + 1 == H)
                    for (int64_t k = H; k < hs; k++) put(&operand, (to * B + b) * hs + k, 0.0f);
            }
    }
}

/* ----------------------------------------------------------------------------------------------------- backward -- */
void persist_direction::backward_cell(int64_t t, int64_t b, int64_t j, float dh, float *dc, float *pw, float *to_dz,
                                      float *to_dr, float *of_peep) {
    const float *of_u = &u[(size_t)((t * B + b) * us + j)];
    const size_t index = (size_t)((t * B + b) * H + j);
    const float valid = flags_of(t, b) & PERSIST_VALID ? 1.0f : 0.0f;
    if (p.gates == 4) {
        const float old = c[(size_t)((entering(t) * B + b) * H + j)];
        const float of_v = keep_v ? v[index] : c[(size_t)((leaving(t) * B + b) * H + j)];
        const cell_lstm_gates gates = {of_u[0], of_u[H], of_u[2 * H], of_u[3 * H]};
        const cell_lstm_backward_result q =
            cell_lstm_backward(p.options, p.act, p.gate_act, gates, of_v, old, dh, *dc, lstm_args(t, b, j));
        to_dz[0] = q.dz.i;
        to_dz[1] = q.dz.f;
        to_dz[2] = q.dz.g;
        to_dz[3] = q.dz.o;
        *dc = q.dc_prev;
        *pw = q.dh_prev;
        of_peep[0] = to_dz[0] * old;
        of_peep[1] = to_dz[1] * old;
        of_peep[2] = to_dz[3] * of_v;
    } else if (p.gates == 3) {
        const float old = h[(size_t)((entering(t) * B + b) * h_row + j)];
        const cell_gru_gates gates = {of_u[0], of_u[H], of_u[2 * H]};
        const cell_gru_args args = {zone(false, t, b, j), valid};
        const cell_gru_backward_result q =
            cell_gru_backward(p.options, p.act, p.gate_act, gates, sn[index], old, dh, args);
        to_dz[0] = q.dz.r;
        to_dz[1] = q.dz.z;
        to_dz[2] = q.dz.n;
        *pw = q.dh_prev;
        to_dr[2] = q.ds_n;
    } else {
        const cell_rnn_args args = {zone(false, t, b, j), valid};
        const cell_rnn_backward_result q = cell_rnn_backward(p.options, p.act, of_u[0], dh, args);
        to_dz[0] = q.dz;
        *pw = q.dh_prev;
    }
    for (int g = 0; g < p.gates; g++)
        if (p.gates != 3 || g != 2) to_dr[g] = to_dz[g];
}

/* of [B][gates + 4][H]: dz, n's part of dr, peepholes; begins again. */
void persist_direction::chunk_sums(int64_t chunk, std::vector<double> *of) {
    for (int64_t b = 0; b < B; b++)
        for (int64_t j = 0; j < H; j++) {
            const int64_t row = chunk * B + b;
            double *all = of->data() + b * (p.gates + 4) * H + j;
            for (int g = 0; g < p.gates; g++) sums[(size_t)(row * us + g * H + j)] = (float)all[g * H];
            if (p.gates == 3 && !before()) sums_n[(size_t)(row * H + j)] = (float)all[3 * H];
            for (int i = 0; i < 3 && p.options & CELL_PEEPHOLE; i++)
                sums_peep[(size_t)(row * 3 * H + i * H + j)] = (float)all[(p.gates + 1 + i) * H];
        }
    of->assign(of->size(), 0.0);
}

/* Reset before: what e = R_n^T dz_n gives, dz of r and what d h' has of it; and r d h'. */
void persist_direction::backward_reset(int64_t t, const std::vector<float> &weights, std::vector<float> *read,
                                       std::vector<float> *pw, std::vector<double> *of_chunk) {
    for (int64_t b = 0; b < B; b++)
        for (int64_t j = 0; j < H; j++) {
            double e = 0;
            for (int64_t i = 2 * H; i < GH; i++)
                e += (double)weights[(size_t)(i * H + j)] * (double)(*read)[(size_t)(b * GH + i)];
            const size_t index = (size_t)(b * H + j);
            const float d = p.dropout ? factor[index] : 1.0f, of_r = u[(size_t)((t * B + b) * us + j)];
            const float dropped = d * h[(size_t)((entering(t) * B + b) * h_row + j)];
            const cell_gru_reset_backward_result q = cell_gru_reset_backward(
                p.gate_act, of_r, flags_of(t, b) & PERSIST_VALID ? (float)e : 0.0f, dropped);
            (*pw)[index] += d * q.d_dropped;
            put(&dz, (t * B + b) * zs + j, q.dz_r);
            put(&resets, (t * B + b) * hs + j, of_r * dropped);
            for (int64_t k = H; k < hs && j + 1 == H; k++) put(&resets, (t * B + b) * hs + k, 0.0f);
            (*read)[(size_t)(b * GH + j)] = rounded(q.dz_r);
            (*of_chunk)[(size_t)(b * (p.gates + 4) * H + j)] += q.dz_r;
        }
}

/* dp = R^T of what is read; of r and z alone, reset before. */
void persist_direction::backward() {
    const int64_t width = p.gates + 4;
    std::vector<float> pw((size_t)(B * H)), dc((size_t)(B * H)), dp((size_t)(B * H)), read((size_t)(B * GH)),
        weights = r;
    std::vector<double> of_chunk((size_t)(B * width * H), 0.0);
    for (float &x : weights) x = rounded(x);
    for (int64_t b = 0; b < B; b++)
        for (int64_t j = 0; j < H; j++) {
            const size_t index = (size_t)(b * H + j);
            pw[index] = p.options & ~CELL_RESET_BEFORE ? pw_from[index] : 0.0f;
            dc[index] = p.options ? dc_from[index] : 0.0f;
            dp[index] = T > 1 ? dp_from[(size_t)(b * hs + j)] : 0.0f;
        }
    int64_t left = p.first_chunk ? p.first_chunk : p.chunk, chunk = 0;
    for (int64_t s = 0; s < T; s++) {
        const int64_t t = at(s);
        for (int64_t b = 0; b < B; b++)
            for (int64_t j = 0; j < H; j++) {
                const size_t index = (size_t)(b * H + j);
                float dh = pw[index] + (p.dropout ? factor[index] : 1.0f) * dp[index], of_dz[4], of_dr[4],
                      of_peep[3] = {0};
                if (flags_of(t, b) & PERSIST_SHOWN) dh += dy[(size_t)((t * B + b) * y_row + j)];
                backward_cell(t, b, j, dh, &dc[index], &pw[index], of_dz, of_dr, of_peep);
                double *all = of_chunk.data() + b * width * H + j;
                for (int g = 0; g < p.gates; g++) {
                    put(&dz, (t * B + b) * zs + g * H + j, of_dz[g]);
                    if (p.gates == 3 && !before()) put(&dr, (t * B + b) * zs + g * H + j, of_dr[g]);
                    read[(size_t)(b * GH + g * H + j)] = rounded(of_dr[g]);
                    all[g * H] += of_dz[g];
                }
                all[p.gates * H] += of_dr[p.gates - 1];
                for (int i = 0; i < 3; i++) all[(p.gates + 1 + i) * H] += of_peep[i];
            }
        for (int64_t b = 0; b < B; b++)
            for (int64_t k = GH; k < zs; k++) {
                put(&dz, (t * B + b) * zs + k, 0.0f);
                if (p.gates == 3 && !before()) put(&dr, (t * B + b) * zs + k, 0.0f);
            }
        if (before()) backward_reset(t, weights, &read, &pw, &of_chunk);
        for (int64_t b = 0; b < B; b++)
            for (int64_t j = 0; j < H; j++) {
                double exact = 0;
                for (int64_t i = 0; i < (before() ? 2 * H : GH); i++)
                    exact += (double)weights[(size_t)(i * H + j)] * (double)read[(size_t)(b * GH + i)];
                dp[(size_t)(b * H + j)] = (float)exact;
            }
        if (--left == 0 || s + 1 == T) {
            chunk_sums(chunk++, &of_chunk);
            left = p.chunk;
        }
    }
    for (int64_t b = 0; b < B && !p.ends; b++)
        for (int64_t j = 0; j < H; j++) {
            const size_t index = (size_t)(b * H + j);
            dp_to[(size_t)(b * hs + j)] = dp[index];
            pw_to[index] = pw[index];
            if (p.gates == 4) dc_to[index] = dc[index];
        }
}

void persist_direction::compute() {
    if (p.backward)
        backward();
    else
        forward(p.history);
}

/* --------------------------------------------------------------------------------------------------- comparison -- */
/* A piece has 8 units at most. */
std::string persist_direction::asked(const std::set<const float *> &ahead, int first) const {
    struct matrix { const char *name; const std::vector<float> *of; int64_t row, count, at; } all[] = {
        {"u", &u, us, GH, 0}, {"dy", &dy, y_row, H, 0}, {"c", &c, H, H, 1}, {"h", &h, h_row, H, 1}, {"v", &v, H, H, 0}, {"s_n", &sn, H, H, 0}};
    const bool read[] = {true, p.backward, p.backward && p.gates == 4, p.backward && p.gates == 3, p.backward && p.gates == 4 && keep_v,
                         p.backward && p.gates == 3 && !before()};
    for (size_t m = 0; m < sizeof all / sizeof *all; m++)
        for (int64_t s = first; s < T && read[m]; s++)
            for (int64_t b = 0; b < B; b++)
                for (int64_t j = 0; j < all[m].count; j++) {
                    const int64_t t = all[m].at ? entering(at(s)) : at(s), back = j % H < 8 ? j % H : 7;
                    const float *value = all[m].of->data() + (t * B + b) * all[m].row + j;
                    const auto before_it = ahead.upper_bound(value);
                    if (before_it == ahead.begin() || *std::prev(before_it) < value - back)
                        return emulate_say("nobody asked ahead for %s of step %d, row %d, value %d", all[m].name, (int)s, (int)b, (int)j);
                }
    for (const float *from : ahead) {
        bool found = false;
        for (size_t m = 0; m < sizeof all / sizeof *all; m++)
            found |= read[m] && from >= all[m].of->data() && from < all[m].of->data() + all[m].of->size();
        if (!found) return "what was asked for ahead is nothing that steps read";
    }
    return "";
}

std::string persist_direction::compare(const persist_direction &expected) const {
    static const float tolerances[5] = {2e-5f, 1.5e-3f, 1.2e-2f, 1.5e-3f, 2e-5f}; /* by math */
    const float tolerance = tolerances[p.math];
    std::string wrong;
    int count = 0;
    const auto one = [&](const char *name, int64_t row_length, int64_t index, float x, float y_) {
        const bool same = x == y_ || (p.overflows && !isfinite(x)) || (isnan(x) && isnan(y_)) || fabsf(x - y_) <= tolerance * (1.0f + fabsf(y_));
        if (same || ++count > 12) return;
        const int64_t row = index / row_length;
        wrong += emulate_say("\n      %s, step %ld row %ld value %ld: %g, not %g", name, (long)(row / B),
                             (long)(row % B), (long)(index % row_length), x, y_);
    };
    const auto all = [&](const char *name, const std::vector<float> &x, const std::vector<float> &y_,
                         int64_t row_length, bool of_valid) {
        for (size_t i = 0; i < x.size(); i++) {
            const int64_t row = (int64_t)i / row_length;
            if (of_valid && !(flags_of(row / B, row % B) & PERSIST_VALID)) continue; /* not stated */
            one(name, row_length, (int64_t)i, x[i], y_[i]);
        }
    };
    const auto operands = [&](const char *name, const std::vector<uint32_t> &x, const std::vector<uint32_t> &y_,
                              int64_t row_length) {
        for (int64_t i = 0; i < (int64_t)x.size(); i++) one(name, row_length, i, get(x, i), get(y_, i));
    };
    if (p.inputs == 0) all("gates", u, expected.u, us, true);
    all("s_n", sn, expected.sn, H, true);
    all("v", v, expected.v, H, true);
    all("c", c, expected.c, H, false);
    all("h", h, expected.h, h_row, false);
    operands("operand", operand, expected.operand, hs);
    all("y", y, expected.y, y_row, false);
    all("h_last", h_last, expected.h_last, H, false);
    all("c_last", c_last, expected.c_last, H, false);
    operands("dz", dz, expected.dz, zs);
    operands("dr", dr, expected.dr, zs);
    operands("r d h'", resets, expected.resets, hs);
    const auto sums_of = [&](const char *name, const std::vector<float> &x, const std::vector<float> &y_,
                             int64_t row_length) {
        if (!p.together) return all(name, x, y_, row_length, false);
        for (int64_t at = 0; at < (int64_t)x.size();
             at += at % row_length + 1 < row_length ? 1 : (B - 1) * row_length + 1) {
            double given = 0, wanted = 0;
            for (int64_t b = 0; b < B; b++) {
                given += x[(size_t)(at + b * row_length)];
                wanted += y_[(size_t)(at + b * row_length)];
            }
            one(name, row_length, at, (float)given, (float)wanted);
        }
    };
    sums_of("sums", sums, expected.sums, us);
    sums_of("sums_n", sums_n, expected.sums_n, H);
    sums_of("sums_peep", sums_peep, expected.sums_peep, 3 * H);
    all("pw_to", pw_to, expected.pw_to, H, false);
    all("dp_to", dp_to, expected.dp_to, hs, false);
    all("dc_to", dc_to, expected.dc_to, H, false);
    return count ? emulate_say("%d values differ:", count) + wrong : "";
}

std::vector<std::vector<float> *> persist_direction::floats() {
    return {&u, &sn, &v, &c, &h, &y, &h_last, &c_last, &pw_to, &dp_to, &dc_to, &sums, &sums_n, &sums_peep};
}
bool persist_direction::same(persist_direction *other) {
    const std::vector<std::vector<float> *> x = floats(), y_ = other->floats();
    for (size_t i = 0; i < x.size(); i++)
        if (!x[i]->empty() && memcmp(x[i]->data(), y_[i]->data(), x[i]->size() * sizeof(float)) != 0) return false;
    return operand == other->operand && dz == other->dz && dr == other->dr && resets == other->resets;
}
