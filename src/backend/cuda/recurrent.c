/* cuda:step, libsluice's side: the recurrent row that takes every cell and option: what it takes, costs and books. */
#include <math.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/step_layout.h"

static bool eligible(const sli_problem *p, const sli_caps *caps, sli_why *why) {
    NEED(p->dtype != SL_I8, "cuda:step computes f32, tf32, bf16, f16, f32x3; i8 needs quantised weights");
    if (!sli_cuda_dtype(p, why)) return false;
    NEED(p->layers <= 1, "cuda:step takes a stack of %d apart: layers run one after the other", p->layers);
    NEED(!(p->bidirectional && caps->recomputes),
         "cuda:step runs both directions over the whole sequence, which cannot be cut into segments");
    return true;
}

/* Multiply-adds of one row of one step, in both directions. */
static double row_products(const sli_step_shape *s) {
    const double recurrent = (double)s->GH * (double)s->O + (s->project ? (double)s->O * (double)s->H : 0);
    return s->directions * ((double)s->GH * (double)s->I + recurrent);
}

/* 2 flops a multiply-add; backward does the products twice. 30 flops for a unit's gates. Bytes: forward reads x and the
 * operands of W once and those of R in every step, writes and reads u and s, writes gates, c, h, y; backward as much twice, and once
 * more where gates are recomputed. */
static void cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    const sli_step_shape s = sli_step_shape_of(p, 1);
    const double rows = (double)s.T * (double)s.B, passes = !p->train ? 1 : s.recompute ? 4 : 3;
    const double cells = 30.0 * s.directions * (double)s.H;
    const double weights = (double)s.GH * (double)s.I + (double)s.T * (double)s.GH * (double)s.O;
    const double moved = (double)s.I + s.directions * (5.0 * (double)s.GH + 2.0 * (double)s.H + 2.0 * (double)s.O);
    cost->flops = passes * rows * (2 * row_products(&s) + cells);
    cost->bytes = passes * (rows * moved * sizeof(float) + s.directions * weights * (double)s.operand);
}

static void book(const sli_problem *p, const sli_caps *caps, int chunk, sli_booking *booking) {
    *booking = (sli_booking){.saved = p->train ? sli_step_layout_history(p, chunk).total : 0,
                             .scratch_forward = sli_step_layout_forward(p, caps, chunk).total,
                             .scratch_backward = p->train ? sli_step_layout_backward(p, caps, chunk, chunk).total : 0,
                             .packed = sli_step_layout_packed(p).total};
}

/* ------------------------------------------------------------------------------------------------------ seconds --
 * A call: us = call + chunks * (launches of its products) + steps * step + products over time; training adds as much for
 * backward. Origin of all constants: medians of replayed CUDA graphs on one H200 (132 multiprocessors), 2026-11-21, made by
 * `sluice bench bench/shapes.txt --device cuda:0 --dtype D --jsonl FILE` and by the same shapes with fused steps and without. Times
 * are us, rates bytes or FLOP a us, of the whole machine but for blocks. The middle prediction is 6% off, the worst 1.3 times. */
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
static const double call_us = 10, launch_us = 1.7, l2_rate = 5.0e6, memory_rate = 4.0e6, l2_part = 0.7;
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
 * multiplied, and the cells read and write. */
static double apart_step(const sli_step_shape *s, const rates *r, const sli_caps *caps, double scale, bool backward) {
    const double matrix = recurrent_matrix(s), bytes = matrix * (double)s->operand;
    const double read = bytes / (bytes * s->directions < l2_part * (double)caps->l2_bytes ? l2_rate : memory_rate);
    const double multiplied = 2 * matrix * fmax(fmin((double)s->B, TILE_ROWS) / r->tile, (double)s->B / r->many);
    const double cells = (double)s->B * (double)s->GH * 4 * sizeof(float) / l2_rate;
    const double products = 1 + (s->project || s->before);
    const pass_rates *pass = &r->pass[backward];
    const bool few = s->B <= FEW_ROWS;
    const double beyond = few ? (backward ? pass->product : 0) : pass->product + pass->unit * (double)s->H;
    return products * (2 * launch_us + beyond) + scale * (read + multiplied + cells);
}

static double seconds(const sli_problem *p, const sli_caps *caps) {
    const sli_step_shape s = sli_step_shape_of(p, 1);
    const rates *r = rates_of(p->dtype);
    const double multiprocessors = caps->multiprocessors > 0 ? caps->multiprocessors : FULL;
    const double scale = FULL / multiprocessors, beside = s.directions == 2 ? 1.25 : 1; /* side by side */
    const double rows = (double)s.T * (double)s.B,
                 chunks = ceil((double)s.T / sli_caps_chunk(caps, p->batch, p->steps));
    const double inputs = 2.0 * s.directions * rows * (double)s.GH * (double)s.I;
    const double over_time = 2.0 * s.directions * rows * recurrent_matrix(&s);
    double us = 0;
    for (int backward = 0; backward <= (p->train ? 1 : 0); backward++) {
        const double step = sli_step_fused(p, backward) ? fused_step(&s, r, multiprocessors, backward)
                                                        : apart_step(&s, r, caps, scale, backward);
        const bool again = backward && s.recompute; /* the gates: both products over time and a launch */
        const double flops = (again ? inputs + over_time : 0) + (backward ? 2 * inputs + over_time : inputs);
        us += (again ? chunks * recompute_us : 0) + call_us + chunks * chunk_us[backward] +
              (backward ? sums_us * rows : 0) + (double)s.T * beside * step + scale * flops / r->flops;
    }
    return 1e-6 * us;
}

#define STEP_ROW(OP)                                                                                                \
    {                                                                                                               \
        .name = "cuda:step", .op = OP, .device = SLI_DEVICE_CUDA, .eligible = eligible, .cost = cost, .book = book, \
        .seconds = seconds, .pack = sli_cuda_step_pack, .forward = sli_cuda_step_forward,                           \
        .backward = sli_cuda_step_backward,                                                                         \
        .backward_reads_in = 1u << SLI_RNN_X | 1u << SLI_RNN_LENGTHS | 1u << SLI_RNN_MASK, .takes_recompute = true  \
    }

const sli_kernel sli_cuda_lstm = STEP_ROW(SLI_OP_LSTM);
const sli_kernel sli_cuda_gru = STEP_ROW(SLI_OP_GRU);
const sli_kernel sli_cuda_rnn = STEP_ROW(SLI_OP_RNN);
