/* What every command prints the same way: errors, numbers for people. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <stddef.h>
#include "sluice.h"

/* "sluice: DETAIL" on stderr; gives the exit code of `status` (0 prints nothing). */
int report(sl_status status);
/* The same with "WHERE: " in front: the file or option that the library was not told; NULL: nowhere. */
int report_at(const char *where, sl_status status);
/* The same for a failure that the command itself found. */
int report_as(sl_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
int report_memory(void);

/* Writes out what is buffered, and remembers why where that fails. */
void flush_output(void);
/* A file's name as a word of a command that can be pasted into a shell: 'my model', ./-m. */
void print_path_word(const char *path);
/* Flushes stdout; a write that failed (full disk) is an error even where the command itself succeeded. A
 * reader that went away (`| head`) gives the exit code without a sentence. */
int finish_output(int code);
/* The errno of the first failed write to stdout, or 0. Long outputs stop then. */
int output_failed(void);

/* "note   SENTENCE" for each of the plan's notes (sl_plan_notes). */
void print_notes(const sl_plan *plan);

enum { BYTES_TEXT = 32 };
/* "512 bytes", "12.3 kB" (1 kB = 1024 bytes); gives `text`. */
const char *bytes_text(double bytes, char text[BYTES_TEXT]);
/* "1,234,567"; gives `text`. */
const char *count_text(long long value, char text[BYTES_TEXT]);
/* "45 s", "3 min 12 s", "2 h 05 min"; gives `text`. */
const char *seconds_text(double seconds, char text[BYTES_TEXT]);

#endif
