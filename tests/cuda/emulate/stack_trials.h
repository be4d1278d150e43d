/* A stack of layers, by what a test tries and, layer by layer, by the reference: outputs, states, gradients. Included after `world`, with `random`,
 * `wrong`, `cpu` and `caps`, and complain(). */
#include <math.h>
#include <string.h>
#include <algorithm>
#include <random>
#include "backend/cuda/stack_layout.h"

namespace {

const sli_kernel *reference(sli_op op) {
    for (const sli_kernel *const *row = sli_registry_get()->kernels; *row; row++)
        if ((*row)->op == op && strcmp((*row)->name, "ref") == 0) return *row;
    return nullptr;
}

size_t param_size(const sli_problem &p, int k) {
    const size_t rows = (size_t)sli_op_gates(p.op) * (size_t)p.units, H = (size_t)p.units;
    if (k == SLI_RNN_KERNEL) return rows * (size_t)p.inputs;
    if (k == SLI_RNN_RECURRENT) return rows * H;
    if (k == SLI_RNN_BIAS) return p.bias == SL_BIAS_NONE ? 0 : rows;
    if (k == SLI_RNN_RECURRENT_BIAS) return p.bias == SL_BIAS_DOUBLE ? rows : 0;
    return k == SLI_RNN_PEEPHOLE && p.peephole ? 3 * H : 0;
}

/* The reference for this call, with its own scratch. It knows no fresh gradients. */
void compute(sli_call call, bool backward) {
    const sli_kernel *row = reference(call.problem.op);
    sli_booking booking = {};
    row->book(&call.problem, &world.cpu, call.chunk, &booking);
    std::vector<char> scratch((backward ? booking.scratch_backward : booking.scratch_forward) + 8);
    call.scratch = scratch.data();
    call.queue = nullptr;
    for (size_t k = 0; backward && k < SLI_PART_PARAMS; k++) {
        if (call.fresh[0] >> k & 1u)
            std::fill_n(static_cast<float *>(call.d_param[k]), param_size(call.problem, (int)k), 0.0f);
    }
    (backward ? row->backward : row->forward)(&call);
}

std::vector<char> saved_of(const sli_call &call) {
    sli_booking booking = {};
    reference(call.problem.op)->book(&call.problem, &world.cpu, call.chunk, &booking);
    return std::vector<char>(booking.saved + 8);
}

using floats = std::vector<float>;

floats drawn(size_t count, double scale) {
    floats values(count + 1);
    for (float &v : values) v = (float)(scale * ((double)(world.random() >> 11) * 0x1p-52 - 1));
    return values;
}
floats unset(size_t count) {
    return floats(count + 1, NAN);
}

struct trial {
    const char *text;
    int batch, steps;       /* of the call; 0: the plan's */
    bool without, adds, io; /* no y, no gradients of a layer's states; d_in +=; gradients of states in place */
    bool frozen,
        poisoned; /* no gradients of x, of the first layer's W, of the last one's biases; x is NaN where it is masked */
};

/* One layer's tensors, twice: the stack's and those of the reference. */
struct layer_data {
    floats param[SLI_PART_PARAMS], d_param[2][SLI_PART_PARAMS], in[2], out[2][2], d_out[2], d_in[2][2], y, dx;
};

void compare(double tolerance, const floats &a, const floats &b, size_t count, const std::string &what) {
    double scale = 1e-3;
    for (size_t i = 0; i < count; i++) scale = fmax(scale, fabs((double)b[i]));
    for (size_t i = 0; i < count; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= tolerance * scale))
            return complain(emulate_say("%s[%zu] is %g, not %g", what.c_str(), i, (double)a[i], (double)b[i]));
}

sli_caps trial_gpu() {
    sli_caps caps = {};
    caps.kind = SLI_DEVICE_CUDA;
    caps.compute_capability = 90;
    caps.multiprocessors = 132;
    caps.shared_memory = 227 << 10;
    caps.l2_bytes = 50 << 20;
    return caps;
}

/* What is tried, and how near it is to the reference, in parts of the largest value. */
struct trial_engine {
    sli_booking booking;
    int chunk;
    double tolerance;
    void (*pack)(const sli_call *); /* NULL: none */
    void (*forward)(const sli_call *);
    void (*backward)(const sli_call *);
};

/* A call of the whole stack, and what it is given. */
struct stack_case {
    const trial *t;
    sli_problem p;
    sli_call call;
    size_t L, rows, I, H, state;
    int states;
    std::vector<char> saved, packed, scratch, scratch_backward;
    floats x, y, dy, dx, dx_before;
    std::vector<int32_t> lengths;
    std::vector<uint8_t> mask;
    std::vector<layer_data> layers;
    bool frozen(size_t l, int k) const {
        return t->frozen && ((l == 0 && k == SLI_RNN_KERNEL) || (l + 1 == L && k == SLI_RNN_BIAS));
    }
};

