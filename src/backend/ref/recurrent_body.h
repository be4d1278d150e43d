/* LSTM, GRU and simple RNN, one (step, row) after the other. Included per type, see real_f32.h.
 *
 * Names: h', c' the carried state before the step, [O] and [H]; d the recurrent dropout factors of the row (0 or 1/(1-p), one
 * mask for all steps and gates; 1 outside training); zh, zc the zoneout weights of the old value. Matrix products see d*h',
 * everything pointwise sees h'.
 *   u_g = W_g x + b_g       input side        (zx below)
 *   s_g = R_g (d h') + b'_g recurrent side    (zr below)
 * A masked step carries h and c unchanged, computes nothing, and has no gradient of its own.
 *
 * Sums over time of parameter gradients go straight into d_param, from the step processed last to the first, rows ascending:
 * cutting a sequence into segments does not change one addition. */

/* Proofs, sli_call.moved: x off by a part of `most`. The part comes from x and the draw's number alone. */
static REAL NAME(moved)(const sli_call *call, REAL x, double most) {
    const double wide = (double)x;
    uint64_t bits;
    if (call->moved == 0) return x;
    memcpy(&bits, &wide, sizeof bits);
    bits = (bits + (uint64_t)call->moved) * 0x9E3779B97F4A7C15u;
    bits = (bits ^ bits >> 29) * 0xBF58476D1CE4E5B9u;
    return (REAL)(wide + (double)(int64_t)(bits ^ bits >> 32) * 0x1p-63 * most);
}
/* out[count] = bias + M v. Pre-activations, whose terms are about 1, by what sums in f32 err by and activations, in bf16 from tanh.approx; a projection by sums
 * that are added one after the other, of whatever size. */
static void NAME(move_sums)(const sli_call *call, const REAL *matrix, const REAL *v, int count, int width, REAL *out) {
    const bool projects = matrix == call->param[SLI_RNN_PROJECTION];
    for (int g = 0; g < count && call->moved != 0; g++) {
        const double size = fabs((double)out[g]), ulps = 1 + sqrt((double)width);
        double squares = 0, most = fmax(0x1p-24 * ulps, call->operands == SL_BF16 ? 0x1p-17 : 0) * (size + 1);
        for (int k = 0; projects && k < width; k++) {
            const double term = (double)(matrix[(size_t)g * width + k] * v[k]);
            squares += term * term;
        }
        if (projects) most = 0x1p-24 * (size + sqrt(width * squares));
        out[g] = NAME(moved)(call, out[g], most);
    }
}
/* What h is rounded to: in tf32 by some kernels, cut by others, or neither, by turns of draws. */
static sl_dtype NAME(operands_of)(const sli_call *call) {
    static const sl_dtype turns[] = {SL_DTYPE_DEFAULT, SLI_TF32_CUT, SL_TF32};
    return call->moved == 0 || call->operands != SL_TF32 ? call->operands : turns[call->moved % 3];
}
/* A gradient before it is multiplied, by its rounding as an operand. */
static REAL NAME(moved_gradient)(const sli_call *call, REAL x) {
    const sl_dtype type = call->operands;
    const bool eleven = type == SL_F16 || type == SL_TF32 || type == SLI_TF32_CUT;
    return NAME(moved)(call, x, fabs((double)x) * (type == SL_BF16 ? 0x1p-9 : eleven ? 0x1p-12 : 0x1p-24));
}

/* An activation, by what smooth ones err by: its slope is formed from it, and near 1 is made of that alone. */
static REAL NAME(activated)(const sli_call *call, sl_activation kind, REAL x) {
    const bool smooth = kind == SL_ACT_TANH || kind == SL_ACT_SIGMOID || kind == SL_ACT_SOFTSIGN;
    return NAME(moved)(call, NAME(activate)(kind, x), !smooth ? 0 : call->operands == SL_BF16 ? 0x1p-17 : 0x1p-23);
}

