/* cuda:cluster and cuda:grid: pack, forward, backward. A call goes span by span: the input projection of its chunks, one
 * launch over all its steps; backward one launch, then the sums over time as products of its chunks. */
#include "backend/cuda/kernels/persist_host.cuh"

/* ------------------------------------------------------------------------------------------------------ forward -- */
/* The side stream is free. */
static bool has_side(const persist_call *p) {
    return p->directions == 1 && !sli_cuda_in_lanes(p->queue);
}

/* Copies of the entering states, which backward asks for, are made beside the recurrence, on multiprocessors that it leaves. Beside the input side's product they waited for some, and the
 * recurrence for them (LSTM of 1024 units, 32 rows, 3 us of 225). Floats that are no whole fours the kernel reads one by one, 2 us longer than a copy (650 units). */
static bool begins_later(const persist_call *p) {
    return p->ways[0].s.train && p->ways[0].s.H % 4 == 0 && has_side(p) && sli_persist_idle(p->geometry, sli_cuda_caps_of(p->queue)) > 0;
}
/* The kernel takes the entering states from where the call has them. Not what dropout has to be multiplied with; nor a projection
 * that is folded, where h0 is no m; nor a wave, whose layers' states come together; in training where copies come later. */
static bool takes_states(const persist_call *p, int d) {
    const step_way *way = &p->ways[d];
    const bool as_given = !way->common.factor && !way->s.project && way->s.lag == 0;
    return as_given && (!way->s.train || begins_later(p));
}

static void set_entering(const step_way *way, persist_way *to) {
    to->operand_from = NULL;
    to->h_enters = (const float *)way->call->in[SLI_RNN_STATE_IN(way->part, 0)];
    if (to->h_from) {
        to->h_from = to->h_enters;
        to->h_row = way->s.O;
    }
    if (way->s.lstm) to->c_from = (const float *)way->call->in[SLI_RNN_STATE_IN(way->part, 1)];
}

/* m of every step, which h is a product of afterwards. */
static void set_folded(const persist_call *p, int d, int t, persist_way *to) {
    const step_way *way = &p->cells[d];
    const int step = way->reverse ? -1 : 1;
    to->operand_from = sli_persist_fold_m(p, d, sli_step_entering(way, t));
    to->operand_to = sli_persist_fold_m(p, d, sli_step_leaving(way, t));
    to->operand_step = step * way->s.B * way->s.hs;
    if (to->h_from && !way->s.own_h) to->h_from = (const float *)to->operand_from;
    to->h_last = NULL;
}

static void set_leaving(const sli_call *call, const step_way *way, persist_way *to) {
    static_assert((int)PERSIST_MAX_LAYERS == (int)SLI_MAX_PARTS, "as many as a stack has");
    if (way->s.lag == 0) {
        to->h_last = (float *)call->out[SLI_RNN_STATE_OUT(way->part, 0)];
        if (way->s.lstm) to->c_last = (float *)call->out[SLI_RNN_STATE_OUT(way->part, 1)];
        return;
    }
    for (int l = 0; l <= way->s.lag; l++) {
        to->wave_h[l] = (float *)call->out[SLI_RNN_STATE_OUT(l, 0)];
        if (way->s.lstm) to->wave_c[l] = (float *)call->out[SLI_RNN_STATE_OUT(l, 1)];
    }
}

/* What the launch makes its input side of. */
static void set_inputs(const persist_call *p, int d, int t, persist_way *to) {
    const step_way *way = &p->ways[d];
    const sli_step_shape *s = &way->s;
    to->x = sli_step_io(way, way->x, t * s->B * s->I);
    to->x_step = (way->reverse ? -1 : 1) * (int)(s->B * s->I);
    to->x_steps = (int)(sli_step_input_rows(way) / s->B);
    to->kernel = sli_step_kernel(way);
    if (p->call->problem.bias != SL_BIAS_NONE) to->input_bias = (const float *)(way->weights + way->packed.bias);
}

