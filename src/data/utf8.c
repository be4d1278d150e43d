/* UTF-8 validation (RFC 3629, table 3-7 of the Unicode standard). */
#include "data/utf8.h"

int sli_utf8_length(const char *text, size_t bytes) {
    const unsigned char *s = (const unsigned char *)text;
    unsigned char lead = s[0], low = 0x80, high = 0xBF; /* range of the second byte */
    int length;
    if (lead < 0x80) return 1;
    if (lead >= 0xC2 && lead <= 0xDF) {
        length = 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        length = 3;
        if (lead == 0xE0) low = 0xA0;  /* shorter would be overlong */
        if (lead == 0xED) high = 0x9F; /* surrogates */
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        length = 4;
        if (lead == 0xF0) low = 0x90;
        if (lead == 0xF4) high = 0x8F;
    } else {
        return 0;
    }
    if ((size_t)length > bytes || s[1] < low || s[1] > high) return 0;
    for (int i = 2; i < length; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    return length;
}

size_t sli_utf8_check(const char *text, size_t bytes) {
    size_t at = 0;
    while (at < bytes) {
        int length = sli_utf8_length(text + at, bytes - at);
        if (length == 0) return at;
        at += (size_t)length;
    }
    return bytes;
}
