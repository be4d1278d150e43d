/* cuda:step: what a call, a pass and a step of it are predicted to take. */
#include "backend/cuda/step_cost.h"

#include <math.h>

/* ------------------------------------------------------------------------------------------------------ seconds --
 * A call: us = call + chunks * (launches of its products) + steps * step + products over time; training adds as much for
 * backward. Origin of all constants: medians of replayed CUDA graphs on one H200 (132 multiprocessors), 2026-11-21, made by
 * `sluice bench bench/shapes.txt --device cuda:0 --dtype D --jsonl FILE` and by the same shapes with fused steps and without. Times
 * are us, rates bytes or FLOP a us, of the whole machine but for blocks. The middle prediction is 6% off, the worst 1.3 times. Measured before backward
 * products in 16 bits went in pieces (sli_cuda_pieces), which take 1 to 3 us less. */
typedef struct pass_rates {
    double product, unit; /* what a step's product takes beyond launch and work; and a unit: its sums are a chain */
    double launch, row;   /* a fused step; and a row of a block: its cells */
    double block;         /* bytes a us that one block reads and multiplies */
} pass_rates;
typedef struct rates {
    double tile, many;  /* FLOP a us: a step's product of one tile of rows, of many */
    double flops;       /* FLOP a us: products over time */
    pass_rates pass[2]; /* forward, backward */
} rates;

enum { FULL = 132, FEW_ROWS = 4, TILE_ROWS = 16 }; /* forward has a kernel for few rows */
static const double call_us = 10, launch_us = 1.7, l2_rate = 5.0e6, memory_rate = 4.0e6;
const double sli_step_l2_part = 0.7;
static const double chunk_us[2] = {4, 15}; /* launches of a chunk's products */
static const double recompute_us = 6;      /* and of its gates, an estimate */
static const double sums_us = 0.015;       /* backward, a row and step: sums for the bias, small products */
static const double wave = 0.6;            /* blocks beyond one a multiprocessor: they share it */

static const rates rates_f32 = {34e6, 53e6, 55e6, {{2.5, 8.6e-3, 0, 0, 0}, {1.2, 13.3e-3, 0, 0, 0}}};
/* f32x3: the steps are multiplied exactly, as in f32; products over time at a third of tf32's rate less the splitting, which is
 * computed from the rates of f32 and tf32, not measured. */
static const rates rates_f32x3 = {34e6, 53e6, 70e6, {{2.5, 8.6e-3, 0, 0, 0}, {1.2, 13.3e-3, 0, 0, 0}}};
static const rates rates_tf32 = {1e9, 1e9, 257e6, {{2.8, 0, 1.5, 0, 26e3}, {4.2, 2.8e-3, 1.5, 0, 42e3}}};
static const rates rates_16 = {1e9, 1e9, 560e6, {{1.2, 0, 2.2, 0.015, 32e3}, {3.0, 0, 0.9, 0.015, 40e3}}};

static const rates *rates_of(sl_dtype dtype) {
    switch (dtype) {
    case SL_F32:
        return &rates_f32;
    case SL_F32X3:
        return &rates_f32x3;
    case SL_TF32:
        return &rates_tf32;
    default:
        return &rates_16;
    }
}

static double recurrent_matrix(const sli_step_shape *s) {
    return (double)s->GH * (double)s->O + (s->project ? (double)s->O * (double)s->H : 0);
}

/* A launch, then every block reads its weights and its rows, k elements of each, and multiplies them. */
static double fused_step(const sli_step_shape *s, const rates *r, double multiprocessors, bool backward) {
    const double units = backward ? SLI_STEP_FUSED_BACKWARD_UNITS : SLI_STEP_FUSED_FORWARD_UNITS;
    const double rows = s->B < SLI_STEP_FUSED_ROWS ? (double)s->B : SLI_STEP_FUSED_ROWS;
    const double k = (double)(backward ? s->GH : s->O), columns = backward ? units : units * (double)s->gates;
    const double blocks = s->directions * ceil((double)s->H / units) * ceil((double)s->B / SLI_STEP_FUSED_ROWS);
    const double waves = fmax(1, blocks / multiprocessors);
    const pass_rates *pass = &r->pass[backward];
    return pass->launch + pass->row * rows +
           (1 + wave * (waves - 1)) * (columns + rows) * k * (double)s->operand / pass->block;
}

/* A step of two launches, with a projection or reset before of four: the weights are read, from L2 where they fit, and
 * multiplied (of memory beside each other: 32 to 128 rows of 4096 units in 16 bits), and the cells read and write. */
static double apart_step(const sli_step_shape *s, const rates *r, const sli_caps *caps, double scale, bool backward) {
    const double matrix = recurrent_matrix(s), bytes = matrix * (double)s->operand;
    const bool near = bytes * s->directions < sli_step_l2_part * (double)caps->l2_bytes;
    const double read = bytes / (near ? l2_rate : memory_rate);
    const double multiplied = 2 * matrix * fmax(fmin((double)s->B, TILE_ROWS) / r->tile, (double)s->B / r->many);
    const double cells = (double)s->B * (double)s->GH * 4 * sizeof(float) / l2_rate;
    const double products = 1 + (s->project || s->before);
    const pass_rates *pass = &r->pass[backward];
    const bool few = s->B <= FEW_ROWS;
    const double beyond = few ? (backward ? pass->product : 0) : pass->product + pass->unit * (double)s->H;
    const double work = near ? read + multiplied : fmax(read, multiplied);
    return products * (2 * launch_us + beyond) + scale * (work + cells);
}

