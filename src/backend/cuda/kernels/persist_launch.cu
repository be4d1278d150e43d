/* cuda:cluster and cuda:grid: a call unpacked, and the launch of a span. */
#include <stdio.h>

#include "backend/cuda/compile.h"
#include "backend/cuda/kernels/persist_host.cuh"
#include "cell/activations.h"

static_assert(sizeof(persist_scalars) == 16 && offsetof(sli_scalars, seed) == 0 && offsetof(sli_scalars, step) == 8 &&
                  offsetof(sli_scalars, micro_step) == 12,
              "persist_scalars is the beginning of sli_scalars");
static_assert((int)PERSIST_VALID == (int)SLI_STEP_VALID && (int)PERSIST_SHOWN == (int)SLI_STEP_SHOWN,
              "one set of flags");

/* Lays the memory of a way out anew: set by sli_step_ways for cuda:step. */
static void set_memory(persist_call *p, int d) {
    const sli_call *call = p->call;
    step_way *way = &p->ways[d];
    way->scratch = p->scratch.step;
    way->work = (char *)call->scratch + (size_t)d * p->scratch.stride;
    way->history = p->saved.step;
    way->saved = way->s.train ? (char *)call->saved + (size_t)d * p->saved.stride : way->work + way->scratch.history;
    way->packed = p->packed.step;
    way->weights = (char *)call->packed + (size_t)d * p->packed.stride;
    way->fused = false;
    way->tiled = 0; /* nor is what those read laid out */
    way->wide = sli_step_wide{};
    if (way->common.factor) way->common.factor = (const float *)(way->work + way->scratch.factor);
}

/* What kernels/persist_inputs.cuh takes for granted of a call: no more than was planned, numbers of 32 bits, rows of W that begin at 16 bytes. One that is otherwise
 * multiplies before the launch. */
static bool makes_inputs(const persist_call *p) {
    const sli_step_shape *s = &p->ways[0].s;
    const sli_persist_geometry *g = &p->pair.forward;
    const double all = (double)s->T * (double)s->B * (double)s->I;
    bool well = s->B <= p->pair.batch && (s->T - s->lag) * g->inputs_rows <= g->inputs_columns && all < (double)INT32_MAX;
    for (int d = 0; d < p->directions; d++) well = well && (s->xs % 4 != 0 || sli_step_aligned(sli_step_kernel(&p->ways[d])));
    return well;
}

bool sli_persist_enter(const sli_call *call, sli_persist_kind kind, bool backward, persist_call *p) {
    sli_why why = {""};
    const sli_caps *caps = sli_cuda_caps_of(call->queue);
    if (sli_cuda_failed(call->queue)) return false;
    *p = persist_call{};
    p->call = call;
    p->queue = call->queue;
    p->kind = kind;
    if (!sli_persist_pair_of(&call->problem, call->planned, caps, kind, &p->pair, &why)) {
        sli_cuda_fail(call->queue, SL_ERR_NO_KERNEL, "%s", why.text);
        return false;
    }
    p->geometry = backward ? &p->pair.backward : &p->pair.forward;
    p->packed = sli_persist_layout_packed(&call->problem, &p->pair);
    p->scratch = backward ? sli_persist_layout_backward(&call->problem, caps, &p->pair, call->chunk)
                          : sli_persist_layout_forward(&call->problem, caps, &p->pair, call->chunk);
    p->directions = sli_step_ways(call, backward, p->ways);
    const int span = sli_persist_span(&call->problem, &p->pair, call->chunk);
    p->folds = call->problem.projection > 0;
    p->saved = sli_persist_layout_saved(&call->problem, &p->pair, call->chunk);
    for (int d = 0; d < p->directions; d++) {
        set_memory(p, d);
        p->cells[d] = p->folds ? sli_persist_fold_cells(p, d) : p->ways[d];
    }
    if (p->pair.forward.inputs > 0 && !makes_inputs(p)) sli_persist_leave_inputs(&p->pair.forward);
    p->chunks_of_span = (span + call->chunk - 1) / call->chunk;
    /* In lanes other layers' calls have the multiprocessors that this one leaves, and sums that wait for its launch. */
    p->chunks_of_piece = sli_cuda_in_lanes(call->queue) || (backward && sli_cuda_awaits_late(call->queue))
                             ? p->chunks_of_span
                             : sli_persist_piece(&call->problem, caps, &p->pair, call->chunk, backward);
    return true;
}

static void enter_chunks(step_way *way, int first, int end) {
    const int low = way->reverse ? way->chunks - end : first, high = way->reverse ? way->chunks - first : end;
    way->c0 = low * way->chunk;
    way->c1 = high == way->chunks ? (int)way->s.T : high * way->chunk;
    way->first = end == way->chunks;
    way->last = first == 0;
}

