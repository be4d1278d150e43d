/* What the files of cpu:fused share: where its memory is, and one call unpacked. fused.c says how the row works. */
#ifndef SLI_CPU_FUSED_H
#define SLI_CPU_FUSED_H

#include "backend/cpu/fused_split.h"
#include "backend/cpu/isa/panel.h"
#include "backend/cpu/panel_queue.h"
#include "backend/cpu/sums.h"

/* ----------------------------------------------------------------------------------------------------- layouts -- */
/* Panels of one product of units that have `gates` columns each: all of `vectors` vectors, the gates of a group of `lanes` units side
 * by side, then those of the next group, but for a last narrower one (tail, 0: none). */
typedef struct sli_fused_panels {
    int k, gates, all;        /* all: units */
    int vectors, count, tail; /* count: without the tail */
    int units;                /* of a panel */
    int gap; /* of the tail: columns from a gate to the next, lanes, or its units where gates lie close */
    size_t bytes, tail_bytes; /* of one */
} sli_fused_panels;

static inline int sli_fused_all_panels(const sli_fused_panels *panels) {
    return panels->count + (panels->tail > 0);
}

/* The products of a step, one after the other. GRU with reset before the product: of r and z, then of n; backward of n, then of r and z.
 * LSTM with a projection: of R, then of W_p; backward of W_p, then of R. All others have one. O: outputs, H but with a projection. */
enum { SLI_FUSED_STAGES = 2 };
int sli_fused_stages(const sli_problem *p);
/* Gates of a stage: the first one, as in R; how many. A projection counts as one. */
int sli_fused_stage_gate(const sli_problem *p, int stage);
int sli_fused_stage_gates(const sli_problem *p, int stage);
/* Backward, whether a stage multiplies the gradient of W_p m: floats, not dz. */
bool sli_fused_multiplies_dq(const sli_problem *p, int stage);
/* Backward, the block of dz that a stage's gates begin with. GRU's n, of the input side alone or of the first stage, is the first. */
int sli_fused_stage_block(const sli_problem *p, int stage);

/* Blocks of H of one row: of gates, and of dz. */
int sli_fused_width(const sli_problem *p);
bool sli_fused_masked(const sli_problem *p);
bool sli_fused_repeats(const sli_problem *p); /* masked steps repeat the output */

sli_fused_panels sli_fused_forward_panels(const sli_problem *p, const sli_panel_ops *ops, int stage);
/* Of W, beside those of R: the same columns. None in the stage of a projection. */
sli_fused_panels sli_fused_input_panels(const sli_problem *p, const sli_panel_ops *ops, int stage);
sli_fused_panels sli_fused_backward_panels(const sli_problem *p, const sli_panel_ops *ops, int stage);
size_t sli_fused_panels_bytes(const sli_fused_panels *panels);

/* A row of gates that are kept: numbers from row to row; f16 where products are in bf16 and activations between -1 and 1. */
typedef struct sli_fused_kept {
    bool halves;
    int ld;
} sli_fused_kept;
sli_fused_kept sli_fused_kept_of(const sli_problem *p, const sli_panel_ops *ops);

/* Offsets in bytes, for one direction; `total` is the distance to the next. */
typedef struct sli_fused_saved {
    size_t gates;   /* [T][B] rows of sli_fused_kept, activated, unless they are recomputed */
    size_t c;       /* [T][B][H] LSTM */
    size_t v;       /* [T][B][H] LSTM with zoneout of c: c before it */
    size_t h;       /* [T][B][O] with masks, where y is not h */
    size_t dropped; /* [T][B][O] with recurrent dropout: what R multiplied in step t */
    size_t total;
} sli_fused_saved;

