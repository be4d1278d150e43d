/* A run: one block of device memory bound to a plan; one thread's computation. No allocation, no choice. */
#ifndef SLI_RUN_H
#define SLI_RUN_H

#include "params.h"

enum { SLI_RUN_PIECE = 4096 }; /* bytes of the small buffer through which arrays of another layout are copied */

struct sl_run {
    const sl_plan *plan;
    sl_params *params;
    sl_allocator allocator;
    sli_queue *queue;
    char *block;   /* device memory, plan->memory.run_block bytes */
    char *staging; /* host memory for batch-major arrays, NULL if time-major */
    size_t staging_bytes;
    sli_scalars scalars; /* host copy of what is on the device */
    double scale;        /* result.loss = loss_sum * scale */
    bool training;       /* of the last call */
    bool has_targets;    /* of the last call */
    int batch, steps;    /* of the last call; 0 before */
    bool outputs_valid, input_gradients_valid;
};

/* src/core/run_data.c: host arrays in and out. */
sl_status sli_run_upload_batch(sl_run *run, const sl_batch *batch);
sl_status sli_run_upload_tensor(sl_run *run, const sli_tensor *tensor, void *to, const void *from);
sl_status sli_run_download_tensor(sl_run *run, const sli_tensor *tensor, const void *from, void *to);
size_t sli_run_staging_bytes(const sl_plan *plan);
/* src/core/run_steps.c: the steps of a call. */
sl_status sli_run_forward_steps(sl_run *run, bool training);
sl_status sli_run_backward_steps(sl_run *run);
sl_status sli_run_carry_states(sl_run *run);
char *sli_run_tensor_at(const sl_run *run, const sli_tensor *tensor);
char *sli_run_gradient_at(const sl_run *run, const sli_tensor *tensor);
sl_status sli_run_find_nonfinite(sl_run *run, const char **layer);

#endif
