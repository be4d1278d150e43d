/* sluice_interop.h: forward and backward on memory that another library owns. A run has, for each tensor, an address that takes
 * the place of its own memory while a caller's tensor is bound to it. */
#include "sluice_interop.h"

#include <stdio.h>
#include <string.h>

#include "core/run.h"

enum { ALIGNMENT = 16 };

/* ------------------------------------------------------------------------------------------------- checks -- */
static sl_status check_place(const sl_plan *plan, const char *what, const sl_dl_tensor *tensor) {
    bool cuda = plan->caps.kind == SLI_DEVICE_CUDA;
    SLI_FAIL_IF(tensor->device.device_type != (cuda ? SL_DL_CUDA : SL_DL_CPU), SL_ERR_INPUT,
                "%s lies on DLPack device type %d, the plan computes on %s; move it there", what,
                (int)tensor->device.device_type, plan->caps.name);
    SLI_FAIL_IF(cuda && tensor->device.device_id != plan->caps.index, SL_ERR_INPUT,
                "%s lies on GPU %d, the plan computes on %s; move it there", what, (int)tensor->device.device_id,
                plan->caps.name);
    uintptr_t address = (uintptr_t)tensor->data + (uintptr_t)tensor->byte_offset;
    SLI_FAIL_IF(
        !tensor->data || address % ALIGNMENT != 0, SL_ERR_INPUT,
        "%s begins at address %#llx; it must not be NULL and be aligned to %d bytes: copy it to memory of its own",
        what, (unsigned long long)address, ALIGNMENT);
    return SL_OK;
}

static const struct type {
    const char *name;
    int code, bits;
} int32 = {"int32", SL_DL_INT, 32}, float32 = {"float32", SL_DL_FLOAT, 32}, float16 = {"float16", SL_DL_FLOAT, 16},
  bfloat16 = {"bfloat16", SL_DL_BFLOAT, 16};

static sl_status check_type(const char *what, const sl_dl_tensor *tensor, const struct type *wanted) {
    bool fine = tensor->dtype.code == wanted->code && tensor->dtype.bits == wanted->bits && tensor->dtype.lanes == 1;
    SLI_FAIL_IF(!fine, SL_ERR_INPUT, "%s has DLPack type code %d with %d bits; it must be %s: convert it", what,
                tensor->dtype.code, tensor->dtype.bits, wanted->name);
    return SL_OK;
}

static const struct type *type_of(const sl_plan *plan, bool narrow) {
    if (!narrow) return &float32;
    return plan->options.dtype == SL_BF16 ? &bfloat16 : &float16;
}

static bool is_dense(const sl_dl_tensor *tensor) {
    int64_t stride = 1;
    for (int k = tensor->ndim - 1; tensor->strides && k >= 0; k--) {
        if (tensor->shape[k] != 1 && tensor->strides[k] != stride) return false;
        stride *= tensor->shape[k];
    }
    return true;
}

/* Shape [steps][rows][columns] without the parts that are 0; a last part of 1 may be left out. */
static sl_status check_shape(const char *what, const sl_dl_tensor *tensor, int64_t steps, int64_t rows,
                             int64_t columns) {
    int64_t wanted[3];
    int count = 0, given = tensor->ndim;
    if (steps > 0) wanted[count++] = steps;
    if (rows > 0) wanted[count++] = rows;
    wanted[count++] = columns;
    if (columns == 1 && count > 1 && given == count - 1) count--;
    bool same = given == count && (given == 0 || tensor->shape);
    for (int k = 0; same && k < count; k++) same = tensor->shape[k] == wanted[k];
    char text[96];
    int used = 0;
    for (int k = 0; k < count; k++)
        used += snprintf(text + used, sizeof text - (size_t)used, "[%lld]", (long long)wanted[k]);
    SLI_FAIL_IF(!same, SL_ERR_SHAPE, "%s does not have the shape %s", what, text);
    SLI_FAIL_IF(!is_dense(tensor), SL_ERR_SHAPE, "%s is not dense in C order; make it contiguous", what);
    return SL_OK;
}

