/* Losses on the GPU: what lies in scratch, how rows are shared out, and the running maximum and sum of a softmax. Plain C,
 * compiled into both sides and, as host code, by the tests. */
#ifndef SLI_CUDA_LOSSES_LAYOUT_H
#define SLI_CUDA_LOSSES_LAYOUT_H

#include <math.h>
#include "backend/cuda/cuda.h"

/* Scratch forward: [t][b] of these, what each row adds to the metrics. */
typedef struct sli_row_loss {
    double loss;
    int32_t counts, correct;
} sli_row_loss;

/* Saved by xent: float [t][b][2], the largest logit and 1 / sum of exp(z - largest). */
enum { SLI_XENT_SAVED = 2 };

/* Threads of a block; lanes of them share a row. */
typedef struct sli_loss_shape {
    int threads, lanes;
} sli_loss_shape;

static inline sli_loss_shape sli_loss_shape_of(int width) {
    sli_loss_shape shape = {256, 1};
    if (width > 1024) { /* a block a row */
        shape.threads = shape.lanes = width > 16384 ? 1024 : 256;
        return shape;
    }
    while (shape.lanes < 32 && shape.lanes * 8 < width) shape.lanes *= 2;
    return shape;
}

/* Rows are added to the metrics piece by piece, pieces being counted from the start of each chunk of time: neither the
 * number of threads nor segments change a bit. */
enum { SLI_LOSS_PIECE = 128 };
typedef struct sli_loss_pieces {
    size_t rows, chunk_rows, in_chunk, pieces; /* in_chunk: pieces of a full chunk */
} sli_loss_pieces;

static inline sli_loss_pieces sli_loss_pieces_of(const sli_problem *p, int chunk) {
    sli_loss_pieces pieces;
    pieces.rows = sli_cuda_rows_of(p);
    pieces.chunk_rows = (size_t)(p->steps > 0 && chunk > 0 ? chunk : 1) * (size_t)p->batch;
    pieces.in_chunk = (pieces.chunk_rows + SLI_LOSS_PIECE - 1) / SLI_LOSS_PIECE;
    pieces.pieces = pieces.rows / pieces.chunk_rows * pieces.in_chunk +
                    (pieces.rows % pieces.chunk_rows + SLI_LOSS_PIECE - 1) / SLI_LOSS_PIECE;
    return pieces;
}
/* Rows [*first, *end) of a piece. */
SLI_HOST_DEVICE void sli_loss_piece(const sli_loss_pieces *pieces, size_t piece, size_t *first, size_t *end) {
    const size_t start = piece / pieces->in_chunk * pieces->chunk_rows;
    size_t last = start + pieces->chunk_rows;
    *first = start + piece % pieces->in_chunk * SLI_LOSS_PIECE;
    if (last > *first + SLI_LOSS_PIECE) last = *first + SLI_LOSS_PIECE;
    *end = last < pieces->rows ? last : pieces->rows;
}

/* Of the logits seen so far: the largest, the sum of exp(z - largest), and whether the label is still the first of the
 * largest. Starts as {-inf, 0, 0}. Logits of -inf are probabilities of 0, unless all are. */
typedef struct sli_softmax {
    float largest, sum;
    int beaten;
} sli_softmax;

/* Nothing branches around the exponential: warps would wait for one after the other. */
SLI_HOST_DEVICE float sli_softmax_term(float z, float largest) {
    return expf(z == largest ? 0.0f : z - largest);
}
SLI_HOST_DEVICE void sli_softmax_raise(sli_softmax *s, float largest) {
    if (!(largest > s->largest)) return;
    s->sum *= expf(s->largest - largest);
    s->largest = largest;
}
/* z is element j and not above the largest; the label at `label` has logit `labelled`. */
SLI_HOST_DEVICE void sli_softmax_count(sli_softmax *s, float z, int j, int label, float labelled) {
    s->sum += sli_softmax_term(z, s->largest);
    s->beaten |= (z > labelled) | ((z == labelled) & (j < label));
}
/* a = a and b together. */
SLI_HOST_DEVICE void sli_softmax_join(sli_softmax *a, const sli_softmax *b) {
    const float largest = a->largest > b->largest ? a->largest : b->largest;
    a->sum = a->sum * sli_softmax_term(a->largest, largest) + b->sum * sli_softmax_term(b->largest, largest);
    a->largest = largest;
    a->beaten |= b->beaten;
}

#endif
