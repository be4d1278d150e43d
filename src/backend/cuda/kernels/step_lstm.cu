/* cuda:step: one step of LSTM, forward and backward, after the recurrent product; a projection's two extra stages. The
 * mathematics is src/cell/lstm.h. */
#include "backend/cuda/kernels/step_cells.cuh"

template <int V, bool PLAIN>
static __global__ void __launch_bounds__(STEP_THREADS) lstm_forward(const __grid_constant__ step_forward_args a) {
    const int options = PLAIN ? 0 : a.k.options, j = step_unit<V>(), H = a.k.H;
    step_let_next_in();
    if (j >= H) return;
    for (int row = step_row(); row < a.k.B; row += step_row_stride()) {
        const size_t at = (size_t)row * a.k.us + j;
        const unsigned flags = step_flags_of(a.k, row);
        float z[4][V], s[4][V], c[V], h_old[V], h[V], m[V];
#pragma unroll
        for (int g = 0; g < 4; g++) step_load<V, true>(z[g], a.u + at + (size_t)g * H);
        step_load<V>(c, a.c_from + (size_t)row * H + j);
        const bool hidden = !PLAIN && a.h_from && !(options & CELL_PROJECTION);
        step_load_or_zero<V>(h_old, hidden ? a.h_from : nullptr, (size_t)row * a.h_from_row + j);
        step_wait();
        step_load_sums<4, V>(s, a.s, at, (size_t)H);
        step_lstm_cells<V, PLAIN>(a, row, j, flags, z, s, c, h_old, h, m);
        if (!PLAIN && (options & CELL_PROJECTION)) {
            const size_t operand_at = (size_t)row * a.k.ms;
            step_operand<V>(a.k.math, a.operand_m, operand_at + j, m);
            if (j + V >= H) step_operand_tail(a.k.math, step_operand_row(a.k.math, a.operand_m, operand_at), H, a.k.ms);
        } else {
            step_put_h<V>(a, row, j, flags, h);
        }
    }
}

/* h = zh h' + (1 - zh) W_p m, or h' where masked. */
static __global__ void __launch_bounds__(STEP_THREADS) project_forward(const __grid_constant__ step_forward_args a) {
    const int j = step_unit<1>();
    if (j >= a.k.O) return;
    for (int row = step_row(); row < a.k.B; row += step_row_stride()) {
        const unsigned flags = step_flags_of(a.k, row);
        float old[1], h[1];
        step_load_or_zero<1>(old, a.h_from, (size_t)row * a.h_from_row + j);
        step_wait();
        h[0] = a.q[(size_t)row * a.k.O + j];
        if (a.k.options & CELL_ZONEOUT_H) {
            const float keep = step_zone_weight(a.k.zone_h, a.k, row, j, a.k.O);
            h[0] = keep * old[0] + (1.0f - keep) * h[0];
        }
        if (!(flags & SLI_STEP_VALID)) h[0] = old[0];
        step_put_h<1>(a, row, j, flags, h);
    }
}

template <int V, bool PLAIN>
static __global__ void __launch_bounds__(STEP_THREADS) lstm_backward(const __grid_constant__ step_backward_args a) {
    const int options = PLAIN ? 0 : a.k.options, act = PLAIN ? (int)CELL_ACT_TANH : a.k.act;
    const int gate_act = PLAIN ? (int)CELL_ACT_SIGMOID : a.k.gate_act, j = step_unit<V>(), H = a.k.H;
    const bool project = !PLAIN && (options & CELL_PROJECTION);
    step_let_next_in();
    if (j >= H) return;
    for (int row = step_row(); row < a.k.B; row += step_row_stride()) {
        const size_t at = (size_t)row * a.k.us + j, state = (size_t)row * H + j, to = (size_t)row * a.k.zs + j;
        const unsigned flags = step_flags_of(a.k, row);
        float g[4][V], c[V], v[V], dc[V], dh[V], dy[V], pw[V], m[V];
#pragma unroll
        for (int k = 0; k < 4; k++) step_load<V, true>(g[k], a.gates + at + (size_t)k * H);
        step_load<V>(c, a.c_from + state);
        step_load<V>(v, a.v + state);
        step_load_or_zero<V>(dc, a.dc_from, state);
        if (!project) step_dh_early<V>(a, row, j, flags, dh, dy);
        step_wait();
        if (project)
            step_load<V>(dh, a.dm + (size_t)row * a.k.ms + j);
        else
            step_dh_late<V>(a, row, j, dh, dy);
#pragma unroll
        for (int n = 0; n < V; n++) {
            const cell_lstm_gates gates = {g[0][n], g[1][n], g[2][n], g[3][n]};
            const cell_lstm_backward_result r = cell_lstm_backward(
                options, act, gate_act, gates, v[n], c[n], dh[n], dc[n], step_lstm_args<PLAIN>(a.k, row, j + n, flags));
            if (!PLAIN && a.dpeep) {
                float *peep = a.dpeep + (size_t)row * 3 * H + j + n;
                peep[0] = r.dz.i * c[n];
                peep[H] = r.dz.f * c[n];
                peep[2 * (size_t)H] = r.dz.o * v[n];
            }
            m[n] = project ? gates.o * cell_act(act, v[n]) : 0.0f;
            g[0][n] = r.dz.i;
            g[1][n] = r.dz.f;
            g[2][n] = r.dz.g;
            g[3][n] = r.dz.o;
            dc[n] = r.dc_prev;
            pw[n] = r.dh_prev;
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            step_operand<V, true>(a.k.math, a.dz, to + (size_t)k * H, g[k]);
            step_put_wide<V>(a.wide, row, k * H + j, g[k]);
        }
        if (j + V >= H)
            step_operand_tail(a.k.math, step_operand_row(a.k.math, a.dz, (size_t)row * a.k.zs), 4 * (int64_t)H, a.k.zs);
        step_store<V>(a.dc_to + state, dc);
        if (!PLAIN && !project && a.pw_to) step_store<V>(a.pw_to + state, pw);
        if (project) {
            const size_t operand_at = (size_t)row * a.k.ms;
            step_operand<V>(a.k.math, a.operand_m, operand_at + j, m);
            if (j + V >= H) step_operand_tail(a.k.math, step_operand_row(a.k.math, a.operand_m, operand_at), H, a.k.ms);
        }
    }
}

