/* The bytes of a stream model: reading, and every check before a number of it is used. */
#include <string.h>

#include "cell/activations.h"
#include "stream/layers.h"

uint64_t sli_stream_array_floats(const sli_stream_layer *l, sli_stream_array_id id) {
    const uint64_t rows = (uint64_t)sli_stream_gates(l) * (uint64_t)l->units, units = (uint64_t)l->units;
    const bool recurrent = sli_stream_is_recurrent(l);
    switch (id) {
    case SLI_STREAM_KERNEL:
        return l->kind == SLI_STREAM_ONE_HOT ? 0 : rows * (uint64_t)l->inputs;
    case SLI_STREAM_RECURRENT:
        return recurrent ? rows * (uint64_t)l->outputs : 0;
    case SLI_STREAM_BIAS:
        return l->kind >= SLI_STREAM_DENSE ? rows : 0;
    case SLI_STREAM_STATE_BIAS:
        return l->kind == SLI_STREAM_GRU && !(l->options & CELL_RESET_BEFORE) ? units : 0;
    case SLI_STREAM_PEEPHOLE:
        return l->options & CELL_PEEPHOLE ? 3 * units : 0;
    case SLI_STREAM_PROJECTION:
        return l->options & CELL_PROJECTION ? (uint64_t)l->outputs * units : 0;
    default:
        return 0;
    }
}

/* -------------------------------------------------------------------------------------------------------- checks -- */
static int allowed_options(sli_stream_kind kind) {
    switch (kind) {
    case SLI_STREAM_LSTM:
        return CELL_PEEPHOLE | CELL_CLIP | CELL_ZONEOUT_H | CELL_ZONEOUT_C | CELL_PROJECTION;
    case SLI_STREAM_GRU:
        return CELL_ZONEOUT_H | CELL_RESET_BEFORE;
    case SLI_STREAM_RNN:
        return CELL_ZONEOUT_H;
    default:
        return 0;
    }
}

static bool is_act(int act) {
    return act >= CELL_ACT_LINEAR && act <= CELL_ACT_SOFTSIGN;
}

static sl_status check_layer(const sli_stream_layer *l, int index) {
    SLI_FAIL_IF(l->kind < SLI_STREAM_EMBEDDING || l->kind > SLI_STREAM_RNN, SL_ERR_FILE,
                "layer %d: kind %d is unknown; the stream model is damaged or of a newer Sluice", index, (int)l->kind);
    const int sizes[] = {l->inputs, l->units, l->outputs};
    for (int k = 0; k < 3; k++)
        SLI_FAIL_IF(sizes[k] < 1 || sizes[k] > SLI_STREAM_MAX_SIZE, SL_ERR_FILE,
                    "layer %d: a size of %d; the stream model is damaged", index, sizes[k]);
    SLI_FAIL_IF(l->options & ~allowed_options(l->kind), SL_ERR_FILE,
                "layer %d: options %x do not go with its kind; the stream model is damaged or of a newer Sluice", index,
                (unsigned)l->options);
    SLI_FAIL_IF(l->kind == SLI_STREAM_ONE_HOT && l->inputs != l->units, SL_ERR_FILE,
                "layer %d: %d tokens as one-hot vectors of %d; the stream model is damaged", index, l->inputs,
                l->units);
    SLI_FAIL_IF(!(l->options & CELL_PROJECTION) && l->units != l->outputs, SL_ERR_FILE,
                "layer %d: %d units give %d outputs; the stream model is damaged", index, l->units, l->outputs);
    const bool gates = l->kind == SLI_STREAM_LSTM || l->kind == SLI_STREAM_GRU;
    SLI_FAIL_IF((l->kind >= SLI_STREAM_DENSE && !is_act(l->act)) || (gates && !is_act(l->gate_act)), SL_ERR_FILE,
                "layer %d: activations %d and %d; the stream model is damaged or of a newer Sluice", index, l->act,
                l->gate_act);
    SLI_FAIL_IF(!(l->clip >= 0) || !(l->zone_h >= 0 && l->zone_h < 1) || !(l->zone_c >= 0 && l->zone_c < 1),
                SL_ERR_FILE, "layer %d: clip %g, zoneout %g and %g; the stream model is damaged", index,
                (double)l->clip, (double)l->zone_h, (double)l->zone_c);
    return SL_OK;
}

sl_status sli_stream_check(const sli_stream_layers *layers) {
    SLI_FAIL_IF(layers->count < 1 || layers->count > SLI_STREAM_MAX_LAYERS, SL_ERR_FILE,
                "a stream model of %d layers; it may have 1 to %d", layers->count, SLI_STREAM_MAX_LAYERS);
    for (int i = 0; i < layers->count; i++) {
        const sli_stream_layer *l = &layers->layer[i];
        SLI_TRY(check_layer(l, i));
        SLI_FAIL_IF(i > 0 && l->kind <= SLI_STREAM_ONE_HOT, SL_ERR_FILE,
                    "layer %d: tokens in the middle of a stream model; it is damaged", i);
        SLI_FAIL_IF(i > 0 && l->inputs != layers->layer[i - 1].outputs, SL_ERR_FILE,
                    "layer %d: it reads %d numbers and the layer before gives %d; the stream model is damaged", i,
                    l->inputs, layers->layer[i - 1].outputs);
    }
    SLI_FAIL_IF(layers->layer[layers->count - 1].kind == SLI_STREAM_ONE_HOT, SL_ERR_FILE,
                "a stream model of one-hot vectors alone computes nothing; it is damaged");
    return SL_OK;
}

