/* Persistent kernels that are built in, in tf32. */
#include "backend/cuda/kernels/persist_builtin_host.cuh"

#define PERSIST_BUILTIN_MATH PERSIST_TF32
extern const void *const sli_persist_builtin_tf32[] = {SLI_PERSIST_BUILTIN_TF32(PERSIST_BUILTIN)};
