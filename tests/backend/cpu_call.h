/* Calls of rows without a plan: random tensors for a problem string, forward and backward over segments of time, everything
 * that was written as one array of floats to compare. For the tests of the CPU rows. */
#ifndef CPU_CALL_H
#define CPU_CALL_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/isa/isa.h"
#include "backend/ref/ref.h"
#include "test.h"

enum { CALL_PARTS = 32 };
typedef struct call_part {
    const char *name;
    float *data;
    size_t count;
} call_part; /* what a row wrote */

typedef struct call_result {
    call_part parts[CALL_PARTS];
    int count;
} call_result;

typedef struct call_setup {
    const char *text;   /* problem */
    int chunk, segment; /* steps; segment 0 = all at once */
    int threads;
    const sl_thread_pool *pool; /* of which so many threads are taken into account; NULL: our own */
    sli_isa isa;
    bool blas;
    bool no_dx;
    bool bad_recurrent;                            /* R is no number */
    bool no_d_states;                              /* nobody wants the initial states' gradients */
    enum { CALL_RANDOM, CALL_ZERO, CALL_LAST } h0; /* LAST: 0 but for the last number */
    const sli_isa_ops *ops;                        /* in place of the instruction set's; NULL */
    const struct sli_fused_split *split;           /* of cpu:fused; NULL: as predicted */
    unsigned accumulate;
    unsigned frozen; /* bit k: the gradient of recurrent parameter k is not wanted */
} call_setup;

/* The row of this name, or, NULL, the first one. */
static inline const sli_kernel *call_row(const sli_kernel *const *rows, sli_op op, const char *name) {
    for (; *rows; rows++)
        if ((*rows)->op == op && (!name || strcmp((*rows)->name, name) == 0)) return *rows;
    return NULL;
}

static inline float *call_keep(call_result *result, const char *name, size_t count, uint64_t *seed, double scale) {
    float *data = sli_alloc_zero(NULL, (count ? count : 1) * sizeof *data);
    REQUIRE(data != NULL && result->count < CALL_PARTS);
    for (size_t i = 0; i < count && seed; i++) data[i] = (float)(scale * test_random(seed));
    result->parts[result->count++] = (call_part){name, data, count};
    return data;
}

static inline void call_free(call_result *result) {
    for (int i = 0; i < result->count; i++)
        sli_free(NULL, result->parts[i].data, (result->parts[i].count ? result->parts[i].count : 1) * sizeof(float));
    result->count = 0;
}

/* rms of the difference over rms of `expected`, part by part. */
static inline void call_compare(const call_result *got, const call_result *expected, double tolerance,
                                const char *what) {
    REQUIRE(got->count == expected->count);
    for (int i = 0; i < got->count; i++) {
        double difference = 0, size = 0;
        for (size_t k = 0; k < got->parts[i].count; k++) {
            double e = (double)expected->parts[i].data[k], d = (double)got->parts[i].data[k] - e;
            difference += d * d;
            size += e * e;
        }
        if (!(sqrt(difference) <= tolerance * sqrt(size) + 1e-7))
            test_fail(__FILE__, __LINE__, "%s: %s is off by %g (relative rms, allowed %g)", what, got->parts[i].name,
                      sqrt(difference / (size > 0 ? size : 1)), tolerance);
    }
}

static inline void call_same_bits(const call_result *a, const call_result *b, const char *what) {
    REQUIRE(a->count == b->count);
    for (int i = 0; i < a->count; i++)
        if (memcmp(a->parts[i].data, b->parts[i].data, a->parts[i].count * sizeof(float)) != 0)
            test_fail(__FILE__, __LINE__, "%s: %s has other bits", what, a->parts[i].name);
}

typedef struct call_memory {
    void *saved, *scratch, *packed;
    sli_booking booking;
    size_t bytes;
} call_memory;

static inline size_t call_scratch(const sli_booking *booking) {
    return booking->scratch_forward > booking->scratch_backward ? booking->scratch_forward : booking->scratch_backward;
}

