/* Our own matrix product, the general one: D[m][n] = beta D + A[m][k] B[k][n] (+ bias[n]) with any strides, summed over k in
 * order by fused multiply-adds in f32. tf32 and f32x3 operands stay float here, which is the more exact. */
#include "backend/cuda/runtime/narrow.h"
#include "backend/cuda/runtime/tiles.h"

enum { TILE = 64, DEPTH = 16, EACH = 4, TILE_THREADS = 256, PAD = 4 };

/* A at a[i * am + p * ak], B at b[p * bk + j * bn]. */
typedef struct tiles_args {
    int64_t m, n, k, am, ak, bk, bn, d_row, tiles_m, tiles_n;
    const void *a, *b;
    void *d;
    const float *bias;
    bool add, narrow_d;
} tiles_args;

/* D, of R. */
template <typename R> __device__ __forceinline__ void tiles_give(const tiles_args &args, int64_t r, int64_t c, float sum) {
    R *place = static_cast<R *>(args.d) + r * args.d_row + c;
    const float old = args.add ? sli_wide(*place) : 0.0f, bias = args.bias ? args.bias[c] : 0.0f;
    sli_assign(place, old + sum + bias);
}

/* tile[p][i] = from[(first + i) * along + (p0 + p) * deep], 0 outside. Neighbouring threads take neighbouring addresses:
 * along i if that stride is 1, else along p. */
template <typename T>
__device__ __forceinline__ void load_tile(float (*tile)[TILE + PAD], const T *__restrict__ from, int64_t first,
                                          int64_t count, int64_t along, int64_t p0, int64_t k, int64_t deep) {
    const bool by_row = along == 1;
#pragma unroll
    for (int e = 0; e < TILE * DEPTH / TILE_THREADS; e++) {
        const int at = (int)threadIdx.x + e * TILE_THREADS;
        const int i = by_row ? at % TILE : at / DEPTH, p = by_row ? at / TILE : at % DEPTH;
        const bool inside = first + i < count && p0 + p < k;
        tile[p][i] = inside ? sli_wide(from[(first + i) * along + (p0 + p) * deep]) : 0.0f;
    }
}

template <typename T> __global__ void __launch_bounds__(TILE_THREADS) multiply_tiles(tiles_args args) {
    __shared__ float a_tile[DEPTH][TILE + PAD], b_tile[DEPTH][TILE + PAD];
    const int64_t tile = blockIdx.x;
    const int64_t i0 = tile / args.tiles_n * TILE, j0 = tile % args.tiles_n * TILE;
    const T *a = (const T *)args.a, *b = (const T *)args.b;
    const int row = (int)threadIdx.x / (TILE / EACH) * EACH, column = (int)threadIdx.x % (TILE / EACH) * EACH;
    float sum[EACH][EACH] = {};
    for (int64_t p0 = 0; p0 < args.k; p0 += DEPTH) {
        load_tile(a_tile, a, i0, args.m, args.am, p0, args.k, args.ak);
        load_tile(b_tile, b, j0, args.n, args.bn, p0, args.k, args.bk);
        __syncthreads();
#pragma unroll
        for (int p = 0; p < DEPTH; p++) {
            float x[EACH], y[EACH];
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                x[e] = a_tile[p][row + e];
                y[e] = b_tile[p][column + e];
            }
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++) sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int64_t r = i0 + row + i, c = j0 + column + j;
            if (r >= args.m || c >= args.n) continue;
            if (args.narrow_d)
                tiles_give<T>(args, r, c, sum[i][j]);
            else
                tiles_give<float>(args, r, c, sum[i][j]);
        }
    }
}

template <typename T> static void launch(sli_queue *queue, cudaStream_t stream, const tiles_args *args) {
    const int64_t blocks = args->tiles_m * args->tiles_n;
    if (blocks > 0x7fffffff) {
        sli_cuda_fail(queue, SL_ERR_SHAPE, "a product of %lld x %lld is too large for one launch; use a smaller batch",
                      (long long)args->m, (long long)args->n);
        return;
    }
    multiply_tiles<T><<<(unsigned)blocks, TILE_THREADS, 0, stream>>>(*args);
    (void)SLI_LAUNCHED(queue, "own matrix product");
}

void sli_tiles_multiply(sli_queue *queue, cudaStream_t stream, const sli_cuda_product *p) {
    tiles_args args = {};
    args.m = p->m;
    args.n = p->n;
    args.k = p->k;
    args.am = p->a.transposed ? 1 : p->a.row;
    args.ak = p->a.transposed ? p->a.row : 1;
    args.bk = p->b.transposed ? 1 : p->b.row;
    args.bn = p->b.transposed ? p->b.row : 1;
    args.d_row = p->d_row;
    args.tiles_m = (p->m + TILE - 1) / TILE;
    args.tiles_n = (p->n + TILE - 1) / TILE;
    args.a = p->a.data;
    args.b = p->b.data;
    args.d = p->d;
    args.narrow_d = p->narrow_d;
    args.bias = p->bias;
    args.add = p->beta != 0.0f;
    if (p->math == SL_BF16)
        launch<sli_bf16>(queue, stream, &args);
    else if (p->math == SL_F16)
        launch<sli_f16>(queue, stream, &args);
    else
        launch<float>(queue, stream, &args);
}
