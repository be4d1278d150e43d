/* What the parts of a recurrent layer are predicted to take on a CPU: a pure function of shapes and machine, by which rows are
 * compared (sli_kernel.seconds), and threads shared. Rates are one table in cost.c. */
#ifndef SLI_CPU_COST_H
#define SLI_CPU_COST_H

#include "core/kernel.h"

typedef struct sli_cpu_machine {
    sli_isa isa;
    int threads;
    size_t l2_bytes; /* of a core; 0: not known */
    size_t l3_bytes; /* of those that share it; 0: not known */
    int others;      /* threads that compute something else meanwhile */
    bool half_width; /* see sli_cpu_half_width */
    bool ready;      /* see sli_cpu_ready */
} sli_cpu_machine;
sli_cpu_machine sli_cpu_machine_of(const sli_caps *caps);
/* The same machine where threads spin when a pass begins (sli_threads_ready), which no plan counts on; where it was not measured what that
 * saves, as it is. */
sli_cpu_machine sli_cpu_ready(sli_cpu_machine machine);

/* One thread's part of the product of a step: weights that are read in every step. */
typedef struct sli_cost_panels {
    int threads, rows;
    double flops, bytes; /* of this thread */
    double all_bytes;    /* of all threads, which share L3 */
    double speed;        /* of this form of weights beside floats, as in isa/panel.h; 0: the same */
} sli_cost_panels;

/* Seconds. */
double sli_cost_step(const sli_cpu_machine *machine, const sli_cost_panels *panels);
double sli_cost_cell(const sli_cpu_machine *machine, sli_op op, bool backward); /* of a unit of a row */
double sli_cost_entry(const sli_cpu_machine *machine, bool backward); /* of a step, beside product and cells */
/* Threads that hand panels to each other: a product's begin and end; of threads that have parts of their own, what the slowest needs of
 * what they need in the mean. */
double sli_cost_round(const sli_cpu_machine *machine, int members);
double sli_cost_uneven(const sli_cpu_machine *machine, int members);
double sli_cost_start(const sli_cpu_machine *machine, int members); /* starts and ends */
double sli_cost_wake(const sli_cpu_machine *machine,
                     int members); /* the same of a pass, whose threads may have parked if they are not ready */
/* On all threads: a product over time, c[m][n] of sums over k, */
double sli_cost_product(const sli_cpu_machine *machine, sl_dtype dtype, double m, double n, double k);
/* dx += dz W; and what else follows the steps of a chunk: dW += dz^T x, dR += dz^T h', db += dz, with h' side by side. */
double sli_cost_inputs(const sli_cpu_machine *machine, const sli_problem *problem, double rows);
double sli_cost_sums(const sli_cpu_machine *machine, const sli_problem *problem, double rows);

#endif
