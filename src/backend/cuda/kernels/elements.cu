/* cuda:onehot, cuda:dropout, cuda:merge, cuda:flip: one thread an item of 1 or 4 floats, in strides of the grid. Tensors may
 * lie in the same memory where the rows allow it: nothing here is __restrict__. */
#include "backend/cuda/kernels/common.cuh"
#include "backend/cuda/elements_layout.h"

/* d = or += value. */
template <int N> __device__ __forceinline__ void give(float *d, size_t item, sli_pack<N> value, bool add) {
    if (add) {
        const sli_pack<N> before = sli_load<N>(d, item);
#pragma unroll
        for (int n = 0; n < N; n++) value.v[n] = before.v[n] + value.v[n];
    }
    sli_store<N>(d, item, value);
}

/* ----------------------------------------------------------------------------------------------------- one-hot -- */
/* y[row][V] = 1 at the token, 0 elsewhere; NaN for a token outside, see embed.cu; `width` = V / N. */
template <int N> __global__ void onehot_write(const int32_t *tokens, float *y, size_t rows, size_t width) {
    for (size_t i = sli_first(); i < rows * width; i += sli_stride()) {
        const size_t row = sli_divide(i, width), column = (i - row * width) * N, token = (size_t)tokens[row];
        const float elsewhere = token < width * N ? 0.0f : NAN;
        sli_pack<N> value;
#pragma unroll
        for (int n = 0; n < N; n++) value.v[n] = column + n == token ? 1.0f : elsewhere;
        sli_store<N>(y, i, value);
    }
}

extern "C" void sli_gpu_onehot_forward(const sli_call *call) {
    const size_t rows = sli_call_rows(call), width = (size_t)call->problem.inputs;
    if (!sli_begin(call, SLI_PHASE_OTHER) || rows * width == 0) return;
    const int32_t *tokens = (const int32_t *)call->in[SLI_UNARY_X];
    float *y = (float *)call->out[SLI_UNARY_Y];
    const cudaStream_t stream = sli_cuda_stream(call->queue);
    if (width % 4 == 0 && sli_aligned(y))
        onehot_write<4><<<sli_blocks(rows * width / 4), SLI_THREADS, 0, stream>>>(tokens, y, rows, width / 4);
    else
        onehot_write<1><<<sli_blocks(rows * width), SLI_THREADS, 0, stream>>>(tokens, y, rows, width);
    SLI_LAUNCHED(call->queue, "onehot_write");
}

/* ------------------------------------------------------------------------------------ rows that are their own transpose --
 * to = or += f(from), backward as forward. */
typedef void (*unary_launch)(const sli_call *call, const float *from, float *to, bool add);

static void unary_forward(const sli_call *call, unary_launch launch) {
    if (!sli_begin(call, SLI_PHASE_OTHER)) return;
    launch(call, (const float *)call->in[SLI_UNARY_X], (float *)call->out[SLI_UNARY_Y], false);
}

static void unary_backward(const sli_call *call, unary_launch launch) {
    const float *dy = (const float *)call->d_out[SLI_UNARY_Y];
    float *dx = (float *)call->d_in[SLI_UNARY_X];
    if (!sli_begin(call, SLI_PHASE_OTHER) || !dx) return;
    if (dy)
        launch(call, dy, dx, sli_accumulates(call, SLI_UNARY_X));
    else
        sli_give_zero(call, SLI_UNARY_X, sli_call_rows(call) * (size_t)call->problem.units);
}

/* ----------------------------------------------------------------------------------------------------- dropout --
 * y = x times 0 or 1/(1-p). The mask belongs to the element's number in the whole sequence: `before` elements lie in
 * earlier segments. One thread draws the four words of a group of four elements. threshold 0: a copy. */
struct dropout_args {
    const float *x;
    float *y;
    const sli_scalars *scalars;
    uint64_t before, count;
    uint32_t stream, threshold;
    float scale;
    bool add, vectors;
};

__device__ __forceinline__ float dropped(const dropout_args &a, uint32_t word, float x) {
    return word < a.threshold ? 0.0f : a.threshold > 0 ? a.scale * x : x;
}

