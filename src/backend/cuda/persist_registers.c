/* What follows from a geometry: whether warps multiply together, registers that a thread will need, counted, and what L2 keeps. Compiled into libsluice and into the plug-in. */
#include "backend/cuda/persist_geometry.h"

bool sli_persist_together(const sli_persist_geometry *g) {
    const bool type = g->math == SL_BF16 || g->math == SL_F16 || g->math == SL_TF32;
    return g->couriers > 0 && type && !g->tight && g->warps_m % 4 == 0 && sli_persist_streamed(g) == 0 &&
           (g->tiles_n == 2 || g->tiles_n == 4);
}

/* What a lane keeps of each of its cells: forward the sums of the input side on their way, the gates, the states; backward what
 * forward saved, gradients, sums; with addresses. */
static int cell_registers(const sli_persist_geometry *g) {
    if (!g->backward) return 2 * g->gates + 4 + (g->wave > 0 ? 2 : 0);
    return g->gates == 4 ? 19 : g->gates == 3 ? 17 : 8;
}

/* With wgmma cells and addresses together, as nvcc 13.0 takes them: a register too few, and it lets each wgmma wait for the one
 * before (half the speed and less), so that these are from where it spills, not from what is counted. */
static int together_registers(const sli_persist_geometry *g) {
    const int cells = sli_persist_cells(g);
    if (g->apart > 0) return 32;
    if (!g->backward) return (cells <= 2 ? 64 + 12 * cells : 28 + 33 * cells) + (g->in_shared > 0 ? 4 : 0);
    const bool later = g->reduce > 1 && g->halves > 1; /* the cells come after the next item's product */
    return 40 + 50 * cells + (g->gates == 3 ? 12 : 0) + (later ? 15 : 0);
}

/* Beside weights and sums: rows of v, weights that pass through (a pair of tiles of k from shared memory). f32x3 keeps weights as high and low parts. Compared with what nvcc 13.0 spills, LSTM of 128 to 2048
 * units, all types: at most a few registers. */
int sli_persist_registers(const sli_persist_geometry *g) {
    const bool ffma = g->math == SL_F32, split = g->math == SL_F32X3, together = sli_persist_together(g);
    const int cells = sli_persist_cells(g), addresses = g->backward ? 62 : 56;
    const int tiles_m = sli_persist_part_m(g);
    const bool twice = !ffma && !together && cells > 1 && tiles_m * g->tiles_n <= 4; /* persist_two_sums */
    const int kept = g->tight ? 5 * g->tiles_m * g->in_registers / 2 : (split ? 8 : 4) * g->tiles_m * g->in_registers;
    const int columns = !ffma ? 4 : g->few > 0 ? g->few : 8;
    const int sums = columns * tiles_m * g->tiles_n * (twice ? 2 : 1);
    if (together) return kept + sums + together_registers(g);
    const int rows = ffma ? 24 : (split ? 8 : 4) * g->tiles_n;
    const bool pass = sli_persist_streamed(g) > 0 || g->in_shared > 0;
    const int passing = tiles_m * (pass       ? 8
                                   : g->tight ? 4
                                              : 0) +
                        (g->tight && g->in_registers > 0 ? SLI_PERSIST_UNTIED : 0);
    const int of_cells = cell_registers(g) * cells * (g->couriers ? 1 : g->halves) + (twice ? 8 : 0);
    const int taken =
        sli_persist_words_tell(g) ? 4 * sli_persist_taken(g) + 8 : 0; /* of v, while nothing is multiplied */
    const int working = sums + passing + rows + (split ? 32 : 0);
    return addresses + kept + (working > taken ? working : taken) + of_cells;
}

/* Of 134 MB that stream again and again 40 are best kept (28.8 us without, 23.3, with 50 MB 24.0), of 67 MB as many; 49 MB all stay by
 * themselves (one H200 with 63 MB of L2; bench/results/near_h200_2026-11-22.txt). */
double sli_persist_near(double bytes, double l2) {
    const double all_fit = 0.78, some = 0.62;
    return bytes <= all_fit * l2 ? bytes : some * l2;
}

/* Backward of 15 MB of gates, c and dy takes up to 2.4% less if nothing is asked for ahead, of 20 MB and more up to 8% less if all is (one H200 with 63 MB of
 * L2; bench/results/far_h200_2026-11-29.txt). Layers of a stack come one after the other. */
bool sli_persist_far(const sli_problem *p, bool backward, double l2) {
    const double part = 0.25, floats = sli_op_gates(p->op) + (backward ? 2 : 0);
    const double units = (double)sli_problem_parts(p) * p->units;
    return floats * sizeof(float) * units * p->steps * p->batch > part * l2;
}
