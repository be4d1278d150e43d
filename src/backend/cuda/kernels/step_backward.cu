/* cuda:step, backward, chunks in the opposite order: gates that were not kept; per step the cell's gradient and the product with R; then the sums over
 * the chunk's time as products and column sums that add to the gradients, or write them where they are fresh, and d x. */
#include "backend/cuda/kernels/step_run_host.cuh"
#include "cell/activations.h"

/* The gradient that a step begins with: what the leaving states' gradients are, then what the step after it left. */
typedef struct step_gradient {
    const float *pw, *dc;
    step_sums dp;
    const void *dr; /* fused steps: dp is still to be multiplied from this */
} step_gradient;

static float *work_floats(const step_way *way, size_t offset, int t, int64_t row) {
    return (float *)(way->work + offset) + (size_t)(t - way->c0) * (size_t)(way->s.B * row);
}

static void *work_operand(const step_way *way, size_t offset, int t, int64_t row) {
    return way->work + offset + (size_t)(t - way->c0) * (size_t)(way->s.B * row) * way->s.operand;
}

static step_backward_args args_at(const step_way *way, int t, const step_gradient *g) {
    const sli_step_shape *s = &way->s;
    const sli_step_scratch *at = &way->scratch;
    const int from = sli_step_entering(way, t);
    step_backward_args a = {};
    a.k = sli_step_common_at(way, t);
    a.gates = sli_step_gates(way, t);
    a.h_from = sli_step_hidden(way, s->gru ? from : 0, &a.h_from_row); /* the others' cells do not read h' */
    if (way->dy) a.dy = sli_step_io(way, way->dy, t * s->B * way->y_row);
    a.dy_row = way->y_row;
    a.pw_from = g->pw;
    a.dp = g->dp;
    a.dz = work_operand(way, at->dz, t, s->zs);
    if (way->wide.rows > 0) a.wide = sli_step_wide_place(way);
    if (s->pointwise) a.pw_to = (float *)(way->work + at->pw);
    if (s->lstm) {
        a.c_from = sli_step_cell(way, from);
        a.v = s->keep_v ? sli_step_v(way, t) : sli_step_cell(way, sli_step_leaving(way, t));
        a.dc_from = g->dc;
        a.dc_to = (float *)(way->work + at->dc);
        if (way->call->problem.peephole) a.dpeep = work_floats(way, at->dpeep, t, 3 * s->H);
    }
    if (s->gru && !s->before) {
        a.sn = sli_step_sn(way, t);
        a.dr = work_operand(way, at->dr, t, s->zs);
    }
    if (s->project) {
        a.dq = work_operand(way, at->dq, t, s->hs);
        a.operand_m = work_operand(way, at->m, t, s->ms);
    }
    if (s->before) a.operand_m = work_operand(way, at->resets, t, s->hs);
    if (s->project || s->before) a.dm = (const float *)(way->work + at->dm);
    return a;
}

/* The products of a step give whole padded rows: fast kernels want them, and the weights' padding is zeros. */
/* dp[B][hs] = dr R over gates [0, gates); all of them: over the padded row. Cut in pieces, which the cells add. */
static step_sums recurrent_product(const step_way *way, const void *dr) {
    const sli_step_shape *s = &way->s;
    if (way->wide.rows > 0)
        return sli_step_wide_multiply(way, (float *)(way->work + way->scratch.dp), s->hs, way->weights + way->packed.wide_backward, true);
    sli_cuda_product product = sli_step_product(way, s->B, s->hs, s->before ? 2 * s->H : s->zs);
    product.a = sli_step_matrix(dr, s->zs, false);
    product.b = sli_step_matrix(sli_step_recurrent(way), s->hs, false);
    product.d = (float *)(way->work + way->scratch.dp);
    product.d_row = s->hs;
    product.pieces = way->scratch.dp_pieces;
    product.d_apart = s->B * s->hs;
    sli_cuda_multiply(way->queue, way->stream, &product);
    return {(const float *)product.d, product.d_apart, product.pieces};
}

