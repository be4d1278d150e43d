/* From a description to a plan: layers declare tensors, parameters and steps; then kernels, groups, memory, explanation. */
#include "core/plan.h"

#include <stdio.h>
#include <string.h>

/* -------------------------------------------------------------------------------------- what layers call -- */
sli_shape sli_planner_shape(const sli_planner *planner, int tensor) {
    return planner->plan->tensors[tensor].shape;
}
const sl_plan_options *sli_planner_options(const sli_planner *planner) {
    return &planner->plan->options;
}
const sli_param *sli_planner_param_at(const sli_planner *planner, int index) {
    return &planner->plan->params[index].param;
}

int sli_planner_find_param(const sli_planner *planner, const char *name) {
    for (int i = 0; i < planner->plan->param_count; i++)
        if (strcmp(planner->plan->params[i].param.name, name) == 0) return i;
    return -1;
}

sl_status sli_planner_param(sli_planner *planner, const sli_param *param, int *index) {
    sl_plan *plan = planner->plan;
    sli_param_place *place =
        sli_arena_push(&plan->arena, &plan->params, &plan->param_count, &plan->param_capacity, sizeof *plan->params);
    if (!place) return sli_fail_memory("the list of parameters", sizeof *place);
    place->param = *param;
    place->param.name = sli_arena_string(&plan->arena, param->name);
    if (!place->param.name) return sli_fail_memory("the list of parameters", sizeof *place);
    SLI_FAIL_IF((int64_t)param->rows * param->columns > INT32_MAX, SL_ERR_SHAPE,
                "%s: %d x %d values are more than 2^31; make the layer smaller", param->name, param->rows,
                param->columns);
    *index = plan->param_count - 1;
    return SL_OK;
}

sl_status sli_planner_tensor(sli_planner *planner, sli_shape shape, const char *name, int *tensor) {
    sl_plan *plan = planner->plan;
    double bytes = (double)(shape.time ? plan->options.steps : 1) * plan->options.batch * shape.features * 8;
    SLI_FAIL_IF(bytes > (double)((size_t)1 << 48), SL_ERR_SHAPE,
                "tensor %s would take %.3g bytes; plan fewer steps, a smaller batch or fewer units", name, bytes);
    sli_tensor *t = sli_arena_push(&plan->arena, &plan->tensors, &plan->tensor_count, &plan->tensor_capacity,
                                   sizeof *plan->tensors);
    char *copy = sli_arena_string(&plan->arena, name);
    if (!t || !copy) return sli_fail_memory("the list of tensors", sizeof *t);
    t->name = copy;
    t->shape = shape;
    t->producer = t->group = t->input = t->output = t->state = -1;
    t->buffer = t->gradient_buffer = -1;
    *tensor = plan->tensor_count - 1;
    return SL_OK;
}

void sli_emit_init(sli_emit *emit, const sli_layer *layer, sli_op op) {
    memset(emit, 0, sizeof *emit);
    emit->layer = layer;
    emit->problem.op = op;
    emit->problem.layers = 1;
    for (int k = 0; k < SLI_MAX_IN; k++) emit->in[k] = -1;
    for (int k = 0; k < SLI_MAX_OUT; k++) emit->out[k] = -1;
    for (int k = 0; k < SLI_MAX_PARAM; k++) emit->param[k] = -1;
    for (int k = 0; k < SLI_MAX_STATES; k++) emit->state_initial[k] = emit->state_final[k] = -1;
}

static sl_status add_states(sl_plan *plan, sli_step *step, int index) {
    const sli_emit *emit = &step->emit;
    for (int k = 0; k < emit->state_count; k++) {
        sli_state *state = sli_arena_push(&plan->arena, &plan->states, &plan->state_count, &plan->state_capacity,
                                          sizeof *plan->states);
        char *name = sli_arena_string(&plan->arena, emit->state_name[k]);
        if (!state || !name) return sli_fail_memory("the list of states", sizeof *state);
        step->states[k] = plan->state_count - 1;
        *state = (sli_state){.name = name,
                             .step = index,
                             .slot = k,
                             .features = emit->state_features[k],
                             .initial = emit->state_initial[k],
                             .final = emit->state_final[k],
                             .stateful = emit->stateful};
        if (state->final >= 0) {
            plan->tensors[state->final].state = plan->state_count - 1;
            plan->tensors[state->final].producer = index;
        }
    }
    return SL_OK;
}

