/* `sluice train --resume`: what the resume point remembers, and what must not be asked of it again in another way. */
#ifndef CLI_RESUME_H
#define CLI_RESUME_H

#include "train_options.h"

typedef struct resume_point {
    char *path;    /* MODEL.last, or MODEL where training had no validation; NULL: not resumed */
    sl_file *file; /* closed by resume_close_file */
    sl_training training;
    int64_t step; /* where it stands */
    int epoch;
} resume_point;

/* Opens the resume point of the model file `out`. Gives an exit code. */
int resume_open(resume_point *point, const char *out);
/* The file is not needed any more; path, training and position stay. */
void resume_close_file(resume_point *point);
void resume_free(resume_point *point);

/* The path of the validation data that it was trained with; NULL: none. Valid until resume_close_file. */
const char *resume_valid(const resume_point *point);
/* Is a given training option another than the one it was trained with? Names it and gives an exit code. `now`: the options with
 * those given now. */
int resume_check_training(const resume_point *point, const arguments *a, const sl_training *now);
/* The same for the model options of `train lm`. */
int resume_check_model(const resume_point *point, const model_options *options, const arguments *a);
/* Prints which options a description has otherwise than the training that goes on, whose count, but for those given now, and for defaults, which
 * a description that says nothing has as well; or nothing. */
void resume_tell_document(const resume_point *point, const arguments *a, const char *name, const sl_training *document);

#endif
