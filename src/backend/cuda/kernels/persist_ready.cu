/* cuda:cluster and cuda:grid, and runs of cuda:step, while a plan is made: the kernels of its calls are compiled, or loaded, and the driver is asked whether
 * their blocks are resident at once. And how many clusters a GPU has room for at all. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/compile.h"
#include "backend/cuda/kernels/persist_host.cuh"
#include "backend/cuda/kernels/step_run_host.cuh"
#include "backend/cuda/runtime/internal.h"

/* ------------------------------------------------------------------------------------------------- residency -- */
static __global__ void fills_a_multiprocessor() {}

/* Clusters of `size` blocks that have all shared memory; -1: the driver does not say. */
static int resident_of(int size, int shared) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = (unsigned)size;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)size * 1024, 1, 1);
    config.blockDim = dim3(128, 1, 1);
    config.dynamicSmemBytes = (size_t)shared;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int count = -1;
    if (cudaOccupancyMaxActiveClusters(&count, fills_a_multiprocessor, &config) == cudaSuccess) return count;
    (void)cudaGetLastError();
    return -1;
}

void sli_cuda_ask_resident(int gpu, int shared, int resident[SLI_CLUSTER_MOST + 1]) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int known[SLI_CUDA_MOST_GPUS][SLI_CLUSTER_MOST + 1];
    pthread_mutex_lock(&lock);
    int *of = known[gpu];
    if (of[0] == 0 &&
        cudaFuncSetAttribute(fills_a_multiprocessor, cudaFuncAttributeMaxDynamicSharedMemorySize, shared) ==
            cudaSuccess &&
        cudaFuncSetAttribute(fills_a_multiprocessor, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) ==
            cudaSuccess) {
        of[0] = 1;
        for (int size = 1; size <= SLI_CLUSTER_MOST; size++) {
            of[size] = resident_of(size, shared);
            if (of[size] < 0) of[0] = -1; /* then the formula alone counts */
        }
    }
    (void)cudaGetLastError();
    if (of[0] > 0) memcpy(resident, of, sizeof known[gpu]);
    pthread_mutex_unlock(&lock);
}

/* ----------------------------------------------------------------------------------------------------- kernels -- */
typedef struct planned {
    const sli_problem *p;
    sli_problem folded; /* what the recurrence computes */
    const sli_caps *caps;
    sli_why *why;
    bool *refused;
} planned;

static sl_status refuse(const planned *q, const char *format, ...) __attribute__((format(printf, 2, 3)));
static sl_status refuse(const planned *q, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(q->why->text, sizeof q->why->text, format, arguments);
    va_end(arguments);
    *q->refused = true;
    return SL_OK;
}

/* How many clusters of `cluster` blocks the GPU has room for, of `wanted`. */
static sl_status enough(const planned *q, bool backward, int wanted, int cluster, int room) {
    if (room >= wanted) return SL_OK;
    return refuse(q, "%s, needs %d cluster%s of %d block%s resident at once, this GPU has room for %d (MIG or MPS may limit it)",
                  backward ? "backward" : "forward", wanted, wanted == 1 ? "" : "s", cluster, cluster == 1 ? "" : "s", room);
}

/* Blocks of a cluster must be resident at once, of a grid all of them: else they would wait for each other for ever. */
static sl_status has_room(const planned *q, const sli_persist_geometry *g, const void *kernel) {
    const int cluster = sli_persist_cluster(g), shared = (int)sli_persist_shared_of(g).total;
    const int wanted = g->gather == SLI_PERSIST_GRID ? sli_persist_ctas(g) / cluster : 1;
    persist_configuration c;
    int room = 0;
    cudaError_t error = sli_persist_configure(kernel, g, shared, &c);
    if (error == cudaSuccess && c.config.numAttrs > 0) {
        error = sli_cuda_injected(cudaOccupancyMaxActiveClusters(&room, kernel, &c.config));
    } else if (error == cudaSuccess) {
        error = sli_cuda_injected(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&room, kernel, sli_persist_threads(g),
                                                                                (size_t)shared));
        room *= q->caps->multiprocessors;
    }
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return sli_cuda_report(q->caps->index, error, "cudaOccupancyMaxActiveClusters");
    }
    return enough(q, g->backward, wanted, cluster, room);
}

static sl_status kernel_ready(const planned *q, const sli_persist_geometry *g, int form) {
    const void *kernel = NULL;
    cudaError_t error = cudaSuccess;
    sli_why why = {"NVRTC is missing"};
    if (!q->caps->no_compiler) {
        char defines[SLI_PERSIST_DEFINES];
        const sli_step_shape s = sli_step_shape_of(&q->folded, 1);
        sli_persist_defines(g, &s, form, sli_step_options(&q->folded), sli_persist_act(q->p->dtype, g, sli_step_act(q->p)),
                            sli_persist_act(q->p->dtype, g, sli_step_gate_act(q->p)), defines, sizeof defines);
        kernel = (const void *)sli_cuda_compile_planned(q->caps->index, q->caps->compute_capability,
                                                        SLI_PERSIST_SOURCE, SLI_PERSIST_ENTRY, defines, &error, &why);
        if (!kernel && error != cudaSuccess)
            return sli_cuda_report(q->caps->index, error, "loading a compiled kernel");
    }
    if (!kernel && g->inputs == 0 && !(form & PERSIST_HAS_NARROW_IO)) kernel = sli_persist_builtin(g);
    if (kernel) return has_room(q, g, kernel);
    return refuse(q, "its kernel was not compiled: %.200s%s", why.text, q->caps->no_compiler ? "" : "; SLUICE_NVRTC=0 takes kernels that are built in, where there are any");
}

