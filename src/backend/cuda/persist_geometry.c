/* The geometry of the persistent recurrence: what it needs on chip, and the search for the best one. Compiled into libsluice and into the plug-in. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/kernels/persist_args.h"
#include "backend/cuda/persist_cost.h"

enum {
    PART = 128, /* parts of shared memory begin at multiples of it: one row of banks */
    LEAST_WARPS = 4,
    MOST_TILES_M = 8,
    MOST_TILES_N = 4,
    MOST_TILES_K = 128,
    MOST_SPLIT_K = 64,  /* in f32 and f32x3: more gains nothing */
    MOST_SUMS = 16,     /* tiles_m x tiles_n of a warp */
    MOST_SUMS_FFMA = 8, /* in f32 a tile has twice the sums a lane */
    MOST_CLUSTER = 16,
    FULL = 132, /* multiprocessors of the H200 that was measured */
    REGISTERS = 65536,
    MOST_REGISTERS = 255,
    UNCOUNTED = 24,
    MOST_CHUNKS = 16, /* of v in many turns */
    MOST_SLOTS = 12,
    MOST_SHARE = 8,
    MOST_RING = 8,
    MOST_RING_BYTES = 80 * 1024, /* more under way brings no more */
    ALONE_UNITS = 32,
    FEW_UNITS = 160
};

static int up(int count, int each) { /* ceil(count / each) */
    return (count + each - 1) / each;
}

static int least(int a, int b) {
    return a < b ? a : b;
}

/* ------------------------------------------------------------------------------------------------------ on chip -- */
int sli_persist_taken(const sli_persist_geometry *g) {
    const int row = up(sli_persist_k(g) * sli_persist_operand(g->math), 16), warps = sli_persist_warps(g);
    return up(row * sli_persist_rows(g), 32 * (warps > 1 ? warps - 1 : 1));
}

bool sli_persist_words_tell(const sli_persist_geometry *g) {
    return g->gather == SLI_PERSIST_GRID && g->couriers == 0 && sli_persist_taken(g) <= PERSIST_TAKEN;
}

static size_t take(size_t *at, size_t bytes) {
    const size_t offset = *at;
    *at += sli_round_up(bytes, PART);
    return offset;
}

/* Rows and columns of M in whole tiles; with reset before of the largest part. */
static int tiled_m(const sli_persist_geometry *g) {
    return g->warps_m * sli_persist_part_m(g) * sli_persist_tile_rows(g->math);
}

int sli_persist_tiled_k(const sli_persist_geometry *g) {
    return g->warps_k * (g->tiles_k - sli_persist_new_k(g)) * sli_persist_tile_k(g->math);
}

/* Sums of the warps meet in shared memory, unless each warp has whole sums that it sends to their owners itself. */
size_t sli_persist_partial_bytes(const sli_persist_geometry *g) {
    if (g->reduce > 1 && g->warps_k == 1) return 0;
    return sizeof(float) * (size_t)g->warps_k * (size_t)sli_persist_places(g) * (size_t)tiled_m(g);
}

size_t sli_persist_arriving_bytes(const sli_persist_geometry *g) {
    if (g->reduce == 1) return 0;
    return sizeof(float) * (size_t)g->reduce * (size_t)sli_persist_places(g) * (size_t)(g->units * sli_persist_ym(g));
}

/* Of the cells of one slice, between its turns. */
static size_t state_bytes(const sli_persist_geometry *g) {
    const int states = g->gates == 4 ? 2 : 1;
    return sizeof(float) * (size_t)states * (size_t)sli_persist_cells(g) * 32 * (size_t)sli_persist_cell_warps(g);
}

/* Where weights stream, room is what they lack: sums take the place of v, which the next one fills anew, but for padding of k. */
static bool sums_over_v(const sli_persist_geometry *g) {
    const bool anew = sli_persist_tiled_k(g) == sli_persist_k(g) && !sli_persist_words_tell(g);
    const bool streams = g->gather == SLI_PERSIST_GRID && g->couriers == 0 && g->halves == 1 &&
                         sli_persist_streamed(g) > 0 && !g->before;
    return streams && anew && sli_persist_partial_bytes(g) > 0;
}