/* Time of a step: that of its outputs, or of its first input (losses have no output). */
static bool step_has_time(const sl_plan *plan, const sli_emit *emit) {
    if (emit->state_count > 0) return true;
    int tensor = emit->out[0] >= 0 ? emit->out[0] : emit->in[0];
    return plan->tensors[tensor].shape.time;
}

static void fill_problem(const sl_plan *plan, const sli_emit *emit, sli_problem *problem) {
    problem->layers = problem->layers > 0 ? problem->layers : 1;
    problem->batch = plan->options.batch;
    problem->steps = step_has_time(plan, emit) ? plan->options.steps : 0;
    problem->dtype = plan->options.dtype;
    problem->train = plan->train;
    if (emit->takes_mask && problem->steps > 0 && plan->options.masking != SL_MASK_NONE)
        problem->mask = plan->options.masking == SL_MASK_LENGTHS ? SLI_MASK_LENGTHS : SLI_MASK_HOLES;
    if (problem->mask == SLI_MASK_NONE) problem->masked_repeat = false;
}

static void count_use(sl_plan *plan, const sli_step *step, int index) {
    const sli_emit *emit = &step->emit;
    for (int k = 0; k < SLI_MAX_IN; k++)
        if (emit->in[k] >= 0) plan->tensors[emit->in[k]].consumers++;
    for (int k = 0; k < emit->state_count; k++)
        if (emit->state_initial[k] >= 0) plan->tensors[emit->state_initial[k]].consumers++;
    for (int k = 0; k < SLI_MAX_OUT; k++)
        if (emit->out[k] >= 0) plan->tensors[emit->out[k]].producer = index;
}

sl_status sli_planner_emit(sli_planner *planner, const sli_emit *emit) {
    sl_plan *plan = planner->plan;
    sli_step *step =
        sli_arena_push(&plan->arena, &plan->steps, &plan->step_count, &plan->step_capacity, sizeof *plan->steps);
    if (!step) return sli_fail_memory("the list of steps", sizeof *step);
    int index = plan->step_count - 1;
    step->emit = *emit;
    step->emit.layer = NULL;
    step->layer_name = emit->layer ? sli_arena_string(&plan->arena, emit->layer->name) : "";
    step->layer_index = emit->layer ? emit->layer->index : -1;
    if (!step->layer_name) return sli_fail_memory("a layer's name", 64);
    step->problem = emit->problem;
    for (int k = 0; k < SLI_MAX_STATES; k++) step->states[k] = -1;
    step->saved = step->scratch_forward = step->scratch_backward = -1;
    fill_problem(plan, emit, &step->problem);
    char where[160];
    snprintf(where, sizeof where, "layer %s", emit->layer ? emit->layer->name : "loss");
    SLI_TRY(sli_plan_choose(plan, &step->problem, where, &step->kernel, &step->refusals));
    char text[SLI_PROBLEM_TEXT];
    sli_problem_print(&step->problem, text, sizeof text);
    step->text = sli_arena_string(&plan->arena, text);
    if (!step->text) return sli_fail_memory("a problem string", sizeof text);
    if (step->kernel->cost) step->kernel->cost(&step->problem, &plan->caps, &step->cost);
    count_use(plan, step, index);
    return add_states(plan, step, index);
}

static bool continues(const sli_layer *layer, const sli_layer *next) {
    return next->kind == layer->kind && next->input_count == 1 && layer->input_count == 1 &&
           strcmp(next->inputs[0], layer->name) == 0 &&
           memcmp(next->options, layer->options, layer->kind->options_bytes) == 0;
}

