/* Token streams: one long text cut into B contiguous streams, read T tokens at a time (truncated back-propagation through
 * time). The tokens are borrowed.
 *
 * Contiguous (the PTB scripts): stream b holds tokens [b*L, (b+1)*L), L = N / B; every token of it but the last is an
 * input, the next one its label. The last block may be shorter than T; the PTB scripts drop it.
 * Blocks (char-rnn): the text is cut to a multiple of B*T, so that stream b holds whole blocks; labels are the text moved
 * by one, and the first token labels the very last. */
#ifndef SLI_STREAMS_H
#define SLI_STREAMS_H

#include "core/memory.h"

typedef struct sli_streams {
    const int32_t *tokens;
    size_t count;         /* tokens that are used */
    int batch, steps;     /* B, T */
    size_t stream_length; /* L: distance of the streams in the text */
    size_t positions;     /* inputs of one stream, from `first` on */
    size_t first;         /* position where every stream starts: the validation half of blocks */
    size_t blocks;        /* calls for one pass over `positions` */
    bool wrap;            /* the last token's label is the first token */
} sli_streams;

/* SL_ERR_INPUT if the text is too short for one step of every stream. */
sl_status sli_streams_contiguous(sli_streams *streams, const int32_t *tokens, size_t count, int batch, int steps,
                                 bool drop_partial);
/* train gets the first floor(blocks * (1 - valid_fraction)) blocks of every stream, valid (may be NULL) the rest. */
sl_status sli_streams_blocks(sli_streams *train, sli_streams *valid, const int32_t *tokens, size_t count, int batch,
                             int steps, double valid_fraction);

/* Steps of block `index`: T, or less in the last one. */
int sli_streams_steps(const sli_streams *streams, size_t index);
/* Rows [row, row + rows) of block `index`: inputs and labels [steps][rows]. Returns steps. */
int sli_streams_fill(const sli_streams *streams, size_t index, int row, int rows, int32_t *inputs, int32_t *labels);

#endif
