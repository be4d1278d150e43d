/* The geometry of the persistent recurrence: what it needs on chip, what a step of it will take, and the search for the best
 * one. Compiled into libsluice and into the plug-in. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/kernels/persist_args.h"
#include "backend/cuda/persist_geometry.h"

enum {
    PART = 128,       /* parts of shared memory begin at multiples of it: one row of banks */
    TILE_BYTES = 512, /* of weights, 16 a lane */
    LEAST_WARPS = 4,
    MOST_TILES_M = 8,
    MOST_TILES_N = 4,
    MOST_TILES_K = 64,
    MOST_SUMS = 16,     /* tiles_m x tiles_n of a warp */
    MOST_SUMS_FFMA = 8, /* in f32 a tile has twice the sums a lane */
    MOST_CLUSTER = 16,
    FULL = 132, /* multiprocessors of the H200 that was measured */
    REGISTERS = 65536,
    MOST_REGISTERS = 255,
    UNCOUNTED = 24,
    TURN_WARPS = 8,   /* that multiply */
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

static int tiled_k(const sli_persist_geometry *g) {
    return g->warps_k * (g->tiles_k - sli_persist_new_k(g)) * sli_persist_tile_k(g->math);
}

/* Sums of the warps meet in shared memory, unless each warp has whole sums that it sends to their owners itself. */
static size_t partial_bytes(const sli_persist_geometry *g) {
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
    const bool anew = tiled_k(g) == sli_persist_k(g) && !sli_persist_words_tell(g);
    const bool streams = g->gather == SLI_PERSIST_GRID && g->couriers == 0 && g->halves == 1 &&
                         sli_persist_streamed(g) > 0 && !g->before;
    return streams && anew && partial_bytes(g) > 0;
}

sli_persist_shared sli_persist_shared_of(const sli_persist_geometry *g) {
    const size_t warps = (size_t)sli_persist_warps(g), halves = (size_t)g->halves, rows = (size_t)sli_persist_places(g);
    const size_t slab = (size_t)g->tiles_m * TILE_BYTES, of_part = (size_t)sli_persist_part_m(g) * TILE_BYTES;
    const size_t row = sli_round_up((size_t)tiled_k(g) * (size_t)sli_persist_operand(g->math), 16);
    const size_t partial = partial_bytes(g);
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
    at.state = take(&end, turns ? halves * state_bytes(g) : 0);
    at.ranges = take(&end, turns ? halves * 2 * sizeof(int32_t) : 0);
    at.total = end;
    return at;
}

size_t sli_persist_packed_bytes(const sli_persist_geometry *g) {
    return (size_t)sli_persist_group(g) * (size_t)sli_persist_warps(g) * (size_t)g->tiles_k * (size_t)g->tiles_m *
           TILE_BYTES;
}

/* Each of four schedulers has a quarter of the registers for its warps. */
static int register_limit(const sli_persist_geometry *g) {
    const int warps = sli_persist_warps(g);
    if (g->apart > 0) return g->backward ? PERSIST_APART_REGISTERS_BACKWARD : PERSIST_APART_REGISTERS;
    if (g->couriers > 0) return PERSIST_TURNS_REGISTERS;
    const int each = REGISTERS / 4 / 32 / up(warps, 4) / 8 * 8;
    return each < MOST_REGISTERS ? each : MOST_REGISTERS;
}

static int multiprocessors_of(const sli_caps *caps) {
    return caps->multiprocessors > 0 ? caps->multiprocessors : FULL;
}

/* Clusters of this size that are resident at once, a block a multiprocessor. An H200 has seven groups (GPCs) of 16 or 18
 * multiprocessors and one of about 10, which varies from one to the next: measured 132, 66, 30, 15, 7 of 1, 2, 4, 8, 16. Where the driver
 * was asked it is no more than it said: MIG and MPS leave fewer. What more it says is not used, so that all GPUs of a model choose alike. */
static int resident(int size, const sli_caps *caps) {
    const int multiprocessors = multiprocessors_of(caps);
    const int whole = multiprocessors * 7 / FULL, rest = multiprocessors - 16 * whole;
    const int last = size > 8 || rest < 0 ? 0 : rest < 10 ? rest : 10;
    const int expected = size <= 2 ? multiprocessors / size : whole * (16 / size) + last / size;
    return caps->resident[0] > 0 ? least(expected, caps->resident[size]) : expected;
}

