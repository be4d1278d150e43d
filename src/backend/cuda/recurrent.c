/* cuda:step, libsluice's side: the recurrent row that takes every cell and option: what it takes, costs and books. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/plugin.h"
#include "backend/cuda/step_cost.h"

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
    cost->flops = passes * rows * (2 * row_products(&s) + cells);
    cost->bytes = passes * (rows * sli_step_row_bytes(&s, 5) + s.directions * weights * (double)s.operand);
}

static void book(const sli_problem *p, const sli_caps *caps, int chunk, sli_booking *booking) {
    *booking =
        (sli_booking){.saved = p->train ? sli_step_layout_history(p, chunk).total : 0,
                      .scratch_forward = sli_step_layout_forward(p, caps, chunk, true).total,
                      .scratch_backward = p->train ? sli_step_layout_backward(p, caps, chunk, chunk, true).total : 0,
                      .packed = sli_step_layout_packed(p, caps).total};
}

static double seconds(const sli_problem *p, const sli_caps *caps) {
    const int chunk = sli_caps_chunk(caps, p->batch, p->steps);
    return sli_step_pass_seconds(p, caps, chunk, false) + (p->train ? sli_step_pass_seconds(p, caps, chunk, true) : 0);
}

static sl_status ready(const sli_problem *p, const sli_caps *caps, const sli_calls *calls, bool *refused,
                       sli_why *why) {
    return sli_cuda_get(NULL)->step_ready(p, caps, calls, refused, why);
}

/* Which launches a step of a pass is. */
static void describe_pass(const sli_problem *p, const sli_caps *caps, bool backward, char *text, size_t capacity) {
    const bool fused = sli_step_fused(p, backward);
    const sli_step_wide wide = fused ? (sli_step_wide){0} : sli_step_wide_of(p, caps, backward);
    const int tiled = backward || fused ? 0 : sli_step_tiled(p, caps);
    if (wide.rows > 0)
        snprintf(text, capacity,
                 "%s a product of our own, %d x %d blocks of %d by %d rows, weights of %d bits, and its cells",
                 wide.runs ? "many steps in one launch, each" : "a step is", wide.blocks * wide.pieces, wide.tiles,
                 SLI_STEP_WIDE_TALL, wide.rows, wide.narrow ? 16 : 20);
    else
        snprintf(text, capacity, "a step is %s",
                 fused       ? "one launch"
                 : tiled > 0 ? "one launch of tiles"
                             : "a product of cuBLASLt and its cells");
}

static void describe(const sli_problem *p, const sli_caps *caps, char *text, size_t capacity) {
    char forward[160], backward[160] = "";
    describe_pass(p, caps, false, forward, sizeof forward);
    if (p->train) describe_pass(p, caps, true, backward, sizeof backward);
    const bool same = !p->train || strcmp(forward, backward) == 0;
    snprintf(text, capacity, same ? "%s" : "forward: %s; backward: %s", forward, backward);
}

#define STEP_ROW(OP)                                                                                                \
    {                                                                                                               \
        .name = "cuda:step", .op = OP, .device = SLI_DEVICE_CUDA, .eligible = eligible, .cost = cost, .book = book, \
        .seconds = seconds, .describe = describe, .ready = ready, .pack = sli_cuda_step_pack,                       \
        .forward = sli_cuda_step_forward, .backward = sli_cuda_step_backward,                                       \
        .backward_reads_in = 1u << SLI_RNN_X | 1u << SLI_RNN_LENGTHS | 1u << SLI_RNN_MASK, .takes_recompute = true, \
        .takes_narrow = true, .takes_narrow_io = true, .null_states = true, .writes_fresh = true                    \
    }

const sli_kernel sli_cuda_lstm = STEP_ROW(SLI_OP_LSTM);
const sli_kernel sli_cuda_gru = STEP_ROW(SLI_OP_GRU);
const sli_kernel sli_cuda_rnn = STEP_ROW(SLI_OP_RNN);
