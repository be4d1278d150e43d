/* Fuzz target: any bytes as a vocabulary's JSON, and as a text to make one of. What is read is written, and what is
 * written reads to the same text; every token encodes to itself. */
#include "sluice.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_stable(sl_vocabulary *vocabulary) {
    const char *json = sl_vocabulary_to_json(vocabulary);
    sl_vocabulary *again;
    if (!json || sl_vocabulary_from_json(NULL, json, &again) != SL_OK) __builtin_trap();
    if (sl_vocabulary_size(again) != sl_vocabulary_size(vocabulary)) __builtin_trap();
    const char *same = sl_vocabulary_to_json(again);
    if (!same || strcmp(json, same) != 0) __builtin_trap();
    volatile unsigned sum = 0;
    for (int id = 0; id < sl_vocabulary_size(again); id++) {
        size_t bytes;
        const char *token = sl_vocabulary_token(again, id, &bytes);
        for (size_t i = 0; i < bytes; i++) sum += (unsigned char)token[i];
    }
    (void)sum;
    sl_vocabulary_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    sl_vocabulary *vocabulary;
    char *text = malloc(size + 1);
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = 0;
    if (sl_vocabulary_from_json(NULL, text, &vocabulary) == SL_OK) {
        check_stable(vocabulary);
        sl_vocabulary_free(vocabulary);
    }
    for (int level = SL_LEVEL_CHAR; level <= SL_LEVEL_BYTE; level++) {
        if (sl_vocabulary_new(NULL, (sl_level)level, (const char *)data, size, 0, &vocabulary) != SL_OK) continue;
        check_stable(vocabulary);
        int32_t *tokens;
        size_t count;
        if (sl_vocabulary_encode(vocabulary, (const char *)data, size, &tokens, &count) != SL_OK) __builtin_trap();
        sl_tokens_free(vocabulary, tokens, count);
        sl_vocabulary_free(vocabulary);
    }
    free(text);
    return 0;
}
