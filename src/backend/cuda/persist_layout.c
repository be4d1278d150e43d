/* cuda:cluster and cuda:grid: layouts of their memory. */
#include <string.h>

#include "backend/cuda/kernels/persist_args.h"
#include "backend/cuda/persist_overlap.h"
#include "backend/cuda/step_cost.h"

static size_t take(size_t *at, size_t bytes) {
    const size_t offset = *at;
    *at += sli_round_up(bytes, SLI_PERSIST_ALIGN);
    return offset;
}

static size_t floats(int64_t rows, int64_t columns) {
    return sizeof(float) * (size_t)rows * (size_t)columns;
}

sli_problem sli_persist_folded(const sli_problem *p) {
    sli_problem folded = *p;
    folded.projection = 0;
    return folded;
}

int sli_persist_span(const sli_problem *p, const sli_persist_pair *pair, int chunk) {
    /* Of one array of all gates: a launch costs some microseconds, memory is plenty; but gates are recomputed to save it. */
    enum { MOST_BYTES = 512 << 20, RECOMPUTED_BYTES = 32 << 20 };
    const sli_step_shape s = sli_step_shape_of(p, chunk);
    const int64_t of_chunk = (int64_t)floats((int64_t)chunk * pair->batch, s.us);
    const int64_t most = s.recompute ? RECOMPUTED_BYTES : MOST_BYTES;
    const int64_t chunks = of_chunk > 0 && of_chunk < most ? most / of_chunk : 1;
    const int64_t steps = chunks * chunk, all = p->steps < 1 ? 1 : p->steps;
    return (int)(steps < all ? steps : all);
}

/* ------------------------------------------------------------------------------------------------------ geometry --
 * A search takes milliseconds, every call of a row asks for the same few: a thread remembers its last ones, and that there was no answer. */
enum { REMEMBERED = 128 };

typedef struct question { /* all that a geometry depends on */
    sli_op op;
    sl_dtype dtype;
    int units, wave, batch, place;
    bool before, bidirectional, train, backward, scales;
    sli_persist_kind kind;
} question;

static bool same(const question *a, const question *b) {
    return a->op == b->op && a->dtype == b->dtype && a->units == b->units && a->wave == b->wave &&
           a->batch == b->batch && a->place == b->place && a->before == b->before &&
           a->bidirectional == b->bidirectional && a->train == b->train && a->backward == b->backward &&
           a->scales == b->scales && a->kind == b->kind;
}

static bool choose(const sli_problem *p, const sli_caps *caps, sli_persist_kind kind, bool backward,
                   sli_persist_geometry *geometry, sli_why *why) {
    static _Thread_local struct {
        question question;
        sli_caps caps;
        bool found;
        sli_persist_geometry answer;
    } memory[REMEMBERED];
    static _Thread_local int next;
    const question question = {.op = p->op,
                               .dtype = p->dtype,
                               .units = p->units,
                               .wave = p->wave,
                               .batch = p->batch,
                               .place = sli_persist_place(p, backward),
                               .before = p->reset_before,
                               .bidirectional = p->bidirectional,
                               .train = p->train,
                               .backward = backward,
                               .scales = sli_persist_scales(p),
                               .kind = kind};
    int at = 0;
    while (at < REMEMBERED &&
           !(same(&memory[at].question, &question) && memcmp(&memory[at].caps, caps, sizeof *caps) == 0))
        at++;
    const bool known = at < REMEMBERED;
    if (!known || (!memory[at].found && why)) { /* why not is not remembered */
        sli_persist_geometry answer = {0};
        const bool found = sli_persist_choose(p, caps, kind, backward, &answer, why);
        if (!known) at = next;
        if (!known) next = (next + 1) % REMEMBERED;
        memory[at].question = question;
        memcpy(&memory[at].caps, caps, sizeof *caps);
        memory[at].found = found;
        memory[at].answer = answer;
    }
    *geometry = memory[at].answer;
    return memory[at].found;
}

static int groups_of(const sli_persist_geometry *g, int batch) {
    const int rows = g->halves * sli_persist_rows(g);
    return batch < 1 ? 1 : (batch + rows - 1) / rows;
}

/* Backward products of large batches: tiles of cuda:step's are as large as the GPU's best, and no sums go from block to block. One
 * direction, whose memory lies as cuda:step has it; gates that are there, and h. */
