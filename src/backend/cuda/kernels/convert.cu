/* Conversions between float and 16-bit operands, sums, column sums. */
#include <stdint.h>
#include "backend/cuda/runtime/narrow.h"
#include "backend/cuda/services.h"
extern "C" {
#include "backend/cuda/cuda.h"
}
#include "backend/cuda/kernels/softmax.cuh"

enum { CONVERT_THREADS = 256, PER_THREAD = 4 };
static const size_t MOST_BLOCKS = 4096;

template <typename T> struct alignas(4 * sizeof(T)) quad { T x[4]; };

/* to[count] = or += from[count]; `vector`: both are aligned to four elements. */
template <typename To, typename From, bool add>
__global__ void __launch_bounds__(CONVERT_THREADS)
    convert(To *__restrict__ to, const From *__restrict__ from, size_t count, bool vector) {
    const size_t threads = (size_t)gridDim.x * CONVERT_THREADS, thread = (size_t)blockIdx.x * CONVERT_THREADS + threadIdx.x;
    const size_t quads = vector ? count / 4 : 0;
    for (size_t i = thread; i < quads; i += threads) {
        const quad<From> in = reinterpret_cast<const quad<From> *>(from)[i];
        quad<To> out = {};
        if (add) out = reinterpret_cast<const quad<To> *>(to)[i];
#pragma unroll
        for (int j = 0; j < 4; j++)
            sli_assign(&out.x[j], add ? sli_wide(out.x[j]) + sli_wide(in.x[j]) : sli_wide(in.x[j]));
        reinterpret_cast<quad<To> *>(to)[i] = out;
    }
    for (size_t i = 4 * quads + thread; i < count; i += threads)
        sli_assign(&to[i], add ? sli_wide(to[i]) + sli_wide(from[i]) : sli_wide(from[i]));
}

static unsigned blocks_for(size_t count) {
    const size_t blocks = (count + CONVERT_THREADS * PER_THREAD - 1) / (CONVERT_THREADS * PER_THREAD);
    return (unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS);
}

template <typename To, typename From, bool add>
static void launch(sli_queue *queue, cudaStream_t stream, To *to, const From *from, size_t count) {
    const bool vector = (uintptr_t)to % sizeof(quad<To>) == 0 && (uintptr_t)from % sizeof(quad<From>) == 0;
    convert<To, From, add><<<blocks_for(count), CONVERT_THREADS, 0, stream>>>(to, from, count, vector);
    (void)SLI_LAUNCHED(queue, "conversion");
}

extern "C" void sli_cuda_narrow(sli_queue *queue, cudaStream_t stream, sl_dtype math, void *to, const float *from,
                                size_t count) {
    if (count == 0 || sli_cuda_failed(queue)) return;
    if (math == SL_BF16)
        launch<sli_bf16, float, false>(queue, stream, (sli_bf16 *)to, from, count);
    else if (math == SL_F16)
        launch<sli_f16, float, false>(queue, stream, (sli_f16 *)to, from, count);
    else
        launch<float, float, false>(queue, stream, (float *)to, from, count);
}

extern "C" void sli_cuda_widen(sli_queue *queue, cudaStream_t stream, sl_dtype math, float *to, const void *from,
                               size_t count) {
    if (count == 0 || sli_cuda_failed(queue)) return;
    if (math == SL_BF16)
        launch<float, sli_bf16, false>(queue, stream, to, (const sli_bf16 *)from, count);
    else if (math == SL_F16)
        launch<float, sli_f16, false>(queue, stream, to, (const sli_f16 *)from, count);
    else
        launch<float, float, false>(queue, stream, to, (const float *)from, count);
}

extern "C" void sli_cuda_add(sli_queue *queue, cudaStream_t stream, sl_dtype math, float *to, const void *from,
                             size_t count) {
    if (count == 0 || sli_cuda_failed(queue)) return;
    if (math == SL_BF16)
        launch<float, sli_bf16, true>(queue, stream, to, (const sli_bf16 *)from, count);
    else if (math == SL_F16)
        launch<float, sli_f16, true>(queue, stream, to, (const sli_f16 *)from, count);
    else
        launch<float, float, true>(queue, stream, to, (const float *)from, count);
}

