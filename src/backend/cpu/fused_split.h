/* How the threads of cpu:fused share a step: a pure function of shapes and machine. Whatever it answers, the bits are the same. */
#ifndef SLI_CPU_FUSED_SPLIT_H
#define SLI_CPU_FUSED_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include "backend/cpu/cost.h"

typedef struct sli_fused_shape {
    int directions, batch, steps; /* steps: that threads take at a time */
    int stages;                   /* products of a step, one after the other */
    int panels, columns, k;       /* of one product: panels of so many columns, summed over k */
    size_t panel_bytes;
    int inputs; /* W x comes first, summed over so many; 0: it does not */
    int input_panels, input_columns;
    size_t input_panel_bytes;
    int input_rows; /* of a thread at a time, at least a step's */
    double speed;   /* of the product beside that of floats; 0: the same */
    sli_op op;
    bool backward;
    int units; /* cells of a row */
    sli_cpu_machine machine;
} sli_fused_shape;

/* directions * rows * units threads: some take one direction, then groups of rows, then groups of panels. */
typedef struct sli_fused_split {
    int directions, rows, units; /* groups; units > 1: who has no panels left takes others' (panel_queue.h) */
    double seconds;              /* predicted, of one step of all directions */
    double others;               /* of the best of the other ways; 0: there is none */
} sli_fused_split;

sli_fused_split sli_fused_split_of(const sli_fused_shape *shape);

#endif
