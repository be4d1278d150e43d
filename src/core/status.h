/* Failing with a sentence: the thread-local detail behind sl_error_detail(). */
#ifndef SLI_STATUS_H
#define SLI_STATUS_H

#include "sluice.h"

#define SLI_PRINTF(format_index, first_index) __attribute__((format(printf, format_index, first_index)))

/* Records the sentence (what, where, what to do) and returns `status`. */
sl_status sli_fail(sl_status status, const char *format, ...) SLI_PRINTF(2, 3);
/* Puts "prefix: " in front of the recorded sentence; returns `status`. */
sl_status sli_fail_context(sl_status status, const char *format, ...) SLI_PRINTF(2, 3);
void sli_clear_error(void);
/* "out of memory: N bytes for WHAT; ..." */
sl_status sli_fail_memory(const char *what, size_t bytes);

/* Return the status of a failed call. */
#define SLI_TRY(call)                                         \
    do {                                                      \
        sl_status sli_try_status_ = (call);                   \
        if (sli_try_status_ != SL_OK) return sli_try_status_; \
    } while (0)
/* Go to `label` with `status` set (a local variable of that name must exist). */
#define SLI_TRY_GOTO(label, call)        \
    do {                                 \
        status = (call);                 \
        if (status != SL_OK) goto label; \
    } while (0)
/* Return with a recorded sentence if `condition` holds. */
#define SLI_FAIL_IF(condition, status_code, ...)                  \
    do {                                                          \
        if (condition) return sli_fail(status_code, __VA_ARGS__); \
    } while (0)

#endif
