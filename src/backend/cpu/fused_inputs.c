/* W x of cpu:fused, forward: of a piece of time at a time, mostly by the thread that reads it, for its rows and units, as panels
 * (panel.h) whose columns are those of R. So it is read out of the nearest caches, in the order it was written, and it is never as
 * large as a chunk. Threads that share units lend each other panels of it, too. A row's sums are the same in any piece. */
#include <string.h>
#include "backend/cpu/fused.h"
#include "backend/cpu/one_hot.h"

enum {
    PIECE_BYTES = 512 * 1024, /* of all units and a thread's rows: half of an L2 or less, */
    LEAST_BYTES = 256 * 1024, /* and of W, if that is less */
    WEIGHT_BYTES = 1 << 20,   /* larger W does not stay in L2 from piece to piece: */
    INPUTS_A_ROW = 4,         /* then there are as many rows as make its bytes a few times theirs, */
    NEAR_BYTES = 2 << 20, /* or, of bf16 that R leaves room for in part, as it comes less often, as many as inputs */
    LEAST_ROWS = 64,
    MOST_ROWS = 512
};

int sli_fused_input_rows(const sli_problem *p, const sli_panel_ops *ops) {
    const size_t columns = (size_t)sli_op_gates(p->op) * (size_t)p->units;
    size_t weights = 0;
    for (int stage = 0; stage < sli_fused_stages(p); stage++) {
        const sli_fused_panels panels = sli_fused_input_panels(p, ops, stage);
        weights += sli_fused_panels_bytes(&panels);
    }
    const bool near = ops->halves && weights <= NEAR_BYTES;
    const size_t half = weights / 2, most = near ? LEAST_BYTES : half < PIECE_BYTES ? half : PIECE_BYTES;
    const int least = near ? p->inputs : p->inputs / INPUTS_A_ROW;
    int rows = (int)((most < LEAST_BYTES ? LEAST_BYTES : most) / (columns * sizeof(float)));
    if (weights > WEIGHT_BYTES && rows < least) rows = least;
    return rows < LEAST_ROWS ? LEAST_ROWS : rows > MOST_ROWS ? MOST_ROWS : rows;
}

/* Steps of a piece, where rows are shared by so many groups of threads. */
static int piece_steps(const sli_problem *p, const sli_panel_ops *ops, int groups) {
    const long rows = (long)sli_fused_input_rows(p, ops) * groups, steps = p->batch > 0 ? rows / p->batch : 1;
    const int chunk = sli_chunk_steps(p->batch, p->steps);
    return steps < 1 ? 1 : steps < chunk ? (int)steps : chunk;
}

/* Rows of a piece of the problem at most, and of one with fewer rows and steps, whose piece may have more steps. */
static size_t most_rows(const sli_problem *p, const sli_panel_ops *ops, int groups) {
    const size_t batch = (size_t)p->batch, all = batch * (size_t)p->steps;
    const size_t wanted = (size_t)sli_fused_input_rows(p, ops) * (size_t)groups, rows = wanted < all ? wanted : all;
    return rows > batch ? rows : batch;
}

size_t sli_fused_projected_floats(const sli_fused_panels *inputs, const sli_panel_ops *ops) {
    return (size_t)sli_fused_all_panels(inputs) * (size_t)(inputs->vectors * ops->lanes);
}

static size_t operand_bytes(const sli_problem *p, const sli_panel_ops *ops, int groups) {
    return ops->convert ? most_rows(p, ops, groups) * ops->operand_bytes(p->inputs) : 0;
}

static size_t projected_bytes(const sli_problem *p, const sli_panel_ops *ops, int groups) {
    size_t floats = 0; /* of a row */
    for (int stage = 0; stage < sli_fused_stages(p); stage++) {
        const sli_fused_panels panels = sli_fused_input_panels(p, ops, stage);
        floats += sli_fused_projected_floats(&panels, ops);
    }
    return sli_round_up(most_rows(p, ops, groups) * floats * sizeof(float), SLI_ALIGN);
}

/* However many of the threads share rows. */
size_t sli_fused_input_bytes(const sli_problem *p, const sli_panel_ops *ops, int threads) {
    const int groups = threads < p->batch ? threads : p->batch > 0 ? p->batch : 1;
    return (size_t)sli_problem_directions(p) * projected_bytes(p, ops, groups) +
           (size_t)threads * operand_bytes(p, ops, groups);
}

void sli_fused_place_inputs(sli_fused_work *w) {
    const size_t threads = (size_t)sli_threads_count(w->call->threads);
    const int groups = w->split.rows;
    for (int stage = 0; stage < w->stages; stage++) w->inputs[stage] = sli_fused_input_panels(w->p, w->panels, stage);
    w->input_steps = piece_steps(w->p, w->panels, groups);
    w->projected = (float *)(void *)(w->operands + threads * w->operand_bytes);
    w->x_operands = (char *)w->projected + (size_t)w->directions * projected_bytes(w->p, w->panels, groups);
    w->x_operand_bytes = operand_bytes(w->p, w->panels, groups);
}