static bool in_steps(const sli_problem *p, const sli_caps *caps, const sli_persist_geometry *backward) {
    if (p->bidirectional || p->recompute || p->projection > 0 || sli_step_fused(p, true)) return false;
    /* Predictions of large batches err by as much. Of 13 kinds of layers with wide steps this chooses the faster one, or one within 1%, of 11, and loses 2 and 6% of
     * two (wide_h100_2026-11-26.txt, 5). */
    const sli_step_wide wide = sli_step_wide_of(p, caps, true);
    const double sure = wide.runs       ? 1.05
                        : wide.rows > 0 ? 0.9
                                        : 0.85; /* a run where it wins by more than predictions of 16 rows differ */
    return !backward || sure * sli_step_step_seconds(p, caps, true) < sli_persist_step_seconds(backward, p, caps);
}

/* Sequences of one chunk, or of many: all that the choice below knows of their length, so that segments of whole chunks, which are booked as
 * if they were the sequence, choose as the whole does, whose packed weights they read. A long single chunk counts as many. */
static sli_problem of_such_length(const sli_problem *planned, int chunk, const sli_caps *caps) {
    enum { MANY = 16, ENDLESS = 1 << 30 };
    sli_problem such = *planned;
    such.steps = 2 * chunk > sli_caps_chunk(caps, planned->batch, ENDLESS) ? MANY * chunk : chunk;
    return such;
}

/* Backward a slice of the batch may go through one cluster where forward it goes over the grid: the multiprocessors that clusters leave idle multiply beside
 * them. LSTM of 512 units, 64 rows, 1000 steps in tf32: backward 3.5 ms over the grid and 3.4 its products, 4.9 through clusters with all products. Of 28
 * problems of 384 and 512 units on an H100 predictions chose the faster one in 24, else lost 0.1 to 3.3% (beside_h100_2026-11-25.txt, where cuts of the
 * grid that leave as many idle are no gain that is predicted). */
static bool through_cluster(const sli_problem *planned, const sli_caps *caps, const sli_persist_pair *grid,
                            sli_persist_geometry *cluster) {
    /* Products on few multiprocessors take less than predicted. GRU of 512 units, 64 rows, 1000 steps in bf16 on an H200: 4.40 ms over the grid, 4.58 through clusters. */
    const double beside = 0.97;
    const sli_problem folded = sli_persist_folded(planned);
    const int chunk = sli_caps_chunk(caps, planned->batch, planned->steps);
    sli_persist_pair other = {.batch = planned->batch};
    if (caps->compute_capability < 90 || !choose(&folded, caps, SLI_PERSIST_KIND_CLUSTER, true, &other.backward, NULL))
        return false;
    *cluster = other.backward;
    if (!grid) return true;
    const sli_problem such = of_such_length(planned, chunk, caps);
    const sli_persist_pass pass = sli_persist_pass_of(&such, caps, &other, chunk, true);
    const double us = (pass.pieces > 1 ? beside : 1) * pass.us;
    return us < (1 - 1e-9) * sli_persist_pass_of(&such, caps, grid, chunk, true).us;
}

/* Over the grid, in the places behind the first one: the best cut is the second, where the first goes through a cluster. */
static bool choose_grid_backward(const sli_problem *planned, const sli_caps *caps, sli_persist_pair *pair,
                                 sli_why *why) {
    const int place = sli_persist_place(planned, true);
    sli_problem p = *planned;
    sli_persist_geometry cluster;
    p.cut = 0;
    sli_problem folded = sli_persist_folded(&p);
    bool found = choose(&folded, caps, SLI_PERSIST_KIND_GRID, true, &pair->backward, why);
    const bool through = through_cluster(&p, caps, found ? pair : NULL, &cluster);
    if (place > 0) {
        folded.cut = (place - through) * SLI_CUTS;
        return choose(&folded, caps, SLI_PERSIST_KIND_GRID, true, &pair->backward, why);
    }
    if (through) pair->backward = cluster;
    found = found || through;
    if (!in_steps(planned, caps, found ? &pair->backward : NULL)) return found;
    const sli_step_wide wide = sli_step_wide_of(planned, caps, true);
    pair->backward_in_steps = true;
    pair->steps_bytes = sli_step_wide_bytes(&wide);
    pair->steps_run = sli_step_all_runs(planned, caps);
    memset(&pair->backward, 0, sizeof pair->backward);
    return true;
}

static bool choose_backward(const sli_problem *planned, const sli_caps *caps, sli_persist_kind kind,
                            sli_persist_pair *pair, sli_why *why) {
    const sli_problem folded = sli_persist_folded(planned);
    if (kind == SLI_PERSIST_KIND_GRID) return choose_grid_backward(planned, caps, pair, why);
    return choose(&folded, caps, kind, true, &pair->backward, why);
}

