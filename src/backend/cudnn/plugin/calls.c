/* Forward and backward of a call through cuDNN.
 *
 * The tensors of the library are floats; cuDNN's have the type of the precision, and its states are one array [parts][b] for all
 * layers and directions. Where the two differ, a staged copy in the call's scratch stands between.
 *
 * Lengths: cuDNN fails on rows of length 0 (in backward on a single one), which the segments of a long sequence bring about
 * often. Such a row is given length 1 with x = 0 and no gradients coming in, so that nothing of it reaches the weights; its y is
 * blanked afterwards, its states and their gradients are handed through. */
#include <stdlib.h>

#include "internal.h"

/* ------------------------------------------------------------------------------------------------------ begin -- */
typedef struct owned_handle {
    cudnnHandle_t handle;
    cudaStream_t stream;
    int device;
    bool set;
} owned_handle;

static void *make_handle(sli_queue *queue, const void *key) {
    (void)key;
    sli_why why = {""};
    owned_handle *owned = calloc(1, sizeof *owned);
    if (owned) {
        owned->device = sli_cudnn_services->caps_of(queue)->index;
        if (sli_cudnn_take_handle(owned->device, &owned->handle, &why)) return owned;
        free(owned);
    }
    sli_cudnn_services->fail(queue, SL_ERR_DEVICE, "no cuDNN handle: %s", owned ? why.text : "out of memory");
    return NULL;
}

static void free_handle(void *object) {
    owned_handle *owned = object;
    sli_cudnn_give_handle(owned->device, owned->handle);
    free(owned);
}

static void *make_shape(sli_queue *queue, const void *key) {
    sli_why why = {""};
    cudnnHandle_t questions;
    sli_cudnn_lock();
    sli_cudnn_shape *shape = NULL;
    if (sli_cudnn_questions(((const sli_cudnn_key *)key)->device, &questions, &why))
        shape = sli_cudnn_shape_new(key, questions, &why);
    sli_cudnn_unlock();
    if (!shape)
        sli_cudnn_services->fail(queue, SL_ERR_DEVICE, "%s; plan without cuDNN (--require cuda:step)", why.text);
    return shape;
}

bool sli_cudnn_begin(const sli_call *call, sli_cudnn_algo algo, sli_cudnn_work *w) {
    const sli_cuda_services *s = sli_cudnn_services;
    if (s->failed(call->queue)) return false;
    sli_cudnn_key key;
    sli_cudnn_key_fill(&key, &call->problem, algo, s->caps_of(call->queue)->index);
    sli_cudnn_shape *shape = s->keep(call->queue, &key, sizeof key, make_shape, sli_cudnn_shape_free);
    if (!shape) return false;
    *w = (sli_cudnn_work){.call = call,
                          .p = &call->problem,
                          .queue = call->queue,
                          .stream = s->stream(call->queue),
                          .shape = shape,
                          .counts = sli_cudnn_count(&call->problem),
                          .bytes = sli_cudnn_bytes(&call->problem),
                          .parts = sli_cudnn_parts(&call->problem)};
    return true;
}

static bool fine(const sli_cudnn_work *w, cudnnStatus_t status, const char *what) {
    sli_why why;
    if (sli_cudnn_fine(status, what, &why)) return true;
    sli_cudnn_services->fail(w->queue, SL_ERR_DEVICE, "%s; plan without cuDNN (--require cuda:step)", why.text);
    return false;
}
#define FINE(call) fine(w, sli_cudnn.call, #call)

/* The queue's own handle, in its stream; NULL after a failure. */
static cudnnHandle_t handle_of(const sli_cudnn_work *w) {
    static const char key[] = "cudnn handle";
    owned_handle *owned = sli_cudnn_services->keep(w->queue, key, sizeof key, make_handle, free_handle);
    if (!owned) return NULL;
    if (!owned->set || owned->stream != w->stream) {
        if (!FINE(cudnnSetStream(owned->handle, w->stream))) return NULL;
        owned->set = true;
        owned->stream = w->stream;
    }
    sli_why why;
    if (sli_cudnn_shape_build(w->shape, owned->handle, &why)) return owned->handle;
    sli_cudnn_services->fail(w->queue, SL_ERR_DEVICE, "%s; plan without cudnn:persist_dynamic", why.text);
    return NULL;
}

