/* cuda:cluster and cuda:grid, libsluice's side: recurrent rows whose steps are computed many a launch by the persistent engine,
 * in one cluster a slice of the batch, or over the whole GPU. What they take, cost and book. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/persist_overlap.h"

/* There is a geometry; without NVRTC one of those that are built in, or the reason goes on with why it is missing. */
static bool has_geometry(const sli_problem *p, const sli_caps *caps, sli_persist_kind kind, sli_why *why) {
    sli_persist_pair pair;
    sli_why reason = {""}, missing = {""};
    int version;
    if (sli_persist_pair_of(p, (sli_planned){0}, caps, kind, &pair, &reason)) return true;
    const sli_cuda_plugin *plugin = caps->no_compiler ? sli_cuda_get(&missing) : NULL;
    NEED(plugin == NULL || plugin->compiler(&version, &missing), "%.100s: %.150s", reason.text, missing.text);
    return sli_refuse(why, "%s", reason.text);
}

static bool folds(const sli_problem *p) {
    return p->projection > 0;
}

/* A projection is folded into the recurrent weights: what acts on h of a step, between the two products, cannot be. */
static bool can_fold(const sli_problem *p, const sli_caps *caps, sli_why *why) {
    if (!folds(p)) return true;
    NEED(p->zoneout_h == 0, "folds a projection into the recurrent weights: zoneout of h lies between the two");
    NEED(!p->train || p->recurrent_dropout == 0,
         "folds a projection into the recurrent weights: recurrent dropout lies between the two");
    NEED(!p->narrow_io, "folds a projection into the recurrent weights, which makes y, and takes dy, in f32");
    NEED(!p->recompute, "folds a projection into the recurrent weights: gates are kept, not recomputed");
    NEED(!caps->recomputes,
         "carries what a projection is made of over the whole sequence, which cannot be cut into segments");
    return true;
}

static bool eligible(const sli_problem *p, const sli_caps *caps, sli_persist_kind kind, sli_why *why) {
    if (!sli_cuda_dtype(p, why)) return false;
    NEED(kind == SLI_PERSIST_KIND_GRID || caps->compute_capability >= 90,
         "needs clusters of thread blocks, which GPUs have from sm_90 on; this is sm_%d", caps->compute_capability);
    if (!can_fold(p, caps, why)) return false;
    NEED(p->layers <= 1, "takes a stack of %d apart: layers run one after the other", p->layers);
    NEED(p->steps > 0, "computes steps of time, there are none");
    NEED(!(p->bidirectional && caps->recomputes),
         "runs both directions over the whole sequence, which cannot be cut into segments");
    NEED((double)p->batch * fmax(sli_op_gates(p->op), sli_problem_directions(p)) * (p->units + 8.0) < 2147483648.0,
         "counts the values of a step in 32 bits: a batch of %d times %d units has more", p->batch, p->units);
    return has_geometry(p, caps, kind, why);
}

/* Multiply-adds of one row of one step, in both directions: of the input side, of the recurrent side, of a projection. */
static double input_products(const sli_step_shape *s) {
    return (double)s->directions * (double)s->GH * (double)s->I;
}
static double recurrent_products(const sli_step_shape *s) {
    return (double)s->directions * (double)s->GH * (double)s->H;
}
static double projected_products(const sli_step_shape *s) {
    return s->project ? (double)s->directions * (double)s->H * (double)s->O : 0;
}

/* 2 flops a multiply-add; backward does the products twice. 30 flops for a unit's gates. Bytes: forward reads x and all weights
 * once, writes and reads u, writes gates, c, h, y; backward as much twice, and once more where gates are recomputed. */
static void cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    const sli_step_shape s = sli_step_shape_of(p, 1);
    const double rows = (double)s.T * (double)s.B, passes = !p->train ? 1 : s.recompute ? 4 : 3;
    const double products = input_products(&s) + recurrent_products(&s) + projected_products(&s),
                 cells = 30.0 * s.directions * (double)s.H;
    cost->flops = passes * rows * (2 * products + cells);
    cost->bytes = passes * (rows * sli_step_row_bytes(&s, 3) + products * (double)s.operand);
}

