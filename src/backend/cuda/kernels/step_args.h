/* What a launch of cuda:step's cells is given. Plain C, read by the host and by NVRTC. Rows are of B; strides in elements; a NULL pointer is not
 * read or written. */
#ifndef SLI_CUDA_STEP_ARGS_H
#define SLI_CUDA_STEP_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/cuda/kernels/persist_args.h"

enum { SLI_STEP_VALID = 1, SLI_STEP_SHOWN = 2 }; /* of flags: not masked; the output is h, not 0 */
enum { STEP_BF16 = 4, STEP_F16 = 5 };            /* numbers of sl_dtype whose operands have 16 bits */
/* Wide steps (kernels/step_wide.cuh): rows of M of a block; bytes of k in a stage, in pieces of 16; the most pieces that k is cut in; threads of a block. */
enum { SLI_STEP_WIDE_TALL = 128, SLI_STEP_WIDE_BYTES = 128, SLI_STEP_WIDE_PIECES = 8, SLI_STEP_WIDE_THREADS = 384 };
/* Bytes of a block's weights of a stage, in 16 bits or 20; stages at once of v, and of weights; shared memory, with two barriers a slot. */
#define SLI_STEP_WIDE_WEIGHTS(narrow) (SLI_STEP_WIDE_TALL * SLI_STEP_WIDE_BYTES / 16 * ((narrow) ? 16 : 10))
/* Of v stages of 8 KB and less come and go: with four slots LSTM of 4096 units took 2% longer in 16 bits with 32 and 64 rows (own_sums_h200_2026-11-27.txt). */
#define SLI_STEP_WIDE_V_SLOTS(rows, narrow) ((narrow) && (rows) <= 64 ? 8 : 4)
/* `pair`: half a block's sums, which come from another. */
#define SLI_STEP_WIDE_HALF (SLI_STEP_WIDE_TALL / 2)
#define SLI_STEP_WIDE_COMING(rows, pair) ((pair) ? (rows)*SLI_STEP_WIDE_HALF * 4 : 0)
#define SLI_STEP_WIDE_SLOTS(rows, narrow, pair)                                             \
    ((227 * 1024 - 512 - SLI_STEP_WIDE_V_SLOTS(rows, narrow) * (rows)*SLI_STEP_WIDE_BYTES - \
      SLI_STEP_WIDE_COMING(rows, pair)) /                                                   \
     SLI_STEP_WIDE_WEIGHTS(narrow))
#define SLI_STEP_WIDE_SHARED(rows, narrow, pair)                                      \
    (SLI_STEP_WIDE_SLOTS(rows, narrow, pair) * (SLI_STEP_WIDE_WEIGHTS(narrow) + 16) + \
     SLI_STEP_WIDE_V_SLOTS(rows, narrow) * ((rows)*SLI_STEP_WIDE_BYTES + 16) + SLI_STEP_WIDE_COMING(rows, pair) + 16)
/* Runs (kernels/step_run.cuh): steps of a launch, whose arguments take 32 KB at most; words from counter to counter, and bytes of all, of so many blocks of M. */
enum { SLI_STEP_RUN_STEPS = 64, SLI_STEP_RUN_APART = 32 };
#define SLI_STEP_RUN_COUNTS(blocks) ((size_t)((blocks) + 1) * SLI_STEP_RUN_APART * 4)

/* Weight of the old value under zoneout: 0 or 1 drawn, or its expectation. */
typedef struct step_zone {
    float expected;
    uint32_t threshold, stream;
    bool draw;
} step_zone;

/* What the cells of one step read and write. */
typedef struct step_common {
    int B, H, O;
    int options, act, gate_act; /* of src/cell */
    int math;                   /* sl_dtype's number */
    bool narrow_io;             /* y and dy are of math, 16 bits, else floats */
    int64_t us, hs, ms, zs;     /* row strides, see sli_step_shape */
    const uint8_t *flags;       /* [B] of this step; NULL: all valid and shown */
    const float *factor;        /* [B][O] d */
    const float *peep;          /* [3][H] */
    float forget_bias, clip;
    step_zone zone_h, zone_c;
    const persist_scalars *scalars;
    uint64_t first_row; /* absolute step * B: element row of the masks */
} step_common;

/* [B][hs] or [B][us] as `pieces` sums along k, each `apart` elements from the one before, to be added in this order; data NULL: zeros. */
typedef struct step_sums {
    const float *data;
    int64_t apart;
    int pieces;
} step_sums;

