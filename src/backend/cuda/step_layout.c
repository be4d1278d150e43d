/* cuda:step: layouts of its memory and shapes of its launches. */
#include "backend/cuda/step_layout.h"

#include <math.h>

enum { PART = 256, THREADS = 128, GRID_Y = 65535 };

static int64_t pad(int64_t count, int64_t multiple) {
    return (count + multiple - 1) / multiple * multiple;
}

/* Elements that fill 16 bytes; exact f32 products do not care. */
static int64_t row_multiple(sl_dtype dtype) {
    return dtype == SL_F32 ? 1 : dtype == SL_TF32 || dtype == SL_F32X3 ? 4 : 8;
}

static void set_sizes(const sli_problem *p, int chunk, sli_step_shape *s) {
    const int64_t multiple = row_multiple(p->dtype);
    s->B = p->batch;
    s->T = p->steps;
    s->I = p->inputs;
    s->H = p->units;
    s->O = sli_problem_output(p);
    s->lag = p->wave > 0 ? p->wave - 1 : 0;
    s->gates = sli_op_gates(p->op);
    s->GH = s->gates * s->H;
    s->rows = (int64_t)chunk * s->B;
    s->narrow = p->dtype == SL_BF16 || p->dtype == SL_F16;
    s->operand = s->narrow ? 2 : 4;
    s->xs = pad(s->I, multiple);
    s->hs = pad(s->O, multiple);
    s->ms = pad(s->H, multiple);
    s->zs = pad(s->GH, multiple);
    s->us = pad(s->zs, 4);
}

/* Recurrent weights. Of fewer than are paired each product leaves multiprocessors to the other (256 units as fast, or 0.5% slower in one launch); of 512 to 2048 units one launch took 0.96 to 1.00
 * of a call's time (graph_h200_2026-11-28.txt, 2), more were not measured. Units that are no whole eights come out of pads, for which launches wait: of 129 to 500 units one launch of both took 0.85 to 0.99
 * (pads_h200_2026-11-29.txt), of 100 and 150 1.01, of 650 1.00 and 1.01. Gradients of 16 bits, which all come out of pads then, are
 * paired up to where others are (narrow_h200_2026-11-29.txt). */
enum {
    LARGE = 1 << 25,
    LEAST_PAIRED = 1 << 19,
    MOST_PAIRED = 1 << 24,
    LEAST_PADDED_PAIRED = 1 << 17,
    MOST_PADDED_PAIRED = 1 << 20
};
sli_step_shape sli_step_shape_of(const sli_problem *p, int chunk) {
    sli_step_shape s = {0};
    set_sizes(p, chunk, &s);
    s.directions = p->bidirectional ? 2 : 1;
    s.lstm = p->op == SLI_OP_LSTM;
    s.gru = p->op == SLI_OP_GRU;
    s.train = p->train;
    s.recompute = p->train && p->recompute;
    s.keep_gates = p->train && !s.recompute;
    s.mask = p->mask != SLI_MASK_NONE || p->wave > 0;
    s.drop = p->train && p->recurrent_dropout > 0;
    s.before = s.gru && p->reset_before;
    s.project = p->projection > 0;
    s.narrow_parameters = p->narrow;
    s.narrow_io = p->narrow_io;
    s.copy_x = (s.narrow && !p->narrow_io) || s.xs != s.I;
    s.copy_w = (s.narrow && !p->narrow) || s.xs != s.I || s.zs != s.GH;
    s.copy_r = (s.narrow && !p->narrow) || s.hs != s.O || s.zs != s.GH;
    s.keep_h = s.gru || s.mask || p->zoneout_h > 0;
    s.own_h = s.keep_h && (s.narrow || s.drop);
    s.pointwise = s.keep_h;
    s.keep_v = s.lstm && p->zoneout_c > 0;
    const bool large = s.GH * s.O >= LARGE; /* no recurrence leaves it room to be copied again beside */
    const bool one = s.keep_gates && s.narrow && s.directions == 1 && s.lag == 0;
    const int64_t weights = s.GH * s.O;
    const bool paired =
        s.O % 8 == 0 ? weights >= LEAST_PAIRED && weights <= MOST_PAIRED
                     : weights >= LEAST_PADDED_PAIRED && weights <= (p->narrow ? MOST_PAIRED : MOST_PADDED_PAIRED);
    s.pairs = one && !s.project && !s.before && s.I == s.O && paired;
    s.keep_x = one && s.copy_x && (s.T > chunk || large || s.pairs);
    return s;
}

