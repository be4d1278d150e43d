/* Large products of f32, f32x3 and bf16 problems, with sums in float: pieces of both operands are copied into the order the kernel
 * reads, rounded where the problem is bf16, once for all threads, and blocks of the result are computed from the copies. How
 * work is cut: backend/cpu/products.c. */
#ifndef SLI_PRODUCT_H
#define SLI_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SLI_PRODUCT_LINES = 96 }; /* lines are packed, and results cut, in multiples of this */

/* x[line][depth]: rows of a, or columns of b, along k. Of bf16 along rows, k up to a multiple of 32 and rows up to one of 16 are read:
 * numbers behind k meet zeros, and rows behind the last are of no use. */
typedef struct sli_operand {
    const float *x;
    const uint16_t *half;  /* instead of x, of a, where panels take bf16 rows (panel.h, halves): bf16 */
    ptrdiff_t line, depth; /* strides in numbers; one of them is 1 */
    int lines, k;
    float *sums
        [2]; /* of a that is packed, line 1: [lines] += its sums over k, of floats before they are rounded; NULL: not wanted */
} sli_operand;

typedef struct sli_product_block {
    const void *a, *b;
    bool a_along;          /* the depth of a was 1 */
    ptrdiff_t a_line;      /* bf16 that runs along rows is not packed: bytes from row to row; 0: packed */
    int k, m0, m1, n0, n1; /* rows and columns to compute; m0 is a multiple of SLI_PRODUCT_LINES, n0 of task_columns */
    float *c;              /* element (0, 0) */
    ptrdiff_t ldc;
    bool add; /* false: = ; true: += */
} sli_product_block;

typedef struct sli_product_ops {
    int task_rows;    /* of a block that is best computed at once, against many columns; 0: squares are best */
    int task_columns; /* least of a block: of panels that are multiplied at once */
    /* At most 4 bytes, of f32x3 6, for each of the lines and of k, both rounded up to 32. */
    void (*pack_a)(void *packed, const sli_operand *a, int first, int last);
    void (*pack_b)(void *packed, const sli_operand *b, int first, int last);
    void (*multiply)(const sli_product_block *block);
} sli_product_ops;

/* Of bf16 by AVX512_BF16: operands as AMX's are packed (gemm_amx.c). */
void sli_product_dot_multiply(const sli_product_block *block);

#endif
