/* cuda:cluster and cuda:grid, LSTM with projection. With m = o tanh(c) of H units, h = W_p m of O,
 *     R h' = (R W_p) m',
 * so the recurrence is that of an LSTM without projection, whose recurrent weights R W_p [4H][H] are made by pack. What is left
 * are products over time, of each chunk:
 *     forward:   u of the first step += R h0, which m' = 0 enters;   h = W_p m
 *     backward:  dm = W_p^T dy, of which the recurrence makes dz;    e = dy + R^T dz of the step after it
 *                d W_p += e m^T,  d R += dz h'^T,  d h0 = R^T dz of the first step
 * A masked step carries m, and its dz is 0: a row's first step is the first that is not masked, before it h is h0 and m 0. What
 * masked steps hand back of e is not in that of the step that they carry, but in their own, which is multiplied by the same m. */
#include "backend/cuda/kernels/persist_fold.cuh"
#include "backend/cuda/kernels/persist_host.cuh"

static fold_common common_of(const persist_call *p, const step_way *way, int64_t columns) {
    fold_common k = {};
    if (way->s.mask) {
        k.flags = (const uint8_t *)(way->work + way->scratch.flags);
        k.first = (const int32_t *)(way->work + p->scratch.fold.first);
    }
    k.T = (int)way->s.T;
    k.B = (int)way->s.B;
    k.reverse = way->reverse;
    k.columns = columns;
    k.hs = way->s.hs;
    k.math = way->call->problem.dtype;
    return k;
}

static float *floats_of(const step_way *way, size_t offset) {
    return (float *)(way->work + offset);
}

step_way sli_persist_fold_cells(const persist_call *p, int d) {
    const sli_problem folded = sli_persist_folded(&p->call->problem);
    const sli_persist_fold *at = &p->scratch.fold;
    step_way cells = p->ways[d];
    cells.s = sli_step_shape_of(&folded, p->call->chunk);
    /* In inference c lies with h's history: the others' places are counted from there. */
    cells.history.h = cells.s.train ? p->saved.m : at->m - cells.scratch.history;
    cells.history.hf = cells.s.train ? p->saved.m_own : at->m_own - cells.scratch.history;
    cells.scratch.dp = at->dp;
    cells.scratch.pw = at->pw;
    cells.common.O = cells.common.H;
    cells.common.hs = cells.s.hs;
    cells.common.options = sli_step_options(&folded);
    cells.y = NULL;
    cells.y_row = cells.s.hs; /* of dm */
    return cells;
}

void *sli_persist_fold_m(const persist_call *p, int d, int slot) {
    const step_way *cells = &p->cells[d];
    return cells->saved + cells->history.h + (size_t)(slot * cells->s.B * cells->s.hs) * cells->s.operand;
}

/* R W_p in the type that products have; the packed forms of it, which are written next, are the workspace. */
const float *sli_persist_fold_pack(const persist_call *p, int d) {
    const step_way *way = &p->ways[d];
    const sli_step_shape *s = &way->s;
    char *to = way->weights;
    sli_step_pack_recurrent(way);
    sli_step_weights(way, to + way->packed.projection, s->ms, s->hs, way->param[SLI_RNN_PROJECTION], s->O, s->H);
    sli_cuda_product product = {};
    product.math = way->call->problem.dtype;
    product.m = s->GH;
    product.n = s->ms;
    product.k = s->hs;
    product.a = sli_step_matrix(sli_step_recurrent(way), s->hs, false);
    product.b = sli_step_matrix(sli_step_projection(way), s->ms, false);
    product.d = (float *)(to + p->packed.folded);
    product.d_row = s->ms;
    product.workspace = to + p->packed.forward;
    product.workspace_bytes = p->packed.stride - p->packed.forward;
    sli_cuda_multiply(way->queue, way->stream, &product);
    return (const float *)product.d;
}

static void find_first(const persist_call *p, const step_way *way) {
    if (!way->s.mask) return;
    fold_first_args a = {};
    a.k = common_of(p, way, 1);
    a.to = (int32_t *)(way->work + p->scratch.fold.first);
    sli_fold_first(way, &a);
}

