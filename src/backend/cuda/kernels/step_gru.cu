/* cuda:step: one step of GRU, forward and backward, after the recurrent product; reset before has one stage more on both
 * ways. The mathematics is src/cell/gru.h. */
#include "backend/cuda/kernels/step_cells.cuh"

/* Reset before, first stage: r in place of its pre-activation, and the operand r d h'. */
static __global__ void __launch_bounds__(STEP_THREADS) gru_reset(const __grid_constant__ step_forward_args a) {
    const int j = step_unit<1>(), H = a.k.H;
    if (j >= H) return;
    for (int row = step_row(); row < a.k.B; row += step_row_stride()) {
        const size_t at = (size_t)row * a.k.us + j, operand_at = (size_t)row * a.k.hs;
        const float u = a.u[at], h = a.h_from[(size_t)row * a.h_from_row + j];
        const float d = a.k.factor ? a.k.factor[(size_t)row * H + j] : 1.0f;
        step_wait();
        const float r = cell_gru_reset(a.k.gate_act, u + a.s.data[at]);
        const float dropped[1] = {r * (d * h)};
        a.u[at] = r;
        step_operand<1>(a.k.math, a.operand_m, operand_at + j, dropped);
        if (j + 1 >= H) step_operand_tail(a.k.math, step_operand_row(a.k.math, a.operand_m, operand_at), H, a.k.hs);
    }
}

template <int V, bool PLAIN>
static __global__ void __launch_bounds__(STEP_THREADS) gru_forward(const __grid_constant__ step_forward_args a) {
    const int j = step_unit<V>(), H = a.k.H;
    const bool before = !PLAIN && (a.k.options & CELL_RESET_BEFORE);
    step_let_next_in();
    if (j >= H) return;
    float bias[V];
    step_load_or_zero<V>(bias, a.bias_n, (size_t)j);
    for (int row = step_row(); row < a.k.B; row += step_row_stride()) {
        const size_t at = (size_t)row * a.k.us + j;
        const unsigned flags = step_flags_of(a.k, row);
        float u[3][V], s[3][V], h_old[V], h[V];
        if (!before) step_load<V, true>(u[0], a.u + at);
        step_load<V, true>(u[1], a.u + at + H);
        step_load<V, true>(u[2], a.u + at + 2 * (size_t)H);
        step_load<V>(h_old, a.h_from + (size_t)row * a.h_from_row + j);
        step_wait();
        if (before) step_load<V>(u[0], a.u + at); /* r, from the launch before the product */
        step_load_sums<3, V>(s, a.s, at, (size_t)H);
        step_gru_cells<V, PLAIN>(a, row, j, flags, u, s, bias, h_old, h);
        step_put_h<V>(a, row, j, flags, h);
    }
}

/* Reset after: everything. Reset before: z and n; r follows when e = R_n^T ds_n is there. */
template <int V, bool PLAIN>
static __global__ void __launch_bounds__(STEP_THREADS) gru_backward(const __grid_constant__ step_backward_args a) {
    const int options = PLAIN ? 0 : a.k.options, act = PLAIN ? (int)CELL_ACT_TANH : a.k.act;
    const int gate_act = PLAIN ? (int)CELL_ACT_SIGMOID : a.k.gate_act, j = step_unit<V>(), H = a.k.H;
    const bool before = !PLAIN && (options & CELL_RESET_BEFORE);
    step_let_next_in();
    if (j >= H) return;
    for (int row = step_row(); row < a.k.B; row += step_row_stride()) {
        const size_t at = (size_t)row * a.k.us + j, state = (size_t)row * H + j, to = (size_t)row * a.k.zs;
        const unsigned flags = step_flags_of(a.k, row);
        float g[3][V], sn[V], h[V], dh[V], dy[V], ds[V];
#pragma unroll
        for (int k = 0; k < 3; k++) step_load<V, true>(g[k], a.gates + at + (size_t)k * H);
        step_load_or_zero<V>(sn, a.sn, state);
        step_load<V>(h, a.h_from + (size_t)row * a.h_from_row + j);
        step_dh_early<V>(a, row, j, flags, dh, dy);
        step_wait();
        step_dh_late<V>(a, row, j, dh, dy);
#pragma unroll
        for (int n = 0; n < V; n++) {
            const cell_gru_gates gates = {g[0][n], g[1][n], g[2][n]};
            const cell_gru_backward_result r = cell_gru_backward(options, act, gate_act, gates, sn[n], h[n], dh[n],
                                                                 step_gru_args<PLAIN>(a.k, row, j + n, flags));
            g[0][n] = r.dz.r;
            g[1][n] = r.dz.z;
            g[2][n] = r.dz.n;
            ds[n] = r.ds_n;
            dh[n] = r.dh_prev;
        }
        step_store<V>(a.pw_to + state, dh);
#pragma unroll
        for (int k = 0; k < 3; k++) {
            if (k == 0 && before) continue;
            step_operand<V, true>(a.k.math, a.dz, to + (size_t)k * H + j, g[k]);
            if (a.dr) step_operand<V, true>(a.k.math, a.dr, to + (size_t)k * H + j, k == 2 ? ds : g[k]);
            step_put_wide<V>(a.wide, row, k * H + j, k == 2 ? ds : g[k]);
        }
        if (j + V >= H) {
            step_operand_tail(a.k.math, step_operand_row(a.k.math, a.dz, to), 3 * (int64_t)H, a.k.zs);
            if (a.dr) step_operand_tail(a.k.math, step_operand_row(a.k.math, a.dr, to), 3 * (int64_t)H, a.k.zs);
        }
    }
}

