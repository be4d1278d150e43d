/* cuda:cluster and cuda:grid: seconds of a pass, and the pieces of a span. */
#include "backend/cuda/persist_overlap.h"

#include <math.h>

#include "backend/cuda/persist_cost.h"
#include "backend/cuda/step_cost.h"

/* A pass, one thing after the other:
 *     us = chunks * launches of its products + spans * (launch + weights read) + steps * step + products over time
 * In pieces, where a part of the products, with their launches, may run beside: us_in.
 * Origin of the constants: launches of a span and of a chunk, products, and what runs beside, such that what was traced (CUPTI, 21 problems) and what calls in one
 * to four pieces took on an H200, 2026-11-24, is in the middle of the predictions (bench/results/overlap_h200_2026-11-24.txt, bench/planned.py); the rate at
 * which weights are read, and what projections take, are estimates. us, bytes and FLOP a us. */
enum { FULL = 132 };
static const double chunk_us[2] = {6, 7.5}, recompute_us = 6, launch_us = 2.5, weights_rate = 3e6;
static const double fold_us = 4, fold_chunk_us[2] = {6, 15}; /* of a projection's own launches; estimates */
static const double meeting_us = 2.5; /* streams wait for each other, a launch for the last blocks of a product */
static const double disturbed = 0.12; /* steps are longer while products run: L2 and memory are shared */
static const double stretch =
    0.8; /* products on few multiprocessors: on all of them they are further from what they could do */
static const double worth = 0.99;  /* of the time in one piece; a smaller gain may be none */
static const double again = 0.997; /* of that in fewer: 4, not 2, cost LSTM of 256 units 4% in inference */

static double product_rate(sl_dtype dtype) {
    return dtype == SL_F32 ? 55e6 : dtype == SL_F32X3 ? 70e6 : dtype == SL_TF32 ? 257e6 : 640e6;
}

/* A product m x n x k over all of the H200: FLOPs, or operands on their way from L2 into tiles of which each multiprocessor has one, so wide at
 * most. Rates and width: as traced (CUPTI) of 256 to 2048 units, bf16 and tf32, 2026-11-24 (bench/results/overlap_h200_2026-11-24.txt). */
static double over_time_us(sl_dtype dtype, double m, double n, double k) {
    static const double widest = 160, narrow_rate = 11e6, wide_rate = 8e6;
    const bool narrow = dtype == SL_BF16 || dtype == SL_F16;
    const double wide = fmin(sqrt(m * n / FULL), widest), operand = narrow ? 2 : 4;
    return fmax(2 * m * n * k / product_rate(dtype),
                2 * m * n * k * operand / (wide * (narrow ? narrow_rate : wide_rate)));
}

static int up(int count, int each) {
    return (count + each - 1) / each;
}

static int multiprocessors_of(const sli_caps *caps) {
    return caps->multiprocessors > 0 ? caps->multiprocessors : FULL;
}

/* ------------------------------------------------------------------------------------------------------ inputs --
 * In inference of small layers, of one chunk, the launch of the recurrence makes its input side itself (kernels/persist_inputs.cuh), each block its own part:
 *     us = made + bytes of W, x and u / made_rate + FLOPs / made_flops, and over the grid the zeros' launch, which the copy of x has with it
 * and the other way a product, of few rows a smaller one, the copy of x that it wants, and u on its way to memory. Not in training, where x is wanted as an operand later and blocks' gates are
 * kept, nor of long sequences, whose products fill the GPU. Constants: by hand, from calls with the launch's own input side, with the product before it, and with
 * neither, of 23 problems on an H200 and H100s, 2026-11-28 (bench/results/inputs_2026-11-28.txt); of f32 an estimate. us, bytes and FLOP a us. */
static const double made = 0.8, made_rate = 24e3, zeros_us = 1.3, product_us = 3, few_us = 1.2, copy_us = 2.4,
                    output_rate = 2.5e6, sure = 0.9;

static double made_flops(sl_dtype dtype) {
    return dtype == SL_F32 || dtype == SL_F32X3 ? 225e3 : dtype == SL_TF32 ? 1.6e6 : 3.2e6;
}

static double made_us(const sli_problem *p, const sli_persist_geometry *g) {
    const sli_step_shape s = sli_step_shape_of(p, 1);
    const double columns = (double)(s.T - s.lag) * g->inputs_rows, rows = (double)g->gates * g->units;
    const double bytes = rows * (double)s.xs * (double)s.operand + sizeof(float) * columns * ((double)s.I + rows);
    return made + (s.copy_x && g->gather == SLI_PERSIST_GRID ? zeros_us : 0) + bytes / made_rate +
           2 * rows * columns * (double)s.I / made_flops(p->dtype);
}

void sli_persist_leave_inputs(sli_persist_geometry *g) {
    g->inputs = g->inputs_columns = g->inputs_rows = 0; /* a kernel without is the same for all lengths */
    g->inputs_math = SL_DTYPE_DEFAULT;
}

