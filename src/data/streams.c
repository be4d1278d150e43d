/* Token streams for truncated back-propagation through time. */
#include "data/streams.h"

sl_status sli_streams_contiguous(sli_streams *streams, const int32_t *tokens, size_t count, int batch, int steps,
                                 bool drop_partial) {
    size_t length = count / (size_t)batch;
    SLI_FAIL_IF(
        length < 2, SL_ERR_INPUT,
        "the text has %zu tokens, too few for %d streams: every stream needs 2; lower --batch or give more text", count,
        batch);
    size_t positions = length - 1, blocks = (positions + (size_t)steps - 1) / (size_t)steps;
    if (drop_partial) {
        blocks = positions / (size_t)steps;
        SLI_FAIL_IF(blocks == 0, SL_ERR_INPUT,
                    "the text has %zu tokens: %d streams of %zu hold no block of %d steps; lower --batch or --steps",
                    count, batch, length, steps);
        positions = blocks * (size_t)steps;
    }
    *streams = (sli_streams){tokens, length * (size_t)batch, batch, steps, length, positions, 0, blocks, false};
    return SL_OK;
}

sl_status sli_streams_blocks(sli_streams *train, sli_streams *valid, const int32_t *tokens, size_t count, int batch,
                             int steps, double valid_fraction) {
    size_t step_tokens = (size_t)batch * (size_t)steps, blocks = count / step_tokens;
    SLI_FAIL_IF(blocks == 0, SL_ERR_INPUT,
                "the text has %zu tokens, less than one block of %d streams x %d steps: lower --batch or --steps",
                count, batch, steps);
    size_t train_blocks = (size_t)((double)blocks * (1 - valid_fraction));
    if (train_blocks > blocks) train_blocks = blocks;
    SLI_FAIL_IF(train_blocks == 0 || (valid && train_blocks == blocks), SL_ERR_INPUT,
                "the text makes %zu blocks of %d streams x %d steps: none is left for %s with a validation part of %g; "
                "lower --batch or --steps",
                blocks, batch, steps, train_blocks == 0 ? "training" : "validation", valid_fraction);
    *train = (sli_streams){.tokens = tokens,
                           .count = blocks * step_tokens,
                           .batch = batch,
                           .steps = steps,
                           .stream_length = blocks * (size_t)steps,
                           .positions = train_blocks * (size_t)steps,
                           .blocks = train_blocks,
                           .wrap = true};
    if (valid) {
        *valid = *train;
        valid->first = train->positions;
        valid->blocks = blocks - train_blocks;
        valid->positions = valid->blocks * (size_t)steps;
    }
    return SL_OK;
}

int sli_streams_steps(const sli_streams *streams, size_t index) {
    size_t left = streams->positions - index * (size_t)streams->steps;
    return left < (size_t)streams->steps ? (int)left : streams->steps;
}

int sli_streams_fill(const sli_streams *streams, size_t index, int row, int rows, int32_t *inputs, int32_t *labels) {
    int steps = sli_streams_steps(streams, index);
    for (int b = 0; b < rows; b++) {
        size_t at = (size_t)(row + b) * streams->stream_length + streams->first + index * (size_t)streams->steps;
        for (int t = 0; t < steps; t++, at++) {
            size_t next = at + 1 == streams->count && streams->wrap ? 0 : at + 1;
            inputs[(size_t)t * (size_t)rows + (size_t)b] = streams->tokens[at];
            labels[(size_t)t * (size_t)rows + (size_t)b] = streams->tokens[next];
        }
    }
    return steps;
}
