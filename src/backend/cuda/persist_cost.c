/* What a step of the persistent recurrence will take, by its geometry. Compiled into libsluice and into the plug-in. */
#include <math.h>

#include "backend/cuda/persist_cost.h"

/* In turns: a chunk; until sums that meet in memory have; a cell of a warp (forward, backward), a sum that is added; a chunk waits for its slot, from so many chunks a slot
 * on: wgmma, mma that streams; what an item is longer than its cells, where those are apart. */
typedef struct turn_rates {
    double chunk, meet, cell[2], addend, slot, slots[2], cells_apart;
} turn_rates;

/* ------------------------------------------------------------------------------------------------------ seconds --
 * A step: v is gathered, multiplied, sums are reduced, cells are computed, one after the other:
 *     us = gather + product + reduce + cells,     two halves:  2 (product + cells + turn (gather + reduce))
 * of one half each; of slices in turns as below. Origin of the constants: fitted to 529 geometries of LSTM and GRU, 256 to 2048
 * units, 1 to 256 rows, bf16, tf32, f32, each measured on one H200, 2026-11-21 (bench/results/geometries_h200_*): the middle
 * prediction is 6% off, the geometry predicted to be the best 3% slower than the best that was measured; those of grids were measured
 * before a warp had cells of 16 units (of 204 measured since the choice is 3% behind as well). Those of turns: 219 of them, of 512
 * to 2048 units, bf16 and tf32 (turns_h200_*): 8% and 5%. Those of streams: 104 of them, 1024 to 4096 units (streams_h200_*): 6%. Words that tell, and turn_exchange
 * forward: by hand, from 91 of 650 to 2048 units (exchange_h200_2026-11-22.txt). turn_whole (since then of inference alone: training forward with one chunk is as fast as with two), turn_chain, turn_eight, apart_alone, forward's together_item, slots of streams: by hand, from 365 of 40
 * problems: the cut that is chosen was 2.2% slower than the best of those, and is 0.8% (cuts_h200_2026-11-23.txt). Sums that meet in memory: by hand, from a dozen cuts (meeting_h200_2026-11-23.txt). Few rows over the
 * grid: 0.1 us less (inference in tf32: 0.2), by hand; through a cluster they take 0.1 to 0.15 us more than predicted (few_rows_h200_2026-11-22.txt). Times are us, rates bytes a us. */