/* Clusters that come in waves share multiprocessors with others, which shared memory for x would keep away. */
void sli_persist_place_inputs(const sli_problem *p, const sli_caps *caps, sli_persist_geometry *g) {
    enum { FEW_ROWS = 4 /* runtime/few_rows.cu */, MOST_COLUMNS = 1024, MULTIPLE = 16 };
    const sli_step_shape s = sli_step_shape_of(p, 1);
    const int rows = g->halves * sli_persist_rows(g);
    const double steps = (double)(s.T - s.lag), all = steps * (double)s.B;
    if (p->train || p->projection > 0 || caps->no_compiler || g->couriers > 0) return;
    if (sli_persist_streamed(g) > 0 || sli_persist_waves(g, caps) > 1 ||
        steps > sli_caps_chunk(caps, p->batch, p->steps))
        return;
    const double output = sizeof(float) * all * (double)s.GH * s.directions;
    const double before = (all <= FEW_ROWS ? few_us : product_us) + (s.copy_x ? copy_us : 0) + output / output_rate +
                          over_time_us(p->dtype, all, (double)s.GH, (double)s.I);
    g->inputs_rows = p->batch < rows ? p->batch : rows;
    g->inputs = p->inputs;
    g->inputs_math = p->dtype == SL_F32X3 ? SL_F32 : p->dtype;
    g->inputs_columns = MULTIPLE * (int)ceil(fmin(steps * g->inputs_rows, MOST_COLUMNS) / MULTIPLE);
    const bool fits = steps * g->inputs_rows <= MOST_COLUMNS && sli_persist_shared_of(g).total <= caps->shared_memory;
    if (!fits || made_us(p, g) >= sure * before) sli_persist_leave_inputs(g);
}

/* A pass and what its pieces depend on. */
typedef struct parts {
    sli_persist_pass pass;
    int chunks, all;  /* chunks of a span; multiprocessors */
    double spans;     /* as many as the steps fill */
    double beside;    /* part of the products */
    double launch_us; /* of a span, or a piece */
    double chunk_us;  /* of a chunk's products */
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
    const double rows = (double)s.T * (double)s.B * s.directions, each = (double)fmin(chunk, (double)s.T) * (double)s.B;
    const double GH = (double)s.GH, I = (double)s.I, O = (double)s.O, products = rows / each;
    const double inputs = products * over_time_us(p->dtype, each, GH, I),
                 recurrent = products * over_time_us(p->dtype, each, GH, O);
    const double again = backward && s.recompute ? inputs + recurrent : 0; /* the gates, before the steps */
    const double folded = folded_flops(&s, rows, backward) / product_rate(p->dtype);
    const double of_x = products * over_time_us(p->dtype, each, I, GH);
    const double sums = products * (over_time_us(p->dtype, GH, I, each) + over_time_us(p->dtype, GH, O, each));
    const bool own = !backward && g->inputs > 0; /* the launch makes its input side */
    const double all = again + folded + (backward ? of_x + sums : own ? 0 : inputs);
    const double weights = (double)sli_persist_packed_bytes(g) * s.directions;
    const int span = sli_persist_span(p, pair, chunk);
    parts of = {.chunks = up(span, chunk), .all = multiprocessors_of(caps), .beside = 1};
    of.spans = (double)s.T / span;
    of.launch_us = launch_us + weights / weights_rate;
    if (backward && all > 0) of.beside = (sums + (s.directions == 2 ? 0 : of_x)) / all;
    const double each_us = own ? made_us(p, g) : chunk_us[backward] + (again > 0 ? recompute_us : 0);
    const double chunks = ceil((double)s.T / chunk);
    const sli_problem steps = sli_persist_folded(p);
    of.chunk_us = each_us;
    of.pass.launches_us = chunks * each_us + ceil(of.spans) * of.launch_us + folded_us(p, &s, chunks, backward);
    /* what the newest times say is left out of the time of the cut that is taken, which stacks and waves share */
    of.pass.steps_us = (double)s.T * 1e6 *
                       (sli_persist_taken_seconds(g, &steps, caps) + sli_persist_order_seconds(g, &steps, caps) -
                        sli_persist_step_seconds(g, &steps, caps));
    const double won = backward ? sli_step_transposed_us(p, caps, chunk) : 0;
    of.pass.products_us = FULL / (double)of.all * fmax(0, all - won);
    of.pass.idle = sli_persist_idle(g, caps);
    of.pass.pieces = 1;
    of.pass.us = of.pass.launches_us + of.pass.steps_us + of.pass.products_us;
    return of;
}

/* In pieces of `each` chunks, the last one to be computed maybe of fewer. Forward the products of a piece run beside the one before it, those of
 * the first before all; backward beside the one after it, those of the last after all. */
static double us_in(const parts *of, int each, bool backward) {
    const double chunks = of->spans * of->chunks, small = of->chunk_us * chunks;
    const double products = (of->beside * of->pass.products_us + small) / chunks, steps = of->pass.steps_us / chunks;
    const double beside = stretch * of->all / of->pass.idle * products;
    const int pieces = up(of->chunks, each), rest = of->chunks - (pieces - 1) * each;
    double us = products * (backward ? rest : each) + steps * (backward ? each : rest);
    for (int i = 1; i < pieces; i++) {
        const int last = i == pieces - 1;
        const double own = steps * (backward && last ? rest : each),
                     others = beside * (!backward && last ? rest : each);
        us += fmax(own + disturbed * others, others) + meeting_us + of->launch_us;
    }
    return of->pass.launches_us - small + (1 - of->beside) * of->pass.products_us + of->spans * us;
}

sli_persist_pass sli_persist_pass_of(const sli_problem *problem, const sli_caps *caps, const sli_persist_pair *pair,
                                     int chunk, bool backward) {
    if (backward && pair->backward_in_steps)
        return (sli_persist_pass){.pieces = 1, .us = 1e6 * sli_step_pass_seconds(problem, caps, chunk, true)};
    parts of = parts_of(problem, caps, pair, chunk, backward);
    if (of.pass.idle < 1 || (!backward && pair->forward.inputs > 0)) return of.pass;
    double best = worth * of.pass.us;
    for (int wanted = 2; wanted <= SLI_PERSIST_MOST_PIECES && wanted <= of.chunks; wanted++) {
        const int pieces = up(of.chunks, up(of.chunks, wanted));
        const double us = us_in(&of, up(of.chunks, pieces), backward);
        if (us >= best) continue;
        best = again * us;
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
