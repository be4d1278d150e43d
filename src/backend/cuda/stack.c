/* cuda:stack, libsluice's side: a stack of layers whose pieces of time run side by side. What it takes, costs and books. */
#include <math.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/persist_overlap.h"
#include "backend/cuda/stack_layout.h"

static bool eligible(const sli_problem *p, const sli_caps *caps, sli_why *why) {
    if (!sli_takes_stack(p, why)) return false;
    NEED(p->projection == 0, "pieces of time hand on h, of which a projection that is folded has no use");
    for (int l = 0; l < 2; l++) {
        const sli_problem part = sli_stack_part(p, l, p->steps);
        if (!sli_cuda_lstm_cluster.eligible(&part, caps, why)) return false;
    }
    sli_stack_cut cut;
    if (!sli_stack_cut_of(p, (sli_planned){0}, caps, sli_caps_chunk(caps, p->batch, p->steps), &cut, why)) return false;
    NEED(p->steps > cut.piece, "%d steps are one piece of time: no layer runs beside another", p->steps);
    return true;
}

static void cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    *cost = (sli_cost){0};
    for (int l = 0; l < p->layers; l++) {
        const sli_problem part = sli_stack_part(p, l, p->steps);
        sli_cost of_layer;
        sli_cuda_lstm_cluster.cost(&part, caps, &of_layer);
        cost->flops += of_layer.flops;
        cost->bytes += of_layer.bytes;
    }
}

static void book(const sli_problem *p, const sli_caps *caps, int chunk, sli_booking *booking) {
    sli_stack_cut cut;
    *booking = (sli_booking){0};
    if (!sli_stack_cut_of(p, (sli_planned){0}, caps, chunk, &cut, NULL)) return; /* not eligible either */
    booking->saved = sli_stack_layout_saved(p, &cut, chunk).total;
    booking->scratch_forward = sli_stack_layout_scratch(p, caps, &cut, chunk, false).total;
    if (p->train) booking->scratch_backward = sli_stack_layout_scratch(p, caps, &cut, chunk, true).total;
    booking->packed = sli_stack_layout_packed(p, &cut).total;
}

/* A pass goes diagonal by diagonal: piece d of the first layer it comes to, piece d - 1 of the next, ... Layers whose clusters do not fit
 * side by side take turns, cluster by cluster, and no layer waits for the others' diagonal: a step of a diagonal takes what its clusters take of a
 * GPU that is full of them, or what one layer takes alone. Products over time fill the GPU, so that they take what they take one by one.
 * Measured on an H200, four layers of 256 units, four precisions and both modes: 0.94 to 1.06 of it is predicted (bench/planned.py). */
static double pass_us(const sli_problem *p, const sli_caps *caps, const sli_stack_cut *cut, bool backward) {
    enum { MANY = 64 }; /* layers that fill it, waves of clusters being whole */
    /* Streams wait for each other, longer where layers take turns: by hand, with those, 2026-11-24; side by side with 27 of five stacks on an H100
     * (wave_stacks_h100_2026-11-26.txt). */
    static const double turns_us = 30, beside_us = 15;
    const int pieces = sli_stack_pieces(p, cut), chunk = sli_caps_chunk(caps, p->batch, p->steps);
    const double alone = sli_stack_step_us(cut, p, caps, backward, 1);
    const double full = sli_stack_step_us(cut, p, caps, backward, MANY) / MANY, piece = (double)p->steps / pieces;
    double us = 0;
    for (int l = 0; l < p->layers; l++) {
        const sli_problem part = sli_stack_part(p, l, p->steps);
        us += sli_persist_pass_of(&part, caps, &cut->pair, chunk, backward).products_us;
    }
    const sli_problem one = sli_stack_part(p, 1, cut->piece);
    const double meeting = full * p->layers <= alone ? beside_us : turns_us;
    const double launches = sli_persist_pass_of(&one, caps, &cut->pair, chunk, backward).launches_us + meeting;
    for (int d = 0; d < pieces + p->layers - 1; d++) {
        const int first = d < pieces ? 0 : d - pieces + 1, last = d < p->layers ? d : p->layers - 1;
        us += launches + piece * fmax(alone, full * (last - first + 1));
    }
    return us;
}

static double seconds(const sli_problem *p, const sli_caps *caps) {
    sli_stack_cut cut;
    if (!sli_stack_cut_of(p, (sli_planned){0}, caps, sli_caps_chunk(caps, p->batch, p->steps), &cut, NULL)) return -1;
    return 1e-6 * (pass_us(p, caps, &cut, false) + (p->train ? pass_us(p, caps, &cut, true) : 0));
}

/* Pieces of one layer hand each other states; the first of the sequence, which comes last, may have nobody who wants them. */
static sl_status ready(const sli_problem *p, const sli_caps *caps, const sli_calls *calls, bool *refused,
                       sli_why *why) {
    sli_stack_cut cut;
    *refused = !sli_stack_cut_of(p, (sli_planned){0}, caps, calls->chunk, &cut, why);
    for (int wanted = 1; wanted >= (calls->d_states ? 1 : 0) && !*refused; wanted--) {
        const sli_problem part = sli_stack_part(p, 1, cut.piece < p->steps ? cut.piece : p->steps);
        sli_calls own = *calls;
        own.y = true;
        own.dy = true;
        own.d_states = wanted == 1;
        SLI_TRY(
            sli_cuda_get(NULL)->persist_ready(&part, cut.planned, caps, SLI_PERSIST_KIND_CLUSTER, &own, refused, why));
    }
    return SL_OK;
}

#define STACK_ROW(OP)                                                                                                \
    {                                                                                                                \
        .name = "cuda:stack", .op = OP, .device = SLI_DEVICE_CUDA, .eligible = eligible, .cost = cost, .book = book, \
        .ready = ready, .seconds = seconds, .pack = sli_cuda_stack_pack, .forward = sli_cuda_stack_forward,          \
        .backward = sli_cuda_stack_backward,                                                                         \
        .backward_reads_in = 1u << SLI_RNN_X | 1u << SLI_RNN_LENGTHS | 1u << SLI_RNN_MASK, .takes_recompute = true,  \
        .null_states = true, .writes_fresh = true                                                                    \
    }

const sli_kernel sli_cuda_lstm_stack = STACK_ROW(SLI_OP_LSTM);
const sli_kernel sli_cuda_gru_stack = STACK_ROW(SLI_OP_GRU);
const sli_kernel sli_cuda_rnn_stack = STACK_ROW(SLI_OP_RNN);