__global__ void dropout_apply(dropout_args a) {
    const uint64_t first = a.before / 4, groups = (a.before + a.count + 3) / 4 - first;
    const uint64_t seed = a.scalars->seed;
    const uint32_t step = a.scalars->step, micro_step = a.scalars->micro_step;
    for (uint64_t g = sli_first(); g < groups; g += sli_stride()) {
        sli_rng_words words = {{0, 0, 0, 0}};
        if (a.threshold > 0) words = sli_philox(seed, (uint32_t)(first + g), step, a.stream, micro_step);
        if (a.vectors && 4 * g + 4 <= a.count) {
            sli_pack<4> value = sli_load<4>(a.x, g);
#pragma unroll
            for (int n = 0; n < 4; n++) value.v[n] = dropped(a, words.word[n], value.v[n]);
            give<4>(a.y, g, value, a.add);
            continue;
        }
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const uint64_t element = 4 * (first + g) + n;
            if (element < a.before || element - a.before >= a.count) continue;
            sli_pack<1> value = sli_load<1>(a.x, element - a.before);
            value.v[0] = dropped(a, words.word[n], value.v[0]);
            give<1>(a.y, element - a.before, value, a.add);
        }
    }
}

static void dropout_launch(const sli_call *call, const float *x, float *y, bool add) {
    const sli_problem *p = &call->problem;
    const double rate = call->training ? p->dropout : 0;
    dropout_args a;
    a.x = x;
    a.y = y;
    a.scalars = call->scalars;
    a.before = (uint64_t)call->t0 * (uint64_t)p->batch * (uint64_t)p->units;
    a.count = (uint64_t)sli_call_rows(call) * (uint64_t)p->units;
    a.stream = (uint32_t)call->rng_layer | (uint32_t)SLI_PURPOSE_DROPOUT;
    a.threshold = sli_drop_threshold(rate);
    a.scale = (float)(1 / (1 - rate));
    a.add = add;
    a.vectors = a.before % 4 == 0 && sli_aligned(x) && sli_aligned(y);
    if (a.count == 0) return;
    dropout_apply<<<sli_blocks((size_t)a.count / 4 + 2), SLI_THREADS, 0, sli_cuda_stream(call->queue)>>>(a);
    SLI_LAUNCHED(call->queue, "dropout_apply");
}

extern "C" void sli_gpu_dropout_forward(const sli_call *call) {
    unary_forward(call, dropout_launch);
}

extern "C" void sli_gpu_dropout_backward(const sli_call *call) {
    unary_backward(call, dropout_launch);
}

/* ------------------------------------------------------------------------------------------- merge by elements --
 * y = sum, product or mean of the parts. Parts, and their gradients, may be one tensor: a thread goes through the parts of
 * its elements in order. */
enum { MERGE_PARTS = 4 };
struct merge_args {
    const float *in[MERGE_PARTS];
    float *d_in[MERGE_PARTS];
    float *y;
    const float *dy;
    float *saved; /* a product's factors [parts][count] or NULL */
    size_t count; /* floats of a part */
    int parts;
    sl_merge merge;
    unsigned accumulate;
};

template <int N> __global__ void merge_elements(merge_args a) {
    for (size_t i = sli_first(); i < a.count / N; i += sli_stride()) {
        sli_pack<N> part[MERGE_PARTS];
#pragma unroll
        for (int k = 0; k < MERGE_PARTS; k++)
            if (k < a.parts) part[k] = sli_load<N>(a.in[k], i);
        sli_pack<N> value = part[0];
#pragma unroll
        for (int k = 1; k < MERGE_PARTS; k++)
            if (k < a.parts)
#pragma unroll
                for (int n = 0; n < N; n++)
                    value.v[n] = a.merge == SL_MERGE_MULTIPLY ? value.v[n] * part[k].v[n] : value.v[n] + part[k].v[n];
        if (a.merge == SL_MERGE_AVERAGE)
#pragma unroll
            for (int n = 0; n < N; n++) value.v[n] /= (float)a.parts;
        sli_store<N>(a.y, i, value);
#pragma unroll
        for (int k = 0; k < MERGE_PARTS; k++)
            if (a.saved && k < a.parts) sli_store<N>(a.saved + k * a.count, i, part[k]);
    }
}

