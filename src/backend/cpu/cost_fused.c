/* What a call of cpu:fused is predicted to take: W x, the steps, and backward the sums over its time. */
#include "backend/cpu/fused.h"

double sli_fused_piece_seconds(const sli_problem *p, const sli_panel_ops *ops, const sli_cpu_machine *machine,
                               double rows, bool backward) {
    return rows / p->batch * sli_fused_shares(p, ops, machine, backward).seconds +
           (backward ? sli_cost_inputs(machine, p, rows) : 0);
}

static double pass_seconds(const sli_problem *p, const sli_panel_ops *ops, const sli_cpu_machine *machine,
                           bool backward) {
    const int chunk = sli_chunk_steps(p->batch, p->steps), chunks = chunk > 0 ? (p->steps + chunk - 1) / chunk : 0;
    const int directions = sli_problem_directions(p);
    const double rows = (double)chunk * p->batch;
    const double beside = backward ? sli_cost_inputs(machine, p, rows) + sli_cost_sums(machine, p, rows) : 0;
    return p->steps * sli_fused_shares(p, ops, machine, backward).seconds + (double)chunks * directions * beside;
}

double sli_fused_seconds(const sli_problem *p, const sli_caps *caps) {
    sli_cpu cpu;
    sli_cpu_engine(caps->isa, false, &cpu);
    const sli_panel_ops *ops = sli_cpu_panels(&cpu, p);
    const sli_cpu_machine machine = sli_cpu_machine_of(caps);
    const double forward = pass_seconds(p, ops, &machine, false);
    return forward + (p->train ? pass_seconds(p, ops, &machine, true) : 0) + (p->recompute ? forward : 0);
}
