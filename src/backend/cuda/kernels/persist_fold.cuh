/* A projection that is folded into the recurrent weights (persist_fold_host.cu): what its kernels are given, and their launches. */
#ifndef SLI_CUDA_PERSIST_FOLD_CUH
#define SLI_CUDA_PERSIST_FOLD_CUH

#include "backend/cuda/kernels/step.cuh"

/* What the kernels share. Numbers of steps are in order of processing. */
typedef struct fold_common {
    const uint8_t *flags; /* [T][B]; NULL: all valid and shown */
    const int32_t *first; /* [B]; NULL: 0 */
    int T, B;
    bool reverse;
    int64_t columns; /* O, or GH */
    int64_t hs;      /* row stride of operands of O */
    sl_dtype math;
} fold_common;

typedef struct fold_first_args {
    fold_common k;
    int32_t *to; /* = [B] */
} fold_first_args;

typedef struct fold_enter_args {
    fold_common k;
    float *u;              /* += [c1 - c0][B][us] */
    const float *entering; /* [B][us]: R h0 */
    int c0, c1;
    int64_t us;
} fold_enter_args;

typedef struct fold_give_args {
    fold_common k;
    const float *q; /* [rows][q_row] W_p m, may be y */
    float *y;       /* = [rows][y_row] */
    const float *h0;
    void *operand_h; /* = operand [rows][hs] h */
    float *h_last;   /* = [B][O] */
    int64_t q_row, y_row;
    int t, rows; /* first step; rows of the steps from there on */
} fold_give_args;

typedef struct fold_shown_args {
    fold_common k;
    void *to; /* = operand [rows][hs]: dy where it is shown, 0 elsewhere */
    const float *dy;
    int64_t dy_row;
    int t, rows;
} fold_shown_args;

/* The gradient e of the states in slots `slot` and so on: what the step that enters from it hands back, and the dy of the step that leaves
 * it. Of h0 what comes by a row's first step, and what is left: dy that shows it, and the leaving state's gradient where it is h0. */
typedef struct fold_gradient_args {
    fold_common k;
    void *e;              /* = operand [rows][hs] */
    const float *back;    /* [steps of the chunk][B][hs]: R^T dz */
    const float *dy;      /* [T][B][dy_row] */
    const float *dh_last; /* [B][O] */
    float *dh;            /* = [B][O] of h0, of rows whose first step is in the chunk, 0 where there is none */
    float *left;          /* = [B][hs], with the slot after the last step */
    int64_t dy_row;
    int slot, rows, c0;
} fold_gradient_args;

void sli_fold_first(const step_way *way, const fold_first_args *args);
void sli_fold_enter(const step_way *way, const fold_enter_args *args);
void sli_fold_give(const step_way *way, const fold_give_args *args);
void sli_fold_shown(const step_way *way, const fold_shown_args *args);
void sli_fold_gradient(const step_way *way, const fold_gradient_args *args);

#endif
