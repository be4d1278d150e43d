/* NVIDIA GPUs, libsluice's side: the device, its rows, and geometry: plain C without nvcc, so that all of it is tested where
 * there is no GPU. */
#ifndef SLI_CUDA_H
#define SLI_CUDA_H

#include "backend/cuda/plugin.h"

extern const sli_device_ops sli_cuda_device;
/* Rows in order of preference, NULL-terminated; the cuDNN rows are in backend/cudnn/cudnn.h. */
extern const sli_kernel *const sli_cuda_kernels[];
/* By file: recurrent.c, persistent.c, stack.c, wave.c, products.c, elements.c, losses.c, updates.c. */
extern const sli_kernel sli_cuda_lstm, sli_cuda_gru, sli_cuda_rnn;
extern const sli_kernel sli_cuda_lstm_cluster, sli_cuda_gru_cluster, sli_cuda_rnn_cluster;
extern const sli_kernel sli_cuda_lstm_grid, sli_cuda_gru_grid, sli_cuda_rnn_grid;
extern const sli_kernel sli_cuda_lstm_stack, sli_cuda_gru_stack, sli_cuda_rnn_stack;
extern const sli_kernel sli_cuda_lstm_wave, sli_cuda_gru_wave, sli_cuda_rnn_wave;
extern const sli_kernel sli_cuda_dense;
extern const sli_kernel sli_cuda_embed, sli_cuda_onehot, sli_cuda_dropout, sli_cuda_merge, sli_cuda_flip;
extern const sli_kernel sli_cuda_xent, sli_cuda_bce, sli_cuda_mse;
extern const sli_kernel sli_cuda_norm, sli_cuda_optim;

/* f32, tf32, bf16, f16, f32x3; refuses the others with the reason. */
bool sli_cuda_dtype(const sli_problem *problem, sli_why *why);
static inline size_t sli_cuda_rows_of(const sli_problem *p) {
    return (size_t)(p->steps > 0 ? p->steps : 1) * (size_t)p->batch;
}

/* workspace.c, compiled into both sides: bytes of scratch that one stream's products of at most these sizes are given. */
size_t sli_cuda_workspace(const sli_caps *caps, int64_t m, int64_t n, int64_t k);
/* D[m][n] = A B with B stored [k][n], or a padded [n][k]: the columns that the product is given instead of n, so that it is
 * multiplied by the fast kernels and then moved into D; n where that does not pay or need not be. By shape, type and GPU alone. It pays for a
 * larger m or k too, so that what is booked for a plan is enough for its smaller calls. */
int64_t sli_cuda_pad_columns(const sli_caps *caps, sl_dtype math, int64_t m, int64_t n, int64_t k);
/* Rows that a pad has room for: of A stored [k][m] in 16 bits cuBLASLt's fast kernels want whole eights of m as well. */
static inline int64_t sli_cuda_pad_rows(int64_t m) {
    return (m + 7) / 8 * 8;
}
/* A step's D[m][n] = A B, B stored [k][n], whose reader can add sums up: the pieces that k is cut in, 1: as a whole. By shape, type and
 * GPU alone. */
enum { SLI_CUDA_MOST_PIECES = 4 };
int sli_cuda_pieces(const sli_caps *caps, sl_dtype math, int64_t m, int64_t n, int64_t k);
/* Bytes of sli_cuda_product's pad, 0 where there is none. */
size_t sli_cuda_pad_bytes(const sli_caps *caps, sl_dtype math, int64_t m, int64_t n, int64_t k);
/* Sums over k rows, D_i[m][n_i] += A^T B_i, A stored [k][m] and B_i [k][n_i]: us that are won where the products read transposed
 * copies instead, of `width` floats a row in all; not above 0: they do not. n_i 0: there is none. By shape, type and GPU alone;
 * what is won for some k is won for a larger one too. */
double sli_cuda_transpose_gain(const sli_caps *caps, sl_dtype math, int64_t m, const int64_t n[2], int64_t width,
                               int64_t k);
/* Floats of a row of such a copy: k, up to whole 32 bytes, which L2 reads at once: of rows that begin in the middle of those a tile's are five, not four. */
static inline int64_t sli_cuda_transposed_row(int64_t k) {
    return (k + 7) / 8 * 8;
}
/* f32x3 (runtime/split.h): bytes of sli_cuda_product's split, 0 where the product is multiplied exactly in f32 because that is
 * faster. By shape and GPU alone; as with pads, it pays for a larger m, n or k too, and takes no less. */
size_t sli_cuda_split_bytes(const sli_caps *caps, sl_dtype math, int64_t m, int64_t n, int64_t k);
/* Values along k that are multiplied at once, a multiple of 8. */
int64_t sli_cuda_split_piece(int64_t k);
/* sli_cuda_add_columns: slabs of rows that are summed apart, by shape alone; bytes of its scratch. */
int64_t sli_cuda_column_slabs(int64_t rows);
size_t sli_cuda_column_scratch(int64_t rows, int64_t n);

#endif