/* out[count] = bias + M v: matrix [count][width]; bias may be NULL. v is rounded to call->operands, piece by piece. Four rows
 * at a time, each a sum of its own, so that an addition need not wait for the one before; past the last row, that one again. */
static void NAME(product)(const sli_call *call, const REAL *matrix, const REAL *bias, const REAL *v, int count,
                          int width, REAL *out) {
    enum { PIECE = 64, ROWS = 4 };
    REAL piece[PIECE];
    const sl_dtype type = NAME(operands_of)(call);
    if (call->operands == SL_I8) {
        NAME(product_i8)(matrix, bias, v, count, width, out);
        NAME(move_sums)(call, matrix, v, count, width, out);
        return;
    }
    for (int g = 0; g < count; g++) out[g] = bias ? bias[g] : 0;
    for (int first = 0; first < width; first += PIECE) {
        int n = width - first < PIECE ? width - first : PIECE;
        for (int k = 0; k < n; k++)
            piece[k] = type == SL_DTYPE_DEFAULT ? v[first + k] : (REAL)sli_round_to(type, (double)v[first + k]);
        for (int g = 0; g < count; g += ROWS) {
            const REAL *row[ROWS];
            REAL sum[ROWS];
            for (int r = 0; r < ROWS; r++) {
                const int at = g + r < count ? g + r : count - 1;
                row[r] = matrix + (size_t)at * width + first;
                sum[r] = out[at];
            }
            for (int k = 0; k < n; k++)
                for (int r = 0; r < ROWS; r++) sum[r] += row[r][k] * piece[k];
            for (int r = 0; r < ROWS && g + r < count; r++) out[g + r] = sum[r];
        }
    }
    NAME(move_sums)(call, matrix, v, count, width, out);
}

/* Backward of product: d_matrix += dz v^T, d_bias += dz, dv += matrix^T dz; each may be NULL. */
static void NAME(product_back)(const sli_call *call, const REAL *restrict matrix, const REAL *restrict v,
                               const REAL *restrict dz, int count, int width, REAL *restrict d_matrix,
                               REAL *restrict d_bias, REAL *restrict dv) {
    for (int g = 0; g < count; g++) {
        const size_t row = (size_t)g * width;
        const REAL z = NAME(moved_gradient)(call, dz[g]);
        if (d_bias) d_bias[g] += z;
        for (int k = 0; d_matrix && k < width; k++) d_matrix[row + k] += z * v[k];
        for (int k = 0; dv && k < width; k++) dv[k] += matrix[row + k] * z;
    }
}

/* Input side of all gates at step t: zx[G*H] = W x + b. */
static void NAME(input_side)(const sli_call *call, int t, int row, REAL *zx) {
    const sli_problem *p = &call->problem;
    const REAL *x = (const REAL *)call->in[SLI_RNN_X] + ((size_t)t * p->batch + row) * p->inputs;
    NAME(product)
    (call, call->param[SLI_RNN_KERNEL], call->param[SLI_RNN_BIAS], x, sli_op_gates(p->op) * p->units, p->inputs, zx);
}

/* Backward of input_side: d_kernel, d_bias +=; dX = or += W^T dz. dz NULL: a masked step. */
static void NAME(input_side_back)(const sli_call *call, int t, int row, const REAL *dz) {
    enum { PIECE = 64 };
    const sli_problem *p = &call->problem;
    size_t at = ((size_t)t * p->batch + row) * p->inputs;
    const REAL *x = (const REAL *)call->in[SLI_RNN_X] + at;
    REAL *dx = call->d_in[SLI_RNN_X];
    int count = sli_op_gates(p->op) * p->units;
    if (dx) {
        dx += at;
        for (int first = 0; first < p->inputs; first += PIECE) {
            const REAL *kernel = (const REAL *)call->param[SLI_RNN_KERNEL] + first;
            const int n = p->inputs - first < PIECE ? p->inputs - first : PIECE;
            REAL sum[PIECE] = {0};
            for (int g = 0; dz && g < count; g++) {
                const REAL z = NAME(moved_gradient)(call, dz[g]);
                for (int k = 0; k < n; k++) sum[k] += kernel[(size_t)g * p->inputs + k] * z;
            }
            for (int k = 0; k < n; k++)
                dx[first + k] = sli_ref_accumulates(call, SLI_RNN_X) ? dx[first + k] + sum[k] : sum[k];
        }
    }
    if (dz) NAME(product_back)
    (call, call->param[SLI_RNN_KERNEL], x, dz, count, p->inputs, call->d_param[SLI_RNN_KERNEL],
     call->d_param[SLI_RNN_BIAS], NULL);
}

