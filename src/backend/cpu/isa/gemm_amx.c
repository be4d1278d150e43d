/* Large products on AMX, in bf16 and of floats as sums of three bf16 (amx.h). Operands lie in tiles, [lines / 16][k / 32][parts] of
 * 1 KB (but rows of a in bf16, which are read where they are), so that a load reads 16
 * lines in a row; 16 x 32 or 32 x 16 sums stay in tiles while k runs. Own tiles, not a library: the packing is the larger part
 * of it, and that has to transpose for the gradients of weights, round, and be shared by the threads of a run, which
 * no library does for us; oneDNN, the one with kernels for AMX, reaches about a third of its peak on shapes of
 * recurrent layers, and has no products of floats on it. */
#include "backend/cpu/isa/product.h"

#if defined(__AVX512F__) || defined(SLI_AMX_EMULATED)
#include "backend/cpu/isa/amx.h"

/* Tiles of 16 lines from l on, from k on. */
BF16_FN AMX_INLINE void pack_tile(void *packed, const sli_operand *x, int l, int k, int last, const bool pairs_first,
                                  const int parts) {
    const size_t line = (size_t)(amx_blocks(x->k) * parts) * AMX_TILE; /* bytes of 16 lines */
    char *tile = (char *)packed + (size_t)(l / 16) * line + (size_t)(k / AMX_K * parts) * AMX_TILE;
    amx_pack_tile(tile, x->x + l * x->line + k * x->depth, x->line, x->depth, last - l, x->k - k, pairs_first, parts);
}

/* Neighbours in memory one after the other. */
BF16_FN AMX_INLINE void pack(void *packed, const sli_operand *x, int first, int last, const bool pairs_first,
                             const int parts) {
    if (x->depth == 1) {
        for (int l = first; l < last; l += 16)
            for (int k = 0; k < x->k; k += AMX_K) pack_tile(packed, x, l, k, last, pairs_first, parts);
        return;
    }
    for (int k = 0; k < x->k; k += AMX_K)
        for (int l = first; l < last; l += 16) pack_tile(packed, x, l, k, last, pairs_first, parts);
}

static void add_sums(const sli_operand *a, int first, int last, const float *sums) {
    for (int i = 0; i < 2; i++)
        for (int l = first; l < last && a->sums[i]; l++) a->sums[i][l] += sums[l - first];
}

static void pack_halves(void *packed, const sli_operand *a, int first, int last) {
    const size_t line = (size_t)amx_blocks(a->k) * AMX_TILE;
    float sums[SLI_PRODUCT_LINES] = {0};
    for (int k = 0; k < a->k; k += AMX_K)
        for (int l = first; l < last; l += 16) {
            char *tile = (char *)packed + (size_t)(l / 16) * line + (size_t)(k / AMX_K) * AMX_TILE;
            amx_turn_tile((uint32_t *)(void *)tile, a->half + l + k * a->depth, a->depth, last - l, a->k - k,
                          sums + (l - first));
        }
    add_sums(a, first, last, sums);
}

/* A block's lines of all k at a time are more than stay near: of 32 k, packed, then summed. */
BF16_FN AMX_INLINE void pack_floats(void *packed, const sli_operand *a, int first, int last, const int parts) {
    float sums[SLI_PRODUCT_LINES] = {0};
    if (a->depth == 1 || (!a->sums[0] && !a->sums[1])) {
        pack(packed, a, first, last, false, parts);
        return;
    }
    for (int k = 0; k < a->k; k += AMX_K) {
        for (int l = first; l < last; l += 16) pack_tile(packed, a, l, k, last, false, parts);
        for (int i = k; i < k + AMX_K && i < a->k; i++)
            for (int l = first; l < last; l++) sums[l - first] += a->x[l + i * a->depth];
    }
    add_sums(a, first, last, sums);
}

BF16_FN static void pack_a_half(void *packed, const sli_operand *a, int first, int last) {
    if (a->half)
        pack_halves(packed, a, first, last);
    else
        pack_floats(packed, a, first, last, AMX_HALF);
}

BF16_FN static void pack_a_float(void *packed, const sli_operand *a, int first, int last) {
    pack_floats(packed, a, first, last, AMX_FLOAT);
}

BF16_FN static void pack_b_half(void *packed, const sli_operand *b, int first, int last) {
    pack(packed, b, first, last, true, AMX_HALF);
}

BF16_FN static void pack_b_float(void *packed, const sli_operand *b, int first, int last) {
    pack(packed, b, first, last, true, AMX_FLOAT);
}

