/* cuda:step, wide steps: how their products are cut, and what they are predicted to take. */
#include <math.h>
#include <stdio.h>

#include "backend/cuda/persist_geometry.h"
#include "backend/cuda/step_cost.h"
#include "backend/cuda/step_layout.h"

enum {
    FULL = 132,
    LEAST_ROWS = 33, /* of the batch, by a launch a step; fewer were not measured */
    LEAST_RUN_ROWS = 9,
    LEAST_WIDE_RUN_ROWS = 17, /* in tf32: with 16 rows of 4096 units cuda:grid takes 0.95 of a run's time */
    LEAST_STAGES = 4,         /* of a piece */
    LEAST_RUN_STAGES = 10,
    LEAST_SHARED = 227 * 1024
};

static int divide_up(int64_t n, int64_t by) {
    return (int)((n + by - 1) / by);
}

bool sli_step_wide_pairs(const sli_step_wide *w) {
    return w->units > 0 && w->pieces == 2;
}

int sli_step_wide_grid(const sli_step_wide *w) {
    return w->blocks * w->tiles * w->pieces;
}

/* What fits, or the part of more than that which is best kept. Half of L2 is far from each multiprocessor; what else a run reads and writes passes through it, too. */
int sli_step_wide_near(const sli_step_wide *w, int directions, const sli_caps *caps) {
    static const double all = 0.5, part = 0.25,
                        of_run[2] = {0.55, 0.2}; /* of L2; of weights that are twice as much and more the last one */
    const double l2 = (double)caps->l2_bytes, bytes = directions * (double)sli_step_wide_bytes(w);
    const double kept = w->runs ? of_run[bytes > 2 * l2] : bytes <= all * l2 ? 1e9 : part;
    return (int)(fmin(1, kept * l2 / bytes) * w->stages);
}

/* us of a product, fitted to 14 of them on an H100 (wide_h100_2026-11-26.txt): a block's stages one after the other, and from memory what L2 does not hold. */
static double product_us(const sli_step_wide *w, int directions, const sli_caps *caps) {
    static const double begins = 6.6, reads = 5.0, memory = 2.7e6,
                        stage[2][2] = {{0.20, 0.27},
                                       {0.27, 0.36}}; /* us; bytes a us; us of a stage of 64 and 128 rows */
    const double sms = caps->multiprocessors > 0 ? caps->multiprocessors : FULL;
    const double blocks = (double)directions * sli_step_wide_grid(w), waves = ceil(blocks / sms);
    const double idle = fmax(0, 1 - blocks / sms), few = 1 + 0.2 * idle; /* fewer blocks ask for less at once */
    const double near = (double)sli_step_wide_near(w, directions, caps) / w->stages,
                 far = directions * (1 - near) * (double)sli_step_wide_bytes(w);
    const double multiplied = begins + waves * ceil((double)w->stages / w->pieces) * stage[far > 0][w->rows == 128];
    return fmax(multiplied, far > 0 ? reads + few * far / memory * FULL / sms : 0);
}

/* us of the cells, which add the pieces. */
static double cells_us(const sli_step_shape *s, const sli_step_wide *w, const sli_caps *caps, bool backward) {
    static const double launch = 2.5, rate[2] = {8.0e6, 1.8e6}, sums_rate = 6.0e6;
    const double gates = 4.0 * (double)s->B * (double)s->GH * 4; /* read, and written in two places */
    const double sums = 2.0 * w->pieces * (double)s->B * (double)(backward ? s->O : s->GH) * 4;
    const double part =
        caps->multiprocessors > 0 ? (double)FULL / caps->multiprocessors : 1; /* of a GPU: its share of memory and L2 */
    return launch + part * s->directions * (gates / rate[backward] + sums / sums_rate);
}

/* Of a run's stages those whose weights stay in registers: as many as leave room for the cells (an LSTM's backward with every option and 32 rows spills 24 bytes; none
 * whose blocks keep their sums does but pairs, 130 to 270, which of up to 64 rows are 3% faster so than with two stages less, of 128 rows as fast: graph_h200_2026-11-28.txt, 4). `plain`: cells without options, which leave more. */
enum { MOST_HELD = 9 };
_Static_assert((int)LEAST_RUN_STAGES > (int)MOST_HELD, "a piece has stages that are not held");
static int held_of(const sli_step_wide *w, bool plain) {
    const int more = plain && w->rows == 64;
    if (!w->narrow) return 0;
    if (sli_step_wide_pairs(w) && w->rows > 64) return 5;
    if (w->units > 0) return w->rows > 64 ? 6 : w->rows > 32 ? 8 + more : MOST_HELD;
    return w->rows > 32 ? 5 : 7;
}

/* us of a step of a run, fitted to H200s (of stages that are held to H100s): from memory come weights that neither registers nor L2 hold, and gates; from L2 these weights, too, v for every block,
 * and sums. Stages of weights ahead hide a part of the waits and of the cells. Of blocks that keep their sums: fitted to inference of LSTM of 2048 and 4096 units with 16 to 128 rows and of GRU of
 * 2400 and 3000 units, of which predictions are within 5%, of GRU of 2400 units 13% short (own_sums_h200_2026-11-27.txt). In tf32 a stage takes what its words take to registers. */
