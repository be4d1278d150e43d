/* The rows of the CPU, each in its own file; kernels.c lists them. */
#ifndef SLI_CPU_ROWS_H
#define SLI_CPU_ROWS_H

#include "core/kernel.h"

extern const sli_kernel sli_cpu_fused_lstm, sli_cpu_fused_gru, sli_cpu_fused_rnn; /* fused.c */
extern const sli_kernel sli_cpu_stack_lstm, sli_cpu_stack_gru, sli_cpu_stack_rnn; /* stack.c */
extern const sli_kernel sli_cpu_dense, sli_cpu_embed, sli_cpu_onehot;             /* dense.c */
extern const sli_kernel sli_cpu_dense_i8, sli_cpu_dense_bf16;                     /* dense_packed.c */
extern const sli_kernel sli_cpu_xent;                                             /* loss.c */
extern const sli_kernel sli_cpu_norm, sli_cpu_optim, sli_cpu_dropout;             /* update.c */

#endif