static char *address_of(const sl_dl_tensor *tensor) {
    return (char *)tensor->data + tensor->byte_offset;
}

/* What a caller's tensor for `tensor` of the plan must be in a call of so many steps and rows. */
static sl_status check_tensor(const sl_plan *plan, int steps, int rows, const char *what, const sli_tensor *tensor,
                              const sl_dl_tensor *given) {
    char text[160];
    snprintf(text, sizeof text, "%s \"%s\"", what, tensor->name);
    SLI_TRY(check_place(plan, text, given));
    SLI_TRY(
        check_type(text, given,
                   tensor->shape.integer ? &int32 : type_of(plan, plan->options.narrow_tensors && tensor->shape.time)));
    return check_shape(text, given, tensor->shape.time ? steps : 0, rows, tensor->shape.features);
}

static sl_status check_plan(const sl_run *run, const char *function) {
    SLI_FAIL_IF(!run, SL_ERR_USAGE, "%s: the run is NULL; make one with sl_run_new", function);
    SLI_FAIL_IF(run->plan->loss_step >= 0, SL_ERR_USAGE, "%s: the plan has a loss; plan without one", function);
    SLI_FAIL_IF(run->plan->element != sizeof(float), SL_ERR_USAGE, "%s: the plan computes f64; plan with f32",
                function);
    return SL_OK;
}

/* ------------------------------------------------------------------------------------------------- binding -- */
static sl_status make_bound(sl_run *run) {
    if (run->bound) return SL_OK;
    size_t bytes = sli_run_bound_bytes(run->plan);
    run->bound = sli_alloc_zero(&run->allocator, bytes);
    return run->bound ? SL_OK : sli_fail_memory("a run's borrowed tensors", bytes);
}

static char **bound_tensor(sl_run *run, int tensor) {
    return &run->bound[tensor];
}
static char **bound_gradient(sl_run *run, int tensor) {
    return &run->bound[run->plan->tensor_count + tensor];
}

size_t sli_run_bound_bytes(const sl_plan *plan) {
    return (2 * (size_t)plan->tensor_count + (size_t)plan->param_count) * sizeof(char *);
}

void sli_run_unbind(sl_run *run) {
    run->lent = false;
    if (run->bound) memset(run->bound, 0, 2 * (size_t)run->plan->tensor_count * sizeof *run->bound);
}

static int find_param(const sl_plan *plan, const char *name) {
    for (int i = 0; name && i < plan->param_count; i++)
        if (strcmp(plan->params[i].param.name, name) == 0) return i;
    return -1;
}

static sl_status check_param(const sl_plan *plan, const char *name, const sl_dl_tensor *given, int *index) {
    *index = find_param(plan, name);
    SLI_FAIL_IF(*index < 0, SL_ERR_UNKNOWN, "there is no parameter called \"%s\"; sl_params_name lists them",
                name ? name : "");
    if (!given) return SL_OK;
    const sli_param *param = &plan->params[*index].param;
    SLI_TRY(check_place(plan, name, given));
    SLI_TRY(check_type(name, given, type_of(plan, plan->options.narrow_parameters)));
    return check_shape(name, given, 0, param->rows > 1 || given->ndim > 1 ? param->rows : 0, param->columns);
}

bool sli_params_any_bound(const sl_params *params) {
    bool any = false;
    for (int i = 0; params->bound && i < params->plan->param_count; i++) any |= params->bound[i] != NULL;
    return any;
}

