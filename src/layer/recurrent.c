/* LSTM, GRU, simple RNN: one layer, one or both directions. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "layer/layers.h"

/* ------------------------------------------------------------------------------------------------ config -- */
static const sli_enum_name bias_names[] = {
    {"single", SL_BIAS_SINGLE}, {"double", SL_BIAS_DOUBLE}, {"none", SL_BIAS_NONE}, {NULL, 0}};
static const sli_enum_name forget_names[] = {
    {"in_variable", SL_FORGET_IN_VARIABLE}, {"at_run", SL_FORGET_AT_RUN}, {"none", SL_FORGET_NONE}, {NULL, 0}};
static const sli_enum_name masked_names[] = {{"zero", SL_MASKED_ZERO}, {"repeat", SL_MASKED_REPEAT}, {NULL, 0}};
static const sli_enum_name direction_names[] = {
    {"concat", SL_BI_CONCAT}, {"sum", SL_BI_SUM}, {"mul", SL_BI_MUL}, {"ave", SL_BI_AVE}, {NULL, 0}};

#define AT(member) offsetof(sl_recurrent, member)
/* Keys of every recurrent kind; `sluice` holds what Keras has no word for. */
#define RECURRENT_FIELDS                                                                                             \
    {.key = "units", .type = SLI_FIELD_INT, .offset = AT(units), .required = true},                                  \
        {.key = "activation", .type = SLI_FIELD_ENUM, .offset = AT(activation), .names = sli_activation_names},      \
        {.key = "use_bias",                                                                                          \
         .type = SLI_FIELD_BOOL_ENUM,                                                                                \
         .offset = AT(bias),                                                                                         \
         .when_true = SL_BIAS_DEFAULT,                                                                               \
         .when_false = SL_BIAS_NONE},                                                                                \
        {.key = "kernel_initializer", .type = SLI_FIELD_INIT, .offset = AT(kernel_init)},                            \
        {.key = "recurrent_initializer", .type = SLI_FIELD_INIT, .offset = AT(recurrent_init)},                      \
        {.key = "bias_initializer", .type = SLI_FIELD_INIT, .offset = AT(bias_init)},                                \
        {.key = "recurrent_dropout", .type = SLI_FIELD_NUMBER, .offset = AT(recurrent_dropout)},                     \
        {.key = "return_sequences", .type = SLI_FIELD_BOOL, .offset = AT(return_sequences)},                         \
        {.key = "return_state", .type = SLI_FIELD_BOOL, .offset = AT(return_state)},                                 \
        {.key = "go_backwards", .type = SLI_FIELD_BOOL, .offset = AT(go_backwards)},                                 \
        {.key = "stateful", .type = SLI_FIELD_BOOL, .offset = AT(stateful)},                                         \
        {.key = "zero_output_for_mask",                                                                              \
         .type = SLI_FIELD_BOOL_ENUM,                                                                                \
         .offset = AT(masked_output),                                                                                \
         .when_true = SL_MASKED_ZERO,                                                                                \
         .when_false = SL_MASKED_REPEAT},                                                                            \
        {.key = "dropout",                                                                                           \
         .type = SLI_FIELD_NEUTRAL,                                                                                  \
         .reason = "a mask shared over time on inputs is not computed; use a Dropout layer"},                        \
        {.key = "seed", .type = SLI_FIELD_IGNORED}, {.key = "unroll", .type = SLI_FIELD_IGNORED},                    \
        {.key = "use_cudnn", .type = SLI_FIELD_IGNORED}, {.key = "implementation", .type = SLI_FIELD_IGNORED},       \
        {.key = "time_major", .type = SLI_FIELD_NEUTRAL, .reason = "layout is chosen when planned"},                 \
        {.key = "kernel_regularizer", .type = SLI_FIELD_NEUTRAL, .reason = "weight penalties are not computed"},     \
        {.key = "recurrent_regularizer", .type = SLI_FIELD_NEUTRAL, .reason = "weight penalties are not computed"},  \
        {.key = "bias_regularizer", .type = SLI_FIELD_NEUTRAL, .reason = "weight penalties are not computed"},       \
        {.key = "activity_regularizer", .type = SLI_FIELD_NEUTRAL, .reason = "activity penalties are not computed"}, \
        {.key = "kernel_constraint", .type = SLI_FIELD_NEUTRAL, .reason = "constraints are not applied"},            \
        {.key = "recurrent_constraint", .type = SLI_FIELD_NEUTRAL, .reason = "constraints are not applied"},         \
        {.key = "bias_constraint", .type = SLI_FIELD_NEUTRAL, .reason = "constraints are not applied"},              \
        {.key = "bias", .type = SLI_FIELD_ENUM, .offset = AT(bias), .names = bias_names, .in_sluice = true},         \
        {.key = "bidirectional",                                                                                     \
         .type = SLI_FIELD_ENUM,                                                                                     \
         .offset = AT(bidirectional),                                                                                \
         .names = direction_names,                                                                                   \
         .in_sluice = true},                                                                                         \
        {.key = "masked_output",                                                                                     \
         .type = SLI_FIELD_ENUM,                                                                                     \
         .offset = AT(masked_output),                                                                                \
         .names = masked_names,                                                                                      \
         .in_sluice = true},                                                                                         \
    {                                                                                                                \
        .key = "zoneout_h", .type = SLI_FIELD_NUMBER, .offset = AT(zoneout_h), .in_sluice = true                     \
    }

