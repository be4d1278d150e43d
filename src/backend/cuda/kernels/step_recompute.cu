/* cuda:step, backward of what did not keep its gates: as every state is known, those of a chunk are products over the chunk,
 *     u = W x + b,  u += R (d h'),
 * and one launch of the cells' activations in its place. GRU with reset after has s_n = R_n (d h') + b' apart; with reset before
 * r comes first, and u_n += R_n (r d h'). The mathematics is src/cell. */
#include "backend/cuda/kernels/step_cells.cuh"
#include "backend/cuda/kernels/step_device.cuh"

/* Rows are those of the chunk, steps times B. */
typedef struct recompute_args {
    step_common k;       /* B: the chunk's rows; options that gates depend on */
    int batch;           /* rows of a step */
    float *u;            /* [B][us] pre-activations in, gates out */
    const float *c_from; /* [B][H] */
    float *v;            /* = [B][H] */
    float *sn;           /* [B][H] R_n (d h') in, s_n out */
    const float *bias_n; /* [H] recurrent bias of n */
    const float *h_from; /* [B][h_from_row] */
    int64_t h_from_row;
    void *reset; /* = operand [B][hs] r d h' */
} recompute_args;

template <bool PLAIN>
static __global__ void __launch_bounds__(STEP_THREADS) lstm_gates(const __grid_constant__ recompute_args a) {
    const int options = step_options<PLAIN>(a.k), act = step_act<PLAIN>(a.k);
    const int gate_act = step_gate_act<PLAIN>(a.k), j = step_unit<1>(), H = a.k.H;
    if (j >= H) return;
    for (int row = step_row(); row < a.k.B; row += step_row_stride()) {
        const size_t state = (size_t)row * H + j;
        float *u = a.u + (size_t)row * a.k.us + j;
        const cell_lstm_gates in = {u[0], u[H], u[2 * (size_t)H], u[3 * (size_t)H]};
        const cell_lstm_forward_result r = cell_lstm_forward(options, act, gate_act, in, a.c_from[state], 0.0f,
                                                             step_lstm_args<PLAIN>(a.k, row, j, SLI_STEP_VALID));
        u[0] = r.gates.i;
        u[H] = r.gates.f;
        u[2 * (size_t)H] = r.gates.g;
        u[3 * (size_t)H] = r.gates.o;
        if (a.v) a.v[state] = r.v;
    }
}

/* Reset before, first stage: r, and the operand r d h'. */
static __global__ void __launch_bounds__(STEP_THREADS) gru_reset_gate(const __grid_constant__ recompute_args a) {
    const int j = step_unit<1>(), H = a.k.H;
    if (j >= H) return;
    for (int row = step_row(); row < a.k.B; row += step_row_stride()) {
        const size_t operand_at = (size_t)row * a.k.hs;
        float *u = a.u + (size_t)row * a.k.us + j;
        const float d = a.k.factor ? a.k.factor[(size_t)(row % a.batch) * H + j] : 1.0f;
        const float r = cell_gru_reset(a.k.gate_act, u[0]);
        const float dropped[1] = {r * (d * a.h_from[(size_t)row * a.h_from_row + j])};
        u[0] = r;
        step_operand<1>(a.k.math, a.reset, operand_at + j, dropped);
        if (j + 1 >= H) step_operand_tail(a.k.math, step_operand_row(a.k.math, a.reset, operand_at), H, a.k.hs);
    }
}

template <bool PLAIN>
static __global__ void __launch_bounds__(STEP_THREADS) gru_gates(const __grid_constant__ recompute_args a) {
    const int options = step_options<PLAIN>(a.k), act = step_act<PLAIN>(a.k);
    const int gate_act = step_gate_act<PLAIN>(a.k), j = step_unit<1>(), H = a.k.H;
    if (j >= H) return;
    const float bias = a.bias_n ? a.bias_n[j] : 0.0f;
    for (int row = step_row(); row < a.k.B; row += step_row_stride()) {
        const size_t state = (size_t)row * H + j;
        float *u = a.u + (size_t)row * a.k.us + j;
        const float s = a.sn ? a.sn[state] + bias : 0.0f;
        const cell_gru_pre pre = {u[0], u[H], u[2 * (size_t)H], s};
        const cell_gru_forward_result r =
            cell_gru_forward(options, act, gate_act, pre, 0.0f, cell_gru_args{0.0f, 1.0f});
        u[0] = r.gates.r;
        u[H] = r.gates.z;
        u[2 * (size_t)H] = r.gates.n;
        if (a.sn) a.sn[state] = s;
    }
}

