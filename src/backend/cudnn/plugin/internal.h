/* Inside libsluice_cudnn: cuDNN and the CUDA driver as opened at run time, handles of each GPU, and shapes: everything that
 * cuDNN has to be told about one problem. */
#ifndef SLI_CUDNN_INTERNAL_H
#define SLI_CUDNN_INTERNAL_H

#include <cuda.h>
#include <cudnn.h>

#include "backend/cuda/services.h"
#include "backend/cudnn/layout.h"

/* ------------------------------------------------------------------------------------------------- libraries -- */
#define SLI_CUDNN_FUNCTIONS(X)       \
    X(cudnnGetVersion)               \
    X(cudnnGetErrorString)           \
    X(cudnnGetLastErrorString)       \
    X(cudnnCreate)                   \
    X(cudnnSetStream)                \
    X(cudnnCreateDropoutDescriptor)  \
    X(cudnnSetDropoutDescriptor)     \
    X(cudnnDestroyDropoutDescriptor) \
    X(cudnnCreateTensorDescriptor)   \
    X(cudnnSetTensorNdDescriptor)    \
    X(cudnnDestroyTensorDescriptor)  \
    X(cudnnCreateRNNDescriptor)      \
    X(cudnnSetRNNDescriptor_v8)      \
    X(cudnnDestroyRNNDescriptor)     \
    X(cudnnBuildRNNDynamic)          \
    X(cudnnCreateRNNDataDescriptor)  \
    X(cudnnSetRNNDataDescriptor)     \
    X(cudnnDestroyRNNDataDescriptor) \
    X(cudnnGetRNNTempSpaceSizes)     \
    X(cudnnGetRNNWeightSpaceSize)    \
    X(cudnnGetRNNWeightParams)       \
    X(cudnnRNNForward)               \
    X(cudnnRNNBackwardData_v8)       \
    X(cudnnRNNBackwardWeights_v8)
/* The driver's: the plug-in links no CUDA runtime, libsluice_cuda's own is out of reach. */
#define SLI_DRIVER_FUNCTIONS(X) \
    X(cuInit)                   \
    X(cuDeviceGet)              \
    X(cuDevicePrimaryCtxRetain) \
    X(cuCtxPushCurrent_v2)      \
    X(cuCtxPopCurrent_v2)       \
    X(cuMemAlloc_v2)            \
    X(cuMemFree_v2)             \
    X(cuMemsetD8Async)          \
    X(cuMemsetD32Async)         \
    X(cuStreamCreate)           \
    X(cuStreamDestroy_v2)       \
    X(cuStreamSynchronize)

#define SLI_MEMBER(name) __typeof__(name) *name;
typedef struct sli_cudnn_library {
    SLI_CUDNN_FUNCTIONS(SLI_MEMBER)
    SLI_DRIVER_FUNCTIONS(SLI_MEMBER)
} sli_cudnn_library;
#undef SLI_MEMBER

extern sli_cudnn_library sli_cudnn; /* filled once, by sli_cudnn_plugin_open */
extern const sli_cuda_services *sli_cudnn_services;