static void book(const sli_problem *p, const sli_caps *caps, int chunk, sli_persist_kind kind, sli_booking *booking) {
    sli_persist_pair pair;
    *booking = (sli_booking){0};
    if (!sli_persist_pair_of(p, (sli_planned){0}, caps, kind, &pair, NULL)) return; /* not eligible either */
    booking->saved = p->train ? sli_persist_layout_saved(p, &pair, chunk).total : 0;
    booking->scratch_forward = sli_persist_layout_forward(p, caps, &pair, chunk).total;
    booking->scratch_backward = p->train ? sli_persist_layout_backward(p, caps, &pair, chunk).total : 0;
    booking->packed = sli_persist_layout_packed(p, &pair).total;
}

static sl_status ready(const sli_problem *p, const sli_caps *caps, sli_persist_kind kind, const sli_calls *calls,
                       bool *refused, sli_why *why) {
    return sli_cuda_get(NULL)->persist_ready(p, (sli_planned){0}, caps, (int)kind, calls, refused, why);
}

/* The plan's chunk; of a wave that of its layers, longer by what the last one lags. */
static int chunk_of(const sli_problem *p, const sli_caps *caps) {
    const int lag = p->wave > 0 ? p->wave - 1 : 0;
    return sli_caps_chunk(caps, p->batch, p->steps - lag) + lag;
}

static double seconds(const sli_problem *p, const sli_caps *caps, sli_persist_kind kind) {
    const int chunk = chunk_of(p, caps);
    sli_persist_pair pair;
    double us = 0;
    if (!sli_persist_pair_of(p, (sli_planned){0}, caps, kind, &pair, NULL)) return -1;
    for (int backward = 0; backward <= (p->train ? 1 : 0); backward++)
        us += sli_persist_pass_of(p, caps, &pair, chunk, backward).us;
    return 1e-6 * us;
}

/* How a pass is cut, and what runs beside it. */
static void describe_pass(const sli_problem *p, const sli_caps *caps, const sli_persist_pair *pair, bool backward,
                          char *text, size_t capacity) {
    const int chunk = chunk_of(p, caps);
    if (backward && pair->backward_in_steps) {
        snprintf(text, capacity, "%s, as cuda:step, which is predicted to be faster",
                 sli_step_wide_of(p, caps, true).runs ? "many steps in one launch" : "step by step");
        return;
    }
    const sli_persist_pass pass = sli_persist_pass_of(p, caps, pair, chunk, backward);
    sli_persist_describe(backward ? &pair->backward : &pair->forward, text, capacity);
    const size_t length = strlen(text);
    if (pass.pieces > 1)
        snprintf(text + length, capacity - length, ", in %d pieces with products beside them on %d multiprocessors",
                 pass.pieces, pass.idle);
}

static void describe(const sli_problem *p, const sli_caps *caps, sli_persist_kind kind, char *text, size_t capacity) {
    sli_persist_pair pair;
    char forward[240], backward[240] = "";
    if (!sli_persist_pair_of(p, (sli_planned){0}, caps, kind, &pair, NULL)) return;
    describe_pass(p, caps, &pair, false, forward, sizeof forward);
    if (p->train) describe_pass(p, caps, &pair, true, backward, sizeof backward);
    snprintf(text, capacity, "%s%s%s%s%s", p->train ? "forward: " : "", forward, p->train ? "; backward: " : "",
             backward, folds(p) ? "; the projection is folded into the recurrent weights" : "");
}

