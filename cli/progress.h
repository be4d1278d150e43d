/* Shows a training run: one rewritten line on a terminal, plain lines elsewhere, one JSON object a line in --log; and turns
 * Ctrl-C, or a reader that went away, into a stop that saves. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdio.h>
#include "sluice.h"

typedef struct progress_view {
    FILE *log;            /* NULL: no --log */
    const char *log_path; /* for messages */
    bool log_failed;
    bool terminal, perplexity; /* perplexity: the loss is a cross-entropy */
    const char *unit;          /* "chars", "words", "bytes", "tokens" */
    const char *out;           /* the model file: tells it from the resume point among the checkpoints */
    bool validates;            /* an evaluation follows every epoch */
    bool any_shown;
    double shown;                             /* seconds at the last line */
    int width;                                /* of the line on the terminal that has no line end yet */
    bool announced;                           /* that it is about to stop */
    bool stopped;                             /* before its end: go on with --resume */
    sl_progress last;                         /* event and kernel are not kept */
    double valid_loss, best_loss, epoch_loss; /* epoch_loss: the mean of the epoch that ended at epoch_step */
    int64_t epoch_step;
    bool evaluated, wrote_out, wrote_last;
    int64_t events;
} progress_view;

bool progress_is_terminal(void);
/* Opens the log anew (step -1), or cuts it back to what happened up to the step from which training goes on and appends. Gives
 * an exit code. */
int progress_open(progress_view *view, const char *log_path, int64_t step);
/* The first line of the log: versions, machine, plan, and what resuming could not keep (NULL: nothing). */
void progress_start(progress_view *view, const sl_plan *plan, const char *command, double parameters, const char *note);
/* For sl_trainer_fit; context is the view. */
sl_answer progress_show(void *context, const sl_progress *progress);
/* Ends the line on the terminal and closes the log. Gives an exit code: 6 if the log could not be written. */
int progress_close(progress_view *view);

/* First SIGINT, SIGTERM or SIGHUP: progress_show answers SL_STOP_SAVING. Second: exit code 130 at once. */
void progress_catch_signals(void);
bool progress_interrupted(void);

#endif
