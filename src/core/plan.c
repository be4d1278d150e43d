/* From a description to a plan: layers declare tensors, parameters and steps; then kernels, groups, memory, explanation. */
#include "core/plan.h"

#include <stdarg.h>
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

/* Where AMX does not gain by six products of bf16 for one of f32: there is none, or steps multiply few rows. */
static bool f32x3_is_f32(const sl_plan *plan, sli_op op) {
    enum { FEW_ROWS = 8 };
    if (plan->caps.kind != SLI_DEVICE_CPU) return false;
    return plan->caps.isa != SLI_ISA_AMX || (sli_op_is_recurrent(op) && plan->options.batch < FEW_ROWS);
}

/* The dtype of a plan is that of its products: on CPUs, what multiplies nothing is f32 where they are i8, bf16 or f32x3; and f32x3 is
 * f32 where AMX does not gain by it. */
static sl_dtype dtype_of(const sl_plan *plan, sli_op op) {
    const sl_dtype dtype = plan->options.dtype;
    const bool cpu = plan->caps.kind == SLI_DEVICE_CPU;
    if (dtype == SL_F32X3 && f32x3_is_f32(plan, op)) return SL_F32;
    const bool products = dtype == SL_I8 || (cpu && (dtype == SL_BF16 || dtype == SL_F32X3));
    return products && !sli_op_multiplies(op) ? SL_F32 : dtype;
}

