/* cuda:step, forward. For every chunk of steps the input projection is one product; then per step the recurrent product
 * and the cell, in one launch where sli_step_fused says so. Both directions of a bidirectional layer run side by side, a
 * stream each. */
#include "backend/cuda/kernels/step_run_host.cuh"
#include "cell/activations.h"

/* A = x: of few rows as it is, which saves the launch that makes it an operand, where nobody else wants that. Of sequences of one chunk alone: a last, short chunk would be multiplied
 * so or otherwise as a memory limit has it a call of its own or not, with other bits. */
static void set_inputs(const step_way *way, sli_cuda_product *product) {
    const sli_step_shape *s = &way->s;
    sli_cuda_product given = *product;
    given.k = s->I;
    given.a = sli_step_matrix(sli_step_io(way, way->x, way->c0 * s->B * s->I), s->I, false);
    given.a_floats = !s->narrow_io;
    const bool whole = way->call->total_steps <= way->chunk;
    if (whole && s->narrow && s->copy_x && !s->keep_x && !way->copied_x && way->zeros_bytes == 0 && sli_cuda_is_small(&given))
        *product = given;
    else
        product->a = sli_step_matrix(sli_step_inputs(way), s->xs, false);
}

/* u = W x + b, and where a packed W has rows of zeros behind the gates, columns that nobody reads: 900, GRU of 300 units, cuBLASLt's fast kernels do not
 * take in 16 bits. */
void sli_step_project_inputs(const step_way *way) {
    const sli_step_shape *s = &way->s;
    const int64_t rows = sli_step_input_rows(way);
    sli_cuda_product product = sli_step_product(way, rows, s->zs, s->xs);
    product.b = sli_step_matrix(sli_step_kernel(way), s->xs, true);
    product.d = sli_step_gates(way, way->c0);
    product.d_row = s->us;
    if (way->call->problem.bias != SL_BIAS_NONE) product.bias = (const float *)(way->weights + way->packed.bias);
    set_inputs(way, &product);
    sli_cuda_multiply(way->queue, way->stream, &product);
}

/* s[B][from ...] = v R^T, gates [first, first + gates); v operand [B][hs]. */
static step_sums recurrent_product(const step_way *way, const void *v, int first, int64_t gates) {
    const sli_step_shape *s = &way->s;
    sli_cuda_product product = sli_step_product(way, s->B, gates * s->H, s->hs);
    product.a = sli_step_matrix(v, s->hs, false);
    product.b = sli_step_matrix(sli_step_offset(way, sli_step_recurrent(way), first * s->H * s->hs), s->hs, true);
    product.d = (float *)(way->work + way->scratch.s) + first * s->H;
    product.d_row = s->us;
    sli_cuda_multiply(way->queue, way->stream, &product);
    return {(const float *)(way->work + way->scratch.s), 0, 1};
}

/* q = m W_p^T */
static void projection_product(const step_way *way) {
    const sli_step_shape *s = &way->s;
    sli_cuda_product product = sli_step_product(way, s->B, s->O, s->ms);
    product.a = sli_step_matrix(way->work + way->scratch.m, s->ms, false);
    product.b = sli_step_matrix(sli_step_projection(way), s->ms, true);
    product.d = (float *)(way->work + way->scratch.q);
    product.d_row = s->O;
    sli_cuda_multiply(way->queue, way->stream, &product);
}

static step_forward_args args_at(const step_way *way, int t, bool last) {
    const sli_step_shape *s = &way->s;
    const int from = sli_step_entering(way, t), to = sli_step_leaving(way, t);
    step_forward_args a = {};
    int64_t row = 0;
    a.k = sli_step_common_at(way, t);
    a.u = sli_step_gates(way, t);
    if (way->wide.rows > 0) a.wide = sli_step_wide_place(way);
    a.keeps = s->keep_gates;
    a.h_from = sli_step_hidden(way, from, &a.h_from_row);
    if (s->own_h) a.h_to = (float *)sli_step_hidden(way, to, &row);
    a.operand_h = sli_step_operand_h(way, to);
    if (s->lstm) {
        a.c_from = sli_step_cell(way, from);
        a.c_to = sli_step_cell(way, to);
        if (s->keep_gates && s->keep_v) a.v = sli_step_v(way, t);
    }
    if (s->gru && !s->before) {
        a.bias_n = sli_step_bias_n(way);
        if (s->keep_gates) a.sn = sli_step_sn(way, t);
    }
    if (s->project) {
        a.operand_m = way->work + way->scratch.m;
        a.q = (const float *)(way->work + way->scratch.q);
    }
    if (s->before) a.operand_m = way->work + way->scratch.reset;
    if (way->y) a.y = sli_step_io(way, way->y, t * s->B * way->y_row);
    a.y_row = way->y_row;
    if (last) {
        a.h_last = (float *)way->call->out[SLI_RNN_STATE_OUT(way->part, 0)];
        if (s->lstm) a.c_last = (float *)way->call->out[SLI_RNN_STATE_OUT(way->part, 1)];
    }
    return a;
}