/* persist_inputs of kernels/persist_inputs.cuh: W, x and b in place of all else; then u, or x before it is an operand. */
static void take_inputs(const sli_persist_geometry *g, sli_persist_shared *at, size_t *end) {
    enum { MOST_HIGH = 4 };
    if (g->inputs == 0) return;
    const int each = 16 / sli_persist_operand(g->inputs_math), depth = up(up(g->inputs, each), 2);
    const int tile = g->inputs_math == SL_F32 ? 32 : 16, tiles = up(g->gates * g->units, tile),
              warps = sli_persist_warps(g);
    const int pairs = up(g->inputs_columns, 16), high = least(up(pairs * tiles, warps), MOST_HIGH);
    const size_t columns = 16 * (size_t)high * (size_t)up(pairs, high), rows = (size_t)tiles * (size_t)tile;
    const size_t made = 32 * (size_t)depth * (rows + columns + 2) + sizeof(float) * rows;
    const size_t u = columns * (rows + 4), raw = each == 8 ? columns * (size_t)g->inputs : 0;
    if (*end < made) *end = sli_round_up(made, PART);
    at->inputs = take(end, sizeof(float) * (u > raw ? u : raw));
}

sli_persist_shared sli_persist_shared_of(const sli_persist_geometry *g) {
    const size_t warps = (size_t)sli_persist_warps(g), halves = (size_t)g->halves, rows = (size_t)sli_persist_places(g);
    const size_t slab = (size_t)g->tiles_m * (size_t)sli_persist_tile_bytes(g);
    const size_t of_part = (size_t)sli_persist_part_m(g) * (size_t)sli_persist_tile_bytes(g);
    const size_t row = sli_round_up((size_t)sli_persist_tiled_k(g) * (size_t)sli_persist_operand(g->math), 16);
    const size_t partial = sli_persist_partial_bytes(g);
    const bool turns = g->couriers > 0, over = sums_over_v(g);
    const bool parts = g->before && !g->backward; /* z's sums and its v stay while the next product is computed */
    const size_t sums = (turns ? 1 : halves) * (parts ? 2 : 1);
    sli_persist_shared at = {.v_buffers = g->gather == SLI_PERSIST_GRID               ? 1
                                          : g->gather == SLI_PERSIST_CLUSTER && parts ? 3
                                                                                      : 2};
    size_t end = 0;
    at.v_row = row;
    const size_t v = turns ? (size_t)g->slots * (rows * at.v_row / (size_t)g->chunks)
                           : halves * (size_t)at.v_buffers * rows * at.v_row;
    at.v = take(&end, over && partial > v ? partial : v);
    at.partial = over ? at.v : take(&end, sums * partial);
    at.arriving = take(&end, (g->meets ? PERSIST_MEETING
                              : turns  ? PERSIST_ARRIVING
                                       : 2 * halves) *
                                 sli_persist_arriving_bytes(g));
    at.weights = take(&end, warps * (size_t)g->in_shared * slab);
    at.ring = take(&end, 2 * (size_t)g->ring * warps * of_part);
    const size_t of_turns = 2 * ((size_t)g->slots + halves) + PERSIST_ARRIVING + PERSIST_APART_BARRIERS;
    at.barriers = take(&end, ((turns ? of_turns : 8) + warps * (size_t)g->ring) * sizeof(uint64_t));
    at.sending = take(&end, g->gather == SLI_PERSIST_CLUSTER ? warps * PERSIST_SENDING : 0);
    at.state = take(&end, turns ? halves * state_bytes(g) : 0);
    at.ranges = take(&end, turns ? halves * 2 * sizeof(int32_t) : 0);
    take_inputs(g, &at, &end);
    at.total = end;
    return at;
}

size_t sli_persist_packed_bytes(const sli_persist_geometry *g) {
    return (size_t)sli_persist_group(g) * (size_t)sli_persist_warps(g) * (size_t)g->tiles_k * (size_t)g->tiles_m *
           (size_t)sli_persist_tile_bytes(g);
}

