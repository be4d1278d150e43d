/* cuda:stack on the CPU: kernels/stack.cu as it is, over lanes whose work is done in any order that their waits allow, and with the
 * reference in place of cuda:cluster, which overwrites all memory that cuda:cluster may write. The result must be that of the
 * reference layer by layer, over the whole sequence. */
#include <string.h>
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

} // namespace
#include "stack_trials.h"
namespace {

std::vector<char> bytes_at(const void *from, size_t bytes) {
    const char *first = static_cast<const char *>(from);
    return from ? std::vector<char>(first, first + bytes) : std::vector<char>();
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

std::string run(const trial &t, uint64_t seed) {
    sli_problem plan;
    if (sli_problem_parse(t.text, &plan) != SL_OK) return emulate_say("%s is no problem", t.text);
    world.random.seed(seed);
    world.in_order = seed == 0;
    world.records.clear();
    const int chunk = sli_caps_chunk(&world.caps, plan.batch, plan.steps);
    sli_booking booking;
    (plan.op == SLI_OP_LSTM ? sli_cuda_lstm_stack : sli_cuda_gru_stack).book(&plan, &world.caps, chunk, &booking);
    const trial_engine engine = {booking, chunk, 1e-5, nullptr, sli_gpu_stack_forward, sli_gpu_stack_backward};
    return run_trial(t, plan, seed, engine);
}

const trial trials[] = {
    {"lstm:l3_b40_t250_i5_h9_train+lengths", 0, 0, false, false, true, false, false},
    {"lstm:l3_b40_t250_i5_h9_train+lengths", 7, 190, false, true, false, false, false},
    {"lstm:l2_b64_t130_i3_h8_train+peephole", 0, 0, true, false, false, false, false},
    {"lstm:l2_b64_t130_i3_h8_train", 1, 3, false, true, true, false, false},
    {"gru:l4_b64_t200_i3_h8_train+mask=holes+maskout=repeat", 0, 0, false, false, true, false, false},
    {"gru:l4_b64_t200_i3_h8_train+mask=holes+maskout=repeat", 63, 199, false, true, false, false, false},
    {"rnn:l12_b64_t130_i3_h8_train+bias=none", 0, 0, false, false, true, false, false},
    {"rnn:l2_b5_t1700_i3_h4", 0, 0, false, false, false, false, false},
    {"gru:l3_b64_t130_i3_h4+lengths", 50, 101, true, false, false, false, false},
    {"lstm:l2_b300_t90_i3_h5_train+mask=left", 0, 0, false, false, true, false, false},
};

} // namespace

EMULATE_CASE("stack: pieces side by side compute what layers one by one do") {
    return run_trials(trials, seed, run);
}
