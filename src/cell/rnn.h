/* Simple RNN, one unit of one row at one step: forward and backward. See lstm.h for how these functions are used.
 *   q = act(z), z = W x + R h' + b
 *   h = zone_h h' + (1 - zone_h) q    CELL_ZONEOUT_H, else q
 *   h = h' where valid = 0            CELL_MASK */
#ifndef CELL_RNN_H
#define CELL_RNN_H

#include "activations.h"

typedef struct cell_rnn_args {
    cell_real zone_h;
    cell_real valid; /* 0 = masked */
} cell_rnn_args;

typedef struct cell_rnn_forward_result {
    cell_real q; /* saved for backward; equal to h without zoneout and mask */
    cell_real h;
} cell_rnn_forward_result;

CELL_FN cell_rnn_forward_result cell_rnn_forward(int options, int act, cell_real z, cell_real h_prev,
                                                 cell_rnn_args args) {
    cell_rnn_forward_result result;
    result.q = cell_act(act, z);
    result.h = result.q;
    if (options & CELL_ZONEOUT_H) result.h = args.zone_h * h_prev + (1.0f - args.zone_h) * result.q;
    if (options & CELL_MASK) result.h = cell_valid(args.valid, result.h, h_prev);
    return result;
}

typedef struct cell_rnn_backward_result {
    cell_real dz;      /* gradient of the pre-activation; 0 at a masked step */
    cell_real dh_prev; /* = pointwise part of dh' (zoneout, mask); R^T dz is to be added */
} cell_rnn_backward_result;

/* dz = (1 - zone_h) dh act'(q);  dh' = zone_h dh */
CELL_FN cell_rnn_backward_result cell_rnn_backward(int options, int act, cell_real q, cell_real dh,
                                                   cell_rnn_args args) {
    cell_rnn_backward_result result;
    cell_real dq = dh;
    result.dh_prev = cell_set(0.0f);
    if (options & CELL_ZONEOUT_H) {
        dq = (1.0f - args.zone_h) * dh;
        result.dh_prev = args.zone_h * dh;
    }
    result.dz = dq * cell_act_slope(act, q);
    if (options & CELL_MASK) {
        result.dz = cell_valid(args.valid, result.dz, cell_set(0.0f));
        result.dh_prev = cell_valid(args.valid, result.dh_prev, dh);
    }
    return result;
}

#endif