/* Each of four schedulers has a quarter of the registers for its warps. */
static int register_limit(const sli_persist_geometry *g) {
    const int warps = sli_persist_warps(g);
    if (g->apart > 0) return g->backward ? PERSIST_APART_REGISTERS_BACKWARD : PERSIST_APART_REGISTERS;
    if (g->couriers > 0) return PERSIST_TURNS_REGISTERS;
    const int each = REGISTERS / 4 / 32 / up(warps, 4) / 8 * 8;
    return each < MOST_REGISTERS ? each : MOST_REGISTERS;
}

int sli_persist_multiprocessors(const sli_caps *caps) {
    return caps->multiprocessors > 0 ? caps->multiprocessors : FULL;
}

/* Clusters of this size that are resident at once, a block a multiprocessor. An H200 has seven groups (GPCs) of 16 or 18
 * multiprocessors and one of about 10, which varies from one to the next: measured 132, 66, 30, 15, 7 of 1, 2, 4, 8, 16. Where the driver
 * was asked it is no more than it said: MIG and MPS leave fewer. What more it says is not used, so that all GPUs of a model choose alike. */
static int resident(int size, const sli_caps *caps) {
    const int multiprocessors = sli_persist_multiprocessors(caps);
    const int whole = multiprocessors * 7 / FULL, rest = multiprocessors - 16 * whole;
    const int last = size > 8 || rest < 0 ? 0 : rest < 10 ? rest : 10;
    const int expected = size <= 2 ? multiprocessors / size : whole * (16 / size) + last / size;
    return caps->resident[0] > 0 ? least(expected, caps->resident[size]) : expected;
}

/* The widest cluster; 1: there are none. Only data centre GPUs have clusters of more than 8. */
static int widest_cluster(const sli_caps *caps) {
    return caps->compute_capability < 90 ? 1 : caps->compute_capability >= 120 ? 8 : MOST_CLUSTER;
}

int sli_persist_waves(const sli_persist_geometry *g, const sli_caps *caps) {
    const int clusters = sli_persist_ctas(g) / sli_persist_cluster(g);
    const int at_once = resident(sli_persist_cluster(g), caps);
    return up(clusters, at_once > 0 ? at_once : 1);
}

int sli_persist_idle(const sli_persist_geometry *g, const sli_caps *caps) {
    const int idle = sli_persist_multiprocessors(caps) - sli_persist_ctas(g);
    return sli_persist_waves(g, caps) > 1 || idle < 0 ? 0 : idle;
}

/* ------------------------------------------------------------------------------------------------------- search -- */
typedef struct search {
    const sli_problem *problem;
    const sli_caps *caps;
    sli_persist_kind kind;
    size_t shared;
    int wanted, found;                   /* so many are looked for */
    sli_persist_geometry best[SLI_CUTS]; /* the best, in order */
    double of[SLI_CUTS];                 /* their seconds */
    double seconds;                      /* of the last that is wanted, < 0: there are fewer */
} search;

static bool fits_shared(const search *s, const sli_persist_geometry *g) {
    return sli_persist_shared_of(g).total <= s->shared;
}

/* Behind the weights there is room for slots. */
static void add_slots(const search *s, sli_persist_geometry *g) {
    while (g->slots < MOST_SLOTS && g->slots < 4 * g->chunks && fits_shared(s, g)) g->slots++;
    while (!fits_shared(s, g)) g->slots--;
}

/* Of two tiles of k. */
static int pair_registers(const sli_persist_geometry *g) {
    return (g->tight ? 5 : g->math == SL_F32X3 ? 16 : 8) * g->tiles_m;
}

/* What streams: weights that are left over by registers, by a ring and by the rest of shared memory. A deep ring brings more a us, but
 * v and sums come first: a slice of twice the rows reads the weights once, not twice, which a shallow ring is the smaller loss for
 * (LSTM of 2048 units, 32 rows, tf32 inference: 25.2 us a step in two slices of 16 rows with the deepest ring, 18.8 in one slice
 * with none, 2026-11-22). */