static const sli_field lstm_fields[] = {
    RECURRENT_FIELDS,
    {.key = "recurrent_activation",
     .type = SLI_FIELD_ENUM,
     .offset = AT(recurrent_activation),
     .names = sli_activation_names},
    {.key = "unit_forget_bias",
     .type = SLI_FIELD_BOOL_ENUM,
     .offset = AT(forget_bias_mode),
     .when_true = SL_FORGET_DEFAULT,
     .when_false = SL_FORGET_NONE},
    {.key = "forget_bias_mode",
     .type = SLI_FIELD_ENUM,
     .offset = AT(forget_bias_mode),
     .names = forget_names,
     .in_sluice = true},
    {.key = "forget_bias", .type = SLI_FIELD_NUMBER, .offset = AT(forget_bias), .in_sluice = true},
    {.key = "projection", .type = SLI_FIELD_INT, .offset = AT(projection), .in_sluice = true},
    {.key = "peephole", .type = SLI_FIELD_BOOL, .offset = AT(peephole), .in_sluice = true},
    {.key = "cell_clip", .type = SLI_FIELD_NUMBER, .offset = AT(cell_clip), .in_sluice = true},
    {.key = "zoneout_c", .type = SLI_FIELD_NUMBER, .offset = AT(zoneout_c), .in_sluice = true},
    SLI_FIELDS_END,
};
static const sli_field gru_fields[] = {
    RECURRENT_FIELDS,
    {.key = "recurrent_activation",
     .type = SLI_FIELD_ENUM,
     .offset = AT(recurrent_activation),
     .names = sli_activation_names},
    {.key = "reset_after", .type = SLI_FIELD_NOT_BOOL, .offset = AT(reset_before)},
    SLI_FIELDS_END,
};
static const sli_field rnn_fields[] = {RECURRENT_FIELDS, SLI_FIELDS_END};

/* ------------------------------------------------------------------------------------------------- shape -- */
static sli_op op_of(const sli_layer *layer) {
    if (layer->kind == &sli_layer_lstm) return SLI_OP_LSTM;
    return layer->kind == &sli_layer_gru ? SLI_OP_GRU : SLI_OP_RNN;
}
static int output_of(const sl_recurrent *options) {
    return options->projection > 0 ? options->projection : options->units;
}

static sl_status check_rates(const sli_layer *layer, const sl_recurrent *o) {
    const struct {
        const char *name;
        double value;
    } rates[] = {{"recurrent_dropout", o->recurrent_dropout}, {"zoneout_h", o->zoneout_h}, {"zoneout_c", o->zoneout_c}};
    for (int k = 0; k < 3; k++) /* kernels have floats: what rounds to 1 is 1 */
        SLI_FAIL_IF(!(rates[k].value >= 0 && (float)rates[k].value < 1), SL_ERR_INPUT,
                    "layer %s: %s is %g; it must be in [0, 1)", layer->name, rates[k].name, rates[k].value);
    /* Less would be 0 as a float: no clip. */
    bool clip = o->cell_clip == 0 || (o->cell_clip >= FLT_MIN && isfinite(o->cell_clip));
    SLI_FAIL_IF(!clip, SL_ERR_INPUT, "layer %s: cell_clip is %g; it must be positive, a float, or 0 for none",
                layer->name, o->cell_clip);
    SLI_FAIL_IF(!isfinite(o->forget_bias), SL_ERR_INPUT, "layer %s: forget_bias is %g; it must be finite", layer->name,
                o->forget_bias);
    return SL_OK;
}

