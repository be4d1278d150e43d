/* The persistent recurrence: one launch computes many time steps, the recurrent weights stay in registers and shared memory.
 * Its geometry: how weights, units and rows of the batch are cut over the GPU. Plain C, compiled into libsluice (which chooses,
 * predicts, books) and into the plug-in (which launches).
 *
 * One step multiplies y = M v. Forward, v = d h' (one value a unit) and y = the gates' sums (`gates` values a unit), M = R.
 * Backward, v = dr (gates values a unit) and y = dp (one value a unit), M = R^T. A *group* of reduce x spread thread blocks
 * (CTAs) holds M once, and computes one slice of the batch. CTA (q, p), q < spread, p < reduce, owns the `units` units from
 * (q reduce + p) units on: it computes their cells. Of v it gathers what the CTAs (q', p) of all q' own, K = spread units vk
 * values; of y it computes partial sums for the units of all (q, p'), M = reduce units ym values, which go to their owners.
 *   reduce 1:                v is gathered whole, nothing is to be reduced
 *   spread 1, gather LOCAL:  v is the CTA's own, all of y is reduced over the cluster
 * Weights are cut into tiles of 512 bytes (`tight`: two of 640), 16 a lane: what one matrix instruction of a warp reads. Warp (wk, wm) of a CTA has
 * tiles_m x tiles_k of them: rows of M from wm tiles_m tile rows on, k from wk tiles_k tile columns on.
 * Of a wave (wave_layout.h) units are those of all layers, and M has W of the upper ones beside all R: a GRU's n has a sum of either, so four gates. */
#ifndef SLI_CUDA_PERSIST_GEOMETRY_H
#define SLI_CUDA_PERSIST_GEOMETRY_H

