/* cuda:step: one direction of one call, unpacked: pointers, slots, options; and the packed copies of the weights. */
#include "backend/cuda/kernels/step_device.cuh"

int sli_step_options(const sli_problem *p) {
    int options = 0;
    if (p->op == SLI_OP_LSTM) {
        if (p->peephole) options |= CELL_PEEPHOLE;
        if (p->cell_clip > 0) options |= CELL_CLIP;
        if (p->zoneout_c > 0) options |= CELL_ZONEOUT_C;
        if (p->forget_at_run) options |= CELL_FORGET_AT_RUN;
        if (p->projection > 0) options |= CELL_PROJECTION;
    }
    if (p->op == SLI_OP_GRU && p->reset_before) options |= CELL_RESET_BEFORE;
    if (p->zoneout_h > 0) options |= CELL_ZONEOUT_H;
    if (p->mask != SLI_MASK_NONE || p->wave > 0) options |= CELL_MASK;
    return options;
}

int sli_step_act(const sli_problem *p) {
    return p->act == SL_ACT_DEFAULT ? CELL_ACT_TANH : (int)p->act;
}

int sli_step_gate_act(const sli_problem *p) {
    return p->recurrent_act == SL_ACT_DEFAULT ? CELL_ACT_SIGMOID : (int)p->recurrent_act;
}

static step_zone zone(const step_way *way, double expected, enum sli_purpose purpose) {
    step_zone zone = {};
    zone.expected = (float)expected;
    zone.threshold = sli_drop_threshold(expected);
    zone.stream = (uint32_t)way->call->rng_layer | (uint32_t)purpose |
                  (way->part ? (uint32_t)SLI_PURPOSE_BACKWARD_DIRECTION : 0u);
    zone.draw = way->call->training && expected > 0;
    return zone;
}

static void set_common(step_way *way) {
    const sli_problem *p = &way->call->problem;
    step_common *k = &way->common;
    k->B = (int)way->s.B;
    k->H = (int)way->s.H;
    k->O = (int)way->s.O;
    k->options = sli_step_options(p);
    k->act = sli_step_act(p);
    k->gate_act = sli_step_gate_act(p);
    k->math = p->dtype;
    k->narrow_io = way->s.narrow_io;
    k->us = way->s.us;
    k->hs = way->s.hs;
    k->ms = way->s.ms;
    k->zs = way->s.zs;
    if (way->s.drop && way->call->training) k->factor = (const float *)(way->work + way->scratch.factor);
    k->peep = (const float *)way->param[SLI_RNN_PEEPHOLE];
    if (k->peep && way->s.narrow_parameters) k->peep = (const float *)(way->weights + way->packed.peephole);
    k->forget_bias = (float)p->forget_bias;
    k->clip = (float)p->cell_clip;
    k->zone_h = zone(way, p->zoneout_h, SLI_PURPOSE_ZONEOUT_H);
    k->zone_c = zone(way, p->zoneout_c, SLI_PURPOSE_ZONEOUT_C);
    k->scalars = (const persist_scalars *)way->call->scalars;
}

/* Where this direction's y and dy are: side by side in one tensor, or a tensor each. */
static void set_output(step_way *way) {
    const sli_call *call = way->call;
    const sli_problem *p = &call->problem;
    const bool beside = p->bidirectional && p->direction_merge == SL_BI_CONCAT;
    const int index = way->part && !beside ? (int)SLI_RNN_Y_BACK : (int)SLI_RNN_Y;
    const int64_t offset = way->part && beside ? way->s.O : 0;
    way->y_row = beside ? 2 * way->s.O : way->s.O;
    way->y = call->out[index];
    way->dy = call->d_out[index];
    if (p->wave > 0) { /* of the last layer, which is `lag` layers to the right and as many steps behind */
        way->y_row = way->s.O / p->wave;
        const int64_t before = way->s.lag * (way->s.B + 1) * way->y_row;
        if (way->y) way->y = sli_step_io(way, way->y, -before);
        if (way->dy) way->dy = sli_step_io(way, way->dy, -before);
        return;
    }
    if (way->y) way->y = sli_step_io(way, way->y, offset);
    if (way->dy) way->dy = sli_step_io(way, way->dy, offset);
}