static sl_status check_enums(const sli_layer *layer, const sl_recurrent *o) {
    SLI_TRY(sli_layer_need_enum(layer, "activation", (int)o->activation, SL_ACT_SOFTSIGN));
    SLI_TRY(sli_layer_need_enum(layer, "recurrent_activation", (int)o->recurrent_activation, SL_ACT_SOFTSIGN));
    SLI_TRY(sli_layer_need_enum(layer, "bias", (int)o->bias, SL_BIAS_DOUBLE));
    SLI_TRY(sli_layer_need_enum(layer, "forget_bias_mode", (int)o->forget_bias_mode, SL_FORGET_AT_RUN));
    SLI_TRY(sli_layer_need_enum(layer, "bidirectional", (int)o->bidirectional, SL_BI_AVE));
    SLI_TRY(sli_layer_need_enum(layer, "masked_output", (int)o->masked_output, SL_MASKED_REPEAT));
    SLI_TRY(sli_layer_need_init(layer, "kernel_init", o->kernel_init));
    SLI_TRY(sli_layer_need_init(layer, "recurrent_init", o->recurrent_init));
    return sli_layer_need_init(layer, "bias_init", o->bias_init);
}

static sl_status check_options(const sli_layer *layer, const sl_recurrent *o) {
    sli_op op = op_of(layer);
    SLI_TRY(check_enums(layer, o));
    SLI_TRY(sli_layer_need_size(layer, "units", o->units));
    if (o->projection != 0) SLI_TRY(sli_layer_need_size(layer, "projected units", o->projection));
    SLI_FAIL_IF(op != SLI_OP_LSTM && (o->projection || o->peephole || o->cell_clip != 0 || o->zoneout_c != 0),
                SL_ERR_INPUT, "layer %s: projection, peephole, cell_clip and zoneout_c belong to LSTM; leave them out",
                layer->name);
    SLI_FAIL_IF(op != SLI_OP_GRU && o->reset_before, SL_ERR_INPUT,
                "layer %s: reset_before belongs to GRU; leave it out", layer->name);
    SLI_FAIL_IF(o->go_backwards && o->bidirectional, SL_ERR_INPUT,
                "layer %s: go_backwards and bidirectional exclude each other; drop one", layer->name);
    SLI_FAIL_IF(o->bias == SL_BIAS_NONE && o->forget_bias_mode == SL_FORGET_IN_VARIABLE, SL_ERR_INPUT,
                "layer %s: a forget bias in the variable needs a bias; use SL_FORGET_AT_RUN or give it one",
                layer->name);
    SLI_FAIL_IF(o->forget_bias_mode == SL_FORGET_NONE && o->forget_bias != 0, SL_ERR_INPUT,
                "layer %s: a forget_bias of %g, but its mode is none; leave it out, or choose a mode that adds it",
                layer->name, o->forget_bias);
    return check_rates(layer, o);
}

static void recurrent_suffixes(const sli_layer *layer, sli_layer_outputs *outputs) {
    const sl_recurrent *o = layer->options;
    static const char *const one[] = {".h", ".c"};
    static const char *const both[] = {".forward.h", ".forward.c", ".backward.h", ".backward.c"};
    bool lstm = op_of(layer) == SLI_OP_LSTM;
    outputs->count = 1;
    outputs->suffix[0] = "";
    if (!o->return_state) return;
    for (int d = 0; d < (o->bidirectional ? 2 : 1); d++)
        for (int k = 0; k < (lstm ? 2 : 1); k++)
            outputs->suffix[outputs->count++] = o->bidirectional ? both[2 * d + k] : one[k];
}

