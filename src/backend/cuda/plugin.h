/* The private interface between libsluice and its GPU plug-ins, libsluice_cuda.so and libsluice_cudnn.so. libsluice opens a
 * plug-in with dlopen and compares the version that it finds there with its own; only where they match exactly, the plug-in's
 * one function is called, which gives a table. Plain C without CUDA headers: both sides include it. */
#ifndef SLI_CUDA_PLUGIN_H
#define SLI_CUDA_PLUGIN_H

#include "core/device.h"

/* Everything that both sides must have compiled alike. Compared byte by byte. */
typedef struct sli_plugin_version {
    char text[32]; /* "sluice 0.1.0 plug-in 1" */
    uint32_t call_bytes, caps_bytes, problem_bytes, ops_bytes, table_bytes;
} sli_plugin_version;
#define SLI_PLUGIN_VERSION_TEXT "sluice 0.1.0 plug-in 1" /* a test compares it with sluice.h */
/* Initialiser of the `version` of a table: SLI_PLUGIN_VERSION(sli_cuda_plugin). */
#define SLI_PLUGIN_VERSION(table)                                                                                 \
    {                                                                                                             \
        SLI_PLUGIN_VERSION_TEXT, sizeof(sli_call), sizeof(sli_caps), sizeof(sli_problem), sizeof(sli_device_ops), \
            sizeof(table)                                                                                         \
    }

/* What a plug-in may call of libsluice; given to it when it is opened. */
typedef struct sli_plugin_host {
    sl_status (*fail)(sl_status status, const char *format, ...) SLI_PRINTF(2, 3); /* sli_fail */
    /* dlopen of the first of `names` (NULL-terminated) that is found, in the order that docs/GPU.md states: SLUICE_LIBRARY_PATH,
     * the loader's own, Python environments' nvidia folders, CUDA's folders. NULL: *why has the reason and where it looked. */
    void *(*open_library)(const char *const *names, sli_why *why);
} sli_plugin_host;

/* Functions of rows in libsluice_cuda.so: pack, forward, backward. Recurrent ops share them; loss: bce and mse. */
/* clang-format off */
#define SLI_CUDA_FUNCTIONS(X) \
    X(step_pack) X(step_forward) X(step_backward) \
    X(cluster_pack) X(cluster_forward) X(cluster_backward) \
    X(grid_pack) X(grid_forward) X(grid_backward) \
    X(stack_pack) X(stack_forward) X(stack_backward) \
    X(wave_pack) X(wave_forward) X(wave_backward) \
    X(dense_pack) X(dense_forward) X(dense_backward) \
    X(embed_forward) X(embed_backward) X(onehot_forward) \
    X(dropout_forward) X(dropout_backward) \
    X(merge_forward) X(merge_backward) X(flip_forward) X(flip_backward) \
    X(xent_forward) X(xent_backward) X(loss_forward) X(loss_backward) \
    X(norm_forward) X(optim_forward)
/* clang-format on */

/* A GPU as the runtime reports it. */
typedef struct sli_cuda_gpu {
    char name[64]; /* "NVIDIA H200" */
    int compute_capability, multiprocessors, runtime;
    size_t memory, free_memory, shared_memory, l2_bytes;
    int resident[SLI_CLUSTER_MOST + 1]; /* as in sli_caps */
} sli_cuda_gpu;

