/* The kinds of layers. Each file has the same sections: config (the JSON table), shape, params, emit (forward steps; each
 * step's kernel row carries its backward). */
#ifndef SLI_LAYERS_H
#define SLI_LAYERS_H

#include "core/model.h"

extern const sli_layer_kind sli_layer_input, sli_layer_lstm, sli_layer_gru, sli_layer_rnn, sli_layer_embedding,
    sli_layer_one_hot, sli_layer_dense, sli_layer_dropout, sli_layer_add, sli_layer_concat, sli_layer_multiply,
    sli_layer_average;

/* src/layer/common.c: tables and checks that several kinds share. */
extern const sli_enum_name sli_activation_names[];
sl_status sli_layer_need_inputs(const sli_layer *layer, int count, int low, int high);
/* `value` units, features or tokens: 1 to 2^24, so that no product of two overflows. */
sl_status sli_layer_need_size(const sli_layer *layer, const char *what, int value);
/* `value` is a name of the enum whose last one is `last`. */
sl_status sli_layer_need_enum(const sli_layer *layer, const char *what, int value, int last);
sl_status sli_layer_need_init(const sli_layer *layer, const char *what, sl_init init);
sl_status sli_layer_need_float(const sli_layer *layer, const sli_shape *shape);
/* init, or `fallback` (with its value) where none was chosen. */
sl_init sli_init_or(sl_init init, sl_init_kind fallback, double value);
/* Adds "LAYER[.direction].what". */
sl_status sli_layer_param(sli_planner *planner, const sli_layer *layer, const char *direction, const char *what,
                          int rows, int columns, sl_init init, int pytorch_fan, int *index);
/* The same of a bias, by its columns, init, pytorch_fan, set_* and, as one of two, fans. */
sl_status sli_layer_bias(sli_planner *planner, const sli_layer *layer, const char *direction, const char *what,
                         const sli_param *bias, int *index);

#endif
