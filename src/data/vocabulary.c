/* Vocabularies of characters, words and bytes: counting, encoding, decoding, JSON. */
#include "data/vocabulary.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/utf8.h"

/* What stands for everything that is not in the vocabulary. */
static const char UNKNOWN_WORD[] = "<unk>", UNKNOWN_CHARACTER[] = "\xEF\xBF\xBD"; /* U+FFFD */
static const char LINE_END[] = "<eos>";

typedef struct entry {
    const char *text; /* not terminated; in the counted text, later in the vocabulary's own pool */
    size_t bytes;
    uint64_t count;
    int first; /* order of first appearance */
} entry;

/* Open addressing, linear probing; at most half full. A slot holds entry + 1, 0 is free. */
typedef struct table {
    sl_allocator allocator;
    entry *entries;
    int count, capacity;
    int32_t *slots;
    size_t slot_count; /* a power of two */
} table;

struct sl_vocabulary {
    sl_allocator allocator;
    sl_level level;
    table table; /* entries in the order of their ids; empty at byte level */
    int unknown; /* id, or -1 */
    char *pool;  /* the bytes of every entry */
    size_t pool_bytes;
    sli_text json;
};

const char *sli_level_name(sl_level level) {
    static const char *const names[] = {"char", "word", "byte"};
    return names[level];
}

/* ------------------------------------------------------------------------------------------------------- table -- */
/* FNV-1a, 64 bits, folded: tokens are short. */
static size_t hash(const char *text, size_t bytes) {
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < bytes; i++) h = (h ^ (unsigned char)text[i]) * 0x100000001B3u;
    return (size_t)(h ^ (h >> 32));
}

static void table_free(table *t) {
    sli_free(&t->allocator, t->entries, (size_t)t->capacity * sizeof *t->entries);
    sli_free(&t->allocator, t->slots, t->slot_count * sizeof *t->slots);
    t->entries = NULL;
    t->slots = NULL;
    t->count = t->capacity = 0;
    t->slot_count = 0;
}

/* The slot of a token, or the free one where it belongs. */
static size_t table_slot(const table *t, const char *text, size_t bytes) {
    size_t slot = hash(text, bytes) & (t->slot_count - 1);
    while (t->slots[slot]) {
        const entry *e = &t->entries[t->slots[slot] - 1];
        if (e->bytes == bytes && memcmp(e->text, text, bytes) == 0) break;
        slot = (slot + 1) & (t->slot_count - 1);
    }
    return slot;
}

static int table_find(const table *t, const char *text, size_t bytes) {
    return t->slot_count ? t->slots[table_slot(t, text, bytes)] - 1 : -1;
}

static void table_fill_slots(table *t) {
    memset(t->slots, 0, t->slot_count * sizeof *t->slots);
    for (int i = 0; i < t->count; i++) t->slots[table_slot(t, t->entries[i].text, t->entries[i].bytes)] = i + 1;
}

/* Room for `capacity` entries, slots filled anew. */
static sl_status table_reserve(table *t, int capacity) {
    size_t slot_count = 64;
    while (slot_count < (size_t)capacity * 2) slot_count *= 2;
    entry *entries = sli_alloc(&t->allocator, (size_t)capacity * sizeof *entries);
    int32_t *slots = sli_alloc(&t->allocator, slot_count * sizeof *slots);
    if (!entries || !slots) {
        sli_free(&t->allocator, entries, (size_t)capacity * sizeof *entries);
        sli_free(&t->allocator, slots, slot_count * sizeof *slots);
        return sli_fail_memory("the vocabulary", (size_t)capacity * sizeof *entries + slot_count * sizeof *slots);
    }
    int count = t->count;
    if (count) memcpy(entries, t->entries, (size_t)count * sizeof *entries);
    table_free(t);
    t->entries = entries;
    t->count = count;
    t->capacity = capacity;
    t->slots = slots;
    t->slot_count = slot_count;
    table_fill_slots(t);
    return SL_OK;
}

/* Counts one more of a token; *index may be NULL. */
static sl_status table_add(table *t, const char *text, size_t bytes, int *index) {
    int at = table_find(t, text, bytes);
    if (at < 0) {
        SLI_FAIL_IF(t->capacity >= 1 << 29 && t->count == t->capacity, SL_ERR_INPUT,
                    "the text has more than %d different words: use level char or byte", t->capacity);
        if (t->count == t->capacity) SLI_TRY(table_reserve(t, t->capacity ? t->capacity * 2 : 256));
        at = t->count++;
        t->entries[at] = (entry){text, bytes, 0, at};
        t->slots[table_slot(t, text, bytes)] = at + 1;
    }
    t->entries[at].count++;
    if (index) *index = at;
    return SL_OK;
}