/* The widest cluster; 1: there are none. Only data centre GPUs have clusters of more than 8. */
static int widest_cluster(const sli_caps *caps) {
    return caps->compute_capability < 90 ? 1 : caps->compute_capability >= 120 ? 8 : MOST_CLUSTER;
}

static int waves(const sli_persist_geometry *g, const sli_caps *caps) {
    const int clusters = sli_persist_ctas(g) / sli_persist_cluster(g);
    const int at_once = resident(sli_persist_cluster(g), caps);
    return up(clusters, at_once > 0 ? at_once : 1);
}

int sli_persist_idle(const sli_persist_geometry *g, const sli_caps *caps) {
    const int idle = multiprocessors_of(caps) - sli_persist_ctas(g);
    return waves(g, caps) > 1 || idle < 0 ? 0 : idle;
}

/* ------------------------------------------------------------------------------------------------------ seconds --
 * A step: v is gathered, multiplied, sums are reduced, cells are computed, one after the other:
 *     us = gather + product + reduce + cells,     two halves:  2 (product + cells + turn (gather + reduce))
 * of one half each; of slices in turns as below. Origin of the constants: fitted to 529 geometries of LSTM and GRU, 256 to 2048
 * units, 1 to 256 rows, bf16, tf32, f32, each measured on one H200, 2026-11-21 (bench/results/geometries_h200_*): the middle
 * prediction is 6% off, the geometry predicted to be the best 3% slower than the best that was measured; those of grids were measured
 * before a warp had cells of 16 units (of 204 measured since the choice is 3% behind as well). Those of turns: 219 of them, of 512
 * to 2048 units, bf16 and tf32 (turns_h200_*): 8% and 5%. Those of streams: 104 of them, 1024 to 4096 units (streams_h200_*): 6%. Words that tell, and turn_exchange
 * forward: by hand, from 91 of 650 to 2048 units (exchange_h200_2026-11-22.txt). turn_whole, turn_chain, turn_eight, apart_alone, forward's together_item, slots of streams: by hand, from 365 of 40
 * problems: the cut that is chosen was 2.2% slower than the best of those, and is 0.8% (cuts_h200_2026-11-23.txt). Sums that meet in memory: by hand, from a dozen cuts (meeting_h200_2026-11-23.txt). Few rows over the
 * grid: 0.1 us less, by hand; through a cluster they take 0.1 to 0.15 us more than predicted (few_rows_h200_2026-11-22.txt). Times are us, rates bytes a us. */