static void fill_problem(const sl_plan *plan, const sli_emit *emit, sli_problem *problem) {
    problem->layers = problem->layers > 0 ? problem->layers : 1;
    problem->batch = plan->options.batch;
    problem->steps = step_has_time(plan, emit) ? plan->options.steps : 0;
    problem->dtype = dtype_of(plan, problem->op);
    problem->train = plan->train;
    if (emit->takes_mask && problem->steps > 0 && plan->options.masking != SL_MASK_NONE)
        problem->mask = plan->options.masking == SL_MASK_LENGTHS ? SLI_MASK_LENGTHS : SLI_MASK_HOLES;
    if (problem->mask == SLI_MASK_NONE) problem->masked_repeat = false;
    problem->narrow =
        plan->options.narrow_parameters && (sli_op_multiplies(problem->op) || problem->op == SLI_OP_EMBED);
    problem->narrow_io = plan->options.narrow_tensors && problem->steps > 0;
    problem->recompute = sli_op_is_recurrent(problem->op) && plan->train && plan->options.recompute_gates;
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

static sl_status name_step(sl_plan *plan, const sli_emit *emit, const char **name) {
    char text[2 * 100 + 8] = "";
    if (emit->layer)
        snprintf(text, sizeof text, emit->last ? "%s..%s" : "%s", emit->layer->name,
                 emit->last ? emit->last->name : "");
    *name = sli_arena_string(&plan->arena, text);
    return *name ? SL_OK : sli_fail_memory("a layer's name", sizeof text);
}

sl_status sli_planner_emit(sli_planner *planner, const sli_emit *emit) {
    sl_plan *plan = planner->plan;
    sli_step *step =
        sli_arena_push(&plan->arena, &plan->steps, &plan->step_count, &plan->step_capacity, sizeof *plan->steps);
    if (!step) return sli_fail_memory("the list of steps", sizeof *step);
    int index = plan->step_count - 1;
    step->emit = *emit;
    step->emit.layer = step->emit.last = NULL;
    SLI_TRY(name_step(plan, emit, &step->layer_name));
    step->layer_index = emit->layer ? emit->layer->index : -1;
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
    const sli_choice *choice = sli_choice_for(plan, step->text);
    step->choice = choice && choice->obeyed ? choice : NULL;
    step->problem.cut = step->choice && sli_choice_is_of(choice, step->kernel) ? choice->cut : 0;
    if (step->kernel->cost) step->kernel->cost(&step->problem, &plan->caps, &step->cost);
    step->seconds = sli_kernel_seconds(step->kernel, &step->problem, &plan->caps);
    count_use(plan, step, index);
    return add_states(plan, step, index);
}

/* ---------------------------------------------------------------------------------------------- wide steps -- */
static bool is_input(const sli_layer *layer) {
    return strcmp(layer->kind->class_name, "InputLayer") == 0;
}

static bool is_model_output(const sl_model *model, const char *name) {
    if (!model->outputs) return strcmp(model->layers[model->layer_count - 1]->name, name) == 0;
    for (int k = 0; k < model->output_count; k++)
        if (strcmp(model->outputs[k], name) == 0) return true;
    return false;
}

static int count_readers(const sl_model *model, const char *name) {
    int count = 0;
    for (int i = 0; i < model->layer_count; i++)
        for (int k = 0; k < model->layers[i]->input_count; k++) count += strcmp(model->layers[i]->inputs[k], name) == 0;
    return count;
}

const sli_layer *sli_planner_next(const sli_planner *planner, const sli_layer *layer) {
    const sl_model *model = planner->model;
    int at = layer->index + 1;
    if (layer->index <= planner->offered) return NULL;
    while (at < model->layer_count && is_input(model->layers[at])) at++;
    if (at == model->layer_count) return NULL;
    const sli_layer *next = model->layers[at];
    bool reads = next->input_count > 0 && strcmp(next->inputs[0], layer->name) == 0;
    return reads && count_readers(model, layer->name) == 1 && !is_model_output(model, layer->name) ? next : NULL;
}

int sli_planner_input(const sli_planner *planner, const sli_layer *layer, int k) {
    int output, source = sli_model_find_tensor(planner->model, layer->inputs[k], &output);
    if (source < 0 || !planner->emitted[source]) return -1;
    return planner->plan->layer_tensor[source * SLI_LAYER_MAX_OUT + output];
}

int *sli_planner_outputs(sli_planner *planner, const sli_layer *layer) {
    planner->emitted[layer->index] = true;
    return &planner->plan->layer_tensor[layer->index * SLI_LAYER_MAX_OUT];
}

/* A recurrent problem as it will be planned. */
static sli_problem planned(const sl_plan *plan, const sli_layer *layer, const sli_problem *problem) {
    sli_emit emit;
    sli_problem filled = *problem;
    sli_emit_init(&emit, layer, problem->op);
    emit.takes_mask = true;
    emit.state_count = 1;
    fill_problem(plan, &emit, &filled);
    return filled;
}

double sli_planner_seconds(sli_planner *planner, const sli_layer *layer, const sli_problem *problem) {
    sl_plan *plan = planner->plan;
    sli_problem filled = planned(plan, layer, problem);
    const sli_kernel *kernel;
    sli_refusal *refusals;
    if (sli_plan_choose(plan, &filled, layer->name, &kernel, &refusals) == SL_OK)
        return sli_kernel_seconds(kernel, &filled, &plan->caps);
    sli_clear_error();
    return -1;
}

sl_status sli_planner_offer(sli_planner *planner, const sli_layer *first, const sli_layer *last,
                            const sli_problem *problem, double parts, bool *taken) {
    sl_plan *plan = planner->plan;
    sli_problem wide = planned(plan, first, problem);
    const bool together =
        wide.bidirectional && wide.narrow_io; /* no row merges directions of 16 bits that come apart */
    *taken = false;
    if (together)
        SLI_TRY(sli_plan_offer(plan, sli_registry_get()->kernels, &wide, -1, taken));
    else if (plan->lean)
        SLI_TRY(
            sli_plan_keep_out(plan, NULL, &wide,
                              plan->lean == SLI_LEAN_STEP
                                  ? "no plan with it fits the memory limit; its layers, one by one and step by step, do"
                                  : "no plan with it fits the memory limit; its layers and directions one by one do",
                              false));
    else if (plan->caps.recomputes && wide.bidirectional)
        SLI_TRY(sli_plan_keep_out(plan, NULL, &wide,
                                  "the memory limit cuts the sequence into segments, both directions at once cannot "
                                  "be cut; a larger limit makes it one step",
                                  false));
    else
        SLI_TRY(sli_plan_offer(plan, sli_registry_get()->kernels, &wide, parts, taken));
    if (!*taken && planner->offered < last->index) planner->offered = last->index;
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
                optimizer->momentum < 1 && optimizer->weight_decay >= 0 && optimizer->weight_decay <= 1e6;
    SLI_FAIL_IF(!fine, SL_ERR_INPUT,
                "optimizer: momentum, beta1, beta2, rho must be in [0, 1), epsilon > 0, weight_decay in [0, 1e6]");
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
                 {"clip.kind", (int)o->clip.kind, SL_CLIP_GLOBAL_NORM},
                 {"tune", (int)o->tune, SL_TUNE_AGAIN}};
    for (size_t k = 0; k < sizeof enums / sizeof *enums; k++)
        SLI_FAIL_IF(enums[k].value < 0 || enums[k].value > enums[k].last, SL_ERR_USAGE,
                    "%s is %d; use one of the names in sluice.h", enums[k].name, enums[k].value);
    return SL_OK;
}

