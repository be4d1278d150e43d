/* cuda:cluster and cuda:grid, the host's side as it is (persist_host.cu, persist_launch.cu, and what they take of cuda:step), over
 * streams that only note what each launch and product reads and writes. However a span is cut into pieces:
 *  - two pieces of work that touch the same memory, one of them writing, are ordered by streams and their events;
 *  - a launch enters from the d h that the one before left, and does not write it;
 *  - its kernel is of the form that its arguments have;
 *  - each step finds its own input side, each product the gradients of its own chunk, each sum that of its chunk;
 *  - the products that add to a parameter's gradient, or write d x, are those of one piece, in the same order; of what touches a
 *    fresh gradient the first writes, whole, and the others add.
 * Memory is addresses alone; nothing is computed. */
#include <algorithm>
#include <inttypes.h>
#include <string.h>
#include <map>

#include "cases.h"
/* test_stack.cpp has these as well. */
#define sli_cuda_caps_of overlap_caps_of
#define sli_cuda_failed overlap_failed
#define sli_cuda_fail overlap_fail
#define sli_cuda_move_rows overlap_move_rows
#define sli_cuda_phase overlap_phase
#define sli_cuda_open_lanes overlap_open_lanes
#define sli_cuda_use_lane overlap_use_lane
#define sli_cuda_pass_lane overlap_pass_lane
#define sli_cuda_wait_lane overlap_wait_lane
#define sli_cuda_close_lanes overlap_close_lanes
#define sli_cuda_transpose overlap_transpose
#define sli_gpu_cluster_pack overlap_cluster_pack
#define sli_gpu_cluster_forward overlap_cluster_forward
#define sli_gpu_cluster_backward overlap_cluster_backward
#include "../../../src/backend/cuda/kernels/persist_host.cuh"
#include "persist_reference.h"
/* Pieces as the trial wants them. */
static int wanted_piece(const sli_problem *p, const sli_caps *, const sli_persist_pair *pair, int chunk, bool);
#define sli_persist_piece wanted_piece
#include "backend/cuda/kernels/persist_launch.cu"
#include "backend/cuda/kernels/step_way.cu"
#define sli_step_project_inputs project_inputs_of_step
#include "backend/cuda/kernels/step_forward.cu"
#undef sli_step_project_inputs
#include "backend/cuda/kernels/step_backward.cu"
#include "backend/cuda/kernels/persist_fold_host.cu"
#include "backend/cuda/kernels/persist_host.cu"

namespace {

struct range {
    uintptr_t first, end;
    bool writes;
};
enum {
    MAIN,
    SIDE,
    LANES = 4,
    LATE = SIDE + LANES,
    STREAMS
}; /* the queue's, the side stream, lanes from 1 on, the late one */
struct work {
    std::string name;
    int stream, number; /* of its stream */
    int seen[STREAMS];  /* how much of each stream was done before */
    std::vector<range> ranges;
};

struct bench {
    sli_caps caps;
    const sli_call *call;
    sli_persist_kind kind;
    bool backward;
    int piece; /* chunks; 0: whole spans */
    /* Of each stream: work queued; how much of all is done before what comes next; that at the last point of each lane. */
    int done[STREAMS], seen[STREAMS][STREAMS], passed[LANES][STREAMS];
    bool has_passed[LANES];
    int lanes, lane; /* open, in use */
    bool late;       /* has begun and is not settled */
    bool awaits;     /* sums wait for the next launch of backward */
    bool stacked;    /* late sums are started by a launch of cuda:stack, which is in lanes */
    int before_states; /* work of the queue's stream that the entering states' slots wait for */
    std::vector<work> all;
    std::map<uintptr_t, std::string> holds;              /* what lies at an address, by name */
    std::map<uintptr_t, uintptr_t> zeros;                /* and where zeros lie but for that: first byte and end, apart */
    std::map<uintptr_t, std::vector<std::string>> given; /* to gradients, in order */
    std::map<uintptr_t, size_t> begun; /* bytes of parts of parameters' gradients that something was given to */
    std::string wrong;
    int fails_at, asked, behind; /* which of the calls that put zeros or fork fails, 0: none; how many there were; launches behind one that failed */
    int launches, beside, pairs, transposed, transposed_in_lanes, own_inputs;
    uintptr_t left[2]; /* where a direction's last launch left d h */
    bool fresh; /* all parameters' gradients are */
} world;

void complain(const std::string &text) {
    if (world.wrong.empty()) world.wrong = text;
}

int number_of(cudaStream_t stream) {
    return (int)reinterpret_cast<uintptr_t>(stream) - 1;
}

cudaStream_t stream_of(int number) {
    return reinterpret_cast<cudaStream_t>((uintptr_t)number + 1);
}

int stream_of_lane(int lane) {
    return lane == 0 ? 0 : SIDE + lane;
}

/* What comes next in stream `later` does so after all of `seen`. */
void after(int later, const int *seen) {
    for (int s = 0; s < STREAMS; s++)
        if (seen[s] > world.seen[later][s]) world.seen[later][s] = seen[s];
}

range at(const void *from, size_t bytes, bool writes) {
    const uintptr_t first = reinterpret_cast<uintptr_t>(from);
    return {first, from ? first + bytes : first, writes};
}

bool conflict(const work &a, const work &b) {
    for (const range &r : a.ranges)
        for (const range &s : b.ranges)
            if ((r.writes || s.writes) && r.first < s.end && s.first < r.end) return true;
    return false;
}

void note(cudaStream_t stream, const std::string &name, const std::vector<range> &ranges) {
    const int s = number_of(stream);
    work now = {name, s, ++world.done[s], {}, ranges};
    memcpy(now.seen, world.seen[s], sizeof now.seen);
    now.seen[s] = now.number;
    for (const work &before : world.all)
        if (before.stream != s && before.number > now.seen[before.stream] && conflict(before, now))
            complain(before.name + " and " + name + " are not ordered");
    world.seen[s][s] = now.number;
    world.beside += s == SIDE;
    world.all.push_back(now);
}

std::string name_of(const char *what, int direction, int64_t t) {
    return emulate_say("%s of step %" PRId64 ", direction %d", what, t, direction);
}

void put(const void *address, const std::string &what) {
    world.holds[reinterpret_cast<uintptr_t>(address)] = what;
}

void put_zeros(uintptr_t first, uintptr_t end) {
    world.holds.erase(world.holds.lower_bound(first), world.holds.lower_bound(end));
    auto before = world.zeros.upper_bound(first);
    if (before != world.zeros.begin() && std::prev(before)->second >= first) first = (--before)->first;
    while (before != world.zeros.end() && before->first <= end) {
        end = std::max(end, before->second);
        before = world.zeros.erase(before);
    }
    world.zeros[first] = end;
}

/* NULL: nothing. */
const std::string *held_at(const void *address) {
    static const std::string zero = "zero";
    const uintptr_t there = reinterpret_cast<uintptr_t>(address);
    const auto found = world.holds.find(there);
    if (found != world.holds.end()) return &found->second;
    const auto after = world.zeros.upper_bound(there);
    return after != world.zeros.begin() && std::prev(after)->second > there ? &zero : nullptr;
}

/* Something is given to a part of a parameter's gradient. */
void give(const range &part, bool adds) {
    const bool first = world.begun.insert({part.first, part.end - part.first}).second;
    if (adds != !(first && world.fresh)) complain(adds ? "a fresh gradient is added to" : "a gradient is lost");
}

bool fails() {
    if (world.fails_at > 0 && ++world.asked == world.fails_at) complain("it failed");
    return world.fails_at > 0 && world.asked >= world.fails_at;
}

void need(const void *address, const std::string &what, const char *by) {
    const std::string *held = held_at(address), there = held ? *held : "nothing";
    if (there != what) complain(std::string(by) + " finds " + there + ", not " + what);
}

} // namespace

