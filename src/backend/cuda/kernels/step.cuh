/* cuda:step inside the plug-in: what its files share. One "way" is one direction of one call; a step is one launch of the
 * recurrent product and one of a cell (two of each with a projection or with reset before), or, of small layers, one launch
 * that does both: a fused step. */
#ifndef SLI_CUDA_STEP_CUH
#define SLI_CUDA_STEP_CUH

#include "backend/cuda/kernels/step_args.h"
#include "backend/cuda/services.h"
#include "backend/cuda/step_layout.h"

static_assert((int)STEP_BF16 == (int)SL_BF16 && (int)STEP_F16 == (int)SL_F16, "numbers of sl_dtype");

/* One direction of one call. */
typedef struct step_way {
    const sli_call *call;
    sli_queue *queue;
    cudaStream_t stream;
    sli_step_shape s;
    sli_step_history history;
    sli_step_scratch scratch;
    sli_step_packed packed;
    char *saved, *work, *weights; /* this direction's history, scratch, packed */
    int part;
    bool backward;         /* the pass */
    bool reverse, overlap; /* overlap: launches may be programmatically dependent */
    bool fused;            /* a step is one launch */
    int tiled;             /* ... of tiles of so many rows; 0: not */
    sli_step_wide wide;    /* its product is our own; rows 0: not */
    uint32_t run_v, run_d; /* of runs: blocks that the call's launches so far let tell of v; their products */
    int chunk, chunks;
    int c0, c1;      /* the chunk at work */
    const void *x; /* [T][B][I], floats, or narrow_io of the operands' type, as y and dy are */
    const void *copied_x; /* operand of the chunk's x where it is there already, or NULL */
    void *zeros;          /* = zeros, by the launch that makes x an operand; NULL: none */
    size_t zeros_bytes;
    void *y;        /* [T][B][y_row] or NULL */
    const void *dy; /* as y */
    int64_t y_row;
    const void *const *param; /* of this part */
    void *const *d_param;
    bool first, last; /* backward's first chunk is at work, its last */
    step_common common;
} step_way;

/* Fills ways[directions], forks nothing yet; returns their number. */
int sli_step_ways(const sli_call *call, bool backward, step_way ways[2]);
void sli_step_enter_chunk(step_way *way, int index);
/* Where a sum of the chunk at work goes, from number `first` of parameter k's gradient on: in floats `sums`, = or += where `add`; of
 * narrow ones in `narrow`, = or += where `add_narrow`, rounded once: itself, where there is but one chunk and no sums, else the sums with it, behind
 * the last. NULL: there is none. */
typedef struct step_target {
    float *sums;
    uint16_t *narrow;
    bool add, add_narrow; /* add: float gradients are added to by all chunks but a fresh one's first, sums in scratch by all but the first */
} step_target;
step_target sli_step_target(const step_way *way, int k, int64_t first);
static inline bool sli_step_is_target(const step_target *to) {
    return to->sums || to->narrow;
}
/* Without any step: fresh gradients = 0. */
void sli_step_zero_fresh(const step_way *way);
/* The s-th step in order of processing of the chunk. */
int sli_step_at(const step_way *way, int s);
/* Slots of the states around step t. */
int sli_step_entering(const step_way *way, int t);
int sli_step_leaving(const step_way *way, int t);
void *sli_step_operand_h(const step_way *way, int slot);
float *sli_step_cell(const step_way *way, int slot);
/* Gates [B][us], s_n and v [B][H] of step t. */
float *sli_step_gates(const step_way *way, int t);
float *sli_step_sn(const step_way *way, int t);
float *sli_step_v(const step_way *way, int t);
/* h' as float; *row its stride. NULL where no cell reads it. */
const float *sli_step_hidden(const step_way *way, int slot, int64_t *row);
/* Rows of the chunk's x: of all its steps, but of a wave, whose last steps have none. Operand of them, [rows][xs]: in place or copied. */
int64_t sli_step_input_rows(const step_way *way);
const void *sli_step_inputs(const step_way *way);
const void *sli_step_kernel(const step_way *way);
const void *sli_step_recurrent(const step_way *way);
const void *sli_step_projection(const step_way *way);
step_common sli_step_common_at(const step_way *way, int t);

/* A product of the way: math, workspace and stream filled in. */
sli_cuda_product sli_step_product(const step_way *way, int64_t m, int64_t n, int64_t k);
static inline sli_cuda_matrix sli_step_matrix(const void *data, int64_t row, bool transposed) {
    sli_cuda_matrix matrix = {data, row, transposed};
    return matrix;
}
/* `count` elements on from an operand pointer. */
static inline void *sli_step_offset(const step_way *way, const void *operand, int64_t count) {
    return (char *)operand + (size_t)count * way->s.operand;
}

