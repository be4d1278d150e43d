/* LSTM with projection on cuda:cluster and cuda:grid: the host's side, its products as loops and its kernels as they are, with the
 * recurrence of the folded problem as a loop. Against the reference: outputs, states, all gradients. In one span and in spans of
 * a chunk, in pieces, of fresh gradients and of others. Memory is NaN before each pass, and as large as it was booked. */
#include <math.h>
#include <string.h>
#include <algorithm>
#include <random>

#include "cases.h"
#include "operands.h"
#include "emulate.h"
#define ENGINE fold
#include "persist_engine_names.h"

namespace {

struct bench {
    sli_caps caps, cpu;
    const sli_call *call;
    uint64_t seed;
    int span, piece; /* chunks; 0: all */
    bool backward;
    int launches, lanes;
    std::vector<float> recurrent[2]; /* of a direction, as it was packed */
    std::string wrong;
} world;

void complain(const std::string &text) {
    if (world.wrong.empty()) world.wrong = text;
}

} // namespace
#include "persist_engine.h"
namespace fold_engine {
/* W and biases as the launch packs them, R as it is. */
void sli_persist_pack(const step_way *way, const sli_persist_pair *, const sli_persist_packed *, const void *recurrent,
                      int64_t row) {
    const sli_step_shape *s = &way->s;
    const float *bias = (const float *)way->param[SLI_RNN_BIAS],
                *more = (const float *)way->param[SLI_RNN_RECURRENT_BIAS];
    world.recurrent[way->part].clear();
    for (int64_t i = 0; i < s->GH * s->H; i++)
        world.recurrent[way->part].push_back(static_cast<const float *>(recurrent)[i / s->H * row + i % s->H]);
    if (s->copy_w)
        sli_step_rows(way->queue, way->stream, way->call->problem.dtype, way->weights + way->packed.kernel, s->xs, s->zs,
                      (const float *)way->param[SLI_RNN_KERNEL], s->GH, s->I, {});
    for (int64_t j = 0; j < s->GH; j++)
        ((float *)(way->weights + way->packed.bias))[j] = (bias ? bias[j] : 0) + (more ? more[j] : 0);
}
} // namespace fold_engine