void sli_persist_enter_span(persist_call *p, int first, int end) {
    for (int d = 0; d < p->directions; d++) {
        enter_chunks(&p->ways[d], first, end);
        enter_chunks(&p->cells[d], first, end);
        p->span_at[d] = p->ways[d].c0;
    }
}

/* Chunks of `way`: what is laid out by the steps of a span begins at theirs. */
static step_way chunks_of(const step_way *way, int first, int end) {
    step_way part = *way;
    enter_chunks(&part, first, end);
    const size_t rows = (size_t)(part.c0 - way->c0) * (size_t)part.s.B;
    part.scratch.u += rows * (size_t)part.s.us * sizeof(float);
    part.scratch.sn += rows * (size_t)part.s.H * sizeof(float);
    part.scratch.v += rows * (size_t)part.s.H * sizeof(float);
    part.scratch.dz += rows * (size_t)part.s.zs * part.s.operand;
    part.scratch.dr += rows * (size_t)part.s.zs * part.s.operand;
    part.scratch.resets += rows * (size_t)part.s.hs * part.s.operand;
    return part;
}

step_way sli_persist_chunk(const persist_call *p, int direction, int index) {
    return chunks_of(&p->ways[direction], index, index + 1);
}

persist_call sli_persist_piece_at(const persist_call *p, int first, int end, int order) {
    persist_call piece = *p;
    for (int d = 0; d < p->directions; d++) {
        piece.ways[d] = chunks_of(&p->ways[d], first, end);
        piece.cells[d] = chunks_of(&p->cells[d], first, end);
    }
    const step_way *way = &p->ways[0];
    const size_t sums = (size_t)order * (size_t)p->chunks_of_piece * (size_t)way->s.B * sizeof(float);
    piece.scratch.sums += sums * (size_t)way->s.us;
    piece.scratch.sums_n += sums * (size_t)way->s.H;
    piece.scratch.sums_peep += sums * 3 * (size_t)way->s.H;
    return piece;
}

static persist_zone zone_of(const step_zone *zone) {
    persist_zone to = {};
    to.expected = zone->expected;
    to.threshold = zone->threshold;
    to.stream = zone->stream;
    to.draw = zone->draw;
    return to;
}

static void set_way(const persist_call *p, int d, persist_way *to) {
    const step_way *way = &p->cells[d];
    const sli_persist_scratch *at = &p->scratch;
    const bool ascending = way->reverse == p->geometry->backward;
    const int t = ascending ? way->c0 : way->c1 - 1, step = ascending ? 1 : -1;
    to->steps = way->c1 - way->c0;
    to->weights = way->weights + (p->geometry->backward ? p->packed.backward : p->packed.forward);
    if (way->s.mask) {
        to->flags = (const uint8_t *)(way->work + way->scratch.flags) + (size_t)t * (size_t)way->s.B;
        to->flags_step = step * way->s.B;
    }
    if (p->call->problem.mask == SLI_MASK_LENGTHS) to->lengths = (const int32_t *)p->call->in[SLI_RNN_LENGTHS];
    to->time = (int64_t)p->call->t0 + t;
    to->time_step = step;
    to->wave_time = t;
    to->factor = way->common.factor;
    to->peep = way->common.peep;
    to->zone_h = zone_of(&way->common.zone_h);
    to->zone_c = zone_of(&way->common.zone_c);
    to->u = sli_step_gates(way, t);
    to->u_step = step * way->s.B * way->s.us;
    to->y_row = way->y_row;
    to->y_step = step * way->s.B * way->y_row;
    const bool words = sli_persist_words_tell(p->geometry);
    to->counters = (uint32_t *)((words ? way->work : sli_persist_told(p, d)) + at->counters);
    to->exchange = (unsigned char *)(words ? sli_persist_told(p, d) : way->work) + at->exchange;
    to->meeting = (unsigned char *)way->work + at->meeting;
}

/* Of the pairs of tiles of k that stream in every step, those that are to stay in L2. */
static int near_pairs(const sli_persist_geometry *g, const sli_caps *caps) {
    const int tiles = g->tiles_k - g->in_registers - g->in_shared, pairs = (tiles + 1) / 2;
    const double bytes = (double)sli_persist_tile_bytes(g) * tiles * g->tiles_m * sli_persist_warps(g) * sli_persist_group(g) * g->directions;
    return tiles > 0 ? (int)(pairs * sli_persist_near(bytes, (double)caps->l2_bytes) / bytes) : 0;
}

