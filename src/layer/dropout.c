/* Dropout: each element zeroed with probability `rate` in training, the rest scaled by 1/(1-rate). */
#include "layer/layers.h"

typedef struct dropout_options {
    double rate;
} dropout_options;

static const sli_field fields[] = {
    {.key = "rate", .type = SLI_FIELD_NUMBER, .offset = offsetof(dropout_options, rate), .required = true},
    {.key = "seed", .type = SLI_FIELD_IGNORED},
    {.key = "noise_shape", .type = SLI_FIELD_NEUTRAL, .reason = "every element is drawn on its own"},
    SLI_FIELDS_END,
};

static sl_status dropout_shape(const sli_layer *layer, const sli_shape *inputs, int input_count,
                               sli_layer_outputs *outputs) {
    double rate = ((const dropout_options *)layer->options)->rate;
    SLI_TRY(sli_layer_need_inputs(layer, input_count, 1, 1));
    SLI_TRY(sli_layer_need_float(layer, &inputs[0]));
    SLI_FAIL_IF(!(rate >= 0 && (float)rate < 1), SL_ERR_INPUT, "layer %s: rate is %g; it must be in [0, 1)",
                layer->name, rate);
    outputs->count = 1;
    outputs->suffix[0] = "";
    outputs->shape[0] = inputs[0];
    return SL_OK;
}

/* Nothing to do outside training plans: the output is the input. */
static sl_status dropout_emit(sli_planner *planner, const sli_layer *layer, const int *inputs, int *outputs) {
    double rate = ((const dropout_options *)layer->options)->rate;
    outputs[0] = inputs[0];
    if (!sli_planner_options(planner)->train || rate == 0) return SL_OK;
    sli_shape shape = sli_planner_shape(planner, inputs[0]);
    SLI_TRY(sli_planner_tensor(planner, shape, layer->name, &outputs[0]));
    sli_emit emit;
    sli_emit_init(&emit, layer, SLI_OP_DROPOUT);
    emit.problem.units = shape.features;
    emit.problem.dropout = rate;
    emit.in[SLI_UNARY_X] = inputs[0];
    emit.out[SLI_UNARY_Y] = outputs[0];
    return sli_planner_emit(planner, &emit);
}

const sli_layer_kind sli_layer_dropout = {.class_name = "Dropout",
                                          .options_bytes = sizeof(dropout_options),
                                          .fields = fields,
                                          .shape = dropout_shape,
                                          .emit = dropout_emit};
