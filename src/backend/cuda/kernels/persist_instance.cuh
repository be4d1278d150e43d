/* The persistent recurrence, one instance: its configuration comes as defines; NVRTC compiles it when a plan first needs it. */
#include "backend/cuda/kernels/persist.cuh"

struct persist_configuration {
    static constexpr int gates = PERSIST_GATES, math = PERSIST_MATH, gather = PERSIST_GATHER;
    static constexpr bool before = PERSIST_BEFORE, backward = PERSIST_BACKWARD, tight = PERSIST_TIGHT, scaled = PERSIST_SCALED;
    static constexpr int wave = PERSIST_WAVE, directions = PERSIST_DIRECTIONS, form = PERSIST_FORM;
    static constexpr int H = PERSIST_H, us = PERSIST_US, hs = PERSIST_HS, zs = PERSIST_ZS;
    static constexpr int units = PERSIST_UNITS, reduce = PERSIST_REDUCE, spread = PERSIST_SPREAD;
    static constexpr int tiles_n = PERSIST_TILES_N, halves = PERSIST_HALVES, few = PERSIST_FEW;
    static constexpr int couriers = PERSIST_COURIERS;
    static constexpr bool meets = PERSIST_MEETS;
    static constexpr int apart = PERSIST_APART, share = PERSIST_SHARE, chunks = PERSIST_CHUNKS, slots = PERSIST_SLOTS;
    static constexpr int warps_m = PERSIST_WARPS_M, warps_k = PERSIST_WARPS_K;
    static constexpr int tiles_m = PERSIST_TILES_M, tiles_k = PERSIST_TILES_K;
    static constexpr int in_registers = PERSIST_IN_REGISTERS, in_shared = PERSIST_IN_SHARED, ring = PERSIST_RING;
    static constexpr int options = PERSIST_OPTIONS, act = PERSIST_ACT, gate_act = PERSIST_GATE_ACT;
    static constexpr int shared_partial = PERSIST_SHARED_PARTIAL, shared_arriving = PERSIST_SHARED_ARRIVING;
    static constexpr int shared_weights = PERSIST_SHARED_WEIGHTS, shared_ring = PERSIST_SHARED_RING;
    static constexpr int shared_barriers = PERSIST_SHARED_BARRIERS, shared_sending = PERSIST_SHARED_SENDING,
                         shared_state = PERSIST_SHARED_STATE;
    static constexpr int inputs = PERSIST_INPUTS, inputs_math = PERSIST_INPUTS_MATH, inputs_row = PERSIST_INPUTS_ROW,
                         inputs_columns = PERSIST_INPUTS_COLUMNS, inputs_rows = PERSIST_INPUTS_ROWS, shared_inputs = PERSIST_SHARED_INPUTS;
};

extern "C" __global__ void __launch_bounds__((PERSIST_WARPS_M * PERSIST_WARPS_K + PERSIST_APART + PERSIST_COURIERS) *
                                                 32,
                                             1) persist_instance(const __grid_constant__ persist_args a) {
    persist_run<persist_configuration>(a);
}