static int wanted_piece(const sli_problem *p, const sli_caps *, const sli_persist_pair *pair, int chunk, bool) {
    const int chunks = (sli_persist_span(p, pair, chunk) + chunk - 1) / chunk;
    const int least = (chunks + SLI_PERSIST_MOST_PIECES - 1) / SLI_PERSIST_MOST_PIECES;
    const int piece = world.piece > 0 && world.piece < chunks ? world.piece : chunks;
    return piece < least ? least : piece;
}

/* ------------------------------------------------------------------------------------------------------- runtime -- */
#include "failing_queue.h"
extern "C" {
bool sli_cuda_try(sli_queue *, cudaError_t error, const char *) {
    return error == cudaSuccess;
}
cudaError_t sli_cuda_injected(cudaError_t error) {
    return error;
}
bool sli_cuda_in_lanes(const sli_queue *) {
    return world.lanes > 0;
}
cudaStream_t sli_cuda_stream(sli_queue *) {
    return stream_of(stream_of_lane(world.lane));
}
cudaStream_t sli_cuda_fork(sli_queue *) {
    if (fails()) return stream_of(SIDE);
    if (world.lanes > 0) complain("a fork in lanes");
    after(SIDE, world.seen[0]);
    return stream_of(SIDE);
}
void sli_cuda_join(sli_queue *) {
    after(0, world.seen[SIDE]);
}
bool sli_cuda_open_lanes(sli_queue *, int count) {
    if (count > LANES) complain("too many lanes");
    world.lanes = count;
    memset(world.has_passed, 0, sizeof world.has_passed);
    for (int lane = 1; lane < count; lane++) after(stream_of_lane(lane), world.seen[0]);
    return true;
}
void sli_cuda_use_lane(sli_queue *, int lane) {
    world.lane = lane;
}
void sli_cuda_pass_lane(sli_queue *) {
    world.has_passed[world.lane] = true;
    memcpy(world.passed[world.lane], world.seen[stream_of_lane(world.lane)], sizeof world.passed[0]);
}
void sli_cuda_wait_lane(sli_queue *, int lane) {
    if (!world.has_passed[lane]) complain("waits for a lane that has not come to any point");
    after(stream_of_lane(world.lane), world.passed[lane]);
}
void sli_cuda_close_lanes(sli_queue *) {
    for (int lane = 1; lane < world.lanes; lane++) after(0, world.seen[stream_of_lane(lane)]);
    world.lanes = world.lane = 0;
}
/* At once: nothing is launched behind the call that leaves them. */
void sli_cuda_leave_late(sli_queue *queue, sli_late_sums sums, const sli_call *call, const int *numbers) {
    if (world.lanes > 0) complain("late sums in lanes");
    sli_cuda_settle(queue);
    world.late = true;
    world.awaits = false; /* when sums are queued none wait */
    after(LATE, world.seen[MAIN]);
    world.lanes = world.stacked ? LANES : 0;
    sums(call, numbers, stream_of(LATE));
    world.lanes = 0;
}
void sli_cuda_mark_late(sli_queue *) {
}
void sli_cuda_start_late(sli_queue *) {
}
bool sli_cuda_is_late(const sli_queue *) {
    return world.late;
}
bool sli_cuda_awaits_late(const sli_queue *) {
    return world.awaits;
}
void sli_cuda_settle(sli_queue *) {
    if (world.late) after(MAIN, world.seen[LATE]);
    world.late = false;
}
cudaKernel_t sli_cuda_compile(sli_queue *, const char *, const char *, const char *, sli_why *) {
    return &world;
}

/* Zeros alone are asked for: of counters and exchange. */
bool sli_cuda_put(sli_queue *, cudaStream_t stream, void *to, const void *, size_t bytes) {
    if (fails()) return false;
    note(stream, "zeros", {at(to, bytes, true)});
    put_zeros(reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(to) + bytes);
    return true;
}

cudaStream_t sli_cuda_fork_and_zero(sli_queue *queue, void *to, size_t bytes) {
    cudaStream_t side = sli_cuda_fork(queue);
    sli_cuda_put(queue, stream_of(0), to, nullptr, bytes);
    return side;
}

/* A copy holds what its original does. */
void sli_cuda_transpose(sli_queue *, cudaStream_t stream, const sli_cuda_transposition *each, int count) {
    std::vector<range> ranges;
    for (int i = 0; i < count; i++) {
        const sli_cuda_transposition &t = each[i];
        ranges.push_back(at(t.from, sizeof(float) * (size_t)((t.rows - 1) * t.from_row + t.columns), false));
        ranges.push_back(at(t.to, sizeof(float) * (size_t)(t.lines * t.to_row), true));
        const std::string *held = held_at(t.from);
        put(t.to, held ? std::string(*held) : "nothing");
    }
    note(stream, "transposed copies", ranges);
    world.transposed++;
    world.transposed_in_lanes += world.lanes > 0;
}

static bool is_of_parameter(const range &r) {
    for (const void *gradient : world.call->d_param)
        if (gradient && r.first >> 40 == reinterpret_cast<uintptr_t>(gradient) >> 40) return true;
    return false;
}

/* D = or += A B: what it reads and writes; of gradients, in which order. */
/* A chunk of a longer sequence is multiplied as others are, however few its rows: it may be a call of its own. */
bool sli_cuda_is_small(const sli_cuda_product *) {
    return world.call->total_steps > world.call->chunk;
}
void sli_cuda_move_rows(sli_queue *, cudaStream_t stream, const sli_cuda_move *m) {
    const size_t to = m->to_type == SL_F32 ? sizeof(float) : sizeof(uint16_t), from = m->from_type == SL_F32 ? sizeof(float) : sizeof(uint16_t);
    note(stream, "moved rows", {at(m->from, from * (size_t)(m->rows * m->from_row), false), at(m->to, to * (size_t)(m->rows * m->to_row), true)});
}
void sli_cuda_multiply(sli_queue *queue, cudaStream_t stream, const sli_cuda_product *p) {
    const size_t operand = p->math == SL_BF16 || p->math == SL_F16 ? 2 : 4;
    const auto stored = [&](const sli_cuda_matrix &m, int64_t rows, int64_t columns) {
        const int64_t lines = m.transposed ? columns : rows, width = m.transposed ? rows : columns;
        return at(m.data, (size_t)((lines - 1) * m.row + width) * operand, false); /* columns of one gate end with it */
    };
    if (p->paired) {
        sli_cuda_product each = *p;
        each.paired = false;
        sli_cuda_multiply(queue, stream, &each);
        each.a.data = static_cast<const char *>(p->a.data) + p->a_apart * (int64_t)operand;
        each.b.data = static_cast<const char *>(p->b.data) + p->b_apart * (int64_t)operand;
        each.d = sli_cuda_d_at(p, p->d_apart);
        sli_cuda_multiply(queue, stream, &each);
        if (p->a_apart % 8 != 0 || p->b_apart % 8 != 0 || p->d_apart % 4 != 0 || p->a_apart < 0 || p->b_apart <= 0 || p->d_apart <= 0)
            complain("a pair lies as none may");
        world.pairs++;
        return;
    }
    if (p->a_floats) complain("x of a part of a sequence is multiplied as it is");
    const range d = at(p->d, sizeof(float) * (size_t)(p->m * p->d_row), true);
    note(stream, "a product",
         {stored(p->a, p->m, p->k), stored(p->b, p->k, p->n), d, at(p->workspace, p->workspace_bytes, true),
          at(p->pad, p->pad_bytes, true), at(p->split, p->split_bytes, true)});
    const std::string *a = held_at(p->a.data);
    if (world.backward && is_of_parameter(d)) give(d, p->beta != 0); /* a sum over time */
    if (world.backward && a)
        world.given[d.first].push_back(*a + (p->beta != 0 ? " added" : " written"));
}
}