static bool place_stream(const search *s, sli_persist_geometry *g) {
    const int pair = pair_registers(g);
    const size_t tile = (size_t)sli_persist_warps(g) * (size_t)sli_persist_tile_bytes(g);
    const size_t slab = tile * (size_t)g->tiles_m, of_part = tile * (size_t)sli_persist_part_m(g);
    if (g->before && g->halves > 1) return false; /* its parts stream in turn */
    g->in_registers = g->in_shared = 0;
    const int left = register_limit(g) - sli_persist_registers(g), untied = g->tight ? SLI_PERSIST_UNTIED : 0;
    if (left < 0) return false;
    g->ring = least(MOST_RING, (int)(MOST_RING_BYTES / (2 * of_part)));
    if (g->ring < 1) g->ring = 1;
    while (g->ring > 0 && !fits_shared(s, g)) g->ring--;
    if (g->ring == 0) return false;
    /* Outside of turns nvcc 13.0 takes some 40 more than are counted, and a word that spills is read behind a step's v by way of L2: GRU of
     * 2816 units, 32 rows, f16 2.96 ms with 19 spilled, 3.18 with 24, 2.57 with none. */
    const int kept = g->couriers == 0 && sli_persist_operand(g->math) == 2 ? left - UNCOUNTED : left - untied;
    const int tiles = kept > 0 ? kept / pair * 2 : 0;
    g->in_registers = tiles < g->tiles_k ? tiles : (g->tiles_k - 1) / 2 * 2;
    const int rest = sli_persist_streamed(g);
    const size_t slabs = (s->shared - sli_persist_shared_of(g).total) / slab;
    g->in_shared = (slabs < (size_t)rest ? (int)slabs : rest - 1) / 2 * 2;
    g->ring = least(g->ring, up(sli_persist_streamed(g), 2));
    return true;
}

/* Weights go into registers first, which are read for nothing, then into shared memory; what is left streams, in a grid. Tiles
 * are read in pairs: a part of them is even. */
static bool place(const search *s, sli_persist_geometry *g) {
    const int limit = register_limit(g);
    const int pair = pair_registers(g);
    g->in_registers = g->tiles_k;
    g->in_shared = g->ring = 0;
    if (sli_persist_registers(g) <= limit) return fits_shared(s, g);
    g->in_registers = 0;
    g->in_shared = g->tiles_k;
    const int left = limit - sli_persist_registers(g), kept = left - (g->tight ? SLI_PERSIST_UNTIED : 0);
    if (left < 0) return false;
    g->in_registers = kept > 0 ? kept / pair * 2 : 0;
    g->in_shared = g->tiles_k - g->in_registers;
    if (fits_shared(s, g)) return true;
    /* In turns f32 and f32x3 gain nothing by it: multiplying takes them longer than v does to come. */
    if (g->couriers > 0 && (g->math == SL_F32 || g->math == SL_F32X3)) return false;
    return s->kind != SLI_PERSIST_KIND_CLUSTER && place_stream(s, g);
}

static void keep_faster(search *s, const sli_persist_geometry *g) {
    const double seconds = sli_persist_order_seconds(g, s->problem, s->caps);
    int at = s->found;
    /* Rounding does not decide between equals: libsluice and the plug-in choose the same. */
    while (at > 0 && seconds < (1 - 1e-9) * s->of[at - 1]) at--;
    if (at == s->wanted) return;
    for (int k = s->found < s->wanted ? s->found : s->wanted - 1; k > at; k--) {
        s->best[k] = s->best[k - 1];
        s->of[k] = s->of[k - 1];
    }
    s->best[at] = *g;
    s->of[at] = seconds;
    s->found += s->found < s->wanted;
    if (s->found == s->wanted) s->seconds = s->of[s->wanted - 1];
}

/* Tiles of a warp: with reset before of all parts, of which the first has pairs along k. */
static void set_tiles(sli_persist_geometry *g, int all_m, int all_k) {
    g->tiles_m = up(all_m, g->warps_m) * (g->before && !g->backward ? 3 : 1);
    g->tiles_k = up(all_k, g->warps_k);
    if (g->before && g->backward) g->tiles_k = 2 * up(g->tiles_k, 2) + sli_persist_new_k(g);
    if (g->tight) g->tiles_k = 2 * up(g->tiles_k, 2);
}

