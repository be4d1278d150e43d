/* Parameters: into cuDNN's weight space (pack), and gradients out of it. Both have the same order of gates, so that a run of gates
 * that lies together in the weight space goes in one piece; on cuDNN 9.19 that is a whole matrix. */
#include <string.h>

#include "internal.h"

/* One parameter: `gates` pieces of `piece` numbers, one behind the other in ours, at offsets[] in cuDNN's weight space. */
typedef struct placed {
    const size_t *offsets;
    int gates;
    size_t piece;
} placed;

static placed place_of(const sli_cudnn_work *w, int part, int k) {
    const sli_problem *p = w->p;
    int gates = sli_cudnn_gates(p);
    size_t H = (size_t)p->units, O = (size_t)sli_problem_output(p);
    const size_t *matrix = w->shape->matrix[part], *bias = w->shape->bias[part];
    switch (k) {
    case SLI_RNN_KERNEL:
        return (placed){matrix, gates, H * sli_cudnn_part_inputs(p, part)};
    case SLI_RNN_RECURRENT:
        return (placed){matrix + gates, gates, H * O};
    case SLI_RNN_BIAS:
        return (placed){bias, gates, H};
    case SLI_RNN_RECURRENT_BIAS:
        return (placed){bias + gates, gates, H};
    default: /* projection */
        return (placed){matrix + 2 * gates, 1, O * H};
    }
}

/* Calls `piece` for each run of gates that lies together: numbers `at` (ours) and bytes `offset` (cuDNN's). */
static void for_runs(const sli_cudnn_work *w, const placed *place, void *ours, char *theirs,
                     void (*piece)(const sli_cudnn_work *w, void *ours, char *theirs, size_t count)) {
    for (int first = 0, next; first < place->gates; first = next) {
        next = first + 1;
        while (next < place->gates && place->offsets[next] == place->offsets[next - 1] + place->piece * w->bytes)
            next++;
        float *mine = ours ? (float *)ours + (size_t)first * place->piece : NULL;
        piece(w, mine, theirs + place->offsets[first], (size_t)(next - first) * place->piece);
    }
}

static void put_piece(const sli_cudnn_work *w, void *ours, char *theirs, size_t count) {
    sli_cudnn_put(w, theirs, ours, count); /* nothing there: zeros */
}
static void add_piece(const sli_cudnn_work *w, void *ours, char *theirs, size_t count) {
    sli_cudnn_add(w, ours, theirs, count);
}

static bool has_kind(const sli_problem *p, int k) {
    return k == SLI_RNN_PROJECTION ? p->projection > 0 : k <= SLI_RNN_RECURRENT_BIAS;
}

/* The bias of f with the forget bias that every step adds: summed in f32 in `sum` [H], then stored as cuDNN wants it. */
static void put_forget_bias(const sli_cudnn_work *w, const float *bias, char *theirs, float *sum) {
    const sli_cuda_services *s = sli_cudnn_services;
    size_t H = (size_t)w->p->units;
    float value = (float)w->p->forget_bias;
    unsigned bits;
    memcpy(&bits, &value, sizeof bits);
    if (sli_cudnn.cuMemsetD32Async((CUdeviceptr)(uintptr_t)sum, bits, H, (CUstream)w->stream) != CUDA_SUCCESS) {
        s->fail(w->queue, SL_ERR_DEVICE, "the forget bias of cuDNN's weights could not be set; the GPU failed before");
        return;
    }
    if (bias) s->add(w->queue, w->stream, SL_F32, sum, bias + H, H);
    sli_cudnn_put(w, theirs, sum, H);
}

void sli_cudnn_pack(const sli_call *call, sli_cudnn_algo algo) {
    sli_cudnn_work w;
    if (!sli_cudnn_begin(call, algo, &w)) return;
    char *weights = sli_cudnn_aligned(call->packed);
    float *sum = (float *)(void *)(weights + sli_round_up(w.shape->sizes.weights, SLI_CUDNN_ALIGN));
    sli_cudnn_services->phase(w.queue, SLI_PHASE_OPTIMIZER);
    if (w.shape->gaps) sli_cudnn_zero(&w, weights, w.shape->sizes.weights);
    for (int part = 0; part < w.parts; part++)
        for (int k = 0; k < SLI_PART_PARAMS; k++) {
            const float *param = call->param[part * SLI_PART_PARAMS + k];
            if (k == SLI_RNN_PEEPHOLE || !has_kind(w.p, k)) continue;
            placed place = place_of(&w, part, k);
            for_runs(&w, &place, (void *)(uintptr_t)param, weights, put_piece);
            if (k == SLI_RNN_BIAS && w.p->forget_at_run)
                put_forget_bias(&w, param, weights + place.offsets[1], sum); /* f is the second gate */
        }
}

void sli_cudnn_add_gradients(const sli_cudnn_work *w, const char *gradients) {
    for (int part = 0; part < w->parts; part++)
        for (int k = 0; k < SLI_PART_PARAMS; k++) {
            void *gradient = w->call->d_param[part * SLI_PART_PARAMS + k];
            if (!gradient || k == SLI_RNN_PEEPHOLE || !has_kind(w->p, k)) continue;
            placed place = place_of(w, part, k);
            for_runs(w, &place, gradient, (char *)(uintptr_t)gradients, add_piece);
        }
}
