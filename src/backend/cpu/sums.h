/* The products of a recurrent layer over the time of one chunk, which know nothing of its steps: W x before them, and after them,
 * backward, the gradients of parameters and inputs. For one direction of one layer. */
#ifndef SLI_CPU_SUMS_H
#define SLI_CPU_SUMS_H

#include "backend/cpu/gemm.h"

/* Gates that lie side by side both in a row of dz and in a parameter: dz's blocks of H from `from` on belong to the parameter's
 * gates from `to` on. */
typedef struct sli_gates {
    int from, to, count;
} sli_gates;

typedef struct sli_sums {
    const sli_call *call;
    int part, steps; /* part of the call's problem; steps of the chunk */
    int rows; /* of x, gates and dz: 0: steps * B; else those that are not masked, one after the other; h_edge is NULL */
    /* W x:  gates [steps][B][ld] = x kernel^T */
    const float *x; /* [steps][B][I] */
    float *gates;
    ptrdiff_t ld;
    /* Backward. */
    const float *dz;         /* [steps][B][ld] */
    const uint16_t *dz_half; /* instead of dz: bf16, see sli_operand */
    /* What the gates' gradients are of: of the input side, and of the recurrent side. One piece of gates, or two. */
    sli_gates input[2], recurrent[2];
    /* What R multiplied: h_rest [steps][B][ld_h_rest], with h_edge NULL. Or in the step that is processed first, which may be the
     * segment's initial state, and in the others: that step is then a product of its own in every chunk, so that segments change
     * no bit. */
    int edge, rest; /* steps of the chunk: 0 or steps - 1; the first of the others */
    const float *h_edge, *h_rest;
    ptrdiff_t ld_h_edge, ld_h_rest;
    const float *between; /* [steps][B][H] instead, for recurrent[1]; with dq what a projection multiplied */
    const float *dq;      /* [steps][B][O] the gradient of what a projection gave; NULL: there is none */
    float *dx;            /* [steps][B][I], NULL: not wanted */
    /* W for d x, packed by sli_sums_pack, of input[0] and input[1]; NULL: it is packed with the product. */
    const void *kernel[2];
    bool add_dx;
} sli_sums;

void sli_sums_project(const sli_sums *sums);
void sli_sums_backward(const sli_sums *sums);
void sli_sums_inputs(const sli_sums *sums); /* d x alone */
/* W of input[i], packed once for d x of several chunks or pieces; its bytes, of `count` gates. */
size_t sli_sums_packed_bytes(const sli_problem *problem, int count);
void sli_sums_pack(const sli_sums *sums, int i, void *packed);

/* to = from, or zeros without; d_in[slot] = or += from */
void sli_state_load(float *to, const float *from, size_t count);
void sli_state_store(const sli_call *call, int slot, const float *from, size_t count);

#endif
