/* Text files: read whole, one after the other, into one block. */
#ifndef SLI_TEXT_H
#define SLI_TEXT_H

#include "core/memory.h"

/* Concatenates the files; "-" is standard input. *text is terminated by 0 and freed with sli_text_release. */
sl_status sli_text_read(const sl_allocator *allocator, const char *const *paths, int count, char **text, size_t *bytes);
void sli_text_release(char *text); /* NULL is allowed */

#endif