static const struct {
    double clock;                            /* cycles a us, under load */
    double cluster, cluster_block;           /* exchange through a cluster, and a block of it more */
    double cluster_rate, cluster_rate_block; /* bytes that arrive in a block; less by a block of the cluster more */
    double grid, grid_words, grid_full;      /* counter; words that tell; and more of both over the whole GPU */
    double words_few, words_many;            /* a warp fewer than eight, a piece a lane more than five */
    double words_rows;                       /* few rows less */
    double grid_rate, grid_l2_rate;          /* reading of v: by a block, and of L2 by all of them */
    double flops_16, flops_tf32, flops_ffma; /* FLOP a cycle and multiprocessor */
    double shared_rate, ffma_reads;          /* bytes a cycle; times that FFMA reads v */
    double product;                          /* times matrix units and shared memory take together, in mma */
    double chain;                            /* cycles from one mma to the next that adds to its sums; the ISA's */
    double cells, cells_warp;                /* of a step, and its barriers a warp */
    double cell[2], cell_trains,
        cell_more;      /* cells a warp: forward, backward; forward in training more; times squared */
    double addend, odd; /* a sum that a cell adds up; units whose v shares 32 bytes with others' */
    double turn;        /* of an exchange, what two halves do not hide of it */
    /* Turns: until all that was given can be brought (forward, backward); a chunk; v: by a block, and of L2 by all, and what of it holds up the
     * item; of sums on their way: bytes that arrive in a block, an item, times an item whose cells wait for them; cells: of an item,
     * of a warp (forward, backward, forward in training more), times squared, a sum that is added. */
    double turn_exchange[2], turn_chunk, turn_rate, turn_l2_rate, turn_beside;
    double turn_whole; /* chunks that v in one piece counts for, forward by wgmma: it is waited for to its last byte */
    double turn_chain; /* chain, forward in turns */
    double turn_eight; /* of more than two items of eight rows, each */
    double turn_reduce_rate, turn_reduce, turn_reduced, turn_product;
    double meet, meet_item,
        meet_rate; /* sums that meet in memory: on their way; what they hold up an item, and their bytes a us */
    double turn_cells, turn_cell[2], turn_cell_trains, turn_cell_more, turn_addend;
    double turn_flops_16, turn_flops_tf32;
    double turn_fill, turn_fill_rate, turn_streams; /* of streams: a slot, and its bytes; times, of slices in turns */
    double turn_slot,
        turn_slots[2]; /* a chunk waits for its slot, from so many chunks a slot on: wgmma; mma that streams */
    double together, together_shared, together_item[2]; /* wgmma: cycles; weights in shared memory; of an item */
    double apart_product, apart_cells,
        apart_alone; /* cells apart: what an item is longer than its product, its cells, and forward where nothing is beside it */
    double backward; /* times what is predicted so */
    /* Times, in f32x3; through a cluster, both ways; and forward in turns, others and LSTM (split_h200_2026-11-23, layers_again_h200_2026-11-24). */
    double split[2], split_cluster, split_turns[2];
    double reduce_rate; /* bytes of sums that arrive in a block */
    /* Streamed weights: of a block (FFMA: the second, fitted to copies of 16 bytes); us from asking to arriving; of memory; of the shorter
     * of product and stream, what the other does not hide; times what is predicted backward. */
    double stream_rate[2], stream_latency, stream_memory, stream_beside[2], stream_backward;
    double memory_flow; /* states and gates */
    /* Reset before, backward: times that partial sums are written and read; a unit of a block. By hand, from a dozen cuts
     * (reset_before_h200_2026-11-24.txt). */
    double before_sums, before_unit;
} rates = {.clock = 1850,
           .cluster = 0.12,
           .cluster_block = 0.004,
           .cluster_rate = 40e3,
           .cluster_rate_block = 0.47e3,
           .grid = 0.94,
           .grid_words = 0.66,
           .words_few = 0.05,
           .words_many = 0.1,
           .words_rows = 0.1,
           .grid_full = 0.03,
           .grid_rate = 122e3,
           .grid_l2_rate = 7.2e6,
           .flops_16 = 2550,
           .flops_tf32 = 1670,
           .flops_ffma = 240,
           .shared_rate = 128,
           .ffma_reads = 10.3,
           .product = 0.96,
           .chain = 20,
           .cells = 0.02,
           .cells_warp = 0.007,
           .cell = {0.056, 0.81},
           .cell_trains = 0.32,
           .cell_more = 0.01,
           .addend = 0.0057,
           .odd = 0.1,
           .turn = 0.93,
           .turn_exchange = {1.42, 1.77},
           .turn_chunk = 0.0187,
           .turn_rate = 212e3,
           .turn_l2_rate = 13.7e6,
           .turn_beside = 0.32,
           .turn_whole = 3,
           .turn_chain = 14,
           .turn_eight = 0.05,
           .turn_reduce_rate = 195e3,
           .turn_reduce = 0.096,
           .turn_reduced = 1.164,
           .turn_product = 0.675,
           .meet = 3,
           .meet_item = 0.5,
           .meet_rate = 23e3,
           .turn_cells = 0.304,
           .turn_cell = {0.09, 0.283},
           .turn_cell_trains = 0.098,
           .turn_cell_more = 0.03,
           .turn_addend = 0.0074,
           .turn_flops_16 = 3600,
           .turn_flops_tf32 = 1800,
           .turn_fill = 0.6,
           .turn_fill_rate = 26e3,
           .turn_streams = 1.26,
           .turn_slot = 0.5,
           .turn_slots = {2, 4.5},
           .together = 12.8,
           .together_shared = 5.2,
           .together_item = {0.036, 0.086},
           .apart_product = 0.283,
           .apart_cells = 0.275,
           .apart_alone = 0.08,
           .backward = 0.82,
           .split = {1.55, 1.7},
           .split_cluster = 2,
           .split_turns = {1.12, 1.4},
           .reduce_rate = 31e3,
           .stream_rate = {70e3, 54e3},
           .stream_latency = 0.9,
           .stream_memory = 4.1e6,
           .stream_beside = {0.363, 0.163},
           .stream_backward = 0.937,
           .memory_flow = 3.5e6,
           .before_sums = 4,
           .before_unit = 0.02};

