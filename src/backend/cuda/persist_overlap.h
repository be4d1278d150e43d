/* cuda:cluster and cuda:grid: what a pass over time is predicted to take, and which products run beside the recurrence. A span
 * (persist_layout.h) is cut into *pieces* of whole chunks, a launch each. While one piece is computed, the multiprocessors that
 * it leaves idle multiply: forward the inputs of the piece after it, backward the gradients of the piece before it. Products,
 * their order and memory are the same in one piece and in many, so that no bit depends on their number. Plain C, compiled into
 * libsluice (which predicts) and the plug-in (which launches). */
#ifndef SLI_CUDA_PERSIST_OVERLAP_H
#define SLI_CUDA_PERSIST_OVERLAP_H

#ifdef __cplusplus
extern "C" {
#endif
#include "backend/cuda/persist_layout.h"

typedef struct sli_persist_pass {
    double launches_us, steps_us, products_us; /* one after the other, each span in one piece */
    int idle;                                  /* multiprocessors that the recurrence leaves to products */
    int pieces;                                /* of a span; 1: nothing runs beside */
    double us;                                 /* of the pass in these pieces */
} sli_persist_pass;
sli_persist_pass sli_persist_pass_of(const sli_problem *problem, const sli_caps *caps, const sli_persist_pair *pair,
                                     int chunk, bool backward);
/* Whether a forward launch makes its input side itself: what it takes less than a product before it, and its launches. Sets what begins with
 * `inputs` of the geometry. */
void sli_persist_place_inputs(const sli_problem *problem, const sli_caps *caps, sli_persist_geometry *forward);
void sli_persist_leave_inputs(sli_persist_geometry *forward); /* it does not */
/* Chunks of a piece; the last piece of a span may have fewer. */
int sli_persist_piece(const sli_problem *problem, const sli_caps *caps, const sli_persist_pair *pair, int chunk,
                      bool backward);

#ifdef __cplusplus
}
#endif
#endif
