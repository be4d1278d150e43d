/* cuda:cluster and cuda:grid: seconds of a pass, and the pieces of a span. */
#include "backend/cuda/persist_overlap.h"

#include <math.h>

#include "backend/cuda/step_cost.h"

/* A pass, one thing after the other:
 *     us = chunks * launches of its products + spans * (launch + weights read) + steps * step + products over time
 * In k pieces a span, where a part b of the products may run beside:
 *     us = ... + (1 - b) products + b products / k + steps / k + (k - 1) (meeting + launch + weights read + longer),
 *     longer = max(steps / k + disturbed * beside, beside),  beside = stretch * all / idle * b products / k
 * Origin of the constants: the launch of a span as traced (CUPTI) on an H200, 2026-11-21; launches of a chunk such that what short calls
 * took there is in the middle of the predictions, 2026-11-24 (bench/planned.py; they were 4 and 10 us, beside 6 us a pass, before replayed
 * graphs had fewer launches); products as in cuda:step (step_cost.c); the rate at which weights are read, and those of pieces are
 * estimates. us, bytes and FLOP a us. */
enum { FULL = 132 };
static const double chunk_us[2] = {3.5, 7}, recompute_us = 6, launch_us = 5, weights_rate = 3e6;
static const double fold_us = 4, fold_chunk_us[2] = {6, 15}; /* of a projection's own launches; estimates */
static const double meeting_us = 10;  /* streams wait for each other, a launch for the last blocks of a product */
static const double disturbed = 0.12; /* steps are longer while products run: L2 and memory are shared */
static const double stretch = 1.2;    /* products on few multiprocessors: their algorithms were chosen for all */
static const double worth = 0.99;     /* of the time in one piece; a smaller gain may be none */

static double product_rate(sl_dtype dtype) {
    return dtype == SL_F32 ? 55e6 : dtype == SL_F32X3 ? 70e6 : dtype == SL_TF32 ? 257e6 : 560e6;
}

static int up(int count, int each) {
    return (count + each - 1) / each;
}

static int multiprocessors_of(const sli_caps *caps) {
    return caps->multiprocessors > 0 ? caps->multiprocessors : FULL;
}

/* A pass and what its pieces depend on. */
typedef struct parts {
    sli_persist_pass pass;
    int chunks, all;  /* chunks of a span; multiprocessors */
    double spans;     /* as many as the steps fill */
    double beside;    /* part of the products */
    double launch_us; /* of a span, or a piece */
} parts;

/* FLOPs over time that folding a projection has beside those of the layer without: forward h = W_p m; backward dm = W_p^T dy, R^T dz and
 * d W_p. d R is smaller than without, which `recurrent` counts. */
static double folded_flops(const sli_step_shape *s, double rows, bool backward) {
    if (!s->project) return 0;
    const double projected = 2 * rows * (double)s->O * (double)s->H, back = 2 * rows * (double)s->GH * (double)s->O;
    return backward ? 2 * projected + back : projected;
}

/* Its launches; in training, with forward, R W_p as well, which pack makes after every update. */
static double folded_us(const sli_problem *p, const sli_step_shape *s, double chunks, bool backward) {
    if (!s->project) return 0;
    const double made = 2 * (double)s->directions * (double)s->GH * (double)s->H * (double)s->O;
    const double packed = s->train && !backward ? launch_us + made / product_rate(p->dtype) : 0;
    return fold_us + chunks * fold_chunk_us[backward] + packed;
}

/* Where both directions' gradients of x meet they stay behind: who writes and who adds depends on whole spans. */
static parts parts_of(const sli_problem *p, const sli_caps *caps, const sli_persist_pair *pair, int chunk,
                      bool backward) {
    const sli_step_shape s = sli_step_shape_of(p, chunk);
    const sli_persist_geometry *g = backward ? &pair->backward : &pair->forward;
    const double rows = (double)s.T * (double)s.B * s.directions;
    const double inputs = 2 * rows * (double)s.GH * (double)s.I, recurrent = 2 * rows * (double)s.GH * (double)s.O;
    const double again = backward && s.recompute ? inputs + recurrent : 0; /* the gates, before the steps */
    const double folded = folded_flops(&s, rows, backward);
    const double flops = again + folded + (backward ? 2 * inputs + recurrent : inputs);
    const double weights = (double)sli_persist_packed_bytes(g) * s.directions;
    const int span = sli_persist_span(p, pair, chunk);
    parts of = {.chunks = up(span, chunk), .all = multiprocessors_of(caps), .beside = 1};
    of.spans = (double)s.T / span;
    of.launch_us = launch_us + weights / weights_rate;
    if (backward && flops > 0) of.beside = (inputs + recurrent + (s.directions == 2 ? 0 : inputs)) / flops;
    const double each_us = chunk_us[backward] + (again > 0 ? recompute_us : 0);
    const double chunks = ceil((double)s.T / chunk);
    const sli_problem steps = sli_persist_folded(p);
    of.pass.launches_us = chunks * each_us + ceil(of.spans) * of.launch_us + folded_us(p, &s, chunks, backward);
    of.pass.steps_us = (double)s.T * 1e6 * sli_persist_step_seconds(g, &steps, caps);
    const double won = backward ? sli_step_transposed_us(p, caps, chunk) : 0;
    of.pass.products_us = FULL / (double)of.all * (flops / product_rate(p->dtype) - won);
    of.pass.idle = sli_persist_idle(g, caps);
    of.pass.pieces = 1;
    of.pass.us = of.pass.launches_us + of.pass.steps_us + of.pass.products_us;
    return of;
}

static double us_in(const parts *of, int pieces) {
    const double products = of->beside * of->pass.products_us / (of->spans * pieces);
    const double steps = of->pass.steps_us / (of->spans * pieces);
    const double beside = stretch * of->all / of->pass.idle * products;
    const double later = (pieces - 1) * (meeting_us + of->launch_us + fmax(steps + disturbed * beside, beside));
    return of->pass.launches_us + (1 - of->beside) * of->pass.products_us + of->spans * (products + steps + later);
}

sli_persist_pass sli_persist_pass_of(const sli_problem *problem, const sli_caps *caps, const sli_persist_pair *pair,
                                     int chunk, bool backward) {
    if (backward && pair->backward_in_steps)
        return (sli_persist_pass){.pieces = 1, .us = 1e6 * sli_step_pass_seconds(problem, caps, chunk, true)};
    parts of = parts_of(problem, caps, pair, chunk, backward);
    if (of.pass.idle < 1) return of.pass;
    double best = worth * of.pass.us;
    for (int wanted = 2; wanted <= SLI_PERSIST_MOST_PIECES && wanted <= of.chunks; wanted++) {
        const int pieces = up(of.chunks, up(of.chunks, wanted));
        const double us = us_in(&of, pieces);
        if (us >= best) continue;
        best = us;
        of.pass.pieces = pieces;
        of.pass.us = us;
    }
    return of.pass;
}

int sli_persist_piece(const sli_problem *problem, const sli_caps *caps, const sli_persist_pair *pair, int chunk,
                      bool backward) {
    const int chunks = up(sli_persist_span(problem, pair, chunk), chunk);
    return up(chunks, sli_persist_pass_of(problem, caps, pair, chunk, backward).pieces);
}