static double run_us(const sli_step_shape *s, const sli_step_wide *w, const sli_caps *caps, bool backward) {
    static const double
        waits[2] = {2.5, 2.2},
        paired = 1, cells[2][2] = {{1.3, 0.9}, {2.2, 2.2}}, memory[2] = {3.3e6, 3.95e6},
        l2[2] = {8.0e6, 9.5e6}, /* us; us of a thread's four units; bytes a us */
        few = 1.1,
        words[2] = {0.26,
                    0.36}; /* of so many blocks' share a block may have; us of a stage of 64 rows or fewer, of 128 */
    const bool own = w->units > 0;
    const double part = caps->multiprocessors > 0 ? (double)FULL / caps->multiprocessors : 1;
    const double held = fmin(1, (double)held_of(w, false) * w->pieces / w->stages),
                 near = (double)sli_step_wide_near(w, 1, caps) / w->stages;
    const double weights = (1 - held) * (double)sli_step_wide_bytes(w);
    const double gates = (backward ? 1.5 : s->train ? 2 : 1) * (double)s->B * (double)s->GH * 4;
    const double sums = own ? 0 : 2.0 * w->pieces * (double)s->B * (double)(backward ? s->O : s->GH) * 4;
    const double v = (double)w->blocks * (double)sli_step_wide_v(w);
    const double from_memory = fmax(0, weights - near * (double)sli_step_wide_bytes(w)) + gates,
                 from_l2 = weights + v + sums + gates;
    const double units = (double)s->B * (double)s->H / (4 * 8 * 32 * (double)sli_step_wide_grid(w));
    const double share = own ? fmin(1, few * part * sli_step_wide_grid(w) / FULL) : 1;
    const double multiplied = w->narrow ? 0 : words[w->rows == 128] * w->stages / w->pieces;
    return waits[own] + (sli_step_wide_pairs(w) ? paired : 0) + cells[backward][own] * fmax(1, units) +
           fmax(multiplied, part * fmax(from_memory / memory[own], from_l2 / (share * l2[own])));
}

static double step_us(const sli_step_shape *s, const sli_step_wide *w, const sli_caps *caps, bool backward) {
    return w->runs ? run_us(s, w, caps, backward) : product_us(w, s->directions, caps) + cells_us(s, w, caps, backward);
}

static int rows_of(int64_t batch, bool runs) {
    if (batch > 64) return 128;
    if (!runs || batch > 32) return 64;
    return batch > 16 ? 32 : 16;
}

/* Blocks, or pairs, of whole units, if that many are resident at once: no sums go through memory. A half of a block has half of its units. */
static void keep_sums(const sli_step_shape *s, const sli_caps *caps, sli_step_wide *w, int sms) {
    const int units = SLI_STEP_WIDE_HALF / (int)(s->GH / s->H) / 4 * 8, blocks = divide_up(s->H, units);
    if (blocks * w->tiles * w->pieces > sms) return;
    if (w->pieces == 2 && caps->resident[0] > 0 && caps->resident[2] < blocks) return;
    w->units = units;
    w->blocks = blocks;
}

/* How steps go, of which a cut is: operands, and whether many are in a launch. */
typedef struct way_of_steps {
    bool narrow, scaled, runs;
} way_of_steps;

/* The best cut; of a run, whose blocks are resident all at once, that of most blocks. */
static sli_step_wide cut(const sli_step_shape *s, const sli_caps *caps, way_of_steps way, bool backward) {
    const int sms = caps->multiprocessors > 0 ? caps->multiprocessors : FULL,
              least = way.runs ? LEAST_RUN_STAGES : LEAST_STAGES;
    const int64_t m = backward ? s->hs : s->zs, k = backward ? s->GH : s->O;
    sli_step_wide best = {0},
                  w = {.rows = rows_of(s->B, way.runs), .narrow = way.narrow, .scaled = way.scaled, .runs = way.runs};
    w.stages = divide_up(k * (way.narrow ? 2 : 4), SLI_STEP_WIDE_BYTES);
    w.blocks = divide_up(m, SLI_STEP_WIDE_TALL);
    w.tiles = divide_up(s->B, w.rows);
    for (w.pieces = 1; w.pieces <= SLI_STEP_WIDE_PIECES && w.pieces * least <= w.stages; w.pieces++)
        if (best.rows == 0 || (way.runs ? sli_step_wide_grid(&w) <= sms
                                        : step_us(s, &w, caps, backward) < step_us(s, &best, caps, backward)))
            best = w;
    if (way.runs && !backward && best.pieces <= 2) keep_sums(s, caps, &best, sms);
    return best;
}

/* Many steps in a launch: weights that L2 does not hold, as steps of a launch each read them anew. LSTM of 4096 units with 16, 32 and 64 rows and GRU of 2816
 * with 32 took 0.73 to 0.95 of the time in 16 bits, with 128 rows 0.94 in inference, but 1.02 in training with backward so, too (runs_2026-11-26.txt; 1.04 with its present
 * waits: own_sums_h200_2026-11-27.txt); more rows were not measured. In tf32 where blocks keep their sums, or operands are scaled ones of 16 bits, `narrow`. */
