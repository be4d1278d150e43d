/* Findings of a proof: one line each, counted, and the first failure kept for the error's detail. */
#ifndef SLI_REPORT_H
#define SLI_REPORT_H

#include "core/status.h"

typedef struct sli_report {
    void (*line)(void *context, const char *text);             /* NULL: nobody listens */
    void (*finding)(void *context, const sl_finding *finding); /* likewise */
    void *context;
    int findings, failures;
    uint64_t digest; /* of the results that the next finding is about; goes into it, and is 0 again */
    char first[256]; /* "KERNEL: WHAT: error E, tolerance T" */
} sli_report;

/* A finding: fails unless error <= tolerance (a NaN fails). */
void sli_report_add(sli_report *report, const char *kernel, double error, double tolerance, const char *format, ...)
    SLI_PRINTF(5, 6);
/* A line that is no finding. */
void sli_report_note(sli_report *report, const char *kernel, const char *format, ...) SLI_PRINTF(3, 4);

#endif