static void set_forward(const persist_call *p, int d, bool last, persist_way *to) {
    const step_way *way = &p->cells[d];
    const sli_step_shape *s = &way->s;
    const int step = way->reverse ? -1 : 1, t = way->reverse ? way->c1 - 1 : way->c0;
    const int from = s->train ? sli_step_entering(way, t) : sli_persist_slot(p, d);
    const int to_slot = s->train ? sli_step_leaving(way, t) : from + 1;
    int64_t row = 0;
    to->operand_from = sli_step_operand_h(way, from);
    to->operand_to = sli_step_operand_h(way, to_slot);
    to->operand_step = s->train ? step * s->B * s->hs : 0;
    to->h_from = sli_step_hidden(way, from, &to->h_row);
    if (s->own_h) {
        to->h_to = (float *)sli_step_hidden(way, way->history.slots_hf ? sli_step_leaving(way, t) : to_slot, &row);
        to->h_step = way->history.slots_hf ? step * s->B * s->O : 0;
    }
    if (s->lstm) {
        to->c_from = sli_step_cell(way, from);
        to->c_to = sli_step_cell(way, to_slot);
        to->c_step = s->train ? step * s->B * s->H : 0;
        if (s->keep_gates && s->keep_v) to->v = sli_step_v(way, t);
        to->v_step = step * s->B * s->H;
    }
    if (s->gru && !s->before) {
        to->bias_n = sli_step_bias_n(way);
        if (s->keep_gates) to->sn = sli_step_sn(way, t);
        to->sn_step = step * s->B * s->H;
    }
    if (s->lag > 0 && p->call->problem.bias != SL_BIAS_NONE)
        to->wave_bias = (const float *)(way->weights + way->packed.bias);
    if (p->geometry->inputs > 0) set_inputs(p, d, t, to);
    if (way->y) to->y = sli_step_io(way, way->y, t * s->B * way->y_row);
    if (takes_states(p, d) && t == (way->reverse ? (int)s->T - 1 : 0)) set_entering(way, to);
    if (last) set_leaving(p->call, way, to);
    if (p->folds) set_folded(p, d, t, to);
}

/* What the launch that makes x an operand clears on its way, so that no launch of its own does: of one direction, before the first step. */
static bool clears_with_x(const persist_call *p) {
    return p->geometry->inputs == 0 && p->directions == 1 && p->ways[0].s.copy_x;
}

/* A chunk for its input side. x of the call's first may be an operand already. */
static step_way chunk_to_project(const persist_call *p, int d, int i) {
    step_way chunk = sli_persist_chunk(p, d, i);
    if (i > 0) chunk.copied_x = NULL;
    if (i == 0 && clears_with_x(p)) {
        chunk.zeros = chunk.work + p->scratch.zeros;
        chunk.zeros_bytes = p->scratch.zeros_bytes;
    }
    return chunk;
}

/* Input sides of chunks first .. end - 1, each direction in its stream. */
static void project(const persist_call *p, int first, int end, cudaStream_t forward, cudaStream_t reverse) {
    for (int d = 0; d < p->directions; d++)
        for (int i = first; i < end && !sli_cuda_failed(p->queue); i++) {
            step_way chunk = chunk_to_project(p, d, i);
            chunk.stream = d == 0 ? forward : reverse;
            sli_step_project_inputs(&chunk);
        }
}

/* The directions side by side; the launch comes after. `side`: of one direction, in that stream; NULL: in its own. */
static void project_first(const persist_call *p, int first, int end, cudaStream_t side) {
    if (p->geometry->inputs > 0) return; /* the launch makes it */
    sli_cuda_phase(p->queue, SLI_PHASE_PRODUCT);
    const bool both = p->directions == 2;
    project(p, first, end, side ? side : p->ways[0].stream, both ? sli_cuda_fork(p->queue) : NULL);
    if (both || side) sli_cuda_join(p->queue);
    sli_cuda_phase(p->queue, SLI_PHASE_RECURRENCE);
}

static void forward_piece(persist_call *p, int first, int end, int order, bool last) {
    const persist_call piece = sli_persist_piece_at(p, first, end, order);
    persist_args args;
    sli_persist_args(&piece, &args);
    for (int d = 0; d < p->directions; d++) set_forward(&piece, d, last, &args.way[d]);
    sli_persist_launch(&piece, &args);
    p->launches++;
}

/* The input side need not wait until the exchange is zeros. */
static bool zeroes_beside(const persist_call *p) {
    return p->geometry->inputs == 0 && has_side(p) && takes_states(p, 0) && p->scratch.zeros_bytes > 0;
}