/* Reset before, second stage, with e in dm: dz_r = e d h' gate_act'; pw += d r e; the operand r d h'. */
static __global__ void __launch_bounds__(STEP_THREADS)
    gru_reset_backward(const __grid_constant__ step_backward_args a) {
    const int j = step_unit<1>(), H = a.k.H;
    if (j >= H) return;
    for (int row = step_row(); row < a.k.B; row += step_row_stride()) {
        const size_t at = (size_t)row * a.k.us + j, state = (size_t)row * H + j, operand_at = (size_t)row * a.k.hs;
        const float d = a.k.factor ? a.k.factor[state] : 1.0f;
        const float r = a.gates[at], dropped = d * a.h_from[(size_t)row * a.h_from_row + j];
        step_wait();
        const float e = step_flags_of(a.k, row) & SLI_STEP_VALID ? a.dm[(size_t)row * a.k.ms + j] : 0.0f;
        const cell_gru_reset_backward_result result = cell_gru_reset_backward(a.k.gate_act, r, e, dropped);
        const float dz[1] = {result.dz_r}, reset[1] = {r * dropped};
        a.pw_to[state] += d * result.d_dropped;
        step_operand<1>(a.k.math, a.dz, (size_t)row * a.k.zs + j, dz);
        step_operand<1>(a.k.math, a.operand_m, operand_at + j, reset);
        if (j + 1 >= H) step_operand_tail(a.k.math, step_operand_row(a.k.math, a.operand_m, operand_at), H, a.k.hs);
    }
}

void sli_step_gru_reset(const step_way *way, const step_forward_args *a, bool dependent) {
    const sli_step_grid grid = sli_step_grid_of(way->s.H, way->s.B, 1);
    sli_step_launch(way, gru_reset, &grid, a, dependent, "launch of the GRU reset");
}

void sli_step_gru_forward(const step_way *way, const step_forward_args *a, bool dependent) {
    const bool simple = step_plain(&a->k);
    const bool aligned = sli_step_aligned(a->y) && sli_step_aligned(a->h_last) && sli_step_aligned(a->bias_n);
    const int vector = simple && aligned ? sli_step_vector(&way->s, sli_cuda_caps_of(way->queue)) : 1;
    const sli_step_grid grid = step_cells_grid(way, vector);
    void (*kernel)(step_forward_args) = gru_forward<1, false>;
    if (simple) kernel = vector == 4 ? gru_forward<4, true> : gru_forward<1, true>;
    sli_step_launch(way, kernel, &grid, a, dependent, "launch of the GRU cell");
}

void sli_step_gru_backward(const step_way *way, const step_backward_args *a, bool dependent) {
    const bool simple = step_plain(&a->k);
    const bool aligned = sli_step_aligned(a->dy) && sli_step_aligned(a->pw_from);
    const int vector = simple && aligned ? sli_step_vector(&way->s, sli_cuda_caps_of(way->queue)) : 1;
    const sli_step_grid grid = step_cells_grid(way, vector);
    void (*kernel)(step_backward_args) = gru_backward<1, false>;
    if (simple) kernel = vector == 4 ? gru_backward<4, true> : gru_backward<1, true>;
    sli_step_launch(way, kernel, &grid, a, dependent, "launch of the GRU cell's gradient");
}

void sli_step_gru_reset_backward(const step_way *way, const step_backward_args *a, bool dependent) {
    const sli_step_grid grid = sli_step_grid_of(way->s.H, way->s.B, 1);
    sli_step_launch(way, gru_reset_backward, &grid, a, dependent, "launch of the GRU reset's gradient");
}
