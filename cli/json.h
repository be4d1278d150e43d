/* Writes JSON on one line, for --json and --log. Keys are NULL inside arrays. */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <stdbool.h>
#include <stdio.h>

typedef struct json {
    FILE *file;
    bool inside; /* something was written in the open object or array: a comma comes first */
} json;

/* bracket: '{' or '['. */
void json_open(json *out, const char *key, char bracket);
void json_close(json *out, char bracket);
/* Not valid UTF-8 becomes U+FFFD; NULL becomes null. */
void json_str(json *out, const char *key, const char *value);
/* The shortest decimal that reads back to the same double; null where it is not finite. */
void json_number(json *out, const char *key, double value);
void json_int(json *out, const char *key, long long value);
void json_bool(json *out, const char *key, bool value);
/* Is the text one JSON value, with blanks around it at most? */
bool json_is_value(const char *text);
/* A JSON text as it is, on one line; as a string where it is no JSON. */
void json_text(json *out, const char *key, const char *text);
/* Ends the line. */
void json_end(json *out);

#endif
