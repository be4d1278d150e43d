/* cpu:gemm (dense) and cpu:embed. */
#include <math.h>
#include <string.h>
#include "backend/cpu/gemm.h"
#include "backend/cpu/rows.h"

/* ------------------------------------------------------------------------------------------------------- dense --
 * y = act(x kernel^T + bias), in the fixed chunks of steps in which the gradients are summed too. */
static bool linear(const sli_problem *p) {
    return p->act == SL_ACT_DEFAULT || p->act == SL_ACT_LINEAR;
}

/* Rows of steps [t, end of its chunk). */
static int chunk_rows(const sli_call *call, int t) {
    const int left = sli_cpu_steps(&call->problem) - t, chunk = call->chunk > 0 ? call->chunk : 1;
    return (left < chunk ? left : chunk) * call->problem.batch;
}

static void dense_forward(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const int I = p->inputs, H = p->units, chunk = call->chunk > 0 ? call->chunk : 1;
    for (int t = 0; t < sli_cpu_steps(p); t += chunk) {
        const size_t row = (size_t)t * (size_t)p->batch;
        sli_job job = {.parts = 1, .bias = call->param[SLI_DENSE_BIAS], .act = linear(p) ? 0 : (int)p->act};
        /* act' is taken from y: a copy, so that y's memory can go to others. */
        if (!linear(p) && p->train) job.copy = (float *)call->saved + row * (size_t)H;
        job.part[0] = (sli_gemm){.m = chunk_rows(call, t),
                                 .n = H,
                                 .k = I,
                                 .a = (const float *)call->in[SLI_DENSE_X] + row * (size_t)I,
                                 .am = I,
                                 .ak = 1,
                                 .b = call->param[SLI_DENSE_KERNEL],
                                 .bk = 1,
                                 .bn = I,
                                 .c = (float *)call->out[SLI_DENSE_Y] + row * (size_t)H,
                                 .ldc = H};
        sli_cpu_jobs(call, &job, 1);
    }
}

typedef struct slope_work {
    const sli_isa_ops *ops;
    int act, columns;
    const float *y, *dy;
    float *dz;
    int rows;
} slope_work;

enum { SLOPE_ROWS = 32 };

/* dz = dy act'(z) */
static void slope_rows(void *context, int index) {
    const slope_work *w = context;
    const int first = index * SLOPE_ROWS, last = first + SLOPE_ROWS < w->rows ? first + SLOPE_ROWS : w->rows;
    const size_t at = (size_t)first * (size_t)w->columns, count = (size_t)(last - first) * (size_t)w->columns;
    memcpy(w->dz + at, w->dy + at, count * sizeof(float));
    w->ops->act_slope(w->act, count, w->y + at, w->dz + at);
}

/* dz of one chunk: dy itself, or its product with act' in scratch. */
static const float *chunk_dz(const sli_call *call, size_t row, int rows) {
    const sli_problem *p = &call->problem;
    const float *dy = (const float *)call->d_out[SLI_DENSE_Y] + row * (size_t)p->units;
    if (linear(p)) return dy;
    slope_work w = {.ops = sli_cpu_of(call)->ops,
                    .act = (int)p->act,
                    .columns = p->units,
                    .y = (const float *)call->saved + row * (size_t)p->units,
                    .dy = dy,
                    .dz = call->scratch,
                    .rows = rows};
    sli_threads_for(call->threads, (rows + SLOPE_ROWS - 1) / SLOPE_ROWS, slope_rows, &w);
    return w.dz;
}

