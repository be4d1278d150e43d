/* sluice_stream.h - a trained network one step at a time: for audio callbacks, sensors, devices.
 *
 * `sluice convert MODEL OUT.slm` makes a *stream model* of a model file: layers one after the other (an embedding or one-hot
 * vectors, LSTM, GRU and simple RNN of one direction, dense), with their weights. This header runs it:
 *
 *     sl_stream_model *model;                       weights, packed for this processor; read-only
 *     sl_stream *stream;                            one state; as many as you like share a model
 *     sl_stream_model_load("filter.slm", &model);
 *     sl_stream_new(model, &stream);
 *     for (;;) sl_stream_step(stream, x, y);        x [inputs] -> y [outputs], the state moves on
 *
 * sl_stream_step and sl_stream_step_token allocate nothing, take no lock, make no system call, start no thread, and do the same
 * work in every step. Denormal numbers are flushed to 0 inside a step (they would take a hundred times as long); the caller's
 * floating-point control (MXCSR, FPCR) is as it was afterwards. The numbers are those of sl_run_forward up to rounding.
 * A layer without return_sequences gives, in every step, its output for the sequence so far.
 *
 * libsluice_stream.a holds what is declared here, sl_status_* and sl_error_detail of sluice.h, and nothing else: it needs the C
 * library alone. libsluice holds the same. Functions may be called from any thread; one stream by one thread at a time. */
#ifndef SLUICE_STREAM_H
#define SLUICE_STREAM_H

#include "sluice.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_stream_model sl_stream_model;
typedef struct sl_stream sl_stream;

/* ------------------------------------------------------------------------------------------------------- weights --
 * From a file, or from its bytes, aligned to 4, which are not needed afterwards; in memory of malloc. The kernels are those of the best
 * instruction set that the processor has, or, if the environment says SLUICE_CPU_ISA=base, avx2 or avx512, of that one. */
SL_API sl_status sl_stream_model_load(const char *path, sl_stream_model **model);
SL_API sl_status sl_stream_model_new(const void *bytes, size_t size, sl_stream_model **model);
/* The same in memory of the caller: *needed bytes of any alignment, which stay his. */
SL_API sl_status sl_stream_model_size(const void *bytes, size_t size, size_t *needed);
SL_API sl_status sl_stream_model_place(const void *bytes, size_t size, void *memory, size_t memory_size,
                                       sl_stream_model **model);
/* After all its streams. Does nothing to a placed model. */
SL_API void sl_stream_model_free(sl_stream_model *model);

SL_API int sl_stream_inputs(const sl_stream_model *model); /* floats of x; 0 if steps are tokens */
SL_API int sl_stream_vocabulary(
    const sl_stream_model *model);                          /* tokens are 0 to this less one; 0 if steps are floats */
SL_API int sl_stream_outputs(const sl_stream_model *model); /* floats of y */
SL_API const char *sl_stream_isa(const sl_stream_model *model); /* the kernels': "base", "avx2", "avx512", "neon" */

/* -------------------------------------------------------------------------------------------------------- streams --
 * A new stream's state is zeros. */
SL_API sl_status sl_stream_new(const sl_stream_model *model, sl_stream **stream);
/* In memory of the caller: sl_stream_size bytes of any alignment. NULL if model or memory is NULL. */
SL_API size_t sl_stream_size(const sl_stream_model *model);
SL_API sl_stream *sl_stream_place(const sl_stream_model *model, void *memory);
SL_API void sl_stream_free(sl_stream *stream); /* does nothing to a placed stream */
SL_API void sl_stream_reset(sl_stream *stream);

/* One step: y [outputs] from x [inputs] and the state. x and y may be the same memory. SL_ERR_USAGE if the model takes tokens. Numbers are not
 * looked at: what a NaN or an infinite sample does to the state lasts until sl_stream_reset (mostly, NaN comes out). */
SL_API sl_status sl_stream_step(sl_stream *stream, const float *x, float *y);
/* The same for a model that takes tokens. SL_ERR_INPUT, and nothing changed, if `token` is not of the vocabulary. */
SL_API sl_status sl_stream_step_token(sl_stream *stream, int32_t token, float *y);

/* `steps` steps, as audio comes: x [steps][inputs] -> y [steps][outputs]. The numbers of single steps; the control register is
 * read and written once, which takes some ten nanoseconds a step off. x and y may be the same memory if inputs >= outputs. */
SL_API sl_status sl_stream_steps(sl_stream *stream, int steps, const float *x, float *y);

/* The state as floats: layer by layer h [units or projection], and of an LSTM c [units]. The same for every instruction set. */
SL_API int sl_stream_state_count(const sl_stream_model *model);
SL_API void sl_stream_get_state(const sl_stream *stream, float *state);
SL_API void sl_stream_set_state(sl_stream *stream, const float *state);

#ifdef __cplusplus
}
#endif

#endif