static sl_status check_initial(const sli_layer *layer, const sli_shape *inputs, int input_count) {
    const sl_recurrent *o = layer->options;
    int states = op_of(layer) == SLI_OP_LSTM ? 2 : 1, directions = o->bidirectional ? 2 : 1;
    SLI_FAIL_IF(input_count != 1 && input_count != 1 + states * directions, SL_ERR_INPUT,
                "layer %s: takes x, or x and %d initial state%s; it has %d inputs", layer->name, states * directions,
                states * directions > 1 ? "s" : "", input_count);
    for (int k = 1; k < input_count; k++) {
        int features = (k - 1) % states == 0 ? output_of(o) : o->units;
        SLI_FAIL_IF(inputs[k].time || inputs[k].integer || inputs[k].features != features, SL_ERR_SHAPE,
                    "layer %s: initial state %s must be [B][%d]", layer->name, layer->inputs[k], features);
    }
    SLI_FAIL_IF(input_count > 1 && o->stateful, SL_ERR_INPUT,
                "layer %s: a stateful layer carries its state and takes no initial state; drop one of them",
                layer->name);
    return SL_OK;
}

static sl_status recurrent_shape(const sli_layer *layer, const sli_shape *inputs, int input_count,
                                 sli_layer_outputs *outputs) {
    const sl_recurrent *o = layer->options;
    SLI_TRY(check_options(layer, o));
    SLI_FAIL_IF(input_count < 1, SL_ERR_INPUT, "layer %s: has no input", layer->name);
    SLI_TRY(sli_layer_need_float(layer, &inputs[0]));
    SLI_FAIL_IF(!inputs[0].time, SL_ERR_SHAPE,
                "layer %s: its input %s has no steps; set return_sequences on the layer before it", layer->name,
                layer->inputs[0]);
    SLI_TRY(check_initial(layer, inputs, input_count));
    recurrent_suffixes(layer, outputs);
    int width = output_of(o) * (o->bidirectional == SL_BI_CONCAT ? 2 : 1);
    SLI_TRY(sli_layer_need_size(layer, "output features", width));
    outputs->shape[0] = (sli_shape){.time = o->return_sequences != 0, .features = width};
    for (int k = 1; k < outputs->count; k++) {
        size_t length = strlen(outputs->suffix[k]);
        bool cell = outputs->suffix[k][length - 1] == 'c';
        outputs->shape[k] = (sli_shape){.features = cell ? o->units : output_of(o)};
    }
    return SL_OK;
}

/* ------------------------------------------------------------------------------------------------ params -- */
static sl_bias resolved_bias(sli_op op, const sl_recurrent *o) {
    if (o->bias != SL_BIAS_DEFAULT) return o->bias;
    return op == SLI_OP_GRU && !o->reset_before ? SL_BIAS_DOUBLE : SL_BIAS_SINGLE;
}

/* Keras sets the forget slice of the variable to 1 when it is made; ours may be another value. */
static sl_status bias_params(sli_planner *planner, const sli_layer *layer, const char *direction, sl_bias bias,
                             int *param) {
    const sl_recurrent *o = layer->options;
    sli_op op = op_of(layer);
    const bool two = bias == SL_BIAS_DOUBLE;
    const sli_param one = {.columns = sli_op_gates(op) * o->units,
                           .init = o->bias_init,
                           .pytorch_fan = o->units,
                           .fans = two && op == SLI_OP_GRU ? SLI_FANS_TWO_BIASES : SLI_FANS_BIAS};
    sli_param first = one;
    bool in_variable = o->forget_bias_mode == SL_FORGET_IN_VARIABLE || o->forget_bias_mode == SL_FORGET_DEFAULT;
    if (op == SLI_OP_LSTM && in_variable) {
        first.set_offset = first.set_count = o->units; /* f is the second gate */
        first.set_value = o->forget_bias_mode == SL_FORGET_DEFAULT && o->forget_bias == 0 ? 1 : o->forget_bias;
    }
    SLI_TRY(sli_layer_bias(planner, layer, direction, "bias", &first, &param[SLI_RNN_BIAS]));
    return two ? sli_layer_bias(planner, layer, direction, "recurrent_bias", &one, &param[SLI_RNN_RECURRENT_BIAS])
               : SL_OK;
}