/* ----------------------------------------------------------------------------------------------------- numbers -- */
static void tried(const sli_cudnn_work *w, cudaError_t error, const char *what) {
    sli_cudnn_services->try_cuda(w->queue, error, what);
}

void sli_cudnn_zero(const sli_cudnn_work *w, void *to, size_t bytes) {
    if (bytes > 0) tried(w, sli_cudnn_services->zero(to, bytes, w->stream), "zeroing for cuDNN");
}

static void copy(const sli_cudnn_work *w, void *to, const void *from, size_t bytes) {
    if (bytes > 0 && to != from) tried(w, sli_cudnn_services->copy(to, from, bytes, w->stream), "copying for cuDNN");
}

void sli_cudnn_put(const sli_cudnn_work *w, void *to, const float *from, size_t count) {
    if (!from)
        sli_cudnn_zero(w, to, count * w->bytes);
    else if (!sli_cudnn_narrow(w->p))
        copy(w, to, from, count * w->bytes);
    else if (count > 0)
        sli_cudnn_services->narrow(w->queue, w->stream, w->p->dtype, to, from, count);
}

void sli_cudnn_get_floats(const sli_cudnn_work *w, float *to, const void *from, size_t count) {
    if (!sli_cudnn_narrow(w->p))
        copy(w, to, from, count * w->bytes);
    else if (count > 0)
        sli_cudnn_services->widen(w->queue, w->stream, w->p->dtype, to, from, count);
}

void sli_cudnn_add(const sli_cudnn_work *w, float *to, const void *from, size_t count) {
    if (count > 0) sli_cudnn_services->add(w->queue, w->stream, w->p->dtype, to, from, count);
}

/* ----------------------------------------------------------------------------------------------------- lengths -- */
/* Steps of a row in this call; 0 or less: it ended before. */
static bool is_blank(const sli_cudnn_work *w, int row) {
    return w->p->mask == SLI_MASK_LENGTHS && w->call->host_lengths[row] <= w->call->t0;
}

/* Tells cuDNN the lengths of this call. false after a failure. */
static bool tell_lengths(const sli_cudnn_work *w) {
    if (w->p->mask != SLI_MASK_LENGTHS) return true;
    const int32_t *lengths = w->call->host_lengths;
    if (!lengths) {
        sli_cudnn_services->fail(w->queue, SL_ERR_INTERNAL,
                                 "cuDNN rows need lengths in host memory and were given none");
        return false;
    }
    int steps = w->shape->key.problem.steps;
    for (int row = 0; row < w->p->batch; row++) {
        int here = lengths[row] - w->call->t0;
        w->shape->lengths[row] = here < 1 ? 1 : here > steps ? steps : here;
    }
    sli_why why;
    if (sli_cudnn_shape_lengths(w->shape, &why)) return true;
    sli_cudnn_services->fail(w->queue, SL_ERR_DEVICE, "%s", why.text);
    return false;
}

/* tensor[rows][width] of cuDNN's numbers: zeros in blank rows (of the first step, the only one that such a row has). */
static void blank_rows(const sli_cudnn_work *w, char *tensor, size_t width) {
    for (int row = 0; row < w->p->batch; row++)
        if (is_blank(w, row)) sli_cudnn_zero(w, tensor + (size_t)row * width * w->bytes, width * w->bytes);
}

/* ------------------------------------------------------------------------------------------------------ states -- */
/* One kind of state, h or c, of all parts: [parts][b][width]. */
typedef struct state_kind {
    int k; /* 0: h, 1: c */
    size_t width;
} state_kind;

static size_t part_numbers(const sli_cudnn_work *w, const state_kind *kind) {
    return (size_t)w->p->batch * kind->width;
}

/* staged = the states that enter; where none are staged, the library's own array. */
static const void *gather_states(const sli_cudnn_work *w, const state_kind *kind, char *staged) {
    if (!sli_cudnn_stages_states(w->p)) return w->call->in[SLI_RNN_STATE_IN(0, kind->k)];
    size_t n = part_numbers(w, kind);
    for (int part = 0; part < w->parts; part++)
        sli_cudnn_put(w, staged + (size_t)part * n * w->bytes, w->call->in[SLI_RNN_STATE_IN(part, kind->k)], n);
    return staged;
}