/* Recurrent side of gates [first, first + gates): zr[gates*H] = R v + b'; v [O]. */
static void NAME(recurrent_side)(const sli_call *call, int first, int gates, const REAL *v, REAL *zr) {
    int H = call->problem.units, O = sli_problem_output(&call->problem);
    const REAL *bias = call->param[SLI_RNN_RECURRENT_BIAS];
    NAME(product)
    (call, (const REAL *)call->param[SLI_RNN_RECURRENT] + (size_t)first * H * O, bias ? bias + first * H : NULL, v,
     gates * H, O, zr);
}

/* Backward: d_recurrent, d_recurrent_bias +=; dv += R^T dz. */
static void NAME(recurrent_side_back)(const sli_call *call, int first, int gates, const REAL *v, const REAL *dz,
                                      REAL *dv) {
    int H = call->problem.units, O = sli_problem_output(&call->problem);
    REAL *d_matrix = call->d_param[SLI_RNN_RECURRENT], *d_bias = call->d_param[SLI_RNN_RECURRENT_BIAS];
    NAME(product_back)
    (call, (const REAL *)call->param[SLI_RNN_RECURRENT] + (size_t)first * H * O, v, dz, gates * H, O,
     d_matrix ? d_matrix + (size_t)first * H * O : NULL, d_bias ? d_bias + first * H : NULL, dv);
}

/* dropped[O] = d h'. */
static void NAME(drop)(const sli_call *call, int row, const REAL *h, REAL *dropped) {
    int O = sli_problem_output(&call->problem);
    for (int j = 0; j < O; j++) dropped[j] = (REAL)recurrent_factor(call, row, j) * h[j];
}

/* h[O] = zh h' + (1 - zh) fresh, in place of h'. */
static void NAME(zoneout_h)(const sli_call *call, int t, int row, const REAL *fresh, REAL *h) {
    int O = sli_problem_output(&call->problem);
    for (int j = 0; j < O; j++) {
        REAL keep = (REAL)zoneout_weight(call, SLI_PURPOSE_ZONEOUT_H, call->problem.zoneout_h, t, row, j, O);
        h[j] = call->problem.zoneout_h > 0 ? keep * h[j] + (1 - keep) * fresh[j] : fresh[j];
    }
}

/* Backward: d_fresh = (1 - zh) dh, dh = zh dh (the pointwise part of dh'). */
static void NAME(zoneout_h_back)(const sli_call *call, int t, int row, REAL *dh, REAL *d_fresh) {
    int O = sli_problem_output(&call->problem);
    for (int j = 0; j < O; j++) {
        REAL keep = (REAL)zoneout_weight(call, SLI_PURPOSE_ZONEOUT_H, call->problem.zoneout_h, t, row, j, O);
        d_fresh[j] = (1 - keep) * dh[j];
        dh[j] = keep * dh[j];
    }
}

/* Y at step t: h, or what masked_output asks for at a masked step. */
static void NAME(store_output)(const sli_call *call, int t, int row, const REAL *h) {
    int O = sli_problem_output(&call->problem);
    REAL *y = call->out[SLI_RNN_Y];
    if (!y) return;
    y += ((size_t)t * call->problem.batch + row) * O;
    bool show = sli_ref_valid(call, t, row) || repeats_output(call, t, row);
    for (int j = 0; j < O; j++) y[j] = show ? h[j] : 0;
}