sl_status sl_interop_parameter(sl_params *params, const char *name, const sl_dl_tensor *value) {
    SLI_FAIL_IF(!params, SL_ERR_USAGE, "sl_interop_parameter: params is NULL");
    const sl_plan *plan = params->plan;
    int index;
    SLI_FAIL_IF(plan->element != sizeof(float), SL_ERR_USAGE,
                "sl_interop_parameter: the plan computes f64; plan with f32");
    SLI_TRY(check_param(plan, name, value, &index));
    if (!params->bound) {
        params->bound = sli_alloc_zero(&params->allocator, (size_t)plan->param_count * sizeof *params->bound);
        if (!params->bound) return sli_fail_memory("borrowed parameters", (size_t)plan->param_count * sizeof(char *));
    }
    params->bound[index] = value ? address_of(value) : NULL;
    params->bindings++;
    SLI_TRY(sli_params_pack(params, params->queue, index)); /* packed copies are of what counts now */
    return plan->ops->wait(params->queue);
}

sl_status sl_interop_gradient(sl_run *run, const char *name, const sl_dl_tensor *gradient) {
    SLI_TRY(check_plan(run, "sl_interop_gradient"));
    int index;
    SLI_FAIL_IF(!run->plan->train, SL_ERR_USAGE, "sl_interop_gradient: the plan is for inference; plan with train = 1");
    SLI_TRY(check_param(run->plan, name, gradient, &index));
    SLI_TRY(make_bound(run));
    run->bound[2 * run->plan->tensor_count + index] = gradient ? address_of(gradient) : NULL;
    sli_run_free_recordings(run); /* they hold the address of before */
    return SL_OK;
}

sl_status sl_interop_stream(sl_run *run, void *stream) {
    SLI_FAIL_IF(!run, SL_ERR_USAGE, "sl_interop_stream: the run is NULL; make one with sl_run_new");
    const sli_device_ops *ops = run->plan->ops;
    SLI_FAIL_IF(!ops->borrow_stream, SL_ERR_USAGE, "device %s has no streams; leave sl_interop_stream out",
                run->plan->caps.name);
    return ops->borrow_stream(run->queue, stream);
}

/* ------------------------------------------------------------------------------------------------- forward -- */
static sl_status check_lengths(const sl_plan *plan, const sl_interop_call *call) {
    if (!call->lengths) return SL_OK;
    SLI_FAIL_IF(plan->options.masking != SL_MASK_LENGTHS, SL_ERR_USAGE,
                "the call has lengths but the plan has no masking by lengths; plan with SL_MASK_LENGTHS");
    SLI_FAIL_IF(!plan->caps.graphs && plan->caps.kind == SLI_DEVICE_CUDA, SL_ERR_USAGE,
                "lengths in device memory need a plan without no_graph: its kernels may read them on the host");
    SLI_TRY(check_place(plan, "lengths", call->lengths));
    SLI_TRY(check_type("lengths", call->lengths, &int32));
    return check_shape("lengths", call->lengths, 0, 0, call->batch);
}

static sl_status check_tensors(const sl_plan *plan, const sl_interop_call *call) {
    for (int k = 0; k < plan->input_count; k++) {
        const sli_tensor *tensor = &plan->tensors[plan->inputs[k]];
        SLI_FAIL_IF(!call->inputs[k], SL_ERR_USAGE, "input \"%s\" is NULL; give its tensor", tensor->name);
        SLI_TRY(check_tensor(plan, call->steps, call->batch, "input", tensor, call->inputs[k]));
    }
    for (int k = 0; call->outputs && k < plan->output_count; k++)
        if (call->outputs[k])
            SLI_TRY(check_tensor(plan, call->steps, call->batch, "output", &plan->tensors[plan->outputs[k]],
                                 call->outputs[k]));
    return check_lengths(plan, call);
}