/* Reset before: e[B][ms] = dz_n R_n; ms = hs without a projection */
static void reset_product(const step_way *way, const void *dz) {
    const sli_step_shape *s = &way->s;
    sli_cuda_product product = sli_step_product(way, s->B, s->ms, s->H);
    product.a = sli_step_matrix(sli_step_offset(way, dz, 2 * s->H), s->zs, false);
    product.b = sli_step_matrix(sli_step_offset(way, sli_step_recurrent(way), 2 * s->H * s->hs), s->hs, false);
    product.d = (float *)(way->work + way->scratch.dm);
    product.d_row = s->ms;
    sli_cuda_multiply(way->queue, way->stream, &product);
}

/* dm[B][ms] = dq W_p */
static void projection_product(const step_way *way, const void *dq) {
    const sli_step_shape *s = &way->s;
    sli_cuda_product product = sli_step_product(way, s->B, s->ms, s->O);
    product.a = sli_step_matrix(dq, s->hs, false);
    product.b = sli_step_matrix(sli_step_projection(way), s->ms, false);
    product.d = (float *)(way->work + way->scratch.dm);
    product.d_row = s->ms;
    sli_cuda_multiply(way->queue, way->stream, &product);
}

/* The last step of a chunk in order of processing is followed by its product, so that the chunk's dr may go. */
static void fused_step(const step_way *way, const step_backward_args *a, bool last, step_gradient *g) {
    float *dp = (float *)(way->work + way->scratch.dp);
    sli_step_fused_backward(way, a, g->dr, NULL, g->dr != NULL);
    g->pw = a->pw_to;
    g->dc = a->dc_to;
    g->dr = a->dr ? a->dr : a->dz;
    if (!last) return;
    sli_step_fused_backward(way, a, g->dr, dp, true);
    g->dp = {dp, 0, 1};
    g->dr = NULL;
}

/* Nothing comes after the call's last step: its product gives d h0, if anybody wants it. */
static bool ends_with(const step_way *way, int t) {
    return t == (way->reverse ? (int)way->s.T - 1 : 0) && !sli_step_gives_states(way);
}

/* The chunk's steps, many a launch. */
static void backward_runs(step_way *way, step_gradient *g) {
    for (int left = way->c1 - way->c0; left > 0 && !sli_cuda_failed(way->queue);) {
        step_backward_run run;
        const int count = left < SLI_STEP_RUN_STEPS ? left : SLI_STEP_RUN_STEPS;
        for (int i = 0; i < count; i++) {
            run.step[i] = args_at(way, sli_step_at(way, left - 1 - i), g);
            g->pw = run.step[i].pw_to;
            g->dc = run.step[i].dc_to;
        }
        left -= count;
        g->dp = sli_step_run_backward(way, &run, count, left == 0 && ends_with(way, sli_step_at(way, 0)));
    }
}

static void backward_step(const step_way *way, int t, step_gradient *g) {
    const sli_step_shape *s = &way->s;
    const step_backward_args a = args_at(way, t, g);
    const bool ends = ends_with(way, t);
    if (way->fused) {
        fused_step(way, &a, t == sli_step_at(way, 0) && !ends, g);
        return;
    }
    const bool recomputed =
        s->recompute && t == sli_step_at(way, way->c1 - way->c0 - 1); /* gates, by the launch before */
    const bool after_product = g->dp.data != NULL && !recomputed;
    if (s->lstm) {
        if (s->project) {
            sli_step_project_backward(way, &a, after_product);
            projection_product(way, a.dq);
        }
        sli_step_lstm_backward(way, &a, s->project || after_product);
    } else if (s->gru) {
        sli_step_gru_backward(way, &a, after_product);
        if (s->before) {
            reset_product(way, a.dz);
            sli_step_gru_reset_backward(way, &a, true);
        }
    } else {
        sli_step_rnn_backward(way, &a, after_product);
    }
    if (!ends) g->dp = recurrent_product(way, a.dr ? a.dr : a.dz);
    g->pw = a.pw_to;
    g->dc = a.dc_to;
}