int sli_planner_stack(const sli_planner *planner, const sli_layer *layer) {
    sli_layer *const *layers = planner->model->layers;
    int at = layer->index, last = at;
    if (at > 0 && continues(layers[at - 1], layer)) return 1;
    while (last + 1 < planner->model->layer_count && continues(layers[last], layers[last + 1])) last++;
    return last - at + 1;
}

sl_status sli_planner_offer(sli_planner *planner, const sli_layer *layer, const sli_problem *problem) {
    sl_plan *plan = planner->plan;
    sli_emit emit;
    sli_emit_init(&emit, layer, problem->op);
    sli_problem wide = *problem;
    emit.takes_mask = true;
    emit.state_count = 1;
    fill_problem(plan, &emit, &wide);
    const sli_kernel *kernel = NULL;
    sli_refusal *refusals = NULL;
    sl_status status = sli_plan_choose(plan, &wide, layer->name, &kernel, &refusals);
    sli_refusal **tail = &plan->offers;
    while (*tail) tail = &(*tail)->next;
    *tail = refusals;
    if (status != SL_ERR_NO_KERNEL && status != SL_ERR_DEVICE) return status;
    sli_clear_error();
    return SL_OK;
}

/* ------------------------------------------------------------------------------------------------ options -- */
static sl_status resolve_optimizer(sl_optimizer *optimizer) {
    if (optimizer->beta1 == 0) optimizer->beta1 = 0.9;
    if (optimizer->beta2 == 0) optimizer->beta2 = 0.999;
    if (optimizer->rho == 0) optimizer->rho = 0.9;
    if (optimizer->epsilon == 0) optimizer->epsilon = 1e-8;
    if (optimizer->kind == SL_ADAMW && optimizer->weight_decay == 0) optimizer->weight_decay = 0.01;
    bool fine = optimizer->beta1 >= 0 && optimizer->beta1 < 1 && optimizer->beta2 >= 0 && optimizer->beta2 < 1 &&
                optimizer->rho >= 0 && optimizer->rho < 1 && optimizer->epsilon > 0 && optimizer->momentum >= 0 &&
                optimizer->momentum < 1 && optimizer->weight_decay >= 0;
    SLI_FAIL_IF(!fine, SL_ERR_INPUT,
                "optimizer: momentum, beta1, beta2, rho must be in [0, 1), epsilon > 0, weight_decay >= 0");
    SLI_FAIL_IF(optimizer->nesterov && optimizer->momentum == 0, SL_ERR_INPUT,
                "optimizer: Nesterov needs a momentum; set momentum, e.g. 0.9");
    return SL_OK;
}

static sl_status check_enums(const sl_plan_options *o) {
    const struct {
        const char *name;
        int value, last;
    } enums[] = {{"dtype", (int)o->dtype, SL_F64},
                 {"masking", (int)o->masking, SL_MASK_STEPS},
                 {"loss", (int)o->loss, SL_LOSS_MSE},
                 {"reduction", (int)o->reduction, SL_REDUCE_SUM_TIME},
                 {"optimizer.kind", (int)o->optimizer.kind, SL_RMSPROP},
                 {"clip.kind", (int)o->clip.kind, SL_CLIP_GLOBAL_NORM}};
    for (size_t k = 0; k < sizeof enums / sizeof *enums; k++)
        SLI_FAIL_IF(enums[k].value < 0 || enums[k].value > enums[k].last, SL_ERR_USAGE,
                    "%s is %d; use one of the names in sluice.h", enums[k].name, enums[k].value);
    return SL_OK;
}

