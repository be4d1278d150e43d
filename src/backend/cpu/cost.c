/* What the parts of a recurrent layer are predicted to take on a CPU. */
#include "backend/cpu/cost.h"

#include <math.h>
#include "backend/cpu/gemm.h"

/* Of one core; seconds, FLOP/s, bytes/s. */
typedef struct rates {
    double flops;         /* products of steps, many rows */
    double few[3];        /* of that: one row, two, three to five */
    double product;       /* products over time, their operands packed */
    double product_bf16;  /* of those of bf16, by AMX or AVX512_BF16; elsewhere they are floats */
    double product_f32x3; /* of those of floats, by AMX; 0: they are floats */
    double most_speed;    /* of forms of weights beside floats, their operands' conversion included; 0: what they say */
    double pack;          /* a number of those */
    double result;        /* a number of what they give, for each piece of k */
    double thin;          /* bytes of b in products of few rows */
    double l2, l3, dram;  /* weights that are read in every step */
    double cell[3][2];    /* a unit of a row: LSTM, GRU, RNN; forward, backward */
    double entry[2];      /* a step, beside its product and cells */
    double round[2];      /* of two members; of each further one */
    double start;         /* starting one that spins, or a list of tasks */
    double wake;          /* the first start of a pass, whose threads may have parked since the call before, */
    double
        ready; /* or spin, of each further one: what it takes longer by caches that exchange lines; 0: not measured, as if they had parked */
    double moved;  /* a number that is read and written, or summed up */
    double uneven; /* the slowest thread's time of the mean, where each has its own part */
    double beside; /* what a core does while others are at work, of what it does alone */
} rates;

/* avx2, base: measured on a Zen 3 (two virtual CPUs, 512 KB of L2, 32 MB of L3), 2026-11-21: products and cells one by one, what is
 * around them by fitting whole layers, of which bench/results/cpu_predicted_2026-11-21.txt has predicted beside measured times.
 * avx512, and bf16 on AMX, where small layers take up to twice as long: fitted to bench/results/cpu_layers_xeon_2026-11-21.jsonl
 * (Sapphire Rapids); f32x3 by what bench/results/amx_shared_cpu_2026-11-22.txt measured on a core of its own; wake: two virtual Xeon cores: a job of
 * threads that spin takes 0.4 us more, of parked ones 15 to 34, a pass 40 to 90, and they park after 0.1 ms (bench/results/wake_cpu_2026-11-24.txt). neon: an
 * estimate. */
static const rates rates_avx2 = {.flops = 91e9,
                                 .few = {0.8, 0.8, 0.9},
                                 .product = 90e9,
                                 .pack = 0.2e-9,
                                 .result = 0.15e-9,
                                 .thin = 60e9,
                                 .l2 = 100e9,
                                 .l3 = 65e9,
                                 .dram = 18e9,
                                 .cell = {{2.6e-9, 1.6e-9}, {1.7e-9, 1.2e-9}, {2.2e-9, 1.6e-9}},
                                 .entry = {0.06e-6, 0.12e-6},
                                 .round = {0.24e-6, 0.05e-6},
                                 .start = 1.5e-6,
                                 .wake = 60e-6,
                                 .moved = 0.15e-9,
                                 .uneven = 1.07,
                                 .beside = 0.94};
static const rates rates_avx512 = {.flops = 155e9,
                                   .few = {0.9, 0.9, 0.95},
                                   .product = 130e9,
                                   .product_bf16 = 500e9,
                                   .product_f32x3 = 200e9,
                                   .most_speed = 3.5,
                                   .pack = 0.2e-9,
                                   .result = 0.15e-9,
                                   .thin = 25e9,
                                   .l2 = 135e9,
                                   .l3 = 27e9,
                                   .dram = 18e9,
                                   .cell = {{1.7e-9, 1.2e-9}, {1.4e-9, 0.9e-9}, {1.0e-9, 0.8e-9}},
                                   .entry = {0.06e-6, 0.12e-6},
                                   .round = {0.24e-6, 0.05e-6},
                                   .start = 1.5e-6,
                                   .wake = 60e-6,
                                   .moved = 0.15e-9,
                                   .uneven = 1,
                                   .beside = 0.97};
/* Zen 5 (two virtual CPUs, 1 MB of L2, 32 MB of L3), 2026-11-24: 266 GFLOP/s of multiply-adds, 525 of pairs
 * of bf16; fitted to `predicted.py` (bench/results/cpu_predicted_zen5_2026-11-24.txt); a job of threads that spin takes 0.2 us more, of parked ones 12 to 14. */
