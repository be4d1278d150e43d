/* cuda:stack on the CPU: kernels/stack.cu as it is, over lanes whose work is done in any order that their waits allow, and with the
 * reference in place of cuda:cluster, which overwrites all memory that cuda:cluster may write. The result must be that of the
 * reference layer by layer, over the whole sequence. */
#include <math.h>
#include <string.h>
#include <algorithm>
#include <deque>
#include <map>
#include <random>

#include "cases.h"
#include "backend/cuda/kernels/stack.cu"

namespace {

struct work {
    enum { CALL, WAIT, PASS } kind;
    sli_call call;
    bool backward;
    int lane, count; /* WAIT: for the `count`-th PASS of `lane` */
};
struct lane {
    std::deque<work> waiting;
    int queued = 0, passed = 0; /* PASS */
};
/* What forward of a piece leaves to its backward beside the sign that it puts into `saved`. */
struct record {
    sli_call call;
    std::vector<char> saved, y, states[2];
    size_t bytes;
    unsigned char sign;
};

struct bench {
    sli_caps caps, cpu;
    std::vector<lane> lanes;
    int now = 0;
    std::mt19937_64 random;
    bool in_order = false;
    std::map<const void *, record> records;
    std::string wrong;
} world;

void complain(const std::string &text) {
    if (world.wrong.empty()) world.wrong = text;
}

const sli_kernel *reference(sli_op op) {
    for (const sli_kernel *const *row = sli_registry_get()->kernels; *row; row++)
        if ((*row)->op == op && strcmp((*row)->name, "ref") == 0) return *row;
    return nullptr;
}

std::vector<char> bytes_at(const void *from, size_t bytes) {
    const char *first = static_cast<const char *>(from);
    return from ? std::vector<char>(first, first + bytes) : std::vector<char>();
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

void overwrite(const sli_call &call, bool backward) {
    sli_persist_pair pair;
    sli_why why = {""};
    if (!sli_persist_pair_of(&call.problem, call.planned, &world.caps, SLI_PERSIST_KIND_CLUSTER, &pair, &why))
        return complain(why.text);
    const sli_persist_scratch at = backward ? sli_persist_layout_backward(&call.problem, &world.caps, &pair, call.chunk)
                                            : sli_persist_layout_forward(&call.problem, &world.caps, &pair, call.chunk);
    memset(call.scratch, 0xee, at.total - 2 * at.beside_bytes);
}

void forward(const sli_call &call) {
    const sli_problem &p = call.problem;
    const size_t state = sizeof(float) * (size_t)p.batch * (size_t)p.units;
    record r = {call, saved_of(call), {}, {}, 0, (unsigned char)(1 + world.records.size() % 250)};
    if (p.train) r.bytes = sli_step_layout_history(&p, call.chunk).total;
    for (int k = 0; k < sli_problem_states(&p); k++) r.states[k] = bytes_at(call.in[SLI_RNN_STATE_IN(0, k)], state);
    overwrite(call, false);
    if (r.bytes > 0) memset(call.saved, r.sign, r.bytes);
    sli_call own = call;
    own.saved = r.saved.data();
    compute(own, false);
    r.y = bytes_at(call.out[SLI_RNN_Y], state * (size_t)p.steps);
    if (r.bytes > 0) world.records[call.saved] = r;
}

void backward(const sli_call &call) {
    const auto found = world.records.find(call.saved);
    if (found == world.records.end()) return complain("backward of a piece that had no forward");
    record &r = found->second;
    const unsigned char *saved = static_cast<const unsigned char *>(call.saved);
    for (size_t i = 0; i < r.bytes; i++)
        if (saved[i] != r.sign) return complain("saved memory of a piece was overwritten");
    if (r.call.t0 != call.t0 || r.call.problem.steps != call.problem.steps ||
        r.call.in[SLI_RNN_X] != call.in[SLI_RNN_X] || r.call.in[SLI_RNN_MASK] != call.in[SLI_RNN_MASK])
        return complain("forward and backward of a piece are not of the same steps");
    overwrite(call, true);
    sli_call own = call;
    own.saved = r.saved.data();
    own.out[SLI_RNN_Y] = r.y.empty() ? nullptr : r.y.data();
    for (int k = 0; k < sli_problem_states(&call.problem); k++) own.in[SLI_RNN_STATE_IN(0, k)] = r.states[k].data();
    compute(own, true);
}

bool ready(const lane &l) {
    if (l.waiting.empty()) return false;
    const work &next = l.waiting.front();
    return next.kind != work::WAIT || world.lanes[(size_t)next.lane].passed >= next.count;
}

void do_next(lane *l) {
    const work next = l->waiting.front();
    l->waiting.pop_front();
    if (next.kind == work::PASS) l->passed++;
    if (next.kind == work::CALL) (next.backward ? backward : forward)(next.call);
}

} // namespace

/* ------------------------------------------------------------------------------------------------------- runtime -- */
#include "failing_queue.h"
extern "C" {
bool sli_cuda_open_lanes(sli_queue *, int count) {
    world.lanes.assign((size_t)count, lane());
    return true;
}
void sli_cuda_use_lane(sli_queue *, int to) {
    world.now = to;
}
void sli_cuda_pass_lane(sli_queue *) {
    lane &l = world.lanes[(size_t)world.now];
    l.waiting.push_back({work::PASS, {}, false, 0, 0});
    l.queued++;
}
void sli_cuda_wait_lane(sli_queue *, int other) {
    const int count = world.lanes[(size_t)other].queued;
    if (count == 0) complain("waits for a lane that has not come to any point");
    world.lanes[(size_t)world.now].waiting.push_back({work::WAIT, {}, false, other, count});
}
void sli_cuda_close_lanes(sli_queue *) {
    for (;;) {
        std::vector<lane *> all;
        for (lane &l : world.lanes)
            if (ready(l)) all.push_back(&l);
        if (all.empty()) break;
        do_next(all[world.in_order ? 0 : world.random() % all.size()]);
    }
    for (const lane &l : world.lanes)
        if (!l.waiting.empty()) complain("lanes wait for each other");
}
void sli_gpu_cluster_pack(const sli_call *) {}
void sli_gpu_cluster_forward(const sli_call *call) {
    world.lanes[(size_t)world.now].waiting.push_back({work::CALL, *call, false, 0, 0});
}
void sli_gpu_cluster_backward(const sli_call *call) {
    world.lanes[(size_t)world.now].waiting.push_back({work::CALL, *call, true, 0, 0});
}
}

/* --------------------------------------------------------------------------------------------------------- cases -- */
namespace {

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

void compare(const floats &a, const floats &b, size_t count, const std::string &what) {
    double scale = 1e-3;
    for (size_t i = 0; i < count; i++) scale = fmax(scale, fabs((double)b[i]));
    for (size_t i = 0; i < count; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= 1e-5 * scale))
            return complain(emulate_say("%s[%zu] is %g, not %g", what.c_str(), i, (double)a[i], (double)b[i]));
}

std::string run_trial(const trial &t, uint64_t seed) {
    sli_problem plan, p;
    if (sli_problem_parse(t.text, &plan) != SL_OK) return emulate_say("%s is no problem", t.text);
    world.random.seed(seed);
    world.in_order = seed == 0;
    world.wrong.clear();
    world.records.clear();
    world.cpu = {};
    world.caps = {};
    world.caps.kind = SLI_DEVICE_CUDA;
    world.caps.compute_capability = 90;
    world.caps.multiprocessors = 132;
    world.caps.shared_memory = 227 << 10;
    world.caps.l2_bytes = 50 << 20;
    p = plan;
    if (t.batch > 0) p.batch = t.batch;
    if (t.steps > 0) p.steps = t.steps;
    const size_t L = (size_t)p.layers, rows = (size_t)p.steps * (size_t)p.batch, I = (size_t)p.inputs;
    const size_t H = (size_t)p.units, state = (size_t)p.batch * H;
    const int states = sli_problem_states(&p);
    const bool fresh = seed % 2 == 1;
    sli_call call = {};
    call.problem = p;
    call.planned = {plan.batch, plan.steps};
    call.chunk = sli_caps_chunk(&world.caps, plan.batch, plan.steps);
    call.total_steps = p.steps;
    call.training = p.train;

    sli_booking booking;
    (p.op == SLI_OP_LSTM ? sli_cuda_lstm_stack : sli_cuda_gru_stack).book(&plan, &world.caps, call.chunk, &booking);
    std::vector<char> saved(booking.saved + 1, '\x55'), scratch(booking.scratch_forward + 1, '\x55');
    std::vector<char> scratch_backward(booking.scratch_backward + 1, '\x55');
    call.saved = saved.data();
    call.scratch = scratch.data();
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
    sli_gpu_stack_forward(&call);

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
            compare(d.out[0][k], d.out[1][k], state, "state of layer " + std::to_string(l));
    }
    if (!t.without) compare(y, layers[L - 1].y, rows * H, "y");
    if (!p.train) return world.wrong;

