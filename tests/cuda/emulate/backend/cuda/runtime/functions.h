/* In place of src/backend/cuda/runtime/functions.h: what stack.cu takes of it and of services.h, without CUDA. Defined in
 * test_stack.cpp. */
#ifndef SLI_CUDA_FUNCTIONS_H
#define SLI_CUDA_FUNCTIONS_H

extern "C" {
#include "backend/cuda/plugin.h"

const sli_caps *sli_cuda_caps_of(const sli_queue *queue);
bool sli_cuda_failed(const sli_queue *queue);
void sli_cuda_fail(sli_queue *queue, sl_status status, const char *format, ...);
void sli_cuda_phase(sli_queue *queue, sli_phase phase);
bool sli_cuda_open_lanes(sli_queue *queue, int count);
void sli_cuda_use_lane(sli_queue *queue, int lane);
void sli_cuda_pass_lane(sli_queue *queue);
void sli_cuda_wait_lane(sli_queue *queue, int lane);
void sli_cuda_close_lanes(sli_queue *queue);
#define SLI_GPU_DECLARE(name) void sli_gpu_##name(const sli_call *call);
SLI_CUDA_FUNCTIONS(SLI_GPU_DECLARE)
#undef SLI_GPU_DECLARE
}

#endif
