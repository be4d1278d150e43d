/* cuda:norm and cuda:optim over one array of all parameters, or one tensor's part of it. The norm is slices of a fixed size,
 * summed by one block each in a fixed order, then the slices by one block. The optimizer is one pass: clip factor and
 * bias corrections are computed on the device, the gradient is read and, unless it is kept, zeroed, parameter and slots are
 * updated. */
#include "backend/cuda/kernels/common.cuh"
#include "backend/cuda/runtime/narrow.h"
#include "backend/cuda/updates_layout.h"

/* -------------------------------------------------------------------------------------------------------- norm -- */
struct norm_args {
    float *g;
    double *partials, *squares; /* [slices]; one or NULL */
    double *skipped;            /* += 1 where all gradients' squares are not finite; NULL without */
    sli_scaling *scaling;       /* NULL without */
    size_t count, slices;
    float limit; /* 0: no clipping by value */
    bool whole;  /* all gradients of the model: this call decides the next loss scale */
    sli_slices part[SLI_NORM_PARTS]; /* to be summed now */
    int parts;
    const uint8_t *touched; /* or NULL */
    sli_slices sparse;
};

/* The slice holds zeros, as those of a table do whose rows no token named. */
__device__ __forceinline__ bool is_untouched(const uint8_t *touched, const sli_slices &sparse, size_t slice) {
    return touched && (int64_t)slice >= sparse.first && (int64_t)slice < sparse.end && touched[slice] == 0;
}

/* Of those to be summed. */
__device__ __forceinline__ size_t slice_of(const norm_args &a, size_t index) {
    for (int i = 0; i + 1 < a.parts; i++) {
        const size_t here = (size_t)(a.part[i].end - a.part[i].first);
        if (index < here) return (size_t)a.part[i].first + index;
        index -= here;
    }
    return (size_t)a.part[a.parts - 1].first + index;
}

/* The scale that the gradients carry. */
__device__ __forceinline__ double norm_scale(const norm_args &a) {
    return !a.scaling ? 1.0 : a.whole ? a.scaling->scale : a.scaling->carried;
}

/* partials[slice] = sum of g^2 in double, before clipping; a NaN is not clipped. */
template <int N> __global__ void __launch_bounds__(SLI_THREADS) norm_slices(const __grid_constant__ norm_args a) {
    __shared__ double shared[SLI_THREADS / 32];
    const size_t slice = slice_of(a, blockIdx.x), first = slice * SLI_NORM_SLICE, left = a.count - first;
    if (is_untouched(a.touched, a.sparse, slice)) {
        if (threadIdx.x == 0) a.partials[slice] = 0;
        return;
    }
    const int count = left < SLI_NORM_SLICE ? (int)left : SLI_NORM_SLICE, packs = count / N;
    const float limit = a.limit > 0 ? (float)(a.limit * norm_scale(a)) : INFINITY;
    float *g = a.g + first;
    double sum = 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < packs; i += SLI_THREADS) {
        sli_pack<N> value = sli_load<N>(g, i);
#pragma unroll
        for (int n = 0; n < N; n++) {
            const float v = value.v[n];
            sum += (double)v * (double)v;
            value.v[n] = v > limit ? limit : v < -limit ? -limit : v;
        }
        if (a.limit > 0) sli_store<N>(g, i, value);
    }
    for (int i = packs * N + threadIdx.x; i < count; i += SLI_THREADS) {
        const float v = g[i];
        sum += (double)v * (double)v;
        if (a.limit > 0) g[i] = v > limit ? limit : v < -limit ? -limit : v;
    }
    sum = sli_block_sum(sum, shared);
    if (threadIdx.x == 0) a.partials[slice] = sum;
}

/* *squares = sum of the partials, of gradients without their scale. */
enum { NORM_THREADS = 1024 };
__global__ void __launch_bounds__(NORM_THREADS) norm_total(norm_args a) {
    __shared__ double shared[NORM_THREADS / 32];
    double sum = 0;
    for (size_t i = threadIdx.x; i < a.slices; i += NORM_THREADS) sum += a.partials[i];
    sum = sli_block_sum(sum, shared);
    if (threadIdx.x != 0) return;
    const double scale = norm_scale(a);
    sum /= scale * scale;
    if (a.squares) *a.squares = sum;
    if (a.whole && !isfinite(sum)) *a.skipped += 1;
    if (a.whole && a.scaling) sli_scaling_advance(a.scaling, sum);
}