/* What the first launch needs beside the input side. The stream in which the input side may begin before the exchange is zeros; NULL: behind all of it. */
static cudaStream_t begin(const persist_call *p) {
    const bool steps = p->ways[0].chunks > 0;
    for (int d = 0; d < p->directions; d++) {
        sli_step_masks(&p->ways[d]);
        if (!steps || !takes_states(p, d)) sli_step_begin(&p->ways[d], 0);
        if (steps && p->folds) sli_persist_fold_begin(p, d);
    }
    if (steps && !takes_states(p, 0)) sli_persist_zero_backward(p, p->ways[0].stream);
    if (!steps || clears_with_x(p)) return NULL;
    if (zeroes_beside(p)) return sli_cuda_fork_and_zero(p->queue, p->ways[0].work + p->scratch.zeros, p->scratch.zeros_bytes);
    sli_persist_zero_exchange(p);
    return NULL;
}

/* It takes longer than two streams that meet cost, which is 1.3 us where a graph begins with both. */
static bool begins_beside(const persist_call *p) {
    const sli_step_shape *s = &p->ways[0].s;
    const bool masks = s->train && s->mask && s->copy_x; /* else they would be one of two first nodes */
    return p->geometry->inputs == 0 && has_side(p) && p->ways[0].chunks > 0 && (masks || !takes_states(p, 0));
}

/* x of the call's first chunk as an operand, before two streams part: a graph that begins with two begins 2 us later than with a single launch
 * (overlap_h200_2026-11-24.txt, 5). NULL: x is none, the input side reads it as it is. */
static const void *copy_first_inputs(const persist_call *p) {
    if (!p->ways[0].s.copy_x) return NULL;
    sli_cuda_phase(p->queue, SLI_PHASE_PRODUCT);
    const step_way chunk = chunk_to_project(p, 0, 0);
    return sli_step_inputs(&chunk);
}

/* A projection that is folded: what h0 has to do with chunks first .. end - 1, behind their input side; and h of their steps. */
static void enter_folded(const persist_call *p, int first, int end, cudaStream_t forward, cudaStream_t reverse) {
    for (int d = 0; d < p->directions && p->folds; d++)
        for (int i = first; i < end && !sli_cuda_failed(p->queue); i++)
            sli_persist_fold_enter(p, d, i, d == 0 ? forward : reverse);
}
static void give_folded(const persist_call *p, int first, int end) {
    if (!p->folds) return;
    sli_cuda_phase(p->queue, SLI_PHASE_PRODUCT);
    for (int d = 0; d < p->directions; d++) {
        cudaStream_t stream = d == 0 ? p->ways[0].stream : sli_cuda_fork(p->queue);
        for (int i = first; i < end && !sli_cuda_failed(p->queue); i++) sli_persist_fold_give(p, d, i, stream);
    }
    if (p->directions == 2) sli_cuda_join(p->queue);
    sli_cuda_phase(p->queue, SLI_PHASE_RECURRENCE);
}

/* Slots of the states that the first launch takes from where the call has them: on the multiprocessors that it leaves, lest it wait for others. h as float is none of them where it has
 * but one slot, which that launch leaves its own in. */
static void begin_beside(const persist_call *p, cudaStream_t side) {
    step_way way = p->ways[0];
    way.stream = side;
    way.s.own_h = way.s.own_h && way.history.slots_hf;
    sli_persist_zero_backward(p, side);
    sli_step_begin(&way, sli_persist_idle(p->geometry, sli_cuda_caps_of(p->queue)));
}

/* Piece by piece; beside each the input side of the next. `beside`: what the first launch needs begins in its stream, NULL: it
 * has begun. The input side, which takes longer, is queued first: a graph keeps what was recorded first where its first node ran, and
 * begins the other 1 to 4 us later. `side_first`: where the first of it goes. */
static void forward_span(persist_call *p, const persist_call *beside, cudaStream_t side_first, int first, int end) {
    const int each = p->chunks_of_piece, chunks = p->ways[0].chunks;
    int order = 0, next = first + each < end ? first + each : end;
    project_first(p, first, next, side_first);
    if (beside) {
        (void)begin(beside); /* in training */
        sli_cuda_join(p->queue);
    }
    enter_folded(p, first, next, p->ways[0].stream, p->ways[0].stream);
    for (int from = first; from < end && !sli_cuda_failed(p->queue); from = next, order++) {
        next = from + each < end ? from + each : end;
        const int after = next + each < end ? next + each : end;
        const bool begins = from == 0 && p->ways[0].s.train && takes_states(p, 0);
        cudaStream_t side = next < end || begins ? sli_cuda_fork(p->queue) : NULL;
        if (from > 0) sli_persist_zero_exchange(p);
        forward_piece(p, from, next, order, next == chunks);
        if (begins) begin_beside(p, side);
        if (next < end) project(p, next, after, side, side);
        if (next < end) enter_folded(p, next, after, side, side);
        if (side) sli_cuda_join(p->queue);
    }
    give_folded(p, first, end);
}

