/* cpu:stack: pack, forward, backward. */
#include "backend/cpu/stack.h"

/* A layer, in order of the wave: backward the last one is the first. Pieces come one after the other. */
typedef union lane {
    struct {
        _Atomic int done;  /* pieces that the next lane may read */
        _Atomic bool busy; /* somebody is at it */
        int layer;
    };
    char pad[128]; /* two lines, which processors fetch together */
} lane;

typedef struct wave {
    const sli_call *call;
    const sli_problem *p;
    sli_call layer_call[SLI_MAX_PARTS];
    sli_fused_work work[SLI_MAX_PARTS]; /* of a layer */
    bool backward;
    int members, lanes, chunks, chunk;
    int pieces, last_pieces; /* of a chunk, of the last one */
    int all;                 /* pieces of a layer */
    sli_event event;         /* a piece is done */
    lane lane[SLI_MAX_PARTS];
} wave;

static void *at(void *base, size_t offset) {
    return base ? (char *)base + offset : NULL;
}

/* ------------------------------------------------------------------------------------------------- a layer's call -- */
static void set_states(const sli_call *call, int layer, sli_call *own) {
    for (int k = 0; k < sli_problem_states(&call->problem); k++) {
        const int in = SLI_RNN_STATE_IN(layer, k), out = SLI_RNN_STATE_OUT(layer, k);
        const int own_in = SLI_RNN_STATE_IN(0, k), own_out = SLI_RNN_STATE_OUT(0, k);
        own->in[own_in] = call->in[in];
        own->out[own_out] = call->out[out];
        own->d_out[own_out] = call->d_out[out];
        own->d_in[own_in] = call->d_in[in];
        if (call->accumulate >> in & 1u) own->accumulate |= 1u << own_in;
    }
}

/* One layer on one thread, without tensors. */
static sli_call layer_call(const sli_call *call, int layer) {
    sli_call own = sli_call_of_layer(call, layer);
    own.problem = sli_cpu_stack_layer(&call->problem, layer);
    own.threads = NULL;
    return own;
}

/* y of a layer is in saved memory if that is there. */
static void set_tensors(const sli_call *call, int layer, const sli_cpu_stack_places *saved,
                        const sli_cpu_stack_places *scratch, bool backward, sli_call *own) {
    const bool first = layer == 0, last = layer + 1 == call->problem.layers, train = call->problem.train;
    const sli_cpu_stack_places *places = train ? saved : scratch;
    void *base = train ? call->saved : call->scratch;
    own->in[SLI_RNN_X] = first ? call->in[SLI_RNN_X] : at(base, places->between[layer - 1]);
    own->out[SLI_RNN_Y] = last ? call->out[SLI_RNN_Y] : at(base, places->between[layer]);
    if (!backward) return;
    own->d_out[SLI_RNN_Y] = last ? call->d_out[SLI_RNN_Y] : at(call->scratch, scratch->between[layer]);
    own->d_in[SLI_RNN_X] = first ? call->d_in[SLI_RNN_X] : at(call->scratch, scratch->between[layer - 1]);
    if (first) own->accumulate |= call->accumulate & 1u << SLI_RNN_X;
}

static void enter_layers(wave *w) {
    const sli_call *call = w->call;
    const sli_panel_ops *ops = sli_cpu_panels_of(call);
    const sli_cpu_stack_places packed = sli_cpu_stack_packed(w->p, ops),
                               saved = sli_cpu_stack_saved(w->p, ops, call->chunk),
                               scratch = sli_cpu_stack_scratch(w->p, ops, call->chunk, w->backward);
    for (int l = 0; l < w->lanes; l++) {
        sli_call *own = &w->layer_call[l];
        *own = layer_call(call, l);
        own->packed = at(call->packed, packed.own[l]);
        own->saved = at(call->saved, saved.own[l]);
        own->saved_bytes = saved.bytes[l];
        own->scratch = at(call->scratch, scratch.own[l]);
        own->scratch_bytes = scratch.bytes[l];
        set_states(call, l, own);
        set_tensors(call, l, &saved, &scratch, w->backward, own);
        w->work[l] = sli_fused_begin(own, w->backward);
        w->lane[l].layer = w->backward ? w->lanes - 1 - l : l;
    }
}

/* ------------------------------------------------------------------------------------------------------ the wave -- */
/* Piece number c in order of time: a part of chunk `chunk`. */
static int enter_piece(const wave *w, sli_fused_work *layer, int c) {
    const int chunk = c / w->pieces < w->chunks - 1 ? c / w->pieces : w->chunks - 1, j = c - chunk * w->pieces;
    const int pieces = chunk == w->chunks - 1 ? w->last_pieces : w->pieces;
    sli_fused_enter_chunk(layer, chunk);
    const int steps = layer->direction[0].end - layer->direction[0].first;
    sli_fused_enter_piece(layer, (int)((long)steps * j / pieces), (int)((long)steps * (j + 1) / pieces));
    return j;
}

