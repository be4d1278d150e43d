/* The kernel rows of a problem, each with the reason why it was refused. */
#ifndef SLI_ROWS_H
#define SLI_ROWS_H

#include "core/plan.h"

enum { SLI_ROWS_MAX = 32 };

typedef struct sli_row {
    const sli_kernel *kernel;
    const char *refusal; /* NULL: eligible; else as long as the plan */
} sli_row;

/* Why the row cannot compute the model (options->require is its name), or NULL: asked by planning, as a row may take a whole
 * stack that it refuses layer by layer. The text is as long as the plan of `row`, or the thread's last failure. */
sl_status sli_row_refusal(const sl_model *model, const sl_plan_options *options, const sli_row *row,
                          const char **refusal);
/* Rows of `op` on the plan's device that satisfy `require` (NULL: all), in order of preference; returns how many. */
int sli_rows_of(const sl_plan *plan, sli_op op, const char *require, sli_row rows[SLI_ROWS_MAX]);

#endif