/* Backward: dh[O] += dY at step t where Y was h. */
static void NAME(output_back)(const sli_call *call, int t, int row, REAL *dh) {
    int O = sli_problem_output(&call->problem);
    const REAL *dy = call->d_out[SLI_RNN_Y];
    if (!dy || !(sli_ref_valid(call, t, row) || repeats_output(call, t, row))) return;
    dy += ((size_t)t * call->problem.batch + row) * O;
    for (int j = 0; j < O; j++) dh[j] += dy[j];
}

/* to[count] = from, or 0 without. */
static void NAME(load)(const void *from, REAL *to, size_t count) {
    for (size_t k = 0; k < count; k++) to[k] = from ? ((const REAL *)from)[k] : 0;
}

/* d_in[index][count] = or += from. */
static void NAME(give)(const sli_call *call, int index, const REAL *from, size_t count) {
    REAL *to = call->d_in[index];
    for (size_t k = 0; to && k < count; k++) to[k] = sli_ref_accumulates(call, index) ? to[k] + from[k] : from[k];
}

/* What forward saves of one (step, row); sizes are those of record_reals. */
static REAL *NAME(record)(const sli_call *call, int t, int row) {
    if (!call->training || !call->saved) return NULL;
    return (REAL *)call->saved + ((size_t)t * call->problem.batch + row) * record_reals(&call->problem);
}

/* ---------------------------------------------------------------------------------------------------------- LSTM --
 *   i = ra(u_i + s_i + p_i c')   f = ra(u_f + s_f + p_f c' + forget_bias)   g = a(u_g + s_g)
 *   raw = f c' + i g             v = clip(raw)       o = ra(u_o + s_o + p_o v)      m = o a(v)
 *   c = zc c' + (1 - zc) v       q = m or W_p m      h = zh h' + (1 - zh) q
 * Record: h' [O], c' [H], i f g o [4H], raw [H]. */
static REAL NAME(clip)(const sli_problem *p, REAL x) {
    REAL limit = (REAL)p->cell_clip;
    if (!(limit > 0)) return x;
    return x > limit ? limit : x < -limit ? -limit : x;
}

/* One row: z[4H] pre-activations in, gates out; c[H] in and out; m[H], raw[H] out. */
static void NAME(lstm_cell)(const sli_call *call, int t, int row, REAL *z, REAL *c, REAL *raw, REAL *m) {
    const sli_problem *p = &call->problem;
    const int H = p->units;
    const REAL *peep = call->param[SLI_RNN_PEEPHOLE];
    for (int j = 0; j < H; j++) {
        REAL old = c[j];
        if (p->peephole) {
            z[j] += peep[j] * old;
            z[H + j] += peep[H + j] * old;
        }
        if (p->forget_at_run) z[H + j] += (REAL)p->forget_bias;
        z[j] = NAME(activated)(call, gate_activation(p), z[j]);
        z[H + j] = NAME(activated)(call, gate_activation(p), z[H + j]);
        z[2 * H + j] = NAME(activated)(call, cell_activation(p), z[2 * H + j]);
        raw[j] = z[H + j] * old + z[j] * z[2 * H + j];
        REAL v = NAME(clip)(p, raw[j]);
        if (p->peephole) z[3 * H + j] += peep[2 * H + j] * v;
        z[3 * H + j] = NAME(activated)(call, gate_activation(p), z[3 * H + j]);
        m[j] = z[3 * H + j] * NAME(activated)(call, cell_activation(p), v);
        REAL keep = (REAL)zoneout_weight(call, SLI_PURPOSE_ZONEOUT_C, p->zoneout_c, t, row, j, H);
        c[j] = p->zoneout_c > 0 ? keep * old + (1 - keep) * v : v;
    }
}