static sl_status resolve_options(sl_plan *plan, const sl_plan_options *given) {
    sl_plan_options *options = &plan->options;
    if (given) *options = *given;
    options->allocator = &plan->allocator;
    SLI_TRY(sli_choices_read(plan, options->choices));
    options->choices = NULL; /* the caller's */
    if (options->batch == 0) options->batch = 1;
    if (options->steps == 0) options->steps = 1;
    SLI_FAIL_IF(options->batch < 0 || options->batch > 1 << 24, SL_ERR_SHAPE, "batch is %d; it must be 1 to 2^24",
                options->batch);
    SLI_FAIL_IF(options->steps < 0 || options->steps > 1 << 30, SL_ERR_SHAPE, "steps is %d; it must be 1 to 2^30",
                options->steps);
    SLI_FAIL_IF(options->threads < 0 || options->threads > 4096, SL_ERR_INPUT, "threads is %d; it must be 0 to 4096",
                options->threads);
    SLI_FAIL_IF(options->thread_pool && !options->thread_pool->parallel_for, SL_ERR_INPUT,
                "thread_pool has no parallel_for; give one, or NULL for threads of Sluice's own");
    SLI_TRY(check_enums(options));
    if (options->dtype == SL_DTYPE_DEFAULT) options->dtype = SL_F32;
    if (options->loss == SL_LOSS_NONE) options->reduction = SL_REDUCE_MEAN;
    options->device = sli_arena_string(&plan->arena, options->device && *options->device ? options->device : "auto");
    const char *require = options->require && *options->require ? options->require : NULL;
    options->require = require ? sli_arena_string(&plan->arena, require) : NULL;
    if (!options->device || (require && !options->require)) return sli_fail_memory("the plan's options", 64);
    plan->train = options->train != 0;
    SLI_FAIL_IF(plan->train && options->dtype == SL_I8, SL_ERR_INPUT,
                "i8 is for inference: rounded to 8 bits, weights would not see the small steps of training; train in "
                "another dtype, then evaluate or generate with i8");
    plan->element = options->dtype == SL_F64 ? sizeof(double) : sizeof(float);
    options->narrow_parameters = options->narrow_parameters != 0;
    options->narrow_tensors = options->narrow_tensors != 0;
    const bool narrow = options->narrow_parameters || options->narrow_tensors;
    const char *which = options->narrow_parameters ? "narrow_parameters" : "narrow_tensors";
    SLI_FAIL_IF(
        narrow && options->dtype != SL_BF16 && options->dtype != SL_F16, SL_ERR_INPUT,
        "%s: nothing is narrower than operands of products, and those of %s have 32 bits; plan with bf16 or f16", which,
        sli_dtype_name(options->dtype));
    SLI_FAIL_IF(narrow && options->loss != SL_LOSS_NONE, SL_ERR_USAGE,
                "%s: losses of Sluice and its optimizers work on f32; plan without a loss, or without %s", which,
                which);
    plan->weight = options->narrow_parameters ? sizeof(uint16_t) : plan->element;
    SLI_FAIL_IF(options->clip.kind != SL_CLIP_NONE && !(options->clip.value > 0), SL_ERR_INPUT,
                "gradient clipping at %g; the value must be positive", options->clip.value);
    return plan->train ? resolve_optimizer(&options->optimizer) : SL_OK;
}

