/* The rows of the CPU, each in its own file; kernels.c lists them. */
#ifndef SLI_CPU_ROWS_H
#define SLI_CPU_ROWS_H

#include "core/kernel.h"

extern const sli_kernel sli_cpu_step_lstm, sli_cpu_step_gru, sli_cpu_step_rnn; /* step.c */

#endif