static double cluster_us(int size, double bytes) {
    if (size <= 1) return 0;
    return rates.cluster + rates.cluster_block * size + bytes / (rates.cluster_rate - rates.cluster_rate_block * size);
}

/* `gates`: of v and of sums, forward and backward, in one product; with reset before there are two (exchange_us). */
static double gather_us(const sli_persist_geometry *g, int batch, const sli_caps *caps, int gates) {
    const bool words = sli_persist_words_tell(g);
    const int rows = words && batch < 8 ? batch : sli_persist_rows(g); /* that are exchanged */
    const double values = (double)g->spread * g->units * (g->backward ? gates : 1);
    const double bytes = values * rows * sli_persist_operand(g->math);
    if (g->gather == SLI_PERSIST_LOCAL) return 0;
    if (g->gather == SLI_PERSIST_CLUSTER) return cluster_us(g->spread, bytes);
    const double few = fmax(0, TURN_WARPS - sli_persist_warps(g)), many = fmax(0, sli_persist_taken(g) - 5);
    const double told = !words ? rates.grid
                               : rates.grid_words + rates.words_few * few + rates.words_many * many -
                                     (g->few > 0 ? rates.words_rows : 0);
    return told + rates.grid_full * sli_persist_ctas(g) / multiprocessors_of(caps) + bytes / rates.grid_rate +
           bytes * sli_persist_ctas(g) / rates.grid_l2_rate;
}

/* Sums on their way to their owners: every CTA sends to every other. */
static double reduce_us(const sli_persist_geometry *g) {
    if (g->reduce <= 1) return 0;
    return rates.cluster + rates.cluster_block * g->reduce + (double)sli_persist_arriving_bytes(g) / rates.reduce_rate;
}

/* What a half waits for others. */
static double exchange_us(const sli_persist_geometry *g, int batch, const sli_caps *caps) {
    const double us = gather_us(g, batch, caps, sli_persist_multiplied(g)) + reduce_us(g);
    return g->before ? us + gather_us(g, batch, caps, 1) + reduce_us(g) : us;
}

/* Weights that stream in a product of all blocks; groups read the same ones. */
static double stream_bytes(const sli_persist_geometry *g) {
    return (double)sli_persist_packed_bytes(g) / g->tiles_k * sli_persist_streamed(g) * g->directions;
}

/* Weights that come through the ring in a product: a pair of tiles later than it was asked for; what is left of L2 for them. */
static double stream_us(const sli_persist_geometry *g, const sli_caps *caps) {
    const double slab = (double)sli_persist_warps(g) * g->tiles_m * TILE_BYTES;
    const double asked = 2.0 * sli_persist_warps(g) * sli_persist_part_m(g) * TILE_BYTES * g->ring;
    if (sli_persist_streamed(g) <= 0) return 0;
    const double bytes = fmax(0, slab * sli_persist_streamed(g) - asked);
    const double all = stream_bytes(g), near = sli_persist_near(all, (double)caps->l2_bytes);
    const double brought = bytes / fmin(rates.stream_rate[g->math == SL_F32], asked / rates.stream_latency);
    const double far = (all - near) * g->groups / rates.stream_memory; /* gone before another group reads it */
    if (g->couriers > 0 && g->halves > 1) return fmax(brought, far); /* no end of it: L2 and memory beside each other */
    return brought * near / all + far;
}

static double flops_a_cycle(sl_dtype math, bool turns) {
    const double of_16 = turns ? rates.turn_flops_16 : rates.flops_16;
    const double of_tf32 = turns ? rates.turn_flops_tf32 : rates.flops_tf32;
    return math == SL_F32 ? rates.flops_ffma : math == SL_TF32 ? of_tf32 : math == SL_F32X3 ? of_tf32 / 3 : of_16;
}

/* Four warps at a time; their sums meet in shared memory. */
static double together_us(const sli_persist_geometry *g) {
    const double cycles = rates.together * g->tiles_k + rates.together_shared * g->in_shared;
    const double sums = 2 * (double)partial_bytes(g) + (double)sli_persist_arriving_bytes(g);
    return ((double)sli_persist_warps(g) / 4 * g->tiles_m * cycles + sums / rates.shared_rate) / rates.clock;
}

