/* A row of x with a single 1 takes one column of W, to the bit what the product has: the other terms are 0. Found by looking, which
 * ends at the first row where x is anything else.
 *     W x[row] = W[:][column of row]              d W[:][i] += sum of dz[row] over the rows with column i, rows ascending
 * The latter goes through d W^T, [I][G*H] in the products' scratch, where a column lies side by side. In f32 it has the bits of the
 * product where that takes k in one piece; floats of dz are not rounded, to bf16 or into parts as f32x3's are. */
#include "backend/cpu/one_hot.h"
#include <string.h>

enum {
    LEAST_INPUTS = 16,  /* fewer are multiplied as fast */
    TASK_COLUMNS = 128, /* of d W^T: what a task adds up stays in L2 */
    TURNED = 16         /* columns of d W^T that are turned together: lines of d W that stay in L1 */
};

typedef struct one_hot {
    const sli_sums *s;
    int rows, inputs, outputs; /* outputs: G*H */
    float *transposed;         /* [inputs][outputs] */
    int32_t *column;           /* [rows] */
    sli_gates gates;           /* backward: the piece of gates at work */
} one_hot;

static bool find_columns(const one_hot *w) {
    const sli_isa_ops *ops = sli_cpu_of(w->s->call)->ops;
    for (int r = 0; r < w->rows; r++) {
        w->column[r] = ops->one_hot(w->inputs, w->s->x + (size_t)r * (size_t)w->inputs);
        if (w->column[r] < 0) return false;
    }
    return true;
}

static bool begin(one_hot *w, const sli_sums *s) {
    const sli_problem *p = &s->call->problem;
    *w = (one_hot){.s = s, .rows = s->rows, .inputs = p->inputs};
    w->outputs = sli_op_gates(p->op) * p->units;
    const size_t floats = (size_t)w->inputs * (size_t)w->outputs, rows = (size_t)w->rows;
    size_t bytes;
    w->transposed = sli_cpu_products_space(s->call, &bytes);
    w->column = (int32_t *)(void *)(w->transposed + floats);
    const bool fits = floats * sizeof(float) + rows * sizeof(int32_t) <= bytes;
    return w->inputs >= LEAST_INPUTS && w->rows >= w->inputs && fits && find_columns(w);
}

/* ------------------------------------------------------------------------------------------------------ forward -- */
bool sli_one_hot_rows(const sli_isa_ops *ops, const sli_panel_ops *panels, const void *const *x, int rows, int inputs,
                      int *column) {
    if (!panels->line || inputs < LEAST_INPUTS) return false;
    for (int r = 0; r < rows; r++)
        if ((column[r] = ops->one_hot(inputs, x[r])) < 0) return false;
    return true;
}

void sli_one_hot_lines(const sli_panel_ops *ops, int vectors, int count, const char *panels, size_t bytes,
                       const int *column, int rows, float *to, ptrdiff_t apart) {
    const ptrdiff_t columns = (ptrdiff_t)vectors * ops->lanes;
    for (int i = 0; i < count; i++, panels += bytes)
        for (int r = 0; r < rows; r++) ops->line(panels, vectors, column[r], to + i * apart + r * columns);
}

/* ----------------------------------------------------------------------------------------------------- backward -- */
/* d W^T[column of row] += dz[row], of the columns from number `from` of dz on. */
static void add_rows(const one_hot *w, size_t from, int count, float *sums) {
    const sli_isa_ops *ops = sli_cpu_of(w->s->call)->ops;
    for (int r = 0; r < w->rows; r++) {
        float *sum = sums + (size_t)w->column[r] * (size_t)w->outputs;
        const size_t at = (size_t)r * (size_t)w->s->ld + from;
        if (w->s->dz_half)
            ops->add_half((size_t)count, sum, w->s->dz_half + at);
        else
            ops->add((size_t)count, sum, w->s->dz + at);
    }
}

/* Some columns of dz of a piece of gates: their sums, then into d W. */
static void sum_rows(void *context, int index) {
    const one_hot *w = context;
    const int units = w->s->call->problem.units, columns = w->gates.count * units;
    const int first = index * TASK_COLUMNS, count = sli_least(TASK_COLUMNS, columns - first);
    float *sums = w->transposed + w->gates.to * units + first;
    float *to = (float *)w->s->call->d_param[w->s->part * SLI_PART_PARAMS + SLI_RNN_KERNEL] +
                (size_t)(w->gates.to * units + first) * (size_t)w->inputs;
    for (int i = 0; i < w->inputs; i++) memset(sums + (size_t)i * (size_t)w->outputs, 0, (size_t)count * sizeof *sums);
    add_rows(w, (size_t)(w->gates.from * units + first), count, sums);
    for (int j0 = 0; j0 < count; j0 += TURNED)
        for (int i = 0; i < w->inputs; i++)
            for (int j = j0; j < sli_least(j0 + TURNED, count); j++)
                to[(size_t)j * (size_t)w->inputs + (size_t)i] += sums[(size_t)i * (size_t)w->outputs + (size_t)j];
}

bool sli_one_hot_kernel(const sli_sums *s) {
    one_hot w;
    if (!begin(&w, s)) return false;
    for (int i = 0; i < 2 && s->input[i].count > 0; i++) {
        w.gates = s->input[i];
        sli_threads_for(s->call->threads, sli_divide_up(w.gates.count * s->call->problem.units, TASK_COLUMNS), sum_rows,
                        &w);
    }
    return true;
}
