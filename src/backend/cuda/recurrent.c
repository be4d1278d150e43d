/* cuda:step, libsluice's side: the recurrent row that takes every cell and option: what it takes, costs and books. */
#include <math.h>

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
 * A call: us = call + chunks * (launches of its products) + steps * step + products over time; training adds as much for
 * backward. Origin of all constants: medians of replayed CUDA graphs on one H200 (132 multiprocessors), 2026-11-21, made by
 * `sluice bench --require cuda:step`: LSTM and GRU of 128 to 1500 units, 1 to 64 rows, fused steps and steps apart. Times are us,
 * rates bytes or FLOP a us, of the whole machine. The middle prediction is 5-10% off. */
typedef struct pass_rates {
    double product, unit; /* what a step's product takes beyond launch and work; and a unit: its sums are a chain */
    double block;         /* a fused step: bytes a us that one block reads and multiplies */
} pass_rates;
typedef struct rates {
    double step_flops, flops; /* a step's product, products over time */
    double fused;             /* launch of a fused step */
    double chunk[2];          /* launches of a chunk's products, forward and backward */
    pass_rates pass[2];       /* forward, backward */
} rates;

enum { FULL = 132, FEW_ROWS = 4 }; /* forward has a kernel for few rows */
static const double call_us = 10, launch_us = 1.7, l2_rate = 5.0e6, memory_rate = 4.0e6, l2_part = 0.7;
static const double wave = 0.3; /* blocks beyond one a multiprocessor: they share it */

static const rates rates_f32 = {42e6, 43e6, 0, {3, 45}, {{2.4, 7.0e-3, 0}, {3.9, 0.7e-3, 0}}};
static const rates rates_tf32 = {1e9, 300e6, 1.3, {3, 5}, {{2.3, 2.2e-3, 22e3}, {4.6, 2.2e-3, 31e3}}};
static const rates rates_16 = {1e9, 530e6, 2.2, {3, 5}, {{1.3, 0.2e-3, 27e3}, {2.3, 2.9e-3, 32e3}}};

static const rates *rates_of(sl_dtype dtype) {
    return dtype == SL_F32 ? &rates_f32 : dtype == SL_TF32 ? &rates_tf32 : &rates_16;
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
    return r->fused + (1 + wave * (waves - 1)) * (columns + rows) * k * (double)s->operand / r->pass[backward].block;
}

/* A step of two launches, with a projection or reset before of four: the weights are read, from L2 where they fit, and
 * multiplied, and the cells read and write. */
static double apart_step(const sli_step_shape *s, const rates *r, const sli_caps *caps, double scale, bool backward) {
    const double matrix = recurrent_matrix(s), bytes = matrix * (double)s->operand;
    const double read = bytes / (bytes * s->directions < l2_part * (double)caps->l2_bytes ? l2_rate : memory_rate);
    const double multiplied = 2 * (double)s->B * matrix / r->step_flops;
    const double cells = (double)s->B * (double)s->GH * 4 * sizeof(float) / l2_rate;
    const double products = 1 + (s->project || s->before);
    const pass_rates *pass = &r->pass[backward];
    const double beyond = s->B <= FEW_ROWS && !backward ? 0 : pass->product + pass->unit * (double)s->H;
    return products * (2 * launch_us + beyond) + scale * (read + multiplied + cells);
}

static double seconds(const sli_problem *p, const sli_caps *caps) {
    const sli_step_shape s = sli_step_shape_of(p, 1);
    const rates *r = rates_of(p->dtype);
    const double multiprocessors = caps->multiprocessors > 0 ? caps->multiprocessors : FULL;
    const double scale = FULL / multiprocessors, beside = s.directions == 2 ? 1.25 : 1; /* side by side */
    const double rows = (double)s.T * (double)s.B, chunks = ceil((double)s.T / sli_chunk_steps(p->batch, p->steps));
    const double inputs = 2.0 * s.directions * rows * (double)s.GH * (double)s.I;
    const double over_time = 2.0 * s.directions * rows * recurrent_matrix(&s);
    double us = 0;
    for (int backward = 0; backward <= (p->train ? 1 : 0); backward++) {
        const double step = sli_step_fused(p, backward) ? fused_step(&s, r, multiprocessors, backward)
                                                        : apart_step(&s, r, caps, scale, backward);
        const double flops = backward ? 2 * inputs + over_time : inputs;
        us += call_us + chunks * r->chunk[backward] + (double)s.T * beside * step + scale * flops / r->flops;
    }
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
