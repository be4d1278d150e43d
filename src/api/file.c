/* sluice.h: model files, arrays, model JSON. Argument checks; the work is in src/io. */
#include "io/model_file.h"
#include "io/model_json.h"
#include "io/npy.h"

#include <string.h>

#define NOT_NULL(function, argument) \
    SLI_FAIL_IF(!(argument), SL_ERR_USAGE, "%s: %s is NULL; pass one", function, #argument)

/* ---------------------------------------------------------------------------------------------------- model JSON -- */
sl_status sl_model_from_json(const sl_allocator *allocator, const char *text, size_t bytes, sl_model **model) {
    NOT_NULL("sl_model_from_json", model);
    *model = NULL;
    NOT_NULL("sl_model_from_json", text);
    return sli_model_from_json(allocator, text, bytes, model);
}

sl_status sl_model_to_json(sl_model *model, const char **text) {
    NOT_NULL("sl_model_to_json", text);
    *text = NULL;
    NOT_NULL("sl_model_to_json", model);
    return sli_model_to_json(model, text);
}

/* ---------------------------------------------------------------------------------------------------- model files -- */
sl_status sl_file_open(const sl_allocator *allocator, const char *path, sl_file **file) {
    NOT_NULL("sl_file_open", file);
    *file = NULL;
    NOT_NULL("sl_file_open", path);
    return sli_file_open(allocator, path, file);
}

sl_status sl_file_open_memory(const sl_allocator *allocator, const void *bytes, size_t size, sl_file **file) {
    NOT_NULL("sl_file_open_memory", file);
    *file = NULL;
    NOT_NULL("sl_file_open_memory", bytes);
    return sli_file_open_memory(allocator, bytes, size, file);
}

void sl_file_close(sl_file *file) {
    sli_file_close(file);
}

const char *sl_file_metadata(const sl_file *file, const char *key) {
    return file && key ? sli_safetensors_metadata(&file->tensors, key) : NULL;
}

const char *sl_file_metadata_at(const sl_file *file, int index, const char **value) {
    bool there = file && index >= 0 && index < file->tensors.metadata_count;
    if (value) *value = there ? file->tensors.metadata[index].value : NULL;
    return there ? file->tensors.metadata[index].key : NULL;
}

int sl_file_tensor_count(const sl_file *file) {
    return file ? file->tensors.tensor_count : 0;
}

sl_status sl_file_tensor(const sl_file *file, int index, sl_tensor_info *info) {
    NOT_NULL("sl_file_tensor", info);
    memset(info, 0, sizeof *info);
    NOT_NULL("sl_file_tensor", file);
    SLI_FAIL_IF(index < 0 || index >= file->tensors.tensor_count, SL_ERR_USAGE,
                "sl_file_tensor: index %d; the file has %d tensors, from 0", index, file->tensors.tensor_count);
    *info = file->tensors.tensors[index];
    return SL_OK;
}

int sl_file_find(const sl_file *file, const char *name) {
    return file && name ? sli_safetensors_find(&file->tensors, name) : -1;
}

sl_status sl_file_model(const sl_file *file, sl_model **model) {
    NOT_NULL("sl_file_model", model);
    *model = NULL;
    NOT_NULL("sl_file_model", file);
    return sli_file_model(file, model);
}

sl_status sl_file_load_params(const sl_file *file, sl_params *params) {
    NOT_NULL("sl_file_load_params", file);
    NOT_NULL("sl_file_load_params", params);
    return sli_file_load_params(file, params);
}

sl_status sl_file_save(const char *path, sl_model *model, const sl_params *params, const char *const *metadata) {
    NOT_NULL("sl_file_save", path);
    NOT_NULL("sl_file_save", model);
    NOT_NULL("sl_file_save", params);
    SLI_TRY(sli_params_check_model(params, model, "sl_file_save"));
    return sli_model_file_save(path, model, params, NULL, 0, metadata);
}

/* --------------------------------------------------------------------------------------------------------- arrays -- */
sl_status sl_npy_read(const sl_allocator *allocator, const char *path, sl_array *array) {
    NOT_NULL("sl_npy_read", array);
    memset(array, 0, sizeof *array);
    NOT_NULL("sl_npy_read", path);
    return sli_npy_read(allocator, path, array);
}

sl_status sl_npy_read_memory(const sl_allocator *allocator, const void *bytes, size_t size, sl_array *array) {
    NOT_NULL("sl_npy_read_memory", array);
    memset(array, 0, sizeof *array);
    NOT_NULL("sl_npy_read_memory", bytes);
    return sli_npy_read_memory(allocator, bytes, size, array);
}

sl_status sl_npy_write(const char *path, const sl_array *array) {
    NOT_NULL("sl_npy_write", path);
    NOT_NULL("sl_npy_write", array);
    return sli_npy_write(path, array);
}

void sl_array_free(sl_array *array) {
    if (array) sli_array_free(array);
}
