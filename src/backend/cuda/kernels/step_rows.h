/* What the launch that makes rows an operand is given: a recording gives it zeros that were a launch behind it (runtime/recording.cu). */
#ifndef SLI_CUDA_STEP_ROWS_H
#define SLI_CUDA_STEP_ROWS_H

#include <stdint.h>

#include "sluice.h"

enum { STEP_ROWS_ZEROS = 2 };
typedef struct step_rows_args {
    void *to; /* operand [rows_to][stride]; a row is whole 16-byte pieces */
    const float *from;
    int64_t stride, rows_to, rows, columns;
    struct {
        uint32_t *at;
        int64_t words; /* 0: none */
    } zeros[STEP_ROWS_ZEROS];
    sl_dtype math;
    bool whole; /* rows of whole pieces, aligned */
} step_rows_args;

/* Of 16-bit operands, with that argument. */
const void *sli_step_rows_kernel();

#endif
