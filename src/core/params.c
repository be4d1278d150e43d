/* Parameters and optimizer state in device memory. */
#include "core/params.h"
#include "core/rounding.h"
#include "core/threads.h"

#include <string.h>

static int find_param(const sl_params *params, const char *name) {
    const sl_plan *plan = params->plan;
    for (int i = 0; name && i < plan->param_count; i++)
        if (strcmp(plan->params[i].param.name, name) == 0) return i;
    return -1;
}

static size_t param_size(const sli_param_place *place) {
    return (size_t)place->param.rows * (size_t)place->param.columns;
}

char *sli_params_at(const sl_params *params, int slot, int index) {
    const sl_plan *plan = params->plan;
    size_t array = plan->param_elements * plan->weight;
    if (slot < 0 && params->bound && params->bound[index]) return params->bound[index];
    return params->block + (size_t)(slot + 1) * array + plan->params[index].offset * plan->weight;
}

sli_scaling *sli_params_scaling_at(const sl_params *params) {
    if (!sli_plan_is_scaled(params->plan)) return NULL;
    return (sli_scaling *)(void *)(params->block + params->plan->memory.params_block -
                                   sli_round_up(sizeof(sli_scaling), SLI_ALIGN));
}

static sl_status make_block(sl_params *params) {
    const sl_plan *plan = params->plan;
    SLI_TRY(plan->ops->queue_new(plan->device, &params->queue));
    SLI_TRY(plan->ops->alloc(plan->device, plan->memory.params_block, (void **)&params->block));
    if (!sli_plan_is_scaled(plan)) return SL_OK;
    return sli_params_scaling_set(params, &(sli_scaling){.scale = 65536});
}

sl_status sl_params_new(const sl_plan *plan, sl_params **out) {
    if (out) *out = NULL;
    SLI_FAIL_IF(!out || !plan, SL_ERR_USAGE, "sl_params_new: plan or params is NULL; pass a plan and an address");
    SLI_FAIL_IF(!plan->device, SL_ERR_DEVICE, "%s was invented for planning; plan for a device of this machine to run",
                plan->caps.name);
    sl_params *params = sli_alloc_zero(&plan->allocator, sizeof *params);
    if (!params) return sli_fail_memory("parameters", sizeof *params);
    params->plan = plan;
    pthread_mutex_init(&params->lock, NULL);
    params->allocator = plan->allocator;
    sl_status status = make_block(params);
    if (status != SL_OK) {
        sl_params_free(params);
        return sli_fail_context(status, "parameters (%zu bytes)", plan->memory.params_block);
    }
    *out = params;
    return SL_OK;
}

/* Every parameter of `plan` is among those of `params`, in its shape. */
static sl_status check_same(const sl_params *params, const sl_plan *plan, const char *caller) {
    for (int i = 0; i < plan->param_count; i++) {
        const sli_param *wanted = &plan->params[i].param;
        int index = find_param(params, wanted->name);
        const sli_param *found = index < 0 ? NULL : &params->plan->params[index].param;
        SLI_FAIL_IF(!found || found->rows != wanted->rows || found->columns != wanted->columns, SL_ERR_USAGE,
                    "%s: the parameters were made for another model, this one has %s of %d x %d; pass parameters of a "
                    "plan of this model",
                    caller, wanted->name, wanted->rows, wanted->columns);
    }
    SLI_FAIL_IF(
        plan->param_count != params->plan->param_count, SL_ERR_USAGE,
        "%s: the parameters were made for another model, of %d parameters where this one has %d; pass parameters "
        "of a plan of this model",
        caller, params->plan->param_count, plan->param_count);
    return SL_OK;
}

sl_status sli_params_check_model(const sl_params *params, const sl_model *model, const char *caller) {
    sl_plan list;
    sl_status status = sli_plan_list_params(params->plan, model, &list);
    if (status == SL_OK) status = check_same(params, &list, caller);
    sli_arena_free(&list.arena);
    return status;
}

