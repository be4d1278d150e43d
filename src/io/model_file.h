/* The model file: safetensors with parameters, description, and whatever the trainer adds. */
#ifndef SLI_MODEL_FILE_H
#define SLI_MODEL_FILE_H

#include "core/params.h"
#include "io/safetensors.h"

struct sl_file {
    sl_allocator allocator;
    sli_bytes bytes; /* empty if the caller's memory is read */
    sli_safetensors tensors;
    const char *path; /* in tensors.arena; "memory" */
};

sl_status sli_file_open(const sl_allocator *allocator, const char *path, sl_file **file);
sl_status sli_file_open_memory(const sl_allocator *allocator, const void *bytes, size_t size, sl_file **file);
void sli_file_close(sl_file *file);
sl_status sli_file_model(const sl_file *file, sl_model **model);
/* All parameters, or, on failure, none. */
sl_status sli_file_load_params(const sl_file *file, sl_params *params);
/* The optimizer's slots "optim.SLOT.LAYER.param"; all or none. Does not touch the count of optimizer steps. */
sl_status sli_file_load_optimizer(const sl_file *file, sl_params *params);

/* A tensor of the trainer's in host memory, "state.LAYER.h" for instance. Borrowed for the call. */
typedef struct sli_extra_tensor {
    const char *name;
    sl_array_type type;
    int rank;
    int64_t shape[SLI_TENSOR_MAX_RANK];
    const void *data;
} sli_extra_tensor;

/* Writes parameters and extra tensors atomically, straight from device memory: no second copy of anything. metadata: key, value,
 * ..., NULL, added to format, version, gate_order and model; may be NULL. */
sl_status sli_model_file_save(const char *path, sl_model *model, const sl_params *params, const sli_extra_tensor *extra,
                              int extra_count, const char *const *metadata);
/* The same with the optimizer's slots. */
sl_status sli_model_file_save_checkpoint(const char *path, sl_model *model, const sl_params *params,
                                         const sli_extra_tensor *extra, int extra_count, const char *const *metadata);

#endif