/* The span that begins with chunk `first`; gives its end. */
static int enter_span(persist_call *p, int first) {
    const int chunks = p->ways[0].chunks, end = first + p->chunks_of_span < chunks ? first + p->chunks_of_span : chunks;
    sli_persist_enter_span(p, first, end);
    return end;
}

static void forward(const sli_call *call, sli_persist_kind kind) {
    persist_call p;
    if (!sli_persist_enter(call, kind, false, &p)) return;
    sli_cuda_phase(p.queue, SLI_PHASE_RECURRENCE);
    const int chunks = p.ways[0].chunks;
    const bool forks = begins_beside(&p);
    persist_call beside = p;
    cudaStream_t side = NULL;
    if (forks) {
        enter_span(&p, 0);
        p.ways[0].copied_x = copy_first_inputs(&p);
        beside.ways[0].stream = sli_cuda_fork(p.queue);
    } else {
        side = begin(&p);
    }
    for (int first = 0; first < chunks && !sli_cuda_failed(p.queue); first += p.chunks_of_span) {
        const int end = enter_span(&p, first);
        forward_span(&p, forks && first == 0 ? &beside : NULL, first == 0 ? side : NULL, first, end);
    }
    if ((forks || side) && sli_cuda_failed(p.queue)) sli_cuda_join(p.queue); /* no span may have done it */
}

/* ----------------------------------------------------------------------------------------------------- backward -- */
/* What the state after the span's last step has as gradient; NULL: zeros. */
typedef struct persist_gradient {
    const float *pw, *dp, *dc;
} persist_gradient;

/* Whether anybody wants the gradients of the entering states: of one direction, then those of both are computed. */
static bool wants_states(const persist_call *p) {
    return sli_step_gives_states(&p->ways[0]) || (p->directions == 2 && sli_step_gives_states(&p->ways[1]));
}

/* Whether a launch multiplies its last step's v for whatever comes after. Where weights stream, but not in turns, nvcc has no register to spare, and
 * without that product's end spills more: GRU of 2816 units, 32 rows, training 6.7 ms, and 7.4 (H200, 2026-11-23). */
static bool gives_states(const persist_call *p, bool last) {
    const sli_persist_geometry *g = p->geometry;
    return !last || wants_states(p) || (sli_persist_streamed(g) > 0 && g->couriers == 0);
}

/* `last`: the call's last launch, after which there is nothing but what the call gives. */
static void set_backward(const persist_call *p, int d, bool last, persist_gradient *g, persist_way *to) {
    const step_way *way = &p->cells[d];
    const sli_step_shape *s = &way->s;
    const int step = way->reverse ? 1 : -1, t = way->reverse ? way->c0 : way->c1 - 1;
    const int from = sli_step_entering(way, t);
    to->chunk = way->chunk;
    /* The chunk that is processed first is the last in time, or, of a reverse layer, the first. */
    to->first_chunk = way->reverse ? way->chunk : way->c1 - (way->c1 - 1) / way->chunk * way->chunk;
    if (s->lstm) {
        to->c_from = sli_step_cell(way, from);
        to->c_to = sli_step_cell(way, sli_step_leaving(way, t));
        to->c_step = step * s->B * s->H;
        if (s->keep_v) to->v = sli_step_v(way, t);
        to->v_step = step * s->B * s->H;
    }
    if (s->gru) {
        to->h_from = sli_step_hidden(way, from, &to->h_row);
        to->h_step = step * s->B * to->h_row;
    }
    if (s->before) {
        to->operand_to = way->work + way->scratch.resets + (size_t)((t - way->c0) * s->B * s->hs) * s->operand;
        to->operand_step = step * s->B * s->hs;
    } else if (s->gru) {
        to->sn = sli_step_sn(way, t);
        to->sn_step = step * s->B * s->H;
        to->dr = way->work + way->scratch.dr + (size_t)((t - way->c0) * s->B * s->zs) * s->operand;
    }
    if (way->dy)
        to->dy = p->folds ? sli_persist_fold_dm_at(p, d, t) : sli_step_io(way, way->dy, t * s->B * way->y_row);
    to->dz = way->work + way->scratch.dz + (size_t)((t - way->c0) * s->B * s->zs) * s->operand;
    to->dz_step = step * s->B * s->zs;
    if (p->call->problem.bias != SL_BIAS_NONE) {
        to->sums = (float *)(way->work + p->scratch.sums);
        if (s->gru && !s->before) to->sums_n = (float *)(way->work + p->scratch.sums_n);
    }
    if (p->call->problem.peephole) to->sums_peep = (float *)(way->work + p->scratch.sums_peep);
    to->pw_from = g->pw;
    to->dp_from = g->dp;
    to->dc_from = g->dc;
    if (gives_states(p, last)) {
        to->dp_to = (float *)(way->work + way->scratch.dp);
        if (s->pointwise) to->pw_to = (float *)(way->work + way->scratch.pw);
        if (s->lstm) to->dc_to = (float *)(way->work + way->scratch.dc);
    }
    *g = persist_gradient{to->pw_to, to->dp_to, to->dc_to};
}

