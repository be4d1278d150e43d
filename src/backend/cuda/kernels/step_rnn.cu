/* cuda:step: one step of simple RNN, forward and backward, after the recurrent product. The mathematics is src/cell/rnn.h. */
#include "backend/cuda/kernels/step_cells.cuh"

template <int V, bool PLAIN>
static __global__ void __launch_bounds__(STEP_THREADS) rnn_forward(const __grid_constant__ step_forward_args a) {
    const int options = PLAIN ? 0 : a.k.options, act = PLAIN ? (int)CELL_ACT_TANH : a.k.act, j = step_unit<V>();
    step_let_next_in();
    if (j >= a.k.H) return;
    for (int row = step_row(); row < a.k.B; row += step_row_stride()) {
        const size_t at = (size_t)row * a.k.us + j;
        const unsigned flags = step_flags_of(a.k, row);
        float u[V], s[1][V], h_old[V], h[V];
        step_load<V>(u, a.u + at);
        step_load_or_zero<V>(h_old, PLAIN ? nullptr : a.h_from, (size_t)row * a.h_from_row + j);
        step_wait();
        step_load_sums<1, V>(s, a.s, at, 0);
#pragma unroll
        for (int n = 0; n < V; n++) {
            const cell_rnn_forward_result r =
                cell_rnn_forward(options, act, u[n] + s[0][n], h_old[n], step_rnn_args<PLAIN>(a.k, row, j + n, flags));
            u[n] = r.q;
            h[n] = r.h;
        }
        if (a.keeps) step_store<V>(a.u + at, u);
        step_put_h<V>(a, row, j, flags, h);
    }
}

template <int V, bool PLAIN>
static __global__ void __launch_bounds__(STEP_THREADS) rnn_backward(const __grid_constant__ step_backward_args a) {
    const int options = PLAIN ? 0 : a.k.options, act = PLAIN ? (int)CELL_ACT_TANH : a.k.act, j = step_unit<V>();
    step_let_next_in();
    if (j >= a.k.H) return;
    for (int row = step_row(); row < a.k.B; row += step_row_stride()) {
        const size_t at = (size_t)row * a.k.us + j, to = (size_t)row * a.k.zs;
        const unsigned flags = step_flags_of(a.k, row);
        float q[V], dh[V], dy[V], dz[V];
        step_load<V>(q, a.gates + at);
        step_dh_early<V>(a, row, j, flags, dh, dy);
        step_wait();
        step_dh_late<V>(a, row, j, dh, dy);
#pragma unroll
        for (int n = 0; n < V; n++) {
            const cell_rnn_backward_result r =
                cell_rnn_backward(options, act, q[n], dh[n], step_rnn_args<PLAIN>(a.k, row, j + n, flags));
            dz[n] = r.dz;
            dh[n] = r.dh_prev;
        }
        step_operand<V>(a.k.math, a.dz, to + j, dz);
        step_put_wide<V>(a.wide, row, j, dz);
        if (!PLAIN && a.pw_to) step_store<V>(a.pw_to + (size_t)row * a.k.H + j, dh);
        if (j + V >= a.k.H) step_operand_tail(a.k.math, step_operand_row(a.k.math, a.dz, to), a.k.H, a.k.zs);
    }
}

void sli_step_rnn_forward(const step_way *way, const step_forward_args *a, bool dependent) {
    const bool simple = step_plain(&a->k) && !a->h_to;
    const bool aligned = sli_step_aligned(a->y) && sli_step_aligned(a->h_last);
    const int vector = simple && aligned ? sli_step_vector(&way->s, sli_cuda_caps_of(way->queue)) : 1;
    const sli_step_grid grid = step_cells_grid(way, vector);
    void (*kernel)(step_forward_args) = rnn_forward<1, false>;
    if (simple) kernel = vector == 4 ? rnn_forward<4, true> : rnn_forward<1, true>;
    sli_step_launch(way, kernel, &grid, a, dependent, "launch of the RNN cell");
}

void sli_step_rnn_backward(const step_way *way, const step_backward_args *a, bool dependent) {
    const bool simple = step_plain(&a->k) && !a->pw_to;
    const bool aligned = sli_step_aligned(a->dy) && sli_step_aligned(a->pw_from);
    const int vector = simple && aligned ? sli_step_vector(&way->s, sli_cuda_caps_of(way->queue)) : 1;
    const sli_step_grid grid = step_cells_grid(way, vector);
    void (*kernel)(step_backward_args) = rnn_backward<1, false>;
    if (simple) kernel = vector == 4 ? rnn_backward<4, true> : rnn_backward<1, true>;
    sli_step_launch(way, kernel, &grid, a, dependent, "launch of the RNN cell's gradient");
}
