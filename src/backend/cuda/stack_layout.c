/* cuda:stack: pieces of time, and the layout of its memory. */
#include "backend/cuda/stack_layout.h"

enum {
    PART = 256,
    PIECE_STEPS = 64,   /* about: a piece costs some ten microseconds of launches, a step about one */
    MOST_ROWS = 1 << 24 /* of the batches of all layers at once */
};

static size_t take(size_t *at, size_t bytes) {
    const size_t offset = *at;
    *at += sli_round_up(bytes, PART);
    return offset;
}

sli_problem sli_stack_part(const sli_problem *problem, int layer, int steps) {
    sli_problem part = *problem; /* as sli_problem_part, which the plug-in has not */
    part.layers = 1;
    part.dropout = 0;
    part.steps = steps;
    if (layer > 0) part.inputs = problem->units;
    return part;
}

/* -------------------------------------------------------------------------------------------------------- pieces -- */
typedef double (*seconds_of)(const sli_persist_geometry *g, const sli_problem *problem, const sli_caps *caps);

static double step_us(const sli_stack_cut *cut, const sli_problem *problem, const sli_caps *caps, bool backward,
                      int layers, seconds_of seconds) {
    sli_persist_geometry g = backward ? cut->pair.backward : cut->pair.forward;
    sli_problem side_by_side = sli_stack_part(problem, 0, problem->steps);
    side_by_side.batch = problem->batch * layers;
    g.groups *= layers;
    return 1e6 * seconds(&g, &side_by_side, caps);
}

double sli_stack_step_us(const sli_stack_cut *cut, const sli_problem *problem, const sli_caps *caps, bool backward,
                         int layers) {
    return step_us(cut, problem, caps, backward, layers, sli_persist_taken_seconds);
}

/* The geometry for `at_once` layers; false: there is none. */
static bool cut_for(const sli_problem *planned, int at_once, const sli_caps *caps, sli_stack_cut *cut, double *us,
                    sli_why *why) {
    const sli_problem part = sli_stack_part(planned, 0, planned->steps);
    cut->at_once = at_once;
    cut->planned = (sli_planned){at_once * planned->batch, planned->steps};
    if (!sli_persist_pair_of(&part, cut->planned, caps, SLI_PERSIST_KIND_CLUSTER, &cut->pair, why)) return false;
    *us = step_us(cut, planned, caps, false, at_once, sli_persist_step_seconds);
    if (planned->train) *us += step_us(cut, planned, caps, true, at_once, sli_persist_step_seconds);
    *us /= at_once;
    return true;
}

/* The number of layers at once that makes a step of a layer cheapest: more of them share the GPU, with smaller clusters. */
bool sli_stack_cut_of(const sli_problem *problem, sli_planned plan, const sli_caps *caps, int chunk, sli_stack_cut *cut,
                      sli_why *why) {
    sli_problem planned = *problem;
    double best = 0;
    bool found = false;
    if (plan.batch > 0) planned.batch = plan.batch;
    if (plan.steps > 0) planned.steps = plan.steps;
    for (int at_once = 1; at_once <= problem->layers; at_once++) {
        sli_stack_cut other;
        double us;
        if (at_once > 1 && (int64_t)at_once * planned.batch > MOST_ROWS) break;
        if (!cut_for(&planned, at_once, caps, &other, &us, why)) break;
        if (found && us >= 0.98 * best)
            continue; /* rounding decides nothing: libsluice and the plug-in choose the same */
        found = true;
        best = us;
        *cut = other;
    }
    if (!found) return false;
    const int chunks = (PIECE_STEPS + chunk / 2) / chunk;
    cut->piece = (chunks > 1 ? chunks : 1) * chunk;
    const sli_problem part = sli_stack_part(problem, 0, problem->steps); /* with the slices of this batch */
    return sli_persist_pair_of(&part, cut->planned, caps, SLI_PERSIST_KIND_CLUSTER, &cut->pair, why);
}

int sli_stack_pieces(const sli_problem *problem, const sli_stack_cut *cut) {
    return problem->steps <= cut->piece ? 1 : (problem->steps - 1) / cut->piece + 1;
}

/* A layer's first piece, the longest. */
static sli_problem piece_of(const sli_problem *problem, const sli_stack_cut *cut, int layer) {
    return sli_stack_part(problem, layer, problem->steps < cut->piece ? problem->steps : cut->piece);
}

/* -------------------------------------------------------------------------------------------------------- places -- */
static size_t state_bytes(const sli_problem *p) {
    return sli_round_up(sizeof(float) * (size_t)p->batch * (size_t)p->units, PART);
}

size_t sli_stack_state(const sli_problem *problem, int k, int slot) {
    return state_bytes(problem) * (size_t)(2 * k + slot);
}

static size_t between_bytes(const sli_problem *p, int layer) {
    return layer + 1 < p->layers ? sizeof(float) * sli_cuda_rows_of(p) * (size_t)p->units : 0;
}

sli_stack_places sli_stack_layout_packed(const sli_problem *p, const sli_stack_cut *cut) {
    sli_stack_places at = {0};
    for (int l = 0; l < p->layers; l++) {
        const sli_problem part = sli_stack_part(p, l, p->steps);
        at.own[l] = take(&at.total, sli_persist_layout_packed(&part, &cut->pair).total);
    }
    return at;
}

sli_stack_places sli_stack_layout_saved(const sli_problem *p, const sli_stack_cut *cut, int chunk) {
    sli_stack_places at = {0};
    if (!p->train) return at;
    const size_t pieces = (size_t)sli_stack_pieces(p, cut);
    for (int l = 0; l < p->layers; l++) {
        const sli_problem piece = piece_of(p, cut, l);
        at.stride[l] = sli_round_up(sli_step_layout_history(&piece, chunk).total, PART);
        at.own[l] = take(&at.total, pieces * at.stride[l]);
        at.between[l] = take(&at.total, between_bytes(p, l));
    }
    return at;
}

sli_stack_places sli_stack_layout_scratch(const sli_problem *p, const sli_caps *caps, const sli_stack_cut *cut,
                                          int chunk, bool backward) {
    sli_stack_places at = {0};
    for (int l = 0; l < p->layers; l++) {
        const sli_problem piece = piece_of(p, cut, l);
        const sli_persist_scratch own = backward ? sli_persist_layout_backward(&piece, caps, &cut->pair, chunk)
                                                 : sli_persist_layout_forward(&piece, caps, &cut->pair, chunk);
        at.own[l] = take(&at.total, own.total - 2 * own.beside_bytes);
        at.states[l] = take(&at.total, 2 * state_bytes(p) * (size_t)sli_problem_states(p));
        at.between[l] = take(&at.total, backward || !p->train ? between_bytes(p, l) : 0);
    }
    return at;
}
