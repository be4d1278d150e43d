/* Errors and numbers as every command prints them. */
#include "output.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int write_errno; /* of the first failed write to stdout */

int report(sl_status status) {
    if (status == SL_OK) return 0;
    const char *detail = sl_error_detail();
    fprintf(stderr, "sluice: %s\n", detail[0] ? detail : sl_status_text(status));
    return sl_status_exit_code(status);
}

int report_at(const char *where, sl_status status) {
    if (status != SL_OK && where) fprintf(stderr, "sluice: %s: %s\n", where, sl_error_detail());
    return where ? sl_status_exit_code(status) : report(status);
}

int report_as(sl_status status, const char *format, ...) {
    va_list list;
    va_start(list, format);
    fputs("sluice: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    return sl_status_exit_code(status);
}

int report_memory(void) {
    return report_as(SL_ERR_OUT_OF_MEMORY, "out of memory; close other programs or use less text");
}

int output_failed(void) {
    if (ferror(stdout) && !write_errno) write_errno = errno ? errno : EIO;
    return write_errno;
}

void flush_output(void) {
    errno = 0;
    if (fflush(stdout) != 0 && !write_errno) write_errno = errno ? errno : EIO;
}

void print_path_word(const char *path) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-,:@%=";
    if (path[0] == '-') fputs("./", stdout);
    if (path[strspn(path, plain)] == 0) {
        fputs(path, stdout);
        return;
    }
    putchar('\'');
    for (const char *c = path; *c; c++)
        if (*c == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*c);
    putchar('\'');
}

int finish_output(int code) {
    flush_output();
    if (!output_failed()) return code;
    if (write_errno == EPIPE) return code ? code : sl_status_exit_code(SL_ERR_IO);
    int output = report_as(SL_ERR_IO, "cannot write to standard output: %s; free some space or write elsewhere",
                           strerror(write_errno));
    return code ? code : output;
}

const char *bytes_text(double bytes, char text[BYTES_TEXT]) {
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB"};
    int unit = 0;
    while (bytes >= 1024 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, BYTES_TEXT, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
    return text;
}

void print_notes(const sl_plan *plan) {
    for (const char *at = sl_plan_notes(plan); *at;) {
        const int length = (int)strcspn(at, "\n");
        printf("note   %.*s\n", length, at);
        at += length + (at[length] == '\n');
    }
}

const char *count_text(long long value, char text[BYTES_TEXT]) {
    char digits[BYTES_TEXT];
    int length = snprintf(digits, sizeof digits, "%lld", value < 0 ? -value : value), used = 0;
    if (value < 0) text[used++] = '-';
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = 0;
    return text;
}

const char *seconds_text(double seconds, char text[BYTES_TEXT]) {
    if (!(seconds >= 0) || seconds > 1e9)
        snprintf(text, BYTES_TEXT, "unknown");
    else if (seconds < 60)
        snprintf(text, BYTES_TEXT, "%.0f s", seconds);
    else if (seconds < 3600)
        snprintf(text, BYTES_TEXT, "%d min %02d s", (int)seconds / 60, (int)seconds % 60);
    else
        snprintf(text, BYTES_TEXT, "%d h %02d min", (int)(seconds / 3600), (int)(seconds / 60) % 60);
    return text;
}
