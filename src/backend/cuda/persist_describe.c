/* How a geometry is written: for plans, for names of instances, for the compiler of one. Compiled into libsluice and into the plug-in. */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/persist_geometry.h"

void sli_persist_describe(const sli_persist_geometry *g, char *text, size_t capacity) {
    char blocks[96], rows[64];
    if (g->gather != SLI_PERSIST_GRID)
        snprintf(blocks, sizeof blocks, "cluster of %d", sli_persist_cluster(g));
    else if (g->meets)
        snprintf(blocks, sizeof blocks, "grid of %d blocks, %d to a sum", sli_persist_group(g), g->reduce);
    else if (g->reduce > 1)
        snprintf(blocks, sizeof blocks, "grid of %d blocks in clusters of %d", sli_persist_group(g), g->reduce);
    else
        snprintf(blocks, sizeof blocks, "grid of %d blocks", sli_persist_group(g));
    if (g->halves > 1)
        snprintf(rows, sizeof rows, "%d x %d rows in turns", g->halves, sli_persist_rows(g));
    else
        snprintf(rows, sizeof rows, "%d row%s", sli_persist_rows(g), sli_persist_rows(g) == 1 ? "" : "s");
    snprintf(text, capacity, "%s, %d units a block, %d slice%s of %s%s%s, weights %s%s%s%s", blocks, g->units,
             g->groups, g->groups == 1 ? "" : "s", rows, g->inputs > 0 ? ", input side in the launch" : "",
             g->apart > 0 ? ", cells apart" : "",
             g->tight    ? "of 20 bits "
             : g->scaled ? "of 16 bits "
                         : "",
             g->in_registers > 0 ? "in registers" : "",
             g->in_shared == 0     ? ""
             : g->in_registers > 0 ? " and shared memory"
                                   : "in shared memory",
             sli_persist_streamed(g) == 0              ? ""
             : g->in_registers > 0 || g->in_shared > 0 ? ", the rest streams"
                                                       : "stream");
}

/* Units x P x Q, rows of a CTA in tiles x turns, warps m x k, tiles of weights in registers + shared memory; of turns by couriers
 * chunks x slots x share, + warps of the cells apart, m: sums meet in memory; f: few rows; x: f32x3's
 * products in three, which are exact ones else; t: 20 bits a weight; s: scaled operands of 16. A ring has the room that these leave. */
void sli_persist_name(const sli_persist_geometry *g, char *name, size_t capacity) {
    char turns[40] = "";
    if (g->couriers > 0) snprintf(turns, sizeof turns, ",c%dx%dx%d", g->chunks, g->slots, g->share);
    if (g->apart > 0) snprintf(turns + strlen(turns), sizeof turns - strlen(turns), "+%d", g->apart);
    if (g->meets) snprintf(turns + strlen(turns), sizeof turns - strlen(turns), "m");
    if (g->few > 0) snprintf(turns, sizeof turns, ",f%d", g->few);
    if (g->math == SL_F32X3) snprintf(turns + strlen(turns), sizeof turns - strlen(turns), ",x");
    if (g->tight) snprintf(turns + strlen(turns), sizeof turns - strlen(turns), ",t");
    if (g->scaled) snprintf(turns + strlen(turns), sizeof turns - strlen(turns), ",s");
    snprintf(name, capacity, "u%dx%dx%d,b%dx%d,w%dx%d,r%d+%d%s", g->units, g->reduce, g->spread, g->tiles_n, g->halves,
             g->warps_m, g->warps_k, g->in_registers, g->in_shared, turns);
}

/* Numbers of a type as kernels/persist_sizes.cuh has them. */
static int math_of(sl_dtype dtype) {
    static const sl_dtype order[] = {SL_F32, SL_TF32, SL_BF16, SL_F16, SL_F32X3};
    int math = 0;
    while (order[math] != dtype) math++;
    return math;
}

void sli_persist_defines(const sli_persist_geometry *g, const sli_step_shape *s, int form, int options, int act,
                         int gate_act, char *text, size_t capacity) {
    const sli_persist_shared at = sli_persist_shared_of(g);
    const struct {
        const char *name;
        int value;
    } of[] = {{"GATES", g->gates},
              {"BEFORE", g->before},
              {"WAVE", g->wave},
              {"MATH", math_of(g->math)},
              {"TIGHT", g->tight},
              {"SCALED", g->scaled},
              {"GATHER", (int)g->gather},
              {"BACKWARD", g->backward},
              {"UNITS", g->units},
              {"REDUCE", g->reduce},
              {"SPREAD", g->spread},
              {"TILES_N", g->tiles_n},
              {"HALVES", g->halves},
              {"FEW", g->few},
              {"MEETS", g->meets},
              {"COURIERS", g->couriers},
              {"APART", g->apart},
              {"SHARE", g->share},
              {"CHUNKS", g->chunks},
              {"SLOTS", g->slots},
              {"WARPS_M", g->warps_m},
              {"WARPS_K", g->warps_k},
              {"TILES_M", g->tiles_m},
              {"TILES_K", g->tiles_k},
              {"IN_REGISTERS", g->in_registers},
              {"IN_SHARED", g->in_shared},
              {"RING", g->ring},
              {"INPUTS", g->inputs},
              {"INPUTS_MATH", math_of(g->inputs > 0 ? g->inputs_math : g->math)},
              {"INPUTS_ROW", g->inputs > 0 ? (int)s->xs : 0},
              {"INPUTS_COLUMNS", g->inputs_columns},
              {"INPUTS_ROWS", g->inputs_rows},
              {"DIRECTIONS", g->directions},
              {"H", (int)s->H},
              {"US", (int)s->us},
              {"HS", (int)s->hs},
              {"ZS", (int)s->zs},
              {"FORM", form},
              {"OPTIONS", options},
              {"ACT", act},
              {"GATE_ACT", gate_act},
              {"SHARED_PARTIAL", (int)at.partial},
              {"SHARED_ARRIVING", (int)at.arriving},
              {"SHARED_WEIGHTS", (int)at.weights},
              {"SHARED_RING", (int)at.ring},
              {"SHARED_BARRIERS", (int)at.barriers},
              {"SHARED_SENDING", (int)at.sending},
              {"SHARED_STATE", (int)at.state},
              {"SHARED_INPUTS", (int)at.inputs}};
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof of / sizeof *of && length < capacity; i++)
        length +=
            (size_t)snprintf(text + length, capacity - length, "#define PERSIST_%s %d\n", of[i].name, of[i].value);
}