cudaError_t cudaFuncSetAttribute(const void *, int, int) {
    return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

/* --------------------------------------------------------------------------------------------- the persistent kernel -- */
namespace {

range steps_of(const void *first, int64_t step_bytes, int steps, size_t bytes, bool writes) {
    if (!first) return at(nullptr, 0, writes);
    const uintptr_t low =
        reinterpret_cast<uintptr_t>(first) + (uintptr_t)(step_bytes < 0 ? step_bytes * (steps - 1) : (int64_t)0);
    const uintptr_t span = (uintptr_t)(step_bytes < 0 ? -step_bytes : step_bytes) * (uintptr_t)(steps - 1) + bytes;
    return {low, low + span, writes};
}

/* What the kernel reads and writes of one direction, and that it is what it takes it for. */
void run_way(const persist_call &p, const persist_args &a, int d, std::vector<range> *ranges) {
    const persist_way &w = a.way[d];
    const sli_step_shape &s = p.cells[d].s;
    const size_t B = (size_t)s.B, u_bytes = B * (size_t)s.us * sizeof(float), z_bytes = B * (size_t)s.zs * s.operand;
    const bool own = !world.backward && p.geometry->inputs > 0; /* the launch makes its input side */
    ranges->push_back(
        steps_of(w.u, (int64_t)sizeof(float) * w.u_step, w.steps, u_bytes, !world.backward && (own || s.keep_gates)));
    if (own) {
        const size_t x_bytes = B * (size_t)s.I * sizeof(float), operand = s.operand;
        ranges->push_back(steps_of(w.x, (int64_t)sizeof(float) * w.x_step, w.steps, x_bytes, false));
        ranges->push_back(at(w.kernel, (size_t)(s.GH * s.xs) * operand, false));
        if (w.x != static_cast<const float *>(p.ways[d].x) + w.time * (int64_t)B * s.I || w.x_step != w.time_step * (int)(s.B * s.I) || w.x_steps != w.steps)
            complain("a launch makes its input side of other steps");
        world.own_inputs++;
    }
    ranges->push_back(steps_of(w.dz, w.dz_step * (int64_t)s.operand, w.steps, z_bytes, true));
    ranges->push_back(steps_of(w.dr, w.dz_step * (int64_t)s.operand, w.steps, z_bytes, true));
    ranges->push_back(at(w.dp_to, B * (size_t)s.hs * sizeof(float), true));
    if (!world.backward) {
        const size_t slot = B * (size_t)s.hs * s.operand;
        const range from = at(w.operand_from, slot, false);
        const range to = steps_of(w.operand_to, w.operand_step * (int64_t)s.operand, w.steps, slot, true);
        if (from.first < to.end && to.first < from.end) complain("a launch writes the d h that it enters from");
        if (world.left[d] != 0 && from.first != world.left[d]) complain("a launch enters from another slot");
        const size_t state = B * (size_t)s.H * sizeof(float);
        ranges->push_back(at(w.h_from, w.h_from ? state : 0, false));
        ranges->push_back(w.h_to ? steps_of(w.h_to, (int64_t)sizeof(float) * w.h_step, w.steps, state, true) : at(nullptr, 0, true));
        ranges->insert(ranges->end(), {at(w.h_enters, w.h_enters ? B * (size_t)s.O * sizeof(float) : 0, false), at(w.c_from, w.c_from ? state : 0, false)});
        world.left[d] = (uintptr_t)w.operand_to + (uintptr_t)(w.operand_step * (int64_t)s.operand * (w.steps - 1));
        ranges->insert(ranges->end(), {from, to});
    }
    if (p.geometry->gather == SLI_PERSIST_GRID) {
        ranges->push_back(at(w.exchange, 16, true));
        char *told = sli_persist_told(&p, d) + p.scratch.zeros; /* by counters, or by v itself */
        ranges->push_back(at(told, p.scratch.zeros_bytes, true));
        need(told, "zero", "what tells of v");
        put(told, "a count");
    }
    int chunk = 0, left = w.first_chunk;
    for (int i = 0; i < w.steps; i++) {
        const int64_t t = w.time + (int64_t)i * w.time_step;
        if (!own) need(w.u + (int64_t)i * w.u_step, name_of("input side", d, t), "a step");
        if (!world.backward) continue;
        put(static_cast<char *>(w.dz) + (int64_t)i * w.dz_step * (int64_t)s.operand, name_of("gradient", d, t));
        if (w.dr) put(static_cast<char *>(w.dr) + (int64_t)i * w.dz_step * (int64_t)s.operand, name_of("dr", d, t));
        if (--left > 0 && i + 1 < w.steps) continue;
        const range sums = at(w.sums ? w.sums + (size_t)chunk * B * (size_t)s.us : nullptr, u_bytes, true);
        const size_t of_peep = 3 * B * (size_t)s.H;
        float *peep = w.sums_peep ? w.sums_peep + (size_t)chunk * of_peep : nullptr;
        ranges->push_back(sums);
        ranges->push_back(at(peep, of_peep * sizeof(float), true));
        if (peep) put(peep, name_of("sum", d, t / w.chunk));
        if (w.sums) put(w.sums + (size_t)chunk * B * (size_t)s.us, name_of("sum", d, t / w.chunk));
        chunk++;
        left = w.chunk;
    }
}

} // namespace

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *, void **arguments) {
    world.behind += !world.wrong.empty();
    const persist_args &a = *static_cast<const persist_args *>(arguments[0]);
    persist_call p;
    std::vector<range> ranges;
    bool first_of_all = false;
    if (!sli_persist_enter(world.call, world.kind, world.backward, &p)) return cudaSuccess;
    for (int d = 0; d < p.directions; d++) run_way(p, a, d, &ranges);
    if (a.form != persist_form_of(a, p.directions, world.backward, p.ways[0].s.keep_gates))
        complain("a kernel is of another form than its arguments");
    note(config->stream, "a launch", ranges);
    for (unsigned i = 0; i < config->numAttrs; i++)
        first_of_all |= config->attrs[i].id == cudaLaunchAttributePriority && config->attrs[i].val.priority == -5;
    if (first_of_all != (p.chunks_of_piece < p.chunks_of_span || world.late))
        complain("a launch has the wrong priority");
    world.launches++;
    return cudaSuccess;
}

