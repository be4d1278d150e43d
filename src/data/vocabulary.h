/* Vocabularies: text to tokens and back. See "text, vocabulary" in sluice.h for what counts as a token. */
#ifndef SLI_VOCABULARY_H
#define SLI_VOCABULARY_H

#include "core/memory.h"

sl_status sli_vocabulary_new(const sl_allocator *allocator, sl_level level, const char *text, size_t bytes, int limit,
                             sl_vocabulary **vocabulary);
sl_status sli_vocabulary_from_json(const sl_allocator *allocator, const char *json, sl_vocabulary **vocabulary);
const char *sli_vocabulary_to_json(sl_vocabulary *vocabulary);
void sli_vocabulary_free(sl_vocabulary *vocabulary);
int sli_vocabulary_size(const sl_vocabulary *vocabulary);
sl_level sli_vocabulary_level(const sl_vocabulary *vocabulary);
const char *sli_vocabulary_token(const sl_vocabulary *vocabulary, int id, size_t *bytes);
sl_status sli_vocabulary_encode(const sl_vocabulary *vocabulary, const char *text, size_t bytes, int32_t **tokens,
                                size_t *count);
void sli_tokens_free(const sl_vocabulary *vocabulary, int32_t *tokens, size_t count);

const char *sli_level_name(sl_level level); /* "char" */

#endif
