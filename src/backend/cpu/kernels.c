/* The CPU's rows, in order of preference. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/rows.h"

const sli_kernel *const sli_cpu_kernels[] = {
    &sli_cpu_fused_lstm, &sli_cpu_fused_gru, &sli_cpu_fused_rnn, &sli_cpu_stack_lstm,
    &sli_cpu_stack_gru,  &sli_cpu_stack_rnn, &sli_cpu_dense,     &sli_cpu_dense_bf16,
    &sli_cpu_dense_i8,   &sli_cpu_embed,     &sli_cpu_onehot,    &sli_cpu_dropout,
    &sli_cpu_xent,       &sli_cpu_norm,      &sli_cpu_optim,     NULL};
