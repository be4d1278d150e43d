/* Functions of the plug-in under names of a test's own, which begin with ENGINE, since other tests of this folder define the same ones for theirs; and what a
 * test's engine (persist_engine.h) is made of but its own sources. In front of the test's `world`. */
#define ENGINE_JOIN2(a, b) a##_##b
#define ENGINE_JOIN(a, b) ENGINE_JOIN2(a, b)
#define ENGINE_NAME(name) ENGINE_JOIN(ENGINE, name)
#define ENGINE_NAMESPACE ENGINE_NAME(engine)
#define sli_cuda_caps_of ENGINE_NAME(caps_of)
#define sli_cuda_failed ENGINE_NAME(failed)
#define sli_cuda_fail ENGINE_NAME(fail)
#define sli_cuda_phase ENGINE_NAME(phase)
#define sli_cuda_stream ENGINE_NAME(stream)
#define sli_cuda_fork ENGINE_NAME(fork)
#define sli_cuda_join ENGINE_NAME(join)
#define sli_cuda_fork_and_zero ENGINE_NAME(fork_and_zero)
#define sli_cuda_narrow ENGINE_NAME(narrow)
#define sli_cuda_note_launch ENGINE_NAME(note_launch)
#define sli_cuda_put ENGINE_NAME(put)
#define sli_cuda_multiply ENGINE_NAME(multiply)
#define sli_cuda_move_rows ENGINE_NAME(move_rows)
#define sli_cuda_is_small ENGINE_NAME(is_small)
#define sli_cuda_transpose ENGINE_NAME(transpose)
#define sli_cuda_try ENGINE_NAME(try)
#define sli_cuda_injected ENGINE_NAME(injected)
#define sli_cuda_in_lanes ENGINE_NAME(in_lanes)
#define sli_cuda_open_lanes ENGINE_NAME(open_lanes)
#define sli_cuda_use_lane ENGINE_NAME(use_lane)
#define sli_cuda_pass_lane ENGINE_NAME(pass_lane)
#define sli_cuda_wait_lane ENGINE_NAME(wait_lane)
#define sli_cuda_close_lanes ENGINE_NAME(close_lanes)
#define sli_cuda_leave_late ENGINE_NAME(leave_late)
#define sli_cuda_mark_late ENGINE_NAME(mark_late)
#define sli_cuda_start_late ENGINE_NAME(start_late)
#define sli_cuda_is_late ENGINE_NAME(is_late)
#define sli_cuda_awaits_late ENGINE_NAME(awaits_late)
#define sli_cuda_compile ENGINE_NAME(compile)
#define sli_gpu_cluster_pack ENGINE_NAME(cluster_pack)
#define sli_gpu_cluster_forward ENGINE_NAME(cluster_forward)
#define sli_gpu_cluster_backward ENGINE_NAME(cluster_backward)
#define sli_gpu_grid_pack ENGINE_NAME(grid_pack)
#define sli_gpu_grid_forward ENGINE_NAME(grid_forward)
#define sli_gpu_grid_backward ENGINE_NAME(grid_backward)
#define sli_gpu_step_pack ENGINE_NAME(step_pack)
#define sli_gpu_step_forward ENGINE_NAME(step_forward)
#define sli_gpu_step_backward ENGINE_NAME(step_backward)
#define cudaLaunchKernelExC ENGINE_NAME(launch_kernel)
#pragma push_macro("gridDim") /* members of CUDA's */
#pragma push_macro("blockDim")
#undef gridDim
#undef blockDim
#include "cuda_runtime_api.h"
#include "backend/cuda/runtime/narrow.h"
extern "C" {
#include "backend/cuda/cuda.h"
}
#include "backend/cuda/compile.h"
#include "backend/cuda/services.h"
#include "backend/cuda/persist_overlap.h"
#include "cell/gru.h"
#include "cell/lstm.h"
#include "cell/rnn.h"