static norm_args norm_args_of(const sli_call *call) {
    const sli_problem *p = &call->problem;
    norm_args a = {};
    a.g = (float *)call->out[SLI_NORM_GRAD];
    a.partials = (double *)call->scratch;
    a.squares = (double *)call->out[SLI_NORM_SQUARES];
    a.scaling = call->scaling;
    a.count = (size_t)p->elements;
    a.slices = sli_norm_slices(p->elements);
    a.limit = p->clip.kind == SL_CLIP_VALUE ? (float)p->clip.value : 0.0f;
    a.skipped = call->metrics ? &call->metrics->skipped : NULL;
    a.whole = a.skipped && a.squares == &call->metrics->squares;
    a.part[0].end = (int64_t)a.slices;
    a.parts = 1;
    if (call->slices) {
        a.parts = call->parts;
        for (int i = 0; i < a.parts; i++) a.part[i] = call->slices[i];
    }
    if (a.whole) a.touched = call->touched;
    a.sparse = call->sparse;
    return a;
}

static void sum_slices(const sli_call *call, const int *numbers, cudaStream_t stream) {
    const norm_args a = norm_args_of(call);
    size_t blocks = 0;
    (void)numbers;
    for (int i = 0; i < a.parts; i++) blocks += (size_t)(a.part[i].end - a.part[i].first);
    if (blocks == 0) return;
    if (sli_aligned(a.g))
        norm_slices<4><<<(unsigned)blocks, SLI_THREADS, 0, stream>>>(a);
    else
        norm_slices<1><<<(unsigned)blocks, SLI_THREADS, 0, stream>>>(a);
    SLI_LAUNCHED(call->queue, "norm_slices");
}

extern "C" void sli_gpu_norm_forward(const sli_call *call) {
    if (call->part && sli_cuda_follow_late(call->queue, sum_slices, call)) return;
    if (!sli_begin(call, SLI_PHASE_OPTIMIZER)) return;
    const cudaStream_t stream = sli_cuda_stream(call->queue);
    sum_slices(call, NULL, stream);
    if (call->part) return;
    norm_total<<<1, NORM_THREADS, 0, stream>>>(norm_args_of(call));
    SLI_LAUNCHED(call->queue, "norm_total");
}

/* --------------------------------------------------------------------------------------------------- optimizer -- */
/* sli_copy: elements [first, first + count) of the call's, rows of `columns`. */
struct optim_copy {
    uint16_t *to;
    uint32_t first, count, columns, row;
};

struct optim_args {
    float *param, *grad, *slot0, *slot1;
    const double *squares;      /* what the norm clips compare with, or NULL */
    const double *all_squares;  /* of all gradients, or NULL: the update is skipped where they are not finite */
    const double *skipped;      /* updates that the step's number counts and that did not happen, or NULL */
    const sli_scalars *scalars; /* learning rate, step */
    const sli_scaling *scaling; /* or NULL */
    sl_optimizer optimizer;
    sl_clip clip;
    size_t count;
    bool keep;              /* the gradient is left as it is */
    const uint8_t *touched; /* or NULL */
    sli_slices sparse;
    size_t first; /* of the gradient in the array of all */
    optim_copy copies[SLI_COPIES];
    int copy_count;
    bool f16; /* copies are, or bf16 */
};

struct alignas(8) optim_four {
    uint16_t x[4];
};

static __device__ __forceinline__ uint16_t rounded(const optim_args &a, float x) {
    return a.f16 ? sli_to_f16(x) : sli_to_bf16(x);
}

/* Item i of N elements into the copy that has it, if any. Copies are of whole items of four: their rows are, and parameters begin at
 * SLI_ALIGN; single elements are those of parameters that a caller has bound anywhere. */
template <int N>
__device__ __forceinline__ void copy_item(const optim_args &a, size_t i, const sli_pack<N> &param) {
    for (int c = 0; c < a.copy_count; c++) {
        const optim_copy &copy = a.copies[c];
        const uint32_t within = (uint32_t)(i * N) - copy.first, row = within / copy.columns;
        if (within >= copy.count) continue;
        uint16_t *to = copy.to + (size_t)row * copy.row + (within - row * copy.columns);
        if constexpr (N == 4) {
            optim_four four;
#pragma unroll
            for (int n = 0; n < N; n++) four.x[n] = rounded(a, param.v[n]);
            *reinterpret_cast<optim_four *>(to) = four;
        } else {
            *to = rounded(a, param.v[0]);
        }
        return;
    }
}

__device__ __forceinline__ sli_update_numbers numbers_of(const optim_args &a) {
    const double squares = a.squares ? *a.squares : 0, all = a.all_squares ? *a.all_squares : squares;
    const double skipped = a.skipped ? *a.skipped : 0;
    sl_clip clip = a.clip;
    if (!a.squares) clip.kind = SL_CLIP_NONE;
    return sli_update_numbers_of(&a.optimizer, &clip, a.scalars->learning_rate, a.scalars->optimizer_step - skipped,
                                 squares, a.scaling ? a.scaling->carried : 1.0, isfinite(all) && isfinite(squares));
}