static const struct {
    double clock;                  /* cycles a us, under load */
    double cluster, cluster_block; /* exchange through a cluster, and a block of it more */
    double cluster_rate[2],
        cluster_rate_block; /* bytes that arrive in a block (inference in tf32: the second); less by a block of the cluster more */
    double grid, grid_words, grid_full;      /* counter; words that tell; and more of both over the whole GPU */
    double words_few, words_many;            /* a warp fewer than eight, a piece a lane more than five */
    double words_rows[2];                    /* few rows less (inference in tf32: the second) */
    double grid_rate, grid_l2_rate;          /* reading of v: by a block, and of L2 by all of them */
    double flops_16, flops_tf32, flops_ffma; /* FLOP a cycle and multiprocessor */
    double shared_rate, ffma_reads;          /* bytes a cycle; times that FFMA reads v */
    double product;                          /* times matrix units and shared memory take together, in mma */
    /* Of training and of inference in tf32: cycles of a warp's tile of weights that are tight; times that shared memory takes alone, at least. Of training, as
     * the next three, fitted to 39 groups of cuts on an H100: the one that is chosen is 0.9% slower than the best of its group (tight_h100_2026-11-25.txt). */
    double untie[2], tf32_loads[2];
    double tf32_meet_rate,
        tight_turns;       /* meet_rate beside weights that stream; turn_streams of weights that are tight */
    double tight_backward; /* stream_backward of weights that are tight */
    /* Inference in tf32, fitted to 78 groups of cuts on an H200 (cuts_h200_2026-11-27.txt). Anywhere: what fewer warps than eight take more to untie weights, and
     * more of them less (untie_few). Not in turns: times that v is read (tf32_reads), cycles of a warp's tile and eight rows (tf32_tile), times that
     * tight weights stream (tight_stream). In turns: chunks a slot from which wgmma waits (tf32_slots, as slots), part of bringing v that the
     * first item waits for (tf32_first), us for each further block that shares v (tf32_share), and for the first chunk by mma, over chunks (tf32_wait). */
    double untie_few, tf32_reads, tf32_tile, tight_stream, tf32_slots, tf32_first, tf32_share, tf32_wait;
    /* Inference in 16 bits, fitted to 23 groups of 16 cuts (the same file). Over the grid, not in turns: cycles of a warp's tile (tile16), part of reading
     * weights in shared memory that counts (weights16). In turns: part of bringing v that the first item waits for (first16), us where two blocks share v,
     * and where more do (share16), and for each multiple of 3 KB that a part of a chunk is short of (piece16). */
    double tile16, weights16, first16, share16[2], piece16;
    double chain;             /* cycles from one mma to the next that adds to its sums; the ISA's */
    double cells, cells_warp; /* of a step, and its barriers a warp */
    /* Cells a warp: forward, backward; forward in training more, of 16 bits through a cluster the second (cuts_h200_2026-11-27.txt); times squared. */
    double cell[2], cell_trains[2], cell_more;
    double addend, odd; /* a sum that a cell adds up; units whose v shares 32 bytes with others' */
    double
        odd_cluster; /* the same in 16 bits through a cluster, where v goes through no L2; by hand, from 25 problems of 100 to 384 units (odd_sizes_h200_2026-11-27.txt), and two layers of 200 (own_sums_h200_2026-11-27.txt, 8) */
    double turn;     /* of an exchange, what two halves do not hide of it */
    /* Turns: all but training in 16 bits, or scaled; that; and times that warps' sums are written and read, in 16 bits or scaled the second: fitted to 288 groups of cuts
     * (cuts_h200_2026-11-28.txt). */
    turn_rates turns[2];
    double turn_partial[2];
    /* Until all that was given can be brought (forward, backward); v: by a block, and of L2 by all, and what of it holds up the item; of sums on their way: bytes that
     * arrive in a block, an item, times an item whose cells wait for them; cells: of an item, forward in training more, times squared. */
    double turn_exchange[2], turn_rate, turn_l2_rate[2],
        turn_beside; /* turn_l2_rate: in inference in 16 bits the second; turn_beside: but in inference in tf32 and 16 bits, where v is brought beside all of it */
    double turn_whole
        [2]; /* chunks that v in one piece counts for, by wgmma, in inference, which waits for its last byte; in 16 bits the second */
    double turn_chain; /* chain, forward in turns */
    double turn_eight; /* of more than two items of eight rows, each */
    double turn_reduce_rate[2], turn_reduce, turn_reduced,
        turn_product;            /* turn_reduce_rate: in inference in tf32 the second */
    double meet_item, meet_rate; /* sums that meet in memory: what they hold up an item, and their bytes a us */
    double turn_cells, turn_cell_trains, turn_cell_more;
    double turn_flops_16, turn_flops_tf32;
    double turn_fill, turn_fill_rate,
        turn_streams; /* of streams: a slot, and its bytes; times, of slices in turns, in inference in tf32 of one slice too */
    double wait,
        wait_chunk; /* backward in 16 bits, cells apart: for the first chunk, over chunks, and of each (cuts_h200_2026-11-27.txt) */
    double together, together_shared, together_item[2]; /* wgmma: cycles; weights in shared memory; of an item */
    double apart_product,
        apart_alone; /* cells apart: what an item is longer than its product, and forward where nothing is beside it */
    double backward; /* times what is predicted so */
    /* Times, in f32x3; through a cluster, both ways; and forward in turns, others and LSTM (split_h200_2026-11-23, layers_again_h200_2026-11-24). */
    double split[2], split_cluster, split_turns[2];
    double reduce_rate; /* bytes of sums that arrive in a block */
    /* Of four rows of eight: times the product forward; cycles more of a warp's tile of weights backward, in 16 bits and else; by hand
     * (part_rows_h100_2026-11-27.txt; in 16 bits cuts_h200_2026-11-27.txt). Backward through a cluster in 16 bits: tiles of sums that a warp sends beside
     * its first, of eight rows and of four (the same). */
    double part_product, part_tile[2], sent[2];
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
           .cluster_rate = {40e3, 22e3},
           .cluster_rate_block = 0.47e3,
           .grid = 0.94,
           .grid_words = 0.66,
           .words_few = 0.05,
           .words_many = 0.1,
           .words_rows = {0.1, 0.2},
           .grid_full = 0.03,
           .grid_rate = 122e3,
           .grid_l2_rate = 7.2e6,
           .flops_16 = 2550,
           .flops_tf32 = 1670,
           .flops_ffma = 240,
           .shared_rate = 128,
           .ffma_reads = 10.3,
           .product = 0.96,
           .untie = {0.6, 1.2},
           .tf32_loads = {1.3, 1.53},
           .tf32_slots = 0.4,
           .tile16 = 6,
           .weights16 = 0.6,
           .first16 = 0.3,
           .share16 = {0.2, 0.05},
           .piece16 = 0.4,
           .untie_few = 1.65,
           .tf32_reads = 1.5,
           .tf32_tile = 1.6,
           .tight_stream = 1.6,
           .tf32_first = 0.79,
           .tf32_share = 0.02,
           .tf32_wait = 0.235,
           .tf32_meet_rate = 16e3,
           .tight_turns = 1.2,
           .tight_backward = 1.1,
           .chain = 20,
           .cells = 0.02,
           .cells_warp = 0.007,
           .cell = {0.056, 0.81},
           .cell_trains = {0.32, 0.1},
           .cell_more = 0.01,
           .addend = 0.0057,
           .odd = 0.1,
           .odd_cluster = 0.04,
           .turn = 0.93,
           .turn_exchange = {1.42, 1.77},
           .turns = {{0.0187, 3, {0.09, 0.283}, 0.0074, 0.5, {2, 4.5}, 0.275},
                     {0.03, 2, {0.06, 0.14}, 0.018, 0.9, {2, 5.35}, 0.16}},
           .turn_partial = {1, 1.4},
           .turn_rate = 212e3,
           .turn_l2_rate = {13.7e6, 30e6},
           .turn_beside = 0.32,
           .turn_whole = {3, 4},
           .turn_chain = 14,
           .turn_eight = 0.05,
           .turn_reduce_rate = {195e3, 30e3},
           .turn_reduce = 0.096,
           .turn_reduced = 1.164,
           .turn_product = 0.675,
           .meet_item = 0.5,
           .meet_rate = 23e3,
           .turn_cells = 0.304,
           .turn_cell_trains = 0.098,
           .turn_cell_more = 0.03,
           .turn_flops_16 = 3600,
           .turn_flops_tf32 = 1800,
           .turn_fill = 0.6,
           .turn_fill_rate = 26e3,
           .turn_streams = 1.26,
           .wait = 0.06,
           .wait_chunk = 0.006,
           .together = 12.8,
           .together_shared = 5.2,
           .together_item = {0.036, 0.086},
           .apart_product = 0.283,
           .apart_alone = 0.08,
           .backward = 0.82,
           .split = {1.55, 1.7},
           .split_cluster = 2,
           .split_turns = {1.12, 1.4},
           .reduce_rate = 31e3,
           .part_product = 1.1,
           .part_tile = {10, 3},
           .sent = {0.2, 0.03},
           .stream_rate = {70e3, 54e3},
           .stream_latency = 0.9,
           .stream_memory = 4.1e6,
           .stream_beside = {0.363, 0.163},
           .stream_backward = 0.937,
           .memory_flow = 3.5e6,
           .before_sums = 4,
           .before_unit = 0.02};

