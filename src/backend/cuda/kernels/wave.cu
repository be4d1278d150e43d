/* cuda:wave: pack, forward, backward. A call of cuda:cluster for the whole (wave_layout.h), before which parameters and gradients of states of
 * the layers come together, and behind which gradients part again. */
#include "backend/cuda/kernels/common.cuh"
#include "backend/cuda/kernels/step_device.cuh"
#include "backend/cuda/runtime/functions.h"
#include "backend/cuda/wave_layout.h"

/* -------------------------------------------------------------------------------------------------- parameters -- */
/* Parameters of the layers and of the whole, or their gradients. NULL: there is none, or nobody wants it. */
typedef struct wave_params {
    float *whole[SLI_PART_PARAMS];
    char *of[SLI_MAX_PARTS][SLI_PART_PARAMS]; /* floats, or narrow ones of `math` */
    sl_dtype math;
    uint8_t fresh[SLI_MAX_PARTS]; /* bit k: = , else += */
    int layers, H, I, gates;
    bool gru;
} wave_params;

enum { WAVE_THREADS = 256 };

static __device__ __forceinline__ int wave_row(int64_t at, int columns, int *column) {
    const int row = (int)sli_divide((size_t)at, (size_t)columns);
    *column = (int)(at - (int64_t)row * columns);
    return row;
}

/* N numbers of T, where `from` points, in one access. */
template <int N, class T> struct alignas(N * sizeof(T)) wave_pack { T v[N]; };
template <int N, class T> static __device__ __forceinline__ sli_pack<N> wave_load(const T *from) {
    const wave_pack<N, T> narrow = *reinterpret_cast<const wave_pack<N, T> *>(from);
    sli_pack<N> value;
#pragma unroll
    for (int n = 0; n < N; n++) value.v[n] = sli_wide(narrow.v[n]);
    return value;
}
template <int N, class T> static __device__ __forceinline__ void wave_store(T *to, const sli_pack<N> &value) {
    wave_pack<N, T> narrow;
#pragma unroll
    for (int n = 0; n < N; n++) sli_assign(&narrow.v[n], value.v[n]);
    *reinterpret_cast<wave_pack<N, T> *>(to) = narrow;
}

/* From layers to the whole: N elements of parameter k, of a row of a matrix. Row `gate` L H + l H + unit. NULL: zeros. */
template <int N, class T> static __device__ __forceinline__ const T *wave_from(const wave_params &a, int k, int64_t at) {
    const auto of = [&](int layer, int parameter) { return reinterpret_cast<const T *>(a.of[layer][parameter]); };
    const int whole = a.layers * a.H;
    const int columns = k == SLI_RNN_KERNEL ? a.I : k == SLI_RNN_RECURRENT ? whole : 1;
    int column;
    const int row = wave_row(at * N, columns, &column);
    const int gate = row / whole, layer = row % whole / a.H, unit = row % a.H;
    if (k == SLI_RNN_KERNEL) return layer == 0 ? of(0, k) + ((int64_t)(gate * a.H + unit) * a.I + column) : NULL;
    if (k != SLI_RNN_RECURRENT) return of(layer, k) + (gate * a.H + unit);
    const int from = column / a.H, own = a.gru && gate == 3 ? 2 : gate; /* a GRU: n of R, then n of W */
    const bool below = from + 1 == layer && !(a.gru && gate == 2), same = from == layer && !(a.gru && gate == 3);
    if (!below && !same) return NULL;
    return of(layer, below ? (int)SLI_RNN_KERNEL : (int)SLI_RNN_RECURRENT) +
           ((int64_t)(own * a.H + unit) * a.H + column % a.H);
}

typedef struct wave_join_args {
    wave_params p;
    int64_t ends[SLI_PART_PARAMS]; /* packs up to the end of parameter k */
} wave_join_args;

template <int N, class T> static __global__ void __launch_bounds__(WAVE_THREADS) wave_join(const __grid_constant__ wave_join_args a) {
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t begin = 0;
    for (int k = 0; k < SLI_PART_PARAMS; begin = a.ends[k++]) {
        if (at < begin || at >= a.ends[k]) continue;
        const T *from = wave_from<N, T>(a.p, k, at - begin);
        sli_pack<N> value = {};
        if (from) value = wave_load<N>(from);
        sli_store<N>(a.p.whole[k], (size_t)(at - begin), value);
    }
}

/* A gradient of a layer, from what the whole has of it: `lines` of `columns` packs; of every `together` lines, `step` floats from the next, the first
 * is `next` floats from that of the lines before. */