static void try_chunks(search *s, sli_persist_geometry g) {
    const int most_sums = g.math == SL_F32 ? MOST_SUMS_FFMA : MOST_SUMS, sums = sli_persist_part_m(&g) * g.tiles_n;
    const int most_k = g.math == SL_F32 || g.math == SL_F32X3 ? MOST_SPLIT_K : MOST_TILES_K;
    if (g.tiles_m > MOST_TILES_M || g.tiles_k > most_k || sums > most_sums) return;
    const int most = g.couriers > 0 ? MOST_CHUNKS : 1;
    for (g.chunks = 1; g.chunks <= most; g.chunks *= 2) {
        if (g.chunks > 1 && (g.tiles_k % g.chunks != 0 || g.tiles_k / g.chunks % 2 != 0)) break;
        const int few = g.couriers == 0 ? 0 : g.chunks > 1 ? 3 : 2;
        for (g.slots = few; g.slots <= 2 * few; g.slots++) {
            if (!place(s, &g)) break;
            if (g.couriers > 0) add_slots(s, &g);
            if (g.apart > 0 && !sli_persist_together(&g)) break;
            keep_faster(s, &g);
            if (sli_persist_streamed(&g) == 0) break; /* they have all slots that there is room for */
        }
    }
}

/* Weights of tf32 are tight where registers do not hold them all as they are. */
static void try_warps(search *s, sli_persist_geometry g, int all_m, int all_k) {
    const int least = g.couriers > 0 ? SLI_PERSIST_TURN_WARPS : LEAST_WARPS;
    if (sli_persist_warps(&g) > least && (g.warps_m > all_m || g.warps_k > all_k)) return; /* warps without a tile */
    set_tiles(&g, all_m, all_k);
    try_chunks(s, g);
    if (g.math != SL_TF32 || g.before) return;
    g.in_registers = g.tiles_k;
    g.in_shared = 0;
    if (sli_persist_registers(&g) <= register_limit(&g)) return;
    g.tight = true;
    set_tiles(&g, all_m, all_k);
    try_chunks(s, g);
}

static void try_tiles(search *s, sli_persist_geometry g) {
    const int all_m = up(sli_persist_m(&g), sli_persist_tile_rows(g.math));
    const int all_k = up(sli_persist_k(&g), sli_persist_tile_k(g.math));
    if (g.couriers > 0) {
        /* Of two turns, sums on their way hold up the v that is needed next, unless cells are apart. */
        const int least = g.reduce > 1 && g.halves == 2 ? SLI_PERSIST_APART : 0;
        for (g.apart = least; g.apart <= SLI_PERSIST_APART; g.apart += SLI_PERSIST_APART)
            for (g.warps_m = 1; g.warps_m <= SLI_PERSIST_TURN_WARPS; g.warps_m *= 2) {
                g.warps_k = SLI_PERSIST_TURN_WARPS / g.warps_m;
                try_warps(s, g, all_m, all_k);
            }
        return;
    }
    for (g.warps_m = 1; g.warps_m <= SLI_PERSIST_MOST_WARPS; g.warps_m++)
        for (g.warps_k = up(LEAST_WARPS, g.warps_m); g.warps_k <= SLI_PERSIST_MOST_WARPS / g.warps_m; g.warps_k++)
            try_warps(s, g, all_m, all_k);
}

/* Slices of the batch. A grid is resident as a whole, clusters come in waves. */
static void try_rows(search *s, sli_persist_geometry g) {
    const int batch = s->problem->batch;
    for (g.halves = 1; g.halves <= 2; g.halves++)
        for (g.tiles_n = 1; g.tiles_n <= MOST_TILES_N; g.tiles_n++) {
            g.groups = up(batch, 8 * g.halves * g.tiles_n);
            if (g.tiles_n > 1 && g.groups == up(batch, 8 * g.halves * (g.tiles_n - 1))) continue;
            if (g.halves > 1 && up(batch, g.groups) <= 8) continue;
            if (s->kind == SLI_PERSIST_KIND_GRID && sli_persist_waves(&g, s->caps) > 1) continue;
            g.warps_m = 1; /* with the most warps the exchange is the shortest: a bound */
            g.warps_k = SLI_PERSIST_MOST_WARPS;
            if (s->seconds >= 0 &&
                1e-6 * sli_persist_exchange_us(&g, s->problem, s->caps) * sli_persist_waves(&g, s->caps) >= s->seconds)
                continue;
            try_tiles(s, g);
        }
}