float sli_step_bound(const step_way *way) {
    return (float)(way->common.factor ? 1 / (1 - way->call->problem.recurrent_dropout) : 1);
}

static sli_problem planned_of(const sli_call *call) {
    sli_problem planned = call->problem;
    if (call->planned.batch > 0) planned.batch = call->planned.batch;
    return planned;
}

static void set_way(const sli_call *call, bool backward, int part, step_way *way) {
    const sli_problem *p = &call->problem;
    const sli_caps *caps = sli_cuda_caps_of(call->queue);
    *way = step_way{};
    way->call = call;
    way->queue = call->queue;
    way->stream = sli_cuda_stream(call->queue);
    way->part = part;
    way->reverse = p->bidirectional ? part == 1 : p->reverse;
    way->backward = backward;
    way->overlap = caps->compute_capability >= 90;
    way->fused = sli_step_fused(p, backward);
    const sli_problem planned = planned_of(call);
    way->tiled = backward ? 0 : sli_step_tiled(&planned, caps);
    if (!way->fused) way->wide = sli_step_wide_of(&planned, caps, backward); /* a call of few rows may be fused where the plan is not */
    way->s = sli_step_shape_of(p, call->chunk);
    way->history = sli_step_layout_history(p, call->chunk);
    way->packed = sli_step_layout_packed(&planned, caps);
    way->scratch = backward ? sli_step_layout_backward(&planned, caps, call->chunk, call->chunk, true)
                            : sli_step_layout_forward(&planned, caps, call->chunk, true);
    const size_t direction = (size_t)part;
    way->work = (char *)call->scratch + direction * way->scratch.stride;
    way->saved =
        way->s.train ? (char *)call->saved + direction * way->history.stride : way->work + way->scratch.history;
    way->weights = (char *)call->packed + direction * way->packed.stride;
    way->chunk = call->chunk;
    way->chunks = way->s.T > 0 ? (int)((way->s.T - 1) / call->chunk + 1) : 0;
    way->x = call->in[SLI_RNN_X];
    way->param = call->param + part * SLI_PART_PARAMS;
    way->d_param = call->d_param + part * SLI_PART_PARAMS;
    set_common(way);
    set_output(way);
}

int sli_step_ways(const sli_call *call, bool backward, step_way ways[2]) {
    const int directions = call->problem.bidirectional ? 2 : 1;
    for (int part = 0; part < directions; part++) set_way(call, backward, part, &ways[part]);
    return directions;
}

void sli_step_zero_fresh(const step_way *way) {
    const size_t each = way->s.narrow_parameters ? way->s.operand : sizeof(float);
    for (int k = 0; k < SLI_PART_PARAMS; k++)
        if (way->call->fresh[way->part] >> k & 1u)
            (void)sli_cuda_put(way->queue, way->stream, way->d_param[k], NULL, (size_t)sli_step_parameter(&way->s, k) * each);
}

step_target sli_step_target(const step_way *way, int k, int64_t first) {
    step_target to = {};
    if (k < 0 || !way->d_param[k]) return to;
    const bool adds = !(way->call->fresh[way->part] >> k & 1u);
    to.add = adds || !way->first;
    to.sums = (float *)way->d_param[k] + first;
    if (!way->s.narrow_parameters) return to;
    to.add = !way->first;
    to.add_narrow = adds;
    to.sums = way->chunks > 1 ? (float *)(way->work + way->scratch.sums[k]) + first : NULL;
    if (way->last) to.narrow = (uint16_t *)way->d_param[k] + first;
    return to;
}

