/* Random models for streams, with what the library computes for a sequence. */
#ifndef TEST_STREAM_CASE_H
#define TEST_STREAM_CASE_H

#include "sluice_stream.h"
#include "test.h"

enum { STREAM_STEPS = 12 };

typedef struct stream_case {
    sl_model *model;
    sl_plan *plan;
    sl_params *params;
    int inputs, vocabulary, outputs;
    float *x;        /* [STEPS][inputs] */
    int32_t *tokens; /* [STEPS] */
    float *y;        /* [STEPS][outputs]: sl_run_forward's */
} stream_case;

/* Random parameters, and a random sequence run through the library. The model is the case's from then on. */
stream_case stream_case_new(sl_model *model, uint64_t *random);
stream_case stream_case_in(sl_model *model, sl_dtype dtype, uint64_t *random);
/* The same with smaller parameters, for activations without bounds. */
stream_case stream_case_scaled(sl_model *model, double factor, uint64_t *random);
/* Once more, with parameters that were set since. */
void stream_case_run(stream_case *c);
void stream_case_free(stream_case *c);
/* Converts to `form` in the test's folder; the path, valid until the next call. */
const char *stream_case_convert(const stream_case *c, sl_convert_form form);
/* The stream model, without a file. */
sl_stream_model *stream_case_load(const stream_case *c);
void stream_case_step(const stream_case *c, sl_stream *stream, int t, float *y);
/* Whether streams have kernels for it that this processor runs. */
bool stream_case_have(const char *isa);
/* Floats as wide as the model's output. */
float *stream_case_output(const stream_case *c);
/* A model of one to three recurrent layers with options drawn from all that streams have, maybe tokens, maybe dense layers. */
sl_model *stream_random_model(uint64_t *random);

#endif