static void forward_step(const step_way *way, int t, bool last) {
    const sli_step_shape *s = &way->s;
    step_forward_args a = args_at(way, t, last);
    const void *h = sli_step_operand_h(way, sli_step_entering(way, t));
    const bool first = t == sli_step_at(way, 0); /* of its chunk */
    if (way->fused) {
        sli_step_fused_forward(way, &a, h, !first);
        return;
    }
    if (way->tiled > 0) {
        sli_step_tiled_forward(way, &a, way->reverse ? (int)s->T - 1 - t : t, !first);
        return;
    }
    if (way->wide.rows > 0) {
        a.s = sli_step_wide_multiply(way, (float *)(way->work + way->scratch.s), s->us, way->weights + way->packed.wide_forward, !first);
    } else {
        a.s = recurrent_product(way, h, 0, s->before ? 2 : s->gates);
    }
    if (s->lstm) {
        sli_step_lstm_forward(way, &a, true);
        if (!s->project) return;
        projection_product(way);
        sli_step_project_forward(way, &a, true);
    } else if (s->gru) {
        if (s->before) {
            sli_step_gru_reset(way, &a, true);
            (void)recurrent_product(way, a.operand_m, 2, 1);
        }
        sli_step_gru_forward(way, &a, true);
    } else {
        sli_step_rnn_forward(way, &a, true);
    }
}

/* The chunk's steps, many a launch; `end`: it is the call's last one. */
static void forward_runs(step_way *way, bool end) {
    const int steps = way->c1 - way->c0;
    for (int first = 0; first < steps && !sli_cuda_failed(way->queue); first += SLI_STEP_RUN_STEPS) {
        step_forward_run run;
        const int count = steps - first < SLI_STEP_RUN_STEPS ? steps - first : SLI_STEP_RUN_STEPS;
        for (int i = 0; i < count; i++)
            run.step[i] = args_at(way, sli_step_at(way, first + i), end && first + i + 1 == steps);
        sli_step_run_forward(way, &run, count);
    }
}

/* One chunk in every direction; steps are queued in turn, so that both streams have work while the host queues more. */
static void forward_chunk(step_way *ways, int directions, int index) {
    sli_queue *queue = ways[0].queue;
    if (directions == 2) ways[1].stream = sli_cuda_fork(queue);
    sli_cuda_phase(queue, SLI_PHASE_PRODUCT);
    for (int d = 0; d < directions; d++) {
        sli_step_enter_chunk(&ways[d], index);
        sli_step_project_inputs(&ways[d]);
    }
    sli_cuda_phase(queue, SLI_PHASE_RECURRENCE);
    const int longest = ways[0].wide.runs ? 0 : ways[0].chunk;
    if (ways[0].wide.runs) forward_runs(&ways[0], index + 1 == ways[0].chunks);
    for (int s = 0; s < longest && !sli_cuda_failed(queue); s++)
        for (int d = 0; d < directions; d++) {
            const step_way *way = &ways[d];
            const bool there = s < way->c1 - way->c0, end = index + 1 == way->chunks && s + 1 == way->c1 - way->c0;
            if (there) forward_step(way, sli_step_at(way, s), end);
        }
    if (directions == 2) sli_cuda_join(queue);
}

extern "C" void sli_gpu_step_forward(const sli_call *call) {
    if (sli_cuda_failed(call->queue)) return;
    step_way ways[2];
    const int directions = sli_step_ways(call, false, ways);
    sli_cuda_phase(call->queue, SLI_PHASE_RECURRENCE);
    for (int d = 0; d < directions; d++) {
        sli_step_masks(&ways[d]);
        sli_step_begin(&ways[d], 0);
        if (ways[d].tiled > 0 && ways[d].chunks > 0) sli_step_tiled_begin(&ways[d]);
        if (ways[d].wide.rows > 0 && ways[d].chunks > 0)
            sli_step_wide_begin(&ways[d], sli_step_operand_h(&ways[d], ways[d].reverse ? (int)ways[d].s.T : 0));
    }
    for (int i = 0; i < ways[0].chunks && !sli_cuda_failed(call->queue); i++) forward_chunk(ways, directions, i);
}
