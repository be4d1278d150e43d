/* From a trained model to the forms that run without Sluice's planner. */
#ifndef SLI_STREAM_CONVERT_H
#define SLI_STREAM_CONVERT_H

#include "core/memory.h"
#include "core/params.h"
#include "stream/layers.h"

/* The layers that lead to the model's first output, with their arrays in `arena`. SL_ERR_INPUT where they are no chain that
 * runs step by step: "layer NAME: ..., which a stream cannot do". */
sl_status sli_stream_layers_of(const sl_model *model, sl_params *params, sli_arena *arena, sli_stream_layers *layers);
/* Appends to *text; the caller looks at text->failed. */
void sli_slm_write(const sli_stream_layers *layers, sli_text *text);
/* One C99 file; `name` is what its names begin with. */
void sli_stream_emit_c(const sli_stream_layers *layers, const char *name, bool i8, sli_text *text);

/* A number of a C file: as %a, but with a point in any locale of the program. */
typedef struct sli_hex {
    char text[32];
} sli_hex;
sli_hex sli_hex_of(float value);

#endif
