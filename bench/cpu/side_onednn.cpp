// oneDNN as a side of compare.py, its versions 2 and 3: LSTM, GRU (LBR: reset after, as in PyTorch; option before: its other one) and RNN primitives. Weights are
// reordered into the formats that the primitives want before the clock starts; states begin at zero (given as
// such: without them version 2.6.3 gives a wrong gradient of the recurrent weights). Layers are one primitive
// where their inputs are as wide as their outputs, else the first is one of its own.
#include "sides.h"

#include <memory>
#include <omp.h>
#include <string>
#include <unordered_map>
#include <vector>

#include "dnnl.hpp"

using dnnl::memory;
using desc = memory::desc;
using tag = memory::format_tag;
using type = memory::data_type;
using arguments = std::unordered_map<int, memory>;

static dnnl::engine *engine;
static dnnl::stream *stream;
static const auto DIRECTION = dnnl::rnn_direction::unidirectional_left2right;

// Version 3 joined an operation's description and its primitive's.
template <class P, class... A> static typename P::primitive_desc describe(const A &...a) {
#if DNNL_VERSION_MAJOR >= 3
    return typename P::primitive_desc(*engine, a...);
#else
    return typename P::primitive_desc(typename P::desc(a...), *engine);
#endif
}
template <class P, class Hint, class... A>
static typename P::primitive_desc describe_backward(const Hint &hint, const A &...a) {
#if DNNL_VERSION_MAJOR >= 3
    return typename P::primitive_desc(*engine, a..., hint);
#else
    return typename P::primitive_desc(typename P::desc(a...), *engine, hint);
#endif
}

static memory zeros(const desc &d) {
    memory m(d, *engine);
    memset(m.get_data_handle(), 0, d.get_size());
    return m;
}
static memory reordered(memory &from, const desc &to) {
    if (from.get_desc() == to) return from;
    memory m = zeros(to);
    dnnl::reorder(from, m).execute(*stream, from, m);
    stream->wait();
    return m;
}
static float *floats(const memory &m) {
    return static_cast<float *>(m.get_data_handle());
}

// oneDNN's gates by place in ours: GRU u r o, ours r z n.
static int gate_of(const std::string &cell, int gate) {
    return cell == "gru" && gate < 2 ? 1 - gate : gate;
}

/* Layers `first` to first + l - 1 of the stack as one primitive. */
struct block {
    side_shape s;
    int first, l, inputs, gates, biases;
    type t;
    desc x, y, none, h0, c0, wl, wi, bias, dx, dy, dh0, dwl, dwi, d_bias; // those of weights with the format still open
    dnnl::primitive forward, backward;
    arguments forward_args, backward_args;
    memory src, dst, diff_src, diff_dst, diff_wl, diff_wi;
    std::string what;
    bool lbr; // reset after the product

    block(const side_shape &shape, int first_, int l_, int inputs_)
        : s(shape), first(first_), l(l_), inputs(inputs_),
          t(shape.dtype == std::string("f32") ? type::f32 : type::bf16) {
        const std::string cell = s.cell;
        gates = cell == "lstm" ? 4 : cell == "gru" ? 3 : 1;
        lbr = cell == "gru" && s.option != std::string("before");
        biases = lbr ? 4 : gates;
        const memory::dims state = {l, 1, s.b, s.h};
        const memory::dims in = {s.t, s.b, inputs}, out = {s.t, s.b, s.h}, k = {l, 1, inputs, gates, s.h},
                           r = {l, 1, s.h, gates, s.h}, b = {l, 1, biases, s.h};
        x = desc(in, t, tag::tnc), y = desc(out, t, tag::tnc);
        h0 = desc(state, t, tag::ldnc), c0 = dh0 = desc(state, type::f32, tag::ldnc);
        wl = desc(k, t, tag::any), wi = desc(r, t, tag::any), bias = desc(b, type::f32, tag::ldgo);
        dx = desc(in, type::f32, tag::tnc), dy = desc(out, type::f32, tag::tnc);
        dwl = desc(k, type::f32, tag::any), dwi = desc(r, type::f32, tag::any), d_bias = desc(b, type::f32, tag::ldgo);
    }

    // weights [l][inputs][gates][h] of ours [gates][h][inputs]
    memory weights(int seed, int depth) const {
        const int h = s.h;
        memory m = zeros(desc({l, 1, depth, gates, h}, type::f32, tag::ldigo));
        for (int layer = 0; layer < l; layer++)
            for (int i = 0; i < depth; i++)
                for (int g = 0; g < gates; g++)
                    for (int o = 0; o < h; o++)
                        floats(m)[((size_t(layer) * depth + i) * gates + g) * h + o] =
                            side_number((size_t(gate_of(s.cell, g)) * h + o) * depth + i, 10 * (first + layer) + seed,
                                        1 / std::sqrt(float(h)));
        return m;
    }
    memory biases_memory() const {
        const float scale = 1 / std::sqrt(float(s.h));
        memory m = zeros(bias);
        for (int layer = 0; layer < l; layer++)
            for (int g = 0; g < biases; g++)
                for (int o = 0; o < s.h; o++) {
                    const int ours = gate_of(s.cell, g < gates ? g : 2);
                    const uint32_t seed = 10 * (first + layer);
                    float &to = floats(m)[(size_t(layer) * biases + g) * s.h + o];
                    if (g < gates) to = side_number(size_t(ours) * s.h + o, seed + SEED_BIAS, scale);
                    if (lbr && (g < 2 || g == 3))
                        to += side_number(size_t(ours) * s.h + o, seed + SEED_RECURRENT_BIAS, scale);
                }
        return m;
    }