/* What tiles compute at once: bf16 16 rows and 32 columns, of which one load more is of rows that are far; floats, whose parts
 * stay for several products, 32 rows and 16 columns. */
enum { MOST = 32 };
AMX_INLINE int rows_at_once(int parts) {
    return parts == AMX_HALF ? AMX_ROWS : 2 * AMX_ROWS;
}
AMX_INLINE int columns_at_once(int parts) {
    return parts == AMX_HALF ? 2 * AMX_LANES : AMX_LANES;
}

/* Rows and columns that are not whole tiles: through a buffer. */
AMX_FN AMX_INLINE void multiply_edge(const sli_product_block *p, amx_block *block, float *c, int rows, int columns,
                                     const int parts) {
    _Alignas(64) float edge[MOST][MOST];
    if (p->add) {
        memset(edge, 0, sizeof edge);
        for (int r = 0; r < rows; r++) memcpy(edge[r], c + r * p->ldc, (size_t)columns * sizeof *c);
        AMX_WRITTEN();
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) block->c[i][j] = &edge[16 * i][16 * j];
    block->c_row = sizeof edge[0];
    amx_multiply(block, parts, rows > AMX_ROWS ? 2 : 1, columns > AMX_LANES ? 2 : 1);
    for (int r = 0; r < rows; r++) memcpy(c + r * p->ldc, edge[r], (size_t)columns * sizeof *c);
}

/* The columns stay in L1 while the rows pass. */
AMX_FN AMX_INLINE void multiply(const sli_product_block *p, const int parts) {
    const int blocks = amx_blocks(p->k), most_rows = rows_at_once(parts), most_columns = columns_at_once(parts);
    const size_t line = (size_t)(blocks * parts) * AMX_TILE; /* bytes of 16 lines */
    const ptrdiff_t a_row = p->a_line ? p->a_line : AMX_LINE, upper = p->a_line ? 16 * a_row : (ptrdiff_t)line;
    amx_configure(AMX_ROWS);
    AMX_WRITTEN();
    for (int n = p->n0; n < p->n1; n += most_columns)
        for (int m = p->m0; m < p->m1; m += most_rows) {
            const int rows = p->m1 - m < most_rows ? p->m1 - m : most_rows,
                      columns = p->n1 - n < most_columns ? p->n1 - n : most_columns;
            const char *a = (const char *)p->a + m / 16 * upper, *b = (const char *)p->b + (size_t)(n / 16) * line;
            float *c = p->c + m * p->ldc + n;
            amx_block block = {.k = blocks,
                               .a = {a, a + upper},
                               .a_row = a_row,
                               .a_step = p->a_line ? AMX_LINE : parts * AMX_TILE,
                               .a_part = AMX_TILE,
                               .b = {b, b + line},
                               .c = {{c, columns > AMX_LANES ? c + AMX_LANES : NULL},
                                     {rows > AMX_ROWS ? c + AMX_ROWS * p->ldc : NULL}},
                               .c_row = p->ldc * (ptrdiff_t)sizeof(float),
                               .add = p->add};
            if (rows == most_rows && columns == most_columns)
                amx_multiply(&block, parts, most_rows / AMX_ROWS, most_columns / AMX_LANES);
            else
                multiply_edge(p, &block, c, rows, columns, parts);
        }
    _tile_release();
}

AMX_FN static void multiply_halves(const sli_product_block *p) {
    multiply(p, AMX_HALF);
}

AMX_FN static void multiply_floats(const sli_product_block *p) {
    multiply(p, AMX_FLOAT);
}

const sli_product_ops sli_product_bf16_amx = {
    .task_columns = SLI_PRODUCT_LINES, .pack_a = pack_a_half, .pack_b = pack_b_half, .multiply = multiply_halves};
const sli_product_ops sli_product_f32x3_amx = {
    .task_columns = SLI_PRODUCT_LINES, .pack_a = pack_a_float, .pack_b = pack_b_float, .multiply = multiply_floats};
#ifndef SLI_AMX_EMULATED
/* The same operands, by vectors: product_dot.c, which is compiled once, with AVX512_BF16. */
const sli_product_ops sli_product_bf16_dot = {.task_rows = SLI_PRODUCT_LINES,
                                              .task_columns = SLI_PRODUCT_LINES / 2,
                                              .pack_a = pack_a_half,
                                              .pack_b = pack_b_half,
                                              .multiply = sli_product_dot_multiply};
#endif
#endif