/* ---------------------------------------------------------------------------------------------------- scanning -- */
static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

/* The token at or after *at, which moves behind it; 0 bytes at the end. The text is valid UTF-8; a byte order mark that it begins with is none of it. */
static size_t next_token(sl_level level, const char *text, size_t bytes, size_t *at, const char **token) {
    static const char mark[] = "\xEF\xBB\xBF";
    if (*at == 0 && level != SL_LEVEL_BYTE && bytes >= sizeof mark - 1 && memcmp(text, mark, sizeof mark - 1) == 0)
        *at = sizeof mark - 1;
    if (level == SL_LEVEL_WORD)
        while (*at < bytes && is_space(text[*at])) ++*at;
    if (*at >= bytes) return 0;
    size_t start = *at, length = 1;
    *token = text + start;
    if (level == SL_LEVEL_CHAR) {
        length = (size_t)sli_utf8_length(text + start, bytes - start);
    } else if (level == SL_LEVEL_WORD && text[start] == '\n') {
        *at = start + 1;
        *token = LINE_END;
        return sizeof LINE_END - 1;
    } else if (level == SL_LEVEL_WORD) {
        while (start + length < bytes && !is_space(text[start + length]) && text[start + length] != '\n') length++;
    }
    *at = start + length;
    return length;
}

static sl_status check_utf8(sl_level level, const char *text, size_t bytes) {
    if (level == SL_LEVEL_BYTE) return SL_OK;
    size_t bad = sli_utf8_check(text, bytes);
    SLI_FAIL_IF(bad < bytes, SL_ERR_INPUT,
                "the text is not valid UTF-8 at byte %zu (0x%02X): convert it to UTF-8 (iconv), or use --level byte",
                bad, (unsigned)(unsigned char)text[bad]);
    return SL_OK;
}

/* ------------------------------------------------------------------------------------------------------ making -- */
static int by_frequency(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->count != y->count) return x->count < y->count ? 1 : -1;
    return x->first < y->first ? -1 : x->first > y->first;
}

static bool entry_is(const entry *e, const char *text) {
    return e->bytes == strlen(text) && memcmp(e->text, text, e->bytes) == 0;
}

static bool holds(const table *t, const char *text) {
    for (int i = 0; i < t->count; i++)
        if (entry_is(&t->entries[i], text)) return true;
    return false;
}

/* Cuts a sorted table to `limit` entries. What a vocabulary cannot do without stays even if it is rare: the line end and
 * the unknown token, which comes last if the text does not hold it. */
static void cut_to_limit(table *t, int limit, const char *unknown, bool words) {
    bool has_unknown = false, has_line_end = words && holds(t, LINE_END);
    int others = limit - 1 - has_line_end, kept = 0;
    for (int i = 0; i < t->count; i++) {
        bool is_unknown = entry_is(&t->entries[i], unknown);
        bool forced = is_unknown || (words && entry_is(&t->entries[i], LINE_END));
        if (!forced && others == 0) continue;
        if (!forced) others--;
        has_unknown |= is_unknown;
        t->entries[kept++] = t->entries[i];
    }
    if (!has_unknown) t->entries[kept++] = (entry){unknown, strlen(unknown), 0, t->count};
    t->count = kept;
}

/* Copies the bytes of the entries into the vocabulary's own pool. */
static sl_status own_entries(sl_vocabulary *v) {
    size_t total = 0, at = 0;
    for (int i = 0; i < v->table.count; i++) total += v->table.entries[i].bytes + 1;
    v->pool = sli_alloc(&v->allocator, total);
    if (!v->pool) return sli_fail_memory("the vocabulary", total);
    v->pool_bytes = total;
    for (int i = 0; i < v->table.count; i++) {
        entry *e = &v->table.entries[i];
        memcpy(v->pool + at, e->text, e->bytes);
        v->pool[at + e->bytes] = 0;
        e->text = v->pool + at;
        at += e->bytes + 1;
    }
    return SL_OK;
}

static const char *unknown_token(sl_level level) {
    return level == SL_LEVEL_WORD ? UNKNOWN_WORD : UNKNOWN_CHARACTER;
}

