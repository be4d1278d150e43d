/* cuda:dense: y = act(x W^T + b). One product a chunk of steps, forward and backward: a segment of time is made of whole
 * chunks, so that it is multiplied by the same shapes and algorithms as the whole sequence, to the same bits. */
#include "backend/cuda/runtime/functions.h"
#include "backend/cuda/runtime/narrow.h"
#include "cell/activations.h"
extern "C" {
#include "backend/cuda/cuda.h"
#include "backend/cuda/dense_layout.h"
}
#include "backend/cuda/kernels/softmax.cuh"

enum { DENSE_THREADS = 256 };

static unsigned blocks_for(int64_t count) {
    const int64_t blocks = (count + DENSE_THREADS - 1) / DENSE_THREADS;
    return (unsigned)(blocks < 65536 ? blocks : 65536);
}

/* y = act(y); saved too, unless NULL. */
template <int act>
__global__ void __launch_bounds__(DENSE_THREADS) activate(float *__restrict__ y, float *__restrict__ saved, int64_t count) {
    for (int64_t i = (int64_t)blockIdx.x * DENSE_THREADS + threadIdx.x; i < count; i += (int64_t)gridDim.x * DENSE_THREADS) {
        const float value = cell_act(act, y[i]);
        y[i] = value;
        if (saved) saved[i] = value;
    }
}

/* dz = dy act'(y); narrow too, in rows of `row` >= columns with zeros behind, unless NULL. */
template <int act, typename T>
__global__ void __launch_bounds__(DENSE_THREADS)
    slope(float *__restrict__ dz, T *__restrict__ narrow, const float *__restrict__ dy, const float *__restrict__ y,
          int64_t rows, int64_t columns, int64_t row) {
    const int64_t count = rows * row, threads = (int64_t)gridDim.x * DENSE_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * DENSE_THREADS + threadIdx.x; i < count; i += threads) {
        const int64_t column = i % row, at = i / row * columns + column;
        const float value = column < columns ? dy[at] * cell_act_slope(act, y[at]) : 0.0f;
        if (column < columns) dz[at] = value;
        if (narrow) sli_assign(&narrow[i], value);
    }
}

template <int act>
static void run_slope(const sli_call *call, float *dz, void *narrow, const float *dy, const float *y, int64_t rows) {
    const sli_problem *p = &call->problem;
    const int64_t row = sli_dense_row(p, p->units);
    const unsigned blocks = blocks_for(rows * row);
    cudaStream_t stream = sli_cuda_stream(call->queue);
    if (sli_cuda_failed(call->queue)) return;
    if (p->dtype == SL_F16)
        slope<act><<<blocks, DENSE_THREADS, 0, stream>>>(dz, (sli_f16 *)narrow, dy, y, rows, p->units, row);
    else
        slope<act><<<blocks, DENSE_THREADS, 0, stream>>>(dz, (sli_bf16 *)narrow, dy, y, rows, p->units, row);
    (void)SLI_LAUNCHED(call->queue, "slope of a dense layer");
}

template <int act> static void run_activate(const sli_call *call, float *y, float *saved, int64_t count) {
    if (sli_cuda_failed(call->queue)) return;
    activate<act><<<blocks_for(count), DENSE_THREADS, 0, sli_cuda_stream(call->queue)>>>(y, saved, count);
    (void)SLI_LAUNCHED(call->queue, "activation of a dense layer");
}

/* Calls run<ACT>(...) for the activation of the problem; linear has none. */
#define FOR_ACTIVATION(problem, run, ...)           \
    switch ((problem)->act) {                       \
    case SL_ACT_TANH:                               \
        run<CELL_ACT_TANH>(__VA_ARGS__);            \
        break;                                      \
    case SL_ACT_SIGMOID:                            \
        run<CELL_ACT_SIGMOID>(__VA_ARGS__);         \
        break;                                      \
    case SL_ACT_RELU:                               \
        run<CELL_ACT_RELU>(__VA_ARGS__);            \
        break;                                      \
    case SL_ACT_HARD_SIGMOID:                       \
        run<CELL_ACT_HARD_SIGMOID>(__VA_ARGS__);    \
        break;                                      \
    case SL_ACT_HARD_SIGMOID_K2:                    \
        run<CELL_ACT_HARD_SIGMOID_K2>(__VA_ARGS__); \
        break;                                      \
    case SL_ACT_SOFTSIGN:                           \
        run<CELL_ACT_SOFTSIGN>(__VA_ARGS__);        \
        break;                                      \
    default:                                        \
        break;                                      \
    }

/* ------------------------------------------------------------------------------------------------------- chunks -- */
static int chunk_of(const sli_call *call) {
    return call->chunk > 0 ? call->chunk : 1;
}

