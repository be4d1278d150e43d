/* Shows a training run: one rewritten line on a terminal, plain lines elsewhere, one JSON object a line in --log; and turns
 * Ctrl-C into a stop that saves. */
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
    double shown;              /* seconds at the last line */
    int width;                 /* of the line on the terminal that has no line end yet */
    bool stopped;              /* before its end: go on with --resume */
    sl_progress last;          /* event and kernel are not kept */
    double valid_loss, best_loss;
    bool evaluated;
} progress_view;

bool progress_is_terminal(void);
/* Opens the log: appends on resume, else starts anew. Gives an exit code. */
int progress_open(progress_view *view, const char *log_path, bool append);
/* The first line of the log: versions, machine, plan. */
void progress_start(progress_view *view, const sl_plan *plan, const char *command, double parameters);
/* For sl_trainer_fit; context is the view. */
sl_answer progress_show(void *context, const sl_progress *progress);
/* Ends the line on the terminal and closes the log. Gives an exit code: 6 if the log could not be written. */
int progress_close(progress_view *view);

/* First SIGINT or SIGTERM: progress_show answers SL_STOP_SAVING. Second: exit code 130 at once. */
void progress_catch_signals(void);
bool progress_interrupted(void);

#endif