const void *sli_persist_builtin(const sli_persist_geometry *) {
    return nullptr;
}

/* -------------------------------------------------------------------------------------------------------- cuda:step -- */
void sli_step_project_inputs(const step_way *way) {
    for (int t = way->c0; t < way->c1; t++) put(sli_step_gates(way, t), name_of("input side", way->part, t));
    project_inputs_of_step(way);
}
void sli_step_recompute(const step_way *way) {
    sli_step_project_inputs(way);
}
void sli_step_rows(sli_queue *, cudaStream_t stream, sl_dtype math, void *to, int64_t stride, int64_t rows_to,
                   const float *from, int64_t rows, int64_t columns, sli_step_zeros zeros) {
    const size_t operand = math == SL_BF16 || math == SL_F16 ? 2 : 4;
    note(stream, "operand rows",
         {at(to, (size_t)(rows_to * stride) * operand, true), at(zeros.at, zeros.bytes, true),
          at(from, (size_t)(rows * columns) * sizeof(float), false)});
    for (size_t i = 0; i < zeros.bytes; i += sizeof(uint32_t)) put(static_cast<char *>(zeros.at) + i, "zero");
}
static void sum_columns(const step_way *way, const step_column_sum &sum, int64_t rows) {
    const float *from = static_cast<const float *>(sum.from);
    const size_t bytes = (size_t)sum.columns * sizeof(float);
    const int k[2] = {sum.k0, sum.k1};
    float *to[2] = {nullptr, nullptr};
    for (int i = 0; i < 2; i++) {
        const step_target target = sli_step_target(way, k[i], sum.first);
        if (!target.sums) continue;
        to[i] = target.sums;
        give(at(to[i], bytes, true), target.add);
    }
    if (!to[0] && !to[1]) return;
    note(way->stream, "sums",
         {at(from, (size_t)((rows - 1) * sum.stride + sum.columns) * sizeof(float), false), at(to[0], bytes, true),
          at(to[1], bytes, true), at(way->work + way->scratch.columns, 16, true)});
    const std::string *held = held_at(from);
    if (sum.columns > way->s.H || way->s.gates == 1) need(from, name_of("sum", way->part, way->c0 / way->chunk), "a bias");
    if (held) world.given[reinterpret_cast<uintptr_t>(to[0])].push_back(*held);
}
void sli_step_columns(const step_way *way, const step_column_sum *sums, int count, int64_t rows, bool operands) {
    for (int i = 0; i < count && !operands; i++) sum_columns(way, sums[i], rows);
}
void sli_step_masks(const step_way *) {}
void sli_step_begin(const step_way *way, int) {
    const int first = way->reverse ? (int)way->s.T : 0;
    const size_t B = (size_t)way->s.B;
    int64_t row = 0;
    world.before_states = world.seen[number_of(way->stream)][MAIN];
    note(way->stream, "slots of states",
         {at(sli_step_operand_h(way, first), B * (size_t)way->s.hs * way->s.operand, true),
          at(way->s.own_h ? sli_step_hidden(way, first, &row) : nullptr, way->s.own_h ? B * (size_t)way->s.O * sizeof(float) : 0, true),
          at(way->s.lstm ? sli_step_cell(way, first) : nullptr, way->s.lstm ? B * (size_t)way->s.H * sizeof(float) : 0, true),
          at(way->call->in[SLI_RNN_STATE_IN(way->part, 0)], B * (size_t)way->s.O * sizeof(float), false)});
}
void sli_step_finish(const step_way *way, const float *, step_sums dp, const float *) {
    note(way->stream, "entering states", {at(dp.data, (size_t)(way->s.B * way->s.hs) * sizeof(float), false)});
}
/* A projection that is folded: what its kernels read and write. */
static range rows_at(const void *from, int64_t rows, int64_t row, size_t bytes, bool writes) {
    return at(from, (size_t)(rows * row) * bytes, writes);
}
static void note_folded(const step_way *way, const fold_common &k, const char *name, std::vector<range> ranges) {
    ranges.push_back(at(k.first, (size_t)k.B * sizeof(int32_t), false));
    note(way->stream, name, ranges);
}
void sli_fold_first(const step_way *way, const fold_first_args *a) {
    note(way->stream, "first steps", {rows_at(a->to, a->k.B, 1, sizeof(int32_t), true)});
}
void sli_fold_enter(const step_way *way, const fold_enter_args *a) {
    note_folded(way, a->k, "the projected state",
                {rows_at(a->u, (a->c1 - a->c0) * a->k.B, a->us, sizeof(float), true),
                 rows_at(a->entering, a->k.B, a->us, sizeof(float), false)});
}
void sli_fold_give(const step_way *way, const fold_give_args *a) {
    note_folded(way, a->k, "h of the projection",
                {rows_at(a->q, a->rows, a->q_row, sizeof(float), false), rows_at(a->y, a->rows, a->y_row, sizeof(float), true),
                 rows_at(a->operand_h, a->rows, a->k.hs, way->s.operand, true),
                 rows_at(a->h_last, a->k.B, a->k.columns, sizeof(float), true)});
}
void sli_fold_shown(const step_way *way, const fold_shown_args *a) {
    note_folded(way, a->k, "dy of the projection",
                {rows_at(a->dy, a->rows, a->dy_row, sizeof(float), false), rows_at(a->to, a->rows, a->k.hs, way->s.operand, true)});
}
void sli_fold_gradient(const step_way *way, const fold_gradient_args *a) {
    note_folded(way, a->k, "the projection's gradient",
                {rows_at(a->e, a->rows, a->k.hs, way->s.operand, true),
                 rows_at(a->back, (way->c1 - way->c0) * a->k.B, a->k.hs, sizeof(float), false),
                 rows_at(a->dh, a->k.B, a->k.columns, sizeof(float), true),
                 rows_at(a->left, a->k.B, a->k.hs, sizeof(float), true)});
}
#include "no_wide_steps.h"
void sli_step_narrow_rows(sli_queue *, cudaStream_t, void *, int64_t, int64_t, const void *, int64_t, int64_t) {}
void sli_step_pack_biases(const step_way *) {}
void sli_step_tiled_pack(const step_way *) {}
void sli_step_tiled_begin(const step_way *) {}
void sli_step_tiled_forward(const step_way *, const step_forward_args *, int, bool) {}
void sli_step_fused_forward(const step_way *, const step_forward_args *, const void *, bool) {}
void sli_step_fused_backward(const step_way *, const step_backward_args *, const void *, float *, bool) {}
#define STEP_FORWARD(NAME) \
    void sli_step_##NAME(const step_way *, const step_forward_args *, bool) {}