/* ---------------------------------------------------------------------------------------- sums over the chunk -- */
static void set_pad(const step_way *way, sli_cuda_product *product) {
    if (way->scratch.pad_bytes == 0) return;
    product->pad = way->work + way->scratch.pad;
    product->pad_bytes = way->scratch.pad_bytes;
}

static int64_t rows_of(const step_way *way) {
    return (int64_t)(way->c1 - way->c0) * way->s.B;
}

/* The operand d h' of the chunk's steps, [rows][hs]: from the lowest slot that one of them enters from. */
static const void *entering_h(const step_way *way) {
    return sli_step_operand_h(way, way->reverse ? way->c0 + 1 : way->c0);
}

bool sli_step_transposes(const step_way *way) {
    const sli_caps *caps = sli_cuda_caps_of(way->queue);
    return sli_step_transpose_gain(&way->s, way->call->problem.dtype, caps, rows_of(way)) > 0;
}

void sli_step_transpose(const step_way *way) {
    const sli_step_shape *s = &way->s;
    const sli_step_scratch *at = &way->scratch;
    const int64_t rows = rows_of(way), row = sli_cuda_transposed_row(rows);
    const bool kernel = way->d_param[SLI_RNN_KERNEL], recurrent = way->d_param[SLI_RNN_RECURRENT];
    const struct {
        bool wanted;
        const void *from;
        int64_t from_row, columns, lines;
        size_t to;
    } operands[SLI_CUDA_TRANSPOSITIONS] = {
        {kernel || (recurrent && !s->gru), way->work + at->dz, s->zs, s->GH, s->GH, at->dz_t},
        {recurrent && s->gru, way->work + at->dr, s->zs, s->GH, s->GH, at->dr_t},
        {kernel, sli_step_io(way, way->x, way->c0 * s->B * s->I), s->I, s->I, s->xs, at->x_t},
        {recurrent, entering_h(way), s->hs, s->O, s->hs, at->h_t},
    };
    sli_cuda_transposition each[SLI_CUDA_TRANSPOSITIONS];
    int count = 0;
    for (const auto &o : operands)
        if (o.wanted)
            each[count++] = {(const float *)o.from,       o.from_row, rows,   o.columns,
                             (float *)(way->work + o.to), row,        o.lines};
    sli_cuda_transpose(way->queue, way->stream, each, count);
}

/* Behind the last chunk: narrow ones = or += sums [m][n]. */
static void round_sums(const step_way *way, const step_target *to, int64_t m, int64_t n) {
    if (!to->sums || !to->narrow) return;
    const sli_cuda_move move = {way->call->problem.dtype, SL_F32, to->narrow, n, 0, to->sums, n, 0, m, n, 1, to->add_narrow};
    sli_cuda_move_rows(way->queue, way->stream, &move);
}

/* The target = or += the product [m][n]; of a pair both its target and what lies behind it by d_apart. */
static void multiply_into(const step_way *way, sli_cuda_product *product, const step_target *to) {
    product->narrow_d = !to->sums;
    product->d = to->sums ? (void *)to->sums : (void *)to->narrow;
    product->d_row = product->n;
    product->beta = (to->sums ? to->add : to->add_narrow) ? 1.0f : 0.0f;
    set_pad(way, product);
    sli_cuda_multiply(way->queue, way->stream, product);
    round_sums(way, to, product->m, product->n);
}

/* d_param[k] from row `first` on, [m][n], = or += the product */
static void add_product(const step_way *way, sli_cuda_product *product, int k, int64_t first) {
    const step_target to = sli_step_target(way, k, first * product->n);
    multiply_into(way, product, &to);
}

/* d_param[k] from row `first` on, [m][columns], += or = a^T b over `rows` of the chunk's rows, or all; a operand [rows][a_row], b operand
 * [rows][b_row]. */
static void add_rows(const step_way *way, int64_t rows, int k, int64_t first, int64_t m, int64_t columns, const void *a,
                     int64_t a_row, const void *b, int64_t b_row) {
    sli_cuda_product product = sli_step_product(way, m, columns, rows);
    product.a = sli_step_matrix(a, a_row, true);
    product.b = sli_step_matrix(b, b_row, false);
    add_product(way, &product, k, first);
}

