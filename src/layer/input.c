/* InputLayer: a model input; writes nothing, computes nothing. */
#include "layer/layers.h"

/* config: `features`, `no_steps`, `vocabulary` come from Keras's batch_shape and dtype (src/io/model_json.c). */
static const sli_field fields[] = {
    {.key = "features", .type = SLI_FIELD_INT, .offset = offsetof(sli_input_options, features), .in_sluice = true},
    {.key = "no_steps", .type = SLI_FIELD_BOOL, .offset = offsetof(sli_input_options, no_steps), .in_sluice = true},
    {.key = "vocabulary", .type = SLI_FIELD_INT, .offset = offsetof(sli_input_options, vocabulary), .in_sluice = true},
    SLI_FIELDS_END,
};

static sl_status input_shape(const sli_layer *layer, const sli_shape *inputs, int input_count,
                             sli_layer_outputs *outputs) {
    (void)inputs;
    const sli_input_options *options = layer->options;
    SLI_TRY(sli_layer_need_inputs(layer, input_count, 0, 0));
    bool tokens = options->vocabulary > 0;
    SLI_TRY(sli_layer_need_size(layer, tokens ? "tokens of vocabulary" : "features",
                                tokens ? options->vocabulary : options->features));
    outputs->count = 1;
    outputs->suffix[0] = "";
    outputs->shape[0] = (sli_shape){.time = !options->no_steps,
                                    .integer = tokens,
                                    .features = tokens ? 1 : options->features,
                                    .vocabulary = options->vocabulary};
    return SL_OK;
}

static sl_status input_emit(sli_planner *planner, const sli_layer *layer, const int *inputs, int *outputs) {
    (void)inputs;
    sli_layer_outputs shape = {0};
    SLI_TRY(input_shape(layer, NULL, 0, &shape));
    return sli_planner_tensor(planner, shape.shape[0], layer->name, &outputs[0]);
}

const sli_layer_kind sli_layer_input = {.class_name = "InputLayer",
                                        .options_bytes = sizeof(sli_input_options),
                                        .fields = fields,
                                        .shape = input_shape,
                                        .emit = input_emit};
