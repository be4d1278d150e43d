/* Loops that are compiled once per instruction set (isa/ *.c with -DSLI_ISA_SUFFIX=base, avx2, avx512 or neon): one table of
 * functions per instruction set. A sum has one order per instruction set: element (m, n) of a product is summed over k in
 * order, whatever the blocking of rows, so how rows are cut into slices changes no bit. */
#ifndef SLI_ISA_H
#define SLI_ISA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "backend/cpu/isa/fused.h"
#include "backend/cpu/isa/panel.h"
#include "backend/cpu/isa/product.h"
#include "core/rng.h"

/* c[m][n] (+)= sum over k of a(m, k) * b(k, n);  a(m, k) = a[m * am + k * ak], b(k, n) = b[k * bk + n * bn]. */
typedef struct sli_gemm {
    int m, n, k;
    const float *a;
    const uint16_t *a_half; /* instead of a: bf16, see sli_operand */
    ptrdiff_t am, ak;       /* one of them is 1 */
    const float *b;
    ptrdiff_t bk, bn;     /* one of them is 1 */
    const void *b_packed; /* b as sli_cpu_pack_b left it; NULL: it is packed with the product */
    float *c;
    ptrdiff_t ldc;
    bool add; /* false: = ; true: += */
} sli_gemm;

/* An optimizer's numbers, computed in double and rounded once. */
typedef enum sli_update_kind { SLI_UPDATE_SGD, SLI_UPDATE_ADAM, SLI_UPDATE_RMSPROP } sli_update_kind;
typedef struct sli_isa_update {
    sli_update_kind kind;
    bool nesterov, keep; /* keep: g is left as it is */
    float factor;        /* of the norm clip */
    float rate, weight_decay /* L2 */, decay /* AdamW: 1 - lr * wd, else 1 */;
    float momentum, one_beta1, beta2 /* RMSprop: rho */, one_beta2, root2, epsilon;
} sli_isa_update;

typedef struct sli_isa_ops {
    const char *name;
    /* --- products --- */
    void (*product_few)(const sli_gemm *gemm); /* for few rows; gemm->ak is 1: isa/product_few.c */
    /* products of one step: isa/panel.h; f32x3: as f32 but on AMX */
    const sli_panel_ops *panel_f32, *panel_f32x3, *panel_bf16, *panel_i8;
    const sli_panel_ops *panel_bf16_floats; /* panel_bf16's numbers, faster of many rows; NULL: it is not */
    const sli_product_ops *product_f32, *product_f32x3, *product_bf16; /* large products: isa/product.h */
    const sli_fused_ops *fused;                                        /* cells of one step: isa/fused.h */
    /* --- elements of one row: isa/elements.c --- */
    void (*act)(int act, size_t n, float *x);                       /* x = act(x) */
    void (*act_slope)(int act, size_t n, const float *y, float *d); /* d *= act'(.) from y = act(.) */
    void (*add)(size_t n, float *to, const float *from);            /* to += from */
    void (*add_half)(size_t n, float *to, const uint16_t *from);    /* the same, from bf16 */
    int (*one_hot)(int n, const float *x);                          /* where x[] is 1, if all others are 0; else -1 */
    /* --- loops over elements: isa/loops.c --- */
    /* *largest = max z; *sum = of exp(z - largest) */
    void (*softmax_sum)(size_t n, const float *z, float *largest, double *sum);
    /* dz = or += factor * exp(z - largest) */
    void (*softmax_gradient)(size_t n, const float *z, float largest, float factor, float *dz, bool add);
    /* y = or += x * (dropped ? 0 : scale); element numbers from `first` */
    void (*dropout)(const sli_rng *rng, uint64_t first, size_t n, uint32_t threshold, float scale, const float *x,
                    float *y, bool add);
    /* sum of squares; then clips to +-limit in place where limit > 0 */
    double (*squares)(size_t n, float *g, float limit);
    /* one optimizer step; zeroes g where it is not kept */
    void (*update)(const sli_isa_update *o, size_t n, float *p, float *g, float *slot0, float *slot1);
} sli_isa_ops;

/* avx2 and avx512 on x86-64, neon on arm64 */
extern const sli_isa_ops sli_isa_ops_base, sli_isa_ops_avx2, sli_isa_ops_avx512, sli_isa_ops_neon;

/* Those of avx512 with products in bf16 and f32x3 on AMX, or in bf16 by AVX512_BF16. */
extern const sli_isa_ops sli_isa_ops_amx, sli_isa_ops_avx512bf16;
extern const sli_panel_ops sli_panel_bf16_amx, sli_panel_f32x3_amx;
extern const sli_product_ops sli_product_bf16_amx, sli_product_f32x3_amx, sli_product_bf16_dot;
extern const sli_panel_ops sli_isa_panel_bf16_avx512bf16;
/* Products of 8 bits on processors with VNNI: lanes of avx512 and of avx2. */
extern const sli_panel_ops sli_isa_panel_i8_avx512vnni, sli_isa_panel_i8_avxvnni;

/* Names of one instruction set's copy: ISA(add) is sli_isa_add_avx2. */
#ifdef SLI_ISA_SUFFIX
#define SLI_ISA_JOIN2(name, suffix) sli_isa_##name##_##suffix
#define SLI_ISA_JOIN(name, suffix) SLI_ISA_JOIN2(name, suffix)
#define ISA(name) SLI_ISA_JOIN(name, SLI_ISA_SUFFIX)
#define SLI_ISA_STRING2(text) #text
#define SLI_ISA_STRING(text) SLI_ISA_STRING2(text)

void ISA(product_few)(const sli_gemm *gemm);
extern const sli_fused_ops ISA(fused);
extern const sli_panel_ops ISA(panel_f32), ISA(panel_bf16), ISA(panel_bf16_floats), ISA(panel_i8);
extern const sli_product_ops ISA(product_f32), ISA(product_bf16);
void ISA(act)(int act, size_t n, float *x);
void ISA(act_slope)(int act, size_t n, const float *y, float *d);
void ISA(add)(size_t n, float *to, const float *from);
void ISA(add_half)(size_t n, float *to, const uint16_t *from);
int ISA(one_hot)(int n, const float *x);
void ISA(softmax_sum)(size_t n, const float *z, float *largest, double *sum);
void ISA(softmax_gradient)(size_t n, const float *z, float largest, float factor, float *dz, bool add);
void ISA(dropout)(const sli_rng *rng, uint64_t first, size_t n, uint32_t threshold, float scale, const float *x,
                  float *y, bool add);
double ISA(squares)(size_t n, float *g, float limit);
void ISA(update)(const sli_isa_update *o, size_t n, float *p, float *g, float *slot0, float *slot1);
#endif

#endif