/* Biases and peepholes +=, or = where fresh, the sums over time of chunk number `order` in order of processing, summed over rows. */
static void add_sums(const persist_call *p, const step_way *way, int order) {
    const sli_step_shape *s = &way->s;
    const float *sums = (const float *)(way->work + p->scratch.sums) + (size_t)order * (size_t)(s->B * s->us);
    if (p->call->problem.bias != SL_BIAS_NONE) {
        const float *n = (const float *)(way->work + p->scratch.sums_n) + (size_t)order * (size_t)(s->B * s->H);
        step_bias_columns(way, sums, sums + 2 * s->H, s->us, n, s->H, s->B, false);
    }
    if (p->call->problem.peephole) {
        const float *peep = (const float *)(way->work + p->scratch.sums_peep) + (size_t)order * (size_t)(s->B * 3 * s->H);
        const step_column_sum of = {SLI_RNN_PEEPHOLE, -1, 0, peep, 3 * s->H, 3 * s->H};
        sli_step_columns(way, &of, 1, s->B, false);
    }
}

/* What is computed after the recurrence of a chunk, in any order: the part `part` of it in streams[part] of the direction's. Biases have a
 * part of their own: behind a product they would be what a call ends with. */
enum { PART_RECURRENT, PART_KERNEL, PART_INPUTS, PART_BIASES, PARTS }; /* d recurrent; d kernel; dx, of one direction */
typedef cudaStream_t part_streams[2][PARTS];

/* The chunk's memory for products of part `part`, its own if it has a stream of its own. */
static step_way part_of(const persist_call *p, const step_way *chunk, const cudaStream_t streams[PARTS], int part) {
    step_way way = *chunk;
    way.stream = streams[part];
    if (streams[part] == streams[0]) return way;
    const size_t beside = p->scratch.beside + (size_t)(part - 1) * p->scratch.beside_bytes;
    way.scratch.pad = beside;
    way.scratch.split = way.scratch.pad + sli_round_up(way.scratch.pad_bytes, SLI_PERSIST_ALIGN);
    way.scratch.workspace = way.scratch.split + sli_round_up(way.scratch.split_bytes, SLI_PERSIST_ALIGN);
    return way;
}

/* The transposed copies of a chunk, which PART_RECURRENT and PART_KERNEL read, in the stream of the first; where the parts are in
 * lanes, after the second has read those of the chunk before it. */
static void transpose(const persist_call *p, const step_way *way, bool lanes, bool again) {
    if (lanes) sli_cuda_use_lane(p->queue, PART_RECURRENT);
    if (lanes && again) sli_cuda_wait_lane(p->queue, PART_KERNEL);
    sli_step_transpose(way);
    if (!lanes) return;
    sli_cuda_pass_lane(p->queue);
    sli_cuda_use_lane(p->queue, PART_KERNEL);
    sli_cuda_wait_lane(p->queue, PART_RECURRENT);
}

static void give_inputs(const persist_call *p, const step_way *chunk, const cudaStream_t streams[PARTS], bool accumulate) {
    const step_way way = part_of(p, chunk, streams, PART_INPUTS);
    sli_step_give_inputs(&way, accumulate);
}

/* Sums over the time of chunks end - 1 .. first, chunk by chunk in order of processing. Of one direction dx too: before them where it has the longest k, since what the longest leave idle
 * at their end others fill (0.5% less in the mean of 39 layers). */
