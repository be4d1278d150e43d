/* LSTM, one unit of one row at one step: forward and backward, every pointwise option. Scalars in, scalars out; the caller
 * loops over units and rows and does the matrix products. `options` (CELL_* bits), `act` and `gate_act` (CELL_ACT_*) are
 * constants that fold.
 *
 * With z = W x + R h' + b the pre-activations, c', h' the state before the step:
 *   i = gate_act(z_i + p_i c')                     peephole terms with CELL_PEEPHOLE
 *   f = gate_act(z_f + p_f c' + forget_bias)       forget_bias with CELL_FORGET_AT_RUN
 *   g = act(z_g)
 *   v = clip(f c' + i g)                           clipped to +-clip with CELL_CLIP
 *   o = gate_act(z_o + p_o v)
 *   m = o act(v)
 *   c = zone_c c' + (1 - zone_c) v                 CELL_ZONEOUT_C, else v
 *   h = zone_h h' + (1 - zone_h) m                 CELL_ZONEOUT_H, else m; with CELL_PROJECTION h = W_p m is the caller's
 *   c = c', h = h' where valid = 0                 CELL_MASK
 * Training draws zone_* as 1 (kept) or 0; inference sets it to the probability. */
#ifndef CELL_LSTM_H
#define CELL_LSTM_H

#include "activations.h"

/* What one unit of a layer is given beside the pre-activations. Fields of options that are off are not read. */
typedef struct cell_lstm_args {
    cell_real peep_i, peep_f, peep_o;
    cell_real forget_bias, clip;
    cell_real zone_h, zone_c;
    cell_real valid; /* 0 = masked */
} cell_lstm_args;

typedef struct cell_lstm_gates {
    cell_real i, f, g, o;
} cell_lstm_gates;

typedef struct cell_lstm_forward_result {
    cell_lstm_gates gates; /* activated: saved for backward */
    cell_real v;           /* clipped c before zoneout: saved; equal to c without zoneout and mask */
    cell_real m;           /* o act(v): what a projection multiplies */
    cell_real c, h;        /* new state; h = m with CELL_PROJECTION */
} cell_lstm_forward_result;

CELL_FN cell_lstm_forward_result cell_lstm_forward(int options, int act, int gate_act, cell_lstm_gates z,
                                                   cell_real c_prev, cell_real h_prev, cell_lstm_args args) {
    cell_lstm_forward_result r;
    if (options & CELL_PEEPHOLE) {
        z.i += args.peep_i * c_prev;
        z.f += args.peep_f * c_prev;
    }
    if (options & CELL_FORGET_AT_RUN) z.f += args.forget_bias;
    r.gates.i = cell_act(gate_act, z.i);
    r.gates.f = cell_act(gate_act, z.f);
    r.gates.g = cell_act(act, z.g);
    r.v = r.gates.f * c_prev + r.gates.i * r.gates.g;
    if (options & CELL_CLIP) r.v = cell_clamp(r.v, -args.clip, args.clip);
    if (options & CELL_PEEPHOLE) z.o += args.peep_o * r.v;
    r.gates.o = cell_act(gate_act, z.o);
    r.m = r.gates.o * cell_act(act, r.v);
    r.c = r.v;
    r.h = r.m;
    if (options & CELL_ZONEOUT_C) r.c = args.zone_c * c_prev + (1.0f - args.zone_c) * r.v;
    if ((options & CELL_ZONEOUT_H) && !(options & CELL_PROJECTION))
        r.h = args.zone_h * h_prev + (1.0f - args.zone_h) * r.m;
    if (options & CELL_MASK) {
        r.c = cell_valid(args.valid, r.c, c_prev);
        if (!(options & CELL_PROJECTION)) r.h = cell_valid(args.valid, r.h, h_prev);
    }
    return r;
}

typedef struct cell_lstm_backward_result {
    cell_lstm_gates dz; /* gradients of the pre-activations; 0 at a masked step */
    cell_real dc_prev;  /* = whole gradient of c' */
    cell_real dh_prev;  /* = pointwise part of h' (zoneout, mask); R^T dz is to be added. 0 with CELL_PROJECTION */
} cell_lstm_backward_result;

/* dh, dc: gradients of the state that the step left (h and c above); with CELL_PROJECTION dh is the gradient of m.
 *   dm = (1 - zone_h) dh             dv = (1 - zone_c) dc + dm o act'(v) + p_o dz_o,  dz_o = dm act(v) gate_act'
 *   du = dv where |v| < clip else 0
 *   dz_i = du g gate_act'   dz_f = du c' gate_act'   dz_g = du i act'
 *   dc' = zone_c dc + du f + p_i dz_i + p_f dz_f     dh' = zone_h dh (+ R^T dz by the caller)
 * The gradients of the peephole weights are dz_i c', dz_f c', dz_o v. */
CELL_FN cell_lstm_backward_result cell_lstm_backward(int options, int act, int gate_act, cell_lstm_gates gates,
                                                     cell_real v, cell_real c_prev, cell_real dh, cell_real dc,
                                                     cell_lstm_args args) {
    cell_lstm_backward_result r;
    cell_real dm = dh, dv = dc, a = cell_act(act, v);
    r.dh_prev = cell_set(0.0f);
    r.dc_prev = cell_set(0.0f);
    if ((options & CELL_ZONEOUT_H) && !(options & CELL_PROJECTION)) {
        dm = (1.0f - args.zone_h) * dh;
        r.dh_prev = args.zone_h * dh;
    }
    if (options & CELL_ZONEOUT_C) {
        dv = (1.0f - args.zone_c) * dc;
        r.dc_prev = args.zone_c * dc;
    }
    r.dz.o = dm * a * cell_act_slope(gate_act, gates.o);
    dv += dm * gates.o * cell_act_slope(act, a);
    if (options & CELL_PEEPHOLE) dv += args.peep_o * r.dz.o;
    if (options & CELL_CLIP) dv = cell_less(cell_abs(v), args.clip, dv, cell_set(0.0f));
    r.dz.i = dv * gates.g * cell_act_slope(gate_act, gates.i);
    r.dz.f = dv * c_prev * cell_act_slope(gate_act, gates.f);
    r.dz.g = dv * gates.i * cell_act_slope(act, gates.g);
    r.dc_prev += dv * gates.f;
    if (options & CELL_PEEPHOLE) r.dc_prev += args.peep_i * r.dz.i + args.peep_f * r.dz.f;
    if (options & CELL_MASK) {
        const cell_real zero = cell_set(0.0f);
        r.dz.i = cell_valid(args.valid, r.dz.i, zero);
        r.dz.f = cell_valid(args.valid, r.dz.f, zero);
        r.dz.g = cell_valid(args.valid, r.dz.g, zero);
        r.dz.o = cell_valid(args.valid, r.dz.o, zero);
        r.dc_prev = cell_valid(args.valid, r.dc_prev, dc);
        if (!(options & CELL_PROJECTION)) r.dh_prev = cell_valid(args.valid, r.dh_prev, dh);
    }
    return r;
}

#endif