static sl_status resolve_options(sl_plan *plan, const sl_plan_options *given) {
    sl_plan_options *options = &plan->options;
    if (given) *options = *given;
    options->allocator = &plan->allocator;
    if (options->batch == 0) options->batch = 1;
    if (options->steps == 0) options->steps = 1;
    SLI_FAIL_IF(options->batch < 0 || options->batch > 1 << 24, SL_ERR_SHAPE, "batch is %d; it must be 1 to 2^24",
                options->batch);
    SLI_FAIL_IF(options->steps < 0 || options->steps > 1 << 30, SL_ERR_SHAPE, "steps is %d; it must be 1 to 2^30",
                options->steps);
    SLI_FAIL_IF(options->threads < 0 || options->threads > 4096, SL_ERR_INPUT, "threads is %d; it must be 0 to 4096",
                options->threads);
    SLI_TRY(check_enums(options));
    if (options->dtype == SL_DTYPE_DEFAULT) options->dtype = SL_F32;
    if (options->loss == SL_LOSS_NONE) options->reduction = SL_REDUCE_MEAN;
    options->device = sli_arena_string(&plan->arena, options->device && *options->device ? options->device : "auto");
    const char *require = options->require && *options->require ? options->require : NULL;
    options->require = require ? sli_arena_string(&plan->arena, require) : NULL;
    if (!options->device || (require && !options->require)) return sli_fail_memory("the plan's options", 64);
    plan->train = options->train != 0;
    plan->element = options->dtype == SL_F64 ? sizeof(double) : sizeof(float);
    SLI_FAIL_IF(options->clip.kind != SL_CLIP_NONE && !(options->clip.value > 0), SL_ERR_INPUT,
                "gradient clipping at %g; the value must be positive", options->clip.value);
    return plan->train ? resolve_optimizer(&options->optimizer) : SL_OK;
}

static const sli_device_ops *find_ops(const char *name) {
    if (strcmp(name, "auto") == 0) name = "cpu";
    for (const sli_device_ops *const *ops = sli_registry_get()->devices; *ops; ops++) {
        size_t length = strlen((*ops)->name);
        if (strncmp(name, (*ops)->name, length) == 0 && (name[length] == 0 || name[length] == ':')) return *ops;
    }
    return NULL;
}

static sl_status resolve_device(sl_plan *plan) {
    const char *name = strcmp(plan->options.device, "auto") == 0 ? "cpu" : plan->options.device;
    plan->ops = find_ops(name);
    if (!plan->ops) return sli_fail(SL_ERR_DEVICE, "there is no device called \"%s\"; see `sluice devices`", name);
    SLI_TRY(plan->ops->caps(name, plan->options.threads, &plan->caps));
    plan->options.threads = plan->caps.threads;
    if (plan->caps.invented) return SL_OK;
    return plan->ops->open(&plan->caps, &plan->allocator, &plan->device);
}

/* ------------------------------------------------------------------------------------------------- layers -- */
static sl_status emit_layer(sli_planner *planner, const sli_layer *layer) {
    sl_plan *plan = planner->plan;
    int inputs[SLI_MAX_IN], *outputs = &plan->layer_tensor[layer->index * SLI_LAYER_MAX_OUT];
    for (int k = 0; k < layer->input_count; k++) {
        int output;
        int source = sli_model_find_tensor(planner->model, layer->inputs[k], &output);
        inputs[k] = plan->layer_tensor[source * SLI_LAYER_MAX_OUT + output];
    }
    return layer->kind->emit(planner, layer, inputs, outputs);
}

/* Model inputs are the tensors that no step writes; they get an index in the order of their layers. */
static sl_status note_inputs(sl_plan *plan, const sl_model *model) {
    plan->inputs = sli_arena_alloc(&plan->arena, sizeof(int) * (size_t)(model->layer_count + 1));
    if (!plan->inputs) return sli_fail_memory("the plan's inputs", sizeof(int) * (size_t)model->layer_count);
    for (int i = 0; i < model->layer_count; i++) {
        if (strcmp(model->layers[i]->kind->class_name, "InputLayer") != 0) continue;
        int tensor = plan->layer_tensor[i * SLI_LAYER_MAX_OUT];
        plan->tensors[tensor].input = plan->input_count;
        plan->inputs[plan->input_count++] = tensor;
    }
    return SL_OK;
}