    template <class PD> void build_forward(const PD &pd) {
        memory k = weights(SEED_KERNEL, inputs), r = weights(SEED_RECURRENT, s.h);
        if (t != type::f32) { // a reorder changes the type or the blocking
            k = reordered(k, desc({l, 1, inputs, gates, s.h}, t, tag::ldigo));
            r = reordered(r, desc({l, 1, s.h, gates, s.h}, t, tag::ldigo));
        }
        forward_args = {{DNNL_ARG_SRC_LAYER, src},
                        {DNNL_ARG_SRC_ITER, zeros(h0)},
                        {DNNL_ARG_DST_LAYER, dst},
                        {DNNL_ARG_BIAS, biases_memory()},
                        {DNNL_ARG_WEIGHTS_LAYER, reordered(k, pd.weights_layer_desc())},
                        {DNNL_ARG_WEIGHTS_ITER, reordered(r, pd.weights_iter_desc())}};
        if (s.cell == std::string("lstm")) forward_args.insert({DNNL_ARG_SRC_ITER_C, zeros(c0)});
        if (is_training()) forward_args.insert({DNNL_ARG_WORKSPACE, zeros(pd.workspace_desc())});
        what = pd.impl_info_str();
        backward_args = forward_args;
        backward_weights = {k, r};
    }
    template <class PD> void build_backward(const PD &pd) {
        backward_args[DNNL_ARG_WEIGHTS_LAYER] = reordered(backward_weights[0], pd.weights_layer_desc());
        backward_args[DNNL_ARG_WEIGHTS_ITER] = reordered(backward_weights[1], pd.weights_iter_desc());
        diff_wl = zeros(pd.diff_weights_layer_desc()), diff_wi = zeros(pd.diff_weights_iter_desc());
        diff_src = zeros(dx);
        const arguments more = {{DNNL_ARG_DIFF_SRC_LAYER, diff_src},    {DNNL_ARG_DIFF_DST_LAYER, diff_dst},
                                {DNNL_ARG_DIFF_WEIGHTS_LAYER, diff_wl}, {DNNL_ARG_DIFF_WEIGHTS_ITER, diff_wi},
                                {DNNL_ARG_DIFF_BIAS, zeros(d_bias)},    {DNNL_ARG_DIFF_SRC_ITER, zeros(dh0)}};
        backward_args.insert(more.begin(), more.end());
        if (s.cell == std::string("lstm")) backward_args.insert({DNNL_ARG_DIFF_SRC_ITER_C, zeros(dh0)});
        what += std::string(" ") + pd.impl_info_str();
    }
    bool is_training() const { return s.mode == std::string("train"); }
    std::vector<memory> backward_weights;

    void build() {
        const auto kind = is_training() ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
        const auto back = dnnl::prop_kind::backward;
        const std::string cell = s.cell;
        if (cell == "lstm") {
            auto pd = describe<dnnl::lstm_forward>(kind, DIRECTION, x, h0, c0, wl, wi, bias, y, none, none);
            build_forward(pd), forward = dnnl::lstm_forward(pd);
            if (!is_training()) return;
            auto bd = describe_backward<dnnl::lstm_backward>(pd, back, DIRECTION, x, h0, c0, wl, wi, bias, y, none,
                                                             none, dx, dh0, dh0, dwl, dwi, d_bias, dy, none, none);
            build_backward(bd), backward = dnnl::lstm_backward(bd);
        } else if (cell == "gru" && !lbr) {
            auto pd = describe<dnnl::gru_forward>(kind, DIRECTION, x, h0, wl, wi, bias, y, none);
            build_forward(pd), forward = dnnl::gru_forward(pd);
            if (!is_training()) return;
            auto bd = describe_backward<dnnl::gru_backward>(pd, back, DIRECTION, x, h0, wl, wi, bias, y, none, dx, dh0, dwl,
                                                            dwi, d_bias, dy, none);
            build_backward(bd), backward = dnnl::gru_backward(bd);
        } else if (cell == "gru") {
            auto pd = describe<dnnl::lbr_gru_forward>(kind, DIRECTION, x, h0, wl, wi, bias, y, none);
            build_forward(pd), forward = dnnl::lbr_gru_forward(pd);
            if (!is_training()) return;
            auto bd = describe_backward<dnnl::lbr_gru_backward>(pd, back, DIRECTION, x, h0, wl, wi, bias, y, none, dx,
                                                                dh0, dwl, dwi, d_bias, dy, none);
            build_backward(bd), backward = dnnl::lbr_gru_backward(bd);
        } else {
            const auto act = dnnl::algorithm::eltwise_tanh;
            auto pd = describe<dnnl::vanilla_rnn_forward>(kind, act, DIRECTION, x, h0, wl, wi, bias, y, none);
            build_forward(pd), forward = dnnl::vanilla_rnn_forward(pd);
            if (!is_training()) return;
            auto bd = describe_backward<dnnl::vanilla_rnn_backward>(pd, back, act, DIRECTION, x, h0, wl, wi, bias, y,
                                                                    none, dx, dh0, dwl, dwi, d_bias, dy, none);
            build_backward(bd), backward = dnnl::vanilla_rnn_backward(bd);
        }
    }
};