static const turn_rates *turns_of(const sli_persist_geometry *g, bool train) {
    return &rates.turns[sli_persist_operand(g->math) == 2 && train];
}

/* Inference in tf32 and in 16 bits has constants of its own: with them training's cuts became slower. */
static bool infers_tf32(const sli_persist_geometry *g, const sli_problem *p) {
    return p->dtype == SL_TF32 && !g->scaled && !p->train;
}
static bool infers_16(const sli_persist_geometry *g, const sli_problem *p) {
    return (sli_persist_operand(p->dtype) == 2 || g->scaled) && !p->train;
}

/* Four of the eight rows that tensor cores multiply. */
static bool has_part_rows(const sli_persist_geometry *g) {
    return g->few > 0 && g->math != SL_F32;
}

static double cluster_us(int size, double bytes, bool infers) {
    if (size <= 1) return 0;
    return rates.cluster + rates.cluster_block * size +
           bytes / (rates.cluster_rate[infers] - rates.cluster_rate_block * size);
}

/* `gates`: of v and of sums, forward and backward, in one product; with reset before there are two (exchange_us). */
static double gather_us(const sli_persist_geometry *g, const sli_problem *p, const sli_caps *caps, int gates) {
    const bool words = sli_persist_words_tell(g);
    const int rows = words && p->batch < 8 ? p->batch : sli_persist_rows(g); /* that are exchanged */
    const double values = (double)g->spread * g->units * (g->backward ? gates : 1);
    const double bytes = values * rows * sli_persist_operand(g->math);
    if (g->gather == SLI_PERSIST_LOCAL) return 0;
    if (g->gather == SLI_PERSIST_CLUSTER) return cluster_us(g->spread, bytes, infers_tf32(g, p));
    const double few = fmax(0, SLI_PERSIST_TURN_WARPS - sli_persist_warps(g)), many = fmax(0, sli_persist_taken(g) - 5);
    const double told = !words ? rates.grid
                               : rates.grid_words + rates.words_few * few + rates.words_many * many -
                                     (g->few > 0 ? rates.words_rows[infers_tf32(g, p)] : 0);
    return told + rates.grid_full * sli_persist_ctas(g) / sli_persist_multiprocessors(caps) + bytes / rates.grid_rate +
           bytes * sli_persist_ctas(g) / rates.grid_l2_rate;
}