/* No workspace: the input side is multiplied meanwhile, in the one that there is. */
void sli_persist_fold_begin(const persist_call *p, int d) {
    const step_way *way = &p->ways[d], *cells = &p->cells[d];
    const sli_step_shape *s = &way->s;
    const int slot = way->reverse ? (int)s->T : 0;
    find_first(p, way);
    if (!sli_cuda_put(p->queue, way->stream, sli_persist_fold_m(p, d, slot), NULL,
                      (size_t)(s->B * cells->s.hs) * s->operand))
        return;
    if (cells->s.own_h && !sli_cuda_put(p->queue, way->stream, cells->saved + cells->history.hf, NULL,
                                        (size_t)(s->B * s->H) * sizeof(float)))
        return;
    sli_cuda_product product = {};
    product.math = way->call->problem.dtype;
    product.m = s->B;
    product.n = s->GH;
    product.k = s->hs;
    product.a = sli_step_matrix(sli_step_operand_h(way, slot), s->hs, false);
    product.b = sli_step_matrix(sli_step_recurrent(way), s->hs, true);
    product.d = floats_of(way, p->scratch.fold.entering);
    product.d_row = s->us;
    sli_cuda_multiply(way->queue, way->stream, &product);
}

void sli_persist_fold_enter(const persist_call *p, int d, int index, cudaStream_t stream) {
    step_way way = sli_persist_chunk(p, d, index);
    if (!way.s.mask && index > 0) return;
    way.stream = stream;
    fold_enter_args a = {};
    a.k = common_of(p, &way, way.s.GH);
    a.u = sli_step_gates(&way, way.c0);
    a.entering = floats_of(&way, p->scratch.fold.entering);
    a.c0 = way.c0;
    a.c1 = way.c1;
    a.us = way.s.us;
    sli_fold_enter(&way, &a);
}

/* Steps t .. t + steps - 1: h where somebody takes it. Rows that need no padding are multiplied into y. */
static void give_steps(const persist_call *p, int d, const step_way *way, int t, int steps, bool ends) {
    const sli_step_shape *s = &way->s;
    fold_give_args a = {};
    a.k = common_of(p, way, s->O);
    a.t = t;
    a.rows = steps * (int)s->B;
    a.y = way->y ? (float *)sli_step_io(way, way->y, t * s->B * way->y_row) : NULL;
    a.y_row = way->y_row;
    const bool in_place = a.y && s->hs == s->O;
    float *q = in_place ? a.y : floats_of(way, p->scratch.fold.q);
    a.q = q;
    a.q_row = in_place ? a.y_row : s->hs;
    sli_cuda_product product = sli_step_product(way, a.rows, s->hs, s->ms);
    product.a = sli_step_matrix(sli_persist_fold_m(p, d, sli_step_leaving(way, t)), s->ms, false);
    product.b = sli_step_matrix(sli_step_projection(way), s->ms, true);
    product.d = q;
    product.d_row = a.q_row;
    sli_cuda_multiply(way->queue, way->stream, &product);
    a.h0 = (const float *)p->call->in[SLI_RNN_STATE_IN(way->part, 0)];
    if (s->train) a.operand_h = sli_step_operand_h(way, sli_step_leaving(way, t));
    if (ends) a.h_last = (float *)p->call->out[SLI_RNN_STATE_OUT(way->part, 0)];
    if (!s->train && !s->mask && (in_place || !a.y)) { /* the last step's rows are the leaving state */
        if (!a.h_last) return;
        const int skipped = way->reverse ? 0 : steps - 1;
        a.t += skipped;
        a.rows = (int)s->B;
        a.q += (size_t)(skipped * s->B) * (size_t)a.q_row;
        a.y = NULL;
    }
    sli_fold_give(way, &a);
}

void sli_persist_fold_give(const persist_call *p, int d, int index, cudaStream_t stream) {
    step_way way = sli_persist_chunk(p, d, index);
    const bool ends = index + 1 == way.chunks;
    way.stream = stream;
    if (way.y || way.s.train)
        give_steps(p, d, &way, way.c0, way.c1 - way.c0, ends);
    else if (ends)
        give_steps(p, d, &way, way.reverse ? way.c0 : way.c1 - 1, 1, true);
}

/* dm[rows][columns] = e W_p, e operand [rows][e_row] */
static void back_through_projection(const step_way *way, int64_t rows, int64_t columns, const void *e, int64_t e_row,
                                    float *dm) {
    sli_cuda_product product = sli_step_product(way, rows, columns, way->s.hs);
    product.a = sli_step_matrix(e, e_row, false);
    product.b = sli_step_matrix(sli_step_projection(way), way->s.ms, false);
    product.d = dm;
    product.d_row = columns;
    sli_cuda_multiply(way->queue, way->stream, &product);
}