/* v as wide steps read it, [tile of rows][pieces of 16 bytes of k][rows][16 bytes]; NULL: there are none. */
typedef struct step_wide_v {
    void *to;
    int rows;     /* of a tile */
    float bound;  /* scaled (persist_scales.cuh): of |v|, but of states that enter; else 0 */
    int64_t tile; /* elements */
} step_wide_v;

typedef struct step_forward_args {
    step_common k;
    float *u;            /* [B][us] W x + b in, gates out */
    step_sums s;         /* [B][us] R (d h') */
    step_wide_v wide;    /* = d h */
    float *sn;           /* = [B][H] s_n */
    const float *bias_n; /* [H] recurrent bias of n */
    const float *c_from; /* [B][H] */
    float *c_to;         /* = */
    float *v;            /* = [B][H] */
    const float *h_from; /* [B][h_from_row] */
    int64_t h_from_row;
    float *h_to;     /* = [B][O] */
    void *operand_h; /* = operand [B][hs] d h */
    void *operand_m; /* = operand [B][ms] m, or [B][hs] r d h' */
    const float *q;  /* [B][O] W_p m */
    void *y;         /* = [B][y_row] */
    int64_t y_row;
    float *h_last, *c_last; /* = [B][O], [B][H] */
    bool keeps;             /* backward reads the gates; step_fused_forward.cu's cells write them anyhow */
} step_forward_args;

typedef struct step_backward_args {
    step_common k;
    const float *gates;  /* [B][us] */
    const float *sn;     /* [B][H] */
    const float *c_from; /* [B][H] c' */
    const float *v;      /* [B][H] */
    const float *h_from; /* [B][h_from_row] h' */
    int64_t h_from_row;
    const void *dy; /* [B][dy_row] */
    int64_t dy_row;
    const float *pw_from; /* [B][O]: dh = pw + d dp + dy */
    step_sums dp;         /* [B][hs]; in fused steps of one piece */
    const float *dm;      /* [B][ms]: with a projection dm; with reset before e = R_n^T ds_n */
    const float *dc_from; /* [B][H] */
    float *dc_to;         /* = */
    float *pw_to;         /* = (second stage of reset before: +=) */
    void *dz, *dr;        /* = operand [B][zs] */
    float *dpeep;         /* = [B][3 H] */
    step_wide_v wide;     /* = dr, or dz where that is dr */
    void *dq;             /* = operand [B][hs] */
    void *operand_m;      /* = operand [B][ms] m, or [B][hs] r d h' */
} step_backward_args;

/* D[piece][row of the batch][row of M]. */
typedef struct wide_args {
    const unsigned char *
        weights; /* [stages][blocks of M][a block's bytes of a stage]: tf32 [warps][pairs of k][WIDE_PAIR], else [WIDE_LINES][WIDE_TALL][16] */
    const unsigned char *v; /* [tiles of rows][stages][WIDE_LINES][rows][16] */
    int64_t v_apart; /* bytes from one of two to the other, which a run's steps read and write by turns; 0: one */
    float *d;        /* = [pieces][B][row]; not of a run whose blocks keep their sums */
    int64_t apart;   /* floats from piece to piece */
    int row, B, stages, pieces; /* row: a multiple of 4, M up to it */
    int blocks;                 /* of M */
    int near;                   /* of a piece's stages: the weights of so many are to stay in L2 */
    float bound;                /* as step_wide_v has it */
    const float *largest;       /* scaled: [PERSIST_LARGEST], the largest is that of |R| */
} wide_args;

/* A run. */
typedef struct step_run {
    wide_args product;
    /* Blocks that let tell of v, and each SLI_STEP_RUN_APART on of D, forward of one, backward of each block of M: of all of the call's launches. */
    uint32_t *counts;
    uint32_t v, d; /* before this one: blocks that told of v; products */
    int steps, products;
    int turn; /* of two v that which the first product reads */
} step_run;
typedef struct step_forward_run {
    step_run run;
    step_forward_args step[SLI_STEP_RUN_STEPS];
} step_forward_run;
typedef struct step_backward_run {
    step_run run;
    step_backward_args step[SLI_STEP_RUN_STEPS];
} step_backward_run;

/* Biases and peepholes: what launches that pack make of them (step_bias.cuh). */
typedef struct step_bias_args {
    float *to;                                    /* = [all], zeros behind the gates */
    const void *bias, *recurrent_bias, *peephole; /* of `math`: STEP_BF16, STEP_F16, else floats; or NULL */
    int64_t count, all, apart;                    /* GH, zs; from `apart` on the recurrent bias is left to the cell */
    float *apart_to, *peephole_to; /* = [count - apart], [peepholes], or NULL: cells read them where they are */
    int64_t peepholes;
    int math;
} step_bias_args;

#endif