/* Sums on their way to their owners: every CTA sends to every other. */
static double reduce_us(const sli_persist_geometry *g) {
    if (g->reduce <= 1) return 0;
    const double sent = (double)sli_persist_arriving_bytes(g) / (has_part_rows(g) ? 2 : 1);
    return rates.cluster + rates.cluster_block * g->reduce + sent / rates.reduce_rate;
}

/* What a half waits for others. */
double sli_persist_exchange_us(const sli_persist_geometry *g, const sli_problem *p, const sli_caps *caps) {
    const double us = gather_us(g, p, caps, sli_persist_multiplied(g)) + reduce_us(g);
    return g->before ? us + gather_us(g, p, caps, 1) + reduce_us(g) : us;
}

/* Weights that stream in a product of all blocks; groups read the same ones. */
static double stream_bytes(const sli_persist_geometry *g) {
    return (double)sli_persist_packed_bytes(g) / g->tiles_k * sli_persist_streamed(g) * g->directions;
}

/* Weights that come through the ring in a product: a pair of tiles later than it was asked for; what is left of L2 for them. */
static double stream_us(const sli_persist_geometry *g, const sli_problem *p, const sli_caps *caps) {
    const double slab = (double)sli_persist_warps(g) * g->tiles_m * sli_persist_tile_bytes(g);
    const double asked = 2.0 * sli_persist_warps(g) * sli_persist_part_m(g) * sli_persist_tile_bytes(g) * g->ring;
    if (sli_persist_streamed(g) <= 0) return 0;
    const double bytes = fmax(0, slab * sli_persist_streamed(g) - asked);
    const double all = stream_bytes(g), near = sli_persist_near(all, (double)caps->l2_bytes);
    const double brought = bytes / fmin(rates.stream_rate[g->math == SL_F32], asked / rates.stream_latency);
    const double far = (all - near) * g->groups / rates.stream_memory; /* gone before another group reads it */
    if (g->couriers > 0 && g->halves > 1) return fmax(brought, far); /* no end of it: L2 and memory beside each other */
    return (brought * near / all + far) * (infers_tf32(g, p) && g->tight && g->couriers == 0 ? rates.tight_stream : 1);
}

static double flops_a_cycle(sl_dtype math, bool turns) {
    const double of_16 = turns ? rates.turn_flops_16 : rates.flops_16;
    const double of_tf32 = turns ? rates.turn_flops_tf32 : rates.flops_tf32;
    return math == SL_F32 ? rates.flops_ffma : math == SL_TF32 ? of_tf32 : math == SL_F32X3 ? of_tf32 / 3 : of_16;
}

