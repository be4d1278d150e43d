/* Products of many rows with rounded weights packed into panels (isa/panel.h): y[rows][n] = act(x[rows][k] w^T + bias), the operands
 * converted row by row. */
#ifndef SLI_PANEL_GEMM_H
#define SLI_PANEL_GEMM_H

#include "backend/cpu/gemm.h"

typedef struct sli_panel_gemm {
    const sli_panel_ops *ops;
    int rows, n, k;
    const float *x;    /* [rows][k] */
    const void *w;     /* sli_panel_gemm_pack */
    const float *bias; /* [n] or NULL */
    int act;           /* sl_activation; 0 = linear */
    float *y;          /* [rows][n] = */
    void *operands;    /* sli_panel_gemm_operands bytes of scratch */
} sli_panel_gemm;

size_t sli_panel_gemm_packed(const sli_panel_ops *ops, int n, int k);
size_t sli_panel_gemm_operands(const sli_panel_ops *ops, int rows, int k);
/* packed = w[n][k] */
void sli_panel_gemm_pack(sli_threads *threads, const sli_panel_ops *ops, int n, int k, const float *w, void *packed);
/* On the call's threads, cut by shape. */
void sli_panel_gemm_run(const sli_call *call, const sli_panel_gemm *gemm);

#endif
