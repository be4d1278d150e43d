#include "backend/cpu/fused_split.h"

/* Measured on Zen 3 with AVX2 (one core, 92 GFLOP/s, 512 KB of L2); only ratios matter. */
static const double flops_per_second = 90e9, cell_seconds = 3e-9, barrier_seconds = 0.25e-6, team_seconds = 0.05e-6;
static const double l2_rate = 80e9, l3_rate = 25e9; /* bytes a second of one core */

static int divide_up(int value, int by) {
    return (value + by - 1) / by;
}

/* One step of the busiest thread. Few rows do not fill the multipliers; weights beyond L2 come from L3 in every step. */
static double step_seconds(const sli_fused_shape *s, int directions, int rows, int panels, int units) {
    const double fill = rows == 1 ? 0.5 : rows == 2 ? 0.75 : 1;
    const double flops = 2.0 * directions * rows * panels * s->columns * s->k;
    const double bytes = (double)directions * panels * (double)s->panel_bytes;
    const double l2 = 0.75 * (s->machine.l2_bytes ? (double)s->machine.l2_bytes : 1024 * 1024);
    const double resident = bytes < l2 ? bytes : l2;
    const double products = flops / (flops_per_second * (s->speed > 0 ? s->speed : 1) * fill),
                 loads = resident / l2_rate + (bytes - resident) / l3_rate;
    return (products > loads ? products : loads) + cell_seconds * directions * rows * units;
}

static double split_seconds(const sli_fused_shape *s, const sli_fused_split *way) {
    const int directions = divide_up(s->directions, way->directions), rows = divide_up(s->batch, way->rows);
    const int panels = divide_up(s->panels, way->units), units = divide_up(s->units * panels, s->panels);
    const int threads = way->directions * way->rows * way->units;
    return step_seconds(s, directions, rows, panels, units) + (way->units > 1 ? barrier_seconds : 0) +
           (threads > 1 ? team_seconds * threads : 0);
}

/* Ways without a barrier come first: others must be clearly better. */
sli_fused_split sli_fused_split_of(const sli_fused_shape *s) {
    sli_fused_split best = {1, 1, 1, 0};
    best.seconds = split_seconds(s, &best);
    for (int u = 1; u <= s->panels && u <= s->machine.members; u++) {
        const int threads = u > 1 ? s->machine.members : s->machine.threads;
        for (int d = 1; d <= s->directions && d * u <= threads; d++)
            for (int r = 1; r <= s->batch && d * r * u <= threads; r++) {
                sli_fused_split way = {d, r, u, 0};
                way.seconds = split_seconds(s, &way);
                if (way.seconds < (u > 1 ? 0.98 : 1) * best.seconds) best = way;
            }
    }
    return best;
}