/* Four warps at a time; their sums meet in shared memory. */
static double together_us(const sli_persist_geometry *g) {
    const double cycles = rates.together * g->tiles_k + rates.together_shared * g->in_shared;
    const double sums = 2 * (double)sli_persist_partial_bytes(g) + (double)sli_persist_arriving_bytes(g);
    return ((double)sli_persist_warps(g) / 4 * g->tiles_m * cycles + sums / rates.shared_rate) / rates.clock;
}

/* Cycles of matrix units, of bytes of v and of weights from shared memory, and of untying, as far as they are not beside each other. `infers`: in tf32. */
static double work_cycles(const sli_persist_geometry *g, const sli_problem *p, double multiplied, double read,
                          double weights) {
    const bool infers = infers_tf32(g, p), turns = g->couriers > 0;
    const bool grid_16 = infers_16(g, p) && g->gather == SLI_PERSIST_GRID && !turns;
    const double warps = sli_persist_warps(g), tiles = (double)g->tiles_k * g->tiles_m;
    const double both = g->math == SL_F32 ? 1 : turns ? rates.turn_product : rates.product;
    const double few =
        infers ? 1 + rates.untie_few * (SLI_PERSIST_TURN_WARPS / warps - 1) : 1; /* > 0: at most 16 warps */
    const double untied = g->tight ? rates.untie[infers] * few * warps * tiles : 0;
    const double of_tile = grid_16 ? rates.tile16 : 0,
                 of_eight = infers && g->math == SL_TF32 && !turns ? rates.tf32_tile : 0;
    const double issued = (of_tile + of_eight * g->tiles_n) * tiles,
                 far = grid_16 ? rates.weights16 * weights : weights;
    const double work = (multiplied + issued + (read + far) / rates.shared_rate) * both + untied;
    const double alone = ((infers && !turns ? rates.tf32_reads : 1) * read + weights) / rates.shared_rate;
    return g->math == SL_TF32 ? fmax(work, rates.tf32_loads[infers] * alone) : work;
}

/* Of one half: matrix units; v, which each warp reads of its k (FFMA reads each value for itself, 16 of a row's 128 bytes used),
 * and weights from shared memory; sums of the warps, written and read. */
static double product_us(const sli_persist_geometry *g, const sli_problem *p, const sli_caps *caps) {
    if (sli_persist_together(g)) return together_us(g);
    const double m = g->warps_m * g->tiles_m * sli_persist_tile_rows(g->math),
                 rows = has_part_rows(g) ? 8 : sli_persist_rows(g);
    const double k = g->warps_k * g->tiles_k * sli_persist_tile_k(g->math), warps = sli_persist_warps(g);
    const double times = g->before && !g->backward ? 2 : 1; /* that all of k is gone through */
    const bool ffma = g->math == SL_F32;
    const double uneven = 4 * ceil(warps / 4) / warps; /* some schedulers have a warp more */
    const double multiplied = 2 * m * k * rows / flops_a_cycle(g->math, g->couriers > 0) * uneven;
    const double read = times * g->warps_m * k * rows * sli_persist_operand(g->math) * (ffma ? rates.ffma_reads : 1);
    const double weights = warps * (g->tiles_k - g->in_registers) * g->tiles_m * sli_persist_tile_bytes(g);
    const double work = work_cycles(g, p, multiplied, read, weights);
    const double products = !g->before ? 1 : g->backward ? rates.before_sums : 3; /* that sums are of */
    const double again = g->couriers > 0 ? rates.turn_partial[sli_persist_operand(g->math) == 2] : 1;
    const double sums = products *
                        (2 * again * (double)sli_persist_partial_bytes(g) + (double)sli_persist_arriving_bytes(g)) /
                        rates.shared_rate;
    const double chain = times * (g->couriers > 0 && !g->backward ? rates.turn_chain : rates.chain);
    const double own = (fmax(work, chain * g->tiles_k) + sums) / rates.clock, stream = stream_us(g, p, caps);
    return fmax(own, stream) + rates.stream_beside[ffma] * fmin(own, stream);
}

/* Backward through a cluster in 16 bits: rows of tiles of sums that a warp sends beside its first. */
static double sent_us(const sli_persist_geometry *g) {
    const bool sends = g->gather == SLI_PERSIST_LOCAL && g->reduce > 1 && sli_persist_operand(g->math) == 2;
    return sends ? rates.sent[g->few > 0] * (g->tiles_m - 1) : 0;
}

