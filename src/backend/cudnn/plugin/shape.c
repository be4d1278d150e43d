/* A shape: cuDNN's descriptors of one problem, the bytes that it wants, and where each parameter lies in its weight space. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

void sli_cudnn_key_fill(sli_cudnn_key *key, const sli_problem *p, sli_cudnn_algo algo, int device) {
    memset(key, 0, sizeof *key);
    memcpy(key->kind, "cudnn", 6);
    key->algo = (int)algo;
    key->device = device;
    key->problem.op = p->op;
    key->problem.layers = p->layers > 1 ? p->layers : 1;
    key->problem.batch = p->batch;
    key->problem.steps = (int)sli_cudnn_steps(p);
    key->problem.inputs = p->inputs;
    key->problem.units = p->units;
    key->problem.projection = p->projection;
    key->problem.bidirectional = p->bidirectional;
    key->problem.train = p->train;
    key->problem.dtype = p->dtype;
    key->problem.act = p->act == SL_ACT_RELU ? SL_ACT_RELU : SL_ACT_DEFAULT;
    key->problem.mask = p->mask;
}

static cudnnDataType_t data_type(const sli_problem *p) {
    return p->dtype == SL_BF16 ? CUDNN_DATA_BFLOAT16 : p->dtype == SL_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
}

/* f32: FMA alone. tf32: the default, which lets floats go through the tensor cores as tf32 and nothing narrower. */
static cudnnMathType_t math_type(const sli_problem *p) {
    return p->dtype == SL_F32 ? CUDNN_FMA_MATH : p->dtype == SL_TF32 ? CUDNN_DEFAULT_MATH : CUDNN_TENSOR_OP_MATH;
}

static cudnnRNNMode_t cell_mode(const sli_problem *p) {
    if (p->op == SLI_OP_LSTM) return CUDNN_LSTM;
    if (p->op == SLI_OP_GRU) return CUDNN_GRU;
    return p->act == SL_ACT_RELU ? CUDNN_RNN_RELU : CUDNN_RNN_TANH;
}

/* Always two biases: the persistent kernels have nothing else, and the packed copy holds zeros where the layer has none. */
static bool set_rnn(sli_cudnn_shape *shape, cudnnHandle_t questions, sli_why *why) {
    static const cudnnRNNAlgo_t algos[] = {CUDNN_RNN_ALGO_STANDARD, CUDNN_RNN_ALGO_PERSIST_STATIC,
                                           CUDNN_RNN_ALGO_PERSIST_DYNAMIC, CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H};
    const sli_problem *p = &shape->key.problem;
    SLI_CUDNN_TRY(cudnnCreateDropoutDescriptor(&shape->dropout), why);
    SLI_CUDNN_TRY(cudnnSetDropoutDescriptor(shape->dropout, questions, 0, NULL, 0, 0), why);
    SLI_CUDNN_TRY(cudnnCreateRNNDescriptor(&shape->rnn), why);
    SLI_CUDNN_TRY(cudnnSetRNNDescriptor_v8(shape->rnn, algos[shape->key.algo], cell_mode(p), CUDNN_RNN_DOUBLE_BIAS,
                                           p->bidirectional ? CUDNN_BIDIRECTIONAL : CUDNN_UNIDIRECTIONAL,
                                           CUDNN_LINEAR_INPUT, data_type(p), CUDNN_DATA_FLOAT, math_type(p), p->inputs,
                                           p->units, sli_problem_output(p), p->layers, shape->dropout,
                                           CUDNN_RNN_PADDED_IO_ENABLED),
                  why);
    return true;
}

/* Steps: those of the longest row. The tensors begin with the first step, so that what lies behind is out of sight. */
bool sli_cudnn_shape_lengths(sli_cudnn_shape *shape, sli_why *why) {
    const sli_problem *p = &shape->key.problem;
    float fill = 0; /* zero in every type */
    int width = sli_problem_output(p) * sli_cudnn_directions(p), steps = 1;
    for (int row = 0; row < p->batch; row++)
        if (shape->lengths[row] > steps) steps = shape->lengths[row];
    SLI_CUDNN_TRY(cudnnSetRNNDataDescriptor(shape->x, data_type(p), CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, steps,
                                            p->batch, p->inputs, shape->lengths, &fill),
                  why);
    SLI_CUDNN_TRY(cudnnSetRNNDataDescriptor(shape->y, data_type(p), CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, steps,
                                            p->batch, width, shape->lengths, &fill),
                  why);
    return true;
}

static bool set_states(const sli_problem *p, int features, cudnnTensorDescriptor_t *state, sli_why *why) {
    int sizes[3] = {sli_cudnn_parts(p), p->batch, features}, strides[3] = {p->batch * features, features, 1};
    SLI_CUDNN_TRY(cudnnCreateTensorDescriptor(state), why);
    SLI_CUDNN_TRY(cudnnSetTensorNdDescriptor(*state, data_type(p), 3, sizes, strides), why);
    return true;
}

static bool set_data(sli_cudnn_shape *shape, sli_why *why) {
    const sli_problem *p = &shape->key.problem;
    shape->lengths = malloc((size_t)p->batch * sizeof *shape->lengths);
    if (!shape->lengths) {
        sli_cudnn_passing = true;
        return sli_cudnn_refuse(why, "out of memory: the lengths of %d rows", p->batch);
    }
    for (int row = 0; row < p->batch; row++) shape->lengths[row] = p->steps;
    SLI_CUDNN_TRY(cudnnCreateRNNDataDescriptor(&shape->x), why);
    SLI_CUDNN_TRY(cudnnCreateRNNDataDescriptor(&shape->y), why);
    return sli_cudnn_shape_lengths(shape, why) && set_states(p, sli_problem_output(p), &shape->h, why) &&
           (p->op != SLI_OP_LSTM || set_states(p, p->units, &shape->c, why));
}