/* -------------------------------------------------------------------------------------------------------- time -- */
void sli_step_enter_chunk(step_way *way, int index) {
    const int at = way->reverse ? way->chunks - 1 - index : index, T = (int)way->s.T;
    way->c0 = at * way->chunk;
    way->c1 = T - way->c0 < way->chunk ? T : way->c0 + way->chunk;
    way->first = index + 1 == way->chunks;
    way->last = index == 0;
}

int sli_step_at(const step_way *way, int s) {
    return way->reverse ? way->c1 - 1 - s : way->c0 + s;
}

int sli_step_entering(const step_way *way, int t) {
    return way->reverse ? t + 1 : t;
}

int sli_step_leaving(const step_way *way, int t) {
    return way->reverse ? t : t + 1;
}

/* ----------------------------------------------------------------------------------------------------- pointers -- */
void *sli_step_operand_h(const step_way *way, int slot) {
    const size_t at = (size_t)(way->history.slots_h ? slot : slot & 1);
    return way->saved + way->history.h + at * (size_t)(way->s.B * way->s.hs) * way->s.operand;
}

float *sli_step_cell(const step_way *way, int slot) {
    const size_t at = way->history.slots_h ? (size_t)slot : 0;
    return (float *)(way->saved + way->history.c) + at * (size_t)(way->s.B * way->s.H);
}

/* [B][row] of step t: saved of every step, or in scratch from c0 on. */
static float *of_time(const step_way *way, size_t saved, size_t scratch, int64_t row, int t) {
    const bool kept = way->s.keep_gates;
    char *base = kept ? way->saved + saved : way->work + scratch;
    return (float *)base + (size_t)(kept ? t : t - way->c0) * (size_t)(way->s.B * row);
}

float *sli_step_gates(const step_way *way, int t) {
    return of_time(way, way->history.u, way->scratch.u, way->s.us, t);
}

float *sli_step_sn(const step_way *way, int t) {
    return of_time(way, way->history.sn, way->scratch.sn, way->s.H, t);
}

float *sli_step_v(const step_way *way, int t) {
    return of_time(way, way->history.v, way->scratch.v, way->s.H, t);
}

const float *sli_step_hidden(const step_way *way, int slot, int64_t *row) {
    *row = way->s.own_h ? way->s.O : way->s.hs;
    if (!way->s.keep_h) return NULL;
    if (!way->s.own_h) return (const float *)sli_step_operand_h(way, slot);
    const size_t at = way->history.slots_hf ? (size_t)slot : 0;
    return (const float *)(way->saved + way->history.hf) + at * (size_t)(way->s.B * way->s.O);
}

int64_t sli_step_input_rows(const step_way *way) {
    const int64_t all = way->s.T - way->s.lag, end = way->c1 < all ? way->c1 : all;
    return end > way->c0 ? (end - way->c0) * way->s.B : 0;
}

const void *sli_step_inputs(const step_way *way) {
    const int64_t rows = sli_step_input_rows(way);
    const void *x = sli_step_io(way, way->x, way->c0 * way->s.B * way->s.I);
    if (!way->s.copy_x) return x;
    if (way->copied_x) return way->copied_x;
    void *copy = way->work + way->scratch.x;
    if (way->s.keep_x) copy = way->saved + way->history.x + (size_t)(way->c0 * way->s.B * way->s.xs) * way->s.operand;
    if (way->s.keep_x && way->backward) return copy; /* forward's */
    const sli_step_zeros zeros = {way->zeros, way->zeros_bytes};
    if (way->s.narrow_io) {
        sli_step_narrow_rows(way->queue, way->stream, copy, way->s.xs, rows, x, rows, way->s.I);
        if (zeros.bytes > 0) (void)sli_cuda_put(way->queue, way->stream, zeros.at, NULL, zeros.bytes);
        return copy;
    }
    sli_step_rows(way->queue, way->stream, way->call->problem.dtype, copy, way->s.xs, rows, (const float *)x, rows, way->s.I, zeros);
    return copy;
}

const void *sli_step_kernel(const step_way *way) {
    return way->s.copy_w ? way->weights + way->packed.kernel : way->param[SLI_RNN_KERNEL];
}