static void NAME(lstm_forward)(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const int T = sli_ref_steps(p), B = p->batch, H = p->units, O = sli_problem_output(p);
    REAL *h = call->scratch, *c = h + (size_t)B * O, *z = c + (size_t)B * H, *zr = z + 4 * H, *raw = zr + 4 * H,
         *m = raw + H, *dropped = m + H, *q = dropped + O;
    NAME(load)(call->in[SLI_RNN_H0], h, (size_t)B * O);
    NAME(load)(call->in[SLI_RNN_C0], c, (size_t)B * H);
    for (int s = 0; s < T; s++)
        for (int row = 0, t = step_at(call, s); row < B; row++) {
            REAL *hr = h + (size_t)row * O, *cr = c + (size_t)row * H, *record = NAME(record)(call, t, row);
            if (sli_ref_valid(call, t, row)) {
                NAME(drop)(call, row, hr, dropped);
                NAME(input_side)(call, t, row, z);
                NAME(recurrent_side)(call, 0, 4, dropped, zr);
                for (int k = 0; k < 4 * H; k++) z[k] += zr[k];
                if (record) {
                    NAME(load)(hr, record, (size_t)O);
                    NAME(load)(cr, record + O, (size_t)H);
                }
                NAME(lstm_cell)(call, t, row, z, cr, raw, m);
                if (record) {
                    NAME(load)(z, record + O + H, (size_t)4 * H);
                    NAME(load)(raw, record + O + 5 * H, (size_t)H);
                }
                if (p->projection > 0) NAME(product)(call, call->param[SLI_RNN_PROJECTION], NULL, m, O, H, q);
                NAME(zoneout_h)(call, t, row, p->projection > 0 ? q : m, hr);
            }
            NAME(store_output)(call, t, row, hr);
        }
    if (call->out[SLI_RNN_HT]) NAME(load)(h, call->out[SLI_RNN_HT], (size_t)B * O);
    if (call->out[SLI_RNN_CT]) NAME(load)(c, call->out[SLI_RNN_CT], (size_t)B * H);
}

/* One row: dm[H] and dc[H] (in: of the new c; out: of c') and the record's gates give dz[4H]; d_peephole +=.
 *   dv = (1 - zc) dc + dm o a'(v) + p_o dz_o;  d raw = dv inside the clip, else 0;  dc' = zc dc + d raw f + p_i dz_i + p_f dz_f */
static void NAME(lstm_cell_back)(const sli_call *call, int t, int row, const REAL *old, const REAL *gates,
                                 const REAL *raw, const REAL *dm, REAL *dc, REAL *dz) {
    const sli_problem *p = &call->problem;
    const int H = p->units;
    const REAL *peep = call->param[SLI_RNN_PEEPHOLE];
    REAL *d_peep = call->d_param[SLI_RNN_PEEPHOLE];
    for (int j = 0; j < H; j++) {
        REAL i = gates[j], f = gates[H + j], g = gates[2 * H + j], o = gates[3 * H + j];
        REAL v = NAME(clip)(p, raw[j]), a = NAME(activate)(cell_activation(p), v);
        REAL keep = (REAL)zoneout_weight(call, SLI_PURPOSE_ZONEOUT_C, p->zoneout_c, t, row, j, H);
        REAL d_old = keep * dc[j], dv = (1 - keep) * dc[j];
        dz[3 * H + j] = dm[j] * a * NAME(slope)(gate_activation(p), o);
        dv += dm[j] * o * NAME(slope)(cell_activation(p), a);
        if (p->peephole) dv += peep[2 * H + j] * dz[3 * H + j];
        if (p->cell_clip > 0 && !(M(fabs)(raw[j]) < (REAL)p->cell_clip)) dv = 0;
        dz[j] = dv * g * NAME(slope)(gate_activation(p), i);
        dz[H + j] = dv * old[j] * NAME(slope)(gate_activation(p), f);
        dz[2 * H + j] = dv * i * NAME(slope)(cell_activation(p), g);
        d_old += dv * f;
        if (p->peephole) d_old += peep[j] * dz[j] + peep[H + j] * dz[H + j];
        if (p->peephole && d_peep) {
            d_peep[j] += dz[j] * old[j];
            d_peep[H + j] += dz[H + j] * old[j];
            d_peep[2 * H + j] += dz[3 * H + j] * v;
        }
        dc[j] = d_old;
    }
}