typedef struct sli_fused_scratch {
    size_t gates;            /* backward: dz, [chunk][B] rows of sli_fused_dz */
    size_t again;            /* backward: gates that are recomputed, [chunk][B] rows of sli_fused_kept */
    size_t c, h;             /* inference: running c [B][H], and h [2][B][O] with masks; backward: dc, and dh [B][O] */
    size_t multiplied;       /* [chunk][B][O] backward: what R multiplied, where it does not lie side by side */
    size_t drop;             /* [B][O] factors of recurrent dropout */
    size_t fresh_h, fresh_c; /* [B][O], [B][H] what zoneout drew for a step */
    size_t update;           /* GRU, reset before, forward: [B][H] u_z + s_z */
    size_t
        between; /* of two stages: [B][H] what the second multiplies, r d h', or LSTM's m; backward: [chunk][B][H] it again */
    size_t dq;         /* projection, backward: [chunk][B][O] the gradient of W_p m */
    size_t valid_from; /* int32 [B] with repeated outputs */
    size_t place;      /* int32 [chunk][B] with masks */
    size_t x, dx;      /* [chunk][B][I] backward with masks: of the valid rows alone */
    size_t kernel[2];  /* backward: W as sli_sums_pack packs it for d x */
    size_t total;
} sli_fused_scratch;

typedef struct sli_fused_packed {
    size_t forward[SLI_FUSED_STAGES], inputs[SLI_FUSED_STAGES], backward[SLI_FUSED_STAGES], bias;
    size_t total;
} sli_fused_packed;

sli_fused_saved sli_fused_saved_of(const sli_problem *p, const sli_panel_ops *ops);
sli_fused_scratch sli_fused_scratch_of(const sli_problem *p, const sli_panel_ops *ops, int chunk, bool backward);
sli_fused_packed sli_fused_packed_of(const sli_problem *p, const sli_panel_ops *ops);
/* A row of dz backward: numbers from row to row; bf16 where panels multiply that, then with `zeros` behind the last block, where
 * products read on. */
typedef struct sli_fused_dz {
    bool halves;
    int ld, zeros;
} sli_fused_dz;
sli_fused_dz sli_fused_dz_of(const sli_problem *p, const sli_panel_ops *ops);
/* Of each thread, behind the scratch of all directions, where operands are converted: rows of one product. */
enum { SLI_FUSED_ROWS = 64 };
size_t sli_fused_operand_bytes(const sli_problem *p, const sli_panel_ops *ops);
/* W x (fused_inputs.c): rows of a thread that are best at a time; and, forward, behind the operands of all threads: W x of a piece of
 * all directions, [directions][panels][piece's rows][columns of a panel] in some order, and x of it, converted, of each thread. */
int sli_fused_input_rows(const sli_problem *p, const sli_panel_ops *ops);
size_t sli_fused_input_bytes(const sli_problem *p, const sli_panel_ops *ops, int threads);

/* -------------------------------------------------------------------------------------------------------- call -- */
/* One direction of the layer. Pointers are to step 0 of the call, unless said otherwise. */
typedef struct sli_fused_direction {
    int part;
    bool reverse;
    const float *x, *h0, *c0;
    bool from_zero;   /* h0 is 0 in all rows, as mostly: R h0 is not computed. The same bits, if R is finite */
    float *y;         /* [T][B][ld_y] */
    ptrdiff_t ld_y;   /* 2O where both directions lie side by side */
    const float *dy;  /* NULL: zero */
    int first, end;   /* steps of the chunk at work */
    int step0, step1; /* of those, in order of processing, the piece at work: all of them, or, in stack.c, some */
    void *gates;      /* training: sli_fused_kept of step gates_from on; with masks a chunk's valid rows side by side */
    int gates_from;
    float *c, *v, *h, *dropped;
    float *drop, *fresh_h, *fresh_c;
    int32_t *valid_from;
    int32_t *place; /* [chunk][B] with masks: number of a valid row of the chunk, -1 where masked; else NULL */
    int valid;      /* rows of the chunk that are not masked */
    void *dz;       /* sli_fused_dz of the chunk's first step on, rows as in gates */
    float *dh, *dc;
    float *multiplied;         /* [valid][O] what R multiplied */
    float *x_valid, *dx_valid; /* [valid][I], where some are masked */
    float *update, *between;   /* of two stages, see sli_fused_scratch */
    float *dq;                 /* projection, backward: of the chunk's first step on, rows as in gates */
    void *kernel[2];           /* backward: packed W */
    const char *forward_panels[SLI_FUSED_STAGES], *backward_panels[SLI_FUSED_STAGES], *input_panels[SLI_FUSED_STAGES];
    const float *bias, *peephole;
    sli_rng rng_h, rng_c;
} sli_fused_direction;