static sl_status direction_params(sli_planner *planner, const sli_layer *layer, const char *direction, int inputs,
                                  int *param) {
    const sl_recurrent *o = layer->options;
    sli_op op = op_of(layer);
    int rows = sli_op_gates(op) * o->units;
    sl_init kernel = sli_init_or(o->kernel_init, SL_INIT_GLOROT_UNIFORM, 0);
    sl_init recurrent = sli_init_or(o->recurrent_init, SL_INIT_ORTHOGONAL, 1);
    SLI_TRY(
        sli_layer_param(planner, layer, direction, "kernel", rows, inputs, kernel, o->units, &param[SLI_RNN_KERNEL]));
    SLI_TRY(sli_layer_param(planner, layer, direction, "recurrent_kernel", rows, output_of(o), recurrent, o->units,
                            &param[SLI_RNN_RECURRENT]));
    sl_bias bias = resolved_bias(op, o);
    if (bias != SL_BIAS_NONE) SLI_TRY(bias_params(planner, layer, direction, bias, param));
    if (o->peephole)
        SLI_TRY(sli_layer_param(planner, layer, direction, "peephole", 3, o->units, kernel, o->units,
                                &param[SLI_RNN_PEEPHOLE]));
    if (o->projection > 0)
        SLI_TRY(sli_layer_param(planner, layer, direction, "projection", o->projection, o->units, kernel, o->units,
                                &param[SLI_RNN_PROJECTION]));
    return SL_OK;
}

/* ------------------------------------------------------------------------------------------------- steps -- */
static sl_activation or_default(sl_activation given, sl_activation keras) {
    return given == keras ? SL_ACT_DEFAULT : given;
}

static void fill_problem(const sli_layer *layer, int inputs, sli_problem *problem) {
    const sl_recurrent *o = layer->options;
    sli_op op = op_of(layer);
    problem->op = op;
    problem->layers = 1;
    problem->inputs = inputs;
    problem->units = o->units;
    problem->projection = o->projection;
    problem->act = or_default(o->activation, SL_ACT_TANH);
    problem->recurrent_act = op == SLI_OP_RNN ? SL_ACT_DEFAULT : or_default(o->recurrent_activation, SL_ACT_SIGMOID);
    problem->bias = resolved_bias(op, o);
    problem->reset_before = o->reset_before != 0;
    problem->peephole = o->peephole != 0;
    problem->forget_at_run = op == SLI_OP_LSTM && o->forget_bias_mode == SL_FORGET_AT_RUN;
    problem->forget_bias = problem->forget_at_run ? o->forget_bias : 0;
    problem->cell_clip = o->cell_clip;
    problem->recurrent_dropout = o->recurrent_dropout;
    problem->zoneout_h = o->zoneout_h;
    problem->zoneout_c = o->zoneout_c;
    problem->masked_repeat = o->masked_output == SL_MASKED_REPEAT;
}

/* One direction of one layer. */
typedef struct direction {
    const char *name; /* "", "forward", "backward" */
    bool second;
    int y, final[2]; /* tensors */
} direction;

static direction direction_at(const sli_layer *layer, int index) {
    bool both = ((const sl_recurrent *)layer->options)->bidirectional != SL_UNIDIRECTIONAL;
    const char *name = !both ? "" : index ? "backward" : "forward";
    return (direction){.name = name, .second = index == 1, .y = -1, .final = {-1, -1}};
}

/* "LAYER.DIRECTION.WHAT"; no empty part leaves a dot. */
static void name_of(const sli_layer *layer, const char *direction, const char *what, char text[160]) {
    snprintf(text, 160, "%s%s%s%s%s", layer->name, *direction ? "." : "", direction, *what ? "." : "", what);
}

/* Output over all steps of a step; it is the layer's own output if nothing comes after it. */
static sl_status make_output(sli_planner *planner, const sli_layer *layer, const char *direction, int features,
                             bool is_output, int *tensor) {
    char name[160];
    name_of(layer, direction, is_output ? "" : "y", name);
    return sli_planner_tensor(planner, (sli_shape){.time = true, .features = features}, name, tensor);
}

