/* Reference rows of the losses: softmax cross-entropy, binary cross-entropy from logits, squared error; see loss_body.h. */
#include <math.h>
#include "ref_internal.h"

#include "real_f32.h"
#include "loss_body.h"
#include "real_f64.h"
#include "loss_body.h"

SLI_REF_DISPATCH(xent_forward)
SLI_REF_DISPATCH(xent_backward)
SLI_REF_DISPATCH(elementwise_loss)
SLI_REF_DISPATCH(elementwise_loss_back)

static void loss_cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    double elements = (double)sli_ref_rows(p) * p->units;
    sli_ref_cost(p, 4 * elements, elements, cost);
}

enum { READS_IN = 1u << SLI_LOSS_Z | 1u << SLI_LOSS_TARGET | 1u << SLI_LOSS_LENGTHS | 1u << SLI_LOSS_MASK };

const sli_kernel sli_ref_xent = {.name = "ref",
                                 .op = SLI_OP_XENT,
                                 .device = SLI_DEVICE_CPU,
                                 .eligible = sli_ref_eligible,
                                 .cost = loss_cost,
                                 .forward = xent_forward,
                                 .backward = xent_backward,
                                 .backward_reads_in = READS_IN,
                                 .gradient_in_place = true};
const sli_kernel sli_ref_bce = {.name = "ref",
                                .op = SLI_OP_BCE,
                                .device = SLI_DEVICE_CPU,
                                .eligible = sli_ref_eligible,
                                .cost = loss_cost,
                                .forward = elementwise_loss,
                                .backward = elementwise_loss_back,
                                .backward_reads_in = READS_IN,
                                .gradient_in_place = true};
const sli_kernel sli_ref_mse = {.name = "ref",
                                .op = SLI_OP_MSE,
                                .device = SLI_DEVICE_CPU,
                                .eligible = sli_ref_eligible,
                                .cost = loss_cost,
                                .forward = elementwise_loss,
                                .backward = elementwise_loss_back,
                                .backward_reads_in = READS_IN,
                                .gradient_in_place = true};