const float *sli_persist_fold_leaving(const persist_call *p, int d) {
    const step_way *way = &p->ways[d];
    const sli_step_shape *s = &way->s;
    const float *dh = (const float *)p->call->d_out[SLI_RNN_STATE_OUT(way->part, 0)];
    find_first(p, way);
    if (!dh) return NULL;
    void *operand = way->work + p->scratch.fold.e;
    sli_step_rows(way->queue, way->stream, way->call->problem.dtype, operand, s->hs, s->B, dh, s->B, s->O, {});
    back_through_projection(way, s->B, s->H, operand, s->hs, floats_of(way, p->scratch.fold.pw));
    return floats_of(way, p->scratch.fold.pw);
}

const float *sli_persist_fold_dm_at(const persist_call *p, int d, int t) {
    const step_way *way = &p->ways[d];
    return floats_of(way, p->scratch.fold.dm) + (size_t)((t - p->span_at[d]) * way->s.B * way->s.ms);
}

void sli_persist_fold_dm(const persist_call *p, int d, int index, cudaStream_t stream) {
    step_way way = sli_persist_chunk(p, d, index);
    if (!way.dy) return;
    way.stream = stream;
    fold_shown_args a = {};
    a.k = common_of(p, &way, way.s.O);
    a.to = way.work + p->scratch.fold.e;
    a.dy = (const float *)sli_step_io(&way, way.dy, way.c0 * way.s.B * way.y_row);
    a.dy_row = way.y_row;
    a.t = way.c0;
    a.rows = (way.c1 - way.c0) * (int)way.s.B;
    float *dm = (float *)sli_persist_fold_dm_at(p, d, way.c0);
    /* Floats without padding, all of which are shown, are the operand. */
    const bool in_place = !way.s.narrow && !way.s.mask && way.s.hs == way.s.O;
    if (!in_place) sli_fold_shown(&way, &a);
    back_through_projection(&way, a.rows, way.s.ms, in_place ? a.dy : a.to, in_place ? a.dy_row : way.s.hs, dm);
}

/* back[rows][hs] = dz R */
static void back_through_recurrence(const step_way *way, int64_t rows, float *back) {
    const sli_step_shape *s = &way->s;
    sli_cuda_product product = sli_step_product(way, rows, s->hs, s->zs);
    product.a = sli_step_matrix(way->work + way->scratch.dz, s->zs, false);
    product.b = sli_step_matrix(sli_step_recurrent(way), s->hs, false);
    product.d = back;
    product.d_row = s->hs;
    sli_cuda_multiply(way->queue, way->stream, &product);
}

void sli_persist_fold_add(const persist_call *p, const step_way *way) {
    const sli_step_shape *s = &way->s;
    const sli_persist_fold *at = &p->scratch.fold;
    const int steps = way->c1 - way->c0;
    const bool ends = way->reverse ? way->c0 == 0 : way->c1 == (int)s->T; /* the slot after the last step is in it */
    sli_step_add_recurrent(way);
    if (!way->d_param[SLI_RNN_PROJECTION] && !sli_step_gives_states(way)) return;
    fold_gradient_args a = {};
    a.k = common_of(p, way, s->O);
    a.e = way->work + at->e;
    a.back = floats_of(way, at->back);
    a.dy = (const float *)way->dy;
    a.dy_row = way->y_row;
    a.dh_last = (const float *)p->call->d_out[SLI_RNN_STATE_OUT(way->part, 0)];
    a.dh = floats_of(way, at->dh);
    a.left = floats_of(way, at->left);
    a.slot = way->reverse && !ends ? way->c0 + 1 : way->c0;
    a.rows = (steps + ends) * (int)s->B;
    a.c0 = way->c0;
    back_through_recurrence(way, steps * s->B, floats_of(way, at->back));
    sli_fold_gradient(way, &a);
    sli_step_add_projection(way, a.rows, a.e, sli_persist_fold_m(p, way->part, a.slot));
}

void sli_persist_fold_finish(const persist_call *p, int d, const float *dc) {
    step_way way = p->ways[d];
    const step_sums left = {floats_of(&way, p->scratch.fold.left), 0, 1};
    way.stream = sli_cuda_stream(p->queue);
    sli_step_finish(&way, floats_of(&way, p->scratch.fold.dh), left, dc);
}
