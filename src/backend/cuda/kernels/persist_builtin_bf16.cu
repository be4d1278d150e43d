/* Persistent kernels that are built in, in bf16. */
#include "backend/cuda/kernels/persist_builtin_host.cuh"

#define PERSIST_BUILTIN_MATH PERSIST_BF16
extern const void *const sli_persist_builtin_bf16[] = {SLI_PERSIST_BUILTIN_NARROW(PERSIST_BUILTIN)};