static void add_over_time(const step_way *way, int k, int64_t first, int64_t m, int64_t columns, const void *a,
                          int64_t a_row, const void *b, int64_t b_row) {
    add_rows(way, rows_of(way), k, first, m, columns, a, a_row, b, b_row);
}

/* The same from transposed copies of both, whole rows with the zeros behind. */
static void add_transposed(const step_way *way, int k, int64_t columns, size_t a, size_t b) {
    const int64_t row = sli_cuda_transposed_row(rows_of(way));
    sli_cuda_product product = sli_step_product(way, way->s.GH, columns, row);
    product.a = sli_step_matrix(way->work + a, row, false);
    product.b = sli_step_matrix(way->work + b, row, true);
    add_product(way, &product, k, 0);
}

void sli_step_add_kernel(const step_way *way) {
    const sli_step_shape *s = &way->s;
    if (!way->d_param[SLI_RNN_KERNEL]) return;
    if (sli_step_transposes(way))
        add_transposed(way, SLI_RNN_KERNEL, s->I, way->scratch.dz_t, way->scratch.x_t);
    else
        add_rows(way, sli_step_input_rows(way), SLI_RNN_KERNEL, 0, s->GH, s->I, way->work + way->scratch.dz, s->zs,
                 sli_step_inputs(way), s->xs);
}

void sli_step_add_recurrent(const step_way *way) {
    const sli_step_shape *s = &way->s;
    if (!way->d_param[SLI_RNN_RECURRENT]) return;
    if (sli_step_transposes(way)) {
        add_transposed(way, SLI_RNN_RECURRENT, s->O, s->gru ? way->scratch.dr_t : way->scratch.dz_t, way->scratch.h_t);
        return;
    }
    const void *dz = way->work + way->scratch.dz, *dr = s->gru && !s->before ? way->work + way->scratch.dr : dz;
    add_over_time(way, SLI_RNN_RECURRENT, 0, s->before ? 2 * s->H : s->GH, s->O, dr, s->zs, entering_h(way), s->hs);
    if (s->before)
        add_over_time(way, SLI_RNN_RECURRENT, 2 * s->H, s->H, s->O, sli_step_offset(way, dz, 2 * s->H), s->zs,
                      way->work + way->scratch.resets, s->hs);
    if (s->lag > 0 && way->d_param[SLI_RNN_PROJECTION]) /* SLI_WAVE_BETWEEN */
        add_over_time(way, SLI_RNN_PROJECTION, 0, s->GH, s->O, dz, s->zs, entering_h(way), s->hs);
}

/* Units that are no whole eights: where a product of so many rows has pads. Without, 160 and 200 rows in one launch took 1.11 and 1.06 of a call's time (pads_h200_2026-11-29.txt). */
static bool pairs_rows(const step_way *way) {
    const sli_step_shape *s = &way->s;
    const sli_caps *caps = sli_cuda_caps_of(way->queue);
    if (s->O % 8 == 0) return s->pairs;
    return s->pairs && sli_cuda_pad_columns(caps, way->call->problem.dtype, s->GH, s->O, rows_of(way)) != s->O;
}

/* Numbers from one's beginning to the other's, of what a product writes. */
static int64_t apart_of(const step_target *from, const step_target *to) {
    return from->sums ? to->sums - from->sums : to->narrow - from->narrow;
}

/* Whether d kernel and d recurrent are one launch. Of memory that the plan lays out alone: so their bits do not depend on addresses. x that is an operand
 * lies wherever its tensor does: in front of h, or it is not so. */