    call.scratch = scratch_backward.data();
    call.d_out[SLI_RNN_Y] = t.without ? nullptr : dy.data();
    call.d_in[SLI_RNN_X] = dx.data();
    if (t.adds) call.accumulate |= 1u << SLI_RNN_X;
    sli_gpu_stack_backward(&call);
    for (size_t l = L; l-- > 0;) {
        layer_data &d = layers[l];
        const std::string of_layer = " of layer " + std::to_string(l);
        alone[l].d_out[SLI_RNN_Y] = l + 1 < L ? layers[l + 1].dx.data() : t.without ? nullptr : dy.data();
        alone[l].d_in[SLI_RNN_X] = d.dx.data();
        compute(alone[l], true);
        for (int k = 0; k < SLI_PART_PARAMS; k++)
            if (!d.param[k].empty())
                compare(d.d_param[0][k], d.d_param[1][k], d.param[k].size() - 1, "gradient of parameter" + of_layer);
        for (int k = 0; k < states; k++)
            if (!(t.without && l == 1)) compare(d.d_in[0][k], d.d_in[1][k], state, "gradient of state" + of_layer);
    }
    floats expected = layers[0].dx;
    for (size_t i = 0; i < rows * I && t.adds; i++) expected[i] += dx_before[i];
    compare(dx, expected, rows * I, "gradient of x");
    return world.wrong;
}

