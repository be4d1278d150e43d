/* In place of CUDA's: what host code of the persistent rows takes of it. Defined in test_overlap.cpp. */
#ifndef SLI_TESTS_EMULATE_RUNTIME_API_H
#define SLI_TESTS_EMULATE_RUNTIME_API_H

#include <stddef.h>
#include <stdint.h>

#ifndef SLI_TESTS_EMULATE_H /* which has it */
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
#endif

typedef struct emulate_stream *cudaStream_t;
typedef const void *cudaKernel_t;
enum cudaError_t { cudaSuccess };
enum { cudaFuncAttributeMaxDynamicSharedMemorySize, cudaFuncAttributeNonPortableClusterSizeAllowed };
enum { cudaLaunchAttributeClusterDimension, cudaLaunchAttributeCooperative, cudaLaunchAttributePriority };
struct cudaLaunchAttribute {
    int id;
    struct {
        struct {
            unsigned x, y, z;
        } clusterDim;
        int cooperative, priority;
    } val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};
cudaError_t cudaFuncSetAttribute(const void *kernel, int attribute, int value);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **arguments);

#endif