/* Everything is checked before anything changes: a bad call leaves what the last one computed. */
static sl_status check_call(const sl_plan *plan, const sl_interop_call *call) {
    SLI_FAIL_IF(!call || (!call->inputs && plan->input_count > 0), SL_ERR_USAGE,
                "sl_interop_forward: the call or its inputs are NULL; give %d tensors", plan->input_count);
    SLI_FAIL_IF(call->batch < 1 || call->batch > plan->options.batch || call->steps < 1 ||
                    call->steps > plan->options.steps,
                SL_ERR_SHAPE, "the call has %d rows and %d steps, the plan was made for at most %d and %d", call->batch,
                call->steps, plan->options.batch, plan->options.steps);
    SLI_FAIL_IF(call->training && !plan->train, SL_ERR_USAGE,
                "sl_interop_forward: the plan is for inference; plan with train = 1");
    SLI_FAIL_IF(plan->options.masking == SL_MASK_STEPS, SL_ERR_USAGE,
                "sl_interop_forward takes lengths, not masks of steps; plan with SL_MASK_LENGTHS");
    return check_tensors(plan, call);
}

static void bind_tensors(sl_run *run, const sl_interop_call *call) {
    const sl_plan *plan = run->plan;
    for (int k = 0; k < plan->input_count; k++) *bound_tensor(run, plan->inputs[k]) = address_of(call->inputs[k]);
    for (int k = 0; call->outputs && k < plan->output_count; k++) {
        const sli_tensor *tensor = &plan->tensors[plan->outputs[k]];
        if (call->outputs[k] && tensor->state < 0 && tensor->producer >= 0)
            *bound_tensor(run, plan->outputs[k]) = address_of(call->outputs[k]);
    }
}

/* Final states live among the run's states, and an output that is an input where that was given: they are copied out. */
static sl_status copy_states_out(sl_run *run, const sl_interop_call *call) {
    const sl_plan *plan = run->plan;
    for (int k = 0; call->outputs && k < plan->output_count; k++) {
        const sli_tensor *tensor = &plan->tensors[plan->outputs[k]];
        if (!call->outputs[k] || *bound_tensor(run, plan->outputs[k]) == address_of(call->outputs[k])) continue;
        SLI_TRY(plan->ops->copy(run->queue, address_of(call->outputs[k]), sli_run_tensor_at(run, tensor),
                                sli_plan_tensor_elements(plan, tensor, run->steps, run->batch) *
                                    sli_plan_tensor_element_bytes(plan, tensor)));
    }
    return SL_OK;
}

static sl_status set_lengths(sl_run *run, const sl_interop_call *call) {
    const sl_plan *plan = run->plan;
    if (plan->options.masking != SL_MASK_LENGTHS) return SL_OK;
    if (!call->lengths) return sli_run_full_lengths(run);
    return plan->ops->copy(run->queue, run->block + plan->lengths, address_of(call->lengths),
                           (size_t)run->batch * sizeof(int32_t));
}

sl_status sl_interop_forward(sl_run *run, const sl_interop_call *call) {
    SLI_TRY(check_plan(run, "sl_interop_forward"));
    SLI_TRY(check_call(run->plan, call));
    SLI_TRY(make_bound(run));
    sli_run_unbind(run);
    run->batch = call->batch;
    run->steps = call->steps;
    run->outputs_valid = run->input_gradients_valid = run->has_targets = false;
    bind_tensors(run, call);
    SLI_TRY(set_lengths(run, call));
    if (call->parameters_changed) SLI_TRY(sli_params_pack(run->params, run->queue, -1));
    run->training = call->training != 0;
    run->scalars.step = call->step;
    run->scalars.micro_step = 0;
    SLI_TRY(sli_run_send_scalars(run));
    sli_run_count_steps(run, true, false);
    SLI_TRY(sli_run_forward_steps(run, run->training));
    SLI_TRY(sli_run_carry_states(run));
    SLI_TRY(copy_states_out(run, call));
    run->lent = true;
    return SL_OK;
}

