/* A run of wide steps, one instance: its configuration comes as defines; NVRTC compiles it when a plan first needs it. */
#define STEP_OPTIONS(k) RUN_OPTIONS
#define STEP_ACT(k) RUN_ACT
#define STEP_GATE_ACT(k) RUN_GATE_ACT
#define STEP_MATH(k) RUN_DTYPE
#define STEP_WIDE_FORM(math, v) (RUN_SCALED ? STEP_WIDE_SCALED : RUN_MATH > 1 ? STEP_WIDE_NARROW : STEP_WIDE_FLOATS)
#include "backend/cuda/kernels/step_run.cuh"

struct run_configuration {
    static constexpr int gates = RUN_GATES, math = RUN_MATH, rows = RUN_ROWS, held = RUN_HELD, vector = RUN_VECTOR, units = RUN_UNITS;
    static constexpr bool backward = RUN_BACKWARD, pair = RUN_PAIR, scaled = RUN_SCALED;
};
#if RUN_BACKWARD
typedef step_backward_run run_arguments;
#else
typedef step_forward_run run_arguments;
#endif

extern "C" __global__ void __launch_bounds__(WIDE_THREADS, 1) step_run_instance(const __grid_constant__ run_arguments a) {
    WIDE_MEMORY(memory);
    run_steps<run_configuration>(a, memory);
}
