/* Sizes of scratch that libsluice books and the plug-in uses: compiled into both. */
#include "backend/cuda/cuda.h"

/* cuBLASLt asks for a workspace to cut long sums (split k) and, on Hopper and later, for its newest kernels: 32 MiB after
 * the address is aligned. Small products are cut at most some dozens of times. */
size_t sli_cuda_workspace(const sli_caps *caps, int64_t m, int64_t n, int64_t k) {
    enum { ALIGN = 256, CUTS = 64 };
    const double flops = 2.0 * (double)m * (double)n * (double)k, cut = 4.0 * CUTS * (double)m * (double)n;
    const size_t small = (size_t)4 << 20, least = (size_t)64 << 10;
    if (flops < 1e8) return (cut < (double)(small - least) ? least + (size_t)cut : small) + ALIGN;
    return ((size_t)(caps->compute_capability >= 90 ? 32 : 16) << 20) + ALIGN;
}

/* cuBLASLt 13.1 on an H200 multiplies where n is not a multiple of 8 (16-bit) or 4 (tf32) by kernels of the generation before:
 * about 130 and 75 FLOP a ps, a factor of 2.5 below its new ones. Moving costs a launch, a read of the padded D and a read and
 * a write of D: 12 bytes an element at 4 MB a us. GPUs before Hopper have nothing faster to fall from. */
int64_t sli_cuda_pad_columns(const sli_caps *caps, sl_dtype math, int64_t m, int64_t n, int64_t k) {
    const bool narrow = math == SL_BF16 || math == SL_F16;
    if (caps->compute_capability < 90 || (!narrow && math != SL_TF32)) return n;
    const int64_t unit = narrow ? 8 : 4, padded = (n + unit - 1) / unit * unit;
    const double gain = 0.6 / (narrow ? 130e6 : 75e6), launch = 2, bytes_a_us = 4e6; /* us */
    const double elements = (double)m * (double)n;
    const double saved = elements * 2 * (double)k * gain, paid = elements * 12 / bytes_a_us + launch;
    return saved > paid ? padded : n;
}

size_t sli_cuda_pad_bytes(const sli_caps *caps, sl_dtype math, int64_t m, int64_t n, int64_t k) {
    const int64_t columns = sli_cuda_pad_columns(caps, math, m, n, k);
    return columns == n ? 0 : (size_t)m * (size_t)columns * sizeof(float);
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