/* ------------------------------------------------------------------------------------------------ backward -- */
/* Without a tensor an output's gradient is zero, an input's is not wanted. */
static sl_status check_gradients(const sl_run *run, const sl_dl_tensor *const *d_outputs,
                                 const sl_dl_tensor *const *d_inputs) {
    const sl_plan *plan = run->plan;
    SLI_FAIL_IF(
        !run->lent || !run->training, SL_ERR_USAGE,
        "sl_interop_backward: the last call was no sl_interop_forward for training; each backward needs its own");
    SLI_FAIL_IF(!d_outputs, SL_ERR_USAGE, "sl_interop_backward: d_outputs is NULL; give one tensor a model output");
    for (int k = 0; k < plan->output_count; k++) {
        const sli_tensor *tensor = &plan->tensors[plan->outputs[k]];
        if (tensor->has_gradient && d_outputs[k])
            SLI_TRY(check_tensor(plan, run->steps, run->batch, "gradient of output", tensor, d_outputs[k]));
    }
    for (int k = 0; d_inputs && k < plan->input_count; k++) {
        const sli_tensor *tensor = &plan->tensors[plan->inputs[k]];
        if (!d_inputs[k]) continue;
        SLI_FAIL_IF(!plan->options.input_gradients || tensor->shape.integer, SL_ERR_USAGE,
                    "input \"%s\" has no gradient; plan with input_gradients = 1 (tokens never have one)",
                    tensor->name);
        SLI_TRY(check_tensor(plan, run->steps, run->batch, "gradient of input", tensor, d_inputs[k]));
    }
    return SL_OK;
}

/* An output that other layers read as well collects their gradients too: it gets a copy, the caller's tensor is only read. */
static sl_status set_output_gradient(sl_run *run, int index, const sl_dl_tensor *given) {
    const sl_plan *plan = run->plan;
    const sli_tensor *tensor = &plan->tensors[index];
    size_t bytes =
        sli_plan_tensor_elements(plan, tensor, run->steps, run->batch) * sli_plan_tensor_element_bytes(plan, tensor);
    if (!tensor->has_gradient) return SL_OK;
    if (!given) return plan->ops->zero(run->queue, sli_run_gradient_at(run, tensor), bytes);
    if (tensor->consumers > 0)
        return plan->ops->copy(run->queue, sli_run_gradient_at(run, tensor), address_of(given), bytes);
    *bound_gradient(run, index) = address_of(given);
    return SL_OK;
}

/* After those of outputs: an input that is one begins with that gradient, to which its readers add. */
static sl_status set_input_gradient(sl_run *run, int index, const sl_dl_tensor *given) {
    const sl_plan *plan = run->plan;
    const sli_tensor *tensor = &plan->tensors[index];
    if (!given) return SL_OK;
    const size_t bytes =
        sli_plan_tensor_elements(plan, tensor, run->steps, run->batch) * sli_plan_tensor_element_bytes(plan, tensor);
    char *to = address_of(given);
    if (!tensor->has_gradient) return plan->ops->zero(run->queue, to, bytes); /* no output depends on it */
    const char *from = sli_run_gradient_at(run, tensor);
    if (tensor->seeded && from != to) SLI_TRY(plan->ops->copy(run->queue, to, from, bytes));
    *bound_gradient(run, index) = to;
    return SL_OK;
}

sl_status sl_interop_backward(sl_run *run, const sl_dl_tensor *const *d_outputs, const sl_dl_tensor *const *d_inputs) {
    SLI_TRY(check_plan(run, "sl_interop_backward"));
    const sl_plan *plan = run->plan;
    SLI_TRY(check_gradients(run, d_outputs, d_inputs));
    run->lent = false; /* it writes over what forward saved */
    for (int k = 0; k < plan->output_count; k++) SLI_TRY(set_output_gradient(run, plan->outputs[k], d_outputs[k]));
    for (int k = 0; d_inputs && k < plan->input_count; k++)
        SLI_TRY(set_input_gradient(run, plan->inputs[k], d_inputs[k]));
    sli_run_count_steps(run, false, true);
    SLI_TRY(sli_run_begin_sums(run));
    SLI_TRY(sli_run_backward_steps(run));
    run->input_gradients_valid = false;
    return SL_OK;
}
