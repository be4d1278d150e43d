/* GRU, one unit of one row at one step: forward and backward, both forms. See lstm.h for how these functions are used.
 *
 * With u = W x + b the input side, s = R (d h') + b' the recurrent side (d the recurrent dropout factor, 1 without), h' the
 * state before the step:
 *   r = gate_act(u_r + s_r)     z = gate_act(u_z + s_z)
 *   n = act(u_n + r s_n)        reset after the product
 *   n = act(u_n + s_n)          CELL_RESET_BEFORE: s_n = R_n (r d h') + b'_n, so r is formed first, by cell_gru_reset
 *   q = (1 - z) n + z h'
 *   h = zone_h h' + (1 - zone_h) q    CELL_ZONEOUT_H, else q
 *   h = h' where valid = 0            CELL_MASK */
#ifndef CELL_GRU_H
#define CELL_GRU_H

#include "activations.h"

typedef struct cell_gru_args {
    cell_real zone_h;
    cell_real valid; /* 0 = masked */
} cell_gru_args;

typedef struct cell_gru_pre {
    cell_real r;    /* u_r + s_r; with CELL_RESET_BEFORE r itself, activated */
    cell_real z;    /* u_z + s_z */
    cell_real n, s; /* u_n, s_n */
} cell_gru_pre;

typedef struct cell_gru_gates {
    cell_real r, z, n;
} cell_gru_gates;

typedef struct cell_gru_forward_result {
    cell_gru_gates gates; /* activated: saved for backward, with s_n for reset after */
    cell_real h;
} cell_gru_forward_result;

/* First stage of CELL_RESET_BEFORE: r. The caller multiplies R_n with r d h'. */
CELL_FN cell_real cell_gru_reset(int gate_act, cell_real z_r) {
    return cell_act(gate_act, z_r);
}

CELL_FN cell_gru_forward_result cell_gru_forward(int options, int act, int gate_act, cell_gru_pre pre, cell_real h_prev,
                                                 cell_gru_args args) {
    cell_gru_forward_result result;
    result.gates.r = options & CELL_RESET_BEFORE ? pre.r : cell_act(gate_act, pre.r);
    result.gates.z = cell_act(gate_act, pre.z);
    cell_real s = pre.s;
    if (!(options & CELL_RESET_BEFORE)) s *= result.gates.r;
    result.gates.n = cell_act(act, pre.n + s);
    cell_real q = (1.0f - result.gates.z) * result.gates.n + result.gates.z * h_prev;
    result.h = q;
    if (options & CELL_ZONEOUT_H) result.h = args.zone_h * h_prev + (1.0f - args.zone_h) * q;
    if (options & CELL_MASK) result.h = cell_valid(args.valid, result.h, h_prev);
    return result;
}

typedef struct cell_gru_backward_result {
    cell_gru_gates
        dz; /* of the input side: u_r, u_z, u_n; s_r and s_z have the same. CELL_RESET_BEFORE: dz.r is 0, see below */
    cell_real ds_n;    /* of s_n */
    cell_real dh_prev; /* = pointwise part of dh'; what comes back through R is to be added, times d */
} cell_gru_backward_result;

/* dh: gradient of the h that the step left; s: s_n (reset after only).
 *   dq = (1 - zone_h) dh    dz_n = dq (1 - z) act'    dz_z = dq (h' - n) gate_act'
 *   ds_n = r dz_n and dz_r = dz_n s_n gate_act'  (reset after);  ds_n = dz_n (before)
 *   dh' = zone_h dh + dq z */
CELL_FN cell_gru_backward_result cell_gru_backward(int options, int act, int gate_act, cell_gru_gates gates,
                                                   cell_real s, cell_real h_prev, cell_real dh, cell_gru_args args) {
    cell_gru_backward_result result;
    cell_real dq = dh;
    result.dh_prev = cell_set(0.0f);
    if (options & CELL_ZONEOUT_H) {
        dq = (1.0f - args.zone_h) * dh;
        result.dh_prev = args.zone_h * dh;
    }
    result.dz.n = dq * (1.0f - gates.z) * cell_act_slope(act, gates.n);
    result.dz.z = dq * (h_prev - gates.n) * cell_act_slope(gate_act, gates.z);
    result.dh_prev += dq * gates.z;
    if (options & CELL_RESET_BEFORE) {
        result.dz.r = cell_set(0.0f);
        result.ds_n = result.dz.n;
    } else {
        result.dz.r = result.dz.n * s * cell_act_slope(gate_act, gates.r);
        result.ds_n = result.dz.n * gates.r;
    }
    if (options & CELL_MASK) {
        const cell_real zero = cell_set(0.0f);
        result.dz.r = cell_valid(args.valid, result.dz.r, zero);
        result.dz.z = cell_valid(args.valid, result.dz.z, zero);
        result.dz.n = cell_valid(args.valid, result.dz.n, zero);
        result.ds_n = cell_valid(args.valid, result.ds_n, zero);
        result.dh_prev = cell_valid(args.valid, result.dh_prev, dh);
    }
    return result;
}

typedef struct cell_gru_reset_backward_result {
    cell_real dz_r;      /* of u_r + s_r */
    cell_real d_dropped; /* += to the gradient of d h' */
} cell_gru_reset_backward_result;

/* Second stage of CELL_RESET_BEFORE, with e = R_n^T ds_n (0 at a masked step) and dropped = d h':
 *   dz_r = e dropped gate_act'    d(d h') += r e */
CELL_FN cell_gru_reset_backward_result cell_gru_reset_backward(int gate_act, cell_real r, cell_real e,
                                                               cell_real dropped) {
    cell_gru_reset_backward_result result;
    result.dz_r = e * dropped * cell_act_slope(gate_act, r);
    result.d_dropped = r * e;
    return result;
}

#endif