/* Parameters, states and the tensors of the final states of one direction: number `part` of the step. */
static sl_status add_part(sli_planner *planner, const sli_layer *layer, int inputs, int part, direction *d,
                          sli_emit *emit) {
    const sl_recurrent *o = layer->options;
    int states = sli_problem_states(&emit->problem);
    SLI_TRY(direction_params(planner, layer, d->name, inputs, &emit->param[part * SLI_PART_PARAMS]));
    for (int k = 0; k < states; k++) {
        char name[160];
        int s = part * states + k, features = k == 0 ? output_of(o) : o->units;
        name_of(layer, d->name, k == 0 ? "h" : "c", name);
        SLI_TRY(sli_planner_tensor(planner, (sli_shape){.features = features}, name, &d->final[k]));
        emit->state_features[s] = features;
        emit->state_final[s] = d->final[k];
        if (layer->input_count > 1)
            emit->state_initial[s] = sli_planner_input(planner, layer, 1 + (d->second ? states : 0) + k);
    }
    emit->state_count = (part + 1) * states;
    return SL_OK;
}

/* Emits with the names of the states, which need to live no longer. */
static sl_status emit_named(sli_planner *planner, const sli_layer *const *layers, sli_emit *emit) {
    char names[SLI_MAX_STATES][160];
    int states = sli_problem_states(&emit->problem), directions = sli_problem_directions(&emit->problem);
    for (int s = 0; s < emit->state_count; s++) {
        const sli_layer *layer = layers[s / states / directions];
        bool second = emit->backward_direction || s / states % directions == 1;
        name_of(layer, direction_at(layer, second).name, s % states == 0 ? "h" : "c", names[s]);
        emit->state_name[s] = names[s];
    }
    return sli_planner_emit(planner, emit);
}

static sl_status emit_direction(sli_planner *planner, const sli_layer *layer, const int *inputs, direction *d) {
    const sl_recurrent *o = layer->options;
    int features = sli_planner_shape(planner, inputs[0]).features;
    bool reverse = d->second || o->go_backwards, is_output = !*d->name && o->return_sequences && !reverse;
    sli_emit emit;
    sli_emit_init(&emit, layer, op_of(layer));
    fill_problem(layer, features, &emit.problem);
    emit.problem.reverse = reverse;
    emit.in[SLI_RNN_X] = inputs[0];
    emit.takes_mask = true;
    emit.stateful = o->stateful != 0;
    emit.backward_direction = d->second;
    SLI_TRY(make_output(planner, layer, d->name, output_of(o), is_output, &d->y));
    SLI_TRY(add_part(planner, layer, features, 0, d, &emit));
    emit.out[SLI_RNN_Y] = d->y;
    return emit_named(planner, &layer, &emit);
}

/* y = merge(a, b); or time reversed if b < 0. */
static sl_status emit_after(sli_planner *planner, const sli_layer *layer, int a, int b, int *out) {
    const sl_recurrent *o = layer->options;
    static const sl_merge merges[] = {SL_MERGE_ADD, SL_MERGE_CONCAT, SL_MERGE_ADD, SL_MERGE_MULTIPLY, SL_MERGE_AVERAGE};
    sli_shape shape = sli_planner_shape(planner, a);
    int part = shape.features;
    if (b >= 0 && o->bidirectional == SL_BI_CONCAT) shape.features *= 2;
    SLI_TRY(sli_planner_tensor(planner, shape, layer->name, out));
    sli_emit emit;
    sli_emit_init(&emit, layer, b >= 0 ? SLI_OP_MERGE : SLI_OP_FLIP);
    emit.problem.units = shape.features;
    emit.in[0] = a;
    emit.out[0] = *out;
    if (b >= 0) {
        emit.problem.merge = merges[o->bidirectional];
        emit.problem.parts = 2;
        emit.problem.parts_units[0] = emit.problem.parts_units[1] = part;
        emit.in[1] = b;
    }
    return sli_planner_emit(planner, &emit);
}

static void return_states(const sli_layer *layer, const direction *d, int *outputs) {
    int states = op_of(layer) == SLI_OP_LSTM ? 2 : 1, at = 1 + (d->second ? states : 0);
    if (!((const sl_recurrent *)layer->options)->return_state) return;
    for (int k = 0; k < states; k++) outputs[at + k] = d->final[k];
}

/* ------------------------------------------------------------------------------------------------- wide steps --
 * Neighbouring layers that can be one step, each with all of its directions. */
typedef struct stack {
    const sli_layer *layers[SLI_MAX_PARTS];
    int count;
    sli_problem problem; /* of all; inputs are the first layer's */
} stack;

