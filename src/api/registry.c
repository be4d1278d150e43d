/* The one place that names every kind of layer, every kernel row and every device of this build. */
#include "backend/cpu/cpu.h"
#include "backend/cuda/cuda.h"
#include "backend/cudnn/cudnn.h"
#include "backend/far/far.h"
#include "backend/ref/ref.h"
#include "layer/layers.h"

#include <pthread.h>

static const sli_layer_kind *const layer_kinds[] = {
    &sli_layer_input,
    &sli_layer_lstm,
    &sli_layer_gru,
    &sli_layer_rnn,
    &sli_layer_embedding,
    &sli_layer_one_hot,
    &sli_layer_dense,
    &sli_layer_dropout,
    &sli_layer_add,
    &sli_layer_concat,
    &sli_layer_multiply,
    &sli_layer_average,
    NULL,
};

static const sli_device_ops *const devices[] = {&sli_cpu_device, &sli_far_device, &sli_cuda_device, NULL};

/* Rows of all backends, each backend's in its own order of preference, the reference last. */
enum { MAX_ROWS = 256 };
static const sli_kernel *rows[MAX_ROWS + 1];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void collect(void) {
    const sli_kernel *const *const tables[] = {sli_far_kernels, sli_cpu_kernels, sli_cudnn_kernels, sli_cuda_kernels,
                                               sli_ref_kernels};
    int count = 0;
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const sli_kernel *const *row = tables[t]; *row && count < MAX_ROWS; row++) rows[count++] = *row;
    rows[count] = NULL;
}

const sli_registry *sli_registry_get(void) {
    static const sli_registry registry = {rows, layer_kinds, devices};
    pthread_once(&once, collect);
    return &registry;
}