static int steps_of(const sli_call *call) {
    return call->problem.steps > 0 ? call->problem.steps : 1;
}

/* Rows of steps [t, end of its chunk). */
static int64_t rows_from(const sli_call *call, int t) {
    const int left = steps_of(call) - t, chunk = chunk_of(call);
    return (int64_t)(left < chunk ? left : chunk) * call->problem.batch;
}

static sli_cuda_matrix matrix(const void *data, int64_t row, bool transposed) {
    const sli_cuda_matrix made = {data, row, transposed};
    return made;
}

extern "C" void sli_gpu_dense_pack(const sli_call *call) {
    const sli_problem *p = &call->problem;
    if (!call->packed || call->copied || !sli_dense_copies(p, p->inputs)) return;
    sli_cuda_phase(call->queue, SLI_PHASE_OPTIMIZER);
    sli_cuda_narrow_rows(call->queue, sli_cuda_stream(call->queue), p->dtype, call->packed, sli_dense_row(p, p->inputs),
                         (const float *)call->param[SLI_DENSE_KERNEL], p->inputs, p->units, p->inputs);
}

/* What products of this call have in common; W as they read it. */
static sli_cuda_product product_of(const sli_call *call, void *workspace, size_t workspace_bytes) {
    sli_cuda_product product = {};
    product.math = call->problem.dtype;
    product.workspace = workspace;
    product.workspace_bytes = workspace_bytes;
    return product;
}

static const void *kernel_of(const sli_call *call) {
    const sli_problem *p = &call->problem;
    return sli_dense_copies(p, p->inputs) ? call->packed : call->param[SLI_DENSE_KERNEL];
}

/* from[rows][columns] as an operand: itself, or its copy in `place`. */
static const void *operand(const sli_call *call, cudaStream_t stream, const float *from, void *place, int64_t rows,
                           int64_t columns) {
    const sli_problem *p = &call->problem;
    if (!sli_dense_copies(p, columns)) return from;
    sli_cuda_narrow_rows(call->queue, stream, p->dtype, place, sli_dense_row(p, columns), from, columns, rows, columns);
    return place;
}

extern "C" void sli_gpu_dense_forward(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const int64_t I = p->inputs, H = p->units;
    sli_dense_forward_places places;
    sli_dense_forward_layout(p, sli_cuda_caps_of(call->queue), chunk_of(call), &places);
    char *scratch = (char *)call->scratch;
    cudaStream_t stream = sli_cuda_stream(call->queue);
    sli_cuda_phase(call->queue, SLI_PHASE_PRODUCT);
    for (int t = 0; t < steps_of(call); t += chunk_of(call)) {
        const int64_t row = (int64_t)t * p->batch, rows = rows_from(call, t);
        const float *x = (const float *)call->in[SLI_DENSE_X] + row * I;
        float *y = (float *)call->out[SLI_DENSE_Y] + row * H;
        sli_cuda_product product = product_of(call, scratch + places.workspace, places.workspace_bytes);
        if (places.split_bytes > 0) product.split = scratch + places.split;
        product.split_bytes = places.split_bytes;
        product.m = rows;
        product.n = H;
        product.k = sli_dense_row(p, I); /* whole padded rows, zeros in both: cuBLASLt's fast kernels want them */
        product.a = matrix(operand(call, stream, x, scratch + places.x, rows, I), sli_dense_row(p, I), false);
        product.b = matrix(kernel_of(call), sli_dense_row(p, I), true);
        product.d = y;
        product.d_row = H;
        product.bias = (const float *)call->param[SLI_DENSE_BIAS];
        sli_cuda_multiply(call->queue, stream, &product);
        if (sli_cuda_failed(call->queue)) return;
        /* A copy for backward, so that y's memory can go to others: the loss writes its gradient over the logits. */
        float *saved = p->train && call->saved ? (float *)call->saved + row * H : NULL;
        FOR_ACTIVATION(p, run_activate, call, y, saved, rows * H)
    }
}

/* d x = or += dz W */
static void backward_input(const sli_call *call, const sli_cuda_product *common, const void *dz, int64_t row,
                           int64_t rows) {
    const int64_t I = call->problem.inputs, H = call->problem.units;
    sli_cuda_product product = *common;
    product.m = rows;
    product.n = I;
    product.k = H;
    product.a = matrix(dz, sli_dense_row(&call->problem, H), false);
    product.b = matrix(kernel_of(call), sli_dense_row(&call->problem, I), false);
    product.d = (float *)call->d_in[SLI_DENSE_X] + row * I;
    product.d_row = I;
    product.beta = call->accumulate >> SLI_DENSE_X & 1 ? 1.0f : 0.0f;
    sli_cuda_multiply(call->queue, sli_cuda_stream(call->queue), &product);
}