const void *sli_step_recurrent(const step_way *way) {
    return way->s.copy_r ? way->weights + way->packed.recurrent : way->param[SLI_RNN_RECURRENT];
}

const void *sli_step_projection(const step_way *way) {
    return way->weights + way->packed.projection;
}

step_common sli_step_common_at(const step_way *way, int t) {
    step_common k = way->common;
    if (way->s.mask) k.flags = (const uint8_t *)(way->work + way->scratch.flags) + (size_t)t * (size_t)way->s.B;
    k.first_row = (uint64_t)((int64_t)way->call->t0 + t) * (uint64_t)way->s.B;
    return k;
}

sli_cuda_product sli_step_product(const step_way *way, int64_t m, int64_t n, int64_t k) {
    sli_cuda_product product = {};
    product.math = way->call->problem.dtype;
    product.m = m;
    product.n = n;
    product.k = k;
    product.workspace = way->work + way->scratch.workspace;
    product.workspace_bytes = way->scratch.workspace_bytes;
    if (way->scratch.split_bytes > 0) product.split = way->work + way->scratch.split;
    product.split_bytes = way->scratch.split_bytes;
    return product;
}

/* -------------------------------------------------------------------------------------------------------- pack -- */
const float *sli_step_bias_n(const step_way *way) {
    const float *bias = (const float *)way->param[SLI_RNN_RECURRENT_BIAS];
    if (!bias) return NULL;
    return way->s.narrow_parameters ? (const float *)(way->weights + way->packed.bias_n) : bias + 2 * way->s.H;
}

void sli_step_weights(const step_way *way, void *to, int64_t stride, int64_t rows_to, const void *from, int64_t rows,
                      int64_t columns) {
    if (way->s.narrow_parameters)
        sli_step_narrow_rows(way->queue, way->stream, to, stride, rows_to, from, rows, columns);
    else
        sli_step_rows(way->queue, way->stream, way->call->problem.dtype, to, stride, rows_to, (const float *)from, rows, columns, {});
}

void sli_step_pack_recurrent(const step_way *way) {
    const sli_step_shape *s = &way->s;
    if (s->copy_r)
        sli_step_weights(way, way->weights + way->packed.recurrent, s->hs, s->zs, way->param[SLI_RNN_RECURRENT], s->GH, s->O);
}

void sli_step_pack_backward(const step_way *way) {
    sli_problem planned = planned_of(way->call);
    const sli_step_wide wide = sli_step_wide_of(&planned, sli_cuda_caps_of(way->queue), true);
    if (wide.rows > 0) sli_step_wide_pack(way, &wide, way->weights + way->packed.wide_backward, true);
}

void sli_step_pack(const step_way *way) {
    const sli_step_shape *s = &way->s;
    const void *kernel = way->param[SLI_RNN_KERNEL], *projection = way->param[SLI_RNN_PROJECTION];
    char *to = way->weights;
    if (s->copy_w)
        sli_step_weights(way, to + way->packed.kernel, s->xs, s->zs, kernel, s->GH, s->I);
    const sli_problem planned = planned_of(way->call);
    if (!sli_step_all_runs(&planned, sli_cuda_caps_of(way->queue))) sli_step_pack_recurrent(way);
    if (way->tiled > 0) sli_step_tiled_pack(way);
    if (way->wide.rows > 0) sli_step_wide_pack(way, &way->wide, to + way->packed.wide_forward, false);
    if (s->train) sli_step_pack_backward(way);
    if (s->project)
        sli_step_weights(way, to + way->packed.projection, s->ms, s->hs, projection, s->O, s->H);
    sli_step_pack_biases(way);
}

extern "C" void sli_gpu_step_pack(const sli_call *call) {
    step_way ways[2];
    const int directions = sli_step_ways(call, false, ways);
    for (int d = 0; d < directions && !sli_cuda_failed(call->queue); d++) sli_step_pack(&ways[d]);
}
