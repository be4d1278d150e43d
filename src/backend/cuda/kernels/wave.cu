/* cuda:wave: pack, forward, backward. A call of cuda:cluster for the whole (wave_layout.h), before which parameters and gradients of states of
 * the layers come together, and behind which gradients part again. */
#include "backend/cuda/kernels/step_device.cuh"
#include "backend/cuda/runtime/functions.h"
#include "backend/cuda/wave_layout.h"

/* -------------------------------------------------------------------------------------------------- parameters -- */
/* Parameters of the layers and of the whole, or their gradients. NULL: there is none, or nobody wants it. */
typedef struct wave_params {
    float *whole[SLI_PART_PARAMS];
    float *of[SLI_MAX_PARTS][SLI_PART_PARAMS];
    uint8_t fresh[SLI_MAX_PARTS]; /* bit k: = , else += */
    int layers, H, I, gates;
    bool gru;
} wave_params;

/* From layers to the whole: a thread has an element of parameter k. Row `gate` L H + l H + unit. */
static __device__ __forceinline__ float wave_element(const wave_params &a, int k, int64_t at) {
    const int whole = a.layers * a.H;
    const int columns = k == SLI_RNN_KERNEL ? a.I : k == SLI_RNN_RECURRENT ? whole : 1;
    const int row = (int)(at / columns), column = (int)(at - (int64_t)row * columns);
    const int gate = row / whole, layer = row % whole / a.H, unit = row % a.H;
    if (k == SLI_RNN_KERNEL) return layer == 0 ? a.of[0][k][(int64_t)(gate * a.H + unit) * a.I + column] : 0.0f;
    if (k != SLI_RNN_RECURRENT) return a.of[layer][k][gate * a.H + unit];
    const int from = column / a.H, own = a.gru && gate == 3 ? 2 : gate; /* a GRU: n of R, then n of W */
    const bool below = from + 1 == layer && !(a.gru && gate == 2), same = from == layer && !(a.gru && gate == 3);
    if (!below && !same) return 0.0f;
    return a.of[layer][below ? (int)SLI_RNN_KERNEL : (int)SLI_RNN_RECURRENT]
               [(int64_t)(own * a.H + unit) * a.H + column % a.H];
}

typedef struct wave_join_args {
    wave_params p;
    int64_t ends[SLI_PART_PARAMS]; /* elements up to the end of parameter k */
} wave_join_args;

static __global__ void __launch_bounds__(STEP_THREADS) wave_join(const __grid_constant__ wave_join_args a) {
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t begin = 0;
    for (int k = 0; k < SLI_PART_PARAMS; begin = a.ends[k++])
        if (at >= begin && at < a.ends[k]) a.p.whole[k][at - begin] = wave_element(a.p, k, at - begin);
}

/* From the whole's gradients to the layers': a thread has an element of parameter k of a layer. */
static __global__ void __launch_bounds__(STEP_THREADS) wave_part(const __grid_constant__ wave_params a) {
    const int layer = (int)blockIdx.y / SLI_PART_PARAMS, k = (int)blockIdx.y % SLI_PART_PARAMS, whole = a.layers * a.H;
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int columns = k == SLI_RNN_KERNEL ? (layer == 0 ? a.I : a.H) : k == SLI_RNN_RECURRENT ? a.H : 1;
    const int rows = k == SLI_RNN_PEEPHOLE ? 3 * a.H : a.gates * a.H;
    float *const to = a.of[layer][k];
    if (!to || at >= (int64_t)rows * columns) return;
    const int row = (int)(at / columns), column = (int)(at - (int64_t)row * columns);
    const int64_t of_whole = (int64_t)(row / a.H) * whole + layer * a.H + row % a.H;
    const float *from = a.whole[k];
    int64_t place = of_whole;
    if (k == SLI_RNN_KERNEL && layer == 0) {
        place = of_whole * a.I + column;
    } else if (k == SLI_RNN_KERNEL) {
        from = a.whole[a.gru ? (int)SLI_WAVE_BETWEEN : (int)SLI_RNN_RECURRENT];
        place = of_whole * whole + (layer - 1) * a.H + column;
    } else if (k == SLI_RNN_RECURRENT) {
        place = of_whole * whole + layer * a.H + column;
    }
    to[at] = a.fresh[layer] >> k & 1u ? from[place] : to[at] + from[place];
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
    return a;
}

static void join_params(const wave_call *w) {
    wave_join_args a = {};
    int64_t end = 0;
    a.p = params_of(w);
    for (int k = 0; k < SLI_PART_PARAMS; k++) {
        end += sli_wave_floats(&w->whole.problem, k, false);
        a.ends[k] = end;
        a.p.whole[k] = (float *)w->whole.param[k];
        for (int l = 0; l < a.p.layers; l++) a.p.of[l][k] = (float *)w->call->param[l * SLI_PART_PARAMS + k];
    }
    const sli_step_grid grid = {step_blocks_of(end, STEP_THREADS), 1, STEP_THREADS, 1};
    sli_step_launch(&w->way, wave_join, &grid, &a, false, "launch of the parameters of a wave");
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

static void part_gradients(const wave_call *w) {
    wave_params a = params_of(w);
    const int64_t wide = a.I > a.H ? a.I : a.H;
    for (int k = 0; k < SLI_PART_PARAMS; k++) a.whole[k] = (float *)w->whole.d_param[k];
    for (int l = 0; l < a.layers; l++) {
        a.fresh[l] = w->call->fresh[l];
        for (int k = 0; k < SLI_PART_PARAMS; k++) a.of[l][k] = (float *)w->call->d_param[l * SLI_PART_PARAMS + k];
    }
    const sli_step_grid grid = {step_blocks_of(a.gates * a.H * wide, STEP_THREADS),
                                (unsigned)(a.layers * SLI_PART_PARAMS), STEP_THREADS, 1};
    sli_step_launch(&w->way, wave_part, &grid, &a, false, "launch of the gradients of a wave");
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