template <int N> __global__ void merge_elements_back(merge_args a) {
    for (size_t i = sli_first(); i < a.count / N; i += sli_stride()) {
        const sli_pack<N> dy = sli_load<N>(a.dy, i);
        sli_pack<N> factor[MERGE_PARTS];
#pragma unroll
        for (int k = 0; k < MERGE_PARTS; k++)
            if (a.saved && k < a.parts) factor[k] = sli_load<N>(a.saved + k * a.count, i);
#pragma unroll
        for (int k = 0; k < MERGE_PARTS; k++) {
            if (k >= a.parts || !a.d_in[k]) continue;
            sli_pack<N> value = dy;
#pragma unroll
            for (int other = 0; other < MERGE_PARTS; other++)
                if (a.saved && other != k && other < a.parts)
#pragma unroll
                    for (int n = 0; n < N; n++) value.v[n] *= factor[other].v[n];
            if (a.merge == SL_MERGE_AVERAGE)
#pragma unroll
                for (int n = 0; n < N; n++) value.v[n] /= (float)a.parts;
            give<N>(a.d_in[k], i, value, a.accumulate >> k & 1u);
        }
    }
}

/* Pointers and sizes; true if all tensors can be read four floats at a time. */
static bool merge_fill(const sli_call *call, merge_args *a) {
    const sli_problem *p = &call->problem;
    a->count = sli_call_rows(call) * (size_t)p->units;
    a->parts = p->parts;
    a->merge = p->merge;
    a->accumulate = call->accumulate;
    a->y = (float *)call->out[SLI_MERGE_Y];
    a->dy = (const float *)call->d_out[SLI_MERGE_Y];
    a->saved = p->merge == SL_MERGE_MULTIPLY && call->training ? (float *)call->saved : NULL;
    bool aligned = a->count % 4 == 0 && sli_aligned(a->y) && sli_aligned(a->dy) && sli_aligned(a->saved);
    for (int k = 0; k < MERGE_PARTS; k++) {
        a->in[k] = k < p->parts ? (const float *)call->in[SLI_MERGE_PART0 + k] : NULL;
        a->d_in[k] = k < p->parts ? (float *)call->d_in[SLI_MERGE_PART0 + k] : NULL;
        aligned = aligned && sli_aligned(a->in[k]) && sli_aligned(a->d_in[k]);
    }
    return aligned;
}

/* ------------------------------------------------------------------------------------------------------ concat --
 * Columns [first, first + width) of y's rows are a part's; in packs of N floats. */
template <int N>
__global__ void concat_part(const float *part, float *y, size_t rows, size_t width, size_t first, size_t all) {
    for (size_t i = sli_first(); i < rows * width; i += sli_stride()) {
        const size_t row = sli_divide(i, width);
        sli_store<N>(y, row * all + first + (i - row * width), sli_load<N>(part, i));
    }
}
template <int N>
__global__ void concat_part_back(const float *dy, float *part, size_t rows, size_t width, size_t first, size_t all,
                                 bool add) {
    for (size_t i = sli_first(); i < rows * width; i += sli_stride()) {
        const size_t row = sli_divide(i, width);
        give<N>(part, i, sli_load<N>(dy, row * all + first + (i - row * width)), add);
    }
}

/* Part by part: parts, and so their gradients, may be one tensor. */
static void concat_run(const sli_call *call, bool backward) {
    const sli_problem *p = &call->problem;
    const size_t rows = sli_call_rows(call), all = (size_t)p->units;
    const cudaStream_t stream = sli_cuda_stream(call->queue);
    size_t first = 0;
    for (int k = 0; k < p->parts; k++) {
        const size_t width = (size_t)sli_merge_width(p, k), at = first;
        first += width;
        const float *from = (const float *)(backward ? call->d_out[SLI_MERGE_Y] : call->in[SLI_MERGE_PART0 + k]);
        float *to = (float *)(backward ? call->d_in[SLI_MERGE_PART0 + k] : call->out[SLI_MERGE_Y]);
        if (!to || rows * width == 0) continue;
        const bool vectors = all % 4 == 0 && width % 4 == 0 && at % 4 == 0 && sli_aligned(from) && sli_aligned(to);
        const bool add = sli_accumulates(call, SLI_MERGE_PART0 + k);
        const unsigned blocks = sli_blocks(rows * width / (vectors ? 4 : 1));
        if (!backward && vectors)
            concat_part<4><<<blocks, SLI_THREADS, 0, stream>>>(from, to, rows, width / 4, at / 4, all / 4);
        else if (!backward)
            concat_part<1><<<blocks, SLI_THREADS, 0, stream>>>(from, to, rows, width, at, all);
        else if (vectors)
            concat_part_back<4><<<blocks, SLI_THREADS, 0, stream>>>(from, to, rows, width / 4, at / 4, all / 4, add);
        else
            concat_part_back<1><<<blocks, SLI_THREADS, 0, stream>>>(from, to, rows, width, at, all, add);
        SLI_LAUNCHED(call->queue, "concat_part");
    }
}

