/* Model descriptions as Keras Sequential JSON, both ways. Which keys a layer has is said by the tables of the layer kinds
 * (sli_layer_kind.fields); only what Keras spells in its own way is known here: InputLayer, Bidirectional,
 * TimeDistributed, initialisers. */
#ifndef SLI_MODEL_JSON_H
#define SLI_MODEL_JSON_H

#include "core/model.h"
#include "io/json_text.h"

sl_status sli_model_from_json(const sl_allocator *allocator, const char *text, size_t bytes, sl_model **model);
/* The text lives in the model until the next call. */
sl_status sli_model_to_json(sl_model *model, const char **text);

/* -------------------------------------------------------------------------------- shared by the files of the reader -- */
/* Sizes beyond this (2^24 units, features, words) are mistakes; below it no product of two sizes and four gates overflows. */
enum { SLI_JSON_LARGEST = 1 << 24 };

/* Where in the document a sentence is about. */
typedef struct sli_json_where {
    int number;             /* of the layer, from 1; 0 = the model itself */
    const char *name;       /* of the layer */
    const char *class_name; /* as in the document */
    int keras;              /* major version that wrote the document, 0 = not said */
    bool standalone;        /* that is Keras up to 2.3, not the one in TensorFlow */
} sli_json_where;
/* "layer 2 "gru" (GRU): ..." */
sl_status sli_json_fail(const sli_json_where *where, sl_status status, const char *format, ...) SLI_PRINTF(3, 4);

/* What layers, wrappers and the model have in common, `trainable` and `dtype`: *frozen becomes true where `trainable` is false. */
sl_status sli_json_read_common(const sli_json_where *where, json_t *config, bool *frozen);
/* "int32", or a policy {"class_name": "DTypePolicy", "config": {"name": "int32"}}. */
bool sli_json_is_integer_type(json_t *dtype);
/* Fills `options` (zeroed, kind->options_bytes) from `config` by the kind's table. `wrapped`: the config stands inside a
 * wrapper. String fields point into `config`. */
sl_status sli_json_read_options(const sli_json_where *where, const sli_layer_kind *kind, json_t *config, void *options);
/* A Keras initializer: a name, or {"class_name", "config"}; null is glorot_uniform, as in Keras. */
sl_status sli_json_read_init(const sli_json_where *where, const char *key, json_t *value, sl_init *init);
void sli_json_write_init(sli_json_out *out, sl_init init);

#endif