typedef struct wave_piece {
    char *to;          /* [lines][columns] packs of T: = where it is `fresh`, else += */
    const float *from;
    int64_t step, next;
    int lines, columns, together, blocks; /* blocks: up to its end */
    bool fresh;
} wave_piece;
typedef struct wave_part_args {
    wave_piece piece[SLI_MAX_PARAM];
    int pieces;
} wave_part_args;

template <int N, class T> static __global__ void __launch_bounds__(WAVE_THREADS) wave_part(const __grid_constant__ wave_part_args a) {
    int i = 0, begin = 0, column;
    for (; i < a.pieces && (int)blockIdx.x >= a.piece[i].blocks; i++) begin = a.piece[i].blocks;
    const wave_piece &p = a.piece[i];
    const int64_t at = (int64_t)((int)blockIdx.x - begin) * blockDim.x + threadIdx.x;
    if (at >= (int64_t)p.lines * p.columns) return;
    const int line = wave_row(at, p.columns, &column);
    const float *from = p.from + (line / p.together * p.next + line % p.together * p.step + column * N);
    T *const to = reinterpret_cast<T *>(p.to) + at * N;
    sli_pack<N> value = sli_load<N>(from, 0);
    if (!p.fresh) {
        const sli_pack<N> before = wave_load<N>(to);
#pragma unroll
        for (int n = 0; n < N; n++) value.v[n] = before.v[n] + value.v[n];
    }
    wave_store<N>(to, value);
}

/* ------------------------------------------------------------------------------------------------------ states -- */
/* Gradients of states: [B][L H] of the whole, and [B][H] of each layer: of h, c. */
typedef struct wave_states_args {
    float *whole[2], *of[SLI_MAX_PARTS][2];
    unsigned add; /* bit 2 l + k: parting adds */
    int B, H, layers, states;
    bool parts; /* else they come together; NULL of a layer: zeros */
} wave_states_args;

static __global__ void __launch_bounds__(STEP_THREADS) wave_states(const __grid_constant__ wave_states_args a) {
    const int index = step_unit<1>(), all = a.layers * a.H, k = index / all, j = index % all;
    if (k >= a.states) return;
    const int layer = j / a.H, unit = j % a.H;
    float *const own = a.of[layer][k];
    for (int row = step_row(); row < a.B; row += step_row_stride()) {
        float *const whole = a.whole[k] + (int64_t)row * all + j;
        const int64_t at = (int64_t)row * a.H + unit;
        if (!a.parts)
            *whole = own ? own[at] : 0.0f;
        else if (own)
            own[at] = a.add >> (2 * layer + k) & 1u ? own[at] + *whole : *whole;
    }
}

/* -------------------------------------------------------------------------------------------------------- a call -- */
typedef struct wave_call {
    const sli_call *call;
    sli_call whole; /* of cuda:cluster */
    sli_persist_pair pair;
    sli_wave_places packed, scratch;
    step_way way; /* queue and stream, for launches */
} wave_call;

static float *floats_at(void *base, size_t offset) {
    return (float *)((char *)base + offset);
}

/* Without tensors. */
static bool enter(const sli_call *call, bool backward, wave_call *w) {
    sli_why why = {""};
    const sli_caps *caps = sli_cuda_caps_of(call->queue);
    if (sli_cuda_failed(call->queue)) return false;
    *w = wave_call{};
    w->call = call;
    w->whole = *call;
    w->whole.problem = sli_wave_whole(&call->problem);
    w->whole.planned = sli_wave_planned(&call->problem, call->planned);
    w->whole.chunk = sli_wave_chunk(&call->problem, call->chunk);
    const sli_problem *p = &w->whole.problem;
    if (!sli_persist_pair_of(p, w->whole.planned, caps, SLI_PERSIST_KIND_CLUSTER, &w->pair, &why)) {
        sli_cuda_fail(call->queue, SL_ERR_NO_KERNEL, "%s", why.text);
        return false;
    }
    w->packed = sli_wave_layout_packed(p, &w->pair);
    w->scratch = sli_wave_layout_scratch(p, caps, &w->pair, w->whole.chunk, backward);
    w->way.queue = call->queue;
    w->way.stream = sli_cuda_stream(call->queue);
    for (int k = 0; k < SLI_PART_PARAMS; k++) {
        w->whole.param[k] = sli_wave_floats(p, k, false) > 0 ? floats_at(call->packed, w->packed.param[k]) : NULL;
        w->whole.d_param[k] = NULL;
    }
    w->whole.accumulate = call->accumulate & 1u << SLI_RNN_X;
    w->whole.fresh[0] = 0;
    return true;
}

