/* safetensors: an 8-byte little-endian header length, a JSON header {name: {dtype, shape, data_offsets}, "__metadata__"},
 * and the tensors' bytes without holes. Every number is checked before it is used. */
#ifndef SLI_SAFETENSORS_H
#define SLI_SAFETENSORS_H

#include "io/atomic_file.h"

enum { SLI_TENSOR_MAX_RANK = 8, SLI_SAFETENSORS_HEADER_LIMIT = 100000000 };

typedef struct sli_metadata {
    const char *key, *value;
} sli_metadata;

/* What a parsed file holds: names in its arena, data pointing into the bytes that were parsed. */
typedef struct sli_safetensors {
    sli_arena arena;
    sl_tensor_info *tensors; /* in the order of their bytes */
    int tensor_count, tensor_capacity;
    sli_metadata *metadata; /* in the order of the file */
    int metadata_count, metadata_capacity;
} sli_safetensors;

/* `bytes` is borrowed. `path` is for sentences. On failure SL_ERR_FILE and nothing to free. */
sl_status sli_safetensors_parse(const sl_allocator *allocator, const void *bytes, size_t size, const char *path,
                                sli_safetensors *file);
void sli_safetensors_free(sli_safetensors *file);
int sli_safetensors_find(const sli_safetensors *file, const char *name); /* -1 if none */
const char *sli_safetensors_metadata(const sli_safetensors *file, const char *key);

/* Bytes of one element, 0 for an unknown name: "F32" is 4. */
size_t sli_tensor_dtype_bytes(const char *dtype);
const char *sli_tensor_dtype_name(sl_array_type type);
/* *out = product of the shape; false on overflow or a negative size. */
bool sli_tensor_elements(const int64_t *shape, int rank, size_t *out);

/* A tensor to write: its bytes, or a function that appends exactly that many to the file, piece by piece. */
typedef struct sli_tensor_source {
    const char *name, *dtype;
    int rank;
    int64_t shape[SLI_TENSOR_MAX_RANK];
    const void *data;
    sl_status (*produce)(const struct sli_tensor_source *source, sli_atomic_file *file);
    void *context;
} sli_tensor_source;

/* Writes atomically: wide elements first, so that every tensor is aligned to its element; otherwise in the given order.
 * metadata: key, value, ..., NULL; may be NULL. SL_ERR_IO, or SL_ERR_USAGE for names that the format cannot hold. */
sl_status sli_safetensors_write(const sl_allocator *allocator, const char *path, const sli_tensor_source *tensors,
                                int count, const char *const *metadata);

#endif