static void multiply(const persist_call *p, int first, int end, int order, const part_streams streams) {
    const persist_call piece = sli_persist_piece_at(p, first, end, order);
    const bool accumulate = p->call->accumulate >> SLI_RNN_X & 1u;
    for (int d = 0; d < p->directions; d++) {
        bool transposed = false; /* a chunk before this one: a last, short one need not be */
        for (int i = end - 1; i >= first && !sli_cuda_failed(p->queue); i--) {
            const step_way chunk = sli_persist_chunk(&piece, d, i);
            const bool lanes = streams[d][PART_RECURRENT] != streams[d][PART_KERNEL];
            const bool inputs = p->directions == 1, inputs_first = inputs && chunk.s.zs > sli_step_input_rows(&chunk);
            if (inputs_first) give_inputs(p, &chunk, streams[d], accumulate);
            step_way way = part_of(p, &chunk, streams[d], PART_RECURRENT);
            const bool transposes = sli_step_transposes(&way);
            if (transposes) transpose(p, &way, lanes, transposed);
            transposed |= transposes;
            const bool pairs = sli_step_pairs(&way);
            if (p->folds)
                sli_persist_fold_add(p, &way);
            else if (pairs)
                sli_step_add_pair(&way);
            else
                sli_step_add_recurrent(&way);
            way = part_of(p, &chunk, streams[d], PART_KERNEL);
            if (!pairs) sli_step_add_kernel(&way);
            if (transposes && lanes) sli_cuda_pass_lane(p->queue);
            way = chunk; /* no product: nothing of its own is booked */
            way.stream = streams[d][PART_BIASES];
            add_sums(&piece, &way, end - 1 - i);
            if (inputs && !inputs_first) give_inputs(p, &chunk, streams[d], accumulate);
        }
    }
}

enum { LATE_KIND, LATE_END, LATE_ORDER, LATE_PIECE };

/* The sums that the last piece of a call left. Small ones come before the products, which fill the GPU. */
static void late_sums(const sli_call *call, const int *numbers, cudaStream_t stream) {
    persist_call p;
    if (!sli_persist_enter(call, (sli_persist_kind)numbers[LATE_KIND], true, &p)) return;
    const int end = numbers[LATE_END];
    p.chunks_of_piece = numbers[LATE_PIECE]; /* as when the recurrence ran; what starts them may be a stack's launch, in lanes */
    enter_span(&p, 0);
    const persist_call piece = sli_persist_piece_at(&p, 0, end, numbers[LATE_ORDER]);
    for (int i = end - 1; i >= 0 && !sli_cuda_failed(p.queue); i--) {
        step_way chunk = sli_persist_chunk(&piece, 0, i);
        chunk.stream = stream;
        add_sums(&piece, &chunk, end - 1 - i);
        sli_step_add_sums(&chunk);
    }
}

/* The gradients of x, which the layer below waits for; then the sums, beside whatever comes. Of one direction. */
static void multiply_late(const persist_call *p, int end, int order) {
    const persist_call piece = sli_persist_piece_at(p, 0, end, order);
    const bool accumulate = p->call->accumulate >> SLI_RNN_X & 1u;
    for (int i = end - 1; i >= 0 && !sli_cuda_failed(p->queue); i--) {
        const step_way chunk = sli_persist_chunk(&piece, 0, i);
        sli_step_give_inputs(&chunk, accumulate);
    }
    const int numbers[SLI_LATE_NUMBERS] = {(int)p->kind, end, order, p->chunks_of_piece};
    sli_cuda_leave_late(p->queue, late_sums, p->call, numbers);
}

/* All parts of a direction one after the other in its stream. */
static void multiply_in_turn(const persist_call *p, int first, int end, int order, cudaStream_t forward,
                             cudaStream_t reverse) {
    part_streams streams;
    for (int part = 0; part < PARTS; part++) {
        streams[0][part] = forward;
        streams[1][part] = reverse;
    }
    multiply(p, first, end, order, streams);
}

/* Products that one by one do not fill the GPU: the parts side by side. */
static void multiply_beside(const persist_call *p, int first, int end, int order) {
    part_streams streams;
    if (sli_cuda_open_lanes(p->queue, PARTS)) {
        for (int part = 0; part < PARTS; part++) {
            sli_cuda_use_lane(p->queue, part);
            streams[0][part] = streams[1][part] = sli_cuda_stream(p->queue);
        }
        multiply(p, first, end, order, streams);
    }
    sli_cuda_close_lanes(p->queue);
}