/* The states that left, out of cuDNN's array; blank rows hand theirs through. */
static void scatter_states(const sli_cudnn_work *w, const state_kind *kind, const char *staged) {
    size_t n = part_numbers(w, kind);
    for (int part = 0; part < w->parts; part++) {
        float *to = w->call->out[SLI_RNN_STATE_OUT(part, kind->k)];
        const float *from = w->call->in[SLI_RNN_STATE_IN(part, kind->k)];
        if (!to) continue;
        if (sli_cudnn_stages_states(w->p)) sli_cudnn_get_floats(w, to, staged + (size_t)part * n * w->bytes, n);
        for (int row = 0; row < w->p->batch; row++)
            if (is_blank(w, row))
                copy(w, to + (size_t)row * kind->width, from + (size_t)row * kind->width, kind->width * sizeof(float));
    }
}

/* staged = gradients of the states that left, 0 where there are none and in blank rows. */
static void gather_state_gradients(const sli_cudnn_work *w, const state_kind *kind, char *staged) {
    size_t n = part_numbers(w, kind);
    for (int part = 0; part < w->parts; part++) {
        char *to = staged + (size_t)part * n * w->bytes;
        sli_cudnn_put(w, to, w->call->d_out[SLI_RNN_STATE_OUT(part, kind->k)], n);
        blank_rows(w, to, kind->width);
    }
}

/* d_in = or += rows [first, end) of `from`. */
static void give_rows(const sli_cudnn_work *w, int index, const char *from, size_t width, int first, int end) {
    float *to = (float *)w->call->d_in[index] + (size_t)first * width;
    const char *rows = from + (size_t)first * width * w->bytes;
    size_t count = (size_t)(end - first) * width;
    if (w->call->accumulate >> index & 1u)
        sli_cudnn_add(w, to, rows, count);
    else
        sli_cudnn_get_floats(w, to, rows, count);
}

/* A blank row's gradient goes through in f32; it may be the same memory. */
static void pass_row(const sli_cudnn_work *w, int index, const float *from, size_t width, int row) {
    float *to = (float *)w->call->d_in[index] + (size_t)row * width;
    bool adds = w->call->accumulate >> index & 1u;
    const float *source = from ? from + (size_t)row * width : NULL;
    if (adds && source)
        sli_cudnn_services->add(w->queue, w->stream, SL_F32, to, source, width);
    else if (!adds && source)
        copy(w, to, source, width * sizeof(float));
    else if (!adds)
        sli_cudnn_zero(w, to, width * sizeof(float));
}

/* Gradients of the states that entered = or += staged, run by run of rows that are not blank. */
static void scatter_state_gradients(const sli_cudnn_work *w, const state_kind *kind, const char *staged) {
    size_t n = part_numbers(w, kind);
    for (int part = 0; part < w->parts; part++) {
        int index = SLI_RNN_STATE_IN(part, kind->k);
        if (!w->call->d_in[index]) continue;
        const float *leaving = w->call->d_out[SLI_RNN_STATE_OUT(part, kind->k)];
        for (int first = 0, end; first < w->p->batch; first = end) {
            end = first + 1;
            if (is_blank(w, first)) {
                pass_row(w, index, leaving, kind->width, first);
                continue;
            }
            while (end < w->p->batch && !is_blank(w, end)) end++;
            give_rows(w, index, staged + (size_t)part * n * w->bytes, kind->width, first, end);
        }
    }
}

static int state_kinds(const sli_cudnn_work *w, state_kind kinds[2]) {
    kinds[0] = (state_kind){0, (size_t)sli_problem_output(w->p)};
    kinds[1] = (state_kind){1, (size_t)w->p->units};
    return w->p->op == SLI_OP_LSTM ? 2 : 1;
}

/* ------------------------------------------------------------------------------------------------------- room -- */
static bool holds(const void *block, size_t bytes, size_t wanted) {
    return wanted + (size_t)(sli_cudnn_aligned(block) - (const char *)block) <= bytes;
}