/* The next piece of the lane. Backward the sums of a chunk come after its last piece, which the next layer need not wait for. */
static void run_piece(wave *w, lane *lane) {
    const int done = atomic_load(&lane->done);
    sli_fused_work *layer = &w->work[lane->layer];
    const int j = enter_piece(w, layer, w->backward ? w->all - 1 - done : done);
    if (w->backward) {
        if (done == 0) sli_fused_backward_pack(layer);
        sli_fused_backward_piece(layer);
        sli_fused_backward_inputs(layer);
    } else {
        sli_fused_forward_piece(layer);
    }
    atomic_store(&lane->done, done + 1);
    if (!w->backward || j > 0) atomic_store(&lane->busy, false);
    sli_event_signal(&w->event);
    if (!w->backward || j > 0) return;
    sli_fused_backward_sums(layer);
    atomic_store(&lane->busy, false);
    sli_event_signal(&w->event);
}

static bool is_ready(wave *w, int l) {
    const int done = atomic_load(&w->lane[l].done);
    return done < w->all && (l == 0 || atomic_load(&w->lane[l - 1].done) > done);
}

/* A lane whose next piece can be computed, and is now this member's; NULL: there is none at the moment. */
static lane *claim(wave *w, int l) {
    lane *lane = &w->lane[l];
    bool free = false;
    if (!is_ready(w, l) || !atomic_compare_exchange_strong(&lane->busy, &free, true)) return NULL;
    if (is_ready(w, l)) return lane;
    atomic_store(&lane->busy, false); /* another member was faster */
    sli_event_signal(&w->event);
    return NULL;
}

/* Own lanes first, whose weights are in this core's cache; of several the one that the wave came to last. */
static lane *find(wave *w, int first, int end) {
    lane *found = NULL;
    for (int l = end - 1; l >= first && !found; l--) found = claim(w, l);
    for (int l = w->lanes - 1; l >= 0 && !found; l--)
        if (l < first || l >= end) found = claim(w, l);
    return found;
}

static bool is_over(wave *w) {
    for (int l = 0; l < w->lanes; l++)
        if (atomic_load(&w->lane[l].done) < w->all) return false;
    return true;
}

/* Nobody waits for a member that is not there: a piece that can be computed is anybody's. */
static void ride(void *context, int member) {
    wave *w = context;
    const int count = w->members;
    const int first = w->lanes * member / count, end = w->lanes * (member + 1) / count;
    for (;;) {
        const uint32_t seen = sli_event_count(&w->event);
        lane *found = find(w, first, end);
        if (found)
            run_piece(w, found);
        else if (is_over(w))
            return;
        else
            sli_event_wait(&w->event, w->call->threads, seen);
    }
}

static void run(const sli_call *call, bool backward) {
    const sli_cpu *cpu = sli_cpu_of(call);
    const sli_problem *p = &call->problem;
    const sli_cpu_machine machine = sli_fused_machine(call);
    const sli_cpu_stack_cut cut = sli_cpu_stack_cut_of(p, sli_cpu_panels_of(call), &machine, backward);
    wave w = {
        .call = call, .p = p, .backward = backward, .members = cut.members, .lanes = p->layers, .chunk = call->chunk};
    const int wanted = cpu->pieces > 0 ? cpu->pieces : cut.pieces;
    enter_layers(&w);
    w.chunks = sli_fused_chunks(&w.work[0]);
    if (w.chunks > 0) {
        w.pieces = sli_cpu_stack_pieces(w.chunk, p->batch, wanted);
        w.last_pieces = sli_cpu_stack_pieces(p->steps - (w.chunks - 1) * w.chunk, p->batch, w.pieces);
        w.all = (w.chunks - 1) * w.pieces + w.last_pieces;
    }
    for (int l = 0; l < w.lanes && backward; l++) sli_fused_backward_begin(&w.work[l]);
    sli_threads_run(call->threads, cut.members, ride, &w);
    for (int l = 0; l < w.lanes; l++) (backward ? sli_fused_backward_end : sli_fused_forward_end)(&w.work[l]);
}

void sli_cpu_stack_forward(const sli_call *call) {
    run(call, false);
}

void sli_cpu_stack_backward(const sli_call *call) {
    run(call, true);
}

void sli_cpu_stack_pack(const sli_call *call) {
    const sli_cpu_stack_places packed = sli_cpu_stack_packed(&call->problem, sli_cpu_panels_of(call));
    for (int l = 0; l < call->problem.layers; l++) {
        sli_call own = layer_call(call, l);
        own.threads = call->threads;
        own.packed = at(call->packed, packed.own[l]);
        sli_fused_pack(&own);
    }
}
