/* The persistent kernels that are built in, for GPUs without NVRTC: for each cell, type and pass a cluster of 8 and one of 16
 * blocks, with 8 rows of the batch. A layer of fewer units is padded to the next. Read by persist_builtin.c and by the kernels'
 * instances:
 *   X(gates, backward, cluster, units, warps_m, warps_k, tiles_m, tiles_k, in_registers, in_shared)
 * as in sli_persist_geometry. Warps and tiles are what the search of persist_geometry.c chooses for such a cluster; weights that
 * would not leave enough registers, with options that are known at launch only, lie in shared memory. */
#ifndef SLI_CUDA_PERSIST_BUILTIN_H
#define SLI_CUDA_PERSIST_BUILTIN_H

#define SLI_PERSIST_BUILTIN_F32(X)       \
    X(4, 0, 8, 32, 1, 8, 4, 8, 8, 0)     \
    X(4, 0, 16, 32, 1, 8, 4, 16, 6, 10)  \
    X(4, 1, 8, 32, 4, 2, 2, 16, 16, 0)   \
    X(4, 1, 16, 32, 8, 1, 2, 32, 14, 18) \
    X(3, 0, 8, 32, 1, 8, 3, 8, 8, 0)     \
    X(3, 0, 16, 32, 1, 8, 3, 16, 8, 8)   \
    X(3, 1, 8, 32, 2, 4, 4, 6, 6, 0)     \
    X(3, 1, 16, 32, 8, 1, 2, 24, 14, 10) \
    X(1, 0, 8, 32, 1, 8, 1, 8, 8, 0)     \
    X(1, 0, 16, 32, 1, 8, 1, 16, 16, 0)  \
    X(1, 1, 8, 32, 4, 2, 2, 4, 4, 0)     \
    X(1, 1, 16, 32, 8, 1, 2, 8, 8, 0)
#define SLI_PERSIST_BUILTIN_TF32(X)      \
    X(4, 0, 8, 32, 2, 4, 4, 8, 8, 0)     \
    X(4, 0, 16, 32, 4, 2, 2, 32, 18, 14) \
    X(4, 1, 8, 32, 8, 1, 2, 16, 16, 0)   \
    X(4, 1, 16, 32, 8, 1, 4, 16, 6, 10)  \
    X(3, 0, 8, 32, 2, 4, 3, 8, 8, 0)     \
    X(3, 0, 16, 32, 2, 4, 3, 16, 10, 6)  \
    X(3, 1, 8, 32, 8, 1, 2, 12, 12, 0)   \
    X(3, 1, 16, 32, 8, 1, 4, 12, 6, 6)   \
    X(1, 0, 8, 32, 1, 8, 2, 4, 4, 0)     \
    X(1, 0, 16, 32, 1, 8, 2, 8, 8, 0)    \
    X(1, 1, 8, 32, 8, 1, 2, 4, 4, 0)     \
    X(1, 1, 16, 32, 8, 1, 4, 4, 4, 0)
#define SLI_PERSIST_BUILTIN_NARROW(X) /* bf16, f16 */ \
    X(4, 0, 8, 32, 4, 2, 2, 8, 8, 0)                  \
    X(4, 0, 16, 32, 2, 4, 4, 8, 8, 0)                 \
    X(4, 1, 8, 32, 8, 1, 2, 8, 8, 0)                  \
    X(4, 1, 16, 32, 8, 1, 4, 8, 8, 0)                 \
    X(3, 0, 8, 32, 2, 4, 3, 4, 4, 0)                  \
    X(3, 0, 16, 32, 2, 4, 3, 8, 8, 0)                 \
    X(3, 1, 8, 32, 8, 1, 2, 6, 6, 0)                  \
    X(3, 1, 16, 32, 8, 1, 4, 6, 6, 0)                 \
    X(1, 0, 8, 32, 2, 4, 1, 4, 4, 0)                  \
    X(1, 0, 16, 32, 1, 8, 2, 4, 4, 0)                 \
    X(1, 1, 8, 32, 8, 1, 2, 2, 2, 0)                  \
    X(1, 1, 16, 32, 8, 1, 4, 2, 2, 0)
#define SLI_PERSIST_BUILTIN_F32X3(X)    \
    X(4, 0, 8, 32, 4, 2, 2, 16, 4, 12)  \
    X(4, 0, 16, 24, 2, 4, 3, 12, 2, 10) \
    X(4, 1, 8, 32, 8, 1, 2, 16, 4, 12)  \
    X(4, 1, 16, 24, 8, 1, 3, 12, 2, 10) \
    X(3, 0, 8, 32, 2, 4, 3, 8, 2, 6)    \
    X(3, 0, 16, 32, 2, 4, 3, 16, 2, 14) \
    X(3, 1, 8, 32, 8, 1, 2, 12, 4, 8)   \
    X(3, 1, 16, 32, 8, 1, 4, 12, 2, 10) \
    X(1, 0, 8, 32, 1, 8, 2, 4, 4, 0)    \
    X(1, 0, 16, 32, 1, 8, 2, 8, 4, 4)   \
    X(1, 1, 8, 32, 8, 1, 2, 4, 4, 0)    \
    X(1, 1, 16, 32, 8, 1, 4, 4, 0, 4)

#endif
