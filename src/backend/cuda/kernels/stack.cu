/* cuda:stack: pack, forward, backward. Pieces are calls of cuda:cluster, each layer's in a stream of its own; they are queued
 * diagonal by diagonal, so that neighbours in the order of queueing do not depend on each other. */

#include "backend/cuda/runtime/functions.h"
#include "backend/cuda/stack_layout.h"

typedef struct stack_call {
    const sli_call *call;
    sli_stack_cut cut;
    sli_stack_places packed, saved, scratch;
    int pieces;
    bool backward;
} stack_call;

static bool enter(const sli_call *call, bool backward, stack_call *s) {
    sli_why why = {""};
    const sli_problem *p = &call->problem;
    const sli_caps *caps = sli_cuda_caps_of(call->queue);
    if (sli_cuda_failed(call->queue)) return false;
    *s = stack_call{};
    s->call = call;
    s->backward = backward;
    if (!sli_stack_cut_of(p, call->planned, caps, call->chunk, &s->cut, &why)) {
        sli_cuda_fail(call->queue, SL_ERR_NO_KERNEL, "%s", why.text);
        return false;
    }
    s->pieces = sli_stack_pieces(p, &s->cut);
    s->packed = sli_stack_layout_packed(p, &s->cut);
    s->saved = sli_stack_layout_saved(p, &s->cut, call->chunk);
    s->scratch = sli_stack_layout_scratch(p, caps, &s->cut, call->chunk, backward);
    return true;
}

/* ----------------------------------------------------------------------------------------------------- one piece -- */
static char *at(const void *base, size_t offset) {
    return base ? (char *)base + offset : NULL;
}

/* Floats of rows of `features` before step t. */
static size_t before(const stack_call *s, int t, int features) {
    return sizeof(float) * (size_t)t * (size_t)s->call->problem.batch * (size_t)features;
}

/* float [T][B][H]: what a layer, not the last, gives to the next. */
static char *y_of(const stack_call *s, int layer) {
    const bool train = s->call->problem.train;
    return train ? at(s->call->saved, s->saved.between[layer]) : at(s->call->scratch, s->scratch.between[layer]);
}

/* State k of a layer, or its gradient, between pieces c and c + 1. */
static void *handed(const stack_call *s, int layer, int k, int c) {
    return at(s->call->scratch, s->scratch.states[layer] + sli_stack_state(&s->call->problem, k, c & 1));
}

static void set_states(const stack_call *s, int layer, int c, sli_call *piece) {
    const sli_call *call = s->call;
    for (int k = 0; k < sli_problem_states(&call->problem); k++) {
        const int in = SLI_RNN_STATE_IN(layer, k), out = SLI_RNN_STATE_OUT(layer, k);
        const int own_in = SLI_RNN_STATE_IN(0, k), own_out = SLI_RNN_STATE_OUT(0, k);
        const bool first = c == 0, last = c + 1 == s->pieces;
        if (s->backward) { /* reads no states: the layer's own saved memory has them */
            piece->d_out[own_out] = last ? call->d_out[out] : handed(s, layer, k, c);
            piece->d_in[own_in] = first ? call->d_in[in] : handed(s, layer, k, c - 1);
            if (first && call->accumulate >> in & 1u) piece->accumulate |= 1u << own_in;
        } else {
            piece->in[own_in] = first ? call->in[in] : handed(s, layer, k, c - 1);
            piece->out[own_out] = last ? call->out[out] : handed(s, layer, k, c);
        }
    }
}