#define STEP_BACKWARD(NAME) \
    void sli_step_##NAME(const step_way *, const step_backward_args *, bool) {}
#include "step_launches.h"

/* --------------------------------------------------------------------------------------------------------- cases -- */
namespace {

template <typename T> T *region(int number) {
    return reinterpret_cast<T *>(((uintptr_t)number + 1) << 40);
}

sli_call call_of(const sli_problem &p, int planned_batch) {
    sli_call call = {};
    int number = 0;
    call.problem = p;
    call.planned = {planned_batch, p.steps};
    call.chunk = sli_caps_chunk(&world.caps, planned_batch, p.steps);
    call.total_steps = p.steps;
    call.training = p.train;
    call.saved = region<char>(number++);
    call.scratch = region<char>(number++);
    call.packed = region<char>(number++);
    call.in[SLI_RNN_X] = region<float>(number++);
    call.in[SLI_RNN_LENGTHS] = region<int32_t>(number++);
    call.in[SLI_RNN_MASK] = region<uint8_t>(number++);
    call.d_in[SLI_RNN_X] = region<float>(number++);
    call.out[SLI_RNN_Y] = region<float>(number++);
    call.d_out[SLI_RNN_Y] = region<float>(number++);
    for (int part = 0; part < sli_problem_directions(&p); part++)
        for (int k = 0; k < SLI_PART_PARAMS; k++) {
            const bool there = k <= SLI_RNN_RECURRENT || (k == SLI_RNN_BIAS && p.bias != SL_BIAS_NONE) ||
                               (k == SLI_RNN_RECURRENT_BIAS && p.bias == SL_BIAS_DOUBLE) ||
                               (k == SLI_RNN_PEEPHOLE && p.peephole) || (k == SLI_RNN_PROJECTION && p.projection > 0);
            if (!there) continue;
            call.param[part * SLI_PART_PARAMS + k] = region<float>(number++);
            call.d_param[part * SLI_PART_PARAMS + k] = region<float>(number++);
            if (world.fresh) call.fresh[part] |= (uint8_t)(1u << k);
        }
    return call;
}

using gradients = std::map<uintptr_t, std::vector<std::string>>;

void begin(const sli_call *call, bool backward) {
    world.call = call;
    world.backward = backward;
    world.all.clear();
    world.given.clear();
    world.begun.clear();
    memset(world.done, 0, sizeof world.done);
    memset(world.seen, 0, sizeof world.seen);
    memset(world.left, 0, sizeof world.left);
}

/* Bytes of all parameters' gradients. */
size_t all_gradients(const sli_call *call) {
    const sli_problem &p = call->problem;
    const size_t rows = (size_t)(sli_op_gates(p.op) * p.units), O = (size_t)sli_problem_output(&p);
    const size_t H = (size_t)p.units, sizes[] = {rows * (size_t)p.inputs, rows * O, rows, rows, 3 * H, O * H};
    size_t sum = 0;
    for (int k = 0; k < 2 * SLI_PART_PARAMS; k++)
        if (call->d_param[k]) sum += sizes[k % SLI_PART_PARAMS] * sizeof(float);
    return sum;
}

/* Both passes in pieces of so many chunks; gives what was added to gradients. */
/* Whatever comes next in the queue's stream comes behind all that is beside it, but for late sums. */
void check_joined(const char *pass) {
    for (int s = 0; s < STREAMS; s++)
        if (s != MAIN && s != LATE && world.done[s] > world.seen[MAIN][s]) complain(std::string(pass) + " leaves a stream behind");
}

gradients run(const sli_call *call, int piece) {
    world.piece = piece;
    world.holds.clear();
    world.zeros.clear();
    world.launches = world.beside = world.transposed = world.transposed_in_lanes = 0;
    begin(call, false);
    forward(call, world.kind);
    check_joined("forward");
    if (!call->problem.train) return {};
    begin(call, true);
    backward(call, world.kind);
    check_joined("backward");
    size_t begun = 0;
    for (const auto &part : world.begun) begun += part.second;
    if (begun != all_gradients(call)) complain("a gradient is not complete");
    return world.given;
}

const struct trial {
    const char *text;
    sli_persist_kind kind;
    int batch; /* of the call; 0: the plan's */
    bool adds;
    int transposes; /* sums over time read transposed copies: 1, and in lanes: 2 */
} trials[] = {
    {"lstm:b16_t1000_i40_h64_tf32_train", SLI_PERSIST_KIND_CLUSTER, 0, false, 0},
    {"gru:b64_t900_i33_h65_bf16_train+bias=double", SLI_PERSIST_KIND_GRID, 0, true, 0},
    {"rnn:b300_t200_i20_h48_f32_train+reverse", SLI_PERSIST_KIND_CLUSTER, 7, false, 0},
    {"lstm:b64_t500_i20_h64_f32x3_bi_train", SLI_PERSIST_KIND_GRID, 0, true, 0},
    {"gru:b200_t333_i9_h40_f16_bi_train+bias=none", SLI_PERSIST_KIND_CLUSTER, 0, false, 0},
    {"lstm:b64_t2600_i64_h512_bf16_train", SLI_PERSIST_KIND_GRID, 0, false, 0}, /* three spans */
    {"lstm:b64_t2600_i64_h512_tf32_bi_train", SLI_PERSIST_KIND_GRID, 0, false, 0},
    {"gru:b64_t2900_i64_h512_bf16", SLI_PERSIST_KIND_CLUSTER, 0, false, 0},
    {"lstm:b33_t900_i64_h100_f32_bi", SLI_PERSIST_KIND_CLUSTER, 0, false, 0},
    {"lstm:b64_t2600_i64_h512_tf32", SLI_PERSIST_KIND_GRID, 0, false, 0}, /* x as it is */
    {"gru:b4_t25_i64_h512_f32+reverse", SLI_PERSIST_KIND_GRID, 0, false, 0},
    {"lstm:b64_t900_i64_h100_f16_bi_train+recompute", SLI_PERSIST_KIND_CLUSTER, 0, false, 0},
    {"gru:b64_t900_i64_h100_tf32_train+recompute", SLI_PERSIST_KIND_GRID, 0, false, 0},
    {"lstm:b64_t900_i64_h100_tf32_train+lengths+peephole+zoneout_c=0.1", SLI_PERSIST_KIND_CLUSTER, 0, false, 0},
    {"gru:b64_t900_i64_h100_f16_train+lengths+reset=before", SLI_PERSIST_KIND_GRID, 0, false, 0},
    {"lstm:b20_t410_i1500_h1500_tf32_train", SLI_PERSIST_KIND_GRID, 0, false, 1},
    {"lstm:b20_t35_i1500_h1500_tf32_train", SLI_PERSIST_KIND_GRID, 0, false, 2}, /* one chunk */
    {"lstm:b64_t900_i20_h96_p40_bf16_train+lengths", SLI_PERSIST_KIND_CLUSTER, 0, false, 0},
    {"lstm:b64_t2600_i64_h512_p96_tf32_bi_train", SLI_PERSIST_KIND_GRID, 0, true, 0},
    {"lstm:b20_t1100_i50_h64_p200_f16_train+mask=holes", SLI_PERSIST_KIND_CLUSTER, 0, false, 0},
    {"lstm:b64_t2600_i64_h512_p300_bf16+reverse", SLI_PERSIST_KIND_GRID, 7, false, 0},
    {"lstm:b64_t900_i21_h96_bf16_train+reverse", SLI_PERSIST_KIND_CLUSTER, 7, false, 0},
    {"gru:b64_t1100_i64_h96_f16_train+lengths", SLI_PERSIST_KIND_GRID, 0, true, 0},
    {"lstm:b2_t20_i12_h64_bf16+reverse", SLI_PERSIST_KIND_CLUSTER, 0, false, 0}, /* the launch makes its input side */
    {"gru:b3_t18_i9_h40_tf32_bi", SLI_PERSIST_KIND_GRID, 2, false, 0},
    {"lstm:b64_t150_i512_h512_bf16_train", SLI_PERSIST_KIND_GRID, 0, false, 0},  /* d kernel and d recurrent in one launch */
    {"gru:b16_t25_i512_h512_f16_train+reverse", SLI_PERSIST_KIND_CLUSTER, 0, false, 0},
    {"lstm:b32_t50_i300_h300_bf16_train", SLI_PERSIST_KIND_CLUSTER, 0, false, 0}, /* both out of pads */
    {"gru:b8_t20_i300_h300_f16_train", SLI_PERSIST_KIND_CLUSTER, 0, false, 0},    /* too few rows for pads */
    {"lstm:b64_t900_i64_h96_bf16_train+lengths", SLI_PERSIST_KIND_CLUSTER, 0, false, 0}, /* h as float in one slot */
    {"rnn:b64_t900_i20_h64_f16_train+zoneout_h=0.1+reverse", SLI_PERSIST_KIND_GRID, 0, false, 0},
    {"lstm:b16_t25_i40_h64_bf16_train", SLI_PERSIST_KIND_CLUSTER, 0, false, 0},  /* another, whose x is converted */
};

/* An empty world, and the trial's call in it; every other one has fresh gradients, every other one gives those of entering states. */
bool begin_trial(const trial &t, uint64_t seed, sli_problem *p, sli_call *call) {
    if (sli_problem_parse(t.text, p) != SL_OK) return false;
    world = bench();
    world.caps.kind = SLI_DEVICE_CUDA;
    world.caps.compute_capability = 90;
    world.caps.multiprocessors = 132;
    world.caps.shared_memory = 227 << 10;
    world.caps.l2_bytes = 50 << 20;
    world.kind = t.kind;
    world.fresh = (seed + (uint64_t)(&t - trials)) % 2 == 0;
    const int planned = p->batch;
    if (t.batch > 0) p->batch = t.batch;
    *call = call_of(*p, planned);
    for (int i = 0; i < 2 * sli_problem_directions(p) && (&t - trials) % 2 == 1; i++)
        call->d_in[SLI_RNN_STATE_IN(i / 2, i % 2)] = region<float>(100 + i);
    if (t.adds) call->accumulate = 1u << SLI_RNN_X;
    return true;
}

} // namespace

