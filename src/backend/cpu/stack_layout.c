/* Where the memory of cpu:stack is, and how time is cut. */
#include "backend/cpu/stack.h"

static size_t take(size_t *end, size_t bytes) {
    const size_t at = *end;
    *end = at + sli_round_up(bytes, SLI_ALIGN);
    return at;
}

sli_problem sli_cpu_stack_layer(const sli_problem *stack, int layer) {
    return sli_problem_part(stack, layer, -1);
}

static size_t between_bytes(const sli_problem *p, int layer) {
    const size_t outputs = (size_t)sli_problem_output(p);
    return layer + 1 < p->layers ? sizeof(float) * (size_t)p->steps * (size_t)p->batch * outputs : 0;
}

sli_cpu_stack_places sli_cpu_stack_packed(const sli_problem *p, const sli_panel_ops *ops) {
    sli_cpu_stack_places at = {0};
    for (int l = 0; l < p->layers; l++) {
        const sli_problem layer = sli_cpu_stack_layer(p, l);
        at.bytes[l] = sli_fused_packed_of(&layer, ops).total;
        at.own[l] = take(&at.total, at.bytes[l]);
    }
    return at;
}

static sli_booking booking_of(const sli_problem *p, const sli_panel_ops *ops, int chunk, int l) {
    const sli_problem layer = sli_cpu_stack_layer(p, l);
    sli_booking booking;
    sli_fused_book(&layer, ops, 1, chunk, &booking);
    return booking;
}

sli_cpu_stack_places sli_cpu_stack_saved(const sli_problem *p, const sli_panel_ops *ops, int chunk) {
    sli_cpu_stack_places at = {0};
    for (int l = 0; l < p->layers && p->train; l++) {
        at.bytes[l] = booking_of(p, ops, chunk, l).saved;
        at.own[l] = take(&at.total, at.bytes[l]);
        at.between[l] = take(&at.total, between_bytes(p, l));
    }
    return at;
}

sli_cpu_stack_places sli_cpu_stack_scratch(const sli_problem *p, const sli_panel_ops *ops, int chunk, bool backward) {
    sli_cpu_stack_places at = {0};
    for (int l = 0; l < p->layers; l++) {
        const sli_booking booking = booking_of(p, ops, chunk, l);
        at.bytes[l] = backward ? booking.scratch_backward : booking.scratch_forward;
        at.own[l] = take(&at.total, at.bytes[l]);
        at.between[l] = take(&at.total, backward || !p->train ? between_bytes(p, l) : 0);
    }
    return at;
}

/* -------------------------------------------------------------------------------------------------------- pieces -- */
int sli_cpu_stack_pieces(int steps, int batch, int pieces) {
    enum { LEAST_ROWS = 9 }; /* fewer are another kind of product: products.c */
    const int least = (LEAST_ROWS + batch - 1) / (batch > 0 ? batch : 1), most = steps / (least > 0 ? least : 1);
    return pieces < most ? pieces : most > 1 ? most : 1;
}

/* The wave passes once over all pieces: threads share what they compute, but for the first pieces, which they wait for. A layer's
 * pieces come one after the other. Parameters' sums are not waited for. */
static double cut_seconds(const sli_problem *p, const sli_panel_ops *ops, const sli_cpu_machine *machine, int members,
                          int pieces, bool backward) {
    static const double meeting = 0.5e-6; /* a piece is looked for, claimed and told */
    const int chunk = sli_chunk_steps(p->batch, p->steps), chunks = (p->steps + chunk - 1) / chunk;
    sli_cpu_machine one = *machine;
    one.threads = 1;
    one.others = members - 1;
    const double rows = (double)p->batch * chunk / pieces, all = (double)chunks * pieces;
    double sum = 0, most = 0, sums = 0;
    for (int l = 0; l < p->layers; l++) {
        const sli_problem layer = sli_cpu_stack_layer(p, l);
        const double piece = meeting + sli_fused_piece_seconds(&layer, ops, &one, rows, backward);
        sum += piece;
        if (piece > most) most = piece;
        if (backward) sums += chunks * sli_cost_sums(&one, &layer, (double)p->batch * chunk);
    }
    const double each = sum / members, stage = each > most ? each : most;
    return sli_cost_uneven(machine, members) * (all * stage + (members - 1) * each + sums / members) +
           sli_cost_wake(machine, members);
}

sli_cpu_stack_cut sli_cpu_stack_cut_of(const sli_problem *p, const sli_panel_ops *ops, const sli_cpu_machine *machine,
                                       bool backward) {
    const int members = machine->threads < p->layers ? machine->threads : p->layers;
    const int chunk = sli_chunk_steps(p->batch, p->steps);
    sli_cpu_stack_cut best = {members, 1, 0};
    best.seconds = cut_seconds(p, ops, machine, members, 1, backward);
    for (int pieces = 2; members > 1 && sli_cpu_stack_pieces(chunk, p->batch, pieces) == pieces; pieces += pieces / 2) {
        const sli_cpu_stack_cut cut = {members, pieces, cut_seconds(p, ops, machine, members, pieces, backward)};
        if (cut.seconds >= best.seconds)
            break; /* what is waited for falls, what a piece costs beside its steps rises */
        best = cut;
    }
    return best;
}