static const sli_device_ops *find_ops(const char *name) {
    for (const sli_device_ops *const *ops = sli_registry_get()->devices; *ops; ops++) {
        size_t length = strlen((*ops)->name);
        if (strncmp(name, (*ops)->name, length) == 0 && (name[length] == 0 || name[length] == ':')) return *ops;
    }
    return NULL;
}

/* Free memory is read before kernels are loaded and handles, graphs and events are made, which lie beside a plan's own blocks and
 * take up to some hundred MiB. Of a GPU that is nearly full not all of the rest is set aside. */
static size_t gpu_room(size_t free_memory) {
    const size_t most = (size_t)512 << 20, tenth = free_memory / 10;
    return free_memory - (tenth < most ? tenth : most);
}

/* "auto": the first GPU that can be used, unless what is asked for is only computed on the CPU. A GPU that is left aside for another
 * reason gets a note. */
static sl_status automatic_device(sl_plan *plan, char *name, size_t capacity) {
    const sl_plan_options *options = &plan->options;
    const char *require = options->require ? options->require : "";
    const bool of_cpu = options->dtype == SL_F64 || options->dtype == SL_I8 || strcmp(require, "ref") == 0 ||
                        strncmp(require, "cpu:", 4) == 0;
    const sli_device_ops *cuda = of_cpu ? NULL : find_ops("cuda:0");
    char text[512];
    bool usable;
    for (int index = 0; cuda; index++) {
        sli_caps caps;
        snprintf(name, capacity, "cuda:%d", index);
        if (cuda->caps(name, options->threads, &caps) == SL_OK) return SL_OK;
        sli_clear_error();
        if (!cuda->describe(index + 1, name, capacity, text, sizeof text, &usable)) break;
    }
    snprintf(name, capacity, "cpu");
    if (cuda && cuda->unusable && cuda->unusable(text, sizeof text))
        return sli_plan_note(plan, "device auto is the CPU: %s", text);
    return SL_OK;
}

bool sli_plan_why_cpu(const sl_plan *plan, char *text, size_t capacity) {
    const sli_device_ops *cuda = find_ops("cuda:0");
    char name[32];
    bool usable = false;
    if (strcmp(plan->options.device, "auto") != 0 || plan->caps.kind != SLI_DEVICE_CPU) return false;
    if (!cuda)
        snprintf(text, capacity, "this build has no CUDA");
    else if (!cuda->describe(0, name, sizeof name, text, capacity, &usable))
        snprintf(text, capacity, "there is none");
    else if (usable)
        snprintf(text, capacity, "%s is computed on the CPU alone", sli_dtype_name(plan->options.dtype));
    return true;
}

static sl_status resolve_device(sl_plan *plan) {
    sli_caps *caps = &plan->caps;
    char found[sizeof caps->name];
    const char *name = plan->options.device;
    if (strcmp(name, "auto") == 0) {
        SLI_TRY(automatic_device(plan, found, sizeof found));
        name = found;
    }
    if (strcmp(name, "cuda") == 0) name = "cuda:0";
    plan->ops = find_ops(name);
    if (!plan->ops) return sli_fail(SL_ERR_UNKNOWN, "there is no device called \"%s\"; see `sluice devices`", name);
    SLI_TRY(plan->ops->caps(name, plan->options.threads, caps));
    if (plan->options.thread_pool) caps->pool = *plan->options.thread_pool;
    plan->options.thread_pool = NULL; /* the caller's */
    caps->graphs = plan->ops->record_begin && !plan->options.no_graph;
    plan->options.threads = caps->threads;
    plan->memory_limit = plan->options.memory_limit;
    if (!caps->invented) SLI_TRY(plan->ops->open(caps, &plan->allocator, &plan->device));
    const size_t free_memory =
        caps->invented ? caps->memory : caps->free_memory; /* nothing else runs on an invented one */
    if (caps->kind != SLI_DEVICE_CUDA || free_memory == 0) return SL_OK;
    size_t room = gpu_room(free_memory);
    if (plan->memory_limit == 0 || plan->memory_limit > room) plan->memory_limit = room;
    return SL_OK;
}

