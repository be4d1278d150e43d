/* Transposed copies: the kernel without its launch. A tile goes through shared memory, so that half a warp reads 256 bytes of a row,
 * and writes 256 of a line. */
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

/* The tile in shared memory, by pieces of 4 columns that change places within a row: lanes that read 4 rows of a column each, and those
 * that write a row, are at most two to a bank. */
static __device__ int transpose_at(int row, int piece) {
    return row * TRANSPOSE_TILE + 4 * (piece ^ row / 4);
}

static __global__ void __launch_bounds__(TRANSPOSE_THREADS) transpose(const __grid_constant__ transpose_args args) {
    enum { PIECES = TRANSPOSE_TILE / 4, ROWS = TRANSPOSE_THREADS / PIECES, EACH = TRANSPOSE_TILE / ROWS };
    __shared__ float tile[TRANSPOSE_TILE * TRANSPOSE_TILE];
    int copy = 0;
    for (int i = 1; i < SLI_CUDA_TRANSPOSITIONS; i++) copy += blockIdx.x >= args.first[i];
    const sli_cuda_transposition &t = args.each[copy];
    const unsigned index = blockIdx.x - args.first[copy], down = transpose_tiles(t.to_row);
    const int piece = (int)threadIdx.x % PIECES, line = (int)threadIdx.x / PIECES;
    const int64_t first_row = (int64_t)(index % down) * TRANSPOSE_TILE;
    const int64_t first_line = (int64_t)(index / down) * TRANSPOSE_TILE;
    const bool aligned = (reinterpret_cast<uintptr_t>(t.from) & 15) == 0 && (t.from_row & 3) == 0;
    const bool whole = aligned && first_row + TRANSPOSE_TILE <= t.rows && first_line + TRANSPOSE_TILE <= t.columns;
    float4 x[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int64_t row = first_row + line + i * ROWS, column = first_line + 4 * piece;
        x[i] = whole ? *reinterpret_cast<const float4 *>(t.from + row * t.from_row + column)
                     : transpose_edge(t, row, column);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        *reinterpret_cast<float4 *>(tile + transpose_at(line + i * ROWS, piece)) = x[i];
    __syncthreads();
    const int64_t row = first_row + 4 * piece;
    if (row >= t.to_row) return;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int column = line + i * ROWS;
        const float *from = tile + transpose_at(4 * piece, column / 4) + column % 4;
        if (first_line + column >= t.lines) break;
        *reinterpret_cast<float4 *>(t.to + (first_line + column) * t.to_row + row) =
            make_float4(from[0], from[TRANSPOSE_TILE], from[2 * TRANSPOSE_TILE], from[3 * TRANSPOSE_TILE]);
    }
}

#endif