static const rates rates_avx512bf16 = {.flops = 255e9,
                                       .few = {0.7, 0.8, 0.92},
                                       .product = 240e9,
                                       .product_bf16 = 460e9,
                                       .pack = 0.1e-9,
                                       .result = 0.1e-9,
                                       .thin = 90e9,
                                       .l2 = 200e9,
                                       .l3 = 110e9,
                                       .dram = 27e9,
                                       .cell = {{1.3e-9, 0.9e-9}, {1.0e-9, 0.7e-9}, {0.7e-9, 0.5e-9}},
                                       .entry = {0.04e-6, 0.08e-6},
                                       .round = {0.18e-6, 0.05e-6},
                                       .start = 1.0e-6,
                                       .wake = 25e-6,
                                       .ready = 1.5e-6,
                                       .moved = 0.1e-9,
                                       .uneven = 1,
                                       .beside = 0.98};
/* Zen 4 (two virtual CPUs, 1 MB of L2, 32 MB of L3), 2026-11-25: 118 GFLOP/s of multiply-adds by vectors of 256 or 512 bits, 236 of pairs of
 * bf16; fitted to `predicted.py` (bench/results/cpu_predicted_zen4_2026-11-25.txt). */
static const rates rates_half_width = {.flops = 113e9,
                                       .few = {0.6, 0.85, 0.95},
                                       .product = 108e9,
                                       .product_bf16 = 205e9,
                                       .pack = 0.12e-9,
                                       .result = 0.12e-9,
                                       .thin = 65e9,
                                       .l2 = 170e9,
                                       .l3 = 88e9,
                                       .dram = 22e9,
                                       .cell = {{1.9e-9, 1.4e-9}, {1.4e-9, 1.0e-9}, {1.0e-9, 0.8e-9}},
                                       .entry = {0.05e-6, 0.1e-6},
                                       .round = {0.2e-6, 0.05e-6},
                                       .start = 1.0e-6,
                                       .wake = 25e-6,
                                       .ready = 1.5e-6,
                                       .moved = 0.12e-9,
                                       .uneven = 1,
                                       .beside = 0.98};
static const rates rates_base = {.flops = 26e9,
                                 .few = {1, 1, 1},
                                 .product = 25e9,
                                 .pack = 0.3e-9,
                                 .result = 0.3e-9,
                                 .thin = 50e9,
                                 .l2 = 100e9,
                                 .l3 = 65e9,
                                 .dram = 18e9,
                                 .cell = {{7e-9, 4e-9}, {6e-9, 3e-9}, {5e-9, 3e-9}},
                                 .entry = {0.06e-6, 0.12e-6},
                                 .round = {0.24e-6, 0.05e-6},
                                 .start = 1.5e-6,
                                 .wake = 60e-6,
                                 .moved = 0.2e-9,
                                 .uneven = 1.07,
                                 .beside = 0.94};
static const rates rates_neon = {.flops = 40e9,
                                 .few = {0.8, 0.8, 0.9},
                                 .product = 40e9,
                                 .pack = 0.3e-9,
                                 .result = 0.3e-9,
                                 .thin = 40e9,
                                 .l2 = 60e9,
                                 .l3 = 30e9,
                                 .dram = 15e9,
                                 .cell = {{5e-9, 3e-9}, {4e-9, 2.5e-9}, {3e-9, 2e-9}},
                                 .entry = {0.06e-6, 0.12e-6},
                                 .round = {0.24e-6, 0.05e-6},
                                 .start = 1.5e-6,
                                 .wake = 60e-6,
                                 .moved = 0.2e-9,
                                 .uneven = 1.07,
                                 .beside = 0.95};

static const rates *rates_of(const sli_cpu_machine *machine) {
    if (machine->half_width) return &rates_half_width;
    switch (machine->isa) {
    case SLI_ISA_AVX2:
        return &rates_avx2;
    case SLI_ISA_AVX512:
    case SLI_ISA_AMX:
        return &rates_avx512;
    case SLI_ISA_AVX512BF16:
        return &rates_avx512bf16;
    case SLI_ISA_NEON:
        return &rates_neon;
    default:
        return &rates_base;
    }
}

sli_cpu_machine sli_cpu_machine_of(const sli_caps *caps) {
    return (sli_cpu_machine){.isa = caps->isa,
                             .threads = caps->threads,
                             .l2_bytes = caps->l2_bytes,
                             .l3_bytes = caps->l3_bytes,
                             .half_width = caps->half_width};
}

