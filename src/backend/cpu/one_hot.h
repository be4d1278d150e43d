/* Products with inputs of which each row has a single 1 and zeros, as a one-hot layer makes them: columns of W instead of W x, and
 * sums of rows instead of dz^T x. */
#ifndef SLI_CPU_ONE_HOT_H
#define SLI_CPU_ONE_HOT_H

#include "backend/cpu/sums.h"

/* gates = W x; false, and nothing is done: x is not of that kind, or a product is as good. */
bool sli_one_hot_project(const sli_sums *sums);
/* d W += dz^T x; likewise. */
bool sli_one_hot_kernel(const sli_sums *sums);

#endif
