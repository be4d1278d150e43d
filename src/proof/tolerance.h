/* How far a kernel may be from the double reference: derived from the precision and the lengths of the sums, in one place. */
#ifndef SLI_TOLERANCE_H
#define SLI_TOLERANCE_H

#include "core/problem.h"
#include "sluice.h"

typedef struct sli_tolerance {
    double output, gradient; /* of rms(value - reference) / rms(reference), one tensor at a time */
} sli_tolerance;

/* For what `plan` computes in `dtype`. */
sli_tolerance sli_tolerance_of(const sl_plan *plan, sl_dtype dtype);
/* Whether a slope of the problem's cell jumps somewhere: relu, hard sigmoid, a clip. */
bool sli_has_kink(const sli_problem *problem);
/* Factor for a tensor of so many numbers: few of them may be small by cancellation while the terms they sum are not. */
double sli_tolerance_of_few(double numbers);
/* How many numbers decide the root mean square of values[count]: all of them where they are of one size, fewer where some are much
 * larger than the others. */
double sli_numbers_that_count(const double *values, size_t count);
/* Gradients against central differences in double: ||g - fd|| / ||fd||. */
#define SLI_DIFFERENCE_TOLERANCE 1e-6
#define SLI_DIFFERENCE_STEP 1e-5

#endif
