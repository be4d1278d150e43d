/* The two objects of sluice_stream.h as they lie in memory: a model is one block, a stream another. */
#ifndef SLI_STREAM_MODEL_H
#define SLI_STREAM_MODEL_H

#include "sluice_stream.h"
#include "stream/kernels.h"

struct sl_stream_model {
    const sli_stream_isa *isa;
    void *memory; /* to be freed; NULL in memory of the caller */
    int vocabulary, inputs, outputs, embedding /* numbers of a token; 0: one-hot */, count;
    const float *table;       /* [vocabulary][embedding] */
    const sli_stream_op *ops; /* [count] */
    size_t floats, work;      /* of a stream: states and outputs, then the kernels' work */
    int state;                /* numbers of a saved state */
};

struct sl_stream {
    const sl_stream_model *model;
    void *memory;
    float *numbers; /* [floats + work] */
    bool back;      /* the next step goes through blocks from the last one on */
};

enum { SLI_STREAM_ALIGN = 64 };
static inline size_t sli_stream_padded(int units, int lanes) {
    return (size_t)((units + lanes - 1) / lanes) * (size_t)lanes;
}

#endif