static double trains_us(const sli_persist_geometry *g) {
    return rates.cell_trains[g->gather == SLI_PERSIST_CLUSTER && sli_persist_operand(g->math) == 2];
}

static double cells_us(const sli_persist_geometry *g, bool train) {
    const bool turns = g->couriers > 0, more = train && !g->backward;
    const double cells = sli_persist_cells(g);
    const double values = !g->before ? sli_persist_ym(g) : g->backward ? 2 : 3; /* that a cell adds up */
    const double sums = values * (g->reduce == 1 ? g->warps_k : g->reduce);
    const int operand = sli_persist_operand(g->math);
    const double of_odd = g->gather != SLI_PERSIST_GRID && operand == 2 ? rates.odd_cluster : rates.odd;
    const double odd = g->units * operand % 32 != 0 ? of_odd : 0;
    const double each = turns ? turns_of(g, train)->cell[g->backward] + (more ? rates.turn_cell_trains : 0) +
                                    turns_of(g, train)->addend * sums
                              : rates.cell[g->backward] + (more ? trains_us(g) : 0) + rates.addend * sums;
    const double once =
        turns ? rates.turn_cells : (g->before ? 2 : 1) * (rates.cells + rates.cells_warp * sli_persist_warps(g));
    const double wide = g->before && g->backward ? rates.before_unit * g->units : 0;
    return once + wide + sent_us(g) + each * cells + (turns ? rates.turn_cell_more : rates.cell_more) * cells * cells +
           odd;
}

/* Bytes of memory that a step reads and writes: sums of the input side, gates and states for backward. */
static double flow_us(const sli_persist_geometry *g, const sli_problem *p) {
    const double floats = g->backward ? 3.0 * g->gates + 3 : (p->train ? 2.0 : 1.0) * g->gates + 2;
    return floats * sizeof(float) * p->batch * p->units * g->directions / rates.memory_flow;
}

static double item_bytes(const sli_persist_geometry *g) { /* of its v */
    return (double)sli_persist_tiled_k(g) * sli_persist_rows(g) * sli_persist_operand(g->math);
}

/* v of an item on its way into a block: of those that share, each reads a part of L2. */
static double bring_us(const sli_persist_geometry *g, const sli_problem *p) {
    const double bytes = item_bytes(g);
    return bytes / rates.turn_rate + bytes * sli_persist_ctas(g) / g->share / rates.turn_l2_rate[infers_16(g, p)];
}

/* What an item waits for chunks of v behind weights that come by bulk copies, more than L2 keeps: a slot is filled while the others are multiplied. */
static double behind_us(const sli_persist_geometry *g, const sli_caps *caps, double computed) {
    const double slot = item_bytes(g) / g->chunks;
    const double filled = rates.turn_fill + slot / rates.turn_fill_rate, beside = (g->slots - 1) * computed / g->chunks;
    const bool near = sli_persist_near(stream_bytes(g), (double)caps->l2_bytes) >= stream_bytes(g);
    return near ? 0 : g->chunks * fmax(0, filled - beside) / g->slots;
}

/* What a block waits for those that bring parts of its v, in inference in tf32 and 16 bits; else they are beside the rest. */
static double share_us(const sli_persist_geometry *g, const sli_problem *p) {
    static const double least = 3 * 1024; /* bytes of a part, below which its copy takes longer: fitted */
    if (infers_tf32(g, p)) return rates.tf32_share * (g->share - 1);
    if (!infers_16(g, p) || g->share == 1) return 0;
    return rates.share16[g->share > 2] + rates.piece16 * fmax(0, least * g->chunks * g->share / item_bytes(g) - 1);
}

static double chunks_us(const sli_persist_geometry *g, const sli_problem *p) {
    const double first = infers_tf32(g, p) && !sli_persist_together(g) ? rates.tf32_wait / g->chunks : 0;
    const bool whole = g->chunks == 1 && !p->train && sli_persist_together(g);
    return turns_of(g, p->train)->chunk * (whole ? rates.turn_whole[infers_16(g, p)] : g->chunks) + first +
           share_us(g, p);
}