/* dx of a span, where both directions meet: of two that hold a step the one whose span comes first writes, the other adds. */
static void give_both_inputs(const persist_call *p, int first, int end) {
    const bool accumulate = p->call->accumulate >> SLI_RNN_X & 1u;
    for (int d = 0; d < p->directions; d++)
        for (int i = end - 1; i >= first && !sli_cuda_failed(p->queue); i--) {
            const step_way chunk = sli_persist_chunk(p, d, i);
            /* The other direction comes to this chunk's steps as number `other`. Spans are counted from the end. */
            const int other = chunk.chunks - 1 - i, spans = p->chunks_of_span;
            const int own_span = i / spans, other_span = other / spans;
            const bool later = d == 0 ? other_span > own_span : other_span >= own_span;
            sli_step_give_inputs(&chunk, accumulate || later);
        }
}

/* The products that no recurrence runs beside: the parts, or the directions, side by side. */
static void multiply_last(const persist_call *p, int first, int end, int order) {
    sli_cuda_phase(p->queue, SLI_PHASE_PRODUCT);
    if (p->call->late && first == 0 && p->directions == 1 && !p->folds && !sli_cuda_in_lanes(p->queue)) {
        multiply_late(p, end, order);
        return;
    }
    if (p->scratch.beside_bytes > 0 && !sli_cuda_in_lanes(p->queue)) {
        multiply_beside(p, first, end, order);
        return;
    }
    const bool both = p->directions == 2;
    multiply_in_turn(p, first, end, order, p->ways[0].stream, both ? sli_cuda_fork(p->queue) : NULL);
    if (both) sli_cuda_join(p->queue);
}

/* x becomes an operand beside the recurrence of a span that is one chunk, on multiprocessors that this leaves: products need not wait
 * for it, which beside another product takes several times as long. */
static bool copies_beside(const persist_call *p, int first, int end) {
    const step_way *way = &p->ways[0];
    const bool multiplies = way->d_param[SLI_RNN_KERNEL] && !sli_step_transposes(way);
    return has_side(p) && end - first == 1 && way->s.copy_x && !way->s.keep_x && !way->s.recompute && multiplies &&
           !(p->call->late && first == 0) && sli_persist_idle(p->geometry, sli_cuda_caps_of(p->queue)) > 0;
}
static const void *copy_inputs(const persist_call *p, int index, cudaStream_t stream) {
    step_way way = sli_persist_chunk(p, 0, index);
    way.stream = stream;
    return sli_step_inputs(&way);
}

/* Gradients of the entering states, which only the last launch of the recurrence has to do with. */
static void finish(const persist_call *p, const persist_gradient gradients[2], cudaStream_t stream) {
    for (int d = 0; d < p->directions; d++) {
        step_way way = p->ways[d];
        way.stream = stream;
        if (p->folds && way.chunks > 0) {
            sli_persist_fold_finish(p, d, gradients[d].dc);
            continue;
        }
        sli_step_finish(&way, gradients[d].pw, {gradients[d].dp, 0, 1}, gradients[d].dc);
    }
}

static void backward_piece(const persist_call *p, int first, int end, int order, persist_gradient gradients[2]) {
    const persist_call piece = sli_persist_piece_at(p, first, end, order);
    persist_args args;
    sli_persist_args(&piece, &args);
    for (int d = 0; d < p->directions; d++) set_backward(&piece, d, first == 0, &gradients[d], &args.way[d]);
    sli_persist_launch(&piece, &args);
}

/* The span's gates, where forward did not keep them: the directions side by side. */
static void recompute(const persist_call *p, int first, int end) {
    sli_cuda_phase(p->queue, SLI_PHASE_PRODUCT);
    for (int d = 0; d < p->directions; d++) {
        cudaStream_t stream = d == 0 ? p->ways[0].stream : sli_cuda_fork(p->queue);
        for (int i = first; i < end && !sli_cuda_failed(p->queue); i++) {
            step_way chunk = sli_persist_chunk(p, d, i);
            chunk.stream = stream;
            sli_step_recompute(&chunk);
        }
    }
    if (p->directions == 2) sli_cuda_join(p->queue);
}

