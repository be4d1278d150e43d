/* A problem: what one kernel call has to compute. The same short string in plans, tests, benches, logs and bug reports:
 *     lstm:l2_b20_t35_i650_h650_f32_train+rdrop=0.3
 * OP:FIELD_FIELD...[+OPTION[=VALUE]]...; fields in any order, printed in this one; options printed alphabetically. */
#ifndef SLI_PROBLEM_H
#define SLI_PROBLEM_H

#include <stdbool.h>
#include "memory.h"

typedef enum sli_op {
    SLI_OP_LSTM,
    SLI_OP_GRU,
    SLI_OP_RNN,     /* recurrent */
    SLI_OP_DENSE,   /* dense:  b t i h +act +nobias */
    SLI_OP_EMBED,   /* embed:  b t i(=V) h(=E) */
    SLI_OP_ONEHOT,  /* onehot: b t i(=V); h = V */
    SLI_OP_DROPOUT, /* dropout: b t h +drop=p */
    SLI_OP_MERGE,   /* merge:  b t h +parts=N +mode=add|concat|mul|ave */
    SLI_OP_FLIP,    /* flip:   b t h: reverses time */
    SLI_OP_XENT,    /* xent:   b t h(=V) */
    SLI_OP_BCE,     /* bce:    b t h */
    SLI_OP_MSE,     /* mse:    b t h */
    SLI_OP_NORM,    /* norm:   n: sum of squares of gradients; also clips */
    SLI_OP_OPTIM,   /* optim:  n +opt=sgd|adam|adamw|rmsprop +momentum +nesterov */
    SLI_OP_COUNT
} sli_op;

typedef enum sli_mask { SLI_MASK_NONE, SLI_MASK_LENGTHS, SLI_MASK_LEFT, SLI_MASK_RIGHT, SLI_MASK_HOLES } sli_mask;

typedef struct sli_problem {
    sli_op op;
    int layers;         /* l, 1 if left out */
    int batch;          /* b */
    int steps;          /* t; 0 = the tensors have no time */
    int inputs;         /* i */
    int units;          /* h */
    int projection;     /* p, 0 = none */
    bool bidirectional; /* bi */
    bool train;
    sl_dtype dtype;   /* never SL_DTYPE_DEFAULT */
    int64_t elements; /* n */

    /* Options. A zero is "not given" and is not printed. */
    sl_activation act, recurrent_act; /* +act= +ract=  (SL_ACT_DEFAULT where not given) */
    sl_bias bias;                     /* +bias=none|double|single (resolved: never DEFAULT in a recurrent problem) */
    bool reset_before;                /* +reset=before */
    bool peephole;                    /* +peephole */
    bool reverse;                     /* +reverse: runs from the last step to the first */
    bool forget_at_run;               /* +forget=VALUE: added to f in every step */
    double forget_bias;
    double cell_clip;                   /* +clip= */
    double dropout;                     /* +drop=: between the layers of a stack; rate of a dropout: problem */
    double recurrent_dropout;           /* +rdrop= */
    double zoneout_h, zoneout_c;        /* +zoneout_h= +zoneout_c= */
    sli_mask mask;                      /* +lengths, +mask=left|right|holes */
    bool recompute;                     /* +recompute, in training: gates are not kept for backward, see sluice.h */
    bool masked_repeat;                 /* +maskout=repeat */
    bool narrow;                        /* +narrow, of 16-bit dtypes: so are parameters and their gradients, */
    bool narrow_io;                     /* +narrow_io: and tensors that have time, see sluice.h */
    sl_direction_merge direction_merge; /* +merge=sum|mul|ave, with bi; concat is not printed */
    bool no_bias;                       /* dense: +nobias */
    int parts;                          /* merge: +parts= */
    sl_merge merge;                     /* merge: +mode= */
    sl_reduction reduction;             /* losses: +reduce=time */
    sl_optimizer optimizer;             /* optim: +opt= ... */
    sl_clip clip;                       /* norm: +clipvalue= +clipnorm= +globalnorm= */
    int parts_units[4];                 /* merge: features of each part; printed as +widths=a:b:c when they differ */

    int wave; /* never printed: so many layers of a stack that are computed as this one (backend/cuda/wave_layout.h); 0: it is one layer */
    int cut; /* never printed, no part of the problem: which of its row's cuts of the work computes it (sli_kernel.cut), 0: the best */
} sli_problem;

/* Bits of what an op is. */
bool sli_op_is_recurrent(sli_op op);
bool sli_op_multiplies(sli_op op); /* by a matrix of weights: recurrent, dense */
const char *sli_op_name(sli_op op);
static inline int sli_op_gates(sli_op op) {
    return op == SLI_OP_LSTM ? 4 : op == SLI_OP_GRU ? 3 : 1;
}
static inline int sli_problem_output(const sli_problem *p) {
    return p->projection > 0 ? p->projection : p->units;
} /* features of h */
/* Carried states of one direction of one layer: LSTM 2 (h, c), else 1 (h). */
static inline int sli_problem_states(const sli_problem *p) {
    return p->op == SLI_OP_LSTM ? 2 : 1;
}
static inline int sli_problem_directions(const sli_problem *p) {
    return p->bidirectional ? 2 : 1;
}
/* Layers times directions; more than 1: a wide problem. */
static inline int sli_problem_parts(const sli_problem *p) {
    return (p->layers > 1 ? p->layers : 1) * sli_problem_directions(p);
}
/* One layer of a wide problem: one direction of it (0 forward, 1 backward), or all that it has (-1). Layers after the first
 * read what the one before writes; what is dropped between layers is not part of it. */
sli_problem sli_problem_part(const sli_problem *wide, int layer, int direction);
size_t sli_dtype_bytes(sl_dtype dtype); /* of a stored activation: f64 8, everything else 4 for now */
const char *sli_dtype_name(sl_dtype dtype);
const char *sli_activation_name(sl_activation act);
/* false and *act untouched if `name` is none. Table-driven; also used by model JSON. */
bool sli_activation_parse(const char *name, sl_activation *act);

/* A finite decimal number such as -1.5e+3, point in any locale; false if there is anything else. */
bool sli_number_parse(const char *text, size_t count, double *value);

/* On failure SL_ERR_UNKNOWN or SL_ERR_INPUT with the offending part and its column. Checks ranges, and that each option
 * belongs to the op ("+peephole: only lstm has it"). */
sl_status sli_problem_parse(const char *text, sli_problem *problem);
/* Writes at most `capacity` bytes including the 0; returns the length it needs (as snprintf). parse(print(p)) == p. */
int sli_problem_print(const sli_problem *problem, char *text, size_t capacity);
enum { SLI_PROBLEM_TEXT = 512 }; /* more than the longest problem takes */

/* Fixed chunk of time steps for sums over time and time-batched GEMMs, of about `rows` rows: what makes a product efficient depends on the device (see
 * sli_caps_chunk), more would only cost memory. Depends on batch and steps of the *plan* alone. */
static inline int sli_chunk_steps_of(int batch, int steps, int rows) {
    if (steps < 1) return 1;
    const int largest = batch < 1 ? rows : batch < rows ? rows / batch : 1;
    const int chunks = (steps - 1) / largest + 1;
    return (steps - 1) / chunks + 1;
}
static inline int sli_chunk_steps(int batch, int steps) {
    enum { ROWS = 1024 };
    return sli_chunk_steps_of(batch, steps, ROWS);
}

#endif
