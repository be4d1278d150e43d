/* Small helpers around JSON: loading with a sentence, writing strings and numbers, and the nearest known name. */
#ifndef SLI_JSON_TEXT_H
#define SLI_JSON_TEXT_H

#include <jansson.h>
#include "core/memory.h"

/* Parses one value; duplicate keys are refused. On failure SL_ERR_INPUT or `status_code` with `what`, line and column. */
sl_status sli_json_load(const char *text, size_t bytes, const char *what, sl_status status_code, json_t **value);
/* Appends a quoted string; false (nothing appended) if it is not UTF-8. */
bool sli_json_append_string(sli_text *text, const char *string);
/* The shortest decimal that reads back to the same double. `value` must be finite. */
void sli_json_append_number(sli_text *text, double value);
/* Whether all `bytes` are UTF-8 without 0. */
bool sli_utf8_valid(const char *string, size_t bytes);
/* Number of single-character edits between two names; small numbers mean a typing error. */
int sli_edit_distance(const char *a, const char *b);
/* *best = `candidate` if it is nearer to `name` than *distance; start with *best = NULL, *distance = 3. */
void sli_nearest(const char *name, const char *candidate, const char **best, int *distance);

/* Indented output: two blanks a level, one key or item a line, empty objects as {}. */
typedef struct sli_json_out {
    sli_text *text;
    int depth;
    bool first;   /* nothing yet in the open object or array */
    bool invalid; /* a string was not UTF-8 */
} sli_json_out;
void sli_json_open(sli_json_out *out, char bracket); /* '{' or '[' */
void sli_json_close(sli_json_out *out, char bracket);
void sli_json_item(sli_json_out *out);                 /* comma, new line, indentation */
void sli_json_key(sli_json_out *out, const char *key); /* the same and "key": */
void sli_json_string(sli_json_out *out, const char *string);
void sli_json_key_string(sli_json_out *out, const char *key, const char *string);

#endif
