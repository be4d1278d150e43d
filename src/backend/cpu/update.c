/* Rows over arrays of elements, in fixed slices: cpu:norm, cpu:optim, cpu:dropout. */
#include <math.h>
#include <string.h>
#include "backend/cpu/gemm.h"
#include "backend/cpu/rows.h"

enum { SLICE = 4096 };

static int slices_of(int64_t elements) {
    return (int)((elements + SLICE - 1) / SLICE);
}

static size_t slice_size(int64_t elements, int index) {
    const int64_t left = elements - (int64_t)index * SLICE;
    return left < SLICE ? (size_t)left : SLICE;
}

static bool f32_only(const sli_problem *p, const sli_caps *caps, sli_why *why) {
    (void)caps;
    NEED(p->dtype == SL_F32, "this row computes f32, not %s", sli_dtype_name(p->dtype));
    return true;
}

/* -------------------------------------------------------------------------------------------------------- norm --
 * squares = sum of g^2: slice by slice, then the slices in order; clips by value in place where asked. */
static void norm_slice(void *context, int index) {
    const sli_call *call = context;
    const sli_problem *p = &call->problem;
    const float limit = p->clip.kind == SL_CLIP_VALUE ? (float)p->clip.value : 0.0f;
    ((double *)call->scratch)[index] = sli_cpu_of(call)->ops->squares(
        slice_size(p->elements, index), (float *)call->out[SLI_NORM_GRAD] + (size_t)index * SLICE, limit);
}

static void norm_forward(const sli_call *call) {
    const int slices = slices_of(call->problem.elements);
    sli_threads_for(call->threads, slices, norm_slice, (void *)call);
    if (!call->out[SLI_NORM_SQUARES]) return;
    double total = 0;
    for (int i = 0; i < slices; i++) total += ((const double *)call->scratch)[i];
    *(double *)call->out[SLI_NORM_SQUARES] = total;
    sli_call_count_skipped(call);
}

static void norm_cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    *cost = (sli_cost){.flops = 2 * (double)p->elements, .bytes = 4 * (double)p->elements};
}

static void norm_book(const sli_problem *p, const sli_caps *caps, int chunk, sli_booking *booking) {
    (void)caps;
    (void)chunk;
    *booking = (sli_booking){.scratch_forward = (size_t)slices_of(p->elements) * sizeof(double)};
}

const sli_kernel sli_cpu_norm = {.name = "cpu:norm",
                                 .op = SLI_OP_NORM,
                                 .device = SLI_DEVICE_CPU,
                                 .eligible = f32_only,
                                 .cost = norm_cost,
                                 .book = norm_book,
                                 .forward = norm_forward};

/* ------------------------------------------------------------------------------------------------------- optim -- */
typedef struct update_work {
    const sli_call *call;
    sli_isa_update update;
} update_work;

/* value / norm where the norm is larger: of the tensor or of all, by the caller's choice of squares. */
static double clip_factor(const sli_call *call) {
    const sl_clip *clip = &call->problem.clip;
    const double *squares = call->in[SLI_OPTIM_SQUARES];
    if (!squares || (clip->kind != SL_CLIP_NORM && clip->kind != SL_CLIP_GLOBAL_NORM)) return 1;
    const double norm = sqrt(*squares);
    return norm > clip->value ? clip->value / norm : 1;
}

static double otherwise(double value, double replacement) {
    return value == 0 ? replacement : value;
}

/* The optimizer's numbers; formulas in isa/loops.c. */
static sli_isa_update update_of(const sli_call *call) {
    const sl_optimizer *o = &call->problem.optimizer;
    const double rate = call->scalars->learning_rate, step = sli_call_optimizer_step(call);
    const double beta1 = otherwise(o->beta1, 0.9), beta2 = otherwise(o->beta2, 0.999), rho = otherwise(o->rho, 0.9);
    sli_isa_update u = {.nesterov = o->nesterov != 0,
                        .keep = call->keep_gradient,
                        .factor = (float)clip_factor(call),
                        .rate = (float)rate,
                        .weight_decay = o->kind == SL_ADAMW ? 0.0f : (float)o->weight_decay,
                        .decay = 1.0f,
                        .momentum = (float)o->momentum,
                        .epsilon = (float)otherwise(o->epsilon, 1e-8)};
    if (o->kind == SL_ADAM || o->kind == SL_ADAMW) {
        u.kind = SLI_UPDATE_ADAM;
        u.rate = (float)(rate / (1 - pow(beta1, step)));
        u.one_beta1 = (float)(1 - beta1);
        u.beta2 = (float)beta2;
        u.one_beta2 = (float)(1 - beta2);
        u.root2 = (float)sqrt(1 - pow(beta2, step));
        if (o->kind == SL_ADAMW) u.decay = (float)(1 - rate * otherwise(o->weight_decay, 0.01));
    } else if (o->kind == SL_RMSPROP) {
        u.kind = SLI_UPDATE_RMSPROP;
        u.beta2 = (float)rho;
        u.one_beta2 = (float)(1 - rho);
    }
    return u;
}