static wave_params params_of(const wave_call *w) {
    const sli_problem *p = &w->call->problem;
    wave_params a = {};
    a.layers = p->layers;
    a.H = p->units;
    a.I = p->inputs;
    a.gates = sli_op_gates(p->op);
    a.gru = p->op == SLI_OP_GRU;
    a.math = p->narrow ? p->dtype : SL_F32;
    return a;
}

/* All of it can be read and written by four: rows of matrices, what the units of a layer have, and where parameters begin. */
static bool by_four(const wave_params *a) {
    uint64_t bits = (uint64_t)(a->H | a->I) * sizeof(float);
    const uint64_t narrow = a->math == SL_F32 ? 1 : 2; /* four of them are 8 bytes */
    for (int k = 0; k < SLI_PART_PARAMS; k++) {
        bits |= (uintptr_t)a->whole[k];
        for (int l = 0; l < a->layers; l++) bits |= (uintptr_t)a->of[l][k] * narrow;
    }
    return bits % 16 == 0;
}

static void join_params(const wave_call *w) {
    wave_join_args a = {};
    int64_t end = 0;
    a.p = params_of(w);
    for (int k = 0; k < SLI_PART_PARAMS; k++) {
        a.p.whole[k] = (float *)w->whole.param[k];
        for (int l = 0; l < a.p.layers; l++) a.p.of[l][k] = (char *)w->call->param[l * SLI_PART_PARAMS + k];
    }
    const bool four = by_four(&a.p);
    for (int k = 0; k < SLI_PART_PARAMS; k++) {
        end += sli_wave_floats(&w->whole.problem, k, false) / (four ? 4 : 1);
        a.ends[k] = end;
    }
    const sli_step_grid grid = {step_blocks_of(end, WAVE_THREADS), 1, WAVE_THREADS, 1};
    const auto kernel = a.p.math == SL_BF16  ? (four ? wave_join<4, sli_bf16> : wave_join<1, sli_bf16>)
                        : a.p.math == SL_F16 ? (four ? wave_join<4, sli_f16> : wave_join<1, sli_f16>)
                                             : (four ? wave_join<4, float> : wave_join<1, float>);
    sli_step_launch(&w->way, kernel, &grid, &a, false, "launch of the parameters of a wave");
}

/* Gradients of the whole that some layer wants are written, not added to. */
static void set_gradients(wave_call *w) {
    const sli_problem *p = &w->call->problem;
    void *const *d = w->call->d_param;
    bool wanted[SLI_PART_PARAMS] = {};
    for (int l = 0; l < p->layers; l++)
        for (int k = 0; k < SLI_PART_PARAMS; k++)
            if (d[l * SLI_PART_PARAMS + k])
                wanted[k != SLI_RNN_KERNEL || l == 0  ? k
                       : p->op == SLI_OP_GRU ? (int)SLI_WAVE_BETWEEN
                                             : (int)SLI_RNN_RECURRENT] = true;
    if (wanted[SLI_WAVE_BETWEEN]) wanted[SLI_RNN_RECURRENT] = true; /* sli_step_add_recurrent computes both */
    for (int k = 0; k < SLI_PART_PARAMS; k++) {
        if (!wanted[k]) continue;
        w->whole.d_param[k] = floats_at(w->call->scratch, w->scratch.param[k]);
        w->whole.fresh[0] |= (uint8_t)(1u << k);
    }
}

/* Of parameter k of layer l; each floats in an access. */
static wave_piece piece_of(const wave_params *a, int l, int k, int each) {
    const int whole = a->layers * a->H, kernel = k == SLI_RNN_KERNEL, gates = k == SLI_RNN_PEEPHOLE ? 3 : a->gates;
    wave_piece p = {};
    p.to = a->of[l][k];
    p.fresh = a->fresh[l] >> k & 1u;
    if (!kernel && k != SLI_RNN_RECURRENT) { /* a line a gate */
        p.from = a->whole[k] + l * a->H;
        p.lines = gates;
        p.columns = a->H / each;
        p.together = 1;
        p.next = whole;
        return p;
    }
    const bool below = kernel && l > 0;
    const int64_t row = kernel && !below ? a->I : whole;
    const float *from = a->whole[below ? (a->gru ? (int)SLI_WAVE_BETWEEN : (int)SLI_RNN_RECURRENT) : k];
    p.from = from + (int64_t)l * a->H * row + (below ? (l - 1) * a->H : kernel ? 0 : l * a->H);
    p.lines = gates * a->H;
    p.columns = (kernel && !below ? a->I : a->H) / each;
    p.together = a->H;
    p.step = row;
    p.next = whole * row;
    return p;
}

