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

std::string run_trial(const trial &t, const sli_problem &plan, uint64_t seed, const trial_engine &engine) {
    sli_problem p = plan;
    if (t.batch > 0) p.batch = t.batch;
    if (t.steps > 0) p.steps = t.steps;
    const size_t L = (size_t)p.layers, rows = (size_t)p.steps * (size_t)p.batch, I = (size_t)p.inputs;
    const size_t H = (size_t)p.units, state = (size_t)p.batch * H;
    const int states = sli_problem_states(&p);
    const bool fresh = seed % 2 == 1;
    sli_call call = {};
    call.problem = p;
    call.planned = {plan.batch, plan.steps};
    call.chunk = engine.chunk;
    call.total_steps = p.steps;
    call.training = p.train;

    std::vector<char> saved(engine.booking.saved + 1, '\xff'), scratch(engine.booking.scratch_forward + 1, '\xff');
    std::vector<char> scratch_backward(engine.booking.scratch_backward + 1, '\xff');
    call.saved = saved.data();
    call.scratch = scratch.data();
    std::vector<char> packed(engine.booking.packed + 1, '\xff');
    call.packed = packed.data();
    const floats x = drawn(rows * I, 1), dy = drawn(rows * H, 1), dx_before = drawn(rows * I, 1);
    std::vector<int32_t> lengths((size_t)p.batch);
    std::vector<uint8_t> mask(rows + 1);
    for (int32_t &length : lengths) length = (int32_t)(world.random() % ((size_t)p.steps + 1));
    for (uint8_t &m : mask) m = world.random() % 4 != 0;
    call.in[SLI_RNN_X] = x.data();
    if (p.mask == SLI_MASK_LENGTHS) call.in[SLI_RNN_LENGTHS] = lengths.data();
    if (p.mask != SLI_MASK_LENGTHS && p.mask != SLI_MASK_NONE) call.in[SLI_RNN_MASK] = mask.data();
    floats y = unset(rows * H), dx = dx_before;
    std::vector<layer_data> layers(L);
    for (size_t l = 0; l < L; l++) {
        layer_data &d = layers[l];
        const sli_problem part = sli_stack_part(&p, (int)l, p.steps);
        for (int k = 0; k < SLI_PART_PARAMS; k++) {
            const size_t size = param_size(part, k), at = l * SLI_PART_PARAMS + (size_t)k;
            if (size == 0) continue;
            d.param[k] = drawn(size, 0.3);
            d.d_param[0][k] = floats(size + 1, fresh ? NAN : 0.0f);
            d.d_param[1][k] = floats(size + 1);
            if (fresh) call.fresh[l] |= (uint8_t)(1u << k);
            call.param[at] = d.param[k].data();
            call.d_param[at] = d.d_param[0][k].data();
        }
        for (int k = 0; k < states; k++) {
            const int in = SLI_RNN_STATE_IN((int)l, k), out = SLI_RNN_STATE_OUT((int)l, k);
            d.in[k] = drawn(state, 0.5);
            d.out[0][k] = d.out[1][k] = unset(state);
            d.d_out[k] = drawn(state, 1);
            d.d_in[0][k] = t.io ? d.d_out[k] : t.adds ? floats(state + 1) : unset(state);
            d.d_in[1][k] = unset(state);
            call.in[in] = d.in[k].data();
            call.out[out] = d.out[0][k].data();
            if (t.without && l == 1) continue;
            call.d_out[out] = t.io ? d.d_in[0][k].data() : d.d_out[k].data();
            call.d_in[in] = d.d_in[0][k].data();
            if (t.adds && !t.io) call.accumulate |= 1u << in;
        }
    }
    call.out[SLI_RNN_Y] = t.without ? nullptr : y.data();
    if (engine.pack) engine.pack(&call);
    engine.forward(&call);

    std::vector<sli_call> alone(L);
    std::vector<std::vector<char>> alone_saved(L);
    for (size_t l = 0; l < L; l++) {
        layer_data &d = layers[l];
        sli_call &own = alone[l];
        own = {};
        own.problem = sli_stack_part(&p, (int)l, p.steps);
        own.chunk = call.chunk;
        own.total_steps = p.steps;
        own.training = p.train;
        own.in[SLI_RNN_X] = l == 0 ? x.data() : layers[l - 1].y.data();
        own.in[SLI_RNN_LENGTHS] = call.in[SLI_RNN_LENGTHS];
        own.in[SLI_RNN_MASK] = call.in[SLI_RNN_MASK];
        d.y = unset(rows * H);
        d.dx = unset(rows * (l == 0 ? I : H));
        own.out[SLI_RNN_Y] = d.y.data();
        for (int k = 0; k < SLI_PART_PARAMS; k++) {
            own.param[k] = d.param[k].empty() ? nullptr : d.param[k].data();
            own.d_param[k] = d.param[k].empty() ? nullptr : d.d_param[1][k].data();
        }
        for (int k = 0; k < states; k++) {
            own.in[SLI_RNN_STATE_IN(0, k)] = d.in[k].data();
            own.out[SLI_RNN_STATE_OUT(0, k)] = d.out[1][k].data();
            own.d_out[SLI_RNN_STATE_OUT(0, k)] = t.without && l == 1 ? nullptr : d.d_out[k].data();
            own.d_in[SLI_RNN_STATE_IN(0, k)] = d.d_in[1][k].data();
        }
        alone_saved[l] = saved_of(own);
        own.saved = alone_saved[l].data();
        compute(own, false);
        for (int k = 0; k < states; k++)
            compare(engine.tolerance, d.out[0][k], d.out[1][k], state, "state of layer " + std::to_string(l));
    }
    if (!t.without) compare(engine.tolerance, y, layers[L - 1].y, rows * H, "y");
    if (!p.train) return world.wrong;

    call.scratch = scratch_backward.data();
    call.d_out[SLI_RNN_Y] = t.without ? nullptr : dy.data();
    call.d_in[SLI_RNN_X] = dx.data();
    if (t.adds) call.accumulate |= 1u << SLI_RNN_X;
    engine.backward(&call);
    for (size_t l = L; l-- > 0;) {
        layer_data &d = layers[l];
        const std::string of_layer = " of layer " + std::to_string(l);
        alone[l].d_out[SLI_RNN_Y] = l + 1 < L ? layers[l + 1].dx.data() : t.without ? nullptr : dy.data();
        alone[l].d_in[SLI_RNN_X] = d.dx.data();
        compute(alone[l], true);
        for (int k = 0; k < SLI_PART_PARAMS; k++)
            if (!d.param[k].empty())
                compare(engine.tolerance, d.d_param[0][k], d.d_param[1][k], d.param[k].size() - 1, "gradient of parameter" + of_layer);
        for (int k = 0; k < states; k++)
            if (!(t.without && l == 1)) compare(engine.tolerance, d.d_in[0][k], d.d_in[1][k], state, "gradient of state" + of_layer);
    }
    floats expected = layers[0].dx;
    for (size_t i = 0; i < rows * I && t.adds; i++) expected[i] += dx_before[i];
    compare(engine.tolerance, dx, expected, rows * I, "gradient of x");
    return world.wrong;
}

} // namespace
