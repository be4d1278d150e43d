/* What a call of cpu:fused is predicted to take: W x of each chunk, its steps, and backward the sums over its time. */
#include "backend/cpu/fused.h"

/* Of `rows` rows of a chunk of chunk_rows. */
static double input_product(const sli_problem *p, const sli_panel_ops *ops, const sli_cpu_machine *machine, double rows,
                            double chunk_rows) {
    const double columns = (double)sli_op_gates(p->op) * p->units, bytes = columns * p->inputs * sizeof(float);
    const int threads = machine->threads;
    if (!sli_fused_packs_inputs(p) || (p->dtype == SL_F32 && chunk_rows > SLI_FUSED_FEW_INPUTS))
        return sli_cost_product(machine, p->dtype, rows, columns, p->inputs);
    const sli_cost_panels panels = {.threads = threads,
                                    .rows = (int)rows,
                                    .flops = 2 * rows / threads * columns * p->inputs,
                                    .bytes = bytes / threads,
                                    .all_bytes = bytes,
                                    .speed = ops->speed};
    return sli_cost_step(machine, &panels) + sli_cost_team(machine, threads);
}

double sli_fused_piece_seconds(const sli_problem *p, const sli_panel_ops *ops, const sli_cpu_machine *machine,
                               double rows, bool backward) {
    const double chunk_rows = (double)sli_chunk_steps(p->batch, p->steps) * p->batch;
    return rows / p->batch * sli_fused_shares(p, ops, machine, backward).seconds +
           (backward ? sli_cost_inputs(machine, p, rows) : input_product(p, ops, machine, rows, chunk_rows));
}

static double pass_seconds(const sli_problem *p, const sli_panel_ops *ops, const sli_cpu_machine *machine,
                           bool backward) {
    const int chunk = sli_chunk_steps(p->batch, p->steps), chunks = chunk > 0 ? (p->steps + chunk - 1) / chunk : 0;
    const int directions = sli_problem_directions(p);
    const double rows = (double)chunk * p->batch;
    const double beside = backward ? sli_cost_inputs(machine, p, rows) + sli_cost_sums(machine, p, rows)
                                   : input_product(p, ops, machine, rows, rows);
    return p->steps * sli_fused_shares(p, ops, machine, backward).seconds + (double)chunks * directions * beside;
}

double sli_fused_seconds(const sli_problem *p, const sli_caps *caps) {
    sli_cpu cpu;
    sli_cpu_engine(caps->isa, false, &cpu);
    const sli_panel_ops *ops = sli_cpu_panels(&cpu, p->dtype);
    const sli_cpu_machine machine = sli_cpu_machine_of(caps);
    return pass_seconds(p, ops, &machine, false) + (p->train ? pass_seconds(p, ops, &machine, true) : 0);
}
