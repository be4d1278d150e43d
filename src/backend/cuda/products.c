/* cuda:dense, libsluice's side: what it takes, costs and books. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/dense_layout.h"

static bool eligible(const sli_problem *p, const sli_caps *caps, sli_why *why) {
    (void)caps;
    return sli_cuda_dtype(p, why);
}

/* Forward: x, W and y once; backward reads and writes as much again for d x and for d W. */
static void cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    const double rows = (double)sli_cuda_rows_of(p), I = p->inputs, H = p->units, passes = p->train ? 3 : 1;
    const double operand = sli_dense_is_narrow(p) ? 2 : 4;
    *cost = (sli_cost){.flops = passes * 2 * rows * I * H, .bytes = passes * (4 * rows * (I + H) + operand * I * H)};
}

static void book(const sli_problem *p, const sli_caps *caps, int chunk, sli_booking *booking) {
    sli_dense_forward_places forward;
    sli_dense_forward_layout(p, caps, chunk, &forward);
    *booking =
        (sli_booking){.saved = sli_dense_saved(p), .scratch_forward = forward.bytes, .packed = sli_dense_packed(p)};
    if (!p->train) return;
    sli_dense_backward_places backward;
    sli_dense_backward_layout(p, caps, chunk, &backward);
    booking->scratch_backward = backward.bytes;
}

/* In 16 bits, whole fours: what straddles rows costs the optimizer as much as it saves pack. */
static bool copy_of(const sli_problem *p, const sli_caps *caps, sli_copy *copy) {
    (void)caps;
    if (!sli_dense_is_narrow(p) || p->inputs % 4 != 0) return false;
    *copy = (sli_copy){.columns = p->inputs, .row = sli_dense_row(p, p->inputs)};
    return true;
}

/* In 16 bits with a bias, whose sums are made with an operand of dz: of a softmax's gradient that is all there is to make. */
static bool takes_loss(const sli_problem *p, const sli_caps *caps) {
    (void)caps;
    return sli_dense_is_narrow(p) && sli_dense_is_linear(p) && !p->no_bias;
}

const sli_kernel sli_cuda_dense = {.name = "cuda:dense",
                                   .op = SLI_OP_DENSE,
                                   .device = SLI_DEVICE_CUDA,
                                   .eligible = eligible,
                                   .cost = cost,
                                   .book = book,
                                   .pack = sli_cuda_dense_pack,
                                   .forward = sli_cuda_dense_forward,
                                   .backward = sli_cuda_dense_backward,
                                   .backward_reads_in = 1u << SLI_DENSE_X,
                                   .sums_late = true,
                                   .writes_fresh = true,
                                   .takes_loss = takes_loss,
                                   .copy_of = copy_of};
