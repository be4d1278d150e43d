/* cuda:step: one step of GRU, forward and backward, after the recurrent product; reset before has one stage more on both
 * ways. The mathematics is src/cell/gru.h. */
#include "backend/cuda/kernels/step_cells.cuh"
#include "backend/cuda/kernels/step_device.cuh"

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
    const int j = step_unit<V>();
    step_let_next_in();
    if (j >= a.k.H) return;
    for (int row = step_row(); row < a.k.B; row += step_row_stride()) step_gru_forward<V, PLAIN>(a, row, j, [] { step_wait(); });
}

template <int V, bool PLAIN>
static __global__ void __launch_bounds__(STEP_THREADS) gru_backward(const __grid_constant__ step_backward_args a) {
    const int j = step_unit<V>();
    step_let_next_in();
    if (j >= a.k.H) return;
    for (int row = step_row(); row < a.k.B; row += step_row_stride()) step_gru_backward<V, PLAIN>(a, row, j, [] { step_wait(); });
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
    const bool aligned = sli_step_aligned_io(way, a->y) && sli_step_aligned(a->h_last) && sli_step_aligned(a->bias_n);
    const int vector = simple && aligned ? sli_step_vector(&way->s, sli_cuda_caps_of(way->queue)) : 1;
    const sli_step_grid grid = step_cells_grid(way, vector);
    void (*kernel)(step_forward_args) = gru_forward<1, false>;
    if (simple) kernel = vector == 4 ? gru_forward<4, true> : gru_forward<1, true>;
    sli_step_launch(way, kernel, &grid, a, dependent, "launch of the GRU cell");
}

void sli_step_gru_backward(const step_way *way, const step_backward_args *a, bool dependent) {
    const bool simple = step_plain(&a->k);
    const bool aligned = sli_step_aligned_io(way, a->dy) && sli_step_aligned(a->pw_from);
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
