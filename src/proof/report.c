/* Findings of a proof as lines of text. */
#include "proof/report.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

void sli_report_add(sli_report *report, const char *kernel, double error, double tolerance, const char *format, ...) {
    char what[160], text[320];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    bool fine = error <= tolerance;
    report->findings++;
    if (!fine && report->failures++ == 0)
        snprintf(report->first, sizeof report->first, "%s: %s: error %.3g, tolerance %.3g", kernel, what, error,
                 tolerance);
    snprintf(text, sizeof text, "%-10s %-50s error %9.2e  tolerance %8.1e  %s", kernel, what, error, tolerance,
             fine ? "ok" : "FAIL");
    if (report->line) report->line(report->context, text);
    sl_finding finding = {.kernel = kernel,
                          .what = what,
                          .error = error,
                          .tolerance = tolerance,
                          .passed = fine,
                          .digest = report->digest};
    report->digest = 0;
    if (report->finding) report->finding(report->context, &finding);
}

void sli_report_note(sli_report *report, const char *kernel, const char *format, ...) {
    char what[400], text[460];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    snprintf(text, sizeof text, "%-10s %s", kernel, what);
    if (report->line) report->line(report->context, text);
    sl_finding note = {.kernel = kernel, .what = "note", .passed = 1, .note = what};
    if (report->finding) report->finding(report->context, &note);
}
