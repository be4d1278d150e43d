/* What the rows call: each function of the table in libsluice_cuda.so under a name of libsluice. They run inside the submit of a
 * queue, which only exists once the plug-in is open. */
#include "backend/cuda/plugin.h"

#define TRAMPOLINE(name)                         \
    void sli_cuda_##name(const sli_call *call) { \
        sli_cuda_get(NULL)->name(call);          \
    }
SLI_CUDA_FUNCTIONS(TRAMPOLINE)
