/* Writing safetensors, atomically and tensor by tensor: see safetensors.h. */
#include <string.h>
#include "io/json_text.h"
#include "io/safetensors.h"

static const size_t WIDTHS[] = {8, 4, 2, 1};
enum { WIDTH_COUNT = sizeof WIDTHS / sizeof *WIDTHS };

static sl_status source_bytes(const sli_tensor_source *tensor, size_t *bytes) {
    size_t width = sli_tensor_dtype_bytes(tensor->dtype), elements;
    SLI_FAIL_IF(!width || tensor->rank < 0 || tensor->rank > SLI_TENSOR_MAX_RANK ||
                    !sli_tensor_elements(tensor->shape, tensor->rank, &elements) ||
                    !sli_multiply(elements, width, bytes),
                SL_ERR_USAGE, "tensor \"%s\" (%s) has a dtype, rank or shape that cannot be written", tensor->name,
                tensor->dtype);
    return SL_OK;
}

static sl_status append_metadata(sli_text *header, const char *const *metadata) {
    if (!metadata || !metadata[0]) return SL_OK;
    sli_text_printf(header, "\"__metadata__\":{");
    for (int i = 0; metadata[i]; i += 2) {
        for (int j = 0; j < i; j += 2)
            SLI_FAIL_IF(!strcmp(metadata[i], metadata[j]), SL_ERR_USAGE, "metadata \"%s\" is given twice", metadata[i]);
        SLI_FAIL_IF(!metadata[i + 1], SL_ERR_USAGE, "metadata \"%s\" has no value", metadata[i]);
        if (i) sli_text_append(header, ",", 1);
        bool written = sli_json_append_string(header, metadata[i]);
        sli_text_append(header, ":", 1);
        written = sli_json_append_string(header, metadata[i + 1]) && written;
        SLI_FAIL_IF(!written, SL_ERR_INPUT, "metadata \"%.60s\" is not valid UTF-8; encode it first", metadata[i]);
    }
    sli_text_append(header, "}", 1);
    return SL_OK;
}

static sl_status append_tensor(sli_text *header, const sli_tensor_source *tensor, size_t *offset) {
    size_t bytes = 0, end;
    SLI_TRY(source_bytes(tensor, &bytes));
    SLI_FAIL_IF(__builtin_add_overflow(*offset, bytes, &end) || end > INT64_MAX, SL_ERR_USAGE,
                "tensor \"%s\" makes the file too large", tensor->name);
    if (header->length > 1) sli_text_append(header, ",", 1);
    SLI_FAIL_IF(!sli_json_append_string(header, tensor->name), SL_ERR_USAGE, "a tensor's name is not valid UTF-8");
    sli_text_printf(header, ":{\"dtype\":\"%s\",\"shape\":[", tensor->dtype);
    for (int i = 0; i < tensor->rank; i++) sli_text_printf(header, "%s%lld", i ? "," : "", (long long)tensor->shape[i]);
    sli_text_printf(header, "],\"data_offsets\":[%zu,%zu]}", *offset, end);
    *offset = end;
    return SL_OK;
}

/* The JSON header, padded with blanks so that the data start at a multiple of 8. */
static sl_status make_header(const sli_tensor_source *tensors, int count, const char *const *metadata,
                             sli_text *header) {
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            SLI_FAIL_IF(!strcmp(tensors[i].name, tensors[j].name), SL_ERR_USAGE, "tensor \"%s\" is given twice",
                        tensors[i].name);
    sli_text_append(header, "{", 1);
    SLI_TRY(append_metadata(header, metadata));
    size_t offset = 0;
    for (int w = 0; w < WIDTH_COUNT; w++)
        for (int i = 0; i < count; i++)
            if (sli_tensor_dtype_bytes(tensors[i].dtype) == WIDTHS[w])
                SLI_TRY(append_tensor(header, &tensors[i], &offset));
    sli_text_append(header, "}", 1);
    while (!header->failed && header->length % 8) sli_text_append(header, " ", 1);
    if (header->failed) return sli_fail_memory("header of the model file", header->length);
    SLI_FAIL_IF(header->length > SLI_SAFETENSORS_HEADER_LIMIT, SL_ERR_INPUT,
                "the model file's header, which holds the vocabulary, would have %zu bytes, of which safetensors "
                "readers take %d; "
                "take a smaller vocabulary (--vocab-size)",
                header->length, SLI_SAFETENSORS_HEADER_LIMIT);
    return SL_OK;
}

static sl_status write_tensor(const sli_tensor_source *tensor, sli_atomic_file *file) {
    size_t bytes = 0;
    SLI_TRY(source_bytes(tensor, &bytes));
    uint64_t before = file->written;
    SLI_TRY(tensor->produce ? tensor->produce(tensor, file) : sli_atomic_append(file, tensor->data, bytes));
    SLI_FAIL_IF(file->written - before != bytes, SL_ERR_INTERNAL, "tensor \"%s\" wrote %llu bytes instead of %zu",
                tensor->name, (unsigned long long)(file->written - before), bytes);
    return SL_OK;
}

static sl_status write_all(sli_atomic_file *file, const sli_text *header, const sli_tensor_source *tensors, int count) {
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)header->length >> (8 * i));
    SLI_TRY(sli_atomic_append(file, length, sizeof length));
    SLI_TRY(sli_atomic_append(file, header->data, header->length));
    for (int w = 0; w < WIDTH_COUNT; w++)
        for (int i = 0; i < count; i++)
            if (sli_tensor_dtype_bytes(tensors[i].dtype) == WIDTHS[w]) SLI_TRY(write_tensor(&tensors[i], file));
    return sli_atomic_commit(file);
}

sl_status sli_safetensors_write(const sl_allocator *allocator, const char *path, const sli_tensor_source *tensors,
                                int count, const char *const *metadata) {
    for (int i = 0; i < count; i++) {
        size_t bytes;
        SLI_TRY(source_bytes(&tensors[i], &bytes));
    }
    sli_text header;
    sli_text_init(&header, allocator);
    sli_atomic_file file;
    sl_status status;
    SLI_TRY_GOTO(done, make_header(tensors, count, metadata, &header));
    SLI_TRY_GOTO(done, sli_atomic_begin(&file, path));
    status = write_all(&file, &header, tensors, count);
    sli_atomic_abort(&file); /* nothing to do after a commit */
done:
    sli_text_free(&header);
    return status;
}