/* ------------------------------------------------------------------------------------------------------- reading -- */
/* FNV-1a. */
uint32_t sli_slm_checksum(const void *bytes, size_t size) {
    uint32_t sum = 2166136261u;
    for (size_t i = 0; i < size; i++) sum = (sum ^ ((const uint8_t *)bytes)[i]) * 16777619u;
    return sum;
}

typedef struct reader {
    const char *bytes;
    size_t size, at;
} reader;

static uint32_t word_at(const void *bytes, int index) {
    uint32_t word;
    memcpy(&word, (const char *)bytes + 4 * index, 4);
    return word;
}
static float float_at(const void *bytes, int index) {
    float value;
    memcpy(&value, (const char *)bytes + 4 * index, 4);
    return value;
}
static int int_at(const void *bytes, int index) {
    const uint32_t word = word_at(bytes, index);
    return word > INT32_MAX ? -1 : (int)word;
}

static sl_status read_header(reader *r, sli_stream_layers *layers) {
    SLI_FAIL_IF(r->size < SLI_SLM_HEADER || memcmp(r->bytes, "SLUICESM", 8) != 0, SL_ERR_FILE,
                "not a stream model; make one of a model file with `sluice convert MODEL OUT.slm`");
    SLI_FAIL_IF(word_at(r->bytes, 2) != SLI_SLM_VERSION, SL_ERR_FILE,
                "a stream model of version %u, and this library reads version %d; convert the model with this Sluice",
                (unsigned)word_at(r->bytes, 2), SLI_SLM_VERSION);
    SLI_FAIL_IF(word_at(r->bytes, 4) != r->size, SL_ERR_FILE,
                "the stream model is to have %u bytes and has %zu; it was cut off, copy it again",
                (unsigned)word_at(r->bytes, 4), r->size);
    SLI_FAIL_IF(word_at(r->bytes, 5) != sli_slm_checksum(r->bytes + SLI_SLM_HEADER, r->size - SLI_SLM_HEADER),
                SL_ERR_FILE, "the checksum of the stream model is wrong; it is damaged, copy it again");
    SLI_FAIL_IF(word_at(r->bytes, 6) != 0 || word_at(r->bytes, 7) != 0, SL_ERR_FILE,
                "the stream model's header has more than this library knows; it is damaged, or of a later Sluice");
    layers->count = int_at(r->bytes, 3);
    r->at = SLI_SLM_HEADER;
    return SL_OK;
}

static sl_status read_layer(reader *r, int index, sli_stream_layer *l) {
    const char *p = r->bytes + r->at;
    SLI_FAIL_IF(r->size - r->at < SLI_SLM_LAYER, SL_ERR_FILE, "layer %d is missing; the stream model is damaged",
                index);
    *l = (sli_stream_layer){.kind = (sli_stream_kind)int_at(p, 0),
                            .inputs = int_at(p, 2),
                            .units = int_at(p, 3),
                            .outputs = int_at(p, 4),
                            .options = int_at(p, 5),
                            .act = int_at(p, 6),
                            .gate_act = int_at(p, 7),
                            .clip = float_at(p, 8),
                            .zone_h = float_at(p, 9),
                            .zone_c = float_at(p, 10)};
    SLI_FAIL_IF(word_at(p, 1) != 0, SL_ERR_FILE,
                "layer %d: weights of type %u; this library reads f32 (0), take a newer one", index,
                (unsigned)word_at(p, 1));
    SLI_TRY(check_layer(l, index));
    r->at += SLI_SLM_LAYER;
    for (int id = 0; id < SLI_STREAM_ARRAYS; id++) {
        const uint64_t bytes = 4 * sli_stream_array_floats(l, (sli_stream_array_id)id);
        SLI_FAIL_IF(bytes > r->size - r->at, SL_ERR_FILE, "layer %d: weights are missing; the stream model is damaged",
                    index);
        if (bytes) l->array[id] = (const float *)(const void *)(r->bytes + r->at);
        r->at += bytes;
    }
    return SL_OK;
}

sl_status sli_slm_read(const void *bytes, size_t size, sli_stream_layers *layers) {
    reader r = {.bytes = bytes, .size = size};
    SLI_FAIL_IF((uintptr_t)bytes % 4 != 0, SL_ERR_USAGE, "the bytes of a stream model must be aligned to 4");
    SLI_TRY(read_header(&r, layers));
    SLI_FAIL_IF(layers->count < 1 || layers->count > SLI_STREAM_MAX_LAYERS, SL_ERR_FILE,
                "a stream model of %d layers; it may have 1 to %d", layers->count, SLI_STREAM_MAX_LAYERS);
    for (int i = 0; i < layers->count; i++) SLI_TRY(read_layer(&r, i, &layers->layer[i]));
    SLI_FAIL_IF(r.at != size, SL_ERR_FILE, "%zu bytes follow the last layer; the stream model is damaged", size - r.at);
    return sli_stream_check(layers);
}