/* Entries are complete: gives them their final order, memory and index. */
static sl_status finish(sl_vocabulary *v) {
    SLI_TRY(own_entries(v));
    table_fill_slots(&v->table);
    const char *unknown = unknown_token(v->level);
    v->unknown = v->level == SL_LEVEL_BYTE ? -1 : table_find(&v->table, unknown, strlen(unknown));
    return SL_OK;
}

static sl_status new_empty(const sl_allocator *allocator, sl_level level, sl_vocabulary **vocabulary) {
    sl_allocator a = sli_allocator_or_default(allocator);
    sl_vocabulary *v = sli_alloc_zero(&a, sizeof *v);
    if (!v) return sli_fail_memory("a vocabulary", sizeof *v);
    v->allocator = v->table.allocator = a;
    v->level = level;
    v->unknown = -1;
    sli_text_init(&v->json, &a);
    *vocabulary = v;
    return SL_OK;
}

static sl_status count_text(sl_vocabulary *v, const char *text, size_t bytes, int limit) {
    size_t at = 0, length;
    const char *token;
    SLI_TRY(check_utf8(v->level, text, bytes));
    if (v->level == SL_LEVEL_BYTE) return SL_OK;
    while ((length = next_token(v->level, text, bytes, &at, &token)) > 0)
        SLI_TRY(table_add(&v->table, token, length, NULL));
    SLI_FAIL_IF(v->table.count == 0, SL_ERR_INPUT, "the text holds no %s: it is empty%s",
                v->level == SL_LEVEL_WORD ? "word" : "character", bytes ? " but for blanks" : "");
    qsort(v->table.entries, (size_t)v->table.count, sizeof *v->table.entries, by_frequency);
    /* Words that the text does not hold will come; a character is far more often a mistake. */
    bool words = v->level == SL_LEVEL_WORD;
    bool add_unknown = words && !holds(&v->table, UNKNOWN_WORD);
    if (limit > 0 && v->table.count + add_unknown > limit) {
        cut_to_limit(&v->table, limit, unknown_token(v->level), words);
    } else if (add_unknown) {
        if (v->table.count == v->table.capacity) SLI_TRY(table_reserve(&v->table, v->table.count + 1));
        v->table.entries[v->table.count] = (entry){UNKNOWN_WORD, sizeof UNKNOWN_WORD - 1, 0, v->table.count};
        v->table.count++;
    }
    return finish(v);
}

sl_status sli_vocabulary_new(const sl_allocator *allocator, sl_level level, const char *text, size_t bytes, int limit,
                             sl_vocabulary **vocabulary) {
    SLI_FAIL_IF(limit < 0 || limit == 1 || limit == 2, SL_ERR_INPUT,
                "a vocabulary of %d tokens is too small: give at least 3, or 0 to keep all", limit);
    SLI_FAIL_IF(level == SL_LEVEL_BYTE && limit > 0 && limit != 256, SL_ERR_INPUT,
                "a byte vocabulary always has 256 tokens: a limit of %d cannot be kept; leave it out", limit);
    sl_vocabulary *v = NULL;
    SLI_TRY(new_empty(allocator, level, &v));
    sl_status status = count_text(v, text, bytes, limit);
    if (status != SL_OK) {
        sli_vocabulary_free(v);
        return status;
    }
    *vocabulary = v;
    return SL_OK;
}

void sli_vocabulary_free(sl_vocabulary *vocabulary) {
    if (!vocabulary) return;
    sl_allocator a = vocabulary->allocator;
    table_free(&vocabulary->table);
    sli_free(&a, vocabulary->pool, vocabulary->pool_bytes);
    sli_text_free(&vocabulary->json);
    sli_free(&a, vocabulary, sizeof *vocabulary);
}

/* -------------------------------------------------------------------------------------------------------- JSON --
 * {"level": "word", "tokens": ["the", "<eos>", ...]}, in the order of the ids; no tokens at byte level. */
static sl_status token_from_json(sl_vocabulary *v, const json_t *item, int id) {
    SLI_FAIL_IF(!json_is_string(item), SL_ERR_INPUT, "vocabulary: token %d is not a string", id);
    const char *text = json_string_value(item);
    size_t bytes = json_string_length(item);
    SLI_FAIL_IF(bytes == 0, SL_ERR_INPUT, "vocabulary: token %d is empty", id);
    SLI_FAIL_IF(v->level == SL_LEVEL_CHAR && sli_utf8_length(text, bytes) != (int)bytes, SL_ERR_INPUT,
                "vocabulary: token %d is not one character, as level char needs", id);
    int index = -1;
    SLI_TRY(table_add(&v->table, text, bytes, &index));
    SLI_FAIL_IF(index != id, SL_ERR_INPUT, "vocabulary: tokens %d and %d are the same", index, id);
    return SL_OK;
}

