/* Biases and peepholes as what follows reads them: in floats. Device code of the launches that pack. */
#ifndef SLI_CUDA_STEP_BIAS_CUH
#define SLI_CUDA_STEP_BIAS_CUH

#include "backend/cuda/kernels/step_args.h"
#include "backend/cuda/runtime/narrow.h"

static __device__ __forceinline__ float step_parameter(int math, const void *from, int64_t at) {
    if (math == STEP_BF16) return __uint_as_float((uint32_t) static_cast<const uint16_t *>(from)[at] << 16);
    if (math == STEP_F16) return sli_from_f16(static_cast<const uint16_t *>(from)[at]);
    return static_cast<const float *>(from)[at];
}

/* Number j of `all`, and of the others what thread j has of them. */
static __device__ __forceinline__ void step_pack_bias(const step_bias_args &a, int64_t j) {
    float sum = a.bias && j < a.count ? step_parameter(a.math, a.bias, j) : 0.0f;
    if (a.recurrent_bias && j < a.apart) sum += step_parameter(a.math, a.recurrent_bias, j);
    a.to[j] = sum;
    if (a.apart_to && j >= a.apart && j < a.count) a.apart_to[j - a.apart] = step_parameter(a.math, a.recurrent_bias, j);
    if (a.peephole_to && j < a.peepholes) a.peephole_to[j] = step_parameter(a.math, a.peephole, j);
}

/* Of the way of whoever includes this. */
static inline step_bias_args sli_step_bias_args(const step_way *way) {
    const sli_step_shape *s = &way->s;
    step_bias_args a = {};
    a.to = (float *)(way->weights + way->packed.bias);
    a.bias = way->param[SLI_RNN_BIAS];
    a.recurrent_bias = way->param[SLI_RNN_RECURRENT_BIAS];
    a.peephole = way->param[SLI_RNN_PEEPHOLE];
    a.math = s->narrow_parameters ? (int)way->call->problem.dtype : (int)SL_F32;
    a.count = s->GH;
    a.all = s->zs;
    a.apart = s->gru && !s->before ? 2 * s->H : s->GH;
    if (s->narrow_parameters && a.peephole) a.peephole_to = (float *)(way->weights + way->packed.peephole);
    if (s->narrow_parameters && a.recurrent_bias && a.apart < a.count) a.apart_to = (float *)(way->weights + way->packed.bias_n);
    a.peepholes = a.peephole_to ? 3 * s->H : 0;
    return a;
}

#endif