typedef struct sli_cuda_plugin {
    sli_plugin_version version;
    const char *build;                              /* "nvcc 13.0: sm_80 sm_90 sm_100 and PTX of compute_90" */
    sl_status (*gpu)(int index, sli_cuda_gpu *gpu); /* SL_ERR_DEVICE with the sentence */
    bool (*blas)(sli_why *why);                     /* cuBLASLt was found and opened */
    /* As in sli_device_ops; caps, describe and blas_buffers are libsluice's. */
    sli_device_ops ops;
#define SLI_CUDA_MEMBER(name) sli_kernel_fn name;
    SLI_CUDA_FUNCTIONS(SLI_CUDA_MEMBER)
#undef SLI_CUDA_MEMBER
    const struct sli_cuda_services *services; /* services.h: for the cuDNN plug-in */
    /* Tests: CUDA call number `call` from now on (1 = the next) fails with this cudaError_t, and all after it if `sticky`.
     * 0 = none. Returns the number of calls made so far. */
    long (*inject)(long call, int error, bool sticky);
    size_t (*allocated)(int index); /* tests: bytes of this GPU that ops.alloc gave and ops.free has not taken back */
    bool (*compiler)(int *version, sli_why *why); /* NVRTC was found and opened: its version, 13000 */
    /* Tests: compiles for a GPU that need not be there (compile.h), or takes it from the disk (*cached). `log`: what ptxas says of
     * registers and spills; false: the reason. */
    bool (*compile_check)(const char *source, const char *entry, const char *defines, int compute_capability,
                          size_t *cubin_bytes, char *log, size_t log_capacity, bool *cached);
    /* sli_kernel.ready of the persistent rows; kind: sli_persist_kind; planned: as in sli_call. */
    sl_status (*persist_ready)(const sli_problem *problem, sli_planned plan, const sli_caps *caps, int kind,
                               const sli_calls *calls, bool *refused, sli_why *why);
    /* sli_kernel.ready of cuda:step, of its problem. */
    sl_status (*step_ready)(const sli_problem *problem, const sli_caps *caps, const sli_calls *calls, bool *refused,
                            sli_why *why);
    long (*late_kernels)(void); /* tests: kernels that no plan had asked for when they were launched */
} sli_cuda_plugin;
/* The symbols: a function, NULL: *why has the reason; and a const sli_plugin_version. */
typedef const sli_cuda_plugin *(*sli_cuda_plugin_fn)(const sli_plugin_host *host, sli_why *why);
#define SLI_CUDA_PLUGIN_SYMBOL "sli_cuda_plugin_open"
#define SLI_CUDA_VERSION_SYMBOL "sli_cuda_plugin_version"

typedef enum sli_cudnn_algo {
    SLI_CUDNN_STANDARD,
    SLI_CUDNN_PERSIST_STATIC,
    SLI_CUDNN_PERSIST_DYNAMIC,
    SLI_CUDNN_SMALL_H,
    SLI_CUDNN_ALGOS
} sli_cudnn_algo;

typedef struct sli_cudnn_plugin {
    sli_plugin_version version;
    int cudnn_version; /* 91900 */
    /* Asks cuDNN itself: does it take this problem with this algorithm, and what does it need. false: its reason. */
    bool (*probe)(const sli_problem *problem, const sli_caps *caps, sli_cudnn_algo algo, sli_booking *booking,
                  sli_why *why);
    sli_kernel_fn pack[SLI_CUDNN_ALGOS], forward[SLI_CUDNN_ALGOS], backward[SLI_CUDNN_ALGOS];
} sli_cudnn_plugin;
typedef const sli_cudnn_plugin *(*sli_cudnn_plugin_fn)(const sli_plugin_host *host, const sli_cuda_plugin *cuda,
                                                       sli_why *why);
#define SLI_CUDNN_PLUGIN_SYMBOL "sli_cudnn_plugin_open"
#define SLI_CUDNN_VERSION_SYMBOL "sli_cudnn_plugin_version"

/* ------------------------------------------------------------------------------------- libsluice's side (load.c) --
 * Opened once for the process; NULL with the reason while something is missing. */
const sli_cuda_plugin *sli_cuda_get(sli_why *why);
const sli_cudnn_plugin *sli_cudnn_get(sli_why *why);
void sli_plugin_version_fill(sli_plugin_version *version, size_t table_bytes);

/* Trampolines of the rows: sli_cuda_step_forward(call) calls the plug-in's step_forward. */
#define SLI_CUDA_DECLARE(name) void sli_cuda_##name(const sli_call *call);
SLI_CUDA_FUNCTIONS(SLI_CUDA_DECLARE)
#undef SLI_CUDA_DECLARE

#endif
