/* In place of src/backend/cuda/kernels/persist_host.cuh: what persist_pack.cu takes of it, launches in the emulation. */
#ifndef SLI_CUDA_PERSIST_HOST_CUH
#define SLI_CUDA_PERSIST_HOST_CUH

#include "backend/cuda/persist_layout.h"
#include "core/kernel.h"
#include "emulate.h"

#define __shared__ static

typedef struct step_way {
    const sli_call *call;
    sli_step_shape s;
    sli_step_packed packed;
    char *weights;
    const void *const *param;
    uint64_t seed;
    std::string *failure;
} step_way;

void sli_persist_pack(const step_way *way, const sli_persist_pair *pair, const sli_persist_packed *at,
                      const void *recurrent, int64_t row);
void sli_persist_measure(const step_way *way, const float *from, int64_t count, float *to);

template <typename ARGS>
void sli_step_launch(const step_way *way, void (*kernel)(ARGS), const sli_step_grid *grid, const ARGS *args, bool,
                     const char *) {
    emulate::launch_config config;
    config.resident = 1; /* shared memory is static */
    config.grid = dim3(grid->gx, grid->gy);
    config.block = dim3(grid->bx, grid->by);
    config.seed = way->seed;
    *way->failure = emulate::launch(config, [&] { kernel(*args); }).failure;
}

#endif
