/* Opening model files and loading parameters: see model_file.h. */
#include "io/model_file.h"

#include <math.h>
#include <string.h>
#include "io/model_json.h"

/* ------------------------------------------------------------------------------------------------ open and close -- */
static const uint64_t MODEL_FILE_LIMIT = (uint64_t)1 << 40;

static sl_status file_new(const sl_allocator *allocator, sl_file **file) {
    *file = sli_alloc_zero(allocator, sizeof **file);
    if (!*file) return sli_fail_memory("model file", sizeof **file);
    (*file)->allocator = sli_allocator_or_default(allocator);
    (*file)->bytes.allocator = (*file)->allocator;
    return SL_OK;
}

static sl_status file_parse(sl_file *file, const void *bytes, size_t size, const char *path) {
    SLI_TRY(sli_safetensors_parse(&file->allocator, bytes, size, path, &file->tensors));
    file->path = sli_arena_string(&file->tensors.arena, path);
    return file->path ? SL_OK : sli_fail_memory("path", strlen(path) + 1);
}

sl_status sli_file_open(const sl_allocator *allocator, const char *path, sl_file **file) {
    SLI_TRY(file_new(allocator, file));
    sl_status status = sli_bytes_read(allocator, path, "model file", MODEL_FILE_LIMIT, &(*file)->bytes);
    if (status == SL_OK) status = file_parse(*file, (*file)->bytes.data, (*file)->bytes.size, path);
    if (status != SL_OK) {
        sli_file_close(*file);
        *file = NULL;
    }
    return status;
}

sl_status sli_file_open_memory(const sl_allocator *allocator, const void *bytes, size_t size, sl_file **file) {
    SLI_TRY(file_new(allocator, file));
    sl_status status = file_parse(*file, bytes, size, "memory");
    if (status != SL_OK) {
        sli_file_close(*file);
        *file = NULL;
    }
    return status;
}

void sli_file_close(sl_file *file) {
    if (!file) return;
    sl_allocator allocator = file->allocator;
    sli_safetensors_free(&file->tensors);
    sli_bytes_free(&file->bytes);
    sli_free(&allocator, file, sizeof *file);
}

/* ----------------------------------------------------------------------------------------------------- the model -- */
static sl_status check_format(const sl_file *file) {
    const char *format = sli_safetensors_metadata(&file->tensors, "format");
    const char *version = sli_safetensors_metadata(&file->tensors, "version");
    const char *order = sli_safetensors_metadata(&file->tensors, "gate_order");
    SLI_FAIL_IF(!format || strcmp(format, "sluice") != 0, SL_ERR_FILE,
                "%s: a safetensors file, but not one of Sluice's (no metadata format = sluice); give a file written by "
                "`sluice train`",
                file->path);
    SLI_FAIL_IF(
        !version || strcmp(version, "1") != 0, SL_ERR_FILE,
        "%s: written in version %.20s of the model format, and this program reads version 1; use a newer Sluice",
        file->path, version ? version : "?");
    SLI_FAIL_IF(order && strcmp(order, "lstm i f g o, gru r z n") != 0, SL_ERR_FILE,
                "%s: its gates are in another order (%.60s); use the Sluice that wrote it", file->path, order);
    return SL_OK;
}

sl_status sli_file_model(const sl_file *file, sl_model **model) {
    *model = NULL;
    SLI_TRY(check_format(file));
    const char *json = sli_safetensors_metadata(&file->tensors, "model");
    SLI_FAIL_IF(!json, SL_ERR_FILE,
                "%s: the description of the model is missing (metadata model); give a whole model file", file->path);
    sl_status status = sli_model_from_json(&file->allocator, json, strlen(json), model);
    return status == SL_OK ? SL_OK : sli_fail_context(status, "%s", file->path);
}

/* --------------------------------------------------------------------------------------------------- parameters -- */
enum { PIECE = 4096 }; /* numbers converted at a time, on the stack */

typedef union number {
    float f32[PIECE];
    double f64[PIECE];
} number;

static bool is_f64(const sl_tensor_info *tensor) {
    return strcmp(tensor->dtype, "F64") == 0;
}

/* Numbers [at, at + n) of a tensor, which may stand at any address, as doubles or as floats. */
static void fetch(const sl_tensor_info *tensor, size_t at, size_t n, bool want_f64, number *out) {
    number raw;
    bool f64 = is_f64(tensor);
    size_t width = f64 ? sizeof(double) : sizeof(float);
    memcpy(&raw, (const char *)tensor->data + at * width, n * width);
    for (size_t i = 0; i < n; i++) {
        if (want_f64)
            out->f64[i] = f64 ? raw.f64[i] : (double)raw.f32[i];
        else
            out->f32[i] = f64 ? (float)raw.f64[i] : raw.f32[i];
    }
}

