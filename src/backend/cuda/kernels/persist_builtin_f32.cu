/* Persistent kernels that are built in, in f32. */
#include "backend/cuda/kernels/persist_builtin_host.cuh"

#define PERSIST_BUILTIN_MATH PERSIST_F32
extern const void *const sli_persist_builtin_f32[] = {SLI_PERSIST_BUILTIN_F32(PERSIST_BUILTIN)};
