/* Choosing kernels by timing (sl_plan_options.tune). Core obeys choices; here they are made, and remembered in a small file. */
#ifndef SLI_TUNE_H
#define SLI_TUNE_H

#include "core/plan.h"

/* As sli_plan_new, with choices for every recurrent problem of the plan that options->choices leaves open. What was timed, what
 * was remembered and what could not be done are notes of the plan. */
sl_status sli_tune_plan(const sl_model *model, const sl_plan_options *options, sl_plan **plan);

/* -------------------------------------------------------------------------------------------------------- tuned.c --
 * The file: lines "MACHINE<tab>PROBLEM<tab>KERNEL<tab>MICROSECONDS", the newest first. Other lines are skipped. */
typedef struct sli_tuned_time {
    const char *machine, *problem, *kernel;
    double seconds;
    struct sli_tuned_time *next;
} sli_tuned_time;

typedef struct sli_tuned {
    sli_arena arena;
    char *machine;         /* of the lines that are looked up and added */
    char *path;            /* NULL: there is no place for the file */
    sli_tuned_time *times; /* of the file */
    sli_tuned_time *added;
} sli_tuned;

/* Reads the file, if it is there. Only memory can fail. */
sl_status sli_tuned_open(const sl_allocator *allocator, const sli_caps *caps, const sli_device_ops *ops,
                         sli_tuned *tuned);
void sli_tuned_close(sli_tuned *tuned);
/* Negative: not known. */
double sli_tuned_seconds(const sli_tuned *tuned, const char *problem, const char *kernel);
sl_status sli_tuned_add(sli_tuned *tuned, const char *problem, const char *kernel, double seconds);
/* Writes what was added, beside what the file has by now; nothing if nothing was. SL_ERR_IO says why it could not. */
sl_status sli_tuned_save(sli_tuned *tuned);

#endif