/* tf32 whose products FFMA multiplies still has cells of tf32. */
int sli_persist_act(sl_dtype dtype, const sli_persist_geometry *g, int act) {
    if (dtype != SL_TF32 || g->math == SL_TF32) return act;
    return act == CELL_ACT_TANH ? (int)CELL_ACT_TANH_FAST : act == CELL_ACT_SIGMOID ? (int)CELL_ACT_SIGMOID_FAST : act;
}

uint32_t sli_persist_delay;

static int backward_form(const sli_problem *p, const sli_step_shape *s, bool gives) {
    int form = 0;
    if (s->lstm && s->keep_v) form |= PERSIST_HAS_V;
    if (p->bias != SL_BIAS_NONE) form |= PERSIST_HAS_SUMS;
    if (p->peephole) form |= PERSIST_HAS_SUMS_PEEP;
    if (gives) form |= PERSIST_HAS_DP;
    return form;
}

/* A projection that is folded: m of every step is left, y is made of it afterwards. */
int sli_persist_form(const sli_problem *p, bool backward, bool y, bool gives) {
    const sli_problem folded = sli_persist_folded(p);
    const sli_step_shape s = sli_step_shape_of(&folded, 1);
    const bool folds = p->projection > 0;
    int form = p->mask != SLI_MASK_NONE ? PERSIST_HAS_FLAGS : 0;
    if (p->mask == SLI_MASK_LENGTHS && p->wave == 0) form |= PERSIST_HAS_LENGTHS; /* layers of a wave end at different steps */
    if (sli_persist_delay != 0) form |= PERSIST_HAS_DELAY;
    if (y && (backward || !folds)) form |= PERSIST_HAS_Y;
    if (p->narrow_io) form |= PERSIST_HAS_NARROW_IO;
    if (backward) return form | backward_form(p, &s, gives);
    if (s.keep_gates) form |= PERSIST_HAS_GATES;
    if (s.lstm && s.keep_gates && s.keep_v) form |= PERSIST_HAS_V;
    if (s.lstm && s.train) form |= PERSIST_HAS_C;
    if (s.gru && s.train && s.own_h) form |= PERSIST_HAS_H;
    if (s.train || folds) form |= PERSIST_HAS_OPERAND;
    return form;
}

void sli_persist_args(const persist_call *p, persist_args *a) {
    const step_common *k = &p->cells[0].common;
    const sli_persist_shared shared = sli_persist_shared_of(p->geometry);
    *a = persist_args{};
    for (int d = 0; d < p->directions; d++) {
        set_way(p, d, &a->way[d]);
        if (p->geometry->scaled) a->largest_weight[d] = (const float *)(p->cells[d].weights + p->packed.largest);
    }
    a->B = k->B;
    a->H = k->H;
    a->groups = p->geometry->groups;
    a->wave_steps = (int)(p->cells[0].s.T - p->cells[0].s.lag);
    a->us = k->us;
    a->hs = k->hs;
    a->zs = k->zs;
    a->options = k->options;
    a->act = sli_persist_act(p->call->problem.dtype, p->geometry, k->act);
    a->gate_act = sli_persist_act(p->call->problem.dtype, p->geometry, k->gate_act);
    a->forget_bias = k->forget_bias;
    a->clip = k->clip;
    a->bound = sli_step_bound(&p->cells[0]);
    a->scalars = (const persist_scalars *)k->scalars;
    a->delay = sli_persist_delay;
    a->far = sli_persist_far(&p->call->problem, p->geometry->backward, (double)sli_cuda_caps_of(p->queue)->l2_bytes);
    a->near = near_pairs(p->geometry, sli_cuda_caps_of(p->queue));
    a->shared_partial = (int)shared.partial;
    a->shared_arriving = (int)shared.arriving;
    a->shared_weights = (int)shared.weights;
    a->shared_ring = (int)shared.ring;
    a->shared_barriers = (int)shared.barriers;
    a->shared_sending = (int)shared.sending;
    a->shared_state = (int)shared.state;
    a->shared_ranges = (int)shared.ranges;
    a->shared_inputs = (int)shared.inputs;
    a->shared_bytes = (int)shared.total;
}

/* ------------------------------------------------------------------------------------------------------- launch -- */
/* Compiled for exactly this launch, mostly when the plan was made; built in where there is no compiler, or it fails. NULL: the queue has failed. */
static const void *kernel_of(const persist_call *p, const persist_args *a) {
    const sli_persist_geometry *g = p->geometry;
    char defines[SLI_PERSIST_DEFINES];
    sli_why why = {"NVRTC is missing"};
    const void *kernel = NULL;
    if (!sli_cuda_caps_of(p->queue)->no_compiler) {
        sli_persist_defines(g, &p->cells[0].s, a->form, a->options, a->act, a->gate_act, defines, sizeof defines);
        kernel = (const void *)sli_cuda_compile(p->queue, SLI_PERSIST_SOURCE, SLI_PERSIST_ENTRY, defines, &why);
        if (!kernel && sli_cuda_failed(p->queue)) return NULL;
    }
    if (!kernel && g->inputs == 0 && !(a->form & PERSIST_HAS_NARROW_IO)) kernel = sli_persist_builtin(g);
    if (!kernel)
        sli_cuda_fail(p->queue, SL_ERR_DEVICE,
                      "the persistent kernel was not compiled: %s; --require cuda:step does without it", why.text);
    return kernel;
}