/* Item i of N elements: parameters and slots =, gradient = 0 unless it is kept. */
template <int RULE, int N>
__device__ __forceinline__ void update_item(const optim_args &a, const sli_update_numbers &u, size_t i) {
    constexpr bool has_slot0 = RULE != SLI_RULE_SGD, has_slot1 = RULE == SLI_RULE_ADAM;
    sli_pack<N> zero;
#pragma unroll
    for (int n = 0; n < N; n++) zero.v[n] = 0.0f;
    if (!u.skip) {
        sli_pack<N> param = sli_load<N>(a.param, i), slot0 = zero, slot1 = zero;
        const sli_pack<N> grad = sli_load<N>(a.grad, i);
        if (has_slot0) slot0 = sli_load<N>(a.slot0, i);
        if (has_slot1) slot1 = sli_load<N>(a.slot1, i);
#pragma unroll
        for (int n = 0; n < N; n++)
            sli_update_element((sli_update_rule)RULE, &u, grad.v[n], &param.v[n], &slot0.v[n], &slot1.v[n]);
        sli_store<N>(a.param, i, param);
        copy_item<N>(a, i, param);
        if (has_slot0) sli_store<N>(a.slot0, i, slot0);
        if (has_slot1) sli_store<N>(a.slot1, i, slot1);
    }
    if (!a.keep) sli_store<N>(a.grad, i, zero);
}

template <int RULE, int N> __global__ void __launch_bounds__(SLI_THREADS) optim_update(const __grid_constant__ optim_args a) {
    __shared__ sli_update_numbers numbers;
    if (threadIdx.x == 0) numbers = numbers_of(a);
    __syncthreads();
    const sli_update_numbers u = numbers;
    const size_t items = a.count / N;
    for (size_t i = sli_first(); i < items; i += sli_stride()) update_item<RULE, N>(a, u, i);
    for (size_t i = items * N + sli_first(); i < a.count; i += sli_stride()) update_item<RULE, 1>(a, u, i);
}

template <int N> __device__ __forceinline__ bool is_zero(const sli_pack<N> &value) {
    uint32_t bits = 0;
#pragma unroll
    for (int n = 0; n < N; n++) bits |= __float_as_uint(value.v[n]);
    return bits == 0;
}

/* Items [first, end) of N elements each by SGD without weight decay: where the gradient is zero, it is all that is read, and nothing is
 * written. A thread has AHEAD items on their way. */
template <int N>
__device__ __forceinline__ void sgd_items(const optim_args &a, const sli_update_numbers &u, size_t first, size_t end,
                                          size_t stride) {
    enum { AHEAD = 4 };
    const sli_pack<N> zero = {};
    for (; first < end; first += AHEAD * stride) {
        sli_pack<N> grad[AHEAD], param[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            grad[k] = zero;
            if (first + k * stride < end) grad[k] = sli_load<N>(a.grad, first + k * stride);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (!is_zero(grad[k])) param[k] = sli_load<N>(a.param, first + k * stride);
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (is_zero(grad[k])) continue;
            float none = 0.0f;
#pragma unroll
            for (int n = 0; n < N; n++)
                sli_update_element(SLI_RULE_SGD, &u, grad[k].v[n], &param[k].v[n], &none, &none);
            if (!u.skip) {
                sli_store<N>(a.param, first + k * stride, param[k]);
                copy_item<N>(a, first + k * stride, param[k]);
            }
            if (!a.keep) sli_store<N>(a.grad, first + k * stride, zero);
        }
    }
}

template <int N> __global__ void __launch_bounds__(SLI_THREADS) optim_sgd(const __grid_constant__ optim_args a) {
    __shared__ sli_update_numbers numbers;
    if (threadIdx.x == 0) numbers = numbers_of(a);
    __syncthreads();
    const sli_update_numbers u = numbers;
    const size_t items = a.count / N;
    sgd_items<N>(a, u, sli_first(), items, sli_stride());
    for (size_t i = items * N + sli_first(); i < a.count; i += sli_stride()) update_item<SLI_RULE_SGD, 1>(a, u, i);
}

/* The same by slices of all gradients, of which those that nobody touched are passed over. Elements are counted from the gradient's. */
template <int N> __global__ void __launch_bounds__(SLI_THREADS) optim_sgd_slices(const __grid_constant__ optim_args a) {
    __shared__ sli_update_numbers numbers;
    const size_t slice = a.first / SLI_NORM_SLICE + blockIdx.x;
    if (is_untouched(a.touched, a.sparse, slice)) return;
    if (threadIdx.x == 0) numbers = numbers_of(a);
    __syncthreads();
    const sli_update_numbers u = numbers;
    const size_t begin = slice * SLI_NORM_SLICE, last = begin + SLI_NORM_SLICE - a.first;
    const size_t from = begin > a.first ? begin - a.first : 0, to = last < a.count ? last : a.count;
    sgd_items<N>(a, u, from / N + threadIdx.x, to / N, SLI_THREADS);
    for (size_t i = to / N * N + threadIdx.x; i < to; i += SLI_THREADS) update_item<SLI_RULE_SGD, 1>(a, u, i);
}