static void set_tensors(const stack_call *s, int layer, int t, sli_call *piece) {
    const sli_call *call = s->call;
    const int H = call->problem.units, I = piece->problem.inputs;
    const bool first = layer == 0, last = layer + 1 == call->problem.layers;
    piece->in[SLI_RNN_X] = at(first ? call->in[SLI_RNN_X] : y_of(s, layer - 1), before(s, t, I));
    piece->in[SLI_RNN_LENGTHS] = call->in[SLI_RNN_LENGTHS];
    piece->in[SLI_RNN_MASK] = at(call->in[SLI_RNN_MASK], (size_t)t * (size_t)call->problem.batch);
    if (!s->backward) {
        piece->out[SLI_RNN_Y] = at(last ? call->out[SLI_RNN_Y] : y_of(s, layer), before(s, t, H));
        return;
    }
    const void *dy = last ? call->d_out[SLI_RNN_Y] : at(call->scratch, s->scratch.between[layer]);
    void *dx = first ? call->d_in[SLI_RNN_X] : at(call->scratch, s->scratch.between[layer - 1]);
    piece->d_out[SLI_RNN_Y] = at(dy, before(s, t, H));
    piece->d_in[SLI_RNN_X] = at(dx, before(s, t, I));
    if (first) piece->accumulate |= call->accumulate & 1u << SLI_RNN_X;
}

/* A call of one layer, without tensors. */
static sli_call layer_call(const stack_call *s, int layer, int steps) {
    sli_call own = sli_call_of_layer(s->call, layer);
    own.problem = sli_stack_part(&s->call->problem, layer, steps);
    own.planned = s->cut.planned;
    own.packed = at(s->call->packed, s->packed.own[layer]);
    own.scratch = at(s->call->scratch, s->scratch.own[layer]);
    return own;
}

static void run_piece(const stack_call *s, int layer, int c) {
    const int t = c * s->cut.piece, left = s->call->problem.steps - t;
    sli_call piece = layer_call(s, layer, left < s->cut.piece ? left : s->cut.piece);
    piece.t0 = s->call->t0 + t;
    piece.saved = at(s->call->saved, s->saved.own[layer] + (size_t)c * s->saved.stride[layer]);
    if (c + 1 < s->pieces) piece.fresh[0] = 0; /* the last piece, which backward comes to first, has written them */
    set_tensors(s, layer, t, &piece);
    set_states(s, layer, c, &piece);
    if (s->backward)
        sli_gpu_cluster_backward(&piece);
    else
        sli_gpu_cluster_forward(&piece);
}

/* ----------------------------------------------------------------------------------------------------- wavefront -- */
/* Diagonal d: piece d of the layer that comes first, piece d - 1 of the next, ..., the last of them first: what it waits for was
 * queued in the diagonal before. Backward the last layer and the last piece come first. */
static void run_diagonal(const stack_call *s, int d) {
    sli_queue *const queue = s->call->queue;
    const int layers = s->call->problem.layers;
    for (int i = d < layers ? d : layers - 1; i >= 0 && d - i < s->pieces && !sli_cuda_failed(queue); i--) {
        const int layer = s->backward ? layers - 1 - i : i, c = s->backward ? s->pieces - 1 - (d - i) : d - i;
        sli_cuda_use_lane(queue, layer);
        if (i > 0) sli_cuda_wait_lane(queue, s->backward ? layer + 1 : layer - 1);
        run_piece(s, layer, c);
        sli_cuda_pass_lane(queue);
    }
}

static void run(const sli_call *call, bool backward) {
    stack_call s;
    if (!enter(call, backward, &s)) return;
    sli_cuda_phase(call->queue, SLI_PHASE_RECURRENCE);
    if (sli_cuda_open_lanes(call->queue, call->problem.layers))
        for (int d = 0; d < s.pieces + call->problem.layers - 1; d++) run_diagonal(&s, d);
    sli_cuda_close_lanes(call->queue);
}

extern "C" void sli_gpu_stack_pack(const sli_call *call) {
    stack_call s;
    if (!enter(call, false, &s)) return;
    for (int l = 0; l < call->problem.layers && !sli_cuda_failed(call->queue); l++) {
        const sli_call own = layer_call(&s, l, call->problem.steps);
        sli_gpu_cluster_pack(&own);
    }
}

extern "C" void sli_gpu_stack_forward(const sli_call *call) {
    run(call, false);
}

extern "C" void sli_gpu_stack_backward(const sli_call *call) {
    run(call, true);
}
