/* cpu:xent: softmax cross-entropy. Rows in parallel; the losses of the rows go to scratch and are added up by one thread in
 * the order of time, in double, so that neither threads nor segments change a bit.
 * Saved per row: the largest logit and 1 / sum of exp(z - largest), from which the gradient takes the probabilities. */
#include <math.h>
#include <string.h>
#include "backend/cpu/gemm.h"
#include "backend/cpu/rows.h"

enum { LOSS_ROWS = 16 };

typedef struct row_loss {
    double loss;
    int32_t counts, correct;
} row_loss;

static int tasks_of(const sli_problem *p) {
    return (int)((sli_cpu_rows(p) + LOSS_ROWS - 1) / LOSS_ROWS);
}

/* -1 where the row does not count. */
static int label_of(const sli_call *call, size_t row) {
    const int32_t *labels = call->in[SLI_LOSS_TARGET];
    const int batch = call->problem.batch;
    if (!labels || !sli_cpu_valid(call, (int)(row / (size_t)batch), (int)(row % (size_t)batch))) return -1;
    return labels[row];
}

/* The label is the first of the largest logits. */
static bool is_best(const float *z, int label, float largest) {
    if (!(z[label] >= largest)) return false;
    for (int j = 0; j < label; j++)
        if (z[j] >= largest) return false;
    return true;
}

/* loss = log(sum of exp(z - largest)) + largest - z[label] */
static void forward_rows(void *context, int index) {
    const sli_call *call = context;
    const sli_problem *p = &call->problem;
    const size_t rows = sli_cpu_rows(p), first = (size_t)index * LOSS_ROWS;
    const sli_isa_ops *ops = sli_cpu_of(call)->ops;
    row_loss *losses = call->scratch;
    float *saved = p->train ? call->saved : NULL;
    for (size_t r = first; r < first + LOSS_ROWS && r < rows; r++) {
        const float *z = (const float *)call->in[SLI_LOSS_Z] + r * (size_t)p->units;
        const int label = label_of(call, r);
        losses[r] = (row_loss){0};
        if (label < 0) continue;
        float largest;
        double sum;
        ops->softmax_sum((size_t)p->units, z, &largest, &sum);
        losses[r] = (row_loss){log(sum) + (double)largest - (double)z[label], 1, is_best(z, label, largest)};
        if (!saved) continue;
        saved[2 * r] = largest;
        saved[2 * r + 1] = (float)(1 / sum);
    }
}

static void xent_forward(const sli_call *call) {
    if (!call->in[SLI_LOSS_TARGET]) return;
    sli_threads_for(call->threads, tasks_of(&call->problem), forward_rows, (void *)call);
    if (call->recompute) return;
    const row_loss *losses = call->scratch;
    for (size_t r = 0; r < sli_cpu_rows(&call->problem); r++) {
        call->metrics->loss_sum += losses[r].loss;
        call->metrics->count += losses[r].counts;
        call->metrics->correct += losses[r].correct;
    }
}

/* dz = or += loss_scale (softmax(z) - onehot(label)); dz may be z. */
static void backward_rows(void *context, int index) {
    const sli_call *call = context;
    const sli_problem *p = &call->problem;
    const size_t rows = sli_cpu_rows(p), first = (size_t)index * LOSS_ROWS, width = (size_t)p->units;
    const sli_isa_ops *ops = sli_cpu_of(call)->ops;
    const bool add = call->accumulate >> SLI_LOSS_Z & 1;
    const float *saved = call->saved, scale = (float)call->scalars->loss_scale;
    for (size_t r = first; r < first + LOSS_ROWS && r < rows; r++) {
        const float *z = (const float *)call->in[SLI_LOSS_Z] + r * width;
        float *dz = (float *)call->d_in[SLI_LOSS_Z] + r * width;
        const int label = label_of(call, r);
        if (label >= 0) {
            ops->softmax_gradient(width, z, saved[2 * r], saved[2 * r + 1] * scale, dz, add);
            dz[label] -= scale;
        } else if (!add) {
            memset(dz, 0, width * sizeof *dz);
        }
    }
}

static void xent_backward(const sli_call *call) {
    if (!call->d_in[SLI_LOSS_Z]) return;
    sli_threads_for(call->threads, tasks_of(&call->problem), backward_rows, (void *)call);
}

static bool xent_eligible(const sli_problem *p, const sli_caps *caps, sli_why *why) {
    (void)caps;
    NEED(p->dtype == SL_F32, "cpu:xent computes f32, not %s", sli_dtype_name(p->dtype));
    return true;
}

static void xent_cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    const double elements = (double)sli_cpu_rows(p) * p->units;
    *cost = (sli_cost){.flops = (p->train ? 40 : 20) * elements, .bytes = (p->train ? 16 : 8) * elements};
}

static void xent_book(const sli_problem *p, const sli_caps *caps, int chunk, sli_booking *booking) {
    (void)caps;
    (void)chunk;
    *booking = (sli_booking){.saved = p->train ? sli_cpu_rows(p) * 2 * sizeof(float) : 0,
                             .scratch_forward = sli_cpu_rows(p) * sizeof(row_loss)};
}

const sli_kernel sli_cpu_xent = {.name = "cpu:xent",
                                 .op = SLI_OP_XENT,
                                 .device = SLI_DEVICE_CPU,
                                 .eligible = xent_eligible,
                                 .cost = xent_cost,
                                 .book = xent_book,
                                 .forward = xent_forward,
                                 .backward = xent_backward,
                                 .backward_reads_in = 1u << SLI_LOSS_Z | 1u << SLI_LOSS_TARGET |
                                                      1u << SLI_LOSS_LENGTHS | 1u << SLI_LOSS_MASK,
                                 .gradient_in_place = true};