/* The last launch of a call multiplies its last step's v only if anybody wants what the call entered from, or where weights stream outside of
 * turns (persist_host.cu: gives_states); those before it always do. */
static sl_status backward_ready(const planned *q, const sli_persist_pair *pair, const sli_calls *calls) {
    const sli_persist_geometry *g = &pair->backward;
    const bool always = calls->d_states || (sli_persist_streamed(g) > 0 && g->couriers == 0);
    /* also where all steps are one piece: a call of fewer may be several */
    if (always || q->p->steps > calls->chunk) SLI_TRY(kernel_ready(q, g, sli_persist_form(q->p, true, calls->dy, true)));
    return always || *q->refused ? SL_OK : kernel_ready(q, g, sli_persist_form(q->p, true, calls->dy, false));
}

/* A run's kernel. */
static sl_status run_ready(const planned *q, bool backward) {
    const sli_problem *p = q->p;
    const sli_step_wide w = sli_step_wide_of(p, q->caps, backward);
    if (!w.runs || sli_step_fused(p, backward)) return SL_OK;
    char defines[SLI_STEP_RUN_DEFINES];
    sli_why why = {""};
    cudaError_t error = cudaSuccess;
    sli_step_run_defines(p, &w, backward, p->units % 4 == 0 ? 4 : 1, sli_step_options(p), sli_step_act(p), sli_step_gate_act(p), defines,
                         sizeof defines);
    const void *kernel = (const void *)sli_cuda_compile_planned(q->caps->index, q->caps->compute_capability, SLI_STEP_RUN_SOURCE,
                                                                SLI_STEP_RUN_ENTRY, defines, &error, &why);
    if (!kernel && error != cudaSuccess) return sli_cuda_report(q->caps->index, error, "loading a compiled kernel");
    if (!kernel)
        return refuse(q, "its kernel of many steps was not compiled: %.200s; SLUICE_NVRTC=0 does without it", why.text);
    const int pair = sli_step_wide_pairs(&w) ? 2 : 1;
    int room = 0;
    step_run_configuration c;
    error = sli_step_run_configure(kernel, &w, &c);
    if (error == cudaSuccess)
        error = sli_cuda_injected(pair == 2 ? cudaOccupancyMaxActiveClusters(&room, kernel, &c.config)
                                            : cudaOccupancyMaxActiveBlocksPerMultiprocessor(&room, kernel, SLI_STEP_WIDE_THREADS, c.config.dynamicSmemBytes));
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return sli_cuda_report(q->caps->index, error, "asking how many blocks of many steps are resident");
    }
    return enough(q, backward, sli_step_wide_grid(&w) / pair, pair, pair == 2 ? room : room * q->caps->multiprocessors);
}

sl_status sli_gpu_step_ready(const sli_problem *problem, const sli_caps *caps, const sli_calls *calls, bool *refused, sli_why *why) {
    const planned q = {problem, *problem, caps, why, refused};
    *refused = false;
    const cudaError_t error = sli_cuda_injected(cudaSetDevice(caps->index));
    if (error != cudaSuccess) return sli_cuda_report(caps->index, error, "cudaSetDevice");
    SLI_TRY(run_ready(&q, false));
    return *refused || !calls->backward || !problem->train ? SL_OK : run_ready(&q, true);
}

sl_status sli_gpu_persist_ready(const sli_problem *problem, sli_planned plan, const sli_caps *caps, int kind,
                                const sli_calls *calls, bool *refused, sli_why *why) {
    const planned q = {problem, sli_persist_folded(problem), caps, why, refused};
    sli_persist_pair pair;
    *refused = false;
    if (!sli_persist_pair_of(problem, plan, caps, (sli_persist_kind)kind, &pair, why)) {
        *refused = true;
        return SL_OK;
    }
    const cudaError_t error = sli_cuda_injected(cudaSetDevice(caps->index));
    if (error != cudaSuccess) return sli_cuda_report(caps->index, error, "cudaSetDevice");
    SLI_TRY(kernel_ready(&q, &pair.forward, sli_persist_form(problem, false, calls->y, false)));
    if (*refused || !calls->backward || !problem->train) return SL_OK;
    if (pair.backward_in_steps) return run_ready(&q, true);
    return backward_ready(&q, &pair, calls);
}