/* ------------------------------------------------------------------------------------------------- layers -- */
static sl_status emit_layer(sli_planner *planner, const sli_layer *layer) {
    sl_plan *plan = planner->plan;
    int inputs[SLI_LAYER_MAX_IN], *outputs = &plan->layer_tensor[layer->index * SLI_LAYER_MAX_OUT];
    for (int k = 0; k < layer->input_count; k++) inputs[k] = sli_planner_input(planner, layer, k);
    SLI_TRY(layer->kind->emit(planner, layer, inputs, outputs));
    planner->emitted[layer->index] = true;
    return SL_OK;
}

/* Model inputs are the tensors that no step writes; they get an index in the order of their layers. */
static sl_status note_inputs(sl_plan *plan, const sl_model *model) {
    plan->inputs = sli_arena_alloc(&plan->arena, sizeof(int) * (size_t)(model->layer_count + 1));
    if (!plan->inputs) return sli_fail_memory("the plan's inputs", sizeof(int) * (size_t)model->layer_count);
    for (int i = 0; i < model->layer_count; i++) {
        if (!is_input(model->layers[i])) continue;
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
    plan->loss_step = plan->loss_taker = -1;
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
    if (!plan->train || plan->param_count == 0 || plan->options.narrow_parameters) return SL_OK;
    sli_problem *norm = &plan->norm_problem, *optimizer = &plan->optimizer_problem;
    *norm = (sli_problem){.op = SLI_OP_NORM,
                          .layers = 1,
                          .elements = (int64_t)plan->param_elements,
                          .train = true,
                          .dtype = dtype_of(plan, SLI_OP_NORM),
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
    const size_t each = SLI_ALIGN / (plan->options.narrow_parameters ? plan->weight : sizeof(float));
    size_t at = 0;
    for (int i = 0; i < plan->param_count; i++) {
        sli_param_place *place = &plan->params[i];
        place->offset = at;
        at += sli_round_up((size_t)place->param.rows * (size_t)place->param.columns, each);
    }
    plan->param_elements = at;
    plan->slots = plan->train && !plan->options.narrow_parameters ? sli_optimizer_slots(&plan->options.optimizer) : 0;
}

/* Inputs first: a stack of layers takes initial states that the model names between them. */
static sl_status emit_layers(sli_planner *planner) {
    const sl_model *model = planner->model;
    for (int i = 0; i < model->layer_count; i++)
        if (is_input(model->layers[i])) SLI_TRY(emit_layer(planner, model->layers[i]));
    for (int i = 0; i < model->layer_count; i++)
        if (!planner->emitted[i]) SLI_TRY(emit_layer(planner, model->layers[i]));
    return SL_OK;
}

/* The part that every plan begins with; *planner is for what comes behind the layers. */
static sl_status emit_model(sl_plan *plan, const sl_model *model, sli_planner *planner) {
    size_t layers = (size_t)model->layer_count;
    SLI_FAIL_IF(layers == 0, SL_ERR_INPUT, "the model has no layers; add an input and a layer before planning");
    plan->layer_count = model->layer_count;
    plan->shapes = sli_arena_alloc(&plan->arena, sizeof *plan->shapes * layers);
    plan->layer_tensor = sli_arena_alloc(&plan->arena, sizeof(int) * layers * SLI_LAYER_MAX_OUT);
    *planner = (sli_planner){plan, model, sli_arena_alloc(&plan->arena, sizeof(bool) * layers), -1};
    if (!plan->shapes || !plan->layer_tensor || !planner->emitted)
        return sli_fail_memory("the plan", sizeof *plan->shapes * layers);
    SLI_TRY(sli_model_shapes(model, plan->shapes));
    return emit_layers(planner);
}

sl_status sli_plan_list_params(const sl_plan *like, const sl_model *model, sl_plan *list) {
    sli_planner planner;
    *list = (sl_plan){.allocator = like->allocator,
                      .options = like->options,
                      .caps = like->caps,
                      .ops = like->ops,
                      .train = like->train,
                      .element = like->element,
                      .weight = like->weight};
    list->options.require = NULL; /* which rows compute is not asked */
    sli_arena_init(&list->arena, &list->allocator);
    return emit_model(list, model, &planner);
}

static sl_status build_steps(sl_plan *plan, const sl_model *model) {
    sli_planner planner;
    SLI_TRY(emit_model(plan, model, &planner));
    SLI_TRY(note_inputs(plan, model));
    SLI_TRY(note_outputs(&planner));
    SLI_TRY(emit_loss(&planner));
    place_params(plan);
    SLI_TRY(choose_update(plan));
    SLI_TRY(sli_plan_groups(plan));
    return sli_plan_gradients(plan);
}

sl_status sli_plan_build(sl_plan *plan, const sl_model *model) {
    SLI_TRY(build_steps(plan, model));
    return sli_plan_fit_memory(plan);
}

/* Back to what the options alone decide. */
static void forget(sl_plan *plan) {
    sl_plan fresh = {.allocator = plan->allocator,
                     .arena = plan->arena,
                     .options = plan->options,
                     .caps = plan->caps,
                     .ops = plan->ops,
                     .device = plan->device,
                     .memory_limit = plan->memory_limit,
                     .unready = plan->unready,
                     .train = plan->train,
                     .element = plan->element,
                     .weight = plan->weight,
                     .choices = plan->choices,
                     .choice_count = plan->choice_count,
                     .choice_capacity = plan->choice_capacity,
                     .notes = plan->notes,
                     .note_count = plan->notes_given,
                     .note_capacity = plan->note_capacity,
                     .notes_given = plan->notes_given};
    *plan = fresh;
    sli_choices_forget(plan);
}

sl_status sli_plan_build_again(sl_plan *plan, const sl_model *model, int k) {
    sli_clear_error();
    forget(plan);
    plan->caps.recomputes = k & 1;
    plan->lean = (sli_lean)(k / 2);
    return sli_plan_build(plan, model);
}

/* Rows that have not what they need are out for good; those that a plan for the memory limit left out are not: the next may be another. */
static sl_status build_and_ask(sl_plan *plan, const sl_model *model, bool *all) {
    sli_refusal *const unready = plan->unready;
    SLI_TRY(sli_plan_build_to_fit(plan, model));
    sli_refusal *const left_out = plan->unready;
    SLI_TRY(sli_plan_ready(plan, all));
    if (*all) return SL_OK;
    sli_refusal **tail = &plan->unready;
    while (*tail != left_out) tail = &(*tail)->next;
    *tail = unready;
    return SL_OK;
}

/* Until the rows that are taken have what they need: each time there are fewer to take. */
static sl_status build_ready(sl_plan *plan, const sl_model *model) {
    bool all = false;
    SLI_TRY(build_and_ask(plan, model, &all));
    while (!all) {
        forget(plan);
        plan->caps.recomputes = false;
        SLI_TRY(build_and_ask(plan, model, &all));
    }
    return SL_OK;
}

/* No update leaves parameters out, so a frozen layer would be trained all the same. */
static sl_status check_frozen(const sl_plan *plan, const sl_model *model) {
    for (int i = 0; plan->train && i < model->layer_count; i++)
        SLI_FAIL_IF(
            model->layers[i]->frozen && model->layers[i]->kind->has_params, SL_ERR_INPUT,
            "layer %s is frozen, and Sluice trains all parameters; set its \"trainable\" to true or leave it out",
            model->layers[i]->name);
    return SL_OK;
}

static sl_status plan_model(sl_plan *plan, const sl_model *model) {
    SLI_TRY(check_frozen(plan, model));
    SLI_TRY(build_ready(plan, model));
    sli_plan_fresh(plan);
    sli_plan_early(plan);
    sli_plan_copies(plan);
    for (int i = 0; i < plan->step_count; i++) plan->flops += plan->steps[i].cost.flops;
    SLI_TRY(sli_choices_note(plan));
    SLI_TRY(sli_choices_write(plan));
    return sli_plan_describe(plan);
}

/* ---------------------------------------------------------------------------------------------------- making -- */
sl_status sli_plan_note(sl_plan *plan, const char *format, ...) {
    char text[1200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const char **note =
        sli_arena_push(&plan->arena, &plan->notes, &plan->note_count, &plan->note_capacity, sizeof *plan->notes);
    char *kept = sli_arena_string(&plan->arena, text);
    if (!note || !kept) return sli_fail_memory("the plan's notes", sizeof text);
    *note = kept;
    return SL_OK;
}

static sl_status keep_notes(sl_plan *plan, const char *notes) {
    while (notes && *notes) {
        int length = (int)strcspn(notes, "\n");
        if (length > 0) SLI_TRY(sli_plan_note(plan, "%.*s", length, notes));
        notes += length + (notes[length] == '\n');
    }
    plan->notes_given = plan->note_count;
    return SL_OK;
}

static sl_status make_plan(const sl_model *model, const sl_plan_options *options, const char *notes, bool ways_out,
                           sl_plan **out);

static bool would_fit(const sl_plan *plan, const sl_model *model, const sl_plan_options *options, int batch,
                      bool recompute) {
    sl_plan_options other = options ? *options : (sl_plan_options){0};
    sl_plan *made;
    other.batch = batch;
    other.recompute_gates |= recompute;
    other.memory_limit = plan->memory_limit;
    const bool fits = make_plan(model, &other, NULL, false, &made) == SL_OK;
    sl_plan_free(made);
    return fits;
}

/* A plan of fewer rows, or with gates recomputed, may take other kernels: what is told was planned. */
static sl_status tell_ways_out(sl_plan *plan, const sl_model *model, const sl_plan_options *options) {
    sli_ways_out ways;
    SLI_TRY(sli_plan_ways_out(plan, &ways));
    for (int k = 0; ways.batch > 0 && !would_fit(plan, model, options, ways.batch, false); k++)
        ways.batch = k < 4 ? ways.batch / 2 : 0;
    if (ways.recomputed > 0 && !would_fit(plan, model, options, plan->options.batch, true)) ways.recomputed = 0;
    return sli_plan_fail_over_limit(plan, &ways);
}

static sl_status make_plan(const sl_model *model, const sl_plan_options *options, const char *notes, bool ways_out,
                           sl_plan **out) {
    *out = NULL;
    sl_allocator allocator = sli_allocator_or_default(options ? options->allocator : NULL);
    sl_plan *plan = sli_alloc_zero(&allocator, sizeof *plan);
    if (!plan) return sli_fail_memory("a plan", sizeof *plan);
    plan->allocator = allocator;
    sli_arena_init(&plan->arena, &plan->allocator);
    sl_status status = resolve_options(plan, options);
    if (status == SL_OK) status = resolve_device(plan);
    if (status == SL_OK) status = keep_notes(plan, notes);
    if (status == SL_OK) status = plan_model(plan, model);
    if (status == SL_ERR_MEMORY_LIMIT && ways_out) status = tell_ways_out(plan, model, options);
    if (status != SL_OK) {
        sl_plan_free(plan);
        return status;
    }
    *out = plan;
    return SL_OK;
}

sl_status sli_plan_new(const sl_model *model, const sl_plan_options *options, const char *notes, sl_plan **out) {
    return make_plan(model, options, notes, true, out);
}

void sl_plan_free(sl_plan *plan) {
    if (!plan) return;
    if (plan->device) plan->ops->close(plan->device);
    sl_allocator allocator = plan->allocator;
    sli_arena_free(&plan->arena);
    sli_free(&allocator, plan, sizeof *plan);
}

void sl_plan_memory(const sl_plan *plan, sl_memory *memory) {
    if (memory) *memory = plan ? plan->memory : (sl_memory){0};
}
const char *sl_plan_explain(const sl_plan *plan) {
    return plan ? plan->explanation : NULL;
}
const char *sl_plan_explain_json(const sl_plan *plan) {
    return plan ? plan->explanation_json : NULL;
}
const char *sl_plan_kernels(const sl_plan *plan) {
    return plan ? plan->kernels : NULL;
}
const char *sl_plan_notes(const sl_plan *plan) {
    return plan ? plan->notes_text : NULL;
}
const char *sl_plan_device(const sl_plan *plan) {
    return plan ? plan->caps.name : NULL;
}
int sl_plan_threads(const sl_plan *plan) {
    return plan ? plan->options.threads : 0;
}
double sl_plan_flops(const sl_plan *plan) {
    return plan ? plan->flops : 0;
}