typedef struct sli_fused_work {
    const sli_call *call;
    const sli_problem *p;
    const sli_isa_ops *ops;
    const sli_panel_ops *panels;
    const sli_fused_cell *cell;
    int T, B, I, H, O, W, directions, stages;
    bool lstm, mask, repeat, rdrop, projects;
    bool from_l2;           /* see sli_panel_product */
    bool keep, keeps_gates; /* training: states; gates, which with recompute backward alone does */
    unsigned options;       /* CELL_* */
    sli_fused_panels forward[SLI_FUSED_STAGES], backward[SLI_FUSED_STAGES];
    sli_fused_kept kept;
    sli_fused_dz dz;
    sli_fused_direction direction[2];
    sli_fused_split split;
    char *operands; /* of thread 0 */
    size_t operand_bytes;
    sli_fused_panels inputs[SLI_FUSED_STAGES]; /* forward */
    int input_steps;                           /* of a piece of W x */
    float *projected;
    char *x_operands; /* of thread 0 */
    size_t x_operand_bytes;
} sli_fused_work;

/* What one thread computes of a stage of each step: rows first_row, + row_step, ..., and part `unit` of `units` of the panels. */
typedef struct sli_fused_share {
    int stage;
    int direction0, direction1;
    int first_row, row_step, rows;
    int unit, units;            /* the thread's number among those that share rows, and how many those are */
    sli_panel_lending *lending; /* of those; NULL: there is one */
    uint32_t *round;            /* the thread's last round of it, of any stage */
    int sweeps;                 /* how often its panels were multiplied */
    char *operands, *x_operands;
    float *projected[2]; /* of a direction: W x of the piece at work, its valid rows in order of processing, panel 0 */
    int taken[2];        /* rows of those whose step is done */
    ptrdiff_t projected_panel; /* floats from panel to panel */
} sli_fused_share;

/* Panels of a product: the first, how many without the tail, and whether that is one of them. Of a stage with fewer panels than
 * others some threads have none. */
typedef struct sli_fused_part {
    int first, full, tail;
} sli_fused_part;
sli_fused_part sli_fused_part_of(const sli_fused_panels *panels, int unit, int units);

/* Panels [panel, panel + count), all of `vectors` vectors. */
typedef struct sli_fused_group {
    int panel, count, vectors;
    int first, last; /* units */
} sli_fused_group;
/* A walk over groups of panels, `size` together and the tail alone: those of the thread's own part, then others' that are left. */
typedef struct sli_fused_walk {
    const sli_fused_panels *panels;
    int size, used; /* used: panels of a product whose sums are used at a time */
    bool back;      /* from the last group of a part to the first */
    uint32_t round;
    bool over;                /* of lent panels nothing is left */
    int owner;                /* whose part is at work */
    sli_fused_part part;      /* of which these are the groups */
    int groups, taken;        /* taken: of lent ones, panels that are computed and not told of yet */
    sli_fused_group at, next; /* the group at work, and the one that probably comes after it */
} sli_fused_walk;
/* At most `size` panels a group, fewer where they may be lent, but not fewer than `least`. Waits for the walk before, of all threads that
 * share rows. */
void sli_fused_walk_of(sli_fused_walk *walk, sli_fused_share *share, const sli_fused_panels *panels, int least,
                       int size, bool back);
/* Of all that is to be done for the units of the panels, beside their product. */
void sli_fused_walk_units(sli_fused_walk *walk, sli_fused_share *share, const sli_fused_panels *panels);
/* On to the next group; false: nothing is left, which must be seen. */
bool sli_fused_take(const sli_fused_share *share, sli_fused_walk *walk);

