/* cuda:dense: where things lie in its booked memory. Compiled into libsluice, which books, and into the plug-in, which uses. */
#ifndef SLI_CUDA_DENSE_LAYOUT_H
#define SLI_CUDA_DENSE_LAYOUT_H

#include "core/kernel.h"

enum { SLI_DENSE_PLACE = 256 }; /* places begin at multiples of this many bytes */

/* Bytes from the start of the scratch; `bytes` is all of it. What a problem does not need takes no room. */
typedef struct sli_dense_forward_places {
    size_t x;                  /* operand copy [rows][I'] of one chunk */
    size_t split, split_bytes; /* of products in f32x3 */
    size_t workspace, workspace_bytes, bytes;
} sli_dense_forward_places;
typedef struct sli_dense_backward_places {
    size_t dz;      /* float [rows][H] of one chunk, where there is an activation */
    size_t dz_copy; /* operand copy [rows][H'] */
    size_t x;       /* operand copy [rows][I'] */
    size_t dz_t;    /* float [H][rows']: transposed dz, rows' = sli_cuda_transposed_row(rows), where that gains */
    size_t x_t;     /* float [I'][rows'] */
    size_t columns; /* scratch of the bias's gradient */
    size_t pad;     /* float [rows][I'] or [H][I']: a product on its way into d x or d W */
    size_t pad_bytes;
    size_t split, split_bytes;
    size_t workspace, workspace_bytes, bytes;
} sli_dense_backward_places;

/* y = x W^T + b without more. */
static inline bool sli_dense_is_linear(const sli_problem *p) {
    return p->act == SL_ACT_DEFAULT || p->act == SL_ACT_LINEAR;
}
static inline bool sli_dense_is_narrow(const sli_problem *p) {
    return p->dtype == SL_BF16 || p->dtype == SL_F16;
}
/* I', H': tensor cores' fast kernels want operands whose rows are multiples of 16 bytes. Elements from one row of an operand
 * of `columns` to the next, and whether it is a copy: 16-bit, or padded. */
static inline int64_t sli_dense_row(const sli_problem *p, int64_t columns) {
    const int64_t each = sli_dense_is_narrow(p) ? 8 : p->dtype == SL_TF32 || p->dtype == SL_F32X3 ? 4 : 1;
    return (columns + each - 1) / each * each;
}
static inline bool sli_dense_copies(const sli_problem *p, int64_t columns) {
    return sli_dense_is_narrow(p) || sli_dense_row(p, columns) != columns;
}
/* `chunk` is that of the plan: a product has at most chunk * b rows, whatever the length of a segment. */
int64_t sli_dense_chunk_rows(const sli_problem *problem, int chunk);
void sli_dense_forward_layout(const sli_problem *problem, const sli_caps *caps, int chunk,
                              sli_dense_forward_places *places);
void sli_dense_backward_layout(const sli_problem *problem, const sli_caps *caps, int chunk,
                               sli_dense_backward_places *places);
/* Whether d W of a chunk of so many rows is multiplied from transposed copies of dz and x. */
bool sli_dense_transposes(const sli_problem *problem, const sli_caps *caps, int64_t rows);
size_t sli_dense_saved(const sli_problem *problem);  /* float y [t][b][H], where act' is taken from it */
size_t sli_dense_packed(const sli_problem *problem); /* operand copy of W [H][I'] */

#endif