/* Two outputs may be the same numbers (a layer and its state); each gets its own tensor. */
static sl_status emit_copy(sli_planner *planner, const char *name, int *tensor) {
    sli_emit emit;
    sli_emit_init(&emit, NULL, SLI_OP_MERGE);
    sli_shape shape = sli_planner_shape(planner, *tensor);
    emit.problem.units = emit.problem.parts_units[0] = shape.features;
    emit.problem.parts = 1;
    emit.in[SLI_MERGE_PART0] = *tensor;
    SLI_TRY(sli_planner_tensor(planner, shape, name, tensor));
    emit.out[SLI_MERGE_Y] = *tensor;
    return sli_planner_emit(planner, &emit);
}

static sl_status note_outputs(sli_planner *planner) {
    sl_plan *plan = planner->plan;
    const sl_model *model = planner->model;
    const char *last[1] = {model->layers[model->layer_count - 1]->name};
    const char *const *names = model->outputs ? model->outputs : last;
    int count = model->outputs ? model->output_count : 1;
    plan->outputs = sli_arena_alloc(&plan->arena, sizeof(int) * (size_t)count);
    plan->output_names = sli_arena_alloc(&plan->arena, sizeof(char *) * (size_t)count);
    if (!plan->outputs || !plan->output_names)
        return sli_fail_memory("the plan's outputs", sizeof(char *) * (size_t)count);
    for (int k = 0; k < count; k++) {
        int output, layer = sli_model_find_tensor(model, names[k], &output);
        SLI_FAIL_IF(layer < 0, SL_ERR_UNKNOWN, "output \"%s\" is no tensor of the model; name a layer or its state",
                    names[k]);
        int tensor = plan->layer_tensor[layer * SLI_LAYER_MAX_OUT + output];
        SLI_FAIL_IF(plan->tensors[tensor].shape.integer, SL_ERR_SHAPE, "output \"%s\" holds tokens; add a layer to it",
                    names[k]);
        if (plan->tensors[tensor].output >= 0) SLI_TRY(emit_copy(planner, names[k], &tensor));
        plan->tensors[tensor].output = k;
        plan->outputs[k] = tensor;
        plan->output_names[k] = sli_arena_string(&plan->arena, names[k]);
        if (!plan->output_names[k]) return sli_fail_memory("the plan's outputs", 64);
    }
    plan->output_count = count;
    return SL_OK;
}

static sl_status emit_loss(sli_planner *planner) {
    sl_plan *plan = planner->plan;
    static const sli_op ops[] = {SLI_OP_XENT, SLI_OP_XENT, SLI_OP_BCE, SLI_OP_MSE};
    plan->loss_step = -1;
    if (plan->options.loss == SL_LOSS_NONE) return SL_OK;
    sli_emit emit;
    sli_emit_init(&emit, NULL, ops[plan->options.loss]);
    emit.in[SLI_LOSS_Z] = plan->outputs[0];
    emit.problem.units = plan->tensors[plan->outputs[0]].shape.features;
    emit.problem.reduction = plan->options.reduction;
    emit.takes_mask = true;
    SLI_TRY(sli_planner_emit(planner, &emit));
    plan->loss_step = plan->step_count - 1;
    return SL_OK;
}

static sl_status choose_update(sl_plan *plan) {
    if (!plan->train || plan->param_count == 0) return SL_OK;
    sli_problem *norm = &plan->norm_problem, *optimizer = &plan->optimizer_problem;
    *norm = (sli_problem){.op = SLI_OP_NORM,
                          .layers = 1,
                          .elements = (int64_t)plan->param_elements,
                          .train = true,
                          .dtype = plan->options.dtype,
                          .clip = plan->options.clip};
    *optimizer = *norm;
    optimizer->op = SLI_OP_OPTIM;
    optimizer->optimizer = plan->options.optimizer;
    SLI_TRY(sli_plan_choose(plan, norm, "clipping", &plan->norm, &plan->norm_refusals));
    SLI_TRY(sli_plan_choose(plan, optimizer, "optimizer", &plan->optimizer, &plan->optimizer_refusals));
    if (plan->norm->book) plan->norm->book(norm, &plan->caps, 1, &plan->norm_booking);
    if (plan->optimizer->book) plan->optimizer->book(optimizer, &plan->caps, 1, &plan->optimizer_booking);
    return SL_OK;
}