double sli_step_row_bytes(const sli_step_shape *s, double gates) {
    const double tensors = (double)s->I + s->directions * (double)s->O, tensor = s->narrow_io ? 2 : 4;
    return tensors * tensor + s->directions * 4 * (gates * (double)s->GH + 2.0 * (double)s->H + (double)s->O);
}

/* Takes `bytes` from a growing layout. */
static size_t take(size_t *at, size_t bytes) {
    const size_t offset = *at;
    *at += sli_round_up(bytes, PART);
    return offset;
}

static size_t elements(size_t bytes, int64_t rows, int64_t columns) {
    return bytes * (size_t)rows * (size_t)columns;
}

static size_t reals(int64_t rows, int64_t columns) {
    return elements(sizeof(float), rows, columns);
}

int64_t sli_step_tiled_k(const sli_step_shape *s) {
    return pad(s->H, SLI_STEP_TILED_DEPTH);
}

int64_t sli_step_tiled_row(const sli_step_shape *s) {
    return pad(s->B, SLI_STEP_TILED_MOST_ROWS);
}

static sli_step_packed packed_of(const sli_problem *p, const sli_caps *caps, bool recurrent) {
    const sli_step_shape s = sli_step_shape_of(p, 1);
    sli_step_packed at = {0};
    size_t end = 0;
    at.kernel = take(&end, s.copy_w ? elements(s.operand, s.zs, s.xs) : 0);
    at.recurrent = take(&end, s.copy_r && recurrent ? elements(s.operand, s.zs, s.hs) : 0);
    at.projection = take(&end, s.project ? elements(s.operand, s.hs, s.ms) : 0);
    at.bias = take(&end, reals(1, s.zs));
    at.bias_n = take(&end, p->narrow && s.gru && !s.before && p->bias == SL_BIAS_DOUBLE ? reals(1, s.H) : 0);
    at.peephole = take(&end, p->narrow && p->peephole ? reals(3, s.H) : 0);
    const sli_step_wide none = {0}, forward = caps ? sli_step_wide_of(p, caps, false) : none;
    const sli_step_wide backward = caps && s.train ? sli_step_wide_of(p, caps, true) : none;
    at.wide_backward = take(&end, sli_step_wide_bytes(&backward));
    at.wide_forward = take(&end, sli_step_wide_bytes(&forward));
    at.wide_largest = take(&end, forward.scaled ? reals(1, PERSIST_LARGEST) : 0);
    const bool tiled = caps && sli_step_tiled(p, caps) > 0;
    at.tiled = take(&end, tiled ? reals(sli_step_tiled_k(&s), s.gates * pad(s.H, SLI_STEP_TILED_UNITS)) : 0);
    at.stride = end;
    at.total = end * (size_t)s.directions;
    return at;
}

sli_step_packed sli_step_layout_packed(const sli_problem *p, const sli_caps *caps) {
    return packed_of(p, caps, !caps || !sli_step_all_runs(p, caps));
}

sli_step_packed sli_step_layout_packed_of_runs(const sli_problem *p) {
    return packed_of(p, NULL, false);
}

