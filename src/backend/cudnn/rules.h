/* The cuDNN rows' rules and estimates, by algorithm; see rules.c and estimates.c. */
#ifndef SLI_CUDNN_RULES_H
#define SLI_CUDNN_RULES_H

#include "backend/cudnn/layout.h"
#include "backend/cuda/plugin.h"

bool sli_cudnn_eligible(const sli_problem *p, const sli_caps *caps, sli_cudnn_algo algo, sli_why *why);
/* What cuDNN will want on a device that is not there. */
void sli_cudnn_estimate(const sli_problem *p, sli_cudnn_sizes *sizes);
void sli_cudnn_cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost);
double sli_cudnn_seconds(const sli_problem *p, const sli_caps *caps, sli_cudnn_algo algo);

#endif