/* Slots that are too few for their chunks. */
static double slots_us(const sli_persist_geometry *g, const sli_problem *p) {
    const bool together = sli_persist_together(g), streams = !g->backward && sli_persist_streamed(g) > 0;
    const double most = together && infers_tf32(g, p) ? rates.tf32_slots : turns_of(g, p->train)->slots[!together];
    return together || streams ? turns_of(g, p->train)->slot * fmax(0, (double)g->chunks / g->slots - most) : 0;
}

/* In turns a slice's product and cells, apart the longer of both; and its v, of which the most is brought beside them. */
static double item_us(const sli_persist_geometry *g, const sli_problem *p, const sli_caps *caps, double product,
                      double cells) {
    const bool eight = g->tiles_n == 1 && g->halves > 2 && !g->backward;
    const double more = sli_persist_together(g) ? rates.together_item[g->backward] : eight ? rates.turn_eight : 0;
    const double computed = g->apart > 0
                                ? fmax(product + rates.apart_product, cells + turns_of(g, p->train)->cells_apart)
                                : product + cells + more;
    const double slots = slots_us(g, p),
                 waits = chunks_us(g, p) + behind_us(g, caps, computed) + (g->backward ? 0 : slots);
    const double bring = bring_us(g, p) + (g->backward ? slots : 0);
    const double held_up = infers_tf32(g, p) || infers_16(g, p) ? 0 : rates.turn_beside * bring;
    const double us = fmax(computed + held_up, bring) + waits;
    const bool lag = g->reduce > 1 && g->halves > 1 && g->apart == 0;
    const bool beside = g->math == SL_TF32 && sli_persist_streamed(g) > 0;
    const double meet = (double)sli_persist_arriving_bytes(g) / (beside ? rates.tf32_meet_rate : rates.meet_rate);
    const double sums = !g->meets ? rates.turn_reduce : rates.meet_item + meet;
    return us * (lag ? rates.turn_reduced : 1) + (g->reduce > 1 ? sums : 0);
}

static double turns_us(const sli_persist_geometry *g, const sli_problem *p, const sli_caps *caps, double product,
                       double cells) {
    const double item = item_us(g, p, caps, product, cells),
                 sums = (double)sli_persist_arriving_bytes(g) / rates.turn_reduce_rate[infers_tf32(g, p)];
    const double on_way = g->meets ? turns_of(g, p->train)->meet : rates.cluster + rates.cluster_block * g->reduce;
    const double reduced = g->reduce > 1 ? on_way + sums : 0;
    const double apart = product + cells + (g->backward ? 0 : rates.apart_alone + chunks_us(g, p));
    const double first = g->apart > 0 ? apart : item;
    const double bring = bring_us(g, p) * (infers_tf32(g, p) ? rates.tf32_first : infers_16(g, p) ? rates.first16 : 1);
    const bool waits = g->backward && g->apart > 0 && sli_persist_operand(g->math) == 2;
    const double chunks = waits ? rates.wait / g->chunks + rates.wait_chunk * g->chunks : 0;
    const double alone = rates.turn_exchange[g->backward] + bring + reduced + first + chunks;
    const bool beside = g->halves > 1 || infers_tf32(g, p); /* there of one slice too: fitted */
    const double streams = sli_persist_streamed(g) == 0 || !beside ? 1
                           : g->tight                              ? rates.tight_turns
                                                                   : rates.turn_streams;
    return fmax(alone, g->halves * item) * streams;
}

static double step_us(const sli_persist_geometry *g, const sli_problem *problem, const sli_caps *caps) {
    const double product = product_us(g, problem, caps), cells = cells_us(g, problem->train);
    const double exchange = sli_persist_exchange_us(g, problem, caps), gathered = gather_us(g, problem, caps, 1);
    const double beside =
        g->before && !g->backward ? fmin(product / 3, gathered) : 0; /* z's part, while r d h' is on its way */
    const double tiles = rates.part_tile[sli_persist_operand(g->math) == 4] / rates.clock * g->tiles_m * g->tiles_k;
    const double part = !has_part_rows(g) ? 0 : g->backward ? tiles : (rates.part_product - 1) * product;
    const double computed = product + part - beside + cells;
    const double us = g->halves == 1 ? exchange + computed : 2 * (computed + rates.turn * exchange);
    const double streams = g->tight ? rates.tight_backward : rates.stream_backward;
    const double backward = !g->backward ? 1 : sli_persist_streamed(g) > 0 ? streams : rates.backward;
    const double turned = g->couriers > 0 && !g->backward ? rates.split_turns[g->gates == 4] : 1;
    const bool through = g->gather == SLI_PERSIST_CLUSTER;
    const double split = g->math == SL_F32X3 ? (through ? rates.split_cluster : rates.split[g->backward]) * turned : 1;
    const double all = (g->couriers > 0 ? turns_us(g, problem, caps, product, cells) : us * backward) * split;
    return all * sli_persist_waves(g, caps);
}