/* FORWARD or FORWARD/BACKWARD. */
static bool cut(const sli_problem *p, const sli_caps *caps, sli_persist_kind kind, char *name, size_t capacity) {
    sli_persist_pair pair;
    char forward[SLI_CUT_NAME / 2], backward[SLI_CUT_NAME / 2] = "steps";
    if ((!p->train && sli_persist_place(p, true) > 0) ||
        !sli_persist_pair_of(p, (sli_planned){0}, caps, kind, &pair, NULL))
        return false;
    sli_persist_name(&pair.forward, forward, sizeof forward);
    if (p->train && !pair.backward_in_steps) sli_persist_name(&pair.backward, backward, sizeof backward);
    const bool through = kind == SLI_PERSIST_KIND_GRID && p->train && pair.backward.gather == SLI_PERSIST_LOCAL;
    const size_t length = strlen(backward); /* a cluster's name may be that of a cut of the grid */
    if (through) snprintf(backward + length, sizeof backward - length, ",c");
    snprintf(name, capacity, p->train ? "%s/%s" : "%s", forward, backward);
    return true;
}

/* Of one direction: beside both of them products of the layer itself are computed. */
static bool backward_pass(const sli_problem *p, const sli_caps *caps, sli_persist_kind kind, sli_persist_pair *pair,
                          sli_persist_pass *pass) {
    if (folds(p) || p->bidirectional) return false; /* folded: its sums are not late */
    if (!sli_persist_pair_of(p, (sli_planned){0}, caps, kind, pair, NULL) || pair->backward_in_steps) return false;
    *pass = sli_persist_pass_of(p, caps, pair, sli_caps_chunk(caps, p->batch, p->steps), true);
    return true;
}

/* Pieces of time fill it, unless more is won by the sums of a layer above like this one: two of its three products. In 16 bits less is won by
 * those: four layers of 256 units, 64 rows, 300 steps, of which pieces win 0.5, took 2.3% longer with late sums, three of 150 steps (0.4) as long, with 16
 * rows (0.3) 1% less; in f32 (0.5) 4% less (H200, rest_h200_2026-11-24.txt). */
static double idle(const sli_problem *p, const sli_caps *caps, sli_persist_kind kind) {
    sli_persist_pair pair;
    sli_persist_pass pass;
    if (!backward_pass(p, caps, kind, &pair, &pass)) return 0;
    const double small = pass.launches_us + pass.products_us, won = small + pass.steps_us - pass.us;
    const double part = p->dtype == SL_BF16 || p->dtype == SL_F16 ? 0.45 : 2.0 / 3;
    const int all = caps->multiprocessors > 0 ? caps->multiprocessors : sli_persist_ctas(&pair.backward) + pass.idle;
    return pass.pieces > 1 && won >= part * small ? 0 : (double)pass.idle / all;
}
static bool fills(const sli_problem *p, const sli_caps *caps, sli_persist_kind kind) {
    sli_persist_pair pair;
    sli_persist_pass pass;
    return backward_pass(p, caps, kind, &pair, &pass) && pass.pieces > 1;
}

/* With the launch that makes x an operand, of one direction; or with the first one's zeros, or product, where entering states need no launch before it (kernels/persist_host.cu:
 * of geometries that leave no multiprocessor they do). */
static bool begins_alone(const sli_problem *p) {
    const sli_step_shape s = sli_step_shape_of(p, 1);
    return !p->bidirectional && (s.copy_x || (!s.drop && !s.project && s.lag == 0 && (!s.train || s.H % 4 == 0)));
}

/* W in 16 bits, whole fours, of one direction. */
static bool copy_of(const sli_problem *p, const sli_caps *caps, sli_persist_kind kind, sli_copy *copy) {
    sli_persist_pair pair;
    const sli_step_shape s = sli_step_shape_of(p, 1);
    if (!s.narrow || s.I % 4 != 0 || s.directions > 1 ||
        !sli_persist_pair_of(p, (sli_planned){0}, caps, kind, &pair, NULL))
        return false;
    *copy = (sli_copy){.at = sli_persist_layout_packed(p, &pair).step.kernel, .columns = s.I, .row = s.xs};
    return true;
}