sli_step_history sli_step_layout_history(const sli_problem *p, int chunk) {
    const sli_step_shape s = sli_step_shape_of(p, chunk);
    sli_step_history at = {.slots_h = s.train, .slots_hf = s.train && s.gru};
    const int64_t steps = s.T * s.B, states = s.train ? (s.T + 1) * s.B : s.B, turns = s.train ? states : 2 * s.B;
    size_t end = 0;
    at.u = take(&end, s.keep_gates ? reals(steps, s.us) : 0);
    at.sn = take(&end, s.keep_gates && s.gru && !s.before ? reals(steps, s.H) : 0);
    at.x = take(&end, s.keep_x ? elements(s.operand, steps, s.xs) : 0);
    at.h = take(&end, elements(s.operand, turns, s.hs));
    at.hf = take(&end, s.own_h ? reals(at.slots_hf ? states : s.B, s.O) : 0);
    at.c = take(&end, s.lstm ? reals(states, s.H) : 0);
    at.v = take(&end, s.keep_gates && s.keep_v ? reals(steps, s.H) : 0);
    at.stride = end;
    at.total = end * (size_t)s.directions;
    return at;
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* One size for all products of a stream; counted in whole chunks, so that the last, shorter one gets no other algorithm for
 * having come alone. */
static size_t workspace_of(const sli_step_shape *s, const sli_caps *caps) {
    const int64_t widest = larger(larger(s->zs, s->xs), larger(s->hs, s->ms));
    return sli_cuda_workspace(caps, larger(s->rows, s->zs), widest, larger(s->rows, widest));
}

static size_t largest(const size_t *bytes, size_t count) {
    size_t most = 0;
    for (size_t i = 0; i < count; i++)
        if (bytes[i] > most) most = bytes[i];
    return most;
}

/* Scratch of the largest gradient that is multiplied in padded rows. */
static size_t pad_of(const sli_step_shape *s, sl_dtype math, const sli_caps *caps) {
    const size_t each[] = {(s->pairs ? 2 : 1) * sli_cuda_pad_bytes(caps, math, s->GH, s->I, s->rows),
                           sli_cuda_pad_bytes(caps, math, s->GH, s->O, s->rows),
                           s->project ? sli_cuda_pad_bytes(caps, math, s->O, s->H, s->rows) : 0,
                           sli_cuda_pad_bytes(caps, math, s->rows, s->I, s->zs)};
    return largest(each, sizeof each / sizeof *each);
}

/* Scratch of the largest product that f32x3 splits. */
static size_t split_of(const sli_step_shape *s, sl_dtype math, const sli_caps *caps, bool backward) {
    const int64_t P = s->project ? s->H : 0; /* units before the projection */
    const size_t forward[] = {sli_cuda_split_bytes(caps, math, s->rows, s->zs, s->xs),
                              sli_cuda_split_bytes(caps, math, s->B, s->GH, s->hs),
                              sli_cuda_split_bytes(caps, math, s->B, s->O, pad(P, 4))};
    const size_t backwards[] = {sli_cuda_split_bytes(caps, math, s->rows, s->I, s->zs),
                                sli_cuda_split_bytes(caps, math, s->GH, s->I, s->rows),
                                sli_cuda_split_bytes(caps, math, s->GH, s->O, s->rows),
                                sli_cuda_split_bytes(caps, math, s->O, P, s->rows),
                                sli_cuda_split_bytes(caps, math, s->B, s->hs, s->zs),
                                sli_cuda_split_bytes(caps, math, s->B, s->ms, larger(s->O, s->H)),
                                s->recompute ? sli_cuda_split_bytes(caps, math, s->rows, s->zs, s->xs) : 0,
                                s->recompute ? sli_cuda_split_bytes(caps, math, s->rows, s->GH, s->hs) : 0};
    return backward ? largest(backwards, sizeof backwards / sizeof *backwards)
                    : largest(forward, sizeof forward / sizeof *forward);
}

/* Of few rows copies win more than their products' sizes say: LSTM of 512 units, 400 to 3200 rows, took 4 to 21 us less with them, of 1024 units
 * 29 (H200, overlap_h200_2026-11-24.txt, 8). Nothing smaller, and no other kind of layer, was faster so. */
static double least_gain(const sli_step_shape *s, sl_dtype math, const sli_caps *caps, int64_t rows) {
    enum { LEAST_UNITS = 512, LEAST_ROWS = 400 };
    const bool plain =
        s->lstm && !s->project && s->directions == 1 && math == SL_TF32 && caps->compute_capability >= 90;
    const bool large =
        s->I >= LEAST_UNITS && s->O >= LEAST_UNITS && s->I % 4 == 0 && s->O % 4 == 0; /* in D whole 16 bytes */
    return plain && large && rows >= LEAST_ROWS ? 3.8 : 0;
}

double sli_step_transpose_gain(const sli_step_shape *s, sl_dtype math, const sli_caps *caps, int64_t rows) {
    const int64_t n[2] = {s->I, s->O}, width = (s->gru ? 2 : 1) * s->GH + s->xs + s->hs;
    if (s->before || s->lag > 0) return 0; /* h' of three kinds; rows of x are fewer */
    return fmax(sli_cuda_transpose_gain(caps, math, s->GH, n, width, rows), least_gain(s, math, caps, rows));
}

static void take_transposed(const sli_step_shape *s, sl_dtype math, const sli_caps *caps, sli_step_scratch *at,
                            size_t *end) {
    const bool gains = sli_step_transpose_gain(s, math, caps, s->rows) > 0;
    const int64_t row = gains ? sli_cuda_transposed_row(s->rows) : 0;
    at->dz_t = take(end, reals(s->GH, row));
    at->dr_t = take(end, s->gru ? reals(s->GH, row) : 0);
    at->x_t = take(end, reals(s->xs, row));
    at->h_t = take(end, reals(s->hs, row));
}

static void take_split(const sli_step_shape *s, sl_dtype math, const sli_caps *caps, bool backward,
                       sli_step_scratch *at, size_t *end) {
    at->split_bytes = split_of(s, math, caps, backward);
    at->split = take(end, at->split_bytes);
}

int64_t sli_step_parameter(const sli_step_shape *s, int k) {
    const int64_t last = s->lag > 0 ? s->GH : s->O; /* of a wave W between its layers, else W_p */
    const int64_t sizes[SLI_PART_PARAMS] = {s->GH * s->I, s->GH * s->O, s->GH, s->GH, 3 * s->H, last * s->H};
    return sizes[k];
}

static void take_sums(const sli_step_shape *s, const sli_problem *p, sli_step_scratch *at, size_t *end) {
    const int64_t chunk = s->B > 0 ? s->rows / s->B : s->T;
    const bool there[SLI_PART_PARAMS] = {true,        true,      p->bias != SL_BIAS_NONE, p->bias == SL_BIAS_DOUBLE,
                                         p->peephole, s->project};
    for (int k = 0; k < SLI_PART_PARAMS; k++)
        at->sums[k] = take(end, p->narrow && s->T > chunk && there[k] ? reals(1, sli_step_parameter(s, k)) : 0);
}

static void take_common(const sli_step_shape *s, sli_step_scratch *at, size_t *end) {
    at->x = take(end, s->copy_x ? elements(s->operand, s->rows, s->xs) : 0);
    at->flags = take(end, s->mask ? elements(1, s->T, s->B) : 0);
    at->factor = take(end, s->drop ? reals(s->B, s->O) : 0);
}

static void take_workspace(const sli_step_shape *s, const sli_caps *caps, sli_step_scratch *at, size_t *end) {
    at->workspace_bytes = workspace_of(s, caps);
    at->workspace = take(end, at->workspace_bytes);
    at->stride = *end;
    at->total = *end * (size_t)s->directions;
}

sli_step_scratch sli_step_layout_forward(const sli_problem *p, const sli_caps *caps, int chunk, bool steps) {
    const sli_step_shape s = sli_step_shape_of(p, chunk);
    sli_step_scratch at = {0};
    size_t end = 0;
    at.history = take(&end, s.train ? 0 : sli_step_layout_history(p, chunk).stride);
    take_common(&s, &at, &end);
    at.u = take(&end, s.keep_gates ? 0 : reals(s.rows, s.us));
    const sli_step_wide wide = steps ? sli_step_wide_of(p, caps, false) : (sli_step_wide){0};
    at.s = take(&end, reals(wide.units > 0 ? 0 : wide.rows > 0 ? wide.pieces * s.B : s.B, s.us));
    at.wide = take(&end, (size_t)sli_step_wide_buffers(&wide) * sli_step_wide_v(&wide));
    at.counts = take(&end, wide.runs ? SLI_STEP_RUN_COUNTS(wide.blocks) : 0);
    at.reset = take(&end, s.before ? elements(s.operand, s.B, s.hs) : 0);
    at.m = take(&end, s.project ? elements(s.operand, s.B, s.ms) : 0);
    at.q = take(&end, s.project ? reals(s.B, s.O) : 0);
    const bool tiled = steps && sli_step_tiled(p, caps) > 0;
    at.h_tiled = take(&end, tiled ? reals(2 * sli_step_tiled_k(&s), sli_step_tiled_row(&s)) : 0);
    take_split(&s, p->dtype, caps, false, &at, &end);
    take_workspace(&s, caps, &at, &end);
    return at;
}

/* A fused step's product is none of its own, that of reset before has other k than zs. */
static int dp_pieces(const sli_step_shape *s, const sli_problem *p, const sli_caps *caps) {
    if (s->before || sli_step_fused(p, true)) return 1;
    return sli_cuda_pieces(caps, p->dtype, s->B, s->hs, s->zs);
}

sli_step_scratch sli_step_layout_backward(const sli_problem *p, const sli_caps *caps, int chunk, int span, bool steps) {
    const sli_step_shape s = sli_step_shape_of(p, chunk);
    const int64_t rows = span * s.B;
    const bool bias = p->bias != SL_BIAS_NONE, after = s.gru && !s.before;
    sli_step_scratch at = {0};
    size_t end = 0;
    take_common(&s, &at, &end);
    at.u = take(&end, s.recompute ? reals(rows, s.us) : 0);
    at.sn = take(&end, s.recompute && after ? reals(rows, s.H) : 0);
    at.v = take(&end, s.recompute && s.keep_v ? reals(rows, s.H) : 0);
    at.dz = take(&end, elements(s.operand, rows, s.zs));
    at.dr = take(&end, after ? elements(s.operand, rows, s.zs) : 0);
    at.dpeep = take(&end, p->peephole ? reals(s.rows, 3 * s.H) : 0);
    /* Steps lie as for the plan's rows. A recurrence, whose product is no cuBLASLt's, lies as for the call's, and fewer may make more pieces. */
    at.dp_pieces = steps ? dp_pieces(&s, p, caps) : 1;
    const sli_step_wide wide = steps ? sli_step_wide_of(p, caps, true) : (sli_step_wide){0};
    at.dp = take(&end, reals(larger(at.dp_pieces, wide.pieces) * s.B, s.hs));
    at.wide = take(&end, (size_t)sli_step_wide_buffers(&wide) * sli_step_wide_v(&wide));
    at.counts = take(&end, wide.runs ? SLI_STEP_RUN_COUNTS(wide.blocks) : 0);
    at.pw = take(&end, s.pointwise ? reals(s.B, s.O) : 0);
    at.dc = take(&end, s.lstm ? reals(s.B, s.H) : 0);
    at.dq = take(&end, s.project ? elements(s.operand, s.rows, s.hs) : 0);
    at.m = take(&end, s.project ? elements(s.operand, s.rows, s.ms) : 0);
    at.dm = take(&end, s.project || s.before ? reals(s.B, s.ms) : 0);
    at.resets = take(&end, s.before ? elements(s.operand, rows, s.hs) : 0);
    take_transposed(&s, p->dtype, caps, &at, &end);
    at.columns = take(&end, bias || p->peephole ? reals(sli_step_slices(s.rows), 4 * s.H) : 0);
    at.pad_bytes = pad_of(&s, p->dtype, caps);
    at.pad = take(&end, at.pad_bytes);
    take_sums(&s, p, &at, &end);
    take_split(&s, p->dtype, caps, true, &at, &end);
    take_workspace(&s, caps, &at, &end);
    return at;
}

sli_step_grid sli_step_grid_of(int64_t units, int64_t rows, int vector) {
    const int64_t across = (units + vector - 1) / vector;
    unsigned bx = 8;
    while (bx < THREADS && bx < across) bx *= 2;
    const unsigned by = THREADS / bx;
    const int64_t gy = (rows + by - 1) / by;
    return (sli_step_grid){.gx = (unsigned)((across + bx - 1) / bx),
                           .gy = (unsigned)(gy < 1        ? 1
                                            : gy < GRID_Y ? gy
                                                          : GRID_Y),
                           .bx = bx,
                           .by = by};
}

int sli_step_vector(const sli_step_shape *shape, const sli_caps *caps) {
    const int64_t enough = (int64_t)(caps->multiprocessors > 0 ? caps->multiprocessors : 1) * 4 * THREADS;
    return shape->H % 4 == 0 && shape->H * shape->B >= enough ? 4 : 1;
}

/* The widest layers, as gates x units, that fused steps are faster for, by operand type and rows of the batch: every block of
 * rows reads R anew, and at most four rows have a product of their own. Measured on an H200, 2026-11-21, LSTM and GRU of 128
 * to 1500 units, both ways side by side (bench/results). In f32 they were slower from 128 units on, and are not built. */
static const struct {
    sl_dtype dtype;
    int rows, forward, backward;
} fused_widest[] = {{SL_TF32, 4, 1024, 1024}, {SL_TF32, 16, 4096, 2048}, {SL_TF32, 64, 2600, 2048},
                    {SL_BF16, 4, 2048, 4096}, {SL_BF16, 16, 4096, 4096}, {SL_BF16, 64, 2048, 3000},
                    {SL_F16, 4, 2048, 4096},  {SL_F16, 16, 4096, 4096},  {SL_F16, 64, 2048, 3000}};

bool sli_step_fused(const sli_problem *p, bool backward) {
    if (p->projection > 0 || (p->op == SLI_OP_GRU && p->reset_before)) return false; /* two products a step */
    const int64_t wide = (int64_t)sli_op_gates(p->op) * p->units;
    for (size_t i = 0; i < sizeof fused_widest / sizeof *fused_widest; i++)
        if (fused_widest[i].dtype == p->dtype && p->batch <= fused_widest[i].rows)
            return wide <= (backward ? fused_widest[i].backward : fused_widest[i].forward);
    return false;
}

int64_t sli_step_slices(int64_t rows) {
    return rows < 1 ? 1 : (rows + SLI_STEP_SLICE - 1) / SLI_STEP_SLICE;
}
