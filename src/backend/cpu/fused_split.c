#include "backend/cpu/fused_split.h"

#include "backend/cpu/panel_queue.h"

/* W x of one step, of which a thread computes several at once. */
static double input_seconds(const sli_fused_shape *s, const sli_fused_split *way, int directions, int rows) {
    const int threads = way->directions * way->rows * way->units, panels = sli_divide_up(s->input_panels, way->units);
    const int most = rows > 0 ? s->input_rows / rows : 1, steps = most < 1 ? 1 : most < s->steps ? most : s->steps;
    const sli_cost_panels weights = {.threads = threads,
                                     .rows = rows * steps,
                                     .flops = 2.0 * directions * rows * steps * panels * s->input_columns * s->inputs,
                                     .bytes = (double)directions * panels * (double)s->input_panel_bytes,
                                     .all_bytes =
                                         (double)s->directions * s->input_panels * (double)s->input_panel_bytes,
                                     .speed = s->speed};
    return s->inputs > 0 ? sli_cost_step(&s->machine, &weights) / steps : 0;
}

/* Panels of the busiest thread. Of threads that share units who comes late does less, so they end together, but for half a panel; where all are
 * ready each has its part. */
static double busiest_panels(const sli_fused_shape *s, const sli_fused_split *way) {
    if (way->units == 1) return s->panels;
    return s->machine.ready ? sli_divide_up(s->panels, way->units) : s->panels / (double)way->units + 0.5;
}

/* One step of the busiest thread, and its part of what starting threads costs. Threads that have parts of their own may be slowed down differently. */
static double split_seconds(const sli_fused_shape *s, const sli_fused_split *way) {
    const int directions = sli_divide_up(s->directions, way->directions), rows = sli_divide_up(s->batch, way->rows);
    const int threads = way->directions * way->rows * way->units;
    const double panels = busiest_panels(s, way);
    const sli_cost_panels weights = {.threads = threads,
                                     .rows = rows,
                                     .flops = 2.0 * directions * rows * panels * s->columns * s->k,
                                     .bytes = directions * panels * (double)s->panel_bytes,
                                     .all_bytes = (double)s->directions * s->panels * (double)s->panel_bytes,
                                     .speed = s->speed};
    const double cells =
        sli_cost_cell(&s->machine, s->op, s->backward) * directions * rows * s->units * panels / s->panels;
    const int rounds = directions * (s->stages + s->backward); /* backward the cells of a step are one */
    const double step = sli_cost_step(&s->machine, &weights) + input_seconds(s, way, directions, rows) + cells;
    return step * (way->units > 1 ? 1 : sli_cost_uneven(&s->machine, threads)) +
           directions * sli_cost_entry(&s->machine, s->backward) +
           (way->units > 1 ? rounds * sli_cost_round(&s->machine, way->units) : 0) +
           sli_cost_wake(&s->machine, threads) / (s->steps > 0 ? s->steps : 1);
}

enum { LEAST_ROWS = 2 }; /* one row alone takes three quarters of the time of two */

/* One thread is left for others where these are predicted to gain a fifth: what wakes up late and caches that exchange lines are not counted in
 * full. Where threads are ready nothing wakes up late (bench/results/ready_cpu_2026-11-29.txt). */
sli_fused_split sli_fused_split_of(const sli_fused_shape *s) {
    const double gain = s->machine.ready ? 0.95 : 0.8;
    const int most = s->panels <= SLI_PANEL_QUEUE_MOST ? s->panels : 1;
    sli_fused_split best = {.directions = 1, .rows = 1, .units = 1};
    best.seconds = split_seconds(s, &best);
    for (int u = 1; u <= most && u <= s->machine.threads; u++) {
        const int threads = u > 1 && s->machine.threads > SLI_PANEL_QUEUES ? SLI_PANEL_QUEUES : s->machine.threads;
        for (int d = 1; d <= s->directions && d * u <= threads; d++)
            for (int r = 1; r <= s->batch && d * r * u <= threads; r++) {
                if (d * r * u == 1 || (s->machine.ready && r > 1 && s->batch < LEAST_ROWS * r)) continue;
                sli_fused_split way = {.directions = d, .rows = r, .units = u};
                way.seconds = split_seconds(s, &way);
                const bool alone = best.directions * best.rows * best.units == 1;
                const bool better = way.seconds < (alone ? gain : 1) * best.seconds;
                const double lost = better ? best.seconds : way.seconds;
                way.others = best.others > 0 && best.others < lost ? best.others : lost;
                if (better)
                    best = way;
                else
                    best.others = way.others;
            }
    }
    return best;
}