/* Of one half: matrix units; v, which each warp reads of its k (FFMA reads each value for itself, 16 of a row's 128 bytes used),
 * and weights from shared memory; sums of the warps, written and read. */
static double product_us(const sli_persist_geometry *g, const sli_caps *caps) {
    if (sli_persist_together(g)) return together_us(g);
    const double m = g->warps_m * g->tiles_m * sli_persist_tile_rows(g->math), rows = sli_persist_rows(g);
    const double k = g->warps_k * g->tiles_k * sli_persist_tile_k(g->math), warps = sli_persist_warps(g);
    const double times = g->before && !g->backward ? 2 : 1; /* that all of k is gone through */
    const bool ffma = g->math == SL_F32;
    const double uneven = 4 * ceil(warps / 4) / warps; /* some schedulers have a warp more */
    const double multiplied = 2 * m * k * rows / flops_a_cycle(g->math, g->couriers > 0) * uneven;
    const double read = times * g->warps_m * k * rows * sli_persist_operand(g->math) * (ffma ? rates.ffma_reads : 1);
    const double weights = warps * (g->tiles_k - g->in_registers) * g->tiles_m * TILE_BYTES;
    const double both = ffma ? 1 : g->couriers > 0 ? rates.turn_product : rates.product;
    const double work = (multiplied + (read + weights) / rates.shared_rate) * both;
    const double products = !g->before ? 1 : g->backward ? rates.before_sums : 3; /* that sums are of */
    const double sums =
        products * (2 * (double)partial_bytes(g) + (double)sli_persist_arriving_bytes(g)) / rates.shared_rate;
    const double chain = times * (g->couriers > 0 && !g->backward ? rates.turn_chain : rates.chain);
    const double own = (fmax(work, chain * g->tiles_k) + sums) / rates.clock, stream = stream_us(g, caps);
    return fmax(own, stream) + rates.stream_beside[ffma] * fmin(own, stream);
}

static double cells_us(const sli_persist_geometry *g, bool train) {
    const bool turns = g->couriers > 0, more = train && !g->backward;
    const double cells = sli_persist_cells(g);
    const double values = !g->before ? sli_persist_ym(g) : g->backward ? 2 : 3; /* that a cell adds up */
    const double sums = values * (g->reduce == 1 ? g->warps_k : g->reduce);
    const double odd = g->units * sli_persist_operand(g->math) % 32 != 0 ? rates.odd : 0;
    const double each =
        turns ? rates.turn_cell[g->backward] + (more ? rates.turn_cell_trains : 0) + rates.turn_addend * sums
              : rates.cell[g->backward] + (more ? rates.cell_trains : 0) + rates.addend * sums;
    const double once =
        turns ? rates.turn_cells : (g->before ? 2 : 1) * (rates.cells + rates.cells_warp * sli_persist_warps(g));
    const double wide = g->before && g->backward ? rates.before_unit * g->units : 0;
    return once + wide + each * cells + (turns ? rates.turn_cell_more : rates.cell_more) * cells * cells + odd;
}

/* Bytes of memory that a step reads and writes: sums of the input side, gates and states for backward. */
static double flow_us(const sli_persist_geometry *g, const sli_problem *p) {
    const double floats = g->backward ? 3.0 * g->gates + 3 : (p->train ? 2.0 : 1.0) * g->gates + 2;
    return floats * sizeof(float) * p->batch * p->units * g->directions / rates.memory_flow;
}

/* v of an item on its way into a block: of those that share, each reads a part of L2. */
static double bring_us(const sli_persist_geometry *g) {
    const double bytes = (double)tiled_k(g) * sli_persist_rows(g) * sli_persist_operand(g->math);
    return bytes / rates.turn_rate + bytes * sli_persist_ctas(g) / g->share / rates.turn_l2_rate;
}

/* What an item waits for chunks of v behind weights that come by bulk copies, more than L2 keeps: a slot is filled while the others are multiplied. */
static double behind_us(const sli_persist_geometry *g, const sli_caps *caps, double computed) {
    const double slot = (double)tiled_k(g) / g->chunks * sli_persist_rows(g) * sli_persist_operand(g->math);
    const double filled = rates.turn_fill + slot / rates.turn_fill_rate, beside = (g->slots - 1) * computed / g->chunks;
    const bool near = sli_persist_near(stream_bytes(g), (double)caps->l2_bytes) >= stream_bytes(g);
    return near ? 0 : g->chunks * fmax(0, filled - beside) / g->slots;
}