/* Books for a segment and fills the memory with junk: a row may not count on zeros. */
static inline void call_book(const sli_kernel *row, const sli_problem *p, const sli_caps *caps, int chunk,
                             call_memory *memory) {
    memset(memory, 0, sizeof *memory);
    if (row->book) row->book(p, caps, chunk, &memory->booking);
    size_t scratch = call_scratch(&memory->booking);
    void **blocks[3] = {&memory->saved, &memory->scratch, &memory->packed};
    size_t sizes[3] = {memory->booking.saved, scratch, memory->booking.packed};
    for (int i = 0; i < 3; i++) {
        /* Exactly as booked, from malloc, so that an overrun is found by asan. */
        *blocks[i] = sizes[i] ? aligned_alloc(SLI_ALIGN, sli_round_up(sizes[i], SLI_ALIGN)) : NULL;
        if (*blocks[i]) memset(*blocks[i], 0xff, sizes[i]); /* no number, of 32 bits or of 16 */
    }
}

static inline void call_unbook(call_memory *memory) {
    free(memory->saved);
    free(memory->scratch);
    free(memory->packed);
}

/* What both kinds of problems are computed with. */
typedef struct call_engine {
    const sli_kernel *row;
    const call_setup *setup;
    sli_problem p;
    sli_caps caps;
    sli_cpu cpu;
    sli_threads *threads;
    int segment, segments;
    call_memory memory;
} call_engine;

static inline void call_begin(call_engine *e, const sli_kernel *row, const call_setup *setup) {
    sli_why why;
    e->row = row;
    e->setup = setup;
    REQUIRE_OK(sli_problem_parse(setup->text, &e->p));
    REQUIRE_OK(sli_cpu_caps("cpu", setup->threads, &e->caps));
    e->caps.isa = setup->isa;
    REQUIRE(row->eligible(&e->p, &e->caps, &why));
    sli_cpu_engine(setup->isa, setup->blas, &e->cpu);
    if (setup->ops) e->cpu.ops = setup->ops;
    e->cpu.split = setup->split;
    if (setup->pool)
        REQUIRE_OK(sli_threads_over(NULL, setup->pool, setup->threads, &e->threads));
    else
        REQUIRE_OK(sli_threads_new(NULL, setup->threads, &e->threads));
    const int steps = e->p.steps > 0 ? e->p.steps : 1;
    e->segment = setup->segment ? setup->segment : steps;
    e->segments = (steps + e->segment - 1) / e->segment;
    sli_problem booked = e->p;
    if (booked.steps > 0) booked.steps = e->segment;
    call_book(row, &booked, &e->caps, setup->chunk, &e->memory);
}

static inline void call_end(call_engine *e) {
    call_unbook(&e->memory);
    sli_threads_free(e->threads);
}

static inline sli_call call_base(call_engine *e, const sli_scalars *scalars, sli_metrics *metrics) {
    return (sli_call){.problem = e->p,
                      .chunk = e->setup->chunk,
                      .total_steps = e->p.steps > 0 ? e->p.steps : 1,
                      .training = e->p.train,
                      .saved = e->memory.saved,
                      .scratch = e->memory.scratch,
                      .scratch_bytes = call_scratch(&e->memory.booking),
                      .operands = e->p.dtype == SL_BF16 || e->p.dtype == SL_I8 ? e->p.dtype : SL_DTYPE_DEFAULT,
                      .packed = e->memory.packed,
                      .scalars = scalars,
                      .metrics = metrics,
                      .threads = e->threads,
                      .cpu = &e->cpu};
}

