/* Embedding and one-hot: tokens to vectors. */
#include "layer/layers.h"

/* ----------------------------------------------------------------------------------------------- embedding -- */
static const sli_field embedding_fields[] = {
    {.key = "input_dim", .type = SLI_FIELD_INT, .offset = offsetof(sl_embedding, vocabulary), .required = true},
    {.key = "output_dim", .type = SLI_FIELD_INT, .offset = offsetof(sl_embedding, units), .required = true},
    {.key = "embeddings_initializer", .type = SLI_FIELD_INIT, .offset = offsetof(sl_embedding, init)},
    {.key = "input_length", .type = SLI_FIELD_IGNORED},
    {.key = "embeddings_regularizer", .type = SLI_FIELD_NEUTRAL, .reason = "weight penalties are not computed"},
    {.key = "embeddings_constraint", .type = SLI_FIELD_NEUTRAL, .reason = "constraints are not applied"},
    {.key = "activity_regularizer", .type = SLI_FIELD_NEUTRAL, .reason = "activity penalties are not computed"},
    {.key = "mask_zero", .type = SLI_FIELD_NEUTRAL, .reason = "masks are given as lengths or a mask with the batch"},
    {.key = "sparse", .type = SLI_FIELD_IGNORED},
    {.key = "lora_rank", .type = SLI_FIELD_NEUTRAL, .reason = "LoRA is not supported"},
    {.key = "quantization_config", .type = SLI_FIELD_NEUTRAL, .reason = "quantised layers are not supported"},
    SLI_FIELDS_END,
};

static sl_status token_shape(const sli_layer *layer, const sli_shape *inputs, int input_count, int vocabulary,
                             int units, sli_layer_outputs *outputs) {
    SLI_TRY(sli_layer_need_inputs(layer, input_count, 1, 1));
    SLI_FAIL_IF(!inputs[0].integer, SL_ERR_SHAPE,
                "layer %s: its input must be tokens, not numbers; feed it a token input", layer->name);
    SLI_TRY(sli_layer_need_size(layer, "tokens of vocabulary", vocabulary));
    SLI_TRY(sli_layer_need_size(layer, "units", units));
    SLI_FAIL_IF(inputs[0].vocabulary > vocabulary, SL_ERR_SHAPE,
                "layer %s: tokens go up to %d but its vocabulary is %d; make them equal", layer->name,
                inputs[0].vocabulary - 1, vocabulary);
    outputs->count = 1;
    outputs->suffix[0] = "";
    outputs->shape[0] = (sli_shape){.time = inputs[0].time, .features = units};
    return SL_OK;
}

static sl_status embedding_shape(const sli_layer *layer, const sli_shape *inputs, int input_count,
                                 sli_layer_outputs *outputs) {
    const sl_embedding *options = layer->options;
    SLI_TRY(sli_layer_need_init(layer, "init", options->init));
    return token_shape(layer, inputs, input_count, options->vocabulary, options->units, outputs);
}

static sl_status emit_tokens(sli_planner *planner, const sli_layer *layer, const int *inputs, int *outputs, sli_op op,
                             int vocabulary, int units, int param) {
    sli_shape shape = {.time = sli_planner_shape(planner, inputs[0]).time, .features = units};
    SLI_TRY(sli_planner_tensor(planner, shape, layer->name, &outputs[0]));
    sli_emit emit;
    sli_emit_init(&emit, layer, op);
    emit.problem.inputs = vocabulary;
    emit.problem.units = units;
    emit.in[0] = inputs[0];
    emit.out[0] = outputs[0];
    emit.param[0] = param;
    return sli_planner_emit(planner, &emit);
}

static sl_status embedding_emit(sli_planner *planner, const sli_layer *layer, const int *inputs, int *outputs) {
    const sl_embedding *options = layer->options;
    int table;
    SLI_TRY(sli_layer_param(planner, layer, "", "embeddings", options->vocabulary, options->units,
                            sli_init_or(options->init, SL_INIT_UNIFORM, 0.05), 0, &table));
    return emit_tokens(planner, layer, inputs, outputs, SLI_OP_EMBED, options->vocabulary, options->units, table);
}

const sli_layer_kind sli_layer_embedding = {.class_name = "Embedding",
                                            .options_bytes = sizeof(sl_embedding),
                                            .fields = embedding_fields,
                                            .has_params = true,
                                            .shape = embedding_shape,
                                            .emit = embedding_emit};

/* ------------------------------------------------------------------------------------------------- one-hot -- */
typedef struct one_hot_options {
    int vocabulary;
    int mode;
} one_hot_options;
static const sli_enum_name one_hot_modes[] = {{"one_hot", 0}, {NULL, 0}};

static const sli_field one_hot_fields[] = {
    {.key = "num_tokens", .type = SLI_FIELD_INT, .offset = offsetof(one_hot_options, vocabulary), .required = true},
    {.key = "output_mode",
     .type = SLI_FIELD_ENUM,
     .offset = offsetof(one_hot_options, mode),
     .names = one_hot_modes,
     .required = true},
    {.key = "sparse", .type = SLI_FIELD_NEUTRAL, .reason = "one-hot vectors are dense"},
    SLI_FIELDS_END,
};

static sl_status one_hot_shape(const sli_layer *layer, const sli_shape *inputs, int input_count,
                               sli_layer_outputs *outputs) {
    int vocabulary = ((const one_hot_options *)layer->options)->vocabulary;
    return token_shape(layer, inputs, input_count, vocabulary, vocabulary, outputs);
}

static sl_status one_hot_emit(sli_planner *planner, const sli_layer *layer, const int *inputs, int *outputs) {
    int vocabulary = ((const one_hot_options *)layer->options)->vocabulary;
    return emit_tokens(planner, layer, inputs, outputs, SLI_OP_ONEHOT, vocabulary, vocabulary, -1);
}

const sli_layer_kind sli_layer_one_hot = {.class_name = "CategoryEncoding",
                                          .options_bytes = sizeof(one_hot_options),
                                          .fields = one_hot_fields,
                                          .shape = one_hot_shape,
                                          .emit = one_hot_emit};
