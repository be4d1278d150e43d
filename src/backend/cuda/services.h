/* What rows of the plug-ins call: the queue's streams, errors, matrix products, conversions. The CUDA plug-in implements it
 * (runtime/), its own kernels call the functions; the cuDNN plug-in reaches them through the table. C and CUDA C. */
#ifndef SLI_CUDA_SERVICES_H
#define SLI_CUDA_SERVICES_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif
#include "backend/cuda/plugin.h"

/* ------------------------------------------------------------------------------------------------------ errors --
 * Every CUDA call goes through SLI_CU: the first failure stays in the queue ("sticky") and comes out of the next submit,
 * download or wait as one sentence; later work of the queue is not launched. Returns true if all is well. */
bool sli_cuda_try(sli_queue *queue, cudaError_t error, const char *what);
cudaError_t sli_cuda_injected(cudaError_t error); /* the hook behind each CUDA call */
void sli_cuda_fail(sli_queue *queue, sl_status status, const char *format, ...);
bool sli_cuda_failed(const sli_queue *queue);
#define SLI_CU(queue, call) sli_cuda_try((queue), sli_cuda_injected(call), #call)
/* After each kernel launch; `what` is the kernel's name. */
#define SLI_LAUNCHED(queue, what) sli_cuda_try((queue), sli_cuda_injected(cudaGetLastError()), "launch of " what)

/* ----------------------------------------------------------------------------------------------------- streams -- */
cudaStream_t sli_cuda_stream(sli_queue *queue);
const sli_caps *sli_cuda_caps_of(const sli_queue *queue);
/* A second stream for independent work of one call (the other direction): after fork, work in the side stream begins after
 * all work queued in the main stream so far; after join, the main stream waits for it. Fits recording. */
cudaStream_t sli_cuda_fork(sli_queue *queue);
void sli_cuda_join(sli_queue *queue);
/* What was just launched in `stream` is noted as ours, if a recording is made: when it ends, zeros are put together (runtime/recording.cu). */
void sli_cuda_note_launch(sli_queue *queue, cudaStream_t stream);
/* A fork behind which zeros are queued in the main stream, to[bytes]: work in the side stream may begin before they are there. */
cudaStream_t sli_cuda_fork_and_zero(sli_queue *queue, void *to, size_t bytes);
/* Lanes: streams for parts of one call that wait for each other piece by piece. Opened, all of them begin after what is queued in
 * the main stream, which is lane 0; in use, a lane is what sli_cuda_stream gives, so that functions of rows can be called into it;
 * closed, the main stream waits for all. false: they are not all open, the queue has failed; to be closed even so. Phases are
 * not marked meanwhile, and no fork. Fits recording. */
enum { SLI_CUDA_LANES = SLI_MAX_PARTS };
bool sli_cuda_open_lanes(sli_queue *queue, int count);
void sli_cuda_use_lane(sli_queue *queue, int lane);
/* A point in the lane in use; the lane in use waits for the last such point of another, which has one. */
void sli_cuda_pass_lane(sli_queue *queue);
void sli_cuda_wait_lane(sli_queue *queue, int lane);
void sli_cuda_close_lanes(sli_queue *queue);
bool sli_cuda_in_lanes(const sli_queue *queue);
/* Late sums (sli_call.late): sums(call, numbers, stream) is called when the next recurrence has been launched, for a stream that
 * goes on beside it from the point that was marked: products that begin before it would hold up its blocks. What was late before is
 * settled first; settling, the queue's stream waits for it. Only outside of lanes. */
enum { SLI_LATE_NUMBERS = 4 };
typedef void (*sli_late_sums)(const sli_call *call, const int numbers[SLI_LATE_NUMBERS], cudaStream_t stream);
void sli_cuda_leave_late(sli_queue *queue, sli_late_sums sums, const sli_call *call,
                         const int numbers[SLI_LATE_NUMBERS]);
/* Behind those that are late now, in their stream. false: none are. */
bool sli_cuda_follow_late(sli_queue *queue, sli_late_sums sums, const sli_call *call);
void sli_cuda_mark_late(sli_queue *queue);
void sli_cuda_start_late(sli_queue *queue);
void sli_cuda_settle(sli_queue *queue);
bool sli_cuda_is_late(const sli_queue *queue);
/* Sums that are late wait for the launch of the next recurrence. */
bool sli_cuda_awaits_late(const sli_queue *queue);
/* From here on the time counts as `phase` (a mark in the stream; nothing unless profiling). Also an NVTX range. */
void sli_cuda_phase(sli_queue *queue, sli_phase phase);
/* An opaque object that lives as long as the queue, made at the first call of this key (cuDNN handles and descriptors). */
void *sli_cuda_keep(sli_queue *queue, const void *key, size_t key_bytes,
                    void *(*make)(sli_queue *queue, const void *key), void (*free_kept)(void *object));