/* In f32 a CTA may have fewer rows than 8: products of a small layer are over sooner, of a small batch FFMA multiplies no rows that
 * are not there. So it may in tf32 and f32x3: exact products of a few rows take less time than eight rows on tensor cores; in tf32 but
 * of a small layer through a cluster, where the exchange is most of a step (LSTM, one row: 128 units 0.63 us a step, on tensor cores 0.60;
 * 160 units 0.64 and 0.70, 256 units 0.70 and 0.80). Beside operands that are scaled, which go through a cluster in two thirds of the time, of a single row alone: over the grid 1024 units
 * take 0.96 so (halves_h200_2026-11-28.txt). */
static void try_few_rows(search *s, sli_persist_geometry g) {
    const int batch = s->problem->batch;
    const bool through_cluster = g.gather != SLI_PERSIST_GRID && sli_persist_cluster(&g) > 1;
    if (g.scaled ? through_cluster || batch > 1 : sli_persist_operand(g.math) == 2) return;
    g.scaled = false;
    if (g.math == SL_TF32 && through_cluster && s->problem->units < FEW_UNITS) return;
    g.math = SL_F32;
    g.halves = g.tiles_n = 1;
    for (g.few = 4; g.few >= 1; g.few /= 2) {
        g.groups = up(batch, g.few);
        if (sli_persist_waves(&g, s->caps) == 1) try_tiles(s, g);
    }
}

/* Through a cluster, what a step waits for is half of it and more, and part of that is for bytes: four of a tensor core's eight rows in each of more
 * clusters (LSTM of 512 units, 16 rows, bf16, training 0.83 of the time). Two rows gain no more. Not where a warp sends cells of eight rows anyway. */
static void try_part_rows(search *s, sli_persist_geometry g) {
    const int batch = s->problem->batch;
    g.halves = g.tiles_n = 1;
    g.few = 4;
    if (g.math == SL_F32 || sli_persist_cluster(&g) == 1) return;
    if (g.gather == SLI_PERSIST_CLUSTER && 32 / sli_persist_cell_units(&g) > g.few) return;
    g.groups = up(batch, g.few);
    g.warps_m = 1;
    g.warps_k = SLI_PERSIST_MOST_WARPS;
    const double exchange = 1e-6 * sli_persist_exchange_us(&g, s->problem, s->caps) * sli_persist_waves(&g, s->caps);
    if (s->seconds < 0 || exchange < s->seconds) try_tiles(s, g);
}

/* More slices than two a group, in turns: the larger the batch, the less their exchange is waited for. */
static void try_turns(search *s, sli_persist_geometry g) {
    const int most = sli_persist_multiprocessors(s->caps) / (sli_persist_group(&g) * g.directions);
    if (s->kind != SLI_PERSIST_KIND_GRID || s->caps->compute_capability != 90) return; /* registers change hands */
    if (g.before) return;
    g.couriers = SLI_PERSIST_COURIERS;
    for (g.tiles_n = 1; g.tiles_n <= MOST_TILES_N; g.tiles_n++) {
        const int slices = up(s->problem->batch, 8 * g.tiles_n);
        for (int groups = 1; groups <= most; groups++) {
            g.halves = up(slices, groups);
            g.groups = up(slices, g.halves);
            if (g.groups != groups || g.halves > SLI_PERSIST_MOST_TURNS) continue;
            for (g.share = 1; g.share <= MOST_SHARE; g.share *= 2) {
                g.meets = false;
                const bool in_clusters =
                    g.share * g.reduce <= widest_cluster(s->caps) && sli_persist_waves(&g, s->caps) == 1;
                g.meets = !in_clusters && g.reduce > 1;
                if (g.spread % g.share == 0 && g.share <= widest_cluster(s->caps) &&
                    sli_persist_waves(&g, s->caps) == 1)
                    try_tiles(s, g);
            }
        }
    }
}