/* How threads share a step, as predicted. */
sli_fused_split sli_fused_shares(const sli_problem *p, const sli_panel_ops *ops, const sli_cpu_machine *machine,
                                 bool backward);
/* The call's. */
sli_cpu_machine sli_fused_machine(const sli_call *call);
/* cost_fused.c: of a call; of a piece of one direction, so many rows, with its W x or d x. */
double sli_fused_seconds(const sli_problem *p, const sli_caps *caps);
double sli_fused_piece_seconds(const sli_problem *p, const sli_panel_ops *ops, const sli_cpu_machine *machine,
                               double rows, bool backward);
sli_fused_work sli_fused_begin(const sli_call *call, bool backward);
/* For a backward call with recompute: the forward work, in the scratch behind backward's, that computes a chunk's gates again. What
 * else it writes is there already, to the bit. */
sli_call sli_fused_call_again(const sli_fused_work *w);
sli_fused_work sli_fused_begin_again(const sli_fused_work *w, const sli_call *again);
/* A pass's steps on all threads of the split: `steps` with the thread's shares of all stages, of the forward or the backward panels. */
typedef void (*sli_fused_steps_fn)(const sli_fused_work *w, sli_fused_share *shares);
void sli_fused_run(const sli_fused_work *w, const sli_fused_panels *panels, sli_fused_steps_fn steps);
/* One stage's, but for lending, round and operands. */
sli_fused_share sli_fused_share_of(const sli_fused_work *w, const sli_fused_panels *all, int stage, int member);
int sli_fused_chunks(const sli_fused_work *w);
void sli_fused_enter_chunk(sli_fused_work *w, int index); /* in order of processing */
/* Some of the chunk's steps, in order of processing; of one direction that is not reversed and has no masks. */
void sli_fused_enter_piece(sli_fused_work *w, int step0, int step1);
/* The most steps at work of any direction. */
int sli_fused_piece_steps(const sli_fused_work *w);
/* x of the chunk's valid rows; they are copied side by side where some are masked. */
const float *sli_fused_inputs(const sli_fused_work *w, const sli_fused_direction *d);
/* The i-th step of the chunk in order of processing, and the step before t in that order, or -1: the state is h0, c0. */
int sli_fused_step(const sli_fused_direction *d, int i);
int sli_fused_before(const sli_fused_work *w, const sli_fused_direction *d, int t);

size_t sli_fused_state(const sli_fused_work *w);   /* floats of [B][H]: c */
size_t sli_fused_outputs(const sli_fused_work *w); /* floats of [B][O]: h */
/* Row `row` of step t in gates and dz: of the step, or, with masks, of the chunk; see sli_fused_gates_at. */
static inline int sli_fused_place(const sli_fused_work *w, const sli_fused_direction *d, int t, int row) {
    return w->mask ? d->place[(t - d->first) * w->B + row] : row;
}
/* Rows of the chunk, masked ones included. */
static inline int sli_fused_chunk_rows(const sli_fused_work *w, const sli_fused_direction *d) {
    return (d->end - d->first) * w->B;
}

/* Of step t, or, with masks, of the chunk. */
void *sli_fused_gates_at(const sli_fused_work *w, const sli_fused_direction *d, int t);
float *sli_fused_c_at(const sli_fused_work *w, const sli_fused_direction *d, int t);
const float *sli_fused_c_before(const sli_fused_work *w, const sli_fused_direction *d, int t);
float *sli_fused_h_at(const sli_fused_work *w, const sli_fused_direction *d, int t);
const float *sli_fused_h_before(const sli_fused_work *w, const sli_fused_direction *d, int t);
ptrdiff_t sli_fused_ld_h(const sli_fused_work *w, const sli_fused_direction *d, int t); /* of sli_fused_h_before */
/* Whether row's y is h though step t is masked. */
bool sli_fused_repeated(const sli_fused_work *w, const sli_fused_direction *d, int t, int row);