/* Parameters lie one behind the other, each on a SLI_ALIGN boundary; the padding is zero and stays zero. */
static void place_params(sl_plan *plan) {
    size_t at = 0;
    for (int i = 0; i < plan->param_count; i++) {
        sli_param_place *place = &plan->params[i];
        place->offset = at;
        at += sli_round_up((size_t)place->param.rows * (size_t)place->param.columns, SLI_ALIGN / sizeof(float));
    }
    plan->param_elements = at;
    plan->slots = plan->train ? sli_optimizer_slots(&plan->options.optimizer) : 0;
}

static sl_status plan_model(sl_plan *plan, const sl_model *model) {
    sli_planner planner = {plan, model};
    size_t layers = (size_t)model->layer_count;
    SLI_FAIL_IF(layers == 0, SL_ERR_INPUT, "the model has no layers; add an input and a layer before planning");
    plan->layer_count = model->layer_count;
    plan->shapes = sli_arena_alloc(&plan->arena, sizeof *plan->shapes * layers);
    plan->layer_tensor = sli_arena_alloc(&plan->arena, sizeof(int) * layers * SLI_LAYER_MAX_OUT);
    if (!plan->shapes || !plan->layer_tensor) return sli_fail_memory("the plan", sizeof *plan->shapes * layers);
    SLI_TRY(sli_model_shapes(model, plan->shapes));
    for (int i = 0; i < model->layer_count; i++) SLI_TRY(emit_layer(&planner, model->layers[i]));
    SLI_TRY(note_inputs(plan, model));
    SLI_TRY(note_outputs(&planner));
    SLI_TRY(emit_loss(&planner));
    place_params(plan);
    SLI_TRY(choose_update(plan));
    SLI_TRY(sli_plan_groups(plan));
    SLI_TRY(sli_plan_gradients(plan));
    SLI_TRY(sli_plan_fit_memory(plan));
    for (int i = 0; i < plan->step_count; i++) plan->flops += plan->steps[i].cost.flops;
    return sli_plan_describe(plan);
}

sl_status sl_plan_new(const sl_model *model, const sl_plan_options *options, sl_plan **out) {
    SLI_FAIL_IF(!out, SL_ERR_USAGE, "sl_plan_new: plan is NULL; pass the address of a pointer");
    *out = NULL;
    SLI_FAIL_IF(!model, SL_ERR_USAGE, "sl_plan_new: model is NULL; describe a model first");
    sl_allocator allocator = sli_allocator_or_default(options ? options->allocator : NULL);
    sl_plan *plan = sli_alloc_zero(&allocator, sizeof *plan);
    if (!plan) return sli_fail_memory("a plan", sizeof *plan);
    plan->allocator = allocator;
    sli_arena_init(&plan->arena, &plan->allocator);
    sl_status status = resolve_options(plan, options);
    if (status == SL_OK) status = resolve_device(plan);
    if (status == SL_OK) status = plan_model(plan, model);
    if (status != SL_OK) {
        sl_plan_free(plan);
        return status;
    }
    *out = plan;
    return SL_OK;
}

void sl_plan_free(sl_plan *plan) {
    if (!plan) return;
    if (plan->device) plan->ops->close(plan->device);
    sl_allocator allocator = plan->allocator;
    sli_arena_free(&plan->arena);
    sli_free(&allocator, plan, sizeof *plan);
}

void sl_plan_memory(const sl_plan *plan, sl_memory *memory) {
    *memory = plan->memory;
}
const char *sl_plan_explain(const sl_plan *plan) {
    return plan->explanation;
}
const char *sl_plan_explain_json(const sl_plan *plan) {
    return plan->explanation_json;
}
const char *sl_plan_kernels(const sl_plan *plan) {
    return plan->kernels;
}
int sl_plan_threads(const sl_plan *plan) {
    return plan->options.threads;
}
double sl_plan_flops(const sl_plan *plan) {
    return plan->flops;
}
