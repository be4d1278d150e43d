/* The last four columns of a sum over time, D[m][4] = or += A^T B: the kernel without its launch. Row k of A has m 16-bit operands side by
 * side, of B four. */
#ifndef SLI_CUDA_FEW_COLUMNS_CUH
#define SLI_CUDA_FEW_COLUMNS_CUH

enum { FEW_COLUMNS = 4, FEW_COLUMNS_WARPS = 16 };

typedef struct few_columns_args {
    const uint16_t *a, *b; /* [k][a_row], pairs are read whole; [k][b_row], aligned to 8 bytes */
    float *d;              /* [m][d_row] */
    int64_t m, k, a_row, b_row, d_row;
    bool add;
} few_columns_args;

/* A lane has two rows of D; groups of LANES take turns in k, and their sums are added in a fixed order. */
template <bool bf16, int LANES>
static __global__ void __launch_bounds__(32 * FEW_COLUMNS_WARPS)
    few_columns(const __grid_constant__ few_columns_args a) {
    constexpr int rows = 2 * LANES, groups = 32 * FEW_COLUMNS_WARPS / LANES;
    __shared__ float part[FEW_COLUMNS_WARPS][rows][FEW_COLUMNS];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, group = (int)threadIdx.x / LANES;
    const int64_t first = (int64_t)blockIdx.x * rows, row = first + 2 * (lane % LANES);
    float sum[2][FEW_COLUMNS] = {};
    if (row < a.m)
#pragma unroll 4
        for (int64_t k = group; k < a.k; k += groups) {
            const uint32_t pair = *reinterpret_cast<const uint32_t *>(a.a + k * a.a_row + row);
            const uint2 four = *reinterpret_cast<const uint2 *>(a.b + k * a.b_row);
            const float x[2] = {few_columns_wide<bf16>(pair), few_columns_wide<bf16>(pair >> 16)};
            const float y[FEW_COLUMNS] = {few_columns_wide<bf16>(four.x), few_columns_wide<bf16>(four.x >> 16),
                                          few_columns_wide<bf16>(four.y), few_columns_wide<bf16>(four.y >> 16)};
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int j = 0; j < FEW_COLUMNS; j++) sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
        }
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < FEW_COLUMNS; j++) {
#pragma unroll
            for (int other = LANES; other < 32; other *= 2) sum[i][j] += __shfl_xor_sync(0xFFFFFFFFu, sum[i][j], other);
            if (lane < LANES) part[warp][2 * lane + i][j] = sum[i][j];
        }
    __syncthreads();
    const int mine = (int)threadIdx.x / FEW_COLUMNS, column = (int)threadIdx.x % FEW_COLUMNS;
    if (mine >= rows || first + mine >= a.m) return;
    float total = 0;
    for (int w = 0; w < FEW_COLUMNS_WARPS; w++) total += part[w][mine][column];
    float *to = a.d + (first + mine) * a.d_row + column;
    *to = a.add ? *to + total : total;
}

#endif
