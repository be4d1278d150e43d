/* cuda:cluster and cuda:grid: where everything lies in saved, scratch and packed memory. History, and what the products
 * outside the loop need, are as in cuda:step; beside them what a launch of many steps needs. It goes *span* by span: whole
 * chunks, as many as its memory allows, in one launch or several (persist_overlap.h). Plain C, compiled into libsluice (which
 * books) and the plug-in. */
#ifndef SLI_CUDA_PERSIST_LAYOUT_H
#define SLI_CUDA_PERSIST_LAYOUT_H

#ifdef __cplusplus
extern "C" {
#endif
#include "backend/cuda/persist_geometry.h"
#include "backend/cuda/step_layout.h"

/* What the recurrence computes. An LSTM with projection, h = W_p m, is folded: R h' = (R W_p) m', so that its recurrence is that of the
 * same LSTM without projection, whose recurrent weights are R W_p, and h of all steps is a product over time (persist_fold_host.cu).
 * The geometry is that of the folded problem; memory is that of the problem as given, and sli_persist_fold beside it. */
sli_problem sli_persist_folded(const sli_problem *problem);

/* The geometries of a call: chosen for the plan's batch, and for its steps by whether they are one chunk or many, which packed weights were laid out for, with as many groups as the
 * call's rows take. cuda:grid's backward may be a cluster's. */
typedef struct sli_persist_pair {
    sli_persist_geometry forward, backward; /* backward: in training, unless it is computed step by step */
    bool backward_in_steps;                 /* as cuda:step does: cuda:grid, where that is faster */
    size_t steps_bytes;                     /* then: of R^T as wide steps read it */
    bool steps_run; /* and whether cuda:step, all of whose steps are runs, has no other copy of R */
    int batch;      /* the plan's */
} sli_persist_pair;
bool sli_persist_pair_of(const sli_problem *problem, sli_planned plan, const sli_caps *caps, sli_persist_kind kind,
                         sli_persist_pair *pair, sli_why *why);

enum { SLI_PERSIST_MOST_PIECES = 8 }; /* launches of a span */
/* Steps whose memory is there at once: a multiple of the chunk, or all; by shape alone, and of no influence on any bit. */
int sli_persist_span(const sli_problem *problem, const sli_persist_pair *pair, int chunk);

enum { SLI_PERSIST_ALIGN = 256 }; /* of each part of a memory */

/* Offsets in bytes in a direction, which begins at d * stride. */
typedef struct sli_persist_packed {
    sli_step_packed step;     /* the kernel for the products; its recurrent part too */
    size_t folded;            /* float [GH][ms]: R W_p of a problem that is folded, which is R then */
    size_t forward, backward; /* R and R^T as the kernels read them; backward in training */
    size_t largest;           /* float [PERSIST_LARGEST]: of R, by which forward's is scaled; else nothing */
    size_t stride, total;
} sli_persist_packed;
sli_persist_packed sli_persist_layout_packed(const sli_problem *problem, const sli_persist_pair *pair);

/* Of a problem that is folded, of no bytes for others. m lies in slots between two steps, as h in sli_step_history. */
typedef struct sli_persist_fold {
    size_t m;     /* operand [T + 1][B][ms], inference */
    size_t m_own; /* float [B][H], inference: m, where cells read another one than the operand */
    size_t first; /* int32 [B]: number of a row's first unmasked step in order of processing; T: there is none */
    /* forward */
    size_t entering; /* float [B][us]: R h0 */
    size_t q;        /* float [rows][hs], in inference without padding of one step: W_p m, where it is not y's memory */
    /* backward */
    size_t dm;       /* float [rows of a span][ms]: dy W_p */
    size_t e;        /* operand [rows + B][hs]: dy where it is none itself, then the gradient of h */
    size_t back;     /* float [rows][hs]: R^T dz */
    size_t dh, left; /* float [B][O], [B][hs]: of h0, what comes through a row's first step, and the rest */
    size_t dp, pw;   /* float [B][ms], [B][H]: of m, as of h in sli_step_scratch */
} sli_persist_fold;

typedef struct sli_persist_scratch {
    sli_step_scratch step; /* dz, dr: of a span */
    sli_persist_fold fold;
    size_t sums;      /* float [chunks of a span][B][us]: dz of a chunk summed over time */
    size_t sums_n;    /* float [chunks][B][H]: n's part of dr, GRU */
    size_t sums_peep; /* float [chunks][B][3 H] */
    size_t
        counters; /* uint32 [groups][halves][reduce], gather over the grid; then of sums that meet [groups][halves][spread] */
    size_t
        exchange; /* operand [groups][halves][2][reduce][rows][exchange row]; where words tell [PERSIST_EXCHANGE][groups]... */
    size_t
        meeting; /* float [groups][halves][2][spread][reduce][reduce][tiles_n][units ym][8]: sums that meet in memory */
    size_t zeros, zeros_bytes; /* what of them is zeros before a launch */
    size_t
        kept_bytes; /* backward, of one direction: what is zeros lies in saved, from sli_persist_saved.kept on, since forward clears it; else 0 */
    size_t beside;  /* [2] of beside_bytes: pad, split, workspace of products beside others; 0 bytes: none are */
    size_t beside_bytes; /* in lanes none are: there memory ends at `beside` */
    size_t stride, total;
} sli_persist_scratch;
sli_persist_scratch sli_persist_layout_forward(const sli_problem *problem, const sli_caps *caps,
                                               const sli_persist_pair *pair, int chunk);
sli_persist_scratch sli_persist_layout_backward(const sli_problem *problem, const sli_caps *caps,
                                                const sli_persist_pair *pair, int chunk);
/* saved: the history of cuda:step; of what is folded that of h, and behind it that of m. */
typedef struct sli_persist_saved {
    sli_step_history step;
    size_t m;     /* operand [T + 1][B][ms] */
    size_t m_own; /* as in sli_persist_fold */
    size_t kept;  /* of backward's exchange, before its first launch zeros; its offsets are from here on */
    size_t stride, total;
} sli_persist_saved;
sli_persist_saved sli_persist_layout_saved(const sli_problem *problem, const sli_persist_pair *pair, int chunk);

#ifdef __cplusplus
}
#endif
#endif