extern "C" void sli_gpu_merge_forward(const sli_call *call) {
    if (!sli_begin(call, SLI_PHASE_OTHER)) return;
    if (call->problem.merge == SL_MERGE_CONCAT) {
        concat_run(call, false);
        return;
    }
    merge_args a;
    const bool vectors = merge_fill(call, &a);
    if (a.count == 0) return;
    const cudaStream_t stream = sli_cuda_stream(call->queue);
    if (vectors)
        merge_elements<4><<<sli_blocks(a.count / 4), SLI_THREADS, 0, stream>>>(a);
    else
        merge_elements<1><<<sli_blocks(a.count), SLI_THREADS, 0, stream>>>(a);
    SLI_LAUNCHED(call->queue, "merge_elements");
}

extern "C" void sli_gpu_merge_backward(const sli_call *call) {
    const sli_problem *p = &call->problem;
    if (!sli_begin(call, SLI_PHASE_OTHER)) return;
    if (!call->d_out[SLI_MERGE_Y]) {
        const bool concat = p->merge == SL_MERGE_CONCAT;
        for (int k = 0; k < p->parts; k++)
            sli_give_zero(call, SLI_MERGE_PART0 + k,
                          sli_call_rows(call) * (size_t)(concat ? sli_merge_width(p, k) : p->units));
        return;
    }
    if (p->merge == SL_MERGE_CONCAT) {
        concat_run(call, true);
        return;
    }
    merge_args a;
    const bool vectors = merge_fill(call, &a);
    if (a.count == 0) return;
    const cudaStream_t stream = sli_cuda_stream(call->queue);
    if (vectors)
        merge_elements_back<4><<<sli_blocks(a.count / 4), SLI_THREADS, 0, stream>>>(a);
    else
        merge_elements_back<1><<<sli_blocks(a.count), SLI_THREADS, 0, stream>>>(a);
    SLI_LAUNCHED(call->queue, "merge_elements_back");
}

/* -------------------------------------------------------------------------------------------------------- flip --
 * y[t] = or += x[T-1-t]; `width` packs of N floats a step. */
template <int N> __global__ void flip_steps(const float *x, float *y, size_t steps, size_t width, bool add) {
    for (size_t i = sli_first(); i < steps * width; i += sli_stride()) {
        const size_t t = sli_divide(i, width);
        give<N>(y, i, sli_load<N>(x, (steps - 1 - t) * width + (i - t * width)), add);
    }
}

static void flip_launch(const sli_call *call, const float *x, float *y, bool add) {
    const size_t steps = sli_call_steps(call), width = (size_t)call->problem.batch * (size_t)call->problem.units;
    const cudaStream_t stream = sli_cuda_stream(call->queue);
    if (width == 0) return;
    if (width % 4 == 0 && sli_aligned(x) && sli_aligned(y))
        flip_steps<4><<<sli_blocks(steps * width / 4), SLI_THREADS, 0, stream>>>(x, y, steps, width / 4, add);
    else
        flip_steps<1><<<sli_blocks(steps * width), SLI_THREADS, 0, stream>>>(x, y, steps, width, add);
    SLI_LAUNCHED(call->queue, "flip_steps");
}

extern "C" void sli_gpu_flip_forward(const sli_call *call) {
    unary_forward(call, flip_launch);
}

extern "C" void sli_gpu_flip_backward(const sli_call *call) {
    unary_backward(call, flip_launch);
}
