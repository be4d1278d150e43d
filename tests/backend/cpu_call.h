/* Calls of rows without a plan: random tensors for a problem string, forward and backward over segments of time, everything
 * that was written as one array of floats to compare. For the tests of the CPU rows. */
#ifndef CPU_CALL_H
#define CPU_CALL_H

#include "backend/cpu/cpu.h"
#include "backend/ref/ref.h"
#include "test.h"

enum { CALL_PARTS = 24 };
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
    sli_isa isa;
    bool blas;
    bool no_dx;
    unsigned accumulate;
} call_setup;

static inline const sli_kernel *call_row(const sli_kernel *const *rows, sli_op op) {
    for (; *rows; rows++)
        if ((*rows)->op == op) return *rows;
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

/* Books for a segment and fills the memory with junk: a row may not count on zeros. */
static inline void call_book(const sli_kernel *row, const sli_problem *p, const sli_caps *caps, int chunk,
                             call_memory *memory) {
    memset(memory, 0, sizeof *memory);
    if (row->book) row->book(p, caps, chunk, &memory->booking);
    size_t scratch = memory->booking.scratch_forward > memory->booking.scratch_backward
                         ? memory->booking.scratch_forward
                         : memory->booking.scratch_backward;
    void **blocks[3] = {&memory->saved, &memory->scratch, &memory->packed};
    size_t sizes[3] = {memory->booking.saved, scratch, memory->booking.packed};
    for (int i = 0; i < 3; i++) {
        /* Exactly as booked, from malloc, so that an overrun is found by asan. */
        *blocks[i] = sizes[i] ? aligned_alloc(SLI_ALIGN, sli_round_up(sizes[i], SLI_ALIGN)) : NULL;
        if (*blocks[i]) memset(*blocks[i], 0x7b, sizes[i]);
    }
}

static inline void call_unbook(call_memory *memory) {
    free(memory->saved);
    free(memory->scratch);
    free(memory->packed);
}

/* ------------------------------------------------------------------------------------------- recurrent problems -- */
/* Forward, and backward if the problem trains, segment by segment as a plan does it. */
static inline void call_recurrent(const sli_kernel *row, const call_setup *setup, call_result *result) {
    sli_problem p;
    REQUIRE_OK(sli_problem_parse(setup->text, &p));
    sli_caps caps;
    REQUIRE_OK(sli_cpu_caps("cpu", setup->threads, &caps));
    caps.isa = setup->isa;
    sli_why why;
    REQUIRE(row->eligible(&p, &caps, &why));
    sli_cpu engine;
    sli_cpu_engine(setup->isa, setup->blas, &engine);
    sli_threads *threads;
    REQUIRE_OK(sli_threads_new(NULL, setup->threads, &threads));

    const int T = p.steps, B = p.batch, I = p.inputs, H = p.units, G = sli_op_gates(p.op);
    const size_t tb = (size_t)T * (size_t)B, bh = (size_t)B * (size_t)H;
    const bool lstm = p.op == SLI_OP_LSTM;
    uint64_t seed = test_seed;
    call_result in = {.count = 0};
    float *x = call_keep(&in, "x", tb * (size_t)I, &seed, 1), *h0 = call_keep(&in, "h0", bh, &seed, 0.5);
    float *c0 = call_keep(&in, "c0", bh, &seed, 0.5);
    float *kernel = call_keep(&in, "kernel", (size_t)(G * H) * (size_t)I, &seed, 0.4);
    float *recurrent = call_keep(&in, "recurrent", (size_t)(G * H) * (size_t)H, &seed, 0.3);
    float *bias = call_keep(&in, "bias", (size_t)(G * H), &seed, 0.3);
    float *recurrent_bias = call_keep(&in, "recurrent_bias", (size_t)(G * H), &seed, 0.3);
    float *dy = call_keep(&in, "dy", tb * (size_t)H, &seed, 0.5);
    float *dht = call_keep(&in, "dht", bh, &seed, 0.5), *dct = call_keep(&in, "dct", bh, &seed, 0.5);
    int32_t *lengths = calloc((size_t)B, sizeof *lengths);
    uint8_t *mask = calloc(tb, 1);
    for (int b = 0; b < B; b++) lengths[b] = b == 0 ? T : b == 1 ? 0 : (int)((test_random(&seed) + 1) * 0.5 * T);
    for (size_t k = 0; k < tb; k++) mask[k] = test_random(&seed) > -0.4;

    float *y = call_keep(result, "y", tb * (size_t)H, NULL, 0);
    float *ht = call_keep(result, "ht", bh, NULL, 0), *ct = call_keep(result, "ct", lstm ? bh : 0, NULL, 0);
    float *dx = call_keep(result, "dx", p.train && !setup->no_dx ? tb * (size_t)I : 0, &seed, 1);
    float *d_kernel = call_keep(result, "d_kernel", (size_t)(G * H) * (size_t)I, &seed, 1);
    float *d_recurrent = call_keep(result, "d_recurrent", (size_t)(G * H) * (size_t)H, &seed, 1);
    float *d_bias = call_keep(result, "d_bias", (size_t)(G * H), &seed, 1);
    float *d_recurrent_bias = call_keep(result, "d_recurrent_bias", (size_t)(G * H), &seed, 1);
    float *dh = call_keep(result, "dh0", bh, NULL, 0), *dc = call_keep(result, "dc0", lstm ? bh : 0, NULL, 0);

    const int segment = setup->segment ? setup->segment : T, segments = (T + segment - 1) / segment;
    float *hs = calloc((size_t)(segments + 1) * bh, sizeof *hs), *cs = calloc((size_t)(segments + 1) * bh, sizeof *cs);
    memcpy(hs, h0, bh * sizeof *hs);
    memcpy(cs, c0, bh * sizeof *cs);
    sli_problem booked = p;
    booked.steps = segment;
    call_memory memory;
    call_book(row, &booked, &caps, setup->chunk, &memory);
    const sli_scalars scalars = {.seed = 5, .step = 3, .loss_scale = 1};
    sli_metrics metrics = {0};
    sli_call base = {.problem = p,
                     .chunk = setup->chunk,
                     .total_steps = T,
                     .training = p.train,
                     .saved = memory.saved,
                     .scratch = memory.scratch,
                     .packed = memory.packed,
                     .scalars = &scalars,
                     .metrics = &metrics,
                     .threads = threads,
                     .cpu = &engine};
    base.param[SLI_RNN_KERNEL] = kernel;
    base.param[SLI_RNN_RECURRENT] = recurrent;
    if (p.bias != SL_BIAS_NONE) base.param[SLI_RNN_BIAS] = bias;
    if (p.bias == SL_BIAS_DOUBLE) base.param[SLI_RNN_RECURRENT_BIAS] = recurrent_bias;
    if (row->pack) row->pack(&base);
    for (int pass = 0; pass < 2 * segments; pass++) { /* forward 0.., then recompute and backward, last first */
        const bool back = pass >= segments;
        if (back && !p.train) break;
        const int s = back ? 2 * segments - 1 - pass : pass; /* in order of processing */
        const int place = p.reverse ? segments - 1 - s : s;  /* in time */
        const int t0 = place * segment, steps = t0 + segment < T ? segment : T - t0;
        sli_call call = base;
        call.problem.steps = steps;
        call.t0 = t0;
        call.recompute = back;
        call.in[SLI_RNN_X] = x + (size_t)t0 * (size_t)(B * I);
        call.in[SLI_RNN_H0] = hs + (size_t)s * bh;
        call.in[SLI_RNN_C0] = lstm ? cs + (size_t)s * bh : NULL;
        if (p.mask == SLI_MASK_LENGTHS) call.in[SLI_RNN_LENGTHS] = lengths;
        if (p.mask > SLI_MASK_LENGTHS) call.in[SLI_RNN_MASK] = mask + (size_t)t0 * (size_t)B;
        call.out[SLI_RNN_Y] = y + (size_t)t0 * bh;
        call.out[SLI_RNN_HT] = hs + (size_t)(s + 1) * bh;
        call.out[SLI_RNN_CT] = lstm ? cs + (size_t)(s + 1) * bh : NULL;
        if (!back || segments > 1) row->forward(&call);
        if (!back) continue;
        if (s == segments - 1) {
            memcpy(dh, dht, bh * sizeof *dh);
            if (lstm) memcpy(dc, dct, bh * sizeof *dc);
        }
        call.d_out[SLI_RNN_Y] = dy + (size_t)t0 * bh;
        call.d_out[SLI_RNN_HT] = call.d_in[SLI_RNN_H0] = dh;
        call.d_out[SLI_RNN_CT] = call.d_in[SLI_RNN_C0] = lstm ? dc : NULL;
        call.d_in[SLI_RNN_X] = setup->no_dx ? NULL : dx + (size_t)t0 * (size_t)(B * I);
        call.accumulate = setup->accumulate;
        call.d_param[SLI_RNN_KERNEL] = d_kernel;
        call.d_param[SLI_RNN_RECURRENT] = d_recurrent;
        if (p.bias != SL_BIAS_NONE) call.d_param[SLI_RNN_BIAS] = d_bias;
        if (p.bias == SL_BIAS_DOUBLE) call.d_param[SLI_RNN_RECURRENT_BIAS] = d_recurrent_bias;
        row->backward(&call);
    }
    memcpy(ht, hs + (size_t)segments * bh, bh * sizeof *ht);
    if (lstm) memcpy(ct, cs + (size_t)segments * bh, bh * sizeof *ct);
    call_unbook(&memory);
    free(hs);
    free(cs);
    free(lengths);
    free(mask);
    call_free(&in);
    sli_threads_free(threads);
}

/* ------------------------------------------------------------------------------------------- problems with one input --
 * dense, embed, onehot, dropout, xent, bce, mse: forward over segments, then backward over segments, last first. */
static inline void call_unary(const sli_kernel *row, const call_setup *setup, call_result *result) {
    sli_problem p;
    REQUIRE_OK(sli_problem_parse(setup->text, &p));
    sli_caps caps;
    REQUIRE_OK(sli_cpu_caps("cpu", setup->threads, &caps));
    caps.isa = setup->isa;
    sli_why why;
    REQUIRE(row->eligible(&p, &caps, &why));
    sli_cpu engine;
    sli_cpu_engine(setup->isa, setup->blas, &engine);
    sli_threads *threads;
    REQUIRE_OK(sli_threads_new(NULL, setup->threads, &threads));

    const int T = p.steps > 0 ? p.steps : 1, B = p.batch;
    const bool dense = p.op == SLI_OP_DENSE, embed = p.op == SLI_OP_EMBED, onehot = p.op == SLI_OP_ONEHOT;
    const bool loss = p.op == SLI_OP_XENT || p.op == SLI_OP_BCE || p.op == SLI_OP_MSE, integer = embed || onehot;
    const size_t tb = (size_t)T * (size_t)B, in_width = (size_t)(dense ? p.inputs : integer ? 1 : p.units);
    const size_t width = (size_t)(onehot ? p.inputs : p.units), weights = (size_t)p.inputs * (size_t)p.units;
    uint64_t seed = test_seed;
    call_result in = {.count = 0};
    float *x = call_keep(&in, "x", tb * in_width, &seed, loss ? 6 : 1);
    float *kernel = call_keep(&in, "kernel", dense || embed ? weights : 0, &seed, 0.4);
    float *bias = call_keep(&in, "bias", width, &seed, 0.4), *dy = call_keep(&in, "dy", tb * width, &seed, 1);
    float *target = call_keep(&in, "target", tb * width, &seed, 1);
    int32_t *tokens = calloc(tb, sizeof *tokens), *lengths = calloc((size_t)B, sizeof *lengths);
    for (size_t k = 0; k < tb; k++) /* losses: some labels are ignored */
        tokens[k] = loss ? (int32_t)((test_random(&seed) + 1) * 0.49 * (p.units + 1)) - 1
                         : (int32_t)((test_random(&seed) + 1) * 0.49 * p.inputs);
    for (int b = 0; b < B; b++) lengths[b] = (int32_t)((test_random(&seed) + 1) * 0.5 * T);

    float *y = call_keep(result, "y", loss ? 0 : tb * width, NULL, 0);
    float *sums = call_keep(result, "loss, count, correct", 3, NULL, 0);
    float *dx = call_keep(result, "dx", integer || setup->no_dx ? 0 : tb * in_width, &seed, 1);
    float *d_kernel = call_keep(result, "d_kernel", dense || embed ? weights : 0, &seed, 1);
    float *d_bias = call_keep(result, "d_bias", width, &seed, 1);

    const int segment = setup->segment ? setup->segment : T, segments = (T + segment - 1) / segment;
    sli_problem booked = p;
    if (p.steps > 0) booked.steps = segment;
    call_memory memory;
    call_book(row, &booked, &caps, setup->chunk, &memory);
    const sli_scalars scalars = {.seed = 5, .step = 3, .micro_step = 1, .loss_scale = 0.125};
    sli_metrics metrics = {0};
    for (int pass = 0; pass < 2 * segments; pass++) {
        const bool back = pass >= segments;
        if (back && !p.train) break;
        const int s = back ? 2 * segments - 1 - pass : pass, t0 = s * segment;
        const int steps = t0 + segment < T ? segment : T - t0;
        const size_t at = (size_t)t0 * (size_t)B;
        sli_call call = {.problem = p,
                         .chunk = setup->chunk,
                         .t0 = t0,
                         .total_steps = T,
                         .training = p.train,
                         .recompute = back,
                         .rng_layer = 2 << 8,
                         .saved = memory.saved,
                         .scratch = memory.scratch,
                         .scalars = &scalars,
                         .metrics = &metrics,
                         .threads = threads,
                         .cpu = &engine};
        if (p.steps > 0) call.problem.steps = steps;
        call.in[0] = integer ? (const void *)(tokens + at) : (const void *)(x + at * in_width);
        if (loss)
            call.in[SLI_LOSS_TARGET] = p.op == SLI_OP_XENT ? (void *)(tokens + at) : (void *)(target + at * width);
        if (p.mask == SLI_MASK_LENGTHS) call.in[SLI_LOSS_LENGTHS] = lengths;
        call.out[0] = loss ? NULL : y + at * width;
        if (dense || embed) call.param[0] = kernel;
        if (dense && !p.no_bias) call.param[SLI_DENSE_BIAS] = bias;
        if (!back || segments > 1) row->forward(&call);
        if (!back || !row->backward) continue;
        call.d_out[0] = loss ? NULL : dy + at * width;
        call.d_in[0] = integer || setup->no_dx ? NULL : dx + at * in_width;
        call.accumulate = setup->accumulate;
        if (dense || embed) call.d_param[0] = d_kernel;
        if (dense && !p.no_bias) call.d_param[SLI_DENSE_BIAS] = d_bias;
        row->backward(&call);
    }
    sums[0] = (float)metrics.loss_sum;
    sums[1] = (float)metrics.count;
    sums[2] = (float)metrics.correct;
    call_unbook(&memory);
    free(tokens);
    free(lengths);
    call_free(&in);
    sli_threads_free(threads);
}

#endif
