/* The kernels of a step: a layer with packed weights, one row of numbers in, one out. isa/step.c, compiled once per instruction set.
 *
 * Units are cut into *groups* of `lanes`, the last padded with zeros. A matrix of `gates` * units rows is packed in blocks of
 * groups: w[block][k][group of the block][gate][lane], so that one pass over the weights multiplies all gates of a block's
 * units with number k, in up to eight independent sums: eight multiply-adds of four cycles' latency, two a cycle. A block that
 * has fewer vectors cuts k into *phases* to have as many sums. */
#ifndef SLI_STREAM_KERNELS_H
#define SLI_STREAM_KERNELS_H

#include "stream/layers.h"

/* What a layer reads: `count` numbers that meet the inputs from `first` on; the others are 0. (One-hot: one 1 at the token.) */
typedef struct sli_stream_input {
    const float *x;
    int first, count;
} sli_stream_input;

typedef struct sli_stream_op sli_stream_op;
/* h [outputs], c [units]: state, padded to lanes, moved on by a step; dense: h is the output. work: as the model says. */
typedef void (*sli_stream_step_fn)(const sli_stream_op *op, sli_stream_input input, float *h, float *c, float *work);

struct sli_stream_op {
    sli_stream_step_fn step;
    int inputs, units, outputs, groups /* of units */, options, act, gate_act;
    float clip, zone_h, zone_c;
    const float *weights;  /* packed: x's part, then h's, block by block */
    const float *bias;     /* [group][gates][lane]; GRU: r z n and the recurrent bias of n */
    const float *second;   /* packed projection, or R_n of a GRU with reset before */
    const float *peephole; /* [3][padded units] */
    size_t h, c, state;    /* places in a stream's floats, and in a saved state */
    bool recurrent, cells; /* has h, has c there */
};

typedef struct sli_stream_isa {
    const char *name;
    int lanes;
    sli_stream_step_fn usual_lstm, usual_gru;      /* tanh, sigmoid, no options */
    sli_stream_step_fn lstm, gru, rnn, dense, few; /* few: dense of few units, by rows */
} sli_stream_isa;
extern const sli_stream_isa sli_stream_isa_base, sli_stream_isa_neon, sli_stream_isa_avx2, sli_stream_isa_avx512,
    sli_stream_isa_avx512_half; /* AVX-512's instructions on vectors of eight */

/* Groups in the next block of a matrix with `gates` vectors a group, of `left` groups. */
static inline int sli_stream_block(int gates, int left) {
    if (gates > 1) return left >= 2 ? 2 : 1;
    return left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

#endif
