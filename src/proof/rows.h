/* The kernel rows of a problem, each with the reason why it was refused. */
#ifndef SLI_ROWS_H
#define SLI_ROWS_H

#include "core/plan.h"

enum { SLI_ROWS_MAX = 32 };

typedef struct sli_row {
    const sli_kernel *kernel;
    const char *refusal; /* NULL: eligible; else as long as the plan */
} sli_row;

/* Rows of `op` on the plan's device that satisfy `require` (NULL: all), in order of preference; returns how many. */
int sli_rows_of(const sl_plan *plan, sli_op op, const char *require, sli_row rows[SLI_ROWS_MAX]);

#endif