/* Rows of one product. */
typedef struct sli_fused_rows {
    int count;
    int row[SLI_FUSED_ROWS], at[SLI_FUSED_ROWS]; /* in the batch; in gates and dz */
    const float *projected;                      /* forward: the share's W x, */
    int first;                                   /* and these rows' first in it */
    bool zero;                                   /* what is multiplied is 0, and a is not made */
} sli_fused_rows;
/* Of rows from..: those that are valid at step t; returns where to go on. */
int sli_fused_active(const sli_fused_work *w, const sli_fused_direction *d, const sli_fused_share *share, int t,
                     int from, sli_fused_rows *rows);
/* Draws zoneout of step t for `rows` and units [first, last), of h or of c; where there is none nothing. */
void sli_fused_draw_h(const sli_fused_work *w, const sli_fused_direction *d, int t, const sli_fused_rows *rows,
                      int first, int last);
void sli_fused_draw_c(const sli_fused_work *w, const sli_fused_direction *d, int t, const sli_fused_rows *rows,
                      int first, int last);
/* What is the same in all steps, and, in both passes, of step t. */
sli_cell_step sli_fused_every_step(const sli_fused_work *w, const sli_fused_direction *d);
void sli_fused_enter_step(const sli_fused_work *w, const sli_fused_direction *d, int t, sli_cell_step *step);
/* A walk over the share's panels of a product of so many rows; and, if there are any, all of them times operand rows a, tile by tile. a is
 * made after the first group was taken: until then its source may be of a step that is over. */
typedef void (*sli_fused_tile_fn)(const sli_fused_work *w, const sli_cell_step *step, const sli_cell_share *cells);
void sli_fused_walk_rows(sli_fused_walk *walk, const sli_fused_work *w, sli_fused_share *share,
                         const sli_fused_panels *panels, int rows);
void sli_fused_products(const sli_fused_work *w, const char *weights, const sli_fused_share *share,
                        sli_fused_walk *walk, const void *const *a, const sli_fused_rows *rows,
                        const sli_cell_step *step, sli_fused_tile_fn use);
/* Where W x is in the scratch; floats of a row of it. */
void sli_fused_place_inputs(sli_fused_work *w);
size_t sli_fused_projected_floats(const sli_fused_panels *inputs, const sli_panel_ops *ops);
/* W x of the rows and units of a thread's shares, of all stages, of steps [i0, i1) of the piece, of which none is taken yet. */
void sli_fused_project(const sli_fused_work *w, int direction, sli_fused_share *shares, int i0, int i1);
/* a[rows] = what R multiplies: rows row[] of `from`, converted where the product wants that. */
void sli_fused_operands(const sli_fused_work *w, const sli_fused_share *share, const float *from, ptrdiff_t ld, int k,
                        const int *row, int rows, const void **a);

/* The input side's gates, see sli_sums. */
void sli_fused_input_gates(const sli_problem *p, sli_gates gates[2]);
/* The parts of a pass: a piece's steps, the final states; initial gradients of states, W for d x, a piece's steps; then d x of a piece
 * alone, and the parameters' sums of a chunk without it; the states' gradients. */
void sli_fused_forward_piece(const sli_fused_work *w);
void sli_fused_forward_end(const sli_fused_work *w);
void sli_fused_backward_begin(const sli_fused_work *w);
void sli_fused_backward_pack(const sli_fused_work *w); /* before the first d x */
void sli_fused_backward_piece(const sli_fused_work *w);
void sli_fused_backward_inputs(const sli_fused_work *w);
void sli_fused_backward_sums(const sli_fused_work *w);
void sli_fused_backward_end(const sli_fused_work *w);
/* Of a call on so many threads. */
void sli_fused_book(const sli_problem *p, const sli_panel_ops *ops, int threads, int chunk, sli_booking *booking);
void sli_fused_forward(const sli_call *call);
void sli_fused_backward(const sli_call *call);
void sli_fused_pack(const sli_call *call);
/* Parameters that are packed by panels: sli_kernel.packs_updated. */
enum { SLI_FUSED_PACKS = 1 << SLI_RNN_KERNEL | 1 << SLI_RNN_RECURRENT | 1 << SLI_RNN_PROJECTION };

#endif