/* Transposed copies of dz and x, a and b of the product that gives d W. */
static void transpose(const sli_call *call, cudaStream_t stream, const sli_dense_backward_places *places,
                      const void *dz, const float *x, int64_t rows, sli_cuda_product *product) {
    const sli_problem *p = &call->problem;
    const int64_t I = p->inputs, H = p->units, row = sli_cuda_transposed_row(rows);
    float *dz_t = (float *)((char *)call->scratch + places->dz_t),
          *x_t = (float *)((char *)call->scratch + places->x_t);
    const sli_cuda_transposition each[] = {{(const float *)dz, sli_dense_row(p, H), rows, H, dz_t, row, H},
                                           {x, I, rows, I, x_t, row, sli_dense_row(p, I)}};
    sli_cuda_transpose(call->queue, stream, each, 2);
    product->k = row; /* with the zeros behind */
    product->a = matrix(dz_t, row, false);
    product->b = matrix(x_t, row, true);
}

/* d W = or += dz^T x; dz operand [rows][H'], x [rows][I] */
static void backward_kernel(const sli_call *call, cudaStream_t stream, const sli_cuda_product *common,
                            const sli_dense_backward_places *places, const void *dz, const float *x, int64_t rows,
                            bool add) {
    const sli_problem *p = &call->problem;
    const int64_t I = p->inputs, H = p->units;
    sli_cuda_product product = *common;
    product.m = H;
    product.n = I;
    if (sli_dense_transposes(p, sli_cuda_caps_of(call->queue), rows)) {
        transpose(call, stream, places, dz, x, rows, &product);
    } else {
        product.k = rows;
        product.a = matrix(dz, sli_dense_row(p, H), true);
        product.b =
            matrix(operand(call, stream, x, (char *)call->scratch + places->x, rows, I), sli_dense_row(p, I), false);
    }
    product.d = (float *)call->d_param[SLI_DENSE_KERNEL];
    product.d_row = I;
    product.beta = add ? 1.0f : 0.0f;
    sli_cuda_multiply(call->queue, stream, &product);
}

/* The last chunk in time comes first: it is the one that writes fresh gradients. */
static bool adds(const sli_call *call, int param, int t) {
    return t + chunk_of(call) < steps_of(call) || !(call->fresh[0] >> param & 1u);
}

/* A chunk of the rows: dz in f32 (with sli_call.loss logits, up to fill_dz or for good), and as an operand. */
typedef struct dense_chunk {
    sli_dense_backward_places places;
    sli_cuda_product common;
    int64_t row, rows;
    const float *dz;
    const void *operand;
} dense_chunk;

static dense_chunk chunk_at(const sli_call *call, int t) {
    const sli_problem *p = &call->problem;
    dense_chunk c = {};
    sli_dense_backward_places *places = &c.places;
    sli_dense_backward_layout(p, sli_cuda_caps_of(call->queue), chunk_of(call), places);
    char *scratch = (char *)call->scratch;
    c.common = product_of(call, scratch + places->workspace, places->workspace_bytes);
    if (places->pad_bytes > 0) c.common.pad = scratch + places->pad;
    c.common.pad_bytes = places->pad_bytes;
    if (places->split_bytes > 0) c.common.split = scratch + places->split;
    c.common.split_bytes = places->split_bytes;
    c.row = (int64_t)t * p->batch;
    c.rows = rows_from(call, t);
    c.dz = sli_dense_is_linear(p) ? (const float *)call->d_out[SLI_DENSE_Y] + c.row * p->units
                                  : (const float *)(scratch + places->dz);
    c.operand = sli_dense_copies(p, p->units) ? scratch + places->dz_copy : (const void *)c.dz;
    return c;
}

/* Sums of slabs for the bias come with dz's operand. */
static bool sums_slabs(const sli_call *call, const dense_chunk *c) {
    const sli_problem *p = &call->problem;
    return sli_dense_is_linear(p) && sli_dense_is_narrow(p) && call->d_param[SLI_DENSE_BIAS] &&
           sli_cuda_column_slabs(c->rows) > 1;
}