/* One cluster holds all units. */
static void try_clusters(search *s, sli_persist_geometry g) {
    const int multiple = sli_persist_unit_multiple(g.math, g.gather, g.backward);
    int before = 0;
    for (int size = 1; size <= widest_cluster(s->caps); size++) {
        g.units = up(up(s->problem->units, size), multiple) * multiple;
        const int blocks = up(s->problem->units, g.units);
        if (blocks == before || resident(blocks, s->caps) < 1) continue;
        before = blocks;
        g.gather = g.backward || blocks == 1 ? SLI_PERSIST_LOCAL : SLI_PERSIST_CLUSTER;
        g.reduce = g.backward ? blocks : 1;
        g.spread = g.backward ? 1 : blocks;
        try_few_rows(s, g);
        try_part_rows(s, g);
        /* Alone a block has too many cells: GRU of 64 units in tf32 1.40 us a step, in two blocks 0.69 (2026-11-21). In 16 bits so
         * backward, but for RNN: training of GRU 106 us in one block, 70 in four, of RNN 56 and 61 (cuts_h200_2026-11-23.txt). */
        const bool busy = sli_persist_operand(g.math) == 4 || (g.backward && g.gates > 1);
        if (blocks == 1 && busy && s->problem->units > ALONE_UNITS) continue;
        try_rows(s, g);
    }
}

static void try_grids(search *s, sli_persist_geometry g) {
    const int multiple = sli_persist_unit_multiple(g.math, g.gather, g.backward), units = s->problem->units;
    const int most = g.backward ? MOST_CLUSTER : 4, all = sli_persist_multiprocessors(s->caps);
    for (g.reduce = 1; g.reduce <= most && g.reduce <= widest_cluster(s->caps); g.reduce *= 2) {
        const int at_once = all / g.reduce; /* clusters of four and more are fewer: then sums meet in memory */
        int before = 0;
        if (at_once < 1 || (g.reduce > 1 && units <= multiple * (g.reduce - 1))) continue;
        for (int spread = at_once / g.directions; spread >= 1; spread--) {
            g.units = up(up(units, spread * g.reduce), multiple) * multiple;
            g.spread = up(units, g.units * g.reduce);
            if (g.spread == before) continue;
            before = g.spread;
            try_few_rows(s, g);
            try_rows(s, g);
            try_turns(s, g);
        }
    }
}

/* Without NVRTC: the built-in kernels that have as many units, or more. */
static void try_builtin(search *s, const sli_persist_geometry *wanted) {
    const sli_problem *p = s->problem;
    sli_persist_geometry g;
    for (int i = 0; sli_persist_builtin_get(p->dtype, i, &g); i++) {
        const int cluster = sli_persist_cluster(&g);
        if (g.gates != wanted->gates || g.backward != wanted->backward || g.gather != wanted->gather) continue;
        if (g.before != wanted->before) continue;
        if (sli_persist_group(&g) * g.units < p->units || cluster > widest_cluster(s->caps)) continue;
        if (resident(cluster, s->caps) < 1 || !fits_shared(s, &g)) continue;
        g.directions = wanted->directions;
        g.groups = up(p->batch, g.halves * sli_persist_rows(&g));
        keep_faster(s, &g);
    }
}

static bool refuse(sli_why *why, const char *format, ...) SLI_PRINTF(2, 3);
static bool refuse(sli_why *why, const char *format, ...) { /* libsluice has one; the plug-in has not */
    va_list arguments;
    va_start(arguments, format);
    if (why) vsnprintf(why->text, sizeof why->text, format, arguments);
    va_end(arguments);
    return false;
}

static void try_all(search *s, sli_persist_geometry g) {
    if (s->kind == SLI_PERSIST_KIND_GRID)
        try_grids(s, g);
    else
        try_clusters(s, g);
}

