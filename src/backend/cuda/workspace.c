/* Sizes of scratch that libsluice books and the plug-in uses: compiled into both. */
#include "backend/cuda/cuda.h"

/* cuBLASLt asks for a workspace to cut long sums (split k) and, on Hopper and later, for its newest kernels. */
size_t sli_cuda_workspace(const sli_caps *caps, int64_t m, int64_t n, int64_t k) {
    const double flops = 2.0 * (double)m * (double)n * (double)k;
    if (flops < 1e8) return (size_t)4 << 20;
    return (size_t)(caps->compute_capability >= 90 ? 32 : 16) << 20;
}

/* Rows are summed in slabs of about 32, at most 64 slabs, by shape alone; one slab needs no scratch. */
int64_t sli_cuda_column_slabs(int64_t rows) {
    const int64_t slabs = (rows + 31) / 32;
    return slabs < 1 ? 1 : slabs > 64 ? 64 : slabs;
}

size_t sli_cuda_column_scratch(int64_t rows, int64_t n) {
    const int64_t slabs = sli_cuda_column_slabs(rows);
    return slabs > 1 ? (size_t)slabs * (size_t)n * sizeof(float) : 0;
}