/* Number `count` of x, y or their gradients. */
static inline void *sli_step_io(const step_way *way, const void *tensor, int64_t count) {
    return (char *)tensor + count * (int64_t)(way->s.narrow_io ? sizeof(uint16_t) : sizeof(float));
}

/* Options and activations of src/cell that the problem's cells have. */
int sli_step_options(const sli_problem *problem);
int sli_step_act(const sli_problem *problem);
int sli_step_gate_act(const sli_problem *problem);
/* Launches. `dependent`: the launch before it in the stream is the product that it waits for. */
void sli_step_lstm_forward(const step_way *way, const step_forward_args *args, bool dependent);
void sli_step_lstm_backward(const step_way *way, const step_backward_args *args, bool dependent);
void sli_step_gru_reset(const step_way *way, const step_forward_args *args, bool dependent);
void sli_step_gru_forward(const step_way *way, const step_forward_args *args, bool dependent);
void sli_step_gru_backward(const step_way *way, const step_backward_args *args, bool dependent);
void sli_step_gru_reset_backward(const step_way *way, const step_backward_args *args, bool dependent);
void sli_step_rnn_forward(const step_way *way, const step_forward_args *args, bool dependent);
void sli_step_rnn_backward(const step_way *way, const step_backward_args *args, bool dependent);
void sli_step_project_forward(const step_way *way, const step_forward_args *args, bool dependent);
void sli_step_project_backward(const step_way *way, const step_backward_args *args, bool dependent);
/* Fused steps. `dependent`: the launch before it in the stream is another step of the same chunk. h: operand d h'. */
void sli_step_fused_forward(const step_way *way, const step_forward_args *args, const void *h, bool dependent);
/* dr: operand of the step processed before, or NULL: then args->dp. dp_to: instead of a step, only = [B][hs] dr R. */
void sli_step_fused_backward(const step_way *way, const step_backward_args *args, const void *dr, float *dp_to,
                             bool dependent);
/* Tiled forward steps: R as they read it; before the call's first step; the call's step `number`, in order of processing. */
void sli_step_tiled_pack(const step_way *way);
void sli_step_tiled_begin(const step_way *way);
void sli_step_tiled_forward(const step_way *way, const step_forward_args *args, int number, bool dependent);
/* Wide steps: R, or R^T, as they read it; before the call's first step, v an operand [B][hs] or 0; the product of a step, v being what the cells, or that, left. */
void sli_step_wide_pack(const step_way *way, const sli_step_wide *wide, char *to, bool backward);
void sli_step_wide_begin(const step_way *way, const void *v);
step_wide_v sli_step_wide_place(const step_way *way);
step_sums sli_step_wide_multiply(const step_way *way, float *to, int64_t row, const char *weights, bool dependent);
/* Of |v|, but of states that enter, where sli_persist_scales. to = [PERSIST_LARGEST], the largest of which is that of `count` floats. */
float sli_step_bound(const step_way *way);
void sli_persist_measure(const step_way *way, const float *from, int64_t count, float *to);
/* Products over the way's steps c0 .. c1: u = x W^T + b; d W, d R, d W_p += (fresh ones =) from dz, dr; d x = dz W, += where
 * `add`. */
void sli_step_project_inputs(const step_way *way);
/* Gates, s_n and v of the way's steps c0 .. c1, which forward did not keep, from the states that it did. */
void sli_step_recompute(const step_way *way);
/* Whether the sums of the way's steps are multiplied from transposed copies, by shape alone; makes these copies. */
bool sli_step_transposes(const step_way *way);
void sli_step_transpose(const step_way *way);
/* d kernel, d recurrent +=, or = where fresh, their sums over the way's steps, from transposed copies where the way has them. */
void sli_step_add_kernel(const step_way *way);
void sli_step_add_recurrent(const step_way *way);
/* Both in one launch, where that is so. */
bool sli_step_pairs(const step_way *way);
void sli_step_add_pair(const step_way *way);
/* Both, as the way has them, and the copies before. */
void sli_step_add_sums(const step_way *way);
/* d W_p += or = dq^T m over so many rows: operands [rows][hs] and [rows][ms]. */
void sli_step_add_projection(const step_way *way, int64_t rows, const void *dq, const void *m);
void sli_step_give_inputs(const step_way *way, bool add);
/* R^T as wide steps of backward read it, if it has them. */
void sli_step_pack_backward(const step_way *way);
/* Of the recurrent bias what a GRU's cells read of n, float [H], or NULL. */
const float *sli_step_bias_n(const step_way *way);
/* Packed copies of the weights, biases; of R alone. */
void sli_step_pack(const step_way *way);
void sli_step_pack_recurrent(const step_way *way);
void sli_step_pack_biases(const step_way *way);
/* Flags of all steps and factors, where the problem has them. */
void sli_step_masks(const step_way *way);
/* The entering states into their slot; without any step also into the leaving tensors. `blocks`: no more of them, but one for each 1024 units, 0: as many as are best. */
void sli_step_begin(const step_way *way, int blocks);
/* Whether anybody wants the gradients of the way's entering states. */
static inline bool sli_step_gives_states(const step_way *way) {
    void *const *d_in = way->call->d_in;
    return d_in[SLI_RNN_STATE_IN(way->part, 0)] || (way->s.lstm && d_in[SLI_RNN_STATE_IN(way->part, 1)]);
}
/* d h0 and d c0 = or += */
void sli_step_finish(const step_way *way, const float *pw, step_sums dp, const float *dc);
/* to operand [rows_to][stride] = from float [rows][columns], zeros beyond; and on the way `zeros`, whole words. */
typedef struct sli_step_zeros {
    void *at;
    size_t bytes;
} sli_step_zeros;
void sli_step_rows(sli_queue *queue, cudaStream_t stream, sl_dtype math, void *to, int64_t stride, int64_t rows_to,
                   const float *from, int64_t rows, int64_t columns, sli_step_zeros zeros);
