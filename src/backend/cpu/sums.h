/* The products of a recurrent layer over the time of one chunk, which know nothing of its steps: the gradients of parameters and
 * inputs. For one direction of one layer. */
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
    int part;        /* of the call's problem */
    int rows;        /* of x, dz, h: of all steps of the chunk, one after the other, without those that are masked */
    const float *x;  /* [rows][I] */
    const float *dz; /* [rows][ld] */
    const uint16_t *dz_half; /* instead of dz: bf16, see sli_operand */
    ptrdiff_t ld;
    /* What the gates' gradients are of: of the input side, and of the recurrent side. One piece of gates, or two. */
    sli_gates input[2], recurrent[2];
    const float *h; /* [rows][ld_h] what R multiplied */
    ptrdiff_t ld_h;
    const float *between; /* [rows][H] instead, for recurrent[1]; with dq what a projection multiplied */
    const float *dq;      /* [rows][O] the gradient of what a projection gave; NULL: there is none */
    float *dx;            /* [rows][I], NULL: not wanted */
    /* W for d x, packed by sli_sums_pack, of input[0] and input[1]; NULL: it is packed with the product. */
    const void *kernel[2];
    bool add_dx;
} sli_sums;

void sli_sums_backward(const sli_sums *sums);
void sli_sums_inputs(const sli_sums *sums); /* d x alone */
/* W of input[i], packed once for d x of several chunks or pieces; its bytes, of `count` gates. */
size_t sli_sums_packed_bytes(const sli_problem *problem, int count);
void sli_sums_pack(const sli_sums *sums, int i, void *packed);

/* to = from, or zeros without; d_in[slot] = or += from */
void sli_state_load(float *to, const float *from, size_t count);
void sli_state_store(const sli_call *call, int slot, const float *from, size_t count);

#endif