void sl_params_free(sl_params *params) {
    if (!params) return;
    const sl_plan *plan = params->plan;
    if (params->queue) plan->ops->wait(params->queue);
    if (params->block) plan->ops->free(plan->device, params->block, plan->memory.params_block);
    if (params->queue) plan->ops->queue_free(params->queue);
    pthread_mutex_destroy(&params->lock);
    sl_allocator allocator = params->allocator;
    if (params->bound) sli_free(&allocator, params->bound, (size_t)plan->param_count * sizeof *params->bound);
    sli_free(&allocator, params, sizeof *params);
}

int sl_params_count(const sl_params *params) {
    return params ? params->plan->param_count : 0;
}

const char *sl_params_name(const sl_params *params, int index, int *rows, int *columns) {
    if (index < 0 || index >= sl_params_count(params)) return NULL;
    const sli_param *param = &params->plan->params[index].param;
    if (rows) *rows = param->rows;
    if (columns) *columns = param->columns;
    return param->name;
}

/* ------------------------------------------------------------------------------------------- get and set -- */
/* Numbers converted at a time, on the stack: no allocation, and on a GPU, where each piece waits, few of them. */
enum { PIECE = SLI_PARAMS_PIECE };
typedef union piece_of {
    float floats[PIECE];
    uint16_t halves[PIECE];
} piece_of;

sl_status sli_params_download(const sl_plan *plan, sli_queue *queue, const char *from, double *values, size_t count) {
    const size_t bytes = count * plan->weight;
    piece_of piece;
    if (plan->weight == sizeof(double)) return plan->ops->download(queue, values, from, bytes);
    const bool narrow = plan->weight == sizeof(uint16_t);
    SLI_TRY(plan->ops->download(queue, &piece, from, bytes));
    for (size_t i = 0; i < count; i++)
        values[i] = narrow ? sli_from_bits16(plan->options.dtype, piece.halves[i]) : (double)piece.floats[i];
    return SL_OK;
}

sl_status sli_params_upload(const sl_params *params, char *to, const double *values, size_t count) {
    const sl_plan *plan = params->plan;
    const bool narrow = plan->weight == sizeof(uint16_t);
    piece_of piece;
    for (size_t i = 0; i < count; i++) {
        if (narrow)
            piece.halves[i] = sli_to_bits16(plan->options.dtype, values[i]);
        else
            piece.floats[i] = (float)values[i];
    }
    return plan->ops->upload(params->queue, to, &piece, count * plan->weight);
}

static sl_status download_pieces(const sl_params *params, const char *from, double *values, size_t count) {
    const sl_plan *plan = params->plan;
    for (size_t at = 0; at < count; at += PIECE) {
        size_t n = count - at < PIECE ? count - at : PIECE;
        SLI_TRY(sli_params_download(plan, params->queue, from + at * plan->weight, values + at, n));
    }
    return SL_OK;
}

/* The queue is one thread's at a time, parameters are everybody's. */
static sl_status download(const sl_params *params, const char *from, double *values, size_t count) {
    pthread_mutex_t *lock = &((sl_params *)params)->lock;
    pthread_mutex_lock(lock);
    sl_status status = download_pieces(params, from, values, count);
    pthread_mutex_unlock(lock);
    return status;
}

static sl_status upload(sl_params *params, char *to, const double *values, size_t count) {
    const sl_plan *plan = params->plan;
    if (plan->weight == sizeof(double)) {
        SLI_TRY(plan->ops->upload(params->queue, to, values, count * sizeof(double)));
        return plan->ops->wait(params->queue);
    }
    for (size_t at = 0; at < count; at += PIECE) {
        size_t n = count - at < PIECE ? count - at : PIECE;
        SLI_TRY(sli_params_upload(params, to + at * plan->weight, values + at, n));
    }
    return plan->ops->wait(params->queue);
}

