/* cuda:stack: the layers of a stack as a wavefront. Time is cut into *pieces* of whole chunks; piece c of a layer is one call of
 * cuda:cluster, and runs while the next layer computes piece c - 1, on a stream of its own. Where the layers' memory lies, and how
 * long a piece is. Plain C, compiled into libsluice (which books) and into the plug-in (which uses it). */
#ifndef SLI_CUDA_STACK_LAYOUT_H
#define SLI_CUDA_STACK_LAYOUT_H

#ifdef __cplusplus
extern "C" {
#endif
#include "backend/cuda/persist_layout.h"

/* How a stack is cut; of the plan's batch and chunk, never of a call's steps: a shorter call lies in less memory. */
typedef struct sli_stack_cut {
    int at_once;           /* layers whose clusters are meant to be on the GPU together */
    sli_planned planned;   /* of the layers' calls: their geometry is chosen for at_once times the plan's batch */
    int piece;             /* steps of a piece: whole chunks */
    sli_persist_pair pair; /* geometries of every layer */
} sli_stack_cut;
bool sli_stack_cut_of(const sli_problem *problem, sli_planned plan, const sli_caps *caps, int chunk, sli_stack_cut *cut,
                      sli_why *why);
/* Microseconds of a step of `layers` layers at the same time. */
double sli_stack_step_us(const sli_stack_cut *cut, const sli_problem *problem, const sli_caps *caps, bool backward,
                         int layers);
/* At least 1; all but the last have cut->piece steps. */
int sli_stack_pieces(const sli_problem *problem, const sli_stack_cut *cut);
/* `steps` steps of one layer. */
sli_problem sli_stack_part(const sli_problem *problem, int layer, int steps);

/* Offsets in bytes, per layer. */
typedef struct sli_stack_places {
    size_t own[SLI_MAX_PARTS];    /* what cuda:cluster has there; in saved memory of piece 0 */
    size_t stride[SLI_MAX_PARTS]; /* saved: from piece to piece */
    size_t
        states[SLI_MAX_PARTS]; /* scratch: float [2][B][H] for each state, or its gradient: between pieces, in turns */
    size_t
        between[SLI_MAX_PARTS]; /* float [T][B][H], not of the last layer: y, in saved memory if that is there, else in
                                    * scratch; backward the gradient of y, in scratch */
    size_t total;
} sli_stack_places;
sli_stack_places sli_stack_layout_packed(const sli_problem *problem, const sli_stack_cut *cut);
sli_stack_places sli_stack_layout_saved(const sli_problem *problem, const sli_stack_cut *cut, int chunk);
sli_stack_places sli_stack_layout_scratch(const sli_problem *problem, const sli_caps *caps, const sli_stack_cut *cut,
                                          int chunk, bool backward);
/* Offset from `states` of slot 0 or 1 of state k: 0 h, 1 c. */
size_t sli_stack_state(const sli_problem *problem, int k, int slot);

#ifdef __cplusplus
}
#endif
#endif