EMULATE_CASE("overlap: pieces with products beside them do what one piece does, in order") {
    for (const auto &t : trials) {
        sli_problem p;
        sli_call call;
        if (!begin_trial(t, seed, &p, &call)) return emulate_say("%s is no problem", t.text);
        const gradients whole = run(&call, 0);
        const int spans = world.launches;
        for (int piece = 1; piece <= 5 && world.wrong.empty(); piece++) {
            const gradients cut = run(&call, piece);
            if (cut != whole) complain("gradients are summed in another order");
            if (piece == 1 && p.steps > call.chunk && (world.launches <= spans || world.beside == 0))
                complain("nothing was cut");
            if ((world.transposed > 0) != (t.transposes > 0)) complain("copies were made, or not");
            if ((world.transposed_in_lanes > 0) != (t.transposes > 1)) complain("lanes, or none");
        }
        const sli_step_shape s = sli_step_shape_of(&p, call.chunk);
        const bool pairs = s.pairs && (s.O % 8 == 0 || s.rows >= 256); /* as in workspace.c: pads */
        if ((world.pairs > 0) != pairs) complain("two sums over time in one launch, or not");
        world.pairs = 0;
        call.borrowed = true; /* arrays that lie in any order */
        if (run(&call, 0) != whole || world.pairs > 0) complain("gradients of the caller's own are summed otherwise");
        if (!world.wrong.empty())
            return emulate_say("%s, pieces of %d chunks: %s", t.text, world.piece, world.wrong.c_str());
    }
    return "";
}