/* q = W_p m backward: d_projection += dq m^T, dm = W_p^T dq; without a projection dm = dq. m is computed again. */
static void NAME(projection_back)(const sli_call *call, const REAL *gates, const REAL *raw, const REAL *dq, REAL *m,
                                  REAL *dm) {
    const sli_problem *p = &call->problem;
    const int H = p->units;
    if (p->projection <= 0) {
        NAME(load)(dq, dm, (size_t)H);
        return;
    }
    for (int j = 0; j < H; j++) m[j] = gates[3 * H + j] * NAME(activate)(cell_activation(p), NAME(clip)(p, raw[j]));
    NAME(load)(NULL, dm, (size_t)H);
    NAME(product_back)
    (call, call->param[SLI_RNN_PROJECTION], m, dq, p->projection, H, call->d_param[SLI_RNN_PROJECTION], NULL, dm);
}

static void NAME(lstm_backward)(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const int T = sli_ref_steps(p), B = p->batch, H = p->units, O = sli_problem_output(p);
    REAL *dh = call->scratch, *dc = dh + (size_t)B * O, *dz = dc + (size_t)B * H, *dq = dz + 4 * H, *m = dq + O,
         *dm = m + H, *dropped = dm + H, *d_dropped = dropped + O;
    NAME(load)(call->d_out[SLI_RNN_HT], dh, (size_t)B * O);
    NAME(load)(call->d_out[SLI_RNN_CT], dc, (size_t)B * H);
    for (int s = T - 1; s >= 0; s--)
        for (int row = 0, t = step_at(call, s); row < B; row++) {
            REAL *dhr = dh + (size_t)row * O, *dcr = dc + (size_t)row * H;
            NAME(output_back)(call, t, row, dhr);
            if (!sli_ref_valid(call, t, row)) {
                NAME(input_side_back)(call, t, row, NULL);
                continue;
            }
            const REAL *h = NAME(record)(call, t, row), *c = h + O, *gates = c + H, *raw = gates + 4 * H;
            NAME(zoneout_h_back)(call, t, row, dhr, dq);
            NAME(projection_back)(call, gates, raw, dq, m, dm);
            NAME(lstm_cell_back)(call, t, row, c, gates, raw, dm, dcr, dz);
            NAME(drop)(call, row, h, dropped);
            NAME(load)(NULL, d_dropped, (size_t)O);
            NAME(recurrent_side_back)(call, 0, 4, dropped, dz, d_dropped);
            for (int j = 0; j < O; j++) dhr[j] += (REAL)recurrent_factor(call, row, j) * d_dropped[j];
            NAME(input_side_back)(call, t, row, dz);
        }
    NAME(give)(call, SLI_RNN_H0, dh, (size_t)B * O);
    NAME(give)(call, SLI_RNN_C0, dc, (size_t)B * H);
}

/* ----------------------------------------------------------------------------------------------------------- GRU --
 *   r = ra(u_r + s_r)   z = ra(u_z + s_z)
 *   n = a(u_n + r s_n)  reset after;   n = a(u_n + R_n (r d h') + b'_n)  reset before
 *   q = (1 - z) n + z h'   h = zh h' + (1 - zh) q
 * Record: h' [H], r z n [3H], s_n [H] (reset after). */
