/* cuda:wave, libsluice's side: a stack whose layers are computed as one. What it takes, costs and books. */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/wave_layout.h"

static const sli_kernel *cluster_of(const sli_problem *p) {
    return p->op == SLI_OP_LSTM  ? &sli_cuda_lstm_cluster
           : p->op == SLI_OP_GRU ? &sli_cuda_gru_cluster
                                 : &sli_cuda_rnn_cluster;
}

static bool eligible(const sli_problem *p, const sli_caps *caps, sli_why *why) {
    if (!sli_takes_stack(p, why)) return false;
    NEED(p->projection == 0, "carries h of all layers in one state, of which a projection that is folded has no use");
    NEED(!p->reset_before, "carries h of all layers in one state: with reset before the product there are two of them");
    NEED(!caps->recomputes, "runs layers a step apart over the whole sequence, which cannot be cut into segments");
    NEED(!caps->no_compiler, "has no built-in kernels, and NVRTC is missing");
    NEED(p->steps > 0, "computes steps of time, there are none");
    const sli_problem whole = sli_wave_whole(p);
    return cluster_of(p)->eligible(&whole, caps, why);
}

/* Of the layers; zeros of R' are not counted. */
static void cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    *cost = (sli_cost){0};
    for (int l = 0; l < p->layers; l++) {
        const sli_problem part = sli_problem_part(p, l, -1);
        sli_cost of_layer;
        cluster_of(p)->cost(&part, caps, &of_layer);
        cost->flops += of_layer.flops;
        cost->bytes += of_layer.bytes;
    }
}

static bool pair_of(const sli_problem *whole, const sli_caps *caps, sli_persist_pair *pair) {
    return sli_persist_pair_of(whole, (sli_planned){0}, caps, SLI_PERSIST_KIND_CLUSTER, pair, NULL);
}

static void book(const sli_problem *p, const sli_caps *caps, int chunk, sli_booking *booking) {
    const sli_problem whole = sli_wave_whole(p);
    const int longer = sli_wave_chunk(p, chunk);
    sli_persist_pair pair;
    *booking = (sli_booking){0};
    if (!pair_of(&whole, caps, &pair)) return; /* not eligible either */
    booking->saved = p->train ? sli_persist_layout_saved(&whole, &pair, longer).total : 0;
    booking->scratch_forward = sli_wave_layout_scratch(&whole, caps, &pair, longer, false).total;
    if (p->train) booking->scratch_backward = sli_wave_layout_scratch(&whole, caps, &pair, longer, true).total;
    booking->packed = sli_wave_layout_packed(&whole, &pair).total;
}

static sl_status ready(const sli_problem *p, const sli_caps *caps, const sli_calls *calls, bool *refused,
                       sli_why *why) {
    const sli_problem whole = sli_wave_whole(p);
    sli_calls own = *calls;
    own.chunk = sli_wave_chunk(p, calls->chunk);
    return sli_cuda_get(NULL)->persist_ready(&whole, (sli_planned){0}, caps, SLI_PERSIST_KIND_CLUSTER, &own, refused,
                                             why);
}

/* What a call has beside the whole's recurrence as that of any layer: states and gradients of layers that come together and part again, masks in every cell.
 * Fitted by hand to 102 of 17 stacks on an H100 (wave_stacks_h100_2026-11-26.txt); since then clusters have four rows, calls begin with one launch, and
 * gradients part in a fourth of the time (language_steps_h200_2026-11-27.txt), for which launches (1.5 and 3.5 us) and a term of the weights are left out. */
static double beside_us(const sli_problem *whole, bool backward) {
    static const struct { double launches, state; } us[2] = {{0, 0.0003}, {1, 0.0009}};
    const double units = whole->units;
    return us[backward].launches + us[backward].state * whole->batch * units;
}

static double seconds(const sli_problem *p, const sli_caps *caps) {
    const sli_problem whole = sli_wave_whole(p);
    const double recurrence = cluster_of(p)->seconds(&whole, caps);
    if (recurrence < 0) return -1;
    return recurrence + 1e-6 * (beside_us(&whole, false) + (p->train ? beside_us(&whole, true) : 0));
}

static bool begins_alone(const sli_problem *p) {
    const sli_problem whole = sli_wave_whole(p);
    return cluster_of(p)->begins_alone(&whole);
}

static void describe(const sli_problem *p, const sli_caps *caps, char *text, size_t capacity) {
    const sli_problem whole = sli_wave_whole(p);
    snprintf(text, capacity, "%d layers as one of %d units, each a step behind the one below; ", p->layers,
             whole.units);
    const size_t length = strlen(text);
    if (length < capacity) cluster_of(p)->describe(&whole, caps, text + length, capacity - length);
}

#define WAVE_ROW(OP)                                                                                                \
    {                                                                                                               \
        .name = "cuda:wave", .op = OP, .device = SLI_DEVICE_CUDA, .eligible = eligible, .cost = cost, .book = book, \
        .ready = ready, .seconds = seconds, .describe = describe, .pack = sli_cuda_wave_pack,                       \
        .forward = sli_cuda_wave_forward, .backward = sli_cuda_wave_backward,                                       \
        .backward_reads_in = 1u << SLI_RNN_X | 1u << SLI_RNN_LENGTHS | 1u << SLI_RNN_MASK, .null_states = true,     \
        .writes_fresh = true, .takes_narrow = true, .takes_narrow_io = true, .whole = true,                         \
        .begins_alone = begins_alone                                                                                \
    }

const sli_kernel sli_cuda_lstm_wave = WAVE_ROW(SLI_OP_LSTM);
const sli_kernel sli_cuda_gru_wave = WAVE_ROW(SLI_OP_GRU);
const sli_kernel sli_cuda_rnn_wave = WAVE_ROW(SLI_OP_RNN);
