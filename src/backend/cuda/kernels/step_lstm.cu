/* cuda:step: one step of LSTM, forward and backward, after the recurrent product; a projection's two extra stages. The
 * mathematics is src/cell/lstm.h. */
#include "backend/cuda/kernels/step_cells.cuh"
#include "backend/cuda/kernels/step_device.cuh"

template <int V, bool PLAIN>
static __global__ void __launch_bounds__(STEP_THREADS) lstm_forward(const __grid_constant__ step_forward_args a) {
    const int j = step_unit<V>();
    step_let_next_in();
    if (j >= a.k.H) return;
    for (int row = step_row(); row < a.k.B; row += step_row_stride()) step_lstm_forward<V, PLAIN>(a, row, j, [] { step_wait(); });
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
    const int j = step_unit<V>();
    step_let_next_in();
    if (j >= a.k.H) return;
    for (int row = step_row(); row < a.k.B; row += step_row_stride()) step_lstm_backward<V, PLAIN>(a, row, j, [] { step_wait(); });
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
    const bool aligned = sli_step_aligned_io(way, a->y) && sli_step_aligned(a->h_last) && sli_step_aligned(a->c_last);
    const int vector = simple && aligned ? sli_step_vector(&way->s, sli_cuda_caps_of(way->queue)) : 1;
    const sli_step_grid grid = step_cells_grid(way, vector);
    void (*kernel)(step_forward_args) = lstm_forward<1, false>;
    if (simple) kernel = vector == 4 ? lstm_forward<4, true> : lstm_forward<1, true>;
    sli_step_launch(way, kernel, &grid, a, dependent, "launch of the LSTM cell");
}

void sli_step_lstm_backward(const step_way *way, const step_backward_args *a, bool dependent) {
    const bool simple = step_plain(&a->k) && !a->pw_to;
    const bool aligned = sli_step_aligned_io(way, a->dy) && sli_step_aligned(a->pw_from) && sli_step_aligned(a->dc_from);
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
