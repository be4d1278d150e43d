/* Fuzz target: any bytes as a stream model, with size and checksum put right, so that what lies behind them is reached. What is taken
 * runs a step. */
#include <stdlib.h>
#include <string.h>

#include "sluice_stream.h"
#include "stream/layers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    sl_stream_model *model;
    sl_stream *stream;
    uint32_t words[4096];
    size_t needed;
    if (size > sizeof words) return 0;
    memcpy(words, data, size);
    if (size >= SLI_SLM_HEADER) {
        words[4] = (uint32_t)size;
        words[5] = sli_slm_checksum((const char *)words + SLI_SLM_HEADER, size - SLI_SLM_HEADER);
    }
    if (sl_stream_model_size(words, size, &needed) != SL_OK) return 0;
    if (needed > (size_t)64 << 20 || sl_stream_model_new(words, size, &model) != SL_OK) return 0;
    if (sl_stream_new(model, &stream) == SL_OK) {
        float *x = calloc((size_t)sl_stream_inputs(model) + 1, sizeof *x);
        float *y = calloc((size_t)sl_stream_outputs(model), sizeof *y);
        if (x && y && sl_stream_vocabulary(model)) sl_stream_step_token(stream, sl_stream_vocabulary(model) - 1, y);
        if (x && y) sl_stream_step(stream, x, y);
        free(x);
        free(y);
        sl_stream_free(stream);
    }
    sl_stream_model_free(model);
    return 0;
}
