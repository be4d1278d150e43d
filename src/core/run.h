/* A run: one block of device memory bound to a plan; one thread's computation. No choice; no allocation after the first call
 * of each kind, which may be recorded. */
#ifndef SLI_RUN_H
#define SLI_RUN_H

#include "params.h"

enum {
    SLI_RUN_PIECE = 65536, /* bytes of the buffer, on the stack, through which arrays of another type are copied */
    SLI_RUN_DEPTH = 2      /* most steps that wait for their results */
};

/* What a call does on the device. Each kind is recorded by itself, where the device records. */
typedef enum sli_run_kind {
    SLI_RUN_INFER,    /* forward */
    SLI_RUN_EVALUATE, /* forward with targets */
    SLI_RUN_FORWARD,  /* training's halves, where the caller gives the outputs' gradients between them */
    SLI_RUN_BACKWARD,
    SLI_RUN_GRADIENTS, /* both in one: with the plan's loss */
    SLI_RUN_UPDATE,
    SLI_RUN_STEP, /* gradients and update; sluice bench: gradients as such a step asks for them */
    SLI_RUN_KINDS
} sli_run_kind;

/* What is read back of a call; lies at plan->metrics. The second part is there only if sli_plan_is_scaled: a copy. */
typedef struct sli_run_report {
    sli_metrics metrics;
    sli_scaling scaling;
} sli_run_report;

/* A step whose result nobody asked for yet. */
typedef struct sli_run_pending {
    double scale;          /* result.loss = loss_sum * scale */
    int slot;              /* of read_later */
    sli_run_report report; /* on devices that work at once */
} sli_run_pending;

/* What the gradients of parameters hold between calls. */
typedef enum sli_gradients_state {
    SLI_GRADIENTS_ZEROS,
    SLI_GRADIENTS_SUMS,     /* that no update has taken */
    SLI_GRADIENTS_LEFTOVERS /* of a whole step: fresh ones (sli_call.fresh) are what its update took, the others zeros */
} sli_gradients_state;

struct sl_run {
    const sl_plan *plan;
    sl_params *params;
    sl_allocator allocator;
    sli_queue *queue;
    char *block;   /* device memory, plan->memory.run_block bytes */
    char *staging; /* host memory for batch-major arrays, NULL if time-major */
    size_t staging_bytes;
    int32_t *lengths;    /* host copy of the lengths [B]; NULL without masking by lengths */
    sli_scalars scalars; /* what the next call computes with, and */
    sli_scalars sent;    /* what the device has, */
    bool any_sent;       /* if it got any */
    sli_recording *recordings[SLI_RUN_KINDS];
    sli_run_pending pending[SLI_RUN_DEPTH]; /* uncollected steps, the oldest first */
    int pending_count, next_slot;
    double skipped; /* updates that the device left out, as far as results were collected: sli_metrics.skipped */
    double scale;   /* result.loss = loss_sum * scale */
    sli_gradients_state gradients;
    bool fresh;       /* calls being built are a whole step's */
    bool training;    /* of the last call */
    bool has_targets; /* of the last call */
    int batch, steps; /* of the last call; 0 before */
    bool outputs_valid, input_gradients_valid;
    bool lent; /* the last call was sl_interop_forward: backward may follow */
    /* Memory of other libraries instead of the run's own (sluice_interop.h), NULL until used: tensors, their gradients,
     * parameters' gradients. */
    char **bound;
    int bindings; /* of the parameters, when the recordings were made */
    bool profiling;
    double profiled_steps[2];        /* time steps of the profile's calls, forward and backward */
    double tagged[SLI_PROFILE_TAGS]; /* of the last profile: see sli_run_submit */
    sli_text explanation;
};

/* src/core/run_data.c: host arrays in and out. */
sl_status sli_run_upload_batch(sl_run *run, const sl_batch *batch);
sl_status sli_run_upload_tensor(sl_run *run, const sli_tensor *tensor, void *to, const void *from);
sl_status sli_run_download_tensor(sl_run *run, const sli_tensor *tensor, const void *from, void *to);
size_t sli_run_staging_bytes(const sl_plan *plan);
/* src/core/run_interop.c: the run's own memory counts again, but for borrowed gradients of parameters. */
void sli_run_unbind(sl_run *run);
size_t sli_run_bound_bytes(const sl_plan *plan);
/* Every row has all steps. */
sl_status sli_run_full_lengths(sl_run *run);
/* src/core/run_record.c. Does `work`: where the device records, a call of the plan's full size is recorded at its first time,
 * and replayed then and afterwards. `work` may not upload, download or wait. */
/* Whether a call begins by zeroing metrics; see run.c. */
bool sli_run_zeroes_metrics(const sl_plan *plan);
typedef sl_status (*sli_run_work)(sl_run *run);
sl_status sli_run_do(sl_run *run, sli_run_kind kind, sli_run_work work);
void sli_run_free_recordings(sl_run *run);
/* src/core/run_profile.c. Seconds by phase, of calls between begin and end. SL_ERR_DEVICE where the device does not tell. */
sl_status sli_run_profile_begin(sl_run *run);
sl_status sli_run_profile_end(sl_run *run, double seconds[SLI_PHASE_COUNT]);
/* Submits a call of plan step `step`; a profile counts its time as that step's, forward or backward. */
sl_status sli_run_submit(sl_run *run, int step, bool backward, sli_kernel_fn function, const sli_call *call);
/* A profile is told that a call of run->steps goes forward, backward, or both. */
void sli_run_count_steps(sl_run *run, bool forward, bool backward);
/* src/core/run.c: parts of calls. */
sl_status sli_run_check_training(const sl_run *run);
sl_status sli_run_send_scalars(sl_run *run);
sl_status sli_run_gradients_work(sl_run *run);
/* Leftovers become zeros. To be called before anything but a whole step reads gradients or adds to them. */
sl_status sli_run_clear_leftovers(sl_run *run);
/* Gradients are about to be added to. */
sl_status sli_run_begin_sums(sl_run *run);
/* Bytes of the report; copies the loss scaling into it; makes a result of it. */
size_t sli_run_report_bytes(const sl_run *run);
sl_status sli_run_complete_report(sl_run *run);
void sli_run_fill_result(const sli_run_report *report, double scale, sl_result *result);
/* src/core/run_steps.c: the steps of a call. */
sl_status sli_run_forward_steps(sl_run *run, bool training);
sl_status sli_run_backward_steps(sl_run *run);
sl_status sli_run_carry_states(sl_run *run);
/* sli_call.touched, or NULL. */
uint8_t *sli_run_touched(const sl_run *run);
/* src/core/run_update.c: squares of gradients of a late step, where the plan has them summed behind it. */
sl_status sli_run_early_squares(sl_run *run, const sli_step *step);
char *sli_run_tensor_at(const sl_run *run, const sli_tensor *tensor);
char *sli_run_gradient_at(const sl_run *run, const sli_tensor *tensor);
sl_status sli_run_find_nonfinite(sl_run *run, const char **layer);
sl_status sli_run_find_bad_gradient(sl_run *run, const char **layer);
/* src/core/run.c: of the last training call with a loss, repeated: the layer nearest to the loss one of whose parameters has a
 * gradient with a NaN or infinity; NULL if none. The run's gradients are zero afterwards. */
const char *sli_run_first_bad_gradient(sl_run *run);

#endif