/* Piece by piece, the last first; beside each the products of the one before it. */
static void backward_span(persist_call *p, int first, int end, persist_gradient gradients[2]) {
    const int each = p->chunks_of_piece;
    int order = 0, before = end; /* chunks from .. before - 1 have been computed and not been multiplied */
    if (p->ways[0].s.recompute) recompute(p, first, end);
    for (int d = 0; d < p->directions && p->folds; d++)
        for (int i = first; i < end && !sli_cuda_failed(p->queue); i++)
            sli_persist_fold_dm(p, d, i, p->ways[0].stream);
    sli_cuda_phase(p->queue, SLI_PHASE_RECURRENCE);
    const bool copies = copies_beside(p, first, end);
    p->ways[0].copied_x = NULL;
    for (int from = end; from > first && !sli_cuda_failed(p->queue); order++) {
        const int to = from;
        from = to - each > first ? to - each : first;
        cudaStream_t side = to < end ? sli_cuda_fork(p->queue) : NULL;
        if (to < end || order > 0 || end < p->ways[0].chunks || p->scratch.kept_bytes == 0) sli_persist_zero_exchange(p);
        if (copies) side = sli_cuda_fork(p->queue);
        backward_piece(p, from, to, order, gradients);
        if (copies) p->ways[0].copied_x = copy_inputs(p, from, side);
        if (to < end) multiply_in_turn(p, to, before, order - 1, side, side);
        if (side) sli_cuda_join(p->queue);
        before = to;
    }
    const bool finishes = first == 0 && has_side(p) && wants_states(p) && !p->folds;
    cudaStream_t side = finishes ? sli_cuda_fork(p->queue) : NULL;
    multiply_last(p, first, before, order - 1);
    if (side) {
        finish(p, gradients, side);
        sli_cuda_join(p->queue);
    }
    if (p->directions == 2) give_both_inputs(p, first, end);
}

static void backward(const sli_call *call, sli_persist_kind kind) {
    persist_call p;
    persist_gradient gradients[2];
    if (!sli_persist_enter(call, kind, true, &p)) return;
    if (p.pair.backward_in_steps) {
        sli_gpu_step_backward(call); /* of one direction memory lies where cuda:step has it */
        return;
    }
    sli_cuda_phase(p.queue, SLI_PHASE_RECURRENCE);
    for (int d = 0; d < p.directions; d++) {
        const int part = p.ways[d].part;
        sli_step_masks(&p.ways[d]);
        if (p.ways[d].chunks == 0) sli_step_zero_fresh(&p.ways[d]);
        gradients[d].pw = p.folds && p.ways[d].chunks > 0 ? sli_persist_fold_leaving(&p, d)
                                                          : (const float *)call->d_out[SLI_RNN_STATE_OUT(part, 0)];
        gradients[d].dp = NULL;
        gradients[d].dc = p.ways[d].s.lstm ? (const float *)call->d_out[SLI_RNN_STATE_OUT(part, 1)] : NULL;
    }
    const int chunks = p.ways[0].chunks, spans = (chunks + p.chunks_of_span - 1) / p.chunks_of_span;
    for (int i = spans - 1; i >= 0 && !sli_cuda_failed(p.queue); i--) {
        const int first = i * p.chunks_of_span;
        const int end = enter_span(&p, first);
        backward_span(&p, first, end, gradients);
    }
    if (chunks == 0 || !has_side(&p) || p.folds) finish(&p, gradients, sli_cuda_stream(p.queue));
}

/* --------------------------------------------------------------------------------------------------------- pack -- */
static void pack(const sli_call *call, sli_persist_kind kind) {
    persist_call p;
    if (!sli_persist_enter(call, kind, false, &p)) return;
    for (int d = 0; d < p.directions; d++) {
        const step_way *way = &p.ways[d];
        const void *recurrent = p.folds ? sli_persist_fold_pack(&p, d) : way->param[SLI_RNN_RECURRENT];
        sli_persist_pack(&p.cells[d], &p.pair, &p.packed, recurrent, p.folds ? way->s.ms : way->s.H);
        if (way->s.recompute || (p.pair.backward_in_steps && !p.pair.steps_run)) sli_step_pack_recurrent(way);
        if (p.pair.backward_in_steps) sli_step_pack_backward(way);
    }
}

extern "C" void sli_gpu_cluster_pack(const sli_call *call) {
    pack(call, SLI_PERSIST_KIND_CLUSTER);
}
extern "C" void sli_gpu_cluster_forward(const sli_call *call) {
    forward(call, SLI_PERSIST_KIND_CLUSTER);
}
extern "C" void sli_gpu_cluster_backward(const sli_call *call) {
    backward(call, SLI_PERSIST_KIND_CLUSTER);
}
extern "C" void sli_gpu_grid_pack(const sli_call *call) {
    pack(call, SLI_PERSIST_KIND_GRID);
}
extern "C" void sli_gpu_grid_forward(const sli_call *call) {
    forward(call, SLI_PERSIST_KIND_GRID);
}
extern "C" void sli_gpu_grid_backward(const sli_call *call) {
    backward(call, SLI_PERSIST_KIND_GRID);
}
