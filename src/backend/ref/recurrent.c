/* Reference rows of the recurrent layers; the mathematics is in recurrent_body.h. */
#include <math.h>
#include "ref_internal.h"

/* The local step that is processed s-th. */
static int step_at(const sli_call *call, int s) {
    return call->problem.reverse ? sli_ref_steps(&call->problem) - 1 - s : s;
}

static sl_activation cell_activation(const sli_problem *p) {
    return p->act == SL_ACT_DEFAULT ? SL_ACT_TANH : p->act;
}

static sl_activation gate_activation(const sli_problem *p) {
    return p->recurrent_act == SL_ACT_DEFAULT ? SL_ACT_SIGMOID : p->recurrent_act;
}

/* Whether a masked step's output is the carried h: asked for, and some step of the sequence was valid before it in the order
 * of processing (until then it is zeros, whatever the initial state). A byte mask is one array [total_steps][b] of which the
 * call sees its own part: the rows of steps before t0 lie at negative offsets, those after the segment behind it. */
static bool repeats_output(const sli_call *call, int t, int row) {
    if (!call->problem.masked_repeat) return false;
    if (call->problem.reverse) {
        for (int later = call->total_steps - 1 - call->t0; later > t; later--)
            if (sli_ref_valid(call, later, row)) return true;
        return false;
    }
    for (int earlier = -call->t0; earlier < t; earlier++)
        if (sli_ref_valid(call, earlier, row)) return true;
    return false;
}

/* What h'[row][j] is multiplied with before the matrix products: 0 or 1/(1-p), the same for every step and gate. */
static double recurrent_factor(const sli_call *call, int row, int j) {
    double p = call->problem.recurrent_dropout;
    if (!(p > 0) || !call->training) return 1;
    sli_rng rng = sli_call_rng(call, SLI_PURPOSE_RECURRENT_DROPOUT);
    uint64_t element = (uint64_t)row * (uint64_t)sli_problem_output(&call->problem) + (uint64_t)j;
    return sli_rng_word(&rng, element) < sli_drop_threshold(p) ? 0 : 1 / (1 - p);
}

/* Weight of the old value: drawn 1 (kept) or 0 in training, its expectation p otherwise. Element of [T][B][width]. */
static double zoneout_weight(const sli_call *call, enum sli_purpose purpose, double p, int t, int row, int j,
                             int width) {
    if (!(p > 0)) return 0;
    if (!call->training) return p;
    sli_rng rng = sli_call_rng(call, purpose);
    uint64_t step_row = (uint64_t)(call->t0 + t) * (uint64_t)call->problem.batch + (uint64_t)row;
    return sli_rng_word(&rng, step_row * (uint64_t)width + (uint64_t)j) < sli_drop_threshold(p) ? 1 : 0;
}

/* Numbers saved per step and row; the layout stands above each cell in recurrent_body.h. */
static size_t record_reals(const sli_problem *p) {
    size_t H = (size_t)p->units;
    if (p->op == SLI_OP_LSTM) return (size_t)sli_problem_output(p) + 6 * H;
    return p->op == SLI_OP_GRU ? 5 * H : 2 * H;
}

#include "real_f32.h"
#include "activation_body.h"
#include "recurrent_body.h"
#include "real_f64.h"
#include "activation_body.h"
#include "recurrent_body.h"

SLI_REF_DISPATCH(lstm_forward)
SLI_REF_DISPATCH(lstm_backward)
SLI_REF_DISPATCH(gru_forward)
SLI_REF_DISPATCH(gru_backward)
SLI_REF_DISPATCH(rnn_forward)
SLI_REF_DISPATCH(rnn_backward)

static void recurrent_cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    double rows = (double)sli_ref_rows(p), G = sli_op_gates(p->op), H = p->units, I = p->inputs,
           O = sli_problem_output(p);
    sli_ref_cost(p, 2 * rows * (G * H * (I + O) + H * p->projection),
                 rows * (I + O) + rows * G * H * (I + O) + rows * H * p->projection, cost);
}

/* Scratch: the state [b][O], [b][H] and the vectors of one row; bounds of what the bodies lay out. */
static void recurrent_book(const sli_problem *p, const sli_caps *caps, int chunk, sli_booking *booking) {
    (void)caps;
    (void)chunk;
    size_t B = (size_t)p->batch, H = (size_t)p->units, O = (size_t)sli_problem_output(p);
    size_t state = B * O + (p->op == SLI_OP_LSTM ? B * H : 0);
    booking->scratch_forward = booking->scratch_backward = (state + 10 * H + 3 * O) * sli_ref_bytes(p);
    booking->saved = p->train ? sli_ref_rows(p) * record_reals(p) * sli_ref_bytes(p) : 0;
    booking->packed = 0;
}

enum { READS_IN = 1u << SLI_RNN_X | 1u << SLI_RNN_LENGTHS | 1u << SLI_RNN_MASK };

const sli_kernel sli_ref_lstm = {.name = "ref",
                                 .op = SLI_OP_LSTM,
                                 .device = SLI_DEVICE_CPU,
                                 .eligible = sli_ref_eligible,
                                 .cost = recurrent_cost,
                                 .book = recurrent_book,
                                 .forward = lstm_forward,
                                 .backward = lstm_backward,
                                 .takes_recompute = true,
                                 .backward_reads_in = READS_IN};
const sli_kernel sli_ref_gru = {.name = "ref",
                                .op = SLI_OP_GRU,
                                .device = SLI_DEVICE_CPU,
                                .eligible = sli_ref_eligible,
                                .cost = recurrent_cost,
                                .book = recurrent_book,
                                .forward = gru_forward,
                                .backward = gru_backward,
                                .takes_recompute = true,
                                .backward_reads_in = READS_IN};
const sli_kernel sli_ref_rnn = {.name = "ref",
                                .op = SLI_OP_RNN,
                                .device = SLI_DEVICE_CPU,
                                .eligible = sli_ref_eligible,
                                .cost = recurrent_cost,
                                .book = recurrent_book,
                                .forward = rnn_forward,
                                .backward = rnn_backward,
                                .takes_recompute = true,
                                .backward_reads_in = READS_IN};
