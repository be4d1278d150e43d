/* cuda:step: what the cells are given beside pre-activations, of one unit of one row. */
#ifndef SLI_CUDA_STEP_CELLS_CUH
#define SLI_CUDA_STEP_CELLS_CUH

#include "backend/cuda/kernels/step_device.cuh"

template <bool PLAIN>
static __device__ __forceinline__ cell_lstm_args step_lstm_args(const step_common &k, int row, int j, unsigned flags) {
    cell_lstm_args args = {};
    if constexpr (!PLAIN) {
        if (k.options & CELL_PEEPHOLE) {
            args.peep_i = k.peep[j];
            args.peep_f = k.peep[k.H + j];
            args.peep_o = k.peep[2 * (size_t)k.H + j];
        }
        args.forget_bias = k.forget_bias;
        args.clip = k.clip;
        if ((k.options & CELL_ZONEOUT_H) && !(k.options & CELL_PROJECTION))
            args.zone_h = step_zone_weight(k.zone_h, k, row, j, k.H);
        if (k.options & CELL_ZONEOUT_C) args.zone_c = step_zone_weight(k.zone_c, k, row, j, k.H);
        args.valid = flags & SLI_STEP_VALID ? 1.0f : 0.0f;
    }
    return args;
}

template <bool PLAIN>
static __device__ __forceinline__ cell_gru_args step_gru_args(const step_common &k, int row, int j, unsigned flags) {
    cell_gru_args args = {};
    if constexpr (!PLAIN) {
        if (k.options & CELL_ZONEOUT_H) args.zone_h = step_zone_weight(k.zone_h, k, row, j, k.H);
        args.valid = flags & SLI_STEP_VALID ? 1.0f : 0.0f;
    }
    return args;
}

template <bool PLAIN>
static __device__ __forceinline__ cell_rnn_args step_rnn_args(const step_common &k, int row, int j, unsigned flags) {
    cell_rnn_args args = {};
    if constexpr (!PLAIN) {
        if (k.options & CELL_ZONEOUT_H) args.zone_h = step_zone_weight(k.zone_h, k, row, j, k.H);
        args.valid = flags & SLI_STEP_VALID ? 1.0f : 0.0f;
    }
    return args;
}

#endif