static double chunks_us(const sli_persist_geometry *g) {
    const bool whole = g->chunks == 1 && !g->backward && sli_persist_together(g);
    return rates.turn_chunk * (whole ? rates.turn_whole : g->chunks);
}

/* Slots that are too few for their chunks. */
static double slots_us(const sli_persist_geometry *g) {
    const bool together = sli_persist_together(g), streams = !g->backward && sli_persist_streamed(g) > 0;
    const double most = rates.turn_slots[!together];
    return together || streams ? rates.turn_slot * fmax(0, (double)g->chunks / g->slots - most) : 0;
}

/* In turns a slice's product and cells, apart the longer of both; and its v, of which the most is brought beside them. */
static double item_us(const sli_persist_geometry *g, const sli_caps *caps, double product, double cells) {
    const bool eight = g->tiles_n == 1 && g->halves > 2 && !g->backward;
    const double more = sli_persist_together(g) ? rates.together_item[g->backward] : eight ? rates.turn_eight : 0;
    const double computed =
        g->apart > 0 ? fmax(product + rates.apart_product, cells + rates.apart_cells) : product + cells + more;
    const double slots = slots_us(g), waits = chunks_us(g) + behind_us(g, caps, computed) + (g->backward ? 0 : slots);
    const double bring = bring_us(g) + (g->backward ? slots : 0);
    const double us = fmax(computed + rates.turn_beside * bring, bring) + waits;
    const bool lag = g->reduce > 1 && g->halves > 1 && g->apart == 0;
    const double sums =
        !g->meets ? rates.turn_reduce : rates.meet_item + (double)sli_persist_arriving_bytes(g) / rates.meet_rate;
    return us * (lag ? rates.turn_reduced : 1) + (g->reduce > 1 ? sums : 0);
}

static double turns_us(const sli_persist_geometry *g, const sli_caps *caps, double product, double cells) {
    const double item = item_us(g, caps, product, cells),
                 sums = (double)sli_persist_arriving_bytes(g) / rates.turn_reduce_rate;
    const double on_way = g->meets ? rates.meet : rates.cluster + rates.cluster_block * g->reduce;
    const double reduced = g->reduce > 1 ? on_way + sums : 0;
    const double apart = product + cells + (g->backward ? 0 : rates.apart_alone + chunks_us(g));
    const double first = g->apart > 0 ? apart : item;
    const double alone = rates.turn_exchange[g->backward] + bring_us(g) + reduced + first;
    return fmax(alone, g->halves * item) * (sli_persist_streamed(g) > 0 && g->halves > 1 ? rates.turn_streams : 1);
}

double sli_persist_step_seconds(const sli_persist_geometry *g, const sli_problem *problem, const sli_caps *caps) {
    const double product = product_us(g, caps), cells = cells_us(g, problem->train);
    const double exchange = exchange_us(g, problem->batch, caps), gathered = gather_us(g, problem->batch, caps, 1);
    const double beside =
        g->before && !g->backward ? fmin(product / 3, gathered) : 0; /* z's part, while r d h' is on its way */
    const double computed = product - beside + cells;
    const double us = g->halves == 1 ? exchange + computed : 2 * (computed + rates.turn * exchange);
    const double backward = !g->backward ? 1 : sli_persist_streamed(g) > 0 ? rates.stream_backward : rates.backward;
    const double turned = g->couriers > 0 && !g->backward ? rates.split_turns[g->gates == 4] : 1;
    const bool through = g->gather == SLI_PERSIST_CLUSTER;
    const double split = g->math == SL_F32X3 ? (through ? rates.split_cluster : rates.split[g->backward]) * turned : 1;
    const double all = (g->couriers > 0 ? turns_us(g, caps, product, cells) : us * backward) * split;
    return 1e-6 * fmax(all * waves(g, caps), flow_us(g, problem));
}