/* What the plan keeps for late sums: scratch, saved, inputs, and the parameters' gradients, which nobody else looks at. */
static bool is_kept(const sli_call *call, const range &r) {
    const uintptr_t region_of = r.first >> 40;
    bool kept =
        r.first == r.end || region_of == (uintptr_t)call->scratch >> 40 ||
        (!r.writes && (region_of == (uintptr_t)call->saved >> 40 || region_of == (uintptr_t)call->in[SLI_RNN_X] >> 40));
    for (void *gradient : call->d_param) kept |= gradient && region_of == (uintptr_t)gradient >> 40;
    return kept;
}

EMULATE_CASE("overlap: a launch makes the input side of small layers itself, and nothing else does") {
    int own = 0;
    for (const auto &t : trials) {
        sli_problem p;
        sli_call call;
        if (!begin_trial(t, seed, &p, &call)) return emulate_say("%s is no problem", t.text);
        world.own_inputs = 0;
        begin(&call, false);
        forward(&call, world.kind);
        for (const work &w : world.all)
            if (world.own_inputs > 0 && w.name != "zeros" && w.name != "a launch") complain(w.name + " beside it");
        own += world.own_inputs > 0;
        /* of more steps than were planned, a product before the launch */
        if (world.own_inputs == 0) continue;
        call.problem.steps += 16;
        call.total_steps += 16;
        world.own_inputs = 0;
        begin(&call, false);
        forward(&call, world.kind);
        if (world.own_inputs > 0) complain("a launch makes its input side of more than was planned");
        if (!world.wrong.empty()) return emulate_say("%s: %s", t.text, world.wrong.c_str());
    }
    return own >= 2 ? "" : "no launch did";
}

EMULATE_CASE("overlap: late sums are those of a call without, and read what is kept") {
    for (const auto &t : trials) {
        sli_problem p;
        sli_call call;
        if (!begin_trial(t, seed, &p, &call)) return emulate_say("%s is no problem", t.text);
        if (!p.train) continue;
        const bool leaves = !p.bidirectional && p.projection == 0;
        const gradients at_once = run(&call, 0);
        call.late = true;
        int late = 0, sums = 0, in_pieces = 0;
        /* In spans and in pieces; the second time sums of the first, of another layer, still wait for the launch, which takes all of a span then. */
        for (int time = 0; time < 6 && world.wrong.empty(); time++) {
            world.late = world.awaits = time % 2 == 1 && leaves;
            world.stacked = time / 2 == 1;
            if (run(&call, time / 2) != at_once) complain("gradients are summed in another order");
            if (time / 2 == 1 && leaves && p.steps > call.chunk && time % 2 == 1 && world.launches >= in_pieces)
                complain("late sums wait for a launch of one piece");
            in_pieces = world.launches;
            if (world.late != leaves) complain("late sums are left by one direction, without projection");
            for (const work &w : world.all) {
                if (w.stream != LATE) continue;
                late++;
                for (const range &r : w.ranges)
                    if (!is_kept(&call, r)) complain(w.name + " is late and uses what is not kept");
            }
            for (const auto &given : world.given) sums += given.first >> 40 != (uintptr_t)call.d_in[SLI_RNN_X] >> 40;
        }
        if ((late > 0) != leaves || sums == 0) complain("nothing was late");
        if (!world.wrong.empty()) return emulate_say("%s, late: %s", t.text, world.wrong.c_str());
    }
    return "";
}