bool sli_step_pairs(const step_way *way) {
    const step_target kernel = sli_step_target(way, SLI_RNN_KERNEL, 0), recurrent = sli_step_target(way, SLI_RNN_RECURRENT, 0);
    const int64_t apart = apart_of(&kernel, &recurrent), each = kernel.sums ? 4 : 8;
    const bool in_front = way->s.copy_x || (const char *)way->x < way->saved;
    return pairs_rows(way) && in_front && !way->call->borrowed && sli_step_is_target(&kernel) && sli_step_is_target(&recurrent) && apart > 0 &&
           apart % each == 0 && kernel.add == recurrent.add && kernel.add_narrow == recurrent.add_narrow;
}

/* A product of either is too short to fill the GPU, or to hide how it begins and ends. */
void sli_step_add_pair(const step_way *way) {
    const sli_step_shape *s = &way->s;
    const char *dz = way->work + way->scratch.dz, *dr = s->gru ? way->work + way->scratch.dr : dz;
    const char *x = (const char *)sli_step_inputs(way), *h = (const char *)entering_h(way);
    const int64_t operand = (int64_t)s->operand;
    sli_cuda_product product = sli_step_product(way, s->GH, s->I, rows_of(way));
    product.a = sli_step_matrix(dz, s->zs, true);
    product.b = sli_step_matrix(x, s->xs, false);
    product.paired = true;
    product.a_apart = (dr - dz) / operand;
    product.b_apart = (h - x) / operand;
    const step_target kernel = sli_step_target(way, SLI_RNN_KERNEL, 0), recurrent = sli_step_target(way, SLI_RNN_RECURRENT, 0);
    product.d_apart = apart_of(&kernel, &recurrent);
    multiply_into(way, &product, &kernel);
    round_sums(way, &recurrent, s->GH, s->O);
}

void sli_step_add_sums(const step_way *way) {
    if (sli_step_transposes(way)) sli_step_transpose(way);
    if (sli_step_pairs(way)) {
        sli_step_add_pair(way);
        return;
    }
    sli_step_add_kernel(way);
    sli_step_add_recurrent(way);
}

void sli_step_add_projection(const step_way *way, int64_t rows, const void *dq, const void *m) {
    const sli_step_shape *s = &way->s;
    if (!way->d_param[SLI_RNN_PROJECTION]) return;
    sli_cuda_product product = sli_step_product(way, s->O, s->H, rows);
    product.a = sli_step_matrix(dq, s->hs, true);
    product.b = sli_step_matrix(m, s->ms, false);
    add_product(way, &product, SLI_RNN_PROJECTION, 0);
}

static void add_biases(const step_way *way) {
    const sli_step_shape *s = &way->s;
    const int64_t n = 2 * s->H;
    const char *dz = way->work + way->scratch.dz, *dr = way->work + way->scratch.dr;
    step_bias_columns(way, dz, sli_step_offset(way, dz, n), s->zs, sli_step_offset(way, dr, n), s->zs, rows_of(way), true);
}

static void add_parameters(const step_way *way) {
    const sli_step_shape *s = &way->s;
    sli_step_add_sums(way);
    if (s->project)
        sli_step_add_projection(way, rows_of(way), way->work + way->scratch.dq, way->work + way->scratch.m);
    add_biases(way);
    if (way->call->problem.peephole) {
        const step_column_sum of = {SLI_RNN_PEEPHOLE, -1, 0, way->work + way->scratch.dpeep, 3 * s->H, 3 * s->H};
        sli_step_columns(way, &of, 1, (int64_t)(way->c1 - way->c0) * s->B, false);
    }
}

/* d x has its share of the multiplications of all three. By shape alone, whether these are side by side or in turn: so a memory limit changes no bit. */
static void set_share(const step_way *way, sli_cuda_product *product) {
    const sli_step_shape *s = &way->s;
    const double recurrent = (double)s->O * (double)rows_of(way), kernel = (double)s->I * (double)sli_step_input_rows(way);
    if (s->narrow && s->directions == 1 && !s->project && !pairs_rows(way) && product->k > product->m && kernel > 0)
        product->share = (int)(100 * kernel / (recurrent + 2 * kernel));
}