/* to[rows][to_row] = from[rows][columns] and zeros behind, four at a time; to_row is a multiple of four. */
template <typename To>
__global__ void __launch_bounds__(CONVERT_THREADS)
    convert_rows(To *__restrict__ to, int64_t to_row, const float *__restrict__ from, int64_t from_row, int64_t rows,
                 int64_t columns, bool vector) {
    const int64_t quads = to_row / 4, threads = (int64_t)gridDim.x * CONVERT_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * CONVERT_THREADS + threadIdx.x; i < rows * quads; i += threads) {
        const int64_t row = i / quads, column = i % quads * 4;
        const float *source = from + row * from_row + column;
        quad<float> in = {};
        if (vector && column + 4 <= columns) {
            in = *reinterpret_cast<const quad<float> *>(source);
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (column + j < columns) in.x[j] = source[j];
        }
        quad<To> out;
#pragma unroll
        for (int j = 0; j < 4; j++) sli_assign(&out.x[j], in.x[j]);
        *reinterpret_cast<quad<To> *>(to + row * to_row + column) = out;
    }
}

extern "C" void sli_cuda_narrow_rows(sli_queue *queue, cudaStream_t stream, sl_dtype math, void *to, int64_t to_row,
                                     const float *from, int64_t from_row, int64_t rows, int64_t columns) {
    if (rows <= 0 || columns <= 0 || sli_cuda_failed(queue)) return;
    const bool vector = (uintptr_t)from % 16 == 0 && from_row % 4 == 0;
    const unsigned blocks = blocks_for((size_t)rows * (size_t)to_row);
    if (math == SL_F16)
        convert_rows<<<blocks, CONVERT_THREADS, 0, stream>>>((sli_f16 *)to, to_row, from, from_row, rows, columns, vector);
    else if (math == SL_BF16)
        convert_rows<<<blocks, CONVERT_THREADS, 0, stream>>>((sli_bf16 *)to, to_row, from, from_row, rows, columns,
                                                     vector);
    else
        convert_rows<<<blocks, CONVERT_THREADS, 0, stream>>>((float *)to, to_row, from, from_row, rows, columns, vector);
    (void)SLI_LAUNCHED(queue, "conversion of rows");
}

/* -------------------------------------------------------------------------------------------------------- rows --
 * Blocks of LINE by LINES threads; a thread moves EACH rows' pieces of V floats at a time. */
enum { LINE = 32, LINES = 8, EACH = 4 };
template <int V, class T = float> struct alignas(V * sizeof(T)) span { T x[V]; };

/* to[rows][columns] = or += from of the move's matrix blockIdx.z; columns and all strides are multiples of V. */
template <int V, bool add, class T, class F>
__global__ void __launch_bounds__(LINE *LINES) move_rows(const __grid_constant__ sli_cuda_move move) {
    const int64_t column = ((int64_t)blockIdx.x * LINE + threadIdx.x) * V, rows = move.rows;
    const int64_t to_row = move.to_row, from_row = move.from_row;
    T *__restrict__ to = static_cast<T *>(move.to) + blockIdx.z * move.to_apart;
    const F *__restrict__ from = static_cast<const F *>(move.from) + blockIdx.z * move.from_apart;
    if (column >= move.columns) return;
    for (int64_t first = (int64_t)blockIdx.y * LINES * EACH + threadIdx.y; first < rows;
         first += (int64_t)gridDim.y * LINES * EACH) {
        span<V, F> given[EACH] = {};
        span<V> sum[EACH];
#pragma unroll
        for (int e = 0; e < EACH; e++)
            if (first + e * LINES < rows)
                given[e] = *reinterpret_cast<const span<V, F> *>(from + (first + e * LINES) * from_row + column);
#pragma unroll
        for (int e = 0; e < EACH; e++)
#pragma unroll
            for (int v = 0; v < V; v++) sum[e].x[v] = sli_wide(given[e].x[v]);
        if (add) {
            span<V, T> old[EACH] = {};
#pragma unroll
            for (int e = 0; e < EACH; e++)
                if (first + e * LINES < rows)
                    old[e] = *reinterpret_cast<const span<V, T> *>(to + (first + e * LINES) * to_row + column);
#pragma unroll
            for (int e = 0; e < EACH; e++)
#pragma unroll
                for (int v = 0; v < V; v++) sum[e].x[v] = sli_wide(old[e].x[v]) + sum[e].x[v];
        }
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            if (first + e * LINES >= rows) continue;
            span<V, T> rounded;
#pragma unroll
            for (int v = 0; v < V; v++) sli_assign(&rounded.x[v], sum[e].x[v]);
            *reinterpret_cast<span<V, T> *>(to + (first + e * LINES) * to_row + column) = rounded;
        }
    }
}

template <int V, class T> static void launch_move(cudaStream_t stream, const sli_cuda_move *m) {
    const int64_t down = (m->rows + LINES * EACH - 1) / (LINES * EACH);
    const dim3 blocks((unsigned)((m->columns / V + LINE - 1) / LINE), (unsigned)(down < 65535 ? down : 65535),
                      (unsigned)m->count);
    const dim3 threads(LINE, LINES);
    if (m->from_type == m->to_type && !m->add)
        move_rows<V, false, T, T><<<blocks, threads, 0, stream>>>(*m);
    else if (m->add)
        move_rows<V, true, T, float><<<blocks, threads, 0, stream>>>(*m);
    else
        move_rows<V, false, T, float><<<blocks, threads, 0, stream>>>(*m);
}