/* ------------------------------------------------------------------------------------------- recurrent problems -- */
typedef struct call_rnn {
    call_engine engine;
    call_result in;
    size_t x_step, y_step, c_step; /* elements of a step */
    float *x, *h0, *c0, *kernel, *recurrent, *bias, *recurrent_bias, *projection, *dy, *dht, *dct;
    int32_t *lengths;
    uint8_t *mask;
    float *y, *ht, *ct, *dx, *d_kernel, *d_recurrent, *d_bias, *d_recurrent_bias, *d_projection, *dh, *dc;
    float *hs, *cs; /* states between segments */
    bool lstm;
} call_rnn;

static inline void call_draw_inputs(call_rnn *r, uint64_t *seed) {
    const sli_problem *p = &r->engine.p;
    const size_t tb = (size_t)p->steps * (size_t)p->batch, bh = r->y_step, bc = r->c_step, H = (size_t)p->units;
    const size_t gates = (size_t)sli_op_gates(p->op) * H, O = (size_t)sli_problem_output(p);
    r->x = call_keep(&r->in, "x", tb * (size_t)p->inputs, seed, 1);
    r->h0 = call_keep(&r->in, "h0", bh, seed, 0.5);
    for (size_t i = 0; i < bh && r->engine.setup->h0 != CALL_RANDOM; i++)
        if (r->engine.setup->h0 == CALL_ZERO || i + 1 < bh) r->h0[i] = 0;
    r->c0 = call_keep(&r->in, "c0", bc, seed, 0.5);
    r->kernel = call_keep(&r->in, "kernel", gates * (size_t)p->inputs, seed, 0.4);
    r->recurrent = call_keep(&r->in, "recurrent", gates * O, seed, 0.3);
    for (size_t i = 0; i < gates * O && r->engine.setup->bad_recurrent; i++) r->recurrent[i] = NAN;
    r->bias = call_keep(&r->in, "bias", gates, seed, 0.3);
    r->recurrent_bias = call_keep(&r->in, "recurrent_bias", gates, seed, 0.3);
    r->projection = call_keep(&r->in, "projection", (size_t)p->projection * H, seed, 0.3);
    r->dy = call_keep(&r->in, "dy", tb * O, seed, 0.5);
    r->dht = call_keep(&r->in, "dht", bh, seed, 0.5);
    r->dct = call_keep(&r->in, "dct", bc, seed, 0.5);
    r->lengths = calloc((size_t)p->batch, sizeof *r->lengths);
    r->mask = calloc(tb, 1);
    for (int b = 0; b < p->batch; b++)
        r->lengths[b] = b == 0 ? p->steps : b == 1 ? 0 : (int)((test_random(seed) + 1) * 0.5 * p->steps);
    for (size_t k = 0; k < tb; k++) r->mask[k] = test_random(seed) > -0.4;
}

static inline void call_make_outputs(call_rnn *r, call_result *result, uint64_t *seed) {
    const sli_problem *p = &r->engine.p;
    const size_t tb = (size_t)p->steps * (size_t)p->batch, bh = r->y_step, bc = r->c_step, H = (size_t)p->units;
    const size_t gates = (size_t)sli_op_gates(p->op) * H, O = (size_t)sli_problem_output(p),
                 states = (size_t)r->engine.segments + 1;
    r->y = call_keep(result, "y", tb * O, NULL, 0);
    r->ht = call_keep(result, "ht", bh, NULL, 0);
    r->ct = call_keep(result, "ct", r->lstm ? bc : 0, NULL, 0);
    r->dx = call_keep(result, "dx", p->train && !r->engine.setup->no_dx ? tb * (size_t)p->inputs : 0, seed, 1);
    r->d_kernel = call_keep(result, "d_kernel", gates * (size_t)p->inputs, seed, 1);
    r->d_recurrent = call_keep(result, "d_recurrent", gates * O, seed, 1);
    r->d_bias = call_keep(result, "d_bias", gates, seed, 1);
    r->d_recurrent_bias = call_keep(result, "d_recurrent_bias", gates, seed, 1);
    r->d_projection = call_keep(result, "d_projection", (size_t)p->projection * H, seed, 1);
    r->dh = call_keep(result, "dh0", bh, NULL, 0);
    r->dc = call_keep(result, "dc0", r->lstm ? bc : 0, NULL, 0);
    r->hs = calloc(states * bh, sizeof *r->hs);
    r->cs = calloc(states * bc, sizeof *r->cs);
    memcpy(r->hs, r->h0, bh * sizeof *r->hs);
    memcpy(r->cs, r->c0, bc * sizeof *r->cs);
}

