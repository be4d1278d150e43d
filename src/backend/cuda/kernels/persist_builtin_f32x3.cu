/* Persistent kernels that are built in, in f32x3. */
#include "backend/cuda/kernels/persist_builtin_host.cuh"

#define PERSIST_BUILTIN_MATH PERSIST_F32X3
extern const void *const sli_persist_builtin_f32x3[] = {SLI_PERSIST_BUILTIN_F32X3(PERSIST_BUILTIN)};
