/* Training options: defaults, checks, their JSON, learning-rate schedules. */
#ifndef SLI_TRAINING_H
#define SLI_TRAINING_H

#include <jansson.h>
#include "core/memory.h"

/* *out = `training` with every default filled in, checked; SL_ERR_INPUT names the option. `tokens`: a token stream. */
sl_status sli_training_resolve(const sl_training *training, bool tokens, sl_training *out);

/* SL_ERR_USAGE where an enum, or the task, is none of those that have a name: a file would say "?". */
sl_status sli_training_check_names(const sl_training *training);
/* The objects "text" and "training" of the document's key "sluice". */
sl_status sli_training_read(const json_t *sluice, sl_training *training);
/* Appends {"task": ..., "text": {...}, "training": {...}}, every line but the first indented by `indent` blanks. */
void sli_training_write(sli_text *out, const sl_training *training, const char *task, int indent);

sl_status sli_training_from_json(const char *text, size_t bytes, sl_training *training);
sl_status sli_training_to_json(sl_model *model, const sl_training *training, const char *task, const char **text);
sl_status sli_preset(const sl_allocator *allocator, const char *name, int vocabulary, sl_model **model,
                     sl_training *training);

/* Where training stands, for the schedule. */
typedef struct sli_schedule_point {
    int64_t step, total_steps; /* steps done before this one; steps of the whole training */
    int epoch;                 /* from 0 */
    int plateaus;              /* epochs that did not improve the validation loss */
} sli_schedule_point;
double sli_schedule_rate(const sl_schedule *schedule, double learning_rate, const sli_schedule_point *point);

#endif