static inline void call_set_params(const call_rnn *r, sli_call *call) {
    const sli_problem *p = &r->engine.p;
    call->param[SLI_RNN_KERNEL] = r->kernel;
    call->param[SLI_RNN_RECURRENT] = r->recurrent;
    call->d_param[SLI_RNN_KERNEL] = r->d_kernel;
    call->d_param[SLI_RNN_RECURRENT] = r->d_recurrent;
    if (p->bias != SL_BIAS_NONE) {
        call->param[SLI_RNN_BIAS] = r->bias;
        call->d_param[SLI_RNN_BIAS] = r->d_bias;
    }
    if (p->bias == SL_BIAS_DOUBLE) {
        call->param[SLI_RNN_RECURRENT_BIAS] = r->recurrent_bias;
        call->d_param[SLI_RNN_RECURRENT_BIAS] = r->d_recurrent_bias;
    }
    if (p->projection > 0) {
        call->param[SLI_RNN_PROJECTION] = r->projection;
        call->d_param[SLI_RNN_PROJECTION] = r->d_projection;
    }
    for (int k = 0; k < SLI_PART_PARAMS; k++)
        if (r->engine.setup->frozen >> k & 1) call->d_param[k] = NULL;
}

/* Segment s in order of processing: its forward, or, on the way back, that again and its backward. */
static inline void call_segment(call_rnn *r, sli_call call, int s, bool back) {
    const sli_problem *p = &r->engine.p;
    const size_t bh = r->y_step, bc = r->c_step;
    const int segment = r->engine.segment, segments = r->engine.segments;
    const int place = p->reverse ? segments - 1 - s : s, t0 = place * segment; /* in time */
    call.problem.steps = t0 + segment < p->steps ? segment : p->steps - t0;
    call.t0 = t0;
    call.recompute = back;
    call.in[SLI_RNN_X] = r->x + (size_t)t0 * r->x_step;
    call.in[SLI_RNN_H0] = r->hs + (size_t)s * bh;
    call.in[SLI_RNN_C0] = r->lstm ? r->cs + (size_t)s * bc : NULL;
    if (p->mask == SLI_MASK_LENGTHS) call.in[SLI_RNN_LENGTHS] = r->lengths;
    if (p->mask > SLI_MASK_LENGTHS) call.in[SLI_RNN_MASK] = r->mask + (size_t)t0 * (size_t)p->batch;
    call.out[SLI_RNN_Y] = r->y + (size_t)t0 * bh;
    call.out[SLI_RNN_HT] = r->hs + (size_t)(s + 1) * bh;
    call.out[SLI_RNN_CT] = r->lstm ? r->cs + (size_t)(s + 1) * bc : NULL;
    if (!back || segments > 1) r->engine.row->forward(&call);
    if (!back) return;
    if (s == segments - 1) {
        memcpy(r->dh, r->dht, bh * sizeof *r->dh);
        if (r->lstm) memcpy(r->dc, r->dct, bc * sizeof *r->dc);
    }
    call.d_out[SLI_RNN_Y] = r->dy + (size_t)t0 * bh;
    call.d_out[SLI_RNN_HT] = call.d_in[SLI_RNN_H0] = r->dh;
    call.d_out[SLI_RNN_CT] = call.d_in[SLI_RNN_C0] = r->lstm ? r->dc : NULL;
    if (s == 0 && r->engine.setup->no_d_states) call.d_in[SLI_RNN_H0] = call.d_in[SLI_RNN_C0] = NULL;
    call.d_in[SLI_RNN_X] = r->engine.setup->no_dx ? NULL : r->dx + (size_t)t0 * r->x_step;
    call.accumulate = r->engine.setup->accumulate;
    r->engine.row->backward(&call);
}

