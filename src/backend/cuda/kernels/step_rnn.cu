/* cuda:step: one step of simple RNN, forward and backward, after the recurrent product. The mathematics is src/cell/rnn.h. */
#include "backend/cuda/kernels/step_cells.cuh"
#include "backend/cuda/kernels/step_device.cuh"

template <int V, bool PLAIN>
static __global__ void __launch_bounds__(STEP_THREADS) rnn_forward(const __grid_constant__ step_forward_args a) {
    const int j = step_unit<V>();
    step_let_next_in();
    if (j >= a.k.H) return;
    for (int row = step_row(); row < a.k.B; row += step_row_stride()) step_rnn_forward<V, PLAIN>(a, row, j, [] { step_wait(); });
}

template <int V, bool PLAIN>
static __global__ void __launch_bounds__(STEP_THREADS) rnn_backward(const __grid_constant__ step_backward_args a) {
    const int j = step_unit<V>();
    step_let_next_in();
    if (j >= a.k.H) return;
    for (int row = step_row(); row < a.k.B; row += step_row_stride()) step_rnn_backward<V, PLAIN>(a, row, j, [] { step_wait(); });
}

void sli_step_rnn_forward(const step_way *way, const step_forward_args *a, bool dependent) {
    const bool simple = step_plain(&a->k) && !a->h_to;
    const bool aligned = sli_step_aligned_io(way, a->y) && sli_step_aligned(a->h_last);
    const int vector = simple && aligned ? sli_step_vector(&way->s, sli_cuda_caps_of(way->queue)) : 1;
    const sli_step_grid grid = step_cells_grid(way, vector);
    void (*kernel)(step_forward_args) = rnn_forward<1, false>;
    if (simple) kernel = vector == 4 ? rnn_forward<4, true> : rnn_forward<1, true>;
    sli_step_launch(way, kernel, &grid, a, dependent, "launch of the RNN cell");
}

void sli_step_rnn_backward(const step_way *way, const step_backward_args *a, bool dependent) {
    const bool simple = step_plain(&a->k) && !a->pw_to;
    const bool aligned = sli_step_aligned_io(way, a->dy) && sli_step_aligned(a->pw_from);
    const int vector = simple && aligned ? sli_step_vector(&way->s, sli_cuda_caps_of(way->queue)) : 1;
    const sli_step_grid grid = step_cells_grid(way, vector);
    void (*kernel)(step_backward_args) = rnn_backward<1, false>;
    if (simple) kernel = vector == 4 ? rnn_backward<4, true> : rnn_backward<1, true>;
    sli_step_launch(way, kernel, &grid, a, dependent, "launch of the RNN cell's gradient");
}