/* dz and its operand =; where there is a loss in dz's stead, its gradient's operand, and dz alone where that is needed. */
static void fill_dz(const sli_call *call, const dense_chunk *c) {
    const sli_problem *p = &call->problem;
    const int64_t H = p->units;
    char *scratch = (char *)call->scratch;
    const bool products = call->d_in[SLI_DENSE_X] || call->d_param[SLI_DENSE_KERNEL];
    bool narrow = false;
    if (!sli_dense_is_linear(p)) {
        narrow = sli_dense_is_narrow(p);
        const float *dy = (const float *)call->d_out[SLI_DENSE_Y] + c->row * H;
        const float *y = (const float *)call->saved + c->row * H;
        FOR_ACTIVATION(p, run_slope, call, (float *)(scratch + c->places.dz),
                       narrow ? scratch + c->places.dz_copy : NULL, dy, y, c->rows)
    }
    if (call->loss) sli_cuda_phase(call->queue, SLI_PHASE_SOFTMAX);
    if (call->loss && !sums_slabs(call, c)) sli_xent_give(call->queue, call->loss, (size_t)c->row, (size_t)c->rows);
    if (sums_slabs(call, c))
        sli_cuda_narrow_slabs(call->queue, sli_cuda_stream(call->queue), p->dtype, scratch + c->places.dz_copy,
                              sli_dense_row(p, H), c->dz, c->rows, H, scratch + c->places.columns, call->loss, c->row);
    else if (products && !narrow)
        (void)operand(call, sli_cuda_stream(call->queue), c->dz, scratch + c->places.dz_copy, c->rows, H);
    if (call->loss) sli_cuda_phase(call->queue, SLI_PHASE_PRODUCT);
}

/* d bias and d W of the chunk at step t. The bias, which leaves room on the GPU, comes before the product, which fills it: in that
 * time a recurrence below begins. */
static void sums_of(const sli_call *call, const dense_chunk *c, int t, cudaStream_t stream) {
    const sli_problem *p = &call->problem;
    float *bias = (float *)call->d_param[SLI_DENSE_BIAS];
    void *columns = (char *)call->scratch + c->places.columns;
    if (sums_slabs(call, c))
        sli_cuda_add_slabs(call->queue, stream, bias, c->rows, p->units, columns, adds(call, SLI_DENSE_BIAS, t));
    else if (bias)
        sli_cuda_add_columns(call->queue, stream, bias, c->dz, c->rows, p->units, columns,
                             adds(call, SLI_DENSE_BIAS, t));
    if (call->d_param[SLI_DENSE_KERNEL]) {
        const float *x = (const float *)call->in[SLI_DENSE_X] + c->row * p->inputs;
        backward_kernel(call, stream, &c->common, &c->places, c->operand, x, c->rows, adds(call, SLI_DENSE_KERNEL, t));
    }
}

static void late_sums(const sli_call *call, const int *numbers, cudaStream_t stream) {
    const dense_chunk c = chunk_at(call, numbers[0]);
    sums_of(call, &c, numbers[0], stream);
}

/* The layers below wait for d x alone: the sums of the last chunk that is computed may be late. */
static void backward_chunk(const sli_call *call, int t) {
    const dense_chunk c = chunk_at(call, t);
    const int numbers[SLI_LATE_NUMBERS] = {t};
    fill_dz(call, &c);
    if (call->d_in[SLI_DENSE_X]) backward_input(call, &c.common, c.operand, c.row, c.rows);
    if (call->late && t == 0) {
        sli_call later = *call;
        later.loss = NULL; /* which is gone by then; dz's operand is there */
        sli_cuda_leave_late(call->queue, late_sums, &later, numbers);
    } else {
        sums_of(call, &c, t, sli_cuda_stream(call->queue));
    }
}

/* y has no gradient: zeros wherever something is to be written. */
static void backward_nothing(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const size_t rows = (size_t)steps_of(call) * (size_t)p->batch, I = (size_t)p->inputs, H = (size_t)p->units;
    const cudaStream_t stream = sli_cuda_stream(call->queue);
    if (call->d_in[SLI_DENSE_X] && !(call->accumulate >> SLI_DENSE_X & 1))
        (void)sli_cuda_put(call->queue, stream, call->d_in[SLI_DENSE_X], NULL, rows * I * sizeof(float));
    if (call->fresh[0] >> SLI_DENSE_KERNEL & 1)
        (void)sli_cuda_put(call->queue, stream, call->d_param[SLI_DENSE_KERNEL], NULL, H * I * sizeof(float));
    if (call->fresh[0] >> SLI_DENSE_BIAS & 1)
        (void)sli_cuda_put(call->queue, stream, call->d_param[SLI_DENSE_BIAS], NULL, H * sizeof(float));
}

/* Chunks from the last to the first. */
extern "C" void sli_gpu_dense_backward(const sli_call *call) {
    sli_cuda_phase(call->queue, SLI_PHASE_PRODUCT);
    if (!call->d_out[SLI_DENSE_Y]) {
        backward_nothing(call);
        return;
    }
    for (int t = (steps_of(call) - 1) / chunk_of(call) * chunk_of(call); t >= 0; t -= chunk_of(call)) {
        if (sli_cuda_failed(call->queue)) return;
        backward_chunk(call, t);
    }
}
