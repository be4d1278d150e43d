/* Sizes of scratch that libsluice books and the plug-in uses: compiled into both. */
#include "backend/cuda/cuda.h"

enum {
    SPLIT_MOST = 512,     /* f32x3: values along k that tensor cores add up */
    NARROW_LEAST_K = 256, /* pads in 16 bits: with fewer multiply-adds layers took 5% longer */
    NARROW_LEAST_SUMS = 30000000
};

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
 * about 130 and 75 FLOP a ps, a factor of 2.5 below its new ones, and small products cut along k, with a launch more. Moving costs a launch, a read of the padded D and a read and
 * a write of D: 12 bytes an element at 4 MB a us, less where L2 has them: in 16 bits small products gain by it as well, layers of 100 to 300 units 1 to 14% (odd_sizes_h200_2026-11-27.txt).
 * GPUs before Hopper have nothing faster to fall from. */
int64_t sli_cuda_pad_columns(const sli_caps *caps, sl_dtype math, int64_t m, int64_t n, int64_t k) {
    const bool narrow = math == SL_BF16 || math == SL_F16;
    if (math == SL_F32X3) { /* as tf32, three times as long */
        if (sli_cuda_split_bytes(caps, math, m, n, k) == 0) return n;
        return sli_cuda_pad_columns(caps, SL_TF32, m, n, 3 * (k < SPLIT_MOST ? k : SPLIT_MOST));
    }
    if (caps->compute_capability < 90 || (!narrow && math != SL_TF32)) return n;
    const int64_t unit = narrow ? 8 : 4, padded = (n + unit - 1) / unit * unit;
    const double elements = (double)m * (double)n, sums = elements * (double)k;
    if (narrow) return k >= NARROW_LEAST_K && sums >= NARROW_LEAST_SUMS ? padded : n;
    const double gain = 0.6 / 75e6, launch = 2, bytes_a_us = 4e6; /* us */
    const double saved = 2 * sums * gain, paid = elements * 12 / bytes_a_us + launch;
    return saved > paid ? padded : n;
}

/* A step's product in 16 bits has fewer tiles than there are multiprocessors: cuBLASLt cuts its k, and a launch of its own adds the
 * sums up. As a batch of pieces whose reader adds them, tiles of 128 x 64 once around the GPU, a step of LSTM or GRU of 1024 to 4096 units
 * and 16 to 256 rows took 0.8 to 3.4 us less of 20 to 130 (pieces_h200_*); where 4 pieces did not divide k, 2 took longer. In tf32 and
 * f32 cuBLASLt takes far slower kernels for a batch. */
int sli_cuda_pieces(const sli_caps *caps, sl_dtype math, int64_t m, int64_t n, int64_t k) {
    enum { TILE_M = 128, TILE_N = 64, LEAST_K = 1024 };
    if (caps->compute_capability < 90 || (math != SL_BF16 && math != SL_F16)) return 1;
    const int64_t tiles = ((m + TILE_M - 1) / TILE_M) * ((n + TILE_N - 1) / TILE_N);
    int pieces = SLI_CUDA_MOST_PIECES;
    while (pieces > 1 && tiles * pieces > caps->multiprocessors) pieces /= 2;
    return k % (8 * pieces) == 0 && k / pieces >= LEAST_K ? pieces : 1;
}

size_t sli_cuda_pad_bytes(const sli_caps *caps, sl_dtype math, int64_t m, int64_t n, int64_t k) {
    const int64_t columns = sli_cuda_pad_columns(caps, math, m, n, k);
    return columns == n ? 0 : (size_t)sli_cuda_pad_rows(m) * (size_t)columns * sizeof(float);
}

/* Tensor cores read tf32 operands along k alone: of operands stored [k][m] and [k][n], cuBLASLt's kernels transpose every tile in
 * shared memory. cuBLASLt 13.1 on an H200, m x n x k of random operands, us as they are and from transposed copies: 4096 x 1024 x
 * 1600: 64 and 43; 8192 x 2048 x 1600: 281 and 180, x 3200: 558 and 352; 16384 x 4096 x 800: 695 and 375: 3 to 7 us for 10^9
 * multiplied elements. Rows that are no multiple of 16 bytes in D win nothing. Copies come at 2 to 3.4 MB a us of what they read and
 * write, the more the larger (transpose_h200_*). */
double sli_cuda_transpose_gain(const sli_caps *caps, sl_dtype math, int64_t m, const int64_t n[2], int64_t width,
                               int64_t k) {
    const double won = 3.9e-9, launch = 1.5, bytes_a_us = 3.5e6; /* us an element and k; us */
    if (caps->compute_capability < 90 || math != SL_TF32) return 0;
    double saved = 0;
    for (int i = 0; i < 2; i++)
        if (sli_cuda_pad_columns(caps, math, m, n[i], k) % 4 == 0) saved += won * (double)m * (double)n[i] * (double)k;
    return saved - 2 * sizeof(float) * (double)width * (double)k / bytes_a_us - launch;
}

/* Three tf32 products and the splitting beside one in f32. cuBLASLt multiplies 55 FLOP a ps in f32 and 257 in tf32 on an H200
 * (the rates of step_cost.c); A and B are read and written three times, D is read and written for every piece of k. */
static bool split_pays(const sli_caps *caps, int64_t m, int64_t n, int64_t k) {
    const double exact = 55e6, tensor = 257e6, bytes_a_us = 4e6, launches = 4; /* FLOP a us; bytes; us */
    const double sums = (double)m * (double)n * (double)k, operands = ((double)m + (double)n) * (double)k;
    const double saved = sums * (2 / exact - 6 / tensor);
    const double paid = (16 * operands + 8 * sums / SPLIT_MOST) / bytes_a_us + launches;
    return caps->compute_capability >= 80 && saved > paid;
}

int64_t sli_cuda_split_piece(int64_t k) {
    const int64_t pieces = (k + SPLIT_MOST - 1) / SPLIT_MOST;
    return pieces > 0 ? ((k + pieces - 1) / pieces + 7) / 8 * 8 : 8;
}

size_t sli_cuda_split_bytes(const sli_caps *caps, sl_dtype math, int64_t m, int64_t n, int64_t k) {
    if (math != SL_F32X3 || !split_pays(caps, m, n, k)) return 0;
    const int64_t longest = k < SPLIT_MOST ? (k + 7) / 8 * 8 : SPLIT_MOST;
    return 3 * sizeof(float) * (size_t)longest * (size_t)((m + 3) / 4 * 4 + (n + 3) / 4 * 4);
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
