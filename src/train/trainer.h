/* The trainer: a model, its plan, parameters and run, the data it reads, and where it stands. Everything that decides the
 * next number is in sli_position, parameters, optimizer slots and carried states: a checkpoint holds exactly these. */
#ifndef SLI_TRAINER_H
#define SLI_TRAINER_H

#include "core/params.h"
#include "data/arrays.h"
#include "data/streams.h"
#include "io/json_text.h"
#include "train/token_model.h"
#include "train/training.h"

typedef struct sli_position {
    int64_t step;                   /* optimizer steps done */
    int epoch;                      /* epochs done */
    size_t block;                   /* batches of this epoch done */
    double epoch_loss, epoch_count; /* sums of this epoch so far */
    int plateaus;                   /* epochs that did not improve `best` */
    int waiting;                    /* epochs since the last improvement by min_delta */
    double best;                    /* validation loss of the best epoch end; infinity before one */
    double patience_best;           /* what early stopping compares with */
    bool finished;                  /* stopped early: nothing is left to do */
} sli_position;

typedef enum sli_valid_kind {
    SLI_VALID_NONE,
    SLI_VALID_STREAM, /* one stream of tokens */
    SLI_VALID_BLOCKS, /* the last blocks of every stream */
    SLI_VALID_ARRAYS
} sli_valid_kind;

/* A step that was handed to the run, whose result is not known yet. */
typedef struct sli_queued_step {
    double rate;
    int64_t tokens;
} sli_queued_step;
enum { SLI_TRAINER_DEPTH = 4 }; /* at least sl_run_depth */

/* Random masks are keyed by 32 bits of the step, and so many does a checkpoint hold; those under way are counted in. */
static const int64_t sli_most_steps = (int64_t)UINT32_MAX - SLI_TRAINER_DEPTH;

struct sl_trainer {
    sl_allocator allocator;
    sli_arena arena;      /* strings */
    sl_training training; /* resolved */
    bool tokens;          /* a language model's stream, else arrays */
    sl_model *model;
    sl_plan *plan; /* for micro-batches: batch / accumulate rows */
    sl_params *params;
    sl_run *run;
    const char *path, *last_path; /* NULL: write nothing */
    const char *stale_path;       /* PATH.last where path is the resume point itself, until the first save; else NULL */
    const char **metadata;        /* key, value, ..., NULL */
    const char *note;             /* what resuming could not keep; NULL */

    sli_streams streams;
    sli_array_data arrays;
    size_t blocks; /* batches of an epoch */
    int rows;      /* of a micro-batch */
    uint64_t data_hash;
    uint32_t *order; /* of this epoch's rows; NULL without shuffling */
    sli_valid_kind valid_kind;
    sli_streams valid_streams;
    const int32_t *valid_tokens;
    size_t valid_count;
    sli_array_data valid_arrays;

    void *inputs, *targets; /* one micro-batch */
    size_t input_bytes, target_bytes;
    int32_t *lengths; /* NULL without masking */
    char *states;     /* [accumulate] blobs between the micro-batches' turns, and one spare for evaluation */
    size_t state_bytes;

    sli_position at;
    bool best_is_here; /* the parameters that are being saved are the best so far, and no model file has them */
    bool have_good;    /* last_path was written, or resumed from, */
    int64_t good_step; /* after so many steps */
    /* Of this call of fit. */
    sl_answer (*progress)(void *context, const sl_progress *progress);
    void *context;
    bool stop; /* asked to */
    double started, train_seconds, saved_at;
    int64_t session_steps, session_tokens;
    sli_queued_step
        queued[SLI_TRAINER_DEPTH]; /* steps under way, the oldest first: at.step and at.block do not count them */
    int queued_count;
    double step_began;
    sl_result last; /* of the last step: its sums */
    double last_rate;
    sl_result valid; /* of the last evaluation */
    bool have_last, have_valid;
};

sl_status sli_trainer_new(const sl_model *model, const sl_training *training, const sl_dataset *train,
                          const sl_dataset *valid, const char *path, const char *const *metadata, sl_trainer **trainer);
void sli_trainer_free(sl_trainer *trainer);
/* Another plan in place of this one, with these choices and no tuning; if there is none with them, as at first. Parameters, slots
 * and states are as new; of the trainer nothing else changes. */
sl_status sli_trainer_plan_again(sl_trainer *trainer, const char *choices);
sl_status sli_trainer_init_from(sl_trainer *trainer, const char *path);
sl_status sli_trainer_resume(sl_trainer *trainer);
sl_status sli_trainer_fit(sl_trainer *trainer, sl_answer (*progress)(void *context, const sl_progress *progress),
                          void *context);

/* evaluate.c: sums over the validation data; carried states are as before afterwards. */
sl_status sli_trainer_evaluate(sl_trainer *trainer, sl_result *result);
/* Token stream as one row, `steps` a call; inputs and targets have room for them. Sums are added to *result. */
sl_status sli_evaluate_stream(sl_run *run, const int32_t *tokens, size_t count, int steps, sl_result *result);
sl_status sli_evaluate_tokens(const sl_model *model, const sl_file *file, const int32_t *tokens, size_t count,
                              const sl_plan_options *options, sl_result *result);
sl_status sli_evaluate_arrays(const sl_file *file, const sl_dataset *data, const sl_plan_options *options,
                              sl_result *result);
sl_status sli_file_training(const sl_file *file, sl_training *training);
/* arrays.h needs of a model and loss. */
sl_status sli_trainer_array_needs(const sl_model *model, sl_loss loss, bool doubles, sli_array_needs *needs);
/* SL_ERR_USAGE where an array of the data, each of which may be NULL, has fields that contradict each other. */
sl_status sli_trainer_check_arrays(const sl_dataset *data);

/* checkpoint.c. The loss scaling of f16 training as members of a JSON object, and back; a document without them leaves
 * *scaling. */
void sli_checkpoint_write_scaling(sli_text *out, const sli_scaling *scaling);
void sli_checkpoint_read_scaling(const json_t *root, sli_scaling *scaling);
/* `resumable`: with optimizer slots and states. */
sl_status sli_checkpoint_save(sl_trainer *trainer, const char *path, bool resumable);
sl_status sli_checkpoint_load(sl_trainer *trainer, const char *path);

#endif
