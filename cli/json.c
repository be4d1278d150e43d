/* A small JSON writer, and the check that a text is JSON. */
#include "json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MOST = 64 };

/* ------------------------------------------------------------------------------------------------------ strings -- */
/* Bytes of the UTF-8 character at `s`, 0 if it is none. */
static int character_bytes(const unsigned char *s) {
    int bytes = s[0] < 0x80                   ? 1
                : s[0] >= 0xC2 && s[0] < 0xE0 ? 2
                : s[0] >= 0xE0 && s[0] < 0xF0 ? 3
                : s[0] >= 0xF0 && s[0] < 0xF5 ? 4
                                              : 0;
    for (int i = 1; i < bytes; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    bool bad = (s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) || (s[0] == 0xF0 && s[1] < 0x90) ||
               (s[0] == 0xF4 && s[1] > 0x8F);
    return bad ? 0 : bytes;
}

static void quoted(FILE *file, const char *text) {
    fputc('"', file);
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        int bytes = character_bytes(s);
        if (*s == '"' || *s == '\\')
            fprintf(file, "\\%c", *s);
        else if (*s == '\n')
            fputs("\\n", file);
        else if (*s < 0x20)
            fprintf(file, "\\u%04x", *s);
        else if (bytes == 0)
            fputs("\\ufffd", file);
        else
            fwrite(s, 1, (size_t)bytes, file);
        s += bytes ? bytes : 1;
    }
    fputc('"', file);
}

/* ------------------------------------------------------------------------------------------------------- values -- */
static void before_value(json *out, const char *key) {
    if (out->inside) fputs(", ", out->file);
    out->inside = true;
    if (!key) return;
    quoted(out->file, key);
    fputs(": ", out->file);
}

void json_open(json *out, const char *key, char bracket) {
    before_value(out, key);
    fputc(bracket, out->file);
    out->inside = false;
}

void json_close(json *out, char bracket) {
    fputc(bracket, out->file);
    out->inside = true;
}

void json_str(json *out, const char *key, const char *value) {
    before_value(out, key);
    if (value)
        quoted(out->file, value);
    else
        fputs("null", out->file);
}

void json_number(json *out, const char *key, double value) {
    char text[40] = "null";
    before_value(out, key);
    for (int digits = 6; isfinite(value) && digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    fputs(text, out->file);
}

void json_int(json *out, const char *key, long long value) {
    before_value(out, key);
    fprintf(out->file, "%lld", value);
}

void json_bool(json *out, const char *key, bool value) {
    before_value(out, key);
    fputs(value ? "true" : "false", out->file);
}

void json_end(json *out) {
    fputc('\n', out->file);
    out->inside = false;
}

/* ----------------------------------------------------------------------------------------------- text from others -- */
static void skip_blanks(const char **at) {
    *at += strspn(*at, " \t\r\n");
}

static bool skip_string(const char **at) {
    const unsigned char *s = (const unsigned char *)*at + 1;
    while (*s && *s != '"') {
        int bytes = character_bytes(s);
        if (*s < 0x20 || bytes == 0) return false;
        if (*s == '\\') {
            const char *escape = (const char *)s + 1;
            bool code = *escape == 'u' && strspn(escape + 1, "0123456789abcdefABCDEF") >= 4;
            if (!code && (!*escape || !strchr("\"\\/bfnrt", *escape))) return false;
            bytes = code ? 6 : 2;
        }
        s += bytes;
    }
    *at = (const char *)s + 1;
    return *s == '"';
}

/* -12.5e+3, as JSON has it: neither 007 nor 0x1F nor 1. */
static bool skip_number(const char **at) {
    static const char digits[] = "0123456789";
    const char *start = *at, *s = start + (*start == '-');
    size_t whole = strspn(s, digits), part = 1, power = 1;
    bool good = whole > 0 && (*s != '0' || whole == 1);
    s += whole;
    if (*s == '.') {
        part = strspn(++s, digits);
        s += part;
    }
    if (*s == 'e' || *s == 'E') {
        s += 1 + (s[1] == '+' || s[1] == '-');
        power = strspn(s, digits);
        s += power;
    }
    *at = s;
    return good && part > 0 && power > 0 && isfinite(strtod(start, NULL));
}

static bool skip_scalar(const char **at) {
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++)
        if (strncmp(*at, words[i], strlen(words[i])) == 0) {
            *at += strlen(words[i]);
            return true;
        }
    return skip_number(at);
}

static bool skip_value(const char **at, int depth) {
    skip_blanks(at);
    if (**at == '"') return skip_string(at);
    if (**at != '{' && **at != '[') return skip_scalar(at);
    bool object = **at == '{';
    char closing = object ? '}' : ']';
    if (depth == DEPTH_MOST) return false;
    (*at)++;
    skip_blanks(at);
    if (**at == closing) {
        (*at)++;
        return true;
    }
    for (;;) {
        skip_blanks(at);
        if (object) {
            if (**at != '"' || !skip_string(at)) return false;
            skip_blanks(at);
            if (*(*at)++ != ':') return false;
        }
        if (!skip_value(at, depth + 1)) return false;
        skip_blanks(at);
        char next = *(*at)++;
        if (next == closing) return true;
        if (next != ',') return false;
    }
}

bool json_is_value(const char *text) {
    const char *end = text;
    if (!skip_value(&end, 0)) return false;
    skip_blanks(&end);
    return !*end;
}

void json_text(json *out, const char *key, const char *text) {
    if (!text || !json_is_value(text)) {
        json_str(out, key, text);
        return;
    }
    before_value(out, key);
    /* Line ends and the blanks after them can go: inside strings they are escaped. */
    for (const char *s = text; *s;) {
        size_t bytes = strcspn(s, "\n");
        fwrite(s, 1, bytes, out->file);
        s += bytes;
        skip_blanks(&s);
    }
}
