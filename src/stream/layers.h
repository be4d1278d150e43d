/* A stream model as layers, between its forms: a trained model (convert.c), the bytes of an .slm file (slm.c), a C file (emit_c.c),
 * packed weights in memory (model.c). Every form holds the same layers in the same order with the same arrays.
 *
 * What training needs apart is one number here: LSTM, RNN and GRU have one bias, the sum of both and of a forget bias added when
 * run; a GRU with reset after the product keeps n's recurrent bias, which r multiplies. Dropout is gone. */
#ifndef SLI_STREAM_LAYERS_H
#define SLI_STREAM_LAYERS_H

#include "core/status.h"

#include <stdbool.h>

typedef enum sli_stream_kind { /* numbers of the file format */
                               SLI_STREAM_EMBEDDING = 1,
                               SLI_STREAM_ONE_HOT,
                               SLI_STREAM_DENSE,
                               SLI_STREAM_LSTM,
                               SLI_STREAM_GRU,
                               SLI_STREAM_RNN
} sli_stream_kind;

/* Row-major, gates in the order of the model file; which a layer has follows from its kind and options. */
typedef enum sli_stream_array_id {
    SLI_STREAM_KERNEL,     /* [G*H][I], dense [units][I], embedding [V][E] */
    SLI_STREAM_RECURRENT,  /* [G*H][O] */
    SLI_STREAM_BIAS,       /* [G*H], dense [units] */
    SLI_STREAM_STATE_BIAS, /* [H]: GRU, reset after: n = act(W x + b + r (R h + this)) */
    SLI_STREAM_PEEPHOLE,   /* [3][H] i f o, with CELL_PEEPHOLE */
    SLI_STREAM_PROJECTION, /* [O][H], with CELL_PROJECTION */
    SLI_STREAM_ARRAYS
} sli_stream_array_id;

typedef struct sli_stream_layer {
    sli_stream_kind kind;
    int inputs, units,
        outputs;       /* outputs: units, or those of a projection; inputs of EMBEDDING, ONE_HOT: the vocabulary */
    int options;       /* CELL_PEEPHOLE, _CLIP, _ZONEOUT_H, _ZONEOUT_C, _PROJECTION, _RESET_BEFORE */
    int act, gate_act; /* CELL_ACT_*; gate_act 0 where there are no gates */
    float clip, zone_h, zone_c;            /* 0 without their option */
    const float *array[SLI_STREAM_ARRAYS]; /* NULL where the layer has none */
} sli_stream_layer;

enum { SLI_STREAM_MAX_LAYERS = 64, SLI_STREAM_MAX_SIZE = 1 << 24 };

/* EMBEDDING or ONE_HOT stands first, or nowhere; at least one layer, and more than a ONE_HOT. */
typedef struct sli_stream_layers {
    int count;
    sli_stream_layer layer[SLI_STREAM_MAX_LAYERS];
} sli_stream_layers;

static inline bool sli_stream_is_recurrent(const sli_stream_layer *layer) {
    return layer->kind >= SLI_STREAM_LSTM;
}
static inline int sli_stream_gates(const sli_stream_layer *layer) {
    return layer->kind == SLI_STREAM_LSTM ? 4 : layer->kind == SLI_STREAM_GRU ? 3 : 1;
}
static inline bool sli_stream_takes_tokens(const sli_stream_layers *layers) {
    return layers->layer[0].kind <= SLI_STREAM_ONE_HOT;
}
/* Floats of an array; 0 if the layer has none. At most 2^50. */
uint64_t sli_stream_array_floats(const sli_stream_layer *layer, sli_stream_array_id id);
/* Sizes, options and the chain of inputs; SL_ERR_FILE, "layer 2: ...". */
sl_status sli_stream_check(const sli_stream_layers *layers);

/* ---------------------------------------------------------------------------------------------------- .slm files --
 * Little-endian; all numbers take 4 bytes.
 *     "SLUICESM"; version 1; number of layers; bytes of the file; checksum of all that follows; two zeros
 *     each layer: kind, type of the weights (0: f32), inputs, units, outputs, options, act, gate_act, clip, zone_h, zone_c,
 *                 five zeros; then its arrays in the order above */
enum { SLI_SLM_HEADER = 32, SLI_SLM_LAYER = 64, SLI_SLM_VERSION = 1 };
/* `bytes` is borrowed by *layers, aligned to 4. SL_ERR_FILE with what is wrong. */
sl_status sli_slm_read(const void *bytes, size_t size, sli_stream_layers *layers);
uint32_t sli_slm_checksum(const void *bytes, size_t size);

#endif
