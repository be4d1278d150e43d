/* cuda:step: what it is predicted to take, in seconds. Plain C, compiled into libsluice (whose plans compare rows) and the plug-in
 * (where cuda:grid may compute backward step by step). */
#ifndef SLI_CUDA_STEP_COST_H
#define SLI_CUDA_STEP_COST_H

#ifdef __cplusplus
extern "C" {
#endif
#include "backend/cuda/step_layout.h"

/* A pass of a call in chunks of `chunk` steps; a step of it. */
double sli_step_pass_seconds(const sli_problem *problem, const sli_caps *caps, int chunk, bool backward);
double sli_step_step_seconds(const sli_problem *problem, const sli_caps *caps, bool backward);
/* Weights of so much of L2 count as held there. */
extern const double sli_step_l2_part;
/* A wide step. */
double sli_step_wide_seconds(const sli_problem *problem, const sli_caps *caps, const sli_step_wide *wide,
                             bool backward);
/* us of 132 multiprocessors that a backward pass wins by transposed copies, in chunks of `chunk` steps. */
double sli_step_transposed_us(const sli_problem *problem, const sli_caps *caps, int chunk);

#ifdef __cplusplus
}
#endif
#endif