/* dq = (1 - zh) dh, pw = zh dh; 0 and dh where masked. */
static __global__ void __launch_bounds__(STEP_THREADS) project_backward(const __grid_constant__ step_backward_args a) {
    const int j = step_unit<1>();
    if (j >= a.k.O) return;
    for (int row = step_row(); row < a.k.B; row += step_row_stride()) {
        const unsigned flags = step_flags_of(a.k, row);
        float dh[1], dy[1], dq[1];
        step_dh_early<1>(a, row, j, flags, dh, dy);
        float keep = a.k.options & CELL_ZONEOUT_H ? step_zone_weight(a.k.zone_h, a.k, row, j, a.k.O) : 0.0f;
        if (!(flags & SLI_STEP_VALID)) keep = 1.0f;
        step_wait();
        step_dh_late<1>(a, row, j, dh, dy);
        dq[0] = keep == 1.0f ? 0.0f : (1.0f - keep) * dh[0];
        const size_t operand_at = (size_t)row * a.k.hs;
        step_operand<1>(a.k.math, a.dq, operand_at + j, dq);
        if (j + 1 >= a.k.O) step_operand_tail(a.k.math, step_operand_row(a.k.math, a.dq, operand_at), a.k.O, a.k.hs);
        if (a.pw_to) a.pw_to[(size_t)row * a.k.O + j] = keep * dh[0];
    }
}

void sli_step_lstm_forward(const step_way *way, const step_forward_args *a, bool dependent) {
    const bool simple = step_plain(&a->k) && !a->h_to;
    const bool aligned = sli_step_aligned(a->y) && sli_step_aligned(a->h_last) && sli_step_aligned(a->c_last);
    const int vector = simple && aligned ? sli_step_vector(&way->s, sli_cuda_caps_of(way->queue)) : 1;
    const sli_step_grid grid = step_cells_grid(way, vector);
    void (*kernel)(step_forward_args) = lstm_forward<1, false>;
    if (simple) kernel = vector == 4 ? lstm_forward<4, true> : lstm_forward<1, true>;
    sli_step_launch(way, kernel, &grid, a, dependent, "launch of the LSTM cell");
}

void sli_step_lstm_backward(const step_way *way, const step_backward_args *a, bool dependent) {
    const bool simple = step_plain(&a->k) && !a->pw_to;
    const bool aligned = sli_step_aligned(a->dy) && sli_step_aligned(a->pw_from) && sli_step_aligned(a->dc_from);
    const int vector = simple && aligned ? sli_step_vector(&way->s, sli_cuda_caps_of(way->queue)) : 1;
    const sli_step_grid grid = step_cells_grid(way, vector);
    void (*kernel)(step_backward_args) = lstm_backward<1, false>;
    if (simple) kernel = vector == 4 ? lstm_backward<4, true> : lstm_backward<1, true>;
    sli_step_launch(way, kernel, &grid, a, dependent, "launch of the LSTM cell's gradient");
}

void sli_step_project_forward(const step_way *way, const step_forward_args *a, bool dependent) {
    const sli_step_grid grid = sli_step_grid_of(way->s.O, way->s.B, 1);
    sli_step_launch(way, project_forward, &grid, a, dependent, "launch of the LSTM projection");
}

void sli_step_project_backward(const step_way *way, const step_backward_args *a, bool dependent) {
    const sli_step_grid grid = sli_step_grid_of(way->s.O, way->s.B, 1);
    sli_step_launch(way, project_backward, &grid, a, dependent, "launch of the LSTM projection's gradient");
}
