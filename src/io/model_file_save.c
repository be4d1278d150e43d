/* Writing model files: see model_file.h. */
#include <math.h>
#include <string.h>
#include "io/model_file.h"
#include "io/model_json.h"

enum { PIECE_BYTES = 1 << 15 }; /* downloaded at a time, on the stack */

/* One tensor of device memory: context of its source. */
typedef struct device_tensor {
    const sl_params *params;
    const char *name, *from;
    size_t bytes; /* in the file, where parameters of 16 bits are floats */
} device_tensor;

static bool is_finite(const void *numbers, size_t bytes, size_t element) {
    const float *floats = numbers;
    const double *doubles = numbers;
    const size_t count = bytes / element;
    bool finite = true;
    if (element == sizeof *doubles)
        for (size_t i = 0; i < count; i++) finite &= isfinite(doubles[i]) != 0;
    else
        for (size_t i = 0; i < count; i++) finite &= isfinite(floats[i]) != 0;
    return finite;
}

/* n bytes of the tensor as it stands in the file, from byte `at` on. */
static sl_status read_piece(const device_tensor *tensor, size_t at, char *piece, size_t n) {
    const sl_plan *plan = tensor->params->plan;
    double numbers[PIECE_BYTES / sizeof(float)];
    const size_t count = n / plan->element;
    if (plan->weight == plan->element) return plan->ops->download(tensor->params->queue, piece, tensor->from + at, n);
    SLI_TRY(sli_params_download(plan, tensor->params->queue, tensor->from + at / plan->element * plan->weight, numbers,
                                count));
    for (size_t i = 0; i < count; i++) ((float *)(void *)piece)[i] = (float)numbers[i];
    return SL_OK;
}

static sl_status produce(const sli_tensor_source *source, sli_atomic_file *file) {
    const device_tensor *tensor = source->context;
    const sl_plan *plan = tensor->params->plan;
    _Alignas(double) char piece[PIECE_BYTES];
    for (size_t at = 0; at < tensor->bytes; at += sizeof piece) {
        size_t n = tensor->bytes - at < sizeof piece ? tensor->bytes - at : sizeof piece;
        SLI_TRY(read_piece(tensor, at, piece, n));
        /* No command reads such a file, and the one that it would replace may be good. */
        SLI_FAIL_IF(
            !is_finite(piece, n, plan->element), SL_ERR_NUMBERS,
            "%s has numbers that are not finite and is not written to %s; lower the learning rate (--lr), or clip the "
            "gradients (--clip-norm)",
            tensor->name, file->shown);
        SLI_TRY(sli_atomic_append(file, piece, n));
    }
    return SL_OK;
}

/* Everything a file is made of, in one arena. */
typedef struct draft {
    sli_arena arena;
    sli_tensor_source *tensors;
    int count;
    const char **metadata;
} draft;

static sl_status add_params(draft *d, const sl_params *params, int slot) {
    const sl_plan *plan = params->plan;
    for (int i = 0; i < plan->param_count; i++) {
        const sli_param *param = &plan->params[i].param;
        device_tensor *tensor = sli_arena_alloc(&d->arena, sizeof *tensor);
        const char *name =
            slot < 0 ? param->name
                     : sli_arena_format(&d->arena, "optim.%s.%s", sli_params_slot_name(params, slot), param->name);
        if (!tensor || !name) return sli_fail_memory("list of tensors", sizeof *tensor);
        size_t elements = (size_t)param->rows * (size_t)param->columns;
        *tensor = (device_tensor){params, name, sli_params_at(params, slot, i), elements * plan->element};
        sli_tensor_source *source = &d->tensors[d->count++];
        *source = (sli_tensor_source){.name = name,
                                      .dtype = plan->element == sizeof(double) ? "F64" : "F32",
                                      .rank = param->rows == 1 ? 1 : 2,
                                      .shape = {param->rows, param->columns},
                                      .produce = produce,
                                      .context = tensor};
        if (source->rank == 1) source->shape[0] = param->columns;
    }
    return SL_OK;
}

static void add_extra(draft *d, const sli_extra_tensor *extra, int extra_count) {
    for (int i = 0; i < extra_count; i++) {
        sli_tensor_source *source = &d->tensors[d->count++];
        *source = (sli_tensor_source){.name = extra[i].name,
                                      .dtype = sli_tensor_dtype_name(extra[i].type),
                                      .rank = extra[i].rank,
                                      .data = extra[i].data};
        memcpy(source->shape, extra[i].shape, sizeof source->shape);
    }
}

static sl_status add_metadata(draft *d, sl_model *model, const char *const *metadata) {
    const char *json;
    SLI_TRY(sli_model_to_json(model, &json));
    const char *own[] = {"format", "sluice", "version", "1", "gate_order", "lstm i f g o, gru r z n", "model", json};
    enum { OWN = sizeof own / sizeof *own };
    size_t given = 0;
    while (metadata && metadata[given]) {
        SLI_FAIL_IF(!metadata[given + 1], SL_ERR_USAGE, "metadata \"%s\" has no value", metadata[given]);
        given += 2;
    }
    d->metadata = sli_arena_alloc(&d->arena, (OWN + given + 1) * sizeof(char *));
    if (!d->metadata) return sli_fail_memory("metadata", (OWN + given + 1) * sizeof(char *));
    memcpy(d->metadata, own, sizeof own);
    if (given) memcpy(d->metadata + OWN, metadata, given * sizeof(char *));
    return SL_OK;
}

static sl_status make_draft(draft *d, sl_model *model, const sl_params *params, const sli_extra_tensor *extra,
                            int extra_count, const char *const *metadata, int slots) {
    size_t most = (size_t)params->plan->param_count * (size_t)(1 + slots) + (size_t)extra_count;
    d->tensors = sli_arena_alloc(&d->arena, most * sizeof *d->tensors);
    if (!d->tensors) return sli_fail_memory("list of tensors", most * sizeof *d->tensors);
    for (int slot = -1; slot < slots; slot++) SLI_TRY(add_params(d, params, slot));
    add_extra(d, extra, extra_count);
    return add_metadata(d, model, metadata);
}

static sl_status save(const char *path, sl_model *model, const sl_params *params, const sli_extra_tensor *extra,
                      int extra_count, const char *const *metadata, int slots) {
    draft d = {0};
    sli_arena_init(&d.arena, &params->allocator);
    sl_status status = make_draft(&d, model, params, extra, extra_count, metadata, slots);
    if (status == SL_OK) status = sli_safetensors_write(&params->allocator, path, d.tensors, d.count, d.metadata);
    sli_arena_free(&d.arena);
    return status;
}

sl_status sli_model_file_save(const char *path, sl_model *model, const sl_params *params, const sli_extra_tensor *extra,
                              int extra_count, const char *const *metadata) {
    return save(path, model, params, extra, extra_count, metadata, 0);
}

sl_status sli_model_file_save_checkpoint(const char *path, sl_model *model, const sl_params *params,
                                         const sli_extra_tensor *extra, int extra_count, const char *const *metadata) {
    return save(path, model, params, extra, extra_count, metadata, sli_params_slot_count(params));
}
