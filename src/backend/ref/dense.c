/* Reference rows of dense and embedding; the loops are in dense_body.h. */
#include <math.h>
#include <string.h>
#include "ref_internal.h"

/* act' is taken from the output, which a linear layer does not need. */
static bool dense_saves(const sli_problem *p) {
    return p->act != SL_ACT_DEFAULT && p->act != SL_ACT_LINEAR;
}

#include "real_f32.h"
#include "activation_body.h"
#include "dense_body.h"
#include "real_f64.h"
#include "activation_body.h"
#include "dense_body.h"

SLI_REF_DISPATCH(dense_forward)
SLI_REF_DISPATCH(dense_backward)
SLI_REF_DISPATCH(embed_forward)
SLI_REF_DISPATCH(embed_backward)

static void dense_cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    double rows = (double)sli_ref_rows(p), I = p->inputs, H = p->units;
    sli_ref_cost(p, 2 * rows * I * H, rows * (I + H) + I * H, cost);
}

static void dense_book(const sli_problem *p, const sli_caps *caps, int chunk, sli_booking *booking) {
    (void)caps;
    (void)chunk;
    *booking = (sli_booking){0};
    if (p->train && dense_saves(p)) booking->saved = sli_ref_rows(p) * (size_t)p->units * sli_ref_bytes(p);
}

static void embed_cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    double elements = (double)sli_ref_rows(p) * p->units;
    sli_ref_cost(p, 0, 2 * elements, cost);
    if (p->train) cost->flops = elements;
}

const sli_kernel sli_ref_dense = {.name = "ref",
                                  .op = SLI_OP_DENSE,
                                  .device = SLI_DEVICE_CPU,
                                  .eligible = sli_ref_eligible,
                                  .cost = dense_cost,
                                  .book = dense_book,
                                  .forward = dense_forward,
                                  .backward = dense_backward,
                                  .backward_reads_in = 1u << SLI_DENSE_X};
const sli_kernel sli_ref_embed = {.name = "ref",
                                  .op = SLI_OP_EMBED,
                                  .device = SLI_DEVICE_CPU,
                                  .eligible = sli_ref_eligible,
                                  .cost = embed_cost,
                                  .forward = embed_forward,
                                  .backward = embed_backward,
                                  .backward_reads_in = 1u << SLI_EMBED_TOKENS};
