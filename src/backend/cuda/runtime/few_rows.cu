/* Products of at most four rows with weights stored [n][k], as in streaming: bound by reading the weights. One warp a column:
 * its lanes take pieces of 16 bytes along k in turn, and their sums are added as a fixed tree. */
#include "backend/cuda/runtime/narrow.h"
#include "backend/cuda/runtime/tiles.h"

enum { LANES = 32, WARPS = 8 };

template <typename T, int count> struct alignas(count * sizeof(T)) piece { T x[count]; };

typedef struct few_args {
    int64_t n, k, a_row, b_row, d_row;
    const void *a, *b;
    float *d;
    const float *bias;
    bool add;
} few_args;

/* D[i][column] = or += sum over k of A[i][k] B[column][k] (+ bias[column]), i < rows. Pieces of `each` elements. */
template <typename T, int rows, int each> __global__ void __launch_bounds__(LANES *WARPS) multiply_few(few_args args) {
    const int lane = (int)threadIdx.x;
    const int64_t column = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (column >= args.n) return;
    const T *__restrict__ a = (const T *)args.a;
    const T *__restrict__ b = (const T *)args.b + column * args.b_row;
    float sum[rows] = {};
    const int64_t whole = args.k / each * each;
#pragma unroll 4
    for (int64_t p = (int64_t)lane * each; p < whole; p += LANES * each) {
        const piece<T, each> y = *reinterpret_cast<const piece<T, each> *>(b + p);
#pragma unroll
        for (int i = 0; i < rows; i++) {
            const piece<T, each> x = *reinterpret_cast<const piece<T, each> *>(a + i * args.a_row + p);
#pragma unroll
            for (int e = 0; e < each; e++) sum[i] = fmaf(sli_wide(x.x[e]), sli_wide(y.x[e]), sum[i]);
        }
    }
    for (int64_t p = whole + lane; p < args.k; p += LANES)
#pragma unroll
        for (int i = 0; i < rows; i++) sum[i] = fmaf(sli_wide(a[i * args.a_row + p]), sli_wide(b[p]), sum[i]);
#pragma unroll
    for (int i = 0; i < rows; i++) {
#pragma unroll
        for (int offset = LANES / 2; offset > 0; offset /= 2) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], offset);
        if (lane > 0) continue;
        float *place = args.d + i * args.d_row + column;
        *place = (args.add ? *place : 0.0f) + sum[i] + (args.bias ? args.bias[column] : 0.0f);
    }
}

template <typename T, int each> static void launch_rows(cudaStream_t stream, const few_args *args, int64_t rows) {
    const unsigned blocks = (unsigned)((args->n + WARPS - 1) / WARPS);
    const dim3 threads(LANES, WARPS);
    switch (rows) {
    case 1:
        multiply_few<T, 1, each><<<blocks, threads, 0, stream>>>(*args);
        break;
    case 2:
        multiply_few<T, 2, each><<<blocks, threads, 0, stream>>>(*args);
        break;
    case 3:
        multiply_few<T, 3, each><<<blocks, threads, 0, stream>>>(*args);
        break;
    default:
        multiply_few<T, 4, each><<<blocks, threads, 0, stream>>>(*args);
        break;
    }
}

template <typename T>
static void launch(sli_queue *queue, cudaStream_t stream, const few_args *args, int64_t rows, bool aligned) {
    if (aligned)
        launch_rows<T, 16 / sizeof(T)>(stream, args, rows);
    else
        launch_rows<T, 1>(stream, args, rows);
    (void)SLI_LAUNCHED(queue, "own product of few rows");
}

bool sli_few_rows_fit(const sli_cuda_product *p) {
    return p->m <= 4 && !p->narrow_d && !p->a.transposed && p->b.transposed && p->n <= (int64_t)1 << 30;
}

void sli_few_rows_multiply(sli_queue *queue, cudaStream_t stream, const sli_cuda_product *p) {
    few_args args = {};
    args.n = p->n;
    args.k = p->k;
    args.a_row = p->a.row;
    args.b_row = p->b.row;
    args.d_row = p->d_row;
    args.a = p->a.data;
    args.b = p->b.data;
    args.d = (float *)p->d;
    args.bias = p->bias;
    args.add = p->beta != 0.0f;
    const size_t element = sli_cuda_operand_bytes(p->math);
    const bool aligned =
        sli_alignment(p->a.data, p->a.row, element) == 16 && sli_alignment(p->b.data, p->b.row, element) == 16;
    if (p->math == SL_BF16)
        launch<sli_bf16>(queue, stream, &args, p->m, aligned);
    else if (p->math == SL_F16)
        launch<sli_f16>(queue, stream, &args, p->m, aligned);
    else
        launch<float>(queue, stream, &args, p->m, aligned);
}
