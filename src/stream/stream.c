/* Streams: one state of a model, moved on step by step. Nothing in a step but kernels: sluice_stream.h. */
#include <stdlib.h>
#include <string.h>

#include "stream/model.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* ------------------------------------------------------------------------------------------------------ denormals --
 * Numbers below 2^-126 take a hundred times as long on x86, and decaying states are full of them: inside a step they are 0. The
 * register is written only where the caller has it otherwise, since that costs about ten nanoseconds. */
#if defined(__x86_64__)
typedef unsigned control;
static inline control flush_denormals(void) {
    const unsigned wanted = 0x9fc0u; /* flush to zero, denormals are zero, no exception stops the program */
    const unsigned before = _mm_getcsr();
    if ((before & wanted) != wanted) _mm_setcsr(before | wanted);
    return before;
}
static inline void restore_control(control before) {
    if ((before & 0x9fc0u) != 0x9fc0u) _mm_setcsr(before);
}
#elif defined(__aarch64__)
typedef uint64_t control;
static inline control flush_denormals(void) {
    control before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    if (!(before >> 24 & 1)) __asm__ volatile("msr fpcr, %0" ::"r"(before | (uint64_t)1 << 24));
    return before;
}
static inline void restore_control(control before) {
    if (!(before >> 24 & 1)) __asm__ volatile("msr fpcr, %0" ::"r"(before));
}
#else
typedef int control;
static inline control flush_denormals(void) {
    return 0;
}
static inline void restore_control(control before) {
    (void)before;
}
#endif

/* ----------------------------------------------------------------------------------------------------------- step -- */
static void step(sl_stream *stream, sli_stream_input input, float *y) {
    const sl_stream_model *m = stream->model;
    float *numbers = stream->numbers, *work = numbers + m->floats;
    for (int i = 0; i < m->count; i++) {
        const sli_stream_op *op = &m->ops[i];
        op->step(op, input, numbers + op->h, numbers + op->c, work, stream->back);
        input = (sli_stream_input){numbers + op->h, 0, op->outputs};
    }
    stream->back = !stream->back;
    m->isa->copy(input.x, m->outputs, y);
}

sl_status sl_stream_steps(sl_stream *stream, int steps, const float *x, float *y) {
    SLI_FAIL_IF(!stream || !x || !y, SL_ERR_USAGE, "sl_stream_step: stream, x and y must not be NULL");
    SLI_FAIL_IF(steps < 0, SL_ERR_USAGE, "sl_stream_steps: %d steps; give 0 or more", steps);
    const int inputs = stream->model->inputs, outputs = stream->model->outputs;
    SLI_FAIL_IF(inputs == 0, SL_ERR_USAGE, "sl_stream_step: the model takes tokens; use sl_stream_step_token");
    const control before = flush_denormals();
    for (int t = 0; t < steps; t++, x += inputs, y += outputs) step(stream, (sli_stream_input){x, 0, inputs}, y);
    restore_control(before);
    return SL_OK;
}

sl_status sl_stream_step(sl_stream *stream, const float *x, float *y) {
    return sl_stream_steps(stream, 1, x, y);
}

sl_status sl_stream_step_token(sl_stream *stream, int32_t token, float *y) {
    static const float one = 1.0f;
    SLI_FAIL_IF(!stream || !y, SL_ERR_USAGE, "sl_stream_step_token: stream and y must not be NULL");
    const sl_stream_model *m = stream->model;
    SLI_FAIL_IF(m->vocabulary == 0, SL_ERR_USAGE, "sl_stream_step_token: the model takes numbers; use sl_stream_step");
    SLI_FAIL_IF(token < 0 || token >= m->vocabulary, SL_ERR_INPUT,
                "sl_stream_step_token: token %d; tokens are from 0 to %d", (int)token, m->vocabulary - 1);
    sli_stream_input input = {&one, token, 1};
    if (m->embedding) input = (sli_stream_input){m->table + (size_t)token * (size_t)m->embedding, 0, m->embedding};
    const control before = flush_denormals();
    step(stream, input, y);
    restore_control(before);
    return SL_OK;
}

/* --------------------------------------------------------------------------------------------------------- memory -- */
static size_t header(void) {
    return (sizeof(sl_stream) + SLI_STREAM_ALIGN - 1) / SLI_STREAM_ALIGN * SLI_STREAM_ALIGN;
}

size_t sl_stream_size(const sl_stream_model *model) {
    return model ? SLI_STREAM_ALIGN - 1 + header() + (model->floats + model->work) * sizeof(float) : 0;
}

sl_stream *sl_stream_place(const sl_stream_model *model, void *memory) {
    if (!model || !memory) return NULL;
    char *start = (char *)memory + (SLI_STREAM_ALIGN - (uintptr_t)memory % SLI_STREAM_ALIGN) % SLI_STREAM_ALIGN;
    sl_stream *stream = (sl_stream *)(void *)start;
    *stream = (sl_stream){.model = model, .numbers = (float *)(void *)(start + header())};
    memset(stream->numbers, 0, (model->floats + model->work) * sizeof(float));
    return stream;
}

sl_status sl_stream_new(const sl_stream_model *model, sl_stream **stream) {
    SLI_FAIL_IF(!stream, SL_ERR_USAGE, "sl_stream_new: stream is NULL; pass the address of a pointer");
    *stream = NULL;
    SLI_FAIL_IF(!model, SL_ERR_USAGE, "sl_stream_new: model is NULL; load one");
    void *memory = malloc(sl_stream_size(model));
    if (!memory) return sli_fail_memory("a stream", sl_stream_size(model));
    *stream = sl_stream_place(model, memory);
    (*stream)->memory = memory;
    return SL_OK;
}

void sl_stream_free(sl_stream *stream) {
    if (stream) free(stream->memory);
}

/* ---------------------------------------------------------------------------------------------------------- state -- */
void sl_stream_reset(sl_stream *stream) {
    if (stream) memset(stream->numbers, 0, stream->model->floats * sizeof(float));
}

void sl_stream_get_state(const sl_stream *stream, float *state) {
    for (int i = 0; stream && i < stream->model->count; i++) {
        const sli_stream_op *op = &stream->model->ops[i];
        if (op->recurrent) memcpy(state + op->state, stream->numbers + op->h, (size_t)op->outputs * sizeof *state);
        if (op->cells)
            memcpy(state + op->state + op->outputs, stream->numbers + op->c, (size_t)op->units * sizeof *state);
    }
}

void sl_stream_set_state(sl_stream *stream, const float *state) {
    sl_stream_reset(stream);
    for (int i = 0; stream && i < stream->model->count; i++) {
        const sli_stream_op *op = &stream->model->ops[i];
        if (op->recurrent) memcpy(stream->numbers + op->h, state + op->state, (size_t)op->outputs * sizeof *state);
        if (op->cells)
            memcpy(stream->numbers + op->c, state + op->state + op->outputs, (size_t)op->units * sizeof *state);
    }
}