/* -------------------------------------------------------------------------------------------- matrix products --
 * Row-major: D[m][n] = beta D + op(A)[m][k] op(B)[k][n] (+ bias[n]). `transposed`: stored [k][m], or [n][k]. `row`: elements from
 * one stored row to the next. Sums are f32; exact products in f32, operands rounded by the tensor core in tf32; bf16 and f16
 * operands are stored so; f32x3 multiplies on tensor cores to the accuracy of f32, or exactly in f32 where that is faster. Deterministic: the algorithm depends on shapes, types and workspace alone. */
typedef struct sli_cuda_matrix {
    const void *data;
    int64_t row;
    bool transposed;
} sli_cuda_matrix;
typedef struct sli_cuda_product {
    sl_dtype math; /* SL_F32, SL_TF32, SL_F32X3: A and B float; SL_BF16, SL_F16: A and B 16-bit */
    int64_t m, n, k;
    sli_cuda_matrix a, b;
    bool a_floats; /* 16 bits: A is float, and is rounded on the way, where sli_cuda_is_small */
    /* Float; narrow_d: of math's 16 bits, rounded once; in one piece, without a bias. */
    void *d;
    bool narrow_d;
    int64_t d_row;
    /* 0 and 1: k as a whole. Else so many pieces of k of the same length, a multiple of 8, each summed apart: D[piece][m][n],
     * d_apart floats from one to the next, beta 0, no bias. */
    int pieces;
    /* Two products of one size, 16 bits, in a launch: A, B and D of the second lie so many elements behind the first's, each whole 16 bytes; pieces 1, no bias. */
    bool paired;
    int64_t a_apart, b_apart, d_apart;
    int share;         /* 16 bits: hundredths of the multiprocessors, where others run beside it; 0: it is alone */
    float beta;        /* 0 or 1 */
    const float *bias; /* [n] or NULL */
    void *workspace;   /* sli_cuda_workspace bytes, one a stream; from the row's booked scratch */
    size_t workspace_bytes;
    /* Scratch for a product whose D has an n that the fast kernels do not take: sli_cuda_pad_bytes, booked, aligned to 16
     * bytes; or NULL. Says too that B may be read up to b.row in its rows, of a transposed one as many rows as D is padded to:
     * the columns from n on are anything. A in 16 bits that is transposed may be read likewise, up to
     * whole eights of m that its rows have. */
    void *pad;
    size_t pad_bytes;
    /* Scratch of f32x3: sli_cuda_split_bytes, booked, aligned to 16 bytes. NULL: multiplied exactly in f32. */
    void *split;
    size_t split_bytes;
} sli_cuda_product;
/* m, n or k 0: D = beta D (+ bias). */
void sli_cuda_multiply(sli_queue *queue, cudaStream_t stream, const sli_cuda_product *product);
/* Multiplied by our own kernel for small ones, which takes A as it lies: floats, rows that begin at no 16 bytes. */
bool sli_cuda_is_small(const sli_cuda_product *product);

/* Bytes of an operand in `math` (2 or 4). */
static inline size_t sli_cuda_operand_bytes(sl_dtype math) {
    return math == SL_BF16 || math == SL_F16 ? 2 : 4;
}
/* to[count] (math's type) = from[count] rounded to nearest even; f16 overflow becomes infinity. f32, tf32: a copy. */
void sli_cuda_narrow(sli_queue *queue, cudaStream_t stream, sl_dtype math, void *to, const float *from, size_t count);
/* The same by rows, into rows that are padded with zeros: to[rows][to_row] = from[rows][columns], from_row elements apart.
 * to_row = sli_cuda_padded(math, columns) makes rows multiples of 16 bytes, which tensor cores' fast kernels want; as a
 * matrix, `row` is then to_row. `to` is aligned to 16 bytes. */
static inline int64_t sli_cuda_padded(sl_dtype math, int64_t columns) {
    const int64_t each = 16 / (int64_t)sli_cuda_operand_bytes(math);
    return (columns + each - 1) / each * each;
}
void sli_cuda_narrow_rows(sli_queue *queue, cudaStream_t stream, sl_dtype math, void *to, int64_t to_row,
                          const float *from, int64_t from_row, int64_t rows, int64_t columns);
