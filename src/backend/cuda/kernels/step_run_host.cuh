/* cuda:step: what its files share about runs. */
#ifndef SLI_CUDA_STEP_RUN_HOST_CUH
#define SLI_CUDA_STEP_RUN_HOST_CUH

#include "backend/cuda/kernels/step.cuh"

#define SLI_STEP_RUN_SOURCE "step_run_instance.cuh"
#define SLI_STEP_RUN_ENTRY "step_run_instance"

/* Its launch, but for the stream; the kernel may have its shared memory then. */
typedef struct step_run_configuration {
    cudaLaunchConfig_t config;
    cudaLaunchAttribute attributes[2];
} step_run_configuration;
cudaError_t sli_step_run_configure(const void *kernel, const sli_step_wide *w, step_run_configuration *to);

/* The product of a step of the way, D to `to`, in rows of `row`. */
wide_args sli_step_wide_args(const step_way *way, float *to, int64_t row, const char *weights);
/* Launches so many steps, SLI_STEP_RUN_STEPS at most, of which all is set but for sums and v; backward the first one's dp is set, too, and the last one's product, which
 * comes out, is left out where the call ends with it. */
void sli_step_run_forward(step_way *way, step_forward_run *run, int steps);
step_sums sli_step_run_backward(step_way *way, step_backward_run *run, int steps, bool ends);

/* The table's (plugin.h). */
sl_status sli_gpu_step_ready(const sli_problem *problem, const sli_caps *caps, const sli_calls *calls, bool *refused, sli_why *why);

#endif
