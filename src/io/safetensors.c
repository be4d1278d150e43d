/* Reading safetensors: see safetensors.h. The writer is in safetensors_write.c. */
#include "io/safetensors.h"

#include <stdlib.h>
#include <string.h>
#include "io/json_text.h"

static const struct {
    const char *name;
    size_t bytes;
} DTYPES[] = {{"F32", 4},     {"F64", 8},     {"I32", 4}, {"I64", 8}, {"U8", 1},  {"BF16", 2}, {"F16", 2}, {"BOOL", 1},
              {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I8", 1},  {"I16", 2}, {"U16", 2}, {"U32", 4},  {"U64", 8}};

static int dtype_index(const char *dtype) {
    for (int i = 0; i < (int)(sizeof DTYPES / sizeof *DTYPES); i++)
        if (!strcmp(DTYPES[i].name, dtype)) return i;
    return -1;
}

size_t sli_tensor_dtype_bytes(const char *dtype) {
    int i = dtype_index(dtype);
    return i < 0 ? 0 : DTYPES[i].bytes;
}

const char *sli_tensor_dtype_name(sl_array_type type) {
    switch (type) {
    case SL_ARRAY_F32:
        return "F32";
    case SL_ARRAY_F64:
        return "F64";
    case SL_ARRAY_I32:
        return "I32";
    case SL_ARRAY_I64:
        return "I64";
    case SL_ARRAY_U8:
        return "U8";
    case SL_ARRAY_BOOL:
        return "BOOL";
    }
    return "";
}

bool sli_tensor_elements(const int64_t *shape, int rank, size_t *out) {
    size_t elements = 1;
    for (int i = 0; i < rank; i++)
        if (shape[i] < 0 || !sli_multiply(elements, (size_t)shape[i], &elements)) return false;
    *out = elements;
    return true;
}

/* What the parsing functions share. */
typedef struct reader {
    const char *path;
    const uint8_t *data; /* after the header */
    size_t data_bytes;
    sli_safetensors *file;
} reader;

#define BAD(r, ...) return damaged(r, __VA_ARGS__)
static sl_status damaged(const reader *r, const char *format, ...) SLI_PRINTF(2, 3);
static sl_status damaged(const reader *r, const char *format, ...) {
    char text[384];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return sli_fail(SL_ERR_FILE, "%s: damaged safetensors file: %s; restore it from a copy or write it again", r->path,
                    text);
}

static sl_status read_metadata(const reader *r, json_t *object) {
    if (!json_is_object(object)) BAD(r, "__metadata__ is not an object");
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        if (!json_is_string(value)) BAD(r, "__metadata__ \"%.60s\" is not a string", key);
        sli_metadata *entry = sli_arena_push(&r->file->arena, &r->file->metadata, &r->file->metadata_count,
                                             &r->file->metadata_capacity, sizeof *entry);
        if (!entry) return sli_fail_memory("metadata", sizeof *entry);
        entry->key = sli_arena_string(&r->file->arena, key);
        entry->value = sli_arena_string(&r->file->arena, json_string_value(value));
        if (!entry->key || !entry->value) return sli_fail_memory("metadata", json_string_length(value));
    }
    return SL_OK;
}

static sl_status read_shape(const reader *r, json_t *array, sl_tensor_info *tensor) {
    if (!json_is_array(array)) BAD(r, "tensor \"%.60s\" has no shape", tensor->name);
    if (json_array_size(array) > SLI_TENSOR_MAX_RANK)
        BAD(r, "tensor \"%.60s\" has %zu dimensions, more than %d", tensor->name, json_array_size(array),
            SLI_TENSOR_MAX_RANK);
    size_t i;
    json_t *size;
    json_array_foreach(array, i, size) {
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            BAD(r, "dimension %zu of tensor \"%.60s\" is not a size", i, tensor->name);
        tensor->shape[i] = json_integer_value(size);
    }
    tensor->rank = (int)json_array_size(array);
    return SL_OK;
}

static sl_status read_offsets(const reader *r, json_t *array, sl_tensor_info *tensor) {
    json_t *begin = json_array_get(array, 0), *end = json_array_get(array, 1);
    if (json_array_size(array) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        BAD(r, "tensor \"%.60s\" has no data_offsets [begin, end]", tensor->name);
    json_int_t from = json_integer_value(begin), to = json_integer_value(end);
    if (from < 0 || to < from || (uint64_t)to > r->data_bytes)
        BAD(r, "tensor \"%.60s\" claims bytes %lld to %lld of %zu", tensor->name, (long long)from, (long long)to,
            r->data_bytes);
    tensor->data = r->data + from;
    tensor->bytes = (size_t)(to - from);
    return SL_OK;
}

static sl_status read_tensor(const reader *r, const char *name, json_t *object) {
    sli_safetensors *file = r->file;
    if (!json_is_object(object)) BAD(r, "entry \"%.60s\" is not an object", name);
    sl_tensor_info *tensor =
        sli_arena_push(&file->arena, &file->tensors, &file->tensor_count, &file->tensor_capacity, sizeof *tensor);
    if (!tensor || !(tensor->name = sli_arena_string(&file->arena, name)))
        return sli_fail_memory("table of tensors", sizeof *tensor);
    json_t *dtype = json_object_get(object, "dtype");
    if (!json_is_string(dtype)) BAD(r, "tensor \"%.60s\" has no dtype", name);
    const int type = dtype_index(json_string_value(dtype));
    SLI_FAIL_IF(type < 0, SL_ERR_FILE,
                "%s: tensor \"%.60s\" has the dtype \"%.20s\", which is none of those that can be read (F32, F16, "
                "BF16, F64, whole numbers, BOOL, F8_E4M3, F8_E5M2); convert it first",
                r->path, name, json_string_value(dtype));
    tensor->dtype = DTYPES[type].name;
    SLI_TRY(read_shape(r, json_object_get(object, "shape"), tensor));
    SLI_TRY(read_offsets(r, json_object_get(object, "data_offsets"), tensor));
    if (json_object_size(object) != 3) BAD(r, "tensor \"%.60s\" has keys that the format does not know", name);
    size_t elements, bytes;
    if (!sli_tensor_elements(tensor->shape, tensor->rank, &elements) ||
        !sli_multiply(elements, DTYPES[type].bytes, &bytes))
        BAD(r, "the shape of tensor \"%.60s\" is too large", name);
    if (bytes != tensor->bytes) BAD(r, "tensor \"%.60s\" needs %zu bytes and has %zu", name, bytes, tensor->bytes);
    return SL_OK;
}

/* By place; empty tensors before the one that starts at the same byte, then by the order of the header. */
static int by_place(const void *a, const void *b) {
    const sl_tensor_info *x = a, *y = b;
    if (x->data != y->data) return (uintptr_t)x->data < (uintptr_t)y->data ? -1 : 1;
    if ((x->bytes == 0) != (y->bytes == 0)) return x->bytes == 0 ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Every byte belongs to exactly one tensor. */
static sl_status check_cover(const reader *r) {
    sli_safetensors *file = r->file;
    if (file->tensor_count) qsort(file->tensors, (size_t)file->tensor_count, sizeof *file->tensors, by_place);
    size_t end = 0;
    for (int i = 0; i < file->tensor_count; i++) {
        const sl_tensor_info *tensor = &file->tensors[i];
        size_t begin = (size_t)((const uint8_t *)tensor->data - r->data);
        if (begin < end) BAD(r, "tensor \"%.60s\" overlaps \"%.60s\"", tensor->name, file->tensors[i - 1].name);
        if (begin > end) BAD(r, "bytes %zu to %zu belong to no tensor", end, begin);
        end = begin + tensor->bytes;
    }
    if (end != r->data_bytes) BAD(r, "the last %zu bytes belong to no tensor", r->data_bytes - end);
    return SL_OK;
}

static sl_status read_header(const reader *r, json_t *header) {
    if (!json_is_object(header)) BAD(r, "the header is not a JSON object");
    const char *key;
    json_t *value;
    json_object_foreach(header, key, value) {
        if (!strcmp(key, "__metadata__"))
            SLI_TRY(read_metadata(r, value));
        else
            SLI_TRY(read_tensor(r, key, value));
    }
    return check_cover(r);
}

sl_status sli_safetensors_parse(const sl_allocator *allocator, const void *bytes, size_t size, const char *path,
                                sli_safetensors *file) {
    memset(file, 0, sizeof *file);
    const uint8_t *start = bytes;
    SLI_FAIL_IF(size < 10, SL_ERR_FILE, "%s: %zu bytes are too few for a model file (safetensors); is it truncated?",
                path, size);
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | start[i];
    SLI_FAIL_IF(
        memcmp(start, "SLUICESM", 8) == 0, SL_ERR_FILE,
        "%s: a stream model, which this program writes and does not read; give the model file that it was made of",
        path);
    /* A text or another binary format gives an absurd length: say so, rather than "truncated". */
    SLI_FAIL_IF(length > SLI_SAFETENSORS_HEADER_LIMIT || start[8] != '{', SL_ERR_FILE,
                "%s: not a model file (no safetensors header); give a file written by `sluice train`", path);
    SLI_FAIL_IF(length > size - 8, SL_ERR_FILE,
                "%s: truncated: the header has %llu bytes and the file only %zu; copy it again", path,
                (unsigned long long)length, size);
    char what[PATH_MAX + 32];
    snprintf(what, sizeof what, "%s: safetensors header", path);
    json_t *header;
    SLI_TRY(sli_json_load((const char *)start + 8, (size_t)length, what, SL_ERR_FILE, &header));
    sli_arena_init(&file->arena, allocator);
    reader r = {path, start + 8 + length, size - 8 - (size_t)length, file};
    sl_status status = read_header(&r, header);
    json_decref(header);
    if (status != SL_OK) sli_safetensors_free(file);
    return status;
}

void sli_safetensors_free(sli_safetensors *file) {
    sli_arena_free(&file->arena);
    file->tensors = NULL;
    file->metadata = NULL;
    file->tensor_count = file->metadata_count = 0;
}

int sli_safetensors_find(const sli_safetensors *file, const char *name) {
    for (int i = 0; i < file->tensor_count; i++)
        if (!strcmp(file->tensors[i].name, name)) return i;
    return -1;
}

const char *sli_safetensors_metadata(const sli_safetensors *file, const char *key) {
    for (int i = 0; i < file->metadata_count; i++)
        if (!strcmp(file->metadata[i].key, key)) return file->metadata[i].value;
    return NULL;
}