static void update_elements(const update_work *w, size_t first, size_t count) {
    const sli_call *call = w->call;
    float *slot0 = call->out[SLI_OPTIM_SLOT0], *slot1 = call->out[SLI_OPTIM_SLOT1];
    sli_cpu_of(call)->ops->update(&w->update, count, (float *)call->out[SLI_OPTIM_PARAM] + first,
                                  (float *)call->out[SLI_OPTIM_GRAD] + first, slot0 ? slot0 + first : NULL,
                                  slot1 ? slot1 + first : NULL);
}

static void update_slice(void *context, int index) {
    const update_work *w = context;
    update_elements(w, (size_t)index * SLICE, slice_size(w->call->problem.elements, index));
}

static void update_values(void *context, const float *values, int64_t count) {
    const update_work *w = context;
    update_elements(w, (size_t)(values - (const float *)w->call->out[SLI_OPTIM_PARAM]), (size_t)count);
}

/* What a recurrent row packs is updated by the tasks that pack it. */
static void update_in_pack(update_work *w) {
    const sli_update update = {update_values, w};
    sli_call packing = *w->call;
    packing.problem = *w->call->packer_problem;
    packing.update = &update;
    w->call->packer->pack(&packing);
}

/* Gradients that are not finite leave the parameters as they are; the squares of all are there before any update. */
static void optim_forward(const sli_call *call) {
    if (call->metrics && !isfinite(call->metrics->squares)) {
        if (!call->keep_gradient) memset(call->out[SLI_OPTIM_GRAD], 0, (size_t)call->problem.elements * sizeof(float));
        return;
    }
    update_work w = {call, update_of(call)};
    if (call->packer)
        update_in_pack(&w);
    else
        sli_threads_for(call->threads, slices_of(call->problem.elements), update_slice, &w);
}

static void optim_cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    const double slots = sli_optimizer_slots(&p->optimizer);
    *cost =
        (sli_cost){.flops = (4 + 6 * slots) * (double)p->elements, .bytes = 4 * (4 + 2 * slots) * (double)p->elements};
}

const sli_kernel sli_cpu_optim = {.name = "cpu:optim",
                                  .op = SLI_OP_OPTIM,
                                  .device = SLI_DEVICE_CPU,
                                  .eligible = f32_only,
                                  .cost = optim_cost,
                                  .forward = optim_forward,
                                  .updates_in_pack = true};

/* ----------------------------------------------------------------------------------------------------- dropout --
 * y = x times 0 or 1/(1-p), drawn by the number of the element in the sequence; outside training y = x. */
typedef struct dropout_work {
    const sli_call *call;
    sli_rng rng;
    const float *from;
    float *to;
    bool add;
    uint32_t threshold;
    float scale;
    int64_t elements;
} dropout_work;

static void dropout_slice(void *context, int index) {
    const dropout_work *w = context;
    const sli_problem *p = &w->call->problem;
    const size_t first = (size_t)index * SLICE, count = slice_size(w->elements, index);
    const uint64_t before = (uint64_t)w->call->t0 * (uint64_t)p->batch * (uint64_t)p->units;
    const sli_isa_ops *ops = sli_cpu_of(w->call)->ops;
    float *to = w->to + first;
    if (w->threshold > 0)
        ops->dropout(&w->rng, before + first, count, w->threshold, w->scale, w->from + first, to, w->add);
    else if (w->add)
        ops->add(count, to, w->from + first);
    else
        memmove(to, w->from + first, count * sizeof *to);
}

static void dropout_run(const sli_call *call, const float *from, float *to, bool add) {
    const double p = call->training ? call->problem.dropout : 0;
    dropout_work w = {.call = call,
                      .rng = sli_call_rng(call, SLI_PURPOSE_DROPOUT),
                      .from = from,
                      .to = to,
                      .add = add,
                      .threshold = sli_drop_threshold(p),
                      .scale = (float)(1 / (1 - p)),
                      .elements = (int64_t)sli_cpu_rows(&call->problem) * call->problem.units};
    sli_threads_for(call->threads, slices_of(w.elements), dropout_slice, &w);
}

static void dropout_forward(const sli_call *call) {
    dropout_run(call, call->in[SLI_UNARY_X], call->out[SLI_UNARY_Y], false);
}

static void dropout_backward(const sli_call *call) {
    const bool add = call->accumulate >> SLI_UNARY_X & 1;
    float *dx = call->d_in[SLI_UNARY_X];
    if (!dx) return;
    if (call->d_out[SLI_UNARY_Y])
        dropout_run(call, call->d_out[SLI_UNARY_Y], dx, add);
    else if (!add)
        memset(dx, 0, sli_cpu_rows(&call->problem) * (size_t)call->problem.units * sizeof *dx);
}

static void dropout_cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    const double elements = (double)sli_cpu_rows(p) * p->units, passes = p->train ? 2 : 1;
    *cost = (sli_cost){.flops = passes * elements, .bytes = passes * 8 * elements};
}

const sli_kernel sli_cpu_dropout = {.name = "cpu:dropout",
                                    .op = SLI_OP_DROPOUT,
                                    .device = SLI_DEVICE_CPU,
                                    .eligible = f32_only,
                                    .cost = dropout_cost,
                                    .forward = dropout_forward,
                                    .backward = dropout_backward};
