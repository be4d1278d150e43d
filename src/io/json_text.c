/* Small helpers around JSON: see json_text.h. */
#include "io/json_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Jansson's parser ends the process (assert) where some of its small allocations fail; most memory for a byte of text is
 * taken by "{}," in a list: about 75. So a process near its limit gets an error instead. */
static bool memory_suffices(size_t bytes) {
    enum { BYTES_A_BYTE = 96 };
    size_t most = 0;
    /* volatile: a compiler may leave out an allocation that nobody uses. */
    void *volatile probe = sli_multiply(bytes + 64, BYTES_A_BYTE, &most) ? malloc(most) : NULL;
    bool suffices = probe != NULL;
    free(probe);
    return suffices;
}

sl_status sli_json_load(const char *text, size_t bytes, const char *what, sl_status status_code, json_t **value) {
    json_error_t error;
    *value = NULL;
    /* A byte order mark, as editors of Windows write it, is no part of the text. */
    if (bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        text += 3;
        bytes -= 3;
    }
    if (!memory_suffices(bytes)) return sli_fail_memory(what, bytes);
    *value = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (*value) return SL_OK;
    if (json_error_code(&error) == json_error_out_of_memory) return sli_fail_memory(what, bytes);
    return sli_fail(status_code, "%s: not valid JSON, line %d column %d: %s", what, error.line, error.column,
                    error.text);
}

/* Length of the UTF-8 sequence at s (RFC 3629: no overlong forms, no surrogates, up to U+10FFFF), or 0. */
static size_t utf8_sequence(const unsigned char *s, size_t left) {
    if (s[0] < 0x80) return s[0] ? 1 : 0;
    size_t n = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if (s[0] < 0xC2 || s[0] > 0xF4 || n > left) return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F)) return 0;
    if ((s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F)) return 0;
    return n;
}

bool sli_utf8_valid(const char *string, size_t bytes) {
    const unsigned char *s = (const unsigned char *)string;
    for (size_t i = 0; i < bytes;) {
        size_t n = utf8_sequence(s + i, bytes - i);
        if (!n) return false;
        i += n;
    }
    return true;
}

bool sli_json_append_string(sli_text *text, const char *string) {
    size_t length = strlen(string);
    if (!sli_utf8_valid(string, length)) return false;
    sli_text_append(text, "\"", 1);
    size_t start = 0; /* of what is copied as it is */
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)string[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        sli_text_append(text, string + start, i - start);
        start = i + 1;
        if (c == '"' || c == '\\')
            sli_text_printf(text, "\\%c", c);
        else if (c == '\n')
            sli_text_append(text, "\\n", 2);
        else if (c == '\t')
            sli_text_append(text, "\\t", 2);
        else
            sli_text_printf(text, "\\u%04x", c);
    }
    sli_text_append(text, string + start, length - start);
    sli_text_append(text, "\"", 1);
    return true;
}

void sli_json_append_number(sli_text *text, double value) {
    char digits[40];
    if (!isfinite(value)) {
        text->infinite = true;
        sli_text_append(text, "null", 4);
        return;
    }
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value) break;
    }
    sli_with_point(digits);
    if (strcmp(digits, "-0") == 0) strcpy(digits, "-0.0"); /* "-0" is read as the whole number 0 */
    sli_text_append(text, digits, strlen(digits));
}

int sli_edit_distance(const char *a, const char *b) {
    enum { LONGEST = 63 };
    size_t n = strlen(a), m = strlen(b);
    if (n > LONGEST || m > LONGEST) return LONGEST;
    int row[LONGEST + 1]; /* row[j]: distance of the first i letters of a to the first j of b */
    for (size_t j = 0; j <= m; j++) row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            int gap = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = change < gap ? change : gap;
        }
    }
    return row[m];
}

void sli_nearest(const char *name, const char *candidate, const char **best, int *distance) {
    int d = sli_edit_distance(name, candidate);
    if (d < *distance && d < (int)strlen(name)) {
        *distance = d;
        *best = candidate;
    }
}

/* ---------------------------------------------------------------------------------------------- indented output -- */
void sli_json_open(sli_json_out *out, char bracket) {
    sli_text_append(out->text, &bracket, 1);
    out->depth++;
    out->first = true;
}

static void new_line(sli_json_out *out) {
    sli_text_append(out->text, "\n", 1);
    for (int i = 0; i < out->depth; i++) sli_text_append(out->text, "  ", 2);
}

void sli_json_close(sli_json_out *out, char bracket) {
    out->depth--;
    if (!out->first) new_line(out);
    sli_text_append(out->text, &bracket, 1);
    out->first = false;
}

void sli_json_item(sli_json_out *out) {
    if (!out->first) sli_text_append(out->text, ",", 1);
    new_line(out);
    out->first = false;
}

void sli_json_string(sli_json_out *out, const char *string) {
    if (!sli_json_append_string(out->text, string)) out->invalid = true;
}

void sli_json_key(sli_json_out *out, const char *key) {
    sli_json_item(out);
    sli_json_string(out, key);
    sli_text_append(out->text, ": ", 2);
}

void sli_json_key_string(sli_json_out *out, const char *key, const char *string) {
    sli_json_key(out, key);
    sli_json_string(out, string);
}
