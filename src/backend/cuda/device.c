/* Capabilities of NVIDIA GPUs that can be planned for by name: "cuda:sm_80", "cuda:sm_90" (an H200), "cuda:sm_100". */
#include "backend/cuda/cuda.h"

#include <stdio.h>
#include <string.h>

typedef struct known_gpu {
    const char *name;
    int compute_capability, multiprocessors;
    size_t memory, shared_memory, l2_bytes;
} known_gpu;

static const known_gpu known[] = {
    {"cuda:sm_80", 80, 108, (size_t)80 << 30, 163 << 10, (size_t)40 << 20},
    {"cuda:sm_90", 90, 132, (size_t)139 << 30, 227 << 10, (size_t)60 << 20},
    {"cuda:sm_100", 100, 148, (size_t)180 << 30, 227 << 10, (size_t)126 << 20},
};

static sl_status cuda_caps(const char *device_name, int threads, sli_caps *caps) {
    (void)threads;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        if (strcmp(device_name, known[k].name) != 0) continue;
        memset(caps, 0, sizeof *caps);
        snprintf(caps->name, sizeof caps->name, "%s", device_name);
        caps->kind = SLI_DEVICE_CUDA;
        caps->invented = true;
        caps->threads = 1;
        caps->compute_capability = known[k].compute_capability;
        caps->multiprocessors = known[k].multiprocessors;
        caps->memory = known[k].memory;
        caps->shared_memory = known[k].shared_memory;
        caps->l2_bytes = known[k].l2_bytes;
        return SL_OK;
    }
    return sli_fail(SL_ERR_DEVICE,
                    "%s: this build has no CUDA rows; use --device cpu, or cuda:sm_80, cuda:sm_90, cuda:sm_100 to plan",
                    device_name);
}

static bool cuda_describe(int index, char *name, size_t name_capacity, char *text, size_t capacity, bool *usable) {
    snprintf(name, name_capacity, "cuda");
    snprintf(text, capacity, "this build has no CUDA rows");
    *usable = false;
    return index == 0;
}

const sli_device_ops sli_cuda_device = {.name = "cuda", .caps = cuda_caps, .describe = cuda_describe};
