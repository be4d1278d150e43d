/* The kernels of a step: a layer with packed weights, one row of numbers in, one out. isa/step.c, compiled once per instruction set.
 *
 * Units are cut into *groups* of `lanes`, the last padded with zeros. A matrix of `gates` * units rows is packed in blocks of
 * groups: w[block][k][group of the block][gate][lane], so that one pass over the weights multiplies all gates of a block's
 * units with number k, in up to eight independent sums: eight multiply-adds of four cycles' latency, two a cycle. A block that
 * has fewer vectors cuts k into *phases* to have as many sums.
 *
 * Steps go through the blocks of a cell forward and back by turns, as weights that do not fit into the nearest cache are read over
 * and over: what a step read last is there for the next one. No bit depends on it: blocks have no number in common. */
#ifndef SLI_STREAM_KERNELS_H
#define SLI_STREAM_KERNELS_H

#include "stream/layers.h"

/* What a layer reads: `count` numbers that meet the inputs from `first` on; the others are 0. (One-hot: one 1 at the token.) */
typedef struct sli_stream_input {
    const float *x;
    int first, count;
} sli_stream_input;

typedef struct sli_stream_op sli_stream_op;
/* h [outputs], c [units]: state, padded to lanes, moved on by a step; dense: h is the output. work: as the model says.
 * back: from the last block on. */
typedef void (*sli_stream_step_fn)(const sli_stream_op *op, sli_stream_input input, float *h, float *c, float *work,
                                   bool back);

struct sli_stream_op {
    sli_stream_step_fn step;
    int inputs, units, outputs, groups /* of units */, per_block /* groups, of a cell */, options, act, gate_act;
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
    sli_stream_step_fn usual_lstm, usual_gru;          /* tanh, sigmoid, no options */
    sli_stream_step_fn lstm, gru, rnn, dense, few;     /* few: dense of few units, by rows */
    void (*copy)(const float *x, int count, float *y); /* y [count] = x, the output of a step function */
} sli_stream_isa;
extern const sli_stream_isa sli_stream_isa_base, sli_stream_isa_neon, sli_stream_isa_avx2, sli_stream_isa_avx512,
    sli_stream_isa_avx512_half; /* AVX-512's instructions on vectors of eight */

/* Most groups of a block of a matrix with `gates` vectors a group. Of cells two, but of long vectors one: the smaller a block, the more of what
 * the last step read is near, and its cells are computed beside the next one's weights. Two groups in all stay together. */
static inline int sli_stream_block(int gates, int lanes, int groups) {
    return gates == 1 ? 8 : lanes >= 16 && groups > 2 ? 1 : 2;
}

#endif