void draw_inputs(stack_case *c) {
    const sli_problem &p = c->p;
    c->x = drawn(c->rows * c->I, 1);
    c->dy = drawn(c->rows * c->H, 1);
    c->dx = c->dx_before = drawn(c->rows * c->I, 1);
    c->y = unset(c->rows * c->H);
    c->lengths.resize((size_t)p.batch);
    c->mask.resize(c->rows + 1);
    for (int32_t &length : c->lengths) length = (int32_t)(world.random() % ((size_t)p.steps + 1));
    for (uint8_t &m : c->mask) m = world.random() % 4 != 0;
    const bool by_lengths = p.mask == SLI_MASK_LENGTHS;
    for (size_t i = 0; i < c->rows * c->I && c->t->poisoned; i++) {
        const size_t row = i / c->I, t = row / (size_t)p.batch;
        if (by_lengths ? (int32_t)t >= c->lengths[row % (size_t)p.batch] : c->mask[row] == 0) c->x[i] = NAN;
    }
    c->call.in[SLI_RNN_X] = c->x.data();
    if (by_lengths) c->call.in[SLI_RNN_LENGTHS] = c->lengths.data();
    if (!by_lengths && p.mask != SLI_MASK_NONE) c->call.in[SLI_RNN_MASK] = c->mask.data();
}

void draw_layer(stack_case *c, size_t l, bool fresh) {
    layer_data &d = c->layers[l];
    const trial &t = *c->t;
    const sli_problem part = sli_stack_part(&c->p, (int)l, c->p.steps);
    for (int k = 0; k < SLI_PART_PARAMS; k++) {
        const size_t size = param_size(part, k), at = l * SLI_PART_PARAMS + (size_t)k;
        if (size == 0) continue;
        d.param[k] = drawn(size, 0.3);
        d.d_param[0][k] = floats(size + 1, fresh ? NAN : 0.0f);
        d.d_param[1][k] = floats(size + 1);
        c->call.param[at] = d.param[k].data();
        if (c->frozen(l, k)) continue;
        if (fresh) c->call.fresh[l] |= (uint8_t)(1u << k);
        c->call.d_param[at] = d.d_param[0][k].data();
    }
    for (int k = 0; k < c->states; k++) {
        const int in = SLI_RNN_STATE_IN((int)l, k), out = SLI_RNN_STATE_OUT((int)l, k);
        d.in[k] = drawn(c->state, 0.5);
        d.out[0][k] = d.out[1][k] = unset(c->state);
        d.d_out[k] = drawn(c->state, 1);
        d.d_in[0][k] = t.io ? d.d_out[k] : t.adds ? floats(c->state + 1) : unset(c->state);
        d.d_in[1][k] = unset(c->state);
        c->call.in[in] = d.in[k].data();
        c->call.out[out] = d.out[0][k].data();
        if (t.without && l == 1) continue;
        c->call.d_out[out] = t.io ? d.d_in[0][k].data() : d.d_out[k].data();
        c->call.d_in[in] = d.d_in[0][k].data();
        if (t.adds && !t.io) c->call.accumulate |= 1u << in;
    }
}

/* The same layer by itself. */
sli_call alone_of(stack_case *c, size_t l) {
    layer_data &d = c->layers[l];
    const bool apart = c->t->without && l == 1;
    sli_call own = {};
    own.problem = sli_stack_part(&c->p, (int)l, c->p.steps);
    own.chunk = c->call.chunk;
    own.total_steps = c->p.steps;
    own.training = c->p.train;
    own.in[SLI_RNN_X] = l == 0 ? c->x.data() : c->layers[l - 1].y.data();
    own.in[SLI_RNN_LENGTHS] = c->call.in[SLI_RNN_LENGTHS];
    own.in[SLI_RNN_MASK] = c->call.in[SLI_RNN_MASK];
    d.y = unset(c->rows * c->H);
    d.dx = unset(c->rows * (l == 0 ? c->I : c->H));
    own.out[SLI_RNN_Y] = d.y.data();
    for (int k = 0; k < SLI_PART_PARAMS; k++) {
        own.param[k] = d.param[k].empty() ? nullptr : d.param[k].data();
        own.d_param[k] = d.param[k].empty() ? nullptr : d.d_param[1][k].data();
    }
    for (int k = 0; k < c->states; k++) {
        own.in[SLI_RNN_STATE_IN(0, k)] = d.in[k].data();
        own.out[SLI_RNN_STATE_OUT(0, k)] = d.out[1][k].data();
        own.d_out[SLI_RNN_STATE_OUT(0, k)] = apart ? nullptr : d.d_out[k].data();
        own.d_in[SLI_RNN_STATE_IN(0, k)] = d.d_in[1][k].data();
    }
    return own;
}