bool sli_persist_pair_of(const sli_problem *problem, sli_planned plan, const sli_caps *caps, sli_persist_kind kind,
                         sli_persist_pair *pair, sli_why *why) {
    sli_problem planned = *problem;
    if (plan.batch > 0) planned.batch = plan.batch;
    if (plan.steps > 0) planned.steps = plan.steps;
    *pair = (sli_persist_pair){.batch = planned.batch};
    const sli_problem folded = sli_persist_folded(&planned);
    if (!choose(&folded, caps, kind, false, &pair->forward, why)) return false;
    sli_persist_place_inputs(&planned, caps, &pair->forward);
    if (problem->train && !choose_backward(&planned, caps, kind, pair, why)) return false;
    pair->forward.groups = groups_of(&pair->forward, problem->batch);
    if (problem->train && !pair->backward_in_steps) pair->backward.groups = groups_of(&pair->backward, problem->batch);
    return true;
}

sli_persist_packed sli_persist_layout_packed(const sli_problem *p, const sli_persist_pair *pair) {
    sli_persist_packed at = {.step =
                                 pair->steps_run ? sli_step_layout_packed_of_runs(p) : sli_step_layout_packed(p, NULL)};
    const sli_step_shape s = sli_step_shape_of(p, 1);
    size_t end = at.step.stride;
    at.step.wide_backward = take(&end, pair->steps_bytes); /* where cuda:step has it */
    at.folded = take(&end, s.project ? floats(s.GH, s.ms) : 0);
    at.forward = take(&end, sli_persist_packed_bytes(&pair->forward));
    at.backward = take(&end, p->train && !pair->backward_in_steps ? sli_persist_packed_bytes(&pair->backward) : 0);
    at.largest = take(&end, pair->forward.scaled ? floats(1, PERSIST_LARGEST) : 0);
    at.stride = end;
    at.total = end * (size_t)sli_problem_directions(p);
    return at;
}

/* `told`: where it is that is zeros before a launch. */
static void take_exchange(const sli_persist_geometry *g, sli_persist_scratch *at, size_t *end, size_t *told) {
    const bool grid = g->gather == SLI_PERSIST_GRID, turns = g->couriers > 0, words = sli_persist_words_tell(g);
    const size_t slices = grid ? (size_t)g->groups * (size_t)g->halves * (size_t)g->reduce : 0;
    const size_t packed = sli_round_up((size_t)sli_persist_k(g) * (size_t)sli_persist_operand(g->math), 16);
    const size_t v = slices * (size_t)sli_persist_places(g) * (turns ? sli_persist_shared_of(g).v_row : packed);
    const size_t owners =
        g->meets ? (size_t)g->groups * (size_t)g->halves * (size_t)g->spread : 0; /* of sums that meet */
    const size_t counters = words ? 0 : (slices + owners) * sizeof(uint32_t);
    at->counters = take(words ? end : told, counters);
    at->exchange = take(words ? told : end, (words ? (size_t)PERSIST_EXCHANGE : 2) * v);
    at->meeting = take(end, 2 * owners * (size_t)g->reduce * sli_persist_arriving_bytes(g));
    at->zeros = words ? at->exchange : at->counters;
    at->zeros_bytes = words ? 2 * v : counters;
}

/* m in slots, and as cells read it where operands are narrow: one slot, since backward does not. */
static void take_m(const sli_problem *p, size_t *m, size_t *m_own, size_t *end) {
    const sli_problem folded = sli_persist_folded(p);
    const sli_step_shape s = sli_step_shape_of(&folded, 1);
    *m = take(end, s.operand * (size_t)((s.T + 1) * s.B) * (size_t)s.hs);
    *m_own = take(end, s.own_h ? floats(s.B, s.H) : 0);
}

/* Backward's, in training of one direction: forward clears it on multiprocessors that are idle, where a launch of its own would lie between the two passes. */
static void take_backward_exchange(const sli_problem *p, const sli_persist_pair *pair, sli_persist_scratch *at,
                                   size_t *end) {
    size_t kept = 0;
    const bool keeps = p->train && !p->bidirectional && !pair->backward_in_steps;
    take_exchange(&pair->backward, at, end, keeps ? &kept : end);
    at->kept_bytes = kept;
}

sli_persist_saved sli_persist_layout_saved(const sli_problem *p, const sli_persist_pair *pair, int chunk) {
    sli_persist_saved at = {.step = sli_step_layout_history(p, chunk)};
    sli_persist_scratch exchange = {0};
    size_t end = at.step.stride, other = 0;
    if (p->train && p->projection > 0) take_m(p, &at.m, &at.m_own, &end);
    if (p->train && !pair->backward_in_steps) take_backward_exchange(p, pair, &exchange, &other);
    at.kept = take(&end, exchange.kept_bytes);
    at.stride = end;
    at.total = end * (size_t)sli_problem_directions(p);
    return at;
}