static sl_status level_from_json(const json_t *root, sl_level *level) {
    const json_t *item = json_object_get(root, "level");
    const char *name = json_string_value(item);
    for (int i = 0; name && i <= SL_LEVEL_BYTE; i++)
        if (strcmp(name, sli_level_name((sl_level)i)) == 0) {
            *level = (sl_level)i;
            return SL_OK;
        }
    return sli_fail(SL_ERR_INPUT, "vocabulary: \"level\" must be \"char\", \"word\" or \"byte\"");
}

static sl_status from_json(const sl_allocator *allocator, const json_t *root, sl_vocabulary **vocabulary) {
    SLI_FAIL_IF(!json_is_object(root), SL_ERR_INPUT, "vocabulary: not a JSON object");
    sl_level level = SL_LEVEL_CHAR;
    SLI_TRY(level_from_json(root, &level));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)root, key, value) {
        SLI_FAIL_IF(strcmp(key, "level") != 0 && strcmp(key, "tokens") != 0, SL_ERR_UNKNOWN,
                    "vocabulary: unknown key \"%.60s\"", key);
    }
    const json_t *tokens = json_object_get(root, "tokens");
    size_t count = json_array_size(tokens);
    SLI_FAIL_IF(level == SL_LEVEL_BYTE && tokens, SL_ERR_INPUT, "vocabulary: level byte takes no \"tokens\"");
    SLI_FAIL_IF(level != SL_LEVEL_BYTE && count == 0, SL_ERR_INPUT, "vocabulary: \"tokens\" must be a list of strings");
    SLI_TRY(new_empty(allocator, level, vocabulary));
    if (level == SL_LEVEL_BYTE) return SL_OK;
    for (size_t i = 0; i < count; i++) SLI_TRY(token_from_json(*vocabulary, json_array_get(tokens, i), (int)i));
    return finish(*vocabulary);
}

sl_status sli_vocabulary_from_json(const sl_allocator *allocator, const char *json, sl_vocabulary **vocabulary) {
    json_error_t error;
    json_t *root = json_loads(json, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
    if (!root && json_error_code(&error) == json_error_out_of_memory) return sli_fail_memory("the vocabulary", 0);
    SLI_FAIL_IF(!root, SL_ERR_INPUT, "vocabulary: not valid JSON at line %d: %s", error.line, error.text);
    sl_vocabulary *v = NULL;
    sl_status status = from_json(allocator, root, &v);
    json_decref(root);
    if (status != SL_OK) {
        sli_vocabulary_free(v);
        return status;
    }
    *vocabulary = v;
    return SL_OK;
}

/* A JSON string; the bytes are valid UTF-8, so that only what JSON cannot hold is escaped. */
static void append_string(sli_text *out, const char *text, size_t bytes) {
    sli_text_append(out, "\"", 1);
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            sli_text_printf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7F)
            sli_text_printf(out, "\\u%04X", (unsigned)c);
        else
            sli_text_append(out, text + i, 1);
    }
    sli_text_append(out, "\"", 1);
}

const char *sli_vocabulary_to_json(sl_vocabulary *vocabulary) {
    sli_text *out = &vocabulary->json;
    if (out->failed || !out->data) {
        sli_text_free(out);
        sli_text_init(out, &vocabulary->allocator);
        sli_text_printf(out, "{\"level\":\"%s\"", sli_level_name(vocabulary->level));
        for (int i = 0; i < vocabulary->table.count; i++) {
            sli_text_printf(out, i ? "," : ",\"tokens\":[");
            append_string(out, vocabulary->table.entries[i].text, vocabulary->table.entries[i].bytes);
        }
        sli_text_printf(out, vocabulary->table.count ? "]}" : "}");
    }
    if (out->failed) sli_fail_memory("the vocabulary's JSON", out->length);
    return out->failed ? NULL : out->data;
}

/* --------------------------------------------------------------------------------------------- encode, decode -- */
int sli_vocabulary_size(const sl_vocabulary *vocabulary) {
    return vocabulary->level == SL_LEVEL_BYTE ? 256 : vocabulary->table.count;
}