static __global__ void __launch_bounds__(STEP_THREADS) rnn_gates(const __grid_constant__ recompute_args a) {
    const int j = step_unit<1>();
    if (j >= a.k.H) return;
    for (int row = step_row(); row < a.k.B; row += step_row_stride()) {
        float *u = a.u + (size_t)row * a.k.us + j;
        *u = cell_act(a.k.act, *u);
    }
}

/* to[rows][to_row] = or += v R^T, gates [first, first + gates); v operand [rows][hs]. */
static void recurrent_product(const step_way *way, const void *v, int first, int64_t gates, float *to, int64_t to_row,
                              bool add) {
    const sli_step_shape *s = &way->s;
    sli_cuda_product product = sli_step_product(way, (int64_t)(way->c1 - way->c0) * s->B, gates * s->H, s->hs);
    product.a = sli_step_matrix(v, s->hs, false);
    product.b = sli_step_matrix(sli_step_offset(way, sli_step_recurrent(way), first * s->H * s->hs), s->hs, true);
    product.d = to;
    product.d_row = to_row;
    product.beta = add ? 1.0f : 0.0f;
    sli_cuda_multiply(way->queue, way->stream, &product);
}

static recompute_args args_of(const step_way *way, int from) {
    const sli_step_shape *s = &way->s;
    recompute_args a = {};
    a.k = way->common;
    a.k.options &= CELL_PEEPHOLE | CELL_CLIP | CELL_FORGET_AT_RUN | CELL_RESET_BEFORE;
    a.k.B = (way->c1 - way->c0) * (int)s->B;
    a.batch = (int)s->B;
    a.u = sli_step_gates(way, way->c0);
    if (s->lstm) a.c_from = sli_step_cell(way, from);
    if (s->keep_v) a.v = sli_step_v(way, way->c0);
    if (s->gru) a.h_from = sli_step_hidden(way, from, &a.h_from_row);
    if (s->before) a.reset = way->work + way->scratch.resets;
    if (s->gru && !s->before) {
        a.sn = sli_step_sn(way, way->c0);
        a.bias_n = sli_step_bias_n(way);
    }
    return a;
}

void sli_step_recompute(const step_way *way) {
    const sli_step_shape *s = &way->s;
    const int from = way->reverse ? way->c0 + 1 : way->c0; /* lowest slot that a step of the chunk enters from */
    const void *h = sli_step_operand_h(way, from);
    const recompute_args a = args_of(way, from);
    const sli_step_grid grid = sli_step_grid_of(s->H, a.k.B, 1);
    const bool plain = a.k.options == 0 && a.k.act == CELL_ACT_TANH && a.k.gate_act == CELL_ACT_SIGMOID;
    void (*kernel)(recompute_args) = plain ? lstm_gates<true> : lstm_gates<false>;
    if (s->gru) kernel = plain ? gru_gates<true> : gru_gates<false>;
    if (!s->gru && !s->lstm) kernel = rnn_gates;
    sli_step_project_inputs(way);
    recurrent_product(way, h, 0, s->gru ? 2 : s->gates, a.u, s->us, true);
    if (s->before) {
        sli_step_launch(way, gru_reset_gate, &grid, &a, false, "launch of the GRU reset again");
        recurrent_product(way, a.reset, 2, 1, a.u + 2 * s->H, s->us, true);
    } else if (s->gru) {
        recurrent_product(way, h, 2, 1, a.sn, s->H, false);
    }
    sli_step_launch(way, kernel, &grid, &a, false, "launch of the gates again");
}