static std::vector<std::unique_ptr<block>> blocks;

static void fill(memory &m, const desc &plain_desc, uint32_t seed) {
    memory plain = zeros(plain_desc);
    side_fill(floats(plain), plain.get_desc().get_size() / sizeof(float), seed, 1);
    dnnl::reorder(plain, m).execute(*stream, plain, m);
    stream->wait();
}

static void make(const side_shape &s) {
    const bool one = s.i == s.h || s.l == 1;
    blocks.emplace_back(new block(s, 0, one ? s.l : 1, s.i));
    if (!one) blocks.emplace_back(new block(s, 1, s.l - 1, s.h));
    for (size_t k = 0; k < blocks.size(); k++) {
        block &b = *blocks[k];
        b.src = k ? blocks[k - 1]->dst : zeros(b.x);
        b.dst = zeros(b.y);
    }
    fill(blocks[0]->src, blocks[0]->dx, SEED_X);
    for (size_t k = blocks.size(); k-- > 0;) {
        block &b = *blocks[k];
        b.diff_dst = k + 1 < blocks.size() ? blocks[k + 1]->diff_src : zeros(b.dy);
        if (k + 1 == blocks.size()) fill(b.diff_dst, b.dy, SEED_DY);
        b.build();
    }
}

static const char *side_open(const side_shape *s, const char **text) {
    static std::string what, why;
    blocks.clear();
    if (s->option != std::string("none") && s->option != std::string("before")) return "not in oneDNN";
    omp_set_num_threads(s->threads);
    try {
        make(*s);
    } catch (const dnnl::error &e) {
        blocks.clear();
        return (why = e.message).c_str();
    }
    const dnnl_version_t *v = dnnl_version();
    what = std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch) + " " +
           blocks[0]->what;
    *text = what.c_str();
    return nullptr;
}

static const char *side_call(void) {
    if (blocks.empty()) return "not open";
    for (auto &b : blocks) b->forward.execute(*stream, b->forward_args);
    for (size_t k = blocks.size(); k-- > 0 && blocks[k]->is_training();)
        blocks[k]->backward.execute(*stream, blocks[k]->backward_args);
    stream->wait();
    return nullptr;
}

static void tell(const char *name, memory &m, const desc &plain_desc) {
    memory plain = reordered(m, plain_desc);
    side_tell(name, floats(plain), plain.get_desc().get_size() / sizeof(float));
}
// A gradient [1][depth][gates][h] in our order [gates][h][depth]
static void tell_weights(const char *name, const block &b, memory &m, int depth) {
    const int h = b.s.h;
    memory plain = reordered(m, desc({b.l, 1, depth, b.gates, h}, type::f32, tag::ldigo));
    std::vector<float> ours(size_t(b.gates) * h * depth);
    for (int g = 0; g < b.gates; g++)
        for (int o = 0; o < h; o++)
            for (int i = 0; i < depth; i++)
                ours[(size_t(gate_of(b.s.cell, g)) * h + o) * depth + i] =
                    floats(plain)[(size_t(i) * b.gates + g) * h + o];
    printf(", ");
    side_tell(name, ours.data(), ours.size());
}

static void side_check(void) {
    if (blocks.empty()) return;
    block &b = *blocks[0];
    if (b.is_training())
        for (auto &each : blocks)
            for (memory *m : {&each->diff_wl, &each->diff_wi})
                memset(m->get_data_handle(), 0, m->get_desc().get_size());
    side_call();
    tell("y", blocks.back()->dst, blocks.back()->dy);
    if (!b.is_training()) return;
    printf(", ");
    tell("dx", b.diff_src, b.dx);
    tell_weights("d_kernel", b, b.diff_wl, b.inputs);
    tell_weights("d_recurrent", b, b.diff_wi, b.s.h);
}

static void side_close(void) {
    blocks.clear();
}

int main() {
    dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
    dnnl::stream queue(cpu);
    engine = &cpu, stream = &queue;
    const side_ops ops = {side_open, side_call, side_check, side_close};
    return side_loop(&ops);
}
