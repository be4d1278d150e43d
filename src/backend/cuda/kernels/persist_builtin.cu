/* Persistent kernels that are built in: which one a geometry has. */
#include "backend/cuda/kernels/persist_host.cuh"

/* In the order of the table. */
extern const void *const sli_persist_builtin_f32[],
    *const sli_persist_builtin_tf32[], *const sli_persist_builtin_bf16[], *const sli_persist_builtin_f16[],
                                                                              *const sli_persist_builtin_f32x3[];

const void *sli_persist_builtin(const sli_persist_geometry *geometry) {
    const int index = sli_persist_builtin_index(geometry);
    if (index < 0) return NULL;
    switch (geometry->math) {
    case SL_F32:
        return sli_persist_builtin_f32[index];
    case SL_TF32:
        return sli_persist_builtin_tf32[index];
    case SL_BF16:
        return sli_persist_builtin_bf16[index];
    case SL_F16:
        return sli_persist_builtin_f16[index];
    case SL_F32X3:
        return sli_persist_builtin_f32x3[index];
    default:
        return NULL;
    }
}