/* h of an LSTM is o act(c), of a GRU a mean of what it was and of act(.), of an RNN act(.). */
bool sli_persist_scales(const sli_problem *p) {
    static const double most_dropped = 0.999;
    const sl_activation act = p->act, gate = p->recurrent_act;
    const bool bounded = act != SL_ACT_LINEAR && act != SL_ACT_RELU;
    const bool gates = gate == SL_ACT_DEFAULT || gate == SL_ACT_SIGMOID || gate == SL_ACT_HARD_SIGMOID ||
                       gate == SL_ACT_HARD_SIGMOID_K2;
    return p->dtype == SL_TF32 && bounded && (gates || p->op == SLI_OP_RNN) && p->recurrent_dropout <= most_dropped;
}

/* In f32x3 exact products are as good where they are faster. */
static bool find(search *s, bool backward) {
    sli_persist_geometry g = {.gates = sli_op_gates(s->problem->op),
                              .math = s->problem->dtype,
                              .backward = backward,
                              .share = 1,
                              .chunks = 1};
    g.directions = sli_problem_directions(s->problem);
    g.before = s->problem->op == SLI_OP_GRU && s->problem->reset_before;
    g.wave = s->problem->wave > 0 ? s->problem->units / s->problem->wave : 0;
    g.gather = s->kind == SLI_PERSIST_KIND_GRID ? SLI_PERSIST_GRID : backward ? SLI_PERSIST_LOCAL : SLI_PERSIST_CLUSTER;
    s->seconds = -1;
    s->found = 0;
    if (s->caps->no_compiler) {
        try_builtin(s, &g);
    } else if (!backward && sli_persist_scales(s->problem)) {
        sli_persist_geometry scaled = g;
        scaled.math = SL_F16;
        scaled.scaled = true;
        try_all(s, scaled);
    } else {
        try_all(s, g);
    }
    g.math = SL_F32;
    if (!s->caps->no_compiler && s->problem->dtype == SL_F32X3) try_all(s, g);
    return s->found == s->wanted;
}

static bool refuse_size(search *s, bool backward, sli_why *why) {
    const sli_problem *p = s->problem;
    if (s->caps->no_compiler && p->op == SLI_OP_GRU && p->reset_before)
        return refuse(why, "has no built-in kernel for reset before the product, and NVRTC is missing");
    if (s->caps->no_compiler) return refuse(why, "has no built-in kernel for %d units, and NVRTC is missing", p->units);
    const char *pass = backward ? "backward" : "forward";
    const int all = sli_persist_multiprocessors(s->caps);
    const int gates = p->wave > 0 && p->op == SLI_OP_GRU ? 4 : sli_op_gates(p->op); /* sli_persist_multiplied */
    const double matrix = (double)gates * p->units * p->units * sli_persist_operand(p->dtype);
    if (s->kind == SLI_PERSIST_KIND_CLUSTER)
        return refuse(why, "%s, %d units have %.3g MB of recurrent weights, more than a cluster of %d blocks holds",
                      pass, p->units, matrix / 1e6, widest_cluster(s->caps));
    if (s->found > 0) return refuse(why, "%s, has %d ways to cut the work", pass, s->found);
    sli_problem one_row = *p;
    one_row.batch = 1;
    s->problem = &one_row;
    if (find(s, backward))
        return refuse(why, "%s, a batch of %d and %.3g MB of recurrent weights do not fit %d multiprocessors at once",
                      pass, p->batch, matrix / 1e6, all);
    return refuse(why, "%s, %d units do not fit the shared memory of %d multiprocessors, %zu KB each", pass, p->units,
                  all, s->shared >> 10);
}

bool sli_persist_choose(const sli_problem *problem, const sli_caps *caps, sli_persist_kind kind, bool backward,
                        sli_persist_geometry *geometry, sli_why *why) {
    const int place = sli_persist_place(problem, backward);
    search s = {.problem = problem, .caps = caps, .kind = kind, .shared = caps->shared_memory, .wanted = place + 1};
    if (kind == SLI_PERSIST_KIND_CLUSTER && widest_cluster(caps) < 2)
        return refuse(why, "needs clusters of thread blocks, which GPUs have from sm_90 on; this is sm_%d",
                      caps->compute_capability);
    if (!find(&s, backward)) return refuse_size(&s, backward, why);
    *geometry = s.best[place];
    return true;
}