static void wide_problem(const sli_layer *layer, int inputs, sli_problem *problem) {
    const sl_recurrent *o = layer->options;
    memset(problem, 0, sizeof *problem);
    fill_problem(layer, inputs, problem);
    problem->reverse = o->go_backwards != 0;
    problem->bidirectional = o->bidirectional != SL_UNIDIRECTIONAL;
    problem->direction_merge = o->bidirectional;
    problem->batch = problem->steps = 1;
}

static bool same_but_inputs(const sli_problem *a, const sli_problem *b) {
    char one[SLI_PROBLEM_TEXT], other[SLI_PROBLEM_TEXT];
    sli_problem with = *b;
    with.inputs = a->inputs;
    sli_problem_print(a, one, sizeof one);
    sli_problem_print(&with, other, sizeof other);
    return strcmp(one, other) == 0;
}

/* `next`, which is the only reader of the stack's output so far, can go on it. */
static bool continues(const sli_planner *planner, const stack *s, const sli_layer *next) {
    const sli_layer *last = s->layers[s->count - 1];
    const sl_recurrent *o = last->options, *n = next->options;
    sli_problem problem;
    if (next->kind != last->kind || !o->return_sequences || !o->stateful != !n->stateful) return false;
    if ((s->count + 1) * sli_problem_directions(&s->problem) > SLI_MAX_PARTS) return false;
    for (int k = 1; k < next->input_count; k++)
        if (sli_planner_input(planner, next, k) < 0) return false; /* a state that the stack itself computes */
    wide_problem(next, s->problem.inputs, &problem);
    return same_but_inputs(&s->problem, &problem);
}

static stack find_stack(const sli_planner *planner, const sli_layer *layer, const int *inputs) {
    stack s = {.layers = {layer}, .count = 1};
    wide_problem(layer, sli_planner_shape(planner, inputs[0]).features, &s.problem);
    bool one_output = !s.problem.bidirectional || s.problem.direction_merge == SL_BI_CONCAT;
    if (s.problem.reverse || !one_output) return s;
    const sli_layer *next = sli_planner_next(planner, layer);
    while (next && continues(planner, &s, next)) {
        s.layers[s.count++] = next;
        next = sli_planner_next(planner, next);
    }
    s.problem.layers = s.count;
    return s;
}

/* Predicted seconds of what else would compute the problem: layer by layer, both directions at once where a row takes that
 * and is faster; negative if a part is not known. */
static double seconds_of_parts(sli_planner *planner, const stack *s) {
    double sum = 0;
    if (sli_planner_seconds(planner, s->layers[0], &s->problem) < 0) return -1; /* nothing to compare with */
    int directions = sli_problem_directions(&s->problem);
    for (int l = 0; l < s->count; l++) {
        double apart = 0, both = -1;
        for (int d = 0; d < directions && apart >= 0; d++) {
            sli_problem part = sli_problem_part(&s->problem, l, d);
            double seconds = sli_planner_seconds(planner, s->layers[l], &part);
            apart = seconds < 0 ? -1 : apart + seconds;
        }
        if (directions == 2 && s->count > 1) {
            sli_problem part = sli_problem_part(&s->problem, l, -1);
            both = sli_planner_seconds(planner, s->layers[l], &part);
        }
        double best = apart >= 0 && (both < 0 || apart < both) ? apart : both;
        if (best < 0) return -1;
        sum += best;
    }
    return sum;
}

/* Outputs of the step: one tensor, or one a direction where they are merged in another way than side by side. */
static sl_status wide_outputs(sli_planner *planner, const stack *s, direction *last, sli_emit *emit) {
    const sli_layer *layer = s->layers[s->count - 1];
    const sl_recurrent *o = layer->options;
    int features = output_of(o);
    if (o->bidirectional > SL_BI_CONCAT) {
        SLI_TRY(make_output(planner, layer, "forward", features, false, &last[0].y));
        SLI_TRY(make_output(planner, layer, "backward", features, false, &last[1].y));
        emit->out[SLI_RNN_Y_BACK] = last[1].y;
    } else {
        features *= sli_problem_directions(&s->problem);
        SLI_TRY(make_output(planner, layer, "", features, o->return_sequences != 0, &last[0].y));
    }
    emit->out[SLI_RNN_Y] = last[0].y;
    return SL_OK;
}