#ifdef __cplusplus
extern "C" {
#endif
#include "backend/cuda/cuda.h"
#include "backend/cuda/step_layout.h"

/* How v comes to the CTAs that multiply it. */
typedef enum sli_persist_gather {
    SLI_PERSIST_LOCAL,   /* spread 1: v stays in the CTA; cluster of `reduce`; forward 1 */
    SLI_PERSIST_CLUSTER, /* reduce 1: v goes through distributed shared memory; cluster of `spread` */
    SLI_PERSIST_GRID     /* v goes through global memory and a counter; clusters of `reduce`; launched cooperatively */
} sli_persist_gather;

typedef enum sli_persist_kind { SLI_PERSIST_KIND_CLUSTER, SLI_PERSIST_KIND_GRID } sli_persist_kind;

/* Everything but `groups` and `directions` is a constant of the compiled kernel. */
typedef struct sli_persist_geometry {
    int gates; /* 4 LSTM, 3 GRU, 1 RNN */
    /* GRU with reset before the product, two exchanges a step. Its weights are parts of M: forward of rows, those of r, z and n (v is d h', then
     * r d h'), backward of k, those of r and z, and of n (v is n's gradient, then those of r and z). */
    bool before;
    int wave;      /* 0, or units of a layer of a wave */
    sl_dtype math; /* f32, tf32, bf16, f16, f32x3 */
    /* In tf32, which products read 19 bits of: weights in 20 bits, so that more of them fit the chip and less is read. Of two tiles of k a lane has five words,
     * not eight; each is a weight, and the other three lie in their low 13 bits. The numbers are the same. */
    bool tight;
    /* Forward in tf32, where |v| has a bound (sli_persist_scales): operands of f16, `math`, times powers of two. They have as many bits as tf32's, half the bytes, and are multiplied
     * twice as fast (kernels/persist_scales.cuh); in memory operands are floats. */
    bool scaled;
    bool backward;
    sli_persist_gather gather;
    int units;           /* of a CTA; a multiple of sli_persist_unit_multiple */
    int reduce, spread;  /* P, Q */
    int tiles_n, halves; /* a CTA has halves x tiles_n x 8 rows of the batch; halves are computed in turns */
    /* 0, or 4, in f32 also 2 or 1: rows of the batch that a CTA has instead of 8 (1, 1 the above): FFMA multiplies what there is, and through a cluster
     * less is exchanged. */
    int few;
    /* 0, or warps beside those that compute, for more turns than two: kernels/persist_turns.cuh. There v comes in `chunks` of k
     * into a ring of `slots`, and `share` CTAs of a cluster that gather the same v bring a part each (else 1, 1, 0). `apart`: 0, or
     * warps of their own that compute the cells, beside the next product. */
    int couriers, apart, share, chunks, slots;
    bool meets; /* in turns, reduce > 1: sums go to their owners through memory, so no cluster binds who adds them up */
    int warps_m, warps_k; /* warps of a CTA that multiply, and compute cells unless `apart` */
    int tiles_m, tiles_k; /* of a warp */
    /* Of tiles_k: the first ones, the next ones; any rest streams from global memory. Each is even, or all that is left. */
    int in_registers, in_shared;
    int ring; /* of weights that stream: the pairs of tiles of k that a warp has asked for, in shared memory; else 0 */
    /* Forward: inputs of x, whose product with W a launch makes itself, before its first step
     * (kernels/persist_inputs.cuh), in this precision, of so many columns at most (rows of the batch at a step), so many rows a CTA; 0: a product before it does. */
    int inputs, inputs_columns, inputs_rows;
    sl_dtype inputs_math;
    int groups;     /* slices of the batch, each with its own copy of M on chip */
    int directions; /* computed by one launch */
} sli_persist_geometry;

/* Gates of a product: with reset before of the largest part, as all that follows, but for tiles_m and tiles_k themselves. */
static inline int sli_persist_multiplied(const sli_persist_geometry *g) {
    const int gates = g->wave > 0 && g->gates == 3 ? 4 : g->gates;
    return !g->before ? gates : g->backward ? 2 : 1;
}
/* Values of v and y a unit. */
static inline int sli_persist_vk(const sli_persist_geometry *g) {
    return g->backward ? sli_persist_multiplied(g) : 1;
}
static inline int sli_persist_ym(const sli_persist_geometry *g) {
    return g->backward ? 1 : sli_persist_multiplied(g);
}
static inline int sli_persist_operand(sl_dtype math) { /* bytes of a value of v */
    return math == SL_BF16 || math == SL_F16 ? 2 : 4;
}
/* Of weights that are tight a pair of tiles has 640, else 1024. */
static inline int sli_persist_tile_bytes(const sli_persist_geometry *g) {
    return g->tight ? 320 : 512;
}
/* A tile: rows of M by values of k; f32 is multiplied by FFMA: lane = row. */
static inline int sli_persist_tile_rows(sl_dtype math) {
    return math == SL_F32 ? 32 : 16;
}
static inline int sli_persist_tile_k(sl_dtype math) {
    return math == SL_F32 ? 4 : math == SL_BF16 || math == SL_F16 ? 16 : 8;
}
static inline int sli_persist_m(const sli_persist_geometry *g) {
    return g->reduce * g->units * sli_persist_ym(g);
}
static inline int sli_persist_k(const sli_persist_geometry *g) {
    return g->spread * g->units * sli_persist_vk(g);
}
/* Reset before: a warp's rows of tiles in a product, which are a third of tiles_m forward. */
static inline int sli_persist_part_m(const sli_persist_geometry *g) {
    return g->before && !g->backward ? g->tiles_m / 3 : g->tiles_m;
}
/* Of tiles_k backward the last ones: the part of n. */
static inline int sli_persist_new_k(const sli_persist_geometry *g) {
    const int columns = sli_persist_tile_k(g->math) * g->warps_k;
    return g->before && g->backward ? (g->spread * g->units + columns - 1) / columns : 0;
}
static inline int sli_persist_streamed(const sli_persist_geometry *g) { /* tiles of k that do not stay on chip */
    return g->tiles_k - g->in_registers - g->in_shared;
}
static inline int sli_persist_warps(const sli_persist_geometry *g) {
    return g->warps_m * g->warps_k;
}
static inline int sli_persist_threads(const sli_persist_geometry *g) {
    return 32 * (sli_persist_warps(g) + g->apart + g->couriers);
}
static inline int sli_persist_cell_warps(const sli_persist_geometry *g) {
    return g->apart > 0 ? g->apart : sli_persist_warps(g);
}
static inline int sli_persist_rows(const sli_persist_geometry *g) { /* of the batch, in one half */
    return g->few > 0 ? g->few : 8 * g->tiles_n;
}
static inline int sli_persist_places(const sli_persist_geometry *g) { /* room for rows, in v and in sums */
    return 8 * g->tiles_n;
}
/* CTAs of a cluster, of a group, of a launch. */
static inline int sli_persist_cluster(const sli_persist_geometry *g) {
    if (g->gather == SLI_PERSIST_CLUSTER) return g->spread;
    return g->meets ? g->share : g->reduce * g->share;
}
static inline int sli_persist_group(const sli_persist_geometry *g) {
    return g->reduce * g->spread;
}
static inline int sli_persist_ctas(const sli_persist_geometry *g) {
    return sli_persist_group(g) * g->groups * g->directions;
}
/* A warp computes cells of 32 units by a row, 16 by 2, 8 by 4 or 4 by 8. `units` is a multiple of it. Forward through a cluster sends 16 bytes
 * of neighbouring units at a time. */
static inline int sli_persist_unit_multiple(sl_dtype math, sli_persist_gather gather, bool backward) {
    return gather == SLI_PERSIST_CLUSTER && !backward && sli_persist_operand(math) == 2 ? 8 : 4;
}
static inline int sli_persist_cell_units(const sli_persist_geometry *g) {
    const bool sends = g->gather == SLI_PERSIST_CLUSTER && !g->backward;
    int units = g->units % 8 == 0 && (sli_persist_operand(g->math) == 2 || !sends) ? 8 : 4;
    if (g->gather == SLI_PERSIST_GRID && g->units % 16 == 0) units = 16;
    const int most = g->few == 0 ? 0 : g->math == SL_F32 ? 32 / g->few : 8;
    while (units < most && g->units % (2 * units) == 0) units *= 2;
    return units;
}
/* Warp cells of a half: units / cell_units x rows / (32 / cell_units), the most that a warp has of them. */
static inline int sli_persist_cells(const sli_persist_geometry *g) {
    const int each = sli_persist_cell_units(g), high = sli_persist_rows(g) / (32 / each);
    const int tiles = g->units / each * (high > 0 ? high : 1);
    return (tiles + sli_persist_cell_warps(g) - 1) / sli_persist_cell_warps(g);
}

/* Shared memory: offsets in bytes. */
typedef struct sli_persist_shared {
    /* operand [halves][buffers][rows / 8][pieces of 16 bytes of k][8]; couriers: [slots][warps_k][rows / 8][pieces of a chunk][8] */
    size_t v;
    size_t v_row;   /* bytes of a row of v: all k of the warps */
    int v_buffers;  /* gather over the grid 1, else 2: the next one comes while one is read */
    size_t partial; /* float [halves][warps_k][tiles_n][M tiled][8]: sums of this CTA's warps; couriers: no [halves] */
    size_t
        arriving; /* float [halves][2][reduce][tiles_n][units ym][8]: sums from others, reduce > 1; couriers: [buffers][reduce]... */
    size_t weights;  /* [warps][in_shared][tiles_m][512]; tight: [warps][in_shared / 2][tiles_m][640] */
    size_t ring;     /* [warps][ring][2][tiles_m][512], or [warps][ring][tiles_m][640]: weights that stream */
    size_t barriers; /* uint64 [...] */
    size_t sending;  /* forward through a cluster: [warps][PERSIST_SENDING], what a warp sends of its cells */
    size_t state;    /* couriers: float [halves][states][cells][threads of cells]: what cells keep between turns */
    size_t ranges;   /* couriers: int [halves][2]: steps of each */
    size_t
        inputs; /* float [columns][rows of the CTA's W and 4]: u, where the launch makes it, of W and x that lie where all others will */
    size_t total;
} sli_persist_shared;
enum { SLI_PERSIST_UNTIED = 8 }; /* registers that passing weights take beside tight ones that stay in registers */
enum { SLI_PERSIST_MOST_WARPS = 16, SLI_PERSIST_COURIERS = 4, SLI_PERSIST_APART = 4, SLI_PERSIST_MOST_TURNS = 64 };
sli_persist_shared sli_persist_shared_of(const sli_persist_geometry *g);
/* Bytes of M of one group, one direction, in the order that the kernel reads:
 * [CTA q reduce + p][warp wk warps_m + wm][tiles_k][tiles_m][lane][16]; tight: [tiles_k / 2][tiles_m] of [lane][16] and [lane][4]. */
size_t sli_persist_packed_bytes(const sli_persist_geometry *g);
/* Sums that come to an owner in a product. */
size_t sli_persist_arriving_bytes(const sli_persist_geometry *g);
/* Four warps multiply together by wgmma, which reads v in shared memory itself; else each for itself by mma, or FFMA. */
bool sli_persist_together(const sli_persist_geometry *g);
/* v over the grid tells by itself that it has come, no counter does (kernels/persist_exchange.cuh); so many pieces a lane. */
bool sli_persist_words_tell(const sli_persist_geometry *g);
int sli_persist_taken(const sli_persist_geometry *g);
/* Registers a thread will need, estimated from above; what more than the limit of the launch would spill. */
int sli_persist_registers(const sli_persist_geometry *g);

/* What problem->cut says of one pass: 0 is the best that is predicted, 1 the next. */
static inline int sli_persist_place(const sli_problem *problem, bool backward) {
    return backward ? problem->cut / SLI_CUTS : problem->cut % SLI_CUTS;
}

/* In tf32 |v| has a bound: h is a gate in [0, 1] times an activation that has one, or a mean of such, dropped out by a rate that is not near 1. */
bool sli_persist_scales(const sli_problem *problem);
/* The best geometry of this kind, or the one in the place that problem->cut says, for a plain (one layer) problem of `batch` rows,
 * one or both directions; false with the reason why there is none. Depends on cell, dtype, units, directions, train, batch, cut and
 * caps alone, and in tf32 on sli_persist_scales. */
bool sli_persist_choose(const sli_problem *problem, const sli_caps *caps, sli_persist_kind kind, bool backward,
                        sli_persist_geometry *geometry, sli_why *why);
/* Where caps->no_compiler it is one of the kernels that are built in (persist_builtin.h): number `index` of those of a type, its
 * groups and directions 1; false: there are fewer. The number of a geometry among them, whatever its groups and directions;
 * -1: it is not built in. */
bool sli_persist_builtin_get(sl_dtype math, int index, sli_persist_geometry *geometry);
int sli_persist_builtin_index(const sli_persist_geometry *geometry);
/* Of so many bytes of weights that stream in every step, those that are to stay in L2. */
double sli_persist_near(double bytes, double l2);
/* Whether what the steps of a pass read, which the pass before has left, is more than L2 keeps. */
bool sli_persist_far(const sli_problem *problem, bool backward, double l2);
/* Predicted seconds of one step of all its groups: fitted to cuts that were timed with the kernels of then. That, and what the newest times say, by which
 * cuts are ordered. And of the cut that is chosen, by which rows are (of a layer alone with the difference of the first two): training through a cluster has
 * become faster, not by the same time in all cuts perhaps, and some of the newer constants order cuts only. */
double sli_persist_step_seconds(const sli_persist_geometry *g, const sli_problem *problem, const sli_caps *caps);
double sli_persist_order_seconds(const sli_persist_geometry *g, const sli_problem *problem, const sli_caps *caps);
double sli_persist_taken_seconds(const sli_persist_geometry *g, const sli_problem *problem, const sli_caps *caps);
/* Multiprocessors that a launch leaves idle; 0 where its clusters come in waves. */
int sli_persist_idle(const sli_persist_geometry *g, const sli_caps *caps);
/* Names it among the geometries of one problem and pass, by all numbers that tell them apart: in choices. */
void sli_persist_name(const sli_persist_geometry *g, char *name, size_t capacity);
/* The configuration as kernels/persist_instance.cuh wants it, of a layer of this shape; form: PERSIST_HAS bits; options, act and
 * gate_act of src/cell; -1: given by the launch. */
enum { SLI_PERSIST_DEFINES = 2048 };
void sli_persist_defines(const sli_persist_geometry *g, const sli_step_shape *s, int form, int options, int act,
                         int gate_act, char *text, size_t capacity);
/* For `sluice plan`: "cluster of 16, 32 units a block, 7 slices of 8 rows, weights in registers". */
void sli_persist_describe(const sli_persist_geometry *g, char *text, size_t capacity);

#ifdef __cplusplus
}
#endif
#endif
