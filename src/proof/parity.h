/* Parity: results of two trials against each other, within a tolerance or to the bit. */
#ifndef SLI_PARITY_H
#define SLI_PARITY_H

#include "proof/report.h"
#include "proof/subject.h"
#include "proof/tolerance.h"

/* rms(value - reference) / rms(reference) of every part. `other`: NULL, or a reference as good as that one: where the two differ by
 * more than the tolerance, so may results. `call` ("training", "inference of b2 t3") goes into the lines. */
void sli_compare(const sli_results *results, const sli_results *reference, const sli_results *other,
                 sli_tolerance tolerance, const char *kernel, const char *call, sli_report *report);
/* Of the results of two kernels, which may err by a tolerance each: the largest difference as a multiple of both. `first`: the first
 * that is above 1, or "". */
double sli_apart(const sli_results *results, const sli_results *others, sli_tolerance one, sli_tolerance other,
                 char first[256]);
/* Equal to the bit; `what` says what was changed. */
void sli_compare_bits(const sli_results *results, const sli_results *reference, const char *kernel, const char *what,
                      sli_report *report);
/* A kernel against the reference: inference, training, a smaller call, three updates if `updates`; and against itself: again
 * in a poisoned run, over two threads, recomputed in segments. `options` are those of the plan, threads and limit apart. */
sl_status sli_check_parity(sli_subject *subject, const sl_plan_options *options, const char *kernel, bool updates,
                           sli_report *report);

#endif
