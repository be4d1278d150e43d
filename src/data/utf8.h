/* UTF-8: one code point at a time. */
#ifndef SLI_UTF8_H
#define SLI_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Length in bytes (1..4) of the valid code point that starts at text[0], of which `bytes` >= 1 may be read; 0 if it is not
 * valid UTF-8: a stray or missing continuation byte, an overlong form, a surrogate, beyond U+10FFFF. */
int sli_utf8_length(const char *text, size_t bytes);
/* Offset of the first byte that is not valid UTF-8; `bytes` if the whole text is valid. */
size_t sli_utf8_check(const char *text, size_t bytes);

#endif