static void NAME(gru_forward)(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const int T = sli_ref_steps(p), B = p->batch, H = p->units;
    REAL *h = call->scratch, *z = h + (size_t)B * H, *zr = z + 3 * H, *dropped = zr + 3 * H, *q = dropped + H;
    NAME(load)(call->in[SLI_RNN_H0], h, (size_t)B * H);
    for (int s = 0; s < T; s++)
        for (int row = 0, t = step_at(call, s); row < B; row++) {
            REAL *hr = h + (size_t)row * H, *record = NAME(record)(call, t, row);
            if (sli_ref_valid(call, t, row)) {
                NAME(drop)(call, row, hr, dropped);
                NAME(input_side)(call, t, row, z);
                NAME(recurrent_side)(call, 0, p->reset_before ? 2 : 3, dropped, zr);
                for (int k = 0; k < 2 * H; k++) z[k] = NAME(activated)(call, gate_activation(p), z[k] + zr[k]);
                if (p->reset_before) {
                    for (int j = 0; j < H; j++) q[j] = z[j] * dropped[j];
                    NAME(recurrent_side)(call, 2, 1, q, zr + 2 * H);
                }
                for (int j = 0; j < H; j++) {
                    REAL sn = zr[2 * H + j], n = z[2 * H + j] + (p->reset_before ? sn : z[j] * sn);
                    z[2 * H + j] = NAME(activated)(call, cell_activation(p), n);
                    q[j] = (1 - z[H + j]) * z[2 * H + j] + z[H + j] * hr[j];
                }
                if (record) {
                    NAME(load)(hr, record, (size_t)H);
                    NAME(load)(z, record + H, (size_t)3 * H);
                    NAME(load)(zr + 2 * H, record + 4 * H, (size_t)H);
                }
                NAME(zoneout_h)(call, t, row, q, hr);
            }
            NAME(store_output)(call, t, row, hr);
        }
    if (call->out[SLI_RNN_HT]) NAME(load)(h, call->out[SLI_RNN_HT], (size_t)B * H);
}

/* One row: dq[H] to dz[3H] of the input side and dr[3H] of the recurrent side; dh[H] += the pointwise part; d_dropped[H] +=.
 *   dz_n = dq (1 - z) a'(n); dz_z = dq (h' - n) ra'(z)
 *   reset after:  dr_n = dz_n r, dz_r = dz_n s_n ra'(r)
 *   reset before: dr_n = dz_n, e = R_n^T dz_n, dz_r = e d h' ra'(r), d_dropped += r e */
static void NAME(gru_cell_back)(const sli_call *call, const REAL *h, const REAL *dropped, const REAL *dq, REAL *dh,
                                REAL *dz, REAL *dr, REAL *work, REAL *d_dropped) {
    const sli_problem *p = &call->problem;
    const int H = p->units;
    const REAL *r = h + H, *z = r + H, *n = z + H, *sn = n + H;
    REAL *reset = work, *e = work + H;
    for (int j = 0; j < H; j++) {
        dz[2 * H + j] = dq[j] * (1 - z[j]) * NAME(slope)(cell_activation(p), n[j]);
        dz[H + j] = dq[j] * (h[j] - n[j]) * NAME(slope)(gate_activation(p), z[j]);
        dh[j] += dq[j] * z[j];
        dr[2 * H + j] = p->reset_before ? dz[2 * H + j] : dz[2 * H + j] * r[j];
        dz[j] = dz[2 * H + j] * sn[j] * NAME(slope)(gate_activation(p), r[j]);
        reset[j] = r[j] * dropped[j];
        e[j] = 0;
    }
    if (p->reset_before) {
        NAME(recurrent_side_back)(call, 2, 1, reset, dr + 2 * H, e);
        for (int j = 0; j < H; j++) {
            dz[j] = e[j] * dropped[j] * NAME(slope)(gate_activation(p), r[j]);
            d_dropped[j] += e[j] * r[j];
        }
    }
    for (int k = 0; k < 2 * H; k++) dr[k] = dz[k];
}

