/* What the files of the reference backend share. */
#ifndef SLI_REF_INTERNAL_H
#define SLI_REF_INTERNAL_H

#include "core/rounding.h"
#include "ref.h"

extern const sli_kernel sli_ref_lstm, sli_ref_gru, sli_ref_rnn;
extern const sli_kernel sli_ref_dense, sli_ref_embed;
extern const sli_kernel sli_ref_onehot, sli_ref_dropout, sli_ref_merge, sli_ref_flip;
extern const sli_kernel sli_ref_xent, sli_ref_bce, sli_ref_mse;
extern const sli_kernel sli_ref_norm, sli_ref_optim;

bool sli_ref_eligible(const sli_problem *problem, const sli_caps *caps, sli_why *why);
/* Steps of a call; tensors without time are one step. */
static inline int sli_ref_steps(const sli_problem *p) {
    return p->steps > 0 ? p->steps : 1;
}
/* Rows of [t][b][...]. */
static inline size_t sli_ref_rows(const sli_problem *p) {
    return (size_t)sli_ref_steps(p) * (size_t)p->batch;
}
static inline size_t sli_ref_bytes(const sli_problem *p) {
    return p->dtype == SL_F64 ? sizeof(double) : sizeof(float);
}
static inline bool sli_ref_accumulates(const sli_call *call, int index) {
    return (call->accumulate >> index) & 1u;
}
/* false where lengths or mask hide step t (relative to the call) of this row. */
bool sli_ref_valid(const sli_call *call, int t, int row);
/* Cost of an op that reads and writes `elements` and does `flops` operations, forward; training counts three times. */
void sli_ref_cost(const sli_problem *problem, double flops, double elements, sli_cost *cost);

/* Defines the function that picks the float or the double body by the problem's dtype. */
#define SLI_REF_DISPATCH(function)               \
    static void function(const sli_call *call) { \
        if (call->problem.dtype == SL_F64)       \
            function##_f64(call);                \
        else                                     \
            function##_f32(call);                \
    }

#endif
