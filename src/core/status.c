/* Status codes, their texts, and the thread-local sentence that says what went wrong. */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { DETAIL_BYTES = 1024 };

/* The only state outside an object: the sentence of this thread's last failure. */
static _Thread_local char error_detail[DETAIL_BYTES];

const char *sl_status_name(sl_status status) {
    switch (status) {
#define STATUS_NAME(name, number, exit_code, text) \
    case name:                                     \
        return #name;
        SL_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
    }
    return "unknown status";
}

const char *sl_status_text(sl_status status) {
    switch (status) {
#define STATUS_TEXT(name, number, exit_code, text) \
    case name:                                     \
        return text;
        SL_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}

int sl_status_exit_code(sl_status status) {
    switch (status) {
#define STATUS_EXIT(name, number, exit_code, text) \
    case name:                                     \
        return exit_code;
        SL_STATUS_LIST(STATUS_EXIT)
#undef STATUS_EXIT
    }
    return sl_status_exit_code(SL_ERR_INTERNAL);
}

const char *sl_error_detail(void) {
    return error_detail;
}

/* Marks a sentence that did not fit, so that nobody takes the rest for the whole. */
static void mark_cut(char *text, int length) {
    if (length >= DETAIL_BYTES) memcpy(text + DETAIL_BYTES - 4, "...", 4);
}

/* Names and bytes of files are in sentences as they are: a damaged one must not steer the terminal that shows them. */
static void keep(const char text[DETAIL_BYTES]) {
    size_t i = 0;
    for (; i < DETAIL_BYTES - 1 && text[i]; i++)
        error_detail[i] = text[i] == '\n' ? ' ' : (unsigned char)text[i] < ' ' || text[i] == 0x7f ? '?' : text[i];
    error_detail[i] = 0;
}

/* Formats into a buffer of its own first: an argument may be the old detail. */
sl_status sli_fail(sl_status status, const char *format, ...) {
    char text[DETAIL_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0) text[0] = 0;
    mark_cut(text, length);
    keep(text);
    return status;
}

sl_status sli_fail_context(sl_status status, const char *format, ...) {
    char text[DETAIL_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0) return status;
    if (length < DETAIL_BYTES) length += snprintf(text + length, sizeof text - (size_t)length, ": %s", error_detail);
    mark_cut(text, length);
    keep(text);
    return status;
}

void sli_clear_error(void) {
    error_detail[0] = 0;
}

sl_status sli_fail_memory(const char *what, size_t bytes) {
    return sli_fail(SL_ERR_OUT_OF_MEMORY,
                    "out of memory: %zu bytes for %s; free memory, or ask for less (a smaller batch, fewer steps)",
                    bytes, what);
}
