/* Add, Concatenate, Multiply, Average: residual and skip connections. */
#include <string.h>

#include "layer/layers.h"

enum { MAX_PARTS = 4 };

static const sli_field fields[] = {SLI_FIELDS_END};
typedef struct concat_options {
    int axis;
} concat_options;
static const sli_field concat_fields[] = {
    {.key = "axis", .type = SLI_FIELD_INT, .offset = offsetof(concat_options, axis)},
    SLI_FIELDS_END,
};

static sl_merge merge_of(const sli_layer *layer) {
    if (layer->kind == &sli_layer_concat) return SL_MERGE_CONCAT;
    if (layer->kind == &sli_layer_multiply) return SL_MERGE_MULTIPLY;
    return layer->kind == &sli_layer_average ? SL_MERGE_AVERAGE : SL_MERGE_ADD;
}

static sl_status merge_shape(const sli_layer *layer, const sli_shape *inputs, int input_count,
                             sli_layer_outputs *outputs) {
    sl_merge merge = merge_of(layer);
    SLI_TRY(sli_layer_need_inputs(layer, input_count, 2, MAX_PARTS));
    sli_shape shape = inputs[0];
    int axis = merge == SL_MERGE_CONCAT ? ((const concat_options *)layer->options)->axis : 0, last = shape.time ? 2 : 1;
    SLI_FAIL_IF(axis != 0 && axis != -1 && axis != last, SL_ERR_INPUT,
                "layer %s: axis %d; only features (axis -1) are concatenated", layer->name, axis);
    for (int k = 0; k < input_count; k++) {
        SLI_TRY(sli_layer_need_float(layer, &inputs[k]));
        SLI_FAIL_IF(inputs[k].time != shape.time, SL_ERR_SHAPE,
                    "layer %s: input %s has steps and another has not; set return_sequences alike", layer->name,
                    layer->inputs[k]);
        SLI_FAIL_IF(merge != SL_MERGE_CONCAT && inputs[k].features != shape.features, SL_ERR_SHAPE,
                    "layer %s: input %s has %d features, %s has %d; they must be equal", layer->name, layer->inputs[k],
                    inputs[k].features, layer->inputs[0], shape.features);
        if (merge == SL_MERGE_CONCAT && k > 0) shape.features += inputs[k].features;
        SLI_TRY(sli_layer_need_size(layer, "output features", shape.features));
    }
    outputs->count = 1;
    outputs->suffix[0] = "";
    outputs->shape[0] = shape;
    return SL_OK;
}

static sl_status merge_emit(sli_planner *planner, const sli_layer *layer, const int *inputs, int *outputs) {
    sli_shape shapes[MAX_PARTS];
    sli_layer_outputs merged = {0};
    for (int k = 0; k < layer->input_count; k++) shapes[k] = sli_planner_shape(planner, inputs[k]);
    SLI_TRY(merge_shape(layer, shapes, layer->input_count, &merged));
    SLI_TRY(sli_planner_tensor(planner, merged.shape[0], layer->name, &outputs[0]));
    sli_emit emit;
    sli_emit_init(&emit, layer, SLI_OP_MERGE);
    emit.problem.units = merged.shape[0].features;
    emit.problem.merge = merge_of(layer);
    emit.problem.parts = layer->input_count;
    for (int k = 0; k < layer->input_count; k++) {
        emit.problem.parts_units[k] = shapes[k].features;
        emit.in[SLI_MERGE_PART0 + k] = inputs[k];
    }
    emit.out[SLI_MERGE_Y] = outputs[0];
    return sli_planner_emit(planner, &emit);
}

const sli_layer_kind sli_layer_add = {.class_name = "Add", .fields = fields, .shape = merge_shape, .emit = merge_emit};
const sli_layer_kind sli_layer_multiply = {
    .class_name = "Multiply", .fields = fields, .shape = merge_shape, .emit = merge_emit};
const sli_layer_kind sli_layer_average = {
    .class_name = "Average", .fields = fields, .shape = merge_shape, .emit = merge_emit};
const sli_layer_kind sli_layer_concat = {.class_name = "Concatenate",
                                         .options_bytes = sizeof(concat_options),
                                         .fields = concat_fields,
                                         .shape = merge_shape,
                                         .emit = merge_emit};