/* Whether training makes slots of the entering states beside its first launch, which takes them from where the call has them. */
static bool begins_late(const sli_call *call, const sli_problem *p) {
    persist_call entered;
    const sli_step_shape s = sli_step_shape_of(p, 1);
    if (!sli_persist_enter(call, world.kind, false, &entered)) return false;
    return p->train && !p->bidirectional && !s.drop && !s.project && p->units % 4 == 0 && sli_persist_idle(entered.geometry, sli_cuda_caps_of(call->queue)) > 0;
}

EMULATE_CASE("overlap: training begins with x as an operand; slots of entering states come beside the first launch, or part behind x") {
    int alone = 0, kept = 0, later = 0;
    for (const auto &t : trials) {
        sli_problem p;
        sli_call call;
        if (!begin_trial(t, seed, &p, &call)) return emulate_say("%s is no problem", t.text);
        const bool copies = sli_step_shape_of(&p, 1).copy_x && !p.bidirectional;
        const bool given = !p.bidirectional && p.projection == 0 && p.recurrent_dropout == 0 && (!p.train || p.units % 4 == 0);
        if (sli_cuda_lstm_grid.begins_alone(&p) != (copies || given)) complain("the row says otherwise");
        if (!p.train || p.bidirectional) continue;
        world.piece = 1;
        begin(&call, false);
        forward(&call, world.kind);
        int converted = 0, of_main = 0;
        bool launched = false, late = false;
        for (const work &w : world.all) {
            converted += w.name == "operand rows";
            of_main += !launched && w.stream == MAIN && w.name != "a launch"; /* x, W x, zeros */
            launched |= w.name == "a launch";
            late |= w.name == "slots of states" && launched && w.stream != MAIN;
        }
        const sli_step_shape shape = sli_step_shape_of(&p, call.chunk);
        if (shape.pairs && !shape.keep_x) complain("a pair of an x that is nowhere");
        if (late != begins_late(&call, &p)) complain("slots of states come beside the first launch, or before");
        if (world.before_states != (late ? of_main : copies)) complain("the states begin elsewhere");
        later += late;
        if (copies && (world.all[0].name != "operand rows" || world.all[0].stream != MAIN)) complain("x comes later");
        if (converted != (copies ? (p.steps + call.chunk - 1) / call.chunk : 0)) complain("x is converted twice");
        alone += copies;
        if (sli_step_shape_of(&p, call.chunk).keep_x) {
            std::vector<range> copies_of_x, read;
            for (const work &w : world.all)
                if (w.name == "operand rows") copies_of_x.push_back(w.ranges[0]);
            run(&call, 1);
            for (const work &w : world.all) {
                if (w.name == "operand rows") complain("backward converts x again");
                if (w.name == "a product") read.push_back(w.ranges[1]);
            }
            for (const range &copy : copies_of_x) {
                const auto same = [&](const range &r) { return r.first == copy.first && r.end <= copy.end; };
                if (std::none_of(read.begin(), read.end(), same)) complain("backward does not read what forward copied");
            }
            kept++;
        }
        if (!world.wrong.empty()) return emulate_say("%s: %s", t.text, world.wrong.c_str());
    }
    return alone > 0 && kept > 0 && later > 0 ? "" : "nothing began alone, or no x was kept, or no state came later";
}

EMULATE_CASE("overlap: inference begins to multiply x as it is beside the exchange's zeros") {
    sli_problem p;
    sli_call call;
    for (const auto &t : trials) {
        if (!begin_trial(t, seed, &p, &call)) return emulate_say("%s is no problem", t.text);
        if (p.train || p.bidirectional || sli_step_shape_of(&p, 1).copy_x || t.kind != SLI_PERSIST_KIND_GRID) continue;
        begin(&call, false);
        forward(&call, world.kind);
        const work &zeros = world.all[0], &product = world.all[1];
        if (zeros.name != "zeros" || zeros.stream != MAIN || product.name != "a product" || product.stream != SIDE)
            complain(zeros.name + ", then " + product.name);
        if (product.seen[MAIN] >= zeros.number) complain("the input side waits for zeros");
        return world.wrong;
    }
    return "there is no such trial";
}

EMULATE_CASE("overlap: x of one chunk is converted once and beside the recurrence, as are the entering states beside products") {
    const trial &t = trials[sizeof trials / sizeof *trials - 1];
    sli_problem p;
    sli_call call;
    if (!begin_trial(t, seed, &p, &call)) return emulate_say("%s is no problem", t.text);
    run(&call, 0);
    int converted = 0, finished = 0;
    for (const work &w : world.all) {
        converted += w.name == "operand rows";
        finished += w.name == "entering states";
        if ((w.name == "operand rows" || w.name == "entering states") && w.stream != SIDE)
            complain(w.name + " are not beside");
    }
    if (converted != 1 || finished != 1) complain(emulate_say("%d and %d times", converted, finished));
    return world.wrong;
}

EMULATE_CASE("overlap: no recurrence is launched behind a call that failed") {
    for (const auto &t : trials)
        for (int number = 1, failed = 1; failed; number++) {
            sli_problem p;
            sli_call call;
            if (!begin_trial(t, seed, &p, &call)) return emulate_say("%s is no problem", t.text);
            world.fails_at = number;
            run(&call, 1);
            if (world.behind > 0) return emulate_say("%s, call %d fails: %d launches behind it", t.text, number, world.behind);
            failed = world.asked >= number;
        }
    return "";
}
