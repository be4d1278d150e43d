/* Gradient norm and optimizers: cuda:norm and cuda:optim (kernels/updates.cu). With loss scaling the norm of all gradients
 * also decides the next scale, see sli_scaling. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/updates_layout.h"

static bool update_eligible(const sli_problem *p, const sli_caps *caps, sli_why *why) {
    (void)caps;
    return sli_cuda_dtype(p, why);
}

static void norm_cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    const double elements = (double)p->elements;
    *cost = (sli_cost){.flops = 2 * elements, .bytes = (p->clip.kind == SL_CLIP_VALUE ? 8 : 4) * elements};
}

static void norm_book(const sli_problem *p, const sli_caps *caps, int chunk, sli_booking *booking) {
    (void)caps;
    (void)chunk;
    *booking = (sli_booking){.scratch_forward = sli_norm_slices(p->elements) * sizeof(double)};
}

const sli_kernel sli_cuda_norm = {.name = "cuda:norm",
                                  .op = SLI_OP_NORM,
                                  .device = SLI_DEVICE_CUDA,
                                  .eligible = update_eligible,
                                  .cost = norm_cost,
                                  .book = norm_book,
                                  .forward = sli_cuda_norm_forward,
                                  .norm_slice = SLI_NORM_SLICE};

static void optim_cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    const double slots = sli_optimizer_slots(&p->optimizer), elements = (double)p->elements;
    *cost = (sli_cost){.flops = (4 + 6 * slots) * elements, .bytes = 4 * (4 + 2 * slots) * elements};
}

const sli_kernel sli_cuda_optim = {.name = "cuda:optim",
                                   .op = SLI_OP_OPTIM,
                                   .device = SLI_DEVICE_CUDA,
                                   .eligible = update_eligible,
                                   .cost = optim_cost,
                                   .forward = sli_cuda_optim_forward,
                                   .writes_copies = true};
