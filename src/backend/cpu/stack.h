/* cpu:stack: the layers of a stack as a wavefront over threads. Time is cut into *pieces*: parts of a chunk, W x and steps of which
 * one thread computes as cpu:fused does alone, while others compute later pieces of the layers below, or earlier ones of those
 * above. How many pieces a chunk has changes no bit: what depends on the number of rows in a product, its kind, is the chunk's, and
 * parameters' gradients are summed chunk by chunk. */
#ifndef SLI_CPU_STACK_H
#define SLI_CPU_STACK_H

#include "backend/cpu/fused.h"

/* How a pass is cut, by prediction. */
typedef struct sli_cpu_stack_cut {
    int members; /* threads */
    int pieces;  /* of a chunk, at most: see sli_cpu_stack_pieces */
    double seconds;
} sli_cpu_stack_cut;
sli_cpu_stack_cut sli_cpu_stack_cut_of(const sli_problem *stack, const sli_panel_ops *ops,
                                       const sli_cpu_machine *machine, bool backward);
/* Of a chunk of so many steps: not so many that products of few rows would be another kind. */
int sli_cpu_stack_pieces(int steps, int batch, int pieces);

/* One layer. */
sli_problem sli_cpu_stack_layer(const sli_problem *stack, int layer);

/* Offsets in bytes, per layer. */
typedef struct sli_cpu_stack_places {
    size_t own[SLI_MAX_PARTS], bytes[SLI_MAX_PARTS]; /* what cpu:fused has there */
    size_t between[SLI_MAX_PARTS];                   /* float [T][B][O], not of the last layer */
    size_t total;
} sli_cpu_stack_places;
sli_cpu_stack_places sli_cpu_stack_packed(const sli_problem *stack, const sli_panel_ops *ops);
/* With y of the layers, in training. */
sli_cpu_stack_places sli_cpu_stack_saved(const sli_problem *stack, const sli_panel_ops *ops, int chunk);
/* With y of the layers in inference, with its gradient backward. */
sli_cpu_stack_places sli_cpu_stack_scratch(const sli_problem *stack, const sli_panel_ops *ops, int chunk,
                                           bool backward);

void sli_cpu_stack_pack(const sli_call *call);
void sli_cpu_stack_forward(const sli_call *call);
void sli_cpu_stack_backward(const sli_call *call);

#endif
