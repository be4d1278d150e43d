/* The cells of cpu:fused: forward they read a tile (panel.h) while it is in L1, backward they make the gradients of the gates.
 * Rows of a batch are named by number, so that those that are masked at a step are left out. */
#ifndef SLI_ISA_FUSED_H
#define SLI_ISA_FUSED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One time step of one direction of a layer. Pointers are to row 0 and unit 0; [B][H], of h and its gradient [B][O], where no stride is named.
 * Blocks of a row of gates:  forward  LSTM i f g o   GRU r z n s   RNN q       s = R_n h' + b'_n
 * and of dz:                          LSTM i f g o   GRU n r z s   RNN z       so that what R multiplies lies side by side
 * GRU with reset before the product has no s.
 * Two products a step: GRU with reset before the product r and z, then n; LSTM with a projection the gates, then q = W_p m. */
typedef struct sli_cell_step {
    int units;   /* H */
    int outputs; /* O: H, but with a projection; width of h, its copies and gradients, and of what is drawn for it */
    int act, gate_act; /* CELL_ACT_* */
    unsigned options;  /* CELL_PEEPHOLE, CELL_CLIP, CELL_ZONEOUT_H, CELL_ZONEOUT_C */
    bool keep;         /* training: gates and v stay for backward */
    bool stream;       /* those gates past the caches */
    float *gates;      /* [][ld_gates] = activated, where they are kept; backward: those */
    /* instead of gates: f16, the blocks of as many units as a vector has side by side, rows on lines of memory */
    uint16_t *gates_half;
    ptrdiff_t ld_gates;
    const float *bias; /* [4H] or [H]: all that is added to the pre-activations; GRU r z n s, or, reset before, r z n */
    const float *h_prev;
    ptrdiff_t ld_h_prev;
    float *h; /* = */
    ptrdiff_t ld_h;
    float *y; /* = h; NULL where h is y */
    ptrdiff_t ld_y;
    const float *multiplied; /* d h', what R multiplies in this step */
    ptrdiff_t ld_multiplied;
    float *update; /* GRU, reset before, forward: u_z + s_z, from the first stage to the second */
    float *
        between; /* what the second product multiplies, GRU r d h', LSTM m; backward: [][H] = it again, rows as in dz */
    float *dq;   /* projection, backward: [][O] the gradient of q, rows as in dz */
    float *dropped;    /* = drop h, what the next step multiplies; NULL without recurrent dropout */
    const float *drop; /* 0 or 1/(1-p) */
    const float *c_prev;
    float *c;              /* = ; may be c_prev */
    float *v;              /* = clipped c before zoneout; kept with CELL_ZONEOUT_C, else NULL */
    const float *peephole; /* [3][H] */
    float clip, zone_h, zone_c;
    const float *fresh_h,
        *fresh_c; /* training: drawn, 1 where the new value is taken, 0 where the old one stays; else NULL */
    /* Backward. */
    const float *dy; /* [B][ld_dy] gradient of y; NULL: zero */
    ptrdiff_t ld_dy;
    float
        *dh; /* in: gradient of h but for dy; out: the pointwise part of that of h' where there is one (GRU, zoneout) */
    float *dc;         /* in: gradient of c, out: of c' */
    float *dz;         /* [][ld_dz] = */
    uint16_t *dz_half; /* instead of dz: rounded to bf16 */
    ptrdiff_t ld_dz;
} sli_cell_step;

/* The rows and units of a call: units in panels of the tile, of which the last may be shorter. */
typedef struct sli_cell_share {
    const int *row; /* [rows], ascending */
    const int *at;  /* [rows] the same rows in gates and dz */
    int rows;
    int first, last; /* units */
    float *tile;     /* forward: [panels][rows][vectors * lanes], see panel.h; may be overwritten */
    const float *in; /* forward: W x, as in the tile, but `in_panel` floats from panel to panel */
    ptrdiff_t in_panel;
    int vectors;
    int gap; /* forward: columns from a gate to the next where units are fewer than a vector */
} sli_cell_share;

/* Of two products in a step: `first` is on the tiles of the first one, `forward` on those of the last; backward `second` is on the tiles
 * of that before the last, after `backward`. */
typedef struct sli_fused_cell {
    void (*forward)(const sli_cell_step *step, const sli_cell_share *share);
    void (*backward)(const sli_cell_step *step, const sli_cell_share *share);
    void (*first)(const sli_cell_step *step, const sli_cell_share *share);
    void (*second)(const sli_cell_step *step, const sli_cell_share *share);
} sli_fused_cell;

typedef struct sli_fused_ops {
    sli_fused_cell lstm, lstm_projected, gru, gru_before, rnn;
    int streams;            /* gates of which so many floats fill a line may be written past the caches; 0: none */
    void (*streamed)(void); /* after steps with `stream`, before others read gates */
    /* dh = (add: +=) d tile, with d = drop or 1: what came back through R, tile of [panels][rows][vectors * lanes] units */
    void (*take)(const sli_cell_step *step, const sli_cell_share *share, bool add);
} sli_fused_ops;

#endif
