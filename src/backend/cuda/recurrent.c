/* cuda:step, libsluice's side: the recurrent row that takes every cell and option: what it takes, costs and books. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/step_layout.h"

static bool eligible(const sli_problem *p, const sli_caps *caps, sli_why *why) {
    NEED(p->dtype != SL_F32X3, "cuda:step computes f32, tf32, bf16, f16; f32x3 products are not in this build");
    NEED(p->dtype != SL_I8, "cuda:step computes f32, tf32, bf16, f16; i8 needs quantised weights");
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
 * operands of W once and those of R in every step, writes and reads u and s, writes gates, c, h, y; backward as much twice. */
static void cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    const sli_step_shape s = sli_step_shape_of(p, 1);
    const double rows = (double)s.T * (double)s.B, passes = p->train ? 3 : 1;
    const double cells = 30.0 * s.directions * (double)s.H;
    const double weights = (double)s.GH * (double)s.I + (double)s.T * (double)s.GH * (double)s.O;
    const double moved = (double)s.I + s.directions * (5.0 * (double)s.GH + 2.0 * (double)s.H + 2.0 * (double)s.O);
    cost->flops = passes * rows * (2 * row_products(&s) + cells);
    cost->bytes = passes * (rows * moved * sizeof(float) + s.directions * weights * (double)s.operand);
}

static void book(const sli_problem *p, const sli_caps *caps, int chunk, sli_booking *booking) {
    *booking = (sli_booking){.saved = p->train ? sli_step_layout_history(p, chunk).total : 0,
                             .scratch_forward = sli_step_layout_forward(p, caps, chunk).total,
                             .scratch_backward = p->train ? sli_step_layout_backward(p, caps, chunk).total : 0,
                             .packed = sli_step_layout_packed(p).total};
}

/* ------------------------------------------------------------------------------------------------------ seconds --
 * Microseconds on 132 multiprocessors. Origin: measured on an H200 were a node of a replayed graph 0.61 us, reads from L2 5.5 MB
 * a us, from memory 4.5, and large products of 51 (f32), 354 (tf32), 700 (bf16) TFLOP/s. A dependent launch adds about 1.1
 * us, in which a short kernel fills and drains the machine; a product of few rows reaches half of the reads and a third of
 * the flops, a chunk's product two thirds. */
typedef struct rates {
    double launch, call;      /* us a dependent launch; us a call */
    double l2, memory;        /* bytes a us */
    double step_flops, flops; /* FLOP a us: a step's product, a chunk's */
} rates;

static rates rates_of(sl_dtype dtype) {
    rates r = {.launch = 1.7, .call = 12, .l2 = 2.5e6, .memory = 2.4e6, .step_flops = 16e6, .flops = 35e6};
    if (dtype == SL_TF32) r.step_flops = 120e6, r.flops = 250e6;
    if (dtype == SL_BF16 || dtype == SL_F16) r.step_flops = 240e6, r.flops = 500e6;
    return r;
}

enum { FULL = 132, FEWEST_ROWS = 64 }; /* a product takes as long as for so many rows */

/* A fused step: a dependent launch, then every block reads its weights and its rows, k elements of each, at 44 KB a us and
 * multiplies them. */
static double fused_step(const sli_step_shape *s, double multiprocessors, bool backward) {
    const double units = backward ? SLI_STEP_FUSED_BACKWARD_UNITS : SLI_STEP_FUSED_FORWARD_UNITS;
    const double rows = s->B < SLI_STEP_FUSED_ROWS ? (double)s->B : SLI_STEP_FUSED_ROWS;
    const double k = (double)(backward ? s->GH : s->O), columns = backward ? units : units * (double)s->gates;
    const double blocks = s->directions * ((double)s->H / units + 1) * ((double)s->B / SLI_STEP_FUSED_ROWS + 1);
    const double waves = blocks > multiprocessors ? blocks / multiprocessors : 1;
    const double read = (columns + rows) * k * (double)s->operand / 44e3;
    return 2.2 + waves * read;
}

/* A step of two launches, with a projection or reset before of four. */
static double apart_step(const sli_problem *p, const sli_step_shape *s, const sli_caps *caps, double scale) {
    const rates r = rates_of(p->dtype);
    const double matrix = (double)s->GH * (double)s->O + (s->project ? (double)s->O * (double)s->H : 0);
    const double bytes = matrix * (double)s->operand, rows = s->B > FEWEST_ROWS ? (double)s->B : FEWEST_ROWS;
    const double read = bytes / (bytes * s->directions < (double)caps->l2_bytes * 0.7 ? r.l2 : r.memory);
    const double multiplied = 2 * rows * matrix / r.step_flops;
    const double launches = 2 + 2 * (s->project || s->before);
    const double cells = (double)s->B * (double)s->GH * 4 * sizeof(float) / r.l2;
    return launches * r.launch + scale * (read > multiplied ? read : multiplied) + scale * cells;
}

static double seconds(const sli_problem *p, const sli_caps *caps) {
    const sli_step_shape s = sli_step_shape_of(p, 1);
    const rates r = rates_of(p->dtype);
    const double multiprocessors = caps->multiprocessors > 0 ? caps->multiprocessors : FULL;
    const double scale = FULL / multiprocessors, beside = s.directions == 2 ? 1.25 : 1; /* side by side */
    const double matrix = (double)s.GH * (double)s.O + (s.project ? (double)s.O * (double)s.H : 0);
    const double apart = apart_step(p, &s, caps, scale);
    const double forward = beside * (sli_step_fused(p, false) ? fused_step(&s, multiprocessors, false) : apart);
    const double backward = beside * (sli_step_fused(p, true) ? fused_step(&s, multiprocessors, true) : 1.1 * apart);
    const double inputs = 2.0 * s.directions * (double)s.T * (double)s.B * (double)s.GH * (double)s.I / r.flops;
    const double over_time = 2.0 * s.directions * (double)s.T * (double)s.B * matrix / r.flops;
    double us = r.call + (double)s.T * forward + scale * inputs;
    if (p->train) us += r.call + (double)s.T * backward + scale * (2 * inputs + over_time);
    return 1e-6 * us;
}

#define STEP_ROW(OP)                                                                                                \
    {                                                                                                               \
        .name = "cuda:step", .op = OP, .device = SLI_DEVICE_CUDA, .eligible = eligible, .cost = cost, .book = book, \
        .seconds = seconds, .pack = sli_cuda_step_pack, .forward = sli_cuda_step_forward,                           \
        .backward = sli_cuda_step_backward,                                                                         \
        .backward_reads_in = 1u << SLI_RNN_X | 1u << SLI_RNN_LENGTHS | 1u << SLI_RNN_MASK                           \
    }

const sli_kernel sli_cuda_lstm = STEP_ROW(SLI_OP_LSTM);
const sli_kernel sli_cuda_gru = STEP_ROW(SLI_OP_GRU);
const sli_kernel sli_cuda_rnn = STEP_ROW(SLI_OP_RNN);