/* ---------------------------------------------------------------------------------------------------- the recurrence -- */
namespace {

typedef std::vector<float> floats;

cell_lstm_args cell_args(const persist_args &a, const persist_way &w, int s, int64_t b, int64_t j, unsigned flags) {
    cell_lstm_args args = {};
    if (w.peep) args = {w.peep[j], w.peep[a.H + j], w.peep[2 * a.H + j], 0, 0, 0, 0, 0};
    args.forget_bias = a.forget_bias;
    args.clip = a.clip;
    args.valid = flags & SLI_STEP_VALID ? 1.0f : 0.0f;
    args.zone_c = w.zone_c.expected;
    if (w.zone_c.draw) {
        const sli_rng rng = {a.scalars->seed, a.scalars->step, a.scalars->micro_step, w.zone_c.stream};
        const int64_t t = w.time + (int64_t)s * w.time_step;
        args.zone_c = sli_rng_word(&rng, (uint64_t)((t * a.B + b) * a.H + j)) < w.zone_c.threshold ? 1.0f : 0.0f;
    }
    return args;
}
unsigned flags_at(const persist_way &w, int s, int64_t b) {
    return w.flags ? w.flags[(int64_t)s * w.flags_step + b] : (unsigned)(SLI_STEP_VALID | SLI_STEP_SHOWN);
}

void run_forward(const persist_args &a, const persist_way &w, const floats &R, sl_dtype math) {
    const int64_t B = a.B, H = a.H;
    floats h((size_t)(B * H)), c((size_t)(B * H));
    const size_t bytes = is_16_bit(math) ? 2 : 4;
    if (w.y || w.h_last) complain("the recurrence is asked for y, which is no m");
    for (int64_t b = 0; b < B; b++)
        for (int64_t j = 0; j < H; j++) {
            c[(size_t)(b * H + j)] = w.c_from[b * H + j];
            h[(size_t)(b * H + j)] = w.h_from ? w.h_from[b * w.h_row + j] : 0;
        }
    const void *read = w.operand_from;
    for (int s = 0; s < w.steps; s++) {
        void *to = (char *)w.operand_to + (int64_t)s * w.operand_step * (int64_t)bytes;
        for (int64_t b = 0; b < B; b++)
            for (int64_t j = 0; j < H; j++) {
                const size_t state = (size_t)(b * H + j);
                float *u = w.u + (int64_t)s * w.u_step + b * a.us + j, z[4];
                for (int g = 0; g < 4; g++) {
                    z[g] = u[g * H];
                    for (int64_t k = 0; k < H; k++)
                        z[g] += R[(size_t)((g * H + j) * H + k)] * operand(math, read, b * a.hs + k);
                }
                const cell_lstm_forward_result r =
                    cell_lstm_forward(a.options, a.act, a.gate_act, {z[0], z[1], z[2], z[3]}, c[state], h[state],
                                      cell_args(a, w, s, b, j, flags_at(w, s, b)));
                const float gates[4] = {r.gates.i, r.gates.f, r.gates.g, r.gates.o};
                for (int g = 0; g < 4 && a.form & PERSIST_HAS_GATES; g++) u[g * H] = gates[g];
                if (w.v) w.v[(int64_t)s * w.v_step + (int64_t)state] = r.v;
                c[state] = r.c;
                h[state] = r.h;
                w.c_to[(int64_t)s * w.c_step + (int64_t)state] = r.c;
                put_operand(math, to, b * a.hs + j, r.h);
                for (int64_t k = H; j + 1 == H && k < a.hs; k++) put_operand(math, to, b * a.hs + k, 0);
                if (w.h_to && s + 1 == w.steps) w.h_to[state] = r.h;
                if (w.c_last && s + 1 == w.steps) w.c_last[state] = r.c;
            }
        read = to;
    }
}

void run_backward(const persist_args &a, const persist_way &w, const floats &R, sl_dtype math) {
    const int64_t B = a.B, H = a.H;
    const size_t bytes = is_16_bit(math) ? 2 : 4;
    floats pw((size_t)(B * H)), dp(pw), dc(pw);
    for (int64_t b = 0; b < B; b++)
        for (int64_t j = 0; j < H; j++) {
            pw[(size_t)(b * H + j)] = w.pw_from ? w.pw_from[b * H + j] : 0;
            dp[(size_t)(b * H + j)] = w.dp_from ? w.dp_from[b * a.hs + j] : 0;
            dc[(size_t)(b * H + j)] = w.dc_from ? w.dc_from[b * H + j] : 0;
        }
    int chunk = 0, left = w.first_chunk;
    bool begins = true;
    for (int s = 0; s < w.steps; s++) {
        char *dz = (char *)w.dz + (int64_t)s * w.dz_step * (int64_t)bytes;
        for (int64_t b = 0; b < B; b++)
            for (int64_t j = 0; j < H; j++) {
                const size_t state = (size_t)(b * H + j);
                const float *u = w.u + (int64_t)s * w.u_step + b * a.us + j;
                const unsigned flags = flags_at(w, s, b);
                float dh = pw[state] + dp[state];
                if (w.dy && flags & SLI_STEP_SHOWN) dh += static_cast<const float *>(w.dy)[(int64_t)s * w.y_step + b * w.y_row + j];
                const float old = w.c_from[(int64_t)s * w.c_step + (int64_t)state];
                const float v =
                    w.v ? w.v[(int64_t)s * w.v_step + (int64_t)state] : w.c_to[(int64_t)s * w.c_step + (int64_t)state];
                const cell_lstm_backward_result r =
                    cell_lstm_backward(a.options, a.act, a.gate_act, {u[0], u[H], u[2 * H], u[3 * H]}, v, old, dh,
                                       dc[state], cell_args(a, w, s, b, j, flags));
                const float of[4] = {r.dz.i, r.dz.f, r.dz.g, r.dz.o}, peep[3] = {of[0] * old, of[1] * old, of[3] * v};
                for (int g = 0; g < 4; g++) {
                    put_operand(math, dz, b * a.zs + g * H + j, of[g]);
                    if (!w.sums) continue;
                    float *sum = w.sums + ((int64_t)chunk * B + b) * a.us + g * H + j;
                    *sum = begins ? of[g] : *sum + of[g];
                }
                for (int64_t k = 4 * H; j + 1 == H && k < a.zs; k++) put_operand(math, dz, b * a.zs + k, 0);
                for (int i = 0; i < 3 && w.sums_peep; i++) {
                    float *sum = w.sums_peep + ((int64_t)chunk * B + b) * 3 * H + i * H + j;
                    *sum = begins ? peep[i] : *sum + peep[i];
                }
                dc[state] = r.dc_prev;
                pw[state] = r.dh_prev;
            }
        for (int64_t b = 0; b < B; b++)
            for (int64_t j = 0; j < H; j++) {
                float sum = 0;
                for (int64_t k = 0; k < 4 * H; k++) sum += R[(size_t)(k * H + j)] * operand(math, dz, b * a.zs + k);
                dp[(size_t)(b * H + j)] = sum;
            }
        begins = --left == 0;
        if (begins) chunk++, left = w.chunk;
    }
    for (int64_t b = 0; b < B; b++)
        for (int64_t j = 0; j < H; j++) {
            if (w.dp_to) w.dp_to[b * a.hs + j] = dp[(size_t)(b * H + j)];
            if (w.pw_to) w.pw_to[b * H + j] = pw[(size_t)(b * H + j)];
            if (w.dc_to) w.dc_to[b * H + j] = dc[(size_t)(b * H + j)];
        }
}

} // namespace

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *, const void *, void **arguments) {
    const persist_args &a = *static_cast<const persist_args *>(arguments[0]);
    const sl_dtype math = world.call->problem.dtype;
    for (int d = 0; d < sli_problem_directions(&world.call->problem); d++) {
        floats R = world.recurrent[d];
        uint16_t bits;
        for (float &x : R)
            if (is_16_bit(math)) put_operand(math, &bits, 0, x), x = operand(math, &bits, 0);
        (world.backward ? run_backward : run_forward)(a, a.way[d], R, math);
    }
    world.launches++;
    return cudaSuccess;
}

