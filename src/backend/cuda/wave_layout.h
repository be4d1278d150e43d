/* cuda:wave: the layers of a stack side by side, each a step behind the one below it. Of L layers with H units over T steps, s = t + l,
 *     H_s = [h^0_s; h^1_(s-1); ...; h^(L-1)_(s-L+1)]  is the state of one layer:  H_s = cell(W' x_s + b' + R' H_(s-1)),
 *          R_0                     W_0         b_0
 *     R' = W_1 R_1            W' = 0      b' = b_1
 *              W_2 R_2             0           b_2
 * of L H units over T + L - 1 steps, the *whole*, which is one call of cuda:cluster. Layer l is masked before step l and behind step T - 1 + l
 * (kernels/persist_cells.cuh). A GRU's n has R_n h inside r * (...) and W_n h of the layer below outside: R' has rows of both, r, z, R_n, W_n.
 * Plain C, compiled into libsluice (which books) and into the plug-in (which uses it). */
#ifndef SLI_CUDA_WAVE_LAYOUT_H
#define SLI_CUDA_WAVE_LAYOUT_H

#ifdef __cplusplus
extern "C" {
#endif
#include "backend/cuda/persist_layout.h"

/* Gradients of W between layers are a product of their own where R' has other rows for them: in a GRU, whose whole has no projection, in its place. */
enum { SLI_WAVE_BETWEEN = SLI_RNN_PROJECTION };

/* The whole of a call, or of a plan; no steps if the stack has none. */
sli_problem sli_wave_whole(const sli_problem *stack);
sli_planned sli_wave_planned(const sli_problem *stack, sli_planned plan);
int sli_wave_chunk(const sli_problem *stack, int chunk);
/* Floats of parameter k of a whole, or of its gradient; 0: it has none. */
int64_t sli_wave_floats(const sli_problem *whole, int k, bool gradient);

/* Offsets in bytes. */
typedef struct sli_wave_places {
    size_t own;                    /* what cuda:cluster has there */
    size_t param[SLI_PART_PARAMS]; /* packed: parameters of the whole; scratch of backward: their gradients */
    size_t enters[2], leaves[2];   /* scratch of backward: float [B][L H], gradients of the states h and c */
    size_t total;
} sli_wave_places;
sli_wave_places sli_wave_layout_packed(const sli_problem *whole, const sli_persist_pair *pair);
sli_wave_places sli_wave_layout_scratch(const sli_problem *whole, const sli_caps *caps, const sli_persist_pair *pair,
                                        int chunk, bool backward);

#ifdef __cplusplus
}
#endif
#endif
