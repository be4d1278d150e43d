/* f32x3 products: every operand is the sum of two tf32 numbers (split.h), and their three products are one, three times as
 * long:  D = beta D + [A_low A_high A_high] [B_high B_low B_high]^T, small terms first. Tensor cores cut digits off where they
 * add, which a long sum would show: k goes piece by piece, and the pieces are added in f32. */
#include "backend/cuda/runtime/split.h"
#include "backend/cuda/runtime/internal.h"
#include "backend/cuda/runtime/tiles.h"
extern "C" {
#include "backend/cuda/cuda.h"
}

enum { SPLIT_THREADS = 256 };
static const int64_t MOST_BLOCKS = 2048;

/* A piece of an operand, three times: to[t][lines][width], t < 3, from the stored from[rows][columns]; zeros beyond. */
typedef struct split_operand {
    const float *from;
    int64_t from_row, rows, columns;
    float *to; /* aligned to 16 bytes, as are its rows */
    int64_t to_row, apart, lines, width;
    int low;     /* which t has the low parts; the others have the high ones */
    bool vector; /* rows of `from` are aligned to 16 bytes */
} split_operand;
typedef struct split_args {
    split_operand operand[2];
} split_args;

/* A thread splits four numbers of a row at a time; blockIdx.y is the operand. */
__global__ void __launch_bounds__(SPLIT_THREADS) split_operands(const __grid_constant__ split_args args) {
    const split_operand &o = args.operand[blockIdx.y];
    const int64_t quads = o.width / 4, count = o.lines * quads, threads = (int64_t)gridDim.x * SPLIT_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * SPLIT_THREADS + threadIdx.x; i < count; i += threads) {
        const int64_t line = i / quads, column = i % quads * 4;
        const float *source = o.from + line * o.from_row + column;
        float4 x = make_float4(0, 0, 0, 0), high, low;
        if (o.vector && line < o.rows && column + 4 <= o.columns) {
            x = *reinterpret_cast<const float4 *>(source);
        } else if (line < o.rows) {
            x.x = column < o.columns ? source[0] : 0.0f;
            x.y = column + 1 < o.columns ? source[1] : 0.0f;
            x.z = column + 2 < o.columns ? source[2] : 0.0f;
            x.w = column + 3 < o.columns ? source[3] : 0.0f;
        }
        sli_split(x.x, &high.x, &low.x);
        sli_split(x.y, &high.y, &low.y);
        sli_split(x.z, &high.z, &low.z);
        sli_split(x.w, &high.w, &low.w);
        float *to = o.to + line * o.to_row + column;
#pragma unroll
        for (int t = 0; t < 3; t++) *reinterpret_cast<float4 *>(to + t * o.apart) = t == o.low ? low : high;
    }
}

static int64_t round_up(int64_t count, int64_t multiple) {
    return (count + multiple - 1) / multiple * multiple;
}

/* The copy in `to` of values [first, first + count) along k, `long_k` of them with zeros: k is a row's direction, as in
 * [across][k], or the rows', as in [k][across]. */
static split_operand operand_of(const sli_cuda_matrix *matrix, bool k_in_row, int64_t across, int64_t first,
                                int64_t count, int64_t long_k, float *to, int low) {
    split_operand o = {};
    o.from = (const float *)matrix->data + (k_in_row ? first : first * matrix->row);
    o.from_row = matrix->row;
    o.rows = k_in_row ? across : count;
    o.columns = k_in_row ? count : across;
    o.to = to;
    o.lines = k_in_row ? across : long_k;
    o.width = k_in_row ? long_k : round_up(across, 4);
    o.to_row = k_in_row ? 3 * long_k : o.width;
    o.apart = k_in_row ? long_k : long_k * o.width;
    o.low = low;
    o.vector = sli_alignment(o.from, o.from_row, sizeof(float)) == 16;
    return o;
}

static void launch(sli_queue *queue, cudaStream_t stream, const split_args *args) {
    int64_t most = 1;
    for (int i = 0; i < 2; i++) {
        const int64_t quads = args->operand[i].lines * (args->operand[i].width / 4);
        if (quads > most) most = quads;
    }
    const int64_t blocks = (most + SPLIT_THREADS - 1) / SPLIT_THREADS;
    split_operands<<<dim3((unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS), 2), SPLIT_THREADS, 0, stream>>>(*args);
    (void)SLI_LAUNCHED(queue, "split of operands");
}

bool sli_split_fits(const sli_queue *queue, const sli_cuda_product *p) {
    if (!queue->device->blas || !p->split) return false;
    const size_t bytes = sli_cuda_split_bytes(sli_cuda_caps_of(queue), SL_F32X3, p->m, p->n, p->k);
    return bytes > 0 && bytes <= p->split_bytes;
}

void sli_split_multiply(sli_queue *queue, cudaStream_t stream, const sli_cuda_product *p) {
    const int64_t each = sli_cuda_split_piece(p->k);
    sli_cuda_product piece = *p;
    piece.math = SL_TF32;
    piece.split = NULL;
    for (int64_t first = 0; first < p->k && !sli_cuda_failed(queue); first += each) {
        const int64_t count = p->k - first < each ? p->k - first : each, long_k = round_up(count, 8);
        float *a = (float *)p->split, *b = a + 3 * long_k * round_up(p->m, 4);
        split_args args;
        args.operand[0] = operand_of(&p->a, !p->a.transposed, p->m, first, count, long_k, a, 0);
        args.operand[1] = operand_of(&p->b, p->b.transposed, p->n, first, count, long_k, b, 1);
        launch(queue, stream, &args);
        piece.k = 3 * long_k;
        piece.a.data = a;
        piece.a.row = args.operand[0].to_row;
        piece.b.data = b;
        piece.b.row = args.operand[1].to_row;
        sli_cuda_multiply(queue, stream, &piece);
        piece.beta = 1.0f;
        piece.bias = NULL;
    }
}