/* What the last layer gives its readers. */
static sl_status wide_result(sli_planner *planner, const sli_layer *layer, const direction *last, int *output) {
    const sl_recurrent *o = layer->options;
    *output = o->return_sequences ? last[0].y : last[0].final[0];
    if (o->return_sequences && o->bidirectional > SL_BI_CONCAT)
        return emit_after(planner, layer, last[0].y, last[1].y, output);
    if (!o->return_sequences && o->bidirectional)
        return emit_after(planner, layer, last[0].final[0], last[1].final[0], output);
    return SL_OK;
}

static sl_status emit_wide(sli_planner *planner, const stack *s, const int *inputs) {
    const sli_layer *first = s->layers[0], *last = s->layers[s->count - 1];
    int directions = sli_problem_directions(&s->problem);
    direction d[2];
    sli_emit emit;
    sli_emit_init(&emit, first, s->problem.op);
    emit.last = last == first ? NULL : last;
    emit.problem = s->problem;
    emit.in[SLI_RNN_X] = inputs[0];
    emit.takes_mask = true;
    emit.stateful = ((const sl_recurrent *)first->options)->stateful != 0;
    for (int l = 0; l < s->count; l++) {
        int features = sli_problem_part(&s->problem, l, -1).inputs;
        int *outputs = sli_planner_outputs(planner, s->layers[l]);
        outputs[0] = -1;
        for (int k = 0; k < directions; k++) {
            d[k] = direction_at(s->layers[l], k);
            SLI_TRY(add_part(planner, s->layers[l], features, l * directions + k, &d[k], &emit));
            return_states(s->layers[l], &d[k], outputs);
        }
    }
    SLI_TRY(wide_outputs(planner, s, d, &emit));
    SLI_TRY(emit_named(planner, s->layers, &emit));
    return wide_result(planner, last, d, &sli_planner_outputs(planner, last)[0]);
}

/* A stack, then both directions of a layer, are offered as one problem; *taken: emitted so. */
static sl_status offer_wide(sli_planner *planner, const sli_layer *layer, const int *inputs, bool *taken) {
    stack s = find_stack(planner, layer, inputs);
    *taken = false;
    if (s.count > 1)
        SLI_TRY(
            sli_planner_offer(planner, layer, s.layers[s.count - 1], &s.problem, seconds_of_parts(planner, &s), taken));
    if (!*taken) s.count = s.problem.layers = 1;
    if (!*taken && s.problem.bidirectional)
        SLI_TRY(sli_planner_offer(planner, layer, layer, &s.problem, seconds_of_parts(planner, &s), taken));
    return *taken ? emit_wide(planner, &s, inputs) : SL_OK;
}

/* -------------------------------------------------------------------------------------------------- emit -- */
static sl_status recurrent_emit(sli_planner *planner, const sli_layer *layer, const int *inputs, int *outputs) {
    const sl_recurrent *o = layer->options;
    bool taken, sequence = o->return_sequences != 0;
    SLI_TRY(offer_wide(planner, layer, inputs, &taken));
    if (taken) return SL_OK;
    direction forward = direction_at(layer, 0), backward = direction_at(layer, 1);
    SLI_TRY(emit_direction(planner, layer, inputs, &forward));
    return_states(layer, &forward, outputs);
    if (!o->bidirectional) {
        outputs[0] = sequence ? forward.y : forward.final[0];
        return sequence && o->go_backwards ? emit_after(planner, layer, forward.y, -1, &outputs[0]) : SL_OK;
    }
    SLI_TRY(emit_direction(planner, layer, inputs, &backward));
    return_states(layer, &backward, outputs);
    return emit_after(planner, layer, sequence ? forward.y : forward.final[0],
                      sequence ? backward.y : backward.final[0], &outputs[0]);
}

#define KIND(variable, name, table)                                         \
    const sli_layer_kind variable = {.class_name = name,                    \
                                     .options_bytes = sizeof(sl_recurrent), \
                                     .fields = table,                       \
                                     .has_params = true,                    \
                                     .suffixes = recurrent_suffixes,        \
                                     .shape = recurrent_shape,              \
                                     .emit = recurrent_emit}
KIND(sli_layer_lstm, "LSTM", lstm_fields);
KIND(sli_layer_gru, "GRU", gru_fields);
KIND(sli_layer_rnn, "SimpleRNN", rnn_fields);