static bool can_run(const sli_problem *p, const sli_caps *caps, bool narrow, bool backward) {
    const bool many = p->batch > (backward ? 64 : 128);
    if ((!narrow && (p->dtype != SL_TF32 || backward)) || many) return false;
    if (p->batch < (narrow ? LEAST_RUN_ROWS : LEAST_WIDE_RUN_ROWS)) return false;
    if (p->bidirectional || p->wave > 0 || caps->no_compiler) return false;
    static const double part = 0.6; /* of L2, of tf32: what is computed in another way there waits longer */
    return (narrow ? 2.0 : 2.5) * sli_op_gates(p->op) * p->units * p->units >
           (narrow ? sli_step_l2_part : part) * (double)caps->l2_bytes;
}

/* By launches, in tf32: from GRU of 1024 units on, with 64 rows and more, and of one block (of M by a tile of the batch) a multiprocessor, all products that were
 * measured are faster than cuBLASLt's, by 1.05 to 2.2. Of more blocks layers were 4 to 7% slower (wide_h100_2026-11-26.txt, 2 and 7). */
enum { LEAST_WEIGHTS = 3 << 20 };
static bool takes(const sli_problem *p, const sli_caps *caps, bool runs, bool backward) {
    if (caps->compute_capability != 90 || caps->shared_memory < LEAST_SHARED) return false;
    if (p->projection > 0 || (p->op == SLI_OP_GRU && p->reset_before) || sli_step_fused(p, backward)) return false;
    return runs || (p->dtype == SL_TF32 && p->batch >= LEAST_ROWS &&
                    (int64_t)sli_op_gates(p->op) * p->units * p->units >= LEAST_WEIGHTS);
}

sli_step_wide sli_step_wide_of(const sli_problem *p, const sli_caps *caps, bool backward) {
    const sli_step_shape s = sli_step_shape_of(p, 1);
    const bool scaled = !backward && sli_persist_scales(p) && can_run(p, caps, true, false);
    const bool narrow = s.narrow || scaled, runs = can_run(p, caps, narrow, backward);
    const sli_step_wide none = {0};
    const way_of_steps way = {narrow, scaled, runs}, apart = {s.narrow, false, false};
    sli_step_wide wide = takes(p, caps, runs, backward) ? cut(&s, caps, way, backward) : none;
    if (wide.runs && !wide.narrow && wide.units == 0)
        wide = takes(p, caps, false, backward) ? cut(&s, caps, apart, backward) : none;
    return wide.blocks * wide.tiles <= (caps->multiprocessors > 0 ? caps->multiprocessors : FULL) ? wide : none;
}

bool sli_step_all_runs(const sli_problem *p, const sli_caps *caps) {
    sli_problem few = *p;
    if (p->recompute || !sli_step_wide_of(p, caps, false).runs || (p->train && !sli_step_wide_of(p, caps, true).runs))
        return false;
    for (few.batch = 1; few.batch <= p->batch;
         few.batch++) /* calls of fewer rows may be fused, in tf32 of 5 to 16 where one row is not */
        if (sli_step_fused(&few, false) || sli_step_fused(&few, true)) return false;
    return true;
}

double sli_step_wide_seconds(const sli_problem *p, const sli_caps *caps, const sli_step_wide *w, bool backward) {
    const sli_step_shape s = sli_step_shape_of(p, 1);
    return 1e-6 * step_us(&s, w, caps, backward);
}

size_t sli_step_wide_bytes(const sli_step_wide *w) {
    return (size_t)w->blocks * (size_t)w->stages * (size_t)SLI_STEP_WIDE_WEIGHTS(w->narrow);
}

int sli_step_wide_buffers(const sli_step_wide *w) {
    return w->runs ? 2 : 1;
}

size_t sli_step_wide_v(const sli_step_wide *w) {
    return (size_t)w->tiles * (size_t)w->stages * SLI_STEP_WIDE_BYTES * (size_t)w->rows;
}

void sli_step_run_defines(const sli_problem *p, const sli_step_wide *w, bool backward, int vector, int options, int act,
                          int gate_act, char *text, size_t capacity) {
    snprintf(text, capacity,
             "#define RUN_GATES %d\n#define RUN_MATH %d\n#define RUN_ROWS %d\n#define RUN_HELD %d\n#define RUN_VECTOR "
             "%d\n#define RUN_BACKWARD %d\n"
             "#define RUN_UNITS %d\n#define RUN_PAIR %d\n#define RUN_SCALED %d\n#define RUN_OPTIONS %d\n#define "
             "RUN_ACT %d\n#define "
             "RUN_GATE_ACT %d\n#define "
             "RUN_DTYPE %d\n",
             sli_op_gates(p->op),
             !w->narrow            ? 1
             : p->dtype == SL_BF16 ? 2
                                   : 3,
             w->rows, held_of(w, options == 0), vector, backward, w->units, sli_step_wide_pairs(w), w->scaled, options,
             act, gate_act, (int)p->dtype);
}