const trial trials[] = {
    {"lstm:l3_b40_t250_i5_h9_train+lengths", 0, 0, false, false, true},
    {"lstm:l3_b40_t250_i5_h9_train+lengths", 7, 190, false, true, false},
    {"lstm:l2_b64_t130_i3_h8_train+peephole", 0, 0, true, false, false},
    {"lstm:l2_b64_t130_i3_h8_train", 1, 3, false, true, true},
    {"gru:l4_b64_t200_i3_h8_train+mask=holes+maskout=repeat", 0, 0, false, false, true},
    {"gru:l4_b64_t200_i3_h8_train+mask=holes+maskout=repeat", 63, 199, false, true, false},
    {"rnn:l12_b64_t130_i3_h8_train+bias=none", 0, 0, false, false, true},
    {"rnn:l2_b5_t1700_i3_h4", 0, 0, false, false, false},
    {"gru:l3_b64_t130_i3_h4+lengths", 50, 101, true, false, false},
    {"lstm:l2_b300_t90_i3_h5_train+mask=left", 0, 0, false, false, true},
};

} // namespace

EMULATE_CASE("stack: pieces side by side compute what layers one by one do") {
    for (const trial &t : trials) {
        const std::string wrong = run_trial(t, seed);
        if (!wrong.empty()) return emulate_say("%s, b%d t%d: %s", t.text, t.batch, t.steps, wrong.c_str());
    }
    return "";
}
