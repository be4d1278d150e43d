/* Copies and zeros on the GPU as kernels. In a recorded graph a node of another kind than a kernel takes microseconds to begin and
 * to end (measured on an H200, 2026-11-21: 2.2 to 5 us between kernels, a kernel in its place 1.1), and most of these are small. */
#include <stdint.h>

#include "backend/cuda/kernels/step_rows.h"
#include "backend/cuda/runtime/internal.h"

enum { PUT_THREADS = 256 }; /* a word each: a thread's second word would wait for its first */
static const size_t MOST_PUT_BLOCKS = 2048, MOST_BYTES = (size_t)16 << 20; /* beyond, the driver's own ways are as fast */

typedef struct put_args {
    struct {
        void *to;         /* = words of 16 bytes, or of 4 */
        const void *from; /* NULL: zeros */
        size_t words;
        bool wide;
    } of[SLI_PUTS];
} put_args;

template <typename T> static __device__ void put_words(T *to, const T *from, size_t count) {
    const size_t threads = (size_t)gridDim.x * PUT_THREADS;
    for (size_t i = (size_t)blockIdx.x * PUT_THREADS + threadIdx.x; i < count; i += threads) to[i] = from ? from[i] : T{};
}

static __global__ void __launch_bounds__(PUT_THREADS) put_all(const __grid_constant__ put_args a) {
    const auto &of = a.of[blockIdx.y];
    if (of.wide)
        put_words((uint4 *)of.to, (const uint4 *)of.from, of.words);
    else
        put_words((uint32_t *)of.to, (const uint32_t *)of.from, of.words);
}

static bool is_small(const sli_put *put) {
    return put->bytes <= MOST_BYTES && ((uintptr_t)put->to | (uintptr_t)put->from | put->bytes) % 4 == 0;
}

/* = the kernel's argument; its grid. */
static dim3 describe(put_args *a, const sli_put *puts, int count) {
    size_t most = 0;
    *a = {};
    for (int i = 0; i < count; i++) {
        auto &of = a->of[i];
        of.to = puts[i].to;
        of.from = puts[i].from;
        of.wide = ((uintptr_t)puts[i].to | (uintptr_t)puts[i].from | puts[i].bytes) % sizeof(uint4) == 0;
        of.words = puts[i].bytes / (of.wide ? sizeof(uint4) : sizeof(uint32_t));
        most = of.words > most ? of.words : most;
    }
    const size_t blocks = (most + PUT_THREADS - 1) / PUT_THREADS;
    return dim3((unsigned)(blocks < MOST_PUT_BLOCKS ? blocks : MOST_PUT_BLOCKS), (unsigned)count);
}

static bool launch(sli_queue *queue, cudaStream_t stream, const sli_put *puts, int count) {
    put_args a;
    const dim3 grid = describe(&a, puts, count);
    put_all<<<grid, PUT_THREADS, 0, stream>>>(a);
    if (!SLI_LAUNCHED(queue, "copy")) return false;
    sli_cuda_note_launch(queue, stream);
    return true;
}

