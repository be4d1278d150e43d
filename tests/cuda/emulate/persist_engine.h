/* The host's side of cuda:cluster as it is, products as loops, its kernels but the recurrence as they are: in a namespace of its own, ENGINE_engine, for a
 * `world` with caps, seed, span, piece (of the launches, in chunks; 0: all), lanes and wrong, and complain(). The test has sli_persist_pack and
 * the launch of the recurrence. */
namespace {

int wanted_span(const sli_problem *p, const sli_persist_pair *, int chunk) {
    return world.span > 0 && world.span * chunk < p->steps ? world.span * chunk : p->steps;
}
int wanted_piece(const sli_problem *p, const sli_caps *, const sli_persist_pair *pair, int chunk, bool) {
    const int chunks = (wanted_span(p, pair, chunk) + chunk - 1) / chunk;
    return world.piece > 0 && world.piece < chunks ? world.piece : chunks;
}

} // namespace

#include "product.h"
namespace ENGINE_NAMESPACE {
#include "../../../src/backend/cuda/kernels/persist_host.cuh"

template <typename ARGS>
static void sli_step_launch(const step_way *, void (*kernel)(ARGS), const sli_step_grid *grid, const ARGS *args, bool,
                            const char *what, size_t = 0) {
    emulate::launch_config config;
    config.grid = dim3(grid->gx, grid->gy);
    config.block = dim3(grid->bx, grid->by);
    config.resident = 1; /* shared memory is static */
    config.seed = world.seed;
    const std::string failure = emulate::launch(config, [&] { kernel(*args); }).failure;
    if (!failure.empty()) complain(std::string(what) + ": " + failure);
}

#define sli_persist_span wanted_span
#define sli_persist_piece wanted_piece
#include "backend/cuda/kernels/persist_launch.cu"
#pragma pop_macro("gridDim")
#pragma pop_macro("blockDim")
#define __shared__ static
#include "../../../src/backend/cuda/kernels/step_device.cuh" /* not this folder's, which launches nothing */
#include "backend/cuda/kernels/step_way.cu"
#include "backend/cuda/kernels/step_common.cu"
#include "backend/cuda/kernels/persist_fold.cu"
#include "backend/cuda/kernels/persist_fold_host.cu"
#define args_at forward_args_at
#define projection_product forward_projection_product
#define recurrent_product forward_recurrent_product
#include "backend/cuda/kernels/step_forward.cu"
#undef args_at
#undef projection_product
#undef recurrent_product
#include "backend/cuda/kernels/step_backward.cu"
#include "backend/cuda/kernels/persist_host.cu"

const void *sli_persist_builtin(const sli_persist_geometry *) {
    return nullptr;
}

#define NOT_HERE(NAME, ...)                                 \
    void NAME(__VA_ARGS__) {                                \
        complain(#NAME ", which is not part of this test"); \
    }
#define STEP_FORWARD(NAME) NOT_HERE(sli_step_##NAME, const step_way *, const step_forward_args *, bool)
#define STEP_BACKWARD(NAME) NOT_HERE(sli_step_##NAME, const step_way *, const step_backward_args *, bool)
#include "step_launches.h"
NOT_HERE(sli_step_recompute, const step_way *)
#include "no_wide_steps.h"
NOT_HERE(sli_step_tiled_pack, const step_way *)
NOT_HERE(sli_step_tiled_begin, const step_way *)
NOT_HERE(sli_step_tiled_forward, const step_way *, const step_forward_args *, int, bool)
NOT_HERE(sli_step_fused_forward, const step_way *, const step_forward_args *, const void *, bool)
NOT_HERE(sli_step_fused_backward, const step_way *, const step_backward_args *, const void *, float *, bool)
} // namespace ENGINE_NAMESPACE

/* ------------------------------------------------------------------------------------------------------ services -- */
#include "failing_queue.h"
extern "C" {
bool sli_cuda_try(sli_queue *, cudaError_t error, const char *) {
    return error == cudaSuccess;
}
cudaError_t sli_cuda_injected(cudaError_t error) {
    return error;
}
cudaStream_t sli_cuda_stream(sli_queue *) {
    return nullptr;
}
cudaStream_t sli_cuda_fork(sli_queue *) {
    return reinterpret_cast<cudaStream_t>(&world); /* any but NULL, which is none */
}
void sli_cuda_join(sli_queue *) {}
bool sli_cuda_in_lanes(const sli_queue *) {
    return world.lanes > 0;
}
bool sli_cuda_open_lanes(sli_queue *, int count) {
    world.lanes = count;
    return true;
}
void sli_cuda_use_lane(sli_queue *, int) {}
void sli_cuda_pass_lane(sli_queue *) {}
void sli_cuda_wait_lane(sli_queue *, int) {}
void sli_cuda_close_lanes(sli_queue *) {
    world.lanes = 0;
}
void sli_cuda_leave_late(sli_queue *, sli_late_sums, const sli_call *, const int *) {
    complain("late sums");
}
void sli_cuda_mark_late(sli_queue *) {}
void sli_cuda_start_late(sli_queue *) {}
bool sli_cuda_is_late(const sli_queue *) {
    return false;
}
bool sli_cuda_awaits_late(const sli_queue *) {
    return false;
}
void sli_cuda_transpose(sli_queue *, cudaStream_t, const sli_cuda_transposition *, int) {
    complain("transposed copies of small matrices");
}
cudaKernel_t sli_cuda_compile(sli_queue *, const char *, const char *, const char *, sli_why *) {
    return &world; /* any */
}
bool sli_cuda_put(sli_queue *, cudaStream_t, void *to, const void *, size_t bytes) {
    memset(to, 0, bytes);
    return true;
}
cudaStream_t sli_cuda_fork_and_zero(sli_queue *queue, void *to, size_t bytes) {
    (void)sli_cuda_put(queue, nullptr, to, nullptr, bytes);
    return sli_cuda_fork(queue);
}
void sli_cuda_note_launch(sli_queue *, cudaStream_t) {}
void sli_cuda_narrow(sli_queue *, cudaStream_t, sl_dtype math, void *to, const float *from, size_t count) {
    for (size_t i = 0; i < count; i++) put_operand(math, to, (int64_t)i, from[i]);
}
void sli_cuda_multiply(sli_queue *, cudaStream_t, const sli_cuda_product *p) {
    if (p->workspace_bytes > 0) memset(p->workspace, 0xff, p->workspace_bytes);
    const std::string wrong = emulated_multiply(p);
    if (!wrong.empty()) complain(wrong);
}
void sli_cuda_move_rows(sli_queue *, cudaStream_t, const sli_cuda_move *move) {
    emulated_move(move);
}
bool sli_cuda_is_small(const sli_cuda_product *p) {
    return small_fits(p);
}
}