sli_cpu_machine sli_cpu_ready(sli_cpu_machine machine) {
    machine.ready = rates_of(&machine)->ready > 0;
    return machine;
}

/* Of a cache of so many bytes, what stays there from step to step. */
static double kept(double share, size_t bytes, double unknown) {
    return share * (bytes ? (double)bytes : unknown);
}

/* Weights come from where they lay since the last step; a processor loads and multiplies at the same time, neither for free. */
double sli_cost_step(const sli_cpu_machine *machine, const sli_cost_panels *p) {
    const rates *r = rates_of(machine);
    const double fill = p->rows < 3 ? r->few[p->rows > 1] : p->rows < 6 ? r->few[2] : 1;
    const double near = fmin(p->bytes, kept(0.75, machine->l2_bytes, 1 << 20));
    const double share = fmin(1, kept(0.45, machine->l3_bytes, 16 << 20) / fmax(p->all_bytes, 1)),
                 rest = p->bytes - near;
    const double loads = near / r->l2 + rest * (share / r->l3 + (1 - share) / r->dram);
    double speed = p->speed > 0 ? p->speed : 1;
    if (r->most_speed > 0) speed = fmin(speed, r->most_speed);
    const double products = p->flops / (r->flops * fill * speed);
    const double a = loads * loads, b = products * products; /* the root of fourth powers: mostly the larger one */
    return sqrt(sqrt(a * a + b * b)) / (p->threads + machine->others > 1 ? r->beside : 1);
}

double sli_cost_cell(const sli_cpu_machine *machine, sli_op op, bool backward) {
    return rates_of(machine)->cell[op == SLI_OP_LSTM ? 0 : op == SLI_OP_GRU ? 1 : 2][backward];
}

double sli_cost_entry(const sli_cpu_machine *machine, bool backward) {
    return rates_of(machine)->entry[backward];
}

double sli_cost_round(const sli_cpu_machine *machine, int members) {
    const rates *r = rates_of(machine);
    return members < 2 ? 0 : r->round[0] + r->round[1] * (members - 2);
}

double sli_cost_uneven(const sli_cpu_machine *machine, int members) {
    return members < 2 ? 1 : rates_of(machine)->uneven;
}

double sli_cost_start(const sli_cpu_machine *machine, int members) {
    return members < 2 ? 0 : rates_of(machine)->start;
}

double sli_cost_wake(const sli_cpu_machine *machine, int members) {
    const rates *r = rates_of(machine);
    return members < 2 ? 0 : machine->ready ? fmin(r->wake, r->ready * (members - 1)) : r->wake;
}

/* How products.c goes about it. */
double sli_cost_product(const sli_cpu_machine *machine, sl_dtype dtype, double m, double n, double k) {
    const rates *r = rates_of(machine);
    const int threads = machine->threads;
    const double flops = 2 * m * n * k, t = flops < SLI_ALONE ? 1 : threads, start = sli_cost_start(machine, (int)t);
    const double other = dtype == SL_BF16 ? r->product_bf16 : dtype == SL_F32X3 ? r->product_f32x3 : 0;
    const bool own = other > 0 && machine->isa >= SLI_ISA_AVX512BF16; /* not by vectors of floats */
    const double rate = own ? other : r->product;
    if (m <= sli_cpu_few_rows(dtype))
        return fmax(n * k * sizeof(float) / r->thin, flops / (0.5 * r->product)) / threads + start;
    const double pieces = ceil(k / sli_cpu_piece_k(dtype));
    return (flops / rate + (m + n) * k * r->pack + m * n * pieces * r->result) /
               (t + machine->others > 1 ? t * r->beside : 1) +
           2 * pieces * start;
}

static double moved(const sli_cpu_machine *machine, double numbers) {
    return rates_of(machine)->moved * numbers / machine->threads + sli_cost_start(machine, machine->threads);
}

double sli_cost_inputs(const sli_cpu_machine *machine, const sli_problem *p, double rows) {
    return sli_cost_product(machine, p->dtype, rows, p->inputs, (double)sli_op_gates(p->op) * p->units);
}

double sli_cost_sums(const sli_cpu_machine *machine, const sli_problem *p, double rows) {
    const double gates = (double)sli_op_gates(p->op) * p->units, outputs = sli_problem_output(p);
    const double projection = p->projection > 0 ? sli_cost_product(machine, p->dtype, outputs, p->units, rows) : 0;
    return sli_cost_product(machine, p->dtype, gates, p->inputs, rows) + projection +
           sli_cost_product(machine, p->dtype, gates, outputs, rows) + moved(machine, rows * (gates + p->units));
}