static void optim_launch_sgd(const optim_args &a, const sli_call *call) {
    const cudaStream_t stream = sli_cuda_stream(call->queue);
    const size_t most = (size_t)sli_cuda_caps_of(call->queue)->multiprocessors * 4;
    const size_t begin = a.first / SLI_NORM_SLICE, end = sli_norm_slices((int64_t)(a.first + a.count));
    const bool vectors = sli_aligned(a.param) && sli_aligned(a.grad) && a.first % 4 == 0;
    if (a.touched && (int64_t)begin < a.sparse.end && (int64_t)end > a.sparse.first && vectors)
        optim_sgd_slices<4><<<(unsigned)(end - begin), SLI_THREADS, 0, stream>>>(a);
    else if (vectors)
        optim_sgd<4><<<sli_blocks(a.count / 4, SLI_THREADS, most), SLI_THREADS, 0, stream>>>(a);
    else
        optim_sgd<1><<<sli_blocks(a.count, SLI_THREADS, most), SLI_THREADS, 0, stream>>>(a);
}

/* About as many blocks as run at once: each computes the numbers of the update first. */
template <int RULE> static void optim_launch(const optim_args &a, const sli_call *call) {
    const cudaStream_t stream = sli_cuda_stream(call->queue);
    const size_t most = (size_t)sli_cuda_caps_of(call->queue)->multiprocessors * (RULE == SLI_RULE_ADAM ? 4 : 8);
    const bool vectors = sli_aligned(a.param) && sli_aligned(a.grad) && sli_aligned(a.slot0) && sli_aligned(a.slot1);
    if (vectors)
        optim_update<RULE, 4><<<sli_blocks(a.count / 4, SLI_THREADS, most), SLI_THREADS, 0, stream>>>(a);
    else
        optim_update<RULE, 1><<<sli_blocks(a.count, SLI_THREADS, most), SLI_THREADS, 0, stream>>>(a);
}

extern "C" void sli_gpu_optim_forward(const sli_call *call) {
    const sli_problem *p = &call->problem;
    optim_args a = {};
    a.param = (float *)call->out[SLI_OPTIM_PARAM];
    a.grad = (float *)call->out[SLI_OPTIM_GRAD];
    a.slot0 = (float *)call->out[SLI_OPTIM_SLOT0];
    a.slot1 = (float *)call->out[SLI_OPTIM_SLOT1];
    a.squares = (const double *)call->in[SLI_OPTIM_SQUARES];
    a.all_squares = call->metrics ? &call->metrics->squares : NULL;
    a.scalars = call->scalars;
    a.scaling = call->scaling;
    a.skipped = call->scaling ? &call->scaling->skipped : call->metrics ? &call->metrics->skipped : NULL;
    a.optimizer = p->optimizer;
    a.clip = p->clip;
    a.count = (size_t)p->elements;
    a.keep = call->keep_gradient;
    a.touched = call->touched;
    a.sparse = call->sparse;
    a.first = (size_t)call->first_element;
    a.copy_count = call->copy_count;
    for (int i = 0; i < a.copy_count; i++) {
        const sli_copy *copy = &call->copies[i];
        a.copies[i] = {(uint16_t *)copy->to, (uint32_t)copy->first, (uint32_t)(copy->end - copy->first),
                       (uint32_t)copy->columns, (uint32_t)copy->row};
    }
    a.f16 = p->dtype == SL_F16;
    if (a.count == 0 || !sli_begin(call, SLI_PHASE_OPTIMIZER)) return;
    switch (sli_update_rule_of(&p->optimizer)) {
    case SLI_RULE_SGD:
        if (p->optimizer.weight_decay == 0)
            optim_launch_sgd(a, call);
        else
            optim_launch<SLI_RULE_SGD>(a, call);
        break;
    case SLI_RULE_MOMENTUM:
        optim_launch<SLI_RULE_MOMENTUM>(a, call);
        break;
    case SLI_RULE_ADAM:
        optim_launch<SLI_RULE_ADAM>(a, call);
        break;
    case SLI_RULE_RMSPROP:
        optim_launch<SLI_RULE_RMSPROP>(a, call);
        break;
    }
    SLI_LAUNCHED(call->queue, "optim_update");
}