static sl_status check_param(const sl_params *params, const char *name, const void *values, size_t count, int *index) {
    SLI_FAIL_IF(!params || !values, SL_ERR_USAGE, "parameters or values are NULL; pass both");
    *index = find_param(params, name);
    SLI_FAIL_IF(*index < 0, SL_ERR_UNKNOWN, "there is no parameter called \"%s\"; sl_params_name lists them",
                name ? name : "");
    const sli_param_place *place = &params->plan->params[*index];
    SLI_FAIL_IF(count != param_size(place), SL_ERR_SHAPE, "%s has %d x %d values, not %zu; pass exactly that many",
                name, place->param.rows, place->param.columns, count);
    return SL_OK;
}

sl_status sl_params_get(const sl_params *params, const char *name, double *values, size_t count) {
    int index;
    SLI_TRY(check_param(params, name, values, count, &index));
    return download(params, sli_params_at(params, -1, index), values, count);
}

sl_status sl_params_set(sl_params *params, const char *name, const double *values, size_t count) {
    int index;
    SLI_TRY(check_param(params, name, values, count, &index));
    SLI_TRY(upload(params, sli_params_at(params, -1, index), values, count));
    SLI_TRY(sli_params_pack(params, params->queue, index));
    return params->plan->ops->wait(params->queue);
}

int sli_params_slot_count(const sl_params *params) {
    return params->plan->slots;
}
const char *sli_params_slot_name(const sl_params *params, int slot) {
    return sli_optimizer_slot_name(&params->plan->options.optimizer, slot);
}

sl_status sli_params_slot_get(sl_params *params, int slot, const char *name, double *values, size_t count) {
    int index;
    SLI_TRY(check_param(params, name, values, count, &index));
    SLI_FAIL_IF(slot < 0 || slot >= params->plan->slots, SL_ERR_USAGE, "the optimizer has no slot %d", slot);
    return download(params, sli_params_at(params, slot, index), values, count);
}

sl_status sli_params_slot_set(sl_params *params, int slot, const char *name, const double *values, size_t count) {
    int index;
    SLI_TRY(check_param(params, name, values, count, &index));
    SLI_FAIL_IF(slot < 0 || slot >= params->plan->slots, SL_ERR_USAGE, "the optimizer has no slot %d", slot);
    return upload(params, sli_params_at(params, slot, index), values, count);
}

static sl_status check_scaling(const sl_params *params) {
    SLI_FAIL_IF(!sli_plan_is_scaled(params->plan), SL_ERR_USAGE, "only f16 training with a loss scales it");
    return SL_OK;
}

sl_status sli_params_scaling_get(sl_params *params, sli_scaling *scaling) {
    SLI_TRY(check_scaling(params));
    pthread_mutex_lock(&params->lock);
    sl_status status =
        params->plan->ops->download(params->queue, scaling, sli_params_scaling_at(params), sizeof *scaling);
    pthread_mutex_unlock(&params->lock);
    return status;
}

sl_status sli_params_scaling_set(sl_params *params, const sli_scaling *scaling) {
    SLI_TRY(check_scaling(params));
    SLI_TRY(params->plan->ops->upload(params->queue, sli_params_scaling_at(params), scaling, sizeof *scaling));
    return params->plan->ops->wait(params->queue);
}

double sli_params_optimizer_steps(const sl_params *params) {
    return params->optimizer_steps;
}
void sli_params_set_optimizer_steps(sl_params *params, double steps) {
    params->optimizer_steps = steps;
}

/* --------------------------------------------------------------------------------------- pack, initialise -- */
static bool uses(const sli_step *step, int index) {
    for (int k = 0; k < SLI_MAX_PARAM; k++)
        if (step->emit.param[k] >= 0 && (index < 0 || step->emit.param[k] == index)) return true;
    return false;
}

char *sli_params_packed(const sl_params *params) {
    const sl_plan *plan = params->plan;
    return params->block + (size_t)(plan->slots + 1) * plan->param_elements * plan->weight;
}