#define PERSIST_ROWS(NAME, KIND)                                                                                     \
    static bool NAME##_eligible(const sli_problem *p, const sli_caps *caps, sli_why *why) {                          \
        return eligible(p, caps, KIND, why);                                                                         \
    }                                                                                                                \
    static void NAME##_book(const sli_problem *p, const sli_caps *caps, int chunk, sli_booking *booking) {           \
        book(p, caps, chunk, KIND, booking);                                                                         \
    }                                                                                                                \
    static sl_status NAME##_ready(const sli_problem *p, const sli_caps *caps, const sli_calls *calls, bool *refused, \
                                  sli_why *why) {                                                                    \
        return ready(p, caps, KIND, calls, refused, why);                                                            \
    }                                                                                                                \
    static double NAME##_seconds(const sli_problem *p, const sli_caps *caps) {                                       \
        return seconds(p, caps, KIND);                                                                               \
    }                                                                                                                \
    static void NAME##_describe(const sli_problem *p, const sli_caps *caps, char *text, size_t capacity) {           \
        describe(p, caps, KIND, text, capacity);                                                                     \
    }                                                                                                                \
    static double NAME##_idle(const sli_problem *p, const sli_caps *caps) {                                          \
        return idle(p, caps, KIND);                                                                                  \
    }                                                                                                                \
    static bool NAME##_fills(const sli_problem *p, const sli_caps *caps) {                                           \
        return fills(p, caps, KIND);                                                                                 \
    }                                                                                                                \
    static bool NAME##_copy_of(const sli_problem *p, const sli_caps *caps, sli_copy *copy) {                         \
        return copy_of(p, caps, KIND, copy);                                                                         \
    }                                                                                                                \
    static bool NAME##_cut(const sli_problem *p, const sli_caps *caps, char *name, size_t capacity) {                \
        return cut(p, caps, KIND, name, capacity);                                                                   \
    }
#define PERSIST_ROW(NAME, OP)                                                                                         \
    {                                                                                                                 \
        .name = "cuda:" #NAME, .op = OP, .device = SLI_DEVICE_CUDA, .eligible = NAME##_eligible, .cost = cost,        \
        .book = NAME##_book, .ready = NAME##_ready, .seconds = NAME##_seconds, .cut = NAME##_cut,                     \
        .describe = NAME##_describe, .pack = sli_cuda_##NAME##_pack, .forward = sli_cuda_##NAME##_forward,            \
        .backward = sli_cuda_##NAME##_backward,                                                                       \
        .backward_reads_in = 1u << SLI_RNN_X | 1u << SLI_RNN_LENGTHS | 1u << SLI_RNN_MASK, .takes_recompute = true,   \
        .takes_narrow = true, .takes_narrow_io = true, .sums_late = true, .idle = NAME##_idle, .fills = NAME##_fills, \
        .begins_alone = begins_alone, .null_states = true, .writes_fresh = true, .folds = folds,                      \
        .copy_of = NAME##_copy_of                                                                                     \
    }

PERSIST_ROWS(cluster, SLI_PERSIST_KIND_CLUSTER)
PERSIST_ROWS(grid, SLI_PERSIST_KIND_GRID)

const sli_kernel sli_cuda_lstm_cluster = PERSIST_ROW(cluster, SLI_OP_LSTM);
const sli_kernel sli_cuda_gru_cluster = PERSIST_ROW(cluster, SLI_OP_GRU);
const sli_kernel sli_cuda_rnn_cluster = PERSIST_ROW(cluster, SLI_OP_RNN);
const sli_kernel sli_cuda_lstm_grid = PERSIST_ROW(grid, SLI_OP_LSTM);
const sli_kernel sli_cuda_gru_grid = PERSIST_ROW(grid, SLI_OP_GRU);
const sli_kernel sli_cuda_rnn_grid = PERSIST_ROW(grid, SLI_OP_RNN);