sl_level sli_vocabulary_level(const sl_vocabulary *vocabulary) {
    return vocabulary->level;
}

const char *sli_vocabulary_token(const sl_vocabulary *vocabulary, int id, size_t *bytes) {
    /* Every byte, so that a token of the byte level can be pointed at. */
    static const unsigned char every_byte[256] = {
#define FOUR(n) n, n + 1, n + 2, n + 3
#define SIXTEEN(n) FOUR(n), FOUR(n + 4), FOUR(n + 8), FOUR(n + 12)
#define SIXTY_FOUR(n) SIXTEEN(n), SIXTEEN(n + 16), SIXTEEN(n + 32), SIXTEEN(n + 48)
        SIXTY_FOUR(0), SIXTY_FOUR(64), SIXTY_FOUR(128), SIXTY_FOUR(192)};
    *bytes = 0;
    if (id < 0 || id >= sli_vocabulary_size(vocabulary)) return NULL;
    *bytes = 1;
    if (vocabulary->level == SL_LEVEL_BYTE) return (const char *)&every_byte[id];
    const entry *e = &vocabulary->table.entries[id];
    if (vocabulary->level == SL_LEVEL_WORD && entry_is(e, LINE_END)) return "\n";
    *bytes = e->bytes;
    return e->text;
}

/* The character as it looks, or "U+000D" where it cannot be seen: controls, a byte order mark, blanks of no width. */
static const char *character_text(const char *token, size_t length, char *text, size_t capacity) {
    const unsigned char *c = (const unsigned char *)token;
    static const unsigned char masks[] = {0x7F, 0x1F, 0x0F, 0x07};
    unsigned int code = c[0] & masks[length - 1];
    for (size_t i = 1; i < length; i++) code = code << 6 | (c[i] & 0x3F);
    const bool unseen = code < 0x20 || (code >= 0x7F && code <= 0xA0) || code == 0xAD || code == 0xFEFF ||
                        (code >= 0x2000 && code <= 0x200F) || (code >= 0x2028 && code <= 0x202F);
    if (unseen)
        snprintf(text, capacity, "U+%04X", code);
    else
        snprintf(text, capacity, "\"%.*s\"", (int)length, token);
    return text;
}

static sl_status unknown_failure(const sl_vocabulary *v, const char *token, size_t length, size_t offset) {
    if (v->level == SL_LEVEL_WORD)
        return sli_fail(SL_ERR_INPUT,
                        "the word \"%.*s\" at byte %zu is not in the vocabulary, and it has no <unk>: remove the "
                        "word, or add the token <unk> to the vocabulary and train anew",
                        (int)(length < 40 ? length : 40), token, offset);
    char text[16];
    return sli_fail(SL_ERR_INPUT,
                    "the character %s at byte %zu is not in the model's vocabulary: remove it, or train with "
                    "--level byte, which knows every byte",
                    character_text(token, length, text, sizeof text), offset);
}

sl_status sli_vocabulary_encode(const sl_vocabulary *vocabulary, const char *text, size_t bytes, int32_t **tokens,
                                size_t *count) {
    sl_level level = vocabulary->level;
    const char *token;
    size_t at = 0, total = 0, length;
    SLI_TRY(check_utf8(level, text, bytes));
    while (next_token(level, text, bytes, &at, &token) > 0) total++;
    *count = 0;
    *tokens = NULL;
    if (total == 0) return SL_OK;
    int32_t *out = total > SIZE_MAX / sizeof *out ? NULL : sli_alloc(&vocabulary->allocator, total * sizeof *out);
    if (!out) return sli_fail_memory("the tokens of the text", total * sizeof *out);
    at = 0;
    for (size_t i = 0; (length = next_token(level, text, bytes, &at, &token)) > 0; i++) {
        int id = level == SL_LEVEL_BYTE ? (unsigned char)token[0] : table_find(&vocabulary->table, token, length);
        if (id < 0) id = vocabulary->unknown;
        if (id < 0) {
            sli_free(&vocabulary->allocator, out, total * sizeof *out);
            return unknown_failure(vocabulary, token, length, at - (token == LINE_END ? 1 : length));
        }
        out[i] = id;
    }
    *tokens = out;
    *count = total;
    return SL_OK;
}

void sli_tokens_free(const sl_vocabulary *vocabulary, int32_t *tokens, size_t count) {
    sli_free(&vocabulary->allocator, tokens, count * sizeof *tokens);
}