bool sli_cudnn_open_libraries(const sli_plugin_host *host, sli_why *why);
/* Writes the reason, returns false (sli_refuse is libsluice's). */
bool sli_cudnn_refuse(sli_why *why, const char *format, ...) SLI_PRINTF(2, 3);
/* true if all is well; else *why: "cuDNN 9.19 says CUDNN_STATUS_...: ...". */
bool sli_cudnn_fine(cudnnStatus_t status, const char *what, sli_why *why);
/* In this thread something failed since it was cleared that need not fail again: memory ran out, the driver had an error. */
extern _Thread_local bool sli_cudnn_passing;
#define SLI_CUDNN_TRY(call, why)                                       \
    do {                                                               \
        if (!sli_cudnn_fine(sli_cudnn.call, #call, why)) return false; \
    } while (0)

/* --------------------------------------------------------------------------------------------------- handles --
 * Making a handle allocates and waits, and so may its first calls, which work being recorded must not: planning makes one ahead
 * and tries the problem with it. Handles of ended runs are used again. */
void sli_cudnn_lock(void);
void sli_cudnn_unlock(void);
/* Under the lock. */
bool sli_cudnn_has_spare(int index);
/* Under the lock. Makes the GPU's context current (leave: the former one) and sees to a handle for questions, which launches
 * nothing, and a spare. */
bool sli_cudnn_enter(int index, cudnnHandle_t *questions, cudnnHandle_t *spare, sli_why *why);
void sli_cudnn_leave(void);
/* Under the lock, the GPU's context being current: as entering, without changing contexts. */
bool sli_cudnn_questions(int index, cudnnHandle_t *questions, sli_why *why);
/* Takes the lock themselves. */
bool sli_cudnn_take_handle(int index, cudnnHandle_t *handle, sli_why *why);
void sli_cudnn_give_handle(int index, cudnnHandle_t handle);

/* ---------------------------------------------------------------------------------------------------- shapes -- */
/* What decides a shape; compared byte by byte, so it is zeroed first. */
typedef struct sli_cudnn_key {
    char kind[8];
    int algo, device;
    sli_problem
        problem; /* of it: op, layers, batch, steps, inputs, units, projection, bidirectional, train, dtype, act, mask */
} sli_cudnn_key;
void sli_cudnn_key_fill(sli_cudnn_key *key, const sli_problem *problem, sli_cudnn_algo algo, int device);

enum { SLI_CUDNN_MATRICES = 9, SLI_CUDNN_BIASES = 8 }; /* at most, of a part */
typedef struct sli_cudnn_shape {
    sli_cudnn_key key;
    cudnnRNNDescriptor_t rnn;
    cudnnDropoutDescriptor_t dropout; /* of rate 0 */
    cudnnRNNDataDescriptor_t x, y;
    cudnnTensorDescriptor_t h, c; /* [parts][b][O], [parts][b][H]; c NULL unless LSTM */
    int *lengths;                 /* [b] */
    sli_cudnn_sizes sizes;
    /* Bytes from the start of the weight space. Matrices: input, then recurrent, gate by gate in the library's own order (LSTM
     * i f g o, GRU r z n), then an LSTM's projection. Biases: input, then recurrent. */
    size_t matrix[SLI_MAX_PARTS][SLI_CUDNN_MATRICES], bias[SLI_MAX_PARTS][SLI_CUDNN_BIASES];
    bool gaps;  /* the weight space has bytes that belong to no parameter */
    bool built; /* persistent dynamic kernels were compiled */
} sli_cudnn_shape;

/* NULL: *why has the reason. `questions`: a handle that nobody else uses now. */
sli_cudnn_shape *sli_cudnn_shape_new(const sli_cudnn_key *key, cudnnHandle_t questions, sli_why *why);
void sli_cudnn_shape_free(void *shape);
/* Lengths of the rows, 1..steps each. */
bool sli_cudnn_shape_lengths(sli_cudnn_shape *shape, sli_why *why);
/* Compiles persistent dynamic kernels at the first call, which takes seconds; nothing for the other algorithms. */
bool sli_cudnn_shape_build(sli_cudnn_shape *shape, cudnnHandle_t handle, sli_why *why);

/* ---------------------------------------------------------------------------------------------- rows and probe -- */
bool sli_cudnn_probe(const sli_problem *problem, const sli_caps *caps, sli_cudnn_algo algo, sli_booking *booking,
                     sli_why *why);
void sli_cudnn_pack(const sli_call *call, sli_cudnn_algo algo);
void sli_cudnn_forward(const sli_call *call, sli_cudnn_algo algo);
void sli_cudnn_backward(const sli_call *call, sli_cudnn_algo algo);

/* What is needed of a call: all NULL after a failure, which the queue then knows. */
typedef struct sli_cudnn_work {
    const sli_call *call;
    const sli_problem *p;
    sli_queue *queue;
    cudaStream_t stream;
    sli_cudnn_shape *shape;
    sli_cudnn_counts counts;
    size_t bytes; /* of a number inside cuDNN */
    int parts;
} sli_cudnn_work;
bool sli_cudnn_begin(const sli_call *call, sli_cudnn_algo algo, sli_cudnn_work *work);
static inline char *sli_cudnn_aligned(const void *block) {
    return (char *)(((uintptr_t)block + SLI_CUDNN_ALIGN - 1) & ~(uintptr_t)(SLI_CUDNN_ALIGN - 1));
}
/* to = from, floats to cuDNN's numbers and back; from NULL: zeros. to += from. */
void sli_cudnn_put(const sli_cudnn_work *w, void *to, const float *from, size_t count);
void sli_cudnn_get_floats(const sli_cudnn_work *w, float *to, const void *from, size_t count);
void sli_cudnn_add(const sli_cudnn_work *w, float *to, const void *from, size_t count);
void sli_cudnn_zero(const sli_cudnn_work *w, void *to, size_t bytes);
/* Parameter gradients += the weight space `gradients`. */
void sli_cudnn_add_gradients(const sli_cudnn_work *w, const char *gradients);

#endif
