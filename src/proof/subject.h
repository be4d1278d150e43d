/* What a proof works on: a model with one draw of inputs, masks, parameters and output gradients, held in double, and runs
 * of it in any precision on any kernel ("trials") whose results are doubles again. Values that are drawn are exact in the type
 * that operands of products are rounded to (float where they are not, or rounded row by row, as in i8), so that every precision sees the same numbers. */
#ifndef SLI_SUBJECT_H
#define SLI_SUBJECT_H

#include "core/problem.h"

typedef struct sli_subject_array {
    const char *name;
    bool time, integer;
    int width;      /* numbers a row; 1 of tokens and labels */
    int vocabulary; /* integers are below it */
    size_t count;   /* of the full call: [T][B][width] or [B][width]; rows*columns of a parameter */
    double *values;
} sli_subject_array;

typedef struct sli_subject {
    sli_arena arena;
    const sl_model *model;
    sl_plan_options options; /* batch, steps, loss, masking, train... of every trial */
    uint64_t seed;
    sl_dtype operands; /* bf16, f16, tf32, i8; else SL_DTYPE_DEFAULT */
    int input_count, param_count, output_count;
    sli_subject_array *inputs, *params, *outputs; /* outputs: the gradients that flow into them */
    sli_subject_array target;                     /* count 0 without a loss */
    int32_t *lengths;                             /* NULL without */
    uint8_t *mask;                                /* [T][B], NULL without */
    struct sli_expected *expected; /* the reference's results as far as parity.c has computed them, or NULL */
} sli_subject;

/* What operands of products are rounded to in plans of this type. */
sl_dtype sli_proof_operands(sl_dtype dtype);
/* `mask` says how lengths or steps are masked (a plan only knows that they are). `model` must outlive the subject. */
sl_status sli_subject_new(const sl_model *model, const sl_plan_options *options, sli_mask mask, uint64_t seed,
                          sli_subject **subject);
void sli_subject_free(sli_subject *subject);
/* Draws everything again, from another seed. */
void sli_subject_draw(sli_subject *subject, sli_mask mask, uint64_t seed);

/* --------------------------------------------------------------------------------------------------------- trials -- */
typedef enum sli_part_kind { SLI_PART_OUTPUT, SLI_PART_LOSS, SLI_PART_INPUT_GRADIENT, SLI_PART_GRADIENT } sli_part_kind;

typedef struct sli_part {
    const char *name;
    sli_part_kind kind;
    int source;   /* index of the output, input or parameter */
    size_t count; /* valid numbers of the last call */
    double *values;
} sli_part;

typedef struct sli_results {
    int count;
    sli_part *parts;
} sli_results;

typedef struct sli_trial_call {
    int batch, steps; /* 0: full */
    bool training;    /* gradients too */
    bool poison;      /* fill the run's activations and scratch with NaN first */
} sli_trial_call;

typedef struct sli_trial {
    const sli_subject *subject;
    sl_plan *plan;
    sl_params *params;
    sl_run *run;
    char *feed; /* the call's numbers as the run wants them */
    size_t feed_bytes;
    sl_dtype operands; /* products round them to this type: the reference of 16-bit kernels; SL_DTYPE_DEFAULT */
    int moved;         /* sli_call.moved; 0 */
    size_t guard;      /* bytes of every guard zone, all holding SLI_GUARD_BYTE; 0: none */
    const void **inputs,
        **d_outputs; /* one block, of the subject's inputs and outputs: a stack has as many states as layers */
    sl_batch batch;  /* of the last sli_trial_feed */
} sli_trial;

/* Plans with `options` (the subject's with another kernel, dtype, limit...), allocates, sets the parameters. */
sl_status sli_trial_open(const sli_subject *subject, const sl_plan_options *options, sli_trial *trial);
/* The reference that 16-bit and tf32 kernels are compared with: as sli_trial_open in double on the reference kernels, but what
 * enters a product is rounded to `operands` (the subject's, or SLI_TF32_CUT). */
sl_status sli_trial_open_reference(const sli_subject *subject, sl_dtype operands, sli_trial *trial);
/* That of the subject's operands with recurrent products off by what rounding may be (sli_call.moved, 1 and up): how far its results are from
 * the other's tells what the problem makes of rounding. */
sl_status sli_trial_open_moved(const sli_subject *subject, int moved, sli_trial *trial);
/* As sli_trial_open, with a guard zone behind every piece of memory that the run and the parameters have. */
enum { SLI_GUARD_BYTES = 256, SLI_GUARD_BYTE = 0xA5 };
sl_status sli_trial_open_guarded(const sli_subject *subject, const sl_plan_options *options, sli_trial *trial);
/* Bytes of guard zones that somebody wrote to. */
sl_status sli_trial_count_damage(const sli_trial *trial, size_t *bytes);
void sli_trial_close(sli_trial *trial);
/* Results have room for everything a call gives (without `gradients`: outputs and loss), in the subject's arena. */
sl_status sli_results_new(sli_subject *subject, bool gradients, sli_results *results);
/* feed and compute are what run does, in two steps: a benchmark feeds once and computes often. */
void sli_trial_feed(sli_trial *trial, int batch, int steps);
sl_status sli_trial_compute(sli_trial *trial, bool training, sl_result *result);
sl_status sli_trial_run(sli_trial *trial, const sli_trial_call *call, sli_results *results);
/* The subject's parameter `index` again, after its values were changed. */
sl_status sli_trial_set_param(sli_trial *trial, int index);

#endif