/* Chunks from the last to the first: d x = or += dz kernel; d kernel += dz^T x; d bias += column sums of dz. */
static void dense_backward(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const int I = p->inputs, H = p->units, steps = sli_cpu_steps(p), chunk = call->chunk > 0 ? call->chunk : 1;
    float *dx = call->d_in[SLI_DENSE_X];
    const bool add = call->accumulate >> SLI_DENSE_X & 1;
    if (!call->d_out[SLI_DENSE_Y]) {
        if (dx && !add) memset(dx, 0, sli_cpu_rows(p) * (size_t)I * sizeof *dx);
        return;
    }
    for (int t = (steps - 1) / chunk * chunk; t >= 0; t -= chunk) {
        const size_t row = (size_t)t * (size_t)p->batch;
        const int rows = chunk_rows(call, t);
        const float *dz = chunk_dz(call, row, rows), *x = (const float *)call->in[SLI_DENSE_X] + row * (size_t)I;
        sli_job jobs[SLI_JOBS_MAX];
        int count = 0;
        if (dx) {
            jobs[count] = (sli_job){.parts = 1};
            jobs[count++].part[0] = (sli_gemm){.m = rows,
                                               .n = I,
                                               .k = H,
                                               .a = dz,
                                               .am = H,
                                               .ak = 1,
                                               .b = call->param[SLI_DENSE_KERNEL],
                                               .bk = I,
                                               .bn = 1,
                                               .c = dx + row * (size_t)I,
                                               .ldc = I,
                                               .add = add};
        }
        sli_job *packs = NULL; /* dz, so that it can sum it up */
        if (call->d_param[SLI_DENSE_KERNEL]) {
            jobs[count] = (sli_job){.parts = 1};
            jobs[count].part[0] = (sli_gemm){.m = H,
                                             .n = I,
                                             .k = rows,
                                             .a = dz,
                                             .am = 1,
                                             .ak = H,
                                             .b = x,
                                             .bk = I,
                                             .bn = 1,
                                             .c = call->d_param[SLI_DENSE_KERNEL],
                                             .ldc = I,
                                             .add = true};
            if (sli_cpu_packs(call) && H > 1) packs = &jobs[count];
            count++;
        }
        if (packs)
            packs->sums[0] = call->d_param[SLI_DENSE_BIAS];
        else if (call->d_param[SLI_DENSE_BIAS])
            jobs[count++] =
                (sli_job){.from = dz, .ld = H, .rows = rows, .columns = H, .to = {call->d_param[SLI_DENSE_BIAS], NULL}};
        sli_cpu_jobs(call, jobs, count);
    }
}

static bool dense_eligible(const sli_problem *p, const sli_caps *caps, sli_why *why) {
    (void)caps;
    NEED(p->dtype == SL_F32 || p->dtype == SL_F32X3 || p->dtype == SL_BF16,
         "cpu:gemm computes f32, f32x3 and bf16, not %s", sli_dtype_name(p->dtype));
    NEED(p->dtype != SL_BF16 || p->train, "inference in bf16 is cpu:bf16's, which rounds the weights once");
    return true;
}

static void dense_cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    const double rows = (double)sli_cpu_rows(p), I = p->inputs, H = p->units, passes = p->train ? 3 : 1;
    *cost = (sli_cost){.flops = passes * 2 * rows * I * H, .bytes = passes * 4 * (rows * (I + H) + I * H)};
}

static void dense_book(const sli_problem *p, const sli_caps *caps, int chunk, sli_booking *booking) {
    (void)caps;
    const size_t row = (size_t)p->units * sizeof(float), products = sli_cpu_products_bytes(p, chunk);
    *booking = (sli_booking){.scratch_forward = products, .scratch_backward = p->train ? products : 0};
    if (linear(p) || !p->train) return;
    booking->saved = sli_cpu_rows(p) * row;
    booking->scratch_backward += (size_t)(chunk > 0 ? chunk : 1) * (size_t)p->batch * row;
}

const sli_kernel sli_cpu_dense = {.name = "cpu:gemm",
                                  .op = SLI_OP_DENSE,
                                  .device = SLI_DEVICE_CPU,
                                  .eligible = dense_eligible,
                                  .cost = dense_cost,
                                  .book = dense_book,
                                  .forward = dense_forward,
                                  .backward = dense_backward,
                                  .backward_reads_in = 1u << SLI_DENSE_X};

/* ------------------------------------------------------------------------------------------- embedding, one-hot -- */
enum { EMBED_ROWS = 64, EMBED_COLUMNS = 32 };

/* Tokens that the host gave were checked there; what another library owns may hold anything: such rows become NaN, so that it is
 * seen, and give no gradient. */
static bool in_vocabulary(const sli_problem *p, int32_t token) {
    return (uint32_t)token < (uint32_t)p->inputs;
}

static void fill_nan(float *y, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] = NAN;
}