void sli_params_set_pack(const sl_params *params, const sli_step *step, size_t first, size_t end, sli_call *call) {
    const sl_plan *plan = params->plan;
    call->planned = (sli_planned){step->problem.batch, step->problem.steps};
    call->chunk = plan->chunk;
    call->packed = sli_params_packed(params) + step->packed;
    for (int k = 0; k < SLI_MAX_PARAM; k++) {
        const int param = step->emit.param[k];
        if (param >= 0 && plan->params[param].offset >= first && plan->params[param].offset < end)
            call->param[k] = sli_params_at(params, -1, param);
    }
}

static sl_status pack(sl_params *params, sli_queue *queue, int index, bool updated) {
    const sl_plan *plan = params->plan;
    for (int i = 0; i < plan->step_count; i++) {
        const sli_step *step = &plan->steps[i];
        if (!step->kernel->pack || !uses(step, index)) continue;
        sli_call call;
        memset(&call, 0, sizeof call);
        call.problem = step->problem;
        sli_params_set_pack(params, step, 0, plan->param_elements, &call);
        call.beside = true;
        call.copied = updated && step->copied;
        SLI_TRY(plan->ops->submit(queue, step->kernel->pack, &call));
    }
    return plan->ops->settle ? plan->ops->settle(queue) : SL_OK;
}

sl_status sli_params_pack(sl_params *params, sli_queue *queue, int index) {
    return pack(params, queue, index, false);
}

sl_status sli_params_pack_updated(sl_params *params, sli_queue *queue) {
    return pack(params, queue, -1, true);
}

/* What takes long is shared by threads, the program's or as many as the plan has on a CPU; NULL: one is enough. */
static sl_status large_threads(const sl_params *params, const sli_param *param, sli_threads **threads) {
    const sli_caps *caps = &params->plan->caps;
    const double shorter = (double)(param->rows < param->columns ? param->rows : param->columns);
    if (shorter * (double)param->rows * (double)param->columns < 1e8) return SL_OK; /* hundredths of a second */
    if (caps->pool.parallel_for) return sli_threads_over(&params->allocator, &caps->pool, caps->threads, threads);
    const int count = caps->kind == SLI_DEVICE_CPU ? caps->threads : sli_threads_default();
    return sli_threads_new(&params->allocator, count, threads);
}

static sl_status init_param(sl_params *params, int index, uint64_t seed, double uniform_scale) {
    const sli_param_place *place = &params->plan->params[index];
    sli_param param = place->param;
    if (uniform_scale > 0) param.init = (sl_init){SL_INIT_UNIFORM, uniform_scale};
    size_t count = param_size(place);
    char *to = sli_params_at(params, -1, index);
    if (!sli_initialise_needs_all(&param)) {
        double piece[PIECE];
        for (size_t first = 0; first < count; first += PIECE) {
            size_t part = count - first < PIECE ? count - first : PIECE;
            sli_initialise_part(&param, index, seed, first, part, piece);
            SLI_TRY(upload(params, to + first * params->plan->weight, piece, part));
        }
        return SL_OK;
    }
    double *values = sli_alloc(&params->allocator, count * sizeof *values);
    if (!values) return sli_fail_memory(param.name, count * sizeof *values);
    sli_threads *threads = NULL;
    sl_status status = large_threads(params, &param, &threads);
    if (status == SL_OK) {
        sli_initialise(&param, index, seed, threads, values);
        status = upload(params, to, values, count);
    }
    sli_threads_free(threads);
    sli_free(&params->allocator, values, count * sizeof *values);
    return status;
}

sl_status sli_params_init(sl_params *params, uint64_t seed, double uniform_scale) {
    for (int i = 0; i < params->plan->param_count; i++) SLI_TRY(init_param(params, i, seed, uniform_scale));
    SLI_TRY(sli_params_pack(params, params->queue, -1));
    return params->plan->ops->wait(params->queue);
}

sl_status sl_params_init(sl_params *params, uint64_t seed) {
    SLI_FAIL_IF(!params, SL_ERR_USAGE, "sl_params_init: params is NULL");
    return sli_params_init(params, seed, 0);
}
