/* Gradients against central differences, in double on the reference kernels. */
#ifndef SLI_DIFFERENCES_H
#define SLI_DIFFERENCES_H

#include "proof/report.h"
#include "proof/subject.h"

/* Perturbs every value of every tensor, or a sample where `budget` (FLOPs in all) does not allow more; tensors that are only
 * sampled are also checked along one random line. The subject must be one of training; it is restored. */
sl_status sli_check_differences(sli_subject *subject, double budget, sli_report *report);

#endif