static void NAME(gru_backward)(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const int T = sli_ref_steps(p), B = p->batch, H = p->units;
    REAL *dh = call->scratch, *dz = dh + (size_t)B * H, *dr = dz + 3 * H, *dq = dr + 3 * H, *work = dq + H,
         *dropped = work + 2 * H, *d_dropped = dropped + H;
    NAME(load)(call->d_out[SLI_RNN_HT], dh, (size_t)B * H);
    for (int s = T - 1; s >= 0; s--)
        for (int row = 0, t = step_at(call, s); row < B; row++) {
            REAL *dhr = dh + (size_t)row * H;
            NAME(output_back)(call, t, row, dhr);
            if (!sli_ref_valid(call, t, row)) {
                NAME(input_side_back)(call, t, row, NULL);
                continue;
            }
            const REAL *h = NAME(record)(call, t, row);
            NAME(zoneout_h_back)(call, t, row, dhr, dq);
            NAME(drop)(call, row, h, dropped);
            NAME(load)(NULL, d_dropped, (size_t)H);
            NAME(gru_cell_back)(call, h, dropped, dq, dhr, dz, dr, work, d_dropped);
            NAME(recurrent_side_back)(call, 0, p->reset_before ? 2 : 3, dropped, dr, d_dropped);
            for (int j = 0; j < H; j++) dhr[j] += (REAL)recurrent_factor(call, row, j) * d_dropped[j];
            NAME(input_side_back)(call, t, row, dz);
        }
    NAME(give)(call, SLI_RNN_H0, dh, (size_t)B * H);
}

/* ---------------------------------------------------------------------------------------------------- simple RNN --
 *   q = a(u + s)   h = zh h' + (1 - zh) q
 * Record: h' [H], q [H]. */
static void NAME(rnn_forward)(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const int T = sli_ref_steps(p), B = p->batch, H = p->units;
    REAL *h = call->scratch, *z = h + (size_t)B * H, *zr = z + H, *dropped = zr + H;
    NAME(load)(call->in[SLI_RNN_H0], h, (size_t)B * H);
    for (int s = 0; s < T; s++)
        for (int row = 0, t = step_at(call, s); row < B; row++) {
            REAL *hr = h + (size_t)row * H, *record = NAME(record)(call, t, row);
            if (sli_ref_valid(call, t, row)) {
                NAME(drop)(call, row, hr, dropped);
                NAME(input_side)(call, t, row, z);
                NAME(recurrent_side)(call, 0, 1, dropped, zr);
                for (int j = 0; j < H; j++) z[j] = NAME(activated)(call, cell_activation(p), z[j] + zr[j]);
                if (record) {
                    NAME(load)(hr, record, (size_t)H);
                    NAME(load)(z, record + H, (size_t)H);
                }
                NAME(zoneout_h)(call, t, row, z, hr);
            }
            NAME(store_output)(call, t, row, hr);
        }
    if (call->out[SLI_RNN_HT]) NAME(load)(h, call->out[SLI_RNN_HT], (size_t)B * H);
}

static void NAME(rnn_backward)(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const int T = sli_ref_steps(p), B = p->batch, H = p->units;
    REAL *dh = call->scratch, *dz = dh + (size_t)B * H, *dropped = dz + H, *d_dropped = dropped + H;
    NAME(load)(call->d_out[SLI_RNN_HT], dh, (size_t)B * H);
    for (int s = T - 1; s >= 0; s--)
        for (int row = 0, t = step_at(call, s); row < B; row++) {
            REAL *dhr = dh + (size_t)row * H;
            NAME(output_back)(call, t, row, dhr);
            if (!sli_ref_valid(call, t, row)) {
                NAME(input_side_back)(call, t, row, NULL);
                continue;
            }
            const REAL *h = NAME(record)(call, t, row), *q = h + H;
            NAME(zoneout_h_back)(call, t, row, dhr, dz);
            for (int j = 0; j < H; j++) dz[j] *= NAME(slope)(cell_activation(p), q[j]);
            NAME(drop)(call, row, h, dropped);
            NAME(load)(NULL, d_dropped, (size_t)H);
            NAME(recurrent_side_back)(call, 0, 1, dropped, dz, d_dropped);
            for (int j = 0; j < H; j++) dhr[j] += (REAL)recurrent_factor(call, row, j) * d_dropped[j];
            NAME(input_side_back)(call, t, row, dz);
        }
    NAME(give)(call, SLI_RNN_H0, dh, (size_t)B * H);
}
