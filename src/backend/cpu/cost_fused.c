/* What a call of cpu:fused is predicted to take: W x of each chunk, its steps, and backward the sums over its time. */
#include "backend/cpu/fused.h"

static double input_product(const sli_problem *p, const sli_panel_ops *ops, const sli_cpu_machine *machine, int rows) {
    const double columns = (double)sli_op_gates(p->op) * p->units;
    if (!sli_fused_packs_inputs(p) || (p->dtype == SL_F32 && rows > SLI_FUSED_FEW_INPUTS))
        return sli_cost_product(machine, p->dtype, rows, columns, p->inputs);
    const double each = (double)rows / machine->threads;
    const sli_cost_panels panels = {.threads = machine->threads,
                                    .rows = rows,
                                    .flops = 2.0 * each * columns * p->inputs,
                                    .bytes = columns * p->inputs * sizeof(float) / machine->threads,
                                    .all_bytes = columns * p->inputs * sizeof(float),
                                    .speed = ops->speed};
    return sli_cost_step(machine, &panels) + sli_cost_team(machine, machine->threads);
}

double sli_fused_pass_seconds(const sli_problem *p, const sli_panel_ops *ops, const sli_cpu_machine *machine,
                              bool backward) {
    const int chunk = sli_chunk_steps(p->batch, p->steps), chunks = chunk > 0 ? (p->steps + chunk - 1) / chunk : 0;
    const int rows = chunk * p->batch, directions = sli_problem_directions(p);
    const sli_fused_split split = sli_fused_shares(p, ops, machine, backward);
    const double beside = backward ? sli_cost_sums(machine, p, rows) : input_product(p, ops, machine, rows);
    return p->steps * split.seconds + (double)chunks * directions * beside;
}

double sli_fused_seconds(const sli_problem *p, const sli_caps *caps) {
    sli_cpu cpu;
    sli_cpu_engine(caps->isa, false, &cpu);
    const sli_panel_ops *ops = sli_cpu_panels(&cpu, p->dtype);
    const sli_cpu_machine machine = sli_cpu_machine_of(caps);
    return sli_fused_pass_seconds(p, ops, &machine, false) +
           (p->train ? sli_fused_pass_seconds(p, ops, &machine, true) : 0);
}