static void embed_rows(void *context, int index) {
    const sli_call *call = context;
    const sli_problem *p = &call->problem;
    const size_t width = (size_t)p->units, rows = sli_cpu_rows(p), first = (size_t)index * EMBED_ROWS;
    const int32_t *tokens = call->in[SLI_EMBED_TOKENS];
    const float *table = call->param[SLI_EMBED_TABLE];
    float *y = call->out[SLI_EMBED_Y];
    for (size_t r = first; r < first + EMBED_ROWS && r < rows; r++)
        if (in_vocabulary(p, tokens[r]))
            memcpy(y + r * width, table + (size_t)tokens[r] * width, width * sizeof *y);
        else
            fill_nan(y + r * width, width);
}

static void embed_forward(const sli_call *call) {
    sli_threads_for(call->threads, sli_divide_up(sli_cpu_rows(&call->problem), EMBED_ROWS), embed_rows, (void *)call);
}

/* Some columns of the table, all tokens: d table[token] += dy, from the last step to the first, so that segments change no
 * bit, and no two tasks write the same element. */
static void embed_columns(void *context, int index) {
    const sli_call *call = context;
    const sli_problem *p = &call->problem;
    const size_t width = (size_t)p->units, first = (size_t)index * EMBED_COLUMNS;
    const size_t count = width - first < EMBED_COLUMNS ? width - first : EMBED_COLUMNS;
    const int32_t *tokens = call->in[SLI_EMBED_TOKENS];
    const float *dy = call->d_out[SLI_EMBED_Y];
    float *d_table = call->d_param[SLI_EMBED_TABLE];
    const sli_isa_ops *ops = sli_cpu_of(call)->ops;
    for (int t = sli_cpu_steps(p) - 1; t >= 0; t--)
        for (int b = 0; b < p->batch; b++) {
            const size_t r = (size_t)t * (size_t)p->batch + (size_t)b;
            if (!in_vocabulary(p, tokens[r])) continue;
            ops->add(count, d_table + (size_t)tokens[r] * width + first, dy + r * width + first);
        }
}

static void embed_backward(const sli_call *call) {
    if (!call->d_out[SLI_EMBED_Y] || !call->d_param[SLI_EMBED_TABLE]) return;
    sli_threads_for(call->threads, sli_divide_up((size_t)call->problem.units, EMBED_COLUMNS), embed_columns,
                    (void *)call);
}

static bool embed_eligible(const sli_problem *p, const sli_caps *caps, sli_why *why) {
    (void)caps;
    NEED(p->dtype == SL_F32, "this row computes f32, not %s", sli_dtype_name(p->dtype));
    return true;
}

static void embed_cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    const double elements = (double)sli_cpu_rows(p) * p->units;
    *cost = (sli_cost){.flops = p->train ? elements : 0, .bytes = (p->train ? 5 : 2) * 4 * elements};
}

const sli_kernel sli_cpu_embed = {.name = "cpu:embed",
                                  .op = SLI_OP_EMBED,
                                  .device = SLI_DEVICE_CPU,
                                  .eligible = embed_eligible,
                                  .cost = embed_cost,
                                  .forward = embed_forward,
                                  .backward = embed_backward,
                                  .backward_reads_in = 1u << SLI_EMBED_TOKENS};

static void onehot_rows(void *context, int index) {
    const sli_call *call = context;
    const size_t width = (size_t)call->problem.inputs, rows = sli_cpu_rows(&call->problem);
    const size_t first = (size_t)index * EMBED_ROWS, last = first + EMBED_ROWS < rows ? first + EMBED_ROWS : rows;
    const int32_t *tokens = call->in[SLI_UNARY_X];
    float *y = call->out[SLI_UNARY_Y];
    memset(y + first * width, 0, (last - first) * width * sizeof *y);
    for (size_t r = first; r < last; r++)
        if (in_vocabulary(&call->problem, tokens[r]))
            y[r * width + (size_t)tokens[r]] = 1.0f;
        else
            fill_nan(y + r * width, width);
}

static void onehot_forward(const sli_call *call) {
    sli_threads_for(call->threads, sli_divide_up(sli_cpu_rows(&call->problem), EMBED_ROWS), onehot_rows, (void *)call);
}

static void onehot_cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    *cost = (sli_cost){.bytes = 4 * (double)sli_cpu_rows(p) * p->inputs};
}

const sli_kernel sli_cpu_onehot = {.name = "cpu:onehot",
                                   .op = SLI_OP_ONEHOT,
                                   .device = SLI_DEVICE_CPU,
                                   .eligible = embed_eligible,
                                   .cost = onehot_cost,
                                   .forward = onehot_forward};
