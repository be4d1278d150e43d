/* What a cuDNN row keeps where: parts and sizes of a problem, and the pieces of its scratch. Plain C without cuDNN's headers,
 * compiled alike into libsluice, which books the bytes, and into libsluice_cudnn, which uses them. */
#ifndef SLI_CUDNN_LAYOUT_H
#define SLI_CUDNN_LAYOUT_H

#include "core/kernel.h"

enum { SLI_CUDNN_ALIGN = 256 }; /* of every piece that cuDNN is given */

/* Bytes that cuDNN wants for a problem. */
typedef struct sli_cudnn_sizes {
    size_t weights;
    size_t workspace_inference, workspace_training; /* the latter for backward as well */
    size_t reserve;                                 /* what forward leaves for backward */
} sli_cudnn_sizes;

static inline int sli_cudnn_gates(const sli_problem *p) {
    return p->op == SLI_OP_LSTM ? 4 : p->op == SLI_OP_GRU ? 3 : 1;
}
static inline int sli_cudnn_directions(const sli_problem *p) {
    return p->bidirectional ? 2 : 1;
}
static inline int sli_cudnn_parts(const sli_problem *p) {
    return (p->layers > 1 ? p->layers : 1) * sli_cudnn_directions(p);
}
static inline size_t sli_cudnn_steps(const sli_problem *p) {
    return (size_t)(p->steps > 0 ? p->steps : 1);
}
/* Features that part `part` reads: the layer below hands on both directions. */
static inline size_t sli_cudnn_part_inputs(const sli_problem *p, int part) {
    int directions = sli_cudnn_directions(p);
    return (size_t)(part < directions ? p->inputs : directions * sli_problem_output(p));
}
static inline bool sli_cudnn_narrow(const sli_problem *p) {
    return p->dtype == SL_BF16 || p->dtype == SL_F16;
}
/* Bytes of a number inside cuDNN: data, states, weights. */
static inline size_t sli_cudnn_bytes(const sli_problem *p) {
    return sli_cudnn_narrow(p) ? 2 : 4;
}

/* Elements of the tensors of one call. */
typedef struct sli_cudnn_counts {
    size_t x, y, h, c; /* [t][b][I], [t][b][directions O], [parts][b][O], [parts][b][H] (LSTM, else 0) */
} sli_cudnn_counts;

static inline sli_cudnn_counts sli_cudnn_count(const sli_problem *p) {
    size_t rows = sli_cudnn_steps(p) * (size_t)p->batch, states = (size_t)sli_cudnn_parts(p) * (size_t)p->batch;
    size_t output = (size_t)sli_problem_output(p);
    sli_cudnn_counts counts = {.x = rows * (size_t)p->inputs,
                               .y = rows * output * (size_t)sli_cudnn_directions(p),
                               .h = states * output,
                               .c = p->op == SLI_OP_LSTM ? states * (size_t)p->units : 0};
    return counts;
}

/* Offsets into scratch, from its first aligned byte. cuDNN's own tensors are staged where the library's cannot be used as they
 * are: 16-bit numbers, the states of several parts (cuDNN wants them in one array), rows to be blanked (lengths). */
typedef struct sli_cudnn_scratch {
    size_t x, y, hx, cx;
    size_t hy, cy;                                       /* forward */
    size_t dy, dx, dhy, dcy, dhx, dcx, weight_gradients; /* backward */
    size_t workspace;                                    /* last: a smaller call needs no more than the booked one */
    size_t bytes;                                        /* all, with room to align the first */
} sli_cudnn_scratch;

static inline size_t sli_cudnn_take(size_t *at, size_t bytes) {
    size_t here = *at;
    *at += sli_round_up(bytes, SLI_CUDNN_ALIGN);
    return here;
}
static inline bool sli_cudnn_stages_x(const sli_problem *p) {
    return sli_cudnn_narrow(p) || p->mask == SLI_MASK_LENGTHS;
}
static inline bool sli_cudnn_stages_states(const sli_problem *p) {
    return sli_cudnn_narrow(p) || sli_cudnn_parts(p) > 1;
}

static inline sli_cudnn_scratch sli_cudnn_scratch_forward(const sli_problem *p, const sli_cudnn_sizes *sizes) {
    sli_cudnn_counts n = sli_cudnn_count(p);
    size_t e = sli_cudnn_bytes(p), at = 0, states = sli_cudnn_stages_states(p) ? e : 0;
    size_t workspace = sizes->workspace_inference;
    if (p->train && sizes->workspace_training > workspace) workspace = sizes->workspace_training;
    sli_cudnn_scratch s = {0};
    s.x = sli_cudnn_take(&at, sli_cudnn_stages_x(p) ? n.x * e : 0);
    s.y = sli_cudnn_take(&at, sli_cudnn_narrow(p) ? n.y * e : 0);
    s.hx = sli_cudnn_take(&at, n.h * states);
    s.cx = sli_cudnn_take(&at, n.c * states);
    s.hy = sli_cudnn_take(&at, n.h * states);
    s.cy = sli_cudnn_take(&at, n.c * states);
    s.workspace = sli_cudnn_take(&at, workspace);
    s.bytes = at + SLI_CUDNN_ALIGN;
    return s;
}

/* Gradients are always staged: they may be absent, or be added to what is there. */
static inline sli_cudnn_scratch sli_cudnn_scratch_backward(const sli_problem *p, const sli_cudnn_sizes *sizes) {
    sli_cudnn_counts n = sli_cudnn_count(p);
    size_t e = sli_cudnn_bytes(p), at = 0, states = sli_cudnn_stages_states(p) ? e : 0;
    sli_cudnn_scratch s = {0};
    s.x = sli_cudnn_take(&at, sli_cudnn_stages_x(p) ? n.x * e : 0);
    s.y = sli_cudnn_take(&at, sli_cudnn_narrow(p) ? n.y * e : 0);
    s.hx = sli_cudnn_take(&at, n.h * states);
    s.cx = sli_cudnn_take(&at, n.c * states);
    s.dy = sli_cudnn_take(&at, n.y * e);
    s.dx = sli_cudnn_take(&at, n.x * e);
    s.dhy = sli_cudnn_take(&at, n.h * e);
    s.dcy = sli_cudnn_take(&at, n.c * e);
    s.dhx = sli_cudnn_take(&at, n.h * e);
    s.dcx = sli_cudnn_take(&at, n.c * e);
    s.weight_gradients = sli_cudnn_take(&at, sizes->weights);
    s.workspace = sli_cudnn_take(&at, sizes->workspace_training);
    s.bytes = at + SLI_CUDNN_ALIGN;
    return s;
}

/* The packed copy: cuDNN's weight space, then one gate's bias in f32, where the forget bias is added. */
static inline size_t sli_cudnn_packed_bytes(const sli_problem *p, const sli_cudnn_sizes *sizes) {
    return sli_round_up(sizes->weights, SLI_CUDNN_ALIGN) + (size_t)p->units * sizeof(float) + SLI_CUDNN_ALIGN;
}

static inline void sli_cudnn_book(const sli_problem *p, const sli_cudnn_sizes *sizes, sli_booking *booking) {
    booking->scratch_forward = sli_cudnn_scratch_forward(p, sizes).bytes;
    booking->scratch_backward = p->train ? sli_cudnn_scratch_backward(p, sizes).bytes : 0;
    booking->saved = p->train ? sizes->reserve + SLI_CUDNN_ALIGN : 0;
    booking->packed = sli_cudnn_packed_bytes(p, sizes);
}

#endif