/* to[bytes] = from[bytes] of the GPU's memory, or zeros without `from`. true: all is well. */
bool sli_cuda_put(sli_queue *queue, cudaStream_t stream, void *to, const void *from, size_t bytes);
/* Element number `count` of a product's D. */
static inline void *sli_cuda_d_at(const sli_cuda_product *product, int64_t count) {
    return (char *)product->d + count * (int64_t)(product->narrow_d ? sizeof(uint16_t) : sizeof(float));
}
/* to[rows][columns] = from, += where `add`, of `count` matrices; _row elements from row to row, _apart from matrix to matrix.
 * Both are of type SL_F32, or SL_BF16 or SL_F16: `from` of that if `to` is, and nothing is added. */
typedef struct sli_cuda_move {
    sl_dtype to_type, from_type;
    void *to;
    int64_t to_row, to_apart;
    const void *from;
    int64_t from_row, from_apart;
    int64_t rows, columns;
    int count;
    bool add;
} sli_cuda_move;
void sli_cuda_move_rows(sli_queue *queue, cudaStream_t stream, const sli_cuda_move *move);
/* to[lines][to_row] = transposed from[rows][columns], zeros beyond: to_row >= rows, a multiple of 4, lines >= columns. Rows of
 * `from` are from_row apart; `to` is aligned to 16 bytes. */
typedef struct sli_cuda_transposition {
    const float *from;
    int64_t from_row, rows, columns;
    float *to;
    int64_t to_row, lines;
} sli_cuda_transposition;
enum { SLI_CUDA_TRANSPOSITIONS = 4 }; /* at once */
void sli_cuda_transpose(sli_queue *queue, cudaStream_t stream, const sli_cuda_transposition *each, int count);
/* to[count] = from[count] of math's type. */
void sli_cuda_widen(sli_queue *queue, cudaStream_t stream, sl_dtype math, float *to, const void *from, size_t count);
/* to[count] += from[count] of math's type. */
void sli_cuda_add(sli_queue *queue, cudaStream_t stream, sl_dtype math, float *to, const void *from, size_t count);
/* to[n] =, += where `add`, sum over rows of from[rows][n] (row stride n), in a fixed order; `scratch`: sli_cuda_column_scratch
 * bytes. */
void sli_cuda_add_columns(sli_queue *queue, cudaStream_t stream, float *to, const float *from, int64_t rows, int64_t n,
                          void *scratch, bool add);
/* In two: 16-bit rows as by sli_cuda_narrow_rows, of which the sums of more than one slab stay in `scratch`; to[n] =, or +=, the sum of
 * those. The same bits. loss: `from` are logits, and what is rounded and summed is the gradient of this call of a softmax's loss, of its rows
 * from `first` on, which lies nowhere else; NULL: what there is. */
void sli_cuda_narrow_slabs(sli_queue *queue, cudaStream_t stream, sl_dtype math, void *to, int64_t to_row,
                           const float *from, int64_t rows, int64_t n, void *scratch, const sli_call *loss,
                           int64_t first);
void sli_cuda_add_slabs(sli_queue *queue, cudaStream_t stream, float *to, int64_t rows, int64_t n, const void *scratch,
                        bool add);

/* ----------------------------------------------------------------------------------- for the cuDNN plug-in -- */
typedef struct sli_cuda_services {
    bool (*try_cuda)(sli_queue *queue, cudaError_t error, const char *what);
    void (*fail)(sli_queue *queue, sl_status status, const char *format, ...);
    bool (*failed)(const sli_queue *queue);
    cudaStream_t (*stream)(sli_queue *queue);
    const sli_caps *(*caps_of)(const sli_queue *queue);
    void (*phase)(sli_queue *queue, sli_phase phase);
    void *(*keep)(sli_queue *queue, const void *key, size_t key_bytes, void *(*make)(sli_queue *queue, const void *key),
                  void (*free_kept)(void *object));
    void (*narrow)(sli_queue *queue, cudaStream_t stream, sl_dtype math, void *to, const float *from, size_t count);
    void (*widen)(sli_queue *queue, cudaStream_t stream, sl_dtype math, float *to, const void *from, size_t count);
    /* to[count] += from[count] of math's type. */
    void (*add)(sli_queue *queue, cudaStream_t stream, sl_dtype math, float *to, const void *from, size_t count);
    cudaError_t (*copy)(void *to, const void *from, size_t bytes, cudaStream_t stream); /* device to device */
    cudaError_t (*zero)(void *to, size_t bytes, cudaStream_t stream);
} sli_cuda_services;
extern const sli_cuda_services sli_cuda_services_table;

#ifdef __cplusplus
}
#endif
#endif
