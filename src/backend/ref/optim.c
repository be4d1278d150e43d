/* Reference rows of the gradient norm and the optimizers; see optim_body.h. */
#include <math.h>
#include "ref_internal.h"

enum { NORM_CHUNK = 4096 };

static sl_optimizer with_defaults(const sl_optimizer *given) {
    sl_optimizer o = *given;
    if (o.beta1 == 0) o.beta1 = 0.9;
    if (o.beta2 == 0) o.beta2 = 0.999;
    if (o.rho == 0) o.rho = 0.9;
    if (o.epsilon == 0) o.epsilon = 1e-8;
    if (o.kind == SL_ADAMW && o.weight_decay == 0) o.weight_decay = 0.01;
    return o;
}

/* value / norm where the norm is larger; which norm (the tensor's or the global one) is the caller's choice of squares. */
static double clip_factor(const sli_call *call) {
    const sl_clip *clip = &call->problem.clip;
    const double *squares = call->in[SLI_OPTIM_SQUARES];
    if (!squares || (clip->kind != SL_CLIP_NORM && clip->kind != SL_CLIP_GLOBAL_NORM)) return 1;
    double norm = sqrt(*squares);
    return norm > clip->value ? clip->value / norm : 1;
}

#include "real_f32.h"
#include "optim_body.h"
#include "real_f64.h"
#include "optim_body.h"

SLI_REF_DISPATCH(norm_forward)
SLI_REF_DISPATCH(optim_forward)

static void norm_cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    *cost = (sli_cost){.flops = 2 * (double)p->elements, .bytes = (double)p->elements * (double)sli_ref_bytes(p)};
}

static void optim_cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    double slots = p->optimizer.kind == SL_SGD ? p->optimizer.momentum != 0 : p->optimizer.kind == SL_RMSPROP ? 1 : 2;
    *cost = (sli_cost){.flops = (4 + 6 * slots) * (double)p->elements,
                       .bytes = (4 + 2 * slots) * (double)p->elements * (double)sli_ref_bytes(p)};
}

const sli_kernel sli_ref_norm = {.name = "ref",
                                 .op = SLI_OP_NORM,
                                 .device = SLI_DEVICE_CPU,
                                 .eligible = sli_ref_eligible,
                                 .cost = norm_cost,
                                 .forward = norm_forward};
const sli_kernel sli_ref_optim = {.name = "ref",
                                  .op = SLI_OP_OPTIM,
                                  .device = SLI_DEVICE_CPU,
                                  .eligible = sli_ref_eligible,
                                  .cost = optim_cost,
                                  .forward = optim_forward};