void sli_step_give_inputs(const step_way *way, bool add) {
    const sli_step_shape *s = &way->s;
    const void *dx = way->call->d_in[SLI_RNN_X];
    if (!dx) return;
    sli_cuda_product product = sli_step_product(way, sli_step_input_rows(way), s->I, s->zs);
    product.a = sli_step_matrix(way->work + way->scratch.dz, s->zs, false);
    product.b = sli_step_matrix(sli_step_kernel(way), s->xs, false);
    product.d = sli_step_io(way, dx, way->c0 * s->B * s->I);
    product.narrow_d = s->narrow_io;
    product.d_row = s->I;
    product.beta = add ? 1.0f : 0.0f;
    set_share(way, &product);
    set_pad(way, &product);
    sli_cuda_multiply(way->queue, way->stream, &product);
}

/* ------------------------------------------------------------------------------------------------------- chunks -- */
/* Both directions meet in d x after each chunk: of the two that hold a step, the one that comes to it first writes, the other
 * adds; where they come together, forward is first. `left` chunks are processed after this one, `done` before. */
static void backward_chunk(step_way *ways, int directions, int index, step_gradient *gradients) {
    sli_queue *queue = ways[0].queue;
    const bool accumulate = ways[0].call->accumulate >> SLI_RNN_X & 1u;
    const int done = ways[0].chunks - 1 - index;
    if (directions == 2) ways[1].stream = sli_cuda_fork(queue);
    sli_cuda_phase(queue, SLI_PHASE_PRODUCT);
    for (int d = 0; d < directions; d++) {
        sli_step_enter_chunk(&ways[d], index);
        if (ways[d].s.recompute) sli_step_recompute(&ways[d]);
    }
    sli_cuda_phase(queue, SLI_PHASE_RECURRENCE);
    if (ways[0].wide.runs) backward_runs(&ways[0], &gradients[0]);
    for (int s = ways[0].wide.runs ? -1 : ways[0].chunk - 1; s >= 0 && !sli_cuda_failed(queue); s--)
        for (int d = 0; d < directions; d++)
            if (s < ways[d].c1 - ways[d].c0) backward_step(&ways[d], sli_step_at(&ways[d], s), &gradients[d]);
    sli_cuda_phase(queue, SLI_PHASE_PRODUCT);
    for (int d = 0; d < directions; d++) add_parameters(&ways[d]);
    if (directions == 2) sli_cuda_join(queue);
    ways[1].stream = ways[0].stream;
    sli_step_give_inputs(&ways[0], accumulate || (directions == 2 && index < done));
    if (directions == 2) sli_step_give_inputs(&ways[1], accumulate || index <= done);
}

extern "C" void sli_gpu_step_backward(const sli_call *call) {
    if (sli_cuda_failed(call->queue)) return;
    step_way ways[2];
    step_gradient gradients[2];
    const int directions = sli_step_ways(call, true, ways);
    sli_cuda_phase(call->queue, SLI_PHASE_RECURRENCE);
    sli_cuda_start_late(call->queue); /* many launches, none of which is held up for long; a run waits for all multiprocessors, but nothing is late before it */
    for (int d = 0; d < directions; d++) {
        sli_step_masks(&ways[d]);
        if (ways[d].chunks == 0) sli_step_zero_fresh(&ways[d]);
        if (ways[d].wide.rows > 0 && ways[d].chunks > 0) sli_step_wide_begin(&ways[d], NULL);
        gradients[d].pw = (const float *)call->d_out[SLI_RNN_STATE_OUT(ways[d].part, 0)];
        gradients[d].dp = {NULL, 0, 0};
        gradients[d].dr = NULL;
        gradients[d].dc = ways[d].s.lstm ? (const float *)call->d_out[SLI_RNN_STATE_OUT(ways[d].part, 1)] : NULL;
    }
    for (int i = ways[0].chunks - 1; i >= 0 && !sli_cuda_failed(call->queue); i--)
        backward_chunk(ways, directions, i, gradients);
    for (int d = 0; d < directions; d++) {
        ways[d].stream = sli_cuda_stream(call->queue);
        sli_step_finish(&ways[d], gradients[d].pw, gradients[d].dp, gradients[d].dc);
    }
}