/* A call of fewer rows or steps asks cuDNN anew what it needs, and nothing says that this is less than what was booked. */
static bool has_room(const sli_cudnn_work *w, size_t scratch, size_t saved) {
    const sli_call *call = w->call;
    bool short_of_scratch = !holds(call->scratch, call->scratch_bytes, scratch);
    if (!short_of_scratch && (saved == 0 || holds(call->saved, call->saved_bytes, saved))) return true;
    sli_cudnn_services->fail(
        w->queue, SL_ERR_DEVICE,
        "cuDNN wants %zu bytes of %s for a call of %d rows and %d steps, the plan has %zu; plan for "
        "calls of that size, or without cuDNN (--require cuda:step)",
        short_of_scratch ? scratch : saved, short_of_scratch ? "scratch" : "saved data", w->p->batch, w->p->steps,
        short_of_scratch ? call->scratch_bytes : call->saved_bytes);
    return false;
}

/* ----------------------------------------------------------------------------------------------------- forward -- */
static const void *stage_x(const sli_cudnn_work *w, char *staged) {
    const float *x = w->call->in[SLI_RNN_X];
    if (!sli_cudnn_stages_x(w->p)) return x;
    sli_cudnn_put(w, staged, x, w->counts.x);
    blank_rows(w, staged, (size_t)w->p->inputs);
    return staged;
}

void sli_cudnn_forward(const sli_call *call, sli_cudnn_algo algo) {
    sli_cudnn_work work, *w = &work;
    if (!sli_cudnn_begin(call, algo, w) || !tell_lengths(w)) return;
    cudnnHandle_t handle = handle_of(w);
    if (!handle) return;
    const sli_cudnn_shape *s = w->shape;
    sli_cudnn_scratch at = sli_cudnn_scratch_forward(w->p, &s->sizes);
    char *scratch = sli_cudnn_aligned(call->scratch);
    bool train = call->training && call->saved && w->p->train, stages = sli_cudnn_stages_states(w->p);
    state_kind kinds[2];
    int count = state_kinds(w, kinds);
    size_t workspace = train ? s->sizes.workspace_training : s->sizes.workspace_inference;
    if (!has_room(w, at.workspace + workspace, train ? s->sizes.reserve : 0)) return;

    sli_cudnn_services->phase(w->queue, SLI_PHASE_RECURRENCE);
    const void *x = stage_x(w, scratch + at.x), *hx = gather_states(w, &kinds[0], scratch + at.hx), *cx = NULL;
    void *y = sli_cudnn_narrow(w->p) ? scratch + at.y : call->out[SLI_RNN_Y];
    void *hy = stages ? scratch + at.hy : call->out[SLI_RNN_HT], *cy = NULL;
    if (count == 2) {
        cx = gather_states(w, &kinds[1], scratch + at.cx);
        cy = stages ? scratch + at.cy : call->out[SLI_RNN_CT];
    }
    if (w->p->mask == SLI_MASK_LENGTHS) sli_cudnn_zero(w, y, w->counts.y * w->bytes);
    if (!FINE(cudnnRNNForward(handle, s->rnn, train ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE, NULL, s->x, x,
                              s->y, y, s->h, hx, hy, s->c, cx, cy, s->sizes.weights, sli_cudnn_aligned(call->packed),
                              workspace, scratch + at.workspace, train ? s->sizes.reserve : 0,
                              train ? sli_cudnn_aligned(call->saved) : NULL)))
        return;
    blank_rows(w, y, (size_t)(sli_problem_output(w->p) * sli_cudnn_directions(w->p)));
    if (sli_cudnn_narrow(w->p)) sli_cudnn_get_floats(w, call->out[SLI_RNN_Y], y, w->counts.y);
    scatter_states(w, &kinds[0], scratch + at.hy);
    if (count == 2) scatter_states(w, &kinds[1], scratch + at.cy);
}

/* ---------------------------------------------------------------------------------------------------- backward -- */
/* The operands of both halves of backward. */
typedef struct operands {
    cudnnHandle_t handle;
    char *scratch;
    sli_cudnn_scratch at;
    const void *x, *y, *hx, *cx;
} operands;