static void part_gradients(const wave_call *w) {
    wave_params a = params_of(w);
    wave_part_args parts = {};
    unsigned blocks = 0;
    for (int k = 0; k < SLI_PART_PARAMS; k++) a.whole[k] = (float *)w->whole.d_param[k];
    for (int l = 0; l < a.layers; l++) {
        a.fresh[l] = w->call->fresh[l];
        for (int k = 0; k < SLI_PART_PARAMS; k++) a.of[l][k] = (char *)w->call->d_param[l * SLI_PART_PARAMS + k];
    }
    const bool four = by_four(&a);
    for (int i = 0; i < a.layers * SLI_PART_PARAMS; i++) {
        if (!a.of[i / SLI_PART_PARAMS][i % SLI_PART_PARAMS]) continue;
        wave_piece *p = &parts.piece[parts.pieces++];
        *p = piece_of(&a, i / SLI_PART_PARAMS, i % SLI_PART_PARAMS, four ? 4 : 1);
        blocks += step_blocks_of((int64_t)p->lines * p->columns, WAVE_THREADS);
        p->blocks = (int)blocks;
    }
    if (blocks == 0) return;
    const sli_step_grid grid = {blocks, 1, WAVE_THREADS, 1};
    const auto kernel = a.math == SL_BF16  ? (four ? wave_part<4, sli_bf16> : wave_part<1, sli_bf16>)
                        : a.math == SL_F16 ? (four ? wave_part<4, sli_f16> : wave_part<1, sli_f16>)
                                           : (four ? wave_part<4, float> : wave_part<1, float>);
    sli_step_launch(&w->way, kernel, &grid, &parts, false, "launch of the gradients of a wave");
}

/* All of them [layer][k]; to or from `places` in scratch. */
static void move_states(const wave_call *w, void *const of[SLI_MAX_PARTS][2], const size_t places[2], unsigned add,
                        bool parts) {
    const sli_problem *p = &w->call->problem;
    wave_states_args a = {};
    bool any = false;
    a.B = p->batch;
    a.H = p->units;
    a.layers = p->layers;
    a.states = sli_problem_states(p);
    a.add = add;
    a.parts = parts;
    for (int k = 0; k < a.states; k++) {
        a.whole[k] = floats_at(w->call->scratch, places[k]);
        for (int l = 0; l < p->layers; l++) {
            a.of[l][k] = (float *)of[l][k];
            any |= of[l][k] != NULL;
        }
    }
    if (parts && !any) return;
    const sli_step_grid grid = sli_step_grid_of(a.states * p->layers * p->units, p->batch, 1);
    sli_step_launch(&w->way, wave_states, &grid, &a, false, "launch of the states' gradients of a wave");
}

extern "C" void sli_gpu_wave_pack(const sli_call *call) {
    wave_call w;
    if (!enter(call, false, &w)) return;
    join_params(&w);
    sli_gpu_cluster_pack(&w.whole);
}

extern "C" void sli_gpu_wave_forward(const sli_call *call) {
    wave_call w;
    if (enter(call, false, &w)) sli_gpu_cluster_forward(&w.whole); /* which takes and gives states of all layers */
}

extern "C" void sli_gpu_wave_backward(const sli_call *call) {
    wave_call w;
    void *leaves[SLI_MAX_PARTS][2] = {}, *enters[SLI_MAX_PARTS][2] = {};
    unsigned add = 0;
    bool given = false, wanted = false;
    if (!enter(call, true, &w)) return;
    sli_cuda_phase(call->queue, SLI_PHASE_RECURRENCE);
    for (int l = 0; l < call->problem.layers; l++)
        for (int k = 0; k < sli_problem_states(&call->problem); k++) {
            leaves[l][k] = (void *)call->d_out[SLI_RNN_STATE_OUT(l, k)];
            enters[l][k] = call->d_in[SLI_RNN_STATE_IN(l, k)];
            given |= leaves[l][k] != NULL;
            wanted |= enters[l][k] != NULL;
            add |= (call->accumulate >> SLI_RNN_STATE_IN(l, k) & 1u) << (2 * l + k);
        }
    for (int k = 0; k < sli_problem_states(&call->problem); k++) {
        w.whole.d_out[SLI_RNN_STATE_OUT(0, k)] = given ? floats_at(call->scratch, w.scratch.leaves[k]) : NULL;
        w.whole.d_in[SLI_RNN_STATE_IN(0, k)] = wanted ? floats_at(call->scratch, w.scratch.enters[k]) : NULL;
    }
    set_gradients(&w);
    if (given) move_states(&w, leaves, w.scratch.leaves, 0, false);
    sli_gpu_cluster_backward(&w.whole);
    part_gradients(&w);
    move_states(&w, enters, w.scratch.enters, add, true);
}