/* A span is as many elements for both, each whole. */
template <class T> static void launch_spans(cudaStream_t stream, const sli_cuda_move *m) {
    const int64_t strides = m->to_row | m->from_row | m->columns | (m->count > 1 ? m->to_apart | m->from_apart : 0);
    const size_t each = m->from_type == SL_F32 ? sizeof(float) : sizeof(uint16_t);
    const uint64_t bits = (uint64_t)((uintptr_t)m->to / sizeof(T) | (uintptr_t)m->from / each) | (uint64_t)strides;
    if (bits % 4 == 0)
        launch_move<4, T>(stream, m);
    else if (bits % 2 == 0)
        launch_move<2, T>(stream, m);
    else
        launch_move<1, T>(stream, m);
}

extern "C" void sli_cuda_move_rows(sli_queue *queue, cudaStream_t stream, const sli_cuda_move *m) {
    if (m->rows <= 0 || m->columns <= 0 || sli_cuda_failed(queue)) return;
    if (m->to_type == SL_BF16)
        launch_spans<sli_bf16>(stream, m);
    else if (m->to_type == SL_F16)
        launch_spans<sli_f16>(stream, m);
    else
        launch_spans<float>(stream, m);
    (void)SLI_LAUNCHED(queue, "moving of rows");
}

/* ------------------------------------------------------------------------------------------------- column sums --
 * Slab s has rows [s R / slabs, (s + 1) R / slabs). Within a block, ROWS rows of threads take every ROWS-th row of the slab, four
 * columns a thread; their sums are added in order, and then the slabs in order. */
enum { COLUMNS = 32, ROWS = 8, AHEAD = 4 };
static_assert(COLUMNS == ROWS * AHEAD, "a thread across looks up a row");

/* Four columns of a row, of which those from n on are zeros. */
static __device__ quad<float> four_of(const float *row, int64_t column, int64_t n) {
    quad<float> in = {};
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (column + j < n) in.x[j] = row[column + j];
    return in;
}

/* Rows as they are. */
struct slab_rows {
    struct row {};
    enum { looks = 0 };
    __device__ row of(int64_t) const { return row(); }
    __device__ float value(const row &, float x, int) const { return x; }
};
/* Rows of logits, in place of which their loss's gradient is taken; the first is row `first` of the loss's call. What there is to know of a row
 * is looked up once for all of a block's columns. */
struct slab_logits {
    typedef xent_row row;
    enum { looks = 1 };
    xent_args loss;
    int64_t first;
    __device__ row of(int64_t r) const { return xent_row_of(loss, (size_t)(first + r)); }
    __device__ float value(const row &of, float x, int j) const { return xent_gradient_of(of, x, j); }
};

/* sums[slab][n] =, += where `add`; where it `converts`, `to` = the rows and zeros behind. `vector`: rows are whole 16 bytes. */
template <typename To, bool converts, typename Rows>
__global__ void __launch_bounds__(COLUMNS *ROWS, Rows::looks ? 5 : 6)
    slab_sums(To *__restrict__ to, int64_t to_row, const float *__restrict__ from, int64_t rows, int64_t n,
              float *__restrict__ sums, bool vector, bool add, const Rows as) {
    __shared__ quad<float> part[ROWS][COLUMNS];
    __shared__ typename Rows::row known[ROWS * AHEAD];
    const int64_t column = ((int64_t)blockIdx.x * COLUMNS + threadIdx.x) * 4, slab = blockIdx.y, slabs = gridDim.y;
    const int64_t first = slab * rows / slabs, last = (slab + 1) * rows / slabs;
    const bool whole = vector && column + 4 <= n;
    quad<float> sum = {};
    for (int64_t begin = first; begin < last; begin += ROWS * AHEAD) {
        const int64_t r = begin + threadIdx.y;
        quad<float> in[AHEAD] = {};
        if (whole) { /* apart, so that all are on their way before the first is used */
            const float *row = from + r * n + column;
#pragma unroll
            for (int e = 0; e < AHEAD; e++)
                if (r + e * ROWS < last) in[e] = *reinterpret_cast<const quad<float> *>(row + e * ROWS * n);
        } else {
#pragma unroll
            for (int e = 0; e < AHEAD; e++)
                if (r + e * ROWS < last) in[e] = four_of(from + (r + e * ROWS) * n, column, n);
        }
        if (Rows::looks) {
            const int64_t own = begin + threadIdx.x;
            if (threadIdx.y == 0 && own < last) known[threadIdx.x] = as.of(own);
            __syncthreads();
        }
#pragma unroll
        for (int e = 0; e < AHEAD; e++) {
            if (r + e * ROWS >= last || column >= to_row) continue;
            quad<To> out;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float x = whole || column + j < n
                                    ? as.value(known[threadIdx.y + e * ROWS], in[e].x[j], (int)column + j)
                                    : 0.0f;
                sum.x[j] += x;
                if (converts) sli_assign(&out.x[j], x);
            }
            if (converts) *reinterpret_cast<quad<To> *>(to + (r + e * ROWS) * to_row + column) = out;
        }
        if (Rows::looks) __syncthreads();
    }
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0) return;
    for (int i = 1; i < ROWS; i++)
        for (int j = 0; j < 4; j++) sum.x[j] += part[i][threadIdx.x].x[j];
    float *place = sums + slab * n + column;
    for (int j = 0; j < 4; j++)
        if (column + j < n) place[j] = add ? place[j] + sum.x[j] : sum.x[j];
}

