/* Compiled, not run: every cell and activation as device code, with all options on and all off. */
#include "cell/gru.h"
#include "cell/lstm.h"
#include "cell/rnn.h"

template <int options, int act, int gate_act> static __device__ void cells(const float *in, float *out, int count) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= count) return;
    float a = in[j], b = in[count + j], c = in[2 * count + j], d = in[3 * count + j];
    cell_lstm_args lstm = {a, b, c, 1.0f, 3.0f, d, d, d};
    cell_lstm_gates z = {a, b, c, d};
    cell_lstm_forward_result l = cell_lstm_forward(options, act, gate_act, z, a, b, lstm);
    cell_lstm_backward_result lb = cell_lstm_backward(options, act, gate_act, l.gates, l.v, a, b, c, lstm);
    cell_gru_args gru = {d, d};
    cell_gru_pre pre = {options & CELL_RESET_BEFORE ? cell_gru_reset(gate_act, a) : a, b, c, d};
    cell_gru_forward_result g = cell_gru_forward(options, act, gate_act, pre, a, gru);
    cell_gru_backward_result gb = cell_gru_backward(options, act, gate_act, g.gates, d, a, b, gru);
    cell_gru_reset_backward_result gr = cell_gru_reset_backward(gate_act, g.gates.r, gb.ds_n, a);
    cell_rnn_args rnn = {d, d};
    cell_rnn_forward_result r = cell_rnn_forward(options, act, a, b, rnn);
    cell_rnn_backward_result rb = cell_rnn_backward(options, act, r.q, c, rnn);
    out[j] = l.c + l.h + lb.dz.i + lb.dz.f + lb.dz.g + lb.dz.o + lb.dc_prev + lb.dh_prev + g.h + gb.dz.z + gb.dz.n +
             gb.dz.r + gb.ds_n + gb.dh_prev + gr.dz_r + gr.d_dropped + r.h + rb.dz + rb.dh_prev;
}

enum { EVERY_OPTION = 2 * CELL_RESET_BEFORE - 1 };

__global__ void cells_plain(const float *in, float *out, int count) {
    cells<0, CELL_ACT_TANH, CELL_ACT_SIGMOID>(in, out, count);
}

__global__ void cells_everything(const float *in, float *out, int count) {
    cells<EVERY_OPTION, CELL_ACT_TANH, CELL_ACT_SIGMOID>(in, out, count);
    cells<EVERY_OPTION & ~CELL_PROJECTION, CELL_ACT_SOFTSIGN, CELL_ACT_HARD_SIGMOID>(in, out, count);
    cells<EVERY_OPTION & ~CELL_RESET_BEFORE, CELL_ACT_RELU, CELL_ACT_HARD_SIGMOID_K2>(in, out, count);
    cells<CELL_MASK, CELL_ACT_LINEAR, CELL_ACT_SIGMOID>(in, out, count);
}
