/* The table of the reference rows and what they share. */
#include "ref_internal.h"

const sli_kernel *const sli_ref_kernels[] = {
    &sli_ref_lstm,   &sli_ref_gru,     &sli_ref_rnn,   &sli_ref_dense, &sli_ref_embed,
    &sli_ref_onehot, &sli_ref_dropout, &sli_ref_merge, &sli_ref_flip,  &sli_ref_xent,
    &sli_ref_bce,    &sli_ref_mse,     &sli_ref_norm,  &sli_ref_optim, NULL};

bool sli_ref_eligible(const sli_problem *problem, const sli_caps *caps, sli_why *why) {
    (void)caps;
    const bool rounds = problem->dtype == SL_BF16 || (problem->dtype == SL_I8 && !problem->train);
    NEED(problem->dtype == SL_F32 || problem->dtype == SL_F32X3 || problem->dtype == SL_F64 || rounds,
         "the reference computes f32, f32x3 as f32, f64, bf16 and, for inference, i8, not %s",
         sli_dtype_name(problem->dtype));
    NEED(problem->layers <= 1, "one layer a call, the problem stacks %d; the planner splits them", problem->layers);
    NEED(!problem->bidirectional, "one direction a call; the planner splits bidirectional layers");
    return true;
}

bool sli_ref_valid(const sli_call *call, int t, int row) {
    if (call->problem.mask == SLI_MASK_NONE) return true;
    if (call->problem.mask == SLI_MASK_LENGTHS) {
        const int32_t *lengths = call->in[SLI_RNN_LENGTHS];
        return !lengths || call->t0 + t < lengths[row];
    }
    const uint8_t *mask = call->in[SLI_RNN_MASK];
    return !mask || mask[(ptrdiff_t)t * call->problem.batch + row] != 0;
}

void sli_ref_cost(const sli_problem *problem, double flops, double elements, sli_cost *cost) {
    double passes = problem->train ? 3 : 1;
    cost->flops = passes * flops;
    cost->bytes = passes * elements * (double)sli_ref_bytes(problem);
}