/* to operand [rows_to][stride] = weights [rows][columns] of the way, zeros beyond; as a parameter they may be narrow. */
void sli_step_weights(const step_way *way, void *to, int64_t stride, int64_t rows_to, const void *from, int64_t rows,
                      int64_t columns);
/* to[rows_to][stride] = from[rows][columns] of 16 bits, zeros beyond. */
void sli_step_narrow_rows(sli_queue *queue, cudaStream_t stream, void *to, int64_t stride, int64_t rows_to, const void *from,
                          int64_t rows, int64_t columns);
/* Of parameters k0 and, unless it is negative, k1: [columns] of d_param from element `first` on +=, or = where fresh, column sums of
 * from [rows][stride], floats, or `operands`, 16-bit ones from an even column of an even stride on. Either may be NULL. All in one launch, or two: of at most
 * STEP_COLUMN_SUMS, 4 H columns together. */
enum { STEP_COLUMN_SUMS = 3 };
typedef struct step_column_sum {
    int k0, k1;
    int64_t first;
    const void *from;
    int64_t stride, columns;
} step_column_sum;
void sli_step_columns(const step_way *way, const step_column_sum *sums, int count, int64_t rows, bool operands);
/* The same of the biases, from gradients of the input side [rows][stride] of all gates; `n`, [rows][n_stride], those of the recurrent side of a GRU's n with reset
 * after, whose others are the input side's. n_columns: the input side from its n on. */
static inline void step_bias_columns(const step_way *way, const void *from, const void *n_columns, int64_t stride, const void *n,
                                     int64_t n_stride, int64_t rows, bool operands) {
    const int64_t H = way->s.H;
    const bool apart = way->s.gru && !way->s.before;
    const step_column_sum of[STEP_COLUMN_SUMS] = {
        {SLI_RNN_BIAS, SLI_RNN_RECURRENT_BIAS, 0, from, stride, apart ? 2 * H : way->s.GH},
        {SLI_RNN_BIAS, -1, 2 * H, n_columns, stride, H},
        {SLI_RNN_RECURRENT_BIAS, -1, 2 * H, n, n_stride, H}};
    sli_step_columns(way, of, apart ? STEP_COLUMN_SUMS : 1, rows, operands);
}

static inline unsigned step_blocks_of(int64_t count, int64_t each) {
    return (unsigned)((count + each - 1) / each);
}

/* Whether all 16-byte accesses of a plain cell are aligned. */
static inline bool sli_step_aligned(const void *pointer) {
    return ((uintptr_t)pointer & 15u) == 0;
}

/* The same of four numbers of y or dy. */
static inline bool sli_step_aligned_io(const step_way *way, const void *pointer) {
    return ((uintptr_t)pointer & (way->s.narrow_io ? 7u : 15u)) == 0;
}

#ifdef __CUDACC__
/* Launches a kernel of one argument, with so many bytes of dynamic shared memory; programmatically dependent on the launch before it
 * where the GPU can. */
template <typename ARGS>
void sli_step_launch(const step_way *way, void (*kernel)(ARGS), const sli_step_grid *grid, const ARGS *args,
                     bool dependent, const char *what, size_t shared = 0) {
    if (sli_cuda_failed(way->queue)) return;
    if (shared > 0 && !SLI_CU(way->queue, cudaFuncSetAttribute(
                                              (const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared)))
        return;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(grid->gx, grid->gy, 1);
    config.blockDim = dim3(grid->bx, grid->by, 1);
    config.dynamicSmemBytes = shared;
    config.stream = way->stream;
    config.attrs = &attribute;
    config.numAttrs = dependent && way->overlap ? 1 : 0;
    sli_cuda_try(way->queue, sli_cuda_injected(cudaLaunchKernelEx(&config, kernel, *args)), what);
}
#endif

#endif
