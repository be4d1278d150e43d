/* far:fresh: rows of the test device far:fresh that write fresh gradients (sli_call.fresh). What lies there they make zero, and the
 * reference does the rest. So what the plan or a run gets wrong about fresh gradients comes out as another number. */
#include <string.h>
#include "backend/far/far.h"

const sli_kernel *sli_far_reference(sli_op op) {
    for (const sli_kernel *const *row = sli_registry_get()->kernels; *row; row++)
        if ((*row)->op == op && strcmp((*row)->name, "ref") == 0) return *row;
    return NULL;
}

/* Elements of parameter k, which is there, of one layer and direction. */
static size_t elements_of(const sli_problem *p, int k) {
    const size_t H = (size_t)p->units, I = (size_t)p->inputs;
    if (p->op == SLI_OP_DENSE) return k == SLI_DENSE_KERNEL ? H * I : H;
    const size_t rows = (size_t)sli_op_gates(p->op) * H, O = (size_t)sli_problem_output(p);
    if (k == SLI_RNN_KERNEL) return rows * I;
    if (k == SLI_RNN_RECURRENT) return rows * O;
    if (k == SLI_RNN_PROJECTION) return O * H;
    return k == SLI_RNN_PEEPHOLE ? 3 * H : rows;
}

void sli_far_zero_fresh(const sli_call *call) {
    const size_t element = call->problem.dtype == SL_F64 ? sizeof(double) : sizeof(float);
    for (int k = 0; k < SLI_PART_PARAMS; k++)
        if (call->fresh[0] >> k & 1u) memset(call->d_param[k], 0, elements_of(&call->problem, k) * element);
}

static bool eligible(const sli_problem *p, const sli_caps *caps, sli_why *why) {
    NEED(sli_problem_parts(p) == 1, "far:fresh takes one layer and direction, not %d", sli_problem_parts(p));
    return sli_far_reference(p->op)->eligible(p, caps, why);
}

static void cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    sli_far_reference(p->op)->cost(p, caps, cost);
}

static void book(const sli_problem *p, const sli_caps *caps, int chunk, sli_booking *booking) {
    const sli_kernel *row = sli_far_reference(p->op);
    if (row->book) row->book(p, caps, chunk, booking);
}

static void forward(const sli_call *call) {
    sli_far_reference(call->problem.op)->forward(call);
}

static void backward(const sli_call *call) {
    sli_far_zero_fresh(call);
    sli_far_reference(call->problem.op)->backward(call);
}

#define FRESH_ROW(OP, READS)                                                                                       \
    {                                                                                                              \
        .name = "far:fresh", .op = OP, .device = SLI_DEVICE_CPU, .eligible = eligible, .cost = cost, .book = book, \
        .forward = forward, .backward = backward, .only = SLI_FAR_FRESH, .backward_reads_in = READS,               \
        .writes_fresh = true                                                                                       \
    }
enum { RECURRENT_READS = 1u << SLI_RNN_X | 1u << SLI_RNN_LENGTHS | 1u << SLI_RNN_MASK };
const sli_kernel sli_far_fresh_lstm = FRESH_ROW(SLI_OP_LSTM, RECURRENT_READS),
                 sli_far_fresh_gru = FRESH_ROW(SLI_OP_GRU, RECURRENT_READS),
                 sli_far_fresh_rnn = FRESH_ROW(SLI_OP_RNN, RECURRENT_READS),
                 sli_far_fresh_dense = FRESH_ROW(SLI_OP_DENSE, 1u << SLI_DENSE_X);
