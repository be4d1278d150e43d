/* Losses: cuda:xent (kernels/softmax.cu), cuda:bce and cuda:mse (kernels/losses.cu). Losses of rows go to scratch; one block
 * adds them to the metrics in a fixed order, in double. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/losses_layout.h"

enum {
    READS_IN = 1u << SLI_LOSS_Z | 1u << SLI_LOSS_TARGET | 1u << SLI_LOSS_LENGTHS | 1u << SLI_LOSS_MASK,
    ROWS_MAX = INT32_MAX /* blocks of a launch */
};

static bool loss_eligible(const sli_problem *p, const sli_caps *caps, sli_why *why) {
    (void)caps;
    if (!sli_cuda_dtype(p, why)) return false;
    NEED(sli_cuda_rows_of(p) <= ROWS_MAX, "the losses take at most %d rows a call, not %zu", ROWS_MAX,
         sli_cuda_rows_of(p));
    return true;
}

static void xent_cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    const double elements = (double)sli_cuda_rows_of(p) * p->units;
    *cost = (sli_cost){.flops = (p->train ? 40 : 20) * elements, .bytes = (p->train ? 12 : 4) * elements};
}

static void elementwise_cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    const double elements = (double)sli_cuda_rows_of(p) * p->units, each = p->op == SLI_OP_BCE ? 60 : 3;
    *cost = (sli_cost){.flops = (p->train ? 2 : 1) * each * elements, .bytes = (p->train ? 20 : 8) * elements};
}

static void elementwise_book(const sli_problem *p, const sli_caps *caps, int chunk, sli_booking *booking) {
    (void)caps;
    (void)chunk;
    *booking = (sli_booking){.scratch_forward = sli_cuda_rows_of(p) * sizeof(sli_row_loss)};
}

static void xent_book(const sli_problem *p, const sli_caps *caps, int chunk, sli_booking *booking) {
    elementwise_book(p, caps, chunk, booking);
    if (p->train) booking->saved = sli_cuda_rows_of(p) * SLI_XENT_SAVED * sizeof(float);
}

const sli_kernel sli_cuda_xent = {.name = "cuda:xent",
                                  .op = SLI_OP_XENT,
                                  .device = SLI_DEVICE_CUDA,
                                  .eligible = loss_eligible,
                                  .cost = xent_cost,
                                  .book = xent_book,
                                  .forward = sli_cuda_xent_forward,
                                  .backward = sli_cuda_xent_backward,
                                  .backward_reads_in = READS_IN,
                                  .gradient_in_place = true,
                                  .gradient_by_taker = true};
const sli_kernel sli_cuda_bce = {.name = "cuda:bce",
                                 .op = SLI_OP_BCE,
                                 .device = SLI_DEVICE_CUDA,
                                 .eligible = loss_eligible,
                                 .cost = elementwise_cost,
                                 .book = elementwise_book,
                                 .forward = sli_cuda_loss_forward,
                                 .backward = sli_cuda_loss_backward,
                                 .backward_reads_in = READS_IN,
                                 .gradient_in_place = true};
const sli_kernel sli_cuda_mse = {.name = "cuda:mse",
                                 .op = SLI_OP_MSE,
                                 .device = SLI_DEVICE_CUDA,
                                 .eligible = loss_eligible,
                                 .cost = elementwise_cost,
                                 .book = elementwise_book,
                                 .forward = sli_cuda_loss_forward,
                                 .backward = sli_cuda_loss_backward,
                                 .backward_reads_in = READS_IN,
                                 .gradient_in_place = true};