/* --------------------------------------------------------------------------------------------------------- trials -- */
namespace {

struct memory { /* as booked, NaN, and a guard behind it */
    std::vector<unsigned char> bytes;
    size_t booked;
    explicit memory(size_t count) : bytes(count + 64, 0xff), booked(count) {}
    bool guarded() const {
        return std::all_of(bytes.begin() + (long)booked, bytes.end(), [](unsigned char c) { return c == 0xff; });
    }
};

struct results {
    std::vector<std::string> names;
    std::vector<floats> values;
    float *add(const std::string &name, size_t count, float before) {
        names.push_back(name);
        values.push_back(floats(count, before));
        return values.back().data();
    }
};

size_t param_size(const sli_problem &p, int k) {
    const size_t GH = (size_t)(4 * p.units), O = (size_t)sli_problem_output(&p), H = (size_t)p.units;
    const size_t sizes[SLI_PART_PARAMS] = {GH * (size_t)p.inputs,           GH * O,
                                           p.bias != SL_BIAS_NONE ? GH : 0, p.bias == SL_BIAS_DOUBLE ? GH : 0,
                                           p.peephole ? 3 * H : 0,          O * H};
    return sizes[k];
}

floats drawn(std::mt19937 &random, size_t count, double scale) {
    floats values(count + 1);
    for (float &v : values) v = (float)(scale * (2.0 * (double)(random() >> 8) / 16777216.0 - 1));
    return values;
}

struct layer { /* a call and what it is given */
    sli_call call = {};
    std::vector<floats> given;
    std::vector<int32_t> lengths;
    std::vector<uint8_t> mask;
    sli_scalars scalars = {};
    const float *dy, *dh, *dc;
};

/* Row 0 of a masked batch ends before it begins. */
void fill(layer *l, const sli_problem &p, int chunk) {
    std::mt19937 random(7);
    const size_t rows = (size_t)p.steps * (size_t)p.batch, O = (size_t)sli_problem_output(&p);
    l->given.reserve(32);
    const auto draw = [&](size_t count, double scale) {
        l->given.push_back(drawn(random, count, scale));
        return l->given.back().data();
    };
    for (int b = 0; b < p.batch; b++)
        l->lengths.push_back(b == 0 ? 0 : b == 1 ? p.steps : (int)(random() % (unsigned)p.steps));
    for (size_t i = 0; i < rows; i++) l->mask.push_back(i % (size_t)p.batch != 0 && random() % 4 != 0);
    for (int b = 1; b < 3 && b < p.batch; b++) l->mask[(size_t)b] = l->mask[rows - (size_t)b] = 0;
    l->scalars.seed = 11;
    sli_call &c = l->call;
    c.problem = p;
    c.planned = {p.batch, p.steps};
    c.chunk = chunk;
    c.total_steps = p.steps;
    c.training = p.train;
    c.scalars = &l->scalars;
    c.in[SLI_RNN_X] = draw(rows * (size_t)p.inputs, 1);
    c.in[SLI_RNN_LENGTHS] = l->lengths.data();
    c.in[SLI_RNN_MASK] = l->mask.data();
    c.in[SLI_RNN_H0] = draw((size_t)p.batch * O, 0.5);
    c.in[SLI_RNN_C0] = draw((size_t)(p.batch * p.units), 0.5);
    for (int k = 0; k < SLI_PART_PARAMS; k++)
        if (param_size(p, k) > 0) c.param[k] = draw(param_size(p, k), 0.4);
    l->dy = draw(rows * O, 1);
    l->dh = draw((size_t)p.batch * O, 1);
    l->dc = draw((size_t)(p.batch * p.units), 1);
}

struct how {
    const sli_kernel *row;
    bool fresh, given; /* gradients of parameters; d_out of states */
};

results compute(const sli_problem &p, int chunk, const how &h) {
    layer l;
    results r;
    sli_booking booking = {};
    fill(&l, p, chunk);
    const bool ours = h.row->device == SLI_DEVICE_CUDA;
    h.row->book(&p, ours ? &world.caps : &world.cpu, chunk, &booking);
    memory saved(booking.saved), packed(booking.packed), forward(booking.scratch_forward),
        backward(booking.scratch_backward);
    const size_t O = (size_t)sli_problem_output(&p), rows = (size_t)p.steps * (size_t)p.batch;
    sli_call call = l.call;
    call.saved = saved.bytes.data();
    call.packed = packed.bytes.data();
    call.scratch = forward.bytes.data();
    r.values.reserve(32);
    call.out[SLI_RNN_Y] = r.add("y", rows * O, NAN);
    call.out[SLI_RNN_HT] = r.add("h", (size_t)p.batch * O, NAN);
    call.out[SLI_RNN_CT] = r.add("c", (size_t)(p.batch * p.units), NAN);
    world.call = &call;
    world.backward = false;
    if (ours) fold_engine::pack(&call, SLI_PERSIST_KIND_CLUSTER);
    ours ? fold_engine::forward(&call, SLI_PERSIST_KIND_CLUSTER) : h.row->forward(&call);
    if (!p.train) return r;
    call.scratch = backward.bytes.data();
    call.d_out[SLI_RNN_Y] = l.dy;
    if (h.given) {
        call.d_out[SLI_RNN_HT] = l.dh;
        call.d_out[SLI_RNN_CT] = l.dc;
    } else if (!ours) {
        l.given.push_back(floats(rows * O + (size_t)(p.batch * p.units), 0));
        call.d_out[SLI_RNN_HT] = call.d_out[SLI_RNN_CT] = l.given.back().data();
    }
    call.d_in[SLI_RNN_X] = r.add("gradient of x", rows * (size_t)p.inputs, NAN);
    call.d_in[SLI_RNN_H0] = r.add("gradient of h0", (size_t)p.batch * O, 0.25f);
    call.d_in[SLI_RNN_C0] = r.add("gradient of c0", (size_t)(p.batch * p.units), NAN);
    call.accumulate = 1u << SLI_RNN_H0;
    for (int k = 0; k < SLI_PART_PARAMS; k++) {
        if (param_size(p, k) == 0) continue;
        call.d_param[k] = r.add("gradient of parameter " + std::to_string(k), param_size(p, k),
                                h.fresh && ours ? NAN
                                : h.fresh       ? 0.0f
                                                : 0.25f);
        if (h.fresh && ours) call.fresh[0] |= (uint8_t)(1u << k);
    }
    world.backward = true;
    ours ? fold_engine::backward(&call, SLI_PERSIST_KIND_CLUSTER) : h.row->backward(&call);
    if (!saved.guarded() || !packed.guarded() || !forward.guarded() || !backward.guarded())
        complain("memory beyond what was booked was written to");
    return r;
}

/* Within so much of the largest value. */
void close(const results &a, const results &b, double tolerance) {
    for (size_t k = 0; k < a.values.size() && world.wrong.empty(); k++) {
        double largest = 1e-3;
        for (const float y : b.values[k]) largest = fmax(largest, fabs((double)y));
        for (size_t i = 0; i < a.values[k].size() && world.wrong.empty(); i++)
            if (!(fabs((double)a.values[k][i] - (double)b.values[k][i]) <= tolerance * largest))
                complain(emulate_say("%s %zu is %g, not %g", a.names[k].c_str(), i, (double)a.values[k][i],
                                     (double)b.values[k][i]));
    }
}

const struct {
    const char *text;
    double tolerance;
} trials[] = {
    {"lstm:b5_t8_i3_h6_p3_f32_train", 1e-5},
    {"lstm:b4_t7_i5_h7_p9_f32_train+bias=double+clip=0.4+forget=1+lengths+peephole+reverse+zoneout_c=0.3", 1e-5},
    {"lstm:b4_t7_i5_h7_p3_tf32_train+act=softsign+mask=holes+maskout=repeat", 1e-5},
    {"lstm:b4_t7_i5_h6_p1_f32_train+lengths+maskout=repeat", 1e-5},
    {"lstm:b4_t8_i3_h9_p5_f32x3_train+bias=none+mask=holes+reverse", 1e-5},
    {"lstm:b6_t8_i3_h10_p5_bf16_train+lengths", 0.04},
    {"lstm:b5_t7_i3_h7_p9_f16_train", 0.005},
    {"lstm:b4_t7_i3_h7_p3_f32", 1e-5},
    {"lstm:b4_t7_i3_h8_p4_tf32+mask=holes+reverse", 1e-5},
    {"lstm:b4_t7_i3_h7_p5_bf16+lengths+maskout=repeat", 0.03},
};

const sli_kernel *reference() {
    for (const sli_kernel *const *row = sli_registry_get()->kernels; *row; row++)
        if ((*row)->op == SLI_OP_LSTM && strcmp((*row)->name, "ref") == 0) return *row;
    return nullptr;
}

std::string run_trial(const char *text, double tolerance, uint64_t seed) {
    enum { CHUNK = 3 };
    sli_problem p;
    sli_why why = {""};
    world = bench();
    world.seed = seed;
    world.caps.kind = SLI_DEVICE_CUDA;
    world.caps.compute_capability = 90;
    world.caps.multiprocessors = 132;
    world.caps.shared_memory = 227 << 10;
    world.caps.l2_bytes = 50 << 20;
    world.cpu.kind = SLI_DEVICE_CPU;
    world.cpu.threads = 1;
    if (sli_problem_parse(text, &p) != SL_OK) return sl_error_detail();
    if (!sli_cuda_lstm_cluster.eligible(&p, &world.caps, &why)) return why.text;
    sli_problem exact = p;
    exact.dtype = SL_F32;
    for (int variant = 0; variant < 4 && world.wrong.empty(); variant++) {
        world.span = variant == 2 ? 1 : variant == 3 ? 2 : 0;
        world.piece = variant == 1 ? 1 : 0;
        how ours = {&sli_cuda_lstm_cluster, variant % 2 == 0, variant != 1}, theirs = ours;
        theirs.row = reference();
        world.launches = 0;
        const results r = compute(p, CHUNK, ours);
        if (world.launches != (p.train ? 2 : 1) * (variant == 0 ? 1 : variant == 3 ? 2 : 3))
            complain("nothing was cut");
        close(r, compute(exact, CHUNK, theirs), tolerance);
        if (!world.wrong.empty()) world.wrong = emulate_say("variant %d: %s", variant, world.wrong.c_str());
    }
    return world.wrong;
}

} // namespace

EMULATE_CASE("fold: an LSTM with projection is one without, of R W_p, with products over time around it") {
    for (const auto &t : trials) {
        const std::string wrong = run_trial(t.text, t.tolerance, seed);
        if (!wrong.empty()) return emulate_say("%s: %s", t.text, wrong.c_str());
    }
    return "";
}