/* cuDNN's numbers of gates are the library's order: LSTM i f g o, GRU r z n; input matrices first, then recurrent. */
static bool find_weights(sli_cudnn_shape *shape, cudnnHandle_t questions, cudnnTensorDescriptor_t matrix,
                         cudnnTensorDescriptor_t bias, sli_why *why) {
    /* Only addresses are computed; from an address that is not NULL a missing parameter can be told. */
    char *const base = (char *)(uintptr_t)(1u << 20);
    const sli_problem *p = &shape->key.problem;
    int gates = sli_cudnn_gates(p), count = 2 * gates + (p->projection > 0);
    size_t used = 0, H = (size_t)p->units, O = (size_t)sli_problem_output(p);
    for (int part = 0; part < sli_cudnn_parts(p); part++)
        for (int k = 0; k < count; k++) {
            void *m = NULL, *b = NULL;
            SLI_CUDNN_TRY(cudnnGetRNNWeightParams(questions, shape->rnn, part, shape->sizes.weights, base, k, matrix,
                                                  &m, bias, &b),
                          why);
            if (!m || (!b && k < 2 * gates))
                return sli_cudnn_refuse(why, "cuDNN does not say where parameter %d of part %d lies", k, part);
            shape->matrix[part][k] = (size_t)((char *)m - base);
            if (k < 2 * gates) shape->bias[part][k] = (size_t)((char *)b - base);
            used += k == 2 * gates ? O * H : H + H * (k < gates ? sli_cudnn_part_inputs(p, part) : O);
        }
    shape->gaps = used * sli_cudnn_bytes(p) != shape->sizes.weights;
    return true;
}

static bool set_weights(sli_cudnn_shape *shape, cudnnHandle_t questions, sli_why *why) {
    SLI_CUDNN_TRY(cudnnGetRNNWeightSpaceSize(questions, shape->rnn, &shape->sizes.weights), why);
    cudnnTensorDescriptor_t matrix = NULL, bias = NULL;
    bool fine = sli_cudnn_fine(sli_cudnn.cudnnCreateTensorDescriptor(&matrix), "cudnnCreateTensorDescriptor", why) &&
                sli_cudnn_fine(sli_cudnn.cudnnCreateTensorDescriptor(&bias), "cudnnCreateTensorDescriptor", why) &&
                find_weights(shape, questions, matrix, bias, why);
    if (matrix) sli_cudnn.cudnnDestroyTensorDescriptor(matrix);
    if (bias) sli_cudnn.cudnnDestroyTensorDescriptor(bias);
    return fine;
}

static bool set_sizes(sli_cudnn_shape *shape, cudnnHandle_t questions, sli_why *why) {
    sli_cudnn_sizes *sizes = &shape->sizes;
    size_t none;
    SLI_CUDNN_TRY(cudnnGetRNNTempSpaceSizes(questions, shape->rnn, CUDNN_FWD_MODE_INFERENCE, shape->x,
                                            &sizes->workspace_inference, &none),
                  why);
    SLI_CUDNN_TRY(cudnnGetRNNTempSpaceSizes(questions, shape->rnn, CUDNN_FWD_MODE_TRAINING, shape->x,
                                            &sizes->workspace_training, &sizes->reserve),
                  why);
    return true;
}

bool sli_cudnn_shape_build(sli_cudnn_shape *shape, cudnnHandle_t handle, sli_why *why) {
    if (shape->built || shape->key.algo != SLI_CUDNN_PERSIST_DYNAMIC) return true;
    SLI_CUDNN_TRY(cudnnBuildRNNDynamic(handle, shape->rnn, shape->key.problem.batch), why);
    shape->built = true;
    return true;
}

sli_cudnn_shape *sli_cudnn_shape_new(const sli_cudnn_key *key, cudnnHandle_t questions, sli_why *why) {
    sli_cudnn_shape *shape = calloc(1, sizeof *shape);
    if (!shape) {
        sli_cudnn_passing = true;
        sli_cudnn_refuse(why, "out of memory: cuDNN's description of a layer");
        return NULL;
    }
    shape->key = *key;
    bool fine = set_rnn(shape, questions, why) && set_data(shape, why) && set_weights(shape, questions, why);
    /* A persistent dynamic layer may be asked for its sizes only once it is built. */
    if (fine && !set_sizes(shape, questions, why))
        fine = key->algo == SLI_CUDNN_PERSIST_DYNAMIC && sli_cudnn_shape_build(shape, questions, why) &&
               set_sizes(shape, questions, why);
    if (fine) return shape;
    sli_cudnn_shape_free(shape);
    return NULL;
}

void sli_cudnn_shape_free(void *object) {
    sli_cudnn_shape *shape = object;
    if (!shape) return;
    if (shape->c) sli_cudnn.cudnnDestroyTensorDescriptor(shape->c);
    if (shape->h) sli_cudnn.cudnnDestroyTensorDescriptor(shape->h);
    if (shape->y) sli_cudnn.cudnnDestroyRNNDataDescriptor(shape->y);
    if (shape->x) sli_cudnn.cudnnDestroyRNNDataDescriptor(shape->x);
    if (shape->rnn) sli_cudnn.cudnnDestroyRNNDescriptor(shape->rnn);
    if (shape->dropout) sli_cudnn.cudnnDestroyDropoutDescriptor(shape->dropout);
    free(shape->lengths);
    free(shape);
}
