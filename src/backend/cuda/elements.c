/* Rows that move, mask or gather elements: cuda:embed, cuda:onehot, cuda:dropout, cuda:merge, cuda:flip. They compute f32
 * in every dtype; kernels in kernels/embed.cu and kernels/elements.cu. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/elements_layout.h"

static bool element_eligible(const sli_problem *p, const sli_caps *caps, sli_why *why) {
    (void)caps;
    return sli_cuda_dtype(p, why);
}

static double elements_of(const sli_problem *p) {
    return (double)sli_cuda_rows_of(p) * p->units;
}

/* --------------------------------------------------------------------------------------------------- embedding -- */
static bool embed_eligible(const sli_problem *p, const sli_caps *caps, sli_why *why) {
    (void)caps;
    if (!sli_cuda_dtype(p, why)) return false;
    NEED(sli_cuda_rows_of(p) <= INT32_MAX, "cuda:embed sorts at most %d tokens a call, not %zu", INT32_MAX,
         sli_cuda_rows_of(p));
    return true;
}

static void embed_cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    const double elements = elements_of(p);
    *cost = (sli_cost){.flops = p->train ? elements : 0, .bytes = (p->train ? 5 : 2) * 4 * elements};
}

static void embed_book(const sli_problem *p, const sli_caps *caps, int chunk, sli_booking *booking) {
    (void)caps;
    (void)chunk;
    *booking = (sli_booking){0};
    if (!p->train) return;
    const sli_sort_layout layout = sli_sort_layout_of(sli_cuda_rows_of(p), p->inputs);
    booking->saved = sli_sort_saved(layout.positions);
    booking->scratch_backward = layout.passes > 0 ? layout.bytes : 0;
}

const sli_kernel sli_cuda_embed = {.name = "cuda:embed",
                                   .op = SLI_OP_EMBED,
                                   .device = SLI_DEVICE_CUDA,
                                   .eligible = embed_eligible,
                                   .cost = embed_cost,
                                   .book = embed_book,
                                   .forward = sli_cuda_embed_forward,
                                   .backward = sli_cuda_embed_backward,
                                   .backward_reads_in = 1u << SLI_EMBED_TOKENS,
                                   .marks_touched = true};

/* ----------------------------------------------------------------------------------------------------- one-hot -- */
static void onehot_cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    *cost = (sli_cost){.bytes = 4 * (double)sli_cuda_rows_of(p) * p->inputs};
}

const sli_kernel sli_cuda_onehot = {.name = "cuda:onehot",
                                    .op = SLI_OP_ONEHOT,
                                    .device = SLI_DEVICE_CUDA,
                                    .eligible = element_eligible,
                                    .cost = onehot_cost,
                                    .forward = sli_cuda_onehot_forward};

/* ------------------------------------------------------------------------------------------------ dropout, flip -- */
static void copy_cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    const double elements = elements_of(p), passes = p->train ? 2 : 1;
    *cost = (sli_cost){.flops = p->op == SLI_OP_DROPOUT ? passes * elements : 0, .bytes = passes * 8 * elements};
}

const sli_kernel sli_cuda_dropout = {.name = "cuda:dropout",
                                     .op = SLI_OP_DROPOUT,
                                     .device = SLI_DEVICE_CUDA,
                                     .eligible = element_eligible,
                                     .cost = copy_cost,
                                     .forward = sli_cuda_dropout_forward,
                                     .backward = sli_cuda_dropout_backward};

const sli_kernel sli_cuda_flip = {.name = "cuda:flip",
                                  .op = SLI_OP_FLIP,
                                  .device = SLI_DEVICE_CUDA,
                                  .eligible = element_eligible,
                                  .cost = copy_cost,
                                  .forward = sli_cuda_flip_forward,
                                  .backward = sli_cuda_flip_backward};

/* ------------------------------------------------------------------------------------------------------- merge -- */
static void merge_cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    const double elements = elements_of(p), passes = p->train ? 2 : 1;
    const bool concat = p->merge == SL_MERGE_CONCAT;
    *cost = (sli_cost){.flops = concat ? 0 : passes * elements * (p->parts - 1),
                       .bytes = passes * 4 * elements * (concat ? 2 : p->parts + 1)};
}

/* A product keeps its factors, [parts][t][b][H]: the parts' memory may go to others before backward. */
static void merge_book(const sli_problem *p, const sli_caps *caps, int chunk, sli_booking *booking) {
    (void)caps;
    (void)chunk;
    *booking = (sli_booking){0};
    if (p->train && p->merge == SL_MERGE_MULTIPLY)
        booking->saved = (size_t)p->parts * sli_cuda_rows_of(p) * (size_t)p->units * sizeof(float);
}

const sli_kernel sli_cuda_merge = {.name = "cuda:merge",
                                   .op = SLI_OP_MERGE,
                                   .device = SLI_DEVICE_CUDA,
                                   .eligible = element_eligible,
                                   .cost = merge_cost,
                                   .book = merge_book,
                                   .forward = sli_cuda_merge_forward,
                                   .backward = sli_cuda_merge_backward};