extern "C" bool sli_cuda_put(sli_queue *queue, cudaStream_t stream, void *to, const void *from, size_t bytes) {
    const sli_put put = {(char *)to, (const char *)from, bytes};
    if (bytes == 0 || sli_cuda_failed(queue)) return !sli_cuda_failed(queue);
    if (is_small(&put)) return launch(queue, stream, &put, 1);
    if (!from) return SLI_CU(queue, cudaMemsetAsync(to, 0, bytes, stream));
    return SLI_CU(queue, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
}

/* A recorded graph that began with two nodes would begin 2 us later (overlap_h200_2026-11-24.txt, 5): the side stream waits until the launch of the zeros has begun, which it
 * does when all before it in its stream has ended. A product that cuBLASLt has a counter zeroed for waits for both zeros, which become one (runtime/recording.cu). */
extern "C" cudaStream_t sli_cuda_fork_and_zero(sli_queue *queue, void *to, size_t bytes) {
    const sli_put put = {(char *)to, NULL, bytes};
    const bool begins = sli_cuda_caps_of(queue)->compute_capability >= 90 && queue->stream != cudaStreamLegacy;
    if (sli_cuda_failed(queue) || bytes == 0 || !is_small(&put) || !begins || queue->device->sanitized) {
        cudaStream_t side = sli_cuda_fork(queue);
        (void)sli_cuda_put(queue, queue->stream, to, NULL, bytes);
        return side;
    }
    put_args a;
    void *arguments[] = {&a};
    cudaLaunchAttribute begun;
    begun.id = cudaLaunchAttributeLaunchCompletionEvent;
    begun.val.launchCompletionEvent.event = queue->forked;
    begun.val.launchCompletionEvent.flags = 0;
    cudaLaunchConfig_t config = {};
    config.gridDim = describe(&a, &put, 1);
    config.blockDim = dim3(PUT_THREADS);
    config.stream = queue->stream;
    config.attrs = &begun;
    config.numAttrs = 1;
    if (SLI_CU(queue, sli_cuda_injected(cudaLaunchKernelExC(&config, (const void *)put_all, arguments))) &&
        SLI_CU(queue, cudaStreamWaitEvent(queue->side, queue->forked, 0)))
        sli_cuda_note_launch(queue, queue->stream);
    return queue->side;
}

bool sli_graph_zero_node(cudaGraph_t graph, const cudaGraphNode_t *after, size_t count, void *to, size_t bytes,
                         cudaGraphNode_t *node) {
    const sli_put put = {(char *)to, NULL, bytes};
    put_args a;
    void *arguments[] = {&a};
    cudaKernelNodeParams kernel = {};
    if (bytes == 0 || !is_small(&put)) return false;
    kernel.func = (void *)put_all;
    kernel.gridDim = describe(&a, &put, 1);
    kernel.blockDim = dim3(PUT_THREADS);
    kernel.kernelParams = arguments;
    return cudaGraphAddKernelNode(node, graph, after, count, &kernel) == cudaSuccess;
}

/* Whether a node that was noted launches `function`: its parameters. */
static bool launches(cudaGraphNode_t node, const void *function, cudaKernelNodeParams *kernel) {
    return cudaGraphKernelNodeGetParams(node, kernel) == cudaSuccess && kernel->func == function && kernel->kernelParams;
}

/* Adds the zeros of a node of put_all to `puts`. */
static bool zeros_of(cudaGraphNode_t node, cudaKernelNodeParams *kernel, sli_put *puts, int *count) {
    if (!launches(node, (const void *)put_all, kernel)) return false;
    const put_args *a = (const put_args *)kernel->kernelParams[0];
    for (unsigned i = 0; i < kernel->gridDim.y; i++) {
        if (a->of[i].from || *count == SLI_PUTS) return false;
        puts[(*count)++] = {(char *)a->of[i].to, NULL, a->of[i].words * (a->of[i].wide ? sizeof(uint4) : sizeof(uint32_t))};
    }
    return true;
}

/* Gives zeros to a launch of operand rows; false: the node is none, has no place left, or too few threads. */
static bool zero_with_rows(cudaGraphNode_t rows, const sli_put *zeros) {
    cudaKernelNodeParams kernel;
    if (!launches(rows, sli_step_rows_kernel(), &kernel)) return false;
    step_rows_args a = *(const step_rows_args *)kernel.kernelParams[0];
    void *arguments[] = {&a};
    int k = 0;
    while (k < STEP_ROWS_ZEROS && a.zeros[k].words > 0) k++;
    const size_t each = 4 * sizeof(uint4);
    const size_t threads = (size_t)kernel.gridDim.x * kernel.gridDim.y * kernel.blockDim.x * kernel.blockDim.y;
    if (k == STEP_ROWS_ZEROS || zeros->bytes > each * threads) return false;
    a.zeros[k].at = (uint32_t *)zeros->to;
    a.zeros[k].words = (int64_t)(zeros->bytes / sizeof(uint32_t));
    kernel.kernelParams = arguments;
    return cudaGraphKernelNodeSetParams(rows, &kernel) == cudaSuccess;
}

bool sli_graph_join_zeros(cudaGraphNode_t first, cudaGraphNode_t second) {
    sli_put puts[SLI_PUTS];
    int count = 0;
    cudaKernelNodeParams more, kernel;
    if (!zeros_of(second, &more, puts, &count)) return false;
    if (count == 1 && zero_with_rows(first, &puts[0])) return true;
    if (!zeros_of(first, &kernel, puts, &count)) return false;
    put_args a;
    void *arguments[] = {&a};
    kernel.gridDim = describe(&a, puts, count);
    kernel.kernelParams = arguments;
    return cudaGraphKernelNodeSetParams(first, &kernel) == cudaSuccess;
}

/* --------------------------------------------------------------------------------------------------- put together -- */
static bool meet(const char *a, size_t a_bytes, const char *b, size_t b_bytes) {
    return a && b && a < b + b_bytes && b < a + a_bytes;
}

/* One reads or writes what the other writes. */
static bool is_in_order(const sli_put *first, const sli_put *second) {
    return meet(first->to, first->bytes, second->to, second->bytes) ||
           meet(first->to, first->bytes, second->from, second->bytes) ||
           meet(first->from, first->bytes, second->to, second->bytes);
}

void sli_queue_put(sli_queue *queue, void *to, const void *from, size_t bytes) {
    const sli_put put = {(char *)to, (const char *)from, bytes};
    bool waits = queue->recording_now && is_small(&put);
    for (int i = 0; i < queue->put_count; i++)
        if (is_in_order(&queue->puts[i], &put)) sli_queue_put_now(queue);
    if (!waits || queue->put_count == SLI_PUTS) sli_queue_put_now(queue);
    if (waits) {
        queue->puts[queue->put_count++] = put;
        return;
    }
    sli_profile_mark(queue, SLI_PHASE_OTHER, NULL);
    (void)sli_cuda_put(queue, queue->stream, to, from, bytes);
    sli_profile_mark(queue, SLI_PHASE_GAP, NULL);
}

void sli_queue_put_now(sli_queue *queue) {
    const int count = queue->put_count;
    queue->put_count = 0;
    if (count == 0 || sli_cuda_failed(queue)) return;
    sli_profile_mark(queue, SLI_PHASE_OTHER, NULL);
    (void)launch(queue, queue->stream, queue->puts, count);
    sli_profile_mark(queue, SLI_PHASE_GAP, NULL);
}