static void take_fold_forward(const sli_problem *p, int chunk, sli_persist_fold *at, size_t *end) {
    const sli_step_shape s = sli_step_shape_of(p, chunk);
    if (!s.project) return;
    if (!s.train) take_m(p, &at->m, &at->m_own, end);
    at->first = take(end, s.mask ? sizeof(int32_t) * (size_t)s.B : 0);
    at->entering = take(end, floats(s.B, s.us));
    at->q = take(end, floats(s.train || s.hs != s.O ? s.rows : s.B, s.hs));
}

static void take_fold_backward(const sli_problem *p, int chunk, int span, sli_persist_fold *at, size_t *end) {
    const sli_step_shape s = sli_step_shape_of(p, chunk);
    if (!s.project) return;
    at->first = take(end, s.mask ? sizeof(int32_t) * (size_t)s.B : 0);
    at->dm = take(end, floats(span * s.B, s.ms));
    at->e = take(end, s.operand * (size_t)(s.rows + s.B) * (size_t)s.hs);
    at->back = take(end, floats(s.rows, s.hs));
    at->dh = take(end, floats(s.B, s.O));
    at->left = take(end, floats(s.B, s.hs));
    at->dp = take(end, floats(s.B, s.ms));
    at->pw = take(end, floats(s.B, s.H));
}

sli_persist_scratch sli_persist_layout_forward(const sli_problem *p, const sli_caps *caps, const sli_persist_pair *pair,
                                               int chunk) {
    sli_persist_scratch at = {.step = sli_step_layout_forward(p, caps, sli_persist_span(p, pair, chunk), false)};
    size_t end = at.step.stride;
    take_fold_forward(p, chunk, &at.fold, &end);
    take_exchange(&pair->forward, &at, &end, &end);
    at.stride = end;
    at.total = end * (size_t)sli_problem_directions(p);
    return at;
}

/* Products of a chunk of fewer FLOPs do not fill the GPU when they begin and when they end, and in 16 bits cuBLASLt clears a counter before some, which waits for the one before:
 * of one direction they are computed side by side. In 16 bits that is 1 to 3% of training of 1024 to 2048 units, in tf32 from -2 to 1% (odd_sizes_h200_2026-11-27.txt). The plan's rows decide: a call of fewer has no more memory. */
static size_t beside_bytes(const sli_step_shape *s, const sli_step_scratch *step, int64_t planned_rows) {
    const double most = s->narrow ? 1.5e11 : 2e10,
                 flops = 2.0 * (double)planned_rows * (double)s->GH * (double)(s->O > s->I ? s->O : s->I);
    if (s->directions == 2 || s->recompute || flops > most) return 0; /* recomputed gates: to save memory */
    return sli_round_up(step->pad_bytes, SLI_PERSIST_ALIGN) + sli_round_up(step->split_bytes, SLI_PERSIST_ALIGN) +
           sli_round_up(step->workspace_bytes, SLI_PERSIST_ALIGN);
}

sli_persist_scratch sli_persist_layout_backward(const sli_problem *p, const sli_caps *caps,
                                                const sli_persist_pair *pair, int chunk) {
    const int span = sli_persist_span(p, pair, chunk);
    const sli_step_shape s = sli_step_shape_of(p, chunk);
    const int64_t chunks = (span + chunk - 1) / chunk;
    if (pair->backward_in_steps) {
        sli_persist_scratch steps = {.step = sli_step_layout_backward(p, caps, chunk, chunk, true)};
        steps.stride = steps.step.stride;
        steps.total = steps.step.total;
        return steps;
    }
    sli_persist_scratch at = {.step = sli_step_layout_backward(p, caps, chunk, span > chunk ? span : chunk, false)};
    size_t end = at.step.stride;
    const bool bias = p->bias != SL_BIAS_NONE;
    take_fold_backward(p, chunk, span > chunk ? span : chunk, &at.fold, &end);
    at.sums = take(&end, bias ? floats(chunks * s.B, s.us) : 0);
    at.sums_n = take(&end, bias && s.gru && !s.before ? floats(chunks * s.B, s.H) : 0);
    at.sums_peep = take(&end, p->peephole ? floats(chunks * s.B, 3 * s.H) : 0);
    take_backward_exchange(p, pair, &at, &end);
    at.beside_bytes = beside_bytes(&s, &at.step, (int64_t)chunk * pair->batch);
    at.beside = take(&end, 2 * at.beside_bytes);
    at.stride = end;
    at.total = end * (size_t)sli_problem_directions(p);
    return at;
}