/* A walk over the share's rows of a piece, in order of processing, without the masked ones. */
typedef struct walk {
    int step, end, row; /* steps of the piece; of the share's rows */
} walk;

/* The next rows of x, at most MOST_ROWS; how many. */
static int next_rows(const sli_fused_work *w, const sli_fused_direction *d, const sli_fused_share *share, walk *at,
                     const void **x) {
    int count = 0;
    for (; at->step < at->end; at->step++, at->row = 0) {
        const int t = sli_fused_step(d, d->step0 + at->step);
        for (; at->row < share->rows; at->row++) {
            const int row = share->first_row + at->row * share->row_step;
            if (sli_fused_place(w, d, t, row) < 0) continue;
            if (count == MOST_ROWS) return count;
            x[count++] = d->x + ((size_t)t * (size_t)w->B + (size_t)row) * (size_t)w->I;
        }
    }
    return count;
}

static void convert_rows(const sli_fused_work *w, const sli_fused_share *share, int count, const void **x) {
    const size_t bytes = w->panels->operand_bytes(w->I);
    for (int r = 0; r < count; r++) {
        char *to = share->x_operands + (size_t)r * bytes;
        w->panels->convert(to, x[r], w->I);
        x[r] = to;
    }
}

/* Rows whose tiles follow each other, panels of `bytes` and `apart` floats from one to the next. */
static void multiply(const sli_fused_work *w, int vectors, int panels, const char *weights, size_t bytes,
                     const void *const *x, int rows, float *to, ptrdiff_t apart) {
    const int columns = vectors * w->panels->lanes, blocks = (rows + SLI_FUSED_ROWS - 1) / SLI_FUSED_ROWS;
    const bool together = blocks == 1 && apart == (ptrdiff_t)rows * columns;
    sli_panel_product product = {.vectors = vectors, .k = w->I, .panels = together ? panels : 1, .from_l2 = w->from_l2};
    for (int i = 0; i < panels; i += product.panels)
        for (int b = 0; b < blocks; b++) {
            const int first = (int)((long)rows * b / blocks);
            product.rows = (int)((long)rows * (b + 1) / blocks) - first;
            product.a = x + first;
            product.w = weights + (size_t)i * bytes;
            product.next = b + 1 < blocks ? product.w : NULL;
            product.tile = to + i * apart + (ptrdiff_t)first * columns;
            w->panels->product(&product);
        }
}

/* Rows from number `first` of the share's on, converted, or one-hot: those take lines of W, to the bit what the product has (but the sign
 * of a weight of 0), as long as W is finite. */
static void project_rows(const sli_fused_work *w, const sli_fused_direction *d, sli_fused_share *share,
                         float *projected, int first, const void **x, int rows, const int *one_hot) {
    const sli_fused_panels *panels = &w->inputs[share->stage];
    const ptrdiff_t apart = share->projected_panel;
    sli_fused_walk walk;
    sli_fused_walk_of(&walk, share, panels, 1, panels->count, false);
    while (sli_fused_take(share, &walk)) {
        const sli_fused_group *at = &walk.at;
        const char *weights = d->input_panels[share->stage] + (size_t)at->panel * panels->bytes;
        const int columns = at->vectors * w->panels->lanes;
        float *to = projected + at->panel * apart + (ptrdiff_t)first * columns;
        if (one_hot)
            sli_one_hot_lines(w->panels, at->vectors, at->count, weights, panels->bytes, one_hot, rows, to, apart);
        else
            multiply(w, at->vectors, at->count, weights, panels->bytes, x, rows, to, apart);
    }
}

void sli_fused_project(const sli_fused_work *w, int direction, sli_fused_share *shares, int i0, int i1) {
    const sli_fused_direction *d = &w->direction[direction];
    const int steps = d->step1 - d->step0;
    const void *x[MOST_ROWS];
    int column[MOST_ROWS];
    walk at = {i0, i1 < steps ? i1 : steps, 0};
    for (int stage = 0; stage < w->stages; stage++) shares[stage].taken[direction] = 0;
    for (int first = 0, rows; (rows = next_rows(w, d, shares, &at, x)) > 0; first += rows) {
        const bool one_hot = sli_one_hot_rows(w->ops, w->panels, x, rows, w->I, column);
        if (w->panels->convert && !one_hot) convert_rows(w, shares, rows, x);
        for (int stage = 0; stage < w->stages; stage++)
            if (sli_fused_all_panels(&w->inputs[stage]) > 0)
                project_rows(w, d, &shares[stage], shares[stage].projected[direction], first, x, rows,
                             one_hot ? column : NULL);
    }
}