template <bool converts, typename To, typename Rows>
static bool launch_slabs(sli_queue *queue, cudaStream_t stream, To *to, int64_t to_row, const float *from, int64_t rows,
                         int64_t n, float *sums, bool add, const Rows &as) {
    const bool vector = (uintptr_t)from % 16 == 0 && n % 4 == 0;
    const dim3 blocks((unsigned)((to_row + 4 * COLUMNS - 1) / (4 * COLUMNS)), (unsigned)sli_cuda_column_slabs(rows));
    slab_sums<To, converts>
        <<<blocks, dim3(COLUMNS, ROWS), 0, stream>>>(to, to_row, from, rows, n, sums, vector, add, as);
    return SLI_LAUNCHED(queue, "column sums");
}

__global__ void __launch_bounds__(CONVERT_THREADS)
    add_slabs(float *__restrict__ to, const float *__restrict__ parts, int64_t n, int slabs, bool add) {
    const int64_t column = (int64_t)blockIdx.x * CONVERT_THREADS + threadIdx.x;
    if (column >= n) return;
    float sum = 0;
    for (int s = 0; s < slabs; s++) sum += parts[s * n + column];
    to[column] = add ? to[column] + sum : sum;
}

extern "C" void sli_cuda_add_slabs(sli_queue *queue, cudaStream_t stream, float *to, int64_t rows, int64_t n,
                                   const void *scratch, bool add) {
    if (n <= 0 || sli_cuda_failed(queue)) return;
    add_slabs<<<(unsigned)((n + CONVERT_THREADS - 1) / CONVERT_THREADS), CONVERT_THREADS, 0, stream>>>(
        to, (const float *)scratch, n, (int)sli_cuda_column_slabs(rows), add);
    (void)SLI_LAUNCHED(queue, "sum of column sums");
}

extern "C" void sli_cuda_add_columns(sli_queue *queue, cudaStream_t stream, float *to, const float *from, int64_t rows,
                                     int64_t n, void *scratch, bool add) {
    if (rows <= 0 || n <= 0 || sli_cuda_failed(queue)) return;
    const bool one = sli_cuda_column_slabs(rows) == 1;
    float *sums = one ? to : (float *)scratch, *none = NULL;
    if (launch_slabs<false>(queue, stream, none, n, from, rows, n, sums, add && one, slab_rows()) && !one)
        sli_cuda_add_slabs(queue, stream, to, rows, n, scratch, add);
}

template <typename To>
static void narrow_slabs(sli_queue *queue, cudaStream_t stream, To *to, int64_t to_row, const float *from, int64_t rows, int64_t n,
                         float *sums, const sli_call *loss, int64_t first) {
    if (!loss) {
        (void)launch_slabs<true>(queue, stream, to, to_row, from, rows, n, sums, false, slab_rows());
        return;
    }
    const slab_logits logits = {xent_args_of(loss), first};
    (void)launch_slabs<true>(queue, stream, to, to_row, from, rows, n, sums, false, logits);
}

extern "C" void sli_cuda_narrow_slabs(sli_queue *queue, cudaStream_t stream, sl_dtype math, void *to, int64_t to_row,
                                      const float *from, int64_t rows, int64_t n, void *scratch, const sli_call *loss,
                                      int64_t first) {
    if (rows <= 0 || n <= 0 || sli_cuda_failed(queue)) return;
    if (math == SL_F16)
        narrow_slabs(queue, stream, (sli_f16 *)to, to_row, from, rows, n, (float *)scratch, loss, first);
    else
        narrow_slabs(queue, stream, (sli_bf16 *)to, to_row, from, rows, n, (float *)scratch, loss, first);
}