/* Fitted to calls of 37 problems, 64 to 650 units, with the cuts they take, and traces of 12, on one H200 (overlap_h200_2026-11-24.txt). */
double sli_persist_taken_seconds(const sli_persist_geometry *g, const sli_problem *problem, const sli_caps *caps) {
    static const double trains = 0.075, exchanged = 1.42, multiplied = 1.26, once = 0.075;
    const double ordered = sli_persist_step_seconds(g, problem, caps);
    if (g->gather == SLI_PERSIST_GRID || g->before || g->halves > 1 || g->math == SL_F32X3) return ordered;
    const double less = problem->train ? 1e-6 * waves(g, caps) * (rates.cell_trains - trains) : 0;
    if (!g->backward) return fmax(ordered - less, 1e-6 * flow_us(g, problem));
    const double cells = once + rates.backward * rates.cell[1] * (sli_persist_cells(g) - 1);
    const double us = exchanged * exchange_us(g, problem->batch, caps) + multiplied * product_us(g, caps) + cells;
    return 1e-6 * fmax(us * waves(g, caps), flow_us(g, problem));
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

/* What streams: weights that are left over by registers, by a ring and by the rest of shared memory. A deep ring brings more a us, but
 * v and sums come first: a slice of twice the rows reads the weights once, not twice, which a shallow ring is the smaller loss for
 * (LSTM of 2048 units, 32 rows, tf32 inference: 25.2 us a step in two slices of 16 rows with the deepest ring, 18.8 in one slice
 * with none, 2026-11-22). */
static bool place_stream(const search *s, sli_persist_geometry *g) {
    const int pair = (g->math == SL_F32X3 ? 16 : 8) * g->tiles_m; /* registers of two tiles of k */
    const size_t slab = (size_t)sli_persist_warps(g) * (size_t)g->tiles_m * TILE_BYTES;
    const size_t of_part = (size_t)sli_persist_warps(g) * (size_t)sli_persist_part_m(g) * TILE_BYTES;
    if (g->before && g->halves > 1) return false; /* its parts stream in turn */
    g->in_registers = g->in_shared = 0;
    const int left = register_limit(g) - sli_persist_registers(g);
    if (left < 0) return false;
    g->ring = least(MOST_RING, (int)(MOST_RING_BYTES / (2 * of_part)));
    if (g->ring < 1) g->ring = 1;
    while (g->ring > 0 && !fits_shared(s, g)) g->ring--;
    if (g->ring == 0) return false;
    /* Outside of turns nvcc 13.0 takes some 40 more than are counted, and a word that spills is read behind a step's v by way of L2: GRU of
     * 2816 units, 32 rows, f16 2.96 ms with 19 spilled, 3.18 with 24, 2.57 with none. */
    const int kept = g->couriers == 0 && sli_persist_operand(g->math) == 2 ? left - UNCOUNTED : left;
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
    const int pair = (g->math == SL_F32X3 ? 16 : 8) * g->tiles_m; /* registers of two tiles of k */
    g->in_registers = g->tiles_k;
    g->in_shared = g->ring = 0;
    if (sli_persist_registers(g) <= limit) return fits_shared(s, g);
    g->in_registers = 0;
    g->in_shared = g->tiles_k;
    const int left = limit - sli_persist_registers(g);
    if (left < 0) return false;
    g->in_registers = left / pair * 2;
    g->in_shared = g->tiles_k - g->in_registers;
    if (fits_shared(s, g)) return true;
    /* In turns f32 and f32x3 gain nothing by it: multiplying takes them longer than v does to come. */
    if (g->couriers > 0 && (g->math == SL_F32 || g->math == SL_F32X3)) return false;
    return s->kind != SLI_PERSIST_KIND_CLUSTER && place_stream(s, g);
}

static void keep_faster(search *s, const sli_persist_geometry *g) {
    const double seconds = sli_persist_step_seconds(g, s->problem, s->caps);
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
}

static void try_warps(search *s, sli_persist_geometry g, int all_m, int all_k) {
    const int most_sums = g.math == SL_F32 ? MOST_SUMS_FFMA : MOST_SUMS, warps = sli_persist_warps(&g);
    const int least = g.couriers > 0 ? TURN_WARPS : LEAST_WARPS;
    if (warps > least && (g.warps_m > all_m || g.warps_k > all_k)) return; /* warps without a tile */
    set_tiles(&g, all_m, all_k);
    const int sums = sli_persist_part_m(&g) * g.tiles_n;
    if (g.tiles_m > MOST_TILES_M || g.tiles_k > MOST_TILES_K || sums > most_sums) return;
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

static void try_tiles(search *s, sli_persist_geometry g) {
    const int all_m = up(sli_persist_m(&g), sli_persist_tile_rows(g.math));
    const int all_k = up(sli_persist_k(&g), sli_persist_tile_k(g.math));
    if (g.couriers > 0) {
        /* Of two turns, sums on their way hold up the v that is needed next, unless cells are apart. */
        const int least = g.reduce > 1 && g.halves == 2 ? SLI_PERSIST_APART : 0;
        for (g.apart = least; g.apart <= SLI_PERSIST_APART; g.apart += SLI_PERSIST_APART)
            for (g.warps_m = 1; g.warps_m <= TURN_WARPS; g.warps_m *= 2) {
                g.warps_k = TURN_WARPS / g.warps_m;
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
            if (s->kind == SLI_PERSIST_KIND_GRID && waves(&g, s->caps) > 1) continue;
            if (s->seconds >= 0 && 1e-6 * exchange_us(&g, batch, s->caps) * waves(&g, s->caps) >= s->seconds) continue;
            try_tiles(s, g);
        }
}

/* In f32 a CTA may have fewer rows than 8: products of a small layer are over sooner, of a small batch FFMA multiplies no rows that
 * are not there. So it may in tf32 and f32x3: exact products of a few rows take less time than eight rows on tensor cores; in tf32 but
 * of a small layer through a cluster, where the exchange is most of a step (LSTM, one row: 128 units 0.63 us a step, on tensor cores 0.60;
 * 160 units 0.64 and 0.70, 256 units 0.70 and 0.80). */
static void try_few_rows(search *s, sli_persist_geometry g) {
    const int batch = s->problem->batch;
    const bool through_cluster = g.gather != SLI_PERSIST_GRID && sli_persist_cluster(&g) > 1;
    if (sli_persist_operand(g.math) == 2) return;
    if (g.math == SL_TF32 && through_cluster && s->problem->units < FEW_UNITS) return;
    g.math = SL_F32;
    g.halves = g.tiles_n = 1;
    for (g.few = 4; g.few >= 1; g.few /= 2) {
        g.groups = up(batch, g.few);
        if (waves(&g, s->caps) == 1) try_tiles(s, g);
    }
}

/* More slices than two a group, in turns: the larger the batch, the less their exchange is waited for. */
static void try_turns(search *s, sli_persist_geometry g) {
    const int most = multiprocessors_of(s->caps) / (sli_persist_group(&g) * g.directions);
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
                const bool in_clusters = g.share * g.reduce <= widest_cluster(s->caps) && waves(&g, s->caps) == 1;
                g.meets = !in_clusters && g.reduce > 1;
                if (g.spread % g.share == 0 && g.share <= widest_cluster(s->caps) && waves(&g, s->caps) == 1)
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
        /* Alone a block has too many cells: GRU of 64 units in tf32 1.40 us a step, in two blocks 0.69 (2026-11-21). In 16 bits so
         * backward, but for RNN: training of GRU 106 us in one block, 70 in four, of RNN 56 and 61 (cuts_h200_2026-11-23.txt). */
        const bool busy = sli_persist_operand(g.math) == 4 || (g.backward && g.gates > 1);
        if (blocks == 1 && busy && s->problem->units > ALONE_UNITS) continue;
        try_rows(s, g);
    }
}

static void try_grids(search *s, sli_persist_geometry g) {
    const int multiple = sli_persist_unit_multiple(g.math, g.gather, g.backward), units = s->problem->units;
    const int most = g.backward ? MOST_CLUSTER : 4, all = multiprocessors_of(s->caps);
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

/* In f32x3 exact products are as good where they are faster. */
static bool find(search *s, bool backward) {
    sli_persist_geometry g = {.gates = sli_op_gates(s->problem->op),
                              .math = s->problem->dtype,
                              .backward = backward,
                              .share = 1,
                              .chunks = 1};
    g.directions = sli_problem_directions(s->problem);
    g.before = s->problem->op == SLI_OP_GRU && s->problem->reset_before;
    g.gather = s->kind == SLI_PERSIST_KIND_GRID ? SLI_PERSIST_GRID : backward ? SLI_PERSIST_LOCAL : SLI_PERSIST_CLUSTER;
    s->seconds = -1;
    s->found = 0;
    if (s->caps->no_compiler)
        try_builtin(s, &g);
    else
        try_all(s, g);
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
    const int all = multiprocessors_of(s->caps);
    const double matrix = (double)sli_op_gates(p->op) * p->units * p->units * sli_persist_operand(p->dtype);
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