char *sli_persist_told(const persist_call *p, int d) {
    return p->scratch.kept_bytes > 0 ? p->ways[d].saved + p->saved.kept : p->ways[d].work;
}

void sli_persist_zero_exchange(const persist_call *p) {
    for (int d = 0; d < p->directions; d++)
        if (!sli_cuda_put(p->queue, p->ways[d].stream, sli_persist_told(p, d) + p->scratch.zeros, NULL, p->scratch.zeros_bytes)) return;
}

void sli_persist_zero_backward(const persist_call *p, cudaStream_t stream) {
    if (!p->ways[0].s.train || p->pair.backward_in_steps) return;
    const sli_persist_scratch at = sli_persist_layout_backward(&p->call->problem, sli_cuda_caps_of(p->queue), &p->pair, p->call->chunk);
    if (at.kept_bytes > 0 && at.zeros_bytes > 0)
        (void)sli_cuda_put(p->queue, stream, p->ways[0].saved + p->saved.kept + at.zeros, NULL, at.zeros_bytes);
}

/* Blocks of the recurrence come before those of products beside it. */
static bool set_priority(const persist_call *p, cudaLaunchAttribute *attribute) {
    int least = 0, greatest = 0;
    if (!SLI_CU(p->queue, cudaDeviceGetStreamPriorityRange(&least, &greatest))) return false;
    attribute->id = cudaLaunchAttributePriority;
    attribute->val.priority = greatest;
    return true;
}

cudaError_t sli_persist_configure(const void *kernel, const sli_persist_geometry *g, int shared_bytes,
                                  persist_configuration *to) {
    const int cluster = sli_persist_cluster(g);
    cudaError_t error = cudaSuccess;
    if (shared_bytes > 48 * 1024)
        error = sli_cuda_injected(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
    if (error == cudaSuccess && cluster > 8)
        error = sli_cuda_injected(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    cudaLaunchConfig_t *config = &to->config;
    *config = cudaLaunchConfig_t{};
    config->gridDim = dim3((unsigned)sli_persist_ctas(g), 1, 1);
    config->blockDim = dim3((unsigned)sli_persist_threads(g), 1, 1);
    config->dynamicSmemBytes = (size_t)shared_bytes;
    config->attrs = to->attributes;
    if (cluster > 1 || g->gather == SLI_PERSIST_CLUSTER) {
        to->attributes[config->numAttrs].id = cudaLaunchAttributeClusterDimension;
        to->attributes[config->numAttrs].val.clusterDim.x = (unsigned)cluster;
        to->attributes[config->numAttrs].val.clusterDim.y = 1;
        to->attributes[config->numAttrs++].val.clusterDim.z = 1;
    }
    return error;
}

void sli_persist_launch(const persist_call *p, persist_args *a) {
    if (sli_cuda_failed(p->queue)) return; /* its exchange may be no zeros: blocks would wait for each other for ever */
    const sli_persist_geometry *g = p->geometry;
    const bool y = g->backward ? p->ways[0].dy || p->ways[1].dy : p->ways[0].y || p->ways[1].y;
    a->form = sli_persist_form(&p->call->problem, g->backward, y, a->way[0].dp_to != NULL);
    const void *kernel = kernel_of(p, a);
    if (!kernel) return;
    persist_configuration c;
    if (!sli_cuda_try(p->queue, sli_persist_configure(kernel, g, a->shared_bytes, &c),
                      "preparing the persistent recurrence"))
        return;
    c.config.stream = p->ways[0].stream;
    if (g->gather == SLI_PERSIST_GRID) {
        c.attributes[c.config.numAttrs].id = cudaLaunchAttributeCooperative;
        c.attributes[c.config.numAttrs++].val.cooperative = 1;
    }
    const bool beside = p->chunks_of_piece < p->chunks_of_span || sli_cuda_is_late(p->queue);
    if (beside && !set_priority(p, &c.attributes[c.config.numAttrs++])) return;
    void *arguments[] = {(void *)a};
    sli_cuda_mark_late(p->queue);
    sli_cuda_try(p->queue, sli_cuda_injected(cudaLaunchKernelExC(&c.config, kernel, arguments)),
                 "launch of the persistent recurrence");
    sli_cuda_start_late(p->queue);
}
