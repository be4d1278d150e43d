/* Small products, of few rows of D: by tensor cores in tf32, which multiplies 16-bit operands exactly. The input side of a short call, with weights stored
 * [n][k], and its d x, with the same weights as [k][n]: the kernel without its launch. */
#ifndef SLI_CUDA_SMALL_CUH
#define SLI_CUDA_SMALL_CUH

enum { SMALL_WARPS = 8, SMALL_N = 16, SMALL_M = 8, SMALL_K = 16 }; /* SMALL_N by SMALL_M by SMALL_K: two matrix instructions */

typedef struct small_args {
    const void *a, *b; /* operands, a or floats that are to be, [m][a_row]; [n][b_row] or, `down`, [k][b_row]; k is a multiple of four. But for the latter fours are read whole, from
                        * multiples of their size (16 bytes, or 8) */
    void *d;           /* [m][d_row], floats, or narrow_d of the operands' type */
    const float *bias; /* [n] or NULL */
    int64_t m, n, k, a_row, b_row, d_row;
    int warps_k; /* a power of two, SMALL_WARPS at most: so many warps share a sum, each has every so manieth piece of k */
    bool add, narrow_d;
} small_args;

template <class T> struct alignas(4 * sizeof(T)) small_pack { T x[4]; };

/* Four of k: of a row; of rows that are `row` apart. */
template <bool down, class T> static __device__ __forceinline__ float4 small_four(const T *from, int k, int64_t row) {
    if constexpr (down) {
        const T *at = from + k * row;
        return make_float4(small_wide(at[0]), small_wide(at[row]), small_wide(at[2 * row]), small_wide(at[3 * row]));
    } else {
        const small_pack<T> four = *reinterpret_cast<const small_pack<T> *>(from + k);
        return make_float4(small_wide(four.x[0]), small_wide(four.x[1]), small_wide(four.x[2]), small_wide(four.x[3]));
    }
}

/* Those as tf32, or zeros: the lanes of a row take 16 between them. In which order instructions are given k is the same for a and b, and else of
 * no matter. */
static __device__ __forceinline__ void small_round(uint32_t (&to)[4], const float4 &x, bool there) {
    to[0] = ptx_tf32(there ? __float_as_uint(x.x) : 0u);
    to[1] = ptx_tf32(there ? __float_as_uint(x.y) : 0u);
    to[2] = ptx_tf32(there ? __float_as_uint(x.z) : 0u);
    to[3] = ptx_tf32(there ? __float_as_uint(x.w) : 0u);
}
/* Of a row, or column, that is not there the first: nobody takes its sums. */
static __device__ __forceinline__ int64_t small_at(int64_t row, int64_t rows) {
    return row < rows ? row : 0;
}

/* Floats of which operands are rounded. */
template <class A, class T> static __device__ __forceinline__ float4 small_operands(const float4 &x) {
    if constexpr (sizeof(A) == sizeof(T))
        return x;
    else
        return make_float4(small_rounded<T>(x.x), small_rounded<T>(x.y), small_rounded<T>(x.z), small_rounded<T>(x.w));
}

template <class D> static __device__ __forceinline__ void small_give(D *to, bool add, float sum) {
    small_set(to, add ? small_wide(*to) + sum : sum);
}

/* A warp has 16 columns of D, which are rows of the instruction, by `tiles` times 8 rows of D, and takes `pieces` of k at once: all
 * reads go out before the first is waited for, from where there is something in any case. */
template <class A, class T, bool down, int tiles, int pieces>
static __device__ __forceinline__ void small_sum(float (&sum)[tiles][4], const small_args &a, int64_t column, int64_t row,
                                                 int first, int lane) {
    const int step = a.warps_k * SMALL_K, end = (int)a.k;
    const int64_t apart = down ? 1 : a.b_row; /* from one column of D to the next */
    const T *low = (const T *)a.b + small_at(column + lane / 4, a.n) * apart;
    const T *high = (const T *)a.b + small_at(column + lane / 4 + 8, a.n) * apart;
    const A *rows[tiles];
#pragma unroll
    for (int i = 0; i < tiles; i++) rows[i] = (const A *)a.a + small_at(row + i * SMALL_M + lane / 4, a.m) * a.a_row;
    for (int from = first * SMALL_K; from < end; from += pieces * step) {
        float4 b[pieces][2], x[pieces][tiles];
#pragma unroll
        for (int p = 0; p < pieces; p++) {
            const int k = from + p * step + lane % 4 * 4, at = k < end ? k : 0;
            b[p][0] = small_four<down>(low, at, a.b_row);
            b[p][1] = small_four<down>(high, at, a.b_row);
#pragma unroll
            for (int i = 0; i < tiles; i++) x[p][i] = small_four<false>(rows[i], at, 0);
        }
#pragma unroll
        for (int p = 0; p < pieces; p++) {
            const bool there = from + p * step + lane % 4 * 4 < end;
            uint32_t y[2][4], z[4];
            small_round(y[0], b[p][0], there);
            small_round(y[1], b[p][1], there);
            const uint32_t one[4] = {y[0][0], y[1][0], y[0][1], y[1][1]};
            const uint32_t two[4] = {y[0][2], y[1][2], y[0][3], y[1][3]};
#pragma unroll
            for (int i = 0; i < tiles; i++) {
                small_round(z, small_operands<A, T>(x[p][i]), there);
                ptx_mma_tf32(sum[i], one, z[0], z[1]);
                ptx_mma_tf32(sum[i], two, z[2], z[3]);
            }
        }
    }
}

/* D[m][n] = or += A B^T, or `down` A B (+ bias): blocks of SMALL_WARPS / warps_k times 16 columns by `tiles` times 8 rows. */
template <class A, class T, bool down, int tiles, int pieces>
static __global__ void __launch_bounds__(32 * SMALL_WARPS) small_product(const __grid_constant__ small_args a) {
    enum { ROWS = tiles * SMALL_M, THREADS = 32 * SMALL_WARPS };
    __shared__ float part[SMALL_WARPS][ROWS][SMALL_N + 1];
    const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int across = SMALL_WARPS / a.warps_k, width = across * SMALL_N, own = thread % width;
    const int64_t begin = (int64_t)blockIdx.x * width, row = (int64_t)blockIdx.y * ROWS, column = begin + own;
    const float bias = a.bias && column < a.n ? a.bias[column] : 0.0f;
    float sum[tiles][4] = {};
    small_sum<A, T, down, tiles, pieces>(sum, a, begin + warp % across * SMALL_N, row, warp / across, lane);
#pragma unroll
    for (int i = 0; i < tiles; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            part[warp][i * SMALL_M + lane % 4 * 2 + j % 2][lane / 4 + j / 2 * 8] = sum[i][j];
    __syncthreads();
    if (column >= a.n) return;
    for (int i = thread / width; i < ROWS && row + i < a.m; i += THREADS / width) {
        float total = 0.0f;
        for (int w = own / SMALL_N; w < SMALL_WARPS; w += across) total += part[w][i][own % SMALL_N];
        const int64_t at = (row + i) * a.d_row + column;
        if (a.narrow_d)
            small_give(static_cast<T *>(a.d) + at, a.add, total + bias);
        else
            small_give(static_cast<float *>(a.d) + at, a.add, total + bias);
    }
}

#endif