double sli_persist_step_seconds(const sli_persist_geometry *g, const sli_problem *problem, const sli_caps *caps) {
    return 1e-6 * fmax(step_us(g, problem, caps), flow_us(g, problem));
}

/* Fitted to cuts of which 24 a pass were timed (cuts_h200_2026-11-29.txt), forward in 16 bits or scaled; stacks and waves are predicted without. Four rows
 * of eight take less than the product that was thought, and units that share 32 bytes nothing; of fewer than eight warps some schedulers may have one more. */
static double order_us(const sli_persist_geometry *g, const sli_problem *problem, const sli_caps *caps) {
    static const double less = 0.1, uneven = 0.03, turns = 0.3; /* turns: in training */
    const bool narrow = sli_persist_operand(g->math) == 2 && !g->backward;
    if (narrow && problem->train && g->couriers > 0) return turns;
    if (!narrow || g->wave > 0 || g->gather != SLI_PERSIST_CLUSTER || !has_part_rows(g)) return 0;
    const int warps = sli_persist_warps(g);
    const double odd = g->units * sli_persist_operand(g->math) % 32 != 0 ? rates.odd_cluster : 0;
    const double thought = (rates.part_product - 1) * product_us(g, problem, caps) + odd + less;
    const double more = warps < SLI_PERSIST_TURN_WARPS && warps % 4 != 0 ? uneven : 0;
    return sli_persist_waves(g, caps) * (more - thought);
}

double sli_persist_order_seconds(const sli_persist_geometry *g, const sli_problem *problem, const sli_caps *caps) {
    return 1e-6 * fmax(step_us(g, problem, caps) + order_us(g, problem, caps), flow_us(g, problem));
}

/* Fitted to calls of 37 problems, 64 to 650 units, with the cuts they take, and traces of 12, on one H200 (overlap_h200_2026-11-24.txt). Constants that were
 * fitted to order cuts since then (cuts_h200_2026-11-27.txt) are left out where rows were chosen worse by them: of inference in 16 bits over the grid, but in turns; of
 * cuts of one slice through a cluster, and not of reset before, the exchange of inference in tf32 and the cells of training in 16 bits. */
double sli_persist_taken_seconds(const sli_persist_geometry *g, const sli_problem *problem, const sli_caps *caps) {
    static const double trains = 0.075, exchanged = 1.42, multiplied = 1.26, once = 0.075;
    const bool grid = g->gather == SLI_PERSIST_GRID, grid_16 = grid && infers_16(g, problem) && g->couriers == 0;
    const double waves = sli_persist_waves(g, caps), cells = sli_persist_cells(g);
    sli_problem as_then = *problem; /* exchange and product without constants of inference */
    as_then.train = true;
    if (g->before || g->math == SL_F32X3 || (!grid_16 && (grid || g->halves > 1)))
        return sli_persist_step_seconds(g, problem, caps);
    const double exchange = sli_persist_exchange_us(g, &as_then, caps), product = product_us(g, problem, caps);
    double us = step_us(g, problem, caps);
    if (grid_16)
        us -= waves * g->halves * (product - product_us(g, &as_then, caps));
    else if (g->backward)
        us =
            waves * (exchanged * exchange + multiplied * product + once + rates.backward * rates.cell[1] * (cells - 1));
    else if (problem->train)
        us -= waves * (rates.cell_trains[0] - trains - (rates.cell_trains[0] - trains_us(g)) * cells);
    else
        us -= waves * (sli_persist_exchange_us(g, problem, caps) - exchange);
    return 1e-6 * fmax(us, flow_us(g, problem));
}
