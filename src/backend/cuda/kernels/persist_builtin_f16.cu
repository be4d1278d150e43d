/* Persistent kernels that are built in, in f16. */
#include "backend/cuda/kernels/persist_builtin_host.cuh"

#define PERSIST_BUILTIN_MATH PERSIST_F16
extern const void *const sli_persist_builtin_f16[] = {SLI_PERSIST_BUILTIN_NARROW(PERSIST_BUILTIN)};
