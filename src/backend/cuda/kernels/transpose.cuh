/* Transposed copies: the kernel without its launch. A thread moves a square of 4 x 4 floats through its registers, so that it reads
 * and writes 16 bytes at a time; a warp reads whole lines of 128 bytes and writes halves, whose others its block writes. */
#ifndef SLI_CUDA_TRANSPOSE_CUH
#define SLI_CUDA_TRANSPOSE_CUH

enum { TRANSPOSE_THREADS = 256, TRANSPOSE_TILE = 64 };

/* Copy i has tiles first[i] .. first[i + 1] - 1, 64 rows by 64 columns each, down the rows first; a block a tile. */
typedef struct transpose_args {
    sli_cuda_transposition each[SLI_CUDA_TRANSPOSITIONS];
    unsigned first[SLI_CUDA_TRANSPOSITIONS + 1];
} transpose_args;

static __host__ __device__ unsigned transpose_tiles(int64_t count) {
    return (unsigned)((count + TRANSPOSE_TILE - 1) / TRANSPOSE_TILE);
}

static transpose_args transpose_args_of(const sli_cuda_transposition *each, int count) {
    transpose_args args = {};
    for (int i = 0; i < SLI_CUDA_TRANSPOSITIONS; i++) {
        args.first[i + 1] = args.first[i];
        if (i >= count) continue;
        args.each[i] = each[i];
        args.first[i + 1] += transpose_tiles(each[i].to_row) * transpose_tiles(each[i].lines);
    }
    return args;
}

/* Four floats of a row of `from`, zeros where there are none. */
static __device__ float4 transpose_edge(const sli_cuda_transposition &t, int64_t row, int64_t column) {
    const float *from = t.from + row * t.from_row + column;
    float4 x = make_float4(0, 0, 0, 0);
    if (row >= t.rows) return x;
    if (column < t.columns) x.x = from[0];
    if (column + 1 < t.columns) x.y = from[1];
    if (column + 2 < t.columns) x.z = from[2];
    if (column + 3 < t.columns) x.w = from[3];
    return x;
}

static __device__ void transpose_store(const sli_cuda_transposition &t, int64_t line, int64_t row, float4 x) {
    if (line < t.lines) *reinterpret_cast<float4 *>(t.to + line * t.to_row + row) = x;
}

/* Lanes are 8 squares along a row, 4 down; warps 2 and 4. */
static __global__ void __launch_bounds__(TRANSPOSE_THREADS) transpose(const __grid_constant__ transpose_args args) {
    int copy = 0;
    for (int i = 1; i < SLI_CUDA_TRANSPOSITIONS; i++) copy += blockIdx.x >= args.first[i];
    const sli_cuda_transposition &t = args.each[copy];
    const unsigned tile = blockIdx.x - args.first[copy], down = transpose_tiles(t.to_row);
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t row = (int64_t)(tile % down) * TRANSPOSE_TILE + 4 * (lane / 8 + 4 * (warp / 2));
    const int64_t column = (int64_t)(tile / down) * TRANSPOSE_TILE + 4 * (lane % 8 + 8 * (warp % 2));
    if (row >= t.to_row) return;
    const bool aligned = (reinterpret_cast<uintptr_t>(t.from) & 15) == 0 && (t.from_row & 3) == 0;
    float4 x[4];
    if (aligned && row + 4 <= t.rows && column + 4 <= t.columns) {
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = *reinterpret_cast<const float4 *>(t.from + (row + i) * t.from_row + column);
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = transpose_edge(t, row + i, column);
    }
    transpose_store(t, column, row, make_float4(x[0].x, x[1].x, x[2].x, x[3].x));
    transpose_store(t, column + 1, row, make_float4(x[0].y, x[1].y, x[2].y, x[3].y));
    transpose_store(t, column + 2, row, make_float4(x[0].z, x[1].z, x[2].z, x[3].z));
    transpose_store(t, column + 3, row, make_float4(x[0].w, x[1].w, x[2].w, x[3].w));
}

#endif
