/* The GPU's rows, in order of preference, and what they have in common. */
#include "backend/cuda/cuda.h"

const sli_kernel *const sli_cuda_kernels[] = {&sli_cuda_lstm_cluster, &sli_cuda_gru_cluster, &sli_cuda_rnn_cluster,
                                              &sli_cuda_lstm_grid,    &sli_cuda_gru_grid,    &sli_cuda_rnn_grid,
                                              &sli_cuda_lstm_stack,   &sli_cuda_gru_stack,   &sli_cuda_rnn_stack,
                                              &sli_cuda_lstm_wave,    &sli_cuda_gru_wave,    &sli_cuda_rnn_wave,
                                              &sli_cuda_lstm,         &sli_cuda_gru,         &sli_cuda_rnn,
                                              &sli_cuda_dense,        &sli_cuda_embed,       &sli_cuda_onehot,
                                              &sli_cuda_dropout,      &sli_cuda_merge,       &sli_cuda_flip,
                                              &sli_cuda_xent,         &sli_cuda_bce,         &sli_cuda_mse,
                                              &sli_cuda_norm,         &sli_cuda_optim,       NULL};

bool sli_cuda_dtype(const sli_problem *problem, sli_why *why) {
    const sl_dtype dtype = problem->dtype;
    NEED(dtype == SL_F32 || dtype == SL_TF32 || dtype == SL_BF16 || dtype == SL_F16 || dtype == SL_F32X3,
         "computes f32, tf32, bf16, f16, f32x3, not %s", sli_dtype_name(dtype));
    return true;
}