void backward_alone(stack_case *c, std::vector<sli_call> *alone, double tolerance) {
    for (size_t l = c->L; l-- > 0;) {
        layer_data &d = c->layers[l];
        const std::string of_layer = " of layer " + std::to_string(l);
        const float *last = c->t->without ? nullptr : c->dy.data();
        (*alone)[l].d_out[SLI_RNN_Y] = l + 1 < c->L ? c->layers[l + 1].dx.data() : last;
        (*alone)[l].d_in[SLI_RNN_X] = d.dx.data();
        compute((*alone)[l], true);
        for (int k = 0; k < SLI_PART_PARAMS; k++)
            if (!d.param[k].empty() && !c->frozen(l, k))
                compare(tolerance, d.d_param[0][k], d.d_param[1][k], d.param[k].size() - 1,
                        "gradient of parameter" + of_layer);
        for (int k = 0; k < c->states; k++)
            if (!(c->t->without && l == 1))
                compare(tolerance, d.d_in[0][k], d.d_in[1][k], c->state, "gradient of state" + of_layer);
    }
    if (c->t->frozen) return;
    floats expected = c->layers[0].dx;
    for (size_t i = 0; i < c->rows * c->I && c->t->adds; i++) expected[i] += c->dx_before[i];
    compare(tolerance, c->dx, expected, c->rows * c->I, "gradient of x");
}

stack_case case_of(const trial &t, const sli_problem &plan, bool fresh, const trial_engine &engine) {
    stack_case c = {};
    c.t = &t;
    c.p = plan;
    if (t.batch > 0) c.p.batch = t.batch;
    if (t.steps > 0) c.p.steps = t.steps;
    c.L = (size_t)c.p.layers;
    c.rows = (size_t)c.p.steps * (size_t)c.p.batch;
    c.I = (size_t)c.p.inputs;
    c.H = (size_t)c.p.units;
    c.state = (size_t)c.p.batch * c.H;
    c.states = sli_problem_states(&c.p);
    c.call.problem = c.p;
    c.call.planned = {plan.batch, plan.steps};
    c.call.chunk = engine.chunk;
    c.call.total_steps = c.p.steps;
    c.call.training = c.p.train;
    c.saved.assign(engine.booking.saved + 1, '\xff');
    c.packed.assign(engine.booking.packed + 1, '\xff');
    c.scratch.assign(engine.booking.scratch_forward + 1, '\xff');
    c.scratch_backward.assign(engine.booking.scratch_backward + 1, '\xff');
    draw_inputs(&c);
    c.layers.resize(c.L);
    for (size_t l = 0; l < c.L; l++) draw_layer(&c, l, fresh);
    return c;
}

std::string run_trial(const trial &t, const sli_problem &plan, uint64_t seed, const trial_engine &engine) {
    stack_case c = case_of(t, plan, seed % 2 == 1, engine);
    sli_call &call = c.call;
    call.saved = c.saved.data();
    call.packed = c.packed.data();
    call.scratch = c.scratch.data();
    call.out[SLI_RNN_Y] = t.without ? nullptr : c.y.data();
    if (engine.pack) engine.pack(&call);
    engine.forward(&call);

    std::vector<sli_call> alone;
    std::vector<std::vector<char>> saved(c.L);
    for (size_t l = 0; l < c.L; l++) {
        alone.push_back(alone_of(&c, l));
        saved[l] = saved_of(alone[l]);
        alone[l].saved = saved[l].data();
        compute(alone[l], false);
        for (int k = 0; k < c.states; k++)
            compare(engine.tolerance, c.layers[l].out[0][k], c.layers[l].out[1][k], c.state,
                    "state of layer " + std::to_string(l));
    }
    if (!t.without) compare(engine.tolerance, c.y, c.layers[c.L - 1].y, c.rows * c.H, "y");
    if (!c.p.train) return world.wrong;

    call.scratch = c.scratch_backward.data();
    call.d_out[SLI_RNN_Y] = t.without ? nullptr : c.dy.data();
    call.d_in[SLI_RNN_X] = t.frozen ? nullptr : c.dx.data();
    if (t.adds) call.accumulate |= 1u << SLI_RNN_X;
    engine.backward(&call);
    backward_alone(&c, &alone, engine.tolerance);
    return world.wrong;
}

/* All of them by `run`, which gives what is wrong, of a world that begins anew; "" or what is wrong with the first one. */
template <size_t count>
std::string run_trials(const trial (&trials)[count], uint64_t seed, std::string (*run)(const trial &, uint64_t)) {
    for (const trial &t : trials) {
        world.wrong.clear();
        world.cpu = {};
        world.caps = trial_gpu();
        const std::string wrong = run(t, seed);
        if (!wrong.empty()) return emulate_say("%s, b%d t%d: %s", t.text, t.batch, t.steps, wrong.c_str());
    }
    return "";
}

} // namespace