/* Forward, and backward if the problem trains, segment by segment as a plan does it. */
static inline void call_recurrent(const sli_kernel *row, const call_setup *setup, call_result *result) {
    call_rnn r = {.in = {.count = 0}};
    uint64_t seed = test_seed;
    call_begin(&r.engine, row, setup);
    const sli_problem *p = &r.engine.p;
    r.lstm = p->op == SLI_OP_LSTM;
    r.x_step = (size_t)p->batch * (size_t)p->inputs;
    r.y_step = (size_t)p->batch * (size_t)sli_problem_output(p);
    r.c_step = (size_t)p->batch * (size_t)p->units;
    call_draw_inputs(&r, &seed);
    call_make_outputs(&r, result, &seed);
    const sli_scalars scalars = {.seed = 5, .step = 3, .loss_scale = 1};
    sli_metrics metrics = {0};
    sli_call base = call_base(&r.engine, &scalars, &metrics);
    call_set_params(&r, &base);
    if (row->pack) row->pack(&base);
    const int segments = r.engine.segments;
    for (int s = 0; s < segments; s++) call_segment(&r, base, s, false);
    for (int s = segments - 1; s >= 0 && p->train; s--) call_segment(&r, base, s, true);
    memcpy(r.ht, r.hs + (size_t)segments * r.y_step, r.y_step * sizeof *r.ht);
    if (r.lstm) memcpy(r.ct, r.cs + (size_t)segments * r.c_step, r.c_step * sizeof *r.ct);
    free(r.hs);
    free(r.cs);
    free(r.lengths);
    free(r.mask);
    call_free(&r.in);
    call_end(&r.engine);
}

/* ------------------------------------------------------------------------------------------- problems with one input --
 * dense, embed, onehot, dropout, xent, bce, mse: forward over segments, then backward over segments, last first. */
typedef struct call_one {
    call_engine engine;
    call_result in;
    bool dense, loss, integer, weighted; /* weighted: dense or embed */
    size_t rows, in_width, width;
    float *x, *kernel, *bias, *dy, *target, *y, *sums, *dx, *d_kernel, *d_bias;
    int32_t *tokens, *lengths;
} call_one;

static inline void call_draw_one(call_one *u, call_result *result, uint64_t *seed) {
    const sli_problem *p = &u->engine.p;
    const size_t weights = u->weighted ? (size_t)p->inputs * (size_t)p->units : 0, tb = u->rows;
    const int steps = p->steps > 0 ? p->steps : 1;
    u->x = call_keep(&u->in, "x", tb * u->in_width, seed, u->loss ? 6 : 1);
    u->kernel = call_keep(&u->in, "kernel", weights, seed, 0.4);
    u->bias = call_keep(&u->in, "bias", u->width, seed, 0.4);
    u->dy = call_keep(&u->in, "dy", tb * u->width, seed, 1);
    u->target = call_keep(&u->in, "target", tb * u->width, seed, 1);
    u->tokens = calloc(tb, sizeof *u->tokens);
    u->lengths = calloc((size_t)p->batch, sizeof *u->lengths);
    for (size_t k = 0; k < tb; k++) /* losses: some labels are ignored */
        u->tokens[k] = u->loss ? (int32_t)((test_random(seed) + 1) * 0.49 * (p->units + 1)) - 1
                               : (int32_t)((test_random(seed) + 1) * 0.49 * p->inputs);
    for (int b = 0; b < p->batch; b++) u->lengths[b] = (int32_t)((test_random(seed) + 1) * 0.5 * steps);
    u->y = call_keep(result, "y", u->loss ? 0 : tb * u->width, NULL, 0);
    u->sums = call_keep(result, "loss, count, correct", 3, NULL, 0);
    u->dx = call_keep(result, "dx", u->integer || u->engine.setup->no_dx ? 0 : tb * u->in_width, seed, 1);
    u->d_kernel = call_keep(result, "d_kernel", weights, seed, 1);
    u->d_bias = call_keep(result, "d_bias", u->width, seed, 1);
}

