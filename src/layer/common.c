/* What several kinds of layers share. */
#include <math.h>
#include <stdio.h>

#include "layer/layers.h"

const sli_enum_name sli_activation_names[] = {
    {"linear", SL_ACT_LINEAR},
    {"tanh", SL_ACT_TANH},
    {"sigmoid", SL_ACT_SIGMOID},
    {"relu", SL_ACT_RELU},
    {"hard_sigmoid", SL_ACT_HARD_SIGMOID},
    {"hard_sigmoid_k2", SL_ACT_HARD_SIGMOID_K2},
    {"softsign", SL_ACT_SOFTSIGN},
    {NULL, 0},
};

sl_status sli_layer_need_inputs(const sli_layer *layer, int count, int low, int high) {
    if (low == high)
        SLI_FAIL_IF(count != low, SL_ERR_INPUT, "layer %s: takes %d input%s, not %d; correct its inputs", layer->name,
                    low, low == 1 ? "" : "s", count);
    SLI_FAIL_IF(count < low || count > high, SL_ERR_INPUT,
                "layer %s: takes %d to %d inputs, not %d; correct its inputs", layer->name, low, high, count);
    return SL_OK;
}

sl_status sli_layer_need_size(const sli_layer *layer, const char *what, int value) {
    enum { LARGEST = 1 << 24 };
    SLI_FAIL_IF(value < 1 || value > LARGEST, SL_ERR_SHAPE, "layer %s: %d %s; it needs 1 to %d", layer->name, value,
                what, LARGEST);
    return SL_OK;
}

sl_status sli_layer_need_enum(const sli_layer *layer, const char *what, int value, int last) {
    SLI_FAIL_IF(value < 0 || value > last, SL_ERR_USAGE, "layer %s: %s is %d; use one of the names in sluice.h",
                layer->name, what, value);
    return SL_OK;
}

/* A file with another value would not be read again. */
sl_status sli_layer_need_init(const sli_layer *layer, const char *what, sl_init init) {
    SLI_TRY(sli_layer_need_enum(layer, what, (int)init.kind, SL_INIT_PYTORCH));
    bool width = init.kind == SL_INIT_UNIFORM || init.kind == SL_INIT_NORMAL || init.kind == SL_INIT_TRUNCATED_NORMAL;
    SLI_FAIL_IF(!isfinite(init.value) || (width && init.value < 0), SL_ERR_INPUT,
                "layer %s: %s has the value %g; it must be finite, and as a width not negative", layer->name, what,
                init.value);
    return SL_OK;
}

sl_status sli_layer_need_float(const sli_layer *layer, const sli_shape *shape) {
    SLI_FAIL_IF(shape->integer, SL_ERR_SHAPE,
                "layer %s: its input holds tokens; put an Embedding (or one-hot) layer before it", layer->name);
    return SL_OK;
}

sl_init sli_init_or(sl_init init, sl_init_kind fallback, double value) {
    return init.kind == SL_INIT_DEFAULT ? (sl_init){fallback, value} : init;
}

static sl_status add_param(sli_planner *planner, const sli_layer *layer, const char *direction, const char *what,
                           sli_param param, int *index) {
    char name[160];
    snprintf(name, sizeof name, "%s%s%s.%s", layer->name, *direction ? "." : "", direction, what);
    param.name = name;
    param.layer = layer->index;
    return sli_planner_param(planner, &param, index);
}

sl_status sli_layer_param(sli_planner *planner, const sli_layer *layer, const char *direction, const char *what,
                          int rows, int columns, sl_init init, int pytorch_fan, int *index) {
    sli_param param = {.rows = rows,
                       .columns = columns,
                       .init = init,
                       .pytorch_fan = pytorch_fan,
                       .fans = layer->kind == &sli_layer_embedding ? SLI_FANS_TABLE : SLI_FANS_MATRIX,
                       .identity_row = layer->kind == &sli_layer_gru && rows > 1 ? rows / 3 : 0};
    return add_param(planner, layer, direction, what, param, index);
}

sl_status sli_layer_bias(sli_planner *planner, const sli_layer *layer, const char *direction, const char *what,
                         const sli_param *bias, int *index) {
    sli_param param = *bias;
    param.rows = 1;
    param.init = sli_init_or(bias->init, SL_INIT_ZEROS, 0);
    if (param.fans != SLI_FANS_TWO_BIASES) param.fans = SLI_FANS_BIAS;
    return add_param(planner, layer, direction, what, param, index);
}
