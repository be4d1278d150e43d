/* Capabilities of GPUs that need not be there, as `--device cuda:sm_90` gives them. */
#ifndef TEST_CUDA_CAPS_H
#define TEST_CUDA_CAPS_H

#include "backend/cuda/cuda.h"
#include "test.h"

static inline sli_caps invented(int capability) {
    char name[32];
    sli_caps caps = {0};
    snprintf(name, sizeof name, "cuda:sm_%d", capability);
    REQUIRE_OK(sli_cuda_device.caps(name, 1, &caps));
    return caps;
}

#endif
