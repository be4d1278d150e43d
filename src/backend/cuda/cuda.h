/* NVIDIA GPUs: for planning only in this build, which has no CUDA rows. */
#ifndef SLI_CUDA_H
#define SLI_CUDA_H

#include "core/device.h"

extern const sli_device_ops sli_cuda_device;

#endif