/* Gradients of x and of the states that entered: cuDNN writes them (=), then they are given. */
static bool back_data(const sli_cudnn_work *w, const operands *o, const state_kind *kinds, int count) {
    const sli_call *call = w->call;
    const sli_cudnn_shape *s = w->shape;
    char *dy = o->scratch + o->at.dy, *dx = o->scratch + o->at.dx;
    bool direct = call->d_in[SLI_RNN_X] && !sli_cudnn_narrow(w->p) && !(call->accumulate >> SLI_RNN_X & 1u);
    char *const d_out[2] = {o->scratch + o->at.dhy, o->scratch + o->at.dcy};
    char *const d_in[2] = {o->scratch + o->at.dhx, o->scratch + o->at.dcx};
    if (direct) dx = call->d_in[SLI_RNN_X];
    sli_cudnn_put(w, dy, call->d_out[SLI_RNN_Y], w->counts.y);
    blank_rows(w, dy, (size_t)(sli_problem_output(w->p) * sli_cudnn_directions(w->p)));
    for (int k = 0; k < count; k++) gather_state_gradients(w, &kinds[k], d_out[k]);
    if (w->p->mask == SLI_MASK_LENGTHS) sli_cudnn_zero(w, dx, w->counts.x * w->bytes);
    if (!FINE(cudnnRNNBackwardData_v8(o->handle, s->rnn, NULL, s->y, o->y, dy, s->x, dx, s->h, o->hx, d_out[0], d_in[0],
                                      s->c, o->cx, count == 2 ? d_out[1] : NULL, count == 2 ? d_in[1] : NULL,
                                      s->sizes.weights, sli_cudnn_aligned(call->packed), s->sizes.workspace_training,
                                      o->scratch + o->at.workspace, s->sizes.reserve, sli_cudnn_aligned(call->saved))))
        return false;
    if (call->d_in[SLI_RNN_X] && !direct) {
        if (call->accumulate >> SLI_RNN_X & 1u)
            sli_cudnn_add(w, call->d_in[SLI_RNN_X], dx, w->counts.x);
        else
            sli_cudnn_get_floats(w, call->d_in[SLI_RNN_X], dx, w->counts.x);
    }
    for (int k = 0; k < count; k++) scatter_state_gradients(w, &kinds[k], d_in[k]);
    return true;
}

/* d_param += : cuDNN adds to zeroed gradients in its own order, which are then added to ours. */
static void back_weights(const sli_cudnn_work *w, const operands *o) {
    const sli_cudnn_shape *s = w->shape;
    char *gradients = o->scratch + o->at.weight_gradients;
    sli_cudnn_services->phase(w->queue, SLI_PHASE_PRODUCT);
    sli_cudnn_zero(w, gradients, s->sizes.weights);
    if (FINE(cudnnRNNBackwardWeights_v8(o->handle, s->rnn, CUDNN_WGRAD_MODE_ADD, NULL, s->x, o->x, s->h, o->hx, s->y,
                                        o->y, s->sizes.weights, gradients, s->sizes.workspace_training,
                                        o->scratch + o->at.workspace, s->sizes.reserve,
                                        sli_cudnn_aligned(w->call->saved))))
        sli_cudnn_add_gradients(w, gradients);
}

void sli_cudnn_backward(const sli_call *call, sli_cudnn_algo algo) {
    sli_cudnn_work work, *w = &work;
    if (!sli_cudnn_begin(call, algo, w) || !tell_lengths(w)) return;
    state_kind kinds[2];
    int count = state_kinds(w, kinds);
    operands o = {.handle = handle_of(w),
                  .scratch = sli_cudnn_aligned(call->scratch),
                  .at = sli_cudnn_scratch_backward(w->p, &w->shape->sizes)};
    if (!o.handle || !has_room(w, o.at.workspace + w->shape->sizes.workspace_training, w->shape->sizes.reserve)) return;
    sli_cudnn_services->phase(w->queue, SLI_PHASE_RECURRENCE);
    o.x = stage_x(w, o.scratch + o.at.x);
    o.hx = gather_states(w, &kinds[0], o.scratch + o.at.hx);
    if (count == 2) o.cx = gather_states(w, &kinds[1], o.scratch + o.at.cx);
    o.y = call->out[SLI_RNN_Y];
    if (sli_cudnn_narrow(w->p)) {
        sli_cudnn_put(w, o.scratch + o.at.y, call->out[SLI_RNN_Y], w->counts.y);
        o.y = o.scratch + o.at.y;
    }
    if (back_data(w, &o, kinds, count)) back_weights(w, &o);
}
