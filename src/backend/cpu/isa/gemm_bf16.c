/* Large products in bf16 where registers hold floats: the packed copies are floats that were rounded to bf16.
 *     a [lines][k]      b [lines / panel][k][panel], as of gemm.c */
#include "backend/cpu/isa/bf16.h"
#include "backend/cpu/isa/isa.h"
#include "backend/cpu/isa/product_bf16.h"
#include "backend/cpu/isa/vector.h"

enum { PANEL = 2 * VL };

static void round_all(float *x, size_t count) {
    for (size_t i = 0; i < count; i++) x[i] = bf16_round(x[i]);
}

static void pack_a(void *packed, const sli_bf16_operand *a, int first, int last) {
    enum { SQUARE = 16 };
    float *to = packed;
    const size_t k = (size_t)a->k;
    if (a->depth == 1) {
        for (int l = first; l < last; l++)
            for (size_t i = 0; i < k; i++) to[(size_t)l * k + i] = bf16_round(a->x[l * a->line + (ptrdiff_t)i]);
        return;
    }
    for (int k0 = 0; k0 < a->k; k0 += SQUARE)
        for (int l = first; l < last; l++)
            for (int i = k0; i < a->k && i < k0 + SQUARE; i++)
                to[(size_t)l * k + (size_t)i] = bf16_round(a->x[l * a->line + i * a->depth]);
}

static void pack_b(void *packed, const sli_bf16_operand *b, int first, int last) {
    const size_t count = (size_t)((last - first + PANEL - 1) / PANEL * PANEL) * (size_t)b->k;
    float *to = (float *)packed + (size_t)first * (size_t)b->k;
    ISA(pack)(to, b->k, last - first, b->x + first * b->line, b->depth, b->line);
    round_all(to, count);
}

static void multiply(const sli_bf16_block *p) {
    const size_t k = (size_t)p->k;
    const sli_gemm g = {.m = p->m1 - p->m0,
                        .n = p->n1 - p->n0,
                        .k = p->k,
                        .a = (const float *)p->a + (size_t)p->m0 * k,
                        .am = p->k,
                        .ak = 1,
                        .b = (const float *)p->b + (size_t)p->n0 * k,
                        .c = p->c + p->m0 * p->ldc + p->n0,
                        .ldc = p->ldc,
                        .add = p->add};
    ISA(gemm_packed)(&g);
}

const sli_bf16_ops ISA(bf16) = {.pack_a = pack_a, .pack_b = pack_b, .multiply = multiply};