static sl_status check_finite(const sl_file *file, const sl_tensor_info *tensor, size_t count) {
    number values;
    for (size_t at = 0; at < count; at += PIECE) {
        size_t n = count - at < PIECE ? count - at : PIECE;
        fetch(tensor, at, n, true, &values);
        for (size_t i = 0; i < n; i++)
            SLI_FAIL_IF(!isfinite(values.f64[i]), SL_ERR_NUMBERS,
                        "%s: number %zu of %s is %s: training had diverged, or the file is damaged; train anew with a "
                        "smaller learning rate or go back to an older file",
                        file->path, at + i, tensor->name, isnan(values.f64[i]) ? "not a number" : "infinite");
    }
    return SL_OK;
}

/* "[4, 3]" */
static void print_shape(const int64_t *shape, int rank, char *text, size_t capacity) {
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < rank && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%lld", i ? ", " : "", (long long)shape[i]);
}

/* The tensor called `name` with the shape of `param`, and finite. */
static sl_status find_tensor(const sl_file *file, const char *name, const sli_param *param,
                             const sl_tensor_info **tensor) {
    int index = sli_safetensors_find(&file->tensors, name);
    SLI_FAIL_IF(
        index < 0, SL_ERR_SHAPE,
        "%s: %s is missing: the file holds another model; give the file of this model, or train it anew (--init-from "
        "needs the same layers)",
        file->path, name);
    const sl_tensor_info *found = &file->tensors.tensors[index];
    bool vector = found->rank == 1 && param->rows == 1 && found->shape[0] == param->columns;
    bool matrix = found->rank == 2 && found->shape[0] == param->rows && found->shape[1] == param->columns;
    char shape[128];
    print_shape(found->shape, found->rank, shape, sizeof shape);
    SLI_FAIL_IF(!vector && !matrix, SL_ERR_SHAPE,
                "%s: %s has the shape [%s] and the model needs [%d, %d]; give the file of this model, or train it anew "
                "(--init-from needs the same sizes)",
                file->path, name, shape, param->rows, param->columns);
    SLI_FAIL_IF(strcmp(found->dtype, "F32") != 0 && !is_f64(found), SL_ERR_FILE,
                "%s: %s has dtype %s; parameters are F32 or F64: convert the file", file->path, name, found->dtype);
    *tensor = found;
    return check_finite(file, found, (size_t)param->rows * (size_t)param->columns);
}

static sl_status load_tensor(sl_params *params, char *to, const sl_tensor_info *tensor, size_t count) {
    const sl_plan *plan = params->plan;
    number values;
    for (size_t at = 0; at < count; at += PIECE) {
        size_t n = count - at < PIECE ? count - at : PIECE;
        fetch(tensor, at, n, plan->weight != sizeof(float), &values);
        if (plan->weight == sizeof(uint16_t))
            SLI_TRY(sli_params_upload(params, to + at * plan->weight, values.f64, n));
        else
            SLI_TRY(plan->ops->upload(params->queue, to + at * plan->weight, &values, n * plan->weight));
    }
    return SL_OK;
}

/* Checks every tensor before it changes the first number. */
static sl_status load_array(const sl_file *file, sl_params *params, int slot) {
    const sl_plan *plan = params->plan;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < plan->param_count; i++) {
            const sli_param *param = &plan->params[i].param;
            char name[320];
            if (slot < 0)
                snprintf(name, sizeof name, "%s", param->name);
            else
                snprintf(name, sizeof name, "optim.%s.%s", sli_params_slot_name(params, slot), param->name);
            const sl_tensor_info *tensor = NULL;
            if (pass == 0) {
                SLI_TRY(find_tensor(file, name, param, &tensor));
                continue;
            }
            tensor = &file->tensors.tensors[sli_safetensors_find(&file->tensors, name)];
            SLI_TRY(load_tensor(params, sli_params_at(params, slot, i), tensor,
                                (size_t)param->rows * (size_t)param->columns));
        }
    return SL_OK;
}

sl_status sli_file_load_params(const sl_file *file, sl_params *params) {
    SLI_TRY(check_format(file));
    SLI_TRY(load_array(file, params, -1));
    SLI_TRY(sli_params_pack(params, params->queue, -1));
    return params->plan->ops->wait(params->queue);
}

sl_status sli_file_load_optimizer(const sl_file *file, sl_params *params) {
    SLI_TRY(check_format(file));
    for (int slot = 0; slot < sli_params_slot_count(params); slot++) SLI_TRY(load_array(file, params, slot));
    return params->plan->ops->wait(params->queue);
}
