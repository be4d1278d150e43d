/* Dense: y = act(W x + b) at every step; the kernel may be an embedding's table (tied weights). */
#include <stdio.h>

#include "layer/layers.h"

static const sli_field fields[] = {
    {.key = "units", .type = SLI_FIELD_INT, .offset = offsetof(sl_dense, units)},
    {.key = "activation",
     .type = SLI_FIELD_ENUM,
     .offset = offsetof(sl_dense, activation),
     .names = sli_activation_names},
    {.key = "use_bias", .type = SLI_FIELD_NOT_BOOL, .offset = offsetof(sl_dense, no_bias)},
    {.key = "kernel_initializer", .type = SLI_FIELD_INIT, .offset = offsetof(sl_dense, kernel_init)},
    {.key = "bias_initializer", .type = SLI_FIELD_INIT, .offset = offsetof(sl_dense, bias_init)},
    {.key = "tied_to", .type = SLI_FIELD_STRING, .offset = offsetof(sl_dense, tied_to), .in_sluice = true},
    {.key = "kernel_regularizer", .type = SLI_FIELD_NEUTRAL, .reason = "weight penalties are not computed"},
    {.key = "bias_regularizer", .type = SLI_FIELD_NEUTRAL, .reason = "weight penalties are not computed"},
    {.key = "activity_regularizer", .type = SLI_FIELD_NEUTRAL, .reason = "activity penalties are not computed"},
    {.key = "kernel_constraint", .type = SLI_FIELD_NEUTRAL, .reason = "constraints are not applied"},
    {.key = "bias_constraint", .type = SLI_FIELD_NEUTRAL, .reason = "constraints are not applied"},
    {.key = "lora_rank", .type = SLI_FIELD_NEUTRAL, .reason = "LoRA is not supported"},
    {.key = "lora_alpha", .type = SLI_FIELD_NEUTRAL, .reason = "LoRA is not supported"},
    {.key = "quantization_config", .type = SLI_FIELD_NEUTRAL, .reason = "quantised layers are not supported"},
    SLI_FIELDS_END,
};

static sl_status dense_shape(const sli_layer *layer, const sli_shape *inputs, int input_count,
                             sli_layer_outputs *outputs) {
    const sl_dense *options = layer->options;
    SLI_TRY(sli_layer_need_inputs(layer, input_count, 1, 1));
    SLI_TRY(sli_layer_need_float(layer, &inputs[0]));
    SLI_TRY(sli_layer_need_size(layer, "units", options->units));
    SLI_TRY(sli_layer_need_enum(layer, "activation", (int)options->activation, SL_ACT_SOFTSIGN));
    SLI_TRY(sli_layer_need_init(layer, "kernel_init", options->kernel_init));
    SLI_TRY(sli_layer_need_init(layer, "bias_init", options->bias_init));
    outputs->count = 1;
    outputs->suffix[0] = "";
    outputs->shape[0] = (sli_shape){.time = inputs[0].time, .features = options->units};
    return SL_OK;
}

static sl_status dense_kernel(sli_planner *planner, const sli_layer *layer, int inputs, int *kernel) {
    const sl_dense *options = layer->options;
    if (!options->tied_to)
        return sli_layer_param(planner, layer, "", "kernel", options->units, inputs,
                               sli_init_or(options->kernel_init, SL_INIT_GLOROT_UNIFORM, 0), inputs, kernel);
    char name[160];
    snprintf(name, sizeof name, "%s.embeddings", options->tied_to);
    *kernel = sli_planner_find_param(planner, name);
    SLI_FAIL_IF(*kernel < 0, SL_ERR_UNKNOWN, "layer %s: tied to \"%s\", which is no Embedding before it", layer->name,
                options->tied_to);
    const sli_param *table = sli_planner_param_at(planner, *kernel);
    SLI_FAIL_IF(table->rows != options->units || table->columns != inputs, SL_ERR_SHAPE,
                "layer %s: the tied table is %d x %d, the layer needs %d x %d; make embedding size and input equal",
                layer->name, table->rows, table->columns, options->units, inputs);
    return SL_OK;
}

static sl_status dense_emit(sli_planner *planner, const sli_layer *layer, const int *inputs, int *outputs) {
    const sl_dense *options = layer->options;
    sli_shape shape = sli_planner_shape(planner, inputs[0]);
    int features = shape.features, kernel, bias = -1;
    SLI_TRY(dense_kernel(planner, layer, features, &kernel));
    if (!options->no_bias)
        SLI_TRY(sli_layer_bias(
            planner, layer, "", "bias",
            &(sli_param){.columns = options->units, .init = options->bias_init, .pytorch_fan = features}, &bias));
    shape.features = options->units;
    SLI_TRY(sli_planner_tensor(planner, shape, layer->name, &outputs[0]));
    sli_emit emit;
    sli_emit_init(&emit, layer, SLI_OP_DENSE);
    emit.problem.inputs = features;
    emit.problem.units = options->units;
    emit.problem.act = options->activation == SL_ACT_LINEAR ? SL_ACT_DEFAULT : options->activation;
    emit.problem.no_bias = options->no_bias != 0;
    emit.in[SLI_DENSE_X] = inputs[0];
    emit.out[SLI_DENSE_Y] = outputs[0];
    emit.param[SLI_DENSE_KERNEL] = kernel;
    emit.param[SLI_DENSE_BIAS] = bias;
    return sli_planner_emit(planner, &emit);
}

const sli_layer_kind sli_layer_dense = {.class_name = "Dense",
                                        .options_bytes = sizeof(sl_dense),
                                        .fields = fields,
                                        .has_params = true,
                                        .shape = dense_shape,
                                        .emit = dense_emit};
