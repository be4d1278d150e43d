/* The reference backend: every op as textbook loops in float and in double, one thread, libm only, no code shared with
 * src/cell or the fast kernels, so that it can prove them wrong. It computes everything that a problem can say. */
#ifndef SLI_REF_H
#define SLI_REF_H

#include "core/kernel.h"

/* One row per op, NULL-terminated; all are called "ref". */
extern const sli_kernel *const sli_ref_kernels[];

#endif
