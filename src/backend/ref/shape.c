/* Reference rows of the ops that move or mask elements: one-hot, dropout, merge, flip; loops in shape_body.h. */
#include <math.h>
#include "ref_internal.h"

/* 0 or 1/(1-p) for element k of the call's [t][b][H]; the mask is indexed by absolute step. 1 outside training. */
static double dropout_factor(const sli_call *call, size_t k) {
    double p = call->problem.dropout;
    if (!call->training || !(p > 0)) return 1;
    sli_rng rng = sli_call_rng(call, SLI_PURPOSE_DROPOUT);
    uint64_t before = (uint64_t)call->t0 * (uint64_t)call->problem.batch * (uint64_t)call->problem.units;
    return sli_rng_word(&rng, before + k) < sli_drop_threshold(p) ? 0 : 1 / (1 - p);
}

/* Features of a part of a concat: equal shares where none are given. */
static int part_width(const sli_problem *p, int part) {
    return p->parts_units[part] > 0 ? p->parts_units[part] : p->units / p->parts;
}

#include "real_f32.h"
#include "shape_body.h"
#include "real_f64.h"
#include "shape_body.h"

SLI_REF_DISPATCH(onehot_forward)
SLI_REF_DISPATCH(dropout_forward)
SLI_REF_DISPATCH(dropout_backward)
SLI_REF_DISPATCH(merge_forward)
SLI_REF_DISPATCH(merge_backward)
SLI_REF_DISPATCH(flip_forward)
SLI_REF_DISPATCH(flip_backward)

static void onehot_cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    sli_ref_cost(p, 0, (double)sli_ref_rows(p) * p->inputs, cost);
}

static void copy_cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    double elements = (double)sli_ref_rows(p) * p->units;
    sli_ref_cost(p, p->op == SLI_OP_FLIP ? 0 : elements * (p->parts > 1 ? p->parts - 1 : 1),
                 elements * (1 + (p->parts > 1 ? p->parts : 1)), cost);
}

static void merge_book(const sli_problem *p, const sli_caps *caps, int chunk, sli_booking *booking) {
    (void)caps;
    (void)chunk;
    *booking = (sli_booking){0};
    if (p->train && p->merge == SL_MERGE_MULTIPLY)
        booking->saved = (size_t)p->parts * sli_ref_rows(p) * (size_t)p->units * sli_ref_bytes(p);
}

const sli_kernel sli_ref_onehot = {.name = "ref",
                                   .op = SLI_OP_ONEHOT,
                                   .device = SLI_DEVICE_CPU,
                                   .eligible = sli_ref_eligible,
                                   .cost = onehot_cost,
                                   .forward = onehot_forward};
const sli_kernel sli_ref_dropout = {.name = "ref",
                                    .op = SLI_OP_DROPOUT,
                                    .device = SLI_DEVICE_CPU,
                                    .eligible = sli_ref_eligible,
                                    .cost = copy_cost,
                                    .forward = dropout_forward,
                                    .backward = dropout_backward};
const sli_kernel sli_ref_merge = {.name = "ref",
                                  .op = SLI_OP_MERGE,
                                  .device = SLI_DEVICE_CPU,
                                  .eligible = sli_ref_eligible,
                                  .cost = copy_cost,
                                  .book = merge_book,
                                  .forward = merge_forward,
                                  .backward = merge_backward};
const sli_kernel sli_ref_flip = {.name = "ref",
                                 .op = SLI_OP_FLIP,
                                 .device = SLI_DEVICE_CPU,
                                 .eligible = sli_ref_eligible,
                                 .cost = copy_cost,
                                 .forward = flip_forward,
                                 .backward = flip_backward};
