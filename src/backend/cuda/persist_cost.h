/* What the search for a geometry (persist_geometry.c) and its predicted time (persist_cost.c) have in common. */
#ifndef SLI_CUDA_PERSIST_COST_H
#define SLI_CUDA_PERSIST_COST_H

#ifdef __cplusplus
extern "C" {
#endif
#include "backend/cuda/persist_geometry.h"

enum { SLI_PERSIST_TURN_WARPS = 8 }; /* that multiply, in turns */
/* Columns of M in whole tiles, bytes of the warps' partial sums; with reset before of the largest part. */
int sli_persist_tiled_k(const sli_persist_geometry *g);
size_t sli_persist_partial_bytes(const sli_persist_geometry *g);
int sli_persist_multiprocessors(const sli_caps *caps);
/* Times that clusters come one after the other. */
int sli_persist_waves(const sli_persist_geometry *g, const sli_caps *caps);
/* What a half waits for others, us. */
double sli_persist_exchange_us(const sli_persist_geometry *g, const sli_problem *p, const sli_caps *caps);

#ifdef __cplusplus
}
#endif
#endif
