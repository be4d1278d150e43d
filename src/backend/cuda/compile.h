/* Kernels that are compiled when a plan first asks for them, by NVRTC, for exactly the shape and options that are computed. The
 * sources are inside the plug-in (cmake/SluiceEmbed.cmake), compiled kernels are kept on disk (runtime/code_cache.h) and, once
 * loaded, for as long as the process lives. */
#ifndef SLI_CUDA_COMPILE_H
#define SLI_CUDA_COMPILE_H

#include "backend/cuda/services.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `source`: an embedded file, by its path below src/ or its name alone ("persist_instance.cuh"); `entry`: an extern "C"
 * __global__ function of it; `defines`: text that stands before it ("#define PERSIST_UNITS 32\n..."). The same texts on the
 * same kind of GPU give the same kernel, compiled once. NULL: *why has the reason: no NVRTC, the first error of the compiler
 * (which is remembered), or CUDA's when the kernel was loaded (which the queue keeps, too). For rows: the queue's GPU is the
 * current one. Thread-safe; a stream may be being captured. After the first time it costs about a microsecond. Attributes
 * are for the caller to set, on each GPU. */
cudaKernel_t sli_cuda_compile(sli_queue *queue, const char *source, const char *entry, const char *defines,
                              sli_why *why);

/* The same while a plan is made, for GPU `gpu`, which is the current one. *error: CUDA's, where that is why there is none. Threads that
 * ask for different kernels do not wait for each other. */
cudaKernel_t sli_cuda_compile_planned(int gpu, int compute_capability, const char *source, const char *entry,
                                      const char *defines, cudaError_t *error, sli_why *why);

/* The table's (plugin.h). */
long sli_cuda_late_kernels(void);
bool sli_cuda_compiler(int *version, sli_why *why);
bool sli_cuda_compile_check(const char *source, const char *entry, const char *defines, int compute_capability,
                            size_t *cubin_bytes, char *log, size_t log_capacity, bool *cached);

#ifdef __cplusplus
}
#endif
#endif
