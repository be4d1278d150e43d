/* cuda:step, wide steps: how their products are cut, and what they are predicted to take. */
#include <math.h>

#include "backend/cuda/step_cost.h"
#include "backend/cuda/step_layout.h"

enum {
    FULL = 132,
    LEAST_ROWS = 33, /* of the batch; fewer were not measured */
    LEAST_STAGES = 4,
    LEAST_SHARED = 227 * 1024
};

static int divide_up(int64_t n, int64_t by) {
    return (int)((n + by - 1) / by);
}

enum { WEIGHTS_BYTES = SLI_STEP_WIDE_TALL * SLI_STEP_WIDE_K * 20 / 8 }; /* of a stage, in 20 bits */

int sli_step_wide_near(const sli_step_wide *w, int directions, const sli_caps *caps) {
    const double
        all = 0.5,
        part =
            0.25; /* of L2, half of which is far from each multiprocessor: what fits, what of more than that is best kept */
    const double l2 = (double)caps->l2_bytes, bytes = directions * (double)sli_step_wide_bytes(w);
    return bytes <= all * l2 ? w->stages : (int)(part * l2 / bytes * w->stages);
}

/* us of a product, fitted to 14 of them on an H100 (wide_h100_2026-11-26.txt): a block's stages one after the other, and from memory what L2 does not hold. */
static double product_us(const sli_step_wide *w, int directions, const sli_caps *caps) {
    static const double begins = 6.6, reads = 5.0, memory = 2.7e6,
                        stage[2][2] = {{0.20, 0.27},
                                       {0.27, 0.36}}; /* us; bytes a us; us of a stage of 64 and 128 rows */
    const double sms = caps->multiprocessors > 0 ? caps->multiprocessors : FULL;
    const double blocks = (double)directions * w->blocks * w->tiles * w->pieces, waves = ceil(blocks / sms);
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

static double step_us(const sli_step_shape *s, const sli_step_wide *w, const sli_caps *caps, bool backward) {
    return product_us(w, s->directions, caps) + cells_us(s, w, caps, backward);
}

/* The best cut. */
static sli_step_wide cut(const sli_step_shape *s, const sli_caps *caps, bool backward) {
    const int64_t m = backward ? s->hs : s->zs, k = backward ? s->GH : s->O;
    sli_step_wide best = {0}, w = {.rows = s->B > 64 ? 128 : 64, .stages = divide_up(k, SLI_STEP_WIDE_K)};
    w.blocks = divide_up(m, SLI_STEP_WIDE_TALL);
    w.tiles = divide_up(s->B, w.rows);
    for (w.pieces = 1; w.pieces <= SLI_STEP_WIDE_PIECES && w.pieces * LEAST_STAGES <= w.stages; w.pieces++)
        if (best.rows == 0 || step_us(s, &w, caps, backward) < step_us(s, &best, caps, backward)) best = w;
    return best;
}

/* From GRU of 1024 units on, with 64 rows and more, and of one block (of M by a tile of the batch) a multiprocessor, all products that were measured are faster
 * than cuBLASLt's, by 1.05 to 2.2. Of more blocks layers were 4 to 7% slower (wide_h100_2026-11-26.txt, 2 and 7). */
enum { LEAST_WEIGHTS = 3 << 20 };
static bool takes(const sli_problem *p, const sli_caps *caps, bool backward) {
    if (p->dtype != SL_TF32 || caps->compute_capability != 90 || caps->shared_memory < LEAST_SHARED) return false;
    if (p->projection > 0 || (p->op == SLI_OP_GRU && p->reset_before) || sli_step_fused(p, backward)) return false;
    return p->batch >= LEAST_ROWS && (int64_t)sli_op_gates(p->op) * p->units * p->units >= LEAST_WEIGHTS;
}

sli_step_wide sli_step_wide_of(const sli_problem *p, const sli_caps *caps, bool backward) {
    const sli_step_shape s = sli_step_shape_of(p, 1);
    const sli_step_wide none = {0}, wide = takes(p, caps, backward) ? cut(&s, caps, backward) : none;
    return wide.blocks * wide.tiles <= (caps->multiprocessors > 0 ? caps->multiprocessors : FULL) ? wide : none;
}

double sli_step_wide_seconds(const sli_problem *p, const sli_caps *caps, const sli_step_wide *w, bool backward) {
    const sli_step_shape s = sli_step_shape_of(p, 1);
    return 1e-6 * step_us(&s, w, caps, backward);
}

size_t sli_step_wide_bytes(const sli_step_wide *w) {
    return (size_t)w->blocks * (size_t)w->stages * WEIGHTS_BYTES;
}

int64_t sli_step_wide_v(const sli_step_wide *w) {
    return (int64_t)w->tiles * w->stages * SLI_STEP_WIDE_K * w->rows;
}
