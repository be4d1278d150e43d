/* cpu:stack: what it takes, costs and books. */
#include <stdio.h>
#include "backend/cpu/rows.h"
#include "backend/cpu/stack.h"

static const sli_panel_ops *panels_of(const sli_problem *p, const sli_caps *caps) {
    sli_cpu cpu;
    sli_cpu_engine(caps->isa, false, &cpu);
    return sli_cpu_panels(&cpu, p);
}

static bool eligible(const sli_problem *p, const sli_caps *caps, sli_why *why) {
    if (!sli_takes_stack(p, why)) return false;
    NEED(p->mask == SLI_MASK_NONE, "cuts time into pieces of the same rows; with masks or lengths they differ");
    NEED(!caps->have_blas || p->dtype != SL_F32,
         "products over time go to a BLAS here, whose sums depend on the number of rows in a piece");
    for (int l = 0; l < 2; l++) {
        const sli_problem layer = sli_cpu_stack_layer(p, l);
        const sli_kernel *fused = layer.op == SLI_OP_LSTM  ? &sli_cpu_fused_lstm
                                  : layer.op == SLI_OP_GRU ? &sli_cpu_fused_gru
                                                           : &sli_cpu_fused_rnn;
        if (!fused->eligible(&layer, caps, why)) return false;
    }
    return true;
}

static void cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    *cost = (sli_cost){0};
    for (int l = 0; l < p->layers; l++) {
        const sli_problem layer = sli_cpu_stack_layer(p, l);
        sli_cost own;
        sli_cpu_fused_lstm.cost(&layer, caps, &own); /* of any op */
        cost->flops += own.flops;
        cost->bytes += own.bytes;
    }
}

static void book(const sli_problem *p, const sli_caps *caps, int chunk, sli_booking *booking) {
    const sli_panel_ops *ops = panels_of(p, caps);
    booking->saved = sli_cpu_stack_saved(p, ops, chunk).total;
    booking->scratch_forward = sli_cpu_stack_scratch(p, ops, chunk, false).total;
    booking->scratch_backward = p->train ? sli_cpu_stack_scratch(p, ops, chunk, true).total : 0;
    booking->packed = sli_cpu_stack_packed(p, ops).total;
}

static double seconds(const sli_problem *p, const sli_caps *caps) {
    const sli_panel_ops *ops = panels_of(p, caps);
    const sli_cpu_machine machine = sli_cpu_machine_of(caps);
    return sli_cpu_stack_cut_of(p, ops, &machine, false).seconds +
           (p->train ? sli_cpu_stack_cut_of(p, ops, &machine, true).seconds : 0);
}

/* Steps of a piece. */
static int piece_steps(const sli_problem *p, const sli_cpu_stack_cut *cut) {
    const int chunk = sli_chunk_steps(p->batch, p->steps), pieces = sli_cpu_stack_pieces(chunk, p->batch, cut->pieces);
    return (chunk + pieces - 1) / pieces;
}

static void describe(const sli_problem *p, const sli_caps *caps, char *text, size_t capacity) {
    const sli_panel_ops *ops = panels_of(p, caps);
    const sli_cpu_machine machine = sli_cpu_machine_of(caps);
    const sli_cpu_stack_cut cut = sli_cpu_stack_cut_of(p, ops, &machine, false);
    char backward[32] = "";
    double apart = 0;
    for (int l = 0; l < p->layers; l++) {
        const sli_problem layer = sli_cpu_stack_layer(p, l);
        apart += sli_fused_seconds(&layer, caps);
    }
    if (p->train) {
        const sli_cpu_stack_cut back = sli_cpu_stack_cut_of(p, ops, &machine, true);
        snprintf(backward, sizeof backward, ", backward of %d", piece_steps(p, &back));
    }
    snprintf(text, capacity,
             "panels of %s, %d lanes; %d thread%s: the layers as a wavefront, pieces of %d steps%s; one by one %.4g us",
             ops->name, ops->lanes, cut.members, cut.members == 1 ? "" : "s", piece_steps(p, &cut), backward,
             1e6 * apart);
}

#define STACK_ROW(OP)                                                                                              \
    {                                                                                                              \
        .name = "cpu:stack", .op = OP, .device = SLI_DEVICE_CPU, .eligible = eligible, .cost = cost, .book = book, \
        .seconds = seconds, .bits_of = "cpu:fused", .describe = describe, .pack = sli_cpu_stack_pack,              \
        .packs_updated = SLI_FUSED_PACKS, .forward = sli_cpu_stack_forward, .backward = sli_cpu_stack_backward,    \
        .null_states = true, .backward_reads_in = (1u << SLI_MAX_IN) - 1, .backward_reads_out = 1u << SLI_RNN_Y    \
    }

const sli_kernel sli_cpu_stack_lstm = STACK_ROW(SLI_OP_LSTM);
const sli_kernel sli_cpu_stack_gru = STACK_ROW(SLI_OP_GRU);
const sli_kernel sli_cpu_stack_rnn = STACK_ROW(SLI_OP_RNN);
