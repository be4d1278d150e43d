/* Copies and zeros on the GPU as kernels. In a recorded graph a node of another kind than a kernel takes microseconds to begin and
 * to end (measured on an H200, 2026-11-21: 2.2 to 5 us between kernels, a kernel in its place 1.3), and most of these are small. */
#include <stdint.h>

#include "backend/cuda/services.h"

enum { THREADS = 256, PER_THREAD = 4 };
static const size_t MOST_BLOCKS = 2048, MOST_BYTES = (size_t)16 << 20; /* beyond, the driver's own ways are as fast */

/* to[count] = from[count], or zeros where there is no `from`. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    copy_words(T *__restrict__ to, const T *__restrict__ from, size_t count) {
    const size_t threads = (size_t)gridDim.x * THREADS;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += threads) to[i] = from ? from[i] : T{};
}

template <typename T>
static bool launch(sli_queue *queue, cudaStream_t stream, void *to, const void *from, size_t bytes) {
    const size_t count = bytes / sizeof(T), blocks = (count + THREADS * PER_THREAD - 1) / (THREADS * PER_THREAD);
    copy_words<T><<<(unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS), THREADS, 0, stream>>>(
        (T *)to, (const T *)from, count);
    return SLI_LAUNCHED(queue, "copy");
}

extern "C" bool sli_cuda_put(sli_queue *queue, cudaStream_t stream, void *to, const void *from, size_t bytes) {
    const size_t all = (uintptr_t)to | (uintptr_t)from | bytes;
    if (bytes == 0 || sli_cuda_failed(queue)) return !sli_cuda_failed(queue);
    if (bytes <= MOST_BYTES && all % sizeof(uint4) == 0) return launch<uint4>(queue, stream, to, from, bytes);
    if (bytes <= MOST_BYTES && all % sizeof(uint32_t) == 0) return launch<uint32_t>(queue, stream, to, from, bytes);
    if (!from) return SLI_CU(queue, cudaMemsetAsync(to, 0, bytes, stream));
    return SLI_CU(queue, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
}
