/* Large products whose operands are rounded to bf16, with sums in float: both operands are rounded into packed copies, once for
 * all threads, and blocks of the result are computed from them. How work is cut: backend/cpu/products.c. */
#ifndef SLI_PRODUCT_BF16_H
#define SLI_PRODUCT_BF16_H

#include <stdbool.h>
#include <stddef.h>

enum { SLI_BF16_LINES = 32 }; /* lines are packed, and results cut, in multiples of this */

/* x[line][depth]: rows of a, or columns of b, along k. */
typedef struct sli_bf16_operand {
    const float *x;
    ptrdiff_t line, depth; /* strides in floats; one of them is 1 */
    int lines, k;
} sli_bf16_operand;

typedef struct sli_bf16_block {
    const void *a, *b;
    int k, m0, m1, n0, n1; /* rows and columns to compute; m0 and n0 are multiples of SLI_BF16_LINES */
    float *c;              /* element (0, 0) */
    ptrdiff_t ldc;
    bool add; /* false: = ; true: += */
} sli_bf16_block;

typedef struct sli_bf16_ops {
    /* At most 4 bytes for each of the lines and of k, rounded up to 32. */
    void (*pack_a)(void *packed, const sli_bf16_operand *a, int first, int last);
    void (*pack_b)(void *packed, const sli_bf16_operand *b, int first, int last);
    void (*multiply)(const sli_bf16_block *block);
} sli_bf16_ops;

#endif