/* A tiled step: every block multiplies its tile and reads its part of R, all at once. Infinite for more blocks than there are multiprocessors,
 * which were measured to be slower than cuBLASLt's product and cells. Measured, see tiled_h200_*, 4 A. */
static double tiled_step(const sli_step_shape *s, const sli_caps *caps, int rows) {
    static const double launch = 3.9,
                        element[2] = {5.3e-6, 5.2e-6}; /* us; us a row, column and k of a tile of 32 and 64 rows */
    const double blocks = s->directions * ceil((double)s->B / rows) * ceil((double)s->H / SLI_STEP_TILED_UNITS);
    if (blocks > (caps->multiprocessors > 0 ? caps->multiprocessors : FULL)) return INFINITY;
    const double tile = (double)rows * SLI_STEP_TILED_UNITS * (double)s->gates * (double)s->H;
    const double read = s->directions * recurrent_matrix(s) * (double)s->operand / memory_rate;
    const bool near =
        s->directions * recurrent_matrix(s) * (double)s->operand < sli_step_l2_part * (double)caps->l2_bytes;
    return launch + fmax(tile * element[rows == SLI_STEP_TILED_MOST_ROWS], near ? 0 : read);
}

static double scale_of(const sli_caps *caps) {
    return caps->multiprocessors > 0 ? (double)FULL / caps->multiprocessors : 1;
}

int sli_step_tiled(const sli_problem *p, const sli_caps *caps) {
    enum {
        LEAST_SHARED = 196608,
        LEAST_UNITS = 512,
        LEAST_ROWS = 16
    }; /* bytes of a block; what is smaller was not measured */
    const sli_step_shape s = sli_step_shape_of(p, 1);
    const bool exact =
        p->dtype == SL_F32 || (p->dtype == SL_F32X3 && sli_cuda_split_bytes(caps, p->dtype, s.B, s.GH, s.hs) == 0);
    if (!exact || s.gates < 3 || s.project || s.before || s.B < LEAST_ROWS || s.H < LEAST_UNITS) return 0;
    if (caps->compute_capability < 90 || caps->shared_memory < LEAST_SHARED) return 0;
    const double large = tiled_step(&s, caps, 64), small = tiled_step(&s, caps, 32);
    const double apart = apart_step(&s, rates_of(p->dtype), caps, scale_of(caps), false);
    if (fmin(large, small) >= apart) return 0;
    return large <= small ? 64 : 32;
}

double sli_step_step_seconds(const sli_problem *p, const sli_caps *caps, bool backward) {
    const sli_step_shape s = sli_step_shape_of(p, 1);
    const rates *r = rates_of(p->dtype);
    const double scale = scale_of(caps), beside = s.directions == 2 ? 1.25 : 1; /* side by side */
    const int tiled = backward ? 0 : sli_step_tiled(p, caps);
    if (tiled > 0) return 1e-6 * tiled_step(&s, caps, tiled);
    const sli_step_wide wide = sli_step_wide_of(p, caps, backward);
    if (wide.rows > 0)
        return sli_step_wide_seconds(p, caps, &wide, backward) + (backward ? 1e-6 * sums_us * (double)s.B : 0);
    const double us = sli_step_fused(p, backward) ? fused_step(&s, r, FULL / scale, backward)
                                                  : apart_step(&s, r, caps, scale, backward);
    return 1e-6 * (beside * us + (backward ? sums_us * (double)s.B : 0));
}

double sli_step_transposed_us(const sli_problem *p, const sli_caps *caps, int chunk) {
    const sli_step_shape s = sli_step_shape_of(p, chunk);
    const double gain = sli_step_transpose_gain(&s, p->dtype, caps, s.rows);
    return gain > 0 ? gain * s.directions * (double)s.T / chunk : 0;
}

double sli_step_pass_seconds(const sli_problem *p, const sli_caps *caps, int chunk, bool backward) {
    const sli_step_shape s = sli_step_shape_of(p, 1);
    const double rows = (double)s.T * (double)s.B;
    const double chunks = ceil((double)s.T / chunk);
    const double inputs = 2.0 * s.directions * rows * (double)s.GH * (double)s.I;
    const double over_time = 2.0 * s.directions * rows * recurrent_matrix(&s);
    const bool again = backward && s.recompute; /* the gates: both products over time and a launch */
    const double flops = (again ? inputs + over_time : 0) + (backward ? 2 * inputs + over_time : inputs);
    const double won = backward ? sli_step_transposed_us(p, caps, chunk) : 0;
    const double us = (again ? chunks * recompute_us : 0) + call_us + chunks * chunk_us[backward] +
                      scale_of(caps) * (flops / rates_of(p->dtype)->flops - won);
    return 1e-6 * us + (double)s.T * sli_step_step_seconds(p, caps, backward);
}