static inline void call_one_segment(call_one *u, sli_call call, int s, bool back) {
    const sli_problem *p = &u->engine.p;
    const int segment = u->engine.segment, t0 = s * segment;
    const size_t at = (size_t)t0 * (size_t)p->batch;
    call.t0 = t0;
    call.recompute = back;
    if (p->steps > 0) call.problem.steps = t0 + segment < p->steps ? segment : p->steps - t0;
    call.in[0] = u->integer ? (const void *)(u->tokens + at) : (const void *)(u->x + at * u->in_width);
    if (u->loss)
        call.in[SLI_LOSS_TARGET] =
            p->op == SLI_OP_XENT ? (void *)(u->tokens + at) : (void *)(u->target + at * u->width);
    if (p->mask == SLI_MASK_LENGTHS) call.in[SLI_LOSS_LENGTHS] = u->lengths;
    call.out[0] = u->loss ? NULL : u->y + at * u->width;
    if (u->weighted) call.param[0] = u->kernel;
    if (u->dense && !p->no_bias) call.param[SLI_DENSE_BIAS] = u->bias;
    if (!back || u->engine.segments > 1) u->engine.row->forward(&call);
    if (!back || !u->engine.row->backward) return;
    call.d_out[0] = u->loss ? NULL : u->dy + at * u->width;
    call.d_in[0] = u->integer || u->engine.setup->no_dx ? NULL : u->dx + at * u->in_width;
    call.accumulate = u->engine.setup->accumulate;
    if (u->weighted) call.d_param[0] = u->d_kernel;
    if (u->dense && !p->no_bias) call.d_param[SLI_DENSE_BIAS] = u->d_bias;
    u->engine.row->backward(&call);
}

static inline void call_unary(const sli_kernel *row, const call_setup *setup, call_result *result) {
    call_one u = {.in = {.count = 0}};
    uint64_t seed = test_seed;
    call_begin(&u.engine, row, setup);
    const sli_problem *p = &u.engine.p;
    const bool embed = p->op == SLI_OP_EMBED, onehot = p->op == SLI_OP_ONEHOT;
    u.dense = p->op == SLI_OP_DENSE;
    u.loss = p->op == SLI_OP_XENT || p->op == SLI_OP_BCE || p->op == SLI_OP_MSE;
    u.integer = embed || onehot;
    u.weighted = u.dense || embed;
    u.rows = (size_t)(p->steps > 0 ? p->steps : 1) * (size_t)p->batch;
    u.in_width = (size_t)(u.dense ? p->inputs : u.integer ? 1 : p->units);
    u.width = (size_t)(onehot ? p->inputs : p->units);
    call_draw_one(&u, result, &seed);
    const sli_scalars scalars = {.seed = 5, .step = 3, .micro_step = 1, .loss_scale = 0.125};
    sli_metrics metrics = {0};
    sli_call base = call_base(&u.engine, &scalars, &metrics);
    base.rng_layer = 2 << 8;
    base.param[0] = u.kernel; /* dense and embed */
    if (row->pack) row->pack(&base);
    for (int s = 0; s < u.engine.segments; s++) call_one_segment(&u, base, s, false);
    for (int s = u.engine.segments - 1; s >= 0 && p->train; s--) call_one_segment(&u, base, s, true);
    u.sums[0] = (float)metrics.loss_sum;
    u.sums[1] = (float)metrics.count;
    u.sums[2] = (float)metrics.correct;
    free(u.tokens);
    free(u.lengths);
    call_free(&u.in);
    call_end(&u.engine);
}

#endif
